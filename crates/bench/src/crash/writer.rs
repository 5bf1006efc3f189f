//! One connection that writes line protocol over HTTP and records what is acknowledged.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::journal::{Journal, ROW_PERIOD_NS, RowValues};
use crate::http::HttpConnection;

/// Max time to wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a refused request is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Times of the writers' last answers, shared with the thread that kills the server.
#[derive(Default)]
pub(super) struct Acknowledgements {
    last: Mutex<Option<Instant>>,
    any: std::sync::Condvar,
}

impl Acknowledgements {
    fn note(&self) {
        *self.last.lock().expect("no writer panics with it") = Some(Instant::now());
        self.any.notify_all();
    }

    /// Returns the time of the newest one.
    pub(super) fn last(&self) -> Option<Instant> {
        *self.last.lock().expect("no writer panics with it")
    }

    /// Waits until one arrives after `since`, at most `timeout`.
    pub(super) fn wait_after(&self, since: Instant, timeout: Duration) -> Option<Instant> {
        let last = self.last.lock().expect("no writer panics with it");
        let (last, _) = self
            .any
            .wait_timeout_while(last, timeout, |last| last.is_none_or(|at| at <= since))
            .expect("no writer panics with it");
        last.filter(|at| *at > since)
    }
}

/// State of one writer.
pub(super) struct Writer<'a> {
    /// Index of the connection: the tag `conn` of its stream.
    pub(super) connection: usize,
    /// HTTP address of the server.
    pub(super) address: SocketAddr,
    /// Number of rows in one request.
    pub(super) rows_per_request: u64,
    /// `time` of row 0.
    pub(super) base_ns: i64,
    /// Record of acknowledgements.
    pub(super) acknowledgements: &'a Acknowledgements,
    /// Flag set before the server is killed: from then on a broken connection is not a failure.
    pub(super) killed: &'a AtomicBool,
}

impl Writer<'_> {
    /// Writes until the server dies. Begins with the request in flight at the last crash, if that is still in the
    /// journal.
    pub(super) fn run(&self, journal: &mut Journal) -> anyhow::Result<()> {
        let failure = |what: String| anyhow!("connection {}: {what}", self.connection);
        let mut http = match HttpConnection::open(self.address, ANSWER_TIMEOUT) {
            Ok(http) => http,
            Err(_) if self.killed.load(Ordering::SeqCst) => return Ok(()),
            Err(e) => return Err(failure(format!("cannot connect: {e}"))),
        };
        let mut body = Vec::new();
        loop {
            let range = journal.in_flight.clone().unwrap_or(journal.next..journal.next + self.rows_per_request);
            self.lines(range.clone(), &mut body);
            journal.in_flight = Some(range.clone());
            journal.next = journal.next.max(range.end);
            match http.post("/api/v2/write?bucket=crash&precision=ns", &body) {
                Ok(answer) if answer.status == 204 => {
                    self.acknowledgements.note();
                    journal.in_flight = None;
                    journal.acknowledged += range.end - range.start;
                    // the first part of a retried request may be known already
                    journal.stored.push(range.start.max(journal.stored.end())..range.end);
                }
                // asked to retry: send the same rows again, as a client does
                Ok(answer) if answer.status == 503 => std::thread::park_timeout(RETRY_PAUSE),
                Ok(answer) => return Err(failure(format!("answer {}: {}", answer.status, answer.body))),
                // the kill is noted before the signal, so a broken connection after it is caused by the kill
                Err(_) if self.killed.load(Ordering::SeqCst) => return Ok(()),
                Err(e) => return Err(failure(format!("rows {range:?}: {e}"))),
            }
        }
    }

    fn lines(&self, range: Range<u64>, body: &mut Vec<u8>) {
        body.clear();
        for n in range {
            let values = RowValues::of(self.connection, n);
            let time = self.base_ns + n as i64 * ROW_PERIOD_NS;
            writeln!(body, "crash,conn={} n={n}i,check={}i,x={} {time}", self.connection, values.check, values.x)
                .expect("a vector takes it");
        }
    }
}
