//! Damage: bytes that are not as they were written.

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, by its name in the folder.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}
