//! Splits bytes into lines, and lines into their parts. Pure; does not allocate for a line without escapes.
//!
//! ```text
//! measurement[,tag=value]… field=value[,field=value]… [time]
//! measurement,tag=value[,tag=value]… [time]
//! ```
//! QuestDB clients send the second form, without fields, for a row that consists of symbols only.
//! * A backslash before a comma, space, equals sign, backslash, line feed or carriage return stands for that byte in
//!   measurements, tags and field names. Before anything else it stands for itself.
//! * In a quoted string a backslash escapes a quote, a backslash, a line feed or a carriage return; a line feed may
//!   also be unescaped.
//! * A line ends at a line feed that is neither escaped nor in a string; a carriage return before it is dropped.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::number::{self, NotANumber, Number};

/// Maximum tags of a line.
pub const TAGS_MAX: usize = 128;
/// Maximum fields of a line, which is that of a stream.
pub const FIELDS_MAX: usize = 4_096;

/// Unit of timestamps on lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// Parses the parameter `precision` of `/write`. Returns `None` unless it is one of `n ns u µ us ms s m h`.
    pub fn from_v1(name: &str) -> Option<Precision> {
        Some(match name {
            "n" => Precision::Nanoseconds,
            "u" | "µ" | "μ" => Precision::Microseconds,
            "m" => Precision::Minutes,
            "h" => Precision::Hours,
            other => return Precision::from_v2(other),
        })
    }

    /// Parses the parameter `precision` of `/api/v2/write`. Returns `None` unless it is one of `ns us ms s`.
    pub fn from_v2(name: &str) -> Option<Precision> {
        Some(match name {
            "ns" => Precision::Nanoseconds,
            "us" => Precision::Microseconds,
            "ms" => Precision::Milliseconds,
            "s" => Precision::Seconds,
            _ => return None,
        })
    }

    /// Returns the unit in nanoseconds.
    pub fn unit_ns(self) -> i64 {
        match self {
            Precision::Nanoseconds => 1,
            Precision::Microseconds => 1_000,
            Precision::Milliseconds => 1_000_000,
            Precision::Seconds => 1_000_000_000,
            Precision::Minutes => 60_000_000_000,
            Precision::Hours => 3_600_000_000_000,
        }
    }
}

/// Fault in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Fault {
    #[error("invalid UTF-8")]
    InvalidUtf8,
    #[error("a measurement is missing")]
    NoMeasurement,
    #[error("no fields")]
    NoFields,
    #[error("a tag without a name")]
    NoTagName,
    #[error("a tag without `=`")]
    NoTagValueSign,
    #[error("a tag without a value")]
    NoTagValue,
    #[error("duplicate tag")]
    DuplicateTag,
    #[error("more than {TAGS_MAX} tags")]
    TooManyTags,
    #[error("a name of more than {} bytes", crate::NAME_BYTES_MAX)]
    NameTooLong,
    #[error("a field without a name")]
    NoFieldName,
    #[error("a field without `=`")]
    NoFieldValueSign,
    #[error("a field without a value")]
    NoFieldValue,
    #[error("more than {FIELDS_MAX} fields")]
    TooManyFields,
    #[error("duplicate field")]
    DuplicateField,
    #[error("not a valid value, such as 1, 1.5, 1i, 1u, 1t, 1n, t, f or \"text\"")]
    BadValue,
    #[error("an integer out of range")]
    IntegerOutOfRange,
    #[error("a number beyond the range of a double")]
    NumberOutOfRange,
    #[error("a string without its closing quote")]
    OpenString,
    #[error("expected a comma, a space or the end of the line after a string")]
    AfterString,
    #[error("expected an integer timestamp")]
    BadTime,
    #[error("a time out of range (1677 to 2262)")]
    TimeOutOfRange,
    #[error("unexpected text after the timestamp")]
    AfterTime,
    #[error("a line of more than {} bytes", super::LINE_BYTES_MAX)]
    TooLong,
    #[error("out of memory for the line: unfinished lines of other connections use all of it")]
    NoMemory,
    #[error("the connection ended within the line")]
    Truncated,
}

impl Fault {
    /// Returns the label in metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Fault::InvalidUtf8 => "invalid_utf8",
            Fault::IntegerOutOfRange => "integer_overflow",
            Fault::NumberOutOfRange => "number_overflow",
            // Distinct from the store's `bad_time`, which counts frames.
            Fault::BadTime | Fault::TimeOutOfRange => "bad_timestamp",
            Fault::TooLong => "line_too_long",
            Fault::NoMemory => "no_line_memory",
            Fault::Truncated => "truncated",
            _ => "syntax",
        }
    }
}

/// A fault with its position in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAt {
    /// Fault.
    pub fault: Fault,
    /// Offset in the line, in bytes.
    pub offset: usize,
}

fn at<T>(fault: Fault, offset: usize) -> Result<T, FaultAt> {
    Err(FaultAt { fault, offset })
}

/// A line found in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLine {
    /// Start of the line, after leading blanks.
    pub start: usize,
    /// End of the line, without line feed and carriage return.
    pub end: usize,
    /// Start of the next line.
    pub next: usize,
    /// Whether the line contains quotes or backslashes.
    pub escapes: bool,
}

/// Item found at a position of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A line.
    Line(FoundLine),
    /// Only blanks and comments until the end of the buffer.
    End,
    /// An incomplete line, whose line feed is not in the buffer.
    Open {
        /// Start of the line.
        start: usize,
        /// Whether the buffer ends within a string.
        in_string: bool,
    },
}

/// Finds the next line from `position` on. With `last`, the end of the buffer also ends a line.
#[inline]
pub fn next_line(buffer: &[u8], position: usize, last: bool) -> Next {
    let mut start = position;
    loop {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = buffer.get(start) {
            start += 1;
        }
        match buffer.get(start) {
            None => return Next::End,
            Some(b'#') => match memchr(b'\n', &buffer[start..]) {
                Some(n) => start += n + 1,
                None if last => return Next::End,
                None => return Next::Open { start, in_string: false },
            },
            Some(_) => break,
        }
    }
    let rest = &buffer[start..];
    let (mut end, mut closed) = match memchr(b'\n', rest) {
        Some(n) => (n, true),
        None => (rest.len(), false),
    };
    let escapes = memchr2(b'"', b'\\', &rest[..end]).is_some();
    if escapes {
        match careful_end(rest) {
            CarefulEnd::At(n) => (end, closed) = (n, true),
            CarefulEnd::Open { in_string } => {
                if !last || in_string {
                    return Next::Open { start, in_string };
                }
                (end, closed) = (rest.len(), false);
            }
        }
    }
    if !closed && !last {
        return Next::Open { start, in_string: false };
    }
    let next = start + end + closed as usize;
    let end = if end > 0 && rest[end - 1] == b'\r' { end - 1 } else { end };
    Next::Line(FoundLine { start, end: start + end, next, escapes })
}

enum CarefulEnd {
    At(usize),
    Open { in_string: bool },
}

/// Finds the end of a line with quotes or backslashes. A quote counts only at the start of a field's value.
fn careful_end(line: &[u8]) -> CarefulEnd {
    let open = CarefulEnd::Open { in_string: false };
    // Measurement and tags, up to the first space.
    let mut i = 0;
    loop {
        match line.get(i) {
            None => return open,
            Some(b'\n') => return CarefulEnd::At(i),
            Some(b'\\') => i += 2,
            Some(b' ') => break,
            Some(_) => i += 1,
        }
    }
    while line.get(i) == Some(&b' ') {
        i += 1;
    }
    loop {
        // Field name, up to its `=`.
        loop {
            match line.get(i) {
                None => return open,
                Some(b'\n') => return CarefulEnd::At(i),
                Some(b'\\') => i += 2,
                Some(b'=') => break,
                Some(b' ') => return rest_of(line, i),
                Some(_) => i += 1,
            }
        }
        i += 1;
        if line.get(i) == Some(&b'"') {
            match string_end(line, i + 1) {
                Some(close) => i = close + 1,
                None => return CarefulEnd::Open { in_string: true },
            }
        }
        loop {
            match line.get(i) {
                None => return open,
                Some(b'\n') => return CarefulEnd::At(i),
                Some(b' ') => return rest_of(line, i),
                Some(b',') => break,
                Some(_) => i += 1,
            }
        }
        i += 1;
    }
}

fn rest_of(line: &[u8], from: usize) -> CarefulEnd {
    match memchr(b'\n', &line[from..]) {
        Some(n) => CarefulEnd::At(from + n),
        None => CarefulEnd::Open { in_string: false },
    }
}

/// Finds the closing quote of a string whose text begins at `from`.
fn string_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let n = from + memchr2(b'"', b'\\', bytes.get(from..)?)?;
        if bytes[n] == b'"' {
            return Some(n);
        }
        from = n + 2;
    }
}

/// A line split at its first space: the key that names its stream, then fields and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The whole line.
    text: &'a str,
    /// Length of measurement and tags in bytes, including escapes.
    key_end: usize,
    /// Start of the fields, or of the time if there are none.
    fields_start: usize,
    has_fields: bool,
    escapes: bool,
}

impl<'a> Line<'a> {
    /// Splits a line. `escapes` states whether it contains quotes or backslashes ([`FoundLine::escapes`]).
    ///
    /// # Errors
    /// If the measurement is missing or has neither tags nor fields.
    #[inline]
    pub fn split(text: &'a str, escapes: bool) -> Result<Line<'a>, FaultAt> {
        let bytes = text.as_bytes();
        let key_end = if escapes { unescaped_space(bytes) } else { memchr(b' ', bytes) };
        if matches!(bytes.first(), None | Some(b',' | b' ')) {
            return at(Fault::NoMeasurement, 0);
        }
        let key_end = key_end.unwrap_or(bytes.len());
        let mut fields_start = key_end + 1;
        while bytes.get(fields_start) == Some(&b' ') {
            fields_start += 1;
        }
        let fields_start = fields_start.min(bytes.len());
        if fields_start < bytes.len() && !is_time(&bytes[fields_start..]) {
            return Ok(Line { text, key_end, fields_start, has_fields: true, escapes });
        }
        // A bare measurement carries no information.
        if name_end(&bytes[..key_end], 0, b",") == key_end {
            return at(Fault::NoFields, fields_start);
        }
        Ok(Line { text, key_end, fields_start, has_fields: false, escapes })
    }

    /// Returns measurement and tags as written. Equal keys name the same stream.
    #[inline]
    pub fn key(&self) -> &'a str {
        &self.text[..self.key_end]
    }

    /// Iterates over the fields.
    #[inline]
    pub fn fields(&self) -> LineFields<'a> {
        LineFields { text: self.text, position: self.fields_start, escapes: self.escapes, done: !self.has_fields }
    }

    /// Parses measurement and tags, with the tags in line order.
    ///
    /// # Errors
    /// If there is a fault, with the first one.
    pub fn series(&self) -> Result<Series, FaultAt> {
        let bytes = &self.text.as_bytes()[..self.key_end];
        let end = name_end(bytes, 0, b",");
        check_length(end, 0)?;
        let measurement = unescape(&self.text[..end]).into_owned();
        let mut tags: Vec<(String, String)> = Vec::new();
        let mut i = end;
        while i < bytes.len() {
            let start = i + 1;
            let sign = name_end(bytes, start, b"=,");
            if sign == start {
                return at(Fault::NoTagName, start);
            }
            if bytes.get(sign) != Some(&b'=') {
                return at(Fault::NoTagValueSign, start);
            }
            let value_end = name_end(bytes, sign + 1, b",");
            if value_end == sign + 1 {
                return at(Fault::NoTagValue, sign + 1);
            }
            check_length(sign - start, start)?;
            check_length(value_end - sign - 1, sign + 1)?;
            let key = unescape(&self.text[start..sign]).into_owned();
            if tags.iter().any(|(have, _)| *have == key) {
                return at(Fault::DuplicateTag, start);
            }
            if tags.len() == TAGS_MAX {
                return at(Fault::TooManyTags, start);
            }
            tags.push((key, unescape(&self.text[sign + 1..value_end]).into_owned()));
            i = value_end;
        }
        Ok(Series { measurement, tags })
    }
}

/// Measurement and tags of a line, unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The measurement.
    pub measurement: String,
    /// Tags in line order, with unique keys.
    pub tags: Vec<(String, String)>,
}

fn check_length(bytes: usize, offset: usize) -> Result<(), FaultAt> {
    if bytes > crate::NAME_BYTES_MAX { at(Fault::NameTooLong, offset) } else { Ok(()) }
}

/// Reports whether the text after a key is a time rather than fields, which contain an equals sign.
fn is_time(rest: &[u8]) -> bool {
    let digits = rest.strip_prefix(b"-").unwrap_or(rest);
    digits.first().is_some_and(u8::is_ascii_digit) && !rest.iter().any(|byte| matches!(byte, b'=' | b','))
}

fn unescaped_space(bytes: &[u8]) -> Option<usize> {
    let mut i = 0;
    loop {
        match bytes.get(i)? {
            b' ' => return Some(i),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

/// Finds the end of a name: the first unescaped byte in `ends`, or the end of the bytes.
fn name_end(bytes: &[u8], from: usize, ends: &[u8]) -> usize {
    let mut i = from;
    while let Some(b) = bytes.get(i) {
        match b {
            b'\\' => i += 2,
            b if ends.contains(b) => return i,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// Unescapes a measurement, tag or field name.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    unescape_before(raw, &[',', ' ', '=', '\\', '\n', '\r'])
}

/// Unescapes the text of a string.
pub fn unescape_string(raw: &str) -> Cow<'_, str> {
    unescape_before(raw, &['"', '\\', '\n', '\r'])
}

fn unescape_before<'a>(raw: &'a str, escaped: &[char]) -> Cow<'a, str> {
    if memchr(b'\\', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some(next) if escaped.contains(&next) => out.push(next),
            Some(next) => out.extend(['\\', next]),
            None => out.push('\\'),
        }
    }
    Cow::Owned(out)
}

/// A field as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineField<'a> {
    /// Name including escapes; see [`unescape`].
    pub raw_name: &'a str,
    /// Offset of the name in the line, in bytes.
    pub offset: usize,
    /// Value.
    pub value: FieldValue<'a>,
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// No suffix.
    F64(f64),
    /// `i`, and times in nanoseconds (`t`, `n`).
    I64(i64),
    /// `u`.
    U64(u64),
    /// `t`, `f` and their longer spellings.
    Bool(bool),
    /// Text between quotes including escapes; see [`unescape_string`].
    RawString(&'a str),
}

/// Parser of a line's fields, then its time.
#[derive(Clone, Debug)]
pub struct LineFields<'a> {
    text: &'a str,
    position: usize,
    escapes: bool,
    done: bool,
}

impl<'a> LineFields<'a> {
    /// Parses the next field. Returns `None` after the last.
    ///
    /// # Errors
    /// If the field is malformed.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<LineField<'a>>, FaultAt> {
        if self.done {
            return Ok(None);
        }
        let bytes = self.text.as_bytes();
        let start = self.position;
        let sign = self.name(start)?;
        let raw_name = &self.text[start..sign];
        check_length(raw_name.len(), start)?;
        let from = sign + 1;
        let (value, len) = match bytes.get(from) {
            None | Some(b',' | b' ') => return at(Fault::NoFieldValue, from),
            Some(b'"') => {
                let Some(close) = string_end(bytes, from + 1) else {
                    return at(Fault::OpenString, from);
                };
                (FieldValue::RawString(&self.text[from + 1..close]), close + 1 - from)
            }
            Some(b't' | b'T' | b'f' | b'F') => {
                truth(&bytes[from..]).ok_or(FaultAt { fault: Fault::BadValue, offset: from })?
            }
            Some(_) => match number::number(&bytes[from..]) {
                Ok((Number::F64(v), len)) => (FieldValue::F64(v), len),
                Ok((Number::I64(v) | Number::Time(v), len)) => (FieldValue::I64(v), len),
                Ok((Number::U64(v), len)) => (FieldValue::U64(v), len),
                Err(NotANumber::Malformed) => return at(Fault::BadValue, from),
                Err(NotANumber::OutOfRange) => return at(Fault::IntegerOutOfRange, from),
                Err(NotANumber::TooLarge) => return at(Fault::NumberOutOfRange, from),
            },
        };
        let end = from + len;
        match bytes.get(end) {
            None => {
                self.position = end;
                self.done = true;
            }
            Some(b' ') => {
                self.position = end;
                self.done = true;
            }
            Some(b',') => self.position = end + 1,
            Some(_) => return at(Fault::AfterString, end),
        }
        Ok(Some(LineField { raw_name, offset: start, value }))
    }

    /// Finds the `=` after the name that begins at `start`.
    #[inline]
    fn name(&self, start: usize) -> Result<usize, FaultAt> {
        let bytes = self.text.as_bytes();
        let mut i = start;
        loop {
            match bytes.get(i) {
                Some(b'=') if i == start => return at(Fault::NoFieldName, start),
                Some(b'=') => return Ok(i),
                Some(b'\\') if self.escapes => i += 2,
                None | Some(b' ' | b',') if i == start => return at(Fault::NoFieldName, start),
                None | Some(b' ' | b',') => return at(Fault::NoFieldValueSign, start),
                Some(_) => i += 1,
            }
        }
    }

    /// Parses the line's time in nanoseconds, if it has one. Call it after the last field.
    ///
    /// # Errors
    /// If there is anything other than a time.
    #[inline]
    pub fn time(&self, unit_ns: i64) -> Result<Option<i64>, FaultAt> {
        debug_assert!(self.done, "the fields are not read yet");
        let bytes = self.text.as_bytes();
        let mut start = self.position;
        while bytes.get(start) == Some(&b' ') {
            start += 1;
        }
        let Some(rest) = bytes.get(start..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let len = memchr(b' ', rest).unwrap_or(rest.len());
        let time = match number::timestamp(&rest[..len], unit_ns) {
            Ok(time) => time,
            Err(NotANumber::Malformed) => return at(Fault::BadTime, start),
            Err(NotANumber::OutOfRange | NotANumber::TooLarge) => return at(Fault::TimeOutOfRange, start),
        };
        match rest[len..].iter().position(|b| *b != b' ') {
            Some(n) => at(Fault::AfterTime, start + len + n),
            None => Ok(Some(time)),
        }
    }
}

fn truth<'a>(bytes: &[u8]) -> Option<(FieldValue<'a>, usize)> {
    let len = number::token_len(bytes);
    let value = match &bytes[..len] {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => true,
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => false,
        _ => return None,
    };
    Some((FieldValue::Bool(value), len))
}
