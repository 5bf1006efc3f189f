//! A client connection: its socket, with buffers that count as memory.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{QueryError, sqlstate};
use crate::running::memory::Share;
use crate::wire::message;

/// Maximum time for a message to arrive after its first byte.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for a client to accept part of the output.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a message that do not count as session memory.
pub(super) const MESSAGE_BYTES_FREE: usize = 64 << 10;

/// A client with its buffers.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) input: BytesMut,
    pub(crate) output: BytesMut,
    /// Memory for wide rows in the output.
    pub(crate) room: Share,
    /// Memory for its message.
    pub(crate) held: Share,
}

impl Client {
    /// Reads the next message and returns its tag and body. Returns `None` if the client has disconnected.
    pub(crate) async fn message(&mut self) -> Result<Option<(u8, BytesMut)>, Startup> {
        if !self.fill(1).await? {
            return Ok(None);
        }
        let rest = self.message_of(message::MESSAGE_BYTES_MAX);
        tokio::time::timeout(MESSAGE_TIMEOUT, rest).await.unwrap_or_else(|_| {
            let text = format!("a message did not arrive within {} s", MESSAGE_TIMEOUT.as_secs());
            Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text).into())
        })
    }

    pub(super) async fn message_of(&mut self, bytes_max: usize) -> Result<Option<(u8, BytesMut)>, Startup> {
        if !self.fill(5).await? {
            return Ok(None);
        }
        let size = u32::from_be_bytes([self.input[1], self.input[2], self.input[3], self.input[4]]) as usize;
        if !(4..=bytes_max).contains(&size) {
            let text = format!("invalid message length {size}, at most {bytes_max}");
            return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text).into());
        }
        if !self.fill(size + 1).await? {
            return Ok(None);
        }
        let tag = self.input[0];
        let mut message = self.input.split_to(size + 1);
        Ok(Some((tag, message.split_off(5))))
    }

    /// Reads until `size` bytes are available. Returns `false` if the client has disconnected.
    pub(super) async fn fill(&mut self, size: usize) -> Result<bool, Startup> {
        while self.input.len() < size {
            // Grows with the bytes received, not with the stated length.
            if self.socket.read_buf(&mut self.input).await? == 0 {
                return Ok(false);
            }
            if !self.held.try_resize(self.input.len()) {
                let text = format!("no room for a message of {size} bytes beside those of other sessions");
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into());
            }
        }
        Ok(true)
    }

    /// Releases the memory of a message once it is served.
    pub(crate) fn served(&mut self) {
        if self.input.is_empty() && self.input.capacity() > MESSAGE_BYTES_FREE {
            self.input = BytesMut::with_capacity(8 << 10);
        }
        // Shrinking always succeeds.
        let _ = self.held.try_resize(self.input.len().min(self.held.bytes()));
    }

    /// Writes the buffered output. Cancel-safe: written bytes are removed from the buffer.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let written = tokio::time::timeout(WRITE_TIMEOUT, self.socket.write_buf(&mut self.output)).await;
            if written.map_err(|_| io::ErrorKind::TimedOut)?? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.sent();
        Ok(())
    }

    /// Releases the memory of sent output.
    pub(crate) fn sent(&mut self) {
        if self.room.bytes() > 0 {
            self.output = BytesMut::new();
            // Shrinking always succeeds.
            let _ = self.room.try_resize(0);
        }
    }
}

/// Reason why a connection ends before its first query or between two.
pub(crate) enum Startup {
    /// An error to send to the client.
    Refused(QueryError),
    /// A socket error.
    Io(io::Error),
}

impl From<QueryError> for Startup {
    fn from(error: QueryError) -> Self {
        Startup::Refused(error)
    }
}

impl From<io::Error> for Startup {
    fn from(error: io::Error) -> Self {
        Startup::Io(error)
    }
}
