//! Conditions that stop a running statement: cancellation, timeout, server shutdown, disconnection.

use std::time::Instant;

use tokio::sync::watch;

use crate::error::{QueryError, sqlstate};

/// Conditions that stop a statement.
pub(crate) struct Watched {
    pub(crate) cancel: watch::Receiver<bool>,
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) deadline: Option<Instant>,
}

/// Reason why a statement was stopped.
pub(crate) enum Halt {
    /// It was cancelled, or its time was over.
    Error(QueryError),
    /// The server stops.
    Stopping(QueryError),
    /// Its client is gone.
    Gone,
}

impl Watched {
    /// Completes when the time of the statement is over.
    pub(crate) async fn expired(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Does a part of the statement's work, unless it is stopped first. `gone` completes when the client is gone.
    pub(crate) async fn until<T>(
        &self,
        gone: impl Future<Output = ()>,
        work: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        let (mut cancel, mut stopped) = (self.cancel.clone(), self.stopped.clone());
        tokio::select! {
            biased;
            _ = cancel.wait_for(|cancelled| *cancelled) => Err(Halt::Error(QueryError::cancelled())),
            done = work => Ok(done),
            () = self.expired() => Err(Halt::Error(QueryError::timed_out())),
            _ = stopped.wait_for(|stopped| *stopped) => Err(Halt::Stopping(stopping())),
            () = gone => Err(Halt::Gone),
        }
    }
}

/// Returns the error for a client of a server that stops.
pub(crate) fn stopping() -> QueryError {
    QueryError::new(sqlstate::ADMIN_SHUTDOWN, "terminating connection: the server is stopping")
}
