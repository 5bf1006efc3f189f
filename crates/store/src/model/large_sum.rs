//! Sums of floats of any magnitude. They are as exact as a compensated sum, and remain right when an intermediate sum
//! overflows.

/// Scale at which the sum of any possible number of products with durations stays finite: a power of two.
const SCALE: f64 = 1.0 / (1u128 << 127) as f64;

/// Neumaier's compensated sum, together with the same sum of scaled numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LargeSum {
    sum: f64,
    /// Accumulated rounding error of `sum`.
    lost: f64,
    /// Scaled sum, used once `sum` is no longer finite.
    scaled: f64,
}

impl LargeSum {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: f64) {
        self.add_product(number, 1.0);
    }

    /// Adds a number times a duration.
    pub(crate) fn add_product(&mut self, number: f64, duration: f64) {
        let product = number * duration;
        let sum = self.sum + product;
        let (large, small) = if self.sum.abs() >= product.abs() { (self.sum, product) } else { (product, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
        self.scaled += number * SCALE * duration;
    }

    /// Returns the sum, or an infinity if it exceeds the range of `f64`.
    pub(crate) fn value(&self) -> f64 {
        self.over(1.0)
    }

    /// Returns the sum divided by `count`.
    pub(crate) fn over(&self, count: f64) -> f64 {
        let sum = self.sum + self.lost;
        if sum.is_finite() { sum / count } else { self.scaled / count / SCALE }
    }
}

/// Returns the value at `share` (0 to 1) of the way from `a` to `b` on a straight line.
pub(crate) fn on_way(a: f64, b: f64, share: f64) -> f64 {
    let step = b - a;
    // The difference of two numbers of opposite signs may overflow.
    if step.is_finite() { a + step * share } else { a * (1.0 - share) + b * share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_beyond_what_a_number_holds_are_right() {
        let mut sum = LargeSum::default();
        for number in [1e308, 1e308, -1e308, 1.5e308] {
            sum.add(number);
        }
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(sum.over(4.0), 6.25e307), "{sum:?}");
        sum.add(-1.5e308);
        assert!(near(sum.value(), 1e308), "{sum:?}");
        for _ in 0..3 {
            sum.add_product(1e308, 1e9);
        }
        assert_eq!(sum.value(), f64::INFINITY);
        assert_eq!((on_way(-1e308, 1e308, 0.5), on_way(1e308, -1e308, 1.0)), (0.0, -1e308));
    }

    #[test]
    fn small_numbers_are_summed_exactly() {
        let mut sum = LargeSum::default();
        for number in [1.0, 1e100, 1e-310, -1e100] {
            sum.add(number);
        }
        assert_eq!(sum.value(), 1.0);
    }
}
