//! The embedded store of Strongback for C: what `include/strongback_store.h` declares, and nothing else.
//!
//! It knows nothing of the engine's inside: each function turns what C gives into a call of `strongback-store`, and what
//! comes back into numbers.
//!
//! ```text
//!  C ─> [pointers checked: pointer] ─> [a call that cannot unwind: fault] ─> strongback-store
//! ```
//! Invariants: no panic crosses the boundary ([`fault::guard`]). A pointer is read only after it is known not to be null;
//! that it points at what the header says is the caller's promise, and the reason for each `unsafe` here.

pub mod fault;
pub mod frames;
pub mod reading;
pub mod scan;
pub mod store;

mod pointer;
pub mod value;

#[cfg(test)]
mod tests;
