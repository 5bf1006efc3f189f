//! A sensor: a quantity of the plant as seen by an analogue-to-digital converter.

use crate::noise::{Drift, Random, Resonance};
use crate::plant::{Plant, Var};

/// Quantity that a sensor measures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// A quantity of the plant.
    Var(Var),
    /// The position of a valve by its index, in %.
    Position(usize),
}

/// Vibration or acoustics on top of a fast sensor.
#[derive(Clone, Debug)]
struct Tremor {
    resonance: Resonance,
    quiet: f64,
    driver: Var,
    gain: f64,
}

/// Quantised sensor. Its engineering value is `code · lsb + offset`, computed in f64 and rounded to f32.
#[derive(Clone, Debug)]
pub(crate) struct Sensor {
    input: Input,
    gain: f64,
    bias: f64,
    /// Fraction of the difference to the input that one sample closes; small for a slow probe.
    follow: f64,
    followed: Option<f64>,
    drift: Drift,
    tremor: Option<Tremor>,
    noise: f64,
    lsb: f64,
    offset: f64,
    code_max: u32,
    bits: u32,
    period_s: f64,
}

/// Sample of a sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) code: u32,
    pub(crate) value: f32,
}

impl Sensor {
    /// Returns a sensor over a range, of 12 or 16 bits, sampled every `period_s`. The step is the next 1, 2 or 5
    /// times a power of ten (as in converters with a calibrated range) that covers the range.
    pub(crate) fn new(input: Input, bits: u32, low: f64, high: f64, period_s: f64, random: &mut Random) -> Self {
        let fine = (high - low) / f64::from((1u32 << bits) - 1);
        let decade = 10f64.powf(fine.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|s| s * decade >= fine * 0.999_999).unwrap_or(10.0);
        // Round through text, so that the step is the double nearest to its decimal.
        let lsb: f64 = format!("{:.3e}", step * decade).parse().unwrap_or(step * decade);
        let offset: f64 = format!("{:.9e}", (low / lsb).round() * lsb).parse().unwrap_or(low);
        Sensor {
            input,
            gain: 1.0,
            bias: 0.0,
            follow: 1.0,
            followed: None,
            drift: Drift::new(random.between(1.0, 3.0) * lsb, random.between(20.0, 90.0), period_s),
            tremor: None,
            noise: random.between(2.1, 3.4) * lsb,
            lsb,
            offset,
            code_max: (1 << bits) - 1,
            bits,
            period_s,
        }
    }

    /// Gives it a step from a calibration sheet instead of a round one.
    pub(crate) fn calibrated(mut self, random: &mut Random) -> Self {
        let factor = random.between(0.97, 1.03);
        let (lsb, offset) = (self.lsb * factor, self.offset * factor);
        // Calibration sheets have six digits.
        self.noise *= factor;
        self.lsb = format!("{lsb:.5e}").parse().unwrap_or(lsb);
        self.offset = format!("{offset:.5e}").parse().unwrap_or(offset);
        self
    }

    /// Makes it measure `gain · input + bias` instead of the input itself.
    pub(crate) fn scaled(mut self, gain: f64, bias: f64) -> Self {
        (self.gain, self.bias) = (gain, bias);
        self
    }

    /// Makes it follow its input with a time constant.
    pub(crate) fn slow(mut self, time_constant_s: f64) -> Self {
        self.follow = (self.period_s / time_constant_s).min(1.0);
        self
    }

    /// Adds ringing at a frequency with amplitude `quiet + gain · driver`, in its own unit.
    pub(crate) fn ringing(mut self, frequency_hz: f64, quiet: f64, driver: Var, gain: f64) -> Self {
        let resonance = Resonance::new(frequency_hz, frequency_hz * 0.35, self.period_s);
        self.tremor = Some(Tremor { resonance, quiet, driver, gain });
        self
    }

    /// Returns the coefficients of the polynomial from code to engineering value.
    pub(crate) fn polynomial(&self) -> [f64; 2] {
        [self.offset, self.lsb]
    }

    /// Returns the bits of its converter.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the engineering value of a code. Where offset and code cancel, it is exactly zero: the remaining
    /// rounding error would print as fifteen digits.
    pub(crate) fn value(&self, code: u32) -> f32 {
        let value = f64::from(code) * self.lsb + self.offset;
        if value.abs() < self.lsb * 1e-6 { 0.0 } else { value as f32 }
    }

    /// Takes a sample between two steps of the plant: `part` 0 is the step before, 1 this one. `push` is added to the
    /// signal, as a fraction of full scale (for a spike; otherwise 0).
    pub(crate) fn sample(&mut self, plant: &Plant, part: f64, push: f64, random: &mut Random) -> Sample {
        let at = |var: Var| {
            let (a, b) = (plant.before[var as usize], plant.vars[var as usize]);
            a + (b - a) * part
        };
        let input = match self.input {
            Input::Var(var) => at(var),
            Input::Position(index) => plant.valves[index].position() * 100.0,
        };
        let followed = self.followed.unwrap_or(input);
        let followed = followed + (input - followed) * self.follow;
        self.followed = Some(followed);
        let mut signal = self.gain * followed + self.bias + self.drift.step(random);
        if let Some(tremor) = &mut self.tremor {
            let size = tremor.quiet + tremor.gain * at(tremor.driver);
            signal += size * tremor.resonance.step(random);
        }
        signal += self.noise * random.normal() + push * self.lsb * f64::from(self.code_max);
        let code = ((signal - self.offset) / self.lsb).round().clamp(0.0, f64::from(self.code_max)) as u32;
        Sample { code, value: self.value(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_on_the_grid_with_at_least_two_steps_of_noise() {
        let plant = Plant::new(1, -500_000);
        let mut random = Random::new(1, 1);
        for (bits, calibrated) in [(12, false), (16, false), (12, true), (16, true)] {
            let mut sensor = Sensor::new(Input::Var(Var::NitrogenP), bits, -1.0, 25.0, 0.001, &mut random);
            if calibrated {
                sensor = sensor.calibrated(&mut random);
            }
            let [offset, lsb] = sensor.polynomial();
            let codes: Vec<f64> = (0..20_000)
                .map(|_| {
                    let sample = sensor.sample(&plant, 1.0, 0.0, &mut random);
                    assert!(sample.code < 1 << bits);
                    let exact = f64::from(sample.code) * lsb + offset;
                    assert!(sample.value == exact as f32 || exact.abs() < lsb * 1e-6);
                    f64::from(sample.code)
                })
                .collect();
            // Differences remove the slow part.
            let square: f64 = codes.windows(2).map(|w| (w[1] - w[0]).powi(2)).sum();
            let rms = (square / (codes.len() - 1) as f64 / 2.0).sqrt();
            assert!((2.0..4.5).contains(&rms), "{bits} bits: {rms}");
        }
    }

    #[test]
    fn round_steps_print_as_short_decimals() {
        let mut random = Random::new(1, 1);
        let sensor = Sensor::new(Input::Var(Var::LoxTankP), 12, -0.5, 9.5, 0.04, &mut random);
        assert_eq!(sensor.polynomial(), [-0.5, 0.0025]);
        assert_eq!(sensor.value(1924).to_string(), "4.31");
    }
}
