//! From a parsed statement to a plan: names, types, parameters, and the short way for simple queries.

pub(crate) mod direct;
pub(crate) mod names;
pub(crate) mod parameter;
pub(crate) mod planning;
pub(crate) mod types;
