//! Silences and slowness as events of `strongback.events`: one when it begins and one when it ends, with a bounded
//! rate. Changes of one source at about the same time share an event. A stream that comes and goes is reported at
//! limited intervals, with the number of interruptions.

use std::collections::BTreeMap;
use std::time::Duration;

use strongback_query::{EventOrigin, EventRow};
use strongback_sources::instant;

use crate::sources::expectation::{Began, EndedSilence, RateOrigin, StatusChanges, StreamStatus, in_words};

/// Time for which changes of a source are gathered.
const GATHER_NS: i64 = 1_500_000_000;
/// Max number of events of a source at once, and the time after which one more is allowed.
const EVENTS_AT_ONCE: u32 = 8;
const EVENT_EACH_NS: i64 = 10_000_000_000;
/// Max number of streams that change at once with an event each; more share one event.
const SINGLY: usize = 3;

/// Changes of one stream since the last report.
#[derive(Debug, Default)]
struct StreamChange {
    ended: Option<EndedSilence>,
    began: Option<Began>,
    /// Silences and slow times that began and ended without a report, and their total length.
    brief: u32,
    brief_ns: i64,
}

#[derive(Debug)]
struct SourceSilences {
    changes: BTreeMap<String, StreamChange>,
    /// Time at which the oldest change was seen.
    since: i64,
    events: u32,
    refilled: i64,
}

/// Turns changes of streams into events.
#[derive(Debug, Default)]
pub struct Silences {
    sources: BTreeMap<String, SourceSilences>,
}

impl Silences {
    /// Adds a change of a stream, seen at `now`.
    pub fn add(&mut self, source: &str, stream: &str, turn: &StatusChanges, now: i64) {
        if turn.ended.is_none() && turn.began.is_none() {
            return;
        }
        let new = || SourceSilences { changes: BTreeMap::new(), since: now, events: EVENTS_AT_ONCE, refilled: now };
        let of = self.sources.entry(source.to_owned()).or_insert_with(new);
        if of.changes.is_empty() {
            of.since = now;
        }
        let change = of.changes.entry(stream.to_owned()).or_default();
        if let Some(ended) = turn.ended {
            match change.began.take() {
                Some(_) => {
                    change.brief += 1;
                    change.brief_ns += ended.span.1 - ended.span.0;
                }
                None => change.ended = Some(ended),
            }
        }
        change.began = turn.began.or(change.began);
    }

    /// Shifts all times kept by `by_ns`, the amount by which the clock was set.
    pub fn leap(&mut self, by_ns: i64) {
        for of in self.sources.values_mut() {
            (of.since, of.refilled) = (of.since.saturating_add(by_ns), of.refilled.saturating_add(by_ns));
        }
    }

    /// Returns the events due at `now`.
    pub fn take_due(&mut self, now: i64) -> Vec<EventRow> {
        let mut events = Vec::new();
        for (name, of) in &mut self.sources {
            let more = now.saturating_sub(of.refilled) / EVENT_EACH_NS;
            if more > 0 {
                of.events = EVENTS_AT_ONCE.min(of.events.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
                of.refilled += more * EVENT_EACH_NS;
            }
            if of.changes.is_empty() || now.saturating_sub(of.since) < GATHER_NS {
                continue;
            }
            let mut told = of.tell(name, now, SINGLY);
            if told.len() > of.events as usize {
                told = of.tell(name, now, 1);
            }
            if told.len() > of.events as usize {
                continue;
            }
            of.events -= told.len() as u32;
            of.changes.clear();
            events.append(&mut told);
        }
        events
    }
}

impl SourceSilences {
    /// Returns all changes as events, one for each stream if at most `singly` streams have the same kind of change.
    fn tell(&self, source: &str, now: i64, singly: usize) -> Vec<EventRow> {
        let mut events = Vec::new();
        let mut put = |time_ns, level: &str, text: String| {
            let (level, source) = (level.to_owned(), source.to_owned());
            events.push(EventRow { time_ns, level, source, text, origin: EventOrigin::Server });
        };
        for status in [StreamStatus::Silent, StreamStatus::Slow] {
            let ended: Vec<(&String, EndedSilence)> =
                self.changes.iter().filter_map(|(n, c)| Some((n, c.ended.filter(|e| e.status == status)?))).collect();
            if ended.len() <= singly {
                for (name, ended) in ended {
                    put(ended.span.1, "info", ended_text(name, &ended));
                }
            } else if let Some(last) = ended.iter().map(|(_, e)| e.span.1).max() {
                let names: Vec<&String> = ended.iter().map(|(n, _)| *n).collect();
                let longest = ended.iter().map(|(_, e)| e.span.1 - e.span.0).max().unwrap_or(0);
                let expected: u64 = ended.iter().map(|(_, e)| e.expected_frames).sum();
                let after = match status {
                    StreamStatus::Silent => "are back after a silence of up to",
                    _ => "are at their rate again after up to",
                };
                let text = format!("{} {after} {}{}", many(&names), words(longest), about(expected));
                put(last, "info", text);
            }
            let began: Vec<(&String, Began)> =
                self.changes.iter().filter_map(|(n, c)| Some((n, c.began.filter(|b| b.status == status)?))).collect();
            let level = if status == StreamStatus::Silent { "warning" } else { "watch" };
            if began.len() <= singly {
                for (name, began) in began {
                    put(began.since, level, began_text(name, &began));
                }
            } else if let Some(first) = began.iter().map(|(_, b)| b.since).min() {
                let names: Vec<&String> = began.iter().map(|(n, _)| *n).collect();
                let is = if status == StreamStatus::Silent { "silent" } else { "slow" };
                put(first, level, format!("{} are {is} since {}", many(&names), instant::format(first)));
            }
        }
        let brief: Vec<(&String, &StreamChange)> = self.changes.iter().filter(|(_, c)| c.brief > 0).collect();
        if let [(name, change)] = brief[..] {
            let (times, all) = (change.brief, words(change.brief_ns));
            put(now, "watch", format!("{name} comes and goes: {times} more silences or slow times, {all} in all"));
        } else if !brief.is_empty() {
            let names: Vec<&String> = brief.iter().map(|(n, _)| *n).collect();
            let times: u32 = brief.iter().map(|(_, c)| c.brief).sum();
            put(now, "watch", format!("{} come and go: {times} more silences or slow times", many(&names)));
        }
        events
    }
}

fn began_text(name: &str, began: &Began) -> String {
    let from = match began.expected {
        RateOrigin::Learnt => "usual",
        _ => "expected",
    };
    match began.status {
        StreamStatus::Silent => format!(
            "{name} is silent: no frame since {}; {} are {from}",
            instant::format(began.since),
            rate(began.expected_rate_hz)
        ),
        _ => format!("{name} is slow: {}, {} are {from}", rate(began.rate_hz), rate(began.expected_rate_hz)),
    }
}

fn ended_text(name: &str, ended: &EndedSilence) -> String {
    let span = words(ended.span.1 - ended.span.0);
    match (ended.status, ended.missing) {
        (StreamStatus::Silent, Some((missing, ..))) => {
            format!("{name} is back after {span} without a frame; {missing} are missing")
        }
        (StreamStatus::Silent, None) => {
            format!("{name} is back after {span} without a frame{}", about(ended.expected_frames))
        }
        _ => format!("{name} is at its rate again after {span}{}", about(ended.expected_frames)),
    }
}

/// Formats the number of frames that were expected, as the end of a sentence. Returns an empty text if it is 0.
fn about(frames: u64) -> String {
    match frames {
        0 => String::new(),
        1 => "; about 1 frame was expected".to_owned(),
        frames => format!("; about {frames} frames were expected"),
    }
}

fn rate(hz: f64) -> String {
    match hz {
        hz if hz >= 10.0 => format!("{hz:.0} frames/s"),
        hz if hz >= 0.1 => format!("{hz:.1} frames/s"),
        hz => format!("{:.1} frames/h", hz * 3_600.0),
    }
}

fn words(ns: i64) -> String {
    in_words(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}

fn many(names: &[&String]) -> String {
    let first = names.iter().take(3).map(|n| n.as_str()).collect::<Vec<_>>().join(", ");
    match names.len() {
        0..=3 => first,
        n => format!("{n} streams ({first} and {} more)", n - 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn began(status: StreamStatus, since: i64) -> StatusChanges {
        let began = Began { status, since, expected_rate_hz: 100.0, rate_hz: 0.0, expected: RateOrigin::Given };
        StatusChanges { ended: None, began: Some(began) }
    }

    fn ended(status: StreamStatus, span: (i64, i64)) -> StatusChanges {
        let expected_frames = ((span.1 - span.0) / (S / 100)) as u64;
        StatusChanges { ended: Some(EndedSilence { status, span, expected_frames, missing: None }), began: None }
    }

    /// Returns all events until `to`, polled once a second.
    fn events(silences: &mut Silences, from: i64, to: i64) -> Vec<EventRow> {
        (from / S..=to / S).flat_map(|s| silences.take_due(s * S)).collect()
    }

    #[test]
    fn one_stream_is_told_when_it_stops_and_when_it_comes_back() {
        let mut silences = Silences::default();
        silences.add("fti", "fti.bay{acu=1}", &began(StreamStatus::Silent, 7 * S), 10 * S);
        assert_eq!(silences.take_due(10 * S), [], "others may follow");
        let told = events(&mut silences, 11 * S, 60 * S);
        let [event] = &told[..] else { panic!("{told:?}") };
        assert_eq!((event.time_ns, event.level.as_str(), event.source.as_str()), (7 * S, "warning", "fti"));
        assert!(
            event.text.starts_with("fti.bay{acu=1} is silent: no frame since 1970-01-01T00:00:07"),
            "{}",
            event.text
        );
        assert!(event.text.ends_with("100 frames/s are expected"), "{}", event.text);
        silences.add("fti", "fti.bay{acu=1}", &ended(StreamStatus::Silent, (7 * S, 61 * S)), 62 * S);
        let told = events(&mut silences, 62 * S, 200 * S);
        let [event] = &told[..] else { panic!("{told:?}") };
        assert_eq!((event.time_ns, event.level.as_str()), (61 * S, "info"));
        let text = "fti.bay{acu=1} is back after 54.0 s without a frame; about 5400 frames were expected";
        assert_eq!(event.text, text);
    }

    #[test]
    fn no_frames_that_were_expected_are_no_part_of_the_sentence() {
        let said = |status, expected_frames| {
            ended_text("a", &EndedSilence { status, span: (0, 3 * S), expected_frames, missing: None })
        };
        assert_eq!(said(StreamStatus::Silent, 0), "a is back after 3.0 s without a frame");
        assert_eq!(said(StreamStatus::Slow, 0), "a is at its rate again after 3.0 s");
        assert_eq!(said(StreamStatus::Slow, 1), "a is at its rate again after 3.0 s; about 1 frame was expected");
        let mut silences = Silences::default();
        for stream in 0..100 {
            let changes = ended(StreamStatus::Silent, (7 * S, 7 * S));
            silences.add("fti", &format!("s{stream}"), &changes, 10 * S);
        }
        let told = events(&mut silences, 10 * S, 60 * S);
        assert!(told.iter().all(|event| !event.text.contains("expected")), "{told:?}");
    }

    #[test]
    fn ten_thousand_streams_at_once_are_one_event() {
        let mut silences = Silences::default();
        for stream in 0..10_000 {
            // Some are seen one poll later.
            let at = (10 + stream % 2) * S;
            silences.add("fti", &format!("s{stream}"), &began(StreamStatus::Silent, 7 * S), at);
        }
        let told = events(&mut silences, 10 * S, 60 * S);
        let [event] = &told[..] else { panic!("{} events", told.len()) };
        let text = "10000 streams (s0, s1, s10 and 9997 more) are silent since 1970-01-01T00:00:07";
        assert!(event.text.starts_with(text), "{}", event.text);
        for stream in 0..10_000 {
            silences.add("fti", &format!("s{stream}"), &ended(StreamStatus::Silent, (7 * S, 70 * S)), 70 * S);
        }
        let told = events(&mut silences, 70 * S, 100 * S);
        let [event] = &told[..] else { panic!("{} events", told.len()) };
        assert!(
            event.text.contains("are back after a silence of up to 63.0 s; about 63000000 frames"),
            "{}",
            event.text
        );
    }

    #[test]
    fn what_events_are_left_for_is_told_together_and_the_rest_waits() {
        let mut silences = Silences::default();
        let names = |first: u8| [first, first + 1, first + 2].map(|n| format!("s{n}"));
        // Six of the eight are used: three of each kind are reported singly.
        for (status, first) in [(StreamStatus::Silent, 0), (StreamStatus::Slow, 3)] {
            names(first).iter().for_each(|name| silences.add("fti", name, &began(status, 9 * S), 10 * S));
        }
        assert_eq!(events(&mut silences, 10 * S, 12 * S).len(), 6);
        // Two are left, and three streams have something to report.
        names(6).iter().for_each(|name| silences.add("fti", name, &began(StreamStatus::Silent, 12 * S), 13 * S));
        let told = silences.take_due(15 * S);
        let [event] = &told[..] else { panic!("{told:?}") };
        assert!(event.text.starts_with("s6, s7, s8 are silent since 1970-01-01T00:00:12"), "{}", event.text);
        // One is left for two kinds: both wait until another is allowed, ten seconds after the first.
        for (status, first) in [(StreamStatus::Silent, 0), (StreamStatus::Slow, 3)] {
            names(first).iter().for_each(|name| silences.add("fti", name, &ended(status, (9 * S, 16 * S)), 16 * S));
        }
        assert_eq!(events(&mut silences, 16 * S, 19 * S), []);
        let told = silences.take_due(20 * S);
        let [back, again] = &told[..] else { panic!("{told:?}") };
        assert!(back.text.starts_with("s0, s1, s2 are back after a silence of up to 7.0 s"), "{}", back.text);
        assert!(again.text.starts_with("s3, s4, s5 are at their rate again after up to 7.0 s"), "{}", again.text);
    }

    #[test]
    fn a_stream_that_flaps_is_told_of_only_so_often_and_nothing_is_left_out() {
        let mut silences = Silences::default();
        let mut told = Vec::new();
        let mut silent = 0;
        for n in 0..600_i64 {
            let at = n * 6 * S;
            silences.add("fti", "a", &began(StreamStatus::Silent, at), at + 3 * S);
            told.extend(events(&mut silences, at + 3 * S, at + 5 * S));
            silences.add("fti", "a", &ended(StreamStatus::Silent, (at, at + 5 * S)), at + 6 * S);
            told.extend(silences.take_due(at + 6 * S));
            silent += 1;
        }
        told.extend(events(&mut silences, 3_600 * S, 3_700 * S));
        // At most one each ten seconds, besides the first.
        assert!(told.len() <= 8 + 370, "{} events", told.len());
        let brief: u32 = told
            .iter()
            .filter_map(|e| e.text.split_once("comes and goes: ")?.1.split(' ').next()?.parse::<u32>().ok())
            .sum();
        let singly = told.iter().filter(|e| e.text.contains("is back after")).count() as u32;
        assert_eq!(brief + singly, silent);
        // Other sources are not affected.
        silences.add("plc", "b", &began(StreamStatus::Slow, 3_701 * S), 3_701 * S);
        assert_eq!(events(&mut silences, 3_701 * S, 3_710 * S).len(), 1);
    }
}
