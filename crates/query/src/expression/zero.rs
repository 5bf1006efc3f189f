//! Replaces zero divisors by null and counts them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

/// Name of the function wrapped around each divisor.
pub(super) const NONZERO: &str = "nonzero_divisor";

/// The function `nonzero_divisor(x)`, which returns x, or null if x is 0.
#[derive(Debug)]
pub(super) struct Nonzero {
    signature: Signature,
    zeros: Arc<AtomicU64>,
}

impl Nonzero {
    /// Creates the function, which counts in `zeros`.
    pub(super) fn new(zeros: Arc<AtomicU64>) -> Self {
        // Evaluated for each frame, so that constants are counted like channels.
        Nonzero { signature: Signature::any(1, Volatility::Volatile), zeros }
    }
}

impl PartialEq for Nonzero {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.zeros, &other.zeros)
    }
}

impl Eq for Nonzero {}

impl Hash for Nonzero {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.zeros).hash(state);
    }
}

fn zeros_of<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>, is_zero: impl Fn(T::Native) -> bool) -> BooleanArray {
    BooleanArray::from_iter((0..values.len()).map(|row| Some(values.is_valid(row) && is_zero(values.value(row)))))
}

impl ScalarUDFImpl for Nonzero {
    fn name(&self) -> &str {
        NONZERO
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values: ArrayRef = args.args[0].to_array(args.number_rows)?;
        // Includes negative zero of floats.
        let zeros = match values.data_type() {
            DataType::Int64 => zeros_of(values.as_primitive::<Int64Type>(), |value| value == 0),
            DataType::UInt64 => zeros_of(values.as_primitive::<UInt64Type>(), |value| value == 0),
            DataType::Float64 => zeros_of(values.as_primitive::<Float64Type>(), |value| value == 0.0),
            _ => zeros_of(cast(&values, &DataType::Float64)?.as_primitive::<Float64Type>(), |value| value == 0.0),
        };
        self.zeros.fetch_add(zeros.true_count() as u64, Relaxed);
        Ok(ColumnarValue::Array(nullif(&values, &zeros)?))
    }
}
