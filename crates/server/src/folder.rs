//! The folder of the store as it was opened: a server must not go on in one that was removed, nor in another that was
//! put in its place.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that every store in a folder has, and that is never replaced.
const SUPERBLOCK: &str = "superblock";

/// What a path was when the store was opened.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// None: nothing is known of it, as where the store is elsewhere.
    identity: Option<Identity>,
}

/// Device and number of the folder (or of the file or device that is the store), and number of its superblock.
type Identity = (u64, u64, u64);

impl Folder {
    /// Remembers what a path is now.
    pub fn of(path: &Path) -> Folder {
        Folder { path: path.to_owned(), identity: identity(path).ok() }
    }

    /// Checks that it still is.
    ///
    /// # Errors
    /// What happened, for people.
    pub fn check(&self) -> Result<(), String> {
        let Some(known) = self.identity else { return Ok(()) };
        let path = self.path.display();
        match identity(&self.path) {
            Ok(found) if found == known => Ok(()),
            Ok(_) => Err(format!("{path}: another store was put in the place of the one that was opened")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("{path}: the store was removed while it was open; it is not made again"))
            }
            Err(error) => Err(format!("{path}: the store cannot be reached: {error}")),
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let about = std::fs::metadata(path)?;
    let superblock = if about.is_dir() { std::fs::metadata(path.join(SUPERBLOCK))?.ino() } else { 0 };
    Ok((about.dev(), about.ino(), superblock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_or_replaced_is_noticed_and_what_comes_back_is_known() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let make = || {
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join(SUPERBLOCK), "").unwrap();
        };
        make();
        let folder = Folder::of(&path);
        folder.check().unwrap();
        std::fs::rename(&path, parent.path().join("aside")).unwrap();
        assert!(folder.check().unwrap_err().contains("removed"));
        make();
        assert!(folder.check().unwrap_err().contains("another"));
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(parent.path().join("aside"), &path).unwrap();
        folder.check().unwrap();
        std::fs::remove_file(path.join(SUPERBLOCK)).unwrap();
        assert!(folder.check().unwrap_err().contains("removed"));
    }

    #[test]
    fn of_a_path_that_is_no_store_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        Folder::of(folder.path()).check().unwrap();
        Folder::of(Path::new("/nonexistent/data")).check().unwrap();
    }
}
