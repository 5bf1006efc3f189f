//! Exports to text: CSV and JSON lines.

use strongback_store::text::{FrameColumns, FrameText, GapText, TextForm};

use super::{CHUNK_BYTES, ExportRow, RowWriter};
use crate::error::QueryError;
use crate::system::GapRow;

/// Writer of rows as text.
pub(super) struct TextRows {
    text: FrameText,
    out: String,
}

impl TextRows {
    pub(super) fn new(form: TextForm, columns: &FrameColumns) -> Self {
        let text = FrameText { form, columns: columns.clone() };
        let mut out = String::new();
        text.header(&mut out);
        TextRows { text, out }
    }
}

impl RowWriter for TextRows {
    fn row(&mut self, _: &FrameColumns, row: ExportRow<'_>) -> Result<(), QueryError> {
        match row {
            ExportRow::Frame { stream, batch, row } => self.text.frame(&mut self.out, stream, batch, row),
            ExportRow::Gap(gap) => {
                let time = (gap.from_time_ns, gap.to_time_ns);
                let (stream, cause, words) = (&gap.stream_name, &gap.cause, &gap_words(gap));
                self.text.gap(&mut self.out, &GapText { stream, time, count: gap.open, cause, words });
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.out.len() >= CHUNK_BYTES
    }

    fn take(&mut self) -> Vec<u8> {
        match self.is_full() {
            true => std::mem::take(&mut self.out).into_bytes(),
            false => Vec::new(),
        }
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, QueryError> {
        Ok(self.out.into_bytes())
    }
}

fn gap_words(gap: &GapRow) -> String {
    match gap.words.as_str() {
        "" => format!("{} frames missing", gap.open),
        words => words.to_owned(),
    }
}
