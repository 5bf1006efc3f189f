//! Little-endian fields, varints and a bounds-checked reader, used by every part of the format.

pub(crate) mod fields;

/// Violation of the format found while decoding. Decoding never panics or allocates without bound because of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early.
    #[error("{what}: needs {needed} bytes, {had} are left")]
    Truncated {
        /// Name of what was being read.
        what: &'static str,
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
    /// A count or length exceeds its limit.
    #[error("{what}: {found}, at most {limit}")]
    Limit {
        /// Name of what is counted.
        what: &'static str,
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

/// Returns [`FormatError::Malformed`].
pub(crate) fn malformed(what: &'static str) -> FormatError {
    FormatError::Malformed { what }
}

/// Checks a count against its limit.
pub(crate) fn check_limit(what: &'static str, found: u64, limit: usize) -> Result<usize, FormatError> {
    if found > limit as u64 {
        return Err(FormatError::Limit { what, found, limit: limit as u64 });
    }
    Ok(found as usize)
}

/// Reader over bytes that never reads past their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes }
    }

    /// Returns the number of bytes not yet read.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Consumes and returns all bytes not yet read.
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

    /// Reads a LEB128 varint: seven bits a byte, least significant first, at most ten bytes.
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

    /// Reads a varint whose lowest bit is the sign (zigzag).
    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, FormatError> {
        self.varint(what).map(unzigzag)
    }

    /// Reads a varint that must not exceed a limit.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, FormatError> {
        check_limit(what, self.varint(what)?, limit)
    }

    /// Reads a varint length and that many bytes of UTF-8.
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
