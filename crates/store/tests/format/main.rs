//! The format against a naive model, damaged bytes, golden files and a second implementation.

mod blocks;
mod golden;
mod segments;
mod series;
