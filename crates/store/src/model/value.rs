//! Types and values of channels, and the four kinds of cell.

use std::borrow::Cow;

use crate::model::array::{ArrayRef, ArrayType};
use crate::model::blob_ref::{self, BlobRef};

/// Type of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelType {
    /// One truth value.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// UTF-8 text.
    String,
    /// A reference to bytes in a segment of their own.
    Blob,
    /// Many values of one type.
    Array(ArrayType),
}

impl ChannelType {
    /// Every type of single numbers, truth values and texts, in the order of its code: neither blobs nor arrays.
    pub const ALL: [ChannelType; 12] = [
        ChannelType::Bool,
        ChannelType::I8,
        ChannelType::I16,
        ChannelType::I32,
        ChannelType::I64,
        ChannelType::U8,
        ChannelType::U16,
        ChannelType::U32,
        ChannelType::U64,
        ChannelType::F32,
        ChannelType::F64,
        ChannelType::String,
    ];

    /// The type of a format code, if this version knows it and nothing follows it.
    #[inline]
    pub fn from_code(code: u8) -> Option<ChannelType> {
        Self::read(code, || None)
    }

    /// The type of a format code; `length` reads what follows that of an array of fixed length.
    #[inline]
    pub(crate) fn read(code: u8, length: impl FnOnce() -> Option<u16>) -> Option<ChannelType> {
        if code == blob_ref::TYPE_CODE {
            return Some(ChannelType::Blob);
        }
        let plain = Self::ALL.get((code as usize).wrapping_sub(1)).copied();
        plain.or_else(|| ArrayType::read(code, length).map(ChannelType::Array))
    }

    /// The code written to disk: `docs/format/store.md`, Numbers.
    #[inline]
    pub fn code(self) -> u8 {
        match self {
            ChannelType::Bool => 1,
            ChannelType::I8 => 2,
            ChannelType::I16 => 3,
            ChannelType::I32 => 4,
            ChannelType::I64 => 5,
            ChannelType::U8 => 6,
            ChannelType::U16 => 7,
            ChannelType::U32 => 8,
            ChannelType::U64 => 9,
            ChannelType::F32 => 10,
            ChannelType::F64 => 11,
            ChannelType::String => 12,
            ChannelType::Blob => blob_ref::TYPE_CODE,
            ChannelType::Array(array) => array.code(),
        }
    }

    /// Appends the code, and the length of an array of fixed length.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.push(self.code());
        if let ChannelType::Array(array) = self
            && let Some(length) = array.length_field()
        {
            out.extend_from_slice(&length.to_le_bytes());
        }
    }

    /// Code of a value that a channel of it takes: an array does not say that its length is fixed.
    #[inline]
    pub(crate) fn value_code(self) -> u8 {
        match self {
            ChannelType::Array(array) => ArrayType::variable(array.element()).code(),
            other => other.code(),
        }
    }

    /// Lower-case name as configuration, SQL listings and column suffixes spell it.
    pub fn name(self) -> Cow<'static, str> {
        let name = match self {
            ChannelType::Bool => "bool",
            ChannelType::I8 => "i8",
            ChannelType::I16 => "i16",
            ChannelType::I32 => "i32",
            ChannelType::I64 => "i64",
            ChannelType::U8 => "u8",
            ChannelType::U16 => "u16",
            ChannelType::U32 => "u32",
            ChannelType::U64 => "u64",
            ChannelType::F32 => "f32",
            ChannelType::F64 => "f64",
            ChannelType::String => "string",
            ChannelType::Blob => "blob",
            ChannelType::Array(array) => return array.name(),
        };
        name.into()
    }

    /// As it stands in a name: that of arrays without brackets.
    pub fn suffix(self) -> Cow<'static, str> {
        match self {
            ChannelType::Array(array) => format!("{}_array", array.element().channel_type().name()).into(),
            other => other.name(),
        }
    }

    /// The type that a name spells, as in [`ChannelType::name`].
    pub fn from_name(name: &str) -> Option<ChannelType> {
        let plain = Self::ALL.into_iter().chain([ChannelType::Blob]).find(|t| t.name() == name);
        plain.or_else(|| ArrayType::from_name(name, Self::from_name).map(ChannelType::Array))
    }

    /// Whether a value is a number or a truth value, which stands in its row; the bytes of others stand beside it.
    #[inline]
    pub fn is_scalar(self) -> bool {
        !matches!(self, ChannelType::String | ChannelType::Blob | ChannelType::Array(_))
    }

    /// The type of arrays, if it is one.
    pub fn array(self) -> Option<ArrayType> {
        match self {
            ChannelType::Array(array) => Some(array),
            _ => None,
        }
    }

    /// As which arrays a block keeps its values in tiles, if it does.
    pub(crate) fn tiles(self) -> Option<ArrayType> {
        match self {
            ChannelType::Blob => Some(ArrayType::BLOB),
            other => other.array(),
        }
    }

    /// Bytes of one value in a row; texts, blobs and arrays take 8 (offset and length of their bytes beside the row).
    pub fn size_bytes(self) -> usize {
        match self {
            ChannelType::Bool | ChannelType::I8 | ChannelType::U8 => 1,
            ChannelType::I16 | ChannelType::U16 => 2,
            ChannelType::I32 | ChannelType::U32 | ChannelType::F32 => 4,
            ChannelType::I64 | ChannelType::U64 | ChannelType::F64 => 8,
            ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => 8,
        }
    }

    /// Whether it is one of the integer types.
    pub fn is_integer(self) -> bool {
        (ChannelType::I8..=ChannelType::U64).contains(&self)
    }

    /// Whether it is `f32` or `f64`.
    pub fn is_float(self) -> bool {
        matches!(self, ChannelType::F32 | ChannelType::F64)
    }

    /// The smallest type that holds every value of both exactly, if there is one: within signed,
    /// within unsigned, unsigned to larger signed, f32 to f64, integers of at most 32 bits to f64; arrays of the same
    /// elements to variable length.
    pub fn widen(self, other: ChannelType) -> Option<ChannelType> {
        use ChannelType::*;
        if self == other {
            return Some(self);
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        let bits = |t: ChannelType| t.size_bytes() * 8;
        let signed = |n: usize| match n {
            0..=8 => Some(I8),
            9..=16 => Some(I16),
            17..=32 => Some(I32),
            33..=64 => Some(I64),
            _ => None,
        };
        match (a, b) {
            (Array(a), Array(b)) => a.widen(b).map(Array),
            (Bool, _) | (String | Blob | Array(_), _) | (_, String | Blob | Array(_)) => None,
            (F32, F64) => Some(F64),
            (i, F32 | F64) => (bits(i) <= 32).then_some(F64),
            (I8 | I16 | I32 | I64, I8 | I16 | I32 | I64) => Some(b),
            (U8 | U16 | U32 | U64, U8 | U16 | U32 | U64) => Some(b),
            (s, u) => signed(bits(s).max(bits(u) + 1)),
        }
    }
}

/// One value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A truth value.
    Bool(bool),
    /// Signed, 8 bits.
    I8(i8),
    /// Signed, 16 bits.
    I16(i16),
    /// Signed, 32 bits.
    I32(i32),
    /// Signed, 64 bits.
    I64(i64),
    /// Unsigned, 8 bits.
    U8(u8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Unsigned, 64 bits.
    U64(u64),
    /// IEEE 754 binary32.
    F32(f32),
    /// IEEE 754 binary64.
    F64(f64),
    /// UTF-8 text.
    String(&'a str),
    /// A blob, by its reference.
    Blob(BlobRef),
    /// An array.
    Array(ArrayRef<'a>),
}

// Values are passed by value, cell by cell.
const _: () = assert!(size_of::<Value<'_>>() == 24);

impl<'a> Value<'a> {
    /// The type of the value; that of an array is of variable length.
    #[inline]
    pub fn channel_type(&self) -> ChannelType {
        match self {
            Value::Bool(_) => ChannelType::Bool,
            Value::I8(_) => ChannelType::I8,
            Value::I16(_) => ChannelType::I16,
            Value::I32(_) => ChannelType::I32,
            Value::I64(_) => ChannelType::I64,
            Value::U8(_) => ChannelType::U8,
            Value::U16(_) => ChannelType::U16,
            Value::U32(_) => ChannelType::U32,
            Value::U64(_) => ChannelType::U64,
            Value::F32(_) => ChannelType::F32,
            Value::F64(_) => ChannelType::F64,
            Value::String(_) => ChannelType::String,
            Value::Blob(_) => ChannelType::Blob,
            Value::Array(array) => ChannelType::Array(ArrayType::variable(array.element())),
        }
    }

    /// The value's bit pattern, zero-extended to 64 bits; 0 for texts, blobs and arrays.
    #[inline]
    pub fn bits(&self) -> u64 {
        match *self {
            Value::Bool(v) => v as u64,
            Value::I8(v) => v as u8 as u64,
            Value::I16(v) => v as u16 as u64,
            Value::I32(v) => v as u32 as u64,
            Value::I64(v) => v as u64,
            Value::U8(v) => v as u64,
            Value::U16(v) => v as u64,
            Value::U32(v) => v as u64,
            Value::U64(v) => v,
            Value::F32(v) => v.to_bits() as u64,
            Value::F64(v) => v.to_bits(),
            Value::String(_) | Value::Blob(_) | Value::Array(_) => 0,
        }
    }

    /// The value of a bit pattern made by [`Value::bits`]. Texts, blobs and arrays are the caller's to keep.
    ///
    /// # Panics
    /// For types that are no scalar.
    #[inline]
    pub fn from_bits(kind: ChannelType, bits: u64) -> Value<'static> {
        match kind {
            ChannelType::Bool => Value::Bool(bits & 1 != 0),
            ChannelType::I8 => Value::I8(bits as u8 as i8),
            ChannelType::I16 => Value::I16(bits as u16 as i16),
            ChannelType::I32 => Value::I32(bits as u32 as i32),
            ChannelType::I64 => Value::I64(bits as i64),
            ChannelType::U8 => Value::U8(bits as u8),
            ChannelType::U16 => Value::U16(bits as u16),
            ChannelType::U32 => Value::U32(bits as u32),
            ChannelType::U64 => Value::U64(bits),
            ChannelType::F32 => Value::F32(f32::from_bits(bits as u32)),
            ChannelType::F64 => Value::F64(f64::from_bits(bits)),
            ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => unreachable!("it has no bit pattern"),
        }
    }

    /// The value as f64, for plots and means: exact up to 2⁵³, nearest beyond; none for texts, blobs and arrays.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        Some(match *self {
            Value::Bool(v) => v as u8 as f64,
            Value::I8(v) => v as f64,
            Value::I16(v) => v as f64,
            Value::I32(v) => v as f64,
            Value::I64(v) => v as f64,
            Value::U8(v) => v as f64,
            Value::U16(v) => v as f64,
            Value::U32(v) => v as f64,
            Value::U64(v) => v as f64,
            Value::F32(v) => v as f64,
            Value::F64(v) => v,
            Value::String(_) | Value::Blob(_) | Value::Array(_) => return None,
        })
    }

    /// Returns whether it is less than `other`: exact within a type and between integers, as f64 otherwise. False for
    /// NaN, texts, blobs and arrays.
    #[inline]
    pub fn is_less(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::F32(a), Value::F32(b)) => a < b,
            (Value::F64(a), Value::F64(b)) => a < b,
            _ => match (self.as_integer(), other.as_integer()) {
                (Some(a), Some(b)) => a < b,
                _ => self.as_f64().zip(other.as_f64()).is_some_and(|(a, b)| a < b),
            },
        }
    }

    /// Returns the value of an integer or a truth value.
    #[inline]
    fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::Bool(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::U8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::U64(v) => v.into(),
            _ => return None,
        })
    }

    /// The same number in another type, if that is exact (see [`ChannelType::widen`]).
    pub fn convert(self, to: ChannelType) -> Option<Value<'a>> {
        if self.channel_type() == to {
            return Some(self);
        }
        if let (Value::Array(array), ChannelType::Array(to)) = (self, to) {
            return (array.element() == to.element() && to.takes(array.len())).then_some(self);
        }
        let int: i128 = match self {
            Value::I8(v) => v as i128,
            Value::I16(v) => v as i128,
            Value::I32(v) => v as i128,
            Value::I64(v) => v as i128,
            Value::U8(v) => v as i128,
            Value::U16(v) => v as i128,
            Value::U32(v) => v as i128,
            Value::U64(v) => v as i128,
            Value::F32(v) if to == ChannelType::F64 => return Some(Value::F64(v as f64)),
            _ => return None,
        };
        Some(match to {
            ChannelType::I8 => Value::I8(int.try_into().ok()?),
            ChannelType::I16 => Value::I16(int.try_into().ok()?),
            ChannelType::I32 => Value::I32(int.try_into().ok()?),
            ChannelType::I64 => Value::I64(int.try_into().ok()?),
            ChannelType::U8 => Value::U8(int.try_into().ok()?),
            ChannelType::U16 => Value::U16(int.try_into().ok()?),
            ChannelType::U32 => Value::U32(int.try_into().ok()?),
            ChannelType::U64 => Value::U64(int.try_into().ok()?),
            ChannelType::F64 if int.unsigned_abs() <= 1 << 53 => Value::F64(int as f64),
            _ => return None,
        })
    }
}

/// What a frame says of one channel. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellState {
    /// The frame has a value.
    Value = 0,
    /// The channel is not in this frame.
    Absent = 1,
    /// A lossy codec left it out: the last value still stands.
    Unchanged = 2,
    /// A discontinuity: from here on the value is not known.
    Unknown = 3,
}

impl CellState {
    /// The state of a format code.
    pub fn from_code(code: u8) -> Option<CellState> {
        match code {
            0 => Some(CellState::Value),
            1 => Some(CellState::Absent),
            2 => Some(CellState::Unchanged),
            3 => Some(CellState::Unknown),
            _ => None,
        }
    }
}

/// The value of a type that has these bytes beside its row, if it is one; text that is no UTF-8 is none.
pub(crate) fn value_beside(kind: ChannelType, bytes: &[u8]) -> Option<Value<'_>> {
    match kind {
        ChannelType::String => std::str::from_utf8(bytes).ok().map(Value::String),
        ChannelType::Array(array) => Some(Value::Array(ArrayRef::stored(array.element(), bytes))),
        ChannelType::Blob => BlobRef::from_bytes(bytes).map(Value::Blob),
        _ => None,
    }
}

/// The bytes that `offset << 32 | length`, the word of a text cell, names in the text of its frame; none where it
/// names bytes that are not there.
pub(crate) fn text_at(text: &[u8], word: u64) -> &[u8] {
    let (offset, len) = ((word >> 32) as usize, word as u32 as usize);
    offset.checked_add(len).and_then(|end| text.get(offset..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_exact_and_symmetric() {
        use ChannelType::*;
        for (a, b, want) in [
            (I8, I64, Some(I64)),
            (U8, I8, Some(I16)),
            (U32, I8, Some(I64)),
            (U64, I8, None),
            (U32, F32, Some(F64)),
            (I64, F64, None),
            (F32, F64, Some(F64)),
            (Bool, U8, None),
            (String, F64, None),
            (U8, U64, Some(U64)),
            (Blob, Blob, Some(Blob)),
            (Blob, String, None),
            (U64, Blob, None),
        ] {
            assert_eq!(a.widen(b), want, "{a:?} {b:?}");
            assert_eq!(b.widen(a), want, "{b:?} {a:?}");
        }
    }

    #[test]
    fn conversion_keeps_the_number_or_refuses() {
        assert_eq!(Value::U64(u64::MAX).convert(ChannelType::I64), None);
        assert_eq!(Value::I64(-1).convert(ChannelType::I8), Some(Value::I8(-1)));
        assert_eq!(Value::U32(7).convert(ChannelType::F64), Some(Value::F64(7.0)));
        assert_eq!(Value::I64((1 << 53) + 1).convert(ChannelType::F64), None);
        assert_eq!(Value::F32(0.5).convert(ChannelType::F64), Some(Value::F64(0.5)));
    }
}
