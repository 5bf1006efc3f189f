//! `/api/history` and `/api/state`.

use std::ops::Range;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use strongback_query::{MarkUse, StateRow, sqlstate};
use strongback_store::{Pattern, matching};

use super::answer::{self, Failure, Parameters};
use super::bounded::HeldMemory;
use crate::instant;
use crate::live::history;
use crate::live::history::{Extent, POINTS_MAX};
use crate::live::window::ChannelWindow;
use crate::process::budget::Reservation;
use crate::process::clock::now_ns;
use crate::process::connections::Connection;
use crate::process::readers::{Leave, ReadError};
use crate::server::Server;
use crate::text::channel::ChannelCard;
use crate::text::json;
use crate::text::json::{Big, JsonCell};

/// Max number of buckets of one answer over all channels; an open range may have as many again after the current time.
const BUCKETS_MAX: usize = 2_000_000;
/// Bytes of buckets read at once; further channels of a stream are read in turn.
const PART_BYTES: usize = 4 << 20;
/// Approximate bytes of a bucket while it is read.
const BUCKET_BYTES: usize = size_of::<(i64, ChannelWindow)>();
/// Default length of a history without `from`.
const DEFAULT_SPAN_NS: i64 = 60_000_000_000;

/// Parameters of `/api/history`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    channels: String,
    from: Option<String>,
    to: Option<String>,
    points: Option<usize>,
    marks: Option<String>,
}

/// Parses the parameter `marks`: whether values marked bad are left out, as by default.
pub(super) fn mark_use(text: Option<&str>) -> Result<MarkUse, Failure> {
    let Some(text) = text else { return Ok(MarkUse::Apply) };
    MarkUse::from_name(text).ok_or_else(|| Failure::bad_request(format!("marks {text:?} is neither apply nor ignore")))
}

/// Parses patterns separated by commas.
pub fn patterns(text: &str) -> Result<Vec<Pattern>, Failure> {
    let parse = |text: &String| Pattern::parse(text).map_err(|error| Failure::bad_request(error.to_string()));
    Pattern::split(text).iter().map(parse).collect()
}

/// Parses the parameter `at`. Returns `None` for the current time.
pub(super) fn instant_of(at: Option<&str>, now: i64) -> Result<Option<i64>, Failure> {
    match at {
        None | Some("" | "now") => Ok(None),
        Some(text) => instant::parse(text, now).map(Some).map_err(Failure::bad_request),
    }
}

/// Parses two time parameters as a range; without `to` it has no end.
pub fn range(from: Option<&str>, to: Option<&str>, default_from: i64) -> Result<Range<i64>, Failure> {
    let now = now_ns();
    let time = |text: Option<&str>, default| match text {
        None | Some("") => Ok(default),
        Some(text) => instant::parse(text, now).map_err(Failure::bad_request),
    };
    let range = time(from, default_from)?..time(to, i64::MAX)?;
    if range.start > range.end {
        return Err(Failure::bad_request("from is after to"));
    }
    Ok(range)
}

/// Answers `GET /api/history`.
pub(super) async fn history(
    State(server): State<Arc<Server>>,
    Extension(connection): Extension<Arc<Connection>>,
    Parameters(query): Parameters<HistoryQuery>,
) -> Result<Response, Failure> {
    let (patterns, marks) = (patterns(&query.channels)?, mark_use(query.marks.as_deref())?);
    let now = now_ns();
    let time = range(query.from.as_deref(), query.to.as_deref(), now.saturating_sub(DEFAULT_SPAN_NS))?;
    // A grid needs an end, so an open range ends now.
    let grid = time.start..if time.end == i64::MAX { now.max(time.start.saturating_add(1)) } else { time.end };
    let points = query.points.unwrap_or(1000).clamp(1, POINTS_MAX);
    let reserved = server.budget.take(connection.address().ip(), 0)?;
    let reading = server.clone();
    let read = move |leave: &Leave| {
        let (leave, beside) = (leave.clone(), Arc::default());
        let extent = Extent { time, grid, end_row: u64::MAX, points, leave, beside };
        read_history(&reading, (&patterns, marks), &extent, reserved)
    };
    let (body, reserved) = server.readers.read(server.patience(), read).await?;
    Ok(HeldMemory::with(answer::json_bytes(body), reserved))
}

/// Reads a history. The buckets and the text of each stream stay within reserved memory.
fn read_history(
    server: &Server,
    (patterns, marks): (&[Pattern], MarkUse),
    extent: &Extent,
    mut reserved: Reservation,
) -> Result<(Vec<u8>, Reservation), Failure> {
    let view = server.ingest.store().view();
    let view = if marks == MarkUse::Ignore { view.with_excluded() } else { view };
    let chosen = matching(view.catalog(), patterns).map_err(|error| Failure::bad_request(error.to_string()))?;
    let count: usize = chosen.iter().map(|(_, columns)| columns.len()).sum();
    let points = extent.points;
    if count.saturating_mul(points) > BUCKETS_MAX {
        let message = format!("{count} channels of {points} points are more than {BUCKETS_MAX} buckets: ask for fewer");
        return Err(Failure::bad_request(message));
    }
    let mut out = Vec::with_capacity(64 * 1024);
    out.extend_from_slice(b"{\"series\":[");
    let mut first = true;
    for (stream, columns) in &chosen {
        let gaps = history::joined(server.ledger.open_spans(stream.id, &extent.time), points);
        // A bucket has at least one row.
        let rows = usize::try_from(view.next_row(stream.id)).unwrap_or(usize::MAX);
        let bucket_bytes = extent.buckets_max().min(rows).max(1) * BUCKET_BYTES;
        let column_bytes = bucket_bytes + gaps.len() * history::SPAN_BYTES;
        for columns in columns.chunks((PART_BYTES / column_bytes).max(1)) {
            reserved.grow(columns.len() * column_bytes).map_err(ReadError::from)?;
            for series in history::read(&view, stream, columns, extent)? {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.extend_from_slice(b"{\"channel\":");
                json::push(&mut out, &ChannelCard::new(stream, &series.channel));
                out.extend_from_slice(b",\"buckets\":");
                series.write_buckets(&mut out);
                out.extend_from_slice(b",\"gaps\":");
                history::write_gaps(&mut out, &gaps);
                series.notes().write(&mut out);
                out.push(b'}');
            }
            reserved.resize(out.len()).map_err(ReadError::from)?;
        }
    }
    out.extend_from_slice(b"]}");
    Ok((out, reserved))
}

/// Parameters of `/api/state`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateQuery {
    at: Option<String>,
    channels: Option<String>,
    marks: Option<String>,
}

/// Answers `GET /api/state`.
pub(super) async fn state(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<StateQuery>,
) -> Result<Response, Failure> {
    let now = now_ns();
    let at = instant_of(query.at.as_deref(), now)?;
    let patterns = patterns(query.channels.as_deref().unwrap_or("*"))?;
    let engine = server.query.now().with_marks(mark_use(query.marks.as_deref())?);
    let read = move |leave: &Leave| {
        let rows = engine.state(at, &patterns, || leave.check().is_err());
        leave.check()?;
        let rows = rows.map_err(|error| match error.sqlstate {
            sqlstate::INVALID_PARAMETER => Failure::bad_request(error.message),
            _ => Failure::internal(error),
        })?;
        let mut out = Vec::with_capacity(rows.len() * 400 + 64);
        out.extend_from_slice(b"{\"at\":");
        json::push_big(&mut out, at.unwrap_or(now));
        out.extend_from_slice(b",\"state\":[");
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_state(&mut out, row);
        }
        out.extend_from_slice(b"]}");
        Ok::<_, Failure>(out)
    };
    Ok(answer::json_bytes(server.readers.read(server.patience(), read).await?))
}

fn write_state(out: &mut Vec<u8>, row: &StateRow) {
    out.extend_from_slice(b"{\"channel\":");
    json::push(out, &ChannelCard::new(&row.stream, row.stream.layout.channel(row.channel)));
    out.extend_from_slice(b",\"value\":");
    match &row.value {
        Some(value) => json::push(out, &JsonCell(value.as_value())),
        None => out.extend_from_slice(b"null"),
    }
    let times = [
        ("time", row.time_ns),
        ("receive_time", row.receive_time_ns),
        ("age_ns", row.age_ns),
        ("period_ns", row.period_ns),
    ];
    for (key, value) in times {
        out.push(b',');
        json::push(out, key);
        out.push(b':');
        json::push(out, &value.map(Big));
    }
    out.extend_from_slice(b",\"status\":");
    json::push(out, row.status.name());
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_braces_belong_to_the_pattern() {
        let texts =
            |text: &str| -> Vec<String> { patterns(text).unwrap().iter().map(|p| p.as_str().to_owned()).collect() };
        assert_eq!(texts("a.*,b.c{x=1,y=2},d"), ["a.*", "b.c{x=1,y=2}", "d"]);
        assert_eq!(texts("a\\,b"), ["a\\,b"]);
        assert!(patterns("a,,b").is_err());
        let quoted = ["a.b{k=\"x},\\\"y\",l=1}", "c{m=n\"},\"d\""];
        assert_eq!(Pattern::split(&quoted.join(",")), ["a.b{k=\"x},\\\"y\",l=1}", "c{m=n\"}", "\"d\""]);
    }
}
