//! How the program ends: the one place where outcomes become exit codes.

use std::process::ExitCode;

use strongback_store::rdl::DefinitionError;

use crate::config::ConfigError;
use crate::ingest::StoreLost;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// Done, but data was lost or found damaged.
    DataLost,
    /// A doctor found something wrong.
    Findings,
    /// Stopped by Ctrl-C; what was taken until then is on the disk.
    Stopped,
}

/// A flag whose value cannot be meant.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongFlag(pub String);

/// Says what went wrong, if anything, and gives the exit code: see `strongback --help`.
pub fn exit_code(result: &anyhow::Result<Outcome>) -> ExitCode {
    if let Err(error) = result {
        eprintln!("strongback: {error:#}");
    }
    ExitCode::from(code(result))
}

/// The number of the exit code.
pub fn code(result: &anyhow::Result<Outcome>) -> u8 {
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Findings | Outcome::DataLost) => 3,
        Ok(Outcome::Stopped) => 130,
        Err(error) if error.is::<ConfigError>() || error.is::<DefinitionError>() || error.is::<WrongFlag>() => 2,
        Err(error) if error.is::<StoreLost>() => 4,
        Err(_) => 1,
    }
}
