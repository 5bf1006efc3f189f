//! `strongback bench archives`: the rate at which followers fill other databases, beside the bulk loader of each.
//!
//! The same frames of the pad are in a store. A server delivers them to a target; then the target's own loader loads a
//! copy of what came, in the target's own format, into further tables; then a second follower delivers all frames again
//! into tables that are not there yet. The loader and the second follower are timed until all rows can be read there:
//! targets that run in Java are slow at first, which the first follower bears. Without `--only`, all targets are then
//! fed live by the simulated pad at once.

mod live;
mod target;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use strongback_store::{FrameBatch, FrameHead, Store, StoreOptions};

use crate::http::HttpConnection;
use crate::ingest::embedded::append;
use crate::machine::Machine;
use crate::peers::PeerRecipes;
use crate::recording::Recording;
use crate::serving::{Ports, ServerProcess, ServerProgram};
use crate::table::{Table, short};
use crate::work_folder::WorkFolder;
use live::LiveResult;
pub use target::Kind;
use target::RunningTarget;

/// Names of the followers: the first warms the target up.
const FOLLOWERS: [&str; 2] = ["first", "second"];
/// Max time of a delivery or a load.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// Options of `strongback bench archives`.
#[derive(Clone, Debug, clap::Args)]
pub struct ArchivesArguments {
    /// Uses less data: a few minutes
    #[arg(long)]
    pub quick: bool,
    /// Folder for the stores [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    /// Measures only this target; several can be given
    #[arg(long, value_enum, value_name = "TARGET")]
    pub only: Vec<Kind>,
    #[command(flatten)]
    program: ServerProgram,
    #[command(flatten)]
    peers: PeerRecipes,
}

/// Result of one target.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveResult {
    /// Name and version of the target.
    pub target: String,
    /// What its loader is.
    pub loader: &'static str,
    /// Rows in its tables.
    pub rows: u64,
    /// Values in its tables.
    pub points: u64,
    /// Time of the follower until all rows could be read there, in seconds.
    pub follower_s: f64,
    /// Processor time of the server in that span, in seconds.
    pub follower_cpu_s: f64,
    /// Time of the loader for the same rows, in seconds.
    pub loader_s: f64,
    /// Rate of the follower over that of the loader.
    pub ratio: f64,
}

#[derive(Serialize)]
struct ArchivesReport {
    machine: Machine,
    loads: Vec<ArchiveResult>,
    live: Option<LiveResult>,
}

/// Runs the benchmark and prints its tables.
///
/// # Errors
/// A target that has other rows than were sent, or a folder that cannot be written.
pub fn run(arguments: &ArchivesArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let machine = Machine::look(dir)?;
    println!("{}\n", machine.line());
    let kinds = if arguments.only.is_empty() { Kind::ALL.to_vec() } else { arguments.only.clone() };
    // Of today: Kafka deletes messages by their timestamps.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64);
    let recording = Recording::of_pad(if arguments.quick { 10 } else { 60 }, now - 600_000_000_000);
    let laps = if arguments.quick { 1 } else { 2 };
    let mut report = ArchivesReport { machine, loads: Vec::new(), live: None };
    let mut failed = Vec::new();
    for kind in &kinds {
        let own = tempfile::tempdir_in(dir)?;
        let begin = Instant::now();
        match load(*kind, arguments, &recording, laps, own.path()) {
            Ok(result) => report.loads.extend(result),
            Err(error) => failed.push(format!("{}: {error:#}", kind.name())),
        }
        eprintln!("{}: {:.0} s", kind.name(), begin.elapsed().as_secs_f64());
    }
    println!("Frames of the pad into an empty target, and what came there by its own loader\n");
    print(&report.loads);
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    if arguments.only.is_empty() {
        let own = tempfile::tempdir_in(dir)?;
        let seconds = if arguments.quick { 30 } else { 300 };
        report.live = Some(live::run(&kinds, arguments, seconds, own.path())?);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

/// Measures one target, unless it cannot be had.
fn load(
    kind: Kind,
    arguments: &ArchivesArguments,
    recording: &Recording,
    laps: u32,
    dir: &Path,
) -> anyhow::Result<Option<ArchiveResult>> {
    let Some(peer) = arguments.peers.start_named(kind.recipe(), kind.name(), kind.configuration()) else {
        return Ok(None);
    };
    let mut target = RunningTarget::new(kind, peer, dir)?;
    fill(recording, laps, &dir.join("store"))?;
    // Paused, so that the server's own start is not timed.
    std::fs::create_dir_all(dir.join("store/followers"))?;
    let mut config = String::new();
    for name in FOLLOWERS {
        std::fs::write(dir.join(format!("store/followers/{name}.paused")), "")?;
        config.push_str(&target.config(name, 200));
    }
    let [ports] = Ports::reserve()?;
    let server = ServerProcess::start_at(&arguments.program, dir, &ports, &config)?;
    let rows = recording.frames.len() as u64 * u64::from(laps);
    let of_table =
        |(stream, rows): (usize, &u64)| (recording.streams[stream].key.table.clone(), rows * u64::from(laps));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (table, rows) in recording.rows.iter().enumerate().map(of_table) {
        *counts.entry(table).or_default() += rows;
    }
    follow(&server, &mut target, FOLLOWERS[0], &counts)?;
    let loader_s = target.load(&counts)?;
    target.begin_round(FOLLOWERS[1], &counts)?;
    let (follower_s, follower_cpu_s) = follow(&server, &mut target, FOLLOWERS[1], &counts)?;
    server.stop()?;
    Ok(Some(ArchiveResult {
        target: kind.name().to_owned(),
        loader: kind.loader(),
        rows,
        points: recording.points() * u64::from(laps),
        follower_s,
        follower_cpu_s,
        loader_s,
        ratio: loader_s / follower_s,
    }))
}

/// Lets a paused follower deliver, and returns the time until all rows can be read at the target, and the processor time
/// of the server, in seconds.
fn follow(
    server: &ServerProcess,
    target: &mut RunningTarget,
    name: &str,
    counts: &BTreeMap<String, u64>,
) -> anyhow::Result<(f64, f64)> {
    let (rows, before, begin) = (counts.values().sum(), server.usage().cpu_s, Instant::now());
    post(server, &format!("/api/followers/{name}/resume"))?;
    wait(|| Ok(card(server, name)?["delivered_frames"].as_u64() == Some(rows)))?;
    // What Kafka acknowledged can be read: a delivery is a transaction.
    if target.kind() != Kind::Kafka {
        let tables: Vec<String> = counts.keys().cloned().collect();
        wait(|| Ok(target.rows(&tables)? == rows))?;
    }
    let took = (begin.elapsed().as_secs_f64(), server.usage().cpu_s - before);
    let last = card(server, name)?;
    ensure!(last["rejected_frames"] == 0 && last["altered_values"] == 0, "not all values arrived: {last}");
    Ok(took)
}

/// Writes the recording into a new store.
fn fill(recording: &Recording, laps: u32, dir: &Path) -> anyhow::Result<()> {
    let first = recording.frames.first().map_or(0, |frame| frame.time_ns);
    let store = Store::open(dir, StoreOptions { max_bytes: Some(8 << 30), ..StoreOptions::default() }, first)?;
    let mut targets = Vec::new();
    for spec in &recording.streams {
        let (stream, channels) = store.resolve(spec, first)?;
        targets.push((stream.id, channels));
    }
    let mut now = first;
    let mut batch = FrameBatch::new();
    for lap in 0..laps {
        for stretch in recording.each_stretch() {
            batch.clear();
            now = stretch.last().map_or(now, |frame| recording.in_lap(frame, lap).time_ns);
            for frame in stretch {
                let time_ns = recording.in_lap(frame, lap).time_ns;
                let (stream, channels) = &targets[frame.stream];
                batch.begin(FrameHead {
                    stream: *stream,
                    receive_time: now,
                    source_time: Some(time_ns),
                    sequence: None,
                });
                for (channel, value) in channels.iter().zip(recording.cells(frame)) {
                    batch.push(*channel, *value);
                }
                batch.end();
            }
            append(&store, &batch, now)?;
            store.commit(now)?;
            while store.maintain(now)? {}
        }
    }
    store.close(now).context("close")
}

/// Returns the state and counters of a follower.
fn card(server: &ServerProcess, name: &str) -> anyhow::Result<Value> {
    let mut http = HttpConnection::open(server.http, Duration::from_secs(10))?;
    let answer = http.json("/api/followers")?;
    let found = answer["followers"].as_array().into_iter().flatten().find(|card| card["name"] == name);
    found.cloned().with_context(|| format!("no follower {name}"))
}

fn post(server: &ServerProcess, path: &str) -> anyhow::Result<()> {
    let answer = HttpConnection::open(server.http, Duration::from_secs(10))?.post(path, b"")?;
    ensure!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    Ok(())
}

/// Waits until something is so.
fn wait(mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > PATIENCE {
            bail!("not all rows arrived within {} s", PATIENCE.as_secs());
        }
        std::thread::park_timeout(LOOK);
    }
    Ok(())
}

fn print(results: &[ArchiveResult]) {
    let mut table =
        Table::new(["target", "loader", "rows", "points", "follower, points/s", "loader, points/s", "ratio", "cpu s"]);
    for r in results {
        table.row([
            r.target.clone(),
            r.loader.to_owned(),
            short(r.rows as f64),
            short(r.points as f64),
            short(r.points as f64 / r.follower_s),
            short(r.points as f64 / r.loader_s),
            format!("{:.2}", r.ratio),
            format!("{:.1}", r.follower_cpu_s),
        ]);
    }
    table.print();
}
