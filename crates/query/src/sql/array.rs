//! Texts of arrays of one dimension, as in PostgreSQL (its documentation, "Array Input and Output Syntax").

use crate::error::{QueryError, sqlstate};

/// Splits a text such as `{1,"a b",NULL}` into its elements; `None` among them is NULL.
///
/// # Errors
/// If it is not an array of one dimension.
pub(crate) fn elements(text: &str) -> Result<Vec<Option<String>>, QueryError> {
    split(text).ok_or_else(|| {
        let message = format!("malformed array literal: \"{text}\"");
        QueryError::new(sqlstate::INVALID_TEXT, message).with_hint("Write {1,2} or {\"a\",\"b\",NULL}.")
    })
}

fn split(text: &str) -> Option<Vec<Option<String>>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim_start();
    let mut elements = Vec::new();
    if rest.is_empty() {
        return Some(elements);
    }
    loop {
        let quoted = rest.strip_prefix('"');
        let (mut element, mut end) = (String::new(), None);
        let mut chars = quoted.unwrap_or(rest).char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => element.push(chars.next()?.1),
                '"' if quoted.is_some() => end = Some(at + 2),
                ',' if quoted.is_none() => end = Some(at),
                '"' | '{' | '}' if quoted.is_none() => return None,
                char => element.push(char),
            }
            if end.is_some() {
                break;
            }
        }
        let plain = quoted.is_none().then(|| element.trim_end());
        match plain {
            Some("") => return None,
            Some(null) if null.eq_ignore_ascii_case("null") => elements.push(None),
            Some(plain) => elements.push(Some(plain.to_owned())),
            // A quote that does not end.
            None if end.is_none() => return None,
            None => elements.push(Some(element)),
        }
        let Some(after) = rest.get(end.unwrap_or(rest.len())..).map(str::trim_start).filter(|after| !after.is_empty())
        else {
            return Some(elements);
        };
        rest = after.strip_prefix(',')?.trim_start();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_split_as_in_postgresql() {
        let split = |text: &str| {
            let elements = super::split(text)?.into_iter().map(|element| element.unwrap_or("(null)".into()));
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
}
