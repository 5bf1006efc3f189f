//! The newest frames of a stream, for the subscriptions that show it.
//!
//! A frame is put here once, however many look at it: each subscription reads on from where it stands when its update
//! is due, on its own thread. So a thousand screens do not hold up the source. Whoever has read all waits, and is told
//! of the next frame; whoever does not come for so long that the tail is full has its frames pressed upon it.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use strongback_store::{Clock, FrameBatch, FrameRef};

use super::pace::Pace;
use super::subscription::Subscription;
use super::texts::Texts;

/// Bytes of frames that a stream keeps for its readers.
const BYTES_MAX: usize = 128 << 10;
/// Bytes of a frame, at most: a larger one is handed to each reader at once.
const FRAME_BYTES_MAX: usize = BYTES_MAX / 8;

/// A frame on its way into windows, without its cells.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// `receive_time`, likewise.
    pub receive_time: i64,
    /// Its row, if it was stored.
    pub row: Option<u64>,
    /// Whether frames are known missing before it.
    pub gap: bool,
}

/// A frame that was just appended.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// Its times, row, and whether frames are missing before it.
    pub arrived: Arrived,
    /// It.
    pub frame: FrameRef<'a>,
    /// Its long texts.
    pub texts: &'a Texts,
    /// Whether its cells stand where the layout has them: [`FrameRef::is_in_place`].
    pub in_place: bool,
}

/// A stream in a subscription.
#[derive(Clone, Debug)]
pub struct TailReader {
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// The stream's place in it.
    pub slot: u32,
}

/// What keeps a frame out of a tail.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room until all have read what is there.
    Full,
    /// It is too large for any.
    TooLarge,
}

/// Frames of one stream. Pushed to and emptied under the fan-out's lock only.
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
    /// Those that have read all, and are told of the next frame.
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
    /// Of a stream with this clock, without frames.
    pub fn new(clock: Clock) -> Tail {
        Tail { clock, kept: Mutex::default() }
    }

    /// The frame as its readers see it, who share its long texts.
    pub fn fresh<'a>(&self, (frame, texts): (FrameRef<'a>, &'a Texts), row: Option<u64>, gap: bool) -> Fresh<'a> {
        let head = frame.head();
        let time = match self.clock {
            Clock::Source => head.source_time.unwrap_or(head.receive_time),
            Clock::Receive => head.receive_time,
        };
        let arrived = Arrived { time, receive_time: head.receive_time, row, gap };
        Fresh { arrived, frame, texts, in_place: frame.is_in_place() }
    }

    /// Adds a frame that came at `now`; `told` gets those that waited for it, of `readers` in all, and where the tail
    /// ends then.
    ///
    /// # Errors
    /// The tail is full, or the frame too large for any; nothing changed.
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

    /// Forgets the frames: all have read them.
    pub fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Where a reader begins that wants none of what is there.
    pub fn end(&self) -> u64 {
        self.kept.lock().next()
    }

    /// A reader waits for the next frame.
    pub fn wait(&self, reader: TailReader) {
        self.kept.lock().waiting.push(reader);
    }

    /// The rhythm in which frames come.
    pub fn pace(&self) -> Pace {
        self.kept.lock().pace
    }

    /// A frame came at `now` that was not pushed.
    pub fn passed(&self, now: i64) {
        self.kept.lock().pace.frame(now);
    }

    /// The frames from `from` on, for a reader that stands there.
    pub fn from(&self, from: u64) -> UnreadRows<'_> {
        UnreadRows { kept: self.kept.lock(), from }
    }

    /// Forgets a reader that waits.
    pub fn forget(&self, subscription: &Arc<Subscription>) {
        self.kept.lock().waiting.retain(|reader| !Arc::ptr_eq(&reader.subscription, subscription));
    }
}

/// What a reader has not seen. Nobody pushes while it is held.
pub struct UnreadRows<'a> {
    kept: MutexGuard<'a, KeptFrame>,
    from: u64,
}

impl UnreadRows<'_> {
    /// Them, in order.
    pub fn frames(&self) -> impl Iterator<Item = Fresh<'_>> {
        let skipped = self.from.saturating_sub(self.kept.first) as usize;
        self.kept.arrived.iter().enumerate().skip(skipped).map(|(at, (arrived, in_place, texts))| Fresh {
            arrived: *arrived,
            frame: self.kept.frames.frame(at),
            texts,
            in_place: *in_place,
        })
    }

    /// Where the reader stands behind them.
    pub fn end(&self) -> u64 {
        self.kept.next()
    }

    /// The reader waits for the next one.
    pub fn wait(&mut self, reader: TailReader) {
        self.kept.waiting.push(reader);
    }
}
