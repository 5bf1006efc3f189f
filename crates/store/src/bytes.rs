//! Little-endian fields, varints and a bounds-checked reader, used by every part of the format.

pub(crate) mod fields;

use std::fmt;

use crate::model::reduction::Reduction;
use crate::model::stream::Interpolation;
use crate::model::value::ChannelType;

/// Violation of the format found while decoding. Decoding never panics or allocates without bound because of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early.
    #[error("{what} at offset {offset}: needs {needed} bytes, {had} are left")]
    Truncated {
        /// Name of what was being read.
        what: &'static str,
        /// Offset at which it begins, in the bytes that are read.
        offset: u64,
        /// Number of bytes required.
        needed: usize,
        /// Number of bytes left.
        had: usize,
    },
    /// The magic number is not the expected one.
    #[error("{what}: starts with {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// Name of what was expected.
        what: &'static str,
        /// Expected first four bytes, as a little-endian number.
        expected: u32,
        /// First four bytes found.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("{what}: checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Name of what is damaged.
        what: &'static str,
        /// CRC32C stored with the bytes.
        expected: u32,
        /// CRC32C of the bytes found.
        found: u32,
    },
    /// The data was written by a newer version that requires newer readers.
    #[error("{what} {found:#x} is newer than this program reads")]
    Unsupported {
        /// Name of the feature word, version, section, type or codec.
        what: &'static str,
        /// Number found.
        found: u64,
    },
    /// A field has a code that this program does not know.
    #[error("{what} at offset {offset}: {found:#x} is not known to this program")]
    Unknown {
        /// Name of the field.
        what: &'static str,
        /// Offset of the field in the bytes that are read.
        offset: u64,
        /// Code found.
        found: u64,
    },
    /// A field has a value that it cannot have.
    #[error("{what} at offset {offset}: {why}")]
    Invalid {
        /// Name of the field.
        what: &'static str,
        /// Offset of the field in the bytes that are read.
        offset: u64,
        /// Description of what is wrong with the value.
        why: &'static str,
    },
    /// A count or length exceeds its limit.
    #[error("{what}{}: {found}, at most {limit}", At(*.offset))]
    Limit {
        /// Name of what is counted.
        what: &'static str,
        /// Offset of the field in the bytes that are read; `None` if the number is the sum of several fields.
        offset: Option<u64>,
        /// Number found.
        found: u64,
        /// Maximum allowed.
        limit: u64,
    },
    /// The data uses a part of the format that this program was built without.
    #[error("{what}: cannot be read, as this program was built without the feature {feature} of strongback-store")]
    LeftOut {
        /// Name of the part.
        what: &'static str,
        /// Feature of the build that provides it.
        feature: &'static str,
    },
    /// Fields contradict each other.
    #[error("malformed: {what}")]
    Malformed {
        /// Description of the contradiction.
        what: &'static str,
    },
}

/// Writes ` at offset n`, or nothing.
struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, " at offset {offset}"))
    }
}

/// Reason why a record of the log or an entry of a checkpoint is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// Its bytes violate the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It contradicts what came before it; the text says how.
    #[error("{0}")]
    Contradiction(String),
}

/// Returns [`RecordError::Contradiction`].
pub(crate) fn contradiction(how: impl Into<String>) -> RecordError {
    RecordError::Contradiction(how.into())
}

/// Returns [`FormatError::Malformed`].
pub(crate) fn malformed(what: &'static str) -> FormatError {
    FormatError::Malformed { what }
}

/// Checks the magic number that bytes begin with.
pub(crate) fn check_magic(what: &'static str, expected: u32, found: u32) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::Magic { what, expected, found }) }
}

/// Checks bytes against their stored CRC32C.
pub(crate) fn check_crc(what: &'static str, expected: u32, bytes: &[u8]) -> Result<(), FormatError> {
    let found = crc32c::crc32c(bytes);
    if expected == found { Ok(()) } else { Err(FormatError::Checksum { what, expected, found }) }
}

/// Checks a count against its limit.
pub(crate) fn check_limit(what: &'static str, found: u64, limit: usize) -> Result<usize, FormatError> {
    check_limit_at(what, None, found, limit)
}

/// Checks a count that a field at an offset gives against its limit.
pub(crate) fn check_limit_at(
    what: &'static str,
    offset: Option<u64>,
    found: u64,
    limit: usize,
) -> Result<usize, FormatError> {
    if found > limit as u64 {
        return Err(FormatError::Limit { what, offset, found, limit: limit as u64 });
    }
    Ok(found as usize)
}

/// Reader of fields, one after the other, that never reads past the end of its bytes. Errors name the field, and its
/// offset from the beginning of the bytes or of the file that they are a part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Offset behind the last byte.
    end: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor::at(0, bytes)
    }

    /// Returns a reader of bytes that begin at an offset of what they are a part of.
    pub(crate) fn at(offset: u64, bytes: &'a [u8]) -> Self {
        Cursor { bytes, end: offset.saturating_add(bytes.len() as u64) }
    }

    /// Returns the offset of the next field.
    pub(crate) fn offset(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Returns the number of bytes not yet read.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all bytes not yet read.
    pub(crate) fn unread(&self) -> &'a [u8] {
        self.bytes
    }

    /// Consumes and returns all bytes not yet read.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn truncated(&self, what: &'static str, needed: usize) -> FormatError {
        FormatError::Truncated { what, offset: self.offset(), needed, had: self.bytes.len() }
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        match self.bytes.split_at_checked(count) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(self.truncated(what, count)),
        }
    }

    /// Consumes the next `count` bytes and returns a reader of them, which counts offsets as this one does.
    pub(crate) fn part(&mut self, count: usize, what: &'static str) -> Result<Cursor<'a>, FormatError> {
        let offset = self.offset();
        Ok(Cursor::at(offset, self.take(count, what)?))
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(*head)
            }
            None => Err(self.truncated(what, N)),
        }
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        self.array::<1>(what).map(|b| b[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, FormatError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self, what: &'static str) -> Result<u128, FormatError> {
        self.array(what).map(u128::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, FormatError> {
        self.array(what).map(i64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self, what: &'static str) -> Result<f32, FormatError> {
        self.array(what).map(f32::from_le_bytes)
    }

    pub(crate) fn f64(&mut self, what: &'static str) -> Result<f64, FormatError> {
        self.array(what).map(f64::from_le_bytes)
    }

    /// Reads a byte that is false if it is 0, and otherwise true.
    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, FormatError> {
        self.u8(what).map(|byte| byte != 0)
    }

    /// Reads a byte that is 0 for false or 1 for true.
    pub(crate) fn zero_or_one(&mut self, what: &'static str) -> Result<bool, FormatError> {
        self.code(what, |code| match code {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        })
    }

    /// Reads a byte and returns what it is the code of.
    pub(crate) fn code<T>(&mut self, what: &'static str, of: impl FnOnce(u8) -> Option<T>) -> Result<T, FormatError> {
        let offset = self.offset();
        let code = self.u8(what)?;
        of(code).ok_or(FormatError::Unknown { what, offset, found: code.into() })
    }

    /// Reads the code of a channel type, and the length that follows that of a fixed-length array.
    #[inline]
    pub(crate) fn channel_type(&mut self, what: &'static str) -> Result<ChannelType, FormatError> {
        self.code_and(what, |cursor| cursor.u16("length of an array"), |code, length| ChannelType::read(code, length))
    }

    /// Reads the code of interpolation and reduction, and the bound that follows some of them.
    pub(crate) fn reduction(&mut self, what: &'static str) -> Result<(Interpolation, Reduction), FormatError> {
        let bound = |cursor: &mut Self| {
            let begin = *cursor;
            let bound = cursor.f64("bound")?;
            let fits = bound.is_finite() && bound >= 0.0;
            fits.then_some(bound).ok_or_else(|| begin.invalid("bound", "negative or not finite"))
        };
        self.code_and(what, bound, |code, bound| Reduction::decode(code, bound))
    }

    /// Reads a code with `of`, which also gets a reader of the number that follows some codes.
    fn code_and<T, N>(
        &mut self,
        what: &'static str,
        number: impl Fn(&mut Self) -> Result<N, FormatError>,
        of: impl FnOnce(u8, &mut dyn FnMut() -> Option<N>) -> Option<T>,
    ) -> Result<T, FormatError> {
        let offset = self.offset();
        let code = self.u8(what)?;
        let mut short = None;
        let found = of(code, &mut || number(self).map_err(|error| short = Some(error)).ok());
        found.ok_or_else(|| short.unwrap_or(FormatError::Unknown { what, offset, found: code.into() }))
    }

    /// Reads 0, or 1 and a number.
    pub(crate) fn optional(&mut self, what: &'static str) -> Result<Option<u64>, FormatError> {
        self.zero_or_one(what)?.then(|| self.u64(what)).transpose()
    }

    /// Reads a LEB128 varint: seven bits a byte, least significant first, at most ten bytes.
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, FormatError> {
        let begin = *self;
        let mut value = 0u64;
        for index in 0..10 {
            let byte = self.u8(what)?;
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(begin.invalid(what, "varint over 64 bits"))
    }

    /// Returns the error for the next field.
    pub(crate) fn invalid(&self, what: &'static str, why: &'static str) -> FormatError {
        FormatError::Invalid { what, offset: self.offset(), why }
    }

    /// Reads a varint whose lowest bit is the sign (zigzag).
    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, FormatError> {
        self.varint(what).map(unzigzag)
    }

    /// Reads a varint of at most 32 bits.
    pub(crate) fn varint32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        let begin = *self;
        u32::try_from(self.varint(what)?).map_err(|_| begin.invalid(what, "over 32 bits"))
    }

    /// Reads a varint that must not exceed a limit.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, FormatError> {
        let offset = self.offset();
        check_limit_at(what, Some(offset), self.varint(what)?, limit)
    }

    /// Reads a varint length and that many bytes of UTF-8.
    pub(crate) fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, FormatError> {
        let len = self.count(what, limit)?;
        self.utf8(len, what)
    }

    /// Reads a length of two bytes and that many bytes of UTF-8.
    pub(crate) fn short_text(&mut self, what: &'static str) -> Result<&'a str, FormatError> {
        let len = self.u16(what)?;
        self.utf8(len.into(), what)
    }

    fn utf8(&mut self, len: usize, what: &'static str) -> Result<&'a str, FormatError> {
        let begin = *self;
        std::str::from_utf8(self.take(len, what)?).map_err(|_| begin.invalid(what, "text is not UTF-8"))
    }
}

/// Writes a LEB128 varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a zigzag varint.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Writes a varint length and the text.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Returns the number of bytes that a varint takes.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Maps small magnitudes to small numbers: 0, −1, 1, −2, … → 0, 1, 2, 3, ….
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverts [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_have_the_length_said() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            assert_eq!(Cursor::new(&out).varint("v"), Ok(value));
            for cut in 0..out.len() {
                assert!(Cursor::new(&out[..cut]).varint("v").is_err());
            }
        }
        assert!(Cursor::new(&[0xff; 10]).varint("v").is_err());
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
