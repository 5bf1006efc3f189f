//! The command line: every command and flag once, with its help.

mod derived;
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

pub use derived::{DerivedArgs, DerivedCommand};
pub use playback::{ControlWord, PlaybackArgs, PlaybackCommand};
pub use store::{
    AppendArgs, BlobArgs, CreateArgs, InspectArgs, ReadArgs, RepairArgs, RowFile, Selection, StatsArgs, StoreCommand,
    TextForm, TimeForm,
};

/// The telemetry database that stands beside the rocket
///
/// Strongback receives telemetry over the network, keeps it, shows it within milliseconds and answers SQL. It
/// needs no configuration: `strongback serve` listens on this machine and stores into ./strongback-data.
#[derive(Debug, Parser)]
#[command(name = "strongback", version, max_term_width = 100, after_long_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  strongback demo                               a simulated launch pad on http://127.0.0.1:8080
  strongback serve --data ./telemetry           receive, store, show
  curl -d 'tank p=31.7,t=90i' http://127.0.0.1:8080/write
  psql -h 127.0.0.1 -p 5433 strongback -c 'select * from tank'
  strongback export --from now-10m --channels 'tank.*' --format csv > tank.csv
  strongback doctor tank.p --at now-1h          why is there nothing?

Exit codes:
  0  done
  1  failed; the last line on standard error says why
  2  the command line or the configuration is wrong
  3  done, but data was lost (or was found damaged); the report says what
  4  the disk failed, and the store could not be opened again
  130  stopped by Ctrl-C; what was taken until then is on the disk";

const DOCTOR_HELP: &str = "\
Exit codes: 0 nothing is wrong, 3 something is, 1 nobody could be asked, 2 the command line is wrong";

const DERIVED_HELP: &str = "\
Examples:
  strongback derived set engine.flow --trigger tank --expression '\"tank.p\" * 2'
  strongback derived backfill engine.flow --from now-1d --wait";

const RUN_HELP: &str = "\
A launch attempt:
  strongback run start 'attempt 2' --channels 'engine.*'
  strongback run t0 'attempt 2' --at now+10m        T-10:00, on every page
  strongback run hold 'attempt 2'                   the clock stands
  strongback run resume 'attempt 2'
  strongback run stop 'attempt 2'";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Receive, store, show and answer until Ctrl-C or SIGTERM
    Serve(ServeArgs),
    /// The same with a simulated launch pad, on a temporary folder unless --data names one
    Demo(DemoArgs),
    /// Check a configuration: says what is wrong, at which line, and what is meant
    Check(CheckArgs),
    /// Read a capture (pcap, pcapng) or an MCAP file into a store that no server uses, with the times in it
    Import(ImportArgs),
    /// Write stored data to standard output
    Export(ExportArgs),
    /// Say why data is missing: asks a running server what it knows of a channel, or of everything
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Begin, count down, hold and end named runs; list them; release what was imported, which is kept until then
    #[command(subcommand, after_help = RUN_HELP)]
    Run(RunCommand),
    /// Play any interval of the record to many viewers: begin, list, direct, end
    #[command(subcommand)]
    Playback(PlaybackCommand),
    /// List, set and remove derived channels of a running server, and write them for the past
    #[command(subcommand, after_help = DERIVED_HELP)]
    Derived(DerivedCommand),
    /// Make, fill, read, look at and mend a store without a server
    #[command(subcommand)]
    Store(StoreCommand),
    /// Look at what sources have before they are configured
    #[command(subcommand)]
    Sources(SourcesCommand),
    /// Send what a simulated plant sends, on real sockets
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// Measure, against other engines on the same machine (`make bench` builds what does it)
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
}

/// What `bench` hands on to the program that measures.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Which benchmark, and its flags; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// Flags of `serve`, which `demo` shares. They win over the configuration file.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration [default: none is needed]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store; made if it is not there [default: strongback-data; of a demo a temporary one]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Page, REST, WebSocket and line protocol over HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = config::address)]
    pub http: Option<SocketAddr>,
    /// Line protocol over TCP, or "off" [default: 127.0.0.1:9009]
    #[arg(long, value_name = "ADDR")]
    pub ilp: Option<Listen>,
    /// PostgreSQL wire, or "off" [default: 127.0.0.1:5433]
    #[arg(long, value_name = "ADDR")]
    pub pg: Option<Listen>,
    /// File with the token that clients must show; needed to listen beyond this machine
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Listen beyond this machine without a token
    #[arg(long)]
    pub insecure_listen: bool,
}

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Those of `serve`.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// End by itself after this long, with a summary: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub duration: Option<Duration>,
    /// Do not invite to open the page
    #[arg(long)]
    pub headless: bool,
    /// Summary as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Flags of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Configuration to check
    #[arg(long, value_name = "FILE", default_value = "strongback.toml")]
    pub config: PathBuf,
    /// Print a configuration with every key, its default and what it does, to begin with
    #[arg(long, conflicts_with = "config")]
    pub print_example: bool,
}

/// Flags of `import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// Capture or MCAP file to read
    pub file: PathBuf,
    /// Configuration with the layouts of captured streams; an MCAP file needs none
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of the run that the data belongs to
    #[arg(long, value_name = "NAME")]
    pub run: String,
    /// Folder of the store [default: that of the configuration, else strongback-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Report as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Flags of `export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// From this time on: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Up to, not including, this time [default: everything]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Channels, as in 'avionics.*{acu=1}'; several are separated by commas
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub channels: String,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
    pub format: ExportFormat,
    /// Configuration, for the folder of its store and the address of its server
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store; if a server uses it, that is asked [default: strongback-data, else the server at
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub data: Option<PathBuf>,
    /// Ask this running server, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    pub server: Option<String>,
    /// File with the server's token
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Channel or pattern, as in 'avionics.*{acu=1}' [default: everything]
    pub channel: Option<String>,
    /// The instant of which data is missing: nanoseconds since 1970, RFC 3339, or now-10m [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Server to ask
    #[arg(long, alias = "url", value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub server: String,
    /// File with the server's token
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// The findings as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A table with units in its header
    Csv,
    /// One JSON object a line
    Jsonl,
    /// Columns with units as metadata
    Parquet,
}

/// Commands on named runs.
#[derive(Clone, Debug, Subcommand)]
pub enum RunCommand {
    /// Begin a run
    Start {
        /// Its name
        name: String,
        /// Pattern of channels that belong to it, as in 'engine.*'; again for more [default: all]
        #[arg(long, value_name = "PATTERN")]
        channels: Vec<String>,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Say when its T-0 is; earlier holds are done with
    T0 {
        /// Name of the run
        name: String,
        /// T-0: nanoseconds since 1970, RFC 3339, or now+10m
        #[arg(long, value_name = "TIME", default_value = "now", allow_hyphen_values = true)]
        at: String,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Stop its clock
    Hold {
        /// Name of the run
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Let its clock go on
    Resume {
        /// Name of the run
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
    /// End it
    Stop {
        /// Name of the run
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Runs, what each is doing, and whether it is protected
    List {
        /// Where they are.
        #[command(flatten)]
        args: RunArgs,
    },
    /// Let a run go when space is needed, as data that came from the network
    Release {
        /// Name of the run
        name: String,
        /// Where it is.
        #[command(flatten)]
        args: RunArgs,
    },
}

/// Where runs are.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Configuration, for the folder of its store and the address of its server
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the store; if a server uses it, that is asked [default: strongback-data, else the server at
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Ask this running server, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDR", conflicts_with = "data")]
    pub server: Option<String>,
    /// File with the server's token
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
}

/// Looks at sources.
#[derive(Clone, Debug, Subcommand)]
pub enum SourcesCommand {
    /// Beckhoff PLCs
    #[command(subcommand)]
    Ads(AdsCommand),
}

/// Looks at Beckhoff PLCs.
#[derive(Clone, Debug, Subcommand)]
pub enum AdsCommand {
    /// List the symbols of a PLC, structures and arrays taken apart
    Symbols(SymbolsArgs),
}

/// Flags of `sources ads symbols`.
#[derive(Clone, Debug, Args)]
pub struct SymbolsArgs {
    /// Address or name of the PLC; with a port where its router does not listen on 48898
    pub host: String,
    /// AMS NetId of the PLC [default: its IPv4 address and 1.1]
    #[arg(long, value_name = "NETID")]
    pub net_id: Option<NetId>,
    /// AMS NetId of this machine, which the PLC has a route for [default: its IPv4 address and 1.1]
    #[arg(long, value_name = "NETID")]
    pub source_net_id: Option<NetId>,
    /// AMS port of the program; 801 is the first of TwinCAT 2
    #[arg(long, default_value_t = PLC_PORT)]
    pub port: u16,
    /// Only these: a name, or a pattern with * and ?
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub filter: String,
    /// Arrays of numbers as one value each
    #[arg(long)]
    pub whole_arrays: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// What can be simulated.
#[derive(Clone, Debug, Subcommand)]
pub enum SimulateCommand {
    /// A launch pad in countdown: iNET-X over UDP, line protocol over TCP, 68,500 points/s; its PLC over ADS with --plc
    Pad(strongback_sim::PadArgs),
    /// A network that fails, between senders and receivers: loses, doubles, delays, reorders, spoils, cuts, and counts it
    Faults(strongback_sim::FaultsArgs),
}

/// The arguments as they are parsed: `help store --help` asks for what `help store` prints.
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
        None => Err(format!("{text:?} is not a time; 30s, 5m and 1.5h are")),
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
