use proptest::prelude::*;

use super::*;
use crate::model::array::ElementType;

const VEHICLE: &str = include_str!("../../../../examples/vehicle.rdl");
const CAR: &str = include_str!("../../../../examples/car_snapshots.rdl");

fn element(name: &str, channel_type: ChannelType, codec: ElementCodec) -> ElementDefinition {
    ElementDefinition { name: name.into(), channel_type, optional: false, codec }
}

#[test]
fn the_published_definitions_are_read_as_they_are_meant() {
    let car = StoreDefinition::parse(CAR, "car.rdl").unwrap();
    let test = StreamDefinition {
        name: "Test".into(),
        id: 1,
        elements: vec![ElementDefinition {
            optional: true,
            ..element("value", ChannelType::F32, ElementCodec::Sampled)
        }],
    };
    let snapshots = StreamDefinition {
        name: "CarSnapshots".into(),
        id: 2,
        elements: vec![
            element("rpm", ChannelType::F32, ElementCodec::Deadband { deadband: 50.0 }),
            element("speed", ChannelType::F32, ElementCodec::Deadband { deadband: 5.0 }),
            element("passengers", ChannelType::U8, ElementCodec::Step),
            element("driving", ChannelType::Bool, ElementCodec::Step),
        ],
    };
    let want = StoreDefinition {
        block_bytes: Some(2_048),
        file_bytes: Some(204_800),
        max_streams: Some(3),
        data_block_blocks: Some(2),
        streams: vec![test, snapshots],
    };
    assert_eq!(car, want);
    assert_eq!(car.least_bytes(), 3 * 2 * 2_048);

    let spec = car.streams[1].spec("t");
    let kept: Vec<(&str, Reduction)> = spec.channels.iter().map(|c| (c.name.as_str(), c.reduction)).collect();
    let [rpm, speed] = [50.0, 5.0].map(|bound| Reduction::Deadband { bound });
    let step = Reduction::Step;
    assert_eq!(kept, [("rpm", rpm), ("speed", speed), ("passengers", step), ("driving", step)]);

    let vehicle = StoreDefinition::parse(VEHICLE, "vehicle.rdl").unwrap();
    let ids: Vec<(&str, u32)> = vehicle.streams.iter().map(|s| (s.name.as_str(), s.id)).collect();
    let names = [
        ("RPM", 190),
        ("FuelRate", 183),
        ("AccelPedalPosition", 91),
        ("BatteryVolts", 1682),
        ("FuelEcon", 184),
        ("Speed", 841),
        ("VehicleStatus", 1),
        ("HardAccelEvent", 2),
    ];
    assert_eq!(ids, names);
    assert_eq!((vehicle.file_bytes, vehicle.data_block_bytes()), (Some(52_428_800), 16_384));
    for definition in [car, vehicle] {
        assert_eq!(StoreDefinition::parse(&definition.to_string(), "printed").unwrap(), definition);
    }
}

#[test]
fn words_are_known_without_case_and_in_our_spelling() {
    let text = "set FILESIZE = 1000000 create stream Set with id 0 { null I16 null with codec swingingdoor params \
                (DEVIATION=+1e-3), \"with \"\"odd\"\" name\" FLOAT64, c f64 WITH CODEC sampled, }";
    let read = StoreDefinition::parse(text, "t").unwrap();
    let elements = &read.streams[0].elements;
    assert_eq!(read.streams[0].name, "Set");
    assert_eq!(elements[0].name, "null");
    assert_eq!((elements[0].channel_type, elements[0].optional), (ChannelType::I16, true));
    assert_eq!(elements[0].codec, ElementCodec::SwingingDoor { deviation: 1e-3 });
    assert_eq!(elements[1], element("with \"odd\" name", ChannelType::F64, ElementCodec::Sampled));
    assert_eq!(elements[2], element("c", ChannelType::F64, ElementCodec::Sampled));
    let array = |element, length| ChannelType::Array(ArrayType::fixed(element, length).unwrap());
    let arrays = [array(ElementType::F32, 512), array(ElementType::Bool, 65_536)];
    let variable = ChannelType::Array(ArrayType::variable(ElementType::U64));
    for known in ChannelType::ALL.into_iter().chain(arrays).chain([variable, ChannelType::Blob]) {
        assert_eq!(type_of(&type_name(known)), Some(known));
        assert_eq!(type_of(&known.name().to_uppercase()), Some(known));
    }
}

#[test]
fn arrays_have_their_length_behind_their_type() {
    let text =
        "CREATE STREAM Lab WITH ID 1 { spectrum float[512], wave double [ ] NULL, flags boolean[8] WITH CODEC Step }";
    let read = StoreDefinition::parse(text, "t").unwrap();
    let types: Vec<_> = read.streams[0].elements.iter().map(|e| e.channel_type.name().into_owned()).collect();
    assert_eq!(types, ["f32[512]", "f64[]", "bool[8]"]);
    assert_eq!(StoreDefinition::parse(&read.to_string(), "printed").unwrap(), read);
    for (of, want) in [
        ("float[0]", "t:1:34: found \"float[0]\", expected a type"),
        ("float[65537]", "t:1:34: found \"float[65537]\", expected a type"),
        ("string[4]", "t:1:34: found \"string[4]\", expected a type"),
        ("float[4", "found \"}\", expected"),
        ("float[4] WITH CODEC Deadband PARAMS (deadband=1)", "DeadbandAlgorithm is for numbers, and \"v\" is float[4]"),
    ] {
        let error = StoreDefinition::parse(&format!("CREATE STREAM A WITH ID 1 {{ v    {of} }}"), "t").unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn errors_say_where_what_was_found_and_what_is_right() {
    let one = "CREATE STREAM A WITH ID 1 { v float }\n";
    let after = |text: &str| format!("{one}{text}");
    for (text, want) in [
        (
            after("CRAETE STREAM"),
            "t:2:1: found \"CRAETE\", expected SET, CREATE or the end of the file; did you mean CREATE?",
        ),
        (after("  SET filesize 5"), "t:2:16: found the number 5, expected \"=\""),
        (
            after("SET fileSise = 5"),
            "t:2:5: found \"fileSise\", expected one of blockSize, fileSize, maxStreams, dataBlockSize; did you mean fileSize?",
        ),
        (after("SET fileSize = 0"), "t:2:16: found 0, expected fileSize of 1 to 1125899906842624"),
        (after("SET fileSize = -4"), "t:2:16: found the number -4, expected a whole number of 1 or more"),
        (after("SET fileSize = 1e3"), "t:2:16: found the number 1e3, expected a whole number of 1 or more"),
        (after("SET fileSize = 50MiB"), "t:2:16: \"50MiB\" is not a decimal number"),
        (after("SET maxStreams = 2 SET MAXSTREAMS = 2"), "t:2:24: maxStreams is set twice"),
        (after("CREATE STREAM A WITH ID 2 { v float }"), "t:2:15: there is a stream \"A\" already"),
        (after("CREATE STREAM B WITH ID 1 { v float }"), "t:2:25: the id 1 belongs to stream \"A\" already"),
        (
            after("CREATE STREAM B WITH ID 4294967296 { v float }"),
            "t:2:25: found the id 4294967296, expected 0 to 4294967295",
        ),
        (after("CREATE STREAM B ID 2"), "t:2:17: found \"ID\", expected WITH"),
        (after("CREATE STREAM B WITH ID 2 { }"), "t:2:15: stream \"B\" has no element"),
        (
            after("CREATE STREAM B WITH ID 2 {"),
            "t:2:28: found the end of the file, expected the name of an element, or \"}\"",
        ),
        (
            after("CREATE STREAM B WITH ID 2 {\n v flaot }"),
            "t:3:4: found \"flaot\", expected a type: int8 to int64, uint8 to uint64, float, double, boolean, string, blob, or an array of up to 65536 such as float[512]; did you mean float?",
        ),
        (after("CREATE STREAM B WITH ID 2 { v float, v float }"), "t:2:38: stream \"B\" has an element \"v\" already"),
        (
            after("CREATE STREAM B WITH ID 2 { v float nul }"),
            "t:2:37: found \"nul\", expected \",\", \"}\", NULL or WITH CODEC; did you mean NULL?",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v float WITH CODEC Deadbnd }"),
            "t:2:48: found \"Deadbnd\", expected a codec: one of SampledAlgorithm, StepAlgorithm, DeadbandAlgorithm, SwingingDoorAlgorithm; did you mean deadband?",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v float WITH CODEC DeadbandAlgorithm }"),
            "t:2:48: DeadbandAlgorithm needs its parameter deadband, as in PARAMS (deadband=0.5)",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v float WITH CODEC DeadbandAlgorithm PARAMS (deadband=-1) }"),
            "t:2:74: deadband is -1, and must not be negative",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v float WITH CODEC DeadbandAlgorithm PARAMS (dedband=1) }"),
            "t:2:74: found \"dedband\", expected deadband, the parameter of DeadbandAlgorithm; did you mean deadband?",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v float WITH CODEC DeadbandAlgorithm PARAMS (deadband=1e999) }"),
            "t:2:83: \"1e999\" is not a decimal number",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v uint8 WITH CODEC StepAlgorithm PARAMS (deadband=1) }"),
            "t:2:70: found \"deadband\", and StepAlgorithm has no parameters",
        ),
        (
            after("CREATE STREAM B WITH ID 2 { v boolean WITH CODEC DeadbandAlgorithm PARAMS (deadband=1) }"),
            "t:2:50: DeadbandAlgorithm is for numbers, and \"v\" is boolean",
        ),
        (after("CREATE STREAM \"B WITH ID 2"), "t:2:15: this quote is not closed on its line"),
        (
            after("CREATE STREAM strongback.x WITH ID 2 { v float }"),
            "t:2:15: name \"strongback.x\": tables named strongback are the store's own",
        ),
        (after("; größe"), "t:2:1: ';' has no meaning here"),
        (after("# größe\n größe €"), "t:3:2: found \"größe\", expected SET, CREATE or the end of the file"),
        (
            format!("SET maxStreams = 1\n{one}CREATE STREAM B WITH ID 2 {{ v float }}"),
            "t:3:15: 2 streams are defined, and maxStreams is 1",
        ),
        (
            format!("{one} SET dataBlockSize = 2 SET fileSize = 8191"),
            "t:2:39: fileSize 8191 is too small: 1 streams with a data block of 8192 bytes each take 8192",
        ),
        (
            format!("SET fileSize=9000 SET maxStreams=3 {one}"),
            "t:1:14: fileSize 9000 is too small: 3 streams with a data block of 4096 bytes each take 12288",
        ),
    ] {
        let found = StoreDefinition::parse(&text, "t").expect_err(&text).to_string();
        assert_eq!(found, want, "{text}");
    }
    let room = format!("{one} SET dataBlockSize = 2 SET fileSize = 8192");
    assert_eq!(StoreDefinition::parse(&room, "t").unwrap().least_bytes(), 8_192);
}

#[test]
fn sizes_have_units() {
    for (text, want) in [
        ("204800", Some(204_800)),
        ("64MiB", Some(64 << 20)),
        (" 1.5 GiB ", Some(3 << 29)),
        ("200 KB", Some(200_000)),
        ("1_000b", Some(1_000)),
        ("0.3KiB", None),
        ("64 miles", None),
        ("", None),
        ("-1", None),
        ("99999999999999999999", None),
        ("18446744073709551615TiB", None),
    ] {
        assert_eq!(size_bytes(text), want, "{text:?}");
    }
}

fn names() -> impl Strategy<Value = String> {
    // No line breaks: the store accepts no control characters in names.
    prop_oneof!["[a-zA-Z_][a-zA-Z0-9_.]{0,8}", "\\PC{1,12}", Just("NULL".to_owned()), Just("with".to_owned())]
}

fn elements() -> impl Strategy<Value = ElementDefinition> {
    let bound = prop_oneof![0.0..1e6, Just(0.0), Just(1e-300), Just(f64::MAX), Just(0.1)];
    (names(), 0..ChannelType::ALL.len(), any::<bool>(), 0..4, bound).prop_map(|(name, kind, optional, codec, bound)| {
        let channel_type = ChannelType::ALL[kind];
        let number = channel_type.is_integer() || channel_type.is_float();
        let codec = match codec {
            0 => ElementCodec::Sampled,
            2 if number => ElementCodec::Deadband { deadband: bound },
            3 if number => ElementCodec::SwingingDoor { deviation: bound },
            _ => ElementCodec::Step,
        };
        ElementDefinition { name, channel_type, optional, codec }
    })
}

fn definitions() -> impl Strategy<Value = StoreDefinition> {
    let streams = proptest::collection::vec((names(), any::<u32>(), proptest::collection::vec(elements(), 1..5)), 0..6);
    (proptest::option::of(1..1_u64 << 24), any::<bool>(), any::<bool>(), proptest::option::of(1..100_u64), streams)
        .prop_map(|(block_bytes, sized, limited, data_block_blocks, drawn)| {
            let mut streams: Vec<StreamDefinition> = Vec::new();
            for (name, id, mut elements) in drawn {
                elements.sort_by(|a, b| a.name.cmp(&b.name));
                elements.dedup_by(|a, b| a.name == b.name);
                if streams.iter().all(|s| s.name != name && s.id != id) && name != "strongback" {
                    streams.push(StreamDefinition { name, id, elements });
                }
            }
            let max_streams = limited.then_some(streams.len() as u32 + 1);
            let mut definition =
                StoreDefinition { block_bytes, file_bytes: None, max_streams, data_block_blocks, streams };
            definition.file_bytes = sized.then(|| definition.least_bytes() + 1);
            definition
        })
}

proptest! {
    #[test]
    fn a_printed_definition_is_read_as_the_same(definition in definitions()) {
        let printed = definition.to_string();
        prop_assert_eq!(StoreDefinition::parse(&printed, "printed"), Ok(definition), "{}", printed);
    }

    #[test]
    fn no_text_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = StoreDefinition::parse(&text, "odd") {
            prop_assert!(error.line >= 1 && error.column >= 1 && error.line <= text.lines().count() + 1);
        }
    }

    #[test]
    fn no_mix_of_its_own_words_is_too_odd(words in proptest::collection::vec(0..28_usize, 0..60)) {
        const WORDS: [&str; 28] = [
            "SET", "CREATE", "STREAM", "WITH", "ID", "NULL", "CODEC", "PARAMS", "{", "}", "(", ")", ",", "=", "float", "uint8",
            "DeadbandAlgorithm", "StepAlgorithm", "deadband", "fileSize", "maxStreams", "1", "2.5", "-1", "a", "\"b c\"", "#x\n", "\"",
        ];
        let text: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
        let _ = StoreDefinition::parse(&text.join(" "), "odd");
    }

    #[test]
    fn a_cut_definition_is_refused_or_means_less(cut in 0..CAR.len()) {
        if let Some(Ok(definition)) = CAR.get(..cut).map(|text| StoreDefinition::parse(text, "cut")) {
            prop_assert!(definition.streams.len() <= 2);
        }
    }
}
