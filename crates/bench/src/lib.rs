//! Figures and proofs from outside: `strongback bench` talks to the server as its clients do.

#![forbid(unsafe_code)]

mod clock;
pub mod command;
pub mod crash;
pub mod embedded;
pub mod faults;
mod feeder;
pub mod hostile;
pub mod http;
pub mod ingest;
pub mod live;
pub mod machine;
pub mod peers;
pub mod query;
pub mod recording;
pub mod serving;
pub mod soak;
pub mod sources;
pub mod table;
mod work_folder;

pub use command::{BenchCommand, run_bench};
