//! Opening: from what the disk holds to a store that takes frames.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::Writer;
use crate::catalog;
use crate::counts::RecoveryReport;
use crate::disk::{Access, Disk, PAGE_BYTES, Pages};
use crate::fields::Take;
use crate::ledger::SequenceTracker;
use crate::log::{self, Link, LogReader, LogWriter, Ring};
use crate::options::StoreOptions;
use crate::record::{Control, Record, Records};
use crate::refusal::OpenError;
use crate::row::NONE;
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
    pub(crate) log: LogWriter,
    pub(crate) report: RecoveryReport,
}

/// Makes the files of a new store; the superblock last, so that what has none was never finished.
fn create(disk: &dyn Disk, options: &StoreOptions) -> Result<SuperblockFile, OpenError> {
    let log_bytes = options.log_bytes.clamp(1 << 20, 1 << 36).next_multiple_of(PAGE_BYTES as u64);
    let log = disk.create(LOG_FILE, log_bytes, Access::Log).map_err(io_error(disk, LOG_FILE))?;
    // Written once before use: a write to pages that exist needs no journal of the file system.
    let mut zeros = Pages::default();
    let mut at = 0;
    while at < log_bytes {
        zeros.resize((log_bytes - at).min(1 << 20) as usize);
        log.write_at(&zeros, at).map_err(io_error(disk, LOG_FILE))?;
        at += zeros.as_slice().len() as u64;
    }
    log.sync().map_err(io_error(disk, LOG_FILE))?;
    let origin = disk.random().map_err(io_error(disk, superblock::FILE))?;
    let first = Superblock { origin, log_bytes, next_segment: 1, ..Superblock::default() };
    let file = SuperblockFile::create(disk, first).map_err(io_error(disk, superblock::FILE))?;
    disk.sync().map_err(io_error(disk, superblock::FILE))?;
    Ok(file)
}

/// Opens or makes the store of a folder that is locked.
pub(crate) fn open(
    disk: &dyn Disk,
    options: &StoreOptions,
    writer: &mut Writer,
    now: i64,
) -> Result<Opened, OpenError> {
    let files = disk.list().map_err(io_error(disk, ""))?;
    let has = |name: &str| files.iter().any(|(n, _)| n == name);
    let mut superblock = if has(superblock::FILE) {
        let file = disk.open(superblock::FILE, Access::Log).map_err(io_error(disk, superblock::FILE))?;
        let found = Superblock::read(disk, &*file)?;
        let identity = disk.identity(superblock::FILE).map_err(io_error(disk, superblock::FILE))?;
        if identity != found.identity {
            return Err(OpenError::Copied { path: disk.path(), origin: found.origin });
        }
        SuperblockFile { file, now: found }
    } else {
        // `log` and `lock` alone: making it was cut short. Anything else is not ours to write over.
        if let Some((name, _)) = files.iter().find(|(n, _)| n != LOG_FILE && n != "lock") {
            return Err(OpenError::Damaged {
                path: disk.path(),
                reason: format!("holds {name} but no superblock: not a store; give an empty folder"),
            });
        }
        create(disk, options)?
    };
    let file = disk.open(LOG_FILE, Access::Log).map_err(io_error(disk, LOG_FILE))?;
    let ring_bytes = superblock.now.log_bytes;
    if file.size().map_err(io_error(disk, LOG_FILE))? < ring_bytes {
        return Err(OpenError::Damaged {
            path: format!("{}/{LOG_FILE}", disk.path()),
            reason: format!("shorter than its {ring_bytes} bytes"),
        });
    }
    let ring = Arc::new(Ring { file, size_bytes: ring_bytes });
    writer.ring_bytes = ring_bytes;

    let mut report = RecoveryReport { clean: true, ..RecoveryReport::default() };
    let link = replay(disk, &ring, superblock.now.tail, writer, &mut report)?;

    // The new epoch is durable twice before the first append: in the superblock, so that no number comes
    // twice, and in the log, so that nothing beyond the cut can follow any more.
    let epoch = superblock.now.epoch.max(link.epoch) + 1;
    superblock.write(Superblock { epoch, ..superblock.now }).map_err(io_error(disk, superblock::FILE))?;
    let mut log = LogWriter::new(ring, link);
    log.write_unit(&[], epoch, log::BEGINS_EPOCH, now).map_err(io_error(disk, LOG_FILE))?;
    report.epoch = epoch;
    writer.head = log.link.position;
    writer.tail = superblock.now.tail.position;
    writer.pending_commit = log.link.commit + 1;
    writer.gaps.next_id = u64::from(epoch) << 32;
    for stream in &writer.streams {
        stream.slot.committed_row.store(stream.next_row, Ordering::Release);
    }
    Ok(Opened { superblock, log, report })
}

/// Takes the log's whole units back.
fn replay(
    disk: &dyn Disk,
    ring: &Ring,
    tail: Link,
    writer: &mut Writer,
    report: &mut RecoveryReport,
) -> Result<Link, OpenError> {
    let mut reader = LogReader::new(ring, tail);
    let (mut row_words, mut text) = (Vec::new(), Vec::new());
    loop {
        let position = reader.link().position;
        let unit = reader.next_unit(true).map_err(io_error(disk, LOG_FILE))?;
        let Some((header, bytes)) = unit else { break };
        report.clean = header.flags & log::CLEAN != 0;
        writer.head = header.position;
        let mut records = Records(bytes);
        while let Some(record) = records.next_record() {
            let fits = match record {
                Record::Control { kind, bytes } => apply_control(writer, kind, bytes),
                Record::Frame { stream, shape, row, text_bytes } => apply_frame(
                    writer,
                    &mut records,
                    (stream, shape, row, text_bytes),
                    (&mut row_words, &mut text),
                    header.instant,
                    report,
                ),
            };
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
    }
    report.torn_bytes = reader.torn_bytes().map_err(io_error(disk, LOG_FILE))?;
    Ok(reader.link())
}

fn apply_frame(
    writer: &mut Writer,
    records: &mut Records<'_>,
    (stream, shape, row, text_bytes): (u32, u16, u64, usize),
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
    let modulus = state.slot.stream.load().sequence_modulus;
    records.frame(row_shape.words(), text_bytes, words, text)?;
    let state = writer.streams.get_mut(stream as usize)?;
    if row < state.next_row {
        return Some(());
    }
    if row > state.next_row {
        return None;
    }
    if row_shape.has_sequence {
        let tracker = state.tracker.get_or_insert_with(|| Box::new(SequenceTracker::new(modulus.unwrap_or(1 << 32))));
        // The gap's id of before is not known here: what fills it later refers to the frame that showed it.
        let source = Some(words[1] as i64).filter(|&t| t != NONE);
        tracker.restore(words[2] as i64, words[3] as u32, (words[0] as i64, source), row);
    }
    writer.restore(stream, shape, words, text, instant);
    report.frames += 1;
    Some(())
}

fn apply_control(writer: &mut Writer, kind: u16, bytes: &[u8]) -> Option<()> {
    let mut t = Take(bytes);
    if kind == Control::Stream as u16 {
        let (id, key, body) = catalog::decode_stream(&mut t)?;
        if (id.0 as usize) < writer.streams.len() {
            return Some(());
        }
        if id.0 as usize != writer.streams.len() || !writer.slots.has_room() {
            return None;
        }
        let mut history = catalog::ShapeHistory::default();
        let stream = catalog::apply_body(id, key, &[], &mut history, body)?;
        writer.add_stream(stream, history);
    } else if kind == Control::Channels as u16 {
        let (id, body) = catalog::decode_channels(&mut t)?;
        writer.apply_channels(id, body)?;
    }
    Some(())
}
