//! A real server on free ports with a real store: what clients see.

mod client;
mod clocks;
mod doctor;
mod faults;
mod layouts;
mod live;
mod playback;
mod plc;
mod runs;
mod security;
mod sql;
mod writes;
