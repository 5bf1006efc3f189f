//! Holds a connection until the head of its first request is complete. Connections that never send one, which may come
//! by the thousand, cost only a socket here, and a low-priority thread closes them, so real requests wait less. Bytes
//! that are no HTTP request are refused here.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use httparse::{EMPTY_HEADER, Request, Status};
use rustix::net::RecvFlags;
use strongback_store::let_run;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::socket::Socket;
use crate::process::connections::{Connection, ConnectionPlace, Connections, EndReason};
use crate::process::readers::{NICENESS, lower_priority};
use crate::server::stopped;

/// Bytes read at once.
const PIECE_BYTES: usize = 1024;
/// Max bytes of a head awaited here; the HTTP server reads a longer one, or refuses it as too long.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Max number of header fields parsed.
const FIELDS_MAX: usize = 100;
/// Max number of connections queued for the closing thread; further ones are closed where they end.
const CLOSING_MAX: usize = 256;

/// Classification of the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    /// A complete head, or one that the HTTP server will refuse.
    Head,
    /// An incomplete head.
    Part,
    /// No HTTP request, with the reason.
    Other(httparse::Error),
}

/// The entry stage of connections.
#[derive(Debug)]
pub(super) struct Door {
    connections: Arc<Connections>,
    closing: SyncSender<std::net::TcpStream>,
}

impl Door {
    /// Starts the closing thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn open(connections: Arc<Connections>) -> std::io::Result<Door> {
        let (closing, ended) = sync_channel(CLOSING_MAX);
        let_run(std::thread::Builder::new().name("closer".to_owned()).spawn(move || close(&ended))?);
        Ok(Door { connections, closing })
    }

    /// Waits for the head of a first request. Returns `None` if the connection ended or the server stops.
    pub(super) async fn pass(
        &self,
        stream: TcpStream,
        place: ConnectionPlace,
        stopping: &mut watch::Receiver<bool>,
    ) -> Option<Socket> {
        let head = tokio::select! {
            head = self.first_head(&stream, place.connection()) => head,
            () = place.connection().ended() => None,
            () = stopped(stopping) => None,
        };
        match head {
            Some(head) => Some(Socket::new(stream, head, place)),
            None => {
                if let Ok(stream) = stream.into_std() {
                    // A full queue returns the stream, which is then closed here.
                    let _ = self.closing.try_send(stream);
                }
                None
            }
        }
    }

    /// Reads until the head is complete. Returns `None` if the client has gone or does not speak HTTP.
    async fn first_head(&self, stream: &TcpStream, connection: &Connection) -> Option<Vec<u8>> {
        let mut head = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        // Bytes that arrived before the accept are readable although readiness has not been reported yet.
        let came = rustix::net::recv(stream, &mut piece, RecvFlags::DONTWAIT);
        let mut read = came.map(|(count, _)| count).map_err(std::io::Error::from);
        loop {
            match read {
                Ok(0) => return None,
                Ok(count) => {
                    connection.received(count);
                    head.extend_from_slice(&piece[..count]);
                    match beginning_of(&head) {
                        Beginning::Head => return Some(head),
                        Beginning::Part if head.len() >= HEAD_BYTES_MAX => return Some(head),
                        Beginning::Part => {}
                        Beginning::Other(why) => {
                            self.connections.count(EndReason::NotHttp);
                            // The socket has room for it, as nothing was sent before.
                            let _ = stream.try_write(refusal(why).as_bytes());
                            return None;
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            stream.readable().await.ok()?;
            read = stream.try_read(&mut piece);
        }
    }
}

/// Closes ended connections; closing is half the cost of a silent connection.
fn close(ended: &Receiver<std::net::TcpStream>) {
    lower_priority(NICENESS, "ended connections");
    ended.iter().for_each(drop);
}

/// Classifies the first bytes of a connection.
fn beginning_of(bytes: &[u8]) -> Beginning {
    match Request::new(&mut [EMPTY_HEADER; FIELDS_MAX]).parse(bytes) {
        Ok(Status::Partial) => Beginning::Part,
        Ok(Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => Beginning::Head,
        Err(why) => Beginning::Other(why),
    }
}

/// Returns the response to a client that does not speak HTTP/1.
fn refusal(why: httparse::Error) -> String {
    let body = format!(
        "{{\"error\":\"this port speaks HTTP/1.1, and this is not an HTTP request: {why}\",\"code\":\"bad_request\"}}\n"
    );
    format!(
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_a_request_and_what_does_not() {
        let request = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!((0..request.len()).all(|end| beginning_of(&request[..end]) == Beginning::Part));
        assert_eq!(beginning_of(request), Beginning::Head);
        for whole in ["GET / HTTP/1.1\n\n", "POST /write HTTP/1.1\r\nContent-Length: 100\r\n\r\nm x="] {
            assert_eq!(beginning_of(whole.as_bytes()), Beginning::Head, "{whole:?}");
        }
        for other in ["\x16\x03\x01", "m x=1\n", "\0\0\0\x08\x04\u{d2}", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let Beginning::Other(why) = beginning_of(other.as_bytes()) else { panic!("{other:?}") };
            let refusal = refusal(why);
            let (head, body) = refusal.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{refusal}");
            let said: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!(said["error"].as_str().unwrap().contains(&why.to_string()), "{refusal}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(beginning_of(many.as_bytes()), Beginning::Head, "an answer says that these are too many");
    }
}
