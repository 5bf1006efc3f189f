//! Arithmetic of the functions for telemetry.

use crate::functions::float::Float;

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
