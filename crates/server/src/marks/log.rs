//! Marks as rows of `strongback.marks`, and what results from them.
//!
//! The rows are in the store, in the group that never expires; this is a copy for reading. No row is ever removed: a
//! later mark counts where it overlaps an earlier one, and `good` takes one back. A mark takes effect when the store
//! accepts its row, and is acknowledged when the row is durable. If durability is unknown because the disk failed, the
//! mark still takes effect: the row may be written later, and would otherwise take effect at the next start. Once the
//! store is reopened, what it holds counts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use strongback_query::{MarkRow, MarkedSpan, Quality};
use strongback_store::{
    Catalog, ChannelIndex, ChannelSpec, ChannelType, Chosen, Clock, Excluded, FrameBatch, FrameHead, Outcome, Pattern,
    Refusal, Reject, ScanError, Store, Stream, StreamId, StreamKey, StreamSpec, TooCostly, Value, matching,
    matching_data,
};

use crate::ingest::records::each_record;
use crate::marks::spans;
use crate::text::nearest::nearest;

const MARKS: &str = "strongback.marks";
/// Columns, in this order.
const CHANNELS: [(&str, ChannelType); 8] = [
    ("id", ChannelType::U64),
    ("stream", ChannelType::String),
    ("channel", ChannelType::String),
    ("from_ns", ChannelType::I64),
    ("to_ns", ChannelType::I64),
    ("quality", ChannelType::String),
    ("by", ChannelType::String),
    ("reason", ChannelType::String),
];
/// Max marks of a store, one for each channel and span.
pub const MARKS_MAX: usize = 100_000;
/// Max bytes of the marks of a store in memory.
const BYTES_MAX: usize = 64 << 20;
/// Approximate bytes of a mark without its texts.
const MARK_BYTES: usize = 256;
/// Max channels that are marked at once.
pub const CHANNELS_MAX: usize = 1_000;
/// Max length of the name of who marks, in bytes.
const BY_BYTES_MAX: usize = 256;
/// Max length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 4_096;
/// Max channels whose names are compared with an unknown one.
const NAMES_MAX: usize = 10_000;

/// Statement on values.
#[derive(Clone, Debug)]
pub struct Statement {
    /// `time` of the values, from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Quality of the values.
    pub quality: Quality,
    /// Who states it.
    pub by: String,
    /// The reason.
    pub reason: String,
}

/// Reason why values are not marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Invalid statement or channels.
    #[error("{0}")]
    Bad(String),
    /// Rows refused by the store.
    #[error("not written: {0}")]
    Refused(#[from] Reject),
    /// Some rows accepted by the store, and the next one refused.
    #[error("only {stored} of {all} channels are marked: {why}; mark again")]
    Partly {
        /// Number of channels that are marked.
        stored: usize,
        /// Number of channels that were to be marked.
        all: usize,
        /// Reason why the next row was refused.
        why: Reject,
    },
    /// Rows accepted by the store, which take effect, but are not confirmed to be durable.
    #[error("accepted, but may not be durable: {0}")]
    NotDurable(Refusal),
}

/// Outcomes of appended rows, and whether these are durable or the reason why they may not be.
pub type Written = (Vec<Outcome>, Result<(), Refusal>);

/// Name of a stream, and full name of a channel in it.
type ChannelKey = (String, String);

/// Marks at an instant.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// All marks, in the order in which they were made.
    all: Vec<Arc<MarkRow>>,
    bytes: usize,
    /// For each channel the spans in which a mark counts.
    spans: HashMap<ChannelKey, Arc<Vec<MarkedSpan>>>,
}

impl Marks {
    fn add(&mut self, mark: &Arc<MarkRow>) {
        self.bytes += bytes_of(mark);
        let spans = self.spans.entry((mark.stream.clone(), mark.channel.clone())).or_default();
        *spans = Arc::new(spans::lay_over(spans, mark));
        self.all.push(mark.clone());
    }

    /// Returns all marks, in the order in which they were made.
    pub fn all(&self) -> &[Arc<MarkRow>] {
        &self.all
    }

    /// Returns the marks of the channels that match any of the patterns, or of all channels, in a time range: the spans
    /// in which a mark counts, by channel and time; or all marks that were ever made, the newest first.
    ///
    /// # Errors
    /// If comparing names with the patterns takes too long.
    pub fn list(
        &self,
        catalog: &Catalog,
        patterns: Option<&[Pattern]>,
        time: &Range<i64>,
        all: bool,
    ) -> Result<Vec<MarkedSpan>, TooCostly> {
        let names: Option<HashSet<ChannelKey>> = match patterns {
            None => None,
            Some(patterns) => {
                let chosen = matching(catalog, patterns)?;
                let names = chosen.iter().flat_map(|(stream, of)| of.iter().map(|index| key_of(stream, *index)));
                Some(names.collect())
            }
        };
        let is_chosen = |mark: &MarkRow| {
            names.as_ref().is_none_or(|names| names.contains(&(mark.stream.clone(), mark.channel.clone())))
        };
        let touches = |span: &MarkedSpan| span.from_ns < time.end && span.to_ns > time.start;
        let whole = |mark: &Arc<MarkRow>| MarkedSpan { from_ns: mark.from_ns, to_ns: mark.to_ns, mark: mark.clone() };
        let mut found: Vec<MarkedSpan> = match all {
            true => self.all.iter().rev().map(whole).collect(),
            false => self.spans.values().flat_map(|spans| spans.iter()).cloned().collect(),
        };
        found.retain(|span| touches(span) && is_chosen(&span.mark));
        if !all {
            let key = |span: &MarkedSpan| (span.mark.channel.clone(), span.mark.stream.clone(), span.from_ns);
            found.sort_by_cached_key(key);
        }
        Ok(found)
    }

    /// Returns the spans of a channel in a time range in which a mark counts.
    pub fn of_channel(&self, stream: &Stream, channel: ChannelIndex, time: &Range<i64>) -> Vec<MarkedSpan> {
        if self.spans.is_empty() {
            return Vec::new();
        }
        let spans = self.spans.get(&key_of(stream, channel));
        spans.map_or_else(Vec::new, |spans| spans::within(spans, time))
    }

    /// Returns the values that are marked bad.
    pub fn excluded(&self, catalog: &Catalog) -> Excluded {
        let mut channels: HashMap<StreamKey, Vec<(&str, &[MarkedSpan])>> = HashMap::new();
        for ((stream, channel), spans) in &self.spans {
            if spans.iter().any(|span| span.mark.quality == Quality::Bad) {
                channels.entry(StreamKey::parse(stream)).or_default().push((channel, spans));
            }
        }
        let mut found = Vec::new();
        for stream in catalog.streams.iter().filter(|_| !channels.is_empty()) {
            for (name, spans) in channels.get(&stream.key).into_iter().flatten() {
                let channel = stream.key.channel_of(name);
                let Some(index) = channel.and_then(|channel| stream.layout.index(&channel)) else { continue };
                let bad = spans.iter().filter(|span| span.mark.quality == Quality::Bad);
                found.extend(bad.map(|span| (stream.id, index, span.from_ns..span.to_ns)));
            }
        }
        Excluded::new(found)
    }
}

fn bytes_of(mark: &MarkRow) -> usize {
    MARK_BYTES + 2 * (mark.stream.len() + mark.channel.len()) + mark.by.len() + mark.reason.len()
}

/// Returns the names by which marks know a channel.
fn key_of(stream: &Stream, channel: ChannelIndex) -> ChannelKey {
    (stream.key.to_string(), stream.key.channel_name(&stream.layout.channel(channel).name))
}

/// Marks of a store.
#[derive(Debug, Default)]
pub struct MarkLog {
    marks: ArcSwap<Marks>,
    /// Lock that allows one change at a time.
    marking: Mutex<()>,
}

impl MarkLog {
    /// Loads the marks from a store, and has it leave bad values out: at a start, and when the store was reopened, as
    /// marks that it accepted before may be lost.
    ///
    /// # Errors
    /// Returns an error if the scan ends early; what was read until then is kept.
    pub fn load(&self, store: &Store) -> Result<(), ScanError> {
        let _one = self.marking.lock();
        let mut marks = Marks::default();
        let done = read(store, &mut marks);
        store.exclude(marks.excluded(&store.catalog()));
        self.marks.store(Arc::new(marks));
        done
    }

    /// Returns the marks as they are now.
    pub fn now(&self) -> Arc<Marks> {
        self.marks.load_full()
    }

    /// Marks values of channels at an instant. `write` appends a batch of rows and returns whether they are durable.
    /// `apply` is called with the marks as they are then. Returns the new marks.
    ///
    /// # Errors
    /// Returns an error if the statement is invalid, or not all rows are known to be durable.
    pub fn mark(
        &self,
        chosen: &[Chosen],
        statement: &Statement,
        at: i64,
        write: impl FnOnce(&MarkRows) -> Result<Written, MarkError>,
        apply: impl FnOnce(&Marks),
    ) -> Result<Vec<Arc<MarkRow>>, MarkError> {
        check(statement)?;
        let _one = self.marking.lock();
        let mut marks = (*self.marks.load_full()).clone();
        let first = marks.all.last().map_or(1, |last| last.id + 1);
        let channels = chosen.iter().flat_map(|(stream, channels)| channels.iter().map(|index| key_of(stream, *index)));
        let rows = channels.zip(first..).map(|((stream, channel), id)| {
            let Statement { time, quality, by, reason } = statement.clone();
            Arc::new(MarkRow {
                id,
                time_ns: at,
                stream,
                channel,
                from_ns: time.start,
                to_ns: time.end,
                quality,
                by,
                reason,
            })
        });
        let rows = MarkRows(rows.collect());
        if marks.all.len() + rows.0.len() > MARKS_MAX {
            let (have, more) = (marks.all.len(), rows.0.len());
            return Err(MarkError::Bad(format!(
                "there are {have} marks, and {more} more would be above {MARKS_MAX}, the most there can be"
            )));
        }
        if marks.bytes + rows.0.iter().map(|row| bytes_of(row)).sum::<usize>() > BYTES_MAX {
            return Err(MarkError::Bad(format!("the marks would take more than {BYTES_MAX} bytes of memory")));
        }
        let (outcomes, durable) = write(&rows)?;
        let (mut stored, mut refused) = (0, None);
        for outcome in outcomes {
            match outcome {
                Outcome::Rejected(why) => {
                    refused = Some(why);
                    break;
                }
                _ => stored += 1,
            }
        }
        let all = rows.0.len();
        rows.0[..stored].iter().for_each(|mark| marks.add(mark));
        apply(&marks);
        self.marks.store(Arc::new(marks));
        match refused {
            Some(why) if stored == 0 => Err(why.into()),
            Some(why) => Err(MarkError::Partly { stored, all, why }),
            None => durable.map(|()| rows.0).map_err(MarkError::NotDurable),
        }
    }
}

/// Rows of `strongback.marks`, ready to be appended.
#[derive(Debug)]
pub struct MarkRows(Vec<Arc<MarkRow>>);

impl MarkRows {
    /// Returns the definition of their stream.
    pub fn spec() -> StreamSpec {
        StreamSpec {
            key: StreamKey::new(MARKS, []),
            source: "internal".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: CHANNELS.map(|(name, kind)| ChannelSpec::new(name, kind)).into(),
        }
    }

    /// Returns the rows as a batch.
    pub fn batch(&self, stream: StreamId, channels: &[ChannelIndex]) -> FrameBatch {
        let mut batch = FrameBatch::new();
        for mark in &self.0 {
            batch.begin(FrameHead { stream, receive_time: mark.time_ns, source_time: None, sequence: None });
            let values = [
                Value::U64(mark.id),
                Value::String(&mark.stream),
                Value::String(&mark.channel),
                Value::I64(mark.from_ns),
                Value::I64(mark.to_ns),
                Value::String(mark.quality.name()),
                Value::String(&mark.by),
                Value::String(&mark.reason),
            ];
            channels.iter().zip(values).for_each(|(channel, value)| batch.push(*channel, value));
            batch.end();
        }
        batch
    }
}

/// Returns the channels that patterns match.
///
/// # Errors
/// If a pattern is invalid or matches no channel, if channels of the server's own tables match, or too many.
pub fn choose(catalog: &Catalog, patterns: &[String]) -> Result<Vec<Chosen>, MarkError> {
    let bad = |text: String| Err(MarkError::Bad(text));
    if patterns.is_empty() {
        return bad("channels is empty: name the channels whose values are marked".to_owned());
    }
    let parse = |text: &String| Pattern::parse(text).map_err(|error| MarkError::Bad(error.to_string()));
    let parsed = patterns.iter().map(parse).collect::<Result<Vec<Pattern>, MarkError>>()?;
    let matching =
        |patterns: &[Pattern]| matching_data(catalog, patterns).map_err(|error| MarkError::Bad(error.to_string()));
    for pattern in &parsed {
        if matching(std::slice::from_ref(pattern))?.is_empty() {
            return bad(unknown(catalog, pattern.as_str()));
        }
    }
    let chosen = matching(&parsed)?;
    if let Some((stream, _)) = chosen.iter().find(|(stream, _)| stream.key.is_internal()) {
        return bad(format!("{} is a table of the server itself, whose values cannot be marked", stream.key));
    }
    let count: usize = chosen.iter().map(|(_, channels)| channels.len()).sum();
    if count > CHANNELS_MAX {
        return bad(format!("{count} channels match, at most {CHANNELS_MAX} are marked at once: narrow the patterns"));
    }
    Ok(chosen)
}

/// Returns the message for a pattern that matches no channel.
fn unknown(catalog: &Catalog, pattern: &str) -> String {
    let streams = catalog.streams.iter().filter(|stream| !stream.key.is_internal());
    let names = streams.flat_map(|stream| {
        let names = stream.layout.channels.iter().map(|channel| stream.key.channel_name(&channel.name));
        names.collect::<Vec<_>>()
    });
    let near = nearest(pattern, names.take(NAMES_MAX));
    match near.is_empty() {
        true => format!("no channel matches {pattern}"),
        false => format!("no channel matches {pattern}; the nearest: {}", near.join(", ")),
    }
}

fn check(statement: &Statement) -> Result<(), MarkError> {
    let Statement { time, by, reason, .. } = statement;
    let bad = |text: String| Err(MarkError::Bad(text));
    if time.start > time.end {
        return bad("from is after to".to_owned());
    }
    if time.is_empty() {
        return bad("from is to, which is exclusive: no instant lies between them".to_owned());
    }
    if by.trim().is_empty() || by.len() > BY_BYTES_MAX || by.chars().any(char::is_control) {
        return bad(format!("by, who marks, has 1 to {BY_BYTES_MAX} bytes without control characters"));
    }
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return bad(format!("reason has 1 to {REASON_BYTES_MAX} bytes without control characters"));
    }
    Ok(())
}

fn read(store: &Store, marks: &mut Marks) -> Result<(), ScanError> {
    each_record(store, MARKS, &CHANNELS, |row| {
        // A row of a newer version may have another quality.
        let (Some(id), Some(from_ns), Some(to_ns), Some(quality)) =
            (row.unsigned(0), row.integer(3), row.integer(4), Quality::from_name(row.text(5)))
        else {
            return;
        };
        if from_ns >= to_ns || marks.all.len() >= MARKS_MAX {
            return;
        }
        marks.add(&Arc::new(MarkRow {
            id,
            time_ns: row.time(),
            stream: row.text(1).to_owned(),
            channel: row.text(2).to_owned(),
            from_ns,
            to_ns,
            quality,
            by: row.text(6).to_owned(),
            reason: row.text(7).to_owned(),
        }));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{Scan, StoreOptions};

    const S: i64 = 1_000_000_000;

    /// Creates a stream with a value in each second from 1 to 9.
    fn store(folder: &std::path::Path) -> (Store, StreamId) {
        let store = Store::open(folder, StoreOptions::default(), S).unwrap();
        let spec = StreamSpec {
            key: StreamKey::new("tank", [("n".to_owned(), "1".to_owned())]),
            source: "test".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("p", ChannelType::F64), ChannelSpec::new("t", ChannelType::F64)],
        };
        let id = store.resolve(&spec, S).unwrap().0.id;
        let mut batch = FrameBatch::new();
        for n in 1..10 {
            batch.begin(FrameHead { stream: id, receive_time: n * S, source_time: None, sequence: None });
            (0..2).for_each(|channel| batch.push(ChannelIndex(channel), Value::F64(n as f64)));
            batch.end();
        }
        store.append(&batch, S);
        store.commit(S).unwrap();
        (store, id)
    }

    /// Returns the seconds at which a view has values of the first channel.
    fn seconds(store: &Store, id: StreamId) -> Vec<i64> {
        let mut found = Vec::new();
        for batch in store.view().scan(Scan::all(id, vec![ChannelIndex(0)])) {
            let batch = batch.unwrap();
            let has_value = |row: &usize| batch.columns[0].cell(*row).is_ok();
            found.extend((0..batch.len()).filter(has_value).map(|row| batch.time(row) / S));
        }
        found
    }

    fn statement(quality: Quality, from: i64, to: i64) -> Statement {
        Statement { time: from * S..to * S, quality, by: "ada".to_owned(), reason: "wrong cable".to_owned() }
    }

    fn write(store: &Store) -> impl Fn(&MarkRows) -> Result<Written, MarkError> {
        |rows| {
            let (stream, channels) = store.resolve_own(&MarkRows::spec(), S)?;
            let outcomes = store.append(&rows.batch(stream.id, &channels), S).outcomes;
            Ok((outcomes, store.commit(S).map(drop)))
        }
    }

    #[test]
    fn marks_come_back_from_the_store_and_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (store, id) = store(folder.path());
        let log = MarkLog::default();
        log.load(&store).unwrap();
        let mark = |quality, from, to| {
            let chosen = choose(&store.catalog(), &["tank.p".to_owned()]).unwrap();
            let apply = |marks: &Marks| store.exclude(marks.excluded(&store.catalog()));
            log.mark(&chosen, &statement(quality, from, to), S, write(&store), apply).unwrap()
        };
        let marked = mark(Quality::Bad, 2, 6);
        assert_eq!(
            (marked[0].id, marked[0].channel.as_str(), marked[0].stream.as_str()),
            (1, "tank.p{n=1}", "tank{n=1}")
        );
        assert_eq!(seconds(&store, id), [1, 6, 7, 8, 9]);
        mark(Quality::Good, 3, 4);
        mark(Quality::Uncertain, 5, 8);
        assert_eq!(seconds(&store, id), [1, 3, 5, 6, 7, 8, 9]);
        let before = log.now();
        store.close(S).unwrap();
        drop(store);
        let store = Store::open(folder.path(), StoreOptions::default(), S).unwrap();
        assert_eq!(seconds(&store, id).len(), 9, "the store itself knows of no marks");
        let again = MarkLog::default();
        again.load(&store).unwrap();
        assert_eq!(again.now().all(), before.all());
        assert_eq!(again.now().spans, before.spans);
        assert_eq!(seconds(&store, id), [1, 3, 5, 6, 7, 8, 9]);
        let stream = store.catalog().stream(id).unwrap().clone();
        let found = again.now().of_channel(&stream, ChannelIndex(0), &(3 * S..6 * S));
        let found: Vec<_> = found.iter().map(|span| (span.from_ns / S, span.to_ns / S, span.mark.quality)).collect();
        assert_eq!(found, [(3, 4, Quality::Good), (4, 5, Quality::Bad), (5, 6, Quality::Uncertain)]);
    }

    #[test]
    fn what_the_store_does_not_take_marks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (store, id) = store(folder.path());
        let log = MarkLog::default();
        let chosen = choose(&store.catalog(), &["tank.*".to_owned()]).unwrap();
        let bad = statement(Quality::Bad, 2, 4);
        let apply = |marks: &Marks| store.exclude(marks.excluded(&store.catalog()));
        let full = || Outcome::Rejected(Reject::Refused(Refusal::DiskFull));
        let refused = log.mark(&chosen, &bad, S, |_| Ok((vec![full(), full()], Ok(()))), apply);
        assert!(matches!(refused, Err(MarkError::Refused(_))), "{refused:?}");
        assert_eq!((log.now().all().len(), seconds(&store, id).len()), (0, 9));
        // The store accepts one row of two, and then both, but the commit fails.
        let one = Outcome::Stored { row: 0 };
        let partly = log.mark(&chosen, &bad, S, |_| Ok((vec![one, full()], Ok(()))), apply);
        assert!(partly.unwrap_err().to_string().starts_with("only 1 of 2 channels are marked"));
        assert_eq!((log.now().all().len(), seconds(&store, id).len()), (1, 7));
        let fails = |rows: &MarkRows| Ok((write(&store)(rows)?.0, Err(Refusal::DiskFull)));
        let unsure = log.mark(&chosen, &bad, S, fails, apply);
        assert!(matches!(unsure, Err(MarkError::NotDurable(_))), "{unsure:?}");
        assert_eq!(log.now().all().len(), 3);
        // Once the store is reopened, what it holds counts.
        log.load(&store).unwrap();
        assert_eq!(log.now().all().iter().map(|mark| mark.id).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn statements_and_channels_that_cannot_be_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = store(folder.path());
        let log = MarkLog::default();
        let chosen = choose(&store.catalog(), &["tank.p".to_owned()]).unwrap();
        let (long, later) = ("x".repeat(5_000), 5);
        for (change, why) in [
            (Statement { time: later..4, ..statement(Quality::Bad, 0, 0) }, "from is after to"),
            (Statement { time: 5..5, ..statement(Quality::Bad, 0, 0) }, "from is to"),
            (Statement { by: " ".to_owned(), ..statement(Quality::Bad, 1, 2) }, "by, who marks"),
            (Statement { by: "a\tb".to_owned(), ..statement(Quality::Bad, 1, 2) }, "by, who marks"),
            (Statement { reason: String::new(), ..statement(Quality::Bad, 1, 2) }, "reason has"),
            (Statement { reason: long, ..statement(Quality::Bad, 1, 2) }, "reason has"),
        ] {
            let refused = log.mark(&chosen, &change, S, |_| unreachable!(), |_| unreachable!());
            assert!(refused.as_ref().is_err_and(|error| error.to_string().starts_with(why)), "{refused:?}");
        }
        let refused = |pattern: &str| choose(&store.catalog(), &[pattern.to_owned()]).unwrap_err().to_string();
        assert_eq!(refused("tank.q"), "no channel matches tank.q; the nearest: tank.p{n=1}, tank.t{n=1}");
        write(&store)(&MarkRows(Vec::new())).unwrap().1.unwrap();
        assert!(refused("strongback.marks.*").contains("a table of the server itself"));
        assert!(choose(&store.catalog(), &[]).is_err());
    }
}
