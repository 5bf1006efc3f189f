//! Exports to text: CSV and JSON lines.

use std::ops::Range;

use strongback_store::text::{FrameColumns, FrameText, GapText, TextForm, put_field, put_json_text};
use strongback_store::{Batch, ChannelType};

use super::quality::Qualities;
use super::{CHUNK_BYTES, RUN_ROWS_MAX, RowWriter};
use crate::error::QueryError;
use crate::system::GapRow;

/// Columns up to which the lines of a run stay near the size of a chunk.
const NARROW_COLUMNS_MAX: usize = 32;

/// Writer of rows as text.
pub(super) struct TextRows {
    text: FrameText,
    qualities: Qualities,
    /// Whether all lines are short.
    is_narrow: bool,
    out: String,
}

impl TextRows {
    pub(super) fn new(form: TextForm, columns: &FrameColumns, qualities: Qualities) -> Self {
        let text = FrameText { form, columns: columns.clone() };
        let mut out = String::new();
        text.header(&mut out);
        let is_narrow = columns.all.len() <= NARROW_COLUMNS_MAX
            && columns.all.iter().all(|column| !has_any_length(column.channel().channel_type));
        let mut rows = TextRows { text, qualities, is_narrow, out };
        if rows.has_quality_columns() {
            rows.out.pop();
            for channel in rows.qualities.channels() {
                rows.out.push(',');
                put_field(&mut rows.out, &format!("{channel}_quality"));
            }
            rows.out.push('\n');
        }
        rows
    }

    fn has_quality_columns(&self) -> bool {
        self.qualities.len() > 0 && matches!(self.text.form, TextForm::Csv(_))
    }

    /// Adds the qualities of a frame to its line, which was written last.
    fn put_qualities(&mut self, stream: usize, batch: &Batch, row: usize) {
        let qualities = self.qualities.of_row(stream, batch, row);
        if let TextForm::Csv(_) = self.text.form {
            self.out.pop();
            for quality in qualities {
                self.out.push(',');
                self.out.push_str(quality.unwrap_or_default());
            }
            self.out.push('\n');
            return;
        }
        let mut separator = ",\"quality\":{";
        for (channel, quality) in self.qualities.channels().zip(qualities) {
            let Some(quality) = quality else { continue };
            if separator.len() > 1 {
                // The line ends with a bracket and the end of line.
                self.out.truncate(self.out.len() - 2);
            }
            self.out.push_str(separator);
            separator = ",";
            put_json_text(&mut self.out, channel);
            self.out.push(':');
            put_json_text(&mut self.out, quality);
        }
        if separator.len() == 1 {
            self.out.push_str("}}\n");
        }
    }
}

fn has_any_length(channel_type: ChannelType) -> bool {
    matches!(channel_type, ChannelType::String | ChannelType::Array(_))
}

impl RowWriter for TextRows {
    fn frames(&mut self, stream: usize, batch: &Batch, rows: Range<usize>) -> Result<(), QueryError> {
        if self.qualities.len() == 0 {
            self.text.frames(&mut self.out, stream, batch, rows);
            return Ok(());
        }
        for row in rows {
            self.text.frames(&mut self.out, stream, batch, row..row + 1);
            self.put_qualities(stream, batch, row);
        }
        Ok(())
    }

    fn gap(&mut self, gap: &GapRow) -> Result<(), QueryError> {
        let time = (gap.from_time_ns, gap.to_time_ns);
        let (stream, cause, words) = (&gap.stream_name, &gap.cause, &gap_words(gap));
        self.text.gap(&mut self.out, &GapText { stream, time, count: gap.open, cause, words });
        if self.has_quality_columns() {
            self.out.pop();
            self.out.extend(std::iter::repeat_n(',', self.qualities.len()));
            self.out.push('\n');
        }
        Ok(())
    }

    fn rows_max(&self) -> usize {
        // Lines of wide rows and long texts are long.
        if self.is_narrow { RUN_ROWS_MAX } else { 1 }
    }

    fn take(&mut self) -> Vec<u8> {
        if self.out.len() < CHUNK_BYTES {
            return Vec::new();
        }
        let next = String::with_capacity(self.out.len());
        std::mem::replace(&mut self.out, next).into_bytes()
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
