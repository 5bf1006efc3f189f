//! The history a subscription is still to be sent. It is read part by part, each once the previous one was taken, so a
//! client that asks for much and reads nothing holds one part.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{StreamId, View};

use crate::live::binary;
use crate::live::history::{self, Beside, POINTS_MAX};
use crate::live::outgoing::{Form, Outgoing};
use crate::live::snapshot::HistoryMessage;
use crate::live::subscription::{Match, Subscription};
use crate::process::readers::Leave;
use crate::server::Server;

/// Approximate bytes of a bucket in a message.
const BUCKET_BYTES: usize = 96;
/// Approximate max bytes of a message; further streams and channels go into another one.
const MESSAGE_BYTES: usize = 4 << 20;
/// Bytes reserved for a part: its buckets while they are read, and its message.
pub(crate) const PART_BYTES: usize = 3 * MESSAGE_BYTES;

/// The history still to be read for a subscription.
pub struct Backlog {
    /// The subscription.
    pub(crate) subscription: Arc<Subscription>,
    form: Form,
    /// All streams of it, released at the end.
    pub(crate) found: Arc<[Match]>,
    /// Channels still to be read, by index into `found`.
    rest: VecDeque<(usize, Range<usize>)>,
    grid: Range<i64>,
    points: usize,
    /// Limits of rows and time shared by all its parts.
    beside: Arc<Beside>,
}

impl Backlog {
    /// Makes the history of the streams found, reduced to `points` buckets a channel over `grid`.
    pub(crate) fn new(
        subscription: Arc<Subscription>,
        form: Form,
        found: Arc<[Match]>,
        grid: Range<i64>,
        points: usize,
    ) -> Backlog {
        let rest = found.iter().enumerate().map(|(at, found)| (at, 0..found.channels.len())).collect();
        let points = points.min(POINTS_MAX);
        Backlog { subscription, form, found, rest, grid, points, beside: Arc::default() }
    }

    /// Returns whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next part as one message. The first one is sent even if nothing was found, because clients wait for
    /// it.
    pub(crate) fn read(&mut self, server: &Server, view: &View, leave: &Leave) -> Outgoing {
        let part = self.next(view);
        let gaps = |stream: StreamId, time: &Range<i64>| server.ledger.open_spans(stream, time);
        let id = self.subscription.id;
        let part: Vec<&Match> = part.iter().collect();
        let extent = (self.grid.clone(), self.points);
        match (HistoryMessage::read(view, id, &part, extent, &gaps, (leave, &self.beside)), self.form) {
            (Ok(history), Form::Json) => Outgoing::json(history.json()),
            (Ok(history), Form::Binary) => Outgoing::Binary(binary::history(&history).into()),
            (Err(error), _) => Outgoing::error(Some(id), &format!("history cannot be read: {error}")),
        }
    }

    /// Takes as many channels as certainly fit into a message, at least one.
    fn next(&mut self, view: &View) -> Vec<Match> {
        let (mut part, mut room) = (Vec::new(), MESSAGE_BYTES);
        while let Some((at, channels)) = self.rest.pop_front() {
            let found = &self.found[at];
            // A bucket has at least one row. Frames stamped ahead of the clock have up to as many buckets again.
            let rows = usize::try_from(found.start_row.min(view.next_row(found.stream.id))).unwrap_or(usize::MAX);
            let spans = history::spans_max(self.points).min(rows.saturating_add(1));
            let buckets = (2 * self.points).min(rows).max(1);
            let channel_bytes = buckets * BUCKET_BYTES + spans * history::SPAN_BYTES;
            let fit = (room / channel_bytes).min(channels.len());
            let fit = if part.is_empty() { fit.max(1).min(channels.len()) } else { fit };
            let (taken, left) = (channels.start..channels.start + fit, channels.start + fit..channels.end);
            room = room.saturating_sub(fit * channel_bytes);
            if fit > 0 || channels.is_empty() {
                part.push(Match { channels: found.channels[taken].to_vec(), ..found.clone() });
            }
            if !left.is_empty() {
                self.rest.push_front((at, left));
                break;
            }
        }
        part
    }
}
