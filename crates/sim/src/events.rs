//! Sender of countdown events to `POST /api/events`, on a thread of its own, so that a slow page server never delays
//! frames.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::countdown::PadEvent;

/// Max time to wait for the server's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends events until the channel closes. Returns how many were accepted and how many were not.
pub(crate) fn send_events(http: SocketAddr, start_ns: i64, events: &Receiver<PadEvent>) -> (u64, u64) {
    let (mut sent, mut failed) = (0, 0);
    let mut told = false;
    for event in events {
        match post(http, start_ns, &event) {
            Ok(()) => sent += 1,
            Err(error) => {
                failed += 1;
                if !told {
                    eprintln!("event {:?} not taken by http://{http}/api/events: {error}", event.text);
                    told = true;
                }
            }
        }
    }
    (sent, failed)
}

fn post(http: SocketAddr, start_ns: i64, event: &PadEvent) -> std::io::Result<()> {
    let body = serde_json::json!({
        "time": (start_ns + event.time_ns).to_string(),
        "text": event.text,
        "level": event.level.name(),
    })
    .to_string();
    let mut stream = TcpStream::connect_timeout(&http, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "POST /api/events HTTP/1.1\r\nHost: {http}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    // "HTTP/1.1 200": only the status matters.
    let mut status = [0u8; 12];
    stream.read_exact(&mut status)?;
    match &status {
        [b'H', b'T', b'T', b'P', b'/', _, _, _, b' ', b'2', _, _] => Ok(()),
        _ => Err(std::io::Error::other(String::from_utf8_lossy(&status).into_owned())),
    }
}
