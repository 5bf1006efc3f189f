//! A picture of a store's use of space, in at most 80 columns.

use std::fmt::Write;

use super::report::{instant, size};
use super::{Inspection, SegmentUse, StreamUse};

/// Number of cells for the ages of a stream: segments from the oldest to the newest.
pub(super) const AGE_CELLS: usize = 40;
/// Number of cells in the bar of all bytes, and in that of a group's segments.
const BAR_CELLS: usize = 72;
const SEGMENT_CELLS: usize = 60;
/// Max number of streams drawn: those with the most bytes.
const STREAMS_DRAWN: usize = 12;
/// Max number of retention groups drawn.
const GROUPS_DRAWN: usize = 16;
/// Max number of characters in a name.
const NAME_CHARS: usize = 24;
const GROUP_CHARS: usize = 12;

/// Style of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// ASCII without colours, for files and pipes.
    Plain,
    /// Block characters and colours, for a terminal.
    Terminal,
}

/// Uses of bytes: name, sign in ASCII, sign in a terminal, colour.
const USES: [(&str, char, char, u8); 6] = [
    ("log", 'L', '█', 34),
    ("blocks", '#', '█', 32),
    ("blobs", 'B', '█', 36),
    ("footers, padding", '=', '▓', 33),
    ("allocated ahead", '.', '░', 90),
    ("spare, free", 's', '░', 35),
];

impl Picture {
    /// Draws the result of an inspection.
    pub fn draw(self, found: &Inspection) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.space(found, &mut out);
        let _ = self.segments(found, &mut out);
        let _ = self.streams(found, &mut out);
        out
    }

    fn coloured(self, text: &str, colour: u8) -> String {
        match self {
            Picture::Plain => text.to_owned(),
            Picture::Terminal => format!("\x1b[{colour}m{text}\x1b[0m"),
        }
    }

    /// Returns the sign for a share of 0 to 1; the empty sign only for 0.
    fn level(self, share: f64, plain: &[char], terminal: &[char]) -> char {
        let signs = if self == Picture::Plain { plain } else { terminal };
        let most = signs.len() - 1;
        match share {
            s if s <= 0.0 => signs[0],
            s => signs[((s * most as f64).ceil() as usize).clamp(1, most)],
        }
    }

    /// Draws one bar of all bytes.
    fn space(self, found: &Inspection, out: &mut String) -> std::fmt::Result {
        let rest = |sealed: bool| -> u64 {
            let segments = found.segments.iter().filter(|s| s.sealed == sealed);
            segments.map(|s| s.file_bytes.saturating_sub(used_bytes(s))).sum()
        };
        let free = found.fixed.as_ref().map_or(0, |fixed| fixed.slots.saturating_sub(fixed.taken) * fixed.slot_bytes);
        let spare = found.spare.as_ref().map_or(0, |spare| spare.file_bytes) + free;
        let bytes = [found.log.ring_bytes, found.block_bytes(), found.blobs().1, rest(true), rest(false), spare];
        let total: u64 = bytes.iter().sum();
        writeln!(out, "space, {} in all, a cell is {}", size(total), size(total.div_ceil(BAR_CELLS as u64)))?;
        out.push_str("  ");
        for (cells, (_, plain, terminal, colour)) in shares(&bytes, BAR_CELLS).into_iter().zip(USES) {
            let sign = if self == Picture::Plain { plain } else { terminal };
            out.push_str(&self.coloured(&String::from(sign).repeat(cells), colour));
        }
        out.push('\n');
        for (bytes, (name, plain, terminal, colour)) in bytes.iter().zip(USES).filter(|(bytes, _)| **bytes > 0) {
            let sign = if self == Picture::Plain { plain } else { terminal };
            let percent = *bytes as f64 * 100.0 / total.max(1) as f64;
            let sign = self.coloured(&sign.to_string(), colour);
            writeln!(out, "  {sign} {name:18} {:>10} {percent:>5.1} %", size(*bytes))?;
        }
        Ok(())
    }

    /// Draws how full of blocks the segments of each group are, oldest first.
    fn segments(self, found: &Inspection, out: &mut String) -> std::fmt::Result {
        let mut groups: Vec<(&str, Vec<&SegmentUse>)> = Vec::new();
        for segment in &found.segments {
            match groups.iter_mut().find(|(name, _)| *name == segment.group) {
                Some((_, of)) => of.push(segment),
                None => groups.push((&segment.group, vec![segment])),
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        let most = groups.iter().map(|(_, of)| of.len()).max().unwrap_or(0);
        let cells = match most.div_ceil(SEGMENT_CELLS) {
            0 | 1 => String::new(),
            several => format!(", up to {several} a cell"),
        };
        writeln!(out, "\nsegments from oldest to newest, how full of blocks or blobs{cells}")?;
        let drawn = groups.len().min(GROUPS_DRAWN);
        for (name, of) in &groups[..drawn] {
            let bar: String = of
                .chunks(of.len().div_ceil(SEGMENT_CELLS))
                .map(|chunk| {
                    let (blocks, file) =
                        chunk.iter().fold((0, 0), |sum, s| (sum.0 + used_bytes(s), sum.1 + s.file_bytes));
                    self.level(blocks as f64 / file.max(1) as f64, &LEVELS_PLAIN, &LEVELS_TERMINAL)
                })
                .collect();
            writeln!(out, "  {:GROUP_CHARS$} {}", cut(name, GROUP_CHARS), self.coloured(&bar, 32))?;
        }
        if groups.len() > drawn {
            writeln!(out, "  … and {} more groups", groups.len() - drawn)?;
        }
        let times = found.segments.iter().filter_map(|s| s.time);
        if let Some((from, to)) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            writeln!(out, "  {} … {}", instant(from), instant(to))?;
        }
        Ok(())
    }

    /// Draws in which segments the streams with the most bytes lie.
    fn streams(self, found: &Inspection, out: &mut String) -> std::fmt::Result {
        let mut streams: Vec<&StreamUse> = found.streams.values().collect();
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.block_bytes));
        let more = streams.len().saturating_sub(STREAMS_DRAWN);
        streams.truncate(STREAMS_DRAWN);
        let most = streams.iter().flat_map(|s| &s.by_age).fold(0.0, |most: f32, bytes| most.max(*bytes));
        if most == 0.0 {
            return Ok(());
        }
        writeln!(out, "\nstreams by bytes, where they lie from the oldest segment to the newest")?;
        for stream in streams {
            let heat: String = (0..AGE_CELLS)
                .map(|cell| stream.by_age.get(cell).copied().unwrap_or(0.0))
                .map(|bytes| self.level((bytes / most).into(), &SHADES_PLAIN, &SHADES_TERMINAL))
                .collect();
            let (bytes, name) = (size(stream.block_bytes), cut(&stream.name, NAME_CHARS));
            writeln!(out, "  {} {bytes:>10}  {name}", self.coloured(&heat, 36))?;
        }
        if more > 0 {
            writeln!(out, "  … and {more} more")?;
        }
        Ok(())
    }
}

const LEVELS_PLAIN: [char; 6] = ['_', '.', '-', '=', '+', '#'];
const LEVELS_TERMINAL: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SHADES_PLAIN: [char; 5] = [' ', '.', ':', '+', '#'];
const SHADES_TERMINAL: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Returns the bytes of blocks or blobs.
fn used_bytes(segment: &SegmentUse) -> u64 {
    segment.blobs.map_or(segment.block_bytes, |(_, bytes)| bytes)
}

/// Truncates a name to `chars` characters.
fn cut(name: &str, chars: usize) -> String {
    match name.chars().count() > chars {
        true => name.chars().take(chars - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// Divides cells in proportion to bytes; anything above 0 has at least one.
fn shares(bytes: &[u64], cells: usize) -> Vec<usize> {
    let total: u64 = bytes.iter().sum();
    if total == 0 {
        return vec![0; bytes.len()];
    }
    let exact = |bytes: u64| bytes as f64 * cells as f64 / total as f64;
    let mut shares: Vec<usize> = bytes.iter().map(|b| (exact(*b) as usize).max(usize::from(*b > 0))).collect();
    // The largest absorbs the remainder.
    if let Some(largest) = (0..bytes.len()).max_by_key(|i| bytes[*i]) {
        let others: usize = shares.iter().sum::<usize>() - shares[largest];
        shares[largest] = cells.saturating_sub(others);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::SpareFile;
    use crate::model::stream::StreamId;

    fn segment(id: u64, group: &str, blocks: u64, sealed: bool) -> SegmentUse {
        SegmentUse {
            file: format!("segment-{id}"),
            id,
            group: group.to_owned(),
            sealed,
            settled: false,
            file_bytes: 1 << 20,
            block_bytes: blocks,
            blocks: 1,
            blobs: None,
            rows: 10,
            time: Some((id as i64, id as i64 + 1)),
        }
    }

    fn found() -> Inspection {
        let mut found = Inspection::default();
        found.log.ring_bytes = 4 << 20;
        found.segments = (0..150).map(|id| segment(id, "data", (1 << 20) * (id % 3) / 2, true)).collect();
        found.segments.push(segment(150, "a group with a long name", 7, false));
        found.spare = Some(SpareFile { file: "segment-151".into(), file_bytes: 1 << 20 });
        for n in 0..20_u32 {
            let name = format!("größe.{}", "x".repeat(n as usize * 3));
            let by_age = (0..AGE_CELLS).map(|cell| if cell as u32 >= n { n as f32 } else { 0.0 }).collect();
            let stream = StreamUse { name, block_bytes: u64::from(n) << 16, by_age, ..StreamUse::default() };
            found.streams.insert(StreamId(n), stream);
        }
        found
    }

    #[test]
    fn every_line_fits_and_plain_is_plain() {
        let found = found();
        let plain = Picture::Plain.draw(&found);
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert!(!plain.contains('\x1b') && !plain.contains('█'));
        let terminal = Picture::Terminal.draw(&found);
        let bare: Vec<String> = terminal
            .lines()
            .map(|line| {
                let parts = line.split('\x1b').enumerate();
                parts.map(|(n, part)| if n == 0 { part } else { part.split_once('m').map_or(part, |p| p.1) }).collect()
            })
            .collect();
        assert!(terminal.contains("\x1b[32m"));
        let widths: Vec<usize> = bare.iter().map(|line: &String| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width <= 80), "{terminal}");
        assert_eq!(plain.lines().count(), terminal.lines().count());
    }

    #[test]
    fn the_bar_and_the_heat_say_what_there_is() {
        let found = found();
        let plain = Picture::Plain.draw(&found);
        let bar = plain.lines().nth(1).unwrap().trim();
        assert_eq!(bar.len(), BAR_CELLS);
        let count = |sign| bar.chars().filter(|c| *c == sign).count();
        // 156 MiB: 4 of log, 75 of blocks, 75 of padding, 1 ahead, 1 spare.
        assert_eq!([count('L'), count('#'), count('='), count('.'), count('s')], [1, 35, 34, 1, 1]);
        assert!(plain.contains("up to 3 a cell"), "{plain}");
        let data = plain.lines().find(|line| line.starts_with("  data")).unwrap();
        // Three segments per cell: empty, half full, full.
        assert_eq!(data.trim_end(), format!("  data         {}", "=".repeat(50)));
        let heaviest = plain.lines().find(|line| line.contains("größe.xxx")).unwrap();
        assert_eq!(heaviest, format!("  {}{}    1.2 MiB  größe.{}…", " ".repeat(19), "#".repeat(21), "x".repeat(17)));
        assert!(plain.contains("… and 8 more"));
        assert_eq!(shares(&[0, 0], 10), [0, 0]);
        assert_eq!(shares(&[1, 1_000_000], 10), [1, 9]);
        let empty = Picture::Plain.draw(&Inspection::default());
        assert_eq!(empty.lines().count(), 2);
    }
}
