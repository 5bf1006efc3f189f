//! State of a transaction with its savepoints.

use crate::error::{QueryError, sqlstate};

/// State of a client's transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) state: State,
    /// Names of the savepoints, oldest first, each with the number of portals made before it.
    pub(super) savepoints: Vec<(String, u64)>,
    /// Number of portals made so far.
    pub(super) portals_made: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum State {
    #[default]
    None,
    Open,
    Failed,
}

impl Transaction {
    /// Reports whether a transaction has begun and not ended, failed or not.
    pub(super) fn is_open(&self) -> bool {
        self.state != State::None
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Marks an open transaction as failed.
    pub(super) fn fail(&mut self) {
        if self.state == State::Open {
            self.state = State::Failed;
        }
    }

    /// Returns the state as in `ReadyForQuery`.
    pub(super) fn status(&self) -> u8 {
        match self.state {
            State::None => b'I',
            State::Open => b'T',
            State::Failed => b'E',
        }
    }

    /// Returns the number of a new portal.
    pub(super) fn next_portal(&mut self) -> u64 {
        self.portals_made += 1;
        self.portals_made
    }

    /// Returns the place of the newest savepoint of a name.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn find(&self, name: &str) -> Result<usize, QueryError> {
        self.savepoints
            .iter()
            .rposition(|(known, _)| known == name)
            .ok_or_else(|| QueryError::new(sqlstate::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
    }
}
