//! SQL over the store: Apache DataFusion, the PostgreSQL protocol, Arrow Flight SQL, state at an instant, and export.
//!
//! Independent of sources, HTTP and configuration. The only crate that depends on DataFusion.
//!
//! ```text
//! store::View ─> table ─> DataFusion ─┬> pg (psql, psycopg, …), flight (ADBC, JDBC, …)
//!             └> direct ──────────────┤  answer (JSON)
//!             └> state, export ───────┴> server
//! ```
//!
//! Read first: [`Query`], the interface to the server; `table`, a table as DataFusion sees it; `telemetry`, table
//! functions such as `resample`; `pg`, a session per connection; `flight`, record batches over gRPC; `subscription`, live
//! SQL.
//!
//! Invariants:
//! - No statement writes: those that would are rejected before planning, and again after it. Rows that clients send
//!   are handed to the server (`flight::ingest`).
//! - A query reads one view of the store. Frames are visible as soon as they are appended.
//! - `time` is floored to microseconds in values and in predicates; `time_ns` is exact. The same holds for the other
//!   times.
//! - Queries run on their own threads with lower priority, within a memory limit, and stop at their next yield when
//!   cancelled, timed out or abandoned by their client.
//! - No statement ends the process or exceeds its memory limit: `extent` bounds what is parsed, `planning` parses and
//!   plans on large stacks, `growth` bounds functions, and `guard` bounds what passes between operators.
//! - Every query starts soon (`turn`), with clients that had little first (`fair`). Connections that are still starting
//!   keep no one out (`running::doors`).
//! - Integers never wrap: a result out of range is an error (`integer`).
//! - A plan is used only with the catalog version for which it was made.
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

// Which module may import which is defined in `tests/walls/wings.rs`.
mod error;
mod export;
mod expression;
mod flight;
mod functions;
mod lake;
mod operators;
mod pg;
mod plan;
mod query;
mod running;
mod sql;
mod subscription;
mod system;
mod table;
mod telemetry;
mod wire;

pub use error::{QueryError, sqlstate};
pub use export::{EXPORT_CHANNELS_MAX, ExportFormat, ExportMarks, ExportRequest, ExportStream};
pub use expression::{
    Cell, EXPRESSION_BYTES_MAX, EXPRESSION_CHANNELS_MAX, Expression, ExpressionError, Fault, Kind, Moment, Named,
    Outcome, Program, Troubles, WINDOW_SAMPLES_MAX,
};
pub use flight::auth::{FlightAuth, shows_token};
pub use flight::ingest::{BulkCounts, BulkSink, BulkWrite};
pub use flight::server::FlightOptions;
pub use lake::{LakeError, LakeFrames, LakeHistory, LakePlace, LakeWriter};
pub use pg::auth::{PgAuth, ScramKeys};
pub use query::answer::SqlAnswer;
pub use query::{Query, QueryOptions};
pub use running::runtime::let_end;
pub use sql::setting::MarkUse;
pub use subscription::json::{LiveKind, LiveMessage, LiveMessages};
pub use subscription::settings::{SUBSCRIBE_INTERVAL, SUBSCRIBE_LATENESS, SubscribeRequest};
pub use system::catalog::DATABASE;
pub use system::state::{STALE_AFTER_NS, STALE_AFTER_PERIODS, StateRow, Status};
pub use system::{
    EventOrigin, EventRow, FollowerRow, GapRow, MarkRow, MarkedSpan, NoSystemRows, Quality, RunRow, SourceCounters,
    SourceRow, SystemRows,
};
