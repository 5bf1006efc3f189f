//! The catalog of streams and channels, which grows while the store runs.
//!
//! Records (little-endian; text is a u16 length and UTF-8; an optional is 0, or 1 and 8 bytes):
//!
//! ```text
//! stream:   u32 id, text table, u16 tags, (text key, text value)…, body, u16 retention group
//! channels: u32 id, body                            of a stream that is known
//! body:     u32 serial (rises with each record of the stream), text source, u8 clock, optional expected_period_ns,
//!           optional sequence_modulus,
//!           u32 layout version, u16 shape, u16 first shape with a sequence (65,535: none),
//!           u16 channels in all, u16 n, n × channel,
//!           u16 m, m × (u16 channel, u16 shape, u8 type)     what each shape added or widened
//! channel:  u16 index, u32 id, u8 type, u8 interpolation and reduction (see below), [f64 bound], text name,
//!           text source_name, text unit, text description
//! ```
//! The type of a fixed-length array is its code, followed by the length minus one (u16). The lower four bits of the
//! byte for interpolation and reduction are the interpolation (0 hold, 1 linear), the upper four the reduction (0 none,
//! 1 step, 2 deadband, 3 swinging door). The last two are followed by the bound. A shape is a list of types: 0 is
//! empty, and each later one results from the changes up to it.

pub(crate) mod definition;
pub(crate) mod group;
pub(crate) mod stream_list;

use std::sync::Arc;

use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, RecordError, contradiction};
use crate::catalog::group::Group;
use crate::catalog::stream_list::StreamList;
use crate::model::array::{ArrayType, ElementType};
use crate::model::limits::{CHANNELS_MAX, NAME_BYTES_MAX, STREAM_TAGS_MAX, TAG_VALUE_BYTES_MAX, TEXT_BYTES_MAX};
use crate::model::pattern::{Chosen, Pattern, Steps, TooCostly, matching_of};
use crate::model::reduction::Reduction;
use crate::model::row::{RowShape, Shapes};
use crate::model::stream::*;
use crate::{ChannelType, Reject};

/// All streams at one moment. Cheap to clone; replaced instead of modified.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Version; increases with each change.
    pub version: u64,
    /// Streams by [`StreamId`].
    pub streams: StreamList,
}

impl Catalog {
    /// Returns the stream of an id.
    pub fn stream(&self, id: StreamId) -> Option<&Arc<Stream>> {
        self.streams.get(id.0 as usize)
    }
}

/// Channel that a shape added or widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShapeChange {
    pub(crate) channel: u16,
    pub(crate) shape: u16,
    pub(crate) kind: ChannelType,
}

/// History of a stream's shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ShapeHistory {
    /// Changes in the order of their shapes.
    pub(crate) changes: Vec<ShapeChange>,
    /// Newest shape.
    pub(crate) newest: u16,
    /// First shape whose rows have a sequence.
    pub(crate) sequenced_from: Option<u16>,
    /// Serial number; increases with each record of the stream.
    pub(crate) serial: u32,
}

impl ShapeHistory {
    /// Returns the channel types of a shape.
    pub(crate) fn kinds(&self, shape: u16) -> Vec<ChannelType> {
        let mut kinds = Vec::new();
        for change in self.changes.iter().filter(|c| c.shape <= shape) {
            match kinds.get_mut(change.channel as usize) {
                Some(kind) => *kind = change.kind,
                None => kinds.push(change.kind),
            }
        }
        kinds
    }

    /// Returns the row shape of a shape number.
    pub(crate) fn shape(&self, number: u16, shapes: &mut Shapes) -> Arc<RowShape> {
        let has_sequence = self.sequenced_from.is_some_and(|from| number >= from);
        shapes.get(has_sequence, self.kinds(number))
    }
}

/// Shared shape histories: most streams of a table have the same one.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    known: hashbrown::HashSet<Arc<ShapeHistory>, foldhash::fast::RandomState>,
}

impl Histories {
    /// Returns the shared instance of a history.
    pub(crate) fn share(&mut self, mut history: ShapeHistory) -> Arc<ShapeHistory> {
        if let Some(known) = self.known.get(&history) {
            return known.clone();
        }
        history.changes.shrink_to_fit();
        let history = Arc::new(history);
        // Long histories are rarely shared, and a stream that grows channel by channel would leave each one behind.
        if history.changes.len() <= 64 {
            if self.known.len() >= 4096 {
                self.known.retain(|known| Arc::strong_count(known) > 1);
            }
            self.known.insert(history.clone());
        }
        history
    }
}

/// Result of applying a spec to a stream.
pub(crate) struct Growth {
    /// New version of the stream; `None` if nothing changed.
    pub(crate) stream: Option<Stream>,
    /// Indices of the channels that were added or changed.
    pub(crate) touched: Vec<u16>,
    /// Channels whose types were added or widened, for the next shape.
    pub(crate) retyped: Vec<(u16, ChannelType)>,
    /// Index of each channel of the spec.
    pub(crate) indices: Vec<ChannelIndex>,
}

/// Checks that only the store itself uses its own tables, whether or not they exist. Case is ignored, as SQL finds
/// tables regardless of it.
pub(crate) fn check_owner(key: &StreamKey, internal: bool) -> Result<(), Reject> {
    let schema = key.table.split('.').next().unwrap_or_default();
    if internal || !schema.eq_ignore_ascii_case("strongback") {
        return Ok(());
    }
    let name = key.table.chars().take(64).collect();
    Err(Reject::BadName { name, why: "tables named strongback are the store's own" })
}

/// Checks whether a key is valid.
pub(crate) fn check_key(key: &StreamKey) -> Result<(), Reject> {
    let bad = |name: &str, why| Err(Reject::BadName { name: name.chars().take(64).collect(), why });
    if key.tags.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return bad(&key.table, "tags out of order, or one there twice");
    }
    if key.tags.len() > STREAM_TAGS_MAX {
        return bad(&key.table, "more than 256 tags");
    }
    check_name(&key.table)?;
    for (tag, value) in &key.tags {
        check_name(tag)?;
        if value.len() > TAG_VALUE_BYTES_MAX {
            return bad(value, "a tag value over 16 KiB");
        }
    }
    Ok(())
}

pub(crate) fn check_name(name: &str) -> Result<(), Reject> {
    let bad = |why| Err(Reject::BadName { name: name.chars().take(64).collect(), why });
    match name {
        "" => bad("empty"),
        n if n.len() > NAME_BYTES_MAX => bad("longer than 1,024 bytes"),
        n if n.chars().any(|c| c.is_control()) => bad("control characters"),
        _ => Ok(()),
    }
}

/// Checks that a text of a definition can be read back: the log and the footers of segments limit its length.
fn check_text(text: &str, too_long: &'static str) -> Result<(), Reject> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Reject::BadName { name: text.chars().take(64).collect(), why: too_long });
    }
    Ok(())
}

/// Returns whether a column name is used by every table or by a tag of the stream.
fn is_reserved(name: &str, key: &StreamKey) -> bool {
    let stem = name.strip_suffix("_ns").unwrap_or(name);
    matches!(stem, "time" | "receive_time" | "source_time")
        || matches!(name, "sequence" | "session")
        || key.tag(name).is_some()
}

/// Returns the changes to a stream when its source describes it by `spec`. New channels get ids from `next_channel`.
pub(crate) fn grow(before: &Stream, spec: &StreamSpec, next_channel: u32) -> Result<Growth, Reject> {
    check_text(&spec.source, "a source over 65,535 bytes")?;
    let mut channels: Vec<Channel> = Vec::new();
    let mut cloned = false;
    let mut growth = Growth { stream: None, touched: Vec::new(), retyped: Vec::new(), indices: Vec::new() };
    let mut next_channel = next_channel;
    let old = &before.layout.channels;
    // For many requested channels of a wide stream, build a table of names instead of searching for each.
    let table: Option<hashbrown::HashMap<&str, u16, foldhash::fast::RandomState>> = (old.len() * spec.channels.len()
        > 256)
        .then(|| old.iter().enumerate().rev().map(|(i, c)| (c.source_name.as_str(), i as u16)).collect());
    for asked in &spec.channels {
        check_name(&asked.name)?;
        check_text(&asked.unit, "a unit over 65,535 bytes")?;
        check_text(&asked.description, "a description over 65,535 bytes")?;
        let now: &[Channel] = if cloned { &channels } else { old };
        // A known name usually refers to its first channel with the same type, which needs no copy of the list.
        let first = match &table {
            Some(table) => table.get(asked.name.as_str()).map(|&i| i as usize),
            None => now.iter().position(|c| c.source_name == asked.name),
        };
        let fits = |c: &Channel| c.channel_type.widen(asked.channel_type) == Some(c.channel_type);
        let mut found = first.filter(|&i| fits(&now[i]));
        if found.is_none() {
            found = now.iter().position(|c| c.source_name == asked.name && fits(c));
        }
        let mut widened = None;
        if found.is_none() {
            let wider = now.iter().enumerate().filter(|(_, c)| c.source_name == asked.name);
            for (i, c) in wider {
                if let Some(wide) = c.channel_type.widen(asked.channel_type) {
                    (found, widened) = (Some(i), Some(wide));
                    break;
                }
            }
        }
        let index = match found {
            Some(i) => i,
            None => now.len(),
        };
        if index >= CHANNELS_MAX {
            return Err(Reject::TooManyChannels { stream: before.key.to_string(), max_channels: CHANNELS_MAX });
        }
        let changed = match found {
            None => true,
            Some(i) => {
                let c = &now[i];
                widened.is_some()
                    || asked.reduction != Reduction::None && asked.reduction != c.reduction
                    || !asked.unit.is_empty() && asked.unit != c.unit
                    || !asked.description.is_empty() && asked.description != c.description
            }
        };
        growth.indices.push(ChannelIndex(index as u16));
        if !changed {
            continue;
        }
        if !cloned {
            channels = old.clone();
            cloned = true;
        }
        if found.is_none() {
            let conflict = channels.iter().any(|c| c.source_name == asked.name);
            let name = column_name(&channels, &before.key, asked, conflict);
            // The second column of a conflict gets the widest type of its kind, so that there is never a third.
            let channel_type = if conflict { second_type(asked.channel_type) } else { asked.channel_type };
            check_reduction(&before.key, asked, channel_type, Reduction::None)?;
            channels.push(Channel {
                id: ChannelId(next_channel),
                name,
                source_name: asked.name.clone(),
                channel_type,
                unit: asked.unit.clone(),
                description: asked.description.clone(),
                interpolation: asked.reduction.interpolation(channel_type),
                reduction: asked.reduction,
            });
            next_channel += 1;
            growth.retyped.push((index as u16, channel_type));
        } else {
            let c = &mut channels[index];
            if asked.reduction != Reduction::None && asked.reduction != c.reduction {
                check_reduction(&before.key, asked, c.channel_type, c.reduction)?;
                c.reduction = asked.reduction;
                c.interpolation = c.reduction.interpolation(c.channel_type);
            }
            if let Some(wide) = widened {
                c.channel_type = wide;
                growth.retyped.push((index as u16, wide));
            }
            if !asked.unit.is_empty() {
                c.unit.clone_from(&asked.unit);
            }
            if !asked.description.is_empty() {
                c.description.clone_from(&asked.description);
            }
        }
        if growth.touched.last() != Some(&(index as u16)) {
            growth.touched.push(index as u16);
        }
    }
    let source = if spec.source.is_empty() { &before.source } else { &spec.source };
    let period = spec.expected_period_ns.or(before.expected_period_ns);
    let modulus = spec.sequence_modulus.or(before.sequence_modulus);
    if cloned
        || *source != before.source
        || spec.clock != before.clock
        || period != before.expected_period_ns
        || modulus != before.sequence_modulus
    {
        let layout = if cloned {
            channels.shrink_to_fit();
            Arc::new(Layout { version: before.layout.version + 1, channels })
        } else {
            before.layout.clone()
        };
        growth.stream = Some(Stream {
            id: before.id,
            key: before.key.clone(),
            source: source.clone(),
            clock: spec.clock,
            expected_period_ns: period,
            sequence_modulus: modulus,
            layout,
        });
    }
    Ok(growth)
}

/// Checks whether a channel can get the requested reduction. Data stored with one reduction cannot be read back with
/// another.
fn check_reduction(key: &StreamKey, asked: &ChannelSpec, kind: ChannelType, has: Reduction) -> Result<(), Reject> {
    let why = match has {
        Reduction::None => asked.reduction.check(kind),
        has => Err(format!("{} asked for, but it is recorded with {has}: give it another name", asked.reduction)),
    };
    why.map_err(|why| Reject::BadReduction { stream: key.to_string(), channel: asked.name.clone(), why })
}

fn second_type(kind: ChannelType) -> ChannelType {
    use ChannelType::*;
    match kind {
        Array(array) => match ElementType::of(second_type(array.element().channel_type())) {
            Some(element) => Array(ArrayType::variable(element)),
            None => kind,
        },
        I8 | I16 | I32 | I64 | U8 | U16 | U32 => I64,
        F32 | F64 => F64,
        other => other,
    }
}

fn column_name(channels: &[Channel], key: &StreamKey, asked: &ChannelSpec, conflict: bool) -> String {
    let mut name = if conflict {
        format!("{}_{}", asked.name, second_type(asked.channel_type).suffix())
    } else if is_reserved(&asked.name, key) {
        format!("{}_field", asked.name)
    } else {
        asked.name.clone()
    };
    // Another channel may already have this name.
    let stem = name.clone();
    let mut n = 2;
    while channels.iter().any(|c| c.name == name) || is_reserved(&name, key) {
        name = format!("{stem}_{n}");
        n += 1;
    }
    name
}

/// Encodes the record of a whole stream.
pub(crate) fn encode_stream(stream: &Stream, history: &ShapeHistory, group: Group) -> Vec<u8> {
    let mut p = Put::default();
    p.u32(stream.id.0);
    p.text(&stream.key.table);
    p.u16(stream.key.tags.len() as u16);
    for (key, value) in &stream.key.tags {
        p.text(key);
        p.text(value);
    }
    let all: Vec<u16> = (0..stream.layout.channels.len() as u16).collect();
    put_body(&mut p, stream, history, &all, &history.changes);
    p.u16(group.0);
    p.0
}

/// Encodes the record of some channels of a stream.
pub(crate) fn encode_channels(
    stream: &Stream,
    history: &ShapeHistory,
    touched: &[u16],
    first_change: usize,
) -> Vec<u8> {
    let mut p = Put::default();
    p.u32(stream.id.0);
    put_body(&mut p, stream, history, touched, &history.changes[first_change..]);
    p.0
}

fn put_body(p: &mut Put, stream: &Stream, history: &ShapeHistory, touched: &[u16], changes: &[ShapeChange]) {
    p.u32(history.serial);
    p.text(&stream.source);
    p.u8(stream.clock as u8);
    p.optional(stream.expected_period_ns.map(|v| v as u64));
    p.optional(stream.sequence_modulus);
    p.u32(stream.layout.version);
    p.u16(history.newest);
    p.u16(history.sequenced_from.unwrap_or(u16::MAX));
    p.u16(stream.layout.channels.len() as u16);
    p.u16(touched.len() as u16);
    for &i in touched {
        let c = &stream.layout.channels[i as usize];
        p.u16(i);
        p.u32(c.id.0);
        c.channel_type.put(&mut p.0);
        let (byte, bound) = c.reduction.encode(c.interpolation);
        p.u8(byte);
        if let Some(bound) = bound {
            p.u64(bound.to_bits());
        }
        p.text(&c.name);
        p.text(&c.source_name);
        p.text(&c.unit);
        p.text(&c.description);
    }
    p.u16(changes.len() as u16);
    for c in changes {
        p.u16(c.channel);
        p.u16(c.shape);
        c.kind.put(&mut p.0);
    }
}

/// Decoded body of a record.
pub(crate) struct Body {
    /// Serial number; increases with each record of the stream.
    pub(crate) serial: u32,
    source: String,
    clock: Clock,
    expected_period_ns: Option<i64>,
    sequence_modulus: Option<u64>,
    version: u32,
    /// Number of its newest shape.
    pub(crate) shape: u16,
    sequenced_from: Option<u16>,
    count: u16,
    channels: Vec<(u16, Channel)>,
    changes: Vec<ShapeChange>,
}

/// Whole definition of a stream.
pub(crate) struct Definition {
    pub(crate) id: StreamId,
    pub(crate) key: StreamKey,
    pub(crate) body: Body,
    pub(crate) group: Group,
}

/// Reads the record of a whole stream.
///
/// # Errors
/// If a field is cut or invalid.
pub(crate) fn decode_stream(t: &mut Cursor<'_>) -> Result<Definition, FormatError> {
    let id = StreamId(t.u32("stream")?);
    let table = t.short_text("table")?.to_owned();
    let mut tags = Vec::new();
    for _ in 0..t.u16("number of tags")? {
        tags.push((t.short_text("tag")?.to_owned(), t.short_text("value of a tag")?.to_owned()));
    }
    tags.shrink_to_fit();
    let (key, body) = (StreamKey { table, tags }, read_body(t)?);
    Ok(Definition { id, key, body, group: Group(t.u16("retention group")?) })
}

/// Reads the record of some channels of a stream.
///
/// # Errors
/// If a field is cut or invalid.
pub(crate) fn decode_channels(t: &mut Cursor<'_>) -> Result<(StreamId, Body), FormatError> {
    Ok((StreamId(t.u32("stream")?), read_body(t)?))
}

fn read_body(t: &mut Cursor<'_>) -> Result<Body, FormatError> {
    let serial = t.u32("serial")?;
    let source = t.short_text("source")?.to_owned();
    let clock = t.code("clock", clock_of)?;
    let expected_period_ns = t.optional("expected period")?.map(|v| v as i64);
    let sequence_modulus = t.optional("sequence modulus")?;
    let (version, shape) = (t.u32("layout version")?, t.u16("shape")?);
    let sequenced_from = Some(t.u16("first shape with a sequence")?).filter(|&s| s != u16::MAX);
    let count = t.u16("number of all channels")?;
    let mut channels = Vec::new();
    for _ in 0..t.u16("number of channels")? {
        let index = t.u16("index of a channel")?;
        let id = ChannelId(t.u32("channel")?);
        let channel_type = t.channel_type("channel type")?;
        let (interpolation, reduction) = t.reduction("interpolation and reduction")?;
        let mut text = |what| t.short_text(what).map(str::to_owned);
        let (name, source_name) = (text("channel name")?, text("name at the source")?);
        let (unit, description) = (text("unit")?, text("description")?);
        let channel = Channel { id, name, source_name, channel_type, unit, description, interpolation, reduction };
        channels.push((index, channel));
    }
    let mut changes = Vec::new();
    for _ in 0..t.u16("number of changes")? {
        let (channel, shape) = (t.u16("channel of a change")?, t.u16("shape of a change")?);
        changes.push(ShapeChange { channel, shape, kind: t.channel_type("channel type of a change")? });
    }
    Ok(Body {
        serial,
        source,
        clock,
        expected_period_ns,
        sequence_modulus,
        version,
        shape,
        sequenced_from,
        count,
        channels,
        changes,
    })
}

/// Returns the clock with a code.
fn clock_of(code: u8) -> Option<Clock> {
    match code {
        0 => Some(Clock::Receive),
        1 => Some(Clock::Source),
        _ => None,
    }
}

/// Applies a body to a stream and its history. Returns the new stream.
///
/// # Errors
/// If the body does not fit the previous state.
pub(crate) fn apply_body(
    id: StreamId,
    key: StreamKey,
    before: &[Channel],
    history: &mut ShapeHistory,
    body: Body,
) -> Result<Stream, RecordError> {
    let mut channels = before.to_vec();
    for (index, channel) in body.channels {
        let known = channels.len();
        match (index as usize).cmp(&known) {
            std::cmp::Ordering::Less => channels[index as usize] = channel,
            std::cmp::Ordering::Equal => channels.push(channel),
            std::cmp::Ordering::Greater => {
                return Err(contradiction(format!("stream {}: channel {index} follows {known} channels", id.0)));
            }
        }
    }
    if channels.len() != body.count as usize {
        let (found, count) = (channels.len(), body.count);
        return Err(contradiction(format!("stream {}: {found} channels, of {count} in all", id.0)));
    }
    channels.shrink_to_fit();
    history.changes.extend(body.changes);
    history.newest = body.shape;
    history.serial = body.serial;
    history.sequenced_from = body.sequenced_from;
    let known = history.kinds(body.shape);
    if known.len() != channels.len() || known.iter().zip(&channels).any(|(k, c)| *k != c.channel_type) {
        let how = format!("stream {}: the types of shape {} are not those of its channels", id.0, body.shape);
        return Err(contradiction(how));
    }
    Ok(Stream {
        id,
        key,
        source: body.source,
        clock: body.clock,
        expected_period_ns: body.expected_period_ns,
        sequence_modulus: body.sequence_modulus,
        layout: Arc::new(Layout { version: body.version, channels }),
    })
}

/// Records columns whose type was added or changed, and that frames have a sequence from here on.
pub(crate) fn extend_history(history: &mut ShapeHistory, retyped: &[(u16, ChannelType)], sequenced: bool) {
    if retyped.is_empty() && !sequenced {
        return;
    }
    history.newest += 1;
    history.changes.extend(retyped.iter().map(|&(channel, kind)| ShapeChange { channel, shape: history.newest, kind }));
    if sequenced {
        history.sequenced_from = Some(history.newest);
    }
}

/// Returns the channels of a catalog that match any of some patterns, stream by stream, each once.
///
/// # Errors
/// If comparing takes too long.
pub fn matching(catalog: &Catalog, patterns: &[Pattern]) -> Result<Vec<Chosen>, TooCostly> {
    let (mut chosen, mut steps) = (Vec::new(), Steps::of_look());
    for stream in &catalog.streams {
        choose(stream, patterns, &mut steps, &mut chosen)?;
    }
    Ok(chosen)
}

/// Does the same as [`matching`], but matches the store's own tables only with patterns that begin with `strongback.`.
///
/// # Errors
/// If comparing takes too long.
pub fn matching_data(catalog: &Catalog, patterns: &[Pattern]) -> Result<Vec<Chosen>, TooCostly> {
    let of_internal = patterns.iter().filter(|pattern| pattern.as_str().starts_with("strongback."));
    let of_internal: Vec<Pattern> = of_internal.cloned().collect();
    let (mut chosen, mut steps) = (Vec::new(), Steps::of_look());
    for stream in &catalog.streams {
        let patterns = if stream.key.is_internal() { &*of_internal } else { patterns };
        choose(stream, patterns, &mut steps, &mut chosen)?;
    }
    Ok(chosen)
}

fn choose(
    stream: &Arc<Stream>,
    patterns: &[Pattern],
    steps: &mut Steps,
    chosen: &mut Vec<Chosen>,
) -> Result<(), TooCostly> {
    let channels = matching_of(stream, patterns, steps)?;
    if !channels.is_empty() {
        chosen.push((stream.clone(), channels));
    }
    Ok(())
}
