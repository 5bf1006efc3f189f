//! Sealed segments whose files are missing or cut.
//!
//! Opening finds them by one listing of the folder: no byte of a sealed segment is read. If a file vanishes later, the
//! first reader gets an error, and upkeep does what opening does. Such segments stay in the list, so that a file that
//! is put back is used again by the next opening; until then no block is looked for in them. The loss is a gap with the
//! cause `damaged`. The checkpoint notes that it was reported once the gap is durable, so that it is reported once.

use std::collections::HashMap;
use std::io;

use crate::disk::Disk;
use crate::model::damage::Damage;
use crate::segment::directory::{SegmentEntry, file_name};

/// Sizes of the files of a folder by name; `None` if the store has a fixed size, where slots are always there.
pub(crate) struct FileSizes(Option<HashMap<String, u64>>);

impl FileSizes {
    /// Lists the files of the folder.
    pub(crate) fn of(disk: &dyn Disk) -> io::Result<FileSizes> {
        Ok(FileSizes(if disk.layout().is_some() { None } else { Some(disk.list()?.into_iter().collect()) }))
    }

    /// Returns what is wrong with the file of a sealed segment, by its size alone, or `None`.
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

/// Returns at which offset, and how, a sealed segment's file of this size differs from what was written. `size` is
/// `None` if the file is missing.
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
