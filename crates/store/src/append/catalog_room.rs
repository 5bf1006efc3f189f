//! Room for definitions. A segment's footer must hold those of its streams. In a store of a fixed size, the checkpoints
//! must hold all of them, and the position of each stream.
//!
//! Invariant: everything that could make a checkpoint larger than its region is refused here.

use crate::Reject;
use crate::append::stream_registry::StreamRegistry;
use crate::catalog::definition;
use crate::catalog::group::{Group, Groups};
use crate::catalog::{self, ShapeHistory};
use crate::disk::space::FixedSpace;
use crate::log::checkpoint::{Entries, HEADER_BYTES, Position, SLOT_BYTES};
use crate::log::record;
use crate::model::stream::Stream;

/// Returns the bytes that a checkpoint has for the catalog, beside its header and its segment slots.
fn room_of(fixed: &FixedSpace) -> u64 {
    fixed.checkpoint_bytes.saturating_sub(HEADER_BYTES as u64 + fixed.slots * SLOT_BYTES)
}

/// Bytes that the catalog takes, and the limits on them.
#[derive(Debug, Default)]
pub(crate) struct CatalogRoom {
    /// Bytes of the catalog in checkpoints, and the max that they have room for, if bounded.
    bytes: u64,
    most: Option<u64>,
    /// Max bytes of a definition.
    definition_max: usize,
    /// Max bytes of one frame's record.
    frame_max: usize,
}

impl CatalogRoom {
    /// Sets the max bytes of a definition and of a frame's record, and the catalog's room in a store of a fixed size.
    pub(super) fn set_sizes(&mut self, definition_max: usize, frame_max: usize, fixed: Option<&FixedSpace>) {
        (self.definition_max, self.frame_max, self.most) = (definition_max, frame_max, fixed.map(room_of));
    }

    /// Returns how many more bytes a definition takes in checkpoints than the one before it, or 0 if room is unbounded.
    pub(super) fn growth(
        &self,
        (stream, history): (&Stream, &ShapeHistory),
        before: Option<(&Stream, &ShapeHistory)>,
        group: Group,
    ) -> u64 {
        if self.most.is_none() {
            return 0;
        }
        let known = before.map_or(0, |(stream, history)| catalog_bytes(stream, history, group));
        catalog_bytes(stream, history, group).saturating_sub(known)
    }

    /// Refuses a definition that does not fit into a segment's footer or the checkpoints, or whose arrays do not fit
    /// into a frame.
    ///
    /// # Errors
    /// Returns `CatalogFull` if there is no room for it, or `ArraysTooLarge` if its arrays exceed a frame's record.
    pub(super) fn check(&self, stream: &Stream, more: u64) -> Result<(), Reject> {
        let too_large = |room_bytes| Reject::CatalogFull { stream: stream.key.to_string(), room_bytes };
        let mut definition = Vec::new();
        definition::encode(stream, &mut definition);
        if definition.len() > self.definition_max {
            return Err(too_large(self.definition_max as u64));
        }
        let arrays = stream.layout.channels.iter().filter_map(|c| c.channel_type.array());
        let least = arrays.map(|a| a.length().unwrap_or(0) * a.element().size_bytes()).sum::<usize>();
        let size_bytes = record::frame_bytes(0, least);
        if least > 0 && size_bytes > self.frame_max {
            let stream = stream.key.to_string();
            return Err(Reject::ArraysTooLarge { stream, size_bytes, max_bytes: self.frame_max });
        }
        match self.most {
            Some(room) if self.bytes + more > room => Err(too_large(room)),
            _ => Ok(()),
        }
    }

    /// Takes room approved by [`CatalogRoom::check`].
    pub(super) fn take(&mut self, more: u64) {
        self.bytes += more;
    }

    /// Recounts the bytes that the catalog takes in checkpoints.
    pub(super) fn measure(&mut self, streams: &StreamRegistry, groups: &Groups) {
        if self.most.is_none() {
            return;
        }
        let of_streams = streams.iter().map(|(_, s)| catalog_bytes(&s.slot.stream.load(), &s.history, s.slot.group));
        self.bytes = of_streams.sum::<u64>() + groups.saved_bytes(Entries::HEAD_BYTES);
    }

    /// Takes room for one more retention group with a record of this size. Returns whether checkpoints have it.
    pub(crate) fn take_group(&mut self, record_bytes: usize) -> bool {
        let more = group_bytes(record_bytes);
        let fits = self.most.is_none_or(|room| self.bytes + more <= room);
        self.bytes += if fits { more } else { 0 };
        fits
    }

    /// Gives back the room for a retention group that was not created.
    pub(crate) fn give_back_group(&mut self, record_bytes: usize) {
        self.bytes -= group_bytes(record_bytes);
    }

    /// Returns the bytes that the catalog takes in checkpoints.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the bytes that a checkpoint takes for a retention group.
fn group_bytes(record_bytes: usize) -> u64 {
    (Entries::HEAD_BYTES + record_bytes) as u64
}

/// Returns the max bytes that a checkpoint takes for a stream.
fn catalog_bytes(stream: &Stream, history: &ShapeHistory, group: Group) -> u64 {
    let position = Position::most_bytes(stream.layout.channels.len());
    (2 * Entries::HEAD_BYTES + catalog::encode_stream(stream, history, group).len() + position) as u64
}
