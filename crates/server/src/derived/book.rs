//! Which derived channels there are, in which version; kept in a file beside the store.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::definition::{Definition, DerivedTable, in_order};

/// Name of the file.
const FILE: &str = "derived.json";
/// Most derived channels.
const DERIVED_MAX: usize = 256;
/// Earlier versions and backfills of one that are remembered.
const HISTORY_MAX: usize = 100;

/// A derived channel through its versions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DerivedEntry {
    /// As it is now.
    pub definition: DerivedTable,
    /// Its version: rises with each change of what it gives.
    pub version: u32,
    /// When that came into force, nanoseconds since 1970 UTC.
    pub since: i64,
    /// Whether it is of the configuration.
    pub configured: bool,
    /// Whether it was removed; its versions go on if it comes back.
    pub removed: bool,
    /// What it was before.
    pub earlier: Vec<Earlier>,
    /// What was written for the past.
    pub backfills: Vec<Backfill>,
}

/// A version that is no longer in force.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Earlier {
    /// Which.
    pub version: u32,
    /// When it came into force, nanoseconds since 1970 UTC.
    pub since: i64,
    /// What it was.
    pub definition: DerivedTable,
}

/// A version that was written for a span of the past.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Backfill {
    /// Its version, as in `3.1`: the first backfill of version 3.
    pub version: String,
    /// Span of `time`, nanoseconds since 1970 UTC, end exclusive.
    pub from: i64,
    /// Its end.
    pub to: i64,
    /// Whether frames that live left out for being late are in it.
    pub late: bool,
    /// `running`, `done`, `interrupted`, or why it failed.
    pub state: String,
    /// Up to which `time` it has come.
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
    /// Rises with each change.
    pub changes: u64,
}

/// Why a derived channel cannot be changed so.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// It makes no sense.
    #[error("{0}")]
    Bad(String),
    /// There is none of this name.
    #[error("there is no derived channel {0:?}")]
    Unknown(String),
    /// It is not to be changed at run time, or others are in the way.
    #[error("{0}")]
    Conflict(String),
    /// It cannot be kept.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Definitions {
    /// Reads the file beside a store, and takes what the configuration says.
    ///
    /// # Errors
    /// A file that cannot be read or written, or says something else.
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

    /// Those that are in force, each after those it needs.
    pub fn in_force(&self) -> Vec<(Definition, DerivedEntry)> {
        let of = |entry: &&DerivedEntry| !entry.removed;
        // Each was checked when it was taken.
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

    /// One by its name.
    pub fn get(&self, name: &str) -> Option<&DerivedEntry> {
        self.entries.get(name).filter(|entry| !entry.removed)
    }

    /// Whether a definition goes together with the others.
    ///
    /// # Errors
    /// What is wrong.
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

    /// Puts one in force. Returns its version, which is a new one if it gives something else than before; so have then
    /// those that need it.
    ///
    /// # Errors
    /// It makes no sense, is of the configuration, or cannot be kept.
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

    /// Ends one. Its results stay.
    ///
    /// # Errors
    /// There is none, it is of the configuration, or another needs it.
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

    /// Gives new versions to all that need one, directly or not: what they say changes with it.
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

    /// Notes a backfill that begins. Returns its version.
    ///
    /// # Errors
    /// There is no such derived channel, or it cannot be kept.
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

    /// Notes how far a backfill is; kept in the file when it is over.
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
    /// The first version of a definition, from `now` on (nanoseconds since 1970 UTC).
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
