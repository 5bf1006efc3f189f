//! Data before the tail: the history that a subscription asked for, and earlier rows of a stream or channel that was
//! matched later. Runs on a matcher thread, never under the fan-out's lock.

use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Batch, ChannelIndex, Reduction, Scan, ScanError, StateCell, StreamId, Value, View};

use super::outgoing::Outgoing;
use super::subscription::{HeldStream, Match, Subscription};
use super::window::StreamWindow;
use crate::live::history;
use crate::live::history::{Beside, Extent, GapSpans, Series};
use crate::process::readers::{Leave, ReadError};
use crate::text::json;

/// Max rows of a stream sent to a late match or a reconnecting client.
const CATCH_UP_ROWS: u64 = 4096;
/// Rows read before those, to find their last sequence; frames may arrive out of order.
const BEFORE_ROWS: u64 = 64;

/// Reads the rows that streams and channels had before they were adopted, beginning at each given row, and puts them
/// in front of the subscription's windows. Rows in damaged or expired blocks are left out; the rows of the update
/// tell which it holds. `gaps` returns the times of frames known missing among them.
///
/// # Errors
/// Returns the error of the last scan that ended early.
pub fn catch_up<'a>(
    (view, epoch): (&View, u32),
    subscription: &Subscription,
    found: impl IntoIterator<Item = (&'a Match, u64)>,
    gaps: &GapSpans<'_>,
) -> Result<(), ScanError> {
    let mut outcome = Ok(());
    for (found, from) in found {
        match earlier(view, subscription, found, from) {
            Ok((mut window, before)) => {
                // The ledger learns of a loss once its row is durable, up to a second after the frame that showed it.
                let is_known = || has_gap(found.stream.id, window.time, before.time, gaps);
                window.gap = window.frames > 0 && (before.sequence.lacks_any || is_known());
                subscription.put_before(found.slot, window, epoch);
            }
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Returns whether frames are known missing between the first and last `time`, or after the `time` of the row
/// `before` the first.
fn has_gap(stream: StreamId, (first, last): (i64, i64), before: Option<i64>, gaps: &GapSpans<'_>) -> bool {
    let (first, last) = (first.min(last), first.max(last));
    // A gap of refused frames ends with the last refused frame, not with the next accepted one.
    let from = before.map_or(first, |before| first.min(before.saturating_add(1)));
    // Other gaps end with the frame that showed them. One that ends later is reported with that frame.
    gaps(stream, &(from..last.saturating_add(1))).iter().any(|(_, to)| *to <= last)
}

/// Search for missing sequence numbers among the rows that a client missed, by those rows alone.
#[derive(Debug, Default)]
struct Sequence {
    /// Session; highest sequence before the rows, or the first of the session; and highest sequence so far.
    session: Option<(u32, i64, i64)>,
    /// Frames with a sequence above that starting point.
    frames: i64,
    lacks_any: bool,
}

/// State before the rows that a client missed.
#[derive(Debug, Default)]
struct Before {
    /// `time` of the row before the first, if it can be read.
    time: Option<i64>,
    /// Sequence, if all frames of the stream have rows.
    sequence: Sequence,
}

impl Before {
    /// Reads the state as far as possible. `has_all` tells whether all frames of the stream have rows.
    fn of(view: &View, stream: StreamId, first: u64, has_all: bool) -> Before {
        let mut before = Before::default();
        let rows = if has_all { BEFORE_ROWS } else { 1 };
        let scan = Scan { rows: first.saturating_sub(rows)..first, ..Scan::all(stream, Vec::new()) };
        for batch in view.scan(scan).filter_map(Result::ok) {
            for row in 0..batch.len() {
                if has_all {
                    before.sequence.add(&batch, row);
                }
                if batch.rows[row] + 1 == first {
                    before.time = Some(batch.time(row));
                }
            }
        }
        before.sequence.begin();
        before
    }
}

impl Sequence {
    /// Makes the highest sequence so far the starting point.
    fn begin(&mut self) {
        self.session = self.session.map(|(session, _, highest)| (session, highest, highest));
        (self.frames, self.lacks_any) = (0, false);
    }

    fn add(&mut self, batch: &Batch, row: usize) {
        let of = |times: &strongback_store::OptionalTimes| times.get(row);
        let (Some(sequence), Some(sessions)) = (batch.sequence.as_ref().and_then(of), &batch.session) else { return };
        match &mut self.session {
            Some((session, stood, highest)) if *session == sessions[row] => {
                *highest = sequence.max(*highest);
                self.frames += i64::from(sequence > *stood);
            }
            _ => {
                self.end();
                (self.session, self.frames) = (Some((sessions[row], sequence, sequence)), 0);
            }
        }
    }

    /// Notes whether the session so far lacks any sequence.
    fn end(&mut self) {
        self.lacks_any |= self.session.is_some_and(|(_, stood, highest)| highest - stood > self.frames);
    }
}

/// Reads a window of the rows before a match, and the state before it with what is missing among the rows.
fn earlier(
    view: &View,
    subscription: &Subscription,
    found: &Match,
    from: u64,
) -> Result<(StreamWindow, Before), ScanError> {
    let mut window = StreamWindow::default();
    let places: Vec<usize> =
        found.channels.iter().map(|c| subscription.place(found.slot, *c).unwrap_or_default()).collect();
    window.channels.resize_with(places.iter().max().map_or(0, |m| m + 1), Default::default);
    let first = from.max(found.start_row.saturating_sub(CATCH_UP_ROWS));
    // Frames dropped by a reduction have no row.
    let has_all = found.stream.layout.channels.iter().all(|channel| channel.reduction == Reduction::None);
    let mut before = Before::of(view, found.stream.id, first, has_all);
    let scan = Scan {
        rows: first..found.start_row,
        ..Scan::all(found.stream.id, found.channels.iter().map(|c| ChannelIndex(*c)).collect())
    };
    for batch in view.scan(scan) {
        let batch = batch?;
        for row in 0..batch.len() {
            if has_all {
                before.sequence.add(&batch, row);
            }
            if found.new_stream {
                window.begin(batch.time(row), batch.receive_time[row], Some(batch.rows[row]));
            }
            let mut has_value = false;
            for (column, place) in batch.columns.iter().zip(&places) {
                if let Ok(value) = column.cell(row) {
                    window.channels[*place].add(value);
                    has_value = true;
                }
            }
            // The client was told of the row before, without these channels.
            if has_value && !found.new_stream {
                window.begin(batch.time(row), batch.receive_time[row], None);
            }
        }
    }
    window.recorded = true;
    before.sequence.end();
    Ok((window, before))
}

/// History of a subscription, or a part of it: rows below each match's start row, and where the tails begin.
#[derive(Debug)]
pub struct HistoryMessage {
    /// Client's number for the subscription.
    pub id: i64,
    /// Histories of its streams.
    pub streams: Vec<StreamHistory>,
    /// Row at which the tail of each stream begins.
    pub rows: Vec<(StreamId, u64)>,
}

/// History of one stream.
#[derive(Debug)]
pub struct StreamHistory {
    /// Channels of the stream.
    pub series: Vec<Series>,
    /// Time ranges in which frames are known missing, nanoseconds since 1970 UTC.
    pub gaps: Vec<(i64, i64)>,
}

impl HistoryMessage {
    /// Reads the history of the matches, reduced to `points` buckets a channel over `grid`.
    ///
    /// # Errors
    /// Returns an error if a scan ends early.
    pub fn read(
        view: &View,
        id: i64,
        found: &[&Match],
        (grid, points): (Range<i64>, usize),
        gaps: &GapSpans<'_>,
        (leave, beside): (&Leave, &Arc<Beside>),
    ) -> Result<HistoryMessage, ReadError> {
        let mut streams = Vec::with_capacity(found.len());
        for found in found {
            let columns: Vec<ChannelIndex> = found.channels.iter().map(|c| ChannelIndex(*c)).collect();
            // Include frames stamped ahead of our clock: the tail begins at a row, not a time.
            let (time, end_row) = (grid.start..found.end_time, found.start_row);
            let (leave, beside) = (leave.clone(), beside.clone());
            let extent = Extent { time, grid: grid.clone(), end_row, points, leave, beside };
            let series = history::read(view, &found.stream, &columns, &extent)?;
            streams.push(StreamHistory { series, gaps: history::joined(gaps(found.stream.id, &grid), points) });
        }
        // In a playback the tail begins at a time, not a row.
        let tails = found.iter().filter(|found| found.start_row < u64::MAX);
        let rows = tails.map(|found| (found.stream.id, found.start_row)).collect();
        Ok(HistoryMessage { id, streams, rows })
    }

    /// Returns the message in JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 * 1024);
        out.extend_from_slice(b"{\"type\":\"history\",\"id\":");
        json::push(&mut out, &self.id);
        out.extend_from_slice(b",\"series\":[");
        let mut first = true;
        for stream in &self.streams {
            for series in &stream.series {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.extend_from_slice(b"{\"channel\":");
                json::push_number(&mut out, series.channel.id.0 as u64);
                out.extend_from_slice(b",\"buckets\":");
                series.write_buckets(&mut out);
                out.extend_from_slice(b",\"gaps\":");
                history::write_gaps(&mut out, &stream.gaps);
                series.notes().write(&mut out);
                out.push(b'}');
            }
        }
        out.extend_from_slice(b"],\"rows\":{");
        for (i, (stream, row)) in self.rows.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json::push_big(&mut out, stream.0);
            out.push(b':');
            json::push_big(&mut out, row);
        }
        out.extend_from_slice(b"}}");
        out
    }
}

/// Creates the message with the last value of each channel of a playback's held streams before its place.
pub fn state_of(view: &View, id: i64, round: u64, held: &[HeldStream]) -> Outgoing {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(b"{\"type\":\"snapshot\",\"id\":");
    json::push(&mut out, &id);
    out.extend_from_slice(b",\"round\":");
    json::push_number(&mut out, round);
    out.extend_from_slice(b",\"at\":");
    json::push_big(&mut out, held.iter().map(|held| held.since.time).max().unwrap_or_default());
    out.extend_from_slice(b",\"streams\":[");
    let mut damage = None;
    for (i, held) in held.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"stream\":");
        json::push_number(&mut out, held.stream.0.into());
        out.extend_from_slice(b",\"channels\":[");
        let columns: Vec<ChannelIndex> = held.channels.iter().map(|(index, _)| *index).collect();
        let cells =
            view.state_at(held.stream, held.since.last_time_of(held.stream), &columns).unwrap_or_else(|error| {
                damage = Some(error.to_string());
                Vec::new()
            });
        let mut first = true;
        for ((_, channel), cell) in held.channels.iter().zip(cells) {
            let Some(cell) = cell else { continue };
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.push(b'[');
            json::push_number(&mut out, channel.0.into());
            write_cell(&mut out, &cell);
            out.push(b']');
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    if let Some(damage) = damage {
        out.extend_from_slice(b",\"error\":");
        json::push(&mut out, &damage);
    }
    out.push(b'}');
    Outgoing::json(out)
}

fn write_cell(out: &mut Vec<u8>, cell: &StateCell) {
    out.push(b',');
    match cell.value.as_ref().map(|value| value.as_value()) {
        None => out.extend_from_slice(b"null"),
        // As in updates, only the number of elements.
        Some(Value::Array(array)) => {
            json::push(out, &format!("{}[{}]", array.element().channel_type().name(), array.len()));
        }
        Some(value) => json::push_value(out, value),
    }
    for time in [cell.time, cell.receive_time] {
        out.push(b',');
        json::push_big(out, time);
    }
}
