//! Parses the JSON object of a line without a tree: scalars as text, with their columns.

use super::{Cell, FilePlace, Written};

/// Maximum nesting of ignored values.
const DEPTH_MAX: usize = 32;

/// Cursor over a line.
struct Walk<'a> {
    text: &'a str,
    at: usize,
    line: u64,
}

/// Members of an object: key, position of the value, value.
pub(super) type Members = Vec<(String, FilePlace, Member)>;

/// A value of an object.
#[derive(Debug, PartialEq)]
pub(super) enum Member {
    /// A number, text, Boolean, or array of these, as written.
    Scalar(String, Written),
    /// `null`.
    Null,
    /// An object at the top level of a row.
    Object(Members),
    /// An array of objects at the top level of a row.
    List(Vec<Members>),
    /// Another array, or an object within an object.
    Other,
}

impl Member {
    /// Returns the value as a cell, if it is a scalar or an array of scalars.
    pub(super) fn cell(&self) -> Option<Cell<'_>> {
        match self {
            Member::Scalar(text, how) => Some(Cell::Written(text, *how)),
            Member::List(none) if none.is_empty() => Some(Cell::Written("[]", Written::List)),
            _ => None,
        }
    }
}

/// Parses the object of a line.
pub(super) fn object(text: &str, line: u64) -> Result<Members, (FilePlace, String)> {
    let mut walk = Walk { text, at: 0, line };
    walk.space();
    let members = walk.object(0)?;
    walk.space();
    match walk.at == text.len() {
        true => Ok(members),
        false => Err(walk.wrong("expected the end of the line")),
    }
}

impl<'a> Walk<'a> {
    fn place(&self, at: usize) -> FilePlace {
        let before = self.text.get(..at).unwrap_or(self.text);
        FilePlace { line: self.line, column: before.chars().count() as u32 + 1 }
    }

    fn wrong(&self, expected: &str) -> (FilePlace, String) {
        let found = match self.text[self.at..].chars().next() {
            Some(c) => format!("found {c:?}"),
            None => "the line ends".to_owned(),
        };
        (self.place(self.at), format!("{found}, {expected}"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Consumes a character that must come next, and the space after it.
    fn sign(&mut self, sign: u8, expected: &str) -> Result<(), (FilePlace, String)> {
        if self.peek() != Some(sign) {
            return Err(self.wrong(expected));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<Members, (FilePlace, String)> {
        self.sign(b'{', "expected a JSON object: {…}")?;
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(members);
        }
        loop {
            let key = self.string()?;
            self.space();
            self.sign(b':', "expected ':'")?;
            let place = self.place(self.at);
            let member = self.value(depth)?;
            members.push((key, place, member));
            self.space();
            if self.peek() == Some(b',') {
                self.at += 1;
                self.space();
                continue;
            }
            if self.peek() != Some(b'}') {
                return Err(self.wrong("expected ',' or '}'"));
            }
            self.at += 1;
            return Ok(members);
        }
    }

    fn value(&mut self, depth: usize) -> Result<Member, (FilePlace, String)> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("nested too deep"));
        }
        match self.peek() {
            Some(b'"') => Ok(Member::Scalar(self.string()?, Written::Text)),
            Some(b'{') => {
                let members = self.object(depth + 1)?;
                Ok(if depth == 0 { Member::Object(members) } else { Member::Other })
            }
            Some(b'[') => self.array(depth),
            _ => self.word(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Member, (FilePlace, String)> {
        let begin = self.at;
        self.at += 1;
        self.space();
        let (mut list, mut only_objects, mut only_scalars) = (Vec::new(), true, true);
        while self.peek() != Some(b']') {
            if depth == 0 && self.peek() == Some(b'{') {
                only_scalars = false;
                list.push(self.object(depth + 1)?);
            } else {
                only_objects = false;
                let how = self.value(depth + 1)?;
                only_scalars &= matches!(how, Member::Scalar(_, how) if how != Written::List);
            }
            self.space();
            if self.peek() != Some(b']') {
                self.sign(b',', "expected ',' or ']'")?;
                if self.peek() == Some(b']') {
                    return Err(self.wrong("expected a value"));
                }
            }
        }
        self.at += 1;
        Ok(match () {
            () if depth == 0 && only_objects => Member::List(list),
            () if only_scalars => Member::Scalar(self.text[begin..self.at].to_owned(), Written::List),
            () => Member::Other,
        })
    }

    /// Parses a number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Member, (FilePlace, String)> {
        let rest = &self.text[self.at..];
        let len =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))).unwrap_or(rest.len());
        let word = &rest[..len];
        let member = match word {
            "null" => Member::Null,
            "true" | "false" => Member::Scalar(word.to_owned(), Written::Bool),
            _ if is_number(word) => Member::Scalar(word.to_owned(), Written::Number),
            _ => return Err(self.wrong("expected a value")),
        };
        self.at += len;
        Ok(member)
    }

    fn string(&mut self) -> Result<String, (FilePlace, String)> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("expected '\"'"));
        }
        let begin = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(['"', '\\']) else {
                return Err((self.place(begin), "this quote is not closed".to_owned()));
            };
            if rest[..end].bytes().any(|b| b < b' ') {
                return Err((self.place(begin), "a control character within quotes".to_owned()));
            }
            out.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    /// Parses the rest of an escape after its `\`.
    fn escape(&mut self) -> Result<char, (FilePlace, String)> {
        let plain = match self.peek() {
            Some(b @ (b'"' | b'\\' | b'/')) => b as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex(1)?;
                self.at += 5;
                if !(0xD800..0xDC00).contains(&first) {
                    return char::from_u32(first).ok_or_else(|| self.wrong("expected the first half of a character"));
                }
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(self.wrong("expected the second half of a character"));
                }
                let second = self.hex(2)?;
                if !(0xDC00..0xE000).contains(&second) {
                    return Err(self.wrong("expected the second half of a character"));
                }
                self.at += 6;
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(code).ok_or_else(|| self.wrong("expected a character"));
            }
            _ => return Err(self.wrong("expected an escape: one of \" \\ / b f n r t u")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn hex(&self, after: usize) -> Result<u32, (FilePlace, String)> {
        let digits = self.text.get(self.at + after..self.at + after + 4);
        digits
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u32::from_str_radix(d, 16).ok())
            .ok_or_else(|| self.wrong("expected four hexadecimal digits"))
    }
}

/// Reports whether a word is a number in JSON.
fn is_number(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let word = word.strip_prefix('-').unwrap_or(word);
    let (mantissa, exponent) = match word.find(['e', 'E']) {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Members, String> {
        object(text, 7).map_err(|(place, reason)| format!("{}:{} {reason}", place.line, place.column))
    }

    #[test]
    fn scalars_come_as_they_are_written() {
        let members =
            read(r#" { "ä" : 1.50 , "b":"\u00e9\ud83d\ude80\n\"", "c":true,"d":null,"e":{"f":-1e-3},"g":[1,[{}]] } "#);
        let members = members.unwrap();
        let columns: Vec<(&str, u32)> = members.iter().map(|(key, place, _)| (key.as_str(), place.column)).collect();
        assert_eq!(columns[..3], [("ä", 10), ("b", 21), ("c", 51)]);
        let values: Vec<&Member> = members.iter().map(|(_, _, member)| member).collect();
        assert_eq!(*values[0], Member::Scalar("1.50".into(), Written::Number));
        assert_eq!(*values[1], Member::Scalar("é🚀\n\"".into(), Written::Text));
        assert_eq!(*values[2], Member::Scalar("true".into(), Written::Bool));
        assert_eq!(*values[3], Member::Null);
        let Member::Object(inner) = values[4] else { panic!("{:?}", values[4]) };
        assert_eq!(inner[0].2, Member::Scalar("-1e-3".into(), Written::Number));
        assert_eq!(*values[5], Member::Other);
        assert_eq!(read("{}"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_object_is_said_with_its_column() {
        for (text, want) in [
            ("", "7:1 the line ends, expected a JSON object: {…}"),
            ("[1]", "7:1 found '[', expected a JSON object: {…}"),
            ("{\"a\" 1}", "7:6 found '1', expected ':'"),
            ("{\"a\":01}", "7:6 found '0', expected a value"),
            ("{\"a\":1,}", "7:8 found '}', expected '\"'"),
            ("{\"a\":1 2}", "7:8 found '2', expected ',' or '}'"),
            ("{\"a\":\"x}", "7:6 this quote is not closed"),
            ("{\"ä\":\"\\x\"}", "7:8 found 'x', expected an escape: one of \" \\ / b f n r t u"),
            ("{} x", "7:4 found 'x', expected the end of the line"),
        ] {
            assert_eq!(read(text).unwrap_err(), want, "{text}");
        }
        assert!(read(&format!("{{\"a\":{}}}", "[".repeat(100_000))).is_err());
    }

    proptest! {
        /// Accepts exactly what serde_json accepts as an object.
        #[test]
        fn it_agrees_with_another_reader(text in "[{}\\[\\]:,\"\\\\ a0e.tnul1-]{0,24}") {
            let text = format!("{{\"k\":{text}}}");
            let other: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(&text);
            // Numbers too large for a double are rejected only on conversion.
            let too_large = other.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
            prop_assert!(too_large || other.is_ok() == read(&text).is_ok(), "{text}: {other:?} {:?}", read(&text));
        }

        #[test]
        fn text_comes_back(text in any::<String>()) {
            let line = serde_json::json!({ "k": text }).to_string();
            prop_assert_eq!(&read(&line).unwrap()[0].2, &Member::Scalar(text, Written::Text));
        }

        #[test]
        fn no_line_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&String::from_utf8_lossy(&bytes));
        }
    }
}
