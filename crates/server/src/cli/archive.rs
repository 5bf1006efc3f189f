//! The command `archive` and its flags.

use clap::Subcommand;

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
