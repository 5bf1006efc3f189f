//! States at an instant and reads of a span against a naive model: rows come late, stand in memory, in blocks of a
//! segment that is open or sealed, in mixed blocks, and in what settle made of them.

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

const CHANNELS: usize = 3;

/// A row as it was sent.
struct Sent {
    time: i64,
    row: u64,
    cells: [Option<i64>; CHANNELS],
}

/// A stream, and all that was stored of it.
struct Known {
    id: StreamId,
    columns: Vec<ChannelIndex>,
    clock: Clock,
    /// The time about which its frames lie.
    at: i64,
    /// In how many frames one is late.
    late: u32,
    rows: Vec<Sent>,
}

struct World {
    random: Rng,
    disk: FaultDisk,
    options: StoreOptions,
    store: Store,
    streams: Vec<Known>,
    values: i64,
    now: i64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Rng::with_seed(seed);
        let disk = FaultDisk::new(seed);
        let options = StoreOptions {
            open_bytes: random.choice([0, 16 << 10, 48 << 10, 1 << 20]).unwrap_or(0),
            settle: random.bool(),
            ..sized(1 << 20, 32 << 10)
        };
        let store = open(&disk, &options);
        let streams = (0..random.usize(1..5))
            .map(|n| {
                let clock = if random.bool() { Clock::Source } else { Clock::Receive };
                let channels = (0..CHANNELS).map(|c| (format!("c{c}"), ChannelType::I64));
                let spec = spec(format!("s{n}"), channels).clock(clock);
                let (stream, columns) = store.resolve(&spec, T0).expect("resolved");
                let late = random.choice([0, 2_000, 300, 20]).unwrap_or(0);
                Known { id: stream.id, columns, clock, at: T0 + random.i64(-5_000..5_000), late, rows: Vec::new() }
            })
            .collect();
        World { random, disk, options, store, streams, values: 0, now: T0 + (1 << 40) }
    }

    /// Appends frames of one stream.
    fn send(&mut self) {
        let random = &mut self.random;
        let n = random.usize(0..self.streams.len());
        let known = &mut self.streams[n];
        let (mut batch, mut sent) = (FrameBatch::new(), Vec::new());
        for _ in 0..random.choice([1, 3, 50, 300, 900]).unwrap_or(1) {
            known.at += random.choice([0, 1, 10, 10, 10, 1_000]).unwrap_or(1);
            let back = if known.late > 0 && random.u32(0..known.late) == 0 { random.i64(0..60_000) } else { 0 };
            let time = known.at - back;
            let (receive_time, source_time) = match known.clock {
                Clock::Receive => (time, None),
                Clock::Source => (self.now, Some(time)),
            };
            batch.begin(head(known.id, receive_time).sampled(source_time));
            let mut cells = [None; CHANNELS];
            for (channel, cell) in cells.iter_mut().enumerate() {
                // The first always, the second often, the last hardly ever.
                if random.usize(0..400) >= [0, 100, 395][channel] {
                    self.values += 1;
                    *cell = Some(self.values);
                    batch.push(known.columns[channel], Value::I64(self.values));
                }
            }
            batch.end();
            sent.push((time, cells));
        }
        for (outcome, (time, cells)) in self.store.append(&batch, self.now).outcomes.into_iter().zip(sent) {
            match outcome {
                Outcome::Stored { row } => known.rows.push(Sent { time, row, cells }),
                Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn step(&mut self) {
        self.now += 1_000_000;
        match self.random.u8(0..20) {
            0..=11 => self.send(),
            12..=16 => {
                self.store.commit(self.now).expect("committed");
                for _ in 0..self.random.u8(1..20) {
                    self.store.maintain(self.now).expect("maintained");
                }
            }
            17 => {
                self.store.settle(self.now).expect("settled");
            }
            18 if self.random.u8(0..4) == 0 => {
                self.store.close(self.now).expect("closed");
                self.reopen();
            }
            19 if self.random.u8(0..4) == 0 => {
                self.store.commit(self.now).expect("committed");
                self.reopen();
            }
            _ => {}
        }
    }

    fn reopen(&mut self) {
        let other = FaultDisk::new(0).open_store(self.options.clone(), self.now).expect("opened");
        drop(std::mem::replace(&mut self.store, other));
        self.store = open_at(&self.disk, &self.options, self.now);
    }

    /// Asks for states and spans of every stream and compares them with what was sent.
    fn check(&mut self, what: &str) {
        let view = self.store.view();
        for known in &self.streams {
            let Some(newest) = known.rows.iter().map(|sent| sent.time).max() else { continue };
            let oldest = known.rows.iter().map(|sent| sent.time).min().unwrap_or(newest);
            let some = |random: &mut Rng| random.i64(oldest - 2..newest + 3);
            let mut times = vec![i64::MAX, newest, oldest, oldest - 1];
            times.extend((0..12).map(|_| some(&mut self.random)));
            let late = known.rows.windows(2).filter(|pair| pair[1].time < pair[0].time);
            times.extend(late.map(|pair| pair[1].time + self.random.i64(0..50)).take(12));
            for time in times {
                let found = view.state_at(known.id, time, &known.columns).expect("a state");
                for (channel, cell) in found.iter().enumerate() {
                    let valued = known.rows.iter().filter(|sent| sent.time <= time && sent.cells[channel].is_some());
                    let expected = valued.max_by_key(|sent| (sent.time, sent.row));
                    let expected =
                        expected.and_then(|sent| Some((sent.time, sent.row, Value::I64(sent.cells[channel]?))));
                    let found = cell.as_ref().and_then(|cell| {
                        Some((cell.time, cell.row, cell.value.as_ref().map(|value| format!("{value:?}"))?))
                    });
                    let expected = expected.map(|(t, row, value)| (t, row, format!("{:?}", OwnedValue::of(value))));
                    assert_eq!(found, expected, "{what}: {:?} c{channel} at {time}", known.id);
                }
            }
            for _ in 0..4 {
                let from = some(&mut self.random);
                let time = from..from + self.random.choice([1, 50, 5_000]).unwrap_or(1);
                let scan = Scan { time: time.clone(), ..Scan::all(known.id, known.columns.clone()) };
                let batches = view.scan(scan).map(|batch| batch.expect("reads").rows);
                let rows: Vec<u64> = batches.flatten().collect();
                let expected: Vec<u64> =
                    known.rows.iter().filter(|sent| time.contains(&sent.time)).map(|sent| sent.row).collect();
                assert_eq!(rows, expected, "{what}: {:?} within {time:?}", known.id);
            }
        }
    }
}

#[test]
fn states_and_spans_are_those_of_all_rows() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        for step in 0..90 {
            world.step();
            if step % 6 == 5 {
                world.check(&format!("seed {seed}, step {step}"));
            }
        }
    }
}

/// One late row in memory, younger than the newest block's first one, which lies in a segment that is still open.
#[test]
fn a_late_row_does_not_hide_newer_ones_in_an_open_segment() {
    let disk = FaultDisk::new(1);
    // Little memory: all but the newest rows are sealed, and their segment stays open.
    let options =
        StoreOptions { log_bytes: 1 << 20, segment_bytes: 1 << 20, open_bytes: 32 << 10, ..StoreOptions::default() };
    let store = open(&disk, options);
    let spec = spec("t", [("v", ChannelType::I64)]).clock(Clock::Source);
    let (stream, columns) = store.resolve(&spec, T0).expect("resolved");
    let send = |numbers: &mut dyn Iterator<Item = i64>| {
        let mut batch = FrameBatch::new();
        for n in numbers {
            let source_time = Some(T0 + n * 10);
            batch.put_at(head(stream.id, T0 + 100_000).sampled(source_time), [(columns[0], Value::I64(n))]);
        }
        store.append(&batch, T0);
        store.upkeep(T0);
    };
    send(&mut (0..4_600).filter(|n| *n != 4_000));
    assert!(store.stats().block_points > 4_100, "{:?}", store.stats());
    send(&mut std::iter::once(4_000));
    let view = store.view();
    for n in (0..4_600).filter(|n| *n != 4_000) {
        let cell = view.state_at(stream.id, T0 + n * 10 + 5, &columns).expect("a state").remove(0).expect("a cell");
        assert_eq!(cell.value, Some(OwnedValue::Plain(Value::I64(n))));
    }
}
