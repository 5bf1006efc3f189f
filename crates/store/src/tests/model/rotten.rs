//! A store that goes on after bits of it flipped: frames come in, the power goes, and what could be read, or was told to
//! be lost, stays so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::{Checked, Model, ModelStream, ensure, open_on};
use crate::*;

/// What can be read of a stream.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) rows: BTreeSet<u64>,
    /// Number of blocks that cannot be read.
    pub(super) unreadable: usize,
}

impl Known {
    /// Reads what can be read: nothing that was not written, and no row twice.
    pub(super) fn read(stream: &ModelStream, view: &View, scan: Scan) -> Result<Known, String> {
        let mut known = Known::default();
        for batch in view.scan(scan) {
            let Ok(batch) = batch else {
                known.unreadable += 1;
                continue;
            };
            for row in 0..batch.len() {
                let number = batch.rows[row];
                stream.check_row(&batch, row, number as usize)?;
                ensure(known.rows.insert(number), || format!("{}: row {number} twice", stream.spec.key))?;
            }
        }
        Ok(known)
    }
}

/// What `strongback.gaps` says of damage.
#[derive(Debug, Default)]
struct Told {
    /// First and last row that are lost, by stream.
    rows: BTreeMap<u32, Vec<(u64, u64)>>,
    /// Losses whose rows nobody knows: the end of the log, and segments.
    unnumbered: usize,
    /// Whether a part of the table itself cannot be read.
    unreadable: bool,
}

impl Told {
    fn read(store: &Store) -> Told {
        let mut told = Told::default();
        let view = store.view();
        let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned() else {
            return told;
        };
        let names = ["stream", "cause", "from_row", "to_row"];
        let columns = names.iter().map(|name| table.layout.index(name).expect("a column")).collect();
        for batch in view.scan(Scan::all(table.id, columns)) {
            let Ok(batch) = batch else {
                told.unreadable = true;
                continue;
            };
            for at in 0..batch.len() {
                let cell = |column: usize| batch.columns[column].cell(at);
                match (cell(0), cell(1), cell(2), cell(3)) {
                    (Ok(Value::U32(stream)), _, Ok(Value::U64(from)), Ok(Value::U64(to))) => {
                        told.rows.entry(stream).or_default().push((from, to));
                    }
                    (_, Ok(Value::String("damaged" | "torn")), ..) => told.unnumbered += 1,
                    _ => {}
                }
            }
        }
        told
    }

    fn of(&self, stream: StreamId, row: u64) -> bool {
        self.rows.get(&stream.0).is_some_and(|rows| rows.iter().any(|&(from, to)| (from..=to).contains(&row)))
    }
}

impl Model {
    /// Writes on after bits flipped and the store was opened, with the power going every now and then.
    pub(super) fn live_on(&mut self) -> Checked {
        let mut lost = self.lost()?;
        for _ in 0..self.random.usize(1..5) {
            self.forget_lost();
            let mut before = self.known()?;
            let found: Vec<u64> = self.streams.iter().map(|stream| self.store.committed_row(stream.id)).collect();
            self.disk.faults.writes_left.store(self.random.u64(1..60), Ordering::Relaxed);
            self.write_on()?;
            for ((stream, known), found) in self.streams.iter().zip(&mut before).zip(found) {
                known.rows.extend(found..stream.acknowledged as u64);
            }
            let mut is_open = false;
            while !is_open || self.random.bool() {
                self.disk = self.disk.after_cut();
                if self.random.bool() {
                    self.disk.faults.writes_left.store(self.random.u64(1..12), Ordering::Relaxed);
                }
                match open_on(&self.disk, self.fixed, self.now) {
                    Ok(store) => (self.store, is_open) = (store, true),
                    Err(_) if self.disk.is_cut() => is_open = false,
                    Err(error) => return Err(format!("cannot open: {error}")),
                }
            }
            self.disk.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
            self.compare(&before, &mut lost)?;
        }
        Ok(())
    }

    /// Acknowledged rows that an opening did not find, by stream. None if the log ends with a damaged commit, which may
    /// never have been complete; and of a fixed size those that are told: a small log that is full takes no row of
    /// `strongback.gaps` before its first commit.
    fn lost(&self) -> Result<BTreeMap<String, BTreeSet<u64>>, String> {
        if self.store.recovery().torn_bytes > 0 {
            return Ok(BTreeMap::new());
        }
        let told = Told::read(&self.store);
        let missing = self.streams.iter().zip(self.known()?).map(|(stream, known)| {
            let rows = stream.first as u64..stream.acknowledged as u64;
            let is_lost = |row: &u64| !known.rows.contains(row) && (!self.fixed || told.of(stream.id, *row));
            (stream.spec.key.to_string(), rows.filter(is_lost).collect())
        });
        Ok(missing.collect())
    }

    /// Appends, commits and maintains until the power goes, or for a while.
    fn write_on(&mut self) -> Checked {
        for _ in 0..self.random.usize(0..12) {
            let done = match self.random.u8(0..10) {
                0..4 => {
                    self.append();
                    Ok(())
                }
                4..8 => self.store.commit(self.now).map(|_| ()),
                8 => self.store.settle(self.now).map(|_| ()),
                _ => self.store.maintain(self.now).map(|_| ()),
            };
            for stream in &mut self.streams {
                stream.acknowledged = self.store.committed_row(stream.id) as usize;
            }
            if self.disk.is_cut() {
                return Ok(());
            }
            done.map_err(|refusal| format!("refused without a fault: {refusal}"))?;
        }
        Ok(())
    }

    /// Goes on with what an opening found: rows at the end that are lost give their numbers to the next.
    fn forget_lost(&mut self) {
        let catalog = self.store.catalog();
        self.streams.retain_mut(|stream| {
            let Some(have) = catalog.streams.iter().find(|have| have.key == stream.spec.key) else { return false };
            stream.id = have.id;
            let (wanted, found) = (&stream.spec.channels, &have.layout.channels);
            let is_defined = wanted.len() <= found.len()
                && wanted.iter().zip(found).all(|(a, b)| (&a.name, a.channel_type) == (&b.name, b.channel_type));
            let next = self.store.view().next_row(stream.id) as usize;
            stream.frames.truncate(next);
            stream.acknowledged = stream.frames.len();
            is_defined && have.clock == stream.spec.clock && stream.frames.len() == next
        });
    }

    /// What can be read of each stream.
    fn known(&self) -> Result<Vec<Known>, String> {
        let view = self.store.view();
        let known = |stream: &ModelStream| {
            let columns = (0..stream.spec.channels.len() as u16).map(ChannelIndex).collect();
            Known::read(stream, &view, Scan::all(stream.id, columns))
        };
        self.streams.iter().map(known).collect()
    }

    /// What was there `before` is there, or told to be lost, and so is what was `lost` by then.
    fn compare(&mut self, before: &[Known], lost: &mut BTreeMap<String, BTreeSet<u64>>) -> Checked {
        let after = self.known()?;
        let (told, report) = (Told::read(&self.store), self.store.recovery());
        let catalog = self.store.catalog();
        for ((stream, before), after) in self.streams.iter().zip(before).zip(after) {
            let key = stream.spec.key.to_string();
            ensure(catalog.streams.iter().any(|have| have.key == stream.spec.key), || format!("{key} is gone"))?;
            let oldest = if self.fixed { after.rows.first().copied().unwrap_or(u64::MAX) } else { 0 };
            let is_missing = |row: &u64| *row >= oldest && !after.rows.contains(row) && !told.of(stream.id, *row);
            let missing = |rows: &BTreeSet<u64>| rows.iter().copied().filter(is_missing).collect::<Vec<u64>>();
            let describe = |what: &str, missing: &[u64]| {
                let (count, first, last) = (missing.len(), missing.first(), missing.last());
                format!("{key}: {count} rows, {first:?} to {last:?}, {what}, and nobody tells: {told:?}; {report:?}")
            };
            let gone = missing(&before.rows);
            ensure(gone.is_empty() || told.unreadable, || describe("are gone", &gone))?;
            let Some(rows) = lost.get_mut(&key) else { continue };
            let untold = missing(rows);
            let is_told = told.unreadable || told.unnumbered > 0 || after.unreadable > 0 || report.lost_rows > 0;
            ensure(untold.is_empty() || is_told || !report.damaged.is_empty(), || describe("were lost", &untold))?;
            // Rows at the end that are lost give their numbers to the next.
            let next = self.store.view().next_row(stream.id);
            rows.retain(|row| *row < next);
        }
        Ok(())
    }
}
