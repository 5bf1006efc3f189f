//! The scan of a table for DataFusion: streams in parallel, or merged by time if the query sorts by it, so that a limit
//! reads only the rows it returns.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::{SortOptions, concat, concat_batches, interleave_record_batch};
use datafusion::arrow::datatypes::{Int32Type, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use strongback_store::{BlockCounts, Clock, Stream, StreamId, View};

use crate::error::QueryError;
use crate::table::RowRanges;
use crate::table::basis::{Basis, Watched};
use crate::table::column::{ColumnSource, FrameTime, TableColumn, batch_array};
use crate::table::condition::ColumnCondition;
use crate::table::merge::{Merge, Prepare, StoredRows, TimeOrder, Wanted};
use crate::table::totals::{TotalsScan, WantedTotals};

/// Maximum streams for which each is a separate partition, so that its order can be declared.
const ORDERED_PARTITIONS_MAX: usize = 16;
/// Rows that pieces of time must hold on average for their totals to be computed from statistics, and the numbers of
/// pieces of a stream up to which that does not matter, and beyond which they take too much memory.
const PIECE_ROWS: i128 = 64;
const PIECES_SMALL: i128 = 4_096;
const PIECES_MAX: i128 = 1 << 20;

/// Batches between two yields to the runtime, so that a scan can always be cancelled.
const BATCHES_BETWEEN_YIELDS: usize = 2;

/// Rows of a scan from which on they are divided among partitions.
const DIVIDED_ROWS_MIN: u64 = 1 << 16;

/// Streams of each of which a row is read in one step.
const EDGES_AT_A_TIME: usize = 64;

/// Rows of the first merged batch, which may suffice. Each later batch has twice as many, up to the maximum.
const MERGED_ROWS_FIRST: usize = 64;
/// Maximum rows of a merged batch.
const MERGED_ROWS_MAX: usize = 4_096;
/// Rows and bytes of a joined batch from which on no further batch is joined.
const JOINED_ROWS: usize = 8_192;
const JOINED_BYTES: usize = 512 << 10;

/// Scan of streams of a table in a view, for some columns and a range of `time`.
#[derive(Clone)]
pub(crate) struct StoreScan {
    /// View that it reads; `None` in a plan that is kept for further runs.
    view: Option<View>,
    basis: Basis,
    /// Streams of each partition, or of each group of `parts` partitions.
    partitions: Vec<Vec<Arc<Stream>>>,
    /// Partitions among which the rows of each stream are divided, one after the other.
    parts: usize,
    time: Range<i64>,
    columns: Arc<Vec<TableColumn>>,
    schema: SchemaRef,
    /// Whether it stays one partition.
    is_whole: bool,
    /// Order by `time`, for a merged scan with one partition.
    order: Option<TimeOrder>,
    /// Rows of each stream; `None` for all.
    rows: Option<Arc<RowRanges>>,
    /// Conditions that rows are wanted for, by a filter above.
    conditions: Arc<[ColumnCondition]>,
    /// Order by `time` of whose rows only the first of each stream is wanted.
    edge: Option<TimeOrder>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StoreScan {
    /// Creates a scan of streams, of which those in `empty` are left out as they have no row in `time`. `partitions_wanted` is the number of partitions that the query can use at once.
    pub(crate) fn new(
        (view, history): (View, Option<Watched>),
        (streams, empty): (Vec<Arc<Stream>>, Vec<Arc<Stream>>),
        time: Range<i64>,
        columns: (Arc<Vec<TableColumn>>, SchemaRef),
        partitions_wanted: usize,
        fetch: Option<usize>,
    ) -> Self {
        let (columns, schema) = columns;
        let basis = Basis::of(&view, &streams, empty, &time, history);
        let (partitions, orders) = if streams.len() <= ORDERED_PARTITIONS_MAX {
            let orders = orders(&basis, &streams, &columns);
            (streams.into_iter().map(|stream| vec![stream]).collect(), orders)
        } else {
            let share = streams.len().div_ceil(partitions_wanted.max(1));
            (streams.chunks(share).map(<[_]>::to_vec).collect::<Vec<_>>(), Vec::new())
        };
        let properties = properties(&schema, orders, partitions.len());
        let metrics = ExecutionPlanMetricsSet::new();
        StoreScan {
            view: Some(view),
            basis,
            partitions,
            parts: 1,
            is_whole: false,
            time,
            columns,
            schema,
            order: None,
            rows: None,
            conditions: Arc::default(),
            edge: None,
            fetch,
            properties,
            metrics,
        }
    }

    /// Returns the same scan without blocks in which, by their statistics, no row fulfils all conditions.
    pub(crate) fn for_conditions(&self, conditions: Vec<ColumnCondition>) -> StoreScan {
        StoreScan { conditions: conditions.into(), ..self.clone() }
    }

    /// Returns the same scan with only the first row of each stream in an order, unless it does not read all rows.
    pub(crate) fn edges(&self, edge: TimeOrder) -> Option<StoreScan> {
        let reads_all = self.fetch.is_none() && self.rows.is_none() && self.order.is_none();
        let properties = properties(&self.schema, Vec::new(), self.partitions.len());
        reads_all.then(|| StoreScan { parts: 1, edge: Some(edge), properties, ..self.clone() })
    }

    /// Returns the same scan with columns that may be NULL, as results of aggregations may. It has no declared order.
    pub(crate) fn nullable(&self) -> StoreScan {
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema: SchemaRef =
            Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), self.schema.metadata().clone()));
        let properties = properties(&schema, Vec::new(), self.partitions.len());
        StoreScan { schema, properties, ..self.clone() }
    }

    /// Returns the same scan as one partition that is not divided, in the order of streams and rows.
    pub(crate) fn in_one(&self) -> StoreScan {
        let partitions: Vec<Vec<Arc<Stream>>> = vec![self.streams().cloned().collect()];
        let properties = match self.partitions.len() {
            1 => self.properties.clone(),
            _ => properties(&self.schema, Vec::new(), 1),
        };
        StoreScan { partitions, parts: 1, is_whole: true, properties, ..self.clone() }
    }

    /// Returns the same scan of some rows only, as one partition in the order of streams and rows.
    pub(crate) fn within(self, rows: Arc<RowRanges>) -> StoreScan {
        let partitions = vec![self.streams().cloned().collect()];
        let properties = properties(&self.schema, Vec::new(), 1);
        StoreScan { partitions, parts: 1, rows: Some(rows), properties, ..self }
    }

    /// Returns the same scan as one partition in an order, with at most `fetch` rows, or `None` if that requires a
    /// sort. Rows of streams with late frames are sorted one time slice at a time.
    pub(crate) fn merged(&self, order: &[PhysicalSortExpr], fetch: Option<usize>) -> Option<StoreScan> {
        let [key] = order else { return None };
        let column = self.columns.get(key.expr.downcast_ref::<ColumnExpr>()?.index())?;
        // A limit of its own selected rows without the order, unless it is the merge's, handed down to each of its
        // inputs.
        let is_handed_down = self.partitions.len() > 1 && self.fetch == fetch;
        let has_limit = self.fetch.is_some() && !is_handed_down;
        if has_limit || self.rows.is_some() || self.edge.is_some() || !follows_time(column, self.streams()) {
            return None;
        }
        let merged = if key.options.descending { TimeOrder::Descending } else { TimeOrder::Ascending };
        let orders = LexOrdering::new([key.clone()]).into_iter().collect();
        Some(StoreScan {
            partitions: vec![self.streams().cloned().collect()],
            parts: 1,
            order: Some(merged),
            fetch,
            properties: properties(&self.schema, orders, 1),
            ..self.clone()
        })
    }

    /// Returns the same scan without its view, to be kept.
    pub(crate) fn unbound(&self) -> StoreScan {
        StoreScan { view: None, ..self.clone() }
    }

    /// Returns the same scan for a run with another view, or `None` if it would be planned otherwise for that.
    pub(crate) fn bound(&self, view: &View) -> Option<StoreScan> {
        let metrics = ExecutionPlanMetricsSet::new();
        self.basis.holds_in(view).then(|| StoreScan { view: Some(view.clone()), metrics, ..self.clone() })
    }

    /// Returns the rows of streams that one of the parts reads.
    fn rows_of_part(&self, view: &View, streams: &[Arc<Stream>], part: u64) -> Arc<RowRanges> {
        let each = streams.iter().map(|stream| {
            let rows = view.next_row(stream.id);
            let bound = |part: u64| (u128::from(rows) * u128::from(part) / self.parts as u128) as u64;
            let end = if part + 1 == self.parts as u64 { u64::MAX } else { bound(part + 1) };
            (stream.id, bound(part)..end)
        });
        Arc::new(each.collect())
    }

    /// Returns the streams that it reads.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.partitions.iter().flatten()
    }

    /// Returns its columns.
    pub(crate) fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// Returns totals of its rows in the place of a partial aggregation with this schema and these properties, except for
    /// their partitions, or `None` if it does not read all rows, or if pieces hold so few that statistics do not help.
    pub(crate) fn totals(&self, wanted: WantedTotals, of: (SchemaRef, Arc<PlanProperties>)) -> Option<TotalsScan> {
        let view = self.view.as_ref()?;
        let has_few = |stream: &Arc<Stream>| {
            wanted.pieces.is_none_or(|pieces| {
                let Some((first, last)) = view.time_range(stream.id) else { return true };
                let (first, last) = (first.max(self.time.start), last.min(self.time.end));
                let pieces = pieces.piece_of(last) - pieces.piece_of(first);
                let rows = i128::from(view.next_row(stream.id));
                pieces <= PIECES_MAX && pieces <= PIECES_SMALL.max(rows / PIECE_ROWS)
            })
        };
        // Totals come stream by stream.
        let is_merged = self.order.is_some() && self.partitions.iter().any(|streams| streams.len() > 1);
        let reads_all = self.fetch.is_none() && self.rows.is_none() && self.edge.is_none();
        // Each stream is totalled as a whole.
        let of = (of.0, Arc::new(PlanProperties::clone(&of.1).with_partitioning(unknown(self.partitions.len()))));
        let is_better = reads_all && !is_merged && self.streams().all(has_few);
        let from = (view.clone(), self.basis.clone());
        is_better.then(|| TotalsScan::new(from, self.partitions.clone(), self.time.clone(), wanted, of))
    }
}

fn unknown(partitions: usize) -> Partitioning {
    Partitioning::UnknownPartitioning(partitions)
}

fn properties(schema: &SchemaRef, orders: Vec<LexOrdering>, partitions: usize) -> Arc<PlanProperties> {
    let equivalence = EquivalenceProperties::new_with_orderings(schema.clone(), orders);
    let partitioning = unknown(partitions);
    let properties = PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded);
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

/// Reports whether a column ascends with `time` in these streams.
fn follows_time(column: &TableColumn, streams: impl Iterator<Item = impl AsRef<Stream>>) -> bool {
    match column.source {
        ColumnSource::Micros(FrameTime::Time) | ColumnSource::Nanos(FrameTime::Time) => true,
        ColumnSource::Micros(FrameTime::Receive) | ColumnSource::Nanos(FrameTime::Receive) => {
            let mut streams = streams;
            streams.all(|stream| stream.as_ref().clock == Clock::Receive)
        }
        _ => false,
    }
}

/// Returns the columns that ascend with the frames of each of these streams, if their order is known.
fn orders(basis: &Basis, streams: &[Arc<Stream>], projected: &[TableColumn]) -> Vec<LexOrdering> {
    if !basis.is_sorted() {
        return Vec::new();
    }
    let ascending = SortOptions { descending: false, nulls_first: false };
    projected
        .iter()
        .enumerate()
        .filter(|(_, column)| follows_time(column, streams.iter()))
        .filter_map(|(at, column)| {
            let expr = Arc::new(ColumnExpr::new(&column.name, at));
            LexOrdering::new([PhysicalSortExpr::new(expr, ascending)])
        })
        .collect()
}

impl fmt::Debug for StoreScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreScan").field("streams", &self.streams().count()).field("time", &self.time).finish()
    }
}

impl DisplayAs for StoreScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreScan: streams={}, partitions={}", self.streams().count(), self.partitions.len() * self.parts)?;
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        match self.order {
            None => {}
            Some(TimeOrder::Ascending) => write!(f, ", merged by time")?,
            Some(TimeOrder::Descending) => write!(f, ", merged by time, newest first")?,
        }
        match self.edge {
            None => {}
            Some(TimeOrder::Ascending) => write!(f, ", oldest row of each stream")?,
            Some(TimeOrder::Descending) => write!(f, ", newest row of each stream")?,
        }
        if !self.conditions.is_empty() {
            write!(f, ", conditions={}", self.conditions.len())?;
        }
        if let Some(fetch) = self.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for StoreScan {
    fn name(&self) -> &'static str {
        "StoreScan"
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

    fn repartitioned(&self, partitions: usize, _: &ConfigOptions) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let parts = partitions / self.partitions.len().max(1);
        let reads_all = self.fetch.is_none() && self.rows.is_none() && self.order.is_none() && self.edge.is_none();
        let Some(view) = &self.view else { return Ok(None) };
        let rows: u64 = self.streams().map(|stream| view.next_row(stream.id)).sum();
        if parts < 2 || self.parts > 1 || self.is_whole || !reads_all || rows < DIVIDED_ROWS_MIN {
            return Ok(None);
        }
        let partitions = unknown(self.partitions.len() * parts);
        let properties = Arc::new(PlanProperties::clone(&self.properties).with_partitioning(partitions));
        Ok(Some(Arc::new(StoreScan { parts, properties, ..self.clone() })))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let view = self.view.as_ref().ok_or_else(not_bound)?;
        let streams = self.partitions.get(partition / self.parts).cloned().unwrap_or_default();
        let rows = match self.parts {
            1 => self.rows.clone(),
            _ => Some(self.rows_of_part(view, &streams, (partition % self.parts) as u64)),
        };
        let wanted = Wanted {
            columns: self.columns.clone(),
            time: self.time.clone(),
            order: self.edge.or(self.order),
            most: if self.edge.is_some() { 1 } else { self.fetch.unwrap_or(usize::MAX) },
            conditions: self.conditions.clone(),
        };
        let counter = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let merge = |streams| Merge::new(view.clone(), streams, wanted.clone()).within(rows.clone());
        let (merged, each) = match self.edge {
            None => (streams, VecDeque::new()),
            Some(_) => (Vec::new(), streams.into_iter().map(|stream| merge(vec![stream])).collect()),
        };
        let batches = Batches {
            schema: self.schema.clone(),
            ordered: self.order.is_some(),
            rows: wanted.most.clamp(1, MERGED_ROWS_FIRST),
            rows_max: JOINED_ROWS.min(context.session_config().batch_size()),
            left: wanted.most,
            ahead: None,
            made: 0,
            counters: Counters {
                rows_read: counter("rows_read"),
                blocks_read: counter("blocks_read"),
                blocks_passed: counter("blocks_passed"),
            },
            each,
            merge: merge(merged),
        };
        let batches = futures::stream::unfold((batches, 0), |(mut rows, seen)| async move {
            if seen % BATCHES_BETWEEN_YIELDS == BATCHES_BETWEEN_YIELDS - 1 {
                tokio::task::yield_now().await;
            }
            let batch = rows.next().map_err(QueryError::into_datafusion).transpose();
            batch.map(|batch| (batch, (rows, seen + 1)))
        });
        let batches = make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)));
        Ok(match self.fetch {
            None => batches,
            Some(fetch) => {
                let metrics = BaselineMetrics::new(&self.metrics, partition);
                Box::pin(LimitStream::new(batches, 0, Some(fetch), metrics))
            }
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(StoreScan { fetch, ..self.clone() }))
    }
}

/// Returns the error for a kept plan that is run without a view.
pub(crate) fn not_bound() -> DataFusionError {
    DataFusionError::Internal("a kept plan runs without a view".to_owned())
}

/// Rows of a partition, batch by batch.
struct Batches {
    merge: Merge<MergedBatch>,
    schema: SchemaRef,
    ordered: bool,
    /// Rows of the next batch.
    rows: usize,
    /// Maximum rows of a batch that several are joined to.
    rows_max: usize,
    /// Rows that are still wanted, without an order.
    left: usize,
    /// Batch that was read behind the last rows of another stream.
    ahead: Option<(StreamId, RecordBatch)>,
    /// Merged batches so far.
    made: u64,
    /// Streams of each of which one row is wanted.
    each: VecDeque<Merge<MergedBatch>>,
    counters: Counters,
}

/// What is read of the store.
struct Counters {
    rows_read: Count,
    blocks_read: Count,
    blocks_passed: Count,
}

/// A batch of a stream, with the merged batch that last included it and its index there.
struct MergedBatch {
    batch: RecordBatch,
    place: Option<(u64, usize)>,
}

struct ToRecordBatch<'a> {
    schema: &'a SchemaRef,
    counters: &'a Counters,
}

impl Prepare for ToRecordBatch<'_> {
    type Made = MergedBatch;

    fn prepare(&self, from: StoredRows<'_>) -> Result<MergedBatch, QueryError> {
        self.counters.rows_read.add(from.batch.len());
        Ok(MergedBatch { batch: record_batch(self.schema, from)?, place: None })
    }

    fn count(&self, blocks: BlockCounts) {
        self.counters.blocks_read.add(blocks.read as usize);
        self.counters.blocks_passed.add(blocks.passed as usize);
    }

    fn most(&self, _: &MergedBatch) -> usize {
        usize::MAX
    }
}

impl Batches {
    fn next(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        let prepare = ToRecordBatch { schema: &self.schema, counters: &self.counters };
        if !self.each.is_empty() {
            let mut rows: Vec<RecordBatch> = Vec::new();
            while rows.len() < EDGES_AT_A_TIME
                && let Some(mut merge) = self.each.pop_front()
            {
                if let Some((head, run)) = merge.next(&prepare, 1)?
                    && let Some(from) = head.made()
                {
                    rows.extend(run.each().map(|row| from.batch.slice(row, 1)));
                }
            }
            return Ok(Some(concat_batches(&self.schema, &rows).map_err(DataFusionError::from)?));
        }
        if !self.ordered {
            return self.next_joined();
        }
        self.made += 1;
        let mut sources = Vec::new();
        let mut rows = Vec::with_capacity(self.rows);
        while rows.len() < self.rows {
            let Some((head, run)) = self.merge.next(&prepare, self.rows - rows.len())? else { break };
            let Some(from) = head.made() else { break };
            let place = match from.place {
                Some((merged, place)) if merged == self.made => place,
                _ => {
                    sources.push(from.batch.clone());
                    from.place = Some((self.made, sources.len() - 1));
                    sources.len() - 1
                }
            };
            rows.extend(run.each().map(|row| (place, row)));
        }
        if rows.is_empty() {
            return Ok(None);
        }
        self.rows = (self.rows * 2).min(MERGED_ROWS_MAX);
        let sources: Vec<&RecordBatch> = sources.iter().collect();
        let merged = interleave_record_batch(&sources, &rows).map_err(DataFusionError::from)?;
        Ok(Some(merged))
    }

    /// Returns the next batches of a stream as one: each time up to twice as many rows, so that the first ones come at
    /// once.
    fn next_joined(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        let prepare = ToRecordBatch { schema: &self.schema, counters: &self.counters };
        let most = self.rows.min(self.left);
        let (mut parts, mut of, mut rows, mut bytes) = (Vec::new(), None, 0, 0);
        while rows < most && bytes < JOINED_BYTES {
            let next = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.merge.next(&prepare, usize::MAX)?.and_then(|(head, _)| {
                    // A run is a whole batch, without a limit.
                    Some((head.id(), head.made()?.batch.clone()))
                }),
            };
            let Some((stream, batch)) = next else { break };
            if of.is_some_and(|of| of != stream) {
                self.ahead = Some((stream, batch));
                break;
            }
            of = Some(stream);
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            parts.push(batch);
        }
        self.rows = (self.rows * 2).min(self.rows_max);
        self.left = self.left.saturating_sub(rows);
        Ok(match parts.len() {
            0 | 1 => parts.pop(),
            _ => Some(joined(&self.schema, &parts, rows)?),
        })
    }
}

/// Joins batches of one stream.
fn joined(schema: &SchemaRef, parts: &[RecordBatch], rows: usize) -> Result<RecordBatch, QueryError> {
    let column = |at: usize| -> Result<ArrayRef, DataFusionError> {
        let columns: Vec<&dyn Array> = parts.iter().map(|part| part.column(at).as_ref()).collect();
        // A tag has one value in all rows.
        if let Some(tag) = columns[0].as_dictionary_opt::<Int32Type>().filter(|tag| tag.null_count() == 0) {
            let keys = Int32Array::from(vec![0; rows]);
            return Ok(Arc::new(DictionaryArray::try_new(keys, tag.values().clone())?));
        }
        Ok(concat(&columns)?)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
    Ok(batch.map_err(DataFusionError::from)?)
}

/// Builds the columns of a table for one batch of a stream.
fn record_batch(schema: &SchemaRef, from: StoredRows<'_>) -> Result<RecordBatch, QueryError> {
    let arrays = from
        .columns
        .iter()
        .zip(from.positions)
        .map(|(column, position)| batch_array(column, from.batch, from.stream, *position))
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(from.batch.len()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
        .map_err(|e| QueryError::from(DataFusionError::from(e)))
}
