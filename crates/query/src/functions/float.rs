//! One NaN: equal to itself and larger than every number, as in PostgreSQL.
//!
//! DataFusion compares floats by their bits, by which a NaN with its sign set is smaller than every number, and two NaNs
//! can differ. Processors make such a NaN: on x86, 0/0 is one. Every float in a query is therefore a number or the
//! positive NaN without further bits. Stored values are read so, and what makes floats within a statement is wrapped:
//! arithmetic and functions by a rewrite before any other step, aggregates when they are registered.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

mod aggregate;
mod extreme;
mod frame;

/// Values that are looked at together.
const CHUNK: usize = 1024;

/// Functions whose result can be a NaN, or the opposite of one.
const FUNCTIONS: [&str; 45] = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "cot",
    "degrees",
    "exp",
    "floor",
    "ln",
    "log",
    "log10",
    "log2",
    "nanvl",
    "power",
    "radians",
    "round",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "array_add",
    "array_avg",
    "array_distance",
    "array_normalize",
    "array_product",
    "array_scale",
    "array_subtract",
    "array_sum",
    "cosine_distance",
    "inner_product",
    "arrow_cast",
    "arrow_try_cast",
    "cast_to_type",
    "try_cast_to_type",
];

/// Makes all NaNs of a session's statements the same.
///
/// # Errors
/// If a function cannot be registered.
pub(super) fn keep_one_nan(state: &mut SessionState) -> Result<()> {
    aggregate::wrap_aggregates(state)?;
    state.register_function_rewrite(Arc::new(KeepOneNan))
}

/// A type of floats.
pub(crate) trait Float: Copy {
    /// The NaN of queries.
    const NAN: Self;
    /// Reports whether it is a NaN, of any kind.
    fn is_nan(self) -> bool;

    /// Returns it, with 0 for −0.
    fn with_one_zero(self) -> Self;

    /// Returns it, with the NaN of queries for any other.
    #[inline]
    fn with_one_nan(self) -> Self {
        if self.is_nan() { Self::NAN } else { self }
    }
}

macro_rules! float {
    ($($native:ident),*) => {$(
        impl Float for $native {
            const NAN: Self = $native::NAN;

            #[inline]
            fn is_nan(self) -> bool {
                $native::is_nan(self)
            }

            #[inline]
            fn with_one_zero(self) -> Self {
                self + 0.0
            }
        }
    )*};
}
float!(f32, f64);

/// Replaces the NaNs of an array of floats, or of lists of them. Other arrays are returned unchanged.
pub(crate) fn array_with_one_nan(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => floats_with_one_nan::<Float32Type>(&array).unwrap_or(array),
        DataType::Float64 => floats_with_one_nan::<Float64Type>(&array).unwrap_or(array),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let values = array_with_one_nan(list.values().clone());
            if Arc::ptr_eq(&values, list.values()) {
                return array;
            }
            let (field, offsets, _, nulls) = list.clone().into_parts();
            Arc::new(ListArray::new(field, offsets, values, nulls))
        }
        _ => array,
    }
}

/// Returns the array with its NaNs replaced, or `None` if it has none.
fn floats_with_one_nan<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<ArrayRef>
where
    T::Native: Float,
{
    let floats: &PrimitiveArray<T> = array.as_primitive();
    // Without a branch for each value, a chunk takes a few instructions per register of values.
    let any_nan = |chunk: &[T::Native]| chunk.iter().fold(false, |any, value| any | value.is_nan());
    let found = floats.values().chunks(CHUNK).any(any_nan);
    found.then(|| Arc::new(floats.unary::<_, T>(Float::with_one_nan)) as ArrayRef)
}

/// Replaces −0 by 0 in an array of floats. Other arrays are returned unchanged.
fn array_with_one_zero(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(Float::with_one_zero))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(Float::with_one_zero))
        }
        _ => array,
    }
}

/// Replaces a value that is a NaN.
pub(crate) fn scalar_with_one_nan(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float32(value) => ScalarValue::Float32(value.map(Float::with_one_nan)),
        ScalarValue::Float64(value) => ScalarValue::Float64(value.map(Float::with_one_nan)),
        ScalarValue::List(list) => match array_with_one_nan(list.clone()).as_list_opt::<i32>() {
            Some(replaced) => ScalarValue::List(Arc::new(replaced.clone())),
            None => ScalarValue::List(list),
        },
        other => other,
    }
}

/// Rewrite that wraps arithmetic and functions of floats. Only the outermost of nested ones is wrapped.
#[derive(Debug)]
struct KeepOneNan;

impl FunctionRewrite for KeepOneNan {
    fn name(&self) -> &str {
        "keep_one_nan"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_arithmetic(op) && (is_float(&right, schema) || is_float(&left, schema)) =>
            {
                let (left, right) = (Box::new(bare(*left)), Box::new(bare(*right)));
                Transformed::yes(wrapped(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            Expr::Negative(number) if !matches!(*number, Expr::Literal(..)) && is_float(&number, schema) => {
                Transformed::yes(wrapped(Expr::Negative(Box::new(bare(*number)))))
            }
            Expr::ScalarFunction(mut call) if FUNCTIONS.contains(&call.func.name()) => {
                call.args = call.args.into_iter().map(bare).collect();
                Transformed::yes(wrapped(Expr::ScalarFunction(call)))
            }
            other => Transformed::no(other),
        })
    }
}

fn is_arithmetic(op: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

/// Reports whether an expression, whose parts are rewritten, is a float. Does not inspect arithmetic again, of which a
/// statement can have a long chain: that of floats is wrapped.
fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::BinaryExpr(binary) if is_arithmetic(binary.op) => false,
        Expr::ScalarFunction(call) if is_wrapper(call) && matches!(call.args.first(), Some(Expr::BinaryExpr(_))) => {
            true
        }
        other => matches!(other.get_type(schema), Ok(DataType::Float32 | DataType::Float64)),
    }
}

fn is_wrapper(call: &ScalarFunction) -> bool {
    let inner: &dyn Any = call.func.inner().as_ref();
    inner.downcast_ref::<OneOf>().is_some_and(|one| one.what == What::Nan)
}

/// Returns an expression without its wrapper.
fn bare(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut call) if is_wrapper(&call) && call.args.len() == 1 => call.args.remove(0),
        other => other,
    }
}

fn wrapped(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(OneOf::new(What::Nan))));
    Expr::ScalarFunction(ScalarFunction { func: FUNCTION.clone(), args: vec![expr] })
}

/// Returns an expression with 0 for −0.
pub(super) fn with_one_zero(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(OneOf::new(What::Zero))));
    Expr::ScalarFunction(ScalarFunction { func: FUNCTION.clone(), args: vec![expr] })
}

/// What a float can be in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Nan,
    Zero,
}

/// The function that leaves one of them. It returns values of other types unchanged.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneOf {
    what: What,
    signature: Signature,
}

impl OneOf {
    fn new(what: What) -> OneOf {
        OneOf { what, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn without_argument(&self) -> DataFusionError {
        DataFusionError::Internal(format!("{} takes one argument", self.name()))
    }
}

impl ScalarUDFImpl for OneOf {
    /// No statement can call a function of this name.
    fn name(&self) -> &str {
        match self.what {
            What::Nan => "one nan",
            What::Zero => "one zero",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the name of the argument, so that columns keep their names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map(|number| number.schema_name().to_string()).unwrap_or_default())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(kind) => Ok(kind.clone()),
            None => Err(self.without_argument()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = args.arg_fields.first().ok_or_else(|| self.without_argument())?;
        Ok(Arc::new(Field::new(self.name(), field.data_type().clone(), field.is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match (args.args.into_iter().next(), self.what) {
            (Some(ColumnarValue::Array(array)), What::Nan) => Ok(ColumnarValue::Array(array_with_one_nan(array))),
            (Some(ColumnarValue::Array(array)), What::Zero) => Ok(ColumnarValue::Array(array_with_one_zero(array))),
            (Some(ColumnarValue::Scalar(value)), What::Nan) => Ok(ColumnarValue::Scalar(scalar_with_one_nan(value))),
            (Some(ColumnarValue::Scalar(value)), What::Zero) => {
                let zero = array_with_one_zero(value.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&zero, 0)?))
            }
            (None, _) => Err(self.without_argument()),
        }
    }
}
