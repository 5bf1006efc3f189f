//! Scans: batches of one stream, filtered by time and rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Batch, Column, ColumnValues, OptionalTimes};
use crate::chunk::Chunk;
use crate::refusal::ScanError;
use crate::view::{Scan, StreamView, View};

/// Iterator of a scan.
pub struct Scanner {
    view: View,
    scan: Scan,
    stream: Option<Arc<StreamView>>,
    /// Chunks to come, with their rows in the view.
    chunks: VecDeque<(Arc<Chunk>, usize)>,
    ended: bool,
}

impl Scanner {
    pub(crate) fn new(view: View, scan: Scan) -> Scanner {
        let stream = view.stream(scan.stream);
        let mut chunks = VecDeque::new();
        if let Some(stream) = &stream {
            for (chunk, len) in stream.chunks() {
                let rows = chunk.first_row..chunk.first_row + len as u64;
                let Some((min, max)) = chunk.time_range() else { continue };
                if len > 0
                    && rows.start < scan.rows.end
                    && rows.end > scan.rows.start
                    && min < scan.time.end
                    && max >= scan.time.start
                {
                    chunks.push_back((chunk.clone(), len));
                }
            }
        }
        Scanner { view, scan, stream, chunks, ended: false }
    }
}

impl Iterator for Scanner {
    type Item = Result<Batch, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let stream = self.stream.clone()?;
        loop {
            let next = if self.scan.newest_first { self.chunks.pop_back() } else { self.chunks.pop_front() };
            let (chunk, len) = next?;
            if let Err(error) = self.view.check_age() {
                self.ended = true;
                return Some(Err(error));
            }
            let rows = select(&chunk, len, &self.scan.time, &self.scan.rows);
            if !rows.is_empty() {
                return Some(Ok(batch_of(&stream, &chunk, &rows, &self.scan)));
            }
        }
    }
}

/// Rows of a chunk within times and rows.
pub(crate) fn select(chunk: &Chunk, len: usize, time: &Range<i64>, rows: &Range<u64>) -> Vec<u32> {
    let mut from = rows.start.saturating_sub(chunk.first_row).min(len as u64) as usize;
    let mut to = rows.end.saturating_sub(chunk.first_row).min(len as u64) as usize;
    if time.start == i64::MIN && time.end == i64::MAX {
        return (from as u32..to as u32).collect();
    }
    if chunk.sorted() {
        from = from.max(chunk.lower_bound(time.start, len));
        to = to.min(chunk.lower_bound(time.end, len));
        return (from as u32..to as u32).collect();
    }
    (from..to).filter(|&r| time.contains(&chunk.time(r))).map(|r| r as u32).collect()
}

fn batch_of(stream: &StreamView, chunk: &Chunk, rows: &[u32], scan: &Scan) -> Batch {
    let mut batch = Batch {
        stream: scan.stream,
        rows: rows.iter().map(|&r| chunk.first_row + r as u64).collect(),
        receive_time: rows.iter().map(|&r| chunk.receive_time(r as usize)).collect(),
        source_time: None,
        sequence: None,
        session: None,
        source_clock: chunk.source_clock,
        columns: Vec::with_capacity(scan.columns.len()),
    };
    batch.source_time = optional(rows.iter().map(|&r| chunk.source_time(r as usize)));
    if chunk.shape.has_sequence {
        batch.sequence = optional(rows.iter().map(|&r| chunk.sequence(r as usize).map(|s| s.0)));
        if batch.sequence.is_some() {
            batch.session = Some(rows.iter().map(|&r| chunk.sequence(r as usize).map_or(0, |s| s.1)).collect());
        }
    }
    for index in &scan.columns {
        let Some(channel) = stream.stream.layout.channels.get(index.0 as usize) else { continue };
        let mut column = Column { values: ColumnValues::empty(channel.channel_type), states: None };
        chunk.append_column(index.0 as usize, rows, &mut column);
        batch.columns.push(column);
    }
    batch
}

/// Times of rows; none if no row has one.
pub(crate) fn optional(times: impl ExactSizeIterator<Item = Option<i64>>) -> Option<OptionalTimes> {
    let mut out = OptionalTimes { values: Vec::with_capacity(times.len()), valid: None };
    let mut any = false;
    for (i, time) in times.enumerate() {
        match (time, &mut out.valid) {
            (Some(_), Some(valid)) => valid.push(true),
            (None, Some(valid)) => valid.push(false),
            (Some(_), None) => {}
            (None, none) => {
                let mut valid = vec![true; i];
                valid.push(false);
                *none = Some(valid);
            }
        }
        any |= time.is_some();
        out.values.push(time.unwrap_or(0));
    }
    any.then_some(out)
}
