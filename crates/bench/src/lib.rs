//! Figures and proofs from outside: `strongback bench` talks to the server as its clients do.

#![forbid(unsafe_code)]

pub mod crash;
pub mod http;
