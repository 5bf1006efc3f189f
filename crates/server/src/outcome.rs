//! How the program ends: the one place where outcomes become exit codes.

use std::process::ExitCode;

use crate::config::ConfigError;
use crate::ingest::StoreLost;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// Done, but data was lost or found damaged.
    DataLost,
}

/// Says what went wrong, if anything, and gives the exit code: see `strongback --help`.
pub fn exit_code(result: &anyhow::Result<Outcome>) -> ExitCode {
    let code = match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::DataLost) => 3,
        Err(error) => {
            eprintln!("strongback: {error:#}");
            if error.is::<ConfigError>() {
                2
            } else if error.is::<StoreLost>() {
                4
            } else {
                1
            }
        }
    };
    ExitCode::from(code)
}
