//! `marks`: the spans of time in which values of channels are marked, each with the mark that counts there.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;

use crate::error::QueryError;
use crate::system::tables::{int8, micros, text};
use crate::system::{MarkedSpan, SystemRows};
use crate::table::column::timestamp_type;
use crate::telemetry::arguments::{Arguments, ChosenChannel};
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Reads the arguments of `marks`.
pub(crate) fn marks(arguments: &Arguments<'_>, system: &Arc<dyn SystemRows>) -> Call {
    let schema = schema([
        ("channel", DataType::Utf8),
        ("from_time", timestamp_type()),
        ("from_time_ns", DataType::Int64),
        ("to_time", timestamp_type()),
        ("to_time_ns", DataType::Int64),
        ("quality", DataType::Utf8),
        ("by", DataType::Utf8),
        ("reason", DataType::Utf8),
        ("id", DataType::Int64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, span) = (Arc::new(arguments.channels(0, false)?), arguments.span(1)?);
        let system = system.clone();
        Ok(Box::new(move |opening| {
            let (channels, span, system) = (channels.clone(), span.clone(), system.clone());
            Ok(Box::new(MarksReader { opening, system, channels, span, next: 0, spans: Vec::new() }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

struct MarksReader {
    opening: Opening,
    system: Arc<dyn SystemRows>,
    channels: Arc<Vec<ChosenChannel>>,
    span: Range<i64>,
    /// Next channel to be read.
    next: usize,
    /// Spans of the channel before it that are not returned yet, the last first.
    spans: Vec<MarkedSpan>,
}

impl Reader for MarksReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let mut rows: Vec<(usize, MarkedSpan)> = Vec::new();
        while rows.len() < self.opening.batch_rows {
            if let Some(span) = self.spans.pop() {
                rows.push((self.next - 1, span));
                continue;
            }
            let Some(channel) = self.channels.get(self.next) else { break };
            self.spans = self.system.marked_spans(&channel.stream, channel.index, &self.span);
            self.spans.reverse();
            self.next += 1;
        }
        if rows.is_empty() {
            return Ok(Step::End);
        }
        Ok(Step::Rows(vec![
            text(rows.iter().map(|(channel, _)| self.channels[*channel].name.as_str())),
            micros(rows.iter().map(|(_, span)| Some(span.from_ns))),
            int8(rows.iter().map(|(_, span)| Some(span.from_ns))),
            micros(rows.iter().map(|(_, span)| Some(span.to_ns))),
            int8(rows.iter().map(|(_, span)| Some(span.to_ns))),
            text(rows.iter().map(|(_, span)| span.mark.quality.name())),
            text(rows.iter().map(|(_, span)| span.mark.by.as_str())),
            text(rows.iter().map(|(_, span)| span.mark.reason.as_str())),
            int8(rows.iter().map(|(_, span)| i64::try_from(span.mark.id).ok())),
        ]))
    }
}
