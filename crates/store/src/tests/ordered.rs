//! Frames in the order of (`time`, stream, row), against a sort of all that was appended.

use proptest::prelude::*;

use crate::read::ordered_stream::OrderedStream;
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000_000_000;
const NOW: i64 = T0 + 500 * S;

/// Appends frames: stream, `time`, text. Returns the row of each.
fn append(store: &Store, frames: &[(StreamId, i64, String)]) -> Vec<u64> {
    let mut rows = Vec::new();
    for some in frames.chunks(256) {
        let mut batch = FrameBatch::new();
        for (stream, time, text) in some {
            batch.put(head(*stream, NOW).sampled(Some(*time)), [Value::String(text)]);
        }
        for outcome in store.append(&batch, NOW).outcomes {
            let Outcome::Stored { row } = outcome else { panic!("{outcome:?}") };
            rows.push(row);
        }
        store.commit(NOW).unwrap();
        store.maintain(NOW).unwrap();
    }
    rows
}

fn store_of(streams: usize) -> (Store, Vec<StreamId>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options =
        StoreOptions { log_bytes: 1 << 20, segment_bytes: 1 << 20, open_bytes: 64 << 10, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options, T0).unwrap();
    let ids =
        (0..streams).map(|n| store.stream(&spec(format!("s{n}"), [("v", ChannelType::String)]).clock(Clock::Source)));
    let ids = ids.collect();
    (store, ids, dir)
}

/// Reads all, run by run. Returns positions and texts, and the most bytes of texts that were held.
fn read(store: &Store, scan: &OrderedScan) -> (Vec<(FramePosition, String)>, usize) {
    let mut frames = OrderedFrames::new(&store.view(), scan);
    let (mut found, mut most) = (Vec::new(), 0);
    let due = if scan.newest_first { i64::MIN } else { i64::MAX };
    loop {
        match frames.peek(due).unwrap() {
            NextFrame::Unsure => continue,
            NextFrame::None => break,
            NextFrame::At(position) => {
                let frame = frames.frame().unwrap();
                assert_eq!(frame.position, position);
                assert_eq!(scan.streams[frame.stream].0, position.stream);
                assert_eq!((frame.batch.time(frame.row), frame.batch.rows[frame.row]), (position.time, position.row));
                let (until, rows_max) = (position.time + S * (found.len() as i64 % 3), 1 + found.len() % 9);
                let run = frames.run(until, rows_max);
                assert!(run > 0 && run <= rows_max);
                for row in frame.row..frame.row + run {
                    let Ok(Value::String(text)) = frame.batch.columns[0].cell(row) else { panic!("no text") };
                    let position =
                        FramePosition { time: frame.batch.time(row), row: frame.batch.rows[row], ..position };
                    assert!(scan.newest_first || position.time <= until);
                    found.push((position, text.to_owned()));
                }
                most = most.max(frame.batch.varying_bytes());
                frames.advance_by(run);
            }
        }
    }
    assert!(frames.take_troubles().is_empty());
    assert_eq!(frames.peek(due).unwrap(), NextFrame::None);
    (found, most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Late rows and none, equal times, blocks and open rows, both directions, from any position, in any memory.
    #[test]
    fn frames_come_in_the_order_of_a_naive_sort(
        frames in prop::collection::vec((0_usize..4, 0_i64..60, 0_u8..4), 1..900),
        is_late in any::<bool>(),
        (from, to) in (0_i64..30, 20_i64..64),
        (newest_first, reads_ahead, maintained) in any::<(bool, bool, bool)>(),
        (memory_bytes, slice_rows, limit) in (0_usize..4000, 0_usize..400, 1_usize..1000),
        after in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (store, ids, _dir) = store_of(4);
        // Mostly rising, with steps back where some come late.
        let frames: Vec<(StreamId, i64, String)> = frames.iter().enumerate().map(|(i, (stream, time, late))| {
            let time = if is_late && *late == 0 { *time } else { (i as i64 / 16).min(59) };
            (ids[*stream], T0 + time * S / 2, format!("{i}"))
        }).collect();
        let rows = append(&store, &frames);
        while maintained && store.maintain(NOW).unwrap() {}
        let time = T0 + from * S / 2..T0 + to * S / 2;
        let mut expected: Vec<(FramePosition, String)> = frames.iter().zip(&rows)
            .map(|((stream, time, text), row)| (FramePosition { time: *time, stream: *stream, row: *row }, text.clone()))
            .collect();
        expected.sort();
        let after = after.map(|at| at.get(&expected).0);
        if newest_first {
            expected.reverse();
        }
        let is_behind = |position: &FramePosition| match after {
            Some(after) if newest_first => *position < after,
            Some(after) => *position > after,
            None => true,
        };
        expected.retain(|(position, _)| time.contains(&position.time) && is_behind(position));
        let streams = ids.iter().map(|id| (*id, vec![ChannelIndex(0)])).collect();
        let scan = OrderedScan {
            time, after, newest_first, reads_ahead, limit, memory_bytes, slice_rows, ..OrderedScan::all(streams)
        };
        prop_assert_eq!(read(&store, &scan).0, expected);
    }
}

#[test]
fn slices_of_long_texts_are_bounded_in_bytes() {
    const ROWS: usize = 2_000;
    const TEXT_BYTES: usize = 500;
    let spread = |row: usize| T0 + (row * 977 % ROWS) as i64 * 1_000;
    let instants = |row: usize| T0 + (ROWS - row) as i64 / 700;
    for time in [&spread as &dyn Fn(usize) -> i64, &instants] {
        let (store, ids, _dir) = store_of(1);
        let frames: Vec<_> = (0..ROWS).map(|row| (ids[0], time(row), format!("{row:0>TEXT_BYTES$}"))).collect();
        append(&store, &frames);
        for newest_first in [false, true] {
            let all = OrderedScan { newest_first, ..OrderedScan::all(vec![(ids[0], vec![ChannelIndex(0)])]) };
            let small = OrderedScan { memory_bytes: 20 * TEXT_BYTES, ..all.clone() };
            let ((all, _), (found, most)) = (read(&store, &all), read(&store, &small));
            assert_eq!(all.len(), ROWS);
            assert!(all == found, "the order depends on the memory");
            // One batch at most beyond the bound, of as many rows as a slice may have and one.
            assert!(most <= (20 * TEXT_BYTES / 73 + 2) * TEXT_BYTES, "{most} bytes");
        }
    }
}

#[test]
fn a_stream_is_read_no_further_than_asked_for() {
    let (store, ids, _dir) = store_of(2);
    let hours = 3_600 * S;
    let text = |n: u8| n.to_string();
    append(&store, &[(ids[0], T0, text(1)), (ids[1], T0 + 24 * hours, text(2)), (ids[0], T0 + 30 * hours, text(3))]);
    let streams = ids.iter().map(|id| (*id, vec![ChannelIndex(0)])).collect();
    let mut frames =
        OrderedFrames::new(&store.view(), &OrderedScan { reads_ahead: false, ..OrderedScan::all(streams) });
    let mut found = 0;
    for (due, in_all) in [(T0 + hours, 1), (T0 + 24 * hours, 2), (T0 + 100 * hours, 3)] {
        loop {
            match frames.peek(due).unwrap() {
                NextFrame::Unsure => continue,
                NextFrame::None => break,
                NextFrame::At(_) => found += 1,
            }
            frames.advance();
        }
        assert_eq!(found, in_all);
        assert!(due > T0 + hours || frames.held_frames() == 0, "a frame of a day later has been read");
    }
}

/// Each slice of time reads all blocks that overlap it, and a block with a wrong time overlaps them all.
#[test]
fn a_few_times_that_are_centuries_away_take_few_slices() {
    let (store, ids, _dir) = store_of(1);
    let mut frames: Vec<(StreamId, i64, String)> =
        (0..3_000_i64).map(|n| (ids[0], T0 + n * 7_919 % 3_000 * S, n.to_string())).collect();
    for n in 0..60_i64 {
        frames[n as usize * 50].1 = (n - 30) * 300_000_000 * S;
    }
    append(&store, &frames);
    while store.maintain(NOW).unwrap() {}
    for newest_first in [false, true] {
        let scan = OrderedScan { newest_first, ..OrderedScan::all(vec![(ids[0], vec![ChannelIndex(0)])]) };
        let view = store.view();
        let mut stream = OrderedStream::new(&view, &scan, ids[0], &[ChannelIndex(0)]);
        let (mut slices, mut found, mut troubles) = (0, 0, Vec::new());
        while stream.bound().is_some() {
            stream.read(&view, &mut troubles).unwrap();
            slices += 1;
            while stream.head().is_some() {
                found += 1;
                stream.advance(1);
            }
        }
        assert_eq!(found, 3_000);
        assert!(slices < 500, "{slices} slices, newest first: {newest_first}");
    }
}
