//! Followers: copies of stored frames in other databases, logs and files.
//!
//! A [`Follower`] reads the committed frames of some channels, stream by stream in the order of rows, and brings them
//! to a [`Target`]. It keeps its position in each stream, tries again for ever, and delivers each frame at least once;
//! the target recognises frames that come again, or keeps the position itself, so each is there once.
//!
//! The crate reads the store and knows nothing of sources, SQL or the server.

pub mod delivery;
pub mod elasticsearch;
pub mod follower;
pub mod http;
pub mod influxdb;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod mariadb;
pub mod position;
pub mod postgres;
pub mod questdb;
pub mod status;
pub mod target;

mod backlog;
mod backoff;
mod columns;
mod json;
mod number;
mod quarantine;
#[cfg(test)]
mod tests;

pub use backlog::Skipped;
pub use backoff::Pauses;
pub use delivery::{Delivery, StreamFrames};
pub use follower::{Follower, FollowerOptions, Note, Notes};
pub use position::PositionsError;
pub use status::{State, Status};
pub use target::{Delivered, Target, TargetError};
