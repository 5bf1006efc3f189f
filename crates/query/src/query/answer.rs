//! SQL over HTTP: takes one statement and returns JSON.
//!
//! 64-bit integers, decimals and times are JSON strings, so that no reader rounds them. NaN and infinities are `"NaN"`,
//! `"Infinity"` and `"-Infinity"`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type};
use datafusion::arrow::datatypes::{Schema, UInt8Type, UInt16Type, UInt32Type};
use futures::future::BoxFuture;
use strongback_store::text::put_json_text;
use tokio::task::JoinHandle;

use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::running::memory::{Share, SharedMemory};
use crate::running::runtime::apart;
use crate::running::size::Size;
use crate::wire::encode;

/// Maximum bytes of rows in an answer. Longer ones are truncated and marked so.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Bytes of an answer that do not count as answer memory.
const ANSWER_BYTES_FREE: usize = 64 << 10;

/// Bytes for which room is made before a first row, at least.
const ROW_BYTES: usize = 512;
/// Width of a row, in bytes, from which memory is reserved before it is written.
const WIDE_BYTES: usize = 128 << 10;
/// Maximum rows and bytes between two yields.
const ROWS_AT_A_TIME: usize = 1_024;
const BYTES_AT_A_TIME: usize = 1 << 20;

/// Body of an answer. Its memory counts until it is dropped after sending.
#[derive(Debug)]
pub struct SqlAnswer {
    pub(crate) json: String,
    share: Share,
}

impl SqlAnswer {
    /// Creates an empty body, whose bytes count in this memory beyond some that are free.
    pub(crate) fn new(memory: Arc<SharedMemory>) -> SqlAnswer {
        SqlAnswer { json: String::new(), share: Share::new(memory, ANSWER_BYTES_FREE) }
    }

    /// Returns the JSON.
    pub fn as_str(&self) -> &str {
        &self.json
    }

    /// Makes room for `more` bytes. While the text is copied to its new place, both places count.
    fn hold(&mut self, more: usize) -> Result<(), QueryError> {
        let (needed, capacity) = (self.json.len().saturating_add(more), self.json.capacity());
        if needed <= capacity && (capacity <= self.share.bytes() || self.share.try_resize(capacity)) {
            return Ok(());
        }
        for bytes in [needed.max(capacity + capacity / 2), needed] {
            if bytes > capacity && self.share.try_resize(capacity.saturating_add(bytes)) {
                self.json.reserve_exact(bytes - self.json.len());
                // Shrinking always succeeds.
                let _ = self.share.try_resize(self.json.capacity().min(self.share.bytes()));
                return Ok(());
            }
        }
        Err(QueryError::new(sqlstate::OUT_OF_MEMORY, "no room for the answer beside those that are not read yet")
            .with_hint("Ask for fewer rows, or read answers sooner."))
    }

    /// Releases unneeded memory.
    fn let_go(&mut self) {
        self.json.shrink_to(self.json.len() + self.json.len() / 4);
        // Shrinking always succeeds.
        let _ = self.share.try_resize(self.json.capacity().min(self.share.bytes()));
    }
}

impl AsRef<[u8]> for SqlAnswer {
    fn as_ref(&self) -> &[u8] {
        self.json.as_bytes()
    }
}

/// A task that is aborted when its waiter is dropped.
pub(crate) struct Task<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Query {
    /// Runs one statement and returns the body of `POST /api/sql`:
    /// `{"columns":[{"name","type"}],"rows":[[…]],"truncated":false,"elapsed_ms":1.2}` with at most `limit` rows.
    ///
    /// # Errors
    /// If the text is not a single read-only statement, or it fails, or runs longer than `timeout`.
    pub fn sql_json<'a>(
        &'a self,
        sql: &'a str,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<SqlAnswer, QueryError>> {
        // Boxed like everything that callers await, so that the contents are compiled once, in this crate.
        Box::pin(async move {
            let start = Instant::now();
            // Answers are built in memory, so their number is limited, and others wait for their turn.
            let question = tokio::time::timeout(timeout, self.inner.questions.acquire()).await;
            let _question = question.map_err(|_| {
                QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, "too many questions are being answered: try again")
            })?;
            let (query, sql) = (self.clone(), sql.to_owned());
            let work = async move { tokio::time::timeout(timeout, query.answer(&sql, limit)).await };
            // Use the SQL threads, so that a panic or long work on rows does not affect the caller's threads.
            let mut task = Task(self.inner.wire.handle().spawn(work));
            let answer = (&mut task.0).await.map_err(|error| {
                tracing::error!(%error, "a query ended by a defect");
                QueryError::new(sqlstate::INTERNAL_ERROR, "the query ended by a defect of the server")
            })?;
            let (mut answer, truncated) = answer.map_err(|_| QueryError::timed_out())??;
            let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
            let _ = write!(answer.json, ",\"truncated\":{truncated},\"elapsed_ms\":{elapsed_ms:.3}}}");
            Ok(answer)
        })
    }

    async fn answer(&self, sql: &str, limit: usize) -> Result<(SqlAnswer, bool), QueryError> {
        let session = self.session();
        let plan = session.prepare(sql).await?.plan;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::INDETERMINATE_DATATYPE, "parameters have no values here"));
        }
        let mut rows = session.run(&plan, Vec::new()).await?;
        let mut answer = SqlAnswer::new(self.inner.answers.clone());
        answer.json.push_str("{\"columns\":[");
        put_columns(&mut answer.json, &rows.schema)?;
        answer.json.push_str("],\"rows\":[");
        let (mut count, mut truncated, mut looked, mut writer) = (0, false, 0, RowWriter::default());
        'rows: while let Some(batch) = rows.next().await {
            let batch = batch?;
            writer.begin(&batch);
            for row in 0..batch.num_rows() {
                if count == limit || answer.json.len() > ANSWER_BYTES_MAX {
                    truncated = true;
                    break 'rows;
                }
                if count % ROWS_AT_A_TIME == 0 || answer.json.len() > looked + BYTES_AT_A_TIME {
                    looked = answer.json.len();
                    tokio::task::yield_now().await;
                }
                writer.put(&mut answer, &batch, row, count == 0)?;
                count += 1;
            }
        }
        answer.json.push(']');
        answer.hold(0)?;
        Ok((answer, truncated))
    }
}

/// Appends the names and types of columns.
pub(crate) fn put_columns(json: &mut String, schema: &Schema) -> Result<(), QueryError> {
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        json.push_str("{\"name\":");
        put_json_text(json, field.name());
        json.push_str(",\"type\":");
        put_json_text(json, encode::wire_type(field)?.name());
        json.push('}');
    }
    Ok(())
}

/// Writes rows of batches to an answer, for which it makes room.
pub(crate) struct RowWriter {
    /// Whether rows of the batch need so much room that each is measured first.
    is_wide: bool,
    /// Size of the longest row so far, in bytes.
    longest: usize,
}

impl Default for RowWriter {
    fn default() -> RowWriter {
        RowWriter { is_wide: false, longest: ROW_BYTES }
    }
}

impl RowWriter {
    /// Begins a batch.
    pub(crate) fn begin(&mut self, batch: &RecordBatch) {
        self.is_wide = Size::of_batch(batch).widest > WIDE_BYTES;
    }

    /// Appends a row of the batch.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(crate) fn put(
        &mut self,
        answer: &mut SqlAnswer,
        batch: &RecordBatch,
        row: usize,
        is_first: bool,
    ) -> Result<(), QueryError> {
        if self.is_wide {
            answer.hold(text_bytes(batch, row))?;
            apart(|| put_row(&mut answer.json, batch, row, is_first))?;
            answer.let_go();
            return Ok(());
        }
        answer.hold(2 * self.longest)?;
        let before = answer.json.len();
        put_row(&mut answer.json, batch, row, is_first)?;
        self.longest = self.longest.max(answer.json.len() - before);
        Ok(())
    }
}

/// Returns an upper bound of a row's size as text, in bytes: the escaped size for texts, and a bound by element width
/// for everything else.
fn text_bytes(batch: &RecordBatch, row: usize) -> usize {
    let escaped = |text: &str| -> usize {
        let width = |byte: u8| if byte < 0x20 { 6 } else { 1 + usize::from(matches!(byte, b'"' | b'\\')) };
        text.bytes().map(width).sum()
    };
    let bytes = |array: &ArrayRef| match array.data_type() {
        _ if array.is_null(row) => 4,
        DataType::Utf8 => escaped(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => escaped(array.as_string::<i64>().value(row)),
        DataType::Utf8View => escaped(array.as_string_view().value(row)),
        // The text is built first, and escaped only if elements are texts.
        kind => Size::of(&array.slice(row, 1)).total.saturating_mul(2 * text_times(kind)),
    };
    batch.columns().iter().map(bytes).fold(0, usize::saturating_add)
}

/// Returns a bound of the ratio of a value's text to its size, including separators.
fn text_times(kind: &DataType) -> usize {
    match kind {
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            text_times(element.data_type())
        }
        other => match other.primitive_width() {
            Some(8) if other.is_numeric() => 3,
            Some(width) if width > 1 => 4,
            _ => 6,
        },
    }
}

/// Appends a row as a JSON array.
pub(crate) fn put_row(json: &mut String, batch: &RecordBatch, row: usize, first: bool) -> Result<(), QueryError> {
    json.push_str(if first { "[" } else { ",[" });
    for (at, array) in batch.columns().iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        put_cell(json, array, row, batch.schema_ref().field(at))?;
    }
    json.push(']');
    Ok(())
}

fn put_cell(json: &mut String, array: &ArrayRef, row: usize, field: &Field) -> Result<(), QueryError> {
    if array.is_null(row) {
        json.push_str("null");
        return Ok(());
    }
    macro_rules! number {
        ($kind:ty) => {{
            let _ = write!(json, "{}", array.as_primitive::<$kind>().value(row));
        }};
    }
    match array.data_type() {
        DataType::Boolean => json.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::Float32 if array.as_primitive::<Float32Type>().value(row).is_finite() => number!(Float32Type),
        DataType::Float64 if array.as_primitive::<Float64Type>().value(row).is_finite() => number!(Float64Type),
        DataType::Utf8 if field.metadata().is_empty() => put_json_text(json, array.as_string::<i32>().value(row)),
        DataType::Timestamp(_, Some(_)) => {
            // RFC 3339, as everywhere in JSON. PostgreSQL's form contains a space.
            let text = wire_text(array, row, field)?;
            let text = text.replacen(' ', "T", 1).replace("+00", "Z");
            put_json_text(json, &text);
        }
        _ => put_json_text(json, &wire_text(array, row, field)?),
    }
    Ok(())
}

/// Returns PostgreSQL's text form.
fn wire_text(array: &ArrayRef, row: usize, field: &Field) -> Result<String, QueryError> {
    let mut out = BytesMut::new();
    let kind = encode::wire_type(&Arc::new(field.clone()))?;
    encode::put_arrow(&mut out, array, row, field, &kind, false)?;
    out.advance(out.len().min(4));
    // Reuses the buffer, unless it is not UTF-8.
    Ok(String::from_utf8(out.into()).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
