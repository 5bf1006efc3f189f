//! The streams of a playback in one order, whatever the order their rows came in: `time`, stream, row.
//!
//! ```text
//!  blocks and open rows ─> Track: slices of time, sorted ─> [Replay: the least head] ─> Deck ─> Fanout
//! ```
//! A stream is looked at only as far as the playback is: of one that is quiet for hours nothing is read in advance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strongback_store::{ChannelIndex, ScanError, StreamId, View};

use super::track::{Frame, Track, Trouble};
use crate::live::place::Place;

/// Slices that are read before it is asked whether to go on.
const SLICES: usize = 16;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame that stands here.
    Frame(Place),
    /// No frame that is due.
    Nothing,
    /// It is not known yet: ask again.
    Unsure,
}

/// Reads streams in their order.
pub struct Replay {
    view: View,
    tracks: Vec<Track>,
    /// Heads of the tracks; of one whose head is not known, the place that no frame of it precedes.
    heads: BinaryHeap<Reverse<(Place, usize)>>,
    /// No frame of this `time` or later is wanted, or complete.
    end: i64,
    /// What could not be read.
    pub troubles: Vec<Trouble>,
}

impl Replay {
    /// Streams in the order of their numbers, with their channels, from behind a place on, frames before `end` (`time`, nanoseconds since 1970 UTC).
    pub fn new(view: View, wanted: Vec<(StreamId, Vec<ChannelIndex>)>, place: Place, end: i64) -> Replay {
        let streams = wanted.len();
        let tracks: Vec<Track> =
            wanted.into_iter().map(|(stream, channels)| Track::new(stream, channels, place, streams)).collect();
        let mut replay = Replay { view, tracks, heads: BinaryHeap::new(), end, troubles: Vec::new() };
        for track in 0..streams {
            replay.note(track);
        }
        replay
    }

    /// Notes frames known missing: streams, and the `time` before which they are.
    pub fn note_gaps(&mut self, mut gaps: Vec<(StreamId, i64)>) {
        // The last first: each is put behind those that are there.
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for (stream, to) in gaps {
            // Tracks are in the order of their streams.
            if let Ok(at) = self.tracks.binary_search_by_key(&stream, |track| track.stream) {
                self.tracks[at].note_gap(to);
            }
        }
    }

    /// No frame of this `time` or later is given.
    pub fn end(&self) -> i64 {
        self.end
    }

    fn note(&mut self, number: usize) {
        let track = &self.tracks[number];
        let unknown = Place { time: track.known_to(), stream: StreamId(0), row: 0 };
        let head = track.head().unwrap_or(unknown);
        if head.time < self.end {
            self.heads.push(Reverse((head, number)));
        }
    }

    /// What comes next of the frames up to and with a `time`.
    ///
    /// # Errors
    /// The view is too old: another replay must go on.
    pub fn peek(&mut self, due: i64) -> Result<Next, ScanError> {
        for _ in 0..SLICES {
            let Some(&Reverse((place, number))) = self.heads.peek().filter(|head| head.0.0.time <= due) else {
                return Ok(Next::Nothing);
            };
            let track = &mut self.tracks[number];
            if track.head().is_some() {
                return Ok(Next::Frame(place));
            }
            track.read(&self.view, self.end, &mut self.troubles)?;
            self.heads.pop();
            self.note(number);
        }
        Ok(Next::Unsure)
    }

    /// Hands out the frame that [`Replay::peek`] found.
    pub fn take(&mut self, give: impl FnOnce(&Frame<'_>)) {
        let Some(Reverse((_, number))) = self.heads.pop() else { return };
        if let Some(frame) = self.tracks[number].take() {
            give(&frame);
        }
        self.note(number);
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("tracks", &self.tracks.len()).field("end", &self.end).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
