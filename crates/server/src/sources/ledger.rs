//! Gaps and events: rows of `strongback.gaps` and `strongback.events`, kept in memory for SQL, REST and live.
//!
//! The store owns them; this is a copy for reading, loaded at start and updated by a follower that reads what was
//! appended since its last poll. Bounded: the newest [`ROWS_MAX`] of each, in [`BYTES_MAX`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use strongback_query::{EventOrigin, EventRow, GapRow};
use strongback_sources::Sink;
use strongback_store::{
    Appended, Batch, ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Reject, Scan,
    ScanError, Store, Stream, StreamId, StreamKey, StreamList, StreamSpec, Value,
};

use crate::ingest::{Ingest, Ticket};
use crate::process::clock::now_ns;
use crate::sources::outages;
use crate::text::json::Big;

/// Max number of gaps, and of events, kept in memory.
pub const ROWS_MAX: usize = 100_000;
/// Max bytes of the gaps, and of the events, kept in memory.
pub const BYTES_MAX: usize = 32 << 20;
/// Max number of server events that wait for a store that refuses them.
pub const WAITING_MAX: usize = 1_000;
/// Max length of an event's text in bytes.
pub const EVENT_TEXT_MAX: usize = 4096;
/// Max length of an event's source in bytes.
pub const EVENT_SOURCE_MAX: usize = 256;
/// Approximate bytes of a row without its texts.
const ROW_BYTES: usize = 256;

/// Max number of rows read to find the times of gaps that are not in memory.
const SKIPPED_ROWS_MAX: usize = 4 << 20;

/// Cause of rows that fill an earlier gap.
const FILLED: &str = "filled";
const GAPS: &str = "strongback.gaps";
const EVENTS: &str = "strongback.events";
/// Channel that says who recorded an event; events of earlier versions lack it.
const ORIGIN: &str = "origin";

/// Severity levels of events, ascending.
pub const LEVELS: [&str; 4] = ["info", "watch", "warning", "critical"];

/// The gaps and events in memory.
#[derive(Debug, Default)]
pub struct Ledger {
    rows: RwLock<LedgerRows>,
    own: Mutex<OwnStreams>,
    /// Rows that were read, and that no poll has returned yet.
    news: Mutex<News>,
    waiting: Mutex<VecDeque<EventRow>>,
    /// Number of server events that are only in the log.
    unrecorded: AtomicU64,
}

/// The streams of gaps and events in the catalog.
#[derive(Debug, Default)]
struct OwnStreams {
    /// Streams already searched.
    looked: StreamList,
    /// The streams of gaps and of events.
    found: Vec<StreamId>,
}

impl OwnStreams {
    /// Returns the streams of gaps and events. Searches only streams that changed since the last call.
    fn find(&mut self, streams: &StreamList) -> Vec<StreamId> {
        let is_own = |stream: &Stream| stream.key.tags.is_empty() && [GAPS, EVENTS].contains(&&*stream.key.table);
        for stream in streams.changed_since(&self.looked).filter(|stream| is_own(stream)) {
            if !self.found.contains(&stream.id) {
                self.found.push(stream.id);
            }
        }
        self.looked = streams.clone();
        self.found.clone()
    }
}

#[derive(Debug, Default)]
struct LedgerRows {
    /// The gaps, oldest first.
    gaps: VecDeque<GapRow>,
    /// The events, by time and number.
    events: BTreeMap<(i64, u64), EventRow>,
    /// The same in the order of recording: those recorded first are dropped first. A time in the future keeps no event
    /// of the present out.
    recorded: VecDeque<(i64, u64)>,
    /// Number of the next event.
    next_event: u64,
    /// Bytes of the gaps, and of the events.
    gap_bytes: usize,
    event_bytes: usize,
    next_gap_row: u64,
    next_event_row: u64,
    /// Max number of gaps, and of events.
    max: RowsMax,
    /// End of the latest gap dropped from memory, nanoseconds since 1970 UTC.
    left_out_to: Option<i64>,
    /// Rows of gaps that were skipped because too many newer ones follow; [`LedgerRows::left_out_to`] lacks them.
    skipped: Option<Range<u64>>,
    /// Gaps found since start.
    found: u64,
}

#[derive(Clone, Copy, Debug)]
struct RowsMax(usize);

impl Default for RowsMax {
    fn default() -> Self {
        RowsMax(ROWS_MAX)
    }
}

/// The rows found by a poll of the store.
#[derive(Debug, Default)]
pub struct News {
    /// New gaps, and gaps that were filled further.
    pub gaps: Vec<GapRow>,
    /// New events.
    pub events: Vec<EventRow>,
}

/// A row that was appended.
enum LedgerRow {
    Gap(GapRow),
    Event(EventRow),
}

/// Reason why an event is refused.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// An empty or too long text.
    #[error("text has {size_bytes} bytes, must have 1 to {EVENT_TEXT_MAX}")]
    Text {
        /// Its length in bytes.
        size_bytes: usize,
    },
    /// A source that is empty, too long, or has control characters.
    #[error("source has {size_bytes} bytes, must have 1 to {EVENT_SOURCE_MAX} without control characters")]
    Source {
        /// Its length in bytes.
        size_bytes: usize,
    },
    /// A client's event that uses the server's name.
    #[error("source {source_name:?} is reserved for the server")]
    OwnSource {
        /// The source given.
        source_name: String,
    },
    /// An unknown level.
    #[error("level {level:?} must be info, watch, warning or critical")]
    Level {
        /// The level given.
        level: String,
    },
    /// A refusal by the store.
    #[error(transparent)]
    Refused(#[from] Reject),
}

impl Ledger {
    /// Reads the rows appended before this start.
    ///
    /// # Errors
    /// As [`Ledger::follow`].
    pub fn load(&self, store: &Store) -> Result<(), ScanError> {
        let done = self.read_on(store, |_| {});
        self.rows.write().found = 0;
        done
    }

    /// Reads the rows appended since the last poll.
    ///
    /// # Errors
    /// If a scan ends early; the rows read until then are kept.
    pub fn follow(&self, store: &Store) -> Result<News, ScanError> {
        self.catch_up(store)?;
        Ok(std::mem::take(&mut *self.news.lock()))
    }

    /// Reads the rows appended since the last poll, so that queries find them. The next poll returns them.
    ///
    /// # Errors
    /// As [`Ledger::follow`].
    pub fn catch_up(&self, store: &Store) -> Result<(), ScanError> {
        let mut news = self.news.lock();
        self.read_on(store, |row| match row {
            LedgerRow::Gap(gap) => news.gaps.push(gap),
            LedgerRow::Event(event) => news.events.push(event),
        })
    }

    /// Reads the rows appended since the last poll, one at a time, so the memory needed is that of one row.
    fn read_on(&self, store: &Store, mut each: impl FnMut(LedgerRow)) -> Result<(), ScanError> {
        let view = store.view();
        let catalog = view.catalog().clone();
        let own = self.own.lock().find(&catalog.streams);
        for stream in own.into_iter().filter_map(|id| catalog.stream(id)) {
            let is_gaps = stream.key.table == GAPS;
            let next = view.next_row(stream.id);
            let mut rows = self.rows.write();
            let from = if is_gaps { rows.next_gap_row } else { rows.next_event_row };
            if from >= next {
                continue;
            }
            let columns = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
            let first = from.max(next.saturating_sub(rows.max.0 as u64));
            if is_gaps && from < first {
                rows.skip(from..first);
            }
            let scan = Scan { rows: first..next, ..Scan::all(stream.id, columns) };
            for batch in view.scan(scan) {
                let batch = batch?;
                for row in 0..batch.len() {
                    let cells = Cells { stream, batch: &batch, row };
                    if is_gaps {
                        let name = |id: StreamId| catalog.stream(id).map(|s| s.key.to_string());
                        each(LedgerRow::Gap(rows.add_gap(&cells, name)));
                        rows.next_gap_row = batch.rows[row] + 1;
                    } else {
                        let event = cells.event();
                        rows.add_event(event.clone());
                        each(LedgerRow::Event(event));
                        rows.next_event_row = batch.rows[row] + 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the gaps that touch a time range, newest first.
    pub fn gaps(&self, time: &Range<i64>, limit: usize) -> Vec<GapRow> {
        self.gaps_where(time, limit, |_| true)
    }

    /// Returns the gaps that touch a time range and match `wanted`, newest first.
    pub fn gaps_where(&self, time: &Range<i64>, limit: usize, wanted: impl Fn(&GapRow) -> bool) -> Vec<GapRow> {
        let touches = |g: &&GapRow| g.from_time_ns < time.end && g.to_time_ns >= time.start && wanted(g);
        self.rows.read().gaps.iter().rev().filter(touches).take(limit).cloned().collect()
    }

    /// Returns the `time` before which gaps are not in memory, nanoseconds since 1970 UTC; `i64::MAX` if gaps of any
    /// time may be missing. Returns `None` if all gaps are in memory. The first call may read many rows.
    pub fn gaps_known_from(&self, store: &Store) -> Option<i64> {
        let skipped = self.rows.read().skipped.clone();
        if let Some(skipped) = skipped {
            let latest = match self.latest_end(store, &skipped) {
                Ok(latest) => latest,
                Err(error) => {
                    tracing::warn!(%error, "gaps that are not kept cannot be read");
                    return Some(i64::MAX);
                }
            };
            let mut rows = self.rows.write();
            rows.left_out_to = rows.left_out_to.max(latest);
            if rows.skipped.as_ref() == Some(&skipped) {
                rows.skipped = None;
            }
        }
        self.rows.read().left_out_to.map(|to| to.saturating_add(1))
    }

    /// Returns the end of the latest gap of these rows, or `i64::MAX` if there are too many to read.
    fn latest_end(&self, store: &Store, rows: &Range<u64>) -> Result<Option<i64>, ScanError> {
        let view = store.view();
        let catalog = view.catalog();
        let own = self.own.lock().find(&catalog.streams);
        let gaps = own.into_iter().filter_map(|id| catalog.stream(id)).find(|stream| stream.key.table == GAPS);
        let columns = gaps.and_then(|gaps| Some(vec![gaps.layout.index("to_time")?, gaps.layout.index("cause")?]));
        let (Some(gaps), Some(columns)) = (gaps, columns) else { return Ok(None) };
        let (mut latest, mut read) = (None, 0);
        for batch in view.scan(Scan { rows: rows.clone(), ..Scan::all(gaps.id, columns) }) {
            let batch = batch?;
            read += batch.len();
            let [to_time, cause] = &batch.columns[..] else { return Ok(None) };
            if read > SKIPPED_ROWS_MAX {
                return Ok(Some(i64::MAX));
            }
            for row in (0..batch.len()).filter(|row| cause.cell(*row) != Ok(Value::String(FILLED))) {
                let to = to_time.cell(row).ok().and_then(|value| value.convert(ChannelType::I64));
                if let Some(Value::I64(to)) = to {
                    latest = latest.max(Some(to));
                }
            }
        }
        Ok(latest)
    }

    /// Makes a ledger that keeps at most `max` gaps and `max` events.
    #[cfg(test)]
    pub fn keeping(max: usize) -> Ledger {
        Ledger { rows: RwLock::new(LedgerRows { max: RowsMax(max), ..LedgerRows::default() }), ..Ledger::default() }
    }

    /// Returns the spans of a stream in which frames are still missing.
    pub fn open_spans(&self, stream: StreamId, time: &Range<i64>) -> Vec<(i64, i64)> {
        let open = |g: &&GapRow| {
            g.stream == Some(stream) && g.open > 0 && g.from_time_ns < time.end && g.to_time_ns >= time.start
        };
        self.rows.read().gaps.iter().filter(open).map(|g| (g.from_time_ns, g.to_time_ns)).collect()
    }

    /// Returns the ends, within a time range, of spans in which frames are still missing, with their streams.
    pub fn open_ends(&self, time: &Range<i64>) -> Vec<(StreamId, i64)> {
        let open = |g: &&GapRow| g.open > 0 && time.contains(&g.to_time_ns);
        self.rows.read().gaps.iter().filter(open).filter_map(|g| Some((g.stream?, g.to_time_ns))).collect()
    }

    /// Returns the newest `limit` events of a time range, ascending in time.
    pub fn events(&self, time: &Range<i64>, limit: usize) -> Vec<EventRow> {
        let rows = self.rows.read();
        let mut events: Vec<EventRow> =
            rows.events.values().rev().filter(|e| time.contains(&e.time_ns)).take(limit).cloned().collect();
        events.reverse();
        events
    }

    /// Returns the number of gaps found since start.
    pub fn gaps_found(&self) -> u64 {
        self.rows.read().found
    }

    /// Returns the times without a server, oldest first, from the events recorded at each start.
    pub fn outages(&self) -> Vec<(i64, i64)> {
        self.rows.read().events.values().filter_map(outages::outage).collect()
    }

    /// Appends an event of the server without waiting. If the store refuses it now, the event is kept and offered again
    /// with the next one and by [`Ledger::retry`]. An invalid event, or the oldest if too many are kept, is only logged
    /// and counted.
    pub fn record_or_say(&self, ingest: &Ingest, event: &EventRow) {
        let mut waiting = self.waiting.lock();
        waiting.push_back(event.clone());
        self.offer(ingest, &mut waiting);
        while waiting.len() > WAITING_MAX {
            if let Some(oldest) = waiting.pop_front() {
                self.leave_out(&oldest, "too many wait for the store");
            }
        }
    }

    /// Offers the waiting events again.
    pub fn retry(&self, ingest: &Ingest) {
        self.offer(ingest, &mut self.waiting.lock());
    }

    /// Offers the waiting events a last time; those the store refuses are only logged.
    pub fn finish(&self, ingest: &Ingest) {
        let mut waiting = self.waiting.lock();
        self.offer(ingest, &mut waiting);
        waiting.drain(..).for_each(|event| self.leave_out(&event, "the server stops"));
    }

    /// Returns the number of server events since start that are only in the log.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Relaxed)
    }

    /// Appends the waiting events in order until the store refuses one.
    fn offer(&self, ingest: &Ingest, waiting: &mut VecDeque<EventRow>) {
        while let Some(event) = waiting.front() {
            match append(ingest, event, |batch| ingest.accept(batch)) {
                Ok(_) => {}
                Err(EventError::Refused(Reject::Refused(_))) => return,
                Err(error) => self.leave_out(event, &error.to_string()),
            }
            waiting.pop_front();
        }
    }

    fn leave_out(&self, event: &EventRow, why: &str) {
        self.unrecorded.fetch_add(1, Relaxed);
        tracing::warn!(source = event.source, "not among the events: {why}: {}", event.text);
    }

    /// Appends an event of a client to `strongback.events`, waiting while the store's log is full. The follower brings
    /// it to memory and to pages.
    ///
    /// # Errors
    /// If the event is invalid, or the store refuses it.
    pub fn record(&self, ingest: &Ingest, event: &EventRow) -> Result<Ticket, EventError> {
        append(ingest, event, |batch| ingest.accept_waiting(batch))
    }
}

/// Appends an event to `strongback.events`.
fn append(
    ingest: &Ingest,
    event: &EventRow,
    accept: impl FnOnce(&FrameBatch) -> Appended,
) -> Result<Ticket, EventError> {
    if event.text.is_empty() || event.text.len() > EVENT_TEXT_MAX {
        return Err(EventError::Text { size_bytes: event.text.len() });
    }
    if !LEVELS.contains(&event.level.as_str()) {
        return Err(EventError::Level { level: event.level.clone() });
    }
    check_source(event)?;
    let channel = |name| ChannelSpec::new(name, ChannelType::String);
    let spec = StreamSpec {
        key: StreamKey::new(EVENTS, []),
        source: "internal".to_owned(),
        clock: Clock::Source,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: ["text", "level", "source", ORIGIN].map(channel).into(),
    };
    let (stream, channels) = ingest.resolve_own(&spec)?;
    let mut batch = FrameBatch::new();
    let head =
        FrameHead { stream: stream.id, receive_time: now_ns(), source_time: Some(event.time_ns), sequence: None };
    batch.begin(head);
    let origin = event.origin.name();
    for (channel, text) in channels.iter().zip([event.text.as_str(), &event.level, &event.source, origin]) {
        batch.push(*channel, Value::String(text));
    }
    batch.end();
    let generation = ingest.generation_now();
    let appended = accept(&batch);
    match appended.outcomes.into_iter().next() {
        Some(Outcome::Rejected(reject)) => Err(reject.into()),
        _ => Ok(generation.ticket(appended.commit)),
    }
}

/// Checks the source of an event. The server's own events may have any source that fits a stream.
fn check_source(event: &EventRow) -> Result<(), EventError> {
    if event.origin == EventOrigin::Server {
        return Ok(());
    }
    let source = &event.source;
    if !(1..=EVENT_SOURCE_MAX).contains(&source.len()) || source.chars().any(char::is_control) {
        return Err(EventError::Source { size_bytes: source.len() });
    }
    let first = source.split('.').next().unwrap_or_default().trim();
    if first.eq_ignore_ascii_case(outages::SOURCE) {
        return Err(EventError::OwnSource { source_name: source.clone() });
    }
    Ok(())
}

/// Describes what happened to the frames of a gap, by its cause.
fn words(cause: &str, count: u64, from: i64, to: i64) -> String {
    let frames = if count == 1 { "1 frame".to_owned() } else { format!("{count} frames") };
    let span = span(to.saturating_sub(from));
    match cause {
        "sequence" => format!("{frames}, {span} · lost before the receiver (sequence)"),
        "kernel" => format!("{frames} · dropped by the kernel: the receive buffer was full"),
        "restart" => "the source began its sequence anew; nothing is known lost".to_owned(),
        "torn" => format!("{frames}, {span} · not durable when the server was cut off"),
        "not recorded" => format!("{frames}, {span} · shown live, not recorded: the store refused"),
        "silence" => format!("{frames}, {span} · nothing came (by the period of the stream)"),
        "damaged" => format!("{frames} · stored before, lost with a damaged place of the disk"),
        "refused" => format!("{frames}, {span} · refused; the sender was told and may send them again"),
        other => format!("{frames}, {span} · {other}"),
    }
}

/// Formats a time span for people.
pub(crate) fn span(ns: i64) -> String {
    match ns.max(0) as f64 {
        ns if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        ns if ns < 120e9 => format!("{:.1} s", ns / 1e9),
        ns => format!("{:.1} min", ns / 60e9),
    }
}

impl LedgerRows {
    /// Adds a row of `strongback.gaps`, or updates the gap that the row fills. Returns the gap as it is now.
    fn add_gap(&mut self, cells: &Cells<'_>, stream_name: impl Fn(StreamId) -> Option<String>) -> GapRow {
        let unsigned = |name| cells.integer(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        let (id, count, cause) = (unsigned("id"), unsigned("count"), cells.text("cause"));
        if cause == FILLED
            && let Some(gap) = self.gaps.iter_mut().rev().find(|g| g.id == id && g.count > 0)
        {
            gap.open = gap.open.saturating_sub(count);
            return gap.clone();
        }
        let stream = cells.integer("stream").and_then(|v| u32::try_from(v).ok()).map(StreamId);
        let (from, to) = (cells.integer("from_time").unwrap_or(0), cells.integer("to_time").unwrap_or(0));
        // The begin is unknown for gaps recorded at the first frame after a start.
        let from = if from == i64::MIN { to } else { from };
        let name = cells.text("name");
        let gap = GapRow {
            id,
            stream,
            stream_name: if name.is_empty() { stream.and_then(stream_name).unwrap_or_default() } else { name },
            source: cells.text("source"),
            from_time_ns: from,
            to_time_ns: to,
            from_sequence: cells.integer("from_sequence"),
            to_sequence: cells.integer("to_sequence"),
            count,
            // Late frames of a gap that is no longer kept, restarts, and refused frames leave nothing open.
            open: if matches!(cause.as_str(), FILLED | "restart" | "refused") { 0 } else { count },
            words: words(&cause, count, from, to),
            cause,
        };
        self.found += u64::from(gap.open > 0);
        self.gap_bytes += gap_bytes(&gap);
        self.gaps.push_back(gap.clone());
        while self.gaps.len() > self.max.0 || self.gap_bytes > BYTES_MAX {
            let Some(oldest) = self.gaps.pop_front() else { break };
            self.gap_bytes -= gap_bytes(&oldest);
            if oldest.cause != FILLED {
                self.left_out_to = self.left_out_to.max(Some(oldest.to_time_ns));
            }
        }
        gap
    }

    /// Records that these rows of gaps are not read.
    fn skip(&mut self, rows: Range<u64>) {
        self.skipped = Some(match &self.skipped {
            Some(before) => before.start.min(rows.start)..before.end.max(rows.end),
            None => rows,
        });
    }

    fn add_event(&mut self, event: EventRow) {
        let key = (event.time_ns, self.next_event);
        self.next_event += 1;
        self.event_bytes += event_bytes(&event);
        self.events.insert(key, event);
        self.recorded.push_back(key);
        while self.events.len() > self.max.0 || self.event_bytes > BYTES_MAX {
            let Some(first) = self.recorded.pop_front() else { break };
            self.event_bytes -= self.events.remove(&first).map_or(0, |event| event_bytes(&event));
        }
    }
}

fn gap_bytes(gap: &GapRow) -> usize {
    ROW_BYTES + gap.stream_name.len() + gap.source.len() + gap.cause.len() + gap.words.len()
}

fn event_bytes(event: &EventRow) -> usize {
    ROW_BYTES + event.level.len() + event.source.len() + event.text.len()
}

/// One frame of a batch, with its cells by channel name.
struct Cells<'a> {
    stream: &'a Stream,
    batch: &'a Batch,
    row: usize,
}

impl<'a> Cells<'a> {
    fn get(&self, channel: &str) -> Option<Value<'a>> {
        let index = self.stream.layout.index(channel)?;
        self.batch.columns[index.0 as usize].cell(self.row).ok()
    }

    fn text(&self, channel: &str) -> String {
        match self.get(channel) {
            Some(Value::String(text)) => text.to_owned(),
            _ => String::new(),
        }
    }

    fn integer(&self, channel: &str) -> Option<i64> {
        match self.get(channel)?.convert(ChannelType::I64)? {
            Value::I64(v) => Some(v),
            _ => None,
        }
    }

    fn event(&self) -> EventRow {
        EventRow {
            time_ns: self.batch.time(self.row),
            level: self.text("level"),
            source: self.text("source"),
            text: self.text("text"),
            origin: match self.text(ORIGIN).as_str() {
                "client" => EventOrigin::Client,
                // Events of earlier versions have no origin and count as the server's.
                _ => EventOrigin::Server,
            },
        }
    }
}

/// A gap in the form the HTTP interface returns.
#[derive(Debug, serde::Serialize)]
pub struct GapCard<'a> {
    id: Big<u64>,
    stream: Option<u32>,
    stream_name: &'a str,
    source: &'a str,
    from_time: Big<i64>,
    to_time: Big<i64>,
    from_sequence: Option<Big<i64>>,
    to_sequence: Option<Big<i64>>,
    count: Big<u64>,
    open: Big<u64>,
    cause: &'a str,
    words: &'a str,
}

impl<'a> From<&'a GapRow> for GapCard<'a> {
    fn from(gap: &'a GapRow) -> Self {
        GapCard {
            id: Big(gap.id),
            stream: gap.stream.map(|s| s.0),
            stream_name: &gap.stream_name,
            source: &gap.source,
            from_time: Big(gap.from_time_ns),
            to_time: Big(gap.to_time_ns),
            from_sequence: gap.from_sequence.map(Big),
            to_sequence: gap.to_sequence.map(Big),
            count: Big(gap.count),
            open: Big(gap.open),
            cause: &gap.cause,
            words: &gap.words,
        }
    }
}

/// An event in the form the HTTP interface returns.
#[derive(Debug, serde::Serialize)]
pub struct EventCard<'a> {
    time: Big<i64>,
    text: &'a str,
    level: &'a str,
    source: &'a str,
    origin: &'static str,
}

impl<'a> From<&'a EventRow> for EventCard<'a> {
    fn from(event: &'a EventRow) -> Self {
        EventCard {
            time: Big(event.time_ns),
            text: &event.text,
            level: &event.level,
            source: &event.source,
            origin: event.origin.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use strongback_store::{FaultDisk, StoreOptions};

    use super::*;
    use crate::ingest::opening::Opening;
    use crate::live::Live;

    const T0: i64 = 1_790_000_000_000_000_000;

    #[test]
    fn events_in_the_future_keep_none_of_the_present_out() {
        let mut rows = LedgerRows { max: RowsMax(10), ..LedgerRows::default() };
        let event = |time_ns: i64| EventRow { time_ns, ..EventRow::default() };
        (0..20).for_each(|n| rows.add_event(event(i64::MAX - n)));
        (0..4).for_each(|n| rows.add_event(event(n)));
        let times: Vec<i64> = rows.events.values().map(|event| event.time_ns).collect();
        let ahead = (14..20).rev().map(|n| i64::MAX - n);
        assert_eq!(times, (0..4).chain(ahead).collect::<Vec<_>>());
        assert_eq!((rows.recorded.len(), rows.event_bytes), (10, 10 * event_bytes(&event(0))));
    }

    /// Adds rows of gaps to a store: number, end, cause.
    fn append_gaps(store: &Store, gaps: &[(u64, i64, &str)]) {
        let channels = [
            ("id", ChannelType::U64),
            ("from_time", ChannelType::I64),
            ("to_time", ChannelType::I64),
            ("count", ChannelType::U64),
            ("cause", ChannelType::String),
        ];
        let spec = StreamSpec {
            key: StreamKey::new(GAPS, []),
            source: "strongback".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: channels.into_iter().map(|(name, kind)| ChannelSpec::new(name, kind)).collect(),
        };
        let stream = store.resolve_own(&spec, T0).unwrap().0.id;
        let first = store.view().next_row(stream) as i64;
        let mut batch = FrameBatch::new();
        for ((id, to, cause), row) in gaps.iter().zip(first..) {
            batch.begin(FrameHead { stream, receive_time: T0 + row, source_time: None, sequence: None });
            batch.push(ChannelIndex(0), Value::U64(*id));
            batch.push(ChannelIndex(1), Value::I64(*to - 1));
            batch.push(ChannelIndex(2), Value::I64(*to));
            batch.push(ChannelIndex(3), Value::U64(1));
            batch.push(ChannelIndex(4), Value::String(cause));
            batch.end();
        }
        let outcomes = store.append(&batch, T0 + 1_000).outcomes;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })), "{outcomes:?}");
    }

    #[test]
    fn of_gaps_that_are_not_read_at_a_start_the_latest_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
        let known_from = || {
            let ledger = Ledger::keeping(4);
            ledger.load(&store).unwrap();
            let known_from = ledger.gaps_known_from(&store);
            assert!(ledger.rows.read().skipped.is_none(), "it is read once");
            assert_eq!(ledger.gaps_known_from(&store), known_from);
            known_from
        };
        assert_eq!(known_from(), None);
        // Rows that fill other gaps are not gaps of their own.
        append_gaps(&store, &[(1, T0 + 950, FILLED), (2, T0 + 20, "kernel"), (3, T0 + 900, "sequence")]);
        append_gaps(&store, &[(4, T0 + 40, "sequence"), (5, T0 + 50, "sequence")]);
        assert_eq!(known_from(), None);
        append_gaps(&store, &[(6, T0 + 60, "sequence")]);
        assert_eq!(known_from(), Some(T0 + 21));
        // A gap of another stream that ends later than those after it.
        append_gaps(&store, &[(7, T0 + 70, "sequence")]);
        assert_eq!(known_from(), Some(T0 + 901));
        // All rows read fill other gaps.
        append_gaps(&store, &[4, 5, 6, 7].map(|id| (id, T0 + 80, FILLED)));
        assert_eq!(known_from(), Some(T0 + 901));
    }

    #[test]
    fn of_gaps_that_make_room_for_newer_ones_the_latest_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
        let ledger = Ledger::keeping(2);
        ledger.load(&store).unwrap();
        let known_from = || {
            ledger.follow(&store).unwrap();
            ledger.gaps_known_from(&store)
        };
        append_gaps(&store, &[(1, T0 + 500, "sequence"), (2, T0 + 20, "sequence")]);
        assert_eq!(known_from(), None);
        append_gaps(&store, &[(3, T0 + 30, "sequence")]);
        assert_eq!(known_from(), Some(T0 + 501));
        append_gaps(&store, &[(4, T0 + 40, "sequence")]);
        assert_eq!(known_from(), Some(T0 + 501));
        // With very many gaps, some are not read.
        append_gaps(&store, &[(5, T0 + 600, "sequence"), (6, T0 + 60, "sequence"), (7, T0 + 70, "sequence")]);
        assert_eq!(known_from(), Some(T0 + 601));
    }

    /// Nothing commits here, so an event that waited for room in the log would wait for ever.
    #[test]
    fn events_of_the_server_wait_beside_a_full_log_and_are_recorded_when_there_is_room() {
        let disk = FaultDisk::new(1);
        let on = disk.clone();
        let options = || StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() };
        let opening = Opening::new(move |now| on.open_store(options(), now));
        let ingest = Ingest::open_by(opening, PathBuf::from("disk"), Vec::new(), Arc::new(Live::default()));
        let (ingest, ledger) = (ingest.expect("a store"), Ledger::default());
        let event = |number: usize| EventRow {
            time_ns: number as i64,
            level: "info".to_owned(),
            source: "test".to_owned(),
            text: format!("{number} {}", "x".repeat(EVENT_TEXT_MAX - 10)),
            origin: EventOrigin::Server,
        };
        let mut told = 0;
        while ledger.waiting.lock().is_empty() {
            ledger.record_or_say(&ingest, &event(told));
            told += 1;
        }
        (told..told + WAITING_MAX).for_each(|number| ledger.record_or_say(&ingest, &event(number)));
        assert_eq!((ledger.waiting.lock().len(), ledger.unrecorded()), (WAITING_MAX, 1));
        while !ledger.waiting.lock().is_empty() {
            let before = ledger.waiting.lock().len();
            ingest.store().commit(1).expect("committed");
            while ingest.store().maintain(1).expect("sealed") {}
            ledger.retry(&ingest);
            assert!(ledger.waiting.lock().len() < before, "{before} wait");
        }
        ledger.follow(&ingest.store()).expect("read");
        let times: Vec<i64> = ledger.events(&(0..i64::MAX), usize::MAX).iter().map(|event| event.time_ns).collect();
        // All events in order, except the oldest one that waited.
        let last = (told + WAITING_MAX) as i64;
        let oldest = told as i64 - 1;
        assert_eq!(times, (0..last).filter(|number| *number != oldest).collect::<Vec<_>>());
    }
}
