//! Search for the grid that a channel's values lie on: sensor values are often scaled integers.
//!
//! Runs once for each channel, and again when the grid no longer fits. A wrong grid costs bytes but never changes
//! values, because the encoder checks every value it rebuilds.

use crate::codec::float::Float;
use crate::codec::quantised::ValueGrid;

/// Number of values examined.
const SAMPLE: usize = 1_024;

/// Maximum number of steps between the smallest and the largest value.
const STEPS_MAX: f64 = (1u64 << 31) as f64;

/// Successive factors for the uncertainty of the values until a step is found: 1, 8, 64 ulps in total.
const SLACK: [f64; 3] = [1.0, 8.0, 8.0];

/// Steps searched in each direction for an offset that is a short decimal: the range of a 16-bit converter.
const OFFSET_SEARCH: i64 = 65_536;

/// Returns a grid for the values, or `None` if they lie on no grid that is much coarser than their type.
pub(crate) fn learn<F: Float>(values: &[F]) -> Option<ValueGrid> {
    let mut distinct: Vec<f64> =
        values.iter().map(|v| v.wide()).filter(|v| v.is_finite()).take(SAMPLE).map(|v| v + 0.0).collect();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    let (first, last) = (*distinct.first()?, *distinct.last()?);
    if distinct.len() < 2 {
        return None;
    }
    let mut sample = DistinctValues { ulp: F::ulp(first.abs().max(last.abs())), first, distinct };
    // A calibration may pass through larger magnitudes than its result, and lose more than the result's last place
    // there.
    let step = SLACK.iter().find_map(|slack| {
        sample.ulp *= slack;
        sample.step()
    })?;
    let mut best: Option<(usize, ValueGrid)> = None;
    // Returns whether the grid misses no value. The search then stops, as it takes milliseconds.
    let mut consider = |grid: ValueGrid| {
        let misses = sample.distinct.iter().filter(|v| !grid.rebuilds(F::narrow(**v))).count();
        if best.is_none_or(|(fewest, _)| misses < fewest) {
            best = Some((misses, grid));
        }
        misses == 0
    };
    let found = sample.divisor(&step).is_some_and(|n| consider(ValueGrid::Divide { n }))
        || sample.through_zero::<F>(&step).into_iter().any(&mut consider);
    if !found {
        sample.with_offset::<F>(&step, &mut consider);
    }
    best.map(|(_, grid)| grid)
}

/// Distinct finite values in ascending order.
struct DistinctValues {
    distinct: Vec<f64>,
    first: f64,
    /// Distance between neighbouring floats at the largest magnitude: the uncertainty of each value.
    ulp: f64,
}

/// Distance between grid points, with its uncertainty.
struct Step {
    size: f64,
    error: f64,
}

impl DistinctValues {
    fn largest(&self) -> f64 {
        self.first.abs().max(self.distinct.last().map_or(0.0, |v| v.abs()))
    }

    /// Returns the approximate greatest common divisor of all differences. Small differences come first, so that the
    /// precision of the step improves as the quotients grow.
    fn step(&self) -> Option<Step> {
        let mut differences: Vec<f64> = self.distinct.windows(2).map(|w| w[1] - w[0]).collect();
        differences.sort_by(f64::total_cmp);
        let mut step = Step { size: *differences.first()?, error: self.ulp };
        for difference in differences {
            step.divide(difference, self.ulp)?;
        }
        // Quotients over the whole range are largest, and determine the step most precisely.
        for value in &self.distinct[1..] {
            step.divide(value - self.first, self.ulp)?;
        }
        let steps = (self.distinct.last()? - self.first) / step.size;
        (steps < STEPS_MAX && step.size > 4.0 * self.ulp).then_some(step)
    }

    /// Returns n if every value is an integer over n: a power of ten, or the inverse of the step.
    fn divisor(&self, step: &Step) -> Option<f64> {
        let near = |x: f64, tolerance: f64| (x - x.round()).abs() <= tolerance.min(0.01);
        let powers = (0..=9).map(|d| 10f64.powi(d));
        let inverse = (1.0 / step.size).round();
        powers.chain([inverse]).find(|n| {
            let multiple = step.size * n;
            *n >= 1.0
                && *n <= STEPS_MAX
                && self.largest() * n < (1u64 << 51) as f64
                && multiple > 0.5
                && near(multiple, step.error * n * 2.0 + multiple * 1e-9)
                && self.distinct.iter().all(|v| near(v * n, 2.0 * self.ulp * n))
        })
    }

    /// Returns grids through zero, for values that are all `k · lsb`. The rounding of the values bounds lsb.
    fn through_zero<F: Float>(&self, step: &Step) -> Vec<ValueGrid> {
        let k = |v: f64| (v / step.size).round();
        if self.largest() / step.size >= STEPS_MAX {
            return Vec::new();
        }
        let mut step = Step { size: step.size, error: step.error };
        let mut magnitudes: Vec<f64> = self.distinct.iter().map(|v| v.abs()).filter(|v| *v > 0.0).collect();
        magnitudes.sort_by(f64::total_cmp);
        if magnitudes.iter().any(|v| {
            let before = k(*v);
            step.divide(*v, self.ulp).is_none() || (step.size * before - v).abs() > step.size / 2.0
        }) {
            return Vec::new();
        }
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for v in &magnitudes {
            let (steps, half) = ((v / step.size).round(), F::ulp(*v) / 2.0);
            low = low.max((v - half) / steps);
            high = high.min((v + half) / steps);
        }
        if low > high {
            // No single step fits every rounding: leave the rest to corrections.
            return vec![ValueGrid::Multiply { offset: 0.0, lsb: step.size }];
        }
        let middle = low + (high - low) / 2.0;
        let single = f64::from(middle as f32);
        let mut grids = Vec::new();
        grids.extend(shortest_decimal(low, high));
        let inverse = 1.0 / (1.0 / middle).round();
        grids.extend((low <= inverse && inverse <= high).then_some(inverse));
        grids.extend((low <= single && single <= high).then_some(single));
        grids.push(middle);
        grids.into_iter().map(|lsb| ValueGrid::Multiply { offset: 0.0, lsb }).collect()
    }

    /// Proposes grids with an offset: the step with the smallest spread, then an offset within the remaining spread.
    /// Stops at the first grid that `consider` finds exact.
    fn with_offset<F: Float>(&self, step: &Step, consider: &mut impl FnMut(ValueGrid) -> bool) {
        let points: Vec<(f64, f64)> = self
            .distinct
            .iter()
            .map(|v| ((v - self.first) / step.size).round())
            .zip(self.distinct.iter().copied())
            .collect();
        let spread = |lsb: f64| {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for (k, v) in &points {
                let rest = v - self.first - k * lsb;
                low = low.min(rest);
                high = high.max(rest);
            }
            (low, high)
        };
        let (mut low, mut high) = (step.size - 2.0 * step.error, step.size + 2.0 * step.error);
        for _ in 0..60 {
            let third = (high - low) / 3.0;
            let width = |lsb: f64| {
                let (l, h) = spread(lsb);
                h - l
            };
            if width(low + third) < width(high - third) {
                high -= third;
            } else {
                low += third;
            }
        }
        let sharp = low + (high - low) / 2.0;
        let steps = points.last().map_or(1.0, |(k, _)| k.max(1.0));
        let slack = (self.ulp / steps).max(F::ulp(sharp).min(step.error));
        let single = f64::from(sharp as f32);
        let mut lsbs: Vec<f64> = shortest_decimal(sharp - slack, sharp + slack).into_iter().collect();
        lsbs.extend(((single - sharp).abs() <= slack).then_some(single));
        lsbs.push(sharp);
        for lsb in lsbs {
            let (low, high) = spread(lsb);
            let middle = self.first + low + (high - low) / 2.0;
            if F::SIZE == 8 {
                // Doubles are so precise that a short decimal among the offsets cannot be a coincidence.
                if self.decimal_offsets(lsb, middle).any(|offset| consider(ValueGrid::Multiply { offset, lsb })) {
                    return;
                }
            }
            let half = (self.ulp / 2.0 - (high - low) / 2.0).max(0.0);
            let short = shortest_decimal(middle - half, middle + half);
            if short.into_iter().chain([middle, self.first]).any(|offset| consider(ValueGrid::Multiply { offset, lsb }))
            {
                return;
            }
        }
    }

    /// Returns the grid points near `middle` that are decimals with few digits, fewest digits first.
    fn decimal_offsets(&self, lsb: f64, middle: f64) -> impl Iterator<Item = f64> {
        let mut found: Vec<f64> = Vec::new();
        for digits in 0..5 {
            let scale = 10f64.powi(digits);
            let tolerance = (4.0 * self.ulp * scale).max(1e-13);
            for steps in -OFFSET_SEARCH..=OFFSET_SEARCH {
                let scaled = (middle - steps as f64 * lsb) * scale;
                let nearest = scaled.round();
                if (scaled - nearest).abs() <= tolerance {
                    found.push(nearest / scale);
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        // If the step itself is a short decimal, every grid point is one. Those near zero are the shortest, and
        // counting the digits of all others would take longer than the rest of learning.
        if found.len() > 64 {
            found.select_nth_unstable_by(64, |a, b| a.abs().total_cmp(&b.abs()));
            found.truncate(64);
        }
        let mut found: Vec<(usize, f64)> =
            found.into_iter().map(|offset| (format!("{offset:e}").len(), offset)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.abs().total_cmp(&b.1.abs())));
        found.into_iter().take(4).map(|(_, offset)| offset)
    }
}

impl Step {
    /// Refines the step with one more difference, whose uncertainty is `ulp`. Returns `None` if nothing coarser than
    /// the uncertainty divides both.
    fn divide(&mut self, difference: f64, ulp: f64) -> Option<()> {
        let (mut a, mut b, mut b_error) = (difference, self.size, self.error);
        let mut a_error = ulp;
        loop {
            let quotient = (a / b).round();
            let error = a_error + quotient * b_error;
            // Values whose distance overflows have no divisor.
            if error * 4.0 > b || error.is_nan() || b.is_nan() {
                return None;
            }
            let rest = (a - quotient * b).abs();
            if rest <= error {
                let sharper = a_error / quotient.max(1.0);
                if quotient >= 1.0 && sharper < b_error {
                    (b, b_error) = (a / quotient, sharper);
                }
                (self.size, self.error) = (b, b_error);
                return Some(());
            }
            (a, a_error, b, b_error) = (b, b_error, rest, error);
        }
    }
}

/// Returns the number with the fewest decimal digits within the bounds.
fn shortest_decimal(low: f64, high: f64) -> Option<f64> {
    if low <= 0.0 && high >= 0.0 {
        return Some(0.0);
    }
    let middle = low + (high - low) / 2.0;
    (0..12).find_map(|digits| {
        let rounded: f64 = format!("{middle:.digits$e}").parse().ok()?;
        (low <= rounded && rounded <= high).then_some(rounded)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes() -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(1);
        (0..1_024).map(|i| (1_800 + i / 8 + random.i32(-4..=4)) as f64).collect()
    }

    #[test]
    fn known_calibrations_are_found_exactly() {
        let exact = |values: Vec<f64>| {
            let grid = learn(&values).expect("a grid");
            values.iter().filter(|v| !grid.rebuilds(**v)).count()
        };
        assert_eq!(exact(codes().iter().map(|c| c / 10.0).collect()), 0, "decimal");
        assert_eq!(exact(codes().iter().map(|c| c / 16.0).collect()), 0, "binary fraction");
        assert_eq!(exact(codes().iter().map(|c| -200.0 + c * 0.0076).collect()), 0, "polynomial");
        assert_eq!(exact(codes().iter().map(|c| -1_250.0 + (c + 30_000.0) * 0.038_147).collect()), 0, "cancellation");
        assert_eq!(exact(codes().iter().map(|c| 48.0 + c * 1e-7).collect::<Vec<_>>()), 0, "fine decimal");
    }

    #[test]
    fn single_precision_readings_are_found() {
        let exact = |scale: &dyn Fn(f64) -> f32| {
            let values: Vec<f32> = codes().iter().map(|c| scale(*c)).collect();
            let grid = learn(&values).expect("a grid");
            values.iter().filter(|v| !grid.rebuilds(**v)).count()
        };
        assert_eq!(exact(&|c| (c * 250.0 / 4_095.0) as f32), 0);
        assert_eq!(exact(&|c| c as f32 * 0.061_05f32), 0);
        assert_eq!(exact(&|c| (c * 0.025 - 12.5) as f32), 0);
        assert!(exact(&|c| c as f32 * 0.061_05f32 - 10.0f32) <= 200);
    }

    #[test]
    fn what_lies_on_no_grid_is_given_up() {
        let mut random = fastrand::Rng::with_seed(2);
        let noise: Vec<f64> = (0..1_024).map(|_| random.f64()).collect();
        assert!(learn(&noise).is_none());
        assert!(learn(&[f64::NAN, f64::INFINITY]).is_none());
        assert!(learn(&[1.5f64; 20]).is_none());
        assert!(learn(&[f64::MAX, f64::MIN, 1.0, 5e-324]).is_none());
        assert!(learn(&[-1e308, 1e308]).is_none());
        assert!(learn(&[-1e308, -1.0, 0.0, 1.0, 1e308]).is_none());
    }
}
