//! Faults one by one.
