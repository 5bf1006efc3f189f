//! Names and definitions of streams, layouts and channels.

use std::fmt;
use std::sync::Arc;

use crate::model::reduction::Reduction;
use crate::model::value::ChannelType;

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
    /// value is quoted if it is empty, has blanks at its ends or contains one of `,={}"\`. In quotes, `"` and `\` are
    /// preceded by `\`: `{site="Berlin,Mitte"}`.
    pub fn channel_name(&self, channel: &str) -> String {
        let mut name = format!("{}.{channel}", self.table);
        self.write_tags(&mut name);
        name
    }

    /// Splits the printed name of a stream or channel into the part before the braces and the tags. Braces that hold no
    /// tags, or do not end the name, belong to the name.
    pub fn split_name(name: &str) -> (&str, Vec<(String, String)>) {
        let mut opens = name.match_indices('{').filter(|_| name.ends_with('}'));
        let found = opens.find_map(|(at, _)| Some((&name[..at], read_tags(&name[at + 1..])?)));
        found.unwrap_or((name, Vec::new()))
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
            put_word(out, k);
            out.push('=');
            put_word(out, v);
        }
        out.push('}');
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.table.clone();
        self.write_tags(&mut name);
        f.write_str(&name)
    }
}

/// Appends a tag or value to a name, quoted if it could be misread.
fn put_word(out: &mut String, word: &str) {
    let is_plain = !word.is_empty() && word.trim() == word && !word.contains([',', '=', '{', '}', '"', '\\']);
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
        let words =
            ["a", "", " ", ",", "=", "{", "}", "\"", "\\", "a,b=c", "{a=b}", "\"a\",b=\"", "\\\"", "é\n", "a=\"b\"}"];
        let mut names = std::collections::HashSet::new();
        for (first, second) in words.into_iter().flat_map(|first| words.map(|second| (first, second))) {
            for key in [key(&[("k", first), ("l", second)]), key(&[(first, second)])] {
                let name = key.to_string();
                let (table, tags) = StreamKey::split_name(&name);
                assert_eq!(StreamKey::new(table, tags), key, "{name}");
                let channel = key.channel_name("c{1}");
                assert_eq!(StreamKey::split_name(&channel), ("t.u.c{1}", key.tags.clone()), "{channel}");
                assert!(names.insert(name), "{key}");
            }
        }
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
