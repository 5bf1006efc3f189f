//! Crate `sim` of Strongback.
