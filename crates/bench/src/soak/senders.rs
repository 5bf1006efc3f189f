//! Senders: writers of lines that record what is acknowledged, intermittent streams, and numbered packets that are
//! lost, duplicated and out of order.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::http::HttpConnection;

/// Number of writing connections.
pub(super) const WRITERS: usize = 4;
/// Number of rows in a request.
const ROWS: u64 = 250;
/// Distance between the `time` of two rows of a writer, in nanoseconds.
pub(super) const ROW_PERIOD_NS: i64 = 1_000;
/// Packets per second.
const PACKETS_PER_S: u64 = 500;
/// Distance between two packets, in nanoseconds of their source.
pub(super) const PACKET_PERIOD_NS: i64 = 1_000_000_000 / PACKETS_PER_S as i64;
/// Max time to wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the server's configuration: a small store that keeps data by age, and a stream of numbered packets with a
/// retention group of its own.
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

/// Writer of one stream.
pub(super) struct Writer<'a> {
    /// Index of the writer.
    pub(super) number: usize,
    /// HTTP address of the server.
    pub(super) http: SocketAddr,
    /// `time` of row 0.
    pub(super) base_ns: i64,
    /// Rows per second.
    pub(super) rows_per_s: u64,
    /// Flag that ends the writer.
    pub(super) ended: &'a AtomicBool,
}

impl Writer<'_> {
    /// Writes from row `next` on, and advances it as rows are acknowledged. Returns rows acknowledged and requests
    /// refused.
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

/// Returns the value of a row, which the reader can recompute.
pub(super) fn value(n: u64) -> f64 {
    n as f64 / 8.0
}

/// Intermittent streams.
pub(super) struct Visitors<'a> {
    /// HTTP address of the server.
    pub(super) http: SocketAddr,
    /// Random numbers.
    pub(super) random: fastrand::Rng,
    /// Flag that ends the streams.
    pub(super) ended: &'a AtomicBool,
    /// `time` of row 0.
    pub(super) base_ns: i64,
}

impl Visitors<'_> {
    /// Writes a row of some streams at a time; `next` has the number of the next row of each. `untold` are the
    /// streams whose last request got no answer: like any client, it sends that request again first.
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

/// Connection that is opened when needed.
struct Sender {
    http: SocketAddr,
    connection: Option<HttpConnection>,
}

impl Sender {
    /// Sends lines until they are acknowledged. Returns `false` if they were refused or the run ended; they may then
    /// be stored in part.
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

/// Sender of numbered packets.
pub(super) struct PacketSender<'a> {
    /// Address that packets are sent to.
    pub(super) fti: SocketAddr,
    /// Random numbers.
    pub(super) random: fastrand::Rng,
    /// Flag that ends the sender.
    pub(super) ended: &'a AtomicBool,
    /// Source time of packet 0.
    pub(super) base_ns: i64,
}

impl PacketSender<'_> {
    /// Sends from packet `next` on: some never, some twice, some up to two hundred places late, and the first ones of
    /// a round in any order. Returns the number of packets sent.
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

    /// Sends one iNET-X packet: header of 28 bytes (control, stream, sequence, length, seconds, nanoseconds, PIF),
    /// and its number. A port without a listener is not an error: the server may have ended.
    fn send(&self, socket: &UdpSocket, n: u64) -> anyhow::Result<u64> {
        // A late or duplicated packet has its original time.
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
