//! Converts values from a PLC's memory to cells of a frame.

use std::borrow::Cow;

use strongback_store::{ArrayRef, ChannelIndex, ChannelType, ElementType, FrameBatch, Value};

/// Encoding of a leaf's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// A number, or a Boolean in a byte.
    Plain(ElementType),
    /// One bit of a byte.
    Bit(u8),
    /// STRING: bytes up to a 0, in Windows-1252 or UTF-8.
    Text,
    /// WSTRING: UTF-16 up to a 0.
    WideText,
    /// An array of numbers.
    Array(ElementType),
}

/// Decodes bytes as UTF-8 if valid, or else as Windows-1252, which TwinCAT uses for STRING. Never fails.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| windows_1252(*byte)).collect()),
    }
}

fn windows_1252(byte: u8) -> char {
    /// Characters for 0x80 to 0x9F. The five unassigned ones map to themselves.
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => HIGH[byte as usize - 0x80],
        _ => char::from(byte),
    }
}

fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Decodes a number, or a Boolean in a byte, where any value but 0 is true. This is most of what a PLC sends.
#[inline]
fn plain(element: ElementType, bytes: &[u8]) -> Option<Value<'static>> {
    Some(match element {
        ElementType::Bool => Value::Bool(u8::from_le_bytes(bytes.try_into().ok()?) != 0),
        ElementType::I8 => Value::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::I16 => Value::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::U8 => Value::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::U16 => Value::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::U64 => Value::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
        ElementType::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
    })
}

/// Decodes a number to compare with those of an enumeration.
fn integer(element: ElementType, bytes: &[u8]) -> Option<i64> {
    Some(match plain(element, bytes)? {
        Value::I8(v) => v.into(),
        Value::I16(v) => v.into(),
        Value::I32(v) => v.into(),
        Value::I64(v) => v,
        Value::U8(v) => v.into(),
        Value::U16(v) => v.into(),
        Value::U32(v) => v.into(),
        // Enumerations have signed 64-bit numbers.
        Value::U64(v) => v as i64,
        _ => return None,
    })
}

impl ValueKind {
    /// Adds the name of the number in `bytes`, or the number as text if it has no name. Returns `false` if there is no
    /// number.
    pub fn push_name(
        self,
        names: &[(i64, String)],
        bytes: &[u8],
        channel: ChannelIndex,
        batch: &mut FrameBatch,
    ) -> bool {
        let ValueKind::Plain(element) = self else { return false };
        let Some(number) = integer(element, bytes) else { return false };
        match names.iter().find(|(of, _)| *of == number) {
            Some((_, name)) => batch.push(channel, Value::String(name)),
            None => batch.push(channel, Value::String(&number.to_string())),
        }
        true
    }

    /// Returns the type of its channel.
    pub fn channel_type(self) -> ChannelType {
        match self {
            ValueKind::Plain(element) => element.channel_type(),
            ValueKind::Bit(_) => ChannelType::Bool,
            ValueKind::Text | ValueKind::WideText => ChannelType::String,
            ValueKind::Array(element) => ChannelType::Array(strongback_store::ArrayType::variable(element)),
        }
    }

    /// Adds the value in `bytes` to the open frame of a batch. Returns `false` if the length of `bytes` does not fit
    /// the kind.
    #[inline]
    pub fn push(self, bytes: &[u8], channel: ChannelIndex, batch: &mut FrameBatch) -> bool {
        match self {
            ValueKind::Plain(element) => match plain(element, bytes) {
                Some(value) => batch.push(channel, value),
                None => return false,
            },
            ValueKind::Bit(bit) => {
                let Some(byte) = bytes.first() else { return false };
                batch.push(channel, Value::Bool(byte >> (bit & 7) & 1 != 0));
            }
            ValueKind::Text => {
                let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                batch.push(channel, Value::String(&text(&bytes[..end])));
            }
            ValueKind::WideText => batch.push(channel, Value::String(&utf16(bytes))),
            ValueKind::Array(ElementType::Bool) => {
                // In a PLC, any byte but 0 is TRUE.
                let truths: Vec<bool> = bytes.iter().map(|byte| *byte != 0).collect();
                batch.push_array(channel, &truths);
            }
            ValueKind::Array(element) => match ArrayRef::new(element, bytes) {
                Some(array) => batch.push(channel, Value::Array(array)),
                None => return false,
            },
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use strongback_store::{FrameHead, StreamId};

    use super::*;

    /// Returns the value that bytes of a kind make, as text, or `None` if they make none.
    fn value(kind: ValueKind, bytes: &[u8]) -> Option<String> {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: StreamId(0), receive_time: 0, source_time: None, sequence: None });
        let made = kind.push(bytes, ChannelIndex(0), &mut batch);
        batch.end();
        let frame = batch.frame(0);
        assert_eq!(frame.len(), usize::from(made));
        frame.cells().next().map(|(_, cell)| match cell.unwrap() {
            Value::Array(array) => format!("{:?}", array.iter().collect::<Vec<_>>()),
            value => format!("{value:?}"),
        })
    }

    #[test]
    fn numbers_are_those_of_their_bytes() {
        let plain = |element, bytes: &[u8]| value(ValueKind::Plain(element), bytes);
        let eight = [0x01, 0x02, 0x03, 0x84, 0x05, 0x06, 0x07, 0xff];
        for (element, right) in [
            (ElementType::I8, "I8(1)".to_owned()),
            (ElementType::U8, "U8(1)".to_owned()),
            (ElementType::I16, "I16(513)".to_owned()),
            (ElementType::U16, "U16(513)".to_owned()),
            (ElementType::I32, format!("I32({})", 0x8403_0201_u32 as i32)),
            (ElementType::U32, format!("U32({})", 0x8403_0201_u32)),
            (ElementType::I64, format!("I64({})", 0xff07_0605_8403_0201_u64 as i64)),
            (ElementType::U64, format!("U64({})", 0xff07_0605_8403_0201_u64)),
            (ElementType::F32, format!("F32({:?})", f32::from_bits(0x8403_0201))),
            (ElementType::F64, format!("F64({:?})", f64::from_bits(0xff07_0605_8403_0201))),
        ] {
            let size = element.size_bytes();
            assert_eq!(plain(element, &eight[..size]), Some(right), "{element:?}");
            assert_eq!(plain(element, &eight[..size - 1]), None, "{element:?}");
            assert_eq!(plain(element, &[0; 9]), None, "{element:?}");
        }
        for (byte, right) in [(0, "Bool(false)"), (1, "Bool(true)"), (0x80, "Bool(true)")] {
            assert_eq!(plain(ElementType::Bool, &[byte]).as_deref(), Some(right));
        }
        assert_eq!(value(ValueKind::Bit(3), &[0b0000_1000]).as_deref(), Some("Bool(true)"));
        assert_eq!(value(ValueKind::Bit(2), &[0b0000_1000]).as_deref(), Some("Bool(false)"));
        assert_eq!(value(ValueKind::Bit(2), &[]), None);
        assert_eq!(value(ValueKind::Array(ElementType::Bool), &[0, 7]).as_deref(), Some("[Bool(false), Bool(true)]"));
        assert_eq!(value(ValueKind::Array(ElementType::I16), &[1, 0, 2, 0]).as_deref(), Some("[I16(1), I16(2)]"));
        assert_eq!(value(ValueKind::Array(ElementType::I16), &[1, 0, 2]), None);
    }

    #[test]
    fn numbers_of_an_enumeration_are_its_names() {
        let names = [(0, "CLOSED".to_owned()), (-1, "FAULT".to_owned()), (300, "OPEN".to_owned())];
        let name = |kind: ValueKind, bytes: &[u8]| {
            let mut batch = FrameBatch::new();
            batch.begin(FrameHead { stream: StreamId(0), receive_time: 0, source_time: None, sequence: None });
            kind.push_name(&names, bytes, ChannelIndex(0), &mut batch);
            batch.end();
            batch.frame(0).cells().next().map(|(_, cell)| format!("{:?}", cell.unwrap()))
        };
        let i16 = ValueKind::Plain(ElementType::I16);
        assert_eq!(name(i16, &[0, 0]).as_deref(), Some("String(\"CLOSED\")"));
        assert_eq!(name(i16, &[0xff, 0xff]).as_deref(), Some("String(\"FAULT\")"));
        assert_eq!(name(i16, &[0x2c, 1]).as_deref(), Some("String(\"OPEN\")"));
        assert_eq!(name(i16, &[7, 0]).as_deref(), Some("String(\"7\")"));
        assert_eq!(name(ValueKind::Plain(ElementType::U16), &[0xff, 0xff]).as_deref(), Some("String(\"65535\")"));
        assert_eq!(name(i16, &[0]), None);
        assert_eq!(name(ValueKind::Text, &[0, 0]), None);
    }

    #[test]
    fn texts_end_at_their_zero_and_are_what_twincat_writes() {
        let text = |kind, bytes: &[u8]| value(kind, bytes).unwrap();
        assert_eq!(text(ValueKind::Text, b"LOX\0old"), "String(\"LOX\")");
        assert_eq!(text(ValueKind::Text, "23 °C".as_bytes()), "String(\"23 °C\")");
        assert_eq!(text(ValueKind::Text, &[b'2', b'3', 0xb0, b'C', 0x80, 0]), "String(\"23°C€\")");
        assert_eq!(text(ValueKind::Text, b""), "String(\"\")");
        let wide: Vec<u8> = "Größe 🚀\0x".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(text(ValueKind::WideText, &wide), "String(\"Größe 🚀\")");
        // Half of a surrogate pair, and half of a code unit.
        assert_eq!(text(ValueKind::WideText, &[0x3d, 0xd8, 0x41]), "String(\"\u{fffd}\")");
    }
}
