//! The command line: every command and flag once, with its help.

mod archive;
mod derived;
pub(crate) mod mark;
mod playback;
mod store;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use strongback_sources::ads::NetId;
use strongback_sources::ads::layout::PLC_PORT;

use crate::config::{self, Listen};
use crate::instant;

pub use archive::{AddArgs, ArchiveCommand};
pub use derived::{DerivedArgs, DerivedCommand};
pub use mark::MarkCommand;
pub use playback::{ControlWord, PlaybackArgs, PlaybackCommand};
pub use store::{
    AppendArgs, BlobArgs, CreateArgs, InspectArgs, ReadArgs, RepairArgs, RowFile, Selection, StatsArgs, StoreCommand,
    TextForm, TimeForm,
};

/// The telemetry database that stands beside the rocket
///
/// Strongback receives telemetry over the network, stores it, shows it within milliseconds and answers SQL. It needs
/// no configuration: `strongback serve` listens on this machine and stores data in ./strongback-data.
#[derive(Debug, Parser)]
#[command(name = "strongback", version, max_term_width = 100, after_long_help = EXAMPLES)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Configuration file that a command uses if it is given none.
pub const CONFIG_FILE: &str = "strongback.toml";

const EXAMPLES: &str = "\
Examples:
  strongback demo                               a simulated launch pad on http://127.0.0.1:8080
  strongback serve --data ./telemetry           run a server
  curl -d 'tank p=31.7,t=90i' http://127.0.0.1:8080/write
  psql -h 127.0.0.1 -p 5433 strongback -c 'select * from tank'
  strongback export --from now-10m --channels 'tank.*' --format csv > tank.csv
  strongback doctor tank.p --at now-1h          explain missing data

Exit codes:
  0  success
  1  failure; the last line on standard error gives the reason
  2  invalid command line or configuration
  3  finished, but data was lost or is damaged; the report lists it
  4  the disk failed and the store could not be reopened
  130  interrupted by Ctrl-C; data accepted before that is on disk
  141  standard output was closed by its reader";

const DOCTOR_HELP: &str = "\
Exit codes: 0 no trouble found, 3 trouble found, 1 the server could not be reached, 2 invalid command line";

const DERIVED_HELP: &str = "\
Examples:
  strongback derived set engine.flow --trigger tank --expression '\"tank.p\" * 2'
  strongback derived backfill engine.flow --from now-1d --wait";

const RUN_HELP: &str = "\
A launch attempt:
  strongback run start 'attempt 2' --channels 'engine.*'
  strongback run t0 'attempt 2' --at now+10m        T-10:00 on every page
  strongback run hold 'attempt 2'                   stop the clock
  strongback run resume 'attempt 2'
  strongback run stop 'attempt 2'";

const MARK_HELP: &str = "\
A sensor that was not connected:
  strongback mark bad 'engine.p1' --from 2026-05-01T10:00:00Z --to 2026-05-01T10:20:00Z --reason 'cable was off'
  strongback mark list 'engine.*'
  strongback mark good 'engine.p1' --from 2026-05-01T10:15:00Z --to 2026-05-01T10:20:00Z --reason 'was on again'
Queries, plots and exports leave bad values out. Nothing stored is changed: --marks show exports all values.";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server until Ctrl-C or SIGTERM
    Serve(ServeArgs),
    /// Run a server with a simulated launch pad, in a temporary folder unless --data names one
    Demo(DemoArgs),
    /// Check a configuration and report each mistake with its line
    Check(CheckArgs),
    /// Import a capture (pcap, pcapng) or an MCAP file, with its timestamps, into a store that no server is using
    Import(ImportArgs),
    /// Write stored data to standard output
    Export(ExportArgs),
    /// Explain why data is missing, for one channel or for all, by asking a running server
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Start, hold, resume and stop named runs with their clocks; list runs; release imported data
    #[command(subcommand, after_help = RUN_HELP)]
    Run(RunCommand),
    /// Mark stored values as bad, uncertain or good, without changing them; list marks
    #[command(subcommand, after_help = MARK_HELP)]
    Mark(MarkCommand),
    /// Replay an interval of stored data to many viewers: start, list, control, end
    #[command(subcommand)]
    Playback(PlaybackCommand),
    /// List, pause and resume copies of stored data in other databases
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// List, set and remove derived channels of a running server; compute them for stored data
    #[command(subcommand, after_help = DERIVED_HELP)]
    Derived(DerivedCommand),
    /// Create, fill, read, inspect and repair a store without a server
    #[command(subcommand)]
    Store(StoreCommand),
    /// List what a source offers, before configuring it
    #[command(subcommand)]
    Sources(SourcesCommand),
    /// Simulate a launch pad or a faulty network on real sockets
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// Run benchmarks against other engines on the same machine (`make bench` builds them)
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
}

/// Arguments passed on to the benchmark program.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Benchmark and its flags; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// Flags of `serve` and `demo`. They override the configuration file.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file [default: ./strongback.toml if it exists; for demo none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store, created if missing [default: strongback-data; for demo a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address for the page, REST, WebSocket and line protocol over HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = config::address)]
    pub http: Option<SocketAddr>,
    /// Address for line protocol over TCP, or "off" [default: 127.0.0.1:9009]
    #[arg(long, value_name = "ADDR")]
    pub ilp: Option<Listen>,
    /// Address for PostgreSQL clients, or "off" [default: 127.0.0.1:5433]
    #[arg(long, value_name = "ADDR")]
    pub pg: Option<Listen>,
    /// Address for Flight SQL clients, or "off" [default: 127.0.0.1:5434]
    #[arg(long, value_name = "ADDR")]
    pub flight: Option<Listen>,
    /// File with the token that clients must present; required to listen beyond loopback
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Listen beyond loopback without a token
    #[arg(long)]
    pub insecure_listen: bool,
}

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Flags of `serve`.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Stop after this long and print a summary: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub duration: Option<Duration>,
    /// Do not print the "open this page" hint
    #[arg(long)]
    pub headless: bool,
    /// Print the summary as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Flags of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Configuration file to check
    #[arg(long, value_name = "FILE", default_value = CONFIG_FILE)]
    pub config: PathBuf,
    /// Print an example configuration with every key, its default and its meaning
    #[arg(long, conflicts_with = "config")]
    pub print_example: bool,
}

/// Flags of `import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// Capture or MCAP file to read
    pub file: PathBuf,
    /// Configuration file that describes the captured streams; not needed for MCAP [default: ./strongback.toml if it
    /// exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of the run to store the data under
    #[arg(long, value_name = "NAME")]
    pub run: String,
    /// Folder of the store [default: the one in the configuration, else strongback-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the report as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Flags of `export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Start time, inclusive: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End time, exclusive [default: end of data]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Channel patterns, separated by commas, such as 'avionics.*{acu=1}'
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub channels: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
    pub format: ExportFormat,
    /// Treatment of marked values
    #[arg(long, value_enum, default_value_t = ExportMarks::Apply)]
    pub marks: ExportMarks,
    /// Configuration file, for the folder of the store and the address of the server [default: ./strongback.toml if it
    /// exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store; if a server is using it, the one that --server or --config names is asked [default:
    /// strongback-data, else the server at 127.0.0.1:8080]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub data: Option<PathBuf>,
    /// Address of a running server to ask, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    pub server: Option<String>,
    /// File with the server's token [default: auth_token_file of the configuration]
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Channel or pattern, such as 'avionics.*{acu=1}', or '*' for every channel [default: all streams, without looking at
    /// their channels]
    pub channel: Option<String>,
    /// Time at which data is missing: nanoseconds since 1970, RFC 3339, or now-10m [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Address of the server [default: that of ./strongback.toml, else 127.0.0.1:8080]
    #[arg(long, alias = "url", value_name = "ADDR")]
    pub server: Option<String>,
    /// File with the server's token [default: auth_token_file of the configuration]
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values with units in the header
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Apache Parquet with units as column metadata
    Parquet,
}

/// Treatment of marked values in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportMarks {
    /// Leave out values marked bad
    Apply,
    /// Export all values
    Ignore,
    /// Export all values, with a column of qualities for each marked channel
    Show,
}

/// Commands on named runs.
#[derive(Clone, Debug, Subcommand)]
pub enum RunCommand {
    /// Start a run
    Start {
        /// Name of the run
        name: String,
        /// Pattern of channels that belong to the run, such as 'engine.*'; may be repeated [default: all]
        #[arg(long, value_name = "PATTERN")]
        channels: Vec<String>,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Set T-0 of a run; earlier holds no longer count
    T0 {
        /// Name of the run
        name: String,
        /// T-0: nanoseconds since 1970, RFC 3339, or now+10m
        #[arg(long, value_name = "TIME", default_value = "now", allow_hyphen_values = true)]
        at: String,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Hold the clock of a run
    Hold {
        /// Name of the run
        name: String,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Resume the clock of a run
    Resume {
        /// Name of the run
        name: String,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Stop a run
    Stop {
        /// Name of the run
        name: String,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// List runs with their state and whether their data is protected
    List {
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Allow the data of a run to be deleted when space is needed, as other data is
    Release {
        /// Name of the run
        name: String,
        /// Store or server to use.
        #[command(flatten)]
        args: RunArgs,
    },
}

/// The store or server that holds the runs.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Configuration file, for the folder of the store and the address of the server [default: ./strongback.toml if it
    /// exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store; if a server is using it, the one that --server or --config names is asked [default:
    /// strongback-data, else the server at 127.0.0.1:8080]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of a running server to ask, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDR", conflicts_with = "data")]
    pub server: Option<String>,
    /// File with the server's token [default: auth_token_file of the configuration]
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
}

/// Commands that inspect sources.
#[derive(Clone, Debug, Subcommand)]
pub enum SourcesCommand {
    /// Beckhoff PLCs
    #[command(subcommand)]
    Ads(AdsCommand),
}

/// Commands that inspect Beckhoff PLCs.
#[derive(Clone, Debug, Subcommand)]
pub enum AdsCommand {
    /// List the symbols of a PLC, with structures and arrays expanded
    Symbols(SymbolsArgs),
}

/// Flags of `sources ads symbols`.
#[derive(Clone, Debug, Args)]
pub struct SymbolsArgs {
    /// Address or host name of the PLC, with a port if its router does not listen on 48898
    pub host: String,
    /// AMS NetId of the PLC [default: its IPv4 address followed by .1.1]
    #[arg(long, value_name = "NETID")]
    pub net_id: Option<NetId>,
    /// AMS NetId of this machine, as in the PLC's route [default: its IPv4 address followed by .1.1]
    #[arg(long, value_name = "NETID")]
    pub source_net_id: Option<NetId>,
    /// AMS port of the program; 801 is the first of TwinCAT 2
    #[arg(long, default_value_t = PLC_PORT)]
    pub port: u16,
    /// List only these: a name, or a pattern with * and ?
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub filter: String,
    /// Show each array of numbers as one value
    #[arg(long)]
    pub whole_arrays: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Simulators.
#[derive(Clone, Debug, Subcommand)]
pub enum SimulateCommand {
    /// Simulate a launch pad in countdown: iNET-X over UDP and line protocol over TCP, 68,500 points/s; with --plc its
    /// PLC over ADS
    Pad(strongback_sim::PadArgs),
    /// Simulate a faulty network between senders and receivers: loses, duplicates, delays, reorders, corrupts and cuts,
    /// and counts each
    Faults(strongback_sim::FaultsArgs),
}

/// Returns the arguments to parse: `help store --help` prints what `help store` does.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = given.into_iter().collect();
    if all.get(1).is_some_and(|word| word == "help") {
        all.retain(|word| word != "--help" && word != "-h");
    }
    all
}

fn parse_span(text: &str) -> Result<Duration, String> {
    match instant::span_ns(text).filter(|ns| *ns > 0) {
        Some(ns) => Ok(Duration::from_nanos(ns.unsigned_abs())),
        None => Err(format!("{text:?} is not a duration, such as 30s, 5m or 1.5h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_of_help_is_help() {
        for line in ["strongback help --help", "strongback help store --help", "strongback help store -h"] {
            let error = Cli::try_parse_from(arguments(line.split(' ').map(OsString::from))).expect_err(line);
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
        }
        let run = arguments(["strongback", "run", "start", "--help"].map(OsString::from));
        assert_eq!(run.len(), 4, "others keep theirs");
    }

    #[test]
    fn channels_of_a_run_take_one_value_each_and_leave_the_name() {
        let parsed = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["strongback", "run", "start"][..], args].concat()).expect("right");
            let Command::Run(RunCommand::Start { name, channels, .. }) = cli.command else { panic!("no start") };
            (name, channels)
        };
        for args in [["--channels", "engine.*", "attempt-3"], ["attempt-3", "--channels", "engine.*"]] {
            assert_eq!(parsed(&args), ("attempt-3".to_owned(), vec!["engine.*".to_owned()]), "{args:?}");
        }
        let twice = parsed(&["--channels", "a.*", "--channels", "b.*", "c"]);
        assert_eq!(twice, ("c".to_owned(), vec!["a.*".to_owned(), "b.*".to_owned()]));
    }

    #[test]
    fn demo_takes_what_others_rely_on() {
        let cli = Cli::try_parse_from([
            "strongback",
            "demo",
            "--duration",
            "30s",
            "--headless",
            "--json",
            "--http",
            "127.0.0.1:0",
            "--ilp",
            "off",
        ]);
        let Command::Demo(demo) = cli.unwrap().command else { panic!("not the demo") };
        assert_eq!(demo.duration, Some(Duration::from_secs(30)));
        assert_eq!(demo.serve.ilp, Some(Listen::Off));
        assert!(Cli::try_parse_from(["strongback", "demo", "--duration", "soon"]).is_err());
    }
}
