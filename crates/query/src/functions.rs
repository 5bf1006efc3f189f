//! Scalar functions and integers with bounds on their results, and checked casts of text.

pub(crate) mod growth;
pub(crate) mod integer;
pub(crate) mod large;
pub(crate) mod like;
pub(crate) mod pattern;
pub(crate) mod text;
