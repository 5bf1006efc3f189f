//! Readings: a value at an instant, and what a channel weighs over a span.

use std::ffi::{c_char, c_int};

use store::{CellState, ChannelIndex, OwnedValue, StreamId};

use crate::fault::{Code, Fault, guard};
use crate::pointer;
use crate::store::StrongbackStore;
use crate::value::{Held, StrongbackValue, Text};

/// `strongback_weight`.
#[repr(C)]
pub struct StrongbackWeight {
    count: u64,
    min: f64,
    max: f64,
    min_time: i64,
    max_time: i64,
    time_mean: f64,
    known_s: f64,
}

/// See the header.
///
/// # Safety
/// `store` came from `strongback_open`; `value` points at room, `since` too or is null, `text` at `room` bytes.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn strongback_value_at(
    store: *const StrongbackStore,
    stream: u32,
    channel: u16,
    time: i64,
    value: *mut StrongbackValue,
    since: *mut i64,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        let kind = store.channel(stream, channel)?.channel_type;
        let found = store.store.view().value_at(StreamId(stream), ChannelIndex(channel), time)?;
        let found = found.ok_or_else(|| {
            Fault::new(Code::NotFound, format!("stream {stream}, channel {channel}: nothing is known at {time}"))
        })?;
        let cell = found.value.as_ref().map(OwnedValue::as_value).ok_or(CellState::Unknown);
        let mut told = StrongbackValue::of(kind, cell);
        if let Some(OwnedValue::String(whole)) = &found.value {
            let copied = whole.len().min(room);
            if copied > 0 {
                if text.is_null() {
                    return Err(Fault::new(Code::Argument, "text is null"));
                }
                // SAFETY: not null, and the caller promises `room` bytes, of which these are no more.
                unsafe { text.cast::<u8>().copy_from_nonoverlapping(whole.as_ptr(), copied) };
            }
            told.held = Held { text: Text { bytes: text, length: whole.len() } };
        }
        // SAFETY: as the caller promises.
        unsafe { pointer::write(value, told, "value") }?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write_wanted(since, found.since) };
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from `strongback_open`; `weight` points at room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_weigh(
    store: *const StrongbackStore,
    stream: u32,
    channel: u16,
    from: i64,
    to: i64,
    weight: *mut StrongbackWeight,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        store.channel(stream, channel)?;
        let found = store.store.view().weigh(StreamId(stream), ChannelIndex(channel), from..to)?;
        let number = |sample: &Option<store::codec::stats::Sample>| {
            sample.as_ref().and_then(|sample| sample.value.as_f64()).unwrap_or(f64::NAN)
        };
        let told = StrongbackWeight {
            count: found.count,
            min: number(&found.min),
            max: number(&found.max),
            min_time: found.min.map_or(0, |sample| sample.time),
            max_time: found.max.map_or(0, |sample| sample.time),
            time_mean: found.time_mean().unwrap_or(f64::NAN),
            known_s: found.integral.known_ns as f64 / 1e9,
        };
        // SAFETY: as the caller promises.
        unsafe { pointer::write(weight, told, "weight") }?;
        Ok(Code::Ok)
    })
}
