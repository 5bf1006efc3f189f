//! What must not grow with the store: recovery's reads; and 100,000 quiet streams beside one at full rate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Reads and bytes read by the recovery of a store with so many segments, 10,000 streams and real footers.
fn recovery_reads(segments: usize) -> (u64, u64) {
    let disk = FaultDisk::new(9);
    let options = StoreOptions {
        log_bytes: 4 << 20,
        segment_bytes: 32 << 10,
        max_bytes: Some(1 << 40),
        ..StoreOptions::default()
    };
    let open = || Store::open_on(Arc::new(disk.clone()), options.clone(), T0).expect("opened");
    let store = open();
    let mut random = fastrand::Rng::with_seed(1);
    let ids: Vec<StreamId> = (0..10_000)
        .map(|n| {
            if n % 1000 == 0 {
                store.commit(T0).expect("committed");
                while store.maintain(T0).expect("maintained") {}
            }
            store.resolve(&spec(n), T0).expect("resolved").0.id
        })
        .collect();
    let (mut now, mut seed) = (T0, fastrand::Rng::with_seed(2));
    while store.segments().len() < segments {
        now += 1_000_000;
        // One stream that fills blocks; the others now and then.
        let rows: Vec<(StreamId, u64)> = (0..1600)
            .map(|n| if n < 1500 { ids[0] } else { ids[random.usize(..ids.len())] })
            .map(|stream| (stream, seed.u64(..)))
            .collect();
        append(&store, rows.into_iter(), now);
        store.commit(now).expect("committed");
        while store.maintain(now).expect("maintained") {}
    }
    drop(store);
    let before = (disk.faults.reads.load(Ordering::Relaxed), disk.faults.read_bytes.load(Ordering::Relaxed));
    let store = open();
    assert_eq!(store.catalog().streams.len(), 10_000);
    assert!(store.segments().len() >= segments);
    let after = (disk.faults.reads.load(Ordering::Relaxed), disk.faults.read_bytes.load(Ordering::Relaxed));
    (after.0 - before.0, after.1 - before.1)
}

/// The superblock, the checkpoint in pieces of 4 MiB, the log in pieces of 1 MiB, the open segments: the
/// directory adds 74 bytes a segment to the checkpoint and no read of its own.
fn compare(few: usize, many: usize) {
    let (few, few_bytes) = recovery_reads(few);
    let (many, many_bytes) = recovery_reads(many);
    println!("{few} reads of {few_bytes} bytes, {many} of {many_bytes}");
    assert!(few <= 24 && many <= few + 4, "{few} reads of {few_bytes} bytes, {many} of {many_bytes}");
}

#[test]
fn recovery_reads_do_not_grow_with_the_segments() {
    compare(100, 1_000);
}

#[test]
#[ignore = "minutes, and 1 GB of memory"]
fn recovery_reads_of_16_000_segments() {
    compare(1_600, 16_000);
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
