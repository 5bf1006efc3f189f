//! Figures of a store: sizes, counters, its segments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::catalog::group::Group;
use crate::segment::directory::Segment;
use crate::{SegmentInfo, Store, StoreStats};

impl Store {
    /// Returns sizes and counters.
    pub fn stats(&self) -> StoreStats {
        let (commits, log_written) = {
            let log = self.engine.log.lock();
            (log.commits, log.log.written_bytes)
        };
        let (sealer_written, disk_bytes, settle, clock, held_up) = {
            let sealer = self.sealer.lock();
            let (settle, held_up) = (sealer.settle.counts.clone(), sealer.shortage.held_up());
            (sealer.written_bytes, sealer.used_bytes(&self.engine), settle, sealer.ages.clock.state(), held_up)
        };
        let (sums, blobs) = self.engine.shared.segments.load().sums();
        let writer = self.engine.writer.lock();
        StoreStats {
            disk_bytes,
            segments: sums.segments + blobs.segments,
            block_bytes: sums.bytes,
            block_points: sums.points,
            blob_bytes: blobs.bytes,
            open_bytes: writer.open.bytes() as u64,
            log_used_bytes: writer.unit.head() - writer.unit.tail(),
            log_bytes: writer.unit.ring_bytes(),
            commits,
            written_bytes: log_written + sealer_written,
            log_written_bytes: log_written,
            blocks_decoded: self.engine.shared.blocks_decoded.load(Ordering::Relaxed),
            settled_segments: settle.segments,
            settle_written_bytes: settle.written_bytes,
            settle_saved_bytes: settle.saved_bytes,
            settle_failed: settle.failed,
            settle_failure: settle.failure,
            held_up,
            streams: u64::from(writer.streams.len()),
            channels: u64::from(writer.streams.channels()),
            clock,
        }
    }

    /// Returns the segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let list = self.engine.shared.segments.load_full();
        let groups: BTreeSet<Group> = list.iter().map(|segment| segment.group).collect();
        // Appends wait while the groups are named, not while thousands of segments are looked at.
        let names: BTreeMap<Group, String> = {
            let writer = self.engine.writer.lock();
            groups.into_iter().map(|group| (group, writer.groups.name(group))).collect()
        };
        let range = |(a, b): (i64, i64)| (a <= b).then_some((a, b));
        let info = |segment: &Arc<Segment>| {
            let state = *segment.state.lock();
            SegmentInfo {
                id: segment.id,
                settled: segment.is_settled(),
                blobs: segment.blobs,
                sealed: state.sealed,
                group: names.get(&segment.group).cloned().unwrap_or_default(),
                size_bytes: state.bytes,
                blocks: state.blocks,
                time: range(state.time),
                stored: range(state.stored),
            }
        };
        let mut segments: Vec<&Arc<Segment>> = list.iter().collect();
        segments.sort_unstable_by_key(|segment| segment.place());
        segments.into_iter().map(info).collect()
    }
}
