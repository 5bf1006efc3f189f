//! Lines of LOAD DATA, and names.

use strongback_store::{ArrayRef, ArrayType, ChannelType, ElementType, Value};

use super::column::{MariadbType, name_there};
use super::{MariadbAddress, MariadbColumns, load};
use crate::columns::{Dialect as _, Field};
use crate::tests::frame;

fn written(value: Value<'_>, kind: ChannelType, column_type: MariadbType) -> (String, u64) {
    let frame = frame(&[("x", "a\tb\\\0")], &[("v", kind, value)], 1_790_000_000_123_456_789);
    let fields = [
        (Field::Time, MariadbType::Instant),
        (Field::TimeNs, MariadbType::BigInt),
        (Field::Tag("x".to_owned()), MariadbType::Tag),
        (Field::Nothing, MariadbType::Int),
        (Field::Channel(0), column_type),
    ];
    let mut out = Vec::new();
    let altered = load::lines(&mut out, &frame, &fields);
    let text = String::from_utf8(out).unwrap();
    let head = "2026-09-21 14:13:20.123456\t1790000000123456789\ta\\tb\\\\\\0\t\\N\t";
    (text.strip_prefix(head).unwrap().to_owned(), altered)
}

#[test]
fn values_are_lines_of_load_data() {
    let elements: Vec<u8> = [1.5_f64, f64::NAN].iter().flat_map(|element| element.to_le_bytes()).collect();
    let array = ArrayType::fixed(ElementType::F64, 2).unwrap();
    let array = (Value::Array(ArrayRef::new(ElementType::F64, &elements).unwrap()), ChannelType::Array(array));
    for (value, kind, column_type, line, altered) in [
        (Value::Bool(true), ChannelType::Bool, MariadbType::Bool, "1\n", 0),
        (Value::I8(-2), ChannelType::I8, MariadbType::SmallInt, "-2\n", 0),
        (Value::I64(i64::MIN), ChannelType::I64, MariadbType::BigInt, "-9223372036854775808\n", 0),
        (Value::U64(u64::MAX), ChannelType::U64, MariadbType::BigIntUnsigned, "18446744073709551615\n", 0),
        (Value::F32(0.1), ChannelType::F32, MariadbType::Double, "0.10000000149011612\n", 0),
        (Value::F64(-5e-324), ChannelType::F64, MariadbType::Double, "-5e-324\n", 0),
        (Value::F64(f64::NAN), ChannelType::F64, MariadbType::Double, "\\N\n", 1),
        (Value::F32(f32::INFINITY), ChannelType::F32, MariadbType::Double, "\\N\n", 1),
        (Value::I32(7), ChannelType::I32, MariadbType::Double, "7.0\n", 0),
        (Value::String("é\n\r\\N"), ChannelType::String, MariadbType::Text, "é\\n\r\\\\N\n", 0),
        (array.0, array.1, MariadbType::Array, "[1.5,\"NaN\"]\n", 0),
    ] {
        assert_eq!(written(value, kind, column_type), (line.to_owned(), altered), "{value:?}");
    }
}

#[test]
fn types_are_read_as_servers_name_them() {
    for (name, column_type) in [
        ("tinyint(1)", Some(MariadbType::Bool)),
        ("tinyint(4)", None),
        ("smallint(6)", Some(MariadbType::SmallInt)),
        ("int", Some(MariadbType::Int)),
        ("bigint(20) unsigned", Some(MariadbType::BigIntUnsigned)),
        ("bigint unsigned", Some(MariadbType::BigIntUnsigned)),
        ("int(10) unsigned", None),
        ("decimal(20,0)", None),
        ("datetime(6)", Some(MariadbType::Instant)),
        ("datetime", None),
        ("longtext", Some(MariadbType::Array)),
    ] {
        assert_eq!(MariadbType::named(name), column_type, "{name}");
    }
}

#[test]
fn names_that_the_server_refuses_are_altered_and_stay_apart() {
    for name in ["engine.pressure", "größe", "a`b", &"n".repeat(64)] {
        assert_eq!(name_there(name), name);
    }
    let altered = ["a ", "a\0", "🚀", "🛰", &"n".repeat(65), &"n".repeat(66), &"ü".repeat(70)].map(name_there);
    assert!(altered.iter().all(|name| name.chars().count() <= 64 && !name.ends_with(' ')), "{altered:?}");
    assert!(altered.iter().all(|name| name.chars().all(|c| ('\u{1}'..='\u{ffff}').contains(&c))));
    assert_eq!(altered.iter().collect::<std::collections::BTreeSet<_>>().len(), altered.len());
    // MariaDB 10.11 takes the names of each pair for one.
    for (one, other) in
        [("P", "p"), ("\u{17f}", "S"), ("\u{131}", "i"), ("\u{130}", "I"), ("\u{212a}", "k"), ("é", "É")]
    {
        assert_eq!(MariadbColumns::key(one), MariadbColumns::key(other), "{one} {other}");
    }
    assert_ne!(MariadbColumns::key("é"), MariadbColumns::key("e"));
}

#[test]
fn addresses_name_host_user_and_database() {
    let address = MariadbAddress::parse("mariadb://archive@db.example/telemetry").unwrap();
    assert_eq!(address.to_string(), "mariadb://archive@db.example:3306/telemetry");
    assert_eq!(MariadbAddress::parse("mysql://a@[::1]:3307/t").unwrap().host, "::1");
    for (url, why) in [
        ("http://a@host/t", "mariadb://"),
        ("mariadb://host/t", "no user"),
        ("mariadb://a:secret@host/t", "password_file"),
        ("mariadb://a@host", "no database"),
        ("mariadb://a@host/t?ssl=1", "no parameters"),
    ] {
        let error = MariadbAddress::parse(url).unwrap_err();
        assert!(error.contains(why) && !error.contains("secret"), "{url}: {error}");
    }
}
