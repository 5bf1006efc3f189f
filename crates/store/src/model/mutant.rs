//! Faults put into the engine on purpose, so that the tests prove that they would see them. In any other
//! build they are constants that the compiler removes.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Commits are acknowledged before they are written.
    AcknowledgeEarly,
    /// Recovery takes what it finds in the log.
    NoLogCheck,
    /// The body of a block is taken without its checksum.
    NoBlockCheck,
    /// Pages, write groups and footers of segments are taken without their checksums.
    NoSegmentCheck,
    /// What the cache shows after a failed sync is believed, by the store that it failed for and by openings.
    KeepCached,
    /// Held frames are not written to the log.
    ForgetHeld,
    /// The reference to a blob is given before the blob is synced.
    BlobBeforeSync,
    /// Chunks of blobs are taken as they are.
    NoBlobCheck,
    /// A float is taken for one of a grid if it is rebuilt from a float, which has a negative zero.
    NegativeZero,
    /// The last nanosecond of the range is taken as a time.
    LastInstant,
    /// Every clock is believed at once.
    BelieveClock,
    /// What was stored before a leap of the clock is not noted to be no older than it.
    ForgetLeap,
    /// What the opening before stored last is as old as its clock says.
    BelieveEnd,
    /// Segments leave the list before the checkpoint that says so is durable.
    DropEarly,
    /// What was not seen below the lowest sequence is not marked as missing.
    ForgetBelow,
    /// Groups whose write or sync found no space are not written again.
    ThrowGroups,
    /// The names of files that went are forgotten, although the sync of the folder was refused.
    ForgetRemoved,
    /// The files of segments go that another stands for, although the checkpoint that says so failed.
    ReplaceEarly,
    /// What the checkpoint says of sequences is ahead of the rows that are in segments.
    SealAhead,
    /// Settling leaves out that frames are missing before a row.
    DropGapMark,
    /// Checkpoints leave out which frames were seen.
    ForgetSequences,
    /// Want of descriptors poisons.
    PoisonDescriptors,
    /// A full disk refuses, whatever may go.
    KeepOldest,
    /// An append names the next commit, whether anything waits for it or not.
    NameNextCommit,
    /// What the disk refused for a time is never taken again.
    RefuseForEver,
    /// A gap begins with no frame.
    ForgetNewest,
    /// A row that came late is the newest one.
    LateIsNewest,
    /// Statistics of a block are taken to say which frames are missing in it.
    BelieveStatistics,
    /// Of a block that ends with a value statistics are taken to say which frames are missing in it.
    BelieveEnds,
    /// Each loss gets a row of its own.
    TellEachLoss,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether a fault is put in, for this thread.
#[inline]
pub(crate) fn is_active(_mutant: Mutant) -> bool {
    #[cfg(test)]
    return ACTIVE.get() == Some(_mutant);
    #[cfg(not(test))]
    false
}

/// Puts a fault into this thread's stores, or takes it out.
#[cfg(test)]
pub(crate) fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
