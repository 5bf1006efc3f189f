//! Named runs: streams imported or recorded under a name are protected from expiry until it is released.
//!
//! A run is a retention group of its own, created by [`Store::protect_run`]. Streams that are created later with its
//! name as the tag `run` belong to it.

use std::collections::BTreeMap;

use crate::append::Writer;
use crate::catalog::check_name;
use crate::catalog::group::Group;
use crate::log::record::Control;
use crate::model::clock::Caller;
use crate::store::Store;
use crate::{CommitNumber, Refusal, Reject};

/// A named run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Name, which is the tag `run` of its streams.
    pub name: String,
    /// Whether it is kept until it is released.
    pub protected: bool,
    /// Number of its streams.
    pub streams: u64,
    /// Number of its segments.
    pub segments: u64,
    /// Bytes in its segments.
    pub size_bytes: u64,
    /// Min and max `time` of its streams, nanoseconds since 1970 UTC.
    pub time: Option<(i64, i64)>,
}

impl Store {
    /// Creates a named run, or protects it again: streams created from now on with the tag `run` of this name are not
    /// expired until the run is released. Durable with the commit that it returns.
    ///
    /// # Errors
    /// The name is invalid, streams of this run were created before it was protected, there is no room for another run,
    /// or the store refuses writes.
    pub fn protect_run(&self, name: &str, now: i64) -> Result<CommitNumber, Reject> {
        self.engine.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.engine.poison() {
            return Err(Reject::Refused(refusal));
        }
        check_name(name)?;
        let mut writer = self.engine.writer.lock();
        if let Some((group, protected)) = writer.groups.run(name) {
            return if protected { Ok(writer.newest_commit()) } else { writer.set_released(group, false) };
        }
        let bad = |why| Reject::BadName { name: name.chars().take(64).collect(), why };
        if writer.streams.iter().any(|(_, stream)| stream.slot.stream.load().key.tag("run") == Some(name)) {
            return Err(bad("a run that has streams already, which would not be protected: choose another name"));
        }
        let group = writer.groups.add_run(name).ok_or_else(|| bad("the store holds its most runs"))?;
        let record_bytes = writer.groups.encode(group).len();
        if !writer.catalog_room.take_group(record_bytes) {
            writer.groups.forget_last(group);
            return Err(bad("the store has no room for another run"));
        }
        let made = writer.set_released(group, false);
        if made.is_err() {
            writer.groups.forget_last(group);
            writer.catalog_room.give_back_group(record_bytes);
        }
        made
    }

    /// Releases a named run: its segments may then be dropped like those of other streams. Returns `None` if there is
    /// no such run. Durable with the commit that it returns, and without effect before.
    ///
    /// # Errors
    /// The store refuses writes.
    pub fn release_run(&self, name: &str, now: i64) -> Result<Option<CommitNumber>, Refusal> {
        self.engine.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.engine.poison() {
            return Err(refusal);
        }
        let mut writer = self.engine.writer.lock();
        let Some((group, protected)) = writer.groups.run(name) else { return Ok(None) };
        if !protected {
            return Ok(Some(writer.newest_commit()));
        }
        match writer.set_released(group, true) {
            Ok(commit) => Ok(Some(commit)),
            Err(Reject::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::LogFull),
        }
    }

    /// Returns the named runs, in the order in which they were created.
    pub fn runs(&self) -> Vec<RunInfo> {
        let inner = &self.engine;
        let runs: Vec<(Group, String, bool)> = {
            let writer = inner.writer.lock();
            writer.groups.runs().map(|(group, name, protected)| (group, name.to_owned(), protected)).collect()
        };
        let view = self.view();
        let list = inner.shared.segments.load_full();
        let mut streams: BTreeMap<Group, (u64, Option<(i64, i64)>)> = BTreeMap::new();
        for slot in inner.shared.slots.iter().filter(|slot| slot.group >= Group::FIRST) {
            let (count, time) = streams.entry(slot.group).or_default();
            *count += 1;
            let of_stream = view.time_range(slot.stream.load().id);
            *time = [*time, of_stream].into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        let info = |(group, name, protected): (Group, String, bool)| {
            let (streams, time) = streams.get(&group).copied().unwrap_or_default();
            RunInfo {
                name,
                protected,
                streams,
                segments: list.of_group(group).map(|segments| segments.len()).sum(),
                size_bytes: list.of_group(group).map(|segments| segments.bytes()).sum(),
                time,
            }
        };
        runs.into_iter().map(info).collect()
    }
}

impl Writer {
    /// Returns the commit that makes everything so far durable.
    fn newest_commit(&self) -> CommitNumber {
        CommitNumber(self.unit.newest_commit())
    }

    /// Sets whether a run is released, and adds the record that says so.
    fn set_released(&mut self, group: Group, released: bool) -> Result<CommitNumber, Reject> {
        self.gate.check_closed()?;
        let commit = self.unit.number();
        let before = self.groups.set_released(group, released.then_some(commit));
        let bytes = self.groups.encode(group);
        // If the log is full because the disk is, a release is what makes room.
        if let Err(reject) = self.unit.put_release(Control::Group, &bytes) {
            self.groups.set_released(group, before);
            return Err(reject);
        }
        Ok(CommitNumber(commit))
    }
}
