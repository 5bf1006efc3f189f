//! Conditions that stop a running statement: cancellation, timeout, server shutdown, disconnection.

use std::io;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::error::{QueryError, sqlstate};

/// Reason why a message was not served.
pub(super) enum Failure {
    /// An error to send to the client, after which the connection continues.
    Error(QueryError),
    /// An error to send to the client, after which the connection ends.
    Fatal(QueryError),
    /// A socket error.
    Io(io::Error),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

/// Conditions that stop a statement.
pub(super) struct Watched {
    pub(super) cancel: watch::Receiver<bool>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) deadline: Option<Instant>,
}

impl Watched {
    pub(super) async fn expired(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }

    pub(super) async fn run<T>(&self, socket: &TcpStream, work: impl Future<Output = T>) -> Result<T, Failure> {
        let (mut cancel, mut stopped) = (self.cancel.clone(), self.stopped.clone());
        tokio::select! {
            biased;
            _ = cancel.wait_for(|cancelled| *cancelled) => Err(QueryError::cancelled().into()),
            done = work => Ok(done),
            () = self.expired() => Err(QueryError::timed_out().into()),
            _ = stopped.wait_for(|stopped| *stopped) => Err(Failure::Fatal(stopping())),
            () = gone(socket) => Err(Failure::Io(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

/// Completes when the client has closed its side. A client that has sent more is still connected.
async fn gone(socket: &TcpStream) {
    loop {
        match socket.peek(&mut [0]).await {
            Ok(0) | Err(_) => return,
            Ok(_) => std::future::pending().await,
        }
    }
}

pub(super) fn stopping() -> QueryError {
    QueryError::new(sqlstate::ADMIN_SHUTDOWN, "terminating connection: the server is stopping")
}

/// Returns the error for a client whose seat was given to another one.
pub(super) fn no_seat() -> QueryError {
    let text = "terminating connection: too many clients, and this one has asked nothing yet";
    QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, text)
}
