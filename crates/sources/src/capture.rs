//! Reads capture files (pcap, pcapng) into UDP datagrams with capture times. Pure apart from reading.
//!
//! Link layers: Ethernet with any number of VLAN tags, Linux cooked v1 and v2, raw IP, BSD loopback. Fragments are
//! counted but never reassembled: telemetry that relies on them loses whole packets with each lost fragment.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Initial size of the reader's buffer, and maximum size of a block.
const BUFFER_BYTES: usize = 1 << 20;
const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Maximum stacked VLAN tags.
const VLAN_TAGS_MAX: usize = 8;
/// Type of pcapng's obsolete packet block, written by old programs and replaced by enhanced packets.
const PACKET_BLOCK: u32 = 2;
/// Maximum IPv6 extension headers to walk.
const EXTENSIONS_MAX: usize = 8;

/// Reason why a capture cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// A file that is neither pcap nor pcapng.
    #[error("not a capture: neither pcap nor pcapng")]
    NotACapture,
    /// A block that cannot be read.
    #[error("damaged at offset {offset}: {what}")]
    Damaged {
        /// Offset of the block in bytes.
        offset: u64,
        /// Cause.
        what: String,
    },
}

/// A captured UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Capture time, in nanoseconds since 1970 UTC.
    pub time: i64,
    /// Destination.
    pub destination: SocketAddr,
    /// Payload.
    pub payload: &'a [u8],
}

/// Content of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured<'a> {
    /// A complete datagram.
    Datagram(Datagram<'a>),
    /// A fragment of a datagram.
    Fragment,
    /// A packet with fewer bytes than were on the wire, or than its headers state.
    Truncated,
    /// Another protocol.
    Other,
    /// A packet of an unsupported link layer, whose content is unknown.
    UnreadLink,
    /// A packet without a time: a simple packet of pcapng, one of an interface that the file does not describe, or one
    /// whose time cannot be read.
    Untimed,
}

/// End of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// A regular end.
    Whole,
    /// An end in the middle of a packet, as when the capturing program was killed.
    Cut,
    /// A stop requested by the caller.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Time units per second.
    resolution: u64,
    offset_s: i64,
}

/// Interfaces of the current section. Interfaces with unreadable times keep their numbers.
#[derive(Debug, Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Option<Interface>>,
}

impl Section {
    /// Decodes a packet with its time in the units of its interface.
    fn packet<'a>(&self, interface: usize, units: u64, bytes: &'a [u8]) -> Captured<'a> {
        let Some(interface) = self.interfaces.get(interface).copied().flatten() else { return Captured::Untimed };
        let since_ns = units as i128 * 1_000_000_000 / interface.resolution as i128;
        // The range of times is 1677 to 2262.
        match i64::try_from(interface.offset_s as i128 * 1_000_000_000 + since_ns) {
            Ok(time) => dissect(interface.link, bytes, time),
            Err(_) => Captured::Untimed,
        }
    }

    /// Decodes pcapng's obsolete packet block, replaced by enhanced packets. Returns `None` if the block is too short.
    ///
    /// ```text
    ///  u16 interface, u16 drops, u32 time (high), u32 time (low), u32 bytes, u32 bytes on the wire, the bytes, options
    /// ```
    fn obsolete_packet<'a>(&self, block: &'a [u8]) -> Option<Captured<'a>> {
        let (head, rest) = block.split_first_chunk::<20>()?;
        let word = |at: usize| {
            let word = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        let interface = [head[0], head[1]];
        let interface = if self.big_endian { u16::from_be_bytes(interface) } else { u16::from_le_bytes(interface) };
        let units = u64::from(word(4)) << 32 | u64::from(word(8));
        Some(self.packet(interface as usize, units, rest.get(..word(12) as usize)?))
    }
}

/// Returns the units per second of pcapng's `if_tsresol`: a power of ten, or with the top bit set, a power of two.
fn resolution(code: u8) -> Option<u64> {
    if code & 0x80 == 0 { 10_u64.checked_pow(code as u32) } else { 1_u64.checked_shl((code & 0x7F) as u32) }
}

/// Reads a capture packet by packet. Calls `each` with every packet and the number of bytes read so far.
///
/// # Errors
/// If the input is not a capture, or is damaged. Packets before the damage have been passed on.
pub fn read(
    input: impl Read + Send,
    mut each: impl FnMut(Captured<'_>, u64) -> ControlFlow<()>,
) -> Result<CaptureEnd, CaptureError> {
    let mut reader = match create_reader(BUFFER_BYTES, input) {
        Ok(reader) => reader,
        Err(PcapError::Eof | PcapError::HeaderNotRecognized | PcapError::Incomplete(_)) => {
            return Err(CaptureError::NotACapture);
        }
        Err(e) => return Err(CaptureError::Damaged { offset: 0, what: format!("{:?}", e.to_owned_vec()) }),
    };
    let mut section = Section::default();
    let mut capacity = BUFFER_BYTES;
    let mut offset = 0_u64;
    // Bytes available at the last refill. Asking again without progress means the end.
    let mut starved_at = None;
    loop {
        let error = match reader.next() {
            Ok((size, block)) => {
                let flow = match packet(&block, &mut section) {
                    Some(captured) => each(captured, offset + size as u64),
                    None => ControlFlow::Continue(()),
                };
                drop(block);
                reader.consume(size);
                offset += size as u64;
                starved_at = None;
                if flow.is_break() {
                    return Ok(CaptureEnd::Stopped);
                }
                continue;
            }
            Err(e) => e.to_owned_vec(),
        };
        let have = reader.data().len();
        match error {
            PcapError::Eof => return Ok(CaptureEnd::Whole),
            PcapError::UnexpectedEof if have == 0 => return Ok(CaptureEnd::Whole),
            PcapError::UnexpectedEof => return Ok(CaptureEnd::Cut),
            // Fill the buffer before growing it for a length that may be nonsense. A file that ends here is cut.
            PcapError::Incomplete(_) | PcapError::BufferTooSmall if starved_at != Some(have) => {
                starved_at = Some(have);
                reader.refill().map_err(|e| damaged(offset, &e))?;
            }
            PcapError::Incomplete(_) if reader.reader_exhausted() => return Ok(CaptureEnd::Cut),
            PcapError::Incomplete(_) | PcapError::BufferTooSmall if capacity < BLOCK_BYTES_MAX => {
                capacity *= 2;
                reader.grow(capacity);
                starved_at = None;
            }
            other => return Err(damaged(offset, &other)),
        }
    }
}

fn damaged(offset: u64, error: &PcapError<&[u8]>) -> CaptureError {
    let what = match error {
        PcapError::ReadError => "the file cannot be read".to_owned(),
        PcapError::BufferTooSmall => format!("a block of more than {BLOCK_BYTES_MAX} bytes"),
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => format!("a block that is none ({kind:?})"),
        other => format!("{other:?}").chars().take(80).collect(),
    };
    CaptureError::Damaged { offset, what }
}

/// Returns the packet of a block, if it is one.
fn packet<'a>(block: &'a PcapBlockOwned<'a>, section: &mut Section) -> Option<Captured<'a>> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            section.interfaces = vec![Some(Interface { link: header.network, resolution, offset_s: 0 })];
            None
        }
        PcapBlockOwned::Legacy(p) => {
            let interface = section.interfaces.first().copied().flatten()?;
            let fraction_ns = p.ts_usec as i64 * (1_000_000_000 / interface.resolution as i64);
            let time = p.ts_sec as i64 * 1_000_000_000 + fraction_ns;
            Some(dissect(interface.link, p.data, time))
        }
        PcapBlockOwned::NG(Block::SectionHeader(header)) => {
            *section = Section { big_endian: header.big_endian(), interfaces: Vec::new() };
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(i)) => {
            // The crate reads the offset as little-endian regardless of the section's byte order.
            let offset_s = if section.big_endian { i.if_tsoffset.swap_bytes() } else { i.if_tsoffset };
            let resolution = resolution(i.if_tsresol);
            section.interfaces.push(resolution.map(|resolution| Interface { link: i.linktype, resolution, offset_s }));
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(p)) => {
            let units = (p.ts_high as u64) << 32 | p.ts_low as u64;
            Some(section.packet(p.if_id as usize, units, p.packet_data()))
        }
        // The crate reads this type as little-endian regardless of the section's byte order.
        PcapBlockOwned::NG(Block::Unknown(block))
            if (if section.big_endian { block.block_type.swap_bytes() } else { block.block_type }) == PACKET_BLOCK =>
        {
            Some(section.obsolete_packet(block.data).unwrap_or(Captured::Truncated))
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => Some(Captured::Untimed),
        PcapBlockOwned::NG(_) => None,
    }
}

/// Decodes the datagram of a link-layer frame. A packet cut by the capture's length limit is accepted if only padding
/// is missing.
fn dissect(link: Linktype, bytes: &[u8], time: i64) -> Captured<'_> {
    if !is_read(link) {
        return Captured::UnreadLink;
    }
    match carried(link, bytes) {
        Some(Carried::Ip(version, ip)) => datagram(version, ip, time).unwrap_or(Captured::Truncated),
        Some(Carried::Other) => Captured::Other,
        None => Captured::Truncated,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reports whether [`carried`] supports a link layer.
fn is_read(link: Linktype) -> bool {
    matches!(
        link,
        Linktype::ETHERNET
            | Linktype::LINUX_SLL
            | Linktype::LINUX_SLL2
            | Linktype::RAW
            | Linktype::IPV4
            | Linktype::IPV6
            | Linktype(12 | 14 | 108)
            | Linktype::NULL
    )
}

/// Content of a link-layer frame.
enum Carried<'a> {
    /// An IP packet, with its version.
    Ip(u8, &'a [u8]),
    /// Another protocol.
    Other,
}

/// Returns the content of a link-layer frame, or `None` if the frame is too short to tell.
fn carried(link: Linktype, bytes: &[u8]) -> Option<Carried<'_>> {
    let by_ethertype = |mut kind: u16, mut rest: usize| {
        for _ in 0..VLAN_TAGS_MAX {
            if !matches!(kind, 0x8100 | 0x88A8 | 0x9100) {
                break;
            }
            kind = u16_at(bytes, rest + 2)?;
            rest += 4;
        }
        match kind {
            0x0800 => Some(Carried::Ip(4, bytes.get(rest..)?)),
            0x86DD => Some(Carried::Ip(6, bytes.get(rest..)?)),
            _ => Some(Carried::Other),
        }
    };
    let by_version = |from: usize| match bytes.get(from)? >> 4 {
        version @ (4 | 6) => Some(Carried::Ip(version, bytes.get(from..)?)),
        _ => Some(Carried::Other),
    };
    match link {
        Linktype::ETHERNET => by_ethertype(u16_at(bytes, 12)?, 14),
        Linktype::LINUX_SLL => by_ethertype(u16_at(bytes, 14)?, 16),
        Linktype::LINUX_SLL2 => by_ethertype(u16_at(bytes, 0)?, 20),
        // Raw IP has several numbers, depending on the capturing system.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12) | Linktype(14) => by_version(0),
        // The number of the address family differs between systems; the IP version does not.
        Linktype::NULL | Linktype(108) => by_version(4),
        _ => Some(Carried::Other),
    }
}

/// Decodes the datagram of an IP packet. Returns `None` if the packet is shorter than its headers state.
fn datagram(version: u8, ip: &[u8], time: i64) -> Option<Captured<'_>> {
    let (destination, udp) = if version == 4 {
        let fixed: &[u8; 20] = ip.first_chunk()?;
        let header_bytes = (fixed[0] & 0xF) as usize * 4;
        let total_bytes = u16::from_be_bytes([fixed[2], fixed[3]]) as usize;
        if fixed[9] != 17 || header_bytes < 20 {
            return Some(Captured::Other);
        }
        // More fragments, or a nonzero offset.
        if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3FFF != 0 {
            return Some(Captured::Fragment);
        }
        let to = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
        (IpAddr::V4(to), ip.get(header_bytes..total_bytes)?)
    } else {
        let fixed: &[u8; 40] = ip.first_chunk()?;
        let payload_bytes = u16::from_be_bytes([fixed[4], fixed[5]]) as usize;
        let to = Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[24..40]).ok()?);
        let mut rest = ip.get(40..40 + payload_bytes)?;
        let mut next = fixed[6];
        for _ in 0..EXTENSIONS_MAX {
            match next {
                // Hop-by-hop, routing and destination options. The length is in 8 bytes, without the first 8.
                0 | 43 | 60 => {
                    next = *rest.first()?;
                    let size = (*rest.get(1)? as usize + 1) * 8;
                    rest = rest.get(size..)?;
                }
                44 => {
                    // Offset and the more-fragments bit. An atomic fragment has neither.
                    if u16_at(rest, 2)? & 0xFFF9 != 0 {
                        return Some(Captured::Fragment);
                    }
                    next = *rest.first()?;
                    rest = rest.get(8..)?;
                }
                _ => break,
            }
        }
        if next != 17 {
            return Some(Captured::Other);
        }
        (IpAddr::V6(to), rest)
    };
    let port = u16_at(udp, 2)?;
    let udp_bytes = u16_at(udp, 4)? as usize;
    let payload = udp.get(8..udp_bytes.max(8))?;
    Some(Captured::Datagram(Datagram { time, destination: SocketAddr::new(destination, port), payload }))
}
