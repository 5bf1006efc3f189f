//! iNET-X packets: the header, and the place of each channel in the payload.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | control `0x11000000`: version 1, one option word |
//! | 4 | 4 | stream id |
//! | 8 | 4 | sequence, wraps at 2³² |
//! | 12 | 4 | length of the packet, header included |
//! | 16 | 4 | PTP seconds since 1970 (here: UTC) |
//! | 20 | 4 | PTP nanoseconds |
//! | 24 | 4 | packet information: error, lost count, timeout |
//! | 28 | – | payload |
//!
//! All fields are big-endian, except channels laid out as little-endian.

use crate::channel::{Cell, PadStream};
use crate::fti::{BAY_ID, DISCRETES_ID, VIBRATION_ID};

const CONTROL: u32 = 0x1100_0000;
/// Bytes of header and option word.
const HEADER_BYTES: usize = 28;
/// Max bytes of payload in the pad's packets.
const PAYLOAD_BYTES: usize = 64;

/// Place of a channel in its packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset in the payload in bytes.
    pub(crate) offset: usize,
    /// First bit (0 is the most significant) and width, unless the channel has the whole type.
    pub(crate) bits: Option<(u32, u32)>,
    /// Type on the wire, as spelled in the packet layout.
    pub(crate) wire: &'static str,
    pub(crate) little: bool,
}

impl Place {
    fn size_bytes(&self) -> usize {
        match self.wire {
            "u32" => 4,
            "u16" => 2,
            _ => 1,
        }
    }
}

/// Returns the places of a stream's channels, in their order.
pub(crate) fn places(stream: &PadStream) -> Vec<Place> {
    let whole = |offset, wire| Place { offset, bits: None, wire, little: false };
    match stream.inetx_id {
        Some(BAY_ID) => (0..stream.channels.len())
            // One module of the acquisition unit is little-endian, as in real systems.
            .map(|i| Place { little: stream.channels[i].name.starts_with("p_base"), ..whole(2 * i, "u16") })
            .collect(),
        Some(VIBRATION_ID) => vec![whole(0, "u16")],
        Some(DISCRETES_ID) => vec![
            Place { bits: Some((0, 1)), ..whole(0, "bool") },
            Place { bits: Some((1, 1)), ..whole(0, "bool") },
            Place { bits: Some((2, 1)), ..whole(0, "bool") },
            Place { bits: Some((4, 4)), ..whole(0, "u8") },
            whole(2, "u32"),
            Place { bits: Some((4, 12)), ..whole(6, "u16") },
        ],
        _ => Vec::new(),
    }
}

/// Packer of one iNET-X stream.
#[derive(Clone, Debug)]
pub(crate) struct Packer {
    id: u32,
    places: Vec<Place>,
    frame_bytes: usize,
}

impl Packer {
    /// Returns a packer for a stream, or `None` if it is not an iNET-X one.
    pub(crate) fn new(stream: &PadStream) -> Option<Packer> {
        let id = stream.inetx_id?;
        let places = places(stream);
        let frame_bytes = places.iter().map(|p| p.offset + p.size_bytes()).max().unwrap_or(0);
        Some(Packer { id, places, frame_bytes })
    }

    /// Begins a packet stamped with the time of its first sample, nanoseconds since 1970 UTC.
    pub(crate) fn begin(&self, sequence: u32, time_ns: i64, out: &mut Vec<u8>) {
        out.clear();
        let (seconds, nanoseconds) = (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
        for word in [CONTROL, self.id, sequence, HEADER_BYTES as u32, seconds as u32, nanoseconds as u32, 0] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Adds the channels of a frame: the next sub-frame sample, or the only one.
    pub(crate) fn push(&self, cells: &[Cell], out: &mut Vec<u8>) {
        let mut payload = [0u8; PAYLOAD_BYTES];
        for (place, cell) in self.places.iter().zip(cells) {
            let code = match *cell {
                Cell::Quantised { code, .. } => code,
                Cell::Bool(v) => u32::from(v),
                Cell::I64(v) => v as u32,
                Cell::F64(v) => v as u32,
                Cell::F32(v) => v as u32,
                Cell::Text(_) => 0,
            };
            let size = place.size_bytes();
            let code = match place.bits {
                Some((first, width)) => code << (8 * size as u32 - first - width),
                None => code,
            };
            let mut bytes = code.to_be_bytes();
            let field = &mut bytes[4 - size..];
            if place.little {
                field.reverse();
            }
            for (to, from) in payload[place.offset..place.offset + size].iter_mut().zip(field) {
                *to |= *from;
            }
        }
        out.extend_from_slice(&payload[..self.frame_bytes]);
        let length = out.len() as u32;
        out[12..16].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pad::{Pad, PadOptions, PadStep};

    /// An instant whose nanoseconds carry into the seconds within the packets below.
    const START_NS: i64 = 1_763_653_267_985_000_000;

    /// Returns the packets of the first steps with the cells they carry.
    fn packets(steps: u32) -> Vec<(Vec<u8>, Vec<Vec<Cell>>)> {
        let mut pad = Pad::new(PadOptions { seed: 42, loss: 0.0, t0_ms: 2_000 });
        let packers: Vec<_> = pad.streams().iter().map(Packer::new).collect();
        let mut out = PadStep::default();
        let mut all = Vec::new();
        for _ in 0..steps {
            pad.step(&mut out);
            let mut frames = out.frames.as_slice();
            while let [frame, ..] = frames {
                let burst = pad.streams()[frame.stream].burst as usize;
                let (now, rest) = frames.split_at(burst);
                frames = rest;
                let Some(packer) = &packers[frame.stream] else { continue };
                let mut bytes = Vec::new();
                packer.begin((frame.sequence / burst as u64) as u32, START_NS + frame.time_ns, &mut bytes);
                for frame in now {
                    packer.push(out.cells(frame), &mut bytes);
                }
                all.push((bytes, now.iter().map(|f| out.cells(f).to_vec()).collect()));
            }
        }
        all
    }

    #[test]
    fn packets_are_read_the_same_by_another_parser() {
        let packets = packets(12);
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        if let Some(folder) = std::env::var_os("STRONGBACK_WRITE_PACKETS") {
            let folder = std::path::Path::new(&folder);
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("pad.toml"), crate::settings::pad_config()).unwrap();
            let lines: Vec<String> = packets.iter().map(|(bytes, _)| hex(bytes)).collect();
            std::fs::write(folder.join("packets.hex"), lines.join("\n")).unwrap();
            return;
        }
        let read: serde_json::Value = serde_json::from_str(include_str!("../tests/data/packets.json")).unwrap();
        let read = read["packets"].as_array().unwrap();
        assert_eq!(read.len(), packets.len());
        for ((bytes, frames), read) in packets.iter().zip(read) {
            assert_eq!(hex(bytes), read["packet"].as_str().unwrap());
            assert_eq!(u64::from(u32::from_be_bytes(bytes[8..12].try_into().unwrap())), read["sequence"]);
            let time = read["seconds"].as_i64().unwrap() * 1_000_000_000 + read["nanoseconds"].as_i64().unwrap();
            assert!((START_NS - 20_000_000..START_NS + 61_000_000).contains(&time));
            let values = read["frames"].as_array().unwrap();
            assert_eq!(frames.len(), values.len());
            for (cells, values) in frames.iter().zip(values) {
                for (cell, value) in cells.iter().zip(values.as_array().unwrap()) {
                    let same = match cell {
                        Cell::Quantised { value: sent, .. } => {
                            (value.as_f64().unwrap() - f64::from(*sent)).abs() < 1e-9
                        }
                        Cell::Bool(sent) => value.as_i64() == Some(i64::from(*sent)),
                        Cell::I64(sent) => value.as_i64() == Some(*sent),
                        Cell::F64(sent) => value.as_f64() == Some(*sent),
                        Cell::F32(_) | Cell::Text(_) => false,
                    };
                    assert!(same, "{cell:?} was read as {value}");
                }
            }
        }
    }
}
