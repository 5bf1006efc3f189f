//! Reading for compaction: the rows of some segments by stream, piece by piece; a piece becomes one block.
//!
//! Blocks are read when their piece comes, a column at a time. A mixed block has rows of many pieces: it is read once
//! for as many of them as memory allows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::append::sequence;
use crate::block::Block;
use crate::block::mixed::MixedBlock;
use crate::bytes::{FormatError, check_limit, malformed};
use crate::model::batch::{Batch, Column, ColumnValues};
use crate::model::limits::COLUMN_TEXT_BYTES_MAX;
use crate::model::refusal::ScanError;
use crate::model::stream::{Layout, StreamId};
use crate::model::value::{CellState, ChannelType};
use crate::read::request::Scan;
use crate::read::scan::optional;
use crate::read::shared::Shared;
use crate::read::view::View;
use crate::segment::IndexEntry;
use crate::segment::directory::{BlockRef, Residents, Segment};
use crate::segment::file::block_ref;

/// Max rows of a block that compaction makes: a column of it is decoded in some 20 µs.
pub(super) const PIECE_ROWS: usize = 8_192;
/// Max bytes of blocks that are joined: a reader of one row reads the block.
const PIECE_BYTES: usize = 256 << 10;
/// Max parts of mixed blocks in memory at a time, and about the bytes of their rows.
const PARTS_MAX: usize = 8_192;
const PARTS_BYTES: usize = 4 << 20;

/// Reason why rows cannot be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// Index of the segment.
    pub(super) source: usize,
    pub(super) why: ScanError,
}

/// Place of a block, or of a part of a mixed one.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) source: u32,
    pub(super) stream: u32,
    pub(super) epoch: u32,
    pub(super) layout_version: u32,
    pub(super) origin: u128,
    pub(super) block: BlockRef,
    pub(super) stored: (i64, i64),
    pub(super) overlaps: bool,
    pub(super) source_clock: bool,
    /// Bytes of the block; for a part, its share of the mixed block.
    pub(super) bytes: u32,
}

impl At {
    fn of(source: usize, entry: &IndexEntry, bytes: u32) -> At {
        let header = &entry.header;
        At {
            source: source as u32,
            stream: header.stream.0,
            epoch: header.epoch,
            layout_version: header.layout_version,
            origin: header.origin,
            block: block_ref(entry),
            stored: header.stored,
            overlaps: header.overlaps_previous,
            source_clock: header.source_clock,
            bytes,
        }
    }

    /// Returns whether rows of both may be in one block.
    pub(super) fn is_like(&self, other: &At) -> bool {
        let of = |at: &At| (at.stream, at.epoch, at.origin, at.layout_version, at.source_clock);
        of(self) == of(other)
    }
}

/// Adds the places that an index lists, with the share of each part in its mixed block.
pub(super) fn places(source: usize, entries: &[IndexEntry], out: &mut Vec<At>) {
    for block in entries.chunk_by(|a, b| a.offset == b.offset) {
        let rows: usize = block.iter().map(|entry| entry.header.rows).sum();
        let share = |entry: &IndexEntry| (entry.length_bytes as u64 * entry.header.rows as u64 / rows as u64) as u32;
        out.extend(block.iter().map(|entry| At::of(source, entry, share(entry))));
    }
}

/// Rows that become one block.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Range of the old places.
    pub(super) old: Range<usize>,
    /// Block that was made of them.
    pub(super) new: Option<At>,
}

/// Sorts places by stream and row, and cuts them into pieces, of one place each for streams that `joins` excludes.
///
/// # Errors
/// Some rows are there twice.
pub(super) fn plan(places: &mut [At], joins: impl Fn(u32) -> bool) -> Result<Vec<Piece>, FormatError> {
    places.sort_unstable_by_key(|at| (at.stream, at.block.first_row));
    let twice = |w: &[At]| w[0].stream == w[1].stream && w[1].block.first_row < w[0].block.end_row();
    if places.windows(2).any(twice) {
        return Err(malformed("rows that are there twice"));
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    for (n, at) in places.iter().enumerate() {
        let (more_rows, more_bytes) = (at.block.rows as usize, at.bytes as usize);
        match pieces.last_mut() {
            Some(piece)
                if places[n - 1].is_like(at)
                    && joins(at.stream)
                    && places[n - 1].block.end_row() == at.block.first_row
                    && rows + more_rows <= PIECE_ROWS
                    && bytes + more_bytes <= PIECE_BYTES =>
            {
                piece.old.end = n + 1;
                (rows, bytes) = (rows + more_rows, bytes + more_bytes);
            }
            _ => {
                pieces.push(Piece { old: n..n + 1, new: None });
                (rows, bytes) = (more_rows, more_bytes);
            }
        }
    }
    Ok(pieces)
}

/// A part that was read, and whether frames are known to be missing before it, if it says so.
type ReadPart = (Batch, Option<bool>);

/// Rows to look back over for the sequence before a part that does not say whether frames are missing before it.
const LOOKED_BACK_ROWS: u64 = 2_048;

/// Reader of pieces, in their order.
pub(super) struct PieceReader {
    shared: Arc<Shared>,
    /// The old segments, then the new one.
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) places: Vec<At>,
    pub(super) pieces: Vec<Piece>,
    /// Index of the next piece.
    pub(super) at: usize,
    /// Piece before which every part of a mixed block is loaded or queued.
    known_to: usize,
    to_load: VecDeque<(u32, BlockRef, Vec<Key>)>,
    parts: HashMap<Key, ReadPart, foldhash::fast::RandomState>,
    /// Stream and end of the previous piece, with session and highest sequence up to there.
    newest: Option<(u32, u64, (u32, i64))>,
}

/// Key of a part: its segment, offset and number.
type Key = (u32, u32, u32);

fn key(at: &At) -> Option<Key> {
    Some((at.source, at.block.offset, at.block.part?))
}

/// Rows of one block or part.
enum Cells {
    Block(Vec<u8>),
    Part(Box<Batch>),
}

/// A piece that was read.
pub(super) struct Open {
    cells: Vec<(u32, Cells, usize)>,
    /// Times, sequences and sessions, without a channel.
    pub(super) rows: Batch,
    pub(super) types: Vec<ChannelType>,
    /// Rows before which frames are known to be missing.
    pub(super) gaps: Vec<u32>,
    pub(super) stored: (i64, i64),
    pub(super) overlaps: bool,
    /// Place whose stream, epoch, origin, layout version and clock all of it shares.
    pub(super) like: At,
    pub(super) bytes: usize,
}

impl PieceReader {
    pub(super) fn new(segments: Vec<Arc<Segment>>, shared: Arc<Shared>) -> PieceReader {
        PieceReader {
            shared,
            segments,
            places: Vec::new(),
            pieces: Vec::new(),
            at: 0,
            known_to: 0,
            to_load: VecDeque::new(),
            parts: HashMap::default(),
            newest: None,
        }
    }

    /// Begins again with other pieces.
    pub(super) fn begin(&mut self, pieces: Vec<Piece>) {
        (self.pieces, self.at, self.known_to) = (pieces, 0, 0);
        self.to_load.clear();
        self.parts.clear();
        self.newest = None;
    }

    fn unread(&self, source: u32, block: &BlockRef, error: FormatError) -> Unread {
        let segment = &self.segments[source as usize];
        let why = ScanError::Damaged { file: segment.path(), offset: block.offset.into(), reason: error.to_string() };
        Unread { source: source as usize, why }
    }

    fn read(&self, source: u32, block: &BlockRef, residents: &Residents) -> Result<Vec<u8>, Unread> {
        let read = self.segments[source as usize].read_block(block, residents);
        read.map_err(|why| Unread { source: source as usize, why })
    }

    /// Prepares the next piece, a little at a time. Returns whether it can be opened, and how many cells were decoded.
    pub(super) fn make_ready(&mut self, residents: &Residents) -> Result<(bool, usize), Unread> {
        if let Some((source, block, wanted)) = self.to_load.pop_front() {
            let bytes = self.read(source, &block, residents)?;
            let mut cells = 0;
            let mixed = MixedBlock::read(&bytes).map_err(|e| self.unread(source, &block, e))?;
            for key in wanted {
                let number = key.2 as usize;
                let part = mixed.parts().get(number).ok_or(malformed("a part beyond the mixed block"));
                let part = part.map_err(|e| self.unread(source, &block, e))?;
                let types = part.types();
                let gap_before = part.knows_gap().then_some(part.header.gap_before);
                let layout = Layout::of_types(types);
                let batch = mixed.decode(number, &layout, &layout.indices());
                let batch = batch.map_err(|e| self.unread(source, &block, e))?;
                cells += batch.len() * (types.len() + 4);
                self.parts.insert(key, (batch, gap_before));
            }
            return Ok((false, cells));
        }
        if self.at < self.known_to {
            return Ok((true, 0));
        }
        self.know_more();
        Ok((self.to_load.is_empty(), 0))
    }

    /// Finds the mixed blocks that the next pieces need.
    fn know_more(&mut self) {
        let (mut parts, mut bytes) = (0, 0);
        let mut blocks: HashMap<(u32, u32), usize> = HashMap::new();
        while let Some(piece) = self.pieces.get(self.known_to) {
            let of_piece = self.places[piece.old.clone()].iter().chain(&piece.new).filter(|at| at.block.part.is_some());
            let (more, more_bytes) = of_piece.clone().fold((0, 0), |(n, b), at| (n + 1, b + at.bytes as usize));
            if self.known_to > self.at && (parts + more > PARTS_MAX || bytes + more_bytes > PARTS_BYTES) {
                break;
            }
            (parts, bytes) = (parts + more, bytes + more_bytes);
            for at in of_piece {
                let Some(key) = key(at) else { continue };
                let to_load = &mut self.to_load;
                let index = *blocks.entry((key.0, key.1)).or_insert_with(|| {
                    to_load.push_back((at.source, at.block, Vec::new()));
                    to_load.len() - 1
                });
                self.to_load[index].2.push(key);
            }
            self.known_to += 1;
        }
        self.to_load.make_contiguous().sort_unstable_by_key(|(source, block, _)| (*source, block.offset));
    }

    /// Opens the old rows of the next piece. `reduced`: its stream has reductions, so that a leap in the sequence is no
    /// gap.
    pub(super) fn open_old(&mut self, reduced: bool, residents: &Residents) -> Result<Open, Unread> {
        let places: Vec<At> = self.places[self.pieces[self.at].old.clone()].to_vec();
        let before = self.newest_before(&places[0]);
        let (open, newest) = self.open(&places, before, reduced, residents)?;
        let end = open.rows.rows.last().map_or(0, |row| row + 1);
        self.newest = newest.map(|newest| (open.like.stream, end, newest));
        Ok(open)
    }

    /// Returns the session and highest sequence of the rows before a place: of the previous piece, if the place
    /// continues it, or read back for a part that does not say whether frames are missing before it.
    fn newest_before(&self, at: &At) -> Option<(u32, i64)> {
        if let Some((stream, end, newest)) = self.newest
            && (stream, end) == (at.stream, at.block.first_row)
        {
            return Some(newest);
        }
        let (_, gap_before) = self.parts.get(&key(at)?)?;
        if gap_before.is_some() || at.block.first_row == 0 {
            return None;
        }
        let rows = at.block.first_row.saturating_sub(LOOKED_BACK_ROWS)..at.block.first_row;
        let scan = Scan { rows, newest_first: true, ..Scan::all(StreamId(at.stream), vec![]) };
        // Rows that cannot be read are ignored.
        let batch = View::new(self.shared.clone()).scan(scan).next()?.ok()?;
        let session = batch.session?;
        let sequence = batch.sequence?;
        (0..session.len())
            .filter_map(|row| Some((sequence.get(row)?, session[row])))
            .fold(None, |before, row| Some(sequence::advance(before, row)))
    }

    /// Opens the block that was made of the next piece.
    pub(super) fn open_new(&mut self, residents: &Residents) -> Result<Option<Open>, Unread> {
        match self.pieces[self.at].new {
            Some(at) => self.open(&[at], None, true, residents).map(|(open, _)| Some(open)),
            None => Ok(None),
        }
    }

    fn open(
        &mut self,
        places: &[At],
        before: Option<(u32, i64)>,
        reduced: bool,
        residents: &Residents,
    ) -> Result<(Open, Option<(u32, i64)>), Unread> {
        let mut cells = Vec::with_capacity(places.len());
        let (mut parts, mut types, mut begins) = (Vec::new(), None::<Vec<ChannelType>>, Vec::new());
        let (mut stored, mut overlaps, mut least) = ((i64::MAX, i64::MIN), false, i64::MAX);
        let (mut rows, mut bytes) = (0, 0);
        for at in places {
            let (found, batch, own, gap_before) = match key(at) {
                Some(key) => {
                    let batch = self.parts.remove(&key);
                    let batch = batch.ok_or(malformed("a part that was not read"));
                    let (mut batch, gap_before) = batch.map_err(|e| self.unread(at.source, &at.block, e))?;
                    let own = batch.columns.iter().map(|c| c.values.channel_type()).collect::<Vec<_>>();
                    let columns = std::mem::take(&mut batch.columns);
                    let system = batch.clone();
                    batch.columns = columns;
                    (Cells::Part(Box::new(batch)), system, own, gap_before)
                }
                None => {
                    let bytes = self.read(at.source, &at.block, residents)?;
                    let read = Block::read(&bytes).and_then(|block| {
                        let own = block.columns().iter().map(|c| c.channel_type).collect::<Vec<_>>();
                        Ok((block.decode(&Layout::of_types(&[]), &[])?, own, block.header().gap_before))
                    });
                    let (system, own, gap) = read.map_err(|e| self.unread(at.source, &at.block, e))?;
                    (Cells::Block(bytes), system, own, Some(gap))
                }
            };
            let right = (batch.stream.0, batch.rows.first(), batch.len(), batch.source_clock)
                == (at.stream, Some(&at.block.first_row), at.block.rows as usize, at.source_clock);
            if !right || types.as_ref().is_some_and(|types| *types != own) {
                return Err(self.unread(at.source, &at.block, malformed("other rows than the index says")));
            }
            types = Some(own);
            begins.push((rows, gap_before));
            // A block that begins before the min time so far is before everything older, or overlaps it.
            overlaps |= at.overlaps && at.block.time.0 < least;
            least = least.min(at.block.time.0);
            stored = (stored.0.min(at.stored.0), stored.1.max(at.stored.1));
            rows += batch.len();
            bytes += at.bytes as usize;
            cells.push((at.source, found, batch.len()));
            parts.push(batch);
        }
        let rows = join_rows(parts);
        let (gaps, newest) = gaps_of(&rows, &begins, before, reduced);
        let types = types.unwrap_or_default();
        Ok((Open { cells, rows, types, gaps, stored, overlaps, like: places[0], bytes }, newest))
    }
}

impl Open {
    /// Returns the cells of a channel, of all rows.
    pub(super) fn column(&self, channel: usize, segments: &[Arc<Segment>]) -> Result<Column, Unread> {
        let kind = self.types[channel];
        let mut joined = Column { values: ColumnValues::with_capacity(kind, self.rows.len()), states: None };
        for (source, cells, rows) in &self.cells {
            let column = match cells {
                Cells::Part(batch) => Ok(batch.columns[channel].clone()),
                Cells::Block(bytes) => Block::read(bytes).and_then(|block| block.column_as_stored(channel)),
            };
            let appended = column.and_then(|column| append(&mut joined, column, *rows));
            appended.map_err(|error| Unread {
                source: *source as usize,
                why: ScanError::Damaged {
                    file: segments[*source as usize].path(),
                    offset: self.like.block.offset.into(),
                    reason: error.to_string(),
                },
            })?;
        }
        Ok(joined)
    }
}

/// Adds a column of `rows` rows of the same type.
fn append(to: &mut Column, more: Column, rows: usize) -> Result<(), FormatError> {
    let before = to.values.len();
    match (&mut to.values, more.values) {
        (ColumnValues::Bool(a), ColumnValues::Bool(b)) => a.extend(b),
        (ColumnValues::I8(a), ColumnValues::I8(b)) => a.extend(b),
        (ColumnValues::I16(a), ColumnValues::I16(b)) => a.extend(b),
        (ColumnValues::I32(a), ColumnValues::I32(b)) => a.extend(b),
        (ColumnValues::I64(a), ColumnValues::I64(b)) => a.extend(b),
        (ColumnValues::U8(a), ColumnValues::U8(b)) => a.extend(b),
        (ColumnValues::U16(a), ColumnValues::U16(b)) => a.extend(b),
        (ColumnValues::U32(a), ColumnValues::U32(b)) => a.extend(b),
        (ColumnValues::U64(a), ColumnValues::U64(b)) => a.extend(b),
        (ColumnValues::F32(a), ColumnValues::F32(b)) => a.extend(b),
        (ColumnValues::F64(a), ColumnValues::F64(b)) => a.extend(b),
        (ColumnValues::String { offsets, bytes }, ColumnValues::String { offsets: more, bytes: text }) => {
            append_bytes((offsets, bytes), (&more, &text))?;
        }
        (
            ColumnValues::Array { kind, offsets, bytes },
            ColumnValues::Array { kind: of_more, offsets: more, bytes: elements },
        ) if *kind == of_more => append_bytes((offsets, bytes), (&more, &elements))?,
        _ => return Err(malformed("a column of another type")),
    }
    if to.values.len() != before + rows {
        return Err(malformed("a column of another length"));
    }
    match (&mut to.states, more.states) {
        (None, None) => {}
        (states, more) => {
            let states = states.get_or_insert_with(|| vec![CellState::Value; before]);
            states.extend(more.unwrap_or_else(|| vec![CellState::Value; rows]));
        }
    }
    Ok(())
}

fn append_bytes(to: (&mut Vec<u32>, &mut Vec<u8>), more: (&[u32], &[u8])) -> Result<(), FormatError> {
    let base = to.1.len();
    check_limit("bytes of a column", (base + more.1.len()) as u64, COLUMN_TEXT_BYTES_MAX)?;
    to.1.extend_from_slice(more.1);
    to.0.extend(more.0[1..].iter().map(|end| base as u32 + end));
    Ok(())
}

/// Returns the rows before which frames are known to be missing, and session and highest sequence at the end. `begins`:
/// the first row of each block, and what the block says of itself, which was written knowing all rows before.
fn gaps_of(
    rows: &Batch,
    begins: &[(usize, Option<bool>)],
    mut newest: Option<(u32, i64)>,
    reduced: bool,
) -> (Vec<u32>, Option<(u32, i64)>) {
    let mut gaps = Vec::new();
    let mut begins = begins.iter().copied().peekable();
    for row in 0..rows.len() {
        let says = begins.next_if(|begin| begin.0 == row).and_then(|begin| begin.1);
        let sequence = rows.sequence.as_ref().and_then(|sequence| sequence.get(row));
        let found = sequence.map(|sequence| (sequence, rows.session.as_ref().map_or(0, |session| session[row])));
        if let (Some(false), Some((sequence, session))) = (says, found) {
            // A higher sequence came before, also if this is a late frame.
            newest = Some(sequence::advance(newest, (sequence.saturating_sub(1), session)));
        }
        let leaps = found.is_some_and(|(sequence, session)| {
            newest
                .is_some_and(|(before, highest)| session != before || !reduced && sequence > highest.saturating_add(1))
        });
        if says.unwrap_or(leaps) {
            gaps.push(row as u32);
        }
        newest = found.map(|found| sequence::advance(newest, found)).or(newest);
    }
    (gaps, newest)
}

/// Joins times, sequences and sessions of consecutive parts.
fn join_rows(mut parts: Vec<Batch>) -> Batch {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let all = |of: &dyn Fn(&Batch, usize) -> Option<i64>| {
        let rows: Vec<Option<i64>> = parts.iter().flat_map(|b| (0..b.len()).map(|row| of(b, row))).collect();
        optional(rows.into_iter())
    };
    let sequence = all(&|b, row| b.sequence.as_ref()?.get(row));
    let session = |b: &Batch| b.session.clone().unwrap_or_else(|| vec![0; b.len()]);
    Batch {
        stream: parts[0].stream,
        rows: parts.iter().flat_map(|b| b.rows.iter().copied()).collect(),
        receive_time: parts.iter().flat_map(|b| b.receive_time.iter().copied()).collect(),
        source_time: all(&|b, row| b.source_time.as_ref()?.get(row)),
        session: sequence.is_some().then(|| parts.iter().flat_map(session).collect()),
        sequence,
        source_clock: parts[0].source_clock,
        columns: Vec::new(),
    }
}

/// Returns whether two columns are equal in every row, bit for bit.
pub(super) fn same_cells(a: &Column, b: &Column) -> bool {
    let rows = a.values.len();
    if rows != b.values.len() || a.values.channel_type() != b.values.channel_type() {
        return false;
    }
    let state = |column: &Column, row: usize| column.states.as_ref().map_or(CellState::Value, |states| states[row]);
    (0..rows).all(|row| {
        let states = (state(a, row), state(b, row));
        states.0 == states.1 && (states.0 != CellState::Value || same_value(&a.values, &b.values, row))
    })
}

fn same_value(a: &ColumnValues, b: &ColumnValues, row: usize) -> bool {
    match (a, b) {
        (ColumnValues::String { offsets: at, bytes: a }, ColumnValues::String { offsets: bt, bytes: b })
        | (ColumnValues::Array { offsets: at, bytes: a, .. }, ColumnValues::Array { offsets: bt, bytes: b, .. }) => {
            let text = |at: &[u32]| at[row] as usize..at[row + 1] as usize;
            a.get(text(at)) == b.get(text(bt))
        }
        (a, b) => a.value(row).bits() == b.value(row).bits(),
    }
}

/// Returns whether times, sequences and sessions of two batches are equal.
pub(super) fn same_rows(a: &Batch, b: &Batch) -> bool {
    let source = |batch: &Batch, row: usize| batch.source_time.as_ref().and_then(|times| times.get(row));
    let sequence = |batch: &Batch, row: usize| {
        let session = batch.session.as_ref().map_or(0, |session| session[row]);
        batch.sequence.as_ref().and_then(|times| times.get(row)).map(|sequence| (session, sequence))
    };
    (a.stream, a.source_clock, &a.rows, &a.receive_time) == (b.stream, b.source_clock, &b.rows, &b.receive_time)
        && (0..a.len()).all(|row| source(a, row) == source(b, row) && sequence(a, row) == sequence(b, row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::batch::OptionalTimes;

    fn rows(sequences: &[(u32, i64)]) -> Batch {
        Batch {
            stream: StreamId(0),
            rows: (0..sequences.len() as u64).collect(),
            receive_time: vec![0; sequences.len()],
            source_time: None,
            sequence: Some(OptionalTimes { values: sequences.iter().map(|s| s.1).collect(), valid: None }),
            session: Some(sequences.iter().map(|s| s.0).collect()),
            source_clock: false,
            columns: Vec::new(),
        }
    }

    /// Blocks say whether frames are missing before them; for older parts, which do not, the sequences decide.
    #[test]
    fn gaps_stay_where_they_were_found() {
        let plain = [(0, 1), (0, 2), (0, 5), (0, 6)];
        assert_eq!(gaps_of(&rows(&plain), &[(0, None)], None, false), (vec![2], Some((0, 6))));
        assert_eq!(gaps_of(&rows(&plain), &[(0, None), (2, None)], Some((0, 0)), false).0, [2]);
        assert_eq!(gaps_of(&rows(&plain), &[(0, None), (2, None)], Some((0, -1)), false).0, [0, 2]);
        assert_eq!(gaps_of(&rows(&plain), &[(0, Some(true)), (2, Some(true))], None, false).0, [0, 2]);
        // A block of late frames, and one that continues behind a higher one.
        let late = [(0, 10), (0, 3), (0, 4), (0, 11), (0, 12), (0, 20)];
        let begins = [(0, Some(false)), (1, Some(false)), (3, Some(false))];
        assert_eq!(gaps_of(&rows(&late), &begins, None, false), (vec![5], Some((0, 20))));
        let only_late = [(0, 3), (0, 4), (0, 11)];
        assert_eq!(gaps_of(&rows(&only_late), &[(0, Some(false)), (2, Some(false))], None, false).0, [] as [u32; 0]);
        // Another session, and a stream whose reductions leave frames out.
        assert_eq!(gaps_of(&rows(&[(0, 9), (1, 0), (1, 5)]), &[(0, None)], None, false).0, [1, 2]);
        assert_eq!(gaps_of(&rows(&[(0, 9), (1, 0), (1, 5)]), &[(0, None)], None, true).0, [1]);
    }
}
