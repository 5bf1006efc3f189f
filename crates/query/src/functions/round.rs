//! Casts of numbers to integers, which round to the nearest one as in PostgreSQL, and are checked.
//!
//! Of two integers that are equally near, a float becomes the even one, and a decimal the one farther from zero.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Float32Type, Float64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::integer::out_of_range;

const HINT: &str = "A wider type is bigint or numeric. NaN and infinities are no integers.";

/// Reports whether a cast is to an integer that does not hold all values.
pub(super) fn rounds(from: &DataType, to: &DataType) -> bool {
    let loses = match from {
        DataType::Float32 | DataType::Float64 => true,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale > 0,
        DataType::Int64 => matches!(to, DataType::Int8 | DataType::Int16 | DataType::Int32),
        DataType::Int32 => matches!(to, DataType::Int8 | DataType::Int16),
        _ => false,
    };
    loses && to.is_integer()
}

/// Returns the cast of a number to an integer type. With `is_try`, numbers out of its range become NULL.
pub(super) fn rounded(number: Expr, kind: DataType, is_try: bool) -> Expr {
    let func = Arc::new(ScalarUDF::from(RoundCast::new(kind, is_try)));
    Expr::ScalarFunction(ScalarFunction { func, args: vec![number] })
}

/// The function that casts numbers to one integer type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundCast {
    /// Name with the type. No statement can call a function of this name.
    name: String,
    kind: DataType,
    is_try: bool,
    signature: Signature,
}

impl RoundCast {
    fn new(kind: DataType, is_try: bool) -> RoundCast {
        let name = format!("{} to {kind}", if is_try { "try_round" } else { "round" });
        RoundCast { name, kind, is_try, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn cast(&self, numbers: &ArrayRef) -> Result<ArrayRef> {
        let whole: ArrayRef = match numbers.data_type() {
            DataType::Float32 => {
                Arc::new(numbers.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
            }
            DataType::Float64 => {
                Arc::new(numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
            }
            DataType::Decimal128(..) => cast(numbers, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?,
            DataType::Decimal256(..) => cast(numbers, &DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0))?,
            _ => numbers.clone(),
        };
        let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
        cast_with_options(&whole, &self.kind, &options).map_err(|_| out_of_range(&self.kind, HINT))
    }
}

impl ScalarUDFImpl for RoundCast {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the name of the argument, as for a cast, so that columns keep their names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map(|number| number.schema_name().to_string()).unwrap_or_default())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(ColumnarValue::Array(numbers)) => Ok(ColumnarValue::Array(self.cast(&numbers)?)),
            Some(ColumnarValue::Scalar(number)) => {
                let value = self.cast(&number.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?))
            }
            None => Err(DataFusionError::Internal(format!("{} takes one argument", self.name))),
        }
    }
}
