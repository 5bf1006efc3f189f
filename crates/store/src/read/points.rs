//! The values of one channel in the order of `time`, whatever order they were stored in. Intervals, weighing and
//! grids read them.
//!
//! ```text
//!  blocks and chunks by first time ─> clusters whose times do not overlap ─> rows by (time, row) ─> [points]
//!                                              └─ one block, wholly inside ─> its statistics
//! ```
//! Pieces are found window by window, so that a reader that stops early has searched little.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::append::chunk::Chunk;
use crate::block::leaps::Leaps;
use crate::block::{self, HEADER_BYTES};
use crate::codec::stats::{ColumnStatistics, Sum};
use crate::model::batch::Batch;
use crate::model::mutant::{self, Mutant};
use crate::model::reduction::Reduction;
use crate::model::refusal::ScanError;
use crate::model::stream::{Channel, ChannelIndex, StreamId};
use crate::model::value::{CellState, Value};
use crate::read::decoded::{self, DecodedBlock};
use crate::read::pyramid::Pyramid;
use crate::read::request::Scan;
use crate::read::sample_run::SampleRun;
use crate::read::scan;
use crate::read::state::{self, OwnedValue};
use crate::read::stream_view::StreamView;
use crate::read::totals::EqualPieces;
use crate::read::view::View;
use crate::segment::directory::{BlockRef, Segment};
use crate::segment::pyramid::FAN;

/// Value of a channel, or the fact that it is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) time: i64,
    pub(crate) row: u64,
    /// The value; `None` if unknown from here on.
    pub(crate) value: Option<OwnedValue>,
    /// Whether frames are known missing between the previous point and this one.
    pub(crate) gap: bool,
}

/// Points, or a block of them.
pub(crate) enum RunOrBlock {
    /// Points one after the other, at least one.
    Run(SampleRun),
    /// A whole block or pyramid node.
    Block(BlockOfPoints),
}

/// A whole block or pyramid node: its statistics, and whether frames are known missing before it.
pub(crate) struct BlockOfPoints(pub(crate) Box<ColumnStatistics>, pub(crate) bool);

/// Where blocks may be returned as statistics.
#[derive(Clone)]
struct WholeBlocks {
    /// Span in which they must lie wholly.
    time: Range<i64>,
    /// Pieces of time of which one must contain each.
    pieces: EqualPieces,
}

impl WholeBlocks {
    fn contains(&self, (first, last): (i64, i64)) -> bool {
        let is_inside = self.time.contains(&first) && self.time.contains(&last);
        is_inside && self.pieces.piece_of(first) == self.pieces.piece_of(last)
    }
}

/// Consecutive rows.
#[derive(Clone)]
enum RowPiece {
    Block(Arc<Segment>, BlockRef),
    Chunk(ChunkPiece),
}

/// Rows of a view in an open chunk.
#[derive(Clone)]
struct ChunkPiece {
    rows: Arc<Chunk>,
    len: usize,
    /// Smallest and largest `time` when reading began. Rows that are added later can widen those of the chunk, also to
    /// times that were read already.
    time: (i64, i64),
}

impl RowPiece {
    /// Returns the smallest and largest `time`.
    fn time(&self) -> (i64, i64) {
        match self {
            RowPiece::Block(_, block) => block.time,
            RowPiece::Chunk(chunk) => chunk.time,
        }
    }

    fn first_row(&self) -> u64 {
        match self {
            RowPiece::Block(_, block) => block.first_row,
            RowPiece::Chunk(chunk) => chunk.rows.first_row,
        }
    }

    /// Returns the row after the last.
    fn end_row(&self) -> u64 {
        match self {
            RowPiece::Block(_, block) => block.end_row(),
            RowPiece::Chunk(chunk) => chunk.rows.first_row + chunk.len as u64,
        }
    }

    fn is_sorted(&self) -> bool {
        match self {
            RowPiece::Block(_, block) => block.time_sorted,
            RowPiece::Chunk(chunk) => chunk.rows.sorted(),
        }
    }
}

/// Row waiting for its turn.
struct Row {
    time: i64,
    row: u64,
    cell: Result<OwnedValue, CellState>,
    /// Session and unwrapped sequence.
    sequence: Option<(u32, i64)>,
}

/// Result of reading the next pieces.
enum Cluster {
    /// Rows were queued.
    Rows,
    /// A batch whose rows ascend in time; only where runs are read.
    Batch(DecodedBlock),
    Block(BlockOfPoints),
    /// No pieces are left.
    End,
}

/// Reader of the points of a channel.
pub(crate) struct Points {
    view: View,
    stream: Arc<StreamView>,
    column: ChannelIndex,
    /// Lower bound of `time`: earlier rows are not read.
    from: i64,
    /// Time up to which pieces that begin there were found.
    known_to: i64,
    window: u64,
    /// Upper bound of `time` of all rows.
    last: i64,
    /// All chunks of the view.
    chunks: Vec<ChunkPiece>,
    pieces: VecDeque<RowPiece>,
    rows: VecDeque<Row>,
    held: Option<Row>,
    /// Where blocks may be returned as statistics, if anywhere.
    whole: Option<WholeBlocks>,
    /// Whether runs are read, so that batches in order need not be taken apart.
    by_run: bool,
    /// Whether a leap of the sequence means that frames are missing.
    sequences_tell: bool,
    max_future_ns: i64,
    newest_sequence: Option<(u32, i64)>,
    /// Row after the highest that was read.
    next_row: Option<u64>,
    /// Whether rows ascend in `time`, so that a leap of their numbers means that rows were lost.
    sorted: bool,
    gap: bool,
    /// `time` of the newest row in which a frame had the channel.
    offered_to: Option<i64>,
    /// Block that must be decoded to update `offered_to`, because its statistics lack that time.
    unsure: Option<(Arc<Segment>, BlockRef)>,
    /// Pyramid of the current segment, with the segment's number, if it has one.
    pyramid: Option<(u64, Option<Pyramid>)>,
}

/// Min window in nanoseconds.
const WINDOW_MIN: u64 = 1_000_000_000;

impl Points {
    /// Reads points from the last at or before `time.start` on; those up to `time.end` are probably needed. Returns
    /// `None` if there is no such channel.
    pub(crate) fn new(
        view: &View,
        stream: StreamId,
        column: ChannelIndex,
        time: Range<i64>,
    ) -> Result<Option<Points>, ScanError> {
        view.check_age()?;
        let Some(of) = view.stream(stream) else { return Ok(None) };
        let Some(channel) = of.stream.layout.channels.get(column.0 as usize) else { return Ok(None) };
        let before = state::state_at(&of, time.start, &[column], view.shared())?.pop().flatten();
        let from = before.map_or(time.start, |cell| cell.time);
        let reduced = of.stream.layout.channels.iter().any(|c| c.reduction != Reduction::None);
        let held = of.held.as_ref().and_then(|held| {
            let cell = match held.state(column.0 as usize) {
                _ if of.excludes(column, held.time()) => Err(CellState::Absent),
                CellState::Value => Ok(OwnedValue::of(of_type(held.value(column.0 as usize)?, channel))),
                state => Err(state),
            };
            Some(Row { time: held.time(), row: held.row, cell, sequence: None })
        });
        let last = view.time_range(stream).map_or(i64::MIN, |range| range.1);
        let chunks = of.chunks().filter(|(_, len)| *len > 0).filter_map(|(rows, len)| {
            let time = rows.time_range()?;
            Some(ChunkPiece { rows: rows.clone(), len, time })
        });
        let chunks = chunks.collect();
        Ok(Some(Points {
            column,
            from,
            known_to: from.saturating_sub(1),
            window: (time.end.max(from).abs_diff(from) / 64).max(WINDOW_MIN),
            last,
            chunks,
            pieces: VecDeque::new(),
            rows: VecDeque::new(),
            held: held.filter(|held| held.time >= from),
            whole: None,
            by_run: false,
            sequences_tell: !reduced,
            max_future_ns: view.shared().max_future_ns,
            newest_sequence: None,
            next_row: None,
            sorted: view.time_sorted(stream),
            gap: false,
            offered_to: None,
            unsure: None,
            pyramid: None,
            view: view.clone(),
            stream: of,
        }))
    }

    /// Allows blocks that lie wholly in `time` and in one piece to be returned as statistics, unless their integrals may
    /// follow another interpolation than the channel's: a reduction that it got later can have changed that.
    pub(crate) fn whole_blocks(&mut self, time: Range<i64>, pieces: EqualPieces) {
        let keeps_interpolation = self.channel().reduction == Reduction::None;
        let may = keeps_interpolation || mutant::is_active(Mutant::BelieveStatistics);
        self.whole = may.then_some(WholeBlocks { time, pieces });
    }

    /// Returns the channel.
    pub(crate) fn channel(&self) -> &Channel {
        &self.stream.stream.layout.channels[self.column.0 as usize]
    }

    /// Returns the `time` of the newest row read in which a frame had the channel, including rows where it was
    /// unchanged.
    pub(crate) fn offered_to(&mut self) -> Result<Option<i64>, ScanError> {
        if let Some((segment, block)) = self.unsure.take() {
            let batch = self.stream.read(&segment, &block, &[self.column], self.view.shared())?;
            let offered = |row: &usize| {
                batch.columns.first().is_some_and(|column| !matches!(column.cell(*row), Err(CellState::Absent)))
            };
            self.offered_to = self.offered_to.max((0..batch.len()).filter(offered).map(|row| batch.time(row)).max());
        }
        Ok(self.offered_to)
    }

    /// Returns the next point. Not to be mixed with [`Points::next_run`].
    pub(crate) fn next(&mut self) -> Result<Option<Point>, ScanError> {
        loop {
            while let Some(row) = self.rows.pop_front() {
                if let Some(point) = self.take(row) {
                    return Ok(Some(point));
                }
            }
            match self.next_cluster()? {
                Cluster::Rows => {}
                Cluster::Batch(block) => self.add(&block.batch, block.column),
                // Only where blocks may be whole.
                Cluster::Block(_) => {}
                Cluster::End => {
                    let Some(held) = self.held.take() else { return Ok(None) };
                    self.note_first_row(held.row);
                    self.rows.push_back(held);
                }
            }
        }
    }

    /// Returns whether frames are known missing after the points returned so far.
    pub(crate) fn ends_with_gap(&self) -> bool {
        self.gap
    }

    /// Returns the next points as a run. Not to be mixed with [`Points::next`].
    pub(crate) fn next_run(&mut self) -> Result<Option<SampleRun>, ScanError> {
        loop {
            match self.next_run_or_block()? {
                Some(RunOrBlock::Run(run)) => return Ok(Some(run)),
                // Only where blocks may be whole.
                Some(RunOrBlock::Block(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next points as a run, or a block. Not to be mixed with [`Points::next`].
    pub(crate) fn next_run_or_block(&mut self) -> Result<Option<RunOrBlock>, ScanError> {
        self.by_run = true;
        loop {
            let mut points = Vec::with_capacity(self.rows.len());
            while let Some(row) = self.rows.pop_front() {
                points.extend(self.take(row));
            }
            if !points.is_empty() {
                return Ok(Some(RunOrBlock::Run(SampleRun::of_points(points))));
            }
            match self.next_cluster()? {
                Cluster::Rows => {}
                Cluster::Block(block) => return Ok(Some(RunOrBlock::Block(block))),
                Cluster::Batch(block) => {
                    let run = self.run_of(block);
                    if !run.is_empty() {
                        return Ok(Some(RunOrBlock::Run(run)));
                    }
                }
                Cluster::End => {
                    let Some(held) = self.held.take() else { return Ok(None) };
                    self.note_first_row(held.row);
                    self.rows.push_back(held);
                }
            }
        }
    }

    /// Makes a run of the rows of a batch that have the channel.
    fn run_of(&mut self, DecodedBlock { batch, column, .. }: DecodedBlock) -> SampleRun {
        let max_future_ns = self.max_future_ns;
        let is_beyond = |time: i64, received: i64| time.saturating_sub(received) > max_future_ns;
        let (first, any_ahead) = {
            let times = batch.time_values();
            let first = times.partition_point(|time| *time < self.from);
            let both = times[first..].iter().zip(&batch.receive_time[first..]);
            // Without a branch a row, so that several are compared at once.
            let ahead = || both.fold(false, |found, (time, received)| found | is_beyond(*time, *received));
            (first, batch.source_clock && ahead())
        };
        let is_ahead = |row: usize| is_beyond(batch.time(row), batch.receive_time[row]);
        let states = batch.columns.get(column).and_then(|column| column.states.as_deref());
        if states.is_none() && batch.sequence.is_none() && !any_ahead {
            let gap = first < batch.len() && std::mem::take(&mut self.gap);
            if let Some(last) = batch.len().checked_sub(1).filter(|last| *last >= first) {
                (self.offered_to, self.unsure) = (Some(batch.time(last)), None);
            }
            return SampleRun::of_batch((batch, column), first, None, if gap { vec![0] } else { Vec::new() });
        }
        let (mut kept, mut gaps) = (Vec::with_capacity(batch.len() - first), Vec::new());
        for row in first..batch.len() {
            if any_ahead && is_ahead(row) {
                continue;
            }
            if let Some(sequence) = batch.sequence.as_ref().and_then(|s| s.get(row)) {
                self.note_sequence(batch.session.as_ref().map_or(0, |all| all[row]), sequence);
            }
            let state = states.map_or(CellState::Value, |states| states[row]);
            if state != CellState::Absent {
                (self.offered_to, self.unsure) = (Some(batch.time(row)), None);
            }
            if matches!(state, CellState::Value | CellState::Unknown) {
                if std::mem::take(&mut self.gap) {
                    gaps.push(kept.len());
                }
                kept.push(row as u32);
            }
        }
        SampleRun::of_batch((batch.clone(), column), first, Some(kept), gaps)
    }

    /// Notes the sequence of the next row, and whether frames are missing before it.
    fn note_sequence(&mut self, session: u32, sequence: i64) {
        let newest = self.newest_sequence.get_or_insert((session, sequence));
        self.gap |= session != newest.0 || self.sequences_tell && sequence > newest.1.saturating_add(1);
        *newest = if session == newest.0 { (session, sequence.max(newest.1)) } else { (session, sequence) };
    }

    /// Notes whether rows were lost before those that come next.
    fn note_first_row(&mut self, row: u64) {
        self.gap |= self.sorted && self.next_row.is_some_and(|next| row > next);
    }

    /// Converts a row to a point of the channel, if it has one.
    fn take(&mut self, row: Row) -> Option<Point> {
        if let Some((session, sequence)) = row.sequence {
            self.note_sequence(session, sequence);
        }
        let value = match row.cell {
            Ok(value) => Some(value),
            Err(CellState::Unknown) => None,
            Err(state) => {
                if state == CellState::Unchanged {
                    (self.offered_to, self.unsure) = (Some(row.time), None);
                }
                return None;
            }
        };
        (self.offered_to, self.unsure) = (Some(row.time), None);
        Some(Point { time: row.time, row: row.row, value, gap: std::mem::take(&mut self.gap) })
    }

    /// Finds the pieces that begin up to an instant.
    fn know(&mut self, to: i64) -> Result<(), ScanError> {
        let after = self.known_to;
        let shared = self.view.shared();
        let first = after < self.from;
        let wanted = |time: (i64, i64)| {
            let begins = if first { i64::MIN..=to } else { after.saturating_add(1)..=to };
            begins.contains(&time.0) && time.1 >= self.from
        };
        let mut found: Vec<RowPiece> = Vec::new();
        if self.stream.sealed.time.1 >= self.from {
            let start = if first { self.from } else { after.saturating_add(1) };
            for segment in self.stream.segments(start, to) {
                let blocks = match to.checked_add(1) {
                    Some(end) => self.stream.blocks_of(&segment, (&(start..end), &(0..u64::MAX)), shared)?,
                    None => self.stream.blocks(&segment, shared)?,
                };
                let blocks = blocks.into_iter().filter(|block| wanted(block.time));
                found.extend(blocks.map(|block| RowPiece::Block(segment.clone(), block)));
            }
        }
        found.extend(self.chunks.iter().filter(|chunk| wanted(chunk.time)).cloned().map(RowPiece::Chunk));
        found.sort_by_key(|piece| (piece.time().0, piece.first_row()));
        self.pieces.extend(found);
        self.known_to = to;
        Ok(())
    }

    /// Finds the pieces up to an instant, and at least one if there is any.
    fn look(&mut self, to: i64) -> Result<(), ScanError> {
        while self.known_to < self.last && (self.known_to < to || self.pieces.is_empty()) {
            let next = self.known_to.max(self.from).saturating_add_unsigned(self.window);
            if self.pieces.is_empty() {
                self.window = self.window.saturating_mul(2);
            }
            self.know(next.max(to.min(self.last)))?;
        }
        Ok(())
    }

    /// Reads the rows of the next cluster of pieces, or returns its statistics if it is one block whose statistics
    /// suffice.
    fn next_cluster(&mut self) -> Result<Cluster, ScanError> {
        self.view.check_age()?;
        self.look(i64::MIN)?;
        let Some(piece) = self.pieces.pop_front() else { return Ok(Cluster::End) };
        let (mut end, mut sorted) = (piece.time().1, piece.is_sorted());
        let mut cluster = vec![piece];
        loop {
            self.look(end)?;
            let Some(next) = self.pieces.front() else { break };
            let (start, first_row) = (next.time().0, next.first_row());
            // A piece that only touches the end follows the cluster as a whole.
            let touches = start == end && sorted && cluster.iter().all(|piece| piece.first_row() < first_row);
            if start > end || touches {
                break;
            }
            let Some(next) = self.pieces.pop_front() else { break };
            end = end.max(next.time().1);
            sorted = false;
            cluster.push(next);
        }
        if let Some(first_row) = cluster.iter().map(RowPiece::first_row).min() {
            self.note_first_row(first_row);
        }
        if let ([RowPiece::Block(segment, block)], true) = (cluster.as_slice(), sorted) {
            if let Some(found) = self.joined(segment, block)? {
                return Ok(Cluster::Block(found));
            }
            if let Some(found) = self.statistics(segment, block)? {
                self.next_row = self.next_row.max(Some(block.end_row()));
                return Ok(Cluster::Block(found));
            }
        }
        self.next_row = self.next_row.max(cluster.iter().map(RowPiece::end_row).max());
        for (n, piece) in cluster.iter().enumerate() {
            let block = self.read(piece)?;
            // After blocks of which only statistics were read, the header of the next one tells whether frames are
            // missing before it.
            self.gap |= n == 0 && block.gap_before && self.newest_sequence.is_none();
            if self.by_run && sorted {
                return Ok(Cluster::Batch(block));
            }
            self.add(&block.batch, block.column);
        }
        if !sorted {
            self.rows.make_contiguous().sort_by_key(|row| (row.time, row.row));
        }
        Ok(Cluster::Rows)
    }

    /// Returns the statistics of the largest pyramid node that begins with a block, if they suffice in place of its
    /// rows.
    fn joined(&mut self, segment: &Arc<Segment>, block: &BlockRef) -> Result<Option<BlockOfPoints>, ScanError> {
        let Some(whole) = self.whole.clone().filter(|_| segment.is_settled()) else { return Ok(None) };
        if self.pyramid.as_ref().is_none_or(|(of, _)| *of != segment.id) {
            let shared = self.view.shared();
            let blocks = self.stream.blocks(segment, shared)?;
            let channel = (&*self.stream, self.column);
            self.pyramid = Some((segment.id, Pyramid::of(segment, channel, &blocks, &shared.residents)?));
        }
        let Some((id, Some(mut pyramid))) = self.pyramid.take_if(|(_, pyramid)| pyramid.is_some()) else {
            return Ok(None);
        };
        let found = self.node_from(segment, &mut pyramid, block, &whole);
        self.pyramid = Some((id, Some(pyramid)));
        found
    }

    /// Finds the largest node that begins with a block, covers exactly the next pieces, and has statistics that
    /// suffice.
    fn node_from(
        &mut self,
        segment: &Arc<Segment>,
        pyramid: &mut Pyramid,
        block: &BlockRef,
        whole: &WholeBlocks,
    ) -> Result<Option<BlockOfPoints>, ScanError> {
        let Ok(at) = pyramid.blocks.binary_search_by_key(&block.first_row, |b| b.first_row) else { return Ok(None) };
        for level in (0..pyramid.levels()).rev() {
            let width = FAN.pow(level as u32);
            let blocks = pyramid.blocks_of(level, at / width);
            let Some(time) = pyramid.time_of(&blocks) else { continue };
            let inside = whole.contains(time) && self.held_after(time.1);
            if blocks.start != at || !inside {
                continue;
            }
            self.look(time.1)?;
            let more = blocks.len() - 1;
            let same = |(piece, block): (&RowPiece, &BlockRef)| matches!(piece, RowPiece::Block(of, b) if Arc::ptr_eq(of, segment) && b.first_row == block.first_row);
            let follow = self.pieces.iter().zip(&pyramid.blocks[blocks.start + 1..blocks.end]);
            // The piece after the node may touch the end of the last block, but not overlap it.
            let next = self.pieces.get(more);
            let sequenced = self.stream.stream.sequence_modulus.is_some();
            // The sequence at the node's end is not read, so the next block must tell whether frames are missing
            // before it.
            let end_row = pyramid.blocks[blocks.end - 1].end_row();
            let says = |next: &BlockRef| next.part.is_none() && next.time_sorted && next.first_row == end_row;
            let told = !sequenced || next.is_some_and(|next| matches!(next, RowPiece::Block(_, next) if says(next)));
            let alone = next.is_none_or(|next| next.time().0 >= time.1 && next.first_row() > block.first_row);
            if self.pieces.len() < more || !follow.clone().all(same) || !told || !alone {
                continue;
            }
            let Some(node) = pyramid.node(level, at / width, &self.view.shared().residents)? else { continue };
            // Only the blocks themselves tell which has the newest row in which the channel was unchanged.
            if !says_all(&node.statistics) || more > 0 && node.statistics.unchanged > 0 {
                continue;
            }
            let (statistics, gap_before) = (node.statistics.clone(), node.gap_before);
            // Only the rows tell of frames that are missing before a row without the channel.
            let dense = statistics.nulls() == 0 || mutant::is_active(Mutant::BelieveStatistics);
            let consecutive = || pyramid.blocks[blocks.clone()].windows(2).all(|w| w[0].end_row() == w[1].first_row);
            if sequenced && !(dense && consecutive() && self.follows(segment, block)?) {
                continue;
            }
            let gap = std::mem::take(&mut self.gap) | gap_before;
            self.pieces.drain(..more);
            (self.newest_sequence, self.next_row) = (None, Some(end_row));
            self.offered_to = statistics.last.map(|last| last.time);
            self.unsure = (statistics.unchanged > 0).then(|| (segment.clone(), *block));
            return Ok(Some(BlockOfPoints(Box::new(statistics), gap)));
        }
        Ok(None)
    }

    /// Returns the statistics of a block, if they suffice in place of its rows.
    fn statistics(&mut self, segment: &Arc<Segment>, block: &BlockRef) -> Result<Option<BlockOfPoints>, ScanError> {
        let Some(whole) = &self.whole else { return Ok(None) };
        if !whole.contains(block.time) || !self.held_after(block.time.1) {
            return Ok(None);
        }
        let (newest, reduced, channel) = (self.newest_sequence, !self.sequences_tell, self.column.0.into());
        let found = self.stream.ask(segment, block, &[self.column], self.view.shared(), |read| {
            let Some(statistics) = read.statistics_of(channel)?.filter(says_all) else { return Ok(None) };
            let Some(leaps) = Leaps::of(read, newest, reduced)? else { return Ok(None) };
            Ok(leaps.agree(read, &statistics)?.then_some((statistics, leaps)))
        })?;
        let Some((statistics, leaps)) = found else { return Ok(None) };
        let gap = std::mem::take(&mut self.gap) | leaps.at_start;
        self.newest_sequence = leaps.newest;
        self.offered_to = statistics.last.map(|last| last.time);
        self.unsure = (statistics.unchanged > 0).then(|| (segment.clone(), *block));
        Ok(Some(BlockOfPoints(Box::new(statistics), gap)))
    }

    /// Returns whether blocks with sequences, from this one on, were written after the same rows that were read
    /// before it. Their gaps are then those that a reader in time order finds.
    fn follows(&self, segment: &Arc<Segment>, block: &BlockRef) -> Result<bool, ScanError> {
        if self.next_row.is_some_and(|next| next != block.first_row) {
            return Ok(false);
        }
        let bytes = segment.read_bytes(block.offset.into(), HEADER_BYTES, &self.view.shared().residents)?;
        let header = block::read_header(&bytes).map_err(|error| self.stream.damaged(segment, block, error))?;
        Ok(!header.overlaps_previous)
    }

    fn held_after(&self, time: i64) -> bool {
        self.held.as_ref().is_none_or(|held| held.time >= time)
    }

    /// Reads a piece. Rows of chunks are those from `from` on.
    fn read(&mut self, piece: &RowPiece) -> Result<DecodedBlock, ScanError> {
        match piece {
            RowPiece::Block(segment, block) => {
                let (of, shared) = ((segment, block), self.view.shared());
                match self.view.decoded() {
                    Some(decoded) => decoded.read(&self.stream, of, self.column, shared),
                    None => decoded::alone(&self.stream, of, self.column, shared),
                }
            }
            RowPiece::Chunk(chunk) => {
                let rows = scan::select(&chunk.rows, chunk.len, &(self.from..i64::MAX), &(0..u64::MAX));
                let scan = Scan::all(self.stream.stream.id, vec![self.column]);
                let batch = scan::batch_of(&self.stream, &chunk.rows, &rows, &scan);
                Ok(DecodedBlock { batch: Arc::new(batch), column: 0, gap_before: false })
            }
        }
    }

    fn add(&mut self, batch: &Batch, column: usize) {
        let Some(column) = batch.columns.get(column) else { return };
        for row in 0..batch.len() {
            let time = batch.time(row);
            if time < self.from || time.saturating_sub(batch.receive_time[row]) > self.max_future_ns {
                continue;
            }
            let sequence = batch.sequence.as_ref().and_then(|s| s.get(row));
            self.rows.push_back(Row {
                time,
                row: batch.rows[row],
                cell: column.cell(row).map(OwnedValue::of),
                sequence: sequence.map(|s| (batch.session.as_ref().map_or(0, |all| all[row]), s)),
            });
        }
    }
}

/// Returns whether statistics describe all values over time: there are some, and all are finite.
fn says_all(statistics: &ColumnStatistics) -> bool {
    let finite = match statistics.sum {
        Some(Sum::Float(sum)) => sum.is_finite(),
        Some(Sum::Integer(_)) => true,
        None => false,
    };
    // An integral too large for a number hides values that cancel each other.
    let weighed = statistics.integral.is_some_and(|integral| integral.value_ns.is_finite());
    finite && weighed && statistics.unknowns + statistics.nans + statistics.infinities == 0
}

/// Converts a value to the channel's type.
fn of_type<'a>(value: Value<'a>, channel: &Channel) -> Value<'a> {
    value.convert(channel.channel_type).unwrap_or(value)
}
