//! The clocks of the sources and of this machine: offset and drift of each stream's stamps against reception.
//!
//! ```text
//! Fanout::publish ─> arrival: least delay of each window, times between frames     a few operations a frame
//! once a second   ─> estimate: a line below the least delays, jumps                 here, on a reader thread
//! each 10 s       ─> strongback.clocks, strongback.node_clock                       streams of the store's own
//! ```
//!
//! Bounded: at most [`crate::reception::arrival::STREAMS_MAX`] streams are timed, [`CLOCKS_MAX`] clocks are estimated
//! and [`RECORDED_MAX`] of them recorded, in the order in which they were first seen.

pub mod estimate;
pub mod leap;
pub mod node;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use serde::Serialize;
use strongback_query::{EventOrigin, EventRow};
use strongback_sources::Sink;
use strongback_sources::inetx::Tally;
use strongback_store::{
    Catalog, ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, StreamId, StreamKey, StreamSpec,
    Value,
};

use crate::ingest::Ingest;
use crate::sources::ledger::span;
use crate::text::json::Big;

use crate::reception::arrival::ArrivalWindow;
use crate::reception::arrival::{EDGES_NS, Histogram, OVER_NS};
use estimate::{ClockEstimate, ClockReading, ClockState};
use node::NodeClock;

/// Max number of estimated clocks, about 10 KB each.
pub const CLOCKS_MAX: usize = 1_024;
/// Max number of clocks with a stream of `strongback.clocks`.
pub const RECORDED_MAX: usize = 256;
/// Time between two rows of a clock, nanoseconds.
pub const PERIOD_NS: i64 = 10_000_000_000;
/// Jumps in one poll that get an event of their own; further ones share the last event.
const JUMPS_TOLD: usize = 5;

const CLOCKS: &str = "strongback.clocks";
const NODE_CLOCK: &str = "strongback.node_clock";

/// The clocks of all streams that have stamps.
#[derive(Debug, Default)]
pub struct Clocks {
    kept: Mutex<KeptClock>,
}

#[derive(Debug, Default)]
struct KeptClock {
    /// Opening of the store to which the stream numbers belong, counted in reopenings.
    reopenings: u64,
    /// Estimates in the order in which their streams were first seen.
    clocks: Vec<(StreamId, ClockEstimate)>,
    places: HashMap<StreamId, usize>,
    windows: Vec<(StreamId, ArrivalWindow)>,
    recorded_at: i64,
}

/// A clock in the form the HTTP interface returns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockCard {
    offset_ns: Big<i64>,
    drift_ppm: f64,
    spread_ns: Big<i64>,
    state: &'static str,
    jumps: Big<u64>,
    since: Big<i64>,
}

impl From<ClockReading> for ClockCard {
    fn from(reading: ClockReading) -> Self {
        ClockCard {
            offset_ns: Big(reading.offset_ns),
            drift_ppm: (reading.drift_ppm * 1e4).round() / 1e4,
            spread_ns: Big(reading.spread_ns),
            state: reading.state.name(),
            jumps: Big(reading.jumps),
            since: Big(reading.since),
        }
    }
}

impl ClockCard {
    /// Returns the card of a stream whose packets are stamped by a clock that was never set, or `None` if there is none
    /// or the estimate already says so.
    pub fn never_set(tally: &Tally, estimated: Option<&ClockReading>) -> Option<ClockCard> {
        let offset_ns = tally.off_ns.load(Relaxed);
        let is_known = estimated.is_some_and(|reading| reading.state == ClockState::NeverSet);
        (offset_ns != 0 && !is_known).then(|| ClockCard {
            offset_ns: Big(offset_ns),
            drift_ppm: 0.0,
            spread_ns: Big(0),
            state: ClockState::NeverSet.name(),
            jumps: Big(estimated.map_or(0, |reading| reading.jumps)),
            since: Big(tally.since.load(Relaxed)),
        })
    }
}

/// Times between frames of one stream in the form the HTTP interface returns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrivalCard {
    nominal_ns: Option<Big<i64>>,
    edges_ns: [Big<i64>; EDGES_NS.len()],
    counts: Vec<Big<u64>>,
    over: [OverCard; OVER_NS.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct OverCard {
    limit_ns: Big<i64>,
    count: Big<u64>,
}

impl ArrivalCard {
    /// Makes a card from a histogram and the stream's period, if it has one.
    pub fn new(counts: &Histogram, nominal_ns: Option<i64>) -> ArrivalCard {
        let over = crate::reception::arrival::over(counts);
        ArrivalCard {
            nominal_ns: nominal_ns.map(Big),
            edges_ns: EDGES_NS.map(Big),
            counts: counts.iter().copied().map(Big).collect(),
            over: std::array::from_fn(|i| OverCard { limit_ns: Big(OVER_NS[i]), count: Big(over[i]) }),
        }
    }
}

impl Clocks {
    /// Takes the windows measured since the last poll and returns the jumps as events. `now` is nanoseconds since 1970
    /// UTC.
    pub fn look(&self, ingest: &Ingest, now: i64) -> Vec<EventRow> {
        let catalog = ingest.store().catalog();
        let kept = &mut *self.kept.lock();
        let reopenings = ingest.reopenings();
        if reopenings != kept.reopenings {
            *kept = KeptClock { reopenings, recorded_at: kept.recorded_at, ..KeptClock::default() };
        }
        ingest.live().fanout().arrivals.take(&mut kept.windows);
        let events = kept.take_windows(&catalog);
        for (_, clock) in &mut kept.clocks {
            clock.look(now);
        }
        let is_due = now.saturating_sub(kept.recorded_at).saturating_abs() >= PERIOD_NS;
        if is_due && kept.record(ingest, &catalog, now) {
            kept.recorded_at = now;
        }
        events
    }

    /// Returns the reading of a stream's clock, or `None` if the stream has no stamps.
    pub fn reading(&self, stream: StreamId) -> Option<ClockReading> {
        let kept = self.kept.lock();
        Some(kept.clocks[*kept.places.get(&stream)?].1.reading())
    }

    /// Returns the readings of all clocks.
    pub fn readings(&self) -> Vec<(StreamId, ClockReading)> {
        self.kept.lock().clocks.iter().map(|(stream, clock)| (*stream, clock.reading())).collect()
    }
}

impl KeptClock {
    fn take_windows(&mut self, catalog: &Catalog) -> Vec<EventRow> {
        let mut events = Vec::new();
        let mut untold = 0_u64;
        for (id, window) in self.windows.drain(..) {
            // Streams written by the server itself are stamped by this machine's clock.
            let Some(stream) = catalog.stream(id).filter(|stream| !stream.key.is_internal()) else { continue };
            let Some(place) = self.places.get(&id) else {
                if self.clocks.len() < CLOCKS_MAX {
                    self.places.insert(id, self.clocks.len());
                    self.clocks.push((id, ClockEstimate::new(&window)));
                }
                continue;
            };
            let Some(jump) = self.clocks[*place].1.window(&window) else { continue };
            if events.len() == JUMPS_TOLD {
                untold += 1;
                continue;
            }
            let direction = if jump.by_ns < 0 { "back" } else { "forwards" };
            let by = span(jump.by_ns.saturating_abs());
            events.push(EventRow {
                time_ns: jump.at,
                level: "warning".to_owned(),
                source: stream.source.clone(),
                text: format!("{}: its clock jumped {by} {direction}", stream.key),
                origin: EventOrigin::Server,
            });
        }
        if let Some(last) = events.last_mut()
            && untold > 0
        {
            last.text.push_str(&format!("; so did {untold} others, as when the clock of this machine is set"));
        }
        events
    }

    /// Records a row for each known clock. Returns whether anything was recorded.
    fn record(&self, ingest: &Ingest, catalog: &Catalog, now: i64) -> bool {
        // A measurement is worthless later, so one the store refuses is not counted as lost.
        if ingest.refusal().is_some() {
            return false;
        }
        let mut batch = FrameBatch::new();
        for (id, clock) in self.clocks.iter().take(RECORDED_MAX) {
            let reading = clock.reading();
            if matches!(reading.state, ClockState::Learning | ClockState::Gone) {
                continue;
            }
            let Some(stream) = catalog.stream(*id) else { continue };
            let resolved = ingest.resolve_own(&clock_spec(&stream.key, &stream.source));
            // A store that takes no more streams reports that elsewhere.
            let Ok((own, channels)) = resolved else { continue };
            let values = [
                Value::I64(reading.offset_ns),
                Value::F64(reading.drift_ppm),
                Value::I64(reading.spread_ns),
                Value::String(reading.state.name()),
                Value::U64(reading.jumps),
            ];
            push_row(&mut batch, own.id, now, &channels, &values);
        }
        if batch.is_empty() {
            return false;
        }
        ingest.accept(&batch);
        true
    }
}

/// Records the state of this machine's clock.
pub fn record_node(ingest: &Ingest, clock: &NodeClock, now: i64) {
    if ingest.refusal().is_some() {
        return;
    }
    let Ok((own, channels)) = ingest.resolve_own(&node_spec()) else { return };
    let mut values = vec![Value::String(clock.state), Value::String(clock.by)];
    if let Some(tracking) = &clock.tracking {
        values.extend([
            Value::I64(tracking.offset_ns),
            Value::I64(tracking.bound_ns),
            Value::F64(tracking.frequency_ppm),
            Value::F64(tracking.skew_ppm),
            Value::U8(tracking.stratum),
            Value::String(&tracking.reference),
            Value::String(&tracking.leap),
        ]);
    }
    let mut batch = FrameBatch::new();
    push_row(&mut batch, own.id, now, &channels, &values);
    ingest.accept(&batch);
}

fn push_row(batch: &mut FrameBatch, stream: StreamId, now: i64, channels: &[ChannelIndex], values: &[Value<'_>]) {
    batch.begin(FrameHead { stream, receive_time: now, source_time: None, sequence: None });
    for (channel, value) in channels.iter().zip(values) {
        batch.push(*channel, *value);
    }
    batch.end();
}

fn spec(key: StreamKey, channels: &[(&str, ChannelType, &str, &str)]) -> StreamSpec {
    let channel = |(name, kind, unit, description): &(&str, ChannelType, &str, &str)| ChannelSpec {
        unit: (*unit).to_owned(),
        description: (*description).to_owned(),
        ..ChannelSpec::new(*name, *kind)
    };
    StreamSpec {
        key,
        source: "internal".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: channels.iter().map(channel).collect(),
    }
}

/// Returns the definitions of the streams of clocks, with empty tags.
pub fn specs() -> Vec<StreamSpec> {
    vec![clock_spec(&StreamKey::new("", []), ""), node_spec()]
}

fn clock_spec(stream: &StreamKey, source: &str) -> StreamSpec {
    let tags = [("stream".to_owned(), stream.to_string()), ("source".to_owned(), source.to_owned())];
    spec(
        StreamKey::new(CLOCKS, tags),
        &[
            ("offset_ns", ChannelType::I64, "ns", "source's clock less that of reception, least way included"),
            ("drift_ppm", ChannelType::F64, "ppm", "what the source's clock gains"),
            ("spread_ns", ChannelType::I64, "ns", "how much later than the quickest frames come typically"),
            ("state", ChannelType::String, "", "good, jumped, never set"),
            ("jumps", ChannelType::U64, "", "jumps since the server's start"),
        ],
    )
}

fn node_spec() -> StreamSpec {
    spec(
        StreamKey::new(NODE_CLOCK, []),
        &[
            ("state", ChannelType::String, "", "synchronised, not synchronised, not known"),
            ("by", ChannelType::String, "", "who says so"),
            ("offset_ns", ChannelType::I64, "ns", "the clock less true time"),
            ("bound_ns", ChannelType::I64, "ns", "most that it can be off"),
            ("frequency_ppm", ChannelType::F64, "ppm", "what it would gain if left alone"),
            ("skew_ppm", ChannelType::F64, "ppm", "how unsure that is"),
            ("stratum", ChannelType::U8, "", "distance from a reference clock"),
            ("reference", ChannelType::String, "", "what it follows"),
            ("leap", ChannelType::String, "", "leap second to come"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strongback_store::{Scan, StoreOptions};

    use super::*;
    use crate::live::Live;
    use crate::process::clock::now_ns;
    use node::Tracking;

    const S: i64 = 1_000_000_000;

    fn ingest() -> (Ingest, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let live = Arc::new(Live::default());
        (Ingest::open(dir.path().to_owned(), StoreOptions::default(), Vec::new(), live).unwrap(), dir)
    }

    /// Returns the rows of a stream as texts.
    fn rows(ingest: &Ingest, name: &str) -> Vec<Vec<String>> {
        let store = ingest.store();
        let catalog = store.catalog();
        let Some(stream) = catalog.streams.iter().find(|s| s.key.to_string() == name) else { return Vec::new() };
        let columns = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
        let mut rows = Vec::new();
        for batch in store.view().scan(Scan::all(stream.id, columns)) {
            let batch = batch.unwrap();
            let cell =
                |c: usize, row| batch.columns[c].cell(row).map_or_else(|s| format!("{s:?}"), |v| format!("{v:?}"));
            rows.extend((0..batch.len()).map(|row| (0..batch.columns.len()).map(|c| cell(c, row)).collect()));
        }
        rows
    }

    #[test]
    fn clocks_are_learnt_from_frames_told_and_recorded() {
        let (ingest, _dir) = ingest();
        let stream = |n: usize| {
            let key = StreamKey::new("fti.bay", [("bay".to_owned(), n.to_string())]);
            let spec = StreamSpec { source: format!("fti{n}"), ..spec(key, &[("c", ChannelType::U8, "", "")]) };
            ingest.resolve(&spec).unwrap().0.id
        };
        let streams: Vec<StreamId> = (0..8).map(stream).collect();
        let clocks = Clocks::default();
        // Pretend that the last minute was polled.
        let begin = now_ns() - 52 * S;
        let mut events = Vec::new();
        for second in 0..48 {
            let mut batch = FrameBatch::new();
            for (n, stream) in streams.iter().enumerate() {
                for part in 0..10 {
                    let receive_time = begin + second * S + part * S / 10;
                    // The shortest way takes a millisecond; the last source's clock was never set; all the others jump.
                    let way = S / 1_000 + part * 100_000;
                    let jump = if second >= 40 { 5 * S } else { 0 };
                    let source_time = match n {
                        7 => receive_time - begin,
                        n => receive_time - way + n as i64 * S + jump,
                    };
                    let head =
                        FrameHead { stream: *stream, receive_time, source_time: Some(source_time), sequence: None };
                    batch.begin(head);
                    batch.push(ChannelIndex(0), Value::U8(0));
                    batch.end();
                }
            }
            ingest.accept(&batch);
            events.extend(clocks.look(&ingest, begin + (second + 1) * S));
            if second == 39 {
                let reading = clocks.reading(streams[3]).unwrap();
                assert_eq!((reading.state, reading.offset_ns), (ClockState::Good, 3 * S - S / 1_000));
                assert_eq!((reading.spread_ns, reading.jumps), (450_000, 0));
                assert_eq!(clocks.reading(streams[7]).unwrap().state, ClockState::NeverSet);
            }
        }
        assert_eq!(clocks.reading(streams[3]).unwrap().state, ClockState::Jumped);
        assert_eq!(clocks.readings().len(), 8);
        // The first five jumps have an event each; the last event mentions the others.
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert_eq!(texts[0], "fti.bay{bay=0}: its clock jumped 5.0 s forwards");
        assert!(texts[4].ends_with("; so did 2 others, as when the clock of this machine is set"), "{texts:?}");
        assert_eq!((events[0].source.as_str(), events[0].time_ns), ("fti0", begin + 40 * S));
        let recorded = rows(&ingest, "strongback.clocks{source=fti3,stream=\"fti.bay{bay=3}\"}");
        assert_eq!(recorded[0], ["I64(2999000000)", "F64(0.0)", "I64(450000)", "String(\"good\")", "U64(0)"]);
        assert!(recorded.len() >= 2 && recorded.len() <= 5, "{recorded:?}");
        // A clock that was never set is known from its first second on.
        assert!(rows(&ingest, "strongback.clocks{source=fti7,stream=\"fti.bay{bay=7}\"}").len() >= 5);
        // The server's own streams have no clock, and no streams of a reopened store are mistaken for these.
        assert_eq!(clocks.look(&ingest, begin + 49 * S), []);
        assert_eq!(clocks.readings().len(), 8);
        let histogram = ingest.live().fanout().arrivals.histogram(streams[0]).unwrap();
        let card = serde_json::to_value(ArrivalCard::new(&histogram, Some(S / 10))).unwrap();
        assert_eq!(card["nominal_ns"], "100000000");
        assert_eq!(card["over"][3], serde_json::json!({ "limit_ns": "45000000", "count": "479" }));
        assert_eq!(card["over"][4]["count"], "0");
        assert_eq!(card["counts"].as_array().unwrap().len(), card["edges_ns"].as_array().unwrap().len() + 1);
    }

    #[test]
    fn the_clock_of_the_machine_is_a_stream() {
        let (ingest, _dir) = ingest();
        record_node(&ingest, &NodeClock { state: "not known", by: "", tracking: None }, now_ns());
        let tracking = Tracking {
            reference: "PHC0".to_owned(),
            stratum: 1,
            offset_ns: -4,
            bound_ns: 9,
            frequency_ppm: 3.5,
            skew_ppm: 0.25,
            leap: "Normal".to_owned(),
        };
        record_node(&ingest, &NodeClock { state: "synchronised", by: "chrony", tracking: Some(tracking) }, now_ns());
        let rows = rows(&ingest, NODE_CLOCK);
        assert_eq!(rows[0][..3], ["String(\"not known\")", "String(\"\")", "Absent"]);
        let numbers = ["I64(-4)", "I64(9)", "F64(3.5)", "F64(0.25)", "U8(1)", "String(\"PHC0\")", "String(\"Normal\")"];
        assert_eq!(rows[1][2..], numbers);
    }
}
