//! SQL over the store: Apache DataFusion, the PostgreSQL wire, state at an instant, and export.
//!
//! It knows nothing of sources, HTTP or configuration; it is the only crate with DataFusion.
//!
//! ```text
//! store::View ─> table ─> DataFusion ─┬> pg (psql, psycopg, …)
//!             └> direct ──────────────┤  answer (JSON)
//!             └> state, export ───────┴> server
//! ```
//!
//! Read first: [`Query`], the face towards the server; `table`, a table as DataFusion sees it; `pg`, a session
//! for each connection.
//!
//! Invariants:
//! - Nothing can be written: statements that would are refused before they are planned, and again after.
//! - A query reads one view of the store; frames are in it as soon as they are appended.
//! - `time` is floored to microseconds in values and in predicates, `time_ns` is exact, and so with the others.
//! - Queries run on threads of their own with lower priority, within one bound of memory, and stop at their
//!   next yield when cancelled, timed out or left alone by their client.
//! - No statement ends the process or takes more memory than its bound: what is parsed is bounded by `extent`, parsed
//!   and planned by `planning` on large stacks, its functions by `growth`, what passes between operators by `guard`.
//! - Every query begins soon (`turn`), those of clients that had little first (`fair`); connections that only start keep
//!   nobody out (`pg::doors`).
//! - Integers never wrap: what their type cannot hold is an error (`integer`).
//! - A plan is used only with the version of the catalog that it was made against.
//!
//! ```no_run
//! use std::sync::Arc;
//! use strongback_query::{NoSystemRows, PgAuth, Query, QueryOptions};
//! use strongback_store::{Store, StoreOptions};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open("data".as_ref(), StoreOptions::default(), 0)?;
//! let query = Query::new(store, Arc::new(NoSystemRows), QueryOptions::default())?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:5433")?;
//! query.serve_pg(listener, PgAuth::Trust, Box::pin(std::future::pending())).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

// From the lowest to the highest: each imports only those above it in this list (`tests/walls/wings.rs`).
mod error;
mod export;
mod expression;
mod functions;
mod operators;
mod pg;
mod plan;
mod query;
mod running;
mod sql;
mod system;
mod table;
mod wire;

pub use error::{QueryError, sqlstate};
pub use export::{EXPORT_CHANNELS_MAX, ExportFormat, ExportRequest, ExportStream};
pub use expression::{
    Cell, EXPRESSION_BYTES_MAX, EXPRESSION_CHANNELS_MAX, Expression, ExpressionError, Fault, Kind, Moment, Named,
    Outcome, Program, Troubles, WINDOW_SAMPLES_MAX,
};
pub use pg::auth::{PgAuth, ScramKeys};
pub use query::answer::SqlAnswer;
pub use query::{Query, QueryOptions};
pub use running::runtime::let_end;
pub use system::catalog::DATABASE;
pub use system::state::{STALE_AFTER_NS, STALE_AFTER_PERIODS, StateRow, Status};
pub use system::{EventOrigin, EventRow, GapRow, NoSystemRows, RunRow, SourceCounters, SourceRow, SystemRows};
