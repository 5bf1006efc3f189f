//! What must not grow with the store: recovery's reads; and 100,000 quiet streams beside one at full rate.

use std::sync::Arc;

use super::sparse::{Reads, SparseDisk};
use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

fn tiny(n: u32) -> StreamSpec {
    spec("table", [("x", ChannelType::U64)]).tag("n", n)
}

fn append(store: &Store, rows: impl Iterator<Item = (StreamId, u64)>, now: i64) -> usize {
    let mut batch = FrameBatch::new();
    for (stream, value) in rows {
        batch.put(head(stream, now), [Value::U64(value)]);
    }
    store.append(&batch, now).outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count()
}

const STREAMS: usize = 10_000;
/// Streams that are quiet for ever once the first hundred segments are written.
const QUIET: usize = 100;

/// A store with so many segments, 10,000 streams and real footers, and what went into each stream.
struct Built {
    disk: SparseDisk,
    ids: Vec<StreamId>,
    /// Times and values.
    sent: Vec<Vec<(i64, u64)>>,
    now: i64,
}

fn open_tiny(disk: &SparseDisk) -> Store {
    let options = StoreOptions {
        log_bytes: 4 << 20,
        segment_bytes: 32 << 10,
        max_bytes: Some(1 << 40),
        // All rows are sealed at once.
        open_bytes: 0,
        ..StoreOptions::default()
    };
    Store::open_on(Arc::new(disk.clone()), options, T0).expect("opened")
}

/// Segments are as small as can be, with a row of a few of the streams in a mixed block, whose definitions fill the
/// footer; each sixteenth also has a block of its own of one busy stream.
fn build(segments: u64) -> Built {
    let disk = SparseDisk::default();
    let store = open_tiny(&disk);
    let mut ids = Vec::new();
    for n in 0..STREAMS as u32 {
        if n % 1_000 == 0 {
            store.upkeep(T0);
        }
        let mut spec = tiny(n);
        spec.channels[0].description = "as long as it takes to fill a segment with few streams; ".repeat(11);
        ids.push(store.stream(&spec));
    }
    let (mut now, mut random, mut sent) = (T0, fastrand::Rng::with_seed(1), vec![Vec::new(); STREAMS]);
    while store.stats().segments < segments {
        now += 1_000_000;
        let awake = if store.stats().segments < 100 { STREAMS } else { STREAMS - QUIET };
        let mut rows: Vec<usize> = (0..16).map(|_| random.usize(1..awake)).collect();
        if now / 1_000_000 % 16 == 0 {
            rows.extend([0; 300]);
        }
        let rows: Vec<(usize, u64)> = rows.into_iter().map(|n| (n, random.u64(..))).collect();
        assert_eq!(append(&store, rows.iter().map(|&(n, value)| (ids[n], value)), now), rows.len());
        rows.into_iter().for_each(|(n, value)| sent[n].push((now, value)));
        store.upkeep(now);
    }
    // Superblock, log, checkpoint and open segments, and copies of the disk itself: none of a sealed segment.
    assert!(disk.open_files() < 16, "{} open files", disk.open_files());
    Built { disk, ids, sent, now }
}

/// What a store reads when it is opened, by kind of file.
fn reads_at_open(segments: u64) -> Reads {
    let Built { disk, ids, sent, .. } = build(segments);
    disk.reads.lock().clear();
    let store = open_tiny(&disk);
    let reads = disk.reads.lock().clone();
    assert_eq!((store.catalog().streams.len(), store.stats().segments), (STREAMS, segments));
    // The rows of a stream lie all over the store: its footers are real.
    let view = store.view();
    for n in [0, 17] {
        let rows = sent[n].len() as u64;
        assert_eq!(view.next_row(ids[n]), rows);
        let batches = view.scan(Scan::all(ids[n], vec![ChannelIndex(0)]));
        assert_eq!(batches.map(|batch| batch.expect("reads").len() as u64).sum::<u64>(), rows);
    }
    // A process may have 1,024.
    assert!((100..300).contains(&disk.open_files()), "{} open files", disk.open_files());
    reads
}

/// What may grow with the segments is the checkpoint, which holds the directory: 79 bytes a segment, twice in the
/// worst case (deltas may be as long as their base), read in pieces of 4 MiB. Neither the number nor the bytes
/// of all other reads may: superblock, log, and of segments those that were open.
#[test]
fn opening_reads_as_much_with_16_000_segments_as_with_1_600() {
    let (few, many) = (reads_at_open(1_600), reads_at_open(16_000));
    println!("{few:?}\n{many:?}");
    for kind in ["superblock", "segment"] {
        assert_eq!(few[kind], many[kind], "{kind}");
    }
    assert!(few["superblock"].0 <= 2 && few["segment"].0 <= 2, "{few:?}");
    for (segments, reads) in [(1_600, &few), (16_000, &many)] {
        // Between two moves of its tail an eighth of the ring fills, and a quarter behind the end is searched.
        assert!(reads["log"].0 <= 20 && reads["log"].1 <= 20 << 20, "{reads:?}");
        let (count, bytes) = reads["checkpoint"];
        let base = 10_000 * 900 + segments * 79;
        assert!(bytes <= (2 * base).max(base + (1 << 20)) + (1 << 16) && count <= bytes.div_ceil(4 << 20), "{reads:?}");
    }
    assert_eq!(few.len() + many.len(), 8, "files of no other kind: {few:?} {many:?}");
}

#[test]
fn a_state_long_ago_reads_the_footers_of_few_segments() {
    let Built { disk, ids, sent, now } = build(1_600);
    let footers = || disk.reads.lock().get("trailer").map_or(0, |reads| reads.0);
    let check = |store: &Store, streams: &mut dyn Iterator<Item = usize>, time: i64| {
        let view = store.view();
        for n in streams {
            let expected = sent[n].iter().rfind(|row| row.0 <= time);
            let state = view.state_at(ids[n], time, &[ChannelIndex(0)]).expect("a state").remove(0);
            let found = state.map(|cell| (cell.time, cell.value));
            let expected = expected.map(|&(time, value)| (time, Some(OwnedValue::Plain(Value::U64(value)))));
            assert_eq!(found, expected, "stream {n} at {}", time - T0);
        }
    };
    let long_ago = T0 + (now - T0) / 5 * 4;
    // One that was quiet for a thousand segments, by itself; then all of them.
    let quiet = (STREAMS - QUIET..STREAMS).find(|&n| !sent[n].is_empty()).expect("one");
    for (streams, time, most) in [
        (quiet..quiet + 1, long_ago, 1),
        (0..STREAMS, long_ago, 160),
        (0..STREAMS, T0 + (now - T0) / 2, 160),
        (0..STREAMS, now, 1),
        (0..STREAMS, T0, 160),
    ] {
        let store = open_tiny(&disk);
        let before = footers();
        check(&store, &mut streams.clone(), time);
        let read = footers() - before;
        println!("{} streams: {read} footers of 1,600", streams.len());
        assert!(read <= most, "{} streams at {}: {read} footers", streams.len(), time - T0);
    }
}

#[test]
fn a_state_of_late_and_sparse_values_is_that_of_a_walk_through_all() {
    for seed in 0..3 {
        let (disk, mut random) = (SparseDisk::default(), fastrand::Rng::with_seed(seed));
        let mut store = open_tiny(&disk);
        let ids: Vec<StreamId> = (0..60)
            .map(|n| {
                let mut spec = tiny(n);
                spec.clock = if n % 3 == 0 { Clock::Receive } else { Clock::Source };
                spec.channels.push(ChannelSpec::new("rare", ChannelType::I64));
                spec.channels[0].description = "a long one, for small segments ".repeat(30);
                store.stream(&spec)
            })
            .collect();
        // Time and the cells of each row.
        let mut sent: Vec<Vec<(i64, [Option<u64>; 2])>> = vec![Vec::new(); ids.len()];
        let mut now = T0;
        for lap in 0..150 {
            now += 1_000_000;
            let mut batch = FrameBatch::new();
            // Sometimes all that comes is late: then an older segment has newer times.
            let all_late = if random.u8(0..3) == 0 { random.i64(1..40_000_000) } else { 0 };
            for _ in 0..16 {
                let mut n = random.usize(..ids.len());
                if all_late > 0 && n % 3 == 0 {
                    n += 1;
                }
                let late = if random.u8(0..4) == 0 { random.i64(0..40_000_000) } else { random.i64(0..1_000) };
                let late = late + all_late;
                let source_time = (n % 3 != 0).then_some(now - late);
                batch.begin(head(ids[n], now).sampled(source_time));
                let cells = [Some(random.u64(..)), (random.u8(0..12) == 0).then(|| random.u64(..1 << 60))];
                batch.push(ChannelIndex(0), Value::U64(cells[0].expect("a value")));
                if let Some(value) = cells[1] {
                    batch.push(ChannelIndex(1), Value::I64(value as i64));
                }
                batch.end();
                sent[n].push((source_time.unwrap_or(now), cells));
            }
            assert!(store.append(&batch, now).outcomes.iter().all(is_stored));
            // Now and then rows stay in memory, and the store is cut off.
            if lap % 10 != 9 {
                store.upkeep(now);
            } else if lap % 50 == 49 {
                store.commit(now).expect("committed");
                drop(store);
                store = open_tiny(&disk);
            }
        }
        assert!(store.stats().segments > 60, "{} segments", store.stats().segments);
        for again in [false, true] {
            if again {
                store.close(now).expect("closed");
                store = open_tiny(&disk);
            }
            let view = store.view();
            for (n, rows) in sent.iter().enumerate() {
                for time in [T0, now, i64::MAX].into_iter().chain((0..20).map(|_| random.i64(T0 - 10..now + 10))) {
                    let columns = [ChannelIndex(1), ChannelIndex(0)];
                    let found = view.state_at(ids[n], time, &columns).expect("a state");
                    for (cell, channel) in found.into_iter().zip([1, 0]) {
                        let rows =
                            rows.iter().enumerate().filter(|(_, (at, cells))| *at <= time && cells[channel].is_some());
                        let expected = rows.max_by_key(|(row, (at, _))| (*at, *row));
                        let expected = expected.map(|(row, (at, cells))| (*at, row as u64, cells[channel]));
                        let found = cell.map(|c| (c.time, c.row, c.value.map(|v| v.as_value().bits())));
                        assert_eq!(found, expected, "seed {seed}, stream {n}, channel {channel} at {}", time - T0);
                    }
                }
            }
        }
    }
}

#[test]
fn quiet_streams_beside_a_busy_one_lose_nothing_and_hold_nothing_up() {
    const QUIET: u32 = 100_000;
    let disk = FaultDisk::new(10);
    let options = StoreOptions { log_bytes: 32 << 20, max_bytes: Some(1 << 40), ..StoreOptions::default() };
    let store = Store::open_on(Arc::new(disk.clone()), options.clone(), T0).expect("opened");
    let ids: Vec<StreamId> = (0..=QUIET)
        .map(|n| {
            if n % 10_000 == 0 {
                store.upkeep(T0);
            }
            store.stream(&tiny(n))
        })
        .collect();
    let (busy, quiet) = ids.split_last().expect("streams");
    let (mut now, mut sent) = (T0, 0u64);
    for lap in 0..2u64 {
        for part in quiet.chunks(10_000) {
            assert_eq!(append(&store, part.iter().map(|&s| (s, lap)), now), part.len());
            store.upkeep(now);
        }
        // The busy one goes round the log: its tail must pass the quiet ones without waiting for them.
        for _ in 0..250 {
            now += 1_000_000;
            let rows = (0..4_000).map(|n| (*busy, sent + n));
            assert_eq!(append(&store, rows, now), 4_000, "refused: {:?}", store.refusal());
            sent += 4_000;
            store.upkeep(now);
        }
        let stats = store.stats();
        assert!(stats.open_bytes <= options.open_bytes as u64 + (4 << 20), "{stats:?}");
    }
    let check = |store: &Store| {
        let view = store.view();
        assert_eq!(view.next_row(*busy), sent);
        for &stream in quiet.iter().step_by(997) {
            let values: Vec<_> = view
                .scan(Scan::all(stream, vec![ChannelIndex(0)]))
                .flat_map(|b| {
                    let b = b.expect("reads");
                    (0..b.len()).map(|i| format!("{:?}", b.columns[0].cell(i))).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(values, ["Ok(U64(0))", "Ok(U64(1))"]);
        }
    };
    check(&store);
    drop(store);
    check(&Store::open_on(Arc::new(disk.clone()), options, now).expect("opened"));
}
