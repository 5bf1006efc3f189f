//! Repair: a new store from whatever of an old one can be read, and reading what is left where a store does not open.
//!
//! ```text
//!  superblock copies ─┐
//!  checkpoints A, B  ─┼─> metadata ─┐
//!  footers, groups   ─┴─> segments ─┼─> [new store] ─> opened as any other
//!  units of the log  ────> log ─────┘
//! ```
//! Nothing is written to the old store. Blocks are taken over as they are if their checksums hold, and each row once;
//! segments that are whole are copied, others are built anew from the blocks that are. Rows keep their numbers. What is
//! lost between rows that are left becomes a row of `strongback.gaps` with the cause `damaged`.
//!
//! | found | done |
//! |---|---|
//! | the newest checkpoint is whole | its segments, streams and groups count |
//! | it is not | the checkpoint file that says more, as far as its parts fit each other; segments of no checkpoint count too |
//! | no checkpoint can be read | streams as footers and the log define them |
//! | a segment without a footer | its write groups are walked |
//! | a damaged block | it is left out, and the other blocks of its segment are taken |
//! | rows that are in two segments | those of the older number count, unless the newer one says that it stands for it |
//! | a page that the disk cannot read | it is taken for damaged bytes, and what lies around it is read |
//! | a damaged unit in the log | units behind it are taken where their frames fit |

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

use self::source::Source;
use crate::disk::fixed::FixedDisk;
use crate::disk::io_error;
use crate::disk::names;
use crate::disk::real::RealDisk;
use crate::disk::{Access, Disk};
use crate::model::damage::Damage;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::repair::overlay::{Overlay, OverlayVolume, ReadFolder};
use crate::store::Store;
use crate::upkeep::lost::LostRows;
use crate::upkeep::lost::gap_of_rows;
use crate::{OpenError, Scan, StoreOptions, Value};

/// Streams that are taken over: more than any store is meant to have.
const STREAMS_MAX: u32 = 1 << 24;

/// Rows of a stream that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Name of the stream.
    pub stream: String,
    /// The rows.
    pub rows: Range<u64>,
    /// `time` of the frame before and of the one after.
    pub time: (i64, i64),
}

/// What a repair found and did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What is not as it was written.
    pub damage: Vec<Damage>,
    /// Whether the newest checkpoint is whole.
    pub newest_checkpoint: bool,
    /// Segments that were taken over as they are.
    pub segments_kept: u64,
    /// Segments that were built anew from the blocks in them.
    pub segments_rebuilt: u64,
    /// Segments of which nothing is left.
    pub segments_lost: u64,
    /// Rows in segments that were taken over.
    pub rows: u64,
    /// Commits of the log that were taken over.
    pub log_commits: u64,
    /// Frames that they brought back.
    pub log_frames: u64,
    /// Rows that are lost, between rows that are left.
    pub lost: Vec<LostRange>,
    /// Streams in the new store.
    pub streams: u64,
}

impl RepairReport {
    /// Rows that are lost.
    pub fn lost_rows(&self) -> u64 {
        self.lost.iter().map(|lost| lost.rows.end - lost.rows.start).sum()
    }

    /// Whether everything was there.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty()
    }

    fn damaged(&mut self, file: &str, offset: u64, reason: impl ToString) {
        self.damage.push(Damage { file: file.to_owned(), offset, reason: reason.to_string() });
    }
}

/// Builds a new store, a folder that is not there yet or empty, from whatever of the store `from` can be read: a folder,
/// or a file or device of a fixed size, which nobody else may be using. Nothing is written to `from`. `now` is
/// nanoseconds since 1970 UTC.
///
/// # Errors
/// [`OpenError`]: `from` is in use or no store, `into` holds something, or the disk refuses. Damage is no error, but
/// part of the report.
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
    let (mut report, lost) = build::build(&source, &target, true)?;
    let options =
        StoreOptions { max_bytes: Some(1 << 60), max_streams: STREAMS_MAX, settle: false, ..StoreOptions::default() };
    let store = Store::open_on(target, options, now)?;
    let opened = store.recovery();
    (report.log_frames, report.streams) = (opened.frames, store.catalog().streams.len() as u64);
    report.lost = tell(&store, lost, now);
    let closed = store.commit(now).and_then(|_| store.close(now));
    closed.map_err(|refusal| OpenError::Damaged { path: name, reason: format!("the new store: {refusal}") })?;
    Ok(report)
}

/// Ranges of rows by stream: the rows, and `time` before and after.
pub(crate) type LostByStream = BTreeMap<u32, Vec<(Range<u64>, (i64, i64))>>;

/// Tells of lost rows that `strongback.gaps` does not have; returns all of them with names.
fn tell(store: &Store, lost: LostByStream, now: i64) -> Vec<LostRange> {
    let told = told_before(store);
    // With it come the gaps that recovery found itself. A store that takes nothing has told all there is to tell.
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

/// What of a range is outside others.
fn left_of(rows: Range<u64>, known: Option<&Vec<Range<u64>>>) -> Vec<Range<u64>> {
    let mut left = vec![rows];
    for known in known.into_iter().flatten() {
        left = left.into_iter().flat_map(|rows| without(rows, known)).collect();
    }
    left.retain(|rows| rows.start < rows.end);
    left
}

/// What of a range is outside another one.
fn without(rows: Range<u64>, known: &Range<u64>) -> [Range<u64>; 2] {
    let before = rows.start..rows.end.min(known.start.max(rows.start));
    let after = rows.start.max(known.end.min(rows.end))..rows.end;
    if known.start >= rows.end || known.end <= rows.start {
        [rows.clone(), rows.end..rows.end]
    } else {
        [before, after]
    }
}

/// Rows by stream that `strongback.gaps` tells as lost.
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
    /// Opens a store to read what is in it, and changes nothing: it may lie on read-only media, and be a copy. What
    /// recovery would write stays in memory. Where the store does not open, because its checkpoint, superblock or log is
    /// damaged or missing, what is left of it is found as [`repair`] finds it, and [`Store::recovery`] names the damage.
    /// Appends are refused.
    ///
    /// # Errors
    /// [`OpenError`]: a writer has it, it is no store, newer, or the disk refuses.
    pub fn open_read_only(path: &Path, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        let fails = |source| OpenError::Io { path: path.display().to_string(), source };
        let is_folder = std::fs::metadata(path).map_err(fails)?.is_dir();
        let refused = match open_as_it_is(path, is_folder, &options, now) {
            Ok(store) => return Ok(store.into_read_only(now)),
            Err(error @ (OpenError::Damaged { .. } | OpenError::Io { .. })) => error,
            Err(error) => return Err(error),
        };
        // Damage that repair gets around; what it does not is told as it was.
        let Ok(source) = Source::open(path) else { return Err(refused) };
        if !source.has_data() {
            return Err(refused);
        }
        let target: Arc<dyn Disk> = Arc::new(Overlay::new(source.files()));
        let (report, lost) = build::build(&source, &target, false)?;
        let options = StoreOptions {
            max_bytes: Some(1 << 60),
            max_streams: options.max_streams.max(STREAMS_MAX),
            retention: Vec::new(),
            ..options
        };
        // Of a source that keeps writers out already.
        let mut store = Store::open_on(target, options, now)?;
        tell(&store, lost, now);
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
