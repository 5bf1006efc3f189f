//! Room for definitions: a segment's footer must hold those of its streams, and in a store of a fixed size the
//! checkpoints must hold all of them, with where each stream goes on.
//!
//! Invariant: what is refused here is all that could make a checkpoint larger than its region.

use crate::Reject;
use crate::append::stream_registry::StreamRegistry;
use crate::catalog::definition;
use crate::catalog::group::{Group, Groups};
use crate::catalog::{self, ShapeHistory};
use crate::disk::space::FixedSpace;
use crate::log::checkpoint::{Entries, HEADER_BYTES, Position, SLOT_BYTES};
use crate::log::record;
use crate::model::stream::Stream;

/// Bytes that a checkpoint has for the catalog, beside its header and what it says of segments.
fn room_of(fixed: &FixedSpace) -> u64 {
    fixed.checkpoint_bytes.saturating_sub(HEADER_BYTES as u64 + fixed.slots * SLOT_BYTES)
}

/// What the catalog takes of the room that there is for it.
#[derive(Debug, Default)]
pub(crate) struct CatalogRoom {
    /// What checkpoints hold of the catalog, and the most that they have room for, where that is bounded.
    bytes: u64,
    most: Option<u64>,
    /// Most bytes of a definition.
    definition_max: usize,
    /// Most bytes of one frame's record.
    frame_max: usize,
}

impl CatalogRoom {
    /// Sets the most bytes of a definition and of a frame's record, and what a fixed size has room for.
    pub(super) fn set_sizes(&mut self, definition_max: usize, frame_max: usize, fixed: Option<&FixedSpace>) {
        (self.definition_max, self.frame_max, self.most) = (definition_max, frame_max, fixed.map(room_of));
    }

    /// Returns the bytes that a definition takes in checkpoints beyond those of the one before it, where room is bounded.
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

    /// Refuses a definition that a segment's footer or the checkpoints have no room for, or of which no frame with all
    /// its arrays would be taken.
    ///
    /// # Errors
    /// There is no room for it.
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

    /// Takes room that was checked.
    pub(super) fn take(&mut self, more: u64) {
        self.bytes += more;
    }

    /// Counts what checkpoints hold of the catalog.
    pub(super) fn measure(&mut self, streams: &StreamRegistry, groups: &Groups) {
        if self.most.is_none() {
            return;
        }
        let of_streams = streams.iter().map(|(_, s)| catalog_bytes(&s.slot.stream.load(), &s.history, s.slot.group));
        self.bytes = of_streams.sum::<u64>() + groups.saved_bytes(Entries::HEAD_BYTES);
    }

    /// Takes the room for another retention group with a record of these bytes. Returns whether checkpoints have it.
    pub(crate) fn take_group(&mut self, record_bytes: usize) -> bool {
        let more = group_bytes(record_bytes);
        let fits = self.most.is_none_or(|room| self.bytes + more <= room);
        self.bytes += if fits { more } else { 0 };
        fits
    }

    /// Gives back the room for a retention group that was not made.
    pub(crate) fn give_back_group(&mut self, record_bytes: usize) {
        self.bytes -= group_bytes(record_bytes);
    }

    /// Returns what checkpoints hold of the catalog.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes that a checkpoint takes for a retention group.
fn group_bytes(record_bytes: usize) -> u64 {
    (Entries::HEAD_BYTES + record_bytes) as u64
}

/// Most bytes that a checkpoint takes for a stream.
fn catalog_bytes(stream: &Stream, history: &ShapeHistory, group: Group) -> u64 {
    let position = Position::most_bytes(stream.layout.channels.len());
    (2 * Entries::HEAD_BYTES + catalog::encode_stream(stream, history, group).len() + position) as u64
}
