//! `strongback store append`: appends rows of a file to a store that no server uses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use strongback_sources::can::Database;
use strongback_sources::rows::{self, RowConfig, RowFormat, RowReport};
use strongback_store::rdl::StoreDefinition;
use strongback_store::{Store, Stream};

use super::place::{Stop, StoreSink};
use super::{definitions, place};
use crate::cli::{AppendArgs, RowFile};
use crate::commands::outcome::Outcome;
use crate::instant;
use crate::text::plural::many;

/// Appends rows and reports what became of them.
///
/// # Errors
/// If the file cannot be read, or its rows cannot be stored.
pub(super) fn run(args: &AppendArgs) -> anyhow::Result<Outcome> {
    let name = args.file.display().to_string();
    let format = format_of(args)?;
    let stop = Stop::on_signals()?;
    let (input, bytes): (Box<dyn Read>, Option<u64>) = if name == "-" {
        (Box::new(stop.stdin()?), None)
    } else {
        let file = File::open(&args.file).with_context(|| name.clone())?;
        let bytes = file.metadata().with_context(|| name.clone())?.len();
        // Progress counts unpacked bytes, whose total is unknown.
        (Box::new(file), (!name.ends_with(".gz")).then_some(bytes))
    };
    let store = place::open(&args.path, args.config.as_deref())?;
    let before = newest_times(&store);
    let sink = StoreSink { store: store.clone() };
    let bar = progress_bar(bytes);
    let appended = definitions::read(&store).and_then(|definition| {
        let config = RowConfig {
            stream: args.stream.clone(),
            time_column: args.time_column.clone(),
            time_unit: args.time_unit.map(|unit| unit.unit()),
            types: args.types.iter().cloned().collect(),
            names: args.names.iter().cloned().collect(),
            required: definition.map(|definition| required(&definition)).unwrap_or_default(),
            source: "append".to_owned(),
            from_line: args.from_line,
            ..RowConfig::new(if name == "-" { "standard input" } else { &name }, format, store.catalog())
        };
        let report = rows::run(input, config, &sink, |progress| {
            bar.set_position(progress.bytes);
            bar.set_message(format!("line {}, {} frames", progress.lines, progress.stored));
            stop.flow()
        });
        bar.finish_and_clear();
        Ok(report?)
    });
    let mut report = place::close(&store, appended)?;
    // The signal ended standard input.
    report.stopped |= stop.flow().is_break();
    let known_to = known_to(&before, &report);
    match args.json {
        true => println!("{}", json(&name, &report, known_to)),
        false => print(&name, &report, known_to),
    }
    Ok(match (report.stopped, report.is_whole()) {
        (true, _) => Outcome::Stopped,
        (false, true) => Outcome::Done,
        (false, false) => Outcome::DataLost,
    })
}

/// Returns the newest `time` of each stream that has frames.
fn newest_times(store: &Store) -> BTreeMap<String, i64> {
    let view = store.view();
    let of = |stream: &Arc<Stream>| Some((stream.key.to_string(), view.time_range(stream.id)?.1));
    store.catalog().streams.iter().filter_map(of).collect()
}

/// Returns the newest `time` that the file's streams had before, if frames of the file are not later than it: the file
/// may have been appended before.
fn known_to(before: &BTreeMap<String, i64>, report: &RowReport) -> Option<i64> {
    let newest = report.streams.keys().filter_map(|name| before.get(name)).max().copied()?;
    report.time.filter(|(first, _)| *first <= newest).map(|_| newest)
}

/// Returns the format of the file, by the flag or its name.
fn format_of(args: &AppendArgs) -> anyhow::Result<RowFormat> {
    let name = args.file.display().to_string().to_ascii_lowercase();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    let by_name = match Path::new(stem).extension().and_then(|e| e.to_str()) {
        Some("csv") => Some(RowFile::Csv),
        Some("jsonl" | "ndjson" | "json") => Some(RowFile::Jsonl),
        Some("log") => Some(RowFile::Candump),
        _ => args.dbc.is_some().then_some(RowFile::Candump),
    };
    let Some(format) = args.format.or(by_name) else {
        bail!(
            "{}: its name does not say what it is written in: give --format csv, jsonl or candump",
            args.file.display()
        );
    };
    Ok(match format {
        RowFile::Csv => RowFormat::Csv,
        RowFile::Jsonl => RowFormat::Jsonl,
        RowFile::Candump => {
            let Some(dbc) = &args.dbc else {
                bail!("{}: a log of a bus needs --dbc, the database of its messages", args.file.display());
            };
            let file = dbc.display().to_string();
            let bytes = std::fs::read(dbc).with_context(|| file.clone())?;
            RowFormat::Candump(Arc::new(Database::parse(&bytes, &file)?))
        }
    })
}

/// Returns the required elements of each stream's records.
fn required(definition: &StoreDefinition) -> BTreeMap<String, Vec<String>> {
    let of = |stream: &strongback_store::rdl::StreamDefinition| {
        let must = stream.elements.iter().filter(|element| !element.optional);
        (stream.name.clone(), must.map(|element| element.name.clone()).collect())
    };
    definition.streams.iter().map(of).collect()
}

fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{bar:40} {bytes}/{total_bytes}, {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn json(name: &str, report: &RowReport, known_to: Option<i64>) -> serde_json::Value {
    let complaint =
        |c: &rows::Complaint| serde_json::json!({ "line": c.place.line, "column": c.place.column, "reason": c.reason });
    serde_json::json!({
        "file": name, "lines": report.lines, "rows": report.rows, "stored": report.stored(), "values": report.values,
        "reduced": report.reduced, "duplicate": report.duplicate, "rejected": report.rejected, "bad_rows": report.bad_rows,
        "bad_cells": report.bad_cells, "empty_rows": report.empty_rows, "ignored_rows": report.ignored_rows,
        "streams": report.streams, "from": report.time.map(|t| t.0.to_string()),
        "to": report.time.map(|t| t.1.to_string()), "stopped": report.stopped,
        "known_to": known_to.map(|time| time.to_string()),
        "complaints": report.complaints.iter().map(complaint).collect::<Vec<_>>(),
    })
}

fn print(name: &str, report: &RowReport, known_to: Option<i64>) {
    println!(
        "{name}: {}, {} stored with {}",
        many(report.rows, "row"),
        many(report.stored(), "frame"),
        many(report.values, "value")
    );
    for (stream, frames) in &report.streams {
        println!("  {stream}: {}", many(*frames, "frame"));
    }
    if let Some((from, to)) = report.time {
        println!("  from {} to {}", instant::format(from), instant::format(to));
    }
    if let Some(time) = known_to {
        println!(
            "  the store had frames of these streams up to {} before: a file that is appended twice is there twice",
            instant::format(time)
        );
    }
    for (count, thing, which) in [
        (report.reduced, "frame", "in which nothing left its bound"),
        (report.empty_rows, "row", "without a value"),
        (report.ignored_rows, "row", "of channels or messages that were not selected"),
        (report.duplicate, "frame", "that the store had already"),
        (report.bad_rows, "row", "of which nothing was taken"),
        (report.bad_cells, "cell", "not taken"),
    ] {
        if count > 0 {
            println!("  {} {which}", many(count, thing));
        }
    }
    for (reason, count) in &report.rejected {
        println!("  {} refused: {reason}", many(*count, "frame"));
    }
    for complaint in &report.complaints {
        println!("  {name}:{}:{}: {}", complaint.place.line, complaint.place.column, complaint.reason);
    }
    let more = (report.bad_rows + report.bad_cells + report.rejected.values().sum::<u64>())
        .saturating_sub(report.complaints.len() as u64);
    if more > 0 && report.complaints.len() == rows::COMPLAINTS_MAX {
        println!("  … and {more} more");
    }
    if report.stopped {
        println!("  stopped; go on with --from-line {}", report.lines + 1);
    }
}
