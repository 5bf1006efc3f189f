//! Timing of rate-limited views: a view is sent with the next frame if that is about to arrive, rather than with an
//! old one.
//!
//! A view at 5 Hz of a stream at 25 Hz is due between two frames. Sent at once, it would show a frame up to 40 ms
//! old, and the next one only 200 ms later. So it waits for the next frame, expected from the intervals between the
//! latest frames, but never longer than a quarter of its own period. The due times stay on a grid, so that the rate
//! is kept.

/// Max time between frames that count as one arrival, nanoseconds.
const TOGETHER_NS: i64 = 500_000;
/// Max age of a frame at which a due view is sent without waiting, nanoseconds.
const FRESH_NS: i64 = 2_000_000;
/// Max time that a view waits after it is due, nanoseconds.
const WAIT_NS_MAX: i64 = 50_000_000;

/// Rhythm in which frames of a stream arrive. Times are nanoseconds since 1970 UTC of the server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    newest: Option<i64>,
    /// Mean of the latest intervals between arrivals; 0 until there is one.
    pause_ns: i64,
}

/// Decision whether a due view waits for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// No wait: its frame just arrived, or the view has waited long enough.
    Came,
    /// No wait: the next frame is late, too far off, or not predictable.
    Unknown,
    /// Wait until this time.
    Until(i64),
}

impl Pace {
    /// Records that a frame arrived at `now`.
    pub fn frame(&mut self, now: i64) {
        let Some(newest) = self.newest.replace(now) else { return };
        let pause = now.saturating_sub(newest);
        if pause < 0 {
            // The clock was set back, so start again.
            self.pause_ns = 0;
        } else if pause >= TOGETHER_NS {
            self.pause_ns = if self.pause_ns == 0 { pause } else { self.pause_ns + (pause - self.pause_ns) / 8 };
        }
    }

    /// Decides whether a view that is `overdue_ns` overdue, with a period of `period_ns`, waits for the next frame.
    pub fn rhythm(&self, now: i64, overdue_ns: i64, period_ns: i64) -> Rhythm {
        let Some(newest) = self.newest else { return Rhythm::Unknown };
        let longest = (period_ns / 4).min(WAIT_NS_MAX) - overdue_ns;
        let age = now.saturating_sub(newest);
        // A frame that arrived since the view became due is the one it waited for, however late the connection
        // checks.
        if longest <= 0 || (0..FRESH_NS.saturating_add(overdue_ns)).contains(&age) {
            return Rhythm::Came;
        }
        // A little more than the mean, to allow for jitter.
        let expected = newest.saturating_add(self.pause_ns + self.pause_ns / 4 + FRESH_NS);
        if self.pause_ns == 0 || self.pause_ns > period_ns / 2 || age < 0 || expected <= now {
            return Rhythm::Unknown;
        }
        Rhythm::Until(expected.min(now.saturating_add(longest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn pace(period: i64, frames: i64) -> Pace {
        let mut pace = Pace::default();
        (0..frames).for_each(|i| pace.frame(1_000 * MS + i * period));
        pace
    }

    #[test]
    fn a_view_leaves_with_a_new_frame_or_waits_for_the_next() {
        let pace = pace(40 * MS, 100);
        let newest = 1_000 * MS + 99 * 40 * MS;
        assert_eq!(pace.rhythm(newest + MS, 0, 200 * MS), Rhythm::Came);
        // 40 ms plus a quarter, plus the time that counts as fresh.
        assert_eq!(pace.rhythm(newest + 5 * MS, 0, 200 * MS), Rhythm::Until(newest + 52 * MS));
        // Never longer than a quarter of its period.
        assert_eq!(pace.rhythm(newest + 5 * MS, 0, 100 * MS), Rhythm::Until(newest + 30 * MS));
        assert_eq!(pace.rhythm(newest + 48 * MS, 45 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 49 * MS, 45 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 51 * MS, 48 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 52 * MS - 1, 50 * MS, 200 * MS), Rhythm::Came);
        // The frame is late, so the view is sent with what there is.
        assert_eq!(pace.rhythm(newest + 53 * MS, 0, 200 * MS), Rhythm::Unknown);
        // The frame arrived after the view was due, or just before, and the connection checks only now.
        assert_eq!(pace.rhythm(newest + 9 * MS, 30 * MS, 200 * MS), Rhythm::Came);
        assert_eq!(pace.rhythm(newest + 9 * MS, 8 * MS, 200 * MS), Rhythm::Came);
        assert_eq!(pace.rhythm(newest + 9 * MS, 7 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
    }

    #[test]
    fn slow_and_unknown_rhythms_are_not_waited_for() {
        assert_eq!(Pace::default().rhythm(0, 0, 200 * MS), Rhythm::Unknown);
        assert_eq!(pace(40 * MS, 1).rhythm(1_010 * MS, 0, 200 * MS), Rhythm::Unknown);
        assert_eq!(pace(150 * MS, 9).rhythm(1_000 * MS + 8 * 150 * MS + 9 * MS, 0, 200 * MS), Rhythm::Unknown);
        // Frames of one datagram are one arrival.
        let mut pace = pace(40 * MS, 50);
        (0..9).for_each(|i| pace.frame(1_000 * MS + 49 * 40 * MS + i * 1_000));
        assert_eq!(pace.pause_ns, 40 * MS);
        // A clock that is set back.
        pace.frame(500 * MS);
        assert_eq!(pace.rhythm(505 * MS, 0, 200 * MS), Rhythm::Unknown);
    }
}
