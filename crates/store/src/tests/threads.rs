//! Threads that append, commit, keep up, read, close and open again at once, on a folder and in a fixed size. Every value
//! that is read is checked. `STRONGBACK_THREADS_S` says for how many seconds each; short without it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use crate::tests::kit::*;
use crate::*;

const STREAMS: usize = 6;

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        max_bytes: Some(7 << 20),
        segment_bytes: 64 << 10,
        open_bytes: 256 << 10,
        settle_age: Duration::from_millis(50),
        ..StoreOptions::default()
    }
}

/// What a row of a stream holds.
fn number(stream: usize, row: u64) -> u64 {
    (row ^ 0x5555).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(stream as u32 * 7)
}

fn word(row: u64) -> String {
    format!("row {}", row % 97)
}

fn time(stream: usize, row: u64) -> i64 {
    // Every third stream has late rows.
    T0 + row as i64 * 1_000 - if stream % 3 == 2 && row % 50 == 7 { 30_000 } else { 0 }
}

/// The store of now, and the streams.
struct World {
    store: RwLock<Store>,
    streams: Vec<(StreamId, Vec<ChannelIndex>)>,
    /// Rows below were committed: they come back after each opening.
    durable: [AtomicU64; STREAMS],
    stop: AtomicBool,
    begun: Instant,
    rows_read: AtomicU64,
    openings: AtomicU64,
}

fn mixed(n: usize) -> StreamSpec {
    spec(format!("t{n}"), [("number", ChannelType::U64), ("float", ChannelType::F64), ("word", ChannelType::String)])
        .clock(if n % 3 == 2 { Clock::Source } else { Clock::Receive })
}

impl World {
    fn now(&self) -> i64 {
        T0 + 1_000_000_000 + self.begun.elapsed().as_nanos() as i64
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// One thread appends: it alone knows the next row.
    fn append(&self) {
        let mut random = fastrand::Rng::with_seed(1);
        while self.goes_on() {
            let store = self.store.read().clone();
            let mut batch = FrameBatch::new();
            for (n, (id, columns)) in self.streams.iter().enumerate() {
                let next = store.view().next_row(*id);
                for row in next..next + random.u64(1..if n == 0 { 300 } else { 12 }) {
                    let at = time(n, row);
                    let (receive_time, source_time) = if n % 3 == 2 { (self.now(), Some(at)) } else { (at, None) };
                    batch.put_at(
                        head(*id, receive_time).sampled(source_time),
                        [
                            (columns[0], Value::U64(number(n, row))),
                            (columns[1], Value::F64(f64::from_bits(number(n, row) >> 12))),
                            (columns[2], Value::String(&word(row))),
                        ],
                    );
                }
            }
            for outcome in store.append(&batch, self.now()).outcomes {
                match outcome {
                    Outcome::Stored { .. }
                    | Outcome::Rejected(Reject::Refused(Refusal::LogFull | Refusal::DiskFull | Refusal::Closed)) => {}
                    other => panic!("{other:?}"),
                }
            }
            std::thread::yield_now();
        }
    }

    fn commit(&self) {
        while self.goes_on() {
            let store = self.store.read().clone();
            let before: Vec<u64> = self.streams.iter().map(|(id, _)| store.view().next_row(*id)).collect();
            match store.commit(self.now()) {
                Ok(_) => {
                    for (durable, row) in self.durable.iter().zip(before) {
                        durable.fetch_max(row, Ordering::SeqCst);
                    }
                }
                Err(refusal) => assert_eq!(refusal, Refusal::Closed),
            }
            std::thread::yield_now();
        }
    }

    fn tend(&self) {
        let mut calls = 0u64;
        while self.goes_on() {
            let store = self.store.read().clone();
            calls += 1;
            let done = if calls.is_multiple_of(500) {
                store.settle(self.now()).map(|_| false)
            } else {
                store.maintain_at(self.now(), self.begun.elapsed())
            };
            match done {
                Ok(true) => {}
                Ok(false) => std::thread::yield_now(),
                Err(refusal) => assert_eq!(refusal, Refusal::Closed),
            }
        }
    }

    /// Closes the store or drops it, and opens it again.
    fn reopen(&self, path: &Path) {
        let mut random = fastrand::Rng::with_seed(2);
        let mut at = Duration::from_millis(150);
        while self.goes_on() {
            if self.begun.elapsed() < at {
                std::thread::park_timeout(Duration::from_millis(5));
                continue;
            }
            at = self.begun.elapsed() + Duration::from_millis(random.u64(50..250));
            let mut slot = self.store.write();
            slot.close(self.now()).expect("closed");
            let durable: Vec<u64> = self.durable.iter().map(|row| row.load(Ordering::SeqCst)).collect();
            // Others may hold the closed one still: it is free all the same.
            let store = Store::open(path, options(), self.now()).expect("opened");
            let report = store.recovery();
            assert!(report.damaged.is_empty() && report.lost_rows == 0, "{report:?}");
            for (n, (id, _)) in self.streams.iter().enumerate() {
                assert!(store.view().next_row(*id) >= durable[n], "stream {n}: {} rows", durable[n]);
            }
            *slot = store;
            self.openings.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Scans, states, sums and buckets of chosen streams; all that they say must be so.
    fn read(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while self.goes_on() {
            let store = self.store.read().clone();
            let n = random.usize(0..STREAMS);
            let (id, columns) = &self.streams[n];
            let view = store.view();
            let end = view.next_row(*id);
            let is_gone = |error: &ScanError| {
                // A closed store's files belong to the next one, which may have dropped them.
                let closed = store.refusal() == Some(Refusal::Closed);
                matches!(error, ScanError::Expired) || closed
            };
            let from = random.u64(0..end.max(1));
            let rows = match random.u8(0..4) {
                0 => 0..end,
                _ => from..(from + random.u64(1..3_000)).min(end),
            };
            let newest_first = random.bool();
            let scan = Scan { rows: rows.clone(), newest_first, ..Scan::all(*id, columns.clone()) };
            let mut next: Option<u64> = None;
            for batch in view.scan(scan) {
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) if is_gone(&error) => {
                        next = None;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                let mut order: Vec<usize> = (0..batch.len()).collect();
                if newest_first {
                    order.reverse();
                }
                for i in order {
                    let row = batch.rows[i];
                    assert!(
                        rows.contains(&row) && next.is_none_or(|next| next == row),
                        "stream {n}: {row} for {next:?} of {rows:?}; closed: {:?}; {}",
                        store.refusal(),
                        whole(&view, *id)
                    );
                    next = Some(if newest_first { row.wrapping_sub(1) } else { row + 1 });
                    assert_eq!(batch.time(i), time(n, row), "stream {n}, row {row}");
                    assert_eq!(batch.columns[0].cell(i), Ok(Value::U64(number(n, row))), "stream {n}, row {row}");
                    let float = f64::from_bits(number(n, row) >> 12);
                    assert_eq!(batch.columns[1].cell(i), Ok(Value::F64(float)), "stream {n}, row {row}");
                    assert_eq!(batch.columns[2].cell(i), Ok(Value::String(&word(row))), "stream {n}, row {row}");
                }
                self.rows_read.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            if end == 0 {
                continue;
            }
            let at = time(0, random.u64(0..end)) + random.i64(0..1_000);
            match view.state_at(*id, at, &columns[..1]) {
                Ok(cells) => {
                    if let Some(cell) = &cells[0] {
                        let expected = OwnedValue::Plain(Value::U64(number(n, cell.row)));
                        assert_eq!((cell.time, cell.value.clone()), (time(n, cell.row), Some(expected)));
                        // Where the row itself was dropped a late one may stand alone.
                        let most = if n % 3 == 2 { 40_000 } else { 2_000 };
                        assert!(cell.time <= at && at - cell.time < most, "stream {n} at {at}: {cell:?}");
                    }
                }
                Err(error) => assert!(is_gone(&error), "{error}"),
            }
            match view.reduce(*id, columns[0], i64::MIN..i64::MAX, 7) {
                Ok(buckets) => assert!(buckets.iter().map(|bucket| bucket.count).sum::<u64>() <= end),
                Err(error) => assert!(is_gone(&error), "{error}"),
            }
        }
    }
}

/// Returns where a view has the rows of a stream, for a failure.
fn whole(view: &View, id: StreamId) -> String {
    let Some(of) = view.stream(id) else { return "no stream".to_owned() };
    let chunks: Vec<_> = of.chunks().map(|(chunk, len)| (chunk.first_row, len)).collect();
    let blocks = of.segments.iter().map(|segment| {
        let blocks = segment.blocks(id.0, &view.shared().residents);
        let rows = blocks.map(|blocks| blocks.iter().map(|b| b.first_row..b.end_row()).collect::<Vec<_>>());
        (segment.id, segment.places, segment.is_lost(), rows)
    });
    let blocks: Vec<_> = blocks.collect();
    let (first_row, newest) = (of.open.first_row, of.sealed.newest_segment);
    format!("open from {first_row}: {chunks:?}; sealed up to segment {newest}: {blocks:?}")
}

fn run(path: &Path, store: Store) {
    let seconds = std::env::var("STRONGBACK_THREADS_S").ok().and_then(|text| text.parse().ok()).unwrap_or(1.5);
    let resolve = |n| store.resolve(&mixed(n), T0).map(|(stream, columns)| (stream.id, columns)).expect("resolved");
    let streams = (0..STREAMS).map(resolve).collect();
    store.commit(T0).expect("committed");
    let world = Arc::new(World {
        store: RwLock::new(store),
        streams,
        durable: std::array::from_fn(|_| AtomicU64::new(0)),
        stop: AtomicBool::new(false),
        begun: Instant::now(),
        rows_read: AtomicU64::new(0),
        openings: AtomicU64::new(0),
    });
    std::thread::scope(|scope| {
        let mut threads = vec![
            scope.spawn(|| world.append()),
            scope.spawn(|| world.commit()),
            scope.spawn(|| world.tend()),
            scope.spawn(|| world.reopen(path)),
        ];
        let readers = (0..3).map(|seed| {
            let world = &world;
            scope.spawn(move || world.read(seed))
        });
        threads.extend(readers);
        while world.begun.elapsed() < Duration::from_secs_f64(seconds) && !threads.iter().any(|t| t.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        world.stop.store(true, Ordering::Relaxed);
    });
    assert!(world.rows_read.load(Ordering::Relaxed) > 0 && world.openings.load(Ordering::Relaxed) > 0);
    world.store.read().close(world.now()).expect("closed");
}

#[test]
fn everything_at_once_on_a_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    run(dir.path(), Store::open(dir.path(), options(), T0).expect("opened"));
}

#[test]
fn everything_at_once_in_a_fixed_size() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("fixed");
    let made = FixedOptions { max_streams: 20, max_channels: 60, ..FixedOptions::new(6 << 20) };
    run(&path, Store::create_fixed(&path, &made, options(), T0).expect("created"));
}
