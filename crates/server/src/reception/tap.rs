//! Readings of appended frames for whoever asked for their channels, put aside under the fan-out's lock.

use std::collections::BTreeSet;

use strongback_store::{ChannelIndex, FrameRef, StreamId, Value};

use super::TappedFrame;
use super::value::FromValue;

/// What may wait. Beyond, frames are counted and not kept.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Readings, about 48 bytes each.
    readings: usize,
    /// Bytes of their texts.
    text_bytes: usize,
    /// Frames without room that are known one by one.
    lost: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room { readings: 1_000_000, text_bytes: 64 << 20, lost: 100_000 }
    }
}

/// Frames on their way to whoever asked for them.
#[derive(Debug)]
pub struct Tap<R> {
    /// By stream.
    wanted: Vec<Option<TappedChannels>>,
    seen: Vec<TappedFrame<R>>,
    room: Room,
    readings: usize,
    text_bytes: usize,
    lost: Vec<Lost>,
    /// Frames that found no room and are not among [`Tap::lost`].
    nameless: u64,
    /// Streams of those, of each of which `lost` has one frame without its row.
    of_nameless: BTreeSet<StreamId>,
}

/// A frame that found no room: its stream, and its row if it has one. Of streams that lose very many, one frame without
/// a row stands for those that are not named.
pub type Lost = (StreamId, Option<u64>);

#[derive(Debug)]
struct TappedChannels {
    /// Whether `time` is the source's.
    source_clock: bool,
    /// By channel.
    is_wanted: Vec<bool>,
    /// Whether frames without any of them count, too.
    every: bool,
}

impl<R> Default for Tap<R> {
    fn default() -> Self {
        Tap {
            wanted: Vec::new(),
            seen: Vec::new(),
            room: Room::default(),
            readings: 0,
            text_bytes: 0,
            lost: Vec::new(),
            nameless: 0,
            of_nameless: BTreeSet::new(),
        }
    }
}

impl<R: FromValue> Tap<R> {
    /// Asks for channels of a stream, in place of those asked for before; with `every` for frames without them, too.
    pub fn want(&mut self, stream: StreamId, source_clock: bool, channels: &[ChannelIndex], every: bool) {
        let mut is_wanted = vec![false; channels.iter().map(|c| c.0 as usize + 1).max().unwrap_or(0)];
        channels.iter().for_each(|channel| is_wanted[channel.0 as usize] = true);
        let at = stream.0 as usize;
        if self.wanted.len() <= at {
            self.wanted.resize_with(at + 1, || None);
        }
        self.wanted[at] = Some(TappedChannels { source_clock, is_wanted, every });
    }

    /// Forgets what was asked for: numbers of streams and channels no longer hold. What was put aside stays.
    pub fn clear(&mut self) {
        self.wanted.clear();
    }

    /// Puts a frame aside if anybody asked for its stream.
    pub fn add(&mut self, frame: &FrameRef<'_>, row: Option<u64>) {
        let head = frame.head();
        let Some(Some(wanted)) = self.wanted.get(head.stream.0 as usize) else { return };
        let mut text_bytes = 0;
        let readings: Vec<(ChannelIndex, R)> = frame
            .cells()
            .filter(|(channel, _)| wanted.is_wanted.get(channel.0 as usize) == Some(&true))
            .filter_map(|(channel, cell)| {
                let value = cell.ok()?;
                let reading = R::from_value(value)?;
                text_bytes += if let Value::String(text) = value { text.len() } else { 0 };
                Some((channel, reading))
            })
            .collect();
        if readings.is_empty() && !wanted.every {
            return;
        }
        let has_room = self.readings + readings.len() < self.room.readings;
        if !has_room || self.text_bytes + text_bytes > self.room.text_bytes {
            return self.lose(head.stream, row);
        }
        // One without readings takes room as well.
        self.readings += readings.len() + 1;
        self.text_bytes += text_bytes;
        let time = head.source_time.filter(|_| wanted.source_clock).unwrap_or(head.receive_time);
        self.seen.push(TappedFrame { stream: head.stream, row, time, receive_time: head.receive_time, readings });
    }

    fn lose(&mut self, stream: StreamId, row: Option<u64>) {
        if self.lost.len() - self.of_nameless.len() < self.room.lost {
            self.lost.push((stream, row));
        } else if self.of_nameless.insert(stream) {
            // Whoever reads the stream must know that something is missing.
            self.lost.push((stream, None));
        } else {
            self.nameless += 1;
        }
    }

    /// What came since the last call, what found no room, and how many frames more found none that are not named.
    pub fn take(&mut self) -> (Vec<TappedFrame<R>>, Vec<Lost>, u64) {
        (self.readings, self.text_bytes) = (0, 0);
        self.of_nameless.clear();
        let nameless = std::mem::take(&mut self.nameless);
        (std::mem::take(&mut self.seen), std::mem::take(&mut self.lost), nameless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{FrameBatch, FrameHead};

    #[derive(Debug, PartialEq)]
    struct Kept;

    impl FromValue for Kept {
        fn from_value(_: Value<'_>) -> Option<Kept> {
            Some(Kept)
        }
    }

    /// A tap with little room, from which all of four streams is wanted.
    fn tap(room: Room) -> Tap<Kept> {
        let mut tap = Tap { room, ..Tap::default() };
        (0..4).for_each(|stream| tap.want(StreamId(stream), false, &[ChannelIndex(0)], false));
        tap
    }

    fn add(tap: &mut Tap<Kept>, stream: u32, row: u64, value: Value<'_>) {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: StreamId(stream), receive_time: 5, source_time: None, sequence: None });
        batch.push(ChannelIndex(0), value);
        batch.end();
        batch.frames().for_each(|frame| tap.add(&frame, Some(row)));
    }

    #[test]
    fn streams_that_lose_more_than_is_named_are_named_all_the_same() {
        let mut tap = tap(Room { readings: 3, lost: 2, ..Room::default() });
        for row in 0..7 {
            add(&mut tap, row as u32 % 4, row, Value::U8(1));
        }
        let (seen, lost, nameless) = tap.take();
        // One finds room, two are named, and each stream of the others is.
        assert_eq!(seen.iter().map(|frame| frame.row).collect::<Vec<_>>(), [Some(0)]);
        let named = [(1, Some(1)), (2, Some(2)), (3, None), (0, None), (1, None), (2, None)];
        assert_eq!(lost, named.map(|(stream, row)| (StreamId(stream), row)));
        assert_eq!(nameless, 0);
        // There is room again, and everything is named again.
        for row in 7..10 {
            add(&mut tap, 3, row, Value::U8(1));
        }
        let (_, lost, nameless) = tap.take();
        assert_eq!((lost, nameless), (vec![(StreamId(3), Some(8)), (StreamId(3), Some(9))], 0));
    }

    #[test]
    fn frames_that_are_not_named_are_counted_once() {
        let mut tap = tap(Room { readings: 0, lost: 1, ..Room::default() });
        for row in 0..10 {
            add(&mut tap, row as u32 % 2, row, Value::U8(1));
        }
        // One is named, one stands for each stream, and seven are left.
        let (seen, lost, nameless) = tap.take();
        assert_eq!((seen.len(), lost.len() as u64 + nameless, nameless), (0, 10, 7));
        assert_eq!(tap.take(), (Vec::new(), Vec::new(), 0));
    }

    #[test]
    fn long_texts_take_the_room_that_they_need() {
        let mut tap = tap(Room { text_bytes: 100, ..Room::default() });
        let text = "x".repeat(40);
        for row in 0..4 {
            add(&mut tap, 0, row, Value::String(&text));
        }
        add(&mut tap, 0, 4, Value::U8(1));
        let (seen, lost, _) = tap.take();
        assert_eq!(seen.iter().map(|frame| frame.row).collect::<Vec<_>>(), [Some(0), Some(1), Some(4)]);
        assert_eq!(lost, [(StreamId(0), Some(2)), (StreamId(0), Some(3))]);
        add(&mut tap, 0, 5, Value::String(&text));
        assert_eq!(tap.take().0.len(), 1);
    }
}
