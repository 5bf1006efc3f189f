//! Intervals: a channel as pieces of time with a value each, and its value at one instant.

use std::ops::Range;

use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::read::points::{Point, PointOrBlock, Points};
use crate::read::reconstruct::on_line;
use crate::read::state::OwnedValue;
use crate::read::view::View;

/// A piece of time for which a channel is read back.
///
/// Of a channel that holds, neighbours of equal value are one interval; of a channel on lines each two neighbouring
/// values make one. After the last value before frames that are known missing there is an interval without length, and
/// nothing up to the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Start, inclusive, nanoseconds since 1970 UTC: of a value, or of the span asked for.
    pub start: i64,
    /// End, exclusive: start of the next, or end of the span asked for.
    pub end: i64,
    /// Value at its start; none: the channel is known not to be known.
    pub value: Option<OwnedValue>,
    /// Value towards its end: another one only on a line.
    pub end_value: Option<OwnedValue>,
    /// Nothing later is stored of the channel: it may go on.
    pub open: bool,
}

/// What a channel is at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its value, held or on the line to the next; none: the channel is known not to be known.
    pub value: Option<OwnedValue>,
    /// `time` of the value stored last.
    pub since: i64,
}

/// Iterator over intervals, in the order of `time`. It ends after an error.
pub struct Intervals {
    points: Option<Points>,
    span: Range<i64>,
    linear: bool,
    /// The newest point, from which the next interval begins.
    last: Option<Point>,
    /// An interval that may go on with an equal value.
    waiting: Option<Interval>,
    ended: bool,
}

impl View {
    /// A channel's intervals within `time`: the first begins with what stands at its start, the last is open where
    /// nothing later is known.
    ///
    /// # Errors
    /// As a scan.
    pub fn intervals(&self, stream: StreamId, column: ChannelIndex, time: Range<i64>) -> Result<Intervals, ScanError> {
        let points = Points::new(self, stream, column, time.clone())?;
        let linear = points.as_ref().is_some_and(|p| p.channel().interpolation == Interpolation::Linear);
        let ended = time.is_empty();
        Ok(Intervals { points, span: time, linear, last: None, waiting: None, ended })
    }

    /// What a channel is at an instant, by its interpolation. None: nothing is stored up to then, or frames are known
    /// missing between the values before and after.
    ///
    /// # Errors
    /// As a scan.
    pub fn value_at(&self, stream: StreamId, column: ChannelIndex, time: i64) -> Result<Option<Reading>, ScanError> {
        let Some(mut points) = Points::new(self, stream, column, time..time)? else { return Ok(None) };
        let linear = points.channel().interpolation == Interpolation::Linear;
        let mut last: Option<Point> = None;
        while let Some(found) = points.next()? {
            let PointOrBlock::Point(point) = found else { continue };
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

/// The value between two neighbouring points, held or on their line.
pub(crate) fn between(from: &Point, to: &Point, time: i64, linear: bool) -> Option<OwnedValue> {
    let on = match (&from.value, &to.value) {
        (Some(a), Some(b)) if linear && time > from.time => {
            on_line((from.time, a.as_value()), (to.time, b.as_value()), time.min(to.time))
        }
        _ => None,
    };
    on.map(OwnedValue::Plain).or_else(|| from.value.clone())
}

/// Whether two values are the same, bit for bit.
fn is_same(a: &Option<OwnedValue>, b: &Option<OwnedValue>) -> bool {
    match (a, b) {
        (Some(OwnedValue::Plain(a)), Some(OwnedValue::Plain(b))) => {
            a.channel_type() == b.channel_type() && a.bits() == b.bits()
        }
        (a, b) => a == b,
    }
}

impl Intervals {
    /// The interval from the newest point to the next one, or to the end of the span.
    fn piece(&self, from: &Point, to: Option<&Point>) -> Option<Interval> {
        let gap = to.is_some_and(|to| to.gap);
        let end = match to {
            _ if gap => from.time,
            Some(to) => to.time,
            None => i64::MAX,
        };
        let (start, end_at) = (from.time.max(self.span.start), end.min(self.span.end));
        // Of equal times the later row stands; what ends before the span is not in it.
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

    /// Gives an interval out, or lets it go on with the next.
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
            let found = match &mut self.points {
                Some(points) => points.next()?,
                None => None,
            };
            let next = match found {
                Some(PointOrBlock::Point(point)) => Some(point),
                Some(PointOrBlock::Block(..)) => continue,
                None => None,
            };
            let last = std::mem::replace(&mut self.last, next);
            // The points at or after the end of the span end the last interval only.
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
