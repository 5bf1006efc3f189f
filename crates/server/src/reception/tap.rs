//! Readings of appended frames, collected under the fan-out's lock for the consumers of their channels.

use std::collections::BTreeSet;

use strongback_store::{ChannelIndex, FrameRef, StreamId, Value};

use super::TappedFrame;
use super::value::FromValue;

/// Limits on pending frames. Frames over them are counted and dropped.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Max readings, about 48 bytes each.
    readings: usize,
    /// Max bytes of texts.
    text_bytes: usize,
    /// Max dropped frames that are listed individually.
    lost: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room { readings: 1_000_000, text_bytes: 64 << 20, lost: 100_000 }
    }
}

/// Pending frames for the consumers of their channels.
#[derive(Debug)]
pub struct Tap<R> {
    /// Wanted channels, by stream.
    wanted: Vec<Option<TappedChannels>>,
    seen: Vec<TappedFrame<R>>,
    room: Room,
    readings: usize,
    text_bytes: usize,
    lost: Vec<Lost>,
    /// Dropped frames that are not listed in [`Tap::lost`].
    nameless: u64,
    /// Streams of those frames; for each, `lost` has one frame without its row.
    of_nameless: BTreeSet<StreamId>,
}

/// Dropped frame: its stream, and its row if it has one. If too many are dropped, one entry without a row stands for
/// all others of a stream.
pub type Lost = (StreamId, Option<u64>);

#[derive(Debug)]
struct TappedChannels {
    /// Whether `time` is the source's.
    source_clock: bool,
    /// Whether each channel is wanted, by channel index.
    is_wanted: Vec<bool>,
    /// Whether frames without any wanted channel are included.
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
    /// Sets the wanted channels of a stream, replacing earlier ones. With `every`, frames without any of them are
    /// included.
    pub fn want(&mut self, stream: StreamId, source_clock: bool, channels: &[ChannelIndex], every: bool) {
        let mut is_wanted = vec![false; channels.iter().map(|c| c.0 as usize + 1).max().unwrap_or(0)];
        channels.iter().for_each(|channel| is_wanted[channel.0 as usize] = true);
        let at = stream.0 as usize;
        if self.wanted.len() <= at {
            self.wanted.resize_with(at + 1, || None);
        }
        self.wanted[at] = Some(TappedChannels { source_clock, is_wanted, every });
    }

    /// Clears the wanted channels, because stream and channel numbers are no longer valid. Pending frames remain.
    pub fn clear(&mut self) {
        self.wanted.clear();
    }

    /// Adds a frame to the pending ones if its stream is wanted.
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
        // A frame without readings takes space as well.
        self.readings += readings.len() + 1;
        self.text_bytes += text_bytes;
        let time = head.source_time.filter(|_| wanted.source_clock).unwrap_or(head.receive_time);
        self.seen.push(TappedFrame { stream: head.stream, row, time, receive_time: head.receive_time, readings });
    }

    fn lose(&mut self, stream: StreamId, row: Option<u64>) {
        if self.lost.len() - self.of_nameless.len() < self.room.lost {
            self.lost.push((stream, row));
        } else if self.of_nameless.insert(stream) {
            // Consumers of the stream must learn that something is missing.
            self.lost.push((stream, None));
        } else {
            self.nameless += 1;
        }
    }

    /// Takes the frames since the last call, the dropped frames, and the number of dropped frames that are not
    /// listed.
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

    /// Creates a tap with little space that wants everything of four streams.
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
        // One frame fits, two are listed, and each stream of the others is.
        assert_eq!(seen.iter().map(|frame| frame.row).collect::<Vec<_>>(), [Some(0)]);
        let named = [(1, Some(1)), (2, Some(2)), (3, None), (0, None), (1, None), (2, None)];
        assert_eq!(lost, named.map(|(stream, row)| (StreamId(stream), row)));
        assert_eq!(nameless, 0);
        // There is space again, and every dropped frame is listed again.
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
        // One is listed, one stands for each stream, and seven are left.
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
