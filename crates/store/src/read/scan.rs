//! Scans: batches of one stream, filtered by time and rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::append::chunk::{Chunk, lower_bound};
use crate::model::batch::{Batch, Column, ColumnValues, OptionalTimes};
use crate::model::refusal::ScanError;
use crate::model::stream::ChannelIndex;
use crate::read::block_counts::BlockCounts;
use crate::read::condition::Fulfilled;
use crate::read::elements;
use crate::read::request::Scan;
use crate::read::stream_view::StreamView;
use crate::read::view::View;
use crate::segment::directory::last_row::{LastRow, LastRowKey};
use crate::segment::directory::{BlockRef, Segment};

/// Iterator of a scan. After an error that concerns one block it continues with the next.
pub struct Scanner {
    view: View,
    scan: Scan,
    stream: Option<Arc<StreamView>>,
    /// Remaining segments, oldest first.
    segments: VecDeque<Arc<Segment>>,
    /// Segment being read, and its remaining blocks, oldest first.
    segment: Option<Arc<Segment>>,
    blocks: VecDeque<BlockRef>,
    /// Remaining chunks, with their rows in the view.
    chunks: VecDeque<(Arc<Chunk>, usize)>,
    /// What became of the blocks so far.
    counts: BlockCounts,
    /// Error for a request that cannot be fulfilled.
    refused: Option<ScanError>,
    ended: bool,
}

impl Scanner {
    pub(crate) fn new(view: View, mut scan: Scan) -> Scanner {
        let stream = view.stream(scan.stream);
        let mut chunks = VecDeque::new();
        let mut segments = VecDeque::new();
        let mut refused = None;
        if let Some(stream) = &stream {
            refused = elements::check(&scan.elements, &stream.stream.layout).err();
            let channels = stream.stream.layout.channels.len();
            scan.columns.retain(|index| (index.0 as usize) < channels);
            scan.conditions.retain(|condition| (condition.channel.0 as usize) < channels);
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
            // Skip segments if all sealed rows are older than the range or come before the requested rows, which is
            // the common case.
            if stream.sealed.time.1 >= scan.time.start && stream.open.first_row > scan.rows.start {
                segments = stream.segments(scan.time.start, scan.time.end.saturating_sub(1)).into();
            }
        }
        let (blocks, counts) = (VecDeque::new(), BlockCounts::default());
        Scanner { view, scan, stream, segments, segment: None, blocks, chunks, counts, refused, ended: false }
    }

    /// Returns what became of the blocks so far.
    pub fn block_counts(&self) -> BlockCounts {
        self.counts
    }

    /// Returns whether by its statistics no row of a block fulfils the conditions.
    fn is_passed(&self, stream: &StreamView, segment: &Arc<Segment>, block: &BlockRef) -> Result<bool, ScanError> {
        let channels: Vec<ChannelIndex> = self.scan.conditions.iter().map(|condition| condition.channel).collect();
        if channels.is_empty() {
            return Ok(false);
        }
        let found = stream.statistics(segment, block, &channels, self.view.shared())?;
        let layout = &stream.stream.layout.channels;
        Ok(self.scan.conditions.iter().zip(found.iter().flatten()).any(|(condition, found)| {
            let kind = layout[condition.channel.0 as usize].channel_type;
            condition.of_column(block.rows.into(), found, kind) == Fulfilled::None
        }))
    }

    /// Returns the next block, from segment to segment.
    fn next_block(&mut self, stream: &StreamView) -> Option<Result<(Arc<Segment>, BlockRef), ScanError>> {
        let newest_first = self.scan.newest_first;
        loop {
            let block = if newest_first { self.blocks.pop_back() } else { self.blocks.pop_front() };
            if let (Some(block), Some(segment)) = (block, self.segment.clone()) {
                match self.is_passed(stream, &segment, &block) {
                    Err(error) => return Some(Err(error)),
                    Ok(true) => self.counts.passed += 1,
                    Ok(false) => return Some(Ok((segment, block))),
                }
                continue;
            }
            let segment = if newest_first { self.segments.pop_back() } else { self.segments.pop_front() }?;
            match stream.blocks_of(&segment, (&self.scan.time, &self.scan.rows), self.view.shared()) {
                Err(error) => return Some(Err(error)),
                Ok(blocks) => (self.segment, self.blocks) = (Some(segment), blocks.into()),
            }
        }
    }

    fn next_of_blocks(&mut self, stream: &StreamView) -> Option<Result<Batch, ScanError>> {
        loop {
            let (segment, block) = match self.next_block(stream)? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let last_row = self.last_row(stream, &segment, &block);
            if let Some(batch) = last_row.and_then(|key| self.kept_row(stream, key)) {
                if block.rows > 1 {
                    self.scan.rows.end = block.end_row() - 1;
                    self.blocks.push_back(block);
                }
                return Some(Ok(batch));
            }
            let (scan, shared) = (&self.scan, self.view.shared());
            let read = match scan.elements.as_slice() {
                [] => stream.read(&segment, &block, &scan.columns, shared),
                elements => stream.read_elements(&segment, &block, &scan.columns, elements, shared),
            };
            let batch = match read {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            };
            self.counts.read += 1;
            let mut keep = rows_within(&batch, &self.scan, block.time_sorted);
            if self.cut(&mut keep, |row| batch.rows[row as usize]) {
                if self.scan.newest_first { self.blocks.push_back(block) } else { self.blocks.push_front(block) }
            }
            let found = match keep.len() {
                0 => continue,
                len if len == batch.len() => batch,
                _ => pick(&batch, &keep),
            };
            if let Some(key) = last_row {
                let kept = LastRow::new(&self.scan.columns, found.clone());
                self.view.shared().residents.last_rows.keep(key, kept, LastRow::bytes);
            }
            return Some(Ok(found));
        }
    }

    /// Returns where the last row of a block is kept, if exactly this row is the next one.
    fn last_row(&self, stream: &StreamView, segment: &Segment, block: &BlockRef) -> Option<(u64, LastRowKey)> {
        let scan = &self.scan;
        let is_asked = scan.newest_first && scan.batch_rows == 1 && scan.elements.is_empty();
        let is_within = scan.time.start <= block.time.0
            && block.time.1 < scan.time.end
            && scan.rows.start <= block.first_row
            && block.end_row() <= scan.rows.end;
        let is_plain = stream.excluded.is_none() && block.rows > 0;
        let key = || (segment.id, LastRow::key(scan.stream.0, block.first_row, &scan.columns));
        (is_asked && is_within && is_plain).then(key)
    }

    fn kept_row(&self, stream: &StreamView, key: (u64, LastRowKey)) -> Option<Batch> {
        let kept = self.view.shared().residents.last_rows.get(key)?;
        kept.with(&self.scan.columns, &stream.stream.layout)
    }

    fn next_of_chunks(&mut self, stream: &StreamView) -> Option<Result<Batch, ScanError>> {
        loop {
            let (chunk, len) = if self.scan.newest_first { self.chunks.pop_back() } else { self.chunks.pop_front() }?;
            let mut rows = match select_range(&chunk, len, &self.scan.time, &self.scan.rows) {
                // Of a range, no more rows are listed than are returned, and one that tells that there are more.
                Some(range) => self.listed(range),
                None => select(&chunk, len, &self.scan.time, &self.scan.rows),
            };
            if self.cut(&mut rows, |row| chunk.first_row + u64::from(row)) {
                let chunk = (chunk.clone(), len);
                if self.scan.newest_first { self.chunks.push_back(chunk) } else { self.chunks.push_front(chunk) }
            }
            if !rows.is_empty() {
                return Some(Ok(batch_of(stream, &chunk, &rows, &self.scan)));
            }
        }
    }

    /// Lists those rows of a range that a batch can have, and the next one.
    fn listed(&self, range: Range<u32>) -> Vec<u32> {
        let most = u32::try_from(self.scan.batch_rows.max(1)).unwrap_or(u32::MAX).saturating_add(1);
        if self.scan.newest_first {
            (range.start.max(range.end.saturating_sub(most))..range.end).collect()
        } else {
            (range.start..range.end.min(range.start.saturating_add(most))).collect()
        }
    }

    /// Cuts rows to the max of a batch; the scan's remaining range then begins after them. Returns `true` if any are
    /// left.
    fn cut(&mut self, rows: &mut Vec<u32>, ordinal: impl Fn(u32) -> u64) -> bool {
        let most = self.scan.batch_rows.max(1);
        if rows.len() <= most {
            return false;
        }
        if self.scan.newest_first {
            rows.drain(..rows.len() - most);
            self.scan.rows.end = ordinal(rows[0]);
        } else {
            rows.truncate(most);
            self.scan.rows.start = ordinal(rows[most - 1]) + 1;
        }
        true
    }
}

impl Iterator for Scanner {
    type Item = Result<Batch, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let stream = self.stream.clone()?;
        if let Err(error) = self.refused.take().map_or_else(|| self.view.check_age(), Err) {
            self.ended = true;
            return Some(Err(error));
        }
        let next = if self.scan.newest_first {
            self.next_of_chunks(&stream).or_else(|| self.next_of_blocks(&stream))
        } else {
            self.next_of_blocks(&stream).or_else(|| self.next_of_chunks(&stream))
        };
        self.ended = next.is_none();
        next
    }
}

/// Selects the rows of a batch within times and rows. Rows are consecutive; `sorted` tells whether its times ascend.
fn rows_within(batch: &Batch, scan: &Scan, sorted: bool) -> Vec<u32> {
    let (len, first) = (batch.len() as u64, batch.rows.first().copied().unwrap_or(0));
    let from = scan.rows.start.saturating_sub(first).min(len) as u32;
    let to = scan.rows.end.saturating_sub(first).min(len) as u32;
    if !sorted {
        return (from..to).filter(|&row| scan.time.contains(&batch.time(row as usize))).collect();
    }
    let before = |time: i64| lower_bound(len as usize, |row| batch.time(row) < time) as u32;
    (from.max(before(scan.time.start))..to.min(before(scan.time.end))).collect()
}

/// Copies some rows of a batch.
fn pick(batch: &Batch, keep: &[u32]) -> Batch {
    fn of<T: Copy>(values: &[T], keep: &[u32]) -> Vec<T> {
        keep.iter().map(|&i| values[i as usize]).collect()
    }
    let times = |times: &OptionalTimes| OptionalTimes {
        values: of(&times.values, keep),
        valid: times.valid.as_ref().map(|valid| of(valid, keep)),
    };
    let column = |column: &Column| {
        let values = column.values.pick(keep.iter().map(|&row| row as usize));
        Column { values, states: column.states.as_ref().map(|states| of(states, keep)) }
    };
    Batch {
        stream: batch.stream,
        rows: of(&batch.rows, keep),
        receive_time: of(&batch.receive_time, keep),
        source_time: batch.source_time.as_ref().map(times),
        sequence: batch.sequence.as_ref().map(times),
        session: batch.session.as_ref().map(|session| of(session, keep)),
        source_clock: batch.source_clock,
        columns: batch.columns.iter().map(column).collect(),
    }
}

/// Selects the rows of a chunk within times and rows.
pub(crate) fn select(chunk: &Chunk, len: usize, time: &Range<i64>, rows: &Range<u64>) -> Vec<u32> {
    if let Some(range) = select_range(chunk, len, time, rows) {
        return range.collect();
    }
    let (from, to) = ordinals(chunk, len, rows);
    (from..to).filter(|&r| time.contains(&chunk.time(r))).map(|r| r as u32).collect()
}

/// Selects the rows of a chunk within times and rows, if they are known to follow one another.
fn select_range(chunk: &Chunk, len: usize, time: &Range<i64>, rows: &Range<u64>) -> Option<Range<u32>> {
    let (from, to) = ordinals(chunk, len, rows);
    if time.start == i64::MIN && time.end == i64::MAX {
        return Some(from as u32..to as u32);
    }
    let of_times =
        || from.max(chunk.lower_bound(time.start, len)) as u32..to.min(chunk.lower_bound(time.end, len)) as u32;
    chunk.sorted().then(of_times)
}

/// Returns the first row of a chunk within rows, and the one after the last.
fn ordinals(chunk: &Chunk, len: usize, rows: &Range<u64>) -> (usize, usize) {
    let ordinal = |row: u64| row.saturating_sub(chunk.first_row).min(len as u64) as usize;
    (ordinal(rows.start), ordinal(rows.end))
}

pub(crate) fn batch_of(stream: &StreamView, chunk: &Chunk, rows: &[u32], scan: &Scan) -> Batch {
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
    elements::add_of_chunk(chunk, rows, &scan.elements, &stream.stream.layout, &mut batch);
    stream.leave_out(&mut batch, elements::channels(&scan.columns, &scan.elements));
    batch
}

/// Collects times of rows; returns `None` if no row has one.
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
