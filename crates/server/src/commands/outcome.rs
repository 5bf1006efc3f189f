//! The end of the program: the only place where outcomes become exit codes, and where closed output ends it.

use std::panic::PanicHookInfo;
use std::process::ExitCode;

use strongback_sources::instant;
use strongback_store::rdl::DefinitionError;

use crate::commands::output;
use crate::config::ConfigError;
use crate::ingest::StoreLost;

/// Exit code of a program whose output is closed, as a shell reports it for SIGPIPE.
const OUTPUT_CLOSED: u8 = 141;

/// Ends the program silently when its standard output is closed, as by `head`. Rust ignores SIGPIPE, so `println!`
/// panics in that case; other panics are reported as usual. The server's sockets have errors of their own.
pub fn end_quietly_on_closed_output() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if panic.payload_as_str().is_some_and(is_closed_output) {
            std::process::exit(OUTPUT_CLOSED.into());
        }
        report(panic);
    }));
}

/// Returns whether a panic is that of `println!` on a closed pipe.
fn is_closed_output(message: &str) -> bool {
    message.starts_with("failed printing to stdout") && message.contains("Broken pipe")
}

/// Result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// Success, but data was lost or found damaged.
    DataLost,
    /// Findings of a doctor.
    Findings,
    /// Stopped by Ctrl-C; everything taken until then is on disk.
    Stopped,
}

/// An invalid value of a flag.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongFlag(pub String);

/// Checks times given by flags, before anything is opened or asked.
///
/// # Errors
/// The first invalid time, with its flag.
pub fn check_times(flags: &[(&str, &Option<String>)]) -> Result<(), WrongFlag> {
    for (flag, text) in flags {
        if let Some(text) = text {
            instant::parse(text, 0).map_err(|error| WrongFlag(format!("{flag}: {error}")))?;
        }
    }
    Ok(())
}

/// Prints the error, if any, and returns the exit code; see `strongback --help`. Output closed by its reader is not
/// worth a word.
pub fn exit_code(result: &anyhow::Result<Outcome>) -> ExitCode {
    if let Err(error) = result
        && !output::is_closed(error)
    {
        eprintln!("strongback: {}", sentence(error));
    }
    ExitCode::from(code(result))
}

/// Joins an error and its causes into one sentence, each named once, because many errors include their cause.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        _ if said.ends_with(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

/// Returns the exit code as a number.
pub fn code(result: &anyhow::Result<Outcome>) -> u8 {
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Findings | Outcome::DataLost) => 3,
        Ok(Outcome::Stopped) => 130,
        Err(error) if output::is_closed(error) => OUTPUT_CLOSED,
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
