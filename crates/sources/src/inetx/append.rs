//! Passes frames of packets to the sink, followed by those of their blocks.

use std::ops::Range;

use strongback_store::{Appended, FrameBatch, Outcome};

use super::decoder::Decoded;
use crate::sink::Sink;

/// Decoded frames to be handed over.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Frames of packets and blocks.
    pub(crate) batch: FrameBatch,
    /// Ranges of block frames, each after the frame of its packet.
    blocks: Vec<Range<usize>>,
}

impl Frames {
    /// Records the frames last decoded into the batch.
    pub(crate) fn note(&mut self, decoded: &Decoded) {
        if decoded.block_frames > 0 {
            let end = self.batch.len();
            self.blocks.push(end - decoded.block_frames as usize..end);
        }
    }

    /// Hands over the frames of packets, then the blocks of the new ones. Blocks have no sequence numbers by which the
    /// store could detect copies. The blocks of a duplicate packet are therefore left out; those of a refused packet
    /// are left out, too, and counted. Calls `each` with each batch and its outcomes.
    pub(crate) fn hand_over(
        &mut self,
        sink: &dyn Sink,
        accept: impl Fn(&FrameBatch) -> Appended,
        mut each: impl FnMut(&FrameBatch, Appended),
    ) {
        if self.blocks.is_empty() {
            each(&self.batch, accept(&self.batch));
            self.batch.clear();
            return;
        }
        let (mut packets, mut next) = (FrameBatch::new(), 0);
        let mut with_blocks = Vec::with_capacity(self.blocks.len());
        for blocks in &self.blocks {
            (next..blocks.start).for_each(|at| packets.copy(&self.batch.frame(at)));
            with_blocks.push(packets.len().saturating_sub(1));
            next = blocks.end;
        }
        (next..self.batch.len()).for_each(|at| packets.copy(&self.batch.frame(at)));
        let appended = accept(&packets);
        let (mut new, mut refused, mut refusals) = (FrameBatch::new(), FrameBatch::new(), Vec::new());
        for (packet, blocks) in with_blocks.into_iter().zip(self.blocks.drain(..)) {
            match appended.outcomes.get(packet) {
                Some(Outcome::Stored { .. } | Outcome::Reduced { .. }) => {
                    blocks.for_each(|at| new.copy(&self.batch.frame(at)));
                }
                Some(outcome @ Outcome::Rejected(_)) => {
                    for at in blocks {
                        let frame = self.batch.frame(at);
                        sink.count_rejected(frame.head().stream, 1);
                        refused.copy(&frame);
                        refusals.push(outcome.clone());
                    }
                }
                Some(Outcome::Duplicate) | None => {}
            }
        }
        let commit = appended.commit;
        each(&packets, appended);
        if !refused.is_empty() {
            each(&refused, Appended { outcomes: refusals, commit });
        }
        if !new.is_empty() {
            each(&new, accept(&new));
        }
        self.batch.clear();
    }
}
