//! The kit of the store's tests: places, options, streams and frames. The tests inside the crate share this file; what
//! it names of the crate is what the module above it names.

// Each test binary uses its part of it.
#![allow(dead_code)]

use std::borrow::Borrow;
use std::path::Path;

use super::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Keep, OpenError, Outcome, Pattern, Reduction,
    RetentionGroup, Store, StoreOptions, StreamId, StreamKey, StreamSpec, Value,
};

/// The time at which the tests begin.
pub(crate) const T0: i64 = 1_790_000_000_000_000_000;
pub(crate) const MS: i64 = 1_000_000;
pub(crate) const SECOND: i64 = 1_000_000_000;

/// What a store is opened on: a folder, or a disk of the tests.
pub(crate) trait Place {
    fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError>;
}

impl<P: AsRef<Path> + ?Sized> Place for P {
    fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open(self.as_ref(), options, now)
    }
}

/// Opens a store, or makes one, at [`T0`].
pub(crate) fn open(place: &(impl Place + ?Sized), options: impl Borrow<StoreOptions>) -> Store {
    open_at(place, options, T0)
}

/// Opens a store, or makes one.
pub(crate) fn open_at(place: &(impl Place + ?Sized), options: impl Borrow<StoreOptions>, now: i64) -> Store {
    place.open_store(options.borrow().clone(), now).expect("opened")
}

/// Returns the options of a store of up to 1 GiB with a log and segments of these sizes.
pub(crate) fn sized(log_bytes: u64, segment_bytes: u64) -> StoreOptions {
    StoreOptions { log_bytes, segment_bytes, max_bytes: Some(1 << 30), ..StoreOptions::default() }
}

/// Returns a retention group of the streams that match a pattern.
pub(crate) fn group(name: &str, streams: &str, keep: Keep) -> RetentionGroup {
    let streams = Some(Pattern::parse(streams).expect("a pattern"));
    RetentionGroup { name: name.into(), streams, keep, max_age: None }
}

/// What describes a channel: name and type, and a reduction where there is one.
pub(crate) trait IntoChannel {
    fn into_channel(self) -> ChannelSpec;
}

impl IntoChannel for ChannelSpec {
    fn into_channel(self) -> ChannelSpec {
        self
    }
}

impl<N: Into<String>> IntoChannel for (N, ChannelType) {
    fn into_channel(self) -> ChannelSpec {
        ChannelSpec::new(self.0, self.1)
    }
}

impl<N: Into<String>> IntoChannel for (N, ChannelType, Reduction) {
    fn into_channel(self) -> ChannelSpec {
        ChannelSpec { reduction: self.2, ..ChannelSpec::new(self.0, self.1) }
    }
}

impl<C: IntoChannel + Clone> IntoChannel for &C {
    fn into_channel(self) -> ChannelSpec {
        self.clone().into_channel()
    }
}

/// Describes a stream whose `time` is that of reception, without tags and sequences.
pub(crate) fn spec(table: impl Into<String>, channels: impl IntoIterator<Item = impl IntoChannel>) -> StreamSpec {
    let channels = channels.into_iter().map(|channel| channel.into_channel()).collect();
    StreamSpec::new(StreamKey::new(table, []), channels).source("test")
}

/// Describes a stream whose rows say their number, and hold 8 bytes that no codec makes smaller.
pub(crate) fn counting(table: impl Into<String>) -> StreamSpec {
    spec(table, [("row", ChannelType::U64), ("noise", ChannelType::U64)])
}

/// What a test changes of a [`spec`].
pub(crate) trait SpecExt {
    fn tag(self, key: &str, value: impl ToString) -> StreamSpec;
    fn source(self, source: impl Into<String>) -> StreamSpec;
    fn clock(self, clock: Clock) -> StreamSpec;
    fn modulus(self, sequence_modulus: Option<u64>) -> StreamSpec;
}

impl SpecExt for StreamSpec {
    fn tag(mut self, key: &str, value: impl ToString) -> StreamSpec {
        self.key.tags.push((key.to_owned(), value.to_string()));
        self.key = StreamKey::new(self.key.table, self.key.tags);
        self
    }

    fn source(self, source: impl Into<String>) -> StreamSpec {
        StreamSpec { source: source.into(), ..self }
    }

    fn clock(self, clock: Clock) -> StreamSpec {
        StreamSpec { clock, ..self }
    }

    fn modulus(self, sequence_modulus: Option<u64>) -> StreamSpec {
        StreamSpec { sequence_modulus, ..self }
    }
}

/// Returns the head of a frame without source time and sequence.
pub(crate) fn head(stream: StreamId, receive_time: i64) -> FrameHead {
    FrameHead { stream, receive_time, source_time: None, sequence: None }
}

/// What a test adds to a [`head`].
pub(crate) trait HeadExt {
    fn sampled(self, source_time: Option<i64>) -> FrameHead;
    fn numbered(self, sequence: Option<u64>) -> FrameHead;
}

impl HeadExt for FrameHead {
    fn sampled(self, source_time: Option<i64>) -> FrameHead {
        FrameHead { source_time, ..self }
    }

    fn numbered(self, sequence: Option<u64>) -> FrameHead {
        FrameHead { sequence, ..self }
    }
}

pub(crate) trait BatchExt {
    /// Adds a frame with values of the first channels.
    fn put<'v>(&mut self, head: FrameHead, values: impl IntoIterator<Item = Value<'v>>);

    /// Adds a frame with values of any channels.
    fn put_at<'v>(&mut self, head: FrameHead, cells: impl IntoIterator<Item = (ChannelIndex, Value<'v>)>);
}

impl BatchExt for FrameBatch {
    fn put<'v>(&mut self, head: FrameHead, values: impl IntoIterator<Item = Value<'v>>) {
        self.put_at(head, (0..).map(ChannelIndex).zip(values));
    }

    fn put_at<'v>(&mut self, head: FrameHead, cells: impl IntoIterator<Item = (ChannelIndex, Value<'v>)>) {
        self.begin(head);
        cells.into_iter().for_each(|(channel, value)| self.push(channel, value));
        self.end();
    }
}

/// Whether a frame was stored.
pub(crate) fn is_stored(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Stored { .. })
}

pub(crate) trait StoreExt {
    /// Makes a stream, or finds it.
    fn stream(&self, spec: &StreamSpec) -> StreamId;

    /// Appends frames; returns how many were stored.
    fn send(&self, batch: &FrameBatch, now: i64) -> u64;

    /// Commits, and maintains until nothing is left to do.
    fn upkeep(&self, now: i64);

    /// Appends frames of a [`counting`] stream; returns how many were stored.
    fn append_counting(&self, stream: StreamId, rows: std::ops::Range<u64>, now: i64) -> u64;
}

impl StoreExt for Store {
    fn stream(&self, spec: &StreamSpec) -> StreamId {
        self.resolve(spec, T0).expect("resolved").0.id
    }

    fn send(&self, batch: &FrameBatch, now: i64) -> u64 {
        self.append(batch, now).outcomes.iter().filter(|outcome| is_stored(outcome)).count() as u64
    }

    fn upkeep(&self, now: i64) {
        self.commit(now).expect("committed");
        while self.maintain(now).expect("maintained") {}
    }

    fn append_counting(&self, stream: StreamId, rows: std::ops::Range<u64>, now: i64) -> u64 {
        let (mut batch, mut random) = (FrameBatch::new(), fastrand::Rng::with_seed(rows.start));
        for row in rows {
            batch.put(head(stream, now), [Value::U64(row), Value::U64(random.u64(..))]);
        }
        self.send(&batch, now)
    }
}
