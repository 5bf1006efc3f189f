//! `strongback bench embedded`: the store as an embedded recorder, compared with other embedded engines.
//!
//! Every engine runs in a process of its own on the same frames with the same commits. It is killed after loading
//! them, and opened and read in another process. A figure is printed only if every committed row is present and its
//! sums agree.

mod course;
mod engine;
mod frames;
mod java;
mod pad;
mod quiet;
mod report;
mod scale;
mod sqlite;
mod store;
mod vehicle;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::machine::Machine;
use crate::table::short;
use crate::work_folder::WorkFolder;
use course::{Course, CourseWriter};
use engine::{Commit, Loaded, ReadBack, RustEngine};
pub use engine::{EngineArguments, run as run_engine};
use java::JavaRivals;
use scale::ScaleResult;
pub use scale::{ScaleArguments, run_case as run_scale};

/// Options of `strongback bench embedded`.
#[derive(Clone, Debug, clap::Args)]
pub struct EmbeddedArguments {
    /// Uses less data and time: about two minutes
    #[arg(long)]
    pub quick: bool,
    /// Folder for courses and stores [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    /// Runs only one kind of data
    #[arg(long, value_enum)]
    pub only: Option<Data>,
    /// Runs only engines whose name begins with this
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,
    /// Max time for an engine to load one course, in seconds; a slow engine loads only part of it
    #[arg(long)]
    pub limit_s: Option<f64>,
    /// Writes the tables and plots to this folder, as embedded.md and SVG
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Folder with the recipe `embedded.sh` that prepares the rivals in Java [default: `peers` if it exists]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}

/// Data to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Eight streams of a vehicle, one value per record.
    Vehicle,
    /// One stream of 100 channels every 40 ms.
    Frames,
    /// The launch pad's streams.
    Pad,
    /// 100,000 quiet streams and one at full rate.
    Quiet,
    /// Opening with a full log or many segments and streams, and the memory of many channels; without peers.
    Scale,
}

impl Data {
    /// Writes a course of this data.
    fn write(self, path: &Path, quick: bool) -> anyhow::Result<()> {
        let mut out;
        match self {
            Data::Vehicle => {
                let frames = if quick { 400_000 } else { 9_200_000 };
                out = CourseWriter::create(path, &vehicle::streams(), frames)?;
                vehicle::write(&mut out)?;
            }
            Data::Frames => {
                let frames = if quick { 40_000 } else { 1_000_000 };
                out = CourseWriter::create(path, &frames::streams(), frames)?;
                frames::write(&mut out)?;
            }
            Data::Pad => {
                let laps = pad::Laps::new(if quick { 2 } else { 20 });
                out = CourseWriter::create(path, &laps.streams(), laps.frames())?;
                laps.write(&mut out)?;
            }
            Data::Quiet => {
                let frames = quiet::frames(if quick { 5_000 } else { 50_000 });
                out = CourseWriter::create(path, &quiet::streams(), frames)?;
                quiet::write(&mut out)?;
            }
            Data::Scale => return Ok(()),
        }
        out.finish()
    }

    fn describe(self) -> &'static str {
        match self {
            Data::Vehicle => "vehicle: 8 streams of one value, 163 records a second of data",
            Data::Frames => "frames: 1 stream of 100 f32, 25 frames a second of data",
            Data::Pad => "pad: the launch pad's streams around lift-off, 68,500 points a second of data",
            Data::Scale => "scale: what opening and memory depend on",
            Data::Quiet => "quiet: 1 stream of 100 f32 each 40 ms, 100,000 of one f32 each 100 s",
        }
    }

    /// Returns the runs on this data.
    fn runs(self, quick: bool) -> Vec<Run> {
        let run = |commit| Run { commit, keep_s: 0, records: None };
        match self {
            Data::Vehicle => {
                let each = run(Commit::Frames(1000));
                let mut runs = vec![run(Commit::Second), each, Run { keep_s: 10_000, ..each }];
                let parts: &[u64] = if quick { &[100_000] } else { &[1_000_000, 5_000_000] };
                runs.extend(parts.iter().map(|&records| Run { records: Some(records), ..each }));
                runs
            }
            Data::Frames => vec![run(Commit::Second), run(Commit::Frames(25)), run(Commit::Frames(1))],
            Data::Pad => vec![run(Commit::Second), run(Commit::Frames(120))],
            // One second of data per commit.
            Data::Quiet => vec![run(Commit::Second), run(Commit::Frames(1025))],
            Data::Scale => Vec::new(),
        }
    }
}

/// Way in which an engine loads a course.
#[derive(Clone, Copy, Debug)]
struct Run {
    commit: Commit,
    /// Seconds of data to keep, if older rows are deleted after each commit; 0 keeps all.
    keep_s: u64,
    /// Max number of records.
    records: Option<u64>,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.commit {
            Commit::Second => f.write_str("a commit each second")?,
            Commit::Frames(1) => f.write_str("a commit each frame")?,
            Commit::Frames(count) => write!(f, "a commit each {} frames", short(count as f64))?,
        }
        if self.keep_s > 0 {
            write!(f, ", rows older than {} s deleted", short(self.keep_s as f64))?;
        }
        self.records.map_or(Ok(()), |records| write!(f, ", the first {} frames", short(records as f64)))
    }
}

/// Result of one engine.
#[derive(Clone, Debug, Serialize)]
struct EmbeddedResult {
    engine: String,
    data: Data,
    commit: String,
    keep_s: u64,
    /// Description of the run.
    run: String,
    /// Whether it was given only the first part of the course.
    part: bool,
    #[serde(flatten)]
    loaded: Loaded,
    /// Bytes of all its files after it was reopened and read.
    size_bytes: u64,
    /// Time to open it as the kill left it, in seconds.
    recovery_s: f64,
    /// Result of reading after it was opened once more.
    #[serde(flatten)]
    read: ReadBack,
}

/// Program of an engine, run in a process of its own.
#[derive(Clone, Debug)]
enum Program {
    Linked(RustEngine),
    Java(String),
}

#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    results: &'a [EmbeddedResult],
    scale: &'a [ScaleResult],
    failures: &'a [String],
}

/// Runs the benchmark.
///
/// # Errors
/// An engine that fails, or does not return what it committed; the others are measured and reported first.
pub fn run(arguments: &EmbeddedArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path().to_owned();
    let machine = Machine::look(&dir)?;
    println!("{}", machine.line());
    let rivals = JavaRivals::prepare(arguments.peers.as_deref());
    let mut programs: Vec<(String, Program)> = vec![
        ("strongback".into(), Program::Linked(RustEngine::Strongback)),
        ("strongback, settle off".into(), Program::Linked(RustEngine::StrongbackUnsettled)),
        ("strongback, fixed size".into(), Program::Linked(RustEngine::StrongbackFixed)),
        (format!("SQLite {}", rusqlite::version()), Program::Linked(RustEngine::Sqlite)),
    ];
    if let Some(rivals) = &rivals {
        programs.extend(rivals.engines.iter().map(|(name, key)| (name.clone(), Program::Java(key.clone()))));
    }
    let wanted = |name: &str| {
        let lower = name.to_lowercase();
        arguments.engine.is_empty() || arguments.engine.iter().any(|e| lower.starts_with(&e.to_lowercase()))
    };
    programs.retain(|(name, _)| wanted(name));
    let limit_s = arguments.limit_s.unwrap_or(if arguments.quick { 3.0 } else { 60.0 });
    let (mut results, mut failures) = (Vec::new(), Vec::new());
    for data in [Data::Vehicle, Data::Frames, Data::Pad, Data::Quiet] {
        if arguments.only.is_some_and(|only| only != data) {
            continue;
        }
        let path = dir.join("course");
        data.write(&path, arguments.quick)?;
        let course = Course::read(&path)?;
        for run in data.runs(arguments.quick) {
            println!("\n{}; {run}", data.describe());
            let from = results.len();
            for (name, program) in &programs {
                eprintln!("  {name}");
                let home = dir.join("store");
                let _ = std::fs::remove_dir_all(&home);
                std::fs::create_dir_all(&home)?;
                let task = Task { path: &path, home: &home, run, limit_s, rivals: rivals.as_ref() };
                match task.measure(name, program, data, &course) {
                    Ok(result) => results.push(result),
                    // Keep the results of the others, which may have taken hours.
                    Err(error) => {
                        let failure = format!("{name}, {}; {run}: {error:#}", data.describe());
                        eprintln!("  FAILED: {failure}");
                        failures.push(failure);
                    }
                }
                std::fs::remove_dir_all(&home)?;
            }
            report::table(&results[from..]).print();
        }
        std::fs::remove_file(&path)?;
    }
    let mut scale = Vec::new();
    if arguments.only.is_none_or(|only| only == Data::Scale) && wanted("strongback") {
        println!("\n{}", Data::Scale.describe());
        scale = scale::run(&dir.join("store"), arguments.quick)?;
    }
    if let Some(dir) = &arguments.report {
        report::write(dir, &machine, &results, &scale, &failures)
            .with_context(|| format!("write the report to {}", dir.display()))?;
    }
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&Report {
                machine: &machine,
                results: &results,
                scale: &scale,
                failures: &failures
            })?
        );
    }
    if !failures.is_empty() {
        bail!("{} parts failed:\n{}", failures.len(), failures.join("\n"));
    }
    Ok(())
}

/// Run of one engine on one course.
struct Task<'a> {
    path: &'a Path,
    home: &'a Path,
    run: Run,
    limit_s: f64,
    rivals: Option<&'a JavaRivals>,
}

impl Task<'_> {
    fn measure(&self, name: &str, program: &Program, data: Data, course: &Course) -> anyhow::Result<EmbeddedResult> {
        let loaded: Loaded = {
            let mut child = self.start(program, "load")?;
            let line = first_line(&mut child)?;
            child.kill().context("kill it")?;
            child.wait()?;
            serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))?
        };
        let expected = Expected::of(course, loaded.frames, self.run.keep_s);
        let mut reads = Vec::new();
        for _ in 0..2 {
            let mut child = self.start(program, "read")?;
            let line = first_line(&mut child)?;
            if !child.wait()?.success() {
                bail!("it ended with an error after it had read");
            }
            let read: ReadBack = serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))?;
            expected.check(course, &read)?;
            reads.push(read);
        }
        let (Some(read), Some(recovered)) = (reads.pop(), reads.pop()) else { bail!("not read") };
        Ok(EmbeddedResult {
            engine: name.to_owned(),
            data,
            commit: self.run.commit.to_string(),
            keep_s: self.run.keep_s,
            run: self.run.to_string(),
            part: self.run.records.is_some(),
            loaded,
            size_bytes: folder_bytes(self.home)?,
            recovery_s: recovered.open_s,
            read,
        })
    }

    fn start(&self, program: &Program, phase: &str) -> anyhow::Result<Child> {
        let Run { commit, keep_s, records } = self.run;
        let mut command = match program {
            Program::Linked(engine) => {
                let mut command = Command::new(std::env::current_exe().context("path of this program")?);
                let name = clap::ValueEnum::to_possible_value(engine).context("name of the engine")?;
                command.args(["embedded-engine", "--engine", name.get_name(), "--phase", phase]);
                command.arg("--course").arg(self.path).arg("--dir").arg(self.home);
                command.arg("--commit").arg(commit.to_string()).arg("--keep-s").arg(keep_s.to_string());
                command.arg("--limit-s").arg(self.limit_s.to_string());
                command.args(records.iter().flat_map(|count| ["--records".to_owned(), count.to_string()]));
                command
            }
            Program::Java(key) => {
                let rivals = self.rivals.context("no Java")?;
                let mut command = rivals.command();
                command.args([key.as_str(), phase]).arg(self.path).arg(self.home);
                command.args([commit.to_string(), keep_s.to_string(), self.limit_s.to_string()]);
                command.args(records.iter().map(u64::to_string));
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().with_context(|| format!("start {command:?}"))
    }
}

fn first_line(child: &mut Child) -> anyhow::Result<String> {
    use std::io::BufRead;
    let out = child.stdout.take().context("no output")?;
    let mut line = String::new();
    // Keep it open: the process ends when it is closed.
    for part in std::io::BufReader::new(out).lines() {
        line = part?;
        if line.starts_with('{') {
            return Ok(line);
        }
    }
    bail!("it ended without a result: {line}")
}

/// Expected data, given the frames that an engine loaded.
struct Expected {
    /// Number of rows of each stream.
    rows: Vec<u64>,
    /// Sum of each stream's first channel.
    sums: Vec<f64>,
    /// Sum of all values.
    total: f64,
    keep_s: u64,
}

impl Expected {
    fn of(course: &Course, frames: u64, keep_s: u64) -> Expected {
        let (rows, sums) = (vec![0; course.streams.len()], vec![0.0; course.streams.len()]);
        let mut expected = Expected { rows, sums, total: 0.0, keep_s };
        let taken = || course.iter().take(frames as usize);
        let newest = taken().last().map_or(0, |f| f.time_ns);
        let oldest = if keep_s == 0 { i64::MIN } else { newest - (keep_s * 1_000_000_000) as i64 };
        for frame in taken().filter(|f| f.time_ns >= oldest) {
            expected.rows[frame.stream] += 1;
            expected.sums[frame.stream] += frame.cells().next().unwrap_or(0.0);
            expected.total += frame.cells().sum::<f64>();
        }
        expected
    }

    /// Compares the rows of each stream, and the sum of its first channel, with what was committed.
    fn check(&self, course: &Course, read: &ReadBack) -> anyhow::Result<()> {
        let Expected { rows, sums, total, keep_s } = self;
        if *keep_s > 0 {
            // An engine may keep more than required.
            if let Some(at) = (0..rows.len()).find(|&s| read.rows.get(s).is_none_or(|&have| have < rows[s])) {
                let (name, have) = (&course.streams[at].name, read.rows.get(at));
                bail!("{name} has {have:?} rows of the newest {keep_s} s, not {}", rows[at]);
            }
            return Ok(());
        }
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0);
        if read.rows != *rows {
            bail!("it has {:?} rows, and took {rows:?}", read.rows);
        }
        if !read.sums.iter().zip(sums).all(|(a, b)| near(*a, *b)) || !near(read.scanned_sum, *total) {
            bail!("its sums are {:?} and {}, not {sums:?} and {total}", read.sums, read.scanned_sum);
        }
        if read.found != read.looked_up || read.found == 0 {
            bail!("it found {} of {} rows looked up", read.found, read.looked_up);
        }
        Ok(())
    }
}

fn folder_bytes(dir: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { folder_bytes(&entry.path())? } else { data.blocks() * 512 };
    }
    Ok(bytes)
}
