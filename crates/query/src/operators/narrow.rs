//! Reduces the batch size of operators that build their own batches from values of variable width.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use crate::operators::multiplied::is_join;

/// Maximum rows of such a batch.
pub(crate) const NARROW_ROWS: usize = 512;

/// Reports whether values of a type vary in size.
pub(crate) fn has_any_width(data_type: &DataType) -> bool {
    data_type.is_nested() || data_type.is_string() || data_type.is_binary()
}

/// Reports whether an operator returns values that vary in size.
pub(crate) fn gives_any_width(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.schema().fields().iter().any(|field| has_any_width(field.data_type()))
}

/// Reports whether an operator holds rows back, uncounted, until it has a full batch.
pub(crate) fn holds_back(node: &Arc<dyn ExecutionPlan>) -> bool {
    (node.is::<FilterExec>() || node.is::<RepartitionExec>()) && gives_any_width(node)
}

/// Returns the same filter with bounded batches, because a filter's batch size is fixed when it is planned.
///
/// # Errors
/// If the filter cannot be created.
pub(crate) fn narrowed(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<FilterExec>() {
        Some(filter) if gives_any_width(&node) => {
            Ok(Arc::new(filter.with_batch_size(filter.batch_size().min(NARROW_ROWS))?))
        }
        _ => Ok(node),
    }
}

/// Context of the operators below, which use full batches.
struct Outer(Arc<TaskContext>);

/// Returns the context in which an operator runs, with smaller batches if it combines values of variable width.
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

/// Returns the context for the input of such an operator.
pub(crate) fn outer(context: Arc<TaskContext>) -> Arc<TaskContext> {
    context.session_config().get_extension::<Outer>().map_or(context, |outer| outer.0.clone())
}
