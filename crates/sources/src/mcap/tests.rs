//! Tests with files and messages written byte by byte according to the formats.

use std::ops::ControlFlow;

use fastrand::Rng;
use proptest::prelude::*;
use strongback_store::{ElementType, Value};

use super::container::{Damage, FileEnd, MAGIC, RecordEntry, read};
use super::fuzzing;
use super::json::JsonDecoder;
use super::message::{LeafKind, RosDecoder, Values};
use super::numbering::Numbering;
use super::schema::{Dialect, SchemaError};
use super::value::{FoundValue, MessageError};

/// Returns the values of a decoder with the names of their leaves.
fn named(leaves: &[super::message::MessageLeaf], values: Values<'_>) -> Vec<(String, FoundValue<'static>)> {
    let own = |found: FoundValue<'_>| match found {
        FoundValue::Plain(value) => FoundValue::Plain(value),
        FoundValue::Text(text) => FoundValue::Text(text.into_owned().into()),
        FoundValue::Array(element, bytes) => FoundValue::Array(element, bytes.into_owned().into()),
        FoundValue::Unknown => FoundValue::Unknown,
    };
    values.into_iter().map(|(leaf, found)| (leaves[leaf].name.clone(), own(found))).collect()
}

/// Writer of messages of random types: schema, bytes, and the expected values.
struct Author {
    rng: Rng,
    is_cdr: bool,
    is_big: bool,
    types: Vec<String>,
    bytes: Vec<u8>,
}

const PLAIN: [&str; 12] =
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string"];

/// A type: its name, and its fields with the number of each (`None` for any number).
#[derive(Clone)]
enum Shape {
    Plain(&'static str),
    Fields(String, Vec<(String, Count, Shape)>),
}

#[derive(Clone, Copy)]
enum Count {
    One,
    Fixed(usize),
    Any,
}

impl Author {
    fn shape(&mut self, depth: usize) -> Shape {
        if depth == 0 || self.rng.u8(..4) > 0 && depth < 3 {
            let plain = if self.is_cdr { 11 } else { 13 };
            return match self.rng.usize(..plain + 1) {
                12 => Shape::Plain("time"),
                13 => Shape::Plain("duration"),
                index => Shape::Plain(PLAIN[index]),
            };
        }
        let fields: Vec<(String, Count, Shape)> = (0..self.rng.usize(1..5))
            .map(|field| {
                let count = match self.rng.u8(..5) {
                    0 => Count::Fixed(self.rng.usize(1..4)),
                    1 => Count::Any,
                    _ => Count::One,
                };
                (format!("f{field}"), count, self.shape(depth - 1))
            })
            .collect();
        let name = format!("pkg/T{}", self.types.len());
        let mut text = format!("# {name}\nuint8 CONST=3 # not a field\n\n");
        for (field, count, shape) in &fields {
            let of = match shape {
                Shape::Plain(plain) => plain,
                // With or without its package.
                Shape::Fields(name, _) => &name[if self.rng.bool() { 0 } else { 4 }..],
            };
            let array = match count {
                Count::One => String::new(),
                Count::Fixed(length) => format!("[{length}]"),
                Count::Any => "[]".to_owned(),
            };
            text += &format!("{of}{array}   {field}  # a comment = here\n");
        }
        self.types.push(text);
        Shape::Fields(name, fields)
    }

    fn schema(&self) -> (String, String) {
        let root = self.types.len() - 1;
        let mut text = self.types[root].clone();
        for (index, of) in self.types[..root].iter().enumerate() {
            text += &format!("{}\nMSG: pkg/{}T{index}\n{of}", "=".repeat(80), if self.is_cdr { "msg/" } else { "" });
        }
        (format!("pkg/T{root}"), text)
    }

    fn put(&mut self, little: &[u8]) {
        if self.is_cdr {
            // The first four bytes are the encapsulation.
            while !(self.bytes.len() - 4).is_multiple_of(little.len()) {
                self.bytes.push(0xEE);
            }
        }
        match self.is_big {
            true => self.bytes.extend(little.iter().rev()),
            false => self.bytes.extend(little),
        }
    }

    fn plain(&mut self, kind: &str) -> FoundValue<'static> {
        macro_rules! number {
            ($kind:ident, $value:ident, $draw:expr) => {{
                let number: $kind = $draw;
                self.put(&number.to_le_bytes());
                FoundValue::Plain(Value::$value(number))
            }};
        }
        match kind {
            "bool" => {
                let truth = self.rng.bool();
                self.put(&[u8::from(truth)]);
                FoundValue::Plain(Value::Bool(truth))
            }
            "int8" => number!(i8, I8, self.rng.i8(..)),
            "int16" => number!(i16, I16, self.rng.i16(..)),
            "int32" => number!(i32, I32, self.rng.i32(..)),
            "int64" => number!(i64, I64, self.rng.i64(..)),
            "uint8" => number!(u8, U8, self.rng.u8(..)),
            "uint16" => number!(u16, U16, self.rng.u16(..)),
            "uint32" => number!(u32, U32, self.rng.u32(..)),
            "uint64" => number!(u64, U64, self.rng.u64(..)),
            "float32" => number!(f32, F32, self.rng.f32() * 1e9),
            "float64" => number!(f64, F64, self.rng.f64() - 0.5),
            "time" => {
                let (seconds, fraction) = (self.rng.u32(..), self.rng.u32(..1_000_000_000));
                self.put(&seconds.to_le_bytes());
                self.put(&fraction.to_le_bytes());
                FoundValue::Plain(Value::I64(i64::from(seconds) * 1_000_000_000 + i64::from(fraction)))
            }
            "duration" => {
                let (seconds, fraction) = (self.rng.i32(..), self.rng.i32(..));
                self.put(&seconds.to_le_bytes());
                self.put(&fraction.to_le_bytes());
                FoundValue::Plain(Value::I64(i64::from(seconds) * 1_000_000_000 + i64::from(fraction)))
            }
            _ => {
                let text: String = (0..self.rng.usize(..9)).map(|_| self.rng.char('a'..'ÿ')).collect();
                let zero: &[u8] = if self.is_cdr { &[0] } else { &[] };
                self.put(&((text.len() + zero.len()) as u32).to_le_bytes());
                self.bytes.extend(text.as_bytes());
                self.bytes.extend(zero);
                FoundValue::Text(text.into())
            }
        }
    }

    fn message(&mut self, shape: &Shape, path: &str, out: &mut Vec<(String, FoundValue<'static>)>) {
        let Shape::Fields(_, fields) = shape else {
            let Shape::Plain(kind) = shape else { return };
            let found = self.plain(kind);
            out.push((path.to_owned(), found));
            return;
        };
        for (field, count, shape) in fields {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            let elements = match count {
                Count::One => {
                    self.message(shape, &path, out);
                    continue;
                }
                Count::Fixed(length) => *length,
                Count::Any => {
                    let length = self.rng.usize(..5);
                    self.put(&(length as u32).to_le_bytes());
                    length
                }
            };
            match shape {
                Shape::Plain(kind) if *kind != "string" => {
                    let (mut bytes, mut element) = (Vec::new(), None);
                    for _ in 0..elements {
                        let FoundValue::Plain(value) = self.plain(kind) else { panic!("{kind} is a number") };
                        let of = ElementType::of(value.channel_type()).unwrap();
                        element = Some(of);
                        bytes.extend_from_slice(&value.bits().to_le_bytes()[..of.size_bytes()]);
                    }
                    // The type of an empty array is not checked.
                    out.push((path, FoundValue::Array(element.unwrap_or(ElementType::Bool), bytes.into())));
                }
                _ => (0..elements).for_each(|index| self.message(shape, &format!("{path}[{index}]"), out)),
            }
        }
    }
}

/// Names and values, without those that cannot be compared.
fn comparable(values: &[(String, FoundValue<'static>)]) -> Vec<(String, String)> {
    let text = |found: &FoundValue<'_>| match found {
        FoundValue::Array(_, bytes) if bytes.is_empty() => "[]".to_owned(),
        other => format!("{other:?}"),
    };
    values.iter().map(|(name, found)| (name.clone(), text(found))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn messages_of_any_type_are_read_as_they_were_written(seed in any::<u64>(), is_cdr in any::<bool>(), is_big in any::<bool>()) {
        let is_big = is_big && is_cdr;
        let mut author = Author { rng: Rng::with_seed(seed), is_cdr, is_big, types: Vec::new(), bytes: Vec::new() };
        let shape = author.shape(3);
        let (name, schema) = author.schema();
        let dialect = if is_cdr { Dialect::Ros2 } else { Dialect::Ros1 };
        let mut decoder = RosDecoder::new(dialect, &name, schema.as_bytes()).unwrap();
        for _ in 0..3 {
            author.bytes = if is_cdr { vec![0, u8::from(!is_big), 0, 0] } else { Vec::new() };
            let mut wanted = Vec::new();
            author.message(&shape, "", &mut wanted);
            let mut values = Values::new();
            decoder.decode(&author.bytes, &mut values).map_err(|e| TestCaseError::fail(format!("{e}\n{schema}")))?;
            let found = named(decoder.leaves(), values);
            prop_assert_eq!(comparable(&found), comparable(&wanted), "{}", schema);
            // Any truncation is detected.
            let cut = author.rng.usize(..author.bytes.len().max(1));
            let short = decoder.decode(&author.bytes[..cut], &mut Values::new());
            prop_assert!(short.is_err() || author.bytes.is_empty() || is_cdr && cut <= 4, "{} of {}", cut, author.bytes.len());
        }
    }

    #[test]
    fn no_bytes_are_too_bad(
        seed in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
    ) {
        let corpus = fuzzing::corpus();
        let (target, mut bytes) = corpus[seed.index(corpus.len())].clone();
        changes.iter().for_each(|(at, to)| { let at = at.index(bytes.len()); bytes[at] = *to });
        if changes.len() % 2 == 1 {
            bytes.truncate(cut.index(bytes.len()));
        }
        match target {
            "mcap_file" => fuzzing::file(&bytes),
            _ => fuzzing::message(&bytes),
        }
    }
}

#[test]
fn the_fuzzer_begins_with_what_can_be_read() {
    for (target, bytes) in fuzzing::corpus() {
        if target == "mcap_file" {
            assert_eq!(read(bytes.as_slice(), |_, _| ControlFlow::Continue(())).unwrap(), FileEnd::Whole);
            fuzzing::file(&bytes);
            continue;
        }
        fuzzing::message(&bytes);
        let schema_bytes = u16::from_le_bytes([bytes[1], bytes[2]]) as usize;
        let (schema, message) = bytes[3..].split_at(schema_bytes);
        let mut values = Values::new();
        match bytes[0] {
            2 => JsonDecoder::new(Some(schema)).decode(message, &mut values).unwrap(),
            whose => {
                let dialect = [Dialect::Ros1, Dialect::Ros2][whose as usize];
                RosDecoder::new(dialect, "fuzz/Root", schema).unwrap().decode(message, &mut values).unwrap();
            }
        }
        assert!(values.len() >= 4, "{values:?}");
    }
}

#[test]
fn times_and_headers_of_both_dialects_are_nanoseconds() {
    let ros1 =
        "std_msgs/Header header\nduration d\n===\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n";
    let mut decoder = RosDecoder::new(Dialect::Ros1, "a/B", ros1.as_bytes()).unwrap();
    let message = [&[9, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0][..], b"ab", &[0xFF; 8]].concat();
    let mut values = Values::new();
    decoder.decode(&message, &mut values).unwrap();
    let stamp = decoder.stamp().unwrap();
    let found = named(decoder.leaves(), values);
    assert_eq!(found[stamp], ("header.stamp".to_owned(), FoundValue::Plain(Value::I64(5_000_000_007))));
    assert_eq!(found[2], ("header.frame_id".to_owned(), FoundValue::Text("ab".into())));
    assert_eq!(found[3], ("d".to_owned(), FoundValue::Plain(Value::I64(-1_000_000_001))));
    assert_eq!(decoder.leaves()[stamp].unit, "ns");

    let ros2 = "std_msgs/Header h\n===\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n\
        ===\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n";
    let mut decoder = RosDecoder::new(Dialect::Ros2, "a/msg/B", ros2.as_bytes()).unwrap();
    let message = [0, 1, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let mut values = Values::new();
    decoder.decode(&message, &mut values).unwrap();
    let found = named(decoder.leaves(), values);
    assert_eq!(found[decoder.stamp().unwrap()], ("h.stamp".to_owned(), FoundValue::Plain(Value::I64(-999_999_999))));
    assert_eq!(found[1].1, FoundValue::Text("".into()));
}

#[test]
fn what_is_no_schema_is_said() {
    let error = |dialect, text: &str| RosDecoder::new(dialect, "a/B", text.as_bytes()).unwrap_err();
    assert_eq!(error(Dialect::Ros1, "float64"), SchemaError::Line { line: 1, text: "float64".into() });
    assert_eq!(
        error(Dialect::Ros1, "int8 a\nint8[x] b").to_string(),
        "line 2 of the schema, \"int8[x] b\", is not a field"
    );
    let unknown = error(Dialect::Ros2, "nav/Odom o");
    assert_eq!(unknown, SchemaError::UnknownType { of: "nav/Odom".into(), field: "o".into() });
    // ROS 2 has no built-in time type.
    assert!(matches!(error(Dialect::Ros2, "time t"), SchemaError::UnknownType { .. }));
    assert!(matches!(error(Dialect::Ros2, "wstring w"), SchemaError::WideText { .. }));
    assert!(matches!(error(Dialect::Ros1, "B b"), SchemaError::TooDeep { .. }));
    assert!(matches!(error(Dialect::Ros1, "int8 a\n===\nMGS: a/C\n"), SchemaError::Line { line: 3, .. }));
    // Each type contains the next one twice: 2³⁰ fields.
    let mut bomb = "T1 x\nT1 y\n".to_owned();
    (1..30).for_each(|n| bomb += &format!("===\nMSG: a/T{n}\nT{0} x\nT{0} y\n", n + 1));
    bomb += "===\nMSG: a/T30\nint8 x\n";
    assert_eq!(error(Dialect::Ros1, &bomb), SchemaError::TooLarge);
}

#[test]
fn what_has_no_leaf_is_counted_and_read_over() {
    let schema = "E[] many\nstring[] names\nuint8[] bytes\nfloat64[70000] long\nint8 last\n===\nMSG: a/E\nint16 v\n";
    let mut decoder = RosDecoder::new(Dialect::Ros1, "a/B", schema.as_bytes()).unwrap();
    let mut message = Vec::new();
    message.extend(70_u32.to_le_bytes());
    (0..70_i16).for_each(|n| message.extend(n.to_le_bytes()));
    message.extend([1, 0, 0, 0, 1, 0, 0, 0, 0xFF]);
    message.extend([3, 0, 0, 0, 7, 8, 9]);
    message.extend(vec![0; 70_000 * 8]);
    message.push(5);
    let mut values = Values::new();
    decoder.decode(&message, &mut values).unwrap();
    let found = named(decoder.leaves(), values);
    assert_eq!(found[63], ("many[63].v".to_owned(), FoundValue::Plain(Value::I16(63))));
    assert_eq!(found[64], ("names[0]".to_owned(), FoundValue::Unknown));
    assert_eq!(found[65], ("bytes".to_owned(), FoundValue::Array(ElementType::U8, vec![7, 8, 9].into())));
    assert_eq!(found[66], ("last".to_owned(), FoundValue::Plain(Value::I8(5))));
    let bytes = decoder.leaves().iter().find(|leaf| leaf.name == "bytes").unwrap();
    assert_eq!(bytes.kind, LeafKind::Bytes(ElementType::U8));
    let left_out: Vec<(&str, u64)> = decoder.left_out().iter().map(|(what, count)| (what.as_str(), *count)).collect();
    assert_eq!(left_out, [("long: arrays of more than 65536 elements", 1), ("many: elements behind the first 64", 6)]);
    // The message cannot contain that many elements, so nothing is read.
    message[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let short = decoder.decode(&message, &mut Values::new()).unwrap_err();
    assert!(matches!(short, MessageError::Short { offset: 4, wanted_bytes: 8_589_934_590, .. }), "{short}");
}

#[test]
fn json_follows_its_schema_and_without_one_its_first_values() {
    let schema = br##"{"properties":{"n":{"type":["integer","null"]},"x":{"type":"number"},"s":{"type":"string"},
        "p":{"$ref":"#/definitions/p"}},"definitions":{"p":{"properties":{"q":{"type":"array","items":{"type":"integer"}}}}}}"##;
    let mut decoder = JsonDecoder::new(Some(schema));
    let read = |decoder: &mut JsonDecoder, text: &str| {
        let mut values = Values::new();
        decoder.decode(text.as_bytes(), &mut values).unwrap();
        let mut found = named(decoder.leaves(), values);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let large = 9_007_199_254_740_993_i64;
    let found = read(
        &mut decoder,
        &format!(r#"{{"n":{large},"x":"NaN","s":"é","p":{{"q":[]}},"free":[true],"o":[{{"a":1}},null]}}"#),
    );
    let text: Vec<String> = found.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
    assert_eq!(
        text,
        [
            "free Array(Bool, [1])",
            &format!("n Plain(I64({large}))"),
            "o[0].a Plain(F64(1.0))",
            "p.q Array(I64, [])",
            "s Text(\"é\")",
            "x Plain(F64(NaN))",
        ]
    );
    assert!(decoder.left_out().is_empty());
    // Values of another type keep their own type, in a separate leaf for each type.
    let other = r#"{"n":1.5,"x":true,"s":7,"p":{"q":[1.5]},"free":true}"#;
    let words = |found: Vec<(String, FoundValue<'_>)>| -> Vec<String> {
        found.iter().map(|(name, value)| format!("{name} {value:?}")).collect()
    };
    let expected = [
        "free Plain(Bool(true))",
        "n Plain(F64(1.5))",
        "p.q Array(F64, [0, 0, 0, 0, 0, 0, 248, 63])",
        "s Plain(F64(7.0))",
        "x Plain(Bool(true))",
    ];
    let leaves = decoder.leaves().len();
    assert_eq!(words(read(&mut decoder, other)), expected);
    assert_eq!(words(read(&mut decoder, other)), expected);
    assert_eq!(decoder.leaves().len(), leaves + expected.len());
    // Each continues in its own leaf.
    let first = words(read(&mut decoder, r#"{"n":5,"x":2.5,"s":"t"}"#));
    assert_eq!(first, ["n Plain(I64(5))", "s Text(\"t\")", "x Plain(F64(2.5))"]);
    assert_eq!(words(read(&mut decoder, r#"{"n":18446744073709551615}"#)), [format!("n Plain(U64({}))", u64::MAX)]);
    assert!(decoder.left_out().is_empty());
    // An array of mixed types has no type.
    assert!(read(&mut decoder, r#"{"p":{"q":[1,true]}}"#).is_empty());
    let left_out: Vec<&str> = decoder.left_out().keys().map(String::as_str).collect();
    assert_eq!(left_out, ["p.q: values that no channel can hold"]);
    assert!(decoder.decode(b"[1]", &mut Values::new()).is_err());
}

#[test]
fn json_with_two_values_of_one_name_keeps_one_and_counts_the_other() {
    let text = r#"{"a.b":1,"a":{"b":2},"k":1,"k":2,"k":"text"}"#;
    let mut decoder = JsonDecoder::new(None);
    for message in 1..=2 {
        let mut values = Values::new();
        decoder.decode(text.as_bytes(), &mut values).unwrap();
        let found: Vec<String> =
            named(decoder.leaves(), values).iter().map(|(name, value)| format!("{name} {value:?}")).collect();
        assert_eq!(found, ["a.b Plain(F64(2.0))", "k Plain(F64(1.0))", "k Text(\"text\")"]);
        let counted: Vec<(&str, u64)> =
            decoder.left_out().iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let sentence = |name: &str| format!("{name}: further values of this name in one message");
        assert_eq!(counted, [(sentence("a.b").as_str(), message), (sentence("k").as_str(), message)]);
    }
}

#[test]
fn numbers_in_json_are_rounded_to_the_nearest_double() {
    let mut random = Rng::with_seed(11);
    let mut decoder = JsonDecoder::new(None);
    let known =
        ["1751644409.0095541", "5e-324", "1.7976931348623157e308", "-0.0", "0.1", "123456789012345678901234567890"];
    let drawn = (0..20_000).map(|n| match n % 3 {
        0 => format!("{:?}", f64::from_bits(random.u64(..) >> 2)),
        1 => format!("{}.{:07}", random.u32(..), random.u32(0..10_000_000)),
        _ => {
            format!("{}{}.{}e{}", ["", "-"][random.usize(0..2)], random.u64(..), random.u64(..), random.i32(-300..280))
        }
    });
    for text in known.into_iter().map(str::to_owned).chain(drawn) {
        let want: f64 = text.parse().unwrap();
        if !want.is_finite() {
            continue;
        }
        let message = format!("{{\"x\":{text},\"a\":[{text}]}}");
        let mut values = Values::new();
        decoder.decode(message.as_bytes(), &mut values).unwrap();
        let bytes = want.to_le_bytes().to_vec();
        let found = named(decoder.leaves(), values);
        assert_eq!(found[0], ("a".to_owned(), FoundValue::Array(ElementType::F64, bytes.into())), "{text}");
        match &found[1].1 {
            FoundValue::Plain(Value::F64(got)) => assert_eq!(got.to_bits(), want.to_bits(), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    // A number beyond the range of a double is not stored as an infinity.
    let mut values = Values::new();
    decoder.decode(b"{\"x\":1e400}", &mut values).unwrap();
    assert!(values.is_empty() && decoder.left_out().len() == 1);
}

fn record(opcode: u8, body: &[u8]) -> Vec<u8> {
    [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat()
}

fn message(channel: u16, number: u32) -> Vec<u8> {
    record(5, &[&channel.to_le_bytes()[..], &number.to_le_bytes(), &[1; 8], &[1; 8], &[7; 40]].concat())
}

fn chunk(compression: &str, records: &[u8], crc: u32) -> Vec<u8> {
    let packed = fuzzing::pack(compression, records);
    let name = compression.as_bytes();
    let body = [
        &[0; 16][..],
        &(records.len() as u64).to_le_bytes(),
        &crc.to_le_bytes(),
        &(name.len() as u32).to_le_bytes(),
        name,
        &(packed.len() as u64).to_le_bytes(),
        &packed,
    ];
    record(6, &body.concat())
}

/// Builds a file of chunks of ten messages. Returns it with the offset of each chunk.
fn file(compression: &str) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut begins) = ([&MAGIC[..], &record(1, &[0; 8])].concat(), Vec::new());
    for first in [0, 10, 20] {
        let records: Vec<u8> = (first..first + 10).flat_map(|number| message(1, number)).collect();
        begins.push(file.len());
        file.extend(chunk(compression, &records, crc32fast::hash(&records)));
        file.extend(record(7, &[0; 6]));
    }
    file.extend([record(15, &[0; 4]), record(3, b"broken"), record(2, &[0; 20])].concat());
    file.extend(MAGIC);
    (file, begins)
}

/// Returns the numbers of a file's messages, its damages, and its end.
fn numbers(bytes: &[u8]) -> (Vec<u32>, Vec<Damage>, FileEnd) {
    let (mut found, mut damages) = (Vec::new(), Vec::new());
    let end = read(bytes, |entry, _| {
        match entry {
            RecordEntry::Message(message) => found.push(message.sequence),
            RecordEntry::Damage(damage) => damages.push(damage),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    (found, damages, end.unwrap())
}

#[test]
fn a_file_cut_anywhere_gives_all_before_the_cut() {
    for compression in ["", "lz4", "zstd"] {
        let (file, begins) = file(compression);
        assert_eq!(numbers(&file), ((0..30).collect(), Vec::new(), FileEnd::Whole), "{compression}");
        for cut in MAGIC.len()..file.len() {
            let (found, damages, end) = numbers(&file[..cut]);
            let FileEnd::Cut(at) = end else { panic!("{compression}: {end:?} at {cut}") };
            assert_eq!((at.offset, damages.len()), (cut as u64, 0), "{compression}: {}", at.what);
            let whole = begins.iter().skip(1).filter(|begin| **begin <= cut).count() * 10;
            let all_of = if whole == 20 && found.len() == 30 { 30 } else { found.len() };
            assert_eq!(found, (0..all_of as u32).collect::<Vec<u32>>(), "{compression} at {cut}");
            assert!(found.len() >= whole, "{compression} at {cut}: {} of {whole}", found.len());
            if compression.is_empty() && begins.iter().any(|begin| (begin + 9..begin + 700).contains(&cut)) {
                // Without compression, each complete message is returned.
                let begin = begins.iter().rev().find(|begin| **begin < cut).unwrap();
                let there = cut.saturating_sub(begin + 9 + 40) / message(1, 0).len();
                assert_eq!(found.len() % 10, there.min(10) % 10, "at {cut}");
            }
        }
    }
    assert!(read(&b"\x89MCAP1\r\n"[..], |_, _| ControlFlow::Continue(())).is_err());
}

#[test]
fn a_chunk_that_was_never_closed_gives_what_is_there() {
    for compression in ["", "lz4", "zstd"] {
        let (file, begins) = file(compression);
        // The writer knew neither lengths nor checksum, and died before the end of the second chunk.
        let mut open = file[..begins[1] + (begins[2] - begins[1]) - 20].to_vec();
        let name = compression.len();
        for at in [1..9, 25..37, 41 + name..49 + name] {
            at.for_each(|at| open[begins[1] + at] = 0xFF);
        }
        let (found, damages, end) = numbers(&open);
        assert!(matches!(&end, FileEnd::Cut(at) if at.offset == open.len() as u64), "{end:?}");
        assert!(damages.is_empty());
        // An incomplete compressed block yields nothing.
        let least = if compression.is_empty() { 19 } else { 10 };
        assert!(
            found.len() >= least && found == (0..found.len() as u32).collect::<Vec<u32>>(),
            "{compression}: {found:?}"
        );
    }
}

#[test]
fn a_damaged_chunk_is_told_and_left_out_as_a_whole() {
    for compression in ["", "lz4", "zstd"] {
        let (file, begins) = file(compression);
        let size = begins[1] - begins[0] - record(7, &[0; 6]).len();
        for at in 9 + 24..size {
            let mut bad = file.clone();
            bad[begins[1] + at] ^= 0x10;
            let (found, damages, end) = numbers(&bad);
            let others = (0..10).chain(20..30).collect::<Vec<u32>>();
            if found.len() == 30 {
                // A byte without effect: padding, or one that the compression itself ignores.
                assert!(!compression.is_empty(), "at {at}");
                continue;
            }
            assert_eq!((found, end), (others, FileEnd::Whole), "{compression} at {at}");
            assert_eq!(damages.iter().map(|damage| damage.offset).collect::<Vec<u64>>(), [begins[1] as u64]);
        }
    }
    // Without a checksum, damage goes unnoticed. An unknown compression is skipped.
    let records = [message(1, 1), message(1, 2)].concat();
    let file = [&MAGIC[..], &chunk("", &records, 0), &chunk("rar", &records, 0), &record(2, &[0; 20]), &MAGIC].concat();
    let (found, damages, end) = numbers(&file);
    assert_eq!((found, end), (vec![1, 2], FileEnd::Whole));
    assert!(damages[0].what.contains("the compression \"rar\" is not known"), "{damages:?}");
    // Zeros, as left by a power cut.
    let zeros = [&MAGIC[..], &message(1, 1), &[0; 64]].concat();
    let (found, _, end) = numbers(&zeros);
    assert_eq!(found, [1]);
    assert!(matches!(end, FileEnd::Cut(at) if at.offset == 8 + message(1, 1).len() as u64));
}

#[test]
fn numbers_are_sequences_only_where_they_count_channels() {
    let of = |messages: &[(u16, u32)]| {
        let file = messages.iter().fold(MAGIC.to_vec(), |mut file, (channel, number)| {
            file.extend(message(*channel, *number));
            file
        });
        Numbering::of(file.as_slice()).unwrap()
    };
    assert_eq!(of(&[]), Numbering::None);
    assert_eq!(of(&[(1, 0), (2, 0)]), Numbering::None);
    assert_eq!(of(&[(1, 1), (2, 2), (1, 3)]), Numbering::File);
    let by_channel = of(&[(1, 0), (2, 1), (1, 1), (3, 0)]);
    assert_eq!(by_channel, Numbering::Channel([1, 2].into()));
    assert_eq!(
        (by_channel.sequence(1, 0), by_channel.sequence(3, 0), by_channel.sequence(3, 4)),
        (Some(0), None, Some(4))
    );
    assert_eq!(of(&[(7, 5), (7, 9)]), Numbering::Channel([7].into()));
    assert_eq!(Numbering::File.sequence(1, 4), None);
    // A channel that sends alone for longer than its numbers are kept, and then a second one.
    for alone in [5_000, 70_000] {
        let sent: Vec<(u16, u32)> = (1..=alone).map(|number| (1, number)).collect();
        let then = |more: &[(u16, u32)]| of(&[sent.as_slice(), more].concat());
        assert_eq!(then(&[]), Numbering::Channel([1].into()));
        assert_eq!(then(&[(2, alone + 1), (1, alone + 2)]), Numbering::File);
        assert_eq!(then(&[(2, 1), (1, alone + 1)]), Numbering::Channel([1, 2].into()));
        assert_eq!(then(&[(2, 0), (1, alone + 1)]), Numbering::File);
        // The second joins with a number that the first reaches later.
        assert_eq!(then(&[(2, alone + 2), (1, alone + 1), (1, alone + 2)]), Numbering::Channel([1, 2].into()));
    }
}
