//! The report of an imported MCAP file.

use serde_json::json;
use strongback_sources::mcap::{McapReport, Numbering};
use strongback_store::Store;

use super::{ImportSummary, Losses};
use crate::cli::ImportArgs;
use crate::text::plural::many;

/// Reports what became of an MCAP file.
pub(super) fn tell(args: &ImportArgs, report: &McapReport, store: &Store) -> ImportSummary {
    let losses: Vec<Option<Losses>> =
        report.topics.iter().map(|topic| Some(Losses::of(store, &topic.key, topic.stream?))).collect();
    let text = if args.json { format!("{}\n", card(args, report, &losses)) } else { lines(args, report, &losses) };
    ImportSummary { text, is_whole: report.is_whole() }
}

fn card(args: &ImportArgs, report: &McapReport, losses: &[Option<Losses>]) -> serde_json::Value {
    let topics: Vec<serde_json::Value> = report
        .topics
        .iter()
        .zip(losses)
        .map(|(topic, losses)| {
            let count = |of: fn(&Losses) -> u64| losses.as_ref().map_or(0, of);
            json!({
                "topic": topic.topic, "schema": topic.schema, "stream": topic.key.to_string(),
                "messages": topic.messages, "stored": topic.stored, "duplicate": topic.duplicate,
                "rejected": topic.rejected, "lost": count(|l| l.lost), "filled": count(|l| l.filled),
                "late": count(|l| l.late), "restarts": count(|l| l.restarts), "left_out": topic.left_out,
                "from": topic.time.map(|t| t.0.to_string()), "to": topic.time.map(|t| t.1.to_string()),
            })
        })
        .collect();
    let damages: Vec<serde_json::Value> =
        report.damages.iter().map(|damage| json!({ "offset": damage.offset, "what": damage.what })).collect();
    json!({
        "file": args.file.display().to_string(), "sha256": report.file_sha256, "run": args.run,
        "messages": report.messages, "attachments": report.attachments, "numbering": report.numbering.words(),
        "stored": report.stored(), "duplicate": report.duplicate(), "rejected": report.rejected,
        "undecoded": report.undecoded, "damages": damages,
        "cut": report.cut.as_ref().map(|damage| json!({ "offset": damage.offset, "what": damage.what })),
        "topics": topics,
    })
}

fn lines(args: &ImportArgs, report: &McapReport, losses: &[Option<Losses>]) -> String {
    let mut out = format!(
        "{}: {}; run {:?}: {} stored, {} duplicate\n",
        args.file.display(),
        many(report.messages, "message"),
        args.run,
        many(report.stored(), "frame"),
        report.duplicate()
    );
    for (topic, losses) in report.topics.iter().zip(losses) {
        out += &format!("  {}: {}, {} stored", topic.key, many(topic.messages, "message"), topic.stored);
        if let (Numbering::Channel(_), Some(losses)) = (&report.numbering, losses) {
            out += &format!(
                ", {} duplicate, {} lost, {} of them late after all, {}",
                topic.duplicate,
                losses.lost,
                losses.filled,
                many(losses.restarts, "restart")
            );
        }
        out.push('\n');
        for (sentence, count) in &topic.left_out {
            out += &format!("    left out: {count} of {sentence}\n");
        }
    }
    for (reason, count) in &report.rejected {
        out += &format!("  {count} rejected: {reason}\n");
    }
    for (sentence, count) in &report.undecoded {
        out += &format!("  {}: {sentence}\n", many(*count, "message"));
    }
    if report.attachments > 0 {
        out += &format!("  {} passed over\n", many(report.attachments, "attached file"));
    }
    for damage in &report.damages {
        out += &format!("  at byte {}: {}\n", damage.offset, damage.what);
    }
    if let Some(cut) = &report.cut {
        let read = many(report.messages, "message");
        out += &format!("  stopped at byte {}, after {read}: {}\n", cut.offset, cut.what);
    }
    out
}
