//! A naive model in lockstep with the store on the fault disk, in a folder and in a fixed size: generated actions, power
//! cuts between any two writes, twice in a row, calls that fail, reads that come short, a disk that is full, and at the
//! end bits that flip. How to run it: docs/durability.md.

mod blobs;
mod kinds;
mod reduced;
mod rot;
mod rotten;
mod seeds;

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use self::blobs::Camera;
use self::reduced::Reduced;
use crate::disk::Disk;
use crate::disk::fault::{FOLDER, FaultDisk};
use crate::tests::kit::*;
use crate::*;

/// One frame as the model keeps it: times, and cells by channel.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    receive_time: i64,
    source_time: Option<i64>,
    /// By the clock that the stream had.
    time: i64,
    cells: Vec<Result<OwnedValue, CellState>>,
}

/// One stream of the model.
struct ModelStream {
    spec: StreamSpec,
    id: StreamId,
    frames: Vec<Frame>,
    /// Frames that the store acknowledged as durable.
    acknowledged: usize,
    /// The oldest that was there when it was last looked at.
    first: usize,
}

impl ModelStream {
    /// A row of a batch is this one.
    fn check_row(&self, batch: &Batch, row: usize, at: usize) -> Checked {
        let key = &self.spec.key;
        let Some(frame) = self.frames.get(at) else { return Err(format!("{key}: row {at} too many")) };
        let times = (batch.receive_time[row], batch.source_time.as_ref().and_then(|t| t.get(row)));
        ensure(batch.rows[row] == at as u64 && times == (frame.receive_time, frame.source_time), || {
            format!("{key}, row {at}: found row {} at {times:?}, {frame:?}", batch.rows[row])
        })?;
        ensure(batch.time(row) == frame.time, || format!("{key}, row {at}: at {}, {frame:?}", batch.time(row)))?;
        for (channel, column) in batch.columns.iter().enumerate() {
            let want = frame.cells.get(channel).cloned().unwrap_or(Err(CellState::Absent));
            let kind = column.values.channel_type();
            let want = want.map(|v| match v {
                OwnedValue::Plain(v) => OwnedValue::Plain(v.convert(kind).expect("widening")),
                text => text,
            });
            let found = column.cell(row).map(OwnedValue::of);
            ensure(found == want, || format!("{key}, row {at}, channel {channel}: {found:?} instead of {want:?}"))?;
        }
        Ok(())
    }
}

struct Model {
    disk: FaultDisk,
    store: Store,
    streams: Vec<ModelStream>,
    /// Streams with reductions.
    reduced: Vec<Reduced>,
    /// A stream of images.
    camera: Camera,
    random: Rng,
    /// When streams change their clock: apart, so that seeds stay what they are.
    clocks: Rng,
    now: i64,
    epoch: u32,
    cuts: u32,
    /// Calls of the disk that failed and are accounted for.
    errors: u64,
    /// Openings after a call of the disk failed.
    failures: u32,
    /// Whether the disk was full at some time: then the oldest rows may go.
    was_full: bool,
    /// Whether the size is fixed: then the oldest rows are written over.
    fixed: bool,
}

/// A size that goes round a few times in a run.
fn fixed_options() -> FixedOptions {
    FixedOptions { max_streams: 8, max_channels: 110, ..FixedOptions::new(224 << 10) }
}

fn open_on(disk: &FaultDisk, fixed: bool, now: i64) -> Result<Store, OpenError> {
    if fixed {
        let options = StoreOptions { open_bytes: 256 << 10, ..StoreOptions::default() };
        return super::fixed::open_on(disk, options, now);
    }
    disk.open_store(options(), now)
}

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        max_bytes: Some(1 << 40),
        open_bytes: 256 << 10,
        settle_age: Duration::from_millis(50),
        ..StoreOptions::default()
    }
}

/// What went wrong, to be told with the seed.
type Checked = Result<(), String>;

/// What errors of readers begin with.
const UNREADABLE: &str = "cannot read: ";

fn ensure(fits: bool, what: impl FnOnce() -> String) -> Checked {
    if fits { Ok(()) } else { Err(what()) }
}

impl Model {
    fn new(seed: u64, fixed: bool) -> Model {
        let disk = FaultDisk::new(seed);
        disk.faults.short_reads.store(seed % 2 == 1, Ordering::Relaxed);
        if fixed {
            super::fixed::make_on(&disk, &fixed_options());
        }
        let store = open_on(&disk, fixed, T0).expect("a new store");
        let epoch = store.epoch();
        let (random, clocks) = (Rng::with_seed(seed ^ 0x5eed), Rng::with_seed(seed ^ 0xc10c));
        let (streams, reduced, camera) = (Vec::new(), Vec::new(), Camera::default());
        let (cuts, errors, failures, was_full) = (0, 0, 0, false);
        Model {
            disk,
            store,
            streams,
            reduced,
            camera,
            random,
            clocks,
            now: T0,
            epoch,
            cuts,
            errors,
            failures,
            was_full,
            fixed,
        }
    }

    fn channel(random: &mut Rng, index: usize) -> ChannelSpec {
        let kinds = [
            ChannelType::F64,
            ChannelType::I16,
            ChannelType::Bool,
            ChannelType::String,
            ChannelType::U32,
            ChannelType::Array(ArrayType::variable(ElementType::U16)),
            ChannelType::Array(ArrayType::fixed(ElementType::F32, 24).expect("a length")),
        ];
        ChannelSpec::new(format!("c{index}"), kinds[random.usize(..kinds.len())])
    }

    fn add_stream(&mut self) {
        let n = self.streams.len();
        let channels: Vec<ChannelSpec> =
            (0..self.random.usize(1..5)).map(|i| Self::channel(&mut self.random, i)).collect();
        let clock = if self.random.bool() { Clock::Receive } else { Clock::Source };
        let spec = spec(format!("table{}", n % 3), channels).tag("n", n).clock(clock).source("model");
        if let Ok((stream, _)) = self.store.resolve(&spec, self.now) {
            self.streams.push(ModelStream { spec, id: stream.id, frames: Vec::new(), acknowledged: 0, first: 0 });
        }
    }

    fn add_reduced(&mut self) {
        let reduced = Reduced::new(self.reduced.len(), &mut self.random);
        self.reduced.extend(reduced.resolved(&self.store, self.now));
    }

    fn append_reduced(&mut self) -> Checked {
        if self.reduced.is_empty() {
            return Ok(());
        }
        let n = self.random.usize(..self.reduced.len());
        self.reduced[n].append(&self.store, &mut self.random, &mut self.now)
    }

    fn grow_stream(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let n = self.random.usize(..self.streams.len());
        let mut spec = self.streams[n].spec.clone();
        if self.random.bool() && spec.channels.len() < 12 {
            spec.channels.push(Self::channel(&mut self.random, spec.channels.len()));
        } else if let Some(narrow) = spec.channels.iter_mut().find(|c| c.channel_type == ChannelType::I16) {
            narrow.channel_type = ChannelType::I64;
        }
        if self.clocks.u8(0..3) == 0 {
            spec.clock = if spec.clock == Clock::Source { Clock::Receive } else { Clock::Source };
        }
        if self.store.resolve(&spec, self.now).is_ok() {
            self.streams[n].spec = spec;
        }
    }

    fn value(random: &mut Rng, kind: ChannelType) -> OwnedValue {
        match kind {
            ChannelType::F64 => OwnedValue::Plain(Value::F64(random.i32(..) as f64 / 16.0)),
            ChannelType::I16 => OwnedValue::Plain(Value::I16(random.i16(..))),
            ChannelType::I64 => OwnedValue::Plain(Value::I64(random.i64(..))),
            ChannelType::U32 => OwnedValue::Plain(Value::U32(random.u32(..))),
            ChannelType::Bool => OwnedValue::Plain(Value::Bool(random.bool())),
            ChannelType::Array(kind) => {
                // Mostly short ones; a long one takes a chunk and more.
                let most = if random.u8(0..200) == 0 { 1_500 } else { 30 };
                let length = kind.length().unwrap_or_else(|| random.usize(..most));
                let size = kind.element().size_bytes();
                let base = random.u8(..);
                let bytes = (0..length * size).map(|at| base.wrapping_add((at / size) as u8)).collect();
                OwnedValue::Array { element: kind.element(), bytes }
            }
            _ => OwnedValue::String("abcdefghijklmnopqrstuvwxyz"[..random.usize(..26)].into()),
        }
    }

    fn append(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let mut batch = FrameBatch::new();
        let mut frames = Vec::new();
        // Often one stream at a high rate, sometimes all a little.
        let one = self.random.bool().then(|| self.random.usize(..self.streams.len()));
        for _ in 0..self.random.usize(1..400) {
            let n = one.unwrap_or_else(|| self.random.usize(..self.streams.len()));
            self.now += self.random.i64(1..1_000_000);
            let stream = &self.streams[n];
            let source_time = self.random.bool().then(|| self.now - self.random.i64(0..3_000_000));
            let head = head(stream.id, self.now).sampled(source_time);
            batch.begin(head);
            let mut cells = Vec::new();
            for (i, channel) in stream.spec.channels.iter().enumerate() {
                let index = ChannelIndex(i as u16);
                match self.random.u8(0..10) {
                    0 => cells.push(Err(CellState::Absent)),
                    1 => {
                        batch.push_state(index, CellState::Unknown);
                        cells.push(Err(CellState::Unknown));
                    }
                    _ => {
                        let value = Self::value(&mut self.random, channel.channel_type);
                        batch.push(index, value.as_value());
                        cells.push(Ok(value));
                    }
                }
            }
            batch.end();
            let time = match (stream.spec.clock, source_time) {
                (Clock::Source, Some(time)) => time,
                _ => self.now,
            };
            frames.push((n, Frame { receive_time: self.now, source_time, time, cells }));
        }
        let appended = self.store.append(&batch, self.now);
        for ((n, frame), outcome) in frames.into_iter().zip(appended.outcomes) {
            if let Outcome::Stored { .. } = outcome {
                self.streams[n].frames.push(frame);
            }
        }
    }

    fn commit(&mut self) -> Checked {
        let before: Vec<usize> = self.streams.iter().map(|s| s.frames.len()).collect();
        match self.store.commit(self.now) {
            Ok(_) => {
                self.reduced.iter_mut().for_each(Reduced::acknowledge);
                self.camera.acknowledge();
                for (stream, len) in self.streams.iter_mut().zip(before) {
                    stream.acknowledged = len;
                    let row = self.store.committed_row(stream.id);
                    ensure(row == len as u64, || format!("committed row {row}, {len} appended"))?;
                }
                Ok(())
            }
            // What it acknowledged by then counts all the same: someone may have waited for it.
            Err(_) => {
                for stream in &mut self.streams {
                    stream.acknowledged = stream.acknowledged.max(self.store.committed_row(stream.id) as usize);
                }
                self.recover()
            }
        }
    }

    fn maintain(&mut self) -> Checked {
        for _ in 0..self.random.usize(1..6) {
            match self.store.maintain(self.now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return self.recover(),
            }
        }
        Ok(())
    }

    /// Whether the disk did what may make the store fail, since it was last asked: the power is cut, or a call failed.
    fn excused(&mut self) -> bool {
        let errors = self.disk.errors();
        let excused = self.disk.is_cut() || errors > self.errors;
        self.errors = errors;
        excused
    }

    /// After the store gave up.
    fn recover(&mut self) -> Checked {
        ensure(self.excused(), || format!("poisoned without a fault: {:?}", self.store.refusal()))?;
        if !self.disk.is_cut() {
            self.failures += 1;
            // It says again what failed, and gives the folder free.
            let _ = self.store.close(self.now);
        }
        self.reopen()
    }

    /// Opens again, perhaps cut off once more on the way.
    fn reopen(&mut self) -> Checked {
        loop {
            if self.disk.is_cut() {
                self.cuts += 1;
                self.disk = self.disk.after_cut();
            }
            if self.random.bool() {
                self.disk.faults.writes_left.store(self.random.u64(1..12), Ordering::Relaxed);
            }
            match open_on(&self.disk, self.fixed, self.now) {
                Ok(store) => {
                    self.store = store;
                    break;
                }
                Err(_) if self.excused() => self.disk.set_capacity_bytes(u64::MAX),
                Err(error) => return Err(format!("cannot open: {error}")),
            }
        }
        ensure(self.store.epoch() > self.epoch, || "an epoch came twice".into())?;
        self.epoch = self.store.epoch();
        let catalog = self.store.catalog();
        self.streams.retain(|s| s.acknowledged > 0 || catalog.streams.iter().any(|have| have.key == s.spec.key));
        for n in 0..self.streams.len() {
            let stream = &mut self.streams[n];
            let Some(have) = catalog.streams.iter().find(|have| have.key == stream.spec.key) else {
                return Err(format!("stream {} is gone", stream.spec.key));
            };
            stream.id = have.id;
            // Channels that were never committed are gone with the cut; the source asks for them again.
            let (found, indices) = loop {
                match self.store.resolve(&stream.spec, self.now) {
                    Ok(resolved) => break resolved,
                    // A small log may be full of what came back.
                    Err(Reject::Refused(Refusal::LogFull | Refusal::DiskFull)) if self.fixed || self.was_full => {
                        self.disk.set_capacity_bytes(u64::MAX);
                        let done = self.store.commit(self.now).and_then(|_| self.store.maintain(self.now));
                        if done.is_err() {
                            return self.recover();
                        }
                    }
                    Err(error) => return Err(format!("cannot resolve: {error}")),
                }
            };
            ensure(indices.iter().enumerate().all(|(i, index)| index.0 as usize == i), || "channels moved".into())?;
            ensure(found.id == stream.id, || "another id".into())?;
            let rows = self.store.view().next_row(stream.id) as usize;
            ensure(rows >= stream.acknowledged, || {
                format!("stream {n}: {rows} rows came back of {} acknowledged", stream.acknowledged)
            })?;
            ensure(rows <= stream.frames.len(), || format!("stream {n}: rows that were never appended"))?;
            stream.frames.truncate(rows);
            stream.acknowledged = rows;
        }
        self.recover_reduced()?;
        self.recover_camera()?;
        self.check_all()
    }

    fn check_all(&mut self) -> Checked {
        (0..self.streams.len()).try_for_each(|n| self.check(n))?;
        (0..self.reduced.len()).try_for_each(|n| self.check_reduced(n))?;
        self.check_camera(false)
    }

    /// The store holds what the model holds; where the disk fails a read it says so, and reads it the next time.
    fn check(&mut self, n: usize) -> Checked {
        loop {
            match self.check_once(n) {
                Err(error) if error.starts_with(UNREADABLE) && self.excused() => {}
                other => return other,
            }
            if self.disk.is_cut() {
                return self.recover();
            }
        }
    }

    fn check_once(&mut self, n: usize) -> Checked {
        let stream = &self.streams[n];
        let columns: Vec<ChannelIndex> = (0..stream.spec.channels.len() as u16).map(ChannelIndex).collect();
        let view = self.store.view();
        let mut batches: Vec<Batch> = Vec::new();
        let newest_first = self.random.bool();
        let batch_rows = if self.random.bool() { usize::MAX } else { self.random.usize(30..300) };
        for batch in view.scan(Scan { newest_first, batch_rows, ..Scan::all(stream.id, columns.clone()) }) {
            let batch = batch.map_err(|e| format!("{UNREADABLE}{e}"))?;
            ensure(batch.len() <= batch_rows, || format!("stream {n}: {} rows of {batch_rows}", batch.len()))?;
            batches.push(batch);
        }
        if newest_first {
            batches.reverse();
        }
        let oldest = batches.iter().find_map(|batch| batch.rows.first());
        let first = oldest.map_or(stream.frames.len(), |row| *row as usize);
        if self.fixed || self.was_full {
            self.check_overwritten(n, first)?;
        } else {
            ensure(first == 0 || stream.frames.is_empty(), || format!("stream {n}: begins with row {first}"))?;
        }
        let mut at = first;
        for batch in &batches {
            for row in 0..batch.len() {
                stream.check_row(batch, row, at)?;
                at += 1;
            }
        }
        ensure(at == stream.frames.len(), || format!("stream {n}: {at} rows of {}", stream.frames.len()))?;
        self.check_state(n, &view, &columns, first)?;
        let from = self.random.u32(0..30);
        self.check_elements(n, &view, from..from + 3, first)?;
        self.streams[n].first = first;
        Ok(())
    }

    /// Single elements of arrays are those of the whole arrays.
    fn check_elements(&self, n: usize, view: &View, wanted: std::ops::Range<u32>, first: usize) -> Checked {
        let stream = &self.streams[n];
        let arrays =
            (0..stream.spec.channels.len()).filter(|i| stream.spec.channels[*i].channel_type.array().is_some());
        let arrays: Vec<usize> = arrays.collect();
        let range = |i: &usize| ElementRange { channel: ChannelIndex(*i as u16), elements: wanted.clone() };
        let elements = arrays.iter().map(range).collect();
        let mut at = first;
        for batch in view.scan(Scan { elements, ..Scan::all(stream.id, Vec::new()) }) {
            let batch = batch.map_err(|e| format!("scan of elements: {e}"))?;
            for row in 0..batch.len() {
                for (i, channel) in arrays.iter().enumerate() {
                    let cell = stream.frames[at].cells.get(*channel).cloned().unwrap_or(Err(CellState::Absent));
                    for (j, element) in wanted.clone().enumerate() {
                        let want = cell.as_ref().map_err(|state| *state).and_then(|array| match array.as_value() {
                            Value::Array(array) => array.get(element as usize).ok_or(CellState::Absent),
                            other => panic!("{other:?}"),
                        });
                        let found = batch.columns[i * wanted.len() + j].cell(row);
                        // By their bits: some are no number.
                        let bits = |cell: Result<Value<'_>, CellState>| cell.map(|v| (v.channel_type(), v.bits()));
                        ensure(bits(found) == bits(want), || {
                            format!(
                                "stream {n}, row {at}, channel {channel}, element {element}: {found:?}, not {want:?}"
                            )
                        })?;
                    }
                }
                at += 1;
            }
        }
        ensure(at == stream.frames.len(), || format!("stream {n}: {at} rows of elements of {}", stream.frames.len()))
    }

    /// Of a fixed size the oldest segments go, one after the other, when all slots are taken, and not before.
    fn check_overwritten(&self, n: usize, first: usize) -> Checked {
        let stream = &self.streams[n];
        ensure(first >= stream.first, || format!("stream {n}: row {first} is back, {} was the oldest", stream.first))?;
        if !self.fixed {
            return Ok(());
        }
        let (slots, _) = fixed_options().segments().expect("slots");
        let segments = self.store.segments();
        let newest = segments.last().map_or(0, |s| s.id);
        // One slot is settle's, and the segment that was made for want of another may have been cut off before it held
        // anything.
        ensure(first == 0 || newest + 1 >= slots, || format!("stream {n}: {first} rows gone after {newest} segments"))?;
        ensure(segments.len() as u64 <= slots, || format!("{} segments in {slots} slots", segments.len()))?;
        ensure(self.disk.used_bytes() == fixed_options().size_bytes, || format!("{} bytes", self.disk.used_bytes()))
    }

    /// The state at an instant is the newest value at or before it; for equal times the higher row.
    fn check_state(&self, n: usize, view: &View, columns: &[ChannelIndex], first: usize) -> Checked {
        let stream = &self.streams[n];
        let Some(middle) = stream.frames.get(first.midpoint(stream.frames.len())) else { return Ok(()) };
        for time in [middle.time, i64::MAX - 1] {
            let state = view.state_at(stream.id, time, columns).map_err(|e| format!("{UNREADABLE}{e}"))?;
            for (channel, found) in state.iter().enumerate() {
                let want = stream
                    .frames
                    .iter()
                    .enumerate()
                    .skip(first)
                    .filter(|(_, f)| f.time <= time)
                    .filter(|(_, f)| matches!(f.cells.get(channel), Some(Ok(_) | Err(CellState::Unknown))))
                    .max_by_key(|(row, f)| (f.time, *row))
                    .map(|(row, f)| (row as u64, f.cells[channel].is_ok()));
                let found = found.as_ref().map(|c| (c.row, c.value.is_some()));
                ensure(found == want, || {
                    format!("stream {n}, channel {channel}: state from {found:?} instead of {want:?}")
                })?;
            }
        }
        Ok(())
    }

    /// The disk begins to do something wrong, or is well again.
    fn fault(&mut self) {
        match self.random.u8(0..8) {
            0..5 => {
                if self.disk.faults.writes_left.load(Ordering::Relaxed) == u64::MAX {
                    self.disk.faults.writes_left.store(self.random.u64(1..30), Ordering::Relaxed);
                }
            }
            5..7 => {
                let mut files: Vec<String> =
                    Disk::list(&self.disk).unwrap_or_default().into_iter().map(|(name, _)| name).collect();
                files.push(FOLDER.into());
                let file = &files[self.random.usize(..files.len())];
                let k = self.random.u8(0..3);
                match k {
                    0 => self.disk.fail_syncs(file, 1),
                    1 => self.disk.tear_writes(file, 1),
                    _ => self.disk.fail_reads(file, 1),
                }
            }
            _ if self.fixed => {}
            _ => {
                let room = self.random.bool().then(|| self.random.u64(0..400 << 10));
                self.was_full |= room.is_some();
                self.disk.set_capacity_bytes(room.map_or(u64::MAX, |room| self.disk.used_bytes() + room));
            }
        }
    }

    fn step(&mut self) -> Checked {
        match self.random.u8(0..100) {
            0..4 => {
                if self.streams.len() < 6 {
                    self.add_stream();
                }
            }
            4..6 => {
                if self.reduced.len() < 2 {
                    self.add_reduced();
                }
            }
            6..9 => self.grow_stream(),
            9..33 => self.append(),
            33..36 => self.shoot()?,
            36..46 => self.append_reduced()?,
            46..70 => self.commit()?,
            70..86 => self.maintain()?,
            86..88 => {
                if self.store.settle(self.now).is_err() {
                    return self.recover();
                }
            }
            88..92 => {
                let n = self.random.usize(..1 + self.streams.len() + self.reduced.len());
                if n < self.streams.len() {
                    self.check(n)?;
                } else if n < self.streams.len() + self.reduced.len() {
                    self.check_reduced(n - self.streams.len())?;
                }
            }
            92..98 => self.fault(),
            _ => {
                if self.store.close(self.now).is_err() {
                    return self.recover();
                }
                for stream in &mut self.streams {
                    stream.acknowledged = stream.frames.len();
                }
                self.reduced.iter_mut().for_each(Reduced::acknowledge);
                self.camera.acknowledge();
                match open_on(&self.disk, self.fixed, self.now) {
                    Ok(store) => self.store = store,
                    Err(_) if self.excused() => return self.reopen(),
                    Err(error) => return Err(format!("cannot open: {error}")),
                }
                self.epoch = self.store.epoch();
                self.check_all()?;
            }
        }
        Ok(())
    }
}
