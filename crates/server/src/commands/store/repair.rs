//! `strongback store repair`: mends the repairable damage that verify finds and reports it; or, if that is not enough,
//! builds a new store from whatever can be read of the old one.
//!
//! It mends a copy of the superblock, from the other one; a cut commit log, whose torn end was never acknowledged; and
//! segments without a footer, from their blocks. Damaged blocks stay in place for later examination; nothing else is
//! lost with them.

use std::path::Path;

use anyhow::bail;
use serde_json::json;
use strongback_store::inspect::{self, Damage, Depth, Inspection};
use strongback_store::{RepairReport, repair};

use super::{look, place};
use crate::cli::RepairArgs;
use crate::commands::outcome::Outcome;
use crate::instant;
use crate::process::clock::now_ns;
use crate::text::plural::many;

/// Max number of lost ranges printed.
const LOST_SHOWN: usize = 20;

/// Describes what keeps the store from being sound, as sentences.
fn findings(found: &Inspection) -> Vec<String> {
    let mut said: Vec<String> = found.damage.iter().map(told).collect();
    if !found.log.clean {
        said.push(format!(
            "log: not ended cleanly; {} to take back, and what is behind is cut",
            many(found.log.commits, "whole commit")
        ));
    }
    // A store of a fixed size continues in the segment that was open.
    let open =
        found.segments.iter().filter(|segment| !segment.sealed && segment.blobs.is_none() && found.fixed.is_none());
    said.extend(open.map(|segment| format!("{}: has no footer", segment.file)));
    said
}

fn told(damage: &Damage) -> String {
    format!("{}, offset {}: {}", damage.file, damage.offset, damage.reason)
}

fn look_at(path: &std::path::Path) -> anyhow::Result<Inspection> {
    inspect::inspect(path, Depth::Everything).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Builds a new store and reports what was lost.
fn rebuild(args: &RepairArgs, into: &Path) -> anyhow::Result<Outcome> {
    let report = repair(&args.path, into, now_ns())?;
    match args.json {
        true => println!("{}", card(args, into, &report)),
        false => print(args, into, &report),
    }
    Ok(if report.is_whole() { Outcome::Done } else { Outcome::DataLost })
}

fn card(args: &RepairArgs, into: &Path, report: &RepairReport) -> serde_json::Value {
    let damage: Vec<serde_json::Value> = report
        .damage
        .iter()
        .map(|d| json!({ "file": d.file, "offset": d.offset.to_string(), "reason": d.reason }))
        .collect();
    let lost: Vec<serde_json::Value> = report
        .lost
        .iter()
        .map(|lost| {
            json!({
                "stream": lost.stream, "from_row": lost.rows.start.to_string(),
                "to_row": (lost.rows.end - 1).to_string(), "rows": (lost.rows.end - lost.rows.start).to_string(),
                "from": lost.time.0.to_string(), "to": lost.time.1.to_string(),
            })
        })
        .collect();
    json!({
        "from": args.path, "into": into, "newest_checkpoint": report.newest_checkpoint,
        "streams": report.streams, "segments_kept": report.segments_kept, "segments_rebuilt": report.segments_rebuilt,
        "segments_lost": report.segments_lost, "rows": report.rows.to_string(), "log_commits": report.log_commits,
        "log_frames": report.log_frames.to_string(), "lost_rows": report.lost_rows().to_string(), "lost": lost,
        "damage": damage,
    })
}

fn print(args: &RepairArgs, into: &Path, report: &RepairReport) {
    report.damage.iter().for_each(|damage| println!("found    {}", told(damage)));
    if !report.newest_checkpoint {
        println!("found    the newest checkpoint is not whole: what segments and an older one say counts");
    }
    println!(
        "kept     {} unchanged, {} rebuilt from undamaged blocks; {}",
        many(report.segments_kept, "segment"),
        report.segments_rebuilt,
        many(report.rows, "row")
    );
    println!("         {} of the log with {}", many(report.log_commits, "commit"), many(report.log_frames, "frame"));
    if report.segments_lost > 0 {
        println!("lost     {}", many(report.segments_lost, "segment"));
    }
    for lost in report.lost.iter().take(LOST_SHOWN) {
        let (from, to) = (instant::format(lost.time.0), instant::format(lost.time.1));
        println!("lost     {}: rows {} to {}, from {from} to {to}", lost.stream, lost.rows.start, lost.rows.end - 1);
    }
    if report.lost.len() > LOST_SHOWN {
        println!("lost     … and {} more; --json and strongback.gaps have all", report.lost.len() - LOST_SHOWN);
    }
    println!("{}: made from {}, which is as it was", into.display(), args.path.display());
}

/// Mends a store, if asked to.
pub(super) fn run(args: &RepairArgs) -> anyhow::Result<Outcome> {
    if let Some(into) = &args.into {
        return rebuild(args, into);
    }
    let path = args.path.display();
    let before = look_at(&args.path)?;
    let found = findings(&before);
    if found.is_empty() {
        match args.json {
            true => println!("{}", json!({ "found": [], "mended": [], "left": [] })),
            false => println!("{path}: nothing to repair"),
        }
        return Ok(Outcome::Done);
    }
    if !args.json {
        found.iter().for_each(|finding| println!("found    {finding}"));
    }
    if !args.yes {
        if args.json {
            println!("{}", json!({ "found": found }));
        }
        bail!("{path}: nothing was changed; --yes mends what can be mended");
    }
    if before.identity.is_none() {
        bail!(
            "{path}: no copy of the superblock is whole; `strongback store repair {path} --into NEW` makes a new store"
        );
    }
    let store = place::open(&args.path, None)?;
    let report = store.recovery();
    place::close(&store, Ok(()))?;
    let after = look_at(&args.path)?;
    let left = findings(&after);
    let mended: Vec<&String> = found.iter().filter(|finding| !left.contains(finding)).collect();
    if args.json {
        println!(
            "{}",
            json!({
                "found": found, "mended": mended, "left": left, "frames_taken_back": report.frames.to_string(),
                "torn_bytes": report.torn_bytes.to_string(), "lost_rows": report.lost_rows.to_string(),
                "verify": look::card(&after),
            })
        );
    } else {
        mended.iter().for_each(|finding| println!("mended   {finding}"));
        println!(
            "         {} taken back from the log, {} of a torn end cut",
            many(report.frames, "frame"),
            many(report.torn_bytes, "byte")
        );
        if report.lost_rows > 0 {
            println!("         {} lost in damaged blocks; strongback.gaps says which", many(report.lost_rows, "row"));
        }
        left.iter().for_each(|finding| println!("left     {finding}"));
    }
    Ok(if left.is_empty() && report.lost_rows == 0 { Outcome::Done } else { Outcome::DataLost })
}
