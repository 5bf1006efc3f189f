//! Reports the contents of a store, a folder or a file or device of a fixed size, without opening it: `strongback
//! store inspect` and `verify`.
//!
//! Nothing is written and no lock is taken, so a running store may be inspected; its concurrent writes may be missed.
//! [`Depth::Footers`] reads superblock, log headers, and the footer of each sealed segment; [`Depth::Everything`]
//! reads and decodes every block and recomputes its statistics. Damage never ends the inspection: it is listed with
//! file and offset.

mod blobs;
mod picture;
mod place;
mod pyramids;
mod report;
mod segments;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use self::place::StorePlace;
use crate::append::sequence::saved::SavedSequence;
use crate::bytes::{Cursor, FormatError, RecordError};
use crate::catalog;
use crate::catalog::group::GroupRecord;
use crate::disk::PAGE_BYTES;
use crate::disk::names;
use crate::log;
use crate::log::checkpoint::{self, Position};
use crate::log::reader::{LogReader, ReadUnit};
use crate::log::superblock::{Superblock, SuperblockState};
use crate::model::blob_ref::BlobRef;
pub use crate::model::damage::Damage;
use crate::model::stream::StreamId;
use crate::open::missing::wrong_size;
use crate::segment::directory::{Segment, SegmentEntry, SegmentState, file_name};

pub use picture::Picture;

/// Extent of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Headers and footers; takes time proportional to the number of segments.
    Footers,
    /// Every byte.
    Everything,
}

/// Contents of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random id created with the store.
    pub origin: u128,
    /// Number of its newest opening.
    pub epoch: u32,
    /// Generation; rises with each change of the superblock.
    pub generation: u64,
    /// Number of valid copies, of two.
    pub valid_copies: usize,
}

/// State of the commit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogUse {
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Bytes of whole commits that recovery would read.
    pub used_bytes: u64,
    /// Number of those commits.
    pub commits: u64,
    /// Number of the newest commit.
    pub newest_commit: u64,
    /// Whether the newest commit ends a clean shutdown.
    pub clean: bool,
}

/// State of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Name of its file in the folder.
    pub file: String,
    /// Number of the segment.
    pub id: u64,
    /// Retention group.
    pub group: String,
    /// Whether it has a footer.
    pub sealed: bool,
    /// Whether it is compacted: it replaces older segments and has larger blocks.
    pub settled: bool,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Bytes of its blocks.
    pub block_bytes: u64,
    /// Number of blocks; a mixed one counts once.
    pub blocks: u64,
    /// Number of blobs and their bytes, for a segment of blobs, which holds no blocks.
    pub blobs: Option<(u64, u64)>,
    /// Number of frames.
    pub rows: u64,
    /// Smallest and largest `time`.
    pub time: Option<(i64, i64)>,
}

/// File that is preallocated for the next segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareFile {
    /// Name in the folder.
    pub file: String,
    /// Bytes of the file, all zeros.
    pub file_bytes: u64,
}

/// Use of a fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedUse {
    /// Total size in bytes.
    pub size_bytes: u64,
    /// Bytes of a slot, which holds one segment.
    pub slot_bytes: u64,
    /// Number of slots.
    pub slots: u64,
    /// Number of slots that hold a segment.
    pub taken: u64,
}

/// State of a stream, as found in segments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamUse {
    /// Name according to the checkpoint and footers, or its number if none has it.
    pub name: String,
    /// Number of channels of the widest block or definition.
    pub channels: usize,
    /// Number of blocks, including parts of mixed ones.
    pub blocks: u64,
    /// Number of frames.
    pub rows: u64,
    /// First row, and the one after the last.
    pub row_range: (u64, u64),
    /// Bytes of its blocks; of a mixed block its share by rows.
    pub block_bytes: u64,
    /// Number of cells with a value; `None` unless every block was read.
    pub points: Option<u64>,
    /// Smallest and largest `time`.
    pub time: Option<(i64, i64)>,
    /// Number of rows missing between those that blocks hold.
    pub missing_rows: u64,
    /// Lossy channels, according to footers: `rpm: deadband(50)`.
    pub reductions: Vec<String>,
    /// Bytes of its blocks by the age of their segments, from the oldest to the newest; empty if it has none.
    by_age: Vec<f32>,
}

/// Result of an inspection.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Path of the folder, file or device.
    pub folder: String,
    /// Use of the fixed size, if it is fixed.
    pub fixed: Option<FixedUse>,
    /// Identity of the store, if a copy of the superblock is valid.
    pub identity: Option<Identity>,
    /// State of the log.
    pub log: LogUse,
    /// Segments, oldest first.
    pub segments: Vec<SegmentUse>,
    /// Spare segment, if there is one.
    pub spare: Option<SpareFile>,
    /// Streams that have blocks.
    pub streams: BTreeMap<StreamId, StreamUse>,
    /// Number of blocks of which every value was decoded.
    pub verified_blocks: u64,
    /// Number of streams whose statistics pyramid in a segment was recomputed from their blocks.
    pub verified_pyramids: u64,
    /// Damage found.
    pub damage: Vec<Damage>,
    /// Names of the streams that the checkpoint defines; segments without a footer have none.
    names: BTreeMap<StreamId, String>,
    /// Place of the current segment among all, by age.
    age_cell: usize,
    /// Intact blobs, and blobs that cells name.
    whole_blobs: BTreeSet<BlobRef>,
    named_blobs: BTreeSet<BlobRef>,
}

impl Inspection {
    /// Returns whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Returns the bytes of blocks over all segments.
    pub fn block_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.block_bytes).sum()
    }

    /// Returns the number of blobs over all segments, and their bytes.
    pub fn blobs(&self) -> (u64, u64) {
        self.segments.iter().filter_map(|s| s.blobs).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Returns the number of cells with a value, if every block was read.
    pub fn points(&self) -> Option<u64> {
        self.streams.values().map(|s| s.points).sum()
    }

    fn damaged(&mut self, file: &str, offset: u64, reason: impl ToString) {
        self.damage.push(Damage { file: file.to_owned(), offset, reason: reason.to_string() });
    }
}

/// Inspects the store in a folder, or in a file or block device of a fixed size.
///
/// # Errors
/// When there is no store or the disk fails; damage is not an error but part of the result.
pub fn inspect(path: &Path, depth: Depth) -> io::Result<Inspection> {
    let mut found = inspect_once(path, depth)?;
    // A running store removes or overwrites what was just named, so apparent damage is checked again.
    for _ in 0..AGAIN_MAX {
        if found.is_sound() || stood_still(path, &found)? {
            break;
        }
        found = inspect_once(path, depth)?;
    }
    Ok(found)
}

/// Returns whether the superblock is unchanged since the inspection.
fn stood_still(path: &Path, found: &Inspection) -> io::Result<bool> {
    let mut now = Inspection::default();
    let place = StorePlace::open(path, &mut now)?;
    read_superblock(&place, &mut now)?;
    Ok(now.identity == found.identity)
}

/// Max number of repetitions while a store is running.
const AGAIN_MAX: usize = 5;

fn inspect_once(path: &Path, depth: Depth) -> io::Result<Inspection> {
    let mut found = Inspection { folder: path.display().to_string(), ..Inspection::default() };
    let place = StorePlace::open(path, &mut found)?;
    let names = place.names()?;
    if !names.iter().any(|name| name == names::SUPERBLOCK) {
        let reason = format!("{}: not a store: it holds no superblock", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    }
    let (mut listed, mut spare, mut gone) = (SegmentsByNumber::new(), None, BTreeSet::new());
    // Whether everything that should exist is known.
    let mut whole = false;
    if let Some(superblock) = read_superblock(&place, &mut found)? {
        spare = Some(file_name(superblock.next_segment));
        read_log(&place, &superblock, &mut found)?;
        let before = found.damage.len();
        listed = read_checkpoint(&place, &superblock, &mut gone, &mut found)?;
        whole = found.damage.len() == before;
    }
    if let StorePlace::Fixed(_, layout) = &place {
        let mut in_order: Vec<_> = listed.iter().collect();
        in_order.sort_by_key(|(_, known)| known.place);
        for (at, (id, known)) in in_order.into_iter().enumerate() {
            found.age_cell = at * picture::AGE_CELLS / listed.len();
            let generation = layout.generation.wrapping_add(*id);
            match known.slot.and_then(|slot| place.slot(slot)) {
                Some(part) => segments::read_slot((*id, generation), &part, depth, known, &mut found)?,
                None => found.damaged(&file_name(*id), 0, "its slot is not in the store"),
            }
        }
        found.fixed = Some(FixedUse {
            size_bytes: layout.size_bytes,
            slot_bytes: layout.segment_bytes,
            slots: layout.slots.into(),
            taken: listed.len() as u64,
        });
    }
    let gone: BTreeSet<String> = gone.into_iter().map(file_name).collect();
    let mut names: Vec<&String> =
        names.iter().filter(|name| segments::is_segment(name) && !gone.contains(*name)).collect();
    let places: BTreeMap<String, u64> = listed.iter().map(|(id, known)| (file_name(*id), known.place)).collect();
    names.sort_by_key(|name| places.get(*name).copied().unwrap_or(u64::MAX));
    if found.fixed.is_none() {
        for (id, known) in listed.iter().filter(|(_, known)| known.bytes > 0) {
            let name = file_name(*id);
            if !names.contains(&&name)
                && let Some((offset, reason)) = wrong_size(None, known.bytes, known.blocks, known.blobs)
            {
                found.damaged(&name, offset, reason);
            }
        }
    }
    for (at, name) in names.iter().copied().enumerate() {
        found.age_cell = at * picture::AGE_CELLS / names.len();
        match place.part(name) {
            Ok(part) if spare.as_ref() == Some(name) && segments::is_begun(&part)? == Some(false) => {
                found.spare = Some(SpareFile { file: name.clone(), file_bytes: part.size });
            }
            Ok(part) => {
                let known = listed.get(&segments::number_of(name));
                if known.is_none() && whole && segments::is_begun(&part)? != Some(false) && part.size > 0 {
                    found.damaged(name, 0, "no checkpoint lists this segment: nothing in it is read");
                }
                segments::read(name, &part, depth, known, &mut found)?;
            }
            // Expired since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if depth == Depth::Everything {
        blobs::check_named(&mut found);
    }
    found.segments.sort_by_key(|segment| (listed.get(&segment.id).map_or(segment.id, |known| known.place), segment.id));
    Ok(found)
}

fn read_superblock(place: &StorePlace, found: &mut Inspection) -> io::Result<Option<Superblock>> {
    let file = place.part(names::SUPERBLOCK)?;
    let (mut bytes, mut newest, mut valid) = (Vec::new(), None::<Superblock>, 0);
    for copy in 0..2u64 {
        let offset = copy * PAGE_BYTES as u64;
        let page = file.read_at(&mut bytes, offset, PAGE_BYTES)?;
        match Superblock::decode(page) {
            SuperblockState::Valid(superblock) => {
                valid += 1;
                if newest.is_none_or(|n| superblock.generation > n.generation) {
                    newest = Some(superblock);
                }
            }
            SuperblockState::Newer(what) => {
                found.damaged(names::SUPERBLOCK, offset, format!("{what}: written by a newer version"))
            }
            // A copy that was never written is all zeros.
            SuperblockState::Damaged(_) if page.iter().all(|byte| *byte == 0) && page.len() == PAGE_BYTES => {}
            SuperblockState::Damaged(why) => {
                found.damaged(names::SUPERBLOCK, offset, format!("neither valid nor empty: {why}"))
            }
        }
    }
    if newest.is_none() {
        found.damaged(names::SUPERBLOCK, 0, "no valid copy");
    }
    found.identity =
        newest.map(|s| Identity { origin: s.origin, epoch: s.epoch, generation: s.generation, valid_copies: valid });
    Ok(newest)
}

/// Follows the chain of commits from the tail.
fn read_log(place: &StorePlace, superblock: &Superblock, found: &mut Inspection) -> io::Result<()> {
    let name = names::LOG;
    found.log.ring_bytes = superblock.log_bytes;
    let file = match place.part(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            found.damaged(name, 0, "missing");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let ring = superblock.log_bytes;
    let size = file.size;
    if ring == 0 || size < ring {
        found.damaged(name, size, format!("shorter than its {ring} bytes"));
        return Ok(());
    }
    let mut bytes = Vec::new();
    let mut reader = LogReader::new(ring, superblock.tail, |to, at| {
        let read = file.read_at(&mut bytes, at, to.len())?;
        to[..read.len()].copy_from_slice(read);
        Ok(read.len())
    });
    while let Some(ReadUnit { header, passed, .. }) = reader.next_unit(true)? {
        if let Some(passed) = passed {
            found.damaged(name, passed.position().offset(ring), passed.damage());
        }
        found.log.commits += 1;
        found.log.newest_commit = header.commit;
        found.log.clean = header.flags & log::CLEAN != 0;
    }
    let link = reader.link();
    found.log.used_bytes = link.position - superblock.tail.position;
    // A commit that a running store wrote in between is not damaged.
    if let Some(reason) = reader.behind_end()?.damage(&link)
        && !reader.goes_on()?
    {
        found.damaged(name, link.position.offset(ring), reason);
    }
    Ok(())
}

/// Checkpoint entry of a segment.
#[derive(Clone, Copy, Debug)]
struct ListedSegment {
    /// Bytes that were durable.
    bytes: u64,
    /// Whether it has a footer or, for blobs, is no longer written to.
    sealed: bool,
    /// Whether a cut may have torn any of its blobs.
    left: bool,
    /// Number of blocks or, for blobs, of blobs.
    blocks: u64,
    blobs: bool,
    /// Place among the others.
    place: u64,
    /// Slot, in a store of fixed size.
    slot: Option<u32>,
}

/// Segments by number.
type SegmentsByNumber = BTreeMap<u64, ListedSegment>;

/// Reads the parts of the checkpoint that the superblock names.
///
/// Segments that were replaced, or that compaction is writing, are not listed: their numbers are added to `gone`.
fn read_checkpoint(
    place: &StorePlace,
    superblock: &Superblock,
    gone: &mut BTreeSet<u64>,
    found: &mut Inspection,
) -> io::Result<SegmentsByNumber> {
    let mut listed = SegmentsByNumber::new();
    let Some(index) = superblock.checkpoint_file.checked_sub(1) else { return Ok(listed) };
    let Some(name) = names::CHECKPOINTS.get(index as usize) else {
        found.damaged(names::SUPERBLOCK, 84, format!("names checkpoint {}", superblock.checkpoint_file));
        return Ok(listed);
    };
    let mut bytes = Vec::new();
    match place.part(name) {
        Ok(part) => part.read_at(&mut bytes, 0, usize::try_from(part.size).unwrap_or(usize::MAX))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            found.damaged(name, 0, "missing");
            return Ok(listed);
        }
        Err(error) => return Err(error),
    };
    let counted = usize::try_from(superblock.checkpoint_bytes).unwrap_or(usize::MAX);
    if bytes.len() < counted {
        found.damaged(name, bytes.len() as u64, format!("shorter than the {counted} bytes that count"));
        return Ok(listed);
    }
    bytes.truncate(counted);
    let (mut at, mut chain) = (0, 0);
    let mut entry = |kind: u8, t: &mut Cursor<'_>| take_entry(kind, t, &mut listed, gone, &mut found.names);
    let damaged = loop {
        if at >= bytes.len() {
            break None;
        }
        match checkpoint::read_part(&bytes, at, chain, &mut entry) {
            Ok((next, length)) => (chain, at) = (next, at + length),
            Err(why) => break Some(format!("this part is damaged or does not follow the one before: {why}")),
        }
    };
    if let Some(reason) = damaged {
        found.damaged(name, at as u64, reason);
        return Ok(listed);
    }
    if chain != superblock.checkpoint_chain {
        found.damaged(name, at as u64, "the last part is not the one that the superblock names");
    }
    Ok(listed)
}

/// Decodes an entry of a checkpoint, and notes what it says of segments, and the names of streams.
fn take_entry(
    kind: u8,
    t: &mut Cursor<'_>,
    listed: &mut SegmentsByNumber,
    gone: &mut BTreeSet<u64>,
    names: &mut BTreeMap<StreamId, String>,
) -> Result<(), RecordError> {
    match kind {
        checkpoint::STREAM => {
            let definition = catalog::decode_stream(t)?;
            names.insert(definition.id, definition.key.to_string());
        }
        checkpoint::POSITION => _ = Position::decode(t)?,
        checkpoint::SEGMENT => {
            let SegmentEntry { id, places, state, slot, blobs, .. } = Segment::decode(t)?;
            let SegmentState { bytes, sealed, left, blocks, .. } = state;
            listed.insert(id, ListedSegment { bytes, sealed, left, blocks, blobs, place: places.1, slot });
            gone.remove(&id);
        }
        checkpoint::EXPIRED => {
            let id = checkpoint::read_expired(t)?;
            listed.remove(&id);
            gone.insert(id);
        }
        checkpoint::GROUP => _ = GroupRecord::decode(t)?,
        checkpoint::SEQUENCE => _ = SavedSequence::decode(t)?,
        _ => return Err(checkpoint::unknown_kind(kind)),
    }
    Ok(())
}

/// Formats a format error for a list of damage.
fn reason(error: &FormatError) -> String {
    error.to_string()
}
