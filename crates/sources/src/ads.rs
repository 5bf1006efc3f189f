//! Source for Beckhoff PLCs over ADS: finds symbols by name, reads or subscribes to them, and makes frames.
//!
//! ```text
//!  [[source]] ─> layout ─┐
//!  PLC ─ tables ─> table ─> leaf ─> plan ─> session: connection ─> group ─> FrameBatch ─> Sink
//!                                                  (wire)        (cycle, value)
//! ```
//!
//! [`wire`], [`table`], [`leaf`], [`select`], [`plan`], [`cycle`] and [`value`] are pure. [`connection`] owns the
//! socket, `session` decides what to request and when, and [`source`] runs the thread. A PLC is only ever read:
//! [`wire::Request`] has no variant that writes.

pub mod address;
pub mod browse;
pub mod connection;
pub mod counts;
pub mod cycle;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod intake;
pub mod layout;
pub mod leaf;
pub mod pattern;
pub mod plan;
mod program;
pub mod select;
mod session;
pub mod source;
pub mod table;
pub mod value;
pub mod wire;

pub use address::{AmsAddress, NetId};
pub use counts::{AdsCounts, Trouble};
pub(crate) use layout::foreign_key;
pub use layout::{AdsLayout, GroupLayout, PlcAddress};
pub use leaf::{Arrays, Leaf};
pub use source::{PlcSource, RunningPlc};
