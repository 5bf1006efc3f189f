//! A group of symbols at work: its memory image, and the frames made of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Reject, StreamId, StreamSpec,
};

use super::cycle::{Cycles, RateWatch};
use super::error::AdsError;
use super::layout::GroupLayout;
use super::leaf::Leaf;
use super::plan::Block;
use super::select::channel_name;
use super::value::Kind;
use super::wire::{Place, unix_ns};
use crate::config::{Enumerations, ReadMode};
use crate::sink::Sink;

/// Numbers of cycles count modulo this: they never come round.
const CYCLES_MODULUS: u64 = 1 << 62;
/// A notification that comes this much later than the quickest one so far is late.
const LATE_NS: i64 = 100_000_000;
/// More than this times the rate asked for is an alarm.
const TOO_FAST: f64 = 2.0;

/// Where a channel's value lies in the image.
#[derive(Clone, Debug)]
struct Field {
    at: usize,
    size: usize,
    kind: Kind,
    channel: ChannelIndex,
    /// Names of the numbers of an enumeration, if it is stored as them.
    names: Option<Arc<[(i64, String)]>>,
}

/// A block, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) place: Place,
    /// Which leaves, and fields, lie in it.
    pub(crate) leaves: Range<usize>,
    at: usize,
    /// Whether values are to be expected of it.
    pub(crate) active: bool,
    /// Why there are none now.
    pub(crate) error: Option<AdsError>,
}

impl Part {
    /// The block it reads.
    pub(crate) fn block(&self) -> Block {
        Block { place: self.place, leaves: self.leaves.clone() }
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
    filetime: u64,
    receive_time: i64,
    since: Instant,
}

/// What a frame of notifications showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) dropped: u64,
    pub(crate) late: bool,
    pub(crate) clock_set: bool,
    /// Frames a second, if they are more than twice those asked for.
    pub(crate) too_fast: Option<f64>,
}

/// What of a group lasts longer than a connection.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) cycles: Cycles,
    /// Number of the newest reading.
    pub(crate) newest_number: u64,
    /// It came too fast, and is read now.
    pub(crate) is_read: bool,
}

impl Past {
    pub(crate) fn new(layout: &GroupLayout) -> Past {
        Past { cycles: Cycles::new(layout.cycle.as_nanos() as i64), newest_number: 0, is_read: false }
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
    pub(crate) parts: Vec<Part>,
    pub(crate) past: Past,
    spec: StreamSpec,
    pub(crate) stream: StreamId,
    fields: Vec<Field>,
    image: Image,
    /// Parts that values are expected of.
    expected: usize,
    open: Option<Open>,
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
        past: Past,
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
        let field = |(leaf, channel): (&Leaf, &ChannelIndex)| Field {
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

    /// Takes the blocks it is read or notified by. Returns the first new part.
    pub(crate) fn add_parts(&mut self, blocks: Vec<Block>) -> usize {
        let first = self.parts.len();
        let mut at = self.parts.last().map_or(0, |part| part.at + part.place.size as usize);
        for block in blocks {
            for i in block.leaves.clone() {
                let within = self.leaves[i].place.offset - block.place.offset;
                self.fields[i].at = at + within as usize;
            }
            let size = block.place.size as usize;
            self.parts.push(Part { place: block.place, leaves: block.leaves, at, active: true, error: None });
            at += size;
        }
        self.image = self.new_image();
        self.open = None;
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
        let single = leaves.map(|i| Block { place: self.leaves[i].place, leaves: i..i + 1 }).collect();
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
    ) -> (bool, [Option<Shown>; 2]) {
        let mut shown = [None, None];
        if self.open.is_some_and(|open| open.filetime != filetime) {
            shown[0] = self.flush(batch);
        }
        if !put(&self.parts, part, data, &mut self.image) {
            return (false, shown);
        }
        let open = self.open.get_or_insert(Open { filetime, receive_time, since: now });
        open.receive_time = receive_time;
        if self.mode == ReadMode::CyclicNotification && self.image.count == self.expected {
            shown[1] = self.flush(batch);
        }
        (true, shown)
    }

    /// When the open frame was begun: it waits for samples of the same stamp.
    pub(crate) fn open_since(&self) -> Option<Instant> {
        self.open.map(|open| open.since)
    }

    /// Makes the open frame a frame.
    pub(crate) fn flush(&mut self, batch: &mut FrameBatch) -> Option<Shown> {
        let open = self.open.take()?;
        let source_time = unix_ns(open.filetime);
        let stamp = source_time.unwrap_or(open.receive_time);
        let mut shown = Shown::default();
        let transit = open.receive_time.saturating_sub(stamp);
        let least = self.transit.map_or(transit, |least| least.min(transit));
        shown.late = transit - least > LATE_NS.max(self.cycle_ns * 2);
        let mut sequence = None;
        if self.spec.sequence_modulus.is_some() {
            let judged = self.past.cycles.judge(stamp, open.receive_time);
            sequence = (!judged.is_known).then_some(judged.number);
            self.past.newest_number = self.past.newest_number.max(judged.number);
            shown.dropped = judged.dropped;
            shown.late |= judged.is_old;
            shown.clock_set = judged.clock_set;
        }
        self.transit = Some(if shown.clock_set { transit } else { least });
        let head = FrameHead { stream: self.stream, receive_time: open.receive_time, source_time, sequence };
        let mut image = std::mem::take(&mut self.image);
        self.emit(&mut image, head, batch);
        self.image = image;
        let wanted = 1e9 / self.cycle_ns as f64;
        shown.too_fast = self.watch.frame(stamp).filter(|rate| *rate > wanted * TOO_FAST);
        Some(shown)
    }
}

fn put(parts: &[Part], part: usize, data: &[u8], image: &mut Image) -> bool {
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
