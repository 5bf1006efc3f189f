//! Crate `query` of Strongback.
