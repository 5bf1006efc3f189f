//! The pad's PLC over ADS on real sockets: a real client, and packets written by hand.

mod faults;
mod hostile;
mod notifications;
mod raw;
mod requests;
mod rust_client;
