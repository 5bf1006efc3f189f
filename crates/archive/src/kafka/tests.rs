//! Messages, positions and names of topics.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, StreamId, Value};

use super::{KafkaOptions, message, positions};
use crate::tests::frame;

fn options(topic_prefix: &str) -> KafkaOptions {
    KafkaOptions {
        brokers: "127.0.0.1:1".to_owned(),
        topic_prefix: topic_prefix.to_owned(),
        partitions: -1,
        replicas: -1,
        properties: BTreeMap::new(),
        follower: "copy".to_owned(),
        origin: 42,
    }
}

#[test]
fn a_message_has_all_that_the_frame_has() {
    let elements: Vec<u8> = [1.0_f64, f64::NAN].iter().flat_map(|element| element.to_le_bytes()).collect();
    let array = ArrayType::fixed(ElementType::F64, 2).unwrap();
    let values = [
        ("f", ChannelType::F64, Value::F64(0.1)),
        ("f32", ChannelType::F32, Value::F32(0.1)),
        ("inf", ChannelType::F64, Value::F64(f64::NEG_INFINITY)),
        ("u", ChannelType::U64, Value::U64(u64::MAX)),
        ("i", ChannelType::I64, Value::I64(i64::MIN)),
        ("b", ChannelType::Bool, Value::Bool(true)),
        ("s \"", ChannelType::String, Value::String("q\"\\\n\u{1}é")),
        ("a", ChannelType::Array(array), Value::Array(ArrayRef::new(ElementType::F64, &elements).unwrap())),
    ];
    let frame = frame(&[("bay", "no\"rth"), ("site", "a")], &values, 1_790_000_000_000_000_001);
    let mut out = Vec::new();
    message::Writer::new(&frame).write(&mut out, 0);
    let expected = json!({
        "time_ns": 1_790_000_000_000_000_001_i64, "receive_time_ns": 1_790_000_000_000_000_001_i64, "row": 0,
        "tags": { "bay": "no\"rth", "site": "a" },
        "values": {
            "f": 0.1, "f32": 0.1, "inf": "-Infinity", "u": u64::MAX, "i": i64::MIN, "b": true,
            "s \"": "q\"\\\n\u{1}é", "a": [1.0, "NaN"],
        },
    });
    assert_eq!(serde_json::from_slice::<Json>(&out).unwrap(), expected);
}

#[test]
fn positions_are_read_as_they_were_written() {
    let frame = frame(&[], &[("v", ChannelType::Bool, Value::Bool(true))], 1);
    let (key, value) = positions::record(&frame, 7);
    assert_eq!(positions::parse(key.as_bytes(), value.as_bytes()), Some((StreamId(0), 7)));
    for (key, value) in [("", "{}"), ("0", "{}"), ("0", "x"), ("x", "{\"next_row\":1}"), ("-1", "{\"next_row\":1}")] {
        assert_eq!(positions::parse(key.as_bytes(), value.as_bytes()), None);
    }
}

#[test]
fn names_of_topics_are_those_that_kafka_allows() {
    assert_eq!(options("pad.").topic("plc"), "pad.plc");
    let names = ["a b", "a/b", "ü", &"x".repeat(300)].map(|name| options("").topic(name));
    for name in &names {
        assert!(name.len() <= 249 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
    }
    assert_ne!(options("").topic("."), ".");
}
