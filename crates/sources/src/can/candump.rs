//! Lines of `candump -l`: `(1635188455.029900) can0 0CF00400#607D84481400F084`.
//!
//! Identifiers have three or eight digits. `#R` is a remote frame without data. `##` and a digit of flags mark CAN FD.

use super::CanId;
use crate::rows::{TimeUnit, parse_time};

/// Maximum bytes of a frame, that of CAN FD.
const DATA_BYTES_MAX: usize = 64;

/// A frame of the bus.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) id: CanId,
    /// Whether it is a remote frame, which only requests data.
    pub(super) is_remote: bool,
    pub(super) data: Vec<u8>,
}

/// Parses a line. Returns its time in nanoseconds since 1970 UTC, its bus and its frame.
///
/// # Errors
/// If the line is malformed, with the column and the reason.
pub(super) fn read(line: &str) -> Result<(i64, &str, Frame), (u32, String)> {
    let column = |part: &str| {
        let at = (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize).min(line.len());
        line.get(..at).map_or(1, |before| before.chars().count() as u32 + 1)
    };
    let mut words = line.split_ascii_whitespace();
    let mut word = |expected: &str| words.next().ok_or_else(|| (column(&line[line.len()..]), format!("no {expected}")));
    let stamp = word("time in brackets")?;
    let time = stamp.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    let time =
        time.ok_or_else(|| (column(stamp), format!("found {stamp:?}, expected a time as (1635188455.029900)")))?;
    let time = parse_time(time, Some(TimeUnit::S)).map_err(|reason| (column(stamp), reason))?;
    let bus = word("name of a bus")?;
    let frame = word("frame as 123#DEADBEEF")?;
    let wrong = |part: &str, expected: &str| (column(part), format!("found {part:?}, expected {expected}"));
    let Some((id, data)) = frame.split_once('#') else { return Err(wrong(frame, "a frame as 123#DEADBEEF")) };
    let number = u32::from_str_radix(id, 16).ok().filter(|_| id.bytes().all(|b| b.is_ascii_hexdigit()));
    let id = match (number, id.len()) {
        (Some(number), 3) if number < 1 << 11 => CanId::Standard(number),
        (Some(number), 8) if number < 1 << 29 => CanId::Extended(number),
        _ => return Err(wrong(id, "an identifier of 3 or 8 hexadecimal digits")),
    };
    let (is_remote, digits) = match data.strip_prefix('#') {
        Some(fd) => (false, fd.get(1..).ok_or_else(|| wrong(data, "a digit of flags after ##"))?),
        None if data.starts_with(['R', 'r']) => (true, ""),
        None => (false, data),
    };
    let bytes = digits.as_bytes();
    let plain = bytes.len() % 2 == 0 && bytes.len() <= 2 * DATA_BYTES_MAX && bytes.iter().all(u8::is_ascii_hexdigit);
    if !plain {
        return Err(wrong(data, "data of two hexadecimal digits a byte, at most 64 bytes"));
    }
    let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u8;
    let data = bytes.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    Ok((time, bus, Frame { id, is_remote, data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_of_frame_is_read() {
        let read = |text| read(text).unwrap();
        let (time, bus, frame) = read("(1635188455.029900) can0 0CF00400#607D84481400F084");
        assert_eq!((time, bus), (1_635_188_455_029_900_000, "can0"));
        assert_eq!(frame.id, CanId::Extended(0x0CF0_0400));
        assert_eq!(frame.data, [0x60, 0x7D, 0x84, 0x48, 0x14, 0x00, 0xF0, 0x84]);
        assert_eq!(read("(1.5) vcan1 7FF# R").2, Frame { id: CanId::Standard(0x7FF), is_remote: false, data: vec![] });
        assert!(read("(1.5) vcan1 001#R8").2.is_remote);
        assert_eq!(read("(1.5) vcan1 00000001##1aBcD T").2.data, [0xAB, 0xCD]);
    }

    #[test]
    fn what_is_no_frame_is_said_with_its_column() {
        for (line, want) in [
            ("1.5 can0 1#", (1, "found \"1.5\", expected a time as (1635188455.029900)")),
            ("(noon) can0 123#", (1, "\"noon\" is not a time: RFC 3339 (2026-11-20T17:00:00Z) or a number is")),
            ("(1.5) can0", (11, "no frame as 123#DEADBEEF")),
            ("(1.5)  can0 123", (13, "found \"123\", expected a frame as 123#DEADBEEF")),
            ("(1.5) can0 12#", (12, "found \"12\", expected an identifier of 3 or 8 hexadecimal digits")),
            ("(1.5) can0 FFF#", (12, "found \"FFF\", expected an identifier of 3 or 8 hexadecimal digits")),
            ("(1.5) can0 +12#", (12, "found \"+12\", expected an identifier of 3 or 8 hexadecimal digits")),
            (
                "(1.5) can0 123#ABC",
                (16, "found \"ABC\", expected data of two hexadecimal digits a byte, at most 64 bytes"),
            ),
            ("(1.5) can0 123##", (16, "found \"#\", expected a digit of flags after ##")),
        ] {
            let (column, reason) = read(line).unwrap_err();
            assert_eq!((column, reason.as_str()), want, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_odd(text in any::<String>(), tail in "[0-9A-Fa-f#R() ü]{0,30}") {
            let _ = read(&text);
            let _ = read(&format!("(1.5) can0 {tail}"));
        }
    }
}
