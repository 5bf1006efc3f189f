//! Export: the frames of chosen channels in a time range as CSV, JSON lines or Parquet, streamed.
//!
//! A row is a frame: its time, its stream, its values; channels of other streams are empty in it. Frames of
//! all streams come in the order of `time`, stream and row, late frames in their place. A gap is a row of its own at
//! the time of the last frame before it: it has no values, and its column `gap` says in words what is missing.
//!
//! - **CSV**: columns `time` (RFC 3339, nanoseconds), `time_ns`, `stream`, `gap`, then one for each channel,
//!   named `channel [unit]` (`channel` alone if it has no unit). Empty: no value; `""`: an empty text. Numbers have
//!   their shortest exact form; `NaN`, `Infinity`, `-Infinity`.
//! - **JSON lines**: first `{"type":"channels","channels":[{"name","type","unit","description"}]}`, then
//!   `{"type":"frame","time","time_ns","stream","values":{channel: value}}` and
//!   `{"type":"gap","stream","from_time_ns","to_time_ns","count","cause","words"}`. 64-bit integers are strings.
//! - **Parquet**: columns `time` (timestamp of nanoseconds, UTC), `stream`, `gap`, then the channels in their
//!   own types. Units and descriptions are metadata of the fields (`unit`, `description`), and the first line
//!   of the JSON form is metadata of the file (`strongback.channels`).

mod head;
mod parquet;
mod text;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream as FuturesStream;
use strongback_store::{Batch, ChannelIndex, Chosen, Pattern, Scan, Stream, View, matching};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::answer::put_text;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::system::GapRow;

use head::Head;

/// Most channels of one export: each is a column.
pub const EXPORT_CHANNELS_MAX: usize = 10_000;

/// Chunks under way between the export and its reader.
const CHUNKS_IN_FLIGHT: usize = 4;
/// Size of a chunk, in bytes, give or take a row.
const CHUNK_BYTES: usize = 64 << 10;

/// What an export is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Comma-separated values (RFC 4180).
    Csv,
    /// A JSON object a line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

impl ExportFormat {
    /// The format that a word names: `csv`, `jsonl`, `parquet`.
    pub fn from_name(name: &str) -> Option<ExportFormat> {
        match name {
            "csv" => Some(ExportFormat::Csv),
            "jsonl" => Some(ExportFormat::Jsonl),
            "parquet" => Some(ExportFormat::Parquet),
            _ => None,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            ExportFormat::Csv => "text/csv; charset=utf-8",
            ExportFormat::Jsonl => "application/x-ndjson",
            ExportFormat::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Channels that match any of these.
    pub patterns: Vec<Pattern>,
    /// What it is written as.
    pub format: ExportFormat,
}

/// An export under way: chunks of the file in order. Dropping it ends the export.
pub struct ExportStream {
    chunks: mpsc::Receiver<Result<Bytes, QueryError>>,
    task: JoinHandle<()>,
}

impl ExportStream {
    /// The next chunk; none at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, QueryError>> {
        self.chunks.recv().await
    }
}

impl FuturesStream for ExportStream {
    type Item = Result<Bytes, QueryError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.chunks.poll_recv(context)
    }
}

impl Drop for ExportStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Query {
    /// Starts an export of a view of the store as it is now, on the engine's own threads.
    ///
    /// # Errors
    /// If no channel matches, too many do, or the patterns take too long to compare. What fails later is an item of the
    /// stream.
    pub async fn export(&self, request: ExportRequest) -> Result<ExportStream, QueryError> {
        let view = self.inner.store.view();
        let (of, patterns) = (view.clone(), request.patterns.clone());
        let chosen = self.inner.spawn_heavy(async move { matching(of.catalog(), &patterns) }).await;
        let chosen = chosen.map_err(|_| QueryError::new(sqlstate::INTERNAL_ERROR, "the engine has stopped"))?;
        let columns = Columns::new(chosen?)?;
        let gaps = self.inner.system.gaps(request.time.clone());
        let (sender, chunks) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let task = self.inner.spawn_heavy(async move {
            if let Err(error) = write(view, columns, gaps, request, &sender).await {
                // A reader that has gone needs no error.
                let _ = sender.send(Err(error)).await;
            }
        });
        Ok(ExportStream { chunks, task })
    }
}

/// A channel of an export.
struct ExportColumn {
    stream: Arc<Stream>,
    channel: ChannelIndex,
    name: String,
}

impl ExportColumn {
    fn channel(&self) -> &strongback_store::Channel {
        self.stream.layout.channel(self.channel)
    }
}

/// The channels of an export; those of a stream lie side by side.
struct Columns {
    all: Vec<ExportColumn>,
    /// Each stream with its first column and its channels.
    streams: Vec<(Arc<Stream>, usize, Vec<ChannelIndex>)>,
}

impl Columns {
    fn new(chosen: Vec<Chosen>) -> Result<Columns, QueryError> {
        let mut all = Vec::new();
        let mut streams = Vec::new();
        for (stream, channels) in chosen {
            let first = all.len();
            all.extend(channels.iter().map(|channel| ExportColumn {
                stream: stream.clone(),
                channel: *channel,
                name: stream.key.channel_name(&stream.layout.channel(*channel).name),
            }));
            streams.push((stream, first, channels));
        }
        match all.len() {
            0 => Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, "no channel matches")),
            count if count > EXPORT_CHANNELS_MAX => Err(QueryError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("{count} channels match, at most {EXPORT_CHANNELS_MAX} fit one export"),
            )
            .with_hint("Narrow the pattern.")),
            _ => Ok(Columns { all, streams }),
        }
    }

    /// `{"type":"channels","channels":[…]}`.
    fn describe(&self) -> String {
        let mut json = String::from("{\"type\":\"channels\",\"channels\":[");
        for (at, column) in self.all.iter().enumerate() {
            let channel = column.channel();
            json.push_str(if at == 0 { "{\"name\":" } else { ",{\"name\":" });
            put_text(&mut json, &column.name);
            let kind = channel.channel_type.name();
            for (key, value) in [
                (",\"type\":", &*kind),
                (",\"unit\":", channel.unit.as_str()),
                (",\"description\":", channel.description.as_str()),
            ] {
                json.push_str(key);
                put_text(&mut json, value);
            }
            json.push('}');
        }
        json.push_str("]}");
        json
    }
}

/// A row of an export.
enum ExportRow<'a> {
    /// Row `row` of a batch whose first channel is column `first`.
    Frame { stream: &'a Stream, first: usize, batch: &'a Batch, row: usize },
    /// Frames missing.
    Gap(&'a GapRow),
}

/// Writes rows in one of the formats.
trait RowWriter: Send {
    /// Appends a row.
    fn row(&mut self, columns: &Columns, row: ExportRow<'_>) -> Result<(), QueryError>;
    /// Takes what is ready to be sent.
    fn take(&mut self) -> Vec<u8>;
    /// Ends the file and takes the rest.
    fn finish(self: Box<Self>) -> Result<Vec<u8>, QueryError>;
}

async fn write(
    view: View,
    columns: Columns,
    gaps: Vec<GapRow>,
    request: ExportRequest,
    sender: &mpsc::Sender<Result<Bytes, QueryError>>,
) -> Result<(), QueryError> {
    let mut writer: Box<dyn RowWriter> = match request.format {
        ExportFormat::Csv => Box::new(text::CsvWriter::new(&columns)),
        ExportFormat::Jsonl => Box::new(text::JsonlWriter::new(&columns)),
        ExportFormat::Parquet => Box::new(parquet::ParquetRows::new(&columns)?),
    };
    let mut gaps: Vec<GapRow> = gaps
        .into_iter()
        .filter(|gap| columns.streams.iter().any(|(stream, ..)| gap.stream == Some(stream.id)))
        .collect();
    gaps.sort_by_key(|gap| gap.from_time_ns);
    let mut gaps = gaps.iter().peekable();
    let mut heads = Vec::new();
    let mut order = BinaryHeap::new();
    for (stream, first, channels) in &columns.streams {
        let mut scan = Scan::all(stream.id, channels.clone());
        scan.time = request.time.clone();
        let mut head = Head::new(&view, stream.clone(), *first, scan, columns.streams.len());
        if let Some(time) = head.time()? {
            order.push(Reverse((time, heads.len())));
        }
        heads.push(head);
    }
    let mut rows = 0u32;
    while let Some(Reverse((time, at))) = order.pop() {
        while let Some(gap) = gaps.next_if(|gap| gap.from_time_ns < time) {
            writer.row(&columns, ExportRow::Gap(gap))?;
        }
        let head = &mut heads[at];
        if let Some((batch, row)) = head.frame() {
            let frame = ExportRow::Frame { stream: &head.stream, first: head.first, batch, row };
            writer.row(&columns, frame)?;
        }
        head.advance();
        if let Some(time) = head.time()? {
            order.push(Reverse((time, at)));
        }
        rows = rows.wrapping_add(1);
        if rows.is_multiple_of(64) {
            let chunk = writer.take();
            if !chunk.is_empty() && sender.send(Ok(chunk.into())).await.is_err() {
                return Ok(());
            }
            tokio::task::consume_budget().await;
        }
    }
    for gap in gaps {
        writer.row(&columns, ExportRow::Gap(gap))?;
    }
    let rest = writer.finish()?;
    // The reader may have gone.
    let _ = sender.send(Ok(rest.into())).await;
    Ok(())
}
