//! Values of a PLC: from the bytes of its memory to cells of a frame.

use std::borrow::Cow;

use strongback_store::{ArrayRef, ChannelIndex, ChannelType, ElementType, FrameBatch, Value};

/// What the bytes of a leaf are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number, or a truth value in a byte.
    Plain(ElementType),
    /// One bit of a byte.
    Bit(u8),
    /// STRING: bytes up to a 0, in Windows-1252 or UTF-8.
    Text,
    /// WSTRING: UTF-16 up to a 0.
    WideText,
    /// Many numbers.
    Array(ElementType),
}

/// Bytes as text: UTF-8 where they are, else Windows-1252, as TwinCAT writes STRING. Every sequence of bytes is text.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| windows_1252(*byte)).collect()),
    }
}

fn windows_1252(byte: u8) -> char {
    /// 0x80 to 0x9F; the five that are not given away stand for themselves.
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

impl Kind {
    /// The type of its channel.
    pub fn channel_type(self) -> ChannelType {
        match self {
            Kind::Plain(element) => element.channel_type(),
            Kind::Bit(_) => ChannelType::Bool,
            Kind::Text | Kind::WideText => ChannelType::String,
            Kind::Array(element) => ChannelType::Array(strongback_store::ArrayType::variable(element)),
        }
    }

    /// Adds the value in `bytes` to the open frame of a batch. Says whether there was one: bytes of another length
    /// than the kind's hold none.
    #[inline]
    pub fn push(self, bytes: &[u8], channel: ChannelIndex, batch: &mut FrameBatch) -> bool {
        match self {
            Kind::Plain(element) => {
                let mut bits = [0; 8];
                let Some(place) = bits.get_mut(..bytes.len()).filter(|place| place.len() == element.size_bytes())
                else {
                    return false;
                };
                place.copy_from_slice(bytes);
                let mut bits = u64::from_le_bytes(bits);
                if element == ElementType::Bool {
                    bits = u64::from(bits != 0);
                }
                batch.push(channel, Value::from_bits(element.channel_type(), bits));
            }
            Kind::Bit(bit) => {
                let Some(byte) = bytes.first() else { return false };
                batch.push(channel, Value::Bool(byte >> (bit & 7) & 1 != 0));
            }
            Kind::Text => {
                let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                batch.push(channel, Value::String(&text(&bytes[..end])));
            }
            Kind::WideText => batch.push(channel, Value::String(&utf16(bytes))),
            Kind::Array(ElementType::Bool) => {
                // A PLC's TRUE is any byte but 0.
                let truths: Vec<bool> = bytes.iter().map(|byte| *byte != 0).collect();
                batch.push_array(channel, &truths);
            }
            Kind::Array(element) => match ArrayRef::new(element, bytes) {
                Some(array) => batch.push(channel, Value::Array(array)),
                None => return false,
            },
        }
        true
    }
}
