//! Aggregation of a channel into buckets of time for plots that hide no spike.
//!
//! A block that lies in one bucket contributes its statistics; only blocks at the edges of buckets are decoded. In a
//! segment with statistics pyramids, many blocks in one bucket are one node. Buckets accept their parts in any order
//! of time, so overlapping blocks are harmless: of equal times the row decides, and blocks come in row order. The
//! first and the last row of a block are first and last in time only if its times ascend; otherwise the block is
//! decoded.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::stats::{ColumnStatistics, Sample, Sum};
use crate::model::batch::{Batch, Column};
use crate::model::large_sum::LargeSum;
use crate::model::limits::STATISTICS_MIN_ROWS;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{CellState, ChannelType, Value};
use crate::read::fold::{Fold, count_values, fold, fold_cells, fold_finite, has_numbers};
use crate::read::pyramid::Pyramid;
use crate::read::request::Scan;
use crate::read::state::OwnedValue;
use crate::read::stream_view::StreamView;
use crate::read::view::View;
use crate::segment::directory::{BlockRef, Segment};
use crate::segment::pyramid::FAN;

/// Aggregate of the values of one channel within a piece of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Start of the piece, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Number of values in it, including NaNs.
    pub count: u64,
    /// First value in `time`; for equal times the lower row.
    pub first: OwnedValue,
    /// Last value in `time`; for equal times the higher row.
    pub last: OwnedValue,
    /// Smallest value, ignoring NaN; `None` for text, if all are NaN, or if it was not requested.
    pub min: Option<Value<'static>>,
    /// Largest value, as `min`.
    pub max: Option<Value<'static>>,
    /// Number of finite values in it; 0 if it was not requested.
    pub finite: u64,
    /// Arithmetic mean of the finite values; `None` for text, if none is finite, or if it was not requested.
    pub mean: Option<f64>,
}

/// Pieces of time of equal length.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// Span that is covered, nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Length of a piece in nanoseconds; the last one may end beyond `time`.
    pub width_ns: u64,
    /// Max number of values that are returned one by one, without aggregation.
    pub plain_max: usize,
    /// What is computed of the values of a piece.
    pub computed: Computed,
}

/// What is computed of the values of a piece besides their number, the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Smallest and largest value.
    pub extremes: bool,
    /// Number and mean of the finite values.
    pub means: bool,
}

impl Computed {
    /// Nothing.
    pub const NONE: Computed = Computed { extremes: false, means: false };
    /// All there is.
    pub const ALL: Computed = Computed { extremes: true, means: true };
}

/// Channel aggregated to a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// Buckets, ascending in time.
    pub buckets: Vec<Bucket>,
    /// Whether there were so few values that each has a bucket of its own.
    pub plain: bool,
}

/// Bucket that is being filled.
#[derive(Clone, Debug)]
struct Filling {
    bucket: Bucket,
    first_at: i64,
    last_at: (i64, u64),
    sum: LargeSum,
}

fn is_nan(value: &Value<'_>) -> bool {
    match value {
        Value::F32(v) => v.is_nan(),
        Value::F64(v) => v.is_nan(),
        _ => false,
    }
}

impl Filling {
    /// Returns an empty bucket with its first value set.
    fn new(start: i64, first: Value<'_>, time: i64, row: u64) -> Filling {
        let first = OwnedValue::of(first);
        let last = first.clone();
        let bucket = Bucket { time: start, count: 0, first, last, min: None, max: None, finite: 0, mean: None };
        Filling { bucket, first_at: time, last_at: (time, row), sum: LargeSum::default() }
    }

    fn add(&mut self, value: Value<'_>, time: i64, row: u64) {
        self.bucket.count += 1;
        if time < self.first_at {
            self.first_at = time;
            self.bucket.first = OwnedValue::of(value);
        }
        if (time, row) > self.last_at {
            self.last_at = (time, row);
            self.bucket.last = OwnedValue::of(value);
        }
        let Some(number) = value.as_f64() else { return };
        if number.is_finite() {
            self.sum.add(number);
            self.bucket.finite += 1;
        }
        if !is_nan(&value) {
            let plain = Value::from_bits(value.channel_type(), value.bits());
            self.enclose(plain, plain);
        }
    }

    /// Adds a block by its statistics. Its rows come after those before, so its last row represents them all.
    fn join(&mut self, block: &Summary, last_row: u64) {
        self.bucket.count += block.count;
        if block.first.time < self.first_at {
            self.first_at = block.first.time;
            self.bucket.first = OwnedValue::of(block.first.value);
        }
        // `>=`, because at the same row the bucket's last value is so far the first value of this block.
        if (block.last.time, last_row) >= self.last_at {
            self.last_at = (block.last.time, last_row);
            self.bucket.last = OwnedValue::of(block.last.value);
        }
        if block.finite > 0 {
            self.sum.join(&block.sum);
            self.bucket.finite += block.finite;
        }
        if let Some((min, max)) = block.range {
            self.enclose(min, max);
        }
    }

    fn enclose(&mut self, min: Value<'static>, max: Value<'static>) {
        if self.bucket.min.as_ref().is_none_or(|m| min.is_less(m)) {
            self.bucket.min = Some(min);
        }
        if self.bucket.max.as_ref().is_none_or(|m| m.is_less(&max)) {
            self.bucket.max = Some(max);
        }
    }

    fn finish(mut self, computed: Computed) -> Bucket {
        if !computed.extremes {
            (self.bucket.min, self.bucket.max) = (None, None);
        }
        if !computed.means {
            self.bucket.finite = 0;
        }
        if self.bucket.finite > 0 {
            self.bucket.mean = Some(self.sum.over(self.bucket.finite as f64));
        }
        self.bucket
    }
}

/// Statistics of a block's values, in the channel's type.
struct Summary {
    count: u64,
    first: Sample,
    last: Sample,
    range: Option<(Value<'static>, Value<'static>)>,
    finite: u64,
    sum: LargeSum,
}

impl Summary {
    /// Converts statistics, or returns `None` if the values themselves are needed: text, a value that does not fit
    /// the type, or a sum that overflowed.
    fn of(block: &ColumnStatistics, kind: ChannelType) -> Option<Summary> {
        let convert = |sample: Sample| Some(Sample { value: sample.value.convert(kind)?, time: sample.time });
        let total = match block.sum? {
            Sum::Integer(sum) => sum as f64,
            Sum::Float(sum) => sum,
        };
        let mut sum = LargeSum::default();
        sum.add(total);
        let range = match block.min.zip(block.max) {
            Some((min, max)) => Some((min.value.convert(kind)?, max.value.convert(kind)?)),
            None => None,
        };
        let finite = block.values().checked_sub(block.nans + block.infinities)?;
        let (first, last) = (convert(block.first?)?, convert(block.last?)?);
        total.is_finite().then_some(Summary { count: block.values(), first, last, range, finite, sum })
    }
}

/// Buckets that are being filled.
struct BucketBuilder {
    time: Range<i64>,
    width: u64,
    filling: Vec<Option<Filling>>,
    /// First values, one each; dropped once there are more than `plain_max`.
    plain: Option<Vec<Filling>>,
    plain_max: usize,
    computed: Computed,
}

impl BucketBuilder {
    fn bucket_of(&self, time: i64) -> usize {
        (time.abs_diff(self.time.start) / self.width) as usize
    }

    fn bucket(&mut self, index: usize, first: Value<'_>, time: i64, row: u64) -> &mut Filling {
        let start = self.time.start.wrapping_add_unsigned(index as u64 * self.width);
        self.filling[index].get_or_insert_with(|| Filling::new(start, first, time, row))
    }

    /// Adds the rows of a batch that lie in the time span.
    fn add(&mut self, batch: &Batch, times: &[i64], values: &Column) {
        let is_aggregated = self.plain.is_none() || self.plain_max == 0;
        if is_aggregated && has_numbers(&values.values) && times.is_sorted() {
            return self.add_sorted(batch, times, values);
        }
        for (i, (at, row)) in times.iter().copied().zip(batch.rows.iter().copied()).enumerate() {
            if !self.time.contains(&at) {
                continue;
            }
            let Ok(value) = values.cell(i) else { continue };
            self.bucket(self.bucket_of(at), value, at, row).add(value, at, row);
            if let Some(list) = &mut self.plain {
                let mut single = Filling::new(at, value, at, row);
                single.add(value, at, row);
                list.push(single);
                if list.len() > self.plain_max {
                    self.plain = None;
                }
            }
        }
    }

    /// Adds numbers whose times ascend, all of a bucket at once.
    fn add_sorted(&mut self, batch: &Batch, times: &[i64], values: &Column) {
        let mut row = times.partition_point(|time| *time < self.time.start);
        let end = times.partition_point(|time| *time < self.time.end);
        while row < end {
            let index = self.bucket_of(times[row]);
            let is_same = |time: &i64| self.bucket_of(*time) == index;
            let rows = row..row + times[row..end].partition_point(is_same);
            row = rows.end;
            let is_value = |row: &usize| values.states.as_ref().is_none_or(|states| states[*row] == CellState::Value);
            let (Some(first), Some(last)) = (rows.clone().find(is_value), rows.clone().rev().find(is_value)) else {
                continue;
            };
            let fold = self.fold(values, rows);
            let sample = |row: usize| {
                let value = values.values.value(row);
                Sample { value: Value::from_bits(value.channel_type(), value.bits()), time: times[row] }
            };
            let (of_first, of_last) = (sample(first), sample(last));
            let (finite, sum) = (fold.finite(), fold.sum());
            let of = Summary { count: fold.values, first: of_first, last: of_last, range: fold.range, finite, sum };
            self.plain = None;
            self.bucket(index, of_first.value, of_first.time, batch.rows[first]).join(&of, batch.rows[last]);
        }
    }

    /// Folds the values among some cells, as far as requested.
    fn fold(&self, values: &Column, rows: Range<usize>) -> Fold {
        let all_are_values = values.states.is_none();
        match self.computed {
            Computed::NONE => Fold { values: count_values(values, rows), ..Fold::default() },
            Computed { extremes: false, means: true } if all_are_values => fold_finite(&values.values, rows),
            Computed { extremes: true, means: false } if all_are_values => fold(&values.values, rows, false),
            _ => fold_cells(values, rows, None),
        }
    }

    /// Returns the bucket that contains the whole block, if the block's statistics suffice.
    fn whole(&self, block: &BlockRef) -> Option<usize> {
        let may = block.time_sorted && block.part.is_none() && block.rows as usize >= STATISTICS_MIN_ROWS;
        self.within(block.time).filter(|_| may)
    }

    /// Returns the bucket that contains all times from `first` to `last`.
    fn within(&self, (first, last): (i64, i64)) -> Option<usize> {
        let inside = self.time.contains(&first) && self.time.contains(&last);
        (inside && self.bucket_of(first) == self.bucket_of(last)).then(|| self.bucket_of(first))
    }

    /// Adds a block by its statistics. Returns `false` if it has to be decoded.
    fn join(&mut self, index: usize, statistics: &ColumnStatistics, kind: ChannelType, last_row: u64) -> bool {
        if statistics.values() == 0 {
            return true;
        }
        let Some(block) = Summary::of(statistics, kind) else { return false };
        // A few values are returned one by one.
        if self.plain.as_ref().is_some_and(|list| list.len() as u64 + block.count <= self.plain_max as u64) {
            return false;
        }
        self.plain = None;
        self.bucket(index, block.first.value, block.first.time, last_row).join(&block, last_row);
        true
    }

    fn finish(self) -> Reduced {
        match self.plain {
            Some(mut list) => {
                list.sort_by_key(|f| f.last_at);
                Reduced {
                    buckets: list.into_iter().map(|filling| filling.finish(self.computed)).collect(),
                    plain: true,
                }
            }
            None => {
                let filled = self.filling.into_iter().flatten();
                Reduced { buckets: filled.map(|filling| filling.finish(self.computed)).collect(), plain: false }
            }
        }
    }
}

impl View {
    /// Aggregates a channel over `time` into at most `buckets` pieces of equal length, leaving out empty ones. Min
    /// and max are exact. If there are fewer values than buckets, each value has a bucket of its own.
    ///
    /// # Errors
    /// As for a scan.
    pub fn reduce(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        time: Range<i64>,
        buckets: usize,
    ) -> Result<Vec<Bucket>, ScanError> {
        let buckets = buckets.clamp(1, 1 << 20);
        // Limit the span to the data: "everything" is not 585 years in 1,000 pieces.
        let Some((min, max)) = self.time_range(stream) else { return Ok(Vec::new()) };
        let time = time.start.max(min)..time.end.min(max.saturating_add(1));
        if time.is_empty() {
            return Ok(Vec::new());
        }
        let width_ns = time.end.abs_diff(time.start).div_ceil(buckets as u64).max(1);
        Ok(self
            .reduce_to(stream, column, &Pieces { time, width_ns, plain_max: buckets, computed: Computed::ALL })?
            .buckets)
    }

    /// Aggregates a channel over a grid, with one bucket for each piece of its time.
    ///
    /// # Errors
    /// As for a scan.
    ///
    /// # Panics
    /// If the grid has more than 2^20 pieces.
    pub fn reduce_to(&self, stream: StreamId, column: ChannelIndex, grid: &Pieces) -> Result<Reduced, ScanError> {
        Ok(self.reduce_columns(stream, &[column], grid)?.remove(0))
    }

    /// Aggregates channels of a stream over a grid as [`View::reduce_to`] does, reading each block once.
    ///
    /// # Errors
    /// As for a scan.
    ///
    /// # Panics
    /// If the grid has more than 2^20 pieces.
    pub fn reduce_columns(
        &self,
        stream: StreamId,
        columns: &[ChannelIndex],
        grid: &Pieces,
    ) -> Result<Vec<Reduced>, ScanError> {
        let time = grid.time.clone();
        let width = grid.width_ns.max(1);
        let buckets = if time.is_empty() { 0 } else { time.end.abs_diff(time.start).div_ceil(width) };
        assert!(buckets <= 1 << 20, "a grid of {buckets} pieces");
        let builder = |_: &ChannelIndex| BucketBuilder {
            time: time.clone(),
            width,
            filling: vec![None; buckets as usize],
            plain: Some(Vec::new()),
            plain_max: grid.plain_max,
            computed: grid.computed,
        };
        let mut builders: Vec<BucketBuilder> = columns.iter().map(builder).collect();
        let finished = |builders: Vec<BucketBuilder>| Ok(builders.into_iter().map(BucketBuilder::finish).collect());
        let Some(of) = self.stream(stream) else { return finished(builders) };
        let is_known = |at: &usize| (columns[*at].0 as usize) < of.stream.layout.channels.len();
        let known: Vec<usize> = (0..columns.len()).filter(is_known).collect();
        if known.is_empty() || buckets == 0 {
            return finished(builders);
        }
        let mut reduction = Reduction { view: self, stream: &of, columns, builders: &mut builders, time: time.clone() };
        for segment in of.segments(time.start, time.end - 1) {
            reduction.add_segment(&segment, &known)?;
        }
        let rows = of.open.first_row..u64::MAX;
        let read = known.iter().map(|at| columns[*at]).collect();
        for batch in self.scan(Scan { time, rows, columns: read, ..Scan::all(stream, Vec::new()) }) {
            reduction.add(&batch?, &known);
        }
        finished(builders)
    }
}

/// Reading of channels into their buckets. Channels are told by their positions among `columns`.
struct Reduction<'a> {
    view: &'a View,
    stream: &'a StreamView,
    columns: &'a [ChannelIndex],
    /// Buckets of each channel.
    builders: &'a mut [BucketBuilder],
    time: Range<i64>,
}

impl Reduction<'_> {
    fn add(&mut self, batch: &Batch, channels: &[usize]) {
        let times = batch.time_values();
        for (at, values) in channels.iter().zip(&batch.columns) {
            self.builders[*at].add(batch, &times, values);
        }
    }

    fn is_beside(&self, (first, last): (i64, i64)) -> bool {
        first >= self.time.end || last < self.time.start
    }

    fn add_segment(&mut self, segment: &Arc<Segment>, channels: &[usize]) -> Result<(), ScanError> {
        let shared = self.view.shared();
        let blocks = self.stream.blocks(segment, shared)?;
        let (mut pyramids, mut without) = (Vec::new(), Vec::new());
        for at in channels {
            match Pyramid::of(segment, (self.stream, self.columns[*at]), &blocks, &shared.residents)? {
                Some(pyramid) => pyramids.push((*at, pyramid)),
                None => without.push(*at),
            }
        }
        if let Some((_, first)) = pyramids.first() {
            let top = first.levels() - 1;
            for node in 0..first.nodes(top) {
                let all: Vec<usize> = (0..pyramids.len()).collect();
                self.add_node(segment, &mut pyramids, (top, node), &all)?;
            }
        }
        if !without.is_empty() {
            for block in &blocks {
                if !self.is_beside(block.time) {
                    self.view.check_age()?;
                    self.add_block(segment, block, &without)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the blocks that a pyramid node covers: by its statistics if they lie in one bucket, otherwise by the
    /// nodes below it, and at the lowest level block by block. `of` are the pyramids of the channels to add.
    fn add_node(
        &mut self,
        segment: &Arc<Segment>,
        pyramids: &mut [(usize, Pyramid)],
        (level, node): (usize, usize),
        of: &[usize],
    ) -> Result<(), ScanError> {
        let Some((_, first)) = of.first().map(|at| &pyramids[*at]) else { return Ok(()) };
        let blocks = first.blocks_of(level, node);
        let Some(time) = first.time_of(&blocks).filter(|time| !self.is_beside(*time)) else { return Ok(()) };
        self.view.check_age()?;
        let last_row = first.blocks[blocks.end - 1].end_row() - 1;
        let mut left = Vec::new();
        for at in of {
            let (channel, pyramid) = &mut pyramids[*at];
            let builder = &mut self.builders[*channel];
            let is_added = match builder.within(time) {
                Some(index) => {
                    let kind = self.stream.stream.layout.channels[self.columns[*channel].0 as usize].channel_type;
                    let found = pyramid.node(level, node, &self.view.shared().residents)?;
                    found.is_some_and(|found| builder.join(index, &found.statistics, kind, last_row))
                }
                None => false,
            };
            if !is_added {
                left.push(*at);
            }
        }
        let Some((_, first)) = left.first().map(|at| &pyramids[*at]) else { return Ok(()) };
        if level == 0 {
            let block = first.blocks[blocks.start];
            let channels: Vec<usize> = left.iter().map(|at| pyramids[*at].0).collect();
            return self.add_block(segment, &block, &channels);
        }
        for below in node * FAN..((node + 1) * FAN).min(first.nodes(level - 1)) {
            self.add_node(segment, pyramids, (level - 1, below), &left)?;
        }
        Ok(())
    }

    fn add_block(&mut self, segment: &Arc<Segment>, block: &BlockRef, channels: &[usize]) -> Result<(), ScanError> {
        let shared = self.view.shared();
        let mut left = Vec::new();
        for at in channels {
            let (builder, column) = (&mut self.builders[*at], self.columns[*at]);
            let found = match builder.whole(block) {
                Some(index) => {
                    let ask = self
                        .stream
                        .ask(segment, block, &[column], shared, |read| read.statistics_of(column.0.into()))?;
                    ask.map(|found| (index, found))
                }
                None => None,
            };
            let kind = self.stream.stream.layout.channels[column.0 as usize].channel_type;
            let joins =
                |(index, found): (usize, ColumnStatistics)| builder.join(index, &found, kind, block.end_row() - 1);
            if !found.is_some_and(joins) {
                left.push(*at);
            }
        }
        if !left.is_empty() {
            let columns: Vec<ChannelIndex> = left.iter().map(|at| self.columns[*at]).collect();
            self.add(&self.stream.read(segment, block, &columns, shared)?, &left);
        }
        Ok(())
    }
}
