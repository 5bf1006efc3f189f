//! Reads the rows that the server itself wrote to one of its tables, such as steps of runs and marks.

use strongback_store::{Batch, ChannelIndex, ChannelType, Scan, ScanError, Store, Value};

/// A row of a table of the server, with its columns in the order in which they were asked for.
pub struct Record<'a> {
    batch: &'a Batch,
    row: usize,
}

impl Record<'_> {
    /// Returns the `time` of the row, in nanoseconds since 1970 UTC.
    pub fn time(&self) -> i64 {
        self.batch.time(self.row)
    }

    /// Returns a text, which is empty if the row has none.
    pub fn text(&self, column: usize) -> &str {
        match self.batch.columns[column].cell(self.row) {
            Ok(Value::String(text)) => text,
            _ => "",
        }
    }

    /// Returns an integer, if the row has one.
    pub fn integer(&self, column: usize) -> Option<i64> {
        match self.batch.columns[column].cell(self.row) {
            Ok(Value::I64(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns an integer without sign, if the row has one.
    pub fn unsigned(&self, column: usize) -> Option<u64> {
        match self.batch.columns[column].cell(self.row) {
            Ok(Value::U64(value)) => Some(value),
            _ => None,
        }
    }
}

/// Visits the rows of a table in the order in which they were stored. A table that does not exist, or that lacks a
/// column, has none.
///
/// # Errors
/// Returns an error if the scan ends early; what was visited until then counts.
pub fn each_record(
    store: &Store,
    table: &str,
    columns: &[(&str, ChannelType)],
    mut visit: impl FnMut(&Record<'_>),
) -> Result<(), ScanError> {
    let catalog = store.catalog();
    let Some(stream) = catalog.streams.iter().find(|stream| stream.key.table == table) else { return Ok(()) };
    let columns: Option<Vec<ChannelIndex>> = columns.iter().map(|(name, _)| stream.layout.index(name)).collect();
    let Some(columns) = columns else { return Ok(()) };
    for batch in store.view().scan(Scan::all(stream.id, columns)) {
        let batch = batch?;
        (0..batch.len()).for_each(|row| visit(&Record { batch: &batch, row }));
    }
    Ok(())
}
