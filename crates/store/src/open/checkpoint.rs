//! Restoring the newest checkpoint: streams, their positions, and segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::append::sequence::saved::SavedSequence;
use crate::append::{Writer, new_tracker};
use crate::bytes::{Cursor, RecordError, contradiction};
use crate::catalog;
use crate::disk::{Disk, names};
use crate::log::checkpoint::{self, Checkpoint, Position};
use crate::log::superblock::Superblock;
use crate::model::refusal::{OpenError, repair_hint};
use crate::segment::directory::{Segment, SegmentEntry};

/// Segments of a checkpoint.
pub(crate) type States = BTreeMap<u64, SegmentEntry>;

/// Restores the newest checkpoint: streams, their positions, and segments. Returns it with the segments and the numbers
/// that are none any more.
pub(crate) fn read_checkpoint(
    disk: &dyn Disk,
    superblock: &Superblock,
    writer: &mut Writer,
) -> Result<(Checkpoint, States, Vec<u64>), OpenError> {
    let mut states = States::new();
    let mut expired = Vec::new();
    let which = (superblock.checkpoint_file, superblock.checkpoint_bytes, superblock.checkpoint_chain);
    let take = |kind: u8, t: &mut Cursor<'_>| apply_entry(writer, &mut states, &mut expired, kind, t);
    let name = || names::CHECKPOINTS[superblock.checkpoint_file.clamp(1, 2) as usize - 1];
    match Checkpoint::read(disk, which, take).map_err(missing(disk, name()))? {
        Ok(checkpoint) => {
            // A number that compaction was writing to is no segment until an entry says so.
            expired.retain(|id| !states.contains_key(id));
            Ok((checkpoint, states, expired))
        }
        Err(reason) => {
            let reason = format!("{reason}; {}", repair_hint(&disk.path()));
            Err(OpenError::Damaged { path: disk.path(), reason })
        }
    }
}

/// Makes the error for a missing file without which a store does not open, with a hint at what to do.
pub(crate) fn missing(disk: &dyn Disk, name: &str) -> impl FnOnce(std::io::Error) -> OpenError {
    let (path, hint) = (format!("{}/{name}", disk.path()), repair_hint(&disk.path()));
    move |source| match source.kind() {
        std::io::ErrorKind::NotFound => OpenError::Damaged { path, reason: format!("missing; {hint}") },
        _ => OpenError::Io { path, source },
    }
}

/// Applies an entry of a checkpoint.
///
/// # Errors
/// If a field is cut or invalid, or the entry does not fit those before it.
pub(crate) fn apply_entry(
    writer: &mut Writer,
    states: &mut States,
    expired: &mut Vec<u64>,
    kind: u8,
    t: &mut Cursor<'_>,
) -> Result<(), RecordError> {
    match kind {
        checkpoint::STREAM => {
            let definition = catalog::decode_stream(t)?;
            let (id, serial) = (definition.id, definition.body.serial);
            writer.apply_stream(definition)?;
            writer.streams[id.0].saved_serial = Some(serial);
        }
        checkpoint::POSITION => {
            let position = Position::decode(t)?;
            writer.streams.set_first_open(position.stream, position.first_row);
            let stream = writer.streams.known(position.stream)?;
            stream.newest_time = stream.newest_time.max(position.sealed.time.1);
            // Streams without a segment share one value.
            if **stream.slot.sealed.load() != position.sealed {
                stream.slot.sealed.store(Arc::new(position.sealed));
            }
            stream.tracker = position.sequence.map(|(session, highest)| {
                let mut tracker = new_tracker(&stream.slot);
                tracker.resume(session, highest);
                tracker.sealed = Some((session, highest));
                tracker
            });
        }
        checkpoint::SEQUENCE => {
            let saved = SavedSequence::decode(t)?;
            let stream = writer.streams.known(saved.stream)?;
            saved.restore(stream.tracker.get_or_insert_with(|| new_tracker(&stream.slot)));
        }
        checkpoint::SEGMENT => {
            let entry = Segment::decode(t)?;
            if !writer.groups.has(entry.group) {
                let (id, group) = (entry.id, entry.group.0);
                return Err(contradiction(format!("segment {id} is of group {group}, which is not known")));
            }
            states.insert(entry.id, entry);
        }
        checkpoint::GROUP => writer.groups.apply(t)?,
        checkpoint::EXPIRED => {
            let id = checkpoint::read_expired(t)?;
            states.remove(&id);
            expired.push(id);
        }
        _ => return Err(checkpoint::unknown_kind(kind)),
    }
    Ok(())
}
