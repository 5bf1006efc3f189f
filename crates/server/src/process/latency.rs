//! Quantiles of the newest latencies.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// A bounded number of the newest latencies.
#[derive(Debug)]
pub struct Latencies {
    newest: Mutex<VecDeque<Duration>>,
    keep: usize,
}

/// Quantiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Latencies {
    /// Makes a collection of the newest `keep` latencies.
    pub fn new(keep: usize) -> Self {
        Latencies { newest: Mutex::new(VecDeque::with_capacity(keep)), keep }
    }

    /// Adds a latency, dropping the oldest if full.
    pub fn add(&self, latency: Duration) {
        let mut newest = self.newest.lock();
        if newest.len() == self.keep {
            newest.pop_front();
        }
        newest.push_back(latency);
    }

    /// Returns the newest latency in milliseconds, rounded to a hundredth.
    pub fn last_ms(&self) -> Option<f64> {
        self.newest.lock().back().map(|l| (l.as_secs_f64() * 1e5).round() / 1e2)
    }

    /// Returns the quantiles; zeros if there are no latencies.
    pub fn quantiles(&self) -> Quantiles {
        let mut sorted: Vec<Duration> = self.newest.lock().iter().copied().collect();
        sorted.sort_unstable();
        quantiles_ms(&sorted)
    }
}

/// Computes quantiles of ascending latencies by the nearest rank.
pub fn quantiles_ms(sorted: &[Duration]) -> Quantiles {
    let rank = |q: f64| match sorted.len() {
        0 => 0.0,
        n => sorted[((q * n as f64).ceil() as usize).clamp(1, n) - 1].as_secs_f64() * 1e3,
    };
    Quantiles { p50: rank(0.5), p99: rank(0.99), max: rank(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_newest_by_nearest_rank() {
        let latencies = Latencies::new(100);
        assert_eq!(latencies.quantiles(), Quantiles::default());
        for ms in 1..=1100 {
            latencies.add(Duration::from_millis(ms));
        }
        assert_eq!(latencies.quantiles(), Quantiles { p50: 1050.0, p99: 1099.0, max: 1100.0 });
        assert_eq!(latencies.last_ms(), Some(1100.0));
    }
}
