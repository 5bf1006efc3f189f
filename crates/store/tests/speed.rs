//! Figures of the store alone, one thread appending, committing each 50 ms and maintaining in between:
//! `cargo test -p strongback-store --release --test speed -- --ignored --nocapture`. No assertion about time.

mod kit;

use std::time::{Duration, Instant};

use kit::*;
use strongback_store::*;

/// Appends for a second of CPU; `streams` streams of `channels` channels, `frames` frames a batch.
fn ingest(name: &str, streams: usize, channels: usize, kind: ChannelType, clock: Clock) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions::default());
    let ids: Vec<StreamId> = (0..streams)
        .map(|n| {
            let spec = spec("bench", (0..channels).map(|c| (format!("c{c}"), kind)))
                .tag("n", n)
                .tag("host", format!("h{}", n % 7))
                .clock(clock);
            store.stream(&spec)
        })
        .collect();
    let mut batch = FrameBatch::new();
    let mut random = fastrand::Rng::with_seed(1);
    let mut time = T0;
    let (mut rows, mut refused) = (0u64, 0u64);
    let mut appending = Duration::ZERO;
    let (mut committing, mut sealing) = (Duration::ZERO, Duration::ZERO);
    let start = Instant::now();
    let mut last_commit = Instant::now();
    let per_batch = (4096 / channels).clamp(8, 1000);
    while start.elapsed() < Duration::from_secs(3) {
        batch.clear();
        for n in 0..per_batch {
            time += 1000;
            let stream = ids[(rows as usize + n) % streams];
            let source_time = (clock == Clock::Source).then_some(time);
            batch.begin(head(stream, time).sampled(source_time));
            for c in 0..channels {
                let value = random.u16(0..4096) as f64 * 0.125;
                batch.push(
                    ChannelIndex(c as u16),
                    match kind {
                        ChannelType::F32 => Value::F32(value as f32),
                        _ => Value::F64(value),
                    },
                );
            }
            batch.end();
        }
        let begin = Instant::now();
        let appended = store.append(&batch, time);
        appending += begin.elapsed();
        let stored = appended.outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count() as u64;
        rows += stored;
        refused += per_batch as u64 - stored;
        if last_commit.elapsed() > Duration::from_millis(50) || stored < per_batch as u64 {
            let begin = Instant::now();
            store.commit(time).expect("committed");
            committing += begin.elapsed();
            last_commit = Instant::now();
        }
        let begin = Instant::now();
        store.maintain(time).expect("maintained");
        sealing += begin.elapsed();
    }
    let elapsed = start.elapsed().as_secs_f64();
    let points = rows * channels as u64;
    let begin = Instant::now();
    store.commit(time).expect("committed");
    store.close(time).expect("closed");
    let stats = store.stats();
    println!(
        "{name}: append alone {:.2} M rows/s {:.1} M points/s; with commit and seal on one thread {:.2} M rows/s \
         {:.1} M points/s; append {:.0} %, commit {:.0} %, seal {:.0} %; refused {refused}; {:.2} bytes a point; \
         close {:.0} ms; written {} MB",
        rows as f64 / appending.as_secs_f64() / 1e6,
        points as f64 / appending.as_secs_f64() / 1e6,
        rows as f64 / elapsed / 1e6,
        points as f64 / elapsed / 1e6,
        appending.as_secs_f64() / elapsed * 100.0,
        committing.as_secs_f64() / elapsed * 100.0,
        sealing.as_secs_f64() / elapsed * 100.0,
        stats.block_bytes as f64 / stats.block_points as f64,
        begin.elapsed().as_secs_f64() * 1e3,
        stats.written_bytes >> 20,
    );
}

#[test]
#[ignore = "figures, not a check"]
fn append() {
    if std::env::var("ONLY").is_ok() {
        return ingest("wide, 100 f64", 4, 100, ChannelType::F64, Clock::Receive);
    }
    ingest("narrow, 1 stream", 1, 1, ChannelType::F64, Clock::Receive);
    ingest("narrow, 1,000 streams, source clock", 1000, 1, ChannelType::F64, Clock::Source);
    ingest("narrow, 100,000 streams", 100_000, 1, ChannelType::F64, Clock::Source);
    ingest("wide, 240 f32", 4, 240, ChannelType::F32, Clock::Receive);
    ingest("wide, 100 f64", 4, 100, ChannelType::F64, Clock::Receive);
}

/// A new store with a stream of so many f32.
fn one_stream(channels: u16) -> (tempfile::TempDir, Store, StreamId) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions::default());
    let id = store.stream(&spec("bench", (0..channels).map(|c| (format!("c{c}"), ChannelType::F32))));
    (dir, store, id)
}

#[test]
#[ignore = "figures, not a check"]
fn reduce_a_channel() {
    let (_dir, store, id) = one_stream(8);
    let (mut batch, mut random) = (FrameBatch::new(), fastrand::Rng::with_seed(1));
    let rows = 10_000_000i64;
    for n in 0..rows {
        let receive_time = T0 + n * 1_000_000 + random.i64(0..1_000);
        batch.begin(head(id, receive_time));
        (0..8).for_each(|c| batch.push(ChannelIndex(c), Value::F32(random.u16(0..4096) as f32 * 0.125)));
        batch.end();
        if n % 4_000 == 3_999 {
            store.append(&batch, T0);
            batch.clear();
            store.upkeep(T0);
        }
    }
    let blocks = store.segments().iter().map(|s| s.blocks).sum::<u64>();
    for column in [0, 7] {
        let decoded = store.stats().blocks_decoded;
        let begin = Instant::now();
        let buckets = store.view().reduce(id, ChannelIndex(column), i64::MIN..i64::MAX, 1_000).expect("reduced");
        let took = begin.elapsed();
        let decoded = store.stats().blocks_decoded - decoded;
        let count: u64 = buckets.iter().map(|b| b.count).sum();
        println!("{count} values to {} buckets: {took:?}, {decoded} of {blocks} blocks decoded", buckets.len());
        let begin = Instant::now();
        let mut count = 0;
        for batch in store.view().scan(Scan::all(id, vec![ChannelIndex(column)])) {
            let batch = batch.expect("reads");
            count += (0..batch.len()).filter(|&i| batch.columns[0].cell(i).is_ok()).count();
        }
        println!("{count} values scanned: {:?}", begin.elapsed());
    }
}

#[test]
#[ignore = "figures, not a check"]
fn read_the_newest() {
    let (_dir, store, id) = one_stream(100);
    let mut batch = FrameBatch::new();
    for n in 0..6000i64 {
        batch.clear();
        batch.begin(head(id, T0 + n * 20_000_000));
        (0..100).for_each(|c| batch.push(ChannelIndex(c), Value::F32(n as f32)));
        batch.end();
        store.append(&batch, T0);
        if n % 100 == 0 {
            store.upkeep(T0);
        }
    }
    let end = T0 + 6000 * 20_000_000;
    let columns: Vec<_> = (0..8).map(ChannelIndex).collect();
    let begin = Instant::now();
    let mut rows = 0;
    for _ in 0..100_000 {
        let view = store.view();
        let scan = Scan { time: end - 500_000_000..end, columns: columns.clone(), ..Scan::all(id, Vec::new()) };
        rows += view.scan(scan).map(|b| b.expect("reads").len()).sum::<usize>();
    }
    println!("last 500 ms of 8 channels: {:.2} µs, {} rows", begin.elapsed().as_secs_f64() * 10.0, rows / 100_000);
    let begin = Instant::now();
    let all: usize = store.view().scan(Scan::all(id, columns)).map(|b| b.expect("reads").len() * 8).sum();
    println!("scan of everything: {:.0} M values/s", all as f64 / begin.elapsed().as_secs_f64() / 1e6);
}
