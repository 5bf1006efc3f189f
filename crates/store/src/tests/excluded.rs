//! Values that are left out: every reader returns what it returns of a store in which they were never stored.

use std::ops::{Bound, Range};

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::model::mutant::{self, Mutant};
use crate::tests::kit::*;
use crate::*;

/// Blocks of the stream: each has a layout of its own, so that settle joins none of them and makes a pyramid.
const STEPS: usize = 24;
const STEP_ROWS: usize = 90;
/// Channels that are compared: floats, floats with special values, integers that were widened, sparse ones, text, arrays.
const CHANNELS: [ChannelIndex; 6] =
    [ChannelIndex(0), ChannelIndex(1), ChannelIndex(2), ChannelIndex(3), ChannelIndex(4), ChannelIndex(5)];
const ARRAY: ChannelIndex = ChannelIndex(5);
/// The channels of numbers among them.
const NUMBERS: usize = 4;

fn grown(step: usize) -> StreamSpec {
    let small = if step < STEPS / 2 { ChannelType::I16 } else { ChannelType::I64 };
    let mut channels = vec![
        ChannelSpec::new("steady", ChannelType::F64),
        ChannelSpec::new("broken", ChannelType::F64),
        ChannelSpec::new("small", small),
        ChannelSpec::new("sparse", ChannelType::U32),
        ChannelSpec::new("text", ChannelType::String),
        ChannelSpec::new("array", ChannelType::Array(ArrayType::variable(ElementType::U16))),
        // Makes blocks so large that their columns are read one by one.
        ChannelSpec::new("noise", ChannelType::String),
    ];
    channels.extend((0..step).map(|n| ChannelSpec::new(format!("x{n}"), ChannelType::Bool)));
    spec("t", channels).modulus(Some(1 << 20)).clock(Clock::Source)
}

/// A frame: its cells by channel, and how it is numbered.
struct Frame {
    step: usize,
    receive_time: i64,
    source_time: i64,
    sequence: u64,
    cells: Vec<(ChannelIndex, Result<OwnedValue, CellState>)>,
}

/// Frames, of which some come late.
fn frames(random: &mut Rng, late: bool) -> Vec<Frame> {
    let (mut frames, mut now, mut sequence) = (Vec::new(), T0, 0);
    for step in 0..STEPS {
        for _ in 0..STEP_ROWS {
            now += random.i64(0..2_000_000);
            sequence += 1 + u64::from(random.u16(0..200) == 0);
            let source_time = if late && random.u16(0..60) == 0 { now - random.i64(0..20_000_000) } else { now };
            let plain = |value| Ok(OwnedValue::Plain(value));
            let mut cells = vec![(CHANNELS[0], plain(Value::F64(f64::from(random.i32(-400..400)) / 4.0)))];
            let broken = match random.u16(0..120) {
                0 => Err(CellState::Unknown),
                1 => plain(Value::F64(f64::NAN)),
                2 => plain(Value::F64(f64::INFINITY)),
                _ => plain(Value::F64(f64::from(random.i32(-5..5)))),
            };
            cells.push((CHANNELS[1], broken));
            let small = random.i16(-99..99);
            let widened = step >= STEPS / 2;
            cells.push((CHANNELS[2], plain(if widened { Value::I64(small.into()) } else { Value::I16(small) })));
            if random.u8(0..5) == 0 {
                cells.push((CHANNELS[3], plain(Value::U32(random.u32(0..1 << 20)))));
            }
            cells.push((CHANNELS[4], Ok(OwnedValue::String(format!("t{}", random.u8(0..9))))));
            let bytes = (0..2 * random.usize(0..6)).map(|_| random.u8(..)).collect();
            cells.push((ARRAY, Ok(OwnedValue::Array { element: ElementType::U16, bytes })));
            let noise = (0..200).map(|_| random.alphanumeric()).collect();
            cells.push((ChannelIndex(6), Ok(OwnedValue::String(noise))));
            cells.extend((0..step).map(|n| (ChannelIndex(7 + n as u16), plain(Value::Bool(random.bool())))));
            frames.push(Frame { step, receive_time: now, source_time, sequence, cells });
        }
    }
    frames
}

type Spans = Vec<(ChannelIndex, Range<i64>)>;

fn is_left_out(spans: &Spans, channel: ChannelIndex, time: i64) -> bool {
    spans.iter().any(|(of, span)| *of == channel && span.contains(&time))
}

/// Spans of an instant, of a few rows, of blocks, and of everything, that touch and overlap.
fn spans(random: &mut Rng, frames: &[Frame]) -> Spans {
    let mut spans = Vec::new();
    for channel in CHANNELS {
        for _ in 0..[0, 1, 2, 6][random.usize(..4)] {
            let first = frames[random.usize(..frames.len())].source_time;
            let kinds = if random.u8(0..8) == 0 { 5 } else { 4 };
            let rows = [0, 1, 8, 2 * STEP_ROWS, frames.len()][random.usize(..kinds)];
            let to = first + random.i64(0..=rows as i64 * 1_000_000) + 1;
            spans.push((channel, first..to));
            if random.u8(0..3) == 0 {
                spans.push((channel, to - random.i64(0..2)..to + random.i64(0..5_000_000)));
            }
        }
    }
    spans
}

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 4 << 20,
        max_bytes: Some(64 << 20),
        // Every row is sealed at once.
        open_bytes: 1,
        ..StoreOptions::default()
    }
}

/// Stores frames without the cells in `without`. The last `open` blocks stay in memory.
fn store_of(disk: &FaultDisk, frames: &[Frame], without: &Spans, open: usize) -> (Store, StreamId, i64) {
    let store = crate::tests::kit::open(disk, options());
    let (mut id, mut now) = (StreamId(0), T0);
    for of_step in frames.chunk_by(|a, b| a.step == b.step) {
        let step = of_step[0].step;
        id = store.resolve(&grown(step), now).expect("resolved").0.id;
        let mut batch = FrameBatch::new();
        for frame in of_step {
            now = frame.receive_time;
            batch.begin(head(id, now).numbered(Some(frame.sequence)).sampled(Some(frame.source_time)));
            for (channel, cell) in &frame.cells {
                if is_left_out(without, *channel, frame.source_time) {
                    continue;
                }
                match cell {
                    Ok(value) => batch.push(*channel, value.as_value()),
                    Err(state) => batch.push_state(*channel, *state),
                }
            }
            batch.end();
        }
        assert!(store.append(&batch, now).outcomes.iter().all(is_stored));
        if step + open < STEPS {
            store.upkeep(now);
        }
    }
    (store, id, now)
}

/// Rows of a scan as text.
fn rows(view: &View, scan: Scan) -> Vec<String> {
    let mut found = Vec::new();
    for batch in view.scan(scan) {
        let batch = batch.expect("reads");
        for row in 0..batch.len() {
            let cells: Vec<_> = batch.columns.iter().map(|column| column.cell(row)).collect();
            found.push(format!("{} at {}: {cells:?}", batch.rows[row], batch.time(row) - T0));
        }
    }
    found.sort();
    found
}

/// Rows in order as text.
fn ordered(view: &View, id: StreamId, newest_first: bool) -> Vec<String> {
    let scan = OrderedScan { newest_first, ..OrderedScan::all(Vec::new()) };
    let mut found = Vec::new();
    for batches in OrderedRuns::new(view, &scan, id, &CHANNELS) {
        let batches = batches.expect("reads");
        for run in &batches.runs {
            let batch = &batches.batches[run.batch];
            let rows: Vec<usize> =
                if newest_first { run.rows.clone().rev().collect() } else { run.rows.clone().collect() };
            for row in rows {
                let cells: Vec<_> = batch.columns.iter().map(|column| column.cell(row)).collect();
                found.push(format!("{}: {cells:?}", batch.rows[row]));
            }
        }
    }
    found
}

/// Samples as text.
fn samples(view: &View, id: StreamId, channel: ChannelIndex, time: &Range<i64>) -> Vec<String> {
    let mut runs = view.samples(id, channel, time.start, time.end).expect("samples").expect("a channel");
    let mut found = Vec::new();
    while let Some(run) = runs.next_run().expect("reads") {
        found.extend((0..run.len()).map(|at| format!("{} {:?} {}", run.time(at) - T0, run.value(at), run.has_gap(at))));
    }
    found.push(format!("{}", runs.ends_with_gap()));
    found
}

fn near(a: Option<f64>, b: Option<f64>, what: &str) {
    let fits = match (a, b) {
        (Some(a), Some(b)) => {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    assert!(fits, "{what}: {a:?} instead of {b:?}");
}

/// Buckets as text, and their means.
fn buckets(found: &[Bucket]) -> (Vec<String>, Vec<Option<f64>>) {
    let text = found.iter().map(|bucket| format!("{:?}", Bucket { mean: None, ..bucket.clone() })).collect();
    (text, found.iter().map(|bucket| bucket.mean).collect())
}

fn condition(random: &mut Rng) -> Condition {
    let channel = ChannelIndex(random.u16(0..NUMBERS as u16));
    let bound = |random: &mut Rng| {
        let value =
            if channel.0 < 2 { Value::F64(random.f64() * 6.0 - 3.0) } else { Value::I64(random.i64(-90..9_000)) };
        match random.u8(0..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(value),
            _ => Bound::Excluded(value),
        }
    };
    Condition { channel, low: bound(random), high: bound(random) }
}

/// Totals as text, without sums of floats, and these.
fn totals(view: &View, request: TotalsRequest) -> (Vec<String>, Vec<f64>) {
    let mut reader = view.totals(request);
    while reader.step().expect("reads") {}
    let (mut text, mut sums) = (Vec::new(), Vec::new());
    for (piece, of) in reader.finish() {
        let columns = of.columns.iter().map(|t| (t.values, t.nans, t.min, t.max, t.integer_sum()));
        text.push(format!("{piece}: {} {:?}", of.rows, columns.collect::<Vec<_>>()));
        sums.extend(of.columns.iter().map(Totals::float_sum));
    }
    (text, sums)
}

/// Compares what every reader returns of two views, of which the second is of a store without the values that the first
/// leaves out.
fn compare(found: &View, wanted: &View, id: StreamId, random: &mut Rng, what: &str) {
    let (first, last) = wanted.time_range(id).expect("rows");
    let all = Scan::all(id, CHANNELS.to_vec());
    for newest_first in [false, true] {
        let scan = Scan { newest_first, batch_rows: random.usize(1..99), ..all.clone() };
        assert_eq!(rows(found, scan.clone()), rows(wanted, scan), "{what}: scan");
        assert_eq!(ordered(found, id, newest_first), ordered(wanted, id, newest_first), "{what}: in order");
    }
    let elements =
        vec![ElementRange { channel: ARRAY, elements: 0..2 }, ElementRange { channel: ARRAY, elements: 3..4 }];
    for columns in [vec![], vec![CHANNELS[0]], CHANNELS.to_vec()] {
        let scan = Scan { elements: elements.clone(), ..Scan::all(id, columns) };
        assert_eq!(rows(found, scan.clone()), rows(wanted, scan), "{what}: elements");
    }
    for lap in 0..24 {
        let (a, b) = (random.i64(first - 9..last + 9), random.i64(first - 9..last + 9));
        let time = if lap % 4 == 0 { first - 1..last + 1 } else { a.min(b)..a.max(b) + 1 };
        let what = format!("{what}, {}..{}", time.start - T0, time.end - T0);
        let scan = Scan { time: time.clone(), ..Scan::all(id, vec![CHANNELS[lap % 6]]) };
        assert_eq!(rows(found, scan.clone()), rows(wanted, scan), "{what}: scan");
        assert_eq!(
            format!("{:?}", found.state_at(id, time.start, &CHANNELS).expect("state")),
            format!("{:?}", wanted.state_at(id, time.start, &CHANNELS).expect("state")),
            "{what}: state"
        );
        assert_eq!(
            format!("{:?}", found.latest(id, last, time.start, &CHANNELS).expect("latest")),
            format!("{:?}", wanted.latest(id, last, time.start, &CHANNELS).expect("latest")),
            "{what}: latest"
        );
        for (n, channel) in CHANNELS.into_iter().enumerate() {
            let what = format!("{what}, channel {n}");
            assert_eq!(samples(found, id, channel, &time), samples(wanted, id, channel, &time), "{what}: samples");
            let intervals = |view: &View| {
                let all = view.intervals(id, channel, time.clone()).expect("intervals");
                all.map(|interval| format!("{:?}", interval.expect("reads"))).collect::<Vec<_>>()
            };
            assert_eq!(intervals(found), intervals(wanted), "{what}: intervals");
            let value = |view: &View| format!("{:?}", view.value_at(id, channel, time.start).expect("reads"));
            assert_eq!(value(found), value(wanted), "{what}: value at");
            let grid = Grid { start: time.start, step_ns: 3_000_000, count: 40 };
            for how in [Resample::AsOf, Resample::Interpolated] {
                let on_grid = |view: &View| format!("{:?}", view.resample(id, channel, grid, how).expect("reads"));
                assert_eq!(on_grid(found), on_grid(wanted), "{what}: {how:?}");
            }
            let count = [1, 3, 40, 1_000][random.usize(..4)];
            let reduced = |view: &View| buckets(&view.reduce(id, channel, time.clone(), count).expect("reads"));
            let ((text, means), (wanted_text, wanted_means)) = (reduced(found), reduced(wanted));
            assert_eq!(text, wanted_text, "{what}: {count} buckets");
            means.iter().zip(&wanted_means).for_each(|(a, b)| near(*a, *b, &what));
            if n < NUMBERS {
                let weigh = |view: &View| view.weigh(id, channel, time.clone()).expect("reads");
                let (weight, expected) = (weigh(found), weigh(wanted));
                let exact = |w: &Weight| format!("{} {:?} {:?} {}", w.count, w.min, w.max, w.integral.known_ns);
                assert_eq!(exact(&weight), exact(&expected), "{what}: weight");
                near(Some(weight.integral.value_ns), Some(expected.integral.value_ns), &what);
            }
        }
        let width_ns = random.u64(1..=last.abs_diff(first)) / [1, 7, 200][random.usize(..3)] + 1;
        let pieces = (lap % 3 > 0).then_some(EqualPieces { origin: random.i64(-9..first), width_ns });
        let columns = CHANNELS[random.usize(..NUMBERS)..].to_vec();
        let conditions: Vec<Condition> = (0..random.usize(0..3)).map(|_| condition(random)).collect();
        let request = TotalsRequest { stream: id, time, columns, conditions, pieces, by_statistics: false };
        let (text, sums) = totals(wanted, request.clone());
        for by_statistics in [false, true] {
            let (found, found_sums) = totals(found, TotalsRequest { by_statistics, ..request.clone() });
            assert_eq!(found, text, "{what}: totals, by statistics: {by_statistics}");
            found_sums.iter().zip(&sums).for_each(|(a, b)| near(Some(*a), Some(*b), &what));
        }
    }
}

fn leave_out(store: &Store, id: StreamId, spans: &Spans) {
    store.exclude(Excluded::new(spans.iter().map(|(channel, span)| (id, *channel, span.clone()))));
}

/// Compares a store that leaves values out with one that never had them, as sealed and as compacted, where `fault` is
/// active from a phase on.
fn compare_stores(seed: u64, fault: Option<(Mutant, &str)>) {
    let begin = |phase: &str| fault.iter().filter(|(_, of)| *of == phase).for_each(|(f, _)| mutant::activate(Some(*f)));
    let (mut random, late) = (Rng::with_seed(seed), seed % 2 == 1);
    let frames = frames(&mut random, late);
    let left_out = spans(&mut random, &frames);
    let open = random.usize(0..4);
    let disks = [FaultDisk::new(seed), FaultDisk::new(seed)];
    let (store, id, now) = store_of(&disks[0], &frames, &Vec::new(), open);
    let (without, same_id, _) = store_of(&disks[1], &frames, &left_out, open);
    assert_eq!(id, same_id);
    let before = store.view();
    let all = rows(&before, Scan::all(id, CHANNELS.to_vec()));
    leave_out(&store, id, &left_out);
    let view = store.view();
    begin("sealed");
    compare(&view, &without.view(), id, &mut random, &format!("seed {seed}, sealed"));
    // A view keeps what it left out when it was made, and shows all on request.
    for shown in [&before, &view.with_excluded(), &store.view().with_excluded()] {
        assert_eq!(rows(shown, Scan::all(id, CHANNELS.to_vec())), all, "seed {seed}: all");
    }
    drop(view);
    let compacted = |disk: &FaultDisk, store: Store| {
        store.upkeep(now);
        store.close(now).expect("closed");
        drop(store);
        let store = disk.open_store(options(), now).expect("opened");
        assert!(store.settle(now).expect("compacted") >= 1, "seed {seed}");
        store
    };
    drop(before);
    let (store, without) = (compacted(&disks[0], store), compacted(&disks[1], without));
    assert_eq!(rows(&store.view(), Scan::all(id, CHANNELS.to_vec())), all, "seed {seed}: opened without spans");
    leave_out(&store, id, &left_out);
    begin("compacted");
    compare(&store.view(), &without.view(), id, &mut random, &format!("seed {seed}, compacted"));
    // What is taken back is there again.
    store.exclude(Excluded::default());
    assert_eq!(rows(&store.view(), Scan::all(id, CHANNELS.to_vec())), all, "seed {seed}: taken back");
}

#[test]
fn readers_return_what_they_return_of_a_store_without_the_values() {
    (0..8).for_each(|seed| compare_stores(seed, None));
}

struct Deactivate;

impl Drop for Deactivate {
    fn drop(&mut self) {
        mutant::activate(None);
    }
}

/// The reverse of the test above: it finds what it is there for.
#[test]
#[should_panic(expected = "seed 0, sealed")]
fn statistics_of_blocks_in_which_values_are_left_out_are_found() {
    let _end = Deactivate;
    compare_stores(0, Some((Mutant::BelieveExcludedBlocks, "sealed")));
}

/// Lossy channels: a stored value, the rows in which it is unchanged, and the newest frame, which has no row.
#[test]
fn cells_of_lossy_channels_are_left_out() {
    for seed in 0..24 {
        let mut random = Rng::with_seed(seed);
        let disk = FaultDisk::new(seed);
        let store = crate::tests::kit::open(&disk, StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() });
        let held = if seed % 2 == 0 { Reduction::Step } else { Reduction::Deadband { bound: 2.0 } };
        let lossy = [("a", ChannelType::I32, held), ("b", ChannelType::I32, held)];
        let id = store.stream(&spec("lossy", lossy));
        let (mut times, mut batch) = (Vec::new(), FrameBatch::new());
        let (mut a, mut b) = (0, 0);
        for n in 0..400 {
            a += if random.u8(0..9) == 0 { random.i32(-9..9) } else { 0 };
            b += if random.u8(0..4) == 0 { random.i32(-9..9) } else { 0 };
            times.push(T0 + n * 1_000);
            batch.put(head(id, T0 + n * 1_000), [Value::I32(a), Value::I32(b)]);
        }
        store.append(&batch, T0 + 400_000);
        if seed % 3 == 0 {
            store.upkeep(T0 + 400_000);
        }
        let channels = [ChannelIndex(0), ChannelIndex(1)];
        let mut left_out: Spans = Vec::new();
        for channel in channels {
            let from = times[random.usize(..times.len())];
            left_out.push((channel, from..from + random.i64(1..120_000)));
        }
        if seed % 4 == 1 {
            left_out.push((channels[0], T0 + 399_000..T0 + 399_001));
        }
        let all = store.view();
        leave_out(&store, id, &left_out);
        let view = store.view();
        let mut wanted: Vec<Vec<(i64, Result<OwnedValue, CellState>)>> = vec![Vec::new(); 2];
        for batch in all.scan(Scan::all(id, channels.to_vec())) {
            let batch = batch.expect("reads");
            for row in 0..batch.len() {
                for (channel, cells) in channels.iter().zip(&mut wanted) {
                    let cell = batch.columns[channel.0 as usize].cell(row).map(OwnedValue::of);
                    let left_out = is_left_out(&left_out, *channel, batch.time(row));
                    cells.push((batch.time(row), if left_out { Err(CellState::Absent) } else { cell }));
                }
            }
        }
        for (channel, wanted) in channels.into_iter().zip(&wanted) {
            let mut found = Vec::new();
            for batch in view.scan(Scan::all(id, vec![channel])) {
                let batch = batch.expect("reads");
                found.extend((0..batch.len()).map(|r| (batch.time(r), batch.columns[0].cell(r).map(OwnedValue::of))));
            }
            assert_eq!(&found, wanted, "seed {seed}: scan");
            // The newest frame may have no row: its value is the one of `all` at its time.
            let newest = all.state_at(id, i64::MAX - 1, &[channel]).expect("state").remove(0).expect("a cell");
            let mut stored: Vec<(i64, OwnedValue)> =
                wanted.iter().filter_map(|(time, cell)| Some((*time, cell.clone().ok()?))).collect();
            let mut samples = view.samples(id, channel, T0, T0 + 400_000).expect("samples").expect("a channel");
            while let Some(run) = samples.next_run().expect("reads") {
                let mut times = (0..run.len()).map(|at| run.time(at));
                assert!(times.all(|time| !is_left_out(&left_out, channel, time)), "seed {seed}: samples");
            }
            let last = *times.last().expect("times");
            if newest.time == last && !is_left_out(&left_out, channel, last) {
                stored.retain(|(time, _)| *time != last);
                stored.push((last, newest.value.expect("a value")));
            }
            for time in times.iter().copied().filter(|_| random.u8(0..4) == 0).chain([last]) {
                let cell = view.state_at(id, time, &[channel]).expect("state").remove(0);
                let expected = stored.iter().rev().find(|(at, _)| *at <= time).map(|(_, value)| value.clone());
                let value = cell.as_ref().and_then(|cell| cell.value.clone());
                assert_eq!(value, expected, "seed {seed}: state of {channel:?} at {}", time - T0);
                assert!(cell.is_none_or(|cell| !is_left_out(&left_out, channel, cell.time)), "seed {seed}: time");
            }
        }
    }
}

#[test]
fn spans_are_joined_and_found() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let spans: Vec<(StreamId, ChannelIndex, Range<i64>)> = (0..random.usize(0..12))
            .map(|_| {
                let from = random.i64(-20..20);
                (StreamId(random.u32(0..2)), ChannelIndex(random.u16(0..2)), from..from + random.i64(0..6))
            })
            .collect();
        let excluded = Excluded::new(spans.clone());
        for (stream, channel) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(s, c)| (StreamId(s), ChannelIndex(c))) {
            let wanted =
                |time: i64| spans.iter().any(|(s, c, span)| (*s, *c) == (stream, channel) && span.contains(&time));
            let of = excluded.stream(stream).and_then(|channels| channels.of(channel).cloned()).unwrap_or_default();
            for from in -25..30 {
                assert_eq!(of.contains(from), wanted(from), "seed {seed}");
                for to in from..30 {
                    assert_eq!(of.overlaps((from, to)), (from..=to).any(wanted), "seed {seed}");
                    assert_eq!(of.covers((from, to)), (from..=to).all(wanted), "seed {seed}");
                }
            }
        }
    }
}
