//! Frames of packets to the sink, and those of their blocks behind them.

use std::ops::Range;

use strongback_store::{Appended, FrameBatch, Outcome};

use super::decoder::Decoded;
use crate::sink::Sink;

/// Decoded frames on their way to the sink.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// All of them.
    pub(crate) batch: FrameBatch,
    /// Those of blocks, each packet's behind its own frame.
    blocks: Vec<Range<usize>>,
}

impl Frames {
    /// Notes what was decoded into the batch last.
    pub(crate) fn note(&mut self, decoded: &Decoded) {
        if decoded.block_frames > 0 {
            let end = self.batch.len();
            self.blocks.push(end - decoded.block_frames as usize..end);
        }
    }

    /// Hands all over: the frames of packets, then the blocks of those that are new. Blocks have no numbers of their own by
    /// which the store could tell copies apart: those of a packet that it has already are left out, and so are, counted,
    /// those of one that it refuses. `each` is told what became of which frames.
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
