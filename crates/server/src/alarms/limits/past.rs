//! Limits over stored data: the same judge on the same frames in the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Scan, StreamId, View};

use super::history;
use super::judge::{Judge, LimitFrame, Verdict};
use super::rule::Rule;
use crate::process::readers::{Leave, ReadError};
use crate::reception::order::Order;
use crate::reception::replay::Frames;

/// Max difference between the order of reception and the order of rows within a stream, nanoseconds.
const HOLD_NS: i64 = 1_000_000_000;
/// Frames between two checks of the time limit.
const FRAMES_A_LOOK: u64 = 1024;
/// Interval of checks for what became due; results do not depend on it.
const PASS_NS: i64 = 100_000_000;

/// Judges the frames of a span of `time` (nanoseconds since 1970 UTC, end exclusive), without state from before it,
/// and silence until the end of the span or until `now`, whichever is first. Calls `each` with each verdict; it
/// returns whether to continue. Late rows have the turn that they had live. Returns the receive time since which all
/// late rows are known, or `None` if all are.
///
/// # Errors
/// Returns an error if a scan ends early, or the time limit is reached.
pub fn judge(
    view: &View,
    rules: Arc<[Rule]>,
    time: Range<i64>,
    now: i64,
    leave: &Leave,
    mut each: impl FnMut(Verdict) -> bool,
) -> Result<Option<i64>, ReadError> {
    let late = history::late(view)?;
    let mut judge = Judge::new(rules);
    let mut streams: Vec<Frames> = Vec::new();
    // Next frame of each stream, the earliest first.
    let mut heads: BinaryHeap<Reverse<(i64, StreamId, usize)>> = BinaryHeap::new();
    let mut waiting: Vec<Option<LimitFrame>> = Vec::new();
    let judged = || view.catalog().streams.iter().filter(|stream| stream.source != "internal");
    judged().for_each(|stream| judge.note(stream));
    for stream in judged() {
        let Some((channels, _)) = judge.adopt(stream, |_, _| None) else { continue };
        leave.check()?;
        let scan = Scan { time: time.clone(), ..Scan::all(stream.id, channels) };
        let mut frames = Frames::new(view, scan);
        if let Some(first) = frames.next_frame()? {
            heads.push(Reverse((first.receive_time, stream.id, streams.len())));
            waiting.push(Some(first));
            streams.push(frames);
        }
    }
    let mut order = Order::default();
    let (mut newest, mut newest_time, mut passed) = (i64::MIN, i64::MIN, i64::MIN);
    let mut frames = 0_u64;
    while let Some(Reverse((receive_time, stream, at))) = heads.pop() {
        frames += 1;
        if frames.is_multiple_of(FRAMES_A_LOOK) {
            leave.check()?;
        }
        let Some(mut frame) = waiting[at].take() else { continue };
        let time_of_newest = frame.time;
        let turn = match frame.row.and_then(|row| late.turns.get(&(stream, row))) {
            None => Some(order.turn(receive_time)),
            Some(turn) => *turn,
        };
        if let Some(turn) = turn {
            frame.receive_time = turn;
            order.push(turn, stream, frame.row, frame);
        }
        if let Some(next) = streams[at].next_frame()? {
            heads.push(Reverse((next.receive_time, stream, at)));
            waiting[at] = Some(next);
        }
        if receive_time >= newest {
            (newest, newest_time) = (receive_time, time_of_newest);
        }
        let watermark = newest.saturating_sub(HOLD_NS);
        while let Some(frame) = order.pop_before(watermark) {
            judge.frame(&frame);
        }
        if watermark.saturating_sub(passed) >= PASS_NS {
            passed = watermark;
            if !judge.pass(watermark).into_iter().all(&mut each) {
                return Ok(late.known_from);
            }
        }
    }
    while let Some(frame) = order.pop_before(i64::MAX) {
        judge.frame(&frame);
    }
    // What became due after the last frame: the span ends as long after its reception as after its `time`.
    let rest = time.end.saturating_sub(newest_time).max(0);
    let until = newest.saturating_add(rest).min(now).max(newest);
    judge.pass(until).into_iter().all(&mut each);
    Ok(late.known_from)
}

#[cfg(test)]
mod tests {
    use strongback_store::{
        ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Store, StoreOptions, StreamKey,
        StreamSpec, Value,
    };

    use super::super::rule::tests::all;
    use super::*;

    const S: i64 = 1_000_000_000;
    const T0: i64 = 1_780_000_000 * S;

    fn stale_after_two_seconds() -> Arc<[Rule]> {
        all("[[limit]]\nchannels = [\"a.x\"]\nstale_ms = 2000")
    }

    #[test]
    fn what_did_not_come_behind_the_newest_frame_is_stale_until_the_span_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(dir.path(), StoreOptions::default(), T0).expect("a store");
        let spec = StreamSpec {
            key: StreamKey::new("a", []),
            source: "s".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("x", ChannelType::F64)],
        };
        let stream = store.resolve(&spec, T0).expect("a stream").0.id;
        let mut batch = FrameBatch::new();
        // Every second, except for three in between.
        for second in (0..10).chain(13..20) {
            let receive_time = T0 + second * S;
            batch.begin(FrameHead { stream, receive_time, source_time: None, sequence: None });
            batch.push(ChannelIndex(0), Value::F64(1.0));
            batch.end();
        }
        store.append(&batch, T0 + 20 * S);
        let stale_at = |to: i64, now: i64| {
            let mut found = Vec::new();
            let each = |verdict: Verdict| {
                found.push(((verdict.change.receive_time - T0) / S, verdict.change.to));
                true
            };
            judge(&store.view(), stale_after_two_seconds(), T0..to, now, &Leave::unlimited(), each).expect("judged");
            found.into_iter().map(|(at, level)| (at, level.name())).collect::<Vec<_>>()
        };
        let between = [(11, "warning"), (13, "normal")];
        let all = [between[0], between[1], (21, "warning")];
        // The same as live.
        assert_eq!(stale_at(i64::MAX, T0 + 1_000 * S), all);
        assert_eq!(stale_at(i64::MAX, T0 + 21 * S), between);
        assert_eq!(stale_at(T0 + 30 * S, T0 + 1_000 * S), all);
        assert_eq!(stale_at(T0 + 21 * S, T0 + 1_000 * S), between);
        assert_eq!(stale_at(T0 + 12 * S, T0 + 1_000 * S), between[..1]);
        assert_eq!(stale_at(T0 + 11 * S, T0 + 1_000 * S), []);
    }
}
