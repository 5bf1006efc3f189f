//! SQL over HTTP: one statement in, JSON out.
//!
//! Integers of 64 bits, decimals and times are JSON strings, so that no reader rounds them; NaN and infinities
//! are `"NaN"`, `"Infinity"`, `"-Infinity"`.

use std::fmt::Write;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type};
use datafusion::arrow::datatypes::{UInt8Type, UInt16Type, UInt32Type};
use datafusion::sql::sqlparser::ast::Statement;
use futures::future::BoxFuture;

use crate::error::{QueryError, sqlstate};
use crate::pg::encode;
use crate::query::Query;

/// Most bytes of rows in one answer; it is cut there and says so.
const ANSWER_BYTES_MAX: usize = 32 << 20;

impl Query {
    /// Runs one statement and returns the body of `POST /api/sql`:
    /// `{"columns":[{"name","type"}],"rows":[[…]],"truncated":false,"elapsed_ms":1.2}` with at most `limit` rows.
    ///
    /// # Errors
    /// If it is no single statement that reads, fails, or runs longer than `timeout`.
    pub fn sql_json<'a>(
        &'a self,
        sql: &'a str,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<String, QueryError>> {
        // Boxed, as all that callers await: what is inside is compiled here and once.
        Box::pin(async move {
            let start = Instant::now();
            let answer =
                tokio::time::timeout(timeout, self.answer(sql, limit)).await.map_err(|_| QueryError::timed_out())?;
            let (mut json, truncated) = answer?;
            let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
            let _ = write!(json, ",\"truncated\":{truncated},\"elapsed_ms\":{elapsed_ms:.3}}}");
            Ok(json)
        })
    }

    async fn answer(&self, sql: &str, limit: usize) -> Result<(String, bool), QueryError> {
        let session = self.session();
        let mut statements = session.parse(sql)?;
        let statement = match (statements.pop(), statements.is_empty()) {
            (Some(statement), true) => statement,
            (None, _) => return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "there is no statement")),
            (Some(_), false) => return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "one statement at a time")),
        };
        if !matches!(statement, Statement::Query(_) | Statement::Explain { .. }) {
            return Err(crate::statement::refusal(&statement));
        }
        let plan = session.plan(&statement).await?;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::INDETERMINATE_DATATYPE, "parameters have no values here"));
        }
        let mut rows = session.run(&plan, Vec::new()).await?;
        let mut json = String::from("{\"columns\":[");
        for (at, field) in rows.schema.fields().iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            json.push_str("{\"name\":");
            put_text(&mut json, field.name());
            json.push_str(",\"type\":");
            put_text(&mut json, encode::wire_type(field)?.name());
            json.push('}');
        }
        json.push_str("],\"rows\":[");
        let (mut count, mut truncated) = (0, false);
        'rows: while let Some(batch) = rows.next().await {
            let batch = batch?;
            let schema = batch.schema();
            for row in 0..batch.num_rows() {
                if count == limit || json.len() > ANSWER_BYTES_MAX {
                    truncated = true;
                    break 'rows;
                }
                json.push_str(if count == 0 { "[" } else { ",[" });
                for (at, array) in batch.columns().iter().enumerate() {
                    if at > 0 {
                        json.push(',');
                    }
                    put_cell(&mut json, array, row, schema.field(at))?;
                }
                json.push(']');
                count += 1;
            }
        }
        json.push(']');
        Ok((json, truncated))
    }
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
        DataType::Timestamp(_, Some(_)) => {
            // RFC 3339, as everywhere in JSON; the wire's form has a blank.
            let text = wire_text(array, row, field)?;
            let text = text.replacen(' ', "T", 1).replace("+00", "Z");
            put_text(json, &text);
        }
        _ => put_text(json, &wire_text(array, row, field)?),
    }
    Ok(())
}

/// The text form of PostgreSQL.
fn wire_text(array: &ArrayRef, row: usize, field: &Field) -> Result<String, QueryError> {
    let mut out = BytesMut::new();
    let kind = encode::wire_type(&std::sync::Arc::new(field.clone()))?;
    encode::put_arrow(&mut out, array, row, field, &kind, false)?;
    Ok(String::from_utf8_lossy(out.get(4..).unwrap_or_default()).into_owned())
}

/// Writes a JSON string.
pub(crate) fn put_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(json, "\\u{:04x}", c as u32);
            }
            c => json.push(c),
        }
    }
    json.push('"');
}
