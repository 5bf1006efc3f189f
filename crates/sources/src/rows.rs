//! Rows of text files (CSV, JSON lines, CAN logs) into a sink, with the times that stand in them.
//!
//! A row is a time and named values. Values of one stream in one row are one frame. A row or a cell that cannot be
//! taken is counted, and the first few are kept with line, column and reason; the others go on.
//!
//! **CSV** has a header. A column named `time`, `timestamp`, `unix_time`, `epoch`, `datetime` or `ts`, perhaps with its
//! unit (`time_ns`, `ts_ms`), is the time. Other columns are channels: `STREAM.CHANNEL` in full, or `CHANNEL` of the
//! stream that the caller or a column `stream` names; `[unit]` behind a name is its unit. A file with columns `channel`
//! and `value` has one value a row. Empty: no value; `""`: an empty text, and no value of a channel of another type;
//! `unknown`: known to be unknown, except for text. A row with something in a column `gap` is passed over.
//!
//! **JSON lines** have the same keys; channels stand beside them or in an object `values`. A line
//! `{"type":"channels",…}` says types and units. `null`: no value.
//!
//! So exports are rows as well.

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

use strongback_store::{Catalog, ChannelType, Refusal, Reject, Value};

use crate::can;
use crate::sink::Sink;

pub(crate) use intake::RowReceiver;
pub(crate) use lines::Lines;
pub use stamp::{TimeUnit, parse as parse_time, time_column};
pub(crate) use target::ChannelRequest;
pub use write::{RowSelection, choose, write, write_grid, write_intervals};

/// Most bytes of a row: those of a frame.
pub const ROW_BYTES_MAX: usize = 1 << 20;
/// Complaints that are kept.
pub const COMPLAINTS_MAX: usize = 10;

/// Where something stands in a file: line and column, from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePlace {
    /// Line.
    pub line: u64,
    /// Column.
    pub column: u32,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Without saying what it is.
    Bare,
    /// As a number.
    Number,
    /// As text.
    Text,
    /// As a truth value.
    Bool,
    /// As an array of these: `[1,2]`.
    List,
}

/// A cell of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// As it is written.
    Written(&'a str, Written),
    /// A value.
    Value(Value<'a>),
    /// Known to be unknown.
    Unknown,
}

/// What a file is written in.
#[derive(Clone, Debug)]
pub enum RowFormat {
    /// Comma-separated values.
    Csv,
    /// A JSON object a line.
    Jsonl,
    /// A log of `candump -l`, with the definitions of its messages.
    Candump(Arc<can::Database>),
}

/// How rows are taken.
#[derive(Clone, Debug)]
pub struct RowConfig {
    /// The file, as messages call it.
    pub file: String,
    /// What it is written in.
    pub format: RowFormat,
    /// Stream of channels that do not name theirs.
    pub stream: Option<String>,
    /// Column with the time; none: one that is named so.
    pub time_column: Option<String>,
    /// Unit of times that are numbers, where the column does not name it.
    pub time_unit: Option<TimeUnit>,
    /// Types of channels that the store does not know, by the file's name or the full one; others are guessed from the
    /// first rows.
    pub types: BTreeMap<String, ChannelType>,
    /// Full names of channels by the file's. If there are any, other channels are passed over.
    pub names: BTreeMap<String, String>,
    /// Streams whose frames must have values of these channels.
    pub required: BTreeMap<String, Vec<String>>,
    /// What feeds the streams, as the catalog shows it.
    pub source: String,
    /// Rows of earlier lines are passed over.
    pub from_line: u64,
    /// Streams and channels there are.
    pub catalog: Arc<Catalog>,
}

impl RowConfig {
    /// Rows of a file in a format, with nothing else said.
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

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowProgress {
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Frames that are durable.
    pub stored: u64,
}

/// A row or cell that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where it stands.
    pub place: FilePlace,
    /// Why.
    pub reason: String,
}

/// What became of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowReport {
    /// Lines read; of what stands in them all is durable that was taken.
    pub lines: u64,
    /// Rows, the header apart.
    pub rows: u64,
    /// Frames stored, by stream.
    pub streams: BTreeMap<String, u64>,
    /// Values in frames that were handed over.
    pub values: u64,
    /// Frames in which nothing left its bound: what is stored stands for them.
    pub reduced: u64,
    /// Frames the store had already.
    pub duplicate: u64,
    /// Frames the store refused, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Rows of which nothing was taken.
    pub bad_rows: u64,
    /// Cells that were not taken, in whatever row.
    pub bad_cells: u64,
    /// Rows without a value, and rows that say a gap.
    pub empty_rows: u64,
    /// Rows of messages and channels that nobody asked for.
    pub ignored_rows: u64,
    /// The first complaints, in the order of the file.
    pub complaints: Vec<Complaint>,
    /// First and last time of frames that were handed over, nanoseconds since 1970 UTC.
    pub time: Option<(i64, i64)>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

impl RowReport {
    /// Frames stored over all streams.
    pub fn stored(&self) -> u64 {
        self.streams.values().sum()
    }

    /// Whether all that was read was taken.
    pub fn is_whole(&self) -> bool {
        self.bad_rows == 0 && self.bad_cells == 0 && self.rejected.is_empty()
    }

    pub(crate) fn complain(&mut self, place: FilePlace, reason: impl Into<String>) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(Complaint { place, reason: reason.into() });
        }
    }
}

/// Why reading ended early. What was stored before stays.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The file cannot be read on.
    #[error("{file}, line {line}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The line it was at.
        line: u64,
        /// The refusal.
        source: std::io::Error,
    },
    /// The file as a whole cannot be meant.
    #[error("{file}:{}:{}: {reason}", place.line, place.column)]
    Header {
        /// The file.
        file: String,
        /// Where.
        place: FilePlace,
        /// What is wrong and what is right.
        reason: String,
    },
    /// The store refuses a stream.
    #[error("{file}, line {line}: {source}")]
    Stream {
        /// The file.
        file: String,
        /// The line it was at.
        line: u64,
        /// Why.
        source: Reject,
    },
    /// The store takes nothing more.
    #[error("{file}: {source}; lines up to {line} are stored unless reported")]
    Refused {
        /// The file.
        file: String,
        /// Up to which all is durable.
        line: u64,
        /// Why.
        source: Refusal,
    },
}

/// Reads rows of a file, compressed by gzip or not, into a sink, and waits until they are durable. `progress` is called
/// after each commit and may stop it.
///
/// # Errors
/// Where the file or the store ends it.
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
        // What came before is stored all the same.
        let (file, line) = (intake.file().to_owned(), lines.number() + 1);
        intake.finish(lines.number())?;
        return Err(RowError::Io { file, line, source });
    }
    intake.finish(lines.number())
}

#[cfg(test)]
mod tests;
