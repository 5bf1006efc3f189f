//! Layouts of the page: files of the folder `layouts` beside the store's own, one `NAME.json` each, so that they are
//! shared by name, copied, and kept under version control.
//!
//! What is in a layout is the page's affair (`web/src/layout/layout.ts`): here a layout is a JSON object with a `version`.
//! An older version is given as it lies there, and the page reads it; a newer one, and what is no layout at all, is
//! refused with the reason. A write is atomic and durable, and whoever says which text they changed
//! ([`Precondition::Tag`]) never writes over somebody else's.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Deserialize;
use thiserror::Error;

/// The version of layouts that this server's page writes.
pub const VERSION: u64 = 2;
/// Most bytes of a layout.
pub const BYTES_MAX: usize = 256 << 10;
/// Most layouts of a server.
pub const LAYOUTS_MAX: usize = 1_000;
/// Most bytes of a name: file names end at 255.
pub const NAME_BYTES_MAX: usize = 100;

/// Why a layout could not be read or written.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// A name that is no file's.
    #[error(
        "{0:?} is not a valid layout name: 1 to {NAME_BYTES_MAX} bytes of letters, digits, spaces and -_.,+()&, not \
         with a space or dot at either end"
    )]
    Name(String),
    /// There is none of this name.
    #[error("no layout {0:?}")]
    Unknown(String),
    /// Not a layout of this page or an older one.
    #[error("{name}: {why}")]
    Broken {
        /// Of the layout.
        name: String,
        /// With the place, where there is one.
        why: String,
    },
    /// Somebody else was there first.
    #[error("{name}: {why}")]
    Conflict {
        /// Of the layout.
        name: String,
        /// What is there instead of what was expected.
        why: String,
    },
    /// As many as there may be.
    #[error("there are already {LAYOUTS_MAX} layouts, the limit; delete one first")]
    Full,
    /// The folder or its disk.
    #[error("{}: {error}", path.display())]
    Disk {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// What a writer believes to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Whatever there is is replaced.
    Any,
    /// Nothing.
    Nothing,
    /// The text of this tag, as it was read.
    Tag(String),
}

/// A layout as it lies in its file.
#[derive(Debug)]
pub struct Layout {
    /// JSON.
    pub text: Vec<u8>,
    /// Names this text; another text has another one.
    pub tag: String,
}

/// One line of the list.
#[derive(Debug)]
pub struct LayoutEntry {
    /// Of the layout.
    pub name: String,
    /// Its title, or why it cannot be shown.
    pub title: Result<String, String>,
    /// Of its text; empty where it cannot be read.
    pub tag: String,
    /// Last written, nanoseconds since 1970 UTC.
    pub changed_ns: Option<i64>,
}

/// The part of a layout that is looked at here.
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
    /// Held while a layout is compared and replaced.
    writing: Mutex<()>,
}

impl Layouts {
    /// Those of the folder `layouts` in the store's folder, which is made with the first of them.
    pub fn of(data_dir: &Path) -> Layouts {
        Layouts { folder: data_dir.join("layouts"), writing: Mutex::new(()) }
    }

    /// All, by name.
    ///
    /// # Errors
    /// Where the folder cannot be read. A broken layout is in the list, with why.
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
                // Deleted meanwhile.
                Ok(None) => continue,
                Err(error) => (Err(error.to_string()), String::new()),
            };
            entries.push(LayoutEntry { name, title, tag, changed_ns });
        }
        Ok(entries)
    }

    /// One of them.
    ///
    /// # Errors
    /// Where there is none, it is broken, or of a newer version.
    pub fn get(&self, name: &str) -> Result<Layout, LayoutError> {
        let text = self.bytes(name)?.ok_or_else(|| LayoutError::Unknown(name.to_owned()))?;
        match head(&text) {
            Ok(_) => Ok(Layout { tag: tag(&text), text }),
            Err(why) => Err(LayoutError::Broken { name: name.to_owned(), why }),
        }
    }

    /// Writes one, durably; answers its tag, and whether it is new.
    ///
    /// # Errors
    /// Where the name or the text is none, what is there is not what was expected, or the disk fails.
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
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(text)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|e| e.error)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| LayoutError::Disk { path: path.clone(), error })?;
        Ok((tag(text), there.is_none()))
    }

    /// Deletes one.
    ///
    /// # Errors
    /// Where there is none, it is not the expected one, or the disk fails.
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

    /// The tag of what is there, if it is what was expected.
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

    /// Makes the folder within that of the store, which must be there.
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

    /// Names of the files that may be layouts.
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

    /// The file's bytes; one more than there may be where it is too long.
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

/// Whether a layout may have this name: what is a file's name everywhere, and no path.
fn is_name(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c != '.' && c != ' ');
    name.len() <= NAME_BYTES_MAX
        && name.chars().all(|c| c.is_alphanumeric() || " -_.,+()&".contains(c))
        && ends(name.chars().next())
        && ends(name.chars().last())
}

/// Looks at a text: a layout of this version or an older one, or why not.
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

/// Names a text. Only compared with tags of this server's making.
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
        // What the page shall make of it is not looked into, however deep: nothing recurses.
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
        // Found in the folder, the same is told and not given.
        fs::create_dir(folder.path().join("layouts")).unwrap();
        fs::write(folder.path().join("layouts/new.json"), br#"{"version":3}"#).unwrap();
        fs::write(folder.path().join("layouts/huge.json"), &huge).unwrap();
        for name in ["new", "huge"] {
            assert!(matches!(layouts.get(name), Err(LayoutError::Broken { .. })));
        }
    }
}
