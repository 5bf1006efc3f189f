//! One stream of a subscription: its wanted channels, and what it received since the last update.

use std::cell::Cell;
use std::sync::Arc;

use strongback_store::{CellState, ChannelId, ChannelIndex, ChannelType, FramePosition, Stream, StreamId, Value};

use super::pace::Pace;
use super::subscription::Subscription;
use super::tail::{Arrived, Fresh, Tail, TailReader};
use super::texts::Texts;
use super::window::{StreamWindow, TakenWindow};

/// Stream of a subscription.
#[derive(Debug)]
pub struct Slot {
    /// Id of the stream.
    pub stream: StreamId,
    /// Position in `channels` by channel index of the layout, up to the last wanted one; `NONE` if not wanted.
    places: Vec<u32>,
    /// Wanted channels.
    pub channels: Vec<(ChannelId, ChannelType)>,
    /// Indexes of the wanted channels in the layout.
    indexes: Vec<ChannelIndex>,
    /// Row after the last one that the client was told of.
    pub told_row: u64,
    /// Playback only: the place after which the window begins while it is held.
    pub since: FramePosition,
    /// Whether the client knows of the stream.
    pub announced: bool,
    /// Whether updates are withheld while the data before them is being read.
    pub held: bool,
    /// Whether an update is pending.
    pub dirty: bool,
    /// Values received, up to `next`.
    pub window: StreamWindow,
    /// Tail that its frames come from; `None` in a playback.
    tail: Option<Arc<Tail>>,
    /// Number of the first frame in the tail that is not in the window.
    pub next: u64,
    /// Whether frames are known missing before the next frame.
    pub lacks_before: Cell<bool>,
    /// Whether it is registered for the tail's next frame.
    pub waiting: bool,
    /// Playback only: the rhythm of its frames.
    pub pace: Pace,
}

const NONE: u32 = u32::MAX;

impl Slot {
    /// Creates a slot without channels. It begins at the end of the tail, if there is one, registered for the next
    /// frame.
    pub fn new(stream: StreamId, told_row: u64, since: FramePosition, tail: Option<Arc<Tail>>) -> Slot {
        Slot {
            stream,
            places: Vec::new(),
            channels: Vec::new(),
            indexes: Vec::new(),
            told_row,
            since,
            announced: false,
            held: false,
            dirty: false,
            window: StreamWindow::default(),
            next: tail.as_ref().map_or(0, |tail| tail.end()),
            lacks_before: Cell::new(false),
            waiting: tail.is_some(),
            tail,
            pace: Pace::default(),
        }
    }

    /// Applies the layout of a stream; the channels at `wanted` are new to the subscription.
    pub fn grow(&mut self, stream: &Stream, wanted: &[u16]) {
        for (place, channel) in self.places.iter().zip(&stream.layout.channels) {
            if let Some(wanted) = self.channels.get_mut(*place as usize) {
                // Types may widen.
                wanted.1 = channel.channel_type;
            }
        }
        if !wanted.is_empty() {
            // Earlier frames are not for the new channels.
            self.catch_up(None);
        }
        self.places.resize(Slot::places_of(wanted).max(self.places.len()), NONE);
        for &index in wanted {
            let channel = &stream.layout.channels[index as usize];
            self.places[index as usize] = self.channels.len() as u32;
            self.channels.push((channel.id, channel.channel_type));
            self.indexes.push(ChannelIndex(index));
        }
    }

    /// Returns the length of a position table that holds these channels.
    fn places_of(wanted: &[u16]) -> usize {
        wanted.iter().max().map_or(0, |last| *last as usize + 1)
    }

    /// Returns the bytes by which the position table grows with these channels. `slot` is `None` for a new stream.
    pub fn table_bytes(slot: Option<&Slot>, wanted: &[u16]) -> usize {
        let known = slot.map_or(0, |slot| slot.places.len());
        Slot::places_of(wanted).saturating_sub(known) * size_of::<u32>()
    }

    /// Returns the position of a channel in the windows, or `None` if it is not wanted.
    pub fn place(&self, channel: u16) -> Option<usize> {
        let place = *self.places.get(channel as usize)?;
        (place != NONE).then_some(place as usize)
    }

    /// Returns the wanted channels, in the order of the layout.
    pub fn wanted(&self) -> impl Iterator<Item = (ChannelIndex, ChannelId)> {
        let wanted =
            |(index, place): (usize, &u32)| Some((ChannelIndex(index as u16), self.channels.get(*place as usize)?.0));
        self.places.iter().enumerate().filter_map(wanted)
    }

    /// Returns the rhythm of its frames.
    pub fn pace(&self) -> Pace {
        self.tail.as_ref().map_or(self.pace, |tail| tail.pace())
    }

    /// Adds the unread frames of the tail to the window. If `wait` gives the subscription and the slot's place in it,
    /// registers for the next frame, unless already registered.
    pub fn catch_up(&mut self, wait: Option<(&Arc<Subscription>, u32)>) {
        let mut window = std::mem::take(&mut self.window);
        self.read_on(&mut window, wait);
        self.window = window;
    }

    /// Moves everything received into `into`, replacing its content; nothing is pending afterwards.
    pub fn take(&mut self, into: &mut TakenWindow, wait: (&Arc<Subscription>, u32)) {
        into.stream = self.stream;
        into.channels.clear();
        into.channels.extend_from_slice(&self.channels);
        into.window.clear();
        // Do not keep the memory of a wide stream for a narrow one.
        into.window.fit(self.channels.len());
        std::mem::swap(&mut into.window, &mut self.window);
        into.window.channels.resize_with(self.channels.len(), Default::default);
        self.read_on(&mut into.window, Some(wait));
        self.dirty = false;
        if let Some((_, to)) = into.window.rows {
            self.told_row = self.told_row.max(to);
        }
    }

    fn read_on(&mut self, window: &mut StreamWindow, wait: Option<(&Arc<Subscription>, u32)>) {
        let Some(tail) = &self.tail else { return };
        let mut rest = tail.from(self.next);
        for fresh in rest.frames() {
            self.gather(window, &fresh);
        }
        self.next = rest.end();
        if let (Some((subscription, slot)), false) = (wait, self.waiting) {
            self.waiting = true;
            rest.wait(TailReader { subscription: subscription.clone(), slot });
        }
    }

    /// Adds one frame.
    pub fn add(&mut self, fresh: &Fresh<'_>) {
        let mut window = std::mem::take(&mut self.window);
        self.gather(&mut window, fresh);
        self.window = window;
    }

    /// Adds the cells of one frame, and its long texts.
    pub fn add_cells<'a>(
        &mut self,
        frame: &Arrived,
        cells: (impl Iterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)>, &Texts),
    ) {
        let mut window = std::mem::take(&mut self.window);
        self.gather_cells(&mut window, frame, cells);
        self.window = window;
    }

    fn gather(&self, window: &mut StreamWindow, fresh: &Fresh<'_>) {
        if !fresh.in_place {
            return self.gather_cells(window, &fresh.arrived, (fresh.frame.cells(), fresh.texts));
        }
        // Each cell is at its index in the layout, so only the wanted ones are read.
        self.begin(window, &fresh.arrived);
        for (channel, index) in window.channels.iter_mut().zip(&self.indexes) {
            let at = index.0 as usize;
            if let Some((kind, bits)) = fresh.frame.number(at) {
                channel.add_number(kind, bits);
            } else if let Some((_, Ok(value))) = fresh.frame.cell(at) {
                channel.add_of(value, (*index, fresh.texts));
            }
        }
    }

    fn gather_cells<'a>(
        &self,
        window: &mut StreamWindow,
        frame: &Arrived,
        (cells, texts): (impl Iterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)>, &Texts),
    ) {
        self.begin(window, frame);
        for (index, cell) in cells {
            let place = self.places.get(index.0 as usize).copied().unwrap_or(NONE);
            if let (Some(channel), Ok(value)) = (window.channels.get_mut(place as usize), cell) {
                channel.add_of(value, (index, texts));
            }
        }
    }

    /// Adds the times and row of one frame, without its cells.
    fn begin(&self, window: &mut StreamWindow, frame: &Arrived) {
        window.begin(frame.time, frame.receive_time, frame.row);
        window.gap |= frame.gap | self.lacks_before.take();
        if window.channels.len() < self.channels.len() {
            window.channels.resize_with(self.channels.len(), Default::default);
        }
    }
}
