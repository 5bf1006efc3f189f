//! Maps names in a file to streams and channels of the store, and guesses types of channels that are not in the store.

use strongback_store::rdl::type_of;
use strongback_store::{
    ARRAY_LENGTH_MAX, ArrayType, Catalog, CellState, ChannelType, ElementType, OwnedValue, StreamId, StreamKey, Value,
};

use super::{Cell, Written};
use crate::ilp::is_overflow;

/// Properties that a file states for a channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelRequest {
    /// Stream; `None` if it is part of the name.
    pub(crate) stream: Option<StreamKey>,
    /// Name as written in the file.
    pub(crate) name: String,
    /// Type, if stated.
    pub(crate) kind: Option<ChannelType>,
    /// Unit.
    pub(crate) unit: String,
    /// Description.
    pub(crate) description: String,
}

/// Splits a full name into stream and channel: `table.channel{tag=value}`, or `table{tag=value}.channel`. Prefers an
/// existing stream, or else splits at the last dot.
pub(super) fn split_full_name(name: &str, known: impl Fn(&StreamKey) -> bool) -> Option<(StreamKey, String)> {
    StreamKey::splits(name).find(|(key, _)| known(key)).or_else(|| StreamKey::splits(name).next())
}

/// Returns the channel of a full name within a stream. A name that does not contain the stream is returned as it is.
pub(super) fn channel_of(key: &StreamKey, name: &str) -> String {
    key.channel_of(name).unwrap_or_else(|| name.to_owned())
}

/// Splits a column header such as `p_lox [bar]` into name and unit.
pub(super) fn name_and_unit(header: &str) -> (&str, &str) {
    let header = header.trim();
    match header.rsplit_once(" [") {
        Some((name, unit)) if unit.ends_with(']') && !name.trim().is_empty() => (name.trim(), &unit[..unit.len() - 1]),
        _ => (header, ""),
    }
}

/// Returns the type of a channel in the catalog.
pub(super) fn known_type(catalog: &Catalog, id: StreamId, channel: &str) -> Option<ChannelType> {
    let layout = &catalog.stream(id)?.layout;
    let found = layout.channels.iter().find(|c| c.source_name == channel || c.name == channel)?;
    Some(found.channel_type)
}

/// Properties of the values seen so far, to guess a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Guess {
    truth: bool,
    whole: bool,
    negative: bool,
    large: bool,
    real: bool,
    text: bool,
    /// Whether a quoted empty cell was seen, which is text unless other values have another type.
    empty: bool,
    /// Whether only arrays were seen. The other fields then describe their elements.
    list: bool,
    single: bool,
}

impl Guess {
    /// Takes a value into account.
    pub(super) fn see(&mut self, cell: Cell<'_>) {
        let (text, how) = match cell {
            Cell::Written(text, how) => (text, how),
            Cell::Value(value) => return self.see_value(value),
            Cell::Unknown => return,
        };
        if text.is_empty() && how == Written::Bare {
            self.empty = true;
            return;
        }
        if how == Written::List {
            if !self.single {
                self.list = true;
                elements(text).into_iter().flatten().for_each(|(word, how)| self.see_word(word, how));
            }
            return;
        }
        if std::mem::take(&mut self.list) {
            *self = Guess::default();
        }
        self.single = true;
        self.see_word(text, how);
    }

    fn see_word(&mut self, text: &str, how: Written) {
        match how {
            Written::Bool => self.truth = true,
            Written::Text => self.text = true,
            Written::List => {}
            Written::Bare | Written::Number => {
                // Numbers are read without the blanks around them.
                let text = text.trim();
                let truth = text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
                if let Ok(whole) = text.parse::<i64>() {
                    self.whole = true;
                    self.negative |= whole < 0;
                } else if text.parse::<u64>().is_ok() {
                    self.large = true;
                } else if text.parse().is_ok_and(|v| !is_overflow(v, text)) {
                    self.real = true;
                } else if truth {
                    self.truth = true;
                } else if !is_unknown(text) {
                    self.text = true;
                }
            }
        }
    }

    fn see_value(&mut self, value: Value<'_>) {
        match value.channel_type() {
            ChannelType::Bool => self.truth = true,
            ChannelType::String => self.text = true,
            ChannelType::U64 => self.large = true,
            kind if kind.is_float() => self.real = true,
            _ => (self.whole, self.negative) = (true, true),
        }
    }

    /// Returns the narrowest type that holds all values seen exactly.
    pub(super) fn channel_type(self) -> ChannelType {
        if self.list {
            let of = Guess { list: false, empty: false, ..self }.channel_type();
            return ElementType::of(of).map_or(of, |element| ChannelType::Array(ArrayType::variable(element)));
        }
        let number = self.whole || self.large || self.real;
        match self {
            Guess { text: true, .. } => ChannelType::String,
            Guess { truth: true, .. } if number => ChannelType::String,
            Guess { truth: true, .. } => ChannelType::Bool,
            Guess { real: true, .. } => ChannelType::F64,
            Guess { large: true, negative: true, .. } => ChannelType::F64,
            Guess { large: true, .. } => ChannelType::U64,
            Guess { whole: true, .. } => ChannelType::I64,
            Guess { empty: true, .. } => ChannelType::String,
            _ => ChannelType::F64,
        }
    }
}

/// Reports whether a text is the word for an unknown value.
fn is_unknown(text: &str) -> bool {
    text.eq_ignore_ascii_case("unknown")
}

/// Converts a cell to a value of a type, or to its state.
///
/// # Errors
/// If the cell does not fit, with what was found and expected.
pub(super) fn fit(cell: Cell<'_>, kind: ChannelType) -> Result<Result<Value<'_>, CellState>, String> {
    let (text, how) = match cell {
        Cell::Unknown => return Ok(Err(CellState::Unknown)),
        Cell::Value(value) => {
            return fit_value(value, kind).map(Ok).ok_or_else(|| format!("{value:?} is not a valid {}", kind.name()));
        }
        Cell::Written(text, how) => (text, how),
    };
    if how == Written::List {
        return Err(format!("an array is not a valid {}", kind.name()));
    }
    if kind == ChannelType::String {
        return Ok(Ok(Value::String(text)));
    }
    let text = text.trim();
    if how != Written::Number && is_unknown(text) {
        return Ok(Err(CellState::Unknown));
    }
    let value = match kind {
        ChannelType::Bool => match text {
            "1" => Some(Value::Bool(true)),
            "0" => Some(Value::Bool(false)),
            _ if text.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
            _ if text.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
            _ => None,
        },
        _ if how == Written::Bool => None,
        ChannelType::I8 => text.parse().ok().map(Value::I8),
        ChannelType::I16 => text.parse().ok().map(Value::I16),
        ChannelType::I32 => text.parse().ok().map(Value::I32),
        ChannelType::I64 => text.parse().ok().map(Value::I64),
        ChannelType::U8 => text.parse().ok().map(Value::U8),
        ChannelType::U16 => text.parse().ok().map(Value::U16),
        ChannelType::U32 => text.parse().ok().map(Value::U32),
        ChannelType::U64 => text.parse().ok().map(Value::U64),
        ChannelType::F32 => text.parse().ok().filter(|v: &f32| !is_overflow(f64::from(*v), text)).map(Value::F32),
        ChannelType::F64 => text.parse().ok().filter(|v| !is_overflow(*v, text)).map(Value::F64),
        ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => None,
    };
    value.map(Ok).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is not a valid {}", kind.name())
    })
}

/// Converts a cell such as `[1,2,3]` to an array. Elements are written like cells.
///
/// # Errors
/// If the cell does not fit, with what was found and expected.
pub(super) fn fit_array(cell: Cell<'_>, kind: ArrayType) -> Result<Result<OwnedValue, CellState>, String> {
    let name = kind.name();
    let list = match cell {
        Cell::Unknown => return Ok(Err(CellState::Unknown)),
        Cell::Written(text, Written::Bare | Written::Text) if is_unknown(text.trim()) => {
            return Ok(Err(CellState::Unknown));
        }
        Cell::Written(text, Written::Bare | Written::Text | Written::List) => elements(text),
        Cell::Written(..) | Cell::Value(_) => None,
    };
    let Some(list) = list else { return Err(format!("no array, expected {name}")) };
    let (element, mut bytes, mut count) = (kind.element(), Vec::new(), 0);
    for (word, how) in list {
        let value = match fit(Cell::Written(word, how), element.channel_type()) {
            Ok(Ok(value)) => value,
            Ok(Err(_)) => {
                return Err(format!("element {count}: {word:?} is not a valid {}", element.channel_type().name()));
            }
            Err(reason) => return Err(format!("element {count}: {reason}")),
        };
        bytes.extend_from_slice(&value.bits().to_le_bytes()[..element.size_bytes()]);
        count += 1;
    }
    if !kind.takes(count) {
        return Err(format!("an array of {count} elements, expected {name} of at most {ARRAY_LENGTH_MAX}"));
    }
    Ok(Ok(OwnedValue::Array { element, bytes }))
}

/// Iterates over the elements of `[…]`, as written.
fn elements(text: &str) -> Option<impl Iterator<Item = (&str, Written)>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    let words = (!inner.is_empty()).then(|| inner.split(','));
    Some(words.into_iter().flatten().map(|word| {
        let word = word.trim();
        match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            // 64-bit integers, NaN and infinities are quoted.
            Some(quoted) => (quoted, Written::Bare),
            None if matches!(word, "true" | "false") => (word, Written::Bool),
            None => (word, Written::Number),
        }
    }))
}

/// Converts a value to another type: exactly, except that doubles are rounded to the nearest single. An integer that a
/// float cannot hold does not fit.
fn fit_value(value: Value<'_>, kind: ChannelType) -> Option<Value<'_>> {
    if let Some(exact) = value.convert(kind) {
        return Some(exact);
    }
    let number = value.as_f64()?;
    if kind.is_float() && integer_of(value).is_some_and(|integer| !holds(kind, integer, number)) {
        return None;
    }
    let whole = number.fract() == 0.0 && number.abs() < 2f64.powi(63);
    match (value, kind) {
        (Value::Bool(_), _) => None,
        (_, ChannelType::F32) => Some(Value::F32(number as f32)),
        (_, ChannelType::F64) => Some(Value::F64(number)),
        (_, ChannelType::Bool) if number == 0.0 || number == 1.0 => Some(Value::Bool(number == 1.0)),
        (Value::F32(_) | Value::F64(_), _) if whole => Value::I64(number as i64).convert(kind),
        _ => None,
    }
}

/// Returns the value of an integer, or `None` for other types.
fn integer_of(value: Value<'_>) -> Option<i128> {
    match value.convert(ChannelType::I64).or_else(|| value.convert(ChannelType::U64))? {
        Value::I64(integer) => Some(integer.into()),
        Value::U64(integer) => Some(integer.into()),
        _ => None,
    }
}

/// Reports whether a float type holds an integer exactly. `number` is the nearest double.
fn holds(kind: ChannelType, integer: i128, number: f64) -> bool {
    let held = if kind == ChannelType::F32 { f64::from(number as f32) } else { number };
    held as i128 == integer
}

/// Parses a type name, as on the command line.
pub(super) fn type_word(word: &str) -> Option<ChannelType> {
    type_of(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_part_at_a_stream_there_is() {
        let known = |key: &StreamKey| key.to_string() == "a.b{k=1}";
        let split = |name: &str| split_full_name(name, known).map(|(key, channel)| (key.to_string(), channel));
        assert_eq!(split("a.b.c.d{k=1}"), Some(("a.b{k=1}".into(), "c.d".into())));
        assert_eq!(split("a.b.c.d"), Some(("a.b.c".into(), "d".into())));
        assert_eq!(split("c"), None);
        assert_eq!(split(".c"), None);
        assert_eq!(split("c."), None);
        assert_eq!(channel_of(&StreamKey::parse("a.b{k=1}"), "a.b.c.d{k=1}"), "c.d");
        assert_eq!(channel_of(&StreamKey::parse("a.b{k=1}"), "a.b.c.d"), "a.b.c.d");
        assert_eq!(channel_of(&StreamKey::parse("a"), "rpm"), "rpm");
        let quoted = "a.b.c{k=\"x,y={1.5}\"}";
        assert_eq!(split(quoted), Some(("a.b{k=\"x,y={1.5}\"}".into(), "c".into())));
        assert_eq!(channel_of(&StreamKey::parse("a.b{k=\"x,y={1.5}\"}"), quoted), "c");
        assert_eq!(name_and_unit(" p_lox [bar] "), ("p_lox", "bar"));
        assert_eq!(name_and_unit("[bar]"), ("[bar]", ""));
    }

    #[test]
    fn types_are_as_narrow_as_is_exact() {
        let guess = |texts: &[&str]| {
            let mut guess = Guess::default();
            texts.iter().for_each(|text| guess.see(Cell::Written(text, Written::Bare)));
            guess.channel_type()
        };
        assert_eq!(guess(&["1", "-2", "unknown"]), ChannelType::I64);
        assert_eq!(guess(&["1", "18446744073709551615"]), ChannelType::U64);
        assert_eq!(guess(&["-1", "18446744073709551615"]), ChannelType::F64);
        assert_eq!(guess(&["1", "2.5", "NaN"]), ChannelType::F64);
        assert_eq!(guess(&["True", "false"]), ChannelType::Bool);
        assert_eq!(guess(&["true", "1"]), ChannelType::String);
        assert_eq!(guess(&["1", "one"]), ChannelType::String);
        assert_eq!(guess(&[]), ChannelType::F64);
        assert_eq!(guess(&["", "1"]), ChannelType::I64);
        assert_eq!(guess(&["", ""]), ChannelType::String);
    }

    #[test]
    fn cells_fit_their_type_exactly_or_not_at_all() {
        let bare = |text, kind| fit(Cell::Written(text, Written::Bare), kind);
        assert_eq!(bare("9007199254740993", ChannelType::I64), Ok(Ok(Value::I64(9_007_199_254_740_993))));
        assert_eq!(bare("255", ChannelType::U8), Ok(Ok(Value::U8(255))));
        assert_eq!(bare("256", ChannelType::U8), Err("\"256\" is not a valid u8".into()));
        assert_eq!(bare("5.0", ChannelType::I32), Err("\"5.0\" is not a valid i32".into()));
        assert_eq!(bare("unknown", ChannelType::F32), Ok(Err(CellState::Unknown)));
        assert_eq!(bare("unknown", ChannelType::String), Ok(Ok(Value::String("unknown"))));
        assert_eq!(bare("0.1", ChannelType::F32), Ok(Ok(Value::F32(0.1))));
        for (text, kind) in [("1e400", ChannelType::F64), ("-1e400", ChannelType::F64), ("1e39", ChannelType::F32)] {
            assert_eq!(bare(text, kind), Err(format!("{text:?} is not a valid {}", kind.name())));
        }
        assert_eq!(bare("-inf", ChannelType::F64), Ok(Ok(Value::F64(f64::NEG_INFINITY))));
        assert_eq!(bare("1", ChannelType::Bool), Ok(Ok(Value::Bool(true))));
        assert_eq!(bare("2", ChannelType::Bool), Err("\"2\" is not a valid bool".into()));
        assert!(fit(Cell::Written("true", Written::Bool), ChannelType::F64).is_err());
        let value = |value, kind| fit(Cell::Value(value), kind).map(|fitted| fitted.unwrap());
        assert_eq!(value(Value::F64(649.25), ChannelType::F32), Ok(Value::F32(649.25)));
        assert_eq!(value(Value::F64(3.0), ChannelType::U8), Ok(Value::U8(3)));
        assert!(value(Value::F64(3.5), ChannelType::U8).is_err());
        assert!(value(Value::F64(-1.0), ChannelType::U64).is_err());
        assert_eq!(value(Value::U8(1), ChannelType::Bool), Ok(Value::Bool(true)));
        assert_eq!(value(Value::U32(1 << 24), ChannelType::F32), Ok(Value::F32(16_777_216.0)));
        assert_eq!(value(Value::I64(1 << 60), ChannelType::F64), Ok(Value::F64(2f64.powi(60))));
        assert_eq!(value(Value::I64(i64::MIN), ChannelType::F32), Ok(Value::F32(-2f32.powi(63))));
        assert_eq!(value(Value::F64(0.1), ChannelType::F32), Ok(Value::F32(0.1)));
        for (integer, kind) in [
            (Value::I64((1 << 53) + 1), ChannelType::F64),
            (Value::U64(u64::MAX), ChannelType::F64),
            (Value::I32((1 << 24) + 1), ChannelType::F32),
            (Value::U64(u64::MAX), ChannelType::F32),
        ] {
            assert!(value(integer, kind).is_err(), "{integer:?}");
        }
    }
}
