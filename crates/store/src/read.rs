//! Reading: views, scans, and the values computed from them.

pub(crate) mod block_counts;
pub(crate) mod buckets;
pub(crate) mod condition;
pub(crate) mod decoded;
pub(crate) mod elements;
pub(crate) mod fold;
pub(crate) mod grid;
pub(crate) mod groups;
pub(crate) mod intervals;
pub(crate) mod ordered;
pub(crate) mod ordered_stream;
pub(crate) mod parts;
pub(crate) mod points;
pub(crate) mod pyramid;
pub(crate) mod reconstruct;
pub(crate) mod request;
pub(crate) mod sample_run;
pub(crate) mod scan;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod stream_view;
pub(crate) mod totals;
pub(crate) mod view;
pub(crate) mod weigh;
mod whole;
