//! Packets over loopback into a server, stored, live and queried, at rising rates up to the first loss.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::{packet, packet_source};
use crate::http::{HttpConnection, count};
use crate::serving::{Ports, ServerProcess, ServerProgram};
use crate::table::{Table, short};

/// Number of streams, and of channels in each packet.
const STREAMS: usize = 10;
const CHANNELS: usize = 100;
/// Rates in points per second.
const RATES: [f64; 12] = [1e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 3e6, 4e6, 6e6, 8e6, 12e6, 16e6];
/// Time between two bursts of packets.
const BURST: Duration = Duration::from_millis(1);
/// Time between two queries of the newest data.
const QUERY: Duration = Duration::from_millis(500);
/// Max time until the last packets are counted.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of one rate.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Step {
    /// Intended and actual points per second.
    wanted_points_per_s: f64,
    sent_points_per_s: f64,
    packets_sent: u64,
    packets_stored: u64,
    kernel_drops: u64,
    missing: u64,
    /// Processor time of the server in nanoseconds per point.
    server_ns_per_point: f64,
    live_updates: u64,
    queries: u64,
}

/// Result of all rates.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rising {
    streams: usize,
    channels: usize,
    steps: Vec<Step>,
    /// Highest rate without any loss, in points per second as sent.
    without_loss_points_per_s: f64,
}

/// Counts of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    received: u64,
    stored: u64,
    drops: u64,
    lost: u64,
}

fn counted(http: &mut HttpConnection) -> anyhow::Result<Counted> {
    let of = http.source("packets")?;
    let number = |key: &str| count(&of[key]);
    Ok(Counted {
        received: number("received")?,
        stored: number("stored")?,
        drops: number("kernel_drops")?,
        lost: number("lost")? - number("filled")?,
    })
}

/// Sends at a rate until the time is over. Returns the number of packets sent, which is lower if the sender falls
/// behind.
fn send(to: SocketAddr, points_per_s: f64, span: Duration, sequence: &mut u32) -> anyhow::Result<(u64, Duration)> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    let packets_per_s = points_per_s / CHANNELS as f64;
    let (start, mut sent) = (Instant::now(), 0_u64);
    while start.elapsed() < span {
        let due = (start.elapsed().as_secs_f64() * packets_per_s) as u64;
        // Send whole rounds: a loss is revealed by the next packet of its stream.
        while sent < due {
            for stream in 0..STREAMS as u32 {
                socket.send(&packet(stream, *sequence, CHANNELS))?;
            }
            sent += STREAMS as u64;
            *sequence += 1;
        }
        std::thread::sleep(BURST);
    }
    Ok((sent, start.elapsed()))
}

/// Subscribes to a few channels of each stream, as a screen does.
async fn watch(http: SocketAddr, updates: Arc<AtomicU64>) -> anyhow::Result<()> {
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{http}/api/live")).await?;
    let subscribe = json!({ "type": "subscribe", "id": 1, "channels": ["packets.*.c00", "packets.*.c50"] });
    socket.send(Message::text(subscribe.to_string())).await?;
    while let Some(message) = socket.next().await {
        if let Message::Text(text) = message?
            && text.contains("\"update\"")
        {
            updates.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Queries the newest data until told to stop.
fn query(http: SocketAddr, stop: &AtomicBool) -> anyhow::Result<u64> {
    let mut http = HttpConnection::open(http, PATIENCE)?;
    let sql = "select avg(c00), max(c50), count(*) from \"packets.s00\" where time > now() - interval '1 second'";
    let body = json!({ "sql": sql }).to_string();
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        // A table exists from its first frame on.
        done += u64::from(http.post("/api/sql", body.as_bytes())?.status == 200);
        std::thread::park_timeout(QUERY);
    }
    Ok(done)
}

/// Runs all rates.
pub(super) fn run(program: &ServerProgram, span: Duration) -> anyhow::Result<Rising> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let [ports] = Ports::reserve()?;
    let source = packet_source(&ports.fti.to_string(), STREAMS, CHANNELS, super::STRAIGHT);
    let config = format!("[[source]]\n{}", source.replace("[[stream", "[[source.stream"));
    let server = ServerProcess::start_at(program, dir.path(), &ports, &config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let updates = Arc::new(AtomicU64::new(0));
    let watching = runtime.spawn(watch(ports.http, updates.clone()));
    let mut http = HttpConnection::open(ports.http, PATIENCE)?;
    let (mut steps, mut sequence) = (Vec::new(), 0);
    let mut table = Table::new([
        "whole path: points/s",
        "sent",
        "packets",
        "kernel drops",
        "missing",
        "server ns/point",
        "live updates",
    ]);
    for wanted in RATES {
        let stop = AtomicBool::new(false);
        let (before, cpu, live) = (counted(&mut http)?, server.usage().cpu_s, updates.load(Ordering::Relaxed));
        let (sent, queries) = std::thread::scope(|scope| {
            let queries = scope.spawn(|| query(ports.http, &stop));
            let sent = send(ports.fti, wanted, span, &mut sequence);
            stop.store(true, Ordering::Relaxed);
            queries.thread().unpark();
            (sent, queries.join())
        });
        let (packets_sent, took) = sent?;
        let queries = queries.map_err(|_| anyhow::anyhow!("the queries panicked"))??;
        let now = settle(&mut http)?;
        let points = (packets_sent * CHANNELS as u64) as f64;
        let step = Step {
            wanted_points_per_s: wanted,
            sent_points_per_s: points / took.as_secs_f64(),
            packets_sent,
            packets_stored: now.stored - before.stored,
            kernel_drops: now.drops - before.drops,
            missing: now.lost - before.lost,
            server_ns_per_point: (server.usage().cpu_s - cpu) * 1e9 / points,
            live_updates: updates.load(Ordering::Relaxed) - live,
            queries,
        };
        table.row([
            short(wanted),
            short(step.sent_points_per_s),
            step.packets_sent.to_string(),
            step.kernel_drops.to_string(),
            step.missing.to_string(),
            format!("{:.0}", step.server_ns_per_point),
            step.live_updates.to_string(),
        ]);
        eprint!(".");
        std::io::stderr().flush()?;
        let lost = step.packets_stored < packets_sent;
        if !lost && step.missing + step.kernel_drops > 0 {
            bail!("all of {packets_sent} packets are stored, yet the books have a loss: {step:?}");
        }
        if lost && step.missing < packets_sent - step.packets_stored {
            bail!("{} packets are not stored, the ledger misses {}", packets_sent - step.packets_stored, step.missing);
        }
        let slow = step.sent_points_per_s < wanted * 0.9;
        steps.push(step);
        // A sender that cannot keep the rate would measure itself.
        if lost || slow {
            break;
        }
    }
    eprintln!();
    table.print();
    if watching.is_finished() {
        runtime.block_on(watching)??;
        bail!("the live connection ended");
    }
    watching.abort();
    server.stop()?;
    let whole = steps.iter().filter(|step| step.packets_stored == step.packets_sent);
    let without_loss_points_per_s = whole.map(|step| step.sent_points_per_s).fold(0.0, f64::max);
    println!(
        "no loss up to {} points/s; sender, server, live and SQL share this machine\n",
        short(without_loss_points_per_s)
    );
    Ok(Rising { streams: STREAMS, channels: CHANNELS, steps, without_loss_points_per_s })
}

/// Returns the counts once no more packets arrive.
fn settle(http: &mut HttpConnection) -> anyhow::Result<Counted> {
    let begin = Instant::now();
    let (mut last, mut since) = (counted(http)?, Instant::now());
    // The server updates its sources once a second.
    while since.elapsed() < Duration::from_millis(2_200) {
        if begin.elapsed() > PATIENCE {
            bail!("packets still come after {PATIENCE:?}");
        }
        std::thread::park_timeout(Duration::from_millis(100));
        let now = counted(http)?;
        if now.received != last.received || now.lost != last.lost {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
