//! The ledger: what sequences say of loss, and the rows of `strongback.gaps` that say it on.
//!
//! Invariants: every missing frame is in exactly one interval or was in one; `lost − filled` is what the
//! intervals hold, as far as no interval was forgotten (their number is bounded, oldest first).

use std::sync::Arc;

use crate::row::{NONE, RowShape};
use crate::stream::{ChannelIndex, ChannelSpec, Clock, Stream, StreamKey, StreamSpec};
use crate::value::{ChannelType, Value};

/// Name of the table of gaps.
pub(crate) const GAPS_TABLE: &str = "strongback.gaps";

/// A sequence this far back can be a late frame; one further back whose source went on is a restart.
const REORDER_FRAMES: i64 = 1024;
/// A repeated sequence this long after the newest is a restart, where the source gives no time.
const REORDER_NS: i64 = 2_000_000_000;
/// A leap forward over more frames is a restart, not a loss.
const LEAP_FRAMES: i64 = 1 << 24;
/// Gap of what is missing while no row of `strongback.gaps` was found that tells of it.
const UNKNOWN_GAP: u64 = u64::MAX;
/// Intervals of missing frames remembered a stream, so that late ones are known.
const INTERVALS_MAX: usize = 256;

/// What a frame's sequence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The next one, or the first.
    Next,
    /// Frames before it are missing.
    After {
        /// First missing.
        from: i64,
        /// Last missing.
        to: i64,
    },
    /// A missing one that came after all.
    Filled {
        /// The gap it was missing from.
        gap: u64,
    },
    /// Older than what is known, or already given up.
    Late,
    /// Came before.
    Duplicate,
    /// The source began anew.
    Restart,
}

/// Missing sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    from: i64,
    to: i64,
    gap: u64,
}

/// Whether it can be an unwrapped sequence. What the disk says may be anything, [`NONE`] for one, and is counted from.
fn can_be(sequence: i64) -> bool {
    sequence.unsigned_abs() <= 1 << 62
}

/// Follows the wire sequence of one stream and unwraps it.
#[derive(Clone, Debug)]
pub(crate) struct SequenceTracker {
    /// Wire sequences count modulo this.
    pub(crate) modulus: u64,
    session: u32,
    /// Lowest and highest unwrapped sequence of the session.
    range: Option<(i64, i64)>,
    /// Times of the frame with the highest sequence.
    receive_time: i64,
    source_time: Option<i64>,
    /// Source time that was the highest of late, and its reception: a source's clock may be set back.
    ahead: Option<(i64, i64)>,
    missing: Vec<Interval>,
    /// Session and highest sequence of the rows taken for sealing.
    pub(crate) sealed: Option<(u32, i64)>,
}

impl SequenceTracker {
    pub(crate) fn new(modulus: u64) -> Self {
        SequenceTracker {
            modulus: modulus.clamp(2, 1 << 62),
            session: 0,
            range: None,
            receive_time: NONE,
            source_time: None,
            ahead: None,
            missing: Vec::new(),
            sealed: None,
        }
    }

    /// `time`s of the newest frame: where a gap after it begins.
    pub(crate) fn newest(&self) -> (i64, Option<i64>) {
        (self.receive_time, self.source_time)
    }

    /// Goes on after a position.
    pub(crate) fn resume(&mut self, session: u32, highest: i64) {
        self.session = session;
        self.range = can_be(highest).then_some((highest, highest));
    }

    /// Takes a frame of the log back, as it was when it was judged first. What it finds missing has no gap until
    /// [`SequenceTracker::name_gap`].
    pub(crate) fn restore(&mut self, sequence: i64, session: u32, times: (i64, Option<i64>)) {
        if !can_be(sequence) {
            return;
        }
        if session != self.session {
            (self.session, self.range) = (session, None);
            self.missing.clear();
        }
        self.place(sequence, times, UNKNOWN_GAP);
    }

    /// Judges a frame; changes nothing. `sequence` is meant for [`SequenceTracker::take`].
    pub(crate) fn judge(&self, wire: u64, receive_time: i64, source_time: Option<i64>) -> (i64, Seen) {
        let modulus = self.modulus as i64;
        let wire = (wire % self.modulus) as i64;
        let Some((lowest, highest)) = self.range else { return (wire, Seen::Next) };
        let mut step = (wire - highest.rem_euclid(modulus)).rem_euclid(modulus);
        if step > modulus / 2 {
            step -= modulus;
        }
        let sequence = highest + step;
        let newer = match (source_time, self.source_time) {
            (Some(now), Some(before)) => Some(now > before.max(self.ahead_at(receive_time))),
            _ => None,
        };
        let quiet = receive_time.saturating_sub(self.receive_time) > REORDER_NS;
        if step > 0 {
            // Back near zero without having been near the end: not a wrap, and not that many lost.
            let began_anew = step > REORDER_FRAMES && wire < REORDER_FRAMES && newer != Some(false);
            if began_anew || step > LEAP_FRAMES {
                return (wire, Seen::Restart);
            }
            return match step {
                1 => (sequence, Seen::Next),
                _ => (sequence, Seen::After { from: highest + 1, to: sequence - 1 }),
            };
        }
        let within = -step <= REORDER_FRAMES;
        let missing = self.missing.iter().find(|i| (i.from..=i.to).contains(&sequence));
        // One that is waited for came late, whatever a clock that was set says meanwhile.
        if let Some(interval) = missing.filter(|_| within && !quiet) {
            return (sequence, Seen::Filled { gap: interval.gap });
        }
        // A source that goes on in time while its sequence falls back began anew.
        if newer == Some(true) || newer.is_none() && (!within || quiet) {
            return (wire, Seen::Restart);
        }
        if sequence < lowest {
            return (sequence, Seen::Late);
        }
        match missing {
            Some(interval) => (sequence, Seen::Filled { gap: interval.gap }),
            None => (sequence, Seen::Duplicate),
        }
    }

    /// Takes a judged frame that was stored; returns its session. `gap` names what it finds missing.
    pub(crate) fn take(&mut self, sequence: i64, seen: Seen, times: (i64, Option<i64>), gap: u64) -> u32 {
        if seen == Seen::Restart {
            self.session += 1;
            (self.range, self.ahead) = (None, None);
            self.missing.clear();
        }
        self.place(sequence, times, gap);
        self.session
    }

    fn place(&mut self, sequence: i64, times: (i64, Option<i64>), gap: u64) {
        let (lowest, highest) = self.range.unwrap_or((sequence, sequence));
        if sequence >= highest {
            if let Some(source_time) = times.1.filter(|time| *time >= self.ahead_at(times.0)) {
                self.ahead = Some((source_time, times.0));
            }
            (self.receive_time, self.source_time) = times;
        }
        if sequence > highest + 1 {
            self.miss(Interval { from: highest + 1, to: sequence - 1, gap });
        } else if let Some(at) = self.missing.iter().position(|i| (i.from..=i.to).contains(&sequence)) {
            let interval = self.missing.remove(at);
            for (from, to) in [(interval.from, sequence - 1), (sequence + 1, interval.to)] {
                if from <= to {
                    self.miss(Interval { from, to, gap: interval.gap });
                }
            }
        }
        self.range = Some((lowest.min(sequence), highest.max(sequence)));
    }

    /// Takes a sequence back that was taken: its frame is missing after all, in `gap`.
    pub(crate) fn miss_taken(&mut self, sequence: i64, gap: u64) {
        match self.missing.last_mut() {
            Some(last) if last.gap == gap && last.to + 1 == sequence => last.to = sequence,
            _ => self.miss(Interval { from: sequence, to: sequence, gap }),
        }
    }

    /// Goes on where the tracker of a store that failed stood. What that one took and this one, which knows
    /// what is durable, did not is missing in `gap`. Returns session, lowest and highest sequence of it.
    pub(crate) fn take_over(&mut self, before: &SequenceTracker, gap: u64) -> Option<(u32, i64, i64)> {
        let (lowest, highest) = before.range?;
        let from = match self.range {
            Some((_, durable)) if self.session == before.session => durable + 1,
            _ => lowest,
        };
        let mut tracker = before.clone();
        let mut known: Vec<Interval> = before.missing.iter().filter(|i| i.to >= from).copied().collect();
        known.sort_unstable_by_key(|i| i.from);
        let mut at = from;
        let mut found: Option<(u32, i64, i64)> = None;
        for end in known.iter().map(|i| (i.from, i.to)).chain([(highest + 1, highest + 1)]) {
            if at < end.0 {
                tracker.miss(Interval { from: at, to: end.0 - 1, gap });
                let first = found.map_or(at, |f| f.1);
                found = Some((before.session, first, end.0 - 1));
            }
            at = at.max(end.1 + 1);
        }
        tracker.sealed = self.sealed;
        *self = tracker;
        found
    }

    /// Names the gap of what is missing within a range: its row is found after the frames that showed it.
    pub(crate) fn name_gap(&mut self, session: u32, (from, to): (i64, i64), gap: u64) {
        if session != self.session || !self.missing.iter().any(|i| i.from <= to && i.to >= from) {
            return;
        }
        for old in std::mem::take(&mut self.missing) {
            let (a, b) = (old.from.max(from), old.to.min(to));
            if a > b {
                self.miss(old);
                continue;
            }
            for (from, to, gap) in [(old.from, a - 1, old.gap), (a, b, gap), (b + 1, old.to, old.gap)] {
                if from <= to {
                    self.miss(Interval { from, to, gap });
                }
            }
        }
    }

    /// How far ahead the source's clock was within the time in which frames may come out of order.
    fn ahead_at(&self, receive_time: i64) -> i64 {
        let recent = self.ahead.filter(|(_, received)| receive_time.saturating_sub(*received) <= REORDER_NS);
        recent.map_or(i64::MIN, |(source_time, _)| source_time)
    }

    fn miss(&mut self, interval: Interval) {
        if self.missing.len() == INTERVALS_MAX {
            self.missing.remove(0);
        }
        self.missing.push(interval);
    }
}

/// What a row of `strongback.gaps` says. Its column `cause` has the words in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapCause {
    /// Lost before the receiver, by the sequence: "sequence".
    Sequence,
    /// Missing frames of an earlier row with the same `id` came late after all: "filled".
    Filled,
    /// The source began its sequence anew; nothing is known lost: "restart".
    Restart,
    /// The kernel dropped datagrams of a socket without sequences: "kernel".
    Kernel,
    /// A power cut tore the end of the commit log: "torn".
    Torn,
    /// What the store could not record while it refused, or lost when its disk failed: "not recorded".
    NotRecorded,
    /// Rows that were durable and lay in a damaged place of the disk: "damaged".
    Damaged,
    /// A stream without sequences, of which the period is given, did not come: "silence".
    Silence,
    /// As `NotRecorded`, but whoever sent the frames was told and may send them again, so nothing is known lost:
    /// "refused".
    Refused,
}

impl GapCause {
    /// The word in the column `cause`.
    pub fn name(self) -> &'static str {
        match self {
            GapCause::Sequence => "sequence",
            GapCause::Filled => "filled",
            GapCause::Restart => "restart",
            GapCause::Kernel => "kernel",
            GapCause::Torn => "torn",
            GapCause::NotRecorded => "not recorded",
            GapCause::Damaged => "damaged",
            GapCause::Refused => "refused",
            GapCause::Silence => "silence",
        }
    }
}

/// A row of `strongback.gaps`. Of equal stream and cause, one row a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// Names the gap; a `filled` row has the id of the gap it fills.
    pub id: u64,
    /// Number of the stream; none for what has no stream.
    pub stream: Option<u32>,
    /// Why.
    pub cause: GapCause,
    /// Name of the source.
    pub source: String,
    /// Name of the stream, `table{tag=value}`.
    pub name: String,
    /// Session of the sequences.
    pub session: Option<u32>,
    /// First and last missing sequence.
    pub sequence: Option<(i64, i64)>,
    /// First and last row lost, where frames were stored before.
    pub rows: Option<(u64, u64)>,
    /// `time` of the frame before and of the one after, nanoseconds since 1970 UTC.
    pub time: (i64, i64),
    /// Frames.
    pub count: u64,
}

/// Columns of `strongback.gaps` by what recovery needs of them.
const ID: usize = 0;
const STREAM: usize = 1;
const CAUSE: usize = 2;
const SESSION: usize = 5;
const FROM: usize = 6;
const TO: usize = 7;

/// What recovery needs of a row of `strongback.gaps`.
pub(crate) struct NamedGap {
    pub(crate) id: u64,
    pub(crate) stream: u32,
    pub(crate) session: u32,
    pub(crate) sequence: (i64, i64),
}

/// What a row of `strongback.gaps` in the log says of missing sequences, if anything.
pub(crate) fn named_gap(shape: &RowShape, words: &[u64], text: &[u8]) -> Option<NamedGap> {
    let get = |column| shape.value(words, text, column);
    let loss = matches!(get(CAUSE)?, Value::String(cause)
        if cause == GapCause::Sequence.name() || cause == GapCause::NotRecorded.name());
    match (loss, get(ID)?, get(STREAM)?, get(SESSION)?, get(FROM)?, get(TO)?) {
        (true, Value::U64(id), Value::U32(stream), Value::U32(session), Value::I64(from), Value::I64(to)) => {
            Some(NamedGap { id, stream, session, sequence: (from, to) })
        }
        _ => None,
    }
}

/// Columns of `strongback.gaps`, in order.
const COLUMNS: [(&str, ChannelType, &str, &str); 13] = [
    ("id", ChannelType::U64, "", "names the gap; a filled row has the id of the gap it fills"),
    ("stream", ChannelType::U32, "", "number of the stream; null where there is none"),
    (
        "cause",
        ChannelType::String,
        "",
        "sequence, filled, restart, kernel, torn, not recorded, damaged, refused, silence",
    ),
    ("source", ChannelType::String, "", "name of the source"),
    ("name", ChannelType::String, "", "name of the stream"),
    ("gap_session", ChannelType::U32, "", "session of the sequences"),
    ("from_sequence", ChannelType::I64, "", "first missing sequence"),
    ("to_sequence", ChannelType::I64, "", "last missing sequence"),
    ("from_time", ChannelType::I64, "ns", "time of the frame before"),
    ("to_time", ChannelType::I64, "ns", "time of the frame after"),
    ("count", ChannelType::U64, "", "frames"),
    ("from_row", ChannelType::U64, "", "first row lost, of frames that were stored"),
    ("to_row", ChannelType::U64, "", "last row lost, of frames that were stored"),
];

/// The spec of `strongback.gaps`.
pub(crate) fn gaps_spec() -> StreamSpec {
    StreamSpec {
        key: StreamKey::new(GAPS_TABLE, []),
        source: "strongback".into(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: COLUMNS
            .iter()
            .map(|&(name, channel_type, unit, description)| ChannelSpec {
                name: name.into(),
                channel_type,
                unit: unit.into(),
                description: description.into(),
                reduction: crate::Reduction::None,
            })
            .collect(),
    }
}

impl Gap {
    /// Adds its row to a batch.
    pub(crate) fn push(&self, stream: &Arc<Stream>, now: i64, batch: &mut crate::FrameBatch) {
        batch.begin(crate::FrameHead { stream: stream.id, receive_time: now, source_time: None, sequence: None });
        let mut put = |i: u16, value: Value<'_>| batch.push(ChannelIndex(i), value);
        put(0, Value::U64(self.id));
        if let Some(stream) = self.stream {
            put(1, Value::U32(stream));
        }
        put(2, Value::String(self.cause.name()));
        put(3, Value::String(&self.source));
        put(4, Value::String(&self.name));
        if let Some(session) = self.session {
            put(5, Value::U32(session));
        }
        if let Some((from, to)) = self.sequence {
            put(6, Value::I64(from));
            put(7, Value::I64(to));
        }
        put(8, Value::I64(self.time.0));
        put(9, Value::I64(self.time.1));
        put(10, Value::U64(self.count));
        if let Some((from, to)) = self.rows {
            put(11, Value::U64(from));
            put(12, Value::U64(to));
        }
        batch.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_of_the_disk_that_cannot_be_is_none() {
        for forged in [i64::MAX, i64::MAX - 1, i64::MIN + 1, NONE] {
            let mut tracker = SequenceTracker::new(1 << 16);
            tracker.restore(5, 0, (1, None));
            tracker.restore(forged, 0, (2, None));
            assert_eq!(tracker.judge(7, 3, None), (7, Seen::After { from: 6, to: 6 }), "{forged}");
            tracker.resume(1, forged);
            assert_eq!(tracker.judge(7, 3, None), (7, Seen::Next), "{forged}");
        }
    }

    /// Feeds wire sequences, each with its source time, and counts (lost, filled, duplicate, late, restart).
    fn run(modulus: u64, frames: &[(u64, i64)]) -> (Vec<i64>, [u64; 5], u32) {
        let mut tracker = SequenceTracker::new(modulus);
        let (mut sequences, mut counts, mut session) = (Vec::new(), [0; 5], 0);
        for (n, &(wire, source)) in frames.iter().enumerate() {
            let (sequence, seen) = tracker.judge(wire, n as i64 * 1000, Some(source));
            match seen {
                Seen::Next => {}
                Seen::After { from, to } => counts[0] += (to - from + 1) as u64,
                Seen::Filled { .. } => counts[1] += 1,
                Seen::Duplicate => {
                    counts[2] += 1;
                    continue;
                }
                Seen::Late => counts[3] += 1,
                Seen::Restart => counts[4] += 1,
            }
            session = tracker.take(sequence, seen, (n as i64 * 1000, Some(source)), n as u64);
            sequences.push(sequence);
        }
        (sequences, counts, session)
    }

    #[test]
    fn a_wrap_is_no_gap() {
        let m = 1 << 32;
        let (sequences, counts, _) = run(m, &[(m - 2, 1), (m - 1, 2), (0, 3), (1, 4), (4, 7)]);
        let base = m as i64;
        assert_eq!(sequences, [base - 2, base - 1, base, base + 1, base + 4]);
        assert_eq!(counts, [2, 0, 0, 0, 0]);
    }

    #[test]
    fn late_frames_fill_and_twice_is_a_duplicate() {
        let (_, counts, _) = run(1 << 32, &[(5, 5), (8, 8), (7, 7), (7, 7), (6, 6), (6, 6), (8, 8), (4, 4)]);
        assert_eq!(counts, [2, 2, 3, 1, 0]);
    }

    #[test]
    fn a_clock_that_is_set_makes_no_restart_of_what_comes_late_or_twice() {
        // Ahead by 1,000 from sequence 6 on, and back at 9: 5 and 7 come late, 8 again.
        let frames = [(4, 4), (6, 1_006), (5, 5), (8, 1_008), (9, 9), (7, 1_007), (8, 1_008), (10, 10)];
        assert_eq!(run(1 << 32, &frames).1, [2, 2, 1, 0, 0]);
        // A restart while a clock is behind what it was is one once nothing can be late any more.
        let mut tracker = SequenceTracker::new(1 << 32);
        for (sequence, at, source) in [(5, 0, 1_000), (6, 1, 10)] {
            let (sequence, seen) = tracker.judge(sequence, at, Some(source));
            tracker.take(sequence, seen, (at, Some(source)), 0);
        }
        assert_eq!(tracker.judge(5, 2, Some(1_000)).1, Seen::Duplicate);
        assert_eq!(tracker.judge(5, 2 + REORDER_NS, Some(500)).1, Seen::Restart);
    }

    #[test]
    fn a_restart_is_neither_a_wrap_nor_billions_lost() {
        for highest in [500, 70_000, 3_000_000_000] {
            let (_, counts, session) = run(1 << 32, &[(highest, 1), (highest + 1, 2), (0, 100), (1, 101)]);
            assert_eq!((counts, session), ([0, 0, 0, 0, 1], 1), "from {highest}");
        }
    }
}
