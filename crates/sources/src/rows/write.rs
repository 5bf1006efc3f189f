//! Frames of a store as rows of text: what [`super::run`] takes again.
//!
//! **CSV**: `time` (RFC 3339) or `time_ns`, then, where there is more than one, `stream`, then each channel as
//! `STREAM.CHANNEL [unit]`; an empty text is `""`. **JSON lines**: a line that describes the channels, then
//! `{"time","time_ns","stream","values":{channel: value}}`; 64-bit integers are strings, and so are `NaN`, `Infinity`,
//! `-Infinity`. `unknown` is what is known to be unknown.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{
    ArrayRef, Batch, Catalog, CellState, ChannelIndex, Column, Grid, NextFrame, OrderedFrames, OrderedScan, Pattern,
    Resample, ScanError, Stream, Value, View,
};

use crate::instant;

/// A stream and those of its channels that are wanted.
pub type Chosen = (Arc<Stream>, Vec<ChannelIndex>);

/// What frames are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// Comma-separated values.
    Csv {
        /// Whether times are nanoseconds since 1970, else RFC 3339.
        time_ns: bool,
    },
    /// A JSON object a line.
    Jsonl,
}

/// Which frames, and in which order.
#[derive(Clone, Debug)]
pub struct RowSelection {
    /// Streams and channels.
    pub chosen: Vec<Chosen>,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Most frames.
    pub limit: Option<usize>,
    /// Whether the limit leaves the newest.
    pub from_newest: bool,
    /// Whether the newest come first.
    pub newest_first: bool,
    /// What they are written as.
    pub form: RowForm,
}

/// Channels that match any of some patterns; the store's own tables only where a pattern names them.
pub fn choose(catalog: &Catalog, patterns: &[Pattern]) -> Vec<Chosen> {
    let mut chosen = Vec::new();
    for stream in &catalog.streams {
        let own = stream.key.is_internal();
        let wanted = |channel: &str| {
            patterns.iter().any(|p| (!own || p.as_str().starts_with("strongback.")) && p.matches(&stream.key, channel))
        };
        let channels: Vec<ChannelIndex> = (0..stream.layout.channels.len())
            .filter(|i| wanted(&stream.layout.channels[*i].name))
            .map(|i| ChannelIndex(i as u16))
            .collect();
        if !channels.is_empty() {
            chosen.push((stream.clone(), channels));
        }
    }
    chosen
}

/// Writes frames in the order of `time`, stream and row; frames without a value are passed over. Damaged blocks are
/// reported and passed over. Returns the number of frames written.
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
    let with_stream = reading.chosen.len() > 1;
    header(reading, with_stream, &mut text);
    let mut kept = Vec::new();
    let keeps = backwards != reading.newest_first;
    let (mut written, columns) = (0, reading.chosen.iter().map(|(_, channels)| channels.len()).sum());
    let first_column: Vec<usize> = reading
        .chosen
        .iter()
        .scan(0, |sum, (_, channels)| Some(std::mem::replace(sum, *sum + channels.len())))
        .collect();
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
            let stream = &reading.chosen[frame.stream];
            match reading.form {
                RowForm::Csv { time_ns } => {
                    let place = (with_stream, first_column[frame.stream], columns);
                    csv_row(&mut text, stream, frame.batch, frame.row, time_ns, place);
                }
                RowForm::Jsonl => json_row(&mut text, stream, frame.batch, frame.row),
            }
            written += 1;
            if keeps {
                // The header is the first of all.
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
        let mut head = String::new();
        header(reading, with_stream, &mut head);
        *first = first.split_off(head.len());
        out.write_all(head.as_bytes())?;
    }
    kept.iter().rev().try_for_each(|line| out.write_all(line.as_bytes()))?;
    Ok(written)
}

/// Writes each channel's intervals, one channel after the other, as CSV: `start`, `end`, `channel`, `value`, `end_value`
/// (the value towards the end, another one only on a line), `open` (whether it may go on). Returns their number.
///
/// # Errors
/// Where the output or the store ends it.
pub fn write_intervals(view: &View, reading: &RowSelection, out: &mut dyn Write) -> io::Result<u64> {
    let failed = |error: ScanError| io::Error::other(error.to_string());
    let RowForm::Csv { time_ns } = reading.form else {
        return Err(io::Error::other("intervals are written as CSV"));
    };
    let mut written = 0;
    let mut text = String::from(if time_ns { "start_ns,end_ns" } else { "start,end" });
    text.push_str(",channel,value,end_value,open\n");
    for (stream, channels) in &reading.chosen {
        for index in channels {
            let name = stream.key.channel_name(&stream.layout.channel(*index).name);
            for interval in view.intervals(stream.id, *index, reading.time.clone()).map_err(failed)? {
                let interval = interval.map_err(failed)?;
                if reading.limit.is_some_and(|limit| written >= limit as u64) {
                    break;
                }
                put_time(&mut text, interval.start, time_ns);
                text.push(',');
                put_time(&mut text, interval.end, time_ns);
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

/// Instants of a grid whose values are held at a time.
const GRID_INSTANTS: usize = 4096;

/// Writes all channels side by side at equal distances of time, as CSV: from the beginning of the range (that of the data,
/// at a multiple of the distance, where the range has none) to its end or that of the data. A cell is empty before the
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
    let RowForm::Csv { time_ns } = reading.form else {
        return Err(io::Error::other("a grid is written as CSV"));
    };
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
    header(reading, false, &mut text);
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
            put_time(&mut text, start, time_ns);
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

fn put_time(out: &mut String, time: i64, ns: bool) {
    match ns {
        true => drop(write!(out, "{time}")),
        false => out.push_str(&instant::format(time)),
    }
}

fn header(reading: &RowSelection, with_stream: bool, out: &mut String) {
    let channels = || {
        reading.chosen.iter().flat_map(|(stream, channels)| {
            channels.iter().map(|index| {
                let channel = stream.layout.channel(*index);
                (stream.key.channel_name(&channel.name), channel)
            })
        })
    };
    match reading.form {
        RowForm::Csv { time_ns } => {
            out.push_str(if time_ns { "time_ns" } else { "time" });
            if with_stream {
                out.push_str(",stream");
            }
            for (name, channel) in channels() {
                out.push(',');
                match channel.unit.as_str() {
                    "" => put_field(out, &name),
                    unit => put_field(out, &format!("{name} [{unit}]")),
                }
            }
            out.push('\n');
        }
        RowForm::Jsonl => {
            out.push_str("{\"type\":\"channels\",\"channels\":[");
            for (at, (name, channel)) in channels().enumerate() {
                out.push_str(if at == 0 { "{\"name\":" } else { ",{\"name\":" });
                put_text(out, &name);
                let _ = write!(out, ",\"type\":\"{}\",\"unit\":", channel.channel_type.name());
                put_text(out, &channel.unit);
                out.push_str(",\"description\":");
                put_text(out, &channel.description);
                out.push('}');
            }
            out.push_str("]}\n");
        }
    }
}

fn csv_row(
    out: &mut String,
    (stream, channels): &Chosen,
    batch: &Batch,
    row: usize,
    time_ns: bool,
    (with_stream, first, columns): (bool, usize, usize),
) {
    let time = batch.time(row);
    put_time(out, time, time_ns);
    if with_stream {
        out.push(',');
        put_field(out, &stream.key.to_string());
    }
    out.extend(std::iter::repeat_n(',', first));
    for column in &batch.columns {
        out.push(',');
        match column.cell(row) {
            Ok(value) => put_cell(out, value),
            Err(CellState::Unknown) => out.push_str("unknown"),
            Err(_) => {}
        }
    }
    out.extend(std::iter::repeat_n(',', columns - first - channels.len()));
    out.push('\n');
}

fn json_row(out: &mut String, (stream, channels): &Chosen, batch: &Batch, row: usize) {
    let time = batch.time(row);
    let _ = write!(out, "{{\"time\":\"{}\",\"time_ns\":\"{time}\",\"stream\":", instant::format(time));
    put_text(out, &stream.key.to_string());
    out.push_str(",\"values\":{");
    let mut separator = "";
    for (column, index) in batch.columns.iter().zip(channels) {
        let cell = column.cell(row);
        if !matches!(cell, Ok(_) | Err(CellState::Unknown)) {
            continue;
        }
        out.push_str(separator);
        separator = ",";
        put_text(out, &stream.layout.channel(*index).name);
        out.push(':');
        match cell {
            Ok(value) => put_json(out, value),
            Err(_) => out.push_str("\"unknown\""),
        }
    }
    out.push_str("}}\n");
}

/// A value as JSON has it.
fn put_json(out: &mut String, value: Value<'_>) {
    match value {
        Value::String(text) => put_text(out, text),
        Value::I64(_) | Value::U64(_) => {
            out.push('"');
            put_plain(out, value);
            out.push('"');
        }
        Value::F32(v) if !v.is_finite() => put_text(out, not_finite(v.into())),
        Value::F64(v) if !v.is_finite() => put_text(out, not_finite(v)),
        Value::Array(array) => put_list(out, array, put_json),
        Value::Blob(blob) => put_text(out, &blob.to_string()),
        value => put_plain(out, value),
    }
}

/// A value as a field of CSV.
fn put_cell(out: &mut String, value: Value<'_>) {
    match value {
        // Without quotes it is no value.
        Value::String("") => out.push_str("\"\""),
        Value::String(text) => put_field(out, text),
        Value::Array(array) => {
            let mut list = String::new();
            put_list(&mut list, array, put_plain);
            put_field(out, &list);
        }
        Value::Blob(blob) => put_field(out, &blob.to_string()),
        value => put_plain(out, value),
    }
}

fn put_list(out: &mut String, array: ArrayRef<'_>, put: impl Fn(&mut String, Value<'_>)) {
    out.push('[');
    for (at, element) in array.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put(out, element);
    }
    out.push(']');
}

fn not_finite(value: f64) -> &'static str {
    match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

/// A number in its shortest exact form, or a truth value.
fn put_plain(out: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::Bool(v) => write!(out, "{v}"),
        Value::I8(v) => write!(out, "{v}"),
        Value::I16(v) => write!(out, "{v}"),
        Value::I32(v) => write!(out, "{v}"),
        Value::I64(v) => write!(out, "{v}"),
        Value::U8(v) => write!(out, "{v}"),
        Value::U16(v) => write!(out, "{v}"),
        Value::U32(v) => write!(out, "{v}"),
        Value::U64(v) => write!(out, "{v}"),
        Value::F32(v) if !v.is_finite() => write!(out, "{}", not_finite(v.into())),
        Value::F64(v) if !v.is_finite() => write!(out, "{}", not_finite(v)),
        Value::F32(v) => write!(out, "{v:?}"),
        Value::F64(v) => write!(out, "{v:?}"),
        Value::String(v) => write!(out, "{v}"),
        Value::Blob(v) => write!(out, "{v}"),
        Value::Array(array) => {
            put_list(out, array, put_plain);
            Ok(())
        }
    };
}

fn put_field(out: &mut String, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        return out.push_str(text);
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

fn put_text(out: &mut String, text: &str) {
    // No value of this type fails to be written.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
