//! State shared by the parts of a running server.

pub mod bulk;
pub mod descriptors;
pub mod layouts;
pub mod pulse;
pub mod sql;

use std::sync::Arc;
use std::time::{Duration, Instant};

use strongback_sources::ilp::Ingress;
use tokio::sync::{Semaphore, watch};

use crate::alarms::limits::Limits;
use crate::archives::Archives;
use crate::config::Config;
use crate::derived::Derived;
use crate::ingest::Ingest;
use crate::live::heartbeat::Beat;
use crate::live::seats::Seats;
use crate::marks::log::MarkLog;
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
    /// Token that clients must present, if any.
    pub token: Option<String>,
    /// Store and live data.
    pub ingest: Arc<Ingest>,
    /// Entry point of line protocol.
    pub ingress: Arc<Ingress>,
    /// Gaps and events.
    pub ledger: Arc<Ledger>,
    /// Clocks of runs.
    pub runs: Arc<RunLog>,
    /// Marks of stored values.
    pub marks: Arc<MarkLog>,
    /// Followers.
    pub archives: Arc<Archives>,
    /// Source registry.
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
    /// Threads for requests that write a record. A disk that hangs holds these, and no reads.
    pub recorders: Readers,
    /// Threads that make live subscriptions.
    pub matchers: Readers,
    /// Threads for periodic work.
    pub upkeep: Readers,
    /// Threads that serve live clients.
    pub viewers: Viewers,
    /// Threads that judge or evaluate a past span, which may take long.
    pub scans: Readers,
    /// Exports under way.
    pub exports: Arc<Exports>,
    /// HTTP connections.
    pub connections: Arc<Connections>,
    /// Memory held for clients.
    pub budget: Arc<Budget>,
    /// Permits for concurrent writes of line protocol over HTTP.
    pub writers: Semaphore,
    /// Rate limit for requests that have something recorded.
    pub allowance: Allowance,
    /// Connection limit of live clients.
    pub live_clients: Arc<Seats>,
    /// Saved layouts of the page.
    pub layouts: Arc<Layouts>,
    /// Playbacks of stored data.
    pub playbacks: Playbacks,
    /// Configured layout of the page; null if there is none. A run with a clock takes precedence over the configured
    /// run.
    pub view: serde_json::Value,
    /// Start of the server.
    pub started: Instant,
    /// The newest heartbeat; empty before the first.
    pub heartbeat: watch::Sender<Beat>,
    /// Becomes true when the server stops.
    pub stopping: watch::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("ingest", &self.ingest).finish_non_exhaustive()
    }
}

/// Max time for an answer if the configuration sets none.
const PATIENCE: Duration = Duration::from_secs(3600);

impl Server {
    /// Returns the max time for the reads of a request.
    pub fn patience(&self) -> Duration {
        match self.config.query.statement_timeout_s {
            0 => PATIENCE,
            seconds => Duration::from_secs(seconds),
        }
    }

    /// Returns the origin as 32 hexadecimal digits.
    pub fn origin(&self) -> String {
        format!("{:032x}", self.ingest.store().origin())
    }
}

/// Waits until the server stops.
pub async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped, too.
    let _ = stopping.wait_for(|stop| *stop).await;
}
