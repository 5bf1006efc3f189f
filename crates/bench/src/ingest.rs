//! `strongback bench ingest`: the rate at which telemetry becomes durable, compared with other engines in the same
//! run.
//!
//! Two parts. *Embedded*: pad data generated in advance into the store and into SQLite, on one core, with the same
//! commits. *Server*: narrow rows of line protocol over HTTP and TCP into a server process, and into rival servers.
//! Data that is not read back does not count.

pub(crate) mod embedded;
mod narrow;
mod sizes;
mod sqlite;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::machine::{Machine, on_one_core};
use crate::peers::PeerRecipes;
use crate::recording::{RecordedFrame, Recording};
use crate::serving::ServerProgram;
use crate::table::{Table, short};
use crate::work_folder::WorkFolder;
use narrow::NarrowResult;
use sizes::SizeResult;

/// Options of `strongback bench ingest`.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestArguments {
    /// Uses less data: under a minute
    #[arg(long)]
    pub quick: bool,
    /// Folder for the stores [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    /// Folder with recordings (launch, vehicle_j1939, inetx) whose bytes per point are printed as well
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Runs only the embedded engines, or only the servers
    #[arg(long, value_enum)]
    pub only: Option<Part>,
    #[command(flatten)]
    program: ServerProgram,
    #[command(flatten)]
    peers: PeerRecipes,
}

/// Part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Pad data into the embedded store and SQLite.
    Embedded,
    /// Narrow rows of line protocol into servers.
    Servers,
}

/// Commit rule of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// After each 50 ms of pad time, as if the data arrived live: about 3,400 points.
    PadTime,
    /// Whenever 50 ms have passed on the clock, at full speed.
    WallTime,
}

impl Cadence {
    fn name(self) -> &'static str {
        match self {
            Cadence::PadTime => "each 50 ms of data",
            Cadence::WallTime => "each 50 ms",
        }
    }

    /// Returns whether a commit is due, after a span of 50 ms of pad time.
    fn due(self, last: Instant) -> bool {
        self == Cadence::PadTime || last.elapsed() >= Duration::from_millis(50)
    }
}

/// Data to write, how often it is committed, and the expected result.
struct Course<'a> {
    recording: &'a Recording,
    laps: u32,
    cadence: Cadence,
    checksum: u64,
}

impl<'a> Course<'a> {
    fn new(recording: &'a Recording, laps: u32, cadence: Cadence) -> Self {
        Course { recording, laps, cadence, checksum: recording.checksum(laps) }
    }

    /// Returns each span of 50 ms of pad time, with its lap.
    fn stretches(&self) -> impl Iterator<Item = (u32, &'a [RecordedFrame])> {
        let recording = self.recording;
        (0..self.laps).flat_map(move |lap| recording.each_stretch().map(move |stretch| (lap, stretch)))
    }

    /// Fails unless the data read back agrees with what was written.
    fn check(&self, points: u64, checksum: u64) -> anyhow::Result<()> {
        let expected = self.recording.points() * u64::from(self.laps);
        if points != expected || checksum != self.checksum {
            bail!(
                "read back {points} points with checksum {checksum:016x}, expected {expected} with {:016x}",
                self.checksum
            );
        }
        Ok(())
    }
}

/// Result of one engine on the recording.
#[derive(Clone, Debug, Serialize)]
pub struct EngineResult {
    /// Name and version.
    pub engine: String,
    /// Commit rule.
    pub cadence: &'static str,
    /// Durability of a commit.
    pub durability: String,
    /// Number of points written, read back, and found equal.
    pub points: u64,
    /// Time from the first append to the end of the last commit, in seconds.
    pub seconds: f64,
    /// Processor time in that span, in seconds.
    pub cpu_s: f64,
    /// Number of commits.
    pub commits: u64,
    /// Median time of a commit in microseconds.
    pub commit_us_p50: f64,
    /// 99th percentile of the time of a commit in microseconds.
    pub commit_us_p99: f64,
    /// Bytes on disk per point; `None` if nothing was sealed.
    pub bytes_per_point: Option<f64>,
}

impl EngineResult {
    fn points_per_s(&self) -> f64 {
        self.points as f64 / self.seconds
    }
}

#[derive(Serialize)]
struct IngestReport {
    machine: Machine,
    embedded: Vec<EngineResult>,
    ratio_to_sqlite: Vec<f64>,
    sizes: Vec<SizeResult>,
    servers: Vec<NarrowResult>,
}

/// Runs the benchmark and prints its tables.
///
/// # Errors
/// An engine that loses or changes a point, or a folder that cannot be written.
pub fn run(arguments: &IngestArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let machine = Machine::look(dir)?;
    println!("{}\n", machine.line());
    let mut report = IngestReport {
        machine,
        embedded: Vec::new(),
        ratio_to_sqlite: Vec::new(),
        sizes: Vec::new(),
        servers: Vec::new(),
    };
    if arguments.only != Some(Part::Servers) {
        embedded(arguments.quick, dir, &mut report)?;
        println!("\nBytes a point of real recordings, times and headers included, every point read back\n");
        match &arguments.data_dir {
            Some(folder) => {
                report.sizes = sizes::run(folder, dir)?;
                print_sizes(&report.sizes);
            }
            None => println!("left out: no --data-dir"),
        }
    }
    if arguments.only != Some(Part::Embedded) {
        let rows = if arguments.quick { 1_000_000 } else { 5_000_000 };
        report.servers = narrow::run(rows, &arguments.program, &arguments.peers)?;
        println!("\nLine protocol, one value, two tags, a time, 1,000 streams: {} rows\n", short(rows as f64));
        print_servers(&report.servers);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

fn embedded(quick: bool, dir: &Path, report: &mut IngestReport) -> anyhow::Result<()> {
    let seconds = if quick { 20 } else { 60 };
    let recording = Recording::of_pad(seconds, 1_763_653_267_000_000_000);
    println!("Durable ingest, embedded, one core: pad data made beforehand, every point read back\n");
    // At full speed, one lap would be over before the second commit.
    for (cadence, laps) in [(Cadence::PadTime, 1), (Cadence::WallTime, if quick { 4 } else { 10 })] {
        let course = Course::new(&recording, laps, cadence);
        let ours = in_folder(dir, "strongback", |dir| embedded::run(&course, dir))?;
        let theirs = in_folder(dir, "sqlite", |dir| sqlite::run(&course, dir))?;
        report.ratio_to_sqlite.push(ours.points_per_s() / theirs.points_per_s());
        report.embedded.extend([ours, theirs]);
    }
    print_embedded(&report.embedded);
    println!("\nRatio to SQLite: {:.1} and {:.1}", report.ratio_to_sqlite[0], report.ratio_to_sqlite[1]);
    Ok(())
}

fn print_sizes(results: &[SizeResult]) {
    let mut table = Table::new(["recording", "streams", "frames", "points", "bytes/point"]);
    for r in results {
        table.row([
            r.name.clone(),
            r.streams.to_string(),
            short(r.frames as f64),
            short(r.points as f64),
            format!("{:.2}", r.bytes_per_point),
        ]);
    }
    table.print();
}

fn print_servers(results: &[NarrowResult]) {
    let mut table = Table::new(["server", "over", "rows/s queryable", "rows/s sent", "a sent row is"]);
    for r in results {
        table.row([
            r.engine.clone(),
            r.protocol.into(),
            short(r.rows_per_s()),
            short(r.sent_per_s()),
            r.durability.clone(),
        ]);
    }
    table.print();
    println!();
}

/// Runs an engine on one core in a folder of its own, which is removed afterwards.
fn in_folder(
    dir: &Path,
    name: &str,
    work: impl FnOnce(&Path) -> anyhow::Result<EngineResult>,
) -> anyhow::Result<EngineResult> {
    let own = tempfile::Builder::new().prefix(name).tempdir_in(dir).context("folder of an engine")?;
    on_one_core(|| work(own.path()))?.with_context(|| name.to_string())
}

fn print_embedded(results: &[EngineResult]) {
    let mut table = Table::new([
        "engine",
        "commit",
        "points",
        "points/s",
        "CPU ns/point",
        "commit p50 µs",
        "p99 µs",
        "bytes/point",
    ]);
    for r in results {
        table.row([
            r.engine.clone(),
            r.cadence.into(),
            short(r.points as f64),
            short(r.points_per_s()),
            format!("{:.0}", r.cpu_s * 1e9 / r.points as f64),
            format!("{:.0}", r.commit_us_p50),
            format!("{:.0}", r.commit_us_p99),
            r.bytes_per_point.map_or_else(|| "–".into(), |b| format!("{b:.2}")),
        ]);
    }
    table.print();
    println!();
    for r in results.iter().take(2) {
        println!("{}: {}", r.engine, r.durability);
    }
}

/// Returns the value below which a share of the values lies, or 0 if there are none. Sorts them.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_keep_every_point_and_a_changed_one_is_found() {
        let recording = Recording::of_pad(1, 1_763_653_267_000_000_000);
        let mut course = Course::new(&recording, 2, Cadence::PadTime);
        for engine in [embedded::run, sqlite::run] {
            let dir = tempfile::tempdir().unwrap();
            let result = engine(&course, dir.path()).unwrap();
            assert_eq!(result.points, 2 * 68_500);
            assert_eq!(result.commits, 2 * 20 + 1);
        }
        course.checksum ^= 1;
        for engine in [embedded::run, sqlite::run] {
            let dir = tempfile::tempdir().unwrap();
            let error = engine(&course, dir.path()).unwrap_err().to_string();
            assert!(error.contains("checksum"), "{error}");
        }
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let mut values = vec![3.0, 1.0, 2.0, 4.0];
        assert_eq!(percentile(&mut values, 0.5), 3.0);
        assert_eq!(percentile(&mut values, 1.0), 4.0);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }
}
