//! Line protocol over TCP, with one thread per connection and a bounded number of connections. The protocol has no
//! responses: a bad line is counted and logged, and the connection stays open. While the store applies backpressure,
//! nothing is read, and TCP makes the sender wait. One address may not use all connections. Connections that never had
//! a line stored, then the longest silent ones, make room for new ones. After a burst, new connections are accepted at
//! a limited rate, so that thousands at once do not starve the rest of the server. If a token is required, the first
//! line must be a comment with it, or the connection is closed.

use std::io::{PipeReader, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use memchr::{memchr, memchr_iter};
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use parking_lot::Mutex;
use strongback_store::let_run;

use super::parser::{Fault, Precision};
use super::writer::{Origin, WriteReport, Writer};
use super::{Ingress, LINE_BYTES_MAX};
use crate::clock::Now;
use crate::counts::{RejectedSample, add};
use crate::throttle::{Throttle, hex_sample};
use crate::worker::{Worker, readable_or_woken, woken_within};

/// Initial size of a connection's buffer.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// Size of the buffer for a sender that keeps it full.
const FULL_BUFFER_BYTES: usize = 512 << 10;
/// Consecutive reads that leave at least half of an initial buffer empty, after which a larger one is released.
const SMALL_READS: u32 = 64;
/// Bytes read beyond the maximum line before it is given up.
const SLACK_BYTES: usize = 64 << 10;
/// Keepalive settings: a vanished peer is detected after 60 + 3 × 10 seconds.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;
/// Maximum length of the line with the token, in bytes.
const TOKEN_LINE_BYTES: usize = 4096;

/// Bytes looked through for the end of one line, over all reads, after which only a read that brings much more of the
/// line looks again. A string may hold line feeds, and a sender can put one into each of its packets.
const LOOKED_BYTES_MAX: usize = 16 << 20;
/// Part of a line by which it then has to grow.
const GROWTH_DIVISOR: usize = 8;
/// Prefix of the token.
const TOKEN: &[u8] = b"# token ";
/// Pause before accepting again when the system is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum connections waiting to be accepted.
const BACKLOG: i32 = 1024;
/// Connections accepted in a burst, and the interval between further ones. With a thread each, thousands of connections
/// at once would starve everything else of CPU time.
const ACCEPT_BURST: u32 = 16;
const ACCEPT_PERIOD: Duration = Duration::from_millis(2);

/// A running listener. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    /// Local address.
    pub address: SocketAddr,
    acceptor: Worker,
    connections: Arc<Connections>,
}

/// Connections by number.
type Connections = Mutex<HashMap<u64, LineConnection>>;

#[derive(Debug)]
struct LineConnection {
    stream: TcpStream,
    peer: SocketAddr,
    /// Time of the last read, in nanoseconds since 1970 UTC.
    last_read: Arc<AtomicI64>,
    /// Whether any of its lines was stored.
    wrote: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on an address; port 0 selects a free port.
    ///
    /// # Errors
    /// If the address cannot be bound or the thread cannot be started.
    pub fn start(address: SocketAddr, ingress: Arc<Ingress>, now: Now) -> std::io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        // A second `listen` only changes the backlog.
        listen(&listener, Backlog::new(BACKLOG)?)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Connections::default());
        let accepting = Acceptor {
            ingress,
            now,
            connections: Arc::clone(&connections),
            log: Arc::new(Mutex::new(Throttle::new(3, 10_000_000_000))),
            next_number: 0,
            pace: Pace::new(Instant::now()),
        };
        let acceptor =
            Worker::start("ilp-accept".to_owned(), move |wait| accepting.accept_until_woken(&listener, wait))?;
        tracing::info!(%address, "taking line protocol");
        Ok(Listener { address, acceptor, connections })
    }

    /// Accepts no more connections, reads what the kernel still holds for the open ones, then closes them.
    pub fn stop(&mut self) {
        self.acceptor.stop();
        let open: Vec<LineConnection> = self.connections.lock().drain().map(|(_, c)| c).collect();
        for connection in &open {
            // Its reader sees the end of the stream after the bytes already received.
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
    pace: Pace,
}

/// Rate limit for accepting connections.
struct Pace {
    /// Accumulated time for later connections, at most that of a burst.
    saved: Duration,
    at: Instant,
}

impl Pace {
    const MOST: Duration = ACCEPT_PERIOD.saturating_mul(ACCEPT_BURST);

    fn new(now: Instant) -> Pace {
        Pace { saved: Pace::MOST, at: now }
    }

    /// Uses up the time of one connection. Returns how long to wait before the next.
    fn take(&mut self, now: Instant) -> Duration {
        let saved = self.saved.saturating_add(now.saturating_duration_since(self.at)).min(Pace::MOST);
        self.saved = saved.saturating_sub(ACCEPT_PERIOD);
        self.at = now;
        ACCEPT_PERIOD.saturating_sub(self.saved)
    }
}

impl Acceptor {
    fn accept_until_woken(mut self, listener: &TcpListener, wait: &PipeReader) {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    self.admit(stream, peer);
                    // Connections may arrive faster than they are admitted.
                    if woken_within(wait, self.pace.take(Instant::now())) {
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    if readable_or_woken([listener.as_fd()], wait, None) {
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of file descriptors: close a silent connection to free one.
                    self.close_silent(&mut self.connections.lock(), None);
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
        if !self.make_room(peer.ip().to_canonical()) {
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

    /// Makes room for another connection of an address, by closing one that never wrote or the longest silent one if
    /// necessary. It is one of the same address if that has reached its limit. Returns whether there is room.
    fn make_room(&self, address: IpAddr) -> bool {
        let config = self.ingress.config();
        let mut open = self.connections.lock();
        let mine = open.values().filter(|c| c.peer.ip().to_canonical() == address).count();
        if mine >= config.max_connections_per_address {
            return self.close_silent(&mut open, Some(address));
        }
        open.len() < config.max_connections
            || self.close_silent(&mut open, Some(address))
            || self.close_silent(&mut open, None)
    }

    /// Closes the connection that may go first, of one address or of all. Returns `false` if there is none.
    fn close_silent(&self, open: &mut HashMap<u64, LineConnection>, address: Option<IpAddr>) -> bool {
        let now = (self.now)();
        let idle_ns =
            i64::try_from(self.ingress.config().idle_after_s).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
        let of = |c: &LineConnection| address.is_none_or(|address| c.peer.ip().to_canonical() == address);
        let silent = open.iter().filter(|(_, c)| of(c)).filter_map(|(number, c)| {
            let (wrote, last_read) = (c.wrote.load(Relaxed), c.last_read.load(Relaxed));
            let may_go = !wrote || now.saturating_sub(last_read) >= idle_ns;
            may_go.then_some((wrote, last_read, *number))
        });
        let Some((_, last_read, number)) = silent.min() else { return false };
        if let Some(mut silent) = open.remove(&number) {
            let _ = silent.stream.shutdown(Shutdown::Both);
            silent.thread.take().into_iter().for_each(let_run);
            add(&self.ingress.counts().connections_evicted, 1);
            let silent_s = now.saturating_sub(last_read) / 1_000_000_000;
            self.warn(
                |held| tracing::warn!(peer = %silent.peer, silent_s, held, "silent connection closed to make room"),
            );
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
        let wrote = Arc::new(AtomicBool::new(false));
        let mut reader = Reader::new(stream.try_clone()?, peer, Arc::clone(&self.ingress), Arc::clone(&self.now));
        (reader.last_read, reader.wrote) = (Arc::clone(&last_read), Arc::clone(&wrote));
        reader.log = Arc::clone(&self.log);
        let connections = Arc::clone(&self.connections);
        // Hold the lock until the connection is registered, so that a thread that ends at once finds its entry.
        let mut open = self.connections.lock();
        let thread = std::thread::Builder::new().name(format!("ilp-{number}")).spawn(move || {
            add(&reader.ingress.counts().connections, 1);
            reader.read_to_end();
            let counts = Arc::clone(reader.ingress.counts());
            // Free its memory before it counts as closed.
            drop(reader);
            counts.connections.fetch_sub(1, Relaxed);
            connections.lock().remove(&number);
        })?;
        open.insert(number, LineConnection { stream, peer, last_read, wrote, thread: Some(thread) });
        Ok(())
    }
}

/// Reader of one connection.
struct Reader {
    stream: TcpStream,
    peer: SocketAddr,
    writer: Writer,
    ingress: Arc<Ingress>,
    now: Now,
    last_read: Arc<AtomicI64>,
    wrote: Arc<AtomicBool>,
    /// Whether it may write, because no token is required or a valid one was sent.
    is_known: bool,
    log: Arc<Mutex<Throttle>>,
    /// Buffer of [`FIRST_BUFFER_BYTES`] plus the reserved bytes.
    buffer: Vec<u8>,
    /// Bytes reserved for larger reads.
    speed_bytes: usize,
    /// Bytes reserved for an incomplete line.
    line_bytes: usize,
    /// Consecutive small reads.
    small_reads: u32,
    /// Bytes of the buffer that hold the start of a line.
    filled: usize,
    /// Whether a line was given up, so that everything up to its line feed is dropped.
    skipping: bool,
    /// Bytes looked through for the end of the line in the buffer.
    looked_bytes: usize,
    /// Bytes of the line at which to look again.
    look_at_bytes: usize,
    /// Number of line feeds before the buffer.
    lines_before: u64,
}

/// Compares in constant time, so that timing does not reveal where they differ.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differs = shown.iter().zip(token).fold(0, |differs, (a, b)| differs | (a ^ b));
    shown.len() == token.len() && std::hint::black_box(differs) == 0
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ingress.release(self.speed_bytes + self.line_bytes);
    }
}

impl Reader {
    fn new(stream: TcpStream, peer: SocketAddr, ingress: Arc<Ingress>, now: Now) -> Reader {
        Reader {
            stream,
            peer,
            writer: ingress.writer(),
            is_known: ingress.config().token.is_none(),
            ingress,
            now,
            last_read: Arc::default(),
            wrote: Arc::default(),
            log: Arc::new(Mutex::new(Throttle::new(3, 10_000_000_000))),
            buffer: vec![0; FIRST_BUFFER_BYTES],
            speed_bytes: 0,
            line_bytes: 0,
            small_reads: 0,
            filled: 0,
            skipping: false,
            looked_bytes: 0,
            look_at_bytes: 0,
            lines_before: 0,
        }
    }

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
            if !self.take(read, receive_time) {
                return;
            }
        }
        self.take_rest();
    }

    /// Processes the rest of the buffer when the connection ended.
    fn take_rest(&mut self) {
        if self.skipping {
            return;
        }
        if self.is_known && memchr(b'\n', &self.buffer[..self.filled]).is_some() {
            // An unclosed string contains the lines after it.
            let receive_time = self.last_read.load(Relaxed);
            self.write(Origin::ConnectionEnd, receive_time);
        }
        // A line without its line feed may be cut within a value.
        if self.buffer[..self.filled].iter().any(|b| !b.is_ascii_whitespace()) {
            self.reject_pending(Fault::Truncated, 1);
        }
    }

    /// Processes `read` bytes appended to the buffer. Returns whether to continue reading.
    fn take(&mut self, read: usize, receive_time: i64) -> bool {
        if !self.is_known {
            self.filled += read;
            match self.take_token() {
                None => return true,
                Some(false) => return false,
                // Treat bytes after the token as if received now.
                Some(true) => {
                    let rest = std::mem::take(&mut self.filled);
                    return rest == 0 || self.take(rest, receive_time);
                }
            }
        }
        let counts = Arc::clone(self.ingress.counts());
        counts.last_receive_time.store(receive_time, Relaxed);
        add(&counts.bytes, read as u64);
        let from = self.filled;
        self.filled += read;
        self.small_reads = if self.filled <= FIRST_BUFFER_BYTES / 2 { self.small_reads.saturating_add(1) } else { 0 };
        let Some(n) = memchr(b'\n', &self.buffer[from..self.filled]) else {
            // No line ends here, so there is nothing to parse yet.
            self.bound_pending();
            return true;
        };
        if self.skipping {
            self.skipping = false;
            self.lines_before += 1;
            self.shift(from + n + 1);
        }
        let full = self.filled == self.buffer.len();
        if !full && self.filled < self.look_at_bytes {
            self.bound_pending();
            return true;
        }
        let before = self.filled;
        self.write(Origin::Connection, receive_time);
        // If bytes were consumed, the buffer holds another line.
        self.looked_bytes = if self.filled < before { 0 } else { self.looked_bytes + before };
        self.look_at_bytes = match self.looked_bytes > LOOKED_BYTES_MAX {
            true => self.filled + self.filled / GROWTH_DIVISOR,
            false => 0,
        };
        self.bound_pending();
        if full {
            self.grow_for_speed();
        }
        true
    }

    /// Writes the lines in the buffer and drops the consumed bytes.
    fn write(&mut self, origin: Origin, receive_time: i64) {
        let counts = Arc::clone(self.ingress.counts());
        let mut report = WriteReport::default();
        let unit_ns = Precision::Nanoseconds.unit_ns();
        let consumed = self.writer.write(&self.buffer[..self.filled], origin, unit_ns, receive_time, &mut report);
        counts.add_report(0, &report, &self.buffer[..consumed], receive_time, Some(self.peer));
        if report.accepted() > 0 {
            self.wrote.store(true, Relaxed);
        }
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
        self.lines_before += memchr_iter(b'\n', &self.buffer[..consumed]).count() as u64;
        self.shift(consumed);
    }

    /// Checks the token at the start of the buffer. Returns `None` while its line is incomplete, `Some(false)` if it is
    /// wrong.
    fn take_token(&mut self) -> Option<bool> {
        let Some(end) = memchr(b'\n', &self.buffer[..self.filled]) else {
            return (self.filled > TOKEN_LINE_BYTES).then(|| self.refuse());
        };
        let line = self.buffer[..end].trim_ascii_end();
        let token = self.ingress.config().token.as_deref().unwrap_or_default();
        if !line.strip_prefix(TOKEN).is_some_and(|shown| is_same(shown, token.as_bytes())) {
            return Some(self.refuse());
        }
        self.is_known = true;
        self.lines_before += 1;
        self.shift(end + 1);
        Some(true)
    }

    /// Closes a connection that did not send the token.
    fn refuse(&self) -> bool {
        add(&self.ingress.counts().connections_refused, 1);
        let held = self.log.lock().pass((self.now)());
        if let Some(held) = held {
            tracing::warn!(peer = %self.peer, held, "line protocol connection refused: its first line is not `# token TOKEN`");
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        false
    }

    /// Enlarges the buffer of a sender that keeps it full, if memory is available.
    fn grow_for_speed(&mut self) {
        let bytes = FIRST_BUFFER_BYTES + self.speed_bytes;
        if bytes < FULL_BUFFER_BYTES && self.ingress.reserve_for_speed(bytes) {
            self.speed_bytes += bytes;
            self.fit_buffer();
        }
    }

    /// Resizes the buffer to the bytes reserved for it.
    fn fit_buffer(&mut self) {
        let bytes = FIRST_BUFFER_BYTES + self.speed_bytes + self.line_bytes;
        self.buffer.resize(bytes, 0);
        self.buffer.shrink_to_fit();
    }

    /// Releases memory that is no longer needed: that of a completed line, or of a sender that is no longer fast.
    fn give_back(&mut self) {
        if self.filled >= FIRST_BUFFER_BYTES {
            return;
        }
        let mut given = std::mem::take(&mut self.line_bytes);
        if self.small_reads >= SMALL_READS {
            given += std::mem::take(&mut self.speed_bytes);
        }
        if given > 0 {
            self.fit_buffer();
            self.ingress.release(given);
        }
    }

    /// Removes the first `n` bytes of the buffer.
    fn shift(&mut self, n: usize) {
        self.buffer.copy_within(n..self.filled, 0);
        self.filled -= n;
    }

    /// Gives up a line that is too long, or makes room for the rest of a shorter one.
    fn bound_pending(&mut self) {
        if self.skipping {
            self.filled = 0;
        } else if self.filled > LINE_BYTES_MAX {
            self.give_up(Fault::TooLong);
        } else if self.filled == self.buffer.len() {
            let more = self.buffer.len().min(LINE_BYTES_MAX + SLACK_BYTES - self.buffer.len());
            if self.ingress.reserve_for_line(more) {
                self.line_bytes += more;
                self.fit_buffer();
            } else {
                self.give_up(Fault::NoMemory);
            }
        }
        self.give_back();
    }

    /// Rejects the line at the start of the buffer and drops the rest of it as it arrives.
    fn give_up(&mut self, fault: Fault) {
        // An unclosed string contains the lines after it.
        let ends = memchr_iter(b'\n', &self.buffer[..self.filled]).count() as u64;
        self.reject_pending(fault, 1 + ends);
        self.lines_before += ends;
        self.skipping = true;
        self.filled = 0;
        (self.looked_bytes, self.look_at_bytes) = (0, 0);
    }

    /// Counts the contents of the buffer as `lines` rejected lines.
    fn reject_pending(&mut self, fault: Fault, lines: u64) {
        let counts = self.ingress.counts();
        add(&counts.received, lines);
        let now = (self.now)();
        let text = match lines {
            1 => fault.to_string(),
            lines => format!("{fault}; {lines} lines are lost with it: is a quote missing?"),
        };
        let sample = || RejectedSample::new(&text, &self.buffer[..self.filled]).sent_by(Some(self.peer));
        counts.rejected.add(fault.reason(), lines, now, sample);
        let held = self.log.lock().pass(now);
        if let Some(held) = held {
            tracing::warn!(
                peer = %self.peer, line = self.lines_before + 1, held,
                sample = hex_sample(&self.buffer[..self.filled]), "line rejected: {text}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use strongback_store::{
        Appended, ChannelIndex, CommitNumber, FrameBatch, Refusal, Reject, Stream, StreamId, StreamSpec,
    };

    use super::super::IlpConfig;
    use super::*;
    use crate::sink::Sink;

    /// Sink without room for any stream.
    struct Full;

    impl Sink for Full {
        fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
            Err(Reject::TooManyStreams { stream: spec.key.to_string(), max_streams: 0 })
        }

        fn accept(&self, _batch: &FrameBatch) -> Appended {
            unreachable!("there is no stream")
        }

        fn wait_durable(&self, _commit: CommitNumber) -> Result<(), Refusal> {
            Ok(())
        }

        fn count_rejected(&self, _stream: StreamId, _frames: u64) {}
    }

    fn readers(count: usize, max_pending_bytes: usize) -> (Arc<Ingress>, Vec<Reader>) {
        let ingress = Ingress::new(Arc::new(Full), IlpConfig { max_pending_bytes, ..IlpConfig::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let reader = |_| Reader::new(connect(), address, Arc::clone(&ingress), Arc::new(|| 7));
        let readers = (0..count).map(reader).collect();
        (ingress, readers)
    }

    /// Feeds bytes as if each read filled the buffer.
    fn take(reader: &mut Reader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = &mut reader.buffer[reader.filled..];
            let read = room.len().min(bytes.len());
            room[..read].copy_from_slice(&bytes[..read]);
            bytes = &bytes[read..];
            assert!(reader.take(read, 7));
        }
    }

    fn held(ingress: &Ingress) -> usize {
        ingress.pending_bytes.load(Relaxed)
    }

    #[test]
    fn line_feeds_within_a_string_do_not_cost_the_square_of_its_length() {
        let (_ingress, mut readers) = readers(1, 2 << 20);
        let mut reader = readers.pop().unwrap();
        let mut looks = 0;
        take(&mut reader, b"t f=\"");
        take(&mut reader, "a".repeat(400 << 10).as_bytes());
        for _ in 0..20_000 {
            let before = reader.looked_bytes;
            take(&mut reader, b"x\n");
            looks += usize::from(reader.looked_bytes != before);
        }
        assert!(looks < 60, "{looks} looks");
        // What follows the line is as before.
        take(&mut reader, "y".repeat(100 << 10).as_bytes());
        take(&mut reader, b"\"\n");
        take(&mut reader, b"u v=1\n".repeat(20_000).as_slice());
        assert_eq!((reader.filled, reader.looked_bytes, reader.look_at_bytes), (0, 0, 0));
        // So is what follows a line that was given up.
        take(&mut reader, b"t f=\"");
        take(&mut reader, "a".repeat(520 << 10).as_bytes());
        (0..40).for_each(|_| take(&mut reader, b"x\n"));
        assert!(reader.look_at_bytes > 0);
        take(&mut reader, "a".repeat(600 << 10).as_bytes());
        assert!(reader.skipping);
        take(&mut reader, b"\"\nu v=1\n");
        assert_eq!((reader.skipping, reader.filled, reader.look_at_bytes), (false, 0, 0));
    }

    #[test]
    fn buffers_of_fast_senders_leave_room_for_lines_and_are_given_back() {
        let (ingress, mut readers) = readers(9, 2 << 20);
        let mut other = readers.pop().unwrap();
        let comments = b"# 4567\n".repeat(512 << 10);
        for reader in &mut readers {
            take(reader, &comments);
        }
        assert_eq!(readers.iter().filter(|reader| reader.buffer.len() == FULL_BUFFER_BYTES).count(), 2);
        assert!(held(&ingress) <= 1 << 20, "{}", held(&ingress));
        // A line just below the maximum is read; the store refuses it.
        let long = [b"m s=\"", vec![b'x'; 1_000_000].as_slice(), b"\" 1\n"].concat();
        let before = held(&ingress);
        take(&mut other, &long);
        assert_eq!(ingress.counts().rejected.snapshot(), [("too_many_streams", 1)]);
        assert_eq!((held(&ingress), other.buffer.len()), (before, FIRST_BUFFER_BYTES));
        // A pause does not release the memory; many small reads do.
        for reader in &mut readers {
            let grown = reader.buffer.len();
            (1..SMALL_READS).for_each(|_| take(reader, b"# little\n"));
            take(reader, &comments[..FIRST_BUFFER_BYTES - 3]);
            assert!(reader.buffer.len() >= grown);
            (0..SMALL_READS).for_each(|_| take(reader, b"# little\n"));
            assert_eq!((reader.buffer.len(), reader.buffer.capacity()), (FIRST_BUFFER_BYTES, FIRST_BUFFER_BYTES));
        }
        assert_eq!(held(&ingress), 0);
    }

    #[test]
    fn after_a_burst_connections_are_accepted_one_by_one() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert!((1..ACCEPT_BURST).all(|_| pace.take(begin).is_zero()));
        assert_eq!([0, 2, 5].map(|ms| pace.take(begin + Duration::from_millis(ms)).as_millis()), [2, 2, 1]);
        // A pause of any length saves up for one burst.
        let later = begin + Duration::from_secs(3_600);
        assert_eq!((0..ACCEPT_BURST + 4).filter(|_| pace.take(later).is_zero()).count() as u32, ACCEPT_BURST - 1);
    }

    #[test]
    fn a_line_without_memory_is_rejected_as_that_and_keeps_none() {
        let (ingress, mut readers) = readers(2, 1 << 20);
        for reader in &mut readers {
            take(reader, &vec![b'x'; 900 << 10]);
        }
        assert_eq!(ingress.counts().rejected.snapshot(), [("no_line_memory", 1)]);
        assert_eq!((held(&ingress), readers[1].buffer.len()), (960 << 10, FIRST_BUFFER_BYTES));
        drop(readers);
        assert_eq!(held(&ingress), 0);
    }
}
