//! Values known only at run time and equal in every row: those of subqueries, and long constants.
//!
//! An operator that puts such a value into its rows receives fewer of them at a time. An operator that first
//! concatenates rows of many batches is counted for all of them.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{InListExpr, Literal};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use parking_lot::Mutex;

use crate::error::{QueryError, sqlstate};
use crate::operators::multiplied::{MADE_BYTES, Made, is_join};
use crate::operators::narrow::{NARROW_ROWS, has_any_width};
use crate::running::size::Size;

/// Bytes of the values of one row that exceed the memory of any query.
const ENOUGH_BYTES: usize = 1 << 30;

/// Values that an operator evaluates once per batch and puts into each of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Repeated {
    values: Vec<Arc<dyn PhysicalExpr>>,
    /// Total size of the values, in bytes.
    bytes: Arc<OnceLock<usize>>,
    /// Maximum rows evaluated together; `None` for those of the input batch.
    rows: Option<usize>,
}

impl Repeated {
    /// Returns the values that an operator repeats, or `None` if none of them may be large.
    pub(crate) fn by(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Repeated>> {
        let mut values = Vec::new();
        let schema = node.schema();
        node.apply_expressions(&mut |expr| {
            if collect(expr, &schema, &mut values)? {
                take(expr, &schema, &mut values)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let by_batch = node.is::<ProjectionExec>() || node.is::<FilterExec>() || node.is::<AggregateExec>();
        let rows = match (by_batch, is_join(node.as_ref())) {
            (true, _) => None,
            (false, true) => Some(NARROW_ROWS),
            (false, false) => Some(usize::MAX),
        };
        Ok((!values.is_empty()).then(|| Repeated { values, bytes: Arc::default(), rows }))
    }

    /// Returns the size of the repeated values of a row, in bytes.
    fn row_bytes(&self, batch: &RecordBatch) -> usize {
        if batch.num_rows() == 0 {
            return 0;
        }
        *self.bytes.get_or_init(|| {
            let row = batch.slice(0, 1);
            // A failure here recurs where the value is needed, if it is.
            let size = |value: &Arc<dyn PhysicalExpr>| match value.evaluate(&row) {
                Ok(ColumnarValue::Scalar(value)) => value.size(),
                Ok(ColumnarValue::Array(values)) => Size::of(&values).total,
                Err(_) => 0,
            };
            let mut bytes = 0_usize;
            for value in &self.values {
                bytes = bytes.saturating_add(size(value));
                // Evaluating more of them changes nothing.
                if bytes > ENOUGH_BYTES {
                    break;
                }
            }
            bytes
        })
    }

    /// Returns the limits and estimate for a batch, after `before` rows.
    pub(crate) fn measure(&self, batch: &RecordBatch, before: u64) -> Made {
        let bytes = self.row_bytes(batch);
        let cut = (MADE_BYTES / bytes.max(1)).max(1);
        match self.rows {
            None => Made { rows: cut, bytes: bytes.saturating_mul(2 * cut.min(batch.num_rows())) },
            Some(most) => {
                let rows = usize::try_from(before).unwrap_or(usize::MAX).saturating_add(batch.num_rows()).min(most);
                Made { rows: usize::MAX, bytes: bytes.saturating_mul(rows).saturating_mul(2) }
            }
        }
    }
}

/// Reports whether an expression is equal for all rows. If not, collects its parts that are.
fn collect(expr: &Arc<dyn PhysicalExpr>, schema: &Schema, values: &mut Vec<Arc<dyn PhysicalExpr>>) -> Result<bool> {
    let parts = expr.children();
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        // The list is compared with, never put into rows.
        return collect(list.expr(), schema, values).and_then(|constant| {
            if constant {
                take(list.expr(), schema, values)?;
            }
            Ok(false)
        });
    }
    if parts.is_empty() {
        return Ok(expr.is::<Literal>() || expr.is::<ScalarSubqueryExpr>() || expr.is::<ScalarFunctionExpr>());
    }
    let mut constant = Vec::with_capacity(parts.len());
    for part in &parts {
        constant.push(collect(part, schema, values)?);
    }
    if constant.iter().all(|constant| *constant) {
        return Ok(true);
    }
    for (part, _) in parts.into_iter().zip(constant).filter(|(_, constant)| *constant) {
        take(part, schema, values)?;
    }
    Ok(false)
}

/// Collects a value of variable width that is not known before the query runs.
fn take(value: &Arc<dyn PhysicalExpr>, schema: &Schema, values: &mut Vec<Arc<dyn PhysicalExpr>>) -> Result<()> {
    if !value.is::<Literal>() && has_any_width(&value.data_type(schema)?) {
        values.push(value.clone());
    }
    Ok(())
}

/// Results of a query's subqueries, counted for as long as it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    held: Arc<Mutex<Option<MemoryReservation>>>,
    /// Maximum total size in bytes, if they are shown with the plan.
    most: Option<usize>,
}

impl Results {
    /// Creates an account of results, with a maximum size if `most` is given.
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
