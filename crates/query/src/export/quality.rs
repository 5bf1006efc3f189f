//! Qualities of the values of an export, as a column beside each marked channel.

use std::ops::Range;

use strongback_store::text::FrameColumns;
use strongback_store::{Batch, CellState};

use crate::system::{MarkedSpan, SystemRows};

/// Columns of qualities: one for each channel that has marks in the time of the export.
#[derive(Debug, Default)]
pub(super) struct Qualities(Vec<QualityColumn>);

#[derive(Debug)]
struct QualityColumn {
    /// Index of the stream, and of the channel's column in its batches.
    stream: usize,
    column: usize,
    /// Name of the channel.
    channel: String,
    /// Marked spans, ascending.
    spans: Vec<MarkedSpan>,
}

impl Qualities {
    /// Finds the marks of the channels of an export.
    pub(super) fn of(columns: &FrameColumns, system: &dyn SystemRows, time: &Range<i64>) -> Qualities {
        let mut found = Vec::new();
        for (stream, of) in columns.streams.iter().enumerate() {
            for (column, index) in of.channels.iter().enumerate() {
                let spans = system.marked_spans(&of.stream, *index, time);
                if !spans.is_empty() {
                    let channel = columns.all[of.first + column].name.clone();
                    found.push(QualityColumn { stream, column, channel, spans });
                }
            }
        }
        Qualities(found)
    }

    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the names of the marked channels.
    pub(super) fn channels(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|column| column.channel.as_str())
    }

    /// Returns the quality in each column of a row of a batch of stream number `stream`: that of the channel's value,
    /// if there is one and it is marked.
    pub(super) fn of_row<'a>(
        &'a self,
        stream: usize,
        batch: &'a Batch,
        row: usize,
    ) -> impl Iterator<Item = Option<&'static str>> + 'a {
        let time = batch.time(row);
        self.0.iter().map(move |column| {
            let cell = batch.columns.get(column.column).filter(|_| column.stream == stream)?.cell(row);
            if !matches!(cell, Ok(_) | Err(CellState::Unknown)) {
                return None;
            }
            let at = column.spans.partition_point(|span| span.to_ns <= time);
            column.spans.get(at).filter(|span| span.from_ns <= time).map(|span| span.mark.quality.name())
        })
    }
}
