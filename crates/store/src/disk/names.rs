//! Names of the files of a store, or of its regions if the size is fixed.

/// Identity of the store, and where recovery begins.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Size of the superblock in bytes: two pages.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * crate::disk::PAGE_BYTES as u64;
/// Ring of the commit log.
pub(crate) const LOG: &str = "log";
/// Names of the two checkpoints.
pub(crate) const CHECKPOINTS: [&str; 2] = ["checkpoint.a", "checkpoint.b"];
/// Hashes of recently received frames.
pub(crate) const RECENT: &str = "recent";
