//! Errors of the disk that pass: what failed is done again, as a whole, and nothing is lost meanwhile.
//!
//! All others poison the store: after a failed write or sync only recovery can say what the disk holds.

use std::io;

use rustix::io::Errno;

use crate::Refusal;
use crate::model::mutant::{self, Mutant};

/// Whether the process or the system has no descriptor left. What is open stays open.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE])
}

/// Whether it is the place on the disk that cannot be read: a bad sector, or bytes whose own checksum does not hold.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::IO, Errno::NODATA, Errno::ILSEQ])
}

fn is_one_of(error: &io::Error, numbers: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|number| numbers.iter().any(|errno| errno.raw_os_error() == number))
}

/// Whether the file system was mounted so that it can be read only.
pub(crate) fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Whether the file system has no space left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Whether an error passes.
pub(crate) fn passes(error: &io::Error) -> bool {
    let of_descriptors = is_out_of_descriptors(error) && !mutant::is_active(Mutant::PoisonDescriptors);
    is_full(error) || of_descriptors || is_read_only(error)
}

/// The error of the disk that a refusal stands for: it passes if the refusal does.
pub(crate) fn of(refusal: Refusal) -> io::Error {
    let kind = match refusal {
        Refusal::DiskFull => io::ErrorKind::StorageFull,
        Refusal::Unwritable(_) => io::ErrorKind::ReadOnlyFilesystem,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, refusal.to_string())
}
