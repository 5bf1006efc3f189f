//! The footer of a sealed segment: the position of each block and the definitions of its streams.
//!
//! Footer header, 32 bytes, little-endian, sections behind it:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `SBFT` |
//! | 4 | 4 | length_bytes | header and sections, padding not counted |
//! | 8 | 8 | segment | id of the segment |
//! | 16 | 8 | generation | of the segment |
//! | 24 | 4 | body_crc | CRC32C of bytes 32 to length_bytes |
//! | 28 | 4 | header_crc | CRC32C of bytes 0 to 28 |
//!
//! Sections are a number (u8; a reader skips an unknown one from 0x80 on), a length (varint) and bytes. 1 is the
//! index, 2 the stream definitions (count, then each: see `definition`), 0x81 the newest blocks before the segment
//! (see `last`), 0x82 of a compacted segment the first and the last number that it replaces, 0x83 the positions of
//! its statistics pyramids (see `pyramid`):
//!
//! ```text
//! 1 index: origins, u128 of each; entries; then for each, zigzag differences to the previous entry unless noted:
//!          flags u8 (as in a block's header: 1 to 16; 32: same block as the entry before)
//!          [offset / 8 less the end of the block before, length / 8: plain]   without flag 32
//!          [part: plain]                                                     with flag 16
//!          origin (plain), epoch, stream, layout_version, rows (plain), first_row less the row after the
//!          last of the entry before, time_min, time_max − time_min (plain), stored_first, stored_last −
//!          stored_first (plain)
//! ```
//!
//! Trailer page: magic `SBTR`, u32 0, footer offset u64, footer length u64, segment u64, generation u64,
//! CRC32C of bytes 0 to 4092 at 4092.

use std::ops::Range;

use super::pyramid::{Directory, Pyramids};
use super::{CRC_AT, LastBlocks, SegmentHeader, check_crc, check_page, seal_page};
use crate::block::{BlockHeader, HEADER_BYTES, SKIPPABLE, put_section};
use crate::bytes::{Cursor, FormatError, check_limit, check_magic, malformed, put_signed, put_varint};
use crate::catalog::definition;
use crate::model::limits::{
    BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, FOOTER_BYTES_MAX, MIXED_PARTS_MAX, PAGE_BYTES, SECTIONS_MAX,
    SEGMENT_BYTES_MAX,
};
use crate::model::stream::{Stream, StreamId};

const MAGIC: u32 = u32::from_le_bytes(*b"SBFT");
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"SBTR");
const FOOTER_HEADER_BYTES: usize = 32;
const SECTION_INDEX: u8 = 1;
const SECTION_STREAMS: u8 = 2;
const SECTION_LAST: u8 = SKIPPABLE | 1;
const SECTION_PLACES: u8 = SKIPPABLE | 2;
const SECTION_PYRAMIDS: u8 = SKIPPABLE | 3;
const FLAG_SAME_BLOCK: u8 = 32;
/// Max bytes of an index entry: flags and eleven varints, most of which cannot take their ten bytes.
const ENTRY_MAX_BYTES: usize = 1 + 3 * 5 + 3 * 5 + 3 + 3 + 10 + 4 * 10;
/// Min bytes of an index entry.
const ENTRY_MIN_BYTES: usize = 11;

/// Position of a block or a part of a mixed block, and its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the block in the segment.
    pub offset: u64,
    /// Bytes of the block; for a part, those of the whole mixed block.
    pub length_bytes: usize,
    /// Index of the part in a mixed block.
    pub part: Option<u32>,
    /// Header of the block, or of the part as if it were a block.
    pub header: BlockHeader,
}

/// Footer of a sealed segment.
#[derive(Clone, Debug, Default)]
pub struct Footer {
    /// Blocks and parts in the order of offsets.
    pub entries: Vec<IndexEntry>,
    /// Definitions of every stream in the segment, at the newest layout version in it.
    pub streams: Vec<Stream>,
    /// Newest earlier blocks of streams that have no block in the segment.
    pub(crate) last: Option<LastBlocks>,
    /// First and last number that a compacted segment replaces.
    pub(crate) places: Option<(u64, u64)>,
    /// Pyramids behind the footer.
    pub(crate) pyramids: Directory,
}

/// Contents of a footer other than blocks and streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Newest earlier blocks of streams that have no block in the segment.
    pub(crate) last: Option<LastBlocks>,
    /// First and last number that a compacted segment replaces.
    pub(crate) places: Option<(u64, u64)>,
    /// Statistics of many blocks together.
    pub(crate) pyramids: Pyramids,
}

impl Footer {
    /// Returns the definition of a stream.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

/// Position of the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Offset of the footer in the segment.
    pub footer_offset: u64,
    /// Bytes of the footer, without padding.
    pub footer_bytes: usize,
    /// Id of the segment.
    pub segment: u64,
    /// Generation of the segment.
    pub generation: u64,
}

/// Returns the max bytes that a footer takes.
pub(super) fn most_bytes(entries: usize, definition_bytes: usize) -> usize {
    FOOTER_HEADER_BYTES + 64 + entries * (ENTRY_MAX_BYTES + size_of::<u128>()) + definition_bytes
}

pub(super) fn encode<'s>(
    header: &SegmentHeader,
    entries: &[IndexEntry],
    streams: impl Iterator<Item = &'s Stream> + Clone,
    beside: &Beside,
) -> Vec<u8> {
    let mut index = Vec::new();
    put_index(entries, &mut index);
    let mut definitions = Vec::new();
    put_varint(&mut definitions, streams.clone().count() as u64);
    streams.for_each(|stream| definition::encode(stream, &mut definitions));

    let mut out = vec![0; FOOTER_HEADER_BYTES];
    put_section(SECTION_INDEX, &index, &mut out);
    put_section(SECTION_STREAMS, &definitions, &mut out);
    if let Some(last) = beside.last.as_ref().and_then(|last| last.section(header.id)) {
        put_section(SECTION_LAST, &last, &mut out);
    }
    if let Some((first, last)) = beside.places {
        let mut places = Vec::new();
        put_varint(&mut places, first);
        put_varint(&mut places, last);
        put_section(SECTION_PLACES, &places, &mut out);
    }
    if !beside.pyramids.directory.streams.is_empty() {
        put_section(SECTION_PYRAMIDS, &beside.pyramids.directory.encode(), &mut out);
    }
    let length = out.len() as u32;
    let body_crc = crc32c::crc32c(&out[FOOTER_HEADER_BYTES..]);
    out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out[8..16].copy_from_slice(&header.id.to_le_bytes());
    out[16..24].copy_from_slice(&header.generation.to_le_bytes());
    out[24..28].copy_from_slice(&body_crc.to_le_bytes());
    let crc = crc32c::crc32c(&out[..28]);
    out[28..32].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Fields of the entry before, which an index entry is written relative to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryBase {
    end: u64,
    block: (u64, usize),
    epoch: u32,
    stream: u32,
    layout_version: u32,
    next_row: u64,
    time: i64,
    stored: i64,
}

impl EntryBase {
    fn advance(&mut self, entry: &IndexEntry) {
        let header = &entry.header;
        *self = EntryBase {
            end: entry.offset + entry.length_bytes as u64,
            block: (entry.offset, entry.length_bytes),
            epoch: header.epoch,
            stream: header.stream.0,
            layout_version: header.layout_version,
            next_row: header.next_row(),
            time: header.time.0,
            stored: header.stored.0,
        };
    }
}

pub(super) fn put_index(entries: &[IndexEntry], out: &mut Vec<u8>) {
    let mut origins: Vec<u128> = Vec::new();
    for entry in entries {
        if !origins.contains(&entry.header.origin) {
            origins.push(entry.header.origin);
        }
    }
    put_varint(out, origins.len() as u64);
    origins.iter().for_each(|origin| out.extend_from_slice(&origin.to_le_bytes()));
    put_varint(out, entries.len() as u64);
    let mut before = EntryBase::default();
    for entry in entries {
        let header = &entry.header;
        let same = entry.part.is_some() && before.block == (entry.offset, entry.length_bytes);
        out.push(header.flags() as u8 | if same { FLAG_SAME_BLOCK } else { 0 });
        if !same {
            put_varint(out, (entry.offset - before.end) / BLOCK_ALIGN_BYTES as u64);
            put_varint(out, (entry.length_bytes / BLOCK_ALIGN_BYTES) as u64);
        }
        if let Some(part) = entry.part {
            put_varint(out, part.into());
        }
        let origin = origins.iter().position(|o| *o == header.origin).unwrap_or_default();
        let step = |now: u32, before: u32| i64::from(now) - i64::from(before);
        put_varint(out, origin as u64);
        put_signed(out, step(header.epoch, before.epoch));
        put_signed(out, step(header.stream.0, before.stream));
        put_signed(out, step(header.layout_version, before.layout_version));
        put_varint(out, header.rows as u64);
        put_signed(out, header.first_row.wrapping_sub(before.next_row) as i64);
        put_signed(out, header.time.0.wrapping_sub(before.time));
        put_varint(out, header.time.1.abs_diff(header.time.0));
        put_signed(out, header.stored.0.wrapping_sub(before.stored));
        put_varint(out, header.stored.1.abs_diff(header.stored.0));
        before.advance(entry);
    }
}

pub(super) fn trailer_page(header: &SegmentHeader, footer_offset: u64, footer_bytes: usize) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE_BYTES);
    page.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
    page.extend_from_slice(&[0; 4]);
    for field in [footer_offset, footer_bytes as u64, header.id, header.generation] {
        page.extend_from_slice(&field.to_le_bytes());
    }
    seal_page(page)
}

/// Reads the last page of a segment. An error of kind magic means that the segment is still open.
///
/// # Errors
/// When it is not a trailer, is damaged, or contradicts itself.
pub fn read_trailer(bytes: &[u8]) -> Result<Trailer, FormatError> {
    let page = Cursor::new(bytes).take(PAGE_BYTES, "trailer")?;
    let mut fields = Cursor::new(page);
    check_magic("trailer", TRAILER_MAGIC, fields.u32("magic")?)?;
    check_page("trailer", &page[..CRC_AT + 4])?;
    fields.u32("reserved")?;
    let footer_offset = fields.u64("footer offset")?;
    let footer_bytes = check_limit("bytes of a footer", fields.u64("footer length")?, FOOTER_BYTES_MAX)?;
    if footer_bytes < FOOTER_HEADER_BYTES || !footer_offset.is_multiple_of(PAGE_BYTES as u64) {
        return Err(malformed("place of a footer"));
    }
    if footer_offset.saturating_add(footer_bytes as u64) > SEGMENT_BYTES_MAX {
        return Err(malformed("place of a footer"));
    }
    Ok(Trailer { footer_offset, footer_bytes, segment: fields.u64("segment")?, generation: fields.u64("generation")? })
}

/// Positions of the sections in a footer; the short ones are read.
#[derive(Debug, Default)]
pub(crate) struct FooterSections {
    pub(crate) index: Range<usize>,
    streams: Range<usize>,
    pub(crate) last: Option<Range<usize>>,
    places: Option<(u64, u64)>,
    pub(crate) pyramids: Directory,
}

/// Reads the footer at the beginning of `bytes`, of the segment that `trailer` belongs to.
///
/// # Errors
/// When it is not a footer, belongs to another segment, is damaged, has an unknown format, or contradicts itself.
pub fn read_footer(bytes: &[u8], trailer: &Trailer) -> Result<Footer, FormatError> {
    let sections = read_sections(bytes, trailer)?;
    let entries = IndexEntries::open(part_of(bytes, &sections.index))?;
    let mut footer = Footer { entries: Vec::with_capacity(entries.left), ..Footer::default() };
    for entry in entries {
        footer.entries.push(entry?.1);
    }
    footer.streams = read_streams(part_of(bytes, &sections.streams))?;
    let last = sections.last.map(|last| LastBlocks::read(part_of(bytes, &last), trailer.segment));
    footer.last = last.transpose()?;
    (footer.places, footer.pyramids) = (sections.places, sections.pyramids);
    Ok(footer)
}

/// Returns a reader of a range of a footer, which counts offsets in the footer.
pub(crate) fn part_of<'a>(footer: &'a [u8], range: &Range<usize>) -> Cursor<'a> {
    Cursor::at(range.start as u64, &footer[range.clone()])
}

/// Checks a footer's bytes and finds its sections.
///
/// # Errors
/// As [`read_footer`], except for errors within the sections that are only found, not read.
pub(crate) fn read_sections(bytes: &[u8], trailer: &Trailer) -> Result<FooterSections, FormatError> {
    let whole = Cursor::new(bytes).take(trailer.footer_bytes, "footer")?;
    let mut fields = Cursor::new(whole);
    check_magic("footer", MAGIC, fields.u32("magic")?)?;
    let length = fields.u32("length")?;
    let (segment, generation) = (fields.u64("segment")?, fields.u64("generation")?);
    let body_crc = fields.u32("crc")?;
    check_crc("footer header", fields.u32("crc")?, &whole[..FOOTER_HEADER_BYTES - 4])?;
    if length as usize != trailer.footer_bytes || (segment, generation) != (trailer.segment, trailer.generation) {
        return Err(malformed("a footer of another segment"));
    }
    let body = &whole[FOOTER_HEADER_BYTES..];
    check_crc("footer", body_crc, body)?;
    let mut cursor = Cursor::at(FOOTER_HEADER_BYTES as u64, body);
    let mut found = FooterSections::default();
    for _ in 0..SECTIONS_MAX {
        if cursor.remaining() == 0 {
            return Ok(found);
        }
        let kind = cursor.u8("section")?;
        let length = cursor.count("bytes of a section", body.len())?;
        let start = trailer.footer_bytes - cursor.remaining();
        let mut section = cursor.part(length, "section")?;
        let range = start..start + length;
        match kind {
            SECTION_INDEX => found.index = range,
            SECTION_STREAMS => found.streams = range,
            SECTION_LAST => found.last = Some(range),
            SECTION_PLACES => {
                let (first, last) = (section.varint("first number")?, section.varint("last number")?);
                if first > last || last > trailer.segment {
                    return Err(malformed("numbers that a segment stands for"));
                }
                found.places = Some((first, last));
            }
            SECTION_PYRAMIDS => found.pyramids = Directory::read(section)?,
            skippable if skippable & SKIPPABLE != 0 => {}
            unknown => return Err(FormatError::Unsupported { what: "section", found: unknown.into() }),
        }
    }
    let (offset, limit) = (Some(cursor.offset()), SECTIONS_MAX as u64);
    Err(FormatError::Limit { what: "sections", offset, found: limit + 1, limit })
}

fn read_streams(mut cursor: Cursor<'_>) -> Result<Vec<Stream>, FormatError> {
    let count = cursor.count("streams of a segment", cursor.remaining())?;
    let streams = (0..count).map(|_| definition::read(&mut cursor)).collect::<Result<_, _>>()?;
    if cursor.remaining() > 0 { Err(malformed("bytes left behind the definitions")) } else { Ok(streams) }
}

/// Iterator over the entries of an index.
pub(crate) struct IndexEntries<'a> {
    cursor: Cursor<'a>,
    section_bytes: usize,
    pub(crate) origins: Vec<u128>,
    pub(crate) before: EntryBase,
    /// Number of entries left.
    pub(crate) left: usize,
    /// Whether bytes behind the last entry are an error.
    is_whole: bool,
}

impl<'a> IndexEntries<'a> {
    /// Opens a whole index section.
    ///
    /// # Errors
    /// When its head is malformed.
    pub(crate) fn open(section: Cursor<'a>) -> Result<Self, FormatError> {
        let section_bytes = section.remaining();
        // A footer without the section lists nothing.
        let mut cursor = if section_bytes == 0 { Cursor::new(&[0, 0]) } else { section };
        let count = cursor.count("origins of a segment", section_bytes / size_of::<u128>())?;
        let origins = (0..count).map(|_| cursor.u128("origin")).collect::<Result<Vec<_>, _>>()?;
        let left = cursor.count("blocks of a segment", section_bytes / ENTRY_MIN_BYTES)?;
        Ok(IndexEntries { cursor, section_bytes, origins, before: EntryBase::default(), left, is_whole: true })
    }

    /// Returns an iterator over `left` entries that begin in the middle of a section.
    pub(crate) fn of_stretch(bytes: &'a [u8], origins: Vec<u128>, before: EntryBase, left: usize) -> Self {
        IndexEntries { cursor: Cursor::new(bytes), section_bytes: bytes.len(), origins, before, left, is_whole: false }
    }

    /// Returns the offset of the next entry in the bytes.
    pub(crate) fn at(&self) -> usize {
        self.section_bytes.saturating_sub(self.cursor.remaining())
    }
}

impl Iterator for IndexEntries<'_> {
    type Item = Result<(usize, IndexEntry), FormatError>;

    /// Returns the next entry and its offset. Ends after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let behind = std::mem::take(&mut self.is_whole) && self.cursor.remaining() > 0;
            return behind.then(|| Err(malformed("bytes left behind the index")));
        }
        let at = self.at();
        match read_entry(&mut self.cursor, &self.origins, &self.before) {
            Ok(entry) => {
                self.before.advance(&entry);
                self.left -= 1;
                Some(Ok((at, entry)))
            }
            Err(error) => {
                (self.left, self.is_whole) = (0, false);
                Some(Err(error))
            }
        }
    }
}

fn read_entry(cursor: &mut Cursor<'_>, origins: &[u128], before: &EntryBase) -> Result<IndexEntry, FormatError> {
    let flags = cursor.u8("flags of an entry")?;
    let (offset, length_bytes) = if flags & FLAG_SAME_BLOCK != 0 {
        before.block
    } else {
        let skip = cursor.varint("offset")?.saturating_mul(BLOCK_ALIGN_BYTES as u64);
        let offset = before.end.saturating_add(skip);
        let length = cursor.varint("length")?.saturating_mul(BLOCK_ALIGN_BYTES as u64);
        (offset, check_limit("bytes of a block", length, BLOCK_BYTES_MAX)?)
    };
    if length_bytes < HEADER_BYTES || offset.saturating_add(length_bytes as u64) > SEGMENT_BYTES_MAX {
        return Err(malformed("place of a block"));
    }
    let mut header = BlockHeader::of_flags(flags.into());
    let part = match header.mixed {
        true => Some(cursor.count("part of a mixed block", MIXED_PARTS_MAX)? as u32),
        false => None,
    };
    let origin = cursor.varint("origin")? as usize;
    header.origin = *origins.get(origin).ok_or(malformed("origin of a block"))?;
    let mut step = |before: u32| {
        let now = i64::from(before).checked_add(cursor.signed("number of an entry")?);
        now.and_then(|n| u32::try_from(n).ok()).ok_or(malformed("number of an entry"))
    };
    header.epoch = step(before.epoch)?;
    header.stream = StreamId(step(before.stream)?);
    header.layout_version = step(before.layout_version)?;
    header.rows = cursor.count("rows of a block", BLOCK_ROWS_MAX)?;
    header.first_row = before.next_row.wrapping_add(cursor.signed("first row")? as u64);
    let mut range = |before: i64| {
        let first = before.wrapping_add(cursor.signed("time")?);
        let last = first.checked_add_unsigned(cursor.varint("time")?).ok_or(malformed("time range of a block"))?;
        Ok::<_, FormatError>((first, last))
    };
    header.time = range(before.time)?;
    header.stored = range(before.stored)?;
    header.length_bytes = length_bytes;
    if header.rows == 0 || header.first_row.checked_add(header.rows as u64).is_none() {
        return Err(malformed("row range of a block"));
    }
    Ok(IndexEntry { offset, length_bytes, part, header })
}

/// Recomputes the checksums of a footer, for tests that attack what lies behind them.
#[doc(hidden)]
pub fn forge_footer_checksums(bytes: &mut [u8]) {
    if bytes.len() < FOOTER_HEADER_BYTES {
        return;
    }
    let crc = crc32c::crc32c(&bytes[FOOTER_HEADER_BYTES..]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
}
