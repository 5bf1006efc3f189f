//! The state of a stream's sequence as checkpoints keep it.
//!
//! ```text
//! u32 stream, u64 rows that it knows, u8 sessions (1, or 2: the newest and the one before), of each:
//!   u32 number, u8 flags: 1 a range, 2 a first and 4 a newest source_time, 8 a least one, 16 one that was ahead
//!   with 1: i64 lowest, i64 highest sequence; i64 receive_time of the first, i64 of the newest frame
//!   with 2, 4, 8: i64 each; with 16: i64 source_time, i64 its receive_time
//!   u16 intervals that were not seen, ascending, of each: varint sequences seen between the end of the one before
//!   (the lowest sequence) and it, varint sequences − 1, zigzag gap less the one before (wrapping)
//! ```

use super::SequenceTracker;
use super::session::{INTERVALS_MAX, MissingRange, Session, UNKNOWN_GAP, can_be};
use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, check_limit_at, put_signed, put_varint};

const RANGE: u8 = 1;
const FIRST_SOURCE: u8 = 2;
const NEWEST_SOURCE: u8 = 4;
const SOURCE_MIN: u8 = 8;
const AHEAD: u8 = 16;

/// Saved state as of the rows before `next_row`.
#[derive(Clone, Debug)]
pub(crate) struct SavedSequence {
    pub(crate) stream: u32,
    next_row: u64,
    /// The newest session, and the one before it if remembered.
    sessions: Vec<Session>,
}

impl SavedSequence {
    /// Copies the state of a tracker. Gaps whose row waits to be written have no name yet.
    pub(crate) fn of(stream: u32, next_row: u64, tracker: &SequenceTracker, waits: impl Fn(u64) -> bool) -> Self {
        let mut sessions: Vec<Session> = tracker.sessions().cloned().collect();
        for interval in sessions.iter_mut().flat_map(|session| &mut session.missing) {
            if waits(interval.gap) {
                interval.gap = UNKNOWN_GAP;
            }
        }
        SavedSequence { stream, next_row, sessions }
    }

    /// Returns whether frames are missing in it without a named gap, so that it must be saved again.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.sessions.iter().any(|session| session.unnamed().is_some())
    }

    /// Encodes it in at most `room` bytes, without the lowest intervals if they do not fit. Returns `None` if nothing
    /// fits.
    pub(crate) fn encode_within(&self, room: usize) -> Option<Vec<u8>> {
        let whole = self.encode();
        if whole.len() <= room {
            return Some(whole);
        }
        let mut fewer = SavedSequence { sessions: self.sessions[..1].to_vec(), ..*self };
        loop {
            let bytes = fewer.encode();
            if bytes.len() <= room {
                return Some(bytes);
            }
            let intervals = fewer.sessions[0].missing.len();
            if intervals == 0 {
                return None;
            }
            fewer.sessions[0].forget_lowest(intervals.div_ceil(2));
        }
    }

    /// Encodes all of it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut p = Put::default();
        p.u32(self.stream);
        p.u64(self.next_row);
        p.u8(self.sessions.len() as u8);
        self.sessions.iter().for_each(|session| put_session(session, &mut p));
        p.0
    }

    /// Decodes it.
    ///
    /// # Errors
    /// If a field is cut or invalid.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<SavedSequence, FormatError> {
        let (stream, next_row) = (cursor.u32("stream")?, cursor.u64("rows")?);
        let begin = *cursor;
        let count = cursor.u8("number of sessions")?;
        if !(1..=2).contains(&count) {
            return Err(begin.invalid("number of sessions", "neither 1 nor 2"));
        }
        let sessions = (0..count).map(|_| take_session(cursor)).collect::<Result<Vec<_>, _>>()?;
        Ok(SavedSequence { stream, next_row, sessions })
    }

    /// Restores the state of a tracker.
    pub(crate) fn restore(self, tracker: &mut SequenceTracker) {
        let mut sessions = self.sessions.into_iter();
        if let Some(newest) = sessions.next() {
            tracker.session = newest;
        }
        tracker.ended = sessions.next().filter(|ended| ended.number < tracker.session.number).map(Box::new);
        (tracker.known_row, tracker.is_position) = (self.next_row, false);
    }
}

fn put_session(session: &Session, p: &mut Put) {
    let sources = [session.begun.1, session.newest.1, session.least_source];
    let mut flags = if session.range.is_some() { RANGE } else { 0 };
    for (source, flag) in sources.iter().zip([FIRST_SOURCE, NEWEST_SOURCE, SOURCE_MIN]) {
        flags |= if source.is_some() { flag } else { 0 };
    }
    flags |= if session.ahead.is_some() { AHEAD } else { 0 };
    p.u32(session.number);
    p.u8(flags);
    let (lowest, _) = session.range.unwrap_or_default();
    if let Some((lowest, highest)) = session.range {
        p.i64(lowest);
        p.i64(highest);
    }
    p.i64(session.begun.0);
    p.i64(session.newest.0);
    sources.into_iter().flatten().for_each(|source| p.i64(source));
    if let Some((source, received)) = session.ahead {
        p.i64(source);
        p.i64(received);
    }
    p.u16(session.missing.len() as u16);
    let (mut at, mut gap) = (lowest, 0u64);
    for interval in &session.missing {
        put_varint(&mut p.0, interval.from.abs_diff(at));
        put_varint(&mut p.0, interval.to.abs_diff(interval.from));
        put_signed(&mut p.0, interval.gap.wrapping_sub(gap) as i64);
        (at, gap) = (interval.to + 1, interval.gap);
    }
}

fn take_session(cursor: &mut Cursor<'_>) -> Result<Session, FormatError> {
    let number = cursor.u32("number of a session")?;
    let flags = cursor.u8("flags of a session")?;
    let mut session = Session::new(number);
    if flags & RANGE != 0 {
        let begin = *cursor;
        let (low, high) = (cursor.i64("lowest sequence")?, cursor.i64("highest sequence")?);
        if !(can_be(low) && can_be(high) && low <= high + 1) {
            return Err(begin.invalid("lowest sequence", "no range with the highest one"));
        }
        session.range = Some((low, high));
    }
    session.begun.0 = cursor.i64("receive_time of the first frame")?;
    session.newest.0 = cursor.i64("receive_time of the newest frame")?;
    let mut time = |flag: u8, what| if flags & flag != 0 { cursor.i64(what).map(Some) } else { Ok(None) };
    session.begun.1 = time(FIRST_SOURCE, "source_time of the first frame")?;
    session.newest.1 = time(NEWEST_SOURCE, "source_time of the newest frame")?;
    session.least_source = time(SOURCE_MIN, "min source_time")?;
    session.ahead = time(AHEAD, "source_time ahead")?.zip(time(AHEAD, "receive_time of the source_time ahead")?);
    let offset = Some(cursor.offset());
    let count = cursor.u16("number of intervals")?;
    let count = check_limit_at("number of intervals", offset, count.into(), INTERVALS_MAX)?;
    let (mut at, mut gap) = (session.range.unwrap_or_default().0, 0u64);
    let highest = session.range.map(|(_, high)| high);
    for _ in 0..count {
        let begin = *cursor;
        let beyond = || begin.invalid("interval", "beyond the highest sequence");
        let from = at.checked_add_unsigned(cursor.varint("interval")?).ok_or_else(beyond)?;
        let to = from.checked_add_unsigned(cursor.varint("length of an interval")?).ok_or_else(beyond)?;
        gap = gap.wrapping_add(cursor.signed("gap of an interval")? as u64);
        if highest.is_none_or(|high| to > high) {
            return Err(beyond());
        }
        session.missing.push(MissingRange { from, to, gap });
        at = to.checked_add(1).ok_or_else(beyond)?;
    }
    Ok(session)
}
