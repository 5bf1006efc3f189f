//! Points, and names.

use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, Value};

use super::column::name_there;
use super::{InfluxdbColumns, points};
use crate::columns::{Columns, plan_all};
use crate::tests::frame;

fn written(tags: &[(&str, &str)], values: &[(&str, ChannelType, Value<'_>)], repeat: u32) -> (String, u64) {
    let mut frame = frame(tags, values, 1_790_000_000_000_000_001);
    frame.repeats = vec![repeat];
    let (plans, _) = plan_all::<InfluxdbColumns>(&[&frame], &mut Columns::<InfluxdbColumns>::new()).unwrap();
    let mut out = Vec::new();
    let altered = points::Writer::new("a b", &frame, &plans[0], 0xffff_0000_002a).write(&mut out, 0);
    (String::from_utf8(out).unwrap(), altered)
}

/// InfluxDB's own client (Python, 1.50) writes the same for these tags and values.
#[test]
fn points_are_those_of_the_client() {
    let values = [
        ("d", ChannelType::F64, Value::F64(1.5)),
        ("i", ChannelType::I64, Value::I64(i64::MIN)),
        ("b", ChannelType::Bool, Value::Bool(true)),
        ("s t", ChannelType::String, Value::String("q\"x\\é\n")),
    ];
    let (line, altered) = written(&[("x", "a b,c=d"), ("y", "2")], &values, 0);
    let tail = line.strip_prefix("a\\ b,strongback_stream=0000002a-0,x=a\\ b\\,c\\=d,y=2 receive_time_ns=").unwrap();
    let tail = tail.split_once(',').unwrap().1;
    assert_eq!(
        tail,
        "strongback_row=0i,d=1.5,i=-9223372036854775808i,b=true,s\\ t=\"q\\\"x\\\\é\n\" 1790000000000000001\n"
    );
    assert_eq!(altered, 0);
}

#[test]
fn frames_of_one_time_have_a_tag_of_their_own() {
    let (line, _) = written(&[("x", "1")], &[("d", ChannelType::F64, Value::F64(1.5))], 3);
    assert!(line.starts_with("a\\ b,strongback_stream=0000002a-0,x=1,strongback_repeat=3 receive_time_ns="), "{line}");
}

#[test]
fn values_without_a_place_are_counted() {
    let altered = |kind: ChannelType, value: Value<'_>| written(&[], &[("v", kind, value)], 0).1;
    assert_eq!(altered(ChannelType::F64, Value::F64(f64::NAN)), 1);
    assert_eq!(altered(ChannelType::F32, Value::F32(f32::INFINITY)), 1);
    assert_eq!(altered(ChannelType::U64, Value::U64(i64::MAX as u64)), 0);
    assert_eq!(altered(ChannelType::U64, Value::U64(i64::MAX as u64 + 1)), 1);
    let bytes = 7_i64.to_le_bytes();
    let kind = ChannelType::Array(ArrayType::fixed(ElementType::I64, 1).unwrap());
    let (line, altered) =
        written(&[], &[("v", kind, Value::Array(ArrayRef::new(ElementType::I64, &bytes).unwrap()))], 0);
    assert!(line.contains(",v=\"[7]\" ") && altered == 0, "{line}");
    // What a tag cannot have is told.
    let (line, altered) = written(&[("x", "a\nb\\")], &[("v", ChannelType::Bool, Value::Bool(false))], 0);
    assert!(line.contains(",x=a\\ b/ ") && altered == 1, "{line}");
}

#[test]
fn names_that_the_server_refuses_are_altered_and_stay_apart() {
    for name in ["engine.pressure", "größe x", "a,b=c"] {
        assert_eq!(name_there(name), name);
    }
    let altered = ["", "_time", "__time", "#", "a\\", "a\n", "a\r", &"n".repeat(201), &"é".repeat(150)].map(name_there);
    assert!(altered.iter().all(|name| name.len() <= 200 && !name.starts_with(['_', '#'])), "{altered:?}");
    assert_eq!(altered.iter().collect::<std::collections::BTreeSet<_>>().len(), altered.len());
}
