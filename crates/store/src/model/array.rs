//! Arrays: spectra and waveforms as values of a channel. In a frame, in the log and in an open block, elements are
//! little-endian and contiguous. Sealed blocks store them by element (`crate::codec::tiles`).

use std::borrow::Cow;
use std::fmt;

use crate::model::limits::ARRAY_LENGTH_MAX;
use crate::model::value::{ChannelType, Value};

/// Bit that marks the code of fixed-length arrays, added to the code of the elements. The length follows the code.
const FIXED: u8 = 32;

/// Code of an array type: that of the elements plus 32 for a fixed length, or plus 64 for a variable one. Blob
/// references are stored as arrays of bytes, under the code of blobs.
///
/// The code is an enumeration and the length is kept as bytes so that a channel type takes only three bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
enum Code {
    Blob = crate::model::blob_ref::TYPE_CODE,
    FixedBool = 33,
    FixedI8,
    FixedI16,
    FixedI32,
    FixedI64,
    FixedU8,
    FixedU16,
    FixedU32,
    FixedU64,
    FixedF32,
    FixedF64,
    VariableBool = 65,
    VariableI8,
    VariableI16,
    VariableI32,
    VariableI64,
    VariableU8,
    VariableU16,
    VariableU32,
    VariableU64,
    VariableF32,
    VariableF64,
}

impl Code {
    const fn fixed(element: ElementType) -> Code {
        match element {
            ElementType::Bool => Code::FixedBool,
            ElementType::I8 => Code::FixedI8,
            ElementType::I16 => Code::FixedI16,
            ElementType::I32 => Code::FixedI32,
            ElementType::I64 => Code::FixedI64,
            ElementType::U8 => Code::FixedU8,
            ElementType::U16 => Code::FixedU16,
            ElementType::U32 => Code::FixedU32,
            ElementType::U64 => Code::FixedU64,
            ElementType::F32 => Code::FixedF32,
            ElementType::F64 => Code::FixedF64,
        }
    }

    const fn variable(element: ElementType) -> Code {
        match element {
            ElementType::Bool => Code::VariableBool,
            ElementType::I8 => Code::VariableI8,
            ElementType::I16 => Code::VariableI16,
            ElementType::I32 => Code::VariableI32,
            ElementType::I64 => Code::VariableI64,
            ElementType::U8 => Code::VariableU8,
            ElementType::U16 => Code::VariableU16,
            ElementType::U32 => Code::VariableU32,
            ElementType::U64 => Code::VariableU64,
            ElementType::F32 => Code::VariableF32,
            ElementType::F64 => Code::VariableF64,
        }
    }
}

/// Element type of an array: any channel type of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ElementType {
    /// Truth value: one byte, 0 or 1.
    Bool = 1,
    /// Signed, 8 bits.
    I8 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Signed, 64 bits.
    I64 = 5,
    /// Unsigned, 8 bits.
    U8 = 6,
    /// Unsigned, 16 bits.
    U16 = 7,
    /// Unsigned, 32 bits.
    U32 = 8,
    /// Unsigned, 64 bits.
    U64 = 9,
    /// IEEE 754 binary32.
    F32 = 10,
    /// IEEE 754 binary64.
    F64 = 11,
}

impl ElementType {
    /// Every element type, in the order of its code.
    pub const ALL: [ElementType; 11] = [
        ElementType::Bool,
        ElementType::I8,
        ElementType::I16,
        ElementType::I32,
        ElementType::I64,
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
        ElementType::F32,
        ElementType::F64,
    ];

    /// Returns the element type for a channel type, or `None` for texts, blobs and arrays.
    pub fn of(kind: ChannelType) -> Option<ElementType> {
        Self::ALL.into_iter().find(|element| element.channel_type() == kind)
    }

    /// Returns the channel type for single elements.
    pub fn channel_type(self) -> ChannelType {
        match self {
            ElementType::Bool => ChannelType::Bool,
            ElementType::I8 => ChannelType::I8,
            ElementType::I16 => ChannelType::I16,
            ElementType::I32 => ChannelType::I32,
            ElementType::I64 => ChannelType::I64,
            ElementType::U8 => ChannelType::U8,
            ElementType::U16 => ChannelType::U16,
            ElementType::U32 => ChannelType::U32,
            ElementType::U64 => ChannelType::U64,
            ElementType::F32 => ChannelType::F32,
            ElementType::F64 => ChannelType::F64,
        }
    }

    /// Returns the size of an element in bytes.
    pub fn size_bytes(self) -> usize {
        match self {
            ElementType::Bool | ElementType::I8 | ElementType::U8 => 1,
            ElementType::I16 | ElementType::U16 => 2,
            ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::U64 | ElementType::F64 => 8,
        }
    }

    fn from_code(code: u8) -> Option<ElementType> {
        Self::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }
}

/// Type of an array channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrayType {
    code: Code,
    /// Fixed length minus one, little-endian; 0 if the length is variable.
    last: [u8; 2],
}

const _: () = assert!(size_of::<ChannelType>() == 3);

impl fmt::Debug for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl ArrayType {
    /// Returns the type of arrays with exactly `length` elements, or `None` unless it is 1 to [`ARRAY_LENGTH_MAX`].
    pub fn fixed(element: ElementType, length: usize) -> Option<ArrayType> {
        let last = u16::try_from(length.checked_sub(1)?).ok()?;
        Some(ArrayType { code: Code::fixed(element), last: last.to_le_bytes() })
    }

    /// Returns the type of arrays of 0 to [`ARRAY_LENGTH_MAX`] elements.
    pub const fn variable(element: ElementType) -> ArrayType {
        ArrayType { code: Code::variable(element), last: [0; 2] }
    }

    /// Type under which columns and rows store blob references. No channel has it as its array type.
    pub(crate) const BLOB: ArrayType =
        ArrayType { code: Code::Blob, last: (crate::model::blob_ref::REFERENCE_BYTES as u16 - 1).to_le_bytes() };

    /// Returns whether the values are blob references.
    pub fn is_blob(self) -> bool {
        self.code == Code::Blob
    }

    /// Returns the type of the elements.
    pub fn element(self) -> ElementType {
        if self.is_blob() {
            return ElementType::U8;
        }
        ElementType::ALL[usize::from(self.code as u8 % FIXED) - 1]
    }

    /// Returns the number of elements of each array, or `None` if it varies.
    pub fn length(self) -> Option<usize> {
        if self.is_blob() {
            return Some(crate::model::blob_ref::REFERENCE_BYTES);
        }
        self.length_field().map(|last| usize::from(last) + 1)
    }

    /// Returns whether an array of this many elements fits the type.
    pub fn takes(self, elements: usize) -> bool {
        match self.length() {
            Some(length) => elements == length,
            None => elements <= ARRAY_LENGTH_MAX,
        }
    }

    /// Returns the name as definitions spell it: `f32[512]`, `f64[]`.
    pub fn name(self) -> Cow<'static, str> {
        if self.is_blob() {
            return ChannelType::Blob.name();
        }
        let element = self.element().channel_type().name();
        match self.length() {
            Some(length) => format!("{element}[{length}]"),
            None => format!("{element}[]"),
        }
        .into()
    }

    /// Parses a name as spelled by [`ArrayType::name`]. `element` resolves the names of element types.
    pub fn from_name(name: &str, element: impl Fn(&str) -> Option<ChannelType>) -> Option<ArrayType> {
        let (of, length) = name.strip_suffix(']')?.split_once('[')?;
        let element = ElementType::of(element(of.trim())?)?;
        match length.trim() {
            "" => Some(ArrayType::variable(element)),
            length => ArrayType::fixed(element, length.parse().ok()?),
        }
    }

    /// Returns the code written to disk. For a fixed length, [`ArrayType::length_field`] follows it.
    pub(crate) fn code(self) -> u8 {
        self.code as u8
    }

    /// Returns the field that follows the code of a fixed-length array: the length minus one.
    pub(crate) fn length_field(self) -> Option<u16> {
        (self.code as u8 & FIXED != 0).then_some(u16::from_le_bytes(self.last))
    }

    /// Returns the type of a code. `length` reads the field that follows the code of a fixed-length array.
    pub(crate) fn read(code: u8, length: impl FnOnce() -> Option<u16>) -> Option<ArrayType> {
        let element = ElementType::from_code(code % FIXED)?;
        match code - code % FIXED {
            FIXED => ArrayType::fixed(element, usize::from(length()?) + 1),
            64 => Some(ArrayType::variable(element)),
            _ => None,
        }
    }

    /// Returns the type that holds the arrays of both exactly, if the elements are the same. Its length is variable if
    /// the lengths differ.
    pub(crate) fn widen(self, other: ArrayType) -> Option<ArrayType> {
        match self == other {
            true => Some(self),
            false => (self.element() == other.element()).then_some(ArrayType::variable(self.element())),
        }
    }
}

/// Borrowed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayRef<'a> {
    element: ElementType,
    bytes: &'a [u8],
}

impl<'a> ArrayRef<'a> {
    /// Returns an array of contiguous little-endian elements. Returns `None` if the bytes are not a whole number of
    /// elements, or if a truth value is neither 0 nor 1.
    pub fn new(element: ElementType, bytes: &'a [u8]) -> Option<ArrayRef<'a>> {
        let whole = bytes.len().is_multiple_of(element.size_bytes());
        let valid = element != ElementType::Bool || bytes.iter().all(|byte| *byte < 2);
        (whole && valid).then_some(ArrayRef { element, bytes })
    }

    /// Returns an array of bytes that the store itself wrote, without checking them.
    pub(crate) fn stored(element: ElementType, bytes: &'a [u8]) -> ArrayRef<'a> {
        ArrayRef { element, bytes }
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Returns the elements as contiguous little-endian bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.element.size_bytes()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the element at an index, or `None` if it is out of bounds.
    pub fn get(&self, index: usize) -> Option<Value<'static>> {
        let size = self.element.size_bytes();
        let at = index.checked_mul(size)?;
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(bytes);
        Some(Value::from_bits(self.element.channel_type(), u64::from_le_bytes(bits)))
    }

    /// Iterates over the elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'static>> + 'a {
        let (kind, size) = (self.element.channel_type(), self.element.size_bytes());
        self.bytes.chunks_exact(size).map(move |bytes| {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(bytes);
            Value::from_bits(kind, u64::from_le_bytes(bits))
        })
    }
}

/// Native types that arrays can be built from: see [`crate::FrameBatch::push_array`].
pub trait Element: Copy + sealed::Sealed {
    /// Element type in the store.
    const TYPE: ElementType;
}

mod sealed {
    /// Encoder of an element.
    pub trait Sealed {
        fn put(self, out: &mut Vec<u8>);
    }
}

/// Appends elements in the encoding of arrays.
pub(crate) fn put_elements<T: Element>(elements: &[T], out: &mut Vec<u8>) {
    out.reserve(elements.len() * T::TYPE.size_bytes());
    elements.iter().for_each(|element| element.put(out));
}

macro_rules! elements {
    ($($native:ty: $element:ident),*) => {
        $(
            impl Element for $native {
                const TYPE: ElementType = ElementType::$element;
            }

            impl sealed::Sealed for $native {
                fn put(self, out: &mut Vec<u8>) {
                    out.extend_from_slice(&self.to_le_bytes());
                }
            }
        )*
    };
}

elements!(i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64, f32: F32, f64: F64);

impl Element for bool {
    const TYPE: ElementType = ElementType::Bool;
}

impl sealed::Sealed for bool {
    fn put(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_lead_back_to_their_types() {
        let lengths = [Some(1), Some(512), Some(ARRAY_LENGTH_MAX), None];
        for element in ElementType::ALL {
            for length in lengths {
                let kind = match length {
                    Some(length) => ArrayType::fixed(element, length).unwrap(),
                    None => ArrayType::variable(element),
                };
                assert_eq!(ArrayType::from_name(&kind.name(), ChannelType::from_name), Some(kind));
                assert_eq!(ArrayType::read(kind.code(), || kind.length_field()), Some(kind));
                assert_eq!(kind.length(), length);
            }
        }
        assert_eq!(ArrayType::fixed(ElementType::F32, 0), None);
        assert_eq!(ArrayType::fixed(ElementType::F32, ARRAY_LENGTH_MAX + 1), None);
        for bad in ["f32[0]", "f32[65537]", "string[4]", "f32[", "f32]", "f32[-1]", "[4]", "f32[4][4]"] {
            assert_eq!(ArrayType::from_name(bad, ChannelType::from_name), None, "{bad}");
        }
        // Single values, and what lies between and after them.
        for code in [0, 1, 12, 13, 31, 32, 44, 64, 76, 255] {
            assert_eq!(ArrayType::read(code, || Some(0)), None, "{code}");
        }
    }

    #[test]
    fn bytes_that_are_no_elements_are_refused() {
        assert_eq!(ArrayRef::new(ElementType::F32, &[0; 6]), None);
        assert_eq!(ArrayRef::new(ElementType::Bool, &[0, 2]), None);
        let mut bytes = Vec::new();
        put_elements(&[-0.0f64, f64::NAN], &mut bytes);
        let array = ArrayRef::new(ElementType::F64, &bytes).unwrap();
        assert_eq!(array.len(), 2);
        assert!(matches!(array.get(0), Some(Value::F64(v)) if v.to_bits() == (-0.0f64).to_bits()));
        assert_eq!(array.get(2), None);
        assert_eq!(array.get(usize::MAX), None);
        assert_eq!(array.iter().len(), 2);
    }
}
