//! Turns lines into frames: looks up each line's key, pushes its fields to their channels, and hands frames to the sink
//! in batches.

use std::sync::Arc;

use hashbrown::HashSet;
use memchr::{memchr, memchr_iter};
use strongback_store::{
    Channel, ChannelIndex, ChannelSpec, ChannelType, Clock, CommitNumber, FrameBatch, FrameHead, Layout, Outcome,
    Refusal, Reject, StreamKey, StreamSpec, Value,
};

use super::cache::{Cache, KeyEntry, KnownField, SharedCache};
use super::parser::{self, FIELDS_MAX, Fault, FaultAt, FieldValue, Line, LineField, Next};
use super::{IlpConfig, LINE_BYTES_MAX};
use crate::naming::free_tag;
use crate::sink::Sink;

/// Batch size at which frames are handed over. Bounds memory and the cost of a refused batch.
const BATCH_BYTES: usize = 256 << 10;

/// Tag keys that would hide a column of every table. They get the suffix `_tag`, plus a number if that is taken.
const RESERVED_TAGS: [&str; 8] =
    ["time", "time_ns", "receive_time", "receive_time_ns", "source_time", "source_time_ns", "sequence", "session"];

/// Outcome for the lines of a body or a read.
#[derive(Clone, Debug, Default)]
pub struct WriteReport {
    /// Lines stored.
    pub stored: u64,
    /// Lines that the store had already stored, accepted without storing them again.
    pub duplicate: u64,
    /// Lines rejected.
    pub rejected: u64,
    /// Rejected lines by reason.
    pub reasons: Vec<(&'static str, u64)>,
    /// For each of these reasons, the offset of a rejected line and its error message.
    pub(crate) samples: Vec<(usize, String)>,
    /// Values stored in a second column, because their type does not fit the first.
    pub type_conflicts: u64,
    /// First rejected line.
    pub first_error: Option<LineError>,
    /// Reason why the store accepts nothing more, if so. The writer should retry.
    pub refusal: Option<Refusal>,
    /// Commit whose durability covers every accepted line.
    pub commit: Option<CommitNumber>,
}

impl WriteReport {
    /// Counts the accepted lines, stored now or before.
    pub fn accepted(&self) -> u64 {
        self.stored + self.duplicate
    }

    /// Counts the received lines.
    pub fn received(&self) -> u64 {
        self.accepted() + self.rejected
    }

    fn reject(&mut self, reason: &'static str, offset: usize, message: impl FnOnce() -> String) {
        self.rejected += 1;
        match self.reasons.iter_mut().find(|(have, _)| *have == reason) {
            Some((_, n)) => *n += 1,
            None => {
                self.reasons.push((reason, 1));
                self.samples.push((offset, message()));
            }
        }
    }
}

/// A rejected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Line number from 1, counting line feeds in strings.
    pub line: u64,
    /// Column in bytes, from 1.
    pub column: u64,
    /// Error message.
    pub message: String,
    /// Offset of the line in the body or read, in bytes.
    pub offset: usize,
}

/// Origin of bytes, which decides how their end and a refusal are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A complete body. Its end ends a line, and a refusal ends the writing.
    Body,
    /// A part of a byte stream. An incomplete line waits for more; refused lines are lost and counted.
    Connection,
    /// The rest of a closed connection. An incomplete line still remains, but an open string will never be closed.
    ConnectionEnd,
}

/// Reason why a line made no frame.
enum Rejection {
    Fault(FaultAt),
    Store(Reject),
    /// A refusal by the store for a line whose stream or field it does not know yet, so no frame was counted.
    NoStream(Refusal),
}

impl From<FaultAt> for Rejection {
    fn from(fault: FaultAt) -> Self {
        Rejection::Fault(fault)
    }
}

/// Converter of lines to frames of a sink. Kept between bodies for its cache.
pub(crate) struct Writer {
    sink: Arc<dyn Sink>,
    cache: Cache,
    config: Arc<IlpConfig>,
    batch: FrameBatch,
    /// Offset of the line of each frame in the batch.
    offsets: Vec<usize>,
    /// For each channel index, the number of the last frame that had it.
    marks: Vec<u64>,
    frame_number: u64,
}

impl Writer {
    pub(crate) fn new(sink: Arc<dyn Sink>, shared: Arc<SharedCache>, config: Arc<IlpConfig>) -> Writer {
        Writer {
            sink,
            cache: Cache::new(shared),
            config,
            batch: FrameBatch::new(),
            offsets: Vec::new(),
            marks: Vec::new(),
            frame_number: 0,
        }
    }

    /// Writes the lines in `buffer` and hands their frames over. Returns the number of bytes consumed: all of a body,
    /// or those of a connection up to an incomplete last line.
    pub(crate) fn write(
        &mut self,
        buffer: &[u8],
        origin: Origin,
        unit_ns: i64,
        receive_time: i64,
        report: &mut WriteReport,
    ) -> usize {
        self.cache.set_generation(self.sink.generation());
        self.batch.set_answered(origin == Origin::Body);
        let valid = match std::str::from_utf8(buffer) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&buffer[..e.valid_up_to()]).unwrap_or_default(),
        };
        let last = origin == Origin::Body;
        let mut position = 0;
        let consumed = loop {
            match parser::next_line(buffer, position, last) {
                Next::End => break buffer.len(),
                Next::Open { start, in_string } => {
                    let end = memchr(b'\n', &buffer[start..]).map(|n| start + n + 1);
                    let end = match (origin, end) {
                        (Origin::Body, end) => end.unwrap_or(buffer.len()),
                        (Origin::ConnectionEnd, Some(end)) if in_string => end,
                        _ => break start,
                    };
                    // An unclosed string swallowed the following lines: continue after the line it began on.
                    reject(report, start, Rejection::Fault(FaultAt { fault: Fault::OpenString, offset: 0 }));
                    position = end;
                }
                Next::Line(found) => {
                    let text = match valid.get(found.start..found.end) {
                        Some(text) => Ok(text),
                        None => std::str::from_utf8(&buffer[found.start..found.end]).map_err(|e| e.valid_up_to()),
                    };
                    let done = match text {
                        Ok(text) if text.len() <= LINE_BYTES_MAX => {
                            self.line(text, found.escapes, unit_ns, receive_time, report)
                        }
                        Ok(_) => Err(FaultAt { fault: Fault::TooLong, offset: LINE_BYTES_MAX }.into()),
                        Err(offset) => Err(FaultAt { fault: Fault::InvalidUtf8, offset }.into()),
                    };
                    match done {
                        Ok(()) => self.offsets.push(found.start),
                        Err(rejection) => {
                            self.batch.abort();
                            if let Rejection::NoStream(refusal) = &rejection {
                                report.refusal = Some(refusal.clone());
                            }
                            reject(report, found.start, rejection);
                        }
                    }
                    position = found.next;
                }
            }
            if self.batch.size_bytes() >= BATCH_BYTES {
                self.hand_over(report);
            }
            if last && report.refusal.is_some() {
                break position;
            }
        };
        self.hand_over(report);
        if let Some(error) = &mut report.first_error
            && error.line == 0
        {
            error.line = 1 + memchr_iter(b'\n', &buffer[..error.offset]).count() as u64;
        }
        consumed
    }

    /// Appends the frame of a line to the batch.
    #[inline]
    fn line(
        &mut self,
        text: &str,
        escapes: bool,
        unit_ns: i64,
        receive_time: i64,
        report: &mut WriteReport,
    ) -> Result<(), Rejection> {
        let line = Line::split(text, escapes)?;
        if let Some(entry) = self.cache.get(line.key())
            && self.push(&line, &entry, unit_ns, receive_time, report)?
        {
            return Ok(());
        }
        // Another writer may already know the field.
        if let Some(entry) = self.cache.newest(line.key())
            && self.push(&line, &entry, unit_ns, receive_time, report)?
        {
            return Ok(());
        }
        let entry = self.learn(&line, unit_ns)?;
        // The entry has all fields of this line.
        self.push(&line, &entry, unit_ns, receive_time, report)?;
        Ok(())
    }

    /// Pushes the frame of a line whose stream is known. Returns `false`, and leaves the batch as it was, if the entry
    /// lacks one of its fields.
    #[inline]
    fn push(
        &mut self,
        line: &Line<'_>,
        entry: &KeyEntry,
        unit_ns: i64,
        receive_time: i64,
        report: &mut WriteReport,
    ) -> Result<bool, Rejection> {
        self.frame_number += 1;
        self.batch.begin(FrameHead { stream: entry.stream, receive_time, source_time: None, sequence: None });
        let mut fields = line.fields();
        let (mut position, mut conflicts) = (0, 0);
        while let Some(field) = fields.next_field()? {
            let Some(known) = entry.field(position, field.raw_name, kind_of(&field.value)) else {
                self.batch.abort();
                return Ok(false);
            };
            position += 1;
            conflicts += known.conflict as u64;
            self.mark(known.channel, field.offset)?;
            match field.value {
                FieldValue::F64(v) => self.batch.push(known.channel, Value::F64(v)),
                FieldValue::I64(v) => self.batch.push(known.channel, Value::I64(v)),
                FieldValue::U64(v) => self.batch.push(known.channel, Value::U64(v)),
                FieldValue::Bool(v) => self.batch.push(known.channel, Value::Bool(v)),
                FieldValue::RawString(raw) => {
                    self.batch.push(known.channel, Value::String(&parser::unescape_string(raw)));
                }
            }
        }
        self.batch.set_source_time(fields.time(unit_ns)?);
        self.batch.end();
        report.type_conflicts += conflicts;
        Ok(true)
    }

    /// Records that the open frame has a channel. A second value for it is a fault.
    #[inline]
    fn mark(&mut self, channel: ChannelIndex, offset: usize) -> Result<(), FaultAt> {
        let i = channel.0 as usize;
        if i >= self.marks.len() {
            self.marks.resize(i + 1, 0);
        }
        if self.marks[i] == self.frame_number {
            return Err(FaultAt { fault: Fault::DuplicateField, offset });
        }
        self.marks[i] = self.frame_number;
        Ok(())
    }

    /// Creates or extends the stream of a line in the sink, and caches the result.
    #[cold]
    fn learn(&mut self, line: &Line<'_>, unit_ns: i64) -> Result<Arc<KeyEntry>, Rejection> {
        let series = line.series()?;
        let mut fields = line.fields();
        let before = self.cache.newest(line.key());
        let mut known: Vec<KnownField> = before.as_ref().map_or_else(Vec::new, |entry| entry.fields.clone());
        let have: HashSet<(Box<str>, ChannelType)> = known.iter().map(|k| (k.raw_name.clone(), k.kind)).collect();
        let mut seen = HashSet::new();
        let mut fresh: Vec<LineField<'_>> = Vec::new();
        let mut channels = Vec::new();
        while let Some(field) = fields.next_field()? {
            let kind = kind_of(&field.value);
            if !seen.insert((field.raw_name, kind)) {
                return Err(FaultAt { fault: Fault::DuplicateField, offset: field.offset }.into());
            }
            if seen.len() > FIELDS_MAX {
                return Err(FaultAt { fault: Fault::TooManyFields, offset: field.offset }.into());
            }
            if !have.contains(&(Box::from(field.raw_name), kind)) {
                channels.push(ChannelSpec::new(parser::unescape(field.raw_name), kind));
                fresh.push(field);
            }
        }
        // A line with a bad time must not create a stream.
        fields.time(unit_ns)?;
        let spec = StreamSpec {
            source: self.config.source_of(&series.measurement).to_owned(),
            key: StreamKey::new(series.measurement, free_tags(series.tags)),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels,
        };
        if let Some(max_channels) = before.as_ref().and_then(|entry| entry.full) {
            return Err(Rejection::Store(Reject::TooManyChannels { stream: spec.key.to_string(), max_channels }));
        }
        let (stream, indexes) = match self.sink.resolve(&spec) {
            Ok(resolved) => resolved,
            Err(reject) => {
                // Layouts only grow, so later lines with a new field need not ask the store.
                if let (Reject::TooManyChannels { max_channels, .. }, Some(entry)) = (&reject, before) {
                    let mut entry = KeyEntry::new(line.key(), entry.stream, known);
                    entry.full = Some(*max_channels);
                    self.cache.put(Arc::new(entry));
                }
                return Err(match reject {
                    Reject::Refused(refusal) => Rejection::NoStream(refusal),
                    other => Rejection::Store(other),
                });
            }
        };
        for ((field, channel), index) in fresh.iter().zip(&spec.channels).zip(indexes) {
            known.push(KnownField {
                raw_name: field.raw_name.into(),
                kind: channel.channel_type,
                channel: index,
                conflict: is_second_column(&stream.layout, index),
            });
        }
        let entry = Arc::new(KeyEntry::new(line.key(), stream.id, known));
        self.cache.put(Arc::clone(&entry));
        Ok(entry)
    }

    fn hand_over(&mut self, report: &mut WriteReport) {
        if self.batch.is_empty() {
            return;
        }
        let appended = self.sink.accept_waiting(&self.batch);
        report.commit = report.commit.max(Some(appended.commit));
        for (outcome, offset) in appended.outcomes.into_iter().zip(&self.offsets) {
            match outcome {
                Outcome::Stored { .. } | Outcome::Reduced { .. } => report.stored += 1,
                Outcome::Duplicate => report.duplicate += 1,
                Outcome::Rejected(rejected) => {
                    if let Reject::Refused(refusal) = &rejected {
                        report.refusal = Some(refusal.clone());
                    }
                    reject(report, *offset, Rejection::Store(rejected));
                }
            }
        }
        self.batch.clear();
        self.offsets.clear();
    }
}

/// Renames tags that would hide a column, to names unique on their line.
fn free_tags(tags: Vec<(String, String)>) -> Vec<(String, String)> {
    let is_taken = |name: &str| tags.iter().any(|(tag, _)| tag == name);
    let name = |tag: &String| match RESERVED_TAGS.contains(&tag.as_str()) {
        true => free_tag(tag, is_taken),
        false => tag.clone(),
    };
    let names: Vec<String> = tags.iter().map(|(tag, _)| name(tag)).collect();
    names.into_iter().zip(tags).map(|(name, (_, value))| (name, value)).collect()
}

/// Reports whether a column is not the first of its name. (A reserved or taken name is renamed, too.)
fn is_second_column(layout: &Layout, index: ChannelIndex) -> bool {
    let Channel { name, source_name, .. } = layout.channel(index);
    let before = &layout.channels[..usize::from(index.0)];
    name != source_name && before.iter().any(|channel| channel.source_name == *source_name)
}

fn kind_of(value: &FieldValue<'_>) -> ChannelType {
    match value {
        FieldValue::F64(_) => ChannelType::F64,
        FieldValue::I64(_) => ChannelType::I64,
        FieldValue::U64(_) => ChannelType::U64,
        FieldValue::Bool(_) => ChannelType::Bool,
        FieldValue::RawString(_) => ChannelType::String,
    }
}

/// Counts a rejected line. Its message is formatted only for the first rejected line and the first of each reason. Its
/// line number is determined at the end.
fn reject(report: &mut WriteReport, offset: usize, rejection: Rejection) {
    let (reason, column) = match &rejection {
        Rejection::Fault(at) => (at.fault.reason(), at.offset as u64 + 1),
        Rejection::Store(reject) => (reject.reason(), 1),
        Rejection::NoStream(_) => ("no_stream", 1),
    };
    let message = || match &rejection {
        Rejection::Fault(at) => at.fault.to_string(),
        Rejection::Store(reject) => reject.to_string(),
        Rejection::NoStream(refusal) => Reject::Refused(refusal.clone()).to_string(),
    };
    report.reject(reason, offset, message);
    if report.first_error.as_ref().is_none_or(|first| offset < first.offset) {
        report.first_error = Some(LineError { line: 0, column, message: message(), offset });
    }
}
