//! The iNET-X packet: a header of big-endian words, then the payload.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | control | bits 31–28 version (1), bits 27–24 number of option words |
//! | 4 | 4 | stream id | |
//! | 8 | 4 | sequence | of the stream; wraps at 2³² |
//! | 12 | 4 | packet length | of the whole packet in bytes, header included |
//! | 16 | 4 | PTP seconds | since 1970; TAI or UTC is not stated |
//! | 20 | 4 | PTP nanoseconds | |
//! | 24 | 4 × count | option words | the first is the payload information field |
//! | 24 + 4 × count | | payload | |

/// Size of the header before the option words.
pub const FIXED_HEADER_BYTES: usize = 24;
/// Supported version.
pub const VERSION: u8 = 1;

/// A packet with its fields as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Control word: version and number of option words.
    pub control: u32,
    /// Stream id.
    pub stream_id: u32,
    /// Sequence number in its stream, modulo 2³².
    pub sequence: u32,
    /// Stated size of the packet in bytes, equal to the received size.
    pub packet_bytes: u32,
    /// Seconds since 1970, of its first sample.
    pub ptp_s: u32,
    /// Nanoseconds within the second.
    pub ptp_ns: u32,
    /// Payload information field, if the packet has an option word.
    pub payload_information: Option<PayloadInformation>,
    /// Payload, after the header.
    pub payload: &'a [u8],
}

/// Payload information field, the first option word, set by the acquisition chassis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadInformation(
    /// Value of the option word.
    pub u32,
);

impl PayloadInformation {
    /// Returns bit 31: whether the payload has an error.
    pub fn error(self) -> bool {
        self.0 >> 31 & 1 == 1
    }

    /// Returns bits 30–27: the messages that the chassis lost before this one.
    pub fn lost_count(self) -> u8 {
        (self.0 >> 27 & 0xF) as u8
    }

    /// Returns bit 26: whether the packet was sent because of a timeout rather than because it was full.
    pub fn timeout(self) -> bool {
        self.0 >> 26 & 1 == 1
    }
}

/// Error in an iNET-X packet. Offsets are bytes in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// A datagram too short for its header.
    #[error("truncated: {found_bytes} bytes at offset {offset}, the iNET-X header needs {needed_bytes}")]
    Truncated {
        /// Offset where the datagram ended.
        offset: usize,
        /// Bytes available.
        found_bytes: usize,
        /// Size of the header in bytes.
        needed_bytes: usize,
    },
    /// An unsupported version, or not iNET-X at all.
    #[error("offset 0: iNET-X version {found} (control word {control:#010x}), only version 1 is supported")]
    Version {
        /// Version in the control word.
        found: u8,
        /// Control word.
        control: u32,
    },
    /// A stated length that differs from the datagram's.
    #[error(
        "stream {stream_id:#010x}, offset 12: the packet says it has {declared_bytes} bytes, the datagram has {found_bytes}"
    )]
    Length {
        /// Stated stream id.
        stream_id: u32,
        /// Stated length in bytes.
        declared_bytes: u32,
        /// Size of the datagram in bytes.
        found_bytes: usize,
    },
}

impl<'a> Packet<'a> {
    /// Parses the header of a datagram.
    ///
    /// # Errors
    /// If it is truncated, has another version, or its length differs from the stated one.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        let Some(fixed) = datagram.first_chunk::<FIXED_HEADER_BYTES>() else {
            // For a foreign datagram, report the version rather than the size.
            if let Some(control) = datagram.first_chunk::<4>() {
                check_version(u32::from_be_bytes(*control))?;
            }
            return Err(PacketError::Truncated {
                offset: datagram.len(),
                found_bytes: datagram.len(),
                needed_bytes: FIXED_HEADER_BYTES,
            });
        };
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let control = word(0);
        check_version(control)?;
        let stream_id = word(4);
        let packet_bytes = word(12);
        if packet_bytes as usize != datagram.len() {
            return Err(PacketError::Length { stream_id, declared_bytes: packet_bytes, found_bytes: datagram.len() });
        }
        let option_words = (control >> 24 & 0xF) as usize;
        let header_bytes = FIXED_HEADER_BYTES + 4 * option_words;
        let Some(payload) = datagram.get(header_bytes..) else {
            return Err(PacketError::Truncated {
                offset: datagram.len(),
                found_bytes: datagram.len(),
                needed_bytes: header_bytes,
            });
        };
        let options = &datagram[FIXED_HEADER_BYTES..header_bytes];
        Ok(Packet {
            control,
            stream_id,
            sequence: word(8),
            packet_bytes,
            ptp_s: word(16),
            ptp_ns: word(20),
            payload_information: options.first_chunk().map(|w| PayloadInformation(u32::from_be_bytes(*w))),
            payload,
        })
    }
}

#[inline]
fn check_version(control: u32) -> Result<(), PacketError> {
    let found = (control >> 28) as u8;
    if found == VERSION { Ok(()) } else { Err(PacketError::Version { found, control }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(control: u32, options: &[u32], payload: &[u8]) -> Vec<u8> {
        let length = (FIXED_HEADER_BYTES + 4 * options.len() + payload.len()) as u32;
        let mut bytes = Vec::new();
        for word in [control, 0xDD, 7, length, 1_700_000_000, 42].iter().chain(options) {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn header_length_follows_the_control_word() {
        for count in 0..=15_u32 {
            let options: Vec<u32> = (0..count).map(|i| 0xF400_0000 + i).collect();
            let bytes = packet(0x1000_0000 | count << 24, &options, b"payload");
            let p = Packet::parse(&bytes).unwrap();
            assert_eq!(p.payload, b"payload");
            assert_eq!((p.stream_id, p.sequence, p.ptp_s, p.ptp_ns), (0xDD, 7, 1_700_000_000, 42));
            assert_eq!(p.payload_information.is_some(), count > 0);
        }
    }

    #[test]
    fn payload_information_is_split_into_its_fields() {
        let bytes = packet(0x1100_0000, &[0x8000_0000 | 0b1010 << 27 | 1 << 26], b"");
        let pif = Packet::parse(&bytes).unwrap().payload_information.unwrap();
        assert!(pif.error() && pif.timeout());
        assert_eq!(pif.lost_count(), 10);
        let quiet = PayloadInformation(0x03FF_FFFF);
        assert!(!quiet.error() && !quiet.timeout());
        assert_eq!(quiet.lost_count(), 0);
    }

    #[test]
    fn what_is_wrong_is_said_with_stream_and_offset() {
        let good = packet(0x1100_0000, &[0], b"payload");
        assert_eq!(
            Packet::parse(&good[..good.len() - 1]).unwrap_err().to_string(),
            "stream 0x000000dd, offset 12: the packet says it has 35 bytes, the datagram has 34"
        );
        let mut long = good.clone();
        long.push(0);
        assert!(matches!(Packet::parse(&long), Err(PacketError::Length { declared_bytes: 35, found_bytes: 36, .. })));
        let mut other = good.clone();
        other[0] = 0x21;
        assert_eq!(
            Packet::parse(&other).unwrap_err().to_string(),
            "offset 0: iNET-X version 2 (control word 0x21000000), only version 1 is supported"
        );
        assert_eq!(
            Packet::parse(&good[..20]).unwrap_err().to_string(),
            "truncated: 20 bytes at offset 20, the iNET-X header needs 24"
        );
        assert!(matches!(Packet::parse(&[]), Err(PacketError::Truncated { found_bytes: 0, .. })));
        assert!(matches!(Packet::parse(b"GET / HTTP"), Err(PacketError::Version { found: 4, .. })));
        // Three option words stated, one present.
        let mut short = packet(0x1300_0000, &[0], b"");
        let n = short.len() as u32;
        short[12..16].copy_from_slice(&n.to_be_bytes());
        assert!(matches!(Packet::parse(&short), Err(PacketError::Truncated { needed_bytes: 36, .. })));
    }
}
