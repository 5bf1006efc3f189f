//! One engine in a process of its own: it takes a course until that ends or its time is over and says so, is killed,
//! and in another process opens what is there and reads it.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::machine::processor_time;

use super::course::{Course, CourseFrame};
use super::{sqlite, store};

/// Frames between two looks at the clock.
const LOOK_FRAMES: u64 = 64;
/// Rows looked up one by one.
pub(super) const LOOKUPS: usize = 1000;

/// Options of the process of an engine.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArguments {
    /// Which engine
    #[arg(long, value_enum)]
    pub engine: RustEngine,
    /// What to do
    #[arg(long, value_enum)]
    pub phase: Phase,
    /// File of frames
    #[arg(long)]
    pub course: PathBuf,
    /// Folder of the engine's files
    #[arg(long)]
    pub dir: PathBuf,
    /// When to commit: each `second` of the clock, or each so many `frames`
    #[arg(long, default_value = "second")]
    pub commit: Commit,
    /// Rows older than this against the newest are deleted after each commit, in seconds; 0: none
    #[arg(long, default_value_t = 0)]
    pub keep_s: u64,
    /// Longest time to load, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub limit_s: f64,
    /// Only so many frames
    #[arg(long)]
    pub records: Option<u64>,
}

/// Engines that are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RustEngine {
    /// Strongback, a folder that grows.
    Strongback,
    /// The same without [`StoreOptions::settle`](strongback_store::StoreOptions).
    StrongbackUnsettled,
    /// Strongback, one file of a fixed size.
    StrongbackFixed,
    /// SQLite, a table a stream.
    Sqlite,
}

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    /// Takes the course, says what it took, and waits to be killed.
    Load,
    /// Opens and reads.
    Read,
}

/// When an engine commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Each second of the clock.
    Second,
    /// After so many frames.
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

/// What an engine took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// Frames, all committed.
    pub(super) frames: u64,
    /// Values in them.
    pub(super) points: u64,
    /// Wall time.
    pub(super) seconds: f64,
    /// Processor time of all its threads.
    pub(super) cpu_s: f64,
    /// Commits.
    pub(super) commits: u64,
    /// Bytes that the process gave to the disk, as the kernel counts them.
    pub(super) written_bytes: u64,
    /// Most memory held, the course not counted, in MiB.
    pub(super) rss_mib: f64,
    /// Where the engine says so, which of its writes were for what.
    #[serde(default)]
    pub(super) writes: Option<Writes>,
}

/// Bytes that an engine wrote, by its own account.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Writes {
    pub(super) log_bytes: u64,
    pub(super) settle_bytes: u64,
    /// With both of them.
    pub(super) all_bytes: u64,
}

/// What was read back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ReadBack {
    /// From the start of opening to the newest row of the first stream.
    pub(super) open_s: f64,
    /// Rows of each stream.
    pub(super) rows: Vec<u64>,
    /// Sum of each stream's first channel, as the engine's own aggregate gives it.
    pub(super) sums: Vec<f64>,
    /// Time of those counts and sums.
    pub(super) aggregate_s: f64,
    /// Every value read to the client.
    pub(super) scanned_points: u64,
    /// Sum of all of them.
    pub(super) scanned_sum: f64,
    /// Time of that.
    pub(super) scan_s: f64,
    /// Rows of the first stream in the middle hundredth of its time.
    pub(super) range_rows: u64,
    /// Time of that.
    pub(super) range_s: f64,
    /// Median of a row looked up by its time, in microseconds.
    pub(super) lookup_us: f64,
    /// Rows that are there and were looked up.
    pub(super) looked_up: u64,
    /// Lookups that found their row.
    pub(super) found: u64,
    /// Bytes and values of the engine's blocks, where it says so: what its files grow by.
    #[serde(default)]
    pub(super) blocks: Option<(u64, u64)>,
}

/// An engine under load.
pub(super) trait Load {
    /// Takes a frame; it need not be durable yet.
    fn append(&mut self, frame: &CourseFrame<'_>) -> anyhow::Result<()>;
    /// Makes all frames durable; returns when they are.
    fn commit(&mut self) -> anyhow::Result<()>;
    /// Deletes rows before this time, if the engine does not do so by itself.
    fn prune(&mut self, before_ns: i64) -> anyhow::Result<()>;
    /// What was written for what, if the engine knows.
    fn writes(&self) -> Option<Writes> {
        None
    }
}

/// Runs a phase and prints its result as one line of JSON.
///
/// # Errors
/// Whatever the engine says.
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
            // Killed here: nothing is closed.
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

/// Times at which rows are looked up, spread over the frames of the first stream among `frames`.
pub(super) fn lookup_times(course: &Course, frames: u64) -> Vec<i64> {
    let of_first = || course.iter().take(frames as usize).filter(|f| f.stream == 0).map(|f| f.time_ns);
    let every = (of_first().count() / LOOKUPS).max(1);
    let mut times: Vec<i64> = of_first().step_by(every).take(LOOKUPS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut times);
    times
}

/// Looks rows up one by one: the median in microseconds, and how many were found.
pub(super) fn look_up(times: &[i64], mut find: impl FnMut(i64) -> anyhow::Result<bool>) -> anyhow::Result<(f64, u64)> {
    let (mut took, mut found) = (Vec::with_capacity(times.len()), 0);
    for &time in times {
        let begin = Instant::now();
        found += u64::from(find(time)?);
        took.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok((crate::ingest::percentile(&mut took, 0.5), found))
}

/// The middle hundredth of a stretch of time.
pub(super) fn middle(first: i64, last: i64) -> std::ops::Range<i64> {
    let (at, half) = (first + (last - first) / 2, (last - first) / 200);
    at - half..at + half
}

fn process_time() -> anyhow::Result<Duration> {
    Ok(processor_time(&getrusage(UsageWho::RUSAGE_SELF).context("processor time")?))
}

/// Most memory held so far. `getrusage` begins with what the process that started this one held.
pub(super) fn rss_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Bytes that this process caused to be written to storage.
fn written_bytes() -> anyhow::Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).context("no write_bytes")?;
    Ok(line.trim().parse()?)
}
