//! Columns of tables, and golden bytes of COPY, which a PostgreSQL 15 wrote for the same values.

use std::collections::BTreeMap;

use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, Value};

use super::column::{ColumnType, PgType, PostgresColumns, short_name};
use super::copy;
use crate::columns::{Change, Field, plan};
use crate::tests::frame;

fn added(changes: &[Change<ColumnType>]) -> Vec<String> {
    let words = |change: &Change<ColumnType>| match change {
        Change::Add { name, column_type, is_tag } => {
            format!("+{name} {}{}", column_type.name(), if *is_tag { " tag" } else { "" })
        }
        Change::Widen { name, column_type } => format!("{name} {}", column_type.name()),
    };
    changes.iter().map(words).collect()
}

#[test]
fn columns_are_added_widened_or_beside_each_other() {
    let mut columns = BTreeMap::new();
    let first =
        plan::<PostgresColumns>(&frame(&[("x", "1")], &[("a", ChannelType::I16, Value::I16(1))], 1), &mut columns)
            .unwrap();
    assert_eq!(added(&first.changes)[8..], ["+x text tag", "+a smallint"]);
    // A wider number, the name of a tag, and a name that is taken by another type.
    let values = [("a", ChannelType::I64, Value::I64(1)), ("x", ChannelType::F32, Value::F32(1.0))];
    let second = plan::<PostgresColumns>(&frame(&[], &values, 1), &mut columns).unwrap();
    assert_eq!(added(&second.changes), ["a bigint", "+x_f64 real"]);
    let third =
        plan::<PostgresColumns>(&frame(&[], &[("a", ChannelType::F64, Value::F64(1.0))], 1), &mut columns).unwrap();
    assert_eq!(added(&third.changes), ["+a_f64 double precision"]);
    // A narrower number fits.
    let fourth =
        plan::<PostgresColumns>(&frame(&[], &[("a", ChannelType::U8, Value::U8(1))], 1), &mut columns).unwrap();
    assert_eq!(added(&fourth.changes), [""; 0]);
    assert_eq!(fourth.places.last(), Some(&("a".to_owned(), Field::Channel(0))));
    assert_eq!(columns["a"].column_type, Some(ColumnType::of(PgType::Int8)));
}

#[test]
fn long_names_are_cut_and_stay_apart() {
    let name = "n".repeat(63);
    assert_eq!(short_name(&name), name);
    let (one, other) = (short_name(&format!("{name}1")), short_name(&format!("{name}2")));
    assert_eq!((one.len(), other.len()), (63, 63));
    assert_ne!(one, other);
    assert!(short_name(&"ü".repeat(40)).len() <= 63);
}

#[test]
fn values_are_written_as_postgresql_writes_them() {
    let of = |value: Value<'_>, kind: ChannelType, base: PgType| {
        let frame = frame(&[], &[("v", kind, value)], 1);
        let mut out = Vec::new();
        copy::rows(&mut out, &frame, &[(Field::Channel(0), base)]);
        out.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let elements: Vec<u8> = [1_i16, 2].iter().flat_map(|element| element.to_le_bytes()).collect();
    let array = ArrayType::fixed(ElementType::I16, 2).unwrap();
    let array = (Value::Array(ArrayRef::new(ElementType::I16, &elements).unwrap()), ChannelType::Array(array));
    let golden = [
        (
            array.0,
            array.1,
            PgType::Int2,
            "0001000000200000000100000000000000150000000200000001000000020001000000020002",
        ),
        (Value::Bool(true), ChannelType::Bool, PgType::Bool, "00010000000101"),
        (Value::I8(-2), ChannelType::I8, PgType::Int2, "000100000002fffe"),
        (Value::U16(65_535), ChannelType::U16, PgType::Int4, "0001000000040000ffff"),
        (Value::U32(7), ChannelType::U32, PgType::Int8, "0001000000080000000000000007"),
        (Value::U64(u64::MAX), ChannelType::U64, PgType::Numeric, "000100000012000500040000000007341a5802e103bb064f"),
        (Value::U64(0), ChannelType::U64, PgType::Numeric, "0001000000080000000000000000"),
        (Value::F32(-0.0), ChannelType::F32, PgType::Float4, "00010000000480000000"),
        (Value::F32(1.5), ChannelType::F32, PgType::Float8, "0001000000083ff8000000000000"),
        (Value::String("é"), ChannelType::String, PgType::Text, "000100000002c3a9"),
    ];
    for (value, kind, base, bytes) in golden {
        assert_eq!(of(value, kind, base), bytes, "{value:?}");
    }
}
