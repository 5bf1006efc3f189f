//! Damage of a segment that was open when the process ended, whose rows the log has no more: bytes of real files
//! are changed, and the store opens without what lay in them.

mod kit;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kit::*;
use strongback_store::block::headers;
use strongback_store::block::mixed::MixedBlock;
use strongback_store::inspect::{Depth, inspect};
use strongback_store::segment::{GROUP_HEADER_BYTES, GroupHeader};
use strongback_store::*;

const PAGE: usize = 4096;
/// Two busy streams, and quiet ones that get into mixed blocks; the last one soon ends.
const STREAMS: u32 = 12;
const ENDED: u32 = STREAMS - 1;

fn options() -> StoreOptions {
    sized(1 << 20, 8 << 20)
}

type Rows = BTreeMap<u32, Vec<u64>>;

fn resolve(store: &Store, n: u32) -> StreamId {
    store.stream(&spec("t", [("row", ChannelType::U64), ("noise", ChannelType::F64)]).tag("n", n))
}

/// Appends frames whose value is their row.
fn append(store: &Store, stream: StreamId, next: &mut u64, rows: u64, now: i64) {
    let mut random = fastrand::Rng::with_seed(*next);
    let mut batch = FrameBatch::new();
    for n in 0..rows {
        batch.put(head(stream, now + n as i64), [Value::U64(*next + n), Value::F64(random.f64())]);
    }
    for outcome in store.append(&batch, now).outcomes {
        assert_eq!(outcome, Outcome::Stored { row: *next });
        *next += 1;
    }
}

/// A store whose log went round several times, cut off with one open segment: the next row of each stream.
fn store_cut_off(dir: &Path, log_bytes: u64) -> Vec<u64> {
    let store = open(dir, StoreOptions { log_bytes, ..options() });
    let ids: Vec<StreamId> = (0..STREAMS).map(|n| resolve(&store, n)).collect();
    let mut next = vec![0; ids.len()];
    for lap in 0..60 {
        let now = T0 + lap * 1_000_000;
        for (n, id) in ids.iter().enumerate().filter(|(n, _)| lap < 3 || *n as u32 != ENDED) {
            append(&store, *id, &mut next[n], [2_000, 700].get(n).copied().unwrap_or(1), now);
        }
        store.upkeep(now);
    }
    assert_eq!(store.segments().iter().filter(|s| !s.sealed).count(), 1);
    assert_eq!(store.segments().len(), 1);
    next
}

fn segment_file(dir: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "sbs"));
    files.sort();
    assert_eq!(files.len(), 2, "the segment, and the spare behind it");
    files.remove(0)
}

/// Where each group lies, and of each block in it its offset and rows.
type Group = (usize, Vec<(usize, Vec<(u32, Range<u64>)>)>);

fn groups(bytes: &[u8]) -> Vec<Group> {
    let (mut at, mut found) = (PAGE, Vec::new());
    while let Ok(group) = GroupHeader::read(&bytes[at..]) {
        let body = group.body(&bytes[at..]).expect("whole");
        let blocks = headers(body).map(|block| {
            let (range, header) = block.expect("whole");
            let rows = |h: &block::BlockHeader| (h.stream.0, h.first_row..h.next_row());
            let rows = match header.mixed {
                false => vec![rows(&header)],
                true => {
                    let mixed = MixedBlock::read(&body[range.clone()]).expect("whole");
                    mixed.parts().iter().map(|part| rows(&part.header)).collect()
                }
            };
            (at + GROUP_HEADER_BYTES + range.start, rows)
        });
        found.push((at, blocks.collect()));
        at += group.padded_bytes();
    }
    found
}

/// Every row that a store has, its value checked.
fn rows_of(store: &Store) -> Rows {
    let view = store.view();
    let mut rows = Rows::new();
    for n in 0..STREAMS {
        let id = resolve(store, n);
        let found = rows.entry(id.0).or_default();
        for batch in view.scan(Scan::all(id, vec![ChannelIndex(0)])) {
            let batch = batch.expect("reads");
            for i in 0..batch.len() {
                assert_eq!(batch.columns[0].cell(i), Ok(Value::U64(batch.rows[i])));
                found.push(batch.rows[i]);
            }
        }
    }
    rows
}

/// (stream, first row, last row, count) of the rows of `strongback.gaps` whose cause is damage.
fn gaps(store: &Store) -> Vec<(u32, u64, u64, u64)> {
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps") else { return vec![] };
    let columns = ["cause", "stream", "from_row", "to_row", "count"];
    let columns = columns.map(|name| table.layout.index(name).expect("a documented column"));
    let mut out = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns.to_vec())) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            let cells: Vec<_> = batch.columns.iter().map(|c| c.cell(i).expect("a value")).collect();
            match cells[..] {
                [Value::String("damaged"), Value::U32(s), Value::U64(a), Value::U64(b), Value::U64(n)] => {
                    out.push((s, a, b, n))
                }
                _ => panic!("another gap: {cells:?}"),
            }
        }
    }
    out.sort_unstable();
    out
}

/// Changes bytes of the segment and opens the store: `lost` is gone, everything else is there, and all say so.
fn damage_and_open(damaged_at: usize, flips: &[usize], mut lost: Vec<(u32, Range<u64>)>, dir: &Path, next: &[u64]) {
    let path = segment_file(dir);
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut bytes = std::fs::read(&path).expect("reads");
    flips.iter().for_each(|&at| bytes[at] ^= 0x40);
    std::fs::write(&path, &bytes).expect("written");
    let is_known = |dir: &Path| {
        let found = inspect(dir, Depth::Everything).expect("looked at");
        assert!(found.damage.iter().any(|d| d.file == name && d.offset == damaged_at as u64), "{:?}", found.damage);
    };
    is_known(dir);

    lost.sort_unstable_by_key(|(stream, rows)| (*stream, rows.start));
    // Blocks that follow each other are one gap.
    lost.dedup_by(|later, earlier| {
        let joins = earlier.0 == later.0 && earlier.1.end == later.1.start;
        if joins {
            earlier.1.end = later.1.end;
        }
        joins
    });
    let expected: Vec<_> = lost.iter().map(|(s, r)| (*s, r.start, r.end - 1, r.end - r.start)).collect();
    let mut all = Rows::new();
    for (n, next) in next.iter().enumerate() {
        let is_lost = |row: &u64| lost.iter().any(|(s, rows)| *s == n as u32 && rows.contains(row));
        all.insert(n as u32, (0..*next).filter(|row| !is_lost(row)).collect());
    }

    let mut store = open(dir, options());
    let report = store.recovery();
    assert_eq!(report.damaged.len(), 1, "{:?}", report.damaged);
    assert_eq!((report.damaged[0].file.as_str(), report.damaged[0].offset), (name.as_str(), damaged_at as u64));
    assert_eq!(report.lost_rows, expected.iter().map(|gap| gap.3).sum::<u64>());
    store.commit(T0).expect("committed");
    let mut next = next.to_vec();
    for _ in 0..2 {
        assert_eq!(rows_of(&store), all);
        assert_eq!(gaps(&store), expected);
        // The newest that is left, not an error of the block that is not.
        for (n, rows) in &all {
            let state = store.view().state_at(StreamId(*n), i64::MAX, &[ChannelIndex(0)]).expect("a state");
            let found = state[0].as_ref().map(|cell| cell.row);
            assert_eq!(found, rows.last().copied(), "stream {n}");
        }
        for (n, next) in next.iter_mut().enumerate() {
            all.entry(n as u32).or_default().extend(*next..*next + 3);
            append(&store, resolve(&store, n as u32), next, 3, T0 + 1_000_000_000);
        }
        store.close(T0).expect("closed");
        is_known(dir);
        // Nothing is lost twice.
        store = open(dir, options());
        assert_eq!((store.recovery().lost_rows, store.recovery().damaged.len()), (0, 0));
    }
}

#[test]
fn a_damaged_block_of_an_open_segment_is_a_gap_and_the_rest_is_back() {
    for mixed in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let next = store_cut_off(dir.path(), 1 << 20);
        let groups = groups(&std::fs::read(segment_file(dir.path())).expect("reads"));
        assert!(groups.len() > 6, "{} groups", groups.len());
        let (at, blocks) = groups[1..].iter().find(|g| g.1.iter().any(|b| (b.1.len() > 1) == mixed)).expect("one");
        let (block, rows) = blocks.iter().find(|b| (b.1.len() > 1) == mixed).expect("one");
        damage_and_open(*at, &[block + 200], rows.clone(), dir.path(), &next);
    }
}

#[test]
fn a_group_without_a_header_is_passed_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let next = store_cut_off(dir.path(), 1 << 20);
    let groups = groups(&std::fs::read(segment_file(dir.path())).expect("reads"));
    let (at, blocks) = &groups[2];
    let rows = blocks.iter().flat_map(|block| block.1.clone()).collect();
    damage_and_open(*at, &[at + 8], rows, dir.path(), &next);
}

#[test]
fn the_first_group_one_in_the_middle_or_the_last_of_a_stream_may_be_the_damaged_one() {
    for case in 0..3 {
        let dir = tempfile::tempdir().expect("a folder");
        let next = store_cut_off(dir.path(), 1 << 20);
        let groups = groups(&std::fs::read(segment_file(dir.path())).expect("reads"));
        let has_ended = |group: &&Group| group.1.iter().flat_map(|block| &block.1).any(|rows| rows.0 == ENDED);
        let (at, blocks) = match case {
            0 => &groups[0],
            1 => &groups[groups.len() / 2],
            _ => groups.iter().rfind(has_ended).expect("one"),
        };
        let rows = blocks.iter().flat_map(|block| block.1.clone()).collect();
        let headers: Vec<usize> = blocks.iter().map(|block| block.0 + 4).collect();
        damage_and_open(*at, &headers, rows, dir.path(), &next);
    }
}

#[test]
fn a_segment_without_its_header_page_keeps_all_its_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let next = store_cut_off(dir.path(), 1 << 20);
    damage_and_open(0, &[20], Vec::new(), dir.path(), &next);
}

#[test]
fn rows_of_a_damaged_group_that_the_log_still_has_are_not_lost() {
    for log_bytes in [1 << 20, 64 << 20] {
        let dir = tempfile::tempdir().expect("a folder");
        let next = store_cut_off(dir.path(), log_bytes);
        let path = segment_file(dir.path());
        let mut bytes = std::fs::read(&path).expect("reads");
        let groups = groups(&bytes);
        let (at, blocks) = groups.last().expect("groups");
        blocks.iter().for_each(|block| bytes[block.0 + 200] ^= 1);
        std::fs::write(&path, bytes).expect("written");
        let store = open(dir.path(), options());
        let report = store.recovery();
        assert!(report.damaged.iter().all(|d| d.offset == *at as u64), "{report:?}");
        // The small one has some of them.
        let group_rows: u64 = blocks.iter().flat_map(|block| &block.1).map(|(_, rows)| rows.end - rows.start).sum();
        assert_eq!(report.lost_rows > 0, log_bytes == 1 << 20, "{report:?}");
        assert!(report.lost_rows < group_rows, "{report:?} of {group_rows}");
        // The process ends before the first commit: the next opening finds and tells the same.
        let (rows, told) = (rows_of(&store), gaps(&store));
        drop(store);
        let store = open(dir.path(), options());
        assert!(rows_of(&store) == rows, "log of {log_bytes}: rows differ; {:?}", store.recovery());
        assert_eq!(gaps(&store), told, "log of {log_bytes}");
        store.commit(T0).expect("committed");
        let mut rows = rows_of(&store);
        for (stream, from, to, count) in gaps(&store) {
            assert_eq!(count, to - from + 1);
            rows.entry(stream).or_default().extend(from..=to);
        }
        for (n, next) in next.iter().enumerate() {
            let rows = rows.entry(n as u32).or_default();
            rows.sort_unstable();
            assert!(rows.iter().copied().eq(0..*next), "each row is there or in a gap, once");
        }
    }
}
