//! Reads a program's state, symbol version and tables.

use std::io::PipeReader;
use std::time::{Duration, Instant};

use super::connection::{Arrival, Connection, Lost, Turn};
use super::counts::AdsCounts;
use super::error::AdsError;
use super::table::UploadInfo;
use super::wire::{
    self, AnswerError, DeviceInfo, GROUP_DATA_TYPES, GROUP_SYMBOL_VERSION, GROUP_SYMBOLS, GROUP_UPLOAD_INFO, PlcPlace,
    Request,
};
use crate::clock::Now;

/// Maximum bytes of an uploaded table.
pub(crate) const TABLE_BYTES_MAX: u32 = 64 << 20;
/// Factor by which the timeout is longer for a table.
const TABLE_PATIENCE: u32 = 15;

/// Location of the symbol version.
pub(crate) const VERSION_PLACE: PlcPlace = PlcPlace { group: GROUP_SYMBOL_VERSION, offset: 0, size: 1 };

/// Reason why an operation ended early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Request to stop the source.
    Stopped,
    /// Loss of the connection.
    Lost(Lost),
}

impl From<Lost> for Halt {
    fn from(lost: Lost) -> Self {
        Halt::Lost(lost)
    }
}

/// Environment of a request.
pub(crate) struct Surroundings<'a> {
    pub(crate) wake: Option<&'a PipeReader>,
    pub(crate) counts: &'a AdsCounts,
    pub(crate) now: &'a Now,
    pub(crate) timeout: Duration,
}

/// Separates the awaited answer from other arrivals.
pub(crate) trait Asking<T> {
    /// Returns the tag for the next awaited request.
    fn tag(&mut self) -> T;
    /// Processes an arrival, and keeps the outcome of the awaited request.
    fn take(&mut self, arrival: Arrival<'_, T>, receive_time: i64);
    /// Takes the outcome of the awaited request, if it has arrived.
    fn outcome(&mut self) -> Option<Result<Vec<u8>, AnswerError>>;
}

/// Sends a request and waits for its answer. Returns the bytes after the result code.
pub(crate) fn ask<T: Copy>(
    connection: &mut Connection<T>,
    around: &Surroundings<'_>,
    asking: &mut impl Asking<T>,
    port: u16,
    request: &Request<'_>,
) -> Result<Result<Vec<u8>, AnswerError>, Halt> {
    let is_table = matches!(request, Request::Read(PlcPlace { group: GROUP_SYMBOLS | GROUP_DATA_TYPES, .. }));
    let timeout = if is_table { around.timeout * TABLE_PATIENCE } else { around.timeout };
    connection.send_within(timeout, port, request, asking.tag())?;
    let until = Instant::now() + timeout;
    loop {
        let mut take = |arrival: Arrival<'_, T>, at: i64| asking.take(arrival, at);
        if connection.turn(until, around.wake, around.counts, around.now, &mut take)? == Turn::Woken {
            return Err(Halt::Stopped);
        }
        if let Some(outcome) = asking.outcome() {
            return Ok(outcome);
        }
    }
}

/// Sends the first request of a connection, which distinguishes a missing route from a missing program.
pub(crate) fn greet<T: Copy>(
    connection: &mut Connection<T>,
    around: &Surroundings<'_>,
    asking: &mut impl Asking<T>,
    port: u16,
) -> Result<Result<DeviceInfo, AdsError>, Halt> {
    match ask(connection, around, asking, port, &Request::DeviceInfo)? {
        Ok(info) => match wire::device_info(&info) {
            Ok(info) => Ok(Ok(info)),
            Err(source) => Err(Lost::Wire { host: connection.host().to_owned(), source }.into()),
        },
        Err(AnswerError::TimedOut) if !connection.answered() => {
            Err(connection.no_route("takes the connection and answers nothing").into())
        }
        Err(AnswerError::TimedOut) => Err(Lost::Silent { host: connection.host().to_owned() }.into()),
        Err(AnswerError::Wire(source)) => Err(Lost::Wire { host: connection.host().to_owned(), source }.into()),
        Err(AnswerError::Ads(source)) if source == AdsError::MACHINE_NOT_FOUND => {
            let hint = format!("the PLC is not {}: set net_id to its AMS NetId", connection.net_id());
            Err(Lost::Router { host: connection.host().to_owned(), source, hint }.into())
        }
        // The router answers, so only the program is missing.
        Err(AnswerError::Ads(error)) => Ok(Err(error)),
    }
}

/// Tables of a program.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Symbol version, if there is one.
    pub(crate) version: Option<u8>,
    /// Numbers of entries and sizes of the tables.
    pub(crate) info: UploadInfo,
    /// Symbol table.
    pub(crate) symbols: Vec<u8>,
    /// Table of data types.
    pub(crate) types: Vec<u8>,
}

/// Reason why there are no tables.
#[derive(Debug)]
pub(crate) struct NoTables {
    /// Symbol version, if there still is one.
    pub(crate) version: Option<u8>,
    /// Cause.
    pub(crate) why: String,
    /// Whether there is no program.
    pub(crate) is_absent: bool,
}

fn read<T: Copy>(
    connection: &mut Connection<T>,
    around: &Surroundings<'_>,
    asking: &mut impl Asking<T>,
    port: u16,
    place: PlcPlace,
) -> Result<Result<Vec<u8>, AnswerError>, Halt> {
    let answer = ask(connection, around, asking, port, &Request::Read(place))?;
    Ok(answer.and_then(|mut answer| {
        let length = wire::read_bytes(&answer)?.len();
        answer.drain(..answer.len() - length);
        Ok(answer)
    }))
}

/// Uploads the tables of a program, or returns why there are none.
pub(crate) fn upload<T: Copy>(
    connection: &mut Connection<T>,
    around: &Surroundings<'_>,
    asking: &mut impl Asking<T>,
    port: u16,
) -> Result<Result<Program, NoTables>, Halt> {
    let version = read(connection, around, asking, port, VERSION_PLACE)?;
    let is_absent = matches!(version, Err(AnswerError::Ads(AdsError::PORT_NOT_FOUND)));
    let version = version.ok().and_then(|bytes| bytes.first().copied());
    let none = |why: String| Ok(Err(NoTables { version, why, is_absent }));
    let info = PlcPlace { group: GROUP_UPLOAD_INFO, offset: 0, size: 64 };
    let info = match read(connection, around, asking, port, info)? {
        Ok(bytes) => UploadInfo::parse(&bytes),
        Err(error) => return none(error.to_string()),
    };
    let Some(info) = info else { return none("the upload info is too short".to_owned()) };
    let largest = info.symbols_bytes.max(info.types_bytes);
    if largest > TABLE_BYTES_MAX {
        return none(format!("a table of {largest} bytes; at most {TABLE_BYTES_MAX} are taken"));
    }
    let mut table = |group, size| match size {
        0 => Ok(Ok(Vec::new())),
        size => read(connection, around, asking, port, PlcPlace { group, offset: 0, size }),
    };
    let symbols = match table(GROUP_SYMBOLS, info.symbols_bytes)? {
        Ok(symbols) => symbols,
        Err(error) => return none(error.to_string()),
    };
    // Plain symbols can be read without data types.
    let types = table(GROUP_DATA_TYPES, info.types_bytes)?.unwrap_or_default();
    Ok(Ok(Program { version, info, symbols, types }))
}
