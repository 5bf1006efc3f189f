//! SQL over the store.

#![forbid(unsafe_code)]

mod answer;
mod catalog;
mod clock;
mod column;
mod cooperation;
mod direct;
mod error;
mod filter;
mod function;
mod names;
mod parameter;
mod pg;
mod plan_cache;
mod query;
mod runtime;
mod setting;
mod state;
mod statement;
mod system;
mod system_table;
mod table;
mod types;

pub use catalog::DATABASE;
pub use error::{QueryError, sqlstate};
pub use query::{Query, QueryOptions};
pub use state::{STALE_AFTER_NS, STALE_AFTER_PERIODS, StateRow, Status};
pub use system::{EventRow, GapRow, NoSystemRows, SourceRow, SystemRows};
