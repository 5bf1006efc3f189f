//! Outline of a long index: where stretches of entries begin, and which streams they are of.
//!
//! A segment that holds 100,000 quiet streams lists a part of a mixed block for each of them at every seal: more than
//! a million entries. Only the outline of such an index stays in memory; the entries of one stream are read from disk
//! again.

use super::check_crc;
use super::footer::{EntryBase, IndexEntries, IndexEntry};
use crate::bytes::{Cursor, FormatError, malformed};

/// Number of entries in a stretch. A lookup of one stream decodes one stretch for each mixed block that has a part of
/// it.
const STRETCH_ENTRIES: usize = 128;

/// Stretch of entries.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// Offset of the stretch in the section.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    crc: u32,
    entries: usize,
    before: EntryBase,
    /// Lowest and highest stream.
    streams: (u32, u32),
}

/// Outline of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    origins: Vec<u128>,
    pub(crate) stretches: Vec<Stretch>,
}

impl Outline {
    /// Builds the outline of an index section.
    ///
    /// # Errors
    /// When the section is malformed.
    pub(crate) fn of(section: Cursor<'_>) -> Result<Self, FormatError> {
        let mut entries = IndexEntries::open(section)?;
        let mut outline = Outline { origins: entries.origins.clone(), stretches: Vec::new() };
        loop {
            let (at, before) = (entries.at(), entries.before);
            let (mut count, mut streams) = (0, (u32::MAX, 0));
            while count < STRETCH_ENTRIES {
                let Some(entry) = entries.next() else { break };
                let stream = entry?.1.header.stream.0;
                streams = (streams.0.min(stream), streams.1.max(stream));
                count += 1;
            }
            if count == 0 {
                return Ok(outline);
            }
            let bytes = section.unread().get(at..entries.at()).ok_or(malformed("an index"))?;
            let crc = crc32c::crc32c(bytes);
            outline.stretches.push(Stretch { at, bytes: bytes.len(), crc, entries: count, before, streams });
        }
    }

    /// Returns the stretches that may hold entries of a stream.
    pub(crate) fn of_stream(&self, stream: u32) -> impl Iterator<Item = &Stretch> {
        self.stretches.iter().filter(move |stretch| (stretch.streams.0..=stretch.streams.1).contains(&stream))
    }

    /// Decodes the entries of a stretch.
    ///
    /// # Errors
    /// When the bytes differ from those the outline was built from.
    pub(crate) fn entries(&self, stretch: &Stretch, bytes: &[u8]) -> Result<Vec<IndexEntry>, FormatError> {
        check_crc("entries of an index", stretch.crc, bytes)?;
        let entries = IndexEntries::of_stretch(bytes, self.origins.clone(), stretch.before, stretch.entries);
        entries.map(|entry| Ok(entry?.1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockHeader;
    use crate::model::stream::StreamId;
    use crate::segment::footer::put_index;

    /// Returns index entries of blocks of one stream each and of mixed blocks with parts of many.
    fn some(random: &mut fastrand::Rng) -> Vec<IndexEntry> {
        let mut entries = Vec::new();
        let (mut offset, mut row) = (4096, 0);
        for _ in 0..random.usize(0..12) {
            let length_bytes = random.usize(32..2_000) * 8;
            let mixed = random.bool();
            for part in 0..if mixed { random.u32(1..400) } else { 1 } {
                let time = random.i64(i64::MIN / 2..i64::MAX / 2);
                let mut header = BlockHeader::of_flags(0);
                header.length_bytes = length_bytes;
                header.origin = u128::from(random.u8(0..3));
                header.epoch = random.u32(..);
                // Parts are in stream order, with some left out.
                header.stream = StreamId(if mixed { part * 3 } else { random.u32(0..1_200) });
                header.layout_version = random.u32(0..3);
                header.rows = random.usize(1..100);
                header.first_row = row;
                header.time = (time, time + random.i64(0..1 << 40));
                header.stored = header.time;
                header.mixed = mixed;
                row = header.next_row();
                entries.push(IndexEntry { offset, length_bytes, part: mixed.then_some(part), header });
            }
            offset += length_bytes as u64;
        }
        entries
    }

    #[test]
    fn a_stream_is_found_as_in_the_whole_index_and_damage_is_told() {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let entries = some(&mut random);
            let mut section = Vec::new();
            put_index(&entries, &mut section);
            let outline = Outline::of(Cursor::new(&section)).expect("an outline");
            assert_eq!(outline.stretches.len(), entries.len().div_ceil(STRETCH_ENTRIES));
            for stream in (0..1_300).step_by(7) {
                let mut found = Vec::new();
                for stretch in outline.of_stream(stream) {
                    let mut bytes = section[stretch.at..stretch.at + stretch.bytes].to_vec();
                    let entries = outline.entries(stretch, &bytes).expect("entries");
                    found.extend(entries.into_iter().filter(|entry| entry.header.stream.0 == stream));
                    let at = random.usize(..bytes.len());
                    bytes[at] ^= 1 << random.u8(0..8);
                    assert!(outline.entries(stretch, &bytes).is_err());
                }
                let want = entries.iter().filter(|entry| entry.header.stream.0 == stream);
                assert_eq!(found, want.cloned().collect::<Vec<_>>());
            }
            section.truncate(random.usize(..section.len()));
            assert!(Outline::of(Cursor::new(&section)).is_err() || section.is_empty());
        }
    }
}
