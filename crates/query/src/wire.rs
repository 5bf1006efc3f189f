//! Values, rows and messages in the PostgreSQL protocol.

pub(crate) mod batch;
pub(crate) mod encode;
pub(crate) mod message;
pub(crate) mod stored;
pub(crate) mod template;
