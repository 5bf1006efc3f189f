//! Live messages in binary, for clients that ask for [`PROTOCOL`]. `docs/format/live.md` has the offset tables.
//!
//! Messages are written into a reused buffer in one pass, without lookups. A window has a header of 64 bytes, and a
//! channel with one `f32` takes 10 bytes.

pub mod read;

use strongback_store::ChannelType;

use super::cell_notes::CellNotes;
use super::heartbeat::{Heartbeat, PlaybackBeat};
use super::snapshot::HistoryMessage;
use super::window::{ChannelWindow, TakenWindow};

/// WebSocket subprotocol by which a client asks for this form.
pub const PROTOCOL: &str = "strongback.live.1";

/// Message kind: update.
const UPDATE: u8 = 1;
/// Message kind: history, or a part of one.
const HISTORY: u8 = 2;
/// Message kind: heartbeat.
const HEARTBEAT: u8 = 3;

/// Message kind: heartbeat of a playback.
const PLAYBACK: u8 = 4;

/// Size of a window before its cells, bytes.
const WINDOW_HEAD: usize = 64;
/// Size of a series before its gaps, bytes.
const SERIES_HEAD: usize = 16;
/// Size of a heartbeat before its text, bytes.
const HEARTBEAT_HEAD: usize = 52;
/// Size of a playback's heartbeat before its texts, bytes.
const PLAYBACK_HEAD: usize = 60;
/// Size of a source before its texts, bytes.
const SOURCE_HEAD: usize = 20;

/// Window flag: every frame was stored.
const RECORDED: u32 = 1;
/// Window flag: frames are missing.
const GAP: u32 = 2;
/// Window flag: it has rows.
const ROWS: u32 = 4;
/// Window flag: notes follow its cells.
const NOTES: u32 = 8;

/// Cell shape: it has one value.
const ONE: u8 = 1;
/// Cell shape: it has a range.
const RANGE: u8 = 2;
/// Cell shape: it has a mean.
const MEAN: u8 = 4;
/// Cell shape: its count takes 8 bytes.
const WIDE: u8 = 8;

/// Heartbeat flag: the duration of the newest commit is known.
const COMMIT: u8 = 1;
/// Heartbeat flag: data has been received.
const LAST_DATA: u8 = 2;
/// Heartbeat flag: the number of notices that the client lost is at its end.
const DROPPED: u8 = 4;

/// Playback flag: it is paused.
const PAUSED: u8 = 1;
/// Playback flag: it restarts at its end.
const LOOP: u8 = 2;
/// Playback flag: it is at its end.
const ENDED: u8 = 4;
/// Playback flag: reading cannot keep up.
const BEHIND: u8 = 8;
/// Playback flag: as [`DROPPED`].
const PLAYBACK_DROPPED: u8 = 16;

/// Fields of an update other than its windows.
#[derive(Clone, Copy, Debug)]
pub struct UpdateHead {
    /// Client's number for the subscription.
    pub id: i64,
    /// Epoch of the rows.
    pub epoch: u32,
    /// The server's clock, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Updates merged because the client was slow.
    pub conflated: u64,
    /// Notices lost.
    pub dropped: u64,
}

/// Appends the head of an update that has `windows` windows.
pub fn push_update(out: &mut Vec<u8>, head: &UpdateHead, windows: usize) {
    out.extend_from_slice(&[UPDATE, 0, 0, 0]);
    out.extend_from_slice(&head.epoch.to_le_bytes());
    out.extend_from_slice(&head.id.to_le_bytes());
    out.extend_from_slice(&head.time.to_le_bytes());
    out.extend_from_slice(&at_most(head.conflated).to_le_bytes());
    out.extend_from_slice(&at_most(head.dropped).to_le_bytes());
    push_size(out, windows);
}

/// Appends a window of an update; rows below `committed` are durable.
pub fn push_window(out: &mut Vec<u8>, place: &TakenWindow, committed: u64) {
    let window = &place.window;
    let start = begin_part(out);
    let mut flags = 0;
    for (flag, holds) in [(RECORDED, window.recorded), (GAP, window.gap), (ROWS, window.rows.is_some())] {
        flags |= if holds { flag } else { 0 };
    }
    let (from, to) = window.rows.unwrap_or_default();
    out.extend_from_slice(&place.stream.0.to_le_bytes());
    let flags_at = out.len();
    out.extend_from_slice(&flags.to_le_bytes());
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    for number in [from, to, committed] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [window.time.0, window.time.1, window.receive_time] {
        out.extend_from_slice(&time.to_le_bytes());
    }
    let (mut cells, mut notes) = (0, CellNotes::default());
    for (channel, (id, channel_type)) in window.channels.iter().zip(&place.channels) {
        if channel.count() > 0 {
            notes.add(cells, channel);
            cells += 1;
            out.extend_from_slice(&id.0.to_le_bytes());
            push_cell(out, channel, *channel_type);
        }
    }
    put_size(out, count_at, cells as usize);
    if !notes.is_empty() {
        out[flags_at..flags_at + 4].copy_from_slice(&(flags | NOTES).to_le_bytes());
        push_notes(out, &notes);
    }
    end_part(out, start);
}

/// Encodes a history, or a part of one, as a message.
pub fn history(history: &HistoryMessage) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    out.extend_from_slice(&[HISTORY, 0, 0, 0]);
    push_size(&mut out, history.rows.len());
    out.extend_from_slice(&history.id.to_le_bytes());
    push_size(&mut out, history.streams.iter().map(|stream| stream.series.len()).sum());
    for (stream, row) in &history.rows {
        out.extend_from_slice(&stream.0.to_le_bytes());
        out.extend_from_slice(&row.to_le_bytes());
    }
    for stream in &history.streams {
        for series in &stream.series {
            let start = begin_part(&mut out);
            out.extend_from_slice(&series.channel.id.0.to_le_bytes());
            push_size(&mut out, stream.gaps.len());
            push_size(&mut out, series.buckets.len());
            for (from, to) in &stream.gaps {
                out.extend_from_slice(&from.to_le_bytes());
                out.extend_from_slice(&to.to_le_bytes());
            }
            for (t0, bucket) in &series.buckets {
                out.extend_from_slice(&t0.to_le_bytes());
                push_cell(&mut out, bucket, series.channel.channel_type);
            }
            let notes = series.notes();
            if !notes.is_empty() {
                push_notes(&mut out, &notes);
            }
            end_part(&mut out, start);
        }
    }
    out
}

/// Appends the values of one channel.
fn push_cell(out: &mut Vec<u8>, window: &ChannelWindow, channel_type: ChannelType) {
    let count = window.count();
    let one = count == 1;
    if let Some((first, last)) = window.texts() {
        push_count(out, ChannelType::String, 0, count);
        push_text(out, first);
        if !one {
            push_text(out, last);
        }
        return;
    }
    let numbers = window.numbers(channel_type);
    let shape = if numbers.range.is_some() { RANGE } else { 0 } | if numbers.mean.is_some() { MEAN } else { 0 };
    push_count(out, numbers.channel_type, shape, count);
    let size = numbers.channel_type.size_bytes();
    let mut push = |bits: u64| push_bits(out, bits, size);
    push(numbers.first);
    if one {
        return;
    }
    push(numbers.last);
    if let Some((min, max)) = numbers.range {
        push(min);
        push(max);
    }
    if let Some(mean) = numbers.mean {
        out.extend_from_slice(&mean.to_le_bytes());
    }
}

/// Appends the notes on the preceding cells.
fn push_notes(out: &mut Vec<u8>, notes: &CellNotes) {
    push_size(out, notes.changed.len());
    notes.changed.iter().for_each(|place| out.extend_from_slice(&place.to_le_bytes()));
    push_size(out, notes.finite.len());
    for (place, min, max) in &notes.finite {
        let kind = min.channel_type();
        out.extend_from_slice(&place.to_le_bytes());
        out.push(kind.code());
        for value in [min, max] {
            push_bits(out, value.bits(), kind.size_bytes());
        }
    }
}

/// Appends the lowest `size` bytes. Each size has its own branch, since copies of unknown length are slow.
#[inline]
fn push_bits(out: &mut Vec<u8>, bits: u64, size: usize) {
    match size {
        8 => out.extend_from_slice(&bits.to_le_bytes()),
        4 => out.extend_from_slice(&(bits as u32).to_le_bytes()),
        2 => out.extend_from_slice(&(bits as u16).to_le_bytes()),
        _ => out.push(bits as u8),
    }
}

/// Appends type, shape and count of a cell.
fn push_count(out: &mut Vec<u8>, channel_type: ChannelType, shape: u8, count: u64) {
    out.push(channel_type.code());
    match u32::try_from(count) {
        Ok(1) => out.push(shape | ONE),
        Ok(count) => {
            out.push(shape);
            out.extend_from_slice(&count.to_le_bytes());
        }
        Err(_) => {
            out.push(shape | WIDE);
            out.extend_from_slice(&count.to_le_bytes());
        }
    }
}

/// Encodes a heartbeat as a message.
pub fn heartbeat(beat: &Heartbeat<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEARTBEAT_HEAD + 32 + 64 * beat.sources.len());
    let flags =
        if beat.commit_ms.is_some() { COMMIT } else { 0 } | if beat.last_data.is_some() { LAST_DATA } else { 0 };
    out.extend_from_slice(&[HEARTBEAT, flags, 0, 0]);
    out.extend_from_slice(&beat.epoch.to_le_bytes());
    out.extend_from_slice(&beat.time.to_le_bytes());
    out.extend_from_slice(&beat.last_data.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(&beat.commit_ms.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(&beat.points_per_s.to_le_bytes());
    out.extend_from_slice(&beat.ingest_dropped.to_le_bytes());
    push_size(&mut out, beat.sources.len());
    push_text(&mut out, beat.store);
    for source in &beat.sources {
        let start = begin_part(&mut out);
        out.extend_from_slice(&source.rate_hz.to_le_bytes());
        out.extend_from_slice(&source.lost.to_le_bytes());
        push_text(&mut out, source.name);
        push_text(&mut out, source.status);
        end_part(&mut out, start);
    }
    out
}

/// Returns a heartbeat of either kind with the number of notices that its client lost in total.
pub fn with_dropped(heartbeat: &[u8], dropped: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(heartbeat.len() + 4);
    out.extend_from_slice(heartbeat);
    if let [kind, flags, ..] = &mut out[..] {
        *flags |= if *kind == PLAYBACK { PLAYBACK_DROPPED } else { DROPPED };
    }
    out.extend_from_slice(&at_most(dropped).to_le_bytes());
    out
}

/// Encodes the heartbeat of a playback as a message.
pub fn playback(beat: &PlaybackBeat<'_>) -> Vec<u8> {
    let state = beat.state;
    let mut out = Vec::with_capacity(PLAYBACK_HEAD + 64 + state.name.len());
    let mut flags = 0;
    for (flag, holds) in [(PAUSED, state.paused), (LOOP, state.looped), (ENDED, state.ended), (BEHIND, state.behind)] {
        flags |= if holds { flag } else { 0 };
    }
    out.extend_from_slice(&[PLAYBACK, flags, 0, 0]);
    out.extend_from_slice(&beat.epoch.to_le_bytes());
    for time in [state.at, state.from, state.to] {
        out.extend_from_slice(&time.to_le_bytes());
    }
    out.extend_from_slice(&state.speed.to_le_bytes());
    out.extend_from_slice(&state.round.to_le_bytes());
    out.extend_from_slice(&state.wall_ns.to_le_bytes());
    out.extend_from_slice(&state.viewers.to_le_bytes());
    for text in [beat.store, &state.id, &state.name] {
        push_text(&mut out, text);
    }
    out
}

/// Reserves the length field of a part; returns the start of the part.
fn begin_part(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Fills in the length of a part that ends here.
fn end_part(out: &mut [u8], start: usize) {
    let length = out.len() - start;
    put_size(out, start, length);
}

fn put_size(out: &mut [u8], at: usize, size: usize) {
    out[at..at + 4].copy_from_slice(&at_most(size as u64).to_le_bytes());
}

fn push_size(out: &mut Vec<u8>, size: usize) {
    out.extend_from_slice(&at_most(size as u64).to_le_bytes());
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_size(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn at_most(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
