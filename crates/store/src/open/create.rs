//! Creating the files of a store, and giving a copied one an identity of its own.

use std::sync::Arc;

use crate::disk::names;
use crate::disk::{Access, Disk, DiskFile, Pages, io_error};
use crate::log::superblock::{Superblock, SuperblockFile};
use crate::model::refusal::OpenError;

/// Creates an empty log. `written`: its pages are written once before use, so that later writes to them need no journal
/// of the file system.
pub(crate) fn make_log(disk: &dyn Disk, log_bytes: u64, written: bool) -> std::io::Result<Arc<dyn DiskFile>> {
    let log = disk.create(names::LOG, log_bytes, Access::Log)?;
    let mut zeros = Pages::default();
    let mut at = 0;
    while written && at < log_bytes {
        zeros.resize((log_bytes - at).min(1 << 20) as usize);
        log.write_at(&zeros, at)?;
        at += zeros.as_slice().len() as u64;
    }
    log.sync()?;
    Ok(log)
}

/// Creates the files of a new store. The superblock comes last, so that a folder without one was never finished.
pub(crate) fn create(disk: &dyn Disk, log_bytes: u64) -> Result<SuperblockFile, OpenError> {
    make_log(disk, log_bytes, true).map_err(io_error(disk, names::LOG))?;
    let origin = disk.random().map_err(io_error(disk, names::SUPERBLOCK))?;
    let first = Superblock { origin, log_bytes, next_segment: 1, ..Superblock::default() };
    let file = SuperblockFile::create(disk, first).map_err(io_error(disk, names::SUPERBLOCK))?;
    disk.sync().map_err(io_error(disk, names::SUPERBLOCK))?;
    Ok(file)
}

/// Writes a new origin and the folder's own identity into the superblock.
pub(crate) fn adopt(disk: &dyn Disk) -> Result<u128, OpenError> {
    let lock = disk.lock().map_err(io_error(disk, "lock"))?;
    let Some(_lock) = lock else { return Err(OpenError::InUse { path: disk.path() }) };
    let file = disk.open(names::SUPERBLOCK, Access::Log).map_err(io_error(disk, names::SUPERBLOCK))?;
    let now = Superblock::read(disk, &*file)?;
    let mut superblock = SuperblockFile { file, now };
    let origin = disk.random().map_err(io_error(disk, names::SUPERBLOCK))?;
    let identity = disk.identity(names::SUPERBLOCK).map_err(io_error(disk, names::SUPERBLOCK))?;
    superblock.write(Superblock { origin, identity, ..now }).map_err(io_error(disk, names::SUPERBLOCK))?;
    Ok(origin)
}
