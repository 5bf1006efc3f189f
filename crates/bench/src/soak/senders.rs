//! Who sends: writers of lines that keep what is acknowledged, streams that come and go, and numbered packets that are
//! lost, doubled and out of order.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::http::HttpConnection;

/// Connections that write.
pub(super) const WRITERS: usize = 4;
/// Rows of a request.
const ROWS: u64 = 250;
/// Between two rows of a writer, nanoseconds of their `time`.
pub(super) const ROW_PERIOD_NS: i64 = 1_000;
/// Packets a second.
const PACKETS_PER_S: u64 = 500;
/// Between two packets, nanoseconds of their source.
pub(super) const PACKET_PERIOD_NS: i64 = 1_000_000_000 / PACKETS_PER_S as i64;
/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What the server is told: a small store that keeps data by age, and a stream of numbered packets that keeps its own.
pub(super) fn config(fti: SocketAddr) -> String {
    format!(
        r#"
[store]
log_mib = 16
max_age_days = 30.0

[[retention]]
name = "packets"
streams = "soak.packets*"
keep = "96 MiB"

[[source]]
name = "packets"
kind = "inetx"
listen = "{fti}"

[[source.stream]]
id = 0x50A
table = "soak.packets"

[[source.stream.channel]]
name = "n"
offset = 0
type = "u64"
"#
    )
}

/// A writer of one stream.
pub(super) struct Writer<'a> {
    /// Which one it is.
    pub(super) number: usize,
    /// HTTP address of the server.
    pub(super) http: SocketAddr,
    /// `time` of row 0.
    pub(super) base_ns: i64,
    /// Rows a second.
    pub(super) rows_per_s: u64,
    /// Set when it has to end.
    pub(super) ended: &'a AtomicBool,
}

impl Writer<'_> {
    /// Writes from row `next` on, which rises with what is acknowledged. Returns rows acknowledged and requests put off.
    pub(super) fn run(&self, next: &mut u64) -> anyhow::Result<(u64, u64)> {
        let (mut acknowledged, mut refusals) = (0, 0);
        let mut sender = Sender { http: self.http, connection: None };
        let begin = Instant::now();
        while !self.ended.load(Ordering::SeqCst) {
            let mut body = String::new();
            for n in *next..*next + ROWS {
                let time = self.base_ns + n as i64 * ROW_PERIOD_NS;
                writeln!(body, "soak.rows,writer={} n={n}i,x={},s=\"{n}\" {time}", self.number, value(n))?;
            }
            if sender.send(&body, self.ended)? {
                *next += ROWS;
                acknowledged += ROWS;
            } else {
                refusals += 1;
            }
            let due = Duration::from_secs_f64(acknowledged as f64 / self.rows_per_s as f64);
            std::thread::park_timeout(due.saturating_sub(begin.elapsed()));
        }
        Ok((acknowledged, refusals))
    }
}

/// The value of a row: what it must be is known when it is read.
pub(super) fn value(n: u64) -> f64 {
    n as f64 / 8.0
}

/// Streams that come and go.
pub(super) struct Visitors<'a> {
    /// HTTP address of the server.
    pub(super) http: SocketAddr,
    /// What is left to chance.
    pub(super) random: fastrand::Rng,
    /// Set when it has to end.
    pub(super) ended: &'a AtomicBool,
    /// `time` of row 0.
    pub(super) base_ns: i64,
}

impl Visitors<'_> {
    /// Writes a row of some streams at a time; `next` has the number of the next row of each. `untold` are the streams
    /// whose request got no answer: as any client, it sends that again before it goes on.
    pub(super) fn run(mut self, next: &mut [u64], untold: &mut Range<usize>) -> anyhow::Result<(u64, u64)> {
        let (mut acknowledged, mut refusals) = (0, 0);
        let mut sender = Sender { http: self.http, connection: None };
        while !self.ended.load(Ordering::SeqCst) && !next.is_empty() {
            if untold.start == untold.end {
                let first = self.random.usize(..next.len());
                let most = (next.len() - first).min(200);
                *untold = first..first + self.random.usize(1..=most);
            }
            let streams = untold.clone();
            let mut body = String::new();
            for stream in streams.clone() {
                let n = next[stream];
                let time = self.base_ns + n as i64 * 1_000_000;
                writeln!(body, "soak.visitors,id={stream} n={n}i,x={} {time}", value(n))?;
            }
            if sender.send(&body, self.ended)? {
                acknowledged += streams.len() as u64;
                next[streams].iter_mut().for_each(|n| *n += 1);
                *untold = 0..0;
            } else {
                refusals += 1;
            }
            std::thread::park_timeout(Duration::from_millis(self.random.u64(5..60)));
        }
        Ok((acknowledged, refusals))
    }
}

/// A connection that is opened when it is needed.
struct Sender {
    http: SocketAddr,
    connection: Option<HttpConnection>,
}

impl Sender {
    /// Sends lines until they are acknowledged. False: they were put off, or it has to end; they may be stored in part.
    fn send(&mut self, body: &str, ended: &AtomicBool) -> anyhow::Result<bool> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => HttpConnection::open(self.http, ANSWER_TIMEOUT)?,
        };
        let answer = match connection.post("/api/v2/write?precision=ns", body.as_bytes()) {
            Ok(answer) => answer,
            Err(_) if ended.load(Ordering::SeqCst) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.connection = Some(connection);
        match answer.status {
            204 => Ok(true),
            503 => {
                std::thread::park_timeout(Duration::from_millis(20));
                Ok(false)
            }
            status => bail!("answer {status}: {}", answer.body),
        }
    }
}

/// Who sends numbered packets.
pub(super) struct PacketSender<'a> {
    /// Where to.
    pub(super) fti: SocketAddr,
    /// What is left to chance.
    pub(super) random: fastrand::Rng,
    /// Set when it has to end.
    pub(super) ended: &'a AtomicBool,
    /// Source's time of packet 0.
    pub(super) base_ns: i64,
}

impl PacketSender<'_> {
    /// Sends from packet `next` on: some never, some twice, some up to two hundred places late, and the first ones of a
    /// round in any order. Returns how many were sent.
    pub(super) fn run(mut self, next: &mut u64) -> anyhow::Result<u64> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut late: VecDeque<(u64, u64)> = VecDeque::new();
        let mut sent = 0;
        let mut first: Vec<u64> = (*next..*next + self.random.u64(1..12)).collect();
        *next += first.len() as u64;
        self.random.shuffle(&mut first);
        for n in first {
            sent += self.send(&socket, n)?;
        }
        let begin = Instant::now();
        while !self.ended.load(Ordering::SeqCst) {
            let n = *next;
            *next += 1;
            match self.random.u16(..1_000) {
                0..10 => {}
                10..40 => late.push_back((n + self.random.u64(1..200), n)),
                40..50 => sent += self.send(&socket, n)? + self.send(&socket, n)?,
                _ => sent += self.send(&socket, n)?,
            }
            while let Some(at) = late.iter().position(|(due, _)| *due <= *next) {
                if let Some((_, n)) = late.remove(at) {
                    sent += self.send(&socket, n)?;
                }
            }
            let due = Duration::from_secs_f64(sent as f64 / PACKETS_PER_S as f64);
            std::thread::park_timeout(due.saturating_sub(begin.elapsed()));
        }
        Ok(sent)
    }

    /// Sends one iNET-X packet: header of 28 bytes (control, stream, sequence, length, seconds, nanoseconds, PIF), and
    /// its number. A port that nobody listens at is no failure: the server may have ended.
    fn send(&self, socket: &UdpSocket, n: u64) -> anyhow::Result<u64> {
        // A packet that comes late or twice has the time at which it was made.
        let time_ns = self.base_ns + n as i64 * PACKET_PERIOD_NS;
        let mut packet = Vec::with_capacity(36);
        let words =
            [0x1100_0000, 0x50A, n as u32, 36, (time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, 0];
        words.iter().for_each(|word: &u32| packet.extend_from_slice(&word.to_be_bytes()));
        packet.extend_from_slice(&n.to_be_bytes());
        match socket.send_to(&packet, self.fti) {
            Ok(_) => Ok(1),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
