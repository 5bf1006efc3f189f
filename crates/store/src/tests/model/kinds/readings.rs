//! What is read back beside rows: weights with their integrals, intervals, values and states at instants, buckets. All
//! of it equals a walk through a list of what was stored, and itself before whatever the store did meanwhile, bit for bit.

use std::ops::Range;

use super::super::{Checked, T0, ensure};
use super::naive::{Cell, List, bits, buckets, told};
use super::world::{End, World, small_options};
use crate::block::leaps::Leaps;
use crate::tests::kit::*;
use crate::*;

const CHANNELS: [(&str, ChannelType); 5] = [
    ("line", ChannelType::F64),
    ("single", ChannelType::F32),
    ("whole", ChannelType::I32),
    ("flag", ChannelType::Bool),
    ("text", ChannelType::String),
];

/// Channels of a stream beside the first: each is asked much.
const MORE: usize = 2;

/// A frame that is on its way.
#[derive(Clone)]
struct Frame {
    source_time: Option<i64>,
    sequence: Option<i64>,
    cells: Vec<Result<OwnedValue, CellState>>,
}

struct Stream {
    spec: StreamSpec,
    id: StreamId,
    /// Frames of a step: few of a quiet stream.
    most: usize,
    sequence: i64,
    /// Frames that come late.
    late: Vec<Frame>,
    /// Rows, by channel.
    rows: Vec<Vec<Cell>>,
    /// Names and types of the channels.
    channels: Vec<(&'static str, ChannelType)>,
    walk: i32,
}

struct Readings {
    world: World,
    streams: Vec<Stream>,
}

pub(super) fn run(seed: u64) -> Checked {
    let open_bytes = [0, 16 << 10, 128 << 10][seed as usize % 3];
    let options = StoreOptions { open_bytes, ..small_options() };
    let mut readings = Readings { world: World::new(seed, options)?, streams: Vec::new() };
    let first = readings.world.random.usize(..4);
    (0..2).try_for_each(|n| readings.add((first + n) % 4))?;
    for _ in 0..readings.world.random.usize(3..9) {
        for _ in 0..readings.world.random.usize(1..12) {
            readings.feed()?;
            if readings.world.random.bool() {
                readings.world.commit()?;
                let slices = readings.world.random.usize(..4);
                readings.world.maintain(slices)?;
            }
        }
        readings.world.commit()?;
        readings.compare()?;
    }
    Ok(())
}

impl Readings {
    fn add(&mut self, n: usize) -> Checked {
        let random = &mut self.world.random;
        let (sequenced, clock) = match n {
            0 => (true, Clock::Receive),
            1 => (true, Clock::Source),
            2 => (false, Clock::Source),
            _ => (true, if random.bool() { Clock::Receive } else { Clock::Source }),
        };
        let from = random.usize(1..CHANNELS.len());
        let more = (0..MORE).map(|n| CHANNELS[1 + (from + n) % (CHANNELS.len() - 1)]);
        let channels: Vec<(&str, ChannelType)> = [CHANNELS[0]].into_iter().chain(more).collect();
        let spec = spec(["steady", "late", "unnumbered", "quiet"][n], &channels)
            .clock(clock)
            .modulus(sequenced.then_some(1 << 32))
            .source("model");
        let id = self.world.store().resolve(&spec, self.world.now).map_err(|error| error.to_string())?.0.id;
        let most = if n == 3 { 6 } else { 500 };
        let rows = vec![Vec::new(); channels.len()];
        self.streams.push(Stream { spec, id, most, sequence: 0, late: Vec::new(), rows, channels, walk: 0 });
        Ok(())
    }

    fn feed(&mut self) -> Checked {
        if self.world.random.bool() || self.world.is_log_full() {
            self.world.make_room()?;
        }
        let World { random, now, .. } = &mut self.world;
        let mut batch = FrameBatch::new();
        let mut frames = Vec::new();
        for (n, stream) in self.streams.iter_mut().enumerate() {
            for _ in 0..random.usize(..stream.most) {
                *now += random.i64(1..MS) & !1;
                for frame in stream.next(random, *now) {
                    let head = head(stream.id, *now)
                        .sampled(frame.source_time)
                        .numbered(frame.sequence.map(|sequence| sequence as u64));
                    batch.begin(head);
                    for (channel, cell) in frame.cells.iter().enumerate() {
                        let index = ChannelIndex(channel as u16);
                        match cell {
                            Ok(value) => batch.push(index, value.as_value()),
                            Err(CellState::Absent) => {}
                            Err(state) => batch.push_state(index, *state),
                        }
                    }
                    batch.end();
                    let time = head.source_time.filter(|_| stream.spec.clock == Clock::Source);
                    frames.push((n, time.unwrap_or(head.receive_time), frame));
                }
            }
        }
        let appended = self.world.store().append(&batch, self.world.now);
        for ((n, time, frame), outcome) in frames.into_iter().zip(appended.outcomes) {
            let stream = &mut self.streams[n];
            match outcome {
                Outcome::Stored { .. } => {}
                // Two of the same instant and values are one; what the log had no room for is missing as what is lost.
                Outcome::Duplicate if frame.sequence.is_none() => continue,
                Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => continue,
                other => return Err(format!("{}, sequence {:?}: {other:?}", stream.spec.key, frame.sequence)),
            }
            for (rows, cell) in stream.rows.iter_mut().zip(frame.cells) {
                rows.push(Cell { time, sequence: frame.sequence, cell });
            }
        }
        Ok(())
    }

    /// Whatever the store does with what is durable changes nothing that is read.
    fn compare(&mut self) -> Checked {
        let questions: Vec<Vec<Question>> = (0..self.streams.len()).map(|n| self.questions(n)).collect();
        self.answers(&questions).map_err(|error| format!("as it was stored: {error}"))?;
        for _ in 0..self.world.random.usize(1..4) {
            let what = match self.world.random.u8(0..6) {
                0 => {
                    let slices = self.world.random.usize(1..6);
                    self.world.maintain(slices)?;
                    format!("{slices} slices of upkeep")
                }
                1 => {
                    self.world.maintain_all()?;
                    "upkeep".to_owned()
                }
                2 => {
                    self.world.settle()?;
                    "settling".to_owned()
                }
                n => {
                    let end = [End::Clean, End::Kill, End::Cut][n as usize - 3];
                    self.world.end(end)?;
                    // Frames that were under way to a store that was not there are lost.
                    self.streams.iter_mut().for_each(|stream| stream.late.clear());
                    format!("{end:?}")
                }
            };
            self.answers(&questions).map_err(|error| format!("after {what}: {error}"))?;
        }
        Ok(())
    }

    fn questions(&mut self, n: usize) -> Vec<Question> {
        let (stream, random) = (&self.streams[n], &mut self.world.random);
        let mut questions = Vec::new();
        for (channel, rows) in stream.rows.iter().enumerate() {
            let linear = stream.channels[channel].1.is_float();
            let list = List::new(rows, linear);
            let (Some(first), Some(last)) = (list.points.first(), list.points.last()) else { continue };
            let (first, last) = (first.time, last.time);
            for lap in 0..2 {
                let mut at = || match random.bool() || linear {
                    true => list.points[random.usize(..list.points.len())].time,
                    false => random.i64(first - 10..last + 10),
                };
                let (a, b) = (at(), at());
                let span = if lap == 0 || a == b { first - 5..last + 5 } else { a.min(b)..a.max(b) };
                let width_ns = ((last - first) as u64 / random.u64(1..40)).max(1);
                let plain_max = [0, 3, 1_000][random.usize(..3)];
                let grid = Pieces { time: span.clone(), width_ns, plain_max, computed: Computed::ALL };
                // Often among the newest, where rows are in memory and in blocks.
                let newest = list.points[list.points.len().saturating_sub(60)].time;
                let instant = random.i64(if lap == 1 { newest } else { first } - 10..last + 10);
                questions.push(Question::new(channel, (&list, rows), span, grid, instant));
            }
        }
        questions
    }

    fn answers(&self, questions: &[Vec<Question>]) -> Checked {
        let view = self.world.store().view();
        for (stream, questions) in self.streams.iter().zip(questions) {
            stream.check_marks(&view).map_err(|error| format!("{}: {error}", stream.spec.key))?;
            let channels = (0..stream.channels.len() as u16).map(ChannelIndex).collect();
            let side_by_side = view.side_by_side(stream.id, channels);
            for (question, view) in questions.iter().flat_map(|question| [(question, &view), (question, &side_by_side)])
            {
                question.check(view, stream.id).map_err(|error| {
                    let (name, span) = (stream.channels[question.channel].0, &question.span);
                    format!("{}.{name} in {} to {}: {error}", stream.spec.key, span.start - T0, span.end - T0)
                })?;
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Blocks say which frames are missing: before the first row in the header, further on by the time that statistics leave
    /// out. Readers find it by the sequences of the rows wherever they can, and would not show that a block is wrong.
    fn check_marks(&self, view: &View) -> Checked {
        let highest = self.rows[0].iter().scan(None::<i64>, |highest, cell| {
            *highest = (*highest).max(cell.sequence);
            Some(*highest)
        });
        let highest: Vec<Option<i64>> = highest.collect();
        let read = |error: ScanError| format!("cannot read: {error}");
        let Some(of) = view.stream(self.id) else { return Err("not there".into()) };
        for segment in of.segments(i64::MIN, i64::MAX) {
            for block in of.blocks(&segment, view.shared()).map_err(read)? {
                let row = block.first_row as usize;
                let before = row.checked_sub(1).and_then(|before| highest.get(before).copied().flatten());
                let (_, marked) = of.read_with_gap(&segment, &block, &[], view.shared()).map_err(read)?;
                let sequence = self.rows[0].get(row).and_then(|cell| cell.sequence);
                let missing = before.zip(sequence).is_some_and(|(before, sequence)| sequence > before + 1);
                ensure(marked == missing, || format!("row {row} is marked {marked} instead of {missing}"))?;
                let agree = of.ask(&segment, &block, &[], view.shared(), |read| {
                    let session = read.sequences()?.and_then(|(_, session)| session.first().copied());
                    let leaps = Leaps::of(read, session.zip(before), false)?;
                    let statistics = read.statistics_of(0)?.filter(|statistics| statistics.integral.is_some());
                    leaps.zip(statistics).map(|(leaps, statistics)| leaps.agree(read, &statistics)).transpose()
                });
                let agree = agree.map_err(read)?.unwrap_or(true);
                ensure(agree, || format!("statistics of the block from row {row} are not those of its rows"))?;
            }
        }
        Ok(())
    }

    /// The next frame, and those that come late with it.
    fn next(&mut self, random: &mut fastrand::Rng, now: i64) -> Vec<Frame> {
        let source = self.spec.clock == Clock::Source;
        self.sequence += if random.u8(0..100) == 0 { random.i64(2..9) } else { 1 };
        if random.u8(0..50) == 0 {
            self.walk += random.i32(-400..400);
        }
        self.walk = (self.walk + random.i32(-3..4)).clamp(-800, 800);
        let walk = self.walk;
        let mut cells = Vec::new();
        for (n, (_, kind)) in self.channels.iter().enumerate() {
            let rare = random.u16(0..400);
            cells.push(match rare {
                0 if n > 0 => Err(CellState::Unknown),
                1..40 if n > 0 => Err(CellState::Absent),
                _ => Ok(match kind {
                    ChannelType::F64 => OwnedValue::Plain(Value::F64(f64::from(walk) / 8.0)),
                    ChannelType::F32 => OwnedValue::Plain(Value::F32((walk / 2) as f32 / 4.0)),
                    ChannelType::I32 => OwnedValue::Plain(Value::I32(walk / 16)),
                    ChannelType::Bool => OwnedValue::Plain(Value::Bool(walk > 0)),
                    _ => OwnedValue::String(["low", "high", ""][(walk.unsigned_abs() as usize / 64) % 3].into()),
                }),
            });
        }
        let sequence = self.spec.sequence_modulus.map(|_| self.sequence);
        let frame = Frame { source_time: source.then_some(now), sequence, cells };
        // Late ones: only where their time says so.
        if source && random.u8(0..60) == 0 {
            self.late.push(frame);
            return Vec::new();
        }
        let mut frames = vec![frame];
        if random.u8(0..20) == 0 {
            frames.append(&mut self.late);
        }
        frames
    }
}

/// What is asked of a channel, again and again, and what the answers must be.
struct Question {
    channel: usize,
    span: Range<i64>,
    grid: Pieces,
    instant: i64,
    weight: Weight,
    intervals: Vec<Interval>,
    buckets: Vec<String>,
    /// At the instant, and on a grid over the span: values by their bits.
    value: Option<Option<String>>,
    values: Vec<Option<Option<String>>>,
    /// Row, time and value of the newest cell in `time`, whenever it came.
    state: Option<(u64, i64, Option<String>)>,
}

/// Instants of a grid over a span.
const INSTANTS: usize = 8;

fn grid_over(span: &Range<i64>) -> Grid {
    Grid { start: span.start, step_ns: (span.end.abs_diff(span.start) / 7).max(1), count: INSTANTS }
}

impl Question {
    fn new(channel: usize, (list, rows): (&List, &[Cell]), span: Range<i64>, grid: Pieces, instant: i64) -> Question {
        let known = |cell: &Cell| matches!(cell.cell, Ok(_) | Err(CellState::Unknown));
        let newest = rows.iter().enumerate().filter(|(_, cell)| cell.time <= instant && known(cell));
        let newest = newest.max_by_key(|(row, cell)| (cell.time, *row));
        let value_at = |time| list.value_at(time).map(|value| value.as_ref().map(bits));
        let over = grid_over(&span);
        Question {
            channel,
            weight: list.weigh(&span),
            intervals: list.intervals(&span),
            buckets: buckets(rows, &grid),
            value: value_at(instant),
            values: (0..INSTANTS).map(|n| value_at(over.start + n as i64 * over.step_ns as i64)).collect(),
            state: newest.map(|(row, cell)| (row as u64, cell.time, cell.cell.as_ref().ok().map(bits))),
            span,
            grid,
            instant,
        }
    }

    fn check(&self, view: &View, id: StreamId) -> Checked {
        let column = ChannelIndex(self.channel as u16);
        let read = |error: ScanError| format!("cannot read: {error}");
        let intervals: Result<Vec<Interval>, ScanError> =
            view.intervals(id, column, self.span.clone()).map_err(read)?.collect();
        same("interval", &intervals.map_err(read)?, &self.intervals)?;
        self.check_weight(&view.weigh(id, column, self.span.clone()).map_err(read)?)?;
        let all = view.reduce_to(id, column, &self.grid).map_err(read)?.buckets;
        same("bucket", &all.iter().map(told).collect::<Vec<String>>(), &self.buckets)?;
        for (extremes, means) in [(false, false), (true, false), (false, true)] {
            let grid = Pieces { computed: Computed { extremes, means }, ..self.grid.clone() };
            let some = view.reduce_to(id, column, &grid).map_err(read)?.buckets;
            let left = |bucket: &Bucket| Bucket {
                min: bucket.min.filter(|_| extremes),
                max: bucket.max.filter(|_| extremes),
                finite: if means { bucket.finite } else { 0 },
                mean: bucket.mean.filter(|_| means),
                ..bucket.clone()
            };
            let want: Vec<String> = all.iter().map(|bucket| told(&left(bucket))).collect();
            same("bucket with less", &some.iter().map(told).collect::<Vec<String>>(), &want)?;
        }
        let told_value = |reading: Option<Reading>| reading.map(|reading| reading.value.as_ref().map(bits));
        let found = told_value(view.value_at(id, column, self.instant).map_err(read)?);
        ensure(found == self.value, || format!("value {found:?} instead of {:?}", self.value))?;
        let found = view.resample(id, column, grid_over(&self.span), Resample::Interpolated).map_err(read)?;
        let found: Vec<_> = found.into_iter().map(told_value).collect();
        same("value of the grid", &found, &self.values)?;
        let state = view.state_at(id, self.instant, &[column]).map_err(read)?;
        let found = state[0].as_ref().map(|cell| (cell.row, cell.time, cell.value.as_ref().map(bits)));
        ensure(found == self.state, || format!("state at {} {found:?} instead of {:?}", self.instant, self.state))
    }

    fn check_weight(&self, found: &Weight) -> Checked {
        let (found_sum, want_sum) = (found.integral, self.weight.integral);
        ensure(found_sum.known_ns == want_sum.known_ns, || {
            format!("{} ns known instead of {}", found_sum.known_ns, want_sum.known_ns)
        })?;
        // Nothing added to nothing may have either sign.
        let same = found_sum.value_ns.to_bits() == want_sum.value_ns.to_bits();
        ensure(same || found_sum.value_ns == 0.0 && want_sum.value_ns == 0.0, || {
            format!("an integral of {found_sum:?} instead of {want_sum:?}")
        })?;
        let range = |weight: &Weight| format!("{} {:?} {:?}", weight.count, weight.min, weight.max);
        ensure(range(found) == range(&self.weight), || format!("{} instead of {}", range(found), range(&self.weight)))
    }
}

/// Two lists are the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &[T], want: &[T]) -> Checked {
    if found == want {
        return Ok(());
    }
    let at = (0..found.len().max(want.len())).find(|at| found.get(*at) != want.get(*at)).unwrap_or_default();
    Err(format!("{what} {at}: {:?} instead of {:?}", found.get(at), want.get(at)))
}
