//! Definitions of derived channels and their versions, saved in a file next to the store.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::definition::{Definition, DerivedTable, in_order};

/// Name of the file.
const FILE: &str = "derived.json";
/// Max derived channels.
const DERIVED_MAX: usize = 256;
/// Max earlier versions, and max backfills, kept per derived channel.
const HISTORY_MAX: usize = 100;

/// Derived channel with its versions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DerivedEntry {
    /// Current definition.
    pub definition: DerivedTable,
    /// Current version, which rises with each change of its results.
    pub version: u32,
    /// Time at which the version came into force, nanoseconds since 1970 UTC.
    pub since: i64,
    /// Whether it is defined by the configuration.
    pub configured: bool,
    /// Whether it was removed; its version numbers continue if it is defined again.
    pub removed: bool,
    /// Earlier versions.
    pub earlier: Vec<Earlier>,
    /// Backfills of the past.
    pub backfills: Vec<Backfill>,
}

/// Version that is no longer in force.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Earlier {
    /// Number of the version.
    pub version: u32,
    /// Time at which it came into force, nanoseconds since 1970 UTC.
    pub since: i64,
    /// Definition of the version.
    pub definition: DerivedTable,
}

/// Version written for a past interval.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Backfill {
    /// Number of the version, as in `3.1`: the first backfill of version 3.
    pub version: String,
    /// Start of the interval of `time`, nanoseconds since 1970 UTC.
    pub from: i64,
    /// End of the interval, exclusive.
    pub to: i64,
    /// Whether it includes frames that live left out for being late.
    pub late: bool,
    /// State: `running`, `done`, `interrupted`, or the reason why it failed.
    pub state: String,
    /// `time` up to which results are written.
    pub at: i64,
    /// Results written.
    pub frames: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Saved {
    derived: BTreeMap<String, DerivedEntry>,
}

/// All derived channels.
#[derive(Debug, Default)]
pub struct Definitions {
    entries: BTreeMap<String, DerivedEntry>,
    file: PathBuf,
    /// Counter that rises with each change.
    pub changes: u64,
}

/// Reason why a derived channel cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// Invalid definition.
    #[error("{0}")]
    Bad(String),
    /// Unknown name.
    #[error("there is no derived channel {0:?}")]
    Unknown(String),
    /// Conflict with the configuration or with other derived channels.
    #[error("{0}")]
    Conflict(String),
    /// Failure to read or write the file.
    #[error("{file}: {source}")]
    File {
        /// Path of the file.
        file: String,
        /// Cause.
        source: std::io::Error,
    },
}

impl Definitions {
    /// Reads the file next to a store, and applies the configuration.
    ///
    /// # Errors
    /// Returns an error if the file is malformed or cannot be read or written, or a definition is invalid.
    pub fn open(folder: &Path, configured: &[DerivedTable], now: i64) -> Result<Definitions, BookError> {
        let file = folder.join(FILE);
        let failed = |source| BookError::File { file: file.display().to_string(), source };
        let saved: Saved = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(failed(error)),
        };
        let mut book = Definitions { entries: saved.derived, file, changes: 1 };
        let before = book.entries.clone();
        for backfill in book.entries.values_mut().flat_map(|entry| &mut entry.backfills) {
            if backfill.state == "running" {
                "interrupted".clone_into(&mut backfill.state);
            }
        }
        for (name, entry) in &mut book.entries {
            if entry.configured && !configured.iter().any(|table| table.name == *name) {
                entry.removed = true;
            }
        }
        for table in configured {
            book.check(table)?;
            book.take(table.clone(), true, now);
        }
        if book.entries != before {
            book.save()?;
        }
        Ok(book)
    }

    /// Returns the derived channels in force, each after those it depends on.
    pub fn in_force(&self) -> Vec<(Definition, DerivedEntry)> {
        let of = |entry: &&DerivedEntry| !entry.removed;
        // Each was checked when it was added.
        let mut all: Vec<Option<(Definition, DerivedEntry)>> = self
            .entries
            .values()
            .filter(of)
            .filter_map(|entry| Some(Some((entry.definition.definition().ok()?, entry.clone()))))
            .collect();
        let definitions: Vec<&Definition> = all.iter().flatten().map(|(definition, _)| definition).collect();
        let order = in_order(&definitions).unwrap_or_default();
        order.into_iter().filter_map(|at| all[at].take()).collect()
    }

    /// Returns a derived channel by its name, or `None` if it does not exist or was removed.
    pub fn get(&self, name: &str) -> Option<&DerivedEntry> {
        self.entries.get(name).filter(|entry| !entry.removed)
    }

    /// Checks a definition together with the others, and parses it.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub fn check(&self, table: &DerivedTable) -> Result<Definition, BookError> {
        let definition = table.definition().map_err(BookError::Bad)?;
        table.check_functions().map_err(BookError::Bad)?;
        let others: Vec<(Definition, DerivedEntry)> =
            self.in_force().into_iter().filter(|(_, entry)| entry.definition.name != table.name).collect();
        if others.len() >= DERIVED_MAX {
            return Err(BookError::Bad(format!("there are {DERIVED_MAX} derived channels, and can be no more")));
        }
        if let Some((other, _)) = others.iter().find(|(other, _)| other.path() == definition.path()) {
            return Err(BookError::Bad(format!("{:?} is that channel already", other.table.name)));
        }
        let mut all: Vec<&Definition> = others.iter().map(|(other, _)| other).collect();
        all.push(&definition);
        in_order(&all).map_err(BookError::Bad)?;
        Ok(definition)
    }

    /// Puts a definition in force. Returns its version, which is a new one if its results change; derived channels
    /// that depend on it then get new versions as well.
    ///
    /// # Errors
    /// Returns an error if it is invalid, defined by the configuration, or cannot be saved.
    pub fn put(&mut self, table: DerivedTable, now: i64) -> Result<u32, BookError> {
        self.check(&table)?;
        self.is_free(&table.name)?;
        let (name, before) = (table.name.clone(), self.entries.clone());
        let version = self.take(table, false, now);
        match self.save() {
            Ok(()) => Ok(version),
            Err(error) => {
                tracing::error!("derived channel {name:?} was not changed: {error}");
                self.entries = before;
                Err(error)
            }
        }
    }

    /// Removes a derived channel. Its results stay.
    ///
    /// # Errors
    /// Returns an error if it does not exist, is defined by the configuration, or another depends on it.
    pub fn remove(&mut self, name: &str) -> Result<(), BookError> {
        let entry = self.get(name).ok_or_else(|| BookError::Unknown(name.to_owned()))?;
        let definition = entry.definition.definition().map_err(BookError::Bad)?;
        self.is_free(name)?;
        let user = self.in_force().into_iter().find(|(other, _)| other.table.name != name && other.needs(&definition));
        if let Some((user, _)) = user {
            return Err(BookError::Conflict(format!("{:?} needs it", user.table.name)));
        }
        let before = self.entries.clone();
        if let Some(entry) = self.entries.get_mut(name) {
            entry.removed = true;
        }
        self.changes += 1;
        self.save().inspect_err(|_| self.entries = before)
    }

    fn is_free(&self, name: &str) -> Result<(), BookError> {
        match self.get(name) {
            Some(entry) if entry.configured => {
                Err(BookError::Conflict(format!("{name:?} is of the configuration: change it there")))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, table: DerivedTable, configured: bool, now: i64) -> u32 {
        self.changes += 1;
        let name = table.name.clone();
        let Some(entry) = self.entries.get_mut(&name) else {
            self.entries.insert(name, DerivedEntry { configured, ..DerivedEntry::first(table, now) });
            return 1;
        };
        let is_new = entry.removed || entry.definition.differs(&table);
        if is_new {
            entry.next(now);
        }
        (entry.definition, entry.configured, entry.removed) = (table, configured, false);
        let version = entry.version;
        if is_new {
            self.renew_users(&name, now);
        }
        version
    }

    /// Gives new versions to all that depend on it, directly or not, because their results change as well.
    fn renew_users(&mut self, name: &str, now: i64) {
        let all = self.in_force();
        let mut renewed = vec![name.to_owned()];
        for (definition, entry) in &all {
            let of = |other: &&(Definition, DerivedEntry)| renewed.contains(&other.1.definition.name);
            if entry.definition.name != name && all.iter().filter(of).any(|(other, _)| definition.needs(other)) {
                renewed.push(entry.definition.name.clone());
            }
        }
        for name in &renewed[1..] {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.next(now);
            }
        }
    }

    /// Adds a backfill that begins. Returns its version.
    ///
    /// # Errors
    /// Returns an error if there is no such derived channel, or it cannot be saved.
    pub fn begin_backfill(&mut self, name: &str, from: i64, to: i64, late: bool) -> Result<String, BookError> {
        let entry = self.get(name).cloned().ok_or_else(|| BookError::Unknown(name.to_owned()))?;
        let of = format!("{}.", entry.version);
        let numbers = entry.backfills.iter().filter_map(|done| done.version.strip_prefix(&of)?.parse::<u32>().ok());
        let version = format!("{of}{}", numbers.max().unwrap_or(0) + 1);
        if let Some(entry) = self.entries.get_mut(name) {
            let state = "running".to_owned();
            entry.backfills.push(Backfill { version: version.clone(), from, to, late, state, at: from, frames: 0 });
            let over = entry.backfills.len().saturating_sub(HISTORY_MAX);
            entry.backfills.drain(..over);
        }
        self.save().inspect_err(|_| {
            self.entries.insert(name.to_owned(), entry);
        })?;
        Ok(version)
    }

    /// Updates the progress of a backfill; saved in the file when it ends.
    pub fn note_backfill(&mut self, name: &str, version: &str, at: i64, frames: u64, state: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(backfill) = entry.backfills.iter_mut().find(|backfill| backfill.version == version) else { return };
        (backfill.at, backfill.frames) = (at, frames);
        state.clone_into(&mut backfill.state);
        if state != "running"
            && let Err(error) = self.save()
        {
            tracing::error!("how backfill {version} of {name:?} ended is not kept: {error}");
        }
    }

    fn save(&self) -> Result<(), BookError> {
        let saved = Saved { derived: self.entries.clone() };
        let written = || -> std::io::Result<()> {
            let bytes = serde_json::to_vec_pretty(&saved)?;
            let folder = self.file.parent().unwrap_or(Path::new("."));
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&bytes)?;
            file.as_file().sync_all()?;
            file.persist(&self.file).map_err(|error| error.error)?;
            std::fs::File::open(folder)?.sync_all()
        };
        written().map_err(|source| BookError::File { file: self.file.display().to_string(), source })
    }
}

impl DerivedEntry {
    /// Creates the first version of a definition, in force from `now` on (nanoseconds since 1970 UTC).
    pub fn first(definition: DerivedTable, now: i64) -> DerivedEntry {
        let (earlier, backfills) = (Vec::new(), Vec::new());
        DerivedEntry { definition, version: 1, since: now, configured: false, removed: false, earlier, backfills }
    }

    fn next(&mut self, now: i64) {
        let earlier = Earlier { version: self.version, since: self.since, definition: self.definition.clone() };
        self.earlier.push(earlier);
        let over = self.earlier.len().saturating_sub(HISTORY_MAX);
        self.earlier.drain(..over);
        self.version += 1;
        self.since = now;
    }
}
