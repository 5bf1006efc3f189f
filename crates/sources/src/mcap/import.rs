//! Imports a file into a sink as a run, as with captures.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use strongback_store::{
    ARRAY_LENGTH_MAX, ArrayRef, ArrayType, BlobError, CellState, ChannelIndex, ChannelSpec, ChannelType, Clock,
    CommitNumber, ElementType, FrameBatch, FrameHead, Outcome, Refusal, Reject, StreamId, StreamKey, StreamSpec, Value,
};

use super::container::{self, ContainerError, Damage, FileEnd, RecordEntry, RecordedMessage};
use super::json::JsonDecoder;
use super::message::{LeafKind, LeftOut, MessageLeaf, RosDecoder, Values, leave_out};
use super::numbering::Numbering;
use super::schema::Dialect;
use super::value::{FoundValue, MessageError};
use crate::NAME_BYTES_MAX;
use crate::import::file_sha256;
use crate::sink::Sink;

/// Batch size at which frames are handed over.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of the file between two progress calls.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Maximum total size of the schemas kept of a file.
const SCHEMAS_BYTES_MAX: usize = 64 << 20;
/// Size of a byte channel's first value, up to which its values are stored as arrays rather than blobs.
const SHORT_BYTES_MAX: usize = 4_096;
/// Maximum damages kept. Further ones are counted.
const DAMAGES_MAX: usize = 10;
/// Maximum topics without a decoder that are named. Further ones are counted.
const UNDECODED_MAX: usize = 1_000;
/// Modulus of message sequence numbers.
const SEQUENCE_MODULUS: u64 = 1 << 32;
/// Source name of the streams in the catalog.
const SOURCE: &str = "mcap";

/// Settings of an import.
#[derive(Clone, Debug)]
pub struct McapConfig {
    /// Name of the run: the tag `run` of every stream.
    pub run: String,
}

/// Progress of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McapProgress {
    /// Bytes of the file read.
    pub bytes: u64,
    /// Size of the file in bytes.
    pub total_bytes: u64,
    /// Messages read.
    pub messages: u64,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McapReport {
    /// SHA-256 of the file in hexadecimal.
    pub file_sha256: String,
    /// Messages read.
    pub messages: u64,
    /// Attached files, which are skipped.
    pub attachments: u64,
    /// Decoded topics.
    pub topics: Vec<TopicReport>,
    /// Messages of other topics: the reason with the topic's name, and the count.
    pub undecoded: BTreeMap<String, u64>,
    /// Messages that made no frame, frames that the store refused, and damages, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// First damages.
    pub damages: Vec<Damage>,
    /// Place of a premature end, if any.
    pub cut: Option<Damage>,
    /// Scope of the message numbers. Only numbers by channel are used as sequences.
    pub numbering: Numbering,
    /// Commit that covers everything imported. It is durable.
    pub commit: Option<CommitNumber>,
}

impl McapReport {
    /// Counts the frames stored over all topics.
    pub fn stored(&self) -> u64 {
        self.topics.iter().map(|topic| topic.stored).sum()
    }

    /// Counts the frames that the store had already stored, over all topics.
    pub fn duplicate(&self) -> u64 {
        self.topics.iter().map(|topic| topic.duplicate).sum()
    }

    /// Reports whether everything that the file contains, and should contain, is stored.
    pub fn is_whole(&self) -> bool {
        let lacks_nothing = self.topics.iter().all(|topic| topic.left_out.is_empty());
        self.rejected.is_empty() && self.undecoded.is_empty() && self.cut.is_none() && lacks_nothing
    }
}

/// Result of an import for one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicReport {
    /// Name in the file.
    pub topic: String,
    /// Type of its messages, with their encoding.
    pub schema: String,
    /// Stream in the store.
    pub key: StreamKey,
    /// Id of the stream in the store, once there was a message.
    pub stream: Option<StreamId>,
    /// Messages read.
    pub messages: u64,
    /// Frames stored.
    pub stored: u64,
    /// Frames that the store had already stored.
    pub duplicate: u64,
    /// Messages that made no frame, and frames that the store refused.
    pub rejected: u64,
    /// Recording time of the first and last message, in nanoseconds since 1970 UTC.
    pub time: Option<(i64, i64)>,
    /// Parts of its messages that were left out: a description, and the count.
    pub left_out: LeftOut,
}

/// Error that ended an import early. Frames stored before it stay.
#[derive(Debug, thiserror::Error)]
pub enum McapError {
    /// An unreadable file.
    #[error("{path}: {source}")]
    Io {
        /// File name.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file that is not MCAP, or a read error.
    #[error("{path}: {source}")]
    Container {
        /// File name.
        path: String,
        /// Cause.
        source: ContainerError,
    },
    /// A store that accepts nothing more.
    #[error("{path}: stopped after {messages} messages: {source}")]
    Refused {
        /// File name.
        path: String,
        /// Messages read so far.
        messages: u64,
        /// Cause.
        source: Refusal,
    },
    /// A stop requested by the caller.
    #[error("{path}: stopped after {messages} messages")]
    Stopped {
        /// File name.
        path: String,
        /// Messages read so far.
        messages: u64,
    },
}

/// Imports a file and waits until it is durable. Calls `progress` from time to time, which may stop the import.
///
/// # Errors
/// If the file or the store causes an error. Damage is not an error, but part of the report.
pub fn run(
    path: &Path,
    config: &McapConfig,
    sink: &dyn Sink,
    mut progress: impl FnMut(McapProgress) -> ControlFlow<()>,
) -> Result<McapReport, McapError> {
    let shown = path.display().to_string();
    let io = |source| McapError::Io { path: shown.clone(), source };
    let container = |source| McapError::Container { path: shown.clone(), source };
    let hash = file_sha256(path).map_err(io)?;
    let total_bytes = path.metadata().map_err(io)?.len();
    let numbering = Numbering::of(File::open(path).map_err(io)?).map_err(container)?;
    let report = McapReport { file_sha256: hash, numbering, ..McapReport::default() };
    let mut told = 0;
    let file = File::open(path).map_err(io)?;
    let (mut report, refusal, end) = import(file, &config.run, sink, report, |bytes, messages| {
        if bytes - told < PROGRESS_BYTES {
            return ControlFlow::Continue(());
        }
        told = bytes;
        progress(McapProgress { bytes, total_bytes, messages })
    });
    let messages = report.messages;
    if let Some(source) = refusal {
        return Err(McapError::Refused { path: shown, messages, source });
    }
    match end.map_err(container)? {
        FileEnd::Whole => {}
        FileEnd::Stopped => return Err(McapError::Stopped { path: shown, messages }),
        FileEnd::Cut(damage) => {
            *report.rejected.entry("cut").or_default() += 1;
            report.cut = Some(damage);
        }
    }
    let _ = progress(McapProgress { bytes: total_bytes, total_bytes, messages });
    Ok(report)
}

/// Imports a file's entries. Calls `progress` with the bytes and messages read so far, which may stop the import.
pub(super) fn import(
    input: impl Read,
    run: &str,
    sink: &dyn Sink,
    report: McapReport,
    mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> (McapReport, Option<Refusal>, Result<FileEnd, ContainerError>) {
    let mut import = McapImport::new(run, sink, report);
    let end = container::read(input, |entry, bytes| {
        import.entry(entry);
        match import.refusal {
            Some(_) => ControlFlow::Break(()),
            None => progress(bytes, import.report.messages),
        }
    });
    let (report, refusal) = import.finish();
    (report, refusal, end)
}

/// A schema of the file.
struct SchemaText {
    name: String,
    encoding: String,
    text: Vec<u8>,
}

/// A channel of the file.
struct Sender {
    schema: u16,
    topic: String,
    encoding: String,
    fate: Option<Fate>,
}

/// Treatment of a channel's messages.
enum Fate {
    /// Decoding into the topic with this index.
    Decoded(usize),
    /// Counting under this description.
    Counted(String),
}

enum TopicDecoder {
    Ros(Box<RosDecoder>),
    Json(Box<JsonDecoder>),
}

impl TopicDecoder {
    fn leaves(&self) -> &[MessageLeaf] {
        match self {
            TopicDecoder::Ros(decoder) => decoder.leaves(),
            TopicDecoder::Json(decoder) => decoder.leaves(),
        }
    }

    fn left_out(&self) -> &LeftOut {
        match self {
            TopicDecoder::Ros(decoder) => decoder.left_out(),
            TopicDecoder::Json(decoder) => decoder.left_out(),
        }
    }

    fn stamp(&self) -> Option<usize> {
        match self {
            TopicDecoder::Ros(decoder) => decoder.stamp(),
            TopicDecoder::Json(_) => None,
        }
    }

    fn decode<'m>(&mut self, message: &'m [u8], values: &mut Values<'m>) -> Result<(), MessageError> {
        match self {
            TopicDecoder::Ros(decoder) => decoder.decode(message, values),
            TopicDecoder::Json(decoder) => decoder.decode(message, values),
        }
    }
}

/// Destination of a leaf's values.
#[derive(Clone, Copy, Default)]
struct LeafTarget {
    /// Type of its channel, once known.
    kind: Option<ChannelType>,
    index: Option<ChannelIndex>,
}

struct Topic {
    decoder: TopicDecoder,
    targets: Vec<LeafTarget>,
    left_out: LeftOut,
}

struct McapImport<'a> {
    run: &'a str,
    sink: &'a dyn Sink,
    schemas: HashMap<u16, SchemaText>,
    schemas_bytes: usize,
    senders: HashMap<u16, Sender>,
    /// Topics in the order of the report.
    topics: Vec<Topic>,
    by_key: HashMap<StreamKey, usize>,
    by_stream: HashMap<StreamId, usize>,
    batch: FrameBatch,
    report: McapReport,
    /// Latest second of the recording, since 1970.
    second: i64,
    refusal: Option<Refusal>,
}

impl<'a> McapImport<'a> {
    fn new(run: &'a str, sink: &'a dyn Sink, report: McapReport) -> McapImport<'a> {
        McapImport {
            run,
            sink,
            schemas: HashMap::new(),
            schemas_bytes: 0,
            senders: HashMap::new(),
            topics: Vec::new(),
            by_key: HashMap::new(),
            by_stream: HashMap::new(),
            batch: FrameBatch::new(),
            report,
            second: i64::MIN,
            refusal: None,
        }
    }

    fn entry(&mut self, entry: RecordEntry<'_>) {
        match entry {
            RecordEntry::Schema { id, name, encoding, text } => {
                // Chunks repeat schemas.
                let bytes = name.len() + encoding.len() + text.len();
                if id != 0 && !self.schemas.contains_key(&id) && self.schemas_bytes + bytes <= SCHEMAS_BYTES_MAX {
                    self.schemas_bytes += bytes;
                    let (name, encoding, text) = (name.to_owned(), encoding.to_owned(), text.to_vec());
                    self.schemas.insert(id, SchemaText { name, encoding, text });
                }
            }
            RecordEntry::Channel { id, schema, topic, encoding } => {
                self.senders.entry(id).or_insert_with(|| {
                    let bounded = |text: &str| text.chars().take(NAME_BYTES_MAX).collect::<String>();
                    Sender { schema, topic: bounded(topic), encoding: bounded(encoding), fate: None }
                });
            }
            RecordEntry::Message(message) => {
                self.report.messages += 1;
                self.message(&message);
            }
            RecordEntry::Attachment => self.report.attachments += 1,
            RecordEntry::TooLarge => self.reject("message_too_large"),
            RecordEntry::Damage(damage) => {
                self.reject("damaged");
                if self.report.damages.len() < DAMAGES_MAX {
                    self.report.damages.push(damage);
                }
            }
        }
    }

    fn reject(&mut self, reason: &'static str) {
        *self.report.rejected.entry(reason).or_default() += 1;
    }

    fn message(&mut self, message: &RecordedMessage<'_>) {
        if self.senders.get(&message.channel).is_some_and(|sender| sender.fate.is_none()) {
            let fate = self.begin_topic(message.channel);
            if let Some(sender) = self.senders.get_mut(&message.channel) {
                sender.fate = Some(fate);
            }
        }
        match self.senders.get(&message.channel).and_then(|sender| sender.fate.as_ref()) {
            None => self.reject("unknown_channel"),
            Some(Fate::Counted(why)) => {
                let undecoded = &mut self.report.undecoded;
                let is_named = undecoded.len() < UNDECODED_MAX || undecoded.contains_key(why);
                let why = if is_named { why } else { "no decoder for other topics" };
                *undecoded.entry(why.to_owned()).or_default() += 1;
            }
            Some(Fate::Decoded(topic)) => {
                let topic = *topic;
                self.decode(topic, message);
            }
        }
    }

    /// Determines how messages of a channel are treated.
    fn begin_topic(&mut self, id: u16) -> Fate {
        let Some(sender) = self.senders.get(&id) else { return Fate::Counted("messages of no channel".to_owned()) };
        let (topic, encoding) = (&sender.topic, &sender.encoding);
        let schema = self.schemas.get(&sender.schema);
        let about = schema.map_or(("", ""), |schema| (schema.name.as_str(), schema.encoding.as_str()));
        let ros = |dialect| {
            let (name, text) = schema.map_or(("", &[][..]), |schema| (&schema.name, &schema.text));
            RosDecoder::new(dialect, name, text).map(|decoder| TopicDecoder::Ros(Box::new(decoder)))
        };
        let decoder = match (encoding.as_str(), about.1) {
            ("ros1", "ros1msg") => ros(Dialect::Ros1),
            ("cdr", "ros2msg") => ros(Dialect::Ros2),
            ("json", "jsonschema") => {
                Ok(TopicDecoder::Json(Box::new(JsonDecoder::new(schema.map(|s| s.text.as_slice())))))
            }
            ("json", "") => Ok(TopicDecoder::Json(Box::new(JsonDecoder::new(None)))),
            ("ros1" | "cdr" | "json", other) => {
                return Fate::Counted(format!(
                    "no decoder for encoding {encoding} with the schema {other:?} of topic {topic}"
                ));
            }
            _ => return Fate::Counted(format!("no decoder for encoding {encoding} of topic {topic}")),
        };
        let decoder = match decoder {
            Ok(decoder) => decoder,
            Err(error) => return Fate::Counted(format!("no decoder for topic {topic}: {error}")),
        };
        let table = topic.strip_prefix('/').unwrap_or(topic).replace('/', ".");
        let mut key = StreamKey::new(&*table, [("run".to_owned(), self.run.to_owned())]);
        if self.by_key.contains_key(&key) {
            // Another sender of the same topic has its own numbers and perhaps its own layout.
            let tags = [("channel".to_owned(), id.to_string()), ("run".to_owned(), self.run.to_owned())];
            key = StreamKey::new(&*table, tags);
        }
        let index = self.topics.len();
        self.by_key.insert(key.clone(), index);
        self.report.topics.push(TopicReport {
            topic: topic.clone(),
            schema: format!("{} {encoding}", about.0).trim().to_owned(),
            key,
            stream: None,
            messages: 0,
            stored: 0,
            duplicate: 0,
            rejected: 0,
            time: None,
            left_out: LeftOut::new(),
        });
        self.topics.push(Topic { decoder, targets: Vec::new(), left_out: LeftOut::new() });
        Fate::Decoded(index)
    }

    fn decode(&mut self, topic: usize, message: &RecordedMessage<'_>) {
        self.report.topics[topic].messages += 1;
        let sequence = self.report.numbering.sequence(message.channel, message.sequence);
        let Some(receive_time) = time_of(message.log_time) else { return self.reject_of(topic, "bad_time") };
        let mut values = Values::new();
        if let Err(error) = self.topics[topic].decoder.decode(message.data, &mut values) {
            return self.reject_of(topic, error.reason());
        }
        if sequence.is_some() {
            self.end_second_before(receive_time);
        }
        if let Err(reject) = self.make_ready(topic, &values) {
            if let Reject::Refused(refusal) = reject {
                self.refusal = Some(refusal);
                return;
            }
            let of = &mut self.topics[topic];
            leave_out(&mut of.left_out, format!("messages whose stream the store refuses: {reject}"), 1);
            return self.reject_of(topic, reject.reason());
        }
        let Some(stream) = self.report.topics[topic].stream else { return };
        let of = &mut self.topics[topic];
        let stamp = of.decoder.stamp().and_then(|stamp| values.iter().find(|(leaf, _)| *leaf == stamp));
        let stamp = match stamp {
            // A timestamp of 0 was never set.
            Some((_, FoundValue::Plain(Value::I64(stamp)))) if *stamp > 0 => Some(*stamp),
            _ => time_of(message.publish_time).filter(|time| *time > 0),
        };
        // References of blobs, which must be durable before the frame that contains them.
        let mut blobs = Vec::new();
        for (leaf, value) in &values {
            let FoundValue::Array(_, bytes) = value else { continue };
            if of.targets[*leaf].kind != Some(ChannelType::Blob) {
                continue;
            }
            match self.sink.put_blob(stream, bytes) {
                Ok(blob) => blobs.push((*leaf, blob)),
                Err(BlobError::Refused(refusal)) => {
                    self.refusal = Some(refusal);
                    return;
                }
                Err(error) => leave_out(&mut of.left_out, format!("values that make no blob: {error}"), 1),
            }
        }
        self.batch.begin(FrameHead { stream, receive_time, source_time: stamp, sequence });
        for (leaf, value) in &values {
            let LeafTarget { kind: Some(kind), index: Some(index) } = of.targets[*leaf] else { continue };
            match value {
                FoundValue::Plain(value) => self.batch.push(index, *value),
                FoundValue::Text(text) => self.batch.push(index, Value::String(text)),
                FoundValue::Unknown => self.batch.push_state(index, CellState::Unknown),
                FoundValue::Array(..) if kind == ChannelType::Blob => {
                    if let Some((_, blob)) = blobs.iter().find(|(of, _)| of == leaf) {
                        self.batch.push(index, Value::Blob(*blob));
                    }
                }
                FoundValue::Array(element, bytes) => match ArrayRef::new(*element, bytes) {
                    Some(array) if array.len() <= ARRAY_LENGTH_MAX => self.batch.push(index, Value::Array(array)),
                    _ => {
                        let name = &of.decoder.leaves()[*leaf].name;
                        let sentence = format!("{name}: arrays of more than {ARRAY_LENGTH_MAX} elements");
                        leave_out(&mut of.left_out, sentence, 1);
                    }
                },
            }
        }
        self.batch.end();
        let time = &mut self.report.topics[topic].time;
        *time = Some(time.map_or((receive_time, receive_time), |(a, b)| (a.min(receive_time), b.max(receive_time))));
        if self.batch.size_bytes() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    fn reject_of(&mut self, topic: usize, reason: &'static str) {
        self.report.topics[topic].rejected += 1;
        self.reject(reason);
    }

    /// Ensures that all leaves with values have channels.
    fn make_ready(&mut self, topic: usize, values: &Values<'_>) -> Result<(), Reject> {
        let (of, about) = (&mut self.topics[topic], &mut self.report.topics[topic]);
        let leaves = of.decoder.leaves();
        let mut grown = of.targets.len() < leaves.len() || about.stream.is_none();
        of.targets.resize(leaves.len(), LeafTarget::default());
        for (target, leaf) in of.targets.iter_mut().zip(leaves) {
            if let LeafKind::Plain(kind) = leaf.kind {
                target.kind = Some(kind);
            }
        }
        for (leaf, value) in values {
            // The first value decides whether bytes are stored as short arrays or as blobs.
            if let (LeafKind::Bytes(element), FoundValue::Array(_, bytes)) = (leaves[*leaf].kind, value)
                && of.targets[*leaf].kind.is_none()
                && !bytes.is_empty()
            {
                let is_short = bytes.len() <= SHORT_BYTES_MAX;
                of.targets[*leaf].kind = Some(bytes_type(element, is_short));
                grown = true;
            }
        }
        if !grown {
            return Ok(());
        }
        let known: Vec<usize> = (0..leaves.len()).filter(|leaf| of.targets[*leaf].kind.is_some()).collect();
        let channels = known.iter().filter_map(|leaf| {
            let mut spec = ChannelSpec::new(leaves[*leaf].name.clone(), of.targets[*leaf].kind?);
            spec.unit = leaves[*leaf].unit.to_owned();
            Some(spec)
        });
        let spec = StreamSpec {
            key: about.key.clone(),
            source: SOURCE.to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: matches!(self.report.numbering, Numbering::Channel(_)).then_some(SEQUENCE_MODULUS),
            channels: channels.collect(),
        };
        let (stream, indices) = self.sink.resolve(&spec)?;
        about.stream = Some(stream.id);
        self.by_stream.insert(stream.id, topic);
        for (leaf, index) in known.into_iter().zip(indices) {
            of.targets[leaf].index = Some(index);
        }
        Ok(())
    }

    /// Commits when the recording enters another second, as with captures, because a gap row should cover no more time
    /// than it would have live.
    fn end_second_before(&mut self, time: i64) {
        let second = time.div_euclid(1_000_000_000);
        if second <= self.second {
            return;
        }
        self.second = second;
        self.hand_over();
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(commit) = self.report.commit
            && let Err(refusal) = self.sink.wait_durable(commit)
        {
            self.refusal.get_or_insert(refusal);
        }
    }

    fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let appended = self.sink.accept_waiting(&self.batch);
        self.report.commit = self.report.commit.max(Some(appended.commit));
        for (frame, outcome) in self.batch.frames().zip(appended.outcomes) {
            let Some(topic) = self.by_stream.get(&frame.head().stream) else { continue };
            let topic = &mut self.report.topics[*topic];
            match outcome {
                Outcome::Stored { .. } | Outcome::Reduced { .. } => topic.stored += 1,
                Outcome::Duplicate => topic.duplicate += 1,
                Outcome::Rejected(reject) => {
                    topic.rejected += 1;
                    *self.report.rejected.entry(reject.reason()).or_default() += 1;
                    if let Reject::Refused(refusal) = reject {
                        self.refusal = Some(refusal);
                    }
                }
            }
        }
        self.batch.clear();
    }

    /// Hands over the rest, waits until everything is durable, and reports what was left out.
    fn finish(mut self) -> (McapReport, Option<Refusal>) {
        self.hand_over();
        self.wait();
        for (topic, about) in self.topics.into_iter().zip(&mut self.report.topics) {
            about.left_out = topic.left_out;
            for (sentence, count) in topic.decoder.left_out() {
                *about.left_out.entry(sentence.clone()).or_default() += count;
            }
        }
        (self.report, self.refusal)
    }
}

/// Converts a time of the file, or returns `None` if it is out of the store's range.
fn time_of(ns: u64) -> Option<i64> {
    i64::try_from(ns).ok()
}

/// Returns the type of a channel of bytes.
fn bytes_type(element: ElementType, is_short: bool) -> ChannelType {
    match is_short {
        true => ChannelType::Array(ArrayType::variable(element)),
        false => ChannelType::Blob,
    }
}
