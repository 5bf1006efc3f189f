//! The scan of a function for telemetry: its rows, read batch by batch when the statement runs.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::future::BoxFuture;
use strongback_store::{SampleCursor, Store, View};

use crate::error::QueryError;
use crate::running::stopped::Stopped;
use crate::table::{PinnedView, planned};
use crate::telemetry::arguments::ChosenChannel;

/// Cells of a batch, which bound its rows if there are many columns.
const BATCH_CELLS: usize = 1 << 18;
/// Maximum rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// Result of one step of a reader.
pub(crate) enum Step {
    /// The columns of the next rows, all of one length.
    Rows(Vec<ArrayRef>),
    /// Nothing yet.
    More,
    /// No rows are left.
    End,
}

/// Reader of the rows of a call. A step is short, or looks at the stop flag.
pub(crate) trait Reader: Send {
    /// Reads on.
    ///
    /// # Errors
    /// If the store cannot be read, or the statement was stopped.
    fn step(&mut self) -> Result<Step, QueryError>;
}

/// What a reader is given when a statement runs.
pub(crate) struct Opening {
    pub(crate) view: View,
    /// For each column whether it is used. Others may hold anything of their type.
    pub(crate) wanted: Arc<[bool]>,
    /// Maximum rows of a batch.
    pub(crate) batch_rows: usize,
    pub(crate) stopped: Stopped,
}

impl Opening {
    /// Checks that someone waits for the statement.
    ///
    /// # Errors
    /// If it was stopped.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        self.stopped.check().map_err(QueryError::from)
    }

    /// Reads a channel at instants that ascend, from the last sample at or before `from` on; those up to `to` are
    /// probably needed. Returns `None` if the view does not have the channel.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn cursor(
        &self,
        channel: &ChosenChannel,
        from: i64,
        to: i64,
    ) -> Result<Option<SampleCursor>, QueryError> {
        let runs = self.view.samples(channel.stream.id, channel.index, from, to)?;
        Ok(runs.map(SampleCursor::new).transpose()?)
    }
}

/// Creates the reader of a call.
pub(crate) type Open = dyn Fn(Opening) -> Result<Box<dyn Reader>, QueryError> + Send + Sync;

/// A call whose arguments are known.
pub(crate) struct Call {
    /// Columns of its rows.
    pub(crate) schema: SchemaRef,
    /// Columns by which its rows ascend, each by itself.
    pub(crate) ascending: &'static [&'static str],
    /// Its reader, or the reason that there is none.
    pub(crate) open: Result<Box<Open>, QueryError>,
}

/// Creates a schema of columns that may be NULL.
pub(crate) fn schema(columns: impl IntoIterator<Item = (impl Into<String>, DataType)>) -> SchemaRef {
    let fields = columns.into_iter().map(|(name, kind)| Field::new(name.into(), kind, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A call as a table.
pub(crate) struct CallTable {
    /// Name of the function.
    name: &'static str,
    call: Arc<Call>,
    store: Store,
}

impl CallTable {
    pub(crate) fn new(name: &'static str, call: Call, store: Store) -> CallTable {
        CallTable { name, call: Arc::new(call), store }
    }

    fn plan_scan(&self, session: &dyn Session, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Err(error) = &self.call.open {
            return Err(error.clone().into_datafusion());
        }
        let view = match session.config().get_extension::<PinnedView>() {
            Some(pinned) => pinned.0.clone(),
            None => self.store.view(),
        };
        let all: Vec<usize> = (0..self.call.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all).clone();
        let schema: SchemaRef = Arc::new(self.call.schema.project(&projection)?);
        let ascending = SortOptions { descending: false, nulls_first: false };
        let orders = self.call.ascending.iter().filter_map(|name| {
            let at = schema.index_of(name).ok()?;
            LexOrdering::new([PhysicalSortExpr::new(Arc::new(ColumnExpr::new(name, at)), ascending)])
        });
        let equivalence = EquivalenceProperties::new_with_orderings(schema.clone(), orders);
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let stopped = Stopped::of(session.config_options());
        let (name, call) = (self.name, self.call.clone());
        Ok(Arc::new(CallScan { name, call, view, projection, schema, properties, stopped }))
    }
}

impl fmt::Debug for CallTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TableProvider for CallTable {
    fn schema(&self) -> SchemaRef {
        self.call.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        session: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        _filters: &'c [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
    {
        planned(self.plan_scan(session, projection))
    }
}

/// Leaf of a plan that reads the rows of a call.
struct CallScan {
    name: &'static str,
    call: Arc<Call>,
    view: View,
    projection: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    stopped: Stopped,
}

impl fmt::Debug for CallScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallScan").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DisplayAs for CallScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "CallScan: {}, columns=[{}]", self.name, names.join(", "))
    }
}

impl ExecutionPlan for CallScan {
    fn name(&self) -> &'static str {
        "CallScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let columns = self.call.schema.fields().len();
        let wanted: Vec<bool> = (0..columns).map(|at| self.projection.contains(&at)).collect();
        let rows = (BATCH_CELLS / columns.max(1)).min(context.session_config().batch_size()).clamp(1, BATCH_ROWS);
        let opening =
            Opening { view: self.view.clone(), wanted: wanted.into(), batch_rows: rows, stopped: self.stopped.clone() };
        let open = self.call.open.as_ref().map_err(|error| error.clone().into_datafusion())?;
        let reader = open(opening).map_err(QueryError::into_datafusion)?;
        let state = Some((reader, self.projection.clone(), self.schema.clone()));
        let batches = futures::stream::unfold(state, |state| async move {
            let (mut reader, projection, schema) = state?;
            loop {
                match reader.step().map_err(QueryError::into_datafusion) {
                    Ok(Step::Rows(columns)) => {
                        let options =
                            RecordBatchOptions::new().with_row_count(Some(columns.first().map_or(0, |c| c.len())));
                        let columns = projection.iter().map(|at| columns[*at].clone()).collect();
                        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
                        tokio::task::yield_now().await;
                        return Some((batch.map_err(Into::into), Some((reader, projection, schema))));
                    }
                    Ok(Step::More) => tokio::task::yield_now().await,
                    Ok(Step::End) => return None,
                    Err(error) => return Some((Err(error), None)),
                }
            }
        });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))))
    }
}
