//! `strongback derived`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on derived channels.
#[derive(Clone, Debug, Subcommand)]
pub enum DerivedCommand {
    /// List derived channels with state, version and errors
    List {
        /// Server to use.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Show a derived channel as JSON
    Show {
        /// Name, such as engine.flow
        name: String,
        /// Server to use.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Create a derived channel or change it; a changed expression is a new version
    Set {
        /// Name, such as engine.flow
        name: String,
        /// Stream, or pattern of streams, whose frames trigger an evaluation
        #[arg(long, value_name = "STREAM")]
        trigger: String,
        /// Expression; channels are in double quotes
        #[arg(long, value_name = "SQL", allow_hyphen_values = true)]
        expression: String,
        /// Unit of its values
        #[arg(long, default_value = "")]
        unit: String,
        /// Description
        #[arg(long, default_value = "")]
        description: String,
        /// How long frames wait for those of other streams, in milliseconds [default: 20; 0 for a single stream]
        #[arg(long, value_name = "MS")]
        align_ms: Option<u32>,
        /// Accept it even if its channels do not exist yet
        #[arg(long)]
        wait: bool,
        /// Server to use.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Remove a derived channel; stored results are kept
    Remove {
        /// Name
        name: String,
        /// Server to use.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Compute a derived channel for stored data, as a separate version
    Backfill {
        /// Name
        name: String,
        /// Start time, inclusive: nanoseconds since 1970, RFC 3339, or now-10m [default: start of data]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// End time, exclusive [default: now]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
        /// Leave out the frames that were too late for the live evaluation
        #[arg(long)]
        without_late: bool,
        /// Wait until it has finished
        #[arg(long)]
        wait: bool,
        /// Server to use.
        #[command(flatten)]
        args: DerivedArgs,
    },
}

/// The server to use.
#[derive(Clone, Debug, Args)]
pub struct DerivedArgs {
    /// Address of the server [default: that of ./strongback.toml, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub server: Option<String>,
    /// File with the server's token [default: auth_token_file of the configuration]
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
}
