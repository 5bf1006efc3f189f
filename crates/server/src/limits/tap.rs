//! What limits see of appended frames: readings of the channels they ask for, put aside under the fan-out's lock.

use strongback_store::{ChannelIndex, FrameRef, StreamId};

use super::judge::Sighting;
use super::rule::Reading;

/// Most readings that wait: about 48 bytes each. Beyond, frames are counted and not judged.
const READINGS_MAX: usize = 1_000_000;
/// Most of those that are known one by one.
const LOST_MAX: usize = 100_000;

/// Frames on their way to the limits.
#[derive(Debug, Default)]
pub struct Tap {
    /// By stream.
    wanted: Vec<Option<Wanted>>,
    seen: Vec<Sighting>,
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
}

impl Tap {
    /// Asks for channels of a stream.
    pub fn want(&mut self, stream: StreamId, source_clock: bool, channels: &[ChannelIndex]) {
        let mut is_wanted = vec![false; channels.iter().map(|c| c.0 as usize + 1).max().unwrap_or(0)];
        channels.iter().for_each(|channel| is_wanted[channel.0 as usize] = true);
        let at = stream.0 as usize;
        if self.wanted.len() <= at {
            self.wanted.resize_with(at + 1, || None);
        }
        self.wanted[at] = Some(Wanted { source_clock, is_wanted });
    }

    /// Forgets what was asked for: numbers of streams and channels no longer hold.
    pub fn clear(&mut self) {
        self.wanted.clear();
    }

    /// Puts a frame aside if anybody asked for its stream.
    pub fn add(&mut self, frame: &FrameRef<'_>, row: Option<u64>) {
        let head = frame.head();
        let Some(Some(wanted)) = self.wanted.get(head.stream.0 as usize) else { return };
        let readings: Vec<(ChannelIndex, Reading)> = frame
            .cells()
            .filter(|(channel, _)| wanted.is_wanted.get(channel.0 as usize) == Some(&true))
            .filter_map(|(channel, cell)| Some((channel, Reading::of(cell.ok()?)?)))
            .collect();
        if readings.is_empty() {
            return;
        }
        if self.readings + readings.len() > READINGS_MAX {
            if self.lost.len() < LOST_MAX {
                self.lost.push((head.stream, row));
            }
            return;
        }
        self.readings += readings.len();
        let time = head.source_time.filter(|_| wanted.source_clock).unwrap_or(head.receive_time);
        self.seen.push(Sighting { stream: head.stream, row, time, receive_time: head.receive_time, readings });
    }

    /// What came since the last call, and what found no room.
    pub fn take(&mut self) -> (Vec<Sighting>, Vec<Lost>) {
        self.readings = 0;
        (std::mem::take(&mut self.seen), std::mem::take(&mut self.lost))
    }
}
