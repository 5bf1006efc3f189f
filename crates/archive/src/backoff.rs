//! Growing pauses between attempts.

use std::time::Duration;

/// Bounds of pauses.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// First pause.
    pub min: Duration,
    /// Longest pause.
    pub max: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { min: Duration::from_millis(100), max: Duration::from_secs(30) }
    }
}

/// Pauses that double, each shortened at random by up to a half, so that followers do not all return at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pauses: Pauses,
    attempts: u32,
}

impl Backoff {
    pub(crate) fn new(pauses: Pauses) -> Backoff {
        Backoff { pauses, attempts: 0 }
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.pauses.min.saturating_mul(1 << self.attempts.min(16)).min(self.pauses.max);
        self.attempts += 1;
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Begins again with the first pause.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_max() {
        let Pauses { min, max } = Pauses::default();
        let mut backoff = Backoff::new(Pauses::default());
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= min / 2 && pauses[0] <= min);
        assert!(pauses[4] >= min * 8 && pauses[4] <= min * 16);
        assert!(pauses[10..].iter().all(|pause| *pause >= max / 2 && *pause <= max));
    }
}
