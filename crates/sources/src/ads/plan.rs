//! Plans which memory to request: values that lie close together are read as one block. Pure.

use std::ops::Range;

use super::leaf::Leaf;
use super::wire::{PlcPlace, SUM_MAX};

/// Maximum notification handles this client takes of a device. Beckhoff recommends at most 550 for all clients.
pub const HANDLES_MAX: usize = 400;
/// Maximum values of an on-change group that are subscribed to individually rather than in blocks.
pub const SINGLE_MAX: usize = 100;
/// Maximum gap between two values that are read together. A separate sub-command and its result take 20 bytes, and PLC
/// time.
pub const GAP_BYTES: u32 = 64;
/// Wider gaps to try if there are more blocks than handles.
const GAPS: [u32; 4] = [GAP_BYTES, 256, 1_024, 4_096];
/// Maximum bytes of a block, unless a single value is larger.
pub const BLOCK_BYTES_MAX: u32 = 4_096;
/// Maximum bytes of the answer to a sum read.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Reports whether offsets of an index group count bits: inputs, outputs, flags and data. Such values are never joined.
fn counts_bits(group: u32) -> bool {
    matches!(group, 0x4021 | 0x4041 | 0xF021 | 0xF031)
}

/// Memory requested at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// Location in memory.
    pub place: PlcPlace,
    /// Range of the leaves in it, in memory order.
    pub leaves: Range<usize>,
}

/// Sorts leaves by location, as [`blocks`] requires.
pub fn sort(leaves: &mut [Leaf]) {
    leaves.sort_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
}

/// Joins sorted leaves into blocks with gaps of at most `gap` bytes. For `None`, each leaf is a block.
pub fn blocks(leaves: &[Leaf], gap: Option<u32>) -> Vec<MemoryBlock> {
    let mut blocks: Vec<MemoryBlock> = Vec::new();
    for (i, leaf) in leaves.iter().enumerate() {
        let place = leaf.place;
        if let (Some(gap), Some(block)) = (gap, blocks.last_mut()) {
            let start = u64::from(block.place.offset);
            let end = start + u64::from(block.place.size);
            let mine = u64::from(place.offset) + u64::from(place.size);
            let joined = end.max(mine) - start;
            let near = place.group == block.place.group
                && !counts_bits(place.group)
                && u64::from(place.offset) <= end + u64::from(gap);
            if near && joined <= u64::from(BLOCK_BYTES_MAX) {
                block.place.size = joined as u32;
                block.leaves.end = i + 1;
                continue;
            }
        }
        blocks.push(MemoryBlock { place, leaves: i..i + 1 });
    }
    blocks
}

/// Needs of a group of notifications.
#[derive(Clone, Copy, Debug)]
pub struct NotificationRequest<'a> {
    /// Leaves, sorted by location.
    pub leaves: &'a [Leaf],
    /// Whether notifications are sent on change.
    pub on_change: bool,
}

/// Plans blocks for groups of notifications, with at most `handles` blocks over all groups. A group that does not fit
/// gets `None` and has to be read instead.
pub fn notifications(groups: &[NotificationRequest<'_>], handles: usize) -> Vec<Option<Vec<MemoryBlock>>> {
    let of = |wanted: &NotificationRequest<'_>, gap: u32| {
        let single = wanted.on_change && wanted.leaves.len() <= SINGLE_MAX;
        blocks(wanted.leaves, (!single).then_some(gap))
    };
    let mut last = Vec::new();
    for gap in GAPS {
        last = groups.iter().map(|wanted| of(wanted, gap)).collect();
        if last.iter().map(Vec::len).sum::<usize>() <= handles {
            return last.into_iter().map(Some).collect();
        }
    }
    let mut left = handles;
    let room = |blocks: Vec<MemoryBlock>| {
        left = left.checked_sub(blocks.len())?;
        Some(blocks)
    };
    let mut room = room;
    last.into_iter().map(&mut room).collect()
}

/// Cuts blocks into requests of at most [`SUM_MAX`] less `reserved` places, with bounded answers.
pub fn requests(blocks: &[MemoryBlock], reserved: usize) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, block) in blocks.iter().enumerate() {
        let size = block.place.size as usize + 8;
        if i > start && (i - start == SUM_MAX - reserved || bytes + size > ANSWER_BYTES_MAX) {
            cuts.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += size;
    }
    if start < blocks.len() {
        cuts.push(start..blocks.len());
    }
    cuts
}
