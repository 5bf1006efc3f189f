//! Guards between the operators of a running query, which count what passes and cut it to batches of bounded size.
//!
//! Operators hold batches that no memory pool knows of: in flight, collected, or multiplied. A guard after each
//! operator counts the batch in flight, so that the next one starts from bounded input. Before a window, it counts
//! everything the window keeps. Windows and sorts evaluate their expressions for many batches together; before them,
//! the guard counts the size of a constant, or of a repeated value, in all these rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ColumnarValue, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode, PlanProperties,
};
use datafusion::prelude::Expr;
use futures::{Stream, StreamExt};

use crate::error::{QueryError, sqlstate};
use crate::operators::multiplied::{Made, Multiplied, is_join};
use crate::operators::narrow::{NARROW_ROWS, has_any_width, holds_back, narrow, narrowed, outer};
use crate::operators::subquery::{Repeated, Results};
use crate::running::size::Size;
use crate::sql::sized;

/// Maximum batch passed on, in bytes. Larger ones are cut by rows.
const BATCH_BYTES: usize = 16 << 20;
/// Maximum size of a row, in bytes.
const ROW_BYTES_MAX: usize = 64 << 20;
/// Minimum size of a batch in flight to be counted, in bytes.
const COUNTED_BYTES: usize = 256 << 10;
/// Size of a full batch whose rows are all as wide as the widest, in bytes, beyond which rows are wide.
const FULL_BATCH_BYTES: usize = 512 << 20;
/// Maximum bytes of wide rows that may pass one operator.
const WIDE_BYTES_MAX: usize = 256 << 20;
/// Maximum rows of a batch if values are lists.
const LIST_BATCH_ROWS: usize = 1_024;
/// Maximum bytes that an operator evaluates for a full batch: results for each row, and its constants.
const WORKED_OUT_BYTES: usize = 32 << 20;
/// Size of an expression's result in a row, in bytes, for a number or a view of a text.
const RESULT_BYTES: usize = 16;
/// An aggregate that allocates its state for each group without counting it first.
const APPROX_DISTINCT: &str = "approx_distinct";
/// Size of the state of that aggregate, in bytes.
const APPROX_DISTINCT_BYTES: usize = 16 << 10;
/// Maximum time that a leaf or a join works before it yields.
const WORK: Duration = Duration::from_millis(10);
/// Maximum rows of a frame that a window may keep uncounted.
const FRAME_ROWS: u64 = 100_000;
/// Maximum rows that a sort concatenates before it evaluates its keys: the narrowest rows in a mebibyte.
const SORT_ROWS: u64 = (1 << 20) / 8;

/// Maximum bytes of constants in an explained statement, because the plan is written once for each optimiser rule.
const EXPLAINED_BYTES_MAX: usize = 256 << 10;

/// Rejects an explained statement with long constants.
pub(crate) fn check_explained(plan: &LogicalPlan, state: &SessionState) -> Result<()> {
    let inner = match plan {
        LogicalPlan::Explain(explain) => &explain.plan,
        LogicalPlan::Analyze(analyze) => &analyze.input,
        _ => return Ok(()),
    };
    let mut bytes = 0_usize;
    state.optimize(inner)?.apply_with_subqueries(|node| {
        bytes = bytes.saturating_add(constants_of(node)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if bytes > EXPLAINED_BYTES_MAX {
        let text =
            format!("constants of {bytes} bytes, at most {EXPLAINED_BYTES_MAX} in a statement that is explained");
        return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion());
    }
    Ok(())
}

/// Returns the bytes of the constants in a node's expressions.
fn constants_of(node: &LogicalPlan) -> Result<usize> {
    let mut bytes = 0_usize;
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            if let Expr::Literal(value, _) = expr {
                bytes = bytes.saturating_add(constant_bytes(value));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(bytes)
}

/// Returns the rows per batch of a plan: fewer if lists, or the values that its operators evaluate for each row, would
/// make a full batch too large.
pub(crate) fn batch_rows(plan: &LogicalPlan, rows: usize) -> Result<usize> {
    let (mut bytes, mut lists) = (0_usize, false);
    plan.apply_with_subqueries(|node| {
        lists |= node.schema().fields().iter().any(|field| field.data_type().is_nested());
        if matches!(node, LogicalPlan::Values(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let mut own = 0_usize;
        let has_groups = !matches!(node, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                // The list is compared with, never put into rows.
                if matches!(expr, Expr::InList(_)) {
                    return Ok(TreeNodeRecursion::Jump);
                }
                own = own.saturating_add(row_bytes(expr, has_groups));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        bytes = bytes.max(own);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let most = if lists { rows.min(LIST_BATCH_ROWS) } else { rows };
    Ok((WORKED_OUT_BYTES / bytes.max(1)).clamp(1, most))
}

/// Returns the bytes that an expression itself makes for each row, which may be a group of its own, as far as known
/// without its values.
fn row_bytes(expr: &Expr, has_groups: bool) -> usize {
    let cast = |data_type| sized::fixed_bytes(data_type).max(RESULT_BYTES);
    match expr {
        Expr::Literal(value, _) => constant_bytes(value),
        Expr::Column(_) | Expr::Alias(_) => 0,
        Expr::Cast(to) => cast(to.field.data_type()),
        Expr::TryCast(to) => cast(to.field.data_type()),
        Expr::AggregateFunction(call) if has_groups && call.func.name() == APPROX_DISTINCT => APPROX_DISTINCT_BYTES,
        Expr::WindowFunction(call) if call.fun.name() == APPROX_DISTINCT => APPROX_DISTINCT_BYTES,
        _ => RESULT_BYTES,
    }
}

fn constant_bytes(value: &ScalarValue) -> usize {
    match value.try_as_str() {
        Some(text) => text.map_or(0, str::len),
        None if value.data_type().is_nested() || matches!(value.data_type(), DataType::Binary) => value.size(),
        None => 0,
    }
}

/// Inserts guards into a plan.
pub(crate) fn guard(plan: Arc<dyn ExecutionPlan>, batch_rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let results = Results::new(plan.is::<AnalyzeExec>().then_some(EXPLAINED_BYTES_MAX));
    let plan = plan.transform_up(|node| {
        let node = narrowed(node)?;
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = node.children().into_iter().cloned().collect();
        let repeated = Repeated::by(&node)?;
        let taken = taken_by(&node, batch_rows, &results)?;
        if repeated.is_none() && taken.is_empty() {
            return Ok(Transformed::yes(Arc::new(Guard::new(node)) as Arc<dyn ExecutionPlan>));
        }
        for (at, input) in inputs.iter_mut().enumerate() {
            let own = repeated.clone().map(Taken::Repeated);
            for taken in own.into_iter().chain(taken.get(at).cloned().flatten()) {
                *input = Arc::new(Guard { taken: Some(taken), ..Guard::new(input.clone()) });
            }
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let node = node.replace_children(inputs, options)?;
        Ok(Transformed::yes(Arc::new(Guard::new(node)) as Arc<dyn ExecutionPlan>))
    });
    let plan = plan.data()?;
    Ok(match plan.output_partitioning().partition_count() {
        0 | 1 => plan,
        _ => Arc::new(Guard::new(Arc::new(CoalescePartitionsExec::new(plan)))),
    })
}

/// Returns what an operator takes memory for, for each of its inputs. Empty if there is nothing to count.
fn taken_by(node: &Arc<dyn ExecutionPlan>, batch_rows: usize, results: &Results) -> Result<Vec<Option<Taken>>> {
    let inputs = node.children().len();
    if let Some(keeps) = kept_by(node, batch_rows)? {
        return Ok(vec![Some(Taken::Kept(keeps)); inputs]);
    }
    if node.is::<ScalarSubqueryExec>() {
        // The first input is the query itself.
        let of_subquery = |at| (at > 0).then(|| Taken::Result(results.clone()));
        return Ok((0..inputs).map(of_subquery).collect());
    }
    if holds_back(node) {
        let count = |node: &dyn ExecutionPlan| node.output_partitioning().partition_count();
        let read: usize = node.children().iter().map(|input| count(input.as_ref())).sum();
        let rows = NARROW_ROWS.min(batch_rows).saturating_mul(count(node.as_ref())).div_ceil(read.max(1));
        return Ok(vec![Some(Taken::HeldBack { rows }); inputs]);
    }
    Ok(Multiplied::by(node).into_iter().flatten().map(|multiplied| Some(Taken::Multiplied(multiplied))).collect())
}

/// Memory that the operator above takes and does not count itself.
#[derive(Clone, Debug)]
enum Taken {
    /// Rows kept by a window or a sort.
    Kept(Keeps),
    /// Rows made by a join or an unnest.
    Multiplied(Multiplied),
    /// Rows held back by a filter or a repartitioning for a batch that is not full, and the batch.
    HeldBack { rows: usize },
    /// Values that an operator puts into each row.
    Repeated(Repeated),
    /// Result of a subquery, held by the query around it.
    Result(Results),
}

/// Memory for the input of a window or a sort, as far as the operator does not count it itself.
#[derive(Clone, Debug, Default)]
struct Keeps {
    /// Number of times each row is held.
    times: usize,
    /// Number of rows whose values each row collects into one of its own, if any.
    collects: Option<u64>,
    /// Maximum rows for which an expression is evaluated at a time.
    rows: u64,
    /// Bytes per such row for constants, once in an argument and once in a result, and for evaluated sort keys.
    constant_bytes: usize,
    /// Bytes of states that a window makes for each partition of its rows and does not release.
    state_bytes: usize,
    /// Arguments with values of variable width.
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Number of times the values of these arguments are held.
    arguments_times: usize,
    /// Whether each evaluated row may hold the widest of them.
    repeats: bool,
}

impl Keeps {
    /// Adds the constants of an expression.
    fn take_constants(&mut self, expr: &Arc<dyn PhysicalExpr>) {
        // Only the closure can fail, and it does not.
        let _ = expr.apply(|part| {
            if let Some(constant) = part.downcast_ref::<Literal>() {
                let bytes = 2 * constant_bytes(constant.value());
                self.constant_bytes = self.constant_bytes.saturating_add(bytes);
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }

    /// Measures the arguments for the rows of a batch.
    fn measure(&self, batch: &RecordBatch) -> Result<Size> {
        let mut all = Size::default();
        for argument in &self.arguments {
            let size = match argument.evaluate(batch)? {
                ColumnarValue::Array(values) => Size::of(&values),
                ColumnarValue::Scalar(value) => {
                    let widest = constant_bytes(&value);
                    Size { total: widest.saturating_mul(batch.num_rows()), widest, ..Size::default() }
                }
            };
            all.total = all.total.saturating_add(size.total);
            all.widest = all.widest.saturating_add(size.widest);
        }
        Ok(all)
    }
}

fn kept_by(node: &Arc<dyn ExecutionPlan>, batch_rows: usize) -> Result<Option<Keeps>> {
    let sort = node.downcast_ref::<SortExec>().map(SortExec::expr);
    if let Some(order) = sort.or_else(|| node.downcast_ref::<PartialSortExec>().map(PartialSortExec::expr)) {
        let mut keeps = Keeps { rows: SORT_ROWS, ..Keeps::default() };
        for key in order.iter() {
            keeps.take_constants(&key.expr);
            if !key.expr.is::<Column>() {
                keeps.constant_bytes = keeps.constant_bytes.saturating_add(RESULT_BYTES);
            }
        }
        return Ok((keeps.constant_bytes > 0).then_some(keeps));
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // It counts the views that it collects, but not the bytes they refer to.
        let keeps_views = aggregate.aggr_expr().iter().any(|each| !KEEP_LITTLE.contains(&each.fun().name()))
            && aggregate.input().schema().fields().iter().any(|field| has_view(field.data_type()));
        return Ok(keeps_views.then(|| Keeps { times: 1, ..Keeps::default() }));
    }
    let (windows, input, whole) = if let Some(all) = node.downcast_ref::<WindowAggExec>() {
        // It keeps all batches and concatenates them.
        (all.window_expr(), all.input(), true)
    } else if let Some(bounded) = node.downcast_ref::<BoundedWindowAggExec>() {
        (bounded.window_expr(), bounded.input(), false)
    } else {
        return Ok(None);
    };
    let once = usize::from(whole);
    // If rows are not sorted by partition, it cannot know when a partition has ended.
    let mixes_parts = node
        .downcast_ref::<BoundedWindowAggExec>()
        .is_some_and(|bounded| !matches!(bounded.input_order_mode, InputOrderMode::Sorted));
    let mut keeps = Keeps { times: 2 * once, arguments_times: once, ..Keeps::default() };
    for window in windows {
        let frame = window.get_window_frame();
        let rows = rows_of(frame);
        let behind = if frame.start_bound.is_unbounded() { 0 } else { rows };
        keeps.rows = keeps.rows.max(if whole { u64::MAX } else { behind.saturating_add(batch_rows as u64) });
        keeps.repeats |= has_any_width(window.field()?.data_type());
        for argument in window.expressions() {
            if has_any_width(&argument.data_type(&input.schema())?) {
                keeps.arguments.push(argument.clone());
            }
            keeps.take_constants(&argument);
        }
        window.partition_by().iter().for_each(|key| keeps.take_constants(key));
        window.order_by().iter().for_each(|key| keeps.take_constants(&key.expr));
        if let Some((name, distinct)) = aggregate_of(window.as_ref()) {
            if name == APPROX_DISTINCT && mixes_parts && !window.partition_by().is_empty() {
                keeps.state_bytes = keeps.state_bytes.saturating_add(APPROX_DISTINCT_BYTES);
            }
            if name == "array_agg" || name == "string_agg" {
                keeps.collects = keeps.collects.max(Some(rows));
            }
            if distinct || !KEEP_LITTLE.contains(&name.as_str()) {
                keeps.times = keeps.times.max(2);
                keeps.arguments_times = keeps.arguments_times.max(2);
            }
        }
        if rows > FRAME_ROWS && !frame.start_bound.is_unbounded() {
            keeps.times = keeps.times.max(1);
            keeps.arguments_times = keeps.arguments_times.max(1);
        }
    }
    let copies = keeps.constant_bytes > 0 || !keeps.arguments.is_empty();
    Ok((keeps.times > 0 || keeps.collects.is_some() || copies).then_some(keeps))
}

/// Aggregates with a state of the size of a value.
const KEEP_LITTLE: [&str; 26] = [
    "count",
    "sum",
    "avg",
    "mean",
    "min",
    "max",
    "first_value",
    "last_value",
    "nth_value",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "var_sample",
    "corr",
    "covar_samp",
    "covar_pop",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_count",
];

/// Reports whether values of a type are views into shared bytes.
fn has_view(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => {
            has_view(inner.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_view(field.data_type())),
        _ => false,
    }
}

/// Returns the name of a window's aggregate, and whether it keeps distinct values.
fn aggregate_of(window: &dyn WindowExpr) -> Option<(String, bool)> {
    let window = window.as_any();
    let aggregate = match window.downcast_ref::<PlainAggregateWindowExpr>() {
        Some(plain) => plain.get_aggregate_expr(),
        None => window.downcast_ref::<SlidingAggregateWindowExpr>()?.get_aggregate_expr(),
    };
    Some((aggregate.fun().name().to_owned(), aggregate.is_distinct()))
}

/// Returns the maximum rows of a frame, as far as the frame states it.
fn rows_of(frame: &WindowFrame) -> u64 {
    let rows = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => 0,
        WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) => match rows {
            ScalarValue::UInt64(Some(rows)) => *rows,
            _ => u64::MAX,
        },
    };
    match frame.units {
        WindowFrameUnits::Rows => rows(&frame.start_bound).saturating_add(rows(&frame.end_bound)).saturating_add(1),
        _ => u64::MAX,
    }
}

/// Operator that counts the output of another one.
#[derive(Clone, Debug)]
struct Guard {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    taken: Option<Taken>,
}

impl Guard {
    fn new(input: Arc<dyn ExecutionPlan>) -> Guard {
        let properties = input.properties().clone();
        Guard { input, properties, taken: None }
    }
}

impl DisplayAs for Guard {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl ExecutionPlan for Guard {
    fn name(&self) -> &str {
        "Guard"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Guard { taken: self.taken.clone(), ..Guard::new(input) })),
            _ => Err(DataFusionError::Internal("a guard has one input".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if let (Some(Taken::Multiplied(multiplied)), 0) = (&self.taken, partition) {
            multiplied.begin();
        }
        let name = match &self.taken {
            Some(Taken::Multiplied(multiplied)) => multiplied.name(),
            Some(Taken::Kept(_)) => "a window, an order or an aggregate",
            Some(Taken::HeldBack { .. }) => "rows held back",
            Some(Taken::Repeated(_)) => "a value that stands in each row",
            Some(Taken::Result(_)) | None => self.input.name(),
        };
        let context = outer(context);
        let reservation = MemoryConsumer::new(name).register(context.memory_pool());
        let joins = is_join(self.input.as_ref());
        let inner = narrow(&self.input, &context);
        let input = self.input.execute(partition, inner)?;
        Ok(Box::pin(Guarded {
            schema: input.schema(),
            input,
            // A join evaluates its whole other side for each part that it receives.
            yields: self.input.children().is_empty() || joins || matches!(self.taken, Some(Taken::Multiplied(_))),
            since: None,
            batch_rows: context.session_config().batch_size().max(1),
            reservation,
            taken: self.taken.clone(),
            context,
            made_bytes: 0,
            kept_rows: 0,
            kept_bytes: 0,
            arguments: Size::default(),
            wide_bytes: 0,
            rest: None,
        }))
    }
}

struct Guarded {
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    /// Whether it yields after a while.
    yields: bool,
    /// Start of the current stretch of work.
    since: Option<Instant>,
    batch_rows: usize,
    reservation: MemoryReservation,
    taken: Option<Taken>,
    context: Arc<TaskContext>,
    /// Maximum bytes made from a batch of its rows.
    made_bytes: usize,
    kept_rows: u64,
    kept_bytes: usize,
    /// Size of the kept arguments, over all rows so far.
    arguments: Size,
    wide_bytes: usize,
    /// Rest of a batch that is passed on in parts, with the rows per part.
    rest: Option<(RecordBatch, usize)>,
}

impl Guarded {
    /// Counts a batch. Returns the number of its rows to pass on at a time.
    fn count(&mut self, batch: &RecordBatch) -> Result<usize> {
        let size = Size::of_batch(batch);
        let rows = batch.num_rows().max(1);
        if size.total > ROW_BYTES_MAX && (rows == 1 || size.widest > ROW_BYTES_MAX) {
            let text = format!("a row of {} bytes, at most {ROW_BYTES_MAX}", size.widest.max(size.total / rows));
            return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion());
        }
        if size.widest > FULL_BATCH_BYTES / self.batch_rows {
            self.wide_bytes = self.wide_bytes.saturating_add(size.total);
            if self.wide_bytes > WIDE_BYTES_MAX {
                let text = format!(
                    "rows of up to {} bytes are too wide for a query that reads {WIDE_BYTES_MAX} bytes of them",
                    size.widest
                );
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text)
                    .with_hint("Ask for fewer rows, or for fewer of the wide columns.")
                    .into_datafusion());
            }
        }
        let mut rows_max = self.batch_rows;
        let made = match &self.taken {
            None => Some(Made { rows: usize::MAX, bytes: 0 }),
            Some(Taken::Multiplied(multiplied)) => {
                multiplied.collect(batch, size.total, &self.context)?;
                Some(multiplied.measure(batch))
            }
            Some(Taken::HeldBack { rows: most }) => {
                self.kept_bytes = self.kept_bytes.saturating_add(size.total);
                let held = self.kept_bytes.min(size.widest.saturating_mul(*most));
                Some(Made { rows: usize::MAX, bytes: held.saturating_mul(2) })
            }
            Some(Taken::Repeated(repeated)) => {
                let before = self.kept_rows;
                self.kept_rows += rows as u64;
                Some(repeated.measure(batch, before))
            }
            Some(Taken::Result(results)) => {
                results.add(size.total, &self.context)?;
                None
            }
            Some(Taken::Kept(keeps)) => {
                self.kept_rows += rows as u64;
                self.kept_bytes = self.kept_bytes.saturating_add(size.total.saturating_mul(keeps.times));
                let arguments = keeps.measure(batch)?;
                self.arguments.total = self.arguments.total.saturating_add(arguments.total);
                self.arguments.widest = self.arguments.widest.max(arguments.widest);
                let of_arguments = self.arguments.total.saturating_mul(keeps.arguments_times);
                let repeated = if keeps.repeats { self.arguments.widest } else { 0 };
                let copied = keeps.constant_bytes.saturating_add(repeated) as u64;
                let copied = self.kept_rows.min(keeps.rows).saturating_mul(copied);
                let collected = keeps.collects.map_or(0, |frame| {
                    let all = self.kept_rows.saturating_mul(8).max(self.arguments.total as u64);
                    frame.min(self.kept_rows).saturating_mul(all)
                });
                let states = self.kept_rows.saturating_mul(keeps.state_bytes as u64);
                let more = usize::try_from(copied.max(collected).saturating_add(states)).unwrap_or(usize::MAX);
                let held = self.kept_bytes.saturating_add(of_arguments).saturating_add(more);
                if held > self.reservation.size() {
                    self.reservation.try_resize(held)?;
                }
                None
            }
        };
        if let Some(made) = made {
            rows_max = rows_max.min(made.rows);
            self.made_bytes = self.made_bytes.max(made.bytes);
            let bytes = size.total.saturating_add(self.made_bytes);
            self.reservation.try_resize(if bytes > COUNTED_BYTES { bytes } else { 0 })?;
        }
        let parts = size.total.div_ceil(BATCH_BYTES).max(1);
        Ok(rows.div_ceil(parts).min(rows_max))
    }
}

impl Stream for Guarded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if self.yields && self.since.get_or_insert_with(Instant::now).elapsed() > WORK {
            self.since = None;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.rest.is_none() {
            let Some(batch) = ready!(self.input.poll_next_unpin(context)?) else {
                // Keep the reservation for what is kept, or made of the rows, after the input ends.
                if self.taken.is_none() {
                    self.reservation.free();
                }
                return Poll::Ready(None);
            };
            let rows = Guarded::count(&mut self, &batch)?;
            if rows >= batch.num_rows() {
                return Poll::Ready(Some(Ok(batch)));
            }
            self.rest = Some((batch, rows));
        }
        let Some((batch, rows)) = self.rest.take() else { return Poll::Ready(None) };
        let part = batch.slice(0, rows.min(batch.num_rows()));
        if rows < batch.num_rows() {
            self.rest = Some((batch.slice(rows, batch.num_rows() - rows), rows));
        }
        Poll::Ready(Some(Ok(part)))
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
