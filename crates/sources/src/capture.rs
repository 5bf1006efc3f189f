//! Capture files (pcap, pcapng) to UDP datagrams with the times at which they were captured. Pure but for reading.
//!
//! Link layers: Ethernet with any number of VLAN tags, Linux cooked v1 and v2, raw IP, BSD loopback. Fragments are
//! counted, never put together: telemetry that relies on them loses whole packets with each lost fragment.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Bytes of the reader's buffer at first, and at most for a single block.
const BUFFER_BYTES: usize = 1 << 20;
const BLOCK_BYTES_MAX: usize = 16 << 20;
/// VLAN tags stacked at most.
const VLAN_TAGS_MAX: usize = 8;
/// Type of pcapng's packet block, which enhanced packets replaced; old programs wrote it.
const PACKET_BLOCK: u32 = 2;
/// IPv6 extension headers walked at most.
const EXTENSIONS_MAX: usize = 8;

/// Why a capture cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("not a capture: neither pcap nor pcapng")]
    NotACapture,
    /// A block that cannot be read.
    #[error("damaged at offset {offset}: {what}")]
    Damaged {
        /// Bytes before the block.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// A UDP datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// When it was captured, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Where it was sent.
    pub destination: SocketAddr,
    /// What it carries.
    pub payload: &'a [u8],
}

/// What a packet of a capture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured<'a> {
    /// A whole datagram.
    Datagram(Datagram<'a>),
    /// A part of a fragmented datagram.
    Fragment,
    /// The capture holds less of it than was on the wire, or than its headers promise.
    Truncated,
    /// Another protocol.
    Other,
    /// A packet of a link layer that is not read: nobody knows what it carries.
    UnreadLink,
    /// A packet without a time: a simple packet of pcapng, one of an interface that the file does not describe, or one
    /// whose time cannot be read.
    Untimed,
}

/// How a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// As it should.
    Whole,
    /// In the middle of a packet, as when the capturing program was killed.
    Cut,
    /// The caller wanted no more.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units a second of its times.
    resolution: u64,
    offset_s: i64,
}

/// Interfaces of the section being read; those whose times cannot be read still have their numbers.
#[derive(Debug, Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Option<Interface>>,
}

impl Section {
    /// A packet with its time in the units of its interface.
    fn packet<'a>(&self, interface: usize, units: u64, bytes: &'a [u8]) -> Captured<'a> {
        let Some(interface) = self.interfaces.get(interface).copied().flatten() else { return Captured::Untimed };
        let since_ns = units as i128 * 1_000_000_000 / interface.resolution as i128;
        // Nothing is captured outside 1677 to 2262.
        match i64::try_from(interface.offset_s as i128 * 1_000_000_000 + since_ns) {
            Ok(time) => dissect(interface.link, bytes, time),
            Err(_) => Captured::Untimed,
        }
    }

    /// The packet of a pcapng packet block, which enhanced packets replaced; `None` if the block is too short.
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

/// Units a second by pcapng's `if_tsresol`: a power of ten, or with the top bit a power of two.
fn resolution(code: u8) -> Option<u64> {
    if code & 0x80 == 0 { 10_u64.checked_pow(code as u32) } else { 1_u64.checked_shl((code & 0x7F) as u32) }
}

/// Reads a capture packet by packet. `each` gets every packet and the bytes read so far.
///
/// # Errors
/// Where it is no capture, or damaged; what came before was handed over.
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
    // Bytes that were there when more were asked for: asking again without progress means the end.
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
            // Before the buffer grows for a length that may be nonsense, it is filled: a file that ends here is cut.
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

/// The packet of a block, if it is one.
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
            // The crate reads the offset little-endian whatever the section says.
            let offset_s = if section.big_endian { i.if_tsoffset.swap_bytes() } else { i.if_tsoffset };
            let resolution = resolution(i.if_tsresol);
            section.interfaces.push(resolution.map(|resolution| Interface { link: i.linktype, resolution, offset_s }));
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(p)) => {
            let units = (p.ts_high as u64) << 32 | p.ts_low as u64;
            Some(section.packet(p.if_id as usize, units, p.packet_data()))
        }
        // The crate reads this type little-endian, whatever the section says.
        PcapBlockOwned::NG(Block::Unknown(block))
            if (if section.big_endian { block.block_type.swap_bytes() } else { block.block_type }) == PACKET_BLOCK =>
        {
            Some(section.obsolete_packet(block.data).unwrap_or(Captured::Truncated))
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => Some(Captured::Untimed),
        PcapBlockOwned::NG(_) => None,
    }
}

/// The datagram of a link layer's frame. A packet cut by the capture's length limit is taken all the same where
/// nothing but padding is missing.
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

/// Whether packets of a link layer are looked into: those of [`carried`].
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

/// What a link layer's frame carries.
enum Carried<'a> {
    /// An IP packet, and its version.
    Ip(u8, &'a [u8]),
    /// Another protocol.
    Other,
}

/// What a link layer's frame carries; none if it ends before it says.
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
        // Raw IP has several numbers, by the system that captured.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12) | Linktype(14) => by_version(0),
        // The family's number differs between systems; the version of the packet does not.
        Linktype::NULL | Linktype(108) => by_version(4),
        _ => Some(Carried::Other),
    }
}

/// The datagram of an IP packet; none if it ends before its headers say.
fn datagram(version: u8, ip: &[u8], time: i64) -> Option<Captured<'_>> {
    let (destination, udp) = if version == 4 {
        let fixed: &[u8; 20] = ip.first_chunk()?;
        let header_bytes = (fixed[0] & 0xF) as usize * 4;
        let total_bytes = u16::from_be_bytes([fixed[2], fixed[3]]) as usize;
        if fixed[9] != 17 || header_bytes < 20 {
            return Some(Captured::Other);
        }
        // More fragments, or an offset.
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
                // Hop by hop, routing, destination options: length in 8 bytes, without the first.
                0 | 43 | 60 => {
                    next = *rest.first()?;
                    let size = (*rest.get(1)? as usize + 1) * 8;
                    rest = rest.get(size..)?;
                }
                44 => {
                    // Offset and the bit for more; an atomic fragment has neither.
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
