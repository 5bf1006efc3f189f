//! Retention groups: which streams share segments, and which segments may be dropped.
//!
//! A segment holds one group only, so that dropping it whole drops nothing of another. A stream gets its group
//! when it is made and keeps it. Groups 0 to 2 are fixed; later numbers are given out once, to configured groups
//! and to named runs, and stand in the log and in checkpoints:
//!
//! ```text
//! u16 number, u8 kind: 1 configured, 2 run, u8 1 if a run was released, text name
//! ```
//! Records state what is, so a later one replaces an earlier one.
//!
//! Invariants: segments of `strongback.` tables (but for those of [`MEASURED`]), of runs that are not released, and
//! those that would take a group below its minimum are never dropped for space.

use crate::bytes::fields::{Put, Take};
use crate::model::options::RetentionGroup;
use crate::model::pattern::Pattern;
use crate::model::stream::StreamKey;

/// Tables of the server's own that say, one row after the other, how clocks are and how far something came with what
/// sources send: they go with that, and take no room from what people did and were told.
const MEASURED: [&str; 4] = ["strongback.clocks", "strongback.node_clock", "strongback.derived", "strongback.judged"];

/// Whether a table of the server's own goes with what sources send. One that is older than this stays in the ledger's
/// group.
pub(crate) fn is_measured(key: &StreamKey) -> bool {
    MEASURED.contains(&key.table.as_str())
}

/// Name of the table of gaps.
pub(crate) const GAPS_TABLE: &str = "strongback.gaps";

/// Number of a retention group. The first three are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Group(pub(crate) u16);

impl Group {
    /// What sources send.
    pub(crate) const DATA: Group = Group(0);
    /// Events and other tables of the store's own: never the victim. In a fixed size gap rows, too.
    pub(crate) const LEDGER: Group = Group(1);
    /// Gap rows of a folder: never the victim, and what a sender makes of them takes no space from the ledger. A table that
    /// was made before there was this group stays in the ledger's.
    pub(crate) const GAPS: Group = Group(2);
    /// The number after the fixed ones.
    pub(crate) const FIRST: Group = Group(3);

    /// Whether it is for tables of the store's own.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Group::LEDGER | Group::GAPS)
    }
}

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Fixed = 0,
    Configured = 1,
    Run = 2,
}

/// What may be dropped of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Nothing at all.
    pub(crate) protected: bool,
    /// Nothing for space once it holds no more bytes than this.
    pub(crate) keep_bytes: u64,
    /// Segments whose newest row was stored longer ago go in any case.
    pub(crate) max_age_ns: Option<i64>,
}

#[derive(Clone, Debug)]
struct KnownGroup {
    kind: Kind,
    name: String,
    /// Of a run: it may be dropped once this commit is durable.
    released: Option<u64>,
    keep_bytes: u64,
    max_age_ns: Option<i64>,
}

impl KnownGroup {
    fn new(kind: Kind, name: &str) -> KnownGroup {
        KnownGroup { kind, name: name.to_owned(), released: None, keep_bytes: 0, max_age_ns: None }
    }
}

/// All groups by number, and which streams go where.
#[derive(Debug)]
pub(crate) struct Groups {
    known: Vec<KnownGroup>,
    rules: Vec<(Pattern, Group)>,
    /// Groups that are newer than the checkpoint.
    unsaved: Vec<Group>,
    /// Whether gap rows have a group of their own.
    gaps_apart: bool,
}

impl Default for Groups {
    fn default() -> Self {
        let known = ["data", "ledger", "gaps"].map(|name| KnownGroup::new(Kind::Fixed, name));
        Groups { known: known.into(), rules: Vec::new(), unsaved: Vec::new(), gaps_apart: false }
    }
}

impl Groups {
    /// Says whether gap rows get a group of their own: a fixed size may have no slots for one.
    pub(crate) fn set_gaps_apart(&mut self, apart: bool) {
        self.gaps_apart = apart;
    }

    /// The group that a new stream belongs to: one of the store's own, its run's, the first configured one whose pattern
    /// it matches.
    pub(crate) fn of(&self, key: &StreamKey) -> Group {
        if self.gaps_apart && key.table == GAPS_TABLE {
            return Group::GAPS;
        }
        if key.is_internal() && !is_measured(key) {
            return Group::LEDGER;
        }
        if let Some(run) = key.tag("run").and_then(|name| self.find(Kind::Run, name)) {
            return run;
        }
        self.rules.iter().find(|(pattern, _)| pattern.matches_stream(key)).map_or(Group::DATA, |(_, group)| *group)
    }

    /// Whether a number was given out.
    pub(crate) fn has(&self, group: Group) -> bool {
        (group.0 as usize) < self.known.len()
    }

    /// Its name as segments carry it.
    pub(crate) fn name(&self, group: Group) -> String {
        self.known.get(group.0 as usize).map_or_else(String::new, |known| match known.kind {
            Kind::Run => format!("run {}", known.name),
            _ => known.name.clone(),
        })
    }

    fn find(&self, kind: Kind, name: &str) -> Option<Group> {
        let at = self.known.iter().position(|known| known.kind == kind && known.name == name)?;
        Some(Group(at as u16))
    }

    fn add(&mut self, kind: Kind, name: &str) -> Option<Group> {
        let group = Group(u16::try_from(self.known.len()).ok()?);
        self.known.push(KnownGroup::new(kind, name));
        self.unsaved.push(group);
        Some(group)
    }

    /// What may be dropped, by number. `committed` is the newest durable commit: a release counts once it cannot
    /// be undone by a power cut.
    pub(crate) fn policies(&self, committed: u64) -> Vec<Policy> {
        let policy = |(number, known): (usize, &KnownGroup)| Policy {
            protected: match known.kind {
                Kind::Run => known.released.is_none_or(|commit| commit > committed),
                _ => Group(number as u16).is_own(),
            },
            keep_bytes: known.keep_bytes,
            max_age_ns: known.max_age_ns,
        };
        self.known.iter().enumerate().map(policy).collect()
    }

    /// Named runs and whether each is protected.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Group, &str, bool)> {
        let runs = self.known.iter().enumerate().filter(|(_, known)| known.kind == Kind::Run);
        runs.map(|(number, known)| (Group(number as u16), known.name.as_str(), known.released.is_none()))
    }

    /// The run of a name and whether it is protected.
    pub(crate) fn run(&self, name: &str) -> Option<(Group, bool)> {
        let group = self.find(Kind::Run, name)?;
        Some((group, self.known[group.0 as usize].released.is_none()))
    }

    /// Makes a run, protected; none: no number is left.
    pub(crate) fn add_run(&mut self, name: &str) -> Option<Group> {
        self.add(Kind::Run, name)
    }

    /// Takes back the group that was made last.
    pub(crate) fn forget_last(&mut self, group: Group) {
        self.known.truncate(group.0.into());
        self.unsaved.retain(|unsaved| *unsaved != group);
    }

    /// Protects a run, or releases it with a commit; returns what it was before.
    pub(crate) fn set_released(&mut self, group: Group, released: Option<u64>) -> Option<u64> {
        self.unsaved.push(group);
        std::mem::replace(&mut self.known[group.0 as usize].released, released)
    }

    /// Takes the configuration: makes the groups that are not there yet and returns them. A group that is configured
    /// no more has no minimum and the store's age.
    ///
    /// # Errors
    /// There are 65,536 groups.
    pub(crate) fn configure(&mut self, configured: &[RetentionGroup], max_bytes: u64) -> Result<Vec<Group>, String> {
        let mut made = Vec::new();
        for asked in configured {
            let group = match &asked.streams {
                None => Group::DATA,
                Some(pattern) => {
                    let group = match self.find(Kind::Configured, &asked.name) {
                        Some(group) => group,
                        None => {
                            let group =
                                self.add(Kind::Configured, &asked.name).ok_or("no number is left for a group")?;
                            made.push(group);
                            group
                        }
                    };
                    self.rules.push((pattern.clone(), group));
                    group
                }
            };
            let known = &mut self.known[group.0 as usize];
            known.keep_bytes = asked.keep.of(max_bytes);
            known.max_age_ns = asked.max_age.map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        }
        Ok(made)
    }

    /// Groups for a checkpoint: all that have a record, or those newer than the last one.
    pub(crate) fn to_save(&self, all: bool) -> Vec<(Group, Vec<u8>)> {
        let mut groups =
            if all { (Group::FIRST.0..self.known.len() as u16).map(Group).collect() } else { self.unsaved.clone() };
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().map(|group| (group, self.encode(group))).collect()
    }

    /// Bytes of all records in a checkpoint, each behind a head of `head_bytes`.
    pub(crate) fn saved_bytes(&self, head_bytes: usize) -> u64 {
        self.to_save(true).iter().map(|(_, record)| (head_bytes + record.len()) as u64).sum()
    }

    /// Says what a durable checkpoint holds.
    pub(crate) fn saved(&mut self, saved: &[(Group, Vec<u8>)]) {
        let unsaved = std::mem::take(&mut self.unsaved);
        let changed_since = |group: &Group| !saved.iter().any(|(g, bytes)| g == group && *bytes == self.encode(*group));
        self.unsaved = unsaved.into_iter().filter(changed_since).collect();
    }

    /// The record of a group.
    pub(crate) fn encode(&self, group: Group) -> Vec<u8> {
        let known = &self.known[group.0 as usize];
        let mut p = Put::default();
        p.u16(group.0);
        p.u8(known.kind as u8);
        p.u8(known.released.is_some() as u8);
        p.text(&known.name);
        p.0
    }

    /// Takes a record back; none if it does not fit what is known.
    pub(crate) fn apply(&mut self, bytes: &[u8]) -> Option<()> {
        let mut t = Take(bytes);
        let (group, kind, released, name) = (Group(t.u16()?), t.u8()?, t.u8()? != 0, t.text()?);
        let kind = match kind {
            1 => Kind::Configured,
            2 => Kind::Run,
            _ => return None,
        };
        let next = self.known.len();
        match self.known.get_mut(group.0 as usize) {
            Some(known) if known.kind == kind && known.name == name => {
                known.released = released.then_some(0);
                self.unsaved.push(group);
            }
            None if group.0 as usize == next => {
                self.add(kind, &name)?;
                self.known[group.0 as usize].released = released.then_some(0);
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_the_server_go_with_the_data_and_the_ledger_does_not() {
        let mut groups = Groups::default();
        let of =
            |groups: &Groups, table: &str| groups.of(&StreamKey::new(table, [("stream".to_owned(), "a".to_owned())]));
        for table in ["gaps", "events", "imports", "definitions", "runs", "alarms", "late"] {
            assert_eq!(of(&groups, &format!("strongback.{table}")), Group::LEDGER, "{table}");
        }
        for table in MEASURED.into_iter().chain(["fti.bay"]) {
            assert_eq!(of(&groups, table), Group::DATA, "{table}");
        }
        groups.set_gaps_apart(true);
        assert_eq!(of(&groups, "strongback.gaps"), Group::GAPS);
        assert_eq!(of(&groups, "strongback.events"), Group::LEDGER);
    }
}
