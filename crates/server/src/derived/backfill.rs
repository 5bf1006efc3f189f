//! Backfills: results of a derived channel for a past interval, written as a separate version.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use strongback_query::{EventOrigin, EventRow};
use strongback_sources::Sink;
use strongback_store::let_run;
use tokio::sync::watch;

use crate::ingest::Ingest;
use crate::process::clock::now_ns;
use crate::sources::ledger::Ledger;
use crate::sources::roster::DERIVED_SOURCE;

use super::BATCH_RESULTS;
use super::Derived;
use super::book::{BookError, DerivedEntry};
use super::definition::Definition;
use super::instance::{Counts, Evaluated};
use super::past::{NotTied, Past};
use super::record::{self, Output};

/// Max simultaneous backfills.
const BACKFILLS_MAX: usize = 2;
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Services of the server that a backfill uses.
#[derive(Clone, Debug)]
pub struct BackfillHost {
    /// Derived channels.
    pub derived: Arc<Derived>,
    /// Stored data, and the path for results into the store.
    pub ingest: Arc<Ingest>,
    /// Ledger, for events.
    pub ledger: Arc<Ledger>,
    /// Whether the server is stopping.
    pub stopping: watch::Receiver<bool>,
}

/// Reason why a backfill does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Unknown derived channel, or one that cannot be saved.
    #[error(transparent)]
    Book(#[from] BookError),
    /// Inputs that cannot be resolved.
    #[error(transparent)]
    NotTied(#[from] NotTied),
    /// Too many running backfills.
    #[error("{BACKFILLS_MAX} backfills are already running")]
    Busy,
    /// Failure to start a thread.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
}

/// Slot of a running backfill, freed when dropped.
struct BackfillSeat;

impl BackfillSeat {
    fn take() -> Option<BackfillSeat> {
        let taken = RUNNING.fetch_update(SeqCst, SeqCst, |running| (running < BACKFILLS_MAX).then_some(running + 1));
        taken.ok().map(|_| BackfillSeat)
    }
}

impl Drop for BackfillSeat {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, SeqCst);
    }
}

/// Starts to write the results of the version in force for a span of `time` (nanoseconds since 1970 UTC, end
/// exclusive), as a separate version whose name is returned. `late` includes frames that live left out for being
/// late.
///
/// # Errors
/// Returns why it does not start.
pub fn start(host: BackfillHost, name: &str, span: Range<i64>, late: bool) -> Result<String, StartError> {
    let seat = BackfillSeat::take().ok_or(StartError::Busy)?;
    let (definition, entry) = host.derived.book().find(name)?;
    let versions = host.derived.versions();
    let all = Past::all(&definition, &entry, &host.ingest.store().catalog(), |path| versions.get(path).copied())?;
    let version = host.derived.change(|book| book.begin_backfill(name, span.start, span.end, late))?;
    let written = version.clone();
    let run = move || {
        let _seat = seat;
        let mut frames = 0;
        let ended = write(&host, (&definition, &entry), all, &written, span.clone(), late, &mut frames);
        let (state, level) = match &ended {
            Ok(()) => ("done".to_owned(), "info"),
            Err(why) => (why.clone(), "warning"),
        };
        let name = &definition.table.name;
        let at = if ended.is_ok() { span.end } else { span.start };
        host.derived.change(|book| book.note_backfill(name, &written, at, frames, &state));
        let text = format!("derived channel {name}: backfill {written}: {state}, {frames} results");
        let event = EventRow {
            time_ns: now_ns(),
            level: level.to_owned(),
            source: DERIVED_SOURCE.to_owned(),
            text,
            origin: EventOrigin::Server,
        };
        host.ledger.record_or_say(&host.ingest, &event);
    };
    let_run(std::thread::Builder::new().name("backfill".into()).spawn(run).map_err(StartError::NoThread)?);
    Ok(version)
}

/// Writes the results of all triggers.
fn write(
    host: &BackfillHost,
    (definition, entry): (&Definition, &DerivedEntry),
    all: Vec<Past>,
    version: &str,
    span: Range<i64>,
    late: bool,
    frames: &mut u64,
) -> Result<(), String> {
    let BackfillHost { ingest, stopping, .. } = host;
    // A reopened store may have lost results, and gives their streams other numbers.
    let opening = ingest.reopenings();
    let whole = || match ingest.reopenings() == opening {
        true => Ok(()),
        false => Err("the disk failed meanwhile: results are missing; run it again".to_owned()),
    };
    let mut newest = None;
    for mut one in all {
        let output = Output::resolve(ingest, definition, one.binding(), version).map_err(|error| error.to_string())?;
        let mut refused = None;
        let mut counts = Counts::default();
        let each = |results: &[Evaluated], at: i64| {
            for results in results.chunks(BATCH_RESULTS) {
                if let Err(why) = whole() {
                    refused = Some(why);
                    return false;
                }
                let batch = output.put(results.iter().map(|(frame, outcome)| (frame, outcome)), now_ns());
                match record::append(ingest, &batch) {
                    Ok(commit) => newest = Some(commit),
                    Err(error) => {
                        refused = Some(error.to_string());
                        return false;
                    }
                }
                *frames += results.len() as u64;
            }
            host.derived.change(|book| book.note_backfill(&entry.definition.name, version, at, *frames, "running"));
            if *stopping.borrow() {
                refused = Some("interrupted".to_owned());
            }
            refused.is_none()
        };
        let read = one.evaluate(|| ingest.store().view(), span.clone(), late, &mut counts, each);
        if let Some(why) = refused {
            return Err(why);
        }
        read.map_err(|error| format!("the record cannot be read: {error}"))?;
    }
    // Results must be durable before they are reported as done.
    let durable = newest.map_or(Ok(()), |commit| ingest.wait_durable(commit));
    whole()?;
    durable.map_err(|error| format!("not durable: {error}"))
}
