//! Sums of floats of any magnitude. They are as exact as a compensated sum, and remain right when an intermediate sum
//! overflows.

/// Scale at which the sum of any possible number of products with durations stays finite: a power of two.
const SCALE: f64 = 1.0 / (1u128 << 127) as f64;

/// Numbers that are added at a time.
const LANES: usize = 8;
/// Numbers that are collected before they are added.
const BUFFERED: usize = 256;

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

    /// Adds numbers in an order of its own, several at a time.
    pub(crate) fn add_all(&mut self, numbers: impl Iterator<Item = f64>) {
        let mut numbers = numbers.fuse();
        let mut buffer = [0.0; BUFFERED];
        loop {
            let mut filled = 0;
            for (place, number) in buffer.iter_mut().zip(&mut numbers) {
                *place = number;
                filled += 1;
            }
            self.add_slice(&buffer[..filled]);
            if filled < BUFFERED {
                return;
            }
        }
    }

    /// Adds numbers as [`LargeSum::add_all`] does.
    pub(crate) fn add_slice(&mut self, numbers: &[f64]) {
        self.add_products_of(numbers, |_| 1.0);
    }

    /// Adds numbers times durations, several at a time.
    pub(crate) fn add_products(&mut self, numbers: &[f64], durations: &[f64]) {
        let count = numbers.len().min(durations.len());
        let durations = &durations[..count];
        self.add_products_of(&numbers[..count], |at| durations[at]);
    }

    #[inline(always)]
    fn add_products_of(&mut self, numbers: &[f64], duration: impl Fn(usize) -> f64) {
        let (mut sums, mut lost) = ([0.0f64; LANES], [0.0f64; LANES]);
        let (chunks, rest) = numbers.as_chunks::<LANES>();
        for (at, chunk) in chunks.iter().enumerate() {
            for lane in 0..LANES {
                // Knuth's sum of two, which needs no comparison.
                let (a, b) = (sums[lane], chunk[lane] * duration(at * LANES + lane));
                let sum = a + b;
                let of_b = sum - a;
                lost[lane] += (a - (sum - of_b)) + (b - of_b);
                sums[lane] = sum;
            }
        }
        let summed = numbers.len() - rest.len();
        // Where one of them overflowed, its error is no number.
        let from = if lost.iter().all(|lost| lost.is_finite()) { summed } else { 0 };
        if from > 0 {
            sums.iter().chain(&lost).for_each(|number| self.add(*number));
        }
        (from..numbers.len()).for_each(|at| self.add_product(numbers[at], duration(at)));
    }

    /// Adds the numbers of another sum.
    pub(crate) fn join(&mut self, other: &LargeSum) {
        let scaled = self.scaled + other.scaled;
        self.add(other.sum);
        self.lost += other.lost;
        self.scaled = scaled;
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
    fn many_numbers_at_a_time_are_summed_alike() {
        let near = |a: f64, b: f64| a == b || (a / b - 1.0).abs() < 1e-12;
        let small: Vec<f64> = (0..1_003).map(|n| f64::from(n % 7) * 0.1).collect();
        let cancelling: Vec<f64> = (0..1_000).map(|n| if n % 2 == 0 { 1e16 } else { -1e16 + 2.0 }).collect();
        let large: Vec<f64> = (0..1_000).map(|n| if n % 3 == 0 { 1e308 } else { -2e307 }).collect();
        for numbers in [&small[..], &small[..5], &[], &cancelling, &large] {
            let (mut each, mut all, mut joined) = (LargeSum::default(), LargeSum::default(), LargeSum::default());
            numbers.iter().for_each(|number| each.add(*number));
            all.add_all(numbers.iter().copied());
            for part in numbers.chunks(37) {
                let mut of_part = LargeSum::default();
                of_part.add_slice(part);
                joined.join(&of_part);
            }
            assert!(near(all.over(1_000.0), each.over(1_000.0)), "{all:?}, not {each:?}");
            assert!(near(joined.over(1_000.0), each.over(1_000.0)), "{joined:?}, not {each:?}");
        }
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
