//! Room: whether sizes and retention groups are valid, and how many slots of a fixed size the groups take.

use crate::disk::space::{FixedSpace, Space};
use crate::model::options::{RetentionGroup, StoreOptions};

impl StoreOptions {
    /// Checks that sizes and groups are valid. If `max_bytes` is the file system's, its size is known only when a store
    /// is opened.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        RetentionGroup::check_all(&self.retention)?;
        match self.max_bytes {
            Some(_) => Space::of(self, 0).check(self, self.log_bytes),
            None => Ok(()),
        }
    }
}

impl Space {
    /// Refuses a size that does not hold a log, two segments a group and the minima.
    pub(crate) fn check(&self, options: &StoreOptions, log_bytes: u64) -> Result<(), String> {
        if let Some(fixed) = &self.fixed {
            return self.check_slots(fixed, options);
        }
        if options.max_bytes.is_none() && options.retention.is_empty() {
            return Ok(());
        }
        let keep = options.retention.iter().map(|group| group.keep.of(self.max_bytes)).fold(0, u64::saturating_add);
        let groups = 2 + options.retention.len() as u64;
        let least = (log_bytes + (2 * groups + 1) * self.segment_bytes + (1 << 20)).saturating_add(keep);
        if least > self.max_bytes {
            return Err(format!(
                "a store of at most {} bytes is too small: its log, two segments of each retention group and the \
                 {keep} bytes that groups keep take {least}",
                self.max_bytes
            ));
        }
        Ok(())
    }

    /// Refuses groups that keep more than there is.
    pub(crate) fn check_slots(&self, fixed: &FixedSpace, options: &StoreOptions) -> Result<(), String> {
        let needed = slots_needed(&options.retention, fixed.slots, self.segment_bytes);
        if needed <= fixed.slots {
            return Ok(());
        }
        Err(format!(
            "a store of {} segments of {} bytes is too small: what its groups keep, and two segments of each, take \
             {needed}",
            fixed.slots, self.segment_bytes
        ))
    }
}

/// Returns the slots that the store's own tables may take. Their rows are never dropped for those of others, but for
/// their own newer rows, so that an unattended store does not fill up with them.
pub(crate) fn ledger_slots(slots: u64) -> u64 {
    (slots / 16).max(2)
}

/// Returns the slots without which some group could hold others up: what each keeps and the segment that it is writing,
/// at least two; those of the store's own tables; and one more for any of them.
pub(crate) fn slots_needed(groups: &[RetentionGroup], slots: u64, segment_bytes: u64) -> u64 {
    let space = slots.saturating_mul(segment_bytes);
    let of = |group: &RetentionGroup| group.keep.of(space).div_ceil(segment_bytes).saturating_add(1).max(2);
    let data = if groups.iter().any(|group| group.streams.is_none()) { 0 } else { 2 };
    groups.iter().map(of).fold(data + ledger_slots(slots) + 1, u64::saturating_add)
}
