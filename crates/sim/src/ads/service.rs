//! Requests of one client and their replies: commands, index groups, sums.

use std::collections::HashMap;
use std::sync::Arc;

use super::image::Snapshot;
use super::notification::{Attributes, Notifications, Watched, can_watch};
use super::symbols::Symbol;
use super::task::Plc;
use super::wire::{Fields, Header, PLC_PORT, REPLY_MAX, command, error, group, name_of, port, state};

/// Max number of sub-commands in a sum request.
const SUM_MAX: usize = 500;
/// Max number of symbol handles of a client.
const HANDLES_MAX: usize = 1 << 16;
/// First handle of a symbol.
const FIRST_HANDLE: u32 = 0x0100_0000;
/// Type number of texts, which may be written with fewer bytes than their size.
const STRING_NUMBER: u32 = 30;

/// Symbol of which a client holds a handle.
#[derive(Debug)]
struct HeldSymbol {
    symbol: Symbol,
    version: u8,
}

/// State of one client's requests and handles.
pub(crate) struct Service {
    plc: Arc<Plc>,
    handles: HashMap<u32, HeldSymbol>,
    next_handle: u32,
}

/// Result of a command: data with code 0, or an error code.
type Answer = Result<Vec<u8>, u32>;

impl Service {
    pub(crate) fn new(plc: Arc<Plc>) -> Self {
        Service { plc, handles: HashMap::new(), next_handle: FIRST_HANDLE }
    }

    /// Answers a request. Without `notifications`, requests that change them are refused.
    pub(crate) fn answer(
        &mut self,
        header: &Header,
        data: &[u8],
        notifications: Option<&mut Notifications>,
    ) -> Vec<u8> {
        let refused = match header.command {
            _ if port(&header.target) != PLC_PORT => Some(error::TARGET_PORT),
            _ if header.data_length as usize != data.len() => Some(error::AMS_LENGTH),
            command::READ_DEVICE_INFO..=command::DELETE_NOTIFICATION | command::READ_WRITE => None,
            _ => Some(error::UNKNOWN_COMMAND),
        };
        if let Some(code) = refused {
            self.count_error();
            return header.reply(code, &[]);
        }
        let answer = self.command(header, Fields(data), notifications);
        let mut out = Vec::new();
        match answer {
            Ok(data) => {
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&data);
            }
            Err(code) => {
                self.count_error();
                out.extend_from_slice(&code.to_le_bytes());
                // Clients read the length, or the handle, even if there is an error code.
                if !matches!(header.command, command::WRITE | command::WRITE_CONTROL | command::DELETE_NOTIFICATION) {
                    out.extend_from_slice(&[0; 4]);
                }
            }
        }
        header.reply(0, &out)
    }

    fn count_error(&self) {
        super::report::add(&self.plc.counts.errors, 1);
    }

    fn command(&mut self, header: &Header, mut data: Fields, notifications: Option<&mut Notifications>) -> Answer {
        let counts = &self.plc.counts;
        match header.command {
            command::READ_DEVICE_INFO => {
                counts.request("read_device_info");
                let mut out = vec![3, 1];
                out.extend_from_slice(&4024u16.to_le_bytes());
                out.extend_from_slice(b"Plc30 App\0\0\0\0\0\0\0");
                Ok(out)
            }
            command::READ_STATE => {
                counts.request("read_state");
                let [low, high] = self.plc.snapshot().state.to_le_bytes();
                Ok(vec![low, high, 0, 0])
            }
            command::READ => {
                counts.request("read");
                let [group, offset, length] = words(&mut data).ok_or(error::SIZE)?;
                let read = self.read(&self.plc.snapshot(), group, offset, length)?;
                Ok(with_length(read))
            }
            command::WRITE => {
                let [group, offset, length] = words(&mut data).ok_or(error::SIZE)?;
                counts.request(if group == group::RELEASE_HANDLE { "release_handle" } else { "write" });
                if data.0.len() != length as usize {
                    return Err(error::SIZE);
                }
                self.write(group, offset, data.0).map(|()| Vec::new())
            }
            command::WRITE_CONTROL => {
                counts.request("write_control");
                let (state, _device, length) =
                    (data.u16().ok_or(error::SIZE)?, data.u16().ok_or(error::SIZE)?, data.u32().ok_or(error::SIZE)?);
                if data.0.len() != length as usize {
                    return Err(error::SIZE);
                }
                match state {
                    state::RUN | state::STOP => self.plc.control(state),
                    state::RESET => self.plc.control(state::STOP),
                    _ => return Err(error::SERVICE),
                }
                Ok(Vec::new())
            }
            command::ADD_NOTIFICATION => {
                counts.request("add_notification");
                let handle = self.add_notification(header, &mut data, notifications.ok_or(error::SERVICE)?)?;
                Ok(handle.to_le_bytes().to_vec())
            }
            command::DELETE_NOTIFICATION => {
                counts.request("delete_notification");
                let handle = data.u32().ok_or(error::SIZE)?;
                notifications.ok_or(error::SERVICE)?.delete(header, handle).map(|()| Vec::new())
            }
            _ => {
                let [group, offset, read_length, write_length] = words(&mut data).ok_or(error::SIZE)?;
                counts.request(match group {
                    group::SUM_READ | group::SUM_READ_EX | group::SUM_READ_EX_2 => "sum_read",
                    group::SUM_WRITE => "sum_write",
                    group::SUM_READ_WRITE => "sum_read_write",
                    group::SUM_ADD_NOTIFICATION => "sum_add_notification",
                    group::SUM_DELETE_NOTIFICATION => "sum_delete_notification",
                    _ => "read_write",
                });
                if data.0.len() != write_length as usize {
                    return Err(error::SIZE);
                }
                let sum = (group::SUM_READ..=group::SUM_DELETE_NOTIFICATION).contains(&group);
                let read = match sum {
                    true => self.sum(header, group, offset, data, notifications)?,
                    false => self.read_write(group, read_length, data.0)?,
                };
                if read.len() > read_length as usize {
                    return Err(error::SIZE);
                }
                Ok(with_length(read))
            }
        }
    }

    /// Reads any readable value.
    fn read(&self, snapshot: &Snapshot, group: u32, offset: u32, length: u32) -> Answer {
        let table = &snapshot.table;
        let uploaded = |bytes: &[u8]| match bytes.len() <= length as usize {
            true => Ok(bytes.to_vec()),
            false => Err(error::SIZE),
        };
        match group {
            group::VALUE_BY_HANDLE => {
                let symbol = self.held(snapshot, offset)?;
                // A longer buffer is filled only as far as the value extends.
                if length < symbol.size() {
                    return Err(error::SIZE);
                }
                snapshot.image.read(symbol.group, symbol.offset, symbol.size()).map(<[u8]>::to_vec)
            }
            group::SYMBOL_UPLOAD => uploaded(&table.entries),
            group::TYPE_UPLOAD => uploaded(&table.types),
            group::UPLOAD_INFO => {
                let [symbols, bytes, ..] = table.upload_info();
                uploaded(&[symbols.to_le_bytes(), bytes.to_le_bytes()].concat())
            }
            group::UPLOAD_INFO_2 => {
                let mut info = [0; 64];
                for (field, out) in table.upload_info().iter().zip(info.chunks_exact_mut(4)) {
                    out.copy_from_slice(&field.to_le_bytes());
                }
                // Older clients expect 24 bytes.
                match length {
                    24..=63 => Ok(info[..24].to_vec()),
                    _ => uploaded(&info),
                }
            }
            _ => {
                let mut out = Vec::new();
                snapshot.value(group, offset, length, &mut out)?;
                Ok(out)
            }
        }
    }

    fn write(&mut self, group: u32, offset: u32, bytes: &[u8]) -> Result<(), u32> {
        match group {
            group::RELEASE_HANDLE => {
                // The handle is in the data or, with older clients, in the offset.
                let handle = Fields(bytes).u32().unwrap_or(offset);
                self.handles.remove(&handle).map(drop).ok_or(error::SYMBOL)
            }
            group::VALUE_BY_HANDLE => {
                let symbol = self.held(&self.plc.snapshot(), offset)?;
                let (at, size) = ((symbol.group, symbol.offset), symbol.size() as usize);
                let text = symbol.kind.number() == STRING_NUMBER;
                if bytes.len() > size || (bytes.len() < size && !text) {
                    return Err(error::SIZE);
                }
                self.plc.write(at.0, at.1, bytes)
            }
            group::MEMORY | group::DATA => self.plc.write(group, offset, bytes),
            group::MEMORY_BIT => match bytes {
                [bit] => self.plc.write_bit(offset, *bit != 0),
                _ => Err(error::SIZE),
            },
            group::SYMBOL_VERSION | group::SYMBOL_UPLOAD | group::TYPE_UPLOAD | group::DEVICE_DATA => {
                Err(error::ACCESS)
            }
            _ => Err(error::GROUP),
        }
    }

    /// Answers read-write requests, which contain a name.
    fn read_write(&mut self, group: u32, length: u32, bytes: &[u8]) -> Answer {
        let snapshot = self.plc.snapshot();
        let find = || snapshot.table.find(&name_of(bytes)).ok_or(error::SYMBOL);
        match group {
            group::HANDLE_BY_NAME => {
                let symbol = find()?;
                if length < 4 {
                    return Err(error::SIZE);
                }
                if self.handles.len() >= HANDLES_MAX {
                    return Err(error::MEMORY);
                }
                let handle = self.next_handle;
                self.next_handle = self.next_handle.wrapping_add(1);
                self.handles.insert(handle, HeldSymbol { symbol, version: snapshot.table.version });
                Ok(handle.to_le_bytes().to_vec())
            }
            group::VALUE_BY_NAME => {
                let symbol = find()?;
                if length < symbol.size() {
                    return Err(error::SIZE);
                }
                snapshot.image.read(symbol.group, symbol.offset, symbol.size()).map(<[u8]>::to_vec)
            }
            group::INFO_BY_NAME => {
                let symbol = find()?;
                Ok([symbol.group, symbol.offset, symbol.size()].map(u32::to_le_bytes).concat())
            }
            group::INFO_BY_NAME_EX => Ok(find()?.entry()),
            _ => Err(error::GROUP),
        }
    }

    /// Answers a sum request. All its reads see the same cycle.
    fn sum(
        &mut self,
        header: &Header,
        group: u32,
        count: u32,
        mut data: Fields,
        notifications: Option<&mut Notifications>,
    ) -> Answer {
        // A sum read without a count expects only the values.
        let bare = group == group::SUM_READ && count == 0;
        let count = if bare { data.0.len() / 12 } else { count as usize };
        if count > SUM_MAX {
            return Err(error::PARAMETER);
        }
        match group {
            group::SUM_READ | group::SUM_READ_EX | group::SUM_READ_EX_2 => self.sum_read(group, bare, count, data),
            group::SUM_WRITE => {
                let heads: Vec<[u32; 3]> = list(&mut data, count).ok_or(error::SIZE)?;
                let mut out = Vec::new();
                for [group, offset, length] in heads {
                    let bytes = data.bytes(length as usize).ok_or(error::SIZE)?;
                    let code = self.write(group, offset, bytes).err().unwrap_or(0);
                    out.extend_from_slice(&code.to_le_bytes());
                }
                Ok(out)
            }
            group::SUM_READ_WRITE => {
                let heads: Vec<[u32; 4]> = list(&mut data, count).ok_or(error::SIZE)?;
                let (mut out, mut values) = (Vec::new(), Vec::new());
                for [group, _, read_length, write_length] in heads {
                    let bytes = data.bytes(write_length as usize).ok_or(error::SIZE)?;
                    let read = self.read_write(group, read_length, bytes);
                    let read = read.and_then(|r| if r.len() > read_length as usize { Err(error::SIZE) } else { Ok(r) });
                    put_result(&mut out, &mut values, read);
                }
                out.extend_from_slice(&values);
                Ok(out)
            }
            group::SUM_ADD_NOTIFICATION => {
                let notifications = notifications.ok_or(error::SERVICE)?;
                let mut out = Vec::new();
                for _ in 0..count {
                    let request = data.bytes(40).ok_or(error::SIZE)?;
                    let added = self.add_notification(header, &mut Fields(request), notifications);
                    let (code, handle) = match added {
                        Ok(handle) => (0, handle),
                        Err(code) => (code, 0),
                    };
                    out.extend_from_slice(&[code.to_le_bytes(), handle.to_le_bytes()].concat());
                }
                Ok(out)
            }
            _ => {
                let notifications = notifications.ok_or(error::SERVICE)?;
                let mut out = Vec::new();
                for _ in 0..count {
                    let handle = data.u32().ok_or(error::SIZE)?;
                    let code = notifications.delete(header, handle).err().unwrap_or(0);
                    out.extend_from_slice(&code.to_le_bytes());
                }
                Ok(out)
            }
        }
    }

    fn sum_read(&self, group: u32, bare: bool, count: usize, mut data: Fields) -> Answer {
        let heads: Vec<[u32; 3]> = list(&mut data, count).ok_or(error::SIZE)?;
        let snapshot = self.plc.snapshot();
        let actual = group == group::SUM_READ_EX_2;
        let asked: u64 = heads.iter().map(|[_, _, length]| u64::from(*length)).sum();
        if !actual && asked > REPLY_MAX as u64 {
            return Err(error::MEMORY);
        }
        let (mut out, mut values) = (Vec::new(), Vec::new());
        for [part, offset, length] in heads {
            let read = self.read(&snapshot, part, offset, length);
            if actual {
                put_result(&mut out, &mut values, read);
                if values.len() > REPLY_MAX {
                    return Err(error::MEMORY);
                }
            } else {
                // Each value is padded to the requested length, so that all are at the offsets the client expects.
                let (code, value) = match read {
                    Ok(value) => (0, value),
                    Err(code) => (code, Vec::new()),
                };
                if !bare {
                    out.extend_from_slice(&u32::to_le_bytes(code));
                }
                if group == group::SUM_READ_EX {
                    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
                }
                let end = values.len() + length as usize;
                values.extend_from_slice(&value);
                values.resize(end, 0);
            }
        }
        out.extend_from_slice(&values);
        Ok(out)
    }

    fn add_notification(
        &self,
        header: &Header,
        data: &mut Fields,
        notifications: &mut Notifications,
    ) -> Result<u32, u32> {
        let [group, offset, length, mode, max_delay, cycle_time] = words(data).ok_or(error::SIZE)?;
        data.bytes(16).ok_or(error::SIZE)?;
        let snapshot = self.plc.snapshot();
        let mut watched = Watched { group, offset, length, version: None };
        if group == group::VALUE_BY_HANDLE {
            let symbol = self.held(&snapshot, offset)?;
            if length > symbol.size() {
                return Err(error::SIZE);
            }
            let version = Some(snapshot.table.version);
            watched = Watched { group: symbol.group, offset: symbol.offset, length, version };
        }
        if !can_watch(watched.group) {
            return Err(error::GROUP);
        }
        snapshot.value(watched.group, watched.offset, watched.length, &mut Vec::new())?;
        notifications.add(header, watched, Attributes { mode, max_delay, cycle_time })
    }

    /// Returns the symbol of a handle, if it belongs to this version of the program.
    fn held(&self, snapshot: &Snapshot, handle: u32) -> Result<&Symbol, u32> {
        let held = self.handles.get(&handle).ok_or(error::SYMBOL)?;
        if held.version == snapshot.table.version { Ok(&held.symbol) } else { Err(error::SYMBOL_VERSION) }
    }
}

/// Returns whether a request adds or deletes notifications.
pub(crate) fn changes_notifications(header: &Header, mut data: Fields) -> bool {
    match header.command {
        command::ADD_NOTIFICATION | command::DELETE_NOTIFICATION => true,
        command::READ_WRITE => {
            matches!(data.u32(), Some(group::SUM_ADD_NOTIFICATION | group::SUM_DELETE_NOTIFICATION))
        }
        _ => false,
    }
}

/// Reads `N` words of 32 bits.
fn words<const N: usize>(fields: &mut Fields) -> Option<[u32; N]> {
    let mut out = [0; N];
    for word in &mut out {
        *word = fields.u32()?;
    }
    Some(out)
}

/// Reads the heads of a sum request, or returns `None` if the data is too short for them.
fn list<const N: usize>(fields: &mut Fields, count: usize) -> Option<Vec<[u32; N]>> {
    let mut heads = Fields(fields.bytes(count * N * 4)?);
    (0..count).map(|_| words(&mut heads)).collect()
}

/// Appends code and length of one result of a sum, and its value behind the others.
fn put_result(out: &mut Vec<u8>, values: &mut Vec<u8>, result: Answer) {
    let (code, value) = match result {
        Ok(value) => (0, value),
        Err(code) => (code, Vec::new()),
    };
    out.extend_from_slice(&u32::to_le_bytes(code));
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    values.extend_from_slice(&value);
}

/// Prefixes data with its length.
fn with_length(data: Vec<u8>) -> Vec<u8> {
    let mut out = (data.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&data);
    out
}
