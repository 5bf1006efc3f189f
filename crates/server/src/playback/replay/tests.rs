use std::cell::RefCell;

use proptest::prelude::*;
use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Store, StoreOptions, StreamKey, StreamSpec, Value,
};

use super::*;

const T0: i64 = 1_790_000_000_000_000_000;
const S: i64 = 1_000_000_000;

pub(in crate::playback) fn options() -> StoreOptions {
    StoreOptions { log_bytes: 1 << 20, segment_bytes: 1 << 20, open_bytes: 64 << 10, ..StoreOptions::default() }
}

/// Creates a store with this number of streams, each with one channel and the source's `time`.
pub(in crate::playback) fn store_of(
    streams: usize,
    options: StoreOptions,
) -> (Store, Vec<StreamId>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options, T0).unwrap();
    let stream = |n: usize| {
        let spec = StreamSpec {
            key: StreamKey::new(format!("s{n}"), []),
            source: "test".to_owned(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("v", ChannelType::I64)],
        };
        store.resolve(&spec, T0).unwrap().0.id
    };
    let ids = (0..streams).map(stream).collect();
    (store, ids, dir)
}

/// Appends frames: stream, `time`, value. Returns the row of each.
pub(in crate::playback) fn append(store: &Store, frames: &[(StreamId, i64, i64)]) -> Vec<u64> {
    let mut rows = Vec::new();
    for some in frames.chunks(256) {
        let mut batch = FrameBatch::new();
        for (stream, time, value) in some {
            let head =
                FrameHead { stream: *stream, receive_time: T0 + 500 * S, source_time: Some(*time), sequence: None };
            batch.begin(head);
            batch.push(ChannelIndex(0), Value::I64(*value));
            batch.end();
        }
        for outcome in store.append(&batch, T0 + 500 * S).outcomes {
            let Outcome::Stored { row } = outcome else { panic!("{outcome:?}") };
            rows.push(row);
        }
        store.commit(T0 + 500 * S).unwrap();
        store.maintain(T0 + 500 * S).unwrap();
    }
    rows
}

fn wanted(ids: &[StreamId]) -> Vec<(StreamId, Vec<ChannelIndex>)> {
    ids.iter().map(|id| (*id, vec![ChannelIndex(0)])).collect()
}

/// Reads a replay up to and including a `time`: places, values, and whether frames are missing before.
fn played(replay: &mut Replay, due: i64) -> Vec<(FramePosition, i64, bool)> {
    let found = RefCell::new(Vec::new());
    loop {
        match replay.peek(due).unwrap() {
            NextFrame::None => return found.into_inner(),
            NextFrame::Unsure => {}
            NextFrame::At(place) => replay.take(|frame| {
                assert_eq!(frame.position(), place);
                let played = frame.played();
                let value = match played.batch.0.columns[0].cell(played.batch.1).unwrap() {
                    Value::I64(value) => value,
                    other => panic!("{other:?}"),
                };
                found.borrow_mut().push((place, value, played.arrived.gap));
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Compares with a sort of all appended frames: late rows, equal times, blocks and open rows, interrupted at
    /// random.
    #[test]
    fn frames_come_in_the_order_of_a_naive_sort(
        frames in prop::collection::vec((0_usize..4, 0_i64..60, 0_u8..4), 1..900),
        cuts in prop::collection::vec(0_i64..60, 0..6),
        (from, to) in (0_i64..30, 20_i64..64),
        maintained in any::<bool>(),
    ) {
        let (store, ids, _dir) = store_of(4, options());
        // Mostly ascending, with steps back as of late frames.
        let frames: Vec<(StreamId, i64, i64)> = frames.iter().enumerate().map(|(i, (stream, time, late))| {
            let time = if *late == 0 { *time } else { (i as i64 / 16).min(59) };
            (ids[*stream], T0 + time * S / 2, i as i64)
        }).collect();
        let rows = append(&store, &frames);
        store.commit(T0 + 500 * S).unwrap();
        while maintained && store.maintain(T0 + 500 * S).unwrap() {}
        let (from, to) = (T0 + from * S / 2, T0 + to * S / 2);
        let mut expected: Vec<(FramePosition, i64)> = frames.iter().zip(&rows)
            .map(|((stream, time, value), row)| (FramePosition { time: *time, stream: *stream, row: *row }, *value))
            .filter(|(place, _)| (from..to).contains(&place.time))
            .collect();
        expected.sort();
        let mut found: Vec<(FramePosition, i64)> = Vec::new();
        let mut replay = Replay::new(&store.view(), wanted(&ids), FramePosition::before(from), to);
        let mut cuts: Vec<i64> = cuts.iter().map(|cut| T0 + cut * S / 2).chain([to]).collect();
        cuts.sort();
        for (i, cut) in cuts.iter().enumerate() {
            found.extend(played(&mut replay, *cut).into_iter().map(|(place, value, _)| (place, value)));
            // Another replay continues where the previous one stopped, even within frames of one time.
            if i % 2 == 0 {
                let place = found.last().map_or(FramePosition::before(from), |(place, _)| *place);
                replay = Replay::new(&store.view(), wanted(&ids), place, to);
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(replay.take_troubles().is_empty());
    }
}

#[test]
fn more_rows_of_one_nanosecond_than_a_slice_holds_come_in_their_order() {
    let (store, ids, _dir) = store_of(2, options());
    let frames: Vec<_> = (0..10_000).map(|n| (ids[n % 2], T0 + S + n as i64 / 9_990, n as i64)).collect();
    append(&store, &frames);
    let mut replay = Replay::new(&store.view(), wanted(&ids), FramePosition::before(T0), T0 + 10 * S);
    let values: Vec<i64> = played(&mut replay, i64::MAX).iter().map(|(_, value, _)| *value).collect();
    let order = |stream: i64| (0..9_990).filter(move |n| n % 2 == stream).chain(Vec::new());
    let expected: Vec<i64> = order(0).chain(order(1)).chain([9_990, 9_992, 9_994, 9_996, 9_998]).collect();
    assert_eq!(values[..values.len() - 5], expected[..]);
    assert_eq!(values.len(), 10_000);
    // Continues within them.
    let place = FramePosition { time: T0 + S, stream: ids[0], row: 4_000 };
    let mut replay = Replay::new(&store.view(), wanted(&ids), place, T0 + 10 * S);
    let values: Vec<i64> = played(&mut replay, i64::MAX).iter().map(|(_, value, _)| *value).collect();
    assert_eq!((values[0], values.len()), (8_002, 10_000 - 4_001));
}

#[test]
fn a_quiet_stream_is_not_looked_at_in_advance_and_found_all_the_same() {
    let (store, ids, _dir) = store_of(2, options());
    let hours = 3_600 * S;
    append(&store, &[(ids[0], T0, 1), (ids[1], T0 + 24 * hours, 2), (ids[0], T0 + 30 * hours, 3)]);
    let mut replay = Replay::new(&store.view(), wanted(&ids), FramePosition::before(T0), T0 + 100 * hours);
    assert_eq!(played(&mut replay, T0 + hours).len(), 1);
    assert_eq!(replay.frames.held_frames(), 0, "the frame of a day later has been read");
    assert_eq!(played(&mut replay, T0 + 100 * hours).len(), 2);
}

#[test]
fn the_first_frame_behind_a_gap_says_so_once() {
    let (store, ids, _dir) = store_of(1, options());
    let frames: Vec<_> = (0..10).filter(|n| !(3..6).contains(n)).map(|n| (ids[0], T0 + n * S, n)).collect();
    append(&store, &frames);
    let mut replay = Replay::new(&store.view(), wanted(&ids), FramePosition::before(T0), T0 + 100 * S);
    replay.note_gaps(vec![(ids[0], T0 + 6 * S), (ids[0], T0), (ids[0], T0 + 99 * S), (StreamId(77), T0 + 7 * S)]);
    let told = |(_, value, gap): &(FramePosition, i64, bool)| gap.then_some(*value);
    assert_eq!(played(&mut replay, i64::MAX).iter().filter_map(told).collect::<Vec<i64>>(), [0, 6]);
    // Continues within them, where the first gap was already reported.
    let mut replay = Replay::new(&store.view(), wanted(&ids), FramePosition::after(T0), T0 + 100 * S);
    replay.note_gaps(vec![(ids[0], T0), (ids[0], T0 + 6 * S)]);
    assert_eq!(played(&mut replay, i64::MAX).iter().filter_map(told).collect::<Vec<i64>>(), [6]);
}
