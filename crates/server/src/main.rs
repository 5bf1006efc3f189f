//! The `strongback` binary.
fn main() {}
