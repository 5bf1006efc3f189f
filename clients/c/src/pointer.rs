//! Pointers of C, checked as far as they can be.

use std::ffi::{CStr, c_char};

use crate::fault::{Code, Fault};

fn null(what: &str) -> Fault {
    Fault::new(Code::Argument, format!("{what} is null"))
}

/// What a pointer points at.
///
/// # Safety
/// It is null, or points at a `T` that nobody changes while the result lives.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Fault> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// What a pointer points at, to change.
///
/// # Safety
/// It is null, or points at a `T` that nobody else uses while the result lives.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Fault> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// `count` values one after the other; no pointer is needed for none.
///
/// # Safety
/// It is null, or points at `count` values that nobody changes while the result lives.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's promise for the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Text that a zero byte ends.
///
/// # Safety
/// It is null, or points at text that a zero byte ends and nobody changes while the result lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Fault> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's promise for the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Fault::new(Code::Argument, format!("{what} is not UTF-8")))
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// It is null, or points at room for a `T`, initialised or not.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T, what: &str) -> Result<(), Fault> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's promise for the rest.
    unsafe { pointer.write(value) };
    Ok(())
}

/// As [`write`], where null says that nobody wants it.
///
/// # Safety
/// As [`write`].
pub(crate) unsafe fn write_wanted<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null, and the caller's promise for the rest.
        unsafe { pointer.write(value) };
    }
}
