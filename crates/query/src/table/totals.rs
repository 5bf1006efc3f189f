//! Totals of a table for DataFusion: counts, extremes, sums and means in the form of a partial aggregation, from the
//! store's statistics where they suffice.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use strongback_store::{
    BlockCounts, ChannelIndex, ChannelType, EqualPieces, PieceTotals, Stream, Totals, TotalsReader, TotalsRequest,
    Value, View,
};

use crate::error::{QueryError, sqlstate};
use crate::table::basis::Basis;
use crate::table::column::{ColumnSource, TableColumn, UTC, repeated_tag};
use crate::table::condition::ColumnCondition;
use crate::table::merge::TimeOrder;
use crate::table::scan::not_bound;

/// How many times as many pieces are totalled next if too few of them had rows.
const WIDER: u64 = 4;
/// Rows of a batch.
const BATCH_ROWS: usize = 4_096;

/// A key by which totals are grouped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TotalsKey {
    /// A tag.
    Tag(String),
    /// The piece that contains `time`, by its start.
    Piece,
}

/// A total of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// Number of frames.
    Rows,
    /// Number of values.
    Values(usize),
    /// Smallest value.
    Min(usize),
    /// Largest value.
    Max(usize),
    /// Sum of integers.
    IntegerSum(usize),
    /// Sum of floats.
    FloatSum(usize),
    /// Number and sum of integers.
    IntegerMean(usize),
    /// Number and sum of floats.
    FloatMean(usize),
}

/// What is totalled.
#[derive(Clone, Debug)]
pub(crate) struct WantedTotals {
    /// Keys, the first columns of the result.
    pub(crate) keys: Vec<TotalsKey>,
    /// Columns of channels that totals refer to by index.
    pub(crate) columns: Vec<TableColumn>,
    /// Conditions that rows must fulfil.
    pub(crate) conditions: Vec<ColumnCondition>,
    /// Totals, the other columns of the result: one each, two for means.
    pub(crate) totals: Vec<Total>,
    /// Pieces of the key [`TotalsKey::Piece`].
    pub(crate) pieces: Option<EqualPieces>,
}

/// Leaf of a plan that gives totals of streams, as a partial aggregation of a scan would.
#[derive(Clone)]
pub(crate) struct TotalsScan {
    /// View that it reads; `None` in a plan that is kept for further runs.
    view: Option<View>,
    basis: Basis,
    partitions: Vec<Vec<Arc<Stream>>>,
    time: Range<i64>,
    wanted: Arc<WantedTotals>,
    /// Number of pieces of time with rows that are wanted of each stream, the first in an order; `None` for all.
    first: Option<(TimeOrder, usize)>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl TotalsScan {
    /// Creates the leaf in the place of a partial aggregation with this schema and these properties.
    pub(crate) fn new(
        (view, basis): (View, Basis),
        partitions: Vec<Vec<Arc<Stream>>>,
        time: Range<i64>,
        wanted: WantedTotals,
        (schema, properties): (SchemaRef, Arc<PlanProperties>),
    ) -> TotalsScan {
        let metrics = ExecutionPlanMetricsSet::new();
        let (view, wanted) = (Some(view), Arc::new(wanted));
        TotalsScan { view, basis, partitions, time, wanted, first: None, schema, properties, metrics }
    }

    /// Returns the same totals without their view, to be kept.
    pub(crate) fn unbound(&self) -> TotalsScan {
        TotalsScan { view: None, ..self.clone() }
    }

    /// Returns the same totals for a run with another view, or `None` if they would be planned otherwise for that.
    pub(crate) fn bound(&self, view: &View) -> Option<TotalsScan> {
        let metrics = ExecutionPlanMetricsSet::new();
        self.basis.holds_in(view).then(|| TotalsScan { view: Some(view.clone()), metrics, ..self.clone() })
    }

    /// Returns the same totals for the first `pieces` pieces of time in which a stream has rows, and perhaps more of them.
    /// Returns `None` if they are not grouped by pieces alone.
    pub(crate) fn first(&self, order: TimeOrder, pieces: usize) -> Option<TotalsScan> {
        let is_by_pieces = self.wanted.keys == [TotalsKey::Piece];
        is_by_pieces.then(|| TotalsScan { first: Some((order, pieces)), ..self.clone() })
    }
}

impl fmt::Debug for TotalsScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TotalsScan").field("time", &self.time).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl DisplayAs for TotalsScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams: usize = self.partitions.iter().map(Vec::len).sum();
        write!(f, "TotalsScan: streams={streams}, partitions={}", self.partitions.len())?;
        let names: Vec<&str> = self.wanted.columns.iter().map(|c| c.name.as_str()).collect();
        write!(f, ", columns=[{}], from statistics where a block is whole", names.join(", "))?;
        match self.first {
            None => {}
            Some((TimeOrder::Ascending, pieces)) => write!(f, ", oldest pieces={pieces}")?,
            Some((TimeOrder::Descending, pieces)) => write!(f, ", newest pieces={pieces}")?,
        }
        match self.wanted.conditions.len() {
            0 => Ok(()),
            conditions => write!(f, ", conditions={conditions}"),
        }
    }
}

impl ExecutionPlan for TotalsScan {
    fn name(&self) -> &'static str {
        "TotalsScan"
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

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut streams = self.partitions.get(partition).cloned().unwrap_or_default();
        streams.reverse();
        let work = Work {
            view: self.view.clone().ok_or_else(not_bound)?,
            streams,
            time: self.time.clone(),
            wanted: self.wanted.clone(),
            first: self.first,
            schema: self.schema.clone(),
            under_way: None,
            memory: MemoryConsumer::new("TotalsScan").register(context.memory_pool()),
            counters: Counters::new(&self.metrics, partition),
        };
        let batches = futures::stream::unfold(work, |mut work| async move {
            loop {
                match work.step().map_err(QueryError::into_datafusion) {
                    Ok(Step::Batch(batch)) => return Some((Ok(batch), work)),
                    Ok(Step::More) => tokio::task::yield_now().await,
                    Ok(Step::Done) => return None,
                    Err(error) => return Some((Err(error), work)),
                }
            }
        });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// A partition that is being totalled.
struct Work {
    view: View,
    /// Streams to come, the next one last.
    streams: Vec<Arc<Stream>>,
    time: Range<i64>,
    wanted: Arc<WantedTotals>,
    first: Option<(TimeOrder, usize)>,
    schema: SchemaRef,
    under_way: Option<UnderWay>,
    memory: MemoryReservation,
    counters: Counters,
}

/// What is read of the store, for `explain analyze`.
struct Counters {
    rows_decoded: Count,
    blocks_read: Count,
    blocks_by_statistics: Count,
    blocks_by_pyramid: Count,
    blocks_passed: Count,
}

impl Counters {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Counters {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Counters {
            rows_decoded: counter("rows_decoded"),
            blocks_read: counter("blocks_read"),
            blocks_by_statistics: counter("blocks_by_statistics"),
            blocks_by_pyramid: counter("blocks_by_pyramid"),
            blocks_passed: counter("blocks_passed"),
        }
    }

    fn add(&self, rows: u64, blocks: BlockCounts) {
        self.rows_decoded.add(rows as usize);
        self.blocks_read.add(blocks.read as usize);
        self.blocks_by_statistics.add(blocks.by_statistics as usize);
        self.blocks_by_pyramid.add(blocks.by_pyramid as usize);
        self.blocks_passed.add(blocks.passed as usize);
    }
}

/// The stream whose totals are computed or returned.
struct UnderWay {
    stream: Arc<Stream>,
    /// For each wanted column, its position among the totals of a piece; `None` if the stream lacks it.
    positions: Vec<Option<usize>>,
    /// Request of a wider span, if too few pieces had rows.
    wider: Option<Wider>,
    state: State,
}

/// A request of which only the first pieces of time with rows are wanted, and over how many of them it is to go.
struct Wider {
    request: TotalsRequest,
    order: TimeOrder,
    pieces: u64,
}

impl Wider {
    /// Returns the request for these pieces alone, and the next one if there are more.
    fn next(self, view: &View) -> (TotalsRequest, Option<Wider>) {
        let Wider { request, order, pieces } = self;
        let (Some(grid), Some((first, last))) = (request.pieces, view.time_range(request.stream)) else {
            return (request, None);
        };
        let time = first.max(request.time.start)..last.saturating_add(1).min(request.time.end);
        if time.is_empty() {
            return (request, None);
        }
        let clamped = |start: i128| start.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let part = match order {
            TimeOrder::Descending => {
                let from = grid.start_of(grid.piece_of(time.end - 1) - i128::from(pieces) + 1);
                clamped(from).max(request.time.start)..request.time.end
            }
            TimeOrder::Ascending => {
                let to = grid.start_of(grid.piece_of(time.start) + i128::from(pieces));
                request.time.start..clamped(to).min(request.time.end)
            }
        };
        let is_all = part.start <= time.start && part.end >= time.end;
        let narrow = TotalsRequest { time: part, ..request.clone() };
        let wider = (!is_all).then(|| Wider { request, order, pieces: pieces.saturating_mul(WIDER) });
        (narrow, wider)
    }
}

enum State {
    Reading(Box<TotalsReader>),
    Giving(Box<dyn ExactSizeIterator<Item = (i128, PieceTotals)> + Send>),
}

enum Step {
    Batch(RecordBatch),
    More,
    Done,
}

impl Work {
    fn step(&mut self) -> Result<Step, QueryError> {
        let Some(mut under_way) = self.under_way.take().or_else(|| self.begin()) else { return Ok(Step::Done) };
        match under_way.state {
            State::Reading(mut reader) => {
                let (rows, blocks) = (reader.decoded_rows(), reader.block_counts());
                let more = reader.step()?;
                self.counters.add(reader.decoded_rows() - rows, reader.block_counts().since(&blocks));
                // Pieces with their totals, the tree that holds them, and the arrays made of them.
                let each = size_of::<PieceTotals>() + 2 * size_of::<Totals>() * self.wanted.columns.len() + 64;
                let bytes = reader.piece_count() * each;
                self.memory.try_resize(bytes).map_err(QueryError::from)?;
                let has_few = |(_, wanted)| reader.piece_count() < wanted;
                let wider =
                    if more { None } else { under_way.wider.take().filter(|_| self.first.is_some_and(has_few)) };
                under_way.state = match wider {
                    Some(wider) => {
                        let (request, wider) = wider.next(&self.view);
                        under_way.wider = wider;
                        State::Reading(Box::new(self.view.totals(request)))
                    }
                    None if more => State::Reading(reader),
                    None => State::Giving(Box::new(reader.finish())),
                };
                self.under_way = Some(under_way);
                Ok(Step::More)
            }
            State::Giving(mut pieces) => {
                let some: Vec<(i128, PieceTotals)> = pieces.by_ref().take(BATCH_ROWS).collect();
                if some.is_empty() {
                    self.memory.free();
                    return Ok(Step::More);
                }
                let batch = self.batch(&under_way.stream, &under_way.positions, &some)?;
                under_way.state = State::Giving(pieces);
                self.under_way = Some(under_way);
                Ok(Step::Batch(batch))
            }
        }
    }

    /// Begins with the next stream that can have rows to be counted.
    fn begin(&mut self) -> Option<UnderWay> {
        loop {
            let stream = self.streams.pop()?;
            // The view may be older than the table. Channels it does not know yet have no values.
            let known = self.view.catalog().stream(stream.id).map_or(0, |s| s.layout.channels.len());
            let conditions = self.wanted.conditions.iter().map(|condition| condition.of_stream(stream.id, known));
            let Some(conditions) = conditions.collect() else { continue };
            let mut columns: Vec<ChannelIndex> = Vec::new();
            let position = |column: &TableColumn| {
                let index = column.channel(stream.id).filter(|index| (index.0 as usize) < known)?;
                columns.push(index);
                Some(columns.len() - 1)
            };
            let positions = self.wanted.columns.iter().map(position).collect();
            let request = TotalsRequest {
                stream: stream.id,
                time: self.time.clone(),
                columns,
                conditions,
                pieces: self.wanted.pieces,
                by_statistics: true,
            };
            let (request, wider) = match self.first {
                Some((order, pieces)) => Wider { request, order, pieces: pieces as u64 }.next(&self.view),
                None => (request, None),
            };
            let state = State::Reading(Box::new(self.view.totals(request)));
            return Some(UnderWay { stream, positions, wider, state });
        }
    }

    /// Makes the rows of some pieces of a stream.
    fn batch(
        &self,
        stream: &Stream,
        positions: &[Option<usize>],
        pieces: &[(i128, PieceTotals)],
    ) -> Result<RecordBatch, QueryError> {
        let rows = pieces.len();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for key in &self.wanted.keys {
            arrays.push(match key {
                TotalsKey::Tag(tag) => repeated_tag(stream, tag, rows),
                TotalsKey::Piece => starts(self.wanted.pieces, pieces, self.schema.field(arrays.len()).data_type())?,
            });
        }
        // Totals of a column, if the stream has it and any value of it.
        let of = |column: usize| {
            let position = positions.get(column).copied().flatten();
            pieces.iter().map(move |(_, piece)| {
                position.and_then(|position| piece.columns.get(position)).filter(|totals| totals.values > 0)
            })
        };
        let count = |column: usize| of(column).map(|totals| totals.map(|totals| totals.values));
        let kind = |column: usize| match self.wanted.columns.get(column).map(|column| &column.source) {
            Some(ColumnSource::Channel { channel_type, .. }) => Ok(*channel_type),
            _ => Err(misfit()),
        };
        for total in &self.wanted.totals {
            match *total {
                Total::Rows => {
                    arrays.push(Arc::new(
                        pieces.iter().map(|(_, piece)| Some(piece.rows as i64)).collect::<Int64Array>(),
                    ));
                }
                Total::Values(column) => {
                    arrays.push(Arc::new(count(column).map(|n| Some(n.unwrap_or(0) as i64)).collect::<Int64Array>()));
                }
                Total::Min(column) => arrays.push(extremes(of(column).map(|of| of.and_then(least)), kind(column)?)?),
                Total::Max(column) => arrays.push(extremes(of(column).map(|of| of.and_then(most)), kind(column)?)?),
                Total::IntegerSum(column) => {
                    let kind = self.schema.field(arrays.len()).data_type();
                    arrays.push(integers(of(column).map(|totals| totals.map(Totals::integer_sum)), kind)?);
                }
                Total::FloatSum(column) => arrays.push(float_sums(of(column))),
                Total::IntegerMean(column) => {
                    arrays.push(Arc::new(count(column).collect::<UInt64Array>()));
                    let kind = self.schema.field(arrays.len()).data_type();
                    arrays.push(integers(of(column).map(|totals| totals.map(Totals::integer_sum)), kind)?);
                }
                Total::FloatMean(column) => {
                    arrays
                        .extend([Arc::new(count(column).collect::<UInt64Array>()) as ArrayRef, float_sums(of(column))]);
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| QueryError::from(DataFusionError::from(error)))
    }
}

fn misfit() -> QueryError {
    QueryError::from(DataFusionError::Internal("totals do not fit their columns".to_owned()))
}

/// Returns the starts of pieces in microseconds, or in nanoseconds if the column has these.
fn starts(grid: Option<EqualPieces>, pieces: &[(i128, PieceTotals)], kind: &DataType) -> Result<ArrayRef, QueryError> {
    let grid = grid.ok_or_else(misfit)?;
    let in_ns = matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, _));
    let starts = pieces.iter().map(|(piece, _)| {
        let start = grid.start_of(*piece).div_euclid(if in_ns { 1 } else { 1_000 });
        i64::try_from(start).map_err(|_| QueryError::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range"))
    });
    let starts = starts.collect::<Result<Vec<i64>, _>>()?;
    Ok(match in_ns {
        true => Arc::new(TimestampNanosecondArray::from(starts).with_timezone(UTC)),
        false => Arc::new(TimestampMicrosecondArray::from(starts).with_timezone(UTC)),
    })
}

/// The value that `min` returns: NaN only if there is nothing else, as it is larger than every number.
fn least(totals: &Totals) -> Option<Value<'static>> {
    totals.min.or((totals.nans > 0).then_some(Value::F64(f64::NAN)))
}

/// The value that `max` returns.
fn most(totals: &Totals) -> Option<Value<'static>> {
    if totals.nans > 0 { Some(Value::F64(f64::NAN)) } else { totals.max }
}

/// Makes an array of integers as decimals of a type.
fn integers(values: impl Iterator<Item = Option<i128>>, kind: &DataType) -> Result<ArrayRef, QueryError> {
    let DataType::Decimal128(precision, scale) = *kind else { return Err(misfit()) };
    let decimals = values.collect::<Decimal128Array>().with_precision_and_scale(precision, scale);
    Ok(Arc::new(decimals.map_err(|error| QueryError::from(DataFusionError::from(error)))?))
}

fn float_sums<'t>(of: impl Iterator<Item = Option<&'t Totals>>) -> ArrayRef {
    Arc::new(of.map(|totals| totals.map(Totals::float_sum)).collect::<Float64Array>())
}

/// Makes an array of values of a channel, in the type that its column has.
fn extremes(
    values: impl ExactSizeIterator<Item = Option<Value<'static>>>,
    kind: ChannelType,
) -> Result<ArrayRef, QueryError> {
    macro_rules! integers {
        ($array:ident) => {{
            let values: Vec<_> = values
                .map(|value| {
                    value.map(|value| integer(&value)?.try_into().ok()).map(|v| v.ok_or_else(misfit)).transpose()
                })
                .collect::<Result<_, _>>()?;
            Arc::new($array::from(values))
        }};
    }
    Ok(match crate::table::column::arrow_type(kind) {
        DataType::Int16 => integers!(Int16Array),
        DataType::Int32 => integers!(Int32Array),
        DataType::Int64 => integers!(Int64Array),
        DataType::Float32 => {
            Arc::new(values.map(|value| value?.as_f64().map(|value| value as f32)).collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(values.map(|value| value?.as_f64()).collect::<Float64Array>()),
        decimal @ DataType::Decimal128(..) => {
            integers(values.map(|value| value.as_ref().and_then(unsigned)), &decimal)?
        }
        other => new_null_array(&other, values.len()),
    })
}

fn integer(value: &Value<'_>) -> Option<i64> {
    match value.convert(ChannelType::I64) {
        Some(Value::I64(value)) => Some(value),
        _ => None,
    }
}

fn unsigned(value: &Value<'_>) -> Option<i128> {
    match value.convert(ChannelType::U64) {
        Some(Value::U64(value)) => Some(value.into()),
        _ => None,
    }
}
