//! Rows as copy data in text, CSV or binary, one row in each message.

use bytes::{BufMut, BytesMut};

use crate::error::QueryError;
use crate::sql::copy::{CopyForm, CopyFormat};
use crate::wire::message;
use crate::wire::message::{COPY_DATA, Formats, ResultColumn, RowForm};

/// Start of binary copy data: its signature, no flags, and no header extension.
const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// End of binary copy data, in the place of a row's number of columns.
const BINARY_END: [u8; 2] = (-1i16).to_be_bytes();

/// Copy data of a running statement.
pub(crate) struct CopyData {
    form: CopyForm,
    /// Columns that are always quoted.
    quoted: Vec<bool>,
    /// Whether the header of binary data has been sent.
    begun: bool,
}

impl CopyData {
    /// Creates the copy data of a result.
    ///
    /// # Errors
    /// If an option names a column that is not in the result.
    pub(crate) fn new(form: CopyForm, columns: &[ResultColumn]) -> Result<CopyData, QueryError> {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        Ok(CopyData { quoted: form.quoted(&names)?, form, begun: false })
    }

    /// Reports whether the rows are binary, like data rows, and not lines.
    pub(crate) fn is_binary(&self) -> bool {
        self.form.format == CopyFormat::Binary
    }

    /// Returns the form of the messages of rows.
    pub(crate) fn row_form(&self) -> RowForm {
        RowForm { tag: COPY_DATA, formats: Formats(vec![self.is_binary()]) }
    }

    /// Appends the response to the statement, and the line of column names if it is requested.
    pub(super) fn put_response(&self, out: &mut BytesMut, columns: &[ResultColumn]) {
        message::put(out, b'H', |out| {
            out.put_u8(self.is_binary().into());
            out.put_i16(columns.len() as i16);
            columns.iter().for_each(|_| out.put_i16(self.is_binary().into()));
        });
        if self.form.header {
            let cells = columns.iter().map(|column| (Some(column.name.as_bytes()), false));
            self.put_cells(out, columns.len(), cells);
        }
    }

    /// Adds the header of binary data to the message at `start`, if it is the first. PostgreSQL sends it with the first
    /// row, and clients that read row by row rely on that.
    pub(crate) fn begin(&mut self, out: &mut BytesMut, start: usize) {
        if self.is_binary() && !std::mem::replace(&mut self.begun, true) {
            let rows = out.split_off(start);
            let Some((message, rest)) = message::Body(&rows).message() else { return };
            message::put(out, COPY_DATA, |out| {
                out.put_slice(BINARY_HEADER);
                out.put_slice(message);
            });
            out.put_slice(rest);
        }
    }

    /// Appends the end of the data.
    pub(crate) fn put_end(&self, out: &mut BytesMut) {
        if self.is_binary() {
            message::put(out, COPY_DATA, |out| {
                if !self.begun {
                    out.put_slice(BINARY_HEADER);
                }
                out.put_slice(&BINARY_END);
            });
        }
        message::put(out, b'c', |_| {});
    }

    /// Appends a line from cells in the text form of data rows.
    pub(crate) fn put_line(&self, out: &mut BytesMut, cells: &[u8]) {
        let mut cells = message::Body(cells);
        let quoted = self.quoted.iter();
        self.put_cells(out, self.quoted.len(), quoted.map_while(|quoted| Some((cells.sized().ok()?, *quoted))));
    }

    /// Appends a line of cells, each with whether it is quoted in any case.
    fn put_cells<'a>(&self, out: &mut BytesMut, count: usize, cells: impl Iterator<Item = (Option<&'a [u8]>, bool)>) {
        message::put(out, COPY_DATA, |out| {
            for (at, (cell, quoted)) in cells.enumerate() {
                if at > 0 {
                    out.put_u8(self.form.delimiter);
                }
                match cell {
                    None => out.put_slice(self.form.null.as_bytes()),
                    Some(cell) if self.form.format == CopyFormat::Csv => self.put_csv(out, cell, quoted, count == 1),
                    Some(cell) => self.put_text(out, cell),
                }
            }
            out.put_u8(b'\n');
        });
    }

    fn put_text(&self, out: &mut BytesMut, cell: &[u8]) {
        for byte in cell {
            let letter = match byte {
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                11 => b'v',
                12 => b'f',
                b'\r' => b'r',
                b'\\' => b'\\',
                other if *other == self.form.delimiter => *other,
                other => {
                    out.put_u8(*other);
                    continue;
                }
            };
            out.put_slice(&[b'\\', letter]);
        }
    }

    fn put_csv(&self, out: &mut BytesMut, cell: &[u8], quoted: bool, is_only: bool) {
        let CopyForm { delimiter, quote, escape, null, .. } = &self.form;
        let is_special = |byte: &u8| matches!(byte, b'\n' | b'\r') || byte == delimiter || byte == quote;
        // A line of only `\.` would be the end of the data.
        let is_end = is_only && cell == b"\\.";
        if !quoted && cell != null.as_bytes() && !is_end && !cell.iter().any(is_special) {
            return out.put_slice(cell);
        }
        out.put_u8(*quote);
        for byte in cell {
            if byte == quote || byte == escape {
                out.put_u8(*escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(*quote);
    }
}
