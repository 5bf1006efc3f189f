//! `strongback import`: imports a capture or an MCAP file into a store that no server uses.
//!
//! An import is recorded in `strongback.imports` (run, file, hash) before its first frame, with the number of rows the
//! run has then, and again after its last. So the same file does not get into the same run twice, not even if an import
//! ended early.

mod captured;
mod recorded;

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use strongback_sources::import::{self, ImportConfig, ImportReport};
use strongback_sources::mcap::{self, McapConfig, McapReport};
use strongback_sources::{Sink, SourceLayout};
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Scan, Store, StreamId, StreamKey, StreamSpec,
    Value,
};

use crate::cli::ImportArgs;
use crate::commands::outcome::Outcome;
use crate::commands::settings;
use crate::config::Config;
use crate::ingest::Ingest;
use crate::live::Live;
use crate::process::clock::now_ns;

const IMPORTS: &str = "strongback.imports";

/// Kind of a file, with the data needed to read it.
enum FileKind {
    /// Packets, with the layouts of their sources.
    Capture(Vec<SourceLayout>),
    /// Messages, which describe themselves.
    Mcap,
}

/// Progress of a file's import into a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImportStep {
    /// Begun; frames may be stored. Older stores do not record how many rows the run had at the beginning.
    Begun { rows: Option<u64> },
    /// Complete. The row has no state, as in stores from before the begin of imports was recorded.
    Done,
}

/// The recorded imports of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// Progress of this file; `None` if its import was never begun.
    step: Option<ImportStep>,
    /// Whether another file was completely imported into the run.
    has_others: bool,
}

const BEGUN: &str = "begun";
const NOT_WRITTEN: &str = "the import is not written down";

/// Result of an import.
enum Imported {
    Capture(ImportReport),
    Mcap(McapReport),
}

/// Imports a file and reports what became of its packets or messages.
///
/// # Errors
/// If the file cannot be read or stored.
pub fn run(args: &ImportArgs) -> anyhow::Result<Outcome> {
    let file = settings::file(args.config.as_deref());
    let mut config = settings::read(file.as_deref())?;
    if let Some(dir) = &args.data {
        config.data_dir.clone_from(dir);
    }
    let form = form_of(args, &config, file.as_deref())?;
    if args.run.is_empty() {
        bail!("--run must name the run that the data belongs to");
    }
    let ingest = Ingest::open(
        config.data_dir.clone(),
        config.store_options(),
        config.channel.clone(),
        Arc::new(Live::default()),
    )?;
    let ingest = Arc::new(ingest);
    let interval = Duration::from_millis(config.commit_interval_ms);
    let (commits, maintenance) = (ingest.clone(), ingest.clone());
    let threads = [
        std::thread::Builder::new().name("commit".into()).spawn(move || commits.run_commits(interval))?,
        std::thread::Builder::new().name("maintain".into()).spawn(move || maintenance.run_maintenance())?,
    ];
    let imported = import_once(args, &ingest, form);
    ingest.stop();
    for thread in threads {
        if thread.join().is_err() {
            bail!("a thread of the store ended by a defect");
        }
    }
    let told = imported.map(|imported| match imported {
        Imported::Capture(report) => captured::tell(args, &report, &ingest.store()),
        Imported::Mcap(report) => recorded::tell(args, &report, &ingest.store()),
    });
    ingest.store().close(now_ns()).context("the last commit failed")?;
    let told = told?;
    print!("{}", told.text);
    Ok(if told.is_whole { Outcome::Done } else { Outcome::DataLost })
}

/// Report of an import.
struct ImportSummary {
    /// Lines for people, or one line of JSON.
    text: String,
    /// Whether everything in the file is in the store.
    is_whole: bool,
}

fn form_of(args: &ImportArgs, config: &Config, config_file: Option<&Path>) -> anyhow::Result<FileKind> {
    if is_mcap(&args.file).with_context(|| args.file.display().to_string())? {
        return Ok(FileKind::Mcap);
    }
    if !is_capture(&args.file).with_context(|| args.file.display().to_string())? {
        bail!(
            "{}: neither a capture (pcap, pcapng) nor an MCAP file; `strongback store append` reads rows (CSV, JSON lines, \
             candump)",
            args.file.display()
        );
    }
    let Some(config_file) = config_file else {
        bail!("{}: --config must say what the packets of a capture hold", args.file.display());
    };
    let sources = config.source.packets.clone();
    if sources.is_empty() {
        bail!("{}: no [[source]] says what the capture's packets hold", config_file.display());
    }
    Ok(FileKind::Capture(sources))
}

/// Returns whether a file begins like a pcap, of either byte order and resolution, or a pcapng.
fn is_capture(file: &Path) -> std::io::Result<bool> {
    const MAGIC: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0x0a0d_0d0a];
    let mut begin = [0; 4];
    match File::open(file)?.read_exact(&mut begin) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    Ok(MAGIC.iter().any(|magic| [magic.to_be_bytes(), magic.to_le_bytes()].contains(&begin)))
}

fn is_mcap(file: &Path) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    File::open(file)?.take(mcap::MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == mcap::MAGIC)
}

fn import_once(args: &ImportArgs, ingest: &Ingest, form: FileKind) -> anyhow::Result<Imported> {
    let hash = import::file_sha256(&args.file).with_context(|| args.file.display().to_string())?;
    import_hashed(args, ingest, form, &hash)
}

fn import_hashed(args: &ImportArgs, ingest: &Ingest, form: FileKind, hash: &str) -> anyhow::Result<Imported> {
    let written = written_of(&ingest.store(), &args.run, hash)?;
    let rows = rows_of(&ingest.store(), &args.run);
    match written.step {
        Some(ImportStep::Done) => {
            bail!("{} is in the run {:?} already: the same file is not imported twice", args.file.display(), args.run)
        }
        // Most messages have no sequence, and not all packets are recognised by theirs.
        Some(ImportStep::Begun { rows: before }) if rows != before.unwrap_or(0) => bail!(
            "{}: an earlier import into the run {:?} ended early, and what it stored would be stored twice: \
             name another run with --run{}",
            args.file.display(),
            args.run,
            // Releasing the run would give up other files' data, too.
            if written.has_others { "" } else { ", and give this one up with `strongback run release`" }
        ),
        Some(ImportStep::Begun { .. }) | None => {}
    }
    // Nothing of the run is deleted until it is released; durable before the first frame.
    let protected = ingest.store().protect_run(&args.run, now_ns())?;
    ingest.wait_durable(protected).context("the run is not protected")?;
    if written.step.is_none() {
        write_down(ingest, args, hash, ImportStep::Begun { rows: Some(rows) })?;
    }
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let show = |bytes: u64, total_bytes: u64, count: String| {
        bar.set_length(total_bytes);
        bar.set_position(bytes);
        bar.set_message(count);
        ControlFlow::Continue(())
    };
    let run = args.run.clone();
    let imported = match form {
        FileKind::Capture(sources) => {
            Imported::Capture(import::run(&args.file, &ImportConfig { run, sources }, ingest, |now| {
                show(now.bytes, now.total_bytes, format!("{} packets", now.packets))
            })?)
        }
        FileKind::Mcap => Imported::Mcap(mcap::run(&args.file, &McapConfig { run }, ingest, |now| {
            show(now.bytes, now.total_bytes, format!("{} messages", now.messages))
        })?),
    };
    bar.finish_and_clear();
    if ingest.reopenings() > 0 {
        bail!("the disk failed during the import: frames are missing; import into another run");
    }
    let read = match &imported {
        Imported::Capture(report) => &report.file_sha256,
        Imported::Mcap(report) => &report.file_sha256,
    };
    if read != hash {
        bail!("{}: the file changed while it was imported: import it into another run", args.file.display());
    }
    // A file of which nothing was stored may be imported again, for example with another configuration.
    if rows_of(&ingest.store(), &args.run) > rows {
        write_down(ingest, args, hash, ImportStep::Done)?;
    }
    Ok(imported)
}

/// Reads the records of a file and a run.
fn written_of(store: &Store, run: &str, hash: &str) -> anyhow::Result<Written> {
    let mut written = Written::default();
    let catalog = store.catalog();
    let Some(stream) = catalog.streams.iter().find(|s| s.key.table == IMPORTS) else { return Ok(written) };
    let (Some(runs), Some(hashes)) = (stream.layout.index("run"), stream.layout.index("sha256")) else {
        return Ok(written);
    };
    // Older stores lack these channels.
    let optional = ["state", "rows"].map(|name| stream.layout.index(name));
    let columns = [runs, hashes].into_iter().chain(optional.into_iter().flatten()).collect();
    for batch in store.view().scan(Scan::all(stream.id, columns)) {
        let batch = batch?;
        for row in 0..batch.len() {
            let cell = |column: usize| batch.columns.get(column)?.cell(row).ok();
            let is = |column: usize, text: &str| cell(column) == Some(Value::String(text));
            if !is(0, run) {
                continue;
            }
            let is_done = !is(2, BEGUN);
            match (is(1, hash), is_done) {
                (true, true) => written.step = Some(ImportStep::Done),
                (true, false) if written.step != Some(ImportStep::Done) => {
                    let rows = match cell(3) {
                        Some(Value::U64(rows)) => Some(rows),
                        _ => None,
                    };
                    written.step = Some(ImportStep::Begun { rows });
                }
                (true, false) => {}
                (false, is_done) => written.has_others |= is_done,
            }
        }
    }
    Ok(written)
}

/// Returns the number of rows ever stored in all streams of a run.
fn rows_of(store: &Store, run: &str) -> u64 {
    let view = store.view();
    let of_run = view.catalog().streams.iter().filter(|s| s.key.tag("run") == Some(run));
    of_run.map(|s| view.next_row(s.id)).sum()
}

fn write_down(ingest: &Ingest, args: &ImportArgs, hash: &str, step: ImportStep) -> anyhow::Result<()> {
    let spec = StreamSpec {
        key: StreamKey::new(IMPORTS, []),
        source: "internal".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: ["run", "sha256", "file", "state"]
            .map(|name| ChannelSpec::new(name, ChannelType::String))
            .into_iter()
            .chain([ChannelSpec::new("rows", ChannelType::U64)])
            .collect(),
    };
    let (stream, channels): (_, Vec<ChannelIndex>) = ingest.resolve_own(&spec)?;
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time: now_ns(), source_time: None, sequence: None });
    let file = args.file.display().to_string();
    let mut cells = vec![Value::String(&args.run), Value::String(hash), Value::String(&file)];
    if let ImportStep::Begun { rows } = step {
        cells.push(Value::String(BEGUN));
        cells.extend(rows.map(Value::U64));
    }
    for (channel, cell) in channels.iter().zip(cells) {
        batch.push(*channel, cell);
    }
    batch.end();
    let appended = ingest.accept_waiting(&batch);
    if let Some(strongback_store::Outcome::Rejected(reject)) = appended.outcomes.into_iter().next() {
        return Err(reject).context(NOT_WRITTEN);
    }
    ingest.wait_durable(appended.commit).context(NOT_WRITTEN)
}

/// Sequence statistics of a stream of the file.
#[derive(Debug)]
struct Losses {
    name: String,
    lost: u64,
    filled: u64,
    late: u64,
    restarts: u64,
}

impl Losses {
    fn of(store: &Store, key: &StreamKey, stream: StreamId) -> Losses {
        let counts = store.counts(stream);
        Losses {
            name: key.to_string(),
            lost: counts.lost,
            filled: counts.filled,
            late: counts.late,
            restarts: counts.restarts,
        }
    }
}

#[cfg(test)]
mod tests;
