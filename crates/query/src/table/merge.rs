//! Reads rows of many streams, one stream after another or merged by time, and no more of each stream than the rows
//! taken require.
//!
//! Rows with equal times are in the order of streams, then of rows, or all reversed. Late frames are in their place.
//!
//! When merging by time, each stream waits at a lower bound of its next time: at first that of all its rows as known to
//! the store, then that of its next row. A stream is read when no other one waits at an earlier time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{
    Batch, BlockCounts, Condition, OrderedBatches, OrderedRun, OrderedRuns, OrderedScan, Scan, Scanner, Stream,
    StreamId, View,
};

use crate::error::QueryError;
use crate::table::column::TableColumn;
use crate::table::condition::ColumnCondition;
use crate::table::{RowRanges, StoreTable};

/// Minimum rows of a stream read at a time if few are requested of many streams.
const BATCH_ROWS_MIN: usize = 64;

/// Target for the memory of the batches of merged streams, in bytes, where a cell counts as 16.
const BATCHES_BYTES: usize = 32 << 20;

/// Range of all rows.
const ALL_ROWS: Range<u64> = 0..u64::MAX;

/// Direction of the order by time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TimeOrder {
    Ascending,
    Descending,
}

impl TimeOrder {
    /// Returns a key that ascends in this order. The store accepts no time whose negation overflows.
    fn key(self, time: i64) -> i64 {
        match self {
            TimeOrder::Ascending => time,
            TimeOrder::Descending => time.saturating_neg(),
        }
    }
}

/// Parameters of a read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) columns: Arc<Vec<TableColumn>>,
    pub(crate) time: Range<i64>,
    /// Order; `None` to read one stream after another, with rows as stored.
    pub(crate) order: Option<TimeOrder>,
    /// Maximum rows that will be taken.
    pub(crate) most: usize,
    /// Conditions that rows are wanted for. Rows that fulfil none may be returned.
    pub(crate) conditions: Arc<[ColumnCondition]>,
}

/// Consecutive rows of a batch, in reading order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) rows: Range<usize>,
    /// Whether the last row comes first.
    pub(crate) descending: bool,
}

impl Run {
    /// Iterates over its rows.
    pub(crate) fn each(&self) -> impl Iterator<Item = usize> + use<> {
        let Range { start, end } = self.rows;
        let descending = self.descending;
        (start..end).map(move |row| if descending { end - 1 - (row - start) } else { row })
    }
}

/// A batch of a stream, with the positions of the result's columns in it.
#[derive(Clone, Copy)]
pub(crate) struct StoredRows<'a> {
    pub(crate) columns: &'a [TableColumn],
    pub(crate) stream: &'a Stream,
    pub(crate) batch: &'a Batch,
    /// For each column, the position of its channel in the batch, if the stream has it.
    pub(crate) positions: &'a [Option<usize>],
}

/// Preparation of each batch, done once.
pub(crate) trait Prepare {
    /// Prepared form of a batch.
    type Made;

    /// Prepares a batch.
    ///
    /// # Errors
    /// If the batch cannot be used.
    fn prepare(&self, from: StoredRows<'_>) -> Result<Self::Made, QueryError>;

    /// Counts what became of blocks.
    fn count(&self, _: BlockCounts) {}

    /// Returns the maximum rows of the batch to return at once, at least one.
    fn most(&self, made: &Self::Made) -> usize;
}

/// The next rows with their stream; `None` at the end.
pub(crate) type Found<'a, M> = Option<(&'a mut StreamHead<M>, Run)>;

/// The streams being read. `M` is what is made of their batches.
pub(crate) struct Merge<M> {
    view: View,
    wanted: Wanted,
    /// Rows of each stream, without an order; `None` for all.
    rows: Option<Arc<RowRanges>>,
    batch_rows: usize,
    heads: Vec<StreamHead<M>>,
    /// Stream being read, without an order.
    current: usize,
    /// Key at which each stream waits, with an order.
    waiting: BinaryHeap<Reverse<(i64, usize)>>,
}

impl<M> Merge<M> {
    pub(crate) fn new(view: View, mut streams: Vec<Arc<Stream>>, wanted: Wanted) -> Self {
        let mut waiting = BinaryHeap::new();
        if wanted.order == Some(TimeOrder::Descending) {
            // The reverse of the ascending order.
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
                // Twice the average rows per stream.
                let share = wanted.most.saturating_mul(2) / streams.len();
                let bounded = BATCHES_BYTES / 16 / streams.len() / wanted.columns.len().max(1);
                wanted.most.min(share.max(BATCH_ROWS_MIN)).min(bounded.max(1))
            }
            _ => wanted.most,
        };
        let heads = streams.into_iter().map(StreamHead::new).collect();
        Merge { view, wanted, rows: None, batch_rows, heads, current: 0, waiting }
    }

    /// Reads only some rows of each stream. Not for reads in order of time.
    pub(crate) fn within(self, rows: Option<Arc<RowRanges>>) -> Self {
        Merge { rows, ..self }
    }

    /// Returns the next rows, at least one and at most `most`, with their stream's prepared batch.
    ///
    /// # Errors
    /// If the store cannot be read, or `prepare` fails.
    pub(crate) fn next<P: Prepare<Made = M>>(&mut self, prepare: &P, most: usize) -> Result<Found<'_, M>, QueryError> {
        let share = (self.batch_rows, self.heads.len());
        let Some(order) = self.wanted.order else { return self.next_unordered(prepare, most) };
        while let Some(Reverse((_, at))) = self.waiting.pop() {
            let head = &mut self.heads[at];
            if head.rows.is_empty() {
                // Only now is its next row known. Another stream may precede it.
                if head.read(&self.view, (&self.wanted, ALL_ROWS), share, prepare)?
                    && let Some(time) = head.time_ahead(0)
                {
                    self.waiting.push(Reverse((order.key(time), at)));
                }
                continue;
            }
            // Rows with equal times are in stream order.
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
            // Borrowed again, because the loop needs the first borrow.
            return Ok(self.heads.get_mut(at).map(|head| (head, run)));
        }
        Ok(None)
    }

    fn next_unordered<P: Prepare<Made = M>>(&mut self, prepare: &P, most: usize) -> Result<Found<'_, M>, QueryError> {
        let share = (self.batch_rows, self.heads.len());
        while let Some(head) = self.heads.get_mut(self.current) {
            let rows = match &self.rows {
                Some(rows) => rows.get(&head.stream.id).cloned().unwrap_or(0..0),
                None => ALL_ROWS,
            };
            if !head.rows.is_empty() || head.read(&self.view, (&self.wanted, rows), share, prepare)? {
                let run = head.take(head.most(prepare).min(most).max(1));
                return Ok(self.heads.get_mut(self.current).map(|head| (head, run)));
            }
            *head = StreamHead::new(head.stream.clone());
            self.current += 1;
        }
        Ok(None)
    }
}

/// Read position in one stream.
pub(crate) struct StreamHead<M> {
    stream: Arc<Stream>,
    source: Option<RowSource>,
    positions: Vec<Option<usize>>,
    /// Batches last read, with their prepared forms.
    batches: Vec<(Arc<Batch>, M)>,
    /// Further runs in these batches, after `rows`.
    runs: VecDeque<OrderedRun>,
    /// Index of the current batch, whose remaining rows are `rows`.
    batch: usize,
    rows: Range<usize>,
    descending: bool,
}

/// Source of a stream's rows.
enum RowSource {
    /// Rows as stored, either without an order or because they ascend in time.
    Stored(Box<Scanner>),
    /// Rows sorted by time, because some are late.
    Ordered(Box<OrderedRuns>),
}

impl RowSource {
    /// Returns what became of the blocks so far, if that is known.
    fn block_counts(&self) -> BlockCounts {
        match self {
            RowSource::Stored(scanner) => scanner.block_counts(),
            RowSource::Ordered(_) => BlockCounts::default(),
        }
    }

    /// Reads the next batches. Returns `None` at the end.
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

    /// Advances to the next run. Returns `false` if there is none.
    fn read<P: Prepare<Made = M>>(
        &mut self,
        view: &View,
        (wanted, rows): (&Wanted, Range<u64>),
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
                    let known = view.catalog().stream(self.stream.id).map_or(0, |s| s.layout.channels.len());
                    let of_stream = |condition: &ColumnCondition| condition.of_stream(self.stream.id, known);
                    let conditions: Option<Vec<Condition>> = wanted.conditions.iter().map(of_stream).collect();
                    let Some(conditions) = conditions else { return Ok(false) };
                    none.insert(if wanted.order.is_none() || view.time_sorted(self.stream.id) {
                        let mut scan = Scan::all(self.stream.id, channels);
                        scan.time = wanted.time.clone();
                        scan.rows = rows;
                        scan.conditions = conditions;
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
            let before = source.block_counts();
            let found = source.read()?;
            prepare.count(source.block_counts().since(&before));
            let Some(found) = found else { return Ok(false) };
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

    /// Returns the time of the row `rows` positions ahead in the current run.
    fn time_ahead(&self, rows: usize) -> Option<i64> {
        let (batch, _) = self.batches.get(self.batch).filter(|_| rows < self.rows.len())?;
        Some(batch.time(if self.descending { self.rows.end - 1 - rows } else { self.rows.start + rows }))
    }

    /// Takes up to `most` rows of the current run.
    fn take(&mut self, most: usize) -> Run {
        let Range { start, end } = self.rows;
        let count = most.min(end - start);
        let rows = if self.descending { end - count..end } else { start..start + count };
        self.rows = if self.descending { start..end - count } else { start + count..end };
        Run { rows, descending: self.descending }
    }

    /// Returns the stream that is read.
    pub(crate) fn id(&self) -> StreamId {
        self.stream.id
    }

    /// Returns the prepared form of the current batch.
    pub(crate) fn made(&mut self) -> Option<&mut M> {
        self.batches.get_mut(self.batch).map(|(_, made)| made)
    }

    /// Returns the current batch with its prepared form.
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

    /// Creates a store of 100 streams with 300 frames each, one per second. The first 50 ended 100 s earlier.
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
        let (columns_wanted, time) = (columns.clone(), i64::MIN..i64::MAX);
        let wanted = Wanted { columns: columns_wanted, time, order: Some(order), most, conditions: Arc::default() };
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
