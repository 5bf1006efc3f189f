//! `strongback bench`: replaces this process by the benchmark program beside it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cli::BenchArgs;
use crate::commands::outcome::Outcome;

/// Runs `strongback-bench` with the given arguments. Returns only if that fails.
///
/// # Errors
/// If there is no such program beside this one, or it cannot be started.
pub fn run(args: &BenchArgs) -> anyhow::Result<Outcome> {
    run_with(&[], args)
}

/// Runs `strongback-bench` as [`run`] does, with the arguments `first` before the given ones.
///
/// # Errors
/// As [`run`].
pub fn run_with(first: &[&str], args: &BenchArgs) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("path of this program")?.with_file_name("strongback-bench");
    if !program.is_file() {
        bail!(
            "the benchmarks are a program of their own, which is not at {}: `make bench` builds it",
            program.display()
        );
    }
    let words = first.iter().map(OsStr::new).chain(args.arguments.iter().map(AsRef::as_ref));
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| format!("start {}", program.display()))
}
