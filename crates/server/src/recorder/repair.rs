//! `strongback store repair`: mends what verify finds and can be mended, and says what it did.
//!
//! Mended are: a copy of the superblock, from the other one; a commit log that was cut (the torn end was never
//! acknowledged); segments that lack a footer, from the blocks in them. Damaged blocks stay where they are, for whoever
//! looks into them; nothing else is given up with them.

use anyhow::bail;
use serde_json::json;
use strongback_store::inspect::{self, Damage, Depth, Inspection};

use super::{look, place};
use crate::cli::RepairArgs;
use crate::outcome::Outcome;

/// What stands in the way of a sound store, as sentences.
fn findings(found: &Inspection) -> Vec<String> {
    let mut said: Vec<String> = found.damage.iter().map(told).collect();
    if !found.log.clean {
        said.push(format!(
            "log: not ended cleanly; {} whole commits are taken back, and what is behind them is cut",
            found.log.commits
        ));
    }
    // A store of a fixed size goes on in the segment that was open.
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

/// Mends a store, if it is told to.
pub(super) fn run(args: &RepairArgs) -> anyhow::Result<Outcome> {
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
        bail!("{path}: no copy of the superblock is whole; what is in segments can be read file by file only");
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
            "         {} frames taken back from the log, {} bytes of a torn end cut",
            report.frames, report.torn_bytes
        );
        if report.lost_rows > 0 {
            println!("         {} rows were in damaged blocks; strongback.gaps says which", report.lost_rows);
        }
        left.iter().for_each(|finding| println!("left     {finding}"));
    }
    Ok(if left.is_empty() && report.lost_rows == 0 { Outcome::Done } else { Outcome::DataLost })
}
