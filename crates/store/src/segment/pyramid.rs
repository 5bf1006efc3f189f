//! The statistics pyramid of a compacted segment: statistics of each block of a stream, of 16 blocks together, of 16
//! of those and so on, channel by channel, so that a long span is answered from few bytes.
//!
//! The pyramids of channels lie one after the other behind the footer, from the next page on. Section 0x83 of the
//! footer lists their streams and lengths. Numbers are varints unless noted:
//!
//! ```text
//! section 0x83  streams; for each: number less the previous one, channels; for each: bytes of its table, total bytes
//! table         CRC32C of the rest u32; type u8; blocks; for each group of each level, from level 0: its bytes
//! group         CRC32C of the rest u32; for up to 16 nodes: flags u8 (1: frames are known missing before it),
//!               statistics
//! ```
//! Node i of level n covers up to 16ⁿ blocks from i · 16ⁿ on, in row order. Its statistics are those of a block (see
//! [`crate::codec::stats`]) with the time range of all of them. The last level is the first that has one group. A
//! stream has a pyramid if all its blocks in the segment have statistics, ascend in time, and do not overlap.

use std::sync::Arc;

use crate::block::BlockHeader;
use crate::bytes::{Cursor, FormatError, check_limit, malformed, put_varint};
use crate::codec::stats::{ColumnStatistics, Sample, Sum};
use crate::model::limits::{CHANNELS_MAX, PAGE_BYTES, SEGMENT_BLOCKS_MAX};
use crate::model::stream::{Interpolation, Stream};
use crate::model::value::ChannelType;
use crate::segment::directory::BlockRef;

/// Number of nodes that one node of the next level covers.
pub(crate) const FAN: usize = 16;
/// Min number of blocks for a pyramid: fewer are as fast to read directly.
const BLOCKS_MIN: usize = 4;
const GAP_BEFORE: u8 = 1;

/// Statistics of consecutive blocks.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) statistics: ColumnStatistics,
    /// Whether frames are known missing before the first block.
    pub(crate) gap_before: bool,
}

/// Bytes of the table of a channel's pyramid, and of the whole pyramid.
pub(crate) type Extent = (u32, u32);

/// List of pyramids in a footer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Directory {
    /// Streams, ascending, and the extent of the pyramid of each channel.
    pub(crate) streams: Vec<(u32, Vec<Extent>)>,
}

impl Directory {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.streams.len() as u64);
        let mut last = 0;
        for (stream, channels) in &self.streams {
            put_varint(&mut out, (stream - last).into());
            last = *stream;
            put_varint(&mut out, channels.len() as u64);
            for (table, all) in channels {
                put_varint(&mut out, (*table).into());
                put_varint(&mut out, (*all).into());
            }
        }
        out
    }

    pub(super) fn read(mut cursor: Cursor<'_>) -> Result<Directory, FormatError> {
        let section_bytes = cursor.remaining();
        let count = cursor.count("pyramids of a segment", section_bytes / 2)?;
        let (mut streams, mut stream, mut all_bytes) = (Vec::with_capacity(count), 0u64, 0u64);
        for index in 0..count {
            let step = cursor.varint("stream of a pyramid")?;
            stream = stream.saturating_add(step);
            let number = u32::try_from(stream).map_err(|_| malformed("stream of a pyramid"))?;
            if index > 0 && step == 0 {
                return Err(malformed("stream of a pyramid"));
            }
            let channels = cursor.count("channels of a pyramid", CHANNELS_MAX.min(section_bytes / 2))?;
            let mut extents = Vec::with_capacity(channels);
            for _ in 0..channels {
                let mut bytes = || {
                    let bytes = cursor.varint("bytes of a pyramid")?;
                    check_limit("bytes of a pyramid", bytes, crate::model::limits::FOOTER_BYTES_MAX)
                };
                let (table, all) = (bytes()?, bytes()?);
                if table > all {
                    return Err(malformed("bytes of a pyramid"));
                }
                all_bytes += all as u64;
                extents.push((table as u32, all as u32));
            }
            streams.push((number, extents));
        }
        check_limit("bytes of a pyramid", all_bytes, crate::model::limits::FOOTER_BYTES_MAX)?;
        if cursor.remaining() > 0 {
            Err(malformed("bytes left behind the pyramids"))
        } else {
            Ok(Directory { streams })
        }
    }
}

/// Level of a channel's pyramid that is being built.
#[derive(Debug, Default)]
struct Level {
    groups: Vec<u8>,
    lengths: Vec<u32>,
    group: Vec<u8>,
    nodes: usize,
    sum: Option<(Node, (i64, i64))>,
}

#[derive(Debug)]
struct OfChannel {
    kind: ChannelType,
    interpolation: Interpolation,
    levels: Vec<Level>,
}

impl OfChannel {
    fn push(&mut self, level: usize, node: Node, time: (i64, i64)) {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let of = &mut self.levels[level];
        of.group.push(if node.gap_before { GAP_BEFORE } else { 0 });
        node.statistics.put_within(time, &mut of.group);
        of.nodes += 1;
        match &mut of.sum {
            Some((sum, range)) => {
                sum.statistics.join(&node.statistics, self.interpolation, node.gap_before);
                range.1 = time.1;
            }
            None => of.sum = Some((node, time)),
        }
        if of.nodes == FAN {
            self.close(level);
        }
    }

    fn close(&mut self, level: usize) {
        let of = &mut self.levels[level];
        of.groups.extend_from_slice(&crc32c::crc32c(&of.group).to_le_bytes());
        of.groups.append(&mut of.group);
        let before: u32 = of.lengths.iter().sum();
        of.lengths.push(of.groups.len() as u32 - before);
        of.nodes = 0;
        if let Some((sum, time)) = of.sum.take() {
            self.push(level + 1, sum, time);
        }
    }

    /// Returns the pyramid's bytes, and how many of them are the table.
    fn finish(mut self, blocks: usize) -> (Vec<u8>, usize) {
        let mut level = 0;
        loop {
            if self.levels[level].nodes > 0 {
                self.close(level);
            }
            if self.levels[level].lengths.len() == 1 {
                break;
            }
            level += 1;
        }
        self.levels.truncate(level + 1);
        let mut table = vec![self.kind.code()];
        put_varint(&mut table, blocks as u64);
        self.levels.iter().flat_map(|l| &l.lengths).for_each(|length| put_varint(&mut table, (*length).into()));
        let mut bytes = crc32c::crc32c(&table).to_le_bytes().to_vec();
        bytes.append(&mut table);
        let table_bytes = bytes.len();
        self.levels.iter().for_each(|level| bytes.extend_from_slice(&level.groups));
        (bytes, table_bytes)
    }
}

/// Builder of the pyramids of a segment that is being written. Its blocks are added stream by stream, in row order.
#[derive(Debug, Default)]
pub(crate) struct PyramidBuilder {
    directory: Directory,
    bytes: Vec<u8>,
    /// End of each stream's pyramids.
    ends: Vec<usize>,
    stream: Option<OfStream>,
}

#[derive(Debug)]
struct OfStream {
    stream: u32,
    channels: Vec<OfChannel>,
    blocks: usize,
    time_max: i64,
    usable: bool,
}

impl PyramidBuilder {
    /// Adds a block and the statistics of its channels, or `None` if it has none.
    pub(crate) fn add(&mut self, stream: &Arc<Stream>, header: &BlockHeader, statistics: Option<&[ColumnStatistics]>) {
        self.begin(stream);
        let Some(of) = &mut self.stream else { return };
        let fits = header.time_sorted && header.time.0 >= of.time_max;
        let Some(statistics) = statistics.filter(|_| fits && of.usable) else {
            of.usable = false;
            return;
        };
        (of.time_max, of.blocks) = (header.time.1, of.blocks + 1);
        for (index, channel) in of.channels.iter_mut().enumerate() {
            // A channel added later is absent in every earlier row.
            let found = statistics.get(index).cloned();
            let found = found.unwrap_or_else(|| ColumnStatistics::of_absent(header.rows));
            let Some(statistics) = of_kind(found, channel.kind) else {
                of.usable = false;
                return;
            };
            channel.push(0, Node { statistics, gap_before: header.gap_before }, header.time);
        }
    }

    /// Notes that rows of a stream lie in a mixed block.
    pub(crate) fn add_part(&mut self, stream: &Arc<Stream>) {
        self.begin(stream);
        if let Some(of) = &mut self.stream {
            of.usable = false;
        }
    }

    fn begin(&mut self, stream: &Arc<Stream>) {
        if self.stream.as_ref().is_some_and(|of| of.stream == stream.id.0) {
            return;
        }
        self.end();
        let of = |channel: &crate::model::stream::Channel| OfChannel {
            // Text and arrays have counts only.
            kind: if channel.channel_type.is_scalar() { channel.channel_type } else { ChannelType::String },
            interpolation: channel.interpolation,
            levels: Vec::new(),
        };
        self.stream = Some(OfStream {
            stream: stream.id.0,
            channels: stream.layout.channels.iter().map(of).collect(),
            blocks: 0,
            time_max: i64::MIN,
            usable: true,
        });
    }

    fn end(&mut self) {
        let Some(of) = self.stream.take().filter(|of| of.usable && of.blocks >= BLOCKS_MIN) else { return };
        let mut extents = Vec::with_capacity(of.channels.len());
        for channel in of.channels {
            let (bytes, table) = channel.finish(of.blocks);
            extents.push((table as u32, bytes.len() as u32));
            self.bytes.extend_from_slice(&bytes);
        }
        self.directory.streams.push((of.stream, extents));
        self.ends.push(self.bytes.len());
    }

    /// Returns the pyramids, leaving out the last ones until `fits` accepts the total bytes.
    pub(crate) fn finish(mut self, fits: impl Fn(usize) -> bool) -> Pyramids {
        self.end();
        loop {
            let bytes = self.directory.encode().len() + self.bytes.len().next_multiple_of(PAGE_BYTES);
            if self.directory.streams.is_empty() || fits(bytes) {
                return Pyramids { directory: self.directory, bytes: self.bytes };
            }
            self.directory.streams.pop();
            self.ends.pop();
            self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        }
    }
}

/// Pyramids of a segment: the list in its footer, and the bytes behind the footer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pyramids {
    pub(crate) directory: Directory,
    pub(crate) bytes: Vec<u8>,
}

/// Converts statistics to a wider type.
fn of_kind(mut statistics: ColumnStatistics, kind: ChannelType) -> Option<ColumnStatistics> {
    for sample in
        [&mut statistics.first, &mut statistics.last, &mut statistics.min, &mut statistics.max].into_iter().flatten()
    {
        *sample = Sample { value: sample.value.convert(kind)?, time: sample.time };
    }
    if let (Some(Sum::Integer(sum)), true) = (statistics.sum, kind.is_float()) {
        statistics.sum = Some(Sum::Float(sum as f64));
    }
    Some(statistics)
}

/// Table of a channel's pyramid.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    kind: ChannelType,
    pub(crate) blocks: usize,
    /// Offset and bytes in the pyramid of each group, by level.
    levels: Vec<Vec<(u32, u32)>>,
}

impl Table {
    /// Reads the table at the beginning of a pyramid of `all` bytes.
    pub(crate) fn read(bytes: &[u8], all: u32) -> Result<Table, FormatError> {
        let mut cursor = Cursor::new(bytes);
        let crc = cursor.u32("checksum of a pyramid")?;
        super::check_crc("pyramid", crc, cursor.unread())?;
        let kind = cursor.code("type of a pyramid", ChannelType::from_code)?;
        let blocks = cursor.count("blocks of a pyramid", SEGMENT_BLOCKS_MAX)?;
        let (mut levels, mut nodes, mut offset) = (Vec::new(), blocks, bytes.len() as u64);
        loop {
            let groups = nodes.div_ceil(FAN);
            let mut level = Vec::with_capacity(groups.min(bytes.len()));
            for _ in 0..groups {
                let length = cursor.varint("bytes of a group")?;
                let end = offset.saturating_add(length);
                if end > all.into() || length < 4 {
                    return Err(malformed("a group beyond its pyramid"));
                }
                level.push((offset as u32, length as u32));
                offset = end;
            }
            levels.push(level);
            if groups <= 1 {
                break;
            }
            nodes = groups;
        }
        if cursor.remaining() > 0 || offset != u64::from(all) || blocks == 0 {
            return Err(malformed("the table of a pyramid does not add up"));
        }
        Ok(Table { kind, blocks, levels })
    }

    /// Returns the number of levels.
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns offset and bytes of the group that holds a node.
    pub(crate) fn group(&self, level: usize, node: usize) -> Option<(u32, u32)> {
        self.levels.get(level)?.get(node / FAN).copied()
    }

    /// Returns the blocks that a node covers.
    pub(crate) fn blocks_of(&self, level: usize, node: usize) -> std::ops::Range<usize> {
        let width = FAN.pow(level as u32);
        (node * width).min(self.blocks)..((node + 1) * width).min(self.blocks)
    }

    /// Reads the nodes of a group; `blocks` are all blocks of the stream in the segment.
    pub(crate) fn nodes(
        &self,
        bytes: &[u8],
        level: usize,
        group: usize,
        blocks: &[BlockRef],
    ) -> Result<Vec<Node>, FormatError> {
        let mut cursor = Cursor::new(bytes);
        let crc = cursor.u32("checksum of a group")?;
        super::check_crc("group of a pyramid", crc, cursor.unread())?;
        let mut nodes = Vec::with_capacity(FAN);
        for node in group * FAN..(group + 1) * FAN {
            let of = blocks.get(self.blocks_of(level, node)).unwrap_or_default();
            let (Some(first), Some(last)) = (of.first(), of.last()) else { break };
            let rows = of.iter().map(|block| block.rows as usize).sum();
            let flags = cursor.u8("flags of a node")?;
            let time = (first.time.0, last.time.1);
            let statistics = ColumnStatistics::read(&mut cursor, self.kind, rows, time)?;
            nodes.push(Node { statistics, gap_before: flags & GAP_BEFORE != 0 });
        }
        if cursor.remaining() > 0 { Err(malformed("bytes left behind a group")) } else { Ok(nodes) }
    }
}

/// Builds the pyramid of a channel of `blocks` blocks of ten rows. Returns its bytes, the bytes of its table, the
/// blocks, and the statistics of each.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn built(blocks: usize) -> (Vec<u8>, usize, Vec<BlockRef>, Vec<ColumnStatistics>) {
    use crate::codec::stats::Times;
    use crate::model::batch::{Column, ColumnValues};

    let mut of = OfChannel { kind: ChannelType::I64, interpolation: Interpolation::Hold, levels: Vec::new() };
    let (mut refs, mut all, mut random) = (Vec::new(), Vec::new(), fastrand::Rng::with_seed(blocks as u64));
    for n in 0..blocks as i64 {
        let stamps: Vec<i64> = (0..10).map(|row| n * 100 + row * 7).collect();
        let mut times = Times::default();
        times.set(&stamps, true, &[]);
        let values = ColumnValues::I64((0..10).map(|_| random.i64(-50..50)).collect());
        let statistics = ColumnStatistics::of(&Column { values, states: None }, Interpolation::Hold, &times);
        let time = (stamps[0], stamps[9]);
        of.push(0, Node { statistics: statistics.clone(), gap_before: n % 3 == 1 }, time);
        let first_row = n as u64 * 10;
        refs.push(BlockRef { first_row, rows: 10, offset: 0, len: 0, part: None, time_sorted: true, time });
        all.push(statistics);
    }
    let (bytes, table) = of.finish(blocks);
    (bytes, table, refs, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_says_what_its_blocks_say() {
        for (blocks, levels) in [(1, 1), (4, 1), (15, 1), (16, 1), (17, 2), (255, 2), (256, 2), (257, 3), (700, 3)] {
            let (bytes, table_bytes, refs, all) = built(blocks);
            let table = Table::read(&bytes[..table_bytes], bytes.len() as u32).expect("reads");
            assert_eq!(table.levels(), levels);
            for level in 0..table.levels() {
                for node in 0..blocks.div_ceil(FAN.pow(level as u32)) {
                    let (offset, len) = table.group(level, node).expect("a group");
                    let group = &bytes[offset as usize..(offset + len) as usize];
                    let nodes = table.nodes(group, level, node / FAN, &refs).expect("reads");
                    let of = table.blocks_of(level, node);
                    let mut expected = all[of.start].clone();
                    for (n, later) in all.iter().enumerate().take(of.end).skip(of.start + 1) {
                        expected.join(later, Interpolation::Hold, n % 3 == 1);
                    }
                    let found = &nodes[node % FAN];
                    assert_eq!((&found.statistics, found.gap_before), (&expected, of.start % 3 == 1), "{level} {node}");
                }
            }
        }
    }

    #[test]
    fn damage_never_panics() {
        let (bytes, table_bytes, refs, _) = built(40);
        let directory = Directory { streams: vec![(3, vec![(9, 80), (7, 50)]), (900, vec![(5, 9)])] };
        assert_eq!(Directory::read(Cursor::new(&directory.encode())), Ok(directory.clone()));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..3_000 {
            let mut bad = directory.encode();
            let at = random.usize(..bad.len());
            bad[at] ^= 1 << random.u8(0..8);
            let _ = Directory::read(Cursor::new(&bad[..random.usize(..=bad.len())]));
            let mut bad = bytes.clone();
            let at = random.usize(..bad.len());
            bad[at] ^= 1 << random.u8(0..8);
            // Attack the contents behind the checksums as well.
            let crc = crc32c::crc32c(&bad[4..table_bytes]);
            bad[..4].copy_from_slice(&crc.to_le_bytes());
            let Ok(table) = Table::read(&bad[..table_bytes], bad.len() as u32) else { continue };
            let Some((offset, len)) = table.group(0, 0) else { continue };
            let Some(group) = bad.get_mut(offset as usize..(offset + len) as usize) else { continue };
            let crc = crc32c::crc32c(&group[4..]);
            group[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = table.nodes(group, 0, 0, &refs);
        }
    }
}
