//! Lines, and names of columns and tables.

use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, Value};

use super::column::{QuestdbColumns, QuestdbType, table_name};
use super::lines;
use crate::columns::{Change, Columns, Dialect, Field, plan};
use crate::target::TargetError;
use crate::tests::frame;

fn written(tags: &[(&str, &str)], values: &[(&str, ChannelType, Value<'_>)]) -> (Vec<u8>, u64) {
    let frame = frame(tags, values, 1_790_000_000_000_000_001);
    let mut columns = Columns::<QuestdbColumns>::new();
    let places = plan::<QuestdbColumns>(&frame, &mut columns).unwrap().places;
    let typed = |(name, field): (String, Field)| {
        let column_type = columns[&QuestdbColumns::key(&name)].column_type.unwrap();
        (name, field, column_type)
    };
    let places = places.into_iter().filter(|(_, field)| *field != Field::ReceiveTime).map(typed).collect();
    lines::write("a b", &[&frame], &[places], 0xffff_0000_002a).unwrap()
}

/// QuestDB's own client (Python, 6.0) writes the same bytes for these values.
#[test]
fn lines_are_those_of_the_client() {
    let elements: Vec<u8> = [1.0_f64, -2.0].iter().flat_map(|element| element.to_le_bytes()).collect();
    let array = ArrayType::fixed(ElementType::F64, 2).unwrap();
    let values = [
        ("d", ChannelType::F64, Value::F64(1.5)),
        ("s", ChannelType::String, Value::String("q\"x\\é\n")),
        ("arr", ChannelType::Array(array), Value::Array(ArrayRef::new(ElementType::F64, &elements).unwrap())),
    ];
    let (lines, altered) = written(&[("x", "a b,c=d\\e\nf")], &values);
    let golden: &[u8] = b"a\\ b,strongback_stream=0000002a-0,x=a\\ b\\,c\\=d\\\\e\\\nf strongback_row=0i,\
        d==\x10\x00\x00\x00\x00\x00\x00\xf8?,s=\"q\\\"x\\\\\xc3\xa9\\\n\",\
        arr==\x0e\x0a\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x00\xc0 \
        1790000000000000001n\n";
    assert_eq!(lines.escape_ascii().to_string(), golden.escape_ascii().to_string());
    assert_eq!(altered, 0);
}

#[test]
fn values_without_a_place_are_counted() {
    let altered = |kind: ChannelType, value: Value<'_>| written(&[], &[("v", kind, value)]).1;
    assert_eq!(altered(ChannelType::F64, Value::F64(f64::NAN)), 1);
    assert_eq!(altered(ChannelType::F32, Value::F32(f32::INFINITY)), 1);
    assert_eq!(altered(ChannelType::I64, Value::I64(i64::MIN)), 1);
    assert_eq!(altered(ChannelType::I64, Value::I64(i64::MIN + 1)), 0);
    assert_eq!(altered(ChannelType::U64, Value::U64(i64::MAX as u64)), 0);
    assert_eq!(altered(ChannelType::U64, Value::U64(i64::MAX as u64 + 1)), 1);
    assert_eq!(altered(ChannelType::I32, Value::I32(i32::MIN)), 0);
    for (number, expected) in [(1_i64 << 53, 0), ((1 << 53) + 1, 1)] {
        let bytes = number.to_le_bytes();
        let array = Value::Array(ArrayRef::new(ElementType::I64, &bytes).unwrap());
        let kind = ChannelType::Array(ArrayType::fixed(ElementType::I64, 1).unwrap());
        assert_eq!(altered(kind, array), expected);
    }
}

#[test]
fn a_frame_before_1970_is_rejected() {
    let frame = frame(&[], &[("v", ChannelType::Bool, Value::Bool(true))], -1);
    let written = lines::write("t", &[&frame], &[vec![]], 1);
    assert!(matches!(written, Err(TargetError::Rejected(_))));
}

#[test]
fn names_that_the_database_takes_for_one_stay_apart() {
    let one = |name, value| (name, ChannelType::F64, Value::F64(value));
    let frame = frame(
        &[("Bay", "1")],
        &[one("a.b", 1.0), one("a_b", 2.0), one("A_B", 3.0), one("a-b", 4.0), one("bay", 5.0)],
        1,
    );
    let mut columns = Columns::<QuestdbColumns>::new();
    let plan = plan::<QuestdbColumns>(&frame, &mut columns).unwrap();
    let names: Vec<&str> = plan.places[6..].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["Bay", "a_b", "a_b_f64", "A_B_field"]);
    assert_eq!((&names[4][..11], names[4].len(), names[5]), ("a_b_double_", 19, "bay_f64"), "{names:?}");
    assert!(plan.changes.iter().all(|change| matches!(change, Change::Add { .. })));
    assert_eq!(columns["a_b"].column_type, Some(QuestdbType::Double));
}

#[test]
fn names_are_those_that_the_database_allows() {
    for name in ["a.b", "a-b", "strongback.marks", "Ünï x"] {
        assert_eq!(table_name(name), name);
    }
    let altered = ["a/b", "a+b", "a..b", ".a", "a.", " a", "", "a\u{0}b", "'", "...", &"é".repeat(100)];
    let names: Vec<String> = altered.iter().map(|name| table_name(name)).collect();
    for name in &names {
        assert!(name.len() <= 120 && !name.starts_with(['.', ' ']) && !name.contains(".."), "{name}");
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
    }
    assert_eq!(QuestdbColumns::column_name("a.b-c(d)"), "a_b_c_d_");
    // Letter by letter, whatever the word.
    assert_eq!(QuestdbColumns::key("\u{130}ΑΣ"), QuestdbColumns::key("iασ"));
}
