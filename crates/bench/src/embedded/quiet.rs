//! One stream at full rate among many quiet ones: 100 channels every 40 ms, and 100,000 streams of one value every
//! 100 s, like the housekeeping of a whole plant.

use fastrand::Rng;

use super::course::{CourseStream, CourseWriter, Kind};
use super::frames::{CHANNELS, Sensors};

/// Number of quiet streams.
const QUIET: usize = 100_000;
/// Number of quiet records between two frames of the stream at full rate: each quiet stream has a record every 100 s.
const QUIET_A_FRAME: usize = QUIET / 2500;

/// Returns its streams; the quiet ones share a table.
pub(super) fn streams() -> Vec<CourseStream> {
    let mut streams = vec![CourseStream { name: "frames".into(), table: 0, kinds: vec![Kind::F32; CHANNELS] }];
    streams.extend((0..QUIET).map(|n| CourseStream { name: format!("quiet{n}"), table: 1, kinds: vec![Kind::F32] }));
    streams
}

/// Returns the number of frames of a course with `wide` frames of the stream at full rate.
pub(super) fn frames(wide: u64) -> u64 {
    wide * (1 + QUIET_A_FRAME as u64)
}

/// Writes frames until the course is complete.
pub(super) fn write(out: &mut CourseWriter) -> anyhow::Result<()> {
    let (mut sensors, mut random) = (Sensors::new(), Rng::with_seed(100));
    let mut turn = 0;
    while out.left() > 0 {
        let (time_ns, cells) = sensors.next_frame();
        out.frame(0, time_ns, &cells)?;
        for n in 0..QUIET_A_FRAME {
            let value = 20.0 + (turn % 60) as f64 + f64::from(random.u8(0..8)) * 0.125;
            out.frame(1 + turn, time_ns + 900_000 * (n as i64 + 1), &[value])?;
            turn = (turn + 1) % QUIET;
        }
    }
    Ok(())
}
