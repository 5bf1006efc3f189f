//! An open segment in memory: collects blocks into write groups and the contents of the footer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::footer::{self, IndexEntry};
use super::{Beside, GROUP_HEADER_BYTES, GroupHeader, SegmentHeader};
use crate::block::mixed::MixedBlock;
use crate::block::{self, BlockHeader};
use crate::bytes::{FormatError, malformed};
use crate::catalog::definition;
use crate::model::limits::{GROUP_BYTES_MAX, PAGE_BYTES};
use crate::model::stream::{Stream, StreamId};

/// Write group ready for the disk.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteGroup {
    /// Offset in the segment: a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes of the group, padded to 4 KiB.
    pub bytes: Vec<u8>,
    /// Number of blocks in the group.
    pub blocks: usize,
}

/// Bytes to write when sealing, in this order: footer, sync, trailer, sync. A file that may shrink can be cut behind
/// the trailer if the trailer follows the footer directly.
#[derive(Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Offset of the footer: a multiple of 4 KiB.
    pub footer_offset: u64,
    /// The footer, padded to 4 KiB, and the pyramids behind it.
    pub footer: Vec<u8>,
    /// The trailer page, which belongs in the last 4 KiB of the file or region.
    pub trailer: Vec<u8>,
}

/// Builder of an open segment. Blocks are added by [`Builder::push`] and groups taken by [`Builder::take_group`], in
/// the order in which they must be written.
#[derive(Debug)]
pub struct Builder {
    header: SegmentHeader,
    /// Offset of the current group.
    group_offset: u64,
    group_index: u32,
    /// Whether groups before the current one may be missing, so that its number is unknown.
    passed_over: bool,
    group: Vec<u8>,
    group_blocks: usize,
    entries: Vec<IndexEntry>,
    streams: BTreeMap<StreamId, (Arc<Stream>, usize)>,
    definition_bytes: usize,
    /// Bytes kept free for other sections of the footer.
    reserved_bytes: usize,
}

impl Builder {
    /// Begins a segment; its header page is [`SegmentHeader::page`].
    pub fn new(header: SegmentHeader) -> Self {
        Builder {
            header,
            group_offset: PAGE_BYTES as u64,
            group_index: 0,
            passed_over: false,
            group: Vec::new(),
            group_blocks: 0,
            entries: Vec::new(),
            streams: BTreeMap::new(),
            definition_bytes: 0,
            reserved_bytes: 0,
        }
    }

    /// Keeps bytes free for the additions of [`Builder::seal_with`] to the footer.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved_bytes = bytes;
    }

    /// Returns the bytes kept free.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Returns the segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns the entries of everything pushed so far, in the order of offsets; a mixed block has one for each of
    /// its parts.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Returns whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes of blocks waiting for [`Builder::take_group`].
    pub fn pending_bytes(&self) -> usize {
        self.group.len()
    }

    /// Returns the bytes from the beginning of the segment to the end of what was pushed.
    pub fn used_bytes(&self) -> u64 {
        self.group_offset + if self.group.is_empty() { 0 } else { (GROUP_HEADER_BYTES + self.group.len()) as u64 }
    }

    /// Returns whether a block of this size fits into the current group; if not, take the group first.
    pub fn fits_group(&self, block_bytes: usize) -> bool {
        self.group.is_empty() || GROUP_HEADER_BYTES + self.group.len() + block_bytes <= GROUP_BYTES_MAX
    }

    /// Returns whether a block of this size and these streams leaves room for the footer. `parts` is 1 for an
    /// ordinary block.
    pub fn fits<'s>(&self, block_bytes: usize, parts: usize, streams: impl IntoIterator<Item = &'s Stream>) -> bool {
        let mut definitions = self.definition_bytes;
        for stream in streams {
            let known = self.streams.get(&stream.id);
            if known.is_none_or(|(known, _)| known.layout.version < stream.layout.version) {
                definitions = definitions + definition_len(stream) - known.map_or(0, |(_, len)| *len);
            }
        }
        let group_end = if self.fits_group(block_bytes) {
            self.group_offset + (GROUP_HEADER_BYTES + self.group.len() + block_bytes) as u64
        } else {
            let begun = GROUP_HEADER_BYTES + self.group.len();
            self.group_offset + (begun.next_multiple_of(PAGE_BYTES) + GROUP_HEADER_BYTES + block_bytes) as u64
        };
        let footer = footer::most_bytes(self.entries.len() + parts, definitions) + self.reserved_bytes;
        let footer = footer.next_multiple_of(PAGE_BYTES);
        group_end.next_multiple_of(PAGE_BYTES as u64) + (footer + PAGE_BYTES) as u64 <= self.header.size_bytes
    }

    /// Returns whether there is room for `bytes` more in and behind the footer.
    pub(crate) fn has_room_beside(&self, bytes: usize) -> bool {
        let footer = footer::most_bytes(self.entries.len(), self.definition_bytes) + self.reserved_bytes + bytes;
        let end = self.used_bytes().next_multiple_of(PAGE_BYTES as u64);
        end + (footer.next_multiple_of(PAGE_BYTES) + 2 * PAGE_BYTES) as u64 <= self.header.size_bytes
    }

    /// Adds a block made by [`block::Encoder::encode`] or [`crate::block::mixed::encode`], and the definitions of its
    /// streams. Returns its offset in the segment.
    ///
    /// # Errors
    /// When the block does not fit the group or the segment, is not a block, or a definition is missing.
    pub fn push<'s>(
        &mut self,
        block: &[u8],
        streams: impl IntoIterator<Item = &'s Arc<Stream>> + Clone,
    ) -> Result<u64, FormatError> {
        let header = block::read_header(block)?;
        if header.length_bytes != block.len() {
            return Err(malformed("length of a block"));
        }
        if !self.fits_group(block.len()) {
            return Err(malformed("a block beyond its write group"));
        }
        let entries = index_entries(block, header, self.group_offset + (GROUP_HEADER_BYTES + self.group.len()) as u64)?;
        if !self.fits(block.len(), entries.len(), streams.clone().into_iter().map(|s| &**s)) {
            return Err(malformed("a block beyond its segment"));
        }
        self.define(&entries, streams)?;
        let offset = entries[0].offset;
        self.entries.extend(entries);
        self.group.extend_from_slice(block);
        self.group_blocks += 1;
        Ok(offset)
    }

    fn define<'s>(
        &mut self,
        entries: &[IndexEntry],
        streams: impl IntoIterator<Item = &'s Arc<Stream>>,
    ) -> Result<(), FormatError> {
        for stream in streams {
            let length = definition_len(stream);
            let known = self.streams.get(&stream.id);
            if known.is_none_or(|(known, _)| known.layout.version < stream.layout.version) {
                self.definition_bytes = self.definition_bytes + length - known.map_or(0, |(_, len)| *len);
                self.streams.insert(stream.id, (Arc::clone(stream), length));
            }
        }
        if entries.iter().all(|entry| self.streams.contains_key(&entry.header.stream)) {
            Ok(())
        } else {
            Err(malformed("a block without the definition of its stream"))
        }
    }

    /// Takes the current group, or returns `None` if it is empty. The next group begins behind it.
    pub fn take_group(&mut self) -> Option<WriteGroup> {
        if self.group.is_empty() {
            return None;
        }
        let header = GroupHeader::of(&self.header, self.group_index, self.group_blocks, &self.group);
        let mut bytes = Vec::with_capacity(header.padded_bytes());
        bytes.extend_from_slice(&header.bytes());
        bytes.append(&mut self.group);
        bytes.resize(header.padded_bytes(), 0);
        let group = WriteGroup { offset: self.group_offset, bytes, blocks: self.group_blocks };
        self.group_offset += group.bytes.len() as u64;
        self.group_index += 1;
        self.group_blocks = 0;
        Some(group)
    }

    /// Adds, in recovery, a group that is on disk; `bytes` begin at `offset`. Returns the bytes it takes with
    /// padding, or `None` where the segment's groups end.
    ///
    /// # Errors
    /// When a group of this segment and generation is damaged, or a stream has no definition.
    pub fn resume_group(
        &mut self,
        bytes: &[u8],
        mut definition: impl FnMut(StreamId) -> Option<Arc<Stream>>,
    ) -> Result<Option<usize>, FormatError> {
        let header = match GroupHeader::read(bytes) {
            Ok(header) => header,
            Err(_) => return Ok(None),
        };
        if !self.expects(&header) {
            return Ok(None);
        }
        let body = header.body(bytes)?;
        let mut entries = Vec::new();
        for found in block::headers(body) {
            let (range, of_block) = found.map_err(|(_, error)| error)?;
            let offset = self.group_offset + (GROUP_HEADER_BYTES + range.start) as u64;
            entries.extend(index_entries(&body[range], of_block, offset)?);
        }
        // An opening that continues behind the intact groups of the previous one may leave more of that one's behind
        // its own: epochs only rise.
        let newest = self.entries.last().map_or(0, |entry| entry.header.epoch);
        if entries.iter().any(|entry| entry.header.epoch < newest) {
            return Err(malformed("a write group of an earlier opening"));
        }
        let streams: Vec<Arc<Stream>> = entries.iter().filter_map(|entry| definition(entry.header.stream)).collect();
        self.define(&entries, &streams)?;
        self.entries.extend(entries);
        self.resumed(&header);
        Ok(Some(header.padded_bytes()))
    }

    fn resumed(&mut self, header: &GroupHeader) {
        self.group_offset += header.padded_bytes() as u64;
        self.group_index = header.index + 1;
        self.passed_over = false;
    }

    /// Returns whether a group found in recovery is the next one of this segment.
    pub(crate) fn expects(&self, header: &GroupHeader) -> bool {
        (header.segment, header.generation) == (self.header.id, self.header.generation)
            && (header.index == self.group_index || self.passed_over && header.index > self.group_index)
    }

    /// Adds, in recovery, the intact blocks of a damaged group whose header is intact.
    pub(crate) fn resume_damaged(
        &mut self,
        bytes: &[u8],
        header: &GroupHeader,
        mut definition: impl FnMut(StreamId) -> Option<Arc<Stream>>,
    ) {
        let body = bytes.get(GROUP_HEADER_BYTES..header.length_bytes.min(bytes.len())).unwrap_or_default();
        for (range, of_block) in block::headers(body).map_while(Result::ok) {
            let offset = self.group_offset + (GROUP_HEADER_BYTES + range.start) as u64;
            let whole = block::checked_body(&body[range.clone()]).is_ok();
            let Ok(entries) = index_entries(&body[range], of_block, offset) else { continue };
            let streams: Vec<Arc<Stream>> = entries.iter().filter_map(|e| definition(e.header.stream)).collect();
            if whole && self.define(&entries, &streams).is_ok() {
                self.entries.extend(entries);
            }
        }
        self.resumed(header);
    }

    /// Continues, in recovery, at an offset before which no group could be recognized.
    pub(crate) fn pass_over(&mut self, offset: u64) {
        self.group_offset = offset;
        self.passed_over = true;
    }

    /// Returns the bytes to write when sealing; every group must have been taken.
    ///
    /// # Errors
    /// When blocks are still waiting for [`Builder::take_group`].
    pub fn seal(&self) -> Result<Sealed, FormatError> {
        self.seal_with(&Beside::default())
    }

    /// Returns the bytes to write when sealing, like [`Builder::seal`], with the additional sections of `beside`.
    pub(crate) fn seal_with(&self, beside: &Beside) -> Result<Sealed, FormatError> {
        if !self.group.is_empty() {
            return Err(malformed("sealing with a group under way"));
        }
        let streams = self.streams.values().map(|(stream, _)| &**stream);
        let footer = footer::encode(&self.header, &self.entries, streams, beside);
        let trailer = footer::trailer_page(&self.header, self.group_offset, footer.len());
        let mut padded = footer;
        padded.resize(padded.len().next_multiple_of(PAGE_BYTES), 0);
        padded.extend_from_slice(&beside.pyramids.bytes);
        padded.resize(padded.len().next_multiple_of(PAGE_BYTES), 0);
        Ok(Sealed { footer_offset: self.group_offset, footer: padded, trailer })
    }
}

fn definition_len(stream: &Stream) -> usize {
    let mut bytes = Vec::new();
    definition::encode(stream, &mut bytes);
    bytes.len()
}

pub(crate) fn index_entries(block: &[u8], header: BlockHeader, offset: u64) -> Result<Vec<IndexEntry>, FormatError> {
    let length_bytes = header.length_bytes;
    if !header.mixed {
        return Ok(vec![IndexEntry { offset, length_bytes, part: None, header }]);
    }
    let mixed = MixedBlock::read(block)?;
    let entry = |(part, found): (usize, &crate::block::mixed::PartEntry)| IndexEntry {
        offset,
        length_bytes,
        part: Some(part as u32),
        header: BlockHeader { length_bytes, ..found.header.clone() },
    };
    Ok(mixed.parts().iter().enumerate().map(entry).collect())
}
