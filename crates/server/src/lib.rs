//! The Strongback server.
