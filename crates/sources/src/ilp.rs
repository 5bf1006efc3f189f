//! InfluxDB line protocol: parser, writer that turns lines into frames, TCP listener, and the call that an HTTP handler
//! makes for a body.
//!
//! A measurement with its tags is a stream, its fields are channels, and each line is a frame. Fields on two lines make
//! two frames, even with the same measurement, tags and time. Values of `t` and `n` (times in µs and ns) are stored as
//! i64 nanoseconds since 1970. A field whose type its channel cannot hold exactly goes to a second column and is
//! counted. A tag whose key is a column of every table (`time`, `sequence`, …) gets the suffix `_tag`. A decimal
//! (`1.5d`) is stored as the nearest double; a number beyond the range of a double is a fault, not an infinity. A line
//! of tags without fields is a frame without values. A repeated field, a tag without a value and a bare measurement are
//! faults.

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

/// Maximum bytes of a line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum idle writers kept for HTTP requests. More concurrent requests create their own.
const IDLE_WRITERS_MAX: usize = 16;

/// Settings of the line protocol.
#[derive(Clone, Debug)]
pub struct IlpConfig {
    /// Name of the source, as shown in `strongback.sources`.
    pub source: String,
    /// Source names by prefix of the measurement: (prefix, name). The first match applies.
    pub source_prefixes: Vec<(String, String)>,
    /// Maximum concurrent TCP connections.
    pub max_connections: usize,
    /// Maximum concurrent TCP connections from one address.
    pub max_connections_per_address: usize,
    /// Silence in seconds after which a connection may be closed to make room for a new one. Nothing is closed while
    /// there is room. A connection that never had a line stored may be closed at any time.
    pub idle_after_s: u64,
    /// Maximum memory that all connections may hold for incomplete lines, beyond a small buffer each. Half of it may be
    /// lent to connections that send fast.
    pub max_pending_bytes: usize,
    /// Token that a connection must send first, as a line `# token TOKEN`; `None` if no token is required.
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
    /// Returns the source name for a measurement's streams.
    pub fn source_of(&self, measurement: &str) -> &str {
        let prefixed = self.source_prefixes.iter().find(|(prefix, _)| measurement.starts_with(prefix.as_str()));
        prefixed.map_or(self.source.as_str(), |(_, name)| name)
    }
}

/// Entry point of the line protocol into a sink, shared by the TCP listener and the HTTP handler.
pub struct Ingress {
    sink: Arc<dyn Sink>,
    cache: Arc<SharedCache>,
    counts: Arc<IlpCounts>,
    config: Arc<IlpConfig>,
    idle: Mutex<Vec<Writer>>,
    /// Memory of connection buffers beyond their initial size, in bytes.
    pending_bytes: AtomicUsize,
}

impl Ingress {
    /// Creates an entry point into `sink`.
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

    /// Reserves memory for an incomplete line. Returns `false` if there is none.
    pub(crate) fn reserve_for_line(&self, bytes: usize) -> bool {
        self.reserve(bytes, self.config.max_pending_bytes)
    }

    /// Reserves memory for larger reads. Returns `false` if there is none. Half of the memory is kept for lines, which
    /// would be lost without it.
    pub(crate) fn reserve_for_speed(&self, bytes: usize) -> bool {
        self.reserve(bytes, self.config.max_pending_bytes / 2)
    }

    fn reserve(&self, bytes: usize, max: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= max);
        self.pending_bytes.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Releases memory.
    pub(crate) fn release(&self, bytes: usize) {
        self.pending_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Returns the counters.
    pub fn counts(&self) -> &Arc<IlpCounts> {
        &self.counts
    }

    /// Returns the settings.
    pub fn config(&self) -> &IlpConfig {
        &self.config
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer::new(Arc::clone(&self.sink), Arc::clone(&self.cache), Arc::clone(&self.config))
    }

    /// Writes the lines of a complete body, whose last line needs no line feed. All frames get `receive_time`.
    ///
    /// Blocks while the store applies backpressure, so call it where blocking is allowed. Nothing is durable before the
    /// commit named in the report. If the store refuses, the rest of the body is not written.
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

    /// Blocks until the accepted lines of a report are durable.
    ///
    /// # Errors
    /// If they cannot become durable.
    pub fn wait_durable(&self, report: &WriteReport) -> Result<(), strongback_store::Refusal> {
        match report.commit {
            Some(commit) => self.sink.wait_durable(commit),
            None => Ok(()),
        }
    }
}
