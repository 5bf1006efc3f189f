//! Operators and functions of PostgreSQL that the planner does not have, or has with another meaning, written in its terms.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Statement, Subscript, TimezoneInfo, UnaryOperator, Value,
    ValueWithSpan,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::interval::interval_text;
use crate::sql::walk::{Step, Visitor, walk};

/// Name of the function of an interval and a number, which no statement can call.
pub(crate) const TIMES: &str = "interval times";

/// Rewrites the operators and functions of a statement.
///
/// # Errors
/// If a pattern of SIMILAR TO is no constant.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<(), QueryError> {
    walk(statement, &mut Operators::default())
}

/// Functions that PostgreSQL has under another name.
const NAMES: [(&str, &str); 8] = [
    ("array_remove", "array_remove_all"),
    ("clock_timestamp", "now"),
    ("gen_random_uuid", "uuid"),
    ("sign", "signum"),
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("time_bucket", "date_bin"),
    ("char_length", "character_length"),
];

/// Functions whose results are unsigned to the planner, and `bigint` in PostgreSQL.
const BIG_INTEGERS: [&str; 5] = ["row_number", "rank", "dense_rank", "approx_distinct", "regexp_count"];

/// Functions whose results are unsigned to the planner, and `integer` in PostgreSQL.
const INTEGERS: [&str; 5] = ["ntile", "array_length", "array_ndims", "array_position", "cardinality"];

#[derive(Default)]
struct Operators {
    /// Whether the next expression is the call in a cast that was just written.
    is_cast: bool,
}

impl Visitor for Operators {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        if std::mem::take(&mut self.is_cast) {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::AtTimeZone { timestamp, time_zone } => {
                *expr = call("timezone", vec![take(time_zone), take(timestamp)]);
            }
            Expr::Interval(interval) if interval.leading_field.is_none() => read_clock(&mut interval.value),
            Expr::Cast { expr: text, data_type: DataType::Interval { .. }, .. } => read_clock(text),
            Expr::Cast { expr: text, data_type: DataType::Bytea, .. } => {
                let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = text.as_ref() else {
                    return ControlFlow::Continue(());
                };
                match bytes_of(text) {
                    Ok(hex) => *expr = Expr::Value(Value::HexStringLiteral(hex).into()),
                    Err(error) => return ControlFlow::Break(error),
                }
            }
            Expr::Cast { data_type: DataType::Timestamp(Some(digits), zone), expr: time, .. } if *digits < 6 => {
                *expr = with_digits(take(time), *digits, *zone);
            }
            Expr::TypedString(text) => {
                if let DataType::Timestamp(Some(digits), zone) = text.data_type
                    && digits < 6
                {
                    *expr = with_digits(Expr::Value(text.value.clone()), digits, zone);
                }
            }
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter_mut().for_each(from_one_on),
            Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
                *expr = call("starts_with", vec![take(left), take(right)]);
            }
            Expr::Extract { field, expr: of, .. } => {
                let field = Value::SingleQuotedString(field.to_string().to_lowercase());
                *expr = call("extract", vec![Expr::Value(field.into()), take(of)]);
            }
            Expr::Like { pattern, escape_char: escape @ Some(_), .. }
            | Expr::ILike { pattern, escape_char: escape @ Some(_), .. } => {
                if let Some(escape) = escape.take() {
                    **pattern = call("like_escape", vec![take(pattern), Expr::Value(escape)]);
                }
            }
            Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
                let pattern = match similar(pattern, escape_char.as_ref()) {
                    Ok(pattern) => pattern,
                    Err(error) => return ControlFlow::Break(error),
                };
                let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
                let left = Box::new(Expr::Nested(Box::new(take(text))));
                *expr = Expr::BinaryOp { left, op, right: Box::new(pattern) };
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: operand } => {
                // All bits are those of -1.
                let left = Box::new(Expr::Nested(Box::new(take(operand))));
                let ones = Expr::Value(Value::Number("-1".to_owned(), false).into());
                *expr = Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right: Box::new(ones) };
            }
            Expr::UnaryOp { op, expr: operand } => {
                let name = match op {
                    UnaryOperator::PGAbs => "abs",
                    UnaryOperator::PGSquareRoot => "sqrt",
                    UnaryOperator::PGCubeRoot => "cbrt",
                    _ => return ControlFlow::Continue(()),
                };
                *expr = call(name, vec![take(operand)]);
            }
            Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => {
                if is_interval(left) {
                    *expr = call(TIMES, vec![take(left), number(take(right))]);
                } else if is_interval(right) {
                    *expr = call(TIMES, vec![take(right), number(take(left))]);
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Divide, right } if is_interval(left) => {
                let one = Expr::Value(Value::Number("1.0".to_owned(), false).into());
                let inverse = Expr::BinaryOp {
                    left: Box::new(one),
                    op: BinaryOperator::Divide,
                    right: Box::new(Expr::Nested(Box::new(number(take(right))))),
                };
                *expr = call(TIMES, vec![take(left), inverse]);
            }
            Expr::Function(_) => self.function(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Writes what the planner does not read in the text of an interval in words.
fn read_clock(text: &mut Expr) {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = text else { return };
    if let Cow::Owned(words) = interval_text(text) {
        *text = words;
    }
}

impl Operators {
    fn function(&mut self, expr: &mut Expr) {
        let Expr::Function(function) = expr else { return };
        let [ObjectNamePart::Identifier(ident)] = function.name.0.as_mut_slice() else { return };
        let name = ident.value.to_lowercase();
        if let Some((_, other)) = NAMES.iter().find(|(known, _)| *known == name) {
            *ident = Ident::new(*other);
        }
        if ["time_bucket", "date_bin"].contains(&name.as_str())
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(width))) = list.args.first_mut()
        {
            read_clock(width);
        }
        if name == "time_bucket" {
            monday(function);
        } else if name == "date_trunc" {
            if let Some(truncated) = date_trunc(function) {
                *expr = truncated;
            }
        } else if name == "mod" {
            if let FunctionArguments::List(list) = &mut function.args
                && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(a)), FunctionArg::Unnamed(FunctionArgExpr::Expr(b))] =
                    list.args.as_mut_slice()
            {
                let nested = |expr: &mut Expr| {
                    let inner = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                    Box::new(Expr::Nested(Box::new(inner)))
                };
                let (left, right) = (nested(a), nested(b));
                *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Modulo, right }));
            }
        } else if let Some(data_type) = integer_of(&name) {
            *expr = cast(std::mem::replace(expr, Expr::Value(Value::Null.into())), data_type);
            self.is_cast = true;
        }
    }
}

/// Returns the type of integers that a function returns in PostgreSQL, if it is another here.
fn integer_of(name: &str) -> Option<DataType> {
    match name {
        name if BIG_INTEGERS.contains(&name) => Some(DataType::BigInt(None)),
        name if INTEGERS.contains(&name) => Some(DataType::Integer(None)),
        _ => None,
    }
}

/// Returns a call of `date_trunc` in units and with a number of arguments that the planner knows, if it is another.
fn date_trunc(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let args: Vec<Expr> = list.args.iter().filter_map(argument).collect();
    let (Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(unit), .. }), time) =
        (args.first()?, args.get(1)?)
    else {
        return None;
    };
    if let [unit, time, zone] = args.as_slice() {
        let local = call("timezone", vec![zone.clone(), time.clone()]);
        return Some(call("timezone", vec![zone.clone(), call("date_trunc", vec![unit.clone(), local])]));
    }
    let unit = unit.to_lowercase();
    // Decades begin with the year 0, centuries and millennia with the year 1.
    let (years, first) = match unit.trim_end_matches('s') {
        "decade" => ("10", "0"),
        "century" | "centurie" => ("100", "1"),
        "millennium" => ("1000", "1"),
        single if single.len() < unit.len() => {
            let unit = Expr::Value(Value::SingleQuotedString(single.to_owned()).into());
            return Some(call("date_trunc", vec![unit, time.clone()]));
        }
        _ => return None,
    };
    let digits = |digits: &str| Expr::Value(Value::Number(digits.to_owned(), false).into());
    let infix =
        |left, op, right| Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }));
    let year = call("extract", vec![text("year"), time.clone()]);
    let since = infix(infix(year, BinaryOperator::Minus, digits(first)), BinaryOperator::Modulo, digits(years));
    let length = call(TIMES, vec![cast(text("1 year"), INTERVAL), number(since)]);
    Some(infix(call("date_trunc", vec![text("year"), time.clone()]), BinaryOperator::Minus, length))
}

fn argument(arg: &FunctionArg) -> Option<Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    }
}

/// Type of intervals.
const INTERVAL: DataType = DataType::Interval { fields: None, precision: None };

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Returns a time rounded to some decimal places of a second.
fn with_digits(time: Expr, digits: u64, zone: TimezoneInfo) -> Expr {
    let step_us = 10u64.pow(6 - digits.min(6) as u32);
    let interval = |us: u64| cast(text(&format!("{us} microseconds")), INTERVAL);
    let half = Box::new(interval(step_us / 2));
    let left = Box::new(cast(time, DataType::Timestamp(None, zone)));
    let moved = Expr::BinaryOp { left, op: BinaryOperator::Plus, right: half };
    let cut = match digits {
        0 => call("date_trunc", vec![text("second"), moved]),
        3 => call("date_trunc", vec![text("millisecond"), moved]),
        _ => call("date_bin", vec![interval(step_us), moved]),
    };
    cast(cut, DataType::Timestamp(None, zone))
}

/// Makes an index below 1 NULL: to the planner, it counts from the end of the array.
fn from_one_on(access: &mut AccessExpr) {
    let AccessExpr::Subscript(Subscript::Index { index }) = access else { return };
    let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()) && digits != "0";
    if matches!(index, Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) if is_plain(digits)) {
        return;
    }
    let zero = || Expr::Value(Value::Number("0".to_owned(), false).into());
    let own = std::mem::replace(index, Expr::Value(Value::Null.into()));
    *index = call("nullif", vec![call("greatest", vec![own, zero()]), zero()]);
}

/// Returns the bytes of a text cast to `bytea`, in hexadecimal: `\x` and hexadecimal digits, or characters with escapes.
///
/// # Errors
/// If the digits or the escapes are wrong.
fn bytes_of(text: &str) -> Result<String, QueryError> {
    let wrong = |text: &str| QueryError::new(sqlstate::INVALID_TEXT, text.to_owned());
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: String = digits.chars().filter(|digit| !digit.is_ascii_whitespace()).collect();
        let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return if is_hex { Ok(digits) } else { Err(wrong("invalid hexadecimal data")) };
    }
    let (mut hex, mut rest) = (String::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let (byte, left) = match (first, behind) {
            (b'\\', [b'\\', left @ ..]) => (b'\\', left),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', left @ ..]) => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), left)
            }
            (b'\\', _) => return Err(wrong("invalid input syntax for type bytea")),
            (byte, left) => (*byte, left),
        };
        hex.push_str(&format!("{byte:02x}"));
        rest = left;
    }
    Ok(hex)
}

/// Gives `time_bucket(width, time)` the origin that it has in TimescaleDB: a Monday, so that weeks begin with one, and for
/// months the beginning of a year.
fn monday(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [width, _] = list.args.as_slice() else { return };
    let width = width.to_string().to_lowercase();
    let is_long = ["mon", "year", "decade", "century"].iter().any(|unit| width.contains(unit));
    let start = if is_long { "2000-01-01 00:00:00+00" } else { "2000-01-03 00:00:00+00" };
    let origin = cast(text(start), DataType::Timestamp(None, TimezoneInfo::WithTimeZone));
    list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(origin)));
}

/// Returns the regular expression of a pattern of `SIMILAR TO` (PostgreSQL, `similar_escape`).
///
/// # Errors
/// If the pattern is no constant, or its escape is more than one character.
fn similar(pattern: &Expr, escape: Option<&ValueWithSpan>) -> Result<Expr, QueryError> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = pattern else {
        return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "SIMILAR TO takes a constant pattern")
            .with_hint("Use the operator ~ with a regular expression."));
    };
    let escape = match escape.map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(escape)) if escape.chars().nth(1).is_none() => escape.chars().next(),
        Some(_) => return Err(QueryError::new("22025", "invalid escape string")),
    };
    let mut regex = "(?s)^(?:".to_owned();
    let (mut is_escaped, mut in_brackets) = (false, false);
    for c in text.chars() {
        match c {
            c if is_escaped => {
                if c.is_ascii_punctuation() {
                    regex.push('\\');
                }
                regex.push(c);
                is_escaped = false;
            }
            c if Some(c) == escape => is_escaped = true,
            ']' if in_brackets => {
                in_brackets = false;
                regex.push(c);
            }
            '\\' => regex.push_str("\\\\"),
            c if in_brackets => regex.push(c),
            '[' => {
                in_brackets = true;
                regex.push(c);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' => regex.extend(['\\', c]),
            c => regex.push(c),
        }
    }
    regex.push_str(")$");
    Ok(Expr::Value(Value::SingleQuotedString(regex).into()))
}

fn take(expr: &mut Box<Expr>) -> Expr {
    std::mem::replace(expr.as_mut(), Expr::Value(Value::Null.into()))
}

/// Reports whether an expression is certainly an interval.
fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        Expr::Nested(inner) => is_interval(inner),
        _ => false,
    }
}

/// Returns an expression as a `double precision`, which is what a parameter beside an interval is.
fn number(expr: Expr) -> Expr {
    cast(expr, DataType::DoublePrecision)
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
