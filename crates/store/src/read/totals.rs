//! Totals of channels within pieces of time: rows, values, extremes and sums.
//!
//! A block that lies in one piece contributes its statistics, and in a segment with statistics pyramids many blocks in
//! one piece are one node. Only blocks at the edges of pieces are decoded. Counts, extremes and sums of integers are
//! exact however they are found. Sums of floats are compensated: within a block by the encoder, and over blocks by
//! [`LargeSum`]; in what order numbers are added, and so the last bits, depends on the blocks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::codec::joined::Joined;
use crate::codec::stats::{ColumnStatistics, Sum};
use crate::model::batch::{Batch, Column};
use crate::model::large_sum::LargeSum;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{ChannelType, Value};
use crate::read::block_counts::BlockCounts;
use crate::read::condition::{Condition, Fulfilled};
use crate::read::fold::fold_cells;
use crate::read::groups::{self, GROUP};
use crate::read::pyramid::Pyramid;
use crate::read::request::Scan;
use crate::read::scan::Scanner;
use crate::read::stream_view::StreamView;
use crate::read::view::View;
use crate::read::whole;
use crate::segment::directory::whole_stream::WholeStream;
use crate::segment::directory::{BlockRef, Segment};
use crate::segment::pyramid::FAN;

/// Blocks whose statistics are read in one step.
const STEP_BLOCKS: usize = 64;
/// Rows that are decoded in one step, beyond the last batch.
const STEP_ROWS: usize = 1 << 16;

/// Pieces of time of equal length, without end in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualPieces {
    /// Start of piece 0, nanoseconds since 1970 UTC.
    pub origin: i64,
    /// Length of each piece in nanoseconds, at least 1.
    pub width_ns: u64,
}

impl EqualPieces {
    /// Returns the number of the piece that contains a time.
    pub fn piece_of(&self, time: i64) -> i128 {
        (i128::from(time) - i128::from(self.origin)).div_euclid(self.width_ns.max(1).into())
    }

    /// Returns the start of a piece, nanoseconds since 1970 UTC.
    pub fn start_of(&self, piece: i128) -> i128 {
        i128::from(self.origin) + piece * i128::from(self.width_ns.max(1))
    }
}

/// Request of totals.
#[derive(Clone, Debug)]
pub struct TotalsRequest {
    /// Stream to read.
    pub stream: StreamId,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Channels of which totals are wanted.
    pub columns: Vec<ChannelIndex>,
    /// Conditions that all must hold for a frame to be counted.
    pub conditions: Vec<Condition>,
    /// Pieces that have totals of their own; `None`: all is one piece, with number 0.
    pub pieces: Option<EqualPieces>,
    /// Whether statistics are used. Without them every block is decoded, for comparison.
    pub by_statistics: bool,
}

/// Totals of one channel within a piece.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of values, including NaN.
    pub values: u64,
    /// Number of values that are NaN.
    pub nans: u64,
    /// Smallest value except NaN, the first of equals; `None` if there is none, or for truth values and texts.
    pub min: Option<Value<'static>>,
    /// Largest value except NaN, like `min`.
    pub max: Option<Value<'static>>,
    /// Sum of integers.
    integers: i128,
    /// Sum of the finite floats.
    floats: LargeSum,
    /// Whether one of the values is −∞, and ∞.
    infinite: (bool, bool),
}

impl Totals {
    /// Returns the sum of a channel of integers.
    pub fn integer_sum(&self) -> i128 {
        self.integers
    }

    /// Returns the sum of a channel of numbers: compensated for floats, with NaN and infinities as IEEE 754 adds them.
    pub fn float_sum(&self) -> f64 {
        match self.infinite {
            _ if self.nans > 0 => f64::NAN,
            (true, true) => f64::NAN,
            (true, false) => f64::NEG_INFINITY,
            (false, true) => f64::INFINITY,
            (false, false) => self.integers as f64 + self.floats.value(),
        }
    }

    fn enclose(&mut self, min: Value<'static>, max: Value<'static>) {
        if self.min.as_ref().is_none_or(|least| min.is_less(least)) {
            self.min = Some(min);
        }
        if self.max.as_ref().is_none_or(|most| most.is_less(&max)) {
            self.max = Some(max);
        }
        self.infinite.0 |= min.as_f64() == Some(f64::NEG_INFINITY);
        self.infinite.1 |= max.as_f64() == Some(f64::INFINITY);
    }

    fn join(&mut self, block: &Joined) {
        self.values += block.values;
        self.nans += block.nans;
        if let Some((min, max)) = block.range {
            self.enclose(min, max);
        }
        match block.sum {
            None => {}
            Some(Sum::Integer(sum)) => self.integers += sum,
            Some(Sum::Float(sum)) => self.floats.add(sum),
        }
    }

    /// Adds the cells of some rows, or of those among them that are to be kept.
    fn add(&mut self, column: &Column, rows: Range<usize>, keep: Option<&[bool]>) {
        let fold = fold_cells(column, rows, keep);
        self.values += fold.values;
        self.nans += fold.nans;
        self.integers += fold.integers;
        self.floats.join(&fold.floats);
        if let Some((min, max)) = fold.range {
            self.enclose(min, max);
        }
    }
}

/// Totals of a piece.
#[derive(Clone, Debug, Default)]
pub struct PieceTotals {
    /// Number of frames.
    pub rows: u64,
    /// Totals of each requested channel.
    pub columns: Vec<Totals>,
}

/// Work to be done in a segment, the next last.
enum Work {
    Node(usize, usize),
    /// Neighbouring blocks in a segment without pyramids.
    Group(Vec<BlockRef>),
    Block(BlockRef),
}

/// A segment that is being read.
struct OpenSegment {
    segment: Arc<Segment>,
    /// Pyramids of the channels that are read, if each has one.
    pyramids: Vec<Pyramid>,
    work: Vec<Work>,
}

/// Computes totals, step by step.
pub struct TotalsReader {
    view: View,
    stream: Option<Arc<StreamView>>,
    request: TotalsRequest,
    /// Requested channels, and then those of the conditions.
    channels: Vec<ChannelIndex>,
    /// Types of these channels.
    kinds: Vec<ChannelType>,
    segments: VecDeque<Arc<Segment>>,
    current: Option<OpenSegment>,
    /// Rows that are not in segments.
    open: Option<Scanner>,
    pieces: BTreeMap<i128, PieceTotals>,
    /// Rows that were decoded.
    decoded_rows: u64,
    /// What became of the blocks so far.
    counts: BlockCounts,
}

/// What statistics of frames tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// They were added.
    Added,
    /// None of the frames is to be counted.
    Passed,
    /// Nothing: the values are needed.
    No,
}

impl View {
    /// Prepares totals of a stream. Channels that the stream does not have in this view have no values.
    pub fn totals(&self, request: TotalsRequest) -> TotalsReader {
        let stream = self.stream(request.stream).filter(|_| !request.time.is_empty());
        let mut channels = request.columns.clone();
        channels.extend(request.conditions.iter().map(|condition| condition.channel));
        let layout = stream.as_ref().map_or(&[][..], |stream| stream.stream.layout.channels.as_slice());
        let known = |channel: &ChannelIndex| layout.get(channel.0 as usize);
        let kinds = channels.iter().map(|channel| known(channel).map_or(ChannelType::Bool, |c| c.channel_type));
        let kinds = kinds.collect();
        // A channel that the stream lacks has no value that could fulfil a condition.
        let can_hold = request.conditions.iter().all(|condition| known(&condition.channel).is_some());
        let stream = stream.filter(|_| can_hold);
        let segments = stream.iter().flat_map(|stream| stream.segments(request.time.start, request.time.end - 1));
        let open = stream.as_ref().map(|stream| {
            let (time, rows) = (request.time.clone(), stream.open.first_row..u64::MAX);
            self.scan(Scan { time, rows, ..Scan::all(request.stream, channels.clone()) })
        });
        TotalsReader {
            view: self.clone(),
            channels,
            kinds,
            segments: segments.collect(),
            current: None,
            open,
            pieces: BTreeMap::new(),
            decoded_rows: 0,
            counts: BlockCounts::default(),
            stream,
            request,
        }
    }
}

impl TotalsReader {
    /// Works on for about a millisecond. Returns whether more is to be done.
    ///
    /// # Errors
    /// As for a scan.
    pub fn step(&mut self) -> Result<bool, ScanError> {
        let Some(stream) = self.stream.clone() else { return Ok(false) };
        self.view.check_age()?;
        let until = self.decoded_rows + STEP_ROWS as u64;
        for _ in 0..STEP_BLOCKS {
            if self.current.is_none() {
                self.current = self.next_segment(&stream)?;
            }
            let Some(current) = &mut self.current else { break };
            let Some(work) = current.work.pop() else {
                self.current = None;
                continue;
            };
            match work {
                Work::Node(level, node) => self.take_node(level, node)?,
                Work::Group(blocks) => self.take_group(&stream, blocks)?,
                Work::Block(block) => self.take_block(&stream, &block)?,
            }
            if self.decoded_rows >= until {
                return Ok(true);
            }
        }
        if self.current.is_some() || !self.segments.is_empty() {
            return Ok(true);
        }
        let Some(mut open) = self.open.take() else { return Ok(false) };
        while let Some(batch) = open.next() {
            self.add(&batch?);
            if self.decoded_rows >= until {
                self.open = Some(open);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the number of pieces so far.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the number of rows that were decoded so far.
    pub fn decoded_rows(&self) -> u64 {
        self.decoded_rows
    }

    /// Returns what became of the blocks so far.
    pub fn block_counts(&self) -> BlockCounts {
        self.counts
    }

    /// Returns the totals of the pieces that have any row, by their numbers, once [`TotalsReader::step`] returned false.
    pub fn finish(self) -> impl ExactSizeIterator<Item = (i128, PieceTotals)> {
        self.pieces.into_iter()
    }

    /// Opens the next segment that has blocks of the stream.
    fn next_segment(&mut self, stream: &StreamView) -> Result<Option<OpenSegment>, ScanError> {
        let shared = self.view.shared().clone();
        while let Some(segment) = self.segments.pop_front() {
            let (wholes, key) = (&shared.residents.wholes, (segment.id, stream.stream.id.0));
            let kept = wholes.get(key).map(|whole| *whole);
            let is_sealed = segment.state.lock().sealed;
            if kept.is_some_and(|whole| self.take_whole(stream, &segment, whole)) {
                continue;
            }
            let mut blocks = segment.blocks(stream.stream.id.0, &shared.residents)?;
            let keep = |whole| *wholes.keep(key, whole, |_| size_of::<WholeStream>());
            let whole = kept.or_else(|| WholeStream::of(&blocks).filter(|_| is_sealed).map(keep));
            if let Some(whole) = whole
                && self.join_whole((stream, &segment), &blocks, whole)?
                && self.take_whole(stream, &segment, whole)
            {
                continue;
            }
            blocks.retain(|block| block.end_row() <= stream.open.first_row);
            let mut pyramids = Vec::new();
            if self.request.by_statistics {
                for column in &self.channels {
                    let found = Pyramid::of(&segment, (stream, *column), &blocks, &shared.residents)?;
                    let Some(pyramid) = found else { break };
                    pyramids.push(pyramid);
                }
            }
            let work: Vec<Work> = match pyramids.first() {
                Some(first) if pyramids.len() == self.channels.len() => {
                    let top = first.levels() - 1;
                    (0..first.nodes(top)).rev().map(|node| Work::Node(top, node)).collect()
                }
                _ => {
                    pyramids.clear();
                    self.work_of(blocks)
                }
            };
            if !work.is_empty() {
                return Ok(Some(OpenSegment { segment, pyramids, work }));
            }
        }
        Ok(None)
    }

    /// Takes all rows of a stream in a sealed segment at once, if they are in one piece and their statistics are kept.
    /// Returns whether it did.
    fn take_whole(&mut self, stream: &StreamView, segment: &Segment, whole: WholeStream) -> bool {
        let piece = self.within(whole.time);
        if whole.end_row > stream.open.first_row || !self.asks_statistics(piece) {
            return false;
        }
        let shared = self.view.shared().clone();
        let of = self.channels.iter().zip(&self.kinds);
        let found = of.map(|(channel, kind)| whole::statistics((stream, segment), &whole, (*channel, *kind), &shared));
        let Some(found) = found.collect::<Option<Vec<_>>>() else { return false };
        let found: Vec<&Joined> = found.iter().map(|joined| &**joined).collect();
        let taken = self.take_joined(piece, whole.rows, &found);
        self.count(taken, whole.blocks, |counts| &mut counts.by_statistics)
    }

    /// Joins the statistics of all blocks of a sealed segment for [`TotalsReader::take_whole`], if they would help there
    /// and its pyramids do not. Returns whether it could.
    fn join_whole(
        &self,
        (stream, segment): (&StreamView, &Arc<Segment>),
        blocks: &[BlockRef],
        whole: WholeStream,
    ) -> Result<bool, ScanError> {
        let helps = whole.end_row <= stream.open.first_row && self.within(whole.time).is_some();
        if !helps || !self.request.by_statistics {
            return Ok(false);
        }
        let shared = self.view.shared();
        for of in self.channels.iter().zip(&self.kinds) {
            let has_pyramid = Pyramid::of(segment, (stream, *of.0), blocks, &shared.residents)?.is_some();
            if has_pyramid || !whole::join((stream, segment), blocks, (*of.0, *of.1), shared)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns what is to be done with the blocks of a segment without pyramids, and counts those of which no values are
    /// asked.
    fn work_of(&mut self, mut blocks: Vec<BlockRef>) -> Vec<Work> {
        if self.request.by_statistics && !self.channels.is_empty() {
            // Always the same groups, whatever the time, since they are kept.
            let is_asked = |group: &&[BlockRef]| group.iter().any(|block| !self.is_beside(block.time));
            return blocks.chunks(GROUP).rev().filter(is_asked).map(|group| Work::Group(group.to_vec())).collect();
        }
        blocks.retain(|block| !self.is_beside(block.time));
        if self.request.by_statistics {
            // The directory knows the rows.
            blocks.retain(|block| {
                let Some(piece) = self.within(block.time) else { return true };
                self.piece(piece).rows += u64::from(block.rows);
                self.counts.by_statistics += 1;
                false
            });
        }
        blocks.into_iter().rev().map(Work::Block).collect()
    }

    /// Reports whether all these times lie beside those that are requested.
    fn is_beside(&self, (first, last): (i64, i64)) -> bool {
        first >= self.request.time.end || last < self.request.time.start
    }

    /// Adds neighbouring blocks, or leaves them to be done one by one.
    fn take_group(&mut self, stream: &StreamView, blocks: Vec<BlockRef>) -> Result<(), ScanError> {
        let Some(segment) = self.current.as_ref().map(|current| current.segment.clone()) else { return Ok(()) };
        let shared = self.view.shared().clone();
        let times = blocks.iter().map(|block| block.time).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let piece = times.and_then(|times| self.within(times));
        let is_sealed = segment.state.lock().sealed && blocks.len() == GROUP;
        if is_sealed && self.asks_statistics(piece) {
            let mut found = Vec::with_capacity(self.channels.len());
            for of in self.channels.iter().zip(&self.kinds) {
                let Some(joined) = groups::joined((stream, &segment), &blocks, (*of.0, *of.1), &shared)? else { break };
                found.push(joined);
            }
            if found.len() == self.channels.len() {
                let (rows, count) = (blocks.iter().map(|block| u64::from(block.rows)).sum(), blocks.len() as u64);
                let found: Vec<&Joined> = found.iter().map(|joined| &**joined).collect();
                let taken = self.take_joined(piece, rows, &found);
                if self.count(taken, count, |counts| &mut counts.by_statistics) {
                    return Ok(());
                }
            }
        }
        let each: Vec<Work> =
            blocks.into_iter().rev().filter(|block| !self.is_beside(block.time)).map(Work::Block).collect();
        if let Some(current) = &mut self.current {
            current.work.extend(each);
        }
        Ok(())
    }

    /// Returns the number of the piece that contains a time.
    fn piece_of(&self, time: i64) -> i128 {
        self.request.pieces.map_or(0, |pieces| pieces.piece_of(time))
    }

    /// Returns the times of a piece.
    fn times_of(&self, piece: i128) -> RangeInclusive<i64> {
        let Some(pieces) = self.request.pieces else { return i64::MIN..=i64::MAX };
        let clamped = |time: i128| time.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        clamped(pieces.start_of(piece))..=clamped(pieces.start_of(piece + 1) - 1)
    }

    /// Returns the piece that contains all times from `first` to `last`, if all are requested.
    fn within(&self, (first, last): (i64, i64)) -> Option<i128> {
        let (time, piece) = (&self.request.time, self.piece_of(first));
        (time.contains(&first) && time.contains(&last) && piece == self.piece_of(last)).then_some(piece)
    }

    fn piece(&mut self, piece: i128) -> &mut PieceTotals {
        let columns = self.request.columns.len();
        self.pieces.entry(piece).or_insert_with(|| PieceTotals { rows: 0, columns: vec![Totals::default(); columns] })
    }

    /// Takes `rows` frames by their statistics: adds them to the piece that contains all, or passes them over if none is
    /// to be counted.
    fn take_statistics(&mut self, piece: Option<i128>, rows: u64, found: &[ColumnStatistics]) -> Taken {
        let joined: Option<Vec<Joined>> =
            found.iter().zip(&self.kinds).map(|(found, kind)| Joined::of(found, *kind)).collect();
        match joined {
            Some(joined) => self.take_joined(piece, rows, &joined.iter().collect::<Vec<_>>()),
            None => Taken::No,
        }
    }

    /// Takes `rows` frames as [`TotalsReader::take_statistics`] does.
    fn take_joined(&mut self, piece: Option<i128>, rows: u64, joined: &[&Joined]) -> Taken {
        let (columns, conditions) = joined.split_at(self.request.columns.len());
        let fulfilled = self
            .request
            .conditions
            .iter()
            .zip(conditions)
            .map(|(condition, of)| condition.of_statistics(rows, (of.values, of.nans), of.range.as_ref()));
        match (fulfilled.fold(Fulfilled::All, Fulfilled::and), piece) {
            (Fulfilled::None, _) => Taken::Passed,
            (Fulfilled::All, Some(piece)) => {
                let totals = self.piece(piece);
                totals.rows += rows;
                totals.columns.iter_mut().zip(columns).for_each(|(totals, joined)| totals.join(joined));
                Taken::Added
            }
            _ => Taken::No,
        }
    }

    /// Counts blocks whose frames were taken, in this counter if they were added. Returns whether they were taken.
    fn count(&mut self, taken: Taken, blocks: u64, added: fn(&mut BlockCounts) -> &mut u64) -> bool {
        match taken {
            Taken::Added => *added(&mut self.counts) += blocks,
            Taken::Passed => self.counts.passed += blocks,
            Taken::No => return false,
        }
        true
    }

    /// Reports whether statistics of frames with these times can help.
    fn asks_statistics(&self, piece: Option<i128>) -> bool {
        self.request.by_statistics && (piece.is_some() || !self.request.conditions.is_empty())
    }

    /// Adds the blocks that a node covers, or leaves the nodes below it to be done next.
    fn take_node(&mut self, level: usize, node: usize) -> Result<(), ScanError> {
        let shared = self.view.shared().clone();
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(first) = current.pyramids.first() else { return Ok(()) };
        let blocks = first.blocks_of(level, node);
        let Some(time) = first.time_of(&blocks) else { return Ok(()) };
        if self.is_beside(time) {
            return Ok(());
        }
        let piece = self.within(time);
        if self.asks_statistics(piece)
            && let Some(current) = &mut self.current
        {
            let mut found = Vec::with_capacity(current.pyramids.len());
            for pyramid in &mut current.pyramids {
                let Some(node) = pyramid.node(level, node, &shared.residents)? else { break };
                found.push(node.statistics.clone());
            }
            let rows = current.pyramids[0].blocks[blocks.clone()].iter().map(|block| u64::from(block.rows)).sum();
            if found.len() == current.pyramids.len() {
                let count = blocks.len() as u64;
                let taken = self.take_statistics(piece, rows, &found);
                if self.count(taken, count, |counts| &mut counts.by_pyramid) {
                    return Ok(());
                }
            }
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let first = &current.pyramids[0];
        if level == 0 {
            let block = first.blocks[blocks.start];
            current.work.push(Work::Block(block));
        } else {
            let below = node * FAN..((node + 1) * FAN).min(first.nodes(level - 1));
            current.work.extend(below.rev().map(|below| Work::Node(level - 1, below)));
        }
        Ok(())
    }

    fn take_block(&mut self, stream: &StreamView, block: &BlockRef) -> Result<(), ScanError> {
        let Some(segment) = self.current.as_ref().map(|current| current.segment.clone()) else { return Ok(()) };
        let shared = self.view.shared().clone();
        let piece = self.within(block.time);
        if self.asks_statistics(piece) {
            let found = match self.channels.is_empty() {
                // The directory knows the rows.
                true => Some(Vec::new()),
                false => stream.statistics(&segment, block, &self.channels, &shared)?,
            };
            let taken = found.map_or(Taken::No, |found| self.take_statistics(piece, block.rows.into(), &found));
            if self.count(taken, 1, |counts| &mut counts.by_statistics) {
                return Ok(());
            }
        }
        self.counts.read += 1;
        let batch = stream.read(&segment, block, &self.channels, &shared)?;
        self.add(&batch);
        Ok(())
    }

    /// Adds the rows of a batch that are to be counted, adjacent ones of one piece together.
    fn add(&mut self, batch: &Batch) {
        self.decoded_rows += batch.len() as u64;
        let times = batch.time_values();
        let (wanted, ascends) = (self.request.time.clone(), times.is_sorted());
        let (columns, conditions) = batch.columns.split_at(self.request.columns.len().min(batch.columns.len()));
        // Times in order need not be looked at one by one.
        let span = match ascends {
            true => times.partition_point(|t| *t < wanted.start)..times.partition_point(|t| *t < wanted.end),
            false => 0..times.len(),
        };
        let keep = (!ascends || !conditions.is_empty()).then(|| {
            let mut keep: Vec<bool> = times.iter().map(|time| wanted.contains(time)).collect();
            let each = self.request.conditions.iter().zip(conditions);
            each.for_each(|(condition, of)| condition.of_cells(of, &mut keep));
            keep
        });
        let mut row = span.start;
        while row < span.end {
            let piece = self.piece_of(times[row]);
            let of_piece = self.times_of(piece);
            let end = match ascends {
                true => row + times[row..span.end].partition_point(|time| *time <= *of_piece.end()),
                false => (row + 1..span.end).find(|at| !of_piece.contains(&times[*at])).unwrap_or(span.end),
            };
            let rows = row..end;
            row = end;
            let keep = keep.as_ref().map(|keep| &keep[rows.clone()]);
            let kept = keep.map_or(rows.len(), |keep| keep.iter().filter(|keep| **keep).count());
            if kept == 0 {
                continue;
            }
            let keep = keep.filter(|_| kept < rows.len());
            let totals = self.piece(piece);
            totals.rows += kept as u64;
            totals.columns.iter_mut().zip(columns).for_each(|(totals, column)| totals.add(column, rows.clone(), keep));
        }
    }
}
