//! Overflow-free sums, for means.

/// Sum of finite numbers whose mean is finite even where the plain sum would overflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    value: f64,
    /// Whether `value` is scaled by [`Sum::SCALE`].
    is_scaled: bool,
}

impl Sum {
    /// Power of two that keeps a sum of any finite numbers from overflowing.
    const SCALE: f64 = 1.0 / (1u128 << 64) as f64;

    /// Returns the sum of `count` numbers with this mean.
    pub fn of_mean(mean: f64, count: u64) -> Sum {
        let value = mean * count as f64;
        if value.is_finite() {
            Sum { value, is_scaled: false }
        } else {
            Sum { value: mean * Sum::SCALE * count as f64, is_scaled: true }
        }
    }

    /// Returns the sum of a single number.
    #[inline]
    pub fn of(number: f64) -> Sum {
        Sum { value: number, is_scaled: false }
    }

    fn scaled(self) -> f64 {
        if self.is_scaled { self.value } else { self.value * Sum::SCALE }
    }

    /// Adds another sum.
    #[inline]
    pub fn add(&mut self, other: Sum) {
        let value = self.value + other.value;
        *self = if value.is_finite() && self.is_scaled == other.is_scaled {
            Sum { value, is_scaled: self.is_scaled }
        } else {
            Sum { value: self.scaled() + other.scaled(), is_scaled: true }
        };
    }

    /// Returns the mean of the `count` numbers in the sum.
    pub fn over(self, count: u64) -> f64 {
        let mean = self.value / count as f64;
        if self.is_scaled { mean / Sum::SCALE } else { mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(numbers: &[f64]) -> f64 {
        let mut sum = Sum::default();
        numbers.iter().for_each(|number| sum.add(Sum::of(*number)));
        sum.over(numbers.len() as u64)
    }

    #[test]
    fn a_mean_of_numbers_is_one_where_their_sum_is_none() {
        assert_eq!(mean(&[1e308; 10]), 1e308);
        assert_eq!(mean(&[f64::MAX, f64::MAX, -f64::MAX, -f64::MAX]), 0.0);
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(mean(&[5e-324, 5e-324]), 5e-324);
        let mut sum = Sum::of_mean(1e308, 1 << 40);
        sum.add(Sum::of_mean(-1e308, 1 << 40));
        sum.add(Sum::of(2f64.powi(100)));
        assert_eq!((sum.over(1), Sum::of_mean(1e308, 1 << 40).over(1 << 40)), (2f64.powi(100), 1e308));
    }
}
