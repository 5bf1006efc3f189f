//! Opening: from what the disk holds to a store that takes frames.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::{Writer, new_tracker, reserve_bytes};
use crate::blob::{BlobFile, Resumed};
use crate::catalog;
use crate::checkpoint::{self, Checkpoint, Position, SealedRows};
use crate::counts::RecoveryReport;
use crate::directory::{BlockRef, Segment, SegmentEntry, file_name, remove_segment};
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages};
use crate::expiry::{Space, Spare, find_spare, is_full};
use crate::fields::Take;
use crate::group::Group;
use crate::inspect::Damage;
use crate::ledger::{Gap, GapCause, named_gap};
use crate::limits::MAX_ROWS;
use crate::log::{self, Link, LogReader, LogWriter, Ring};
use crate::missing::{FileSizes, Untold, forget_blocks, gap_of, gap_of_rows};
use crate::mutant::{self, Mutant};
use crate::options::{RetentionGroup, StoreOptions};
use crate::recent;
use crate::recent_file;
use crate::record::{self, Control, Record, Records};
use crate::reduction::Reduction;
use crate::refusal::{OpenError, repair_hint};
use crate::retain::last_blocks_max;
use crate::segment::{Beside, SegmentHeader};
use crate::segment_file::SegmentFile;
use crate::sequence::saved::SavedSequence;
use crate::stream::StreamId;
use crate::stream_slot::OpenRows;
use crate::superblock::{self, Superblock, SuperblockFile};

/// Name of the log's file.
pub(crate) const LOG_FILE: &str = "log";

/// Names the file in an error of the disk.
pub(crate) fn io_error(disk: &dyn Disk, file: &str) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = format!("{}/{file}", disk.path());
    move |source| OpenError::Io { path, source }
}

/// What opening comes to.
pub(crate) struct Opened {
    pub(crate) superblock: SuperblockFile,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Segments whose entry in the checkpoint is out of date.
    pub(crate) changed_segments: Vec<Arc<Segment>>,
    /// Segments without a block: the checkpoint lists them still.
    pub(crate) expired: Vec<u64>,
    /// Segments that go on, where the size is fixed.
    pub(crate) open: BTreeMap<Group, SegmentFile>,
    /// Segments of blobs that go on.
    pub(crate) blobs: Vec<BlobFile>,
    /// The file that was allocated for the next segment.
    pub(crate) spare: Option<Spare>,
    pub(crate) log: LogWriter,
    /// When the last commit was made.
    pub(crate) last_commit: Option<i64>,
    /// Number of the last commit that was found.
    pub(crate) found_commit: u64,
    /// Where each unit of the log begins.
    pub(crate) links: VecDeque<Link>,
    pub(crate) report: RecoveryReport,
    /// Sealed segments whose files are missing or cut, and whose gaps are to be told.
    pub(crate) untold: Untold,
}

/// Rows of a stream that were durable and are no more.
pub(crate) struct LostRows {
    pub(crate) stream: u32,
    pub(crate) rows: Range<u64>,
    /// `time` of what lies before and after.
    pub(crate) time: (i64, i64),
}

/// Makes an empty log. `written`: once before use, so that a write to pages that exist needs no journal of the file
/// system.
pub(crate) fn make_log(disk: &dyn Disk, log_bytes: u64, written: bool) -> std::io::Result<Arc<dyn DiskFile>> {
    let log = disk.create(LOG_FILE, log_bytes, Access::Log)?;
    let mut zeros = Pages::default();
    let mut at = 0;
    while written && at < log_bytes {
        zeros.resize((log_bytes - at).min(1 << 20) as usize);
        log.write_at(&zeros, at)?;
        at += zeros.as_slice().len() as u64;
    }
    log.sync()?;
    Ok(log)
}

/// Makes the files of a new store; the superblock last, so that what has none was never finished.
pub(crate) fn create(disk: &dyn Disk, log_bytes: u64) -> Result<SuperblockFile, OpenError> {
    make_log(disk, log_bytes, true).map_err(io_error(disk, LOG_FILE))?;
    let origin = disk.random().map_err(io_error(disk, superblock::FILE))?;
    let first = Superblock { origin, log_bytes, next_segment: 1, ..Superblock::default() };
    let file = SuperblockFile::create(disk, first).map_err(io_error(disk, superblock::FILE))?;
    disk.sync().map_err(io_error(disk, superblock::FILE))?;
    Ok(file)
}

/// Writes a new origin and the folder's own identity into the superblock.
pub(crate) fn adopt(disk: &dyn Disk) -> Result<u128, OpenError> {
    let lock = disk.lock().map_err(io_error(disk, "lock"))?;
    let Some(_lock) = lock else { return Err(OpenError::InUse { path: disk.path() }) };
    let file = disk.open(superblock::FILE, Access::Log).map_err(io_error(disk, superblock::FILE))?;
    let now = Superblock::read(disk, &*file)?;
    let mut superblock = SuperblockFile { file, now };
    let origin = disk.random().map_err(io_error(disk, superblock::FILE))?;
    let identity = disk.identity(superblock::FILE).map_err(io_error(disk, superblock::FILE))?;
    superblock.write(Superblock { origin, identity, ..now }).map_err(io_error(disk, superblock::FILE))?;
    Ok(origin)
}

/// Opens or makes the store of a folder that is locked.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    options: &StoreOptions,
    space: &Space,
    writer: &mut Writer,
    now: i64,
) -> Result<Opened, OpenError> {
    let found = match disk.open(superblock::FILE, Access::Log) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(&**disk, superblock::FILE)(error)),
    };
    let disk_ref = &**disk;
    let unmeant = |reason| OpenError::Options { path: disk.path(), reason };
    RetentionGroup::check_all(&options.retention).map_err(unmeant)?;
    let check = |log_bytes| space.check(options, log_bytes).map_err(unmeant);
    let mut superblock = match found {
        Some(file) => {
            // A process that was killed may have left what a failed sync did not write, and only the cache has: what is
            // read at an opening is read from the disk.
            if disk.layout().is_some() && !mutant::is_active(Mutant::KeepCached) {
                disk.forget_cached();
            }
            forget_cached(&*file);
            let found = Superblock::read(disk_ref, &*file)?;
            let identity = disk.identity(superblock::FILE).map_err(io_error(disk_ref, superblock::FILE))?;
            if identity != found.identity {
                return Err(OpenError::Copied { path: disk.path(), origin: found.origin });
            }
            // Files that were made before a sync of the folder failed, or never came, are seen and not durable: what is
            // written into them would go with their names.
            disk.sync().map_err(io_error(disk_ref, ""))?;
            SuperblockFile { file, now: found }
        }
        None => {
            // `log` and `lock` alone: making it was cut short. Anything else is not ours to write over.
            let files = disk.list().map_err(io_error(disk_ref, ""))?;
            if let Some((name, _)) = files.iter().find(|(n, _)| n != LOG_FILE && n != "lock") {
                let path = disk.path();
                let was_store =
                    files.iter().any(|(n, _)| n.starts_with("segment-") || checkpoint::FILES.contains(&n.as_str()));
                let hint = if was_store { repair_hint(&path) } else { "not a store; give an empty folder".to_owned() };
                return Err(OpenError::Damaged { path, reason: format!("holds {name} but no superblock: {hint}") });
            }
            check(options.log_bytes)?;
            let log_bytes = options.log_bytes.clamp(1 << 20, 1 << 36).next_multiple_of(PAGE_BYTES as u64);
            create(disk_ref, log_bytes)?
        }
    };
    check(superblock.now.log_bytes)?;
    let file = disk.open(LOG_FILE, Access::Log).map_err(missing(disk_ref, LOG_FILE))?;
    forget_cached(&*file);
    let ring_bytes = superblock.now.log_bytes;
    if file.size().map_err(io_error(disk_ref, LOG_FILE))? < ring_bytes {
        return Err(OpenError::Damaged {
            path: format!("{}/{LOG_FILE}", disk.path()),
            reason: format!("shorter than its {ring_bytes} bytes; {}", repair_hint(&disk.path())),
        });
    }
    let ring = Arc::new(Ring { file, size_bytes: ring_bytes });
    writer.set_sizes(ring_bytes, space);
    writer.shapes.hash_key = recent::hash_key(superblock.now.origin);

    // Until a unit says so: a clean end is one that is never passed by the tail.
    let mut report = RecoveryReport { clean: superblock.now.epoch == 0, ..RecoveryReport::default() };
    let (mut checkpoint, states, gone) = read_checkpoint(disk_ref, &superblock.now, writer)?;
    checkpoint.room = space.fixed.map(|fixed| fixed.checkpoint_bytes);
    let mut opened = Opened {
        log: LogWriter::new(ring.clone(), superblock.now.tail),
        last_commit: None,
        found_commit: 0,
        links: VecDeque::from([superblock.now.tail]),
        checkpoint,
        segments: Vec::new(),
        changed_segments: Vec::new(),
        expired: Vec::new(),
        open: BTreeMap::new(),
        blobs: Vec::new(),
        spare: None,
        report: RecoveryReport::default(),
        untold: Untold::default(),
        superblock: SuperblockFile { file: superblock.file.clone(), now: superblock.now },
    };
    let (mut lost, mut tails) = (Vec::new(), Vec::new());
    let sizes = FileSizes::of(disk_ref).map_err(io_error(disk_ref, ""))?;
    for (id, entry) in states {
        let missing = if entry.state.sealed { sizes.check(&entry) } else { None };
        let SegmentEntry { places, group, blobs, state, slot, .. } = entry;
        if let Some(slot) = slot
            && !disk.put_into_slot(&file_name(id), slot)
        {
            let reason = format!("the checkpoint has segment {id} in slot {slot}, which cannot be");
            return Err(OpenError::Damaged { path: disk.path(), reason });
        }
        let segment = Segment::standing_for(places, disk.clone(), id, group, state);
        let segment = if blobs { segment.of_blobs() } else { segment };
        if let Some(damage) = missing {
            report.damaged.push(damage);
            let segment = Arc::new(segment.lost());
            let rows = forget_blocks(writer, &segment);
            // Compaction has nothing to look for in it.
            segment.state.lock().left = true;
            if !state.told_lost {
                for missing in rows {
                    let to = if expect_again(writer, &missing) { &mut tails } else { &mut lost };
                    to.push(missing);
                }
                opened.untold.segments.push(segment.clone());
            }
            opened.segments.push(segment);
            continue;
        }
        let segment = Arc::new(segment);
        if state.told_lost {
            // The file was put back.
            segment.state.lock().told_lost = false;
            opened.changed_segments.push(segment.clone());
        }
        if blobs {
            if !state.sealed {
                let header = SegmentHeader {
                    origin: superblock.now.origin,
                    id,
                    generation: space.generation_of(id),
                    size_bytes: space.segment_bytes,
                    created: now,
                    group: writer.groups.name(group),
                    blobs,
                };
                let resumed = BlobFile::resume(&segment, &header);
                let Resumed { file, is_gone, damage } = resumed.map_err(io_error(disk_ref, &file_name(id)))?;
                report.damaged.extend(damage);
                if is_gone {
                    opened.expired.push(id);
                    continue;
                }
                opened.changed_segments.push(segment.clone());
                opened.blobs.extend(file);
            }
        } else if !state.sealed {
            let reserved_bytes = space.fixed.map(|_| last_blocks_max(space.segment_bytes));
            let of_store = (superblock.now.origin, space.generation_of(id));
            let resumed = resume_open(&segment, of_store, reserved_bytes, writer, &mut report);
            let (resumed, missing) = resumed.map_err(io_error(disk_ref, &file_name(id)))?;
            for missing in missing {
                let to = if expect_again(writer, &missing) { &mut tails } else { &mut lost };
                to.push(missing);
            }
            let Some(mut file) = resumed else {
                opened.expired.push(id);
                continue;
            };
            opened.changed_segments.push(segment.clone());
            // A process that was killed may have left blocks that only the cache holds. Before anything else is written to
            // the file: a sync that finds no space for that would lose them too, and a second one would not say so.
            file.sync().map_err(io_error(disk_ref, &file_name(id)))?;
            if file.goes_on() && !opened.open.contains_key(&group) {
                opened.open.insert(group, file);
            } else {
                match file.finish(Beside::default()) {
                    // It stays open, and is finished when something went for it.
                    Err(error) if is_full(&error) && !opened.open.contains_key(&group) => {
                        opened.open.insert(group, file);
                    }
                    done => done.map(drop).map_err(io_error(disk_ref, &file_name(id)))?,
                }
            }
        }
        opened.segments.push(segment);
    }
    let link = replay(disk_ref, &ring, superblock.now.tail, writer, &mut opened, &mut report, &mut lost)?;
    // What the log did not bring back.
    for missing in tails {
        if let Some(rows) = pass_lost(writer, missing.stream, missing.rows.end) {
            lost.push(LostRows { rows, ..missing });
        }
    }
    opened.found_commit = link.commit;
    let unread = recent_file::load(disk_ref, link.commit, writer).map_err(io_error(disk_ref, recent_file::FILE))?;
    report.damaged.extend(unread);

    let next = superblock.now.next_segment;
    let spare = find_spare(disk_ref, next, space.segment_bytes, &mut report.damaged);
    opened.spare = spare.map_err(io_error(disk_ref, &file_name(next)))?;
    let made = writer.groups.configure(&options.retention, space.max_bytes);
    let made = made.map_err(unmeant)?;
    writer.measure_catalog();
    // Groups are durable before the first stream that joins one.
    let mut records = Vec::new();
    for group in made {
        record::put_control(&mut records, Control::Group, &writer.groups.encode(group));
    }

    // The new epoch is durable in the superblock before the first append, so that no number comes twice; and in the
    // log, so that nothing beyond the cut can follow any more. Where the log is small, or full but for what is kept for
    // held frames, that is its first commit: until then nobody is told of a row that this opening did not find, and
    // what it found is made durable here.
    let epoch = superblock.now.epoch.max(link.epoch) + 1;
    superblock.write(Superblock { epoch, ..superblock.now }).map_err(io_error(disk_ref, superblock::FILE))?;
    opened.log = LogWriter::new(ring, link);
    let reserve = reserve_bytes(ring_bytes);
    let kept = Writer::held_room(writer.found_held_bytes());
    let end = link.position + log::unit_bytes(records.len() * 8) + kept;
    if reserve > 0 && end <= superblock.now.tail.position + ring_bytes {
        opened.log.write_unit(&records, epoch, log::BEGINS_EPOCH, now).map_err(io_error(disk_ref, LOG_FILE))?;
        opened.links.push_back(opened.log.link);
    } else {
        opened.log.begin_later().map_err(io_error(disk_ref, LOG_FILE))?;
        writer.pending = records;
    }
    report.epoch = epoch;
    writer.head = opened.log.link.position;
    writer.tail = superblock.now.tail.position;
    writer.pending_commit = opened.log.link.commit + 1;
    writer.gaps.next_id = u64::from(epoch) << 32;
    let damaged = report.damaged.iter().any(|damage| damage.file == LOG_FILE);
    if damaged || report.torn_bytes > 0 {
        // Torn: a commit that nobody was told of; still, something was on its way.
        writer.gaps.push(Gap {
            id: 0,
            stream: None,
            cause: if damaged { GapCause::Damaged } else { GapCause::Torn },
            source: "strongback".into(),
            name: String::new(),
            session: None,
            sequence: None,
            rows: None,
            time: (opened.last_commit.unwrap_or(now), now),
            count: 0,
        });
    }
    tell_untold(writer);
    for segment in &opened.untold.segments {
        writer.gaps.push(gap_of(segment, now));
    }
    for rows in lost {
        let definition = writer.streams[rows.stream as usize].slot.stream.load_full();
        let gap = gap_of_rows(&definition, &rows);
        report.lost_rows = report.lost_rows.saturating_add(gap.count);
        writer.gaps.push(gap);
    }
    // What was dropped and came back with a power cut, for good; before a checkpoint that forgets the numbers.
    let mut removed = false;
    for id in gone.iter().chain(&opened.expired) {
        removed |= remove_segment(disk_ref, *id).map_err(io_error(disk_ref, &file_name(*id)))?;
    }
    if removed {
        disk.sync().map_err(io_error(disk_ref, ""))?;
    }
    for stream in &mut writer.streams {
        stream.opened_row = stream.next_row;
        stream.slot.committed_row.store(stream.next_row, Ordering::Release);
    }
    opened.superblock = superblock;
    opened.report = report;
    Ok(opened)
}

/// Adds gaps for the frames that the log shows to be missing and no row of `strongback.gaps` names: that row was not durable
/// yet.
fn tell_untold(writer: &mut Writer) {
    let Writer { streams, gaps, changed, .. } = writer;
    for (id, stream) in streams.iter_mut().enumerate() {
        let Some(tracker) = &mut stream.tracker else { continue };
        if tracker.known_row > stream.next_row {
            tracker.doubt();
            changed.push(id as u32);
        }
        let definition = stream.slot.stream.load();
        if definition.layout.channels.iter().any(|c| c.reduction != Reduction::None) {
            // It may have been left out within its bound.
            tracker.uncount_untold();
        }
        let newest = tracker.newest_stamps();
        let newest = newest.1.filter(|_| stream.source_clock).unwrap_or(newest.0);
        let time = tracker.untold_time.take().unwrap_or((newest, newest));
        for (session, range, count) in tracker.untold() {
            if let Some(gap) = gaps.add_untold(&definition, (session, range), count, time) {
                tracker.name_gap(session, range, gap);
                changed.push(id as u32);
            }
        }
        stream.counts.open_before = tracker.open_frames();
    }
}

/// Lets the next read of a file be of the disk.
pub(crate) fn forget_cached(file: &dyn DiskFile) {
    if !mutant::is_active(Mutant::KeepCached) {
        file.forget_cached();
    }
}

/// Segments of a checkpoint.
pub(crate) type States = BTreeMap<u64, SegmentEntry>;

/// Takes the checkpoint back: streams, where each goes on, and segments.
fn read_checkpoint(
    disk: &dyn Disk,
    superblock: &Superblock,
    writer: &mut Writer,
) -> Result<(Checkpoint, States, Vec<u64>), OpenError> {
    let mut states = States::new();
    let mut expired = Vec::new();
    let which = (superblock.checkpoint_file, superblock.checkpoint_bytes, superblock.checkpoint_chain);
    let take = |kind: u8, bytes: &[u8]| apply_entry(writer, &mut states, &mut expired, kind, bytes);
    let name = || checkpoint::FILES[superblock.checkpoint_file.clamp(1, 2) as usize - 1];
    match Checkpoint::read(disk, which, take).map_err(missing(disk, name()))? {
        Ok(checkpoint) => {
            // What settle was writing is no segment until an entry says so.
            expired.retain(|id| !states.contains_key(id));
            Ok((checkpoint, states, expired))
        }
        Err(reason) => {
            let reason = format!("{reason}; {}", repair_hint(&disk.path()));
            Err(OpenError::Damaged { path: disk.path(), reason })
        }
    }
}

/// Says that a file without which a store does not open is missing, and what to do.
fn missing(disk: &dyn Disk, name: &str) -> impl FnOnce(std::io::Error) -> OpenError {
    let (path, hint) = (format!("{}/{name}", disk.path()), repair_hint(&disk.path()));
    move |source| match source.kind() {
        std::io::ErrorKind::NotFound => OpenError::Damaged { path, reason: format!("missing; {hint}") },
        _ => OpenError::Io { path, source },
    }
}

/// Takes back an entry of a checkpoint; none: it does not fit.
pub(crate) fn apply_entry(
    writer: &mut Writer,
    states: &mut States,
    expired: &mut Vec<u64>,
    kind: u8,
    bytes: &[u8],
) -> Option<()> {
    match kind {
        checkpoint::STREAM => {
            let definition = catalog::decode_stream(&mut Take(bytes))?;
            let (id, serial) = (definition.0, definition.2.serial);
            writer.apply_stream(definition)?;
            writer.streams[id.0 as usize].saved_serial = Some(serial);
        }
        checkpoint::POSITION => {
            let position = Position::decode(bytes)?;
            writer.set_sealed(position.stream, position.first_row);
            let stream = writer.streams.get_mut(position.stream as usize)?;
            stream.newest_time = stream.newest_time.max(position.sealed.time.1);
            // Those without a segment share one that says so.
            if **stream.slot.sealed.load() != position.sealed {
                stream.slot.sealed.store(Arc::new(position.sealed));
            }
            stream.tracker = position.sequence.map(|(session, highest)| {
                let mut tracker = new_tracker(&stream.slot);
                tracker.resume(session, highest);
                tracker.sealed = Some((session, highest));
                tracker
            });
        }
        checkpoint::SEQUENCE => {
            let saved = SavedSequence::decode(bytes)?;
            let stream = writer.streams.get_mut(saved.stream as usize)?;
            saved.restore(stream.tracker.get_or_insert_with(|| new_tracker(&stream.slot)));
        }
        checkpoint::SEGMENT => {
            let entry = Segment::decode(bytes)?;
            writer.groups.has(entry.group).then_some(())?;
            states.insert(entry.id, entry);
        }
        checkpoint::GROUP => {
            writer.groups.apply(bytes)?;
        }
        checkpoint::EXPIRED => {
            let id = u64::from_le_bytes(bytes.try_into().ok()?);
            states.remove(&id);
            expired.push(id);
        }
        _ => return None,
    }
    Some(())
}

/// Lets the log bring rows back, if they are the last that a stream had in segments.
fn expect_again(writer: &mut Writer, missing: &LostRows) -> bool {
    let stream = &mut writer.streams[missing.stream as usize];
    if missing.rows.end != stream.next_row {
        return false;
    }
    let first_row = missing.rows.start;
    stream.next_row = first_row;
    if let Some(tracker) = &mut stream.tracker {
        // It is known again with the rows before them, if the log still has any.
        tracker.sealed = None;
    }
    stream.slot.open.store(Arc::new(OpenRows::empty(first_row)));
    true
}

/// Takes back a segment that was open; none: it has no block. Says which rows are missing in it.
fn resume_open(
    segment: &Arc<Segment>,
    (origin, generation): (u128, u64),
    reserved_bytes: Option<usize>,
    writer: &mut Writer,
    report: &mut RecoveryReport,
) -> std::io::Result<(Option<SegmentFile>, Vec<LostRows>)> {
    let counted = *segment.state.lock();
    let group = writer.groups.name(segment.group);
    let definition = |id: StreamId| writer.streams.get(id.0 as usize).map(|s| s.slot.stream.load_full());
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
    // A damaged file stays, for whoever looks into it, even if no block of it is left.
    let mut file = file.filter(|file| !file.is_empty() || !damage.is_empty());
    let blocks = file.as_mut().map_or_else(Vec::new, |file| file.list());
    let mut lost = Vec::new();
    if !damage.is_empty() {
        lost = lost_rows(writer, segment.id, &blocks, counted.time);
        report.damaged.extend(damage);
        // The newest block that the checkpoint knows may be gone.
        for stream in &writer.streams {
            let sealed = stream.slot.sealed.load();
            if sealed.newest_segment == segment.id {
                stream.slot.sealed.store(Arc::new(SealedRows { last: None, ..(**sealed).clone() }));
            }
        }
    }
    let Some(file) = file else { return Ok((None, lost)) };
    for (id, block) in blocks {
        let Some(stream) = writer.streams.get_mut(id as usize) else { continue };
        // What the checkpoint knows already is not taken in twice.
        if block.end_row() > stream.slot.open.load().first_row {
            let mut sealed = (**stream.slot.sealed.load()).clone();
            let channels = stream.slot.stream.load().layout.channels.len();
            sealed.add(&block, segment.id, std::iter::repeat_n(true, channels));
            stream.newest_time = stream.newest_time.max(sealed.time.1);
            stream.slot.sealed.store(Arc::new(sealed));
        }
        writer.set_sealed(id, block.end_row());
    }
    Ok((Some(file), lost))
}

/// Rows that the checkpoint knows in a segment and no block of it has.
fn lost_rows(writer: &Writer, segment: u64, blocks: &[(u32, BlockRef)], time: (i64, i64)) -> Vec<LostRows> {
    let mut found: HashMap<u32, Vec<&BlockRef>> = HashMap::new();
    for (id, block) in blocks {
        found.entry(*id).or_default().push(block);
    }
    let mut lost = Vec::new();
    for (id, stream) in writer.streams.iter().enumerate() {
        let sealed = stream.slot.sealed.load();
        if sealed.newest_segment != segment {
            continue;
        }
        let stream_id = id as u32;
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

/// Takes the log's whole units back.
fn replay(
    disk: &dyn Disk,
    ring: &Ring,
    tail: Link,
    writer: &mut Writer,
    opened: &mut Opened,
    report: &mut RecoveryReport,
    lost: &mut Vec<LostRows>,
) -> Result<Link, OpenError> {
    let mut reader = LogReader::new(ring, tail);
    let mut scratch = (Vec::new(), Vec::new());
    loop {
        let position = reader.link().position;
        let unit = reader.next_unit(!mutant::is_active(Mutant::NoLogCheck)).map_err(io_error(disk, LOG_FILE))?;
        let Some((header, bytes)) = unit else { break };
        report.clean = header.flags & log::CLEAN != 0;
        opened.links.push_back(header.link());
        opened.last_commit = Some(header.instant);
        writer.head = header.position;
        let fits = apply_unit(writer, bytes, &mut scratch, header.instant, report, lost);
        if fits.is_none() {
            return Err(OpenError::Damaged {
                path: format!("{}/{LOG_FILE}", disk.path()),
                reason: format!(
                    "a record of the unit at offset {} does not fit what came before",
                    position % ring.size_bytes
                ),
            });
        }
    }
    report.torn_bytes = reader.torn_bytes().map_err(io_error(disk, LOG_FILE))?;
    let end = reader.link();
    let behind = reader.behind_end().map_err(io_error(disk, LOG_FILE))?;
    // What the values of a record look like decides nothing alone: one copy of the superblock must be missing, and
    // nothing follow where the other says that the log begins.
    if let Some(commit) = behind.later_lap
        && end == tail
        && Superblock::has_lost_copy(disk)?
    {
        // Rows would be given out twice.
        return Err(OpenError::Damaged {
            path: format!("{}/{}", disk.path(), superblock::FILE),
            reason: format!(
                "its newest copy is lost: the older one says that the log begins with commit {}, and the log has been \
                 written over up to commit {commit}; {}",
                tail.commit + 1,
                repair_hint(&disk.path())
            ),
        });
    }
    if let Some(commit) = behind.same_lap {
        let offset = end.position % ring.size_bytes;
        let reason = format!(
            "commit {} is damaged, and what was committed after it, to {commit} at least, lost",
            end.commit + 1
        );
        report.damaged.push(Damage { file: LOG_FILE.to_owned(), offset, reason });
    }
    Ok(end)
}

/// Takes back the records of a unit; none: one does not fit what came before. `scratch` is for a row's words and text.
pub(crate) fn apply_unit(
    writer: &mut Writer,
    bytes: &[u8],
    scratch: &mut (Vec<u64>, Vec<u8>),
    instant: i64,
    report: &mut RecoveryReport,
    lost: &mut Vec<LostRows>,
) -> Option<()> {
    let mut records = Records(bytes);
    while apply_record(writer, &mut records, scratch, instant, (report, lost))? {}
    Some(())
}

/// Takes back the next record of a unit; false: there is none. None: it does not fit what came before.
pub(crate) fn apply_record(
    writer: &mut Writer,
    records: &mut Records<'_>,
    (row_words, text): &mut (Vec<u64>, Vec<u8>),
    instant: i64,
    (report, lost): (&mut RecoveryReport, &mut Vec<LostRows>),
) -> Option<bool> {
    let Some(record) = records.next_record() else { return Some(false) };
    match record {
        Record::Control { kind, bytes } => apply_control(writer, kind, bytes)?,
        Record::Frame { stream, shape, row, text_bytes } => {
            (row < MAX_ROWS).then_some(())?;
            let found_lost = pass_lost(writer, stream, row);
            let follows_lost = found_lost.is_some();
            if let Some(rows) = found_lost {
                let before = writer.streams[stream as usize].slot.sealed.load().time.1;
                lost.push(LostRows { stream, rows, time: (before.min(instant), instant) });
            }
            let frame = LoggedFrame { stream, shape, row, text_bytes, follows_lost };
            apply_frame(writer, records, &frame, (row_words, text), instant, report)?;
        }
    }
    Some(true)
}

/// Where a stream goes on with a later row than the one expected, the rows between are lost.
fn pass_lost(writer: &mut Writer, id: u32, row: u64) -> Option<Range<u64>> {
    let stream = writer.streams.get_mut(id as usize)?;
    let rows = stream.next_row..row;
    if rows.is_empty() {
        return None;
    }
    stream.next_row = row;
    stream.chunk = None;
    if stream.slot.open.load().chunks.is_empty() {
        stream.slot.open.store(Arc::new(OpenRows::empty(row)));
    }
    Some(rows)
}

/// The head of a frame's record.
struct LoggedFrame {
    stream: u32,
    shape: u16,
    row: u64,
    text_bytes: usize,
    /// Whether rows before it are lost.
    follows_lost: bool,
}

fn apply_frame(
    writer: &mut Writer,
    records: &mut Records<'_>,
    &LoggedFrame { stream, shape, row, text_bytes, follows_lost }: &LoggedFrame,
    (words, text): (&mut Vec<u64>, &mut Vec<u8>),
    instant: i64,
    report: &mut RecoveryReport,
) -> Option<()> {
    let state = writer.streams.get(stream as usize)?;
    if shape > state.history.newest {
        return None;
    }
    let row_shape = if shape == state.history.newest {
        state.shape.clone()
    } else {
        state.history.shape(shape, &mut writer.shapes)
    };
    records.frame(row_shape.words(), text_bytes, words, text)?;
    (row_shape.has_text || text.is_empty()).then_some(())?;
    let state = writer.streams.get_mut(stream as usize)?;
    if row_shape.has_sequence {
        state.restore_sequence(words, row, follows_lost);
    }
    if writer.gaps_stream == Some(stream)
        && let Some(gap) = named_gap(&row_shape, words, text)
        && let Some(stream) = writer.streams.get_mut(gap.stream as usize)
        && let Some(tracker) = &mut stream.tracker
    {
        tracker.name_gap(gap.session, gap.sequence, gap.id);
    }
    let state = writer.streams.get_mut(stream as usize)?;
    if row < state.next_row {
        // In a segment already; a client that got no answer may still send it again.
        if state.source_clock {
            let recent = state.recent.get_or_insert_default();
            recent.keep_row(&row_shape, words, text);
        }
        return Some(());
    }
    writer.restore(stream, shape, words, text, instant);
    report.frames += 1;
    Some(())
}

fn apply_control(writer: &mut Writer, kind: u16, bytes: &[u8]) -> Option<()> {
    let mut t = Take(bytes);
    if kind == Control::Stream as u16 {
        let definition = catalog::decode_stream(&mut t)?;
        let id = definition.0;
        writer.apply_stream(definition)?;
        // Also of a stream that the checkpoint knows: what a failed disk lost was written down again as a whole.
        writer.changed.push(id.0);
    } else if kind == Control::Channels as u16 {
        let (id, body) = catalog::decode_channels(&mut t)?;
        writer.apply_channels(id, body)?;
    } else if kind == Control::Group as u16 {
        writer.groups.apply(bytes)?;
    } else if kind == Control::Held as u16 {
        writer.restore_held(bytes)?;
    }
    Some(())
}
