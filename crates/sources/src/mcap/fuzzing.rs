//! Fuzzing entry points: whole files, and messages by schema. A crash is a panic.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use strongback_store::{
    Appended, ChannelIndex, CommitNumber, FrameBatch, Layout, Outcome, Refusal, Reject, Stream, StreamId, StreamSpec,
};

use super::import::{McapReport, import};
use super::json::JsonDecoder;
use super::message::{MessageLeaf, RosDecoder, Values};
use super::numbering::Numbering;
use super::schema::Dialect;
use crate::sink::Sink;

/// Sink that numbers streams and rows.
#[derive(Default)]
struct NumberedRows(Mutex<u32>);

impl Sink for NumberedRows {
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

    fn accept(&self, batch: &FrameBatch) -> Appended {
        Appended { outcomes: vec![Outcome::Stored { row: 0 }; batch.len()], commit: CommitNumber(0) }
    }

    fn wait_durable(&self, _: CommitNumber) -> Result<(), Refusal> {
        Ok(())
    }

    fn count_rejected(&self, _: StreamId, _: u64) {}
}

/// Imports a whole file. Each message read must be in exactly one count.
pub fn file(bytes: &[u8]) {
    let Ok(numbering) = Numbering::of(bytes) else { return };
    let report = McapReport { numbering, ..McapReport::default() };
    let (report, refusal, end) =
        import(bytes, "fuzz", &NumberedRows::default(), report, |_, _| ControlFlow::Continue(()));
    assert!(refusal.is_none() && end.is_ok());
    let of_topics: u64 = report.topics.iter().map(|topic| topic.messages).sum();
    let unknown = report.rejected.get("unknown_channel").copied().unwrap_or(0);
    assert_eq!(of_topics + unknown + report.undecoded.values().sum::<u64>(), report.messages);
    for topic in &report.topics {
        assert_eq!(topic.stored + topic.rejected, topic.messages);
    }
}

/// Decodes a message by a schema. The first byte selects the decoder, the next two are the length of the schema, which
/// precedes the message. Decodes twice: the second time all leaves exist, and values must be the same.
pub fn message(bytes: &[u8]) {
    let Some((&[whose, low, high], rest)) = bytes.split_first_chunk() else { return };
    let (schema, message) = rest.split_at(rest.len().min(u16::from_le_bytes([low, high]).into()));
    let (mut first, mut again) = (Values::new(), Values::new());
    let leaves: Vec<MessageLeaf> = if whose % 3 == 2 {
        let mut decoder = JsonDecoder::new(Some(schema));
        // Types are those of the first values, so the second pass may accept others.
        let _ = decoder.decode(message, &mut first);
        let _ = decoder.decode(message, &mut again);
        decoder.leaves().to_vec()
    } else {
        let dialect = if whose % 3 == 0 { Dialect::Ros1 } else { Dialect::Ros2 };
        let Ok(mut decoder) = RosDecoder::new(dialect, "fuzz/Root", schema) else { return };
        let done = decoder.decode(message, &mut first);
        assert_eq!(done, decoder.decode(message, &mut again));
        assert_eq!(first.len(), again.len());
        assert!(decoder.stamp().is_none_or(|stamp| stamp < decoder.leaves().len()));
        decoder.leaves().to_vec()
    };
    assert!(first.iter().chain(&again).all(|(leaf, _)| *leaf < leaves.len()));
}

/// Returns the seed corpus: files, and messages of every kind.
pub fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let ros = b"Header h\ntime t\nstring[] names\nPart[2] parts\nuint8[] bytes\nfloat32[] floats\n\
        ===\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n\
        ===\nMSG: fuzz/Part\nbool ok\nint16 A=5\nfloat64[3] p\n";
    let cdr =
        b"Head h\nstring[<=4] names\nbuiltin_interfaces/Time t\nint64 n 7\n===\nMSG: fuzz/Head\nbyte b\nwhatever/E e\n\
        ===\nMSG: whatever/E\n";
    let json = br##"{"type":"object","properties":{"a":{"type":"integer"},"b":{"items":{"$ref":"#/d"}}},"d":{"type":"number"}}"##;
    let text = br#"{"a":7,"b":[1,2.5],"c":[{"d":null},{"d":"x"}],"e":{"f":true}}"#;
    let with = |whose: u8, schema: &[u8], message: &[u8]| {
        let mut bytes = vec![whose];
        bytes.extend_from_slice(&(schema.len() as u16).to_le_bytes());
        bytes.extend_from_slice(schema);
        bytes.extend_from_slice(message);
        bytes
    };
    let mut found = vec![
        ("mcap_message", with(0, ros, &[0; 86])),
        (
            "mcap_message",
            with(
                1,
                cdr,
                &[
                    0, 1, 0, 0, 1, 2, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 65, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9,
                    0, 0, 0,
                ],
            ),
        ),
        ("mcap_message", with(2, json, text)),
    ];
    for compression in ["", "lz4", "zstd"] {
        let mut file = super::MAGIC.to_vec();
        let mut records = Vec::new();
        for (id, encoding, schema_encoding, schema, message) in
            [(1_u16, "ros1", "ros1msg", &ros[..], &[0_u8; 86][..]), (2, "json", "jsonschema", &json[..], &text[..])]
        {
            let schema =
                [&id.to_le_bytes()[..], &text_of(b"fuzz/Root"), &text_of(schema_encoding.as_bytes()), &text_of(schema)]
                    .concat();
            record(&mut records, 3, &schema);
            let channel =
                [&id.to_le_bytes()[..], &id.to_le_bytes(), &text_of(b"/a"), &text_of(encoding.as_bytes()), &[0; 4]]
                    .concat();
            record(&mut records, 4, &channel);
            for number in 1..3_u32 {
                let head = [&id.to_le_bytes()[..], &number.to_le_bytes(), &[9; 8], &[9; 8], message].concat();
                record(&mut records, 5, &head);
            }
        }
        let packed = pack(compression, &records);
        let head =
            [&[0; 16][..], &(records.len() as u64).to_le_bytes(), &crc32fast::hash(&records).to_le_bytes()].concat();
        let chunk =
            [&head[..], &text_of(compression.as_bytes()), &(packed.len() as u64).to_le_bytes(), &packed].concat();
        record(&mut file, 6, &chunk);
        record(&mut file, 15, &[0; 4]);
        record(&mut file, 2, &[0; 20]);
        file.extend_from_slice(&super::MAGIC);
        found.push(("mcap_file", file));
    }
    found
}

fn text_of(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

fn record(out: &mut Vec<u8>, opcode: u8, body: &[u8]) {
    out.push(opcode);
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
}

/// Compresses records as in a chunk.
pub(super) fn pack(compression: &str, records: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match compression {
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records).expect("memory takes it");
            encoder.finish().expect("memory takes it")
        }
        "zstd" => zstd::encode_all(records, 3).expect("memory takes it"),
        _ => records.to_vec(),
    }
}
