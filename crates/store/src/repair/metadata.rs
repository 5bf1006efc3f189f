//! Superblock and checkpoints: the newest that is intact, or else the most complete.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::RepairReport;
use super::source::Source;
use crate::bytes::{Cursor, FormatError, RecordError};
use crate::disk::fixed::FixedDisk;
use crate::disk::names;
use crate::disk::unreadable::UnreadablePages;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, read_exact};
use crate::log::checkpoint::{self, Position};
use crate::log::superblock::{Superblock, SuperblockState};
use crate::segment::directory::{Segment, SegmentEntry};

/// Max bytes of a checkpoint that are read.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 32;

/// An entry of a checkpoint.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) kind: u8,
    pub(super) bytes: Vec<u8>,
    /// Name of the file, and the offset of the bytes in it.
    file: &'static str,
    offset: u64,
}

impl Entry {
    /// Returns a reader of the bytes, which counts offsets in the file.
    pub(super) fn reader(&self) -> Cursor<'_> {
        Cursor::at(self.offset, &self.bytes)
    }

    /// Adds the reason why the entry is left out to a report.
    pub(super) fn left_out(&self, why: &RecordError, report: &mut RepairReport) {
        let name = checkpoint::name_of(self.kind);
        report.damaged(self.file, self.offset, format!("the {name} entry is left out: {why}"));
    }
}

/// Contents of superblock and checkpoint.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) superblock: Option<Superblock>,
    /// Entries that are copied unchanged, in their order.
    pub(super) entries: Vec<Entry>,
    pub(super) positions: BTreeMap<u32, Position>,
    pub(super) segments: BTreeMap<u64, SegmentEntry>,
    /// Numbers of segments that were removed, or not yet finished.
    pub(super) gone: BTreeSet<u64>,
    /// Whether the newest checkpoint is intact.
    pub(super) is_newest: bool,
}

impl Metadata {
    /// Reads superblock and checkpoint; damage is added to the report.
    pub(super) fn read(source: &Source, report: &mut RepairReport) -> io::Result<Metadata> {
        let copies = match source.file(names::SUPERBLOCK)? {
            Some(file) => superblocks(&*file, report)?,
            None => {
                report.damaged(names::SUPERBLOCK, 0, "missing");
                Vec::new()
            }
        };
        // A damaged copy may have been the newest.
        let sure = copies.len() == 2 || report.damage.is_empty();
        let newest = copies.first().copied();
        let mut best: Option<(bool, Vec<Vec<Entry>>)> = None;
        let mut parts_of = Vec::new();
        for (index, name) in names::CHECKPOINTS.into_iter().enumerate() {
            let Some(file) = source.file(name)? else {
                if newest.is_some_and(|s| s.checkpoint_file as usize == index + 1) {
                    report.damaged(name, 0, "missing");
                }
                continue;
            };
            let (parts, ends, wrong) = parts(name, &*file)?;
            if let Some(named) = newest.filter(|s| s.checkpoint_file as usize == index + 1) {
                match ends.iter().position(|end| *end == (named.checkpoint_bytes, named.checkpoint_chain)) {
                    Some(at) => best = Some((sure, parts[..=at].to_vec())),
                    None => {
                        let end = ends.last().map_or(0, |(bytes, _)| *bytes);
                        let why = wrong.map_or_else(String::new, |why| format!(": {why}"));
                        report.damaged(
                            name,
                            end,
                            format!("this part is damaged or does not follow the one before{why}"),
                        );
                    }
                }
            }
            parts_of.push(parts);
        }
        let (is_newest, parts) = match best {
            Some((true, parts)) => (true, parts),
            other => {
                parts_of.extend(other.map(|(_, parts)| parts));
                (newest.is_some_and(|s| s.checkpoint_file == 0) && sure, pick(parts_of))
            }
        };
        let mut metadata = Metadata { superblock: newest, is_newest, ..Metadata::default() };
        for entry in parts.iter().flatten() {
            metadata.take(entry).unwrap_or_else(|error| entry.left_out(&error.into(), report));
        }
        Ok(metadata)
    }

    /// Takes in an entry.
    ///
    /// # Errors
    /// If a field is cut or invalid. Entries that are copied unchanged are not read.
    fn take(&mut self, entry: &Entry) -> Result<(), FormatError> {
        let mut fields = entry.reader();
        match entry.kind {
            checkpoint::POSITION => {
                let position = Position::decode(&mut fields)?;
                self.positions.insert(position.stream, position);
            }
            checkpoint::SEGMENT => {
                let entry = Segment::decode(&mut fields)?;
                self.gone.remove(&entry.id);
                self.segments.insert(entry.id, entry);
            }
            checkpoint::EXPIRED => {
                let id = checkpoint::read_expired(&mut fields)?;
                self.segments.remove(&id);
                self.gone.insert(id);
            }
            _ => self.entries.push(entry.clone()),
        }
        Ok(())
    }

    /// Returns the contents of the entries that can be read.
    fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Metadata {
        let mut metadata = Metadata::default();
        for entry in entries {
            // The others are reported when the checkpoint is chosen.
            let _ = metadata.take(entry);
        }
        metadata
    }
}

/// Returns the valid copies of the superblock, the newest first.
fn superblocks(file: &dyn DiskFile, report: &mut RepairReport) -> io::Result<Vec<Superblock>> {
    let mut copies = Vec::new();
    for offset in [0, PAGE_BYTES as u64] {
        let mut page = vec![0; PAGE_BYTES];
        let read = file.read_at(&mut page, offset)?;
        match Superblock::decode(&page[..read]) {
            SuperblockState::Valid(superblock) => copies.push(superblock),
            SuperblockState::Newer(found) => {
                let reason = format!("{found}: written by a newer version");
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
            // A copy that was never written is all zeros.
            SuperblockState::Damaged(_) if read == PAGE_BYTES && page.iter().all(|byte| *byte == 0) => {}
            SuperblockState::Damaged(why) => {
                report.damaged(names::SUPERBLOCK, offset, format!("neither valid nor empty: {why}"));
            }
        }
    }
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.generation));
    Ok(copies)
}

/// Valid parts of a checkpoint file from its beginning, after each the bytes so far and the chain, and what is wrong
/// with the next.
type CheckpointParts = (Vec<Vec<Entry>>, Vec<(u64, u64)>, Option<String>);

fn parts(name: &'static str, file: &dyn DiskFile) -> io::Result<CheckpointParts> {
    let size = file.size()?.min(CHECKPOINT_BYTES_MAX);
    let bytes = read_exact(file, 0, size as usize)?;
    let (mut parts, mut ends) = (Vec::new(), Vec::new());
    let (mut at, mut chain) = (0, 0);
    while at < bytes.len() {
        let mut entries = Vec::new();
        let mut take = |kind: u8, t: &mut Cursor<'_>| {
            let offset = t.offset();
            entries.push(Entry { kind, bytes: t.rest().to_vec(), file: name, offset });
            Ok(())
        };
        match checkpoint::read_part(&bytes, at, chain, &mut take) {
            Ok((next, len)) => (chain, at) = (next, at + len),
            Err(why) => return Ok((parts, ends, Some(why))),
        }
        parts.push(entries);
        ends.push((at as u64, chain));
    }
    Ok((parts, ends, None))
}

/// Chooses the checkpoint that has the newest segment and, among those, the most rows.
fn pick(all: Vec<Vec<Vec<Entry>>>) -> Vec<Vec<Entry>> {
    let said = |parts: &Vec<Vec<Entry>>| {
        let metadata = Metadata::of(parts.iter().flatten());
        let newest = metadata.segments.keys().chain(&metadata.gone).max().copied().unwrap_or(0);
        let rows = metadata.positions.values().fold(0u64, |sum, position| sum.saturating_add(position.first_row));
        (newest, rows, metadata.entries.len())
    };
    all.into_iter().max_by_key(said).unwrap_or_default()
}

/// Returns the slots of segments according to the best checkpoint of a store of a fixed size.
pub(super) fn slots(disk: &FixedDisk, unreadable: &UnreadablePages) -> io::Result<Vec<(u64, u32)>> {
    let open = |name: &str| disk.open(name, Access::Log).map(|file| unreadable.around(name, file));
    let mut all = Vec::new();
    let superblock = open(names::SUPERBLOCK)?;
    let copies = superblocks(&*superblock, &mut RepairReport::default())?;
    let mut named = None;
    for (index, name) in names::CHECKPOINTS.into_iter().enumerate() {
        let (parts, ends, _) = parts(name, &*open(name)?)?;
        let newest = copies.first().filter(|s| s.checkpoint_file as usize == index + 1);
        let end = newest.and_then(|s| ends.iter().position(|e| *e == (s.checkpoint_bytes, s.checkpoint_chain)));
        match end {
            Some(end) => named = Some(parts[..=end].to_vec()),
            None => all.push(parts),
        }
    }
    let parts = named.unwrap_or_else(|| pick(all));
    let metadata = Metadata::of(parts.iter().flatten());
    Ok(metadata.segments.into_iter().filter_map(|(id, entry)| Some((id, entry.slot?))).collect())
}
