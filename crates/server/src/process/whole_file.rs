//! Files that are there as they were or as they are to be, whatever fails.

use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file, durably, or leaves it as it was. Only its owner may read a file that is new.
///
/// # Errors
/// Returns the error of the system.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()
}
