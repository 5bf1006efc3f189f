//! Newest frames of a stream, for the subscriptions that show it.
//!
//! A frame is stored here once, however many subscriptions read it. Each subscription reads on from its own position
//! when its update is due, on its own thread, so that a thousand screens do not hold up the source. A reader that has
//! read everything waits and is notified of the next frame. A reader that lets the tail fill up is made to catch up.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use strongback_store::{Clock, FrameBatch, FrameRef};

use super::pace::Pace;
use super::subscription::Subscription;
use super::texts::Texts;

/// Max bytes of frames that a stream keeps for its readers.
const BYTES_MAX: usize = 128 << 10;
/// Max bytes of a frame in a tail. Larger frames are handed to each reader at once.
const FRAME_BYTES_MAX: usize = BYTES_MAX / 8;

/// Times and row of a frame, without its cells.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// `receive_time`, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Row of the frame, if it was stored.
    pub row: Option<u64>,
    /// Whether frames are known missing before it.
    pub gap: bool,
}

/// Frame that was just appended.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// Times and row of the frame, and whether frames are missing before it.
    pub arrived: Arrived,
    /// Cells and head of the frame.
    pub frame: FrameRef<'a>,
    /// Long texts of the frame.
    pub texts: &'a Texts,
    /// Whether each cell is at its channel's index in the layout: [`FrameRef::is_in_place`].
    pub in_place: bool,
}

/// One stream of a subscription, as a reader of its tail.
#[derive(Clone, Debug)]
pub struct TailReader {
    /// Subscription that reads.
    pub subscription: Arc<Subscription>,
    /// Position of the stream in the subscription.
    pub slot: u32,
}

/// Reason why a tail does not take a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Full tail: no space until all readers have caught up.
    Full,
    /// Frame too large for any tail.
    TooLarge,
}

/// Newest frames of one stream. Pushed to and cleared under the fan-out's lock only.
#[derive(Debug)]
pub struct Tail {
    clock: Clock,
    kept: Mutex<KeptFrame>,
}

#[derive(Debug, Default)]
struct KeptFrame {
    frames: FrameBatch,
    arrived: Vec<(Arrived, bool, Texts)>,
    /// Number of the first frame.
    first: u64,
    pace: Pace,
    /// Readers that have read everything, to be notified of the next frame.
    waiting: Vec<TailReader>,
}

impl KeptFrame {
    fn next(&self) -> u64 {
        self.first + self.arrived.len() as u64
    }

    fn clear(&mut self) {
        self.first = self.next();
        self.frames.clear();
        self.arrived.clear();
    }
}

impl Tail {
    /// Creates an empty tail for a stream with this clock.
    pub fn new(clock: Clock) -> Tail {
        Tail { clock, kept: Mutex::default() }
    }

    /// Returns the frame in the form in which readers get it, with shared long texts.
    pub fn fresh<'a>(&self, (frame, texts): (FrameRef<'a>, &'a Texts), row: Option<u64>, gap: bool) -> Fresh<'a> {
        let head = frame.head();
        let time = match self.clock {
            Clock::Source => head.source_time.unwrap_or(head.receive_time),
            Clock::Receive => head.receive_time,
        };
        let arrived = Arrived { time, receive_time: head.receive_time, row, gap };
        Fresh { arrived, frame, texts, in_place: frame.is_in_place() }
    }

    /// Adds a frame that arrived at `now`. Appends the readers that waited for it, of `readers` in total, to `told`,
    /// each with the new end of the tail.
    ///
    /// # Errors
    /// Returns an error if the tail is full or the frame too large for any; nothing changes then.
    pub fn push(
        &self,
        fresh: &Fresh<'_>,
        now: i64,
        readers: usize,
        told: &mut Vec<(TailReader, u64)>,
    ) -> Result<(), Refusal> {
        let size = fresh.frame.size_bytes();
        if size > FRAME_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        let mut kept = self.kept.lock();
        if kept.waiting.len() == readers {
            kept.clear();
        }
        if kept.frames.size_bytes() + size > BYTES_MAX {
            return Err(Refusal::Full);
        }
        kept.frames.copy(&fresh.frame);
        kept.arrived.push((fresh.arrived, fresh.in_place, Texts::default()));
        kept.pace.frame(now);
        let end = kept.next();
        told.extend(kept.waiting.drain(..).map(|reader| (reader, end)));
        Ok(())
    }

    /// Removes all frames; all readers must have read them.
    pub fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Returns the position after the last frame, where new readers begin.
    pub fn end(&self) -> u64 {
        self.kept.lock().next()
    }

    /// Registers a reader for the next frame.
    pub fn wait(&self, reader: TailReader) {
        self.kept.lock().waiting.push(reader);
    }

    /// Returns the rhythm in which frames arrive.
    pub fn pace(&self) -> Pace {
        self.kept.lock().pace
    }

    /// Records that a frame arrived at `now` that was not pushed.
    pub fn passed(&self, now: i64) {
        self.kept.lock().pace.frame(now);
    }

    /// Returns the frames from number `from` on.
    pub fn from(&self, from: u64) -> UnreadRows<'_> {
        UnreadRows { kept: self.kept.lock(), from }
    }

    /// Removes a subscription from the waiting readers.
    pub fn forget(&self, subscription: &Arc<Subscription>) {
        self.kept.lock().waiting.retain(|reader| !Arc::ptr_eq(&reader.subscription, subscription));
    }
}

/// Frames that a reader has not read. The tail is locked while this exists.
pub struct UnreadRows<'a> {
    kept: MutexGuard<'a, KeptFrame>,
    from: u64,
}

impl UnreadRows<'_> {
    /// Returns the unread frames, in order.
    pub fn frames(&self) -> impl Iterator<Item = Fresh<'_>> {
        let skipped = self.from.saturating_sub(self.kept.first) as usize;
        self.kept.arrived.iter().enumerate().skip(skipped).map(|(at, (arrived, in_place, texts))| Fresh {
            arrived: *arrived,
            frame: self.kept.frames.frame(at),
            texts,
            in_place: *in_place,
        })
    }

    /// Returns the position after the unread frames.
    pub fn end(&self) -> u64 {
        self.kept.next()
    }

    /// Registers the reader for the next frame.
    pub fn wait(&mut self, reader: TailReader) {
        self.kept.waiting.push(reader);
    }
}
