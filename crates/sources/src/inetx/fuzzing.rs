//! Fuzzing entry point: iNET-X datagrams through a layout of every kind. A crash is a panic.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use strongback_store::{
    Appended, ChannelIndex, CommitNumber, FrameBatch, Layout, Refusal, Reject, Stream, StreamId, StreamSpec,
};

use super::Decoder;
use crate::capture::{self, Captured};
use crate::config::SourceConfig;
use crate::sink::Sink;

/// Streams with fixed offsets, samples and blocks. The ids are those of the captures in the seed corpus.
const LAYOUT: &str = "
    name = 'fuzz'
    kind = 'inetx'
    listen = '127.0.0.1:1'
    ptp_scale = 'tai'
    clock = 'source'
    [[stream]]
    id = 0xCA
    table = 'fixed'
    channel = [
        { name = 'a', offset = 1, type = 'u64', bit = 3, bits = 50 },
        { name = 'b', offset = 4, type = 'f32', polynomial = [1.0, 2.0, 3.0] },
        { name = 'c', offset = 2, type = 'i16', endian = 'little', samples = 5, period_us = 1000.0, stride_bytes = 3 },
    ]
    [[stream]]
    id = 0xA00
    table = 'packets'
    payload = 'parser-aligned'
    [[stream.block]]
    bus = 3
    table = 'three'
    channel = [{ name = 'a', offset = 1, type = 'u32' }, { name = 'far', offset = 300, type = 'f64' }]
    [[stream.block]]
    table = 'others'
    headers = ['error', 'error_code', 'message_count', 'bus_id', 'elapsed_ns', 'size_bytes']";

/// Sink that numbers streams and stores nothing.
#[derive(Default)]
struct NumberedStreams(Mutex<u32>);

impl Sink for NumberedStreams {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let mut next = self.0.lock();
        let stream = Stream {
            id: StreamId(*next),
            key: spec.key.clone(),
            source: spec.source.clone(),
            clock: spec.clock,
            expected_period_ns: spec.expected_period_ns,
            sequence_modulus: spec.sequence_modulus,
            layout: Arc::new(Layout { version: 0, channels: Vec::new() }),
        };
        *next += 1;
        Ok((Arc::new(stream), (0..spec.channels.len() as u16).map(ChannelIndex).collect()))
    }

    fn accept(&self, _: &FrameBatch) -> Appended {
        Appended { outcomes: Vec::new(), commit: CommitNumber(0) }
    }

    fn wait_durable(&self, _: CommitNumber) -> Result<(), Refusal> {
        Ok(())
    }

    fn count_rejected(&self, _: StreamId, _: u64) {}
}

fn decoder() -> Decoder {
    let config: SourceConfig = toml::from_str(LAYOUT).expect("the layout above");
    Decoder::bind(config.compile("source").expect("the layout above"), &NumberedStreams::default())
        .expect("it takes everything")
}

/// Decodes a datagram.
pub fn datagram(bytes: &[u8]) {
    let mut batch = FrameBatch::new();
    match decoder().decode(bytes, 1_700_000_000_000_000_000, &mut batch) {
        Ok(decoded) => {
            assert_eq!(decoded.frames as usize, batch.len());
            assert!(decoded.block_frames == 0 || decoded.block_frames + 1 == decoded.frames);
        }
        Err(_) => assert!(batch.is_empty()),
    }
    // Each frame comes from a block, or is one of the six of the fixed stream.
    assert!(batch.len() <= bytes.len() / 8 + 7);
}

/// Returns the seed corpus: the datagrams of captures.
pub fn corpus(captures: &[&[u8]]) -> Vec<(&'static str, Vec<u8>)> {
    let mut found = Vec::new();
    for capture in captures {
        let _ = capture::read(*capture, |packet, _| {
            if let Captured::Datagram(datagram) = packet {
                found.push(("inetx", datagram.payload.to_vec()));
            }
            ControlFlow::Continue(())
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPTURED: [&[u8]; 2] = [
        include_bytes!("../../tests/data/inetx/inetx_test.pcap"),
        include_bytes!("../../tests/data/inetx/valid_paligned.pcap"),
    ];

    #[test]
    fn the_fuzzer_begins_with_frames_of_every_kind() {
        let mut batch = FrameBatch::new();
        let mut decoder = decoder();
        for (_, bytes) in corpus(&CAPTURED) {
            decoder.decode(&bytes, 1_700_000_000_000_000_000, &mut batch).unwrap();
        }
        let streams: std::collections::BTreeSet<u32> =
            (0..batch.len()).map(|i| batch.frame(i).head().stream.0).collect();
        assert_eq!(streams, (0..5).collect());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        ) {
            let corpus = corpus(&CAPTURED);
            let mut bytes = corpus[seed.index(corpus.len())].1.clone();
            changes.iter().for_each(|(at, to)| { let at = at.index(bytes.len()); bytes[at] = *to });
            datagram(&bytes);
        }
    }
}
