//! `strongback bench live`: from the stamp inside the payload to after decoding at a subscriber.
//!
//! The simulated pad stamps its samples in its own process when it sends them; the server runs in a second
//! process; this one holds the subscribers and reads the same clock. So a figure is sender, socket, server,
//! WebSocket and JSON together, unthrottled.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::ingest::percentile;
use crate::machine::Machine;
use crate::serving::{ServerProcess, ServerProgram};
use crate::table::{Table, short};

/// Subscribers.
const SUBSCRIBERS: usize = 20;
/// Not counted: connections and first allocations.
const WARM_UP: Duration = Duration::from_secs(3);
/// Longest silence of the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// What subscribers look at, in turn: a panel of values, fast plots, packets, controllers.
const SCREENS: [&[&str]; 4] = [
    &["avionics.sensor_values.*{acu=1}", "avionics.gnc.mode"],
    &["plc.fast.p_lox_tank", "plc.fast.p_purge_0?", "plc.fast.acc_01"],
    &["fti.bay.*"],
    &["plc.lox.*valve", "plc.lox.p_??", "plc.gse.*", "avionics.imu.*"],
];

/// Options of `strongback bench live`.
#[derive(Clone, Debug, clap::Args)]
pub struct LiveArguments {
    /// Ten seconds instead of a minute
    #[arg(long)]
    pub quick: bool,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

#[derive(Deserialize)]
struct Update {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    streams: Vec<StreamWindow>,
    #[serde(default)]
    conflated: u64,
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct StreamWindow {
    time: [String; 2],
    channels: Vec<serde_json::Value>,
}

/// What one subscriber saw.
#[derive(Default)]
struct Seen {
    latencies_ms: Vec<f64>,
    updates: u64,
    values: u64,
    conflated: u64,
    dropped: u64,
}

/// Latency of one kind of screen, or of all.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyResult {
    /// What was looked at.
    pub screen: String,
    /// Windows measured.
    pub windows: u64,
    /// Updates received.
    pub updates: u64,
    /// Channel windows decoded.
    pub values: u64,
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
    /// Updates merged because this side was slow.
    pub conflated: u64,
    /// Windows lost.
    pub dropped: u64,
}

#[derive(Serialize)]
struct LiveReport {
    machine: Machine,
    subscribers: usize,
    seconds: f64,
    latency_ms: LatencyResult,
    screens: Vec<LatencyResult>,
    server_core_percent: f64,
    server_rss_mib_max: f64,
    pad_core_percent: f64,
}

/// Runs it and prints its table.
///
/// # Errors
/// A server that cannot be started, falls silent, or sends nothing.
pub fn run(arguments: &LiveArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let machine = Machine::look(dir.path())?;
    println!("{}\n", machine.line());
    let server = ServerProcess::start(&arguments.program, dir.path())?;
    let pad = server.start_pad(dir.path())?;
    let measured = Duration::from_secs(if arguments.quick { 10 } else { 60 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = format!("ws://{}/api/live", server.http);
    let (seen, usage) = runtime.block_on(async {
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..SUBSCRIBERS {
            let url = url.clone();
            tasks.spawn(async move {
                let screen = index % SCREENS.len();
                subscribe(&url, SCREENS[screen], begin + WARM_UP, measured).await.map(|seen| (screen, seen))
            });
        }
        tokio::time::sleep_until((begin + WARM_UP).into()).await;
        let before = (server.usage(), pad.usage());
        let mut seen: Vec<Seen> = SCREENS.iter().map(|_| Seen::default()).collect();
        while let Some(done) = tasks.join_next().await {
            let (screen, one) = done??;
            let all = &mut seen[screen];
            all.latencies_ms.extend(one.latencies_ms);
            all.updates += one.updates;
            all.values += one.values;
            all.conflated += one.conflated;
            all.dropped += one.dropped;
        }
        let after = (server.usage(), pad.usage());
        anyhow::Ok((seen, (before, after)))
    })?;
    pad.stop()?;
    server.stop()?;
    let seconds = measured.as_secs_f64();
    let ((server_before, pad_before), (server_after, pad_after)) = usage;
    let mut all = Seen::default();
    let mut screens = Vec::new();
    for (screen, seen) in SCREENS.iter().zip(seen) {
        all.latencies_ms.extend(&seen.latencies_ms);
        all.updates += seen.updates;
        all.values += seen.values;
        all.conflated += seen.conflated;
        all.dropped += seen.dropped;
        screens.push(result(&screen.join(" "), seen)?);
    }
    let report = LiveReport {
        machine,
        subscribers: SUBSCRIBERS,
        seconds,
        latency_ms: result("all", all)?,
        screens,
        server_core_percent: 100.0 * (server_after.cpu_s - server_before.cpu_s) / seconds,
        server_rss_mib_max: server_after.rss_mib_max,
        pad_core_percent: 100.0 * (pad_after.cpu_s - pad_before.cpu_s) / seconds,
    };
    print(&report);
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

async fn subscribe(url: &str, patterns: &[&str], from: Instant, measured: Duration) -> anyhow::Result<Seen> {
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.context("/api/live")?;
    let request = json!({ "type": "subscribe", "id": 1, "channels": patterns }).to_string();
    socket.send(Message::text(request)).await?;
    let mut seen = Seen::default();
    loop {
        let message = match tokio::time::timeout(PATIENCE, socket.next()).await {
            Ok(Some(message)) => message?,
            Ok(None) => bail!("the server closed the connection"),
            Err(_) => bail!("the server said nothing for {PATIENCE:?}"),
        };
        let Message::Text(text) = message else { continue };
        let update: Update = serde_json::from_str(&text).with_context(|| text.chars().take(200).collect::<String>())?;
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
        let at = Instant::now();
        if at > from + measured {
            socket.close(None).await.context("close")?;
            return Ok(seen);
        }
        match update.kind.as_str() {
            "error" => bail!("the server refused the subscription: {}", update.message),
            "update" if at >= from => {}
            _ => continue,
        }
        seen.updates += 1;
        seen.conflated += update.conflated;
        seen.dropped += update.dropped;
        for window in &update.streams {
            let newest: i64 = window.time[1].parse().context("time of a window")?;
            seen.latencies_ms.push((now_ns - newest) as f64 / 1e6);
            seen.values += window.channels.len() as u64;
        }
    }
}

fn result(screen: &str, mut seen: Seen) -> anyhow::Result<LatencyResult> {
    if seen.latencies_ms.is_empty() {
        bail!("no update for {screen}");
    }
    Ok(LatencyResult {
        screen: screen.into(),
        windows: seen.latencies_ms.len() as u64,
        updates: seen.updates,
        values: seen.values,
        p50_ms: percentile(&mut seen.latencies_ms, 0.5),
        p99_ms: percentile(&mut seen.latencies_ms, 0.99),
        max_ms: percentile(&mut seen.latencies_ms, 1.0),
        conflated: seen.conflated,
        dropped: seen.dropped,
    })
}

fn print(report: &LiveReport) {
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
        "\nServer: {:.0} % of a core, at most {:.0} MiB; pad: {:.0} % of a core. Durability: recording, commits each 50 ms.\n",
        report.server_core_percent, report.server_rss_mib_max, report.pad_core_percent
    );
}
