//! The lake as a target of followers.

use std::collections::HashMap;

use strongback_archive::{Delivered, Delivery, StreamFrames, Target, TargetError};
use strongback_query::{LakeError, LakeFrames, LakeHistory, LakePlace, LakeWriter};
use strongback_store::StreamId;

use crate::process::clock::now_ns;

/// A lake that a follower writes to.
pub(super) struct Lake {
    writer: LakeWriter,
}

impl Lake {
    /// Prepares the target for the frames of a store of this origin, which SQL may read there.
    pub(super) fn new(place: LakePlace, origin: u128, history: Option<&LakeHistory>) -> Result<Lake, String> {
        Ok(Lake { writer: LakeWriter::new(place, origin, history)? })
    }
}

impl Target for Lake {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.writer.open(now_ns()).map(Some).map_err(|error| in_words(error, &Delivery::default()))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let frames: Vec<LakeFrames<'_>> = delivery
            .parts
            .iter()
            .map(|part| LakeFrames { stream: &part.stream, channels: &part.channels, batch: &part.batch })
            .collect();
        let written = self.writer.write(&delivery.catalog, &frames, now_ns());
        let bytes = written.map_err(|error| in_words(error, delivery))?;
        Ok(Delivered { bytes, altered_values: 0 })
    }
}

fn in_words(error: LakeError, delivery: &Delivery) -> TargetError {
    match error {
        LakeError::Unavailable(why) => TargetError::Unavailable(why),
        LakeError::Moved(why) => TargetError::Moved(why),
        LakeError::Table { ref table, .. } => {
            let is_of_it = |part: &&StreamFrames| part.stream.key.table == *table;
            let streams = delivery.parts.iter().filter(is_of_it).map(StreamFrames::id).collect();
            TargetError::Streams { streams, reason: error.to_string() }
        }
    }
}
