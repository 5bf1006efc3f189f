//! The `[[source]]` tables of `strongback.toml`, as written. [`SourceConfig::compile`] checks them and makes the
//! [`crate::layout::SourceLayout`] that decoders use, [`crate::ads::AdsLayout`] for a PLC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ads::Arrays;

/// One `[[source]]`: a receiver of packets and the layouts of its streams, or a PLC and the groups of its symbols. Which
/// keys may be there is decided by [`SourceConfig::kind`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name, as `strongback.sources` shows it.
    pub name: String,
    /// Protocol.
    pub kind: SourceKind,
    /// Of packets: address and port; a multicast group is joined.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub listen: String,
    /// Network interface to join a multicast group on: its name (`eth1`) or one of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Further addresses and multicast groups, each on its interface. What comes twice is kept once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupAddress>,
    /// Time scale of the packets' PTP stamps; the packets do not say.
    #[serde(default)]
    pub ptp_scale: PtpScale,
    /// Which time is `time`: that of reception or that of the packet.
    #[serde(default)]
    pub clock: ClockConfig,
    /// Bytes of the kernel's receive buffer to ask for.
    #[serde(default = "default_receive_buffer_bytes")]
    pub receive_buffer_bytes: usize,
    /// Streams that may arrive; others are counted by their id.
    #[serde(default)]
    pub stream: Vec<StreamConfig>,
    /// Of a PLC: its IP address or name, and the TCP port of its router where that is not 48898.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// AMS NetId of the PLC; by default its IPv4 address and 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_id: Option<String>,
    /// AMS port of the program: 851 is the first PLC of TwinCAT 3 and the default, 801 that of TwinCAT 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// AMS NetId of this client, which the PLC must have a route for; by default the IPv4 address that reaches it and
    /// 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_net_id: Option<String>,
    /// How long an answer of the PLC may take, in milliseconds. Default 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Table of the PLC's state; by default the name of the source and `.state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_table: Option<String>,
    /// Groups of symbols, each a stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<GroupConfig>,
}

/// One of `groups`: where to listen.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GroupAddress {
    /// Address and port; a multicast group is joined.
    pub address: String,
    /// Network interface to join it on: its name or one of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// One `[[source.group]]`: symbols that are read together, and form one stream.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Table its frames go to.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Symbols: names, or patterns with `*` and `?`, as in `MAIN.tank.*`. A structure or an array stands for all that
    /// is in it.
    pub symbols: Vec<String>,
    /// Of those, symbols that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Beginning of symbol names that channel names do without, as `MAIN.tank.`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub strip: String,
    /// How values come.
    #[serde(default)]
    pub mode: ReadMode,
    /// Milliseconds between two readings, or between two looks of the PLC for a change. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_ms: Option<f64>,
    /// The same as readings a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_hz: Option<f64>,
    /// AMS port of the program, where it is not that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// How arrays of numbers become channels.
    #[serde(default)]
    pub arrays: Arrays,
    /// How values of enumerations are stored.
    #[serde(default)]
    pub enumerations: Enumerations,
}

/// How values of enumerations are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enumerations {
    /// As the names that the program gives them: text. A number without a name is written as it is.
    #[default]
    Names,
    /// As numbers; the names stand in the channel's description.
    Numbers,
}

/// How the values of a group of symbols come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadMode {
    /// They are asked for each cycle: 1 to 100 times a second.
    #[default]
    CyclicRead,
    /// The PLC sends them each cycle, down to a millisecond, with its own time.
    CyclicNotification,
    /// The PLC sends them when they change, with its own time.
    OnChangeNotification,
}

/// 8 MiB: a tenth of a second of a full gigabit link.
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

/// Time scale of PTP stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PtpScale {
    /// International atomic time: UTC is found by the leap seconds since 1972.
    Tai,
    /// Coordinated universal time.
    #[default]
    Utc,
}

/// Which time is a stream's `time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockConfig {
    /// That of reception: unsynchronised sources do no harm.
    #[default]
    Receive,
    /// That of the packet.
    Source,
}

/// One `[[source.stream]]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Stream id on the wire.
    pub id: u32,
    /// Table its frames go to.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Nominal time between packets in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<f64>,
    /// How its payload is laid out.
    #[serde(default)]
    pub payload: PayloadKind,
    /// Channels of its payload.
    #[serde(default)]
    pub channel: Vec<ChannelConfig>,
    /// Of a parser-aligned payload: the blocks that become frames, by their bus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<BlockConfig>,
}

/// How a payload is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// Channels at fixed places.
    #[default]
    Fixed,
    /// A run of blocks, each a message of a bus.
    ParserAligned,
}

/// One `[[source.stream.block]]`: blocks of a parser-aligned payload, each a frame.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlockConfig {
    /// Bus id of the blocks; left out: of all buses that no other entry names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<u8>,
    /// Table its frames go to.
    pub table: String,
    /// Tags of the stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What of the block's header becomes channels, under these names.
    #[serde(default = "default_headers")]
    pub headers: Vec<BlockHeader>,
    /// Channels of its message; offsets count from the message's first byte. What a short message does not reach is
    /// absent from its frame.
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
    /// Which one (u8).
    ErrorCode,
    /// Number of the message (u8).
    MessageCount,
    /// Bus it was seen on (u8).
    BusId,
    /// Nanoseconds since the packet's stamp (u32).
    ElapsedNs,
    /// Bytes of the message (u16).
    SizeBytes,
}

/// One `[[source.stream.channel]]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// Name within the stream.
    pub name: String,
    /// First byte of its word in the payload (after header and option words).
    pub offset: usize,
    /// First bit within the word, 0 the most significant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<u32>,
    /// Bits it has; by default those of its type (1 for `bool`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Type of the word on the wire, and of the channel where there is no polynomial.
    #[serde(rename = "type")]
    pub wire_type: WireType,
    /// Order of the word's bytes.
    #[serde(default)]
    pub endian: Endian,
    /// c0, c1, c2, …: the value is c0 + c1·x + c2·x² + …, and the channel's type is [`ChannelConfig::store`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polynomial: Option<Vec<f64>>,
    /// Type of the value of a polynomial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoredFloat>,
    /// Unit of its values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Samples in each packet. Channels with the same number form a stream of their own, table `<table>.x<n>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Microseconds between samples of one packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_us: Option<f64>,
    /// Bytes from one sample's word to the next; by default the size of the type.
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

/// Order of bytes in a word.
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
