//! Positions of a follower, in a file.
//!
//! Two files, `NAME.positions-0` and `NAME.positions-1`, are written in turn, so that one is whole whatever happens.
//! All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `SBPOSN01` |
//! | 16 | origin of the store |
//! | 8 | number of the save |
//! | 4 | number of streams |
//! | 20 each | number of the stream (4), first row of the follower (8), first row that is not delivered (8) |
//! | 4 | CRC-32C of all before |

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use strongback_store::StreamId;

const MAGIC: &[u8; 8] = b"SBPOSN01";
const HEAD: usize = 36;
const ENTRY: usize = 20;
/// Max size of a file: more streams than a store can have.
const FILE_MAX: u64 = 256 << 20;

/// Position of a follower in one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// First row that the follower was to deliver.
    pub from_row: u64,
    /// First row that is not delivered.
    pub next_row: u64,
}

/// Positions of a follower in all streams.
#[derive(Debug)]
pub struct Positions {
    files: [PathBuf; 2],
    origin: u128,
    saves: u64,
    changed: bool,
    streams: BTreeMap<u32, Position>,
}

/// Reason why positions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PositionsError {
    /// An I/O operation failed.
    #[error("{file}: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Neither file is whole.
    #[error("{file} is damaged: {reason}; remove it and its sibling to deliver everything again")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Description of the damage.
        reason: String,
    },
    /// The positions are those of another store.
    #[error("{file} belongs to the store {theirs:032x}, not to this one, {ours:032x}; give the follower another name")]
    OtherStore {
        /// Name of the file.
        file: String,
        /// Origin in the file.
        theirs: u128,
        /// Origin of this store.
        ours: u128,
    },
}

impl Positions {
    /// Reads the positions of a follower, and returns whether there were any.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, are damaged, or belong to another store.
    pub fn open(folder: &Path, name: &str, origin: u128) -> Result<(Positions, bool), PositionsError> {
        let files = [0, 1].map(|n| folder.join(format!("{name}.positions-{n}")));
        let (mut newest, mut damage): (Option<Stored>, _) = (None, None);
        for file in &files {
            match read(file) {
                Ok(Some(found)) if newest.as_ref().is_none_or(|newest| newest.saves < found.saves) => {
                    newest = Some(found);
                }
                Ok(_) => {}
                Err(error @ PositionsError::Io { .. }) => return Err(error),
                Err(error) => damage = Some(error),
            }
        }
        let found = newest.is_some();
        let Stored { origin: theirs, saves, streams } = match (newest, damage) {
            (Some(newest), _) => newest,
            (None, Some(damage)) => return Err(damage),
            (None, None) => Stored { origin, saves: 0, streams: BTreeMap::new() },
        };
        if theirs != origin {
            return Err(PositionsError::OtherStore { file: shown(&files[0]), theirs, ours: origin });
        }
        Ok((Positions { files, origin, saves, changed: false, streams }, found))
    }

    /// Returns the position in a stream; 0 for one that is new.
    pub fn of(&self, stream: StreamId) -> Position {
        self.streams.get(&stream.0).copied().unwrap_or_default()
    }

    /// Sets where the follower begins in a stream.
    pub fn begin(&mut self, stream: StreamId, row: u64) {
        self.streams.insert(stream.0, Position { from_row: row, next_row: row });
        self.changed = true;
    }

    /// Sets the first row that is not delivered.
    pub fn advance(&mut self, stream: StreamId, next_row: u64) {
        let position = self.streams.entry(stream.0).or_default();
        if position.next_row != next_row {
            position.next_row = next_row;
            self.changed = true;
        }
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. The positions of the last save are then still there.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(HEAD + ENTRY * self.streams.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.origin.to_le_bytes());
        bytes.extend_from_slice(&(self.saves + 1).to_le_bytes());
        bytes.extend_from_slice(&(self.streams.len() as u32).to_le_bytes());
        for (stream, position) in &self.streams {
            bytes.extend_from_slice(&stream.to_le_bytes());
            bytes.extend_from_slice(&position.from_row.to_le_bytes());
            bytes.extend_from_slice(&position.next_row.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let path = &self.files[((self.saves + 1) % 2) as usize];
        let mut file = File::create(path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        if let (0 | 1, Some(folder)) = (self.saves, path.parent()) {
            File::open(folder)?.sync_all()?;
        }
        self.saves += 1;
        self.changed = false;
        Ok(())
    }

    /// Removes the files of a follower.
    ///
    /// # Errors
    /// Returns an error if a file is there and cannot be removed.
    pub fn remove(folder: &Path, name: &str) -> io::Result<()> {
        for n in [0, 1] {
            match fs::remove_file(folder.join(format!("{name}.positions-{n}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

struct Stored {
    origin: u128,
    saves: u64,
    streams: BTreeMap<u32, Position>,
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

fn read(file: &Path) -> Result<Option<Stored>, PositionsError> {
    let failed = |source| PositionsError::Io { file: shown(file), source };
    let damaged = |reason: &str| PositionsError::Damaged { file: shown(file), reason: reason.to_owned() };
    let bytes = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.len() > FILE_MAX => return Err(damaged("it is too large")),
        Ok(_) => fs::read(file).map_err(failed)?,
    };
    let Some((content, crc)) = bytes.split_last_chunk::<4>() else { return Err(damaged("it is too short")) };
    if crc32c::crc32c(content) != u32::from_le_bytes(*crc) {
        return Err(damaged("its checksum does not match"));
    }
    let number = |at: usize| {
        let eight = content.get(at..at + 8).and_then(|eight| eight.first_chunk::<8>());
        eight.map(|eight| u64::from_le_bytes(*eight)).ok_or_else(|| damaged("it is too short"))
    };
    if !content.starts_with(MAGIC) {
        return Err(damaged("it is not a file of positions, or of a newer version"));
    }
    let origin = u128::from(number(8)?) | u128::from(number(16)?) << 64;
    let saves = number(24)?;
    let (entries, []) = content.get(HEAD..).unwrap_or_default().as_chunks::<ENTRY>() else {
        return Err(damaged("its length does not fit"));
    };
    let streams = entries.iter().map(|entry| {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| entry[at + n]));
        let stream = u32::from_le_bytes(std::array::from_fn(|n| entry[n]));
        (stream, Position { from_row: number(4), next_row: number(12) })
    });
    Ok(Some(Stored { origin, saves, streams: streams.collect() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(positions: &Positions, stream: u32) -> u64 {
        positions.of(StreamId(stream)).next_row
    }

    #[test]
    fn the_newest_whole_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (mut positions, found) = Positions::open(folder.path(), "a", 7).unwrap();
        assert!(!found);
        positions.begin(StreamId(3), 10);
        for row in 11..15 {
            positions.advance(StreamId(3), row);
            positions.save().unwrap();
        }
        drop(positions);
        let (positions, found) = Positions::open(folder.path(), "a", 7).unwrap();
        assert!(found);
        assert_eq!(positions.of(StreamId(3)), Position { from_row: 10, next_row: 14 });
        // The newest save was the fourth, in file 0. Whatever it holds after a crash, the third counts.
        let newest = folder.path().join("a.positions-0");
        let whole = fs::read(&newest).unwrap();
        for cut in 0..whole.len() {
            fs::write(&newest, &whole[..cut]).unwrap();
            let (positions, _) = Positions::open(folder.path(), "a", 7).unwrap();
            assert_eq!(next(&positions, 3), 13, "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(&newest, &flipped).unwrap();
            assert_eq!(next(&Positions::open(folder.path(), "a", 7).unwrap().0, 3), 13, "flipped at {at}");
        }
        fs::write(folder.path().join("a.positions-1"), "x").unwrap();
        let error = Positions::open(folder.path(), "a", 7).unwrap_err();
        assert!(matches!(error, PositionsError::Damaged { .. }), "{error}");
        Positions::remove(folder.path(), "a").unwrap();
        assert!(!Positions::open(folder.path(), "a", 7).unwrap().1);
    }

    #[test]
    fn positions_of_another_store_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (mut positions, _) = Positions::open(folder.path(), "a", 7).unwrap();
        positions.advance(StreamId(0), 1);
        positions.save().unwrap();
        let error = Positions::open(folder.path(), "a", 8).unwrap_err();
        assert!(matches!(error, PositionsError::OtherStore { theirs: 7, ours: 8, .. }), "{error}");
    }
}
