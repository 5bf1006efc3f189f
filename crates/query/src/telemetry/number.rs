//! Arithmetic of the functions for telemetry.

use std::ops::Range;

use crate::functions::float::Float;

/// The instants `start`, `start + step_ns`, … before the end of a span of time.
#[derive(Clone, Debug)]
pub(crate) struct Instants {
    pub(crate) span: Range<i64>,
    pub(crate) step_ns: u64,
}

impl Instants {
    /// Returns their number.
    pub(crate) fn count(&self) -> u64 {
        self.span.end.abs_diff(self.span.start).div_ceil(self.step_ns)
    }

    /// Returns an instant.
    pub(crate) fn at(&self, index: u64) -> i64 {
        self.span.start.saturating_add_unsigned(index.saturating_mul(self.step_ns))
    }

    /// Returns the piece of time from an instant to the next one, or to the end of the span.
    pub(crate) fn piece(&self, instant: i64) -> Range<i64> {
        instant..instant.saturating_add_unsigned(self.step_ns).min(self.span.end)
    }
}

/// Returns a number, with the one NaN of queries for any other.
pub(crate) fn number_of(number: Option<f64>) -> Option<f64> {
    number.map(Float::with_one_nan)
}

/// Returns a number if it is finite.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

/// Returns a duration in seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns the number a share of the way from one to another, without overflow.
pub(crate) fn between(a: f64, b: f64, share: f64) -> f64 {
    let step = b - a;
    if step.is_finite() { a + step * share } else { a * (1.0 - share) + b * share }
}

/// Returns the number at an instant on the line between two others, which have different times.
pub(crate) fn line((from, a): (i64, f64), (to, b): (i64, f64), time: i64) -> f64 {
    between(a, b, time.abs_diff(from) as f64 / to.abs_diff(from) as f64)
}
