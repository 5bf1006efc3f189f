//! `strongback demo`: a server and, as a separate process on real loopback sockets, the simulated launch pad.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::cli::DemoArgs;
use crate::clock::now_ns;
use crate::config::{Config, Listen};
use crate::latency::{Latencies, Quantiles};
use crate::memory;
use crate::outcome::Outcome;
use crate::serve::{Running, runtime, stop_signal, with_flags};

/// Latencies kept for the summary: at the pad's rate about ten minutes.
const LATENCIES: usize = 100_000;
/// How long the simulator may take to end once told.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long what was sent may take to arrive.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// The summary of a demo.
#[derive(Debug, Serialize)]
struct Summary {
    duration_s: f64,
    /// Frames received.
    frames_in: u64,
    /// Values in them.
    points_in: u64,
    points_stored: u64,
    points_duplicate: u64,
    points_rejected: u64,
    /// Gaps found by sequence.
    gaps_found: u64,
    /// Gaps made, by the simulator's own count.
    gaps_made: u64,
    /// Bytes of sealed blocks by the points in them; null if nothing was sealed.
    bytes_per_point: Option<f64>,
    /// From the kernel's receive stamp to a WebSocket subscriber that has decoded the update.
    latency_ms: Quantiles,
    /// The most memory the server had.
    rss_mb_max: f64,
    /// Processor time of the server.
    cpu_s: f64,
    commit_latency_ms: Quantiles,
    kernel_drops: u64,
    not_recorded: u64,
    simulator: Value,
}

/// Runs the demo until its duration is over, or Ctrl-C or SIGTERM.
///
/// # Errors
/// What keeps server or simulator from running.
pub fn run(args: &DemoArgs) -> anyhow::Result<Outcome> {
    let (config, folder) = configuration(args)?;
    let outcome = runtime()?.block_on(demo(args, config));
    drop(folder);
    outcome
}

/// The pad's configuration with the flags over it, and the temporary folder if none was named.
fn configuration(args: &DemoArgs) -> anyhow::Result<(Config, Option<tempfile::TempDir>)> {
    let mut config = match &args.serve.config {
        Some(file) => Config::read(file)?,
        None => {
            let mut text = strongback_sim::pad_config_at(SocketAddr::from(([127, 0, 0, 1], 0)));
            for name in ["avionics", "plc"] {
                text.push_str(&format!("\n[[ilp.source]]\nprefix = \"{name}.\"\nname = \"{name}\"\n"));
            }
            Config::parse(&text, "the demo's configuration")?
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
    let config = with_flags(config, &args.serve);
    config.check_listens()?;
    if config.ilp.listen == Listen::Off {
        bail!("the simulated pad sends line protocol over TCP: --ilp cannot be off");
    }
    Ok((config, folder))
}

async fn demo(args: &DemoArgs, config: Config) -> anyhow::Result<Outcome> {
    let token = config.token()?;
    let stopped = stop_signal();
    let running = Running::start(config, strongback_sim::launch_view()).await?;
    eprintln!("{}", running.banner());
    if !args.headless {
        eprintln!("\nOpen http://{} in a browser. Ctrl-C ends.", running.http);
    }
    let latencies = Arc::new(Latencies::new(LATENCIES));
    let watching = tokio::spawn(watch(running.http, token, latencies.clone()));
    let started = std::time::Instant::now();
    let mut pad = start_pad(&running, args)?;
    let output = pad.stdout.take().context("the simulator has no output")?;
    let mut lines = BufReader::new(output).lines();
    let reading = tokio::spawn(async move {
        let mut last = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            last = line;
        }
        last
    });

    let lost = tokio::select! {
        _ = pad.wait() => None,
        lost = running.until_stopped(stopped) => Some(lost),
    };
    let by_itself = lost.is_none();
    end(&mut pad).await?;
    let status = pad.wait().await?;
    let report = reading.await?;
    if by_itself && !status.success() {
        running.stop().await?;
        bail!("the simulator ended with {status}");
    }
    let simulator: Value = serde_json::from_str(&report).unwrap_or(Value::Null);
    settle(&running, &simulator).await;
    watching.abort();
    let duration_s = started.elapsed().as_secs_f64();

    let server = running.server.clone();
    let stopped = running.stop().await;
    if let Some(Some(lost)) = lost {
        return Err(lost.into());
    }
    stopped?;
    // Closing sealed what was open, and the last gaps are in the store.
    if let Err(error) = server.ledger.follow(&server.ingest.store()) {
        tracing::error!(%error, "the last gaps cannot be read");
    }
    server.roster.look(&server.ingest, now_ns());
    let stats = server.ingest.store().stats();
    let cards = server.roster.cards();
    let summary = {
        let fanout = server.ingest.live().fanout();
        Summary {
            duration_s,
            frames_in: cards.iter().filter(|c| c.kind != "internal").map(|c| c.received.0).sum(),
            points_in: fanout.points,
            points_stored: fanout.points - fanout.points_duplicate - fanout.points_rejected,
            points_duplicate: fanout.points_duplicate,
            points_rejected: fanout.points_rejected,
            gaps_found: server.ledger.gaps_found(),
            gaps_made: simulator["gaps_made"].as_u64().unwrap_or(0),
            bytes_per_point: (stats.block_points > 0).then(|| stats.block_bytes as f64 / stats.block_points as f64),
            latency_ms: latencies.quantiles(),
            rss_mb_max: memory::resident_peak_bytes() as f64 / 1e6,
            cpu_s: memory::cpu_time().as_secs_f64(),
            commit_latency_ms: server.ingest.commit_latency().quantiles(),
            kernel_drops: cards.iter().map(|c| c.kernel_drops.0).sum(),
            not_recorded: fanout.not_recorded,
            simulator,
        }
    };
    print(&summary, args.json)?;
    // Gaps that the pad made are the demo's purpose; anything beyond is our loss.
    Ok(if summary.kernel_drops > 0 || summary.not_recorded > 0 { Outcome::DataLost } else { Outcome::Done })
}

/// Starts this program again as the simulator.
fn start_pad(running: &Running, args: &DemoArgs) -> anyhow::Result<Child> {
    let program: PathBuf = std::env::current_exe().context("this program cannot be found")?;
    let fti = running.packets.first().context("the configuration has no packet source for the pad")?.1;
    let ilp = running.ilp.context("line protocol is off")?;
    let mut command = Command::new(program);
    command.args(["simulate", "pad", "--json"]);
    command.args(["--fti", &fti.to_string(), "--ilp", &ilp.to_string(), "--http", &running.http.to_string()]);
    if let Some(duration) = args.duration {
        command.args(["--duration", &format!("{}s", duration.as_secs_f64())]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().context("the simulator does not start")
}

/// Asks the simulator to end; it prints its report then.
async fn end(pad: &mut Child) -> anyhow::Result<()> {
    let Some(id) = pad.id() else { return Ok(()) };
    let id = nix::unistd::Pid::from_raw(i32::try_from(id)?);
    // It may have ended this moment.
    let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
    if tokio::time::timeout(END_PATIENCE, pad.wait()).await.is_err() {
        tracing::warn!("the simulator did not end and is killed");
        pad.kill().await?;
    }
    Ok(())
}

/// Waits until all that the simulator sent is here.
async fn settle(running: &Running, simulator: &Value) {
    let sent = simulator["points_sent"].as_u64().unwrap_or(0);
    let until = tokio::time::Instant::now() + SETTLE_PATIENCE;
    while running.server.ingest.live().fanout().points < sent && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A subscriber like any other: measures from the receive stamp of the newest frame in a window to when the
/// update is decoded here.
async fn watch(http: SocketAddr, token: Option<String>, latencies: Arc<Latencies>) {
    if let Err(error) = measure(http, token, &latencies).await {
        tracing::error!("latency is no longer measured: {error:#}");
    }
}

async fn measure(http: SocketAddr, token: Option<String>, latencies: &Latencies) -> anyhow::Result<()> {
    let mut request = format!("ws://{http}/api/live").into_client_request()?;
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
        let Message::Text(text) = message? else { continue };
        let update: Value = serde_json::from_str(&text)?;
        if update["type"] != "update" {
            continue;
        }
        let now = now_ns();
        for stream in update["streams"].as_array().into_iter().flatten() {
            let received = stream["receive_time"].as_str().and_then(|t| t.parse::<i64>().ok());
            if let Some(received) = received {
                latencies.add(Duration::from_nanos(u64::try_from(now - received).unwrap_or(0)));
            }
        }
    }
    Ok(())
}

fn print(summary: &Summary, as_json: bool) -> anyhow::Result<()> {
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
    println!("gaps             {} found, {} made", s.gaps_found, s.gaps_made);
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
