//! A real server on free ports with a real store: what clients see.

mod bounds;
mod client;
mod clocks;
mod doctor;
mod faults;
mod folder;
mod forged;
mod layouts;
mod live;
mod live_sql;
mod live_sql_http;
mod marks;
mod order;
mod playback;
mod plc;
mod process;
mod runs;
mod security;
mod sql;
mod writes;
