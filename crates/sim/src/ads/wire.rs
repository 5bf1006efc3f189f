//! AMS over TCP as bytes: headers, commands, index groups, error codes. All fields are little-endian.
//!
//! | offset | size | field | |
//! |---|---|---|---|
//! | 0 | 2 | reserved | 0: an AMS command |
//! | 2 | 4 | length | bytes that follow these six |
//! | 6 | 8 | target | NetId of 6 bytes, port |
//! | 14 | 8 | source | NetId of 6 bytes, port |
//! | 22 | 2 | command | [`command`] |
//! | 24 | 2 | flags | [`RESPONSE`], [`NO_RETURN`], [`ADS_COMMAND`] |
//! | 26 | 4 | data length | length − 32 |
//! | 30 | 4 | error | of the transport; of a command: in its data |
//! | 34 | 4 | invoke id | returned as it came |

/// Bytes of the TCP header.
pub(crate) const TCP_HEADER: usize = 6;
/// Bytes of the AMS header after it.
pub(crate) const AMS_HEADER: usize = 32;
/// Max bytes of a packet accepted from a client, without the TCP header. A full sum request of writes fits.
pub(crate) const PACKET_MAX: usize = 1 << 20;
/// Max bytes of the data of a reply: the default size of a router's memory.
pub(crate) const REPLY_MAX: usize = 2 << 20;
/// Port of the first PLC of a TwinCAT 3 device.
pub(crate) const PLC_PORT: u16 = 851;

pub(crate) const RESPONSE: u16 = 1;
pub(crate) const NO_RETURN: u16 = 2;
pub(crate) const ADS_COMMAND: u16 = 4;

pub(crate) mod command {
    pub(crate) const READ_DEVICE_INFO: u16 = 1;
    pub(crate) const READ: u16 = 2;
    pub(crate) const WRITE: u16 = 3;
    pub(crate) const READ_STATE: u16 = 4;
    pub(crate) const WRITE_CONTROL: u16 = 5;
    pub(crate) const ADD_NOTIFICATION: u16 = 6;
    pub(crate) const DELETE_NOTIFICATION: u16 = 7;
    pub(crate) const NOTIFICATION: u16 = 8;
    pub(crate) const READ_WRITE: u16 = 9;
}

/// Index groups that are served.
pub(crate) mod group {
    /// Flags of the PLC (%M), by byte.
    pub(crate) const MEMORY: u32 = 0x4020;
    /// Flags by bit: byte · 8 + bit.
    pub(crate) const MEMORY_BIT: u32 = 0x4021;
    /// Number of bytes of the flags.
    pub(crate) const MEMORY_SIZE: u32 = 0x4025;
    /// Variables of the PLC.
    pub(crate) const DATA: u32 = 0x4040;
    /// Number of bytes of the variables.
    pub(crate) const DATA_SIZE: u32 = 0x4045;
    pub(crate) const HANDLE_BY_NAME: u32 = 0xF003;
    pub(crate) const VALUE_BY_NAME: u32 = 0xF004;
    pub(crate) const VALUE_BY_HANDLE: u32 = 0xF005;
    pub(crate) const RELEASE_HANDLE: u32 = 0xF006;
    pub(crate) const INFO_BY_NAME: u32 = 0xF007;
    pub(crate) const SYMBOL_VERSION: u32 = 0xF008;
    pub(crate) const INFO_BY_NAME_EX: u32 = 0xF009;
    pub(crate) const SYMBOL_UPLOAD: u32 = 0xF00B;
    pub(crate) const UPLOAD_INFO: u32 = 0xF00C;
    pub(crate) const TYPE_UPLOAD: u32 = 0xF00E;
    pub(crate) const UPLOAD_INFO_2: u32 = 0xF00F;
    pub(crate) const SUM_READ: u32 = 0xF080;
    pub(crate) const SUM_WRITE: u32 = 0xF081;
    pub(crate) const SUM_READ_WRITE: u32 = 0xF082;
    pub(crate) const SUM_READ_EX: u32 = 0xF083;
    pub(crate) const SUM_READ_EX_2: u32 = 0xF084;
    pub(crate) const SUM_ADD_NOTIFICATION: u32 = 0xF085;
    pub(crate) const SUM_DELETE_NOTIFICATION: u32 = 0xF086;
    /// State of the device at offset 0, of the PLC at offset 2.
    pub(crate) const DEVICE_DATA: u32 = 0xF100;
}

/// Error codes as Beckhoff's `AdsDef.h` names them.
pub(crate) mod error {
    pub(crate) const TARGET_PORT: u32 = 0x6;
    pub(crate) const UNKNOWN_COMMAND: u32 = 0x8;
    pub(crate) const AMS_LENGTH: u32 = 0xE;
    pub(crate) const SERVICE: u32 = 0x701;
    pub(crate) const GROUP: u32 = 0x702;
    pub(crate) const OFFSET: u32 = 0x703;
    pub(crate) const ACCESS: u32 = 0x704;
    pub(crate) const SIZE: u32 = 0x705;
    pub(crate) const MEMORY: u32 = 0x70A;
    pub(crate) const PARAMETER: u32 = 0x70B;
    pub(crate) const SYMBOL: u32 = 0x710;
    pub(crate) const SYMBOL_VERSION: u32 = 0x711;
    pub(crate) const TRANSMISSION_MODE: u32 = 0x713;
    pub(crate) const NOTIFICATION_HANDLE: u32 = 0x714;
    pub(crate) const NO_MORE_HANDLES: u32 = 0x716;
    pub(crate) const WATCH_SIZE: u32 = 0x717;
}

/// States of a device.
pub(crate) mod state {
    pub(crate) const RESET: u16 = 2;
    pub(crate) const RUN: u16 = 5;
    pub(crate) const STOP: u16 = 6;
}

/// AMS address: NetId and port.
pub(crate) type Address = [u8; 8];

/// Returns the port of an address.
pub(crate) fn port(address: &Address) -> u16 {
    u16::from_le_bytes([address[6], address[7]])
}

/// AMS header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) target: Address,
    pub(crate) source: Address,
    pub(crate) command: u16,
    pub(crate) flags: u16,
    pub(crate) data_length: u32,
    pub(crate) error: u32,
    pub(crate) invoke_id: u32,
}

impl Header {
    /// Reads the header behind the TCP header.
    pub(crate) fn read(fields: &mut Fields) -> Option<Header> {
        Some(Header {
            target: fields.array()?,
            source: fields.array()?,
            command: fields.u16()?,
            flags: fields.u16()?,
            data_length: fields.u32()?,
            error: fields.u32()?,
            invoke_id: fields.u32()?,
        })
    }

    /// Returns the reply to this packet, addressed to its sender.
    pub(crate) fn reply(&self, error: u32, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(TCP_HEADER + AMS_HEADER + data.len());
        let answer = Header { target: self.source, source: self.target, flags: RESPONSE | ADS_COMMAND, error, ..*self };
        answer.write(data.len(), &mut out);
        out.extend_from_slice(data);
        out
    }

    /// Writes both headers of a packet with `data_length` bytes of data.
    pub(crate) fn write(&self, data_length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&((AMS_HEADER + data_length) as u32).to_le_bytes());
        out.extend_from_slice(&self.target);
        out.extend_from_slice(&self.source);
        out.extend_from_slice(&self.command.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&(data_length as u32).to_le_bytes());
        out.extend_from_slice(&self.error.to_le_bytes());
        out.extend_from_slice(&self.invoke_id.to_le_bytes());
    }
}

/// Cursor over bytes; returns `None` when too few are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}

/// Returns a name as clients send it: up to the first zero byte, in Windows-1252.
pub(crate) fn name_of(bytes: &[u8]) -> String {
    bytes.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect()
}

/// Encodes text in Windows-1252, without a terminator. Characters it lacks become question marks.
pub(crate) fn windows_1252(text: &str) -> Vec<u8> {
    text.chars()
        .map(|c| match u32::from(c) {
            latin @ (0x20..=0x7E | 0xA0..=0xFF) => latin as u8,
            _ => b'?',
        })
        .collect()
}
