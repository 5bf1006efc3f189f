//! The embedded time-series store of Strongback: frames of telemetry in a folder, or in one file of fixed size.
//!
//! A *stream* is a sequence of *frames*; a frame holds the values of many *channels* that were received together. The
//! crate knows nothing of sockets, tokio, arrow or SQL, and never reads a clock: every call that needs the time takes
//! `now`, in nanoseconds since 1970 UTC.
//!
//! # Durability
//!
//! | call | when it returns |
//! |---|---|
//! | [`Store::append`] | the frames have rows and are visible in new views; they are **not yet durable** |
//! | [`Store::commit`] | everything appended before the call is on disk and survives a power cut |
//! | [`Store::wait_committed`] | `true` if the given commit, made by another thread, is durable |
//! | [`Store::resolve`] | the stream can be appended to; its definition is durable with the next commit |
//! | [`BlobWriter::finish`] | the bytes of the blob are on disk; the frame that refers to it needs a commit |
//! | [`Store::close`] | everything is durable and sealed; the next opening has nothing to recover |
//!
//! After a crash, [`Store::open`] restores exactly the committed frames. Frames appended after the last commit are
//! lost, and their row numbers are given to new frames in the next *epoch*. A write or sync that fails never counts as
//! a commit: the store then refuses all writes until it is reopened.
//!
//! # Example
//!
//! ```
//! use strongback_store::{
//!     ChannelSpec, ChannelType, FrameBatch, FrameHead, Outcome, Scan, Store, StoreOptions, StreamKey, StreamSpec,
//!     Value,
//! };
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let now = 1_790_000_000_000_000_000;
//! let store = Store::open(folder.path(), StoreOptions::default(), now)?;
//! let spec = StreamSpec::new(StreamKey::new("engine", []), vec![ChannelSpec::new("p_lox", ChannelType::F32)]);
//! let (stream, channels) = store.resolve(&spec, now)?;
//!
//! let mut batch = FrameBatch::new();
//! batch.begin(FrameHead { stream: stream.id, receive_time: now, source_time: None, sequence: None });
//! batch.push(channels[0], Value::F32(41.7));
//! batch.end();
//! let appended = store.append(&batch, now);
//! assert_eq!(appended.outcomes, [Outcome::Stored { row: 0 }]);
//! store.commit(now)?; // durable from here on
//!
//! let view = store.view();
//! for batch in view.scan(Scan::all(stream.id, channels)) {
//!     let batch = batch?;
//!     assert_eq!(batch.columns[0].cell(0), Ok(Value::F32(41.7)));
//! }
//! store.close(now)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start reading
//!
//! [`Store`] is the whole interface for writing, [`View`] for reading. A frame passes through the modules in this
//! order: `append` (row numbers, duplicates, gaps, open blocks), `engine` (the commit), `log`, `upkeep` (sealing,
//! expiry, compaction), `segment`. `open` recovers a store. Modules import only those listed before them in
//! `tests/walls/wings.rs`.

#![forbid(unsafe_code)]

pub mod block;
pub mod bytes;
pub mod codec;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub mod model;
pub mod rdl;
pub mod segment;

mod append;
mod blob;
mod catalog;
mod disk;
mod engine;
mod log;
mod open;
mod read;
mod repair;
mod store;
#[cfg(test)]
mod tests;
pub mod text;
mod unattended;
mod upkeep;

pub use append::ledger::{Gap, GapCause};
pub use blob::{BlobError, BlobReader};
pub use catalog::stream_list::{StreamList, Streams};
pub use catalog::{Catalog, matching, matching_data};
#[cfg(any(test, feature = "fault-disk"))]
pub use disk::fault::{Allocation, Fault, FaultDisk};
pub use disk::volume::MemoryRegion;
pub use model::array::{ArrayRef, ArrayType, Element, ElementType};
pub use model::batch::{Batch, Column, ColumnValues, OptionalTimes};
pub use model::blob_ref::BlobRef;
pub use model::calendar::{CivilTime, Date};
pub use model::clock::{ClockLeap, ClockTrust};
pub use model::counts::{Appended, CommitNumber, Counts, Outcome, RecoveryReport, SegmentInfo, StoreStats};
pub use model::excluded::Excluded;
pub use model::frame::{FrameBatch, FrameHead, FrameRef};
pub use model::frame_position::FramePosition;
pub use model::limits::ARRAY_LENGTH_MAX;
pub use model::options::{Keep, RetentionGroup, StoreOptions};
pub use model::pattern::{Chosen, Pattern, PatternError, Steps, TooCostly};
pub use model::reduction::Reduction;
pub use model::refusal::{OpenError, Refusal, Reject, ScanError};
pub use model::stream::{
    Channel, ChannelId, ChannelIndex, ChannelSpec, Clock, Interpolation, Layout, Stream, StreamId, StreamKey,
    StreamSpec,
};
pub use model::value::{CellState, ChannelType, Value};
pub use read::block_counts::BlockCounts;
pub use read::buckets::{Bucket, Computed, Pieces, Reduced};
pub use read::condition::Condition;
pub use read::grid::{GRID_MAX, Grid, Resample};
pub use read::intervals::{Interval, Intervals, Reading};
pub use read::ordered::{NextFrame, OrderedBatches, OrderedFrame, OrderedFrames, OrderedRun, OrderedRuns, OrderedScan};
pub use read::request::{ElementRange, Scan};
pub use read::sample_run::{Neighbours, SampleCursor, SampleRef, SampleRun, SampleRuns};
pub use read::scan::Scanner;
pub use read::state::{OwnedValue, StateCell};
pub use read::totals::{EqualPieces, PieceTotals, Totals, TotalsReader, TotalsRequest};
pub use read::view::View;
pub use read::weigh::{WeighedPieces, Weigher, Weight};
pub use repair::{LostRange, RepairReport, repair};
pub use store::Store;
pub use store::blob_writer::BlobWriter;
pub use store::fixed::FixedOptions;
pub use store::runs::RunInfo;
pub use unattended::let_run;
