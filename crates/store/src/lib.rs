//! The embedded time-series store of Strongback.
//!
//! It knows nothing of sockets, tokio, arrow or SQL, and never reads a clock: its callers own time.

#![forbid(unsafe_code)]

pub mod batch;
pub mod frame;
pub mod pattern;
pub mod store;
pub mod stream;
pub mod value;

pub use batch::{Batch, Column, ColumnValues, OptionalTimes};
pub use frame::{FrameBatch, FrameHead, FrameRef};
pub use pattern::{Pattern, PatternError};
pub use store::*;
pub use stream::{
    Channel, ChannelId, ChannelIndex, ChannelSpec, Clock, Interpolation, Layout, Stream, StreamId, StreamKey,
    StreamSpec,
};
pub use value::{CellState, ChannelType, Value};
