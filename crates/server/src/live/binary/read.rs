//! Reader of live messages in binary, for clients. No input makes it panic, and its memory is bounded by the size of
//! the input, whatever the input claims.

use strongback_store::{ChannelType, Value};

use super::{
    BEHIND, COMMIT, DROPPED, ENDED, GAP, HEARTBEAT, HISTORY, LAST_DATA, LOOP, MEAN, NOTES, ONE, PAUSED, PLAYBACK,
    PLAYBACK_DROPPED, RANGE, RECORDED, ROWS, SERIES_HEAD, SOURCE_HEAD, UPDATE, WIDE, WINDOW_HEAD,
};
use crate::live::cell_notes::CellNotes;
use crate::live::heartbeat::PlaybackState;

/// Message of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadMessage<'a> {
    /// Values received since the previous update.
    Update(Update<'a>),
    /// History, or a part of one.
    History(ReadHistory<'a>),
    /// Heartbeat of the server.
    Heartbeat(ReadHeartbeat<'a>),
    /// Heartbeat of a playback.
    Playback(ReadPlayback<'a>),
    /// Unknown kind, to be ignored.
    Unknown(u8),
}

/// Values received since the previous update.
#[derive(Clone, Debug, PartialEq)]
pub struct Update<'a> {
    /// Client's number for the subscription.
    pub id: i64,
    /// Epoch of the rows.
    pub epoch: u32,
    /// The server's clock, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Updates merged because the client was slow.
    pub conflated: u32,
    /// Notices lost.
    pub dropped: u32,
    /// Windows, by stream.
    pub windows: Vec<ReadWindow<'a>>,
}

/// Values received from one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadWindow<'a> {
    /// Number of the stream.
    pub stream: u32,
    /// First row and the row after the last, of the stored frames.
    pub rows: Option<(u64, u64)>,
    /// Row below which all are durable.
    pub committed: u64,
    /// Whether every frame was stored.
    pub recorded: bool,
    /// Whether frames are known missing.
    pub gap: bool,
    /// Times of the first and last frame, nanoseconds since 1970 UTC.
    pub time: (i64, i64),
    /// Receive time of the last frame, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Values, by channel number.
    pub cells: Vec<(u32, ReadCell<'a>)>,
    /// Notes on the cells.
    pub notes: CellNotes,
}

/// Values received from one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadCell<'a> {
    /// Number of values.
    pub count: u64,
    /// First value.
    pub first: Value<'a>,
    /// Last value.
    pub last: Value<'a>,
    /// Min and max.
    pub range: Option<(Value<'a>, Value<'a>)>,
    /// Mean of the finite values.
    pub mean: Option<f64>,
}

/// History, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadHistory<'a> {
    /// Client's number for the subscription.
    pub id: i64,
    /// Numbers of the streams, and the rows at which their tails begin.
    pub rows: Vec<(u32, u64)>,
    /// Channels of the history.
    pub series: Vec<ReadSeries<'a>>,
}

/// One channel of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSeries<'a> {
    /// Number of the channel.
    pub channel: u32,
    /// Time ranges in which frames are known missing, nanoseconds since 1970 UTC.
    pub gaps: Vec<(i64, i64)>,
    /// Buckets by their start, nanoseconds since 1970 UTC.
    pub buckets: Vec<(i64, ReadCell<'a>)>,
    /// Notes on the buckets.
    pub notes: CellNotes,
}

/// Heartbeat of the server, with its status.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadHeartbeat<'a> {
    /// The server's clock, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Epoch of the store.
    pub epoch: u32,
    /// State of recording.
    pub store: &'a str,
    /// Duration of the newest commit, in milliseconds.
    pub commit_ms: Option<f64>,
    /// Values received per second.
    pub points_per_s: f64,
    /// Datagrams dropped by the kernel.
    pub ingest_dropped: u64,
    /// Receive time of the newest frame, nanoseconds since 1970 UTC.
    pub last_data: Option<i64>,
    /// Name, status, frames per second and missing frames of each source.
    pub sources: Vec<(&'a str, &'a str, f64, u64)>,
    /// Notices that the connection lost in total.
    pub dropped: u32,
}

/// Heartbeat of a playback.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadPlayback<'a> {
    /// Epoch of the store.
    pub epoch: u32,
    /// State of recording.
    pub store: &'a str,
    /// State of the playback.
    pub state: PlaybackState,
    /// Notices that the connection lost in total.
    pub dropped: u32,
}

/// Error of bytes that are not a valid live message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// Field that extends beyond the end of the message or of its part.
    #[error("truncated live message")]
    Short,
    /// Part that claims to be shorter than its head, or text that is not UTF-8.
    #[error("malformed live message")]
    Wrong,
}

/// Reads a message.
///
/// # Errors
/// Returns an error if the bytes are not a live message, or only a part of one.
pub fn read(bytes: &[u8]) -> Result<ReadMessage<'_>, Damaged> {
    let mut rest = UnreadBytes(bytes);
    match rest.byte()? {
        UPDATE => update(rest).map(ReadMessage::Update),
        HISTORY => history(rest).map(ReadMessage::History),
        HEARTBEAT => heartbeat(rest).map(ReadMessage::Heartbeat),
        PLAYBACK => playback(rest).map(ReadMessage::Playback),
        kind => Ok(ReadMessage::Unknown(kind)),
    }
}

fn update(mut rest: UnreadBytes<'_>) -> Result<Update<'_>, Damaged> {
    rest.take(3)?;
    let epoch = rest.u32()?;
    let id = rest.i64()?;
    let time = rest.i64()?;
    let (conflated, dropped) = (rest.u32()?, rest.u32()?);
    let windows = (0..rest.u32()?).map(|_| window(rest.part(WINDOW_HEAD)?)).collect::<Result<_, Damaged>>()?;
    Ok(Update { id, epoch, time, conflated, dropped, windows })
}

fn window(mut rest: UnreadBytes<'_>) -> Result<ReadWindow<'_>, Damaged> {
    let stream = rest.u32()?;
    let flags = rest.u32()?;
    let count = rest.u32()?;
    let rows = (rest.u64()?, rest.u64()?);
    let committed = rest.u64()?;
    let time = (rest.i64()?, rest.i64()?);
    let receive_time = rest.i64()?;
    let mut cells = Vec::new();
    for _ in 0..count {
        let channel = rest.u32()?;
        let Some(cell) = cell(&mut rest)? else { break };
        cells.push((channel, cell));
    }
    let has_notes = flags & NOTES != 0 && cells.len() == count as usize;
    Ok(ReadWindow {
        stream,
        rows: (flags & ROWS != 0).then_some(rows),
        committed,
        recorded: flags & RECORDED != 0,
        gap: flags & GAP != 0,
        time,
        receive_time,
        cells,
        notes: if has_notes { notes(&mut rest)? } else { CellNotes::default() },
    })
}

/// Reads a cell, or `None` if its type or shape is unknown; the rest of its part is then unreadable.
fn cell<'a>(rest: &mut UnreadBytes<'a>) -> Result<Option<ReadCell<'a>>, Damaged> {
    let (code, shape) = (rest.byte()?, rest.byte()?);
    let known = ChannelType::from_code(code).filter(|t| t.is_scalar() || *t == ChannelType::String);
    let (Some(kind), true) = (known, shape & !(ONE | RANGE | MEAN | WIDE) == 0) else { return Ok(None) };
    if shape & ONE != 0 {
        let value = rest.value(kind)?;
        let range = (shape & RANGE != 0).then_some((value, value));
        let mean = if shape & MEAN != 0 { value.as_f64() } else { None };
        return Ok(Some(ReadCell { count: 1, first: value, last: value, range, mean }));
    }
    let count = if shape & WIDE != 0 { rest.u64()? } else { rest.u32()? as u64 };
    let (first, last) = (rest.value(kind)?, rest.value(kind)?);
    let range = if shape & RANGE != 0 { Some((rest.value(kind)?, rest.value(kind)?)) } else { None };
    let mean = if shape & MEAN != 0 { Some(rest.f64()?) } else { None };
    Ok(Some(ReadCell { count, first, last, range, mean }))
}

fn history(mut rest: UnreadBytes<'_>) -> Result<ReadHistory<'_>, Damaged> {
    rest.take(3)?;
    let rows = rest.u32()?;
    let id = rest.i64()?;
    let series = rest.u32()?;
    let rows = (0..rows).map(|_| Ok((rest.u32()?, rest.u64()?))).collect::<Result<_, Damaged>>()?;
    let series = (0..series).map(|_| self::series(rest.part(SERIES_HEAD)?)).collect::<Result<_, Damaged>>()?;
    Ok(ReadHistory { id, rows, series })
}

fn series(mut rest: UnreadBytes<'_>) -> Result<ReadSeries<'_>, Damaged> {
    let channel = rest.u32()?;
    let (gaps, count) = (rest.u32()?, rest.u32()?);
    let gaps = (0..gaps).map(|_| Ok((rest.i64()?, rest.i64()?))).collect::<Result<_, Damaged>>()?;
    let mut buckets = Vec::new();
    for _ in 0..count {
        let t0 = rest.i64()?;
        let Some(cell) = cell(&mut rest)? else { break };
        buckets.push((t0, cell));
    }
    let has_notes = buckets.len() == count as usize && !rest.0.is_empty();
    let notes = if has_notes { notes(&mut rest)? } else { CellNotes::default() };
    Ok(ReadSeries { channel, gaps, buckets, notes })
}

/// Reads notes, up to the first of an unknown type.
fn notes(rest: &mut UnreadBytes<'_>) -> Result<CellNotes, Damaged> {
    let mut notes = CellNotes::default();
    for _ in 0..rest.u32()? {
        notes.changed.push(rest.u32()?);
    }
    for _ in 0..rest.u32()? {
        let (place, code) = (rest.u32()?, rest.byte()?);
        let Some(kind) = ChannelType::from_code(code).filter(|kind| kind.is_scalar()) else { break };
        notes.finite.push((place, rest.number(kind)?, rest.number(kind)?));
    }
    Ok(notes)
}

fn heartbeat(mut rest: UnreadBytes<'_>) -> Result<ReadHeartbeat<'_>, Damaged> {
    let flags = rest.byte()?;
    rest.take(2)?;
    let epoch = rest.u32()?;
    let time = rest.i64()?;
    let last_data = rest.i64()?;
    let (commit_ms, points_per_s) = (rest.f64()?, rest.f64()?);
    let ingest_dropped = rest.u64()?;
    let count = rest.u32()?;
    let store = rest.text()?;
    let mut sources = Vec::new();
    for _ in 0..count {
        let mut part = rest.part(SOURCE_HEAD)?;
        let (rate_hz, lost) = (part.f64()?, part.u64()?);
        sources.push((part.text()?, part.text()?, rate_hz, lost));
    }
    Ok(ReadHeartbeat {
        time,
        epoch,
        store,
        commit_ms: (flags & COMMIT != 0).then_some(commit_ms),
        points_per_s,
        ingest_dropped,
        last_data: (flags & LAST_DATA != 0).then_some(last_data),
        sources,
        dropped: if flags & DROPPED != 0 { rest.u32()? } else { 0 },
    })
}

fn playback(mut rest: UnreadBytes<'_>) -> Result<ReadPlayback<'_>, Damaged> {
    let flags = rest.byte()?;
    rest.take(2)?;
    let epoch = rest.u32()?;
    let (at, from, to) = (rest.i64()?, rest.i64()?, rest.i64()?);
    let speed = rest.f64()?;
    let round = rest.u64()?;
    let wall_ns = rest.i64()?;
    let viewers = rest.u32()?;
    let store = rest.text()?;
    let (id, name) = (rest.text()?.to_owned(), rest.text()?.to_owned());
    let [paused, looped, ended, behind] = [PAUSED, LOOP, ENDED, BEHIND].map(|flag| flags & flag != 0);
    let state = PlaybackState { id, name, from, to, at, speed, paused, looped, ended, viewers, behind, round, wall_ns };
    let dropped = if flags & PLAYBACK_DROPPED != 0 { rest.u32()? } else { 0 };
    Ok(ReadPlayback { epoch, store, state, dropped })
}

/// Bytes not yet read.
#[derive(Clone, Copy)]
struct UnreadBytes<'a>(&'a [u8]);

impl<'a> UnreadBytes<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(Damaged::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads the length of a part, which must be `least` or more, and returns the bytes after the length.
    fn part(&mut self, least: usize) -> Result<UnreadBytes<'a>, Damaged> {
        let length = self.u32()? as usize;
        if length < least {
            return Err(Damaged::Wrong);
        }
        self.take(length - 4).map(UnreadBytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damaged::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, Damaged> {
        self.array().map(i64::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, Damaged> {
        self.array().map(f64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, Damaged> {
        let size = self.u32()? as usize;
        std::str::from_utf8(self.take(size)?).map_err(|_| Damaged::Wrong)
    }

    /// Reads a value of a scalar type, or a text.
    fn value(&mut self, kind: ChannelType) -> Result<Value<'a>, Damaged> {
        if kind == ChannelType::String {
            return self.text().map(Value::String);
        }
        self.number(kind)
    }

    /// Reads a value of a scalar type.
    fn number(&mut self, kind: ChannelType) -> Result<Value<'static>, Damaged> {
        let bytes = self.take(kind.size_bytes())?;
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(bits);
        Ok(match kind {
            ChannelType::Bool => Value::Bool(bits == 1),
            _ => Value::from_bits(kind, bits),
        })
    }
}
