//! Statistics of neighbouring blocks in a segment without pyramids, joined for totals and kept in memory for the next
//! question.

use std::sync::Arc;

use crate::block::Block;
use crate::codec::joined::Joined;
use crate::model::refusal::ScanError;
use crate::model::stream::ChannelIndex;
use crate::model::value::ChannelType;
use crate::read::shared::Shared;
use crate::read::stream_view::StreamView;
use crate::segment::directory::{BlockRef, Segment};

/// Neighbouring blocks that are joined.
pub(crate) const GROUP: usize = 16;

/// Returns the statistics of a channel in neighbouring blocks of a sealed segment, or `None` if some of them need to
/// be decoded.
pub(crate) fn joined(
    (stream, segment): (&StreamView, &Arc<Segment>),
    blocks: &[BlockRef],
    (channel, kind): (ChannelIndex, ChannelType),
    shared: &Shared,
) -> Result<Option<Arc<Joined>>, ScanError> {
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(None) };
    let is_left_out = |block: &BlockRef| stream.excluded_of(channel).is_some_and(|s| s.overlaps(block.time));
    if blocks.iter().any(|block| block.part.is_some() || is_left_out(block)) {
        return Ok(None);
    }
    let key = (segment.id, (stream.stream.id.0, channel.0, kind.code(), first.first_row));
    if let Some(kept) = shared.residents.groups.get(key) {
        return Ok(Some(kept));
    }
    let of_block = |read: &Block<'_>| Ok(read.statistics_of(channel.0.into())?.and_then(|of| Joined::of(&of, kind)));
    let mut all = Vec::with_capacity(blocks.len());
    // Blocks that lie one behind the other are read at once.
    let is_one = blocks.windows(2).all(|pair| pair[0].offset + pair[0].len == pair[1].offset);
    let is_parted = blocks.iter().any(|block| stream.may_be_parted(block));
    let bytes = match is_one && !is_parted {
        true => {
            let len = (last.offset + last.len - first.offset) as usize;
            Some(segment.read_bytes(first.offset.into(), len, &shared.residents)?)
        }
        false => None,
    };
    for block in blocks {
        let found = match &bytes {
            Some(bytes) => {
                let from = (block.offset - first.offset) as usize;
                stream.ask_bytes(segment, block, &bytes[from..from + block.len as usize], of_block)?
            }
            None => stream.ask(segment, block, &[channel], shared, of_block)?,
        };
        let Some(found) = found else { return Ok(None) };
        all.push(found);
    }
    let Some(joined) = Joined::of_all(all.into_iter()) else { return Ok(None) };
    Ok(Some(shared.residents.groups.keep(key, joined, |_| size_of::<Joined>())))
}
