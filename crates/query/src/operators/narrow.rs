//! Operators that join rows to batches of their own: batches have fewer rows where values have any width.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use crate::operators::multiplied::is_join;

/// Rows of a batch that an operator joins where values have any width.
pub(crate) const NARROW_ROWS: usize = 512;

/// Whether values of a type differ in their size.
pub(crate) fn has_any_width(data_type: &DataType) -> bool {
    data_type.is_nested() || data_type.is_string() || data_type.is_binary()
}

/// Whether an operator gives values that differ in their size.
pub(crate) fn gives_any_width(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.schema().fields().iter().any(|field| has_any_width(field.data_type()))
}

/// Whether an operator holds rows back, uncounted, until it has a full batch.
pub(crate) fn holds_back(node: &Arc<dyn ExecutionPlan>) -> bool {
    (node.is::<FilterExec>() || node.is::<RepartitionExec>()) && gives_any_width(node)
}

/// A filter knows the rows of its batches from when it is planned: the same filter with batches that are not too large.
///
/// # Errors
/// If the filter cannot be made.
pub(crate) fn narrowed(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<FilterExec>() {
        Some(filter) if gives_any_width(&node) => {
            Ok(Arc::new(filter.with_batch_size(filter.batch_size().min(NARROW_ROWS))?))
        }
        _ => Ok(node),
    }
}

/// The context of the operators below, which read batches as large as any.
struct Outer(Arc<TaskContext>);

/// The context in which an operator runs: smaller batches where it joins values of any width.
pub(crate) fn narrow(node: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Arc<TaskContext> {
    let joins = is_join(node.as_ref()) && node.children().into_iter().any(gives_any_width);
    let config = context.session_config();
    if !(joins || holds_back(node)) || config.batch_size() <= NARROW_ROWS {
        return context.clone();
    }
    let mut config = config.clone().with_batch_size(NARROW_ROWS);
    config.set_extension(Arc::new(Outer(context.clone())));
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

/// The context of what such an operator reads.
pub(crate) fn outer(context: Arc<TaskContext>) -> Arc<TaskContext> {
    context.session_config().get_extension::<Outer>().map_or(context, |outer| outer.0.clone())
}
