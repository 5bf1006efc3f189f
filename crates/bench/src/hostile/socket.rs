//! Sockets of hostile clients, with bounded waits.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::sys::socket::{setsockopt, sockopt};

/// Max time for one read or write.
const PATIENCE: Duration = Duration::from_secs(2);
/// Max time to read available data.
const READING: Duration = Duration::from_secs(10);
/// Bytes of a receive buffer that soon fills when it is not read.
const SMALL_BUFFER: usize = 4096;

/// Connects; with `is_small`, uses a receive buffer that soon fills.
pub(super) fn connect(address: SocketAddr, is_small: bool) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if is_small {
        setsockopt(&stream, sockopt::RcvBuf, &SMALL_BUFFER)?;
    }
    Ok(stream)
}

/// Opens up to `count` connections that begin with the bytes from `begin`; stops early if one is refused.
pub(super) fn many(address: SocketAddr, count: usize, mut begin: impl FnMut(usize) -> Vec<u8>) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for number in 0..count {
        let Ok(mut stream) = connect(address, true) else { break };
        // A connection that is closed at once was refused, which is allowed.
        let _ = stream.write_all(&begin(number));
        streams.push(stream);
    }
    streams
}

/// Sends bytes a few at a time until the time is over or the server closes the connection.
pub(super) fn trickle(mut stream: TcpStream, bytes: &[u8], rng: &mut Rng, time: Duration) {
    let until = Instant::now() + time;
    for piece in bytes.chunks(rng.usize(1..8)) {
        if Instant::now() > until || stream.write_all(piece).is_err() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(rng.u64(..200)));
    }
}

/// Reads available bytes, up to a bound.
pub(super) fn read_some(stream: &mut TcpStream, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 16 << 10];
    let begin = Instant::now();
    // A live server keeps sending.
    while all.len() < most && begin.elapsed() < READING {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => all.extend_from_slice(&part[..count]),
        }
    }
    all
}

/// Changes bytes at random, for an almost valid message.
pub(super) fn spoil(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..6) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u32(..4) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes.insert(at, rng.u8(..)),
            2 => {
                bytes.remove(at);
            }
            _ => bytes.truncate(at),
        }
    }
}
