//! Time-weighted values of a channel over a span: integral, mean, min and max, exact at the span's edges.
//!
//! Blocks wholly inside are answered from their statistics.

use std::ops::Range;

use crate::codec::stats::{Integral, Sample};
use crate::model::large_sum::{LargeSum, on_way};
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::model::value::Value;
use crate::read::intervals::between;
use crate::read::points::{Point, PointOrBlock, Points};
use crate::read::state::OwnedValue;
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
    /// Returns the mean over the time for which the value is known, or `None` if the integral is too large for a
    /// number.
    pub fn time_mean(&self) -> Option<f64> {
        let Integral { value_ns, known_ns } = self.integral;
        (known_ns > 0 && value_ns.is_finite()).then(|| value_ns / known_ns as f64)
    }
}

/// Accumulator of a [`Weight`].
struct Scale {
    span: Range<i64>,
    linear: bool,
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
        let integral = Integral { value_ns: 0.0, known_ns: 0 };
        let weight = Weight { count: 0, min: None, max: None, integral };
        if time.is_empty() {
            return Ok(weight);
        }
        let Some(mut points) = Points::new(self, stream, column, time.clone())? else { return Ok(weight) };
        let linear = points.channel().interpolation == Interpolation::Linear;
        let kind = points.channel().channel_type;
        points.whole_blocks(time.clone());
        let mut scale = Scale { span: time, linear, weight, sum: LargeSum::default(), last: None };
        loop {
            match points.next()? {
                Some(PointOrBlock::Point(point)) => {
                    let done = point.time >= scale.span.end;
                    scale.add(point);
                    if done {
                        break;
                    }
                }
                Some(PointOrBlock::Block(statistics, gap)) => {
                    let sample = |s: Option<Sample>| s.and_then(|s| Some((s.value.convert(kind)?, s.time)));
                    let point = |(value, time), gap| Point { time, row: 0, value: Some(OwnedValue::of(value)), gap };
                    let (Some(first), Some(last)) = (sample(statistics.first), sample(statistics.last)) else {
                        continue;
                    };
                    scale.piece(&point(first, gap), false);
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
                    if let Some(to) = points.offered_to()? {
                        scale.hold_to(to);
                    }
                    break;
                }
            }
        }
        scale.weight.integral.value_ns = scale.sum.value();
        Ok(scale.weight)
    }
}

impl Scale {
    /// Adds a point: the time since the one before, and its own value.
    fn add(&mut self, point: Point) {
        self.piece(&point, true);
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

    /// Adds the time from the newest point to the next one, as far as it lies in the span; with `edges`, also the
    /// value read back at the end of the span.
    fn piece(&mut self, to: &Point, edges: bool) {
        let Some(from) = self.last.take() else { return };
        let (start, end) = (from.time.max(self.span.start), to.time.min(self.span.end));
        let known = !to.gap && start < end;
        // The value that stands at the start of the span counts, though it was stored before.
        let at_start = from.time < self.span.start && to.time > self.span.start && known;
        let at_end = edges && self.linear && known && to.time > self.span.end;
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
