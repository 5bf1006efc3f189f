//! Channel patterns, with which live, SQL, state and export select channels.
//!
//! A channel's name is `table.channel{tag=value,tag2=value}`. A pattern is a glob over the part before the braces: `*`
//! matches any run of characters (dots too), `?` matches one, and `\` makes the next character literal. A pattern
//! without braces matches any tags. In braces, each listed tag must match its glob; tags that are not listed may have
//! any value. A table, channel, tag or value in double quotes, as [`StreamKey::channel_name`] writes them, is taken
//! literally. The full name of a channel always matches that channel, whatever characters it has.

use std::sync::Arc;

use crate::model::stream::{ChannelIndex, Stream, StreamKey, is_plain_part, outside_quotes, read_quoted};

/// Maximum length of a pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// Maximum number of comparison steps for one lookup of channels: about one second of CPU time.
const STEPS_MAX: u64 = 300_000_000;

/// A parsed channel pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    name: Vec<Glyph>,
    tags: Vec<(String, Vec<Glyph>)>,
}

/// Error when parsing a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty.
    #[error("empty channel pattern")]
    Empty,
    /// The text is longer than [`PATTERN_BYTES_MAX`].
    #[error("channel pattern of {size_bytes} bytes, at most {PATTERN_BYTES_MAX}")]
    TooLong {
        /// Size of the text.
        size_bytes: usize,
    },
    /// A part in the braces is not `tag=glob`.
    #[error("channel pattern {pattern:?}: {part:?} is not tag=value")]
    BadTag {
        /// The pattern.
        pattern: String,
        /// The part that is wrong.
        part: String,
    },
}

/// Error of a lookup whose comparisons would take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the patterns take too long to compare with all channels; name channels in full, or use fewer wildcards")]
pub struct TooCostly;

/// Comparison steps that remain for one lookup of channels.
#[derive(Debug)]
pub struct Steps(u64);

impl Steps {
    /// Returns the budget for all channels and patterns of one lookup.
    pub fn of_look() -> Steps {
        Steps(STEPS_MAX)
    }

    /// Subtracts the cost of a comparison.
    ///
    /// # Errors
    /// If fewer steps remain.
    pub fn take(&mut self, steps: u64) -> Result<(), TooCostly> {
        self.0 = self.0.checked_sub(steps).ok_or(TooCostly)?;
        Ok(())
    }
}

/// Stream, and those of its channels that patterns select.
pub type Chosen = (Arc<Stream>, Vec<ChannelIndex>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Glyph {
    /// Literal byte.
    Byte(u8),
    /// Any one character.
    One,
    /// Any run of characters.
    Run,
}

impl Pattern {
    /// Splits a list of patterns at its commas. Commas inside braces belong to a pattern, and so do braces and commas in a
    /// quoted tag.
    pub fn split(text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let (mut start, mut depth, mut escaped) = (0, 0usize, false);
        let (mut quoted, mut before) = (false, 0);
        for (i, byte) in text.bytes().enumerate() {
            let literal = std::mem::replace(&mut escaped, false);
            match byte {
                _ if literal => {}
                b'\\' => escaped = true,
                b'"' if quoted || depth > 0 && matches!(before, b'{' | b',' | b'=') => quoted = !quoted,
                _ if quoted => {}
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    parts.push(text[start..i].to_owned());
                    start = i + 1;
                }
                _ => {}
            }
            before = byte;
        }
        parts.push(text[start..].to_owned());
        parts
    }

    /// Parses a pattern.
    ///
    /// # Errors
    /// If it is empty, too long, or its braces hold something that is not `tag=glob`.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong { size_bytes: text.len() });
        }
        let (name, braces) = match unescaped(outside_quotes(text), b'{') {
            Some(open) if text.ends_with('}') && open + 1 < text.len() => {
                (&text[..open], Some(&text[open + 1..text.len() - 1]))
            }
            _ => (text, None),
        };
        let mut tags = Vec::new();
        if let Some(braces) = braces.filter(|b| !b.trim().is_empty()) {
            for part in parts(braces, b',') {
                let tag = parts(part, b'=').next().unwrap_or_default();
                let Some(glob) = part[tag.len()..].strip_prefix('=').filter(|_| !tag.trim().is_empty()) else {
                    return Err(PatternError::BadTag { pattern: text.to_owned(), part: part.to_owned() });
                };
                let value = match in_quotes(glob) {
                    Some(word) => word.bytes().map(Glyph::Byte).collect(),
                    None => glyphs(glob),
                };
                tags.push((in_quotes(tag).unwrap_or_else(|| tag.trim().to_owned()), value));
            }
        }
        Ok(Pattern { text: text.to_owned(), name: name_glyphs(name), tags })
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether streams with these tags can have matching channels, regardless of channel names.
    pub fn matches_tags(&self, key: &StreamKey) -> bool {
        self.matches_tags_in(key, &mut 0)
    }

    /// Does the same as [`Pattern::matches_tags`], and adds the steps taken to `steps`.
    pub fn matches_tags_in(&self, key: &StreamKey, steps: &mut u64) -> bool {
        self.tags.iter().all(|(tag, glob)| key.tag(tag).is_some_and(|value| matches(glob, &[value.as_bytes()], steps)))
    }

    /// Returns whether a stream matches. The part before the braces is compared with its table.
    pub fn matches_stream(&self, key: &StreamKey) -> bool {
        self.matches_tags(key) && matches(&self.name, &[key.table.as_bytes()], &mut 0)
    }

    /// Returns whether a channel of a stream matches.
    pub fn matches(&self, key: &StreamKey, channel: &str) -> bool {
        self.matches_tags(key) && self.matches_name(key, channel, &mut 0) || self.names(key, channel)
    }

    /// Returns whether the part before the braces matches a channel, for a stream whose tags are known to match. Adds
    /// the steps taken to `steps`: at most the length of the pattern times that of the name. Callers that compare many
    /// patterns use it to bound the work.
    pub fn matches_name(&self, key: &StreamKey, channel: &str, steps: &mut u64) -> bool {
        matches(&self.name, &[key.table.as_bytes(), b".", channel.as_bytes()], steps)
    }

    /// Returns whether the pattern is the full name of a channel.
    pub fn names(&self, key: &StreamKey, channel: &str) -> bool {
        if !(is_plain_part(&key.table) && is_plain_part(channel)) && self.text == key.channel_name(channel) {
            return true;
        }
        let name = self.text.strip_prefix(key.table.as_str()).and_then(|rest| rest.strip_prefix('.'));
        match name.and_then(|rest| rest.strip_prefix(channel)) {
            None => false,
            Some("") => key.tags.is_empty(),
            // Build the full name only if all but the tags matches.
            Some(tags) => tags.starts_with('{') && self.text == key.channel_name(channel),
        }
    }
}

/// Returns the channels of a stream that match any of some patterns, in their order.
///
/// # Errors
/// If comparing takes too long.
pub(crate) fn matching_of(
    stream: &Stream,
    patterns: &[Pattern],
    steps: &mut Steps,
) -> Result<Vec<ChannelIndex>, TooCostly> {
    let key = &stream.key;
    // All channels of a stream share its tags.
    let mut taken = patterns.len() as u64;
    let fits: Vec<bool> = patterns.iter().map(|pattern| pattern.matches_tags_in(key, &mut taken)).collect();
    steps.take(taken)?;
    let mut found = Vec::new();
    for (index, channel) in stream.layout.channels.iter().enumerate() {
        for (pattern, fits) in patterns.iter().zip(&fits) {
            let mut taken = 1;
            let matches = *fits && pattern.matches_name(key, &channel.name, &mut taken);
            steps.take(taken)?;
            if matches || pattern.names(key, &channel.name) {
                found.push(ChannelIndex(index as u16));
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the offset of the first `wanted` byte that is not preceded by `\`.
fn unescaped(mut bytes: impl Iterator<Item = (usize, u8)>, wanted: u8) -> Option<usize> {
    let mut is_escaped = false;
    bytes.find_map(|(at, byte)| {
        let is_literal = is_escaped;
        is_escaped = !is_literal && byte == b'\\';
        (!is_literal && byte == wanted).then_some(at)
    })
}

/// Splits a text at each `sign` that is neither preceded by `\` nor within the quotes of a tag or value.
fn parts(text: &str, sign: u8) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped, mut begins) = (false, false, true);
    text.split(move |c: char| {
        let is_literal = std::mem::replace(&mut is_escaped, false);
        let may_quote = std::mem::replace(&mut begins, false);
        match c {
            _ if is_literal => {}
            '\\' => is_escaped = true,
            '"' if is_quoted || may_quote => is_quoted = !is_quoted,
            _ if is_quoted => {}
            ' ' => begins = may_quote,
            '=' | ',' => begins = true,
            _ => {}
        }
        !is_literal && !is_quoted && c == char::from(sign)
    })
}

/// Returns the word in quotes that makes up a whole tag or value, or `None` if it is not quoted.
fn in_quotes(text: &str) -> Option<String> {
    read_quoted(text.trim()).filter(|(_, rest)| rest.is_empty()).map(|(word, _)| word)
}

fn glyphs(glob: &str) -> Vec<Glyph> {
    let mut out = Vec::with_capacity(glob.len());
    put_glyphs(&mut out, glob);
    out
}

fn put_glyphs(out: &mut Vec<Glyph>, glob: &str) {
    let mut bytes = glob.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' if out.last() == Some(&Glyph::Run) => {}
            b'*' => out.push(Glyph::Run),
            b'?' => out.push(Glyph::One),
            b'\\' => out.push(Glyph::Byte(bytes.next().unwrap_or(b'\\'))),
            other => out.push(Glyph::Byte(other)),
        }
    }
}

/// Returns the glyphs of a table and channel. Either may be in quotes.
fn name_glyphs(name: &str) -> Vec<Glyph> {
    let mut out = Vec::with_capacity(name.len());
    let mut left = name;
    loop {
        match read_quoted(left) {
            Some((word, rest)) if rest.is_empty() || rest.starts_with('.') => {
                out.extend(word.bytes().map(Glyph::Byte));
                left = rest;
            }
            _ => {
                let end = unescaped(left.bytes().enumerate(), b'.').unwrap_or(left.len());
                put_glyphs(&mut out, &left[..end]);
                left = &left[end..];
            }
        }
        match left.strip_prefix('.') {
            Some(rest) => left = rest,
            None => return out,
        }
        out.push(Glyph::Byte(b'.'));
    }
}

/// Matches a glob against the concatenation of UTF-8 pieces, without joining them. Backtracks to the last run only: at
/// most pattern × text steps.
fn matches(glob: &[Glyph], pieces: &[&[u8]], steps: &mut u64) -> bool {
    let mut len: usize = pieces.iter().map(|p| p.len()).sum();
    let at = |mut i: usize| {
        for piece in pieces {
            match piece.get(i) {
                Some(byte) => return *byte,
                None => i -= piece.len(),
            }
        }
        0
    };
    // Compare the end of the glob first: globs with a run usually differ from a name there, as others do at the start.
    let mut glob = glob;
    while let Some((Glyph::Byte(byte), rest)) = glob.split_last() {
        *steps += 1;
        if len == 0 || at(len - 1) != *byte {
            return false;
        }
        (glob, len) = (rest, len - 1);
    }
    let next_char = |mut i: usize| {
        i += 1;
        while i < len && at(i) & 0xC0 == 0x80 {
            i += 1;
        }
        i
    };
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        *steps += 1;
        let advanced = match glob.get(g) {
            None if t == len => return true,
            None => false,
            Some(Glyph::Run) => {
                retry = Some((g, t));
                g += 1;
                true
            }
            Some(Glyph::One) if t < len => {
                (g, t) = (g + 1, next_char(t));
                true
            }
            Some(Glyph::Byte(byte)) if t < len && at(t) == *byte => {
                (g, t) = (g + 1, t + 1);
                true
            }
            Some(_) => false,
        };
        if !advanced {
            match retry {
                Some((run, from)) if from < len => {
                    let from = next_char(from);
                    retry = Some((run, from));
                    (g, t) = (run + 1, from);
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stream::Layout;
    use crate::{ChannelType, Clock, StreamId};

    fn key(table: &str, tags: &[(&str, &str)]) -> StreamKey {
        StreamKey::new(table, tags.iter().map(|(k, v)| (k.to_string(), v.to_string())))
    }

    fn hits(pattern: &str, table: &str, channel: &str, tags: &[(&str, &str)]) -> bool {
        Pattern::parse(pattern).unwrap().matches(&key(table, tags), channel)
    }

    #[test]
    fn globs_run_over_dots_and_tags_are_free_unless_listed() {
        let acu = [("acu", "1"), ("bay", "north")];
        for (pattern, want) in [
            ("*", true),
            ("avionics.*", true),
            ("avionics.sensor_values.p_lox", true),
            ("*.p_?ox", true),
            ("*p_lox", true),
            ("avionics", false),
            ("avionics.sensor_values.p_lo", false),
            ("avionics.sensor_values.p_lox{}", true),
            ("avionics.*{acu=1}", true),
            ("avionics.*{acu=1,bay=n*h}", true),
            ("avionics.*{acu=2}", false),
            ("avionics.*{rack=*}", false),
            ("*{bay=*}", true),
            ("a*s*x*p_lox", false),
            ("a*s*p*x", true),
        ] {
            assert_eq!(hits(pattern, "avionics.sensor_values", "p_lox", &acu), want, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_for_streams_is_matched_with_the_table() {
        let stream = key("plc.tank", &[("unit", "3")]);
        for (pattern, want) in
            [("plc.*", true), ("plc.tank", true), ("plc", false), ("*{unit=3}", true), ("plc.*{unit=4}", false)]
        {
            assert_eq!(Pattern::parse(pattern).unwrap().matches_stream(&stream), want, "{pattern}");
        }
    }

    #[test]
    fn one_stands_for_a_character_not_a_byte() {
        assert!(hits("t.gr??e", "t", "größe", &[]));
        assert!(!hits("t.gr???e", "t", "größe", &[]));
        assert!(hits("t.*ße", "t", "größe", &[]));
    }

    #[test]
    fn odd_names_match_themselves_and_escapes_work() {
        let tags = [("k", "a,b={x}")];
        let full = key("t*", &tags).channel_name("c{1}");
        assert!(hits(&full, "t*", "c{1}", &tags));
        assert!(hits("t\\*.c*", "t*", "c", &[]));
        assert!(!hits("t\\*.c*", "tt", "c", &[]));
        assert!(hits("t.c{k=a\\,b}", "t", "c", &[("k", "a,b")]));
        // A table or channel with a brace is quoted; earlier versions did not do so.
        assert_eq!(full, "t*.\"c{1}\"{k=\"a,b={x}\"}");
        assert!(hits("t.c{k=v}", "t", "c{k=v}", &[]) && hits("t.c{k=v}", "t", "c", &[("k", "v")]));
        assert!(hits("t.\"c{k=v}\"", "t", "c{k=v}", &[]) && !hits("t.\"c{k=v}\"", "t", "c", &[("k", "v")]));
        assert!(hits("\"t*\".c", "t*", "c", &[]) && !hits("\"t*\".c", "tt", "c", &[]));
        assert!(hits("t\\.x.c", "t.x", "c", &[]) && hits("t.x\\", "t", "x\\", &[]));
    }

    #[test]
    fn a_word_in_quotes_is_that_word() {
        let mitte = [("site", "Berlin,Mitte"), ("k", "1")];
        for (pattern, want) in [
            ("*{site=\"Berlin,Mitte\"}", true),
            ("*{k=1, site = \"Berlin,Mitte\" }", true),
            ("*{\"site\"=\"Berlin,Mitte\",k=?}", true),
            ("*{site=Berlin\\,*}", true),
            ("*{site=\"Berlin,*\"}", false),
            ("*{site=\"Berlin\",k=1}", false),
        ] {
            assert_eq!(hits(pattern, "p", "v", &mitte), want, "{pattern}");
        }
        let words = ["a,b", "", " x", "a=b", "{}", "\"", "\\", "*?", "\",\"=\\\""];
        for word in words {
            let stream = key("p", &[("k", word), ("k2,=", "v")]);
            let name = Pattern::parse(&stream.channel_name("v")).unwrap();
            assert!(name.matches(&stream, "v"), "{name:?}");
            // Must match as a pattern for streams too, not only as a full name.
            assert!(Pattern::parse(&stream.to_string()).unwrap().matches_stream(&stream), "{stream}");
            let found = words.into_iter().filter(|other| name.matches(&key("p", &[("k", *other), ("k2,=", "v")]), "v"));
            // Wildcards are not quoted: this one matches all names but the empty one.
            assert_eq!(found.count(), if word == "*?" { words.len() - 1 } else { 1 }, "{word}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_part() {
        assert_eq!(Pattern::parse(""), Err(PatternError::Empty));
        assert!(matches!(Pattern::parse("t.*{acu}"), Err(PatternError::BadTag { part, .. }) if part == "acu"));
        assert!(matches!(Pattern::parse(&"x".repeat(5000)), Err(PatternError::TooLong { size_bytes: 5000 })));
    }

    #[test]
    fn steps_are_counted_and_bounded_by_pattern_and_name() {
        let pattern = Pattern::parse(&format!("*{}b*", "a".repeat(50))).unwrap();
        let (key, channel) = (key("t", &[]), "a".repeat(200));
        let mut steps = 0;
        assert!(!pattern.matches_name(&key, &channel, &mut steps));
        assert!((50 * 150..=52 * 202).contains(&steps), "{steps}");
        let before = steps;
        for (pattern, matches) in [("t.*", true), ("*.b", false), ("*ba", false), ("*a", true), ("t.*?a*a", true)] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches_name(&key, &channel, &mut steps), matches, "{pattern}");
        }
        assert!(steps - before < 1500, "{}", steps - before);
    }

    #[test]
    fn many_runs_stay_polynomial() {
        let pattern = "*a".repeat(60);
        assert!(!hits(&pattern, "t", &format!("{}b", "a".repeat(5000)), &[]));
    }

    #[test]
    fn patterns_that_cost_too_much_are_refused_for_many_channels() {
        let mut layout = Layout::of_types(&[ChannelType::F64; 100]);
        layout.channels.iter_mut().enumerate().for_each(|(n, channel)| channel.name = format!("c{n}"));
        let stream = Stream {
            id: StreamId(0),
            key: key("t", &[]),
            source: String::new(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            layout: Arc::new(layout),
        };
        let patterns: Vec<Pattern> =
            ["x.*", "t.c?", "t.c9*"].iter().map(|text| Pattern::parse(text).unwrap()).collect();
        let mut steps = Steps(5_000);
        let found = matching_of(&stream, &patterns, &mut steps).unwrap();
        assert_eq!(found.len(), 20);
        assert!(steps.0 < 5_000);
        while let Ok(found) = matching_of(&stream, &patterns, &mut steps) {
            assert_eq!(found.len(), 20);
        }
        assert!(steps.0 < 5_000);
    }
}
