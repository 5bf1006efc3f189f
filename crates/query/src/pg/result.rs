//! Encodes the rows of a running statement for the wire, as data rows or as copy data.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use pgwire::api::Type;

use super::copy_data::CopyData;
use crate::error::{QueryError, sqlstate};
use crate::plan::direct::DirectRows;
use crate::query::{Plan, Rows};
use crate::running::memory::Share;
use crate::running::runtime::apart;
use crate::running::size::Size;
use crate::table::merge::Run;
use crate::wire::batch;
use crate::wire::encode;
use crate::wire::message;
use crate::wire::message::{Formats, RowForm, put_row};
use crate::wire::template::RowTemplate;

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
    form: RowForm,
    copy: Option<CopyData>,
    /// Rows left of this portion; `None` for no limit.
    left: Option<usize>,
    /// Rows sent or passed in this portion.
    sent: u64,
    /// Whether rows are passed and not sent.
    passing: bool,
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
        /// Template of the batch, if its rows are not wide and all cells have fixed lengths.
        template: Option<RowTemplate>,
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
        for (at, (announced, field)) in plan.schema.fields().iter().zip(rows.types.fields()).enumerate() {
            let is_whole = |kind: &DataType| kind.is_integer() || kind.is_decimal();
            if is_whole(announced.data_type()) && field.data_type().is_floating()
                || announced.data_type().is_integer() && field.data_type().is_decimal()
            {
                let text = format!("with these parameters column {:?} is no longer a whole number", announced.name());
                return Err(QueryError::new(sqlstate::DATATYPE_MISMATCH, text)
                    .with_hint("Cast the parameter, as in $1::float8."));
            }
            // A client would take the bytes of one type for another. A bare parameter has the type that it was announced
            // with, which is text.
            let is_text = announced.data_type().is_null();
            let (wanted, made) = (encode::wire_type(announced)?, encode::wire_type(field)?);
            let is_fixed = encode::type_len(&wanted) != -1;
            if formats.binary(at) && is_fixed && encode::type_len(&made) == -1 && !is_text {
                let text = format!(
                    "with these parameters column {:?} is {}, and was announced as {}",
                    announced.name(),
                    made.name(),
                    wanted.name()
                );
                return Err(
                    QueryError::new(sqlstate::DATATYPE_MISMATCH, text).with_hint("Cast the parameter, as in $1::int8.")
                );
            }
            kinds.push((wanted, is_text));
        }
        let source = Source::Batches { rows, batch: None, next: 0, ended: false, template: None, widest: 0 };
        Ok(Running::of(source, kinds, formats))
    }

    fn of(source: Source, kinds: Vec<(Type, bool)>, formats: Formats) -> Self {
        let form = RowForm::data(formats);
        Running { source, kinds, form, copy: None, left: None, sent: 0, passing: false, cells: BytesMut::new() }
    }

    /// Switches to copy data.
    pub(crate) fn into_copy(self, copy: CopyData) -> Self {
        Running { form: copy.row_form(), copy: Some(copy), ..self }
    }

    /// Starts a portion of at most `most` rows (0 for all).
    pub(crate) fn portion(&mut self, most: usize) {
        self.left = (most > 0).then_some(most);
        self.sent = 0;
    }

    /// Changes the form of the next rows.
    pub(crate) fn set_form(&mut self, form: RowForm) {
        self.form = form;
    }

    /// Sets whether the next rows are passed and not sent.
    pub(crate) fn set_passing(&mut self, passing: bool) {
        self.passing = passing;
    }

    /// Returns the number of rows sent or passed in this portion.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
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
        if let Source::Batches { rows, batch, next, ended, template, widest } = &mut self.source {
            *batch = rows.next().await.transpose()?;
            *next = 0;
            *widest = batch.as_ref().map_or(0, |batch| Size::of_batch(batch).widest);
            *template = None;
            if let Some(batch) = batch.as_ref().filter(|_| *widest <= WIDE_BYTES) {
                *template = batch::template(batch, &self.kinds, &self.form);
            }
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
            let start = out.len();
            let rows = if self.passing { self.pass_some(most)? } else { self.put_some(out, (most, full), room)? };
            let Some(rows) = rows else { return Ok(Some(Progress::Complete)) };
            if rows == 0 {
                return Ok(None);
            }
            if let Some(copy) = &mut self.copy {
                copy.begin(out, start);
            }
            made += rows;
            self.sent += rows as u64;
            if let Some(left) = &mut self.left {
                *left -= rows;
            }
        }
        Ok(None)
    }

    /// Passes rows, at most `most`. Returns their number like [`Running::put_some`].
    fn pass_some(&mut self, most: usize) -> Result<Option<usize>, QueryError> {
        match &mut self.source {
            Source::Direct { rows, .. } => rows.pass(&self.form, most),
            Source::Batches { batch, next, ended, .. } => {
                let rows = batch.as_ref().map_or(0, |batch| batch.num_rows() - *next).min(most);
                *next += rows;
                Ok(if rows == 0 && *ended { None } else { Some(rows) })
            }
        }
    }

    /// Appends one row, or several if they are short: at most `most`, and few enough to stay near `full` bytes of output.
    /// Returns their number, 0 if they must be waited for, or `None` at the end.
    fn put_some(
        &mut self,
        out: &mut BytesMut,
        (most, full): (usize, usize),
        room: &mut Share,
    ) -> Result<Option<usize>, QueryError> {
        let Running { source, kinds, form, copy, cells, .. } = self;
        let lines = copy.as_ref().filter(|copy| !copy.is_binary());
        match source {
            Source::Direct { plan, rows } => {
                let Some(direct) = &plan.direct else { return Ok(None) };
                let Some(copy) = lines else { return direct.put_rows(out, rows, form, (most, full)) };
                cells.clear();
                let found = direct.put_cells(cells, rows)?;
                if found == Some(1) {
                    copy.put_line(out, cells);
                }
                Ok(found)
            }
            Source::Batches { batch, next, ended, template, widest, .. } => {
                let Some(batch) = batch.as_ref().filter(|batch| *next < batch.num_rows()) else {
                    return Ok(if *ended { None } else { Some(0) });
                };
                if let Some(template) = template.as_ref().filter(|template| template.form == *form && lines.is_none()) {
                    let fit = full.saturating_sub(out.len()) / template.row_bytes();
                    let rows = most.min(batch.num_rows() - *next).min(fit.max(1));
                    let run = Run { rows: *next..*next + rows, descending: false };
                    batch::put(template, out, batch, &run);
                    *next += rows;
                    return Ok(Some(rows));
                }
                let write = |out: &mut BytesMut, text: bool| {
                    for (at, array) in batch.columns().iter().enumerate() {
                        let (kind, is_text) = &kinds[at];
                        let binary = !text && !is_text && form.formats.binary(at);
                        encode::put_arrow(out, array, *next, batch.schema_ref().field(at), kind, binary)?;
                    }
                    Ok(())
                };
                let mut put = |out: &mut BytesMut| match lines {
                    None => put_row(out, form.tag, kinds.len(), |out| write(out, false)),
                    Some(copy) => {
                        cells.clear();
                        write(cells, true)?;
                        copy.put_line(out, cells);
                        Ok(())
                    }
                };
                if *widest > WIDE_BYTES {
                    // Earlier output was sent.
                    hold(room, *widest)?;
                    apart(|| put(out))?;
                    *cells = BytesMut::new();
                    hold(room, out.capacity())?;
                } else {
                    put(out)?;
                }
                *next += 1;
                Ok(Some(1))
            }
        }
    }

    /// Appends the messages after the rows of a portion.
    pub(crate) fn put_end(&self, out: &mut BytesMut, progress: Progress) {
        match (progress, &self.copy) {
            (Progress::Suspended, _) => message::put(out, b's', |_| {}),
            (Progress::Complete, None) => message::put_complete(out, &format!("SELECT {}", self.sent)),
            (Progress::Complete, Some(copy)) => {
                copy.put_end(out);
                message::put_complete(out, &format!("COPY {}", self.sent));
            }
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
