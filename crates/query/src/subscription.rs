//! Live SQL: the result of a statement, then its changes.
//!
//! ```text
//! commit ─> wait ─> step: the statement over a view of the store ─┬─> json ─> events, WebSocket (server)
//!            │        rows:    new rows of each stream             └─> flight
//!            │        windows: windows that closed, and corrections
//!            │        result:  the whole result, if it differs
//!            └ the client takes a step when it has read the one before
//! ```
//! The store is the buffer. A subscription keeps the next row of each stream, and nothing of the rows themselves; what a
//! slow client did not take becomes part of a later, larger step. Each step is a query like any other: it waits for its
//! turn, and is limited in memory and time.
//!
//! Invariants:
//! - Of the class `rows`, only committed rows are sent, each exactly once: a step reads the rows of each stream from
//!   where the step before ended, whatever block or segment they are in.
//! - A window is sent when the watermark has passed its end, and again, as a whole, when rows came later than that.
//! - A result is sent whole, and only if it differs from the last.
//! - An error ends the subscription, and is sent.

pub(crate) mod class;
pub(crate) mod follow;
pub(crate) mod json;
pub(crate) mod position;
pub(crate) mod results;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod window;
pub(crate) mod windows;
