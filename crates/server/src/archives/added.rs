//! Archives that were added while the server ran: their tables in a file beside the store, and their secrets in files of
//! their own that nobody else may read.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strongback_archive::position::Positions;

use super::table::{Archive, ArchiveTable, NAME_RULE, TargetSettings, is_name};
use crate::process::whole_file;

/// Name of the file.
const FILE: &str = "archives.json";
/// Secrets of a request: its key, the key of the configuration, and the end of the file's name.
const SECRETS: [(&str, &str, &str); 3] =
    [("password", "password_file", "password"), ("token", "token_file", "token"), ("ca", "ca_file", "ca.pem")];

/// Reason why an archive cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// Invalid key, or an invalid name.
    #[error("{0}")]
    Bad(String),
    /// Unknown name.
    #[error("there is no archive {0:?}")]
    Unknown(String),
    /// Conflict with another archive or with the configuration.
    #[error("{0}")]
    Conflict(String),
    /// Failure to write a file.
    #[error("not kept: {0}")]
    File(#[from] io::Error),
}

#[derive(Default, Deserialize, Serialize)]
struct Saved {
    archives: Vec<ArchiveTable>,
}

/// The tables of added archives.
pub(super) struct Added {
    file: PathBuf,
    /// Folder of the followers' files.
    folder: PathBuf,
    tables: Vec<ArchiveTable>,
}

impl std::fmt::Debug for Added {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Added").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Added {
    /// Reads the file beside the store. One that cannot be read is reported, and then nothing can be added.
    pub(super) fn open(data_dir: &Path, folder: &Path) -> Result<Added, String> {
        let file = data_dir.join(FILE);
        let saved: Saved = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", file.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        Ok(Added { file, folder: folder.to_owned(), tables: saved.archives })
    }

    /// Returns the added archives. Those that are not valid now are reported, and stay in the file.
    pub(super) fn archives(&self) -> Vec<Archive> {
        let compiled = |table: &ArchiveTable| match self.with_secrets(table.clone()).compile() {
            Ok(archive) => Some(archive),
            Err(error) => {
                tracing::error!("archive {:?} is not in force: {error} ({})", table.name, self.file.display());
                None
            }
        };
        self.tables.iter().filter_map(compiled).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// Adds an archive: the keys of `[[archive]]` without the name and the files, and `password`, `token` and `ca` with
    /// their contents.
    pub(super) fn add(&mut self, name: &str, mut keys: Map<String, Value>) -> Result<Archive, AddError> {
        if !is_name(name) {
            return Err(AddError::Bad(format!("name: {NAME_RULE}")));
        }
        let mut secrets = Vec::new();
        for (key, of_file, end) in SECRETS {
            if keys.contains_key(of_file) {
                return Err(AddError::Bad(format!("{of_file}: files of the server cannot be named; send {key}")));
            }
            match keys.remove(key) {
                None => {}
                Some(Value::String(secret)) => secrets.push((self.secret_file(name, end), secret)),
                Some(_) => return Err(AddError::Bad(format!("{key}: it must be a text"))),
            }
        }
        keys.insert("name".to_owned(), Value::String(name.to_owned()));
        let table: ArchiveTable =
            serde_json::from_value(Value::Object(keys)).map_err(|error| AddError::Bad(error.to_string()))?;
        let added = self.write_secrets(&secrets).and_then(|()| {
            let compiled = self.with_secrets(table.clone()).compile();
            let archive = compiled.map_err(|error| AddError::Bad(error.to_string()))?;
            if let TargetSettings::Lake { place, .. } = &archive.target
                && !place.has_key()
            {
                let why = "a lake that is added needs aws_access_key_id in properties, and the secret key as password";
                return Err(AddError::Bad(format!("{why}; one in a folder belongs into the configuration")));
            }
            archive.target(0, None).map_err(AddError::Bad)?;
            self.tables.push(table);
            self.save().inspect_err(|_| _ = self.tables.pop())?;
            Ok(archive)
        });
        added.inspect_err(|_| secrets.iter().for_each(|(file, _)| _ = fs::remove_file(file)))
    }

    /// Returns a table with the files of its secrets, which are where the store is now.
    fn with_secrets(&self, mut table: ArchiveTable) -> ArchiveTable {
        let [password, token, ca] = SECRETS.map(|(_, _, end)| Some(self.secret_file(&table.name, end)));
        table.password_file = password.filter(|file| file.exists());
        table.token_file = token.filter(|file| file.exists());
        table.ca_file = ca.filter(|file| file.exists());
        table
    }

    /// Removes an archive that was added, with its position and its secrets. The list of rejected frames stays.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), AddError> {
        let at = self.tables.iter().position(|table| table.name == name);
        let at = at.ok_or_else(|| AddError::Unknown(name.to_owned()))?;
        let table = self.tables.remove(at);
        self.save().inspect_err(|_| self.tables.insert(at, table))?;
        Positions::remove(&self.folder, name)?;
        let others = SECRETS.map(|(_, _, end)| self.secret_file(name, end));
        for file in others.iter().chain([&super::paused_file(&self.folder, name)]) {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn secret_file(&self, name: &str, end: &str) -> PathBuf {
        self.folder.join(format!("{name}.{end}"))
    }

    fn write_secrets(&self, secrets: &[(PathBuf, String)]) -> Result<(), AddError> {
        fs::create_dir_all(&self.folder)?;
        for (file, secret) in secrets {
            whole_file::replace(file, secret.as_bytes())?;
        }
        Ok(())
    }

    fn save(&self) -> Result<(), AddError> {
        let bytes = serde_json::to_vec_pretty(&Saved { archives: self.tables.clone() }).map_err(io::Error::from)?;
        Ok(whole_file::replace(&self.file, &bytes)?)
    }
}
