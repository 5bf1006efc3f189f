//! How the program ends: the one place where outcomes become exit codes, and where a closed output ends it.

use std::panic::PanicHookInfo;
use std::process::ExitCode;

use strongback_sources::instant;
use strongback_store::rdl::DefinitionError;

use crate::config::ConfigError;
use crate::ingest::StoreLost;

/// The exit code of a program whose output nobody reads any more, as a shell gives it for SIGPIPE.
const OUTPUT_CLOSED: u8 = 141;

/// Ends the program without a word when its standard output was closed, as by `head`. Rust ignores SIGPIPE, so that
/// `println!` panics then; all other panics are reported as before. A server's sockets have errors of their own.
pub fn end_quietly_on_closed_output() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if panic.payload_as_str().is_some_and(is_closed_output) {
            std::process::exit(OUTPUT_CLOSED.into());
        }
        report(panic);
    }));
}

/// Whether a panic is that of `println!` on a pipe that nobody reads.
fn is_closed_output(message: &str) -> bool {
    message.starts_with("failed printing to stdout") && message.contains("Broken pipe")
}

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

/// Checks times that flags name, before anything is opened or asked.
///
/// # Errors
/// The first that is not a time, with its flag.
pub fn check_times(flags: &[(&str, &Option<String>)]) -> Result<(), WrongFlag> {
    for (flag, text) in flags {
        if let Some(text) = text {
            instant::parse(text, 0).map_err(|error| WrongFlag(format!("{flag}: {error}")))?;
        }
    }
    Ok(())
}

/// Says what went wrong, if anything, and gives the exit code: see `strongback --help`.
pub fn exit_code(result: &anyhow::Result<Outcome>) -> ExitCode {
    if let Err(error) = result {
        eprintln!("strongback: {}", sentence(error));
    }
    ExitCode::from(code(result))
}

/// An error and its causes as one sentence, each said once: many errors say what caused them themselves.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        _ if said.ends_with(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let not_there = || std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::from(ConfigError::Read { path: "a.toml".into(), source: not_there() });
        assert_eq!(sentence(&error), "a.toml: No such file or directory (os error 2)");
        let error = anyhow::Error::from(not_there()).context("a.csv").context("nothing was read");
        assert_eq!(sentence(&error), "nothing was read: a.csv: No such file or directory (os error 2)");
    }

    #[test]
    fn a_time_that_is_none_is_a_wrong_flag() {
        let error = check_times(&[("--to", &None), ("--from", &Some("yesterday".to_owned()))]).unwrap_err();
        assert!(error.to_string().starts_with("--from: \"yesterday\" is not a time"), "{error}");
        assert_eq!(code(&Err(error.into())), 2);
        assert!(check_times(&[("--from", &Some("now-10m".to_owned()))]).is_ok());
    }

    #[test]
    fn a_closed_output_is_known_and_nothing_else() {
        assert!(is_closed_output("failed printing to stdout: Broken pipe (os error 32)"));
        assert!(!is_closed_output("failed printing to stdout: No space left on device (os error 28)"));
    }
}
