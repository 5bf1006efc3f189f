//! How a store is opened.

use std::time::Duration;

use crate::model::limits::GROUP_NAME_BYTES_MAX;
use crate::model::pattern::Pattern;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the commit log's ring.
    pub log_bytes: u64,
    /// Most bytes on disk in directory mode; none: 80 % of the file system.
    pub max_bytes: Option<u64>,
    /// Oldest stored age kept; none: as long as `max_bytes` allows.
    pub max_age: Option<Duration>,
    /// How long the clock must go on without a leap, from the opening on and after each leap, before data goes by age:
    /// until then by the clock that was confirmed last, if any. Zero: every clock is believed at once.
    pub clock_confirm: Duration,
    /// Most streams; new ones beyond are rejected.
    pub max_streams: u32,
    /// Bytes of a segment file: 32 KiB to 64 MiB. Less where `max_bytes` would hold only few of them.
    pub segment_bytes: u64,
    /// Memory for open blocks before pressure seals them.
    pub open_bytes: usize,
    /// Times further ahead of the caller's clock are flagged and kept out of `latest`.
    pub max_future: Duration,
    /// Retention groups beside the store's own. A new stream joins the first that it matches.
    pub retention: Vec<RetentionGroup>,
    /// Whether small and poorly packed blocks are rewritten into large ones, a slice with each call of
    /// [`Store::maintain`](crate::Store::maintain) that has nothing else to do. A fixed size of 16 segments or more keeps
    /// one free for it; in a smaller one nothing is rewritten.
    pub settle: bool,
    /// Data stored more recently than this is left as it was sealed.
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

/// Streams that are kept apart from others: what they hold of the disk is theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionGroup {
    /// Its name. `data` without `streams` means what belongs to no other group.
    pub name: String,
    /// Streams made from now on that belong to it: a glob over table and tags.
    pub streams: Option<Pattern>,
    /// Guaranteed minimum: while it holds no more, nothing of it goes to make space.
    pub keep: Keep,
    /// Oldest stored age kept, whatever `keep` says; none: that of the store.
    pub max_age: Option<Duration>,
}

/// Most groups of a configuration: each may have a segment open.
const GROUPS_MAX: usize = 32;

impl RetentionGroup {
    /// Whether groups can be meant together; sizes are compared with `max_bytes` when a store is opened.
    ///
    /// # Errors
    /// A sentence that names the group and what is wrong.
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

/// A part of `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keep {
    /// So many bytes.
    Bytes(u64),
    /// This share, 0 to 1.
    Share(f64),
}

impl Keep {
    /// The bytes it comes to.
    pub fn of(self, max_bytes: u64) -> u64 {
        match self {
            Keep::Bytes(bytes) => bytes,
            Keep::Share(share) => (max_bytes as f64 * share.clamp(0.0, 1.0)) as u64,
        }
    }
}
