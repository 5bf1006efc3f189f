//! The sources against a sink that records: sockets, decoders and writers as the server runs them.

mod ilp;
mod import;
mod inetx;
mod packets;
mod recording;
mod stored;
mod tcp;
mod udp;
