//! Newest rows of blocks, kept in memory: they answer what the last values of many streams are, for which every stream's
//! newest block would be decoded otherwise.

use std::hash::{BuildHasher, Hasher};

use crate::model::batch::{Batch, Column};
use crate::model::stream::{ChannelIndex, Layout};

/// Stream, first row of the block, and hash of the channels.
pub(crate) type LastRowKey = (u32, u64, u64);

/// The newest row of a block, with some channels.
pub(crate) struct LastRow {
    channels: Vec<ChannelIndex>,
    batch: Batch,
}

impl LastRow {
    /// Returns the key of a block's newest row with some channels.
    pub(crate) fn key(stream: u32, first_row: u64, channels: &[ChannelIndex]) -> LastRowKey {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        channels.iter().for_each(|channel| hasher.write_u16(channel.0));
        (stream, first_row, hasher.finish())
    }

    /// Takes a batch of one row.
    pub(crate) fn new(channels: &[ChannelIndex], batch: Batch) -> LastRow {
        LastRow { channels: channels.to_vec(), batch }
    }

    /// Returns the row, unless it has other channels or types than these.
    pub(crate) fn with(&self, channels: &[ChannelIndex], layout: &Layout) -> Option<Batch> {
        let is_same = self.channels == channels && self.batch.columns.len() == channels.len();
        let mut pairs = channels.iter().zip(&self.batch.columns);
        let has_type = |(channel, column): (&ChannelIndex, &Column)| {
            let kind = layout.channels.get(channel.0 as usize).map(|channel| channel.channel_type);
            kind == Some(column.values.channel_type())
        };
        (is_same && pairs.all(has_type)).then(|| self.batch.clone())
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<LastRow>() + self.batch.columns.len() * 80 + self.batch.varying_bytes()
    }
}
