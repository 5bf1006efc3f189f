//! Documents, and names of fields and indices.

use serde_json::{Value as Json, json};
use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, Value};

use super::column::{Fields, alias};
use super::document::Writer;
use crate::columns::{Columns, plan};
use crate::target::TargetError;
use crate::tests::frame;

fn document(tags: &[(&str, &str)], values: &[(&str, ChannelType, Value<'_>)]) -> (Json, Json, u64) {
    let frame = frame(tags, values, 1_790_000_000_000_000_001);
    let mut fields = Columns::<Fields>::new();
    let places = plan::<Fields>(&frame, &mut fields).unwrap().places;
    let places: Vec<_> = places
        .into_iter()
        .map(|(name, field)| {
            let field_type = fields[&name].column_type.unwrap();
            (name, field, field_type)
        })
        .collect();
    let mut out = Vec::new();
    let altered = Writer::new("a", &frame, &places, 0xffff_0000_002a).write(&mut out, 0).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    (serde_json::from_str(lines[0]).unwrap(), serde_json::from_str(lines[1]).unwrap(), altered)
}

#[test]
fn a_document_has_all_that_the_frame_has() {
    let elements: Vec<u8> = [1.0_f64, f64::NAN].iter().flat_map(|element| element.to_le_bytes()).collect();
    let array = ArrayType::fixed(ElementType::F64, 2).unwrap();
    let values = [
        ("f.x", ChannelType::F64, Value::F64(0.1)),
        ("inf", ChannelType::F64, Value::F64(f64::NEG_INFINITY)),
        ("u", ChannelType::U64, Value::U64(u64::MAX)),
        ("i", ChannelType::I64, Value::I64(i64::MIN)),
        ("b", ChannelType::Bool, Value::Bool(true)),
        ("s", ChannelType::String, Value::String("q\"\\\n\u{1}é")),
        ("a", ChannelType::Array(array), Value::Array(ArrayRef::new(ElementType::F64, &elements).unwrap())),
    ];
    let (head, document, altered) = document(&[("bay", "no\"rth")], &values);
    assert_eq!(head, json!({ "index": { "_index": "a", "_id": "0000002a-0-0" } }));
    let expected = json!({
        "strongback_row": 0, "strongback_stream": "0000002a-0", "bay": "no\"rth",
        "time": "2026-09-21T14:13:20.000000001Z",
        "time_ns": 1_790_000_000_000_000_001_i64, "receive_time_ns": 1_790_000_000_000_000_001_i64,
        "f_x": 0.1, "i": i64::MIN, "b": true, "s": "q\"\\\n\u{1}é", "a": [1.0, null],
    });
    assert_eq!(document, expected);
    assert_eq!(altered, 3);
}

#[test]
fn a_frame_before_1970_is_rejected() {
    let frame = frame(&[], &[("v", ChannelType::Bool, Value::Bool(true))], -1);
    let written = Writer::new("a", &frame, &[], 1).write(&mut Vec::new(), 0);
    assert!(matches!(written, Err(TargetError::Rejected(_))));
}

#[test]
fn a_field_keeps_its_type() {
    let mut fields = Columns::<Fields>::new();
    let mut names = |kind, value| {
        let plan = plan::<Fields>(&frame(&[], &[("v", kind, value)], 1), &mut fields).unwrap();
        (plan.places[7].0.clone(), plan.changes.len())
    };
    assert_eq!(names(ChannelType::I32, Value::I32(1)), ("v".to_owned(), 8));
    assert_eq!(names(ChannelType::F64, Value::F64(1.0)), ("v_f64".to_owned(), 1));
    assert_eq!(names(ChannelType::F32, Value::F32(1.0)), ("v_f32".to_owned(), 1));
    assert_eq!(names(ChannelType::U8, Value::U8(1)), ("v".to_owned(), 0));
    assert_eq!(names(ChannelType::String, Value::String("")), ("v_string".to_owned(), 1));
}

#[test]
fn names_of_indices_are_those_that_the_server_allows() {
    assert_eq!(alias("strongback-", "strongback.marks"), "strongback-strongback.marks");
    let names = ["A", "a b", "a/b", "a#b", &"é".repeat(200)].map(|name| alias("", name));
    for name in &names {
        assert!(name.len() <= 200 && !name.contains([' ', '/', '#']) && name.to_lowercase() == *name, "{name}");
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
    }
}
