//! `strongback derived`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on derived channels.
#[derive(Clone, Debug, Subcommand)]
pub enum DerivedCommand {
    /// List them: state, version, and what is wrong
    List {
        /// Where they are.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Show one, as JSON
    Show {
        /// Its name, as in engine.flow
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Put one in force; another expression is a new version
    Set {
        /// Its name, as in engine.flow
        name: String,
        /// Stream at whose frames it is evaluated, or a pattern of streams
        #[arg(long, value_name = "STREAM")]
        trigger: String,
        /// Expression over channels in double quotes
        #[arg(long, value_name = "SQL", allow_hyphen_values = true)]
        expression: String,
        /// Unit of its values
        #[arg(long, default_value = "")]
        unit: String,
        /// What it is
        #[arg(long, default_value = "")]
        description: String,
        /// Milliseconds that frames are held back where streams are joined [default: 20, and 0 for one stream]
        #[arg(long, value_name = "MS")]
        align_ms: Option<u32>,
        /// Take it although its channels are not there yet
        #[arg(long)]
        wait: bool,
        /// Where it is.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Remove a derived channel; its results stay
    Remove {
        /// Its name
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: DerivedArgs,
    },
    /// Write one for a span of the past, as a version of its own
    Backfill {
        /// Its name
        name: String,
        /// From this time on: nanoseconds since 1970, RFC 3339, or now-10m [default: everything]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// Up to, not including, this time [default: now]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
        /// Leave out the frames that live left out for being late
        #[arg(long)]
        without_late: bool,
        /// Wait until it is done
        #[arg(long)]
        wait: bool,
        /// Where it is.
        #[command(flatten)]
        args: DerivedArgs,
    },
}

/// Which server.
#[derive(Clone, Debug, Args)]
pub struct DerivedArgs {
    /// Server to ask
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub server: String,
    /// File with the server's token
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
}
