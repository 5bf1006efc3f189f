//! The engine: the state that appends, commits, upkeep and readers of one store share.

pub(crate) mod commit;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::append::Writer;
use crate::catalog::group::Policy;
use crate::disk::space::Space;
use crate::disk::{Disk, names};
use crate::engine::commit::Committer;
use crate::log::Link;
use crate::model::counts::RecoveryReport;
use crate::model::mutant::{self, Mutant};
use crate::model::options::StoreOptions;
use crate::model::refusal::Refusal;
use crate::read::shared::Shared;
use crate::segment::directory::file_name;

/// Everything that one opening of a store works with; upkeep's own state is in the
/// [`Sealer`](crate::upkeep::sealer::Sealer).
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: StoreOptions,
    pub(crate) origin: u128,
    pub(crate) epoch: u32,
    pub(crate) report: RecoveryReport,
    pub(crate) writer: Mutex<Writer>,
    /// The log's end, locked during a commit.
    pub(crate) log: Mutex<Committer>,
    /// Lock held shared while a blob is written or synced, and exclusively while the store is being closed.
    pub(crate) blob_gate: RwLock<()>,
    /// Start of each unit of the log, oldest first: the positions that its tail can move to.
    pub(crate) links: Mutex<VecDeque<Link>>,
    pub(crate) log_bytes: u64,
    pub(crate) space: Space,
    pub(crate) max_age_ns: Option<i64>,
    pub(crate) settle_age_ns: i64,
    pub(crate) committed: AtomicU64,
    /// Numbers of commits that a store before this one gave out and never made durable.
    pub(crate) void_commits: Mutex<std::ops::Range<u64>>,
    pub(crate) waiting: Mutex<Option<Refusal>>,
    pub(crate) condition: Condvar,
    /// Whether it is closed or being closed; then only the closing thread writes.
    pub(crate) closed: AtomicBool,
    /// Lock held while the store is being closed.
    pub(crate) closing: Mutex<()>,
    /// Lock that keeps other processes out until the store is closed or dropped.
    pub(crate) lock: Mutex<Option<Box<dyn Send + Sync>>>,
    /// Identity that tells the folder from another one.
    pub(crate) identity: u64,
}

impl Engine {
    /// Returns why nothing can be written any more, or `None`. A caller that writes asks while it holds the lock under
    /// which it does.
    pub(crate) fn poison(&self) -> Option<Refusal> {
        let refusal = self.waiting.lock().clone();
        refusal.or_else(|| self.closed.load(Ordering::Acquire).then_some(Refusal::Closed))
    }

    /// Returns what may be dropped of each retention group.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        self.writer.lock().groups.policies(self.committed.load(Ordering::Acquire))
    }

    /// Poisons the store after a failed write or sync, so that nothing more is written: recovery has to see what the
    /// disk holds.
    pub(crate) fn poisoned(&self, error: &std::io::Error) -> Refusal {
        let mut waiting = self.waiting.lock();
        let refusal = waiting.get_or_insert(Refusal::Poisoned(error.to_string())).clone();
        self.condition.notify_all();
        drop(waiting);
        // Recovery must not take for durable what only the cache holds.
        if !mutant::is_active(Mutant::KeepCached) {
            // Sealed segments were synced before they were sealed.
            let open = self.shared.segments.load();
            let open = open.lists().flat_map(|(_, segments)| segments.open()).map(|segment| file_name(segment.id));
            let beside = [names::LOG, names::SUPERBLOCK, names::RECENT].into_iter().chain(names::CHECKPOINTS);
            self.disk.forget_cached_of(&beside.map(str::to_owned).chain(open).collect::<Vec<_>>());
        }
        refusal
    }

    pub(crate) fn unwritable(&self, error: &std::io::Error) -> Refusal {
        Refusal::Unwritable(format!("{}: {error}", self.disk.path()))
    }

    /// Checks that the folder is still the one that was opened.
    pub(crate) fn check_there(&self) -> std::io::Result<()> {
        if self.space.fixed.is_some() {
            return Ok(());
        }
        match self.disk.identity(names::SUPERBLOCK) {
            Ok(found) if found != self.identity => Err(self.gone()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(self.gone()),
            _ => Ok(()),
        }
    }

    pub(crate) fn gone(&self) -> std::io::Error {
        let what = "was removed or replaced while the store was open; nothing that is written there lasts";
        std::io::Error::other(format!("{} {what}", self.disk.path()))
    }
}
