//! The pad's screens, unthrottled: 20 subscribers that receive every frame.

use std::time::Duration;

use anyhow::bail;
use serde::Serialize;

use super::client::{Client, Form, Seen};
use super::crowd;
use crate::ingest::percentile;
use crate::serving::ServerProcess;
use crate::table::{Table, short};

/// Number of subscribers.
const SUBSCRIBERS: usize = 20;
/// Channels of subscribers, in turn: a panel of values, fast plots, packets, controllers.
const SCREENS: [&[&str]; 4] = [
    &["avionics.sensor_values.*{acu=1}", "avionics.gnc.mode"],
    &["plc.fast.p_lox_tank", "plc.fast.p_purge_0?", "plc.fast.acc_01"],
    &["fti.bay.*"],
    &["plc.lox.*valve", "plc.lox.p_??", "plc.gse.*", "avionics.imu.*"],
];

/// Latency of one kind of screen, or of all.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LatencyResult {
    /// Name of the screen.
    pub(super) screen: String,
    /// Number of windows measured.
    pub(super) windows: u64,
    /// Number of updates received.
    pub(super) updates: u64,
    /// Number of channel windows decoded.
    pub(super) values: u64,
    /// Median latency in milliseconds.
    pub(super) p50_ms: f64,
    /// 99th percentile of latency in milliseconds.
    pub(super) p99_ms: f64,
    /// Max latency in milliseconds.
    pub(super) max_ms: f64,
    /// Number of updates merged because this client was slow.
    pub(super) conflated: u64,
    /// Number of windows lost.
    pub(super) dropped: u64,
}

/// Result of all screens.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScreensResult {
    /// Number of subscribers.
    pub(super) subscribers: usize,
    /// Length of the measurement in seconds.
    pub(super) seconds: f64,
    /// Latency over all screens.
    pub(super) latency_ms: LatencyResult,
    /// Latency of each kind of screen.
    pub(super) screens: Vec<LatencyResult>,
    /// Processor time of the server, in percent of a core.
    pub(super) server_core_percent: f64,
    /// Max memory of the server, in MiB.
    pub(super) server_rss_mib_max: f64,
}

/// Runs the measurement and prints its table.
///
/// # Errors
/// A client is refused, or receives nothing.
pub(super) fn run(server: &ServerProcess, span: Duration) -> anyhow::Result<ScreensResult> {
    let clients = (0..SUBSCRIBERS).map(|index| Client::of(SCREENS[index % SCREENS.len()], Form::Json)).collect();
    let crowd = crowd::measure(server, clients, span)?;
    let mut by_screen = vec![Seen::default(); SCREENS.len()];
    let mut all = Seen::default();
    for (index, seen) in crowd.seen.into_iter().enumerate() {
        all.add(seen.clone());
        by_screen[index % SCREENS.len()].add(seen);
    }
    let screens = SCREENS.iter().zip(by_screen).map(|(screen, seen)| latency(&screen.join(" "), seen));
    let result = ScreensResult {
        subscribers: SUBSCRIBERS,
        seconds: crowd.span_s,
        latency_ms: latency("all", all)?,
        screens: screens.collect::<anyhow::Result<_>>()?,
        server_core_percent: crowd.core_percent,
        server_rss_mib_max: crowd.rss_mib_max,
    };
    print(&result);
    Ok(result)
}

fn latency(screen: &str, mut seen: Seen) -> anyhow::Result<LatencyResult> {
    if seen.fresh_ms.is_empty() {
        bail!("no update for {screen}");
    }
    Ok(LatencyResult {
        screen: screen.into(),
        windows: seen.windows,
        updates: seen.updates,
        values: seen.values,
        p50_ms: percentile(&mut seen.fresh_ms, 0.5),
        p99_ms: percentile(&mut seen.fresh_ms, 0.99),
        max_ms: percentile(&mut seen.fresh_ms, 1.0),
        conflated: seen.conflated,
        dropped: seen.dropped,
    })
}

fn print(report: &ScreensResult) {
    println!(
        "Stamp in the payload to decoded at the subscriber: {} subscribers, unthrottled, the pad's 68,500 points/s, {} s\n",
        report.subscribers, report.seconds
    );
    let mut table = Table::new(["screen", "windows/s", "p50 ms", "p99 ms", "max ms", "conflated", "dropped"]);
    for r in report.screens.iter().chain([&report.latency_ms]) {
        table.row([
            r.screen.clone(),
            short(r.windows as f64 / report.seconds),
            format!("{:.2}", r.p50_ms),
            format!("{:.2}", r.p99_ms),
            format!("{:.2}", r.max_ms),
            r.conflated.to_string(),
            r.dropped.to_string(),
        ]);
    }
    table.print();
    println!(
        "\nServer: {:.0} % of a core, at most {:.0} MiB. Durability: recording, commits each 50 ms.\n",
        report.server_core_percent, report.server_rss_mib_max
    );
}
