//! Random numbers that are identical on every machine for a seed, and noise generators based on them.

/// Standard deviation of a 64-bit population count with one count of uniform dither.
const POPULATION_RMS: f64 = 4.010_403_138_836_439; // sqrt(64/4 + 1/12)

/// Counter-based generator (SplitMix64): its only state is a counter, so streams never share a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator of one stream of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Random(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Random(mixed.bits() ^ stream)
    }

    /// Returns 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform number from `low` to `high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns a normal number, mean 0, rms 1: the binomial count of 64 bits plus dither, which needs no `ln` or
    /// `cos` and is therefore bit-identical everywhere.
    pub(crate) fn normal(&mut self) -> f64 {
        let count = self.bits().count_ones() as f64 - 32.0;
        (count + self.uniform() - 0.5) / POPULATION_RMS
    }

    /// Returns an exponential number with a mean, by inversion.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

/// Slow wander with a time constant (Ornstein–Uhlenbeck): it never repeats and stays bounded in practice.
#[derive(Clone, Debug)]
pub(crate) struct Drift {
    value: f64,
    keep: f64,
    kick: f64,
}

impl Drift {
    /// Returns a wander of an rms, with a time constant, stepped every `period_s`.
    pub(crate) fn new(rms: f64, time_constant_s: f64, period_s: f64) -> Self {
        let keep = 1.0 - (period_s / time_constant_s).min(1.0);
        Drift { value: 0.0, keep, kick: rms * (1.0 - keep * keep).sqrt() }
    }

    /// Returns the next value.
    pub(crate) fn step(&mut self, random: &mut Random) -> f64 {
        self.value = self.value * self.keep + self.kick * random.normal();
        self.value
    }
}

/// Resonance of a pipe or structure, driven by white noise: a second-order recurrence of rms 1.
#[derive(Clone, Debug)]
pub(crate) struct Resonance {
    last: [f64; 2],
    feed: [f64; 2],
    kick: f64,
}

impl Resonance {
    /// Returns a resonance at a frequency, with the decay of its ringing in 1/s, sampled every `period_s`.
    pub(crate) fn new(frequency_hz: f64, decay_per_s: f64, period_s: f64) -> Self {
        let r = (-decay_per_s * period_s).exp();
        let feed = [2.0 * r * (std::f64::consts::TAU * frequency_hz * period_s).cos(), -r * r];
        // Variance of a stationary AR(2) process driven by unit noise.
        let (a, b) = (feed[0], feed[1]);
        let variance = (1.0 - b) / ((1.0 + b) * ((1.0 - b) * (1.0 - b) - a * a));
        Resonance { last: [0.0; 2], feed, kick: 1.0 / variance.sqrt() }
    }

    /// Returns the next value.
    pub(crate) fn step(&mut self, random: &mut Random) -> f64 {
        let next = self.feed[0] * self.last[0] + self.feed[1] * self.last[1] + self.kick * random.normal();
        self.last = [next, self.last[0]];
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rms(values: impl Iterator<Item = f64>) -> f64 {
        let (sum, n) = values.fold((0.0, 0u32), |(s, n), v| (s + v * v, n + 1));
        (sum / n as f64).sqrt()
    }

    #[test]
    fn noises_have_their_rms() {
        let mut r = Random::new(7, 1);
        let normal = rms((0..100_000).map(|_| r.normal()));
        assert!((normal - 1.0).abs() < 0.02, "{normal}");
        let mut resonance = Resonance::new(83.0, 40.0, 1e-3);
        let ringing = rms((0..200_000).map(|_| resonance.step(&mut r)));
        assert!((ringing - 1.0).abs() < 0.1, "{ringing}");
        let mut drift = Drift::new(3.0, 2.0, 0.01);
        let wander = rms((0..400_000).map(|_| drift.step(&mut r)));
        assert!((wander - 3.0).abs() < 0.4, "{wander}");
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut r = Random::new(seed, stream);
            (0..8).map(|_| r.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(0, 1), draw(1, 0));
    }
}
