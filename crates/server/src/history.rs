//! History reduced to a number of points: buckets with count, first, last, min, max and mean, so that a spike
//! of one sample shows in a plot of a month.

use std::ops::Range;

use strongback_store::{Channel, ChannelIndex, Scan, ScanError, Stream, StreamId, View};

use crate::json;
use crate::live::window::ChannelWindow;

/// Most points a series is reduced to.
pub const POINTS_MAX: usize = 20_000;

/// One channel over a time range.
#[derive(Debug)]
pub struct Series {
    /// The channel.
    pub channel: Channel,
    /// Buckets by their start, nanoseconds since 1970 UTC, ascending; empty ones are left out.
    pub buckets: Vec<(i64, ChannelWindow)>,
}

impl Series {
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

/// Gathers samples of one channel: as they are while there are few, else on a grid.
#[derive(Debug)]
struct Reducer {
    from: i64,
    width: i64,
    points: usize,
    on_grid: bool,
    buckets: Vec<(i64, ChannelWindow)>,
}

impl Reducer {
    fn new(time: &Range<i64>, points: usize) -> Self {
        let points = points.clamp(1, POINTS_MAX);
        let span = time.end.saturating_sub(time.start).max(1);
        // Rounded up, so that a range never needs more buckets than points.
        let width = span / points as i64 + i64::from(span % points as i64 != 0);
        Reducer { from: time.start, width: width.max(1), points, on_grid: false, buckets: Vec::new() }
    }

    fn start(&self, time: i64) -> i64 {
        let index = time.saturating_sub(self.from).div_euclid(self.width);
        self.from.saturating_add(index.saturating_mul(self.width))
    }

    fn add(&mut self, time: i64, value: strongback_store::Value<'_>) {
        let t0 = if self.on_grid { self.start(time) } else { time };
        match self.buckets.last_mut() {
            Some((last, window)) if *last == t0 && self.on_grid => return window.add(value),
            Some((last, _)) if *last > t0 => {
                // A late frame: rare.
                let at = self.buckets.partition_point(|(t, _)| *t <= t0);
                match at.checked_sub(1).map(|i| &mut self.buckets[i]) {
                    Some((t, window)) if *t == t0 && self.on_grid => window.add(value),
                    _ => {
                        let mut window = ChannelWindow::default();
                        window.add(value);
                        self.buckets.insert(at, (t0, window));
                    }
                }
            }
            _ => {
                let mut window = ChannelWindow::default();
                window.add(value);
                self.buckets.push((t0, window));
            }
        }
        if !self.on_grid && self.buckets.len() > self.points {
            self.put_on_grid();
        }
    }

    fn put_on_grid(&mut self) {
        self.on_grid = true;
        let samples = std::mem::take(&mut self.buckets);
        for (time, sample) in samples {
            let t0 = self.start(time);
            match self.buckets.last_mut() {
                Some((last, window)) if *last == t0 => window.append(&sample),
                _ => self.buckets.push((t0, sample)),
            }
        }
    }
}

/// What to read, and how far to reduce it.
#[derive(Clone, Debug)]
pub struct Extent {
    /// `time` of the samples, nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// The range that `points` divide; samples outside it get buckets of the same width.
    pub grid: Range<i64>,
    /// Rows at and above are left out.
    pub end_row: u64,
    /// Most buckets over the grid.
    pub points: usize,
}

/// Reads channels of one stream.
///
/// # Errors
/// When the scan ends early.
pub fn read(view: &View, stream: &Stream, columns: &[ChannelIndex], extent: &Extent) -> Result<Vec<Series>, ScanError> {
    let mut reducers: Vec<Reducer> = columns.iter().map(|_| Reducer::new(&extent.grid, extent.points)).collect();
    let rows = 0..extent.end_row;
    let scan = Scan { time: extent.time.clone(), rows, ..Scan::all(stream.id, columns.to_vec()) };
    for batch in view.scan(scan) {
        let batch = batch?;
        let times = batch.times();
        for (column, reducer) in batch.columns.iter().zip(&mut reducers) {
            for (row, time) in times.iter().enumerate() {
                if let Ok(value) = column.cell(row) {
                    reducer.add(*time, value);
                }
            }
        }
    }
    let series = |(index, reducer): (&ChannelIndex, Reducer)| Series {
        channel: stream.layout.channel(*index).clone(),
        buckets: reducer.buckets,
    };
    Ok(columns.iter().zip(reducers).map(series).collect())
}

/// Times of frames known missing, by stream: what plots leave open.
pub type GapSpans<'a> = dyn Fn(StreamId, &Range<i64>) -> Vec<(i64, i64)> + 'a;

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
    use strongback_store::{ChannelType, Value};

    fn reduced(points: usize, samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
        let mut reducer = Reducer::new(&(0..100), points);
        for (t, v) in samples {
            reducer.add(*t, Value::F64(*v));
        }
        reducer.buckets.iter().map(|(t, w)| (*t, w.count())).collect()
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

    #[test]
    fn a_spike_is_the_maximum_of_its_bucket() {
        let mut reducer = Reducer::new(&(0..1000), 2);
        for t in 0..1000 {
            reducer.add(t, Value::F64(if t == 700 { 99.0 } else { 1.0 }));
        }
        let mut out = Vec::new();
        reducer.buckets[1].1.write(&mut out, ChannelType::F64);
        assert_eq!(String::from_utf8(out).unwrap(), "500,1.0,1.0,1.0,99.0,1.196");
    }
}
