//! Tests that need the fault disk or look inside.

mod arrays;
mod blobs;
mod clock;
mod closing;
mod definitions;
mod faults;
mod filling;
mod fixed;
mod forged;
mod leftovers;
mod losses;
mod lossless;
mod model;
mod owner;
mod parts;
mod pyramid;
mod recent;
mod reduction;
mod refusing;
mod retention;
mod scale;
mod settle;
mod sparse;
mod state;
mod succession;
mod threads;
