//! Going on after the disk failed or was full: nothing acknowledged is lost, and what is lost is told once.

use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    sized(2 << 20, 256 << 10)
}

fn number(name: &str, sequence_modulus: Option<u64>) -> StreamSpec {
    spec(name, [("x", ChannelType::U64)]).modulus(sequence_modulus)
}

fn send(store: &Store, stream: StreamId, frames: impl IntoIterator<Item = u64>) -> Vec<Outcome> {
    let mut batch = FrameBatch::new();
    for n in frames {
        let time = T0 + n as i64;
        batch.put(head(stream, time).sampled(Some(time)).numbered(Some(n)), [Value::U64(n)]);
    }
    store.append(&batch, T0).outcomes
}

fn stored(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count()
}

/// The values of a stream's first channel in row order; rows are dense.
fn values(store: &Store, stream: StreamId) -> Vec<u64> {
    values_of(store, stream, ChannelIndex(0))
}

fn values_of(store: &Store, stream: StreamId, channel: ChannelIndex) -> Vec<u64> {
    let mut out = Vec::new();
    for batch in store.view().scan(Scan::all(stream, vec![channel])) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            assert_eq!(batch.rows[i], out.len() as u64);
            match batch.columns[0].cell(i) {
                Ok(Value::U64(v)) => out.push(v),
                other => panic!("{other:?}"),
            }
        }
    }
    out
}

#[derive(Debug, PartialEq)]
struct Row {
    id: u64,
    stream: u64,
    cause: String,
    sequence: Option<(i64, i64)>,
    time: (i64, i64),
    count: u64,
}

fn gaps(store: &Store) -> Vec<Row> {
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps") else { return vec![] };
    let names = ["id", "stream", "cause", "from_sequence", "to_sequence", "from_time", "to_time", "count"];
    let columns = names.iter().map(|n| table.layout.index(n).expect("a documented column")).collect();
    let mut rows = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns)) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            let integer = |c: usize| match batch.columns[c].cell(i).ok()?.convert(ChannelType::I64)? {
                Value::I64(v) => Some(v),
                _ => None,
            };
            let cause = match batch.columns[2].cell(i) {
                Ok(Value::String(cause)) => cause.to_owned(),
                other => panic!("{other:?}"),
            };
            rows.push(Row {
                id: integer(0).expect("an id") as u64,
                stream: integer(1).map_or(u64::MAX, |s| s as u64),
                cause,
                sequence: integer(3).zip(integer(4)),
                time: (integer(5).expect("from"), integer(6).expect("to")),
                count: integer(7).expect("a count") as u64,
            });
        }
    }
    rows
}

fn check_identity(store: &Store) {
    for stream in &store.catalog().streams {
        let c = store.counts(stream.id);
        assert_eq!(c.received, c.stored + c.duplicate + c.reduced + c.rejected, "{}: {c:?}", stream.key);
    }
}

#[test]
fn a_reopened_store_takes_over_numbers_counts_and_losses() {
    let disk = FaultDisk::new(5);
    let store = open(&disk, options());
    let s = store.stream(&number("sequenced", Some(1 << 32)));
    send(&store, s, 0..10);
    store.commit(T0).expect("committed");
    // A gap, a stream and a channel that the failing commit takes with it.
    send(&store, s, [10, 11, 13, 14]);
    let late = store.stream(&number("late", None));
    send(&store, late, 0..3);
    let grown = spec("sequenced", [("y", ChannelType::F64)]);
    store.resolve(&grown, T0).expect("resolved");
    disk.fail_syncs("log", 1);
    assert!(matches!(store.commit(T0), Err(Refusal::Poisoned(_))));
    assert_eq!(stored(&send(&store, s, 15..18)), 0);
    assert!(store.close(T0).is_err());
    assert_eq!(stored(&send(&store, s, [18])), 0, "refused between close and reopening");
    let before = store.catalog();

    let again = open(&disk, options());
    assert_eq!(again.view().next_row(s), 10, "what was not synced went back");
    assert_eq!(again.take_over(&store, T0 + 5 * SECOND).expect("taken over"), 7);
    let after = again.catalog();
    assert!(after.version > before.version);
    let names = |c: &Catalog| c.streams.iter().map(|s| (s.key.clone(), s.id, s.layout.clone())).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    check_identity(&again);
    let counts = again.counts(s);
    assert_eq!((counts.received, counts.stored, counts.rejected, counts.lost), (18, 10, 8, 9));
    assert_eq!((again.counts(late).stored, again.counts(late).rejected), (0, 3));

    // The sequence goes on without a gap of its own; what comes again is stored and fills.
    assert_eq!(stored(&send(&again, s, [19])), 1);
    assert_eq!(stored(&send(&again, s, [11, 16, 12])), 3);
    assert_eq!(send(&again, s, [9, 11]), [Outcome::Duplicate, Outcome::Duplicate]);
    again.commit(T0 + 7 * SECOND).expect("committed");
    let rows = gaps(&again);
    let of = |stream: StreamId, cause: &str| -> Vec<&Row> {
        rows.iter().filter(|r| r.stream == stream.0 as u64 && r.cause == cause).collect()
    };
    let sequence = of(s, "sequence");
    assert_eq!(sequence.iter().map(|r| (r.sequence, r.count)).collect::<Vec<_>>(), [(Some((12, 12)), 1)]);
    let lost = of(s, "not recorded");
    assert_eq!(lost.iter().map(|r| r.count).sum::<u64>(), 8, "{rows:?}");
    assert!(lost.iter().all(|r| r.time.0 >= T0 + 10 && r.time.1 <= T0 + 18), "{rows:?}");
    assert_eq!(of(late, "not recorded").iter().map(|r| (r.count, r.time)).collect::<Vec<_>>(), [(3, (T0, T0 + 2))]);
    let filled = of(s, "filled");
    assert_eq!(filled.iter().map(|r| r.count).sum::<u64>(), 3);
    for row in filled {
        assert!(sequence.iter().chain(&lost).any(|gap| gap.id == row.id), "{row:?} fills nothing of {rows:?}");
    }
    let counts = again.counts(s);
    assert_eq!((counts.lost, counts.filled, counts.restarts), (9, 3, 0));
    check_identity(&again);
    let kept: Vec<u64> = (0..10).chain([19, 11, 16, 12]).collect();
    assert_eq!(values(&again, s), kept);
    // A crash, then a clean end: the log's definitions must reach the checkpoint.
    drop(again);
    open(&disk, options()).close(T0 + 8 * SECOND).expect("closed");
    let last = open(&disk, options());
    assert_eq!((values(&last, s), names(&last.catalog())), (kept, names(&before)));
    assert_eq!(gaps(&last), rows);
}

#[test]
fn what_is_acknowledged_after_a_failed_sync_survives_a_power_cut() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        let store = open(&disk, options());
        let s = store.stream(&number("t", None));
        send(&store, s, 0..10);
        store.commit(T0).expect("committed");
        send(&store, s, 10..20);
        disk.fail_syncs("log", 1);
        store.commit(T0).expect_err("the sync failed");
        store.close(T0).expect_err("poisoned");
        let again = open(&disk, options());
        again.take_over(&store, T0).expect("taken over");
        send(&again, s, 20..30);
        again.commit(T0).expect("committed");
        let kept = values(&again, s);
        assert_eq!(kept, (0..10).chain(20..30).collect::<Vec<_>>());
        let disk = disk.after_cut();
        assert_eq!(values(&open(&disk, options()), s), kept, "seed {seed}");
    }
}

#[test]
fn frames_refused_by_a_full_disk_are_one_row_a_stream_when_there_is_space() {
    let disk = FaultDisk::new(6);
    let store = open(&disk, options());
    let s = store.stream(&number("sequenced", Some(1 << 32)));
    let told = store.stream(&number("told", None));
    disk.set_capacity_bytes(disk.used_bytes());
    send(&store, s, 0..3000);
    store.upkeep(T0);
    assert_eq!(store.refusal(), Some(Refusal::DiskFull));
    for n in 0..50 {
        let from = 3000 + n * 10;
        assert_eq!(stored(&send(&store, s, from..from + 10)), 0);
        let mut batch = FrameBatch::new();
        batch.set_answered(true);
        batch.begin(head(told, T0));
        batch.end();
        store.append(&batch, T0);
        store.commit(T0 + n as i64 * SECOND).expect("committed");
    }
    assert!(gaps(&store).is_empty());
    check_identity(&store);
    disk.set_capacity_bytes(u64::MAX);
    let now = T0 + 100 * SECOND;
    while store.maintain(now).expect("maintained") {}
    assert_eq!(stored(&send(&store, s, [3500])), 1);
    store.commit(now).expect("committed");
    let rows = gaps(&store);
    let row = |cause: &str, stream: StreamId| {
        let found: Vec<_> = rows.iter().filter(|r| r.cause == cause && r.stream == stream.0 as u64).collect();
        assert_eq!(found.len(), 1, "{rows:?}");
        (found[0].count, found[0].sequence, found[0].time)
    };
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(row("not recorded", s), (500, Some((3000, 3499)), (T0 + 3000, T0 + 3499)));
    assert_eq!(row("refused", told), (50, None, (T0, T0)));
    assert_eq!((store.counts(s).lost, store.counts(s).rejected), (500, 500));
    assert_eq!((store.counts(told).lost, store.counts(told).rejected), (0, 50));
    check_identity(&store);
    let gap_rows = rows.len();
    // At most one row a second, however often it refuses and takes again: here by a full log.
    let mut next = 3501;
    for n in 0..10 {
        while stored(&send(&store, s, next..next + 1000)) == 1000 {
            next += 1000;
        }
        next += 1000;
        store.upkeep(now + n);
    }
    store.commit(now + SECOND / 2).expect("committed");
    assert!(store.counts(s).rejected > 500 + 10);
    assert_eq!(gaps(&store).iter().filter(|r| r.cause == "not recorded").count(), 1);
    store.commit(now + SECOND).expect("committed");
    let told: u64 = gaps(&store).iter().filter(|r| r.cause == "not recorded").map(|r| r.count).sum();
    assert_eq!((gaps(&store).len(), told), (gap_rows + 1, store.counts(s).rejected));
    check_identity(&store);
}

/// A commit that a failed store gave out is never taken for one of the store after it, which counts on from what it found.
#[test]
fn a_commit_of_a_failed_store_is_no_commit_of_the_next() {
    let disk = FaultDisk::new(9);
    let store = open(&disk, options());
    let s = store.stream(&number("s", None));
    let append = |store: &Store, n: u64| {
        let mut batch = FrameBatch::new();
        batch.put(head(s, T0), [Value::U64(n)]);
        store.append(&batch, T0).commit
    };
    let durable = append(&store, 1);
    store.commit(T0).expect("committed");
    let lost = append(&store, 2);
    disk.fail_syncs("log", 1);
    assert!(store.commit(T0).is_err());
    assert!(store.close(T0).is_err());

    let again = open(&disk, options());
    again.take_over(&store, T0).expect("taken over");
    let waited = |commit| again.wait_committed(commit, std::time::Duration::ZERO);
    assert_eq!(waited(durable), Ok(true));
    let next = append(&again, 3);
    for _ in 0..3 {
        assert!(matches!(waited(lost), Err(Refusal::Poisoned(_))), "{lost:?}, {next:?}");
        again.commit(T0).expect("committed");
    }
    assert_eq!(waited(next), Ok(true));
}

/// A stream with reductions: what stood for the frames that got no row went back with the disk.
#[test]
fn frames_that_were_left_out_and_went_back_are_lost_and_not_reduced() {
    for (sequenced, row_between) in [(false, false), (true, false), (false, true), (true, true)] {
        let disk = FaultDisk::new(7);
        let store = open(&disk, options());
        let reduced = spec("reduced", [("x", ChannelType::U64, Reduction::Step)]);
        let s = store.stream(&reduced.modulus(sequenced.then_some(1 << 32)));
        let send = |store: &Store, frames: std::ops::Range<u64>, value: u64| {
            let mut batch = FrameBatch::new();
            for n in frames {
                let sequence = sequenced.then_some(n);
                batch.put(head(s, T0 + n as i64).numbered(sequence), [Value::U64(value)]);
            }
            store.append(&batch, T0);
        };
        send(&store, 0..3, 7);
        store.commit(T0).expect("committed");
        send(&store, 3..8, 7);
        if row_between {
            send(&store, 8..10, 8);
        }
        let gone = if row_between { 7 } else { 5 };
        disk.fail_syncs("log", 1);
        store.commit(T0).expect_err("the sync failed");
        store.close(T0).expect_err("poisoned");
        let again = open(&disk, options());
        assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), gone);
        check_identity(&again);
        let counts = again.counts(s);
        assert_eq!((counts.stored, counts.reduced, counts.rejected, counts.lost), (1, 2, gone, gone));
        again.commit(T0 + 3 * SECOND).expect("committed");
        let rows: Vec<_> = gaps(&again).into_iter().map(|row| (row.cause, row.sequence, row.count, row.time)).collect();
        let range = sequenced.then_some((3, 2 + gone as i64));
        assert_eq!(rows, [("not recorded".to_owned(), range, gone, (T0 + 3, T0 + 2 + gone as i64))]);
        // What comes again fills it.
        send(&again, 4..5, 7);
        assert_eq!(again.counts(s).filled, u64::from(sequenced));
        check_identity(&again);
    }
}

/// Offers frames of a stream with reductions, all of one value.
fn send_equal(store: &Store, stream: StreamId, frames: std::ops::Range<u64>, value: u32, sequenced: bool) {
    let mut batch = FrameBatch::new();
    for n in frames {
        let sequence = sequenced.then_some(n);
        batch.put(head(stream, T0 + n as i64).numbered(sequence), [Value::U32(value)]);
    }
    let outcomes = store.append(&batch, T0).outcomes;
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. } | Outcome::Reduced { .. })), "{outcomes:?}");
}

fn reduced_spec(sequenced: bool) -> StreamSpec {
    spec("reduced", [("x", ChannelType::U32, Reduction::Step)]).modulus(sequenced.then_some(1 << 32))
}

/// Value and time of the newest state.
fn newest_state(store: &Store, stream: StreamId) -> (f64, i64) {
    let state = store.view().state_at(stream, i64::MAX - 1, &[ChannelIndex(0)]).expect("a state").remove(0);
    let state = state.expect("a value");
    (state.value.and_then(|value| value.as_value().as_f64()).expect("a number"), state.time - T0)
}

/// What a stream grew by went back with the disk, and is taken over: the frame that the log holds is of before.
#[test]
fn a_held_frame_of_before_its_stream_grew_is_taken_over() {
    for sequenced in [false, true] {
        let disk = FaultDisk::new(8);
        let store = open(&disk, options());
        let s = store.stream(&reduced_spec(sequenced));
        send_equal(&store, s, 0..2, 7, sequenced);
        store.commit(T0).expect("committed");
        let grown = spec("reduced", [("y", ChannelType::F64)]).modulus(sequenced.then_some(1 << 32));
        store.resolve(&grown, T0).expect("resolved");
        disk.fail_syncs("log", 1);
        store.commit(T0).expect_err("the sync failed");
        store.close(T0).expect_err("poisoned");
        let again = open(&disk, options());
        assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), 0, "the log has it as it was");
        check_identity(&again);
        let counts = again.counts(s);
        assert_eq!((counts.received, counts.stored, counts.reduced, counts.lost), (2, 1, 1, 0), "{counts:?}");
        assert_eq!(newest_state(&again, s), (7.0, 1));
        send_equal(&again, s, 2..3, 7, sequenced);
        assert_eq!((newest_state(&again, s), again.view().next_row(s)), ((7.0, 2), 3), "it gets a row, and so do they");
        again.commit(T0 + SECOND).expect("committed");
        drop(again);
        let last = open(&disk, options());
        assert_eq!((newest_state(&last, s), last.view().next_row(s)), ((7.0, 2), 3));
    }
}

/// What stands for reduced frames is durable without a row: a row of it that goes back is no loss.
#[test]
fn a_held_frame_that_is_durable_is_not_lost_when_its_row_goes_back() {
    for sequenced in [false, true] {
        let disk = FaultDisk::new(9);
        let store = open(&disk, options());
        let s = store.stream(&reduced_spec(sequenced));
        let other = store.stream(&number("other", None));
        send_equal(&store, s, 0..3, 7, sequenced);
        store.commit(T0).expect("committed");
        send(&store, other, 0..1);
        disk.fail_syncs("log", 1);
        store.commit(T0).expect_err("the sync failed");
        store.close(T0).expect_err("poisoned");
        let again = open(&disk, options());
        assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), 1, "the frame of the other stream");
        check_identity(&again);
        let counts = again.counts(s);
        assert_eq!((counts.received, counts.rejected, counts.lost), (3, 0, 0), "{counts:?}");
        assert_eq!(newest_state(&again, s), (7.0, 2));
        again.commit(T0 + 3 * SECOND).expect("committed");
        assert!(gaps(&again).iter().all(|row| row.stream == u64::from(other.0)), "{:?}", gaps(&again));
    }
}

/// A unit whose write failed may be on the disk as a whole: what it says of frames without a row is durable then. The
/// number of a commit says nothing of it where another store gave it out.
#[test]
fn frames_that_were_left_out_are_not_lost_where_their_commit_is_found() {
    for opened_between in [false, true] {
        let mut found = [0; 2];
        for seed in 0..20 {
            let disk = FaultDisk::new(seed);
            let store = open(&disk, options());
            let s = store.stream(&reduced_spec(true));
            send_equal(&store, s, 0..3, 7, true);
            store.commit(T0).expect("committed");
            send_equal(&store, s, 3..8, 7, true);
            disk.tear_writes("log", 1);
            store.commit(T0).expect_err("the write failed");
            store.close(T0).expect_err("poisoned");
            if opened_between {
                drop(open(&disk, options()));
            }
            let again = open(&disk, options());
            let whole = newest_state(&again, s).1 == 7;
            found[usize::from(whole)] += 1;
            let gone = if whole { 0 } else { 5 };
            assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), gone, "seed {seed}");
            check_identity(&again);
            let counts = again.counts(s);
            assert_eq!((counts.reduced, counts.rejected, counts.lost), (7 - gone, gone, gone), "seed {seed}");
            again.commit(T0 + 3 * SECOND).expect("committed");
            assert_eq!(gaps(&again).iter().map(|row| row.count).sum::<u64>(), gone, "seed {seed}");
        }
        assert!(found.iter().all(|&times| times > 0), "{found:?}");
    }
}

/// A frame that an opening found held is in no count of what came since, whatever becomes of its row.
#[test]
fn a_held_frame_of_an_opening_before_is_in_no_count() {
    let disk = FaultDisk::new(11);
    let door = spec("reduced", [("x", ChannelType::U32, Reduction::SwingingDoor { bound: 0.5 })]);
    let store = open(&disk, options());
    let s = store.stream(&door);
    send_equal(&store, s, 0..2, 7, false);
    store.commit(T0).expect("committed");
    drop(store);
    let store = open(&disk, options());
    // The frame that was held gets its row ahead of this one's.
    send_equal(&store, s, 2..3, 90, false);
    assert_eq!(store.view().next_row(s), 2);
    disk.fail_syncs("log", 1);
    store.commit(T0).expect_err("the sync failed");
    store.close(T0).expect_err("poisoned");
    let again = open(&disk, options());
    assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), 1, "the frame after it");
    check_identity(&again);
    let counts = again.counts(s);
    assert_eq!((counts.received, counts.stored, counts.rejected, counts.lost), (1, 0, 1, 1), "{counts:?}");
    assert_eq!(newest_state(&again, s), (7.0, 1));
}

/// The numbers that the store before gave out are passed only as far as that leaves held frames their room.
#[test]
fn held_frames_keep_their_room_while_numbers_are_passed() {
    let disk = FaultDisk::new(12);
    let fixed = FixedOptions { log_bytes: Some(16 << 10), ..FixedOptions::new(2 << 20) };
    super::fixed::make_on(&disk, &fixed);
    let small = || super::fixed::open_on(&disk, options(), T0).expect("opened");
    let store = small();
    let s = store.stream(&reduced_spec(false));
    let other = store.stream(&number("other", None));
    send_equal(&store, s, 0..2, 7, false);
    store.commit(T0).expect("committed");
    send(&store, other, 0..1);
    store.commit(T0).expect("committed");
    send(&store, other, 1..2);
    disk.fail_syncs(crate::disk::fault::VOLUME, 1);
    let given_out = store.append(&FrameBatch::new(), T0).commit;
    store.commit(T0).expect_err("the sync failed");
    store.close(T0).expect_err("poisoned");
    let again = small();
    again.take_over(&store, T0 + SECOND).expect("taken over");
    let keep_up = |n: i64| {
        again.upkeep(T0 + n * SECOND);
    };
    let taken = (1..9).any(|n| {
        keep_up(n);
        stored(&send(&again, other, 2..3)) == 1
    });
    assert!(taken, "{:?}", again.refusal());
    assert_eq!(newest_state(&again, s), (7.0, 1));
    assert!(again.wait_committed(given_out, std::time::Duration::ZERO).is_err(), "nobody is told of another's commit");
}

/// A store that takes over and fails right behind it leaves everything to the one after it.
#[test]
fn what_a_store_failed_to_take_over_the_next_one_tells() {
    let told = |fails: bool| {
        let disk = FaultDisk::new(10);
        let store = open(&disk, options());
        let s = store.stream(&number("sequenced", Some(1 << 32)));
        send(&store, s, 0..3);
        store.commit(T0).expect("committed");
        send(&store, s, [3, 6]);
        disk.fail_syncs("log", 1);
        store.commit(T0).expect_err("the sync failed");
        store.close(T0).expect_err("poisoned");
        // What comes before another store is there.
        assert_eq!(stored(&send(&store, s, [7, 8])), 0);
        store.report_gap(Gap {
            id: 0,
            stream: Some(s.0),
            cause: GapCause::Kernel,
            source: "test".into(),
            name: "sequenced".into(),
            session: None,
            sequence: None,
            rows: None,
            time: (T0, T0),
            count: 4,
        });
        let mut before = store;
        if fails {
            let second = open(&disk, options());
            disk.fail_syncs("log", 1);
            second.take_over(&before, T0 + SECOND).expect("taken over");
            second.close(T0 + SECOND).expect_err("poisoned");
            before = second;
        }
        let again = open(&disk, options());
        again.take_over(&before, T0 + SECOND).expect("taken over");
        check_identity(&again);
        again.commit(T0 + 3 * SECOND).expect("committed");
        let rows = gaps(&again).into_iter().map(|row| (row.cause, row.sequence, row.count)).collect::<Vec<_>>();
        let counts = again.counts(s);
        (rows, counts.lost, counts.rejected)
    };
    let expected = told(false);
    assert!(expected.0.len() >= 3, "{expected:?}");
    assert_eq!(told(true), expected);
}

/// What the program's own tables say of frames goes back with these: their rows are others' from then on.
#[test]
fn what_is_said_of_frames_that_went_back_goes_with_them() {
    let disk = FaultDisk::new(13);
    let store = open(&disk, options());
    let [late, standings, runs] = ["strongback.late", "strongback.derived", "strongback.runs"].map(|table| {
        let channels = [("stream", ChannelType::U32), ("row", ChannelType::U64)];
        store.resolve_own(&spec(table, channels).source("internal"), T0).expect("resolved").0.id
    });
    let s = store.stream(&number("s", None));
    let note = |table: StreamId, rows: &[u64]| {
        let mut batch = FrameBatch::new();
        for row in rows {
            batch.put(head(table, T0), [Value::U32(s.0), Value::U64(*row)]);
        }
        assert_eq!(stored(&store.append(&batch, T0).outcomes), rows.len());
    };
    send(&store, s, 0..3);
    note(late, &[0]);
    note(standings, &[1]);
    store.commit(T0).expect("committed");
    send(&store, s, 3..5);
    note(late, &[1, 3, 4, 2]);
    note(standings, &[4]);
    note(runs, &[7]);
    disk.fail_syncs("log", 1);
    store.commit(T0).expect_err("the sync failed");
    store.close(T0).expect_err("poisoned");
    let again = open(&disk, options());
    assert_eq!(again.take_over(&store, T0 + SECOND).expect("taken over"), 2);
    check_identity(&again);
    let named = |table| values_of(&again, table, ChannelIndex(1));
    assert_eq!((named(late), named(standings), named(runs)), (vec![0, 1, 2], vec![1], vec![7]));
    assert_eq!((again.counts(late).lost, again.counts(standings).lost), (0, 0));
    again.commit(T0 + 3 * SECOND).expect("committed");
    let told: Vec<_> = gaps(&again).into_iter().map(|row| (row.stream, row.count)).collect();
    assert_eq!(told, [(u64::from(s.0), 2)]);
    drop(again);
    let last = open(&disk, options());
    assert_eq!(values_of(&last, late, ChannelIndex(1)), [0, 1, 2]);
}

/// Counters of 64 bits near their end leave a store that opens.
#[test]
fn the_largest_sequences_are_saved_as_they_are_read() {
    let disk = FaultDisk::new(4);
    let mut counted = spec("counter", [("x", ChannelType::I64)]);
    counted.sequence_modulus = Some(u64::MAX);
    for round in 0..3 {
        let store = open(&disk, StoreOptions::default());
        let stream = store.stream(&counted);
        let mut batch = FrameBatch::new();
        for (n, sequence) in [u64::MAX - 1, u64::MAX, 0, 1, 1 << 62, (1 << 62) + 1].into_iter().enumerate() {
            let head = FrameHead { sequence: Some(sequence), ..head(stream, T0 + round * 100 + n as i64) };
            batch.put(head, [Value::I64(n as i64)]);
        }
        store.append(&batch, T0);
        store.close(T0).expect("closed");
    }
}
