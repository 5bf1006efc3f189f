//! The command `archive` and its flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::PlaybackArgs;

/// Commands on followers.
#[derive(Clone, Debug, Subcommand)]
pub enum ArchiveCommand {
    /// List the archives: where they are, how far behind, and what fails
    List {
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Add an archive to a running server, which keeps it beyond a restart
    Add(Box<AddArgs>),
    /// Remove an archive that was added; what it delivered stays
    Remove {
        /// Name of the archive
        name: String,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Deliver again what is stored, for example to an archive that lost data; frames that are still there stay as they
    /// are
    Backfill {
        /// Name of the archive
        name: String,
        /// `time` of the first frames: an instant, "-2h", or "start"
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: String,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Pause an archive, also beyond a restart; stored data waits for it
    Pause {
        /// Name of the archive
        name: String,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Let a paused archive continue, and one that waits for its next attempt try now
    Resume {
        /// Name of the archive
        name: String,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
}

/// A new archive. Further keys are those of `[[archive]]`.
#[derive(Clone, Debug, Args)]
pub struct AddArgs {
    /// Name of the archive
    pub name: String,
    /// Kind of the target: postgres, mariadb, questdb, influxdb, elasticsearch, kafka, lake
    #[arg(long, value_name = "KIND")]
    pub target: String,
    /// Address of the target, such as postgresql://user@host/database
    #[arg(long)]
    pub url: String,
    /// File with the password, which is sent to the server
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with a token instead, which is sent to the server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with root certificates (PEM), which are sent to the server
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Pattern of channels; several can be given [default: all but those of strongback.*]
    #[arg(long = "channels", value_name = "PATTERN")]
    pub channels: Vec<String>,
    /// Another key of [[archive]], such as from=now or interval_ms=1000; several can be given
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Server to use.
    #[command(flatten)]
    pub args: PlaybackArgs,
}
