//! What is counted, found missing and found twice.

mod kit;

use kit::*;
use strongback_store::*;

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 4 << 20, ..StoreOptions::default() }
}

fn stream(store: &Store, clock: Clock, sequence_modulus: Option<u64>) -> (StreamId, ChannelIndex) {
    let spec =
        spec("fti.bay", [("x", ChannelType::F64), ("s", ChannelType::String)]).clock(clock).modulus(sequence_modulus);
    let (stream, indices) = store.resolve(&spec, T0).expect("resolved");
    (stream.id, indices[0])
}

/// The rows of `strongback.gaps` as (cause, from_sequence, to_sequence, count, id).
fn gaps(store: &Store) -> Vec<(String, i64, i64, u64, u64)> {
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps") else { return vec![] };
    let columns: Vec<_> = ["cause", "from_sequence", "to_sequence", "count", "id"]
        .iter()
        .map(|n| table.layout.index(n).expect("a documented column"))
        .collect();
    let mut out = Vec::new();
    for batch in view.scan(Scan::all(table.id, columns)) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            let cells: Vec<_> = batch.columns.iter().map(|c| c.cell(i).expect("a value")).collect();
            match cells[..] {
                [Value::String(cause), Value::I64(a), Value::I64(b), Value::U64(n), Value::U64(id)] => {
                    out.push((cause.to_owned(), a, b, n, id));
                }
                _ => panic!("columns of other types: {cells:?}"),
            }
        }
    }
    out
}

fn send(store: &Store, stream: StreamId, x: ChannelIndex, frames: &[(u64, i64)]) -> Vec<Outcome> {
    let mut batch = FrameBatch::new();
    for &(wire, source) in frames {
        batch.put_at(
            head(stream, T0 + source).sampled(Some(T0 + source)).numbered(Some(wire)),
            [(x, Value::F64(wire as f64))],
        );
    }
    store.append(&batch, T0).outcomes
}

#[test]
fn lost_frames_are_rows_and_late_ones_fill_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let (s, x) = stream(&store, Clock::Receive, Some(1 << 32));
    send(&store, s, x, &[(0xffff_fffe, 1), (0xffff_ffff, 2), (0, 3), (11, 14), (12, 15)]);
    store.commit(T0).expect("committed");
    let outcomes = send(&store, s, x, &[(12, 15), (5, 8), (20, 23), (5, 8), (0, 1000), (1, 1001)]);
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Duplicate).count(), 2);
    // A stream has a row of losses a second.
    store.commit(T0 + 1_000_000_000).expect("committed");
    let counts = store.counts(s);
    assert_eq!(counts.received, counts.stored + counts.duplicate + counts.reduced + counts.rejected);
    assert_eq!((counts.lost, counts.filled, counts.late, counts.restarts, counts.duplicate), (17, 1, 1, 1, 2));
    let wrap = 1i64 << 32;
    let rows = gaps(&store);
    let of = |cause: &str| rows.iter().filter(|r| r.0 == cause).map(|r| (r.1, r.2, r.3)).collect::<Vec<_>>();
    assert_eq!(of("sequence"), [(wrap + 1, wrap + 10, 10), (wrap + 13, wrap + 19, 7)]);
    assert_eq!(of("filled"), [(wrap + 5, wrap + 5, 1)]);
    assert_eq!(of("restart"), [(0, 0, 0)]);
    assert_eq!(rows.iter().find(|r| r.0 == "filled").map(|r| r.4), Some(rows[0].4));
    // Sequences go on after the store was opened again.
    drop(store);
    let store = open(dir.path(), options());
    send(&store, s, x, &[(1, 1001), (2, 1002), (4, 1004)]);
    let counts = store.counts(s);
    assert_eq!((counts.duplicate, counts.lost, counts.stored), (1, 1, 2));
    let view = store.view();
    let last = view.scan(Scan { newest_first: true, ..Scan::all(s, vec![x]) }).next().expect("rows").expect("reads");
    let (sequence, session) = (last.sequence.expect("sequences"), last.session.expect("sessions"));
    assert_eq!((sequence.values.last(), session.last()), (Some(&4), Some(&1)));
}

#[test]
fn what_a_caller_found_missing_is_lost_of_its_stream() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    assert_eq!(store.recovery().last_commit, None, "a new store");
    let (s, x) = stream(&store, Clock::Receive, None);
    send(&store, s, x, &[(0, 1), (1, 2)]);
    let gap = Gap {
        id: 0,
        stream: Some(s.0),
        cause: GapCause::Silence,
        source: "fti".into(),
        name: "fti.bay".into(),
        session: None,
        sequence: None,
        rows: None,
        time: (T0 + 2, T0 + 50),
        count: 47,
    };
    store.report_gap(gap.clone());
    store.report_gap(Gap { stream: None, count: 5, ..gap });
    store.commit(T0 + 60).expect("committed");
    assert_eq!(store.counts(s).lost, 47);
    // What is open says when it was last written.
    drop(store);
    assert_eq!(open(dir.path(), options()).recovery().last_commit, Some(T0 + 60));
}

#[test]
fn what_fills_a_gap_names_it_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let (s, x) = stream(&store, Clock::Receive, Some(1 << 32));
    send(&store, s, x, &[(0, 1), (10, 11)]);
    store.commit(T0).expect("committed");
    send(&store, s, x, &[(20, 21), (30, 31)]);
    store.commit(T0 + 1_000_000_000).expect("committed");
    let ids: Vec<u64> = gaps(&store).iter().map(|row| row.4).collect();
    assert_eq!(ids.len(), 2);
    drop(store);
    let store = open(dir.path(), options());
    send(&store, s, x, &[(5, 6), (25, 26), (15, 16), (35, 36)]);
    store.commit(T0).expect("committed");
    let rows = gaps(&store);
    let filled = |id: u64| rows.iter().filter(|r| r.0 == "filled" && r.4 == id).map(|r| r.3).sum::<u64>();
    assert_eq!((filled(ids[0]), filled(ids[1])), (1, 2), "{rows:?}");
    assert_eq!(rows.iter().filter(|r| r.0 == "filled").count(), 2, "{rows:?}");
    // The next gap is no one else's.
    let newest = rows.iter().rfind(|r| r.0 == "sequence").expect("a gap");
    assert_eq!((newest.1, newest.2, ids.contains(&newest.4)), (31, 34, false));
}

#[test]
fn a_time_too_far_ahead_is_stored_and_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let (s, x) = stream(&store, Clock::Source, None);
    let day = 86_400_000_000_000;
    let mut batch = FrameBatch::new();
    for source in [T0, T0 + day, T0 + day + 1, i64::MAX - 1] {
        batch.put_at(head(s, T0).sampled(Some(source)), [(x, Value::F64(1.0))]);
    }
    store.append(&batch, T0);
    let counts = store.counts(s);
    assert_eq!((counts.received, counts.stored, counts.future), (4, 4, 2));
    let latest = store.view().state_at(s, i64::MAX, &[x]).expect("a state");
    assert_eq!(latest[0].as_ref().map(|c| c.time), Some(T0 + day));
}

#[test]
fn a_retried_write_is_stored_once_over_a_clean_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |store: &Store, shift: f64| {
        let (s, x) = stream(store, Clock::Source, None);
        let mut batch = FrameBatch::new();
        for n in 0..5000 {
            batch.put_at(head(s, T0).sampled(Some(T0 + n)), [(x, Value::F64(n as f64 + shift))]);
        }
        let appended = store.append(&batch, T0);
        appended.outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count()
    };
    let store = open(dir.path(), options());
    assert_eq!(write(&store, 0.0), 5000);
    store.upkeep(T0);
    store.close(T0).expect("closed");
    for _ in 0..2 {
        let store = open(dir.path(), options());
        assert!(store.recovery().clean);
        assert_eq!(write(&store, 0.0), 0);
        store.close(T0).expect("closed");
    }
    // Of another end it says nothing: here a crash came between.
    let kept = std::fs::read(dir.path().join("recent")).expect("kept over a clean end");
    let store = open(dir.path(), options());
    assert_eq!(write(&store, 0.5), 5000);
    store.commit(T0).expect("committed");
    drop(store);
    assert_eq!(std::fs::read(dir.path().join("recent")).expect("still there"), kept);
    let store = open(dir.path(), options());
    assert!(!store.recovery().clean);
    assert_eq!(write(&store, 0.5), 0, "the log has these");
    store.close(T0).expect("closed");
    // Damaged, it was never there.
    let mut damaged = std::fs::read(dir.path().join("recent")).expect("kept");
    damaged[100] ^= 1;
    std::fs::write(dir.path().join("recent"), damaged).expect("written");
    assert_eq!(write(&open(dir.path(), options()), 0.5), 5000);
}

#[test]
fn a_retried_write_is_stored_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let (s, x) = stream(&store, Clock::Source, None);
    let batch = |shift: f64| {
        let mut batch = FrameBatch::new();
        for n in 0..5000 {
            let time = Some(T0 + n / 2);
            batch.begin(head(s, T0 + 9).sampled(time));
            batch.push(x, Value::F64(n as f64 + shift));
            if n % 3 == 0 {
                batch.push(ChannelIndex(1), Value::String(&format!("text {n}")));
            }
            batch.end();
        }
        batch
    };
    let stored = |a: &Appended| a.outcomes.iter().filter(|o| matches!(o, Outcome::Stored { .. })).count();
    assert_eq!(stored(&store.append(&batch(0.0), T0)), 5000);
    assert_eq!(stored(&store.append(&batch(0.0), T0)), 0);
    store.commit(T0).expect("committed");
    drop(store);
    let store = open(dir.path(), options());
    assert_eq!(stored(&store.append(&batch(0.0), T0)), 0);
    // Same times with other values are other frames.
    assert_eq!(stored(&store.append(&batch(0.5), T0)), 5000);
    assert_eq!(
        store.counts(s),
        Counts { received: 10_000, stored: 5000, duplicate: 5000, points: 6667, ..store.counts(s) }
    );
}

/// Frames of a stream without a sequence, sent again after ends of both kinds.
#[test]
fn frames_sent_again_are_known_over_a_clean_end_and_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Some(open(dir.path(), options()));
    let send = |store: &Store, from: i64| {
        let (s, x) = stream(store, Clock::Source, None);
        let mut batch = FrameBatch::new();
        for n in from..from + 100 {
            batch.put_at(head(s, T0 + n).sampled(Some(T0 + n)), [(x, Value::F64(n as f64))]);
        }
        let appended = store.append(&batch, T0 + from);
        store.commit(T0 + from).expect("committed");
        appended.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Stored { .. })).count()
    };
    let (mut sent, mut expected) = (0, 0);
    for clean in [true, false, false, true, true, false] {
        let of = store.as_ref().expect("open");
        assert_eq!(send(of, sent), 100);
        sent += 100;
        expected += 100;
        if clean {
            of.close(T0 + sent).expect("closed");
        }
        drop(store.take());
        let again = store.insert(open(dir.path(), options()));
        for from in (0..sent).step_by(100) {
            assert_eq!(send(again, from), 0, "{from} of {sent}, after a clean end: {clean}");
        }
        assert_eq!(again.view().next_row(stream(again, Clock::Source, None).0), expected);
    }
}

/// A wait for the commit of a batch ends, whatever became of its frames.
#[test]
fn a_batch_of_duplicates_names_a_commit_that_comes() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let (s, x) = stream(&store, Clock::Source, None);
    let mut batch = FrameBatch::new();
    batch.put_at(head(s, T0).sampled(Some(T0)), [(x, Value::F64(1.0))]);
    let durable = |commit| store.wait_committed(commit, std::time::Duration::ZERO).expect("no refusal");
    let first = store.append(&batch, T0);
    let pending = store.append(&batch, T0);
    assert_eq!((pending.outcomes[0].clone(), durable(pending.commit)), (Outcome::Duplicate, false));
    store.commit(T0).expect("committed");
    assert!(durable(first.commit) && durable(pending.commit));
    let again = store.append(&batch, T0);
    assert_eq!((again.outcomes[0].clone(), durable(again.commit)), (Outcome::Duplicate, true));
}
