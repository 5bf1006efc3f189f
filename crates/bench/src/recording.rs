//! Pad data generated in advance: the same frames for every engine of a run, and a checksum to verify them.

use strongback_sim::{Cell, Pad, PadOptions, PadSource, PadStream};
use strongback_store::{ChannelSpec, ChannelType, Clock, StreamKey, StreamSpec, Value};

/// Time between two commits: 50 ms of pad time.
pub const CADENCE_NS: i64 = 50_000_000;

/// Frame of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordedFrame {
    /// Index into [`Recording::streams`].
    pub stream: usize,
    /// Row number in its stream.
    pub row: u64,
    /// Source time, nanoseconds since 1970 UTC.
    pub time_ns: i64,
    first: usize,
    count: usize,
}

/// Pad data in memory, as the server would store it: iNET-X values as f32, line-protocol numbers as the f64 of their
/// decimal text.
pub struct Recording {
    /// Streams of the pad.
    pub streams: Vec<StreamSpec>,
    /// Frames in sending order.
    pub frames: Vec<RecordedFrame>,
    /// Ends of the spans of 50 ms, as indices into `frames`.
    pub stretches: Vec<usize>,
    /// Length in nanoseconds of pad time.
    pub span_ns: i64,
    /// Number of frames of each stream.
    pub rows: Vec<u64>,
    cells: Vec<Value<'static>>,
}

impl Recording {
    /// Records `seconds` of the pad around lift-off (countdown, engine start, flight), beginning at `start_ns`.
    pub fn of_pad(seconds: u32, start_ns: i64) -> Recording {
        let t0_ms = i64::from(seconds) * 600;
        let mut pad = Pad::new(PadOptions { seed: 20_261_120, loss: 0.0, t0_ms });
        let streams: Vec<StreamSpec> = pad.streams().iter().map(stream_spec).collect();
        let mut rows = vec![0u64; streams.len()];
        let (mut frames, mut stretches, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..u64::from(seconds) * 20 {
            pad.frames(0.05, |frame, stream, sent| {
                let first = cells.len();
                cells.extend(sent.iter().map(|cell| stored_value(stream.source, *cell)));
                let row = rows[frame.stream];
                rows[frame.stream] += 1;
                let time_ns = start_ns + frame.time_ns;
                frames.push(RecordedFrame { stream: frame.stream, row, time_ns, first, count: sent.len() });
            });
            stretches.push(frames.len());
        }
        Recording { streams, frames, stretches, span_ns: i64::from(seconds) * 1_000_000_000, rows, cells }
    }

    /// Returns a frame as it is in a later lap: the same values, with time and row advanced.
    pub fn in_lap(&self, frame: &RecordedFrame, lap: u32) -> RecordedFrame {
        RecordedFrame {
            row: frame.row + u64::from(lap) * self.rows[frame.stream],
            time_ns: frame.time_ns + i64::from(lap) * self.span_ns,
            ..*frame
        }
    }

    /// Returns the sum of [`point_hash`] over all points of some laps.
    pub fn checksum(&self, laps: u32) -> u64 {
        let mut sum = 0u64;
        for lap in 0..laps {
            for frame in &self.frames {
                let moved = self.in_lap(frame, lap);
                for (channel, value) in self.cells(frame).iter().enumerate() {
                    sum = sum.wrapping_add(point_hash(frame.stream, moved.row, channel, moved.time_ns, *value));
                }
            }
        }
        sum
    }

    /// Returns the values of a frame, one for each channel of its stream.
    pub fn cells(&self, frame: &RecordedFrame) -> &[Value<'static>] {
        &self.cells[frame.first..frame.first + frame.count]
    }

    /// Returns the number of values in it.
    pub fn points(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Returns the frames of each span of 50 ms.
    pub fn each_stretch(&self) -> impl Iterator<Item = &[RecordedFrame]> {
        let starts = std::iter::once(0).chain(self.stretches.iter().copied());
        starts.zip(&self.stretches).map(|(from, to)| &self.frames[from..*to])
    }
}

/// Returns a stream of the pad as the server declares it.
fn stream_spec(stream: &PadStream) -> StreamSpec {
    let channels = stream.channels.iter().map(|channel| {
        let fti = stream.source == PadSource::Fti;
        let channel_type = match channel.cell_type {
            strongback_sim::CellType::F32 if fti => ChannelType::F32,
            strongback_sim::CellType::F32 | strongback_sim::CellType::F64 => ChannelType::F64,
            strongback_sim::CellType::I64 => ChannelType::I64,
            strongback_sim::CellType::Bool => ChannelType::Bool,
            strongback_sim::CellType::Text => ChannelType::String,
        };
        ChannelSpec {
            unit: channel.unit.to_string(),
            description: channel.description.clone(),
            ..ChannelSpec::new(channel.name.as_str(), channel_type)
        }
    });
    StreamSpec {
        key: StreamKey::new(stream.table.as_str(), stream.tags.iter().map(|(k, v)| (k.to_string(), v.clone()))),
        source: stream.source.name().to_string(),
        clock: Clock::Source,
        expected_period_ns: Some(stream.period_ns),
        sequence_modulus: None,
        channels: channels.collect(),
    }
}

fn stored_value(source: PadSource, cell: Cell) -> Value<'static> {
    match cell {
        Cell::Quantised { value, .. } | Cell::F32(value) if source == PadSource::Fti => Value::F32(value),
        // A decimal printed from an f32 always parses.
        Cell::Quantised { value, .. } | Cell::F32(value) => Value::F64(value.to_string().parse().unwrap_or(f64::NAN)),
        Cell::F64(value) => Value::F64(value),
        Cell::I64(value) => Value::I64(value),
        Cell::Bool(value) => Value::Bool(value),
        Cell::Text(value) => Value::String(value),
    }
}

/// Returns a hash of a point's position and value: the same for any engine that stored it exactly. f32 and f64 of the
/// same number agree, as do bool and 0 or 1.
pub fn point_hash(stream: usize, row: u64, channel: usize, time_ns: i64, value: Value<'_>) -> u64 {
    let bits = match value {
        Value::String(text) => {
            text.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
        }
        Value::F32(v) => f64::from(v).to_bits(),
        other => other.bits(),
    };
    let place = (stream as u64) << 48 ^ (channel as u64) << 36 ^ row;
    mix(mix(place ^ (time_ns as u64).rotate_left(17)) ^ bits)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_the_pad_and_its_checksum_sees_every_part() {
        let recording = Recording::of_pad(1, 1_700_000_000_000_000_000);
        assert_eq!(recording.points(), 68_500);
        assert_eq!(recording.stretches.len(), 20);
        assert_eq!(recording.each_stretch().map(<[_]>::len).sum::<usize>(), recording.frames.len());
        assert_eq!(recording.checksum(2), Recording::of_pad(1, 1_700_000_000_000_000_000).checksum(2));
        assert_ne!(recording.checksum(1).wrapping_mul(2), recording.checksum(2), "laps differ");
        let base = point_hash(1, 2, 3, 4, Value::F64(5.0));
        for other in [
            point_hash(2, 2, 3, 4, Value::F64(5.0)),
            point_hash(1, 3, 3, 4, Value::F64(5.0)),
            point_hash(1, 2, 4, 4, Value::F64(5.0)),
            point_hash(1, 2, 3, 5, Value::F64(5.0)),
            point_hash(1, 2, 3, 4, Value::F64(5.000000000000001)),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, point_hash(1, 2, 3, 4, Value::F32(5.0)));
    }
}
