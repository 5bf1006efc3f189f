//! Damage of every kind to every file of a store: looking at it, opening it, reading and repairing it never panic and
//! never give a wrong value, each names what is damaged, and repair keeps every row that is in an undamaged block.

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use kit::*;
use strongback_store::block::headers;
use strongback_store::block::mixed::MixedBlock;
use strongback_store::inspect::{Depth, inspect};
use strongback_store::segment::{GROUP_HEADER_BYTES, GroupHeader, SegmentHeader};
use strongback_store::*;

const PAGE: usize = 4096;
const NAMES: [&str; 4] = ["busy", "second", "quiet", "text"];

fn options() -> StoreOptions {
    StoreOptions { settle: false, ..sized(1 << 20, 64 << 10) }
}

/// What a row holds.
fn noise(stream: usize, row: u64) -> u64 {
    fastrand::Rng::with_seed(row * 4 + stream as u64).u64(..)
}

/// Rows by stream.
type Rows = BTreeMap<usize, BTreeSet<u64>>;

/// Fills a store; some rows of the last commits are in the log alone. Returns the rows of each stream.
fn fill(store: &Store, laps: u64) -> Rows {
    let ids: Vec<StreamId> = NAMES.iter().map(|name| store.stream(&counting(*name))).collect();
    let mut next = [0u64; NAMES.len()];
    for lap in 0..laps {
        let mut batch = FrameBatch::new();
        for (stream, id) in ids.iter().enumerate() {
            for _ in 0..[400, 100, 1, 7][stream] {
                let time = T0 + lap as i64 * 1_000_000 + next[stream] as i64;
                batch.put(head(*id, time), [Value::U64(next[stream]), Value::U64(noise(stream, next[stream]))]);
                next[stream] += 1;
            }
        }
        let now = T0 + lap as i64 * 1_000_000;
        for outcome in store.offer(&batch, now).outcomes {
            assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
        }
        store.upkeep(now);
    }
    next.iter().enumerate().map(|(stream, next)| (stream, (0..*next).collect())).collect()
}

/// Every row that a store gives, each value checked; errors must name a file.
fn rows_of(store: &Store, case: &str) -> (Rows, Vec<String>) {
    let (mut rows, mut errors) = (Rows::new(), Vec::new());
    let view = store.view();
    for (stream, name) in NAMES.iter().enumerate() {
        let found = rows.entry(stream).or_default();
        let Some(known) = view.catalog().streams.iter().find(|s| s.key.table == *name).cloned() else { continue };
        for batch in view.scan(Scan::all(known.id, vec![ChannelIndex(0), ChannelIndex(1)])) {
            match batch {
                Ok(batch) => {
                    for at in 0..batch.len() {
                        let row = batch.rows[at];
                        assert_eq!(batch.columns[0].cell(at), Ok(Value::U64(row)), "{case}: {name} row {row}");
                        assert_eq!(
                            batch.columns[1].cell(at),
                            Ok(Value::U64(noise(stream, row))),
                            "{case}: {name} {row}"
                        );
                        assert!(found.insert(row), "{case}: {name} row {row} is there twice");
                    }
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        let _ = view.state_at(known.id, i64::MAX, &[ChannelIndex(0)]);
        let _ = view.reduce(known.id, ChannelIndex(0), i64::MIN..i64::MAX, 5);
    }
    (rows, errors)
}

/// Of each byte range of a file, the rows that are in a block there; and the whole group that it is in.
type Places = Vec<(Range<usize>, Vec<(u32, Range<u64>)>)>;

fn blocks(bytes: &[u8]) -> Places {
    let (mut at, mut found) = (PAGE, Places::new());
    while at + PAGE <= bytes.len() {
        let Ok(group) = GroupHeader::read(&bytes[at..]) else { break };
        let Ok(body) = group.body(&bytes[at..]) else { break };
        let mut all = Vec::new();
        for block in headers(body) {
            let (range, header) = block.expect("whole");
            let rows = |h: &block::BlockHeader| (h.stream.0, h.first_row..h.next_row());
            let rows: Vec<_> = match header.mixed {
                false => vec![rows(&header)],
                true => {
                    let mixed = MixedBlock::read(&body[range.clone()]).expect("whole");
                    mixed.parts().iter().map(|part| rows(&part.header)).collect()
                }
            };
            let start = at + GROUP_HEADER_BYTES + range.start;
            all.extend(rows.clone());
            found.push((start..start + range.len(), rows));
        }
        // Without its header a group of a segment without a footer cannot be made out.
        found.push((at..at + GROUP_HEADER_BYTES, all));
        at += group.padded_bytes();
    }
    found
}

/// Numbers of the streams that a test knows, by the store's.
fn streams(store: &Store) -> BTreeMap<u32, usize> {
    let catalog = store.catalog();
    let known = |name: &&str| catalog.streams.iter().find(|s| s.key.table == **name).map(|s| s.id.0);
    NAMES.iter().enumerate().filter_map(|(n, name)| Some((known(name)?, n))).collect()
}

fn take(rows: &mut Rows, streams: &BTreeMap<u32, usize>, lost: &[(u32, Range<u64>)]) {
    for (id, range) in lost {
        if let Some(rows) = streams.get(id).and_then(|stream| rows.get_mut(stream)) {
            rows.retain(|row| !range.contains(row));
        }
    }
}

fn is_subset(small: &Rows, large: &Rows) -> Result<(), String> {
    for (stream, rows) in small {
        let none = BTreeSet::new();
        let missing: Vec<u64> = rows.difference(large.get(stream).unwrap_or(&none)).copied().collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            return Err(format!("{} rows of {} from {first} to {last}", missing.len(), NAMES[*stream]));
        }
    }
    Ok(())
}

/// Looks at a damaged store, reads and repairs it. `least`: rows that repair must keep; `all`: those there ever were.
fn check(path: &Path, (least, all): (&Rows, &Rows), harmed: &[String], case: &str) {
    let scratch = tempfile::tempdir().expect("a folder");
    let before = contents(path);
    let found = inspect(path, Depth::Everything);
    let read = Store::open_read_only(path, options(), T0);
    let is_named = |text: &str| harmed.is_empty() || harmed.iter().any(|name| text.contains(name.as_str()));
    match &read {
        Ok(store) => {
            let (rows, errors) = rows_of(store, case);
            is_subset(&rows, all).unwrap_or_else(|e| panic!("{case}: read too much: {e}"));
            let report = store.recovery();
            if is_subset(least, &rows).is_err() {
                let named = report.damaged.iter().any(|damage| is_named(&damage.file));
                assert!(named || errors.iter().any(|e| is_named(e)), "{case}: {errors:?} {:?}", report.damaged);
            }
            let id = store.catalog().streams.iter().next().map(|stream| stream.id);
            if let Some(stream) = id {
                let mut batch = FrameBatch::new();
                batch.put(head(stream, T0), [Value::U64(0)]);
                let outcome = store.append(&batch, T0).outcomes.remove(0);
                assert!(matches!(outcome, Outcome::Rejected(_)), "{case}: {outcome:?}");
            }
        }
        Err(error) => assert!(error.to_string().contains(&path.display().to_string()), "{case}: {error}"),
    }
    drop(read);
    let into = scratch.path().join("new");
    match repair(path, &into, T0) {
        Err(error) => {
            assert!(least.values().all(BTreeSet::is_empty), "{case}: {error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{case}: {error}");
        }
        Ok(report) => {
            let store = Store::open(&into, options(), T0).unwrap_or_else(|error| panic!("{case}: {error}"));
            let (rows, errors) = rows_of(&store, case);
            assert!(errors.is_empty(), "{case}: {errors:?} after {report:?}");
            is_subset(&rows, all).unwrap_or_else(|e| panic!("{case}: repaired too much: {e}"));
            is_subset(least, &rows).unwrap_or_else(|e| panic!("{case}: lost {e}: {report:?}"));
            if rows != *all {
                assert!(!report.is_whole(), "{case}: lost without a word: {report:?}");
                let is_known = report.damage.iter().any(|damage| damage.file != "superblock");
                assert!(!is_known || tells_damage(&store), "{case}: the new store does not tell: {report:?}");
            }
            store.close(T0).expect("closed");
            let after = inspect(&into, Depth::Everything).expect("looked at");
            assert!(after.is_sound(), "{case}: {:?}", after.damage);
        }
    }
    assert!(contents(path) == before, "{case}: the source was written to");
    if let Ok(found) = found
        && !harmed.is_empty()
    {
        let named = found.damage.iter().any(|damage| is_named(&damage.file));
        let (rows, _) = Store::open_read_only(path, options(), T0)
            .map_or_else(|_| (Rows::new(), Vec::new()), |store| rows_of(&store, case));
        assert!(named || rows == *all, "{case}: verify says nothing: {:?}", found.damage);
    }
    // Last of all, as it writes.
    if let Ok(store) = Store::open(path, options(), T0) {
        let (rows, _) = rows_of(&store, case);
        is_subset(&rows, all).unwrap_or_else(|e| panic!("{case}: opened too much: {e}"));
    }
}

/// Whether `strongback.gaps` has a row of damage.
fn tells_damage(store: &Store) -> bool {
    let view = store.view();
    let table = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned();
    let Some(table) = table else { return false };
    let cause = table.layout.index("cause").expect("a column");
    view.scan(Scan::all(table.id, vec![cause])).filter_map(Result::ok).any(|batch| {
        (0..batch.len()).any(|row| matches!(batch.columns[0].cell(row), Ok(Value::String("damaged" | "torn"))))
    })
}

fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    if !path.is_dir() {
        return [(path.to_owned(), std::fs::read(path).expect("reads"))].into();
    }
    let entries = std::fs::read_dir(path).expect("a folder");
    entries.map(|e| e.expect("an entry").path()).map(|p| (p.clone(), std::fs::read(p).expect("reads"))).collect()
}

/// A store of a folder with its rows, ended cleanly or cut off, made once for many cases.
struct Original {
    files: BTreeMap<String, Vec<u8>>,
    rows: Rows,
    /// Those that are in segments.
    sealed: Rows,
    streams: BTreeMap<u32, usize>,
}

fn original(laps: u64, clean: bool) -> Original {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let rows = fill(&store, laps);
    let streams = streams(&store);
    if clean {
        store.close(T0).expect("closed");
    }
    drop(store);
    let mut files = BTreeMap::new();
    let mut sealed = Rows::new();
    for (path, bytes) in contents(dir.path()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".sbs") {
            for (_, rows) in blocks(&bytes) {
                for (id, rows) in rows {
                    if let Some(stream) = streams.get(&id) {
                        sealed.entry(*stream).or_default().extend(rows);
                    }
                }
            }
        }
        files.insert(name, bytes);
    }
    Original { files, rows, sealed, streams }
}

/// Puts a store where it was harmed; the folder's own identity is its superblock's, so that it is no copy.
fn put(files: &BTreeMap<String, Vec<u8>>, dir: &Path) {
    for (name, bytes) in files {
        std::fs::write(dir.join(name), bytes).expect("written");
    }
    // A folder of its own: as after `cp -a` and `store adopt`.
    let _ = Store::adopt(dir);
}

fn is_segment(name: &str, bytes: &[u8]) -> bool {
    name.ends_with(".sbs") && SegmentHeader::read(bytes).is_ok()
}

#[test]
fn damage_by_seed_is_named_and_repair_keeps_what_is_whole() {
    let seeds = std::env::var("REPAIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let originals = [original(120, true), original(120, false), original(3, false), original(3, true)];
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let original = &originals[random.usize(..originals.len())];
        let mut files = original.files.clone();
        files.remove("lock");
        files.remove("recent");
        let mut least = original.rows.clone();
        let mut harmed = Vec::new();
        for _ in 0..=random.usize(..2) {
            let names: Vec<String> = files.keys().cloned().collect();
            let name = names[random.usize(..names.len())].clone();
            let bytes = files[&name].clone();
            let all_of = |bytes: &[u8]| blocks(bytes).into_iter().flat_map(|(_, rows)| rows).collect::<Vec<_>>();
            let segment = is_segment(&name, &original.files[&name]);
            // What is not in segments is in the log, where a checkpoint says how its frames are laid out; a damaged
            // superblock takes no row away.
            if name == "log" || name.starts_with("checkpoint") {
                least.iter_mut().for_each(|(stream, rows)| {
                    let sealed = original.sealed.get(stream).cloned().unwrap_or_default();
                    rows.retain(|row| sealed.contains(row));
                });
            }
            harmed.push(name.clone());
            match random.u8(..5) {
                0 | 1 => {
                    let at = random.usize(..bytes.len().max(1));
                    if let Some(byte) = files.get_mut(&name).expect("there").get_mut(at) {
                        *byte ^= 1 << random.u8(..8);
                    }
                    if segment {
                        let hit: Vec<_> = blocks(&original.files[&name])
                            .into_iter()
                            .filter(|(place, _)| place.contains(&at))
                            .collect();
                        hit.iter().for_each(|(_, rows)| take(&mut least, &original.streams, rows));
                    }
                }
                2 => {
                    let to = random.usize(..bytes.len().max(1));
                    files.get_mut(&name).expect("there").truncate(to);
                    if segment {
                        let gone: Vec<_> =
                            blocks(&original.files[&name]).into_iter().filter(|(place, _)| place.end > to).collect();
                        gone.iter().for_each(|(_, rows)| take(&mut least, &original.streams, rows));
                    }
                }
                3 => {
                    files.remove(&name);
                    if segment {
                        take(&mut least, &original.streams, &all_of(&original.files[&name]));
                    }
                }
                _ => {
                    let other = names[random.usize(..names.len())].clone();
                    let (a, b) = (files[&name].clone(), files[&other].clone());
                    for name in [&name, &other] {
                        if is_segment(name, &original.files[name]) {
                            take(&mut least, &original.streams, &all_of(&original.files[name]));
                        }
                        if *name == "log" || name.starts_with("checkpoint") {
                            least.iter_mut().for_each(|(stream, rows)| {
                                let sealed = original.sealed.get(stream).cloned().unwrap_or_default();
                                rows.retain(|row| sealed.contains(row));
                            });
                        }
                    }
                    files.insert(name, b);
                    files.insert(other.clone(), a);
                    harmed.push(other);
                }
            }
        }
        let dir = tempfile::tempdir().expect("a folder");
        put(&files, dir.path());
        check(dir.path(), (&least, &original.rows), &harmed, &format!("seed {seed}, {harmed:?}"));
    }
}

#[test]
fn a_store_that_is_whole_comes_back_whole() {
    for clean in [true, false] {
        let original = original(60, clean);
        let dir = tempfile::tempdir().expect("a folder");
        put(&original.files, dir.path());
        let into = dir.path().join("new");
        let report = repair(dir.path(), &into, T0).expect("repaired");
        assert!(report.is_whole() && report.newest_checkpoint, "{report:?}");
        let store = open(&into, options());
        assert_eq!(rows_of(&store, "whole").0, original.rows);
        // It goes on where it was.
        let id = store.stream(&counting(NAMES[0]));
        let mut batch = FrameBatch::new();
        batch.put(head(id, T0), [Value::U64(0)]);
        let row = original.rows[&0].len() as u64;
        assert_eq!(store.append(&batch, T0).outcomes, [Outcome::Stored { row }]);
    }
}

#[test]
fn a_store_that_may_not_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    for clean in [true, false] {
        let original = original(60, clean);
        let dir = tempfile::tempdir().expect("a folder");
        // A copy, as on media that were burnt, and not adopted.
        for (name, bytes) in original.files.iter().filter(|(name, _)| *name != "lock") {
            std::fs::write(dir.path().join(name), bytes).expect("written");
        }
        let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).expect("set");
        set(0o555);
        let before = contents(dir.path());
        let store = Store::open_read_only(dir.path(), options(), T0).expect("opened");
        assert!(store.recovery().damaged.is_empty(), "{:?}", store.recovery());
        assert_eq!(rows_of(&store, "read"), (original.rows.clone(), Vec::new()));
        store.close(T0).expect("closed");
        // Two may read at a time, and nobody writes meanwhile.
        let others = [(); 2].map(|()| Store::open_read_only(dir.path(), options(), T0).expect("opened"));
        drop(others);
        drop(store);
        assert!(contents(dir.path()) == before);
        set(0o755);
    }
    // A writer has it alone.
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let refused = Store::open_read_only(dir.path(), options(), T0).err().expect("in use");
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    drop(store);
    assert!(matches!(Store::open_read_only(&dir.path().join("none"), options(), T0), Err(OpenError::Io { .. })));
}

#[test]
fn metadata_alone_takes_no_row_away() {
    let original = original(60, true);
    let metadata = ["superblock", "checkpoint.a", "checkpoint.b", "log"];
    for harmed in [vec![0], vec![1], vec![2], vec![3], vec![1, 2], vec![0, 1, 2], vec![0, 1, 2, 3]] {
        let mut files = original.files.clone();
        let names: Vec<String> = harmed.iter().map(|n: &usize| metadata[*n].to_owned()).collect();
        names.iter().for_each(|name| drop(files.remove(name)));
        let dir = tempfile::tempdir().expect("a folder");
        put(&files, dir.path());
        if let Err(error) = Store::open(dir.path(), options(), T0) {
            let told = error.to_string();
            assert!(told.contains("store repair"), "{names:?}: {told}");
        }
        check(dir.path(), (&original.rows, &original.rows), &names, &format!("{names:?}"));
    }
}

#[test]
fn a_store_of_a_fixed_size_is_repaired_into_a_folder() {
    let seeds = std::env::var("REPAIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("fixed.sb");
    let fixed = FixedOptions { max_streams: 8, max_channels: 32, ..FixedOptions::new(4 << 20) };
    let store = Store::create_fixed(&path, &fixed, options(), T0).expect("made");
    let rows = fill(&store, 80);
    drop(store);
    let bytes = std::fs::read(&path).expect("reads");
    check(&path, (&rows, &rows), &[], "whole");
    std::fs::write(&path, &bytes).expect("written");
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut harmed = bytes.clone();
        // The beginning, where everything is said, as often as the rest.
        let end = if random.bool() { 512 << 10 } else { harmed.len() };
        let at = random.usize(..end);
        if random.bool() {
            harmed[at] ^= 1 << random.u8(..8);
        } else {
            let page = at / PAGE * PAGE;
            harmed[page..page + PAGE].fill(0);
        }
        std::fs::write(&path, &harmed).expect("written");
        check(&path, (&Rows::new(), &rows), &[], &format!("seed {seed}, offset {at}"));
    }
    // A copy that was interrupted: what lies before its end is read.
    for eighths in 1..8 {
        let len = bytes.len() / 8 * eighths;
        std::fs::write(&path, &bytes[..len]).expect("written");
        let case = format!("cut to {len} of {} bytes", bytes.len());
        let error = Store::open(&path, options(), T0).err().expect("the end is missing").to_string();
        assert!(error.contains("store repair"), "{case}: {error}");
        let left = Store::open_read_only(&path, options(), T0).unwrap_or_else(|error| panic!("{case}: {error}"));
        let (found, _) = rows_of(&left, &case);
        let told = format!("only {len} are there");
        assert!(left.recovery().damaged.iter().any(|damage| damage.reason.contains(&told)), "{case}");
        drop(left);
        if eighths >= 4 {
            assert!(found.values().map(BTreeSet::len).sum::<usize>() > 1_000, "{case}: {found:?}");
        }
        check(&path, (&found, &rows), &[], &case);
    }
}

/// What frames were seen of each stream is kept: one that comes again is a duplicate, and one that is late fills its gap.
#[test]
fn sequences_go_on_where_they_were() {
    let dir = tempfile::tempdir().expect("a folder");
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let send = |store: &Store, sequences: &mut dyn Iterator<Item = u64>| {
        let id = store.stream(&counting("numbered").modulus(Some(1 << 32)));
        let mut batch = FrameBatch::new();
        for sequence in sequences {
            batch.put(head(id, T0).numbered(Some(sequence)), [Value::U64(sequence)]);
        }
        let outcomes = store.append(&batch, T0).outcomes;
        store.upkeep(T0);
        (outcomes, store.counts(id))
    };
    let store = open(&old, options());
    send(&store, &mut (100..400).filter(|sequence| *sequence != 350));
    store.close(T0).expect("closed");
    let report = repair(&old, &new, T0).expect("repaired");
    assert!(report.is_whole(), "{report:?}");
    let store = open(&new, options());
    let (outcomes, counts) = send(&store, &mut [360, 350, 400].into_iter());
    assert_eq!(outcomes, [Outcome::Duplicate, Outcome::Stored { row: 299 }, Outcome::Stored { row: 300 }]);
    assert_eq!((counts.filled, counts.open_before, counts.duplicate), (1, 1, 1), "{counts:?}");
}

/// The checkpoint alone knows that a clock leapt after what is in a segment was stored: a new store that went by the
/// blocks would drop it as if it were as old as the wrong clock said.
#[test]
fn what_counts_as_stored_at_a_leap_does_so_in_the_repaired_store() {
    let (dir, into) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let open = |path: &Path, now| Store::open(path, options(), now).expect("opened");
    let store = open(dir.path(), T0);
    fill(&store, 60);
    store.close(T0).expect("closed");
    // Nobody can tell whether so long nothing ran or a clock was wrong before.
    let leap = T0 + 900 * 86_400_000_000_000;
    let store = open(dir.path(), leap);
    while store.maintain(leap).expect("kept up") {}
    store.close(leap).expect("closed");
    let stored = |store: &Store| -> BTreeMap<u64, i64> {
        let sealed = store.segments().into_iter().filter(|segment| segment.sealed);
        sealed.filter_map(|segment| Some((segment.id, segment.stored?.1))).collect()
    };
    let store = open(dir.path(), leap);
    let before = stored(&store);
    store.close(leap).expect("closed");
    assert!(before.values().filter(|newest| **newest >= leap).count() > 1, "{before:?}");
    let into = into.path().join("new");
    repair(dir.path(), &into, leap).expect("repaired");
    let after = stored(&open(&into, leap));
    for (id, newest) in before {
        assert_eq!(after.get(&id), Some(&newest), "segment {id}");
    }
}
