//! Telemetry protocols to frames: receivers that take bytes from sockets and files, stamp and count them, and pure
//! decoders that turn bytes into frames or a typed error.
//!
//! It knows nothing of disks, of queries, of screens: everything it makes goes to a [`Sink`].
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
//! * A source that reads a PLC can say nothing to it that writes ([`ads::wire::Request`]).
//! * A UDP source, and one that reads a PLC, never waits: what the sink does not take at once is lost and counted.
//! * TCP, HTTP and imports push back instead ([`Sink::accept_waiting`]).
//! * Bytes from outside never cause a panic, nor memory beyond the bounds named beside each buffer.
//! * Every datagram and line that makes no frame is counted under a reason, and now and then logged with its bytes.
//! * A bad datagram or line disturbs no other.
//!
//! Nothing here is durable. An HTTP body is once [`ilp::Ingress::wait_durable`] returns, an import once
//! [`import::run`] does; datagrams and TCP lines are with the store's next commit.
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
//! The wire formats are described where they are read: [`inetx::packet`], [`ads::wire`], [`ads::table`],
//! [`ilp::parser`]; layouts in [`config`].

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
pub use config::SourceConfig;
pub use layout::{LayoutError, SourceLayout};
pub use sink::Sink;
pub use start::StartError;

/// Bytes of the longest name (table, channel, tag key or value), as the store has it.
pub const NAME_BYTES_MAX: usize = strongback_store::model::limits::NAME_BYTES_MAX;
