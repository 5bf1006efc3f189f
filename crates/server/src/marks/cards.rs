//! Marks as REST shows them, and in words.

use std::sync::Arc;

use serde::Serialize;
use strongback_query::{MarkRow, MarkedSpan};
use strongback_sources::instant;

use crate::text::json::Big;

/// A mark as REST shows it.
#[derive(Debug, Serialize)]
pub struct MarkCard<'a> {
    id: Big<u64>,
    time: Big<i64>,
    stream: &'a str,
    channel: &'a str,
    from: Big<i64>,
    to: Big<i64>,
    quality: &'static str,
    by: &'a str,
    reason: &'a str,
}

impl<'a> MarkCard<'a> {
    fn of(mark: &'a MarkRow, from_ns: i64, to_ns: i64) -> Self {
        MarkCard {
            id: Big(mark.id),
            time: Big(mark.time_ns),
            stream: &mark.stream,
            channel: &mark.channel,
            from: Big(from_ns),
            to: Big(to_ns),
            quality: mark.quality.name(),
            by: &mark.by,
            reason: &mark.reason,
        }
    }
}

impl<'a> From<&'a MarkRow> for MarkCard<'a> {
    fn from(mark: &'a MarkRow) -> Self {
        MarkCard::of(mark, mark.from_ns, mark.to_ns)
    }
}

impl<'a> From<&'a MarkedSpan> for MarkCard<'a> {
    fn from(span: &'a MarkedSpan) -> Self {
        MarkCard::of(&span.mark, span.from_ns, span.to_ns)
    }
}

/// Describes marks that were made at once.
pub fn in_words(marks: &[Arc<MarkRow>]) -> String {
    let Some(mark) = marks.first() else { return "nothing is marked".to_owned() };
    let channels = match marks.len() {
        1 => mark.channel.clone(),
        more => format!("{more} channels ({}, …)", mark.channel),
    };
    let (from, quality, by, reason) = (instant::format(mark.from_ns), mark.quality.name(), &mark.by, &mark.reason);
    let time = match mark.to_ns.saturating_sub(mark.from_ns) {
        1 => format!("at {from}"),
        _ => format!("from {from} to {}", instant::format(mark.to_ns)),
    };
    format!("{channels}: {quality} {time} by {by}: {reason}")
}
