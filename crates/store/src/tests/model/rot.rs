//! Bits that flip while a store lies there: what is read afterwards was written, and what is missing is told.

use super::rotten::Known;
use super::{Checked, Model, ensure, open_on};
use crate::disk::{Disk, PAGE_BYTES, names};
use crate::log::{UNIT_HEADER_BYTES, UnitHeader};
use crate::*;

impl Model {
    /// Flips bits of one file at the end of a run, reads, opens it again and reads.
    pub(super) fn rot(&mut self) -> Checked {
        self.disk.heal();
        if self.disk.is_cut() || self.store.refusal().is_some_and(|r| matches!(r, Refusal::Poisoned(_))) {
            self.errors = 0;
            self.recover()?;
            self.disk.heal();
        }
        self.commit()?;
        if self.random.bool() {
            self.store.close(self.now).map_err(|refusal| format!("cannot close: {refusal}"))?;
            self.store = open_on(&self.disk, self.fixed, self.now).map_err(|error| format!("cannot open: {error}"))?;
        }
        // What is there now: sealing may have written over the oldest.
        self.check_all()?;
        let files = Disk::list(&self.disk).map_err(|e| e.to_string())?;
        let (file, _) = &files[self.random.usize(..files.len())];
        let mut flips = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let Some(at) = self.place_to_rot(file) else { return Ok(()) };
            flips.push(at);
            self.disk.rot(file, at, 1 << self.random.u8(0..8));
        }
        self.check_rotten(false).map_err(|error| format!("{file} rots at {flips:?}: {error}"))?;
        self.disk = self.disk.after_cut();
        match open_on(&self.disk, self.fixed, self.now) {
            Ok(store) => self.store = store,
            // Refused as a whole, with its reason.
            Err(OpenError::Damaged { .. } | OpenError::Newer { .. } | OpenError::Copied { .. }) => return Ok(()),
            Err(error) => return Err(format!("{file} rots: cannot open: {error}")),
        }
        let report = self.store.recovery();
        let told = !report.damaged.is_empty() || report.torn_bytes > 0 || report.lost_rows > 0;
        self.camera_after_rot();
        self.check_rotten(told)
            .and_then(|()| self.live_on())
            .map_err(|error| format!("{file} rots at {flips:?}: {error}; {report:?}"))
    }

    /// A byte of a file; of the log often one of its newest commits.
    fn place_to_rot(&mut self, file: &str) -> Option<usize> {
        let log = self.disk.content(file).filter(|_| file == names::LOG && self.random.bool());
        let mut units: Vec<(u64, usize, usize)> = Vec::new();
        for (page, bytes) in log.iter().flat_map(|log| log.chunks(PAGE_BYTES).enumerate()) {
            let header = UnitHeader::decode(bytes);
            units.extend(header.map(|unit| (unit.commit, page * PAGE_BYTES, unit.len as usize)));
        }
        units.sort_unstable();
        let newest = &units[units.len().saturating_sub(5)..];
        if let Some(&(_, begin, len)) = self.random.choice(newest) {
            let within = if self.random.bool() { UNIT_HEADER_BYTES } else { UNIT_HEADER_BYTES + len };
            // Of the last page, the header may name more bytes than the log has.
            let at = begin + self.random.usize(..within);
            return Some(at.min(log.map_or(0, |log| log.len() - 1)));
        }
        // What is all zeros may become anything: nobody reads it.
        let written = self.disk.written(file);
        self.random.choice(&written).copied()
    }

    /// Nothing is read that was not written; what is missing is `told`, or by the reader.
    fn check_rotten(&mut self, mut told: bool) -> Checked {
        self.check_camera(true)?;
        let catalog = self.store.catalog();
        let view = self.store.view();
        let mut missing = Vec::new();
        for stream in &self.streams {
            let Some(have) = catalog.streams.iter().find(|have| have.key == stream.spec.key) else {
                if stream.acknowledged > 0 {
                    missing.push(format!("stream {}", stream.spec.key));
                }
                continue;
            };
            let columns = (0..have.layout.channels.len() as u16).map(ChannelIndex).collect();
            let known = Known::read(stream, &view, Scan::all(have.id, columns))?;
            told |= known.unreadable > 0;
            let rows = known.rows.len();
            let there = view.time_range(have.id);
            if rows < stream.acknowledged - stream.first.min(stream.acknowledged) {
                missing.push(format!(
                    "{rows} of {} rows of {} from {}, in {there:?}",
                    stream.acknowledged - stream.first,
                    stream.spec.key,
                    stream.first
                ));
            }
        }
        ensure(told || missing.is_empty(), || format!("nobody tells of {missing:?} in {:?}", self.store.segments()))
    }
}
