//! Time-weighted values of a channel over a span: integral, mean, min and max, exact at the span's edges.
//!
//! Blocks wholly inside are answered from their statistics.

use std::collections::VecDeque;
use std::ops::Range;

use crate::codec::stats::{Integral, Sample};
use crate::model::batch::ColumnValues;
use crate::model::large_sum::{LargeSum, on_way};
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::model::value::Value;
use crate::read::fold::{first_row_with, fold};
use crate::read::intervals::between;
use crate::read::points::{BlockOfPoints, Point, Points, RunOrBlock};
use crate::read::sample_run::{Numbers, SampleRun};
use crate::read::state::OwnedValue;
use crate::read::totals::EqualPieces;
use crate::read::view::View;

/// Time-weighted values of a channel over a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Number of values stored within the span.
    pub count: u64,
    /// Smallest value within the span, ignoring NaN: of those stored, and of those read back at its edges; the
    /// earliest of equals. `None` for text, or if there is none.
    pub min: Option<Sample>,
    /// Largest value, like `min`.
    pub max: Option<Sample>,
    /// Integral of the value over time, where it is known within the span: by the channel's interpolation between two
    /// values, and held up to the newest frame that has the channel. Excludes time where frames are known missing,
    /// and time from or (on a line) to a value that is unknown or not finite. Infinite if it is too large for a
    /// number.
    pub integral: Integral,
}

impl Weight {
    fn none() -> Weight {
        Weight { count: 0, min: None, max: None, integral: Integral { value_ns: 0.0, known_ns: 0 } }
    }

    /// Returns the mean over the time for which the value is known, or `None` if the integral is too large for a
    /// number.
    pub fn time_mean(&self) -> Option<f64> {
        let Integral { value_ns, known_ns } = self.integral;
        (known_ns > 0 && value_ns.is_finite()).then(|| value_ns / known_ns as f64)
    }
}

/// Pieces of time that follow one another.
#[derive(Clone, Debug)]
pub struct WeighedPieces {
    /// Span that is covered, nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Length of a piece in nanoseconds, at least 1; the last one ends with `time` at the latest.
    pub width_ns: u64,
    /// How long a value holds after its sample, and how far apart samples have a line between them, in nanoseconds;
    /// `u64::MAX` for ever. Statistics of blocks are used only then.
    pub tolerance_ns: u64,
}

/// Reader of the time-weighted values of a channel over pieces of time, one after the other.
pub struct Weigher {
    /// The samples; `None` if there is no such channel.
    points: Option<Points>,
    scale: Scale,
    /// Pieces that were not returned yet.
    left: u64,
}

/// Numbers whose products with durations are added at a time.
const BUFFERED: usize = 256;

/// Accumulator of the weights of pieces, one after the other.
struct Scale {
    pieces: WeighedPieces,
    linear: bool,
    /// Weights of the pieces before that were not returned yet.
    done: VecDeque<Weight>,
    /// Piece being weighed.
    span: Range<i64>,
    weight: Weight,
    /// Integral so far.
    sum: LargeSum,
    /// Newest point, from which the next piece of time begins.
    last: Option<Point>,
}

impl View {
    /// Computes the time-weighted values of a channel over `time`. Blocks wholly inside are answered from their
    /// statistics; those at the edges are decoded.
    ///
    /// # Errors
    /// As for a scan.
    pub fn weigh(&self, stream: StreamId, column: ChannelIndex, time: Range<i64>) -> Result<Weight, ScanError> {
        let width_ns = time.end.abs_diff(time.start).max(1);
        let one = self.weigh_pieces(stream, column, WeighedPieces { time, width_ns, tolerance_ns: u64::MAX })?;
        Ok(one.into_iter().next().unwrap_or_else(Weight::none))
    }

    /// Computes the time-weighted values of a channel over each of some pieces of time, as [`View::weigh`] does. What
    /// lies across several pieces is read once.
    ///
    /// # Errors
    /// As for a scan.
    ///
    /// # Panics
    /// If there are more than 2^20 pieces.
    pub fn weigh_pieces(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        pieces: WeighedPieces,
    ) -> Result<Vec<Weight>, ScanError> {
        let mut weigher = self.weigher(stream, column, pieces)?;
        let count = weigher.left;
        assert!(count <= 1 << 20, "{count} pieces");
        weigher.next(count as usize)
    }

    /// Creates a reader of the time-weighted values of a channel over pieces of time.
    ///
    /// # Errors
    /// As for a scan.
    pub fn weigher(&self, stream: StreamId, column: ChannelIndex, pieces: WeighedPieces) -> Result<Weigher, ScanError> {
        let time = pieces.time.clone();
        let (width_ns, tolerance_ns) = (pieces.width_ns.max(1), pieces.tolerance_ns);
        let left = if time.is_empty() { 0 } else { time.end.abs_diff(time.start).div_ceil(width_ns) };
        let mut points = if left > 0 { Points::new(self, stream, column, time.clone())? } else { None };
        if let Some(points) = points.as_mut().filter(|_| tolerance_ns == u64::MAX) {
            points.whole_blocks(time.clone(), EqualPieces { origin: time.start, width_ns });
        }
        let pieces = WeighedPieces { time, width_ns, tolerance_ns };
        let scale = Scale {
            span: pieces.piece_from(pieces.time.start),
            linear: points.as_ref().is_some_and(|points| points.channel().interpolation == Interpolation::Linear),
            done: VecDeque::new(),
            weight: Weight::none(),
            sum: LargeSum::default(),
            last: None,
            pieces,
        };
        Ok(Weigher { points, scale, left })
    }
}

impl Weigher {
    /// Returns the weights of the next pieces, of at most `count`; fewer only at the end.
    ///
    /// # Errors
    /// As for a scan.
    pub fn next(&mut self, count: usize) -> Result<Vec<Weight>, ScanError> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(count);
        self.left -= count as u64;
        let Weigher { points: Some(points), scale, .. } = self else { return Ok(vec![Weight::none(); count]) };
        let kind = points.channel().channel_type;
        while scale.done.len() < count {
            match points.next_run_or_block()? {
                Some(RunOrBlock::Run(run)) => scale.add_run(&run),
                Some(RunOrBlock::Block(BlockOfPoints(statistics, gap))) => {
                    let sample = |s: Option<Sample>| s.and_then(|s| Some((s.value.convert(kind)?, s.time)));
                    let point = |(value, time), gap| Point { time, row: 0, value: Some(OwnedValue::of(value)), gap };
                    let (Some(first), Some(last)) = (sample(statistics.first), sample(statistics.last)) else {
                        continue;
                    };
                    scale.reach(&point(first, gap));
                    for extreme in [statistics.min, statistics.max] {
                        sample(extreme).into_iter().for_each(|(value, time)| scale.enclose(value, time));
                    }
                    scale.weight.count += statistics.values();
                    if let Some(integral) = statistics.integral {
                        scale.sum.add(integral.value_ns);
                        scale.weight.integral.known_ns += integral.known_ns;
                    }
                    scale.last = Some(point(last, false));
                }
                None => {
                    let offered_to = points.offered_to()?;
                    while scale.done.len() < count {
                        offered_to.into_iter().for_each(|to| scale.hold_to(to));
                        scale.end_piece();
                    }
                }
            }
        }
        Ok(scale.done.drain(..count).collect())
    }
}

impl WeighedPieces {
    /// Returns the piece that begins at an instant.
    fn piece_from(&self, start: i64) -> Range<i64> {
        start..start.saturating_add_unsigned(self.width_ns).min(self.time.end)
    }
}

impl Scale {
    /// Goes on to the next piece. After the last one it is empty.
    fn end_piece(&mut self) {
        let mut weight = std::mem::replace(&mut self.weight, Weight::none());
        weight.integral.value_ns = std::mem::take(&mut self.sum).value();
        self.done.push_back(weight);
        self.span = self.pieces.piece_from(self.span.end);
    }

    /// Reports whether the time between two points is longer than a value holds.
    fn is_silent(&self, from: i64, to: i64) -> bool {
        to.abs_diff(from) > self.pieces.tolerance_ns
    }

    /// Adds the time from the newest point to the next one, to all pieces that it reaches.
    fn reach(&mut self, to: &Point) {
        if let Some(from) = self.last.as_ref().map(|last| last.time)
            && self.is_silent(from, to.time)
            && !to.gap
        {
            if self.linear {
                return self.reach_known(&Point { gap: true, ..to.clone() });
            }
            let time = from.saturating_add_unsigned(self.pieces.tolerance_ns);
            let end = Point { time, row: to.row, value: None, gap: false };
            self.reach_known(&end);
            self.last = Some(end);
        }
        self.reach_known(to);
    }

    /// Adds the time from the newest point to the next one, for which the newest value holds.
    fn reach_known(&mut self, to: &Point) {
        while !self.span.is_empty() {
            self.piece(to);
            if to.time < self.span.end {
                break;
            }
            self.end_piece();
        }
    }

    /// Adds a point: the time since the one before, and its own value.
    fn add(&mut self, point: Point) {
        self.reach(&point);
        if self.span.contains(&point.time)
            && let Some(value) = &point.value
        {
            self.weight.count += 1;
            if let OwnedValue::Plain(value) = value {
                self.enclose(*value, point.time);
            }
        }
        self.last = Some(point);
    }

    /// Adds points that follow one another.
    fn add_run(&mut self, run: &SampleRun) {
        let Some(Numbers { times, values, rows }) = run.numbers() else {
            for at in 0..run.len() {
                if self.span.is_empty() {
                    return;
                }
                self.add(run.point(at));
            }
            return;
        };
        let mut row = rows.start;
        let gaps = run.gaps().iter().map(|at| rows.start + at).filter(|gap| *gap > rows.start);
        let mut ends: Vec<usize> = gaps.chain([rows.end]).collect();
        if self.pieces.tolerance_ns < u64::MAX {
            ends.extend((rows.start + 1..rows.end).filter(|row| self.is_silent(times[row - 1], times[*row])));
            ends.sort_unstable();
        }
        for end in ends {
            // The first point after a gap, and the first in a piece, is connected with what was before.
            while row < end && !self.span.is_empty() {
                self.add(run.point(row - rows.start));
                let of_piece = row..row + times[row..end].partition_point(|time| *time < self.span.end);
                if of_piece.len() > 1 && times[row] >= self.span.start {
                    if self.add_numbers(&times, values, of_piece.clone()) {
                        self.last = Some(run.point(of_piece.end - 1 - rows.start));
                    } else {
                        of_piece.clone().skip(1).for_each(|at| self.add(run.point(at - rows.start)));
                    }
                    row = of_piece.end;
                } else {
                    row += 1;
                }
            }
        }
    }

    /// Adds numbers that lie in the piece with all between them, but for the first of them, which was added. Returns
    /// `false` if some are not finite.
    fn add_numbers(&mut self, times: &[i64], values: &ColumnValues, rows: Range<usize>) -> bool {
        let found = fold(values, rows.clone(), false);
        let Some((min, max)) = found.range.filter(|_| found.finite() == found.values) else { return false };
        for extreme in [min, max] {
            let row = first_row_with(values, rows.clone(), extreme);
            row.into_iter().for_each(|row| self.enclose(extreme, times[row]));
        }
        let (first, last) = (rows.start, rows.end - 1);
        self.weight.count += (last - first) as u64;
        self.weight.integral.known_ns += times[last].abs_diff(times[first]);
        let times = times[rows.clone()].windows(2).map(|pair| pair[1].abs_diff(pair[0]) as f64);
        match values {
            ColumnValues::F64(values) => self.add_products(times, values[rows].iter().copied()),
            values => self.add_products(times, rows.map(|row| values.value(row).as_f64().unwrap_or(f64::NAN))),
        }
        true
    }

    /// Adds the products of durations with the levels of values at their edges.
    fn add_products(&mut self, durations: impl Iterator<Item = f64>, levels: impl Iterator<Item = f64> + Clone) {
        let (mut numbers, mut weights, mut filled) = ([0.0; BUFFERED], [0.0; BUFFERED], 0);
        let pairs = levels.clone().zip(levels.skip(1));
        for ((a, b), duration) in pairs.zip(durations) {
            numbers[filled] = if self.linear { a / 2.0 + b / 2.0 } else { a };
            weights[filled] = duration;
            filled += 1;
            if filled == BUFFERED {
                self.sum.add_products(&numbers, &weights);
                filled = 0;
            }
        }
        self.sum.add_products(&numbers[..filled], &weights[..filled]);
    }

    /// Adds the time from the newest point to the next one, as far as it lies in the piece.
    fn piece(&mut self, to: &Point) {
        let Some(from) = self.last.take() else { return };
        let (start, end) = (from.time.max(self.span.start), to.time.min(self.span.end));
        let known = !to.gap && start < end;
        // The value that stands at the start of the span counts, though it was stored before.
        let at_start = from.time < self.span.start && to.time > self.span.start && known;
        let at_end = self.linear && known && to.time > self.span.end;
        let value = |time: i64| match between(&from, to, time, self.linear) {
            Some(OwnedValue::Plain(value)) => Some(value),
            _ => None,
        };
        let (first, last) = (at_start.then(|| value(start)).flatten(), at_end.then(|| value(end)).flatten());
        if known && let Some(level) = self.level(&from, to, start, end) {
            self.count(level, end.abs_diff(start));
        }
        first.into_iter().for_each(|value| self.enclose(value, self.span.start));
        last.into_iter().for_each(|value| self.enclose(value, self.span.end));
        self.last = Some(from);
    }

    /// Holds the newest point up to an instant.
    fn hold_to(&mut self, to: i64) {
        let Some(from) = self.last.clone() else { return };
        let to = to.min(from.time.saturating_add_unsigned(self.pieces.tolerance_ns));
        if from.time < self.span.start
            && to > self.span.start
            && let Some(OwnedValue::Plain(value)) = &from.value
        {
            self.enclose(*value, self.span.start);
        }
        let end = Point { time: to, gap: false, ..from.clone() };
        let (start, end_at) = (from.time.max(self.span.start), to.min(self.span.end));
        if start < end_at
            && let Some(level) = self.level(&from, &end, start, end_at)
        {
            self.count(level, end_at.abs_diff(start));
        }
    }

    /// Returns the mean over time between two neighbouring points, or `None` where the value is not known.
    fn level(&self, from: &Point, to: &Point, start: i64, end: i64) -> Option<f64> {
        let number = |point: &Point| match &point.value {
            Some(OwnedValue::Plain(value)) => value.as_f64().filter(|v| v.is_finite()),
            _ => None,
        };
        let a = number(from)?;
        if !self.linear {
            return Some(a);
        }
        let b = number(to)?;
        let whole = to.time.abs_diff(from.time) as f64;
        let at = |time: i64| on_way(a, b, time.abs_diff(from.time) as f64 / whole);
        Some(at(start) / 2.0 + at(end) / 2.0)
    }

    /// Adds to the integral.
    fn count(&mut self, level: f64, known_ns: u64) {
        self.sum.add_product(level, known_ns as f64);
        self.weight.integral.known_ns += known_ns;
    }

    fn enclose(&mut self, value: Value<'static>, time: i64) {
        let is_number = value.channel_type().is_scalar() && value.as_f64().is_some_and(|v| !v.is_nan());
        if !is_number {
            return;
        }
        let Weight { min, max, .. } = &mut self.weight;
        let beats = |best: &Option<Sample>, wins: &dyn Fn(&Value<'_>, &Value<'_>) -> bool| {
            best.is_none_or(|best| wins(&value, &best.value) || !wins(&best.value, &value) && time < best.time)
        };
        if beats(min, &|a, b| a.is_less(b)) {
            *min = Some(Sample { value, time });
        }
        if beats(max, &|a, b| b.is_less(a)) {
            *max = Some(Sample { value, time });
        }
    }
}
