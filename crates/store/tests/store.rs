//! The store through its face, on a real folder.

mod kit;

use std::time::Duration;

use kit::*;
use strongback_store::*;

fn small() -> StoreOptions {
    StoreOptions { log_bytes: 4 << 20, ..StoreOptions::default() }
}

fn acu(table: &str, tag: &str, channels: &[(&str, ChannelType)]) -> StreamSpec {
    spec(table, channels).tag("acu", tag)
}

fn rows_of(view: &View, stream: StreamId, columns: &[ChannelIndex]) -> Vec<(u64, i64, Vec<Option<String>>)> {
    let mut out = Vec::new();
    for batch in view.scan(Scan::all(stream, columns.to_vec())) {
        let batch = batch.expect("the scan reads");
        for i in 0..batch.len() {
            let cells = batch.columns.iter().map(|c| c.cell(i).ok().map(|v| format!("{v:?}"))).collect();
            out.push((batch.rows[i], batch.time(i), cells));
        }
    }
    out
}

#[test]
fn every_type_comes_back_after_reopening() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), small());
    let names = ChannelType::ALL.map(ChannelType::name);
    let all: Vec<(&str, ChannelType)> = names.iter().map(|n| &**n).zip(ChannelType::ALL).collect();
    let (stream, indices) = store.resolve(&acu("every.type", "1", &all), T0).expect("resolved");
    let values: [&[Value]; 2] = [
        &[
            Value::Bool(true),
            Value::I8(i8::MIN),
            Value::I16(i16::MIN),
            Value::I32(i32::MIN),
            Value::I64(i64::MIN),
            Value::U8(u8::MAX),
            Value::U16(u16::MAX),
            Value::U32(u32::MAX),
            Value::U64(u64::MAX),
            Value::F32(-0.0),
            Value::F64(f64::from_bits(1)),
            Value::String("größe"),
        ],
        &[
            Value::Bool(false),
            Value::I8(-1),
            Value::I16(2),
            Value::I32(3),
            Value::I64((1 << 53) + 1),
            Value::U8(4),
            Value::U16(5),
            Value::U32(6),
            Value::U64(7),
            Value::F32(f32::INFINITY),
            Value::F64(-1.5e300),
            Value::String(""),
        ],
    ];
    let mut batch = FrameBatch::new();
    for (i, row) in values.iter().enumerate() {
        batch.begin(head(stream.id, T0 + i as i64));
        for (index, value) in indices.iter().zip(*row) {
            batch.push(*index, *value);
        }
        batch.end();
    }
    // A third with nothing but an unknown cell.
    batch.begin(head(stream.id, T0 + 2));
    batch.push_state(indices[3], CellState::Unknown);
    batch.end();
    let appended = store.append(&batch, T0);
    assert_eq!(appended.outcomes, (0..3).map(|row| Outcome::Stored { row }).collect::<Vec<_>>());
    let before = rows_of(&store.view(), stream.id, &indices);
    assert_eq!(store.committed_row(stream.id), 0);
    assert_eq!(store.commit(T0).expect("committed"), appended.commit);
    assert_eq!(store.committed_row(stream.id), 3);
    assert!(store.wait_committed(appended.commit, Duration::ZERO).expect("no refusal"));
    for (i, row) in values.iter().enumerate() {
        let want: Vec<_> = row.iter().map(|v| Some(format!("{v:?}"))).collect();
        assert_eq!(before[i], (i as u64, T0 + i as i64, want));
    }
    assert!(before[2].2.iter().all(|c| c.is_none()));
    let state = store.view().state_at(stream.id, T0 + 9, &indices).expect("a state");
    assert_eq!(state[3].as_ref().map(|c| (c.value.clone(), c.row)), Some((None, 2)));
    assert_eq!(state[11].as_ref().map(|c| (c.value.clone(), c.row)), Some((Some(OwnedValue::String("".into())), 1)));

    // A crash: dropped without closing. And a clean end.
    let origin = store.origin();
    drop(store);
    for (opening, clean) in [(2, false), (3, true)] {
        let store = open(dir.path(), small());
        let report = store.recovery();
        assert_eq!((store.origin(), store.epoch(), report.clean), (origin, opening, clean));
        let stream = store.catalog().streams[0].clone();
        assert_eq!(stream.key.to_string(), "every.type{acu=1}");
        assert_eq!(rows_of(&store.view(), stream.id, &indices), before);
        store.close(T0).expect("closed");
    }
}

#[test]
fn layouts_grow_and_widen_exactly() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), small());
    let push = |store: &Store, stream: StreamId, cells: &[(ChannelIndex, Value)]| {
        let mut batch = FrameBatch::new();
        batch.begin(head(stream, T0));
        cells.iter().for_each(|(i, v)| batch.push(*i, *v));
        batch.end();
        store.append(&batch, T0).outcomes
    };
    let (s, a) = store.resolve(&acu("t", "1", &[("x", ChannelType::I8), ("time", ChannelType::Bool)]), T0).expect("a");
    assert_eq!(s.layout.channels[1].name, "time_field");
    push(&store, s.id, &[(a[0], Value::I8(-5))]);
    let (s, b) = store.resolve(&acu("t", "1", &[("y", ChannelType::F32), ("x", ChannelType::U16)]), T0).expect("b");
    assert_eq!(
        (b.clone(), s.layout.channels[0].channel_type),
        (vec![ChannelIndex(2), ChannelIndex(0)], ChannelType::I32)
    );
    push(&store, s.id, &[(b[1], Value::U16(65_535)), (b[0], Value::F32(1.5))]);
    let (s, c) = store.resolve(&acu("t", "1", &[("x", ChannelType::String)]), T0).expect("c");
    assert_eq!(s.layout.channels[c[0].0 as usize].name, "x_string");
    let bad = push(&store, s.id, &[(a[0], Value::String("no"))]);
    assert!(matches!(&bad[0], Outcome::Rejected(r) if r.reason() == "bad_type"), "{bad:?}");
    let columns: Vec<_> = (0..s.layout.channels.len() as u16).map(ChannelIndex).collect();
    let rows = rows_of(&store.view(), s.id, &columns);
    let text = |v: &str| Some(v.to_owned());
    assert_eq!(rows[0].2, vec![text("I32(-5)"), None, None, None]);
    assert_eq!(rows[1].2, vec![text("I32(65535)"), None, text("F32(1.5)"), None]);
    assert_eq!(store.counts(s.id), Counts { received: 3, stored: 2, rejected: 1, points: 3, ..Counts::default() });
    store.commit(T0).expect("committed");
    drop(store);
    let store = open(dir.path(), small());
    assert_eq!(store.catalog().streams[0].layout, s.layout);
    assert_eq!(rows_of(&store.view(), s.id, &columns), rows);
}

#[test]
fn a_view_stays_as_it_was_taken() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), small());
    let (s, i) = store.resolve(&acu("t", "1", &[("x", ChannelType::I64)]), T0).expect("resolved");
    let append = |n: i64| {
        let mut batch = FrameBatch::new();
        batch.put_at(head(s.id, T0 + n), [(i[0], Value::I64(n))]);
        store.append(&batch, T0)
    };
    (0..100).for_each(|n| drop(append(n)));
    let view = store.view();
    assert_eq!(view.next_row(s.id), 100);
    (100..3000).for_each(|n| drop(append(n)));
    assert_eq!(rows_of(&view, s.id, &i).len(), 100);
    let scan = Scan { time: T0 + 2990..T0 + 2995, ..Scan::all(s.id, i.clone()) };
    let rows: Vec<u64> = store.view().scan(scan).flat_map(|b| b.expect("reads").rows).collect();
    assert_eq!(rows, (2990..2995).collect::<Vec<_>>());
    let newest = Scan { newest_first: true, ..Scan::all(s.id, i.clone()) };
    assert_eq!(store.view().scan(newest).next().expect("a batch").expect("reads").rows.last(), Some(&2999));
}

#[test]
fn a_folder_in_use_newer_copied_or_damaged_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), small());
    let error = Store::open(dir.path(), small(), T0).err().expect("in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let origin = store.origin();
    store.close(T0).expect("closed");

    let copy = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(dir.path()).expect("listed") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("copied");
    }
    let error = Store::open(copy.path(), small(), T0).err().expect("a copy");
    assert!(matches!(error, OpenError::Copied { origin: o, .. } if o == origin), "{error}");

    let adopted = Store::adopt(copy.path()).expect("adopted");
    let own = Store::open(copy.path(), small(), T0).expect("a store of its own");
    assert!(own.origin() == adopted && adopted != origin);
    assert!(matches!(Store::adopt(copy.path()), Err(OpenError::InUse { .. })));

    let path = dir.path().join("superblock");
    let good = std::fs::read(&path).expect("read");
    let mut newer = good.clone();
    for page in newer.chunks_mut(4096) {
        page[8] = 9;
        let crc = crc32c::crc32c(&page[..120]);
        page[120..124].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, &newer).expect("written");
    let error = Store::open(dir.path(), small(), T0).err().expect("newer");
    assert!(matches!(error, OpenError::Newer { .. }), "{error}");
    std::fs::write(&path, vec![7; 8192]).expect("written");
    let error = Store::open(dir.path(), small(), T0).err().expect("damaged");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    // One damaged page is survived.
    let mut half = good.clone();
    half[..4096].fill(0);
    std::fs::write(&path, &half).expect("written");
    Store::open(dir.path(), small(), T0).expect("the other page");
}

#[test]
fn a_full_log_pushes_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions { log_bytes: 1 << 20, ..small() });
    let (s, i) = store.resolve(&acu("t", "1", &[("x", ChannelType::I64)]), T0).expect("resolved");
    let mut batch = FrameBatch::new();
    for n in 0..20_000 {
        batch.put_at(head(s.id, T0 + n), [(i[0], Value::I64(n))]);
    }
    let appended = store.append(&batch, T0);
    let refused = appended.outcomes.iter().filter(|o| **o == Outcome::Rejected(Reject::Refused(Refusal::LogFull)));
    let stored = store.counts(s.id).stored;
    assert!(stored > 1000 && refused.count() as u64 == 20_000 - stored);
    let counts = store.counts(s.id);
    assert_eq!((counts.received, counts.rejected), (20_000, 20_000 - stored));
    // Offered again, they count when they are taken.
    let offered = store.offer(&batch, T0);
    assert!(offered.outcomes.iter().all(|o| *o == Outcome::Rejected(Reject::Refused(Refusal::LogFull))));
    assert_eq!(store.counts(s.id), counts);
    store.commit(T0).expect("committed");
    let appended = store.append(&batch, T0);
    assert!(matches!(appended.outcomes[0], Outcome::Stored { row } if row == stored));
}

#[test]
fn a_reduction_hides_no_spike() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), small());
    let (s, i) = store.resolve(&acu("t", "1", &[("x", ChannelType::F64)]), T0).expect("resolved");
    let mut batch = FrameBatch::new();
    for n in 0..5000 {
        batch.begin(head(s.id, T0 + n));
        let value = if n == 2345 { 1e6 } else { (n % 10) as f64 };
        batch.push(i[0], Value::F64(if n == 77 { f64::NAN } else { value }));
        batch.end();
    }
    store.append(&batch, T0);
    let view = store.view();
    let buckets = view.reduce(s.id, i[0], i64::MIN..i64::MAX, 50).expect("reduced");
    assert_eq!((buckets.len(), buckets.iter().map(|b| b.count).sum::<u64>()), (50, 5000));
    assert_eq!(buckets[23].max, Some(Value::F64(1e6)));
    assert_eq!((buckets[1].min, buckets[1].mean), (Some(Value::F64(0.0)), Some(4.5)));
    assert_eq!(buckets[49].last, OwnedValue::Plain(Value::F64(9.0)));
    let few = view.reduce(s.id, i[0], T0 + 10..T0 + 20, 50).expect("reduced");
    assert_eq!((few.len(), few[0].time, few[9].max), (10, T0 + 10, Some(Value::F64(9.0))));
}

/// The machine's clock is set back by a day, again and again, while it records and between openings.
#[test]
fn a_clock_that_runs_backwards_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let fixed = dir.path().join("fixed");
    let options = || StoreOptions { max_age: Some(Duration::from_secs(3_600)), open_bytes: 32 << 10, ..small() };
    let made = FixedOptions { max_streams: 3, ..FixedOptions::new(16 << 20) };
    Store::create_fixed(&fixed, &made, options(), T0).expect("created").close(T0).expect("closed");
    for path in [dir.path().join("folder"), fixed] {
        let (mut now, mut sent) = (T0, Vec::new());
        for opening in 0..4 {
            let store = Store::open(&path, options(), now).expect("opened");
            let (s, i) = store.resolve(&acu("t", "1", &[("x", ChannelType::I64)]), now).expect("resolved");
            for step in 0..6 {
                let mut batch = FrameBatch::new();
                for _ in 0..500 {
                    now += 1_000_000;
                    batch.put_at(head(s.id, now), [(i[0], Value::I64(sent.len() as i64))]);
                    sent.push(now);
                }
                let stored = store.append(&batch, now).outcomes;
                assert!(stored.iter().all(is_stored), "{stored:?}");
                store.upkeep(now);
                if step % 3 == 1 {
                    now -= 86_400_000_000_000;
                }
            }
            let check = |store: &Store| {
                let view = store.view();
                let rows = rows_of(&view, s.id, &i);
                assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), sent, "opening {opening}");
                assert!(rows.iter().enumerate().all(|(n, row)| row.0 == n as u64));
                // By time, whatever the order of rows.
                let (from, to) = (now - 700_000_000, now - 200_000_000);
                let found = view.scan(Scan { time: from..to, ..Scan::all(s.id, vec![]) });
                let found: usize = found.map(|batch| batch.expect("reads").len()).sum();
                assert_eq!(found, sent.iter().filter(|time| (from..to).contains(*time)).count());
                let range = (*sent.iter().min().expect("one"), *sent.iter().max().expect("one"));
                assert_eq!(view.time_range(s.id), Some(range));
                let state = view.state_at(s.id, i64::MAX, &i).expect("a state").remove(0).expect("a value");
                assert_eq!(state.time, range.1);
            };
            check(&store);
            store.settle(now).expect("settled");
            check(&store);
            if opening % 2 == 0 {
                store.close(now).expect("closed");
            }
            now -= 86_400_000_000_000;
        }
    }
}
