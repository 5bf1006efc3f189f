//! Where a connection waits until the head of its first request is whole. Those that come by the thousand and never send
//! one are nothing but a socket there, and a thread of lower priority closes them: a request behind them waits less.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use httparse::{EMPTY_HEADER, Request, Status};
use strongback_store::let_run;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connections::{Connection, Place};
use super::socket::Socket;
use crate::readers::{NICENESS, lower_priority};
use crate::server::stopped;

/// Bytes read at once.
const PIECE_BYTES: usize = 1024;
/// Bytes of a head that are waited for here; what answers requests takes a longer one, or says that it is too long.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Header fields that are looked at, as many as a request may have.
const FIELDS_MAX: usize = 100;
/// Connections that wait to be closed; further ones are closed where they end.
const CLOSING_MAX: usize = 256;

/// The way in.
#[derive(Debug)]
pub(super) struct Door {
    closing: SyncSender<std::net::TcpStream>,
}

impl Door {
    /// Opens it.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub(super) fn open() -> std::io::Result<Door> {
        let (closing, ended) = sync_channel(CLOSING_MAX);
        let_run(std::thread::Builder::new().name("closer".to_owned()).spawn(move || close(&ended))?);
        Ok(Door { closing })
    }

    /// Waits for the head of a first request; none: the connection ended, or the server stops.
    pub(super) async fn pass(
        &self,
        stream: TcpStream,
        place: Place,
        stopping: &mut watch::Receiver<bool>,
    ) -> Option<Socket> {
        let head = tokio::select! {
            head = first_head(&stream, place.connection()) => head,
            () = place.connection().ended() => None,
            () = stopped(stopping) => None,
        };
        match head {
            Some(head) => Some(Socket::new(stream, head, place)),
            None => {
                if let Ok(stream) = stream.into_std() {
                    // Where too many wait it comes back, and is closed here.
                    let _ = self.closing.try_send(stream);
                }
                None
            }
        }
    }
}

/// Closes what ended: half of what a connection costs that says nothing.
fn close(ended: &Receiver<std::net::TcpStream>) {
    lower_priority(NICENESS, "ended connections");
    ended.iter().for_each(drop);
}

/// Reads until the head of a request is whole, or is none; none: the client has gone.
async fn first_head(stream: &TcpStream, connection: &Connection) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        stream.readable().await.ok()?;
        let mut piece = [0; PIECE_BYTES];
        match stream.try_read(&mut piece) {
            Ok(0) => return None,
            Ok(count) => {
                connection.received(count);
                head.extend_from_slice(&piece[..count]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return None,
        }
        if head.len() >= HEAD_BYTES_MAX || !is_begun(&head) {
            return Some(head);
        }
    }
}

/// Whether bytes are the beginning of a request's head.
fn is_begun(bytes: &[u8]) -> bool {
    matches!(Request::new(&mut [EMPTY_HEADER; FIELDS_MAX]).parse(bytes), Ok(Status::Partial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_heads_and_what_is_none_pass() {
        let request = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!((0..request.len()).all(|end| is_begun(&request[..end])));
        assert!(!is_begun(request));
        for other in [
            "GET / HTTP/1.1\n\n",
            "POST /write HTTP/1.1\r\nContent-Length: 100\r\n\r\nm x=",
            "\x16\x03\x01",
            "m x=1\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert!(!is_begun(other.as_bytes()), "{other:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(!is_begun(many.as_bytes()), "an answer says that these are too many");
    }
}
