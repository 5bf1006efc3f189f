//! A group of symbols at work: its memory image, and the frames made of it.

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

/// Numbers of cycles count modulo this: they never come round.
const CYCLES_MODULUS: u64 = 1 << 62;
/// A notification that comes this much later than the quickest one so far is late.
const LATE_NS: i64 = 100_000_000;
/// More than this times the rate asked for is an alarm.
const TOO_FAST: f64 = 2.0;
/// How long a frame whose number waits for the stamps behind it waits for them beyond half a cycle, and the most of that
/// half.
const DECIDE_AFTER: Duration = Duration::from_millis(50);
const HALF_CYCLE_MAX: Duration = Duration::from_millis(100);
/// How long a frame waits for further samples of its stamp: the PLC sends them one after the other.
const HOLD: Duration = Duration::from_millis(2);
/// The same where all parts of a group come each cycle: a frame without one is unusual.
const HOLD_CYCLIC: Duration = Duration::from_millis(50);
/// Frames in a row that lacked a part which came within the same cycle, from which on parts are gathered by cycle.
const SHIFTED_FROM: u32 = 4;
/// Cycles without a sample of a part, and the least time, from which on it is silent.
const SILENT_CYCLES: u32 = 4;
const SILENT_MIN: Duration = Duration::from_secs(1);

/// Where a channel's value lies in the image.
#[derive(Clone, Debug)]
struct ImageField {
    at: usize,
    size: usize,
    kind: ValueKind,
    channel: ChannelIndex,
    /// Names of the numbers of an enumeration, if it is stored as them.
    names: Option<Arc<[(i64, String)]>>,
}

/// A block, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct BlockPart {
    pub(crate) place: PlcPlace,
    /// Which leaves, and fields, lie in it.
    pub(crate) leaves: Range<usize>,
    at: usize,
    /// Whether values are to be expected of it.
    pub(crate) active: bool,
    /// Why there are none now.
    pub(crate) error: Option<AdsError>,
    /// When its newest sample came, or it was first expected.
    heard: Option<Instant>,
    /// Whether it has not been heard of for long, while others have.
    pub(crate) is_silent: bool,
}

impl BlockPart {
    /// The block it reads.
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

    /// Makes room for more parts behind those it has, whose bytes stay.
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

/// A frame of notifications whose samples are still coming.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Newest stamp of its samples.
    filetime: u64,
    /// Stamp of its first sample.
    first: u64,
    receive_time: i64,
    since: Instant,
}

/// What frames of notifications showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) dropped: u64,
    pub(crate) late: u64,
    pub(crate) clock_set: bool,
    /// Frames a second, if they are more than twice those asked for.
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

/// What of a group lasts longer than a connection.
#[derive(Clone, Debug)]
pub(crate) struct GroupPast {
    pub(crate) cycles: Cycles,
    /// Number of the newest frame, and when it came: readings count on from there, whatever clock numbered it.
    pub(crate) newest: Option<(u64, Instant)>,
    /// It came too fast, and is read now.
    pub(crate) is_read: bool,
}

impl GroupPast {
    pub(crate) fn new(layout: &GroupLayout) -> GroupPast {
        GroupPast { cycles: Cycles::new(layout.cycle.as_nanos() as i64), newest: None, is_read: false }
    }
}

/// A group at work.
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
    /// Parts that values are expected of.
    expected: usize,
    open: Option<Open>,
    /// Frames whose numbers wait for the stamps behind them.
    waiting: FrameBatch,
    waiting_since: Option<Instant>,
    judged: Vec<Judged>,
    /// Frames in a row that lacked a part which came within the same cycle.
    halves: u32,
    cycle_ns: i64,
    watch: RateWatch,
    /// Least time from stamp to reception.
    transit: Option<i64>,
}

impl Group {
    /// Makes a group's stream known to the sink.
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

    /// Binds its stream anew, after the store was reopened.
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

    /// Adds blocks that it is read or notified by. An open frame stays open: its samples are not sent again. Returns the
    /// first new part.
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

    /// No longer expects values of a part, because of an error.
    pub(crate) fn give_up(&mut self, part: usize, error: AdsError) {
        let part = &mut self.parts[part];
        (part.active, part.error) = (false, Some(error));
        self.expected = self.parts.iter().filter(|part| part.active).count();
    }

    /// Forgets its blocks, to be asked otherwise.
    pub(crate) fn clear_parts(&mut self) {
        self.parts.clear();
        self.image = Image::default();
        self.expected = 0;
        self.open = None;
    }

    /// Replaces a block by one for each of its leaves. Returns the first of them.
    pub(crate) fn split(&mut self, part: usize) -> usize {
        self.parts[part].active = false;
        self.parts[part].error = None;
        let leaves = self.parts[part].leaves.clone();
        let single = leaves.map(|i| MemoryBlock { place: self.leaves[i].place, leaves: i..i + 1 }).collect();
        self.add_parts(single)
    }

    /// Room for the bytes of all parts.
    pub(crate) fn new_image(&self) -> Image {
        let bytes = self.parts.last().map_or(0, |part| part.at + part.place.size as usize);
        Image { bytes: vec![0; bytes], came: vec![false; self.parts.len()], count: 0 }
    }

    /// Puts the bytes of a part into an image. Says whether they are as many as they should be.
    pub(crate) fn put(&self, part: usize, data: &[u8], image: &mut Image) -> bool {
        put(&self.parts, part, data, image)
    }

    /// Makes a frame of an image, and empties it.
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

    /// Takes a sample of a notification. Returns whether its length was right, and what the frames it completed showed.
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

    /// Returns whether the sample of another stamp belongs to the open frame all the same: where the PLC began the
    /// notifications of a group's parts in different cycles, each comes at its own time of a cycle.
    fn joins(&mut self, part: usize, filetime: u64) -> bool {
        let Some(open) = self.open else { return false };
        // Stamps count 100 ns. At a whole cycle, and what jitter makes of it, the sample is of the next.
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

    /// Returns when the open frame is no longer waited for.
    fn open_until(&self) -> Option<Instant> {
        let hold = match self.mode {
            ReadMode::CyclicNotification if self.is_shifted() => HOLD_CYCLIC.max(self.real_cycle()),
            ReadMode::CyclicNotification => HOLD_CYCLIC,
            _ => HOLD,
        };
        Some(self.open?.since + hold)
    }

    /// Returns when the stamps that say the number of a frame are no longer waited for.
    fn waiting_until(&self) -> Option<Instant> {
        Some(self.waiting_since? + DECIDE_AFTER + HALF_CYCLE_MAX.min(self.real_cycle() / 2))
    }

    /// Returns when something is no longer waited for.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        [self.open_until(), self.waiting_until()].into_iter().flatten().min()
    }

    fn real_cycle(&self) -> Duration {
        Duration::from_nanos(self.past.cycles.real_ns() as u64)
    }

    /// Ends what waited until `now`; without an instant, all that waits.
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

    /// Makes the open frame a frame. It waits for its number if its stamp does not say it yet.
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

    /// Numbers frames that wait, as many as were judged, oldest first.
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

    /// Returns the sequence of a frame by what it was judged to be, and counts what it showed.
    fn take_number(&mut self, judged: &Judged, at: Instant, shown: &mut Shown) -> Option<u64> {
        if self.past.newest.is_none_or(|(number, _)| number <= judged.number) {
            self.past.newest = Some((judged.number, at));
        }
        shown.dropped += judged.dropped;
        shown.clock_set |= judged.clock_set;
        (!judged.is_known).then_some(judged.number)
    }

    /// Looks which parts have not been heard of for long while others have. Returns those for which that changed, and
    /// for how long they have not.
    pub(crate) fn look_for_silence(&mut self, now: Instant) -> Vec<(usize, Duration)> {
        if self.mode != ReadMode::CyclicNotification {
            return Vec::new();
        }
        let limit = SILENT_MIN.max(self.real_cycle().saturating_mul(SILENT_CYCLES));
        let of = |part: &BlockPart| part.heard.map(|heard| now.saturating_duration_since(heard));
        let any = self.parts.iter().filter(|part| part.active).filter_map(of).min();
        let mut changed = Vec::new();
        for (at, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.active) {
            // One that never came counts from the first look.
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
