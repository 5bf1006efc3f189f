//! Exports the frames of selected channels in a time range as CSV, JSON lines or Parquet, as a stream.
//!
//! A row is a frame: its time, its stream and its values. Channels of other streams are empty. Frames of all streams
//! are in order of `time`, stream and row, with late frames in their place. A gap is a separate row at the time of the
//! last frame before it; it has no values, and its column `gap` describes what is missing. If not all gaps are known, a
//! row without a stream states the time before which they are incomplete.
//!
//! - **CSV** and **JSON lines**: see [`strongback_store::text`].
//! - **Parquet**: columns `time` (timestamp of nanoseconds, UTC), `stream`, `gap`, then the channels in their
//!   own types. Units and descriptions are metadata of the fields (`unit`, `description`), and the first line
//!   of the JSON form is metadata of the file (`strongback.channels`).
//!
//! Values that are marked bad are left out by default. On request all values are exported, and their qualities beside
//! them: as columns `CHANNEL_quality` behind those of the channels, one for each channel that has marks in the time of
//! the export, and in JSON lines as an object `quality` of the frames with a marked value.

mod parquet;
mod quality;
mod text;

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream as FuturesStream;
use strongback_store::text::{CsvLead, FrameColumns, TextForm, put_time};
use strongback_store::{Batch, Catalog, Chosen, NextFrame, OrderedFrames, OrderedScan, Pattern, View, matching_data};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::sql::setting::MarkUse;
use crate::system::GapRow;
use quality::Qualities;
use text::TextRows;

/// Maximum channels of one export, each of which is a column.
pub const EXPORT_CHANNELS_MAX: usize = 10_000;

/// Maximum chunks buffered between the export and its reader.
const CHUNKS_IN_FLIGHT: usize = 4;
/// Approximate size of a chunk in bytes, to within a row.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum rows written at once.
const RUN_ROWS_MAX: usize = 256;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Comma-separated values (RFC 4180).
    Csv,
    /// One JSON object per line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

impl ExportFormat {
    /// Parses a format name: `csv`, `jsonl` or `parquet`.
    pub fn from_name(name: &str) -> Option<ExportFormat> {
        match name {
            "csv" => Some(ExportFormat::Csv),
            "jsonl" => Some(ExportFormat::Jsonl),
            "parquet" => Some(ExportFormat::Parquet),
            _ => None,
        }
    }

    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            ExportFormat::Csv => "text/csv; charset=utf-8",
            ExportFormat::Jsonl => "application/x-ndjson",
            ExportFormat::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// How an export treats values that are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportMarks {
    /// Leaves out the values marked bad.
    #[default]
    Apply,
    /// Exports all values like those without marks.
    Ignore,
    /// Exports all values, with a column of qualities for each channel that has marks.
    Show,
}

impl ExportMarks {
    /// Parses a name: `apply`, `ignore` or `show`.
    pub fn from_name(name: &str) -> Option<ExportMarks> {
        match name {
            "apply" => Some(ExportMarks::Apply),
            "ignore" => Some(ExportMarks::Ignore),
            "show" => Some(ExportMarks::Show),
            _ => None,
        }
    }
}

/// Parameters of an export.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Range of `time`, from (inclusive) to (exclusive), in nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Patterns. Channels that match any of them are exported.
    pub patterns: Vec<Pattern>,
    /// Output format.
    pub format: ExportFormat,
    /// Treatment of marked values.
    pub marks: ExportMarks,
}

/// A running export: a stream of the file's chunks in order. Dropping it ends the export.
pub struct ExportStream {
    chunks: mpsc::Receiver<Result<Bytes, QueryError>>,
    /// Task of the export; `None` once its end has been returned.
    task: Option<JoinHandle<()>>,
    /// Query engine, kept alive for its threads.
    _engine: Query,
}

impl ExportStream {
    /// Returns the next chunk, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, QueryError>> {
        std::future::poll_fn(|context| self.poll_chunk(context)).await
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, QueryError>>> {
        if let Some(chunk) = ready!(self.chunks.poll_recv(context)) {
            return Poll::Ready(Some(chunk));
        }
        // No more chunks follow. Fail if the task did not complete, because the file is then partial.
        let Some(task) = &mut self.task else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(task).poll(context));
        self.task = None;
        Poll::Ready(ended.err().map(|_| Err(QueryError::new(sqlstate::INTERNAL_ERROR, "the export ended early"))))
    }
}

impl FuturesStream for ExportStream {
    type Item = Result<Bytes, QueryError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_chunk(context)
    }
}

impl Drop for ExportStream {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Query {
    /// Starts an export of a view of the store taken now, on the engine's own threads.
    ///
    /// # Errors
    /// If no channel matches, too many do, or the patterns take too long to compare. Later errors are items of the
    /// stream.
    pub async fn export(&self, request: ExportRequest) -> Result<ExportStream, QueryError> {
        let view = self.inner.view(match request.marks {
            ExportMarks::Apply => MarkUse::Apply,
            ExportMarks::Ignore | ExportMarks::Show => MarkUse::Ignore,
        });
        let (of, patterns) = (view.clone(), request.patterns.clone());
        let chosen = self.inner.spawn_heavy(async move { choose(of.catalog(), &patterns) }).await;
        let chosen = chosen.map_err(|_| QueryError::new(sqlstate::INTERNAL_ERROR, "the engine has stopped"))?;
        let columns = columns_of(&chosen?)?;
        let system = self.inner.system.clone();
        let (sender, chunks) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let task = self.inner.spawn_heavy(async move {
            // Ask for the gaps first, so that gaps dropped from the list in between are reported as unlisted.
            let gaps = system.gaps(request.time.clone());
            let unlisted = system.gaps_known_from().and_then(|known_from| unlisted(known_from, &request.time));
            let qualities = match request.marks {
                ExportMarks::Show => Qualities::of(&columns, system.as_ref(), &request.time),
                ExportMarks::Apply | ExportMarks::Ignore => Qualities::default(),
            };
            if let Err(error) = write(view, (columns, qualities), (gaps, unlisted), request, &sender).await {
                // A reader that has disconnected needs no error.
                let _ = sender.send(Err(error)).await;
            }
        });
        Ok(ExportStream { chunks, task: Some(task), _engine: self.clone() })
    }
}

/// Returns the channels that patterns match.
///
/// # Errors
/// If one of them matches none, since an export without the channels that it was to have looks complete; or if the
/// patterns take too long to compare.
fn choose(catalog: &Catalog, patterns: &[Pattern]) -> Result<Vec<Chosen>, QueryError> {
    let chosen = matching_data(catalog, patterns)?;
    for pattern in patterns.iter().filter(|_| !chosen.is_empty() && patterns.len() > 1) {
        if matching_data(catalog, std::slice::from_ref(pattern))?.is_empty() {
            let message = format!("no channel matches {}", pattern.as_str());
            return Err(
                QueryError::new(sqlstate::UNDEFINED_COLUMN, message).with_hint("The other patterns match some.")
            );
        }
    }
    Ok(chosen)
}

/// Makes the columns of an export.
fn columns_of(chosen: &[Chosen]) -> Result<FrameColumns, QueryError> {
    let columns = FrameColumns::new(chosen);
    match columns.all.len() {
        0 => Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, "no channel matches")),
        count if count > EXPORT_CHANNELS_MAX => Err(QueryError::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("{count} channels match, at most {EXPORT_CHANNELS_MAX} fit one export"),
        )
        .with_hint("Narrow the pattern.")),
        _ => Ok(columns),
    }
}

/// Writer of rows in one of the formats.
trait RowWriter: Send {
    /// Appends rows of a batch of a stream, given by its number.
    fn frames(&mut self, stream: usize, batch: &Batch, rows: Range<usize>) -> Result<(), QueryError>;
    /// Appends the row of a gap.
    fn gap(&mut self, gap: &GapRow) -> Result<(), QueryError>;
    /// Returns the maximum rows to append at once.
    fn rows_max(&self) -> usize;
    /// Takes the pending output, if it is enough to be sent.
    fn take(&mut self) -> Vec<u8>;
    /// Ends the file and takes the rest of the output.
    fn finish(self: Box<Self>) -> Result<Vec<u8>, QueryError>;
}

/// Makes the row for gaps that are not listed in this range, or returns `None` if all are listed.
fn unlisted(known_from: i64, time: &Range<i64>) -> Option<GapRow> {
    if known_from <= time.start {
        return None;
    }
    let at = known_from.min(time.end.saturating_sub(1));
    let mut words = String::from("gaps ");
    if known_from == i64::MAX {
        words.push_str("of any time");
    } else {
        words.push_str("before ");
        put_time(&mut words, known_from);
    }
    words.push_str(" are not all listed: there are more than are kept at hand");
    Some(GapRow { from_time_ns: at, to_time_ns: at, cause: "not listed".into(), words, ..GapRow::default() })
}

async fn write(
    view: View,
    (columns, qualities): (FrameColumns, Qualities),
    (gaps, unlisted): (Vec<GapRow>, Option<GapRow>),
    request: ExportRequest,
    sender: &mpsc::Sender<Result<Bytes, QueryError>>,
) -> Result<(), QueryError> {
    let mut writer: Box<dyn RowWriter> = match request.format {
        ExportFormat::Csv => Box::new(TextRows::new(TextForm::Csv(CsvLead::ALL), &columns, qualities)),
        ExportFormat::Jsonl => Box::new(TextRows::new(TextForm::Jsonl, &columns, qualities)),
        ExportFormat::Parquet => Box::new(parquet::ParquetRows::new(columns.clone(), qualities)?),
    };
    let mut gaps: Vec<GapRow> = gaps
        .into_iter()
        .filter(|gap| columns.streams.iter().any(|of| gap.stream == Some(of.stream.id)))
        .chain(unlisted)
        .collect();
    gaps.sort_by_key(|gap| gap.from_time_ns);
    let mut gaps = gaps.iter().peekable();
    let streams = columns.streams.iter().map(|of| (of.stream.id, of.channels.clone())).collect();
    let scan = OrderedScan { time: request.time, ..OrderedScan::all(streams) };
    let mut frames = OrderedFrames::new(&view, &scan);
    loop {
        let next = frames.peek(i64::MAX)?;
        if let Some((_, error)) = frames.take_troubles().into_iter().next() {
            return Err(error.into());
        }
        let time = match next {
            NextFrame::At(position) => position.time,
            NextFrame::None => break,
            NextFrame::Unsure => {
                tokio::task::consume_budget().await;
                continue;
            }
        };
        while let Some(gap) = gaps.next_if(|gap| gap.from_time_ns < time) {
            writer.gap(gap)?;
        }
        let until = gaps.peek().map_or(i64::MAX, |gap| gap.from_time_ns);
        let run = frames.run(until, writer.rows_max());
        if let Some(frame) = frames.frame() {
            writer.frames(frame.stream, frame.batch, frame.row..frame.row + run)?;
        }
        frames.advance_by(run);
        let chunk = writer.take();
        if !chunk.is_empty() && sender.send(Ok(chunk.into())).await.is_err() {
            return Ok(());
        }
        tokio::task::consume_budget().await;
    }
    for gap in gaps {
        writer.gap(gap)?;
    }
    let rest = writer.finish()?;
    // The reader may have disconnected.
    let _ = sender.send(Ok(rest.into())).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::{EventRow, NoSystemRows, QueryOptions, SourceRow, SystemRows};
    use strongback_store::*;

    const T0: i64 = 1_790_000_000_000_000_000;
    const ROWS: usize = 40_000;

    /// Creates a store of one stream with this number of rows, one nanosecond apart.
    fn store(rows: usize) -> Store {
        let region = MemoryRegion::new(64 << 20);
        let fixed = FixedOptions { log_bytes: Some(16 << 20), ..FixedOptions::new(64 << 20) };
        let store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).unwrap();
        let spec = StreamSpec {
            key: StreamKey::new("t", []),
            source: "test".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("x", ChannelType::U64)],
        };
        let stream = store.resolve(&spec, T0).unwrap().0.id;
        let mut batch = FrameBatch::new();
        for row in 0..rows {
            let time = T0 + row as i64;
            batch.begin(FrameHead { stream, receive_time: time, source_time: None, sequence: None });
            batch.push(ChannelIndex(0), Value::U64(row as u64));
            batch.end();
        }
        let appended = store.append(&batch, T0);
        assert!(appended.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
        store
    }

    /// Starts an export of many chunks, from an engine with no other owner.
    async fn export() -> ExportStream {
        let query = Query::new(store(ROWS), Arc::new(NoSystemRows), QueryOptions::default()).unwrap();
        let patterns = vec![Pattern::parse("*").unwrap()];
        query
            .export(ExportRequest {
                time: T0..i64::MAX,
                patterns,
                format: ExportFormat::Csv,
                marks: ExportMarks::Apply,
            })
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn an_export_is_whole_whatever_becomes_of_the_engine() {
        let mut stream = export().await;
        let mut bytes = 0;
        let mut lines = 0;
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.unwrap();
            (bytes, lines) = (bytes + chunk.len(), lines + chunk.iter().filter(|byte| **byte == b'\n').count());
        }
        assert!(bytes > 2 * CHUNKS_IN_FLIGHT * CHUNK_BYTES && lines == ROWS + 1, "{bytes} bytes, {lines} lines");
        assert!(stream.next().await.is_none());
    }

    /// System rows without gaps before a time, as if there were too many.
    struct Cut(i64);

    impl SystemRows for Cut {
        fn sources(&self) -> Vec<SourceRow> {
            Vec::new()
        }

        fn gaps(&self, _: Range<i64>) -> Vec<GapRow> {
            Vec::new()
        }

        fn gaps_known_from(&self) -> Option<i64> {
            Some(self.0)
        }

        fn events(&self, _: Range<i64>) -> Vec<EventRow> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn an_export_says_where_gaps_are_left_out() {
        let known_from = T0 + 3;
        for (from, expected) in [(T0, Some(format!(",{known_from},,gaps before "))), (known_from, None)] {
            let query = Query::new(store(10), Arc::new(Cut(known_from)), QueryOptions::default()).unwrap();
            let patterns = vec![Pattern::parse("*").unwrap()];
            let request =
                ExportRequest { time: from..i64::MAX, patterns, format: ExportFormat::Csv, marks: ExportMarks::Apply };
            let mut stream = query.export(request).await.unwrap();
            let mut text = String::new();
            while let Some(chunk) = stream.next().await {
                text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            }
            match expected {
                Some(row) => assert!(text.contains(&row), "{text}"),
                None => assert!(!text.contains("gaps before"), "{text}"),
            }
            let frames = text.lines().filter(|line| line.contains(",t,")).count();
            assert_eq!(frames as i64, T0 + 10 - from);
        }
    }

    #[test]
    fn gaps_of_any_time_may_be_left_out() {
        let row = unlisted(i64::MAX, &(T0..T0 + 5)).unwrap();
        assert!(row.words.starts_with("gaps of any time are not all listed"), "{}", row.words);
        assert_eq!((row.from_time_ns, row.to_time_ns), (T0 + 4, T0 + 4));
        assert!(unlisted(T0, &(T0..T0 + 5)).is_none());
    }

    #[tokio::test]
    async fn an_export_that_is_cut_off_ends_with_an_error() {
        let mut stream = export().await;
        stream.next().await.unwrap().unwrap();
        stream.task.as_ref().unwrap().abort();
        let mut last = None;
        while let Some(chunk) = stream.next().await {
            last = Some(chunk);
        }
        assert!(last.is_some_and(|chunk| chunk.is_err()));
    }
}
