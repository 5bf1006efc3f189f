//! What the parts of a running server share.

pub mod descriptors;
pub mod layouts;
pub mod pulse;
pub mod sql;

use std::sync::Arc;
use std::time::{Duration, Instant};

use strongback_sources::ilp::Ingress;
use tokio::sync::{Semaphore, watch};

use crate::alarms::limits::Limits;
use crate::config::Config;
use crate::derived::Derived;
use crate::ingest::Ingest;
use crate::live::heartbeat::Beat;
use crate::live::seats::Seats;
use crate::playback::Playbacks;
use crate::process::allowance::Allowance;
use crate::process::budget::Budget;
use crate::process::connections::Connections;
use crate::process::exports::Exports;
use crate::process::readers::Readers;
use crate::process::viewers::Viewers;
use crate::runs::log::RunLog;
use crate::server::layouts::Layouts;
use crate::server::sql::Engine;
use crate::sources::clocks::Clocks;
use crate::sources::ledger::Ledger;
use crate::sources::roster::Roster;

/// A running server, as its connections see it.
pub struct Server {
    /// The configuration it was started with.
    pub config: Config,
    /// The token that clients must show, if any.
    pub token: Option<String>,
    /// Store and live.
    pub ingest: Arc<Ingest>,
    /// The line protocol's way in.
    pub ingress: Arc<Ingress>,
    /// Gaps and events.
    pub ledger: Arc<Ledger>,
    /// Clocks of runs.
    pub runs: Arc<RunLog>,
    /// Sources and their rates.
    pub roster: Arc<Roster>,
    /// Limits and alarms.
    pub limits: Arc<Limits>,
    /// Derived channels.
    pub derived: Arc<Derived>,
    /// Clocks of the sources.
    pub clocks: Clocks,
    /// SQL.
    pub query: Engine,
    /// Threads for reads of requests.
    pub readers: Readers,
    /// Threads that make live subscriptions.
    pub matchers: Readers,
    /// Threads for what is done by the clock.
    pub upkeep: Readers,
    /// Threads that tell live clients.
    pub viewers: Viewers,
    /// Threads for what judges or evaluates a span of the past, which may take long.
    pub scans: Readers,
    /// Exports under way.
    pub exports: Arc<Exports>,
    /// Connections of HTTP.
    pub connections: Arc<Connections>,
    /// Memory that clients make the server hold.
    pub budget: Arc<Budget>,
    /// Bodies of lines that are written at once.
    pub writers: Semaphore,
    /// How often clients may have something written down.
    pub allowance: Allowance,
    /// Places for live clients.
    pub live_clients: Arc<Seats>,
    /// The page's layouts that people saved.
    pub layouts: Arc<Layouts>,
    /// Playbacks of the record.
    pub playbacks: Playbacks,
    /// The page's prepared layout; null if there is none. A run with a clock goes before its own.
    pub view: serde_json::Value,
    /// When it was started.
    pub started: Instant,
    /// The newest heartbeat; empty before the first.
    pub heartbeat: watch::Sender<Beat>,
    /// Turns true when the server stops.
    pub stopping: watch::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("ingest", &self.ingest).finish_non_exhaustive()
    }
}

/// Longest time for an answer where the configuration sets none.
const PATIENCE: Duration = Duration::from_secs(3600);

impl Server {
    /// Longest time that a request may be read for.
    pub fn patience(&self) -> Duration {
        match self.config.query.statement_timeout_s {
            0 => PATIENCE,
            seconds => Duration::from_secs(seconds),
        }
    }

    /// The origin as people see it: 32 hexadecimal digits.
    pub fn origin(&self) -> String {
        format!("{:032x}", self.ingest.store().origin())
    }
}

/// Completes when the server stops.
pub async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped, too.
    let _ = stopping.wait_for(|stop| *stop).await;
}
