//! The source registry: what each source received, what became of it, its rate and its status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde::{Serialize, Serializer};
use strongback_query::{EventRow, SourceCounters, SourceRow};
use strongback_sources::ads::{AdsCounts, Trouble};
use strongback_sources::counts::{self, PacketCounts, Rejected};
use strongback_sources::ilp::IlpCounts;
use strongback_sources::inetx::Tally;
use strongback_sources::notes::Note;
use strongback_store::{Clock, Counts, Gap, GapCause, Scan, ScanError, Store, Stream, StreamId, View};

use crate::ingest::Ingest;
use crate::live::NewestFrame;
use crate::process::clock::{LEAP_NS, Leaps};
use crate::sources::expectation::{EndedSilence, Expectation, Seen, StatusChanges};
use crate::sources::ledger::LEVELS;
use crate::sources::silences::Silences;
use crate::text::json::Big;

/// Name of the source of derived channels.
pub const DERIVED_SOURCE: &str = "derived";
/// Time after which a source without a fixed cycle is silent.
const SILENT_AFTER_NS: i64 = 2_000_000_000;
/// Fraction of its expected rate below which a source is slow.
const SLOW: f64 = 0.9;
/// Max number of notes taken from one source at once.
const NOTES_AT_ONCE: usize = 16;
/// Time for which a source is shown as dropping.
const DROPPING_FOR: Duration = Duration::from_secs(5);

/// Counters that a source keeps itself, beside the store's.
#[derive(Clone, Debug)]
pub enum Own {
    /// A datagram source.
    Packets(Arc<PacketCounts>),
    /// Line protocol.
    Lines(Arc<IlpCounts>),
    /// A PLC.
    Plc(Arc<AdsCounts>),
    /// No counters: an import, or the server itself.
    Nothing,
}

impl Own {
    /// Returns the counts of what packets say of themselves, one for each stream; empty if it receives no packets.
    pub fn tallies(&self) -> &[Tally] {
        match self {
            Own::Packets(packets) => packets.tallies(),
            _ => &[],
        }
    }

    /// Returns the rejected data by reason, each with a sample.
    pub fn rejected(&self) -> Vec<Rejected> {
        match self {
            Own::Packets(packets) => packets.rejected.samples(),
            Own::Lines(lines) => lines.rejected.samples(),
            Own::Plc(plc) => plc.rejected.samples(),
            Own::Nothing => Vec::new(),
        }
    }

    /// Returns the number of packets without a layout, by stream id.
    pub fn unknown_streams(&self) -> BTreeMap<String, u64> {
        let Own::Packets(packets) = self else { return BTreeMap::new() };
        let (known, others) = packets.unknown_streams.snapshot();
        let known = known.into_iter().map(|(id, n)| (format!("{id:#010x}"), n));
        known.chain((others > 0).then(|| ("others".to_owned(), others))).collect()
    }
}

/// Returns whether sources of this kind receive from outside while the server runs; nothing is expected of others.
pub fn is_live(kind: &str) -> bool {
    !matches!(kind, "internal" | "import" | "derived")
}

#[derive(Debug)]
struct SourceState {
    name: String,
    kind: &'static str,
    address: String,
    own: Own,
    /// Newest note of the source above level `info`.
    trouble: parking_lot::Mutex<Option<String>>,
}

/// A source as `/api/sources` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SourceCard {
    /// Name of the source.
    pub name: String,
    /// Kind of the source: `inetx`, `ads`, `ilp`, `internal`, `derived` or `import`.
    pub kind: &'static str,
    /// Address the source listens on, or that of the PLC.
    pub address: String,
    /// Number of streams it feeds.
    pub streams: u64,
    /// Counters of the source.
    #[serde(flatten, serialize_with = "counters_as_text")]
    pub counters: SourceCounters,
    /// Rejected frames and data by reason.
    pub rejected_by: BTreeMap<&'static str, u64>,
    /// Current rate in frames a second.
    pub rate_hz: f64,
    /// Frames a second by the periods of its streams, if all have one.
    pub expected_rate_hz: Option<f64>,
    /// Current rate in values a second.
    pub points_per_s: f64,
    /// Time of the newest reception.
    pub last_receive_time: Option<Big<i64>>,
    /// `ok`, `silent`, `slow`, `dropping`; of a PLC also `disconnected`.
    pub status: &'static str,
    /// Packets without a layout, by stream id.
    pub unknown_streams: BTreeMap<String, u64>,
    /// Sums of what packets say of themselves, for a packet source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketCard>,
    /// Counters and state of a PLC, for an ADS source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plc: Option<PlcCard>,
    #[serde(skip)]
    points: u64,
}

/// Writes each counter as a member with its name.
fn counters_as_text<S: Serializer>(counters: &SourceCounters, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(SourceCounters::ALL.iter().map(|(name, _)| name).zip(counters.values().map(Big)))
}

/// Counts of what packets say of themselves and of their chassis.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PacketCard {
    /// Packets whose payload the chassis marked as erroneous.
    pub payload_errors: Big<u64>,
    /// Messages the chassis says it lost.
    pub chassis_lost: Big<u64>,
    /// Packets sent by a timeout of the chassis.
    pub timeouts: Big<u64>,
    /// Packets whose PTP stamp was no time.
    pub bad_ptp: Big<u64>,
    /// Packets with the stamp of a clock that was never set.
    pub never_set: Big<u64>,
    /// Blocks of parser-aligned payloads.
    pub blocks: Big<u64>,
    /// Blocks with an error.
    pub block_errors: Big<u64>,
    /// Blocks that made no frame because the layout has no entry for their bus.
    pub unmapped_blocks: Big<u64>,
}

impl PacketCard {
    /// Returns the counts of one stream id.
    pub fn of(tally: &Tally) -> PacketCard {
        let big = |counter| Big(counts::get(counter));
        PacketCard {
            payload_errors: big(&tally.payload_errors),
            chassis_lost: big(&tally.chassis_lost),
            timeouts: big(&tally.timeouts),
            bad_ptp: big(&tally.bad_ptp),
            never_set: big(&tally.never_set),
            blocks: big(&tally.blocks),
            block_errors: big(&tally.block_errors),
            unmapped_blocks: big(&tally.unmapped_blocks),
        }
    }

    /// Returns the name, meaning and value of each counter.
    pub fn counters(&self) -> [(&'static str, &'static str, u64); 8] {
        [
            ("payload_errors", "Packets whose payload the chassis marked as erroneous.", self.payload_errors.0),
            ("chassis_lost", "Messages the chassis says it lost.", self.chassis_lost.0),
            ("chassis_timeouts", "Packets sent by a timeout of the chassis.", self.timeouts.0),
            ("bad_ptp", "Packets whose PTP stamp was no time.", self.bad_ptp.0),
            ("never_set", "Packets with the stamp of a clock that was never set.", self.never_set.0),
            ("blocks", "Blocks of parser-aligned payloads.", self.blocks.0),
            ("block_errors", "Blocks with an error.", self.block_errors.0),
            ("unmapped_blocks", "Blocks of a bus that the layout has no entry for.", self.unmapped_blocks.0),
        ]
    }

    fn add(&mut self, other: &PacketCard) {
        self.payload_errors.0 += other.payload_errors.0;
        self.chassis_lost.0 += other.chassis_lost.0;
        self.timeouts.0 += other.timeouts.0;
        self.bad_ptp.0 += other.bad_ptp.0;
        self.never_set.0 += other.never_set.0;
        self.blocks.0 += other.blocks.0;
        self.block_errors.0 += other.block_errors.0;
        self.unmapped_blocks.0 += other.unmapped_blocks.0;
    }
}

/// Counters of a PLC source beyond its frames.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlcCard {
    /// Whether the PLC answers.
    pub connected: bool,
    /// Connections the PLC answered.
    pub connections: Big<u64>,
    /// Symbols being read.
    pub symbols: Big<u64>,
    /// Symbols that give no values.
    pub missing: Big<u64>,
    /// The first of them, with the reason.
    pub troubles: Vec<Trouble>,
    /// Open notification handles.
    pub handles: Big<u64>,
    /// Samples received in notifications.
    pub samples: Big<u64>,
    /// Requests without an answer.
    pub timeouts: Big<u64>,
    /// Missed cycles of notifications.
    pub dropped_cycles: Big<u64>,
    /// Notifications received long after their time.
    pub late: Big<u64>,
    /// Times the PLC's clock was set.
    pub clock_sets: Big<u64>,
    /// Times the PLC's program was read again.
    pub program_changes: Big<u64>,
    /// Groups received too fast.
    pub rate_alarms: Big<u64>,
}

impl PlcCard {
    fn of(plc: &AdsCounts) -> PlcCard {
        let big = |counter| Big(counts::get(counter));
        PlcCard {
            connected: plc.connected.load(Relaxed),
            connections: big(&plc.connections),
            symbols: big(&plc.symbols),
            missing: big(&plc.missing),
            troubles: plc.troubles(),
            handles: big(&plc.handles),
            samples: big(&plc.samples),
            timeouts: big(&plc.timeouts),
            dropped_cycles: big(&plc.dropped_cycles),
            late: big(&plc.late),
            clock_sets: big(&plc.clock_sets),
            program_changes: big(&plc.program_changes),
            rate_alarms: big(&plc.rate_alarms),
        }
    }
}

/// Rates of one source, and the counts they are computed from.
#[derive(Debug)]
struct SourceRates {
    received: u64,
    points: u64,
    drops: u64,
    at: Instant,
    rate_hz: f64,
    points_per_s: f64,
    dropped_at: Option<Instant>,
    /// Frames received, and when that count last changed.
    heard: (u64, Instant),
}

/// Expectations of the streams by number, and the changes still to be reported.
#[derive(Debug, Default)]
struct Streams {
    expectations: Vec<Expectation>,
    silences: Silences,
    clock: Leaps,
}

/// The source registry.
#[derive(Debug, Default)]
pub struct Roster {
    sources: RwLock<Vec<SourceState>>,
    cards: RwLock<Arc<Vec<SourceCard>>>,
    rates: parking_lot::Mutex<HashMap<String, SourceRates>>,
    streams: parking_lot::Mutex<Streams>,
}

impl Roster {
    /// Adds a source.
    pub fn add(&self, name: &str, kind: &'static str, address: String, own: Own) {
        let (name, trouble) = (name.to_owned(), parking_lot::Mutex::default());
        self.sources.write().push(SourceState { name, kind, address, own, trouble });
    }

    /// Returns the cards of all sources as of the last poll.
    pub fn cards(&self) -> Arc<Vec<SourceCard>> {
        self.cards.read().clone()
    }

    /// Returns the number of datagrams dropped by the kernel, over all sources.
    pub fn kernel_drops(&self) -> u64 {
        self.cards().iter().map(|c| c.counters.kernel_drops).sum()
    }

    /// Returns the notes of the sources since the last call, each with the name of its source.
    pub fn take_notes(&self) -> Vec<(String, Note)> {
        let mut taken = Vec::new();
        for source in self.sources.read().iter() {
            let notes = match &source.own {
                Own::Plc(plc) => plc.notes.take(NOTES_AT_ONCE),
                Own::Packets(packets) => packets.notes.take(NOTES_AT_ONCE),
                Own::Lines(_) | Own::Nothing => continue,
            };
            if let Some(trouble) = notes.iter().rfind(|note| note.level != LEVELS[0]) {
                *source.trouble.lock() = Some(trouble.text.clone());
            }
            taken.extend(notes.into_iter().map(|note| (source.name.clone(), note)));
        }
        taken
    }

    /// Returns the newest note of a source above level `info`.
    pub fn newest_trouble(&self, source: &str) -> Option<String> {
        self.sources.read().iter().find(|s| s.name == source)?.trouble.lock().clone()
    }

    /// Returns the counters that a source keeps itself.
    pub fn own(&self, source: &str) -> Own {
        self.sources.read().iter().find(|s| s.name == source).map_or(Own::Nothing, |s| s.own.clone())
    }

    /// Returns the expectations of streams as of the last poll.
    pub fn expectations(&self, streams: impl Iterator<Item = StreamId>) -> Vec<Expectation> {
        let of = self.streams.lock();
        streams.map(|stream| of.expectations.get(stream.0 as usize).cloned().unwrap_or_default()).collect()
    }

    /// Returns the learnt period of a stream in nanoseconds.
    pub fn learnt_period_ns(&self, stream: StreamId) -> Option<i64> {
        self.streams.lock().expectations.get(stream.0 as usize)?.learnt_period_ns()
    }

    /// Counts what streams that are silent at shutdown have missed.
    pub fn finish(&self, ingest: &Ingest, now: i64) {
        let store = ingest.store();
        let mut streams = self.streams.lock();
        for (stream, expectation) in store.catalog().streams.iter().zip(&mut streams.expectations) {
            if let Some(ended) = expectation.finish(now) {
                count_missing(&store, stream, &ended);
            }
        }
    }

    /// Counts what streams missed that were silent when the previous server was cut off, as [`Roster::finish`] does at
    /// an orderly shutdown. `view` is the store as that server left it. It started at `began` and wrote its newest
    /// commit at `until`; the server before it started at `before`, if that is known. Reads the disk, so it belongs on
    /// a reader thread.
    ///
    /// # Errors
    /// The first error of reading the newest frame of a stream; the other streams are still counted.
    pub fn finish_cut_off(
        &self,
        store: &Store,
        view: &View,
        (before, began): (Option<i64>, i64),
        until: i64,
    ) -> Result<(), ScanError> {
        let live: Vec<String> =
            self.sources.read().iter().filter(|s| is_live(s.kind)).map(|s| s.name.clone()).collect();
        let mut done = Ok(());
        for stream in view.catalog().streams.iter().filter(|s| !counts_itself(s) && live.contains(&s.source)) {
            let newest = Scan { newest_first: true, batch_rows: 1, ..Scan::all(stream.id, Vec::new()) };
            let batch = match view.scan(newest).next() {
                None => continue,
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    done = done.and(Err(error));
                    continue;
                }
            };
            // The cut-off server did not wait for streams that were silent since the start before its own.
            let waited_for = before.unwrap_or(began)..until;
            let Some(received) = batch.receive_time.first().copied().filter(|at| waited_for.contains(at)) else {
                continue;
            };
            let seen = Seen {
                now: received,
                frames: 1,
                received: Some(received),
                source: None,
                time: Some(batch.time(0)),
                given_ns: stream.expected_period_ns,
                may_learn: false,
            };
            let ended = match received < began {
                true => Expectation::missed_since(began, &seen, until),
                false => Expectation::missed_until(&seen, until),
            };
            if let Some(ended) = ended {
                count_missing(store, stream, &ended);
            }
        }
        done
    }

    /// Waits from `start` on for each stream with a given period that was received since the previous server started,
    /// at `began`. A silence across a restart is reported and counted on both sides.
    ///
    /// # Errors
    /// The first error of reading the newest frame of a stream; the other streams are still waited for.
    pub fn expect(&self, view: &View, began: i64, start: i64) -> Result<(), ScanError> {
        let live: Vec<String> =
            self.sources.read().iter().filter(|s| is_live(s.kind)).map(|s| s.name.clone()).collect();
        let mut done = Ok(());
        for stream in view.catalog().streams.iter().filter(|s| live.contains(&s.source)) {
            if stream.expected_period_ns.is_none_or(|period| period <= 0) {
                continue;
            }
            let newest = Scan { newest_first: true, batch_rows: 1, ..Scan::all(stream.id, Vec::new()) };
            match view.scan(newest).next() {
                Some(Ok(batch)) if batch.receive_time.first().is_some_and(|at| *at >= began) => {
                    let mut streams = self.streams.lock();
                    let at = stream.id.0 as usize;
                    if streams.expectations.len() <= at {
                        streams.expectations.resize_with(at + 1, Expectation::default);
                    }
                    streams.expectations[at].begin(start);
                }
                Some(Err(error)) => done = done.and(Err(error)),
                _ => {}
            }
        }
        done
    }

    /// Polls one stream of a source of this kind.
    fn look_at(
        streams: &mut Streams,
        store: &Store,
        stream: &Stream,
        kind: &str,
        newest: Option<NewestFrame>,
        now: i64,
    ) {
        if !is_live(kind) {
            return;
        }
        let at = stream.id.0 as usize;
        if streams.expectations.len() <= at {
            streams.expectations.resize_with(at + 1, Expectation::default);
        }
        let source = newest.and_then(|newest| newest.source_time);
        let received = newest.map(|newest| newest.receive_time);
        let mut turn = streams.expectations[at].look(&Seen {
            now,
            frames: newest.map_or(0, |newest| newest.frames),
            received,
            source,
            time: source.filter(|_| stream.clock == Clock::Source).or(received),
            given_ns: stream.expected_period_ns,
            // A PLC sends symbols without a period on change, so they have no rate to learn.
            may_learn: kind != "ads",
        });
        if let Some(ended) = &mut turn.ended {
            // Whether frames are missing, its sequence says; from a learnt period it is a guess.
            ended.missing = ended.missing.filter(|_| !counts_itself(stream));
            count_missing(store, stream, ended);
        }
        if turn != StatusChanges::default() {
            streams.silences.add(&stream.source, &stream.key.to_string(), &turn, now);
        }
    }

    /// Polls all streams and sources, and returns the events to record. The clocks are those of
    /// [`crate::process::clock::both`].
    pub fn look(&self, ingest: &Ingest, (now, steady): (i64, Duration)) -> Vec<EventRow> {
        let store = ingest.store();
        let catalog = store.catalog();
        let mut cards: Vec<SourceCard> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        for source in self.sources.read().iter() {
            index.insert(source.name.clone(), cards.len());
            let mut card = SourceCard {
                name: source.name.clone(),
                kind: source.kind,
                address: source.address.clone(),
                ..SourceCard::default()
            };
            add_own(&mut card, &source.own);
            cards.push(card);
        }
        let mut expected: Vec<Option<f64>> = vec![Some(0.0); cards.len()];
        let mut longest_period: Vec<i64> = vec![0; cards.len()];
        let newest: Vec<Option<NewestFrame>> = {
            let fanout = ingest.live().fanout();
            catalog.streams.iter().map(|s| fanout.newest_of(s.id)).collect()
        };
        let mut streams = self.streams.lock();
        if let Some(by_ns) = streams.clock.look((now, steady)) {
            streams.expectations.iter_mut().for_each(|expectation| expectation.leap(by_ns));
            streams.silences.leap(by_ns);
        }
        for (stream, newest) in catalog.streams.iter().zip(newest) {
            let at = *index.entry(stream.source.clone()).or_insert_with(|| {
                let kind = match (stream.key.is_internal(), stream.source == DERIVED_SOURCE) {
                    (true, _) => "internal",
                    (_, true) => "derived",
                    _ => "import",
                };
                cards.push(SourceCard { name: stream.source.clone(), kind, ..SourceCard::default() });
                expected.push(Some(0.0));
                longest_period.push(0);
                cards.len() - 1
            });
            let card = &mut cards[at];
            add_counts(card, &store.counts(stream.id));
            card.last_receive_time = card.last_receive_time.map(|t| t.0).max(newest.map(|n| n.receive_time)).map(Big);
            Roster::look_at(&mut streams, &store, stream, card.kind, newest, now);
            let period = stream.expected_period_ns.filter(|p| *p > 0);
            expected[at] = expected[at].zip(period).map(|(sum, p)| sum + 1e9 / p as f64);
            // A learnt period is an estimate, so a source waits longer for it, as its streams do.
            let learnt = || streams.expectations.get(stream.id.0 as usize)?.learnt_period_ns();
            let period = period.or_else(|| learnt().map(|period| period / 3 * 5)).unwrap_or(0);
            longest_period[at] = longest_period[at].max(period);
        }
        for ((card, expected), period) in cards.iter_mut().zip(expected).zip(longest_period) {
            card.expected_rate_hz = expected.filter(|rate| *rate > 0.0);
            self.judge(card, now, period);
        }
        *self.cards.write() = Arc::new(cards);
        streams.silences.take_due(now)
    }

    fn judge(&self, card: &mut SourceCard, now: i64, period: i64) {
        let mut rates = self.rates.lock();
        let at = Instant::now();
        let rate = rates.entry(card.name.clone()).or_insert_with(|| SourceRates {
            received: card.counters.received,
            points: card.points,
            drops: card.counters.kernel_drops,
            at,
            rate_hz: 0.0,
            points_per_s: 0.0,
            dropped_at: None,
            heard: (card.counters.received, at),
        });
        if card.counters.received != rate.heard.0 {
            rate.heard = (card.counters.received, at);
        }
        let seconds = at.duration_since(rate.at).as_secs_f64();
        if seconds >= 0.9 {
            rate.rate_hz = card.counters.received.saturating_sub(rate.received) as f64 / seconds;
            rate.points_per_s = card.points.saturating_sub(rate.points) as f64 / seconds;
            (rate.received, rate.points, rate.at) = (card.counters.received, card.points, at);
        }
        if card.counters.kernel_drops > rate.drops {
            rate.drops = card.counters.kernel_drops;
            rate.dropped_at = Some(at);
        }
        card.rate_hz = round(rate.rate_hz);
        card.points_per_s = round(rate.points_per_s);
        let dropping = rate.dropped_at.is_some_and(|t| at.duration_since(t) < DROPPING_FOR);
        let silent_after = SILENT_AFTER_NS.max(period.saturating_mul(3));
        let silent = card.last_receive_time.is_none_or(|last| match now.saturating_sub(last.0) {
            // The last reception was stamped by a clock that has been set back since.
            ago if ago < -LEAP_NS => at.duration_since(rate.heard.1).as_nanos() > silent_after as u128,
            ago => ago > silent_after,
        });
        let slow = card.expected_rate_hz.is_some_and(|expected| rate.rate_hz < expected * SLOW);
        card.status = match () {
            // Sources that are not live are never late.
            () if !is_live(card.kind) => "ok",
            () if card.plc.as_ref().is_some_and(|plc| !plc.connected) => "disconnected",
            () if dropping => "dropping",
            // Nothing is expected and nothing ever arrived, so nothing is missing.
            () if card.last_receive_time.is_none() && card.expected_rate_hz.is_none() => "ok",
            () if silent => "silent",
            () if slow => "slow",
            () => "ok",
        };
    }

    /// Returns the rows of `strongback.sources`.
    pub fn rows(&self) -> Vec<SourceRow> {
        let row = |card: &SourceCard| SourceRow {
            name: card.name.clone(),
            kind: card.kind.to_owned(),
            address: card.address.clone(),
            status: card.status.to_owned(),
            streams: card.streams,
            counters: card.counters,
            last_receive_time_ns: card.last_receive_time.map(|t| t.0),
        };
        self.cards().iter().map(row).collect()
    }
}

/// Returns whether a silence of the stream adds no gap: its sequence counts the loss, or it has at most a learnt
/// period.
fn counts_itself(stream: &Stream) -> bool {
    stream.sequence_modulus.is_some() || stream.expected_period_ns.is_none()
}

/// Adds a row of `strongback.gaps` for the frames lost in a silence, if nothing else counts them.
fn count_missing(store: &Store, stream: &Stream, ended: &EndedSilence) {
    let Some((count, from, to)) = ended.missing.filter(|_| !counts_itself(stream)) else { return };
    store.report_gap(Gap {
        id: 0,
        stream: Some(stream.id.0),
        cause: GapCause::Silence,
        source: stream.source.clone(),
        name: stream.key.to_string(),
        session: None,
        sequence: None,
        rows: None,
        time: (from, to),
        count,
    });
}

fn round(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Adds the counters kept by the source: data that never became a frame. The store counts the frames.
fn add_own(card: &mut SourceCard, own: &Own) {
    match own {
        Own::Packets(packets) => {
            card.counters.kernel_drops = counts::get(&packets.kernel_drops);
            card.rejected_by = packets.rejected.snapshot().into_iter().collect();
            card.unknown_streams = own.unknown_streams();
            let mut said = PacketCard::default();
            packets.tallies().iter().for_each(|tally| said.add(&PacketCard::of(tally)));
            card.packets = Some(said);
        }
        Own::Lines(lines) => {
            card.rejected_by = lines.rejected.snapshot().into_iter().collect();
            card.counters.type_conflicts = counts::get(&lines.type_conflicts);
        }
        Own::Plc(plc) => {
            card.rejected_by = plc.rejected.snapshot().into_iter().collect();
            card.plc = Some(PlcCard::of(plc));
        }
        Own::Nothing => {}
    }
    // Datagrams and lines that made no frame. Frames refused by the store are in the store's counts.
    let frameless: u64 = card.rejected_by.iter().filter(|(reason, _)| !is_store_reason(reason)).map(|(_, n)| n).sum();
    (card.counters.rejected, card.counters.received) = (frameless, frameless);
}

/// Returns whether a reason is one of the store's; see `Reject::reason`.
fn is_store_reason(reason: &str) -> bool {
    matches!(
        reason,
        "too_large"
            | "bad_time"
            | "bad_type"
            | "bad_length"
            | "arrays_too_large"
            | "disk_full"
            | "not_recorded"
            | "log_full"
            | "short_payload"
            | "bad_block"
    )
}

fn add_counts(card: &mut SourceCard, counts: &Counts) {
    card.streams += 1;
    card.points += counts.points;
    let counters = &mut card.counters;
    counters.received += counts.received;
    // Frames that a reduction left out are represented by stored ones.
    counters.stored += counts.stored + counts.reduced;
    counters.duplicate += counts.duplicate;
    counters.rejected += counts.rejected;
    counters.lost += counts.lost;
    counters.filled += counts.filled;
    counters.late += counts.late;
    counters.restarts += counts.restarts;
    counters.future += counts.future;
}

#[cfg(test)]
mod tests {
    use strongback_sources::ilp::Fault;

    use super::*;

    /// Lines that the parser refuses made no frame, so the store has not counted them.
    #[test]
    fn reasons_of_lines_are_none_of_the_store() {
        for fault in [
            Fault::InvalidUtf8,
            Fault::IntegerOutOfRange,
            Fault::NumberOutOfRange,
            Fault::BadTime,
            Fault::TimeOutOfRange,
            Fault::TooLong,
            Fault::NoMemory,
            Fault::Truncated,
            Fault::AfterTime,
        ] {
            assert!(!is_store_reason(fault.reason()), "{fault:?}");
        }
        assert!(is_store_reason(strongback_store::Reject::BadTime { stream: "m".into() }.reason()));
    }
}
