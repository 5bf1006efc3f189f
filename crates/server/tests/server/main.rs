//! A real server on free ports with a real store: what clients see.

mod client;
mod faults;
mod live;
mod security;
mod sql;
mod writes;
