//! Layouts: the location of each channel in a packet. Made from the configuration once, fully validated, then only
//! read.

mod blocks;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hashbrown::{HashMap, HashSet};
use strongback_store::model::limits::{CHANNELS_MAX, STREAM_TAGS_MAX, TEXT_BYTES_MAX};
use strongback_store::{ChannelSpec, ChannelType, Clock, StreamKey, StreamSpec, Value};

use crate::ads::{AdsLayout, foreign_key};
use crate::config::{
    ChannelConfig, ClockConfig, Endian, KeyError, PayloadKind, PtpScale, SourceConfig, SourceKind, StoredFloat,
    StreamConfig, WireType,
};
use crate::naming::free_tag;
use crate::udp::{Listen, overlap};

pub use blocks::BlockLayout;

/// Maximum UDP payload, which bounds the location of channels.
const PAYLOAD_BYTES_MAX: usize = 65_507;
/// Maximum samples of one channel in a packet.
const SAMPLES_MAX: u32 = 32_768;
/// Maximum coefficients of a polynomial.
const COEFFICIENTS_MAX: usize = 16;
/// Maximum addresses and groups of one source.
const LISTENS_MAX: usize = 64;
/// Modulus of iNET-X sequence numbers.
pub const SEQUENCE_MODULUS: u64 = 1 << 32;

/// A validated `[[source]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceLayout {
    /// Name of the source.
    pub name: String,
    /// Protocol.
    pub kind: SourceKind,
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// Time scale of its timestamps.
    pub ptp_scale: PtpScale,
    /// Source of the `time` column.
    pub clock: Clock,
    /// Requested size of the kernel's receive buffer, in bytes.
    pub receive_buffer_bytes: usize,
    /// Expected streams.
    pub streams: Vec<StreamLayout>,
    by_id: HashMap<u32, usize, foldhash::fast::RandomState>,
}

impl SourceLayout {
    /// Returns the index into [`SourceLayout::streams`] of a stream id.
    pub fn index_of(&self, stream_id: u32) -> Option<usize> {
        self.by_id.get(&stream_id).copied()
    }

    /// Returns the longest time between the first and the last sample of a packet, in nanoseconds.
    pub fn packet_span_ns(&self) -> i64 {
        let tables = self.streams.iter().flat_map(|stream| &stream.tables);
        tables.map(|table| i64::from(table.samples.saturating_sub(1)) * table.sample_period_ns).max().unwrap_or(0)
    }

    /// Adds a tag to every stream, such as the run of an import. If a stream already has a tag of this name, that tag
    /// is renamed.
    pub fn add_tag(&mut self, key: &str, value: &str) {
        for table in self.streams.iter_mut().flat_map(|s| &mut s.tables) {
            let old = table.spec.key.clone();
            let other = free_tag(key, |name| old.tag(name).is_some());
            let kept = old.tags.into_iter().map(|(tag, value)| (if tag == key { other.clone() } else { tag }, value));
            let tags = kept.chain([(key.to_owned(), value.to_owned())]);
            table.spec.key = StreamKey::new(old.table, tags);
        }
    }
}

/// Layout of one stream id.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamLayout {
    /// Stream id on the wire.
    pub id: u32,
    /// Minimum size of a payload that contains every channel, in bytes.
    pub payload_bytes: usize,
    /// Table of the packet itself, followed by one for each number of samples or for each block entry.
    pub tables: Vec<TableLayout>,
    /// For a parser-aligned payload: the mapping of blocks to tables.
    pub blocks: Option<BlockLayout>,
}

/// Channels of a packet that belong to one stream of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct TableLayout {
    /// Definition of the stream for the store. Its channels match `fields`, in order.
    pub spec: StreamSpec,
    /// Frames per packet.
    pub samples: u32,
    /// Nanoseconds between these frames; 0 for a single one.
    pub sample_period_ns: i64,
    /// Location of each channel.
    pub fields: Vec<PacketField>,
}

/// Location and encoding of a channel in the payload.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketField {
    /// Offset of its first word, in bytes.
    pub offset: usize,
    /// Distance between the words of consecutive samples, in bytes.
    pub stride_bytes: usize,
    word: Word,
    /// Number of bits to the right of the field in its word.
    shift: u32,
    /// Number of bits above the field in a u64, once shifted.
    unused: u32,
    kind: ChannelType,
    conversion: Conversion,
}

/// Size and byte order of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    One,
    Big2,
    Big4,
    Big8,
    Little2,
    Little4,
    Little8,
}

impl Word {
    fn of(size_bytes: usize, endian: Endian) -> Word {
        match (size_bytes, endian) {
            (1, _) => Word::One,
            (2, Endian::Big) => Word::Big2,
            (4, Endian::Big) => Word::Big4,
            (_, Endian::Big) => Word::Big8,
            (2, Endian::Little) => Word::Little2,
            (4, Endian::Little) => Word::Little4,
            (_, Endian::Little) => Word::Little8,
        }
    }
}

/// Conversion of the raw number.
#[derive(Clone, Debug, PartialEq)]
enum Conversion {
    /// No conversion.
    None,
    /// A linear function to f64, constant first.
    Line(f64, f64),
    /// A polynomial to f64, lowest coefficient first.
    Polynomial(Box<[f64]>),
    /// A polynomial rounded to f32.
    Narrow(Box<[f64]>),
}

impl PacketField {
    /// Returns the value of a sample, or `None` if its word is not within the payload.
    #[inline]
    pub fn value(&self, payload: &[u8], sample: usize) -> Option<Value<'static>> {
        let at = self.offset + sample * self.stride_bytes;
        let raw = self.raw(payload.get(at..)?)?;
        Some(match &self.conversion {
            Conversion::None => Value::from_bits(self.kind, raw),
            Conversion::Line(c0, c1) => Value::F64(c0 + c1 * self.number(raw)),
            Conversion::Polynomial(c) => Value::F64(horner(c, self.number(raw))),
            Conversion::Narrow(c) => Value::F32(horner(c, self.number(raw)) as f32),
        })
    }

    /// Returns the raw bits, sign-extended to 64 bits for a signed type.
    #[inline]
    fn raw(&self, from: &[u8]) -> Option<u64> {
        let word = match self.word {
            Word::One => *from.first()? as u64,
            Word::Big2 => u16::from_be_bytes(*from.first_chunk()?) as u64,
            Word::Big4 => u32::from_be_bytes(*from.first_chunk()?) as u64,
            Word::Big8 => u64::from_be_bytes(*from.first_chunk()?),
            Word::Little2 => u16::from_le_bytes(*from.first_chunk()?) as u64,
            Word::Little4 => u32::from_le_bytes(*from.first_chunk()?) as u64,
            Word::Little8 => u64::from_le_bytes(*from.first_chunk()?),
        };
        let left = (word >> self.shift) << self.unused;
        Some(match self.kind {
            ChannelType::I8 | ChannelType::I16 | ChannelType::I32 | ChannelType::I64 => {
                (left as i64 >> self.unused) as u64
            }
            _ => left >> self.unused,
        })
    }

    /// Returns the raw number as f64.
    #[inline]
    fn number(&self, raw: u64) -> f64 {
        match self.kind {
            ChannelType::I8 | ChannelType::I16 | ChannelType::I32 | ChannelType::I64 => raw as i64 as f64,
            ChannelType::F32 => f32::from_bits(raw as u32) as f64,
            ChannelType::F64 => f64::from_bits(raw),
            _ => raw as f64,
        }
    }
}

/// Computes c0 + x·(c1 + x·(c2 + …)).
#[inline]
fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

fn wire_kind(wire: WireType) -> ChannelType {
    match wire {
        WireType::Bool => ChannelType::Bool,
        WireType::U8 => ChannelType::U8,
        WireType::U16 => ChannelType::U16,
        WireType::U32 => ChannelType::U32,
        WireType::U64 => ChannelType::U64,
        WireType::I8 => ChannelType::I8,
        WireType::I16 => ChannelType::I16,
        WireType::I32 => ChannelType::I32,
        WireType::I64 => ChannelType::I64,
        WireType::F32 => ChannelType::F32,
        WireType::F64 => ChannelType::F64,
    }
}

/// Validated sources, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layouts {
    /// Packet receivers.
    pub packets: Vec<SourceLayout>,
    /// PLCs.
    pub plcs: Vec<AdsLayout>,
}

/// Validates sources, each on its own and against the others, and makes their layouts.
///
/// # Errors
/// If a key is wrong, with the first such key.
pub fn compile_all(sources: &[SourceConfig]) -> Result<Layouts, KeyError> {
    let mut layouts = Layouts::default();
    let mut names = HashSet::new();
    let mut addresses: Vec<(usize, Listen)> = Vec::new();
    let mut plcs = HashSet::new();
    let mut keys: HashMap<StreamKey, String> = HashMap::new();
    for (i, source) in sources.iter().enumerate() {
        let path = format!("source[{i}]");
        if let Some((key, other)) = foreign_key(source) {
            return Err(KeyError::new(format!("{path}.{key}"), format!("only with kind = {other:?}")));
        }
        if !names.insert(source.name.as_str()) {
            return Err(KeyError::new(format!("{path}.name"), format!("{:?} names another source too", source.name)));
        }
        let mut feeds = |key: &StreamKey, here: String| match keys.insert(key.clone(), here.clone()) {
            Some(other) if other != here => Err(KeyError::new(
                format!("{here}.table"),
                format!("{key} is fed by {other} too: give one of them a tag"),
            )),
            _ => Ok(()),
        };
        match source.kind {
            SourceKind::Inetx => {
                let layout = source.compile(&path)?;
                for (at, listen) in layout.listen.iter().enumerate() {
                    let is_apart = |other: &Listen| {
                        let named = listen.interface.is_some() && other.interface.is_some();
                        other.address == listen.address && named && other.interface != listen.interface
                    };
                    let others = addresses.iter().filter(|(of, _)| *of != i).map(|(_, other)| other);
                    let mut shared = others.filter(|other| overlap(other.address, listen.address));
                    if let Some(other) = shared.find(|other| !is_apart(other)) {
                        let what = match other.address == listen.address {
                            true => format!("{} belongs to another source too", listen.address),
                            false => format!("{} overlaps {} of another source", listen.address, other.address),
                        };
                        let each = "; give each of the sources an interface of its own";
                        let is_one_group = listen.address.ip().is_multicast() && other.address == listen.address;
                        let hint = if is_one_group { each } else { "" };
                        return Err(KeyError::new(source.listen_path(at, &path), format!("{what}{hint}")));
                    }
                    addresses.push((i, listen.clone()));
                }
                for (s, stream) in layout.streams.iter().enumerate() {
                    for table in &stream.tables {
                        feeds(&table.spec.key, format!("{path}.stream[{s}]"))?;
                    }
                }
                layouts.packets.push(layout);
            }
            SourceKind::Ads => {
                let layout = AdsLayout::compile(source, &path)?;
                if !plcs.insert((layout.target.host.clone(), layout.target.source_net_id)) {
                    let why = "another source has this PLC and source_net_id too: its router keeps one connection of \
                               each client, so put the groups of both into one source";
                    return Err(KeyError::new(format!("{path}.host"), why));
                }
                feeds(&layout.state, format!("{path}.state"))?;
                for (g, group) in layout.groups.iter().enumerate() {
                    feeds(&group.key, format!("{path}.group[{g}]"))?;
                }
                layouts.plcs.push(layout);
            }
        }
    }
    Ok(layouts)
}

impl SourceConfig {
    /// Validates the source and makes its layout. `path` is its place in the configuration, such as `source[0]`.
    ///
    /// # Errors
    /// If a key is wrong, with the first such key.
    pub fn compile(&self, path: &str) -> Result<SourceLayout, KeyError> {
        check_name(&self.name, &format!("{path}.name"))?;
        let listen = self.listens(path)?;
        if !(4_096..=1 << 30).contains(&self.receive_buffer_bytes) {
            return Err(KeyError::new(
                format!("{path}.receive_buffer_bytes"),
                format!("{} is not between 4096 and 1 GiB", self.receive_buffer_bytes),
            ));
        }
        let mut by_id = HashMap::default();
        let mut streams: Vec<StreamLayout> = Vec::with_capacity(self.stream.len());
        for (i, stream) in self.stream.iter().enumerate() {
            let path = format!("{path}.stream[{i}]");
            if by_id.insert(stream.id, i).is_some() {
                return Err(KeyError::new(
                    format!("{path}.id"),
                    format!("{:#010x} has another layout in this source too", stream.id),
                ));
            }
            streams.push(self.compile_stream(stream, &path)?);
        }
        Ok(SourceLayout {
            name: self.name.clone(),
            kind: self.kind,
            listen,
            ptp_scale: self.ptp_scale,
            clock: self.store_clock(),
            receive_buffer_bytes: self.receive_buffer_bytes,
            streams,
            by_id,
        })
    }

    /// Returns the path of the key of one of the addresses to listen on, in their order.
    fn listen_path(&self, at: usize, path: &str) -> String {
        let first = usize::from(!self.listen.is_empty());
        match at.checked_sub(first) {
            Some(group) if group < self.groups.len() => format!("{path}.groups[{group}].address"),
            _ => format!("{path}.listen"),
        }
    }

    /// Returns the addresses to listen on, from `listen` and `groups`.
    fn listens(&self, path: &str) -> Result<Vec<Listen>, KeyError> {
        let first = (!self.listen.is_empty() || self.groups.is_empty())
            .then(|| (path.to_owned(), "listen", &self.listen, &self.interface));
        if self.interface.is_some() && first.is_none() {
            let why = "belongs to `listen`, and there is none: give each of `groups` its own";
            return Err(KeyError::new(format!("{path}.interface"), why));
        }
        let others = self.groups.iter().enumerate();
        let others =
            others.map(|(i, group)| (format!("{path}.groups[{i}]"), "address", &group.address, &group.interface));
        let mut listens: Vec<Listen> = Vec::new();
        for (path, key, text, interface) in first.into_iter().chain(others) {
            let address: SocketAddr = text.parse().map_err(|_| {
                KeyError::new(
                    format!("{path}.{key}"),
                    format!("{text:?} is not an address and port, as 127.0.0.1:4440 or [ff02::1]:4440"),
                )
            })?;
            if interface.is_some() && !address.ip().is_multicast() {
                return Err(KeyError::new(
                    format!("{path}.interface"),
                    format!("only a multicast group is joined on an interface, and {} is none", address.ip()),
                ));
            }
            let listen = Listen { address, interface: interface.clone() };
            if address.port() != 0 && listens.contains(&listen) {
                return Err(KeyError::new(format!("{path}.{key}"), format!("{address} stands here twice")));
            }
            let overlaps = |other: &&Listen| other.address != address && overlap(other.address, address);
            if let Some(other) = listens.iter().find(overlaps) {
                let what = format!("{address} overlaps {} of this source", other.address);
                return Err(KeyError::new(format!("{path}.{key}"), what));
            }
            if listens.len() == LISTENS_MAX {
                return Err(KeyError::new(path, format!("a source has at most {LISTENS_MAX} addresses")));
            }
            listens.push(listen);
        }
        Ok(listens)
    }

    fn store_clock(&self) -> Clock {
        match self.clock {
            ClockConfig::Receive => Clock::Receive,
            ClockConfig::Source => Clock::Source,
        }
    }

    fn compile_stream(&self, stream: &StreamConfig, path: &str) -> Result<StreamLayout, KeyError> {
        check_table(&stream.table, &format!("{path}.table"))?;
        check_tags(&stream.tags, path)?;
        let period_ns = match stream.period_ms {
            None => None,
            Some(ms) => Some(nanoseconds(ms, 1e6, &format!("{path}.period_ms"))?),
        };
        let clock = self.store_clock();
        match stream.payload {
            PayloadKind::ParserAligned => return blocks::compile(stream, &self.name, clock, period_ns, path),
            PayloadKind::Fixed if !stream.block.is_empty() => {
                return Err(KeyError::new(format!("{path}.block"), "only with payload = \"parser-aligned\""));
            }
            PayloadKind::Fixed if stream.channel.is_empty() => {
                return Err(KeyError::new(format!("{path}.channel"), "a stream needs at least one channel"));
            }
            PayloadKind::Fixed => {}
        }
        let mut tables: Vec<TableLayout> = Vec::new();
        let mut payload_bytes = 0;
        let mut names = HashSet::new();
        let table_path = format!("{path}.table");
        for (i, channel) in stream.channel.iter().enumerate() {
            let path = format!("{path}.channel[{i}]");
            let samples = channel.samples.unwrap_or(1);
            let sample_period_ns = sample_period_ns(channel, samples, &path)?;
            let (field, stored) = compile_field(channel, samples, &path)?;
            payload_bytes = payload_bytes.max(field_end(&field, samples));
            if !names.insert((samples, channel.name.as_str())) {
                return Err(KeyError::new(
                    format!("{path}.name"),
                    format!("{:?} names another channel of this stream too", channel.name),
                ));
            }
            let table = match tables.iter_mut().find(|t| t.samples == samples) {
                Some(table) if table.sample_period_ns != sample_period_ns => {
                    return Err(KeyError::new(
                        format!("{path}.period_us"),
                        format!("channels with samples = {samples} of one stream share one period"),
                    ));
                }
                Some(table) => table,
                None => {
                    let name = match samples {
                        1 => stream.table.clone(),
                        n => format!("{}.x{n}", stream.table),
                    };
                    check_table(&name, &table_path)?;
                    tables.push(TableLayout {
                        spec: StreamSpec {
                            key: StreamKey::new(name, stream.tags.clone()),
                            source: self.name.clone(),
                            clock,
                            expected_period_ns: if samples == 1 { period_ns } else { Some(sample_period_ns) },
                            sequence_modulus: Some(SEQUENCE_MODULUS * samples as u64),
                            channels: Vec::new(),
                        },
                        samples,
                        sample_period_ns,
                        fields: Vec::new(),
                    });
                    tables.last_mut().expect("pushed above")
                }
            };
            if table.fields.len() == CHANNELS_MAX {
                return Err(KeyError::new(path, format!("a stream has at most {CHANNELS_MAX} channels")));
            }
            table.spec.channels.push(channel.spec(stored));
            table.fields.push(field);
        }
        tables.sort_by_key(|t| t.samples);
        Ok(StreamLayout { id: stream.id, payload_bytes, tables, blocks: None })
    }
}

impl ChannelConfig {
    /// Returns the definition of the channel for the store.
    fn spec(&self, stored: ChannelType) -> ChannelSpec {
        ChannelSpec {
            unit: self.unit.clone(),
            description: self.description.clone(),
            ..ChannelSpec::new(self.name.as_str(), stored)
        }
    }
}

/// Checks the tags of the stream at `path`.
pub(crate) fn check_tags(tags: &BTreeMap<String, String>, path: &str) -> Result<(), KeyError> {
    KeyError::check_count(format!("{path}.tags"), tags.len(), STREAM_TAGS_MAX, "tags")?;
    for (key, value) in tags {
        check_name(key, &format!("{path}.tags"))?;
        check_name(value, &format!("{path}.tags.{key}"))?;
    }
    Ok(())
}

/// Returns the offset of the first byte after the last word of a field.
fn field_end(field: &PacketField, samples: u32) -> usize {
    field.offset + (samples as usize - 1) * field.stride_bytes + field.word_bytes()
}

impl PacketField {
    fn word_bytes(&self) -> usize {
        match self.word {
            Word::One => 1,
            Word::Big2 | Word::Little2 => 2,
            Word::Big4 | Word::Little4 => 4,
            Word::Big8 | Word::Little8 => 8,
        }
    }
}

fn sample_period_ns(channel: &ChannelConfig, samples: u32, path: &str) -> Result<i64, KeyError> {
    if samples == 0 || samples > SAMPLES_MAX {
        return Err(KeyError::new(format!("{path}.samples"), format!("{samples} is not between 1 and {SAMPLES_MAX}")));
    }
    match (samples, channel.period_us) {
        (1, None) => Ok(0),
        (1, Some(_)) => Err(KeyError::new(format!("{path}.period_us"), "only with samples of 2 and more")),
        (_, None) => Err(KeyError::new(
            format!("{path}.period_us"),
            format!("missing: microseconds between the {samples} samples of a packet"),
        )),
        (_, Some(us)) => nanoseconds(us, 1e3, &format!("{path}.period_us")),
    }
}

fn compile_field(channel: &ChannelConfig, samples: u32, path: &str) -> Result<(PacketField, ChannelType), KeyError> {
    check_name(&channel.name, &format!("{path}.name"))?;
    for (key, text) in [("unit", &channel.unit), ("description", &channel.description)] {
        check_text(text, &format!("{path}.{key}"))?;
    }
    let kind = wire_kind(channel.wire_type);
    let size_bytes = kind.size_bytes();
    let word_bits = size_bytes as u32 * 8;
    let (mut offset, mut bit) = (channel.offset, channel.bit.unwrap_or(0));
    let whole = if kind == ChannelType::Bool { 1 } else { word_bits };
    let bits = channel.bits.unwrap_or(whole);
    if kind == ChannelType::Bool {
        // A Boolean may be any bit of a wider word, and lies in one byte of it.
        if channel.endian == Endian::Little && bit > 7 {
            return Err(KeyError::new(
                format!("{path}.bit"),
                "a bool of a little-endian word: give the offset of its byte and a bit from 0 to 7",
            ));
        }
        offset = offset.saturating_add(bit as usize / 8);
        bit %= 8;
        if bits != 1 {
            return Err(KeyError::new(format!("{path}.bits"), format!("a bool has 1 bit, not {bits}")));
        }
    }
    if bits == 0 || bit.saturating_add(bits) > word_bits {
        return Err(KeyError::new(
            format!("{path}.bits"),
            format!("bits {bit} to {} are not within the {word_bits} of {}", bit.saturating_add(bits), kind.name()),
        ));
    }
    if kind.is_float() && bits != word_bits {
        return Err(KeyError::new(format!("{path}.bits"), format!("{} is read whole", kind.name())));
    }
    let stride_bytes = channel.stride_bytes.unwrap_or(size_bytes);
    if channel.stride_bytes.is_some() && samples == 1 {
        return Err(KeyError::new(format!("{path}.stride_bytes"), "only with samples of 2 and more"));
    }
    if stride_bytes == 0 || stride_bytes > PAYLOAD_BYTES_MAX {
        return Err(KeyError::new(format!("{path}.stride_bytes"), format!("{stride_bytes} is out of range")));
    }
    let (conversion, stored) = conversion(channel, kind, path)?;
    let field = PacketField {
        offset,
        stride_bytes,
        word: Word::of(size_bytes, channel.endian),
        shift: word_bits - bit - bits,
        unused: 64 - bits,
        kind,
        conversion,
    };
    if offset > PAYLOAD_BYTES_MAX || field_end(&field, samples) > PAYLOAD_BYTES_MAX {
        return Err(KeyError::new(
            format!("{path}.offset"),
            format!("its last byte lies beyond {PAYLOAD_BYTES_MAX}, the largest payload of a datagram"),
        ));
    }
    Ok((field, stored))
}

fn conversion(channel: &ChannelConfig, kind: ChannelType, path: &str) -> Result<(Conversion, ChannelType), KeyError> {
    let Some(coefficients) = &channel.polynomial else {
        if channel.store.is_some() {
            return Err(KeyError::new(format!("{path}.store"), "only beside a polynomial"));
        }
        return Ok((Conversion::None, kind));
    };
    let path = format!("{path}.polynomial");
    if kind == ChannelType::Bool {
        return Err(KeyError::new(path, "a bool has no polynomial"));
    }
    if coefficients.is_empty() || coefficients.len() > COEFFICIENTS_MAX {
        return Err(KeyError::new(path, format!("1 to {COEFFICIENTS_MAX} coefficients, not {}", coefficients.len())));
    }
    if let Some(bad) = coefficients.iter().find(|c| !c.is_finite()) {
        return Err(KeyError::new(path, format!("coefficient {bad} is not finite")));
    }
    Ok(match (channel.store.unwrap_or(StoredFloat::F64), coefficients.as_slice()) {
        (StoredFloat::F32, c) => (Conversion::Narrow(c.into()), ChannelType::F32),
        (StoredFloat::F64, &[c0, c1]) => (Conversion::Line(c0, c1), ChannelType::F64),
        (StoredFloat::F64, c) => (Conversion::Polynomial(c.into()), ChannelType::F64),
    })
}

fn nanoseconds(count: f64, unit_ns: f64, path: &str) -> Result<i64, KeyError> {
    let ns = (count * unit_ns).round();
    // A day at most: longer periods are a mistake in units.
    if (1.0..=86_400e9).contains(&ns) {
        Ok(ns as i64)
    } else {
        Err(KeyError::new(path, format!("{count} is not between 1 ns and a day")))
    }
}

pub(crate) fn check_name(name: &str, path: &str) -> Result<(), KeyError> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > crate::NAME_BYTES_MAX {
        "is too long"
    } else if name.chars().any(char::is_control) {
        "holds a control character"
    } else if name.starts_with("strongback.") {
        "begins with `strongback.`, which is reserved"
    } else {
        return Ok(());
    };
    Err(KeyError::new(path, format!("the name {name:?} {why}")))
}

/// Checks the name of a table. Case is ignored for the store's own tables, as SQL finds tables regardless of it.
pub(crate) fn check_table(name: &str, path: &str) -> Result<(), KeyError> {
    check_name(name, path)?;
    match name.split('.').next() {
        Some(schema) if schema.eq_ignore_ascii_case("strongback") => {
            Err(KeyError::new(path, format!("the name {name:?}: tables named strongback are the store's own")))
        }
        _ => Ok(()),
    }
}

/// Checks the length of a unit or a description, which the store limits.
///
/// # Errors
/// If the text is too long.
pub fn check_text(text: &str, path: &str) -> Result<(), KeyError> {
    KeyError::check_count(path, text.len(), TEXT_BYTES_MAX, "bytes")
}
