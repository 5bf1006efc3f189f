//! Faults that tests inject into the engine to prove that they would detect them. In other builds the checks are
//! constants that the compiler removes.

/// Fault that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Commits are acknowledged before they are written.
    AcknowledgeEarly,
    /// Recovery accepts whatever it finds in the log.
    NoLogCheck,
    /// The body of a block is accepted without checking its checksum.
    NoBlockCheck,
    /// Pages, write groups and footers of segments are accepted without checking their checksums.
    NoSegmentCheck,
    /// Cached contents are trusted after a failed sync, by the store whose sync failed and by later openings.
    KeepCached,
    /// Pending frames are not written to the log.
    ForgetHeld,
    /// The reference to a blob is returned before the blob is synced.
    BlobBeforeSync,
    /// Chunks of blobs are accepted unchecked.
    NoBlobCheck,
    /// A float counts as on a grid if it is rebuilt from a float `k`, which may be a negative zero.
    NegativeZero,
    /// The last nanosecond of the range is accepted as a time.
    LastInstant,
    /// Every clock is trusted at once.
    BelieveClock,
    /// The instant of a clock leap is not noted as the lower bound for the age of rows stored before it.
    ForgetLeap,
    /// Rows that the previous opening stored last are taken to be as old as its clock said.
    BelieveEnd,
    /// Segments leave the list before the checkpoint that records it is durable.
    DropEarly,
    /// Frames not seen below the lowest sequence are not marked as missing.
    ForgetBelow,
    /// Write groups whose write or sync found no space are not written again.
    ThrowGroups,
    /// The names of removed files are forgotten although the sync of the folder failed.
    ForgetRemoved,
    /// Replaced segment files are removed although the checkpoint that records the replacement failed.
    ReplaceEarly,
    /// The sequences in the checkpoint are ahead of the rows that are in segments.
    SealAhead,
    /// Compaction drops the mark that frames are missing before a row.
    DropGapMark,
    /// Checkpoints omit which frames were seen.
    ForgetSequences,
    /// Running out of descriptors poisons the store.
    PoisonDescriptors,
    /// A full disk refuses frames even if old data may be dropped.
    KeepOldest,
    /// An append returns the number of the next commit even if nothing waits for it.
    NameNextCommit,
    /// After a temporary refusal by the disk, frames are never accepted again.
    RefuseForEver,
    /// A gap begins without the frame before it.
    ForgetNewest,
    /// A late row is taken as the newest one.
    LateIsNewest,
    /// Statistics of a block are trusted about which frames are missing in it.
    BelieveStatistics,
    /// Statistics of a block that ends with a value are trusted about which frames are missing in it.
    BelieveEnds,
    /// Statistics of blocks are used although they cover values that are left out.
    BelieveExcludedBlocks,
    /// Rows go into segments before earlier ones of their stream that wait for a mixed block.
    SealPastFew,
    /// Rows of the log get the clock that their stream has when they are read.
    ForgetClock,
    /// What an opening finds damaged is told with its first commit, and in no checkpoint before the next one.
    TellDamageLate,
    /// Each loss gets its own row.
    TellEachLoss,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Returns whether a fault is active in this thread.
#[inline]
pub(crate) fn is_active(_mutant: Mutant) -> bool {
    #[cfg(test)]
    return ACTIVE.get() == Some(_mutant);
    #[cfg(not(test))]
    false
}

/// Activates a fault for this thread's stores, or deactivates it.
#[cfg(test)]
pub(crate) fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
