//! Line protocol over TCP: a thread a connection, bounded in number. The protocol has no answers: a bad line is
//! counted and logged, and the connection lives. While the store pushes back, nothing is read, and TCP makes the
//! sender wait. Connections of one address leave room to others, and those that never wrote anything, then the longest
//! silent ones, make room for new ones; after a burst, new ones are accepted one by one, so that thousands that come at
//! once leave the processor to the rest of the server. Where a token is required, the first line is a comment that shows
//! it: nothing is read of a connection that does not.

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

/// Bytes a connection's buffer has at first.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// Bytes it grows to where a sender keeps it full.
const FULL_BUFFER_BYTES: usize = 512 << 10;
/// Reads in a row that leave at least half of a first buffer empty, after which a larger one is given back.
const SMALL_READS: u32 = 64;
/// Bytes read beyond the longest line before it is given up.
const SLACK_BYTES: usize = 64 << 10;
/// A peer that is gone without a word is noticed after 60 + 3 × 10 seconds.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes within which the line with the token must end.
const TOKEN_LINE_BYTES: usize = 4096;
/// What stands before the token.
const TOKEN: &[u8] = b"# token ";
/// How long to wait before accepting again when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Connections accepted at once, and the time that each further one takes: a thread each, they would take the processor
/// from all else if they came by the thousand.
const ACCEPT_BURST: u32 = 16;
const ACCEPT_PERIOD: Duration = Duration::from_millis(2);

/// A listener at work. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
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
    /// When it last sent something, nanoseconds since 1970 UTC.
    last_read: Arc<AtomicI64>,
    /// Whether a line of it was stored.
    wrote: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// Where the address cannot be bound or no thread be had.
    pub fn start(address: SocketAddr, ingress: Arc<Ingress>, now: Now) -> std::io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        // Listening again makes the queue longer, nothing else.
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

    /// Takes no more connections, reads what the kernel still has of the open ones, then ends them.
    pub fn stop(&mut self) {
        self.acceptor.stop();
        let open: Vec<LineConnection> = self.connections.lock().drain().map(|(_, c)| c).collect();
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
    pace: Pace,
}

/// How fast connections are accepted.
struct Pace {
    /// Time saved up for those to come, at most that of a burst.
    saved: Duration,
    at: Instant,
}

impl Pace {
    const MOST: Duration = ACCEPT_PERIOD.saturating_mul(ACCEPT_BURST);

    fn new(now: Instant) -> Pace {
        Pace { saved: Pace::MOST, at: now }
    }

    /// Takes the time of one connection; how long to wait before the next.
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
                    // Others may come faster than they are admitted.
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
                    // Out of descriptors: one that is silent gives its own.
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

    /// Whether one more connection of an address may be open; closes one that never wrote, or the longest silent one, for
    /// it if need be: of the same address where that has its share.
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

    /// Closes the connection that may go first, of one address or of all; whether there is one.
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
        // The lock is held until the connection is entered, so that a thread that ends at once finds its entry.
        let mut open = self.connections.lock();
        let thread = std::thread::Builder::new().name(format!("ilp-{number}")).spawn(move || {
            add(&reader.ingress.counts().connections, 1);
            reader.read_to_end();
            let counts = Arc::clone(reader.ingress.counts());
            // Its memory is free before it counts as closed.
            drop(reader);
            counts.connections.fetch_sub(1, Relaxed);
            connections.lock().remove(&number);
        })?;
        open.insert(number, LineConnection { stream, peer, last_read, wrote, thread: Some(thread) });
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
    wrote: Arc<AtomicBool>,
    /// Whether it may write: no token is required, or it was shown.
    is_known: bool,
    log: Arc<Mutex<Throttle>>,
    /// [`FIRST_BUFFER_BYTES`] and what is reserved.
    buffer: Vec<u8>,
    /// Bytes reserved for larger reads.
    speed_bytes: usize,
    /// Bytes reserved for a line that has not ended.
    line_bytes: usize,
    /// Reads in a row that found little.
    small_reads: u32,
    /// Bytes of the buffer that hold the beginning of a line.
    filled: usize,
    /// Within a line that was too long: everything up to its line feed is dropped.
    skipping: bool,
    /// Line feeds before the buffer.
    lines_before: u64,
}

/// Compares in a time that says nothing of where they differ.
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

    /// Takes what is left when the connection ended.
    fn take_rest(&mut self) {
        if self.skipping {
            return;
        }
        if self.is_known && memchr(b'\n', &self.buffer[..self.filled]).is_some() {
            // A string that was not closed holds the lines behind it.
            let receive_time = self.last_read.load(Relaxed);
            self.write(Origin::ConnectionEnd, receive_time);
        }
        // A line without its line feed may be cut in the middle of a value.
        if self.buffer[..self.filled].iter().any(|b| !b.is_ascii_whitespace()) {
            self.reject_pending(Fault::Truncated, 1);
        }
    }

    /// Takes `read` bytes that were appended to the buffer; whether to read on.
    fn take(&mut self, read: usize, receive_time: i64) -> bool {
        if !self.is_known {
            self.filled += read;
            match self.take_token() {
                None => return true,
                Some(false) => return false,
                // What came behind it is taken as if it came now.
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
            // No line ends here: nothing to parse yet.
            self.bound_pending();
            return true;
        };
        if self.skipping {
            self.skipping = false;
            self.lines_before += 1;
            self.shift(from + n + 1);
        }
        let full = self.filled == self.buffer.len();
        self.write(Origin::Connection, receive_time);
        self.bound_pending();
        if full {
            self.grow_for_speed();
        }
        true
    }

    /// Writes the lines in the buffer, and drops what is done with.
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

    /// Looks for the token at the start of the buffer: none while its line has not ended; false: it is not there.
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

    /// Ends a connection that did not show the token.
    fn refuse(&self) -> bool {
        add(&self.ingress.counts().connections_refused, 1);
        let held = self.log.lock().pass((self.now)());
        if let Some(held) = held {
            tracing::warn!(peer = %self.peer, held, "line protocol connection refused: its first line is not `# token TOKEN`");
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        false
    }

    /// Makes the buffer larger where a sender keeps it full and memory can be had.
    fn grow_for_speed(&mut self) {
        let bytes = FIRST_BUFFER_BYTES + self.speed_bytes;
        if bytes < FULL_BUFFER_BYTES && self.ingress.reserve_for_speed(bytes) {
            self.speed_bytes += bytes;
            self.fit_buffer();
        }
    }

    /// Gives the buffer the bytes that are reserved for it.
    fn fit_buffer(&mut self) {
        let bytes = FIRST_BUFFER_BYTES + self.speed_bytes + self.line_bytes;
        self.buffer.resize(bytes, 0);
        self.buffer.shrink_to_fit();
    }

    /// Gives memory back that is no longer needed: of a line at its end, of a fast sender when it is one no more.
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

    /// Drops the first `n` bytes of the buffer.
    fn shift(&mut self, n: usize) {
        self.buffer.copy_within(n..self.filled, 0);
        self.filled -= n;
    }

    /// Gives up a line that is too long, and makes room for more of one that is not.
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

    /// Rejects the line at the start of the buffer; what comes of it yet is dropped.
    fn give_up(&mut self, fault: Fault) {
        // A string that was never closed holds the lines behind it.
        let ends = memchr_iter(b'\n', &self.buffer[..self.filled]).count() as u64;
        self.reject_pending(fault, 1 + ends);
        self.lines_before += ends;
        self.skipping = true;
        self.filled = 0;
    }

    /// Counts what is in the buffer as `lines` rejected lines.
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

    /// Has no room for any stream.
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

    /// Takes bytes as if as many came at once as the buffer has room for.
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
    fn buffers_of_fast_senders_leave_room_for_lines_and_are_given_back() {
        let (ingress, mut readers) = readers(9, 2 << 20);
        let mut other = readers.pop().unwrap();
        let comments = b"# 4567\n".repeat(512 << 10);
        for reader in &mut readers {
            take(reader, &comments);
        }
        assert_eq!(readers.iter().filter(|reader| reader.buffer.len() == FULL_BUFFER_BYTES).count(), 2);
        assert!(held(&ingress) <= 1 << 20, "{}", held(&ingress));
        // A line that is nearly as long as one may be is read all the same: it is the store that refuses it.
        let long = [b"m s=\"", vec![b'x'; 1_000_000].as_slice(), b"\" 1\n"].concat();
        let before = held(&ingress);
        take(&mut other, &long);
        assert_eq!(ingress.counts().rejected.snapshot(), [("too_many_streams", 1)]);
        assert_eq!((held(&ingress), other.buffer.len()), (before, FIRST_BUFFER_BYTES));
        // A pause is no reason to give the memory back; little for long is.
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
        // A pause saves up for a burst, however long it was.
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
