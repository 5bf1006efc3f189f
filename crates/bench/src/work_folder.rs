//! The folder that a benchmark works in.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A folder that was named, and is kept; or a temporary one, removed when dropped.
pub(crate) enum WorkFolder {
    Named(PathBuf),
    Temporary(tempfile::TempDir),
}

impl WorkFolder {
    /// Makes the named folder if it is not there, or a temporary one.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn of(named: Option<&Path>) -> anyhow::Result<WorkFolder> {
        let Some(path) = named else {
            return Ok(WorkFolder::Temporary(tempfile::tempdir().context("temporary folder")?));
        };
        std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        Ok(WorkFolder::Named(path.to_owned()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        match self {
            WorkFolder::Named(path) => path,
            WorkFolder::Temporary(folder) => folder.path(),
        }
    }
}
