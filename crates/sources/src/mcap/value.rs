//! Decodes message values from the wire (ROS 1 serialization, CDR). Pure.

use std::borrow::Cow;

use strongback_store::{ChannelType, ElementType, Value};

use super::schema::Dialect;

/// Type of a field without fields of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Text,
    /// Seconds and nanoseconds since 1970 UTC.
    Time,
    /// Seconds and nanoseconds.
    Duration,
}

impl Primitive {
    pub(super) fn of(dialect: Dialect, name: &str) -> Option<Primitive> {
        Some(match name {
            "bool" => Primitive::Bool,
            "int8" => Primitive::I8,
            "int16" => Primitive::I16,
            "int32" => Primitive::I32,
            "int64" => Primitive::I64,
            "uint8" | "char" => Primitive::U8,
            "byte" if dialect == Dialect::Ros1 => Primitive::I8,
            "byte" => Primitive::U8,
            "uint16" => Primitive::U16,
            "uint32" => Primitive::U32,
            "uint64" => Primitive::U64,
            "float32" => Primitive::F32,
            "float64" => Primitive::F64,
            "string" => Primitive::Text,
            "time" if dialect == Dialect::Ros1 => Primitive::Time,
            "duration" if dialect == Dialect::Ros1 => Primitive::Duration,
            _ => return None,
        })
    }

    /// Returns the primitive of a ROS 2 interface. ROS 2 has ordinary types for times.
    pub(super) fn of_interface(dialect: Dialect, name: &str) -> Option<Primitive> {
        match (dialect, name) {
            (Dialect::Ros2, "builtin_interfaces/Time") => Some(Primitive::Time),
            (Dialect::Ros2, "builtin_interfaces/Duration") => Some(Primitive::Duration),
            _ => None,
        }
    }

    /// Returns the minimum size on the wire, in bytes.
    pub(super) fn least_bytes(self) -> usize {
        match self {
            Primitive::Text => 4,
            other => other.size_bytes(),
        }
    }

    /// Returns the size on the wire in bytes. For text, this is the size of its length.
    fn size_bytes(self) -> usize {
        match self {
            Primitive::Bool | Primitive::I8 | Primitive::U8 => 1,
            Primitive::I16 | Primitive::U16 => 2,
            Primitive::I32 | Primitive::U32 | Primitive::F32 | Primitive::Text => 4,
            Primitive::I64 | Primitive::U64 | Primitive::F64 | Primitive::Time | Primitive::Duration => 8,
        }
    }

    /// Returns the alignment in CDR, in bytes.
    fn align_bytes(self) -> usize {
        match self {
            // Two numbers of four bytes each.
            Primitive::Time | Primitive::Duration => 4,
            other => other.size_bytes(),
        }
    }

    /// Returns the type of its channel.
    pub(super) fn channel_type(self) -> ChannelType {
        match self {
            Primitive::Bool => ChannelType::Bool,
            Primitive::I8 => ChannelType::I8,
            Primitive::I16 => ChannelType::I16,
            Primitive::I32 => ChannelType::I32,
            Primitive::I64 | Primitive::Time | Primitive::Duration => ChannelType::I64,
            Primitive::U8 => ChannelType::U8,
            Primitive::U16 => ChannelType::U16,
            Primitive::U32 => ChannelType::U32,
            Primitive::U64 => ChannelType::U64,
            Primitive::F32 => ChannelType::F32,
            Primitive::F64 => ChannelType::F64,
            Primitive::Text => ChannelType::String,
        }
    }

    /// Returns the unit.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Primitive::Time | Primitive::Duration => "ns",
            _ => "",
        }
    }
}

/// A value of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundValue<'m> {
    /// A number or Boolean.
    Plain(Value<'static>),
    /// A text.
    Text(Cow<'m, str>),
    /// Consecutive little-endian elements.
    Array(ElementType, Cow<'m, [u8]>),
    /// A text that is not UTF-8.
    Unknown,
}

/// Error in a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A truncated message.
    #[error("truncated at byte {offset} of {size_bytes}: {wanted_bytes} more bytes expected")]
    Short {
        /// Offset.
        offset: usize,
        /// Size of the message in bytes.
        size_bytes: usize,
        /// Bytes expected to follow.
        wanted_bytes: u64,
    },
    /// Bytes after the last field.
    #[error("{left_bytes} bytes after the last field")]
    Trailing {
        /// Number of bytes.
        left_bytes: usize,
    },
    /// An unsupported kind of CDR.
    #[error("encapsulation {code:#06x} is not supported; only plain CDR (0x0000 and 0x0001) is")]
    Encapsulation {
        /// Stated kind.
        code: u16,
    },
    /// A message that is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
}

impl MessageError {
    /// Returns the label in counters.
    pub fn reason(&self) -> &'static str {
        match self {
            MessageError::Short { .. } => "short_message",
            MessageError::Trailing { .. } => "trailing_bytes",
            MessageError::Encapsulation { .. } => "bad_encapsulation",
            MessageError::Json(_) => "bad_json",
        }
    }
}

/// Maximum bytes of CDR padding after the last field.
const PADDING_BYTES_MAX: usize = 7;

/// Sequential reader of a message's bytes.
#[derive(Clone, Debug)]
pub(super) struct Wire<'m> {
    bytes: &'m [u8],
    at: usize,
    is_big_endian: bool,
    /// Origin of alignment; `None` if nothing is aligned.
    aligned: Option<usize>,
}

impl<'m> Wire<'m> {
    /// Reads a ROS 1 message, or a ROS 2 message in CDR.
    pub(super) fn new(dialect: Dialect, bytes: &'m [u8]) -> Result<Wire<'m>, MessageError> {
        let mut wire = Wire { bytes, at: 0, is_big_endian: false, aligned: None };
        if dialect == Dialect::Ros2 {
            let head = wire.take(4)?;
            let code = u16::from_be_bytes([head[0], head[1]]);
            if code > 1 {
                return Err(MessageError::Encapsulation { code });
            }
            wire.is_big_endian = code == 0;
            wire.aligned = Some(wire.at);
        }
        Ok(wire)
    }

    /// Checks that only padding is left.
    pub(super) fn end(&self) -> Result<(), MessageError> {
        let left_bytes = self.left_bytes();
        let padding = if self.aligned.is_some() { PADDING_BYTES_MAX } else { 0 };
        if left_bytes > padding { Err(MessageError::Trailing { left_bytes }) } else { Ok(()) }
    }

    fn left_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn align(&mut self, to: usize) {
        if let Some(origin) = self.aligned {
            self.at = origin + (self.at - origin).next_multiple_of(to);
        }
    }

    fn take(&mut self, count: usize) -> Result<&'m [u8], MessageError> {
        self.check(count as u64)?;
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// Checks that at least this many bytes are left.
    fn check(&self, wanted_bytes: u64) -> Result<(), MessageError> {
        match wanted_bytes <= self.left_bytes() as u64 && self.at <= self.bytes.len() {
            true => Ok(()),
            false => Err(MessageError::Short { offset: self.at, size_bytes: self.bytes.len(), wanted_bytes }),
        }
    }

    /// Checks that the remaining bytes can hold `count` elements of at least `least_bytes` bytes.
    pub(super) fn check_elements(&self, count: usize, least_bytes: usize) -> Result<(), MessageError> {
        self.check((count as u64).saturating_mul(least_bytes as u64))
    }

    /// Reads the number of elements that follow.
    pub(super) fn count(&mut self) -> Result<usize, MessageError> {
        self.align(4);
        Ok(self.word(4)? as usize)
    }

    /// Reads an unsigned number of `size` bytes.
    fn word(&mut self, size: usize) -> Result<u64, MessageError> {
        let bytes = self.take(size)?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        if self.is_big_endian {
            word[..size].reverse();
        }
        Ok(u64::from_le_bytes(word))
    }

    fn text(&mut self) -> Result<FoundValue<'m>, MessageError> {
        let length = self.count()?;
        let mut bytes = self.take(length)?;
        if self.aligned.is_some() {
            // In CDR, the length includes the final NUL.
            bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        }
        Ok(std::str::from_utf8(bytes).map_or(FoundValue::Unknown, |text| FoundValue::Text(text.into())))
    }

    /// Reads a time or duration, in nanoseconds.
    fn nanoseconds(&mut self, dialect: Dialect, kind: Primitive) -> Result<i64, MessageError> {
        let (seconds, fraction) = (self.word(4)? as u32, self.word(4)? as u32);
        let is_signed = kind == Primitive::Duration || dialect == Dialect::Ros2;
        let seconds = if is_signed { i64::from(seconds as i32) } else { i64::from(seconds) };
        // In ROS 1, both parts of a duration are signed.
        let fraction = match (dialect, kind) {
            (Dialect::Ros1, Primitive::Duration) => i64::from(fraction as i32),
            _ => i64::from(fraction),
        };
        // 2³² s are far below the maximum of the type.
        Ok(seconds * 1_000_000_000 + fraction)
    }

    /// Reads one value.
    pub(super) fn value(&mut self, dialect: Dialect, kind: Primitive) -> Result<FoundValue<'m>, MessageError> {
        if kind == Primitive::Text {
            return self.text();
        }
        self.align(kind.align_bytes());
        if matches!(kind, Primitive::Time | Primitive::Duration) {
            return Ok(FoundValue::Plain(Value::I64(self.nanoseconds(dialect, kind)?)));
        }
        let word = self.word(kind.size_bytes())?;
        Ok(FoundValue::Plain(match kind {
            Primitive::Bool => Value::Bool(word != 0),
            Primitive::I8 => Value::I8(word as i8),
            Primitive::I16 => Value::I16(word as i16),
            Primitive::I32 => Value::I32(word as i32),
            Primitive::I64 | Primitive::Time | Primitive::Duration | Primitive::Text => Value::I64(word as i64),
            Primitive::U8 => Value::U8(word as u8),
            Primitive::U16 => Value::U16(word as u16),
            Primitive::U32 => Value::U32(word as u32),
            Primitive::U64 => Value::U64(word),
            Primitive::F32 => Value::F32(f32::from_bits(word as u32)),
            Primitive::F64 => Value::F64(f64::from_bits(word)),
        }))
    }

    /// Reads `count` consecutive numbers or Booleans.
    pub(super) fn array(
        &mut self,
        dialect: Dialect,
        kind: Primitive,
        element: ElementType,
        count: usize,
    ) -> Result<FoundValue<'m>, MessageError> {
        if count == 0 {
            return Ok(FoundValue::Array(element, Cow::Borrowed(&[])));
        }
        self.align(kind.align_bytes());
        let size = kind.size_bytes();
        self.check_elements(count, size)?;
        let elements = match kind {
            Primitive::Time | Primitive::Duration => {
                let mut elements = Vec::with_capacity(count * 8);
                for _ in 0..count {
                    elements.extend_from_slice(&self.nanoseconds(dialect, kind)?.to_le_bytes());
                }
                elements.into()
            }
            _ => {
                let bytes = self.take(count * size)?;
                if kind == Primitive::Bool {
                    bytes.iter().map(|byte| u8::from(*byte != 0)).collect::<Vec<u8>>().into()
                } else if self.is_big_endian && size > 1 {
                    bytes
                        .chunks_exact(size)
                        .flat_map(|element| element.iter().rev().copied())
                        .collect::<Vec<u8>>()
                        .into()
                } else {
                    Cow::Borrowed(bytes)
                }
            }
        };
        Ok(FoundValue::Array(element, elements))
    }
}
