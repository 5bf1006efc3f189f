//! A store on a disk in memory, and the ways in which it ends and is opened again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use super::super::{Checked, T0};
use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

/// How an opening ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Closed, sealed, told so.
    Clean,
    /// The process is killed; the disk keeps what it was given.
    Kill,
    /// The power is cut: what no sync covers may be gone or torn.
    Cut,
}

impl End {
    pub(super) fn any(random: &mut Rng) -> End {
        [End::Clean, End::Kill, End::Cut][random.usize(..3)]
    }
}

/// A store, its disk and its clock.
pub(super) struct World {
    pub(super) disk: FaultDisk,
    store: Option<Store>,
    pub(super) options: StoreOptions,
    pub(super) random: Rng,
    /// What the clock shows.
    pub(super) now: i64,
}

/// Small, so that everything goes round in a run.
pub(super) fn small_options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 128 << 10,
        max_bytes: Some(1 << 40),
        open_bytes: 128 << 10,
        settle_age: Duration::from_millis(50),
        ..StoreOptions::default()
    }
}

impl World {
    pub(super) fn new(seed: u64, options: StoreOptions) -> Result<World, String> {
        World::at(seed, options, T0)
    }

    /// Whose clock shows another time at first.
    pub(super) fn at(seed: u64, options: StoreOptions, now: i64) -> Result<World, String> {
        let (disk, random) = (FaultDisk::new(seed), Rng::with_seed(seed ^ 0x5eed));
        let mut world = World { disk, store: None, options, random, now };
        world.open()?;
        Ok(world)
    }

    /// On a disk that is made ready first.
    pub(super) fn on(seed: u64, options: StoreOptions, ready: impl Fn(&FaultDisk)) -> Result<World, String> {
        let (disk, random) = (FaultDisk::new(seed), Rng::with_seed(seed ^ 0x5eed));
        ready(&disk);
        let mut world = World { disk, store: None, options, random, now: T0 };
        world.open()?;
        Ok(world)
    }

    pub(super) fn store(&self) -> &Store {
        self.store.as_ref().expect("a store that is open")
    }

    /// Opens the store of the disk as it is.
    pub(super) fn open(&mut self) -> Checked {
        let opened = self.disk.open_store(self.options.clone(), self.now);
        self.store = Some(opened.map_err(|error| format!("cannot open: {error}"))?);
        Ok(())
    }

    pub(super) fn commit(&self) -> Checked {
        self.store().commit(self.now).map(drop).map_err(|refusal| format!("cannot commit: {refusal}"))
    }

    /// Upkeep, `slices` of it at most.
    pub(super) fn maintain(&self, slices: usize) -> Checked {
        for _ in 0..slices {
            if !self.store().maintain(self.now).map_err(|refusal| format!("cannot maintain: {refusal}"))? {
                break;
            }
        }
        Ok(())
    }

    /// All the upkeep that there is, while nothing else happens.
    pub(super) fn maintain_all(&mut self) -> Checked {
        self.now += SECOND + 1;
        self.maintain(10_000)
    }

    /// Whether the log has little room left.
    pub(super) fn is_log_full(&self) -> bool {
        let stats = self.store().stats();
        stats.log_used_bytes > stats.log_bytes / 4
    }

    /// Makes room in the log, so that no frame is refused for want of it: that is another matter.
    pub(super) fn make_room(&mut self) -> Checked {
        self.commit()?;
        if self.is_log_full() { self.maintain_all() } else { Ok(()) }
    }

    pub(super) fn settle(&self) -> Checked {
        self.store().settle(self.now).map(drop).map_err(|refusal| format!("cannot settle: {refusal}"))
    }

    /// Ends the store and opens it again. Before a cut or a kill upkeep may be under way.
    pub(super) fn end(&mut self, end: End) -> Checked {
        match end {
            End::Clean => {
                self.store().close(self.now).map_err(|refusal| format!("cannot close: {refusal}"))?;
            }
            End::Kill => self.maintain(self.random.clone().usize(..4))?,
            End::Cut => {
                // At one of the next writes, or between them.
                if self.random.bool() {
                    self.disk.faults.writes_left.store(self.random.u64(1..20), Ordering::Relaxed);
                    for _ in 0..self.random.usize(1..6) {
                        if self.store().maintain(self.now).is_err() {
                            break;
                        }
                    }
                }
            }
        }
        self.let_go(end);
        self.now += self.random.i64(1..400 * MS);
        self.open()
    }

    /// The store is no more, and the disk is as it leaves it.
    pub(super) fn let_go(&mut self, end: End) {
        self.store = None;
        if end == End::Cut {
            self.disk = self.disk.after_cut();
        }
    }
}

/// A stream's rows, batch by batch.
pub(super) fn scan(view: &View, scan: Scan) -> Result<Vec<Batch>, String> {
    view.scan(scan).map(|batch| batch.map_err(|error| format!("cannot read: {error}"))).collect()
}
