//! Records of eight vehicle streams, those of RealDB's benchmark: a car that idles, drives and stops, its values in
//! the steps of SAE J1939-71, each parameter at the rate at which a car sends it.
//!
//! The statistics are those of a recording of a car's CAN bus (CSS Electronics, file 11111111/00000012/00000001.MF4
//! of their api-examples, MIT): engine speed sent every 10 ms and updated every 30 ms, idle at 650 rpm with steps of
//! 0.25 to 1 rpm, fuel rate 2.45 to 2.85 l/h at idle, 13.2 to 13.5 V; stamps in units of 50 µs that lie 1 ms off
//! their slot in a fifth of the messages at 10 ms, in two fifths at 50 ms and in a twentieth at 100 ms, and otherwise
//! at most 0.15 ms.

use fastrand::Rng;

use super::course::{BEGIN_NS, CourseStream, CourseWriter, Kind};

/// Clock unit of the logger.
const TICK_NS: i64 = 50_000;

struct Parameter {
    name: &'static str,
    kind: Kind,
    period_ms: i64,
    /// Fraction of messages that are a slot early, and equally of those that are late.
    off_slot: f64,
    value: fn(&Car) -> f64,
}

const PARAMETERS: [Parameter; 8] = [
    Parameter { name: "RPM", kind: Kind::F32, period_ms: 10, off_slot: 0.1, value: |car| car.shown_rpm },
    Parameter {
        name: "FuelRate",
        kind: Kind::F32,
        period_ms: 100,
        off_slot: 0.025,
        value: |car| step(car.fuel_lph, 0.05),
    },
    Parameter {
        name: "AccelPedalPosition",
        kind: Kind::F32,
        period_ms: 50,
        off_slot: 0.2,
        value: |car| step(car.pedal_pct, 0.4),
    },
    Parameter {
        name: "BatteryVolts",
        kind: Kind::F32,
        period_ms: 1000,
        off_slot: 0.0,
        value: |car| step(car.volts, 0.05),
    },
    Parameter {
        name: "FuelEcon",
        kind: Kind::F32,
        period_ms: 100,
        off_slot: 0.025,
        value: |car| step(car.economy_kmpl(), 1.0 / 512.0),
    },
    Parameter {
        name: "Speed",
        kind: Kind::F32,
        period_ms: 100,
        off_slot: 0.02,
        value: |car| step(car.speed_kmph, 1.0 / 256.0),
    },
    Parameter {
        name: "VehicleStatus",
        kind: Kind::Bool,
        period_ms: 1000,
        off_slot: 0.0,
        value: |car| f64::from(car.driving),
    },
    Parameter {
        name: "HardAccelEvent",
        kind: Kind::Bool,
        period_ms: 100,
        off_slot: 0.02,
        value: |car| f64::from(car.acceleration_mps2 > 2.2),
    },
];

fn step(value: f64, resolution: f64) -> f64 {
    f64::from(((value / resolution).round() * resolution) as f32)
}

/// Returns its streams.
pub(super) fn streams() -> Vec<CourseStream> {
    let stream = |(table, p): (usize, &Parameter)| CourseStream {
        name: p.name.into(),
        table: table as u32,
        kinds: vec![p.kind],
    };
    PARAMETERS.iter().enumerate().map(stream).collect()
}

struct Car {
    driving: bool,
    target_kmph: f64,
    /// Time until the current phase of driving or standing ends, in seconds.
    left_s: f64,
    speed_kmph: f64,
    acceleration_mps2: f64,
    pedal_pct: f64,
    rpm: f64,
    shown_rpm: f64,
    fuel_lph: f64,
    volts: f64,
}

impl Car {
    fn economy_kmpl(&self) -> f64 {
        if self.speed_kmph < 0.5 { 0.0 } else { (self.speed_kmph / self.fuel_lph.max(0.1)).min(125.5) }
    }

    /// Advances by ten milliseconds.
    fn tick(&mut self, n: i64, random: &mut Rng) {
        self.left_s -= 0.01;
        if self.left_s <= 0.0 {
            let standing = self.driving && random.f64() < 0.3;
            self.driving = !standing;
            self.target_kmph = if standing { 0.0 } else { random.f64() * 110.0 + 10.0 };
            self.left_s = if standing { 20.0 + random.f64() * 120.0 } else { 15.0 + random.f64() * 180.0 };
        }
        let error = self.target_kmph - self.speed_kmph;
        let wanted = (error * 0.08).clamp(-3.0, 2.6);
        self.acceleration_mps2 += (wanted - self.acceleration_mps2) * 0.02;
        self.speed_kmph = (self.speed_kmph + self.acceleration_mps2 * 0.036).max(0.0);
        if self.target_kmph == 0.0 && self.speed_kmph < 0.3 {
            (self.speed_kmph, self.acceleration_mps2) = (0.0, 0.0);
        }
        let load = (self.acceleration_mps2 * 28.0 + self.speed_kmph * 0.22).clamp(0.0, 100.0);
        let foot = if self.speed_kmph == 0.0 && self.target_kmph == 0.0 { 0.0 } else { load };
        self.pedal_pct += (foot - self.pedal_pct) * 0.05;
        if self.pedal_pct < 0.2 {
            self.pedal_pct = 0.0;
        }
        let gear = (self.speed_kmph / 18.0).floor().clamp(0.0, 5.0);
        let driven = self.speed_kmph * 110.0 / (gear + 1.0);
        self.rpm += (driven.max(650.0) - self.rpm) * 0.05;
        // The engine's controller updates its message every third time.
        if n % 3 == 0 {
            let noise = if self.speed_kmph == 0.0 { 0.8 } else { 4.0 };
            self.shown_rpm = step(self.rpm + normal(random) * noise, if self.speed_kmph == 0.0 { 0.25 } else { 0.125 });
        }
        if n % 10 == 0 {
            self.fuel_lph = 2.65 + self.pedal_pct * 0.25 + normal(random) * 0.08;
            self.volts += (13.35 - self.volts) * 0.02 + normal(random) * 0.012;
        }
    }
}

/// Returns an approximately normal deviate.
fn normal(random: &mut Rng) -> f64 {
    (0..6).map(|_| random.f64()).sum::<f64>() * 1.414 - 4.243
}

/// Writes records until the course is complete. They are ordered by time, strictly within each stream.
pub(super) fn write(out: &mut CourseWriter) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(2010);
    let mut car = Car {
        driving: false,
        target_kmph: 0.0,
        left_s: 127.0,
        speed_kmph: 0.0,
        acceleration_mps2: 0.0,
        pedal_pct: 0.0,
        rpm: 650.0,
        shown_rpm: 650.0,
        fuel_lph: 2.65,
        volts: 13.35,
    };
    // Messages of a slot, and those that were delayed into the next.
    let mut waiting: Vec<(i64, usize, f64)> = Vec::new();
    for n in 0.. {
        car.tick(n, &mut random);
        for (stream, parameter) in PARAMETERS.iter().enumerate() {
            let slots = parameter.period_ms / 10;
            if n % slots != stream as i64 % slots {
                continue;
            }
            let off = match random.f64() {
                x if x < parameter.off_slot => -20,
                x if x < 2.0 * parameter.off_slot => 20,
                _ => 0,
            };
            let jitter = random.i64(0..4) - random.i64(0..4);
            let ticks = n * 200 + 40 + stream as i64 * 7 + off + jitter;
            waiting.push((BEGIN_NS + ticks * TICK_NS, stream, (parameter.value)(&car)));
        }
        waiting.sort_unstable_by_key(|&(time_ns, stream, _)| (time_ns, stream));
        // Messages that one of the next slot may still precede are kept back.
        let until = BEGIN_NS + (n * 200 + 200) * TICK_NS;
        let ready = waiting.partition_point(|&(time_ns, ..)| time_ns < until);
        for (time_ns, stream, value) in waiting.drain(..ready) {
            if out.left() == 0 {
                return Ok(());
            }
            out.frame(stream, time_ns, &[value])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::*;

    #[test]
    fn records_are_in_order_at_their_rates_and_in_their_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vehicle");
        let mut out = CourseWriter::create(&path, &streams(), 200_000).unwrap();
        write(&mut out).unwrap();
        out.finish().unwrap();
        let course = Course::read(&path).unwrap();
        let mut last = [i64::MIN; 8];
        let mut newest = i64::MIN;
        let (mut count, mut held, mut previous) = ([0u64; 8], 0u64, f64::NAN);
        for frame in course.iter() {
            assert!(frame.time_ns >= newest && frame.time_ns > last[frame.stream], "order");
            (newest, last[frame.stream]) = (frame.time_ns, frame.time_ns);
            count[frame.stream] += 1;
            let value = frame.cells().next().unwrap();
            if frame.stream == 0 {
                assert_eq!(value * 8.0, (value * 8.0).round());
                held += u64::from(value == previous);
                previous = value;
            }
        }
        let seconds = (newest - BEGIN_NS) as f64 / 1e9;
        for (parameter, count) in PARAMETERS.iter().zip(count) {
            let rate = 1000.0 / parameter.period_ms as f64;
            assert!((count as f64 / seconds - rate).abs() < 0.02 * rate, "{}: {count} in {seconds} s", parameter.name);
        }
        let share = held as f64 / count[0] as f64;
        assert!((0.6..0.8).contains(&share), "engine speed is held in {share} of its messages");
    }
}
