//! Faults one by one: a full disk, a failing one, rot.

use std::sync::atomic::Ordering;

use crate::disk::Disk;
use crate::disk::fault::{Fault, FaultDisk};
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    sized(2 << 20, 256 << 10)
}

fn noisy(name: &str) -> StreamSpec {
    spec(name, [("x", ChannelType::U64), ("y", ChannelType::F64)])
}

/// Appends `rows` frames whose value is their row; returns how many were stored.
fn append(store: &Store, stream: StreamId, from: u64, rows: u64) -> u64 {
    let mut batch = FrameBatch::new();
    let mut random = fastrand::Rng::with_seed(from);
    for row in from..from + rows {
        let receive_time = T0 + row as i64 * 1_000_000;
        batch.put(head(stream, receive_time), [Value::U64(row), Value::F64(random.f64())]);
    }
    store.send(&batch, T0 + (from + rows) as i64 * 1_000_000)
}

/// The numbers of the rows that are there, which are those they say.
pub(super) fn rows(store: &Store, stream: StreamId) -> Vec<u64> {
    let scan = Scan::all(stream, vec![ChannelIndex(0)]);
    let mut rows = Vec::new();
    for batch in store.view().scan(scan) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            assert_eq!(batch.columns[0].cell(i), Ok(Value::U64(batch.rows[i])));
            rows.push(batch.rows[i]);
        }
    }
    rows
}

#[test]
fn a_full_disk_refuses_and_resumes_alone() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    // Nothing of it may go.
    store.protect_run("kept", T0).expect("protected");
    let s = store.stream(&noisy("t").tag("run", "kept"));
    let mut next = append(&store, s, 0, 1000);
    store.upkeep(T0);
    // Room for what is there, not for another segment.
    let (total, free) = disk.space().expect("space");
    disk.faults.capacity_bytes.store(total - free + (100 << 10), Ordering::Relaxed);
    for _ in 0..200 {
        next += append(&store, s, next, 500);
        store.upkeep(T0);
        if store.refusal().is_some() {
            break;
        }
    }
    assert_eq!(store.refusal(), Some(Refusal::DiskFull));
    assert_eq!(append(&store, s, next, 10), 0);
    assert!(store.counts(s).rejected >= 10);
    store.upkeep(T0);
    assert_eq!(rows(&store, s), (0..next).collect::<Vec<_>>(), "what was taken stays readable");
    disk.faults.capacity_bytes.store(u64::MAX, Ordering::Relaxed);
    store.upkeep(T0);
    assert_eq!(store.refusal(), None);
    next += append(&store, s, next, 3000);
    store.upkeep(T0);
    assert_eq!(rows(&store, s), (0..next).collect::<Vec<_>>());
    store.close(T0).expect("closed");
    assert_eq!(rows(&open(&disk, options()), s), (0..next).collect::<Vec<_>>());
}

/// Whether a commit waits to be written or only upkeep found that the disk refuses: nobody need commit first.
#[test]
fn what_a_disk_refuses_for_a_time_is_taken_again_without_a_commit() {
    for fault in [Fault::ReadOnly, Fault::NoSpace] {
        for waits in [false, true] {
            let disk = FaultDisk::new(1);
            let store = open(&disk, options());
            let s = store.stream(&noisy("a"));
            let mut next = append(&store, s, 0, 3_000);
            store.commit(T0).expect("committed");
            disk.fail_call(fault, 0, u64::MAX);
            if waits {
                next += append(&store, s, next, 10);
                assert!(store.commit(T0).is_err());
            }
            for step in 0..100 {
                store.maintain(T0 + step).expect("no reason to give up");
            }
            assert!(store.refusal().is_some(), "{fault:?}, {waits}");
            disk.heal();
            for step in 100..120 {
                store.maintain(T0 + step).expect("maintained");
            }
            assert_eq!(store.refusal(), None, "{fault:?}, {waits}");
            assert_eq!(append(&store, s, next, 10), 10, "{fault:?}, {waits}");
            next += 10;
            store.commit(T0).expect("committed");
            drop(store);
            assert_eq!(rows(&open(&disk.after_cut(), options()), s), (0..next).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_failed_sync_poisons_until_recovery() {
    let disk = FaultDisk::new(2);
    let store = open(&disk, options());
    let s = store.stream(&noisy("t"));
    append(&store, s, 0, 100);
    store.upkeep(T0);
    append(&store, s, 100, 100);
    disk.faults.syncs_left.store(0, Ordering::Relaxed);
    let error = store.commit(T0).expect_err("the sync failed");
    assert!(matches!(error, Refusal::Poisoned(_)), "{error}");
    disk.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
    // Never a second sync of the same pages; frames are refused, reads go on.
    assert!(matches!(store.commit(T0), Err(Refusal::Poisoned(_))));
    assert!(matches!(store.maintain(T0), Err(Refusal::Poisoned(_))));
    assert_eq!(append(&store, s, 200, 10), 0);
    assert_eq!(store.committed_row(s), 100);
    assert_eq!(rows(&store, s).len(), 200);
    let epoch = store.epoch();
    assert!(store.wait_committed(CommitNumber(u64::MAX), std::time::Duration::ZERO).is_err());
    // The folder is free after close, though a clone lives on.
    assert!(store.close(T0).is_err());
    let again = open(&disk, options());
    assert!(again.epoch() > epoch);
    assert!(rows(&again, s).len() >= 100);
}

/// Datagrams that the kernel dropped up to an instant.
pub(super) fn kernel_gap(to: i64, count: u64) -> Gap {
    Gap {
        id: 0,
        stream: None,
        cause: GapCause::Kernel,
        source: "udp".into(),
        name: String::new(),
        session: None,
        sequence: None,
        rows: None,
        time: (T0, to),
        count,
    }
}

#[test]
fn old_segments_go_first_and_gap_rows_never() {
    let disk = FaultDisk::new(3);
    let store = open(&disk, StoreOptions { max_bytes: Some(6 << 20), ..options() });
    let s = store.stream(&noisy("t"));
    store.report_gap(kernel_gap(T0 + 5, 7));
    let mut next = 0;
    for _ in 0..1200 {
        next += append(&store, s, next, 500);
        store.upkeep(T0 + next as i64 * 1_000_000);
        // A checkpoint may just have been allocated larger.
        assert!(store.stats().disk_bytes <= (6 << 20) + (128 << 10), "{:?}", store.stats());
    }
    let kept = rows(&store, s);
    assert!(kept[0] > 0 && *kept.last().expect("rows") == next - 1);
    assert!(kept.windows(2).all(|w| w[1] == w[0] + 1));
    assert_eq!(store.view().next_row(s), next);
    let catalog = store.catalog();
    let gaps = catalog.streams.iter().find(|s| s.key.table == "strongback.gaps").expect("gaps");
    let count =
        |store: &Store| store.view().scan(Scan::all(gaps.id, vec![])).map(|b| b.expect("reads").len()).sum::<usize>();
    assert_eq!(count(&store), 1);
    store.close(T0 + next as i64 * 1_000_000).expect("closed");
    // Ordinals survive expiry and reopening.
    let store = open(&disk, options());
    assert_eq!((store.view().next_row(s), count(&store)), (next, 1));
    assert_eq!(rows(&store, s), kept);
}

#[test]
fn gap_rows_take_their_share_and_leave_the_rest_to_data() {
    let disk = FaultDisk::new(5);
    let store = open(&disk, StoreOptions { max_bytes: Some(8 << 20), segment_bytes: 128 << 10, ..options() });
    let s = store.stream(&noisy("t"));
    let (mut next, mut random) = (append(&store, s, 0, 60_000), fastrand::Rng::with_seed(5));
    store.upkeep(T0);
    let kept = rows(&store, s).len();
    for round in 0..600 {
        for _ in 0..50 {
            let name = std::iter::repeat_with(|| random.alphanumeric()).take(200).collect();
            store.report_gap(Gap { name, count: random.u64(..), ..kernel_gap(T0 + round, 1) });
        }
        next += append(&store, s, next, 10);
        store.upkeep(T0 + round * 1_000_000_000);
        assert_eq!(store.refusal(), None, "round {round}");
    }
    let gaps: u64 = store.segments().iter().filter(|s| s.group == "gaps").map(|s| s.size_bytes).sum();
    assert!(gaps <= (8 << 20) / 32 + (128 << 10), "{gaps} bytes of gap rows");
    assert!(rows(&store, s).len() >= kept, "{next} rows of data, {} are left", rows(&store, s).len());
    assert!(store.stats().disk_bytes <= 8 << 20);
}

#[test]
fn rot_is_reported_and_the_rest_is_read() {
    let disk = FaultDisk::new(4);
    let store = open(&disk, options());
    let s = store.stream(&noisy("t"));
    let mut next = 0;
    while store.segments().iter().map(|s| s.blocks).sum::<u64>() < 20 {
        next += append(&store, s, next, 500);
        store.upkeep(T0);
    }
    let segment = store.segments()[0].id;
    disk.rot(&crate::segment::directory::file_name(segment), 8192 + 300, 0x10);
    let found: Vec<_> = store.view().scan(Scan::all(s, vec![ChannelIndex(0)])).collect();
    let damaged = found.iter().filter(|b| matches!(b, Err(ScanError::Damaged { .. }))).count();
    assert_eq!(damaged, 1, "{:?}", found.iter().filter_map(|b| b.as_ref().err()).collect::<Vec<_>>());
    let read: usize = found.iter().flatten().map(|b| b.len()).sum();
    assert!(read > 1000 && read < next as usize);
}

#[test]
fn a_segment_that_vanishes_is_named_told_and_passed_over() {
    let disk = FaultDisk::new(6);
    let store = open(&disk, options());
    let s = store.stream(&noisy("t"));
    let mut next = 0;
    while store.segments().len() < 6 {
        next += append(&store, s, next, 500);
        store.upkeep(T0);
    }
    let gone = store.segments().iter().filter(|segment| segment.sealed).nth(2).expect("a segment").clone();
    let name = crate::segment::directory::file_name(gone.id);
    Disk::remove(&disk, &name).expect("removed");
    let (from, to) = gone.time.expect("rows");
    let scan = |time: std::ops::Range<i64>| {
        let all = Scan { time, ..Scan::all(s, vec![ChannelIndex(0)]) };
        store.view().scan(all).collect::<Vec<_>>()
    };
    // A query over other times alone does not notice.
    assert!(scan(i64::MIN..from).iter().chain(&scan(to + 1..i64::MAX)).all(Result::is_ok));
    let found = scan(i64::MIN..i64::MAX);
    let named = |error: &ScanError| matches!(error, ScanError::Damaged { file, .. } if file.ends_with(&name));
    assert!(found.iter().any(|batch| batch.as_ref().is_err_and(named)), "{found:?}");
    assert!(found.iter().all(|batch| batch.as_ref().err().is_none_or(named)));
    // The next query gets what is left, and one row says what is gone.
    let left = rows(&store, s);
    assert!(left.len() < next as usize && left.first() == Some(&0) && left.last() == Some(&(next - 1)));
    let said = |store: &Store| {
        let gaps = store.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps")?.clone();
        let column = gaps.layout.index("name")?;
        let batches = store.view().scan(Scan::all(gaps.id, vec![column])).map(|batch| batch.expect("reads"));
        let is_it = |batch: &Batch, row| batch.columns[0].cell(row) == Ok(Value::String(&name));
        Some(batches.map(|batch| (0..batch.len()).filter(|&row| is_it(&batch, row)).count()).sum::<usize>())
    };
    for second in 1..5 {
        store.upkeep(T0 + second * 2_000_000_000);
    }
    assert_eq!(said(&store), Some(1));
    store.close(T0).expect("closed");
    let store = open(&disk, options());
    store.upkeep(T0);
    assert_eq!((said(&store), rows(&store, s)), (Some(1), left));
}

/// Verification sees what an opening would find lost in the log, in a header as in records.
#[test]
fn a_damaged_commit_is_told_before_an_opening_drops_what_follows() {
    for at in [20, 60, 72] {
        let disk = FaultDisk::new(5);
        let store = open(&disk, StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() });
        let (stream, columns) = store.resolve(&spec("t", [("x", ChannelType::F64)]), T0).expect("resolved");
        for n in 0..40 {
            let mut batch = FrameBatch::new();
            batch.put_at(head(stream.id, T0 + n), [(columns[0], Value::F64(n as f64))]);
            store.append(&batch, T0 + n);
            store.commit(T0 + n).expect("committed");
        }
        drop(store);
        let disk = disk.after_kill();
        assert!(super::settle::verify(&disk).is_sound(), "nothing is damaged yet");
        let log = disk.content("log").expect("a log");
        let units: Vec<usize> = (0..log.len()).step_by(4096).filter(|at| log[*at..].starts_with(b"SBLU")).collect();
        disk.rot("log", units[units.len() / 2] + at, 1);
        let found = super::settle::verify(&disk);
        assert!(!found.is_sound(), "byte {at} of a unit");
        assert_eq!(found.damage[0].file, "log");
        let report = open(&disk, StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() }).recovery().clone();
        assert!(!report.damaged.is_empty(), "{report:?}");
    }
}
