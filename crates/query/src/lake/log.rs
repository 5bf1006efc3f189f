//! The log of a lake: commits in their order, each an object that is written once.
//!
//! Format: docs/format/lake.md.

use std::collections::{BTreeMap, HashMap};

use object_store::path::Path;
use serde::{Deserialize, Serialize};
use strongback_store::StreamId;

use crate::lake::book::{Book, BookColumn};
use crate::lake::folder::Folder;

/// Version of the format.
const FORMAT: u32 = 1;
/// Folder of the log, and those below it.
const LOG: &str = "_strongback";
const COMMITS: &str = "commits";
const WRITING: &str = "writing";

/// Files and columns that are added at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Commit {
    /// Version of the format.
    pub(crate) format: u32,
    /// Origin of the store, in hexadecimal.
    pub(crate) origin: String,
    /// Number: 0, 1, 2, …
    pub(crate) commit: u64,
    /// Text that tells attempts at one commit apart.
    pub(crate) attempt: String,
    /// Time at the writer, in nanoseconds since 1970 UTC.
    pub(crate) time_ns: i64,
    /// New columns by table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<String, Vec<BookColumn>>,
    /// New files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<LakeFile>,
    /// First row of each stream that is not in the lake yet, of the streams for which it changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) next_rows: BTreeMap<u32, u64>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LakeFile {
    /// Path, from the folder of the lake.
    pub(crate) path: String,
    /// Table.
    pub(crate) table: String,
    /// Day of all its times, in UTC.
    pub(crate) day: String,
    /// Number of frames.
    pub(crate) rows: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) sha256: String,
    /// First and last `time`, in nanoseconds since 1970 UTC.
    pub(crate) time_ns: (i64, i64),
    /// Stream, first row, last row, number of rows.
    pub(crate) streams: Vec<(u32, u64, u64, u64)>,
}

/// Files that an attempt at a commit writes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// Number of the commit.
    pub(crate) commit: u64,
    /// Attempt.
    pub(crate) attempt: String,
    /// Paths.
    pub(crate) files: Vec<String>,
}

/// All commits, added up.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Origin of the store, in hexadecimal; empty before the first commit.
    pub(crate) origin: String,
    /// Number of the next commit.
    pub(crate) next: u64,
    /// Columns of each table.
    pub(crate) books: BTreeMap<String, Book>,
    /// First row of each stream that is not there.
    pub(crate) next_rows: HashMap<StreamId, u64>,
    /// Files by table.
    pub(crate) files: BTreeMap<String, Vec<LakeFile>>,
}

fn commit_path(number: u64) -> Path {
    Path::from_iter([LOG, COMMITS, &format!("{number:08}.json")])
}

fn intent_path(number: u64, attempt: &str) -> Path {
    Path::from_iter([LOG, WRITING, &format!("{number:08}-{attempt}.json")])
}

impl Commit {
    /// Returns a commit without contents.
    pub(crate) fn empty(origin: u128, commit: u64, time_ns: i64) -> Commit {
        let (origin, attempt) = (format!("{origin:032x}"), new_attempt());
        let (columns, next_rows) = (BTreeMap::new(), BTreeMap::new());
        Commit { format: FORMAT, origin, commit, attempt, time_ns, columns, files: Vec::new(), next_rows }
    }

    fn parse(number: u64, bytes: &[u8]) -> Result<Commit, String> {
        let about = |why: String| format!("{}: {why}", commit_path(number));
        let commit: Commit = serde_json::from_slice(bytes).map_err(|error| about(error.to_string()))?;
        match commit {
            Commit { format, .. } if format != FORMAT => {
                Err(about(format!("format {format} is not {FORMAT}: a newer Strongback wrote it")))
            }
            Commit { commit: other, .. } if other != number => Err(about(format!("it says that it is commit {other}"))),
            commit => Ok(commit),
        }
    }

    /// Writes it. Returns false if there is another one of its number.
    pub(crate) async fn put(&self, folder: &Folder) -> Result<bool, String> {
        let path = commit_path(self.commit);
        if folder.put(&path, json(self)?, true).await? {
            return Ok(true);
        }
        // It may be this one, whose first attempt was acknowledged to nobody.
        let Some(there) = folder.get(&path).await? else { return Err(format!("{path}: it is there, and it is not")) };
        Ok(Commit::parse(self.commit, &there).is_ok_and(|there| there.attempt == self.attempt))
    }
}

impl Intent {
    /// Writes it.
    pub(crate) async fn put(&self, folder: &Folder) -> Result<(), String> {
        folder.put(&intent_path(self.commit, &self.attempt), json(self)?, false).await.map(drop)
    }

    /// Removes it.
    pub(crate) async fn delete(&self, folder: &Folder) -> Result<(), String> {
        folder.delete([intent_path(self.commit, &self.attempt)]).await
    }

    /// Removes it with the files it names.
    pub(crate) async fn undo(&self, folder: &Folder) -> Result<(), String> {
        let paths: Result<Vec<Path>, _> = self.files.iter().map(Path::parse).collect();
        folder.delete(paths.map_err(|error| error.to_string())?).await?;
        self.delete(folder).await
    }
}

impl Log {
    /// Reads the commits that are not added up yet.
    ///
    /// # Errors
    /// Returns an error in words if one cannot be read, is missing, or is not one.
    pub(crate) async fn follow(&mut self, folder: &Folder) -> Result<(), String> {
        let listed = folder.list(&Path::from_iter([LOG, COMMITS])).await?;
        let number = |path: &Path| path.filename()?.strip_suffix(".json")?.parse::<u64>().ok();
        let last = listed.iter().filter_map(number).max();
        let known = last.map_or(self.next, |last| self.next.max(last + 1));
        let commits = folder.get_all((self.next..known).map(commit_path).collect()).await?;
        for (path, bytes) in commits {
            let bytes = bytes.ok_or_else(|| format!("{path} is missing, and later ones are there"))?;
            self.add(Commit::parse(self.next, &bytes)?)?;
        }
        // A listing may be older than the last commit.
        while let Some(bytes) = folder.get(&commit_path(self.next)).await? {
            self.add(Commit::parse(self.next, &bytes)?)?;
        }
        Ok(())
    }

    /// Adds a commit.
    pub(crate) fn add(&mut self, commit: Commit) -> Result<(), String> {
        if self.origin.is_empty() {
            self.origin = commit.origin;
        } else if self.origin != commit.origin {
            return Err(format!("{} is of another store than those before", commit_path(commit.commit)));
        }
        self.next = commit.commit + 1;
        for (table, columns) in commit.columns {
            let book = self.books.entry(table.clone()).or_default();
            columns
                .into_iter()
                .try_for_each(|column| book.add(column))
                .map_err(|why| format!("table {table:?}: {why}"))?;
        }
        for file in commit.files {
            self.files.entry(file.table.clone()).or_default().push(file);
        }
        self.next_rows.extend(commit.next_rows.into_iter().map(|(stream, row)| (StreamId(stream), row)));
        Ok(())
    }

    /// Returns the attempts whose files were not removed.
    pub(crate) async fn intents(&self, folder: &Folder) -> Result<Vec<Intent>, String> {
        let mut intents = Vec::new();
        for (path, bytes) in folder.get_all(folder.list(&Path::from_iter([LOG, WRITING])).await?).await? {
            let Some(bytes) = bytes else { continue };
            intents.push(serde_json::from_slice(&bytes).map_err(|error| format!("{path}: {error}"))?);
        }
        Ok(intents)
    }

    /// Returns whether a commit names a file.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.values().flatten().any(|file| file.path == path)
    }
}

/// Returns a text that no other attempt has.
fn new_attempt() -> String {
    let mut bytes = [0; 8];
    // Without random numbers, attempts of two processes could get the same name.
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:016x}", u64::from_le_bytes(bytes))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}
