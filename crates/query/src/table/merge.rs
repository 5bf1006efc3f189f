//! Rows of many streams, one stream after the other or all in the order of time, reading no more of each stream
//! than is needed for the rows taken.
//!
//! Equal times come in the order of streams, then of rows, or all of it reversed; late frames come in their place.
//!
//! In the order of time each stream waits at the first time that it can have: at the start what the store knows
//! of all its rows, then that of its next row. It is read when no other stream waits at an earlier time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Batch, OrderedBatches, OrderedRun, OrderedRuns, OrderedScan, Scan, Scanner, Stream, View};

use crate::error::QueryError;
use crate::table::StoreTable;
use crate::table::column::TableColumn;

/// Fewest rows of a stream that are read at a time when few are wanted of many streams.
const BATCH_ROWS_MIN: usize = 64;

/// Memory that the batches of merged streams should not exceed, in bytes; a cell counts as 16.
const BATCHES_BYTES: usize = 32 << 20;

/// Which times come first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TimeOrder {
    Ascending,
    Descending,
}

impl TimeOrder {
    /// Ascends in this order. The store takes no time whose negation would overflow.
    fn key(self, time: i64) -> i64 {
        match self {
            TimeOrder::Ascending => time,
            TimeOrder::Descending => time.saturating_neg(),
        }
    }
}

/// What is read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) columns: Arc<Vec<TableColumn>>,
    pub(crate) time: Range<i64>,
    /// None: one stream after the other, rows as they were stored.
    pub(crate) order: Option<TimeOrder>,
    /// Most rows that will be taken.
    pub(crate) most: usize,
}

/// Consecutive rows of a batch, in the order that they come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) rows: Range<usize>,
    /// Last row first.
    pub(crate) descending: bool,
}

impl Run {
    /// Each of its rows.
    pub(crate) fn each(&self) -> impl Iterator<Item = usize> + use<> {
        let Range { start, end } = self.rows;
        let descending = self.descending;
        (start..end).map(move |row| if descending { end - 1 - (row - start) } else { row })
    }
}

/// A stream's batch and where the columns of the result lie in it.
#[derive(Clone, Copy)]
pub(crate) struct StoredRows<'a> {
    pub(crate) columns: &'a [TableColumn],
    pub(crate) stream: &'a Stream,
    pub(crate) batch: &'a Batch,
    /// For each column its channel in the batch, if the stream has it.
    pub(crate) positions: &'a [Option<usize>],
}

/// What a caller makes of each batch, once.
pub(crate) trait Prepare {
    /// What it makes.
    type Made;

    /// # Errors
    /// What keeps the batch from being used.
    fn prepare(&self, from: StoredRows<'_>) -> Result<Self::Made, QueryError>;

    /// Most rows of the batch that may come at once: at least one.
    fn most(&self, made: &Self::Made) -> usize;
}

/// The next rows, and the stream whose they are; none at the end.
pub(crate) type Found<'a, M> = Option<(&'a mut StreamHead<M>, Run)>;

/// The streams being read. `M` is what is made of their batches.
pub(crate) struct Merge<M> {
    view: View,
    wanted: Wanted,
    batch_rows: usize,
    heads: Vec<StreamHead<M>>,
    /// Without an order: the stream being read.
    current: usize,
    /// In an order: where each stream waits, by the order's key.
    waiting: BinaryHeap<Reverse<(i64, usize)>>,
}

impl<M> Merge<M> {
    pub(crate) fn new(view: View, mut streams: Vec<Arc<Stream>>, wanted: Wanted) -> Self {
        let mut waiting = BinaryHeap::new();
        if wanted.order == Some(TimeOrder::Descending) {
            // The order in which the oldest come first, reversed.
            streams.reverse();
        }
        if let Some(order) = wanted.order {
            for (at, stream) in streams.iter().enumerate() {
                let Some((first, last)) = view.time_range(stream.id) else { continue };
                let bound = match order {
                    TimeOrder::Ascending => first.max(wanted.time.start),
                    TimeOrder::Descending => last.min(wanted.time.end.saturating_sub(1)),
                };
                waiting.push(Reverse((order.key(bound), at)));
            }
        }
        let batch_rows = match wanted.order {
            Some(_) if streams.len() > 1 => {
                // Twice what each stream gives on average.
                let share = wanted.most.saturating_mul(2) / streams.len();
                let bounded = BATCHES_BYTES / 16 / streams.len() / wanted.columns.len().max(1);
                wanted.most.min(share.max(BATCH_ROWS_MIN)).min(bounded.max(1))
            }
            _ => wanted.most,
        };
        let heads = streams.into_iter().map(StreamHead::new).collect();
        Merge { view, wanted, batch_rows, heads, current: 0, waiting }
    }

    /// The next rows, at least one and at most `most`, and what was made of their batch.
    ///
    /// # Errors
    /// If the store cannot be read, or `prepare` says so.
    pub(crate) fn next<P: Prepare<Made = M>>(&mut self, prepare: &P, most: usize) -> Result<Found<'_, M>, QueryError> {
        let share = (self.batch_rows, self.heads.len());
        let Some(order) = self.wanted.order else { return self.next_unordered(prepare, most) };
        while let Some(Reverse((_, at))) = self.waiting.pop() {
            let head = &mut self.heads[at];
            if head.rows.is_empty() {
                // Only now is its next row known; another stream may come before it.
                if head.read(&self.view, &self.wanted, share, prepare)?
                    && let Some(time) = head.time_ahead(0)
                {
                    self.waiting.push(Reverse((order.key(time), at)));
                }
                continue;
            }
            // Equal times come in the order of their streams.
            let other = self.waiting.peek().map(|Reverse(key)| *key);
            let most = head.most(prepare).min(most).max(1);
            let mut rows = 1;
            while rows < most
                && let Some(time) = head.time_ahead(rows)
                && other.is_none_or(|other| (order.key(time), at) < other)
            {
                rows += 1;
            }
            let last = head.time_ahead(rows - 1).unwrap_or_default();
            let run = head.take(rows);
            let next = head.time_ahead(0).unwrap_or(last);
            self.waiting.push(Reverse((order.key(next), at)));
            // Borrowed again: the loop needs it for itself.
            return Ok(self.heads.get_mut(at).map(|head| (head, run)));
        }
        Ok(None)
    }

    fn next_unordered<P: Prepare<Made = M>>(&mut self, prepare: &P, most: usize) -> Result<Found<'_, M>, QueryError> {
        let share = (self.batch_rows, self.heads.len());
        while let Some(head) = self.heads.get_mut(self.current) {
            if !head.rows.is_empty() || head.read(&self.view, &self.wanted, share, prepare)? {
                let run = head.take(head.most(prepare).min(most).max(1));
                return Ok(self.heads.get_mut(self.current).map(|head| (head, run)));
            }
            *head = StreamHead::new(head.stream.clone());
            self.current += 1;
        }
        Ok(None)
    }
}

/// The place in one stream.
pub(crate) struct StreamHead<M> {
    stream: Arc<Stream>,
    source: Option<RowSource>,
    positions: Vec<Option<usize>>,
    /// What was read last, and what was made of it.
    batches: Vec<(Arc<Batch>, M)>,
    /// Rows of these batches that come after those of `rows`.
    runs: VecDeque<OrderedRun>,
    /// The batch whose rows come now, and those of them that are still to come.
    batch: usize,
    rows: Range<usize>,
    descending: bool,
}

/// Where a stream's rows come from.
enum RowSource {
    /// As they are stored: without an order, or because they ascend in time.
    Stored(Box<Scanner>),
    /// Some are late.
    Ordered(Box<OrderedRuns>),
}

impl RowSource {
    /// Reads on; none at the end.
    fn read(&mut self) -> Result<Option<OrderedBatches>, QueryError> {
        match self {
            RowSource::Ordered(runs) => Ok(runs.next().transpose()?),
            RowSource::Stored(scanner) => loop {
                let Some(batch) = scanner.next().transpose()? else { return Ok(None) };
                if !batch.is_empty() {
                    let run = OrderedRun { batch: 0, rows: 0..batch.len() };
                    return Ok(Some(OrderedBatches { batches: vec![Arc::new(batch)], runs: vec![run] }));
                }
            },
        }
    }
}

impl<M> StreamHead<M> {
    fn new(stream: Arc<Stream>) -> Self {
        StreamHead {
            stream,
            source: None,
            positions: Vec::new(),
            batches: Vec::new(),
            runs: VecDeque::new(),
            batch: 0,
            rows: 0..0,
            descending: false,
        }
    }

    /// Goes on to the next run; false if there is none.
    fn read<P: Prepare<Made = M>>(
        &mut self,
        view: &View,
        wanted: &Wanted,
        (batch_rows, streams): (usize, usize),
        prepare: &P,
    ) -> Result<bool, QueryError> {
        if self.runs.is_empty() {
            let source = match &mut self.source {
                Some(source) => source,
                none => {
                    self.descending = wanted.order == Some(TimeOrder::Descending);
                    let (channels, positions) = StoreTable::channels_of(&wanted.columns, &self.stream, view);
                    self.positions = positions;
                    none.insert(if wanted.order.is_none() || view.time_sorted(self.stream.id) {
                        let mut scan = Scan::all(self.stream.id, channels);
                        scan.time = wanted.time.clone();
                        scan.newest_first = self.descending;
                        scan.batch_rows = batch_rows;
                        RowSource::Stored(Box::new(view.scan(scan)))
                    } else {
                        let scan = OrderedScan {
                            time: wanted.time.clone(),
                            newest_first: self.descending,
                            memory_bytes: BATCHES_BYTES / streams,
                            ..OrderedScan::all(Vec::new())
                        };
                        RowSource::Ordered(Box::new(OrderedRuns::new(view, &scan, self.stream.id, &channels)))
                    })
                }
            };
            let Some(found) = source.read()? else { return Ok(false) };
            self.runs = found.runs.into();
            self.batches.clear();
            for batch in found.batches {
                let (stream, positions) = (&*self.stream, &self.positions[..]);
                let from = StoredRows { columns: &wanted.columns, stream, batch: &batch, positions };
                let made = prepare.prepare(from)?;
                self.batches.push((batch, made));
            }
        }
        let Some(run) = self.runs.pop_front() else { return Ok(false) };
        (self.batch, self.rows) = (run.batch, run.rows);
        Ok(true)
    }

    fn most<P: Prepare<Made = M>>(&self, prepare: &P) -> usize {
        self.batches.get(self.batch).map_or(1, |(_, made)| prepare.most(made))
    }

    /// The time of the row of the run that comes after that many others.
    fn time_ahead(&self, rows: usize) -> Option<i64> {
        let (batch, _) = self.batches.get(self.batch).filter(|_| rows < self.rows.len())?;
        Some(batch.time(if self.descending { self.rows.end - 1 - rows } else { self.rows.start + rows }))
    }

    /// Takes rows of the run, as many as it still has.
    fn take(&mut self, most: usize) -> Run {
        let Range { start, end } = self.rows;
        let count = most.min(end - start);
        let rows = if self.descending { end - count..end } else { start..start + count };
        self.rows = if self.descending { start..end - count } else { start + count..end };
        Run { rows, descending: self.descending }
    }

    /// What was made of its batch.
    pub(crate) fn made(&mut self) -> Option<&mut M> {
        self.batches.get_mut(self.batch).map(|(_, made)| made)
    }

    /// Its batch, and what was made of it.
    pub(crate) fn stored<'a>(&'a self, columns: &'a [TableColumn]) -> Option<(StoredRows<'a>, &'a M)> {
        let (batch, made) = self.batches.get(self.batch)?;
        Some((StoredRows { columns, stream: &self.stream, batch, positions: &self.positions }, made))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use strongback_store::{
        ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Store, StoreOptions, StreamKey, StreamSpec, Value,
    };

    use super::*;
    use crate::table::column::table_columns;

    #[derive(Default)]
    struct Counted {
        batches: Cell<usize>,
        rows: Cell<usize>,
    }

    impl Prepare for Counted {
        type Made = ();

        fn prepare(&self, from: StoredRows<'_>) -> Result<(), QueryError> {
            self.batches.set(self.batches.get() + 1);
            self.rows.set(self.rows.get() + from.batch.len());
            Ok(())
        }

        fn most(&self, (): &()) -> usize {
            usize::MAX
        }
    }

    /// 100 streams of 300 frames, one a second; the first 50 ended 100 s earlier.
    fn store(dir: &std::path::Path) -> (Store, Vec<Arc<Stream>>) {
        let store = Store::open(dir, StoreOptions { log_bytes: 8 << 20, ..StoreOptions::default() }, 0).unwrap();
        let mut streams = Vec::new();
        for n in 0..100i64 {
            let spec = StreamSpec {
                key: StreamKey::new("t", [("n".to_owned(), n.to_string())]),
                source: "test".into(),
                clock: Clock::Source,
                expected_period_ns: None,
                sequence_modulus: None,
                channels: vec![ChannelSpec::new("x", ChannelType::I64)],
            };
            let (stream, at) = store.resolve(&spec, 0).unwrap();
            let mut batch = FrameBatch::new();
            for row in 0..300i64 {
                let second = if n < 50 { row } else { row + 100 };
                let time = second * 1_000_000_000 + n;
                batch.begin(FrameHead {
                    stream: stream.id,
                    receive_time: time,
                    source_time: Some(time),
                    sequence: None,
                });
                batch.push(at[0], Value::I64(row));
                batch.end();
            }
            store.append(&batch, 400_000_000_000);
            streams.push(stream);
        }
        (store, streams)
    }

    fn read(store: &Store, streams: &[Arc<Stream>], order: TimeOrder, most: usize) -> (Vec<i64>, Counted) {
        let columns = Arc::new(table_columns(streams));
        let wanted = Wanted { columns: columns.clone(), time: i64::MIN..i64::MAX, order: Some(order), most };
        let mut merge = Merge::new(store.view(), streams.to_vec(), wanted);
        let (counted, mut times) = (Counted::default(), Vec::new());
        while times.len() < most
            && let Some((head, run)) = merge.next(&counted, most - times.len()).unwrap()
        {
            let (from, ()) = head.stored(&columns).unwrap();
            times.extend(run.each().map(|row| from.batch.time(row)));
        }
        (times, counted)
    }

    #[test]
    fn few_rows_of_those_streams_that_have_them_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (store, streams) = store(dir.path());
        let mut all: Vec<i64> = (0..100i64)
            .flat_map(|n| (0..300).map(move |row| (if n < 50 { row } else { row + 100 }) * 1_000_000_000 + n))
            .collect();
        all.sort_unstable();
        for most in [1, 10, 1_000, 40_000] {
            let (oldest, counted) = read(&store, &streams, TimeOrder::Ascending, most);
            assert_eq!(oldest, all[..most.min(all.len())]);
            let (newest, newest_counted) = read(&store, &streams, TimeOrder::Descending, most);
            assert!(newest.iter().eq(all.iter().rev().take(most)));
            if most <= 10 {
                // Half of the streams cannot have any of these rows.
                assert!(counted.batches.get() <= 50 && newest_counted.batches.get() <= 50);
                assert!(counted.rows.get() <= 50 * most && newest_counted.rows.get() <= 50 * most);
            }
        }
        // All of them, and no row twice.
        assert_eq!(read(&store, &streams, TimeOrder::Descending, usize::MAX).0.len(), all.len());
    }
}
