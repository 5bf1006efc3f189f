//! Layouts of the page: files `NAME.json` in the folder `layouts` beside the store's own files, so that they can be
//! shared by name, copied, and kept under version control.
//!
//! The content of a layout is defined by the page (`web/src/layout/layout.ts`); here it is a JSON object with a
//! `version`. An older version is returned unchanged, and the page reads it. A newer one, or a file that is no layout,
//! is refused with the reason. A write is atomic and durable. A writer that names the text it changed
//! ([`Precondition::Tag`]) never overwrites somebody else's.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::Hasher;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Deserialize;
use thiserror::Error;

use crate::process::whole_file;

/// Version of layouts written by this server's page.
pub const VERSION: u64 = 2;
/// Max bytes of a layout.
pub const BYTES_MAX: usize = 256 << 10;
/// Max number of layouts.
pub const LAYOUTS_MAX: usize = 1_000;
/// Max bytes of a name; file names are limited to 255.
pub const NAME_BYTES_MAX: usize = 100;

/// Reason why a layout could not be read or written.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// An invalid name.
    #[error(
        "{0:?} is not a valid layout name: 1 to {NAME_BYTES_MAX} bytes of letters, digits, spaces and -_.,+()&, not \
         with a space or dot at either end"
    )]
    Name(String),
    /// An unknown name.
    #[error("no layout {0:?}")]
    Unknown(String),
    /// A file that is not a layout of this version or an older one.
    #[error("{name}: {why}")]
    Broken {
        /// Name of the layout.
        name: String,
        /// Reason, with the position if known.
        why: String,
    },
    /// A concurrent change.
    #[error("{name}: {why}")]
    Conflict {
        /// Name of the layout.
        name: String,
        /// The difference from what was expected.
        why: String,
    },
    /// The max number of layouts.
    #[error("there are already {LAYOUTS_MAX} layouts, the limit; delete one first")]
    Full,
    /// An error of the folder or its disk.
    #[error("{}: {error}", path.display())]
    Disk {
        /// Path concerned.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// State that a writer expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Anything; it is replaced.
    Any,
    /// No layout of this name.
    Nothing,
    /// The text with this tag.
    Tag(String),
}

/// A layout as stored in its file.
#[derive(Debug)]
pub struct Layout {
    /// JSON text.
    pub text: Vec<u8>,
    /// Tag of this text; another text has another tag.
    pub tag: String,
}

/// An entry of the list.
#[derive(Debug)]
pub struct LayoutEntry {
    /// Name of the layout.
    pub name: String,
    /// Title, or the reason why it cannot be shown.
    pub title: Result<String, String>,
    /// Tag of the text; empty if it cannot be read.
    pub tag: String,
    /// Time of the last write, nanoseconds since 1970 UTC.
    pub changed_ns: Option<i64>,
}

/// The fields of a layout that the server reads.
#[derive(Debug, Deserialize)]
struct Head {
    version: u64,
    #[serde(default)]
    title: String,
}

/// The layouts of a server.
#[derive(Debug)]
pub struct Layouts {
    folder: PathBuf,
    /// Lock held while a layout is compared and replaced.
    writing: Mutex<()>,
}

impl Layouts {
    /// Returns the layouts in the folder `layouts` of the store's folder, which is created with the first of them.
    pub fn of(data_dir: &Path) -> Layouts {
        Layouts { folder: data_dir.join("layouts"), writing: Mutex::new(()) }
    }

    /// Lists all layouts by name. Broken ones are included, with the reason.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<LayoutEntry>, LayoutError> {
        let mut entries = Vec::new();
        for name in self.names()? {
            let path = self.path(&name)?;
            let changed = fs::metadata(&path).and_then(|m| m.modified()).ok();
            let changed_ns = changed
                .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
                .and_then(|since| i64::try_from(since.as_nanos()).ok());
            let (title, tag) = match self.bytes(&name) {
                Ok(Some(text)) => (head(&text).map(|head| head.title), tag(&text)),
                // Deleted in the meantime.
                Ok(None) => continue,
                Err(error) => (Err(error.to_string()), String::new()),
            };
            entries.push(LayoutEntry { name, title, tag, changed_ns });
        }
        Ok(entries)
    }

    /// Returns one layout.
    ///
    /// # Errors
    /// If there is none, it is broken, or of a newer version.
    pub fn get(&self, name: &str) -> Result<Layout, LayoutError> {
        let text = self.bytes(name)?.ok_or_else(|| LayoutError::Unknown(name.to_owned()))?;
        match head(&text) {
            Ok(_) => Ok(Layout { tag: tag(&text), text }),
            Err(why) => Err(LayoutError::Broken { name: name.to_owned(), why }),
        }
    }

    /// Writes a layout durably. Returns its tag, and whether it is new.
    ///
    /// # Errors
    /// If the name or the text is invalid, the layout is not the expected one, or the disk fails.
    pub fn put(&self, name: &str, text: &[u8], expected: &Precondition) -> Result<(String, bool), LayoutError> {
        let path = self.path(name)?;
        if let Err(why) = head(text) {
            return Err(LayoutError::Broken { name: name.to_owned(), why });
        }
        let _writing = self.writing.lock();
        let there = self.expect(name, expected)?;
        if there.is_none() && self.names()?.len() >= LAYOUTS_MAX {
            return Err(LayoutError::Full);
        }
        let write = || -> io::Result<()> {
            self.make_folder()?;
            whole_file::replace(&path, text)
        };
        write().map_err(|error| LayoutError::Disk { path: path.clone(), error })?;
        Ok((tag(text), there.is_none()))
    }

    /// Deletes a layout.
    ///
    /// # Errors
    /// If there is none, it is not the expected one, or the disk fails.
    pub fn delete(&self, name: &str, expected: &Precondition) -> Result<(), LayoutError> {
        let path = self.path(name)?;
        let _writing = self.writing.lock();
        if self.expect(name, expected)?.is_none() {
            return Err(LayoutError::Unknown(name.to_owned()));
        }
        fs::remove_file(&path)
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(|error| LayoutError::Disk { path, error })
    }

    /// Returns the current tag, if there is a layout; fails if it is not the expected one.
    fn expect(&self, name: &str, expected: &Precondition) -> Result<Option<String>, LayoutError> {
        let there = self.bytes(name)?.map(|text| tag(&text));
        let conflict = |why: &str| LayoutError::Conflict { name: name.to_owned(), why: why.to_owned() };
        match (expected, &there) {
            (Precondition::Nothing, Some(_)) => Err(conflict("there is one of this name")),
            (Precondition::Tag(_), None) => Err(conflict("it was deleted meanwhile")),
            (Precondition::Tag(known), Some(tag)) if known != tag => Err(conflict("it was changed meanwhile")),
            _ => Ok(there),
        }
    }

    /// Creates the folder within that of the store, which must exist.
    fn make_folder(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, LayoutError> {
        if !is_name(name) {
            return Err(LayoutError::Name(name.to_owned()));
        }
        Ok(self.folder.join(format!("{name}.json")))
    }

    /// Returns the names of the files that may be layouts.
    fn names(&self) -> Result<Vec<String>, LayoutError> {
        let disk = |error| LayoutError::Disk { path: self.folder.clone(), error };
        let files = match fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(disk(error)),
        };
        let mut names = Vec::new();
        for file in files {
            let path = file.map_err(disk)?.path();
            if path.extension() != Some(OsStr::new("json")) {
                continue;
            }
            if let Some(name) = path.file_stem().and_then(OsStr::to_str).filter(|name| is_name(name)) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the bytes of a file, at most one more than allowed.
    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, LayoutError> {
        let path = self.path(name)?;
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(BYTES_MAX as u64 + 1).read_to_end(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LayoutError::Disk { path, error }),
        }
    }
}

/// Returns whether a layout may have this name: a valid file name on every system, and no path.
fn is_name(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c != '.' && c != ' ');
    name.len() <= NAME_BYTES_MAX
        && name.chars().all(|c| c.is_alphanumeric() || " -_.,+()&".contains(c))
        && ends(name.chars().next())
        && ends(name.chars().last())
}

/// Parses a text as a layout of this version or an older one; fails with the reason.
fn head(text: &[u8]) -> Result<Head, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| format!("no layout: {error}"))?;
    match head.version {
        1..=VERSION => Ok(head),
        0 => Err("there is no version 0 of layouts".to_owned()),
        newer => {
            Err(format!("version {newer} of layouts is newer than this server, which knows those up to {VERSION}"))
        }
    }
}

/// Returns the tag of a text. Tags are compared only with those made by this server.
fn tag(text: &[u8]) -> String {
    let mut hash = std::collections::hash_map::DefaultHasher::new();
    hash.write(text);
    format!("{:016x}-{:x}", hash.finish(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = br#"{"version":2,"title":"Pad","root":null,"panels":{}}"#;
    const OTHER: &[u8] = br#"{"version":1,"title":"Old","panels":[]}"#;

    fn layouts() -> (tempfile::TempDir, Layouts) {
        let folder = tempfile::tempdir().unwrap();
        let layouts = Layouts::of(folder.path());
        (folder, layouts)
    }

    #[test]
    fn what_was_put_is_got_listed_and_deleted() {
        let (folder, layouts) = layouts();
        assert!(layouts.list().unwrap().is_empty());
        let (tag, new) = layouts.put("Launch é 1", TEXT, &Precondition::Nothing).unwrap();
        assert!(new);
        layouts.put("old", OTHER, &Precondition::Any).unwrap();
        let got = layouts.get("Launch é 1").unwrap();
        assert_eq!((got.text.as_slice(), &got.tag), (TEXT, &tag));
        fs::write(folder.path().join("layouts/note.txt"), "not one").unwrap();
        fs::write(folder.path().join("layouts/spoilt.json"), "{").unwrap();
        let list = layouts.list().unwrap();
        let names: Vec<&str> = list.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["Launch é 1", "old", "spoilt"]);
        assert_eq!(list[1].title.as_deref(), Ok("Old"));
        assert!(list[0].changed_ns.is_some());
        assert!(list[2].title.as_ref().unwrap_err().contains("no layout: EOF"), "{:?}", list[2].title);
        layouts.delete("old", &Precondition::Any).unwrap();
        assert!(matches!(layouts.get("old"), Err(LayoutError::Unknown(_))));
        assert!(matches!(layouts.delete("old", &Precondition::Any), Err(LayoutError::Unknown(_))));
    }

    #[test]
    fn nobody_writes_over_what_they_have_not_seen() {
        let (_folder, layouts) = layouts();
        let (first, _) = layouts.put("a", TEXT, &Precondition::Nothing).unwrap();
        let conflict = |result: Result<(String, bool), LayoutError>| {
            assert!(matches!(result, Err(LayoutError::Conflict { .. })), "{result:?}");
        };
        conflict(layouts.put("a", OTHER, &Precondition::Nothing));
        let (second, new) = layouts.put("a", OTHER, &Precondition::Tag(first.clone())).unwrap();
        assert!(!new && second != first);
        conflict(layouts.put("a", TEXT, &Precondition::Tag(first.clone())));
        assert!(matches!(layouts.delete("a", &Precondition::Tag(first)), Err(LayoutError::Conflict { .. })));
        assert_eq!(layouts.get("a").unwrap().text, OTHER);
        layouts.delete("a", &Precondition::Tag(second.clone())).unwrap();
        conflict(layouts.put("a", TEXT, &Precondition::Tag(second)));
    }

    #[test]
    fn names_that_are_no_files_and_texts_that_are_no_layouts_are_refused() {
        let (folder, layouts) = layouts();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", "../a", "a/b", "a\\b", "a\0", ".hidden", "a.", " a", "a ", "a\n", "a:b", &long] {
            assert!(matches!(layouts.put(name, TEXT, &Precondition::Any), Err(LayoutError::Name(_))), "{name:?}");
            assert!(matches!(layouts.get(name), Err(LayoutError::Name(_))), "{name:?}");
        }
        let huge = [TEXT, &vec![b' '; BYTES_MAX]].concat();
        // The rest of the text is not parsed, however deeply nested: nothing recurses.
        let deep = [&b"{\"version\":2,\"a\":"[..], &vec![b'['; 200_000]].concat();
        let cases: [(&[u8], &str); 8] = [
            (b"", "EOF"),
            (b"[]", "no layout"),
            (b"{}", "missing field `version`"),
            (br#"{"version":-1}"#, "no layout"),
            (br#"{"version":0}"#, "no version 0"),
            (br#"{"version":3}"#, "version 3 of layouts is newer than this server"),
            (&huge, "longer than 262144 bytes"),
            (&deep, "EOF while parsing a list"),
        ];
        for (text, why) in cases {
            let error = layouts.put("a", text, &Precondition::Any).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(!folder.path().join("layouts").exists());
        // Found in the folder, such files are listed but not returned.
        fs::create_dir(folder.path().join("layouts")).unwrap();
        fs::write(folder.path().join("layouts/new.json"), br#"{"version":3}"#).unwrap();
        fs::write(folder.path().join("layouts/huge.json"), &huge).unwrap();
        for name in ["new", "huge"] {
            assert!(matches!(layouts.get(name), Err(LayoutError::Broken { .. })));
        }
    }
}
