//! Followers of a real store, into a target that fails at random and remembers all that it took.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use strongback_store::{
    ArrayRef, ArrayType, ChannelSpec, ChannelType, ElementType, FrameBatch, FrameHead, Pattern, Scan, Store,
    StoreOptions, StreamId, StreamKey, StreamSpec, Value,
};

use crate::columns::{Columns, Dialect, Field, plan};
use crate::{Delivered, Delivery, Follower, FollowerOptions, Note, Pauses, State, StreamFrames, Target, TargetError};

/// Max time of a stop.
const STOP: Duration = Duration::from_secs(60);
const NOW: i64 = 1_790_000_000_000_000_000;

/// What the target has: the value of each row.
#[derive(Debug, Default)]
struct There {
    rows: BTreeMap<(u32, u64), i64>,
    positions: HashMap<StreamId, u64>,
    again: u64,
    calls: u64,
}

struct Faulty {
    there: Arc<(Mutex<There>, Condvar)>,
    rng: fastrand::Rng,
    /// Each kind of failure occurs in one of this number of calls; 0 for none.
    fails_in: u32,
    keeps_positions: bool,
    is_rejected: fn(i64) -> bool,
}

impl Target for Faulty {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        if self.fails_in > 0 && self.rng.u32(..self.fails_in) == 0 {
            return Err(TargetError::Unavailable("no route".into()));
        }
        Ok(self.keeps_positions.then(|| self.there.0.lock().positions.clone()))
    }

    fn recognises_frames(&self) -> bool {
        !self.keeps_positions
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let mut there = self.there.0.lock();
        there.calls += 1;
        let way = if self.fails_in > 0 { self.rng.u32(..self.fails_in) } else { u32::MAX };
        if way == 0 {
            return Err(TargetError::Unavailable("before".into()));
        }
        if way == 1 {
            let streams = vec![delivery.parts[self.rng.usize(..delivery.parts.len())].id()];
            return Err(TargetError::Streams { streams, reason: "locked".into() });
        }
        for part in &delivery.parts {
            for at in 0..part.batch.len() {
                let Ok(Value::I64(value)) = part.batch.columns[0].cell(at) else { panic!("no value") };
                if (self.is_rejected)(value) {
                    return Err(TargetError::Rejected(format!("{value} is odd")));
                }
            }
        }
        for part in &delivery.parts {
            for (at, row) in part.batch.rows.iter().enumerate() {
                let Ok(Value::I64(value)) = part.batch.columns[0].cell(at) else { panic!("no value") };
                if let Some(before) = there.rows.insert((part.id().0, *row), value) {
                    assert_eq!(before, value);
                    there.again += 1;
                }
            }
            there.positions.insert(part.id(), part.rows().end);
            if way == 3 && !self.keeps_positions {
                return Err(TargetError::Unavailable("within".into()));
            }
        }
        self.there.1.notify_all();
        if way == 2 {
            Err(TargetError::Unavailable("after".into()))
        } else {
            Ok(Delivered { bytes: 1, altered_values: 0 })
        }
    }
}

/// Returns a frame with these channels, as a follower delivers it.
pub(crate) fn frame(
    tags: &[(&str, &str)],
    values: &[(&str, ChannelType, Value<'_>)],
    receive_time: i64,
) -> StreamFrames {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), StoreOptions::default(), 0).unwrap();
    frame_in(&store, "t", tags, values, receive_time)
}

fn frame_in(
    store: &Store,
    table: &str,
    tags: &[(&str, &str)],
    values: &[(&str, ChannelType, Value<'_>)],
    receive_time: i64,
) -> StreamFrames {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let channels = values.iter().map(|(name, kind, _)| ChannelSpec::new(*name, *kind)).collect();
    let (stream, channels) = store.resolve(&StreamSpec::new(StreamKey::new(table, tags), channels), 0).unwrap();
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time, source_time: None, sequence: None });
    for (channel, (.., value)) in channels.iter().zip(values) {
        batch.push(*channel, *value);
    }
    batch.end();
    store.append(&batch, receive_time);
    let view = store.view();
    let stream = Arc::clone(view.catalog().stream(stream.id).unwrap());
    let batch = view.scan(Scan::all(stream.id, channels.clone())).next().unwrap().unwrap();
    StreamFrames { stream, channels, batch, repeats: Vec::new() }
}

/// Plans the columns of many streams of one table, whose names and types differ, and compares with the types there.
fn plan_many<D: Dialect>() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut columns = Columns::<D>::new();
    let names = ["a", "A", "a.b", "a-b", "a_b", "A_B", "a_f64", "a_b_field", "a_tag", "time", "x y"];
    let array = ArrayType::fixed(ElementType::F64, 1).unwrap();
    let number = 1.0_f64.to_le_bytes();
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for n in 0..300 {
        let mut kinds = [
            (ChannelType::Bool, Value::Bool(true)),
            (ChannelType::I16, Value::I16(1)),
            (ChannelType::I64, Value::I64(1)),
            (ChannelType::U64, Value::U64(1)),
            (ChannelType::F32, Value::F32(1.0)),
            (ChannelType::F64, Value::F64(1.0)),
            (ChannelType::String, Value::String("x")),
            (ChannelType::Array(array), Value::Array(ArrayRef::new(ElementType::F64, &number).unwrap())),
        ];
        rng.shuffle(&mut kinds);
        let mut shuffled = names;
        rng.shuffle(&mut shuffled);
        let tags = [(shuffled[10], "1"), (shuffled[9], "2")];
        let values: Vec<_> = shuffled.iter().zip(kinds).map(|(name, (kind, value))| (*name, kind, value)).collect();
        let frame = frame_in(&store, &n.to_string(), &tags[..rng.usize(..3)], &values, 1);
        let plan = plan::<D>(&frame, &mut columns).unwrap();
        let mut taken: Vec<String> = plan.places.iter().map(|(name, _)| D::key(name)).collect();
        assert_eq!(taken.len(), D::FIXED.len() + frame.stream.key.tags.len() + values.len());
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), plan.places.len(), "each has a column of its own");
        for (name, field) in &plan.places {
            let have = columns[&D::key(name)].column_type.unwrap();
            if let Field::Channel(at) = field {
                let wanted = D::of_channel(frame.batch.columns[*at].values.channel_type());
                assert!(D::holds(have, wanted), "{name} is {have:?} and gets {wanted:?}");
            }
        }
    }
}

#[test]
fn all_values_have_a_column_whatever_other_streams_have() {
    plan_many::<crate::postgres::PostgresColumns>();
    plan_many::<crate::questdb::QuestdbColumns>();
    plan_many::<crate::mariadb::MariadbColumns>();
    plan_many::<crate::influxdb::InfluxdbColumns>();
    plan_many::<crate::elasticsearch::Fields>();
}

fn store(folder: &Path) -> Store {
    Store::open(folder, StoreOptions::default(), NOW).unwrap()
}

fn append(store: &Store, table: &str, values: Range<i64>) -> StreamId {
    let spec = StreamSpec::new(StreamKey::new(table, []), vec![ChannelSpec::new("n", ChannelType::I64)]);
    let (stream, channels) = store.resolve(&spec, NOW).unwrap();
    let mut batch = FrameBatch::new();
    for value in values {
        let receive_time = NOW + value;
        batch.begin(FrameHead { stream: stream.id, receive_time, source_time: None, sequence: None });
        batch.push(channels[0], Value::I64(value));
        batch.end();
    }
    store.append(&batch, NOW);
    store.commit(NOW).unwrap();
    stream.id
}

fn options(folder: &Path) -> FollowerOptions {
    FollowerOptions {
        name: "copy".to_owned(),
        patterns: vec![Pattern::parse("*").unwrap()],
        folder: folder.to_owned(),
        from_now: false,
        delivery_frames: 37,
        delivery_bytes: 1 << 20,
        interval: Duration::ZERO,
        gather: Duration::ZERO,
        max_bytes_per_s: None,
        pauses: Pauses { min: Duration::from_micros(100), max: Duration::from_millis(2) },
        is_paused: false,
    }
}

fn faulty(there: &Arc<(Mutex<There>, Condvar)>, seed: u64, fails_in: u32, keeps_positions: bool) -> Faulty {
    let rng = fastrand::Rng::with_seed(seed);
    Faulty { there: there.clone(), rng, fails_in, keeps_positions, is_rejected: |_| false }
}

/// Waits until the target has this number of rows.
fn wait(there: &Arc<(Mutex<There>, Condvar)>, rows: usize) {
    let mut have = there.0.lock();
    while have.rows.len() < rows {
        let timed_out = there.1.wait_for(&mut have, Duration::from_secs(60)).timed_out();
        assert!(!timed_out, "{} rows of {rows}", have.rows.len());
    }
}

fn start(store: &Store, target: Faulty, options: FollowerOptions) -> (Follower, Arc<Mutex<Vec<Note>>>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = notes.clone();
    let follower =
        Follower::start(store.clone(), Box::new(target), options, Arc::new(move |note| noted.lock().push(note)));
    (follower.unwrap(), notes)
}

#[test]
fn each_frame_is_there_once_whatever_fails() {
    for keeps_positions in [false, true] {
        for seed in 0..8 {
            let folder = tempfile::tempdir().unwrap();
            let store = store(&folder.path().join("store"));
            let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
            let mut expected = BTreeMap::new();
            let mut have = 0;
            for start_of in [0, 500, 1_000] {
                let (mut follower, _) =
                    start(&store, faulty(&there, seed + start_of as u64, 6, keeps_positions), options(folder.path()));
                for (n, table) in ["a", "b", "c"].into_iter().enumerate() {
                    let values = start_of..start_of + 100 * (n as i64 + 1);
                    let stream = append(&store, table, values.clone());
                    for value in values {
                        let row = expected.keys().filter(|(id, _)| *id == stream.0).count() as u64;
                        expected.insert((stream.0, row), value);
                        have += 1;
                    }
                }
                wait(&there, have);
                assert!(follower.stop(STOP));
                assert_eq!(follower.status().state, State::Stopped);
            }
            let there = there.0.lock();
            assert_eq!(there.rows, expected);
            assert!(!keeps_positions || there.again == 0, "seed {seed}: {} frames came again", there.again);
        }
    }
}

#[test]
fn a_follower_continues_where_it_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    append(&store, "a", 0..100);
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), options(folder.path()));
    wait(&there, 100);
    assert!(follower.stop(STOP));
    append(&store, "a", 100..150);
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), options(folder.path()));
    wait(&there, 150);
    assert!(follower.stop(STOP));
    assert_eq!(there.0.lock().again, 0);
    assert_eq!(follower.status().delivered_frames, 50);
    assert_eq!(follower.status().behind_frames, 0);
}

#[test]
fn rejected_frames_are_named_and_the_others_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    append(&store, "a", 0..200);
    append(&store, "b", 200..210);
    let target = Faulty { is_rejected: |value| value % 50 == 17, ..faulty(&there, 0, 0, false) };
    let (mut follower, notes) = start(&store, target, options(folder.path()));
    wait(&there, 206);
    assert!(follower.stop(STOP));
    let status = follower.status();
    assert_eq!((status.delivered_frames, status.rejected_frames, status.behind_frames), (206, 4, 0));
    let rows: Vec<u64> = notes
        .lock()
        .iter()
        .filter_map(|note| if let Note::Rejected { row, .. } = note { Some(*row) } else { None })
        .collect();
    assert_eq!(rows, [17, 67, 117, 167]);
    let named = std::fs::read_to_string(folder.path().join("copy.rejected.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(named.lines().next().unwrap()).unwrap();
    assert_eq!((&first["stream"], &first["row"], &first["reason"]), (&"a".into(), &"17".into(), &"17 is odd".into()));
    assert_eq!(named.lines().count(), 4);
}

#[test]
fn a_table_that_rejects_everything_is_at_fault() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    append(&store, "a", 0..2_000);
    let target = Faulty { is_rejected: |_| true, ..faulty(&there, 0, 0, false) };
    let failed = Arc::new((Mutex::new(false), Condvar::new()));
    let noted = failed.clone();
    let notes = move |note| {
        if matches!(note, Note::Failing { stream: Some(_), .. }) {
            *noted.0.lock() = true;
            noted.1.notify_all();
        }
    };
    let mut follower =
        Follower::start(store.clone(), Box::new(target), options(folder.path()), Arc::new(notes)).unwrap();
    let mut seen = failed.0.lock();
    while !*seen {
        assert!(!failed.1.wait_for(&mut seen, Duration::from_secs(60)).timed_out());
    }
    drop(seen);
    assert!(follower.stop(STOP));
    let status = follower.status();
    assert_eq!(status.rejected_frames, 200);
    assert!(status.last_error.is_some_and(|(reason, _)| reason.contains("in a row")));
}

#[test]
fn a_follower_from_now_leaves_the_past_out_but_has_all_of_new_streams() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    let a = append(&store, "a", 0..10);
    let from_now = || FollowerOptions { from_now: true, ..options(folder.path()) };
    let begun = Arc::new((Mutex::new(There::default()), Condvar::new()));
    // A first target fails until the follower has noted where it begins.
    let (mut follower, _) = start(&store, faulty(&begun, 0, 1, false), from_now());
    while follower.status().failed_attempts == 0 {
        std::thread::yield_now();
    }
    assert!(follower.stop(STOP));
    let b = append(&store, "b", 0..5);
    append(&store, "a", 10..12);
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), from_now());
    wait(&there, 7);
    assert!(follower.stop(STOP));
    let rows: Vec<(u32, u64)> = there.0.lock().rows.keys().copied().collect();
    let expected = (10..12).map(|row| (a.0, row)).chain((0..5).map(|row| (b.0, row)));
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[test]
fn a_backfill_delivers_again_from_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    let (a, b) = (append(&store, "a", 0..10), append(&store, "b", 20..25));
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), options(folder.path()));
    wait(&there, 15);
    assert!(follower.stop(STOP));
    // The target loses all, and one that begins now leaves nothing out that is asked for.
    there.0.lock().rows.clear();
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), options(folder.path()));
    assert!(follower.backfill(NOW + 7));
    wait(&there, 8);
    let rows: Vec<(u32, u64)> = there.0.lock().rows.keys().copied().collect();
    let expected = (7..10).map(|row| (a.0, row)).chain((0..5).map(|row| (b.0, row)));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    assert!(follower.backfill(i64::MIN));
    wait(&there, 15);
    assert!(follower.stop(STOP));
    let (follower, _) = start(&store, faulty(&there, 0, 0, true), options(folder.path()));
    assert!(!follower.backfill(NOW), "frames would be there twice");
}

#[test]
fn frames_gather_until_a_delivery_is_full_or_somebody_hurries() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    append(&store, "a", 0..10);
    let for_years = FollowerOptions { gather: HOUR * 24 * 365 * 100, ..options(folder.path()) };
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), for_years);
    let gather = |frames| {
        let begin = Instant::now();
        while follower.status().behind_frames != frames || follower.status().state != State::Following {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", follower.status());
            std::thread::yield_now();
        }
    };
    gather(10);
    assert!(there.0.lock().rows.is_empty());
    follower.resume();
    wait(&there, 10);
    // A full delivery does not wait. It may have a few frames more.
    append(&store, "a", 10..50);
    wait(&there, 37);
    if there.0.lock().rows.len() < 50 {
        follower.resume();
    }
    wait(&there, 50);
    append(&store, "a", 50..55);
    gather(5);
    assert!(follower.stop(STOP));
    // Frames that were received longer ago than that do not wait.
    let for_an_hour = FollowerOptions { gather: HOUR, ..options(folder.path()) };
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), for_an_hour);
    wait(&there, 55);
    assert!(follower.stop(STOP));
}

#[test]
fn a_paused_follower_takes_nothing_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let there = Arc::new((Mutex::new(There::default()), Condvar::new()));
    append(&store, "a", 0..10);
    let paused = FollowerOptions { is_paused: true, ..options(folder.path()) };
    let (mut follower, _) = start(&store, faulty(&there, 0, 0, false), paused);
    while follower.status().state != State::Paused {
        std::thread::yield_now();
    }
    assert_eq!(there.0.lock().calls, 0);
    follower.resume();
    wait(&there, 10);
    assert!(follower.stop(STOP));
}
