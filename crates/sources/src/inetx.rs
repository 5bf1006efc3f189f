//! iNET-X: the packet format of airborne acquisition chassis, over UDP.

pub mod decoder;
pub mod packet;
pub mod source;

pub use decoder::{DecodeError, Decoded, Decoder};
pub use packet::{Packet, PacketError, PayloadInformation};
pub use source::{Running, Source};
