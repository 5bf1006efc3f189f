//! The launch pad's data: avionics, flight test instrumentation and PLC around lift-off, as sent by `simulate pad`.
//! Text channels are left out, since a course has numbers only.

use strongback_store::{ChannelType, Value};

use super::course::{BEGIN_NS, CourseStream, CourseWriter, Kind};
use crate::recording::{RecordedFrame, Recording};

/// Seconds of pad time that are generated once and repeated with later times.
const LAP_S: u32 = 30;

/// Frames of a pad, lap after lap.
pub(super) struct Laps {
    recording: Recording,
    /// Streams with a channel that is not text: place in the recording, and those channels.
    streams: Vec<(usize, Vec<usize>)>,
    laps: u32,
}

impl Laps {
    /// Generates this many laps.
    pub(super) fn new(laps: u32) -> Laps {
        let recording = Recording::of_pad(LAP_S, BEGIN_NS);
        let numbers = |stream: usize| -> Vec<usize> {
            let channels = recording.streams[stream].channels.iter().enumerate();
            channels.filter(|(_, c)| c.channel_type != ChannelType::String).map(|(index, _)| index).collect()
        };
        let all = (0..recording.streams.len()).map(|stream| (stream, numbers(stream)));
        let streams = all.filter(|(_, channels)| !channels.is_empty()).collect();
        Laps { recording, streams, laps }
    }

    /// Returns its streams.
    pub(super) fn streams(&self) -> Vec<CourseStream> {
        let kind = |channel_type| match channel_type {
            ChannelType::F32 => Kind::F32,
            ChannelType::Bool => Kind::Bool,
            ChannelType::I64 => Kind::I64,
            _ => Kind::F64,
        };
        let stream = |(table, (at, channels)): (usize, &(usize, Vec<usize>))| CourseStream {
            name: format!("pad{at}"),
            table: table as u32,
            kinds: channels.iter().map(|&c| kind(self.recording.streams[*at].channels[c].channel_type)).collect(),
        };
        self.streams.iter().enumerate().map(stream).collect()
    }

    /// Returns the number of its frames.
    pub(super) fn frames(&self) -> u64 {
        self.streams.iter().map(|(at, _)| self.recording.rows[*at]).sum::<u64>() * u64::from(self.laps)
    }

    /// Writes the frames in the order of time.
    pub(super) fn write(&self, out: &mut CourseWriter) -> anyhow::Result<()> {
        let place = |frame: &RecordedFrame| self.streams.iter().position(|(at, _)| *at == frame.stream);
        let mut frames: Vec<(usize, &RecordedFrame)> =
            self.recording.frames.iter().filter_map(|frame| Some((place(frame)?, frame))).collect();
        frames.sort_by_key(|(_, frame)| frame.time_ns);
        // Clocks of the sources differ, so a lap of all sources is longer than one of each.
        let span_ns = frames.last().map_or(0, |last| last.1.time_ns - frames[0].1.time_ns) + 1_000_000;
        let mut cells = Vec::new();
        for lap in 0..i64::from(self.laps) {
            for (stream, frame) in &frames {
                let values = self.recording.cells(frame);
                cells.clear();
                cells.extend(self.streams[*stream].1.iter().map(|&c| number(values[c])));
                out.frame(*stream, frame.time_ns + lap * span_ns, &cells)?;
            }
        }
        Ok(())
    }
}

fn number(value: Value<'_>) -> f64 {
    match value {
        Value::F32(v) => v.into(),
        Value::F64(v) => v,
        Value::Bool(v) => v.into(),
        Value::I64(v) => v as f64,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::*;

    #[test]
    fn frames_ascend_in_time_and_every_number_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pad");
        let laps = Laps::new(2);
        let mut out = CourseWriter::create(&path, &laps.streams(), laps.frames()).unwrap();
        laps.write(&mut out).unwrap();
        out.finish().unwrap();
        let course = Course::read(&path).unwrap();
        let mut last = vec![i64::MIN; course.streams.len()];
        let (mut newest, mut points) = (i64::MIN, 0);
        for frame in course.iter() {
            assert!(frame.time_ns >= newest, "{} after {newest}", frame.time_ns);
            assert!(frame.time_ns > last[frame.stream], "twice in {}", course.streams[frame.stream].name);
            (newest, last[frame.stream]) = (frame.time_ns, frame.time_ns);
            for (cell, kind) in frame.cells().zip(&course.streams[frame.stream].kinds) {
                assert!(cell.is_finite());
                assert!(*kind != Kind::I64 || (cell as i64 as f64 == cell && cell.abs() < 9e15));
                points += 1;
            }
        }
        assert!(points > 2 * 30 * 60_000, "{points} points");
    }
}
