//! The rows of a running statement on their way to the wire: as data rows or as copy data.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;
use pgwire::api::Type;

use super::connection::put_row;
use super::encode;
use super::message::{self, ResultColumn};
use super::portal::Formats;
use crate::direct::DirectRows;
use crate::error::QueryError;
use crate::query::{Plan, Rows};
use crate::statement::CopyForm;

/// Rows between two looks at what could stop the statement.
const ROWS_AT_A_TIME: usize = 1_024;

/// How a portion of rows ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Progress {
    /// As many rows as were asked for; there may be more.
    Suspended,
    /// No more rows.
    Complete,
}

/// A running statement.
pub(crate) struct Running {
    source: Source,
    /// Types of the columns of batches.
    kinds: Vec<Type>,
    formats: Formats,
    copy: Option<CopyForm>,
    /// Rows left of this portion; none: no bound.
    left: Option<usize>,
    /// Rows of this portion.
    sent: u64,
    /// The cells of a row of copy data.
    cells: BytesMut,
}

enum Source {
    /// Straight from the store.
    Direct { plan: Arc<Plan>, rows: DirectRows },
    /// From DataFusion.
    Batches { rows: Rows, batch: Option<RecordBatch>, next: usize, ended: bool },
}

impl Running {
    pub(crate) fn direct(plan: Arc<Plan>, rows: DirectRows, formats: Formats) -> Self {
        Running::of(Source::Direct { plan, rows }, Vec::new(), formats)
    }

    pub(crate) fn batches(plan: &Plan, rows: Rows, formats: Formats) -> Result<Self, QueryError> {
        let kinds = plan.schema.fields().iter().map(encode::wire_type).collect::<Result<_, _>>()?;
        let source = Source::Batches { rows, batch: None, next: 0, ended: false };
        Ok(Running::of(source, kinds, formats))
    }

    fn of(source: Source, kinds: Vec<Type>, formats: Formats) -> Self {
        Running { source, kinds, formats, copy: None, left: None, sent: 0, cells: BytesMut::new() }
    }

    /// The same as copy data.
    pub(crate) fn into_copy(self, form: CopyForm) -> Self {
        Running { copy: Some(form), ..self }
    }

    /// Begins a portion of at most that many rows (0: all).
    pub(crate) fn portion(&mut self, most: usize) {
        self.left = (most > 0).then_some(most);
        self.sent = 0;
    }

    /// Whether the next rows must be waited for.
    pub(crate) fn needs_batch(&self) -> bool {
        match &self.source {
            Source::Direct { .. } => false,
            Source::Batches { batch, next, ended, .. } => {
                !*ended && batch.as_ref().is_none_or(|batch| *next >= batch.num_rows())
            }
        }
    }

    /// Waits for the next rows.
    pub(crate) async fn fetch(&mut self) -> Result<(), QueryError> {
        if let Source::Batches { rows, batch, next, ended } = &mut self.source {
            *batch = rows.next().await.transpose()?;
            *next = 0;
            *ended = batch.is_none();
        }
        Ok(())
    }

    /// Appends rows until the output is full, a thousand are made, or the portion ends.
    pub(crate) fn put_rows(&mut self, out: &mut BytesMut, full: usize) -> Result<Option<Progress>, QueryError> {
        let mut made = 0;
        while made < ROWS_AT_A_TIME {
            if self.left == Some(0) {
                return Ok(Some(Progress::Suspended));
            }
            if out.len() >= full {
                return Ok(None);
            }
            let most = self.left.unwrap_or(usize::MAX).min(ROWS_AT_A_TIME - made);
            let rows = match &mut self.source {
                Source::Direct { plan, rows } => {
                    let Some(direct) = &plan.direct else { return Ok(Some(Progress::Complete)) };
                    match &self.copy {
                        None => direct.put_rows(out, rows, &self.formats, (most, full))?,
                        Some(form) => {
                            self.cells.clear();
                            let found = direct.put_cells(&mut self.cells, rows)?;
                            found.then(|| put_copy_row(out, form, &self.cells)).map(|()| 1)
                        }
                    }
                }
                Source::Batches { batch, next, ended, .. } => {
                    let Some(batch) = batch.as_ref().filter(|batch| *next < batch.num_rows()) else {
                        return Ok(ended.then_some(Progress::Complete));
                    };
                    let (kinds, formats) = (&self.kinds, &self.formats);
                    let write = |out: &mut BytesMut, text: bool| {
                        for (at, array) in batch.columns().iter().enumerate() {
                            let binary = !text && formats.binary(at);
                            encode::put_arrow(out, array, *next, batch.schema_ref().field(at), &kinds[at], binary)?;
                        }
                        Ok(())
                    };
                    match &self.copy {
                        None => put_row(out, kinds.len(), |out| write(out, false))?,
                        Some(form) => {
                            self.cells.clear();
                            write(&mut self.cells, true)?;
                            put_copy_row(out, form, &self.cells);
                        }
                    }
                    *next += 1;
                    Some(1)
                }
            };
            let Some(rows) = rows else { return Ok(Some(Progress::Complete)) };
            made += rows;
            self.sent += rows as u64;
            if let Some(left) = &mut self.left {
                *left -= rows;
            }
        }
        Ok(None)
    }

    /// Appends what follows the rows of a portion.
    pub(crate) fn put_end(&self, out: &mut BytesMut, progress: Progress) {
        match (progress, &self.copy) {
            (Progress::Suspended, _) => message::put(out, b's', |_| {}),
            (Progress::Complete, None) => message::put_complete(out, &format!("SELECT {}", self.sent)),
            (Progress::Complete, Some(_)) => {
                message::put(out, b'c', |_| {});
                message::put_complete(out, &format!("COPY {}", self.sent));
            }
        }
    }

    /// Appends the line of names, if the copy wants one.
    pub(crate) fn put_copy_header(&self, out: &mut BytesMut, columns: &[ResultColumn]) {
        if let Some(form) = self.copy.as_ref().filter(|form| form.header) {
            let mut cells = BytesMut::new();
            for column in columns {
                cells.put_i32(column.name.len() as i32);
                cells.put_slice(column.name.as_bytes());
            }
            put_copy_row(out, form, &cells);
        }
    }
}

/// Appends a line of copy data from cells in the text form of data rows.
fn put_copy_row(out: &mut BytesMut, form: &CopyForm, cells: &[u8]) {
    let mut cells = message::Body(cells);
    message::put(out, b'd', |out| {
        let mut first = true;
        while let Ok(cell) = cells.sized() {
            if !first {
                out.put_slice(form.delimiter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            first = false;
            match cell {
                None => out.put_slice(form.null.as_bytes()),
                Some(cell) if form.csv => put_csv(out, form, cell),
                Some(cell) => {
                    for byte in cell {
                        match byte {
                            b'\n' => out.put_slice(b"\\n"),
                            b'\r' => out.put_slice(b"\\r"),
                            b'\t' => out.put_slice(b"\\t"),
                            b'\\' => out.put_slice(b"\\\\"),
                            other => {
                                if *other as char == form.delimiter {
                                    out.put_u8(b'\\');
                                }
                                out.put_u8(*other);
                            }
                        }
                    }
                }
            }
        }
        out.put_u8(b'\n');
    });
}

fn put_csv(out: &mut BytesMut, form: &CopyForm, cell: &[u8]) {
    let special = |byte: &u8| matches!(byte, b'"' | b'\n' | b'\r') || *byte as char == form.delimiter;
    if !cell.iter().any(special) && cell != form.null.as_bytes() && cell != b"\\." {
        return out.put_slice(cell);
    }
    out.put_u8(b'"');
    for byte in cell {
        if *byte == b'"' {
            out.put_u8(b'"');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}
