//! Limits over what was recorded: the same judge on the same frames in the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Scan, StreamId, View};

use super::history;
use super::judge::{Judge, Sighting, Verdict};
use super::rule::Rule;
use crate::readers::{Leave, ReadError};
use crate::reception::order::Order;
use crate::reception::replay::Frames;

/// By how much frames of a stream may have been received in another order than they were appended in.
const HOLD_NS: i64 = 1_000_000_000;
/// Frames between two looks whether to go on.
const FRAMES_A_LOOK: u64 = 1024;
/// How often what became due is looked for: what is found does not depend on it.
const PASS_NS: i64 = 100_000_000;

/// What limits say of the frames of a span of `time` (nanoseconds since 1970 UTC, end exclusive), from nothing known
/// before it on. `each` is told; it says whether to go on. Rows that came late have the turn that they had then.
///
/// # Errors
/// A scan that ends early, or its leave has ended.
pub fn judge(
    view: &View,
    rules: Arc<[Rule]>,
    time: Range<i64>,
    leave: &Leave,
    mut each: impl FnMut(Verdict) -> bool,
) -> Result<(), ReadError> {
    let late = history::late(view)?;
    let mut judge = Judge::new(rules);
    let mut streams: Vec<Frames> = Vec::new();
    // The next frame of each, the earliest first.
    let mut heads: BinaryHeap<Reverse<(i64, StreamId, usize)>> = BinaryHeap::new();
    let mut waiting: Vec<Option<Sighting>> = Vec::new();
    for stream in view.catalog().streams.iter().filter(|stream| stream.source != "internal") {
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
    let (mut newest, mut passed) = (i64::MIN, i64::MIN);
    let mut frames = 0_u64;
    while let Some(Reverse((receive_time, stream, at))) = heads.pop() {
        frames += 1;
        if frames.is_multiple_of(FRAMES_A_LOOK) {
            leave.check()?;
        }
        let Some(mut frame) = waiting[at].take() else { continue };
        let turn = match frame.row.and_then(|row| late.get(&(stream, row))) {
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
        newest = newest.max(receive_time);
        let watermark = newest.saturating_sub(HOLD_NS);
        while let Some(frame) = order.pop_before(watermark) {
            judge.frame(&frame);
        }
        if watermark.saturating_sub(passed) >= PASS_NS {
            passed = watermark;
            if !judge.pass(watermark).into_iter().all(&mut each) {
                return Ok(());
            }
        }
    }
    while let Some(frame) = order.pop_before(i64::MAX) {
        judge.frame(&frame);
    }
    // To the last frame: what would become due later is not known.
    judge.pass(newest).into_iter().all(&mut each);
    Ok(())
}
