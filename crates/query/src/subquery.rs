//! Values of subqueries that stand in expressions: a subquery runs once, its value stands in every row.
//!
//! The value is known only when the query runs. An operator that puts it into its rows is handed fewer of them at a
//! time; one that joins rows of many batches first is counted for all of them.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use parking_lot::Mutex;

use crate::error::{QueryError, sqlstate};
use crate::multiplied::{MADE_BYTES, Made, is_join};
use crate::narrow::{NARROW_ROWS, has_any_width};

/// Values of subqueries that an operator puts into its rows.
#[derive(Clone, Debug)]
pub(crate) struct Repeated {
    values: Vec<Arc<dyn PhysicalExpr>>,
    /// Most rows that it works out together; none: those of the batch that it is handed.
    rows: Option<usize>,
}

impl Repeated {
    /// What an operator repeats; none if it reads no value of a subquery that may be large.
    pub(crate) fn by(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Repeated>> {
        let mut values: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        let schema = node.schema();
        node.apply_expressions(&mut |expr| {
            expr.apply(|part| {
                if part.is::<ScalarSubqueryExpr>() && has_any_width(&part.data_type(&schema)?) {
                    values.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        let by_batch = node.is::<ProjectionExec>() || node.is::<FilterExec>() || node.is::<AggregateExec>();
        let rows = match (by_batch, is_join(node.as_ref())) {
            (true, _) => None,
            (false, true) => Some(NARROW_ROWS),
            (false, false) => Some(usize::MAX),
        };
        Ok((!values.is_empty()).then_some(Repeated { values, rows }))
    }

    /// What a batch comes to, after `before` rows.
    pub(crate) fn measure(&self, batch: &RecordBatch, before: u64) -> Result<Made> {
        let mut bytes = 0_usize;
        for value in &self.values {
            if let ColumnarValue::Scalar(value) = value.evaluate(batch)? {
                bytes = bytes.saturating_add(value.size());
            }
        }
        let cut = (MADE_BYTES / bytes.max(1)).max(1);
        Ok(match self.rows {
            None => Made { rows: cut, bytes: bytes.saturating_mul(2 * cut.min(batch.num_rows())) },
            Some(most) => {
                let rows = usize::try_from(before).unwrap_or(usize::MAX).saturating_add(batch.num_rows()).min(most);
                Made { rows: usize::MAX, bytes: bytes.saturating_mul(rows).saturating_mul(2) }
            }
        })
    }
}

/// The results of the subqueries of a query, counted for as long as it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    held: Arc<Mutex<Option<MemoryReservation>>>,
    /// Most of them together, in bytes, where they are shown with the plan.
    most: Option<usize>,
}

impl Results {
    /// Results that are counted, and are at most so large.
    pub(crate) fn new(most: Option<usize>) -> Results {
        Results { most, ..Results::default() }
    }

    /// Counts the result of one subquery.
    ///
    /// # Errors
    /// If all of them together are too large.
    pub(crate) fn add(&self, bytes: usize, context: &TaskContext) -> Result<()> {
        let mut held = self.held.lock();
        let register = || MemoryConsumer::new("results of subqueries").register(context.memory_pool());
        let held = held.get_or_insert_with(register);
        held.try_grow(bytes)?;
        match self.most {
            Some(most) if held.size() > most => {
                let text =
                    format!("subqueries give {} bytes, at most {most} in a statement that is explained", held.size());
                Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion())
            }
            _ => Ok(()),
        }
    }
}
