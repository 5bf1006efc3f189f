//! Room for definitions: a segment's footer must hold those of its streams, and in a store of a fixed size the
//! checkpoints must hold all of them, with where each stream goes on.
//!
//! Invariant: what is refused here is all that could make a checkpoint larger than its region.

use crate::Reject;
use crate::append::{StreamWriter, Writer};
use crate::catalog::definition;
use crate::catalog::group::Group;
use crate::catalog::{self, ShapeHistory};
use crate::disk::space::FixedSpace;
use crate::log::checkpoint::{Entries, HEADER_BYTES, Position, SLOT_BYTES};
use crate::log::record;
use crate::model::stream::Stream;

/// Bytes that a checkpoint has for the catalog, beside its header and what it says of segments.
pub(crate) fn room_of(fixed: &FixedSpace) -> u64 {
    fixed.checkpoint_bytes.saturating_sub(HEADER_BYTES as u64 + fixed.slots * SLOT_BYTES)
}

impl Writer {
    /// Refuses a definition that a segment's footer or the checkpoints have no room for, or of which no frame with all
    /// its arrays would be taken.
    pub(crate) fn check_catalog(&self, stream: &Stream, more: u64) -> Result<(), Reject> {
        let too_large = |room_bytes| Reject::CatalogFull { stream: stream.key.to_string(), room_bytes };
        let mut definition = Vec::new();
        definition::encode(stream, &mut definition);
        if definition.len() > self.definition_max {
            return Err(too_large(self.definition_max as u64));
        }
        let arrays = stream.layout.channels.iter().filter_map(|c| c.channel_type.array());
        let least = arrays.map(|a| a.length().unwrap_or(0) * a.element().size_bytes()).sum::<usize>();
        let size_bytes = record::frame_bytes(0, least);
        if least > 0 && size_bytes > self.part_max {
            let stream = stream.key.to_string();
            return Err(Reject::ArraysTooLarge { stream, size_bytes, max_bytes: self.part_max });
        }
        match self.catalog_room {
            Some(room) if self.catalog_bytes + more > room => Err(too_large(room)),
            _ => Ok(()),
        }
    }

    /// Counts what checkpoints hold of the catalog, after recovery.
    pub(crate) fn measure_catalog(&mut self) {
        if self.catalog_room.is_none() {
            return;
        }
        let of = |s: &StreamWriter| catalog_bytes(&s.slot.stream.load(), &s.history, s.slot.group);
        self.catalog_bytes = self.streams.iter().map(of).sum::<u64>() + self.groups.saved_bytes(Entries::HEAD_BYTES);
    }

    /// Whether checkpoints have room for another retention group; takes it.
    pub(crate) fn take_group_room(&mut self, bytes: usize) -> bool {
        let more = (Entries::HEAD_BYTES + bytes) as u64;
        let fits = self.catalog_room.is_none_or(|room| self.catalog_bytes + more <= room);
        self.catalog_bytes += if fits { more } else { 0 };
        fits
    }
}

/// Most bytes that a checkpoint takes for a stream.
pub(crate) fn catalog_bytes(stream: &Stream, history: &ShapeHistory, group: Group) -> u64 {
    let position = Position::most_bytes(stream.layout.channels.len());
    (2 * Entries::HEAD_BYTES + catalog::encode_stream(stream, history, group).len() + position) as u64
}
