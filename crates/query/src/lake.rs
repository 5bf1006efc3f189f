//! The lake: stored frames as Parquet files on object storage or in a folder, for Spark, Trino, DuckDB and others.
//!
//! ```text
//! TABLE/2026-11-30/00000042-9f3a61c2d0e7b415.parquet       frames of one day, by stream and time
//! _strongback/commits/00000042.json                        what commit 42 adds: files, columns, positions
//! _strongback/writing/00000042-9f3a61c2d0e7b415.json       files that an attempt at commit 42 writes
//! ```
//!
//! A file counts from the commit on that names it. Commits are written once, under numbers without a hole, so two
//! writers cannot both have one. Files of an attempt that came to nothing are removed at the next start: only after its
//! number is taken by another commit, so that nobody can still commit it.
//!
//! Format: docs/format/lake.md.

mod book;
mod file;
mod folder;
mod frames;
mod history;
mod log;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::temporal_conversions::date32_to_datetime;
use object_store::path::Path;
use sha2::{Digest, Sha256};
use strongback_store::{Catalog, Stream, StreamId};
use tokio::runtime::Runtime;

use crate::table::column::{ColumnSource, TableColumn, table_columns, tables};
use folder::Folder;
pub use folder::LakePlace;
pub use frames::LakeFrames;
use frames::TableFrames;
use history::Known;
pub use history::LakeHistory;
use log::{Commit, Intent, LakeFile, Log};

/// Reason why frames are not in the lake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LakeError {
    /// The storage takes nothing now, or what is there is not ours.
    #[error("{0}")]
    Unavailable(String),
    /// Somebody else wrote to the lake. Positions must be read again.
    #[error("{0}")]
    Moved(String),
    /// The frames of a table cannot be in a file.
    #[error("table {table:?}: {reason}")]
    Table {
        /// Table.
        table: String,
        /// Reason.
        reason: String,
    },
}

/// Connects to the folder of a lake.
type Connect = Box<dyn Fn() -> Result<Folder, String> + Send>;

/// Writer of a lake.
pub struct LakeWriter {
    connect: Connect,
    origin: u128,
    runtime: Runtime,
    folder: Option<Folder>,
    known: Arc<Known>,
}

impl std::fmt::Debug for LakeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LakeWriter").finish_non_exhaustive()
    }
}

impl LakeWriter {
    /// Prepares a writer for a store of this origin. What it knows of the lake, `history` knows, too.
    ///
    /// # Errors
    /// Returns an error in words if the address is wrong, or no runtime can be had.
    pub fn new(place: LakePlace, origin: u128, history: Option<&LakeHistory>) -> Result<LakeWriter, String> {
        place.check().map_err(|(key, why)| format!("{key}: {why}"))?;
        let known = history.map(|history| history.known.clone()).unwrap_or_default();
        LakeWriter::connecting(Box::new(move || place.open()), origin, known)
    }

    fn connecting(connect: Connect, origin: u128, known: Arc<Known>) -> Result<LakeWriter, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(LakeWriter { connect, origin, runtime: runtime.map_err(|error| error.to_string())?, folder: None, known })
    }

    /// Reads the log, removes what came to nothing, and returns the first row of each stream that is not in the lake.
    ///
    /// # Errors
    /// Returns an error if the storage cannot be used, or has the frames of another store.
    pub fn open(&mut self, now_ns: i64) -> Result<HashMap<StreamId, u64>, LakeError> {
        self.folder = None;
        let folder = (self.connect)().map_err(LakeError::Unavailable)?;
        let log = self.runtime.block_on(open(&folder, self.origin, now_ns)).map_err(LakeError::Unavailable)?;
        let next_rows = log.next_rows.clone();
        *self.known.log.write() = Some(log);
        self.folder = Some(folder);
        Ok(next_rows)
    }

    /// Writes frames with one commit. Returns the bytes of the files.
    ///
    /// # Errors
    /// Returns an error if not all frames are in the lake then; none are.
    pub fn write(&mut self, catalog: &Catalog, frames: &[LakeFrames<'_>], now_ns: i64) -> Result<u64, LakeError> {
        // Nobody else writes to what is known.
        let known = self.known.log.read();
        let (Some(folder), Some(log)) = (&self.folder, &*known) else {
            return Err(LakeError::Unavailable("the lake is not open".to_owned()));
        };
        let mut commit = Commit::empty(self.origin, log.next, now_ns);
        for part in frames {
            let end = part.batch.rows.last().map_or(0, |row| row + 1);
            let next = commit.next_rows.entry(part.stream.id.0).or_insert(0);
            *next = (*next).max(end);
        }
        let mut files = Vec::new();
        for (table, (frames, streams)) in by_table(catalog, frames) {
            let made = make(&table, &frames, &streams, self.origin, log, &mut commit);
            files.extend(made.map_err(|reason| LakeError::Table { table, reason })?);
        }
        let intent = Intent {
            commit: commit.commit,
            attempt: commit.attempt.clone(),
            files: commit.files.iter().map(|file| file.path.clone()).collect(),
        };
        drop(known);
        let bytes = commit.files.iter().map(|file| file.bytes).sum();
        let number = commit.commit;
        let written = self.runtime.block_on(async {
            intent.put(folder).await?;
            for (path, bytes) in files {
                folder.put(&path, bytes, false).await?;
            }
            if !commit.put(folder).await? {
                // The number is taken, so nobody can still commit these files.
                intent.undo(folder).await?;
                return Ok(false);
            }
            if let Err(why) = intent.delete(folder).await {
                tracing::debug!("lake: {why}");
            }
            Ok(true)
        });
        match written {
            Ok(true) => {
                if let Some(log) = &mut *self.known.log.write() {
                    log.add(commit).map_err(LakeError::Unavailable)?;
                }
                Ok(bytes)
            }
            Ok(false) => {
                let why = format!("commit {number} of the lake is another writer's: two write to one lake");
                Err(LakeError::Moved(why))
            }
            Err(why) => Err(LakeError::Unavailable(why)),
        }
    }
}

async fn open(folder: &Folder, origin: u128, now_ns: i64) -> Result<Log, String> {
    let mut log = Log::default();
    log.follow(folder).await?;
    let own = format!("{origin:032x}");
    if !log.origin.is_empty() && log.origin != own {
        return Err(format!(
            "the lake has the frames of another store, of origin {}, and this one is {own}; each store needs a lake of \
             its own",
            log.origin
        ));
    }
    let intents = log.intents(folder).await?;
    if intents.iter().any(|intent| intent.commit >= log.next) {
        let commit = Commit::empty(origin, log.next, now_ns);
        if !commit.put(folder).await? {
            return Err(format!("commit {} of the lake is another writer's: two write to one lake", log.next));
        }
        log.add(commit)?;
    }
    for mut intent in intents.into_iter().filter(|intent| intent.commit < log.next) {
        intent.files.retain(|path| !log.has(path));
        intent.undo(folder).await?;
    }
    Ok(log)
}

/// Frames of a table, and all streams of the table.
type OfTable<'a> = (Vec<LakeFrames<'a>>, Vec<Arc<Stream>>);

fn by_table<'a>(catalog: &Catalog, frames: &[LakeFrames<'a>]) -> BTreeMap<String, OfTable<'a>> {
    let mut streams = tables(&catalog.streams);
    let mut found: BTreeMap<String, OfTable<'a>> = BTreeMap::new();
    for part in frames {
        let table = &part.stream.key.table;
        let new = || (Vec::new(), streams.remove(table).unwrap_or_default());
        found.entry(table.clone()).or_insert_with(new).0.push(*part);
    }
    found
}

/// Makes the files of a table, and notes them in the commit.
fn make(
    table: &str,
    frames: &[LakeFrames<'_>],
    streams: &[Arc<Stream>],
    origin: u128,
    log: &Log,
    commit: &mut Commit,
) -> Result<Vec<(Path, Vec<u8>)>, String> {
    let mut book = log.books.get(table).cloned().unwrap_or_default();
    let known = book.columns().len();
    let columns = table_columns(streams);
    let rows = TableFrames::new(frames, &columns, origin, &mut book)?;
    let is_tag = |column: &&TableColumn| matches!(column.source, ColumnSource::Tag(_));
    let tags: Vec<&str> = columns.iter().filter(is_tag).map(|column| column.name.as_str()).collect();
    let in_files: Vec<_> = rows.columns(&book).collect();
    let mut files = Vec::new();
    for (day, entries) in rows.days() {
        let bytes = file::write(&in_files, &tags, rows.batches(entries.clone(), &book))?;
        let day = i32::try_from(day).ok().and_then(date32_to_datetime).map(|date| date.format("%Y-%m-%d").to_string());
        let day = day.ok_or("a day is out of range")?;
        let path = Path::from_iter([table, &day, &format!("{:08}-{}.parquet", commit.commit, commit.attempt)]);
        commit.files.push(LakeFile {
            path: path.to_string(),
            table: table.to_owned(),
            day,
            rows: entries.len() as u64,
            bytes: bytes.len() as u64,
            sha256: Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
            time_ns: rows.time_range(entries.clone()),
            streams: rows.streams(entries),
        });
        files.push((path, bytes));
    }
    let new = book.columns()[known..].to_vec();
    if !new.is_empty() {
        commit.columns.insert(table.to_owned(), new);
    }
    Ok(files)
}
