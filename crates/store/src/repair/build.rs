//! Writing a new store from the parts that were found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::OpenError;
use crate::append::Writer;
use crate::append::sequence::saved::SavedSequence;
use crate::append::stream_slot::SlotTable;
use crate::blob::ChunkHeader;
use crate::bytes::fields::Put;
use crate::bytes::{Cursor, RecordError};
use crate::catalog::group::Group;
use crate::catalog::{self, ShapeChange, ShapeHistory};
use crate::disk::layout::FIRST_PAGE;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_exact};
use crate::disk::{io_error, names};
use crate::log::checkpoint::{self, Checkpoint, Entries, Position, SealedRows};
use crate::log::superblock::{KNOWN_INCOMPATIBLE, Superblock, SuperblockFile};
use crate::log::{self as log_format, Link, LogPosition, LogWriter, Ring};
use crate::model::limits::SEGMENT_BYTES_MAX;
use crate::model::stream::{Clock, Layout, Stream, StreamId, StreamKey};
use crate::open::checkpoint::{States, apply_entry};
use crate::open::create;
use crate::segment::directory::{Segment, SegmentEntry, SegmentState, file_name};
use crate::segment::file::{SegmentFile, block_ref, invalid};
use crate::segment::{Beside, IndexEntry, SegmentHeader};
use crate::upkeep::lost::LostRows;

use super::log::{LogSpan, Unit};
use super::metadata::Metadata;
use super::segments::{Content, FoundSegment};
use super::source::Source;
use super::{LostByStream, RepairReport, STREAMS_MAX, log, segments};

/// Min bytes of the log of a new store.
const LOG_BYTES_MIN: u64 = 1 << 20;
/// Number of bytes copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes a new store from the readable parts of a source. With `copy`, the target is a folder of its own, and every
/// block is checked. Otherwise it lies over the source, which has the files already, and blocks are checked when they
/// are read.
pub(super) fn build(source: &Source, target: &Arc<dyn Disk>, copy: bool) -> Result<(RepairReport, Losses), OpenError> {
    let files = source.files();
    let path = files.path();
    let fails = |source| OpenError::Io { path: path.clone(), source };
    let mut report = RepairReport::default();
    let metadata = Metadata::read(source, &mut report).map_err(fails)?;
    report.newest_checkpoint = metadata.is_newest;
    let found = segments::find(source, &metadata, copy, &mut report).map_err(fails)?;
    let (units, missing) = log::units(source, metadata.superblock.as_ref(), &mut report).map_err(fails)?;
    if metadata.superblock.is_none() && found.is_empty() && units.is_empty() && metadata.positions.is_empty() {
        let reason = "nothing of a store can be read".to_owned();
        return Err(OpenError::Damaged { path, reason });
    }
    let mut new = NewStore {
        target: target.clone(),
        copy,
        entries: Vec::new(),
        writer: empty_writer(),
        undefined: BTreeSet::new(),
        next_segment: 1,
        segment_entries: Vec::new(),
    };
    new.define(&metadata, &found, &units, &mut report);
    new.next_segment = 1 + found
        .iter()
        .map(|f| f.id)
        .chain(metadata.segments.keys().copied())
        .chain(metadata.gone.iter().copied())
        .chain(metadata.superblock.map(|s| s.next_segment.saturating_sub(1)))
        .max()
        .unwrap_or(0);
    let write_fails = io_error(&**target, "");
    let rows = new.segments(found, &mut report).map_err(write_fails)?;
    let origin = metadata.superblock.map(|s| s.origin).or(rows.origin);
    let (positions, rows_lost) = positions(&new.writer, &metadata, &rows);
    let mut losses = Losses { rows: rows_lost, log: missing, files: BTreeSet::new() };
    let (positions, kept) = new.fit(positions, (&metadata, &rows.damaged), &units, &mut losses, &mut report);
    let lost = &losses.rows;
    report.log_commits = kept.len() as u64;
    let epoch = metadata.superblock.map_or(0, |s| s.epoch).max(rows.epoch);
    let epoch = units.iter().map(|unit| unit.header.epoch).fold(epoch, u32::max).max(1);
    // Drop the saved sequences of a stream that lost rows: a frame that is received again must be stored.
    new.entries.retain(|(kind, bytes)| {
        *kind != checkpoint::SEQUENCE
            || SavedSequence::decode(&mut Cursor::new(bytes)).is_ok_and(|saved| !lost.contains_key(&saved.stream))
    });
    new.finish(metadata.superblock, origin, epoch, &positions, kept).map_err(io_error(&**target, ""))?;
    if let Some((offset, reason)) = &source.missing_end {
        report.damaged(FIRST_PAGE, *offset, reason);
    }
    for (file, offset, why) in source.unreadable.take() {
        report.damaged(&file, offset, format!("cannot be read: {why}"));
    }
    if losses.rows.is_empty() {
        let segments = report.damage.iter().filter(|damage| damage.file.starts_with("segment-"));
        losses.files = segments.map(|damage| damage.file.clone()).collect();
    }
    Ok((report, losses))
}

/// What a store lacks, to be told in the new one.
#[derive(Default)]
pub(crate) struct Losses {
    pub(crate) rows: LostByStream,
    /// Damage of the log, whose frames cannot be counted.
    pub(crate) log: Vec<LogSpan>,
    /// Damaged segments, if no lost rows are known.
    pub(crate) files: BTreeSet<String>,
}

fn empty_writer() -> Writer {
    Writer::new(Arc::new(SlotTable::new(STREAMS_MAX)), STREAMS_MAX, Arc::new(AtomicU64::new(1)))
}

/// Streams' rows in the new segments.
#[derive(Default)]
struct RowsTaken {
    /// By stream, blocks in row order: the place of the segment, the block, and whether it kept its position.
    blocks: BTreeMap<u32, Vec<(u64, IndexEntry, bool)>>,
    /// Damaged blocks that their segment's footer describes, by stream.
    damaged: BTreeMap<u32, Vec<IndexEntry>>,
    epoch: u32,
    origin: Option<u128>,
}

struct NewStore {
    target: Arc<dyn Disk>,
    copy: bool,
    /// Entries of the new checkpoint: groups, streams, and other copied entries.
    entries: Vec<(u8, Vec<u8>)>,
    /// Writer with these entries applied.
    writer: Writer,
    /// Streams whose records in the log cannot be parsed, because their layout is not known.
    undefined: BTreeSet<u32>,
    next_segment: u64,
    /// Checkpoint entries of segments in the target.
    segment_entries: Vec<Vec<u8>>,
}

impl NewStore {
    /// Adds an entry that was made from what was found.
    fn put(&mut self, kind: u8, bytes: Vec<u8>) {
        if apply(&mut self.writer, kind, &mut Cursor::new(&bytes)).is_ok() {
            self.entries.push((kind, bytes));
        }
    }

    /// Defines groups and streams from the checkpoint, then from the log, and the rest from footers. Entries of the
    /// checkpoint that do not fit are left out and reported.
    fn define(&mut self, metadata: &Metadata, found: &[FoundSegment], units: &[Unit], report: &mut RepairReport) {
        for entry in &metadata.entries {
            match apply(&mut self.writer, entry.kind, &mut entry.reader()) {
                Ok(()) => self.entries.push((entry.kind, entry.bytes.clone())),
                Err(why) => entry.left_out(&why, report),
            }
        }
        for name in found.iter().filter_map(|f| f.header.as_ref().map(|header| header.group.as_str())) {
            if self.group(name).is_none() {
                let (kind, name) = name.strip_prefix("run ").map_or((1, name), |run| (2, run));
                let mut record = Put::default();
                record.u16(self.groups());
                record.u8(kind);
                record.u8(0);
                record.text(name);
                self.put(checkpoint::GROUP, record.0);
            }
        }
        // Streams that the log defines keep exactly that definition.
        let mut with_log = empty_writer();
        apply_all(&mut with_log, &self.entries);
        for unit in units {
            log::fit(&mut with_log, unit, &BTreeSet::new(), &mut Vec::new());
        }
        let mut newest: BTreeMap<u32, (&Stream, Group)> = BTreeMap::new();
        for segment in found {
            let Content::Rows { streams, blocks, .. } = &segment.content else { continue };
            let group = self.group_of(segment);
            for stream in streams {
                let known = newest.entry(stream.id.0).or_insert((stream, group));
                if known.0.layout.version < stream.layout.version {
                    *known = (stream, group);
                }
            }
            // Streams of which only blocks are left.
            self.undefined.extend(blocks.iter().map(|block| block.header.stream.0));
        }
        let most = self.undefined.iter().chain(newest.keys()).max().map_or(0, |id| id + 1);
        self.undefined.clear();
        for id in 0..most {
            let known = with_log.streams.get(id).map(|s| (s.slot.stream.load_full(), s.history.clone()));
            match (newest.get(&id), known) {
                (Some((stream, _)), Some((known, history))) if known.layout.version < stream.layout.version => {
                    let group = with_log.streams[id].slot.group;
                    self.define_as(stream, grown(&history, &known.layout, &stream.layout), group);
                }
                (Some((stream, group)), None) => {
                    let mut history = grown(&ShapeHistory::default(), &Layout::of_types(&[]), &stream.layout);
                    history.sequenced_from = stream.sequence_modulus.map(|_| 1);
                    self.define_as(stream, history, *group);
                }
                (None, None) => {
                    let stream = Stream {
                        id: StreamId(id),
                        key: StreamKey::new("lost", [("stream".to_owned(), id.to_string())]),
                        source: "repair".to_owned(),
                        clock: Clock::Receive,
                        expected_period_ns: None,
                        sequence_modulus: None,
                        layout: Arc::new(Layout::of_types(&[])),
                    };
                    self.define_as(&stream, ShapeHistory { serial: 1, ..ShapeHistory::default() }, Group::DATA);
                }
                // A definition that is only in the log is restored with it, unless later streams have no other
                // definition.
                (_, Some((known, history))) if id >= self.writer.streams.len() => {
                    let group = with_log.streams[id].slot.group;
                    let record = catalog::encode_stream(&known, &history, group);
                    self.put(checkpoint::STREAM, record);
                }
                (_, Some(_)) => {}
            }
        }
    }

    fn define_as(&mut self, stream: &Stream, history: ShapeHistory, group: Group) {
        self.undefined.insert(stream.id.0);
        let record = catalog::encode_stream(stream, &history, group);
        self.put(checkpoint::STREAM, record);
    }

    fn groups(&self) -> u16 {
        (0..=u16::MAX).find(|n| !self.writer.groups.has(Group(*n))).unwrap_or(u16::MAX)
    }

    fn group(&self, name: &str) -> Option<Group> {
        (0..self.groups()).map(Group).find(|group| self.writer.groups.name(*group) == name)
    }

    fn group_of(&self, segment: &FoundSegment) -> Group {
        let by_name = segment.header.as_ref().and_then(|header| self.group(&header.group));
        let by_entry = segment.entry.as_ref().map(|entry| entry.group).filter(|group| self.writer.groups.has(*group));
        by_entry.or(by_name).unwrap_or(Group::DATA)
    }

    /// Copies or rebuilds segments.
    fn segments(&mut self, found: Vec<FoundSegment>, report: &mut RepairReport) -> io::Result<RowsTaken> {
        let mut rows = RowsTaken::default();
        for segment in found {
            rows.origin = rows.origin.or(segment.header.as_ref().map(|header| header.origin));
            for block in &segment.damaged {
                rows.damaged.entry(block.header.stream.0).or_default().push(block.clone());
            }
            let group = self.group_of(&segment);
            let taken = match &segment.content {
                Content::Blobs { .. } => self.take_blobs(&segment, group)?,
                Content::Rows { blocks, .. } if blocks.is_empty() => {
                    report.segments_lost += 1;
                    continue;
                }
                Content::Rows { as_it_is: true, .. } => {
                    report.segments_kept += 1;
                    self.take_whole(&segment, group)?
                }
                Content::Rows { .. } => {
                    report.segments_rebuilt += 1;
                    self.rebuild(&segment, group, report)?
                }
            };
            if matches!(segment.content, Content::Blobs { .. }) {
                report.segments_kept += 1;
            }
            self.segment_entries.push(taken.segment.encode());
            for block in taken.blocks {
                report.rows += block.header.rows as u64;
                rows.epoch = rows.epoch.max(block.header.epoch);
                let of = rows.blocks.entry(block.header.stream.0).or_default();
                of.push((segment.places.1, block, taken.in_place));
            }
        }
        for blocks in rows.blocks.values_mut() {
            blocks.sort_by_key(|(_, block, _)| block.header.first_row);
        }
        Ok(rows)
    }

    fn segment(&self, (id, places): (u64, (u64, u64)), group: Group, state: SegmentState) -> Segment {
        Segment::standing_for(places, self.target.clone(), id, group, state)
    }

    /// Ensures that the first `bytes` of a segment are in the target.
    fn copy(&self, segment: &FoundSegment, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let name = segment.name();
        if !self.copy {
            let file = self.target.open(&name, Access::Buffered)?;
            if file.size()? != bytes {
                file.truncate(bytes)?;
            }
            return Ok(file);
        }
        let file = self.target.create(&name, 0, Access::Buffered)?;
        let mut at = 0;
        while at < bytes {
            let len = PIECE_BYTES.min(bytes - at);
            file.write_at(&Pages::of(&read_exact(&*segment.file, at, len as usize)?), at)?;
            at += len;
        }
        file.truncate(bytes)?;
        file.sync()?;
        Ok(file)
    }

    /// Copies a sealed segment unchanged.
    fn take_whole(&self, segment: &FoundSegment, group: Group) -> io::Result<TargetSegment> {
        let Content::Rows { blocks, .. } = &segment.content else { return Err(io::ErrorKind::InvalidInput.into()) };
        let entry = segment.entry.as_ref();
        // Truncate a file that is longer than what was written.
        let bytes = entry.filter(|entry| entry.state.sealed && entry.slot.is_none()).map(|entry| entry.state.bytes);
        let bytes = bytes.unwrap_or(segment.size).min(segment.size);
        self.copy(segment, bytes)?;
        let mut state = state_of(blocks, bytes);
        state.points = entry.map_or(0, |entry| entry.state.points);
        state.left = entry.is_some_and(|entry| entry.state.left);
        state.stored = aged_as(entry, state.stored);
        let of = self.segment((segment.id, segment.places), group, state);
        Ok(TargetSegment { segment: of, blocks: blocks.clone(), in_place: true })
    }

    /// Builds a segment of the intact blocks, with a new number that replaces the old one; positions in the old one,
    /// recorded in other segments, do not apply to it.
    fn rebuild(
        &mut self,
        segment: &FoundSegment,
        group: Group,
        report: &mut RepairReport,
    ) -> io::Result<TargetSegment> {
        let Content::Rows { blocks, streams, .. } = &segment.content else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let id = self.next_segment;
        self.next_segment += 1;
        self.target.create(&file_name(id), 0, Access::Buffered)?;
        let of = Arc::new(self.segment((id, segment.places), group, SegmentState::default()));
        let header = SegmentHeader {
            origin: blocks.first().map_or(0, |block| block.header.origin),
            id,
            generation: id,
            size_bytes: SEGMENT_BYTES_MAX,
            created: segment.header.as_ref().map_or(0, |header| header.created),
            group: self.writer.groups.name(group),
            blobs: false,
        };
        let mut file = SegmentFile::create(of.clone(), header, 0)?;
        let own: HashMap<u32, &Stream> = streams.iter().map(|stream| (stream.id.0, stream)).collect();
        let mut taken = Vec::new();
        for parts in blocks.chunk_by(|a, b| a.offset == b.offset) {
            let bytes = read_exact(&*segment.file, parts[0].offset, parts[0].length_bytes)?;
            let definition = |block: &IndexEntry| {
                let known = || self.writer.streams.get(block.header.stream.0).map(|s| s.slot.stream.load_full());
                own.get(&block.header.stream.0).map(|stream| Arc::new((*stream).clone())).or_else(known)
            };
            let streams: Vec<Arc<Stream>> = parts.iter().filter_map(definition).collect();
            match file.put(&bytes, &streams, 0) {
                Ok(()) => taken.extend(parts.iter().cloned()),
                Err(error) => report.damaged(&segment.name(), parts[0].offset, error),
            }
        }
        file.flush()?;
        let places = Some(segment.places);
        file.finish(Beside { places, ..Beside::default() })?;
        let mut state = *of.state.lock();
        state.stored = aged_as(segment.entry.as_ref(), state.stored);
        Ok(TargetSegment { segment: self.segment((id, segment.places), group, state), blocks: taken, in_place: false })
    }

    /// Copies a segment of blobs up to its last chunk; it is no longer written to.
    fn take_blobs(&self, segment: &FoundSegment, group: Group) -> io::Result<TargetSegment> {
        let Content::Blobs { end, blobs, stored, generation } = segment.content else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let entry = segment.entry.as_ref().filter(|entry| entry.state.sealed).map(|entry| entry.state);
        let bytes = entry.map_or(end, |state| state.bytes).min(segment.size).max(PAGE_BYTES as u64);
        let file = self.copy(segment, bytes)?;
        let whole_header = segment.header.is_some();
        if generation != segment.id || !whole_header {
            let header = SegmentHeader {
                origin: segment.header.as_ref().map_or(0, |header| header.origin),
                id: segment.id,
                generation: segment.id,
                size_bytes: SEGMENT_BYTES_MAX,
                created: segment.header.as_ref().map_or(0, |header| header.created),
                group: self.writer.groups.name(group),
                blobs: true,
            };
            file.write_at(&Pages::of(&header.page().map_err(invalid)?), 0)?;
            let mut at = PAGE_BYTES as u64;
            while at + PAGE_BYTES as u64 <= bytes {
                let mut page = read_exact(&*file, at, PAGE_BYTES)?;
                match ChunkHeader::read(&page) {
                    Ok(chunk) if chunk.is_at(at, (segment.id, generation)) => {
                        let header = ChunkHeader { generation: segment.id, ..chunk }.bytes();
                        page[..header.len()].copy_from_slice(&header);
                        file.write_at(&Pages::of(&page), at)?;
                        at += chunk.padded_bytes();
                    }
                    _ => at += PAGE_BYTES as u64,
                }
            }
        }
        file.sync()?;
        let state = SegmentState {
            sealed: true,
            left: entry.is_none_or(|state| state.left),
            bytes,
            blocks: entry.map_or(blobs, |state| state.blocks),
            stored: entry.map_or(stored, |state| state.stored),
            ..SegmentState::default()
        };
        let of = self.segment((segment.id, segment.places), group, state).of_blobs();
        Ok(TargetSegment { segment: of, blocks: Vec::new(), in_place: true })
    }

    /// Chooses the parts of the log to keep, and the position from which each stream continues without it. Rows in
    /// the log that were in a lost block are restored.
    fn fit(
        &self,
        positions: Vec<Position>,
        (metadata, damaged): (&Metadata, &BTreeMap<u32, Vec<IndexEntry>>),
        units: &[Unit],
        losses: &mut Losses,
        report: &mut RepairReport,
    ) -> (Vec<Position>, Vec<(log_format::UnitHeader, Vec<u8>)>) {
        let mut writer = empty_writer();
        apply_all(&mut writer, &self.entries);
        for position in &positions {
            writer.streams.set_sealed(position.stream, position.first_row);
            if let Some(stream) = writer.streams.get(position.stream) {
                stream.slot.sealed.store(Arc::new(position.sealed.clone()));
            }
        }
        let (mut kept, mut passed) = (Vec::new(), Vec::new());
        let mut unfit = Unfit::default();
        for unit in units {
            let fits = log::fit(&mut writer, unit, &self.undefined, &mut passed);
            unfit.note(unit, fits);
            if fits > 0 {
                kept.push((unit.header, unit.records[..fits].to_vec()));
            }
        }
        unfit.tell(report, &mut losses.log);
        let lost = &mut losses.rows;
        let mut tails: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for LostRows { stream, rows, time } in passed {
            tails.entry(stream).or_default().push((rows, time));
        }
        let mut out = Vec::new();
        for mut position in positions {
            let id = position.stream;
            let back = writer.streams.get(id).is_some_and(|s| s.next_row > position.first_row);
            let before = metadata.positions.get(&id);
            let ends = before.map_or(0, |before| before.first_row);
            // Without a checkpoint the footers know of blocks behind the last one that is left.
            let behind = damaged.get(&id).into_iter().flatten().max_by_key(|block| block.header.next_row());
            if let (false, None, Some(block)) = (back, before, behind)
                && block.header.next_row() > position.first_row
            {
                let from = block.header.first_row.max(position.first_row);
                lost.entry(id).or_default().push((from..block.header.next_row(), block.header.time));
                position.first_row = block.header.next_row();
            }
            if !back && ends > position.first_row {
                let from = match position.sealed.newest_segment {
                    // Nothing is left: the rows were in segments that no checkpoint lists any more, so they were
                    // dropped.
                    0 => before
                        .filter(|b| b.sealed.newest_segment > 0 && is_listed(metadata, b.sealed.newest_segment))
                        .map_or(ends, |before| before.sealed.newest_first_row),
                    _ => position.first_row,
                };
                let time = (position.sealed.time.1, before.map_or(i64::MIN, |before| before.sealed.time.1));
                if from < ends {
                    lost.entry(id).or_default().push((from..ends, (time.0.min(time.1), time.1)));
                }
                position.first_row = ends;
            }
            lost.entry(id).or_default().extend(tails.remove(&id).unwrap_or_default());
            out.push(position);
        }
        lost.retain(|_, ranges| !ranges.is_empty());
        (out, kept)
    }

    /// Writes log, checkpoint and, last, the superblock.
    fn finish(
        &self,
        superblock: Option<Superblock>,
        origin: Option<u128>,
        epoch: u32,
        positions: &[Position],
        kept: Vec<(log_format::UnitHeader, Vec<u8>)>,
    ) -> io::Result<()> {
        let disk = &*self.target;
        let needed: u64 = kept.iter().map(|(_, records)| log_format::unit_bytes(records.len())).sum();
        let log_bytes = superblock.map_or(0, |s| s.log_bytes).max(needed + LOG_BYTES_MIN).next_multiple_of(1 << 20);
        let file = create::make_log(disk, log_bytes, self.copy)?;
        let before = kept.first().map_or(0, |(header, _)| header.commit - 1);
        let tail = Link { position: LogPosition::default(), commit: before, chain: 0, epoch };
        let mut log = LogWriter::new(Arc::new(Ring { file, size_bytes: log_bytes }), tail);
        for (header, records) in kept {
            let words: Vec<u64> = records.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            log.write_unit(&words, epoch, 0, header.instant)?;
        }
        let mut entries = Entries::default();
        let mut put = |wanted: &dyn Fn(u8) -> bool| {
            self.entries.iter().filter(|(kind, _)| wanted(*kind)).for_each(|(kind, bytes)| entries.put(*kind, bytes));
        };
        put(&|kind| kind == checkpoint::GROUP);
        put(&|kind| !matches!(kind, checkpoint::GROUP | checkpoint::SEQUENCE));
        positions.iter().for_each(|position| entries.put(checkpoint::POSITION, &position.encode()));
        // A position resets the sequences of its stream, so the saved sequences follow it.
        let sequences = self.entries.iter().filter(|(kind, _)| *kind == checkpoint::SEQUENCE);
        sequences.for_each(|(kind, bytes)| entries.put(*kind, bytes));
        self.segment_entries.iter().for_each(|entry| entries.put(checkpoint::SEGMENT, entry));
        let mut checkpoint = Checkpoint::default();
        checkpoint.write(disk, true, &entries)?;
        disk.sync()?;
        let first = Superblock {
            epoch,
            origin: match origin {
                Some(origin) => origin,
                None => disk.random()?,
            },
            log_bytes,
            tail,
            checkpoint_file: checkpoint.number,
            checkpoint_bytes: checkpoint.bytes,
            checkpoint_chain: checkpoint.chain,
            next_segment: self.next_segment,
            generation: 0,
            // Without a superblock it is not known which of them what was found needs.
            incompatible: superblock.map_or(KNOWN_INCOMPATIBLE, |found| found.incompatible),
            ..superblock.unwrap_or_default()
        };
        SuperblockFile::create(disk, first)?;
        disk.sync()
    }
}

/// Records of the log that are left out, as they do not fit the definitions that are left.
#[derive(Default)]
struct Unfit {
    /// Number of commits with such records.
    commits: u64,
    bytes: usize,
    /// Offset of the first of these records within its unit, and the number of its commit.
    first: Option<(usize, u64)>,
    /// Instants of the commit before the first of these, and of the last one.
    span: LogSpan,
    /// Instant of the commit that was noted last.
    before: Option<i64>,
}

impl Unfit {
    /// Adds what is left out of a unit: all but the first `fits` bytes of its records.
    fn note(&mut self, unit: &Unit, fits: usize) {
        if fits < unit.records.len() {
            self.commits += 1;
            self.bytes += unit.records.len() - fits;
            if self.first.is_none() {
                self.first = Some((fits, unit.header.commit));
                self.span.0 = self.before;
            }
            self.span.1 = Some(unit.header.instant);
        }
        self.before = Some(unit.header.instant);
    }

    /// Reports them as damage of the log.
    fn tell(self, report: &mut RepairReport, spans: &mut Vec<LogSpan>) {
        let Unfit { commits, bytes, first: Some((at, commit)), span, .. } = self else { return };
        let reason = format!(
            "{bytes} bytes of {commits} commits are lost, from byte {at} of commit {commit} on: what defines their \
             streams is damaged or missing"
        );
        report.damaged(names::LOG, 0, reason);
        spans.push(span);
    }
}

/// Segment in the target.
struct TargetSegment {
    segment: Segment,
    blocks: Vec<IndexEntry>,
    /// Whether blocks kept their positions.
    in_place: bool,
}

fn apply(writer: &mut Writer, kind: u8, t: &mut Cursor<'_>) -> Result<(), RecordError> {
    apply_entry(writer, &mut States::new(), &mut Vec::new(), kind, t)
}

fn apply_all(writer: &mut Writer, entries: &[(u8, Vec<u8>)]) {
    for (kind, bytes) in entries {
        // Entries that did not apply were never added.
        let _ = apply(writer, *kind, &mut Cursor::new(bytes));
    }
}

/// Returns whether a segment of the checkpoint has or replaces a number.
fn is_listed(metadata: &Metadata, number: u64) -> bool {
    metadata.segments.values().any(|entry| (entry.places.0..=entry.places.1).contains(&number))
}

/// Extends a history by the changes from one layout to another.
fn grown(history: &ShapeHistory, before: &Layout, after: &Layout) -> ShapeHistory {
    let mut history = history.clone();
    (history.newest, history.serial) = (history.newest.saturating_add(1), history.serial.saturating_add(1));
    for (index, channel) in after.channels.iter().enumerate() {
        if before.channels.get(index).is_none_or(|known| known.channel_type != channel.channel_type) {
            let (channel, shape, kind) = (index as u16, history.newest, channel.channel_type);
            history.changes.push(ShapeChange { channel, shape, kind });
        }
    }
    history
}

/// Returns when the contents of a segment were stored, according to its blocks, but no earlier than the checkpoint
/// has it, which accounts for leaps of the clock.
fn aged_as(entry: Option<&SegmentEntry>, stored: (i64, i64)) -> (i64, i64) {
    match entry {
        Some(entry) if entry.state.stored.1 > stored.1 => (stored.0, entry.state.stored.1),
        _ => stored,
    }
}

fn state_of(blocks: &[IndexEntry], bytes: u64) -> SegmentState {
    let join = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
    let none = (i64::MAX, i64::MIN);
    SegmentState {
        sealed: true,
        bytes,
        blocks: blocks.chunk_by(|a, b| a.offset == b.offset).count() as u64,
        time: blocks.iter().fold(none, |all, block| join(all, block.header.time)),
        stored: blocks.iter().fold(none, |all, block| join(all, block.header.stored)),
        ..SegmentState::default()
    }
}

/// Returns the position at which each stream continues behind its last row in a segment, and the rows lost between
/// those that are left.
fn positions(writer: &Writer, metadata: &Metadata, rows: &RowsTaken) -> (Vec<Position>, LostByStream) {
    let (mut positions, mut lost) = (Vec::new(), LostByStream::new());
    for (id, stream) in writer.streams.iter() {
        let blocks = rows.blocks.get(&id).map_or(&[][..], Vec::as_slice);
        let mut sealed = SealedRows::default();
        let channels = stream.slot.stream.load().layout.channels.len();
        let mut before: Option<&IndexEntry> = None;
        for (place, block, in_place) in blocks {
            if let Some(before) = before.filter(|before| before.header.next_row() < block.header.first_row) {
                let missing = before.header.next_row()..block.header.first_row;
                lost.entry(id).or_default().push((missing, (before.header.time.1, block.header.time.0)));
            }
            sealed.add(&block_ref(block), *place, std::iter::repeat_n(true, channels));
            if !in_place {
                sealed.last = None;
            }
            before = Some(block);
        }
        // Damaged blocks before the first one that is left; those between others are lost as above.
        let first = blocks.first().map_or(0, |(_, block, _)| block.header.first_row);
        for block in rows.damaged.get(&id).into_iter().flatten() {
            let missing = block.header.first_row..block.header.next_row().min(first);
            if missing.start < missing.end {
                lost.entry(id).or_default().push((missing, block.header.time));
            }
        }
        let known = metadata.positions.get(&id);
        let first_row = match before {
            Some(block) => block.header.next_row(),
            None => known.map_or(0, |known| match is_listed(metadata, known.sealed.newest_segment) {
                true => known.sealed.newest_first_row,
                false => known.first_row,
            }),
        };
        if let (None, Some(known)) = (before, known) {
            sealed.time = known.sealed.time;
        }
        positions.push(Position { stream: id, first_row, sequence: known.and_then(|known| known.sequence), sealed });
    }
    (positions, lost)
}
