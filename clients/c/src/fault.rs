//! Codes, and the sentence of the newest error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use store::{OpenError, Refusal, Reject, ScanError};

/// What a call comes to: the numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Ok = 0,
    End = 1,
    Argument = 2,
    NotFound = 3,
    InUse = 4,
    Newer = 5,
    Copied = 6,
    Damaged = 7,
    Options = 8,
    Io = 9,
    Full = 10,
    Poisoned = 11,
    Closed = 12,
    Rejected = 13,
    Expired = 14,
    Internal = 15,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    code: Code,
    message: String,
}

impl Fault {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into() }
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let code = match &error {
            OpenError::InUse { .. } => Code::InUse,
            OpenError::Newer { .. } => Code::Newer,
            OpenError::Copied { .. } => Code::Copied,
            OpenError::Damaged { .. } => Code::Damaged,
            OpenError::Options { .. } => Code::Options,
            OpenError::Gone { .. } | OpenError::Io { .. } => Code::Io,
        };
        Fault::new(code, error.to_string())
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        let code = match &refusal {
            Refusal::DiskFull | Refusal::LogFull => Code::Full,
            Refusal::Poisoned(_) => Code::Poisoned,
            Refusal::Unwritable(_) => Code::Io,
            Refusal::Closed => Code::Closed,
        };
        Fault::new(code, refusal.to_string())
    }
}

impl From<Reject> for Fault {
    fn from(reject: Reject) -> Fault {
        match reject {
            Reject::Refused(refusal) => refusal.into(),
            other => Fault::new(Code::Rejected, other.to_string()),
        }
    }
}

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Fault {
        let code = match &error {
            ScanError::Expired | ScanError::BlobExpired { .. } | ScanError::ViewTooOld => Code::Expired,
            ScanError::Damaged { .. } => Code::Damaged,
            ScanError::Io { .. } => Code::Io,
            ScanError::Elements { .. } => Code::Argument,
        };
        Fault::new(code, error.to_string())
    }
}

thread_local! {
    static NEWEST: RefCell<CString> = RefCell::default();
}

fn remember(message: String) {
    // A zero byte would end it early.
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    NEWEST.with(|newest| newest.replace(text));
}

/// Runs a call so that neither an error nor a panic leaves it but as a code.
pub(crate) fn guard(call: impl FnOnce() -> Result<Code, Fault>) -> c_int {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return code as c_int,
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let told = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let told = told.or_else(|| panic.downcast_ref::<String>().cloned());
            let told = told.unwrap_or_else(|| "no reason given".to_owned());
            Fault::new(Code::Internal, format!("a fault of the library itself: {told}"))
        }
    };
    remember(fault.message);
    fault.code as c_int
}

/// The sentence of the newest error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongback_last_error() -> *const c_char {
    NEWEST.with(|newest| newest.borrow().as_ptr())
}
