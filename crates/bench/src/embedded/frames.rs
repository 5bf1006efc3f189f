//! Wide frames: 100 sensors every 40 ms, 12-bit codes in engineering units as f32, a slow process with mains hum and
//! noise of one and a half codes.

use fastrand::Rng;

use super::course::{BEGIN_NS, CourseStream, CourseWriter, Kind};

/// Number of channels in a frame.
pub(super) const CHANNELS: usize = 100;
/// Time between two frames.
pub(super) const PERIOD_NS: i64 = 40_000_000;

/// Returns its single stream.
pub(super) fn streams() -> Vec<CourseStream> {
    vec![CourseStream { name: "frames".into(), table: 0, kinds: vec![Kind::F32; CHANNELS] }]
}

/// Writes frames until the course is complete.
pub(super) fn write(out: &mut CourseWriter) -> anyhow::Result<()> {
    let mut sensors = Sensors::new();
    while out.left() > 0 {
        let (time_ns, cells) = sensors.next_frame();
        out.frame(0, time_ns, &cells)?;
    }
    Ok(())
}

/// Simulated values of the channels.
pub(super) struct Sensors {
    random: Rng,
    sensors: Vec<(f64, f64, f64)>,
    n: i64,
}

impl Sensors {
    pub(super) fn new() -> Sensors {
        let sensors = (0..CHANNELS)
            .map(|c| (700.0 + 25.0 * c as f64, 0.01 + 0.002 * c as f64, [0.0625, 0.05, 0.25, 0.1][c % 4]))
            .collect();
        Sensors { random: Rng::with_seed(40), sensors, n: 0 }
    }

    /// Returns the next frame and its time.
    pub(super) fn next_frame(&mut self) -> (i64, [f64; CHANNELS]) {
        let mut cells = [0.0; CHANNELS];
        let t = self.n as f64 * 0.04;
        for (cell, (level, rate, lsb)) in cells.iter_mut().zip(&self.sensors) {
            let process = 300.0 * (t * rate).sin() + 4.0 * (t * 7.0 * std::f64::consts::TAU).sin();
            let noise = (self.random.f64() + self.random.f64() + self.random.f64() - 1.5) * 3.0;
            let code = (level + process + noise).round().clamp(0.0, 4095.0);
            *cell = f64::from((code * lsb) as f32);
        }
        let jitter_ns = self.random.i64(-50_000..50_000);
        let time_ns = BEGIN_NS + self.n * PERIOD_NS + jitter_ns;
        self.n += 1;
        (time_ns, cells)
    }
}
