//! InfluxDB line protocol: its parser, the writer that turns lines into frames, the TCP listener, and the
//! body-level call that an HTTP handler makes.
//!
//! A measurement with its tags is a stream, its fields are channels, and each line is a frame: fields of one
//! measurement, tags and time that are written on two lines are two frames, never joined. Values of `t` and `n`
//! (times in µs and ns) are stored as i64 nanoseconds since 1970. A field whose type its channel cannot hold exactly
//! goes to a second column and is counted; a tag whose key is a column of every table (`time`, `sequence`, …) gets
//! `_tag`. A decimal (`1.5d`) is the nearest double; a number beyond the range of a double is a fault, not an infinity. A
//! line of tags without fields is a frame without values. A field that is twice on a line, a tag without a value and a
//! measurement alone are faults.

pub mod answer;
mod cache;
pub mod counts;
pub mod gzip;
mod number;
pub mod parser;
pub mod tcp;
pub mod writer;

pub(crate) use number::is_overflow;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

pub use answer::Answer;
pub use counts::IlpCounts;
pub use parser::{Fault, Precision};
pub use writer::{LineError, WriteReport};

use crate::sink::Sink;
use cache::SharedCache;
use writer::Writer;

/// Bytes of the longest line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Writers kept for HTTP requests; more requests at once make their own.
const IDLE_WRITERS_MAX: usize = 16;

/// Settings of the line protocol.
#[derive(Clone, Debug)]
pub struct IlpConfig {
    /// Name of the source, as `strongback.sources` shows it.
    pub source: String,
    /// Other names for streams whose measurement begins with a prefix: (prefix, name), the first that fits.
    pub source_prefixes: Vec<(String, String)>,
    /// Most TCP connections at once.
    pub max_connections: usize,
    /// Most of them from one address.
    pub max_connections_per_address: usize,
    /// A connection silent for longer may be closed to make room for a new one; while there is room it stays. One that
    /// never sent a line that was stored may be closed at once.
    pub idle_after_s: u64,
    /// Bytes that all connections may hold of lines that have not ended, beyond a small buffer each. Half of them may be
    /// lent to connections that send fast.
    pub max_pending_bytes: usize,
    /// The token that a connection must begin with, as a line `# token TOKEN`; none: it may write at once.
    pub token: Option<String>,
}

impl Default for IlpConfig {
    fn default() -> Self {
        IlpConfig {
            source: "ilp".to_owned(),
            source_prefixes: Vec::new(),
            max_connections: 256,
            max_connections_per_address: 192,
            idle_after_s: 30,
            max_pending_bytes: 64 << 20,
            token: None,
        }
    }
}

impl IlpConfig {
    /// The source that a measurement's streams belong to.
    pub fn source_of(&self, measurement: &str) -> &str {
        let prefixed = self.source_prefixes.iter().find(|(prefix, _)| measurement.starts_with(prefix.as_str()));
        prefixed.map_or(self.source.as_str(), |(_, name)| name)
    }
}

/// The line protocol's way into a sink: shared by the TCP listener and the HTTP handler.
pub struct Ingress {
    sink: Arc<dyn Sink>,
    cache: Arc<SharedCache>,
    counts: Arc<IlpCounts>,
    config: Arc<IlpConfig>,
    idle: Mutex<Vec<Writer>>,
    /// Bytes that the buffers of connections have beyond their first.
    pending_bytes: AtomicUsize,
}

impl Ingress {
    /// A way into `sink`.
    pub fn new(sink: Arc<dyn Sink>, config: IlpConfig) -> Arc<Ingress> {
        Arc::new(Ingress {
            sink,
            cache: Arc::new(SharedCache::default()),
            counts: Arc::new(IlpCounts::default()),
            config: Arc::new(config),
            idle: Mutex::new(Vec::new()),
            pending_bytes: AtomicUsize::new(0),
        })
    }

    /// Reserves memory for a line that has not ended; whether there is any.
    pub(crate) fn reserve_for_line(&self, bytes: usize) -> bool {
        self.reserve(bytes, self.config.max_pending_bytes)
    }

    /// Reserves memory for larger reads; whether there is any. Half is left to lines, which are lost without it.
    pub(crate) fn reserve_for_speed(&self, bytes: usize) -> bool {
        self.reserve(bytes, self.config.max_pending_bytes / 2)
    }

    fn reserve(&self, bytes: usize, max: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= max);
        self.pending_bytes.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Gives memory back.
    pub(crate) fn release(&self, bytes: usize) {
        self.pending_bytes.fetch_sub(bytes, Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Arc<IlpCounts> {
        &self.counts
    }

    /// Its settings.
    pub fn config(&self) -> &IlpConfig {
        &self.config
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer::new(Arc::clone(&self.sink), Arc::clone(&self.cache), Arc::clone(&self.config))
    }

    /// Writes the lines of a whole body: the last needs no line feed. All of them have `receive_time`.
    ///
    /// It blocks while the store pushes back; call it where blocking is allowed. Nothing is durable before the
    /// commit that the report names. When the store refuses, the rest of the body is left.
    pub fn write_body(&self, body: &[u8], precision: Precision, receive_time: i64) -> WriteReport {
        let mut writer = self.idle.lock().pop().unwrap_or_else(|| self.writer());
        let mut report = WriteReport::default();
        writer.write(body, writer::Origin::Body, precision.unit_ns(), receive_time, &mut report);
        self.counts.add_report(body.len() as u64, &report, body, receive_time, None);
        self.counts.last_receive_time.store(receive_time, Relaxed);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_WRITERS_MAX {
            idle.push(writer);
        }
        report
    }

    /// Blocks until what a report accepted is durable.
    ///
    /// # Errors
    /// Why it cannot become so.
    pub fn wait_durable(&self, report: &WriteReport) -> Result<(), strongback_store::Refusal> {
        match report.commit {
            Some(commit) => self.sink.wait_durable(commit),
            None => Ok(()),
        }
    }
}
