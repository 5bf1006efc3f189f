//! Counts stored rows by the directories of segments, without reading blocks.

use std::ops::Range;

use crate::ScanError;
use crate::model::stream::StreamId;
use crate::read::request::Scan;
use crate::read::view::View;

impl View {
    /// Returns how many of these rows of a stream the view still has. Rows that expired are missing. Costs little if
    /// the rows are recent, as segments are searched from the newest one back to the first of the rows.
    ///
    /// # Errors
    /// If a directory cannot be read, or the view is too old.
    pub fn rows_stored(&self, stream: StreamId, rows: Range<u64>) -> Result<u64, ScanError> {
        self.check_age()?;
        let Some(view) = self.stream(stream) else { return Ok(0) };
        let end = rows.end.min(view.next_row);
        let mut stored = end.saturating_sub(rows.start.max(view.open.first_row));
        let sealed = rows.start..end.min(view.open.first_row);
        if sealed.is_empty() {
            return Ok(stored);
        }
        let scan = Scan { rows: sealed.clone(), ..Scan::all(stream, Vec::new()) };
        for segment in view.segments(i64::MIN, i64::MAX).iter().rev() {
            let blocks = view.blocks_of(segment, (&scan.time, &scan.rows), self.shared())?;
            let within = |from: u64, to: u64| to.min(sealed.end).saturating_sub(from.max(sealed.start));
            stored += blocks.iter().map(|block| within(block.first_row, block.end_row())).sum::<u64>();
            if blocks.iter().any(|block| block.first_row <= sealed.start) {
                break;
            }
        }
        Ok(stored)
    }
}
