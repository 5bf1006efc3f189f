//! Time to open a store of many streams or segments, or one that was killed with a full log, and memory of a process
//! that records many channels. Each store is filled in a process of its own, killed, and opened in another.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Refusal, Reject, Scan, Store,
    StoreOptions, StreamId, StreamKey, StreamSpec, Value,
};

use super::course::BEGIN_NS;
use super::engine::{Phase, rss_mib};
use super::frames::PERIOD_NS;
use super::{first_line, folder_bytes};
use crate::table::{Table, short};

/// Options of the process that fills or opens a store.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleArguments {
    /// Contents of the store
    #[arg(long, value_enum)]
    pub case: Case,
    /// Phase to run
    #[arg(long, value_enum)]
    pub phase: Phase,
    /// Folder of the store
    #[arg(long)]
    pub dir: PathBuf,
    /// Uses less data
    #[arg(long)]
    pub quick: bool,
}

/// Contents of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A full log of wide frames.
    WideLog,
    /// A full log of frames of 40 bytes, 10,000 streams.
    NarrowLog,
    /// 1,600 segments, 10,000 streams.
    Segments1600,
    /// 16,000 segments, 10,000 streams.
    Segments16000,
    /// 10 channels in one stream.
    Channels10,
    /// 10,000 channels in 100 streams.
    Channels10000,
    /// 100,000 channels in 1,000 streams.
    Channels100000,
    /// 100,000 streams of one channel.
    Streams100000,
}

/// Condition that ends filling.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// The log is full, since nothing was sealed for a while.
    LogFull,
    /// This many segments.
    Segments(u64),
    /// This many points.
    Points(u64),
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    what: &'static str,
    streams: usize,
    channels: usize,
    kind: ChannelType,
    until: Until,
}

impl Case {
    fn shape(self, quick: bool) -> Shape {
        let shape = |what, streams, channels, kind, until| Shape { what, streams, channels, kind, until };
        let points = Until::Points(if quick { 2_000_000 } else { 40_000_000 });
        let (f32, f64) = (ChannelType::F32, ChannelType::F64);
        match self {
            Case::WideLog => shape("a full log, 1 stream of 100 f32", 1, 100, f32, Until::LogFull),
            Case::NarrowLog => shape("a full log, 10,000 streams of 5 f64", 10_000, 5, f64, Until::LogFull),
            Case::Segments1600 => shape("1,600 segments, 10,000 streams", 10_000, 1, f64, Until::Segments(1_600)),
            Case::Segments16000 => shape("16,000 segments, 10,000 streams", 10_000, 1, f64, Until::Segments(16_000)),
            Case::Channels10 => shape("10 channels, 1 stream", 1, 10, f32, points),
            Case::Channels10000 => shape("10,000 channels, 100 streams", 100, 100, f32, points),
            Case::Channels100000 => shape("100,000 channels, 1,000 streams", 1_000, 100, f32, points),
            Case::Streams100000 => shape("100,000 channels, a stream each", 100_000, 1, f32, points),
        }
    }

    fn options(self) -> StoreOptions {
        let options = StoreOptions { max_bytes: Some(16 << 30), ..StoreOptions::default() };
        match self {
            // Use the smallest segments, and seal rows at once.
            Case::Segments1600 | Case::Segments16000 => {
                StoreOptions { log_bytes: 4 << 20, segment_bytes: 32 << 10, open_bytes: 0, settle: false, ..options }
            }
            _ => options,
        }
    }
}

/// Result of filling.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Filled {
    frames: u64,
    log_used_bytes: u64,
    log_bytes: u64,
    segments: u64,
    /// Max resident memory, in MiB.
    rss_mib: f64,
}

/// Result of opening.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Opened {
    /// Time until the newest row of the first stream was read, in seconds.
    open_s: f64,
    /// Number of frames recovered from the log.
    frames: u64,
    segments: u64,
    /// Number of frames of all streams.
    rows: u64,
    /// Max resident memory at that time, in MiB.
    rss_mib: f64,
}

/// Result of a case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScaleResult {
    case: Case,
    what: &'static str,
    filled: Filled,
    /// Opening after the kill, first with its files in the page cache, then without.
    opened: [Opened; 2],
    /// Bytes of all files.
    size_bytes: u64,
}

/// Fills and opens a store for each case.
pub(super) fn run(home: &Path, quick: bool) -> anyhow::Result<Vec<ScaleResult>> {
    let mut results = Vec::new();
    for case in Case::value_variants() {
        if quick && matches!(case, Case::Segments16000) {
            continue;
        }
        let what = case.shape(quick).what;
        eprintln!("  {what}");
        let _ = std::fs::remove_dir_all(home);
        std::fs::create_dir_all(home)?;
        results.push(measure(*case, home, quick).with_context(|| what.to_owned())?);
        std::fs::remove_dir_all(home)?;
    }
    table(&results).print();
    Ok(results)
}

fn measure(case: Case, home: &Path, quick: bool) -> anyhow::Result<ScaleResult> {
    let shape = case.shape(quick);
    let filled: Filled = serde_json::from_str(&in_process(case, Phase::Load, home, quick)?)?;
    let mut opened = Vec::new();
    for cold in [false, true] {
        if cold {
            forget_cached(home)?;
        }
        let open: Opened = serde_json::from_str(&in_process(case, Phase::Read, home, quick)?)?;
        ensure!(open.rows == filled.frames, "{} rows instead of {}", open.rows, filled.frames);
        opened.push(open);
    }
    let opened = opened.try_into().map_err(|_| anyhow::anyhow!("not opened"))?;
    Ok(ScaleResult { case, what: shape.what, filled, opened, size_bytes: folder_bytes(home)? })
}

/// Runs a process, reads one line from it, and kills it.
fn in_process(case: Case, phase: Phase, home: &Path, quick: bool) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::current_exe().context("path of this program")?);
    let name = |value: Option<clap::builder::PossibleValue>| value.map_or(String::new(), |v| v.get_name().to_owned());
    command.args(["embedded-scale", "--case", &name(case.to_possible_value())]);
    command.args(["--phase", &name(phase.to_possible_value())]).arg("--dir").arg(home);
    command.args(quick.then_some("--quick"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start it")?;
    let line = first_line(&mut child);
    child.kill().context("kill it")?;
    child.wait()?;
    line
}

/// Makes the kernel drop the cached pages of all files of a folder, as after a power cut, with `dd`.
fn forget_cached(dir: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let mut of = std::ffi::OsString::from("if=");
        of.push(&path);
        let done = Command::new("dd").arg(of).args(["iflag=nocache", "count=0", "status=none"]).status();
        ensure!(done.context("start dd")?.success(), "dd could not drop the pages of {}", path.display());
    }
    Ok(())
}

/// Runs a phase and prints its result as one line of JSON.
///
/// # Errors
/// Any error of the store.
pub fn run_case(arguments: &ScaleArguments) -> anyhow::Result<()> {
    let said = match arguments.phase {
        Phase::Load => {
            let (filled, store) = fill(arguments)?;
            // Do not close it: the process is killed.
            std::mem::forget(store);
            serde_json::to_string(&filled)?
        }
        Phase::Read => serde_json::to_string(&open(arguments)?)?,
    };
    println!("{said}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn spec(shape: &Shape, n: usize) -> StreamSpec {
    let mut channels: Vec<ChannelSpec> =
        (0..shape.channels).map(|c| ChannelSpec::new(format!("c{c}"), shape.kind)).collect();
    if let Until::Segments(_) = shape.until {
        // Footers hold stream definitions, so long descriptions fill small segments with few rows.
        channels[0].description = "as long as it takes to fill a segment with few streams; ".repeat(11);
    }
    StreamSpec {
        key: StreamKey::new("plant", [("n".to_owned(), n.to_string())]),
        source: "scale".into(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels,
    }
}

fn upkeep(store: &Store, now: i64) -> anyhow::Result<()> {
    store.commit(now)?;
    while store.maintain(now)? {}
    Ok(())
}

fn fill(arguments: &ScaleArguments) -> anyhow::Result<(Filled, Store)> {
    let shape = arguments.case.shape(arguments.quick);
    let store = Store::open(&arguments.dir, arguments.case.options(), BEGIN_NS)?;
    let mut ids = Vec::with_capacity(shape.streams);
    for n in 0..shape.streams {
        ids.push(store.resolve(&spec(&shape, n), BEGIN_NS)?.0.id);
        if n % 1_000 == 0 {
            upkeep(&store, BEGIN_NS)?;
        }
    }
    let (mut filled, mut random, mut batch) = (Filled::default(), Rng::with_seed(1), FrameBatch::new());
    let (mut now, mut next, mut full) = (BEGIN_NS, 0, false);
    // Before the log is left to fill up, seal until it has wrapped once.
    let warm_bytes = 2 * store.stats().log_bytes;
    while !full {
        let stats = store.stats();
        let resting = match shape.until {
            Until::LogFull => stats.log_written_bytes > warm_bytes,
            Until::Segments(count) if stats.segments >= count => break,
            Until::Points(points) if filled.frames * shape.channels as u64 >= points => break,
            _ => false,
        };
        batch.clear();
        for _ in 0..if let Until::Segments(_) = shape.until { 16 } else { 256 } {
            // One frame of each stream in turn, every 40 ms.
            batch.begin(FrameHead { stream: ids[next], receive_time: now, source_time: None, sequence: None });
            for c in 0..shape.channels {
                let code = f64::from(700 + 25 * (c as u32 % 100) + u32::from(random.u8(0..4)));
                let value = if shape.kind == ChannelType::F32 {
                    Value::F32(code as f32 * 0.0625)
                } else {
                    Value::F64(code * 0.1)
                };
                batch.push(ChannelIndex(c as u16), value);
            }
            batch.end();
            next = (next + 1) % ids.len();
            now += PERIOD_NS / ids.len() as i64;
        }
        for outcome in store.append(&batch, now).outcomes {
            match outcome {
                Outcome::Stored { .. } => filled.frames += 1,
                Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => full = true,
                other => bail!("a frame was not stored: {other:?}"),
            }
        }
        store.commit(now)?;
        if !resting {
            full = false;
            while store.maintain(now)? {}
        }
    }
    let stats = store.stats();
    (filled.log_used_bytes, filled.log_bytes) = (stats.log_used_bytes, stats.log_bytes);
    (filled.segments, filled.rss_mib) = (stats.segments, rss_mib()?);
    Ok((filled, store))
}

fn open(arguments: &ScaleArguments) -> anyhow::Result<Opened> {
    let begin = Instant::now();
    let store = Store::open(&arguments.dir, arguments.case.options(), BEGIN_NS)?;
    let view = store.view();
    let (_, newest) = view.time_range(StreamId(0)).context("no row")?;
    let scan = Scan { time: newest..newest + 1, ..Scan::all(StreamId(0), vec![ChannelIndex(0)]) };
    let found = view.scan(scan).try_fold(0, |rows, batch| batch.map(|batch| rows + batch.len()))?;
    ensure!(found > 0, "the newest row is missing");
    let open_s = begin.elapsed().as_secs_f64();
    let rows = view.catalog().streams.iter().map(|stream| view.next_row(stream.id)).sum();
    let (frames, segments) = (store.recovery().frames, store.stats().segments);
    std::mem::forget(store);
    Ok(Opened { open_s, frames, segments, rows, rss_mib: rss_mib()? })
}

fn table(results: &[ScaleResult]) -> Table {
    let mut table = Table::new([
        "what it holds",
        "frames",
        "segments",
        "log MiB",
        "frames from the log",
        "open ms",
        "pages dropped ms",
        "memory recording MiB",
        "memory opened MiB",
    ]);
    for ScaleResult { what, filled, opened: [warm, cold], .. } in results {
        table.row([
            (*what).to_owned(),
            short(filled.frames as f64),
            short(filled.segments as f64),
            format!("{:.1}", filled.log_used_bytes as f64 / 1048576.0),
            short(warm.frames as f64),
            format!("{:.1}", warm.open_s * 1e3),
            format!("{:.1}", cold.open_s * 1e3),
            format!("{:.0}", filled.rss_mib),
            format!("{:.0}", warm.rss_mib),
        ]);
    }
    table
}

/// Returns its section of the report.
pub(super) fn section(results: &[ScaleResult]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(
        text,
        "\n## Opening and memory\n\nStrongback in a folder, filled in a process that is killed and opened in another: until the \
         newest row is read, with the files' pages in memory as after a crash of the process, and after the pages were \
         dropped, as after a power cut (the second opening finds what the first one left in the log). *Memory* is the \
         whole process at its peak, 64 MiB of rows that wait for their block among it.\n\n{}",
        table(results).markdown().trim_end()
    )?;
    Ok(text)
}
