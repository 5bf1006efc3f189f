//! Checked integer arithmetic: a result out of its type's range is an error, as in PostgreSQL.
//!
//! DataFusion's operators wrap silently, including on constants evaluated during planning. Therefore, before any other
//! step, `+`, `-`, `*` and negation of integers are replaced by a function that checks each operation. The aggregates
//! `sum` and `avg` are replaced, too.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::error::{QueryError, sqlstate};
use crate::functions::float::{array_with_one_nan, scalar_with_one_nan};

mod mean;
mod sum;
#[cfg(test)]
mod tests;

/// Decimal digits of the widest integer.
const INTEGER_DIGITS: u8 = 20;

const HINT: &str = "Cast one of the numbers to a wider type before: bigint, numeric or double precision.";

/// Makes a session check its integers.
///
/// # Errors
/// If a function cannot be registered.
pub(super) fn check_integers(state: &mut SessionState) -> Result<()> {
    state.register_udaf(Arc::new(AggregateUDF::from(sum::ExactSum::default())))?;
    state.register_udaf(Arc::new(AggregateUDF::from(mean::ExactAvg::default())))?;
    state.register_function_rewrite(Arc::new(CheckIntegers))
}

/// Returns the error for a number out of its type's range.
pub(super) fn out_of_range(kind: &DataType, hint: &str) -> DataFusionError {
    let name = match kind {
        DataType::Int8 => "8-bit integer",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::UInt8 => "unsigned 8-bit integer",
        DataType::UInt16 => "unsigned 16-bit integer",
        DataType::UInt32 => "unsigned 32-bit integer",
        _ => "unsigned 64-bit integer",
    };
    QueryError::new(sqlstate::NUMERIC_OUT_OF_RANGE, format!("{name} out of range")).with_hint(hint).into_datafusion()
}

/// Rewrite that substitutes checked functions for operators.
#[derive(Debug)]
struct CheckIntegers;

impl FunctionRewrite for CheckIntegers {
    fn name(&self) -> &str {
        "check_integers"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => Ok(match common_type(&left, op, &right, schema) {
                Some(kind) => Transformed::yes(joined(*left, op, *right, kind)),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }),
            Expr::Negative(number) => match type_of(&number, schema).filter(DataType::is_signed_integer) {
                Some(kind) => negated(*number, kind).map(Transformed::yes),
                None => Ok(Transformed::no(Expr::Negative(number))),
            },
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Returns the type of an expression, if it has one.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    match as_checked(expr) {
        // Avoids inspecting everything below it.
        Some(checked) => Some(checked.kind.clone()),
        None => expr.get_type(schema).ok(),
    }
}

/// Returns the integer type of an operation that might wrap, or `None` for any other operation.
fn common_type(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<DataType> {
    if !matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) {
        return None;
    }
    let right = type_of(right, schema).filter(DataType::is_integer)?;
    let left = type_of(left, schema).filter(DataType::is_integer)?;
    let (left, right) = BinaryTypeCoercer::new(&left, &op, &right).get_input_types().ok()?;
    (left == right && left.is_integer()).then_some(left)
}

/// Returns the checked function that an expression calls, if any.
fn as_checked(expr: &Expr) -> Option<&Checked> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let inner: &dyn Any = call.func.inner().as_ref();
    inner.downcast_ref::<Checked>()
}

/// Appends an operation to those of the left side. As a tree, a chain would be inspected again at each of its levels.
fn joined(left: Expr, op: Operator, right: Expr, kind: DataType) -> Expr {
    let before = as_checked(&left).filter(|before| before.kind == kind).cloned();
    let (checked, mut args) = match (before, left) {
        (Some(before), Expr::ScalarFunction(call)) => (before, call.args),
        (_, left) => (Checked::new(kind), vec![left]),
    };
    args.push(right);
    checked.then(op).call(args)
}

/// Negates a number by subtracting it from 0.
fn negated(number: Expr, kind: DataType) -> Result<Expr> {
    let zero = Expr::Literal(ScalarValue::new_zero(&kind)?, None);
    let checked = Checked { negates: true, ..Checked::new(kind) };
    Ok(checked.then(Operator::Minus).call(vec![zero, number]))
}

/// Operations on numbers, from left to right, which were found to be integers of one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Checked {
    /// All operators, joined. No statement can call a function of this name.
    name: String,
    kind: DataType,
    /// Operation for each argument but the first.
    ops: Vec<Operator>,
    /// Whether the first argument is the 0 of a negation.
    negates: bool,
    signature: Signature,
}

impl Checked {
    fn new(kind: DataType) -> Checked {
        let signature = Signature::user_defined(Volatility::Immutable);
        Checked { name: String::new(), kind, ops: Vec::new(), negates: false, signature }
    }

    fn then(mut self, op: Operator) -> Checked {
        if !self.ops.is_empty() {
            self.name.push(' ');
        }
        self.name.push_str(&op.to_string());
        self.ops.push(op);
        self
    }

    fn call(self, args: Vec<Expr>) -> Expr {
        Expr::ScalarFunction(ScalarFunction { func: Arc::new(ScalarUDF::from(self)), args })
    }

    /// Returns the types of arguments and of the result for arguments of these types. They are other than integers if
    /// branches of a CASE, or inputs of a UNION, turned out to have a type in common that holds more.
    fn types_for(&self, arg_types: &[DataType]) -> Result<(Vec<DataType>, DataType)> {
        let is_number = |kind: &DataType| kind.is_numeric() || kind.is_null();
        if !arg_types.iter().all(is_number) {
            return Ok((vec![self.kind.clone(); arg_types.len()], self.kind.clone()));
        }
        let has_float = arg_types.iter().any(DataType::is_floating);
        let has_decimal = !has_float && arg_types.iter().any(DataType::is_decimal);
        let typed = |kind: &DataType| match if kind.is_null() { &self.kind } else { kind } {
            kind if has_float && kind.is_decimal() => DataType::Float64,
            kind if has_decimal && kind.is_integer() => DataType::Decimal128(INTEGER_DIGITS, 0),
            kind => kind.clone(),
        };
        let mut types: Vec<DataType> = arg_types.iter().map(typed).collect();
        let Some(mut result) = types.first().cloned() else { return Ok((types, self.kind.clone())) };
        for (op, right) in self.ops.iter().zip(&types[1..]) {
            let coercer = BinaryTypeCoercer::new(&result, op, right);
            // Each operation has decimals of its own; all others compute in one type.
            result = if has_decimal { coercer.get_result_type()? } else { coercer.get_input_types()?.0 };
        }
        if !has_decimal {
            types.fill(result.clone());
        }
        Ok((types, result))
    }

    fn step(&self, left: &ColumnarValue, op: Operator, right: &ColumnarValue) -> Result<ColumnarValue> {
        let result = match op {
            Operator::Plus => apply(left, right, add),
            Operator::Minus => apply(left, right, sub),
            Operator::Multiply => apply(left, right, mul),
            other => return Err(DataFusionError::Internal(format!("{other} is not checked"))),
        };
        let leaves = |error: &ArrowError| matches!(error, ArrowError::ArithmeticOverflow(_));
        match result {
            Err(DataFusionError::ArrowError(error, _)) if leaves(error.as_ref()) && left.data_type().is_integer() => {
                Err(out_of_range(&left.data_type(), HINT))
            }
            result => result,
        }
    }
}

fn negative(number: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match number {
        ColumnarValue::Array(numbers) => ColumnarValue::Array(neg(numbers)?),
        ColumnarValue::Scalar(number) => ColumnarValue::Scalar(number.arithmetic_negate()?),
    })
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        &self.name
    }

    /// Matches the operators, so that columns keep their names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let mut names = args.iter().map(|arg| arg.schema_name().to_string());
        let mut ops = self.ops.iter();
        let mut name = names.next().unwrap_or_default();
        if self.negates {
            ops.next();
            name = format!("(- {})", names.next().unwrap_or_default());
        }
        for (op, next) in ops.zip(names) {
            name.push_str(&format!(" {op} {next}"));
        }
        Ok(name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(self.types_for(arg_types)?.0)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.types_for(arg_types)?.1)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(&self.name, self.types_for(&types)?.1, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut args = args.args.into_iter();
        let Some(mut result) = args.next() else {
            return Err(DataFusionError::Internal(format!("{} has arguments", self.name)));
        };
        for (at, (op, next)) in self.ops.iter().zip(args).enumerate() {
            // Subtracted from 0, a float zero would lose its sign.
            result = if self.negates && at == 0 && next.data_type().is_floating() {
                negative(&next)?
            } else {
                self.step(&result, *op, &next)?
            };
        }
        Ok(match result {
            ColumnarValue::Array(array) => ColumnarValue::Array(array_with_one_nan(array)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(scalar_with_one_nan(value)),
        })
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        let types: Vec<DataType> = inputs.iter().map(|input| input.data_type()).collect();
        Interval::make_unbounded(&self.types_for(&types)?.1)
    }
}
