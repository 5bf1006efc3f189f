//! The operator `LIKE` with a pattern from rows, or with a constant that is expensive to compile.
//!
//! A pattern is compiled for each row in which it differs from the row before. Patterns are therefore bounded, and a
//! stopped statement ends between two parts of a batch.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum};
use datafusion::arrow::compute::concat;
use datafusion::arrow::compute::kernels::comparison::{ilike, like};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::type_coercion::binary::like_coercion;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::functions::pattern::weight;
use crate::running::stopped::Stopped;

/// Maximum bytes of patterns compiled between two checks for a stopped statement.
const COMPILED_BYTES: usize = 48 << 20;

/// The operator as a function, which no statement can call by name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct LikeFunction {
    ignores_case: bool,
    signature: Signature,
}

impl LikeFunction {
    /// Creates the function for one statement.
    pub(crate) fn shared(ignores_case: bool) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(LikeFunction { ignores_case, signature }))
    }

    fn matched(&self, text: &dyn Datum, pattern: &dyn Datum) -> Result<BooleanArray> {
        Ok(if self.ignores_case { ilike(text, pattern)? } else { like(text, pattern)? })
    }

    /// Returns the memory needed to compile a pattern.
    fn weight(&self, pattern: &str) -> Result<usize> {
        match expression(pattern, self.ignores_case) {
            Some(expression) => weight(self.name(), &expression, self.ignores_case.then_some("i")),
            None => Ok(0),
        }
    }
}

impl ScalarUDFImpl for LikeFunction {
    fn name(&self) -> &str {
        if self.ignores_case { "ILIKE" } else { "LIKE" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        let [text, pattern] = kinds else {
            return Err(DataFusionError::Plan(format!("{} takes two texts", self.name())));
        };
        match like_coercion(text, pattern) {
            Some(_) => Ok(vec![DataType::Utf8; 2]),
            None => Err(DataFusionError::Plan(format!(
                "There isn't a common type to coerce {text} and {pattern} in {} expression",
                self.name()
            ))),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let stopped = Stopped::of(&args.config_options);
        stopped.check()?;
        let (text, patterns) = match args.args.as_slice() {
            [text, ColumnarValue::Scalar(pattern)] => {
                if let Some(pattern) = pattern.try_as_str().flatten() {
                    self.weight(pattern)?;
                }
                let (text, pattern) = (text.to_array(if is_scalar(text) { 1 } else { args.number_rows })?, pattern);
                let matched: ArrayRef = Arc::new(self.matched(&text, &pattern.to_scalar()?)?);
                // A single result, if both arguments are scalars.
                let scalar = is_scalar(&args.args[0]);
                return if scalar { scalar_of(&matched) } else { Ok(ColumnarValue::Array(matched)) };
            }
            [text, ColumnarValue::Array(patterns)] => (text, patterns),
            _ => return Err(DataFusionError::Internal(format!("{} takes two texts", self.name()))),
        };
        let (mut parts, mut first, mut compiled, mut previous) = (Vec::<ArrayRef>::new(), 0, 0, None);
        let matched = |first: usize, end: usize| -> Result<ArrayRef> {
            let patterns = patterns.slice(first, end - first);
            Ok(Arc::new(match text {
                ColumnarValue::Scalar(text) => self.matched(&text.to_scalar()?, &patterns)?,
                ColumnarValue::Array(texts) => self.matched(&texts.slice(first, end - first), &patterns)?,
            }))
        };
        for (row, pattern) in patterns.as_string::<i32>().iter().enumerate() {
            let Some(pattern) = pattern.filter(|pattern| previous != Some(*pattern)) else { continue };
            previous = Some(pattern);
            compiled += self.weight(pattern)?;
            if compiled > COMPILED_BYTES {
                stopped.check()?;
                parts.push(matched(first, row)?);
                (first, compiled) = (row, 0);
            }
        }
        parts.push(matched(first, patterns.len())?);
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }
}

fn is_scalar(value: &ColumnarValue) -> bool {
    matches!(value, ColumnarValue::Scalar(_))
}

fn scalar_of(matched: &ArrayRef) -> Result<ColumnarValue> {
    Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(matched, 0)?))
}

/// Returns the regular expression to which a `LIKE` pattern is compiled, or `None` if it is compared without one.
pub(crate) fn expression(pattern: &str, ignores_case: bool) -> Option<String> {
    let inner = pattern.strip_prefix('%').unwrap_or(pattern);
    let inner = inner.strip_suffix('%').unwrap_or(inner);
    if !ignores_case && !inner.contains(['%', '_', '\\']) {
        return None;
    }
    let mut expression = String::with_capacity(pattern.len() * 2);
    for c in pattern.chars() {
        match c {
            '%' => expression.push_str("(?s:.*)"),
            '_' => expression.push_str("(?s:.)"),
            c if c.is_alphanumeric() => expression.push(c),
            c => {
                // Writing to a String never fails.
                let _ = write!(expression, "\\x{{{:x}}}", u32::from(c));
            }
        }
    }
    Some(expression)
}
