//! Frames of a table that are no longer in the store, and are kept elsewhere.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use strongback_store::{Stream, View};

use crate::error::QueryError;
use crate::table::column::TableColumn;

/// Frames that are wanted: those of streams in a span of time that are not in a view.
#[derive(Clone, Copy)]
pub(crate) struct Older<'a> {
    /// Name of the table.
    pub(crate) table: &'a str,
    /// Streams of the table.
    pub(crate) streams: &'a [Arc<Stream>],
    /// `time` from (inclusive) to (exclusive), in nanoseconds.
    pub(crate) time: &'a Range<i64>,
    /// View that has all other frames.
    pub(crate) view: &'a View,
}

/// A place with frames that are no longer in the store.
pub(crate) trait History: fmt::Debug + Send + Sync {
    /// Returns a time that no frame is later than; `None` if there are no frames.
    ///
    /// # Errors
    /// If that cannot be told.
    fn newest(&self, older: Older<'_>) -> Result<Option<i64>, QueryError>;

    /// Returns a plan that reads some columns of the frames, in at most `partitions` partitions. Returns `None` if there are
    /// no frames.
    ///
    /// # Errors
    /// If it cannot be told whether there are.
    fn scan(
        &self,
        older: Older<'_>,
        columns: (Arc<Vec<TableColumn>>, SchemaRef),
        partitions: usize,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, QueryError>;
}
