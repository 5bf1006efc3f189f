//! The command `mark` and its flags.

use clap::{Args, Subcommand};

use crate::cli::RunArgs;

/// Commands on marks.
#[derive(Clone, Debug, Subcommand)]
pub enum MarkCommand {
    /// Mark values as bad: queries leave them out
    Bad(MarkArgs),
    /// Mark values as uncertain: queries return them, and tell on request
    Uncertain(MarkArgs),
    /// Mark values as good, which takes earlier marks back
    Good(MarkArgs),
    /// List the marks that count, or all that were ever made
    List(MarkListArgs),
}

/// Flags of `mark bad`, `mark uncertain` and `mark good`.
#[derive(Clone, Debug, Args)]
pub struct MarkArgs {
    /// Patterns of the channels, such as 'engine.p1' or 'engine.*'
    #[arg(required = true, value_name = "CHANNELS")]
    pub channels: Vec<String>,
    /// Time of the first value, inclusive: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "to")]
    pub from: Option<String>,
    /// Time after the last value, exclusive
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "from")]
    pub to: Option<String>,
    /// Time of a single value, instead of --from and --to
    #[arg(
        long, value_name = "TIME", allow_hyphen_values = true,
        conflicts_with_all = ["from", "to"], required_unless_present = "from"
    )]
    pub at: Option<String>,
    /// Reason for the mark
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who marks [default: $USER]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Store or server to use.
    #[command(flatten)]
    pub place: RunArgs,
}

/// Flags of `mark list`.
#[derive(Clone, Debug, Args)]
pub struct MarkListArgs {
    /// Patterns of the channels [default: all]
    #[arg(value_name = "CHANNELS")]
    pub channels: Vec<String>,
    /// Start time, inclusive [default: start of data]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End time, exclusive [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// List all marks that were ever made, the newest first, also those that no longer count
    #[arg(long)]
    pub all: bool,
    /// Store or server to use.
    #[command(flatten)]
    pub place: RunArgs,
}
