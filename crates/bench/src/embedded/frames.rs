//! Wide frames: 100 sensors each 40 ms, 12-bit codes in engineering units as f32, a slow process with the hum of the
//! mains and a noise of one and a half codes.

use fastrand::Rng;

use super::course::{CourseStream, CourseWriter, Kind};

/// Channels of a frame.
pub(super) const CHANNELS: usize = 100;
/// Time between two frames.
const PERIOD_NS: i64 = 40_000_000;
/// 2026-06-01T00:00:00Z.
const BEGIN_NS: i64 = 1_780_272_000_000_000_000;

/// Its one stream.
pub(super) fn streams() -> Vec<CourseStream> {
    vec![CourseStream { name: "frames".into(), kinds: vec![Kind::F32; CHANNELS] }]
}

/// Writes the frames of the writer's length.
pub(super) fn write(out: &mut CourseWriter) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(40);
    let sensors: Vec<(f64, f64, f64)> = (0..CHANNELS)
        .map(|c| (700.0 + 25.0 * c as f64, 0.01 + 0.002 * c as f64, [0.0625, 0.05, 0.25, 0.1][c % 4]))
        .collect();
    let mut cells = [0.0; CHANNELS];
    for n in 0..out.left() as i64 {
        let t = n as f64 * 0.04;
        for (cell, (level, rate, lsb)) in cells.iter_mut().zip(&sensors) {
            let process = 300.0 * (t * rate).sin() + 4.0 * (t * 7.0 * std::f64::consts::TAU).sin();
            let noise = (random.f64() + random.f64() + random.f64() - 1.5) * 3.0;
            let code = (level + process + noise).round().clamp(0.0, 4095.0);
            *cell = f64::from((code * lsb) as f32);
        }
        let jitter_ns = random.i64(-50_000..50_000);
        out.frame(0, BEGIN_NS + n * PERIOD_NS + jitter_ns, &cells)?;
    }
    Ok(())
}
