//! Damage to stored bytes.

/// Stored data that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Name of the file in the folder.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// Description of the damage.
    pub reason: String,
}
