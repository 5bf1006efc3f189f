//! Derived channels: expressions over channels, evaluated live and over stored data.
//!
//! ```text
//! Fanout::publish ─> tap: the channels of expressions          one lookup per frame
//! each 10 ms      ─> hold: by event time, held back align_ms   on its own thread, here
//!                 ─> instance ─> strongback_query::Program     the same over stored data (past)
//!                 ─> Ingest: results as frames of streams of the source `derived`
//! ```
//!
//! Invariants:
//! - Stored frames, without those in `strongback.late` for an evaluation, reproduce its results bit for bit.
//! - Results are appended after their triggers, and before the standing that covers them.
//! - An evaluation reads results of another only up to the place from which on that may still give results.

pub mod backfill;
pub mod binding;
pub mod book;
pub mod definition;
pub mod hold;
pub mod instance;
pub mod past;
pub mod record;
pub mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_query::{EventOrigin, EventRow};
use strongback_store::{Catalog, ChannelIndex, Reject, ScanError, Stream, StreamId};
use tokio::sync::watch;

use crate::ingest::Ingest;
use crate::process::clock;
use crate::process::clock::{Leaps, now_ns};
use crate::reception::turns;
use crate::sources::ledger::Ledger;
use crate::sources::roster::DERIVED_SOURCE;

use book::{Definitions, DerivedEntry};
use definition::Definition;
use instance::{Again, Instance, layouts};
use status::DerivedStatus;

/// Min and max time between two standings of an evaluation in progress.
const STAND_EACH_NS: Range<i64> = 10_000_000_000..600_000_000_000;
/// Bytes per second that the standings of all evaluations may take: the larger they are, the less often they are
/// written.
const STAND_BYTES_A_SECOND: u64 = 64 << 10;
/// Time after which unchanged standings are written again, so that the newest one does not expire with the oldest
/// data.
const STAND_AGAIN_NS: i64 = 600_000_000_000;
/// Time between two events about problems of one derived channel.
const TELL_EACH_NS: i64 = 60_000_000_000;
/// Interval of checks of the catalog while it grows.
const LOOK_EACH_NS: i64 = 100_000_000;
/// Time before an operation that failed because of the store is retried.
const AGAIN_NS: i64 = 1_000_000_000;
/// Max evaluations.
const INSTANCES_MAX: usize = 1_024;
/// Max results appended at once.
const BATCH_RESULTS: usize = 1_024;
/// Max late frames waiting to be recorded.
const LATE_MAX: usize = 100_000;

/// Derived channels of a server.
#[derive(Debug)]
pub struct Derived {
    book: Mutex<Definitions>,
    /// Allows one change at a time; held while the file is written, so that `book` need not be.
    changing: Mutex<()>,
    status: Mutex<BTreeMap<String, DerivedStatus>>,
    /// Counters.
    pub counters: DerivedCounters,
}

/// Counters of derived channels since start.
#[derive(Debug, Default)]
pub struct DerivedCounters {
    /// Current evaluations.
    pub instances: AtomicU64,
    /// Triggers evaluated.
    pub results: AtomicU64,
    /// Frames that arrived after their turn.
    pub late: AtomicU64,
    /// Evaluations that failed.
    pub failed: AtomicU64,
    /// Divisions by zero.
    pub zero_divisors: AtomicU64,
    /// Samples that did not fit into a window.
    pub left_out: AtomicU64,
}

/// Trigger stream of a derived channel whose inputs cannot be resolved yet.
#[derive(Debug)]
struct UntiedStream {
    name: String,
    trigger: StreamId,
    why: String,
    /// Whether no future channel can change that.
    is_final: bool,
}

/// State of the thread.
#[derive(Debug, Default)]
struct DerivedThread {
    /// Change counter of the definitions that were read.
    changes: u64,
    definitions: Vec<(Arc<Definition>, DerivedEntry)>,
    /// Evaluations, each after those it depends on.
    instances: Vec<Instance>,
    pending: Vec<UntiedStream>,
    catalog: Option<u64>,
    looked_at: i64,
    /// Number of streams of the catalog that were examined.
    scanned: usize,
    /// Number of streams when the thread was created; taken when the definitions are read.
    streams_before: Option<usize>,
    /// Number of streams when a version was first read; later streams appeared while it was in force.
    appeared_from: HashMap<(String, u32), usize>,
    reopenings: u64,
    retry_at: i64,
    stood_at: i64,
    /// Bytes written by the latest standings.
    stood_bytes: u64,
    /// Time when all standings were written, including unchanged ones.
    all_stood_at: i64,
    told: HashMap<String, i64>,
    clock: Leaps,
}

impl DerivedThread {
    /// Shifts all stored instants by `by_ns`, because the clock was set by that much.
    fn leap(&mut self, by_ns: i64) {
        self.instances.iter_mut().for_each(|instance| instance.leap(by_ns));
        let instants = [&mut self.looked_at, &mut self.retry_at, &mut self.stood_at, &mut self.all_stood_at];
        instants.into_iter().chain(self.told.values_mut()).for_each(|at| *at = at.saturating_add(by_ns));
    }
}

impl Derived {
    /// Creates derived channels with these definitions.
    pub fn new(book: Definitions) -> Self {
        let (changing, status, counters) = Default::default();
        Derived { book: Mutex::new(book), changing, status, counters }
    }

    /// Locks the definitions for reading.
    pub fn book(&self) -> impl Deref<Target = Definitions> + '_ {
        self.book.lock()
    }

    /// Changes the definitions. Readers see the change once `change` has returned, so none waits for the disk.
    pub fn change<T>(&self, change: impl FnOnce(&mut Definitions) -> T) -> T {
        let _one = self.changing.lock();
        let mut changed = self.book.lock().clone();
        let result = change(&mut changed);
        *self.book.lock() = changed;
        result
    }

    /// Returns the version in force of each, by its `table.channel`.
    pub fn versions(&self) -> BTreeMap<String, u32> {
        let all = self.book.lock().in_force();
        all.into_iter().map(|(definition, entry)| (definition.path(), entry.version)).collect()
    }

    /// Returns the status of a version of a derived channel.
    pub fn status(&self, name: &str, version: u32) -> Option<DerivedStatus> {
        if let Some(why) = self.book.lock().unfit().get(name) {
            let mut status = DerivedStatus::new(version);
            status.never(why);
            return Some(status);
        }
        self.status.lock().get(name).filter(|status| status.version == version).cloned()
    }

    /// Returns the failing derived channels, each with its problem.
    pub fn troubles(&self) -> Vec<(String, String)> {
        let unfit = self.book.lock().unfit().clone();
        let status = self.status.lock();
        let failing = status.iter().filter_map(|(name, status)| Some((name.clone(), status.trouble(now_ns())?)));
        unfit.into_iter().chain(failing).collect()
    }

    /// Starts the thread, which ends when the server stops.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        self: Arc<Self>,
        ingest: Arc<Ingest>,
        ledger: Arc<Ledger>,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<JoinHandle<()>> {
        let streams_before = Some(ingest.store().catalog().streams.len());
        let mut work = DerivedThread { reopenings: ingest.reopenings(), streams_before, ..DerivedThread::default() };
        turns::start("derived", stopping, move |stop| self.turn(&mut work, &ingest, &ledger, clock::both(), stop))
    }

    /// Evaluates what is due; with `stop`, everything received.
    fn turn(
        &self,
        work: &mut DerivedThread,
        ingest: &Ingest,
        ledger: &Ledger,
        (now, steady): (i64, Duration),
        stop: bool,
    ) {
        if let Some(by_ns) = work.clock.look((now, steady)) {
            work.leap(by_ns);
        }
        if work.reopenings != ingest.reopenings() {
            // Stream numbers may have changed, and data that was not durable is lost.
            let (told, clock) = (std::mem::take(&mut work.told), std::mem::take(&mut work.clock));
            let appeared_from = std::mem::take(&mut work.appeared_from);
            *work = DerivedThread {
                reopenings: ingest.reopenings(),
                told,
                clock,
                appeared_from,
                ..DerivedThread::default()
            };
        }
        if work.changes != self.book.lock().changes {
            self.read_book(work, ingest);
        }
        self.dispatch(work, ingest, now);
        if now >= work.retry_at
            && let Err(error) = self.adopt(work, ingest, now)
        {
            work.retry_at = now.saturating_add(AGAIN_NS);
            tell(work, ingest, ledger, now, "", format!("the record cannot be read: {error}"));
        }
        let mut pending: HashMap<StreamId, i64> = HashMap::new();
        for at in 0..work.instances.len() {
            let instance = &mut work.instances[at];
            // Earliest place at which its inputs may still get results.
            let limit = instance.inputs.iter().filter_map(|(id, _)| Some((*pending.get(id)?, id.0, 0))).min();
            if now >= work.retry_at
                && let Err(error) = self.evaluate(instance, ingest, now, limit, !stop)
            {
                work.retry_at = now.saturating_add(AGAIN_NS);
                instance.trouble = Some((now, error));
            }
            let own = instance.pending();
            if let Some(first) = own.into_iter().chain(limit.map(|limit| limit.0)).min() {
                // Several evaluations may write to one stream.
                let known = pending.entry(instance.output.stream).or_insert(first);
                *known = first.min(*known);
            }
            self.dispatch(work, ingest, now);
        }
        let stand = stop || now.saturating_sub(work.stood_at) >= stand_each_ns(work.stood_bytes);
        if stand && now.saturating_sub(work.all_stood_at) >= STAND_AGAIN_NS {
            work.all_stood_at = now;
            work.instances.iter_mut().for_each(Instance::stand_again);
        }
        let mut bytes = 0;
        for instance in work.instances.iter_mut().filter(|instance| stand || instance.stands_first()) {
            // A standing implies that frames were seen, so record the late ones first.
            name_late(instance, ingest, now);
            if ingest.refusal().is_none() && instance.late_rows.is_empty() {
                match record_standing(instance, ingest) {
                    Ok(written) => bytes += written,
                    Err(error) => tracing::warn!(%error, "where {} stands is not recorded", instance.label),
                }
            }
        }
        if stand {
            (work.stood_at, work.stood_bytes) = (now, bytes);
        }
        self.report(work, ingest, ledger, now);
    }

    /// Applies changes of the definitions: evaluations of other versions end.
    fn read_book(&self, work: &mut DerivedThread, ingest: &Ingest) {
        let book = self.book.lock();
        work.changes = book.changes;
        let in_force = book.in_force();
        drop(book);
        work.definitions = in_force;
        let definitions = &work.definitions;
        let streams = work.streams_before.take().unwrap_or_else(|| ingest.store().catalog().streams.len());
        let mut known = std::mem::take(&mut work.appeared_from);
        let since = |(_, entry): &(Arc<Definition>, DerivedEntry)| {
            let version = (entry.definition.name.clone(), entry.version);
            let from = known.remove(&version).unwrap_or(streams);
            (version, from)
        };
        work.appeared_from = definitions.iter().map(since).collect();
        let holds = |instance: &Instance| {
            let same =
                |entry: &DerivedEntry| (&entry.definition.name, entry.version) == (&instance.name, instance.version);
            definitions.iter().any(|(_, entry)| same(entry))
        };
        work.instances.retain(holds);
        let place = |name: &str| definitions.iter().position(|(_, entry)| entry.definition.name == name);
        work.instances.sort_by_key(|instance| place(&instance.name));
        (work.pending, work.scanned, work.catalog) = (Vec::new(), 0, None);
        self.status.lock().retain(|name, _| place(name).is_some());
    }

    /// Passes received frames to the evaluations.
    fn dispatch(&self, work: &mut DerivedThread, ingest: &Ingest, now: i64) {
        let (seen, lost, nameless) = ingest.live().fanout().derived.take();
        if nameless > 0 {
            tracing::error!("{nameless} frames found no room, of those that are not named one by one");
        }
        for frame in &seen {
            for instance in &mut work.instances {
                instance.take(now, frame);
            }
        }
        for (stream, _) in lost {
            let reads = |instance: &&mut Instance| instance.inputs.iter().any(|(id, _)| *id == stream);
            work.instances.iter_mut().filter(reads).for_each(Instance::miss);
        }
    }

    /// Examines new and changed streams, and begins evaluations that can begin.
    fn adopt(&self, work: &mut DerivedThread, ingest: &Ingest, now: i64) -> Result<(), ScanError> {
        let catalog = ingest.store().catalog();
        let is_due = work.catalog.is_none() || now.saturating_sub(work.looked_at) >= LOOK_EACH_NS;
        if work.catalog != Some(catalog.version) && is_due {
            (work.catalog, work.looked_at) = (Some(catalog.version), now);
            self.tie(work, ingest, &catalog);
        }
        let recording = ingest.refusal().is_none();
        let begins = |instance: &Instance| match instance.again {
            // Frames that are not recorded cannot be read, so it continues with live ones.
            Some(Again::Record) => recording,
            Some(Again::Missed) => true,
            None => false,
        };
        if !work.instances.iter().any(begins) {
            return Ok(());
        }
        let view = {
            let mut fanout = ingest.live().fanout();
            fanout.derived.clear();
            for (id, channels) in wanted(&work.instances) {
                let source_clock = catalog.stream(id).is_some_and(|stream| Instance::is_source_clock(stream));
                let channels: Vec<ChannelIndex> = channels.into_iter().collect();
                fanout.derived.want(id, source_clock, &channels, true);
            }
            ingest.store().view()
        };
        // Before anything is taken from the tap, which has the rows from the view's next row on.
        for instance in work.instances.iter_mut().filter(|instance| begins(instance)) {
            instance.begin(&view, instance.again, now)?;
        }
        Ok(())
    }

    /// Resolves the inputs of derived channels for the streams that trigger them.
    fn tie(&self, work: &mut DerivedThread, ingest: &Ingest, catalog: &Catalog) {
        let version_of = |path: &str| {
            let of = |(definition, _): &&(Arc<Definition>, DerivedEntry)| definition.path() == path;
            work.definitions.iter().find(of).map(|(_, entry)| entry.version)
        };
        // Instances whose streams have changed are resolved again.
        let holds = |instance: &Instance| {
            let same = |(id, version): &(StreamId, u32)| {
                catalog.stream(*id).is_some_and(|stream| stream.layout.version == *version)
            };
            instance.layouts.iter().all(same)
        };
        let changed: Vec<(String, StreamId)> = work
            .instances
            .iter()
            .filter(|instance| !holds(instance))
            .map(|instance| (instance.name.clone(), instance.trigger.id))
            .collect();
        let mut untied: Vec<(String, StreamId)> =
            work.pending.drain(..).map(|pending| (pending.name, pending.trigger)).collect();
        for stream in catalog.streams.iter_from(work.scanned) {
            if stream.source == "internal" {
                continue;
            }
            for (definition, _) in work.definitions.iter().filter(|(definition, _)| triggers(definition, stream, work))
            {
                untied.push((definition.table.name.clone(), stream.id));
            }
        }
        work.scanned = catalog.streams.len();
        untied.extend(changed);
        let mut pending = Vec::new();
        for (name, trigger) in untied {
            let Some((definition, entry)) = work.definitions.iter().find(|(_, entry)| entry.definition.name == name)
            else {
                continue;
            };
            let Some(stream) = catalog.stream(trigger) else { continue };
            let old = work.instances.iter().position(|of| of.name == name && of.trigger.id == trigger);
            let bound = binding::bind(definition, stream, catalog, version_of)
                .map_err(|error| (error.to_string(), !matches!(error, binding::BindError::Unknown { .. })));
            let made = bound.and_then(|binding| {
                // Usually a channel was added that it does not read.
                if let Some(instance) = old.map(|at| &mut work.instances[at])
                    && instance.is_tied_as(&binding)
                {
                    instance.layouts = layouts(&binding);
                    return Ok(None);
                }
                if old.is_none() && work.instances.len() >= INSTANCES_MAX {
                    return Err((format!("there are {INSTANCES_MAX} evaluations, and can be no more"), false));
                }
                let version = entry.version.to_string();
                let output = record::Output::resolve(ingest, definition, &binding, &version);
                let output = output.map_err(|error| (error.to_string(), false))?;
                Ok(Some(Instance::new(entry, definition, binding, output)))
            });
            match made {
                Ok(None) => {}
                Ok(Some(mut instance)) => {
                    instance.again = Some(Again::Record);
                    let appeared_from = work.appeared_from.get(&(name, entry.version));
                    if appeared_from.is_some_and(|from| trigger.0 as usize >= *from) {
                        instance.has_appeared();
                    }
                    match old {
                        // The new one reads its standing from the store, so record what only the old one knows.
                        Some(at) => {
                            name_late(&mut work.instances[at], ingest, now_ns());
                            if let Some(standing) = work.instances[at].standing() {
                                let stood = record::stand(ingest, &instance.label, instance.run(), &standing);
                                if let Err(error) = stood {
                                    tracing::warn!(%error, "{} lost its place", instance.label);
                                }
                            }
                            instance.counts = work.instances[at].counts;
                            instance.late_rows = std::mem::take(&mut work.instances[at].late_rows);
                            work.instances[at] = instance;
                        }
                        None => work.instances.push(instance),
                    }
                }
                Err((why, is_final)) => {
                    if let Some(at) = old {
                        work.instances.remove(at);
                    }
                    pending.push(UntiedStream { name, trigger, why, is_final });
                }
            }
        }
        work.pending = pending;
        let definitions = &work.definitions;
        let place = |name: &str| definitions.iter().position(|(_, entry)| entry.definition.name == name);
        work.instances.sort_by_key(|instance| place(&instance.name));
    }

    /// Evaluates what is due for one instance, and appends its results.
    fn evaluate(
        &self,
        instance: &mut Instance,
        ingest: &Ingest,
        now: i64,
        limit: Option<hold::Key>,
        align: bool,
    ) -> Result<(), String> {
        name_late(instance, ingest, now);
        // Before its first result, so that a replay can continue from here with the live memory.
        if instance.stands_first()
            && ingest.refusal().is_none()
            && let Err(error) = record_standing(instance, ingest)
        {
            return Err(format!("where it stands is not recorded: {error}"));
        }
        let before = instance.counts;
        let results = instance
            .turn(|| ingest.store().view(), now, limit, align)
            .map_err(|error| format!("the record cannot be read: {error}"))?;
        let after = instance.counts;
        let counters = &self.counters;
        counters.results.fetch_add(after.results - before.results, Relaxed);
        counters.failed.fetch_add(after.failed - before.failed, Relaxed);
        counters.zero_divisors.fetch_add(after.zero_divisors - before.zero_divisors, Relaxed);
        counters.left_out.fetch_add(after.left_out - before.left_out, Relaxed);
        for results in results.chunks(BATCH_RESULTS) {
            let results = results.iter().map(|(frame, outcome)| (frame, outcome));
            let batch = instance.output.put(results, instance.recorded_at(now));
            if let Err(error) = record::append(ingest, &batch) {
                // They are computed again from stored data once the store accepts them, beginning after the newest
                // stored one, so that none is stored out of order.
                instance.again = Some(Again::Record);
                instance.trouble = Some((now, format!("results are not recorded: {error}")));
                break;
            }
        }
        Ok(())
    }

    /// Updates the status of each derived channel, and reports problems.
    fn report(&self, work: &mut DerivedThread, ingest: &Ingest, ledger: &Ledger, now: i64) {
        self.counters.instances.store(work.instances.len() as u64, Relaxed);
        self.counters.late.store(work.instances.iter().map(|instance| instance.counts.late).sum(), Relaxed);
        let mut all = BTreeMap::new();
        for (definition, entry) in &work.definitions {
            let name = &definition.table.name;
            let mut status = DerivedStatus::new(entry.version);
            for instance in work.instances.iter().filter(|instance| instance.name == *name) {
                status.add(instance);
            }
            for pending in work.pending.iter().filter(|pending| pending.name == *name) {
                match pending.is_final {
                    true => status.never(&pending.why),
                    false => status.waits(&pending.why),
                }
            }
            all.insert(name.clone(), status);
        }
        let troubles: Vec<(String, String)> =
            all.iter().filter_map(|(name, status)| Some((name.clone(), status.news(now)?))).collect();
        *self.status.lock() = all;
        for (name, why) in troubles {
            tell(work, ingest, ledger, now, &name, why);
        }
    }
}

/// Records the standing of an evaluation, if it has changed. Returns the number of bytes written.
fn record_standing(instance: &mut Instance, ingest: &Ingest) -> Result<u64, Reject> {
    let Some(standing) = instance.standing() else { return Ok(0) };
    let recorded = record::stand(ingest, &instance.label, instance.run(), &standing);
    instance.note_standing(recorded.is_ok());
    recorded
}

/// Returns the time until the next standings, if the latest ones took `bytes`.
fn stand_each_ns(bytes: u64) -> i64 {
    let ns = bytes.saturating_mul(1_000_000_000) / STAND_BYTES_A_SECOND;
    i64::try_from(ns).unwrap_or(i64::MAX).clamp(STAND_EACH_NS.start, STAND_EACH_NS.end)
}

/// Returns whether a stream triggers a derived channel. Derived streams do so only in the version in force.
fn triggers(definition: &Definition, stream: &Stream, work: &DerivedThread) -> bool {
    let is_derived = binding::is_derived(stream);
    let in_force = |stream: &Stream| {
        let version = stream.key.tag(definition::VERSION);
        let of = |(other, entry): &(Arc<Definition>, DerivedEntry)| {
            other.key.table == stream.key.table && version == Some(entry.version.to_string().as_str())
        };
        work.definitions.iter().any(of)
    };
    definition.is_trigger(&stream.key, is_derived) && (!is_derived || in_force(stream))
}

/// Returns the channels that evaluations read, by stream.
fn wanted(instances: &[Instance]) -> BTreeMap<StreamId, BTreeSet<ChannelIndex>> {
    let mut all: BTreeMap<StreamId, BTreeSet<ChannelIndex>> = BTreeMap::new();
    for (id, channels) in instances.iter().flat_map(|instance| &instance.inputs) {
        all.entry(*id).or_default().extend(channels.iter().map(|(channel, _)| *channel));
    }
    all
}

/// Records frames that were too late.
fn name_late(instance: &mut Instance, ingest: &Ingest, now: i64) {
    if instance.late_rows.is_empty() || ingest.refusal().is_some() {
        instance.late_rows.truncate(LATE_MAX);
        return;
    }
    match record::name_late(ingest, &instance.label, &instance.late_rows, now) {
        Ok(()) => instance.late_rows.clear(),
        Err(error) => tracing::warn!(%error, "frames that came too late for {} are not named", instance.label),
    }
}

/// Reports a problem as an event, at most once a minute per derived channel.
fn tell(work: &mut DerivedThread, ingest: &Ingest, ledger: &Ledger, now: i64, name: &str, why: String) {
    let told = work.told.entry(name.to_owned()).or_insert(i64::MIN);
    if now.saturating_sub(*told) < TELL_EACH_NS {
        return;
    }
    *told = now;
    let text = if name.is_empty() { why } else { format!("derived channel {name}: {why}") };
    let event = EventRow {
        time_ns: now,
        level: "warning".to_owned(),
        source: DERIVED_SOURCE.to_owned(),
        text,
        origin: EventOrigin::Server,
    };
    ledger.record_or_say(ingest, &event);
}
