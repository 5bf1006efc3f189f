//! Steps of alarms on their way into the store. A step stays here until its row is durable, so that a disk that fails
//! loses none: it is recorded again in the reopened store. The number of a step makes its row unique.

use std::collections::VecDeque;

use strongback_store::Reject;

use super::book::AlarmStep;
use super::history::{self, Mark};
use crate::ingest::{Ingest, Ticket, TicketState};

/// Max steps pending while the store refuses them.
const WAITING_MAX: usize = 10_000;

/// Steps that are not durable yet, in the order of the book.
#[derive(Debug, Default)]
pub(super) struct PendingSteps {
    next_number: u64,
    /// Steps not appended yet, with their numbers.
    waiting: VecDeque<(u64, AlarmStep)>,
    /// Steps appended together, whose commit was not seen yet.
    appended: VecDeque<(Ticket, Vec<(u64, AlarmStep)>)>,
}

impl PendingSteps {
    /// Sets the number of the next step.
    pub(super) fn number_from(&mut self, number: u64) {
        self.next_number = number;
    }

    /// Returns the number of the next step.
    #[cfg(test)]
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Adds a step.
    pub(super) fn push(&mut self, step: AlarmStep) {
        self.waiting.push_back((self.next_number, step));
        self.next_number += 1;
    }

    /// Returns whether all steps are appended.
    pub(super) fn are_appended(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets steps that are durable, and takes back those that were lost with an earlier opening of the store.
    pub(super) fn look(&mut self, ingest: &Ingest) {
        let mut lost = Vec::new();
        while let Some((ticket, _)) = self.appended.front() {
            match ingest.state_of(*ticket) {
                TicketState::Waiting => break,
                TicketState::Durable => _ = self.appended.pop_front(),
                TicketState::Unknown => lost.extend(self.appended.pop_front().into_iter().flat_map(|(_, steps)| steps)),
            }
        }
        lost.into_iter().rev().for_each(|step| self.waiting.push_front(step));
    }

    /// Drops the oldest of too many pending steps. Returns how many.
    pub(super) fn drop_excess(&mut self) -> usize {
        let over = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..over);
        over
    }

    /// Appends the pending steps, and the mark up to which everything was judged. Returns the number of steps that the
    /// store refuses for good.
    ///
    /// # Errors
    /// Returns an error if the store refuses them for now; they stay pending.
    pub(super) fn record(&mut self, ingest: &Ingest, mark: Option<Mark>) -> Result<usize, Reject> {
        self.look(ingest);
        if self.waiting.is_empty() && mark.is_none() {
            return Ok(0);
        }
        match history::record(ingest, self.waiting.make_contiguous(), mark) {
            Ok(_) if self.waiting.is_empty() => {}
            Ok(ticket) => self.appended.push_back((ticket, self.waiting.drain(..).collect())),
            Err(Reject::Refused(refusal)) => return Err(Reject::Refused(refusal)),
            Err(error) => {
                let refused = self.waiting.len();
                tracing::error!(%error, "{refused} steps of alarms cannot be recorded");
                self.waiting.clear();
                return Ok(refused);
            }
        }
        Ok(0)
    }

    /// Appends a step that counts only if the store takes it.
    ///
    /// # Errors
    /// Returns an error if the store refuses it.
    pub(super) fn record_one(&mut self, ingest: &Ingest, step: &AlarmStep) -> Result<Ticket, Reject> {
        let numbered = vec![(self.next_number, step.clone())];
        let ticket = history::record(ingest, &numbered, None)?;
        self.next_number += 1;
        self.appended.push_back((ticket, numbered));
        Ok(ticket)
    }
}
