//! The embedded time-series store of Strongback.
//!
//! It knows nothing of sockets, tokio, arrow or SQL, and never reads a clock: its callers own time.

#![forbid(unsafe_code)]

pub mod batch;
pub mod block;
pub mod bytes;
pub mod codec;
pub mod definition;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub mod limits;
pub mod mixed;
pub mod pattern;
pub mod rdl;
pub mod segment;
pub mod stats;
pub mod stream;
pub mod value;

mod age;
mod append;
mod array;
mod blob;
mod catalog;
mod catalog_room;
mod checkpoint;
mod chunk;
mod clock;
mod commit;
mod counts;
mod directory;
mod disk;
mod elements;
mod expiry;
mod fields;
mod figures;
mod fixed;
mod grid;
mod group;
mod held;
mod intervals;
mod lane;
mod large_sum;
mod layout;
mod leaps;
mod ledger;
mod log;
mod missing;
mod mutant;
mod naming;
mod options;
mod parts;
mod points;
mod pyramid;
mod recent;
mod recent_file;
mod reconstruct;
mod record;
mod recovery;
mod reduce;
mod reducer;
mod reduction;
mod refusal;
mod refused;
mod repair;
mod retain;
mod row;
mod runs;
mod scan;
mod seal;
mod segment_file;
mod sequence;
mod settle;
mod shared;
mod slots;
mod state;
mod store;
mod stream_list;
mod stream_slot;
mod succession;
mod superblock;
#[cfg(test)]
mod tests;
mod trouble;
mod unattended;
mod view;
mod waiting_gaps;
mod weigh;

pub use array::{ArrayRef, ArrayType, Element, ElementType, MAX_ARRAY_LENGTH};
pub use batch::{Batch, Column, ColumnValues, OptionalTimes};
pub use blob::{BlobError, BlobReader, BlobRef, BlobWriter};
pub use catalog::Catalog;
pub use clock::{ClockLeap, ClockTrust};
pub use counts::{Appended, CommitNumber, Counts, Outcome, RecoveryReport, SegmentInfo, StoreStats};
#[cfg(any(test, feature = "fault-disk"))]
pub use disk::fault::{Allocation, Fault, FaultDisk};
pub use disk::volume::MemoryRegion;
pub use elements::ElementRange;
pub use fixed::FixedOptions;
pub use frame::{FrameBatch, FrameHead, FrameRef};
pub use grid::{GRID_MAX, Grid, Resample};
pub use intervals::{Interval, Intervals, Reading};
pub use ledger::{Gap, GapCause};
pub use options::{Keep, RetentionGroup, StoreOptions};
pub use pattern::{Chosen, Pattern, PatternError, Steps, TooCostly, matching};
pub use reduce::{Bucket, Pieces, Reduced};
pub use reduction::Reduction;
pub use refusal::{OpenError, Refusal, Reject, ScanError};
pub use repair::{LostRange, RepairReport, repair};
pub use runs::RunInfo;
pub use scan::Scanner;
pub use state::{OwnedValue, StateCell};
pub use store::Store;
pub use stream::{
    Channel, ChannelId, ChannelIndex, ChannelSpec, Clock, Interpolation, Layout, Stream, StreamId, StreamKey,
    StreamSpec,
};
pub use stream_list::{StreamList, Streams};
pub use unattended::let_run;
pub use value::{CellState, ChannelType, Value};
pub use view::{Scan, View};
pub use weigh::Weight;
