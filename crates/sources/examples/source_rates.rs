//! How fast the sources are on one core: iNET-X packets to frames, lines to their parts, lines to frames of a sink
//! that keeps nothing. Run with `cargo run --release -p strongback-sources --example source_rates`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use parking_lot::Mutex;
use strongback_sources::Sink;
use strongback_sources::config::SourceConfig;
use strongback_sources::ilp::parser::{self, Line, Next};
use strongback_sources::ilp::{IlpConfig, Ingress, Precision};
use strongback_sources::inetx::Decoder;
use strongback_store::{
    Appended, Channel, ChannelId, ChannelIndex, CommitNumber, FrameBatch, Interpolation, Layout, Outcome, Reduction,
    Refusal, Reject, Stream, StreamId, StreamKey, StreamSpec,
};

/// Takes everything and keeps nothing.
#[derive(Default)]
struct Nowhere {
    streams: Mutex<HashMap<StreamKey, u32>>,
}

impl Sink for Nowhere {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let mut streams = self.streams.lock();
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

/// Processor time of this thread: a busy machine does not falsify it.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel knows the thread");
    let of = |t: TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1_000);
    of(usage.user_time()) + of(usage.system_time())
}

/// Repeats `work`, which returns how much it did, for a second of processor time, three times; prints the best rate.
fn measure(what: &str, unit: &str, mut work: impl FnMut() -> u64) {
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let (start, mut done) = (cpu_time(), 0);
        while cpu_time() - start < Duration::from_secs(1) {
            done += work();
        }
        best = best.max(done as f64 / (cpu_time() - start).as_secs_f64());
    }
    println!("{what:<58} {:>8.1} M {unit}/s", best / 1e6);
}

fn decode_rate(what: &str, channels: usize, more: &str) {
    let mut text = "name = 'fti'\nkind = 'inetx'\nlisten = '127.0.0.1:0'\n[[stream]]\nid = 1\ntable = 't'\n".to_owned();
    for i in 0..channels {
        let _ = writeln!(text, "[[stream.channel]]\nname = 'c{i}'\noffset = {}\ntype = 'u16'\n{more}", i * 2);
    }
    let config: SourceConfig = toml::from_str(&text).expect("the layout above");
    let layout = config.compile("source").expect("the layout above");
    let decoder = Decoder::bind(layout, &Nowhere::default()).expect("a sink that takes everything");
    let length = 28 + channels as u32 * 2;
    let mut packet: Vec<u8> =
        [0x1100_0000, 1, 0, length, 1_700_000_000, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect();
    packet.extend((0..channels as u16).flat_map(|i| (i * 37).to_be_bytes()));
    let mut batch = FrameBatch::new();
    measure(what, "points", || {
        batch.clear();
        for _ in 0..256 {
            let _ = decoder.decode(std::hint::black_box(&packet), 1, &mut batch);
        }
        std::hint::black_box(&batch);
        batch.cells() as u64
    });
}

fn main() {
    decode_rate("iNET-X, 100 channels a packet, as on the wire", 100, "");
    decode_rate("iNET-X, 100 channels a packet, straight lines to f64", 100, "polynomial = [-200.0, 0.0076]");
    decode_rate("iNET-X, 100 channels a packet, cubic to f32", 100, "polynomial = [1.0, 2.0, 3.0, 4.0]\nstore = 'f32'");
    decode_rate("iNET-X, 4 channels a packet, as on the wire", 4, "");

    let rows = 20_000_u64;
    let mut narrow = String::new();
    for i in 0..rows {
        let _ = writeln!(
            narrow,
            "sensors,host=host{},region=eu value={}.{:03} {}",
            i % 1_000,
            i % 977,
            i * 37 % 1_000,
            1_700_000_000_000_000_000 + i * 1_000_000
        );
    }
    measure("lines, narrow: found and read to their parts", "rows", || parse(narrow.as_bytes()));
    let ingress = Ingress::new(Arc::new(Nowhere::default()), IlpConfig::default());
    measure("lines, narrow, 1,000 streams: to frames", "rows", || {
        ingress.write_body(narrow.as_bytes(), Precision::Nanoseconds, 1).stored
    });
    let mut wide = String::new();
    for i in 0..200 {
        let fields: Vec<String> = (0..100).map(|c| format!("channel_{c}={}.{:02}", i * c % 500, c)).collect();
        let _ = writeln!(wide, "plc,acu=1 {} {}", fields.join(","), 1_700_000_000_000_000_000_u64 + i * 100_000_000);
    }
    measure("lines of 100 fields: to frames", "points", || {
        ingress.write_body(wide.as_bytes(), Precision::Nanoseconds, 1).stored * 100
    });
}

fn parse(body: &[u8]) -> u64 {
    let text = std::str::from_utf8(body).expect("ASCII");
    let (mut position, mut lines) = (0, 0);
    while let Next::Line(found) = parser::next_line(body, position, true) {
        let Ok(line) = Line::split(&text[found.start..found.end], found.escapes) else { break };
        let mut fields = line.fields();
        while let Ok(Some(field)) = fields.next_field() {
            std::hint::black_box(field);
        }
        std::hint::black_box(fields.time(1).ok());
        std::hint::black_box(line.key());
        lines += 1;
        position = found.next;
    }
    lines
}
