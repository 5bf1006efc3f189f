//! Opening: from what the disk holds to a store that accepts frames.
//!
//! [`open`] goes through these steps in order. A row without "refused" never keeps a store from opening.
//!
//! | step | found | done |
//! |---|---|---|
//! | [`find_superblock`] | no superblock; at most `log` and `lock` in the folder | a new store: [`create::create`] |
//! | | no superblock, but other files | refused; with segments or checkpoints among them, `store repair` is named |
//! | | a superblock whose identity is not the folder's | refused: a copy needs `store adopt` |
//! | [`open_ring`] | no log, or one shorter than its ring | refused; `store repair` is named |
//! | [`read_checkpoint`] | the newest checkpoint is missing or damaged | refused; `store repair` is named |
//! | [`Recovery::take_lost`] | a sealed segment whose file is missing or cut | gaps, for rows that the log lacks |
//! | [`Recovery::take_back`] | a segment that was reported as lost, and is there again | used again |
//! | [`Recovery::resume_blobs`] | an open segment of blobs | continued after its last chunk; expires without one |
//! | [`Recovery::resume_rows`] | an open segment of rows | kept up to its last whole group, synced, continued |
//! | | an open segment of rows that cannot be continued; one without a block | finished; expired |
//! | [`replay`] | units of the log that follow one another | their definitions and frames are restored |
//! | | the first unit that does not follow | the log ends there; a gap: `torn`, or `damaged` if later units are lost |
//! | | a whole unit whose record does not fit | refused |
//! | | a lost copy of the superblock, and a log that was written over since | refused |
//! | [`Recovery::lose_rest`] | rows that were expected from the log and did not come | gaps |
//! | [`Recovery::find_rest`] | the hashes of recent frames are damaged | forgotten, and reported |
//! | [`Recovery::begin_epoch`] | always | a new epoch, durable in the superblock before the first append |
//! | [`Recovery::tell_losses`] | losses of all the steps before | rows of `strongback.gaps`, with the first commit |
//! | [`Recovery::remove_dropped`] | files of expired or unfinished segments | removed before a checkpoint omits them |

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::ledger::{Gap, GapCause};
use crate::append::pending_unit::{held_room, reserve_bytes};
use crate::append::recent;
use crate::append::recent_file;
use crate::append::stream_slot::OpenRows;
use crate::append::{StreamWriter, Writer};
use crate::blob::{BlobFile, ResumedBlobs};
use crate::catalog::group::Group;
use crate::disk::names;
use crate::disk::space::Space;
use crate::disk::{Access, Disk, PAGE_BYTES, forget_cached, io_error};
use crate::log::checkpoint::{Checkpoint, SealedRows};
use crate::log::record::{self, Control};
use crate::log::superblock::{CLOCKS_STATED, Superblock, SuperblockFile};
use crate::log::{self, Link, LogWriter, Ring};
use crate::model::counts::RecoveryReport;
use crate::model::damage::Damage;
use crate::model::limits::ROWS_MAX;
use crate::model::mutant::{self, Mutant};
use crate::model::options::{RetentionGroup, StoreOptions};
use crate::model::reduction::Reduction;
use crate::model::refusal::{OpenError, repair_hint};
use crate::model::stream::StreamId;
use crate::model::trouble::is_full;
use crate::open::checkpoint::{missing, read_checkpoint};
use crate::open::create;
use crate::open::missing::FileSizes;
use crate::open::replay::{LogDamage, pass_lost, replay};
use crate::segment::directory::{BlockRef, Segment, SegmentEntry, file_name, remove_segment};
use crate::segment::file::SegmentFile;
use crate::segment::{Beside, SegmentHeader};
use crate::upkeep::expiry::find_spare;
use crate::upkeep::lost::{LostRows, forget_blocks, gap_of, gap_of_rows};
use crate::upkeep::sealer::{Spare, Untold};
use crate::upkeep::turnover::last_blocks_max;

/// An opened store.
pub(crate) struct Opened {
    pub(crate) superblock: SuperblockFile,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Segments whose entry in the checkpoint is out of date.
    pub(crate) changed_segments: Vec<Arc<Segment>>,
    /// Segments without a block, which the checkpoint still lists.
    pub(crate) expired: Vec<u64>,
    /// Open segments of rows, to be continued or finished.
    pub(crate) open: BTreeMap<Group, SegmentFile>,
    /// Open segments of blobs, to be continued.
    pub(crate) blobs: Vec<BlobFile>,
    /// File that was allocated for the next segment.
    pub(crate) spare: Option<Spare>,
    pub(crate) log: LogWriter,
    /// Instant of the last commit.
    pub(crate) last_commit: Option<i64>,
    /// Number of the last commit that was found.
    pub(crate) found_commit: u64,
    /// Start of each unit of the log.
    pub(crate) links: VecDeque<Link>,
    pub(crate) report: RecoveryReport,
    pub(crate) log_damage: LogDamage,
    /// Sealed segments whose files are missing or cut, and whose gaps are to be reported.
    pub(crate) untold: Untold,
}

/// Opens the store of a locked folder, or creates it.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    options: &StoreOptions,
    space: &Space,
    writer: &mut Writer,
    now: i64,
) -> Result<Opened, OpenError> {
    let invalid = |reason| OpenError::Options { path: disk.path(), reason };
    RetentionGroup::check_all(&options.retention).map_err(invalid)?;
    let superblock = find_superblock(disk, options, space)?;
    space.check(options, superblock.now.log_bytes).map_err(invalid)?;
    let ring = open_ring(&**disk, &superblock.now)?;
    writer.set_sizes(ring.size_bytes, space);
    writer.streams.set_hash_key(recent::hash_key(superblock.now.origin));
    let (mut checkpoint, entries, dropped) = read_checkpoint(&**disk, &superblock.now, writer)?;
    checkpoint.room = space.fixed.map(|fixed| fixed.checkpoint_bytes);
    let mut recovery = Recovery::new(disk, space, writer, superblock, &ring, checkpoint, now);
    let sizes = FileSizes::of(&**disk).map_err(io_error(&**disk, ""))?;
    for (id, entry) in entries {
        recovery.take_segment(id, entry, &sizes)?;
    }
    let tail = recovery.opened.superblock.now.tail;
    let Recovery { writer, opened, lost, .. } = &mut recovery;
    let link = replay(&**disk, &ring, tail, writer, opened, lost, now)?;
    recovery.lose_rest();
    recovery.find_rest(link)?;
    recovery.begin_epoch(&ring, link, options)?;
    if mutant::is_active(Mutant::TellDamageLate) {
        recovery.tell_damage();
    }
    recovery.tell_untold();
    recovery.remove_dropped(&dropped)?;
    Ok(recovery.finish())
}

/// Finds the superblock of the store, or creates a store if there is none.
fn find_superblock(disk: &Arc<dyn Disk>, options: &StoreOptions, space: &Space) -> Result<SuperblockFile, OpenError> {
    let file = match disk.open(names::SUPERBLOCK, Access::Log) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return make(&**disk, options, space),
        Err(error) => return Err(io_error(&**disk, names::SUPERBLOCK)(error)),
    };
    let disk = &**disk;
    // A killed process may have left data in the cache that a failed sync did not write: an opening must read from the
    // disk.
    if disk.layout().is_some() && !mutant::is_active(Mutant::KeepCached) {
        disk.forget_cached();
    }
    forget_cached(&*file);
    let now = Superblock::read(disk, &*file)?;
    let identity = disk.identity(names::SUPERBLOCK).map_err(io_error(disk, names::SUPERBLOCK))?;
    if identity != now.identity {
        return Err(OpenError::Copied { path: disk.path(), origin: now.origin });
    }
    // Files created before a sync of the folder that failed, or never happened, are visible and not durable: data
    // written into them would vanish with their names.
    disk.sync().map_err(io_error(disk, ""))?;
    Ok(SuperblockFile { file, now })
}

/// Creates a store, if nothing else is in the folder.
fn make(disk: &dyn Disk, options: &StoreOptions, space: &Space) -> Result<SuperblockFile, OpenError> {
    // `log` and `lock` alone: creation was cut short. Anything else must not be overwritten.
    let files = disk.list().map_err(io_error(disk, ""))?;
    if let Some((name, _)) = files.iter().find(|(n, _)| n != names::LOG && n != "lock") {
        let path = disk.path();
        let was_store =
            files.iter().any(|(n, _)| n.starts_with("segment-") || names::CHECKPOINTS.contains(&n.as_str()));
        let hint = if was_store { repair_hint(&path) } else { "not a store; give an empty folder".to_owned() };
        return Err(OpenError::Damaged { path, reason: format!("holds {name} but no superblock: {hint}") });
    }
    let invalid = |reason| OpenError::Options { path: disk.path(), reason };
    space.check(options, options.log_bytes).map_err(invalid)?;
    let log_bytes = options.log_bytes.clamp(1 << 20, 1 << 36).next_multiple_of(PAGE_BYTES as u64);
    create::create(disk, log_bytes)
}

/// Opens the log that the superblock describes.
fn open_ring(disk: &dyn Disk, superblock: &Superblock) -> Result<Arc<Ring>, OpenError> {
    let file = disk.open(names::LOG, Access::Log).map_err(missing(disk, names::LOG))?;
    forget_cached(&*file);
    let size_bytes = superblock.log_bytes;
    if file.size().map_err(io_error(disk, names::LOG))? < size_bytes {
        return Err(OpenError::Damaged {
            path: format!("{}/{}", disk.path(), names::LOG),
            reason: format!("shorter than its {size_bytes} bytes; {}", repair_hint(&disk.path())),
        });
    }
    Ok(Arc::new(Ring { file, size_bytes }))
}

/// State of an opening under way.
struct Recovery<'a> {
    disk: &'a Arc<dyn Disk>,
    space: &'a Space,
    writer: &'a mut Writer,
    opened: Opened,
    /// Rows that are known to be lost.
    lost: Vec<LostRows>,
    /// Rows that segments have lost and that the log may still have.
    awaited: Vec<LostRows>,
    now: i64,
}

impl<'a> Recovery<'a> {
    fn new(
        disk: &'a Arc<dyn Disk>,
        space: &'a Space,
        writer: &'a mut Writer,
        superblock: SuperblockFile,
        ring: &Arc<Ring>,
        checkpoint: Checkpoint,
        now: i64,
    ) -> Self {
        let (epoch, tail) = (superblock.now.epoch, superblock.now.tail);
        let opened = Opened {
            log: LogWriter::new(ring.clone(), tail),
            last_commit: None,
            found_commit: 0,
            links: VecDeque::from([tail]),
            checkpoint,
            segments: Vec::new(),
            changed_segments: Vec::new(),
            expired: Vec::new(),
            open: BTreeMap::new(),
            blobs: Vec::new(),
            spare: None,
            // False until a unit says otherwise: the tail never passes the unit of a clean end.
            report: RecoveryReport { clean: epoch == 0, ..RecoveryReport::default() },
            log_damage: LogDamage::default(),
            untold: Untold::default(),
            superblock,
        };
        Recovery { disk, space, writer, opened, lost: Vec::new(), awaited: Vec::new(), now }
    }

    /// Takes in a segment of the checkpoint.
    fn take_segment(&mut self, id: u64, entry: SegmentEntry, sizes: &FileSizes) -> Result<(), OpenError> {
        let missing = if entry.state.sealed { sizes.check(&entry) } else { None };
        let SegmentEntry { places, group, blobs, state, slot, .. } = entry;
        if let Some(slot) = slot
            && !self.disk.put_into_slot(&file_name(id), slot)
        {
            let reason = format!("the checkpoint has segment {id} in slot {slot}, which cannot be");
            return Err(OpenError::Damaged { path: self.disk.path(), reason });
        }
        let segment = Segment::standing_for(places, self.disk.clone(), id, group, state);
        let segment = if blobs { segment.of_blobs() } else { segment };
        if let Some(damage) = missing {
            self.take_lost(segment, damage, state.told_lost);
            return Ok(());
        }
        let segment = Arc::new(segment);
        if state.told_lost {
            self.take_back(&segment);
        }
        let is_kept = match (state.sealed, blobs) {
            (true, _) => true,
            (false, true) => self.resume_blobs(&segment)?,
            (false, false) => self.resume_rows(&segment)?,
        };
        match is_kept {
            true => self.opened.segments.push(segment),
            false => self.opened.expired.push(id),
        }
        Ok(())
    }

    /// Takes in a sealed segment whose file is missing or too short.
    fn take_lost(&mut self, segment: Segment, damage: Damage, is_told: bool) {
        self.opened.report.damaged.push(damage);
        let segment = Arc::new(segment.lost());
        let rows = forget_blocks(self.writer, &segment);
        // Compaction has nothing to look for in it.
        segment.state.lock().left = true;
        if !is_told {
            self.await_rows(rows);
            self.opened.untold.segments.push(segment.clone());
        }
        self.opened.segments.push(segment);
    }

    /// Takes back a segment that was reported as lost: its file was put back.
    fn take_back(&mut self, segment: &Arc<Segment>) {
        segment.state.lock().told_lost = false;
        self.opened.changed_segments.push(segment.clone());
    }

    /// Resumes a segment of blobs that was open. Returns false if it has no chunk.
    fn resume_blobs(&mut self, segment: &Arc<Segment>) -> Result<bool, OpenError> {
        let header = SegmentHeader {
            origin: self.opened.superblock.now.origin,
            id: segment.id,
            generation: self.space.generation_of(segment.id),
            size_bytes: self.space.segment_bytes,
            created: self.now,
            group: self.writer.groups.name(segment.group),
            blobs: true,
        };
        let resumed = BlobFile::resume(segment, &header);
        let ResumedBlobs { file, is_gone, damage } = resumed.map_err(io_error(&**self.disk, &file_name(segment.id)))?;
        self.opened.report.damaged.extend(damage);
        if !is_gone {
            self.opened.changed_segments.push(segment.clone());
            self.opened.blobs.extend(file);
        }
        Ok(!is_gone)
    }

    /// Resumes a segment of rows that was open. Returns false if it has no block.
    fn resume_rows(&mut self, segment: &Arc<Segment>) -> Result<bool, OpenError> {
        let name = file_name(segment.id);
        let failed = |error| io_error(&**self.disk, &name)(error);
        let reserved_bytes = self.space.fixed.map(|_| last_blocks_max(self.space.segment_bytes));
        let of_store = (self.opened.superblock.now.origin, self.space.generation_of(segment.id));
        let resumed = resume_open(segment, of_store, reserved_bytes, self.writer, &mut self.opened.report);
        let (resumed, missing) = resumed.map_err(failed)?;
        self.await_rows(missing);
        let Some(mut file) = resumed else { return Ok(false) };
        let group = segment.group;
        self.opened.changed_segments.push(segment.clone());
        // A killed process may have left blocks that only the cache holds. Sync them before anything else is written to
        // the file: a sync that finds no space for that would lose them too, and a second one would not report it.
        file.sync().map_err(failed)?;
        if file.goes_on() && !self.opened.open.contains_key(&group) {
            self.opened.open.insert(group, file);
            return Ok(true);
        }
        match file.finish(Beside::default()) {
            // The segment stays open, and is finished when space was freed for it.
            Err(error) if is_full(&error) && !self.opened.open.contains_key(&group) => {
                self.opened.open.insert(group, file);
            }
            done => done.map(drop).map_err(failed)?,
        }
        Ok(true)
    }

    /// Notes rows that segments have lost. Those that the log may bring back are lost only if it does not.
    fn await_rows(&mut self, rows: Vec<LostRows>) {
        for missing in rows {
            let to = if expect_again(self.writer, &missing) { &mut self.awaited } else { &mut self.lost };
            to.push(missing);
        }
    }

    /// Gives up the rows that the log did not bring back, also those that only a held frame tells of: its row would be
    /// the next. A record of one may precede rows of its unit, so what counts is what the log ends with.
    fn lose_rest(&mut self) {
        for missing in std::mem::take(&mut self.awaited) {
            if let Some(rows) = pass_lost(self.writer, missing.stream, missing.rows.end) {
                self.lost.push(LostRows { rows, ..missing });
            }
        }
        let ahead = |(id, stream): (u32, &StreamWriter)| {
            let held = stream.reducer.as_ref()?.held.as_ref()?;
            (stream.next_row < held.row && held.row < ROWS_MAX).then(|| (id, held.row, held.time()))
        };
        let held: Vec<(u32, u64, i64)> = self.writer.streams.iter().filter_map(ahead).collect();
        for (stream, row, to) in held {
            let from = self.writer.streams[stream].slot.last_time().unwrap_or(to);
            if let Some(rows) = pass_lost(self.writer, stream, row) {
                self.lost.push(LostRows { stream, rows, time: (from.min(to), to) });
            }
        }
    }

    /// Loads what is neither in the checkpoint nor in the log: hashes of recent frames, and the spare segment.
    fn find_rest(&mut self, link: Link) -> Result<(), OpenError> {
        let disk = &**self.disk;
        self.opened.found_commit = link.commit;
        let unread = recent_file::load(disk, link.commit, self.writer).map_err(io_error(disk, names::RECENT))?;
        self.opened.report.damaged.extend(unread);
        let next = self.opened.superblock.now.next_segment;
        let spare = find_spare(disk, next, self.space.segment_bytes, &mut self.opened.report.damaged);
        self.opened.spare = spare.map_err(io_error(disk, &file_name(next)))?;
        Ok(())
    }

    /// Begins a new epoch. It is durable in the superblock before the first append, so that no number is used twice,
    /// and in the log, so that nothing beyond the cut can follow any more. If the log is small, or full but for the
    /// room of held frames, its first commit does the latter: until then no row that this opening did not find is
    /// acknowledged, and what it found is made durable here.
    ///
    /// Rows of `strongback.gaps` that tell of damage are in the unit that begins the epoch: it may overwrite what is
    /// damaged, and then no other opening finds that again.
    fn begin_epoch(&mut self, ring: &Arc<Ring>, link: Link, options: &StoreOptions) -> Result<(), OpenError> {
        let disk = &**self.disk;
        let made = self.writer.groups.configure(&options.retention, self.space.max_bytes);
        let made = made.map_err(|reason| OpenError::Options { path: disk.path(), reason })?;
        self.writer.measure_catalog();
        // Groups are durable before the first stream that joins one.
        let mut records = Vec::new();
        for group in made {
            record::put_control(&mut records, Control::Group, &self.writer.groups.encode(group));
        }
        let superblock = self.opened.superblock.now;
        let epoch = superblock.epoch.max(link.epoch) + 1;
        let incompatible = superblock.incompatible | CLOCKS_STATED;
        let written = self.opened.superblock.write(Superblock { epoch, incompatible, ..superblock });
        written.map_err(io_error(disk, names::SUPERBLOCK))?;
        self.opened.log = LogWriter::new(ring.clone(), link);
        self.opened.report.epoch = epoch;
        self.writer.unit.begin(&link, superblock.tail.position, records);
        self.writer.gaps.begin(u64::from(epoch) << 32);
        if !mutant::is_active(Mutant::TellDamageLate) {
            self.tell_damage();
        }
        let reserve = reserve_bytes(ring.size_bytes);
        let kept = held_room(self.writer.found_held_bytes());
        if reserve > 0 && self.writer.unit.fits(self.writer.unit.gaps_room(), reserve + kept) {
            self.writer.flush_gaps(self.now, true);
        }
        if reserve > 0 && self.writer.unit.fits(0, kept) {
            let (mut records, mut dirty) = (Vec::new(), Vec::new());
            let (number, rows_only) = self.writer.unit.hand_over(&mut records, &mut dirty);
            let flags = log::BEGINS_EPOCH | if rows_only { log::ROWS_ONLY } else { 0 };
            let begun = self.opened.log.write_unit(&records, epoch, flags, self.now);
            begun.map_err(io_error(disk, names::LOG))?;
            self.opened.links.push_back(self.opened.log.link);
            self.writer.gaps.note_durable(number);
        } else {
            self.opened.log.begin_later().map_err(io_error(disk, names::LOG))?;
        }
        Ok(())
    }

    /// Adds gaps for data that is damaged: in the log, in segments, and rows.
    fn tell_damage(&mut self) {
        let (writer, report) = (&mut *self.writer, &mut self.opened.report);
        self.opened.log_damage.instants.iter().for_each(|time| writer.gaps.push(gap_of_log(GapCause::Damaged, *time)));
        for segment in &self.opened.untold.segments {
            writer.gaps.push(gap_of(segment, self.now));
        }
        for rows in std::mem::take(&mut self.lost) {
            let definition = writer.streams[rows.stream].slot.stream.load_full();
            let gap = gap_of_rows(&definition, &rows);
            report.lost_rows = report.lost_rows.saturating_add(gap.count);
            writer.gaps.push(gap);
        }
    }

    /// Adds gaps for what the log shows to be missing otherwise. They get their rows with the first commit, unless the
    /// store that this one takes over from has them already.
    fn tell_untold(&mut self) {
        if self.opened.report.torn_bytes > 0 && !self.opened.log_damage.at_end {
            // A commit that was never acknowledged; still, some data was on its way.
            let from = self.opened.last_commit.unwrap_or(self.now);
            self.writer.gaps.push(gap_of_log(GapCause::Torn, (from, self.now)));
        }
        tell_untold(self.writer);
    }

    /// Removes the files of segments that expired, and of those that never became one and came back with a power cut,
    /// before a checkpoint forgets their numbers.
    fn remove_dropped(&mut self, dropped: &[u64]) -> Result<(), OpenError> {
        let disk = &**self.disk;
        let mut removed = false;
        for id in dropped.iter().chain(&self.opened.expired) {
            removed |= remove_segment(disk, *id).map_err(io_error(disk, &file_name(*id)))?;
        }
        if removed {
            disk.sync().map_err(io_error(disk, ""))?;
        }
        Ok(())
    }

    /// Marks everything found as committed, and returns the opened store.
    fn finish(self) -> Opened {
        for (_, stream) in self.writer.streams.iter_mut() {
            stream.opened_row = stream.next_row;
            stream.slot.committed_row.store(stream.next_row, Ordering::Release);
        }
        self.opened
    }
}

/// Makes the gap of what was in a piece of the log.
pub(crate) fn gap_of_log(cause: GapCause, time: (i64, i64)) -> Gap {
    Gap {
        id: 0,
        stream: None,
        cause,
        source: "strongback".into(),
        name: String::new(),
        session: None,
        sequence: None,
        rows: None,
        time,
        count: 0,
    }
}

/// Adds gaps for the frames that the log shows to be missing and that no row of `strongback.gaps` names, as that row
/// was not durable yet.
fn tell_untold(writer: &mut Writer) {
    let Writer { streams, gaps, .. } = writer;
    let mut changed = Vec::new();
    for (id, stream) in streams.iter_mut() {
        let Some(tracker) = &mut stream.tracker else { continue };
        if tracker.known_row > stream.next_row {
            tracker.doubt();
            changed.push(id);
        }
        let definition = stream.slot.stream.load();
        if definition.layout.channels.iter().any(|c| c.reduction != Reduction::None) {
            // Missing frames may have been left out within their bounds.
            tracker.uncount_untold();
        }
        let newest = tracker.newest_stamps();
        let newest = newest.1.filter(|_| stream.source_clock).unwrap_or(newest.0);
        let time = tracker.untold_time.take().unwrap_or((newest, newest));
        for (session, range, count) in tracker.untold() {
            if let Some(gap) = gaps.add_untold(&definition, (session, range), count, time) {
                tracker.name_gap(session, range, gap);
                changed.push(id);
            }
        }
        stream.counts.open_before = tracker.open_frames();
    }
    changed.into_iter().for_each(|id| streams.note_changed(id));
}

/// Lets the log bring rows back, if they are the last that a stream had in segments. Returns whether it does.
fn expect_again(writer: &mut Writer, missing: &LostRows) -> bool {
    let stream = &mut writer.streams[missing.stream];
    if missing.rows.end != stream.next_row {
        return false;
    }
    let first_row = missing.rows.start;
    stream.next_row = first_row;
    if let Some(tracker) = &mut stream.tracker {
        // The rows before them restore it, if the log still has any.
        tracker.sealed = None;
    }
    stream.slot.open.store(Arc::new(OpenRows::empty(first_row)));
    // Its position in the checkpoint counts on the segment.
    writer.streams.note_changed(missing.stream);
    true
}

/// Resumes a segment that was open, or returns `None` if it has no block. Also returns the rows that are missing in it.
fn resume_open(
    segment: &Arc<Segment>,
    (origin, generation): (u128, u64),
    reserved_bytes: Option<usize>,
    writer: &mut Writer,
    report: &mut RecoveryReport,
) -> std::io::Result<(Option<SegmentFile>, Vec<LostRows>)> {
    let counted = *segment.state.lock();
    let group = writer.groups.name(segment.group);
    let definition = |id: StreamId| writer.streams.get(id.0).map(|s| s.slot.stream.load_full());
    let (file, damage) =
        match SegmentFile::resume(segment.clone(), (origin, generation, &group), reserved_bytes, definition) {
            Ok(Some(found)) => (Some(found.file), found.damage),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && counted.bytes > 0 => {
                let reason = "the segment is missing".to_owned();
                (None, vec![Damage { file: file_name(segment.id), offset: 0, reason }])
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => (None, Vec::new()),
        };
    // A damaged file stays for inspection, even if no block of it is left.
    let mut file = file.filter(|file| !file.is_empty() || !damage.is_empty());
    let blocks = file.as_mut().map_or_else(Vec::new, |file| file.list());
    let mut lost = Vec::new();
    if !damage.is_empty() {
        lost = lost_rows(writer, segment.id, &blocks, counted.time);
        report.damaged.extend(damage);
        // The newest block that the checkpoint knows may be gone.
        for (_, stream) in writer.streams.iter() {
            let sealed = stream.slot.sealed.load();
            if sealed.newest_segment == segment.id {
                stream.slot.sealed.store(Arc::new(SealedRows { last: None, ..(**sealed).clone() }));
            }
        }
    }
    let Some(file) = file else { return Ok((None, lost)) };
    for (id, block) in blocks {
        let Some(stream) = writer.streams.get_mut(id) else { continue };
        // Blocks that the checkpoint knows already are not added twice.
        if block.end_row() > stream.slot.open.load().first_row {
            let mut sealed = (**stream.slot.sealed.load()).clone();
            let channels = stream.slot.stream.load().layout.channels.len();
            sealed.add(&block, segment.id, std::iter::repeat_n(true, channels));
            stream.newest_time = stream.newest_time.max(sealed.time.1);
            stream.slot.sealed.store(Arc::new(sealed));
        }
        writer.streams.set_sealed(id, block.end_row());
    }
    Ok((Some(file), lost))
}

/// Returns the rows that the checkpoint knows in a segment and that no block of it has.
fn lost_rows(writer: &Writer, segment: u64, blocks: &[(u32, BlockRef)], time: (i64, i64)) -> Vec<LostRows> {
    let mut found: HashMap<u32, Vec<&BlockRef>> = HashMap::new();
    for (id, block) in blocks {
        found.entry(*id).or_default().push(block);
    }
    let mut lost = Vec::new();
    for (stream_id, stream) in writer.streams.iter() {
        let sealed = stream.slot.sealed.load();
        if sealed.newest_segment != segment {
            continue;
        }
        let end = stream.slot.open.load().first_row;
        let (mut next, mut before) = (sealed.newest_first_row, time.0);
        let mut miss = |rows: Range<u64>, time| {
            if rows.start < rows.end {
                lost.push(LostRows { stream: stream_id, rows, time });
            }
        };
        for block in found.get(&stream_id).into_iter().flatten().filter(|block| block.first_row < end) {
            miss(next..block.first_row, (before, block.time.0));
            (next, before) = (block.end_row(), block.time.1);
        }
        miss(next..end, (before, time.1));
    }
    lost
}
