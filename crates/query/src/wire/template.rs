//! Messages of rows in which all cells have fixed lengths, many at a time: the message of a row is laid out once and
//! repeated, and each column is then written into the copies.

use bytes::{BufMut, BytesMut};

use super::message::RowForm;
use crate::table::merge::Run;

/// Message of a row in which all cells have fixed lengths, with the cells that differ between rows.
#[derive(Debug)]
pub(crate) struct RowTemplate {
    /// Form for which it was made.
    pub(crate) form: RowForm,
    message: Vec<u8>,
    /// Columns that differ, with the offsets of their values in the message.
    varying: Vec<(usize, usize)>,
}

/// Properties of a column's cells that are known before they are read.
pub(crate) enum Cells<'a> {
    Same(Option<&'a [u8]>),
    OfBytes(usize),
    Unknown,
}

impl RowTemplate {
    /// Creates a template from the cells of each column, given its number and whether it is binary. Returns `None` if the
    /// length of any cell is unknown.
    pub(crate) fn of_cells<'a>(
        form: &RowForm,
        columns: usize,
        cells: impl Fn(usize, bool) -> Cells<'a>,
    ) -> Option<RowTemplate> {
        let mut message = vec![form.tag, 0, 0, 0, 0];
        let mut varying = Vec::new();
        message.put_i16(columns as i16);
        for column in 0..columns {
            match cells(column, form.formats.binary(column)) {
                Cells::Same(None) => message.put_i32(-1),
                Cells::Same(Some(bytes)) => {
                    message.put_i32(bytes.len() as i32);
                    message.put_slice(bytes);
                }
                Cells::OfBytes(size) => {
                    message.put_i32(size as i32);
                    varying.push((column, message.len()));
                    message.put_bytes(0, size);
                }
                Cells::Unknown => return None,
            }
        }
        let size = (message.len() - 1) as u32;
        message[1..5].copy_from_slice(&size.to_be_bytes());
        Some(RowTemplate { form: form.clone(), message, varying })
    }

    /// Returns the size of a row's message in bytes.
    pub(crate) fn row_bytes(&self) -> usize {
        self.message.len()
    }

    /// Appends rows, where `put_column` writes the cells of a column that differ.
    pub(crate) fn put_columns(
        &self,
        out: &mut BytesMut,
        run: &Run,
        mut put_column: impl FnMut(usize, ColumnPlaces<'_>),
    ) {
        let start = out.len();
        out.reserve(run.rows.len() * self.message.len());
        for _ in run.rows.clone() {
            out.put_slice(&self.message);
        }
        for (column, at) in &self.varying {
            put_column(*column, ColumnPlaces { out: &mut out[start..], row_bytes: self.message.len(), at: *at, run });
        }
    }
}

/// Destinations of one column's values.
pub(crate) struct ColumnPlaces<'a> {
    out: &'a mut [u8],
    row_bytes: usize,
    at: usize,
    run: &'a Run,
}

impl ColumnPlaces<'_> {
    /// Writes the value of each row.
    pub(crate) fn put<const N: usize>(self, bytes: impl Fn(usize) -> [u8; N]) {
        let rows = self.out.chunks_exact_mut(self.row_bytes);
        let cells = rows.filter_map(|row| row.get_mut(self.at..self.at + N));
        let numbers = self.run.rows.clone();
        match self.run.descending {
            false => cells.zip(numbers).for_each(|(cell, row)| cell.copy_from_slice(&bytes(row))),
            true => cells.zip(numbers.rev()).for_each(|(cell, row)| cell.copy_from_slice(&bytes(row))),
        }
    }
}
