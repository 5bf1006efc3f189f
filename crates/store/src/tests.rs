//! Tests that need the fault disk or look inside.

mod arrays;
mod blobs;
mod faults;
mod fixed;
mod leftovers;
mod model;
mod parts;
mod pyramid;
mod reduction;
mod refusing;
mod retention;
mod scale;
mod settle;
mod sparse;
mod succession;
