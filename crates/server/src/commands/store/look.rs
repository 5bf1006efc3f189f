//! `strongback store inspect` and `verify`: show what a store contains, without opening it.

use std::io::IsTerminal;

use serde_json::json;
use strongback_store::inspect::{self, Depth, Inspection, Picture};

use crate::cli::InspectArgs;
use crate::commands::outcome::Outcome;

/// Prints what the store contains, and how its space is used.
pub(super) fn inspect(args: &InspectArgs) -> anyhow::Result<Outcome> {
    look(args, Depth::Footers)
}

/// Reads everything and reports what is damaged.
pub(super) fn verify(args: &InspectArgs) -> anyhow::Result<Outcome> {
    look(args, Depth::Everything)
}

fn look(args: &InspectArgs, depth: Depth) -> anyhow::Result<Outcome> {
    let path = &args.path;
    let found = inspect::inspect(path, depth).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    if args.json {
        println!("{}", card(&found));
    } else {
        print!("{found}");
        if depth == Depth::Footers {
            let picture = if std::io::stdout().is_terminal() { Picture::Terminal } else { Picture::Plain };
            print!("\n{}", picture.draw(&found));
        }
    }
    Ok(if found.is_sound() { Outcome::Done } else { Outcome::DataLost })
}

/// Returns an inspection as JSON.
pub(super) fn card(found: &Inspection) -> serde_json::Value {
    let time = |time: Option<(i64, i64)>| time.map(|(from, to)| [from.to_string(), to.to_string()]);
    let segments: Vec<serde_json::Value> = found
        .segments
        .iter()
        .map(|s| {
            json!({
                "file": s.file, "id": s.id, "group": s.group, "sealed": s.sealed, "file_bytes": s.file_bytes.to_string(),
                "block_bytes": s.block_bytes.to_string(), "blocks": s.blocks, "rows": s.rows.to_string(),
                "blobs": s.blobs.map(|(blobs, _)| blobs), "blob_bytes": s.blobs.map(|(_, bytes)| bytes.to_string()),
                "time": time(s.time),
            })
        })
        .collect();
    let streams: Vec<serde_json::Value> = found
        .streams
        .iter()
        .map(|(id, s)| {
            json!({
                "id": id.0, "stream": s.name, "channels": s.channels, "blocks": s.blocks, "rows": s.rows.to_string(),
                "block_bytes": s.block_bytes.to_string(), "points": s.points.map(|p| p.to_string()),
                "missing_rows": s.missing_rows.to_string(), "time": time(s.time),
            })
        })
        .collect();
    let damage: Vec<serde_json::Value> = found
        .damage
        .iter()
        .map(|d| json!({ "file": d.file, "offset": d.offset.to_string(), "reason": d.reason }))
        .collect();
    let log = &found.log;
    json!({
        "store": found.folder,
        "origin": found.identity.as_ref().map(|i| format!("{:032x}", i.origin)),
        "epoch": found.identity.as_ref().map(|i| i.epoch),
        "log": {
            "bytes": log.ring_bytes.to_string(), "used_bytes": log.used_bytes.to_string(), "commits": log.commits,
            "newest_commit": log.newest_commit, "clean": log.clean,
        },
        "segments": segments, "streams": streams, "damage": damage, "verified_blocks": found.verified_blocks,
    })
}
