//! One engine in a process of its own: it loads a course until that ends or its time is over, reports it, and is
//! killed; another process then opens and reads the data.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::machine::processor_time;

use super::course::{Course, CourseFrame};
use super::{sqlite, store};

/// Number of frames between two checks of the clock.
const LOOK_FRAMES: u64 = 64;
/// Number of rows looked up one by one.
pub(super) const LOOKUPS: usize = 1000;

/// Options of the process of an engine.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArguments {
    /// Engine to run
    #[arg(long, value_enum)]
    pub engine: RustEngine,
    /// Phase to run
    #[arg(long, value_enum)]
    pub phase: Phase,
    /// File with the course
    #[arg(long)]
    pub course: PathBuf,
    /// Folder of the engine's files
    #[arg(long)]
    pub dir: PathBuf,
    /// Commit at each `second` of the clock, or after a number of `frames`
    #[arg(long, default_value = "second")]
    pub commit: Commit,
    /// Age in seconds, relative to the newest row, beyond which rows are deleted after each commit; 0 keeps all
    #[arg(long, default_value_t = 0)]
    pub keep_s: u64,
    /// Max time to load, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub limit_s: f64,
    /// Max number of frames to load
    #[arg(long)]
    pub records: Option<u64>,
}

/// Linked engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RustEngine {
    /// Strongback, a folder that grows.
    Strongback,
    /// Strongback without [`StoreOptions::settle`](strongback_store::StoreOptions).
    StrongbackUnsettled,
    /// Strongback, one file of a fixed size.
    StrongbackFixed,
    /// SQLite, one table per stream.
    Sqlite,
}

/// Phase of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    /// Loads the course, reports it, and waits to be killed.
    Load,
    /// Opens the data and reads it.
    Read,
}

/// Commit rule of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Each second of the clock.
    Second,
    /// After this many frames.
    Frames(u64),
}

impl std::str::FromStr for Commit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "second" => Ok(Commit::Second),
            Some(("frames", count)) => match count.parse() {
                Ok(0) | Err(_) => Err(format!("{count:?} is not a number of frames")),
                Ok(count) => Ok(Commit::Frames(count)),
            },
            _ => Err(format!("{text:?} is neither `second` nor `frames:N`")),
        }
    }
}

impl std::fmt::Display for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Commit::Second => f.write_str("second"),
            Commit::Frames(count) => write!(f, "frames:{count}"),
        }
    }
}

/// Result of loading.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// Number of frames, all committed.
    pub(super) frames: u64,
    /// Number of values in them.
    pub(super) points: u64,
    /// Wall time in seconds.
    pub(super) seconds: f64,
    /// Processor time of all its threads, in seconds.
    pub(super) cpu_s: f64,
    /// Number of commits.
    pub(super) commits: u64,
    /// Bytes that the process wrote to the disk, as counted by the kernel.
    pub(super) written_bytes: u64,
    /// Max resident memory without the course, in MiB.
    pub(super) rss_mib: f64,
    /// Bytes written by purpose, if the engine reports them.
    #[serde(default)]
    pub(super) writes: Option<Writes>,
}

/// Bytes that an engine wrote, by its own counts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Writes {
    pub(super) log_bytes: u64,
    pub(super) settle_bytes: u64,
    /// Sum including both.
    pub(super) all_bytes: u64,
}

/// Result of reading the data back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ReadBack {
    /// Time from the start of opening until the newest row of the first stream was read, in seconds.
    pub(super) open_s: f64,
    /// Number of rows of each stream.
    pub(super) rows: Vec<u64>,
    /// Sum of each stream's first channel, computed by the engine's own aggregate.
    pub(super) sums: Vec<f64>,
    /// Time of those counts and sums, in seconds.
    pub(super) aggregate_s: f64,
    /// Number of values read by the client in a full scan.
    pub(super) scanned_points: u64,
    /// Sum of these values.
    pub(super) scanned_sum: f64,
    /// Time of the scan, in seconds.
    pub(super) scan_s: f64,
    /// Number of rows of the first stream in the middle hundredth of its time.
    pub(super) range_rows: u64,
    /// Time to read them, in seconds.
    pub(super) range_s: f64,
    /// Median time to look up a row by its time, in microseconds.
    pub(super) lookup_us: f64,
    /// Number of existing rows that were looked up.
    pub(super) looked_up: u64,
    /// Number of lookups that found their row.
    pub(super) found: u64,
    /// Bytes and values of the engine's blocks, if it reports them: the growth of its files.
    #[serde(default)]
    pub(super) blocks: Option<(u64, u64)>,
}

/// Engine under load.
pub(super) trait Load {
    /// Appends a frame; it need not be durable yet.
    fn append(&mut self, frame: &CourseFrame<'_>) -> anyhow::Result<()>;
    /// Makes all frames durable before it returns.
    fn commit(&mut self) -> anyhow::Result<()>;
    /// Deletes rows before this time, unless the engine has its own retention.
    fn prune(&mut self, before_ns: i64) -> anyhow::Result<()>;
    /// Returns the bytes written by purpose, if the engine knows.
    fn writes(&self) -> Option<Writes> {
        None
    }
}

/// Runs a phase and prints its result as one line of JSON.
///
/// # Errors
/// Any error of the engine.
pub fn run(arguments: &EngineArguments) -> anyhow::Result<()> {
    let course = Course::read(&arguments.course)?;
    match arguments.phase {
        Phase::Load => {
            let before = rss_mib()?;
            let mut loaded = match arguments.engine {
                RustEngine::Sqlite => {
                    let connection = sqlite::open(&arguments.dir)?;
                    load(&course, arguments, sqlite::create(&connection, &course)?)?
                }
                _ => load(&course, arguments, store::create(&course, arguments)?)?,
            };
            loaded.rss_mib -= before;
            println!("{}", serde_json::to_string(&loaded)?);
            // The process is killed here, so nothing is closed.
            std::io::stdin().read_to_end(&mut Vec::new())?;
            bail!("was not killed");
        }
        Phase::Read => {
            let read = match arguments.engine {
                RustEngine::Sqlite => sqlite::read(&course, arguments)?,
                _ => store::read(&course, arguments)?,
            };
            println!("{}", serde_json::to_string(&read)?);
            Ok(())
        }
    }
}

fn load(course: &Course, arguments: &EngineArguments, mut engine: impl Load) -> anyhow::Result<Loaded> {
    let mut loaded = Loaded::default();
    let (begin, begin_cpu, begin_written) = (Instant::now(), process_time()?, written_bytes()?);
    let (mut committed, mut uncommitted) = (Instant::now(), 0u64);
    let limit = Duration::from_secs_f64(arguments.limit_s);
    let keep_ns = i64::try_from(arguments.keep_s * 1_000_000_000).context("--keep-s is too large")?;
    let mut commit = |engine: &mut dyn Load, now: i64| -> anyhow::Result<()> {
        engine.commit()?;
        loaded.commits += 1;
        if keep_ns > 0 { engine.prune(now - keep_ns) } else { Ok(()) }
    };
    let mut newest = 0;
    let most = arguments.records.unwrap_or(u64::MAX);
    for frame in course.iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
        engine.append(&frame)?;
        newest = frame.time_ns;
        loaded.frames += 1;
        loaded.points += course.streams[frame.stream].kinds.len() as u64;
        uncommitted += 1;
        let looks = loaded.frames % LOOK_FRAMES == 0;
        let due = match arguments.commit {
            Commit::Frames(count) => uncommitted == count,
            Commit::Second => looks && committed.elapsed() >= Duration::from_secs(1),
        };
        if due {
            commit(&mut engine, newest)?;
            (committed, uncommitted) = (Instant::now(), 0);
        }
        if looks && begin.elapsed() > limit {
            break;
        }
    }
    commit(&mut engine, newest)?;
    loaded.seconds = begin.elapsed().as_secs_f64();
    loaded.cpu_s = (process_time()? - begin_cpu).as_secs_f64();
    loaded.written_bytes = written_bytes()? - begin_written;
    loaded.rss_mib = rss_mib()?;
    loaded.writes = engine.writes();
    Ok(loaded)
}

/// Returns times at which rows are looked up, spread over the frames of the first stream among `frames`.
pub(super) fn lookup_times(course: &Course, frames: u64) -> Vec<i64> {
    let of_first = || course.iter().take(frames as usize).filter(|f| f.stream == 0).map(|f| f.time_ns);
    let every = (of_first().count() / LOOKUPS).max(1);
    let mut times: Vec<i64> = of_first().step_by(every).take(LOOKUPS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut times);
    times
}

/// Looks rows up one by one. Returns the median time in microseconds, and how many were found.
pub(super) fn look_up(times: &[i64], mut find: impl FnMut(i64) -> anyhow::Result<bool>) -> anyhow::Result<(f64, u64)> {
    let (mut took, mut found) = (Vec::with_capacity(times.len()), 0);
    for &time in times {
        let begin = Instant::now();
        found += u64::from(find(time)?);
        took.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok((crate::ingest::percentile(&mut took, 0.5), found))
}

/// Returns the middle hundredth of a span of time.
pub(super) fn middle(first: i64, last: i64) -> std::ops::Range<i64> {
    let (at, half) = (first + (last - first) / 2, (last - first) / 200);
    at - half..at + half
}

fn process_time() -> anyhow::Result<Duration> {
    Ok(processor_time(&getrusage(UsageWho::RUSAGE_SELF).context("processor time")?))
}

/// Returns the max resident memory so far. `getrusage` would include that of the parent process.
pub(super) fn rss_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Returns the bytes that this process caused to be written to storage.
fn written_bytes() -> anyhow::Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).context("no write_bytes")?;
    Ok(line.trim().parse()?)
}
