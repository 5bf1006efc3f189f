//! Repair: a new store from the readable parts of an old one, and reading a store that does not open.
//!
//! ```text
//!  superblock copies ─┐
//!  checkpoints A, B  ─┼─> metadata ─┐
//!  footers, groups   ─┴─> segments ─┼─> [new store] ─> opened as any other
//!  units of the log  ────> log ─────┘
//! ```
//! Nothing is written to the old store. Blocks whose checksums match are copied unchanged, and each row once;
//! segments that are intact are copied, others are rebuilt from their intact blocks. Rows keep their numbers. Rows
//! lost between others become a row of `strongback.gaps` with the cause `damaged`.
//!
//! | found | done |
//! |---|---|
//! | the newest checkpoint is whole | its segments, streams and groups are used |
//! | it is damaged | the checkpoint file with more data is used as far as its parts fit, and unlisted segments too |
//! | no checkpoint can be read | streams are defined by footers and the log |
//! | a segment without a footer | its write groups are read one by one |
//! | a damaged block | it is left out, and the other blocks of its segment are kept |
//! | rows in two segments | those of the older number are used, unless the newer segment replaces the older |
//! | a page that the disk cannot read | it is treated as damaged, and the data around it is read |
//! | a damaged unit in the log | units behind it are used where their frames fit |

mod build;
mod log;
mod metadata;
pub(crate) mod overlay;
mod segments;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use self::build::Losses;
use self::source::Source;
use crate::append::ledger::{Gap, GapCause};
use crate::disk::fixed::FixedDisk;
use crate::disk::io_error;
use crate::disk::names;
use crate::disk::real::RealDisk;
use crate::disk::{Access, Disk};
use crate::model::damage::Damage;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::open::recovery::gap_of_log;
use crate::repair::overlay::{Overlay, OverlayVolume, ReadFolder};
use crate::store::Store;
use crate::upkeep::lost::LostRows;
use crate::upkeep::lost::gap_of_rows;
use crate::{OpenError, Scan, StoreOptions, Value};

/// Max number of streams that are copied: more than any store is meant to have.
const STREAMS_MAX: u32 = 1 << 24;

/// Lost rows of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Name of the stream.
    pub stream: String,
    /// Range of lost rows.
    pub rows: Range<u64>,
    /// `time` of the frame before and of the frame after.
    pub time: (i64, i64),
}

/// Result of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Damage found.
    pub damage: Vec<Damage>,
    /// Whether the newest checkpoint is intact.
    pub newest_checkpoint: bool,
    /// Number of segments copied unchanged.
    pub segments_kept: u64,
    /// Number of segments rebuilt from their intact blocks.
    pub segments_rebuilt: u64,
    /// Number of segments of which nothing is left.
    pub segments_lost: u64,
    /// Number of rows in the new segments.
    pub rows: u64,
    /// Number of commits kept from the log.
    pub log_commits: u64,
    /// Number of frames recovered from those commits.
    pub log_frames: u64,
    /// Rows that are lost between others.
    pub lost: Vec<LostRange>,
    /// Number of streams in the new store.
    pub streams: u64,
}

impl RepairReport {
    /// Returns the number of lost rows.
    pub fn lost_rows(&self) -> u64 {
        self.lost.iter().map(|lost| lost.rows.end - lost.rows.start).sum()
    }

    /// Returns whether nothing was damaged or lost.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty()
    }

    fn damaged(&mut self, file: &str, offset: u64, reason: impl ToString) {
        self.damage.push(Damage { file: file.to_owned(), offset, reason: reason.to_string() });
    }
}

/// Builds a new store in `into`, a folder that is empty or does not exist yet, from the readable parts of the store
/// `from`: a folder, or a file or device of a fixed size that no other process uses. Nothing is written to `from`.
/// `now` is nanoseconds since 1970 UTC.
///
/// # Errors
/// [`OpenError`] if `from` is in use or not a store, `into` is not empty, or the disk fails. Damage is not an error,
/// but part of the report.
pub fn repair(from: &Path, into: &Path, now: i64) -> Result<RepairReport, OpenError> {
    let source = Source::open(from)?;
    let name = into.display().to_string();
    let disk = RealDisk::new(into).map_err(|source| OpenError::Io { path: name.clone(), source })?;
    let fails = io_error(&disk, "");
    if let Some((file, _)) = disk.list().map_err(fails)?.first() {
        let reason = format!("holds {file}: give a folder that is empty or not there yet");
        return Err(OpenError::Options { path: name, reason });
    }
    let target: Arc<dyn Disk> = Arc::new(disk);
    let (mut report, losses) = build::build(&source, &target, true)?;
    let options =
        StoreOptions { max_bytes: Some(1 << 60), max_streams: STREAMS_MAX, settle: false, ..StoreOptions::default() };
    let store = Store::open_on(target, options, now)?;
    let opened = store.recovery();
    (report.log_frames, report.streams) = (opened.frames, store.catalog().streams.len() as u64);
    report.lost = tell(&store, losses, now);
    let closed = store.commit(now).and_then(|_| store.close(now));
    closed.map_err(|refusal| OpenError::Damaged { path: name, reason: format!("the new store: {refusal}") })?;
    Ok(report)
}

/// Lost ranges of rows by stream, with the `time` before and after.
pub(crate) type LostByStream = BTreeMap<u32, Vec<(Range<u64>, (i64, i64))>>;

/// Reports damage of the log, and lost rows that `strongback.gaps` does not have yet. Returns all rows with stream names.
fn tell(store: &Store, Losses { rows: lost, log, files }: Losses, now: i64) -> Vec<LostRange> {
    for (before, after) in log {
        let (before, after) = (before.or(after).unwrap_or(now), after.unwrap_or(now));
        store.report_gap(gap_of_log(GapCause::Damaged, (before.min(after), after)));
    }
    for name in files {
        store.report_gap(Gap { name, ..gap_of_log(GapCause::Damaged, (now, now)) });
    }
    let told = told_before(store);
    // The commit includes the gaps that recovery found. A store that refuses writes already has all its gaps.
    let _ = store.commit(now);
    let told_now = told_before(store);
    let mut all = Vec::new();
    for (id, ranges) in lost {
        let Some(stream) = store.catalog().stream(StreamId(id)).cloned() else { continue };
        for (rows, time) in ranges {
            all.extend(left_of(rows.clone(), told.get(&id)).into_iter().map(|rows| LostRange {
                stream: stream.key.to_string(),
                rows,
                time,
            }));
            for rows in left_of(rows, told_now.get(&id)) {
                let time = if time.0 <= time.1 { time } else { (now, now) };
                store.report_gap(gap_of_rows(&stream, &LostRows { stream: id, rows, time }));
            }
        }
    }
    all
}

/// Returns the parts of a range outside others.
fn left_of(rows: Range<u64>, known: Option<&Vec<Range<u64>>>) -> Vec<Range<u64>> {
    let mut left = vec![rows];
    for known in known.into_iter().flatten() {
        left = left.into_iter().flat_map(|rows| without(rows, known)).collect();
    }
    left.retain(|rows| rows.start < rows.end);
    left
}

/// Returns the parts of a range outside another one.
fn without(rows: Range<u64>, known: &Range<u64>) -> [Range<u64>; 2] {
    let before = rows.start..rows.end.min(known.start.max(rows.start));
    let after = rows.start.max(known.end.min(rows.end))..rows.end;
    if known.start >= rows.end || known.end <= rows.start {
        [rows.clone(), rows.end..rows.end]
    } else {
        [before, after]
    }
}

/// Returns the rows by stream that `strongback.gaps` reports as lost.
fn told_before(store: &Store) -> BTreeMap<u32, Vec<Range<u64>>> {
    let mut told: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == crate::catalog::group::GAPS_TABLE).cloned()
    else {
        return told;
    };
    let columns: Option<Vec<ChannelIndex>> =
        ["stream", "from_row", "to_row"].into_iter().map(|name| table.layout.index(name)).collect();
    let Some(columns) = columns else { return told };
    for batch in view.scan(Scan::all(table.id, columns)).filter_map(Result::ok) {
        for row in 0..batch.len() {
            let cell = |n: usize| batch.columns.get(n).and_then(|column| column.cell(row).ok());
            if let (Some(Value::U32(stream)), Some(Value::U64(from)), Some(Value::U64(to))) =
                (cell(0), cell(1), cell(2))
            {
                told.entry(stream).or_default().push(from..to.saturating_add(1));
            }
        }
    }
    told
}

impl Store {
    /// Opens a store for reading and changes nothing: the store may be a copy or on read-only media. Recovery writes
    /// to memory only. If the store does not open because its checkpoint, superblock or log is damaged or missing,
    /// the readable parts are found as by [`repair`], and [`Store::recovery`] lists the damage. Appends are refused.
    ///
    /// # Errors
    /// [`OpenError`] if a writer has the store open, it is not a store or has an unknown format, or the disk fails.
    pub fn open_read_only(path: &Path, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        let fails = |source| OpenError::Io { path: path.display().to_string(), source };
        let is_folder = std::fs::metadata(path).map_err(fails)?.is_dir();
        let refused = match open_as_it_is(path, is_folder, &options, now) {
            Ok(store) => return Ok(store.into_read_only(now)),
            Err(error @ (OpenError::Damaged { .. } | OpenError::Io { .. })) => error,
            Err(error) => return Err(error),
        };
        // Work around the damage as repair does; if that fails, return the original error.
        let Ok(source) = Source::open(path) else { return Err(refused) };
        if !source.has_data() {
            return Err(refused);
        }
        let target: Arc<dyn Disk> = Arc::new(Overlay::new(source.files()));
        let (report, losses) = build::build(&source, &target, false)?;
        let options = StoreOptions {
            max_bytes: Some(1 << 60),
            max_streams: options.max_streams.max(STREAMS_MAX),
            retention: Vec::new(),
            ..options
        };
        // The source already holds the lock against writers.
        let mut store = Store::open_on(target, options, now)?;
        tell(&store, losses, now);
        store.add_damage(report.damage);
        Ok(store.into_read_only(now))
    }
}

fn open_as_it_is(path: &Path, is_folder: bool, options: &StoreOptions, now: i64) -> Result<Store, OpenError> {
    let fails = |source| OpenError::Io { path: path.display().to_string(), source };
    if is_folder {
        let disk = Overlay::new(Arc::new(ReadFolder(path.to_owned())));
        disk.open(names::SUPERBLOCK, Access::Log).map_err(io_error(&disk, names::SUPERBLOCK))?;
        return Store::open_on(Arc::new(disk), options.clone(), now);
    }
    let volume = OverlayVolume::new(path).map_err(fails)?;
    Store::open_on(Arc::new(FixedDisk::open(Arc::new(volume))?), options.clone(), now)
}
