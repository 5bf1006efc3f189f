//! Frames in the lake that are no longer in the store, for SQL.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::RwLock;
use strongback_store::{Scan, StreamId, View};

use crate::error::{QueryError, sqlstate};
use crate::lake::folder::{Folder, LakePlace};
use crate::lake::frames::stream_name;
use crate::lake::log::{LakeFile, Log};
use crate::lake::scan::{LakeScan, OfStream};
use crate::table::column::TableColumn;
use crate::table::history::{History, Older};

/// What is known of a lake: its log as its writer last read or wrote it.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) log: RwLock<Option<Log>>,
}

/// A lake that SQL reads frames from that are no longer in the store.
pub struct LakeHistory {
    place: LakePlace,
    origin: u128,
    pub(crate) known: Arc<Known>,
    /// Connection for queries; the writer has its own.
    folder: RwLock<Option<Folder>>,
}

impl fmt::Debug for LakeHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeHistory").field("place", &self.place).finish_non_exhaustive()
    }
}

impl LakeHistory {
    /// Prepares reading from the lake of a store of this origin. It is known once its writer has opened it.
    pub fn new(place: LakePlace, origin: u128) -> LakeHistory {
        LakeHistory { place, origin, known: Arc::default(), folder: RwLock::default() }
    }

    /// Shows the files that have frames, and returns from which row on frames of their streams are in the store.
    fn find(&self, older: Older<'_>, mut found: impl FnMut(&LakeFile)) -> Result<HashMap<StreamId, u64>, QueryError> {
        let log = self.known.log.read();
        let mut ends: HashMap<StreamId, u64> = HashMap::new();
        let Some(log) = &*log else {
            // Without its log nobody knows what is there. Streams with all their rows here need nothing.
            return match older.streams.iter().find(|stream| first_row(older.view, stream.id) > 0) {
                None => Ok(ends),
                Some(stream) => {
                    let text = format!("older frames of {} are in a lake that cannot be read now", stream.key);
                    let hint = format!("{:?} has not been opened; `strongback archive list` says why.", self.place.url);
                    Err(QueryError::new(sqlstate::IO_ERROR, text).with_hint(hint))
                }
            };
        };
        let ids: HashMap<u32, StreamId> = older.streams.iter().map(|stream| (stream.id.0, stream.id)).collect();
        for file in log.files.get(older.table).into_iter().flatten() {
            if file.time_ns.0 >= older.time.end || file.time_ns.1 < older.time.start {
                continue;
            }
            let mut is_wanted = false;
            for (stream, first, ..) in &file.streams {
                let Some(stream) = ids.get(stream) else { continue };
                let end = *ends.entry(*stream).or_insert_with(|| first_row(older.view, *stream));
                is_wanted |= *first < end;
            }
            if is_wanted {
                found(file);
            }
        }
        Ok(ends)
    }

    fn folder(&self) -> Result<Folder, QueryError> {
        if let Some(folder) = &*self.folder.read() {
            return Ok(folder.clone());
        }
        let opened = self.place.open().map_err(|why| QueryError::new(sqlstate::IO_ERROR, why))?;
        Ok(self.folder.write().insert(opened).clone())
    }
}

/// Returns the first row of a stream that a view has; the next one if it has none.
fn first_row(view: &View, stream: StreamId) -> u64 {
    let mut scan = Scan::all(stream, Vec::new());
    scan.batch_rows = 1;
    let first = view.scan(scan).filter_map(Result::ok).find_map(|batch| batch.rows.first().copied());
    first.unwrap_or_else(|| view.next_row(stream))
}

impl History for LakeHistory {
    fn newest(&self, older: Older<'_>) -> Result<Option<i64>, QueryError> {
        let mut newest = None;
        self.find(older, |file| newest = newest.max(Some(file.time_ns.1)))?;
        Ok(newest)
    }

    fn scan(
        &self,
        older: Older<'_>,
        columns: (Arc<Vec<TableColumn>>, SchemaRef),
        partitions: usize,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, QueryError> {
        let mut files = Vec::new();
        let ends = self.find(older, |file| files.push(file.clone()))?;
        if files.is_empty() {
            return Ok(None);
        }
        let log = self.known.log.read();
        let book = log.as_ref().and_then(|log| log.books.get(older.table)).cloned().unwrap_or_default();
        drop(log);
        let streams = older.streams.iter().filter_map(|stream| {
            let end = *ends.get(&stream.id)?;
            Some((
                stream_name(self.origin, stream),
                OfStream { end, left_out: left_out(older.view, stream.id, &columns.0) },
            ))
        });
        let time: Range<i64> = older.time.clone();
        let scan = LakeScan::new(self.folder()?, (files, book), streams.collect(), time, columns, partitions);
        Ok(Some(Arc::new(scan)))
    }
}

/// Returns the spans of time in which values of columns are marked bad.
fn left_out(view: &View, stream: StreamId, columns: &[TableColumn]) -> Vec<(usize, Vec<Range<i64>>)> {
    let spans = columns.iter().enumerate().filter_map(|(at, column)| {
        let spans = view.left_out(stream, column.channel(stream)?);
        (!spans.is_empty()).then_some((at, spans))
    });
    spans.collect()
}
