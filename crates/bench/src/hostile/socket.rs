//! Sockets of hostile clients: they wait for nothing longer than the server lets them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::sys::socket::{setsockopt, sockopt};

/// Longest wait for one read or write.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time to read what comes.
const READING: Duration = Duration::from_secs(10);
/// Bytes of a receive buffer that is soon full when nobody reads.
const SMALL_BUFFER: usize = 4096;

/// Connects; `is_small`: with a receive buffer that is soon full.
pub(super) fn connect(address: SocketAddr, is_small: bool) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if is_small {
        setsockopt(&stream, sockopt::RcvBuf, &SMALL_BUFFER)?;
    }
    Ok(stream)
}

/// Opens up to `count` connections that begin with what `begin` makes; ends early where one is refused.
pub(super) fn many(address: SocketAddr, count: usize, mut begin: impl FnMut(usize) -> Vec<u8>) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for number in 0..count {
        let Ok(mut stream) = connect(address, true) else { break };
        // One that is closed at once was refused, as it may be.
        let _ = stream.write_all(&begin(number));
        streams.push(stream);
    }
    streams
}

/// Sends bytes a few at a time until the time is over or the server has had enough.
pub(super) fn trickle(mut stream: TcpStream, bytes: &[u8], rng: &mut Rng, time: Duration) {
    let until = Instant::now() + time;
    for piece in bytes.chunks(rng.usize(1..8)) {
        if Instant::now() > until || stream.write_all(piece).is_err() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(rng.u64(..200)));
    }
}

/// Reads what there is, up to a bound.
pub(super) fn read_some(stream: &mut TcpStream, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 16 << 10];
    let begin = Instant::now();
    // A live server says something again and again.
    while all.len() < most && begin.elapsed() < READING {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => all.extend_from_slice(&part[..count]),
        }
    }
    all
}

/// Changes bytes at random: a message that is nearly right.
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
