//! `strongback playback`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Plays the record.
#[derive(Clone, Debug, Subcommand)]
pub enum PlaybackCommand {
    /// Begin a playback; says its id and the token of its director
    Start {
        /// From this time on: nanoseconds since 1970, RFC 3339, or now-10m
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, required_unless_present = "run")]
        from: Option<String>,
        /// Up to, not including, this time
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, required_unless_present = "run")]
        to: Option<String>,
        /// The interval of this run
        #[arg(long, value_name = "NAME")]
        run: Option<String>,
        /// Where to begin within it [default: at its beginning]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        at: Option<String>,
        /// Seconds of the record in one: 0.1 to 1000
        #[arg(long, default_value_t = 1.0)]
        speed: f64,
        /// Begin again at the end
        #[arg(long = "loop")]
        looped: bool,
        /// Wait for the director
        #[arg(long)]
        paused: bool,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
        /// Where it is.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Those that go on
    List {
        /// Where they are.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// Direct a playback
    Control {
        /// Its id
        id: String,
        /// The director's token
        #[arg(long, value_name = "TOKEN")]
        director: Option<String>,
        /// What to do
        #[command(subcommand)]
        word: ControlWord,
        /// Where it is.
        #[command(flatten)]
        args: PlaybackArgs,
    },
    /// End a playback
    End {
        /// Its id
        id: String,
        /// The director's token
        #[arg(long, value_name = "TOKEN")]
        director: String,
        /// Where it is.
        #[command(flatten)]
        args: PlaybackArgs,
    },
}

/// What a director says.
#[derive(Clone, Debug, Subcommand)]
pub enum ControlWord {
    /// Let the clock run
    Play,
    /// Stop it
    Pause,
    /// Play some frames, or some time, and pause
    Step {
        /// So many frames
        #[arg(long, conflicts_with = "ms", required_unless_present = "ms")]
        frames: Option<u64>,
        /// So many milliseconds
        #[arg(long)]
        ms: Option<f64>,
    },
    /// Go to a time
    Seek {
        /// The time
        #[arg(allow_hyphen_values = true)]
        at: String,
    },
    /// Say how fast
    Speed {
        /// Seconds of the record in one: 0.1 to 1000
        speed: f64,
    },
    /// Say whether to begin again at the end
    Loop {
        /// true or false
        #[arg(action = clap::ArgAction::Set)]
        looped: bool,
    },
    /// Say which interval
    Interval {
        /// From this time on [default: as before]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// Up to, not including, this time [default: as before]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
    },
    /// Take the direction over; says the new token
    Take,
}

/// Where playbacks are.
#[derive(Clone, Debug, Args)]
pub struct PlaybackArgs {
    /// The running server
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", global = true)]
    pub server: String,
    /// File with the server's token
    #[arg(long, value_name = "FILE", global = true)]
    pub auth_token_file: Option<PathBuf>,
}
