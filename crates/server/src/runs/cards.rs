//! Runs as shown by REST, SQL and the command line.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use strongback_query::RunRow;
use strongback_sources::instant;
use strongback_store::RunInfo;

use super::clock::{RunClock, RunStep};
use super::log::TimedRun;

/// Returns a run as REST shows it, without its clock.
fn card(name: &str, run: Option<&RunInfo>) -> Value {
    json!({
        "name": name,
        "protected": run.is_some_and(|run| run.protected),
        "streams": run.map_or(0, |run| run.streams),
        "segments": run.map_or(0, |run| run.segments),
        "bytes": run.map_or(0, |run| run.size_bytes).to_string(),
        "time": run.and_then(|run| run.time).map(|(from, to)| [from.to_string(), to.to_string()]),
    })
}

/// Returns the runs as REST shows them, with their clocks at an instant: first runs with streams, then runs that only
/// have a clock.
pub fn cards(runs: &[RunInfo], timed: &BTreeMap<String, TimedRun>, at: i64) -> Vec<Value> {
    let with_clock = |name: &str, run| {
        let mut card = card(name, run);
        card["clock"] = timed.get(name).map_or(Value::Null, |run| run.card(at));
        card
    };
    let alone = timed.keys().filter(|name| !runs.iter().any(|run| run.name == **name));
    runs.iter().map(|run| with_clock(&run.name, Some(run))).chain(alone.map(|name| with_clock(name, None))).collect()
}

/// Returns the runs as SQL shows them.
pub fn rows(runs: &[RunInfo], timed: &BTreeMap<String, TimedRun>, now: i64) -> Vec<RunRow> {
    let row = |name: &str, run: Option<&RunInfo>| {
        let timed = timed.get(name);
        let clock = timed.map(|timed| &timed.clock);
        RunRow {
            name: name.to_owned(),
            state: clock.map(|clock| clock.state().name().to_owned()),
            t0_ns: clock.and_then(|clock| clock.t0),
            t0_now_ns: clock.and_then(|clock| clock.t0_now()),
            t_ns: clock.and_then(|clock| clock.t(now)),
            started_ns: clock.map(|clock| clock.started),
            stopped_ns: clock.and_then(|clock| clock.stopped),
            channels: timed.map(|timed| timed.channels.clone()).unwrap_or_default(),
            protected: run.is_some_and(|run| run.protected),
            streams: run.map_or(0, |run| run.streams),
            size_bytes: run.map_or(0, |run| run.size_bytes),
        }
    };
    let alone = timed.keys().filter(|name| !runs.iter().any(|run| run.name == **name));
    runs.iter().map(|run| row(&run.name, Some(run))).chain(alone.map(|name| row(name, None))).collect()
}

/// Formats a time relative to T-0 for people: `T-00:10:00`.
pub fn t_words(t: i64) -> String {
    let seconds = t.unsigned_abs() / 1_000_000_000;
    let sign = if t < 0 { '-' } else { '+' };
    format!("T{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Explains why a run cannot be released: it only has a clock, or does not exist.
pub fn not_released(name: &str, has_clock: bool) -> String {
    match has_clock {
        true => format!("run {name:?} has a clock alone: only data that was imported for a run is protected"),
        false => format!("there is no run {name:?} to release; `strongback run list` names those there are"),
    }
}

/// Describes the effect of a step in a sentence.
pub fn in_words(name: &str, step: RunStep, clock: &RunClock, now: i64) -> String {
    let t = clock.t(now).map(t_words).unwrap_or_default();
    match step {
        RunStep::Start => format!("run {name:?} begins"),
        RunStep::T0(t0) => format!("run {name:?}: T-0 is {}, {t} now", instant::format(t0)),
        RunStep::Hold => format!("run {name:?}: hold at {t}"),
        RunStep::Resume => format!("run {name:?}: resumes at {t}"),
        RunStep::Stop if t.is_empty() => format!("run {name:?} ends"),
        RunStep::Stop => format!("run {name:?} ends at {t}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_released_says_why() {
        assert!(not_released("a", true).contains("has a clock alone"));
        assert!(not_released("a", false).contains("there is no run"));
    }

    #[test]
    fn times_from_t0_are_said_as_people_say_them() {
        assert_eq!(t_words(-600_000_000_000), "T-00:10:00");
        assert_eq!(t_words(0), "T+00:00:00");
        assert_eq!(t_words(90_061_900_000_000), "T+25:01:01");
        let mut clock = RunClock::new(0);
        assert_eq!(in_words("a", RunStep::Stop, &clock, 5), "run \"a\" ends");
        clock.take(RunStep::T0(60_000_000_000), 0).unwrap();
        let said = in_words("a", RunStep::T0(60_000_000_000), &clock, 0);
        assert_eq!(said, "run \"a\": T-0 is 1970-01-01T00:01:00.000000000Z, T-00:01:00 now");
        assert_eq!(in_words("a", RunStep::Hold, &clock, 1_500_000_000), "run \"a\": hold at T-00:00:58");
    }
}
