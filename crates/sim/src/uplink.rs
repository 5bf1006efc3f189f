//! A line-protocol connection over TCP on its own thread.
//!
//! The pad's clock never waits for it: parcels wait in a bounded queue (2 s at the pad's rate), and when it is full
//! the newest parcel is dropped and counted. After a broken connection it reconnects and sends the parcel again from
//! the start; the server recognises duplicates by stream, time and values.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::channel::PadSource;
use crate::report::SourceReport;

/// Max number of parcels in the queue: 2 s.
const QUEUED: usize = 400;
/// Max time of a single wait in a write or a connection attempt.
const SLICE: Duration = Duration::from_millis(200);
/// Time after the end for the queue to be sent and the server to close.
const FAREWELL: Duration = Duration::from_secs(3);

/// Lines that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    pub(crate) lines: String,
    counts: BTreeMap<PadSource, (u64, u64)>,
}

impl Parcel {
    /// Counts a frame whose line was added.
    pub(crate) fn count(&mut self, source: PadSource, points: usize) {
        let (frames, all) = self.counts.entry(source).or_default();
        *frames += 1;
        *all += points as u64;
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.counts.clear();
    }
}

/// Report of a connection.
#[derive(Debug, Default)]
pub(crate) struct UplinkReport {
    pub(crate) sources: BTreeMap<PadSource, SourceReport>,
    pub(crate) reconnects: u64,
    /// Reason for giving up, if it gave up.
    pub(crate) failure: Option<String>,
}

/// Sending end of a connection.
pub(crate) struct Uplink {
    queue: SyncSender<Parcel>,
    empties: Receiver<Parcel>,
    dropped: BTreeMap<PadSource, u64>,
    failed: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<UplinkReport>,
}

impl Uplink {
    /// Connects to a line-protocol server; gives up after `patience`.
    pub(crate) fn start(name: &str, server: SocketAddr, patience: Duration) -> std::io::Result<Uplink> {
        let (queue, parcels) = sync_channel(QUEUED);
        let (spent, empties) = sync_channel(QUEUED);
        let (failed, ending) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut line = Line {
            server,
            patience,
            stream: None,
            connected_once: false,
            ending: ending.clone(),
            ending_since: None,
            report: UplinkReport::default(),
        };
        let fail = failed.clone();
        let thread = std::thread::Builder::new().name(format!("ilp-{name}")).spawn(move || {
            line.run(&parcels, &spent);
            fail.store(line.report.failure.is_some(), Ordering::Relaxed);
            // Drain the channel, so that the sender sees a full queue, not a broken one, until it checks `failed`.
            line.report
        })?;
        Ok(Uplink { queue, empties, dropped: BTreeMap::new(), failed, ending, thread })
    }

    /// Returns an empty parcel, reusing the memory of a sent one if there is one.
    pub(crate) fn parcel(&self) -> Parcel {
        self.empties.try_recv().unwrap_or_default()
    }

    /// Queues a parcel, or drops and counts it if the queue is full.
    pub(crate) fn send(&mut self, parcel: Parcel) {
        if parcel.lines.is_empty() {
            return;
        }
        if let Err(TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) = self.queue.try_send(parcel) {
            for (source, (frames, _)) in parcel.counts {
                *self.dropped.entry(source).or_default() += frames;
            }
        }
    }

    /// Returns whether it has given up.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Sends the queued parcels, closes, and returns the report.
    pub(crate) fn finish(self) -> UplinkReport {
        self.ending.store(true, Ordering::Relaxed);
        drop(self.queue);
        let mut report = self.thread.join().unwrap_or_else(|_| UplinkReport {
            failure: Some("the line-protocol thread panicked".into()),
            ..UplinkReport::default()
        });
        for (source, frames) in self.dropped {
            report.sources.entry(source).or_default().frames_dropped += frames;
        }
        report
    }
}

/// State of the connection's thread.
struct Line {
    server: SocketAddr,
    patience: Duration,
    stream: Option<TcpStream>,
    connected_once: bool,
    ending: Arc<AtomicBool>,
    ending_since: Option<Instant>,
    report: UplinkReport,
}

impl Line {
    fn run(&mut self, parcels: &Receiver<Parcel>, spent: &SyncSender<Parcel>) {
        // Connect before the first parcel, so that a missing server is reported at once.
        let mut usable = self.connect();
        for mut parcel in parcels {
            let sent = usable && self.deliver(parcel.lines.as_bytes());
            usable &= self.report.failure.is_none();
            for (source, (frames, points)) in &parcel.counts {
                let source = self.report.sources.entry(*source).or_default();
                if sent {
                    source.frames_sent += frames;
                    source.points_sent += points;
                } else {
                    source.frames_dropped += frames;
                }
            }
            if !usable {
                // The sender checks `failed` and ends; until then nothing can be sent.
                return;
            }
            parcel.clear();
            let _ = spent.try_send(parcel);
        }
        if let Some(mut stream) = self.stream.take() {
            farewell(&mut stream);
        }
    }

    /// Returns whether the time to finish is over.
    fn out_of_time(&mut self) -> bool {
        if !self.ending.load(Ordering::Relaxed) {
            return false;
        }
        self.ending_since.get_or_insert_with(Instant::now).elapsed() > FAREWELL
    }

    fn connect(&mut self) -> bool {
        let since = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let error = match TcpStream::connect_timeout(&self.server, SLICE) {
                Ok(stream) => match stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(SLICE))) {
                    Ok(()) => {
                        self.report.reconnects += u64::from(self.connected_once);
                        self.connected_once = true;
                        self.stream = Some(stream);
                        return true;
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if since.elapsed() > self.patience || self.out_of_time() {
                self.report.failure = Some(format!("no line-protocol server at {}: {error}", self.server));
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Writes all bytes, reconnecting if necessary.
    fn deliver(&mut self, bytes: &[u8]) -> bool {
        loop {
            let Some(mut stream) = self.stream.take() else {
                if !self.connect() {
                    return false;
                }
                continue;
            };
            let mut rest = bytes;
            loop {
                match stream.write(rest) {
                    Ok(0) => break,
                    Ok(n) => {
                        rest = &rest[n..];
                        if rest.is_empty() {
                            self.stream = Some(stream);
                            return true;
                        }
                    }
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
                    {
                        if self.out_of_time() {
                            return false;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
    }
}

/// Shuts down the sending direction and waits until the server has read everything and closes its own.
fn farewell(stream: &mut TcpStream) {
    if stream.shutdown(Shutdown::Write).is_err() || stream.set_read_timeout(Some(FAREWELL)).is_err() {
        return;
    }
    let mut rest = [0u8; 256];
    while matches!(stream.read(&mut rest), Ok(n) if n > 0) {}
}
