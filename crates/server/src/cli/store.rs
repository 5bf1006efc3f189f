//! `strongback store`: every command and flag once, with its help.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use strongback_sources::rows::TimeUnit;
use strongback_store::ChannelType;
use strongback_store::rdl::{size_bytes, type_of};

use super::{BenchArgs, ExportArgs, ExportFormat};

/// Commands on a store.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Make a store: its streams as a definition says
    #[command(after_long_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Append rows of a file (CSV, JSON lines, candump), with the times that stand in them
    #[command(after_long_help = APPEND_EXAMPLES)]
    Append(AppendArgs),
    /// Write frames as CSV or JSON lines, oldest or newest first
    #[command(after_long_help = READ_EXAMPLES)]
    Read(ReadArgs),
    /// Write frames with the gaps between them as CSV, JSON lines or Parquet
    Export {
        /// The store; no server may be using it
        path: PathBuf,
        /// From this time on: nanoseconds since 1970, RFC 3339, or now-10m
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        from: Option<String>,
        /// Up to, not including, this time [default: everything]
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        to: Option<String>,
        /// Channels, as in 'avionics.*{acu=1}'; several are separated by commas
        #[arg(long, value_name = "PATTERN", default_value = "*")]
        channels: String,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
        format: ExportFormat,
        /// File to write instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the bytes of a blob (an image), or put those of a file into the store as a frame
    #[command(after_long_help = BLOB_EXAMPLES)]
    Blob(BlobArgs),
    /// Count, least, greatest and mean of each channel
    Stats(StatsArgs),
    /// What is in it: identity, log, segments, streams, times, and how the space is used
    Inspect(InspectArgs),
    /// Read everything and check it against its checksums and statistics; 3 if something is damaged
    Verify(InspectArgs),
    /// Mend what verify finds and can be mended, or with --into make a new store of whatever can be read
    #[command(after_long_help = REPAIR_EXAMPLES)]
    Repair(RepairArgs),
    /// Measure it as a recorder beside other embedded engines: `strongback bench embedded`
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Give a copied store an identity of its own, so that it can be opened
    Adopt {
        /// The store
        path: PathBuf,
    },
}

const CREATE_EXAMPLES: &str = "\
Examples:
  strongback store create car.sb --definition examples/car_snapshots.rdl         # 204,800 bytes, never more
  strongback store create car.sb --definition examples/car_snapshots.toml --size 64MiB
  strongback store create car --definition examples/car_snapshots.rdl --folder    # grows

A definition is written in RealDB's language, or in TOML if its name ends so:

  SET fileSize = 204800                 # bytes of the whole store; the newest is written over the oldest
  SET maxStreams = 3                    # at most so many streams, ever
  CREATE STREAM CarSnapshots WITH ID 2 {
    rpm float WITH CODEC DeadbandAlgorithm PARAMS (deadband=50.0),
    passengers uint8 WITH CODEC StepAlgorithm,
    note string NULL                    # a record may come without it
  }";

const APPEND_EXAMPLES: &str = "\
Examples:
  strongback store append car drive.csv                    # time,CarSnapshots.rpm,CarSnapshots.speed
  strongback store append car rpm.csv --stream RPM         # time_ms,value
  strongback store append car long.csv --map engine_rpm=RPM.value      # unix_time_s,channel,value
  strongback store append truck candump.log.gz --dbc j1939.dbc
  zcat rows.jsonl.gz | strongback store append car - --format jsonl

Times are RFC 3339, or numbers whose unit the column's name ends with (time_ns, ts_ms) or --time-unit names. An empty
cell is no value; the word unknown says that the value is known to be unknown. A row or cell that cannot be taken is
counted and told with line and column, and the others go on (exit code 3). Ctrl-C ends after what was read is on the
disk, and says with which --from-line to go on. A file that is appended twice is there twice, and the report says that the
store had such times already.";

const READ_EXAMPLES: &str = "\
Examples:
  strongback store read car --channels 'CarSnapshots.*' --last 20
  strongback store read car --from 2026-11-20T17:00:00Z --to 2026-11-20T18:00:00Z --format jsonl
  strongback store read car --time ns > car.csv            # can be appended again as it is";

const BLOB_EXAMPLES: &str = "\
Examples:
  strongback store blob rig CAM image --put shot.jpg                       # a frame of its own, now
  strongback store blob rig CAM image --put shot.jpg --at 2026-11-20T17:00:00Z
  strongback store blob rig CAM image --output newest.jpg
  strongback store blob rig CAM image --row 12 | display -

A frame holds what names the blob, which `store read` writes as blob(LENGTH bytes, CHECKSUM). The bytes lie in segments of
their own; when those expired, the frame may still be there (exit code 1). A damaged blob ends where the damage begins
(exit code 3).";

const REPAIR_EXAMPLES: &str = "\
Examples:
  strongback store repair car --yes              # a copy of the superblock, a log that was cut, missing footers
  strongback store repair car --into car-new     # a damaged checkpoint, superblock or log; missing segments

With --into nothing is written to the store. The new one, a folder also where the old one has a fixed size, has every row
that is in a whole block, under its number, and says in strongback.gaps what is lost between them. Exit code 3 where
something was damaged or is lost.";

/// Flags of `store create`.
#[derive(Clone, Debug, Args)]
pub struct CreateArgs {
    /// Where: a file or block device of a fixed size, or a folder that grows; there must be nothing yet
    pub path: PathBuf,
    /// Streams and sizes, in RealDB's language or in TOML
    #[arg(long, value_name = "FILE", required_unless_present_any = ["size", "folder"])]
    pub definition: Option<PathBuf>,
    /// Bytes of the whole store, for ever, such as 64MiB [default: fileSize of the definition]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// A folder that grows, whatever size the definition says
    #[arg(long, conflicts_with = "size")]
    pub folder: bool,
    /// Report as one JSON object on the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// What a file of rows is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFile {
    /// Comma-separated values with a header
    Csv,
    /// One JSON object a line
    Jsonl,
    /// What candump -l writes; needs --dbc
    Candump,
}

/// Flags of `store append`.
#[derive(Clone, Debug, Args)]
pub struct AppendArgs {
    /// The store; no server may be using it
    pub path: PathBuf,
    /// Rows, compressed by gzip or not; - is standard input
    pub file: PathBuf,
    /// What the file is written in [default: what its name ends with: .csv, .jsonl, .log]
    #[arg(long, value_enum)]
    pub format: Option<RowFile>,
    /// Stream of columns that do not name theirs
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<String>,
    /// Column with the time [default: one named time, timestamp, unix_time, epoch, datetime or ts]
    #[arg(long, value_name = "NAME")]
    pub time_column: Option<String>,
    /// Unit of times that are numbers [default: what the column's name ends with]
    #[arg(long, value_enum, value_name = "UNIT")]
    pub time_unit: Option<UnitName>,
    /// Type of a channel that the store does not know yet, as in rpm=f32 [default: guessed from the first 1,000 rows]
    #[arg(long = "type", value_name = "CHANNEL=TYPE", value_parser = parse_type)]
    pub types: Vec<(String, ChannelType)>,
    /// Take a column as this channel, and no column that is not named so
    #[arg(long = "map", value_name = "COLUMN=STREAM.CHANNEL", value_parser = parse_pair)]
    pub names: Vec<(String, String)>,
    /// Database that says what the messages of a bus hold
    #[arg(long, value_name = "FILE")]
    pub dbc: Option<PathBuf>,
    /// Go on at this line
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub from_line: u64,
    /// Configuration of the server that the store belongs to, for its limits
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Report as one JSON object on the last line of standard output
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
    /// The unit it names.
    pub fn unit(self) -> TimeUnit {
        TimeUnit::ALL[self as usize]
    }
}

/// Form of frames as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextForm {
    /// A table with units in its header
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// Form of times as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeForm {
    /// 2026-11-20T17:00:00.000000000Z
    Rfc3339,
    /// Nanoseconds since 1970
    Ns,
}

/// Which channels, and when.
#[derive(Clone, Debug, Args)]
pub struct Selection {
    /// Channels, as in 'avionics.*{acu=1}'; several are separated by commas
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub channels: String,
    /// From this time on: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Up to, not including, this time [default: everything]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// Flags of `store read`.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    /// The store; no server may be using it
    pub path: PathBuf,
    /// What of it
    #[command(flatten)]
    pub selection: Selection,
    /// Only the oldest so many frames
    #[arg(long, value_name = "N", conflicts_with = "last")]
    pub first: Option<usize>,
    /// Only the newest so many frames
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Newest first
    #[arg(long)]
    pub newest_first: bool,
    /// Pieces of time with a value each, as CSV: start, end, channel, value, end_value, open
    #[arg(long, conflicts_with_all = ["last", "newest_first", "format"])]
    pub intervals: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = TextForm::Csv)]
    pub format: TextForm,
    /// Form of times in CSV
    #[arg(long, value_enum, default_value_t = TimeForm::Rfc3339)]
    pub time: TimeForm,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `store blob`.
#[derive(Clone, Debug, Args)]
pub struct BlobArgs {
    /// The store; no server may be using it
    pub path: PathBuf,
    /// The stream, as in CAM or CAM{unit=1}
    pub stream: String,
    /// Its channel of blobs
    pub channel: String,
    /// Put the bytes of this file into the store; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["row", "output"])]
    pub put: Option<PathBuf>,
    /// The blob of this row [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "at")]
    pub row: Option<u64>,
    /// The newest at this time, or the time of the frame that is put: nanoseconds since 1970, RFC 3339, or now-10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Flags of `store stats`.
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// The store; no server may be using it
    pub path: PathBuf,
    /// What of it
    #[command(flatten)]
    pub selection: Selection,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `store inspect` and `store verify`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// The store; a server may be using it
    pub path: PathBuf,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `store repair`.
#[derive(Clone, Debug, Args)]
pub struct RepairArgs {
    /// The store; no server may be using it
    pub path: PathBuf,
    /// Do it; without, it only says what it would do
    #[arg(long, conflicts_with = "into")]
    pub yes: bool,
    /// Leave the store as it is, and make a new one in this folder of whatever can be read of it
    #[arg(long, value_name = "NEW")]
    pub into: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

impl StoreCommand {
    /// The flags of `strongback export` that an export of a store comes to.
    pub fn export_args(&self) -> Option<ExportArgs> {
        let StoreCommand::Export { path, from, to, channels, format, output } = self else { return None };
        Some(ExportArgs {
            from: from.clone(),
            to: to.clone(),
            channels: channels.clone(),
            format: *format,
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
        None => Err(format!("{word:?} is no type: bool, i8 to i64, u8 to u64, f32, f64, string and blob are")),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    size_bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| format!("{text:?} is no size; 64MiB and 204800 are"))
}
