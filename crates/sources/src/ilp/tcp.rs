//! Line protocol over TCP: a thread a connection, bounded in number. The protocol has no answers: a bad line is
//! counted and logged, and the connection lives. While the store pushes back, nothing is read, and TCP makes the
//! sender wait.

use std::io::{PipeReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use hashbrown::HashMap;
use memchr::memchr;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;

use super::parser::{Fault, Precision};
use super::writer::{Origin, WriteReport, Writer};
use super::{Ingress, MAX_LINE_BYTES};
use crate::clock::Now;
use crate::counts::{Sample, add};
use crate::throttle::{Throttle, hex_sample};
use crate::worker::{Worker, readable_or_woken, woken_within};

/// Bytes a connection's buffer has at first.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// Bytes it grows to where a sender keeps it full.
const FULL_BUFFER_BYTES: usize = 512 << 10;
/// Bytes read beyond the longest line before it is given up.
const SLACK_BYTES: usize = 64 << 10;
/// A peer that is gone without a word is noticed after 60 + 3 × 10 seconds.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;
/// How long to wait before accepting again when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener at work. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    acceptor: Worker,
    connections: Arc<Connections>,
}

/// Connections by number.
type Connections = Mutex<HashMap<u64, Connection>>;

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    /// When it last sent something, nanoseconds since 1970 UTC.
    last_read: Arc<AtomicI64>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// Where the address cannot be bound or no thread be had.
    pub fn start(address: SocketAddr, ingress: Arc<Ingress>, now: Now) -> std::io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Connections::default());
        let accepting = Acceptor {
            ingress,
            now,
            connections: Arc::clone(&connections),
            log: Arc::new(Mutex::new(Throttle::new(3, 10_000_000_000))),
            next_number: 0,
        };
        let acceptor =
            Worker::start("ilp-accept".to_owned(), move |wait| accepting.accept_until_woken(&listener, wait))?;
        tracing::info!(%address, "taking line protocol");
        Ok(Listener { address, acceptor, connections })
    }

    /// Takes no more connections, reads what the kernel still has of the open ones, then ends them.
    pub fn stop(&mut self) {
        self.acceptor.stop();
        let open: Vec<Connection> = self.connections.lock().drain().map(|(_, c)| c).collect();
        for connection in &open {
            // Its reader sees the end after what was received already.
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        for mut connection in open {
            if connection.thread.take().is_some_and(|t| t.join().is_err()) {
                tracing::error!(peer = %connection.peer, "a line protocol connection panicked");
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Acceptor {
    ingress: Arc<Ingress>,
    now: Now,
    connections: Arc<Connections>,
    log: Arc<Mutex<Throttle>>,
    next_number: u64,
}

impl Acceptor {
    fn accept_until_woken(mut self, listener: &TcpListener, wait: &PipeReader) {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    if readable_or_woken([listener.as_fd()], wait, None) {
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.warn(|held| tracing::error!(%error, held, "cannot accept a line protocol connection"));
                    if woken_within(wait, ACCEPT_PAUSE) {
                        return;
                    }
                }
            }
        }
    }

    fn warn(&self, say: impl FnOnce(u64)) {
        let held = self.log.lock().pass((self.now)());
        if let Some(held) = held {
            say(held);
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let counts = Arc::clone(self.ingress.counts());
        if !self.make_room() {
            add(&counts.connections_refused, 1);
            self.warn(|held| {
                let most = self.ingress.config().max_connections;
                tracing::warn!(%peer, held, most, "line protocol connection refused: too many are open");
            });
            return;
        }
        match self.spawn(stream, peer) {
            Ok(()) => {
                add(&counts.connections_total, 1);
            }
            Err(error) => {
                add(&counts.connections_refused, 1);
                self.warn(|held| tracing::error!(%peer, held, %error, "line protocol connection refused"));
            }
        }
    }

    /// Whether one more connection may be open; closes the longest silent one for it if need be.
    fn make_room(&self) -> bool {
        let mut open = self.connections.lock();
        if open.len() < self.ingress.config().max_connections {
            return true;
        }
        let Some((number, last_read)) =
            open.iter().map(|(n, c)| (*n, c.last_read.load(Relaxed))).min_by_key(|(_, t)| *t)
        else {
            return false;
        };
        let silent_ns = (self.now)().saturating_sub(last_read);
        if silent_ns / 1_000_000_000 < self.ingress.config().idle_after_s as i64 {
            return false;
        }
        if let Some(silent) = open.remove(&number) {
            let _ = silent.stream.shutdown(Shutdown::Both);
            add(&self.ingress.counts().connections_evicted, 1);
            tracing::warn!(peer = %silent.peer, silent_s = silent_ns / 1_000_000_000, "silent connection closed to make room");
        }
        true
    }

    fn spawn(&mut self, stream: TcpStream, peer: SocketAddr) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
        setsockopt(&stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
        setsockopt(&stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
        let number = self.next_number;
        self.next_number += 1;
        let last_read = Arc::new(AtomicI64::new((self.now)()));
        let mut reader = Reader {
            stream: stream.try_clone()?,
            peer,
            writer: self.ingress.writer(),
            ingress: Arc::clone(&self.ingress),
            now: Arc::clone(&self.now),
            last_read: Arc::clone(&last_read),
            log: Arc::clone(&self.log),
            buffer: vec![0; FIRST_BUFFER_BYTES],
            filled: 0,
            skipping: false,
            lines_before: 0,
        };
        let connections = Arc::clone(&self.connections);
        // The lock is held until the connection is entered, so that a thread that ends at once finds its entry.
        let mut open = self.connections.lock();
        let thread = std::thread::Builder::new().name(format!("ilp-{number}")).spawn(move || {
            add(&reader.ingress.counts().connections, 1);
            reader.read_to_end();
            reader.ingress.counts().connections.fetch_sub(1, Relaxed);
            connections.lock().remove(&number);
        })?;
        open.insert(number, Connection { stream, peer, last_read, thread: Some(thread) });
        Ok(())
    }
}

/// Reads one connection.
struct Reader {
    stream: TcpStream,
    peer: SocketAddr,
    writer: Writer,
    ingress: Arc<Ingress>,
    now: Now,
    last_read: Arc<AtomicI64>,
    log: Arc<Mutex<Throttle>>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that hold the beginning of a line.
    filled: usize,
    /// Within a line that was too long: everything up to its line feed is dropped.
    skipping: bool,
    /// Line feeds before the buffer.
    lines_before: u64,
}

impl Reader {
    fn read_to_end(&mut self) {
        loop {
            let read = match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "line protocol connection lost");
                    break;
                }
            };
            let receive_time = (self.now)();
            self.last_read.store(receive_time, Relaxed);
            self.take(read, receive_time);
        }
        // A line without its line feed may be cut in the middle of a value.
        if !self.skipping && self.buffer[..self.filled].iter().any(|b| !b.is_ascii_whitespace()) {
            self.reject_pending(Fault::Truncated);
        }
    }

    /// Takes `read` bytes that were appended to the buffer.
    fn take(&mut self, read: usize, receive_time: i64) {
        let counts = Arc::clone(self.ingress.counts());
        counts.last_receive_time.store(receive_time, Relaxed);
        add(&counts.bytes, read as u64);
        let from = self.filled;
        self.filled += read;
        let Some(n) = memchr(b'\n', &self.buffer[from..self.filled]) else {
            // No line ends here: nothing to parse yet.
            self.bound_pending();
            return;
        };
        if self.skipping {
            self.skipping = false;
            self.lines_before += 1;
            self.shift(from + n + 1);
        }
        let full = self.filled == self.buffer.len();
        let mut report = WriteReport::default();
        let unit_ns = Precision::Nanoseconds.unit_ns();
        let consumed =
            self.writer.write(&self.buffer[..self.filled], Origin::Connection, unit_ns, receive_time, &mut report);
        counts.add_report(0, &report, &self.buffer[..consumed], receive_time, Some(self.peer));
        if let Some(error) = &report.first_error {
            let held = self.log.lock().pass(receive_time);
            if let Some(held) = held {
                let bytes = &self.buffer[error.offset.min(consumed)..consumed];
                tracing::warn!(
                    peer = %self.peer, line = self.lines_before + error.line, column = error.column,
                    rejected = report.rejected, held, sample = hex_sample(bytes),
                    "line rejected: {}", error.message
                );
            }
        }
        self.lines_before += memchr::memchr_iter(b'\n', &self.buffer[..consumed]).count() as u64;
        self.shift(consumed);
        if full && self.buffer.len() < FULL_BUFFER_BYTES {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        self.bound_pending();
    }

    /// Drops the first `n` bytes of the buffer.
    fn shift(&mut self, n: usize) {
        self.buffer.copy_within(n..self.filled, 0);
        self.filled -= n;
    }

    /// Gives up a line that is too long, and makes room for more of one that is not.
    fn bound_pending(&mut self) {
        if self.skipping {
            self.filled = 0;
        } else if self.filled > MAX_LINE_BYTES {
            self.reject_pending(Fault::TooLong);
            self.skipping = true;
            self.filled = 0;
        }
        if self.filled == self.buffer.len() {
            let grown = (self.buffer.len() * 2).min(MAX_LINE_BYTES + SLACK_BYTES);
            self.buffer.resize(grown, 0);
        } else if self.buffer.len() > FULL_BUFFER_BYTES && self.filled < FIRST_BUFFER_BYTES {
            self.buffer.truncate(FULL_BUFFER_BYTES);
            self.buffer.shrink_to_fit();
        }
    }

    /// Counts the line at the start of the buffer as rejected.
    fn reject_pending(&mut self, fault: Fault) {
        let counts = self.ingress.counts();
        add(&counts.received, 1);
        let now = (self.now)();
        let sample = || Sample::new(&fault, &self.buffer[..self.filled]).sent_by(Some(self.peer));
        counts.rejected.add(fault.reason(), 1, now, sample);
        let held = self.log.lock().pass(now);
        if let Some(held) = held {
            tracing::warn!(
                peer = %self.peer, line = self.lines_before + 1, held,
                sample = hex_sample(&self.buffer[..self.filled]), "line rejected: {fault}"
            );
        }
    }
}
