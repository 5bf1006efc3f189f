//! Sealed segments whose files are missing or cut.
//!
//! Opening finds them by one listing of the folder: no byte of a sealed segment is read. Of one whose file vanishes later
//! the first reader gets an error, and upkeep does what opening does. They stay in the list of
//! segments, so that a file that is put back is taken again by the next opening; until then no block is looked for in
//! them. The loss is a gap with the cause `damaged`; that it is told is noted in the checkpoint once the gap is durable,
//! so that it is told once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::Writer;
use crate::checkpoint::SealedRows;
use crate::directory::{Segment, SegmentEntry, file_name};
use crate::disk::Disk;
use crate::inspect::Damage;
use crate::ledger::{Gap, GapCause};
use crate::recovery::LostRows;
use crate::seal::Sealer;
use crate::store::Inner;
use crate::stream::Stream;

/// Sizes of the files of a folder by name; none where the size is fixed, and slots are always there.
pub(crate) struct FileSizes(Option<HashMap<String, u64>>);

impl FileSizes {
    /// Lists the folder.
    pub(crate) fn of(disk: &dyn Disk) -> io::Result<FileSizes> {
        Ok(FileSizes(if disk.layout().is_some() { None } else { Some(disk.list()?.into_iter().collect()) }))
    }

    /// What is wrong with the file of a sealed segment, by its size alone.
    pub(crate) fn check(&self, entry: &SegmentEntry) -> Option<Damage> {
        let (sizes, state) = (self.0.as_ref()?, &entry.state);
        let file = file_name(entry.id);
        wrong_size(sizes.get(&file).copied(), state.bytes, state.blocks, entry.blobs).map(|(offset, reason)| Damage {
            file,
            offset,
            reason,
        })
    }
}

/// Says at which offset, and how, a sealed segment's file of this size, if it is there, is not what was written.
pub(crate) fn wrong_size(size: Option<u64>, bytes: u64, blocks: u64, blobs: bool) -> Option<(u64, String)> {
    let what = if blobs { "blobs" } else { "blocks" };
    match size {
        None => Some((0, format!("the segment is missing, with {blocks} {what} in {bytes} bytes"))),
        Some(0) => Some((0, format!("the segment is empty: it had {blocks} {what} in {bytes} bytes"))),
        Some(size) if size < bytes => {
            Some((size, format!("the segment was cut: {size} bytes are there of {bytes} with {blocks} {what}")))
        }
        // The footer of blocks is found from the end.
        Some(size) if size > bytes && !blobs => Some((
            bytes,
            format!("the segment has {size} bytes and was sealed with {bytes}: not the file that was written"),
        )),
        Some(_) => None,
    }
}

/// Says which rows are missing with a sealed segment, as far as the checkpoint knows: those of streams that have none
/// in a newer one. Readers are not sent to blocks in it.
pub(crate) fn forget_blocks(writer: &Writer, segment: &Segment) -> Vec<LostRows> {
    let mut lost = Vec::new();
    for (id, stream) in writer.streams.iter().enumerate() {
        let sealed = stream.slot.sealed.load_full();
        if stream.slot.group != segment.group || !(segment.places.0..=segment.places.1).contains(&sealed.newest_segment)
        {
            continue;
        }
        let rows = sealed.newest_first_row..stream.slot.open.load().first_row;
        if rows.start < rows.end {
            lost.push(LostRows { stream: id as u32, rows, time: segment.state.lock().time });
        }
        stream.slot.sealed.store(Arc::new(SealedRows { last: None, ..(*sealed).clone() }));
    }
    lost
}

/// The gap that names the file of a lost segment. Rows of streams that have newer ones are not counted in it: only the
/// neighbours of the segment know them.
pub(crate) fn gap_of(segment: &Segment, now: i64) -> Gap {
    let state = *segment.state.lock();
    let known = |(from, to): (i64, i64)| (from <= to).then_some((from, to));
    Gap {
        id: 0,
        stream: None,
        cause: GapCause::Damaged,
        source: "strongback".into(),
        name: file_name(segment.id),
        session: None,
        sequence: None,
        rows: None,
        time: known(state.time).or(known(state.stored)).unwrap_or((now, now)),
        count: 0,
    }
}

/// Lost segments whose gaps may not be durable yet.
#[derive(Default)]
pub(crate) struct Untold {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The commit that makes their gaps durable, once all are in one.
    commit: Option<u64>,
}

/// The gap of rows that are lost.
pub(crate) fn gap_of_rows(stream: &Stream, LostRows { stream: id, rows, time }: &LostRows) -> Gap {
    Gap {
        id: 0,
        stream: Some(*id),
        cause: GapCause::Damaged,
        source: stream.source.clone(),
        name: stream.key.to_string(),
        session: None,
        sequence: None,
        rows: Some((rows.start, rows.end - 1)),
        time: *time,
        count: rows.end - rows.start,
    }
}

impl Sealer {
    /// Tells of sealed segments whose files readers found missing.
    pub(crate) fn tell_vanished(&mut self, store: &Inner) {
        if !store.shared.residents.take_vanished() {
            return;
        }
        let now = store.shared.paces.now();
        for segment in store.shared.segments.load_full().iter().filter(|segment| segment.is_lost()) {
            let known = |noted: &Arc<Segment>| Arc::ptr_eq(noted, segment);
            if segment.state.lock().told_lost || self.untold.segments.iter().any(known) {
                continue;
            }
            // Compaction has nothing to look for in it.
            segment.state.lock().left = true;
            let mut writer = store.writer.lock();
            for rows in forget_blocks(&writer, segment) {
                let stream = writer.streams[rows.stream as usize].slot.stream.load_full();
                writer.gaps.push(gap_of_rows(&stream, &rows));
            }
            writer.gaps.push(gap_of(segment, now));
            drop(writer);
            self.untold.segments.push(segment.clone());
            self.untold.commit = None;
        }
    }

    /// Lets the next checkpoint note the lost segments of which durable gaps tell; says whether there are any.
    pub(crate) fn note_told(&mut self, store: &Inner) -> bool {
        if self.untold.segments.is_empty() {
            return false;
        }
        let commit = match self.untold.commit {
            Some(commit) => commit,
            None => {
                let writer = store.writer.lock();
                if writer.gaps.has(GapCause::Damaged) {
                    return false;
                }
                let commit = writer.pending_commit - u64::from(writer.pending.is_empty());
                *self.untold.commit.insert(commit)
            }
        };
        if store.committed.load(Ordering::Acquire) < commit {
            return false;
        }
        for segment in std::mem::take(&mut self.untold).segments {
            segment.state.lock().told_lost = true;
            // One that went meanwhile is in no checkpoint any more.
            if !segment.expired.load(Ordering::Acquire) {
                self.changed_segments.insert(segment.id, segment);
            }
        }
        true
    }
}
