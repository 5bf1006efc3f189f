//! One module for each command of the program, and the code that several of them share.

pub mod archive;
pub mod bench;
pub mod check;
pub mod client;
pub mod demo;
pub mod derived;
pub mod doctor;
pub mod export;
pub mod import;
pub mod mark;
pub mod outcome;
pub mod output;
pub mod playback;
pub mod reach;
pub mod run;
pub mod serve;
pub mod settings;
pub mod store;
pub mod symbols;
