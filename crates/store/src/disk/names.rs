//! Names of the files of a store: of a fixed size, of its regions.

/// Who the store is, and where recovery begins.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Bytes of the superblock: two pages.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * crate::disk::PAGE_BYTES as u64;
/// The ring of the commit log.
pub(crate) const LOG: &str = "log";
/// The two checkpoints.
pub(crate) const CHECKPOINTS: [&str; 2] = ["checkpoint.a", "checkpoint.b"];
/// Hashes of the frames received last.
pub(crate) const RECENT: &str = "recent";
