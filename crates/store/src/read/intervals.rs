//! Intervals: a channel as pieces of time with one value each, and its value at one instant.

use std::ops::Range;

use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::read::points::{Point, Points};
use crate::read::reconstruct::on_line;
use crate::read::state::OwnedValue;
use crate::read::view::View;

/// Piece of time with the value of a channel.
///
/// For a channel that holds its value, neighbours of equal value are one interval; for a linear channel, each two
/// neighbouring values make one. The last value before frames that are known missing becomes an interval without
/// length, and nothing follows up to the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Start, inclusive, nanoseconds since 1970 UTC: of a value, or of the requested span.
    pub start: i64,
    /// End, exclusive: start of the next interval, or end of the requested span.
    pub end: i64,
    /// Value at its start; `None` if the stored value is `Unknown`.
    pub value: Option<OwnedValue>,
    /// Value towards its end; differs from `value` only on a line.
    pub end_value: Option<OwnedValue>,
    /// Whether nothing later is stored of the channel, so that the interval may continue.
    pub open: bool,
}

/// Value of a channel at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The value, held or on the line to the next; `None` if the stored value is `Unknown`.
    pub value: Option<OwnedValue>,
    /// `time` of the newest stored value.
    pub since: i64,
}

/// Iterator over intervals in the order of `time`. Ends after an error.
pub struct Intervals {
    points: Option<Points>,
    span: Range<i64>,
    linear: bool,
    /// Newest point, from which the next interval begins.
    last: Option<Point>,
    /// Interval that may continue with an equal value.
    waiting: Option<Interval>,
    ended: bool,
}

impl View {
    /// Iterates over a channel's intervals within `time`. The first begins with the value at its start; the last is
    /// open if nothing later is stored.
    ///
    /// # Errors
    /// As for a scan.
    pub fn intervals(&self, stream: StreamId, column: ChannelIndex, time: Range<i64>) -> Result<Intervals, ScanError> {
        let points = Points::new(self, stream, column, time.clone())?;
        let linear = points.as_ref().is_some_and(|p| p.channel().interpolation == Interpolation::Linear);
        let ended = time.is_empty();
        Ok(Intervals { points, span: time, linear, last: None, waiting: None, ended })
    }

    /// Returns the value of a channel at an instant, by its interpolation. Returns `None` if nothing is stored up to
    /// then, or if frames are known missing between the values before and after.
    ///
    /// # Errors
    /// As for a scan.
    pub fn value_at(&self, stream: StreamId, column: ChannelIndex, time: i64) -> Result<Option<Reading>, ScanError> {
        let Some(mut points) = Points::new(self, stream, column, time..time)? else { return Ok(None) };
        let linear = points.channel().interpolation == Interpolation::Linear;
        let mut last: Option<Point> = None;
        while let Some(point) = points.next()? {
            if point.time <= time {
                last = Some(point);
                continue;
            }
            let Some(from) = last else { return Ok(None) };
            if point.gap && from.time < time {
                return Ok(None);
            }
            let value = between(&from, &point, time, linear);
            return Ok(Some(Reading { value, since: from.time }));
        }
        Ok(last.map(|point| Reading { value: point.value, since: point.time }))
    }
}

/// Returns the value between two neighbouring points, held or on their line.
pub(crate) fn between(from: &Point, to: &Point, time: i64, linear: bool) -> Option<OwnedValue> {
    let on = match (&from.value, &to.value) {
        (Some(a), Some(b)) if linear && time > from.time => {
            on_line((from.time, a.as_value()), (to.time, b.as_value()), time.min(to.time))
        }
        _ => None,
    };
    on.map(OwnedValue::Plain).or_else(|| from.value.clone())
}

/// Returns whether two values are equal bit for bit.
fn is_same(a: &Option<OwnedValue>, b: &Option<OwnedValue>) -> bool {
    match (a, b) {
        (Some(OwnedValue::Plain(a)), Some(OwnedValue::Plain(b))) => {
            a.channel_type() == b.channel_type() && a.bits() == b.bits()
        }
        (a, b) => a == b,
    }
}

impl Intervals {
    /// Returns the interval from the newest point to the next one, or to the end of the span.
    fn piece(&self, from: &Point, to: Option<&Point>) -> Option<Interval> {
        let gap = to.is_some_and(|to| to.gap);
        let end = match to {
            _ if gap => from.time,
            Some(to) => to.time,
            None => i64::MAX,
        };
        let (start, end_at) = (from.time.max(self.span.start), end.min(self.span.end));
        // Of equal times the later row counts; an interval that ends before the span is left out.
        let instant = gap && from.time >= self.span.start;
        if start > end_at || start == end_at && !instant || start >= self.span.end {
            return None;
        }
        let at = |time: i64| match to {
            Some(to) if !gap => between(from, to, time, self.linear),
            _ => from.value.clone(),
        };
        Some(Interval { start, end: end_at, value: at(start), end_value: at(end_at), open: to.is_none() })
    }

    /// Returns an interval, or merges it with the next.
    fn give(&mut self, next: Interval) -> Option<Interval> {
        if self.linear {
            return Some(next);
        }
        let goes_on = |before: &Interval| {
            before.end == next.start && before.start < before.end && is_same(&before.value, &next.value)
        };
        match &mut self.waiting {
            Some(before) if goes_on(before) => {
                (before.end, before.open) = (next.end, next.open);
                None
            }
            waiting => waiting.replace(next),
        }
    }

    fn step(&mut self) -> Result<Option<Interval>, ScanError> {
        while !self.ended {
            let next = match &mut self.points {
                Some(points) => points.next()?,
                None => None,
            };
            let last = std::mem::replace(&mut self.last, next);
            // Points at or after the end of the span only end the last interval.
            self.ended = self.last.as_ref().is_none_or(|point| point.time >= self.span.end);
            let piece = last.and_then(|from| self.piece(&from, self.last.as_ref()));
            if let Some(interval) = piece.and_then(|piece| self.give(piece)) {
                return Ok(Some(interval));
            }
        }
        Ok(self.waiting.take())
    }
}

impl Iterator for Intervals {
    type Item = Result<Interval, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            (self.ended, self.waiting) = (true, None);
        }
        step.transpose()
    }
}
