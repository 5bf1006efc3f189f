//! A sink that keeps what it gets, with the store's rules for names and types.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use strongback_sources::Sink;
use strongback_store::{
    Appended, CellState, Channel, ChannelId, ChannelIndex, ChannelType, CommitNumber, FrameBatch, Interpolation,
    Layout, Outcome, Reduction, Refusal, Reject, Stream, StreamId, StreamKey, StreamSpec, Value,
};

/// A value that owns its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kept {
    Plain(Value<'static>),
    Text(String),
}

impl Kept {
    pub(crate) fn of(value: Value<'_>) -> Kept {
        match value {
            Value::String(s) => Kept::Text(s.to_owned()),
            other => Kept::Plain(Value::from_bits(other.channel_type(), other.bits())),
        }
    }

    pub(crate) fn f64(v: f64) -> Kept {
        Kept::Plain(Value::F64(v))
    }
}

/// A frame as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptFrame {
    pub(crate) stream: StreamId,
    pub(crate) receive_time: i64,
    pub(crate) source_time: Option<i64>,
    pub(crate) sequence: Option<u64>,
    pub(crate) cells: Vec<(ChannelIndex, Result<Kept, CellState>)>,
}

#[derive(Default)]
struct State {
    streams: Vec<Arc<Stream>>,
    by_key: HashMap<StreamKey, usize>,
    frames: Vec<KeptFrame>,
    commits: u64,
    waits: u64,
    rejected: u64,
    resolves: u64,
    generation: u64,
    /// The next so many frames are refused.
    refuse: Option<(Refusal, usize)>,
}

/// The sink.
pub(crate) struct Recording {
    state: Mutex<State>,
    max_streams: u32,
}

impl Recording {
    pub(crate) fn new() -> Arc<Recording> {
        Recording::with_max_streams(100_000)
    }

    pub(crate) fn with_max_streams(max_streams: u32) -> Arc<Recording> {
        Arc::new(Recording { state: Mutex::default(), max_streams })
    }

    pub(crate) fn frames(&self) -> Vec<KeptFrame> {
        self.state.lock().frames.clone()
    }

    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        self.state.lock().streams.clone()
    }

    pub(crate) fn resolves(&self) -> u64 {
        self.state.lock().resolves
    }

    pub(crate) fn waits(&self) -> u64 {
        self.state.lock().waits
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.state.lock().rejected
    }

    pub(crate) fn refuse(&self, refusal: Refusal, frames: usize) {
        self.state.lock().refuse = Some((refusal, frames));
    }

    /// Holds everyone who hands over frames while `f` runs.
    pub(crate) fn while_stalled(&self, f: impl FnOnce()) {
        let _held = self.state.lock();
        f();
    }

    /// As after a reopening that lost the newest streams.
    pub(crate) fn forget_streams(&self) {
        let mut state = self.state.lock();
        state.streams.clear();
        state.by_key.clear();
        state.frames.clear();
        state.generation += 1;
    }

    /// Values of the frames of a stream by column name.
    pub(crate) fn rows(&self, stream: &str) -> Vec<Vec<(String, Kept)>> {
        let state = self.state.lock();
        let Some(stream) = state.streams.iter().find(|s| s.key.to_string() == stream) else { return Vec::new() };
        let rows = state.frames.iter().filter(|f| f.stream == stream.id).map(|f| {
            let cells = f
                .cells
                .iter()
                .filter_map(|(c, v)| Some((stream.layout.channel(*c).name.clone(), v.as_ref().ok()?.clone())));
            cells.collect()
        });
        rows.collect()
    }

    /// Waits until it holds `n` frames.
    pub(crate) fn wait_for_frames(&self, n: usize) -> Vec<KeptFrame> {
        eventually(&format!("{n} frames"), || {
            let frames = self.frames();
            (frames.len() >= n).then_some(frames)
        })
    }
}

/// Polls until there is something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const RESERVED: [&str; 8] =
    ["time", "time_ns", "receive_time", "receive_time_ns", "source_time", "source_time_ns", "sequence", "session"];

impl Sink for Recording {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let mut state = self.state.lock();
        state.resolves += 1;
        if spec.key.is_internal() {
            return Err(Reject::BadName { name: spec.key.table.clone(), why: "reserved" });
        }
        let at = match state.by_key.get(&spec.key) {
            Some(at) => *at,
            None if state.streams.len() >= self.max_streams as usize => {
                return Err(Reject::TooManyStreams { stream: spec.key.to_string(), max_streams: self.max_streams });
            }
            None => {
                let at = state.streams.len();
                state.streams.push(Arc::new(Stream {
                    id: StreamId(at as u32),
                    key: spec.key.clone(),
                    source: spec.source.clone(),
                    clock: spec.clock,
                    expected_period_ns: spec.expected_period_ns,
                    sequence_modulus: spec.sequence_modulus,
                    layout: Arc::new(Layout { version: 0, channels: Vec::new() }),
                }));
                state.by_key.insert(spec.key.clone(), at);
                at
            }
        };
        let mut stream = (*state.streams[at]).clone();
        let mut layout = (*stream.layout).clone();
        let mut indexes = Vec::new();
        for channel in &spec.channels {
            let plain = if RESERVED.contains(&channel.name.as_str()) || spec.key.tag(&channel.name).is_some() {
                format!("{}_field", channel.name)
            } else {
                channel.name.clone()
            };
            let fits = |layout: &Layout, name: &str, kind: ChannelType| {
                layout.channels.iter().position(|c| c.name == name && c.channel_type == kind)
            };
            let taken = layout.channels.iter().any(|c| c.name == plain);
            let second = format!("{plain}_{}", channel.channel_type.name());
            let found =
                fits(&layout, &plain, channel.channel_type).or_else(|| fits(&layout, &second, channel.channel_type));
            let index = found.unwrap_or_else(|| {
                layout.channels.push(Channel {
                    id: ChannelId(0),
                    name: if taken { second } else { plain },
                    source_name: channel.name.clone(),
                    channel_type: channel.channel_type,
                    unit: channel.unit.clone(),
                    description: channel.description.clone(),
                    interpolation: Interpolation::Hold,
                    reduction: Reduction::None,
                });
                layout.channels.len() - 1
            });
            indexes.push(ChannelIndex(index as u16));
        }
        stream.layout = Arc::new(layout);
        let stream = Arc::new(stream);
        state.streams[at] = Arc::clone(&stream);
        Ok((stream, indexes))
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        for frame in batch.frames() {
            if let Some((refusal, n)) = &mut state.refuse
                && *n > 0
            {
                *n -= 1;
                outcomes.push(Outcome::Rejected(Reject::Refused(refusal.clone())));
                continue;
            }
            let head = frame.head();
            let kept = KeptFrame {
                stream: head.stream,
                receive_time: head.receive_time,
                source_time: head.source_time,
                sequence: head.sequence,
                cells: frame.cells().map(|(c, v)| (c, v.map(Kept::of))).collect(),
            };
            // As the store: stream, time and all values equal.
            if kept.source_time.is_some()
                && kept.sequence.is_none()
                && state
                    .frames
                    .iter()
                    .any(|f| f.source_time == kept.source_time && f.stream == kept.stream && f.cells == kept.cells)
            {
                outcomes.push(Outcome::Duplicate);
                continue;
            }
            outcomes.push(Outcome::Stored { row: state.frames.len() as u64 });
            state.frames.push(kept);
        }
        Appended { outcomes, commit: CommitNumber(state.commits + 1) }
    }

    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        state.waits += 1;
        state.commits = state.commits.max(commit.0);
        Ok(())
    }

    fn count_rejected(&self, _stream: StreamId, frames: u64) {
        self.state.lock().rejected += frames;
    }

    fn generation(&self) -> u64 {
        self.state.lock().generation
    }
}
