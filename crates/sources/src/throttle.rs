//! Limits log lines when a source misbehaves: a few lines per period, then only their number.

/// Rate limit that lets a few events per period pass and counts the rest.
#[derive(Debug)]
pub struct Throttle {
    burst: u32,
    period_ns: i64,
    since: i64,
    passed: u32,
    held: u64,
}

impl Throttle {
    /// Allows at most `burst` events every `period_ns`.
    pub fn new(burst: u32, period_ns: i64) -> Self {
        Throttle { burst, period_ns, since: i64::MIN, passed: 0, held: 0 }
    }

    /// Returns the number of events held back since the last that passed, or `None` if an event at `now` is held back.
    pub fn pass(&mut self, now: i64) -> Option<u64> {
        // Setting the clock back starts a new period, too.
        if now < self.since || now.saturating_sub(self.since) >= self.period_ns {
            self.since = now;
            self.passed = 0;
        }
        if self.passed < self.burst {
            self.passed += 1;
            Some(std::mem::take(&mut self.held))
        } else {
            self.held += 1;
            None
        }
    }
}

/// Formats the first bytes in hexadecimal, for a log.
pub fn hex_sample(bytes: &[u8]) -> String {
    use std::fmt::Write;
    const SAMPLE_BYTES: usize = 48;
    let mut text = String::with_capacity(SAMPLE_BYTES * 2 + 16);
    for byte in bytes.iter().take(SAMPLE_BYTES) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SAMPLE_BYTES {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_is_counted() {
        let mut t = Throttle::new(2, 1_000);
        assert_eq!(t.pass(0), Some(0));
        assert_eq!(t.pass(1), Some(0));
        assert_eq!(t.pass(2), None);
        assert_eq!(t.pass(3), None);
        assert_eq!(t.pass(1_000), Some(2));
        assert_eq!(t.pass(-5), Some(0));
    }

    #[test]
    fn samples_are_bounded() {
        assert_eq!(hex_sample(&[0x11, 0xff]), "11ff");
        assert_eq!(hex_sample(&[0; 1_000]).len(), 96 + "… (1000 bytes)".len());
    }
}
