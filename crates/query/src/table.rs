//! A table of the store as DataFusion sees it: all streams of one name, with time, tags, columns, limit and
//! order pushed down to the scan.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use strongback_store::{ChannelIndex, Clock, Scan, Store, Stream, View};

use crate::column::{ColumnSource, FrameTime, TableColumn, batch_array, table_columns, table_schema};
use crate::error::QueryError;
use crate::filter::{self, ALL_TIMES};

/// Streams up to which each is a partition of its own, so that its order can be declared.
const ORDERED_PARTITIONS_MAX: usize = 16;

/// Batches between two yields to the runtime, so that a scan can always be cancelled.
const BATCHES_BETWEEN_YIELDS: usize = 8;

/// The view that all tables of one query read: in the session's extensions.
pub(crate) struct PinnedView(pub(crate) View);

/// A table at one version of the catalog.
pub(crate) struct StoreTable {
    store: Store,
    /// Exact name.
    pub(crate) name: String,
    /// In the order of their ids.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// In the order that SQL shows them.
    pub(crate) columns: Arc<Vec<TableColumn>>,
    schema: SchemaRef,
}

impl fmt::Debug for StoreTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTable").field("name", &self.name).field("streams", &self.streams.len()).finish()
    }
}

impl StoreTable {
    pub(crate) fn new(store: Store, name: String, streams: Vec<Arc<Stream>>) -> Self {
        let columns = Arc::new(table_columns(&streams));
        let schema = table_schema(&columns);
        StoreTable { store, name, streams, columns, schema }
    }

    /// The table's scan of one stream: the channels to ask for, and for each column its place among them.
    pub(crate) fn channels_of(
        columns: &[TableColumn],
        stream: &Stream,
        view: &View,
    ) -> (Vec<ChannelIndex>, Vec<Option<usize>>) {
        // The view may be older than the table: channels it does not know yet are NULL.
        let known = view.catalog().stream(stream.id).map_or(0, |s| s.layout.channels.len());
        let mut channels = Vec::new();
        let positions = columns
            .iter()
            .map(|column| {
                let index = column.channel(stream.id).filter(|index| (index.0 as usize) < known)?;
                channels.push(index);
                Some(channels.len() - 1)
            })
            .collect();
        (channels, positions)
    }

    /// Columns that ascend with the frames of these streams in a view, if their order is known.
    fn orders(&self, view: &View, streams: &[Arc<Stream>], projected: &[TableColumn]) -> Vec<LexOrdering> {
        if !streams.iter().all(|s| view.time_sorted(s.id)) {
            return Vec::new();
        }
        let receive = streams.iter().all(|s| s.clock == Clock::Receive);
        let ascending = SortOptions { descending: false, nulls_first: false };
        projected
            .iter()
            .enumerate()
            .filter(|(_, column)| match column.source {
                ColumnSource::Micros(FrameTime::Time) | ColumnSource::Nanos(FrameTime::Time) => true,
                ColumnSource::Micros(FrameTime::Receive) | ColumnSource::Nanos(FrameTime::Receive) => receive,
                _ => false,
            })
            .filter_map(|(at, column)| {
                let expr = Arc::new(ColumnExpr::new(&column.name, at));
                LexOrdering::new([PhysicalSortExpr::new(expr, ascending)])
            })
            .collect()
    }
}

#[async_trait]
impl TableProvider for StoreTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| {
                if filter::time_range(filter, &self.columns).is_some() || filter::is_tag_filter(filter, &self.columns) {
                    TableProviderFilterPushDown::Exact
                } else {
                    TableProviderFilterPushDown::Unsupported
                }
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let view = match state.config().get_extension::<PinnedView>() {
            Some(pinned) => pinned.0.clone(),
            None => self.store.view(),
        };
        let (columns, schema) = match projection {
            None => (self.columns.clone(), self.schema.clone()),
            Some(wanted) => {
                let columns = wanted.iter().map(|at| self.columns[*at].clone()).collect();
                (Arc::new(columns), Arc::new(self.schema.project(wanted)?))
            }
        };
        let mut time = ALL_TIMES;
        let mut tag_filters = Vec::new();
        for filter in filters {
            match filter::time_range(filter, &self.columns) {
                Some(range) => time = filter::intersect(time, range),
                None => tag_filters.push(filter.clone()),
            }
        }
        let mut streams = filter::streams_with_tags(state, tag_filters, &self.columns, &self.streams)?;
        streams.retain(|s| view.time_range(s.id).is_some_and(|(first, last)| first < time.end && last >= time.start));
        if streams.is_empty() {
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let scan_of = |streams: Vec<Arc<Stream>>| -> Arc<dyn PartitionStream> {
            Arc::new(StreamScan {
                view: view.clone(),
                streams,
                time: time.clone(),
                columns: columns.clone(),
                schema: schema.clone(),
            })
        };
        let (partitions, orders) = if streams.len() <= ORDERED_PARTITIONS_MAX {
            let orders = self.orders(&view, &streams, &columns);
            (streams.into_iter().map(|s| scan_of(vec![s])).collect(), orders)
        } else {
            let share = streams.len().div_ceil(state.config().target_partitions().max(1));
            (streams.chunks(share).map(|s| scan_of(s.to_vec())).collect::<Vec<_>>(), Vec::new())
        };
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, orders, false, limit)?))
    }
}

/// Some streams of a table, one after the other.
struct StreamScan {
    view: View,
    streams: Vec<Arc<Stream>>,
    time: std::ops::Range<i64>,
    columns: Arc<Vec<TableColumn>>,
    schema: SchemaRef,
}

impl fmt::Debug for StreamScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamScan").field("streams", &self.streams.len()).field("time", &self.time).finish()
    }
}

impl PartitionStream for StreamScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (view, columns, schema, time) =
            (self.view.clone(), self.columns.clone(), self.schema.clone(), self.time.clone());
        let batches = self.streams.clone().into_iter().flat_map(move |stream| {
            let (channels, positions) = StoreTable::channels_of(&columns, &stream, &view);
            let mut scan = Scan::all(stream.id, channels);
            scan.time = time.clone();
            let (columns, schema) = (columns.clone(), schema.clone());
            view.scan(scan).map(move |batch| {
                let batch = batch.map_err(|e| DataFusionError::External(Box::new(e)))?;
                record_batch(&columns, &schema, &batch, &stream, &positions).map_err(QueryError::into_datafusion)
            })
        });
        let stream = futures::stream::unfold((batches, 0), |(mut batches, seen)| async move {
            if seen % BATCHES_BETWEEN_YIELDS == BATCHES_BETWEEN_YIELDS - 1 {
                tokio::task::yield_now().await;
            }
            batches.next().map(|batch| (batch, (batches, seen + 1)))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}

/// The columns of a table for one batch of a stream.
pub(crate) fn record_batch(
    columns: &[TableColumn],
    schema: &Arc<Schema>,
    batch: &strongback_store::Batch,
    stream: &Stream,
    positions: &[Option<usize>],
) -> Result<RecordBatch, QueryError> {
    let arrays = columns
        .iter()
        .zip(positions)
        .map(|(column, position)| batch_array(column, batch, stream, *position))
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
        .map_err(|e| QueryError::from(DataFusionError::from(e)))
}
