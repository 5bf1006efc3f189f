//! All segments at one moment. A list is replaced, never changed. A change copies one chunk and a pointer for each of
//! the others, so its cost hardly depends on the number of segments.
//!
//! Each retention group has its sealed segments twice: by number, and by smallest time with, for each chunk, the
//! largest time up to and including it, so that an interval is found without examining segments that ended before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Group, Segment, SegmentState};

/// Max number of segments in a chunk.
const CHUNK_SEGMENTS: usize = 256;

/// Sealed segment and its directory state, which no longer changes.
#[derive(Clone, Debug)]
struct SealedSegment {
    segment: Arc<Segment>,
    state: SegmentState,
}

/// Sort key of segments.
#[derive(Clone, Copy, Debug)]
enum SegmentOrder {
    Number,
    Time,
}

impl SealedSegment {
    fn key(&self, order: SegmentOrder) -> (i64, u64) {
        match order {
            SegmentOrder::Number => (0, self.segment.place()),
            SegmentOrder::Time => (self.state.time.0, self.segment.id),
        }
    }
}

/// Consecutive segments in an order.
#[derive(Clone, Debug)]
struct SegmentChunk {
    segments: Vec<SealedSegment>,
    /// Smallest and largest `time` in the chunk.
    time_min: i64,
    time_max: i64,
}

impl SegmentChunk {
    fn new(segments: Vec<SealedSegment>) -> SegmentChunk {
        let mut chunk = SegmentChunk { segments, time_min: i64::MAX, time_max: i64::MIN };
        chunk.sum_up();
        chunk
    }

    fn sum_up(&mut self) {
        self.time_min = self.segments.iter().map(|k| k.state.time.0).min().unwrap_or(i64::MAX);
        self.time_max = self.segments.iter().map(|k| k.state.time.1).max().unwrap_or(i64::MIN);
    }
}

/// Sealed segments in an order; no chunk is empty.
#[derive(Clone, Debug)]
struct Chunks {
    order: SegmentOrder,
    chunks: Vec<Arc<SegmentChunk>>,
    /// Largest `time` in each chunk and all before it.
    reach: Vec<i64>,
}

impl Chunks {
    fn new(order: SegmentOrder, mut all: Vec<SealedSegment>) -> Chunks {
        all.sort_unstable_by_key(|known| known.key(order));
        let chunks = all.chunks(CHUNK_SEGMENTS).map(|part| Arc::new(SegmentChunk::new(part.to_vec()))).collect();
        let mut this = Chunks { order, chunks, reach: Vec::new() };
        this.sum_up();
        this
    }

    fn sum_up(&mut self) {
        self.reach.clear();
        let mut reach = i64::MIN;
        for chunk in &self.chunks {
            reach = reach.max(chunk.time_max);
            self.reach.push(reach);
        }
    }

    /// Returns the index of the chunk that holds a key, or where it belongs.
    fn find(&self, key: (i64, u64)) -> usize {
        let order = self.order;
        self.chunks.partition_point(|c| c.segments[0].key(order) <= key).saturating_sub(1)
    }

    fn insert(&mut self, known: SealedSegment) {
        let (order, key) = (self.order, known.key(self.order));
        let at = self.find(key);
        match self.chunks.get_mut(at) {
            None => self.chunks.push(Arc::new(SegmentChunk::new(vec![known]))),
            Some(chunk) => {
                let within = chunk.segments.partition_point(|k| k.key(order) < key);
                if chunk.segments.len() < CHUNK_SEGMENTS {
                    let chunk = Arc::make_mut(chunk);
                    chunk.segments.insert(within, known);
                    chunk.sum_up();
                } else if within == chunk.segments.len() {
                    // Segments are mostly appended: full chunks stay full.
                    self.chunks.insert(at + 1, Arc::new(SegmentChunk::new(vec![known])));
                } else {
                    let mut first = chunk.segments.clone();
                    first.insert(within, known);
                    let second = first.split_off(first.len() / 2);
                    *chunk = Arc::new(SegmentChunk::new(first));
                    self.chunks.insert(at + 1, Arc::new(SegmentChunk::new(second)));
                }
            }
        }
        self.sum_up();
    }

    fn remove(&mut self, key: (i64, u64)) {
        let (order, at) = (self.order, self.find(key));
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Some(within) = chunk.segments.iter().position(|k| k.key(order) == key) else { return };
        if chunk.segments.len() == 1 {
            self.chunks.remove(at);
        } else {
            let chunk = Arc::make_mut(chunk);
            chunk.segments.remove(within);
            chunk.sum_up();
        }
        self.sum_up();
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &SealedSegment> {
        self.chunks.iter().flat_map(|chunk| &chunk.segments)
    }
}

/// Sums over segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) points: u64,
}

impl Sums {
    fn add(&mut self, state: &SegmentState) {
        self.segments += 1;
        self.bytes += state.bytes;
        self.points += state.points;
    }

    fn take(&mut self, state: &SegmentState) {
        self.segments -= 1;
        self.bytes -= state.bytes;
        self.points -= state.points;
    }
}

/// Segments of a retention group.
#[derive(Clone, Debug)]
pub(crate) struct GroupList {
    by_number: Chunks,
    by_time: Chunks,
    open: Vec<Arc<Segment>>,
    sealed: Sums,
}

impl GroupList {
    fn new(segments: Vec<Arc<Segment>>) -> GroupList {
        let (mut open, mut known, mut sealed) = (Vec::new(), Vec::new(), Sums::default());
        for segment in segments {
            let state = *segment.state.lock();
            if state.sealed {
                sealed.add(&state);
                known.push(SealedSegment { segment, state });
            } else {
                open.push(segment);
            }
        }
        open.sort_by_key(|segment| segment.id);
        GroupList {
            by_number: Chunks::new(SegmentOrder::Number, known.clone()),
            by_time: Chunks::new(SegmentOrder::Time, known),
            open,
            sealed,
        }
    }

    /// Returns the sealed segments, oldest first, with their directory states.
    pub(crate) fn sealed(&self) -> impl DoubleEndedIterator<Item = (&Arc<Segment>, &SegmentState)> {
        self.by_number.iter().map(|known| (&known.segment, &known.state))
    }

    /// Returns the number of segments.
    pub(crate) fn len(&self) -> u64 {
        self.sealed.segments + self.open.len() as u64
    }

    /// Returns the bytes in all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed.bytes + self.open_bytes()
    }

    /// Returns the number of sealed segments.
    pub(crate) fn sealed_len(&self) -> u64 {
        self.sealed.segments
    }

    /// Returns the open segments.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.open.iter()
    }

    /// Returns the bytes in the open segments.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open.iter().map(|segment| segment.state.lock().bytes).sum()
    }

    /// Returns the sealed segments, oldest first, with their directory states and the number of the next segment of
    /// the group, if there is one. These numbers order the segments of all groups without a clock.
    pub(crate) fn sealed_in_order(&self) -> impl Iterator<Item = (&Arc<Segment>, &SegmentState, Option<u64>)> {
        let mut rest = self.by_number.iter().peekable();
        let open = self.open.iter().map(|segment| segment.id);
        std::iter::from_fn(move || {
            let known = rest.next()?;
            let next = rest.peek().map(|next| next.segment.places.0);
            let next = next.or_else(|| open.clone().find(|id| *id > known.segment.place()));
            Some((&known.segment, &known.state, next))
        })
    }

    /// Returns the newest segment whose first number is below `below` and that may hold rows with `time ≤ to`.
    pub(crate) fn newest_below(&self, below: u64, to: i64) -> Option<&Arc<Segment>> {
        let fits = |segment: &&Arc<Segment>| segment.places.0 < below && segment.state.lock().time.0 <= to;
        if let Some(open) = self.open.iter().rev().find(fits) {
            return Some(open);
        }
        let Chunks { chunks, .. } = &self.by_number;
        let end = chunks.partition_point(|chunk| chunk.segments[0].segment.places.0 < below);
        chunks[..end].iter().rev().filter(|chunk| chunk.time_min <= to).find_map(|chunk| {
            let end = chunk.segments.partition_point(|known| known.segment.places.0 < below);
            let found = chunk.segments[..end].iter().rev().find(|known| known.state.time.0 <= to);
            found.map(|known| &known.segment)
        })
    }

    /// Returns the sealed segment that has or replaces a number.
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Segment>> {
        let Chunks { chunks, .. } = &self.by_number;
        let at = chunks.partition_point(|chunk| chunk.segments.last().is_some_and(|k| k.segment.place() < number));
        let segments = &chunks.get(at)?.segments;
        let known = segments.get(segments.partition_point(|known| known.segment.place() < number))?;
        (known.segment.places.0 <= number).then_some(&known.segment)
    }

    /// Returns the segment, sealed or open, that has or replaces a number.
    pub(crate) fn find(&self, number: u64) -> Option<&Arc<Segment>> {
        self.get(number).or_else(|| self.open.iter().find(|open| open.id == number))
    }

    /// Returns the segments that may hold rows with `from ≤ time ≤ to`, oldest first.
    fn overlapping(&self, from: i64, to: i64) -> Vec<Arc<Segment>> {
        let mut found = Vec::new();
        let Chunks { chunks, reach, .. } = &self.by_time;
        let end = chunks.partition_point(|chunk| chunk.segments[0].state.time.0 <= to);
        for (chunk, _) in chunks[..end].iter().zip(reach).rev().take_while(|(_, reach)| **reach >= from) {
            let end = chunk.segments.partition_point(|known| known.state.time.0 <= to);
            let segments = chunk.segments[..end].iter().filter(|known| known.state.time.1 >= from);
            found.extend(segments.map(|known| known.segment.clone()));
        }
        let overlaps = |time: (i64, i64)| time.0 <= to && time.1 >= from;
        found.extend(self.open.iter().filter(|segment| overlaps(segment.state.lock().time)).cloned());
        found.sort_unstable_by_key(|segment| segment.place());
        found
    }
}

/// All segments at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentList {
    groups: BTreeMap<Group, Arc<GroupList>>,
    /// Segments of blobs, which hold no rows.
    blobs: BTreeMap<Group, Arc<GroupList>>,
}

impl SegmentList {
    pub(crate) fn new(all: Vec<Arc<Segment>>) -> SegmentList {
        let by_group = |all: Vec<Arc<Segment>>| {
            let mut by_group: BTreeMap<Group, Vec<Arc<Segment>>> = BTreeMap::new();
            for segment in all {
                by_group.entry(segment.group).or_default().push(segment);
            }
            by_group.into_iter().map(|(group, segments)| (group, Arc::new(GroupList::new(segments)))).collect()
        };
        let (blobs, rows) = all.into_iter().partition(|segment| segment.blobs);
        SegmentList { groups: by_group(rows), blobs: by_group(blobs) }
    }

    /// Returns the newest instant at which a row was stored.
    pub(crate) fn newest_stored(&self) -> Option<i64> {
        self.iter().map(|segment| segment.state.lock().stored).filter(|(a, b)| a <= b).map(|stored| stored.1).max()
    }

    /// Returns the groups that ever had segments of rows, with their segments.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &GroupList)> {
        self.groups.iter().map(|(group, list)| (*group, &**list))
    }

    /// Returns the groups that ever had segments of blobs, with their segments.
    pub(crate) fn blob_groups(&self) -> impl Iterator<Item = (Group, &GroupList)> {
        self.blobs.iter().map(|(group, list)| (*group, &**list))
    }

    /// Returns a segment of blobs of a group.
    pub(crate) fn blobs_of(&self, group: Group, id: u64) -> Option<Arc<Segment>> {
        let list = self.blobs.get(&group)?;
        list.get(id).or_else(|| list.open.iter().find(|open| open.id == id)).cloned()
    }

    /// Returns both lists of a group: of rows, and of blobs.
    pub(crate) fn of_group(&self, group: Group) -> impl Iterator<Item = &GroupList> {
        self.groups.get(&group).into_iter().chain(self.blobs.get(&group)).map(|list| &**list)
    }

    /// Returns the groups that ever had segments of any kind.
    pub(crate) fn all_groups(&self) -> std::collections::BTreeSet<Group> {
        self.lists().map(|(group, _)| group).collect()
    }

    /// Returns every list.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (Group, &GroupList)> {
        self.groups().chain(self.blob_groups())
    }

    /// Returns the segments of rows of a group, or `None` if it never had one.
    pub(crate) fn group(&self, group: Group) -> Option<&GroupList> {
        self.groups.get(&group).map(|list| &**list)
    }

    /// Returns the list that a segment belongs to.
    fn list_of(&mut self, segment: &Segment) -> &mut GroupList {
        let lists = if segment.blobs { &mut self.blobs } else { &mut self.groups };
        Arc::make_mut(lists.entry(segment.group).or_insert_with(|| Arc::new(GroupList::new(Vec::new()))))
    }

    /// Returns a list with an open segment added.
    pub(crate) fn with_open(&self, segment: Arc<Segment>) -> SegmentList {
        let mut list = self.clone();
        list.list_of(&segment).open.push(segment);
        list
    }

    /// Returns a list with an open segment sealed.
    pub(crate) fn with_sealed(&self, segment: &Arc<Segment>) -> SegmentList {
        let mut list = self.clone();
        let group = list.list_of(segment);
        group.open.retain(|open| open.id != segment.id);
        let known = SealedSegment { segment: segment.clone(), state: *segment.state.lock() };
        group.sealed.add(&known.state);
        group.by_number.insert(known.clone());
        group.by_time.insert(known);
        list
    }

    /// Returns whether it has a segment, and not another one in its place.
    pub(crate) fn holds(&self, segment: &Arc<Segment>) -> bool {
        let lists = if segment.blobs { &self.blobs } else { &self.groups };
        let Some(list) = lists.get(&segment.group) else { return false };
        let is_it = |other: &Arc<Segment>| Arc::ptr_eq(other, segment);
        list.open.iter().any(is_it) || list.get(segment.place()).is_some_and(is_it)
    }

    /// Returns a list without some segments. Those that it does not have are passed over.
    pub(crate) fn without(&self, segments: &[Arc<Segment>]) -> SegmentList {
        let mut list = self.clone();
        for segment in segments.iter().filter(|segment| self.holds(segment)) {
            let group = list.list_of(segment);
            group.open.retain(|open| open.id != segment.id);
            let state = *segment.state.lock();
            if state.sealed {
                let known = SealedSegment { segment: segment.clone(), state };
                group.sealed.take(&state);
                group.by_number.remove(known.key(SegmentOrder::Number));
                group.by_time.remove(known.key(SegmentOrder::Time));
            }
        }
        list
    }

    /// Returns a list with one segment in place of others of its group.
    pub(crate) fn with_replaced(&self, old: &[Arc<Segment>], new: &Arc<Segment>) -> SegmentList {
        self.without(old).with_sealed(new)
    }

    /// Returns every segment, group by group.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.lists().flat_map(|(_, group)| group.sealed().map(|(segment, _)| segment).chain(&group.open))
    }

    /// Returns the sums over segments of rows, and over segments of blobs.
    pub(crate) fn sums(&self) -> (Sums, Sums) {
        (sums_of(&self.groups), sums_of(&self.blobs))
    }

    /// Returns the segments of a group that may hold rows with `from ≤ time ≤ to`, oldest first.
    pub(crate) fn overlapping(&self, group: Group, from: i64, to: i64) -> Vec<Arc<Segment>> {
        self.group(group).map_or_else(Vec::new, |group| group.overlapping(from, to))
    }
}

fn sums_of(groups: &BTreeMap<Group, Arc<GroupList>>) -> Sums {
    let mut sums = Sums::default();
    for group in groups.values() {
        sums.segments += group.sealed.segments;
        sums.bytes += group.sealed.bytes;
        sums.points += group.sealed.points;
        group.open.iter().for_each(|segment| sums.add(&segment.state.lock()));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::fault::FaultDisk;

    /// Compares a list changed step by step with a search through all segments.
    #[test]
    fn a_changed_list_finds_what_a_walk_finds() {
        for seed in 0..8 {
            let mut random = fastrand::Rng::with_seed(seed);
            let disk: Arc<dyn crate::disk::Disk> = Arc::new(FaultDisk::new(0));
            let (mut list, mut all) = (SegmentList::default(), Vec::<Arc<Segment>>::new());
            for id in 1..1_500u64 {
                let start = if random.u8(0..10) == 0 { random.i64(0..3_000) } else { id as i64 * 2 };
                let longest = if random.u8(0..50) == 0 { 2_000 } else { 4 };
                let time = (start, start + random.i64(0..longest));
                let stored = (id as i64, random.i64(id as i64..id as i64 + 3));
                let state = SegmentState { time, stored, bytes: id, points: 2 * id, ..SegmentState::default() };
                let group = Group(random.u16(0..3));
                let segment = Arc::new(Segment::new(disk.clone(), id, group, state));
                list = list.with_open(segment.clone());
                all.push(segment.clone());
                if random.u8(0..20) > 0 {
                    segment.state.lock().sealed = true;
                    list = list.with_sealed(&segment);
                }
                if random.u8(0..6) == 0 {
                    // Mostly remove the oldest.
                    let most = if random.bool() { 3.min(all.len()) } else { all.len() };
                    let gone = [all.remove(random.usize(..most))];
                    list = list.without(&gone);
                }
            }
            let ids = |segments: &[Arc<Segment>]| segments.iter().map(|s| s.id).collect::<Vec<_>>();
            let bytes = all.iter().map(|s| s.id).sum::<u64>();
            assert_eq!(list.sums().0, Sums { segments: all.len() as u64, bytes, points: 2 * bytes });
            let fresh = SegmentList::new(all.clone());
            for _ in 0..300 {
                let from = random.i64(-5..3_005);
                let (to, group) = (from + random.i64(0..40), Group(random.u16(0..3)));
                let hit = |s: &&Arc<Segment>| {
                    let time = s.state.lock().time;
                    s.group == group && time.0 <= to && time.1 >= from
                };
                let expected: Vec<u64> = all.iter().filter(hit).map(|s| s.id).collect();
                assert_eq!(ids(&list.overlapping(group, from, to)), expected, "seed {seed}: {from} to {to}");
                assert_eq!(ids(&fresh.overlapping(group, from, to)), expected, "seed {seed}: {from} to {to}");
                let below = random.u64(0..1_500);
                let newest = |is_sealed: bool| {
                    all.iter().rev().find(|s| {
                        let state = *s.state.lock();
                        s.group == group && s.id < below && state.time.0 <= from && state.sealed == is_sealed
                    })
                };
                // An open segment has precedence: in a store it is the newest.
                let expected = newest(false).or(newest(true)).map(|s| s.id);
                assert_eq!(list.groups[&group].newest_below(below, from).map(|s| s.id), expected, "seed {seed}");
                let sealed = SegmentList::new(all.iter().filter(|s| s.state.lock().sealed).cloned().collect());
                let found = sealed.groups[&group].newest_below(below, from).map(|s| s.id);
                assert_eq!(found, newest(true).map(|s| s.id), "seed {seed}: below {below}, to {from}");
                let listed = all.iter().any(|s| s.id == below && s.group == group && s.state.lock().sealed);
                assert_eq!(list.groups[&group].get(below).map(|s| s.id), listed.then_some(below));
                let of_group: Vec<&Arc<Segment>> = all.iter().filter(|s| s.group == group).collect();
                let next = |s: &Arc<Segment>| of_group.iter().map(|s| s.id).find(|id| *id > s.id).unwrap_or(u64::MAX);
                let expected: Vec<(u64, u64)> =
                    of_group.iter().filter(|s| s.state.lock().sealed).map(|s| (s.id, next(s))).collect();
                let found: Vec<(u64, u64)> = list.groups[&group]
                    .sealed_in_order()
                    .map(|(s, _, next)| (s.id, next.unwrap_or(u64::MAX)))
                    .collect();
                assert_eq!(found.len(), expected.len(), "seed {seed}");
                for (found, expected) in found.iter().zip(&expected) {
                    // The search for an open segment before the next sealed one happens only behind the last.
                    assert!(
                        found.0 == expected.0 && found.1 >= expected.1 && found.1 > found.0,
                        "seed {seed}: {found:?}"
                    );
                }
            }
        }
    }
}
