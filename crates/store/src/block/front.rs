//! The front of a parted block: the positions of all its other parts and the checksum of each column, so that a few
//! columns of a wide block can be read without the rest.

use std::borrow::Cow;
use std::ops::Range;

use super::read::{Block, ColumnEntry, read_directory};
use super::{
    BlockHeader, HEADER_BYTES, SECTION_DIRECTORY, SECTION_FRONT, SECTION_PLACES, SECTION_STATISTICS, SECTION_TILES,
    SECTION_VALUES, SKIPPABLE, SYSTEM_COLUMNS, put_section, read_header,
};
use crate::bytes::{Cursor, FormatError, check_limit, malformed, put_varint};
use crate::model::limits::SECTIONS_MAX;
use crate::model::mutant::{self, Mutant};

/// Bytes of the section that holds the front's length and checksum.
const FRONT_SECTION_BYTES: usize = 10;
/// Bytes of the positions of statistics and tiles, before the checksums of the channels.
const PLACES_BYTES: usize = 20;

/// Body of a parted block, as written.
pub(super) struct BlockBody<'a> {
    pub(super) directory: &'a [u8],
    pub(super) values: &'a [u8],
    /// End of the system columns, and then of each channel, in the values.
    pub(super) ends: &'a [usize],
    pub(super) statistics: Option<&'a [u8]>,
    pub(super) tiles: &'a [u8],
}

impl BlockBody<'_> {
    /// Appends the body of a block that begins at `start`.
    pub(super) fn put(&self, start: usize, out: &mut Vec<u8>) {
        put_section(SECTION_FRONT, &[0; FRONT_SECTION_BYTES - 2], out);
        let covered = out.len();
        put_section(SECTION_DIRECTORY, self.directory, out);
        let checksums = self.ends.windows(2).map(|of| crc32c::crc32c(&self.values[of[0]..of[1]]));
        let places_bytes = PLACES_BYTES + 4 * (self.ends.len() - 1);
        out.push(SECTION_PLACES);
        put_varint(out, places_bytes as u64);
        let places = out.len();
        out.resize(places + PLACES_BYTES, 0);
        checksums.for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
        put_section(SECTION_VALUES, self.values, out);
        let front = out.len() - self.values.len() + self.ends[0];
        let mut said = [0u32; PLACES_BYTES / 4];
        if let Some(statistics) = self.statistics {
            put_section(SECTION_STATISTICS, statistics, out);
            let (at, len) = ((out.len() - statistics.len() - start) as u32, statistics.len() as u32);
            said[..3].copy_from_slice(&[at, len, crc32c::crc32c(statistics)]);
        }
        put_section(SECTION_TILES, self.tiles, out);
        said[3..].copy_from_slice(&[(out.len() - self.tiles.len() - start) as u32, self.tiles.len() as u32]);
        for (place, word) in out[places..].chunks_exact_mut(4).zip(said) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[covered..front]);
        out[covered - 8..covered - 4].copy_from_slice(&((front - start) as u32).to_le_bytes());
        out[covered - 4..covered].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Header of a parted block, and the number of bytes of its front.
pub(crate) type Begun = (BlockHeader, usize);

/// Reads the header of a parted block and the length of its front. `bytes` must hold at least the header and the
/// section behind it. Returns `None` if the block is not parted; it must then be read whole.
///
/// # Errors
/// When it is not a block, or its header is damaged.
pub(crate) fn begin(bytes: &[u8]) -> Result<Option<Begun>, FormatError> {
    let header = read_header(bytes)?;
    Ok(front_bytes(&header, bytes)?.map(|front| (header, front)))
}

/// Returns the number of bytes of the block's front, or `None` if the block is not parted.
pub(super) fn front_bytes(header: &BlockHeader, bytes: &[u8]) -> Result<Option<usize>, FormatError> {
    let mut cursor = Cursor::at(HEADER_BYTES as u64, bytes.get(HEADER_BYTES..).unwrap_or_default());
    if header.mixed || cursor.u8("section")? != SECTION_FRONT {
        return Ok(None);
    }
    if cursor.u8("length of a section")? as usize != FRONT_SECTION_BYTES - 2 {
        return Err(malformed("front of a block"));
    }
    let front = check_limit("bytes of the front", cursor.u32("front")?.into(), header.length_bytes)?;
    Ok(Some(front.max(HEADER_BYTES + FRONT_SECTION_BYTES)))
}

/// Front of a parted block, whose checksum was checked.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    header: BlockHeader,
    columns: Vec<ColumnEntry>,
    values: Range<usize>,
    /// Position of the statistics in the block, and their checksum.
    statistics: Option<(Range<usize>, u32)>,
    tiles: Range<usize>,
    /// Checksum of each channel.
    checksums: Vec<u32>,
    /// Offset in the block at which the positions are stored.
    said_at: usize,
}

impl Front {
    /// Reads the front of the block at the beginning of `bytes`, as found by [`begin`].
    ///
    /// # Errors
    /// When it is damaged, has an unknown format, or contradicts itself.
    pub(crate) fn read((header, front): Begun, bytes: &[u8]) -> Result<Front, FormatError> {
        let bytes = Cursor::new(bytes).take(front, "front of a block")?;
        let (said, covered) = bytes.split_at(HEADER_BYTES + FRONT_SECTION_BYTES);
        let expected = Cursor::new(&said[said.len() - 4..]).u32("checksum of the front")?;
        check("front of a block", expected, covered)?;
        let mut cursor = Cursor::at(said.len() as u64, covered);
        let (mut directory, mut places) = (None, None);
        for _ in 0..SECTIONS_MAX {
            let kind = cursor.u8("section")?;
            let length = cursor.count("bytes of a section", header.length_bytes)?;
            if kind == SECTION_VALUES {
                let (Some(directory), Some(places)) = (directory, places) else { break };
                let at = front - cursor.remaining();
                return Front::of((header, front), directory, places, at..at + length);
            }
            let section = cursor.part(length, "section")?;
            match kind {
                SECTION_DIRECTORY => directory = Some(section),
                SECTION_PLACES => places = Some(section),
                skippable if skippable & SKIPPABLE != 0 => {}
                unknown => return Err(FormatError::Unsupported { what: "section", found: unknown.into() }),
            }
        }
        Err(malformed("a front without directory, places or values"))
    }

    fn of(
        (header, front): Begun,
        directory: Cursor<'_>,
        mut places: Cursor<'_>,
        values: Range<usize>,
    ) -> Result<Front, FormatError> {
        let columns = read_directory(directory, header.rows, values.len())?;
        let system: usize = columns[..SYSTEM_COLUMNS].iter().map(ColumnEntry::bytes).sum();
        if values.start + system != front {
            return Err(malformed("a front that does not end with the times"));
        }
        let said_at = places.offset() as usize;
        let mut word = || places.u32("places of a block");
        let (statistics, crc) = ((word()?, word()?), word()?);
        let tiles = (word()?, word()?);
        let place = |(at, len): (u32, u32)| match at as usize..at as usize + len as usize {
            range if range.start >= values.end && range.end <= header.length_bytes => Ok(range),
            _ => Err(malformed("a place beyond its block")),
        };
        let statistics = if statistics == (0, 0) { None } else { Some((place(statistics)?, crc)) };
        let tiles = place(tiles)?;
        let channels = columns.len() - SYSTEM_COLUMNS;
        let checksums = (0..channels).map(|_| places.u32("checksum of a channel")).collect::<Result<_, _>>()?;
        if places.remaining() > 0 {
            return Err(malformed("bytes left behind the checksums of the channels"));
        }
        Ok(Front { header, columns, values, statistics, tiles, checksums, said_at })
    }

    /// Returns the block's header.
    pub(crate) fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Returns the position of a channel in the block, or `None` if the block does not have it yet.
    pub(crate) fn channel(&self, channel: usize) -> Option<Range<usize>> {
        let entry = self.columns[SYSTEM_COLUMNS..].get(channel)?;
        let at = self.values.start + entry.start;
        Some(at..at + entry.bytes())
    }

    /// Returns the position of the statistics in the block.
    pub(crate) fn statistics(&self) -> Option<Range<usize>> {
        self.statistics.as_ref().map(|(range, _)| range.clone())
    }

    /// Checks the checksum of a channel's bytes.
    ///
    /// # Errors
    /// When it does not match.
    pub(crate) fn check_channel(&self, channel: usize, bytes: &[u8]) -> Result<(), FormatError> {
        let expected = self.checksums.get(channel).copied().unwrap_or_default();
        check("column of a block", expected, bytes)
    }

    /// Checks the checksum of the statistics' bytes.
    ///
    /// # Errors
    /// When it does not match.
    pub(crate) fn check_statistics(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let expected = self.statistics.as_ref().map_or(0, |(_, crc)| *crc);
        check("statistics of a block", expected, bytes)
    }

    /// Checks the checksums of all channels and of the statistics in the bytes of the whole block.
    ///
    /// # Errors
    /// When one does not match.
    pub(crate) fn check_all(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let part = |range: Range<usize>| bytes.get(range).ok_or(malformed("a block shorter than its places"));
        for channel in 0..self.checksums.len() {
            self.check_channel(channel, part(self.channel(channel).unwrap_or_default())?)?;
        }
        self.statistics().map_or(Ok(()), |range| self.check_statistics(part(range)?))
    }

    /// Returns the block. `bytes` are as long as the block and hold, in place, at least the parts that will be read.
    ///
    /// # Errors
    /// When there are fewer bytes.
    pub(crate) fn block<'a>(&'a self, bytes: &'a [u8]) -> Result<Block<'a>, FormatError> {
        Block::of_front(self.header.clone(), Cow::Borrowed(&self.columns), self.places(), bytes)
    }

    /// Converts the front into its block, as [`Front::block`] does.
    ///
    /// # Errors
    /// When there are fewer bytes.
    pub(super) fn into_block(self, bytes: &[u8]) -> Result<Block<'_>, FormatError> {
        let places = self.places();
        Block::of_front(self.header, Cow::Owned(self.columns), places, bytes)
    }

    /// Returns the positions of values, statistics and tiles.
    fn places(&self) -> Places {
        (self.values.clone(), self.statistics(), self.tiles.clone())
    }
}

/// Positions of values, statistics and tiles in a block.
pub(super) type Places = (Range<usize>, Option<Range<usize>>, Range<usize>);

fn check(what: &'static str, expected: u32, bytes: &[u8]) -> Result<(), FormatError> {
    let found = crc32c::crc32c(bytes);
    if expected == found || mutant::is_active(Mutant::NoBlockCheck) {
        return Ok(());
    }
    Err(FormatError::Checksum { what, expected, found })
}

/// Recomputes the checksums of a front and of the parts it lists, for tests that attack what lies behind them.
pub(super) fn forge_checksums(bytes: &mut [u8]) {
    let covered = HEADER_BYTES + FRONT_SECTION_BYTES;
    if bytes.get(HEADER_BYTES) != Some(&SECTION_FRONT) || bytes.len() < covered {
        return;
    }
    let crc = crc32c::crc32c(&bytes[..92]);
    bytes[92..96].copy_from_slice(&crc.to_le_bytes());
    let Ok(Some((header, front))) = begin(bytes) else { return };
    let put = |bytes: &mut [u8]| {
        let Some(crc) = bytes.get(covered..front).map(crc32c::crc32c) else { return };
        bytes[covered - 4..covered].copy_from_slice(&crc.to_le_bytes());
    };
    put(bytes);
    let Ok(read) = Front::read((header, front), bytes) else { return };
    let of_statistics = read.statistics().map(|range| (read.said_at + 8, range));
    let of_channels =
        (0..read.checksums.len()).map(|n| (read.said_at + PLACES_BYTES + 4 * n, read.channel(n).unwrap_or_default()));
    for (at, range) in of_statistics.into_iter().chain(of_channels) {
        let Some(crc) = bytes.get(range).map(crc32c::crc32c) else { continue };
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    put(bytes);
}
