//! Encodes the rows of a running statement for the wire, as data rows or as copy data.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use pgwire::api::Type;

use crate::error::{QueryError, sqlstate};
use crate::plan::direct::DirectRows;
use crate::query::{Plan, Rows};
use crate::running::memory::Share;
use crate::running::runtime::apart;
use crate::running::size::Size;
use crate::sql::statement::CopyForm;
use crate::wire::encode;
use crate::wire::message;
use crate::wire::message::{Formats, ResultColumn, put_row};

/// Maximum rows between two checks for a stop.
const ROWS_AT_A_TIME: usize = 1_024;

/// Width of a row, in bytes, from which it counts as answer memory until it is sent.
pub(crate) const WIDE_BYTES: usize = 256 << 10;

/// End of a portion of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Progress {
    /// All requested rows were sent. There may be more.
    Suspended,
    /// No more rows.
    Complete,
}

/// A running statement.
pub(crate) struct Running {
    source: Source,
    /// Wire types of the columns in batches, and whether they are always sent as text.
    kinds: Vec<(Type, bool)>,
    formats: Formats,
    copy: Option<CopyForm>,
    /// Rows left of this portion; `None` for no limit.
    left: Option<usize>,
    /// Rows sent in this portion.
    sent: u64,
    /// Cells of a row of copy data.
    cells: BytesMut,
}

enum Source {
    /// Rows read directly from the store.
    Direct { plan: Arc<Plan>, rows: DirectRows },
    /// Rows from DataFusion.
    Batches {
        rows: Rows,
        batch: Option<RecordBatch>,
        next: usize,
        ended: bool,
        /// Width of the widest row of the batch, in bytes.
        widest: usize,
    },
}

impl Running {
    pub(crate) fn direct(plan: Arc<Plan>, rows: DirectRows, formats: Formats) -> Self {
        Running::of(Source::Direct { plan, rows }, Vec::new(), formats)
    }

    /// Creates a result from rows of DataFusion.
    ///
    /// # Errors
    /// If a column has no type on the wire, or another one than announced.
    pub(crate) fn batches(plan: &Plan, rows: Rows, formats: Formats) -> Result<Self, QueryError> {
        let mut kinds = Vec::with_capacity(plan.schema.fields().len());
        for (announced, field) in plan.schema.fields().iter().zip(rows.schema.fields()) {
            let is_whole = |kind: &DataType| kind.is_integer() || kind.is_decimal();
            if is_whole(announced.data_type()) && field.data_type().is_floating()
                || announced.data_type().is_integer() && field.data_type().is_decimal()
            {
                let text = format!("with these parameters column {:?} is no longer a whole number", field.name());
                return Err(QueryError::new(sqlstate::DATATYPE_MISMATCH, text)
                    .with_hint("Cast the parameter, as in $1::float8."));
            }
            // A bare parameter has the type that it was announced with, which is text.
            let is_text = announced.data_type().is_null();
            kinds.push((encode::wire_type(announced)?, is_text));
        }
        let source = Source::Batches { rows, batch: None, next: 0, ended: false, widest: 0 };
        Ok(Running::of(source, kinds, formats))
    }

    fn of(source: Source, kinds: Vec<(Type, bool)>, formats: Formats) -> Self {
        Running { source, kinds, formats, copy: None, left: None, sent: 0, cells: BytesMut::new() }
    }

    /// Switches to copy data.
    pub(crate) fn into_copy(self, form: CopyForm) -> Self {
        Running { copy: Some(form), ..self }
    }

    /// Starts a portion of at most `most` rows (0 for all).
    pub(crate) fn portion(&mut self, most: usize) {
        self.left = (most > 0).then_some(most);
        self.sent = 0;
    }

    /// Reports whether the next rows must be waited for.
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
        if let Source::Batches { rows, batch, next, ended, widest } = &mut self.source {
            *batch = rows.next().await.transpose()?;
            *next = 0;
            *widest = batch.as_ref().map_or(0, |batch| Size::of_batch(batch).widest);
            *ended = batch.is_none();
        }
        Ok(())
    }

    /// Appends rows until the output is full, a thousand are made, or the portion ends. Wide rows count in `room` until
    /// they are sent.
    pub(crate) fn put_rows(
        &mut self,
        out: &mut BytesMut,
        full: usize,
        room: &mut Share,
    ) -> Result<Option<Progress>, QueryError> {
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
                            if found == Some(1) {
                                put_copy_row(out, form, &self.cells);
                            }
                            found
                        }
                    }
                }
                Source::Batches { batch, next, ended, widest, .. } => {
                    let Some(batch) = batch.as_ref().filter(|batch| *next < batch.num_rows()) else {
                        return Ok(ended.then_some(Progress::Complete));
                    };
                    let (kinds, formats) = (&self.kinds, &self.formats);
                    let write = |out: &mut BytesMut, text: bool| {
                        for (at, array) in batch.columns().iter().enumerate() {
                            let (kind, is_text) = &kinds[at];
                            let binary = !text && !is_text && formats.binary(at);
                            encode::put_arrow(out, array, *next, batch.schema_ref().field(at), kind, binary)?;
                        }
                        Ok(())
                    };
                    let (copy, cells) = (&self.copy, &mut self.cells);
                    let mut put = |out: &mut BytesMut| match copy {
                        None => put_row(out, kinds.len(), |out| write(out, false)),
                        Some(form) => {
                            cells.clear();
                            write(cells, true)?;
                            put_copy_row(out, form, cells);
                            Ok(())
                        }
                    };
                    if *widest > WIDE_BYTES {
                        // Earlier output was sent.
                        hold(room, *widest)?;
                        apart(|| put(out))?;
                        self.cells = BytesMut::new();
                        hold(room, out.capacity())?;
                    } else {
                        put(out)?;
                    }
                    *next += 1;
                    Some(1)
                }
            };
            let Some(rows) = rows else { return Ok(Some(Progress::Complete)) };
            if rows == 0 {
                return Ok(None);
            }
            made += rows;
            self.sent += rows as u64;
            if let Some(left) = &mut self.left {
                *left -= rows;
            }
        }
        Ok(None)
    }

    /// Appends the messages after the rows of a portion.
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

    /// Appends the header line with the column names, if the copy requests one.
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

fn hold(room: &mut Share, bytes: usize) -> Result<(), QueryError> {
    if room.try_resize(bytes) {
        return Ok(());
    }
    Err(QueryError::new(sqlstate::OUT_OF_MEMORY, "no room for a wide row beside answers that are not read yet")
        .with_hint("Ask for fewer of the wide columns, or read answers sooner."))
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
