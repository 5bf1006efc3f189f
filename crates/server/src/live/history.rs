//! History reduced to a number of points: buckets with count, first, last, min, max and mean, so that a spike of one
//! sample shows in a plot of a month.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use strongback_store::{Bucket, Channel, ChannelIndex, Computed, Pieces, Scan, Stream, StreamId, Value, View};

use crate::live::cell_notes::CellNotes;
use crate::live::window::ChannelWindow;
use crate::process::readers::{Leave, ReadError};
use crate::text::json;

/// Max points that a series is reduced to.
pub const POINTS_MAX: usize = 20_000;

/// Min rows per point at which blocks that lie in one bucket are taken by their statistics. With fewer rows hardly
/// any block does, and reading all channels of a stream at once is cheaper.
const ROWS_PER_POINT_MIN: u64 = 2048;
/// Max rows, and max time, per request to find the finite extremes of buckets with infinite values, which block
/// statistics do not hold.
const BESIDE_ROWS_MAX: u64 = 4 << 20;
const BESIDE_TIME_MAX: Duration = Duration::from_millis(200);
/// Max rows decoded in addition to a run of pieces: those of the blocks at its two ends. Runs closer to one another
/// than this are read as one.
const SEAM_ROWS: u64 = 2 << 16;
/// Max rows of a run, unless it is one piece.
const RUN_ROWS: u64 = 1 << 19;

/// Channel over a time range.
#[derive(Debug)]
pub struct Series {
    /// Channel that was read.
    pub channel: Channel,
    /// Buckets by their start, nanoseconds since 1970 UTC, ascending; empty ones are left out.
    pub buckets: Vec<(i64, ChannelWindow)>,
}

impl Series {
    /// Returns the notes on its buckets.
    pub fn notes(&self) -> CellNotes {
        CellNotes::of(self.buckets.iter().map(|(_, window)| window))
    }

    /// Appends `[[t0,count,first,last,min,max,mean],…]`.
    pub fn write_buckets(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (i, (t0, window)) in self.buckets.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.push(b'[');
            json::push_big(out, t0);
            out.push(b',');
            window.write(out, self.channel.channel_type);
            out.push(b']');
        }
        out.push(b']');
    }
}

/// Summary of an interval, or of one sample.
#[derive(Debug)]
struct Piece {
    /// Start of the interval.
    time: i64,
    window: ChannelWindow,
    /// Times of the first and the last value.
    first_at: i64,
    last_at: i64,
}

impl Piece {
    fn of(start: i64, time: i64, value: Value<'_>) -> Piece {
        let mut window = ChannelWindow::default();
        window.add(value);
        Piece { time: start, window, first_at: time, last_at: time }
    }

    /// Adds a value. Of equal times, the one added later counts as later.
    fn add(&mut self, time: i64, value: Value<'_>) {
        self.window.add_at(value, time < self.first_at, time >= self.last_at);
        self.first_at = self.first_at.min(time);
        self.last_at = self.last_at.max(time);
    }

    /// Adds a piece that is not earlier.
    fn append(&mut self, later: &Piece) {
        self.window.append(&later.window);
        self.last_at = later.last_at;
    }
}

/// Reducer of one channel's samples: keeps them as they are while there are few, then puts them into buckets on a
/// grid. Up to as many buckets again hold samples after the grid, since frames may be stamped arbitrarily far ahead
/// of the clock. Those are only as wide as needed: the grid's width times a power of two, whatever the order of the
/// samples.
#[derive(Debug)]
struct Reducer {
    from: i64,
    width: i64,
    points: usize,
    on_grid: bool,
    /// Start and width of the buckets after the grid.
    beyond: (i64, u64),
    /// Pieces in ascending order of time. Rows may have been stored newest first.
    pieces: VecDeque<Piece>,
}

impl Reducer {
    fn new(time: &Range<i64>, points: usize) -> Self {
        let points = points.clamp(1, POINTS_MAX);
        let span = time.end.saturating_sub(time.start).max(1);
        // Rounded up, so that a range never needs more buckets than points.
        let width = (span / points as i64 + i64::from(span % points as i64 != 0)).max(1);
        // Start of the first bucket after the grid.
        let length = (i128::from(time.end) - i128::from(time.start)).max(1) as u128;
        let length = length.div_ceil(width as u128) * width as u128;
        let beyond = i64::try_from(i128::from(time.start) + length as i128).unwrap_or(i64::MAX);
        let pieces = VecDeque::new();
        Reducer { from: time.start, width, points, on_grid: false, beyond: (beyond, width as u64), pieces }
    }

    fn start(&self, time: i64) -> i64 {
        let (beyond, width) = self.beyond;
        if time >= beyond {
            return beyond.saturating_add_unsigned(time.abs_diff(beyond) / width * width);
        }
        let index = time.saturating_sub(self.from).div_euclid(self.width);
        self.from.saturating_add(index.saturating_mul(self.width))
    }

    fn add(&mut self, time: i64, value: Value<'_>) {
        let t0 = if self.on_grid { self.start(time) } else { time };
        match self.pieces.back_mut() {
            Some(last) if last.time == t0 && self.on_grid => return last.add(time, value),
            Some(last) if last.time > t0 => {
                // A late frame, which is rare.
                let at = self.pieces.partition_point(|piece| piece.time <= t0);
                match at.checked_sub(1).map(|i| &mut self.pieces[i]) {
                    Some(piece) if piece.time == t0 && self.on_grid => piece.add(time, value),
                    _ => self.pieces.insert(at, Piece::of(t0, time, value)),
                }
            }
            _ => self.pieces.push_back(Piece::of(t0, time, value)),
        }
        if self.pieces.len() > self.points {
            self.reduce();
        }
    }

    /// Puts samples on the grid, and widens the buckets after it as far as needed.
    fn reduce(&mut self) {
        if !std::mem::replace(&mut self.on_grid, true) {
            self.put_in_buckets(0);
        }
        let within = self.pieces.partition_point(|piece| piece.time < self.beyond.0);
        while self.pieces.len() - within > self.points {
            self.beyond.1 = self.beyond.1.saturating_mul(2);
            self.put_in_buckets(within);
        }
    }

    /// Puts the pieces from index `from` on into their buckets.
    fn put_in_buckets(&mut self, from: usize) {
        for piece in self.pieces.split_off(from) {
            let t0 = self.start(piece.time);
            match self.pieces.back_mut() {
                Some(last) if last.time == t0 => last.append(&piece),
                _ => self.pieces.push_back(Piece { time: t0, ..piece }),
            }
        }
    }

    /// Returns the starts and windows of the buckets.
    fn buckets(self) -> Vec<(i64, ChannelWindow)> {
        self.pieces.into_iter().map(|piece| (piece.time, piece.window)).collect()
    }
}

/// Budget for reading the finite values of buckets with infinite ones, shared by all streams and channels of a
/// request. Once it is spent, finite extremes stay unknown.
#[derive(Debug)]
pub struct Beside(Mutex<HistoryLeft>);

#[derive(Clone, Copy, Debug)]
struct HistoryLeft {
    /// Rows to decode.
    rows: u64,
    /// Time to spend.
    time: Duration,
}

impl Default for Beside {
    fn default() -> Self {
        Beside(Mutex::new(HistoryLeft { rows: BESIDE_ROWS_MAX, time: BESIDE_TIME_MAX }))
    }
}

impl HistoryLeft {
    /// Takes rows from the budget. If there are too few, takes them all and returns false.
    fn take(&mut self, rows: u64) -> bool {
        let left = self.rows.checked_sub(rows);
        self.rows = left.unwrap_or(0);
        left.is_some()
    }
}

/// Interval to read, and how far to reduce it.
#[derive(Clone, Debug)]
pub struct Extent {
    /// `time` of the samples, nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Range that `points` divide. Samples after it get buckets of the same width while they are few, then wider
    /// ones.
    pub grid: Range<i64>,
    /// End of the rows to read, exclusive.
    pub end_row: u64,
    /// Max buckets over the grid, and max after it.
    pub points: usize,
    /// Time limit of the read.
    pub leave: Leave,
    /// Budget for finite values of buckets with infinite ones.
    pub beside: Arc<Beside>,
}

impl Extent {
    /// Returns the max buckets of a channel.
    pub fn buckets_max(&self) -> usize {
        if self.time.end > self.grid.end { 2 * self.points } else { self.points }
    }
}

/// Reads channels of one stream.
///
/// # Errors
/// Returns an error if the scan ends early.
pub fn read(view: &View, stream: &Stream, columns: &[ChannelIndex], extent: &Extent) -> Result<Vec<Series>, ReadError> {
    let points = extent.points.clamp(1, POINTS_MAX) as u64;
    let is_long = rows_about(view, stream.id, &extent.grid) / points >= ROWS_PER_POINT_MIN;
    read_so(view, stream, columns, extent, is_long)
}

/// Reads channels of one stream; if `is_long`, by the statistics of its blocks where possible.
fn read_so(
    view: &View,
    stream: &Stream,
    columns: &[ChannelIndex],
    extent: &Extent,
    is_long: bool,
) -> Result<Vec<Series>, ReadError> {
    let by_statistics = is_long && extent.end_row >= view.next_row(stream.id) && extent.time.start == extent.grid.start;
    let mut reducers: Vec<Reducer> = columns.iter().map(|_| Reducer::new(&extent.grid, extent.points)).collect();
    // Scan what block statistics cannot tell: text, rows up to one within the view, and samples off the grid.
    let (mut filled, mut scanned) = (Vec::new(), Vec::new());
    for (at, column) in columns.iter().enumerate() {
        extent.leave.check()?;
        let told = by_statistics && fill(view, stream, *column, extent, &mut reducers[at])?;
        if told { &mut filled } else { &mut scanned }.push(at);
    }
    let beyond = extent.grid.end..extent.time.end;
    for (time, places) in [(&beyond, &filled), (&extent.time, &scanned)] {
        scan(view, stream, columns, (time, extent), &mut reducers, places)?;
    }
    let series = |(index, reducer): (&ChannelIndex, Reducer)| Series {
        channel: stream.layout.channel(*index).clone(),
        buckets: reducer.buckets(),
    };
    Ok(columns.iter().zip(reducers).map(series).collect())
}

/// Estimates the rows of a stream within a time range, as if they arrived evenly.
fn rows_about(view: &View, stream: StreamId, time: &Range<i64>) -> u64 {
    let Some((first, last)) = view.time_range(stream) else { return 0 };
    let within = time.end.min(last.saturating_add(1)).saturating_sub(time.start.max(first)).max(0);
    let share = within as f64 / last.saturating_sub(first).max(1) as f64;
    (view.next_row(stream) as f64 * share) as u64
}

/// Fills a channel's reducer over the grid from block statistics. Returns false if they do not suffice. Finite
/// extremes that they lack are read within the budget.
fn fill(
    view: &View,
    stream: &Stream,
    column: ChannelIndex,
    extent: &Extent,
    reducer: &mut Reducer,
) -> Result<bool, ReadError> {
    let span_fits = extent.grid.end.checked_sub(extent.grid.start).is_some();
    if !span_fits || !stream.layout.channel(column).channel_type.is_scalar() {
        return Ok(false);
    }
    let time = extent.grid.start..extent.grid.end.min(extent.time.end);
    let grid = Pieces { time, width_ns: reducer.width as u64, plain_max: reducer.points, computed: Computed::ALL };
    let found = view.reduce_to(stream.id, column, &grid)?;
    // Samples added later are after the grid.
    let piece = |bucket: &Bucket| {
        let window = ChannelWindow::of(bucket)?;
        Some(Piece { time: bucket.time, window, first_at: bucket.time, last_at: bucket.time })
    };
    let Some(pieces) = found.buckets.iter().map(piece).collect() else { return Ok(false) };
    (reducer.on_grid, reducer.pieces) = (!found.plain, pieces);
    learn(view, Scan::all(stream.id, vec![column]), &grid, extent, reducer.pieces.make_contiguous())?;
    Ok(true)
}

/// Reads the finite extremes of pieces that also have infinite values, run by run while the budget lasts.
fn learn(view: &View, scan: Scan, grid: &Pieces, extent: &Extent, pieces: &mut [Piece]) -> Result<(), ReadError> {
    let mut left = extent.beside.0.lock();
    let until = Instant::now() + left.time;
    let mut from = 0;
    while let Some(run) = next_run(pieces, from) {
        if Instant::now() >= until || !left.take(SEAM_ROWS) {
            break;
        }
        from = run.end;
        let pieces = &mut pieces[run];
        if let Some(windows) = gather(view, &scan, grid, (extent, until), pieces, &mut left)? {
            pieces.iter_mut().zip(&windows).for_each(|(piece, all)| piece.window.learn_finite_range(all));
        }
    }
    left.time = until.saturating_duration_since(Instant::now());
    Ok(())
}

/// Returns the next run of pieces with unknown finite extremes, including pieces between them that have few rows.
fn next_run(pieces: &[Piece], from: usize) -> Option<Range<usize>> {
    let lacks = |piece: &Piece| piece.window.lacks_finite_range();
    let start = from + pieces[from..].iter().position(lacks)?;
    let (mut end, mut rows, mut between) = (start + 1, pieces[start].window.count(), 0);
    for (at, piece) in pieces.iter().enumerate().skip(start + 1) {
        between += piece.window.count();
        if rows + between > RUN_ROWS || between > SEAM_ROWS && !lacks(piece) {
            break;
        }
        if lacks(piece) {
            (end, rows, between) = (at + 1, rows + between, 0);
        }
    }
    Some(start..end)
}

/// Gathers the values of a channel into a window for each of these consecutive pieces. Returns `None` if the budget
/// of rows or time is spent.
fn gather(
    view: &View,
    scan: &Scan,
    grid: &Pieces,
    (extent, until): (&Extent, Instant),
    pieces: &[Piece],
    left: &mut HistoryLeft,
) -> Result<Option<Vec<ChannelWindow>>, ReadError> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
    let time = first.time..last.time.saturating_add_unsigned(grid.width_ns).min(grid.time.end);
    let mut windows = vec![ChannelWindow::default(); pieces.len()];
    for batch in view.scan(Scan { time, ..scan.clone() }) {
        extent.leave.check()?;
        let batch = batch?;
        if !left.take(batch.len() as u64) || Instant::now() >= until {
            return Ok(None);
        }
        let Some(column) = batch.columns.first() else { return Ok(None) };
        let mut at = 0;
        for (row, time) in batch.times().into_iter().enumerate() {
            let is_in = |at: usize| pieces[at].time <= time && time.abs_diff(pieces[at].time) < grid.width_ns;
            if !is_in(at) {
                at = pieces.partition_point(|piece| piece.time <= time).saturating_sub(1);
            }
            if let (true, Ok(value)) = (is_in(at), column.cell(row)) {
                windows[at].add(value);
            }
        }
    }
    Ok(Some(windows))
}

/// Adds the samples in a time range, below the end row, to the reducers of the columns at `places`.
fn scan(
    view: &View,
    stream: &Stream,
    columns: &[ChannelIndex],
    (time, extent): (&Range<i64>, &Extent),
    reducers: &mut [Reducer],
    places: &[usize],
) -> Result<(), ReadError> {
    if places.is_empty() || time.is_empty() {
        return Ok(());
    }
    let columns = places.iter().map(|at| columns[*at]).collect();
    let scan = Scan { time: time.clone(), rows: 0..extent.end_row, ..Scan::all(stream.id, columns) };
    for batch in view.scan(scan) {
        extent.leave.check()?;
        let batch = batch?;
        let times = batch.times();
        for (column, at) in batch.columns.iter().zip(places) {
            for (row, time) in times.iter().enumerate() {
                if let Ok(value) = column.cell(row) {
                    reducers[*at].add(*time, value);
                }
            }
        }
    }
    Ok(())
}

/// Lookup of the times of missing frames of a stream, which plots leave open.
pub type GapSpans<'a> = dyn Fn(StreamId, &Range<i64>) -> Vec<(i64, i64)> + 'a;

/// Minimum of spans that [`joined`] leaves.
const SPANS_MIN: usize = 16;
/// Max bytes of a span in JSON.
pub const SPAN_BYTES: usize = 48;

/// Returns the max number of spans of missing frames in a history reduced to `points` buckets.
pub fn spans_max(points: usize) -> usize {
    points.max(SPANS_MIN)
}

/// Joins spans until there are at most [`spans_max`] of them, those closest together first. A stream that lost frames
/// for hours can have 100,000, and a history repeats them for each channel.
pub fn joined(mut spans: Vec<(i64, i64)>, points: usize) -> Vec<(i64, i64)> {
    let most = spans_max(points);
    if spans.len() <= most {
        return spans;
    }
    spans.sort_unstable();
    let between = |at: usize| spans[at].0.saturating_sub(spans[at - 1].1);
    let mut places: Vec<usize> = (1..spans.len()).collect();
    places.select_nth_unstable_by_key(most - 1, |at| std::cmp::Reverse(between(*at)));
    let mut begins = places[..most - 1].to_vec();
    begins.sort_unstable();
    let ends = begins.iter().copied().chain([spans.len()]);
    let begins = [0].into_iter().chain(begins.iter().copied());
    let join = |(begin, end): (usize, usize)| {
        let last = spans[begin..end].iter().map(|span| span.1).max();
        (spans[begin].0, last.unwrap_or(spans[begin].1))
    };
    begins.zip(ends).map(join).collect()
}

/// Appends `[[from,to],…]`.
pub fn write_gaps(out: &mut Vec<u8>, gaps: &[(i64, i64)]) {
    out.push(b'[');
    for (i, (from, to)) in gaps.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'[');
        json::push_big(out, from);
        out.push(b',');
        json::push_big(out, to);
        out.push(b']');
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, OwnedValue, Store, StoreOptions, StreamKey,
        StreamSpec, Value,
    };

    #[test]
    fn spans_that_are_too_many_are_joined_where_they_are_closest() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let mut at = 0;
            let spans: Vec<(i64, i64)> = (0..random.usize(1..300))
                .map(|_| {
                    let from = at + random.i64(1..1_000);
                    at = from + random.i64(0..50);
                    (from, at)
                })
                .collect();
            let points = random.usize(1..60);
            let found = joined(spans.clone(), points);
            assert_eq!(found.len(), spans.len().min(spans_max(points)));
            assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0));
            assert!(spans.iter().all(|(from, to)| found.iter().any(|(a, b)| a <= from && to <= b)));
            // What was joined lies closer together than what is apart.
            let apart = found.windows(2).map(|pair| pair[1].0 - pair[0].1).min().unwrap_or(i64::MAX);
            let inside = |pair: &[(i64, i64)]| found.iter().any(|(a, b)| *a <= pair[0].0 && pair[1].1 <= *b);
            let within = spans.windows(2).filter(|pair| inside(pair)).map(|pair| pair[1].0 - pair[0].1).max();
            assert!(within.unwrap_or(0) <= apart, "{within:?} {apart}");
        }
    }

    fn reduced(points: usize, samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
        let mut reducer = Reducer::new(&(0..100), points);
        for (t, v) in samples {
            reducer.add(*t, Value::F64(*v));
        }
        reducer.buckets().iter().map(|(t, w)| (*t, w.count())).collect()
    }

    #[test]
    fn few_samples_stay_what_they_are() {
        assert_eq!(reduced(4, &[(3, 1.0), (7, 2.0), (7, 3.0)]), [(3, 1), (7, 1), (7, 1)]);
    }

    #[test]
    fn many_samples_fall_into_buckets_and_none_is_lost() {
        let samples: Vec<(i64, f64)> = (0..100).map(|t| (t, t as f64)).collect();
        assert_eq!(reduced(4, &samples), [(0, 25), (25, 25), (50, 25), (75, 25)]);
        assert_eq!(reduced(3, &samples).iter().map(|b| b.1).sum::<u64>(), 100);
        let late = [(90, 1.0), (10, 2.0), (50, 3.0), (51, 3.0), (11, 1.0), (95, 1.0)];
        assert_eq!(reduced(4, &late), [(0, 2), (50, 2), (75, 2)]);
    }

    /// First and last follow time, whatever the order of arrival; equal times follow the order of arrival.
    #[test]
    fn first_and_last_follow_time_and_not_arrival() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..300 {
            let points = random.usize(1..12);
            let samples: Vec<(i64, f64)> = (0..random.usize(1..60))
                .map(|n| (random.i64(0..if round % 2 == 0 { 100 } else { 12 }), n as f64))
                .collect();
            for text in [false, true] {
                let mut reducer = Reducer::new(&(0..100), points);
                let words: Vec<String> = samples.iter().map(|(_, v)| v.to_string()).collect();
                for ((time, number), word) in samples.iter().zip(&words) {
                    reducer.add(*time, if text { Value::String(word) } else { Value::F64(*number) });
                }
                let (width, on_grid) = (reducer.width, reducer.on_grid);
                let mut sorted = samples.clone();
                sorted.sort_by_key(|(time, _)| *time);
                for (t0, window) in reducer.buckets() {
                    let end = if on_grid { t0 + width } else { t0 + 1 };
                    let inside: Vec<f64> =
                        sorted.iter().filter(|(time, _)| (t0..end).contains(time)).map(|(_, value)| *value).collect();
                    if !on_grid {
                        assert_eq!(window.count(), 1);
                        continue;
                    }
                    assert_eq!(window.count(), inside.len() as u64, "round {round}");
                    let (first, last) = (inside[0], inside[inside.len() - 1]);
                    if text {
                        let expected = (first.to_string(), last.to_string());
                        assert_eq!(window.texts(), Some((&*expected.0, &*expected.1)), "round {round}");
                    } else {
                        let numbers = window.numbers(ChannelType::F64);
                        let found = (f64::from_bits(numbers.first), f64::from_bits(numbers.last));
                        assert_eq!(found, (first, last), "round {round}");
                    }
                }
            }
        }
    }

    /// Holds however far samples are stamped ahead of the clock, and in any order of arrival.
    #[test]
    fn samples_behind_the_grid_have_a_bounded_number_of_exact_buckets() {
        let mut random = fastrand::Rng::with_seed(2);
        for round in 0..300 {
            let points = random.usize(1..9);
            let end = [101, 120, 4000, 1 << 40, i64::MAX][round % 5];
            let mut samples: Vec<(i64, f64)> =
                (0..random.usize(1..400)).map(|n| (random.i64(0..end), n as f64)).collect();
            if round % 2 == 0 {
                samples.sort_by_key(|(time, _)| *time);
            }
            let mut reducer = Reducer::new(&(0..100), points);
            for (time, value) in &samples {
                reducer.add(*time, Value::F64(*value));
                assert!(reducer.pieces.len() <= 2 * points, "round {round}: {}", reducer.pieces.len());
            }
            if !reducer.on_grid {
                continue;
            }
            let (width, (beyond, width_beyond)) = (reducer.width, reducer.beyond);
            samples.sort_by_key(|(time, _)| *time);
            let mut seen = 0;
            for (t0, window) in reducer.buckets() {
                let end = i128::from(t0) + if t0 < beyond { i128::from(width) } else { i128::from(width_beyond) };
                let is_inside = |time: i64| time >= t0 && i128::from(time) < end;
                let inside: Vec<f64> = samples.iter().filter(|(time, _)| is_inside(*time)).map(|s| s.1).collect();
                seen += inside.len();
                let numbers = window.numbers(ChannelType::F64);
                let range = numbers.range.map(|(min, max)| (f64::from_bits(min), f64::from_bits(max)));
                let (min, max) =
                    (inside.iter().copied().fold(f64::MAX, f64::min), inside.iter().copied().fold(0.0, f64::max));
                assert_eq!((window.count(), range), (inside.len() as u64, Some((min, max))), "round {round}");
                let ends = (f64::from_bits(numbers.first), f64::from_bits(numbers.last));
                assert_eq!(ends, (inside[0], inside[inside.len() - 1]), "round {round}");
            }
            assert_eq!(seen, samples.len(), "round {round}");
            // Buckets are no wider than needed.
            let behind = samples.iter().filter(|(time, _)| *time >= beyond);
            let narrower: std::collections::BTreeSet<u64> =
                behind.map(|(time, _)| time.abs_diff(beyond) / (width_beyond / 2).max(1)).collect();
            assert!(width_beyond == width as u64 || narrower.len() > points, "round {round}: {width_beyond}");
        }
    }

    const T0: i64 = 1_790_000_000_000_000_000;

    /// Returns a store with 40,000 rows: numbers, numbers with NaN and infinity, rare numbers and text, mostly in
    /// sealed blocks.
    fn store() -> (Store, Arc<Stream>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let options =
            StoreOptions { log_bytes: 1 << 20, segment_bytes: 1 << 20, open_bytes: 64 << 10, ..Default::default() };
        let store = Store::open(dir.path(), options, T0).unwrap();
        let channel = |(name, kind)| ChannelSpec::new(name, kind);
        let spec = StreamSpec {
            key: StreamKey::new("t", []),
            source: "test".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: [
                ("steady", ChannelType::F64),
                ("broken", ChannelType::F32),
                ("rare", ChannelType::U16),
                ("text", ChannelType::String),
            ]
            .map(channel)
            .to_vec(),
        };
        let stream = store.resolve(&spec, T0).unwrap().0;
        for block in 0..80_i64 {
            let mut batch = FrameBatch::new();
            for row in block * 500..(block + 1) * 500 {
                let time = T0 + row * 1_000_000 + row % 7;
                batch.begin(FrameHead { stream: stream.id, receive_time: time, source_time: None, sequence: None });
                let spike = if row == 12_345 { 99.0 } else { 0.0 };
                batch.push(ChannelIndex(0), Value::F64((row as f64 / 300.0).sin() + spike));
                let broken = [f32::NAN, f32::INFINITY, row as f32][(row % 997).min(2) as usize];
                batch.push(ChannelIndex(1), Value::F32(broken));
                if row % 5_000 == 0 {
                    batch.push(ChannelIndex(2), Value::U16(row as u16));
                }
                batch.push(ChannelIndex(3), Value::String(if row % 2 == 0 { "even" } else { "odd" }));
                batch.end();
            }
            let now = T0 + (block + 1) * 500_000_000;
            assert!(store.append(&batch, now).outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. })));
            store.commit(now).unwrap();
            store.maintain(now).unwrap();
        }
        (store, stream, dir)
    }

    fn notes(series: &[Series]) -> Vec<CellNotes> {
        series.iter().map(Series::notes).collect()
    }

    /// Returns the buckets as JSON, with a mean of twelve digits.
    fn told(series: &[Series]) -> Vec<Vec<serde_json::Value>> {
        let of = |series: &Series| {
            let mut out = Vec::new();
            series.write_buckets(&mut out);
            let mut buckets: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
            for bucket in &mut buckets {
                if let Some(mean) = bucket[6].as_f64() {
                    bucket[6] = format!("{mean:.11e}").into();
                }
            }
            buckets
        };
        series.iter().map(of).collect()
    }

    #[test]
    fn statistics_of_blocks_say_what_a_scan_says() {
        let (store, stream, _dir) = store();
        let (view, columns) = (store.view(), [0, 1, 2, 3].map(ChannelIndex));
        let all = T0..T0 + 40_000_000_000;
        let (mut seen, mut seen_beside) = (0, 0);
        for (grid, points) in [
            (all.clone(), 4),
            (all.clone(), 1),
            (all.clone(), 333),
            (all.start - 7_000_000_000..all.end + 90_000_000_000, 16),
            (T0 + 3_333_333_333..T0 + 29_000_000_001, 3),
            (T0 + 5_000_000_000..T0 + 5_000_000_001, 9),
            (0..T0 + 20_000_000_000, 2),
            (T0..T0 + 1_000_000_000, 4),
            (T0..T0 + 1_000_000_000, 70),
            (i64::MIN..i64::MAX, 5),
        ] {
            for end in [grid.end, i64::MAX, T0 + 17_777_777_777] {
                for end_row in [u64::MAX, 40_000, 31_111] {
                    let (leave, beside) = (Leave::unlimited(), beside(u64::MAX, 3_600));
                    let extent = Extent { time: grid.start..end, grid: grid.clone(), end_row, points, leave, beside };
                    let [long, short] =
                        [true, false].map(|is_long| read_so(&view, &stream, &columns, &extent, is_long).unwrap());
                    assert_eq!(notes(&long), notes(&short), "{extent:?}");
                    seen_beside += notes(&long).iter().map(|notes| notes.finite.len()).sum::<usize>();
                    let [long, short] = [told(&long), told(&short)];
                    for (channel, (long, short)) in long.iter().zip(&short).enumerate() {
                        assert_eq!(long, short, "channel {channel} of {extent:?}");
                        assert!(long.len() <= extent.buckets_max(), "channel {channel} of {extent:?}");
                    }
                    seen += long.iter().map(Vec::len).sum::<usize>();
                }
            }
        }
        assert!(seen > 1_000 && seen_beside > 100, "{seen}, {seen_beside}");
        let (leave, beside) = (Leave::unlimited(), Arc::default());
        let extent = Extent { time: all.clone(), grid: all, end_row: u64::MAX, points: 4, leave, beside };
        let spike = &told(&read_so(&view, &stream, &columns, &extent, true).unwrap())[0][1];
        assert!(spike[5].as_f64().unwrap() > 98.0, "{spike}");
    }

    /// Returns a budget of this many rows and seconds.
    fn beside(rows: u64, seconds: u64) -> Arc<Beside> {
        Arc::new(Beside(Mutex::new(HistoryLeft { rows, time: Duration::from_secs(seconds) })))
    }

    #[test]
    fn no_more_is_read_beside_infinite_values_than_may_be_over_a_request() {
        let (store, stream, _dir) = store();
        let (view, broken) = (store.view(), ChannelIndex(1));
        let grid = T0..T0 + 40_000_000_000;
        let known = |extent: &Extent| {
            let mut reducer = Reducer::new(&extent.grid, extent.points);
            assert!(fill(&view, &stream, broken, extent, &mut reducer).unwrap());
            reducer.buckets().iter().filter(|(_, window)| window.finite_range().is_some()).count()
        };
        let extent = |beside: Arc<Beside>, leave: Leave| Extent {
            time: T0..i64::MAX,
            grid: grid.clone(),
            end_row: u64::MAX,
            points: 4,
            leave,
            beside,
        };
        let unlimited = Leave::unlimited;
        // Enough to read everything once, with the blocks at its ends; later reads in the same request get the rest.
        let enough = extent(beside(SEAM_ROWS + 60_000, 3_600), unlimited());
        assert_eq!(known(&enough), 4);
        assert_eq!(enough.beside.0.lock().rows, 20_000);
        assert_eq!(known(&enough), 0);
        assert_eq!(enough.beside.0.lock().rows, 0);
        // Nothing more is read then, not even to find that the budget is too small.
        let over = extent(enough.beside.clone(), Leave::within(Duration::ZERO));
        assert_eq!(known(&over), 0);
        assert_eq!(known(&extent(beside(SEAM_ROWS + 39_000, 3_600), unlimited())), 0);
        assert_eq!(known(&extent(beside(u64::MAX, 0), unlimited())), 0);
    }

    #[test]
    fn pieces_that_are_near_one_another_are_read_as_one_run() {
        let piece = |(lacks, rows): (bool, u64)| {
            let bucket = Bucket {
                time: 0,
                count: rows,
                first: OwnedValue::Plain(Value::F64(1.0)),
                last: OwnedValue::Plain(Value::F64(1.0)),
                min: Some(Value::F64(1.0)),
                max: Some(Value::F64(if lacks { f64::INFINITY } else { 2.0 })),
                finite: rows,
                mean: Some(1.0),
            };
            Piece { time: 0, window: ChannelWindow::of(&bucket).unwrap(), first_at: 0, last_at: 0 }
        };
        let runs = |pieces: &[(bool, u64)]| {
            let pieces: Vec<Piece> = pieces.iter().map(|of| piece(*of)).collect();
            let (mut runs, mut from) = (Vec::new(), 0);
            while let Some(run) = next_run(&pieces, from) {
                from = run.end;
                runs.push((run.start, run.end));
            }
            runs
        };
        assert!(runs(&[]).is_empty() && runs(&[(false, 9), (false, 9)]).is_empty());
        assert_eq!(runs(&[(false, 9), (true, 9), (false, SEAM_ROWS), (true, 9), (false, 9)]), [(1, 4)]);
        assert_eq!(runs(&[(true, 9), (false, SEAM_ROWS + 1), (true, 9)]), [(0, 1), (2, 3)]);
        // A single piece may have any size; a run of several may not.
        assert_eq!(runs(&[(true, 2 * RUN_ROWS), (true, 9), (true, RUN_ROWS - 9), (true, 1)]), [(0, 1), (1, 3), (3, 4)]);
    }

    #[test]
    fn a_spike_is_the_maximum_of_its_bucket() {
        let mut reducer = Reducer::new(&(0..1000), 2);
        for t in 0..1000 {
            reducer.add(t, Value::F64(if t == 700 { 99.0 } else { 1.0 }));
        }
        let mut out = Vec::new();
        reducer.buckets()[1].1.write(&mut out, ChannelType::F64);
        assert_eq!(String::from_utf8(out).unwrap(), "500,1.0,1.0,1.0,99.0,1.196");
    }
}
