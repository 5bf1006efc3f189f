//! Tests that need the fault disk or look inside.

mod arrays;
mod blobs;
mod faults;
mod fixed;
mod leftovers;
mod model;
mod owner;
mod parts;
mod pyramid;
mod reduction;
mod retention;
mod scale;
mod settle;
mod sparse;
mod succession;
