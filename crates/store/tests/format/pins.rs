//! The golden files are those that format 1 was released with, byte for byte. The other tests here read them; this one
//! sees to it that what they read is never replaced by what a later version happens to write.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The SHA-256 of each golden file, by its name. Lines are only ever added: for what a new feature bit writes. A file
/// that no longer fits its line is to be restored, not its line changed.
const PINS: &str = include_str!("pins.txt");

/// Names below the folder of golden files, and the SHA-256 of what they hold.
fn hashes(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            hashes(&entry.path(), &format!("{name}/"), found);
        } else if !name.ends_with(".py") {
            // The second reader is a program, and learns what is added.
            let hash = Sha256::digest(fs::read(entry.path()).unwrap());
            found.insert(name, hash.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
}

#[test]
fn the_golden_files_are_those_of_the_release() {
    let mut found = BTreeMap::new();
    hashes(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), "", &mut found);
    let lines = PINS.lines().filter_map(|line| line.split_once("  "));
    let pinned: BTreeMap<String, String> = lines.map(|(hash, name)| (name.to_owned(), hash.to_owned())).collect();
    assert_eq!(pinned.len(), PINS.lines().count(), "a line that is no hash and name");
    for (name, hash) in &pinned {
        assert_eq!(found.get(name), Some(hash), "{name}");
    }
    let unpinned: Vec<&String> = found.keys().filter(|name| !pinned.contains_key(*name)).collect();
    assert!(unpinned.is_empty(), "no line in pins.txt for {unpinned:?}");
}
