//! Transient errors of the disk: the failed operation is repeated as a whole, and nothing is lost.
//!
//! All others poison the store: after a failed write or sync only recovery can say what the disk holds.

use std::io;

use rustix::io::Errno;

use crate::Refusal;
use crate::model::mutant::{self, Mutant};

/// Returns whether the process or the system has no descriptor left. Open files stay open.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE])
}

/// Returns whether a place on the disk cannot be read: a bad sector, or data that fails the disk's own checksum.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::IO, Errno::NODATA, Errno::ILSEQ])
}

fn is_one_of(error: &io::Error, numbers: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|number| numbers.iter().any(|errno| errno.raw_os_error() == number))
}

/// Returns whether the file system is mounted read-only.
pub(crate) fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Returns whether the file system has no space left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Returns whether an error is transient.
pub(crate) fn passes(error: &io::Error) -> bool {
    let of_descriptors = is_out_of_descriptors(error) && !mutant::is_active(Mutant::PoisonDescriptors);
    is_full(error) || of_descriptors || is_read_only(error)
}

/// Returns an I/O error that stands for a refusal. It is transient if the refusal is.
pub(crate) fn of(refusal: Refusal) -> io::Error {
    let kind = match refusal {
        Refusal::DiskFull => io::ErrorKind::StorageFull,
        Refusal::Unwritable(_) => io::ErrorKind::ReadOnlyFilesystem,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, refusal.to_string())
}
