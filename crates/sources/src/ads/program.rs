//! What a program says of itself: its state, its symbol version, its tables.

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

/// Bytes of a table that is uploaded at most.
pub(crate) const TABLE_BYTES_MAX: u32 = 64 << 20;
/// A table may take this many times as long as any other answer.
const TABLE_PATIENCE: u32 = 15;

/// Where the symbol version is.
pub(crate) const VERSION_PLACE: PlcPlace = PlcPlace { group: GROUP_SYMBOL_VERSION, offset: 0, size: 1 };

/// Why something under way ends.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The source stops.
    Stopped,
    /// The connection is of no more use.
    Lost(Lost),
}

impl From<Lost> for Halt {
    fn from(lost: Lost) -> Self {
        Halt::Lost(lost)
    }
}

/// What asking needs of its surroundings.
pub(crate) struct Surroundings<'a> {
    pub(crate) wake: Option<&'a PipeReader>,
    pub(crate) counts: &'a AdsCounts,
    pub(crate) now: &'a Now,
    pub(crate) timeout: Duration,
}

/// Tells what is asked for apart from what comes meanwhile.
pub(crate) trait Asking<T> {
    /// The tag of the next request that is waited for.
    fn tag(&mut self) -> T;
    /// Takes an arrival; the outcome of that request is kept.
    fn take(&mut self, arrival: Arrival<'_, T>, receive_time: i64);
    /// The outcome of that request, if it is there.
    fn outcome(&mut self) -> Option<Result<Vec<u8>, AnswerError>>;
}

/// Asks and waits for the answer: what follows its result.
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

/// Says hello: the first question of a connection, which tells a missing route from a missing program.
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
        // The router answers: what is missing is the program.
        Err(AnswerError::Ads(error)) => Ok(Err(error)),
    }
}

/// The tables of a program.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Its symbol version, where it has one.
    pub(crate) version: Option<u8>,
    /// How much there is.
    pub(crate) info: UploadInfo,
    /// Its symbols.
    pub(crate) symbols: Vec<u8>,
    /// Its data types.
    pub(crate) types: Vec<u8>,
}

/// Why there are no tables.
#[derive(Debug)]
pub(crate) struct NoTables {
    /// The symbol version, where there is one all the same.
    pub(crate) version: Option<u8>,
    /// Why.
    pub(crate) why: String,
    /// There is no program.
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

/// Uploads the tables of a program; or says why there are none.
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
    // Without data types there are still the plain symbols.
    let types = table(GROUP_DATA_TYPES, info.types_bytes)?.unwrap_or_default();
    Ok(Ok(Program { version, info, symbols, types }))
}
