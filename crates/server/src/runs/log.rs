//! Steps of runs, as rows of `strongback.runs`, and the clocks that result from them.
//!
//! The rows are in the store, in the group that never expires; this is a copy for reading. A step takes effect when
//! the store accepts its row, never before, and is reported as done when the row is durable. If durability is unknown
//! because the disk failed or hangs, the step still takes effect: the row may be written later, and would otherwise
//! take effect at the next start. Once the store is reopened, what it holds counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use strongback_sources::NAME_BYTES_MAX;
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Pattern, Refusal, Reject, ScanError,
    Store, StreamId, StreamKey, StreamSpec, Value,
};

use crate::ingest::records::each_record;
use crate::runs::clock::{RunClock, RunState, RunStep, StepError};

const RUNS: &str = "strongback.runs";
/// Columns, in this order: run, step, T-0 in ns, patterns of its channels, one per line.
const CHANNELS: [(&str, ChannelType); 4] = [
    ("run", ChannelType::String),
    ("step", ChannelType::String),
    ("t0_ns", ChannelType::I64),
    ("channels", ChannelType::String),
];
/// Max runs with a clock.
const RUNS_MAX: usize = 10_000;
/// Max patterns of a run, and max bytes of them.
const PATTERNS_MAX: usize = 100;
const PATTERNS_BYTES_MAX: usize = 16 << 10;

/// Run with a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedRun {
    /// Clock of the run.
    pub clock: RunClock,
    /// Patterns of the channels that belong to it; empty means all.
    pub channels: Vec<String>,
    /// Number that rises with each run started; the newest is shown.
    order: usize,
}

impl TimedRun {
    /// Returns the run as REST shows it, at an instant.
    pub fn card(&self, at: i64) -> Json {
        let ns = |time: Option<i64>| time.map(|time| time.to_string());
        let holds: Vec<[Option<String>; 2]> =
            self.clock.holds.iter().map(|(from, to)| [Some(from.to_string()), ns(*to)]).collect();
        json!({
            "state": self.clock.state().name(),
            "started": self.clock.started.to_string(),
            "stopped": ns(self.clock.stopped),
            "t0": ns(self.clock.t0),
            "t0_now": ns(self.clock.t0_now()),
            "holds": holds,
            "t": ns(self.clock.t(at)),
            "channels": self.channels,
        })
    }
}

/// Reason why a step is refused.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Unknown run.
    #[error("there is no run {0:?} with a clock; start one with `strongback run start`")]
    Unknown(String),
    /// Step that is not possible.
    #[error("run {name:?}: {why}")]
    Step {
        /// Name of the run.
        name: String,
        /// Reason.
        why: StepError,
    },
    /// Invalid name or pattern.
    #[error("{0}")]
    Bad(String),
    /// Row refused by the store.
    #[error("not written: {0}")]
    Refused(#[from] Reject),
    /// Row accepted by the store, which takes effect, but is not confirmed to be durable.
    #[error("accepted, but may not be durable: {0}")]
    NotDurable(Refusal),
}

/// Result of making an appended row durable, or the reason why it may not be.
pub type Durability = Result<(), Refusal>;

type Runs = BTreeMap<String, TimedRun>;

/// Runs with clocks.
#[derive(Debug, Default)]
pub struct RunLog {
    runs: ArcSwap<Runs>,
    /// Lock that allows one step at a time.
    stepping: Mutex<()>,
}

/// Row of `strongback.runs`, ready to be appended.
#[derive(Debug)]
pub struct RunStepRow<'a> {
    name: &'a str,
    step: RunStep,
    channels: &'a [String],
    at: i64,
}

impl RunStepRow<'_> {
    /// Returns the definition of its stream.
    pub fn spec() -> StreamSpec {
        StreamSpec {
            key: StreamKey::new(RUNS, []),
            source: "internal".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: CHANNELS.map(|(name, kind)| ChannelSpec::new(name, kind)).into(),
        }
    }

    /// Returns the row as the only frame of a batch.
    pub fn batch(&self, stream: StreamId, channels: &[ChannelIndex]) -> FrameBatch {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream, receive_time: self.at, source_time: None, sequence: None });
        batch.push(channels[0], Value::String(self.name));
        batch.push(channels[1], Value::String(word(self.step)));
        if let RunStep::T0(t0) = self.step {
            batch.push(channels[2], Value::I64(t0));
        }
        if !self.channels.is_empty() {
            batch.push(channels[3], Value::String(&self.channels.join("\n")));
        }
        batch.end();
        batch
    }
}

fn word(step: RunStep) -> &'static str {
    match step {
        RunStep::Start => "start",
        RunStep::T0(_) => "t0",
        RunStep::Hold => "hold",
        RunStep::Resume => "resume",
        RunStep::Stop => "stop",
    }
}

/// Checks the outcome of an appended row.
///
/// # Errors
/// Returns an error if the row was rejected.
pub fn stored(outcomes: Vec<Outcome>) -> Result<(), RunError> {
    match outcomes.into_iter().next() {
        Some(Outcome::Rejected(reject)) => Err(reject.into()),
        _ => Ok(()),
    }
}

impl RunLog {
    /// Loads the runs from a store: at a start, and when the store was reopened, as steps that it accepted before may be
    /// lost.
    ///
    /// # Errors
    /// Returns an error if the scan ends early; what was read until then is kept.
    pub fn load(&self, store: &Store) -> Result<(), ScanError> {
        let _one = self.stepping.lock();
        let mut runs = Runs::new();
        let done = read(store, &mut runs);
        self.runs.store(Arc::new(runs));
        done
    }

    /// Returns all runs by name.
    pub fn runs(&self) -> Arc<BTreeMap<String, TimedRun>> {
        self.runs.load_full()
    }

    /// Returns the run to show: of those not ended, the one started last.
    pub fn current(&self) -> Option<(String, TimedRun)> {
        let runs = self.runs.load();
        let going = runs.iter().filter(|(_, run)| run.clock.state() != RunState::Stopped);
        going.max_by_key(|(_, run)| run.order).map(|(name, run)| (name.clone(), run.clone()))
    }

    /// Applies a step at an instant. `write` appends its row and returns whether that is durable. Returns the run
    /// after the step, and the durability that `write` returned.
    ///
    /// # Errors
    /// Returns an error if the step is not possible or its row was not appended; nothing changes then.
    pub fn step(
        &self,
        name: &str,
        step: RunStep,
        channels: &[String],
        at: i64,
        write: impl FnOnce(&RunStepRow<'_>) -> Result<Durability, RunError>,
    ) -> Result<(TimedRun, Durability), RunError> {
        let _one = self.stepping.lock();
        let mut runs = (*self.runs.load_full()).clone();
        let row = RunStepRow { name, step, channels, at };
        apply(&mut runs, &row)?;
        let durable = write(&row)?;
        let run = runs.get(name).cloned().ok_or_else(|| RunError::Unknown(name.to_owned()))?;
        self.runs.store(Arc::new(runs));
        Ok((run, durable))
    }
}

/// Checks the name and the patterns of a new run.
fn check(name: &str, channels: &[String], runs: usize) -> Result<(), RunError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(RunError::Bad(format!(
            "the name of a run has 1 to {NAME_BYTES_MAX} bytes, without control characters"
        )));
    }
    if channels.len() > PATTERNS_MAX || channels.iter().any(|pattern| pattern.contains('\n')) {
        return Err(RunError::Bad(format!("at most {PATTERNS_MAX} patterns, each one line")));
    }
    if channels.iter().map(String::len).sum::<usize>() > PATTERNS_BYTES_MAX {
        return Err(RunError::Bad(format!("the patterns of a run have at most {PATTERNS_BYTES_MAX} bytes")));
    }
    for pattern in channels {
        Pattern::parse(pattern).map_err(|error| RunError::Bad(format!("{pattern:?}: {error}")))?;
    }
    if runs >= RUNS_MAX {
        return Err(RunError::Bad(format!("there are {RUNS_MAX} runs with a clock already, the most there can be")));
    }
    Ok(())
}

fn apply(runs: &mut Runs, row: &RunStepRow<'_>) -> Result<(), RunError> {
    let wrong = |why| RunError::Step { name: row.name.to_owned(), why };
    if let Some(run) = runs.get_mut(row.name) {
        return run.clock.take(row.step, row.at).map_err(wrong);
    }
    if row.step != RunStep::Start {
        return Err(RunError::Unknown(row.name.to_owned()));
    }
    // Runs in the store of an earlier version that exceed the limits are skipped.
    check(row.name, row.channels, runs.len())?;
    let order = runs.len();
    let run = TimedRun { clock: RunClock::new(row.at), channels: row.channels.to_vec(), order };
    runs.insert(row.name.to_owned(), run);
    Ok(())
}

fn read(store: &Store, runs: &mut Runs) -> Result<(), ScanError> {
    each_record(store, RUNS, &CHANNELS, |row| {
        let step = match (row.text(1), row.integer(2)) {
            ("start", _) => RunStep::Start,
            ("t0", Some(t0)) => RunStep::T0(t0),
            ("hold", _) => RunStep::Hold,
            ("resume", _) => RunStep::Resume,
            ("stop", _) => RunStep::Stop,
            // A step of a newer version.
            _ => return,
        };
        let channels: Vec<String> = row.text(3).lines().map(str::to_owned).collect();
        // A recorded step was possible; if it is not, it changes nothing.
        let _ = apply(runs, &RunStepRow { name: row.text(0), step, channels: &channels, at: row.time() });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::StoreOptions;

    const S: i64 = 1_000_000_000;

    /// Returns a function that writes a row directly into a store.
    fn write(store: &Store) -> impl Fn(&RunStepRow<'_>) -> Result<Durability, RunError> {
        |row| {
            let (stream, channels) = store.resolve_own(&RunStepRow::spec(), row.at)?;
            stored(store.append(&row.batch(stream.id, &channels), row.at).outcomes)?;
            Ok(store.commit(row.at).map(drop))
        }
    }

    #[test]
    fn steps_come_back_from_the_store_and_what_it_does_not_take_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default(), S).unwrap();
        let log = RunLog::default();
        log.load(&store).unwrap();
        let channels = ["engine.*".to_owned(), "plc.*{acu=1}".to_owned()];
        let step = |name: &str, step, at| log.step(name, step, &[], at * S, write(&store));
        assert!(matches!(step("a", RunStep::Hold, 1), Err(RunError::Unknown(_))));
        log.step("a", RunStep::Start, &channels, 2 * S, write(&store)).unwrap().1.unwrap();
        step("a", RunStep::T0(100 * S), 3).unwrap().1.unwrap();
        step("b", RunStep::Start, 4).unwrap().1.unwrap();
        step("a", RunStep::Hold, 5).unwrap().1.unwrap();
        step("a", RunStep::Resume, 7).unwrap().1.unwrap();
        assert_eq!(log.current().unwrap().0, "b");
        step("b", RunStep::Stop, 8).unwrap().1.unwrap();
        assert_eq!(log.current().unwrap().0, "a");
        let before = log.runs();
        let lost = log.step("a", RunStep::Stop, &[], 9 * S, |_| Err(Reject::Refused(Refusal::DiskFull).into()));
        assert_eq!(lost.unwrap_err().to_string(), format!("not written: {}", Reject::Refused(Refusal::DiskFull)));
        let why = step("b", RunStep::Hold, 9).unwrap_err().to_string();
        assert_eq!(why, "run \"b\": already stopped; start another run");
        assert_eq!(log.runs(), before);
        store.close(9 * S).unwrap();
        drop(store);
        let store = Store::open(folder.path(), StoreOptions::default(), 10 * S).unwrap();
        let again = RunLog::default();
        again.load(&store).unwrap();
        assert_eq!(again.runs(), before);
        let run = &before["a"];
        assert_eq!((run.channels.as_slice(), run.clock.t(60 * S)), (&channels[..], Some(-42 * S)));
        let card = run.card(60 * S);
        assert_eq!((card["state"].as_str(), card["t"].as_str()), (Some("counting"), Some("-42000000000")));
        assert_eq!(card["holds"], json!([["5000000000", "7000000000"]]));
    }

    #[test]
    fn a_step_that_may_be_written_later_counts_at_once_and_after_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default(), S).unwrap();
        let log = RunLog::default();
        let step = |step, at| log.step("a", step, &[], at * S, write(&store));
        step(RunStep::Start, 1).unwrap().1.unwrap();
        step(RunStep::T0(100 * S), 2).unwrap().1.unwrap();
        // The store accepts the row, but its commit fails.
        let fails = |row: &RunStepRow<'_>| {
            write(&store)(row)?.unwrap();
            Ok(Err(Refusal::DiskFull))
        };
        let (run, durable) = log.step("a", RunStep::Hold, &[], 3 * S, fails).unwrap();
        assert_eq!((run.clock.state(), durable), (RunState::Held, Err(Refusal::DiskFull)));
        assert_eq!(log.runs()["a"], run);
        store.close(4 * S).unwrap();
        drop(store);
        let again = RunLog::default();
        again.load(&Store::open(folder.path(), StoreOptions::default(), 5 * S).unwrap()).unwrap();
        assert_eq!(again.runs(), log.runs());
    }

    #[test]
    fn steps_that_a_failing_disk_took_are_gone_once_the_store_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default(), S).unwrap();
        let log = RunLog::default();
        let step = |name: &str, at| log.step(name, RunStep::Start, &[], at * S, write(&store));
        step("kept", 1).unwrap().1.unwrap();
        let before = log.runs();
        // Accepted, and not in the store that is opened again.
        log.step("lost", RunStep::Start, &[], 2 * S, |_| Ok(Err(Refusal::DiskFull))).unwrap().1.unwrap_err();
        log.load(&store).unwrap();
        assert_eq!(log.runs(), before);
        let why = log.step("lost", RunStep::Hold, &[], 3 * S, write(&store)).unwrap_err();
        assert!(matches!(why, RunError::Unknown(_)), "{why}");
    }

    #[test]
    fn names_and_patterns_that_cannot_be_are_refused() {
        let log = RunLog::default();
        let start = |name: &str, channels: &[&str]| {
            let channels: Vec<String> = channels.iter().map(|pattern| (*pattern).to_owned()).collect();
            log.step(name, RunStep::Start, &channels, 1, |_| Ok(Ok(())))
        };
        for (name, channels) in
            [("", vec![]), ("a\tb", vec![]), ("a", vec!["x\ny"]), ("a", vec!["t.*{acu}"]), ("a", vec!["x"; 101])]
        {
            assert!(matches!(start(name, &channels), Err(RunError::Bad(_))), "{name:?} {channels:?}");
        }
        start("hot fire/3", &["x"]).unwrap().1.unwrap();
        assert!(matches!(start("hot fire/3", &[]), Err(RunError::Step { why: StepError::Begun, .. })));
    }
}
