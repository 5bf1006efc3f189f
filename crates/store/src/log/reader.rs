//! Reading the log: unit by unit from a link on, in large pieces, and past units whose records are damaged.

use std::io;

use crate::disk::PAGE_BYTES;
use crate::log::{Link, LogPosition, RECORDS_BYTES_MAX, ROWS_ONLY, UNIT_HEADER_BYTES, UnitHeader, unit_bytes};

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Returns the bytes behind the end of a log that are searched for later units: as many as its largest unit takes, and a
/// page, so that the one that follows a damaged unit is found.
fn searched_bytes(ring_bytes: u64) -> u64 {
    (ring_bytes / 4).min(RECORDS_BYTES_MAX as u64) + 2 * PAGE_BYTES as u64
}

/// Reader of the units of a ring, whose bytes `R` reads.
pub(crate) struct LogReader<R> {
    /// Reads bytes at an offset of the ring. Returns how many there were.
    read: R,
    ring_bytes: u64,
    link: Link,
    /// Position at which the next lap of the ring begins; no unit may extend beyond it.
    limit: LogPosition,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    start: LogPosition,
}

/// A unit that was read.
pub(crate) struct ReadUnit<'a> {
    pub(crate) header: UnitHeader,
    pub(crate) records: &'a [u8],
    /// Damaged units before it.
    pub(crate) passed: Option<PassedUnits>,
}

/// Damaged units that a sound one follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedUnits {
    /// Link after the last sound unit before them.
    after: Link,
    /// Number of the newest of them.
    to: u64,
}

impl PassedUnits {
    /// Returns where the first of them begins.
    pub(crate) fn position(&self) -> LogPosition {
        self.after.position
    }

    /// Says which commits are damaged.
    pub(crate) fn damage(&self) -> String {
        match self.after.commit + 1 {
            first if first == self.to => format!("commit {first} is damaged and lost; those after it are whole"),
            first => format!("commits {first} to {} are damaged and lost; those after them are whole", self.to),
        }
    }
}

impl<R: FnMut(&mut [u8], u64) -> io::Result<usize>> LogReader<R> {
    /// Creates a reader of the units after `link` in a ring of `ring_bytes`.
    pub(crate) fn new(ring_bytes: u64, link: Link, read: R) -> Self {
        let limit = link.position + ring_bytes;
        LogReader { read, ring_bytes, link, limit, buffer: Vec::new(), start: link.position }
    }

    /// Returns the link after the last complete unit.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Goes on at a link, with nothing read of what follows it.
    fn move_to(&mut self, link: Link) {
        (self.link, self.start) = (link, link.position);
        self.buffer.clear();
    }

    /// Reads until the buffer holds `len` bytes from the link's position on. Returns whether it does.
    fn fill(&mut self, len: u64) -> io::Result<bool> {
        let position = self.link.position;
        if len > self.limit - position {
            return Ok(false);
        }
        let skip = (position - self.start) as usize;
        if skip >= READ_BYTES as usize || skip == self.buffer.len() {
            self.buffer.drain(..skip.min(self.buffer.len()));
            self.start = position;
        }
        let want = position + len - self.start;
        while (self.buffer.len() as u64) < want {
            let at = self.start + self.buffer.len() as u64;
            let offset = at.offset(self.ring_bytes);
            let piece = READ_BYTES.min(self.ring_bytes - offset).min(self.limit - at) as usize;
            let have = self.buffer.len();
            self.buffer.resize(have + piece, 0);
            let got = (self.read)(&mut self.buffer[have..], offset)?;
            if got < piece {
                self.buffer.truncate(have + got);
                return Ok((self.buffer.len() as u64) >= want);
            }
        }
        Ok(true)
    }

    /// Returns the header at the link if it follows.
    fn header_here(&mut self, check: bool) -> io::Result<Option<UnitHeader>> {
        if !self.fill(PAGE_BYTES as u64)? {
            return Ok(None);
        }
        let at = (self.link.position - self.start) as usize;
        let header = UnitHeader::decode(&self.buffer[at..]);
        Ok(header.filter(|header| header.follows(&self.link) || !check && header.position == self.link.position))
    }

    /// Returns the header of the unit at the link if that is complete. The buffer then holds the unit.
    fn unit_here(&mut self, check: bool) -> io::Result<Option<UnitHeader>> {
        let Some(header) = self.header_here(check)? else { return Ok(None) };
        if !header.len.is_multiple_of(8) || !self.fill(unit_bytes(header.len as usize))? {
            return Ok(None);
        }
        Ok(Some(header).filter(|header| !check || crc32c::crc32c(self.records(header)) == header.crc))
    }

    /// Returns the records of the unit at the link, which the buffer holds.
    fn records(&self, header: &UnitHeader) -> &[u8] {
        let at = (self.link.position - self.start) as usize + UNIT_HEADER_BYTES;
        &self.buffer[at..at + header.len as usize]
    }

    /// Reads the next complete unit that follows, also behind units of rows alone whose records are damaged. Returns
    /// `None` at the end of the log. `check` is only off for a mutant of the tests, which accepts whatever it finds.
    pub(crate) fn next_unit(&mut self, check: bool) -> io::Result<Option<ReadUnit<'_>>> {
        let before = self.link;
        let mut found = self.unit_here(check)?;
        if found.is_none() && check {
            found = self.unit_behind_damage(|damaged| damaged.flags & ROWS_ONLY != 0)?;
        }
        let Some(header) = found else { return Ok(None) };
        let begin = self.link.position;
        self.link = header.link();
        let at = (begin - self.start) as usize + UNIT_HEADER_BYTES;
        let records = &self.buffer[at..at + header.len as usize];
        let passed = (begin != before.position).then_some(PassedUnits { after: before, to: header.commit - 1 });
        Ok(Some(ReadUnit { header, records, passed }))
    }

    /// Moves to the next complete unit behind units that have sound headers and damaged records, all of which may be
    /// passed, and returns its header. Stays, and returns `None`, if there is none.
    ///
    /// A unit is written when the one before it is durable, so what a complete one follows was whole. That it does
    /// follow, only the chain shows: its number covers the time and the checksum of the unit before it, and no sender
    /// knows them ahead of time. A header that was found by looking for one may be the text of a frame.
    fn unit_behind_damage(&mut self, may_pass: impl Fn(&UnitHeader) -> bool) -> io::Result<Option<UnitHeader>> {
        let before = self.link;
        // Read again: a running store may have written it just now.
        self.move_to(before);
        loop {
            if let Some(header) = self.unit_here(true)? {
                return Ok(Some(header));
            }
            let Some(damaged) = self.header_here(true)?.filter(&may_pass) else {
                self.move_to(before);
                return Ok(None);
            };
            self.move_to(damaged.link());
        }
    }

    /// Returns whether a complete unit follows by now, as a running store may write one at any time.
    pub(crate) fn goes_on(&mut self) -> io::Result<bool> {
        self.move_to(self.link);
        Ok(self.unit_here(true)?.is_some())
    }

    /// Returns the bytes after the last complete unit that look like a truncated unit of the same lap, or like its
    /// remains. Remains have a header that fails its checksum, but whose position or chain still fits.
    pub(crate) fn torn_bytes(&mut self) -> io::Result<u64> {
        if !self.fill(PAGE_BYTES as u64)? {
            return Ok(0);
        }
        let at = (self.link.position - self.start) as usize;
        let page = &self.buffer[at..];
        let Some(header) = UnitHeader::decode(page) else {
            let zeros = page.iter().take(UNIT_HEADER_BYTES).all(|byte| *byte == 0);
            let left = UnitHeader::fields(page).is_some_and(|header| {
                let place = (header.position, header.commit) == (self.link.position, self.link.commit + 1);
                !zeros && (header.previous == self.link.chain || place)
            });
            return Ok(if left { PAGE_BYTES as u64 } else { 0 });
        };
        Ok(if header.follows(&self.link) { unit_bytes(header.len as usize) } else { 0 })
    }

    /// Returns the newest commits whose complete headers are behind the end, where no intact log can have them, as far as
    /// a damaged unit may reach, or that follow by the chain.
    pub(crate) fn behind_end(&mut self) -> io::Result<Behind> {
        let link = self.link;
        let by_chain = self.unit_behind_damage(|_| true)?.map(|header| header.commit);
        self.move_to(link);
        let room = searched_bytes(self.ring_bytes).max(READ_BYTES).min(self.limit - link.position);
        self.fill(room)?;
        let from = ((link.position - self.start) as usize).min(self.buffer.len());
        let mut behind = Behind::of(&self.buffer[from..], &link, self.ring_bytes, self.limit);
        behind.same_lap = behind.same_lap.max(by_chain.filter(|commit| *commit > link.commit + 1));
        Ok(behind)
    }
}

/// Commits whose headers were found behind the log's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Newest commit of the lap that ends there: those in between are damaged.
    pub(crate) same_lap: Option<u64>,
    /// Newest commit of a later lap: the log was overwritten after the position of its beginning was recorded.
    pub(crate) later_lap: Option<u64>,
}

impl Behind {
    /// Returns the newest commits whose complete headers are in `bytes`, which follow the last complete unit in a ring
    /// of `ring_bytes`. The lap ends at `limit`.
    ///
    /// A unit is written when the one before it is durable. Units before one of a later commit were therefore durable,
    /// and are not as they were written. Every page is searched for headers, including pages with values of an earlier
    /// lap. A header counts only if a unit with its number can be there, given that each unit before it takes at least
    /// a page.
    fn of(bytes: &[u8], link: &Link, ring_bytes: u64, limit: LogPosition) -> Behind {
        let mut behind = Behind::default();
        for (n, page) in bytes.chunks(PAGE_BYTES).enumerate().skip(1) {
            let Some(header) = UnitHeader::decode(page) else { continue };
            let at = link.position + (n * PAGE_BYTES) as u64;
            let units = header.commit.saturating_sub(link.commit);
            let is_there =
                header.position >= link.position && header.position.offset(ring_bytes) == at.offset(ring_bytes);
            if !is_there {
                continue;
            }
            let pages = (header.position - link.position) / PAGE_BYTES as u64;
            if units < 2 || units > pages + 1 || header.epoch < link.epoch {
                continue;
            }
            let newest = if header.position < limit { &mut behind.same_lap } else { &mut behind.later_lap };
            *newest = (*newest).max(Some(header.commit));
        }
        behind
    }

    /// Says which commits are damaged and lost if those after `link` are not as they were written.
    pub(crate) fn damage(&self, link: &Link) -> Option<String> {
        let commit = self.same_lap?;
        let first = link.commit + 1;
        Some(format!("commit {first} is damaged, and what was committed after it, to {commit} at least, lost"))
    }
}
