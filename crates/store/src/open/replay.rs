//! Replaying the units of the log, from the newest checkpoint to the first that does not follow.

use std::ops::Range;
use std::sync::Arc;

use crate::append::Writer;
use crate::append::ledger::named_gap;
use crate::append::stream_slot::OpenRows;
use crate::bytes::{Cursor, RecordError, contradiction};
use crate::catalog;
use crate::disk::{Disk, io_error, names};
use crate::log::reader::{LogReader, ReadUnit};
use crate::log::record::{self, Control, Record, Records};
use crate::log::superblock::Superblock;
use crate::log::{self, Link, LogPosition, Ring};
use crate::model::counts::RecoveryReport;
use crate::model::damage::Damage;
use crate::model::limits::ROWS_MAX;
use crate::model::mutant::{self, Mutant};
use crate::model::refusal::{OpenError, repair_hint};
use crate::model::row::head_of;
use crate::open::recovery::Opened;
use crate::upkeep::lost::LostRows;

/// Damage that was found in the log.
#[derive(Debug, Default)]
pub(crate) struct LogDamage {
    /// Commits of before and after each damage, nanoseconds since 1970 UTC.
    pub(crate) instants: Vec<(i64, i64)>,
    /// Where the newest damage ends that commits follow.
    pub(crate) passed_to: Option<LogPosition>,
    /// Whether the log ends with damage.
    pub(crate) at_end: bool,
}

/// Replays the log's whole units. Returns the link of the last one.
pub(crate) fn replay(
    disk: &dyn Disk,
    ring: &Ring,
    tail: Link,
    writer: &mut Writer,
    opened: &mut Opened,
    lost: &mut Vec<LostRows>,
    now: i64,
) -> Result<Link, OpenError> {
    let mut reader = LogReader::new(ring.size_bytes, tail, |bytes, at| ring.file.read_at(bytes, at));
    let mut scratch = (Vec::new(), Vec::new());
    let damaged = |position: LogPosition, reason| {
        let offset = position.offset(ring.size_bytes);
        Damage { file: names::LOG.to_owned(), offset, reason }
    };
    loop {
        let unit = reader.next_unit(!mutant::is_active(Mutant::NoLogCheck));
        let Some(ReadUnit { header, records, passed }) = unit.map_err(io_error(disk, names::LOG))? else { break };
        if let Some(passed) = passed {
            opened.report.damaged.push(damaged(passed.position(), passed.damage()));
            // Where the tail may move: the next opening then need not pass the damage again.
            opened.links.push_back(header.link_before());
            let before = opened.last_commit.unwrap_or(header.instant);
            opened.log_damage.instants.push((before, header.instant));
            opened.log_damage.passed_to = Some(header.position);
        }
        opened.report.clean = header.flags & log::CLEAN != 0;
        opened.links.push_back(header.link());
        opened.last_commit = Some(header.instant);
        writer.unit.read_back(header.position);
        let applied = apply_unit(writer, records, &mut scratch, header.instant, &mut opened.report, lost);
        applied.map_err(|why| OpenError::Damaged {
            path: format!("{}/{}", disk.path(), names::LOG),
            reason: format!(
                "a record of the unit at offset {} does not fit what came before: within the unit, {why}",
                header.position.offset(ring.size_bytes)
            ),
        })?;
    }
    opened.report.torn_bytes = reader.torn_bytes().map_err(io_error(disk, names::LOG))?;
    let end = reader.link();
    let behind = reader.behind_end().map_err(io_error(disk, names::LOG))?;
    // A unit of a later lap alone decides nothing: one copy of the superblock must be missing, too, and nothing follow
    // where the other says that the log begins.
    if let Some(commit) = behind.later_lap
        && end == tail
        && Superblock::has_lost_copy(disk)?
    {
        // Row numbers would be given out twice.
        return Err(OpenError::Damaged {
            path: format!("{}/{}", disk.path(), names::SUPERBLOCK),
            reason: format!(
                "its newest copy is lost: the older one says that the log begins with commit {}, and the log has been \
                 written over up to commit {commit}; {}",
                tail.commit + 1,
                repair_hint(&disk.path())
            ),
        });
    }
    if let Some(reason) = behind.damage(&end) {
        opened.report.damaged.push(damaged(end.position, reason));
        opened.log_damage.instants.push((opened.last_commit.unwrap_or(now), now));
        opened.log_damage.at_end = true;
    }
    Ok(end)
}

/// Replays the records of a unit. `scratch` is for a row's words and text.
///
/// # Errors
/// With the reason, if a record does not fit what came before. Offsets in it count from the beginning of the unit.
pub(crate) fn apply_unit(
    writer: &mut Writer,
    bytes: &[u8],
    scratch: &mut (Vec<u64>, Vec<u8>),
    instant: i64,
    report: &mut RecoveryReport,
    lost: &mut Vec<LostRows>,
) -> Result<(), String> {
    let mut records = Records::new(bytes);
    loop {
        let offset = records.offset();
        let applied = apply_record(writer, &mut records, scratch, instant, (report, lost));
        if !applied.map_err(|error| format!("record at offset {offset}: {error}"))? {
            return Ok(());
        }
    }
}

/// Replays the next record of a unit. Returns false if there is none.
///
/// # Errors
/// If it does not fit what came before.
pub(crate) fn apply_record(
    writer: &mut Writer,
    records: &mut Records<'_>,
    (row_words, text): &mut (Vec<u64>, Vec<u8>),
    instant: i64,
    (report, lost): (&mut RecoveryReport, &mut Vec<LostRows>),
) -> Result<bool, RecordError> {
    let Some(record) = records.next_record() else { return Ok(false) };
    match record {
        Record::Control { kind, mut content } => apply_control(writer, kind, &mut content)?,
        Record::Frame { stream, shape, row, clock, text_bytes } => {
            let clock = record::is_source_clock(clock)?;
            let follows_lost = note_lost(writer, (stream, row), instant, lost)?;
            let frame = LoggedFrame { stream, shape, row, clock, text_bytes, follows_lost };
            let time = apply_frame(writer, records, &frame, (row_words, text), instant, report)?;
            if let (true, Some(rows)) = (follows_lost, lost.last_mut()) {
                rows.end_before(time);
            }
        }
    }
    Ok(true)
}

/// Notes the rows that a record shows to be lost, as it is of a later row than the one expected. Returns whether any are.
fn note_lost(
    writer: &mut Writer,
    (stream, row): (u32, u64),
    instant: i64,
    lost: &mut Vec<LostRows>,
) -> Result<bool, RecordError> {
    if row >= ROWS_MAX - 1 {
        return Err(contradiction(format!("stream {stream}: row {row} is beyond the last possible one")));
    }
    let Some(passing) = writer.streams.get(stream).filter(|passing| passing.next_row < row) else { return Ok(false) };
    let before = passing.slot.last_time();
    let Some(rows) = pass_lost(writer, stream, row) else { return Ok(false) };
    lost.push(LostRows { stream, rows, time: (before.unwrap_or(instant), instant) });
    Ok(true)
}

/// Continues a stream at `row` if that is later than the row expected. Returns the rows in between, which are lost.
pub(crate) fn pass_lost(writer: &mut Writer, id: u32, row: u64) -> Option<Range<u64>> {
    let stream = writer.streams.get_mut(id)?;
    let rows = stream.next_row..row;
    if rows.is_empty() {
        return None;
    }
    stream.next_row = row;
    stream.chunk = None;
    if stream.slot.open.load().chunks.is_empty() {
        stream.slot.open.store(Arc::new(OpenRows::empty(row)));
    }
    writer.streams.note_changed(id);
    Some(rows)
}

/// Head of a frame's record.
struct LoggedFrame {
    stream: u32,
    shape: u16,
    row: u64,
    /// Whether its `time` is its source_time; `None`: as its stream's definition says.
    clock: Option<bool>,
    text_bytes: usize,
    /// Whether rows before it are lost.
    follows_lost: bool,
}

/// Replays a frame. Returns its `time`.
fn apply_frame(
    writer: &mut Writer,
    records: &mut Records<'_>,
    &LoggedFrame { stream, shape, row, clock, text_bytes, follows_lost }: &LoggedFrame,
    (words, text): (&mut Vec<u64>, &mut Vec<u8>),
    instant: i64,
    report: &mut RecoveryReport,
) -> Result<i64, RecordError> {
    let row_shape = writer.streams.shape_of(stream, shape)?;
    records.frame(row_shape.words(), text_bytes, words, text)?;
    if !row_shape.has_text && !text.is_empty() {
        return Err(contradiction(format!("stream {stream}, row {row}: has text, and its shape {shape} has none")));
    }
    let state = writer.streams.known(stream)?;
    let clock = clock.filter(|_| !mutant::is_active(Mutant::ForgetClock));
    let source_clock = clock.unwrap_or(state.source_clock);
    if row_shape.has_sequence {
        state.restore_sequence(words, row, source_clock, follows_lost);
    }
    if writer.streams.is_gaps(stream)
        && let Some(gap) = named_gap(&row_shape, words, text)
        && let Some(stream) = writer.streams.get_mut(gap.stream)
        && let Some(tracker) = &mut stream.tracker
    {
        tracker.name_gap(gap.session, gap.sequence, gap.id);
    }
    let time = head_of(words).time(source_clock);
    let state = writer.streams.known(stream)?;
    if row < state.next_row {
        // Already in a segment; a client that got no answer may still send it again.
        if state.source_clock {
            let recent = state.recent.get_or_insert_default();
            recent.keep_row(&row_shape, source_clock, words, text);
        }
        return Ok(time);
    }
    writer.restore(stream, (shape, source_clock), words, text, instant);
    report.frames += 1;
    Ok(time)
}

fn apply_control(writer: &mut Writer, kind: u16, t: &mut Cursor<'_>) -> Result<(), RecordError> {
    if kind == Control::Stream as u16 {
        let definition = catalog::decode_stream(t)?;
        let id = definition.id;
        writer.apply_stream(definition)?;
        // Also of a stream that the checkpoint knows: definitions that a failed disk lost were written again as a
        // whole.
        writer.streams.note_changed(id.0);
    } else if kind == Control::Channels as u16 {
        let (id, body) = catalog::decode_channels(t)?;
        writer.apply_channels(id, body)?;
    } else if kind == Control::Group as u16 {
        writer.groups.apply(t)?;
    } else if kind == Control::Held as u16 {
        writer.restore_held(t)?;
    }
    Ok(())
}
