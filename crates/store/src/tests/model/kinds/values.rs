//! Values, times, texts and definitions at their ends: what was given is read back bit for bit, from memory, from
//! blocks, from larger blocks, and after each end of the store.

use super::super::{Checked, T0, ensure};
use super::naive::bits;
use super::world::{End, World, scan, small_options};
use crate::tests::kit::*;
use crate::*;

/// Bytes of a frame beside its texts, at most.
const HEAD_BYTES: usize = 200;

/// How the values of a channel come.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Multiples of a step, or divided by a number, as instruments give them: what the codec for those takes.
    Grid { divisor: f64, multiplied: bool, span: u64 },
    /// Any bits.
    Any,
    /// A few values at the ends of the type.
    Ends,
}

struct Channel {
    kind: ChannelType,
    shape: Shape,
    /// One special value in so many.
    special: u32,
}

struct Stream {
    spec: StreamSpec,
    id: StreamId,
    channels: Vec<Channel>,
    rows: Vec<(i64, Option<i64>, Vec<Option<OwnedValue>>)>,
}

struct Values {
    world: World,
    streams: Vec<Stream>,
    /// Definitions alone.
    defined: Vec<StreamSpec>,
    /// Whether some times are at the ends of what a time can be.
    ends: bool,
}

fn text_bytes(cells: &[Option<OwnedValue>]) -> usize {
    let bytes = |cell: &Option<OwnedValue>| match cell {
        Some(OwnedValue::String(text)) => text.len(),
        _ => 0,
    };
    cells.iter().map(bytes).sum()
}

pub(super) fn run(seed: u64) -> Checked {
    let large = seed % 4 == 3;
    let segment_bytes = if large { 1 << 20 } else { 128 << 10 };
    let log_bytes = 4 << 20;
    let options = StoreOptions { segment_bytes, log_bytes, ..small_options() };
    let mut values = Values {
        world: World::new(seed, options)?,
        streams: Vec::new(),
        defined: Vec::new(),
        ends: seed.is_multiple_of(3),
    };
    for n in 0..values.world.random.usize(1..4) {
        values.add(n)?;
    }
    for _ in 0..values.world.random.usize(2..6) {
        for _ in 0..values.world.random.usize(1..6) {
            values.feed()?;
        }
        values.define()?;
        values.world.commit()?;
        values.check().map_err(|error| format!("in memory: {error}"))?;
        match values.world.random.u8(0..3) {
            0 => values.world.maintain(3)?,
            1 => values.world.maintain_all()?,
            _ => {}
        }
        values.check().map_err(|error| format!("after upkeep: {error}"))?;
        if values.world.random.u8(0..3) == 0 {
            values.world.settle()?;
            values.check().map_err(|error| format!("after settling: {error}"))?;
        }
        if values.world.random.bool() {
            let end = End::any(&mut values.world.random);
            values.world.end(end)?;
            values.check().map_err(|error| format!("after {end:?}: {error}"))?;
        }
    }
    values.world.end(End::Clean)?;
    values.check().map_err(|error| format!("at the end: {error}"))
}

/// Floats that codecs and comparisons get wrong.
const FLOATS: [f64; 14] = [
    -0.0,
    0.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE,
    5e-324,
    -5e-324,
    f64::MAX,
    f64::MIN,
    1e300,
    9_007_199_254_740_993.0,
    -9_007_199_254_740_992.0,
    0.1,
    -0.1,
];

/// Not numbers: quiet and signalling, of either sign, with something in them.
const NANS: [u64; 4] = [0x7ff8_0000_0000_0000, 0xfff8_dead_beef_0001, 0x7ff0_0000_0000_0001, 0xffff_ffff_ffff_ffff];

impl Channel {
    fn new(random: &mut fastrand::Rng) -> Channel {
        let kinds = [
            ChannelType::F64,
            ChannelType::F64,
            ChannelType::F32,
            ChannelType::I64,
            ChannelType::U64,
            ChannelType::I8,
            ChannelType::U32,
            ChannelType::String,
        ];
        let kind = kinds[random.usize(..kinds.len())];
        let divisor = [1.0, 8.0, 10.0, 100.0, 1e3, 1e6, 1e7, 3.0][random.usize(..8)];
        let span = 1 << random.u8(4..34);
        let shape = match random.u8(0..4) {
            0 => Shape::Any,
            1 => Shape::Ends,
            _ => Shape::Grid { divisor, multiplied: random.u8(0..3) == 0, span },
        };
        Channel { kind, shape, special: [40, 300, 2_000][random.usize(..3)] }
    }

    fn float(&self, random: &mut fastrand::Rng) -> f64 {
        if random.u32(0..self.special) == 0 || matches!(self.shape, Shape::Ends) {
            return match random.u8(0..8) {
                0 => f64::from_bits(NANS[random.usize(..NANS.len())]),
                // The most harmless to look at, and the first to be lost.
                1..5 if !matches!(self.shape, Shape::Ends) => -0.0,
                _ => FLOATS[random.usize(..FLOATS.len())],
            };
        }
        match self.shape {
            Shape::Grid { divisor, multiplied: true, span } => random.u64(0..span) as f64 * (1.0 / divisor),
            Shape::Grid { divisor, span, .. } => (random.u64(0..span) as i64 - span as i64 / 4) as f64 / divisor,
            _ => f64::from_bits(random.u64(..)),
        }
    }

    fn integer(&self, random: &mut fastrand::Rng, least: i128, most: i128) -> i128 {
        let ends = [least, least + 1, -1, 0, 1, most - 1, most, most / 2];
        let any = random.u128(..) as i128;
        match self.shape {
            Shape::Ends => ends[random.usize(..ends.len())],
            _ if random.u32(0..self.special) == 0 => ends[random.usize(..ends.len())],
            Shape::Any => least + any.rem_euclid(most - least + 1),
            Shape::Grid { span, .. } => i128::from(random.u64(0..span)),
        }
        .clamp(least, most)
    }

    fn value(&self, random: &mut fastrand::Rng) -> OwnedValue {
        OwnedValue::Plain(match self.kind {
            ChannelType::F64 => Value::F64(self.float(random)),
            ChannelType::F32 => match self.shape {
                Shape::Any => Value::F32(f32::from_bits(random.u32(..))),
                _ if random.u32(0..self.special) == 0 => Value::F32(f32::from_bits(0xffc0_0abc)),
                _ => Value::F32(self.float(random) as f32),
            },
            ChannelType::I64 => Value::I64(self.integer(random, i64::MIN.into(), i64::MAX.into()) as i64),
            ChannelType::U64 => Value::U64(self.integer(random, 0, u64::MAX.into()) as u64),
            ChannelType::I8 => Value::I8(self.integer(random, i8::MIN.into(), i8::MAX.into()) as i8),
            ChannelType::U32 => Value::U32(self.integer(random, 0, u32::MAX.into()) as u32),
            _ => {
                let text = ["", "a", "\0", "\u{10ffff}", "the same again", "ß€"][random.usize(..6)];
                let times = if random.u32(0..self.special * 4) == 0 { random.usize(1_000..4_000) } else { 1 };
                return OwnedValue::String(text.repeat(times.min(12_000 / text.len().max(1))));
            }
        })
    }
}

impl Values {
    fn add(&mut self, n: usize) -> Checked {
        let random = &mut self.world.random;
        let channels: Vec<Channel> = (0..random.usize(1..7)).map(|_| Channel::new(random)).collect();
        let spec = spec(format!("values{n}"), channels.iter().enumerate().map(|(n, c)| (format!("c{n}"), c.kind)))
            .clock(if random.bool() { Clock::Receive } else { Clock::Source })
            .source("model");
        let id = self.world.store().resolve(&spec, self.world.now).map_err(|error| error.to_string())?.0.id;
        self.streams.push(Stream { spec, id, channels, rows: Vec::new() });
        Ok(())
    }

    fn feed(&mut self) -> Checked {
        self.world.make_room()?;
        let World { random, now, .. } = &mut self.world;
        let mut batch = FrameBatch::new();
        let mut frames = Vec::new();
        let n = random.usize(..self.streams.len());
        let stream = &self.streams[n];
        for _ in 0..random.usize(1..800) {
            *now += random.i64(1..MS);
            // Times at the ends, with a value of their own, so that no two frames are one.
            let ends = [i64::MAX, i64::MAX - 1, i64::MIN + 1, i64::MIN + 2, 0, -1, *now, *now + 400 * 86_400 * SECOND];
            let source_time = match random.u16(0..400) {
                0 if self.ends => Some(ends[random.usize(..ends.len())]),
                1..100 => None,
                _ => Some(*now),
            };
            batch.begin(head(stream.id, *now).sampled(source_time));
            let mut cells = Vec::new();
            for (n, channel) in stream.channels.iter().enumerate() {
                let value = (random.u8(0..60) > 0).then(|| channel.value(random));
                value.iter().for_each(|value| batch.push(ChannelIndex(n as u16), value.as_value()));
                cells.push(value);
            }
            batch.end();
            frames.push((*now, source_time, cells));
        }
        let appended = self.world.store().append(&batch, self.world.now);
        let most_bytes = self.world.options.segment_bytes as usize / 8;
        for (frame, outcome) in frames.into_iter().zip(appended.outcomes) {
            let far = frame.1.is_some_and(|time| time.unsigned_abs() > T0 as u64 * 2);
            match outcome {
                Outcome::Stored { .. } => self.streams[n].rows.push(frame),
                // A time that comes twice with equal values is one frame.
                Outcome::Duplicate if frame.1.is_some_and(|time| time != frame.0) => {}
                Outcome::Rejected(Reject::BadTime { .. }) if far => {}
                // Two huge texts in one frame: more than a block takes.
                Outcome::Rejected(Reject::TooLarge { .. }) if text_bytes(&frame.2) > most_bytes - HEAD_BYTES => {}
                other => return Err(format!("{:?}: {other:?}", frame.1)),
            }
        }
        Ok(())
    }

    /// Streams with names, tags and channels about as long and as many as they may be.
    fn define(&mut self) -> Checked {
        let random = &mut self.world.random;
        let lengths = [0, 1, 255, 4_000, 65_534, 65_535, 65_536];
        let text = |random: &mut fastrand::Rng| {
            let letter = ["a", "é", "x", "\u{1f680}"][random.usize(..4)];
            // Mostly short: one long text is enough.
            let length = if random.bool() { 3 } else { lengths[random.usize(..lengths.len())] };
            letter.repeat(length / letter.len())
        };
        let tags = match random.u8(0..8) {
            0 => [1_023, 1_024, 1_025][random.usize(..3)],
            n => n.into(),
        };
        let tags: Vec<(String, String)> = (0..tags).map(|n: usize| (format!("t{n}"), text(random))).collect();
        let channels = if random.u8(0..8) == 0 { [0, 1_000, 4_096, 4_097][random.usize(..4)] } else { 2 };
        let channels = (0..channels)
            .map(|n| ChannelSpec {
                unit: if channels < 8 { text(random) } else { String::new() },
                description: if channels < 8 { text(random) } else { String::new() },
                ..ChannelSpec::new(if n == 0 { text(random) } else { format!("c{n}") }, ChannelType::F64)
            })
            .collect();
        let spec = StreamSpec {
            key: StreamKey::new(text(random), tags),
            source: text(random),
            clock: Clock::Receive,
            expected_period_ns: [None, Some(i64::MAX), Some(1)][random.usize(..3)],
            sequence_modulus: [None, Some(2), Some(u64::MAX)][random.usize(..3)],
            channels,
        };
        let known = self.defined.iter().any(|known| known.key == spec.key);
        if !known && self.world.store().resolve(&spec, self.world.now).is_ok() {
            self.defined.push(spec);
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        let view = self.world.store().view();
        for stream in &self.streams {
            let columns = (0..stream.channels.len() as u16).map(ChannelIndex).collect();
            let mut at = 0;
            for batch in scan(&view, Scan::all(stream.id, columns))? {
                for row in 0..batch.len() {
                    let Some((receive_time, source_time, cells)) = stream.rows.get(at) else { break };
                    let found = (batch.receive_time[row], batch.source_time.as_ref().and_then(|all| all.get(row)));
                    ensure(batch.rows[row] == at as u64 && found == (*receive_time, *source_time), || {
                        format!("{}, row {at}: {found:?}, row {}", stream.spec.key, batch.rows[row])
                    })?;
                    for (n, want) in cells.iter().enumerate() {
                        let found = batch.columns[n].cell(row).ok().map(OwnedValue::of).as_ref().map(bits);
                        let want = want.as_ref().map(bits);
                        ensure(found == want, || {
                            let shape = stream.channels[n].shape;
                            format!("{}, row {at}, channel {n} {shape:?}: {found:?}, not {want:?}", stream.spec.key)
                        })?;
                    }
                    at += 1;
                }
            }
            let (rows, next) = (stream.rows.len(), view.next_row(stream.id));
            ensure(at == rows && next == rows as u64, || {
                format!("{}: {at} rows are read of {rows} that are stored, {next} next", stream.spec.key)
            })?;
        }
        let catalog = self.world.store().catalog();
        for spec in &self.defined {
            let name = || spec.key.table.chars().take(20).collect::<String>();
            let Some(stream) = catalog.streams.iter().find(|stream| stream.key == spec.key) else {
                return Err(format!("stream {}… is gone", name()));
            };
            let same = |(channel, spec): (&crate::Channel, &ChannelSpec)| {
                (&channel.source_name, &channel.unit, &channel.description)
                    == (&spec.name, &spec.unit, &spec.description)
            };
            let channels = &stream.layout.channels;
            let fits = stream.source == spec.source
                && stream.sequence_modulus == spec.sequence_modulus
                && stream.expected_period_ns == spec.expected_period_ns
                && channels.len() == spec.channels.len()
                && channels.iter().zip(&spec.channels).all(same);
            ensure(fits, || {
                let told: String =
                    format!("{stream:?} instead of {spec:?}").replace("aaaaaaaa", "").replace("xxxxxxxx", "");
                format!("stream {}… is another one: {}", name(), told.chars().take(1_500).collect::<String>())
            })?;
        }
        Ok(())
    }
}
