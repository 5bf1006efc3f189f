//! Limits that watch nothing: a pattern that no channel matches is more often a typing mistake than a channel to come.

use std::sync::Arc;

use strongback_query::EventRow;
use strongback_store::{Catalog, Stream};

use super::rule::Rule;
use super::words::event;
use crate::text::nearest::nearest;

/// Time after the start for which channels may be missing, nanoseconds.
const WAIT_NS: i64 = 60_000_000_000;
/// Max events.
const TOLD_MAX: usize = 20;
/// Max channels among which a name is searched.
const NAMES_MAX: usize = 2_000;

/// Search for such limits, made once.
#[derive(Debug)]
pub(super) struct Unmatched {
    /// Time of the start, until the search is made.
    start: Option<i64>,
}

impl Unmatched {
    /// Creates a search for limits that started at `now`.
    pub(super) fn new(now: i64) -> Unmatched {
        Unmatched { start: Some(now) }
    }

    /// Returns what to tell if it is time: an event for each pattern, and each channel of `while`, that is unknown.
    pub(super) fn look(&mut self, rules: &[Rule], catalog: Option<&Catalog>, now: i64) -> Vec<EventRow> {
        let (Some(start), Some(catalog)) = (self.start, catalog) else { return Vec::new() };
        let received = || catalog.streams.iter().filter(|stream| stream.source != "internal");
        // Without any channel nothing is a mistake yet.
        if now.saturating_sub(start) < WAIT_NS || received().next().is_none() {
            return Vec::new();
        }
        self.start = None;
        let names = || received().flat_map(|stream| names_of(stream)).take(NAMES_MAX);
        mistakes(rules, received, names).take(TOLD_MAX).map(|text| event(now, "warning", text)).collect()
    }
}

fn names_of(stream: &Stream) -> impl Iterator<Item = String> {
    stream.layout.channels.iter().map(|channel| stream.key.channel_name(&channel.name))
}

/// Returns a sentence for each mistake.
fn mistakes<'a, S, N>(
    rules: &'a [Rule],
    received: impl Fn() -> S,
    names: impl Fn() -> N,
) -> impl Iterator<Item = String>
where
    S: Iterator<Item = &'a Arc<Stream>>,
    N: Iterator<Item = String>,
{
    let mut found = Vec::new();
    for rule in rules {
        for (pattern, text) in rule.channels.iter().zip(rule.patterns()) {
            let is_known =
                received().any(|stream| stream.layout.channels.iter().any(|of| pattern.matches(&stream.key, &of.name)));
            if !is_known {
                found.push(format!("limit {}: no channel matches {text}{}", rule.name, near(text, names())));
            }
        }
        if let Some(context) = &rule.context
            && !received().any(|stream| names_of(stream).any(|name| name == context.channel))
        {
            let text = &context.channel;
            found.push(format!("limit {}: while: no channel is named {text}{}", rule.name, near(text, names())));
        }
    }
    found.into_iter()
}

fn near(unknown: &str, names: impl Iterator<Item = String>) -> String {
    match nearest(unknown, names).as_slice() {
        [] => " so far".to_owned(),
        some => format!(" so far; near it: {}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use strongback_store::{ChannelSpec, ChannelType, Clock, Store, StoreOptions, StreamKey, StreamSpec};

    use super::super::rule::tests::all;
    use super::*;

    const RULES: &str = r#"
        [[limit]]
        channels = ["engine.p_lxo", "engine.p*"]
        critical = { high = 9 }
        [[limit]]
        name = "in flight"
        channels = ["engine.p_lox"]
        critical = { high = 9 }
        while = { channel = "engine.mod", is = ["flight"] }
    "#;

    #[test]
    fn a_limit_that_watches_nothing_is_told_once_with_what_is_near() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions { log_bytes: 8 << 20, ..StoreOptions::default() }, 0).unwrap();
        let rules = all(RULES);
        let mut unmatched = Unmatched::new(0);
        let look = |unmatched: &mut Unmatched, now| unmatched.look(&rules, Some(&store.catalog()), now);
        assert!(look(&mut unmatched, WAIT_NS).is_empty(), "nothing was received yet");
        let channels = [("p_lox", ChannelType::F64), ("mode", ChannelType::String)];
        let spec = StreamSpec {
            key: StreamKey::new("engine", []),
            source: "test".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: channels.iter().map(|(name, kind)| ChannelSpec::new(*name, *kind)).collect(),
        };
        store.resolve(&spec, 0).unwrap();
        assert!(look(&mut unmatched, WAIT_NS - 1).is_empty(), "too early");
        let told: Vec<String> = look(&mut unmatched, WAIT_NS).into_iter().map(|event| event.text).collect();
        assert_eq!(
            told,
            [
                "limit engine.p_lxo, engine.p*: no channel matches engine.p_lxo so far; near it: engine.p_lox, engine.mode",
                "limit in flight: while: no channel is named engine.mod so far; near it: engine.mode, engine.p_lox",
            ]
        );
        assert!(look(&mut unmatched, 10 * WAIT_NS).is_empty(), "told again");
    }
}
