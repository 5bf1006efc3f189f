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
    /// Reference to bytes that are stored in a segment of their own.
    Blob,
    /// Array of values of one type.
    Array(ArrayType),
}

impl ChannelType {
    /// All types of single numbers, truth values and texts, in the order of their codes. Blobs and arrays are not
    /// included.
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

    /// Returns the type of a format code, or `None` if this version does not know it or if a length must follow.
    #[inline]
    pub fn from_code(code: u8) -> Option<ChannelType> {
        Self::read(code, || None)
    }

    /// Returns the type of a format code. `length` reads the length that follows the code of a fixed-length array.
    #[inline]
    pub(crate) fn read(code: u8, length: impl FnOnce() -> Option<u16>) -> Option<ChannelType> {
        if code == blob_ref::TYPE_CODE {
            return Some(ChannelType::Blob);
        }
        let plain = Self::ALL.get((code as usize).wrapping_sub(1)).copied();
        plain.or_else(|| ArrayType::read(code, length).map(ChannelType::Array))
    }

    /// Returns the code written to disk: see `docs/format/store.md`, Numbers.
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

    /// Appends the code, followed by the length for a fixed-length array.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.push(self.code());
        if let ChannelType::Array(array) = self
            && let Some(length) = array.length_field()
        {
            out.extend_from_slice(&length.to_le_bytes());
        }
    }

    /// Returns the code of the values that a channel of this type takes. The code of an array's value does not include
    /// the fixed length.
    #[inline]
    pub(crate) fn value_code(self) -> u8 {
        match self {
            ChannelType::Array(array) => ArrayType::variable(array.element()).code(),
            other => other.code(),
        }
    }

    /// Returns the lower-case name used in configuration, SQL listings and column suffixes.
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

    /// Returns the name without brackets, for use as part of a column name.
    pub fn suffix(self) -> Cow<'static, str> {
        match self {
            ChannelType::Array(array) => format!("{}_array", array.element().channel_type().name()).into(),
            other => other.name(),
        }
    }

    /// Returns the type with a name, as spelled by [`ChannelType::name`].
    pub fn from_name(name: &str) -> Option<ChannelType> {
        let plain = Self::ALL.into_iter().chain([ChannelType::Blob]).find(|t| t.name() == name);
        plain.or_else(|| ArrayType::from_name(name, Self::from_name).map(ChannelType::Array))
    }

    /// Returns whether values are numbers or truth values, which are stored in the row. The bytes of others are stored
    /// outside it.
    #[inline]
    pub fn is_scalar(self) -> bool {
        !matches!(self, ChannelType::String | ChannelType::Blob | ChannelType::Array(_))
    }

    /// Returns the array type, if this is one.
    pub fn array(self) -> Option<ArrayType> {
        match self {
            ChannelType::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the array type under which a block stores the values in tiles, if it does.
    pub(crate) fn tiles(self) -> Option<ArrayType> {
        match self {
            ChannelType::Blob => Some(ArrayType::BLOB),
            other => other.array(),
        }
    }

    /// Returns the bytes that a value takes in a row. Texts, blobs and arrays take 8: offset and length of their bytes
    /// outside the row.
    pub fn size_bytes(self) -> usize {
        match self {
            ChannelType::Bool | ChannelType::I8 | ChannelType::U8 => 1,
            ChannelType::I16 | ChannelType::U16 => 2,
            ChannelType::I32 | ChannelType::U32 | ChannelType::F32 => 4,
            ChannelType::I64 | ChannelType::U64 | ChannelType::F64 => 8,
            ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => 8,
        }
    }

    /// Returns whether this is one of the integer types.
    pub fn is_integer(self) -> bool {
        (ChannelType::I8..=ChannelType::U64).contains(&self)
    }

    /// Returns whether this is `f32` or `f64`.
    pub fn is_float(self) -> bool {
        matches!(self, ChannelType::F32 | ChannelType::F64)
    }

    /// Returns the smallest type that holds every value of both exactly, if there is one. Integers widen within signed,
    /// within unsigned, and from unsigned to a larger signed type; `f32` widens to `f64`, and so do integers of at most
    /// 32 bits. Arrays with the same elements widen to variable length.
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

/// Borrowed value of a channel.
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
    /// Blob, by its reference.
    Blob(BlobRef),
    /// An array.
    Array(ArrayRef<'a>),
}

// Values are passed by copy, cell by cell.
const _: () = assert!(size_of::<Value<'_>>() == 24);

impl<'a> Value<'a> {
    /// Returns the type of the value. The type of an array is always of variable length.
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

    /// Returns the value's bit pattern, zero-extended to 64 bits; 0 for texts, blobs and arrays.
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

    /// Decodes a bit pattern made by [`Value::bits`]. Texts, blobs and arrays have none.
    ///
    /// # Panics
    /// If the type is not a scalar.
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

    /// Returns the value as f64, for plots and means: exact up to 2⁵³, rounded to nearest beyond. Returns `None` for
    /// texts, blobs and arrays.
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

    /// Returns whether the value is less than `other`: exact within a type and between integers, as f64 otherwise.
    /// Returns `false` for NaN, texts, blobs and arrays.
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

    /// Returns the value of an integer or a truth value, or `None` for other types.
    #[inline]
    pub(crate) fn as_integer(&self) -> Option<i128> {
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

    /// Converts the value to another type, if that is exact (see [`ChannelType::widen`]).
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

/// State of a cell of a frame. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellState {
    /// The frame has a value.
    Value = 0,
    /// The channel is not in this frame.
    Absent = 1,
    /// A lossy codec left the value out: the last value still applies.
    Unchanged = 2,
    /// The value is unknown from here on (a discontinuity).
    Unknown = 3,
}

impl CellState {
    /// Returns the state of a format code.
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

/// Decodes a value whose bytes are stored outside its row. Returns `None` for a scalar type or invalid UTF-8 text.
pub(crate) fn value_beside(kind: ChannelType, bytes: &[u8]) -> Option<Value<'_>> {
    match kind {
        ChannelType::String => std::str::from_utf8(bytes).ok().map(Value::String),
        ChannelType::Array(array) => Some(Value::Array(ArrayRef::stored(array.element(), bytes))),
        ChannelType::Blob => BlobRef::from_bytes(bytes).map(Value::Blob),
        _ => None,
    }
}

/// Returns the bytes to which the word of a text cell (`offset << 32 | length`) refers in the text of its frame.
/// Returns an empty slice if they are out of bounds.
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
