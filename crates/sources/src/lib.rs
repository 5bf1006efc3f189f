//! Telemetry protocols to frames: receivers (socket, stamp, count) and pure decoders.

#![forbid(unsafe_code)]

pub mod sink;

pub use sink::Sink;
