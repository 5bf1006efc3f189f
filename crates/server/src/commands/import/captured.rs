//! The report of an imported capture.

use std::collections::BTreeMap;

use serde_json::json;
use strongback_sources::import::ImportReport;
use strongback_store::Store;

use super::{ImportSummary, Losses};
use crate::cli::ImportArgs;
use crate::text::plural::many;

/// Reports what became of a capture.
pub(super) fn tell(args: &ImportArgs, report: &ImportReport, store: &Store) -> ImportSummary {
    let losses: Vec<Losses> = report.streams.iter().map(|s| Losses::of(store, &s.key, s.stream)).collect();
    let text = if args.json { format!("{}\n", card(args, report, &losses)) } else { lines(args, report, &losses) };
    ImportSummary { text, is_whole: report.is_whole() }
}

fn card(args: &ImportArgs, report: &ImportReport, losses: &[Losses]) -> serde_json::Value {
    let streams: Vec<serde_json::Value> = report
        .streams
        .iter()
        .zip(losses)
        .map(|(s, l)| {
            json!({
                "source": s.source, "stream_id": format!("{:#x}", s.stream_id), "stream": l.name,
                "frames": s.frames, "stored": s.stored, "duplicate": s.duplicate, "rejected": s.rejected,
                "lost": l.lost, "filled": l.filled, "late": l.late, "restarts": l.restarts,
                "from": s.time.map(|t| t.0.to_string()), "to": s.time.map(|t| t.1.to_string()),
            })
        })
        .collect();
    let unknown: BTreeMap<String, u64> =
        report.unknown_streams.iter().map(|(id, n)| (format!("{id:#x}"), *n)).collect();
    json!({
        "file": args.file.display().to_string(), "sha256": report.file_sha256, "run": args.run,
        "packets": report.packets, "datagrams": report.datagrams, "fragments": report.fragments,
        "truncated": report.truncated, "untimed": report.untimed, "unread_link": report.unread_link,
        "other": report.other, "cut": report.cut,
        "stored": report.stored(), "duplicate": report.duplicate(), "rejected": report.rejected,
        "unknown_streams": unknown, "streams": streams,
    })
}

fn lines(args: &ImportArgs, report: &ImportReport, losses: &[Losses]) -> String {
    let mut out = format!(
        "{}: {}, {}; run {:?}: {} stored, {} duplicate\n",
        args.file.display(),
        many(report.packets, "packet"),
        many(report.datagrams, "datagram"),
        args.run,
        many(report.stored(), "frame"),
        report.duplicate()
    );
    for (stream, losses) in report.streams.iter().zip(losses).filter(|(s, _)| s.frames > 0) {
        out += &format!(
            "  {}: {}, {} stored, {} duplicate, {} lost, {} of them late after all, {}\n",
            losses.name,
            many(stream.frames, "frame"),
            stream.stored,
            stream.duplicate,
            losses.lost,
            losses.filled,
            many(losses.restarts, "restart")
        );
    }
    for (reason, count) in &report.rejected {
        out += &format!("  {count} rejected: {reason}\n");
    }
    for (id, count) in &report.unknown_streams {
        out += &format!("  {} of stream {id:#x}, which no layout has\n", many(*count, "packet"));
    }
    for (count, thing, which) in [
        (report.fragments, "fragment", "of datagrams, not put together"),
        (report.truncated, "packet", "of which the capture holds too little"),
        (report.untimed, "packet", "without a time"),
        (report.unread_link, "packet", "of link layers that are not read"),
        (report.other, "packet", "of other protocols"),
    ] {
        if count > 0 {
            out += &format!("  {} {which}\n", many(count, thing));
        }
    }
    if report.cut {
        out += "  the capture ends in the middle of a packet\n";
    }
    out
}
