//! Parser-aligned payloads, against AcraNetwork's reading of a real capture and of packets that it packed.

use std::path::Path;

use serde_json::Value as Json;
use strongback_sources::config::SourceConfig;
use strongback_sources::inetx::blocks::Blocks;
use strongback_sources::inetx::{DecodeError, Decoder, Packet};
use strongback_sources::{KeyError, SourceLayout};
use strongback_store::{CellState, FrameBatch, Value};

use crate::packets::inetx;
use crate::recording::{Kept, KeptFrame, Recording};

const NOW: i64 = 1_700_000_100_000_000_000;

/// What `blocks.py` printed.
fn expected() -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inetx/blocks.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn compile(blocks: &str) -> Result<SourceLayout, KeyError> {
    let text = format!(
        "name = 'fti'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\n[[stream]]\nid = 0xA00\ntable = 'buses'\n\
         payload = 'parser-aligned'\n{blocks}"
    );
    toml::from_str::<SourceConfig>(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).compile("source[0]")
}

/// A block as `blocks.py` writes it.
fn listed(block: &strongback_sources::inetx::blocks::Block<'_>) -> Json {
    let (count, bus) = (block.message_count, block.bus_id);
    serde_json::json!([block.error, block.error_code, count, bus, block.elapsed_ns, hex(block.message)])
}

#[test]
fn blocks_are_those_that_acranetwork_reads() {
    let expected = expected();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inetx/valid_paligned.pcap");
    let mut captured = Vec::new();
    strongback_sources::capture::read(std::fs::File::open(path).unwrap(), |packet, _| {
        if let strongback_sources::capture::Captured::Datagram(datagram) = packet {
            let packet = Packet::parse(datagram.payload).unwrap();
            captured.push(Json::Array(Blocks::new(packet.payload).map(|b| listed(&b.unwrap())).collect()));
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(captured, *expected["captured"].as_array().unwrap());
    assert_eq!(captured.iter().map(|p| p.as_array().unwrap().len()).collect::<Vec<_>>(), [83; 4]);
    let packed = expected["packed"].as_array().unwrap();
    assert_eq!(packed.len(), 40);
    for packet in packed {
        let bytes = unhex(packet["packet"].as_str().unwrap());
        let parsed = Packet::parse(&bytes).unwrap();
        let blocks: Vec<Json> = Blocks::new(parsed.payload).map(|b| listed(&b.unwrap())).collect();
        assert_eq!(blocks, *packet["blocks"].as_array().unwrap());
    }
}

const BLOCKS: &str = "
    [[stream.block]]
    bus = 31
    table = 'bus'
    tags = { bus = '31' }
    headers = []
    channel = [{ name = 'word', offset = 0, type = 'u16', polynomial = [1.0, 0.5] }, { name = 'far', offset = 16, type = 'u32' }]
    [[stream.block]]
    table = 'others'
    headers = ['error', 'error_code', 'message_count', 'bus_id', 'elapsed_ns', 'size_bytes']
    channel = [{ name = 'first', offset = 3, type = 'u8' }]";

#[test]
fn each_block_is_a_frame_of_its_bus_at_its_time() {
    let sink = Recording::new();
    let mut decoder = Decoder::bind(compile(BLOCKS).unwrap(), sink.as_ref()).unwrap();
    let names: Vec<String> = sink.streams().iter().map(|s| s.key.to_string()).collect();
    assert_eq!(names, ["buses", "bus{bus=31}", "others"]);
    for packet in expected()["packed"].as_array().unwrap() {
        let bytes = unhex(packet["packet"].as_str().unwrap());
        let blocks = packet["blocks"].as_array().unwrap();
        let mut batch = FrameBatch::new();
        let decoded = decoder.decode(&bytes, NOW, &mut batch).unwrap();
        let errors = blocks.iter().filter(|b| b[0] == true).count() as u64;
        assert_eq!((u64::from(decoded.blocks), u64::from(decoded.block_errors)), (blocks.len() as u64, errors));
        assert_eq!((decoded.unmapped_blocks, decoded.frames as usize), (0, blocks.len() + 1));
        let frames: Vec<KeptFrame> = (0..batch.len()).map(|i| kept(&batch, i)).collect();
        let sequence = u64::from(Packet::parse(&bytes).unwrap().sequence);
        let stamp = 1_700_000_000_000_000_500 + sequence as i64 * 1_000_000_000;
        assert_eq!((frames[0].sequence, frames[0].source_time), (Some(sequence), Some(stamp)));
        let count = |n: u64| Ok(Kept::Plain(Value::U16(n as u16)));
        assert_eq!(values(&frames[0]), [count(blocks.len() as u64), count(errors)]);
        let last = blocks.iter().map(|b| b[4].as_i64().unwrap()).max().unwrap();
        for (frame, block) in frames[1..].iter().zip(blocks) {
            let elapsed = block[4].as_i64().unwrap();
            assert_eq!((frame.source_time, frame.sequence), (Some(stamp + elapsed), None));
            assert_eq!(frame.receive_time, NOW - (last - elapsed));
            let message = unhex(block[5].as_str().unwrap());
            let mut want = Vec::new();
            if block[3] == 31 {
                assert_eq!(frame.stream.0, 1);
                if let Some(word) = message.first_chunk() {
                    want.push(Kept::f64(1.0 + 0.5 * f64::from(u16::from_be_bytes(*word))));
                }
                if let Some(far) = message.get(16..20) {
                    want.push(Kept::Plain(Value::U32(u32::from_be_bytes(far.try_into().unwrap()))));
                }
            } else {
                assert_eq!(frame.stream.0, 2);
                want.extend(message.get(3).map(|b| Kept::Plain(Value::U8(*b))));
                let byte = |i: usize| Kept::Plain(Value::U8(block[i].as_u64().unwrap() as u8));
                want.push(Kept::Plain(Value::Bool(block[0].as_bool().unwrap())));
                want.extend([byte(1), byte(2), byte(3)]);
                want.push(Kept::Plain(Value::U32(elapsed as u32)));
                want.push(Kept::Plain(Value::U16(message.len() as u16)));
            }
            assert_eq!(values(frame), want.into_iter().map(Ok).collect::<Vec<_>>());
        }
    }
}

fn kept(batch: &FrameBatch, index: usize) -> KeptFrame {
    let frame = batch.frame(index);
    let head = frame.head();
    KeptFrame {
        stream: head.stream,
        receive_time: head.receive_time,
        source_time: head.source_time,
        sequence: head.sequence,
        cells: frame.cells().map(|(c, v)| (c, v.map(Kept::of))).collect(),
    }
}

fn values(frame: &KeptFrame) -> Vec<Result<Kept, CellState>> {
    frame.cells.iter().map(|(_, value)| value.clone()).collect()
}

fn block(bus: u8, elapsed_ns: u32, words: u16, message: &[u8]) -> Vec<u8> {
    [&words.to_be_bytes()[..], &[0, bus], &elapsed_ns.to_be_bytes(), message].concat()
}

#[test]
fn a_packet_is_taken_whole_or_not_at_all() {
    let sink = Recording::new();
    let only_31 = BLOCKS.split("    [[stream.block]]\n    table").next().unwrap();
    let mut decoder = Decoder::bind(compile(only_31).unwrap(), sink.as_ref()).unwrap();
    let good = [block(31, 5, 3, &[0, 2, 0, 0]), block(7, 6, 2, &[])].concat();
    let mut batch = FrameBatch::new();
    // The second block says it is longer than the rest.
    let mut bad = good.clone();
    bad[13] = 3;
    let error = decoder.decode(&inetx(0xA00, 1, (1_700_000_000, 0), &bad), NOW, &mut batch).unwrap_err();
    assert_eq!(error.to_string(), "stream 0x00000a00, offset 40: block 1: length 3 (32-bit words), must be 2 to 2");
    assert!(matches!(error, DecodeError::Block { layout: 0, .. }) && batch.is_empty());
    let packet = inetx(0xA00, 1, (1_700_000_000, 0), &good);
    let decoded = decoder.decode(&packet, NOW, &mut batch).unwrap();
    // Bus 7 has no entry.
    let counted = (decoded.frames, decoded.block_frames, decoded.blocks, decoded.unmapped_blocks);
    assert_eq!(counted, (2, 1, 2, 1));
    // What is empty is a packet all the same.
    assert_eq!(decoder.decode(&inetx(0xA00, 2, (1_700_000_051, 0), &[]), NOW, &mut batch).unwrap().frames, 1);
}

#[test]
fn faults_of_block_layouts_name_their_key() {
    let fixed = "channel = [{ name = 'c', offset = 0, type = 'u8' }]";
    for (text, path, reason) in [
        ("".to_owned(), "block", "at least one"),
        (fixed.to_owned(), "channel", "belong to a block"),
        ("[[stream.block]]\ntable = ''".to_owned(), "block[0].table", "is empty"),
        ("[[stream.block]]\ntable = 'a'\nheaders = []".to_owned(), "block[0].channel", "1 to 4096 channels"),
        ("[[stream.block]]\ntable = 'buses'".to_owned(), "block[0].table", "fed by this stream already"),
        (
            "[[stream.block]]\nbus = 1\ntable = 'a'\n[[stream.block]]\nbus = 1\ntable = 'b'".to_owned(),
            "block[1].bus",
            "another block has bus 1 too",
        ),
        ("[[stream.block]]\ntable = 'a'\n[[stream.block]]\ntable = 'b'".to_owned(), "block[1].bus", "all other buses"),
        (
            "[[stream.block]]\ntable = 'a'\nheaders = ['bus_id', 'bus_id']".to_owned(),
            "block[0].headers",
            "names another channel",
        ),
        (
            "[[stream.block]]\ntable = 'a'\nchannel = [{ name = 'error', offset = 0, type = 'u8' }]".to_owned(),
            "block[0].headers",
            "names another channel",
        ),
        (
            "[[stream.block]]\ntable = 'a'\nchannel = [{ name = 'c', offset = 0, type = 'u8', samples = 2 }]"
                .to_owned(),
            "block[0].channel[0].samples",
            "one frame",
        ),
    ] {
        let error = compile(&text).unwrap_err();
        assert_eq!(error.path, format!("source[0].stream[0].{path}"), "{error}");
        assert!(error.reason.contains(reason), "{error}");
    }
    let text = "name = 'a'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\n[[stream]]\nid = 1\ntable = 't'\n\
                channel = [{ name = 'c', offset = 0, type = 'u8' }]\n[[stream.block]]\ntable = 'b'";
    let error = toml::from_str::<SourceConfig>(text).unwrap().compile("source[0]").unwrap_err();
    assert_eq!(error.path, "source[0].stream[0].block");
}

mod generated {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Anything at all: no panic, no frame of a packet that is refused, never more frames than blocks fit in.
        #[test]
        fn any_payload_is_survived(mut payload in proptest::collection::vec(any::<u8>(), 0..200), like in any::<bool>()) {
            if like {
                // Lengths that lead somewhere.
                for at in (0..payload.len().saturating_sub(1)).step_by(4) {
                    payload[at] &= 0xFE;
                    payload[at + 1] = payload[at + 1] % 4 + 1;
                }
            }
            let sink = Recording::new();
            let mut decoder = Decoder::bind(compile(BLOCKS).unwrap(), sink.as_ref()).unwrap();
            let mut batch = FrameBatch::new();
            match decoder.decode(&inetx(0xA00, 0, (1_700_000_000, 0), &payload), NOW, &mut batch) {
                Ok(decoded) => {
                    prop_assert_eq!(decoded.frames as usize, batch.len());
                    prop_assert!(batch.len() <= payload.len() / 8 + 1);
                }
                Err(_) => prop_assert!(batch.is_empty()),
            }
        }
    }
}
