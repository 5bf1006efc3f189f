//! `strongback run`: named runs of a store, their clocks, and their release.
//!
//! A store that no server uses is opened; of one that is in use its server is asked.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use strongback_query::RunRow;
use strongback_sources::instant;
use strongback_store::{RunInfo, Store};

use crate::cli::{RunArgs, RunCommand};
use crate::client;
use crate::clock::now_ns;
use crate::outcome::Outcome;
use crate::reach::{self, Flags, Place};
use crate::run_clock::{RunClock, Step};
use crate::run_log::{self, Row, RunError, RunLog, TimedRun};

/// A run as REST shows it, without its clock.
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

/// Runs as REST shows them, with their clocks at an instant: those with streams, then those that have a clock alone.
pub fn cards(runs: &[RunInfo], timed: &BTreeMap<String, TimedRun>, at: i64) -> Vec<Value> {
    let with_clock = |name: &str, run| {
        let mut card = card(name, run);
        card["clock"] = timed.get(name).map_or(Value::Null, |run| run.card(at));
        card
    };
    let alone = timed.keys().filter(|name| !runs.iter().any(|run| run.name == **name));
    runs.iter().map(|run| with_clock(&run.name, Some(run))).chain(alone.map(|name| with_clock(name, None))).collect()
}

/// Runs as SQL shows them.
pub fn rows(runs: &[RunInfo], timed: &BTreeMap<String, TimedRun>, now: i64) -> Vec<RunRow> {
    let row = |name: &str, run: Option<&RunInfo>| {
        let timed = timed.get(name);
        let clock = timed.map(|timed| &timed.clock);
        RunRow {
            name: name.to_owned(),
            state: clock.map(|clock| clock.state().name().to_owned()),
            t0_ns: clock.and_then(|clock| clock.t0),
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

/// A time from T-0 as people say it: `T-00:10:00`.
pub fn t_words(t: i64) -> String {
    let seconds = t.unsigned_abs() / 1_000_000_000;
    let sign = if t < 0 { '-' } else { '+' };
    format!("T{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Why a run cannot be released: it has a clock alone, or there is none of this name.
pub fn not_released(name: &str, has_clock: bool) -> String {
    match has_clock {
        true => format!("run {name:?} has a clock alone: only data that was imported for a run is protected"),
        false => format!("there is no run {name:?} to release; `strongback run list` names those there are"),
    }
}

/// What a step did, in a sentence.
pub fn in_words(name: &str, step: Step, clock: &RunClock, now: i64) -> String {
    let t = clock.t(now).map(t_words).unwrap_or_default();
    match step {
        Step::Start => format!("run {name:?} begins"),
        Step::T0(t0) => format!("run {name:?}: T-0 is {}, {t} now", instant::format(t0)),
        Step::Hold => format!("run {name:?}: hold at {t}"),
        Step::Resume => format!("run {name:?}: resumes at {t}"),
        Step::Stop if t.is_empty() => format!("run {name:?} ends"),
        Step::Stop => format!("run {name:?} ends at {t}"),
    }
}

/// What is asked of a store or a server.
enum Wish<'a> {
    List,
    Release(&'a str),
    Step(&'a str, Stepped<'a>),
}

/// A step, with what goes with it.
enum Stepped<'a> {
    Start(&'a [String]),
    T0(&'a str),
    Plain(Step, &'static str),
}

/// Lists runs, releases one, or takes a step of one.
///
/// # Errors
/// If there is no such run, the step cannot be, or neither the folder nor its server can be had.
pub fn run(command: &RunCommand) -> anyhow::Result<Outcome> {
    let plain = |name, step, word| Wish::Step(name, Stepped::Plain(step, word));
    let (args, wish) = match command {
        RunCommand::List { args } => (args, Wish::List),
        RunCommand::Release { name, args } => (args, Wish::Release(name)),
        RunCommand::Start { name, channels, args } => (args, Wish::Step(name, Stepped::Start(channels))),
        RunCommand::T0 { name, at, args } => (args, Wish::Step(name, Stepped::T0(at))),
        RunCommand::Hold { name, args } => (args, plain(name, Step::Hold, "hold")),
        RunCommand::Resume { name, args } => (args, plain(name, Step::Resume, "resume")),
        RunCommand::Stop { name, args } => (args, plain(name, Step::Stop, "stop")),
    };
    let flags = Flags {
        config: args.config.as_deref(),
        data: args.data.as_deref(),
        server: args.server.as_deref(),
        token: args.auth_token_file.as_deref(),
    };
    match reach::find(&flags)? {
        Place::Server(server) => from_server(&server, args, &wish),
        Place::Folder(found) => {
            let store = &found.0;
            let done = from_store(store, &wish);
            store.close(now_ns()).context("the store did not close")?;
            done
        }
    }
}

fn from_store(store: &Store, wish: &Wish<'_>) -> anyhow::Result<Outcome> {
    let log = RunLog::default();
    log.load(store).context("what was done with runs cannot be read")?;
    let now = now_ns();
    match wish {
        Wish::List => print(&cards(&store.runs(), &log.runs(), now)),
        Wish::Release(name) => {
            if store.release_run(name, now_ns())?.is_none() {
                bail!("{}", not_released(name, log.runs().contains_key(*name)));
            }
            store.commit(now_ns()).context("the release is not written down")?;
            println!("{name}: released");
        }
        Wish::Step(name, stepped) => {
            let (step, channels) = match stepped {
                Stepped::Start(channels) => (Step::Start, *channels),
                Stepped::T0(at) => (Step::T0(instant::parse(at, now).map_err(|why| anyhow!(why))?), &[][..]),
                Stepped::Plain(step, _) => (*step, &[][..]),
            };
            let write = |row: &Row<'_>| {
                let (stream, indices) = store.resolve_own(&Row::spec(), now)?;
                run_log::stored(store.append(&row.batch(stream.id, &indices), now).outcomes)?;
                Ok(store.commit(now).map(drop))
            };
            let (run, durable) = log.step(name, step, channels, now, write)?;
            durable.map_err(RunError::NotDurable)?;
            println!("{}", in_words(name, step, &run.clock, now));
        }
    }
    Ok(Outcome::Done)
}

fn from_server(server: &str, args: &RunArgs, wish: &Wish<'_>) -> anyhow::Result<Outcome> {
    let token = args.auth_token_file.as_deref();
    match wish {
        Wish::List => {
            let answer = client::ask(server, "GET", "/api/runs", token)?.json()?;
            print(answer["runs"].as_array().map(Vec::as_slice).unwrap_or_default());
        }
        Wish::Release(name) => {
            let path = format!("/api/runs/{}/release", client::percent_encoded(name));
            client::ask(server, "POST", &path, token)?.json()?;
            println!("{name}: released");
        }
        Wish::Step(name, stepped) => {
            let (word, query) = match stepped {
                Stepped::Start([]) => ("start", String::new()),
                Stepped::Start(channels) => {
                    ("start", format!("?channels={}", client::percent_encoded(&channels.join(","))))
                }
                Stepped::T0(at) => ("t0", format!("?at={}", client::percent_encoded(at))),
                Stepped::Plain(_, word) => (*word, String::new()),
            };
            let path = format!("/api/runs/{}/{word}{query}", client::percent_encoded(name));
            let answer = client::ask(server, "POST", &path, token)?.json()?;
            println!("{}", answer["words"].as_str().unwrap_or_default());
        }
    }
    Ok(Outcome::Done)
}

fn print(runs: &[Value]) {
    println!("{:10} {:9} {:>12} {:>8} {:>9} {:>14}  run", "protection", "clock", "T", "streams", "segments", "bytes");
    for run in runs {
        let data = match (run["protected"].as_bool(), run["streams"].as_u64()) {
            (Some(true), _) => "protected",
            (_, Some(0)) => "",
            _ => "released",
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let t = run["clock"]["t"].as_str().and_then(|t| t.parse().ok()).map(t_words).unwrap_or_default();
        let (clock, bytes, name) = (text(&run["clock"]["state"]), text(&run["bytes"]), text(&run["name"]));
        // A JSON value takes no notice of a width.
        let (streams, segments) = (run["streams"].to_string(), run["segments"].to_string());
        println!("{data:10} {clock:9} {t:>12} {streams:>8} {segments:>9} {bytes:>14}  {name}");
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
        assert_eq!(in_words("a", Step::Stop, &clock, 5), "run \"a\" ends");
        clock.take(Step::T0(60_000_000_000), 0).unwrap();
        let said = in_words("a", Step::T0(60_000_000_000), &clock, 0);
        assert_eq!(said, "run \"a\": T-0 is 1970-01-01T00:01:00.000000000Z, T-00:01:00 now");
        assert_eq!(in_words("a", Step::Hold, &clock, 1_500_000_000), "run \"a\": hold at T-00:00:58");
    }
}
