//! The program behind `strongback bench`, separate from the server's so that no rival is linked into that.

use std::process::ExitCode;

use clap::Parser;
use strongback_bench::{BenchCommand, run_bench};

/// Measures Strongback, against other engines on the same machine
#[derive(Debug, Parser)]
#[command(name = "strongback bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

fn main() -> ExitCode {
    match run_bench(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strongback bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
