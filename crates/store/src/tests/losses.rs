//! Rows of losses: one a second of each stream, with each lost frame in exactly one, whatever ends in between; and no
//! sender makes enough of them that anything else goes for them.

use fastrand::Rng;

use crate::disk::fault::{Fault, FaultDisk};
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000 * MS;

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(8 << 20),
        open_bytes: 64 << 10,
        ..StoreOptions::default()
    }
}

fn numbered(name: &str) -> StreamSpec {
    spec(name, [("value", ChannelType::U64)]).modulus(Some(1 << 32))
}

fn stream(store: &Store, name: &str, now: i64) -> StreamId {
    store.resolve(&numbered(name), now).expect("resolved").0.id
}

fn send(store: &Store, stream: StreamId, sequences: &[u64], now: i64) {
    let mut batch = FrameBatch::new();
    for (n, &sequence) in sequences.iter().enumerate() {
        let head = head(stream, now + n as i64).numbered(Some(sequence));
        batch.put(head, [Value::U64(sequence)]);
    }
    let appended = store.append(&batch, now);
    assert!(appended.outcomes.iter().all(is_stored), "{:?}", appended.outcomes);
}

/// A row of `strongback.gaps`.
#[derive(Clone, Debug)]
struct Row {
    id: u64,
    stream: u32,
    cause: String,
    session: u64,
    range: (i64, i64),
    count: u64,
}

fn gap_rows(store: &Store) -> Vec<Row> {
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned() else {
        return Vec::new();
    };
    let names = ["id", "stream", "cause", "gap_session", "from_sequence", "to_sequence", "count"];
    let columns = names.iter().map(|name| table.layout.index(name).expect("a column")).collect();
    let mut rows = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns)) {
        let batch = batch.expect("reads");
        for at in 0..batch.len() {
            let number = |column: usize| match batch.columns[column].cell(at) {
                Ok(Value::U64(value)) => value as i64,
                Ok(Value::U32(value)) => value.into(),
                Ok(Value::I64(value)) => value,
                _ => -1,
            };
            let Ok(Value::String(cause)) = batch.columns[2].cell(at) else { continue };
            rows.push(Row {
                id: number(0) as u64,
                stream: number(1) as u32,
                cause: cause.to_owned(),
                session: number(3) as u64,
                range: (number(4), number(5)),
                count: number(6) as u64,
            });
        }
    }
    rows
}

/// Lost less filled of all rows.
fn open_frames(rows: &[Row]) -> i64 {
    let sum = |causes: &[&str]| {
        rows.iter().filter(|row| causes.contains(&row.cause.as_str())).map(|row| row.count as i64).sum::<i64>()
    };
    sum(&["sequence", "not recorded"]) - sum(&["filled"])
}

#[test]
fn a_stream_that_loses_frames_all_the_time_has_a_row_a_second_and_each_frame_lies_in_one() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    let (mut random, mut next, mut missing) = (Rng::with_seed(1), 0, Vec::new());
    let seconds = 30;
    for tick in 0..seconds * 20 {
        let now = T0 + tick * 50 * MS;
        let lost = random.u64(1..5);
        if next > 0 {
            missing.extend(next..next + lost);
        }
        next += lost;
        send(&store, lossy, &[next], now);
        next += 1;
        store.upkeep(now);
    }
    store.commit(T0 + (seconds + 2) * S).expect("committed");
    let rows = gap_rows(&store);
    assert!(rows.len() as i64 <= seconds + 2, "{} rows in {seconds} s", rows.len());
    for pair in rows.windows(2) {
        assert!(pair[0].range.1 < pair[1].range.0 && pair[0].id < pair[1].id, "{pair:?}");
    }
    for row in &rows {
        let within = missing.iter().filter(|&&frame| (row.range.0..=row.range.1).contains(&(frame as i64))).count();
        assert_eq!((within as u64, row.stream), (row.count, lossy.0), "{row:?}");
    }
    assert_eq!(open_frames(&rows), missing.len() as i64);
    assert_eq!(store.counts(lossy).lost, missing.len() as u64);
}

#[test]
fn the_first_loss_after_a_quiet_second_is_durable_with_the_frame_that_shows_it() {
    let disk = FaultDisk::new(2);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[1, 2, 5], T0);
    store.commit(T0).expect("committed");
    let rows = gap_rows(&store);
    assert_eq!((rows.len(), rows[0].range, rows[0].count), (1, (3, 4), 2));
}

/// How a store ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Kill,
    Cut,
    /// The disk fails, and another store takes over.
    Fail,
}

#[test]
fn what_waits_for_its_second_is_told_once_whatever_ends() {
    for seed in 0..60 {
        for end in [End::Close, End::Kill, End::Cut, End::Fail] {
            let mut random = Rng::with_seed(seed);
            let mut disk = FaultDisk::new(seed);
            let mut store = open(&disk, options());
            let (mut now, mut next, mut late) = (T0, 2, Vec::new());
            let lossy = stream(&store, "lossy", now);
            let mut seen = std::collections::BTreeSet::from([1]);
            send(&store, lossy, &[1], now);
            for _ in 0..60 {
                now += random.i64(1..300) * MS;
                let mut sent: Vec<u64> = Vec::new();
                for _ in 0..random.usize(1..5) {
                    match random.u8(..4) {
                        0 => {
                            let lost = random.u64(1..4);
                            // Some of what is lost comes late.
                            late.extend((next..next + lost).filter(|_| random.bool()));
                            next += lost;
                        }
                        1 if !late.is_empty() && next > 5 => {
                            sent.push(late.swap_remove(random.usize(..late.len())));
                            continue;
                        }
                        _ => {}
                    }
                    sent.push(next);
                    next += 1;
                }
                send(&store, lossy, &sent, now);
                store.commit(now).expect("committed");
                seen.extend(sent);
                if random.u8(..3) == 0 {
                    while store.maintain(now).expect("maintained") {}
                }
                if random.u8(..8) > 0 {
                    continue;
                }
                match end {
                    End::Close => store.close(now).expect("closed"),
                    End::Kill => disk = disk.after_kill(),
                    End::Cut => disk = disk.after_cut(),
                    End::Fail => {
                        disk.fail_syncs("log", 1);
                        send(&store, lossy, &[next], now);
                        next += 1;
                        store.commit(now).expect_err("the sync fails");
                        store.close(now).expect_err("it failed");
                        let again = open_at(&disk, options(), now);
                        again.take_over(&store, now).expect("taken over");
                        store = again;
                        continue;
                    }
                }
                store = open_at(&disk, options(), now);
            }
            for _ in 0..3 {
                now += 2 * S;
                store.commit(now).expect("committed");
            }
            let first = *seen.iter().next().expect("frames");
            let last = if matches!(end, End::Fail) { next - 1 } else { *seen.iter().next_back().expect("frames") };
            let missing = (first..=last).filter(|frame| !seen.contains(frame)).count() as i64;
            let rows = gap_rows(&store);
            assert_eq!(open_frames(&rows), missing, "seed {seed}, {end:?}: {rows:#?}");
        }
    }
}

#[test]
fn a_source_that_begins_again_all_the_time_has_few_rows() {
    let disk = FaultDisk::new(4);
    let store = open(&disk, options());
    let restless = stream(&store, "restless", T0);
    let mut now = T0;
    for _ in 0..200 {
        now += 50 * MS;
        // Far beyond what a frame may be late.
        for sequence in [3_000_000_000, 5, 3_000_000_000, 7] {
            send(&store, restless, &[sequence], now);
        }
        store.upkeep(now);
    }
    let restarts = store.counts(restless).restarts;
    let rows = gap_rows(&store);
    assert!(restarts > 300, "{restarts}");
    let found = rows.iter().filter(|row| row.cause == "restart").count();
    assert!(found <= 202, "{found} rows of {restarts} restarts, {:?}", rows.last().map(|row| row.session));
}

#[test]
fn made_up_sequences_drive_out_neither_data_nor_events() {
    let disk = FaultDisk::new(5);
    let store = open(&disk, options());
    let mut events = crate::append::ledger::gaps_spec();
    events.key = StreamKey::new("strongback.events", []);
    let events = store.resolve_own(&events, T0).expect("resolved").0.id;
    let mut batch = FrameBatch::new();
    for n in 0..500 {
        batch.put(head(events, T0 + n), [Value::U64(n as u64)]);
    }
    store.append(&batch, T0);
    let quiet = stream(&store, "quiet", T0);
    for from in (0..20_000).step_by(1_000) {
        send(&store, quiet, &(from..from + 1_000).collect::<Vec<_>>(), T0);
        store.upkeep(T0);
    }
    let (mut now, mut random) = (T0, Rng::with_seed(5));
    let bogus: Vec<StreamId> = (0..200).map(|n| stream(&store, &format!("bogus{n}"), T0)).collect();
    for _ in 0..150 {
        now += S;
        for &stream in &bogus {
            send(&store, stream, &[random.u64(..1 << 32)], now);
        }
        store.upkeep(now);
    }
    let count = |stream| -> usize {
        store.view().scan(Scan::all(stream, vec![])).map(|batch| batch.expect("reads").len()).sum()
    };
    let bytes = |name: &str| -> u64 { store.segments().iter().filter(|s| s.group == name).map(|s| s.size_bytes).sum() };
    assert_eq!((count(events), count(quiet)), (500, 20_000), "{} bytes of gaps", bytes("gaps"));
    assert!(bytes("gaps") <= (8 << 20) / 32 + (64 << 10), "{}", bytes("gaps"));
    assert!(gap_rows(&store).len() > 100);
    // Who does not know the group of these rows would drop them like data, and must refuse the store.
    let features = |page: &[u8]| u32::from_le_bytes(page[12..16].try_into().expect("four bytes"));
    let pages = disk.content("superblock").expect("a superblock");
    assert!(pages.chunks(4096).all(|page| features(page) & crate::log::superblock::GAPS_APART != 0));
}

#[test]
fn a_recording_that_is_read_in_a_moment_has_a_row_for_each_loss_that_is_apart() {
    let disk = FaultDisk::new(6);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    // Frames of two minutes at 1 kHz, all committed at one instant.
    let losses: Vec<u64> = (1..60).map(|n| n * 2_000).collect();
    let mut batch = FrameBatch::new();
    for n in (0..120_000).filter(|n| !losses.contains(n)) {
        let receive_time = T0 - 120 * S + n as i64 * MS;
        batch.put(head(lossy, receive_time).numbered(Some(n)), [Value::U64(n)]);
        if n % 500 == 499 {
            store.append(&batch, T0);
            store.upkeep(T0);
            batch.clear();
        }
    }
    store.commit(T0 + 2 * S).expect("committed");
    let rows = gap_rows(&store);
    let ranges: Vec<(i64, i64)> = rows.iter().map(|row| row.range).collect();
    assert_eq!(ranges, losses.iter().map(|&n| (n as i64, n as i64)).collect::<Vec<_>>());
}

/// The name of a stream with quotes in its tags is longer than its definition, and than a frame of a small store may be.
#[test]
fn a_long_name_holds_up_no_row() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let wide = store.stream(&numbered("wide").tag("tag", "\"".repeat(6_000)));
    let other = stream(&store, "other", T0);
    send(&store, wide, &[1, 4], T0);
    send(&store, other, &[1, 6], T0);
    store.upkeep(T0 + 2 * S);
    let rows = gap_rows(&store);
    let counts: Vec<(u32, u64)> = rows.iter().map(|row| (row.stream, row.count)).collect();
    assert_eq!(counts, [(wide.0, 2), (other.0, 4)]);
}

/// A loss whose row is in a unit of the log that the disk refused has no row yet, whatever a checkpoint says that is
/// written before that unit.
#[test]
fn a_checkpoint_names_no_gap_whose_row_is_not_durable() {
    let disk = FaultDisk::new(7);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[1, 3], T0);
    store.commit(T0).expect("committed");
    // Its row waits for the second to be over.
    send(&store, lossy, &[5], T0 + 100 * MS);
    store.commit(T0 + 100 * MS).expect("committed");
    let checkpoint = || store.sealer.lock().write_checkpoint(&store.engine, None).expect("a checkpoint");
    checkpoint();
    disk.fail_call(Fault::NoSpace, 0, 2);
    store.commit(T0 + 2 * S).expect_err("there is no space for the row");
    disk.heal();
    assert_eq!(store.refusal(), Some(Refusal::DiskFull), "the unit waits");
    checkpoint();
    let again = open_at(&disk.after_cut(), options(), T0 + 3 * S);
    again.commit(T0 + 6 * S).expect("committed");
    let rows = gap_rows(&again);
    assert_eq!(rows.iter().map(|row| (row.range, row.count)).collect::<Vec<_>>(), [((2, 2), 1), ((4, 4), 1)]);
}

/// Sends frames to a store that takes nothing for a moment.
fn send_refused(store: &Store, stream: StreamId, sequences: &[u64], now: i64) {
    store.engine.writer.lock().gate.set_disk_full(true);
    let mut batch = FrameBatch::new();
    for &sequence in sequences {
        batch.put(head(stream, now).numbered(Some(sequence)), [Value::U64(sequence)]);
    }
    let outcomes = store.append(&batch, now).outcomes;
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Rejected(Reject::Refused(_)))), "{outcomes:?}");
    store.engine.writer.lock().gate.set_disk_full(false);
}

/// Ranges and counts of the rows of a cause, in their order.
fn of_cause(store: &Store, cause: &str) -> Vec<((i64, i64), u64)> {
    let rows = gap_rows(store);
    rows.iter().filter(|row| row.cause == cause).map(|row| (row.range, row.count)).collect()
}

#[test]
fn what_is_lost_among_refused_frames_is_told_whatever_ends() {
    for waits in [false, true] {
        let disk = FaultDisk::new(8);
        let mut store = open(&disk, options());
        let lossy = stream(&store, "lossy", T0);
        send(&store, lossy, &[1, 3, 4, 5, 6, 7, 8, 9], T0);
        store.commit(T0).expect("committed");
        send_refused(&store, lossy, &[10, 20], T0 + 100 * MS);
        send(&store, lossy, &[21], T0 + 200 * MS);
        store.commit(T0 + 200 * MS).expect("committed");
        assert_eq!(of_cause(&store, "not recorded"), [((10, 10), 1), ((20, 20), 1)]);
        if waits {
            store.commit(T0 + 2 * S).expect("committed");
        }
        let disk = disk.after_kill();
        store = open_at(&disk, options(), T0 + 3 * S);
        assert_eq!(store.stream(&numbered("lossy")), lossy);
        send(&store, lossy, &[15, 20], T0 + 4 * S);
        store.commit(T0 + 6 * S).expect("committed");
        assert_eq!(of_cause(&store, "not recorded"), [((10, 10), 1), ((20, 20), 1)]);
        assert_eq!(of_cause(&store, "sequence"), [((2, 2), 1), ((11, 19), 9)]);
        assert_eq!((open_frames(&gap_rows(&store)), store.counts(lossy).filled), (10, 2));
    }
}

#[test]
fn runs_of_refused_frames_beyond_those_that_wait_apart_are_told_with_the_losses_between() {
    let disk = FaultDisk::new(9);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[1, 3], T0);
    store.commit(T0).expect("committed");
    let refused: Vec<u64> = (5..1_005).step_by(2).collect();
    send_refused(&store, lossy, &refused, T0 + 100 * MS);
    store.commit(T0 + 200 * MS).expect("committed");
    let rows = of_cause(&store, "not recorded");
    assert!(rows.len() > 100 && rows.len() < 200, "{} rows", rows.len());
    let store = open_at(&disk.after_kill(), options(), T0 + 3 * S);
    store.commit(T0 + 4 * S).expect("committed");
    assert_eq!(open_frames(&gap_rows(&store)), 1 + 2 * refused.len() as i64);
}

#[test]
fn a_late_frame_that_is_refused_is_lost_once_and_lets_others_have_their_range() {
    let disk = FaultDisk::new(10);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[100, 101, 102, 103, 104, 105], T0);
    send_refused(&store, lossy, &[106, 107, 95, 95], T0 + MS);
    send_refused(&store, lossy, &[95], T0 + 2 * MS);
    assert_eq!((store.counts(lossy).lost, store.counts(lossy).rejected), (3, 5));
    store.commit(T0 + 3 * MS).expect("committed");
    let told = [((106, 107), 2), ((95, 95), 1)];
    assert_eq!(of_cause(&store, "not recorded"), told);
    let disk = disk.after_kill();
    let again = open_at(&disk, options(), T0 + S);
    send(&again, lossy, &[108], T0 + S);
    again.commit(T0 + 3 * S).expect("committed");
    assert_eq!((of_cause(&again, "not recorded"), of_cause(&again, "sequence")), (told.to_vec(), vec![]));
}

#[test]
fn a_late_frame_that_is_refused_fills_its_gap_when_it_comes_again() {
    let disk = FaultDisk::new(11);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[100, 101], T0);
    send_refused(&store, lossy, &[95, 95], T0 + MS);
    store.commit(T0 + 2 * MS).expect("committed");
    send(&store, lossy, &[95], T0 + 3 * MS);
    store.commit(T0 + 4 * MS).expect("committed");
    let rows = gap_rows(&store);
    let found: Vec<_> = rows.iter().map(|row| (row.cause.as_str(), row.range, row.count)).collect();
    assert_eq!(found, [("not recorded", (95, 95), 1), ("filled", (95, 95), 1)]);
    assert_eq!(rows[0].id, rows[1].id);
    assert_eq!((store.counts(lossy).lost, store.counts(lossy).filled), (1, 1));
}

#[test]
fn a_sender_that_begins_again_while_it_is_refused_leaves_a_row_of_each_session() {
    let disk = FaultDisk::new(12);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[1, 2], T0);
    let far = 3_000_000_000;
    send_refused(&store, lossy, &[3, 4, far, far + 1], T0 + MS);
    store.commit(T0 + 2 * MS).expect("committed");
    let told = [((3, 4), 2), ((far as i64, far as i64 + 1), 2)];
    assert_eq!(of_cause(&store, "not recorded"), told);
    let again = open_at(&disk.after_kill(), options(), T0 + S);
    send(&again, lossy, &[far + 2], T0 + S);
    again.commit(T0 + 3 * S).expect("committed");
    assert_eq!((of_cause(&again, "not recorded"), of_cause(&again, "sequence")), (told.to_vec(), vec![]));
}

/// A count that was taken to wrap sooner than it does.
#[test]
fn a_sequence_that_counts_by_another_number_shows_no_loss() {
    for opened_between in [false, true] {
        let disk = FaultDisk::new(14);
        let mut store = open(&disk, options());
        let s = store.stream(&numbered("counter").modulus(Some(1 << 16)));
        send(&store, s, &[65_534, 65_535, 65_536, 65_538], T0);
        store.upkeep(T0);
        assert_eq!(store.counts(s).lost, 1);
        let mut now = T0 + 10 * MS;
        for round in 0..3u64 {
            if opened_between {
                drop(store);
                store = open_at(&disk, options(), now);
            }
            assert_eq!(stream(&store, "counter", now), s);
            let first = 65_539 + 2 * round;
            send(&store, s, &[first, first + 1], now);
            store.upkeep(now);
            now += 10 * MS;
        }
        // One that comes behind is a loss as any other.
        send(&store, s, &[65_548], now);
        store.commit(now + 2 * S).expect("committed");
        let rows: Vec<_> = gap_rows(&store).into_iter().map(|row| (row.session, row.range, row.count)).collect();
        assert_eq!(rows, [(0, (65_537, 65_537), 1), (1, (65_545, 65_547), 3)], "{opened_between}");
    }
}

#[test]
fn what_fills_a_gap_has_its_row_behind_that_of_the_gap() {
    let disk = FaultDisk::new(13);
    let store = open(&disk, options());
    let lossy = stream(&store, "lossy", T0);
    send(&store, lossy, &[1, 2], T0);
    send_refused(&store, lossy, &[3], T0 + MS);
    store.commit(T0 + 2 * MS).expect("committed");
    send_refused(&store, lossy, &[4], T0 + 100 * MS);
    send(&store, lossy, &[4], T0 + 200 * MS);
    store.commit(T0 + 300 * MS).expect("committed");
    assert_eq!((of_cause(&store, "not recorded").len(), of_cause(&store, "filled").len()), (1, 0), "its second");
    store.commit(T0 + 2 * S).expect("committed");
    let rows = gap_rows(&store);
    let causes: Vec<&str> = rows.iter().map(|row| row.cause.as_str()).collect();
    assert_eq!(causes, ["not recorded", "not recorded", "filled"]);
    assert_eq!(rows[1].id, rows[2].id);
}

/// More streams have losses without a row than rows wait one by one, and the last of them in two sessions.
#[test]
fn however_many_losses_an_opening_finds_each_is_told_once() {
    let disk = FaultDisk::new(14);
    let options = StoreOptions { log_bytes: 8 << 20, max_bytes: Some(1 << 30), ..options() };
    let store = open(&disk, &options);
    let streams: Vec<StreamId> = (0..1_200).map(|n| stream(&store, &format!("s{n}"), T0)).collect();
    let send_all = |sequences: &[u64], now| {
        streams.iter().for_each(|&stream| send(&store, stream, sequences, now));
        store.commit(now).expect("committed");
    };
    send_all(&[1, 3], T0);
    send_all(&[5], T0 + 100 * MS);
    send(&store, streams[1_199], &[3_000_000_000, 3_000_000_002], T0 + 200 * MS);
    store.commit(T0 + 200 * MS).expect("committed");
    let mut disk = disk;
    for n in 0..3 {
        disk = disk.after_kill();
        let store = open_at(&disk, &options, T0 + (n + 1) * 10 * S);
        store.commit(T0 + (n + 1) * 10 * S + 5 * S).expect("committed");
        assert_eq!(open_frames(&gap_rows(&store)), 2 * 1_200 + 1, "opening {n}");
    }
}
