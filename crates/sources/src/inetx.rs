//! iNET-X: the packet format of airborne acquisition chassis, over UDP.

pub(crate) mod append;
pub mod blocks;
pub mod decoder;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod packet;
pub mod source;
mod tally;

pub use decoder::{DecodeError, Decoded, Decoder, Stamp};
pub use packet::{Packet, PacketError, PayloadInformation};
pub use source::{InetxSource, RunningReceiver};
pub use tally::Tally;
