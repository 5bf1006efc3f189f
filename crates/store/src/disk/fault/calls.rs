//! Injected failures of calls: which calls fail, how often, and with which error.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Error of a call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space is left. Affects calls that may need space.
    NoSpace,
    /// The user's disk quota is exceeded. Affects the same calls as `NoSpace`.
    Quota,
    /// An I/O error. Affects all calls.
    Io,
    /// The process has no descriptor left. Affects calls that open something.
    Descriptors,
    /// The file system is mounted read-only. Affects calls that change something.
    ReadOnly,
}

impl Fault {
    /// Returns the error number on Linux.
    fn number(self) -> i32 {
        match self {
            Fault::NoSpace => 28,
            Fault::Quota => 122,
            Fault::Io => 5,
            Fault::Descriptors => 24,
            Fault::ReadOnly => 30,
        }
    }

    /// Returns the error for the call.
    pub(super) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(self.number())
    }

    /// Returns whether a call can fail with this error.
    fn concerns(self, call: Call) -> bool {
        match self {
            Fault::NoSpace | Fault::Quota => {
                matches!(call, Call::Create | Call::Write | Call::Sync | Call::Grow | Call::SyncFolder)
            }
            Fault::Io => true,
            Fault::Descriptors => matches!(call, Call::Open | Call::Create | Call::List | Call::SyncFolder),
            Fault::ReadOnly => call != Call::List,
        }
    }
}

/// Call of the disk other than a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Open,
    Create,
    Write,
    Sync,
    Grow,
    Shrink,
    Remove,
    List,
    SyncFolder,
}

/// Calls that are set to fail.
#[derive(Clone, Copy, Debug)]
struct Armed {
    fault: Fault,
    /// Number of matching calls that still succeed before the first one fails.
    before: u64,
    times: u64,
}

/// Remaining failures of calls on a file.
#[derive(Default)]
pub(super) struct Failing {
    pub(super) syncs: u64,
    pub(super) writes: u64,
    /// Whether a failing write may still write a part of its pages, or all of them.
    pub(super) torn: bool,
    pub(super) reads: u64,
}

impl Failing {
    /// Decrements a count, and returns whether it was above 0.
    pub(super) fn take(left: &mut u64) -> bool {
        let fails = *left > 0;
        if fails && *left != u64::MAX {
            *left -= 1;
        }
        fails
    }
}

/// Active faults of the disk, and counters of its calls.
pub(crate) struct Faults {
    /// Writes left before the power is cut.
    pub(crate) writes_left: AtomicU64,
    /// Syncs left before one fails with EIO.
    pub(crate) syncs_left: AtomicU64,
    /// Capacity in bytes.
    pub(crate) capacity_bytes: AtomicU64,
    /// Bytes of the capacity that are used by others.
    pub(super) others_bytes: AtomicU64,
    /// Prefix of the names of files whose syncs do nothing but report success: a disk that lies.
    pub(crate) lies_about: Mutex<Option<&'static str>>,
    /// Whether reads are sometimes short or interrupted.
    pub(crate) short_reads: AtomicBool,
    /// Number of calls that failed or found no space.
    pub(crate) errors: AtomicU64,
    /// Number of reads, and of bytes read.
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// Number of calls other than reads.
    calls: AtomicU64,
    /// Failures by name of the file.
    pub(super) failing: Mutex<BTreeMap<String, Failing>>,
    armed: Mutex<Option<Armed>>,
    pub(super) read_only: AtomicBool,
    pub(super) no_descriptors: AtomicBool,
    pub(super) copy_on_write: AtomicBool,
    pub(super) allocation: Mutex<super::Allocation>,
    /// Whether the folder was removed.
    pub(super) removed: AtomicBool,
    /// Number of power cuts and kills. Handles opened before the last one do nothing.
    pub(super) power: AtomicU64,
    pub(super) locked: Mutex<Option<u64>>,
    pub(super) random: Mutex<fastrand::Rng>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Faults {
        Faults {
            writes_left: AtomicU64::new(u64::MAX),
            syncs_left: AtomicU64::new(u64::MAX),
            capacity_bytes: AtomicU64::new(u64::MAX),
            others_bytes: AtomicU64::new(0),
            lies_about: Mutex::new(None),
            short_reads: false.into(),
            errors: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            failing: Mutex::default(),
            armed: Mutex::default(),
            read_only: false.into(),
            no_descriptors: false.into(),
            copy_on_write: false.into(),
            allocation: Mutex::default(),
            removed: false.into(),
            power: AtomicU64::new(0),
            locked: Mutex::new(None),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        }
    }

    /// Counts a call, and returns the fault with which it fails, if any.
    pub(super) fn trip(&self, call: Call) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let always = [(&self.read_only, Fault::ReadOnly), (&self.no_descriptors, Fault::Descriptors)];
        let always = always.into_iter().find(|(on, fault)| on.load(Ordering::Relaxed) && fault.concerns(call));
        let fault = always.map(|(_, fault)| fault).or_else(|| self.trip_armed(call));
        self.errors.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        fault
    }

    fn trip_armed(&self, call: Call) -> Option<Fault> {
        let mut armed = self.armed.lock();
        let found = armed.as_mut().filter(|armed| armed.fault.concerns(call))?;
        if found.before > 0 {
            found.before -= 1;
            return None;
        }
        let fault = found.fault;
        found.times = found.times.saturating_sub(1);
        if found.times == 0 {
            *armed = None;
        }
        Some(fault)
    }

    /// Makes `times` calls fail, after `before` calls that could fail with the same error.
    pub(super) fn arm(&self, fault: Fault, before: u64, times: u64) {
        *self.armed.lock() = Some(Armed { fault, before, times }).filter(|_| times > 0);
    }

    /// Returns whether calls set to fail are still outstanding.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.lock().is_some()
    }

    /// Returns the number of calls other than reads since the disk was made.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Clears all faults except power cuts.
    #[cfg(test)]
    pub(super) fn heal(&self) {
        self.failing.lock().clear();
        *self.armed.lock() = None;
        for on in [&self.read_only, &self.no_descriptors] {
            on.store(false, Ordering::Relaxed);
        }
        self.others_bytes.store(0, Ordering::Relaxed);
        self.capacity_bytes.store(u64::MAX, Ordering::Relaxed);
    }
}
