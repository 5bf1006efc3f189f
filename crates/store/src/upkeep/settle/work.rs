//! A run of segments being rewritten as one that stands for them.
//!
//! ```text
//!  footers ─> [judge: samples are encoded] ─> [write: every piece] ─> [compare: read back] ─> installed by `settle`
//! ```
//! Each step is short: a column of a block, or a mixed block.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::rows::{At, Open, Piece, PieceReader, Unread, places, plan, same_cells, same_rows};
use crate::block::mixed::{self, MixedPart};
use crate::block::{BlockMeta, Encoder};
use crate::bytes::FormatError;
use crate::catalog::definition;
use crate::catalog::group::Group;
use crate::codec::stats::ColumnStatistics;
use crate::codec::{CodecMemory, Effort};
use crate::model::batch::{Batch, Column};
use crate::model::limits::PAGE_BYTES;
use crate::model::mutant::{self, Mutant};
use crate::model::reduction::Reduction;
use crate::model::stream::{Interpolation, Stream};
use crate::model::value::{CellState, ChannelType};
use crate::read::shared::Shared;
use crate::segment::directory::{Residents, Segment, SegmentState};
use crate::segment::file::SegmentFile;
use crate::segment::{Beside, LastBlocks, pyramid};

/// Cells that one slice processes: about 1 ms of the codecs for cold data.
const SLICE_CELLS: usize = 16_000;
/// Min rows for a piece to become a block of its own; smaller pieces share a mixed block.
const OWN_ROWS: usize = 16;
/// Min bytes for a piece to become a block of its own: arrays and long texts, however few.
const OWN_BYTES: usize = 2 << 10;
/// Pieces of which a mixed block is made, and about the bytes of their rows.
const FEW_PIECES: usize = 1_024;
const FEW_BYTES: usize = 64 << 10;
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 512 << 10;
/// Pieces that are encoded to estimate what compaction would save.
const SAMPLES: usize = 6;
/// Max attempts to write a run, each time with less of it, if the estimate was too small.
const TRIES: u32 = 3;
/// Max blocks and parts of a run: about 140 bytes of memory each.
const PLACES_MAX: usize = 300_000;
/// Blocks with fewer rows than this are small.
const SMALL_ROWS: usize = 256;

/// Reason why a run is not compacted, this time.
pub(super) enum Stop {
    /// A segment of it does not exist any more.
    Gone,
    /// No benefit: the run is left as it is.
    NotWorthIt,
    /// Too little room in one segment for all of it.
    NoRoom,
    /// Rows of it that cannot be read.
    Unread(Unread),
    /// A difference between what was written and what was read.
    Differs(String),
    /// A failure of the disk.
    Disk(io::Error),
}

impl From<Unread> for Stop {
    fn from(unread: Unread) -> Stop {
        Stop::Unread(unread)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Disk(error)
    }
}

/// Result of a slice.
pub(super) enum Done {
    /// More to do.
    Going,
    /// A run that is worth it: a segment is to be created for it.
    Judged,
    /// Every piece written to the new segment, which is to be finished.
    Written,
    /// A new segment that holds what the old ones hold.
    Compared,
}

/// Room for a new segment.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) segment_bytes: u64,
    /// Bytes of the segment kept for other sections of its footer.
    pub(super) reserved_bytes: usize,
    /// Whether a segment takes a slot, however full: compaction then aims at fewer segments.
    pub(super) by_slots: bool,
}

enum Stage {
    Footers,
    Judge { from_bytes: u64, to_bytes: u64 },
    Ready,
    Write(Box<Output>),
    Compare,
    Done,
}

/// A new segment being written.
struct Output {
    file: SegmentFile,
    /// Rows of streams with few of them, by origin and epoch, until they fill a mixed block.
    few: BTreeMap<(u128, u32), Few>,
    pyramids: pyramid::PyramidBuilder,
    written_bytes: u64,
}

#[derive(Default)]
struct Few {
    pieces: Vec<(Batch, At, bool, bool)>,
    bytes: usize,
    stored: Option<(i64, i64)>,
}

/// A piece whose channels are being processed.
struct Going {
    open: Open,
    new: Option<Open>,
    /// Whether it becomes a block of its own.
    own: bool,
    channel: usize,
    points: u64,
    /// Columns, if it has few rows.
    columns: Vec<Column>,
    /// Statistics of its channels, if it has more rows.
    statistics: Vec<ColumnStatistics>,
}

/// A run being compacted.
pub(crate) struct Work {
    pub(super) group: Group,
    pub(super) sources: Vec<Arc<Segment>>,
    reader: PieceReader,
    /// Newest definition of each stream.
    streams: HashMap<u32, Arc<Stream>, foldhash::fast::RandomState>,
    last: Vec<LastBlocks>,
    all: Vec<Piece>,
    stage: Stage,
    going: Option<Going>,
    memory: (u32, CodecMemory),
    /// Number of segments that were begun and turned out too small.
    tries: u32,
    max_future_ns: i64,
}

fn join(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    (a.0.min(b.0), a.1.max(b.1))
}

impl Work {
    pub(super) fn new(group: Group, sources: Vec<Arc<Segment>>, shared: Arc<Shared>) -> Work {
        Work {
            group,
            max_future_ns: shared.max_future_ns,
            reader: PieceReader::new(sources.clone(), shared),
            sources,
            streams: HashMap::default(),
            last: Vec::new(),
            all: Vec::new(),
            stage: Stage::Footers,
            going: None,
            memory: (u32::MAX, CodecMemory::new()),
            tries: 0,
        }
    }

    /// Does about 1 ms of work. Returns the result.
    pub(super) fn slice(&mut self, room: &Room, encoder: &mut Encoder, residents: &Residents) -> Result<Done, Stop> {
        if self.sources.iter().any(|segment| segment.expired.load(Ordering::Acquire)) {
            return Err(Stop::Gone);
        }
        let mut cells = 0;
        while cells < SLICE_CELLS {
            match &mut self.stage {
                Stage::Footers => {
                    self.read_footer(residents)?;
                    if matches!(self.stage, Stage::Judge { .. }) && room.by_slots && self.is_packed(room) {
                        return Err(Stop::NotWorthIt);
                    }
                    return Ok(Done::Going);
                }
                Stage::Ready => return Ok(Done::Judged),
                Stage::Done => return Ok(Done::Compared),
                _ => {}
            }
            cells += 64;
            if self.going.is_some() {
                cells += self.next_channel(encoder)?;
                continue;
            }
            if self.reader.at == self.reader.pieces.len() {
                match &mut self.stage {
                    Stage::Judge { from_bytes, to_bytes } => {
                        let saved = (*from_bytes, *to_bytes);
                        self.judge(saved, room)?;
                        self.stage = Stage::Ready;
                    }
                    Stage::Write(_) => {
                        self.put_few(true)?;
                        return Ok(Done::Written);
                    }
                    _ => self.stage = Stage::Done,
                }
                continue;
            }
            let (ready, decoded) = self.reader.make_ready(residents)?;
            cells += decoded;
            if ready {
                cells += self.open_next(encoder, residents)?;
            }
        }
        Ok(Done::Going)
    }

    /// Reads the footer of the next segment. After the last one, plans the pieces and begins to judge the run.
    fn read_footer(&mut self, residents: &Residents) -> Result<(), Stop> {
        let source = self.last.len();
        let footer = self.sources[source].read_footer(residents).map_err(|why| Unread { source, why })?;
        let few = self.reader.places.len() + footer.entries.len() <= PLACES_MAX;
        if few {
            places(source, &footer.entries, &mut self.reader.places);
            for stream in footer.streams {
                let known = self.streams.get(&stream.id.0);
                if known.is_none_or(|known| known.layout.version < stream.layout.version) {
                    self.streams.insert(stream.id.0, Arc::new(stream));
                }
            }
            self.last.push(footer.last.unwrap_or_default());
        } else if source == 0 {
            return Err(Stop::NotWorthIt);
        } else {
            self.shorten(source);
        }
        if self.last.len() == self.sources.len() {
            self.all = self.plan().map_err(|error| self.contradiction(error))?;
            self.begin_judging();
        }
        Ok(())
    }

    /// Returns whether no two of the segments can become one: they are full, and of large blocks, which no codec
    /// halves.
    fn is_packed(&self, room: &Room) -> bool {
        let places = &self.reader.places;
        let rows: u64 = places.iter().map(|at| u64::from(at.block.rows)).sum();
        let full = |segment: &Arc<Segment>| segment.state.lock().bytes > room.segment_bytes / 8 * 5;
        rows >= 2 * SMALL_ROWS as u64 * places.len() as u64 && self.sources.iter().all(full)
    }

    /// Cuts the places into pieces. Arrays stay in their blocks: their bytes on disk do not show what they take in
    /// memory.
    fn plan(&mut self) -> Result<Vec<Piece>, FormatError> {
        let streams = &self.streams;
        let is_array = |kind: ChannelType| kind.array().is_some();
        let has_arrays = |stream: &Arc<Stream>| stream.layout.channels.iter().any(|c| is_array(c.channel_type));
        plan(&mut self.reader.places, |stream| !streams.get(&stream).is_some_and(has_arrays))
    }

    /// Keeps only the first `most` segments.
    fn shorten(&mut self, most: usize) {
        self.sources.truncate(most);
        self.reader.segments.truncate(most);
        self.last.truncate(most);
    }

    fn contradiction(&self, error: FormatError) -> Stop {
        Stop::Differs(format!("{}: {error}", self.sources[0].path()))
    }

    /// Selects pieces from all over the run, to estimate the size of the whole.
    fn begin_judging(&mut self) {
        let of_places = &self.reader.places;
        let bytes = |piece: &Piece| of_places[piece.old.clone()].iter().map(|at| u64::from(at.bytes)).sum::<u64>();
        let whole: u64 = self.all.iter().map(bytes).sum::<u64>().max(1);
        let (mut passed, mut samples) = (0u64, Vec::new());
        for piece in &self.all {
            // The piece in the middle of each part of the bytes.
            let due = (2 * samples.len() as u64 + 1) * whole / (2 * SAMPLES as u64);
            passed += bytes(piece);
            if passed > due && samples.len() < SAMPLES {
                samples.push(piece.clone());
            }
        }
        self.reader.begin(samples);
        self.stage = Stage::Judge { from_bytes: 0, to_bytes: 0 };
    }

    /// Decides how many of the segments become one, if any.
    fn judge(&mut self, (from_bytes, to_bytes): (u64, u64), room: &Room) -> Result<(), Stop> {
        let ratio = if from_bytes == 0 { 1.0 } else { to_bytes as f64 / from_bytes as f64 };
        let of = |most: usize| {
            let places = self.reader.places.iter().filter(move |at| (at.source as usize) < most);
            places.fold((0u64, 0u64, 0u64), |(n, rows, bytes), at| {
                (n + 1, rows + u64::from(at.block.rows), bytes + u64::from(at.bytes))
            })
        };
        let shrink = self.all.len() as f64 / self.reader.places.len() as f64;
        let mut definitions = Vec::new();
        self.streams.values().for_each(|stream| definition::encode(stream, &mut definitions));
        let page = PAGE_BYTES as f64;
        let estimate = |most: usize, beside: usize| {
            let (count, _, bytes) = of(most);
            let index = count as f64 * shrink * 48.0 + (definitions.len() + beside) as f64;
            // Header and trailer, blocks with the padding of their groups, and the footer.
            2.0 * page + bytes as f64 * ratio * 1.03 + page / 2.0 + (index / page).ceil() * page
        };
        // A thirty-second is left for statistics of many blocks.
        let fits =
            |most: usize| estimate(most, room.reserved_bytes) <= (room.segment_bytes - room.segment_bytes / 32) as f64;
        let Some(most) = (1..=self.sources.len()).rev().find(|&most| fits(most)) else { return Err(Stop::NotWorthIt) };
        let (count, rows, _) = of(most);
        let now: u64 = self.sources[..most].iter().map(|segment| segment.state.lock().bytes).sum();
        let worth_it = if room.by_slots {
            most > 1
        } else {
            let small = rows < count * SMALL_ROWS as u64 && shrink <= 0.5;
            small && estimate(most, 0) < now as f64 || estimate(most, 0) <= now as f64 * 0.75
        };
        if !worth_it {
            return Err(Stop::NotWorthIt);
        }
        if most < self.sources.len() {
            self.take_fewer(most)?;
        }
        Ok(())
    }

    fn take_fewer(&mut self, most: usize) -> Result<(), Stop> {
        self.shorten(most);
        self.reader.places.retain(|at| (at.source as usize) < most);
        self.all = self.plan().map_err(|error| self.contradiction(error))?;
        let known: hashbrown::HashSet<u32> = self.reader.places.iter().map(|at| at.stream).collect();
        self.streams.retain(|stream, _| known.contains(stream));
        Ok(())
    }

    /// Tries again with as many segments as got into the last one. Returns false if there are no fewer, or after
    /// [`TRIES`] attempts.
    pub(super) fn try_fewer(&mut self, least: usize) -> bool {
        let (of, all) = (self.sources.len(), self.reader.pieces.len().max(1));
        let most = (of * self.reader.at / all).clamp(1, of).min(of - 1);
        self.going = None;
        self.tries += 1;
        let again = self.tries < TRIES && most < of && most >= least && self.take_fewer(most).is_ok();
        self.stage = Stage::Ready;
        again
    }

    /// Returns the bytes written to a new segment that will not be finished.
    pub(super) fn wasted_bytes(&self) -> u64 {
        if let Stage::Write(output) = &self.stage { output.written_bytes } else { 0 }
    }

    /// Returns the new segment, if it was written.
    pub(super) fn compared(&self) -> Option<Arc<Segment>> {
        self.reader.segments.get(self.sources.len()).cloned()
    }

    /// Returns the directory's state of the new segment, made as new as the directory says the old ones are.
    pub(super) fn aged_as_sources(&self, mut state: SegmentState) -> SegmentState {
        for source in self.sources.iter().map(|source| *source.state.lock()) {
            state.stored.1 = state.stored.1.max(source.stored.1);
            state.not_before = state.not_before.max(source.not_before);
        }
        state
    }

    /// Begins to write into a file that was created for it.
    pub(super) fn begin_output(&mut self, file: SegmentFile) {
        self.reader.begin(std::mem::take(&mut self.all));
        self.stage = Stage::Write(Box::new(Output {
            file,
            few: BTreeMap::new(),
            pyramids: Default::default(),
            written_bytes: 0,
        }));
    }

    /// Writes what waits and the footer. Returns the bytes written, and the segment as the writer knows it.
    pub(super) fn finish_output(&mut self, room: &Room) -> Result<(u64, Arc<Segment>), Stop> {
        let last = self.last_blocks(room.reserved_bytes);
        let places = Some((self.sources[0].places.0, self.sources[self.sources.len() - 1].places.1));
        // If the disk fails before the end, what was written is wasted.
        let Stage::Write(output) = &mut self.stage else {
            return Err(Stop::Differs("nothing was written".to_owned()));
        };
        let Output { file, pyramids, written_bytes, .. } = &mut **output;
        let segment = file.segment().clone();
        *written_bytes += file.flush()?.0;
        let pyramids = std::mem::take(pyramids).finish(|bytes| file.has_room_beside(bytes));
        *written_bytes += file.finish(Beside { last: Some(last), places, pyramids })?;
        let written_bytes = *written_bytes;
        self.stage = Stage::Done;
        Ok((written_bytes, segment))
    }

    /// Returns what the segments together say of streams that have no block in any of them.
    fn last_blocks(&self, room_bytes: usize) -> LastBlocks {
        let is_in = |stream: u32| self.streams.contains_key(&stream);
        let mut all = self.last.iter().filter(|last| last.streams.0 < last.streams.1);
        let mut merged = all.next().cloned().unwrap_or_default();
        for next in all {
            // Each covers the streams after those of the one before; a new round adds nothing.
            if merged.streams.1 != next.streams.0 || merged.streams.1 == u32::MAX {
                break;
            }
            merged.streams.1 = next.streams.1;
            merged.places.extend(next.places.iter().copied());
        }
        merged.places.retain(|(stream, _)| !is_in(*stream));
        // Places in a number that the run stands for are dropped: a stream there would be in the run. Nothing is known
        // of such.
        let first = self.sources[0].places.0;
        for (_, place) in &mut merged.places {
            *place = place.filter(|(home, _)| *home < first);
        }
        loop {
            let bytes = merged.encode(u64::MAX).len();
            if bytes <= room_bytes {
                return merged;
            }
            let keep = merged.places.len() * room_bytes / bytes;
            merged.streams.1 = merged.places[keep].0;
            merged.places.truncate(keep);
        }
    }

    /// Begins to compare what was written, as its footer says, with what was read.
    pub(super) fn begin_comparing(&mut self, new: Arc<Segment>, residents: &Residents) -> Result<(), Stop> {
        let source = self.sources.len();
        let footer = new.read_footer(residents).map_err(|why| Unread { source, why })?;
        self.reader.segments.push(new);
        let mut found = Vec::with_capacity(footer.entries.len());
        places(source, &footer.entries, &mut found);
        found.sort_unstable_by_key(|at| (at.stream, at.block.first_row));
        let differs = |at: &At| Stop::Differs(format!("rows of stream {} from row {}", at.stream, at.block.first_row));
        let old = &self.reader.places;
        let (mut next, mut pieces) = (0, Vec::with_capacity(found.len()));
        for at in found {
            let begin = next;
            let (mut row, mut stored, mut time) = (at.block.first_row, (i64::MAX, i64::MIN), (i64::MAX, i64::MIN));
            while let Some(part) = old.get(next)
                && part.stream == at.stream
                && part.block.first_row == row
                && row < at.block.end_row()
            {
                if !part.is_like(&at) {
                    return Err(differs(&at));
                }
                (stored, time) = (join(stored, part.stored), join(time, part.block.time));
                row = part.block.end_row();
                next += 1;
            }
            // A mixed block has one span of storing for all its parts.
            let stored_fits = if at.block.part.is_some() {
                at.stored.0 <= stored.0 && stored.1 <= at.stored.1
            } else {
                at.stored == stored
            };
            if row != at.block.end_row() || time != at.block.time || !stored_fits {
                return Err(differs(&at));
            }
            pieces.push(Piece { old: begin..next, new: Some(at) });
        }
        if next != old.len() {
            return Err(Stop::Differs(format!("{next} blocks of {} are there", old.len())));
        }
        let definitions: HashMap<u32, u32> = footer.streams.iter().map(|s| (s.id.0, s.layout.version)).collect();
        if self.streams.iter().any(|(id, stream)| definitions.get(id) != Some(&stream.layout.version)) {
            return Err(Stop::Differs("definitions".to_owned()));
        }
        self.reader.begin(pieces);
        self.stage = Stage::Compare;
        Ok(())
    }

    /// Opens the next piece, and the block that was made of it, if any.
    fn open_next(&mut self, encoder: &mut Encoder, residents: &Residents) -> Result<usize, Stop> {
        let piece = &self.reader.pieces[self.reader.at];
        let stream = self.reader.places[piece.old.start].stream;
        let definition = self.streams.get(&stream);
        let reduced = definition.is_some_and(|s| s.layout.channels.iter().any(|c| c.reduction != Reduction::None));
        let open = self.reader.open_old(reduced, residents)?;
        let new = self.reader.open_new(residents)?;
        self.reader.at += 1;
        let rows = open.rows.len();
        let own = rows >= OWN_ROWS || open.bytes >= OWN_BYTES;
        match &new {
            Some(new) => {
                let flags = |open: &Open| (open.types.clone(), open.overlaps, open.gaps.contains(&0));
                if !same_rows(&open.rows, &new.rows) || flags(&open) != flags(new) {
                    return Err(self.differs(&open));
                }
            }
            None if own => {
                if self.memory.0 != stream {
                    self.memory = (stream, CodecMemory::new());
                }
                let begun = encoder.begin(&meta(&open, self.max_future_ns), &open.rows, open.types.len());
                begun.map_err(|error| Stop::Differs(error.to_string()))?;
            }
            None => {}
        }
        self.going = Some(Going { open, new, own, channel: 0, points: 0, columns: Vec::new(), statistics: Vec::new() });
        Ok(4 * rows)
    }

    fn differs(&self, open: &Open) -> Stop {
        Stop::Differs(format!("rows of stream {} from row {}", open.like.stream, open.like.block.first_row))
    }

    /// Encodes or compares the next channel of the piece under way. After the last one, finishes the piece.
    fn next_channel(&mut self, encoder: &mut Encoder) -> Result<usize, Stop> {
        let Some(going) = &mut self.going else { return Ok(0) };
        let rows = going.open.rows.len();
        if going.channel == going.open.types.len() {
            let Some(going) = self.going.take() else { return Ok(0) };
            return self.finish_piece(going, encoder).map(|()| 0);
        }
        let column = going.open.column(going.channel, &self.reader.segments)?;
        let channel = going.channel;
        going.channel += 1;
        if let Some(new) = &going.new {
            if !same_cells(&column, &new.column(channel, &self.reader.segments)?) {
                let going = self.going.take();
                return Err(going.map_or(Stop::Gone, |going| self.differs(&going.open)));
            }
            return Ok(rows);
        }
        let nulls = column.states.iter().flatten().filter(|state| **state != CellState::Value).count();
        going.points += (rows - nulls) as u64;
        if !going.own {
            going.columns.push(column);
        } else {
            let known = self.streams.get(&going.open.like.stream).and_then(|s| s.layout.channels.get(channel));
            let interpolation = known.map_or(Interpolation::Hold, |channel| channel.interpolation);
            let added = encoder.add(&column, interpolation, Effort::Settle, &mut self.memory.1);
            going.statistics.extend(added.map_err(|error| Stop::Differs(error.to_string()))?);
        }
        Ok(rows)
    }

    fn finish_piece(&mut self, going: Going, encoder: &mut Encoder) -> Result<(), Stop> {
        if going.new.is_some() {
            return Ok(());
        }
        let Going { open, own, points, columns, statistics, .. } = going;
        if !own {
            match &mut self.stage {
                Stage::Judge { from_bytes, to_bytes } => {
                    *from_bytes += open.bytes as u64;
                    *to_bytes += open.bytes as u64;
                    return Ok(());
                }
                Stage::Write(output) => {
                    if let Some(stream) = self.streams.get(&open.like.stream) {
                        output.pyramids.add_part(stream);
                    }
                    output.add_few(open, columns);
                }
                _ => return Ok(()),
            }
            return self.put_few(false);
        }
        let mut bytes = Vec::new();
        let ended = encoder.end(&meta(&open, self.max_future_ns), &open.rows, open.like.layout_version, &mut bytes);
        let header = ended.map_err(|error| Stop::Differs(error.to_string()))?;
        match &mut self.stage {
            Stage::Judge { from_bytes, to_bytes } => {
                *from_bytes += open.bytes as u64;
                *to_bytes += bytes.len() as u64;
                Ok(())
            }
            Stage::Write(output) => {
                let Some(stream) = self.streams.get(&open.like.stream) else {
                    return Err(Stop::Differs(format!("stream {} without a definition", open.like.stream)));
                };
                let statistics = Some(&*statistics).filter(|found| found.len() == open.types.len());
                output.pyramids.add(stream, &header, statistics);
                output.put(&bytes, std::slice::from_ref(stream), points)
            }
            _ => Ok(()),
        }
    }

    /// Puts rows of streams that have few of them into mixed blocks: those that fill one, or all.
    fn put_few(&mut self, all: bool) -> Result<(), Stop> {
        let max_future_ns = self.max_future_ns;
        let Stage::Write(output) = &mut self.stage else { return Ok(()) };
        let due = |few: &Few| all || few.pieces.len() >= FEW_PIECES || few.bytes >= FEW_BYTES;
        let full: Vec<(u128, u32)> = output.few.iter().filter(|(_, few)| due(few)).map(|(key, _)| *key).collect();
        for key in full {
            let Some(few) = output.few.remove(&key) else { continue };
            let Some(stored) = few.stored else { continue };
            let parts: Vec<MixedPart<'_>> = few
                .pieces
                .iter()
                .map(|(batch, like, overlaps, gap_before)| MixedPart {
                    batch,
                    layout_version: like.layout_version,
                    overlaps_previous: *overlaps,
                    gap_before: *gap_before,
                })
                .collect();
            let meta = BlockMeta {
                origin: key.0,
                epoch: key.1,
                stored,
                overlaps_previous: false,
                gaps: &[],
                max_future_ns,
                effort: Effort::Settle,
            };
            let mut bytes = Vec::new();
            mixed::encode(&meta, &parts, &mut bytes).map_err(|error| Stop::Differs(error.to_string()))?;
            let streams: Vec<Arc<Stream>> =
                few.pieces.iter().filter_map(|(_, like, ..)| self.streams.get(&like.stream).cloned()).collect();
            let points = few.pieces.iter().map(|(batch, ..)| points_of(batch)).sum();
            output.put(&bytes, &streams, points)?;
        }
        Ok(())
    }
}

impl Output {
    fn add_few(&mut self, open: Open, columns: Vec<Column>) {
        let few = self.few.entry((open.like.origin, open.like.epoch)).or_default();
        few.stored = Some(few.stored.map_or(open.stored, |stored| join(stored, open.stored)));
        few.bytes += open.bytes;
        let gap_before = open.gaps.contains(&0) && !mutant::is_active(Mutant::DropGapMark);
        few.pieces.push((Batch { columns, ..open.rows }, open.like, open.overlaps, gap_before));
    }

    fn put(&mut self, block: &[u8], streams: &[Arc<Stream>], points: u64) -> Result<(), Stop> {
        if !self.file.has_room(block.len(), streams) {
            return Err(Stop::NoRoom);
        }
        self.file.put(block, streams, points)?;
        if self.file.waiting_bytes() >= WRITE_BYTES {
            self.written_bytes += self.file.flush()?.0;
        }
        Ok(())
    }
}

fn points_of(batch: &Batch) -> u64 {
    let values = |column: &Column| match &column.states {
        None => batch.len(),
        Some(states) => states.iter().filter(|state| **state == CellState::Value).count(),
    };
    batch.columns.iter().map(values).sum::<usize>() as u64
}

fn meta(open: &Open, max_future_ns: i64) -> BlockMeta<'_> {
    BlockMeta {
        origin: open.like.origin,
        epoch: open.like.epoch,
        stored: open.stored,
        overlaps_previous: open.overlaps,
        gaps: if mutant::is_active(Mutant::DropGapMark) { &[] } else { &open.gaps },
        max_future_ns,
        effort: Effort::Settle,
    }
}
