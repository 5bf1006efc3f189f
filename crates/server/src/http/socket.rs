//! The socket of a connection, which records received bytes and whether the client takes sent ones.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::process::connections::{Connection, ConnectionPlace};

/// A socket with its connection slot, held until it is dropped, upgraded or not.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    /// Bytes already read from it.
    head: Bytes,
    place: ConnectionPlace,
}

impl Socket {
    /// Wraps a connection from which `head` was already read.
    pub(super) fn new(stream: TcpStream, head: Vec<u8>, place: ConnectionPlace) -> Socket {
        Socket { stream, head: head.into(), place }
    }

    /// Returns the connection of the socket.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.place.connection()
    }

    fn note(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.place.connection().wrote(wrote.is_ready());
        wrote
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.head.is_empty() {
            let count = self.head.len().min(buffer.remaining());
            buffer.put_slice(&self.head[..count]);
            self.head.advance(count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let came = buffer.filled().len() - before;
        if came > 0 {
            self.place.connection().received(came);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.note(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
