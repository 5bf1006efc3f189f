//! What can stop a running statement: cancel, its timeout, the server's end, a client that goes away.

use std::io;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::error::{QueryError, sqlstate};

/// Why a message was not served.
pub(super) enum Failure {
    /// Tell the client and go on.
    Error(QueryError),
    /// Tell the client and end.
    Fatal(QueryError),
    /// The socket failed.
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

/// What can stop a statement.
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

/// Ready when the client has closed its side. One that has sent more is still there.
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

/// What a client reads whose seat another one got.
pub(super) fn no_seat() -> QueryError {
    let text = "terminating connection: too many clients, and this one has asked nothing yet";
    QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, text)
}
