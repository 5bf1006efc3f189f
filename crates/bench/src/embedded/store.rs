//! The store itself, in one thread of its own process: appends, commits, and seals between two batches.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use strongback_store::inspect::{Depth, inspect};
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, ColumnValues, FixedOptions, FrameBatch, FrameHead, Scan, Store,
    StoreOptions, StreamId, StreamKey, StreamSpec, Value, View,
};

use crate::ingest::embedded::append;

use super::course::{Course, CourseFrame, Kind};
use super::engine::{EngineArguments, Load, ReadBack, RustEngine, Writes, look_up, lookup_times, middle};

/// Max number of frames in a batch.
const BATCH_FRAMES: usize = 256;
/// Bytes of a segment for runs with retention by age, which drops whole segments.
const AGED_SEGMENT_BYTES: u64 = 1 << 20;

/// Store under load.
pub(super) struct Recorder {
    store: Store,
    streams: Vec<(StreamId, Vec<Kind>)>,
    batch: FrameBatch,
    frames: usize,
    now: i64,
}

fn options(arguments: &EngineArguments) -> StoreOptions {
    let settle = arguments.engine != RustEngine::StrongbackUnsettled;
    let mut options = StoreOptions { max_bytes: Some(16 << 30), settle, ..StoreOptions::default() };
    if arguments.keep_s > 0 {
        options.max_age = Some(Duration::from_secs(arguments.keep_s));
        options.segment_bytes = AGED_SEGMENT_BYTES;
    }
    options
}

/// Returns the size of a fixed-size store with room for a course, or for the part of it that is to be kept.
fn fixed_bytes(course: &Course, arguments: &EngineArguments) -> u64 {
    if arguments.keep_s > 0 {
        return 8 << 20;
    }
    // A row of a stream that is quiet for a whole segment also costs its stream's definition in the footer.
    let row_bytes = if course.streams.len() > 1_000 { 250 } else { 3 };
    (course.frames * row_bytes + course.points() * 3 / 2 + (32 << 20)).next_multiple_of(1 << 20)
}

/// Returns the folder, or the fixed-size file in it.
fn place(arguments: &EngineArguments) -> PathBuf {
    match arguments.engine {
        RustEngine::StrongbackFixed => arguments.dir.join("recorder"),
        _ => arguments.dir.clone(),
    }
}

/// Creates a store for a course.
pub(super) fn create(course: &Course, arguments: &EngineArguments) -> anyhow::Result<Recorder> {
    let now = course.iter().next().map_or(0, |f| f.time_ns);
    let store = match arguments.engine {
        RustEngine::StrongbackFixed => {
            let mut fixed = FixedOptions::new(fixed_bytes(course, arguments));
            fixed.max_streams = fixed.max_streams.max(course.streams.len() as u32);
            fixed.max_channels = fixed.max_channels.max(course.channels());
            // Add the space that is not for frames.
            fixed.size_bytes += fixed.least_bytes().map_err(anyhow::Error::msg)?;
            Store::create_fixed(&place(arguments), &fixed, options(arguments), now)?
        }
        _ => Store::open(&place(arguments), options(arguments), now)?,
    };
    let mut streams = Vec::new();
    for stream in &course.streams {
        let channels = stream.kinds.iter().enumerate().map(|(c, kind)| {
            let kind = match kind {
                Kind::F32 => ChannelType::F32,
                Kind::F64 => ChannelType::F64,
                Kind::Bool => ChannelType::Bool,
                Kind::I64 => ChannelType::I64,
            };
            ChannelSpec::new(format!("c{c}"), kind)
        });
        let spec = StreamSpec {
            key: StreamKey::new(stream.name.as_str(), []),
            source: "course".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: channels.collect(),
        };
        streams.push((store.resolve(&spec, now)?.0.id, stream.kinds.clone()));
        // Definitions are in the log too, which is short in a small store.
        if streams.len() % 1000 == 0 {
            store.commit(now)?;
            while store.maintain(now)? {}
        }
    }
    Ok(Recorder { store, streams, batch: FrameBatch::new(), frames: 0, now })
}

impl Recorder {
    fn flush(&mut self) -> anyhow::Result<()> {
        append(&self.store, &self.batch, self.now)?;
        self.batch.clear();
        self.frames = 0;
        while self.store.maintain(self.now)? {}
        Ok(())
    }
}

impl Load for Recorder {
    fn append(&mut self, frame: &CourseFrame<'_>) -> anyhow::Result<()> {
        let (stream, kinds) = &self.streams[frame.stream];
        self.batch.begin(FrameHead { stream: *stream, receive_time: frame.time_ns, source_time: None, sequence: None });
        for (index, (value, kind)) in frame.cells().zip(kinds).enumerate() {
            let value = match kind {
                Kind::F32 => Value::F32(value as f32),
                Kind::F64 => Value::F64(value),
                Kind::Bool => Value::Bool(value != 0.0),
                Kind::I64 => Value::I64(value as i64),
            };
            self.batch.push(ChannelIndex(index as u16), value);
        }
        self.batch.end();
        self.now = frame.time_ns;
        self.frames += 1;
        if self.frames == BATCH_FRAMES { self.flush() } else { Ok(()) }
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        if self.frames > 0 {
            self.flush()?;
        }
        self.store.commit(self.now)?;
        Ok(())
    }

    fn prune(&mut self, _before_ns: i64) -> anyhow::Result<()> {
        // `max_age` deletes old rows.
        Ok(())
    }

    fn writes(&self) -> Option<Writes> {
        let stats = self.store.stats();
        Some(Writes {
            log_bytes: stats.log_written_bytes,
            settle_bytes: stats.settle_written_bytes,
            all_bytes: stats.written_bytes,
        })
    }
}

/// Opens the store and reads it.
pub(super) fn read(course: &Course, arguments: &EngineArguments) -> anyhow::Result<ReadBack> {
    let now = course.iter().last().map_or(0, |f| f.time_ns);
    let mut back = ReadBack::default();
    let begin = Instant::now();
    let store = Store::open(&place(arguments), options(arguments), now)?;
    let view = store.view();
    let known: HashMap<&str, StreamId> =
        view.catalog().streams.iter().map(|stream| (&*stream.key.table, stream.id)).collect();
    let ids: Vec<StreamId> = course
        .streams
        .iter()
        .map(|wanted| known.get(wanted.name.as_str()).copied().context("a stream is missing"))
        .collect::<anyhow::Result<_>>()?;
    let (oldest, newest) = view.time_range(ids[0]).context("no row")?;
    if count(&view, Scan { time: newest..newest + 1, ..Scan::all(ids[0], vec![ChannelIndex(0)]) })? == 0 {
        bail!("the newest row is missing");
    }
    back.open_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for id in &ids {
        let buckets = view.reduce(*id, ChannelIndex(0), i64::MIN..i64::MAX, 1)?;
        back.rows.push(buckets.iter().map(|b| b.count).sum());
        back.sums.push(buckets.iter().map(|b| b.count as f64 * b.mean.unwrap_or(0.0)).sum());
    }
    back.aggregate_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for (id, stream) in ids.iter().zip(&course.streams) {
        let columns = (0..stream.kinds.len() as u16).map(ChannelIndex).collect();
        for batch in view.scan(Scan::all(*id, columns)) {
            for column in &batch?.columns {
                back.scanned_sum += sum(&column.values)?;
                back.scanned_points += column.values.len() as u64;
            }
        }
    }
    back.scan_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let columns: Vec<_> = (0..course.streams[0].kinds.len() as u16).map(ChannelIndex).collect();
    let range = Scan { time: middle(oldest, newest), ..Scan::all(ids[0], columns) };
    back.range_rows = count(&view, range)?;
    back.range_s = begin.elapsed().as_secs_f64();
    let times: Vec<i64> =
        lookup_times(course, course.frames).into_iter().filter(|t| (oldest..=newest).contains(t)).collect();
    back.looked_up = times.len() as u64;
    (back.lookup_us, back.found) = look_up(&times, |time| {
        Ok(count(&view, Scan { time: time..time + 1, ..Scan::all(ids[0], vec![ChannelIndex(0)]) })? == 1)
    })?;
    let found = inspect(&place(arguments), Depth::Footers)?;
    let places: HashMap<StreamId, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let points = found.streams.iter().map(|(id, used)| {
        let channels = places.get(id).map_or(0, |at| course.streams[*at].kinds.len());
        used.rows * channels as u64
    });
    back.blocks = Some((found.block_bytes(), points.sum()));
    Ok(back)
}

fn count(view: &View, scan: Scan) -> anyhow::Result<u64> {
    view.scan(scan).try_fold(0, |rows, batch| Ok(rows + batch?.len() as u64))
}

/// Returns the sum of a column in which every cell is a value.
fn sum(values: &ColumnValues) -> anyhow::Result<f64> {
    // Several parallel sums: a single one would wait for each addition.
    fn lanes<T: Copy>(values: &[T], to: impl Fn(T) -> f64) -> f64 {
        let mut sums = [0.0; 8];
        let chunks = values.chunks_exact(8);
        let rest: f64 = chunks.remainder().iter().map(|v| to(*v)).sum();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += to(*value);
            }
        }
        sums.iter().sum::<f64>() + rest
    }
    match values {
        ColumnValues::F32(v) => Ok(lanes(v, f64::from)),
        ColumnValues::F64(v) => Ok(lanes(v, |v| v)),
        ColumnValues::I64(v) => Ok(lanes(v, |v| v as f64)),
        ColumnValues::Bool(v) => Ok(v.iter().filter(|v| **v).count() as f64),
        other => bail!("a course has no {}", other.channel_type().name()),
    }
}
