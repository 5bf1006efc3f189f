//! The part of a segment's footer that is kept in memory.

use std::ops::Range;
use std::sync::Arc;

use super::BlockRef;
use crate::bytes::FormatError;
use crate::segment::file::block_ref;
use crate::segment::pyramid::Extent;
use crate::segment::{self, IndexEntries, LastBlocks, Outline, Trailer, part_of};

/// Max number of entries listed whole; a longer index is kept as an outline.
const LISTED_MAX: usize = 4_096;

#[cfg(not(test))]
fn listed_max() -> usize {
    LISTED_MAX
}

/// Returns a small limit in tests, so that nearly every index is long, except on threads that set `WHOLE`.
#[cfg(test)]
pub(crate) fn listed_max() -> usize {
    if WHOLE.get() { LISTED_MAX } else { 24 }
}

#[cfg(test)]
std::thread_local! {
    pub(crate) static WHOLE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Blocks of a stream in a segment, in row order.
pub(super) struct Blocks {
    pub(super) refs: Vec<BlockRef>,
    /// Whether no block begins before the previous one ends, so that times can be binary-searched like rows.
    ascend: bool,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { refs: Vec::new(), ascend: true }
    }
}

impl Blocks {
    pub(super) fn push(&mut self, block: BlockRef) {
        self.ascend &= self.refs.last().is_none_or(|last| last.time.1 <= block.time.0);
        self.refs.push(block);
    }

    /// Returns its approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Blocks>() + size_of_val(self.refs.as_slice())
    }

    /// Sorts by row: compaction writes blocks of few rows behind those of many.
    pub(super) fn sort(&mut self) {
        if !self.refs.is_sorted_by_key(|block| block.first_row) {
            self.refs.sort_unstable_by_key(|block| block.first_row);
            self.ascend = self.refs.is_sorted_by(|a, b| a.time.1 <= b.time.0);
        }
    }

    /// Returns the blocks that may have rows and times in these ranges.
    pub(super) fn within(&self, time: &Range<i64>, rows: &Range<u64>) -> impl Iterator<Item = &BlockRef> {
        let mut refs = self.refs.as_slice();
        refs = &refs[refs.partition_point(|block| block.end_row() <= rows.start)..];
        refs = &refs[..refs.partition_point(|block| block.first_row < rows.end)];
        if self.ascend {
            refs = &refs[refs.partition_point(|block| block.time.1 < time.start)..];
            refs = &refs[..refs.partition_point(|block| block.time.0 < time.end)];
        }
        refs.iter().filter(|block| block.time.0 < time.end && block.time.1 >= time.start)
    }
}

/// Blocks by stream, in row order.
pub(super) type BlocksByStream = hashbrown::HashMap<u32, Blocks, foldhash::fast::RandomState>;

/// List of the blocks, whole or in outline.
pub(super) enum Listing {
    /// Every block.
    Whole(BlocksByStream),
    /// Outline of a long index, and the offset of the index section in the file.
    Outline(Arc<Outline>, u64),
}

impl Default for Listing {
    fn default() -> Self {
        Listing::Whole(BlocksByStream::default())
    }
}

/// Index of a segment: the contents of its footer, or of the footer to be written.
#[derive(Default)]
pub(crate) struct SegmentIndex {
    pub(super) listing: Listing,
    /// Newest earlier blocks of streams that have no block in the segment.
    pub(super) last: Option<LastBlocks>,
    /// Offset, length and checksum of that section in the file, while it is not read: a long index comes with a long
    /// section.
    pub(super) last_at: Option<(u64, usize, u32)>,
    /// Offset of each stream's statistics pyramids, and the extent of each channel's.
    pub(super) pyramids: hashbrown::HashMap<u32, (u64, Vec<Extent>), foldhash::fast::RandomState>,
}

impl SegmentIndex {
    /// Builds the index from the bytes of a footer.
    pub(super) fn of_footer(bytes: &[u8], trailer: &Trailer, mut behind: u64) -> Result<Self, FormatError> {
        let sections = segment::read_sections(bytes, trailer)?;
        let mut index = SegmentIndex::default();
        for (stream, extents) in sections.pyramids.streams {
            let bytes: u64 = extents.iter().map(|(_, all)| u64::from(*all)).sum();
            index.pyramids.insert(stream, (behind, extents));
            behind += bytes;
        }
        let place = |range: &Range<usize>| trailer.footer_offset + range.start as u64;
        let entries = IndexEntries::open(part_of(bytes, &sections.index))?;
        if entries.left > listed_max() {
            let outline = Outline::of(part_of(bytes, &sections.index))?;
            index.listing = Listing::Outline(Arc::new(outline), place(&sections.index));
            index.last_at = sections.last.map(|last| (place(&last), last.len(), crc32c::crc32c(&bytes[last])));
            return Ok(index);
        }
        let mut listed = BlocksByStream::default();
        for entry in entries {
            let (_, entry) = entry?;
            listed.entry(entry.header.stream.0).or_default().push(block_ref(&entry));
        }
        listed.values_mut().for_each(Blocks::sort);
        index.listing = Listing::Whole(listed);
        let last = sections.last.map(|last| LastBlocks::read(part_of(bytes, &last), trailer.segment));
        index.last = last.transpose()?;
        Ok(index)
    }

    /// Adds a block that was just written.
    pub(super) fn add(&mut self, stream: u32, block: BlockRef) {
        // An open segment is always listed whole.
        if let Listing::Whole(listed) = &mut self.listing {
            listed.entry(stream).or_default().push(block);
        }
    }

    /// Returns the memory it takes, in entries.
    pub(super) fn entries(&self) -> usize {
        let listed = match &self.listing {
            Listing::Whole(listed) => listed.values().map(|of| of.refs.len()).sum(),
            // A stretch is twice as large as a block.
            Listing::Outline(outline, _) => outline.stretches.len() * 2,
        };
        listed + self.last.as_ref().map_or(0, |last| last.places.len())
    }
}
