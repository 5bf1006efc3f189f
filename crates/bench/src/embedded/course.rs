//! Input of every engine: a file of frames generated once, so that engines in other languages read the same bytes.
//!
//! Little-endian: `SBWL`, u32 number of streams; for each u16 length of its name, the name, u32 its table, u16 number
//! of channels, a byte per channel (0 f32, 1 f64, 2 bool, 3 i64); u64 number of frames; then the frames in time
//! order: u32 stream, i64 nanoseconds since 1970 UTC, an f64 per channel (a bool as 0 or 1, an i64 below 2⁵³).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};

const MAGIC: &[u8; 4] = b"SBWL";
/// Start of courses, 2026-06-01T00:00:00Z.
pub(super) const BEGIN_NS: i64 = 1_780_272_000_000_000_000;
/// Bytes of a frame before its cells.
const FRAME_HEAD_BYTES: usize = 12;

/// Type of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// Boolean.
    Bool,
    /// 64-bit integer.
    I64,
}

/// Stream of a course.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CourseStream {
    /// Name, of letters and digits.
    pub(super) name: String,
    /// Table of the stream in a relational engine; streams of one table have the same columns.
    pub(super) table: u32,
    /// Types of the channels.
    pub(super) kinds: Vec<Kind>,
}

impl CourseStream {
    fn frame_bytes(&self) -> usize {
        FRAME_HEAD_BYTES + 8 * self.kinds.len()
    }
}

/// Writer of a course.
pub(super) struct CourseWriter {
    out: BufWriter<File>,
    channels: Vec<usize>,
    left: u64,
}

impl CourseWriter {
    /// Begins a file of `frames` frames.
    pub(super) fn create(path: &Path, streams: &[CourseStream], frames: u64) -> anyhow::Result<CourseWriter> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(MAGIC)?;
        out.write_all(&(streams.len() as u32).to_le_bytes())?;
        for stream in streams {
            out.write_all(&(stream.name.len() as u16).to_le_bytes())?;
            out.write_all(stream.name.as_bytes())?;
            out.write_all(&stream.table.to_le_bytes())?;
            out.write_all(&(stream.kinds.len() as u16).to_le_bytes())?;
            for kind in &stream.kinds {
                out.write_all(&[*kind as u8])?;
            }
        }
        out.write_all(&frames.to_le_bytes())?;
        Ok(CourseWriter { out, channels: streams.iter().map(|s| s.kinds.len()).collect(), left: frames })
    }

    /// Returns the number of frames left to write.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Adds the next frame in time order.
    pub(super) fn frame(&mut self, stream: usize, time_ns: i64, cells: &[f64]) -> anyhow::Result<()> {
        ensure!(cells.len() == self.channels[stream] && self.left > 0, "a frame that the course does not have");
        self.left -= 1;
        self.out.write_all(&(stream as u32).to_le_bytes())?;
        self.out.write_all(&time_ns.to_le_bytes())?;
        for cell in cells {
            self.out.write_all(&cell.to_le_bytes())?;
        }
        Ok(())
    }

    /// Finishes the file.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        ensure!(self.left == 0, "{} frames are missing", self.left);
        Ok(self.out.flush()?)
    }
}

/// Frame of a course.
#[derive(Clone, Copy, Debug)]
pub(super) struct CourseFrame<'a> {
    /// Index of its stream.
    pub(super) stream: usize,
    /// Nanoseconds since 1970 UTC.
    pub(super) time_ns: i64,
    cells: &'a [u8],
}

impl CourseFrame<'_> {
    /// Returns the values.
    pub(super) fn cells(&self) -> impl Iterator<Item = f64> {
        self.cells.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()))
    }
}

/// Course in memory.
pub(super) struct Course {
    /// Streams of the course.
    pub(super) streams: Vec<CourseStream>,
    /// Number of frames.
    pub(super) frames: u64,
    bytes: Vec<u8>,
    begin: usize,
}

impl Course {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or was not written by [`CourseWriter`].
    pub(super) fn read(path: &Path) -> anyhow::Result<Course> {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let (streams, frames, begin) =
            read_head(&bytes).with_context(|| format!("{} is not a course", path.display()))?;
        Ok(Course { streams, frames, bytes, begin })
    }

    /// Returns the streams of each table.
    pub(super) fn tables(&self) -> Vec<Vec<usize>> {
        let mut tables = vec![Vec::new(); self.streams.iter().map(|s| s.table as usize + 1).max().unwrap_or(0)];
        self.streams.iter().enumerate().for_each(|(index, stream)| tables[stream.table as usize].push(index));
        tables
    }

    /// Returns the number of channels of all streams.
    pub(super) fn channels(&self) -> u32 {
        self.streams.iter().map(|stream| stream.kinds.len() as u32).sum()
    }

    /// Returns the number of values in all frames.
    pub(super) fn points(&self) -> u64 {
        ((self.bytes.len() - self.begin) as u64 - self.frames * FRAME_HEAD_BYTES as u64) / 8
    }

    /// Iterates over all frames in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CourseFrame<'_>> {
        let mut rest = &self.bytes[self.begin..];
        std::iter::from_fn(move || {
            let stream = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
            let (frame, after) = rest.split_at_checked(self.streams.get(stream)?.frame_bytes())?;
            rest = after;
            let time_ns = i64::from_le_bytes(frame[4..12].try_into().ok()?);
            Some(CourseFrame { stream, time_ns, cells: &frame[12..] })
        })
    }
}

fn read_head(bytes: &[u8]) -> anyhow::Result<(Vec<CourseStream>, u64, usize)> {
    let mut at = 0;
    let mut take = |len: usize| -> anyhow::Result<&[u8]> {
        let piece = bytes.get(at..at + len).context("it ends in its head")?;
        at += len;
        Ok(piece)
    };
    ensure!(take(4)? == MAGIC, "no magic");
    let count = u32::from_le_bytes(take(4)?.try_into()?);
    let mut streams = Vec::new();
    for _ in 0..count {
        let name_len = u16::from_le_bytes(take(2)?.try_into()?);
        let name = std::str::from_utf8(take(name_len as usize)?)?.to_owned();
        let table = u32::from_le_bytes(take(4)?.try_into()?);
        let channels = u16::from_le_bytes(take(2)?.try_into()?);
        let kinds = take(channels as usize)?.iter().map(|kind| match kind {
            0 => Ok(Kind::F32),
            1 => Ok(Kind::F64),
            2 => Ok(Kind::Bool),
            3 => Ok(Kind::I64),
            other => bail!("type {other}"),
        });
        streams.push(CourseStream { name, table, kinds: kinds.collect::<anyhow::Result<_>>()? });
    }
    let frames = u64::from_le_bytes(take(8)?.try_into()?);
    Ok((streams, frames, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("course");
        let streams = [
            CourseStream { name: "RPM".into(), table: 1, kinds: vec![Kind::F32] },
            CourseStream { name: "Flags".into(), table: 0, kinds: vec![Kind::Bool, Kind::F64] },
        ];
        let mut writer = CourseWriter::create(&path, &streams, 3).unwrap();
        let frames = [(0, 5, vec![649.25]), (1, 7, vec![1.0, -0.5]), (0, 9, vec![650.0])];
        for (stream, time_ns, cells) in &frames {
            writer.frame(*stream, *time_ns, cells).unwrap();
        }
        writer.finish().unwrap();
        let course = Course::read(&path).unwrap();
        assert_eq!(course.streams, streams);
        assert_eq!(course.frames, 3);
        assert_eq!(course.tables(), [vec![1], vec![0]]);
        let read: Vec<_> = course.iter().map(|f| (f.stream, f.time_ns, f.cells().collect::<Vec<_>>())).collect();
        assert_eq!(read, frames);
        for cut in 0..40 {
            std::fs::write(&path, &course.bytes[..cut]).unwrap();
            assert!(Course::read(&path).is_err() || cut >= course.begin, "cut at {cut}");
        }
    }
}
