//! Regular expressions from rows, a few at a time.
//!
//! A function keeps every pattern it has compiled, one for each set of flags, until the end of a batch, and even a
//! short pattern such as `\w{150}` may take megabytes. A batch with many patterns is therefore processed in parts, and
//! compiled patterns are bounded.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use regex::RegexBuilder;

use crate::error::{QueryError, sqlstate};
use crate::functions::growth::part_of;
use crate::functions::large::LargeCalls;
use crate::functions::like;
use crate::running::size::Size;
use crate::running::stopped::Stopped;

/// Maximum size of a compiled pattern, in bytes, that of `\w{100}`.
const COMPILED_BYTES_MAX: usize = 4 << 20;
/// Maximum size of most compiled patterns, in bytes.
const COMPILED_BYTES: usize = 1 << 20;
/// Additional memory of a pattern in use, in bytes.
const USED_BYTES: usize = 2 << 20;
/// Memory of a short pattern of plain characters, in bytes.
const LIGHT_BYTES: usize = 128 << 10;
/// Maximum length of such a pattern, in bytes.
const LIGHT_LENGTH: usize = 64;
/// Maximum compiled size of a pattern that compiles in less than a millisecond, in bytes.
const SMALL_BYTES: usize = 32 << 10;
/// Memory of such a pattern in use, in bytes.
const SMALL_USED_BYTES: usize = 1 << 20;
/// Maximum memory of a pattern in use on long texts, in bytes: two tables of cached states.
const USED_BYTES_MAX: usize = 4 << 20;
/// Approximate size of a state of a compiled pattern, in bytes.
const STATE_BYTES: usize = 32;
/// Maximum steps of a call if each byte of its texts met each state of its pattern: about a minute for a pattern that
/// does not fit its tables. Few do not.
const STEPS_MAX: usize = 20_000_000_000;
/// Maximum memory of the patterns held at a time, in bytes.
const HELD_BYTES: usize = 48 << 20;
/// Maximum larger patterns in a batch, because each takes milliseconds to compile.
const HEAVY_MAX: usize = 256;

/// Maximum pattern weights cached by a thread, because a statement is inspected repeatedly during planning.
const WEIGHED_MAX: usize = 32;
/// Maximum length of a pattern with a cached weight, in bytes.
const WEIGHED_LENGTH: usize = 1 << 10;

thread_local! {
    static WEIGHED: RefCell<VecDeque<(String, usize)>> = const { RefCell::new(VecDeque::new()) };
}

/// Reports whether a function takes a regular expression as its second argument.
pub(crate) fn takes_pattern(name: &str) -> bool {
    matches!(name, "regexp_like" | "regexp_count" | "regexp_instr" | "regexp_match" | "regexp_replace")
}

/// Returns the index of the flags among the arguments of such a function.
fn flags_index(name: &str) -> usize {
    match name {
        "regexp_instr" => 4,
        "regexp_count" | "regexp_replace" => 3,
        _ => 2,
    }
}

/// Calls such a function in parts, with as many rows at a time as their patterns allow. The patterns count as query
/// memory.
///
/// # Errors
/// If a pattern is too large, a batch has too many large ones, all queries hold too much memory, or the statement is
/// stopped.
pub(crate) fn call_in_parts(
    name: &str,
    large: &LargeCalls,
    args: ScalarFunctionArgs,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    let stopped = Stopped::of(&args.config_options);
    stopped.check()?;
    let (Some(patterns), flags) = (args.args.get(1), args.args.get(flags_index(name))) else { return call(args) };
    if let (ColumnarValue::Scalar(pattern), None | Some(ColumnarValue::Scalar(_))) = (patterns, flags) {
        if let Some(pattern) = pattern.try_as_str().flatten() {
            let flags = match flags {
                Some(ColumnarValue::Scalar(flags)) => flags.try_as_str().flatten(),
                _ => None,
            };
            let bytes = weight(name, pattern, flags)?;
            let length = args.args.first().map_or(0, longest);
            check_steps(name, length, bytes)?;
        }
        return call(args);
    }
    let (patterns, flags) = (texts(patterns)?, flags.map(texts).transpose()?);
    let mut parts = Parts::new(name, &patterns, flags.as_ref(), args.number_rows);
    parts.rows_max = rows_max(&args);
    parts.length = args.args.first().map_or(0, longest);
    let (mut results, mut row): (Vec<ArrayRef>, usize) = (Vec::new(), 0);
    let mut room = large.room_of_patterns(name);
    while let Some(rows) = parts.next()? {
        if let Err(refused) = room.resize(parts.used) {
            if !parts.take_fewer(rows) {
                return Err(refused);
            }
            continue;
        }
        if rows == args.number_rows {
            return call(args);
        }
        stopped.check()?;
        results.push(call(part_of(&args, row, rows))?.into_array(rows)?);
        row += rows;
    }
    if results.is_empty() {
        return call(args);
    }
    let results: Vec<&dyn Array> = results.iter().map(AsRef::as_ref).collect();
    Ok(ColumnarValue::Array(concat(&results)?))
}

/// Returns the maximum number of groups of the patterns, counted by opening parentheses.
pub(crate) fn groups(patterns: &ColumnarValue) -> Result<usize> {
    let brackets = |pattern: &str| pattern.bytes().filter(|byte| *byte == b'(').count();
    Ok(texts(patterns)?.as_string::<i32>().iter().flatten().map(brackets).max().unwrap_or(0))
}

/// Returns the texts of an argument: one for each row, or one for all.
fn texts(value: &ColumnarValue) -> Result<ArrayRef> {
    Ok(match value {
        ColumnarValue::Array(array) => cast(array, &DataType::Utf8)?,
        ColumnarValue::Scalar(scalar) => cast(&scalar.to_array()?, &DataType::Utf8)?,
    })
}

/// Returns the maximum rows of a part. Functions copy a scalar argument into each row.
fn rows_max(args: &ScalarFunctionArgs) -> usize {
    let bytes = |value: &ColumnarValue| match value {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map_or(0, str::len),
        ColumnarValue::Array(_) => 0,
    };
    (HELD_BYTES / args.args.iter().map(bytes).sum::<usize>().max(1)).max(1)
}

/// Returns the length of the longest text of an argument, in bytes.
fn longest(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Array(array) => Size::of(array).widest,
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map_or(0, str::len),
    }
}

/// Rejects a pattern for texts so long that the call could not be stopped in reasonable time.
fn check_steps(name: &str, length: usize, bytes: usize) -> Result<()> {
    // A lighter pattern fits its tables.
    let states = if is_heavy(bytes) { (bytes - USED_BYTES) / STATE_BYTES } else { 0 };
    if length.saturating_mul(states) <= STEPS_MAX {
        return Ok(());
    }
    let text = format!("{name}: a pattern of {states} states and a text of {length} bytes, together too long");
    Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion())
}

/// Returns the text of a row, or the one for all rows.
fn text_of(texts: &StringArray, row: usize) -> Option<&str> {
    let row = if texts.len() == 1 { 0 } else { row };
    texts.is_valid(row).then(|| texts.value(row))
}

/// Iterator over parts of a batch.
struct Parts<'a> {
    name: &'a str,
    patterns: &'a ArrayRef,
    flags: Option<&'a ArrayRef>,
    row: usize,
    rows: usize,
    rows_max: usize,
    heavy: usize,
    /// Maximum memory of the patterns of a part, in bytes.
    held_max: usize,
    /// Maximum memory of the patterns of the latest part in use, in bytes.
    used: usize,
    /// Length of the longest text to match, in bytes.
    length: usize,
    /// Weight of each pattern with its flags.
    weights: HashMap<(&'a str, Option<&'a str>), usize>,
}

impl<'a> Parts<'a> {
    fn new(name: &'a str, patterns: &'a ArrayRef, flags: Option<&'a ArrayRef>, rows: usize) -> Parts<'a> {
        let (held_max, weights) = (HELD_BYTES, HashMap::new());
        Parts { name, patterns, flags, row: 0, rows, rows_max: rows, heavy: 0, held_max, used: 0, length: 0, weights }
    }

    /// Returns the number of rows of the next part.
    fn next(&mut self) -> Result<Option<usize>> {
        let patterns = self.patterns.as_string::<i32>();
        let flags = self.flags.map(|flags| flags.as_string::<i32>());
        let (first, mut held, mut known) = (self.row, 0, HashSet::new());
        self.used = 0;
        while self.row < self.rows && self.row - first < self.rows_max {
            let flags = flags.and_then(|flags| text_of(flags, self.row));
            let key = text_of(patterns, self.row).map(|pattern| (pattern, flags));
            if let Some(key) = key.filter(|key| !known.contains(key)) {
                let bytes = self.weight(key)?;
                if held + bytes > self.held_max && held > 0 {
                    break;
                }
                held += bytes;
                self.used += if bytes == LIGHT_BYTES { bytes } else { bytes + USED_BYTES_MAX };
                known.insert(key);
            }
            self.row += 1;
        }
        Ok((self.row > first).then_some(self.row - first))
    }

    /// Rewinds the latest part of `rows` rows, to take smaller ones. Returns whether that is possible.
    fn take_fewer(&mut self, rows: usize) -> bool {
        self.row -= rows;
        self.held_max /= 2;
        rows > 1 && self.held_max > LIGHT_BYTES
    }

    fn weight(&mut self, key: (&'a str, Option<&'a str>)) -> Result<usize> {
        if let Some(bytes) = self.weights.get(&key) {
            return Ok(*bytes);
        }
        let (name, bytes) = (self.name, weight(self.name, key.0, key.1)?);
        check_steps(name, self.length, bytes)?;
        self.heavy += usize::from(is_heavy(bytes));
        if self.heavy > HEAVY_MAX {
            let text = format!("{name} with more than {HEAVY_MAX} long patterns in a batch of rows");
            return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text)
                .with_hint("Long are patterns that take more than 32 KiB when they are compiled, as \"\\w{5}\" does.")
                .into_datafusion());
        }
        self.weights.insert(key, bytes);
        Ok(bytes)
    }
}

/// Reports whether a pattern of this weight takes milliseconds to compile.
fn is_heavy(bytes: usize) -> bool {
    bytes > SMALL_BYTES + SMALL_USED_BYTES
}

/// Reports whether a constant takes milliseconds to compile, as a regular expression or as a `LIKE` pattern. Operators
/// compile it for each batch of rows.
pub(crate) fn is_heavy_constant(pattern: &str, of_like: bool, ignores_case: bool) -> bool {
    let expression = if of_like { like::expression(pattern, ignores_case) } else { Some(pattern.to_owned()) };
    let flags = ignores_case.then_some("i");
    expression.is_some_and(|expression| weight("", &expression, flags).map_or(true, is_heavy))
}

/// Returns the memory of a pattern with its flags, in bytes.
///
/// # Errors
/// If it is too large, or the flags are invalid.
pub(crate) fn weight(name: &str, pattern: &str, flags: Option<&str>) -> Result<usize> {
    let flags = flags.unwrap_or_default();
    // Functions insert the flags before the pattern, so other characters would act as a pattern.
    if flags.bytes().any(|flag| !flag.is_ascii_alphabetic()) {
        let shown: String = flags.chars().take(40).collect();
        let text = format!("{name}: invalid regular expression flags \"{shown}\"");
        return Err(QueryError::new(sqlstate::INVALID_PARAMETER, text).into_datafusion());
    }
    let is_special = |c: char| matches!(c, '\\' | '[' | '.' | '{' | '(' | '?' | '*' | '+');
    if pattern.len() <= LIGHT_LENGTH && !pattern.contains(is_special) {
        return Ok(LIGHT_BYTES);
    }
    let flags = flags.replace('g', "");
    let pattern = if flags.is_empty() { pattern.to_owned() } else { format!("(?{flags}){pattern}") };
    let too_big = |bytes| {
        let built = RegexBuilder::new(&pattern).size_limit(bytes).build();
        matches!(built, Err(regex::Error::CompiledTooBig(_)))
    };
    let known = WEIGHED.with_borrow(|known| known.iter().find(|(of, _)| *of == pattern).map(|(_, bytes)| *bytes));
    if let Some(bytes) = known {
        return Ok(bytes);
    }
    // An invalid pattern is reported by the function itself.
    let sizes = [(SMALL_BYTES, SMALL_USED_BYTES), (COMPILED_BYTES, USED_BYTES), (COMPILED_BYTES_MAX, USED_BYTES)];
    if let Some((compiled, used)) = sizes.into_iter().find(|(compiled, _)| !too_big(*compiled)) {
        if pattern.len() <= WEIGHED_LENGTH {
            WEIGHED.with_borrow_mut(|known| {
                known.truncate(WEIGHED_MAX - 1);
                known.push_front((pattern, compiled + used));
            });
        }
        return Ok(compiled + used);
    }
    let shown: String = pattern.chars().take(40).collect();
    let text = format!("{name}: the pattern \"{shown}\" takes more than {COMPILED_BYTES_MAX} bytes");
    Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::error::DataFusionError;

    use super::*;
    use crate::running::memory::SharedMemory;

    fn parts_of(patterns: Vec<String>) -> Result<Vec<usize>> {
        parts_with(patterns, None)
    }

    fn parts_with(patterns: Vec<String>, flags: Option<Vec<&str>>) -> Result<Vec<usize>> {
        let patterns = Arc::new(StringArray::from(patterns)) as ArrayRef;
        let flags = flags.map(|flags| Arc::new(StringArray::from(flags)) as ArrayRef);
        let (mut parts, mut all) = (Parts::new("f", &patterns, flags.as_ref(), patterns.len()), Vec::new());
        while let Some(rows) = parts.next()? {
            all.push(rows);
        }
        Ok(all)
    }

    #[test]
    fn few_patterns_are_one_part_and_many_are_several() {
        assert_eq!(parts_of((0..1_000).map(|n| format!("x{}", n % 7)).collect()).unwrap(), [1_000]);
        assert_eq!(parts_of((0..1_000).map(|n| format!("x{n}")).collect()).unwrap(), [384, 384, 232]);
        assert_eq!(parts_of((0..40).map(|n| format!("\\w{{4}}{n}")).collect()).unwrap(), [16, 16, 8]);
    }

    #[test]
    fn patterns_that_take_too_much_are_refused() {
        let large = parts_of(vec!["\\w{150}".into()]).unwrap_err().to_string();
        assert!(large.contains("f: the pattern \"\\w{150}\" takes more than"), "{large}");
        let many = parts_of((0..300).map(|n| format!("\\w{{4}}{n}")).collect()).unwrap_err().to_string();
        assert!(many.contains("more than 256 long patterns"), "{many}");
        assert_eq!(parts_of(vec!["(".repeat(100)]).unwrap(), [1]);
    }

    #[test]
    fn a_pattern_weighs_what_it_compiles_to() {
        let heavy = |pattern: &str, flags| weight("f", pattern, flags).map(is_heavy).unwrap();
        assert!(heavy(&"\\w".repeat(9), None));
        assert!(heavy("^[\\w.+-]{1,64}@", None));
        assert!(weight("f", &"\\w".repeat(200), None).is_err());
        assert!(!heavy("^ch\\.[a-z]+(_raw)?$", Some("i")));
        assert_eq!(parts_of((0..64).map(|n| format!("{}{n}", "\\w".repeat(9))).collect()).unwrap(), [16; 4]);
    }

    #[test]
    fn patterns_count_as_memory_of_queries() {
        let patterns = |count| Arc::new((0..count).map(|n| Some(format!("\\w{{4}}{n}"))).collect::<StringArray>());
        let call = |mib: usize, count: usize| {
            let large = LargeCalls::new(1, SharedMemory::new(mib << 20));
            let field = Arc::new(Field::new("f", DataType::Int64, true));
            let args = ScalarFunctionArgs {
                args: vec![ColumnarValue::from(ScalarValue::from("x")), ColumnarValue::Array(patterns(count))],
                arg_fields: vec![],
                number_rows: count,
                return_field: field,
                config_options: Arc::default(),
            };
            let parts = RefCell::new(Vec::new());
            call_in_parts("f", &large, args, &|args| {
                parts.borrow_mut().push(args.number_rows);
                Ok(ColumnarValue::Array(Arc::new(Int64Array::from(vec![1; args.number_rows]))))
            })?;
            Ok::<_, DataFusionError>(parts.into_inner())
        };
        assert_eq!(call(200, 40).unwrap(), [16, 16, 8]);
        assert_eq!(call(60, 40).unwrap(), [8; 5]);
        let refused = call(3, 40).unwrap_err().to_string();
        assert!(refused.contains("out of memory: the patterns of f"), "{refused}");
    }

    #[test]
    fn a_long_text_and_a_large_pattern_are_refused_together() {
        let (small, large) = (weight("f", "a+b", None).unwrap(), weight("f", "[ab]{50000}[^ab]", None).unwrap());
        assert!(check_steps("f", 60 << 20, small).is_ok() && check_steps("f", 100_000, large).is_ok());
        let refused = check_steps("f", 16 << 20, large).unwrap_err().to_string();
        assert!(refused.contains("f: a pattern of"), "{refused}");
    }

    #[test]
    fn a_pattern_with_other_flags_is_another_one() {
        let flags = ["", "i", "m", "s", "im", "is", "ms", "ims"].repeat(10);
        let parts = parts_with(vec!["\\w{4}".into(); 80], Some(flags)).unwrap();
        assert_eq!(parts, [80]);
        let flags = " i m s U x im is iU ix ms mU mx sU sx Ux mi si Ui xi sm Um xm Us";
        let flags: Vec<&str> = flags.split(' ').collect();
        let parts = parts_with(vec!["\\w{4}".into(); flags.len()], Some(flags)).unwrap();
        assert_eq!(parts, [16, 8]);
    }

    #[test]
    fn flags_that_are_patterns_are_refused() {
        for flags in ["i)\\w{900}(", "x){", "-u:\\w{9})("] {
            let error = weight("f", "a", Some(flags)).unwrap_err().to_string();
            assert!(error.contains("f: invalid regular expression flags"), "{error}");
        }
    }
}
