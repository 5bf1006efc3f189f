//! What must not grow with the store: recovery's reads; and 100,000 quiet streams beside one at full rate.

use std::sync::Arc;

use super::sparse::{Reads, SparseDisk};
use crate::disk::fault::FaultDisk;
use crate::*;

const T0: i64 = 1_790_000_000_000_000_000;

fn spec(n: u32) -> StreamSpec {
    StreamSpec {
        key: StreamKey::new("table", [("n".to_owned(), n.to_string())]),
        source: "test".into(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: vec![ChannelSpec::new("x", ChannelType::U64)],
    }
}

fn append(store: &Store, rows: impl Iterator<Item = (StreamId, u64)>, now: i64) -> usize {
    let mut batch = FrameBatch::new();
    for (stream, value) in rows {
        batch.begin(FrameHead { stream, receive_time: now, source_time: None, sequence: None });
        batch.push(ChannelIndex(0), Value::U64(value));
        batch.end();
    }
    store.append(&batch, now).outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count()
}

/// What a store with so many segments, 10,000 streams and real footers reads when it is opened, by kind of file.
///
/// Segments are as small as can be, with a row of a few of the streams in a mixed block, whose definitions fill the
/// footer; each sixteenth also has a block of its own of one busy stream.
fn reads_at_open(segments: u64) -> Reads {
    const STREAMS: usize = 10_000;
    let disk = SparseDisk::default();
    let options = StoreOptions {
        log_bytes: 4 << 20,
        segment_bytes: 32 << 10,
        max_bytes: Some(1 << 40),
        // All rows are sealed at once.
        open_bytes: 0,
        ..StoreOptions::default()
    };
    let open = || Store::open_on(Arc::new(disk.clone()), options.clone(), T0).expect("opened");
    let store = open();
    let settle = |now: i64| {
        store.commit(now).expect("committed");
        while store.maintain(now).expect("maintained") {}
    };
    let mut ids = Vec::new();
    for n in 0..STREAMS as u32 {
        if n % 1_000 == 0 {
            settle(T0);
        }
        let mut spec = spec(n);
        spec.channels[0].description = "as long as it takes to fill a segment with few streams; ".repeat(11);
        ids.push(store.resolve(&spec, T0).expect("resolved").0.id);
    }
    let (mut now, mut random, mut sent) = (T0, fastrand::Rng::with_seed(1), vec![0; STREAMS]);
    while store.stats().segments < segments {
        now += 1_000_000;
        let mut rows: Vec<usize> = (0..16).map(|_| random.usize(1..STREAMS)).collect();
        if now / 1_000_000 % 16 == 0 {
            rows.extend([0; 300]);
        }
        assert_eq!(append(&store, rows.iter().map(|&n| (ids[n], random.u64(..))), now), rows.len());
        rows.into_iter().for_each(|n| sent[n] += 1);
        settle(now);
    }
    // Superblock, log, checkpoint and open segments, and copies of the disk itself: none of a sealed segment.
    assert!(disk.open_files() < 16, "{} open files", disk.open_files());
    drop(store);
    disk.reads.lock().clear();
    let store = open();
    let reads = disk.reads.lock().clone();
    assert_eq!((store.catalog().streams.len(), store.stats().segments), (STREAMS, segments));
    // The rows of a stream lie all over the store: its footers are real.
    let view = store.view();
    for n in [0, 17] {
        assert_eq!(view.next_row(ids[n]), sent[n]);
        let batches = view.scan(Scan::all(ids[n], vec![ChannelIndex(0)]));
        assert_eq!(batches.map(|batch| batch.expect("reads").len() as u64).sum::<u64>(), sent[n]);
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
        // Between two moves of its tail an eighth of the ring fills.
        assert!(reads["log"].0 <= 4 && reads["log"].1 <= 4 << 20, "{reads:?}");
        let (count, bytes) = reads["checkpoint"];
        let base = 10_000 * 850 + segments * 79;
        assert!(bytes <= (2 * base).max(base + (1 << 20)) + (1 << 16) && count <= bytes.div_ceil(4 << 20), "{reads:?}");
    }
    assert_eq!(few.len() + many.len(), 8, "files of no other kind: {few:?} {many:?}");
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
                store.commit(T0).expect("committed");
                while store.maintain(T0).expect("maintained") {}
            }
            store.resolve(&spec(n), T0).expect("resolved").0.id
        })
        .collect();
    let (busy, quiet) = ids.split_last().expect("streams");
    let (mut now, mut sent) = (T0, 0u64);
    for lap in 0..2u64 {
        for part in quiet.chunks(10_000) {
            assert_eq!(append(&store, part.iter().map(|&s| (s, lap)), now), part.len());
            store.commit(now).expect("committed");
            while store.maintain(now).expect("maintained") {}
        }
        // The busy one goes round the log: its tail must pass the quiet ones without waiting for them.
        for _ in 0..250 {
            now += 1_000_000;
            let rows = (0..4_000).map(|n| (*busy, sent + n));
            assert_eq!(append(&store, rows, now), 4_000, "refused: {:?}", store.refusal());
            sent += 4_000;
            store.commit(now).expect("committed");
            while store.maintain(now).expect("maintained") {}
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
