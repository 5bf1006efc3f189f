//! Parses the text of a statement within limits, and classifies its request.

pub(crate) mod array;
pub(crate) mod catalogs;
pub(crate) mod constant;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod dialect;
pub(crate) mod extent;
pub(crate) mod footprint;
pub(crate) mod interval;
pub(crate) mod operator;
pub(crate) mod parser;
pub(crate) mod row;
pub(crate) mod setting;
pub(crate) mod signs;
pub(crate) mod sized;
pub(crate) mod statement;
pub(crate) mod subscribe;
pub(crate) mod value;
pub(crate) mod walk;
