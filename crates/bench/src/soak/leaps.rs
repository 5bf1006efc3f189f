//! Leaps of the server's wall clock: libfaketime adds the offset given in a file. The monotonic clock stays correct.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Locations of the library on Debian, by architecture.
const PLACES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
];

/// Clock that can be set.
pub(super) struct Leaps {
    library: &'static str,
    file: PathBuf,
}

impl Leaps {
    /// Finds the library, or returns `None` if it is not installed.
    pub(super) fn find(dir: &Path) -> Option<Leaps> {
        let library = PLACES.into_iter().find(|place| Path::new(place).exists())?;
        Some(Leaps { library, file: dir.join("clock") })
    }

    /// Returns the environment variables with which the server must be started.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Sets how many seconds the clock is ahead.
    pub(super) fn set(&self, ahead_s: i64) -> std::io::Result<()> {
        // Rename it into place: half a line would be a different time.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead_s:+}\n"))?;
        std::fs::rename(new, &self.file)
    }

    /// Leaps until `ended` is set, and then resets the clock. Returns how often it leapt.
    pub(super) fn leap(&self, random: &mut fastrand::Rng, ended: &AtomicBool) -> anyhow::Result<u64> {
        let mut leaps = 0;
        while !ended.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(random.u64(100..1_500)));
            self.set(self::random(random))?;
            leaps += 1;
        }
        self.set(0)?;
        Ok(leaps)
    }
}

/// Returns a random offset: zero, a second to ten years forward or back, or one that leads to about 1970.
pub(super) fn random(random: &mut fastrand::Rng) -> i64 {
    const YEAR_S: i64 = 31_557_600;
    match random.u8(..8) {
        0 | 1 => 0,
        2 => -random.i64(55 * YEAR_S..56 * YEAR_S),
        _ => {
            let longest = [2, 3_600, 90 * 86_400, 10 * YEAR_S][random.usize(..4)];
            random.i64(-longest..=longest)
        }
    }
}
