//! Filters that a scan applies exactly: ranges of `time` and conditions on tags.
//!
//! `time` is floored to microseconds, in values and in predicates: `time = x` holds for every frame in that
//! microsecond, and `time > x` begins with the next one. `time_ns` is exact.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use strongback_store::Stream;

use crate::table::column::{ColumnSource, FrameTime, TableColumn, floor_micros, tag_column};

/// Range of all times, for a scan without a filter.
pub(crate) const ALL_TIMES: Range<i64> = i64::MIN..i64::MAX;

/// Empty range.
pub(crate) const NO_TIME: Range<i64> = 0..0;

/// Returns the intersection of two ranges.
pub(crate) fn intersect(a: Range<i64>, b: Range<i64>) -> Range<i64> {
    let both = a.start.max(b.start)..a.end.min(b.end);
    if both.start < both.end { both } else { NO_TIME }
}

/// Returns the nanoseconds for which `column op value` holds, for a `time` in microseconds or a `time_ns`. Returns
/// `None` for an operator that does not define a range.
pub(crate) fn comparison_range(micros: bool, op: Operator, value: i64) -> Option<Range<i64>> {
    // The end of a scan is exclusive; i64::MAX itself is outside the range of the store.
    let (first, next) = if micros {
        (value.saturating_mul(1_000), value.saturating_add(1).saturating_mul(1_000))
    } else {
        (value, value.saturating_add(1))
    };
    Some(match op {
        Operator::Eq => first..next,
        Operator::Gt => next..i64::MAX,
        Operator::GtEq => first..i64::MAX,
        Operator::Lt => i64::MIN..first,
        Operator::LtEq => i64::MIN..next,
        _ => return None,
    })
}

/// Returns the operator with its sides exchanged.
pub(crate) fn flipped(op: Operator) -> Option<Operator> {
    Some(match op {
        Operator::Eq => Operator::Eq,
        Operator::Gt => Operator::Lt,
        Operator::GtEq => Operator::LtEq,
        Operator::Lt => Operator::Gt,
        Operator::LtEq => Operator::GtEq,
        _ => return None,
    })
}

/// Returns `Some(true)` for `time`, `Some(false)` for `time_ns`, and `None` for any other column.
pub(crate) fn time_column(column: &TableColumn) -> Option<bool> {
    match column.source {
        ColumnSource::Micros(FrameTime::Time) => Some(true),
        ColumnSource::Nanos(FrameTime::Time) => Some(false),
        _ => None,
    }
}

/// Returns the nanoseconds that a filter admits, if it restricts only `time`.
pub(crate) fn time_range(filter: &Expr, columns: &[TableColumn]) -> Option<Range<i64>> {
    let side = |expr: &Expr| match expr {
        Expr::Column(column) => columns.iter().find(|c| c.name == column.name).and_then(time_column),
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            Some(intersect(time_range(left, columns)?, time_range(right, columns)?))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (micros, op, literal) = match (side(left), side(right)) {
                (Some(micros), None) => (micros, *op, right),
                (None, Some(micros)) => (micros, flipped(*op)?, left),
                _ => return None,
            };
            match literal_time(literal, micros)? {
                Some(value) => comparison_range(micros, op, value),
                None => comparison_range(micros, op, 0).map(|_| NO_TIME),
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let micros = side(expr)?;
            let (Some(low), Some(high)) = (literal_time(low, micros)?, literal_time(high, micros)?) else {
                return Some(NO_TIME);
            };
            Some(intersect(
                comparison_range(micros, Operator::GtEq, low)?,
                comparison_range(micros, Operator::LtEq, high)?,
            ))
        }
        _ => None,
    }
}

/// Returns a literal in the unit of its column. The inner `None` is SQL's NULL.
fn literal_time(expr: &Expr, micros: bool) -> Option<Option<i64>> {
    let Expr::Literal(value, _) = expr else { return None };
    match value {
        ScalarValue::TimestampMicrosecond(value, _) if micros => Some(*value),
        // Finer literals are floored like the column itself.
        ScalarValue::TimestampNanosecond(value, _) if micros => Some(value.map(floor_micros)),
        ScalarValue::Int64(value) if !micros => Some(*value),
        other if other.is_null() => Some(None),
        _ => None,
    }
}

/// Reports whether a filter depends only on tags and is deterministic.
pub(crate) fn is_tag_filter(filter: &Expr, columns: &[TableColumn]) -> bool {
    let references = filter.column_refs();
    !references.is_empty()
        && !filter.is_volatile()
        && !has_subquery(filter)
        && references.iter().all(|reference| {
            columns.iter().any(|c| c.name == reference.name && matches!(c.source, ColumnSource::Tag(_)))
        })
}

fn has_subquery(filter: &Expr) -> bool {
    use datafusion::common::tree_node::TreeNode;
    filter
        .exists(|e| {
            Ok(matches!(
                e,
                Expr::ScalarSubquery(_)
                    | Expr::InSubquery(_)
                    | Expr::Exists(_)
                    | Expr::SetComparison(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::Placeholder(_)
            ))
        })
        .unwrap_or(true)
}

/// Returns the streams whose tags pass all filters, by evaluating the filters on a table of the tags.
pub(crate) fn streams_with_tags(
    session: &dyn Session,
    filters: Vec<Expr>,
    columns: &[TableColumn],
    streams: &[Arc<Stream>],
) -> Result<Vec<Arc<Stream>>> {
    let Some(filter) = conjunction(filters.into_iter().map(without_qualifiers)) else { return Ok(streams.to_vec()) };
    let tags: Vec<&TableColumn> = columns.iter().filter(|c| matches!(c.source, ColumnSource::Tag(_))).collect();
    let schema =
        Arc::new(Schema::new(tags.iter().map(|c| Field::new(&c.name, c.data_type(), true)).collect::<Vec<_>>()));
    let arrays = tags
        .iter()
        .map(|c| match &c.source {
            ColumnSource::Tag(tag) => tag_column(tag, streams),
            _ => unreachable!("only tags were taken"),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(streams.len()));
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
    let expression = session.create_physical_expr(filter, &DFSchema::try_from(schema)?)?;
    let passes = expression.evaluate(&batch)?.into_array(streams.len())?;
    let passes = passes.as_boolean();
    Ok(streams.iter().zip(passes.iter()).filter(|(_, pass)| *pass == Some(true)).map(|(s, _)| s.clone()).collect())
}

fn without_qualifiers(filter: Expr) -> Expr {
    use datafusion::common::Column;
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let plain = filter.clone().transform(|e| {
        Ok(match e {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new_unqualified(column.name))),
            other => Transformed::no(other),
        })
    });
    plain.map_or(filter, |t| t.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micros_are_floored_in_predicates() {
        let us = |op, value| comparison_range(true, op, value).unwrap();
        assert_eq!(us(Operator::Eq, 5), 5_000..6_000);
        assert_eq!(us(Operator::Gt, 5), 6_000..i64::MAX);
        assert_eq!(us(Operator::GtEq, 5), 5_000..i64::MAX);
        assert_eq!(us(Operator::Lt, 5), i64::MIN..5_000);
        assert_eq!(us(Operator::LtEq, 5), i64::MIN..6_000);
        // Before 1970, flooring rounds down, not towards zero: −1 ns is in microsecond −1.
        assert_eq!(us(Operator::Eq, -1), -1_000..0);
        assert_eq!(floor_micros(-1), -1);
        assert_eq!(comparison_range(false, Operator::Gt, 5), Some(6..i64::MAX));
        assert_eq!(comparison_range(true, Operator::NotEq, 5), None);
    }

    #[test]
    fn extremes_saturate_instead_of_wrapping() {
        assert_eq!(comparison_range(true, Operator::Gt, i64::MAX), Some(i64::MAX..i64::MAX));
        assert_eq!(comparison_range(true, Operator::GtEq, i64::MIN), Some(i64::MIN..i64::MAX));
        assert_eq!(intersect(0..5, 5..9), NO_TIME);
    }
}
