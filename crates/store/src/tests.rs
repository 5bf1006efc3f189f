//! Tests that need the fault disk or look inside.

mod faults;
mod model;
mod retention;
mod scale;
mod sparse;
mod succession;
