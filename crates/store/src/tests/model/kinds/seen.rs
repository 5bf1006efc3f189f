//! What a naive receiver knows of a stream: every frame that is stored, and from that what is missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::sender::Sent;
use crate::*;

/// A number that a rule leaves open within bounds: whether frames before the first that came count as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Bounds {
    pub(super) fn holds(self, number: i64) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

/// One life of a sender, as far as it was received.
#[derive(Clone, Debug)]
struct Life {
    /// The number that came first, of those that are stored.
    first: i64,
    stored: BTreeSet<i64>,
}

/// A stream as it is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    lives: BTreeMap<u32, Life>,
    /// `time` of each frame that came: where a gap may begin or end.
    pub(super) times: HashSet<i64>,
    /// Frames in the order of their rows.
    pub(super) rows: Vec<(u32, i64)>,
}

impl Seen {
    pub(super) fn has(&self, sent: Sent) -> bool {
        self.lives.get(&sent.life).is_some_and(|life| life.stored.contains(&sent.number))
    }

    /// Takes in a frame that was stored; none: it already was.
    pub(super) fn store(&mut self, life: u32, number: i64) -> bool {
        self.rows.push((life, number));
        let of = self.lives.entry(life).or_insert_with(|| Life { first: number, stored: BTreeSet::new() });
        of.stored.insert(number)
    }

    /// Frames after this many rows were never stored.
    pub(super) fn truncate(&mut self, rows: usize) {
        let kept: Vec<(u32, i64)> = self.rows.drain(..).take(rows).collect();
        self.lives.clear();
        for (life, number) in kept {
            self.store(life, number);
        }
    }

    /// Whether a frame is so far behind the newest of its life that it need not be known any more.
    pub(super) fn is_beyond(&self, sent: Sent, window: i64) -> bool {
        let newest = self.lives.get(&sent.life).and_then(|life| life.stored.last());
        newest.is_some_and(|newest| newest - sent.number >= window)
    }

    /// Frames of all lives between others that are stored, and not stored.
    pub(super) fn missing(&self) -> Bounds {
        let mut sum = Bounds::default();
        for life in self.lives.values() {
            let (Some(lowest), Some(highest)) = (life.stored.first(), life.stored.last()) else { continue };
            sum.most += highest - lowest + 1 - life.stored.len() as i64;
            sum.least += highest - life.first + 1 - life.stored.range(life.first..).count() as i64;
        }
        sum
    }
}

/// What was counted since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) offered: u64,
    pub(super) stored: u64,
    pub(super) duplicate: u64,
    pub(super) rejected: u64,
    /// What was missing when it was opened.
    pub(super) missing_before: Bounds,
}

impl Counted {
    /// What is wrong with the counts of the store, if anything is.
    pub(super) fn compare(&self, counts: &Counts, seen: &Seen) -> Result<(), String> {
        let Counts { received, stored, duplicate, reduced, rejected, lost, filled, .. } = *counts;
        if received != stored + duplicate + reduced + rejected {
            return Err(format!("the counts do not add up: {counts:?}"));
        }
        if (received, stored, duplicate, rejected) != (self.offered, self.stored, self.duplicate, self.rejected) {
            return Err(format!("{counts:?} of {self:?}"));
        }
        let missing = seen.missing();
        let since = Bounds {
            least: missing.least - self.missing_before.most.max(self.missing_before.least),
            most: missing.most - self.missing_before.least,
        };
        if !since.holds(lost as i64 - filled as i64) {
            return Err(format!(
                "lost {lost} less filled {filled}, but {missing:?} are missing, {:?} of them before it was opened",
                self.missing_before
            ));
        }
        Ok(())
    }
}

/// What `strongback.gaps` says of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct GapRows {
    pub(super) rows: Vec<GapRow>,
}

#[derive(Clone, Debug)]
pub(super) struct GapRow {
    pub(super) id: u64,
    pub(super) cause: String,
    pub(super) time: (i64, i64),
    pub(super) count: u64,
}

impl GapRows {
    /// Of the streams of a store, by number.
    pub(super) fn read(store: &Store) -> Result<BTreeMap<u32, GapRows>, String> {
        let view = store.view();
        let mut found: BTreeMap<u32, GapRows> = BTreeMap::new();
        let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned() else {
            return Ok(found);
        };
        let names = ["id", "stream", "cause", "from_time", "to_time", "count"];
        let columns = names.iter().map(|name| table.layout.index(name).expect("a column")).collect();
        for batch in super::world::scan(&view, Scan::all(table.id, columns))? {
            for row in 0..batch.len() {
                let cell = |n: usize| batch.columns[n].cell(row).ok();
                let number = |n| match cell(n) {
                    Some(Value::U64(number)) => number,
                    other => panic!("{other:?}"),
                };
                let time = |n| match cell(n) {
                    Some(Value::I64(time)) => time,
                    other => panic!("{other:?}"),
                };
                let (Some(Value::U32(stream)), Some(Value::String(cause))) = (cell(1), cell(2)) else { continue };
                found.entry(stream).or_default().rows.push(GapRow {
                    id: number(0),
                    cause: cause.to_owned(),
                    time: (time(3), time(4)),
                    count: number(5),
                });
            }
        }
        Ok(found)
    }

    fn sum(&self, causes: &[&str]) -> i64 {
        self.rows.iter().filter(|row| causes.contains(&row.cause.as_str())).map(|row| row.count as i64).sum()
    }

    /// Frames that its rows call missing and that did not come late after all.
    pub(super) fn open(&self) -> i64 {
        self.sum(&["sequence", "not recorded"]) - self.sum(&["filled"])
    }
}
