//! `summary`: extremes, means and the integral of channels over time.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array};
use datafusion::arrow::datatypes::DataType;
use strongback_store::{Bucket, Computed, Pieces, WeighedPieces, Weight};

use crate::error::{QueryError, sqlstate};
use crate::system::tables::{int8, micros, text};
use crate::table::column::timestamp_type;
use crate::telemetry::arguments::{Arguments, ChosenChannel};
use crate::telemetry::grid::{integral, pieces_at_a_time};
use crate::telemetry::number::{Instants, number_of};
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Maximum pieces of all channels.
const PIECES_MAX: u64 = 100_000_000;
/// Pieces of a batch, few so that a statement can be stopped between them.
const PIECES_AT_A_TIME: usize = 256;

/// Reads the arguments of `summary`.
pub(crate) fn summary(arguments: &Arguments<'_>) -> Call {
    let number = DataType::Float64;
    let schema = schema([
        ("channel", DataType::Utf8),
        ("time", timestamp_type()),
        ("time_ns", DataType::Int64),
        ("count", DataType::Int64),
        ("min", number.clone()),
        ("min_time_ns", DataType::Int64),
        ("max", number.clone()),
        ("max_time_ns", DataType::Int64),
        ("mean", number.clone()),
        ("time_mean", number.clone()),
        ("integral", number.clone()),
        ("known_ns", DataType::Int64),
        ("first", number.clone()),
        ("last", number),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, span) = (Arc::new(arguments.channels(0, true)?), arguments.span(1)?);
        let whole = span.end.abs_diff(span.start);
        let step_ns = if arguments.has(3) { arguments.step_ns(3)? } else { whole.max(1) };
        let (instants, tolerance_ns) = (Instants { span, step_ns }, arguments.lasting_ns(4)?);
        let pieces = instants.count();
        if pieces.saturating_mul(channels.len() as u64) > PIECES_MAX {
            let message = format!("{pieces} pieces of {} channels, at most {PIECES_MAX} together", channels.len());
            let error = QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(error.with_hint("Choose a longer step."));
        }
        Ok(Box::new(move |opening| {
            let (channels, instants) = (channels.clone(), instants.clone());
            Ok(Box::new(SummaryReader { opening, channels, instants, tolerance_ns, channel: 0, next: 0 }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

struct SummaryReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    /// Starts of the pieces of each channel.
    instants: Instants,
    /// How long a value lasts after its sample.
    tolerance_ns: u64,
    /// Channel being read, and its next piece.
    channel: usize,
    next: u64,
}

impl Reader for SummaryReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        let Some(channel) = self.channels.get(self.channel) else { return Ok(Step::End) };
        let total = self.instants.count();
        if self.next >= total {
            (self.channel, self.next) = (self.channel + 1, 0);
            return Ok(Step::More);
        }
        let count = (total - self.next).min(self.opening.batch_rows.min(PIECES_AT_A_TIME) as u64);
        let piece = |at: u64| self.instants.piece(self.instants.at(at));
        let pieces: Vec<Range<i64>> = (self.next..self.next + count).map(piece).collect();
        let (id, index) = (channel.stream.id, channel.index);
        let mut weights: Vec<Weight> = Vec::with_capacity(pieces.len());
        while weights.len() < pieces.len() {
            self.opening.check()?;
            let (done, left) = (weights.len() as u64, (pieces.len() - weights.len()) as u64);
            let next = (&self.instants, self.next + done, left);
            let at_a_time = pieces_at_a_time(&self.opening.view, &[channel], 1, next) as usize;
            let some = &pieces[weights.len()..weights.len() + at_a_time];
            let (Some(first), Some(last)) = (some.first(), some.last()) else { break };
            let (time, width_ns) = (first.start..last.end, self.instants.step_ns);
            let some = WeighedPieces { time, width_ns, tolerance_ns: self.tolerance_ns };
            weights.extend(self.opening.view.weigh_pieces(id, index, some)?);
        }
        let time = self.instants.at(self.next)..self.instants.at(self.next + count).min(self.instants.span.end);
        let grid = Pieces { time, width_ns: self.instants.step_ns, plain_max: 0, computed: Computed::ALL };
        let mut buckets = self.opening.view.reduce_to(id, index, &grid)?.buckets.into_iter().peekable();
        let buckets: Vec<Option<Bucket>> =
            pieces.iter().map(|piece| buckets.next_if(|bucket| bucket.time == piece.start)).collect();
        let of_weight = |of: &dyn Fn(&Weight) -> Option<f64>| -> ArrayRef {
            Arc::new(Float64Array::from_iter(weights.iter().map(|weight| number_of(of(weight)))))
        };
        let of_bucket = |of: &dyn Fn(&Bucket) -> Option<f64>| -> ArrayRef {
            Arc::new(Float64Array::from_iter(buckets.iter().map(|b| number_of(b.as_ref().and_then(of)))))
        };
        let columns = vec![
            text(pieces.iter().map(|_| &channel.name)),
            micros(pieces.iter().map(|piece| Some(piece.start))),
            int8(pieces.iter().map(|piece| Some(piece.start))),
            int8(weights.iter().map(|weight| Some(weight.count as i64))),
            of_weight(&|weight| weight.min.and_then(|min| min.value.as_f64())),
            int8(weights.iter().map(|weight| weight.min.map(|min| min.time))),
            of_weight(&|weight| weight.max.and_then(|max| max.value.as_f64())),
            int8(weights.iter().map(|weight| weight.max.map(|max| max.time))),
            of_bucket(&|bucket| bucket.mean),
            of_weight(&Weight::time_mean),
            of_weight(&integral),
            int8(weights.iter().map(|weight| i64::try_from(weight.integral.known_ns).ok())),
            of_bucket(&|bucket| bucket.first.as_value().as_f64()),
            of_bucket(&|bucket| bucket.last.as_value().as_f64()),
        ];
        self.next += count;
        Ok(Step::Rows(columns))
    }
}
