//! A disk that others fill and empty, whose calls fail, that keeps some names at a power cut and not others. What was
//! acknowledged is there, but for the oldest when there was no space; nothing goes for nothing; and the store goes on
//! alone.

use super::super::{Checked, ensure};
use super::world::{End, World, scan, small_options};
use crate::disk::Disk;
use crate::disk::fault::{Allocation, Fault};
use crate::disk::names::CHECKPOINTS;
use crate::tests::kit::*;
use crate::*;

const SEGMENT: u64 = 64 << 10;
const CAPACITY: u64 = 64 << 20;
const CHANNELS: u16 = 8;

struct Stream {
    id: StreamId,
    /// Rows that were appended, and those that are acknowledged.
    rows: u64,
    acknowledged: u64,
    /// The oldest that was there when it was last looked at.
    first: u64,
}

struct Full {
    world: World,
    allocation: Allocation,
    /// Whether what is written over needs space: then the log does, too, and commits may be refused.
    copies: bool,
    streams: Vec<Stream>,
    /// Streams that have a definition and nothing else.
    others: usize,
    /// Whether something failed that was told to since the store was opened.
    failed: bool,
}

pub(super) fn run(seed: u64) -> Checked {
    let options = StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: SEGMENT,
        max_streams: 20_000,
        settle: !seed.is_multiple_of(3),
        // Small blocks, which are worth rewriting.
        open_bytes: if seed.is_multiple_of(2) { 0 } else { 128 << 10 },
        ..small_options()
    };
    let world = World::on(seed, options, |disk| {
        disk.set_capacity_bytes(CAPACITY);
        disk.set_names_apart(true);
    })?;
    let allocation = [Allocation::Reserve, Allocation::Reserve, Allocation::Write, Allocation::Sync][seed as usize % 4];
    let copies = seed % 8 == 2 || seed % 8 == 5;
    let mut full = Full { world, allocation, copies, streams: Vec::new(), others: 0, failed: false };
    full.world.disk.set_allocation(allocation);
    full.world.disk.set_copy_on_write(copies && allocation != Allocation::Sync);
    full.resolve()?;
    // Some history that can go.
    for _ in 0..8 {
        full.append(1_200)?;
        full.commit()?;
        full.maintain(50)?;
    }
    (0..60).try_for_each(|_| full.step())?;
    full.well_again()
}

/// What a channel of a row holds: known by its place.
fn value(stream: usize, row: u64, channel: u16) -> u64 {
    if channel == 0 {
        return row;
    }
    let mixed = (row << 12 | (stream as u64) << 6 | u64::from(channel)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Full {
    fn resolve(&mut self) -> Checked {
        for n in 0..2 {
            let spec =
                spec(format!("full{n}"), (0..CHANNELS).map(|n| (format!("c{n}"), ChannelType::U64))).source("model");
            let resolved = self.world.store().resolve(&spec, self.world.now);
            match (resolved, self.streams.get_mut(n)) {
                (Ok((stream, _)), None) => {
                    self.streams.push(Stream { id: stream.id, rows: 0, acknowledged: 0, first: 0 });
                }
                (Ok((stream, _)), Some(known)) => known.id = stream.id,
                (Err(error), _) => return Err(format!("cannot resolve: {error}")),
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        let choice = self.world.random.u8(0..100);
        match choice {
            0..25 => {
                let rows = self.world.random.u64(1..600);
                self.append(rows)?;
                self.commit()?;
                let slices = self.world.random.usize(1..30);
                self.maintain(slices)
            }
            25..33 => {
                let streams = self.world.random.usize(1..300);
                self.define(streams)?;
                self.commit()
            }
            33..45 => {
                let left = self.world.random.u64(0..300 << 10) * u64::from(self.world.random.bool());
                self.world.disk.leave_space(left);
                Ok(())
            }
            45..52 => {
                let some = if self.world.random.bool() { u64::MAX } else { self.world.random.u64(0..1 << 20) };
                self.world.disk.give_space(some);
                Ok(())
            }
            52..60 => self.rest(),
            60..67 => self.fault(),
            67..70 => self.settle(),
            70..74 => self.settle_while_full(),
            74..82 => self.check("while it is open"),
            82..86 => self.descriptors(),
            _ => {
                let end = End::any(&mut self.world.random);
                self.end(end)
            }
        }
    }

    /// Appends rows of both streams; those that are refused are counted, no more.
    fn append(&mut self, rows: u64) -> Result<u64, String> {
        let mut stored = 0;
        let mut batch = FrameBatch::new();
        for _ in 0..rows.div_ceil(200) {
            batch.clear();
            let n = self.world.random.usize(..self.streams.len());
            let stream = &self.streams[n];
            for row in stream.rows..stream.rows + rows.min(200) {
                self.world.now += 10_000;
                let head = head(stream.id, self.world.now);
                batch.begin(head);
                (0..CHANNELS).for_each(|c| batch.push(ChannelIndex(c), Value::U64(value(n, row, c))));
                batch.end();
            }
            let appended = self.world.store().append(&batch, self.world.now);
            let mut refused = false;
            for outcome in appended.outcomes {
                match outcome {
                    Outcome::Stored { row } => {
                        let stream = &mut self.streams[n];
                        ensure(row == stream.rows && !refused, || format!("row {row} of {}", stream.rows))?;
                        stream.rows += 1;
                        stored += 1;
                    }
                    Outcome::Rejected(Reject::Refused(_)) => refused = true,
                    other => return Err(format!("{other:?}")),
                }
            }
        }
        Ok(stored)
    }

    fn commit(&mut self) -> Checked {
        match self.world.store().commit(self.world.now) {
            Ok(_) => {
                self.streams.iter_mut().for_each(|stream| stream.acknowledged = stream.rows);
                Ok(())
            }
            Err(refusal) => self.refused(&refusal),
        }
    }

    fn maintain(&mut self, slices: usize) -> Checked {
        for _ in 0..slices {
            self.world.now += SECOND / 50;
            match self.world.store().maintain(self.world.now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => return self.refused(&refusal),
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Checked {
        match self.world.store().settle(self.world.now) {
            Ok(_) => Ok(()),
            Err(refusal) => self.refused(&refusal),
        }
    }

    /// The store gave up. It must have had a reason, and is opened again once that is over.
    fn refused(&mut self, refusal: &Refusal) -> Checked {
        if *refusal == Refusal::DiskFull {
            return Ok(());
        }
        // Where a write or sync finds no space the store may have to be opened again, and nothing more.
        let late = self.copies || self.allocation == Allocation::Sync;
        ensure(self.failed || late, || format!("gave up although nothing failed: {refusal:?}"))?;
        self.end(End::Kill)
    }

    fn define(&mut self, streams: usize) -> Checked {
        for _ in 0..streams {
            self.others += 1;
            let spec =
                spec(format!("another_stream_with_a_name_{}", self.others), [("value_of_a_sensor", ChannelType::F64)])
                    .source("model");
            // The log may be full of definitions.
            if self.world.store().resolve(&spec, self.world.now).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Sealed segments of data that are listed.
    fn history(&self) -> usize {
        self.world.store().segments().iter().filter(|segment| segment.sealed && segment.group == "data").count()
    }

    /// Bytes of the files of checkpoints.
    fn checkpoint_bytes(&self) -> u64 {
        CHECKPOINTS.iter().map(|name| self.world.disk.content(name).map_or(0, |bytes| bytes.len() as u64)).sum()
    }

    /// Others have all the space, and nobody sends anything but definitions: however long it takes, history stays.
    fn rest(&mut self) -> Checked {
        if self.failed {
            return Ok(());
        }
        self.commit()?;
        self.maintain(30)?;
        self.world.disk.leave_space(0);
        let (before, checkpoints) = (self.history(), self.checkpoint_bytes());
        let streams = self.many();
        self.define(streams)?;
        self.commit()?;
        for _ in 0..40 {
            self.maintain(3)?;
            self.world.now += SECOND;
            self.world.disk.leave_space(0);
        }
        // Checkpoints that were waiting for room may take it, for streams of before, too.
        let grown = self.checkpoint_bytes().saturating_sub(checkpoints).min(self.others as u64 * 600);
        let (after, most) = (self.history(), 4 + (grown.max(streams as u64 * 600) / SEGMENT) as usize);
        // Settling makes one of several; then the rows must be there.
        let kept = after + most >= before || self.world.options.settle && self.rows_are_there()?;
        ensure(kept, || {
            format!(
                "{before} segments are {after} after a rest on a full disk, with {streams} new streams and {grown} bytes \
                 that checkpoints took"
            )
        })?;
        self.goes_on()
    }

    /// How many streams appear at once.
    fn many(&mut self) -> usize {
        let most = [1, 200, 1_500][self.world.random.usize(..3)];
        self.world.random.usize(0..most)
    }

    /// Others take all the space while one segment is made of several, and streams appear whose definitions need some.
    fn settle_while_full(&mut self) -> Checked {
        self.world.now += SECOND;
        for _ in 0..self.world.random.usize(1..20) {
            self.maintain(1)?;
        }
        self.world.disk.leave_space(0);
        let streams = self.many();
        self.define(streams)?;
        self.commit()?;
        for _ in 0..self.world.random.usize(1..40) {
            self.maintain(1)?;
        }
        self.check("while one segment is made of several")?;
        match self.world.random.u8(0..3) {
            0 => self.end(End::Kill),
            1 => self.end(End::Cut),
            _ => Ok(()),
        }
    }

    /// Whether all rows are there that were when they were last looked at.
    fn rows_are_there(&self) -> Result<bool, String> {
        let firsts: Result<Vec<u64>, String> = (0..self.streams.len()).map(|n| self.first(n)).collect();
        Ok(firsts?.iter().zip(&self.streams).all(|(first, stream)| *first <= stream.first))
    }

    fn first(&self, n: usize) -> Result<u64, String> {
        let view = self.world.store().view();
        let stream = &self.streams[n];
        let scan = Scan { batch_rows: 1, ..Scan::all(stream.id, Vec::new()) };
        match view.scan(scan).next() {
            None => Ok(stream.rows),
            Some(Ok(batch)) => Ok(batch.rows[0]),
            Some(Err(error)) => Err(format!("cannot read: {error}")),
        }
    }

    /// While there is history that may go, a full disk is no reason to refuse for long.
    fn goes_on(&mut self) -> Checked {
        if self.copies || self.allocation == Allocation::Sync || self.history() < 6 {
            return Ok(());
        }
        for _ in 0..80 {
            let stored = self.append(50)?;
            self.commit()?;
            self.maintain(3)?;
            self.world.now += SECOND;
            self.world.disk.leave_space(0);
            if stored > 0 {
                return Ok(());
            }
        }
        let (refusal, history) = (self.world.store().refusal(), self.history());
        Err(format!("{refusal:?}, with {history} segments that may go"))
    }

    fn fault(&mut self) -> Checked {
        let random = &mut self.world.random;
        let faults = [Fault::NoSpace, Fault::Quota, Fault::Io, Fault::ReadOnly];
        let fault = faults[random.usize(..faults.len())];
        let (before, times) = (random.u64(0..30), if random.bool() { 1 } else { random.u64(1..20) });
        self.failed = true;
        self.world.disk.fail_call(fault, before, times);
        self.append(100)?;
        self.commit()?;
        self.maintain(20)
    }

    /// For want of descriptors nothing is given up.
    fn descriptors(&mut self) -> Checked {
        if self.failed || self.copies || self.allocation == Allocation::Sync {
            return Ok(());
        }
        self.world.disk.set_out_of_descriptors(true);
        for _ in 0..3 {
            self.append(100)?;
            self.commit()?;
            for _ in 0..20 {
                self.world.now += SECOND / 10;
                if let Err(refusal) = self.world.store().maintain(self.world.now) {
                    return Err(format!("gave up for want of descriptors: {refusal:?}"));
                }
            }
        }
        self.world.disk.set_out_of_descriptors(false);
        Ok(())
    }

    fn end(&mut self, end: End) -> Checked {
        let closes = end == End::Clean;
        let end = if closes && self.world.store().close(self.world.now).is_err() { End::Kill } else { end };
        if closes && end == End::Clean {
            self.streams.iter_mut().for_each(|stream| stream.acknowledged = stream.rows);
        }
        // Where no segment is left, what the log still holds of the last one comes back.
        if self.world.store().segments().is_empty() {
            self.streams.iter_mut().for_each(|stream| stream.first = 0);
        }
        // An opening may fail while the disk does, and must not once it is well.
        self.world.let_go(end);
        if self.world.open().is_err() {
            self.world.disk.heal();
            self.world.disk.set_capacity_bytes(CAPACITY);
            self.world.open().map_err(|error| format!("after {end:?} {error}"))?;
        }
        self.failed = self.world.disk.is_call_to_fail();
        if let Err(error) = self.resolve() {
            // There may be no room in the log of a full disk.
            self.world.disk.heal();
            self.world.disk.set_capacity_bytes(CAPACITY);
            self.failed = false;
            self.maintain(1_000)?;
            self.resolve().map_err(|again| format!("after {end:?}: {error}, {again}"))?;
        }
        for n in 0..self.streams.len() {
            let stream = &self.streams[n];
            let rows = self.world.store().view().next_row(stream.id);
            ensure((stream.acknowledged..=stream.rows).contains(&rows), || {
                format!("after {end:?}: {rows} rows of stream {n} are back of {} acknowledged", stream.acknowledged)
            })?;
            (self.streams[n].rows, self.streams[n].acknowledged) = (rows, rows);
        }
        self.check(&format!("after {end:?}"))
    }

    /// All rows from the oldest on are there, as they were given.
    fn check(&mut self, when: &str) -> Checked {
        for n in 0..self.streams.len() {
            let view = self.world.store().view();
            let (id, rows) = (self.streams[n].id, self.streams[n].rows);
            let mut next = None;
            let columns = (0..CHANNELS).map(ChannelIndex).collect();
            let batches = match scan(&view, Scan::all(id, columns)) {
                Err(_) if self.failed => return Ok(()),
                other => other.map_err(|error| format!("{when}: {error}"))?,
            };
            for batch in batches {
                for at in 0..batch.len() {
                    let row = batch.rows[at];
                    ensure(next.is_none_or(|next| next == row), || format!("{when}: row {row} after {next:?}"))?;
                    next = Some(row + 1);
                    for channel in 0..CHANNELS {
                        let found = batch.columns[channel as usize].cell(at);
                        ensure(found == Ok(Value::U64(value(n, row, channel))), || {
                            format!("{when}: row {row} of stream {n}, channel {channel}: {found:?}")
                        })?;
                    }
                }
            }
            let first = next.map_or(rows, |_| self.first(n).unwrap_or(rows));
            ensure(next.unwrap_or(rows) == rows, || format!("{when}: stream {n} ends with {next:?} of {rows} rows"))?;
            ensure(first >= self.streams[n].first, || format!("{when}: row {first} of stream {n} is back"))?;
            self.streams[n].first = first;
        }
        Ok(())
    }

    /// Once the disk is well again the store goes on alone, and keeps no file that it does not list.
    fn well_again(&mut self) -> Checked {
        self.world.disk.heal();
        self.world.disk.set_capacity_bytes(CAPACITY);
        self.failed = false;
        if self.world.store().refusal().is_some_and(|refusal| matches!(refusal, Refusal::Poisoned(_))) {
            self.end(End::Kill)?;
        }
        for _ in 0..20 {
            self.world.now += SECOND;
            self.maintain(50)?;
        }
        // What a full disk kept from being committed may fill the log.
        self.commit()?;
        let stored = self.append(100)?;
        ensure(stored >= 100, || format!("refuses on a disk that is well: {:?}", self.world.store().refusal()))?;
        self.commit()?;
        self.check("on a disk that is well again")?;
        // Files that another stands for go once nobody reads them, with the upkeep after that.
        for round in 0..5 {
            self.world.now += SECOND;
            self.maintain(50)?;
            let files = Disk::list(&self.world.disk).map_err(|error| error.to_string())?;
            let files = files.iter().filter(|(name, _)| name.starts_with("segment")).count();
            let listed = self.world.store().segments().len();
            if files <= listed + 3 {
                break;
            }
            ensure(round < 4, || format!("{files} files of {listed} segments"))?;
        }
        Ok(())
    }
}
