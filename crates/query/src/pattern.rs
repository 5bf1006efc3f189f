//! Regular expressions that come from rows, a few at a time.
//!
//! A function keeps each pattern that it has compiled until the end of a batch, and a short one may take megabytes, as
//! `\w{150}` does. So a batch with many patterns is worked out in parts, and a pattern has a bound when it is compiled.

use std::collections::HashSet;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use regex::RegexBuilder;

use crate::error::{QueryError, sqlstate};
use crate::growth::part_of;

/// Largest pattern when it is compiled, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// What a pattern takes beside that while it is used, in bytes.
const USED_BYTES: usize = 2 << 20;
/// The same of a pattern that is short, without classes of characters and repetitions of a counted number.
const LIGHT_BYTES: usize = 128 << 10;
/// Longest such pattern, in bytes.
const LIGHT_LENGTH: usize = 64;
/// Patterns held at a time, in bytes.
const HELD_BYTES: usize = 48 << 20;
/// Most patterns of a batch that are not light: to compile one takes milliseconds.
const HEAVY_MAX: usize = 256;

/// Whether a function takes a regular expression as its second argument.
pub(crate) fn takes_pattern(name: &str) -> bool {
    matches!(name, "regexp_like" | "regexp_count" | "regexp_instr" | "regexp_match" | "regexp_replace")
}

/// Calls such a function for as many rows at a time as their patterns allow.
///
/// # Errors
/// If a pattern is too large, or too many of a batch may be.
pub(crate) fn call_in_parts(
    name: &str,
    args: ScalarFunctionArgs,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    let Some(patterns) = args.args.get(1) else { return call(args) };
    let flags = flags_at(name).and_then(|at| args.args.get(at));
    let is_scalar = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
    if is_scalar(patterns) && flags.is_none_or(is_scalar) {
        if let ColumnarValue::Scalar(pattern) = patterns
            && let Some(pattern) = pattern.try_as_str().flatten()
        {
            weight(name, pattern)?;
        }
        return call(args);
    }
    let flags = flags.map(|flags| flags.to_array(args.number_rows)).transpose()?;
    let parts = parts(name, &patterns.to_array(args.number_rows)?, flags.as_ref())?;
    if parts.len() <= 1 {
        return call(args);
    }
    let (mut results, mut row): (Vec<ArrayRef>, usize) = (Vec::with_capacity(parts.len()), 0);
    for rows in parts {
        results.push(call(part_of(&args, row, rows))?.into_array(rows)?);
        row += rows;
    }
    let results: Vec<&dyn Array> = results.iter().map(AsRef::as_ref).collect();
    Ok(ColumnarValue::Array(concat(&results)?))
}

/// Which argument of such a function is its flags: a pattern is compiled for each of them.
fn flags_at(name: &str) -> Option<usize> {
    match name {
        "regexp_like" | "regexp_match" => Some(2),
        "regexp_count" | "regexp_replace" => Some(3),
        "regexp_instr" => Some(5),
        _ => None,
    }
}

/// Refuses a constant pattern that is too large, for the operator that matches with it.
///
/// # Errors
/// If it is.
pub(crate) fn check(pattern: &str) -> Result<()> {
    weight("~", pattern).map(drop)
}

/// How many rows to take at a time.
fn parts(name: &str, patterns: &ArrayRef, flags: Option<&ArrayRef>) -> Result<Vec<usize>> {
    let patterns = cast(patterns, &DataType::Utf8)?;
    let flags = flags.map(|flags| cast(flags, &DataType::Utf8)).transpose()?;
    let flag = |row: usize| match &flags {
        Some(flags) if flags.is_valid(row) => flags.as_string::<i32>().value(row),
        _ => "",
    };
    let (mut parts, mut rows, mut held, mut heavy) = (Vec::new(), 0, 0, 0);
    let mut known = HashSet::new();
    for (row, pattern) in patterns.as_string::<i32>().iter().enumerate() {
        if let Some(pattern) = pattern.filter(|pattern| !known.contains(&(*pattern, flag(row)))) {
            let bytes = weight(name, pattern)?;
            heavy += usize::from(bytes > LIGHT_BYTES);
            if heavy > HEAVY_MAX {
                let text = format!("{name} with more than {HEAVY_MAX} long patterns in a batch of rows");
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text)
                    .with_hint(
                        "Long are patterns beyond 64 bytes, and those with counts or classes: \"a{2,5}\", \"\\w\".",
                    )
                    .into_datafusion());
            }
            if held + bytes > HELD_BYTES {
                parts.push(std::mem::take(&mut rows));
                held = 0;
                known.clear();
            }
            held += bytes;
            known.insert((pattern, flag(row)));
        }
        rows += 1;
    }
    parts.push(rows);
    Ok(parts)
}

/// Whether a pattern has no counts, flags or classes: a class is a program of its own, `\w` one of kilobytes.
fn is_plain(pattern: &str) -> bool {
    let signs = pattern.as_bytes();
    let follows = |at: usize| signs.get(at + 1).copied().unwrap_or(b'a');
    signs.iter().enumerate().all(|(at, sign)| match sign {
        b'{' | b'[' => false,
        b'(' => follows(at) != b'?',
        b'\\' => !follows(at).is_ascii_alphanumeric(),
        _ => true,
    })
}

/// What a pattern takes, in bytes.
fn weight(name: &str, pattern: &str) -> Result<usize> {
    if pattern.len() <= LIGHT_LENGTH && is_plain(pattern) {
        return Ok(LIGHT_BYTES);
    }
    match RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build() {
        Err(regex::Error::CompiledTooBig(_)) => {
            let shown: String = pattern.chars().take(40).collect();
            let text = format!("{name}: the pattern \"{shown}\" takes more than {COMPILED_BYTES_MAX} bytes");
            Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion())
        }
        // What is no pattern the function says itself.
        _ => Ok(COMPILED_BYTES_MAX + USED_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::StringArray;

    use super::*;

    fn parts_of(patterns: Vec<String>) -> Result<Vec<usize>> {
        parts("f", &(Arc::new(StringArray::from(patterns)) as ArrayRef), None)
    }

    #[test]
    fn few_patterns_are_one_part_and_many_are_several() {
        assert_eq!(parts_of((0..1_000).map(|n| format!("x{}", n % 7)).collect()).unwrap(), [1_000]);
        assert_eq!(parts_of((0..1_000).map(|n| format!("x{n}")).collect()).unwrap(), [384, 384, 232]);
        for long in ["a{2}", "\\w", "[^x]", "(?i)a", "\\pL"] {
            assert_eq!(parts_of((0..40).map(|n| format!("{long}{n}")).collect()).unwrap(), [16, 16, 8], "{long}");
        }
        assert_eq!(parts_of((0..400).map(|n| format!("^a\\.b(c|.)+{n}$")).collect()).unwrap(), [384, 16]);
    }

    #[test]
    fn a_pattern_counts_once_for_each_of_its_flags() {
        let patterns: ArrayRef = Arc::new(StringArray::from(vec!["x"; 800]));
        let flags: ArrayRef = Arc::new(StringArray::from((0..800).map(|n| "i".repeat(n % 400)).collect::<Vec<_>>()));
        assert_eq!(parts("f", &patterns, None).unwrap(), [800]);
        assert_eq!(parts("f", &patterns, Some(&flags)).unwrap(), [384, 384, 32]);
    }

    #[test]
    fn patterns_that_take_too_much_are_refused() {
        let large = parts_of(vec!["\\w{150}".into()]).unwrap_err().to_string();
        assert!(large.contains("f: the pattern \"\\w{150}\" takes more than"), "{large}");
        let many = parts_of((0..300).map(|n| format!("a{{2}}{n}")).collect()).unwrap_err().to_string();
        assert!(many.contains("more than 256 long patterns"), "{many}");
        assert_eq!(parts_of(vec!["(".repeat(100)]).unwrap(), [1]);
    }
}
