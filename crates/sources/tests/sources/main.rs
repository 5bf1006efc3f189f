//! The sources against a sink that records: sockets, decoders and writers as the server runs them.

mod ads_peer;
mod ads_program;
mod ads_source;
mod ads_wire;
mod blocks;
mod ilp;
mod import;
mod inetx;
mod multicast;
mod packets;
mod recording;
mod stored;
mod tcp;
mod udp;
