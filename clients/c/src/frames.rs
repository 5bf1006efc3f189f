//! Frames under way.

use std::ffi::{c_char, c_int};

use store::{CellState, ChannelIndex, FrameBatch, FrameHead, StreamId, Value};

use crate::fault::{Code, Fault, guard};
use crate::pointer;

/// `strongback_frames`.
#[derive(Default)]
pub struct StrongbackFrames {
    pub(crate) batch: FrameBatch,
    begun: bool,
}

impl StrongbackFrames {
    /// Ends the frame under way, if any.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.batch.end();
        }
    }
}

/// See the header.
///
/// # Safety
/// `frames` points at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_frames_new(frames: *mut *mut StrongbackFrames) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises. Before anything is made: a null pointer would leak it.
        unsafe { pointer::write(frames, std::ptr::null_mut(), "frames") }?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write(frames, Box::into_raw(Box::default()), "frames") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `frames` is null, or came from [`strongback_frames_new`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_frames_free(frames: *mut StrongbackFrames) {
    guard(|| {
        if !frames.is_null() {
            // SAFETY: it came from Box::into_raw, and by the caller's promise nobody has it any more.
            drop(unsafe { Box::from_raw(frames) });
        }
        Ok(Code::Ok)
    });
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_frame(frames: *mut StrongbackFrames, stream: u32, time: i64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let frames = unsafe { pointer::exclusive(frames, "frames") }?;
        frames.end();
        let stream = StreamId(stream);
        frames.batch.begin(FrameHead { stream, receive_time: time, source_time: None, sequence: None });
        frames.begun = true;
        Ok(Code::Ok)
    })
}

/// Adds a cell to the frame under way.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
unsafe fn put(frames: *mut StrongbackFrames, channel: u16, cell: Result<Value<'_>, CellState>) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let frames = unsafe { pointer::exclusive(frames, "frames") }?;
        if !frames.begun {
            return Err(Fault::new(Code::Argument, "no frame was begun: strongback_frame first"));
        }
        match cell {
            Ok(value) => frames.batch.push(ChannelIndex(channel), value),
            Err(state) => frames.batch.push_state(ChannelIndex(channel), state),
        }
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_bool(frames: *mut StrongbackFrames, channel: u16, value: bool) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::Bool(value))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_i64(frames: *mut StrongbackFrames, channel: u16, value: i64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::I64(value))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_u64(frames: *mut StrongbackFrames, channel: u16, value: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::U64(value))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_f32(frames: *mut StrongbackFrames, channel: u16, value: f32) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::F32(value))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_f64(frames: *mut StrongbackFrames, channel: u16, value: f64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::F64(value))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`]; `bytes` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_text(
    frames: *mut StrongbackFrames,
    channel: u16,
    bytes: *const c_char,
    length: usize,
) -> c_int {
    let mut text = "";
    let read = guard(|| {
        // SAFETY: as the caller promises.
        let bytes = unsafe { pointer::slice(bytes.cast::<u8>(), length, "bytes") }?;
        text = std::str::from_utf8(bytes).map_err(|_| Fault::new(Code::Argument, "the text is not UTF-8"))?;
        Ok(Code::Ok)
    });
    if read != Code::Ok as c_int {
        return read;
    }
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Ok(Value::String(text))) }
}

/// See the header.
///
/// # Safety
/// `frames` came from [`strongback_frames_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_put_unknown(frames: *mut StrongbackFrames, channel: u16) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { put(frames, channel, Err(CellState::Unknown)) }
}
