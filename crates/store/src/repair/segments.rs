//! Segments: which of their blocks are intact, and which of those are used.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::blob::ChunkHeader;
use crate::block::{self, Front};
use crate::bytes::FormatError;
use crate::disk::{DiskFile, PAGE_BYTES, read_exact};
use crate::model::limits::{BLOCK_ALIGN_BYTES, SEGMENT_BYTES_MAX};
use crate::model::stream::Stream;
use crate::segment::directory::{SegmentEntry, file_name};
use crate::segment::file::Window;
use crate::segment::{
    self, Footer, GROUP_HEADER_BYTES, GroupHeader, IndexEntry, SegmentHeader, Trailer, index_entries,
};

use super::RepairReport;
use super::metadata::Metadata;
use super::source::Source;

/// Segment as found.
pub(super) struct FoundSegment {
    pub(super) id: u64,
    /// First and last number that it has or replaces.
    pub(super) places: (u64, u64),
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) size: u64,
    /// Contents of its header page, if that is intact.
    pub(super) header: Option<SegmentHeader>,
    /// Entry in the checkpoint.
    pub(super) entry: Option<SegmentEntry>,
    pub(super) content: Content,
    /// Damaged blocks that the footer describes.
    pub(super) damaged: Vec<IndexEntry>,
}

/// Contents of a segment.
pub(super) enum Content {
    /// Intact blocks, in the order of their offsets.
    Rows { blocks: Vec<IndexEntry>, streams: Vec<Stream>, as_it_is: bool },
    /// Blobs up to an offset.
    Blobs { end: u64, blobs: u64, stored: (i64, i64), generation: u64 },
}

impl FoundSegment {
    /// Returns the name of its file in the folder.
    pub(super) fn name(&self) -> String {
        file_name(self.id)
    }
}

/// Finds the segments to use, in the order of their places. With `check`, the checksum of every block is compared;
/// otherwise those of sealed segments are left to their readers.
pub(super) fn find(
    source: &Source,
    metadata: &Metadata,
    check: bool,
    report: &mut RepairReport,
) -> io::Result<Vec<FoundSegment>> {
    let there = source.segments()?;
    for (id, entry) in &metadata.segments {
        if !there.contains(id) && entry.state.bytes > 0 {
            let (blocks, bytes) = (entry.state.blocks, entry.state.bytes);
            report.damaged(
                &file_name(*id),
                0,
                format!("the segment is missing, with {blocks} blocks in {bytes} bytes"),
            );
            report.segments_lost += 1;
        }
    }
    let mut all = Vec::new();
    for id in there {
        let entry = metadata.segments.get(&id);
        // A segment that the newest checkpoint does not list was dropped, or is not finished yet.
        if metadata.gone.contains(&id) || metadata.is_newest && entry.is_none() {
            continue;
        }
        all.extend(look_at(source, id, entry.cloned(), check, report)?);
    }
    // Segments that a compacted one replaces are duplicates.
    let settled: Vec<(u64, Range<u64>)> =
        all.iter().filter(|f| f.places.1 != f.id).map(|f| (f.id, f.places.0..f.places.1 + 1)).collect();
    all.retain(|f| !settled.iter().any(|(id, stands_for)| *id != f.id && stands_for.contains(&f.places.1)));
    all.sort_by_key(|f| (f.places.1, f.id));
    let mut next = BTreeMap::new();
    all.iter_mut().for_each(|found| once(found, &mut next));
    Ok(all)
}

/// Removes blocks whose rows are in earlier ones.
fn once(found: &mut FoundSegment, next: &mut BTreeMap<u32, u64>) {
    let Content::Rows { blocks, as_it_is, .. } = &mut found.content else { return };
    let before = blocks.len();
    // Compaction writes blocks of few rows behind those of many.
    let mut in_order: Vec<usize> = (0..blocks.len()).collect();
    in_order.sort_by_key(|at| (blocks[*at].header.stream, blocks[*at].header.first_row));
    let mut left_out = BTreeSet::new();
    for at in in_order {
        let block = &blocks[at].header;
        let next = next.entry(block.stream.0).or_insert(0);
        if block.first_row < *next {
            // All parts of a mixed block are removed together.
            left_out.insert(blocks[at].offset);
        } else {
            *next = block.next_row();
        }
    }
    blocks.retain(|block| !left_out.contains(&block.offset));
    *as_it_is &= blocks.len() == before;
}

fn look_at(
    source: &Source,
    id: u64,
    entry: Option<SegmentEntry>,
    check: bool,
    report: &mut RepairReport,
) -> io::Result<Option<FoundSegment>> {
    let name = file_name(id);
    let Some(file) = source.file(&name)? else { return Ok(None) };
    let size = file.size()?.min(SEGMENT_BYTES_MAX);
    let mut page = vec![0; PAGE_BYTES];
    let read = file.read_at(&mut page, 0)?;
    let counted = entry.as_ref().map_or(0, |entry| entry.state.bytes);
    let header = match SegmentHeader::read(&page[..read]) {
        Ok(header) if header.id == id => Some(header),
        Ok(other) => {
            report.damaged(&name, 0, format!("the header of segment {}", other.id));
            report.segments_lost += 1;
            return Ok(None);
        }
        Err(_) if page[..read].iter().all(|byte| *byte == 0) && counted == 0 => return Ok(None),
        Err(error) => {
            report.damaged(&name, 0, error);
            None
        }
    };
    let blobs = header.as_ref().map(|header| header.blobs).or(entry.as_ref().map(|entry| entry.blobs));
    let mut found =
        FoundSegment { id, places: (id, id), file, size, header, entry, content: empty(), damaged: Vec::new() };
    if blobs == Some(true) {
        found.content = blobs_of(&found)?;
        return Ok(Some(found));
    }
    let damage_before = report.damage.len();
    match footer(&found, report)? {
        Some((trailer, footer)) => {
            found.places = footer.places.unwrap_or(found.places);
            let mut blocks = footer.entries;
            let all = blocks.len();
            if check {
                found.damaged = keep_whole(&found, &mut blocks, report)?;
            }
            let as_it_is = blocks.len() == all && found.header.is_some() && trailer.segment == id;
            found.content = Content::Rows { blocks, streams: footer.streams, as_it_is };
        }
        None => {
            let blocks = walk(&found, report)?;
            found.content = Content::Rows { blocks, streams: Vec::new(), as_it_is: false };
        }
    }
    let sealed = found.entry.as_ref().is_some_and(|entry| entry.state.sealed);
    let is_empty = matches!(&found.content, Content::Rows { blocks, .. } if blocks.is_empty());
    if is_empty && counted > 0 {
        if report.damage.len() == damage_before {
            report.damaged(&name, 0, format!("none of the {counted} bytes that were written are there"));
        }
        report.segments_lost += 1;
        return Ok(None);
    }
    if sealed && report.damage.len() == damage_before && size < counted {
        report.damaged(&name, size, format!("the segment was cut: {size} bytes are there of {counted}"));
    }
    Ok((!is_empty || !found.damaged.is_empty()).then_some(found))
}

fn empty() -> Content {
    Content::Rows { blocks: Vec::new(), streams: Vec::new(), as_it_is: false }
}

/// Reads the footer. Returns `None` if it is damaged or does not belong to the segment.
fn footer(found: &FoundSegment, report: &mut RepairReport) -> io::Result<Option<(Trailer, Footer)>> {
    let page = PAGE_BYTES as u64;
    let name = found.name();
    let at = match &found.entry {
        // The file is longer than it was: the trailer is at its original offset.
        Some(entry) if entry.state.sealed && entry.slot.is_none() && found.size > entry.state.bytes => {
            entry.state.bytes.saturating_sub(page)
        }
        _ => found.size.saturating_sub(page),
    };
    if found.size < 2 * page {
        return Ok(None);
    }
    let sealed = found.entry.as_ref().is_none_or(|entry| entry.state.sealed);
    let generation = found.header.as_ref().map(|header| header.generation);
    let trailer = match segment::read_trailer(&read_exact(&*found.file, at, PAGE_BYTES)?) {
        Ok(trailer) if trailer.segment == found.id && generation.is_none_or(|own| own == trailer.generation) => trailer,
        // No trailer, or that of the previous use of this place.
        Ok(_) | Err(FormatError::Magic { .. }) => return Ok(None),
        Err(error) => {
            if sealed {
                report.damaged(&name, at, error);
            }
            return Ok(None);
        }
    };
    if trailer.footer_offset.saturating_add(trailer.footer_bytes as u64) > found.size {
        return Ok(None);
    }
    let bytes = read_exact(&*found.file, trailer.footer_offset, trailer.footer_bytes)?;
    match segment::read_footer(&bytes, &trailer) {
        Ok(footer) => Ok(Some((trailer, footer))),
        Err(error) => {
            report.damaged(&name, trailer.footer_offset, error);
            Ok(None)
        }
    }
}

/// Checks that a block is intact: its header and body match its checksums.
fn is_whole(bytes: &[u8]) -> Result<(), FormatError> {
    block::checked_body(bytes)?;
    if let Some(begun) = block::begin(bytes)? {
        Front::read(begun, bytes)?.check_all(bytes)?;
    }
    Ok(())
}

/// Removes damaged blocks, and returns them.
fn keep_whole(
    found: &FoundSegment,
    blocks: &mut Vec<IndexEntry>,
    report: &mut RepairReport,
) -> io::Result<Vec<IndexEntry>> {
    let mut bad = BTreeSet::new();
    for parts in blocks.chunk_by(|a, b| a.offset == b.offset) {
        let offset = parts[0].offset;
        let mut bytes = vec![0; parts[0].length_bytes];
        let read = found.file.read_at(&mut bytes, offset)?;
        let whole = is_whole(&bytes[..read]).and_then(|()| {
            let header = block::read_header(&bytes)?;
            let entries = index_entries(&bytes, header, offset)?;
            let same = entries.iter().map(|e| &e.header).eq(parts.iter().map(|e| &e.header));
            if same { Ok(()) } else { Err(crate::bytes::malformed("a block that is not the one of the footer")) }
        });
        if let Err(error) = whole {
            report.damaged(&found.name(), offset, error);
            bad.insert(offset);
        }
    }
    Ok(blocks.extract_if(.., |block| bad.contains(&block.offset)).collect())
}

/// Returns the intact blocks of a segment without a footer, from every write group of its own, damaged or not.
fn walk(found: &FoundSegment, report: &mut RepairReport) -> io::Result<Vec<IndexEntry>> {
    let name = found.name();
    let counted = found.entry.as_ref().map_or(0, |entry| entry.state.bytes);
    let mut generation = found.header.as_ref().map(|header| header.generation);
    let mut window = Window::new(&*found.file, found.size);
    let (mut at, mut expected, mut epoch) = (PAGE_BYTES as u64, 0, 0);
    let mut blocks: Vec<IndexEntry> = Vec::new();
    // Whether groups are missing that were durable.
    let mut missing = false;
    while at < found.size {
        let group = match GroupHeader::read(window.at(at, PAGE_BYTES)?) {
            Ok(group)
                if group.segment == found.id
                    && generation.is_none_or(|own| own == group.generation)
                    && group.index >= expected =>
            {
                group
            }
            other => {
                if at < counted && !missing {
                    let why = other.map_or_else(|error| error.to_string(), |_| "a write group of another place".into());
                    report.damaged(&name, at, why);
                    missing = true;
                }
                at += PAGE_BYTES as u64;
                continue;
            }
        };
        let bytes = window.at(at, group.padded_bytes())?;
        let is_torn = group.body(bytes).is_err();
        let body = bytes.get(GROUP_HEADER_BYTES..group.length_bytes.min(bytes.len())).unwrap_or_default();
        let (whole, first_bad) = whole_blocks(body, at + GROUP_HEADER_BYTES as u64);
        let begins = whole.first().map_or(epoch, |block| block.header.epoch);
        // Left by an earlier opening whose last groups were cut short, behind those of a later one.
        if begins < epoch || group.index > expected && at >= counted && is_torn {
            at += PAGE_BYTES as u64;
            continue;
        }
        if is_torn && (at < counted || found.entry.is_none()) {
            report.damaged(&name, first_bad.unwrap_or(at), "a block of this write group is damaged");
        }
        epoch = whole.last().map_or(epoch, |block| block.header.epoch);
        generation = Some(group.generation);
        blocks.extend(whole);
        (expected, missing) = (group.index + 1, false);
        at += group.padded_bytes() as u64;
    }
    Ok(blocks)
}

/// Returns the intact blocks of a group's bytes, and the offset of the first damage. Behind a damaged header,
/// searches for the next one.
fn whole_blocks(body: &[u8], base: u64) -> (Vec<IndexEntry>, Option<u64>) {
    let (mut at, mut blocks, mut bad) = (0, Vec::new(), None);
    while at < body.len() {
        let rest = &body[at..];
        let header = block::read_header(rest).ok().filter(|header| header.length_bytes <= rest.len());
        let entries = header.and_then(|header| {
            let bytes = &rest[..header.length_bytes];
            is_whole(bytes).ok()?;
            Some((bytes.len(), index_entries(bytes, header, base + at as u64).ok()?))
        });
        match entries {
            Some((len, entries)) => {
                blocks.extend(entries);
                at += len;
            }
            None => {
                bad.get_or_insert(base + at as u64);
                at += BLOCK_ALIGN_BYTES;
            }
        }
    }
    (blocks, bad)
}

/// Finds the end of the chunks in a segment of blobs, and counts its blobs.
fn blobs_of(found: &FoundSegment) -> io::Result<Content> {
    let mut generation = found.header.as_ref().map(|header| header.generation);
    let (mut at, mut end, mut blobs) = (PAGE_BYTES as u64, PAGE_BYTES as u64, 0);
    let mut stored = (i64::MAX, i64::MIN);
    let mut page = vec![0; PAGE_BYTES];
    while at + PAGE_BYTES as u64 <= found.size {
        let read = found.file.read_at(&mut page, at)?;
        let chunk = ChunkHeader::read(&page[..read]).ok();
        match chunk.filter(|chunk| chunk.is_at(at, (found.id, generation.unwrap_or(chunk.generation)))) {
            Some(chunk) => {
                generation = Some(chunk.generation);
                at += chunk.padded_bytes();
                end = at.min(found.size);
                if let Some(whole) = chunk.whole {
                    blobs += 1;
                    stored = (stored.0.min(whole.stored), stored.1.max(whole.stored));
                }
            }
            None => at += PAGE_BYTES as u64,
        }
    }
    Ok(Content::Blobs { end, blobs, stored, generation: generation.unwrap_or(0) })
}
