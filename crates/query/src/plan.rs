//! Plans parsed statements: names, types, parameters, and the fast path for simple queries.

pub(crate) mod argument;
mod array;
pub(crate) mod direct;
pub(crate) mod fixed;
pub(crate) mod labels;
pub(crate) mod names;
mod order;
pub(crate) mod parameter;
pub(crate) mod planning;
pub(crate) mod repeated;
pub(crate) mod types;
pub(crate) mod unsupported;
