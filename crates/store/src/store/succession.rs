//! Succession after the disk failed: what a reopened store takes over from the poisoned one before it, in the same
//! process. Numbers that callers hold (streams, channels) and counts stay what they were. Frames that did not become
//! durable are reported as lost, once.

use std::sync::atomic::Ordering;

use crate::append::Writer;
use crate::append::held::Held;
use crate::append::sequence::SequenceTracker;
use crate::bytes::{Cursor, RecordError};
use crate::catalog;
use crate::catalog::group;
use crate::log::Link;
use crate::log::record::Control;
use crate::model::clock::Caller;
use crate::model::reduction::Reduction;
use crate::*;

/// Table of the program's own in which each row names a row of another stream: the number of the stream and that of the
/// row.
const LATE_TABLE: &str = "strongback.late";

/// Frames of a stream that were lost with the failed disk.
struct Void {
    /// Number of those with a row.
    rows: u64,
    /// Whether the frame of the first row is not among them: the log has it as it was before it got its row.
    is_held: bool,
    /// Number of those without a row, as the values that represented them are lost.
    reduced: u64,
    /// Min and max `time`.
    time: (i64, i64),
    /// Whether they are reported as lost; lost rows of the program's own tables are of no frame that is there.
    is_told: bool,
}

impl Store {
    /// Takes over from the store that was open on the same folder before its disk failed. Call it before anything is
    /// appended, when nothing is appended to `before` any more. Streams and channels keep their numbers, and all counts
    /// continue. Frames of `before` that were not durable, including those that it reduced, are counted as rejected and
    /// lost, and reported in `strongback.gaps` as `not recorded`, as are frames that it refused; they fill that gap
    /// when they come again. What `before` leaves out of its views, this store does, too. The program's own tables (`strongback.`) lose only what they say of lost frames, and that
    /// loss is not reported. Returns how many frames were lost.
    ///
    /// # Errors
    /// The log has no room for what is taken over.
    pub fn take_over(&self, before: &Store, now: i64) -> Result<u64, Reject> {
        self.engine.shared.paces.tell(Caller::Append, now);
        let old_view = before.view().with_excluded();
        self.engine.shared.excluded.store(before.engine.shared.excluded.load_full());
        // `before` stays as it is: if this store fails, too, the next one takes over from it.
        let old = before.engine.writer.lock();
        let mut new = self.engine.writer.lock();
        // A caller that waits for a newer catalog than the old one sees the version rise.
        new.streams.raise_version(old.streams.version() + 1);
        take_groups(&old, &mut new)?;
        // A unit that the disk failed at may be there as a whole. Its number is valid within its epoch alone.
        let of_before = |link: &&Link| link.epoch == before.engine.epoch;
        let found = self.engine.links.lock().iter().rev().find(of_before).map_or(0, |link| link.commit);
        let durable = before.engine.committed.load(Ordering::Acquire).max(found);
        let mut voids = Vec::with_capacity(old.streams.len() as usize);
        for id in 0..old.streams.len() {
            take_definition(&old, &mut new, id)?;
            let mut rows = new.streams[id].next_row..old.streams[id].next_row;
            let stream = old.streams[id].slot.stream.load_full();
            let own = old.streams[id].slot.group.is_own() && !group::is_measured(&stream.key);
            let reduced = old.streams[id].reducer.as_ref().and_then(|reducer| reducer.undurable(durable));
            let (reduced, reduced_time) = reduced.map_or((0, None), |(frames, time)| (frames, Some(time)));
            let found = new.streams[id].reducer.as_ref().and_then(|reducer| reducer.found_held(rows.start));
            let is_held = found.is_some_and(|held| is_row_of(held, &old_view, stream.id));
            rows.start += u64::from(is_held);
            let of_rows = if own { 0 } else { rows.end.saturating_sub(rows.start) };
            let is_told = !stream.key.is_internal();
            let mut void = Void { rows: of_rows, is_held, reduced, time: (now, now), is_told };
            if !rows.is_empty() {
                let columns = if own { stream.layout.indices() } else { vec![] };
                // Such rows are still in memory: they leave it only when they are durable.
                let batches = old_view.scan(Scan { rows, ..Scan::all(stream.id, columns) }).filter_map(Result::ok);
                let (time, without_frame) = take_rows(&mut new, &stream, batches, own, now)?;
                void.rows += without_frame;
                let both = time.zip(reduced_time).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
                void.time = both.or(time).or(reduced_time).unwrap_or(void.time);
            } else if let Some(time) = reduced_time {
                void.time = time;
            }
            voids.push(void);
        }
        let (commit, streams) = (new.unit.number(), &old.streams);
        let knows = |id| streams.get(id).is_some_and(|stream| stream.tracker.is_some());
        new.gaps.take_over(&old.gaps, commit, knows);
        for (id, void) in (0..).zip(&voids) {
            take_counts(&old, &mut new, id, void);
        }
        new.measure_catalog();
        let given_out = old.unit.number();
        drop((old, new));
        // Everything is taken over by now: if the disk fails at this, the next store continues from here.
        self.engine.pass_commits(given_out, now);
        Ok(voids.iter().filter(|v| v.is_told).map(|v| v.rows + v.reduced).sum())
    }
}

/// Returns whether the row that a held frame is to get is there already, and is of that frame.
fn is_row_of(held: &Held, view: &View, stream: StreamId) -> bool {
    let rows = held.row..held.row + 1;
    let row =
        view.scan(Scan { rows, ..Scan::all(stream, vec![]) }).filter_map(Result::ok).find(|batch| !batch.is_empty());
    row.is_some_and(|row| {
        let source_time = row.source_time.as_ref().and_then(|times| times.get(0));
        row.receive_time[0] == held.receive_time() && source_time == held.source_time()
    })
}

/// Writes lost retention groups again: streams that are taken over belong to them.
fn take_groups(old: &Writer, new: &mut Writer) -> Result<(), Reject> {
    for (group, bytes) in old.groups.to_save(true) {
        if !new.groups.has(group) {
            new.unit.put_control(Control::Group, &bytes)?;
            let applied = new.groups.apply(&mut Cursor::new(&bytes));
            debug_assert!(applied.is_ok(), "groups are numbered in the order in which they are made");
        }
    }
    Ok(())
}

/// Writes a stream's definition again if the newest one is lost.
fn take_definition(old: &Writer, new: &mut Writer, id: u32) -> Result<(), Reject> {
    let from = &old.streams[id];
    if new.streams.get(id).is_some_and(|s| s.history.serial >= from.history.serial) {
        return Ok(());
    }
    let bytes = catalog::encode_stream(&from.slot.stream.load(), &from.history, from.slot.group);
    new.unit.put_control(Control::Stream, &bytes)?;
    let decoded = catalog::decode_stream(&mut Cursor::new(&bytes)).map_err(RecordError::from);
    let applied = decoded.and_then(|definition| new.apply_stream(definition));
    debug_assert!(applied.is_ok(), "a stream's own definition reads back");
    new.streams.note_changed(id);
    Ok(())
}

/// Returns the min and max `time` of rows. Appends those of the program's own tables again, under the same ordinals,
/// except those that name a lost frame, whose row number another one gets. Also returns how many those are.
fn take_rows(
    new: &mut Writer,
    stream: &Stream,
    batches: impl Iterator<Item = Batch>,
    own: bool,
    now: i64,
) -> Result<(Option<(i64, i64)>, u64), Reject> {
    let (mut range, mut without_frame): (Option<(i64, i64)>, u64) = (None, 0);
    for batch in batches {
        for time in batch.times() {
            let (a, b) = range.unwrap_or((time, time));
            range = Some((a.min(time), b.max(time)));
        }
        if own {
            without_frame += append_again(new, stream, &batch, now)?;
        }
    }
    Ok((range, without_frame))
}

/// Returns whether a row names a frame that is not in the store.
fn names_lost(new: &Writer, stream: &Stream, batch: &Batch, row: usize) -> bool {
    let cell = |name: &str| batch.columns.get(stream.layout.index(name)?.0 as usize)?.cell(row).ok();
    match (cell("stream"), cell("row")) {
        (Some(Value::U32(of)), Some(Value::U64(named))) if stream.key.table == LATE_TABLE => {
            new.streams.get(of).is_none_or(|of| of.next_row <= named)
        }
        _ => false,
    }
}

/// Appends rows again, except those that name a frame that is not there. Returns how many these are.
fn append_again(new: &mut Writer, stream: &Stream, batch: &Batch, now: i64) -> Result<u64, Reject> {
    let (mut frames, mut without_frame) = (FrameBatch::new(), 0);
    for row in 0..batch.len() {
        if names_lost(new, stream, batch, row) {
            without_frame += 1;
            continue;
        }
        frames.clear();
        frames.begin(FrameHead {
            stream: batch.stream,
            receive_time: batch.receive_time[row],
            source_time: batch.source_time.as_ref().and_then(|times| times.get(row)),
            sequence: None,
        });
        for (channel, column) in batch.columns.iter().enumerate() {
            if let Ok(value) = column.cell(row) {
                frames.push(ChannelIndex(channel as u16), value);
            }
        }
        frames.end();
        new.offer(&frames.frame(0), now, true).map_err(|reject| *reject)?;
    }
    Ok(without_frame)
}

/// Continues the counts of a stream and its sequence, and notes the gap that lost frames leave.
fn take_counts(old: &Writer, new: &mut Writer, id: u32, void: &Void) {
    let of = (id, GapCause::NotRecorded);
    let Writer { streams, gaps, .. } = new;
    let (before, stream) = (&old.streams[id], &mut streams[id]);
    let lost = void.rows + void.reduced;
    stream.counts = before.counts;
    stream.counts.stored = stream.counts.stored.saturating_sub(void.rows);
    stream.counts.reduced = stream.counts.reduced.saturating_sub(void.reduced);
    if void.is_held && !before.reducer.as_ref().is_some_and(|r| r.is_uncounted(stream.next_row)) {
        stream.counts.stored = stream.counts.stored.saturating_sub(1);
        stream.counts.reduced += 1;
    }
    stream.counts.rejected += lost;
    let mut untold = if void.is_told { lost } else { 0 };
    stream.counts.lost += untold;
    let reduced = stream.slot.stream.load().layout.channels.iter().any(|c| c.reduction != Reduction::None);
    if let Some(before) = &before.tracker {
        let tracker = stream.tracker.get_or_insert_with(|| Box::new(SequenceTracker::new(before.modulus)));
        tracker.take_over(before, reduced, |tracker, run| {
            let count = untold.min(run.2.abs_diff(run.1).saturating_add(1));
            if count == 0 {
                return 0;
            }
            let gap = gaps.id_of_refused(of, Some(run), |between| tracker.misses(between));
            gaps.count_refused(of, count, void.time, Some(run));
            untold -= count;
            gap
        });
    }
    if untold > 0 {
        gaps.id_of_refused(of, None, |_| false);
        gaps.count_refused(of, untold, void.time, None);
    }
    if stream.tracker.is_some() {
        streams.note_changed(id);
    }
}
