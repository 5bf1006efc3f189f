//! The three protocols as far as faults need them: where a message ends, which flow it belongs to, where its times
//! are.

use super::lane::Form;
use crate::ads::wire::{AMS_HEADER, Fields, Header, RESPONSE, TCP_HEADER, command};
use crate::noise::Random;

/// Max bytes of a message; a connection with a longer one is passed through unchanged.
const MESSAGE_MAX: usize = 4 << 20;
/// Nanoseconds of an ADS time unit (100 ns).
const TICK_NS: i64 = 100;

/// Form of iNET-X packets, one per datagram.
pub(crate) struct Inetx;

impl Inetx {
    /// Returns the name of a packet's flow: its stream id.
    pub(crate) fn flow(bytes: &[u8]) -> String {
        match bytes.get(4..8).and_then(|id| <[u8; 4]>::try_from(id).ok()) {
            Some(id) => format!("{:#010x}", u32::from_be_bytes(id)),
            None => "no packet".to_owned(),
        }
    }
}

impl Form for Inetx {
    fn move_times(&self, bytes: &mut [u8], by_ns: i64) {
        let Some(fields) = bytes.get_mut(16..24) else { return };
        let word = |at: usize| u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
        let time_ns = i64::from(word(0)) * 1_000_000_000 + i64::from(word(4)) + by_ns;
        fields[..4].copy_from_slice(&(time_ns.div_euclid(1_000_000_000) as u32).to_be_bytes());
        fields[4..].copy_from_slice(&(time_ns.rem_euclid(1_000_000_000) as u32).to_be_bytes());
    }

    /// Truncates the datagram, so that its length field is wrong.
    fn garble(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let left = random.bits() as usize % bytes.len().max(1);
        bytes.truncate(left);
    }

    fn waits(&self) -> bool {
        false
    }

    fn can_pass(&self) -> bool {
        true
    }
}

/// Result of parsing the beginning of a byte stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A message of this many bytes, with the units of each flow.
    Message(usize, Vec<(String, u64)>),
    /// More bytes are needed.
    More,
    /// Messages can no longer be delimited.
    Lost,
}

/// Protocol over TCP.
pub(crate) trait Framing: Form + Send {
    /// Parses the first message in the bytes of a connection.
    fn first(&self, bytes: &[u8], connection: u64) -> Begins;

    /// Returns whether faults apply to the data that comes back, because the receiver is the one that connects.
    fn receiver_is_near(&self) -> bool;
}

/// Form of line protocol, one message per line.
pub(crate) struct Lines;

impl Lines {
    /// Returns measurement and tags: everything up to the first space that is not escaped.
    fn flow(line: &[u8]) -> String {
        let mut escaped = false;
        let end = line.iter().position(|byte| {
            let space = *byte == b' ' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            space
        });
        String::from_utf8_lossy(&line[..end.unwrap_or(line.len())]).trim().to_owned()
    }
}

impl Form for Lines {
    fn move_times(&self, bytes: &mut [u8], by_ns: i64) {
        // The stamp follows the last space; it is moved only if the new number has the same length.
        let end = bytes.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |at| at + 1);
        let start = bytes[..end].iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
        let text = std::str::from_utf8(&bytes[start..end]).ok();
        let Some(time_ns) = text.and_then(|text| text.parse::<i64>().ok()) else { return };
        let moved = time_ns.saturating_add(by_ns).to_string();
        if moved.len() == end - start {
            bytes[start..end].copy_from_slice(moved.as_bytes());
        }
    }

    /// Removes every `=`, so that no field is left.
    fn garble(&self, bytes: &mut Vec<u8>, _: &mut Random) {
        for byte in bytes.iter_mut().filter(|byte| **byte == b'=') {
            *byte = b'?';
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn can_pass(&self) -> bool {
        true
    }
}

impl Framing for Lines {
    fn first(&self, bytes: &[u8], _: u64) -> Begins {
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let line = &bytes[..end];
                let blank = line.trim_ascii().is_empty() || line.first() == Some(&b'#');
                let parts = if blank { Vec::new() } else { vec![(Lines::flow(line), 1)] };
                Begins::Message(end + 1, parts)
            }
            None if bytes.len() > MESSAGE_MAX => Begins::Lost,
            None => Begins::More,
        }
    }

    fn receiver_is_near(&self) -> bool {
        false
    }
}

/// Form of ADS, one message per packet. Faults apply to notifications; requests and replies pass unchanged.
pub(crate) struct Ads;

/// Positions of the stamps of a notification in a packet, and the samples of each handle.
struct Stamps {
    at: Vec<usize>,
    samples: Vec<(u32, u32)>,
}

impl Stamps {
    /// Parses a packet with its TCP header. Returns `None` if it is not a notification, or not as long as it claims.
    fn of(packet: &[u8]) -> Option<Stamps> {
        let mut fields = Fields(packet.get(TCP_HEADER..)?);
        let header = Header::read(&mut fields)?;
        if header.command != command::NOTIFICATION || header.flags & RESPONSE != 0 {
            return None;
        }
        fields.u32()?;
        let mut stamps = Stamps { at: Vec::new(), samples: Vec::new() };
        for _ in 0..fields.u32()? {
            stamps.at.push(packet.len() - fields.0.len());
            fields.bytes(8)?;
            for _ in 0..fields.u32()? {
                let (handle, length) = (fields.u32()?, fields.u32()?);
                fields.bytes(length as usize)?;
                stamps.samples.push((handle, length));
            }
        }
        Some(stamps)
    }
}

impl Form for Ads {
    fn move_times(&self, bytes: &mut [u8], by_ns: i64) {
        let stamps = Stamps::of(bytes).map(|stamps| stamps.at).unwrap_or_default();
        for at in stamps {
            if let Some(field) = bytes.get_mut(at..at + 8).and_then(|field| <&mut [u8; 8]>::try_from(field).ok()) {
                *field = i64::from_le_bytes(*field).wrapping_add(by_ns / TICK_NS).to_le_bytes();
            }
        }
    }

    /// Makes the packet claim more stamps than it can have.
    fn garble(&self, bytes: &mut Vec<u8>, _: &mut Random) {
        let at = TCP_HEADER + AMS_HEADER + 4;
        if let Some(count) = bytes.get_mut(at..at + 4) {
            count.copy_from_slice(&u32::MAX.to_le_bytes());
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn can_pass(&self) -> bool {
        false
    }
}

impl Framing for Ads {
    fn first(&self, bytes: &[u8], connection: u64) -> Begins {
        let mut fields = Fields(bytes);
        let (Some(reserved), Some(length)) = (fields.u16(), fields.u32()) else { return Begins::More };
        if reserved != 0 || length as usize > MESSAGE_MAX {
            return Begins::Lost;
        }
        let Some(packet) = bytes.get(..TCP_HEADER + length as usize) else { return Begins::More };
        let mut parts: Vec<(String, u64)> = Vec::new();
        let mut samples = Stamps::of(packet).map(|stamps| stamps.samples).unwrap_or_default();
        samples.sort_unstable();
        for (handle, length) in samples {
            let name = format!("connection {connection} handle {handle} ({length} bytes)");
            match parts.last_mut() {
                Some((last, units)) if *last == name => *units += 1,
                _ => parts.push((name, 1)),
            }
        }
        Begins::Message(packet.len(), parts)
    }

    fn receiver_is_near(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_by_measurement_and_tags() {
        let first = |text: &str| Lines.first(text.as_bytes(), 0);
        let part = |name: &str| vec![(name.to_owned(), 1)];
        assert_eq!(first("m,a=1 f=2 3\nrest"), Begins::Message(12, part("m,a=1")));
        assert_eq!(first("a\\ b,t=x\\ y f=2\n"), Begins::Message(16, part("a\\ b,t=x\\ y")));
        assert_eq!(first("\n"), Begins::Message(1, Vec::new()));
        assert_eq!(first("# m f=1\n"), Begins::Message(8, Vec::new()));
        assert_eq!(first("m f=1"), Begins::More);
    }

    #[test]
    fn times_of_lines_move_and_garbled_lines_have_no_fields() {
        let mut line = b"m,a=1 f=2 1700000000000000000\n".to_vec();
        Lines.move_times(&mut line, -500_000_000);
        assert_eq!(line, b"m,a=1 f=2 1699999999500000000\n");
        Lines.garble(&mut line, &mut Random::new(1, 1));
        assert_eq!(line, b"m,a?1 f?2 1699999999500000000\n");
        let mut bare = b"m f=2\n".to_vec();
        Lines.move_times(&mut bare, 1);
        assert_eq!(bare, b"m f=2\n");
    }

    #[test]
    fn times_of_packets_carry_into_the_seconds() {
        let mut packet = vec![0_u8; 28];
        packet[4..8].copy_from_slice(&0xDD_u32.to_be_bytes());
        packet[16..20].copy_from_slice(&1_700_000_000_u32.to_be_bytes());
        packet[20..24].copy_from_slice(&900_000_000_u32.to_be_bytes());
        Inetx.move_times(&mut packet, 250_000_000);
        assert_eq!(packet[16..20], 1_700_000_001_u32.to_be_bytes());
        assert_eq!(packet[20..24], 150_000_000_u32.to_be_bytes());
        assert_eq!(Inetx::flow(&packet), "0x000000dd");
        assert_eq!(Inetx::flow(&packet[..7]), "no packet");
        let mut short = packet[..20].to_vec();
        Inetx.move_times(&mut short, 1);
        assert_eq!(short, packet[..20]);
    }

    /// Returns a packet of two stamps: handles 7 and 9, then 7.
    fn notification() -> Vec<u8> {
        let mut data = Vec::new();
        let mut stamp = |time: i64, samples: &[u32]| {
            data.extend_from_slice(&time.to_le_bytes());
            data.extend_from_slice(&(samples.len() as u32).to_le_bytes());
            for handle in samples {
                data.extend_from_slice(&handle.to_le_bytes());
                data.extend_from_slice(&[2, 0, 0, 0, 0xAB, 0xCD]);
            }
        };
        stamp(1_000, &[7, 9]);
        stamp(11_000, &[7]);
        let header = Header {
            target: [1; 8],
            source: [2; 8],
            command: command::NOTIFICATION,
            flags: 4,
            data_length: 0,
            error: 0,
            invoke_id: 0,
        };
        let mut packet = Vec::new();
        header.write(8 + data.len(), &mut packet);
        packet.extend_from_slice(&(4 + data.len() as u32).to_le_bytes());
        packet.extend_from_slice(&2_u32.to_le_bytes());
        packet.extend_from_slice(&data);
        packet
    }

    #[test]
    fn samples_of_notifications_are_told_by_handle() {
        let packet = notification();
        let parts =
            vec![("connection 3 handle 7 (2 bytes)".to_owned(), 2), ("connection 3 handle 9 (2 bytes)".to_owned(), 1)];
        assert_eq!(Ads.first(&packet, 3), Begins::Message(packet.len(), parts));
        assert_eq!(Ads.first(&packet[..packet.len() - 1], 3), Begins::More);
        assert_eq!(Ads.first(&[1, 0, 0, 0, 0, 0], 3), Begins::Lost);
        let mut reply = packet.clone();
        reply[24] |= RESPONSE as u8;
        assert_eq!(Ads.first(&reply, 3), Begins::Message(packet.len(), Vec::new()));
    }

    #[test]
    fn stamps_of_notifications_move_alone() {
        let mut packet = notification();
        let before = packet.clone();
        Ads.move_times(&mut packet, 5_000);
        let at = TCP_HEADER + AMS_HEADER + 8;
        assert_eq!(packet[at..at + 8], 1_050_i64.to_le_bytes());
        let changed = packet.iter().zip(&before).filter(|(a, b)| a != b).count();
        assert!((2..=4).contains(&changed), "{changed}");
        Ads.garble(&mut packet, &mut Random::new(1, 1));
        assert!(Stamps::of(&packet).is_none());
    }
}
