//! A table of the store for DataFusion: all streams with one name, where time, tags, columns, limit and order are
//! pushed down to the scan.

pub(crate) mod basis;
pub(crate) mod column;
pub(crate) mod condition;
pub(crate) mod filter;
pub(crate) mod history;
pub(crate) mod merge;
pub(crate) mod scan;
pub(crate) mod totals;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use futures::future::{BoxFuture, ready};
use strongback_store::{ChannelIndex, Store, Stream, StreamId, View};

use crate::error::QueryError;
use crate::table::basis::overlaps;
use crate::table::column::{TableColumn, table_columns, table_schema};
use crate::table::filter::ALL_TIMES;
use crate::table::history::{History, Older};
use crate::table::scan::StoreScan;

/// View that all tables of a query read, stored in the session's extensions.
pub(crate) struct PinnedView(pub(crate) View);

/// Rows of streams, from (inclusive) to (exclusive). Streams without an entry have none.
pub(crate) type RowRanges = HashMap<StreamId, Range<u64>>;

/// Part of the view that all tables of a query read, stored in the session's extensions. Without it they read all.
#[derive(Clone, Debug)]
pub(crate) struct PinnedPart {
    /// `time` from (inclusive) to (exclusive), in nanoseconds.
    pub(crate) time: Range<i64>,
    /// Rows; `None` for all.
    pub(crate) rows: Option<Arc<RowRanges>>,
}

/// A table at one version of the catalog.
pub(crate) struct StoreTable {
    pub(crate) store: Store,
    /// Exact name.
    pub(crate) name: String,
    /// Streams in the order of their ids.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// Columns in SQL order.
    pub(crate) columns: Arc<Vec<TableColumn>>,
    schema: SchemaRef,
    /// Frames that are no longer in the store.
    history: Option<Arc<dyn History>>,
}

impl fmt::Debug for StoreTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTable").field("name", &self.name).field("streams", &self.streams.len()).finish()
    }
}

impl StoreTable {
    /// Creates a table. A `declared` stream adds columns that the others may lack, and no rows.
    pub(crate) fn new(
        (store, history): (Store, Option<Arc<dyn History>>),
        name: String,
        streams: Vec<Arc<Stream>>,
        declared: Option<&Arc<Stream>>,
    ) -> Self {
        let all: Vec<Arc<Stream>> = streams.iter().chain(declared).cloned().collect();
        let columns = Arc::new(table_columns(&all));
        let schema = table_schema(&columns);
        StoreTable { store, name, streams, columns, schema, history }
    }

    /// Returns a time that no frame of streams is later than that is no longer in the store, as far as a view has it;
    /// `None` if there are no such frames.
    ///
    /// # Errors
    /// If that cannot be told.
    pub(crate) fn newest_older(
        &self,
        view: &View,
        streams: &[Arc<Stream>],
        time: &Range<i64>,
    ) -> Result<Option<i64>, QueryError> {
        let older = Older { table: &self.name, streams, time, view };
        self.history.as_ref().map_or(Ok(None), |history| history.newest(older))
    }

    /// Returns the channels to read for a scan of one stream, and for each column its position among them.
    pub(crate) fn channels_of(
        columns: &[TableColumn],
        stream: &Stream,
        view: &View,
    ) -> (Vec<ChannelIndex>, Vec<Option<usize>>) {
        // The view may be older than the table. Channels it does not know yet are NULL.
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
}

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

    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        state: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        filters: &'c [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
    {
        planned(self.plan_scan(state, projection, filters, limit))
    }
}

/// Wraps a plan in a ready future. It takes a value because, for an async function that holds expressions, the compiler
/// would prove again that each part of each expression is `Send`, which takes ten seconds per function.
pub(crate) fn planned<'f, T: Send + 'f>(plan: T) -> BoxFuture<'f, T> {
    Box::pin(ready(plan))
}

impl StoreTable {
    fn plan_scan(
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
        let part = state.config().get_extension::<PinnedPart>();
        let mut time = part.as_ref().map_or(ALL_TIMES, |part| part.time.clone());
        let rows = part.and_then(|part| part.rows.clone());
        let mut tag_filters = Vec::new();
        for filter in filters {
            match filter::time_range(filter, &self.columns) {
                Some(range) => time = filter::intersect(time, range),
                None => tag_filters.push(filter.clone()),
            }
        }
        let streams = filter::streams_with_tags(state, tag_filters, &self.columns, &self.streams)?;
        let partitions = state.config().target_partitions();
        let older = match (&self.history, &rows) {
            (Some(history), None) => {
                let older = Older { table: &self.name, streams: &streams, time: &time, view: &view };
                history
                    .scan(older, (columns.clone(), schema.clone()), partitions)
                    .map_err(QueryError::into_datafusion)?
            }
            _ => None,
        };
        let (mut streams, empty): (Vec<_>, Vec<_>) =
            streams.into_iter().partition(|stream| overlaps(&view, stream, &time));
        if let Some(rows) = &rows {
            streams.retain(|stream| rows.get(&stream.id).is_some_and(|rows| !rows.is_empty()));
        }
        if streams.is_empty() {
            return Ok(older.unwrap_or_else(|| Arc::new(EmptyExec::new(schema))));
        }
        let watch = self.history.clone().map(|history| (history, self.name.as_str().into()));
        let scan = StoreScan::new((view, watch), (streams, empty), time, (columns, schema), partitions, limit);
        let scan: Arc<dyn ExecutionPlan> = Arc::new(match rows {
            Some(rows) => scan.within(rows),
            None => scan,
        });
        match older {
            None => Ok(scan),
            Some(older) => UnionExec::try_new(vec![older, scan]),
        }
    }
}
