//! Crate `bench` of Strongback.
