//! The library behind `strongback bench`: measurements against other engines, and tests that kill, starve and attack
//! the server.
//!
//! It starts the server in a separate process and communicates with it as clients do; only the store and the decoders
//! are also called directly. Every benchmark prints its tables, the machine it ran on, and with `--json` one object
//! for scripts. Read first: [`command::BenchCommand`], the list of benchmarks.
//!
//! ```
//! use clap::Parser;
//! use strongback_bench::BenchCommand;
//!
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(subcommand)]
//!     command: BenchCommand,
//! }
//! assert!(Arguments::try_parse_from(["bench", "ingest", "--quick"]).is_ok());
//! ```

#![forbid(unsafe_code)]

pub mod archives;
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
