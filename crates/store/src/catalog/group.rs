//! Retention groups: they determine which streams share segments, and which segments may be dropped.
//!
//! A segment holds only one group, so that dropping it affects no other. A stream gets its group when it is created,
//! and keeps it. Groups 0 to 2 are fixed. Later numbers are assigned once, to configured groups and to named runs, and
//! are stored in the log and in checkpoints:
//!
//! ```text
//! u16 number, u8 kind: 1 configured, 2 run, u8 1 if a run was released, text name
//! ```
//! Records are complete, so a later one replaces an earlier one.
//!
//! Invariants: segments of `strongback.` tables (except those of [`MEASURED`]), of runs that are not released, and
//! those that would take a group below its minimum are never dropped for space.

use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, RecordError, contradiction};
use crate::model::options::RetentionGroup;
use crate::model::pattern::Pattern;
use crate::model::stream::StreamKey;

/// Tables of the server's own that hold continuous measurements of clocks and of the progress of processing. They are
/// retained like the data of sources, so that they take no space from the ledger of user actions and messages.
const MEASURED: [&str; 4] = ["strongback.clocks", "strongback.node_clock", "strongback.derived", "strongback.judged"];

/// Returns whether a table of the server's own is retained like the data of sources. A table created before this
/// distinction stays in the ledger's group.
pub(crate) fn is_measured(key: &StreamKey) -> bool {
    MEASURED.contains(&key.table.as_str())
}

/// Name of the table of gaps.
pub(crate) const GAPS_TABLE: &str = "strongback.gaps";

/// Number of a retention group. The first three are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Group(pub(crate) u16);

impl Group {
    /// Group of data from sources.
    pub(crate) const DATA: Group = Group(0);
    /// Group of events and other tables of the store's own, which are never dropped. In a store of a fixed size it may
    /// hold gap rows too.
    pub(crate) const LEDGER: Group = Group(1);
    /// Group of gap rows of a folder, which are never dropped. Separate from the ledger, so that gaps caused by a
    /// sender take no space from it. A table created before this group existed stays in the ledger's.
    pub(crate) const GAPS: Group = Group(2);
    /// First number after the fixed ones.
    pub(crate) const FIRST: Group = Group(3);

    /// Returns whether the group is for tables of the store's own.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Group::LEDGER | Group::GAPS)
    }
}

/// Kind of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Fixed = 0,
    Configured = 1,
    Run = 2,
}

/// Limits to dropping data of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Whether nothing may be dropped.
    pub(crate) protected: bool,
    /// Bytes below which nothing is dropped for space.
    pub(crate) keep_bytes: u64,
    /// Age above which segments are dropped in any case, by their newest row.
    pub(crate) max_age_ns: Option<i64>,
}

#[derive(Clone, Debug)]
struct KnownGroup {
    kind: Kind,
    name: String,
    /// Commit that released the run, which may be dropped once this is durable; `None` if it is protected or not a run.
    released: Option<u64>,
    keep_bytes: u64,
    max_age_ns: Option<i64>,
}

impl KnownGroup {
    fn new(kind: Kind, name: &str) -> KnownGroup {
        KnownGroup { kind, name: name.to_owned(), released: None, keep_bytes: 0, max_age_ns: None }
    }
}

/// All groups by number, and the rules that assign streams to them.
#[derive(Debug)]
pub(crate) struct Groups {
    known: Vec<KnownGroup>,
    rules: Vec<(Pattern, Group)>,
    /// Groups that are newer than the last checkpoint.
    unsaved: Vec<Group>,
    /// Whether gap rows have their own group.
    gaps_apart: bool,
}

impl Default for Groups {
    fn default() -> Self {
        let known = ["data", "ledger", "gaps"].map(|name| KnownGroup::new(Kind::Fixed, name));
        Groups { known: known.into(), rules: Vec::new(), unsaved: Vec::new(), gaps_apart: false }
    }
}

impl Groups {
    /// Sets whether gap rows get their own group: a store of a fixed size may have no slots for one.
    pub(crate) fn set_gaps_apart(&mut self, apart: bool) {
        self.gaps_apart = apart;
    }

    /// Returns the group of a new stream: one of the store's own, that of its run, or the first configured one whose
    /// pattern matches; otherwise [`Group::DATA`].
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

    /// Returns whether a number is assigned.
    pub(crate) fn has(&self, group: Group) -> bool {
        (group.0 as usize) < self.known.len()
    }

    /// Returns the name of a group as stored in segments.
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

    /// Returns the policies by number. `committed` is the newest durable commit: a release takes effect once a power
    /// cut cannot undo it.
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

    /// Iterates over the named runs, and whether each is protected.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Group, &str, bool)> {
        let runs = self.known.iter().enumerate().filter(|(_, known)| known.kind == Kind::Run);
        runs.map(|(number, known)| (Group(number as u16), known.name.as_str(), known.released.is_none()))
    }

    /// Returns the run with a name, and whether it is protected.
    pub(crate) fn run(&self, name: &str) -> Option<(Group, bool)> {
        let group = self.find(Kind::Run, name)?;
        Some((group, self.known[group.0 as usize].released.is_none()))
    }

    /// Adds a protected run. Returns `None` if no number is left.
    pub(crate) fn add_run(&mut self, name: &str) -> Option<Group> {
        self.add(Kind::Run, name)
    }

    /// Removes the group that was added last.
    pub(crate) fn forget_last(&mut self, group: Group) {
        self.known.truncate(group.0.into());
        self.unsaved.retain(|unsaved| *unsaved != group);
    }

    /// Protects a run (`None`), or releases it with a commit. Returns the previous state.
    pub(crate) fn set_released(&mut self, group: Group, released: Option<u64>) -> Option<u64> {
        self.unsaved.push(group);
        std::mem::replace(&mut self.known[group.0 as usize].released, released)
    }

    /// Applies the configuration. Creates missing groups and returns them. A group that is no longer configured has no
    /// minimum and the maximum age of the store.
    ///
    /// # Errors
    /// If there are already 65,536 groups.
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

    /// Returns the groups and records for a checkpoint: either all that have a record, or those newer than the last
    /// one.
    pub(crate) fn to_save(&self, all: bool) -> Vec<(Group, Vec<u8>)> {
        let mut groups =
            if all { (Group::FIRST.0..self.known.len() as u16).map(Group).collect() } else { self.unsaved.clone() };
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().map(|group| (group, self.encode(group))).collect()
    }

    /// Returns the bytes of all records in a checkpoint, each with a head of `head_bytes`.
    pub(crate) fn saved_bytes(&self, head_bytes: usize) -> u64 {
        self.to_save(true).iter().map(|(_, record)| (head_bytes + record.len()) as u64).sum()
    }

    /// Marks the groups of a durable checkpoint as saved, unless they changed since.
    pub(crate) fn saved(&mut self, saved: &[(Group, Vec<u8>)]) {
        let unsaved = std::mem::take(&mut self.unsaved);
        let changed_since = |group: &Group| !saved.iter().any(|(g, bytes)| g == group && *bytes == self.encode(*group));
        self.unsaved = unsaved.into_iter().filter(changed_since).collect();
    }

    /// Encodes the record of a group.
    pub(crate) fn encode(&self, group: Group) -> Vec<u8> {
        let known = &self.known[group.0 as usize];
        let mut p = Put::default();
        p.u16(group.0);
        p.u8(known.kind as u8);
        p.u8(known.released.is_some() as u8);
        p.text(&known.name);
        p.0
    }

    /// Applies a record.
    ///
    /// # Errors
    /// If a field is cut or invalid, or the record contradicts the known groups.
    pub(crate) fn apply(&mut self, t: &mut Cursor<'_>) -> Result<(), RecordError> {
        let GroupRecord { group, kind, released, name } = GroupRecord::decode(t)?;
        let next = self.known.len();
        match self.known.get_mut(group.0 as usize) {
            Some(known) if known.kind == kind && known.name == name => {
                known.released = released.then_some(0);
                self.unsaved.push(group);
            }
            Some(_) => return Err(contradiction(format!("group {} has another kind or name", group.0))),
            None if group.0 as usize == next => {
                self.add(kind, name).ok_or_else(|| contradiction("no number is left for a group"))?;
                self.known[group.0 as usize].released = released.then_some(0);
            }
            None => return Err(contradiction(format!("group {} follows {next} groups", group.0))),
        }
        Ok(())
    }
}

/// Record of a group.
pub(crate) struct GroupRecord<'a> {
    group: Group,
    kind: Kind,
    released: bool,
    name: &'a str,
}

impl<'a> GroupRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// If a field is cut or invalid.
    pub(crate) fn decode(t: &mut Cursor<'a>) -> Result<Self, FormatError> {
        let group = Group(t.u16("number of a group")?);
        let kind = t.code("kind of a group", |code| match code {
            1 => Some(Kind::Configured),
            2 => Some(Kind::Run),
            _ => None,
        })?;
        Ok(GroupRecord {
            group,
            kind,
            released: t.flag("mark of a released run")?,
            name: t.short_text("name of a group")?,
        })
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
