//! When a view of a limited rate leaves: with the frame that is about to come, not with one that is nearly a period old.
//!
//! A view at 5 Hz of a stream at 25 Hz is due at some instant between two frames. Sent right then it would show a frame
//! of up to 40 ms ago, and the next one 200 ms later. So it waits for the frame that is about to come, as the pauses
//! between the latest frames say, but never for longer than a quarter of its own period; the times at which views are
//! due stay a grid, so that their rate is kept.

/// Frames within this time of each other are one arrival, nanoseconds.
const TOGETHER_NS: i64 = 500_000;
/// A frame that came within this time before a view is due is new enough to leave with, nanoseconds.
const FRESH_NS: i64 = 2_000_000;
/// Longest that a view waits beyond the time at which it is due, nanoseconds.
const WAIT_NS_MAX: i64 = 50_000_000;

/// The rhythm in which frames of a stream come. Times are nanoseconds since 1970 UTC of the server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    newest: Option<i64>,
    /// Mean of the latest pauses between arrivals; 0 as long as there was none.
    pause_ns: i64,
}

/// Whether a view that is due waits for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// No: its frame just came, or the view has waited long enough.
    Came,
    /// No: when the next one comes is not known, or it is too late, or too far.
    Unknown,
    /// Until this time.
    Until(i64),
}

impl Pace {
    /// A frame came at `now`.
    pub fn frame(&mut self, now: i64) {
        let Some(newest) = self.newest.replace(now) else { return };
        let pause = now.saturating_sub(newest);
        if pause < 0 {
            // The clock was set back: begin again.
            self.pause_ns = 0;
        } else if pause >= TOGETHER_NS {
            self.pause_ns = if self.pause_ns == 0 { pause } else { self.pause_ns + (pause - self.pause_ns) / 8 };
        }
    }

    /// Whether a view that has been due for `overdue_ns` and has a period of `period_ns` waits for the next frame.
    pub fn rhythm(&self, now: i64, overdue_ns: i64, period_ns: i64) -> Rhythm {
        let Some(newest) = self.newest else { return Rhythm::Unknown };
        let longest = (period_ns / 4).min(WAIT_NS_MAX) - overdue_ns;
        let age = now.saturating_sub(newest);
        // However late the connection comes to look: a frame since the view became due is what it waited for.
        if longest <= 0 || (0..FRESH_NS.saturating_add(overdue_ns)).contains(&age) {
            return Rhythm::Came;
        }
        // A little more than the mean: frames have their jitter.
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
        // 40 ms and a quarter, and what counts as new.
        assert_eq!(pace.rhythm(newest + 5 * MS, 0, 200 * MS), Rhythm::Until(newest + 52 * MS));
        // Never longer than a quarter of its period.
        assert_eq!(pace.rhythm(newest + 5 * MS, 0, 100 * MS), Rhythm::Until(newest + 30 * MS));
        assert_eq!(pace.rhythm(newest + 48 * MS, 45 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 49 * MS, 45 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 51 * MS, 48 * MS, 200 * MS), Rhythm::Until(newest + 52 * MS));
        assert_eq!(pace.rhythm(newest + 52 * MS - 1, 50 * MS, 200 * MS), Rhythm::Came);
        // The frame is late: what there is leaves.
        assert_eq!(pace.rhythm(newest + 53 * MS, 0, 200 * MS), Rhythm::Unknown);
        // It came after the view was due, or just before, and the connection comes to look only now.
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
