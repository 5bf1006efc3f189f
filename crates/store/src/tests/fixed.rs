//! Stores of a fixed size: what is written over what, whatever is cut; and what small ones hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::fault::{FaultDisk, VOLUME};
use crate::disk::fixed::FixedDisk;
use crate::disk::{Access, Disk, read_exact};
use crate::store::fixed::make;
use crate::tests::kit::*;
use crate::*;

/// The store of a fixed size on a fault disk.
pub(super) fn open_on(disk: &FaultDisk, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
    Store::open_on(Arc::new(FixedDisk::open(Arc::new(disk.clone()))?), options, now)
}

/// A new one.
pub(super) fn make_on(disk: &FaultDisk, fixed: &FixedOptions) {
    disk.create(VOLUME, fixed.size_bytes, Access::Buffered).expect("a volume").sync().expect("durable");
    Disk::sync(disk).expect("durable");
    make(Arc::new(disk.clone()), fixed).expect("made");
}

fn small() -> FixedOptions {
    FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(204_800) }
}

fn stream(store: &Store, name: &str) -> StreamId {
    loop {
        match store.resolve(&counting(name), T0) {
            Ok((stream, _)) => return stream.id,
            Err(Reject::Refused(Refusal::LogFull)) => store.upkeep(T0),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Appends rows that say their number and 8 bytes that no codec makes smaller, and settles whenever the log is full.
fn send(store: &Store, stream: StreamId, rows: std::ops::Range<u64>, now: i64) {
    let (mut at, mut random) = (rows.start, fastrand::Rng::with_seed(rows.start));
    while at < rows.end {
        let mut batch = FrameBatch::new();
        for row in at..rows.end.min(at + 256) {
            batch.put(head(stream, now + row as i64), [Value::U64(row), Value::U64(random.u64(..))]);
        }
        let appended = store.offer(&batch, now);
        let stored = appended.outcomes.iter().take_while(|o| matches!(o, Outcome::Stored { .. })).count();
        if stored < appended.outcomes.len() {
            let log_full = Outcome::Rejected(Reject::Refused(Refusal::LogFull));
            assert!(appended.outcomes[stored..].iter().all(|o| *o == log_full), "{:?}", appended.outcomes[stored]);
        }
        at += stored as u64;
        store.upkeep(now);
    }
}

/// The rows that are there: without a hole, each with its own number, up to the newest.
fn rows(store: &Store, stream: StreamId) -> std::ops::Range<u64> {
    let view = store.view();
    let mut found: Option<std::ops::Range<u64>> = None;
    for batch in view.scan(Scan::all(stream, vec![ChannelIndex(0)])) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            let row = batch.rows[i];
            assert_eq!(batch.columns[0].cell(i), Ok(Value::U64(row)));
            assert!(found.as_ref().is_none_or(|f| f.end == row), "row {row} after {found:?}");
            found = Some(found.map_or(row, |f| f.start)..row + 1);
        }
    }
    let next = view.next_row(stream);
    let found = found.unwrap_or(next..next);
    assert_eq!(found.end, next);
    found
}

#[test]
fn a_small_one_goes_round_and_keeps_the_newest() {
    let region = MemoryRegion::new(204_800);
    let store = Store::in_memory(&region, &small(), StoreOptions::default(), T0).expect("a new store");
    let s = stream(&store, "t");
    let (mut next, mut first) = (0, 0);
    // 20 MB: the noise alone is 8 bytes a row.
    let mut present: Vec<u64> = Vec::new();
    while next < 2_560_000 {
        send(&store, s, next..next + 4_000, T0);
        next += 4_000;
        let kept = rows(&store, s);
        assert!(kept.start >= first && kept.end == next);
        first = kept.start;
        assert_eq!(store.stats().disk_bytes, 204_800);
        // The oldest goes first: what is there is what was made last.
        present = store.segments().iter().map(|s| s.id).collect();
        assert!(present.windows(2).all(|w| w[1] == w[0] + 1) && present.len() <= 5, "{present:?}");
    }
    assert!(present.len() == 5 && present[0] > 1_000, "{present:?}");
    // Four sealed segments at least, with five pages of blocks in each and 12 bytes a row at most.
    assert!(next - first > 4 * 5 * 4096 / 16, "{first}..{next}");
    store.close(T0).expect("closed");
    assert!(matches!(rows_of_closed(&store, s), Err(ScanError::Expired | ScanError::Io { .. })));
    let store = Store::in_memory(&region, &small(), StoreOptions::default(), T0).expect("opened again");
    assert!(store.recovery().clean);
    // What was in the log became a block at the close, for which the oldest segment may have gone.
    let kept = rows(&store, s);
    assert!(kept.start >= first && kept.end == next, "{kept:?} of {first}..{next}");
    assert!(kept.end - kept.start > 3 * 5 * 4096 / 16, "{kept:?}");
    let twice = Store::in_memory(&region, &small(), StoreOptions::default(), T0);
    assert!(matches!(twice, Err(OpenError::InUse { .. })));
}

/// What a view of a store that is closed reads of segments: its slots may be another's by now.
fn rows_of_closed(store: &Store, stream: StreamId) -> Result<(), ScanError> {
    store.view().scan(Scan::all(stream, vec![ChannelIndex(0)])).try_for_each(|batch| batch.map(drop))
}

/// Sends until the power is cut; returns how many rows were acknowledged.
fn send_until_cut(store: &Store, stream: StreamId, from: u64, now: i64) -> u64 {
    let (mut next, mut acknowledged, mut random) = (from, from, fastrand::Rng::with_seed(from));
    loop {
        let mut batch = FrameBatch::new();
        for row in next..next + random.u64(1..200) {
            batch.put(head(stream, now), [Value::U64(row), Value::U64(random.u64(..))]);
        }
        let appended = store.offer(&batch, now);
        next += appended.outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count() as u64;
        if store.commit(now).is_err() {
            return acknowledged.max(store.committed_row(stream));
        }
        acknowledged = next;
        for _ in 0..random.usize(0..4) {
            if store.maintain(now).is_err() {
                return acknowledged;
            }
        }
    }
}

/// Opens after a cut; `again` openings are cut off on the way.
fn reopen(disk: &mut FaultDisk, again: u64, now: i64) -> Store {
    let mut writes = again;
    loop {
        *disk = disk.after_cut();
        if writes > 0 {
            disk.faults.writes_left.store(writes, Ordering::Relaxed);
        }
        match open_on(disk, StoreOptions::default(), now) {
            Ok(store) => {
                disk.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
                return store;
            }
            Err(error) => assert!(disk.is_cut(), "{error}"),
        }
        writes -= 1;
    }
}

#[test]
fn a_cut_at_every_write_leaves_a_store_that_starts_alone() {
    for seed in 0..6 {
        let mut disk = FaultDisk::new(seed);
        make_on(&disk, &small());
        let mut store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
        let s = stream(&store, "t");
        send(&store, s, 0..20_000, T0);
        let (mut first, mut now) = (rows(&store, s).start, T0);
        for cut in 1..120 {
            now += 1_000_000_000;
            let from = store.view().next_row(s);
            disk.faults.writes_left.store(cut, Ordering::Relaxed);
            let acknowledged = send_until_cut(&store, s, from, now);
            assert!(disk.is_cut());
            store = reopen(&mut disk, cut % 5, now);
            let kept = rows(&store, s);
            assert!(kept.end >= acknowledged, "seed {seed}, cut {cut}: {kept:?} of {acknowledged} acknowledged");
            assert!(kept.start >= first && kept.end - kept.start > 1_000, "seed {seed}, cut {cut}: {kept:?}");
            assert_eq!(disk.used_bytes(), 204_800);
            assert_sound(&disk, &format!("seed {seed}, cut {cut}"));
            first = kept.start;
        }
    }
}

/// What `verify` says of the volume as it is.
fn assert_sound(disk: &FaultDisk, when: &str) {
    let file = Disk::open(disk, VOLUME, Access::Buffered).expect("the volume");
    let bytes = read_exact(&*file, 0, file.size().expect("a size") as usize).expect("read");
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&path, bytes).expect("written");
    let found = inspect::inspect(path.path(), inspect::Depth::Everything).expect("inspected");
    assert!(found.is_sound() && found.verified_blocks > 10, "{when}: {found}");
}

/// A store that is cut off again and again before it does anything has a row for nothing and loses nothing.
#[test]
fn forty_openings_in_a_row_take_nothing() {
    let mut disk = FaultDisk::new(7);
    make_on(&disk, &small());
    let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
    let s = stream(&store, "t");
    send(&store, s, 0..20_000, T0);
    // The log is full of rows that are in no segment.
    let mut next = 20_000;
    loop {
        let mut batch = FrameBatch::new();
        batch.put(head(s, T0), [Value::U64(next)]);
        if !matches!(store.offer(&batch, T0).outcomes[0], Outcome::Stored { .. }) {
            store.commit(T0).expect("committed");
            if !matches!(store.offer(&batch, T0).outcomes[0], Outcome::Stored { .. }) {
                break;
            }
        }
        next += 1;
    }
    assert!(store.refusal() == Some(Refusal::LogFull));
    let (kept, segments) = (rows(&store, s), store.segments().len());
    drop(store);
    for n in 0..40 {
        disk = disk.after_cut();
        let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
        assert_eq!((rows(&store, s), store.segments().len()), (kept.clone(), segments), "opening {n}");
        assert!(u64::from(store.epoch()) >= n + 2);
    }
    disk = disk.after_cut();
    let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
    store.upkeep(T0);
    send(&store, s, next..next + 1_000, T0);
    assert_eq!(rows(&store, s).end, next + 1_000);
}

/// A recorder that is switched on and off each time with a few rows fills a segment before it begins another.
#[test]
fn openings_share_a_segment() {
    let mut disk = FaultDisk::new(8);
    make_on(&disk, &FixedOptions::new(1 << 20));
    let mut next = 0;
    for lap in 0..60 {
        let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
        let s = stream(&store, "t");
        assert_eq!(rows(&store, s), 0..next);
        send(&store, s, next..next + 50, T0);
        next += 50;
        if lap % 3 == 0 {
            // Cut off between two writes of what it does next.
            disk.faults.writes_left.store(lap / 3 % 7 + 1, Ordering::Relaxed);
            send_until_cut(&store, s, next, T0);
            drop(store);
            disk = disk.after_cut();
            let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
            next = store.view().next_row(s);
            assert_eq!(rows(&store, s), 0..next);
        } else {
            store.close(T0).expect("closed");
        }
    }
    let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
    let segments = store.segments();
    let data = segments.iter().filter(|s| s.group == "data").count();
    // Each flush takes a page at least: 60 and more of them in segments with 5 to 6.
    assert!(data <= 24, "{data} segments for {next} rows");
    assert!(segments.iter().filter(|s| !s.sealed).count() <= 2);
    assert_eq!(rows(&store, stream(&store, "t")), 0..next);
}

#[test]
fn shares_are_kept_whoever_is_chatty() {
    let groups = vec![group("slow", "slow.*", Keep::Share(0.2)), group("few", "few.*", Keep::Bytes(100_000))];
    let fixed = FixedOptions { groups, ..FixedOptions::new(1 << 20) };
    let region = MemoryRegion::new(1 << 20);
    // The groups are those that the store was made with.
    let open = || Store::in_memory(&region, &fixed, StoreOptions::default(), T0).expect("opened");
    let store = open();
    let (slow, few, chatty) = (stream(&store, "slow.a"), stream(&store, "few.a"), stream(&store, "chatty"));
    let (slots, slot) = fixed.segments().expect("slots");
    let bytes_of = |store: &Store, group: &str| -> u64 {
        store.segments().iter().filter(|s| s.group == group).map(|s| if s.sealed { slot } else { s.size_bytes }).sum()
    };
    // Less than its minimum each: none of it may go.
    send(&store, slow, 0..8_000, T0);
    send(&store, few, 0..3_000, T0);
    send(&store, chatty, 0..300_000, T0);
    assert_eq!((rows(&store, slow), rows(&store, few)), (0..8_000, 0..3_000));
    let taken: u64 = store.segments().len() as u64;
    assert_eq!(taken, slots - 1, "all that there is, is used, but for the one that settle needs");
    // More: down to the minimum, and not below.
    send(&store, slow, 8_000..60_000, T0);
    assert!(bytes_of(&store, "slow") > slots * slot / 5);
    send(&store, chatty, 300_000..600_000, T0);
    let kept = rows(&store, slow);
    assert!(kept.start > 0 && kept.end == 60_000);
    let keep = slots * slot / 5;
    assert!((keep..keep + 2 * slot).contains(&bytes_of(&store, "slow")), "{} of {keep}", bytes_of(&store, "slow"));
    assert_eq!(rows(&store, few), 0..3_000);
    store.close(T0).expect("closed");
    let store = open();
    assert_eq!((rows(&store, slow), rows(&store, few)), (kept.clone(), 0..3_000));
    send(&store, chatty, 600_000..900_000, T0);
    assert_eq!((rows(&store, slow), rows(&store, few)), (kept, 0..3_000));
    store.close(T0).expect("closed");
    // Others, if an opening names them; they must fit.
    let options = StoreOptions { retention: vec![group("slow", "slow.*", Keep::Bytes(0))], ..StoreOptions::default() };
    let store = Store::in_memory(&region, &fixed, options, T0).expect("opened");
    send(&store, chatty, 900_000..1_200_000, T0);
    assert_eq!(rows(&store, slow), 60_000..60_000, "a group that keeps nothing");
    store.close(T0).expect("closed");
    let options =
        StoreOptions { retention: vec![group("slow", "slow.*", Keep::Bytes(1 << 20))], ..StoreOptions::default() };
    let error = Store::in_memory(&region, &fixed, options, T0).err().expect("too much");
    assert!(matches!(&error, OpenError::Options { reason, .. } if reason.contains("what its groups keep")), "{error}");
}

fn report(store: &Store, count: u64) {
    store.report_gap(Gap {
        id: 0,
        stream: None,
        cause: GapCause::Kernel,
        source: "udp".into(),
        // As long as no codec makes it shorter.
        name: {
            let mut random = fastrand::Rng::with_seed(count);
            (0..120).map(|_| random.alphanumeric()).collect()
        },
        session: None,
        sequence: None,
        rows: None,
        time: (T0, T0 + 5),
        count,
    });
}

#[test]
fn gap_rows_stay_and_never_fill_the_store() {
    let store = Store::in_memory(&MemoryRegion::new(512 << 10), &FixedOptions::new(0), StoreOptions::default(), T0)
        .expect("a new store");
    let s = stream(&store, "t");
    report(&store, 1);
    let mut next = 0;
    for _ in 0..40 {
        send(&store, s, next..next + 4_000, T0);
        next += 4_000;
    }
    let gaps = |store: &Store| -> u64 {
        let catalog = store.catalog();
        let gaps = catalog.streams.iter().find(|s| s.key.table == "strongback.gaps").expect("gaps").id;
        store.view().scan(Scan::all(gaps, vec![])).map(|b| b.expect("reads").len() as u64).sum()
    };
    assert!(rows(&store, s).start > 0);
    assert_eq!(gaps(&store), 1, "data goes round, and gap rows stay");
    // For ever: more gap rows than the store has room for, beside data.
    for lap in 0..3_000 {
        report(&store, lap);
        if lap % 8 == 0 {
            send(&store, s, next..next + 200, T0);
            next += 200;
        }
        store.upkeep(T0);
        assert_eq!(store.refusal(), None, "lap {lap}");
    }
    let segments = store.segments();
    let ledger = segments.iter().filter(|s| s.group == "ledger").count();
    assert!((1..=2).contains(&ledger), "{ledger} segments");
    assert!((20..3_000).contains(&gaps(&store)), "{} gap rows", gaps(&store));
    assert_eq!(rows(&store, s).end, next);
}

#[test]
fn recovery_reads_as_much_after_a_hundred_rounds_as_after_one() {
    let mut disk = FaultDisk::new(9);
    make_on(&disk, &small());
    let mut store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
    let s = stream(&store, "t");
    let (mut next, mut most) = (0, Vec::new());
    for rounds in [1u64, 100] {
        // A round is the whole size in incompressible bytes.
        send(&store, s, next..rounds * 25_600, T0);
        next = rounds * 25_600;
        let (mut reads, mut bytes) = (0, 0);
        for _ in 0..20 {
            send(&store, s, next..next + 700, T0);
            next += 700;
            drop(store);
            disk = disk.after_cut();
            disk.faults.reads.store(0, Ordering::Relaxed);
            disk.faults.read_bytes.store(0, Ordering::Relaxed);
            store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
            reads = reads.max(disk.faults.reads.load(Ordering::Relaxed));
            bytes = bytes.max(disk.faults.read_bytes.load(Ordering::Relaxed));
            assert_eq!(rows(&store, s).end, next);
        }
        most.push((reads, bytes));
    }
    println!("{most:?}");
    // First pages, superblock, checkpoint, log, and of the segments those that were open.
    assert!(most.iter().all(|(reads, bytes)| *reads <= 12 && *bytes <= 120_000), "{most:?}");
    assert_eq!(most[0].0, most[1].0);
}

/// What a reader has in hand when its segment is written over ends with an error and never with other rows.
#[test]
fn a_reader_that_is_overtaken_is_told() {
    let store = Store::in_memory(&MemoryRegion::new(204_800), &small(), StoreOptions::default(), T0).expect("a store");
    let s = stream(&store, "t");
    send(&store, s, 0..20_000, T0);
    let mut told = 0;
    for lap in 0..60u64 {
        let view = store.view();
        let mut batches = view.scan(Scan::all(s, vec![ChannelIndex(0), ChannelIndex(1)]));
        let next = view.next_row(s);
        // Some are read before, some after.
        for _ in 0..lap % 4 {
            let _ = batches.next();
        }
        send(&store, s, next..next + 200 * (lap % 40), T0);
        let mut last = 0;
        for batch in batches {
            match batch {
                Ok(batch) => {
                    for i in 0..batch.len() {
                        assert_eq!(batch.columns[0].cell(i), Ok(Value::U64(batch.rows[i])));
                        assert!(batch.rows[i] < next && batch.rows[i] >= last);
                        last = batch.rows[i];
                    }
                }
                Err(error) => {
                    assert!(matches!(error, ScanError::Expired), "{error}");
                    told += 1;
                }
            }
        }
    }
    assert!(told > 10, "{told}");
}

/// A device that held another store: of that nothing is ever taken for the new one's.
#[test]
fn what_another_store_left_is_never_taken_for_its_own() {
    let mut disk = FaultDisk::new(11);
    make_on(&disk, &small());
    for cut in 0..80u64 {
        // Its segments begin with number 1 again, in the same slots, and its only stream has the same number.
        make(Arc::new(disk.clone()), &small()).expect("made anew");
        let store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
        assert_eq!((store.catalog().streams.len(), store.segments().len()), (0, 0));
        let s = stream(&store, "t");
        disk.faults.writes_left.store(if cut == 0 { 45 } else { cut }, Ordering::Relaxed);
        let now = T0 + (cut as i64 + 1) * 1_000_000_000_000;
        send_until_cut(&store, s, 0, now);
        drop(store);
        let store = reopen(&mut disk, 0, now);
        for stream in &store.catalog().streams {
            for batch in store.view().scan(Scan::all(stream.id, vec![])) {
                assert!(batch.expect("reads").receive_time.iter().all(|time| *time == now), "cut {cut}");
            }
        }
        drop(store);
        disk = disk.after_cut();
    }
}

/// A failing disk: what was acknowledged is there when it is opened again, in the same process, and goes on.
#[test]
fn a_failed_sync_poisons_until_it_is_opened_again() {
    let disk = FaultDisk::new(12);
    make_on(&disk, &small());
    let mut store = open_on(&disk, StoreOptions::default(), T0).expect("opened");
    let s = stream(&store, "t");
    send(&store, s, 0..8_000, T0);
    for lap in 0..12 {
        let next = store.view().next_row(s);
        disk.fail_syncs(VOLUME, 1);
        // Whichever sync it is: of the log, a segment, a checkpoint.
        let mut batch = FrameBatch::new();
        for row in next..next + 100 {
            batch.put(head(s, T0), [Value::U64(row), Value::U64(row)]);
        }
        if lap % 2 == 0 {
            store.append(&batch, T0);
            assert!(matches!(store.commit(T0), Err(Refusal::Poisoned(_))));
        } else {
            assert!(store.close(T0).is_err());
        }
        let committed = store.committed_row(s);
        let _ = store.close(T0);
        let again = open_on(&disk, StoreOptions::default(), T0).expect("opened");
        again.take_over(&store, T0).expect("taken over");
        store = again;
        assert!(rows(&store, s).end >= committed, "lap {lap}");
        let next = store.view().next_row(s);
        send(&store, s, next..next + 300, T0);
        assert_eq!(rows(&store, s).end, next + 300);
    }
}

/// Cut at any write while it is made, there is no store, and it can be made again.
#[test]
fn a_store_that_was_not_made_to_the_end_is_none() {
    let (mut cut, mut refused) = (1, 0);
    loop {
        let disk = FaultDisk::new(cut);
        disk.create(VOLUME, 204_800, Access::Buffered).expect("a volume").sync().expect("durable");
        Disk::sync(&disk).expect("durable");
        disk.faults.writes_left.store(cut, Ordering::Relaxed);
        let made = make(Arc::new(disk.clone()), &small());
        let disk = disk.after_cut();
        match open_on(&disk, StoreOptions::default(), T0) {
            // The last write of all is that of the second copy.
            Ok(store) => assert_eq!((store.epoch(), store.catalog().streams.len()), (1, 0)),
            Err(error) => {
                assert!(made.is_err() && matches!(error, OpenError::Damaged { .. }), "{error}");
                refused += 1;
                make(Arc::new(disk.clone()), &small()).expect("made again");
                open_on(&disk, StoreOptions::default(), T0).expect("opened");
            }
        }
        if made.is_ok() {
            break;
        }
        cut += 1;
    }
    assert!(refused > 5, "{refused} of {cut}");
}

#[test]
fn what_has_no_room_is_refused_and_the_rest_goes_on() {
    let region = MemoryRegion::new(204_800);
    let store = Store::in_memory(&region, &small(), StoreOptions::default(), T0).expect("a new store");
    let s = stream(&store, "t");
    // Names that the checkpoint has no room for.
    let mut long = counting("long");
    long.channels = (0..40).map(|n| ChannelSpec::new(format!("{n}{}", "x".repeat(80)), ChannelType::F64)).collect();
    let error = store.resolve(&long, T0).expect_err("too much");
    assert_eq!(error.reason(), "catalog_full", "{error}");
    // Streams beyond the limit, and then a layout that grows beyond what is left.
    for name in ["a", "b"] {
        stream(&store, name);
    }
    let error = store.resolve(&counting("c"), T0).expect_err("too many");
    assert_eq!(error.reason(), "too_many_streams", "{error}");
    let mut grown = counting("a");
    let mut refused = None;
    for n in 0..60 {
        grown.channels.push(ChannelSpec::new(format!("another channel with a name {n}"), ChannelType::F32));
        refused = store.resolve(&grown, T0).err().filter(|e| e.reason() != "not_recorded");
        store.upkeep(T0);
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused.expect("a refusal").reason(), "catalog_full");
    // Frames that would not fit a block.
    let mut text = counting("b");
    text.channels = vec![ChannelSpec::new("text", ChannelType::String)];
    let Ok((b, columns)) = store.resolve(&text, T0) else { panic!("a text channel") };
    let offer = |size: usize| {
        let mut batch = FrameBatch::new();
        batch.begin(head(b.id, T0));
        let text: String = (0..size).map(|n| (b'a' + (n * n % 26) as u8) as char).collect();
        batch.push(columns[0], Value::String(&text));
        batch.end();
        let outcome = store.append(&batch, T0).outcomes.remove(0);
        store.upkeep(T0);
        outcome
    };
    assert!(matches!(offer(4_096), Outcome::Rejected(Reject::TooLarge { .. })));
    for n in 0..400 {
        assert!(matches!(offer(3_000 + n), Outcome::Stored { .. }), "{n}");
    }
    send(&store, s, 0..5_000, T0);
    // Long runs that no checkpoint has room for.
    let runs =
        (0..100).map(|n| store.protect_run(&format!("{n}{}", "r".repeat(60)), T0)).filter(Result::is_err).count();
    assert!(runs > 0);
    store.upkeep(T0);
    send(&store, s, 5_000..25_000, T0);
    assert_eq!(store.refusal(), None);
    drop(store);
    let store = Store::in_memory(&region, &small(), StoreOptions::default(), T0).expect("opened");
    assert_eq!(rows(&store, s).end, 25_000);
    assert!(matches!(store.resolve(&grown, T0), Err(Reject::CatalogFull { .. })), "counted again");
}

/// Rows of every width in the smallest segments: what does not fit as one block fits as several.
#[test]
fn blocks_of_any_shape_fit_the_smallest_segments() {
    let fixed = FixedOptions { segment_bytes: Some(32 << 10), max_channels: 600, ..FixedOptions::new(4 << 20) };
    for (seed, kind) in ChannelType::ALL.iter().enumerate() {
        let store =
            Store::in_memory(&MemoryRegion::new(4 << 20), &fixed, StoreOptions::default(), T0).expect("a store");
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let mut streams = Vec::new();
        for (n, width) in [1usize, 7, 30, 60, 100].into_iter().enumerate() {
            let mut wide = counting(format!("s{n}"));
            wide.channels = (0..width).map(|c| ChannelSpec::new(format!("c{c}"), *kind)).collect();
            match store.resolve(&wide, T0) {
                Ok((stream, columns)) => streams.push((stream.id, columns)),
                Err(error) => assert_eq!((error.reason(), width), ("catalog_full", 100)),
            }
            store.upkeep(T0);
        }
        let mut sent = vec![0u64; streams.len()];
        for lap in 0..60 {
            let mut batch = FrameBatch::new();
            let mut whose = Vec::new();
            for _ in 0..300 {
                let n = random.usize(..streams.len());
                let (stream, columns) = &streams[n];
                batch.begin(head(*stream, random.i64(..1 << 60)));
                let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(24).collect();
                for (c, &column) in columns.iter().enumerate() {
                    match random.u8(0..8) {
                        0 => batch.push_state(column, CellState::Unknown),
                        1 => {}
                        _ if *kind == ChannelType::String => batch.push(column, Value::String(&text[c % 24..])),
                        _ => batch.push(column, Value::from_bits(*kind, random.u64(..))),
                    }
                }
                batch.end();
                whose.push(n);
            }
            for (n, outcome) in whose.into_iter().zip(store.append(&batch, T0).outcomes) {
                sent[n] += u64::from(matches!(outcome, Outcome::Stored { .. }));
            }
            if lap % 7 > 0 {
                store.upkeep(T0);
            }
        }
        store.commit(T0).expect("committed");
        assert_eq!(store.refusal(), None, "{kind:?}");
        for ((stream, columns), sent) in streams.iter().zip(&sent) {
            let (view, mut next) = (store.view(), None);
            for batch in view.scan(Scan::all(*stream, columns.clone())) {
                for row in batch.expect("reads").rows {
                    assert!(next.is_none_or(|n| n == row), "{kind:?}: {row} after {next:?}");
                    next = Some(row + 1);
                }
            }
            assert_eq!((view.next_row(*stream), next.unwrap_or(*sent)), (*sent, *sent), "{kind:?}");
        }
    }
}

#[test]
fn a_close_takes_no_row_for_what_the_log_holds() {
    for (seed, size) in [(1, 204_800), (2, 1 << 20), (3, 4 << 20)] {
        let disk = FaultDisk::new(seed);
        make_on(&disk, &FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(size) });
        let open = || open_on(&disk, StoreOptions::default(), T0).expect("opened");
        let mut random = fastrand::Rng::with_seed(seed);
        let store = open();
        let mut next = size / 4;
        send(&store, stream(&store, "t"), 0..next, T0);
        store.close(T0).expect("closed");
        for round in 0..80 {
            let store = open();
            let s = stream(&store, "t");
            let more = random.u64(1..300);
            send(&store, s, next..next + more, T0);
            next += more;
            let before = rows(&store, s);
            store.close(T0).expect("closed");
            drop(store);
            let store = open();
            assert_eq!(rows(&store, s), before, "size {size}, round {round}");
            store.close(T0).expect("closed");
        }
    }
}
