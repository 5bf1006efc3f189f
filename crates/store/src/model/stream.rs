//! Names and definitions of streams, layouts and channels.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::model::limits::NAME_BYTES_MAX;
use crate::model::reduction::Reduction;
use crate::model::value::ChannelType;

/// Maximum bytes of a dot and a channel that is printed in quotes: each character of it can take two.
const PRINTED_PART_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 3;

/// Number of a stream in its store: dense, from 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// Index of a channel in the layout of its stream: dense, from 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelIndex(pub u16);

/// Number of a channel in its store, unique over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// Identity of a stream: a table name plus tags, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// Name of the table (ILP measurement, stream name of a layout).
    pub table: String,
    /// Tags, sorted by key, keys unique.
    pub tags: Vec<(String, String)>,
}

impl StreamKey {
    /// Creates a key from a table name and tags in any order. If a tag occurs more than once, the last value is kept.
    pub fn new(table: impl Into<String>, tags: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut sorted: Vec<(String, String)> = Vec::new();
        for (k, v) in tags {
            match sorted.binary_search_by(|(have, _)| have.as_str().cmp(&k)) {
                Ok(i) => sorted[i].1 = v,
                Err(i) => sorted.insert(i, (k, v)),
            }
        }
        StreamKey { table: table.into(), tags: sorted }
    }

    /// Returns whether the table is one of the store's own.
    pub fn is_internal(&self) -> bool {
        self.table.starts_with("strongback.")
    }

    /// Returns the value of a tag.
    pub fn tag(&self, key: &str) -> Option<&str> {
        let i = self.tags.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(&self.tags[i].1)
    }

    /// Returns the full name of a channel: `table.channel{tag=value,…}`, without braces if there are no tags. A tag or
    /// value is quoted if it is empty, has blanks at its ends or contains one of `,={}"\`, and a table or channel if it
    /// contains `{` or `"`. In quotes, `"` and `\` are preceded by `\`: `{site="Berlin,Mitte"}`.
    ///
    /// Channels can have equal full names, as `c` of `a.b` and `b.c` of `a` do. With its stream, a full name is unique.
    pub fn channel_name(&self, channel: &str) -> String {
        self.name_of(channel, is_plain_part(channel))
    }

    /// Returns the full name of a channel, with the channel in quotes. Tells it from another whose full name is equal.
    pub fn quoted_channel_name(&self, channel: &str) -> String {
        self.name_of(channel, false)
    }

    fn name_of(&self, channel: &str, is_plain: bool) -> String {
        let mut name = String::with_capacity(self.table.len() + channel.len() + 1);
        put_part(&mut name, &self.table);
        name.push('.');
        put_word(&mut name, channel, is_plain);
        self.write_tags(&mut name);
        name
    }

    /// Returns the channel that a full name of this stream names, or `None` if the name is not one of this stream.
    pub fn channel_of(&self, name: &str) -> Option<String> {
        let mut table = String::new();
        put_part(&mut table, &self.table);
        let mut tags = String::new();
        self.write_tags(&mut tags);
        // Earlier versions did not quote tables and channels.
        let rest = name.strip_prefix(table.as_str()).or_else(|| name.strip_prefix(self.table.as_str()))?;
        let channel = rest.strip_prefix('.')?.strip_suffix(tags.as_str()).filter(|channel| !channel.is_empty())?;
        Some(unquoted(channel).into_owned())
    }

    /// Returns the stream with a printed name: `table{tag=value,…}`.
    pub fn parse(name: &str) -> StreamKey {
        let (table, tags) = StreamKey::split_name(name);
        StreamKey::new(unquoted(table), tags)
    }

    /// Splits the printed name of a stream or channel into the part before the braces, as printed, and the tags. Braces
    /// that hold no tags, are in quotes, or do not end the name, belong to the name.
    pub fn split_name(name: &str) -> (&str, Vec<(String, String)>) {
        let mut opens = outside_quotes(name).filter(|(_, byte)| *byte == b'{' && name.ends_with('}'));
        let found = opens.find_map(|(at, _)| Some((&name[..at], read_tags(&name[at + 1..])?)));
        found.unwrap_or((name, Vec::new()))
    }

    /// Returns the ways to split the printed name of a channel at a dot, from the last dot to the first.
    pub fn splits(name: &str) -> impl Iterator<Item = (StreamKey, String)> + '_ {
        let (stem, tags) = StreamKey::split_name(name);
        let may_be = move |at: &usize| stem.len() - at <= PRINTED_PART_BYTES_MAX;
        let dots = outside_quotes(stem).filter(|(_, byte)| *byte == b'.').map(|(at, _)| at).filter(may_be);
        let dots: Vec<usize> = dots.collect();
        let split = move |at: usize| {
            let (table, channel) = (&stem[..at], &stem[at + 1..]);
            let (table, own) = StreamKey::split_name(table);
            let is_whole = !table.is_empty() && !channel.is_empty();
            let tags = own.into_iter().chain(tags.iter().cloned());
            is_whole.then(|| (StreamKey::new(unquoted(table), tags), unquoted(channel).into_owned()))
        };
        dots.into_iter().rev().filter_map(split)
    }

    fn write_tags(&self, out: &mut String) {
        if self.tags.is_empty() {
            return;
        }
        out.push('{');
        for (i, (k, v)) in self.tags.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            put_word(out, k, is_plain_word(k));
            out.push('=');
            put_word(out, v, is_plain_word(v));
        }
        out.push('}');
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::with_capacity(self.table.len());
        put_part(&mut name, &self.table);
        self.write_tags(&mut name);
        f.write_str(&name)
    }
}

/// Returns whether a table or channel is printed without quotes.
pub(crate) fn is_plain_part(part: &str) -> bool {
    !part.contains(['{', '"'])
}

/// Returns whether a tag or value is printed without quotes.
fn is_plain_word(word: &str) -> bool {
    !word.is_empty() && word.trim() == word && !word.contains([',', '=', '{', '}', '"', '\\'])
}

/// Appends a table or channel to a name.
fn put_part(out: &mut String, part: &str) {
    put_word(out, part, is_plain_part(part));
}

/// Appends a part of a name, plain or in quotes.
fn put_word(out: &mut String, word: &str, is_plain: bool) {
    if is_plain {
        return out.push_str(word);
    }
    out.push('"');
    for sign in word.chars() {
        if matches!(sign, '"' | '\\') {
            out.push('\\');
        }
        out.push(sign);
    }
    out.push('"');
}

/// Returns a table or channel as it is, without the quotes that its printed form may have.
fn unquoted(part: &str) -> Cow<'_, str> {
    match read_quoted(part) {
        Some((word, "")) => Cow::Owned(word),
        _ => Cow::Borrowed(part),
    }
}

/// Returns the bytes of a name, with their offsets, that are not in a table or channel in quotes.
pub(crate) fn outside_quotes(name: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let (mut at, mut begins) = (0, true);
    std::iter::from_fn(move || {
        if std::mem::replace(&mut begins, false)
            && let Some((_, rest)) = read_quoted(&name[at..])
            && (rest.is_empty() || rest.starts_with(['.', '{']))
        {
            at = name.len() - rest.len();
        }
        let byte = *name.as_bytes().get(at)?;
        begins = byte == b'.';
        at += 1;
        Some((at - 1, byte))
    })
}

/// Parses `tag=value,…}` up to the end of the text.
fn read_tags(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut tags = Vec::new();
    loop {
        let (tag, rest) = read_word(text, &[',', '=', '{', '}']).filter(|_| !text.trim_start().starts_with('='))?;
        // Names printed by earlier versions have unquoted values with `=`.
        let (value, rest) = read_word(rest.strip_prefix('=')?, &[',', '{', '}'])?;
        tags.push((tag, value));
        match rest.strip_prefix(',') {
            Some(more) => text = more,
            None => return (rest == "}").then_some(tags),
        }
    }
}

/// Reads a tag or value, in quotes or up to one of the characters in `ends`. Returns it and the rest of the text.
fn read_word<'t>(text: &'t str, ends: &[char]) -> Option<(String, &'t str)> {
    let text = text.trim_start();
    if text.starts_with('"') {
        return read_quoted(text).map(|(word, rest)| (word, rest.trim_start()));
    }
    let (word, rest) = text.split_at(text.find(ends)?);
    Some((word.trim_end().to_owned(), rest))
}

/// Reads the quoted word at the start of a text, and returns it and the rest. Returns `None` if there is none.
pub(crate) fn read_quoted(text: &str) -> Option<(String, &str)> {
    let quoted = text.strip_prefix('"')?;
    let mut word = String::new();
    let mut signs = quoted.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return Some((word, &quoted[at + 1..])),
            '\\' => word.push(signs.next()?.1),
            sign => word.push(sign),
        }
    }
    None
}

/// Choice of the timestamp that is a stream's `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Clock {
    /// `time` is `receive_time`.
    Receive = 0,
    /// `time` is `source_time`, or `receive_time` if the source provided none.
    Source = 1,
}

/// Course of a channel's value between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Interpolation {
    /// The value holds until the next sample: integers, booleans, texts and lossy steps.
    Hold = 0,
    /// The value follows a straight line: floats, and values left out by a swinging door.
    Linear = 1,
}

/// Channel as described by its source. Unit and description may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSpec {
    /// Name within its stream.
    pub name: String,
    /// Type of its values.
    pub channel_type: ChannelType,
    /// Unit of its values, for display.
    pub unit: String,
    /// Description for people.
    pub description: String,
    /// Requested reduction. `None` asks for no change: a channel keeps the reduction that it has.
    pub reduction: Reduction,
}

impl ChannelSpec {
    /// Returns a channel with a name and a type only.
    pub fn new(name: impl Into<String>, channel_type: ChannelType) -> Self {
        ChannelSpec {
            name: name.into(),
            channel_type,
            unit: String::new(),
            description: String::new(),
            reduction: Reduction::None,
        }
    }
}

/// Stream as described by its source. [`crate::Store::resolve`] creates or extends it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Table and tags of the stream.
    pub key: StreamKey,
    /// Name of the source that feeds the stream, as shown in `strongback.sources`.
    pub source: String,
    /// Timestamp that is used as `time`.
    pub clock: Clock,
    /// Nominal time between frames in nanoseconds, if the stream has a fixed cycle.
    pub expected_period_ns: Option<i64>,
    /// Modulus of wire sequences (2³² for iNET-X); `None` if frames carry no sequence.
    pub sequence_modulus: Option<u64>,
    /// Channels that must exist. Existing ones may have wider types.
    pub channels: Vec<ChannelSpec>,
}

impl StreamSpec {
    /// Returns a stream without source, period or sequence, whose `time` is the time of reception.
    pub fn new(key: StreamKey, channels: Vec<ChannelSpec>) -> Self {
        StreamSpec {
            key,
            source: String::new(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels,
        }
    }
}

/// Channel in the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Number of the channel in the store.
    pub id: ChannelId,
    /// Column name: the source's name, or `name_i64`, `name_f64`, `name_string` if types conflicted, or `name_field` if
    /// the name is reserved.
    pub name: String,
    /// Name as the source spells it.
    pub source_name: String,
    /// Current type; it only widens.
    pub channel_type: ChannelType,
    /// Unit of its values.
    pub unit: String,
    /// Description for people.
    pub description: String,
    /// Course of the value between samples.
    pub interpolation: Interpolation,
    /// Reduction of the channel, with its bound.
    pub reduction: Reduction,
}

/// Channels of a stream at one version. Layouts only grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Version; increases with each change.
    pub version: u32,
    /// Channels by [`ChannelIndex`].
    pub channels: Vec<Channel>,
}

impl Layout {
    /// Returns a layout of unnamed channels with these types, for decoding stored rows without their stream's
    /// definition.
    pub(crate) fn of_types(types: &[ChannelType]) -> Layout {
        let channel = |(index, channel_type): (usize, &ChannelType)| Channel {
            id: ChannelId(index as u32),
            name: String::new(),
            source_name: String::new(),
            channel_type: *channel_type,
            unit: String::new(),
            description: String::new(),
            interpolation: Interpolation::Hold,
            reduction: Reduction::None,
        };
        Layout { version: 0, channels: types.iter().enumerate().map(channel).collect() }
    }

    /// Returns the indices of all channels.
    pub(crate) fn indices(&self) -> Vec<ChannelIndex> {
        (0..self.channels.len() as u16).map(ChannelIndex).collect()
    }

    /// Returns the index of the channel with a column name.
    pub fn index(&self, name: &str) -> Option<ChannelIndex> {
        self.channels.iter().position(|c| c.name == name).map(|i| ChannelIndex(i as u16))
    }

    /// Returns the channel at an index.
    pub fn channel(&self, index: ChannelIndex) -> &Channel {
        &self.channels[index.0 as usize]
    }
}

/// Stream in the catalog, at one layout version.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number of the stream in the store.
    pub id: StreamId,
    /// Table and tags of the stream.
    pub key: StreamKey,
    /// Name of the source that feeds it.
    pub source: String,
    /// Timestamp that is used as `time`.
    pub clock: Clock,
    /// Nominal time between frames in nanoseconds.
    pub expected_period_ns: Option<i64>,
    /// Modulus of wire sequences.
    pub sequence_modulus: Option<u64>,
    /// Channels at this version.
    pub layout: Arc<Layout>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tags: &[(&str, &str)]) -> StreamKey {
        StreamKey::new("t.u", tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn a_tag_is_quoted_where_it_could_be_taken_for_something_else() {
        let cases: [(&[(&str, &str)], &str); 6] = [
            (&[], "t.u"),
            (&[("acu", "1"), ("bay", "north 2*é'")], "t.u{acu=1,bay=north 2*é'}"),
            (&[("site", "Berlin,Mitte")], "t.u{site=\"Berlin,Mitte\"}"),
            (&[("a", ""), ("b", " x"), ("c", "x ")], "t.u{a=\"\",b=\" x\",c=\"x \"}"),
            (&[("a", "1=2"), ("b", "{}"), ("c", "\"\\")], "t.u{a=\"1=2\",b=\"{}\",c=\"\\\"\\\\\"}"),
            (&[("a,b=", "1")], "t.u{\"a,b=\"=1}"),
        ];
        for (tags, want) in cases {
            assert_eq!(key(tags).to_string(), want);
        }
    }

    #[test]
    fn a_printed_name_is_read_again_and_no_two_are_alike() {
        let words = [
            "a",
            "",
            " ",
            ",",
            "=",
            "{",
            "}",
            "\"",
            "\\",
            "a,b=c",
            "{a=b}",
            "\"a\",b=\"",
            "\\\"",
            "é\n",
            "a=\"b\"}",
            ".",
            "a.b",
            "a{b=c}",
            "a.\"b{c=d}\"",
            "a{k=",
        ];
        let mut names = std::collections::HashSet::new();
        for (first, second) in words.into_iter().flat_map(|first| words.map(|second| (first, second))) {
            let of_table = StreamKey::new(second, [("k".to_owned(), first.to_owned())]);
            for key in [key(&[("k", first), ("l", second)]), key(&[(first, second)]), of_table] {
                let name = key.to_string();
                assert_eq!(StreamKey::parse(&name), key, "{name}");
                for channel in words.into_iter().filter(|word| !word.is_empty()) {
                    let full = key.channel_name(channel);
                    assert_eq!(key.channel_of(&full).as_deref(), Some(channel), "{full}");
                    let is_split = StreamKey::splits(&full).any(|split| split == (key.clone(), channel.to_owned()));
                    assert!(is_split || key.table.is_empty(), "{full}");
                }
                names.insert(name);
            }
        }
        for table in words {
            let key = StreamKey::new(table, []);
            assert_eq!(StreamKey::parse(&key.to_string()), key, "{key}");
            names.insert(key.to_string());
        }
        let different = words.len() * words.len() * 3 + words.len();
        assert_eq!(names.len(), different);
    }

    #[test]
    fn tables_and_channels_that_look_like_tags_are_quoted() {
        let tagged = StreamKey::new("a", [("b".to_owned(), "c".to_owned())]);
        let plain = StreamKey::new("a{b=c}", []);
        assert_eq!((tagged.to_string(), plain.to_string()), ("a{b=c}".into(), "\"a{b=c}\"".into()));
        assert_eq!(plain.channel_name("x"), "\"a{b=c}\".x");
        assert_eq!(StreamKey::new("a", []).channel_name("x{b=c}"), "a.\"x{b=c}\"");
        // Names as earlier versions printed them.
        assert_eq!(plain.channel_of("a{b=c}.x").as_deref(), Some("x"));
        assert_eq!(StreamKey::new("a", []).channel_of("a.x{b=c}").as_deref(), Some("x{b=c}"));
        assert_eq!(tagged.channel_of("a.x"), None);
        assert_eq!(StreamKey::new("a", []).quoted_channel_name("x"), "a.\"x\"");
        let splits = |name: &str| StreamKey::splits(name).map(|(key, c)| format!("{key} {c}")).collect::<Vec<_>>();
        assert_eq!(splits("a.b.c{k=v}"), ["a.b{k=v} c", "a{k=v} b.c"]);
        assert_eq!(splits("a.\"b.c\""), ["a b.c"]);
        assert_eq!(splits("a{k=v}.c"), ["a{k=v} c"]);
        assert!(splits("c").is_empty() && splits(".c").is_empty() && splits("c.").is_empty());
    }

    #[test]
    fn braces_without_tags_belong_to_the_name() {
        for name in ["t.c{1}", "t.c{}", "t.c{k=1", "t.c{k=1}x", "t.c{=1}", "t.c{k=\"1}", "t{k=a,b}", "{k=\"a\"b}"] {
            assert_eq!(StreamKey::split_name(name), (name, Vec::new()));
        }
        // As a person writes it, and as earlier versions wrote it.
        let tags = |pairs: &[(&str, &str)]| key(pairs).tags;
        assert_eq!(StreamKey::split_name("t.c{k=1, l = \"2\" }"), ("t.c", tags(&[("k", "1"), ("l", "2")])));
        assert_eq!(StreamKey::split_name("t.c{k=a==,l=}"), ("t.c", tags(&[("k", "a=="), ("l", "")])));
        assert_eq!(StreamKey::split_name("t.c{a=1}{k=1}"), ("t.c{a=1}", tags(&[("k", "1")])));
    }
}
