//! Names: streams, their layouts and channels.

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
    /// A key from a table name and tags in any order. Of equal tag keys the last one stays.
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

    /// Whether its table is one of the store's own.
    pub fn is_internal(&self) -> bool {
        self.table.starts_with("strongback.")
    }

    /// The value of a tag.
    pub fn tag(&self, key: &str) -> Option<&str> {
        let i = self.tags.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(&self.tags[i].1)
    }

    /// The name of one of its channels: `table.channel{tag=value,…}`, without braces if no tags. A tag or value that is
    /// empty, has blanks at its ends or one of `,={}"\` in it is quoted, with `\` before `"` and `\`:
    /// `{site="Berlin,Mitte"}`.
    pub fn channel_name(&self, channel: &str) -> String {
        let mut name = format!("{}.{channel}", self.table);
        self.write_tags(&mut name);
        name
    }

    /// Parts a name as it is printed, of a stream or a channel, into what stands before the braces and the tags. Braces
    /// that hold no tags, or do not end the name, belong to it.
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

/// Puts a tag or its value into a name, in quotes where it could be taken for something else.
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

/// Reads `tag=value,…}`, with which the text ends.
fn read_tags(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut tags = Vec::new();
    loop {
        let (tag, rest) = read_word(text, &[',', '=', '{', '}']).filter(|_| !text.trim_start().starts_with('='))?;
        // Names of earlier versions have values with `=` that are not quoted.
        let (value, rest) = read_word(rest.strip_prefix('=')?, &[',', '{', '}'])?;
        tags.push((tag, value));
        match rest.strip_prefix(',') {
            Some(more) => text = more,
            None => return (rest == "}").then_some(tags),
        }
    }
}

/// Reads a tag or a value, in quotes or up to one of the signs that end it; and what follows.
fn read_word<'t>(text: &'t str, ends: &[char]) -> Option<(String, &'t str)> {
    let text = text.trim_start();
    if text.starts_with('"') {
        return read_quoted(text).map(|(word, rest)| (word, rest.trim_start()));
    }
    let (word, rest) = text.split_at(text.find(ends)?);
    Some((word.trim_end().to_owned(), rest))
}

/// Reads the word in quotes that a text begins with; and what follows. None: it begins with none.
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

/// Which of its two times a stream's `time` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Clock {
    /// `time` is `receive_time`.
    Receive = 0,
    /// `time` is `source_time`, or `receive_time` where the source said none.
    Source = 1,
}

/// How a channel's value runs between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Interpolation {
    /// The value holds until the next sample: integers, booleans, text, lossy steps.
    Hold = 0,
    /// Straight line: floats, and what a swinging door left out.
    Linear = 1,
}

/// A channel as its source describes it. Unit and description may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSpec {
    /// Name within its stream.
    pub name: String,
    /// Type of its values.
    pub channel_type: ChannelType,
    /// Unit of its values, as shown.
    pub unit: String,
    /// What it is.
    pub description: String,
    /// What of it is left out. A channel that has one keeps it: `None` asks for no change of it.
    pub reduction: Reduction,
}

impl ChannelSpec {
    /// A channel with a name and type only.
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

/// A stream as its source describes it: what [`crate::Store::resolve`] creates or grows.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Identity.
    pub key: StreamKey,
    /// Name of the source that feeds it, as `strongback.sources` shows it.
    pub source: String,
    /// Which time is `time`.
    pub clock: Clock,
    /// Nominal time between frames in nanoseconds, if it has a fixed cycle.
    pub expected_period_ns: Option<i64>,
    /// Wire sequences count modulo this (2³² for iNET-X); none if frames carry no sequence.
    pub sequence_modulus: Option<u64>,
    /// Channels that must exist; existing ones may be wider.
    pub channels: Vec<ChannelSpec>,
}

impl StreamSpec {
    /// Returns the description of a stream without source, period or sequence, whose `time` is that of reception.
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

/// A channel of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Number in the store.
    pub id: ChannelId,
    /// Column name: the source's name, or `name_i64`, `name_f64`, `name_string` where types
    /// conflicted, or `name_field` where the name is reserved.
    pub name: String,
    /// Name as the source spells it.
    pub source_name: String,
    /// Type now; it only widens.
    pub channel_type: ChannelType,
    /// Unit of its values.
    pub unit: String,
    /// What it is.
    pub description: String,
    /// How values run between samples.
    pub interpolation: Interpolation,
    /// What of it is left out, and within which bound.
    pub reduction: Reduction,
}

/// The channels of a stream at one version. Layouts only grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Rises with each change.
    pub version: u32,
    /// Channels by [`ChannelIndex`].
    pub channels: Vec<Channel>,
}

impl Layout {
    /// Channels of these types without names: to decode rows as they are stored, without their stream's definition.
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

    /// The indices of all channels.
    pub(crate) fn indices(&self) -> Vec<ChannelIndex> {
        (0..self.channels.len() as u16).map(ChannelIndex).collect()
    }

    /// The index of the channel with this column name.
    pub fn index(&self, name: &str) -> Option<ChannelIndex> {
        self.channels.iter().position(|c| c.name == name).map(|i| ChannelIndex(i as u16))
    }

    /// The channel at an index.
    pub fn channel(&self, index: ChannelIndex) -> &Channel {
        &self.channels[index.0 as usize]
    }
}

/// A stream of the catalog at one layout version.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number in the store.
    pub id: StreamId,
    /// Identity.
    pub key: StreamKey,
    /// Name of the source that feeds it.
    pub source: String,
    /// Which time is `time`.
    pub clock: Clock,
    /// Nominal time between frames in nanoseconds.
    pub expected_period_ns: Option<i64>,
    /// Wire sequences count modulo this.
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
        // As a person writes it, and as earlier versions did.
        let tags = |pairs: &[(&str, &str)]| key(pairs).tags;
        assert_eq!(StreamKey::split_name("t.c{k=1, l = \"2\" }"), ("t.c", tags(&[("k", "1"), ("l", "2")])));
        assert_eq!(StreamKey::split_name("t.c{k=a==,l=}"), ("t.c", tags(&[("k", "a=="), ("l", "")])));
        assert_eq!(StreamKey::split_name("t.c{a=1}{k=1}"), ("t.c{a=1}", tags(&[("k", "1")])));
    }
}
