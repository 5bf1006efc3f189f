//! The server under attack, as all clients see it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::HostileMoment;
use crate::serving::ServerProcess;

/// Bytes of a strike that a failure shows.
const SHOWN_BYTES: usize = 300;
/// Failures kept; those after them follow from these.
const FAILURES_MAX: usize = 50;
/// Slowest updates kept.
const SLOWEST_MAX: usize = 20;

/// Where to strike, until when, and what went wrong.
pub(super) struct Target {
    /// Page, REST, line protocol over HTTP.
    pub(super) http: SocketAddr,
    /// Line protocol over TCP.
    #[allow(dead_code, reason = "each kind of client takes its own way")]
    pub(super) ilp: SocketAddr,
    /// PostgreSQL wire.
    pub(super) pg: SocketAddr,
    begin: Instant,
    until: Instant,
    ended: AtomicBool,
    under_way: Mutex<BTreeMap<(&'static str, u64), String>>,
    failures: Mutex<Vec<HostileMoment>>,
    slowest: Mutex<Vec<(Duration, HostileMoment)>>,
}

impl Target {
    pub(super) fn new(server: &ServerProcess, until: Instant) -> Target {
        Target {
            http: server.http,
            ilp: server.ilp,
            pg: server.pg,
            begin: Instant::now(),
            until,
            ended: AtomicBool::new(false),
            under_way: Mutex::default(),
            failures: Mutex::default(),
            slowest: Mutex::default(),
        }
    }

    /// Whether clients stop.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// How long it has lasted.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Runs a strike, known by its kind and seed as long as it is under way.
    pub(super) fn strike<T>(&self, kind: &'static str, seed: u64, what: &str, work: impl FnOnce() -> T) -> T {
        let shown = what.char_indices().nth(SHOWN_BYTES).map_or(what, |(end, _)| &what[..end]);
        self.under_way.lock().insert((kind, seed), shown.to_owned());
        let done = work();
        self.under_way.lock().remove(&(kind, seed));
        done
    }

    /// Returns what is under way now.
    pub(super) fn moment(&self, what: &str) -> HostileMoment {
        let strikes = self.under_way.lock();
        let under_way = strikes.iter().map(|((kind, seed), shown)| format!("{kind} seed {seed}: {shown}")).collect();
        drop(strikes);
        HostileMoment { at_s: self.elapsed().as_secs_f64(), what: what.to_owned(), under_way }
    }

    /// Records that something went wrong.
    pub(super) fn fail(&self, what: &str) {
        let moment = self.moment(what);
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_MAX {
            failures.push(moment);
        }
    }

    /// Records that something went wrong after which nothing more can be learnt.
    pub(super) fn end(&self, what: &str) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.fail(what);
        }
    }

    /// Keeps what was slow, and what was under way, if it is one of the slowest.
    pub(super) fn slow(&self, wait: Duration, what: impl FnOnce() -> String) {
        let mut slowest = self.slowest.lock();
        let at = slowest.partition_point(|(longer, _)| *longer >= wait);
        if at < SLOWEST_MAX {
            slowest.insert(at, (wait, self.moment(&what())));
            slowest.truncate(SLOWEST_MAX);
        }
    }

    /// Returns the slowest updates, those that took longest first.
    pub(super) fn slowest(&self) -> Vec<HostileMoment> {
        self.slowest.lock().iter().map(|(_, moment)| moment.clone()).collect()
    }

    pub(super) fn into_failures(self) -> Vec<HostileMoment> {
        self.failures.into_inner()
    }
}
