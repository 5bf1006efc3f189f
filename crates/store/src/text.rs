//! Frames and values as text, CSV or JSON lines. Written by exports and `store read`, and read by `store append`.
//!
//! **CSV** (RFC 4180): `time` (RFC 3339, nanoseconds), `time_ns`, `stream`, `gap`, or a selection of them, followed by
//! a column for each channel, named `channel [unit]` (or just `channel` if it has no unit). An empty cell has no value,
//! `""` is an empty text, and `unknown` marks a value that is known to be unknown. **JSON lines**: first
//! `{"type":"channels","channels":[{"name","type","unit","description","stream"}]}`, then
//! `{"type":"frame","time","time_ns","stream","values":{channel: value}}` and
//! `{"type":"gap","stream","from_time_ns","to_time_ns","count","cause","words"}`. 64-bit integers are strings, and so
//! are `NaN`, `Infinity` and `-Infinity`. Floats have their shortest exact form, with a point or an exponent.

mod value;

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

pub use value::{not_finite, put_cell, put_field, put_json, put_json_text, put_list, put_plain};

use crate::model::batch::Batch;
use crate::model::calendar::CivilTime;
use crate::model::pattern::Chosen;
use crate::model::stream::{Channel, ChannelIndex, Stream};
use crate::model::value::CellState;

/// Channel as a column.
#[derive(Clone, Debug)]
pub struct FrameColumn {
    /// Full name of the channel.
    pub name: String,
    stream: Arc<Stream>,
    index: ChannelIndex,
}

impl FrameColumn {
    /// Returns the channel's definition.
    pub fn channel(&self) -> &Channel {
        self.stream.layout.channel(self.index)
    }
}

/// Stream whose channels are adjacent columns.
#[derive(Clone, Debug)]
pub struct FrameStream {
    /// Definition of the stream.
    pub stream: Arc<Stream>,
    /// Name of the stream, including tags.
    pub name: String,
    /// Index of its first column.
    pub first: usize,
    /// Channels in the order of their columns.
    pub channels: Vec<ChannelIndex>,
}

/// Channels as columns.
#[derive(Clone, Debug, Default)]
pub struct FrameColumns {
    /// All columns.
    pub all: Vec<FrameColumn>,
    /// Streams of the columns.
    pub streams: Vec<FrameStream>,
}

impl FrameColumns {
    /// Creates a column for each channel.
    pub fn new(chosen: &[Chosen]) -> FrameColumns {
        let mut columns = FrameColumns::default();
        for (stream, channels) in chosen {
            let first = columns.all.len();
            columns.all.extend(channels.iter().map(|&index| FrameColumn {
                name: stream.key.channel_name(&stream.layout.channel(index).name),
                stream: stream.clone(),
                index,
            }));
            let (name, channels) = (stream.key.to_string(), channels.clone());
            columns.streams.push(FrameStream { stream: stream.clone(), name, first, channels });
        }
        columns
    }

    /// Returns `{"type":"channels","channels":[…]}`.
    pub fn describe(&self) -> String {
        let mut json = String::from("{\"type\":\"channels\",\"channels\":[");
        for (at, column) in self.all.iter().enumerate() {
            let channel = column.channel();
            json.push_str(if at == 0 { "{\"name\":" } else { ",{\"name\":" });
            put_json_text(&mut json, &column.name);
            let (kind, stream) = (channel.channel_type.name(), column.stream.key.to_string());
            for (key, text) in [
                (",\"type\":", &*kind),
                (",\"unit\":", channel.unit.as_str()),
                (",\"description\":", channel.description.as_str()),
                (",\"stream\":", &*stream),
            ] {
                json.push_str(key);
                put_json_text(&mut json, text);
            }
            json.push('}');
        }
        json.push_str("]}");
        json
    }
}

/// Choice of the CSV columns before those of the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvLead {
    /// Whether there is `time`.
    pub time: bool,
    /// Whether there is `time_ns`.
    pub time_ns: bool,
    /// Whether there is `stream`.
    pub stream: bool,
    /// Whether there is `gap`.
    pub gap: bool,
}

impl CsvLead {
    /// Selection of all four columns.
    pub const ALL: CsvLead = CsvLead { time: true, time_ns: true, stream: true, gap: true };
}

/// Output format of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// Comma-separated values, with the selected leading columns.
    Csv(CsvLead),
    /// One JSON object a line.
    Jsonl,
}

/// Gap of missing frames.
#[derive(Clone, Copy, Debug)]
pub struct GapText<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// `time` of the frames before and after the gap, in nanoseconds since 1970 UTC.
    pub time: (i64, i64),
    /// Number of frames that are still missing.
    pub count: u64,
    /// Cause of the gap, as one word.
    pub cause: &'a str,
    /// Description of the gap, in words.
    pub words: &'a str,
}

/// Writer of rows with the same columns.
#[derive(Clone, Debug)]
pub struct FrameText {
    /// Output format.
    pub form: TextForm,
    /// Columns of all rows.
    pub columns: FrameColumns,
}

impl FrameText {
    /// Appends the header.
    pub fn header(&self, out: &mut String) {
        let TextForm::Csv(lead) = self.form else {
            out.push_str(&self.columns.describe());
            return out.push('\n');
        };
        let lead = [(lead.time, "time"), (lead.time_ns, "time_ns"), (lead.stream, "stream"), (lead.gap, "gap")];
        let names = lead.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name);
        let mut separator = "";
        for name in names {
            let _ = write!(out, "{separator}{name}");
            separator = ",";
        }
        for column in &self.columns.all {
            out.push_str(separator);
            separator = ",";
            match column.channel().unit.as_str() {
                "" => put_field(out, &column.name),
                unit => put_field(out, &format!("{} [{unit}]", column.name)),
            }
        }
        out.push('\n');
    }

    /// Appends rows of a batch with the channels of the stream at index `stream`.
    pub fn frames(&self, out: &mut String, stream: usize, batch: &Batch, rows: Range<usize>) {
        let stream = &self.columns.streams[stream];
        let TextForm::Csv(lead) = self.form else {
            return rows.for_each(|row| self.json_frame(out, stream, batch, row));
        };
        let (mut name, mut time) = (String::new(), TimeText::default());
        put_field(&mut name, &stream.name);
        for row in rows {
            csv_lead(out, lead, batch.time(row), &mut time, (&name, ""));
            blank(out, stream.first);
            for column in &batch.columns {
                out.push(',');
                match column.cell(row) {
                    Ok(value) => put_cell(out, value),
                    Err(CellState::Unknown) => out.push_str("unknown"),
                    Err(_) => {}
                }
            }
            blank(out, self.columns.all.len() - stream.first - batch.columns.len());
            out.push('\n');
        }
    }

    fn json_frame(&self, out: &mut String, stream: &FrameStream, batch: &Batch, row: usize) {
        let time_ns = batch.time(row);
        out.push_str("{\"type\":\"frame\",\"time\":\"");
        put_time(out, time_ns);
        let _ = write!(out, "\",\"time_ns\":\"{time_ns}\",\"stream\":");
        put_json_text(out, &stream.name);
        out.push_str(",\"values\":{");
        let mut separator = "";
        for (column, named) in batch.columns.iter().zip(&self.columns.all[stream.first..]) {
            let cell = column.cell(row);
            if !matches!(cell, Ok(_) | Err(CellState::Unknown)) {
                continue;
            }
            out.push_str(separator);
            separator = ",";
            put_json_text(out, &named.name);
            out.push(':');
            match cell {
                Ok(value) => put_json(out, value),
                Err(_) => out.push_str("\"unknown\""),
            }
        }
        out.push_str("}}\n");
    }

    /// Appends a row that describes missing frames.
    pub fn gap(&self, out: &mut String, gap: &GapText<'_>) {
        match self.form {
            TextForm::Csv(lead) => {
                let (mut stream, mut words) = (String::new(), String::new());
                put_field(&mut stream, gap.stream);
                put_field(&mut words, gap.words);
                csv_lead(out, lead, gap.time.0, &mut TimeText::default(), (&stream, &words));
                blank(out, self.columns.all.len());
                out.push('\n');
            }
            TextForm::Jsonl => {
                out.push_str("{\"type\":\"gap\",\"stream\":");
                put_json_text(out, gap.stream);
                let ((from, to), count) = (gap.time, gap.count);
                let _ = write!(out, ",\"from_time_ns\":\"{from}\",\"to_time_ns\":\"{to}\",\"count\":\"{count}\"");
                out.push_str(",\"cause\":");
                put_json_text(out, gap.cause);
                out.push_str(",\"words\":");
                put_json_text(out, gap.words);
                out.push_str("}\n");
            }
        }
    }
}

/// Appends the leading columns of a row. `stream` and `gap` are fields.
fn csv_lead(out: &mut String, lead: CsvLead, time_ns: i64, time: &mut TimeText, (stream, gap): (&str, &str)) {
    let start = out.len();
    let separate = |out: &mut String| {
        if out.len() > start {
            out.push(',');
        }
    };
    if lead.time {
        time.put(out, time_ns);
    }
    if lead.time_ns {
        separate(out);
        out.push_str(itoa::Buffer::new().format(time_ns));
    }
    if lead.stream {
        separate(out);
        out.push_str(stream);
    }
    if lead.gap {
        separate(out);
        out.push_str(gap);
    }
}

fn blank(out: &mut String, columns: usize) {
    out.extend(std::iter::repeat_n(',', columns));
}

/// Appends an instant in RFC 3339, UTC, with all nine fractional digits.
pub fn put_time(out: &mut String, time_ns: i64) {
    TimeText::default().put(out, time_ns);
}

/// Writer of instants. It keeps the text of the last one, and changes only the fraction within the same second.
struct TimeText {
    second: Option<i64>,
    text: [u8; 30],
}

impl Default for TimeText {
    fn default() -> TimeText {
        TimeText { second: None, text: *b"0000-00-00T00:00:00.000000000Z" }
    }
}

impl TimeText {
    fn put(&mut self, out: &mut String, time_ns: i64) {
        let second = Some(time_ns.div_euclid(1_000_000_000));
        if self.second != second {
            let time = CivilTime::of(time_ns);
            let (date, text) = (time.date, &mut self.text);
            put_digits(&mut text[0..4], date.year as u32);
            put_digits(&mut text[5..7], date.month as u32);
            put_digits(&mut text[8..10], date.day as u32);
            put_digits(&mut text[11..13], time.hour as u32);
            put_digits(&mut text[14..16], time.minute as u32);
            put_digits(&mut text[17..19], time.second as u32);
            self.second = second;
        }
        put_digits(&mut self.text[20..29], time_ns.rem_euclid(1_000_000_000) as u32);
        out.push_str(str::from_utf8(&self.text).unwrap_or_default());
    }
}

fn put_digits(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_right_to_both_ends_of_their_range() {
        for (time_ns, want) in [
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MIN + 1, "1677-09-21T00:12:43.145224193Z"),
            (i64::MIN + 854_775_808, "1677-09-21T00:12:44.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (0, "1970-01-01T00:00:00.000000000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ] {
            let mut out = String::new();
            put_time(&mut out, time_ns);
            assert_eq!(out, want);
        }
    }
}
