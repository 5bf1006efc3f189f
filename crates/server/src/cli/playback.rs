//! `strongback playback`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on playbacks.
#[derive(Clone, Debug, Subcommand)]
pub enum PlaybackCommand {
    /// Start a playback and print its id and its director's token
    Start {
        /// Start time, inclusive: nanoseconds since 1970, RFC 3339, or now-10m
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, required_unless_present = "run")]
        from: Option<String>,
        /// End time, exclusive
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, required_unless_present = "run")]
        to: Option<String>,
        /// Play the interval of this run
        #[arg(long, value_name = "NAME")]
        run: Option<String>,
        /// Time to start playing at [default: start of the interval]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        at: Option<String>,
        /// Speed: 0.1 to 1000 times real time
        #[arg(long, default_value_t = 1.0)]
        speed: f64,
        /// Start again at the end
        #[arg(long = "loop")]
        looped: bool,
        /// Start paused
        #[arg(long)]
        paused: bool,
        /// Name to display
        #[arg(long)]
        name: Option<String>,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// List running playbacks
    List {
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Control a playback
    Control {
        /// Id of the playback
        id: String,
        /// Token of its director
        #[arg(long, value_name = "TOKEN")]
        director: Option<String>,
        /// Control command
        #[command(subcommand)]
        word: ControlWord,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// End a playback
    End {
        /// Id of the playback
        id: String,
        /// Token of its director
        #[arg(long, value_name = "TOKEN")]
        director: String,
        /// Server to use.
        #[command(flatten)]
        args: PlaybackArgs,
    },
}

/// Control commands of a playback.
#[derive(Clone, Debug, Subcommand)]
pub enum ControlWord {
    /// Run the clock
    Play,
    /// Stop the clock
    Pause,
    /// Play a number of frames or a span of time, then pause
    Step {
        /// Number of frames
        #[arg(long, conflicts_with = "ms", required_unless_present = "ms")]
        frames: Option<u64>,
        /// Span in milliseconds
        #[arg(long)]
        ms: Option<f64>,
    },
    /// Jump to a time
    Seek {
        /// Time to jump to
        #[arg(allow_hyphen_values = true)]
        at: String,
    },
    /// Set the speed
    Speed {
        /// Speed: 0.1 to 1000 times real time
        speed: f64,
    },
    /// Set whether playback starts again at the end
    Loop {
        /// true or false
        #[arg(action = clap::ArgAction::Set)]
        looped: bool,
    },
    /// Set the interval
    Interval {
        /// Start time, inclusive [default: unchanged]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// End time, exclusive [default: unchanged]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
    },
    /// Become the director and print the new token
    Take,
}

/// The server to use.
#[derive(Clone, Debug, Args)]
pub struct PlaybackArgs {
    /// Address of the server [default: that of ./strongback.toml, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", global = true)]
    pub server: Option<String>,
    /// File with the server's token [default: auth_token_file of the configuration]
    #[arg(long, value_name = "FILE", global = true)]
    pub auth_token_file: Option<PathBuf>,
}
