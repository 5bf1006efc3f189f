//! A group of symbols: its memory image, and the frames made from it.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Reject, StreamId, StreamSpec,
};

use super::cycle::{Cycles, Judged, RateWatch};
use super::error::AdsError;
use super::layout::GroupLayout;
use super::leaf::Leaf;
use super::plan::MemoryBlock;
use super::select::channel_name;
use super::value::ValueKind;
use super::wire::{PlcPlace, unix_ns};
use crate::config::{Enumerations, ReadMode};
use crate::sink::Sink;

/// Modulus of cycle numbers, large enough that they never wrap.
const CYCLES_MODULUS: u64 = 1 << 62;
/// Delay beyond the quickest notification so far from which one counts as late.
const LATE_NS: i64 = 100_000_000;
/// Factor above the requested rate that raises an alarm.
const TOO_FAST: f64 = 2.0;
/// Time that a frame waits for its number beyond half a cycle, and maximum of that half cycle.
const DECIDE_AFTER: Duration = Duration::from_millis(50);
const HALF_CYCLE_MAX: Duration = Duration::from_millis(100);
/// Time that a frame waits for further samples of its timestamp. The PLC sends them one after the other.
const HOLD: Duration = Duration::from_millis(2);
/// Time to wait for further samples if all parts of a group are sent each cycle, so that a missing part is unusual.
const HOLD_CYCLIC: Duration = Duration::from_millis(50);
/// Consecutive frames that lacked a part sent within the same cycle, from which parts are gathered by cycle.
const SHIFTED_FROM: u32 = 4;
/// Cycles without a sample of a part, and minimum time, after which the part is silent.
const SILENT_CYCLES: u32 = 4;
const SILENT_MIN: Duration = Duration::from_secs(1);

/// Location of a channel's value in the image.
#[derive(Clone, Debug)]
struct ImageField {
    at: usize,
    size: usize,
    kind: ValueKind,
    channel: ChannelIndex,
    /// Names of an enumeration's numbers, if it is stored by name.
    names: Option<Arc<[(i64, String)]>>,
}

/// A block and its state.
#[derive(Clone, Debug)]
pub(crate) struct BlockPart {
    pub(crate) place: PlcPlace,
    /// Range of its leaves and fields.
    pub(crate) leaves: Range<usize>,
    at: usize,
    /// Whether values are expected.
    pub(crate) active: bool,
    /// Error that keeps it from yielding values, if any.
    pub(crate) error: Option<AdsError>,
    /// Time of its newest sample, or of the first check before any sample.
    heard: Option<Instant>,
    /// Whether it has been silent for long while other parts were not.
    pub(crate) is_silent: bool,
}

impl BlockPart {
    /// Returns the block it reads.
    pub(crate) fn block(&self) -> MemoryBlock {
        MemoryBlock { place: self.place, leaves: self.leaves.clone() }
    }
}

/// Bytes of a group's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    came: Vec<bool>,
    count: usize,
}

impl Image {
    fn has(&self, part: usize) -> bool {
        self.came.get(part).copied().unwrap_or(false)
    }

    /// Makes room for more parts after the existing ones, whose bytes stay.
    fn grow(&mut self, bytes: usize, parts: usize) {
        self.bytes.resize(bytes, 0);
        self.came.resize(parts, false);
    }

    fn clear(&mut self) {
        self.came.fill(false);
        self.count = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A frame of notifications that may receive more samples.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Newest timestamp of its samples.
    filetime: u64,
    /// Timestamp of its first sample.
    first: u64,
    receive_time: i64,
    since: Instant,
}

/// Findings from frames of notifications.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) dropped: u64,
    pub(crate) late: u64,
    pub(crate) clock_set: bool,
    /// Frames per second, if more than twice those requested.
    pub(crate) too_fast: Option<f64>,
}

impl Shown {
    fn add(&mut self, other: Shown) {
        self.dropped += other.dropped;
        self.late += other.late;
        self.clock_set |= other.clock_set;
        self.too_fast = other.too_fast.or(self.too_fast);
    }
}

/// State of a group that outlasts a connection.
#[derive(Clone, Debug)]
pub(crate) struct GroupPast {
    pub(crate) cycles: Cycles,
    /// Number and time of the newest frame. Cyclic reads continue from it, whatever clock numbered it.
    pub(crate) newest: Option<(u64, Instant)>,
    /// Whether it came too fast and is now read instead.
    pub(crate) is_read: bool,
}

impl GroupPast {
    pub(crate) fn new(layout: &GroupLayout) -> GroupPast {
        GroupPast { cycles: Cycles::new(layout.cycle.as_nanos() as i64), newest: None, is_read: false }
    }
}

/// A group in operation.
#[derive(Debug)]
pub(crate) struct Group {
    /// Index of its layout.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) mode: ReadMode,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) parts: Vec<BlockPart>,
    pub(crate) past: GroupPast,
    spec: StreamSpec,
    pub(crate) stream: StreamId,
    fields: Vec<ImageField>,
    image: Image,
    /// Number of parts expected to yield values.
    expected: usize,
    open: Option<Open>,
    /// Frames waiting for their numbers.
    waiting: FrameBatch,
    waiting_since: Option<Instant>,
    judged: Vec<Judged>,
    /// Consecutive frames that lacked a part sent within the same cycle.
    halves: u32,
    cycle_ns: i64,
    watch: RateWatch,
    /// Minimum time from timestamp to reception.
    transit: Option<i64>,
}

impl Group {
    /// Resolves a group's stream with the sink.
    ///
    /// # Errors
    /// If the sink refuses it.
    pub(crate) fn bind(
        index: usize,
        layout: &GroupLayout,
        (source, clock): (&str, Clock),
        leaves: Vec<Leaf>,
        past: GroupPast,
        sink: &dyn Sink,
    ) -> Result<Group, Reject> {
        let is_cyclic = layout.mode != ReadMode::OnChangeNotification;
        let cycle_ns = layout.cycle.as_nanos() as i64;
        let is_named = |leaf: &Leaf| layout.enumerations == Enumerations::Names && !leaf.names.is_empty();
        let channel_type = |leaf: &Leaf| if is_named(leaf) { ChannelType::String } else { leaf.kind.channel_type() };
        let channel = |leaf: &Leaf| ChannelSpec {
            unit: leaf.unit.clone(),
            description: leaf.description.clone(),
            ..ChannelSpec::new(channel_name(layout, &leaf.name), channel_type(leaf))
        };
        let spec = StreamSpec {
            key: layout.key.clone(),
            source: source.to_owned(),
            clock,
            expected_period_ns: is_cyclic.then_some(cycle_ns),
            sequence_modulus: is_cyclic.then_some(CYCLES_MODULUS),
            channels: leaves.iter().map(channel).collect(),
        };
        let (stream, channels) = sink.resolve(&spec)?;
        let field = |(leaf, channel): (&Leaf, &ChannelIndex)| ImageField {
            at: 0,
            size: leaf.place.size as usize,
            kind: leaf.kind,
            channel: *channel,
            names: is_named(leaf).then(|| leaf.names.clone().into()),
        };
        let fields = leaves.iter().zip(&channels).map(field).collect();
        let mode = if past.is_read { ReadMode::CyclicRead } else { layout.mode };
        Ok(Group {
            index,
            name: layout.key.to_string(),
            port: layout.port,
            mode,
            leaves,
            parts: Vec::new(),
            past,
            spec,
            stream: stream.id,
            fields,
            image: Image::default(),
            expected: 0,
            open: None,
            waiting: FrameBatch::new(),
            waiting_since: None,
            judged: Vec::new(),
            halves: 0,
            cycle_ns,
            watch: RateWatch::default(),
            transit: None,
        })
    }

    /// Resolves its stream again after the store was reopened.
    ///
    /// # Errors
    /// If the sink refuses it.
    pub(crate) fn rebind(&mut self, sink: &dyn Sink) -> Result<(), Reject> {
        let (stream, channels) = sink.resolve(&self.spec)?;
        self.stream = stream.id;
        for (field, channel) in self.fields.iter_mut().zip(channels) {
            field.channel = channel;
        }
        Ok(())
    }

    /// Adds blocks to read or subscribe to. An open frame stays open, because its samples are not sent again. Returns
    /// the index of the first new part.
    pub(crate) fn add_parts(&mut self, blocks: Vec<MemoryBlock>) -> usize {
        let first = self.parts.len();
        let mut at = self.parts.last().map_or(0, |part| part.at + part.place.size as usize);
        for block in blocks {
            for i in block.leaves.clone() {
                let within = self.leaves[i].place.offset - block.place.offset;
                self.fields[i].at = at + within as usize;
            }
            let size = block.place.size as usize;
            self.parts.push(BlockPart {
                place: block.place,
                leaves: block.leaves,
                at,
                active: true,
                error: None,
                heard: None,
                is_silent: false,
            });
            at += size;
        }
        self.image.grow(at, self.parts.len());
        self.expected = self.parts.iter().filter(|part| part.active).count();
        first
    }

    /// Stops expecting values of a part, because of an error.
    pub(crate) fn give_up(&mut self, part: usize, error: AdsError) {
        let part = &mut self.parts[part];
        (part.active, part.error) = (false, Some(error));
        self.expected = self.parts.iter().filter(|part| part.active).count();
    }

    /// Drops all blocks, so that they can be requested in another way.
    pub(crate) fn clear_parts(&mut self) {
        self.parts.clear();
        self.image = Image::default();
        self.expected = 0;
        self.open = None;
    }

    /// Replaces a block by one for each of its leaves. Returns the index of the first.
    pub(crate) fn split(&mut self, part: usize) -> usize {
        self.parts[part].active = false;
        self.parts[part].error = None;
        let leaves = self.parts[part].leaves.clone();
        let single = leaves.map(|i| MemoryBlock { place: self.leaves[i].place, leaves: i..i + 1 }).collect();
        self.add_parts(single)
    }

    /// Creates an image with room for the bytes of all parts.
    pub(crate) fn new_image(&self) -> Image {
        let bytes = self.parts.last().map_or(0, |part| part.at + part.place.size as usize);
        Image { bytes: vec![0; bytes], came: vec![false; self.parts.len()], count: 0 }
    }

    /// Copies the bytes of a part into an image. Returns `false` if their length is wrong.
    pub(crate) fn put(&self, part: usize, data: &[u8], image: &mut Image) -> bool {
        put(&self.parts, part, data, image)
    }

    /// Makes a frame from an image and clears the image.
    pub(crate) fn emit(&self, image: &mut Image, head: FrameHead, batch: &mut FrameBatch) {
        batch.begin(head);
        for (part, came) in self.parts.iter().zip(&image.came) {
            if !came || !part.active {
                continue;
            }
            for field in &self.fields[part.leaves.clone()] {
                let Some(bytes) = image.bytes.get(field.at..field.at + field.size) else { continue };
                match &field.names {
                    None => field.kind.push(bytes, field.channel, batch),
                    Some(names) => field.kind.push_name(names, bytes, field.channel, batch),
                };
            }
        }
        batch.end();
        image.clear();
    }

    /// Takes a sample of a notification. Returns whether its length is right, and the findings of frames it completed.
    pub(crate) fn sample(
        &mut self,
        part: usize,
        (filetime, data): (u64, &[u8]),
        receive_time: i64,
        now: Instant,
        batch: &mut FrameBatch,
    ) -> (bool, Option<Shown>) {
        let mut shown = None;
        if self.open.is_some_and(|open| open.filetime != filetime) && !self.joins(part, filetime) {
            shown = self.flush(batch);
        }
        if !put(&self.parts, part, data, &mut self.image) {
            return (false, shown);
        }
        self.parts[part].heard = Some(now);
        let open = self.open.get_or_insert(Open { filetime, first: filetime, receive_time, since: now });
        (open.receive_time, open.filetime) = (receive_time, open.filetime.max(filetime));
        if self.mode == ReadMode::CyclicNotification && self.image.count == self.expected {
            if open.first == open.filetime {
                self.halves = 0;
            }
            if let Some(more) = self.flush(batch) {
                shown.get_or_insert_default().add(more);
            }
        }
        (true, shown)
    }

    /// Reports whether a sample of another timestamp still belongs to the open frame. If the PLC started the
    /// notifications of a group's parts in different cycles, each part has its own phase within the cycle.
    fn joins(&mut self, part: usize, filetime: u64) -> bool {
        let Some(open) = self.open else { return false };
        // Timestamps count 100 ns. From about a whole cycle on, allowing for jitter, the sample belongs to the next
        // frame.
        let within = (self.past.cycles.real_ns() / 100) as u64 * 3 / 4;
        let is_within = filetime.checked_sub(open.first).is_some_and(|since| since < within);
        if self.mode != ReadMode::CyclicNotification || !is_within || self.image.has(part) {
            return false;
        }
        self.halves = self.halves.saturating_add(1);
        self.is_shifted()
    }

    fn is_shifted(&self) -> bool {
        self.halves >= SHIFTED_FROM
    }

    /// Returns the time at which the open frame is completed regardless.
    fn open_until(&self) -> Option<Instant> {
        let hold = match self.mode {
            ReadMode::CyclicNotification if self.is_shifted() => HOLD_CYCLIC.max(self.real_cycle()),
            ReadMode::CyclicNotification => HOLD_CYCLIC,
            _ => HOLD,
        };
        Some(self.open?.since + hold)
    }

    /// Returns the time at which waiting frames are numbered regardless of later timestamps.
    fn waiting_until(&self) -> Option<Instant> {
        Some(self.waiting_since? + DECIDE_AFTER + HALF_CYCLE_MAX.min(self.real_cycle() / 2))
    }

    /// Returns the earliest time at which a waiting frame is due.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        [self.open_until(), self.waiting_until()].into_iter().flatten().min()
    }

    fn real_cycle(&self) -> Duration {
        Duration::from_nanos(self.past.cycles.real_ns() as u64)
    }

    /// Completes frames that waited until `now`, or all waiting frames for `None`.
    pub(crate) fn end_frames(&mut self, now: Option<Instant>, batch: &mut FrameBatch) -> Option<Shown> {
        let is_due = |until: Option<Instant>| until.is_some_and(|until| now.is_none_or(|now| until <= now));
        let mut shown = if is_due(self.open_until()) { self.flush(batch) } else { None };
        if is_due(self.waiting_until()) {
            let mut judged = std::mem::take(&mut self.judged);
            self.past.cycles.decide(&mut judged);
            self.number(&judged, shown.get_or_insert_default(), batch);
            self.waiting_since = None;
            judged.clear();
            self.judged = judged;
        }
        shown
    }

    /// Completes the open frame. It waits if its timestamp does not determine its number yet.
    fn flush(&mut self, batch: &mut FrameBatch) -> Option<Shown> {
        let open = self.open.take()?;
        let source_time = unix_ns(open.filetime);
        let stamp = source_time.unwrap_or(open.receive_time);
        let mut shown = Shown::default();
        let transit = open.receive_time.saturating_sub(stamp);
        let least = self.transit.map_or(transit, |least| least.min(transit));
        let is_late = transit - least > LATE_NS.max(self.cycle_ns * 2);
        shown.late = u64::from(is_late);
        let mut head = FrameHead { stream: self.stream, receive_time: open.receive_time, source_time, sequence: None };
        let mut image = std::mem::take(&mut self.image);
        if self.spec.sequence_modulus.is_some() {
            let mut judged = std::mem::take(&mut self.judged);
            self.past.cycles.judge(stamp, open.receive_time, &mut judged);
            let own = judged.get(self.waiting.len()).copied();
            self.number(&judged, &mut shown, batch);
            match own {
                Some(own) => {
                    shown.late += u64::from(own.is_old && !is_late);
                    head.sequence = self.take_number(&own, open.since, &mut shown);
                    self.emit(&mut image, head, batch);
                }
                None => {
                    let mut waiting = std::mem::take(&mut self.waiting);
                    self.emit(&mut image, head, &mut waiting);
                    self.waiting = waiting;
                    self.waiting_since = Some(open.since);
                }
            }
            if self.waiting.is_empty() {
                self.waiting_since = None;
            }
            judged.clear();
            self.judged = judged;
        } else {
            self.emit(&mut image, head, batch);
        }
        self.image = image;
        self.transit = Some(if shown.clock_set { transit } else { least });
        let wanted = 1e9 / self.cycle_ns as f64;
        shown.too_fast = self.watch.frame(stamp).filter(|rate| *rate > wanted * TOO_FAST);
        Some(shown)
    }

    /// Numbers the oldest waiting frames, as many as were judged.
    fn number(&mut self, judged: &[Judged], shown: &mut Shown, batch: &mut FrameBatch) {
        let decided = judged.len().min(self.waiting.len());
        if decided == 0 {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let at = self.waiting_since.unwrap_or_else(Instant::now);
        for (frame, judged) in waiting.frames().zip(judged) {
            let sequence = self.take_number(judged, at, shown);
            batch.copy(&frame.with_sequence(sequence));
        }
        for frame in waiting.frames().skip(decided) {
            self.waiting.copy(&frame);
        }
    }

    /// Returns the sequence of a judged frame and counts its findings.
    fn take_number(&mut self, judged: &Judged, at: Instant, shown: &mut Shown) -> Option<u64> {
        if self.past.newest.is_none_or(|(number, _)| number <= judged.number) {
            self.past.newest = Some((judged.number, at));
        }
        shown.dropped += judged.dropped;
        shown.clock_set |= judged.clock_set;
        (!judged.is_known).then_some(judged.number)
    }

    /// Finds parts that have been silent for long while others have not. Returns each part whose silence began or
    /// ended, with the time since its newest sample.
    pub(crate) fn look_for_silence(&mut self, now: Instant) -> Vec<(usize, Duration)> {
        if self.mode != ReadMode::CyclicNotification {
            return Vec::new();
        }
        let limit = SILENT_MIN.max(self.real_cycle().saturating_mul(SILENT_CYCLES));
        let of = |part: &BlockPart| part.heard.map(|heard| now.saturating_duration_since(heard));
        let any = self.parts.iter().filter(|part| part.active).filter_map(of).min();
        let mut changed = Vec::new();
        for (at, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.active) {
            // A part without any sample counts from the first check.
            let since = now.saturating_duration_since(*part.heard.get_or_insert(now));
            let is_silent = since >= limit && any.is_some_and(|any| any < limit);
            let is_back = part.is_silent && since < limit;
            if is_silent && !part.is_silent || is_back {
                part.is_silent = is_silent;
                changed.push((at, since));
            }
        }
        changed
    }
}

fn put(parts: &[BlockPart], part: usize, data: &[u8], image: &mut Image) -> bool {
    let (Some(part_of), Some(came)) = (parts.get(part), image.came.get_mut(part)) else { return false };
    let size = part_of.place.size as usize;
    let Some(place) = image.bytes.get_mut(part_of.at..part_of.at + size).filter(|_| data.len() == size) else {
        return false;
    };
    place.copy_from_slice(data);
    if !*came {
        *came = true;
        image.count += 1;
    }
    true
}
