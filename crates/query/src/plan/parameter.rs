//! Parameters `$1`, `$2`, …: their types, their values from the wire, and those inside table functions.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr as Plain, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr, Statement, TimezoneInfo, Value,
};
use pgwire::api::Type;

use crate::error::{QueryError, sqlstate};
use crate::functions::float::scalar_with_one_nan;
use crate::functions::time::length_ns;
use crate::plan::array;
use crate::sql::constant;
use crate::sql::interval::interval_text;
use crate::sql::value::{cast_time, check_float};
use crate::sql::walk::{Step, Visitor, walk};
use crate::table::column::{UTC, timestamp_type};
use crate::wire::encode::elements_of_type;

/// Maximum parameters of a statement (the wire counts them in 16 bits).
const PARAMETERS_MAX: usize = u16::MAX as usize;
/// Maximum digits of a numeric, before or after the point.
const NUMERIC_DIGITS: i64 = 38;

/// Returns the types of a plan's parameters, as far as they are known.
pub(crate) fn types(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>, QueryError> {
    let mut types = Vec::new();
    for (name, field) in plan.get_parameter_fields()? {
        if constant::is_text(&name) {
            continue;
        }
        let number = number(&name)?;
        if types.len() < number {
            types.resize(number, None);
        }
        // Beside nothing that has a type, a parameter has none.
        types[number - 1] = field.map(|f| f.data_type().clone()).filter(|kind| !kind.is_null());
    }
    for (name, kind) in arrays(plan)?.into_iter().chain(limits(plan)?) {
        if let Some(known) = types.get_mut(number(&name)? - 1) {
            known.get_or_insert(kind);
        }
    }
    Ok(types)
}

/// Returns the types to which parameters of no other type are cast, as by `$1::int`: those of a client that names none.
pub(crate) fn cast_types(plan: &LogicalPlan, known: &[Option<DataType>]) -> Result<Vec<Option<DataType>>, QueryError> {
    let mut types = vec![None; known.len()];
    let mut wrong = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Plain::Cast(cast) = expr
                    && let Plain::Placeholder(parameter) = cast.expr.as_ref()
                    && !constant::is_text(&parameter.id)
                    && is_given_as(cast.field.data_type())
                {
                    match number(&parameter.id) {
                        Ok(number) if known.get(number - 1).is_some_and(Option::is_none) => {
                            types[number - 1].get_or_insert_with(|| cast.field.data_type().clone());
                        }
                        Ok(_) => {}
                        Err(error) => wrong = Some(error),
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    wrong.map_or(Ok(types), Err)
}

/// Reports whether clients give values of a type in a form that [`decode`] reads.
fn is_given_as(kind: &DataType) -> bool {
    match kind {
        DataType::Boolean | DataType::Int16 | DataType::Int32 | DataType::Int64 => true,
        DataType::Float32 | DataType::Float64 | DataType::Utf8 | DataType::Timestamp(..) => true,
        DataType::Interval(_) => true,
        DataType::List(element) => !element.data_type().is_nested() && is_given_as(element.data_type()),
        _ => false,
    }
}

/// Returns the parameters of LIMIT and OFFSET, which are `bigint`.
fn limits(plan: &LogicalPlan) -> Result<Vec<(String, DataType)>, QueryError> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expr in [&limit.skip, &limit.fetch].into_iter().flatten() {
                if let Plain::Placeholder(parameter) = expr.as_ref() {
                    found.push((parameter.id.clone(), DataType::Int64));
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Casts the parameters for which a client gave other types than the planner inferred, apart from arguments of table
/// functions. Returns whether there are any.
pub(crate) fn cast_given(
    statement: &mut Statement,
    (inferred, is_argument): (&[Option<DataType>], &dyn Fn(usize) -> bool),
    given: &[u32],
) -> Result<bool, QueryError> {
    struct Casts {
        types: Vec<Option<SqlType>>,
        /// Whether the next parameter is cast already.
        is_cast: bool,
        any: bool,
    }
    impl Visitor for Casts {
        fn expr(&mut self, expr: &mut Expr) -> Step {
            match expr {
                Expr::Cast { expr: inner, .. } => self.is_cast = matches!(inner.as_ref(), Expr::Value(_)),
                Expr::Value(_) if std::mem::take(&mut self.is_cast) => {}
                Expr::Value(value) => {
                    let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
                    let kind = number(name).ok().and_then(|number| self.types.get(number - 1)?.clone());
                    if let Some(data_type) = kind {
                        let inner = Box::new(expr.clone());
                        let kind = CastKind::Cast;
                        *expr = Expr::Cast { kind, expr: inner, data_type, array: false, format: None };
                        (self.is_cast, self.any) = (true, true);
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let differs = |(at, oid): (usize, &u32)| {
        let wire = Type::from_oid(*oid)?;
        let inferred = inferred.get(at).and_then(Option::as_ref).map(|kind| wire_type(Some(kind)));
        let width = |wire: &Type| [Type::INT2, Type::INT4, Type::INT8].iter().position(|kind| kind == wire);
        let fits = inferred.as_ref().is_some_and(|inferred| match (width(&wire), width(inferred)) {
            (Some(given), Some(inferred)) => given <= inferred,
            _ => wire == *inferred,
        });
        let kind = match wire {
            Type::BOOL => SqlType::Boolean,
            Type::INT2 => SqlType::SmallInt(None),
            Type::INT4 => SqlType::Integer(None),
            Type::INT8 => SqlType::BigInt(None),
            Type::FLOAT4 => SqlType::Real,
            Type::FLOAT8 => SqlType::DoublePrecision,
            Type::NUMERIC => SqlType::Numeric(ExactNumberInfo::None),
            Type::DATE => SqlType::Date,
            Type::TIMESTAMPTZ => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
            Type::INTERVAL => SqlType::Interval { fields: None, precision: None },
            _ => return None,
        };
        (!fits && !is_argument(at)).then_some(kind)
    };
    let types: Vec<Option<SqlType>> = given.iter().enumerate().map(differs).collect();
    if types.iter().all(Option::is_none) {
        return Ok(false);
    }
    let mut casts = Casts { types, is_cast: false, any: false };
    walk(statement, &mut casts)?;
    Ok(casts.any)
}

/// Returns the parameters in which elements are looked up, as by `x = any($1)`, with the types of arrays of what is
/// looked up.
fn arrays(plan: &LogicalPlan) -> Result<Vec<(String, DataType)>, QueryError> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        let mut looked_up = Vec::new();
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Plain::ScalarFunction(call) = expr
                    && call.func.name() == "array_has"
                    && let [Plain::Placeholder(array), element] = call.args.as_slice()
                    && array.field.is_none()
                {
                    looked_up.push((array.id.clone(), element.clone()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if looked_up.is_empty() {
            return Ok(TreeNodeRecursion::Continue);
        }
        let schema = merge_schema(&node.inputs());
        for (name, element) in looked_up {
            let kind = match element.get_type(&schema)? {
                DataType::Dictionary(_, values) => *values,
                kind => kind,
            };
            if !kind.is_null() {
                found.push((name, DataType::new_list(kind, true)));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Returns the number of a parameter from its name.
///
/// # Errors
/// If the name is no `$1`, `$2`, ….
pub(crate) fn number(name: &str) -> Result<usize, QueryError> {
    name.strip_prefix('$')
        .and_then(|digits| digits.parse().ok())
        .filter(|number| (1..=PARAMETERS_MAX).contains(number))
        .ok_or_else(|| QueryError::new(sqlstate::SYNTAX_ERROR, format!("there is no parameter {name}")))
}

/// Gives the type `oid` or `oid[]` to parameters that are cast to it and have none yet. To the planner, numbers of objects
/// are integers.
pub(crate) fn give_numbers(statement: &mut Statement, given: &mut Vec<u32>) -> Result<(), QueryError> {
    struct Give<'a>(&'a mut Vec<u32>);
    impl Visitor for Give<'_> {
        fn expr(&mut self, expr: &mut Expr) -> Step {
            if let Expr::Cast { expr: inner, data_type, .. } = expr
                && let Some(number) = placeholder_of(inner)
                && let Some(kind) = match data_type.to_string().to_lowercase().as_str() {
                    "oid" => Some(Type::OID),
                    "oid[]" => Some(Type::OID_ARRAY),
                    _ => None,
                }
            {
                if self.0.len() < number {
                    self.0.resize(number, 0);
                }
                if self.0[number - 1] == 0 {
                    self.0[number - 1] = kind.oid();
                }
            }
            ControlFlow::Continue(())
        }
    }
    walk(statement, &mut Give(given))
}

/// Returns the number of the parameter that an expression is, maybe in brackets or cast.
pub(crate) fn placeholder_of(expr: &Expr) -> Option<usize> {
    let mut expr = expr;
    loop {
        match expr {
            Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => expr = inner,
            Expr::Value(value) => {
                return match &value.value {
                    Value::Placeholder(name) => number(name).ok(),
                    _ => None,
                };
            }
            _ => return None,
        }
    }
}

/// Returns the wire type with which a parameter is announced.
pub(crate) fn wire_type(kind: Option<&DataType>) -> Type {
    match kind {
        None => Type::TEXT,
        Some(DataType::Dictionary(_, value)) => wire_type(Some(value)),
        Some(kind) => arrow_pg::datatypes::into_pg_type(kind).unwrap_or(Type::TEXT),
    }
}

/// Decodes a parameter's value from its bytes.
///
/// `wire` is the type in which it was sent, `target` the type that the plan expects.
///
/// # Errors
/// If the bytes are not a value of the type, or the value does not fit the target.
pub(crate) fn decode(
    number: usize,
    bytes: Option<&[u8]>,
    binary: bool,
    wire: &Type,
    target: Option<&DataType>,
) -> Result<ScalarValue, QueryError> {
    let Some(bytes) = bytes else {
        return Ok(match target {
            Some(kind) => ScalarValue::try_from(kind)?,
            None => ScalarValue::Utf8(None),
        });
    };
    let target_element = match target {
        Some(DataType::List(field)) => Some(field.data_type()),
        _ => None,
    };
    let element = match (elements_of_type(wire), target_element) {
        (Some(element), _) if target.is_none() || target_element.is_some() => Some(element),
        // The text of an array.
        (None, Some(kind)) if !binary => Some(wire_type(Some(kind))),
        _ => None,
    };
    if let Some(element) = element {
        return array::decode(number, bytes, binary, &element, target_element);
    }
    let value = if binary { decode_binary(number, bytes, wire)? } else { decode_text(number, bytes, wire)? };
    converted(value, target)
}

/// Converts a value that has a type to the one that the plan expects, if it expects one.
///
/// # Errors
/// If the value is not one of the target's type.
pub(crate) fn fit(number: usize, value: ScalarValue, target: Option<&DataType>) -> Result<ScalarValue, QueryError> {
    match (target, value.try_as_str()) {
        (Some(kind), _) if value.is_null() => Ok(ScalarValue::try_from(kind)?),
        // A text is read as PostgreSQL reads it.
        (Some(_), Some(Some(text))) => decode(number, Some(text.as_bytes()), false, &wire_type(target), target),
        _ => converted(value, target),
    }
}

fn converted(value: ScalarValue, target: Option<&DataType>) -> Result<ScalarValue, QueryError> {
    match target {
        Some(kind) if value.data_type() == *kind => Ok(scalar_with_one_nan(value)),
        Some(kind) if kind.is_integer() || kind.is_decimal() => whole(value, kind),
        Some(kind) if kind.is_floating() => float(value, kind),
        // Compared with a difference of times.
        Some(kind @ DataType::Duration(_)) => match value {
            ScalarValue::IntervalMonthDayNano(Some(interval)) => {
                Ok(ScalarValue::DurationNanosecond(Some(length_ns(interval))).cast_to(kind)?)
            }
            value => Ok(value.cast_to(kind)?),
        },
        Some(kind) => Ok(value.cast_to(kind)?),
        None => Ok(scalar_with_one_nan(value)),
    }
}

/// Converts a value to a float type. Returns a double that a single would round unchanged; the other side of its
/// comparison is then widened.
fn float(value: ScalarValue, kind: &DataType) -> Result<ScalarValue, QueryError> {
    if let Some(text) = value.try_as_str() {
        let number = value.cast_to(kind)?;
        let name = if *kind == DataType::Float32 { "real" } else { "double precision" };
        if let (Some(text), ScalarValue::Float64(Some(double))) = (text, number.cast_to(&DataType::Float64)?) {
            check_float(text.trim(), double, name)?;
        }
        return Ok(scalar_with_one_nan(number));
    }
    let wide = scalar_with_one_nan(value.cast_to(&DataType::Float64)?);
    let there = wide.cast_to(kind)?;
    let is_same = there.cast_to(&DataType::Float64)? == wide;
    Ok(if is_same { there } else { wide })
}

/// Converts a number to an integer type. Returns it unchanged if it does not fit exactly, as for 1.5 or 2^40; the other
/// side of its comparison is then widened.
fn whole(value: ScalarValue, kind: &DataType) -> Result<ScalarValue, QueryError> {
    if !value.data_type().is_numeric() {
        return Ok(value.cast_to(kind)?);
    }
    let there = value.cast_to(kind);
    let is_same = there.as_ref().is_ok_and(|there| there.cast_to(&value.data_type()).is_ok_and(|back| back == value));
    Ok(match there {
        Ok(there) if is_same => there,
        _ => value,
    })
}

/// Returns the text of a parameter.
///
/// # Errors
/// If the bytes are not UTF-8.
pub(super) fn text_of(number: usize, bytes: &[u8]) -> Result<&str, QueryError> {
    std::str::from_utf8(bytes).map_err(|_| QueryError::new("22021", format!("parameter ${number} is not UTF-8")))
}

fn decode_text(number: usize, bytes: &[u8], wire: &Type) -> Result<ScalarValue, QueryError> {
    let text = text_of(number, bytes)?;
    let invalid = |kind: &str| {
        QueryError::new(sqlstate::INVALID_TEXT, format!("invalid input syntax for type {kind}: \"{text}\""))
    };
    let trimmed = text.trim();
    Ok(match *wire {
        Type::BOOL => match trimmed.to_ascii_lowercase().as_str() {
            "t" | "true" | "on" | "yes" | "y" | "1" => ScalarValue::Boolean(Some(true)),
            "f" | "false" | "off" | "no" | "n" | "0" => ScalarValue::Boolean(Some(false)),
            _ => return Err(invalid("boolean")),
        },
        Type::INT2 => ScalarValue::Int16(Some(trimmed.parse().map_err(|_| invalid("smallint"))?)),
        Type::INT4 => ScalarValue::Int32(Some(trimmed.parse().map_err(|_| invalid("integer"))?)),
        Type::INT8 | Type::OID => ScalarValue::Int64(Some(trimmed.parse().map_err(|_| invalid("bigint"))?)),
        Type::FLOAT4 => {
            let number: f32 = trimmed.parse().map_err(|_| invalid("real"))?;
            check_float(trimmed, number.into(), "real")?;
            ScalarValue::Float32(Some(number))
        }
        Type::FLOAT8 => {
            let number = trimmed.parse().map_err(|_| invalid("double precision"))?;
            check_float(trimmed, number, "double precision")?;
            ScalarValue::Float64(Some(number))
        }
        Type::NUMERIC => {
            let plain = without_exponent(trimmed)?;
            let scale = plain.split_once('.').map_or(0, |(_, f)| f.len().min(38)) as i8;
            let kind = DataType::Decimal128(38, scale);
            ScalarValue::from(&*plain).cast_to(&kind).map_err(|_| invalid("numeric"))?
        }
        Type::TIMESTAMPTZ => cast_time(&ScalarValue::from(trimmed), &timestamp_type())?,
        Type::TIMESTAMP => cast_time(&ScalarValue::from(trimmed), &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        Type::DATE => ScalarValue::from(trimmed).cast_to(&DataType::Date32)?,
        Type::INTERVAL => ScalarValue::from(interval_text(trimmed).as_ref())
            .cast_to(&DataType::Interval(IntervalUnit::MonthDayNano))
            .map_err(|_| invalid("interval"))?,
        _ => ScalarValue::from(text),
    })
}

/// Returns a number such as `1.5E-7` without its exponent. Text in another form is returned unchanged.
///
/// # Errors
/// If a numeric cannot hold its digits.
fn without_exponent(text: &str) -> Result<Cow<'_, str>, QueryError> {
    let parts = || {
        let (mantissa, exponent) = text.split_once(['e', 'E'])?;
        let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let exponent = exponent.parse::<i32>().ok().filter(|_| is_number)?;
        Some((mantissa.starts_with('-'), digits, whole.len() as i64 + i64::from(exponent)))
    };
    let Some((is_negative, digits, point)) = parts() else { return Ok(Cow::Borrowed(text)) };
    let first = digits.bytes().take_while(|digit| *digit == b'0').count();
    let digits = digits.trim_end_matches('0').get(first..).unwrap_or_default();
    // Place of the point after the first digit other than 0.
    let point = point - first as i64;
    if digits.is_empty() {
        return Ok(Cow::Borrowed("0"));
    }
    if point > NUMERIC_DIGITS || digits.len() as i64 - point > NUMERIC_DIGITS {
        let text = format!("\"{text}\" is out of range for type numeric");
        return Err(QueryError::new(sqlstate::NUMERIC_OUT_OF_RANGE, text));
    }
    let sign = if is_negative { "-" } else { "" };
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
    Ok(Cow::Owned(match usize::try_from(point) {
        Ok(0) => format!("{sign}0.{digits}"),
        Ok(at) if at < digits.len() => format!("{sign}{}.{}", &digits[..at], &digits[at..]),
        Ok(_) => format!("{sign}{digits}{}", zeros(point - digits.len() as i64)),
        Err(_) => format!("{sign}0.{}{digits}", zeros(-point)),
    }))
}

fn decode_binary(number: usize, bytes: &[u8], wire: &Type) -> Result<ScalarValue, QueryError> {
    let invalid = || {
        let message = format!("parameter ${number}: {} bytes are no {}", bytes.len(), wire.name());
        QueryError::new(sqlstate::INVALID_BINARY, message)
    };
    macro_rules! number {
        ($native:ty) => {
            <$native>::from_be_bytes(bytes.try_into().map_err(|_| invalid())?)
        };
    }
    Ok(match *wire {
        Type::BOOL => ScalarValue::Boolean(Some(number!(u8) != 0)),
        Type::INT2 => ScalarValue::Int16(Some(number!(i16))),
        Type::INT4 => ScalarValue::Int32(Some(number!(i32))),
        Type::OID => ScalarValue::Int64(Some(number!(u32) as i64)),
        Type::INT8 => ScalarValue::Int64(Some(number!(i64))),
        Type::FLOAT4 => ScalarValue::Float32(Some(number!(f32))),
        Type::FLOAT8 => ScalarValue::Float64(Some(number!(f64))),
        Type::TIMESTAMPTZ | Type::TIMESTAMP => {
            let since_2000 = number!(i64);
            let out_of_range =
                || QueryError::new(sqlstate::INVALID_DATETIME, format!("parameter ${number}: time out of range"));
            let time_us = since_2000.checked_add(crate::wire::encode::EPOCH_2000_US).ok_or_else(out_of_range)?;
            let zone = (*wire == Type::TIMESTAMPTZ).then(|| UTC.into());
            ScalarValue::TimestampMicrosecond(Some(time_us), zone)
        }
        Type::DATE => {
            let days = number!(i32).checked_add(crate::wire::encode::EPOCH_2000_DAYS).ok_or_else(invalid)?;
            ScalarValue::Date32(Some(days))
        }
        Type::INTERVAL => {
            let (time, rest) = bytes.split_at_checked(8).ok_or_else(invalid)?;
            let (days, months) = rest.split_at_checked(4).ok_or_else(invalid)?;
            let whole = |bytes: &[u8]| bytes.try_into().map(i32::from_be_bytes).map_err(|_| invalid());
            let time_us = i64::from_be_bytes(time.try_into().map_err(|_| invalid())?);
            let time_ns = time_us.checked_mul(1_000).ok_or_else(invalid)?;
            let interval = IntervalMonthDayNano::new(whole(months)?, whole(days)?, time_ns);
            ScalarValue::IntervalMonthDayNano(Some(interval))
        }
        Type::NUMERIC => numeric(bytes).ok_or_else(invalid)?,
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => {
            ScalarValue::from(text_of(number, bytes)?)
        }
        _ => {
            return Err(QueryError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("parameter ${number}: type {} is not offered", wire.name()),
            ));
        }
    })
}

/// Decodes PostgreSQL's binary numeric: base-10,000 digits, weight of the first, sign, decimal places.
fn numeric(bytes: &[u8]) -> Option<ScalarValue> {
    let word = |at: usize| bytes.get(at * 2..at * 2 + 2).map(|b| i16::from_be_bytes([b[0], b[1]]));
    let (digits, weight, sign, scale) = (word(0)? as u16 as usize, word(1)?, word(2)? as u16, word(3)? as u16);
    if bytes.len() != 8 + digits * 2 || scale > 38 || !(sign == 0 || sign == 0x4000) {
        return None;
    }
    let mut value: i128 = 0;
    // Digit i has the weight 10^(4·(weight − i)), scaled by 10^scale.
    for at in 0..digits {
        let digit = word(4 + at)?;
        let exponent = 4 * (i32::from(weight) - at as i32) + i32::from(scale);
        let part = if exponent >= 0 {
            i128::from(digit).checked_mul(10i128.checked_pow(exponent as u32)?)?
        } else {
            i128::from(digit) / 10i128.checked_pow(exponent.unsigned_abs())?
        };
        value = value.checked_add(part)?;
    }
    if value.unsigned_abs() >= 10u128.pow(38) {
        return None;
    }
    Some(ScalarValue::Decimal128(Some(if sign == 0 { value } else { -value }), 38, scale as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_written_out() {
        for (text, plain) in [
            ("1E-7", "0.0000001"),
            ("-1.5e-2", "-0.015"),
            ("1.5E+3", "1500"),
            ("12.345e1", "123.45"),
            ("12.345e-2", "0.12345"),
            ("0012.50e2", "1250"),
            (".5e1", "5"),
            ("5.e1", "50"),
            ("0e-999", "0"),
            ("1e37", "10000000000000000000000000000000000000"),
            ("1e-38", "0.00000000000000000000000000000000000001"),
            ("17", "17"),
            ("NaN", "NaN"),
            ("1e", "1e"),
            ("e5", "e5"),
        ] {
            assert_eq!(without_exponent(text).as_deref(), Ok(plain), "{text}");
        }
        for text in ["1e39", "1e-39", "1.5e-38", "1e999999999"] {
            assert_eq!(without_exponent(text).unwrap_err().sqlstate, "22003", "{text}");
        }
    }
}
