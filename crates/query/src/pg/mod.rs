//! PostgreSQL's wire.
pub(crate) mod encode;
