//! A disk that others fill: what goes for what comes in, and no more. `FILLING_SEED=n` replays one run,
//! `FILLING_SEEDS=n` runs as many.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;

use crate::disk::fault::{Allocation, FaultDisk};
use crate::model::limits::SEGMENT_BYTES_MIN;
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000_000_000;

fn options(segment_bytes: u64) -> StoreOptions {
    StoreOptions {
        open_bytes: 0,
        retention: vec![group("slow", "slow", Keep::Bytes(0))],
        settle: false,
        ..sized(1 << 20, segment_bytes)
    }
}

fn stream(store: &Store, table: &str) -> StreamId {
    store.stream(&spec(table, [("row", ChannelType::U64), ("noise", ChannelType::String)]))
}

/// Appends and commits rows that say their number, with some bytes of text each; returns how many were stored.
fn append(store: &Store, stream: StreamId, from: u64, (rows, bytes): (u64, usize), now: i64) -> u64 {
    let (mut batch, mut random) = (FrameBatch::new(), Rng::with_seed(from));
    for row in from..from + rows {
        let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect();
        batch.put(head(stream, now), [Value::U64(row), Value::String(&noise)]);
    }
    let appended = store.append(&batch, now);
    let stored = appended.outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count() as u64;
    store.commit(now).expect("committed");
    stored
}

fn maintain(store: &Store, now: i64) {
    while store.maintain(now).expect("maintained") {}
}

/// The rows that are there: without a hole, up to the newest.
fn rows(store: &Store, stream: StreamId) -> Result<Range<u64>, String> {
    let view = store.view();
    let mut found: Option<Range<u64>> = None;
    for batch in view.scan(Scan::all(stream, vec![ChannelIndex(0)])) {
        let batch = batch.map_err(|e| e.to_string())?;
        for i in 0..batch.len() {
            let row = batch.rows[i];
            if batch.columns[0].cell(i) != Ok(Value::U64(row)) || found.as_ref().is_some_and(|f| f.end != row) {
                return Err(format!("row {row} after {found:?}"));
            }
            found = Some(found.map_or(row, |f| f.start)..row + 1);
        }
    }
    let next = view.next_row(stream);
    match found {
        Some(found) if found.end == next => Ok(found),
        None => Ok(next..next),
        found => Err(format!("{found:?} of {next} rows")),
    }
}

/// Bytes of segments by number.
type Sizes = BTreeMap<u64, u64>;

fn sizes(store: &Store) -> Sizes {
    store.segments().iter().map(|segment| (segment.id, segment.size_bytes)).collect()
}

/// Bytes that came, bytes that went, and those of the largest segment that went, between two instants.
fn compare(before: &Sizes, after: &Sizes) -> (u64, u64, u64) {
    let came = after.iter().map(|(id, bytes)| bytes.saturating_sub(before.get(id).copied().unwrap_or(0))).sum();
    let gone = || before.iter().filter(|(id, _)| !after.contains_key(id)).map(|(_, bytes)| *bytes);
    (came, gone().sum(), gone().max().unwrap_or(0))
}

/// A folder of many small segments, as one that was opened and closed often has, on a disk that is full.
fn small_segments(disk: &FaultDisk, options: &StoreOptions, rows_each: u64) -> (Store, StreamId, u64) {
    let mut next = 0;
    for round in 0..120 {
        let store = open(disk, options);
        next += append(&store, stream(&store, "t"), next, (rows_each, 20), T0 + round * S);
        maintain(&store, T0 + round * S);
        store.close(T0 + round * S).expect("closed");
    }
    let store = open(disk, options);
    let stream = stream(&store, "t");
    (store, stream, next)
}

#[test]
fn what_goes_for_a_segment_on_a_full_disk_is_what_it_needs() {
    for allocation in [Allocation::Create, Allocation::Reserve] {
        let disk = FaultDisk::new(1);
        disk.set_allocation(allocation);
        let options = options(1 << 20);
        let (mut store, stream, mut next) = small_segments(&disk, &options, 200);
        let first = sizes(&store).len();
        for round in 0..20 {
            // Others take what there is, also what a segment gave back that was cut behind its content.
            disk.leave_space(0);
            let (before, had) = (sizes(&store), rows(&store, stream).expect("rows"));
            next += append(&store, stream, next, (100, 20), T0 + 1_000 * S);
            maintain(&store, T0 + 1_000 * S);
            assert_eq!(store.refusal(), None, "round {round}");
            let (came, gone, largest) = compare(&before, &sizes(&store));
            assert!(
                gone <= 2 * came + SEGMENT_BYTES_MIN + largest,
                "round {round}: {gone} bytes went for {came}, {} of {first} segments are left",
                sizes(&store).len()
            );
            let have = rows(&store, stream).expect("rows");
            assert!(have.start >= had.start && have.end == next, "{had:?} became {have:?}");
            let disk = disk.after_kill();
            drop(store);
            store = open(&disk, &options);
        }
        assert!(sizes(&store).len() > first / 2);
    }
}

/// A store on a disk that others fill and empty at random, and that is killed, cut or closed now and then.
struct Filled {
    disk: FaultDisk,
    options: StoreOptions,
    store: Store,
    random: Rng,
    streams: Vec<(StreamId, u64)>,
    now: i64,
    /// First row that was there when it was last looked at, by stream.
    first: Vec<u64>,
}

const TABLES: [&str; 3] = ["t", "u", "slow"];

impl Filled {
    fn new(seed: u64) -> Filled {
        let mut random = Rng::with_seed(seed ^ 0xf111);
        let disk = FaultDisk::new(seed);
        disk.set_allocation(if random.bool() { Allocation::Create } else { Allocation::Reserve });
        let options = options([64 << 10, 256 << 10, 1 << 20, 4 << 20][random.usize(..4)]);
        let store = open(&disk, &options);
        let streams = TABLES.iter().map(|table| (stream(&store, table), 0)).collect();
        Filled { disk, options, store, random, streams, now: T0, first: vec![0; TABLES.len()] }
    }

    /// Appends to one of the streams; returns whether all of it was stored.
    fn send(&mut self) -> bool {
        self.now += S;
        let at = self.random.usize(..self.streams.len());
        let size = (self.random.u64(1..400), self.random.usize(0..300));
        let (stream, next) = self.streams[at];
        let stored = append(&self.store, stream, next, size, self.now);
        self.streams[at].1 += stored;
        maintain(&self.store, self.now);
        stored == size.0
    }

    fn end(&mut self) {
        match self.random.u8(..3) {
            0 => self.store.close(self.now).expect("closed"),
            1 => self.disk = self.disk.after_kill(),
            _ => self.disk = self.disk.after_cut(),
        }
        self.store = open(&self.disk, &self.options);
    }

    /// Nothing between is missing, and what had gone is not back.
    fn check(&mut self) -> Result<(), String> {
        for (&(stream, next), first) in self.streams.iter().zip(&mut self.first) {
            let found = rows(&self.store, stream)?;
            if found.end != next || found.start < *first {
                return Err(format!("{found:?} of {next} rows, from {first} on before"));
            }
            *first = found.start;
        }
        Ok(())
    }

    /// A time in which others take what is free, but for a little, once, and then nothing more.
    fn fill(&mut self) -> Result<(), String> {
        self.disk.leave_space(if self.random.bool() { 0 } else { self.random.u64(..2 << 20) });
        let (mut before, mut came, mut gone, mut largest) = (sizes(&self.store), 0, 0, 0);
        let (rounds, mut openings) = (self.random.u64(1..12), 1);
        let written = self.store.stats().written_bytes;
        for _ in 0..rounds {
            if !self.send() {
                return Err(format!("{:?}, while {} segments may go", self.store.refusal(), before.len()));
            }
            if self.random.u8(..4) == 0 {
                self.end();
                openings += 1;
            }
            let after = sizes(&self.store);
            let (came_now, gone_now, largest_now) = compare(&before, &after);
            (came, gone, largest) = (came + came_now, gone + gone_now, largest.max(largest_now));
            before = after;
        }
        let groups = 3;
        let least = (self.options.segment_bytes / 64).max(SEGMENT_BYTES_MIN);
        let most = 2 * came + groups * openings * least + largest + CHECKPOINTS;
        if gone > most {
            return Err(format!("{gone} bytes went for {came} in {rounds} rounds, {openings} openings; {written}"));
        }
        self.check()?;
        self.disk.give_space(u64::MAX);
        Ok(())
    }
}

/// What the two checkpoints of these stores may grow by.
const CHECKPOINTS: u64 = 1 << 20;

fn run(seed: u64) -> Result<u64, String> {
    let mut filled = Filled::new(seed);
    for _ in 0..30 {
        for _ in 0..filled.random.usize(..12) {
            filled.send();
            if filled.random.u8(..3) == 0 {
                filled.end();
            }
        }
        filled.check()?;
        // Where there is next to no history, nothing may go.
        if sizes(&filled.store).len() >= 12 {
            filled.fill()?;
        }
    }
    Ok(filled.first.iter().sum())
}

#[test]
fn on_a_disk_that_others_fill_what_goes_is_bounded_by_what_comes() {
    if let Some(seed) = std::env::var("FILLING_SEED").ok().and_then(|s| s.parse().ok()) {
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        return;
    }
    let seeds: u64 = std::env::var("FILLING_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let gone = (0..seeds).map(|seed| run(seed).unwrap_or_else(|error| panic!("FILLING_SEED={seed}: {error}")));
    assert!(gone.filter(|rows| *rows > 0).count() as u64 > seeds / 2, "nothing ever went");
}

#[test]
fn a_segment_that_a_full_disk_made_smaller_is_read_and_gone_on_with() {
    for end in 0..3 {
        let disk = FaultDisk::new(end);
        let large = options(4 << 20);
        let store = open(&disk, &large);
        let first = stream(&store, "t");
        let mut next = append(&store, first, 0, (300, 100), T0);
        maintain(&store, T0);
        // No spare, and room for a small one.
        disk.leave_space(200 << 10);
        while store.segments().len() < 3 {
            next += append(&store, first, next, (300, 100), T0);
            maintain(&store, T0);
        }
        let disk = match end {
            0 => {
                store.close(T0).expect("closed");
                disk
            }
            1 => disk.after_kill(),
            _ => disk.after_cut(),
        };
        disk.give_space(u64::MAX);
        // Also by a store that is meant to have segments of another size.
        let store = open(&disk, options(if end == 1 { 64 << 10 } else { 4 << 20 }));
        next += append(&store, first, next, (300, 100), T0 + S);
        maintain(&store, T0 + 2 * S);
        assert_eq!(rows(&store, first), Ok(0..next), "end {end}");
        assert_eq!(store.recovery().damaged, [], "end {end}");
    }
}
