//! Weights: time over which frames are missing is known to nobody, whether blocks say so by their statistics or by their
//! rows.

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::model::mutant::{self, Mutant};
use crate::tests::kit::*;
use crate::*;

const STEP: i64 = 1_000_000;
/// The `max_future` of these stores.
const DAY: i64 = 86_400_000_000_000;
/// Enough for a block of its own, and for statistics.
const ROWS: u64 = 300;
const VALUE: ChannelIndex = ChannelIndex(0);
const OTHER: ChannelIndex = ChannelIndex(1);

/// A frame: its time, sequence, and whether it has the channel that is weighed.
#[derive(Clone, Copy, Debug)]
struct Frame {
    time: i64,
    sequence: u64,
    has_value: bool,
}

/// Frames of a sender that loses none.
fn frames(blocks: u64) -> Vec<Frame> {
    (0..blocks * ROWS).map(|n| Frame { time: T0 + n as i64 * STEP, sequence: n, has_value: true }).collect()
}

/// A store that seals every row at once, and a stream of it.
struct Bench {
    disk: FaultDisk,
    store: Option<Store>,
    stream: StreamId,
    now: i64,
}

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 1 << 20, segment_bytes: 256 << 10, open_bytes: 1, ..StoreOptions::default() }
}

impl Bench {
    fn new(seed: u64, clock: Clock, reduction: Reduction) -> Bench {
        let disk = FaultDisk::new(seed);
        let store = open(&disk, options());
        let stream = store.stream(
            &spec(
                "weighed",
                vec![
                    ChannelSpec { reduction, ..ChannelSpec::new("value", ChannelType::I32) },
                    ChannelSpec::new("other", ChannelType::Bool),
                ],
            )
            .clock(clock)
            .modulus(Some(1 << 32)),
        );
        Bench { disk, store: Some(store), stream, now: T0 }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("a store")
    }

    /// Sends frames, and seals them as a block.
    fn send(&mut self, frames: &[Frame]) {
        let mut batch = FrameBatch::new();
        for frame in frames {
            if frame.time - self.now <= DAY {
                self.now = self.now.max(frame.time);
            }
            let source_time = Some(frame.time);
            batch.begin(head(self.stream, self.now).sampled(source_time).numbered(Some(frame.sequence)));
            if frame.has_value {
                batch.push(VALUE, Value::I32((frame.time - T0).wrapping_mul(7) as i32 % 1_000));
            }
            batch.push(OTHER, Value::Bool(true));
            batch.end();
        }
        let appended = self.store().append(&batch, self.now);
        let taken = |o: &Outcome| matches!(o, Outcome::Stored { .. } | Outcome::Reduced { .. });
        assert!(appended.outcomes.iter().all(taken), "{:?}", appended.outcomes);
        self.store().upkeep(self.now);
    }

    /// Weights by statistics are what intervals, which are read row by row, come to.
    fn compare(&self, what: &str) {
        let view = self.store().view();
        let Some((first, last)) = view.time_range(self.stream) else { return };
        let mut random = Rng::with_seed(first as u64 ^ last as u64);
        for lap in 0..8 {
            let (a, b) = (random.i64(first..=last), random.i64(first..=last));
            let span = if lap == 0 { first - 1..last + 1 } else { a.min(b)..a.max(b) + 1 };
            let weight = view.weigh(self.stream, VALUE, span.clone()).expect("weighed").integral;
            let (mut value_ns, mut known_ns) = (0.0, 0);
            for interval in view.intervals(self.stream, VALUE, span.clone()).expect("intervals") {
                let interval = interval.expect("reads");
                let Some(OwnedValue::Plain(value)) = interval.value else { continue };
                // Held up to the newest frame that has the channel.
                let end = interval.end.min(self.newest(&view));
                let duration = end.saturating_sub(interval.start).max(0);
                value_ns += value.as_f64().expect("a number") * duration as f64;
                known_ns += duration as u64;
            }
            self.compare_pieces(what, &view, &span, random.u64(1..=span.end.abs_diff(span.start)));
            let span = span.start - T0..span.end - T0;
            assert_eq!(weight.known_ns, known_ns, "{what}: known in {span:?}");
            assert_eq!(weight.value_ns, value_ns, "{what}: integral of {span:?}");
        }
    }

    /// Pieces that are weighed together are weighed as each by itself, also sample by sample, as with a tolerance that is
    /// never reached.
    fn compare_pieces(&self, what: &str, view: &View, span: &std::ops::Range<i64>, width_ns: u64) {
        let width_ns = width_ns.max(span.end.abs_diff(span.start).div_ceil(60));
        let weigh = |time: &std::ops::Range<i64>, tolerance_ns: u64| {
            let pieces = WeighedPieces { time: time.clone(), width_ns, tolerance_ns };
            view.weigh_pieces(self.stream, VALUE, pieces).expect("weighed")
        };
        let by_statistics = weigh(span, u64::MAX);
        assert_eq!(by_statistics.len() as u64, span.end.abs_diff(span.start).div_ceil(width_ns));
        assert_eq!(weigh(span, u64::MAX - 1), by_statistics, "{what}: sample by sample");
        let pieces = WeighedPieces { time: span.clone(), width_ns, tolerance_ns: u64::MAX };
        let mut weigher = view.weigher(self.stream, VALUE, pieces).expect("a reader");
        let mut few = Vec::new();
        while let Some(more) = Some(weigher.next(few.len() % 3 + 1).expect("weighed")).filter(|more| !more.is_empty()) {
            few.extend(more);
        }
        assert_eq!(few, by_statistics, "{what}: a few at a time");
        for tolerance_ns in [u64::MAX, STEP as u64, 3 * STEP as u64] {
            for (n, weight) in weigh(span, tolerance_ns).iter().enumerate() {
                let start = span.start.saturating_add_unsigned(n as u64 * width_ns);
                let piece = start..start.saturating_add_unsigned(width_ns).min(span.end);
                let alone = weigh(&piece, tolerance_ns).remove(0);
                assert_eq!(*weight, alone, "{what}: {:?} of {width_ns}", piece.start - T0..piece.end - T0);
            }
        }
    }

    /// `time` of the newest frame that has the channel.
    fn newest(&self, view: &View) -> i64 {
        let cell = view.state_at(self.stream, i64::MAX - 1, &[VALUE]).expect("a state").remove(0);
        cell.map_or(i64::MIN, |cell| cell.time)
    }

    /// Compares as it is, after settling, and after the store was opened again.
    fn compare_all(mut self, what: &str) {
        self.compare(&format!("{what}, sealed"));
        self.store().settle(self.now).expect("settled");
        self.compare(&format!("{what}, settled"));
        self.store().close(self.now).expect("closed");
        self.store = None;
        self.store = Some(self.disk.open_store(options(), self.now).expect("opened again"));
        self.compare(&format!("{what}, opened again"));
    }
}

/// A change of the frames of a sender, of which the second block is that from `ROWS` on.
type Change = fn(&mut Vec<Frame>);

/// What ends the time over which a value is known, though the statistics of its block do not say so.
const CHANGES: [(&str, Change); 6] = [
    ("lost before the first value of a block", |frames| {
        frames[ROWS as usize].has_value = false;
        lose(frames, ROWS as usize + 1);
    }),
    ("lost long before the first value of a block", |frames| {
        (0..40).for_each(|n| frames[ROWS as usize + n].has_value = false);
        lose(frames, ROWS as usize + 20);
    }),
    ("lost before the first value of a block, all at one time", |frames| {
        frames[ROWS as usize].has_value = false;
        frames[ROWS as usize + 1].time = frames[ROWS as usize].time;
        lose(frames, ROWS as usize + 1);
    }),
    ("lost behind the last value of a block", |frames| {
        frames[2 * ROWS as usize - 1].has_value = false;
        lose(frames, 2 * ROWS as usize - 1);
    }),
    ("lost behind the last value of a block, all at one time", |frames| {
        frames[2 * ROWS as usize - 1].has_value = false;
        frames[2 * ROWS as usize - 1].time = frames[2 * ROWS as usize - 2].time;
        lose(frames, 2 * ROWS as usize - 1);
    }),
    ("begun again before the first value of a block", |frames| {
        frames[ROWS as usize].has_value = false;
        for (n, frame) in frames.iter_mut().skip(ROWS as usize + 1).enumerate() {
            (frame.sequence, frame.time) = (n as u64, frame.time + 3_000 * STEP);
        }
    }),
];

/// Loses a frame before one.
fn lose(frames: &mut [Frame], at: usize) {
    frames[at..].iter_mut().for_each(|frame| frame.sequence += 1);
}

#[test]
fn a_frame_that_is_lost_beside_a_row_without_the_channel_ends_what_is_known() {
    for (what, change) in CHANGES {
        let mut sent = frames(4);
        change(&mut sent);
        let mut bench = Bench::new(1, Clock::Receive, Reduction::None);
        sent.chunks(ROWS as usize).for_each(|block| bench.send(block));
        bench.compare_all(what);
    }
}

/// The reverse of the test above: it finds what it is there for.
#[test]
#[should_panic(expected = "lost before the first value of a block, sealed: known in")]
fn statistics_that_are_believed_where_they_end_with_a_value_are_found() {
    let mut sent = frames(4);
    CHANGES[0].1(&mut sent);
    let mut bench = Bench::new(1, Clock::Receive, Reduction::None);
    sent.chunks(ROWS as usize).for_each(|block| bench.send(block));
    mutant::activate(Some(Mutant::BelieveEnds));
    let _end = Deactivate;
    bench.compare_all(CHANGES[0].0);
}

/// Takes a fault out again, whatever comes.
struct Deactivate;

impl Drop for Deactivate {
    fn drop(&mut self) {
        mutant::activate(None);
    }
}

/// What a sender kept while it was cut off comes after what is newer: the header of such a block was written knowing of
/// frames that come later by their time.
#[test]
fn frames_that_are_lost_of_what_comes_late_as_a_whole_end_what_is_known() {
    for order in [[0, 2, 1, 3, 4, 5], [0, 3, 1, 2, 4, 5], [0, 5, 1, 2, 3, 4], [4, 0, 1, 2, 3, 5], [0, 2, 4, 1, 3, 5]] {
        for lost in [&[450][..], &[300], &[600], &[450, 600, 601, 899, 1_350], &[1, 299, 301, 599]] {
            let mut sent = frames(6);
            lost.iter().rev().for_each(|&at| lose(&mut sent, at));
            let mut bench = Bench::new(2, Clock::Source, Reduction::None);
            let blocks: Vec<&[Frame]> = sent.chunks(ROWS as usize).collect();
            order.iter().for_each(|&block| bench.send(blocks[block]));
            bench.compare_all(&format!("{order:?} without {lost:?}"));
        }
    }
}

/// The clock of a sender leaps ahead, for a frame or for good: weights leave those frames out, wherever they lie in their
/// blocks.
#[test]
fn frames_too_far_ahead_of_their_reception_are_not_weighed() {
    let last = 4 * ROWS as usize - 1;
    for (what, ahead) in [
        ("the last of a block", 2 * ROWS as usize - 1..2 * ROWS as usize),
        ("the last of all", last..last + 1),
        ("one within a block", 450..451),
        ("a block as a whole", 3 * ROWS as usize..last + 1),
        ("the end of a block and what follows", 1_000..last + 1),
    ] {
        let mut sent = frames(4);
        sent[ahead].iter_mut().for_each(|frame| frame.time += 400 * DAY);
        let mut bench = Bench::new(3, Clock::Source, Reduction::None);
        sent.chunks(ROWS as usize).for_each(|block| bench.send(block));
        bench.compare_all(what);
    }
}

/// Frames that are lost, that come at one time, and that lack the channel, mostly about the ends of blocks.
#[test]
fn whatever_is_lost_statistics_say_what_rows_say() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let reduction = if seed % 4 == 3 { Reduction::Step } else { Reduction::None };
        let mut bench = Bench::new(seed, Clock::Receive, reduction);
        let (mut time, mut sequence) = (T0, 0);
        for _ in 0..random.usize(3..9) {
            let rows = random.usize(70..400);
            let mut block = Vec::new();
            for row in 0..rows {
                let rare = if row < 4 || rows - row < 4 { 6 } else { 200 };
                time += if random.bool() { 0 } else { random.i64(1..STEP) };
                sequence += if random.u32(0..rare) == 0 { random.u64(2..5) } else { 1 };
                if random.u32(0..rare * 8) == 0 {
                    // Quiet for long before it begins again.
                    (time, sequence) = (time + 3_000 * STEP, 0);
                }
                block.push(Frame { time, sequence, has_value: random.u32(0..rare) != 0 });
            }
            bench.send(&block);
        }
        bench.compare_all(&format!("seed {seed}"));
    }
}

/// The largest numbers there are: what they come to is right, or said to be too large, never no number.
#[test]
fn the_largest_numbers_are_weighed_interpolated_and_averaged() {
    let second = 1_000_000_000;
    for sealed in [false, true] {
        let store = FaultDisk::new(4).open_store(options(), T0).expect("opened");
        let stream = |name: &str, values: &[f64]| {
            let id = store.stream(&spec(name, [("value", ChannelType::F64)]));
            let mut batch = FrameBatch::new();
            for (n, value) in values.iter().enumerate() {
                let receive_time = T0 + n as i64 * second;
                batch.put_at(head(id, receive_time), [(VALUE, Value::F64(*value))]);
            }
            store.append(&batch, T0);
            store.commit(T0).expect("committed");
            while sealed && store.maintain(T0 + 1_000 * second).expect("maintained") {}
            let span = T0..T0 + (values.len() as i64 - 1) * second;
            let weight = store.view().weigh(id, VALUE, span.clone()).expect("weighed");
            let buckets = store.view().reduce(id, VALUE, span.start..span.end + 1, 1).expect("reduced");
            (id, weight, buckets[0].mean)
        };
        let (_, weight, mean) = stream("large", &[1e300; 3]);
        assert_eq!((weight.integral.value_ns, weight.time_mean(), mean), (f64::INFINITY, None, Some(1e300)));
        let values: Vec<f64> = (0..401).map(|n| if n % 2 == 0 { 1e308 } else { -1e308 }).collect();
        let (id, weight, mean) = stream("both", &values);
        assert!(weight.integral.value_ns.abs() < 1e303, "{weight:?}");
        assert!(mean.is_some_and(|mean| (mean / (1e308 / 401.0) - 1.0).abs() < 1e-9), "{mean:?}");
        let between = store.view().weigh(id, VALUE, T0 + second / 2..T0 + second).expect("weighed");
        assert!(between.max.is_some_and(|max| max.value.as_f64().is_some_and(|v| v.abs() < 1e300)), "{between:?}");
        let (_, _, mean) = stream("equal", &[1e308, 1e308]);
        assert_eq!(mean, Some(1e308));
    }
}

/// A late row widens the range of an open chunk, also to times that a reader of an older view has passed.
#[test]
fn late_rows_that_come_during_a_read_hide_none_of_its_view() {
    let second = 1_000_000_000;
    let store = FaultDisk::new(4).open_store(options(), T0).expect("opened");
    let stream = store.stream(&spec("late", [("value", ChannelType::I64)]).clock(Clock::Source));
    let put = |times: &[i64]| {
        let mut batch = FrameBatch::new();
        for time in times {
            batch.put_at(head(stream, T0).sampled(Some(T0 + time)), [(VALUE, Value::I64(*time))]);
        }
        assert!(store.append(&batch, T0).outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
    };
    // Chunks of 4 and of 16 rows, and one row in the third.
    put(&[0, second, 2 * second, 3 * second]);
    put(&(0..16).map(|n| 50 * second + n * 10_000_000).collect::<Vec<_>>());
    put(&[100 * second]);
    let view = store.view();
    let mut intervals = view.intervals(stream, VALUE, T0..T0 + 200 * second).expect("intervals");
    let mut found = vec![intervals.next().expect("one").expect("read")];
    put(&[60 * second]);
    found.extend(intervals.map(|interval| interval.expect("read")));
    let starts: Vec<i64> = found.iter().map(|interval| interval.start - T0).collect();
    assert_eq!((starts.len(), starts.last()), (21, Some(&(100 * second))));
}

/// A reduction changes how the values of a channel are interpolated, also those that were stored before it.
#[test]
fn values_stored_before_a_reduction_are_weighed_by_its_interpolation() {
    let weights = |mutant| {
        mutant::activate(mutant);
        let _end = Deactivate;
        let store = FaultDisk::new(4).open_store(options(), T0).expect("opened");
        let with = |reduction| spec("s", vec![ChannelSpec { reduction, ..ChannelSpec::new("v", ChannelType::F64) }]);
        let stream = store.stream(&with(Reduction::None));
        let last = T0 + 9_999 * STEP;
        for block in 0..10 {
            let mut batch = FrameBatch::new();
            for n in block * 1_000..(block + 1) * 1_000 {
                let value = if n % 1_000 < 900 { 10.0 } else { 410.0 };
                batch.put_at(head(stream, T0 + n * STEP), [(VALUE, Value::F64(if n % 2 == 0 { value } else { 0.0 }))]);
            }
            store.append(&batch, last);
            store.upkeep(last);
        }
        store.settle(last).expect("settled");
        let weigh = || store.view().weigh(stream, VALUE, T0..last).expect("weighed").integral.value_ns / STEP as f64;
        let linear = weigh();
        assert_eq!(store.stream(&with(Reduction::Step)), stream);
        (linear, weigh())
    };
    // The sum of 450 values of 10 and 50 of 410 in each block; linear, half of the first is left out.
    let held = 10.0 * (450.0 * 10.0 + 50.0 * 410.0);
    assert_eq!(weights(None), (held - 5.0, held));
    assert_ne!(weights(Some(Mutant::BelieveStatistics)).1, held, "does the test find nothing?");
}
