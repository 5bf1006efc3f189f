//! The log: intact units, in order, and those of their records that fit the preceding data.

use std::collections::BTreeSet;
use std::io;

use super::RepairReport;
use super::source::Source;
use crate::append::Writer;
use crate::disk::names;
use crate::disk::{DiskFile, PAGE_BYTES, read_exact};
use crate::log::reader::LogReader;
use crate::log::record::{Record, Records};
use crate::log::superblock::Superblock;
use crate::log::{self, LogPosition, UNIT_HEADER_BYTES, UnitHeader};
use crate::model::counts::RecoveryReport;
use crate::open::replay::apply_record;
use crate::upkeep::lost::LostRows;

const PAGE: u64 = PAGE_BYTES as u64;
/// Max bytes of a log that is read; larger ones are never created.
const RING_BYTES_MAX: u64 = 1 << 36;

/// Intact commit.
pub(super) struct Unit {
    pub(super) header: UnitHeader,
    pub(super) records: Vec<u8>,
}

/// Instants of the commits before and after damage of the log, nanoseconds since 1970 UTC; `None` if there is none.
pub(super) type LogSpan = (Option<i64>, Option<i64>);

/// Finds the units of a log that may hold rows missing in segments: from the tail as long as they follow each other,
/// and behind a damaged one those that may belong to the same run. Also returns where units are missing.
pub(super) fn units(
    source: &Source,
    superblock: Option<&Superblock>,
    report: &mut RepairReport,
) -> io::Result<(Vec<Unit>, Vec<LogSpan>)> {
    let Some(file) = source.file(names::LOG)? else {
        report.damaged(names::LOG, 0, "missing");
        return Ok((Vec::new(), vec![(None, None)]));
    };
    let mut missing = Vec::new();
    let size = file.size()?;
    let ring = superblock.map_or(size, |superblock| superblock.log_bytes).min(RING_BYTES_MAX) / PAGE * PAGE;
    if size < ring {
        report.damaged(names::LOG, size, format!("shorter than its {ring} bytes"));
        missing.push((None, None));
    }
    if ring == 0 {
        return Ok((Vec::new(), missing));
    }
    let tail = superblock.map(|superblock| superblock.tail);
    let in_order = positions(&*file, ring, size, tail.map(|tail| tail.position))?;
    let mut units: Vec<Unit> = Vec::new();
    // End of the newest valid unit, and the link that the next one must follow.
    let (mut end, mut last) = (LogPosition::default(), tail);
    for header in in_order {
        let follows = last.is_none_or(|last| header.follows(&last));
        let plausible = last.is_none_or(|last| header.commit > last.commit && header.epoch >= last.epoch);
        if header.position < end || !plausible {
            continue;
        }
        let Some(records) = records(&*file, ring, &header)? else {
            continue;
        };
        if !follows {
            let first = last.map_or(0, |last| last.commit) + 1;
            let reason = format!("commits {first} to {} are damaged or missing", header.commit - 1);
            report.damaged(names::LOG, end.offset(ring), reason);
            missing.push((units.last().map(|unit| unit.header.instant), Some(header.instant)));
        }
        last = Some(header.link());
        end = header.link().position;
        units.push(Unit { header, records });
    }
    if let Some(last) = last
        && LogReader::new(ring, last, |bytes, at| file.read_at(bytes, at)).torn_bytes()? > 0
    {
        let reason = "the commit behind the last whole one was cut, or is damaged";
        report.damaged(names::LOG, last.position.offset(ring), reason);
        missing.push((units.last().map(|unit| unit.header.instant), None));
    }
    Ok((units, missing))
}

/// Returns the headers in the ring by position: those of the lap from the tail or, if that is not known, of the
/// newest lap.
fn positions(file: &dyn DiskFile, ring: u64, size: u64, tail: Option<LogPosition>) -> io::Result<Vec<UnitHeader>> {
    let mut headers = Vec::new();
    let mut at = 0;
    while at < ring.min(size) {
        let len = (1 << 20).min(ring.min(size) - at);
        let piece = read_exact(file, at, len as usize)?;
        for (n, page) in piece.chunks(PAGE_BYTES).enumerate() {
            let place = at + n as u64 * PAGE;
            headers.extend(UnitHeader::decode(page).filter(|header| {
                header.position.offset(ring) == place
                    && header.len.is_multiple_of(8)
                    && log::unit_bytes(header.len as usize) <= ring
                    && header.commit > 0
                    && header.commit < u64::MAX
            }));
        }
        at += len;
    }
    headers.sort_by_key(|header| header.position);
    // A lap ends where the newest unit does.
    let newest_lap = || headers.last().map(|last| last.link().position.back(ring));
    let from = tail.or_else(newest_lap).unwrap_or_default();
    headers.retain(|header| header.position >= from && header.position - from < ring);
    Ok(headers)
}

/// Reads the records of a unit, or returns `None` if their checksum does not match.
fn records(file: &dyn DiskFile, ring: u64, header: &UnitHeader) -> io::Result<Option<Vec<u8>>> {
    let start = header.position.offset(ring) + UNIT_HEADER_BYTES as u64;
    let first = u64::from(header.len).min(ring - start) as usize;
    let mut bytes = vec![0; header.len as usize];
    let (head, rest) = bytes.split_at_mut(first);
    let read = file.read_at(head, start)? + if rest.is_empty() { 0 } else { file.read_at(rest, 0)? };
    Ok((read == bytes.len() && crc32c::crc32c(&bytes) == header.crc).then_some(bytes))
}

/// Applies the records of a unit as recovery will. Returns how many bytes of them fit. Stops before a record of a
/// stream that is `undefined`, whose length and meaning are not known.
pub(super) fn fit(writer: &mut Writer, unit: &Unit, undefined: &BTreeSet<u32>, lost: &mut Vec<LostRows>) -> usize {
    let mut records = Records::new(&unit.records);
    let mut scratch = (Vec::new(), Vec::new());
    let mut report = RecoveryReport::default();
    let mut fits = 0;
    loop {
        let mut ahead = records;
        let of = match ahead.next_record() {
            Some(Record::Frame { stream, .. }) => Some(stream),
            Some(Record::Control { mut content, .. }) => content.u32("stream").ok(),
            None => return fits,
        };
        if of.is_none_or(|stream| undefined.contains(&stream)) {
            return fits;
        }
        match apply_record(writer, &mut records, &mut scratch, unit.header.instant, (&mut report, lost)) {
            Ok(true) => fits = unit.records.len() - records.remaining(),
            _ => return fits,
        }
    }
}
