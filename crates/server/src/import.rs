//! `strongback import`: a capture into a store that no server uses.
//!
//! What was imported is written down in `strongback.imports` (run, file, hash), so that the same file does not
//! go into the same run twice.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use strongback_sources::import::{self, ImportConfig, ImportReport};
use strongback_sources::{Sink, layout};
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Scan, Store, StreamKey, StreamSpec, Value,
};

use crate::cli::ImportArgs;
use crate::clock::now_ns;
use crate::config::Config;
use crate::ingest::Ingest;
use crate::live::Live;
use crate::outcome::Outcome;

const IMPORTS: &str = "strongback.imports";

/// Imports a capture and says what became of its packets.
///
/// # Errors
/// What keeps it from being read or stored.
pub fn run(args: &ImportArgs) -> anyhow::Result<Outcome> {
    let mut config = Config::read(&args.config)?;
    if let Some(dir) = &args.data {
        config.data_dir.clone_from(dir);
    }
    let sources = layout::compile_all(&config.source)?.packets;
    if sources.is_empty() {
        bail!("{}: no [[source]] says what the capture's packets hold", args.config.display());
    }
    if args.run.is_empty() {
        bail!("--run must name the run that the data belongs to");
    }
    let ingest = Ingest::open(
        config.data_dir.clone(),
        config.store_options(),
        config.channel_notes(),
        Arc::new(Live::default()),
    )?;
    let ingest = Arc::new(ingest);
    let interval = Duration::from_millis(config.commit_interval_ms);
    let (commits, maintenance) = (ingest.clone(), ingest.clone());
    let threads = [
        std::thread::Builder::new().name("commit".into()).spawn(move || commits.run_commits(interval))?,
        std::thread::Builder::new().name("maintain".into()).spawn(move || maintenance.run_maintenance())?,
    ];
    let imported = import_once(args, &ingest, sources);
    ingest.stop();
    for thread in threads {
        if thread.join().is_err() {
            bail!("a thread of the store ended by a defect");
        }
    }
    let streams = imported.as_ref().map(|report| losses(&ingest.store(), report)).unwrap_or_default();
    ingest.store().close(now_ns()).context("the last commit failed")?;
    let report = imported?;
    if args.json {
        println!("{}", json(args, &report, &streams));
    } else {
        print(args, &report, &streams);
    }
    // Gaps of the recording are no loss of ours; what was in the file and is not in the store is.
    let whole = report.rejected.is_empty() && report.truncated == 0 && report.fragments == 0 && !report.cut;
    Ok(if whole { Outcome::Done } else { Outcome::DataLost })
}

fn import_once(
    args: &ImportArgs,
    ingest: &Ingest,
    sources: Vec<strongback_sources::SourceLayout>,
) -> anyhow::Result<ImportReport> {
    let hash = import::file_sha256(&args.file).with_context(|| args.file.display().to_string())?;
    if is_imported(&ingest.store(), &args.run, &hash)? {
        bail!("{} is in the run {:?} already: the same file is not imported twice", args.file.display(), args.run);
    }
    // Nothing of it goes until the run is released; durable before the first frame.
    let protected = ingest.store().protect_run(&args.run, now_ns())?;
    ingest.wait_durable(protected).context("the run is not protected")?;
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {msg} packets")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let import = ImportConfig { run: args.run.clone(), sources };
    let report = import::run(&args.file, &import, ingest, |progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.bytes);
        bar.set_message(progress.packets.to_string());
        ControlFlow::Continue(())
    })?;
    bar.finish_and_clear();
    write_down(ingest, args, &hash)?;
    if ingest.reopenings() > 0 {
        bail!("the disk failed during the import: frames are missing; import into another run");
    }
    Ok(report)
}

fn is_imported(store: &Store, run: &str, hash: &str) -> anyhow::Result<bool> {
    let catalog = store.catalog();
    let Some(stream) = catalog.streams.iter().find(|s| s.key.table == IMPORTS) else { return Ok(false) };
    let (Some(runs), Some(hashes)) = (stream.layout.index("run"), stream.layout.index("sha256")) else {
        return Ok(false);
    };
    for batch in store.view().scan(Scan::all(stream.id, vec![runs, hashes])) {
        let batch = batch?;
        for row in 0..batch.len() {
            let is = |column: usize, text: &str| batch.columns[column].cell(row) == Ok(Value::String(text));
            if is(0, run) && is(1, hash) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn write_down(ingest: &Ingest, args: &ImportArgs, hash: &str) -> anyhow::Result<()> {
    let spec = StreamSpec {
        key: StreamKey::new(IMPORTS, []),
        source: "internal".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: ["run", "sha256", "file"].map(|name| ChannelSpec::new(name, ChannelType::String)).into(),
    };
    let (stream, channels): (_, Vec<ChannelIndex>) = ingest.resolve_own(&spec)?;
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time: now_ns(), source_time: None, sequence: None });
    let file = args.file.display().to_string();
    for (channel, text) in channels.iter().zip([args.run.as_str(), hash, &file]) {
        batch.push(*channel, Value::String(text));
    }
    batch.end();
    let appended = ingest.accept_waiting(&batch);
    ingest.wait_durable(appended.commit).context("the import is not written down")
}

/// What sequences say of a stream of the capture.
#[derive(Debug)]
struct Losses {
    name: String,
    lost: u64,
    filled: u64,
    late: u64,
    restarts: u64,
}

fn losses(store: &Store, report: &ImportReport) -> Vec<Losses> {
    let of = |stream: &import::StreamReport| {
        let counts = store.counts(stream.stream);
        Losses {
            name: stream.key.to_string(),
            lost: counts.lost,
            filled: counts.filled,
            late: counts.late,
            restarts: counts.restarts,
        }
    };
    report.streams.iter().map(of).collect()
}

fn json(args: &ImportArgs, report: &ImportReport, losses: &[Losses]) -> serde_json::Value {
    let streams: Vec<serde_json::Value> = report
        .streams
        .iter()
        .zip(losses)
        .map(|(s, l)| {
            serde_json::json!({
                "source": s.source, "stream_id": format!("{:#x}", s.stream_id), "stream": l.name,
                "frames": s.frames, "stored": s.stored, "duplicate": s.duplicate, "rejected": s.rejected,
                "lost": l.lost, "filled": l.filled, "late": l.late, "restarts": l.restarts,
                "from": s.time.map(|t| t.0.to_string()), "to": s.time.map(|t| t.1.to_string()),
            })
        })
        .collect();
    let unknown: std::collections::BTreeMap<String, u64> =
        report.unknown_streams.iter().map(|(id, n)| (format!("{id:#x}"), *n)).collect();
    serde_json::json!({
        "file": args.file.display().to_string(), "sha256": report.file_sha256, "run": args.run,
        "packets": report.packets, "datagrams": report.datagrams, "fragments": report.fragments,
        "truncated": report.truncated, "untimed": report.untimed, "other": report.other, "cut": report.cut,
        "stored": report.stored(), "duplicate": report.duplicate(), "rejected": report.rejected,
        "unknown_streams": unknown, "streams": streams,
    })
}

fn print(args: &ImportArgs, report: &ImportReport, losses: &[Losses]) {
    println!(
        "{}: {} packets, {} datagrams; run {:?}: {} frames stored, {} duplicate",
        args.file.display(),
        report.packets,
        report.datagrams,
        args.run,
        report.stored(),
        report.duplicate()
    );
    for (stream, losses) in report.streams.iter().zip(losses).filter(|(s, _)| s.frames > 0) {
        println!(
            "  {}: {} frames, {} stored, {} duplicate, {} lost, {} of them late after all, {} restarts",
            losses.name, stream.frames, stream.stored, stream.duplicate, losses.lost, losses.filled, losses.restarts
        );
    }
    for (reason, count) in &report.rejected {
        println!("  {count} rejected: {reason}");
    }
    for (id, count) in &report.unknown_streams {
        println!("  {count} packets of stream {id:#x}, which no layout has");
    }
    for (count, what) in [
        (report.fragments, "fragments of datagrams, which are not put together"),
        (report.truncated, "packets of which the capture holds too little"),
        (report.untimed, "packets without a time"),
        (report.other, "packets of other protocols"),
    ] {
        if count > 0 {
            println!("  {count} {what}");
        }
    }
    if report.cut {
        println!("  the capture ends in the middle of a packet");
    }
}
