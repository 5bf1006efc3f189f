//! Values, rows and messages as PostgreSQL's wire has them.

pub(crate) mod encode;
pub(crate) mod message;
pub(crate) mod stored;
