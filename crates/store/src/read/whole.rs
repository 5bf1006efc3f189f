//! Statistics of all blocks that a stream has in a sealed segment, joined and kept in memory, so that totals over the
//! whole of it need none of the blocks.

use std::sync::Arc;

use crate::codec::joined::Joined;
use crate::model::refusal::ScanError;
use crate::model::stream::ChannelIndex;
use crate::model::value::ChannelType;
use crate::read::groups::{self, GROUP};
use crate::read::shared::Shared;
use crate::read::stream_view::StreamView;
use crate::segment::directory::whole_stream::WholeStream;
use crate::segment::directory::{BlockRef, Segment};

/// First row under which the statistics of all blocks of a segment are kept.
const ALL_ROWS: u64 = u64::MAX;

/// Returns the statistics of a channel in all blocks of a segment, if they are kept and no value of it is left out.
pub(crate) fn statistics(
    (stream, segment): (&StreamView, &Segment),
    whole: &WholeStream,
    (channel, kind): (ChannelIndex, ChannelType),
    shared: &Shared,
) -> Option<Arc<Joined>> {
    if stream.excluded_of(channel).is_some_and(|spans| spans.overlaps(whole.time)) {
        return None;
    }
    shared.residents.groups.get((segment.id, (stream.stream.id.0, channel.0, kind.code(), ALL_ROWS)))
}

/// Joins the statistics of a channel in all blocks of a sealed segment, and keeps them. Returns whether it could.
///
/// # Errors
/// As for a scan.
pub(crate) fn join(
    (stream, segment): (&StreamView, &Arc<Segment>),
    blocks: &[BlockRef],
    (channel, kind): (ChannelIndex, ChannelType),
    shared: &Shared,
) -> Result<bool, ScanError> {
    let mut all = Vec::with_capacity(blocks.len().div_ceil(GROUP));
    for group in blocks.chunks(GROUP) {
        let Some(joined) = groups::joined((stream, segment), group, (channel, kind), shared)? else { return Ok(false) };
        all.push(joined.as_ref().clone());
    }
    let Some(joined) = Joined::of_all(all.into_iter()) else { return Ok(false) };
    let key = (segment.id, (stream.stream.id.0, channel.0, kind.code(), ALL_ROWS));
    shared.residents.groups.keep(key, joined, |_| size_of::<Joined>());
    Ok(true)
}
