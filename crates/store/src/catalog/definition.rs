//! Stream definitions in the footer of a segment, which make it readable on its own.
//!
//! ```text
//! stream, table, tags, (key, value)…, source, clock u8, expected_period_ns + 1 or 0,
//! id, type u8, [length − 1 u16 for a fixed-length array], interpolation and reduction u8 (as in `catalog`),
//!   [bound f64], name, source name or "" if the same, unit, description
//! ```
//! Numbers are varints; text is a varint length and UTF-8.

use std::sync::Arc;

use crate::bytes::{Cursor, FormatError, put_text, put_varint};
use crate::catalog::clock_of;
use crate::model::limits::{CHANNELS_MAX, TAGS_MAX, TEXT_BYTES_MAX};
use crate::model::stream::{Channel, ChannelId, Layout, Stream, StreamId, StreamKey};

/// Appends the definition of a stream.
pub(crate) fn encode(stream: &Stream, out: &mut Vec<u8>) {
    put_varint(out, stream.id.0.into());
    put_text(out, &stream.key.table);
    put_varint(out, stream.key.tags.len() as u64);
    for (key, value) in &stream.key.tags {
        put_text(out, key);
        put_text(out, value);
    }
    put_text(out, &stream.source);
    out.push(stream.clock as u8);
    put_varint(out, stream.expected_period_ns.filter(|p| *p >= 0).map_or(0, |p| p as u64 + 1));
    put_varint(out, stream.sequence_modulus.unwrap_or(0));
    put_varint(out, stream.layout.version.into());
    put_varint(out, stream.layout.channels.len() as u64);
    for channel in &stream.layout.channels {
        put_varint(out, channel.id.0.into());
        let (byte, bound) = channel.reduction.encode(channel.interpolation);
        channel.channel_type.put(out);
        out.push(byte);
        if let Some(bound) = bound {
            out.extend_from_slice(&bound.to_le_bytes());
        }
        put_text(out, &channel.name);
        put_text(out, if channel.source_name == channel.name { "" } else { &channel.source_name });
        put_text(out, &channel.unit);
        put_text(out, &channel.description);
    }
}

/// Reads what [`encode`] appended.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Stream, FormatError> {
    let id = StreamId(cursor.varint32("stream")?);
    let table = cursor.text("table", TEXT_BYTES_MAX)?.to_owned();
    let tags = cursor.count("tags", TAGS_MAX)?;
    let mut key = StreamKey { table, tags: Vec::new() };
    for _ in 0..tags {
        let begin = *cursor;
        let tag = cursor.text("tag", TEXT_BYTES_MAX)?.to_owned();
        if key.tags.last().is_some_and(|(last, _)| *last >= tag) {
            return Err(begin.invalid("tag", "tags out of order"));
        }
        key.tags.push((tag, cursor.text("value of a tag", TEXT_BYTES_MAX)?.to_owned()));
    }
    let source = cursor.text("source", TEXT_BYTES_MAX)?.to_owned();
    let clock = cursor.code("clock", clock_of)?;
    let period = cursor.varint("expected period")?;
    let modulus = cursor.varint("sequence modulus")?;
    let version = cursor.varint32("layout version")?;
    let count = cursor.count("channels", CHANNELS_MAX)?;
    let mut channels = Vec::new();
    for _ in 0..count {
        let id = ChannelId(cursor.varint32("channel")?);
        let channel_type = cursor.channel_type("channel type")?;
        let (interpolation, reduction) = cursor.reduction("interpolation and reduction")?;
        let mut text = |what| cursor.text(what, TEXT_BYTES_MAX).map(str::to_owned);
        let (name, source_name) = (text("channel name")?, text("name at the source")?);
        let (unit, description) = (text("unit")?, text("description")?);
        let source_name = if source_name.is_empty() { name.clone() } else { source_name };
        channels.push(Channel { id, name, source_name, channel_type, unit, description, interpolation, reduction });
    }
    Ok(Stream {
        id,
        key,
        source,
        clock,
        expected_period_ns: period.checked_sub(1).and_then(|p| i64::try_from(p).ok()),
        sequence_modulus: (modulus > 0).then_some(modulus),
        layout: Arc::new(Layout { version, channels }),
    })
}
