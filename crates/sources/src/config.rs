//! The `[[source]]` tables of `strongback.toml`, as written. [`SourceConfig::compile`] validates them and makes the
//! [`crate::layout::SourceLayout`] that decoders use; for a PLC, [`crate::ads::AdsLayout`] does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ads::Arrays;

/// An invalid key of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct KeyError {
    /// Path of the key, such as `source[0].stream[2].channel[5].bits`; empty for the whole of what was checked.
    pub path: String,
    /// Reason.
    pub reason: String,
}

impl KeyError {
    /// Creates an error of the key at `path`.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        KeyError { path: path.into(), reason: reason.into() }
    }

    /// Returns an error of the key at `path` as a result.
    ///
    /// # Errors
    /// Always.
    pub fn wrong<T>(path: impl Into<String>, reason: impl Into<String>) -> Result<T, KeyError> {
        Err(KeyError::new(path, reason))
    }

    /// Checks the length of the list at `path`, whose entries are called `things`.
    ///
    /// # Errors
    /// If it has more than `max` entries.
    pub fn check_count(path: impl Into<String>, count: usize, max: usize, things: &str) -> Result<(), KeyError> {
        match count > max {
            true => KeyError::wrong(path, format!("{count} {things}; {max} at most")),
            false => Ok(()),
        }
    }

    /// Returns the error with a reason that begins with what it is about, such as the name of a limit.
    pub fn about(self, subject: &str) -> Self {
        KeyError { reason: format!("{subject}: {}", self.reason), ..self }
    }

    /// Returns the error with a path that begins at the parent of what was checked, such as `limit[2]`.
    pub fn below(self, parent: &str) -> Self {
        let path = match self.path.as_str() {
            "" => parent.to_owned(),
            path => format!("{parent}.{path}"),
        };
        KeyError { path, ..self }
    }
}

/// One `[[source]]`: a packet receiver with the layouts of its streams, or a PLC with groups of symbols.
/// [`SourceConfig::kind`] decides which keys are allowed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name, as shown in `strongback.sources`.
    pub name: String,
    /// Protocol.
    pub kind: SourceKind,
    /// For packets: address and port. A multicast group is joined.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub listen: String,
    /// Network interface on which to join a multicast group: its name (`eth1`) or one of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Further addresses and multicast groups, each on its interface. Duplicate packets are kept once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupAddress>,
    /// Time scale of the packets' PTP timestamps, which the packets do not state.
    #[serde(default)]
    pub ptp_scale: PtpScale,
    /// Source of the `time` column: time of reception, or time in the packet.
    #[serde(default)]
    pub clock: ClockConfig,
    /// Requested size of the kernel's receive buffer, in bytes.
    #[serde(default = "default_receive_buffer_bytes")]
    pub receive_buffer_bytes: usize,
    /// Expected streams. Others are counted by id.
    #[serde(default)]
    pub stream: Vec<StreamConfig>,
    /// For a PLC: its IP address or host name, with the TCP port of its router if it is not 48898.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// AMS NetId of the PLC. Default: its IPv4 address followed by 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_id: Option<String>,
    /// AMS port of the program: 851 (default) is the first PLC of TwinCAT 3, 801 that of TwinCAT 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// AMS NetId of this client, for which the PLC needs a route. Default: the local IPv4 address of the connection
    /// followed by 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_net_id: Option<String>,
    /// Maximum time to wait for an answer of the PLC, in milliseconds. Default 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Table of the PLC's state. Default: the name of the source followed by `.state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_table: Option<String>,
    /// Groups of symbols, one stream each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<GroupConfig>,
}

/// One entry of `groups`: an address to listen on.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GroupAddress {
    /// Address and port. A multicast group is joined.
    pub address: String,
    /// Network interface on which to join it: its name or one of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// One `[[source.group]]`: symbols that are read together and form one stream.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Table of its frames.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Symbols: names, or patterns with `*` and `?`, such as `MAIN.tank.*`. A structure or an array stands for
    /// everything in it.
    pub symbols: Vec<String>,
    /// Symbols to exclude from these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Prefix to remove from symbol names in channel names, such as `MAIN.tank.`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub strip: String,
    /// Read mode.
    #[serde(default)]
    pub mode: ReadMode,
    /// Milliseconds between readings, or between the PLC's checks for a change. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_ms: Option<f64>,
    /// Readings per second, as an alternative to `cycle_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_hz: Option<f64>,
    /// AMS port of the program, if it differs from that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Mapping of arrays of numbers to channels.
    #[serde(default)]
    pub arrays: Arrays,
    /// Storage of enumeration values.
    #[serde(default)]
    pub enumerations: Enumerations,
}

/// Storage of enumeration values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enumerations {
    /// Names that the program defines, as text. A number without a name is stored as its digits.
    #[default]
    Names,
    /// Numbers. The names are listed in the channel's description.
    Numbers,
}

/// Method of reading a group of symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadMode {
    /// Request in each cycle, 1 to 100 times a second.
    #[default]
    CyclicRead,
    /// Notification by the PLC in each cycle, down to a millisecond, with the PLC's time.
    CyclicNotification,
    /// Notification by the PLC on change, with the PLC's time.
    OnChangeNotification,
}

/// Returns 8 MiB, a tenth of a second of a full gigabit link.
fn default_receive_buffer_bytes() -> usize {
    8 << 20
}

/// Protocol of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// iNET-X over UDP.
    Inetx,
    /// A Beckhoff PLC over ADS.
    Ads,
}

/// Time scale of PTP timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PtpScale {
    /// International atomic time. It is converted to UTC with the leap seconds since 1972.
    Tai,
    /// Coordinated universal time.
    #[default]
    Utc,
}

/// Source of a stream's `time` column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockConfig {
    /// Time of reception, which works with unsynchronised sources.
    #[default]
    Receive,
    /// Time in the packet.
    Source,
}

/// One `[[source.stream]]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Stream id on the wire.
    pub id: u32,
    /// Table of its frames.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Nominal interval between packets, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<f64>,
    /// Payload format.
    #[serde(default)]
    pub payload: PayloadKind,
    /// Channels of its payload.
    #[serde(default)]
    pub channel: Vec<ChannelConfig>,
    /// For a parser-aligned payload: the blocks to store, by bus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<BlockConfig>,
}

/// Payload format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// Channels at fixed offsets.
    #[default]
    Fixed,
    /// A sequence of blocks, each a message of a bus.
    ParserAligned,
}

/// One `[[source.stream.block]]`: blocks of a parser-aligned payload, each stored as a frame.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlockConfig {
    /// Bus id of the blocks. If omitted, all buses that no other entry names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<u8>,
    /// Table of its frames.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Fields of the block's header to store as channels, under these names.
    #[serde(default = "default_headers")]
    pub headers: Vec<BlockHeader>,
    /// Channels of its message, with offsets from the message's first byte. Channels beyond the end of a short message
    /// are missing from its frame.
    #[serde(default)]
    pub channel: Vec<ChannelConfig>,
}

fn default_headers() -> Vec<BlockHeader> {
    vec![BlockHeader::Error]
}

/// A field of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockHeader {
    /// Whether the message has an error (bool).
    Error,
    /// Error code (u8).
    ErrorCode,
    /// Message number (u8).
    MessageCount,
    /// Bus id (u8).
    BusId,
    /// Nanoseconds since the packet's timestamp (u32).
    ElapsedNs,
    /// Message size in bytes (u16).
    SizeBytes,
}

/// One `[[source.stream.channel]]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// Name within the stream.
    pub name: String,
    /// Offset of its word in the payload (after header and option words).
    pub offset: usize,
    /// First bit within the word, where 0 is the most significant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<u32>,
    /// Number of bits. Default: the size of the type (1 for `bool`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Type of the word on the wire, and of the channel if there is no polynomial.
    #[serde(rename = "type")]
    pub wire_type: WireType,
    /// Byte order of the word.
    #[serde(default)]
    pub endian: Endian,
    /// c0, c1, c2, …: the value is c0 + c1·x + c2·x² + …, and the channel's type is [`ChannelConfig::store`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polynomial: Option<Vec<f64>>,
    /// Type of the value of a polynomial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoredFloat>,
    /// Unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Samples per packet. Channels with the same number form a separate stream, table `<table>.x<n>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Interval between samples of one packet, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_us: Option<f64>,
    /// Distance between the words of consecutive samples, in bytes. Default: the size of the type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride_bytes: Option<usize>,
}

/// Type of a word on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum WireType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// Byte order of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// Most significant byte first.
    #[default]
    Big,
    /// Least significant byte first.
    Little,
}

/// Type of a polynomial's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredFloat {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}
