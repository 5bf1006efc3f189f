//! Converts telemetry protocols to frames. Receivers take bytes from sockets and files, and timestamp and count them.
//! Pure decoders turn bytes into frames or a typed error.
//!
//! Independent of disks, queries and user interfaces: all frames go to a [`Sink`].
//!
//! ```text
//!  UDP ──> udp ──> inetx::Decoder ─┐
//!  PLC <─> ads ────────────────────┤
//!  files ─> capture ──┘ (import)   ├─> FrameBatch ─> Sink ─> store, live
//!  files ─> mcap ─────────────────┤
//!  TCP ──> ilp::tcp ─┐             │   (this crate ends here)
//!  HTTP ─────────────┴> ilp::writer┘
//! ```
//!
//! Read first: [`Sink`], [`inetx::Decoder`], [`ilp::Ingress`].
//!
//! Invariants:
//! * A source that reads a PLC cannot write to it ([`ads::wire::Request`]).
//! * UDP sources and PLC sources never wait: frames that the sink does not accept at once are lost and counted.
//! * TCP, HTTP and imports apply backpressure instead ([`Sink::accept_waiting`]).
//! * Bytes from outside never cause a panic, or use memory beyond the bounds stated at each buffer.
//! * Every datagram and line that makes no frame is counted under a reason, and logged with its bytes at a limited
//!   rate.
//! * A bad datagram or line does not affect others.
//!
//! Nothing is durable at once. An HTTP body is durable once [`ilp::Ingress::wait_durable`] returns, and an import once
//! [`import::run`] returns. Datagrams and TCP lines become durable with the store's next commit.
//!
//! ```
//! use strongback_sources::inetx::Packet;
//!
//! let bytes = [0x11, 0, 0, 0, 0, 0, 0, 0xDD, 0, 0, 0, 7, 0, 0, 0, 30, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0xCA, 0xFE];
//! let packet = Packet::parse(&bytes)?;
//! assert_eq!((packet.stream_id, packet.sequence, packet.payload), (0xDD, 7, &[0xCA, 0xFE][..]));
//! # Ok::<(), strongback_sources::inetx::PacketError>(())
//! ```
//!
//! Each wire format is documented in its parser: [`inetx::packet`], [`ads::wire`], [`ads::table`], [`ilp::parser`].
//! Layouts are documented in [`config`].

#![forbid(unsafe_code)]

pub mod ads;
pub mod can;
pub mod capture;
pub mod clock;
pub mod config;
pub mod counts;
pub mod definition;
pub mod ilp;
pub mod import;
pub mod inetx;
pub mod instant;
pub mod layout;
pub mod leap;
pub mod mcap;
pub mod multicast;
mod naming;
pub mod notes;
pub mod rows;
pub mod sink;
pub mod start;
pub mod throttle;
pub mod udp;
pub mod worker;

pub use clock::{Now, wall_clock};
pub use config::{KeyError, SourceConfig};
pub use layout::SourceLayout;
pub use sink::Sink;
pub use start::StartError;

/// Maximum bytes of a name (table, channel, tag key or value), that of the store.
pub const NAME_BYTES_MAX: usize = strongback_store::model::limits::NAME_BYTES_MAX;
