//! Opening: from what the disk holds to a store that takes frames.

pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod missing;
pub(crate) mod recovery;
pub(crate) mod replay;
