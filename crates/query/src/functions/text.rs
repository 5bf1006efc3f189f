//! Casts of text to floats and times that accept what PostgreSQL accepts, and casts to integers that round.
//!
//! Once all types are known, a cast of a constant is checked, and a cast of any other text is replaced by a function
//! that checks each value. A cast of a float or decimal to an integer is replaced by one that rounds.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, nullif};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::{QueryError, sqlstate};
use crate::functions::float::array_with_one_nan;
use crate::functions::map_named;
use crate::functions::round::{rounded, rounds};
use crate::functions::time::{as_in_postgres, is_of_postgres};
use crate::functions::zero::{compares, with_one_zero_compared};
use crate::sql::array::elements;
use crate::sql::value::{check_float, time_text};

/// Rule that checks casts. It must run after types are coerced, which inserts casts.
#[derive(Debug)]
pub(crate) struct CheckCasts;

impl AnalyzerRule for CheckCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            if !has_casts(&node)? {
                return Ok(Transformed::no(node));
            }
            let mut schema = merge_schema(&node.inputs());
            if let LogicalPlan::TableScan(scan) = &node {
                schema.merge(&scan.projected_schema);
            }
            map_named(node, |expr| with_checked_casts(expr, &schema))
        })
        .data()
    }

    fn name(&self) -> &str {
        "check_casts"
    }
}

/// Checks the casts in an expression.
///
/// # Errors
/// If a constant has no value of the type to which it is cast.
pub(crate) fn with_checked_casts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| checked(expr, schema))
}

/// Reports whether a node casts anything to a checked type, or has a comparison that is changed.
fn has_casts(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            found |= target(expr).is_some() || compares(expr) || is_of_postgres(expr);
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Returns the type to which an expression casts, if casts to it are checked.
fn target(expr: &Expr) -> Option<&DataType> {
    let kind = match expr {
        Expr::Cast(cast) => cast.field.data_type(),
        Expr::TryCast(cast) => cast.field.data_type(),
        _ => return None,
    };
    (is_checked(kind) || kind.is_integer() || matches!(kind, DataType::List(_))).then_some(kind)
}

/// Returns whether [`checked_text`] checks texts that are cast to this type.
fn is_checked(kind: &DataType) -> bool {
    matches!(kind, DataType::Float32 | DataType::Float64 | DataType::Timestamp(..))
}

fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if compares(&expr) {
        return Ok(with_one_zero_compared(expr, schema));
    }
    if is_of_postgres(&expr)
        && let Some(meant) = as_in_postgres(&expr)?
    {
        return Ok(Transformed::yes(meant));
    }
    let Some(kind) = target(&expr).cloned() else { return Ok(Transformed::no(expr)) };
    let (inner, is_try) = match &expr {
        Expr::Cast(cast) => (&cast.expr, false),
        Expr::TryCast(cast) => (&cast.expr, true),
        _ => return Ok(Transformed::no(expr)),
    };
    if let DataType::List(element) = &kind {
        let array = array_cast(inner, element.data_type(), schema).map_err(QueryError::into_datafusion)?;
        return Ok(array.map_or_else(|| Transformed::no(expr), |array| Transformed::yes(Expr::Literal(array, None))));
    }
    if kind.is_integer() {
        let rounds = inner.get_type(schema).is_ok_and(|from| rounds(&from, &kind));
        return Ok(match expr {
            Expr::Cast(cast) if rounds => Transformed::yes(rounded(*cast.expr, kind, false)),
            Expr::TryCast(cast) if rounds => Transformed::yes(rounded(*cast.expr, kind, true)),
            other => Transformed::no(other),
        });
    }
    if let Expr::Literal(value, _) = inner.as_ref() {
        let Some(Some(text)) = value.try_as_str() else { return Ok(Transformed::no(expr)) };
        return match checked_text(text, &kind) {
            Ok(Cow::Borrowed(_)) => Ok(Transformed::no(expr)),
            Ok(Cow::Owned(text)) => Ok(Transformed::yes(with_text(expr, text))),
            Err(_) if is_try => Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from(&kind)?, None))),
            Err(error) => Err(error.into_datafusion()),
        };
    }
    if !inner.get_type(schema).is_ok_and(|kind| is_text(&kind)) {
        return Ok(Transformed::no(expr));
    }
    let function = Arc::new(ScalarUDF::from(TextCast::new(kind, is_try)));
    let args = match expr {
        Expr::Cast(cast) => vec![*cast.expr],
        Expr::TryCast(cast) => vec![*cast.expr],
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: function, args })))
}

/// Returns the array that a constant text is, in a cast to an array with elements of a type. Returns `None` for what is
/// not text. DataFusion would make an array of the text as its only element.
///
/// # Errors
/// If the text is computed, or no such array.
fn array_cast(
    inner: &Expr,
    element: &DataType,
    schema: &DFSchema,
) -> std::result::Result<Option<ScalarValue>, QueryError> {
    match inner {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(|text| array_of(text, element)).transpose(),
        // Its value is an array when it is given.
        Expr::Placeholder(_) => Ok(None),
        computed if computed.get_type(schema).is_ok_and(|from| is_text(&from)) => {
            let message = "text that is computed is not cast to an array";
            Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Write the array as a constant, or give it as a parameter."))
        }
        _ => Ok(None),
    }
}

/// Reads an array whose elements have a type.
///
/// # Errors
/// If the text is no array, or an element has no value of the type.
fn array_of(text: &str, kind: &DataType) -> std::result::Result<ScalarValue, QueryError> {
    let value = |element: Option<String>| match element {
        None => Ok(ScalarValue::try_from(kind)?),
        Some(text) => {
            let checked = if is_checked(kind) { checked_text(&text, kind)?.into_owned() } else { text.clone() };
            ScalarValue::Utf8(Some(checked)).cast_to(kind).map_err(|_| {
                QueryError::new(
                    sqlstate::INVALID_TEXT,
                    format!("invalid input syntax for an array of {kind}: \"{text}\""),
                )
            })
        }
    };
    let values = elements(text)?.into_iter().map(value).collect::<std::result::Result<Vec<_>, QueryError>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(&values, kind, true)))
}

/// Returns the same cast of another text.
fn with_text(expr: Expr, text: String) -> Expr {
    let inner = Box::new(Expr::Literal(ScalarValue::Utf8(Some(text)), None));
    match expr {
        Expr::Cast(cast) => Expr::Cast(Cast { expr: inner, ..cast }),
        Expr::TryCast(cast) => Expr::TryCast(TryCast { expr: inner, ..cast }),
        other => other,
    }
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// Checks a text that is cast to a type. Returns the text that Arrow is to read in its place.
fn checked_text<'a>(text: &'a str, kind: &DataType) -> Result<Cow<'a, str>, QueryError> {
    match kind {
        DataType::Timestamp(..) => return time_text(text),
        // Text that is not a number is left to the cast.
        DataType::Float32 => text.parse::<f32>().map_or(Ok(()), |number| check_float(text, number.into(), "real"))?,
        _ => text.parse().map_or(Ok(()), |number| check_float(text, number, "double precision"))?,
    }
    let is_nan = text.parse::<f64>().is_ok_and(f64::is_nan);
    Ok(if is_nan { Cow::Owned("NaN".to_owned()) } else { Cow::Borrowed(text) })
}

/// The function that casts text to one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextCast {
    /// Name with the type. No statement can call a function of this name.
    name: String,
    kind: DataType,
    /// Whether text without a value becomes NULL instead of an error.
    is_try: bool,
    signature: Signature,
}

impl TextCast {
    fn new(kind: DataType, is_try: bool) -> TextCast {
        let name = format!("{} to {kind}", if is_try { "try_cast" } else { "cast" });
        TextCast { name, kind, is_try, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn cast(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(texts, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
        if let DataType::Timestamp(..) = &self.kind {
            let texts = self.time_texts(texts)?;
            return Ok(cast_with_options(&texts, &self.kind, &options)?);
        }
        let numbers = array_with_one_nan(cast_with_options(texts, &self.kind, &options)?);
        match numbers.data_type() {
            DataType::Float32 => {
                let of_row = |row| f64::from(numbers.as_primitive::<Float32Type>().value(row));
                self.check_floats(texts, &numbers, of_row, "real")
            }
            _ => {
                let of_row = |row| numbers.as_primitive::<Float64Type>().value(row);
                self.check_floats(texts, &numbers, of_row, "double precision")
            }
        }
    }

    /// Returns the texts that Arrow is to read.
    fn time_texts(&self, texts: &StringArray) -> Result<StringArray> {
        let each = texts.iter().map(|text| match text.map(time_text) {
            Some(Err(error)) if !self.is_try => Err(error.into_datafusion()),
            Some(Err(_)) | None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
        });
        each.collect::<Result<StringArray>>()
    }

    fn check_floats(
        &self,
        texts: &StringArray,
        numbers: &ArrayRef,
        of_row: impl Fn(usize) -> f64,
        kind: &str,
    ) -> Result<ArrayRef> {
        let mut beyond = Vec::new();
        for row in (0..numbers.len()).filter(|row| numbers.is_valid(*row)) {
            match check_float(texts.value(row), of_row(row), kind) {
                Ok(()) => {}
                Err(_) if self.is_try => beyond.push(row),
                Err(error) => return Err(error.into_datafusion()),
            }
        }
        if beyond.is_empty() {
            return Ok(numbers.clone());
        }
        let mut is_beyond = vec![false; numbers.len()];
        beyond.into_iter().for_each(|row| is_beyond[row] = true);
        Ok(nullif(numbers, &BooleanArray::from(is_beyond))?)
    }
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the name of the argument, as for a cast, so that columns keep their names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map(|text| text.schema_name().to_string()).unwrap_or_default())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(ColumnarValue::Array(texts)) => Ok(ColumnarValue::Array(self.cast(&texts)?)),
            Some(ColumnarValue::Scalar(text)) => {
                let value = self.cast(&text.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?))
            }
            None => Err(DataFusionError::Internal(format!("{} takes one argument", self.name))),
        }
    }
}
