//! Upkeep: rows leave memory for segments, segments are compacted, and the oldest are dropped.

pub(crate) mod age;
pub(crate) mod blobs;
pub(crate) mod checkpointing;
pub(crate) mod expiry;
pub(crate) mod leap;
pub(crate) mod lost;
pub(crate) mod naming;
pub(crate) mod room;
pub(crate) mod seal;
pub(crate) mod sealer;
pub(crate) mod sealing;
pub(crate) mod settle;
pub(crate) mod shortage;
pub(crate) mod slots;
pub(crate) mod turnover;
