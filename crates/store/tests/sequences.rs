//! Sequences across starts, kills and settle: what was never seen is stored, what was seen is a duplicate, and time over
//! which frames are missing counts the same wherever the rows lie.

mod kit;

use kit::*;
use strongback_store::*;

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        max_bytes: Some(64 << 20),
        segment_bytes: 256 << 10,
        settle: false,
        ..StoreOptions::default()
    }
}

fn sequenced(name: &str, clock: Clock) -> StreamSpec {
    spec(name, [("x", ChannelType::F64), ("n", ChannelType::I32)]).clock(clock).modulus(Some(1 << 16))
}

/// How an opening ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Clean,
    /// Without a clean end, after what was appended was committed.
    Kill,
    /// With rows that are encoded and wait in memory.
    KillAfterUpkeep,
}

struct Bench {
    dir: tempfile::TempDir,
    options: StoreOptions,
    store: Option<Store>,
    now: i64,
}

impl Bench {
    fn new(options: StoreOptions) -> Bench {
        let dir = tempfile::tempdir().expect("a folder");
        let store = open(dir.path(), &options);
        Bench { dir, options, store: Some(store), now: T0 }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn stream(&self, name: &str, clock: Clock) -> (StreamId, Vec<ChannelIndex>) {
        let (stream, indices) = self.store().resolve(&sequenced(name, clock), self.now).expect("resolved");
        (stream.id, indices)
    }

    /// Sends wire sequences, one a millisecond; their source time is that of their number after `source`.
    fn send(&mut self, name: &str, wires: impl IntoIterator<Item = u64>, source: i64) -> Vec<Outcome> {
        let (stream, channels) = self.stream(name, Clock::Receive);
        let mut batch = FrameBatch::new();
        for wire in wires {
            self.now += MS;
            batch.begin(head(stream, self.now).sampled(Some(source + wire as i64 * MS)).numbered(Some(wire)));
            batch.push(channels[0], Value::F64(wire as f64));
            // Not in every frame: so that frames are missing before rows without it, also at the ends of blocks.
            if !wire.is_multiple_of(3) {
                batch.push(channels[1], Value::I32(wire as i32));
            }
            batch.end();
        }
        self.store().append(&batch, self.now).outcomes
    }

    fn upkeep(&self) {
        self.store().upkeep(self.now);
    }

    fn end(&mut self, end: End) {
        match end {
            End::Clean => self.store().close(self.now).expect("closed"),
            End::Kill => drop(self.store().commit(self.now).expect("committed")),
            End::KillAfterUpkeep => self.upkeep(),
        }
        self.store = None;
        self.now += 10 * SECOND;
        self.store = Some(Store::open(self.dir.path(), self.options.clone(), self.now).expect("opened again"));
    }
}

fn stored(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| matches!(outcome, Outcome::Stored { .. })).collect()
}

fn assert_adds_up(counts: &Counts) {
    assert_eq!(counts.received, counts.stored + counts.duplicate + counts.reduced + counts.rejected, "{counts:?}");
}

const ENDS: [End; 3] = [End::Clean, End::Kill, End::KillAfterUpkeep];

#[test]
fn frames_that_come_late_over_an_end_are_stored_once() {
    for first in ENDS {
        for second in ENDS {
            let mut bench = Bench::new(options());
            let before = (0..100u64).filter(|n| !(40..50).contains(n));
            assert!(stored(&bench.send("fti", before, T0)).iter().all(|stored| *stored));
            bench.end(first);
            assert!(stored(&bench.send("fti", 100..150, T0)).iter().all(|stored| *stored));
            bench.end(second);
            let what = format!("{first:?}, {second:?}");
            // One that came before first; then those that never did, and all of it once more.
            assert_eq!(stored(&bench.send("fti", [30], T0)), [false], "{what}");
            assert_eq!(stored(&bench.send("fti", 40..50, T0)), [true; 10], "{what}");
            assert_eq!(stored(&bench.send("fti", 0..150, T0)), [false; 150], "{what}");
            assert_eq!(stored(&bench.send("fti", [150], T0)), [true], "{what}");
            let (id, _) = bench.stream("fti", Clock::Receive);
            let counts = bench.store().counts(id);
            assert_adds_up(&counts);
            assert_eq!((counts.restarts, counts.lost, counts.filled, counts.open_before), (0, 0, 10, 10), "{what}");
            assert_eq!(counts.open(), 0, "{what}");
        }
    }
}

#[test]
fn the_first_frames_of_a_stream_and_of_a_session_come_in_any_order() {
    for end in ENDS {
        let mut bench = Bench::new(options());
        assert_eq!(stored(&bench.send("fti", [8, 5, 6, 7, 5, 9], T0)), [true, true, true, true, false, true]);
        // The source begins again.
        let again = T0 + SECOND;
        assert_eq!(stored(&bench.send("fti", [3, 0, 1], again)), [true; 3]);
        bench.end(end);
        assert_eq!(stored(&bench.send("fti", [2, 4, 1, 2], again)), [true, true, false, false], "{end:?}");
        let (id, _) = bench.stream("fti", Clock::Receive);
        assert_eq!((bench.store().counts(id).late, bench.store().counts(id).lost), (1, 0), "{end:?}");
    }
}

#[test]
fn what_was_appended_and_not_committed_is_stored_when_it_is_sent_again() {
    let mut bench = Bench::new(options());
    bench.send("fti", (0..3_000).filter(|n| n % 100 != 50), T0);
    bench.upkeep();
    // Filled and new, and gone with the process; another stream's upkeep writes checkpoints meanwhile.
    bench.send("fti", [50, 150, 3_000, 3_001], T0);
    bench.store = None;
    bench.store = Some(Store::open(bench.dir.path(), bench.options.clone(), bench.now).expect("opened again"));
    assert_eq!(stored(&bench.send("fti", [50, 150, 3_000, 3_001, 50], T0)), [true, true, true, true, false]);
}

/// `from_time` and `to_time` of the rows of `strongback.gaps`.
fn gap_times(store: &Store) -> Vec<(i64, i64)> {
    let view = store.view();
    let catalog = view.catalog();
    let table = catalog.streams.iter().find(|s| s.key.table == "strongback.gaps").expect("gaps");
    let columns = ["from_time", "to_time"].map(|name| table.layout.index(name).expect("a column"));
    let mut found = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns.to_vec())) {
        let batch = batch.expect("reads");
        for row in 0..batch.len() {
            if let [Ok(Value::I64(from)), Ok(Value::I64(to))] = [0, 1].map(|column| batch.columns[column].cell(row)) {
                found.push((from, to));
            }
        }
    }
    found
}

#[test]
fn a_gap_over_an_end_begins_with_the_frame_before_it() {
    for end in ENDS {
        let mut bench = Bench::new(options());
        bench.send("fti", 0..10, T0);
        let newest = bench.now;
        bench.end(end);
        bench.send("fti", [20], T0);
        let next = bench.now;
        bench.store().commit(bench.now).expect("committed");
        assert_eq!(gap_times(bench.store()), [(newest, next)], "{end:?}");
    }
}

/// What readers make of a channel over all time and over pieces of it.
///
/// The integral is rounded: blocks are added up as a whole, rows one by one.
fn weights(store: &Store, stream: StreamId, column: ChannelIndex, to: i64) -> Vec<(u64, u64, String)> {
    let view = store.view();
    let parts = (0..7).map(|n| T0 + (to - T0) / 7 * n..T0 + (to - T0) / 7 * (n + 2));
    let spans = std::iter::once(T0..to + 1).chain(parts);
    spans
        .map(|span| view.weigh(stream, column, span).expect("weighed"))
        .map(|w| (w.count, w.integral.known_ns, format!("{:.11e}", w.integral.value_ns)))
        .collect()
}

fn intervals(store: &Store, stream: StreamId, column: ChannelIndex, to: i64) -> Vec<(i64, i64, String, bool)> {
    let found = store.view().intervals(stream, column, T0..to + 1).expect("intervals");
    found.map(|i| i.expect("reads")).map(|i| (i.start, i.end, format!("{:?}", i.value), i.open)).collect()
}

/// Losses, late frames and restarts of a quiet stream and of a fast one, sealed into mixed blocks and blocks: time over
/// which frames are missing is known to nobody, before and after.
#[test]
fn time_over_gaps_is_unknown_wherever_the_rows_lie() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Without room for open rows everything is sealed at once, in mixed blocks where it is little.
        let open_bytes = if seed % 2 == 0 { 0 } else { 64 << 20 };
        let mut bench = Bench::new(StoreOptions { open_bytes, ..options() });
        let streams = ["quiet", "fast", "other"].map(|name| (name, bench.stream(name, Clock::Receive)));
        let mut next = [0u64; 3];
        for _ in 0..4 {
            for _ in 0..random.usize(2..6) {
                for (n, (name, _)) in streams.iter().enumerate() {
                    let frames = if *name == "fast" { random.u64(100..900) } else { random.u64(0..30) };
                    let mut wires = Vec::new();
                    for _ in 0..frames {
                        next[n] += match random.u8(0..40) {
                            0 => random.u64(2..20),
                            _ => 1,
                        };
                        wires.push(next[n] % (1 << 16));
                    }
                    // Some change places.
                    for _ in 0..frames / 40 {
                        let at = random.usize(..wires.len());
                        let to = (at + random.usize(0..5)).min(wires.len() - 1);
                        wires.swap(at, to);
                    }
                    bench.send(name, wires, T0);
                    // The time between is known, if no frame is missing.
                    bench.now += random.i64(1..100) * MS;
                }
                bench.upkeep();
            }
            let to = bench.now;
            let all = |bench: &Bench| {
                streams
                    .iter()
                    .map(|(_, (id, channels))| {
                        let store = bench.store();
                        let of = |column| (weights(store, *id, column, to), intervals(store, *id, column, to));
                        (of(channels[0]), of(channels[1]))
                    })
                    .collect::<Vec<_>>()
            };
            let before = all(&bench);
            let end = ENDS[random.usize(..3)];
            bench.end(end);
            assert_eq!(all(&bench), before, "seed {seed}: after {end:?}");
            bench.end(End::Clean);
            assert_eq!(all(&bench), before, "seed {seed}: sealed");
            if random.bool() {
                bench.store().settle(bench.now).expect("settled");
                assert_eq!(all(&bench), before, "seed {seed}: settled");
                bench.end(End::Kill);
                assert_eq!(all(&bench), before, "seed {seed}: settled, after a kill");
            }
            // Some are lost while nothing runs.
            next.iter_mut().for_each(|next| *next += random.u64(0..10));
        }
    }
}

/// The smallest store has little room in its checkpoints: what does not fit is stored again, never dropped.
#[test]
fn a_small_store_remembers_what_it_has_room_for() {
    let fixed = FixedOptions { max_streams: 3, max_channels: 5, ..FixedOptions::new(204_800) };
    let region = MemoryRegion::new(204_800);
    let open = |now| Store::in_memory(&region, &fixed, StoreOptions::default(), now).expect("opened");
    let mut now = T0;
    let mut store = Some(open(now));
    let wire_of = |n: u64| n * 3;
    let mut next = 0;
    for round in 0..6 {
        let of = store.as_ref().expect("open");
        let (stream, channels) = of.resolve(&sequenced("fti", Clock::Receive), now).expect("resolved");
        let send = |wires: &[u64], now: i64| -> Vec<bool> {
            let mut outcomes = Vec::new();
            for few in wires.chunks(20) {
                let mut batch = FrameBatch::new();
                for &wire in few {
                    let source = Some(T0 + wire as i64 * MS);
                    batch.put_at(
                        head(stream.id, now).sampled(source).numbered(Some(wire)),
                        [(channels[0], Value::F64(wire as f64))],
                    );
                }
                outcomes.extend(stored(&of.append(&batch, now).outcomes));
                of.upkeep(now);
            }
            outcomes
        };
        // Of what came before, the newest is known, and what never came is taken.
        if round > 0 {
            assert_eq!(send(&[wire_of(next - 1), wire_of(next - 1) + 1], now)[1..], [true], "round {round}");
        }
        let wires: Vec<u64> = (next..next + 150).map(wire_of).collect();
        next += 150;
        now += SECOND;
        assert!(send(&wires, now).iter().all(|stored| *stored), "round {round}");
        let late: Vec<u64> = wires.iter().step_by(10).map(|wire| wire + 2).collect();
        assert!(send(&late, now).iter().all(|stored| *stored), "round {round}");
        assert_adds_up(&of.counts(stream.id));
        if round % 2 == 0 {
            of.close(now).expect("closed");
        }
        drop(store.take());
        now += SECOND;
        store = Some(open(now));
    }
}
