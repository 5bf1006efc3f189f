//! Views: immutable snapshots to read from beside the writer.
//!
//! Taking one costs an allocation. What it holds of a stream is fixed when that stream is first asked for
//! and stays so for the view and its clones: the open rows first, the segments after them, so that a row
//! that is being sealed in between is in one of the two for certain, and by its number in one only.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::batch::Batch;
use crate::block::Block;
use crate::bytes::FormatError;
use crate::catalog::Catalog;
use crate::checkpoint::SealedRows;
use crate::clock::Mark;
use crate::directory::{BlockRef, Segment, SegmentList};
use crate::elements::ElementRange;
use crate::group::Group;
use crate::held::Held;
use crate::limits::{PARTED_BYTES, PARTED_CHANNELS, STATISTICS_MIN_ROWS};
use crate::parts::Parts;
use crate::scan::Scanner;
use crate::state::{StateCell, state_at};
use crate::stream::*;
use crate::stream_slot::OpenRows;
use crate::{ScanError, shared::Shared};

/// What to scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The stream.
    pub stream: StreamId,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Rows from (inclusive) to (exclusive).
    pub rows: Range<u64>,
    /// Channels wanted; the batches' columns come in this order.
    pub columns: Vec<ChannelIndex>,
    /// Single elements of arrays: a column for each behind the others, for which whole arrays are not read.
    pub elements: Vec<ElementRange>,
    /// Newest batches first (rows ascend within each batch all the same).
    pub newest_first: bool,
    /// Most rows of a batch: for a reader that needs few. What a batch leaves of a block is read again for the next.
    pub batch_rows: usize,
}

impl Scan {
    /// All rows and times of a stream.
    pub fn all(stream: StreamId, columns: Vec<ChannelIndex>) -> Self {
        let (time, rows) = (i64::MIN..i64::MAX, 0..u64::MAX);
        Scan { stream, time, rows, columns, elements: Vec::new(), newest_first: false, batch_rows: usize::MAX }
    }
}

/// An immutable snapshot of the store.
#[derive(Clone)]
pub struct View {
    inner: Arc<ViewInner>,
}

struct ViewInner {
    shared: Arc<Shared>,
    catalog: OnceLock<Arc<Catalog>>,
    taken: Mark,
    streams: Mutex<HashMap<u32, Arc<StreamView>, foldhash::fast::RandomState>>,
}

/// What a view holds of one stream.
#[derive(Debug)]
pub(crate) struct StreamView {
    /// Its definition: at least as new as every row.
    pub(crate) stream: Arc<Stream>,
    /// Its retention group: where its segments are.
    pub(crate) group: Group,
    /// Its rows in memory.
    pub(crate) open: Arc<OpenRows>,
    /// Rows of the last chunk that belong to the view.
    pub(crate) last_len: usize,
    /// Its newest frame, if that got no row.
    pub(crate) held: Option<Arc<Held>>,
    /// Next row.
    pub(crate) next_row: u64,
    /// What is known of its rows in segments: at least those below the open ones.
    pub(crate) sealed: Arc<SealedRows>,
    /// Segments, taken after the open rows.
    pub(crate) segments: Arc<SegmentList>,
}

impl StreamView {
    /// Segments that can hold rows of it with `from ≤ time ≤ to`, oldest first.
    pub(crate) fn segments(&self, from: i64, to: i64) -> Vec<Arc<Segment>> {
        let mut found = self.segments.overlapping(self.group, from, to);
        found.retain(|segment| segment.places.0 <= self.sealed.newest_segment);
        found
    }

    /// Blocks of it in a segment that this view reads there, in row order.
    pub(crate) fn blocks(&self, segment: &Arc<Segment>, shared: &Shared) -> Result<Vec<BlockRef>, ScanError> {
        let mut blocks = segment.blocks(self.stream.id.0, &shared.residents)?;
        blocks.retain(|block| block.end_row() <= self.open.first_row);
        Ok(blocks)
    }

    /// Those of them that can have rows and times that a scan asks for.
    pub(crate) fn blocks_of(
        &self,
        segment: &Arc<Segment>,
        scan: &Scan,
        shared: &Shared,
    ) -> Result<Vec<BlockRef>, ScanError> {
        let ranges = (&scan.time, &scan.rows);
        let mut blocks = segment.blocks_within(self.stream.id.0, ranges, &shared.residents)?;
        blocks.retain(|block| block.end_row() <= self.open.first_row);
        Ok(blocks)
    }

    /// Whether a block may be parted, as far as can be told without reading it.
    pub(crate) fn may_be_parted(&self, block: &BlockRef) -> bool {
        let layout = &self.stream.layout.channels;
        let wide = || layout.len() >= PARTED_CHANNELS || layout.iter().any(|c| c.channel_type.tiles().is_some());
        block.part.is_none() && block.len as usize >= PARTED_BYTES && wide()
    }

    /// Reads columns of a block; they have the types of the stream in this view.
    pub(crate) fn read(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        shared: &Shared,
    ) -> Result<Batch, ScanError> {
        self.read_with_gap(segment, block, columns, shared).map(|(batch, _)| batch)
    }

    /// As [`StreamView::read`], and whether frames are known missing before its first one, which a part of an older mixed
    /// block does not say.
    pub(crate) fn read_with_gap(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        shared: &Shared,
    ) -> Result<(Batch, bool), ScanError> {
        let damaged = |error| self.damaged(segment, block, error);
        let layout = &self.stream.layout;
        let residents = &shared.residents;
        shared.blocks_decoded.fetch_add(1, Ordering::Relaxed);
        if self.is_worth_parting(block, columns)
            && let Some(mut parts) = Parts::open(self, segment, block, residents)?
        {
            parts.load(columns.iter().map(|column| column.0.into()))?;
            let read = parts.block()?;
            return Ok((read.decode(layout, columns).map_err(damaged)?, read.header().gap_before));
        }
        let (batch, gap_before) = match block.part {
            None => {
                let bytes = segment.read_block(block, residents)?;
                let read = Block::read(&bytes).map_err(damaged)?;
                (read.decode(layout, columns).map_err(damaged)?, read.header().gap_before)
            }
            Some(part) => {
                let parts = segment.read_parts(block, part, residents)?;
                let gap_before = parts.get(part as usize).is_some_and(|part| part.header.gap_before);
                (parts.decode(part as usize, layout, columns).map_err(damaged)?, gap_before)
            }
        };
        let is_block = batch.stream == self.stream.id
            && batch.rows.first() == Some(&block.first_row)
            && batch.len() == block.rows as usize;
        if !is_block {
            return Err(self.misplaced(segment, block, batch.stream, batch.rows.first()));
        }
        Ok((batch, gap_before))
    }

    /// Asks a block for what it says of its channels without decoding them. None: it has no statistics, `of` finds none,
    /// or it is not the block that the index names, which an attempt to decode it reports.
    pub(crate) fn ask<T>(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        shared: &Shared,
        of: impl Fn(&Block<'_>) -> Result<Option<T>, FormatError>,
    ) -> Result<Option<T>, ScanError> {
        if block.part.is_some() || (block.rows as usize) < STATISTICS_MIN_ROWS {
            return Ok(None);
        }
        let of = |read: &Block<'_>| {
            let header = read.header();
            let is_it = header.stream == self.stream.id && header.first_row == block.first_row;
            if is_it { of(read) } else { Ok(None) }
        };
        let residents = &shared.residents;
        if self.may_be_parted(block)
            && let Some(mut parts) = Parts::open(self, segment, block, residents)?
        {
            parts.load_statistics()?;
            return of(&parts.block()?).map_err(|error| self.damaged(segment, block, error));
        }
        let bytes = segment.read_block(block, residents)?;
        Block::read(&bytes).and_then(|read| of(&read)).map_err(|error| self.damaged(segment, block, error))
    }

    /// Says that a block holds other rows than those that the directory has there.
    pub(crate) fn misplaced(
        &self,
        segment: &Segment,
        block: &BlockRef,
        stream: StreamId,
        row: Option<&u64>,
    ) -> ScanError {
        ScanError::Damaged {
            file: segment.path(),
            offset: block.offset.into(),
            reason: format!("holds row {row:?} of stream {}", stream.0),
        }
    }

    /// Says that a block is not as it was written.
    pub(crate) fn damaged(&self, segment: &Segment, block: &BlockRef, error: FormatError) -> ScanError {
        segment.damaged(block.offset.into(), error)
    }

    /// Chunks and their rows in the view, oldest first.
    pub(crate) fn chunks(&self) -> impl DoubleEndedIterator<Item = (&Arc<crate::chunk::Chunk>, usize)> {
        let last = self.open.chunks.len().wrapping_sub(1);
        self.open.chunks.iter().enumerate().map(move |(i, c)| (c, if i == last { self.last_len } else { c.len() }))
    }
}

impl View {
    pub(crate) fn new(shared: Arc<Shared>) -> View {
        let taken = shared.paces.mark();
        let inner = ViewInner { shared, catalog: OnceLock::new(), taken, streams: Mutex::new(HashMap::default()) };
        View { inner: Arc::new(inner) }
    }

    /// The catalog of this moment. A column of a batch may be wider than it says if the channel was
    /// widened between the two.
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.inner.catalog.get_or_init(|| self.inner.shared.catalog())
    }

    pub(crate) fn stream(&self, id: StreamId) -> Option<Arc<StreamView>> {
        let mut streams = self.inner.streams.lock();
        if let Some(have) = streams.get(&id.0) {
            return Some(have.clone());
        }
        let slot = self.inner.shared.slots.get(id)?;
        let view = loop {
            // Before the open rows: if it gets its row in between, the row's number says so.
            let held = slot.held.load_full();
            let open = slot.open.load_full();
            let last_len = open.chunks.last().map_or(0, |c| c.len());
            let next_row = open.chunks.last().map_or(open.first_row, |c| c.first_row + last_len as u64);
            let view = StreamView {
                stream: slot.stream.load_full(),
                group: slot.group,
                open,
                last_len,
                held: held.filter(|held| held.row == next_row),
                next_row,
                sealed: slot.sealed.load_full(),
                segments: self.inner.shared.segments.load_full(),
            };
            // Rows that were sealed in between may stand in one block with older ones since, if they were settled too.
            if slot.open.load().first_row == view.open.first_row {
                break Arc::new(view);
            }
        };
        streams.insert(id.0, view.clone());
        Some(view)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Whether it has been held longer than a view may pin open memory.
    pub(crate) fn check_age(&self) -> Result<(), ScanError> {
        let shared = &self.inner.shared;
        if shared.paces.since(&self.inner.taken) > shared.max_view_ns { Err(ScanError::ViewTooOld) } else { Ok(()) }
    }

    /// Next row of a stream in this view.
    pub fn next_row(&self, stream: StreamId) -> u64 {
        self.stream(stream).map_or(0, |s| s.next_row)
    }

    /// Smallest and largest `time` of a stream in this view, from block headers and open blocks. It may
    /// enclose rows appended since.
    pub fn time_range(&self, stream: StreamId) -> Option<(i64, i64)> {
        let view = self.stream(stream)?;
        let ranges = view.chunks().filter(|(_, len)| *len > 0).filter_map(|(c, _)| c.time_range());
        let sealed = (view.sealed.time.0 <= view.sealed.time.1).then_some(view.sealed.time);
        ranges.chain(sealed).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Whether frames of the stream in this view ascend in `time`.
    pub fn time_sorted(&self, stream: StreamId) -> bool {
        let Some(view) = self.stream(stream) else { return true };
        if !view.sealed.sorted {
            return false;
        }
        let mut before = view.sealed.time.1;
        view.chunks().filter(|(_, len)| *len > 0).all(|(chunk, _)| {
            let Some((min, max)) = chunk.time_range() else { return true };
            let sorted = chunk.sorted() && min >= before;
            before = max;
            sorted
        })
    }

    /// Batches of a stream in row order (or newest first), filtered exactly by time and rows.
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::new(self.clone(), scan)
    }

    /// The newest cell with a value (or `Unknown`) at or before `time` for each channel asked for; for equal
    /// times the higher row. Bounded work: last-value tables, then blocks backwards. Frames whose `time` lies
    /// more than `max_future` after their reception are left out.
    ///
    /// A channel with a reduction is read back: held, or on the line of a swinging door (then `time` is the instant asked
    /// for, the other times lie on the line too); its newest frame counts even if it got no row, and a frame that says
    /// it is unchanged makes its value as new as that frame.
    pub fn state_at(
        &self,
        stream: StreamId,
        time: i64,
        columns: &[ChannelIndex],
    ) -> Result<Vec<Option<StateCell>>, ScanError> {
        self.check_age()?;
        let Some(view) = self.stream(stream) else { return Ok(vec![None; columns.len()]) };
        let mut found = state_at(&view, time, columns, &self.inner.shared)?;
        self.reconstruct(&view, time, columns, &mut found)?;
        Ok(found)
    }
}
