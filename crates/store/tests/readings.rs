//! Intervals, weights, values at an instant and on a grid, against a walk through a list of all that is stored.

mod kit;

use std::ops::Range;

use fastrand::Rng;
use kit::*;
use strongback_store::codec::stats::Sample;
use strongback_store::*;

const STEP: i64 = 1_000;

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 1 << 20, segment_bytes: 1 << 20, open_bytes: 256 << 10, ..StoreOptions::default() }
}

fn channels(reduced: bool) -> Vec<ChannelSpec> {
    let of = |reduction| if reduced { reduction } else { Reduction::None };
    [
        ("line", ChannelType::F64, Reduction::None),
        ("odd", ChannelType::F32, Reduction::None),
        ("whole", ChannelType::I32, of(Reduction::Step)),
        ("flag", ChannelType::Bool, of(Reduction::Step)),
        ("text", ChannelType::String, of(Reduction::Step)),
        ("deadband", ChannelType::F32, of(Reduction::Deadband { bound: 2.0 })),
        ("door", ChannelType::F64, of(Reduction::SwingingDoor { bound: 0.5 })),
        ("door_whole", ChannelType::U16, of(Reduction::SwingingDoor { bound: 3.0 })),
    ]
    .into_iter()
    // A channel that is in every frame leaves nothing to a swinging door.
    .filter(|(name, ..)| !reduced || *name != "line")
    .map(|(name, kind, reduction)| ChannelSpec { reduction, ..ChannelSpec::new(name, kind) })
    .collect()
}

/// A stream of the test: how its frames come.
struct Feed {
    name: &'static str,
    clock: Clock,
    sequenced: bool,
    /// One frame in so many turns.
    every: usize,
    id: StreamId,
    channels: Vec<ChannelSpec>,
    sequence: u64,
    walk: f64,
}

fn feeds(store: &Store) -> Vec<Feed> {
    [
        ("sorted", Clock::Receive, false, false, 1),
        ("late", Clock::Source, false, false, 1),
        ("lossy", Clock::Receive, true, false, 1),
        ("lossy_late", Clock::Source, true, false, 1),
        ("gaps", Clock::Receive, false, true, 1),
        ("slow", Clock::Receive, false, true, 80),
        ("slow_lossy", Clock::Source, true, false, 60),
    ]
    .into_iter()
    .map(|(name, clock, reduced, sequenced, every)| {
        let channels = channels(reduced);
        let id = store.stream(&spec(name, channels.clone()).clock(clock).modulus(sequenced.then_some(1 << 32)));
        Feed { name, clock, sequenced, every, id, channels, sequence: 0, walk: 50.0 }
    })
    .collect()
}

fn push(feed: &mut Feed, random: &mut Rng, time: i64, batch: &mut FrameBatch) {
    let late = feed.clock == Clock::Source && random.u8(0..50) == 0;
    let source_time = (feed.clock == Clock::Source).then(|| if late { time - random.i64(1..200_000) } else { time });
    feed.sequence += if random.u16(0..400) == 0 { random.u64(2..9) } else { 1 };
    let sequence = feed.sequenced.then_some(feed.sequence);
    batch.begin(head(feed.id, time).sampled(source_time).numbered(sequence));
    feed.walk = (feed.walk + (random.f64() - 0.5) * 2.0).clamp(0.0, 100.0);
    let walk = feed.walk;
    for (n, channel) in feed.channels.iter().enumerate() {
        let (index, rare) = (ChannelIndex(n as u16), random.u16(0..300));
        // Channels that are nearly always there beside one that seldom is.
        let seldom = channel.name == "odd" && random.u8(0..4) != 0;
        if seldom || rare == 0 && channel.name != "line" {
            continue;
        }
        if rare == 1 && channel.name != "line" {
            batch.push_state(index, CellState::Unknown);
            continue;
        }
        let value = match channel.channel_type {
            ChannelType::F64 => Value::F64(walk),
            ChannelType::F32 if rare < 6 => Value::F32([f32::NAN, f32::INFINITY, -0.0][rare as usize % 3]),
            ChannelType::F32 => Value::F32(walk as f32),
            ChannelType::I32 => Value::I32((walk / 7.0) as i32 - 5),
            ChannelType::U16 => Value::U16(walk as u16),
            ChannelType::Bool => Value::Bool(walk > 50.0),
            _ => Value::String(["low", "high"][usize::from(walk > 50.0)]),
        };
        batch.push(index, value);
    }
    batch.end();
}

/// A point of the list.
#[derive(Clone, Debug)]
struct Stored {
    time: i64,
    value: Option<OwnedValue>,
    gap: bool,
}

/// All that is stored of a channel, in order of time, and up to when it was offered.
struct List {
    points: Vec<Stored>,
    offered_to: Option<i64>,
    linear: bool,
}

impl List {
    fn of(view: &View, feed: &Feed, column: ChannelIndex) -> List {
        let mut rows = Vec::new();
        for batch in view.scan(Scan::all(feed.id, vec![column])) {
            let batch = batch.expect("reads");
            for row in 0..batch.len() {
                let sequence = batch.sequence.as_ref().and_then(|s| s.get(row));
                let cell = batch.columns[0].cell(row).map(OwnedValue::of);
                rows.push((batch.time(row), batch.rows[row], sequence, cell));
            }
        }
        // A held frame is the newest.
        let newest = view.state_at(feed.id, i64::MAX - 1, &[column]).expect("a state").remove(0);
        if let Some(held) = newest.filter(|cell| cell.row == view.next_row(feed.id)) {
            rows.push((held.time, held.row, None, held.value.ok_or(CellState::Unknown)));
        }
        rows.sort_by_key(|row| (row.0, row.1));
        let stream = view.catalog().stream(feed.id).expect("the stream").clone();
        let linear = stream.layout.channel(column).interpolation == Interpolation::Linear;
        let mut list = List { points: Vec::new(), offered_to: None, linear };
        let (mut highest, mut gap) = (None::<i64>, false);
        for (time, _, sequence, cell) in rows {
            if let Some(sequence) = sequence {
                gap |= highest.is_some_and(|highest| sequence > highest + 1);
                highest = highest.max(Some(sequence));
            }
            let value = match cell {
                Ok(value) => Some(value),
                Err(CellState::Unknown) => None,
                Err(CellState::Unchanged) => {
                    list.offered_to = Some(time);
                    continue;
                }
                Err(_) => continue,
            };
            list.offered_to = Some(time);
            list.points.push(Stored { time, value, gap: std::mem::take(&mut gap) });
        }
        list
    }

    /// The last point at or before an instant, of equal times that of the later row; and the one after it.
    fn around(&self, time: i64) -> Option<(&Stored, Option<&Stored>)> {
        let after = self.points.partition_point(|p| p.time <= time);
        Some((self.points.get(after.checked_sub(1)?)?, self.points.get(after)))
    }

    fn line(&self, from: &Stored, to: Option<&Stored>, time: i64) -> Option<OwnedValue> {
        let on_line = |to: &Stored| {
            let (a, b) = (from.value.as_ref()?.as_value(), to.value.as_ref()?.as_value());
            let (x, y) = (a.as_f64()?, b.as_f64()?);
            if !x.is_finite() || !y.is_finite() || time == from.time {
                return None;
            }
            let value = x + (y - x) * ((time - from.time) as f64 / (to.time - from.time) as f64);
            Some(OwnedValue::Plain(match a {
                Value::F32(_) => Value::F32(value as f32),
                Value::U16(_) => Value::U16(value.round() as u16),
                _ => Value::F64(value),
            }))
        };
        to.filter(|_| self.linear).and_then(on_line).or_else(|| from.value.clone())
    }

    fn value_at(&self, time: i64, line: bool) -> Option<Option<OwnedValue>> {
        let (from, to) = self.around(time)?;
        if to.is_some_and(|to| to.gap) && from.time < time {
            return None;
        }
        Some(if line { self.line(from, to, time) } else { from.value.clone() })
    }

    fn intervals(&self, span: &Range<i64>) -> Vec<Interval> {
        let mut out: Vec<Interval> = Vec::new();
        for (n, from) in self.points.iter().enumerate() {
            let to = self.points.get(n + 1);
            let gap = to.is_some_and(|to| to.gap);
            let end = if gap { from.time } else { to.map_or(i64::MAX, |to| to.time) };
            let (start, end) = (from.time.max(span.start), end.min(span.end));
            let inside = start < end || gap && start == end && span.contains(&from.time);
            if !inside {
                continue;
            }
            let at = |time| if gap { from.value.clone() } else { self.line(from, to, time) };
            let (value, end_value) = (at(start), at(end));
            match out.last_mut() {
                Some(last)
                    if !self.linear
                        && last.end == start
                        && last.start < last.end
                        && format!("{:?}", last.value) == format!("{value:?}") =>
                {
                    (last.end, last.open) = (end, to.is_none());
                }
                _ => out.push(Interval { start, end, value, end_value, open: to.is_none() }),
            }
        }
        out
    }

    fn weigh(&self, all: &[(i64, OwnedValue)], span: &Range<i64>) -> Weight {
        let number = |p: &Stored| p.value.as_ref().and_then(|v| v.as_value().as_f64()).filter(|v| v.is_finite());
        let (mut value_ns, mut known_ns) = (0.0, 0u64);
        let mut values: Vec<(i64, OwnedValue)> = all.iter().filter(|(t, _)| span.contains(t)).cloned().collect();
        let count = values.len() as u64;
        for (n, from) in self.points.iter().enumerate() {
            let end = Stored { time: self.offered_to.expect("a point"), value: from.value.clone(), gap: false };
            let to = self.points.get(n + 1).unwrap_or(&end);
            let (start, stop) = (from.time.max(span.start), to.time.min(span.end));
            if to.gap || start >= stop {
                continue;
            }
            if from.time < span.start {
                values.extend(self.line(from, Some(to), start).map(|v| (span.start, v)));
            }
            if self.linear && to.time > span.end {
                values.extend(self.line(from, Some(to), stop).map(|v| (span.end, v)));
            }
            let Some(a) = number(from) else { continue };
            let area = if self.linear {
                let Some(b) = number(to) else { continue };
                let at = |t: i64| a + (b - a) * ((t - from.time) as f64 / (to.time - from.time) as f64);
                (at(start) + at(stop)) / 2.0
            } else {
                a
            };
            value_ns += area * (stop - start) as f64;
            known_ns += (stop - start) as u64;
        }
        let mut samples: Vec<(i64, Value<'static>, f64)> = values
            .iter()
            .filter_map(|(t, v)| match v {
                OwnedValue::Plain(v) => Some((*t, *v, v.as_f64()?)),
                OwnedValue::String(_) | OwnedValue::Array { .. } => None,
            })
            .filter(|(.., v)| !v.is_nan())
            .collect();
        samples.sort_by_key(|s| s.0);
        let sample = |&(time, value, _): &(i64, Value<'static>, f64)| Sample { value, time };
        let first = |wins: fn(f64, f64) -> bool| {
            samples.iter().reduce(|best, s| if wins(s.2, best.2) { s } else { best }).map(sample)
        };
        Weight {
            count,
            min: first(|a, b| a < b),
            max: first(|a, b| a > b),
            integral: codec::stats::Integral { value_ns, known_ns },
        }
    }
}

/// Every stored value of a channel.
fn all_values(view: &View, feed: &Feed, column: ChannelIndex) -> Vec<(i64, OwnedValue)> {
    let mut all = Vec::new();
    for batch in view.scan(Scan::all(feed.id, vec![column])) {
        let batch = batch.expect("reads");
        let cells =
            (0..batch.len()).filter_map(|r| Some((batch.time(r), OwnedValue::of(batch.columns[0].cell(r).ok()?))));
        all.extend(cells);
    }
    let newest = view.state_at(feed.id, i64::MAX - 1, &[column]).expect("a state").remove(0);
    all.extend(newest.filter(|c| c.row == view.next_row(feed.id)).and_then(|c| Some((c.time, c.value?))));
    all
}

fn check(store: &Store, feed: &Feed, random: &mut Rng, what: &str) {
    let view = store.view();
    let Some((first, last)) = view.time_range(feed.id) else { return };
    for (n, channel) in feed.channels.iter().enumerate() {
        let what = format!("{what}, {}.{}", feed.name, channel.name);
        let column = ChannelIndex(n as u16);
        let list = List::of(&view, feed, column);
        let all = all_values(&view, feed, column);
        for lap in 0..6 {
            let (a, b) = (random.i64(first - 5_000..last + 5_000), random.i64(first - 5_000..last + 5_000));
            let span = if lap == 0 { first - 1..last + 1 } else { a.min(b)..a.max(b) + 1 };
            // At samples and between them.
            for at in [a, b, list.points.get(random.usize(..1 + list.points.len())).map_or(a, |p| p.time)] {
                let found = view.value_at(feed.id, column, at).expect("a reading").map(|r| r.value);
                assert_eq!(format!("{found:?}"), format!("{:?}", list.value_at(at, true)), "{what} at {}", at - T0);
            }
            let found: Vec<Interval> =
                view.intervals(feed.id, column, span.clone()).expect("intervals").map(|i| i.expect("reads")).collect();
            let want = list.intervals(&span);
            for (n, (found, want)) in found.iter().zip(&want).enumerate() {
                assert_eq!(format!("{found:?}"), format!("{want:?}"), "{what}: interval {n} of {span:?}");
            }
            assert_eq!(found.len(), want.len(), "{what}: intervals of {span:?}");
            let (found, want) = (view.weigh(feed.id, column, span.clone()).expect("weighed"), list.weigh(&all, &span));
            let plain = |s: Option<Sample>| format!("{s:?}");
            assert_eq!(found.count, want.count, "{what}: values in {span:?}");
            assert_eq!(plain(found.min), plain(want.min), "{what}: minimum of {span:?}");
            assert_eq!(plain(found.max), plain(want.max), "{what}: maximum of {span:?}");
            assert_eq!(found.integral.known_ns, want.integral.known_ns, "{what}: known in {span:?}");
            let error = (found.integral.value_ns - want.integral.value_ns).abs();
            assert!(error <= 1e-9 * (1.0 + 100.0 * want.integral.known_ns as f64), "{what}: {found:?} {want:?}");
            let step_ns = random.u64(1..(last - first) as u64 / 20 + 2);
            let grid = Grid { start: span.start, step_ns, count: random.usize(..60) };
            for how in [Resample::AsOf, Resample::Interpolated] {
                let found = view.resample(feed.id, column, grid, how).expect("resampled");
                assert_eq!(found.len(), grid.count);
                let door = matches!(channel.reduction, Reduction::SwingingDoor { .. });
                for (n, found) in found.into_iter().enumerate() {
                    let at = grid.start + n as i64 * step_ns as i64;
                    let want = list.value_at(at, how == Resample::Interpolated || door);
                    let found = found.map(|r| r.value);
                    assert_eq!(format!("{found:?}"), format!("{want:?}"), "{what}: {how:?} at {}", at - T0);
                }
            }
        }
    }
}

#[test]
fn they_are_what_a_walk_through_a_list_finds() {
    for seed in 0..4 {
        let mut random = Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = open(dir.path(), options());
        let mut feeds = feeds(&store);
        let (mut batch, mut time) = (FrameBatch::new(), T0);
        for turn in 0..6_000usize {
            time += if random.u16(0..500) == 0 { 3_000_000 } else { STEP * random.i64(0..3) };
            for feed in &mut feeds {
                if turn % feed.every == 0 {
                    push(feed, &mut random, time, &mut batch);
                }
            }
            if turn % 100 == 99 {
                store.append(&batch, time);
                batch.clear();
                if turn % 1_000 < 500 {
                    store.upkeep(time);
                }
            }
            if turn == 900 || turn == 3_500 || turn == 5_999 {
                for feed in &feeds {
                    check(&store, feed, &mut random, &format!("seed {seed}, turn {turn}"));
                }
            }
            if turn == 3_600 && seed % 2 == 1 {
                store.close(time).expect("closed");
                drop(store);
                store = Store::open(dir.path(), options(), time).expect("opened");
            }
        }
    }
}

#[test]
fn blocks_wholly_inside_are_answered_from_statistics() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions::default());
    let spec = |name: &str, sequence_modulus, reduction| {
        spec(
            name,
            vec![
                ChannelSpec { reduction, ..ChannelSpec::new("x", ChannelType::F64) },
                ChannelSpec::new("y", ChannelType::I32),
            ],
        )
        .modulus(sequence_modulus)
    };
    let streams = [
        store.stream(&spec("plain", None, Reduction::None)),
        store.stream(&spec("sequenced", Some(1 << 32), Reduction::None)),
        store.stream(&spec("lossy", None, Reduction::Deadband { bound: 0.9 })),
        store.stream(&spec("holes", Some(1 << 32), Reduction::None)),
    ];
    let (mut batch, mut random, rows) = (FrameBatch::new(), Rng::with_seed(5), 60_000i64);
    for n in 0..rows {
        for stream in streams {
            // Of the last one a frame is missing before every third, also where a block begins.
            let lost = if stream == streams[3] { n as u64 / 3 } else { u64::from(n > 30_000) };
            let sequence = Some(n as u64 + lost);
            batch.put(
                head(stream, T0 + n * STEP).numbered(sequence),
                [Value::F64(random.f64() * 3.0), Value::I32(n as i32)],
            );
        }
        if n % 2_000 == 1_999 {
            store.append(&batch, T0);
            batch.clear();
            store.upkeep(T0);
        }
    }
    let (view, span) = (store.view(), T0 + 10_500..T0 + 59_990 * STEP);
    let blocks = store.segments().iter().map(|s| s.blocks).sum::<u64>() / 4;
    assert!(blocks > 30, "{blocks} blocks");
    for stream in streams {
        for column in [0, 1] {
            let before = store.stats().blocks_decoded;
            let weight = view.weigh(stream, ChannelIndex(column), span.clone()).expect("weighed");
            let decoded = store.stats().blocks_decoded - before;
            // What a reduction did to the interpolation, and when, is not known to statistics.
            let is_reduced = stream == streams[2] && column == 0;
            let most = if is_reduced { blocks + 3 } else { 3 };
            assert!(decoded <= most, "{decoded} of {blocks} blocks of {stream:?}");
            let gaps = [0, 1, 0, 59_990 / 3 - 10 / 3][streams.iter().position(|s| *s == stream).expect("one of them")];
            let gap = gaps * STEP as u64;
            assert_eq!(weight.integral.known_ns, span.end.abs_diff(span.start) - gap, "{stream:?}");
            if column == 1 {
                assert_eq!(weight.count, 59_990 - 11);
                assert_eq!(weight.max.map(|s| s.value), Some(Value::I32(59_989)));
                assert_eq!(weight.min, Some(Sample { value: Value::I32(10), time: span.start }));
            }
        }
        // An instant takes a block or two, whatever is stored; so do the newest records, read backwards.
        let before = store.stats().blocks_decoded;
        let found =
            view.value_at(stream, ChannelIndex(1), T0 + 20_001 * STEP + 5).expect("a reading").expect("a value");
        assert_eq!(found.value, Some(OwnedValue::Plain(Value::I32(20_001))));
        assert!(store.stats().blocks_decoded - before <= 4, "{}", store.stats().blocks_decoded - before);
        let before = store.stats().blocks_decoded;
        let scan = Scan { newest_first: true, batch_rows: 100, ..Scan::all(stream, vec![ChannelIndex(1)]) };
        let newest: Vec<u64> =
            view.scan(scan).take(20).flat_map(|b| b.expect("reads").rows.into_iter().rev()).collect();
        assert!(newest.windows(2).all(|w| w[0] == w[1] + 1) && newest[0] + 1 == view.next_row(stream));
        assert!(store.stats().blocks_decoded - before <= 20, "{}", store.stats().blocks_decoded - before);
    }
}
