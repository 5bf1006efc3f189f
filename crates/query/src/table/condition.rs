//! Conditions of a filter that the store can decide by the statistics of its blocks: comparisons of a channel of numbers
//! with a constant.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, IsNotNullExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use strongback_store::{ChannelType, Condition, StreamId, Value};

use crate::table::column::{ColumnSource, TableColumn};
use crate::table::filter::flipped;

/// Condition on a column of a table.
#[derive(Clone, Debug)]
pub(crate) struct ColumnCondition {
    column: TableColumn,
    low: Bound<Value<'static>>,
    high: Bound<Value<'static>>,
}

impl ColumnCondition {
    /// Returns the condition of a stream, whose first `known` channels can be read; `None` if it lacks the channel, and
    /// so has no row that fulfils the condition.
    pub(crate) fn of_stream(&self, stream: StreamId, known: usize) -> Option<Condition> {
        let channel = self.column.channel(stream).filter(|index| (index.0 as usize) < known)?;
        Some(Condition { channel, low: self.low, high: self.high })
    }
}

/// Returns the conditions of which a predicate over these columns consists, or `None` if it has any other.
pub(crate) fn conditions(predicate: &Arc<dyn PhysicalExpr>, columns: &[TableColumn]) -> Option<Vec<ColumnCondition>> {
    split_conjunction(predicate).into_iter().map(|part| condition(part, columns)).collect()
}

/// Returns those conditions that a predicate over these columns consists of, beside any others.
pub(crate) fn conditions_among(predicate: &Arc<dyn PhysicalExpr>, columns: &[TableColumn]) -> Vec<ColumnCondition> {
    split_conjunction(predicate).into_iter().filter_map(|part| condition(part, columns)).collect()
}

fn condition(part: &Arc<dyn PhysicalExpr>, columns: &[TableColumn]) -> Option<ColumnCondition> {
    if let Some(part) = part.downcast_ref::<IsNotNullExpr>() {
        let (column, _) = number_column(part.arg(), columns)?;
        return Some(ColumnCondition { column, low: Bound::Unbounded, high: Bound::Unbounded });
    }
    let part = part.downcast_ref::<BinaryExpr>()?;
    let (of, op, constant) = match (part.left().downcast_ref::<Literal>(), part.right().downcast_ref::<Literal>()) {
        (None, Some(constant)) => (part.left(), *part.op(), constant),
        (Some(constant), None) => (part.right(), flipped(*part.op())?, constant),
        _ => return None,
    };
    let (column, kind) = number_column(of, columns)?;
    let value = number(constant.value(), kind)?;
    let (low, high) = match op {
        Operator::Eq => (Bound::Included(value), Bound::Included(value)),
        Operator::Gt => (Bound::Excluded(value), Bound::Unbounded),
        Operator::GtEq => (Bound::Included(value), Bound::Unbounded),
        Operator::Lt => (Bound::Unbounded, Bound::Excluded(value)),
        Operator::LtEq => (Bound::Unbounded, Bound::Included(value)),
        _ => return None,
    };
    Some(ColumnCondition { column, low, high })
}

/// Returns the column of numbers that an expression is, and its type; also if it is cast to a wider one that compares
/// alike.
fn number_column(of: &Arc<dyn PhysicalExpr>, columns: &[TableColumn]) -> Option<(TableColumn, ChannelType)> {
    use ChannelType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let (inner, cast) = match of.downcast_ref::<CastExpr>() {
        Some(cast) => (cast.expr(), Some(cast.cast_type())),
        None => (of, None),
    };
    let column = columns.get(inner.downcast_ref::<Column>()?.index())?;
    let ColumnSource::Channel { channel_type, .. } = column.source else { return None };
    let is_alike = matches!(
        (channel_type, cast),
        (F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64, None)
            | (F32, Some(DataType::Float64))
            | (I8 | I16 | I32 | U8 | U16 | U32, Some(DataType::Int32 | DataType::Int64))
    );
    is_alike.then(|| (column.clone(), channel_type))
}

/// Returns a constant as a number that compares exactly with values of a type.
fn number(constant: &ScalarValue, kind: ChannelType) -> Option<Value<'static>> {
    let is_float = kind.is_float();
    match *constant {
        ScalarValue::Float32(Some(value)) if is_float && !value.is_nan() => Some(Value::F64(value.into())),
        ScalarValue::Float64(Some(value)) if is_float && !value.is_nan() => Some(Value::F64(value)),
        ScalarValue::Int16(Some(value)) if !is_float => Some(Value::I64(value.into())),
        ScalarValue::Int32(Some(value)) if !is_float => Some(Value::I64(value.into())),
        ScalarValue::Int64(Some(value)) if !is_float => Some(Value::I64(value)),
        ScalarValue::Decimal128(Some(value), _, 0) if kind == ChannelType::U64 => {
            u64::try_from(value).ok().map(Value::U64)
        }
        _ => None,
    }
}
