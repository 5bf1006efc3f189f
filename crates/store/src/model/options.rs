//! Options for opening a store.

use std::time::Duration;

use crate::model::limits::{GROUP_NAME_BYTES_MAX, GROUPS_MAX};
use crate::model::pattern::Pattern;

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Size of the commit log's ring in bytes.
    pub log_bytes: u64,
    /// Maximum bytes on disk in directory mode; `None` means 80 % of the file system.
    pub max_bytes: Option<u64>,
    /// Maximum age of stored data; `None` means as long as `max_bytes` allows.
    pub max_age: Option<Duration>,
    /// Time for which the clock must advance without a leap before data is dropped by age, from the opening and after
    /// each leap. Until then, ages are counted by the clock that was confirmed last, if any. With zero, every clock is
    /// trusted at once.
    pub clock_confirm: Duration,
    /// Maximum number of streams; further ones are rejected.
    pub max_streams: u32,
    /// Size of a segment file in bytes: 32 KiB to 64 MiB. Reduced if `max_bytes` would hold only a few of them.
    pub segment_bytes: u64,
    /// Bytes of memory for open blocks, above which they are sealed.
    pub open_bytes: usize,
    /// Distance by which a time may be ahead of the caller's clock. Frames beyond it are flagged and kept out of
    /// `latest`.
    pub max_future: Duration,
    /// Retention groups in addition to the store's own. A new stream joins the first one that it matches.
    pub retention: Vec<RetentionGroup>,
    /// Whether compaction rewrites small and poorly packed blocks into large ones. It runs in slices, with each call of
    /// [`Store::maintain`](crate::Store::maintain) that has nothing else to do. A store of a fixed size with 16
    /// segments or more keeps one free for it; smaller ones are not compacted.
    pub settle: bool,
    /// Minimum age of stored data for compaction.
    pub settle_age: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            log_bytes: 64 << 20,
            max_bytes: None,
            max_age: None,
            clock_confirm: Duration::from_secs(3_600),
            max_streams: 200_000,
            segment_bytes: 64 << 20,
            open_bytes: 64 << 20,
            max_future: Duration::from_secs(86_400),
            retention: Vec::new(),
            settle: true,
            settle_age: Duration::from_secs(600),
        }
    }
}

/// Group of streams that is kept apart from others and has its own share of the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionGroup {
    /// Name of the group. `data` without `streams` stands for all streams that belong to no other group.
    pub name: String,
    /// Glob over table and tags that selects the new streams of the group.
    pub streams: Option<Pattern>,
    /// Guaranteed minimum: while the group holds no more, none of its data is dropped for space.
    pub keep: Keep,
    /// Maximum age of stored data, whatever `keep` says; `None` means that of the store.
    pub max_age: Option<Duration>,
}

impl RetentionGroup {
    /// Checks that groups are valid together. Their sizes are compared with `max_bytes` when a store is opened.
    ///
    /// # Errors
    /// A sentence that names the group and says what is wrong.
    pub fn check_all(groups: &[RetentionGroup]) -> Result<(), String> {
        if groups.len() > GROUPS_MAX {
            return Err(format!("{} retention groups, at most {GROUPS_MAX}", groups.len()));
        }
        let mut shares = 0.0;
        for (n, group) in groups.iter().enumerate() {
            let name = &group.name;
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX || !name.chars().all(plain) {
                return Err(format!(
                    "group {name:?}: a name is 1 to {GROUP_NAME_BYTES_MAX} letters, digits, '_', '-', '.'"
                ));
            }
            if groups[..n].iter().any(|other| other.name == *name) {
                return Err(format!("group {name:?} is there twice"));
            }
            match (name.as_str(), &group.streams) {
                ("ledger" | "runs", _) => {
                    return Err(format!("group {name:?} is the store's own: choose another name"));
                }
                ("data", Some(_)) => {
                    return Err("group \"data\" has what belongs to no other group: leave its streams out".to_owned());
                }
                ("data", None) | (_, Some(_)) => {}
                (_, None) => return Err(format!("group {name:?} says no streams")),
            }
            if let Keep::Share(share) = group.keep {
                if !(0.0..1.0).contains(&share) {
                    return Err(format!("group {name:?}: keep is {} %, not 0 to below 100", share * 100.0));
                }
                shares += share;
            }
            if group.max_age.is_some_and(|age| age.is_zero()) {
                return Err(format!("group {name:?}: max_age must be above 0"));
            }
        }
        if shares >= 1.0 {
            return Err(format!(
                "the groups keep {:.0} % of the space, and at least some must be free",
                shares * 100.0
            ));
        }
        Ok(())
    }
}

/// Part of `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keep {
    /// Number of bytes.
    Bytes(u64),
    /// Fraction of `max_bytes`, 0 to 1.
    Share(f64),
}

impl Keep {
    /// Returns the number of bytes for a given `max_bytes`.
    pub fn of(self, max_bytes: u64) -> u64 {
        match self {
            Keep::Bytes(bytes) => bytes,
            Keep::Share(share) => (max_bytes as f64 * share.clamp(0.0, 1.0)) as u64,
        }
    }
}
