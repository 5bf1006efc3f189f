//! Begin and end of transactions, and savepoints. There is nothing to commit or undo, but clients expect the states, and
//! that cursors end with the part of the transaction in which they were declared.

use super::connection::{Connection, NAMES_MAX};
use super::transaction::State;
use crate::error::{QueryError, sqlstate};
use crate::wire::message;

/// Maximum name of a savepoint, in bytes.
const NAME_BYTES_MAX: usize = 256;

impl Connection {
    /// Checks that a transaction is open, as a statement requires.
    ///
    /// # Errors
    /// If none is open.
    pub(super) fn require_transaction(&self, statement: &str) -> Result<(), QueryError> {
        if self.transaction.is_open() {
            return Ok(());
        }
        let text = format!("{statement} can only be used in transaction blocks");
        Err(QueryError::new(sqlstate::NO_ACTIVE_TRANSACTION, text))
    }

    /// Begins a transaction. Returns the command tag, like the functions below.
    pub(super) fn begin_transaction(&mut self) -> &'static str {
        if self.transaction.is_open() {
            let text = "there is already a transaction in progress";
            message::put_warning(&mut self.client.output, sqlstate::ACTIVE_TRANSACTION, text);
        } else {
            self.transaction.state = State::Open;
        }
        "BEGIN"
    }

    /// Ends the transaction and its portals; a failed one is rolled back either way. With `chain` the next one begins.
    ///
    /// # Errors
    /// If there is no transaction after which another one could begin.
    pub(super) fn end_transaction(&mut self, commit: bool, chain: bool) -> Result<&'static str, QueryError> {
        if chain {
            self.require_transaction(if commit { "COMMIT AND CHAIN" } else { "ROLLBACK AND CHAIN" })?;
        } else if !self.transaction.is_open() {
            let text = "there is no transaction in progress";
            message::put_warning(&mut self.client.output, sqlstate::NO_ACTIVE_TRANSACTION, text);
        }
        let failed = self.transaction.has_failed();
        self.transaction.state = if chain { State::Open } else { State::None };
        self.transaction.savepoints = Vec::new();
        self.portals.clear();
        Ok(if commit && !failed { "COMMIT" } else { "ROLLBACK" })
    }

    /// Makes a savepoint.
    ///
    /// # Errors
    /// If no transaction is open, or it has too many savepoints.
    pub(super) fn savepoint(&mut self, name: String) -> Result<&'static str, QueryError> {
        self.require_transaction("SAVEPOINT")?;
        if self.transaction.savepoints.len() >= NAMES_MAX {
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many savepoints"));
        }
        if name.len() > NAME_BYTES_MAX {
            let text = format!("the name of a savepoint has at most {NAME_BYTES_MAX} bytes");
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        let portals_made = self.transaction.portals_made;
        self.transaction.savepoints.push((name, portals_made));
        Ok("SAVEPOINT")
    }

    /// Forgets a savepoint and those after it.
    ///
    /// # Errors
    /// If there is none of the name.
    pub(super) fn release(&mut self, name: &str) -> Result<&'static str, QueryError> {
        self.require_transaction("RELEASE SAVEPOINT")?;
        let at = self.transaction.find(name)?;
        self.transaction.savepoints.truncate(at);
        Ok("RELEASE")
    }

    /// Returns to a savepoint, which is kept. Closes the portals that were made after it.
    ///
    /// # Errors
    /// If there is none of the name.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<&'static str, QueryError> {
        self.require_transaction("ROLLBACK TO SAVEPOINT")?;
        let at = self.transaction.find(name)?;
        self.transaction.savepoints.truncate(at + 1);
        self.transaction.state = State::Open;
        if let Some((_, portals_made)) = self.transaction.savepoints.get(at) {
            self.portals.retain(|_, portal| portal.number <= *portals_made);
        }
        Ok("ROLLBACK")
    }
}
