//! Many simultaneous clients, and their observations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Barrier;
use tokio::task::JoinError;

use super::client::{Client, Seen};
use crate::ingest::percentile;
use crate::serving::{ServerProcess, Usage, usage};

/// Time before measuring, which excludes first allocations.
const WARM_UP: Duration = Duration::from_secs(2);

/// Observations of each client, and the resources used meanwhile.
pub(crate) struct Crowd {
    pub(crate) seen: Vec<Seen>,
    pub(super) span_s: f64,
    pub(super) core_percent: f64,
    pub(super) rss_mib: f64,
    pub(super) rss_mib_max: f64,
    /// Processor time of this process, which runs the clients, in percent of a core.
    pub(super) clients_core_percent: f64,
}

/// Connects all clients, waits until each has its first update, then measures once.
///
/// # Errors
/// A client is refused, or receives nothing.
pub(super) fn measure(server: &ServerProcess, clients: Vec<Client>, span: Duration) -> anyhow::Result<Crowd> {
    let mut measured = None;
    watch(
        server,
        clients,
        (span, 1),
        || (),
        |crowd| {
            measured = Some(crowd);
            Ok(())
        },
    )?;
    measured.context("no round was measured")
}

/// Measures `rounds` spans on the same connections. Calls `opened` once all clients have their first update, and
/// `each` with the result of every round.
///
/// # Errors
/// As for [`measure`], and any error of `each`.
pub(crate) fn watch(
    server: &ServerProcess,
    clients: Vec<Client>,
    (span, rounds): (Duration, u64),
    opened: impl FnOnce(),
    mut each: impl FnMut(Crowd) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let url = format!("ws://{}/api/live", server.http);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ready = Arc::new(Barrier::new(clients.len() + 1));
        let seen: Vec<Arc<Mutex<Seen>>> = clients.iter().map(|_| Arc::default()).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for (client, seen) in clients.into_iter().zip(&seen) {
            tasks.spawn(client.run(url.clone(), ready.clone(), seen.clone()));
        }
        tokio::select! {
            _ = ready.wait() => {}
            failed = tasks.join_next() => return ended(failed),
        }
        opened();
        tokio::select! {
            () = tokio::time::sleep(WARM_UP) => {}
            failed = tasks.join_next() => return ended(failed),
        }
        let take = || seen.iter().map(|seen| std::mem::take(&mut *seen.lock())).collect::<Vec<Seen>>();
        let usage = || [server.usage(), usage(std::process::id())];
        take();
        let (mut before, begin) = (usage(), Instant::now());
        for round in 1..=rounds {
            let started = Instant::now();
            tokio::select! {
                () = tokio::time::sleep_until((begin + span * round as u32).into()) => {}
                failed = tasks.join_next() => return ended(failed),
            }
            let (seen, after, span_s) = (take(), usage(), started.elapsed().as_secs_f64());
            let [core_percent, clients_core_percent] =
                [0, 1].map(|of| 100.0 * (after[of].cpu_s - before[of].cpu_s) / span_s);
            before = after;
            let [Usage { rss_mib, rss_mib_max, .. }, _] = after;
            each(Crowd { seen, span_s, core_percent, rss_mib, rss_mib_max, clients_core_percent })?;
        }
        Ok(())
    })
}

/// Returns the error of a client that ended; clients do not end during a measurement.
fn ended(client: Option<Result<anyhow::Result<()>, JoinError>>) -> anyhow::Result<()> {
    match client {
        Some(ended) => ended?.and_then(|()| bail!("a client ended")),
        None => bail!("there are no clients"),
    }
}

/// Figures of a crowd.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CrowdResult {
    /// Name of the measurement.
    pub(super) name: String,
    /// Number of clients.
    pub(super) clients: usize,
    /// Length of the measurement in seconds.
    pub(super) seconds: f64,
    /// Updates per second and client: mean over the clients.
    pub(super) rate_hz: f64,
    /// Standard deviation of that rate over the clients, in percent of the mean.
    pub(super) rate_deviation_percent: f64,
    /// Number of windows decoded.
    pub(super) windows: u64,
    /// Median time from the stamp of a window's newest frame until it is decoded, in milliseconds.
    pub(super) fresh_p50_ms: f64,
    /// 99th percentile of this time.
    pub(super) fresh_p99_ms: f64,
    /// Max of this time.
    pub(super) fresh_max_ms: f64,
    /// Median time between two updates, in milliseconds.
    pub(super) interval_p50_ms: f64,
    /// 99th percentile of the time between two updates.
    pub(super) interval_p99_ms: f64,
    /// Max time between two updates.
    pub(super) interval_max_ms: f64,
    /// Share of updates that came more than half a period late, in percent.
    pub(super) late_percent: f64,
    /// Bytes of messages per second, over all clients.
    pub(super) bytes_per_s: f64,
    /// Number of updates merged.
    pub(super) conflated: u64,
    /// Number of windows lost.
    pub(super) dropped: u64,
    /// Processor time of the server, in percent of a core.
    pub(super) server_core_percent: f64,
    /// Memory of the server at the end, in MiB.
    pub(super) server_rss_mib: f64,
    /// Max memory of the server, in MiB.
    pub(super) server_rss_mib_max: f64,
    /// Processor time of the clients, in percent of a core.
    pub(super) clients_core_percent: f64,
}

impl Crowd {
    /// Returns the figures; `period_ms` is the period of the updates.
    ///
    /// # Errors
    /// No client received anything.
    pub(super) fn result(self, name: String, period_ms: f64) -> anyhow::Result<CrowdResult> {
        let clients = self.seen.len();
        let rates: Vec<f64> = self.seen.iter().map(|seen| seen.updates as f64 / self.span_s).collect();
        let rate_hz = rates.iter().sum::<f64>() / clients as f64;
        let variance = rates.iter().map(|rate| (rate - rate_hz).powi(2)).sum::<f64>() / clients as f64;
        let mut all = Seen::default();
        self.seen.into_iter().for_each(|seen| all.add(seen));
        (!all.fresh_ms.is_empty() && !all.intervals_ms.is_empty()).then_some(()).context("no update came")?;
        let late = all.intervals_ms.iter().filter(|ms| **ms > 1.5 * period_ms).count();
        Ok(CrowdResult {
            name,
            clients,
            seconds: self.span_s,
            rate_hz,
            rate_deviation_percent: 100.0 * variance.sqrt() / rate_hz,
            windows: all.windows,
            late_percent: 100.0 * late as f64 / all.intervals_ms.len() as f64,
            fresh_p50_ms: percentile(&mut all.fresh_ms, 0.5),
            fresh_p99_ms: percentile(&mut all.fresh_ms, 0.99),
            fresh_max_ms: percentile(&mut all.fresh_ms, 1.0),
            interval_p50_ms: percentile(&mut all.intervals_ms, 0.5),
            interval_p99_ms: percentile(&mut all.intervals_ms, 0.99),
            interval_max_ms: percentile(&mut all.intervals_ms, 1.0),
            bytes_per_s: all.bytes as f64 / self.span_s,
            conflated: all.conflated,
            dropped: all.dropped,
            server_core_percent: self.core_percent,
            server_rss_mib: self.rss_mib,
            server_rss_mib_max: self.rss_mib_max,
            clients_core_percent: self.clients_core_percent,
        })
    }
}
