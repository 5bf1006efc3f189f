//! Work folder of a benchmark.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Named folder, which is kept, or a temporary one, which is removed when dropped.
pub(crate) enum WorkFolder {
    Named(PathBuf),
    Temporary(tempfile::TempDir),
}

impl WorkFolder {
    /// Creates the named folder unless it exists, or a temporary one.
    ///
    /// # Errors
    /// The system refuses to create it.
    pub(crate) fn of(named: Option<&Path>) -> anyhow::Result<WorkFolder> {
        let Some(path) = named else {
            return Ok(WorkFolder::Temporary(tempfile::tempdir().context("temporary folder")?));
        };
        std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        Ok(WorkFolder::Named(path.to_owned()))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        match self {
            WorkFolder::Named(path) => path,
            WorkFolder::Temporary(folder) => folder.path(),
        }
    }
}
