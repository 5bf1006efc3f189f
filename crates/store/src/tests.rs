//! Tests that need the fault disk or look inside.

use crate::*;

#[path = "../tests/kit/mod.rs"]
pub(crate) mod kit;

mod arrays;
mod blobs;
mod clock;
mod closing;
mod definitions;
mod excluded;
mod faults;
mod filling;
mod fixed;
mod forged;
mod leftovers;
mod losses;
mod lossless;
mod model;
mod ordered;
mod owner;
mod parts;
mod pyramid;
mod recent;
mod records;
mod reduction;
mod refusing;
mod retention;
mod scale;
mod sealing;
mod settle;
mod sparse;
mod state;
mod succession;
mod threads;
mod totals;
mod weighing;

impl kit::Place for FaultDisk {
    fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        FaultDisk::open_store(self, options, now)
    }
}
