//! What comes before the tail: the history a subscription asked for, and what a stream or channel had before
//! it was matched. Runs on a matcher thread, never under the fan-out's lock.

use std::ops::Range;

use strongback_store::{ChannelIndex, Scan, ScanError, StreamId, View};

use super::subscription::{Match, Subscription};
use super::window::StreamWindow;
use crate::history::{self, Extent, GapSpans, Series};
use crate::json;

/// Rows of a stream that a late match, or a client that comes back, takes along at most.
const CATCH_UP_ROWS: u64 = 4096;

/// Reads what streams and channels had before they were adopted, from the row that `from` says, and puts it in
/// front of the subscription's windows. A damaged or expired block leaves its rows out; the rows of the update
/// say which it holds.
///
/// # Errors
/// The last scan that ended early.
pub fn catch_up<'a>(
    (view, epoch): (&View, u32),
    subscription: &Subscription,
    found: impl IntoIterator<Item = (&'a Match, u64)>,
) -> Result<(), ScanError> {
    let mut outcome = Ok(());
    for (found, from) in found {
        match earlier(view, subscription, found, from) {
            Ok(window) => subscription.put_before(found.slot, window, epoch),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

fn earlier(view: &View, subscription: &Subscription, found: &Match, from: u64) -> Result<StreamWindow, ScanError> {
    let mut window = StreamWindow::default();
    let places: Vec<usize> =
        found.channels.iter().map(|c| subscription.place(found.slot, *c).unwrap_or_default()).collect();
    window.channels.resize_with(places.iter().max().map_or(0, |m| m + 1), Default::default);
    let scan = Scan {
        rows: from.max(found.start_row.saturating_sub(CATCH_UP_ROWS))..found.start_row,
        ..Scan::all(found.stream.id, found.channels.iter().map(|c| ChannelIndex(*c)).collect())
    };
    for batch in view.scan(scan) {
        let batch = batch?;
        for row in 0..batch.len() {
            if found.new_stream {
                window.begin(batch.time(row), batch.receive_time[row], Some(batch.rows[row]));
            }
            for (column, place) in batch.columns.iter().zip(&places) {
                if let Ok(value) = column.cell(row) {
                    window.channels[*place].add(value);
                }
            }
        }
    }
    Ok(window)
}

/// The history of a subscription, or a part of it: rows below each match's start row, and where the tails begin.
#[derive(Debug)]
pub struct History {
    /// The client's number of the subscription.
    pub id: i64,
    /// What its streams had.
    pub streams: Vec<StreamHistory>,
    /// The row at which the tail of each stream begins.
    pub rows: Vec<(StreamId, u64)>,
}

/// The history of one stream.
#[derive(Debug)]
pub struct StreamHistory {
    /// Its channels.
    pub series: Vec<Series>,
    /// Times in which frames are known missing, nanoseconds since 1970 UTC.
    pub gaps: Vec<(i64, i64)>,
}

impl History {
    /// Reads it, reduced to `points` buckets a channel over `grid`.
    ///
    /// # Errors
    /// When a scan ends early.
    pub fn read(
        view: &View,
        id: i64,
        found: &[&Match],
        grid: Range<i64>,
        points: usize,
        gaps: &GapSpans<'_>,
    ) -> Result<History, ScanError> {
        let mut streams = Vec::with_capacity(found.len());
        for found in found {
            let columns: Vec<ChannelIndex> = found.channels.iter().map(|c| ChannelIndex(*c)).collect();
            // Frames stamped ahead of our clock belong to the history too: the tail begins at a row, not a time.
            let extent = Extent { time: grid.start..i64::MAX, grid: grid.clone(), end_row: found.start_row, points };
            let series = history::read(view, &found.stream, &columns, &extent)?;
            streams.push(StreamHistory { series, gaps: gaps(found.stream.id, &grid) });
        }
        let rows = found.iter().map(|found| (found.stream.id, found.start_row)).collect();
        Ok(History { id, streams, rows })
    }

    /// The message in JSON.
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
