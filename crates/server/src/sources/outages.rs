//! Times without a server, as events: each start records since when nothing was recorded.

use std::time::Duration;

use strongback_query::{EventOrigin, EventRow};
use strongback_sources::instant;

use crate::sources::expectation::in_words;

/// Source of the server's own events; clients may not use it.
pub const SOURCE: &str = "strongback";
/// Text before the time in such an event.
const SINCE: &str = "nothing was recorded since ";

/// Returns the event of a start at `now` on a store whose newest commit was at `last`.
pub fn event(epoch: u32, last: i64, now: i64) -> EventRow {
    let span = in_words(Duration::from_nanos(u64::try_from(now.saturating_sub(last)).unwrap_or(0)));
    EventRow {
        time_ns: now,
        level: "info".to_owned(),
        source: SOURCE.to_owned(),
        text: format!("server started (epoch {epoch}): {SINCE}{}, {span} before", instant::format(last)),
        origin: EventOrigin::Server,
    }
}

/// Returns the time without a server that an event reports, or `None` if it reports none or is a client's.
pub fn outage(event: &EventRow) -> Option<(i64, i64)> {
    let (since, _) = event.text.split_once(SINCE)?.1.split_once(',')?;
    let last = instant::rfc3339(since)?;
    let is_own = event.origin == EventOrigin::Server && event.source == SOURCE;
    (is_own && last < event.time_ns).then_some((last, event.time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_start_says_is_read_back() {
        let (last, now) = (1_780_000_000_123_456_789, 1_780_000_054_000_000_000);
        let start = event(7, last, now);
        assert_eq!(
            start.text,
            "server started (epoch 7): nothing was recorded since 2026-05-28T20:26:40.123456789Z, 53.9 s before"
        );
        assert_eq!(outage(&start), Some((last, now)));
        assert_eq!(outage(&EventRow { source: "api".to_owned(), ..start.clone() }), None);
        assert_eq!(outage(&EventRow { origin: EventOrigin::Client, ..start.clone() }), None);
        assert_eq!(outage(&EventRow { text: "Hold".to_owned(), ..start }), None);
        assert_eq!(outage(&event(7, now, last)), None, "a clock that was set back");
    }
}
