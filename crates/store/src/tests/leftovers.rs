//! What an opening finds and must not believe, or must tell of: what only the cache holds, a damaged log, an old superblock.

use std::sync::atomic::Ordering;

use super::{faults, fixed};
use crate::disk::fault::{Fault, FaultDisk, VOLUME};
use crate::log::LogPosition;
use crate::log::superblock::{Superblock, SuperblockState};
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    sized(1 << 20, 256 << 10)
}

fn try_open(disk: &FaultDisk) -> Result<Store, OpenError> {
    disk.open_store(options(), T0)
}

fn stream(store: &Store) -> StreamId {
    store.stream(&counting("t"))
}

/// Appends rows that say their number; how many were stored.
fn append(store: &Store, from: u64, rows: u64) -> u64 {
    let stream = stream(store);
    let (mut batch, mut random) = (FrameBatch::new(), fastrand::Rng::with_seed(from));
    for row in from..from + rows {
        batch.put(head(stream, T0 + row as i64), [Value::U64(row), Value::U64(random.u64(..))]);
    }
    store.send(&batch, T0 + from as i64)
}

fn rows(store: &Store) -> Vec<u64> {
    faults::rows(store, stream(store))
}

#[test]
fn what_an_opening_failed_to_sync_is_not_believed_by_the_next() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        let store = open(&disk, options());
        append(&store, 0, 100);
        store.commit(T0).expect("committed");
        let disk = disk.after_cut();
        disk.fail_syncs("log", 1);
        assert!(matches!(try_open(&disk), Err(OpenError::Io { .. })), "seed {seed}");
        let store = open(&disk, options());
        append(&store, 100, 50);
        store.commit(T0).expect("committed");
        let disk = disk.after_cut();
        assert_eq!(rows(&open(&disk, options())), (0..150).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn blocks_that_only_the_cache_holds_are_synced_before_the_log_forgets_them() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        fixed::make_on(&disk, &FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(2 << 20) });
        let open = |disk: &FaultDisk| fixed::open_on(disk, StoreOptions::default(), T0).expect("opened");
        let store = open(&disk);
        let mut next = 0;
        // Until blocks are written and their sync is not done: as if the process were killed there.
        while store.refusal().is_none_or(|refusal| refusal == Refusal::LogFull) {
            disk.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
            next += append(&store, next, 200);
            store.commit(T0).expect("committed");
            disk.faults.syncs_left.store(0, Ordering::Relaxed);
            while store.maintain(T0).is_ok_and(|more| more) {}
        }
        disk.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
        assert!(store.close(T0).is_err());
        let store = open(&disk);
        assert_eq!(rows(&store).len() as u64, next, "seed {seed}");
        // The log goes on past the rows of these blocks.
        for _ in 0..4 {
            next += append(&store, next, 100);
            store.upkeep(T0);
        }
        let disk = disk.after_cut();
        let store = open(&disk);
        assert_eq!(rows(&store).len() as u64, next, "seed {seed}: {:?}", store.recovery());
        assert!(disk.content(VOLUME).is_some());
    }
}

/// A sync that finds no space leaves its pages in the cache, where they count as written, and on the disk they are not:
/// an opening after the process was killed must not read them from there, nor take a later sync for theirs.
#[test]
fn what_a_sync_without_space_left_in_the_cache_is_not_believed_after_a_kill() {
    for before in 0..30 {
        for at_opening in [false, true] {
            let what = format!("{before} calls before, at the opening: {at_opening}");
            let disk = FaultDisk::new(before);
            let store = open(&disk, options());
            let mut next = append(&store, 0, 3_000);
            store.commit(T0).expect("committed");
            // In the one case the sync fails, in the other what was written is left to be synced by the next opening.
            if at_opening {
                disk.faults.syncs_left.store(before % 8, Ordering::Relaxed);
            } else {
                disk.fail_call(Fault::NoSpace, before, 3);
            }
            for _ in 0..12 {
                let _ = store.maintain(T0);
            }
            let well = |disk: &FaultDisk| {
                disk.heal();
                disk.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
            };
            well(&disk);
            drop(store);
            let disk = disk.after_kill();
            if at_opening {
                disk.fail_call(Fault::NoSpace, before / 8, 3);
            }
            let store = try_open(&disk);
            well(&disk);
            let store = store.unwrap_or_else(|_| open(&disk, options()));
            assert_eq!(rows(&store).len() as u64, next, "{what}");
            // The log goes on past the rows.
            for _ in 0..8 {
                next += append(&store, next, 3_000);
                store.upkeep(T0);
            }
            drop(store);
            let disk = disk.after_cut();
            assert_eq!(rows(&open(&disk, options())), (0..next).collect::<Vec<_>>(), "{what}");
        }
    }
}

/// A log of six commits of ten rows, and where their units begin.
fn six_commits() -> (FaultDisk, Vec<usize>) {
    let disk = FaultDisk::new(7);
    let store = open(&disk, options());
    for n in 0..6 {
        append(&store, n * 10, 10);
        store.commit(T0).expect("committed");
    }
    let log = disk.content("log").expect("a log");
    let begins = (0..log.len()).step_by(4096).filter(|&at| log[at..].starts_with(b"SBLU")).collect();
    (disk.after_cut(), begins)
}

/// Rows of gaps: cause, and the rows of the stream that they name.
fn gaps(store: &Store) -> Vec<(String, Option<(u64, u64)>)> {
    let view = store.view();
    let found = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned();
    let Some(table) = found else { return Vec::new() };
    let columns = ["cause", "from_row", "to_row"].map(|name| table.layout.index(name).expect("a column"));
    let mut gaps = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns.to_vec())) {
        let batch = batch.expect("reads");
        for at in 0..batch.len() {
            let cell = |column: usize| batch.columns[column].cell(at);
            let Ok(Value::String(cause)) = cell(0) else { panic!("row {at} has no cause") };
            let rows = match (cell(1), cell(2)) {
                (Ok(Value::U64(from)), Ok(Value::U64(to))) => Some((from, to)),
                _ => None,
            };
            gaps.push((cause.to_owned(), rows));
        }
    }
    gaps
}

/// `time` of the data before and after each gap.
fn times_of_gaps(store: &Store) -> Vec<(i64, i64)> {
    let view = store.view();
    let table = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned().expect("gaps");
    let columns = ["from_time", "to_time"].map(|name| table.layout.index(name).expect("a column"));
    let mut times = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns.to_vec())) {
        let batch = batch.expect("reads");
        for at in 0..batch.len() {
            let time = |column: usize| match batch.columns[column].cell(at) {
                Ok(Value::I64(time)) => time,
                other => panic!("row {at} has no time: {other:?}"),
            };
            times.push((time(0), time(1)));
        }
    }
    times
}

/// An opening that ends before its first commit has told all the same what it found: its own unit may be where the
/// damage was.
#[test]
fn damage_is_told_by_an_opening_that_ends_at_once() {
    // In a header, and in records.
    for at in [24, 64] {
        let (disk, begins) = six_commits();
        disk.rot("log", begins[3] + at, 0x10);
        let store = open(&disk, options());
        let (left, told) = (rows(&store), gaps(&store));
        assert!(left.len() < 60 && told.iter().any(|(cause, _)| cause == "damaged"), "offset {at}: {told:?}");
        drop(store);
        for upkeep in [false, true] {
            let disk = disk.after_cut();
            let store = open(&disk, options());
            if upkeep {
                while store.maintain(T0).expect("kept up") {}
            }
            drop(store);
            let store = open(&disk.after_cut(), options());
            assert_eq!(rows(&store), left, "offset {at}, upkeep {upkeep}");
            let again = gaps(&store);
            assert!(told.iter().all(|gap| again.contains(gap)), "offset {at}, upkeep {upkeep}: {again:?}");
        }
    }
}

/// A unit may be larger than what is read at a time.
#[test]
fn a_large_commit_whose_header_is_gone_is_told() {
    let large = StoreOptions { log_bytes: 32 << 20, ..options() };
    for (at, bit) in [(0, 0xff), (24, 1)] {
        let disk = FaultDisk::new(9);
        let store = open(&disk, &large);
        append(&store, 0, 10);
        store.commit(T0).expect("committed");
        append(&store, 10, 60_000);
        store.commit(T0).expect("committed");
        append(&store, 60_010, 10);
        store.commit(T0).expect("committed");
        let log = disk.content("log").expect("a log");
        let begins: Vec<usize> = (0..log.len()).step_by(4096).filter(|&at| log[at..].starts_with(b"SBLU")).collect();
        assert!(begins[3] - begins[2] > 2 << 20, "{begins:?}");
        let disk = disk.after_cut();
        disk.rot("log", begins[2] + at, bit);
        let found = super::settle::verify(&disk);
        assert_eq!(found.damage.first().map(|damage| damage.file.as_str()), Some("log"), "offset {at}");
        let store = open(&disk, &large);
        assert_eq!(rows(&store), (0..10).collect::<Vec<_>>(), "offset {at}");
        assert!(!store.recovery().damaged.is_empty() && gaps(&store).len() == 1, "offset {at}");
    }
}

/// A bit that flips in the version of one copy is damage, not a newer store.
#[test]
fn a_flipped_version_of_a_copy_of_the_superblock_is_damage() {
    for bit in 1..32 {
        for copy in 0..2 {
            let (disk, _) = six_commits();
            disk.rot("superblock", copy * 4096 + 8 + bit / 8, 1 << (bit % 8));
            match try_open(&disk) {
                Ok(store) => assert_eq!(rows(&store).len(), 60, "bit {bit}, copy {copy}"),
                Err(OpenError::Damaged { .. }) => {}
                Err(error) => panic!("bit {bit}, copy {copy}: {error}"),
            }
        }
    }
}

#[test]
fn commits_behind_one_with_damaged_records_are_read() {
    for at in [64, 100, 200] {
        let (disk, begins) = six_commits();
        disk.rot("log", begins[3] + at, 0x10);
        let store = open(&disk, options());
        let mut left: Vec<u64> = (0..20).chain(30..60).collect();
        assert_eq!(rows(&store), left, "offset {at}");
        let report = store.recovery();
        let damaged: Vec<_> = report.damaged.iter().map(|damage| (damage.file.as_str(), damage.offset)).collect();
        assert_eq!((damaged, report.lost_rows), (vec![("log", begins[3] as u64)], 10), "offset {at}");
        let reason = &report.damaged[0].reason;
        assert_eq!(reason, "commit 4 is damaged and lost; those after it are whole", "offset {at}");
        // Told with the first unit of the opening, before anything moves past the damage.
        let told = vec![("damaged".into(), None), ("damaged".into(), Some((20, 29)))];
        assert_eq!(gaps(&store), told, "offset {at}");
        assert_eq!(times_of_gaps(&store), [(T0, T0), (T0 + 19, T0 + 30)], "offset {at}");
        // It goes on behind them, and once upkeep has put what was before the damage into segments, it is not told
        // again.
        append(&store, 60, 10);
        left.extend(60..70);
        store.upkeep(T0);
        let disk = disk.after_cut();
        let store = open(&disk, options());
        assert_eq!((rows(&store), gaps(&store)), (left, told), "offset {at}");
        assert_eq!(store.recovery().damaged, [], "offset {at}");
    }
    // Several in a row, and at two places.
    let (disk, begins) = six_commits();
    [1, 3, 4].into_iter().for_each(|n| disk.rot("log", begins[n] + 70, 0x10));
    let store = open(&disk, options());
    assert_eq!(rows(&store), Vec::<u64>::new(), "the definition of the stream is lost with the first");
    let (disk, begins) = six_commits();
    [2, 4, 5].into_iter().for_each(|n| disk.rot("log", begins[n] + 70, 0x10));
    let store = open(&disk, options());
    assert_eq!(rows(&store), (0..10).chain(20..30).chain(50..60).collect::<Vec<_>>());
    assert_eq!((store.recovery().damaged.len(), store.recovery().lost_rows), (2, 30));
}

/// A frame that was left out within its bound tells of the rows before it, as a row does.
#[test]
fn a_held_frame_behind_a_damaged_commit_is_the_newest() {
    let disk = FaultDisk::new(8);
    let store = open(&disk, options());
    let reduction = Reduction::Deadband { bound: 10.0 };
    let lossy = spec("lossy", [ChannelSpec { reduction, ..ChannelSpec::new("x", ChannelType::F64) }]);
    let id = store.stream(&lossy);
    let send = |store: &Store, n: i64, value: f64| {
        let mut batch = FrameBatch::new();
        batch.put(head(id, T0 + n), [Value::F64(value)]);
        store.append(&batch, T0 + n);
        store.commit(T0 + n).expect("committed");
    };
    [0.0, 100.0, 200.0, 201.0, 202.0].into_iter().enumerate().for_each(|(n, value)| send(&store, n as i64, value));
    let log = disk.content("log").expect("a log");
    let begins: Vec<usize> = (0..log.len()).step_by(4096).filter(|&at| log[at..].starts_with(b"SBLU")).collect();
    let disk = disk.after_cut();
    // The unit of row 2, which rows alone are in.
    disk.rot("log", begins[3] + 64, 0x10);
    let store = open(&disk, options());
    let newest = |store: &Store| {
        let state = store.view().state_at(id, i64::MAX, &[ChannelIndex(0)]).expect("reads");
        let cell = state[0].clone().expect("a state");
        (cell.row, cell.value)
    };
    let rows = |store: &Store| -> Vec<u64> {
        store.view().scan(Scan::all(id, Vec::new())).flat_map(|batch| batch.expect("reads").rows).collect()
    };
    assert_eq!((rows(&store), store.recovery().lost_rows), (vec![0, 1], 1));
    assert_eq!(newest(&store), (3, Some(OwnedValue::Plain(Value::F64(202.0)))));
    assert!(gaps(&store).contains(&("damaged".into(), Some((2, 2)))), "{:?}", gaps(&store));
    send(&store, 5, 400.0);
    let disk = disk.after_cut();
    let store = open(&disk, options());
    // The held frame got its row when the next one came; no number is given again.
    assert_eq!(rows(&store), [0, 1, 3, 4]);
    assert_eq!(newest(&store).1, Some(OwnedValue::Plain(Value::F64(400.0))));
}

#[test]
fn commits_that_need_what_a_damaged_one_defined_are_not_read() {
    for widened in [false, true] {
        let disk = FaultDisk::new(7);
        let store = open(&disk, options());
        append(&store, 0, 10);
        store.commit(T0).expect("committed");
        for n in 1..3 {
            // Each commit defines a channel more, and each definition lists only what is new.
            let mut wide = counting("t");
            let names = ["a", "b"].iter().take(n);
            wide.channels.extend(names.map(|name| ChannelSpec::new(*name, ChannelType::F64)));
            let id = store.stream(&if widened { wide } else { counting(format!("more {n}")) });
            let mut batch = FrameBatch::new();
            batch.put(head(id, T0 + 100 + n as i64), [Value::U64(n as u64), Value::U64(0)]);
            assert_eq!(store.send(&batch, T0), 1);
            store.commit(T0).expect("committed");
        }
        let log = disk.content("log").expect("a log");
        let begins: Vec<usize> = (0..log.len()).step_by(4096).filter(|&at| log[at..].starts_with(b"SBLU")).collect();
        let disk = disk.after_cut();
        disk.rot("log", begins[2] + 64, 0x10);
        let store = open(&disk, options());
        assert_eq!(rows(&store), (0..10).collect::<Vec<_>>(), "widened {widened}");
        assert!(store.catalog().streams.iter().all(|s| !s.key.table.starts_with("more")), "widened {widened}");
        let reason = &store.recovery().damaged[0].reason;
        assert_eq!(reason, "commit 3 is damaged, and what was committed after it, to 4 at least, lost");
        // What follows gets its definitions.
        append(&store, 10, 10);
        store.commit(T0).expect("committed");
        assert_eq!(rows(&open(&disk.after_cut(), options())), (0..20).collect::<Vec<_>>(), "widened {widened}");
    }
}

#[test]
fn a_log_whose_chain_is_damaged_in_its_middle_is_told() {
    // The first unit begins the epoch.
    for at in [0, 24, 56, 60] {
        let (disk, begins) = six_commits();
        disk.rot("log", begins[3] + at, 0x10);
        let store = open(&disk, options());
        assert_eq!(rows(&store), (0..20).collect::<Vec<_>>(), "offset {at}");
        let report = store.recovery();
        let damaged: Vec<_> = report.damaged.iter().map(|damage| (damage.file.as_str(), damage.offset)).collect();
        assert_eq!(damaged, [("log", begins[3] as u64)], "offset {at}");
        assert!(report.damaged[0].reason.contains("commit 4"), "{}", report.damaged[0].reason);
        store.commit(T0).expect("committed");
        let gaps = store.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").expect("gaps").id;
        assert_eq!(store.view().next_row(gaps), 1, "offset {at}");
    }
    // Of the last commit nothing follows: it looks as one that was cut short.
    for at in [0, 8, 24, 60, 64, 100] {
        let (disk, begins) = six_commits();
        disk.rot("log", begins[6] + at, 0x10);
        let store = open(&disk, options());
        assert_eq!(rows(&store), (0..50).collect::<Vec<_>>(), "offset {at}");
        assert!(store.recovery().torn_bytes > 0, "offset {at}");
    }
    let (disk, _) = six_commits();
    let report = open(&disk, options()).recovery();
    assert!(report.damaged.is_empty() && report.torn_bytes == 0, "{report:?}");
}

/// Where the log begins, as a copy of the superblock says.
fn tail_of(page: &[u8]) -> LogPosition {
    match Superblock::decode(page) {
        SuperblockState::Valid(found) => found.tail.position,
        _ => LogPosition::default(),
    }
}

#[test]
fn an_old_superblock_is_not_taken_for_the_newest() {
    let mut refused = 0;
    for copy in 0..2 {
        let disk = FaultDisk::new(3);
        let store = open(&disk, options());
        let mut next = 0;
        // Until the log's tail moved with the newest copy.
        let far = options().log_bytes / 8;
        for lap in 0.. {
            next += append(&store, next, 1_000);
            store.upkeep(T0);
            let tails: Vec<LogPosition> =
                disk.content("superblock").expect("a superblock").chunks(4096).map(tail_of).collect();
            if tails[0].max(tails[1]) - tails[0].min(tails[1]) >= far {
                break;
            }
            assert!(lap < 1_000, "{tails:?}");
        }
        // The log goes on over what the older copy says is its beginning.
        loop {
            let stored = append(&store, next, 100);
            next += stored;
            store.commit(T0).expect("committed");
            if stored < 100 {
                break;
            }
        }
        let disk = disk.after_cut();
        disk.rot("superblock", copy * 4096 + 24, 0x01);
        match try_open(&disk) {
            Ok(store) => assert_eq!(rows(&store), (0..next).collect::<Vec<_>>()),
            Err(error) => {
                assert!(error.to_string().contains("newest copy is lost"), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 1);
}
