//! Readings of appended frames for whoever asked for their channels, put aside under the fan-out's lock.

use strongback_store::{ChannelIndex, FrameRef, StreamId};

use super::{Reading, Sighting};

/// Most readings that wait: about 48 bytes each. Beyond, frames are counted and not kept.
const READINGS_MAX: usize = 1_000_000;
/// Most of those that are known one by one.
const LOST_MAX: usize = 100_000;

/// Frames on their way to whoever asked for them.
#[derive(Debug)]
pub struct Tap<R> {
    /// By stream.
    wanted: Vec<Option<Wanted>>,
    seen: Vec<Sighting<R>>,
    readings: usize,
    lost: Vec<Lost>,
}

/// A frame that found no room: its stream, and its row if it has one.
pub type Lost = (StreamId, Option<u64>);

#[derive(Debug)]
struct Wanted {
    /// Whether `time` is the source's.
    source_clock: bool,
    /// By channel.
    is_wanted: Vec<bool>,
    /// Whether frames without any of them count, too.
    every: bool,
}

impl<R> Default for Tap<R> {
    fn default() -> Self {
        Tap { wanted: Vec::new(), seen: Vec::new(), readings: 0, lost: Vec::new() }
    }
}

impl<R: Reading> Tap<R> {
    /// Asks for channels of a stream, in place of those asked for before; with `every` for frames without them, too.
    pub fn want(&mut self, stream: StreamId, source_clock: bool, channels: &[ChannelIndex], every: bool) {
        let mut is_wanted = vec![false; channels.iter().map(|c| c.0 as usize + 1).max().unwrap_or(0)];
        channels.iter().for_each(|channel| is_wanted[channel.0 as usize] = true);
        let at = stream.0 as usize;
        if self.wanted.len() <= at {
            self.wanted.resize_with(at + 1, || None);
        }
        self.wanted[at] = Some(Wanted { source_clock, is_wanted, every });
    }

    /// Forgets what was asked for: numbers of streams and channels no longer hold. What was put aside stays.
    pub fn clear(&mut self) {
        self.wanted.clear();
    }

    /// Puts a frame aside if anybody asked for its stream.
    pub fn add(&mut self, frame: &FrameRef<'_>, row: Option<u64>) {
        let head = frame.head();
        let Some(Some(wanted)) = self.wanted.get(head.stream.0 as usize) else { return };
        let readings: Vec<(ChannelIndex, R)> = frame
            .cells()
            .filter(|(channel, _)| wanted.is_wanted.get(channel.0 as usize) == Some(&true))
            .filter_map(|(channel, cell)| Some((channel, R::of(cell.ok()?)?)))
            .collect();
        if readings.is_empty() && !wanted.every {
            return;
        }
        if self.readings + readings.len() >= READINGS_MAX {
            if self.lost.len() < LOST_MAX {
                self.lost.push((head.stream, row));
            }
            return;
        }
        // One without readings takes room as well.
        self.readings += readings.len() + 1;
        let time = head.source_time.filter(|_| wanted.source_clock).unwrap_or(head.receive_time);
        self.seen.push(Sighting { stream: head.stream, row, time, receive_time: head.receive_time, readings });
    }

    /// What came since the last call, and what found no room.
    pub fn take(&mut self) -> (Vec<Sighting<R>>, Vec<Lost>) {
        self.readings = 0;
        (std::mem::take(&mut self.seen), std::mem::take(&mut self.lost))
    }
}
