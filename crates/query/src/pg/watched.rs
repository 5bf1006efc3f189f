//! Reasons why a message was not served, and statements that are watched together with the socket of their client.

use std::io;

use tokio::net::TcpStream;

use crate::error::{QueryError, sqlstate};
use crate::running::watched::Halt;
pub(super) use crate::running::watched::{Watched, stopping};

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

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Error(error) => Failure::Error(error),
            Halt::Stopping(error) => Failure::Fatal(error),
            Halt::Gone => Failure::Io(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Watched {
    pub(super) async fn run<T>(&self, socket: &TcpStream, work: impl Future<Output = T>) -> Result<T, Failure> {
        Ok(self.until(gone(socket), work).await?)
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

/// Returns the error for a client whose seat was given to another one.
pub(super) fn no_seat() -> QueryError {
    let text = "terminating connection: too many clients, and this one has asked nothing yet";
    QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, text)
}
