//! Definitions of derived channels and their versions, saved in a file next to the store.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strongback_sources::KeyError;

use super::definition::{ClashError, Definition, DerivedTable, in_order};
use crate::process::whole_file;

/// Name of the file.
const FILE: &str = "derived.json";
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
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    entries: BTreeMap<String, DerivedEntry>,
    /// Compiled definitions of the entries in force, each after those it depends on.
    in_force: Vec<Arc<Definition>>,
    /// Entries of the file that cannot be in force, by name, each with the reason.
    unfit: BTreeMap<String, String>,
    file: PathBuf,
    /// Counter that rises with each change.
    pub changes: u64,
}

/// Reason why a derived channel cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// Invalid definition.
    #[error("{name:?}: {error}")]
    Bad {
        /// Name of the derived channel.
        name: String,
        /// Its invalid key.
        error: KeyError,
    },
    /// Saved definition that cannot be in force.
    #[error("{name:?} is not in force: {why}")]
    Unfit {
        /// Name of the derived channel.
        name: String,
        /// Reason.
        why: String,
    },
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
    /// Reads the file next to a store, and applies the configuration. Definitions of the file that are invalid, alone
    /// or together with those of the configuration, are kept but not in force.
    ///
    /// # Errors
    /// Returns an error if the file is malformed or cannot be read or written, or the definitions of the configuration
    /// are invalid together.
    pub fn open(folder: &Path, configured: &[Arc<Definition>], now: i64) -> Result<Definitions, BookError> {
        let file = folder.join(FILE);
        let failed = |source| BookError::File { file: file.display().to_string(), source };
        let saved: Saved = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(failed(error)),
        };
        let mut entries = saved.derived;
        let before = entries.clone();
        for backfill in entries.values_mut().flat_map(|entry| &mut entry.backfills) {
            if backfill.state == "running" {
                "interrupted".clone_into(&mut backfill.state);
            }
        }
        let mut saved: Vec<Arc<Definition>> = Vec::new();
        let mut unfit = BTreeMap::new();
        for (name, entry) in &mut entries {
            if configured.iter().any(|definition| definition.table.name == *name) {
                continue;
            }
            entry.removed |= entry.configured;
            if !entry.removed {
                match entry.definition.clone().parse() {
                    Ok(definition) => saved.push(Arc::new(definition)),
                    Err(error) => _ = unfit.insert(name.clone(), error.to_string()),
                }
            }
        }
        let mut book = Definitions { entries, in_force: ordered(configured)?, unfit, file, changes: 1 };
        book.add_saved(saved);
        for (name, why) in &book.unfit {
            tracing::error!("derived channel {name:?} is not in force: {why} ({})", book.file.display());
        }
        // Changed at once, because the definitions of another configuration may not fit some of these.
        let changed = configured.iter().filter(|definition| book.update(definition, true, now)).map(name_of).collect();
        book.renew_users(changed, now);
        if book.entries != before {
            book.save()?;
        }
        Ok(book)
    }

    /// Puts definitions of the file in force, except those that are invalid together with the others.
    fn add_saved(&mut self, saved: Vec<Arc<Definition>>) {
        let all: Vec<_> = self.in_force.iter().chain(&saved).cloned().collect();
        if let Ok(in_force) = ordered(&all) {
            self.in_force = in_force;
            return;
        }
        for definition in saved {
            match self.ordered_with(&definition) {
                Ok(in_force) => self.in_force = in_force,
                Err(error) => _ = self.unfit.insert(name_of(&definition), error.to_string()),
            }
        }
    }

    /// Returns the derived channels in force, each after those it depends on.
    pub fn in_force(&self) -> Vec<(Arc<Definition>, DerivedEntry)> {
        let of = |definition: &Arc<Definition>| Some((definition.clone(), self.get(&definition.table.name)?.clone()));
        self.in_force.iter().filter_map(of).collect()
    }

    /// Returns all derived channels: those in force, each after those it depends on, and then those that cannot be.
    pub fn listed(&self) -> Vec<DerivedEntry> {
        let in_force = self.in_force.iter().map(|definition| &definition.table.name);
        in_force.chain(self.unfit.keys()).filter_map(|name| self.get(name).cloned()).collect()
    }

    /// Returns the derived channels that cannot be in force, by name, each with the reason.
    pub fn unfit(&self) -> &BTreeMap<String, String> {
        &self.unfit
    }

    /// Returns a derived channel and its definition by its name.
    ///
    /// # Errors
    /// Returns an error if it does not exist, was removed, or is not in force.
    pub fn find(&self, name: &str) -> Result<(Arc<Definition>, DerivedEntry), BookError> {
        if let Some(why) = self.unfit.get(name) {
            return Err(BookError::Unfit { name: name.to_owned(), why: why.clone() });
        }
        let definition = self.in_force.iter().find(|definition| definition.table.name == name);
        let found = definition.zip(self.get(name)).map(|(definition, entry)| (definition.clone(), entry.clone()));
        found.ok_or_else(|| BookError::Unknown(name.to_owned()))
    }

    /// Returns a derived channel by its name, or `None` if it does not exist or was removed.
    pub fn get(&self, name: &str) -> Option<&DerivedEntry> {
        self.entries.get(name).filter(|entry| !entry.removed)
    }

    /// Compiles a definition and checks it together with the others.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub fn compile(&self, table: DerivedTable) -> Result<Arc<Definition>, BookError> {
        let name = table.name.clone();
        let definition = Arc::new(table.compile().map_err(|error| BookError::Bad { name, error })?);
        self.ordered_with(&definition)?;
        Ok(definition)
    }

    /// Returns the definitions in force with one more, or with another one of its name.
    fn ordered_with(&self, definition: &Arc<Definition>) -> Result<Vec<Arc<Definition>>, BookError> {
        let others = self.in_force.iter().filter(|other| other.table.name != definition.table.name);
        ordered(&others.chain([definition]).cloned().collect::<Vec<_>>())
    }

    /// Puts a definition in force. Returns its version, which is a new one if its results change; derived channels
    /// that depend on it then get new versions as well.
    ///
    /// # Errors
    /// Returns an error if it is invalid together with the others, its name is defined by the configuration, or it
    /// cannot be saved.
    pub fn put(&mut self, definition: &Arc<Definition>, now: i64) -> Result<u32, BookError> {
        let in_force = self.ordered_with(definition)?;
        let name = &definition.table.name;
        self.is_free(name)?;
        let before = (self.entries.clone(), std::mem::replace(&mut self.in_force, in_force), self.unfit.clone());
        self.unfit.remove(name);
        self.changes += 1;
        if self.update(definition, false, now) {
            self.renew_users(vec![name.clone()], now);
        }
        if let Err(error) = self.save() {
            tracing::error!("derived channel {name:?} was not changed: {error}");
            (self.entries, self.in_force, self.unfit) = before;
            return Err(error);
        }
        self.get(name).map(|entry| entry.version).ok_or_else(|| BookError::Unknown(name.clone()))
    }

    /// Removes a derived channel. Its results stay.
    ///
    /// # Errors
    /// Returns an error if it does not exist, is defined by the configuration, or another depends on it.
    pub fn remove(&mut self, name: &str) -> Result<(), BookError> {
        self.is_free(name)?;
        match self.find(name) {
            Err(BookError::Unfit { .. }) => {}
            Err(error) => return Err(error),
            Ok((definition, _)) => {
                let mut others = self.in_force.iter().filter(|other| other.table.name != name);
                if let Some(user) = others.find(|other| other.needs(&definition)) {
                    return Err(BookError::Conflict(format!("{:?} needs it", user.table.name)));
                }
            }
        }
        let before = (self.entries.clone(), self.in_force.clone(), self.unfit.clone());
        if let Some(entry) = self.entries.get_mut(name) {
            entry.removed = true;
        }
        self.in_force.retain(|other| other.table.name != name);
        self.unfit.remove(name);
        self.changes += 1;
        self.save().inspect_err(|_| (self.entries, self.in_force, self.unfit) = before)
    }

    fn is_free(&self, name: &str) -> Result<(), BookError> {
        match self.get(name) {
            Some(entry) if entry.configured => {
                Err(BookError::Conflict(format!("{name:?} is of the configuration: change it there")))
            }
            _ => Ok(()),
        }
    }

    /// Sets the entry of a definition. Returns whether it had another version before, with other results.
    fn update(&mut self, definition: &Definition, configured: bool, now: i64) -> bool {
        let table = definition.table.clone();
        let Some(entry) = self.entries.get_mut(&table.name) else {
            let entry = DerivedEntry { configured, ..DerivedEntry::first(table, now) };
            self.entries.insert(entry.definition.name.clone(), entry);
            return false;
        };
        let is_new = entry.removed || entry.definition.differs(&table);
        if is_new {
            entry.next(now);
        }
        (entry.definition, entry.configured, entry.removed) = (table, configured, false);
        is_new
    }

    /// Gives new versions to all that depend on the changed ones, directly or not, because their results change as
    /// well.
    fn renew_users(&mut self, mut changed: Vec<String>, now: i64) {
        for definition in &self.in_force {
            let name = &definition.table.name;
            let mut others = self.in_force.iter().filter(|other| changed.contains(&other.table.name));
            if !changed.contains(name)
                && others.any(|other| definition.needs(other))
                && let Some(entry) = self.entries.get_mut(name)
            {
                entry.next(now);
                changed.push(name.clone());
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
        let bytes = serde_json::to_vec_pretty(&saved).map_err(std::io::Error::from);
        bytes
            .and_then(|bytes| whole_file::replace(&self.file, &bytes))
            .map_err(|source| BookError::File { file: self.file.display().to_string(), source })
    }
}

fn name_of(definition: &Arc<Definition>) -> String {
    definition.table.name.clone()
}

/// Returns definitions in an order in which each comes after those it depends on.
fn ordered(all: &[Arc<Definition>]) -> Result<Vec<Arc<Definition>>, BookError> {
    let bad = |clash: ClashError| BookError::Bad { name: name_of(&all[clash.at]), error: clash.error };
    in_order(all).map_err(bad)
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
