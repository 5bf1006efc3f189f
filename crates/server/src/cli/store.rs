//! `strongback store`: every command and flag once, with its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use strongback_sources::rows::TimeUnit;
use strongback_store::ChannelType;
use strongback_store::rdl::{size_bytes, type_of};

use super::{BenchArgs, ExportArgs, ExportFormat, ExportMarks, parse_span};

/// Commands on a store.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Create a store with the streams of a definition
    #[command(after_long_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Append the rows of a file (CSV, JSON lines, candump), with their timestamps
    #[command(after_long_help = APPEND_EXAMPLES)]
    Append(AppendArgs),
    /// Print frames as CSV or JSON lines, oldest or newest first
    #[command(after_long_help = READ_EXAMPLES)]
    Read(ReadArgs),
    /// Export frames and the gaps between them as CSV, JSON lines or Parquet
    Export {
        /// Store to open; no server may be using it
        path: PathBuf,
        /// Start time, inclusive: nanoseconds since 1970, RFC 3339, or now-10m
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// End time, exclusive [default: end of data]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
        /// Channel patterns, separated by commas, such as 'avionics.*{acu=1}'
        #[arg(long, value_name = "PATTERN", default_value = "*")]
        channels: String,
        /// Output format
        #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
        format: ExportFormat,
        /// Write to this file instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print a blob, such as an image, or store a file as one
    #[command(after_long_help = BLOB_EXAMPLES)]
    Blob(BlobArgs),
    /// Print count, min, max and mean of each channel
    Stats(StatsArgs),
    /// Show what the store contains: identity, log, segments, streams, times, and how its space is used
    Inspect(InspectArgs),
    /// Read everything and check it against checksums and statistics; exit code 3 if something is damaged
    Verify(InspectArgs),
    /// Repair what can be repaired in place, or with --into copy whatever can be read into a new store
    #[command(after_long_help = REPAIR_EXAMPLES)]
    Repair(RepairArgs),
    /// Benchmark the store against other embedded engines, as `strongback bench embedded` does
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Give a copy of a store a new identity, so that it can be opened
    Adopt {
        /// Store to adopt
        path: PathBuf,
    },
}

const CREATE_EXAMPLES: &str = "\
Examples:
  strongback store create car.sb --definition examples/car_snapshots.rdl         # always 204,800 bytes
  strongback store create car.sb --definition examples/car_snapshots.toml --size 64MiB
  strongback store create car --definition examples/car_snapshots.rdl --folder    # a folder that grows

A definition is written in RealDB's language, or in TOML if the file name ends in .toml:

  SET fileSize = 204800                 # bytes of the whole store; new data overwrites the oldest
  SET maxStreams = 3                    # maximum number of streams
  CREATE STREAM CarSnapshots WITH ID 2 {
    rpm float WITH CODEC DeadbandAlgorithm PARAMS (deadband=50.0),
    passengers uint8 WITH CODEC StepAlgorithm,
    note string NULL                    # may be absent from a record
  }";

const APPEND_EXAMPLES: &str = "\
Examples:
  strongback store append car drive.csv                    # time,CarSnapshots.rpm,CarSnapshots.speed
  strongback store append car rpm.csv --stream RPM         # time_ms,value
  strongback store append car long.csv --map engine_rpm=RPM.value      # unix_time_s,channel,value
  strongback store append truck candump.log.gz --dbc j1939.dbc
  zcat rows.jsonl.gz | strongback store append car - --format jsonl

Times are in RFC 3339, or numbers whose unit is given by the column's name (time_ns, ts_ms) or by --time-unit. An empty
cell is no value; the word unknown marks a value as unknown. A row or cell that is rejected is counted and reported with
line and column, and the rest is stored (exit code 3). Ctrl-C stops once what was read is on disk, and prints the
--from-line to continue with. Appending a file twice stores it twice; the report then says that the store already had
these times.";

const READ_EXAMPLES: &str = "\
Examples:
  strongback store read car --channels 'CarSnapshots.*' --last 20
  strongback store read car --from 2026-11-20T17:00:00Z --to 2026-11-20T18:00:00Z --format jsonl
  strongback store read car --every 100ms --interpolate    # all channels side by side, ten rows a second
  strongback store read car --time ns > car.csv            # can be appended again as it is

Frames are printed in the order of time, then of streams, then as they were stored; late frames are in their place.";

const BLOB_EXAMPLES: &str = "\
Examples:
  strongback store blob rig CAM image --put shot.jpg                       # stores a frame with the current time
  strongback store blob rig CAM image --put shot.jpg --at 2026-11-20T17:00:00Z
  strongback store blob rig CAM image --output newest.jpg
  strongback store blob rig CAM image --row 12 | display -

A frame holds a reference to the blob, which `store read` prints as blob(LENGTH bytes, CHECKSUM). The bytes are stored in
separate segments. If these have expired, the frame may still exist (exit code 1). Output of a damaged blob stops where
the damage begins (exit code 3).";

const REPAIR_EXAMPLES: &str = "\
Examples:
  strongback store repair car --yes              # restores the superblock copy, a truncated log, missing footers
  strongback store repair car --into car-new     # for a damaged checkpoint, superblock or log, or missing segments

With --into the old store is not written to. The new store is always a folder. It has every row of every undamaged block,
with its row number, and lists what is lost in strongback.gaps. Exit code 3 if something was damaged or lost.";

/// Flags of `store create`.
#[derive(Clone, Debug, Args)]
pub struct CreateArgs {
    /// Path of the new store: a file or block device of fixed size, or a folder that grows
    pub path: PathBuf,
    /// Definition of streams and sizes, in RealDB's language or in TOML
    #[arg(long, value_name = "FILE", required_unless_present_any = ["size", "folder"])]
    pub definition: Option<PathBuf>,
    /// Fixed size of the whole store, such as 64MiB [default: fileSize of the definition]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Create a folder that grows, ignoring the definition's size
    #[arg(long, conflicts_with = "size")]
    pub folder: bool,
    /// Print the report as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Format of a file of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFile {
    /// Comma-separated values with a header
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Output of candump -l; requires --dbc
    Candump,
}

/// Flags of `store append`.
#[derive(Clone, Debug, Args)]
pub struct AppendArgs {
    /// Store to open; no server may be using it
    pub path: PathBuf,
    /// File of rows, plain or gzipped; - for standard input
    pub file: PathBuf,
    /// Format of the file [default: by its extension: .csv, .jsonl, .log]
    #[arg(long, value_enum)]
    pub format: Option<RowFile>,
    /// Stream for columns whose names do not include one
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<String>,
    /// Name of the time column [default: one named time, timestamp, unix_time, epoch, datetime or ts]
    #[arg(long, value_name = "NAME")]
    pub time_column: Option<String>,
    /// Unit of numeric times [default: from the column's name]
    #[arg(long, value_enum, value_name = "UNIT")]
    pub time_unit: Option<UnitName>,
    /// Type of a new channel, such as rpm=f32 [default: guessed from the first 1,000 rows]
    #[arg(long = "type", value_name = "CHANNEL=TYPE", value_parser = parse_type)]
    pub types: Vec<(String, ChannelType)>,
    /// Store a column as this channel, and ignore all columns without --map
    #[arg(long = "map", value_name = "COLUMN=STREAM.CHANNEL", value_parser = parse_pair)]
    pub names: Vec<(String, String)>,
    /// DBC file that describes the bus messages
    #[arg(long, value_name = "FILE")]
    pub dbc: Option<PathBuf>,
    /// Start at this line
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub from_line: u64,
    /// Configuration file of the server that owns the store, for its limits [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the report as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum UnitName {
    Ns,
    Us,
    Ms,
    S,
}

impl UnitName {
    /// Returns the unit.
    pub fn unit(self) -> TimeUnit {
        TimeUnit::ALL[self as usize]
    }
}

/// Text format of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextForm {
    /// Comma-separated values with units in the header
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Format of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeForm {
    /// 2026-11-20T17:00:00.000000000Z
    Rfc3339,
    /// Nanoseconds since 1970
    Ns,
}

/// Channels and times to select.
#[derive(Clone, Debug, Args)]
pub struct Selection {
    /// Channel patterns, separated by commas, such as 'avionics.*{acu=1}'
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub channels: String,
    /// Start time, inclusive: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End time, exclusive [default: end of data]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// Flags of `store read`.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    /// Store to open; no server may be using it
    pub path: PathBuf,
    /// Channels and times
    #[command(flatten)]
    pub selection: Selection,
    /// Print only the N oldest frames; with --every, the first N rows
    #[arg(long, value_name = "N", conflicts_with = "last")]
    pub first: Option<usize>,
    /// Print only the N newest frames
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Print newest frames first
    #[arg(long)]
    pub newest_first: bool,
    /// Print intervals of constant value as CSV: start, end, channel, value, end_value, open
    #[arg(long, conflicts_with_all = ["last", "newest_first", "format"])]
    pub intervals: bool,
    /// Print all channels side by side as CSV, one row every TIME: the newest value at that instant; 10ms, 1s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_span,
        conflicts_with_all = ["last", "newest_first", "format", "intervals"])]
    pub every: Option<Duration>,
    /// With --every: interpolate linearly between values of channels that are not steps
    #[arg(long, requires = "every")]
    pub interpolate: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextForm::Csv)]
    pub format: TextForm,
    /// Format of times in CSV
    #[arg(long, value_enum, default_value_t = TimeForm::Rfc3339)]
    pub time: TimeForm,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `store blob`.
#[derive(Clone, Debug, Args)]
pub struct BlobArgs {
    /// Store to open; no server may be using it
    pub path: PathBuf,
    /// Stream, such as CAM or CAM{unit=1}
    pub stream: String,
    /// Channel of blobs
    pub channel: String,
    /// Store this file as a blob; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["row", "output"])]
    pub put: Option<PathBuf>,
    /// Print the blob of this row [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "at")]
    pub row: Option<u64>,
    /// Time of the frame to print (the newest at or before it) or to store: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `store stats`.
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// Store to open; no server may be using it
    pub path: PathBuf,
    /// Channels and times
    #[command(flatten)]
    pub selection: Selection,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `store inspect` and `store verify`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// Store to open; a server may be using it
    pub path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `store repair`.
#[derive(Clone, Debug, Args)]
pub struct RepairArgs {
    /// Store to open; no server may be using it
    pub path: PathBuf,
    /// Repair; without this flag, only report what would be done
    #[arg(long, conflicts_with = "into")]
    pub yes: bool,
    /// Leave the store unchanged and copy whatever can be read into a new store in this folder
    #[arg(long, value_name = "NEW")]
    pub into: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl StoreCommand {
    /// Returns the equivalent flags of `strongback export`, or `None` for other commands.
    pub fn export_args(&self) -> Option<ExportArgs> {
        let StoreCommand::Export { path, from, to, channels, format, output } = self else { return None };
        Some(ExportArgs {
            from: from.clone(),
            to: to.clone(),
            channels: channels.clone(),
            format: *format,
            marks: ExportMarks::Apply,
            config: None,
            data: Some(path.clone()),
            server: None,
            auth_token_file: None,
            output: output.clone(),
        })
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && to.contains('.') => Ok((from.to_owned(), to.to_owned())),
        _ => Err(format!("{text:?} is not COLUMN=STREAM.CHANNEL")),
    }
}

fn parse_type(text: &str) -> Result<(String, ChannelType), String> {
    let (name, word) = text.rsplit_once('=').ok_or_else(|| format!("{text:?} is not CHANNEL=TYPE"))?;
    match type_of(word) {
        Some(known) => Ok((name.to_owned(), known)),
        None => Err(format!("{word:?} is not a type; types are bool, i8 to i64, u8 to u64, f32, f64, string and blob")),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    size_bytes(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is not a size, such as 64MiB or 204800"))
}
