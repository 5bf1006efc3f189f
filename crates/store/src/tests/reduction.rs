//! Random series through every reduction: each sample offered in order lies within the bound of what is read back at
//! its instant, from memory, blocks, the log, and after the power was cut at any write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        max_bytes: Some(1 << 40),
        open_bytes: 32 << 10,
        ..StoreOptions::default()
    }
}

fn channels() -> Vec<ChannelSpec> {
    let deadband = |bound| Reduction::Deadband { bound };
    let door = |bound| Reduction::SwingingDoor { bound };
    [
        ("deadband_f64", ChannelType::F64, deadband(0.75)),
        ("deadband_u64", ChannelType::U64, deadband(2.5)),
        ("deadband_i8", ChannelType::I8, deadband(3.0)),
        ("door_f64", ChannelType::F64, door(0.5)),
        ("door_f32", ChannelType::F32, door(0.25)),
        ("door_i32", ChannelType::I32, door(2.9)),
        ("door_i64", ChannelType::I64, door(4.0)),
        ("step_f32", ChannelType::F32, Reduction::Step),
        ("step_bool", ChannelType::Bool, Reduction::Step),
        ("step_text", ChannelType::String, Reduction::Step),
        ("plain", ChannelType::F64, Reduction::None),
    ]
    .map(|(name, kind, reduction)| ChannelSpec { reduction, ..ChannelSpec::new(name, kind) })
    .to_vec()
}

/// What was offered of one channel, by `time`: of equal times the last.
type Offered = BTreeMap<i64, Option<OwnedValue>>;

/// How lively a series is.
#[derive(Clone, Copy)]
struct Mood {
    /// Share of frames in which a channel moves by much.
    jumps: f64,
    /// Share of cells that are absent, unknown, or no finite number.
    odd: f64,
    /// Share of frames with a value of the channel without reduction.
    plain: f64,
    /// Share of frames that come late.
    late: f64,
}

struct Source {
    random: Rng,
    mood: Mood,
    time: i64,
    walks: Vec<f64>,
    slopes: Vec<f64>,
}

impl Source {
    fn new(seed: u64) -> Source {
        let mut random = Rng::with_seed(seed);
        let mut pick = |shares: &[f64]| shares[random.usize(..shares.len())];
        let mood = Mood {
            jumps: pick(&[0.0, 0.01, 0.1]),
            odd: pick(&[0.0, 0.01, 0.1]),
            plain: pick(&[0.0, 0.02, 0.3]),
            late: pick(&[0.0, 0.0, 0.02]),
        };
        let walks = channels().iter().map(|_| random.f64() * 40.0 - 20.0).collect();
        Source { random, mood, time: T0, walks, slopes: vec![0.0; channels().len()] }
    }

    /// The next value of a channel, if it has one; none: unknown.
    fn value(&mut self, channel: usize, kind: ChannelType) -> Option<OwnedValue> {
        let random = &mut self.random;
        if random.f64() < self.mood.jumps {
            self.walks[channel] += random.f64() * 40.0 - 20.0;
            self.slopes[channel] = random.f64() - 0.5;
        }
        self.walks[channel] += self.slopes[channel] + (random.f64() - 0.5) * 0.2;
        self.walks[channel] = self.walks[channel].clamp(-100.0, 100.0);
        let walk = self.walks[channel];
        let odd = random.f64() < self.mood.odd;
        if odd && random.bool() {
            return None;
        }
        Some(OwnedValue::Plain(match kind {
            ChannelType::F64 if odd => Value::F64([f64::NAN, f64::INFINITY, -0.0, 1e300, 5e-324][random.usize(..5)]),
            ChannelType::F64 => Value::F64(walk),
            ChannelType::F32 if odd => Value::F32([f32::NAN, f32::NEG_INFINITY, -0.0, f32::MAX][random.usize(..4)]),
            ChannelType::F32 => Value::F32((walk * 4.0).round() as f32 / 4.0),
            ChannelType::I8 => Value::I8(walk as i8),
            ChannelType::I32 => Value::I32(walk as i32),
            ChannelType::I64 if odd => Value::I64([i64::MIN, i64::MAX, (1 << 53) + 1][random.usize(..3)]),
            ChannelType::I64 => Value::I64(walk as i64),
            ChannelType::U64 if odd => Value::U64([u64::MAX, u64::MAX - 2, 0][random.usize(..3)]),
            ChannelType::U64 => Value::U64((walk + 100.0) as u64),
            ChannelType::Bool => Value::Bool(walk > 0.0),
            _ => return Some(OwnedValue::String("abcdefghij"[..(walk.abs() / 20.0) as usize].into())),
        }))
    }

    /// A frame: its time and cells, and whether it is late.
    fn frame(&mut self) -> (i64, Vec<(usize, Option<OwnedValue>)>, bool) {
        let late = self.random.f64() < self.mood.late && self.time > T0 + 1_000_000;
        self.time += if late { 0 } else { [0, 1, 1_000, 1_000, 999_983][self.random.usize(..5)] };
        let time = if late { self.time - self.random.i64(1..1_000_000) } else { self.time };
        let mut cells = Vec::new();
        for (n, channel) in channels().iter().enumerate() {
            let share = if channel.reduction == Reduction::None { 1.0 - self.mood.plain } else { self.mood.odd };
            if self.random.f64() >= share {
                cells.push((n, self.value(n, channel.channel_type)));
            }
        }
        (time, cells, late)
    }
}

struct Checked {
    stream: StreamId,
    clock: Clock,
    offered: Vec<Offered>,
    /// Values that came late, of each channel: any of equal times is right.
    late: Vec<Vec<(i64, Option<OwnedValue>)>>,
    frames: u64,
    /// Cells offered.
    cells: u64,
}

fn resolve(store: &Store, clock: Clock) -> StreamId {
    store.stream(&spec("reduced", channels()).clock(clock))
}

impl Checked {
    fn new(store: &Store, clock: Clock) -> Checked {
        let channels = channels().len();
        Checked {
            stream: resolve(store, clock),
            clock,
            offered: vec![Offered::new(); channels],
            late: vec![Vec::new(); channels],
            frames: 0,
            cells: 0,
        }
    }

    fn append(&mut self, store: &Store, source: &mut Source, frames: usize) -> Vec<Outcome> {
        let mut batch = FrameBatch::new();
        for _ in 0..frames {
            let (time, cells, late) = source.frame();
            let source_time = (self.clock == Clock::Source).then_some(time);
            let receive_time = if self.clock == Clock::Source { source.time + 5 } else { time };
            batch.begin(head(self.stream, receive_time).sampled(source_time));
            self.cells += cells.len() as u64;
            for (n, value) in cells {
                match &value {
                    Some(value) => batch.push(ChannelIndex(n as u16), value.as_value()),
                    None => batch.push_state(ChannelIndex(n as u16), CellState::Unknown),
                }
                if late && channels()[n].reduction != Reduction::None {
                    self.late[n].push((time, value));
                } else if !late {
                    self.offered[n].insert(time, value);
                }
            }
            batch.end();
        }
        self.frames += frames as u64;
        store.append(&batch, source.time).outcomes
    }

    /// Samples, the newest and many others, are within their bounds of what is read back.
    fn check(&self, store: &Store, what: &str) {
        let mut rng = Rng::with_seed(self.frames);
        let view = store.view();
        for (n, channel) in channels().iter().enumerate() {
            let every = rng.usize(1..2 + self.offered[n].len() / 60);
            for (time, want) in self.offered[n].iter().rev().step_by(every) {
                let state = view.state_at(self.stream, *time, &[ChannelIndex(n as u16)]).expect("a state");
                let found = state[0].as_ref();
                let fits = found.is_some_and(|found| {
                    found.time <= *time && near(want.as_ref(), found.value.as_ref(), channel.reduction)
                });
                assert!(fits, "{what}: {} at {}: {found:?} instead of {want:?}", channel.name, time - T0);
            }
        }
    }

    /// What came late is in channels beside, exactly.
    fn check_late(&self, store: &Store, what: &str) {
        let (view, catalog) = (store.view(), store.catalog());
        let layout = &catalog.stream(self.stream).expect("the stream").layout;
        for (n, channel) in channels().iter().enumerate() {
            if self.late[n].is_empty() {
                continue;
            }
            let beside = layout.index(&format!("{}_late", channel.name)).expect("a channel beside");
            let mut found = Vec::new();
            for batch in view.scan(Scan::all(self.stream, vec![beside])) {
                let batch = batch.expect("reads");
                for row in 0..batch.len() {
                    match batch.columns[0].cell(row) {
                        Ok(value) => found.push(format!("{} {:?}", batch.time(row), Some(OwnedValue::of(value)))),
                        Err(CellState::Unknown) => found.push(format!("{} None", batch.time(row))),
                        Err(_) => {}
                    }
                }
            }
            let want: Vec<String> = self.late[n].iter().map(|(t, v)| format!("{t} {v:?}")).collect();
            assert_eq!(found, want, "{what}: {}", channel.name);
        }
    }
}

/// Whether what is read back is within the bound of what was offered.
pub(super) fn near(want: Option<&OwnedValue>, found: Option<&OwnedValue>, reduction: Reduction) -> bool {
    let (Some(want), Some(found)) = (want, found) else { return want.is_none() && found.is_none() };
    let (a, b) = (want.as_value(), found.as_value());
    let same = a.channel_type() == b.channel_type() && a.bits() == b.bits() && want == found
        || a.bits() == b.bits() && a.as_f64().is_some_and(f64::is_nan);
    let bound = match reduction {
        Reduction::None | Reduction::Step => return same,
        Reduction::Deadband { bound } | Reduction::SwingingDoor { bound } => bound,
    };
    let whole = |v: Value<'_>| match v {
        Value::I64(v) => Some(i128::from(v)),
        Value::U64(v) => Some(i128::from(v)),
        _ => None,
    };
    same || match (whole(a), whole(b)) {
        (Some(a), Some(b)) => (a - b).unsigned_abs() <= bound as u128,
        _ => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            a.is_finite() && b.is_finite() && (a - b).abs() <= bound
        }
    }
}

/// Seeds to run: `REDUCTION_SEEDS`, or so many.
fn seeds(few: u64) -> u64 {
    std::env::var("REDUCTION_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(few)
}

#[test]
fn every_sample_lies_within_its_bound_wherever_it_is_read() {
    let (mut cells, mut points) = (0, 0);
    for seed in 0..seeds(30) {
        let disk = FaultDisk::new(seed);
        let mut store = open(&disk, options());
        let clock = if seed % 2 == 0 { Clock::Receive } else { Clock::Source };
        let (mut checked, mut source) = (Checked::new(&store, clock), Source::new(seed));
        for lap in 0..3 {
            let what = format!("seed {seed}, lap {lap}");
            let mut offered = 0;
            for _ in 0..4 {
                let count = source.random.usize(1..500);
                offered += count as u64;
                let before = store.view().next_row(checked.stream);
                let outcomes = checked.append(&store, &mut source, count);
                for outcome in outcomes {
                    match outcome {
                        Outcome::Stored { row } | Outcome::Reduced { row } => assert!(row + 1 >= before, "{what}"),
                        // Equal in time and all it says, as an empty one is.
                        Outcome::Duplicate => {}
                        other => panic!("{what}: {other:?}"),
                    }
                }
                checked.check(&store, &what);
                if source.random.bool() {
                    store.upkeep(source.time);
                }
            }
            let counts = store.counts(checked.stream);
            assert_eq!(counts.received, counts.stored + counts.reduced + counts.duplicate, "{what}: {counts:?}");
            assert_eq!(counts.received, offered, "{what}");
            // A frame that was held when the store was killed was received before.
            let made = store.view().next_row(checked.stream) - store.opened_row(checked.stream);
            assert!(made == counts.stored || made == counts.stored + 1, "{what}: {made} rows, {counts:?}");
            checked.check(&store, &what);
            checked.check_late(&store, &what);
            points += counts.points;
            // A clean end, or the process killed after a commit.
            if seed % 3 == 0 {
                store.close(source.time).expect("closed");
                store = open_at(&disk, options(), source.time);
            } else {
                store.upkeep(source.time);
                drop(store);
                let disk = disk.clone();
                store = open_at(&disk, options(), source.time);
            }
            checked.check(&store, &what);
            checked.check_late(&store, &what);
        }
        cells += checked.cells;
    }
    assert!(points * 2 < cells, "{points} of {cells} values");
}

#[test]
fn what_was_acknowledged_keeps_its_bound_whatever_is_cut() {
    let mut cuts = 0;
    for seed in 1_000..1_000 + seeds(25) {
        let mut disk = FaultDisk::new(seed);
        let mut store = open(&disk, options());
        let mut source = Source::new(seed);
        source.mood.late = 0.0;
        let clock = if seed % 2 == 0 { Clock::Receive } else { Clock::Source };
        let mut checked = Checked::new(&store, clock);
        for lap in 0..6 {
            let what = format!("seed {seed}, lap {lap}");
            let mut acknowledged = source.time + 1;
            disk.faults.writes_left.store(source.random.u64(1..40), Ordering::Relaxed);
            for _ in 0..40 {
                let count = source.random.usize(1..60);
                // Of equal times the one that is not acknowledged may stand for the other.
                source.time += 1;
                checked.append(&store, &mut source, count);
                if store.commit(source.time).is_err() {
                    break;
                }
                acknowledged = source.time + 1;
                if source.random.bool() && store.maintain(source.time).is_err() {
                    break;
                }
            }
            if !disk.is_cut() {
                continue;
            }
            cuts += 1;
            loop {
                disk = disk.after_cut();
                if source.random.bool() {
                    disk.faults.writes_left.store(source.random.u64(1..12), Ordering::Relaxed);
                }
                match disk.open_store(options(), source.time) {
                    Ok(opened) => {
                        store = opened;
                        break;
                    }
                    Err(_) if disk.is_cut() => continue,
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            // What was not acknowledged may be there or not.
            checked.offered.iter_mut().for_each(|offered| drop(offered.split_off(&acknowledged)));
            assert_eq!(resolve(&store, clock), checked.stream);
            checked.check(&store, &what);
        }
    }
    assert!(cuts > 2 * seeds(25), "{cuts} cuts");
}

/// A stream with one channel.
fn single(store: &Store, name: &str, kind: ChannelType, reduction: Reduction) -> StreamId {
    store.stream(&spec(name, [("x", kind, reduction)]))
}

fn offer(store: &Store, stream: StreamId, time: i64, value: f64) -> Outcome {
    let mut batch = FrameBatch::new();
    batch.put(head(stream, T0 + time), [Value::F64(value)]);
    store.append(&batch, T0 + time).outcomes.remove(0)
}

fn state(store: &Store, stream: StreamId, time: i64) -> Option<(f64, i64)> {
    let cell = store.view().state_at(stream, T0 + time, &[ChannelIndex(0)]).expect("a state").remove(0)?;
    Some((cell.value?.as_value().as_f64()?, cell.time - T0))
}

#[test]
fn a_held_frame_outlives_its_place_in_the_log() {
    let disk = FaultDisk::new(5);
    let mut store = open(&disk, options());
    let held = single(&store, "quiet", ChannelType::F64, Reduction::SwingingDoor { bound: 0.5 });
    let busy = single(&store, "busy", ChannelType::F64, Reduction::None);
    assert_eq!(offer(&store, held, 0, 0.0), Outcome::Stored { row: 0 });
    assert_eq!(offer(&store, held, 10, 100.0), Outcome::Reduced { row: 0 });
    store.commit(T0).expect("committed");
    let mut time = 10;
    // Killed at every stage of the log's way round.
    for lap in 0..16 {
        let written = store.stats().written_bytes;
        while store.stats().written_bytes < written + options().log_bytes / 8 {
            for _ in 0..20 {
                time += 1;
                assert!(matches!(offer(&store, busy, time, time as f64), Outcome::Stored { .. }), "lap {lap}");
            }
            store.upkeep(T0 + time);
        }
        assert_eq!(
            (state(&store, held, 10), state(&store, held, 5)),
            (Some((100.0, 10)), Some((50.0, 5))),
            "lap {lap}"
        );
        drop(store);
        store = open_at(&disk, options(), T0 + time);
        assert_eq!(
            (state(&store, held, 10), state(&store, held, 5)),
            (Some((100.0, 10)), Some((50.0, 5))),
            "lap {lap}"
        );
    }
    // It is a row by now, and what follows begins anew.
    assert_eq!(store.view().next_row(held), 2);
    assert_eq!(offer(&store, held, time, 7.0), Outcome::Stored { row: 2 });
}

#[test]
fn a_steady_value_is_as_new_as_its_newest_frame() {
    let disk = FaultDisk::new(6);
    let store = open(&disk, options());
    let stream = store.stream(&spec(
        "two",
        [("x", ChannelType::F64, Reduction::Deadband { bound: 1.0 }), ("y", ChannelType::String, Reduction::Step)],
    ));
    let mut batch = FrameBatch::new();
    let (rows, mut reduced) = (3_000i64, 0);
    for n in 0..rows {
        batch.begin(head(stream, T0 + n));
        // The text changes in two of three frames, the number stays within its band.
        batch.push(ChannelIndex(0), Value::F64(0.5 + (n % 7) as f64 / 7.0));
        batch.push(ChannelIndex(1), Value::String(["a", "b", "b"][n as usize % 3]));
        batch.end();
    }
    for outcome in store.append(&batch, T0).outcomes {
        reduced += u64::from(matches!(outcome, Outcome::Reduced { .. }));
    }
    assert_eq!(reduced, 1_000);
    store.upkeep(T0);
    let values: u64 = store
        .view()
        .scan(Scan::all(stream, vec![ChannelIndex(0)]))
        .map(|b| {
            let batch = b.expect("reads");
            (0..batch.len()).filter(|&r| batch.columns[0].cell(r).is_ok()).count() as u64
        })
        .sum();
    assert!((4..10).contains(&values), "{values}: stored again now and then, not in each row");
    for at in [0, 1, 2, 3, 700, 1_024, 2_998, 2_999, 5_000] {
        let decoded = store.stats().blocks_decoded;
        let cells = store.view().state_at(stream, T0 + at, &[ChannelIndex(0), ChannelIndex(1)]).expect("a state");
        assert!(store.stats().blocks_decoded - decoded <= 6, "{} blocks", store.stats().blocks_decoded - decoded);
        let newest = at.min(rows - 1);
        // A frame that got no row is known only while it is held.
        let frame = if newest % 3 == 2 && newest != rows - 1 { newest - 1 } else { newest };
        let x = cells[0].as_ref().expect("a state");
        assert_eq!(x.time, T0 + frame, "at {at}");
        let y = cells[1].as_ref().expect("a state");
        assert_eq!(y.value, Some(OwnedValue::String(["a", "b", "b"][newest as usize % 3].into())), "at {at}");
    }
}

/// How a stream grows while a frame of it is held.
#[derive(Clone, Copy, Debug)]
enum Growth {
    Channel,
    /// One that takes no more words.
    Beside,
    Wider,
    /// From one word of states to two.
    Channels,
    Sequence,
}

impl Growth {
    const ALL: [Growth; 5] = [Growth::Channel, Growth::Beside, Growth::Wider, Growth::Channels, Growth::Sequence];

    /// The stream before, and after.
    fn specs(self) -> [StreamSpec; 2] {
        let step = |name: &str, kind| ChannelSpec { reduction: Reduction::Step, ..ChannelSpec::new(name, kind) };
        let a = match self {
            Growth::Wider => ChannelSpec {
                reduction: Reduction::SwingingDoor { bound: 0.5 },
                ..ChannelSpec::new("a", ChannelType::I32)
            },
            _ => step("a", ChannelType::I32),
        };
        let before = spec("grown", vec![a]);
        let mut after = before.clone();
        match self {
            Growth::Channel => after.channels.push(step("b", ChannelType::F64)),
            Growth::Beside => after.channels.push(step("b", ChannelType::I32)),
            Growth::Wider => after.channels[0].channel_type = ChannelType::F64,
            Growth::Channels => after.channels.extend((0..32).map(|n| step(&format!("b{n}"), ChannelType::F64))),
            Growth::Sequence => after.sequence_modulus = Some(1 << 32),
        }
        [before, after]
    }
}

/// Offers a value that any of their types takes.
fn small(store: &Store, stream: StreamId, time: i64, value: i8) -> Outcome {
    let mut batch = FrameBatch::new();
    batch.put(head(stream, T0 + time), [Value::I8(value)]);
    store.append(&batch, T0 + time).outcomes.remove(0)
}

/// A checkpoint states how a stream grew ahead of the log, where its held frame stands as it was before: that frame is
/// read back, and so is what follows, however the store goes on.
#[test]
fn a_held_frame_of_before_its_stream_grew_is_stored_as_it_is() {
    for growth in Growth::ALL {
        for flushed in [false, true] {
            let disk = FaultDisk::new(8);
            let mut store = open(&disk, options());
            let [before, after] = growth.specs();
            let s = store.stream(&before);
            assert_eq!(small(&store, s, 0, 7), Outcome::Stored { row: 0 });
            assert_eq!(small(&store, s, 10, 7), Outcome::Reduced { row: 0 });
            store.commit(T0).expect("committed");
            store.resolve(&after, T0).expect("resolved");
            store.sealer.lock().write_checkpoint(&store.engine, None).expect("a checkpoint");
            drop(store);
            store = open(&disk, options());
            let what = format!("{growth:?}, {flushed}");
            assert_eq!(state(&store, s, 15), Some((7.0, 10)), "{what}");
            assert_eq!(store.stream(&after), s);
            if flushed {
                assert!(store.engine.writer.lock().flush_held(s.0, 0, T0));
            }
            // What is known of the rows before is not what they hold: it gets a row, equal or not.
            assert_eq!(small(&store, s, 20, 7), Outcome::Stored { row: 2 }, "{what}");
            let door = matches!(growth, Growth::Wider);
            let next = if door { Outcome::Reduced { row: 2 } } else { Outcome::Stored { row: 3 } };
            assert_eq!(small(&store, s, 30, 9), next, "{what}");
            for round in 0..3 {
                let states: Vec<_> = [5, 15, 25, 35].map(|at| state(&store, s, at).expect("a state").0).to_vec();
                let times: Vec<_> = [15, 35].map(|at| state(&store, s, at).expect("a state").1).to_vec();
                assert_eq!(states, [7.0, 7.0, if door { 8.0 } else { 7.0 }, 9.0], "{what}, {round}");
                assert_eq!(times, [if door { 15 } else { 10 }, 30], "{what}, {round}");
                match round {
                    0 => store.upkeep(T0 + 30),
                    _ => store.close(T0 + 30).expect("closed"),
                }
                drop(store);
                store = open_at(&disk, options(), T0 + 30);
            }
        }
    }
}

/// A frame that is held after its stream grew stands in the log behind what it grew by, in one commit, too.
#[test]
fn a_held_frame_of_after_its_stream_grew_is_read_back() {
    for growth in Growth::ALL {
        let disk = FaultDisk::new(8);
        let store = open(&disk, options());
        let [before, after] = growth.specs();
        let s = store.stream(&before);
        assert_eq!(small(&store, s, 0, 7), Outcome::Stored { row: 0 });
        assert_eq!(small(&store, s, 10, 7), Outcome::Reduced { row: 0 });
        store.resolve(&after, T0).expect("resolved");
        assert_eq!(small(&store, s, 20, 7), Outcome::Stored { row: 2 });
        assert_eq!(small(&store, s, 30, 7), Outcome::Reduced { row: 2 });
        store.commit(T0).expect("committed");
        drop(store);
        let store = open(&disk, options());
        assert_eq!(state(&store, s, 35), Some((7.0, 30)), "{growth:?}");
    }
}

/// Fills the log with commits, as while upkeep is held up; returns the time of the last frame.
fn fill_log(store: &Store, busy: StreamId, mut time: i64) -> i64 {
    loop {
        time += 1;
        match offer(store, busy, time, time as f64) {
            Outcome::Stored { .. } => {}
            Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => return time,
            other => panic!("{other:?}"),
        }
        store.commit(T0 + time).expect("committed");
    }
}

/// What takes of the room that the log keeps free.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// Openings: each begins its epoch in the log.
    Openings(u32),
    /// A run that is released.
    Release,
    /// Leaps of the clock: each marks the log.
    Leaps(i64),
}

/// The row of a held frame finds room in a full log, so that what follows it is freed: whatever took of what was kept.
#[test]
fn the_room_for_held_frames_is_theirs_in_a_full_log() {
    for takes in [Takes::Openings(1), Takes::Openings(40), Takes::Release, Takes::Leaps(40)] {
        let disk = FaultDisk::new(9);
        let mut store = open(&disk, options());
        let held = single(&store, "quiet", ChannelType::F64, Reduction::Step);
        let busy = single(&store, "busy", ChannelType::F64, Reduction::None);
        store.protect_run("run", T0).expect("protected");
        assert_eq!(offer(&store, held, 0, 7.0), Outcome::Stored { row: 0 });
        assert_eq!(offer(&store, held, 10, 7.0), Outcome::Reduced { row: 0 });
        store.commit(T0).expect("committed");
        let time = fill_log(&store, busy, 10);
        match takes {
            Takes::Openings(times) => {
                for _ in 0..times {
                    drop(store);
                    store = open_at(&disk, options(), T0 + time);
                }
            }
            Takes::Release => {
                store.release_run("run", T0 + time).expect("released").expect("a run");
                store.commit(T0 + time).expect("committed");
            }
            Takes::Leaps(times) => {
                for n in 0..times {
                    store.engine.mark_log(T0 + time + n).expect("marked");
                }
            }
        }
        for _ in 0..20 {
            store.upkeep(T0 + time);
        }
        assert!(matches!(offer(&store, busy, time, 0.0), Outcome::Stored { .. }), "{takes:?}: {:?}", store.refusal());
        assert_eq!(state(&store, held, 15), Some((7.0, 10)), "{takes:?}");
        store.close(T0 + time).expect("closed");
    }
}

/// A late frame that was seen before, or has no possible time, adds no channel for late values.
#[test]
fn what_is_not_stored_adds_no_channel() {
    let store = open(&FaultDisk::new(8), options());
    let channels = vec![ChannelSpec { reduction: Reduction::Step, ..ChannelSpec::new("a", ChannelType::I32) }];
    let mut sequenced = spec("late", channels).clock(Clock::Source);
    sequenced.sequence_modulus = Some(1 << 16);
    let s = store.stream(&sequenced);
    let put = |sequence: u64, time: i64| {
        let mut batch = FrameBatch::new();
        let head = FrameHead { sequence: Some(sequence), ..head(s, T0 + 100) };
        batch.put(head.sampled(Some(time)), [Value::I32(sequence as i32)]);
        store.append(&batch, T0 + 100).outcomes.remove(0)
    };
    let channels = || store.catalog().stream(s).expect("a stream").layout.channels.len();
    assert_eq!(put(1, T0 + 10), Outcome::Stored { row: 0 });
    assert_eq!(put(2, T0 + 20), Outcome::Stored { row: 1 });
    assert_eq!(put(1, T0 + 10), Outcome::Duplicate);
    assert!(matches!(put(3, i64::MIN), Outcome::Rejected(Reject::BadTime { .. })));
    assert_eq!(channels(), 1);
    assert!(matches!(put(3, T0 + 15), Outcome::Stored { .. }));
    assert!(matches!(put(4, T0 + 16), Outcome::Stored { .. }));
    assert_eq!(channels(), 2);
}

/// Rows in which a channel is absent do not hide the value that ends its line.
#[test]
fn a_line_goes_on_past_thousands_of_rows_without_the_channel() {
    let store = open(&FaultDisk::new(5), options());
    let door = Reduction::SwingingDoor { bound: 0.1 };
    let stream = store.stream(&spec("s", [("x", ChannelType::F64, door), ("y", ChannelType::F64, Reduction::None)]));
    let put = |times: Range<i64>, channel: u16, value: f64| {
        let mut batch = FrameBatch::new();
        times.clone().for_each(|time| {
            batch.put_at(head(stream, T0 + time), [(ChannelIndex(channel), Value::F64(value))]);
        });
        let appended = store.append(&batch, T0 + times.end);
        assert!(appended.outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. } | Outcome::Reduced { .. })));
        store.upkeep(T0 + times.end);
    };
    put(0..1, 0, 0.0);
    (0..50).for_each(|n| put(n * 100 + 1..n * 100 + 101, 1, 1.0));
    put(5_001..5_002, 0, 10.002);
    put(5_002..5_003, 0, 99.0);
    let state = |time| state(&store, stream, time).map(|(value, time)| ((value * 1e6).round() / 1e6, time));
    assert_eq!(state(2_500), Some((5.0, 2_500)));
    store.settle(T0 + 5_003).expect("settled");
    assert_eq!(state(2_500), Some((5.0, 2_500)));
}
