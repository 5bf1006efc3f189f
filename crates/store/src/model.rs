//! The data model of the store: values, streams, frames, options, limits and refusals.

pub(crate) mod array;
pub mod batch;
pub(crate) mod blob_ref;
pub(crate) mod calendar;
pub(crate) mod clock;
pub(crate) mod counts;
pub(crate) mod damage;
pub(crate) mod excluded;
pub mod frame;
pub(crate) mod frame_position;
pub(crate) mod large_sum;
pub mod limits;
pub(crate) mod mutant;
pub(crate) mod options;
pub mod pattern;
pub(crate) mod reduction;
pub(crate) mod refusal;
pub(crate) mod row;
pub mod stream;
pub(crate) mod trouble;
pub mod value;
