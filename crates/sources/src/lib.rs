//! Telemetry protocols to frames: receivers (socket, stamp, count) and pure decoders.

#![forbid(unsafe_code)]

pub mod capture;
pub mod clock;
pub mod config;
pub mod counts;
pub mod ilp;
pub mod import;
pub mod inetx;
pub mod layout;
pub mod leap;
pub mod sink;
pub mod throttle;
pub mod udp;

pub use clock::{Now, wall_clock};
pub use config::SourceConfig;
pub use layout::{LayoutError, SourceLayout};
pub use sink::Sink;

/// Bytes of the longest name (table, channel, tag key or value).
pub const MAX_NAME_BYTES: usize = 1_024;
