//! Imports captures into a sink: uses the decoders of the sockets, with the capture's times as `receive_time`.
//!
//! An import belongs to a named run. Every stream it feeds has the tag `run`, so that two runs can hold the same
//! channels and times without mixing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use hashbrown::HashMap;
use sha2::{Digest, Sha256};
use strongback_store::{CommitNumber, Outcome, Refusal, Reject, StreamId, StreamKey};

use crate::capture::{self, CaptureEnd, CaptureError, Captured, Datagram};
use crate::inetx::append::Frames;
use crate::inetx::source::reason;
use crate::inetx::{DecodeError, Decoder, Packet};
use crate::layout::SourceLayout;
use crate::sink::Sink;

/// Batch size at which frames are handed over.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of the capture between two progress calls.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Maximum unknown stream ids counted individually.
const UNKNOWN_STREAMS_MAX: usize = crate::counts::UNKNOWN_STREAMS_MAX;

/// Settings of an import.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// Name of the run: the tag `run` of every stream.
    pub run: String,
    /// Layouts of the sources whose packets may be in the capture.
    pub sources: Vec<SourceLayout>,
}

/// Progress of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the capture read.
    pub bytes: u64,
    /// Size of the capture in bytes.
    pub total_bytes: u64,
    /// Packets read.
    pub packets: u64,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportReport {
    /// SHA-256 of the file in hexadecimal. Importing it into the same run again is to be refused.
    pub file_sha256: String,
    /// Packets in the capture.
    pub packets: u64,
    /// Complete UDP datagrams among them.
    pub datagrams: u64,
    /// Fragments of datagrams, which are not reassembled.
    pub fragments: u64,
    /// Packets with fewer bytes than their headers state.
    pub truncated: u64,
    /// Packets without a time.
    pub untimed: u64,
    /// Packets of unsupported link layers.
    pub unread_link: u64,
    /// Packets other than UDP datagrams, and datagrams that are neither for a source nor iNET-X.
    pub other: u64,
    /// Datagrams for a source that made no frame, and frames that the store refused, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// iNET-X packets without a layout, by stream id.
    pub unknown_streams: BTreeMap<u32, u64>,
    /// Streams fed, by source and stream id.
    pub streams: Vec<StreamReport>,
    /// Whether the capture ends in the middle of a packet.
    pub cut: bool,
    /// Commit that covers everything imported. It is durable.
    pub commit: Option<CommitNumber>,
}

impl ImportReport {
    /// Counts the frames stored over all streams.
    pub fn stored(&self) -> u64 {
        self.streams.iter().map(|s| s.stored).sum()
    }

    /// Counts the frames that the store had already stored, over all streams.
    pub fn duplicate(&self) -> u64 {
        self.streams.iter().map(|s| s.duplicate).sum()
    }

    /// Reports whether everything in the capture that may belong to a source is stored. Gaps in the recording itself do
    /// not count as loss.
    pub fn is_whole(&self) -> bool {
        let left_out = self.fragments + self.truncated + self.untimed + self.unread_link;
        self.rejected.is_empty() && left_out == 0 && !self.cut
    }
}

/// Result of an import for one stream of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReport {
    /// Name of the source.
    pub source: String,
    /// Stream id on the wire.
    pub stream_id: u32,
    /// Stream in the store.
    pub key: StreamKey,
    /// Id of the stream in the store.
    pub stream: StreamId,
    /// Frames made.
    pub frames: u64,
    /// Frames stored.
    pub stored: u64,
    /// Frames that the store had already stored.
    pub duplicate: u64,
    /// Frames that the store refused.
    pub rejected: u64,
    /// Receive time of the first and last frame, in nanoseconds since 1970 UTC.
    pub time: Option<(i64, i64)>,
}

/// Error that ended an import early. Frames stored before it stay.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// An unreadable file.
    #[error("{path}: {source}")]
    Io {
        /// File name.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file that is not a capture, or is damaged.
    #[error("{path}: {source}")]
    Capture {
        /// File name.
        path: String,
        /// Error in the capture.
        source: CaptureError,
    },
    /// A stream refused by the store.
    #[error("{path}: {source}")]
    Stream {
        /// File name.
        path: String,
        /// Cause.
        source: Reject,
    },
    /// A store that accepts nothing more.
    #[error("{path}: stopped after {packets} packets: {source}")]
    Refused {
        /// File name.
        path: String,
        /// Packets read so far.
        packets: u64,
        /// Cause.
        source: Refusal,
    },
    /// A stop requested by the caller.
    #[error("{path}: stopped after {packets} packets")]
    Stopped {
        /// File name.
        path: String,
        /// Packets read so far.
        packets: u64,
    },
}

/// Computes the SHA-256 of a file in hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn file_sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Imports a capture and waits until it is durable. Calls `progress` from time to time, which may stop the import.
///
/// A datagram belongs to the source that listens on its port (and group), or else to the first source that knows its
/// stream id, because captures are often made elsewhere than on the server.
///
/// # Errors
/// If the file, the capture or the store causes an error.
pub fn run(
    path: &Path,
    config: &ImportConfig,
    sink: &dyn Sink,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<ImportReport, ImportError> {
    let shown = path.display().to_string();
    let io = |source| ImportError::Io { path: shown.clone(), source };
    let file_sha256 = file_sha256(path).map_err(io)?;
    let file = File::open(path).map_err(io)?;
    let total_bytes = file.metadata().map_err(io)?.len();
    let mut import =
        CaptureImport::bind(config, sink).map_err(|source| ImportError::Stream { path: shown.clone(), source })?;
    import.report.file_sha256 = file_sha256;
    let mut told = 0;
    let end = capture::read(file, |captured, bytes| {
        if let Captured::Datagram(datagram) = &captured {
            import.end_second_before(datagram.time);
        }
        import.packet(captured);
        if import.frames.batch.size_bytes() >= BATCH_BYTES {
            import.hand_over();
        }
        if import.refusal.is_some() {
            return ControlFlow::Break(());
        }
        if bytes - told >= PROGRESS_BYTES {
            told = bytes;
            return progress(Progress { bytes, total_bytes, packets: import.report.packets });
        }
        ControlFlow::Continue(())
    });
    import.hand_over();
    let packets = import.report.packets;
    let durable = match import.report.commit {
        Some(commit) => sink.wait_durable(commit),
        None => Ok(()),
    };
    if let Some(source) = import.refusal.or(durable.err()) {
        return Err(ImportError::Refused { path: shown, packets, source });
    }
    match end {
        Ok(CaptureEnd::Whole) => {}
        Ok(CaptureEnd::Cut) => import.report.cut = true,
        Ok(CaptureEnd::Stopped) => return Err(ImportError::Stopped { path: shown, packets }),
        Err(source) => return Err(ImportError::Capture { path: shown, source }),
    }
    let _ = progress(Progress { bytes: total_bytes, total_bytes, packets });
    Ok(import.report)
}

struct CaptureImport<'a> {
    sink: &'a dyn Sink,
    decoders: Vec<Decoder>,
    frames: Frames,
    /// Index into the report by stream of the store.
    by_stream: HashMap<StreamId, usize>,
    report: ImportReport,
    /// Current second of the capture, since 1970.
    second: Option<i64>,
    refusal: Option<Refusal>,
}

impl<'a> CaptureImport<'a> {
    fn bind(config: &ImportConfig, sink: &'a dyn Sink) -> Result<CaptureImport<'a>, Reject> {
        let mut import = CaptureImport {
            sink,
            decoders: Vec::new(),
            frames: Frames::default(),
            by_stream: HashMap::new(),
            report: ImportReport::default(),
            second: None,
            refusal: None,
        };
        for source in &config.sources {
            let mut layout = source.clone();
            layout.add_tag("run", &config.run);
            let decoder = Decoder::bind(layout, sink)?;
            for (i, stream) in decoder.layout().streams.iter().enumerate() {
                for (table, id) in stream.tables.iter().zip(decoder.streams_of(i)) {
                    import.by_stream.insert(id, import.report.streams.len());
                    import.report.streams.push(StreamReport {
                        source: source.name.clone(),
                        stream_id: stream.id,
                        key: table.spec.key.clone(),
                        stream: id,
                        frames: 0,
                        stored: 0,
                        duplicate: 0,
                        rejected: 0,
                        time: None,
                    });
                }
            }
            import.decoders.push(decoder);
        }
        Ok(import)
    }

    /// Commits when the capture enters another second. The store joins the gaps of a stream within one commit into one
    /// row, and a row should cover no more time than it would have live.
    fn end_second_before(&mut self, time: i64) {
        let second = time.div_euclid(1_000_000_000);
        if self.second == Some(second) {
            return;
        }
        if self.second.replace(second).is_some() {
            self.hand_over();
            if let Some(commit) = self.report.commit
                && let Err(refusal) = self.sink.wait_durable(commit)
            {
                self.refusal = Some(refusal);
            }
        }
    }

    fn packet(&mut self, captured: Captured<'_>) {
        self.report.packets += 1;
        match captured {
            Captured::Datagram(datagram) => {
                self.report.datagrams += 1;
                self.datagram(&datagram);
            }
            Captured::Fragment => self.report.fragments += 1,
            Captured::Truncated => self.report.truncated += 1,
            Captured::Untimed => self.report.untimed += 1,
            Captured::UnreadLink => self.report.unread_link += 1,
            Captured::Other => self.report.other += 1,
        }
    }

    fn datagram(&mut self, datagram: &Datagram<'_>) {
        let packet = Packet::parse(datagram.payload);
        let by_address = self.decoders.iter().position(|d| listens_to(d.layout(), datagram));
        let packet = match (packet, by_address) {
            (Ok(packet), _) => packet,
            (Err(_), None) => {
                self.report.other += 1;
                return;
            }
            (Err(error), Some(_)) => {
                *self.report.rejected.entry(reason(&error.into())).or_default() += 1;
                return;
            }
        };
        let id = packet.stream_id;
        let by_address = by_address.filter(|d| self.decoders[*d].knows(id));
        let Some(decoder) = by_address.or_else(|| self.decoders.iter().position(|d| d.knows(id))) else {
            let unknown = &mut self.report.unknown_streams;
            if unknown.len() < UNKNOWN_STREAMS_MAX || unknown.contains_key(&id) {
                *unknown.entry(id).or_default() += 1;
            }
            *self.report.rejected.entry("unknown_stream").or_default() += 1;
            return;
        };
        let decoder = &mut self.decoders[decoder];
        match decoder.decode_packet(&packet, datagram.time, &mut self.frames.batch) {
            Ok(decoded) => self.frames.note(&decoded),
            Err(error) => {
                *self.report.rejected.entry(reason(&error)).or_default() += 1;
                // A datagram counts once, even if it would have fed several tables.
                if let DecodeError::ShortPayload { layout, .. } | DecodeError::Block { layout, .. } = error
                    && let Some(stream) = decoder.streams_of(layout).next()
                {
                    self.sink.count_rejected(stream, 1);
                }
            }
        }
    }

    fn hand_over(&mut self) {
        if self.frames.batch.is_empty() {
            return;
        }
        let CaptureImport { sink, frames, report, by_stream, refusal, .. } = self;
        frames.hand_over(
            *sink,
            |batch| sink.accept_waiting(batch),
            |batch, appended| {
                report.commit = report.commit.max(Some(appended.commit));
                for (frame, outcome) in batch.frames().zip(appended.outcomes) {
                    let head = frame.head();
                    let Some(stream) = by_stream.get(&head.stream).map(|i| &mut report.streams[*i]) else { continue };
                    stream.frames += 1;
                    let t = head.receive_time;
                    stream.time = Some(stream.time.map_or((t, t), |(first, last)| (first.min(t), last.max(t))));
                    match outcome {
                        Outcome::Stored { .. } | Outcome::Reduced { .. } => stream.stored += 1,
                        Outcome::Duplicate => stream.duplicate += 1,
                        Outcome::Rejected(reject) => {
                            stream.rejected += 1;
                            *report.rejected.entry(reject.reason()).or_default() += 1;
                            if let Reject::Refused(why) = reject {
                                *refusal = Some(why);
                            }
                        }
                    }
                }
            },
        );
    }
}

/// Reports whether a datagram was sent to an address of a source: its port, and its group or any unicast address.
fn listens_to(layout: &SourceLayout, datagram: &Datagram<'_>) -> bool {
    let to = datagram.destination;
    layout.listen.iter().map(|listen| listen.address).any(|listen| {
        listen.port() == to.port()
            && (listen.ip().is_multicast() == to.ip().is_multicast())
            && (!listen.ip().is_multicast() || listen.ip() == to.ip())
    })
}
