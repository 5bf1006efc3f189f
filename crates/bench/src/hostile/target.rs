//! The server under attack, shared by all clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::HostileMoment;
use crate::serving::ServerProcess;

/// Number of bytes of a strike that a failure shows.
const SHOWN_BYTES: usize = 300;
/// Max number of failures that are kept; later ones are mere consequences.
const FAILURES_MAX: usize = 50;
/// Number of slowest updates that are kept.
const SLOWEST_MAX: usize = 20;

/// Addresses to attack, time limit, and failures so far.
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

    /// Returns whether clients should stop.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Runs a strike, listed by its kind and seed while it is running.
    pub(super) fn strike<T>(&self, kind: &'static str, seed: u64, what: &str, work: impl FnOnce() -> T) -> T {
        let shown = what.char_indices().nth(SHOWN_BYTES).map_or(what, |(end, _)| &what[..end]);
        self.under_way.lock().insert((kind, seed), shown.to_owned());
        let done = work();
        self.under_way.lock().remove(&(kind, seed));
        done
    }

    /// Returns the strikes running now.
    pub(super) fn moment(&self, what: &str) -> HostileMoment {
        let strikes = self.under_way.lock();
        let under_way = strikes.iter().map(|((kind, seed), shown)| format!("{kind} seed {seed}: {shown}")).collect();
        drop(strikes);
        HostileMoment { at_s: self.elapsed().as_secs_f64(), what: what.to_owned(), under_way }
    }

    /// Records a failure.
    pub(super) fn fail(&self, what: &str) {
        let moment = self.moment(what);
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_MAX {
            failures.push(moment);
        }
    }

    /// Records a failure after which the run cannot continue.
    pub(super) fn end(&self, what: &str) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.fail(what);
        }
    }

    /// Keeps a slow update, with the strikes running at that time, if it is one of the slowest.
    pub(super) fn slow(&self, wait: Duration, what: impl FnOnce() -> String) {
        let mut slowest = self.slowest.lock();
        let at = slowest.partition_point(|(longer, _)| *longer >= wait);
        if at < SLOWEST_MAX {
            slowest.insert(at, (wait, self.moment(&what())));
            slowest.truncate(SLOWEST_MAX);
        }
    }

    /// Returns the slowest updates, slowest first.
    pub(super) fn slowest(&self) -> Vec<HostileMoment> {
        self.slowest.lock().iter().map(|(_, moment)| moment.clone()).collect()
    }

    pub(super) fn into_failures(self) -> Vec<HostileMoment> {
        self.failures.into_inner()
    }
}
