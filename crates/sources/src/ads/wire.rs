//! AMS over TCP as bytes: messages, this client's requests, and the answers and notifications it receives. Pure.
//!
//! All numbers are little-endian. A message is
//!
//! | offset | field | notes |
//! |---|---|---|
//! | 0 | reserved u16 | 0 |
//! | 2 | length u32 | of the rest: 32 and the data |
//! | 6 | target NetId [6], port u16 | |
//! | 14 | source NetId [6], port u16 | |
//! | 22 | command u16 | |
//! | 24 | flags u16 | 4: a request, 5: an answer; 4 on notifications, which are not answered |
//! | 26 | data length u32 | |
//! | 30 | error u32 | from routers on the way |
//! | 34 | invoke id u32 | an answer repeats that of its request |
//! | 38 | data | of an answer: begins with a u32 result code |
//!
//! [`Request`] holds everything this client can send to a PLC. No variant writes, so no defect further up can make a
//! read-only client write.

use std::time::Duration;

use super::address::{AmsAddress, NetId};
use super::error::AdsError;

/// TCP port of AMS routers.
pub const TCP_PORT: u16 = 48_898;
/// Bytes before the AMS header.
pub const TCP_HEADER_BYTES: usize = 6;
/// Bytes of the AMS header.
pub const AMS_HEADER_BYTES: usize = 32;
/// Maximum sub-commands of a sum request, as Beckhoff recommends.
pub const SUM_MAX: usize = 500;
/// Maximum size of a received message with its headers, enough for a symbol table of 64 MiB.
pub const MESSAGE_BYTES_MAX: usize = (64 << 20) + 64;

const FLAG_REQUEST: u16 = 4;
const FLAG_ANSWER: u16 = 5;

const DEVICE_INFO: u16 = 1;
const READ: u16 = 2;
const STATE: u16 = 4;
const ADD_NOTIFICATION: u16 = 6;
const DELETE_NOTIFICATION: u16 = 7;
const NOTIFICATION: u16 = 8;
const READ_WRITE: u16 = 9;

/// Index group of the symbol version: one byte that increases when the program's symbols change.
pub const GROUP_SYMBOL_VERSION: u32 = 0xF008;
const GROUP_SYMBOL_BY_NAME: u32 = 0xF009;
/// Index group of the symbol table.
pub const GROUP_SYMBOLS: u32 = 0xF00B;
/// Index group of the table of data types.
pub const GROUP_DATA_TYPES: u32 = 0xF00E;
/// Index group of the number of entries and size of both tables.
pub const GROUP_UPLOAD_INFO: u32 = 0xF00F;
const GROUP_SUM_READ_EX: u32 = 0xF083;

/// Size of a sub-command of a sum read.
const SUB_BYTES: usize = 12;
/// Size of a sub-command's result.
const SUB_RESULT_BYTES: usize = 8;

/// A region of a PLC's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlcPlace {
    /// Index group, which selects the memory.
    pub group: u32,
    /// Index offset in the group.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Condition for sending a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transmission {
    /// Every cycle.
    Cyclic,
    /// Any cycle in which the bytes differ from the previous one.
    OnChange,
}

/// Requests of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Name and version of the program at the port.
    DeviceInfo,
    /// State of the PLC, such as Run, Stop or Config.
    State,
    /// Bytes of one place.
    Read(PlcPlace),
    /// Bytes of up to [`SUM_MAX`] places, each with its own result.
    SumRead(&'a [PlcPlace]),
    /// Entry of the symbol table for one name.
    SymbolByName(&'a str),
    /// Subscription to the bytes of a place.
    AddNotification {
        /// Memory to send.
        place: PlcPlace,
        /// Condition for sending.
        transmission: Transmission,
        /// Interval between checks of the memory.
        cycle: Duration,
    },
    /// End of a subscription, by handle.
    DeleteNotification(u32),
}

/// Converts a time to ADS units of 100 ns. The crate `ads` sends milliseconds here, which makes a PLC send every cycle
/// of every symbol; Beckhoff's own AdsLib sends 100 ns units.
pub fn ads_time(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / 100).unwrap_or(u32::MAX)
}

impl Request<'_> {
    fn command(&self) -> u16 {
        match self {
            Request::DeviceInfo => DEVICE_INFO,
            Request::State => STATE,
            Request::Read(_) => READ,
            Request::SumRead(_) | Request::SymbolByName(_) => READ_WRITE,
            Request::AddNotification { .. } => ADD_NOTIFICATION,
            Request::DeleteNotification(_) => DELETE_NOTIFICATION,
        }
    }

    /// Returns its name, for errors.
    pub fn name(&self) -> &'static str {
        match self {
            Request::DeviceInfo => "device info",
            Request::State => "state",
            Request::Read(_) => "read",
            Request::SumRead(_) => "sum read",
            Request::SymbolByName(_) => "symbol by name",
            Request::AddNotification { .. } => "add notification",
            Request::DeleteNotification(_) => "delete notification",
        }
    }

    /// Appends the message. Returns its command, which the answer repeats.
    pub fn encode(&self, target: AmsAddress, source: AmsAddress, invoke_id: u32, out: &mut Vec<u8>) -> u16 {
        let start = out.len();
        out.extend_from_slice(&[0; TCP_HEADER_BYTES]);
        for address in [target, source] {
            out.extend_from_slice(&address.net_id.0);
            out.extend_from_slice(&address.port.to_le_bytes());
        }
        out.extend_from_slice(&self.command().to_le_bytes());
        out.extend_from_slice(&FLAG_REQUEST.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&invoke_id.to_le_bytes());
        let data = out.len();
        self.encode_data(out);
        let data_bytes = (out.len() - data) as u32;
        out[start + 2..start + 6].copy_from_slice(&(AMS_HEADER_BYTES as u32 + data_bytes).to_le_bytes());
        out[start + 26..start + 30].copy_from_slice(&data_bytes.to_le_bytes());
        self.command()
    }

    fn encode_data(&self, out: &mut Vec<u8>) {
        let mut put = |words: &[u32]| words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        match *self {
            Request::DeviceInfo | Request::State => {}
            Request::Read(place) => put(&[place.group, place.offset, place.size]),
            Request::SumRead(places) => {
                debug_assert!(places.len() <= SUM_MAX);
                let read: usize = places.iter().map(|p| SUB_RESULT_BYTES + p.size as usize).sum();
                put(&[GROUP_SUM_READ_EX, places.len() as u32, read as u32, (places.len() * SUB_BYTES) as u32]);
                places.iter().for_each(|place| put(&[place.group, place.offset, place.size]));
            }
            Request::SymbolByName(name) => {
                // Same as AdsLib: room for an entry with three long names, and a NUL-terminated name.
                put(&[GROUP_SYMBOL_BY_NAME, 0, 0x31E, name.len() as u32 + 1]);
                out.extend_from_slice(name.as_bytes());
                out.push(0);
            }
            Request::AddNotification { place, transmission, cycle } => {
                let mode = match transmission {
                    Transmission::Cyclic => 3,
                    Transmission::OnChange => 4,
                };
                // A delay of 0 sends at once instead of batching.
                put(&[place.group, place.offset, place.size, mode, 0, ads_time(cycle), 0, 0, 0, 0]);
            }
            Request::DeleteNotification(handle) => put(&[handle]),
        }
    }
}

/// Error in bytes from the network. `offset` counts from the first byte of the named part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Nonzero first two bytes, so the start of the next message is unknown.
    #[error("offset 0: the message starts with {found:#06x}, expected 0")]
    Reserved {
        /// Bytes found.
        found: u16,
    },
    /// Message length less than a header or more than [`MESSAGE_BYTES_MAX`].
    #[error("offset 2: message length {found}, must be between 32 and {}", MESSAGE_BYTES_MAX)]
    MessageLength {
        /// Stated length.
        found: u32,
    },
    /// Different lengths in the two headers.
    #[error("offset 26: data length {found}, but {has} bytes follow")]
    DataLength {
        /// Stated length.
        found: u32,
        /// Actual length in bytes.
        has: usize,
    },
    /// A message that is neither an answer nor a notification.
    #[error("offset 22: command {command} with flags {flags:#06x} is neither a response nor a notification")]
    Unasked {
        /// Command of the message.
        command: u16,
        /// Flags of the message.
        flags: u16,
    },
    /// Truncated data.
    #[error("offset {offset}: {what} is truncated, {needed} bytes are missing")]
    Short {
        /// Truncated part.
        what: &'static str,
        /// Offset.
        offset: usize,
        /// Number of missing bytes.
        needed: usize,
    },
    /// A stated length that differs from the actual one.
    #[error("offset {offset}: {what} is {found}, expected {has}")]
    Length {
        /// Part with the wrong length.
        what: &'static str,
        /// Offset.
        offset: usize,
        /// Stated length.
        found: u32,
        /// Expected length.
        has: usize,
    },
}

impl WireError {
    /// Returns the label in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            WireError::Reserved { .. } | WireError::MessageLength { .. } | WireError::DataLength { .. } => {
                "bad_message"
            }
            WireError::Unasked { .. } => "unasked",
            WireError::Short { .. } | WireError::Length { .. } => "wrong_length",
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Reads a word, or 0 beyond the end. Callers have checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn address_at(bytes: &[u8], at: usize) -> AmsAddress {
    let mut id = [0; 6];
    if let Some(found) = bytes.get(at..at + 6) {
        id.copy_from_slice(found);
    }
    AmsAddress { net_id: NetId(id), port: u16_at(bytes, at + 6) }
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// The answer to a request.
    Answer {
        /// Command of the request and the answer.
        command: u16,
        /// Invoke id of the request.
        invoke_id: u32,
    },
    /// A notification.
    Notification,
}

/// A message of a PLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Sender.
    pub source: AmsAddress,
    /// Kind.
    pub kind: MessageKind,
    /// Error of a router on the way, 0 if none.
    pub error: u32,
    /// Bytes after the header.
    pub data: &'a [u8],
}

/// A message cut from the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Size of the message in bytes.
    pub size_bytes: usize,
    /// The message, or the error. The next message can be found either way.
    pub message: Result<Message<'a>, WireError>,
}

/// Cuts the first message from `bytes`. Returns `None` if it is incomplete.
///
/// # Errors
/// If the start of the next message cannot be found, so the connection can no longer be used.
pub fn cut(bytes: &[u8]) -> Result<Option<Cut<'_>>, WireError> {
    if bytes.len() < TCP_HEADER_BYTES {
        return Ok(None);
    }
    let reserved = u16_at(bytes, 0);
    if reserved != 0 {
        return Err(WireError::Reserved { found: reserved });
    }
    let length = u32_at(bytes, 2);
    let size_bytes = (length as usize).saturating_add(TCP_HEADER_BYTES);
    if (length as usize) < AMS_HEADER_BYTES || size_bytes > MESSAGE_BYTES_MAX {
        return Err(WireError::MessageLength { found: length });
    }
    let Some(message) = bytes.get(..size_bytes) else { return Ok(None) };
    Ok(Some(Cut { size_bytes, message: parse(message) }))
}

/// Returns the size of the first message of `bytes`, or the minimum if its length is not received yet.
pub(crate) fn announced_bytes(bytes: &[u8]) -> usize {
    match bytes.len() < TCP_HEADER_BYTES {
        true => TCP_HEADER_BYTES + AMS_HEADER_BYTES,
        false => (u32_at(bytes, 2) as usize).saturating_add(TCP_HEADER_BYTES),
    }
}

fn parse(message: &[u8]) -> Result<Message<'_>, WireError> {
    let data = &message[TCP_HEADER_BYTES + AMS_HEADER_BYTES..];
    let found = u32_at(message, 26);
    if found as usize != data.len() {
        return Err(WireError::DataLength { found, has: data.len() });
    }
    let (command, flags) = (u16_at(message, 22), u16_at(message, 24));
    let kind = match (command, flags) {
        (NOTIFICATION, FLAG_REQUEST) => MessageKind::Notification,
        (command, FLAG_ANSWER) => MessageKind::Answer { command, invoke_id: u32_at(message, 34) },
        _ => return Err(WireError::Unasked { command, flags }),
    };
    Ok(Message { source: address_at(message, 14), kind, error: u32_at(message, 30), data })
}

/// Reason why an answer has no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// An error code of the PLC or a router.
    #[error(transparent)]
    Ads(#[from] AdsError),
    /// A malformed answer.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Timeout.
    #[error("no answer within the deadline")]
    TimedOut,
}

fn code(code: u32) -> Result<(), AdsError> {
    if code == 0 { Ok(()) } else { Err(AdsError(code)) }
}

impl<'a> Message<'a> {
    /// Returns the bytes after the result code of an answer.
    ///
    /// # Errors
    /// If a router or the PLC returned an error, or there is no result code.
    pub fn answer(&self) -> Result<&'a [u8], AnswerError> {
        code(self.error)?;
        let short = WireError::Short { what: "the result", offset: self.data.len(), needed: 4 };
        let rest = self.data.get(4..).ok_or(short)?;
        code(u32_at(self.data, 0))?;
        Ok(rest)
    }
}

/// Returns the bytes in an answer to [`Request::Read`], [`Request::SumRead`] or [`Request::SymbolByName`]. `answer`
/// begins after the result code.
///
/// # Errors
/// If the stated length differs from the actual one.
pub fn read_bytes(answer: &[u8]) -> Result<&[u8], WireError> {
    let bytes = answer.get(4..).ok_or(WireError::Short { what: "the length", offset: 4 + answer.len(), needed: 4 })?;
    let found = u32_at(answer, 0);
    if found as usize != bytes.len() {
        return Err(WireError::Length { what: "the length", offset: 4, found, has: bytes.len() });
    }
    Ok(bytes)
}

/// Returns the handle in an answer to [`Request::AddNotification`].
///
/// # Errors
/// If the answer is too short.
pub fn handle(answer: &[u8]) -> Result<u32, WireError> {
    match answer.len() {
        4.. => Ok(u32_at(answer, 0)),
        has => Err(WireError::Short { what: "the handle", offset: 4 + has, needed: 4 - has }),
    }
}

/// Returns ADS state and device state in an answer to [`Request::State`].
///
/// # Errors
/// If the answer is too short.
pub fn state(answer: &[u8]) -> Result<(u16, u16), WireError> {
    match answer.len() {
        4.. => Ok((u16_at(answer, 0), u16_at(answer, 2))),
        has => Err(WireError::Short { what: "the state", offset: 4 + has, needed: 4 - has }),
    }
}

/// Returns the name of an ADS state.
pub fn state_name(state: u16) -> &'static str {
    const NAMES: [&str; 20] = [
        "Invalid",
        "Idle",
        "Reset",
        "Init",
        "Start",
        "Run",
        "Stop",
        "SaveConfig",
        "LoadConfig",
        "PowerFailure",
        "PowerGood",
        "Error",
        "Shutdown",
        "Suspend",
        "Resume",
        "Config",
        "Reconfig",
        "Stopping",
        "Incompatible",
        "Exception",
    ];
    NAMES.get(state as usize).copied().unwrap_or("Unknown")
}

/// Name and version in an answer to [`Request::DeviceInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the program.
    pub name: String,
    /// Version: major, minor, build.
    pub version: (u8, u8, u16),
}

/// Parses an answer to [`Request::DeviceInfo`].
///
/// # Errors
/// If the answer is too short.
pub fn device_info(answer: &[u8]) -> Result<DeviceInfo, WireError> {
    let &[major, minor, low, high, ref name @ ..] = answer else {
        return Err(WireError::Short { what: "the device info", offset: 4 + answer.len(), needed: 4 - answer.len() });
    };
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len()).min(16);
    let name = super::value::text(&name[..end]).into_owned();
    Ok(DeviceInfo { name, version: (major, minor, u16::from_le_bytes([low, high])) })
}

/// Iterates over the results of a sum read: the bytes of each place, or an error.
///
/// Each value takes up the requested size, whether it was read or not (AdsDef.h: "expected lengths"). Results of a
/// server that packs them by their returned lengths are accepted, too.
///
/// # Errors
/// If the results do not fit the places or the bytes.
pub fn sum_results<'a>(
    bytes: &'a [u8],
    places: &'a [PlcPlace],
) -> Result<impl Iterator<Item = Result<&'a [u8], AnswerError>> + 'a, WireError> {
    let heads = places.len() * SUB_RESULT_BYTES;
    let Some((heads, mut data)) = bytes.split_at_checked(heads) else {
        let needed = heads - bytes.len();
        return Err(WireError::Short { what: "the results of a sum read", offset: bytes.len(), needed });
    };
    let asked: u64 = places.iter().map(|place| u64::from(place.size)).sum();
    let returned: u64 = heads.chunks_exact(SUB_RESULT_BYTES).map(|head| u64::from(u32_at(head, 4))).sum();
    let has = data.len() as u64;
    if has != asked && has != returned {
        let found = u32::try_from(returned).unwrap_or(u32::MAX);
        return Err(WireError::Length { what: "the sum of lengths", offset: heads.len(), found, has: data.len() });
    }
    Ok(heads.chunks_exact(SUB_RESULT_BYTES).zip(places).enumerate().map(move |(i, (head, place))| {
        let length = u32_at(head, 4);
        let room = if has == asked { place.size } else { length };
        // Together they are as long as `data`.
        let (mine, rest) = data.split_at_checked(room as usize).unwrap_or((data, &[]));
        data = rest;
        code(u32_at(head, 0))?;
        if length != place.size || mine.len() != place.size as usize {
            let offset = i * SUB_RESULT_BYTES + 4;
            let what = "the length of a sub-command";
            return Err(WireError::Length { what, offset, found: length, has: place.size as usize }.into());
        }
        Ok(mine)
    }))
}

/// Unix epoch as a FILETIME: 1970-01-01 in 100 ns since 1601-01-01.
const FILETIME_1970: i64 = 116_444_736_000_000_000;

/// Converts a FILETIME (100 ns since 1601) to nanoseconds since 1970 UTC. Returns `None` for a time before 1970, such
/// as 0, or one out of range.
pub fn unix_ns(filetime: u64) -> Option<i64> {
    let since = i64::try_from(filetime).ok()?.checked_sub(FILETIME_1970)?;
    since.checked_mul(100).filter(|ns| *ns >= 0)
}

/// Size of a notification's timestamp before its samples, and of a sample before its data.
const STAMP_BYTES: usize = 12;
const SAMPLE_BYTES: usize = 8;

/// A notification with validated lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    stamps: u32,
    bytes: &'a [u8],
}

/// One sample of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationSample<'a> {
    /// FILETIME of the device.
    pub filetime: u64,
    /// Handle of the subscription.
    pub handle: u32,
    /// Data.
    pub data: &'a [u8],
}

impl<'a> Notification<'a> {
    /// Parses the data of a notification and validates all lengths.
    ///
    /// # Errors
    /// If a length is wrong, with the first such length.
    pub fn parse(data: &'a [u8]) -> Result<Notification<'a>, WireError> {
        let Some(bytes) = data.get(8..) else {
            return Err(WireError::Short { what: "the notification", offset: data.len(), needed: 8 - data.len() });
        };
        let found = u32_at(data, 0);
        if found as usize != data.len() - 4 {
            return Err(WireError::Length { what: "the notification", offset: 0, found, has: data.len() - 4 });
        }
        let stamps = u32_at(data, 4);
        let mut at = 0;
        let room = |at: usize, bytes_needed: usize, what| match (bytes.len() - at).checked_sub(bytes_needed) {
            Some(_) => Ok(()),
            None => {
                let needed = bytes_needed - (bytes.len() - at);
                Err(WireError::Short { what, offset: 8 + at, needed })
            }
        };
        for _ in 0..stamps {
            room(at, STAMP_BYTES, "a stamp")?;
            let samples = u32_at(bytes, at + 8);
            at += STAMP_BYTES;
            for _ in 0..samples {
                room(at, SAMPLE_BYTES, "a sample")?;
                let size = u32_at(bytes, at + 4) as usize;
                at += SAMPLE_BYTES;
                room(at, size, "the data of a sample")?;
                at += size;
            }
        }
        if at != bytes.len() {
            return Err(WireError::Length { what: "the last stamp", offset: 8 + at, found: 0, has: bytes.len() - at });
        }
        Ok(Notification { stamps, bytes })
    }

    /// Iterates over its samples in order.
    pub fn samples(&self) -> Samples<'a> {
        Samples { rest: self.bytes, stamps: self.stamps, samples: 0, filetime: 0 }
    }
}

/// Iterator over the samples of a notification.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    rest: &'a [u8],
    stamps: u32,
    samples: u32,
    filetime: u64,
}

impl<'a> Iterator for Samples<'a> {
    type Item = NotificationSample<'a>;

    #[inline]
    fn next(&mut self) -> Option<NotificationSample<'a>> {
        while self.samples == 0 {
            self.stamps = self.stamps.checked_sub(1)?;
            let (stamp, rest) = self.rest.split_at_checked(STAMP_BYTES)?;
            self.filetime = u64::from(u32_at(stamp, 0)) | u64::from(u32_at(stamp, 4)) << 32;
            (self.samples, self.rest) = (u32_at(stamp, 8), rest);
        }
        self.samples -= 1;
        let (head, rest) = self.rest.split_at_checked(SAMPLE_BYTES)?;
        let (data, rest) = rest.split_at_checked(u32_at(head, 4) as usize)?;
        self.rest = rest;
        Some(NotificationSample { filetime: self.filetime, handle: u32_at(head, 0), data })
    }
}
