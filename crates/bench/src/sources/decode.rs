//! Decoding alone, on one core: packets, lines and notifications to frames in a sink that discards them.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use strongback_sources::Sink;
use strongback_sources::ads::value::ValueKind;
use strongback_sources::ads::wire::Notification;
use strongback_sources::config::SourceConfig;
use strongback_sources::ilp::{IlpConfig, Ingress, Precision};
use strongback_sources::inetx::Decoder;
use strongback_store::{
    Appended, Channel, ChannelId, ChannelIndex, CommitNumber, ElementType, FrameBatch, FrameHead, Interpolation,
    Layout, Outcome, Reduction, Refusal, Reject, Stream, StreamId, StreamKey, StreamSpec,
};

use super::DecodeRate;
use crate::machine::thread_time;

/// Sink that accepts and discards everything.
#[derive(Default)]
struct Nowhere {
    streams: Mutex<HashMap<StreamKey, u32>>,
}

impl Sink for Nowhere {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let mut streams = self.streams.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = streams.len() as u32;
        let id = *streams.entry(spec.key.clone()).or_insert(next);
        let channels = spec.channels.iter().map(|c| Channel {
            id: ChannelId(0),
            name: c.name.clone(),
            source_name: c.name.clone(),
            channel_type: c.channel_type,
            unit: String::new(),
            description: String::new(),
            interpolation: Interpolation::Linear,
            reduction: Reduction::None,
        });
        let stream = Stream {
            id: StreamId(id),
            key: spec.key.clone(),
            source: spec.source.clone(),
            clock: spec.clock,
            expected_period_ns: None,
            sequence_modulus: spec.sequence_modulus,
            layout: Arc::new(Layout { version: 0, channels: channels.collect() }),
        };
        Ok((Arc::new(stream), (0..spec.channels.len() as u16).map(ChannelIndex).collect()))
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        Appended { outcomes: vec![Outcome::Stored { row: 0 }; batch.len()], commit: CommitNumber(1) }
    }

    fn wait_durable(&self, _commit: CommitNumber) -> Result<(), Refusal> {
        Ok(())
    }

    fn count_rejected(&self, _stream: StreamId, _frames: u64) {}
}

/// Repeats `work`, which returns messages and points, for `span` of processor time, three times. Returns the best
/// rate.
fn measure(what: &str, span: Duration, mut work: impl FnMut() -> (u64, u64)) -> DecodeRate {
    let mut best = DecodeRate { what: what.to_owned(), messages_per_s: 0.0, points_per_s: 0.0 };
    for _ in 0..3 {
        let (start, mut messages, mut points) = (thread_time(), 0, 0);
        // Processor time of this thread, which other load on the machine does not affect.
        while thread_time() - start < span {
            let done = work();
            (messages, points) = (messages + done.0, points + done.1);
        }
        let seconds = (thread_time() - start).as_secs_f64();
        if points as f64 / seconds > best.points_per_s {
            (best.messages_per_s, best.points_per_s) = (messages as f64 / seconds, points as f64 / seconds);
        }
    }
    best
}

fn packets(what: &str, channels: usize, more: &str, span: Duration) -> anyhow::Result<DecodeRate> {
    let config: SourceConfig = toml::from_str(&super::packet_source("127.0.0.1:0", 1, channels, more))?;
    let mut decoder = Decoder::bind(config.compile("source")?, &Nowhere::default()).context("the layout's streams")?;
    let packet = super::packet(0, 0, channels);
    let mut batch = FrameBatch::new();
    Ok(measure(what, span, || {
        batch.clear();
        for _ in 0..256 {
            let _ = decoder.decode(std::hint::black_box(&packet), 1, &mut batch);
        }
        std::hint::black_box(&batch);
        (256, batch.cells() as u64)
    }))
}

fn lines(what: &str, body: &str, fields: u64, span: Duration) -> DecodeRate {
    let ingress = Ingress::new(Arc::new(Nowhere::default()), IlpConfig::default());
    measure(what, span, || {
        let stored = ingress.write_body(body.as_bytes(), Precision::Nanoseconds, 1).stored;
        (stored, stored * fields)
    })
}

/// Decodes a notification of one stamp with `values` REALs in one sample to a frame.
fn notifications(what: &str, values: usize, span: Duration) -> DecodeRate {
    let mut data = Vec::new();
    data.extend_from_slice(&1_u32.to_le_bytes());
    data.extend_from_slice(&133_000_000_000_000_000_u64.to_le_bytes());
    data.extend_from_slice(&1_u32.to_le_bytes());
    data.extend_from_slice(&7_u32.to_le_bytes());
    data.extend_from_slice(&(4 * values as u32).to_le_bytes());
    data.extend((0..values).flat_map(|n| (n as f32).to_le_bytes()));
    let message: Vec<u8> = (data.len() as u32).to_le_bytes().into_iter().chain(data).collect();
    let kind = ValueKind::Plain(ElementType::F32);
    let mut batch = FrameBatch::new();
    measure(what, span, || {
        batch.clear();
        for _ in 0..64 {
            let Ok(notification) = Notification::parse(std::hint::black_box(&message)) else { continue };
            for sample in notification.samples() {
                batch.begin(FrameHead { stream: StreamId(0), receive_time: 1, source_time: None, sequence: None });
                for (n, bytes) in sample.data.chunks_exact(4).enumerate() {
                    kind.push(bytes, ChannelIndex(n as u16), &mut batch);
                }
                batch.end();
            }
        }
        std::hint::black_box(&batch);
        (64, batch.cells() as u64)
    })
}

/// Measures every protocol.
pub(super) fn run(span: Duration) -> anyhow::Result<Vec<DecodeRate>> {
    let mut narrow = String::new();
    for i in 0..20_000_u64 {
        let _ = writeln!(
            narrow,
            "sensors,host=host{},region=eu value={}.{:03} {}",
            i % 1_000,
            i % 977,
            i * 37 % 1_000,
            1_700_000_000_000_000_000 + i * 1_000_000
        );
    }
    let mut wide = String::new();
    for i in 0..200 {
        let fields: Vec<String> = (0..100).map(|c| format!("channel_{c}={}.{:02}", i * c % 500, c)).collect();
        let _ = writeln!(wide, "plc,acu=1 {} {}", fields.join(","), 1_700_000_000_000_000_000_u64 + i * 100_000_000);
    }
    let cubic = "polynomial = [1.0, 2.0, 3.0, 4.0]\nstore = 'f32'";
    Ok(vec![
        packets("iNET-X, 100 channels a packet, as on the wire", 100, "", span)?,
        packets("iNET-X, 100 channels a packet, straight lines to f32", 100, super::STRAIGHT, span)?,
        packets("iNET-X, 100 channels a packet, cubic to f32", 100, cubic, span)?,
        packets("iNET-X, 4 channels a packet, as on the wire", 4, "", span)?,
        lines("lines of one field, 1,000 streams", &narrow, 1, span),
        lines("lines of 100 fields", &wide, 100, span),
        notifications("ADS notifications of 1,000 REAL", 1_000, span),
    ])
}
