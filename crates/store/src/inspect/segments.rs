//! Segments: header, groups, blocks, footer.

use std::collections::BTreeSet;
use std::io;

use super::place::StoreFile;
use super::{Depth, Inspection, ListedSegment, SegmentUse, blobs, picture, pyramids, reason};
use crate::block::mixed::MixedBlock;
use crate::block::{self, Block, BlockHeader, Front};
use crate::bytes::FormatError;
use crate::codec::stats::{ColumnStatistics, Times};
use crate::model::batch::Column;
use crate::model::limits::PAGE_BYTES;
use crate::model::reduction::Reduction;
use crate::model::stream::{Interpolation, Layout, StreamId};
use crate::model::value::{CellState, ChannelType};
use crate::open::missing::wrong_size;
use crate::segment::directory::file_name;
use crate::segment::{self, Footer, GROUP_HEADER_BYTES, GroupHeader, SegmentHeader, Trailer};

/// Returns whether a file of a store is a segment.
pub(super) fn is_segment(name: &str) -> bool {
    name.starts_with("segment-") && name.ends_with(".sbs")
}

/// Returns the number in the name of a segment's file, or 0, which no segment has, if there is none.
pub(super) fn number_of(name: &str) -> u64 {
    let number = name.strip_prefix("segment-").and_then(|name| name.strip_suffix(".sbs"));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns whether anything was written to a segment, or `None` if it is shorter than a page.
pub(super) fn is_begun(file: &StoreFile) -> io::Result<Option<bool>> {
    let mut bytes = Vec::new();
    let page = file.read_at(&mut bytes, 0, PAGE_BYTES)?;
    Ok((page.len() == PAGE_BYTES).then(|| page.iter().any(|byte| *byte != 0)))
}

/// Segment being inspected.
struct Walk<'a> {
    name: &'a str,
    file: &'a StoreFile,
    size: u64,
    header: SegmentHeader,
    usage: SegmentUse,
    bytes: Vec<u8>,
    /// Bytes that were durable at the checkpoint: invalid data in them is damage, not a write cut short.
    durable: u64,
}

/// Inspects one segment, which the checkpoint may list.
pub(super) fn read(
    name: &str,
    file: &StoreFile,
    depth: Depth,
    known: Option<&ListedSegment>,
    found: &mut Inspection,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let sealed = known.filter(|known| known.sealed);
    if let Some((offset, reason)) =
        sealed.and_then(|known| wrong_size(Some(file.size), known.bytes, known.blocks, known.blobs))
    {
        found.damaged(name, offset, reason);
    }
    let page = file.read_at(&mut bytes, 0, PAGE_BYTES)?;
    match SegmentHeader::read(page) {
        Ok(header) if header.id != number_of(name) => {
            found.damaged(name, 0, format!("the header of segment {}", header.id));
            Ok(())
        }
        Ok(header) => {
            if header.blobs {
                return blobs::walk(name, file, header, known, depth, found);
            }
            let before = found.damage.len();
            walk(name, file, header, (known.map_or(0, |known| known.bytes), true), depth, found)?;
            if sealed.is_some()
                && found.damage.len() == before
                && found.segments.last().is_some_and(|s| !s.sealed)
                && found.damage.iter().all(|damage| damage.file != name)
            {
                let at = file.size.saturating_sub(PAGE_BYTES as u64);
                found.damaged(name, at, "the checkpoint lists it as sealed, and it has no trailer");
            }
            Ok(())
        }
        // Created and not begun: the header is written with the first group.
        Err(_) if page.iter().all(|byte| *byte == 0) => {
            if let Some(known) = known.filter(|known| known.bytes > 0)
                && found.damage.last().is_none_or(|damage| damage.file != name)
            {
                let reason = format!("the header is zeros, and {} bytes were written", known.bytes);
                found.damaged(name, 0, reason);
            }
            Ok(())
        }
        Err(error) => {
            found.damaged(name, 0, reason(&error));
            Ok(())
        }
    }
}

/// Inspects the segment that the checkpoint has in a slot.
pub(super) fn read_slot(
    (id, generation): (u64, u64),
    file: &StoreFile,
    depth: Depth,
    listed: &ListedSegment,
    found: &mut Inspection,
) -> io::Result<()> {
    let (name, mut bytes) = (file_name(id), Vec::new());
    match SegmentHeader::read(file.read_at(&mut bytes, 0, PAGE_BYTES)?) {
        Ok(header) if (header.id, header.generation) == (id, generation) && header.blobs => {
            return blobs::walk(&name, file, header, Some(listed), depth, found);
        }
        Ok(header) if (header.id, header.generation) == (id, generation) => {
            // Data at the end of an open segment's slot is from the slot's previous use, or from an interrupted
            // `finish`.
            return walk(&name, file, header, (listed.bytes, listed.sealed), depth, found);
        }
        // Created and not begun: the slot still has its previous contents.
        _ if listed.bytes == 0 => {}
        Ok(header) => found.damaged(&name, 0, format!("the header of segment {} in its slot", header.id)),
        Err(error) => found.damaged(&name, 0, reason(&error)),
    }
    Ok(())
}

fn walk(
    name: &str,
    file: &StoreFile,
    header: SegmentHeader,
    (durable, may_be_sealed): (u64, bool),
    depth: Depth,
    found: &mut Inspection,
) -> io::Result<()> {
    let (size, bytes) = (file.size, Vec::new());
    let usage = SegmentUse {
        file: name.to_owned(),
        id: header.id,
        group: header.group.clone(),
        sealed: false,
        settled: false,
        file_bytes: size,
        block_bytes: 0,
        blocks: 0,
        blobs: None,
        rows: 0,
        time: None,
    };
    let mut walk = Walk { name, file, size, header, usage, bytes, durable };
    let sealed = if may_be_sealed { walk.footer(found)? } else { None };
    walk.usage.sealed = sealed.is_some();
    walk.usage.settled = sealed.as_ref().is_some_and(|(_, footer)| footer.places.is_some());
    match sealed {
        Some((_, footer)) if depth == Depth::Footers => {
            for block in footer.entries.chunk_by(|a, b| a.offset == b.offset) {
                walk.count(block[0].length_bytes, block.iter().map(|entry| &entry.header), found);
            }
            name_streams(&footer, found);
        }
        Some(sealed) => {
            let (trailer, footer) = &sealed;
            let places = walk.groups(Some(trailer.footer_offset), depth, found)?;
            let named: BTreeSet<u64> = footer.entries.iter().map(|entry| entry.offset).collect();
            for offset in named.symmetric_difference(&places) {
                found.damaged(name, *offset, "the footer and the groups disagree about a block here");
            }
            name_streams(footer, found);
            pyramids::verify(name, file, &sealed, found)?;
        }
        None => {
            walk.groups(None, depth, found)?;
        }
    }
    found.segments.push(walk.usage);
    Ok(())
}

/// Returns the epoch of the first block of a group, or 0 if it cannot be read.
fn epoch_of(body: &[u8]) -> u32 {
    block::headers(body).next().and_then(Result::ok).map_or(0, |(_, header)| header.epoch)
}

fn name_streams(footer: &Footer, found: &mut Inspection) {
    for stream in &footer.streams {
        if let Some(usage) = found.streams.get_mut(&stream.id) {
            usage.name = stream.key.to_string();
            usage.channels = usage.channels.max(stream.layout.channels.len());
            let reduced = stream.layout.channels.iter().filter(|c| c.reduction != Reduction::None);
            usage.reductions = reduced.map(|c| format!("{}: {}", c.name, c.reduction)).collect();
        }
    }
}

impl Walk<'_> {
    /// Reads the footer. Returns `None` while the segment is open, or if the footer is damaged.
    fn footer(&mut self, found: &mut Inspection) -> io::Result<Option<(Trailer, Footer)>> {
        let at = self.size.saturating_sub(PAGE_BYTES as u64);
        let trailer = match segment::read_trailer(self.file.read_at(&mut self.bytes, at, PAGE_BYTES)?) {
            Ok(trailer) => trailer,
            Err(FormatError::Magic { .. } | FormatError::Truncated { .. }) => return Ok(None),
            Err(error) => {
                found.damaged(self.name, at, reason(&error));
                return Ok(None);
            }
        };
        if (trailer.segment, trailer.generation) != (self.header.id, self.header.generation) {
            // Left over from the previous use of this place.
            return Ok(None);
        }
        let footer = self.file.read_at(&mut self.bytes, trailer.footer_offset, trailer.footer_bytes)?;
        match segment::read_footer(footer, &trailer) {
            Ok(footer) => Ok(Some((trailer, footer))),
            Err(error) => {
                found.damaged(self.name, trailer.footer_offset, reason(&error));
                Ok(None)
            }
        }
    }

    /// Reads the groups up to `end`, or as long as they follow each other. Returns the offsets of blocks.
    fn groups(&mut self, end: Option<u64>, depth: Depth, found: &mut Inspection) -> io::Result<BTreeSet<u64>> {
        let (mut at, mut index, mut places) = (PAGE_BYTES as u64, 0, BTreeSet::new());
        let mut epoch = 0;
        while at < end.unwrap_or(self.size) {
            let head = GroupHeader::read(self.file.read_at(&mut self.bytes, at, GROUP_HEADER_BYTES)?);
            let own = |group: &GroupHeader| {
                (group.segment, group.generation, group.index) == (self.header.id, self.header.generation, index)
            };
            match head {
                Ok(group) if own(&group) => {
                    let mut bytes = std::mem::take(&mut self.bytes);
                    let whole = self.file.read_at(&mut bytes, at, group.length_bytes)?;
                    match group.body(whole) {
                        // Left by an earlier opening whose last groups were cut short, behind those of a later one.
                        Ok(body) if end.is_none() && at >= self.durable && epoch_of(body) < epoch => break,
                        Ok(body) => self.blocks(body, at + GROUP_HEADER_BYTES as u64, depth, &mut places, found),
                        // Cut short by a crash, if no group follows.
                        Err(_)
                            if end.is_none()
                                && at >= self.durable
                                && !self.goes_on(at + group.padded_bytes() as u64, index)? =>
                        {
                            break;
                        }
                        Err(error) => {
                            found.damaged(self.name, at, reason(&error));
                            // Its intact blocks count all the same.
                            let body = whole.get(GROUP_HEADER_BYTES..).unwrap_or_default();
                            self.blocks(body, at + GROUP_HEADER_BYTES as u64, depth, &mut places, found);
                        }
                    }
                    epoch = epoch.max(whole.get(GROUP_HEADER_BYTES..).map_or(0, epoch_of));
                    self.bytes = bytes;
                    at += group.padded_bytes() as u64;
                }
                head => {
                    let Some((next, of_next)) = self.next_group(at + PAGE_BYTES as u64, index, end)? else {
                        if end.is_some() || at < self.durable {
                            found.damaged(self.name, at, "a write group is missing");
                        }
                        break;
                    };
                    let why = head.err().map_or("a group of another segment".into(), |error| reason(&error));
                    found.damaged(self.name, at, why);
                    (at, index) = (next, of_next);
                    continue;
                }
            }
            index += 1;
        }
        Ok(places)
    }

    fn goes_on(&mut self, from: u64, index: u32) -> io::Result<bool> {
        Ok(self.next_group(from, index, None)?.is_some())
    }

    /// Returns offset and number of the segment's next group after `index`.
    fn next_group(&mut self, from: u64, index: u32, end: Option<u64>) -> io::Result<Option<(u64, u32)>> {
        let mut at = from;
        while at < end.unwrap_or(self.size) {
            let mut bytes = Vec::new();
            if let Ok(group) = GroupHeader::read(self.file.read_at(&mut bytes, at, GROUP_HEADER_BYTES)?)
                && (group.segment, group.generation) == (self.header.id, self.header.generation)
                && group.index > index
            {
                return Ok(Some((at, group.index)));
            }
            at += PAGE_BYTES as u64;
        }
        Ok(None)
    }

    /// Inspects the blocks of a group.
    fn blocks(&mut self, body: &[u8], base: u64, depth: Depth, places: &mut BTreeSet<u64>, found: &mut Inspection) {
        for block in block::headers(body) {
            let (range, header) = match block {
                Ok(block) => block,
                Err((at, error)) => {
                    found.damaged(self.name, base + at as u64, reason(&error));
                    return;
                }
            };
            let offset = base + range.start as u64;
            places.insert(offset);
            if let Err(error) = self.block(&body[range], &header, depth, found) {
                found.damaged(self.name, offset, reason(&error));
            }
        }
    }

    fn block(
        &mut self,
        bytes: &[u8],
        header: &BlockHeader,
        depth: Depth,
        found: &mut Inspection,
    ) -> Result<(), FormatError> {
        if header.mixed {
            let mixed = MixedBlock::read(bytes)?;
            self.count(header.length_bytes, mixed.parts().iter().map(|part| &part.header), found);
            for (index, part) in mixed.parts().iter().enumerate().filter(|_| depth == Depth::Everything) {
                let layout = Layout::of_types(part.types());
                let batch = mixed.decode(index, &layout, &layout.indices())?;
                let nulls = |c: &Column| c.states.iter().flatten().filter(|s| **s != CellState::Value).count() as u64;
                let points = batch.columns.iter().map(|c| batch.len() as u64 - nulls(c)).sum();
                batch.columns.iter().for_each(|column| blobs::take_named(column, found));
                add_points(part.header.stream, part.types().len(), points, found);
            }
        } else {
            self.count(header.length_bytes, [header], found);
            if depth == Depth::Everything {
                let (channels, points) = verify(bytes, found)?;
                add_points(header.stream, channels, points, found);
            }
        }
        if depth == Depth::Everything {
            found.verified_blocks += 1;
        }
        Ok(())
    }

    /// Counts a block, given its own header, or one for each part of a mixed one.
    fn count<'h>(
        &mut self,
        length_bytes: usize,
        headers: impl IntoIterator<Item = &'h BlockHeader> + Clone,
        found: &mut Inspection,
    ) {
        let joined = |a: Option<(i64, i64)>, b: (i64, i64)| Some(a.map_or(b, |a| (a.0.min(b.0), a.1.max(b.1))));
        self.usage.blocks += 1;
        self.usage.block_bytes += length_bytes as u64;
        let all: usize = headers.clone().into_iter().map(|header| header.rows).sum();
        for header in headers {
            self.usage.rows += header.rows as u64;
            self.usage.time = joined(self.usage.time, header.time);
            let stream = found.streams.entry(header.stream).or_default();
            if stream.blocks == 0 {
                let named = found.names.get(&header.stream).cloned();
                stream.name = named.unwrap_or_else(|| format!("stream {}", header.stream.0));
                stream.row_range = (header.first_row, header.first_row);
            }
            stream.blocks += 1;
            stream.rows += header.rows as u64;
            let bytes = (length_bytes * header.rows / all) as u64;
            stream.block_bytes += bytes;
            stream.by_age.resize(picture::AGE_CELLS, 0.0);
            stream.by_age[found.age_cell] += bytes as f32;
            stream.time = joined(stream.time, header.time);
            stream.row_range.0 = stream.row_range.0.min(header.first_row);
            stream.row_range.1 = stream.row_range.1.max(header.next_row());
            stream.missing_rows = (stream.row_range.1 - stream.row_range.0).saturating_sub(stream.rows);
        }
    }
}

fn add_points(stream: StreamId, channels: usize, points: u64, found: &mut Inspection) {
    let usage = found.streams.entry(stream).or_default();
    usage.channels = usage.channels.max(channels);
    usage.points = Some(usage.points.unwrap_or(0) + points);
}

/// Decodes every value of a block and compares its statistics. Returns its channels and points.
fn verify(bytes: &[u8], inspection: &mut Inspection) -> Result<(usize, u64), FormatError> {
    let block = Block::read(bytes)?;
    if let Some(begun) = block::begin(bytes)? {
        Front::read(begun, bytes)?.check_all(bytes)?;
    }
    let types: Vec<ChannelType> = block.columns().iter().map(|column| column.channel_type).collect();
    let said = block.statistics()?;
    let (mut points, mut times) = (0, Times::default());
    let stamps = block.decode(&Layout::of_types(&[]), &[])?.times();
    let header = block.header();
    if (stamps.iter().min(), stamps.iter().max()) != (Some(&header.time.0), Some(&header.time.1)) {
        return Err(FormatError::Malformed { what: "the header's times are not those of its rows" });
    }
    times.set(&stamps, stamps.is_sorted(), &[]);
    // Decode one column at a time, so that a wide block is never in memory as a whole.
    for index in 0..types.len() {
        let column = block.column_as_stored(index)?;
        blobs::take_named(&column, inspection);
        let found = ColumnStatistics::of(&column, Interpolation::Hold, &times);
        points += found.values();
        if said.as_ref().is_some_and(|said| !agree(&said[index], &found)) {
            return Err(FormatError::Malformed { what: "statistics that are not those of the values" });
        }
    }
    Ok((types.len(), points))
}

/// Compares counts and samples bit by bit; sums and integrals depend on the order of summation and are ignored.
fn agree(a: &ColumnStatistics, b: &ColumnStatistics) -> bool {
    let counts = |s: &ColumnStatistics| [s.rows, s.absent, s.unchanged, s.unknowns, s.nans, s.infinities];
    let samples = |s: &ColumnStatistics| [s.first, s.last, s.min, s.max].map(|s| s.map(|s| (s.value.bits(), s.time)));
    counts(a) == counts(b) && samples(a) == samples(b)
}
