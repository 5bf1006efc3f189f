//! Writes frames of a store as rows of text that [`super::run`] can import, in the form of [`strongback_store::text`].

use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;

use strongback_store::text::{CsvLead, FrameColumns, FrameText, TextForm, put_cell, put_field, put_time};
use strongback_store::{
    CellState, Chosen, Column, Grid, NextFrame, OrderedFrames, OrderedScan, Resample, ScanError, View,
};

use super::target::split_full_name;

/// Selection of frames, with their order and format.
#[derive(Clone, Debug)]
pub struct RowSelection {
    /// Streams with their channels.
    pub chosen: Vec<Chosen>,
    /// Range of `time`, from (inclusive) to (exclusive), in nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Maximum frames; `None` for no limit.
    pub limit: Option<usize>,
    /// Whether the limit keeps the newest frames.
    pub from_newest: bool,
    /// Whether the newest frames come first.
    pub newest_first: bool,
    /// Output format. The column `stream` is omitted if there is only one stream, and the names of all channels say it.
    pub form: TextForm,
}

impl RowSelection {
    fn columns(&self) -> FrameColumns {
        FrameColumns::new(&self.chosen)
    }

    /// Returns whether rows must name their stream, because the names of the channels do not.
    fn needs_stream(&self) -> bool {
        let is_misread = |(stream, channels): &Chosen| {
            channels.iter().any(|&index| {
                let channel = &stream.layout.channel(index).name;
                let split = split_full_name(&stream.key.channel_name(channel), |_| false);
                split.is_none_or(|(key, name)| key != stream.key || name != *channel)
            })
        };
        self.chosen.len() > 1 || self.chosen.iter().any(is_misread)
    }

    /// Returns the leading columns of the CSV format.
    ///
    /// # Errors
    /// If the format is not CSV.
    fn csv_lead(&self, what: &str) -> io::Result<CsvLead> {
        match self.form {
            TextForm::Csv(lead) => Ok(lead),
            TextForm::Jsonl => Err(io::Error::other(format!("{what} are written as CSV"))),
        }
    }
}

/// Writes frames in order of `time`, stream and row, skipping frames without a value. Damaged blocks are reported and
/// skipped. Returns the number of frames written.
///
/// # Errors
/// If the output or the store fails.
pub fn write(
    view: &View,
    reading: &RowSelection,
    out: &mut dyn Write,
    mut damaged: impl FnMut(&ScanError),
) -> io::Result<u64> {
    let backwards = if reading.limit.is_some() { reading.from_newest } else { reading.newest_first };
    let failed = |error: ScanError| io::Error::other(error.to_string());
    let streams = reading.chosen.iter().map(|(stream, channels)| (stream.id, channels.clone())).collect();
    let scan = OrderedScan {
        time: reading.time.clone(),
        newest_first: backwards,
        limit: reading.limit.unwrap_or(usize::MAX),
        ..OrderedScan::all(streams)
    };
    let mut frames = OrderedFrames::new(view, &scan);
    let due = if backwards { i64::MIN } else { i64::MAX };
    let mut text = String::new();
    let form = match reading.form {
        TextForm::Csv(lead) => TextForm::Csv(CsvLead { stream: lead.stream && reading.needs_stream(), ..lead }),
        TextForm::Jsonl => TextForm::Jsonl,
    };
    let writer = FrameText { form, columns: reading.columns() };
    writer.header(&mut text);
    let head_bytes = text.len();
    let mut kept = Vec::new();
    let keeps = backwards != reading.newest_first;
    let mut written = 0;
    while reading.limit.is_none_or(|limit| written < limit as u64) {
        let next = frames.peek(due).map_err(failed)?;
        for (_, error) in frames.take_troubles() {
            match error {
                error @ ScanError::Damaged { .. } => damaged(&error),
                error => return Err(failed(error)),
            }
        }
        match next {
            NextFrame::At(_) => {}
            NextFrame::Unsure => continue,
            NextFrame::None => break,
        }
        let Some(frame) = frames.frame() else { break };
        let is_there = |column: &Column| matches!(column.cell(frame.row), Ok(_) | Err(CellState::Unknown));
        if frame.batch.columns.iter().any(is_there) {
            writer.frames(&mut text, frame.stream, frame.batch, frame.row..frame.row + 1);
            written += 1;
            if keeps {
                // The header is in the first entry.
                kept.push(std::mem::take(&mut text));
            } else if text.len() >= 64 << 10 {
                out.write_all(text.as_bytes())?;
                text.clear();
            }
        }
        frames.advance();
    }
    out.write_all(text.as_bytes())?;
    if let Some(first) = kept.first_mut() {
        let rows = first.split_off(head_bytes);
        out.write_all(std::mem::replace(first, rows).as_bytes())?;
    }
    kept.iter().rev().try_for_each(|line| out.write_all(line.as_bytes()))?;
    Ok(written)
}

/// Writes the intervals of each channel as CSV, one channel after another: `start`, `end`, `channel`, `value`,
/// `end_value` (the value towards the end, which differs only on a line), and `open` (whether it may continue). Returns
/// the number of intervals.
///
/// # Errors
/// If the output or the store fails.
pub fn write_intervals(view: &View, reading: &RowSelection, out: &mut dyn Write) -> io::Result<u64> {
    let failed = |error: ScanError| io::Error::other(error.to_string());
    let lead = reading.csv_lead("intervals")?;
    let mut written = 0;
    let mut text = String::from(if lead.time { "start,end" } else { "start_ns,end_ns" });
    text.push_str(",channel,value,end_value,open\n");
    for (stream, channels) in &reading.chosen {
        for index in channels {
            let name = stream.key.channel_name(&stream.layout.channel(*index).name);
            for interval in view.intervals(stream.id, *index, reading.time.clone()).map_err(failed)? {
                let interval = interval.map_err(failed)?;
                if reading.limit.is_some_and(|limit| written >= limit as u64) {
                    break;
                }
                put_instant(&mut text, interval.start, lead);
                text.push(',');
                put_instant(&mut text, interval.end, lead);
                text.push(',');
                put_field(&mut text, &name);
                for value in [&interval.value, &interval.end_value] {
                    text.push(',');
                    match value.as_ref().map(|value| value.as_value()) {
                        Some(value) => put_cell(&mut text, value),
                        None => text.push_str("unknown"),
                    }
                }
                let _ = writeln!(text, ",{}", interval.open);
                written += 1;
                if text.len() >= 64 << 10 {
                    out.write_all(text.as_bytes())?;
                    text.clear();
                }
            }
        }
    }
    out.write_all(text.as_bytes())?;
    Ok(written)
}

/// Number of grid rows held in memory at a time.
const GRID_INSTANTS: usize = 4096;

/// Writes all channels side by side at equal time steps, as CSV. Starts at the beginning of the range, or else at that
/// of the data, rounded down to a multiple of the step; ends with the range or the data. A cell is empty before the
/// first value and where frames are missing. Returns the number of rows.
///
/// # Errors
/// If the output or the store fails.
pub fn write_grid(
    view: &View,
    reading: &RowSelection,
    (step_ns, how): (u64, Resample),
    out: &mut dyn Write,
) -> io::Result<u64> {
    let failed = |error: ScanError| io::Error::other(error.to_string());
    let lead = CsvLead { stream: false, ..reading.csv_lead("equal distances of time")? };
    let step_ns = step_ns.clamp(1, i64::MAX as u64);
    let ranges = reading.chosen.iter().filter_map(|(stream, _)| view.time_range(stream.id));
    let known = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (mut start, end) = match (known, reading.time.start) {
        (None, _) => (0, 0),
        (Some((first, last)), i64::MIN) => {
            let start = first - first.rem_euclid(step_ns as i64);
            (start, reading.time.end.min(last.saturating_add(1)))
        }
        (Some((_, last)), start) => (start, reading.time.end.min(last.saturating_add(1))),
    };
    let mut text = String::new();
    FrameText { form: TextForm::Csv(lead), columns: reading.columns() }.header(&mut text);
    let mut left = reading.limit.unwrap_or(usize::MAX);
    let mut written = 0;
    while start < end && left > 0 {
        let instants = end.abs_diff(start).div_ceil(step_ns);
        let count = usize::try_from(instants).unwrap_or(usize::MAX).min(GRID_INSTANTS).min(left);
        let grid = Grid { start, step_ns, count };
        let mut columns = Vec::new();
        for (stream, channels) in &reading.chosen {
            for channel in channels {
                columns.push(view.resample(stream.id, *channel, grid, how).map_err(failed)?);
            }
        }
        for row in 0..count {
            put_instant(&mut text, start, lead);
            for column in &columns {
                text.push(',');
                match column[row].as_ref().map(|reading| reading.value.as_ref()) {
                    None => {}
                    Some(None) => text.push_str("unknown"),
                    Some(Some(value)) => put_cell(&mut text, value.as_value()),
                }
            }
            text.push('\n');
            start = start.saturating_add_unsigned(step_ns);
        }
        (left, written) = (left - count, written + count as u64);
        out.write_all(text.as_bytes())?;
        text.clear();
    }
    out.write_all(text.as_bytes())?;
    Ok(written)
}

fn put_instant(out: &mut String, time: i64, lead: CsvLead) {
    match lead.time {
        true => put_time(out, time),
        false => drop(write!(out, "{time}")),
    }
}
