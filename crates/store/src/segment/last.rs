//! A section of the footer: the newest earlier blocks of streams that have no block in the segment.
//!
//! With it, a state at an instant is found from the footers of few segments for every stream, however long it was
//! quiet. Each segment covers a range of streams, the next segment of its group the range after it, and a segment
//! spends at most a sixteenth of its bytes on it. Number 0x81, varints unless noted:
//!
//! ```text
//! from, to             streams from ≤ number < to are covered; to 0: all from `from` on
//! count, then for each, ascending:
//!   stream             less the previous one (the first: less `from`)
//!   code u8            0: not known, look into earlier segments; 1: a block; 2: a part of a mixed block;
//!                      with 1 and 2: 4 if its times ascend
//!   with 1 and 2:      number of this segment less that of the block's, offset / 8, length / 8,
//!                      [part], first_row, rows, time_min zigzag less the last one's (at first 0), time_max − time_min
//! ```
//! A covered stream that is neither listed nor in the segment has no earlier block.

use crate::bytes::{Cursor, FormatError, check_limit, malformed, put_signed, put_varint};
use crate::model::limits::{BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, MIXED_PARTS_MAX, SEGMENT_BYTES_MAX};
use crate::segment::directory::BlockRef;

/// Min bytes of an entry.
const ENTRY_MIN_BYTES: usize = 2;
const CODE_UNKNOWN: u8 = 0;
const CODE_BLOCK: u8 = 1;
const CODE_PART: u8 = 2;
const CODE_SORTED: u8 = 4;

/// Newest earlier blocks of a range of streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LastBlocks {
    /// First stream covered and the one after the last; `u32::MAX` means all.
    pub(crate) streams: (u32, u32),
    /// Segment number and block of each stream, by stream; `None` if not known.
    pub(crate) places: Vec<(u32, Option<(u64, BlockRef)>)>,
}

/// Newest earlier block of a stream without a block in the segment, as far as the segment knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NewestBefore {
    /// Not known; earlier segments must be searched.
    Unknown,
    /// No block in any earlier segment.
    Nothing,
    /// The newest block, and the number of its segment.
    Block(u64, BlockRef),
}

impl LastBlocks {
    /// Returns the newest earlier block of a stream.
    pub(crate) fn of(&self, stream: u32) -> NewestBefore {
        if stream < self.streams.0 || stream >= self.streams.1 {
            return NewestBefore::Unknown;
        }
        match self.places.binary_search_by_key(&stream, |place| place.0) {
            Err(_) => NewestBefore::Nothing,
            Ok(at) => {
                self.places[at].1.map_or(NewestBefore::Unknown, |(segment, block)| NewestBefore::Block(segment, block))
            }
        }
    }

    /// Encodes the footer section, or returns `None` if no stream is covered, which would read as all streams.
    pub(super) fn section(&self, segment: u64) -> Option<Vec<u8>> {
        (self.streams.0 < self.streams.1).then(|| self.encode(segment))
    }

    /// Encodes the section for the footer of a segment.
    pub(crate) fn encode(&self, segment: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.streams.0.into());
        put_varint(&mut out, if self.streams.1 == u32::MAX { 0 } else { self.streams.1.into() });
        put_varint(&mut out, self.places.len() as u64);
        let (mut last, mut time) = (self.streams.0, 0i64);
        for (stream, place) in &self.places {
            put_varint(&mut out, (stream - last).into());
            last = *stream;
            let Some((home, block)) = place else {
                out.push(CODE_UNKNOWN);
                continue;
            };
            let code = if block.part.is_some() { CODE_PART } else { CODE_BLOCK };
            out.push(code | if block.time_sorted { CODE_SORTED } else { 0 });
            put_varint(&mut out, segment - home);
            put_varint(&mut out, u64::from(block.offset) / BLOCK_ALIGN_BYTES as u64);
            put_varint(&mut out, u64::from(block.len) / BLOCK_ALIGN_BYTES as u64);
            if let Some(part) = block.part {
                put_varint(&mut out, part.into());
            }
            put_varint(&mut out, block.first_row);
            put_varint(&mut out, block.rows.into());
            put_signed(&mut out, block.time.0.wrapping_sub(time));
            put_varint(&mut out, block.time.1.abs_diff(block.time.0));
            time = block.time.0;
        }
        out
    }

    pub(crate) fn read(mut cursor: Cursor<'_>, segment: u64) -> Result<Self, FormatError> {
        let section_bytes = cursor.remaining();
        let number = |value: u64| u32::try_from(value).map_err(|_| malformed("number of a stream"));
        let from = cursor.varint32("first stream")?;
        let to = match cursor.varint32("stream after the last")? {
            0 => u32::MAX,
            to => to,
        };
        let count = cursor.count("last blocks", section_bytes / ENTRY_MIN_BYTES)?;
        let mut places = Vec::with_capacity(count);
        let (mut stream, mut time) = (u64::from(from), 0i64);
        for index in 0..count {
            let step = cursor.varint("stream of a last block")?;
            stream = stream.saturating_add(step);
            if index > 0 && step == 0 || stream >= to.into() {
                return Err(malformed("stream of a last block"));
            }
            let code = cursor.u8("code of a last block")?;
            if code == CODE_UNKNOWN {
                places.push((number(stream)?, None));
                continue;
            }
            if !matches!(code & !CODE_SORTED, CODE_BLOCK | CODE_PART) {
                return Err(FormatError::Unsupported { what: "last block", found: code.into() });
            }
            let back = cursor.varint("segment of a last block")?;
            let home = segment.checked_sub(back).filter(|_| back > 0).ok_or(malformed("segment of a last block"))?;
            let mut bytes = |what, most: usize| {
                let bytes = cursor.varint(what)?.saturating_mul(BLOCK_ALIGN_BYTES as u64);
                check_limit(what, bytes, most)
            };
            let offset = bytes("offset of a last block", SEGMENT_BYTES_MAX as usize)? as u32;
            let len = bytes("bytes of a last block", BLOCK_BYTES_MAX)? as u32;
            let part = match code & !CODE_SORTED {
                CODE_PART => Some(cursor.count("part of a mixed block", MIXED_PARTS_MAX)? as u32),
                _ => None,
            };
            let first_row = cursor.varint("first row")?;
            let rows = cursor.count("rows of a block", BLOCK_ROWS_MAX)? as u32;
            first_row.checked_add(rows.into()).ok_or(malformed("row range of a block"))?;
            time = time.wrapping_add(cursor.signed("time")?);
            let time_max = time.checked_add_unsigned(cursor.varint("time")?);
            let time_max = time_max.ok_or(malformed("time range of a block"))?;
            let time_sorted = code & CODE_SORTED != 0;
            let block = BlockRef { first_row, rows, offset, len, part, time_sorted, time: (time, time_max) };
            places.push((number(stream)?, Some((home, block))));
        }
        if cursor.remaining() > 0 {
            Err(malformed("bytes left behind the last blocks"))
        } else {
            Ok(LastBlocks { streams: (from, to), places })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(seed: u64) -> LastBlocks {
        let mut random = fastrand::Rng::with_seed(seed);
        let from = random.u32(0..1_000);
        let mut stream = from;
        let mut places = Vec::new();
        for _ in 0..random.usize(0..40) {
            let time = random.i64(i64::MIN / 2..i64::MAX / 2);
            let block = BlockRef {
                first_row: random.u64(0..1 << 40),
                rows: random.u32(1..2_000),
                offset: random.u32(512..1 << 20) * 8,
                len: random.u32(12..1 << 16) * 8,
                part: random.bool().then(|| random.u32(0..1_000)),
                time_sorted: random.bool(),
                time: (time, time + random.i64(0..1 << 40)),
            };
            places.push((stream, (random.u8(0..5) > 0).then(|| (random.u64(0..900), block))));
            stream += random.u32(1..100);
        }
        LastBlocks { streams: (from, if random.bool() { u32::MAX } else { stream + 1 }), places }
    }

    #[test]
    fn what_was_written_is_read_and_damage_never_panics() {
        for seed in 0..200 {
            let table = some(seed);
            let bytes = table.encode(900);
            assert_eq!(LastBlocks::read(Cursor::new(&bytes), 900).expect("reads"), table);
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..50 {
                let mut bad = bytes.clone();
                let at = random.usize(..bad.len());
                bad[at] ^= 1 << random.u8(0..8);
                bad.truncate(random.usize(..=bad.len()));
                let _ = LastBlocks::read(Cursor::new(&bad), 900);
            }
        }
    }

    #[test]
    fn who_covers_no_stream_says_nothing_of_any() {
        assert_eq!(LastBlocks::default().section(9), None);
        let all = LastBlocks { streams: (0, u32::MAX), places: Vec::new() };
        let section = all.section(9).expect("a section");
        let read = LastBlocks::read(Cursor::new(&section), 9);
        assert_eq!(read.expect("reads"), all);
    }

    #[test]
    fn a_stream_is_listed_absent_or_not_covered() {
        let table = LastBlocks { streams: (10, 20), places: vec![(12, None), (15, None)] };
        let found: Vec<NewestBefore> = [9, 10, 12, 19, 20].map(|stream| table.of(stream)).into();
        use NewestBefore::{Nothing, Unknown};
        assert_eq!(found, [Unknown, Nothing, Unknown, Nothing, Unknown]);
    }
}
