//! Text report of an inspection.

use std::fmt;

use super::Inspection;
use crate::model::calendar::CivilTime;
use crate::segment;

/// Formats bytes with a unit.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Returns an instant in UTC, to the millisecond.
pub(super) fn instant(ns: i64) -> String {
    let time = CivilTime::of(ns);
    format!("{time}.{:03}Z", time.nanosecond / 1_000_000)
}

fn span(time: Option<(i64, i64)>) -> String {
    time.map_or("–".into(), |(from, to)| format!("{} … {}", instant(from), instant(to)))
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "store    {}", self.folder)?;
        writeln!(f, "format   {}", segment::VERSION)?;
        if let Some(identity) = &self.identity {
            writeln!(f, "origin   {:032x}", identity.origin)?;
            let copies = identity.valid_copies;
            writeln!(
                f,
                "epoch    {} (superblock generation {}, {copies} valid copies)",
                identity.epoch, identity.generation
            )?;
        }
        if let Some(fixed) = &self.fixed {
            let (size, slot) = (size(fixed.size_bytes), size(fixed.slot_bytes));
            writeln!(f, "size     {size}, fixed; {} of {} slots of {slot} hold a segment", fixed.taken, fixed.slots)?;
        }
        let log = &self.log;
        let end = if log.clean { "ended cleanly" } else { "in use, or cut" };
        writeln!(
            f,
            "log      {} of {} in {} commits up to number {}, {end}",
            size(log.used_bytes),
            size(log.ring_bytes),
            log.commits,
            log.newest_commit
        )?;
        if let Some(spare) = &self.spare {
            writeln!(f, "spare    {}, {} allocated for the next segment", spare.file, size(spare.file_bytes))?;
        }
        writeln!(
            f,
            "\n{:>8}  {:8} {:7} {:>10} {:>10} {:>8} {:>12}  time",
            "segment", "group", "state", "file", "blocks", "number", "rows"
        )?;
        for s in &self.segments {
            writeln!(
                f,
                "{:>8}  {:8} {:7} {:>10} {:>10} {:>8} {:>12}  {}",
                s.id,
                s.group,
                match (s.blobs, s.sealed, s.settled) {
                    (Some(_), ..) => "blobs",
                    (_, _, true) => "settled",
                    (_, true, false) => "sealed",
                    (_, false, false) => "open",
                },
                size(s.file_bytes),
                size(s.blobs.map_or(s.block_bytes, |(_, bytes)| bytes)),
                s.blobs.map_or(s.blocks, |(blobs, _)| blobs),
                s.rows,
                span(s.time)
            )?;
        }
        writeln!(f, "\n{:>8} {:>12} {:>8} {:>10} {:>8}  stream", "channels", "rows", "blocks", "bytes", "B/point")?;
        for stream in self.streams.values() {
            // Unless the blocks were read, count every cell as a value.
            let points = stream.points.unwrap_or(stream.rows * stream.channels as u64);
            let per_point =
                if points == 0 { "–".into() } else { format!("{:.3}", stream.block_bytes as f64 / points as f64) };
            write!(
                f,
                "{:>8} {:>12} {:>8} {:>10} {:>8}  {}",
                stream.channels,
                stream.rows,
                stream.blocks,
                size(stream.block_bytes),
                per_point,
                stream.name
            )?;
            match stream.missing_rows {
                0 => writeln!(f)?,
                rows => writeln!(f, "  ({rows} rows expired or lost between blocks)")?,
            }
            stream.reductions.iter().try_for_each(|r| writeln!(f, "{:52}{r}", ""))?;
        }
        let rows: u64 = self.segments.iter().map(|s| s.rows).sum();
        write!(f, "\ntotal    {} segments, {rows} rows, {} of blocks", self.segments.len(), size(self.block_bytes()))?;
        match self.points() {
            Some(points) if points > 0 && self.verified_blocks > 0 => {
                writeln!(f, ", {points} points, {:.3} bytes/point", self.block_bytes() as f64 / points as f64)?;
                write!(f, "verified {} blocks, every value decoded", self.verified_blocks)?;
                match self.verified_pyramids {
                    0 => writeln!(f)?,
                    pyramids => writeln!(f, "; {pyramids} statistics pyramids made again from them")?,
                }
            }
            _ => writeln!(f)?,
        }
        if let (blobs @ 1.., bytes) = self.blobs() {
            writeln!(f, "blobs    {blobs}, {} of them in segments of their own", size(bytes))?;
        }
        if self.is_sound() {
            return writeln!(f, "no damage found");
        }
        writeln!(f, "\nDAMAGE in {} places:", self.damage.len())?;
        self.damage.iter().try_for_each(|d| writeln!(f, "  {}, offset {}: {}", d.file, d.offset, d.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_civil() {
        assert_eq!(instant(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(instant(951_782_400_123_000_000), "2000-02-29T00:00:00.123Z");
        assert_eq!(instant(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(instant(1_763_600_000_000_000_000), "2025-11-20T00:53:20.000Z");
    }
}
