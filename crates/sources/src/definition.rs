//! Recorder definitions in TOML, with the same checks as RealDB's language in `strongback_store::rdl`.
//!
//! ```toml
//! block_size = "2KiB"            # RealDB's names are right as well: blockSize
//! file_size = "200KiB"           # or a number of bytes
//! max_streams = 3
//! data_block_size = 2            # blocks that a stream takes at a time
//!
//! [[stream]]
//! name = "CarSnapshots"
//! id = 2
//! element = [
//!   { name = "rpm", type = "float", codec = "deadband", deadband = 50.0 },
//!   { name = "speed", type = "float", optional = true, codec = "swinging_door", deviation = 5 },
//!   { name = "passengers", type = "uint8", codec = "step" },
//! ]
//! ```

use std::ops::Range;

use strongback_store::rdl::{
    DEFINITION_BYTES_MAX, DefinitionError, DefinitionFault, Draft, DraftElement, Placed, StoreDefinition, nearest,
    size_bytes,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of the file, of a stream and of an element.
const FILE_KEYS: [&str; 5] = ["block_size", "file_size", "max_streams", "data_block_size", "stream"];
const STREAM_KEYS: [&str; 3] = ["name", "id", "element"];
const ELEMENT_KEYS: [&str; 6] = ["name", "type", "optional", "codec", "deadband", "deviation"];

/// Parses a definition in TOML. `file` names it in errors.
///
/// # Errors
/// If anything is wrong, with line and column of the first problem.
pub fn parse_toml(text: &str, file: &str) -> Result<StoreDefinition, DefinitionError> {
    read(text).map_err(|fault| DefinitionError::at(file, text, fault))
}

/// Parses a definition: in TOML if the file name ends in `.toml`, otherwise in RealDB's language.
///
/// # Errors
/// If anything is wrong, with line and column of the first problem.
pub fn parse(text: &str, file: &str) -> Result<StoreDefinition, DefinitionError> {
    match file.to_ascii_lowercase().ends_with(".toml") {
        true => parse_toml(text, file),
        false => StoreDefinition::parse(text, file),
    }
}

type DefinitionEntry<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

/// Returns the entries of a table in file order.
fn entries<'t, 'i>(table: &'t DeTable<'i>) -> Vec<DefinitionEntry<'t, 'i>> {
    let mut entries: Vec<DefinitionEntry<'t, 'i>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn unknown(key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str]) -> DefinitionFault {
    let found = key.get_ref();
    let hint = nearest(found, known.iter().copied());
    DefinitionFault::new(
        key.span().start,
        format!("found the key {found:?}, expected one of {}{hint}", known.join(", ")),
    )
}

fn read(text: &str) -> Result<StoreDefinition, DefinitionFault> {
    if text.len() > DEFINITION_BYTES_MAX {
        let size = text.len();
        return Err(DefinitionFault::new(
            0,
            format!("a definition of {size} bytes, at most {DEFINITION_BYTES_MAX} are read"),
        ));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |Range { start, .. }| start);
        DefinitionFault::new(at, error.message().to_owned())
    })?;
    let mut draft = Draft::default();
    for (key, value) in entries(table.get_ref()) {
        let name = key.get_ref().replace('_', "").to_lowercase();
        if name == "stream" {
            for stream in tables(value)? {
                read_stream(stream, &mut draft)?;
            }
        } else if FILE_KEYS.iter().any(|known| known.replace('_', "") == name) {
            let is_size = matches!(name.as_str(), "blocksize" | "filesize");
            let number = if is_size { size(value)? } else { whole(value)? };
            draft.set(Placed::new(key.span().start, key.get_ref()), Placed::new(value.span().start, number))?;
        } else {
            return Err(unknown(key, &FILE_KEYS));
        }
    }
    draft.finish()
}

fn found(value: &Spanned<DeValue<'_>>) -> &'static str {
    value.get_ref().type_str()
}

fn wrong(value: &Spanned<DeValue<'_>>, expected: &str) -> DefinitionFault {
    let what = match value.get_ref() {
        DeValue::String(text) if text.chars().count() <= 40 => format!("{text:?}"),
        DeValue::Integer(number) if number.as_str().len() <= 40 => number.to_string(),
        DeValue::Float(number) if number.as_str().len() <= 40 => number.as_str().to_owned(),
        _ => format!("a value of type {}", found(value)),
    };
    DefinitionFault::new(value.span().start, format!("found {what}, expected {expected}"))
}

/// Returns the tables of `[[key]]`, or of an array of inline tables.
fn tables<'t, 'i>(value: &'t Spanned<DeValue<'i>>) -> Result<Vec<&'t Spanned<DeValue<'i>>>, DefinitionFault> {
    match value.get_ref() {
        DeValue::Array(array) if array.iter().all(|item| matches!(item.get_ref(), DeValue::Table(_))) => {
            Ok(array.iter().collect())
        }
        _ => Err(wrong(value, "tables, as [[…]] begins them")),
    }
}

fn whole(value: &Spanned<DeValue<'_>>) -> Result<u64, DefinitionFault> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    number.ok_or_else(|| wrong(value, "a whole number that is not negative"))
}

fn size(value: &Spanned<DeValue<'_>>) -> Result<u64, DefinitionFault> {
    match value.get_ref() {
        DeValue::String(text) => {
            size_bytes(text).ok_or_else(|| wrong(value, "a size such as \"64MiB\", or a number of bytes"))
        }
        _ => whole(value).map_err(|_| wrong(value, "a size such as \"64MiB\", or a number of bytes")),
    }
}

fn number(value: &Spanned<DeValue<'_>>) -> Result<f64, DefinitionFault> {
    let number: Option<f64> = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    };
    number.filter(|n| n.is_finite()).ok_or_else(|| wrong(value, "a number"))
}

fn text<'t>(value: &'t Spanned<DeValue<'_>>, expected: &str) -> Result<Placed<&'t str>, DefinitionFault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(Placed::new(value.span().start, text)),
        _ => Err(wrong(value, expected)),
    }
}

fn table<'t, 'i>(value: &'t Spanned<DeValue<'i>>) -> Result<&'t DeTable<'i>, DefinitionFault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(wrong(value, "a table")),
    }
}

fn read_stream(stream: &Spanned<DeValue<'_>>, draft: &mut Draft) -> Result<(), DefinitionFault> {
    let (mut name, mut id, mut elements) = (None, None, Vec::new());
    for (key, value) in entries(table(stream)?) {
        match key.get_ref().as_ref() {
            "name" => name = Some(text(value, "the name of a stream")?),
            "id" => id = Some(Placed::new(value.span().start, whole(value)?)),
            "element" | "elements" => elements = tables(value)?,
            _ => return Err(unknown(key, &STREAM_KEYS)),
        }
    }
    let lacks = |what: &str| DefinitionFault::new(stream.span().start, format!("this stream has no {what}"));
    let (name, id) = (name.ok_or_else(|| lacks("name"))?, id.ok_or_else(|| lacks("id"))?);
    draft.stream(name, id)?;
    for element in elements {
        read_element(element, draft)?;
    }
    draft.end_stream()
}

fn read_element(element: &Spanned<DeValue<'_>>, draft: &mut Draft) -> Result<(), DefinitionFault> {
    let (mut name, mut type_name, mut optional, mut codec) = (None, None, false, None);
    let mut parameters = Vec::new();
    for (key, value) in entries(table(element)?) {
        match key.get_ref().as_ref() {
            "name" => name = Some(text(value, "the name of an element")?),
            "type" => type_name = Some(text(value, "a type, such as \"float\"")?),
            "codec" => codec = Some(text(value, "a codec, such as \"step\"")?),
            "optional" => match value.get_ref() {
                DeValue::Boolean(is) => optional = *is,
                _ => return Err(wrong(value, "true or false")),
            },
            known @ ("deadband" | "deviation") => {
                parameters.push((Placed::new(key.span().start, known), number(value)?));
            }
            _ => return Err(unknown(key, &ELEMENT_KEYS)),
        }
    }
    let lacks = |what: &str| DefinitionFault::new(element.span().start, format!("this element has no {what}"));
    let (name, type_name) = (name.ok_or_else(|| lacks("name"))?, type_name.ok_or_else(|| lacks("type"))?);
    if codec.is_none()
        && let Some((parameter, _)) = parameters.first()
    {
        return Err(DefinitionFault::new(parameter.at, format!("{} without a codec that has it", parameter.is)));
    }
    draft.element(&DraftElement { name, type_name, optional, codec, parameters })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAR: &str = include_str!("../../../examples/car_snapshots.rdl");
    const CAR_TOML: &str = include_str!("../../../examples/car_snapshots.toml");

    #[test]
    fn both_languages_say_the_same() {
        let toml = parse(CAR_TOML, "car.TOML").unwrap();
        assert_eq!(toml, parse(CAR, "car.rdl").unwrap());
        assert_eq!(toml.streams.len(), 2);
    }

    #[test]
    fn errors_have_line_and_column() {
        let stream = "[[stream]]\nname = \"A\"\nid = 1\n";
        let with = |element: &str| format!("{stream}element = [{{ {element} }}]\n");
        let twice = format!("{0}{0}", with("name = \"v\", type = \"float\""));
        for (text, want) in [
            ("file_size = 5 5".to_owned(), "t:1:13: "),
            (
                "file_sise = 5".to_owned(),
                "t:1:1: found the key \"file_sise\", expected one of block_size, file_size, max_streams, data_block_size, stream; did you mean file_size?",
            ),
            (
                "file_size = \"5 miles\"".to_owned(),
                "t:1:13: found \"5 miles\", expected a size such as \"64MiB\", or a number of bytes",
            ),
            ("file_size = 5\nfileSize = 6".to_owned(), "t:2:1: fileSize is set twice"),
            ("max_streams = 2.5".to_owned(), "t:1:15: found 2.5, expected a whole number that is not negative"),
            ("max_streams = -2".to_owned(), "t:1:15: found -2, expected a whole number that is not negative"),
            ("stream = 4".to_owned(), "t:1:10: found 4, expected tables, as [[…]] begins them"),
            (
                format!("{stream}nmae = 4"),
                "t:4:1: found the key \"nmae\", expected one of name, id, element; did you mean name?",
            ),
            ("[[stream]]\nname = \"A\"".to_owned(), "t:1:1: this stream has no id"),
            (stream.to_owned(), "t:2:8: stream \"A\" has no element"),
            (with("name = \"v\""), "t:4:12: this element has no type"),
            (
                with("name = \"v\", type = \"flaot\""),
                "t:4:33: found \"flaot\", expected a type: int8 to int64, uint8 to uint64, float, double, boolean, string, blob, or an array of up to 65536 such as float[512]; did you mean float?",
            ),
            (
                with("name = \"v\", type = \"float\", codec = \"deadband\""),
                "t:4:50: DeadbandAlgorithm needs its parameter deadband, as in PARAMS (deadband=0.5)",
            ),
            (
                with("name = \"v\", type = \"float\", codec = \"deadband\", deadband = -0.5"),
                "t:4:62: deadband is -0.5, and must not be negative",
            ),
            (with("name = \"v\", type = \"float\", deadband = 0.5"), "t:4:42: deadband without a codec that has it"),
            (
                with("name = \"v\", type = \"float\", codec = \"step\", deviation = 1"),
                "t:4:58: found \"deviation\", and StepAlgorithm has no parameters",
            ),
            (twice, "t:6:8: there is a stream \"A\" already"),
        ] {
            let found = parse_toml(&text, "t").expect_err(&text).to_string();
            assert!(found == want || want.ends_with(": ") && found.starts_with(want), "{text}\n{found}\n{want}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse_toml(&String::from_utf8_lossy(&bytes), "odd");
        }

        #[test]
        fn no_cut_or_changed_definition_is_too_odd(cut in 0..CAR_TOML.len(), put in any::<char>()) {
            let mut text = CAR_TOML.to_owned();
            if text.is_char_boundary(cut) {
                text.insert(cut, put);
                let _ = parse_toml(&text, "odd");
                let _ = parse_toml(&text[..cut], "odd");
            }
        }
    }
}
