//! Imports rows of text files (CSV, JSON lines, CAN logs) into a sink, with their own times.
//!
//! A row is a time with named values. Values of one stream in one row form one frame. A row or a cell that cannot be
//! used is counted, and the first few are reported with line, column and reason; the others are still imported.
//!
//! **CSV** has a header. A column named `time`, `timestamp`, `unix_time`, `epoch`, `datetime` or `ts`, optionally with
//! its unit (`time_ns`, `ts_ms`), is the time. Other columns are channels: `STREAM.CHANNEL` in full, or `CHANNEL` of
//! the stream given by the caller or by a column `stream`. `[unit]` after a name is its unit. A file with columns
//! `channel` and `value` has one value per row. An empty cell is no value. `""` is an empty text, and no value for a
//! channel of another type. `unknown` marks a value known to be unknown, except for text. A row with a nonempty column
//! `gap` is skipped.
//!
//! **JSON lines** have the same keys; channels are at the top level or in an object `values`. A line
//! `{"type":"channels",…}` states types and units. `null` is no value.
//!
//! Exports use these forms, so they can be imported.

mod csv;
mod intake;
mod json;
mod lines;
mod stamp;
mod tables;
mod target;
mod write;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::sync::Arc;

use strongback_store::{Catalog, ChannelType, Refusal, Value};

use crate::can;
use crate::sink::Sink;

pub(crate) use intake::RowReceiver;
pub(crate) use lines::Lines;
pub use stamp::{TimeUnit, parse as parse_time, time_column};
pub(crate) use target::ChannelRequest;
pub use write::{RowSelection, write, write_grid, write_intervals};

/// Maximum bytes of a row, that of a frame.
pub const ROW_BYTES_MAX: usize = 1 << 20;
/// Maximum complaints kept.
pub const COMPLAINTS_MAX: usize = 10;

/// Position in a file: line and column from 1, where columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePlace {
    /// Line.
    pub line: u64,
    /// Column.
    pub column: u32,
}

/// Notation of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Text without type information.
    Bare,
    /// Number.
    Number,
    /// Text.
    Text,
    /// Boolean.
    Bool,
    /// Array of these, such as `[1,2]`.
    List,
}

/// A cell of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// A value as written.
    Written(&'a str, Written),
    /// A value.
    Value(Value<'a>),
    /// A value known to be unknown.
    Unknown,
}

/// File format.
#[derive(Clone, Debug)]
pub enum RowFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON object per line.
    Jsonl,
    /// A log of `candump -l`, with the definitions of its messages.
    Candump(Arc<can::Database>),
}

/// Settings of an import of rows.
#[derive(Clone, Debug)]
pub struct RowConfig {
    /// File name, for messages.
    pub file: String,
    /// Format.
    pub format: RowFormat,
    /// Stream of channels whose names do not contain it.
    pub stream: Option<String>,
    /// Column with the time; `None` to detect it by name.
    pub time_column: Option<String>,
    /// Unit of numeric times, if the column name does not contain it.
    pub time_unit: Option<TimeUnit>,
    /// Types of channels that are not in the store, by their name in the file or their full name. Others are guessed
    /// from the first rows.
    pub types: BTreeMap<String, ChannelType>,
    /// Full names of channels by their names in the file. If there are any, all other channels are ignored.
    pub names: BTreeMap<String, String>,
    /// Channels required in each frame, by stream.
    pub required: BTreeMap<String, Vec<String>>,
    /// Source name of new streams in the catalog.
    pub source: String,
    /// First line to import. Rows before it are skipped.
    pub from_line: u64,
    /// Catalog of existing streams and channels.
    pub catalog: Arc<Catalog>,
}

impl RowConfig {
    /// Creates a configuration for a file and its format, with defaults for the rest.
    pub fn new(file: impl Into<String>, format: RowFormat, catalog: Arc<Catalog>) -> RowConfig {
        RowConfig {
            file: file.into(),
            format,
            stream: None,
            time_column: None,
            time_unit: None,
            types: BTreeMap::new(),
            names: BTreeMap::new(),
            required: BTreeMap::new(),
            source: "file".to_owned(),
            from_line: 0,
            catalog,
        }
    }
}

/// Progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowProgress {
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Durable frames.
    pub stored: u64,
}

/// A row or cell that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Position.
    pub place: FilePlace,
    /// Reason.
    pub reason: String,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowReport {
    /// Lines read. Everything accepted from them is durable.
    pub lines: u64,
    /// Rows, without the header.
    pub rows: u64,
    /// Frames stored, by stream.
    pub streams: BTreeMap<String, u64>,
    /// Values in frames passed to the sink.
    pub values: u64,
    /// Frames dropped by lossy reduction, because all values stayed within their bounds of stored ones.
    pub reduced: u64,
    /// Frames that the store had already stored.
    pub duplicate: u64,
    /// Frames that the store refused, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Rows from which nothing could be used.
    pub bad_rows: u64,
    /// Cells that could not be used.
    pub bad_cells: u64,
    /// Rows without a value, and rows that mark a gap.
    pub empty_rows: u64,
    /// Rows of messages or channels that were not selected.
    pub ignored_rows: u64,
    /// First complaints, in file order.
    pub complaints: Vec<Complaint>,
    /// First and last time of frames passed to the sink, in nanoseconds since 1970 UTC.
    pub time: Option<(i64, i64)>,
    /// Whether the caller stopped the import.
    pub stopped: bool,
}

impl RowReport {
    /// Counts the frames stored over all streams.
    pub fn stored(&self) -> u64 {
        self.streams.values().sum()
    }

    /// Reports whether everything read was accepted.
    pub fn is_whole(&self) -> bool {
        self.bad_rows == 0 && self.bad_cells == 0 && self.rejected.is_empty()
    }

    pub(crate) fn complain(&mut self, place: FilePlace, reason: impl Into<String>) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(Complaint { place, reason: reason.into() });
        }
    }
}

/// Error that ended reading early. Frames stored before it stay.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A read error.
    #[error("{file}, line {line}: {source}")]
    Io {
        /// File name.
        file: String,
        /// Line reached.
        line: u64,
        /// Cause.
        source: std::io::Error,
    },
    /// An error that affects the whole file.
    #[error("{file}:{}:{}: {reason}", place.line, place.column)]
    Header {
        /// File name.
        file: String,
        /// Position.
        place: FilePlace,
        /// Cause, with the remedy.
        reason: String,
    },
    /// A store that accepts nothing more.
    #[error("{file}: {source}; lines up to {line} are stored unless reported")]
    Refused {
        /// File name.
        file: String,
        /// Last line up to which everything is durable.
        line: u64,
        /// Cause.
        source: Refusal,
    },
}

/// Reads rows of a file, gzip-compressed or not, into a sink, and waits until they are durable. Calls `progress` after
/// each commit, which may stop it.
///
/// # Errors
/// If the file or the store causes an error.
pub fn run(
    input: impl Read,
    config: RowConfig,
    sink: &dyn Sink,
    progress: impl FnMut(RowProgress) -> ControlFlow<()>,
) -> Result<RowReport, RowError> {
    let file = config.file.clone();
    let mut input = BufReader::with_capacity(256 << 10, input);
    let magic = loop {
        match input.fill_buf() {
            Ok(bytes) => break bytes.starts_with(&[0x1F, 0x8B]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(RowError::Io { file, line: 1, source }),
        }
    };
    if magic {
        let input = flate2::bufread::MultiGzDecoder::new(input);
        return read(BufReader::with_capacity(256 << 10, input), config, sink, progress);
    }
    read(input, config, sink, progress)
}

fn read(
    input: impl BufRead,
    config: RowConfig,
    sink: &dyn Sink,
    mut progress: impl FnMut(RowProgress) -> ControlFlow<()>,
) -> Result<RowReport, RowError> {
    let mut lines = Lines::new(input);
    let format = config.format.clone();
    let mut intake = RowReceiver::new(config, sink, &mut progress);
    match format {
        RowFormat::Csv => tables::read_csv(&mut lines, &mut intake)?,
        RowFormat::Jsonl => tables::read_jsonl(&mut lines, &mut intake)?,
        RowFormat::Candump(database) => can::read_log(&mut lines, &database, &mut intake)?,
    }
    if let Some(source) = lines.take_failure() {
        // The rows before the error are still stored.
        let (file, line) = (intake.file().to_owned(), lines.number() + 1);
        intake.finish(lines.number())?;
        return Err(RowError::Io { file, line, source });
    }
    intake.finish(lines.number())
}

#[cfg(test)]
mod tests;
