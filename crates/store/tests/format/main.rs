//! The format against a naive model, damaged bytes, golden files and a second implementation.

mod blocks;
mod golden;
mod inspect;
#[path = "../kit/mod.rs"]
mod kit;
mod pins;
mod segments;
mod series;
mod stores;

use strongback_store::*;
