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
    /// After a failed sync what the cache shows is believed.
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
