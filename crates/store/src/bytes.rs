//! Little-endian fields, varints and a bounded reader: what every part of the format is written with.

pub(crate) mod fields;

/// Why bytes are not what the format says. No variant is ever a panic or an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early.
    #[error("{what}: needs {needed} bytes, {had} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes it takes.
        needed: usize,
        /// Bytes there are.
        had: usize,
    },
    /// Not the kind of thing expected here.
    #[error("{what}: starts with {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// What was expected.
        what: &'static str,
        /// Its first four bytes, as a little-endian number.
        expected: u32,
        /// The first four bytes found.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("{what}: checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// What is damaged.
        what: &'static str,
        /// CRC32C that stands beside the bytes.
        expected: u32,
        /// CRC32C of the bytes found.
        found: u32,
    },
    /// Written by a newer version that says older ones must not read it.
    #[error("{what} {found:#x} is newer than this program reads")]
    Unsupported {
        /// Feature word, version, section, type or codec.
        what: &'static str,
        /// Its number.
        found: u64,
    },
    /// A count or length beyond its limit.
    #[error("{what}: {found}, at most {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The number found.
        found: u64,
        /// The most there may be.
        limit: u64,
    },
    /// Written with a part that this program was built without.
    #[error("{what}: cannot be read, as this program was built without the feature {feature} of strongback-store")]
    LeftOut {
        /// What it is.
        what: &'static str,
        /// The feature of the build.
        feature: &'static str,
    },
    /// Fields that contradict each other.
    #[error("malformed: {what}")]
    Malformed {
        /// The contradiction.
        what: &'static str,
    },
}

/// Shorthand for [`FormatError::Malformed`].
pub(crate) fn malformed(what: &'static str) -> FormatError {
    FormatError::Malformed { what }
}

/// Refuses a count beyond its limit.
pub(crate) fn check_limit(what: &'static str, found: u64, limit: usize) -> Result<usize, FormatError> {
    if found > limit as u64 {
        return Err(FormatError::Limit { what, found, limit: limit as u64 });
    }
    Ok(found as usize)
}

/// A reader over bytes that never reads past their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes }
    }

    /// Bytes not yet read.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes not yet read, all at once.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        match self.bytes.split_at_checked(count) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(FormatError::Truncated { what, needed: count, had: self.bytes.len() }),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(*head)
            }
            None => Err(FormatError::Truncated { what, needed: N, had: self.bytes.len() }),
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

    /// LEB128: seven bits a byte, least significant first, at most ten bytes.
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for index in 0..10 {
            let byte = self.u8(what)?;
            if index == 9 && byte > 1 {
                return Err(malformed("varint over 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("varint over 64 bits"))
    }

    /// A varint whose lowest bit is the sign (zigzag).
    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, FormatError> {
        self.varint(what).map(unzigzag)
    }

    /// A varint that must not pass a limit.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, FormatError> {
        check_limit(what, self.varint(what)?, limit)
    }

    /// A varint length and that many bytes of UTF-8.
    pub(crate) fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, FormatError> {
        let len = self.count(what, limit)?;
        std::str::from_utf8(self.take(len, what)?).map_err(|_| malformed("text is not UTF-8"))
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

/// Bytes that a varint takes.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Small magnitudes become small numbers: 0, −1, 1, −2, … → 0, 1, 2, 3, ….
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
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
