//! `strongback.alarms`: a row for each step of an alarm. `strongback.late`: rows that were judged late or not at all,
//! and rows that were too late for a derived channel. `strongback.judged`: marks up to which limits have judged.

use std::collections::{HashMap, HashSet};

use strongback_sources::Sink;
use strongback_store::{
    Batch, ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Reject, Scan, ScanError,
    Stream, StreamId, StreamKey, StreamSpec, Value, View,
};

use super::book::{AlarmStep, StepKind};
use super::rule::{Level, Why};
use crate::ingest::{Ingest, Ticket};

const ALARMS: &str = "strongback.alarms";
const LATE: &str = "strongback.late";
const JUDGED: &str = "strongback.judged";

/// Row of a stream, and the time at which it was judged, if it was.
pub type Late = (StreamId, u64, Option<i64>);

/// Mark up to which limits have judged, nanoseconds since 1970 UTC by the clock of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Receive time before which everything was judged.
    pub judged_until: i64,
    /// Time since which limits were running, in this opening of the store.
    pub since: i64,
}

/// Max rows of a history that are read, the newest ones.
const ROWS_MAX: u64 = 200_000;

/// Channels of `strongback.alarms`.
const CHANNELS: [(&str, ChannelType); 13] = [
    ("channel", ChannelType::String),
    ("limit", ChannelType::String),
    ("step", ChannelType::String),
    ("level", ChannelType::String),
    ("before", ChannelType::String),
    ("why", ChannelType::String),
    ("value", ChannelType::F64),
    ("text", ChannelType::String),
    ("bound", ChannelType::F64),
    ("by", ChannelType::String),
    ("note", ChannelType::String),
    ("until", ChannelType::I64),
    // The store takes frames of equal `time` and values for one frame sent twice. Steps of an alarm that toggles
    // while its source's clock stands still must stay distinct.
    ("number", ChannelType::U64),
];

/// Channels of `strongback.late`.
const LATE_CHANNELS: [(&str, ChannelType); 4] = [
    ("stream", ChannelType::U32),
    ("row", ChannelType::U64),
    ("judged_ns", ChannelType::I64),
    ("derived", ChannelType::String),
];

/// Channels of `strongback.judged`.
const JUDGED_CHANNELS: [(&str, ChannelType); 1] = [("since_ns", ChannelType::I64)];

/// Returns the definitions of these streams.
pub fn specs() -> Vec<StreamSpec> {
    vec![spec(ALARMS, CHANNELS), spec(LATE, LATE_CHANNELS), spec(JUDGED, JUDGED_CHANNELS)]
}

fn spec(table: &str, channels: impl IntoIterator<Item = (&'static str, ChannelType)>) -> StreamSpec {
    StreamSpec {
        key: StreamKey::new(table, []),
        source: "internal".to_owned(),
        clock: Clock::Source,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: channels.into_iter().map(|(name, kind)| ChannelSpec::new(name, kind)).collect(),
    }
}

fn append(ingest: &Ingest, batch: &FrameBatch) -> Result<Ticket, Reject> {
    let generation = ingest.generation_now();
    let appended = ingest.accept(batch);
    for outcome in appended.outcomes {
        if let Outcome::Rejected(reject) = outcome {
            return Err(reject);
        }
    }
    Ok(generation.ticket(appended.commit))
}

/// Returns the cells of a step, without empty texts.
fn cells(step: &AlarmStep) -> Vec<(&'static str, Value<'_>)> {
    let mut cells = vec![
        ("channel", Value::String(&step.channel)),
        ("limit", Value::String(&step.rule)),
        ("step", Value::String(step.kind.name())),
    ];
    let mut put = |name, text| cells.push((name, Value::String(text)));
    match &step.kind {
        StepKind::Level { from, to, why, value, text, bound } => {
            put("level", to.name());
            put("before", from.name());
            put("why", why.map_or("", Why::name));
            put("text", text);
            let numbers = [("value", value), ("bound", bound)];
            cells.extend(numbers.into_iter().filter_map(|(name, of)| Some((name, Value::F64((*of)?)))));
        }
        StepKind::Acknowledged { by, note } => {
            put("by", by);
            put("note", note);
        }
        StepKind::Shelved { by, note, until } => {
            put("by", by);
            put("note", note);
            cells.push(("until", Value::I64(*until)));
        }
        StepKind::Unshelved { by } => put("by", by),
    }
    cells.retain(|(_, value)| !matches!(value, Value::String("")));
    cells
}

/// Appends steps to `strongback.alarms`, each with a number that is unique in the store, and the mark to
/// `strongback.judged`.
///
/// # Errors
/// Returns an error if the store refuses them.
pub fn record(ingest: &Ingest, steps: &[(u64, AlarmStep)], mark: Option<Mark>) -> Result<Ticket, Reject> {
    let mut batch = FrameBatch::new();
    if !steps.is_empty() {
        add(ingest, steps, &mut batch)?;
    }
    if let Some(Mark { judged_until, since }) = mark {
        let (stream, channels) = ingest.resolve_own(&spec(JUDGED, JUDGED_CHANNELS))?;
        let (receive_time, source_time) = (judged_until, Some(judged_until));
        batch.begin(FrameHead { stream: stream.id, receive_time, source_time, sequence: None });
        batch.push(channels[0], Value::I64(since));
        batch.end();
    }
    append(ingest, &batch)
}

fn add(ingest: &Ingest, steps: &[(u64, AlarmStep)], batch: &mut FrameBatch) -> Result<(), Reject> {
    let (stream, channels) = ingest.resolve_own(&spec(ALARMS, CHANNELS))?;
    for (number, step) in steps {
        let (receive_time, source_time) = (step.receive_time, Some(step.time));
        batch.begin(FrameHead { stream: stream.id, receive_time, source_time, sequence: None });
        for (name, value) in cells(step).into_iter().chain([("number", Value::U64(*number))]) {
            if let Some(at) = CHANNELS.iter().position(|(channel, _)| *channel == name) {
                batch.push(channels[at], value);
            }
        }
        batch.end();
    }
    Ok(())
}

/// Appends rows to `strongback.late` that had a turn other than their reception: the turn in nanoseconds since 1970
/// UTC, or `None` if they were not judged. `derived` is the evaluation of a derived channel for which they were too
/// late.
///
/// # Errors
/// Returns an error if the store refuses them.
pub fn record_late(ingest: &Ingest, rows: &[Late], derived: Option<&str>, now: i64) -> Result<(), Reject> {
    let (own, channels) = ingest.resolve_own(&spec(LATE, LATE_CHANNELS))?;
    let mut batch = FrameBatch::new();
    for (stream, row, judged) in rows {
        batch.begin(FrameHead { stream: own.id, receive_time: now, source_time: None, sequence: None });
        batch.push(channels[0], Value::U32(stream.0));
        batch.push(channels[1], Value::U64(*row));
        if let Some(judged) = judged {
            batch.push(channels[2], Value::I64(*judged));
        }
        if let Some(derived) = derived {
            batch.push(channels[3], Value::String(derived));
        }
        batch.end();
    }
    append(ingest, &batch).map(drop)
}

/// Calls `each` with the newest `most` rows of one of these streams, in order.
fn rows(view: &View, table: &str, most: u64, mut each: impl FnMut(AlarmRow<'_>)) -> Result<(), ScanError> {
    let own = |stream: &&Stream| stream.key.table == table && stream.key.tags.is_empty();
    let catalog = view.catalog();
    let Some(stream) = catalog.streams.iter().map(|stream| &**stream).find(own) else { return Ok(()) };
    let next = view.next_row(stream.id);
    let columns = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
    let scan = Scan { rows: next.saturating_sub(most)..next, ..Scan::all(stream.id, columns) };
    for batch in view.scan(scan) {
        let batch = batch?;
        (0..batch.len()).for_each(|row| each(AlarmRow { stream, batch: &batch, row }));
    }
    Ok(())
}

struct AlarmRow<'a> {
    stream: &'a Stream,
    batch: &'a Batch,
    row: usize,
}

impl<'a> AlarmRow<'a> {
    fn get(&self, channel: &str) -> Option<Value<'a>> {
        let at = self.stream.layout.index(channel)?;
        self.batch.columns[at.0 as usize].cell(self.row).ok()
    }

    fn text(&self, channel: &str) -> &'a str {
        match self.get(channel) {
            Some(Value::String(text)) => text,
            _ => "",
        }
    }

    fn step(&self) -> Option<AlarmStep> {
        let (by, note) = (self.text("by").to_owned(), self.text("note").to_owned());
        let kind = match self.text("step") {
            "acknowledged" => StepKind::Acknowledged { by, note },
            "shelved" => {
                let Some(Value::I64(until)) = self.get("until") else { return None };
                StepKind::Shelved { by, note, until }
            }
            "unshelved" => StepKind::Unshelved { by },
            _ => StepKind::Level {
                from: Level::from_name(self.text("before"))?,
                to: Level::from_name(self.text("level"))?,
                why: Why::from_name(self.text("why")),
                value: self.get("value").and_then(|value| value.as_f64()),
                text: self.text("text").to_owned(),
                bound: self.get("bound").and_then(|bound| bound.as_f64()),
            },
        };
        Some(AlarmStep {
            time: self.batch.time(self.row),
            receive_time: self.batch.receive_time[self.row],
            rule: self.text("limit").into(),
            channel: self.text("channel").into(),
            kind,
        })
    }
}

/// Calls `each` with the recorded steps, oldest first. Returns the first unused number.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn steps(view: &View, mut each: impl FnMut(&AlarmStep)) -> Result<u64, ScanError> {
    let mut next = 0;
    rows(view, ALARMS, ROWS_MAX, |row| {
        if let Some(step) = row.step() {
            each(&step);
        }
        if let Some(Value::U64(number)) = row.get("number") {
            next = next.max(number.saturating_add(1));
        }
    })?;
    Ok(next)
}

/// Returns the newest mark, or `None` if there is none.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn mark(view: &View) -> Result<Option<Mark>, ScanError> {
    let mut found = None;
    rows(view, JUDGED, 1, |row| {
        if let Some(Value::I64(since)) = row.get("since_ns") {
            found = Some(Mark { judged_until: row.batch.time(row.row), since });
        }
    })?;
    Ok(found)
}

/// Rows with a turn other than their reception.
#[derive(Debug, Default)]
pub struct LateRows {
    /// Turn of each row; `None` if it was not judged.
    pub turns: HashMap<(StreamId, u64), Option<i64>>,
    /// Receive time since which all of them are known, if there are more than are read, nanoseconds since 1970 UTC.
    pub known_from: Option<i64>,
}

/// Returns the rows with a turn other than their reception, from the newest [`ROWS_MAX`] of `strongback.late`.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn late(view: &View) -> Result<LateRows, ScanError> {
    late_of(view, ROWS_MAX)
}

fn late_of(view: &View, most: u64) -> Result<LateRows, ScanError> {
    let (mut found, mut first) = (HashMap::new(), None);
    rows(view, LATE, most, |row| {
        if first.is_none() {
            first = Some((row.batch.rows[row.row], row.batch.receive_time[row.row]));
        }
        if row.get("derived").is_some() {
            return;
        }
        if let (Some(Value::U32(stream)), Some(Value::U64(of))) = (row.get("stream"), row.get("row")) {
            let judged = match row.get("judged_ns") {
                Some(Value::I64(judged)) => Some(judged),
                _ => None,
            };
            found.insert((StreamId(stream), of), judged);
        }
    })?;
    Ok(LateRows { turns: found, known_from: first.filter(|(row, _)| *row > 0).map(|(_, received)| received) })
}

/// Returns the rows that were too late for an evaluation of a derived channel.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn late_for(view: &View, derived: &str) -> Result<HashSet<(StreamId, u64)>, ScanError> {
    let mut found = HashSet::new();
    rows(view, LATE, ROWS_MAX, |row| {
        if let (Some(Value::U32(stream)), Some(Value::U64(of))) = (row.get("stream"), row.get("row"))
            && row.text("derived") == derived
        {
            found.insert((StreamId(stream), of));
        }
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Rig;
    use super::*;

    #[test]
    fn where_not_all_late_rows_are_read_it_is_said_since_when_they_are() {
        let rig = Rig::new();
        for (row, now) in [(5, 100), (6, 200), (7, 300)] {
            record_late(&rig.ingest, &[(StreamId(1), row, Some(now))], None, now).expect("recorded");
        }
        let view = rig.ingest.store().view();
        let all = late_of(&view, 3).expect("read");
        assert_eq!((all.turns.len(), all.known_from), (3, None));
        let newest = late_of(&view, 2).expect("read");
        assert_eq!((newest.turns.len(), newest.known_from), (2, Some(200)));
    }
}
