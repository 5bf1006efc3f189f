//! Values, rows and messages in the PostgreSQL protocol.

pub(crate) mod encode;
pub(crate) mod message;
pub(crate) mod stored;
