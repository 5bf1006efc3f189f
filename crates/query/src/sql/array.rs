//! Texts of arrays of one dimension, as in PostgreSQL (its documentation, "Array Input and Output Syntax").

use crate::error::{QueryError, sqlstate};

/// Maximum elements of an array: while it is read, each takes hundreds of bytes.
pub(crate) const ELEMENTS_MAX: usize = 65_536;

/// Splits a text such as `{1,"a b",NULL}` into its elements; `None` among them is NULL.
///
/// # Errors
/// If it is not an array of one dimension, or has more than [`ELEMENTS_MAX`] elements.
pub(crate) fn elements(text: &str) -> Result<Vec<Option<String>>, QueryError> {
    let malformed = || {
        let message = format!("malformed array literal: \"{text}\"");
        QueryError::new(sqlstate::INVALID_TEXT, message).with_hint("Write {1,2} or {\"a\",\"b\",NULL}.")
    };
    let inside = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(malformed)?;
    let (mut rest, mut elements) = (inside.trim_start(), Vec::new());
    if rest.is_empty() {
        return Ok(elements);
    }
    loop {
        if elements.len() == ELEMENTS_MAX {
            return Err(too_many());
        }
        let (element, after) = first(rest).ok_or_else(malformed)?;
        elements.push(element);
        let Some(after) = after else { return Ok(elements) };
        rest = after.trim_start();
    }
}

/// Returns the error for an array of more than [`ELEMENTS_MAX`] elements.
pub(crate) fn too_many() -> QueryError {
    let message = format!("an array has more than {ELEMENTS_MAX} elements");
    QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
}

/// Splits off the first element. Also returns the text behind the comma after it; `None`: it is the last one. Returns
/// `None` if there is no element, or something else behind it.
fn first(text: &str) -> Option<(Option<String>, Option<&str>)> {
    let (element, after) = match text.strip_prefix('"') {
        Some(quoted) => {
            let (element, end) = until(quoted, &['"'])?;
            (Some(element), quoted.get(end? + 1..)?)
        }
        None => {
            let (element, end) = until(text, &[',', '"', '{', '}'])?;
            let element = Some(element.trim_end().to_owned()).filter(|element| !element.is_empty())?;
            (Some(element).filter(|element| !element.eq_ignore_ascii_case("null")), &text[end.unwrap_or(text.len())..])
        }
    };
    match after.trim_start() {
        "" => Some((element, None)),
        after => Some((element, Some(after.strip_prefix(',')?))),
    }
}

/// Reads up to one of these characters that no backslash precedes. Also returns its place, if there is one. Returns
/// `None` if the text ends with a backslash.
fn until(text: &str, ends: &[char]) -> Option<(String, Option<usize>)> {
    let mut read = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => read.push(chars.next()?.1),
            end if ends.contains(&end) => return Some((read, Some(at))),
            char => read.push(char),
        }
    }
    Some((read, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_as_in_postgresql() {
        let split = |text: &str| {
            let elements = elements(text).ok()?.into_iter().map(|element| element.unwrap_or("(null)".into()));
            Some(elements.collect::<Vec<String>>().join("|"))
        };
        for (text, elements) in [
            ("{}", ""),
            (" { } ", ""),
            ("{2,3}", "2|3"),
            ("{ a b , c }", "a b|c"),
            (r#"{"a,b","c\"d","e\\f",""}"#, r#"a,b|c"d|e\f|"#),
            (r#"{NULL,null,"NULL"}"#, "(null)|(null)|NULL"),
            (r"{a\,b}", "a,b"),
            ("{größe,\"ü\"}", "größe|ü"),
            ("{\"a\" , b}", "a|b"),
        ] {
            assert_eq!(split(text).as_deref(), Some(elements), "{text}");
        }
        for text in
            ["", "2,3", "{", "}", "{a", "{a,}", "{,a}", "{\"a}", "{\"a\"b}", "{{1},{2}}", "{a\"b}", "{a\\", "{\\}"]
        {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn arrays_are_not_longer_than_their_limit() {
        let array = |count: usize| format!("{{1{}}}", ",1".repeat(count - 1));
        assert_eq!(elements(&array(ELEMENTS_MAX)).map(|elements| elements.len()), Ok(ELEMENTS_MAX));
        assert_eq!(elements(&array(ELEMENTS_MAX + 1)).unwrap_err().sqlstate, "54000");
    }
}
