//! Derived channels over stored data: the same program on the same frames in the same order.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use strongback_query::Moment;
use strongback_store::{Catalog, ScanError, Stream, StreamId, View};

use crate::reception::TappedFrame;
use crate::reception::replay::{ByTime, StreamRequest};
use crate::reception::value::InputValue;

use super::binding::{self, BindError, Binding, by_stream};
use super::book::DerivedEntry;
use super::definition::Definition;
use super::hold::{FIRST, before, key};
use super::instance::{Counts, Evaluated, moment, note, warm};
use super::record::{self, label};

/// Reason why a derived channel cannot be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotTied {
    /// Missing stream or channel, which may still appear.
    #[error("{0}")]
    Missing(String),
    /// Definition that does not fit the existing channels.
    #[error("{0}")]
    Unfit(BindError),
}

/// Derived channel over one trigger, ready to be evaluated over the past.
#[derive(Debug)]
pub struct Past {
    binding: Binding,
    label: String,
}

impl Past {
    /// Returns the trigger stream.
    pub fn trigger(&self) -> &Arc<Stream> {
        &self.binding.trigger
    }

    /// Returns the resolved expression.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Resolves a derived channel for each stream of a catalog that triggers it; `version_of` as in
    /// [`binding::bind`].
    ///
    /// # Errors
    /// Returns the first reason why inputs cannot be resolved, or that no stream triggers it.
    pub fn all(
        definition: &Definition,
        entry: &DerivedEntry,
        catalog: &Catalog,
        version_of: impl Fn(&str) -> Option<u32> + Copy,
    ) -> Result<Vec<Past>, NotTied> {
        let mut all = Vec::new();
        for stream in catalog.streams.iter().filter(|stream| stream.source != "internal") {
            let is_derived = binding::is_derived(stream);
            if !definition.is_trigger(&stream.key, is_derived) {
                continue;
            }
            if is_derived {
                let version = version_of(&format!("{}.{}", stream.key.table, stream.layout.channels[0].name));
                if version.map(|version| version.to_string()).as_deref() != stream.key.tag(super::definition::VERSION) {
                    continue;
                }
            }
            let binding = binding::bind(definition, stream, catalog, version_of).map_err(|error| match error {
                BindError::Unknown { .. } => NotTied::Missing(error.to_string()),
                error => NotTied::Unfit(error),
            })?;

            let label = label(&definition.table.name, entry.version, &stream.key);
            all.push(Past { binding, label });
        }
        if all.is_empty() {
            return Err(NotTied::Missing(format!("no stream matches its trigger {:?} yet", definition.table.trigger)));
        }
        Ok(all)
    }

    /// Evaluates it over a span of `time` (nanoseconds since 1970 UTC, end exclusive). Starts with the live memory
    /// from before the span, if that was recorded, else with stored data from before it. `with_late` includes frames
    /// that live left out. `view` is called repeatedly, since no view may be held for long. `each` gets results in
    /// parts, with the `time` up to which they go, and returns whether to continue.
    ///
    /// # Errors
    /// Returns an error if a scan ends early.
    pub fn evaluate(
        &mut self,
        view: impl Fn() -> View,
        span: Range<i64>,
        with_late: bool,
        counts: &mut Counts,
        mut each: impl FnMut(&[Evaluated], i64) -> bool,
    ) -> Result<(), ScanError> {
        let first = view();
        let late: HashSet<(StreamId, u64)> =
            if with_late { HashSet::new() } else { record::late(&first, &self.label)? };
        let inputs = by_stream(&self.binding);
        let trigger = self.binding.trigger.id;
        let wanted: Vec<StreamRequest> = inputs
            .iter()
            .map(|(stream, channels)| StreamRequest {
                stream: *stream,
                channels: channels.iter().map(|(channel, _)| *channel).collect(),
                rows: 0..first.next_row(*stream),
                every: *stream == trigger,
            })
            .collect();
        let kinds = self.binding.kinds.clone();
        let program = &mut self.binding.program;
        let standing = record::standing(&first, &self.label, span.start)?;
        // Start of live evaluation, if it is within the span; the live memory applies from there on.
        let mut begun = None;
        let mut released = match standing.filter(|standing| program.resume(&standing.memory)) {
            Some(standing) => standing.released,
            None => {
                begun = record::first_standing(&first, &self.label)?;
                // Begin at the first stored frame, if the span begins before it.
                let begin = inputs.iter().filter_map(|(id, _)| first.time_range(*id)).map(|time| time.0).min();
                let from = span.start.max(begin.unwrap_or(i64::MAX));
                warm(program, (&kinds, &inputs), &first, (from, 0, 0), &late, wanted.clone())?;
                before((from, 0, 0)).max(FIRST)
            }
        };
        let mut replay = ByTime::new(&first, wanted, released.0, span.end.saturating_sub(1));
        drop(first);
        let mut trouble = None;
        while !replay.is_over() {
            let mut frames = replay.slice::<InputValue>(&view())?;
            frames.retain(|frame| {
                let is_late = frame.row.is_some_and(|row| late.contains(&(frame.stream, row)));
                key(frame) > released && !is_late
            });
            if let Some(last) = frames.last() {
                released = key(last);
            }
            let gives = |frame: &TappedFrame<InputValue>| frame.stream == trigger && frame.time >= span.start;
            let moments: Vec<Moment> =
                frames.iter().map(|frame| moment(frame, &inputs, &kinds, gives(frame))).collect();
            let mut outcomes = Vec::new();
            let mut rest = moments.as_slice();
            if let Some(standing) = begun.as_ref().filter(|standing| standing.released < released) {
                let (earlier, later) = rest.split_at(frames.partition_point(|frame| key(frame) <= standing.released));
                note(counts, &mut trouble, program.evaluate(earlier, &mut outcomes), released.0);
                program.resume(&standing.memory);
                (rest, begun) = (later, None);
            }
            note(counts, &mut trouble, program.evaluate(rest, &mut outcomes), released.0);
            let triggers = frames.into_iter().zip(&moments).filter(|(_, moment)| moment.is_trigger);
            let results: Vec<Evaluated> = triggers.map(|(frame, _)| frame).zip(outcomes).collect();
            counts.results += results.len() as u64;
            if !each(&results, replay.at()) {
                break;
            }
        }
        Ok(())
    }
}
