//! `strongback demo`: a server and, as separate processes on real loopback sockets, the simulated launch pad and the
//! faults between its packets and the server.
//!
//! ```text
//!  pad ─┬─ iNET-X ─→ faults ─→ server ─→ page
//!       ├─ lines ────────────→
//!       └─ PLC ←──── ADS ─────
//! ```

mod helper;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::HeaderValue;
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use self::helper::Helper;
use crate::cli::DemoArgs;
use crate::commands::outcome::Outcome;
use crate::commands::serve::{Running, runtime, stop_signal, with_flags};
use crate::config::{Config, Listen};
use crate::live::binary::{self, read};
use crate::process::clock;
use crate::process::clock::now_ns;
use crate::process::latency::{Latencies, Quantiles};
use crate::process::memory;

/// Number of latencies kept for the summary: about ten minutes at the pad's rate.
const LATENCIES: usize = 100_000;
/// Faults applied to packets on their way.
const FAULTS: &str = "--loss 0.001 --burst 4 --duplicate 0.0005 --reorder 0.0005 --garble 0.0002 --jitter 1ms";
/// Max time to wait until everything sent has arrived.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);
/// Time without new data after which everything has arrived.
const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// The summary of a demo.
#[derive(Debug, Serialize)]
struct DemoSummary {
    duration_s: f64,
    /// Frames received.
    frames_in: u64,
    /// Values in them.
    points_in: u64,
    points_stored: u64,
    points_duplicate: u64,
    points_rejected: u64,
    /// Frames of packets that are missing according to the ledger.
    missing_found: u64,
    /// Frames of packets that did not get through, as counted by the fault simulator.
    missing_made: u64,
    /// Bytes of sealed blocks per point in them; null if nothing was sealed.
    bytes_per_point: Option<f64>,
    /// Latency from the kernel's receive stamp to a WebSocket subscriber that has decoded the update.
    latency_ms: Quantiles,
    /// Peak memory of the server.
    rss_mb_max: f64,
    /// Processor time of the server.
    cpu_s: f64,
    commit_latency_ms: Quantiles,
    kernel_drops: u64,
    not_recorded: u64,
    simulator: Value,
    faults: Value,
}

/// Limits of the pad, which stay quiet on a good day except for the turbopump while the engine runs.
const LIMITS: &str = r#"
[[limit]]
name = "LOX tank pressure"
channels = ["avionics.sensor_values.p_lox_tank"]
watch = { high = 4.5 }
critical = { high = 5.0 }
persist_ms = 100
hysteresis = 0.05
stale_ms = 1000

[[limit]]
name = "Turbopump temperature"
channels = ["fti.bay.t_turbopump"]
watch = { high = 380 }
warning = { high = 450 }
persist_ms = 200
hysteresis = 5
"#;

/// Runs the demo until its duration is over, or until Ctrl-C or SIGTERM.
///
/// # Errors
/// If the server or the simulator cannot run.
pub fn run(args: &DemoArgs) -> anyhow::Result<Outcome> {
    let (config, plc, folder) = configuration(args)?;
    let outcome = runtime()?.block_on(demo(args, config, plc));
    drop(folder);
    outcome
}

/// Returns the pad's configuration with the flags applied, the address for its PLC, and the temporary folder if none
/// was given. With a configuration of the user, the PLC's channels are sent as lines.
fn configuration(args: &DemoArgs) -> anyhow::Result<(Config, Option<SocketAddr>, Option<tempfile::TempDir>)> {
    let (mut config, plc) = match &args.serve.config {
        Some(file) => (Config::read(file)?, None),
        None => {
            // The port is freed at once; the pad most likely binds it before anybody else.
            let plc = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let mut text = strongback_sim::pad_config_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            text.push_str(&strongback_sim::plc_config(plc));
            text.push_str(LIMITS);
            text.push_str("\n[[ilp.source]]\nprefix = \"avionics.\"\nname = \"avionics\"\n");
            (Config::parse(&text, "the demo's configuration")?, Some(plc))
        }
    };
    let folder = match (&args.serve.data, &args.serve.config) {
        (None, None) => {
            let folder = tempfile::Builder::new().prefix("strongback-demo-").tempdir()?;
            config.data_dir = folder.path().to_owned();
            Some(folder)
        }
        _ => None,
    };
    let mut config = with_flags(config, &args.serve);
    if config.view.is_none() {
        config.view = serde_json::from_value(strongback_sim::launch_view())?;
    }
    config.check_listens()?;
    if config.ilp.listen == Listen::Off {
        bail!("the simulated pad sends line protocol over TCP: --ilp cannot be off");
    }
    Ok((config, plc, folder))
}

async fn demo(args: &DemoArgs, config: Config, plc: Option<SocketAddr>) -> anyhow::Result<Outcome> {
    let token = config.token()?;
    let stopped = stop_signal();
    let running = Running::start(config).await?;
    eprintln!("{}", running.banner());
    if !args.headless {
        eprintln!("\nOpen http://{} in a browser. Ctrl-C ends.", running.http);
    }
    let latencies = Arc::new(Latencies::new(LATENCIES));
    let watching = tokio::spawn(watch(running.http, token, latencies.clone()));
    let started = std::time::Instant::now();
    let mut faults = start_faults(&running)?;
    let listening = faults.first().await?;
    let fti = listening["listening"][0]["listen"].as_str().context("the faults listen nowhere")?.to_owned();
    let mut pad = start_pad(&running, args, fti, plc)?;

    let lost = tokio::select! {
        ended = pad.ended() => {
            ended?;
            None
        }
        lost = running.until_stopped(stopped) => Some(lost),
    };
    let by_itself = lost.is_none();
    let (status, simulator) = pad.end().await?;
    let (_, faults) = faults.end().await?;
    if by_itself && !status.success() {
        running.stop().await?;
        bail!("the simulator ended with {status}");
    }
    settle(&running).await;
    watching.abort();
    let duration_s = started.elapsed().as_secs_f64();

    let server = running.server.clone();
    let stopped = running.stop().await;
    if let Some(Some(lost)) = lost {
        return Err(lost.into());
    }
    stopped?;
    // Closing sealed the open data, and the last gaps are in the store.
    if let Err(error) = server.ledger.follow(&server.ingest.store()) {
        tracing::error!(%error, "the last gaps cannot be read");
    }
    server.roster.look(&server.ingest, clock::both());
    let stats = server.ingest.store().stats();
    let cards = server.roster.cards();
    let summary = {
        let fanout = server.ingest.live().fanout();
        DemoSummary {
            duration_s,
            frames_in: cards.iter().filter(|c| c.kind != "internal").map(|c| c.counters.received).sum(),
            points_in: fanout.points,
            points_stored: fanout.points - fanout.points_duplicate - fanout.points_rejected,
            points_duplicate: fanout.points_duplicate,
            points_rejected: fanout.points_rejected,
            missing_found: cards
                .iter()
                .filter(|c| c.kind == "inetx")
                .map(|c| c.counters.lost.saturating_sub(c.counters.filled))
                .sum(),
            missing_made: missing_made(&faults),
            bytes_per_point: (stats.block_points > 0).then(|| stats.block_bytes as f64 / stats.block_points as f64),
            latency_ms: latencies.quantiles(),
            rss_mb_max: memory::resident_peak_bytes() as f64 / 1e6,
            cpu_s: memory::cpu_time().as_secs_f64(),
            commit_latency_ms: server.ingest.commit_latency().quantiles(),
            kernel_drops: cards.iter().map(|c| c.counters.kernel_drops).sum(),
            not_recorded: fanout.not_recorded,
            simulator,
            faults,
        }
    };
    print(&summary, args.json)?;
    // Losses made by the faults are the demo's purpose; any beyond them are ours.
    Ok(if summary.kernel_drops > 0 || summary.not_recorded > 0 { Outcome::DataLost } else { Outcome::Done })
}

/// Starts the process that loses, duplicates and delays packets on their way to the server.
fn start_faults(running: &Running) -> anyhow::Result<Helper> {
    let to = running.packets.first().context("the configuration has no packet source for the pad")?.1;
    let mut arguments: Vec<String> = ["simulate", "faults", "--json", "--inetx"].map(str::to_owned).to_vec();
    arguments.push(format!("127.0.0.1:0={to}"));
    arguments.extend(FAULTS.split_whitespace().map(str::to_owned));
    Helper::start("the faults", &arguments)
}

/// Starts the simulated pad.
fn start_pad(running: &Running, args: &DemoArgs, fti: String, plc: Option<SocketAddr>) -> anyhow::Result<Helper> {
    let ilp = running.ilp.context("line protocol is off")?;
    let mut arguments: Vec<String> = ["simulate", "pad", "--json", "--loss", "0", "--fti"].map(str::to_owned).to_vec();
    arguments.extend([fti, "--ilp".to_owned(), ilp.to_string(), "--http".to_owned(), running.http.to_string()]);
    if let Some(plc) = plc {
        arguments.extend(["--plc".to_owned(), plc.to_string()]);
    }
    if let Some(duration) = args.duration {
        arguments.extend(["--duration".to_owned(), format!("{}s", duration.as_secs_f64())]);
    }
    Helper::start("the simulator", &arguments)
}

/// Counts frames of the pad's packets that the faults dropped or corrupted.
fn missing_made(faults: &Value) -> u64 {
    let flows = &faults["relays"][0]["flows"];
    let pad = strongback_sim::Pad::new(strongback_sim::PadOptions::default());
    let missing = |(id, frames): (u32, u32)| {
        let flow = &flows[format!("{id:#010x}")];
        let packets = ["lost", "silenced", "garbled"].iter().filter_map(|what| flow[*what].as_u64()).sum::<u64>();
        packets * u64::from(frames)
    };
    pad.streams().iter().filter_map(|stream| stream.packet()).map(missing).sum()
}

/// Waits until no more of the sent data arrives.
async fn settle(running: &Running) {
    let until = tokio::time::Instant::now() + SETTLE_PATIENCE;
    let points = || running.server.ingest.live().fanout().points;
    let (mut before, mut since) = (points(), tokio::time::Instant::now());
    while since.elapsed() < SETTLED_AFTER && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if points() != before {
            (before, since) = (points(), tokio::time::Instant::now());
        }
    }
}

/// Subscribes like any client, and measures from the receive stamp of the newest frame in a window to the time the
/// update is decoded here.
async fn watch(http: SocketAddr, token: Option<String>, latencies: Arc<Latencies>) {
    if let Err(error) = measure(http, token, &latencies).await {
        tracing::error!("latency is no longer measured: {error:#}");
    }
}

async fn measure(http: SocketAddr, token: Option<String>, latencies: &Latencies) -> anyhow::Result<()> {
    let mut request = format!("ws://{http}/api/live").into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(binary::PROTOCOL));
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await?;
    let view = strongback_sim::launch_view();
    let panels = view["panels"].as_array().cloned().unwrap_or_default();
    let channels: Vec<&Value> = panels.iter().filter_map(|p| p["channels"].as_array()).flatten().collect();
    let subscribe = json!({ "type": "subscribe", "id": 1, "channels": channels });
    socket.send(Message::text(subscribe.to_string())).await?;
    while let Some(message) = socket.next().await {
        let Message::Binary(bytes) = message? else { continue };
        let read::ReadMessage::Update(update) = read::read(&bytes)? else { continue };
        let now = now_ns();
        for window in &update.windows {
            let age = now.saturating_sub(window.receive_time);
            latencies.add(Duration::from_nanos(u64::try_from(age).unwrap_or(0)));
        }
    }
    Ok(())
}

fn print(summary: &DemoSummary, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(summary)?);
        return Ok(());
    }
    let s = summary;
    println!("ran              {:.1} s", s.duration_s);
    println!("frames           {}", s.frames_in);
    println!(
        "points           {} in, {} stored, {} duplicate, {} rejected",
        s.points_in, s.points_stored, s.points_duplicate, s.points_rejected
    );
    println!("missing frames   {} found, {} made", s.missing_found, s.missing_made);
    match s.bytes_per_point {
        Some(bytes) => println!("on disk          {bytes:.2} bytes a point, times included"),
        None => println!("on disk          nothing sealed yet"),
    }
    println!(
        "socket to screen p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        s.latency_ms.p50, s.latency_ms.p99, s.latency_ms.max
    );
    println!(
        "commit           p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        s.commit_latency_ms.p50, s.commit_latency_ms.p99, s.commit_latency_ms.max
    );
    println!("server           {:.0} MB, {:.1} s of processor time", s.rss_mb_max, s.cpu_s);
    Ok(())
}
