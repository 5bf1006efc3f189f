//! Stored output of derived channels: results, the standing of each evaluation, and frames that were too late.
//!
//! An evaluation's standing (`strongback.derived`) is appended after the results up to it. Whatever a crash cuts off,
//! a stored standing is therefore never ahead of the results, and later results can be computed again identically.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use strongback_query::{Kind, Outcome};
use strongback_sources::Sink;
use strongback_store::{
    Batch, ChannelIndex, ChannelSpec, ChannelType, Clock, CommitNumber, FrameBatch, FrameHead, Outcome as Stored,
    Reject, Scan, ScanError, Stream, StreamId, StreamKey, StreamSpec, Value, View,
};

use crate::alarms::limits::history;
use crate::ingest::Ingest;
use crate::reception::TappedFrame;
use crate::reception::value::{FromValue, InputValue};

use super::binding::Binding;
use super::definition::{Definition, type_of, value_of};
use super::hold::Key;

/// Table of standings.
const STANDINGS: &str = "strongback.derived";
/// Tag with the evaluation of a stream of standings, and the tag used by earlier versions. Their streams stay in the
/// retention group of that time, and nothing is added to them.
const OF: &str = "evaluation";
const OF_BEFORE: &str = "of";
/// Tag of a run; streams with it are kept as the run is.
const RUN: &str = "run";

/// Result stream of one trigger and version.
#[derive(Clone, Debug)]
pub struct Output {
    /// Id of the stream.
    pub stream: StreamId,
    value: ChannelIndex,
    row: ChannelIndex,
}

/// Place and memory of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Newest frame that had its turn.
    pub released: Key,
    /// Row up to which frames were seen, by stream.
    pub seen: Vec<(StreamId, u64)>,
    /// Memory of the program, serialized.
    pub memory: Vec<u8>,
    /// Row of the trigger from which on all frames arrived while its version was in force, if known.
    pub from_row: Option<u64>,
}

impl Output {
    /// Finds or creates the result stream.
    ///
    /// # Errors
    /// Returns an error if the store refuses it.
    pub fn resolve(
        ingest: &Ingest,
        definition: &Definition,
        binding: &Binding,
        version: &str,
    ) -> Result<Output, Reject> {
        let table = &definition.table;
        let mut value = ChannelSpec::new(definition.channel.clone(), type_of(binding.program.kind()));
        (value.unit, value.description) = (table.unit.clone(), table.description.clone());
        let mut row = ChannelSpec::new(format!("{}_row", definition.channel), ChannelType::U64);
        row.description = format!("row of {} that {} is of", binding.trigger.key, definition.channel);
        let spec = StreamSpec {
            key: definition.output(&binding.trigger.key, version),
            source: crate::sources::roster::DERIVED_SOURCE.to_owned(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![value, row],
        };
        let (stream, channels) = ingest.resolve(&spec)?;
        Ok(Output { stream: stream.id, value: channels[0], row: channels[1] })
    }

    /// Creates a batch of results, each with its trigger.
    pub fn put<'a>(
        &self,
        results: impl Iterator<Item = (&'a TappedFrame<InputValue>, &'a Outcome)>,
        now: i64,
    ) -> FrameBatch {
        let mut batch = FrameBatch::new();
        for (trigger, result) in results {
            if trigger.row.is_none() && result.is_none() {
                continue;
            }
            let source_time = Some(trigger.time);
            batch.begin(FrameHead { stream: self.stream, receive_time: now, source_time, sequence: None });
            if let Some(cell) = result {
                batch.push(self.value, value_of(cell));
            }
            // The row distinguishes frames of equal times and values from duplicates.
            if let Some(row) = trigger.row {
                batch.push(self.row, Value::U64(row));
            }
            batch.end();
        }
        batch
    }

    /// Returns the trigger of the newest stored result, and when that was evaluated, nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// Returns an error if a scan ends early.
    pub fn newest(&self, view: &View, trigger: StreamId) -> Result<Option<Newest>, ScanError> {
        newest_of(view, self.stream, self.row, trigger)
    }
}

/// Trigger of a result, and when that was evaluated, nanoseconds since 1970 UTC.
pub type Newest = (Key, i64);

fn newest_of(
    view: &View,
    results: StreamId,
    row_of_trigger: ChannelIndex,
    trigger: StreamId,
) -> Result<Option<Newest>, ScanError> {
    let scan = Scan { newest_first: true, batch_rows: 64, ..Scan::all(results, vec![row_of_trigger]) };
    for batch in view.scan(scan) {
        let batch = batch?;
        let of = |row: usize| match batch.columns.first()?.cell(row) {
            Ok(Value::U64(of)) => Some(((batch.time(row), trigger.0, of), batch.receive_time[row])),
            _ => None,
        };
        if let Some(newest) = (0..batch.len()).rev().find_map(of) {
            return Ok(Some(newest));
        }
    }
    Ok(None)
}

/// Results of the version of a definition before the one in force.
#[derive(Clone, Debug)]
pub struct EarlierResults {
    key: StreamKey,
    row: String,
}

impl EarlierResults {
    /// Returns where the results of the version before `version` are, or `None` for the first one.
    pub fn before(version: u32, definition: &Definition, trigger: &StreamKey) -> Option<EarlierResults> {
        let before = version.checked_sub(1).filter(|before| *before > 0)?.to_string();
        let row = format!("{}_row", definition.channel);
        Some(EarlierResults { key: definition.output(trigger, &before), row })
    }

    /// Returns the newest of them, as in [`Output::newest`].
    ///
    /// # Errors
    /// Returns an error if a scan ends early.
    pub fn newest(&self, view: &View, trigger: StreamId) -> Result<Option<Newest>, ScanError> {
        let Some(stream) = view.catalog().streams.iter().find(|stream| stream.key == self.key) else { return Ok(None) };
        let Some(row) = stream.layout.index(&self.row) else { return Ok(None) };
        newest_of(view, stream.id, row, trigger)
    }
}

/// Appends results. Returns the commit that makes them durable.
///
/// # Errors
/// Returns the error of the first result that the store refused.
pub fn append(ingest: &Ingest, batch: &FrameBatch) -> Result<CommitNumber, Reject> {
    let refused = |outcome| match outcome {
        Stored::Rejected(reject) => Some(reject),
        _ => None,
    };
    let appended = ingest.accept_waiting(batch);
    appended.outcomes.into_iter().find_map(refused).map_or(Ok(appended.commit), Err)
}

/// Returns the name of an evaluation in the store's own tables.
pub fn label(name: &str, version: u32, trigger: &StreamKey) -> String {
    format!("{name} version {version} of {trigger}")
}

/// Returns the run that a trigger belongs to, if any.
pub fn run_of(trigger: &StreamKey) -> Option<&str> {
    trigger.tag(RUN)
}

/// Returns the definition of the stream of standings of an evaluation.
pub fn spec(label: &str, run: Option<&str>) -> StreamSpec {
    let channels = [
        ("stream", ChannelType::U32),
        ("row", ChannelType::U64),
        ("seen", ChannelType::String),
        ("memory", ChannelType::String),
        // Distinguishes repeated standings of an idle evaluation from a frame sent twice.
        ("at_ns", ChannelType::I64),
        ("from_row", ChannelType::U64),
    ];
    let tags = [(OF, label)].into_iter().chain(run.map(|run| (RUN, run)));
    StreamSpec {
        key: StreamKey::new(STANDINGS, tags.map(|(tag, value)| (tag.to_owned(), value.to_owned()))),
        source: "internal".to_owned(),
        clock: Clock::Source,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: channels.map(|(name, kind)| ChannelSpec::new(name, kind)).to_vec(),
    }
}

/// Appends the standing of an evaluation, tagged with its run if there is one. Returns the number of bytes written.
///
/// # Errors
/// Returns an error if the store refuses it.
pub fn stand(ingest: &Ingest, label: &str, run: Option<&str>, standing: &Standing) -> Result<u64, Reject> {
    let (stream, channels) = ingest.resolve_own(&spec(label, run))?;
    let (time, of, row) = standing.released;
    let seen: Vec<String> = standing.seen.iter().map(|(stream, row)| format!("{}:{row}", stream.0)).collect();
    let (seen, memory) = (seen.join(" "), BASE64_STANDARD.encode(&standing.memory));
    let mut batch = FrameBatch::new();
    let now = crate::process::clock::now_ns();
    batch.begin(FrameHead { stream: stream.id, receive_time: now, source_time: Some(time), sequence: None });
    batch.push(channels[0], Value::U32(of));
    batch.push(channels[1], Value::U64(row));
    batch.push(channels[2], Value::String(&seen));
    batch.push(channels[3], Value::String(&memory));
    batch.push(channels[4], Value::I64(now));
    if let Some(from_row) = standing.from_row {
        batch.push(channels[5], Value::U64(from_row));
    }
    batch.end();
    append(ingest, &batch).map(|_| (seen.len() + memory.len()) as u64)
}

/// Returns the newest standing of an evaluation with a `time` before `end`, nanoseconds since 1970 UTC. Returns
/// `None` if it expired with old data; a standing in an older stream is then too old to continue from.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn standing(view: &View, label: &str, end: i64) -> Result<Option<Standing>, ScanError> {
    for stream in streams_of(view, label) {
        if let Some((_, standing)) = find_standing(view, &stream, end, true)? {
            return Ok(Some(standing));
        }
        let first = find_standing(view, &stream, i64::MAX, false)?;
        if view.next_row(stream.id) > 0 && first.is_none_or(|(row, _)| row > 0) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Returns the first standing of an evaluation, or `None` if it expired with old data; the oldest one left could then
/// be from any later time.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn first_standing(view: &View, label: &str) -> Result<Option<Standing>, ScanError> {
    for stream in streams_of(view, label).iter().rev() {
        if view.next_row(stream.id) > 0 {
            let first = find_standing(view, stream, i64::MAX, false)?;
            return Ok(first.filter(|(row, _)| *row == 0).map(|(_, standing)| standing));
        }
    }
    Ok(None)
}

/// Returns the streams of an evaluation's standings, the newest first: that of its run, that from before runs had
/// their own, and that of an earlier version of the server.
fn streams_of(view: &View, label: &str) -> Vec<Arc<Stream>> {
    let age = |key: &StreamKey| match (key.tag(OF), key.tag(OF_BEFORE)) {
        (Some(of), _) if of == label => Some(u8::from(run_of(key).is_none())),
        (_, Some(of)) if of == label => Some(2),
        _ => None,
    };
    let all = view.catalog().streams.iter().filter(|stream| stream.key.table == STANDINGS);
    let mut found: Vec<(u8, Arc<Stream>)> =
        all.filter_map(|stream| Some((age(&stream.key)?, stream.clone()))).collect();
    found.sort_by_key(|(age, _)| *age);
    found.into_iter().map(|(_, stream)| stream).collect()
}

/// Returns the newest or the oldest standing of a stream before `end`, with its row.
fn find_standing(
    view: &View,
    stream: &Stream,
    end: i64,
    newest_first: bool,
) -> Result<Option<(u64, Standing)>, ScanError> {
    let columns: Vec<ChannelIndex> = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
    let scan = Scan { newest_first, batch_rows: 16, time: i64::MIN..end, ..Scan::all(stream.id, columns) };
    for batch in view.scan(scan) {
        let batch = batch?;
        let mut rows: Vec<usize> = (0..batch.len()).collect();
        if newest_first {
            rows.reverse();
        }
        if let Some(standing) = rows.into_iter().find_map(|row| Some((batch.rows[row], read(stream, &batch, row)?))) {
            return Ok(Some(standing));
        }
    }
    Ok(None)
}

fn read(stream: &Stream, batch: &Batch, row: usize) -> Option<Standing> {
    let get = |name: &str| batch.columns[stream.layout.index(name)?.0 as usize].cell(row).ok();
    let (Value::U32(of), Value::U64(at)) = (get("stream")?, get("row")?) else { return None };
    let (Value::String(seen), Value::String(memory)) = (get("seen").unwrap_or(Value::String("")), get("memory")?)
    else {
        return None;
    };
    let pair = |pair: &str| {
        let (stream, row) = pair.split_once(':')?;
        Some((StreamId(stream.parse().ok()?), row.parse().ok()?))
    };
    Some(Standing {
        released: (batch.time(row), of, at),
        seen: seen.split_whitespace().map(pair).collect::<Option<_>>()?,
        memory: BASE64_STANDARD.decode(memory).ok()?,
        from_row: match get("from_row") {
            Some(Value::U64(from_row)) => Some(from_row),
            _ => None,
        },
    })
}

/// Records frames that were too late for an evaluation, in `strongback.late`.
///
/// # Errors
/// Returns an error if the store refuses them.
pub fn name_late(ingest: &Ingest, label: &str, rows: &[(StreamId, u64)], now: i64) -> Result<(), Reject> {
    let rows: Vec<history::Late> = rows.iter().map(|(stream, row)| (*stream, *row, None)).collect();
    history::record_late(ingest, &rows, Some(label), now)
}

/// Returns the frames that were too late for an evaluation.
///
/// # Errors
/// Returns an error if a scan ends early.
pub fn late(view: &View, label: &str) -> Result<HashSet<(StreamId, u64)>, ScanError> {
    history::late_for(view, label)
}

/// Converts a value from before the first frame of an evaluation to a cell of a kind.
pub fn cell_of(value: Value<'_>, kind: Kind) -> Option<strongback_query::Cell> {
    InputValue::from_value(value)?.into_kind(kind)
}
