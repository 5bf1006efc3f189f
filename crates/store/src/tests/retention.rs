//! What is kept when others fill the disk: runs, minima, the spare segment; step by step, and at random with power
//! cuts between any two writes. `RETENTION_SEED=n` replays one, `RETENTION_SEEDS=n` runs as many.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use crate::disk::Disk;
use crate::disk::fault::{Fault, FaultDisk};
use crate::model::mutant::{self, Mutant};
use crate::segment::directory::file_name;
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000_000_000;

fn options(retention: Vec<RetentionGroup>) -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 32 << 10,
        max_bytes: Some(4 << 20),
        open_bytes: 64 << 10,
        retention,
        clock_confirm: Duration::ZERO,
        ..StoreOptions::default()
    }
}

fn of_run(table: &str, run: Option<&str>) -> StreamSpec {
    run.iter().fold(counting(table), |spec, run| spec.tag("run", run))
}

fn stream(store: &Store, table: &str, run: Option<&str>) -> StreamId {
    store.stream(&of_run(table, run))
}

/// Appends rows, all of which are stored and settled.
fn send(store: &Store, stream: StreamId, from: u64, rows: u64, now: i64) {
    for at in (from..from + rows).step_by(500) {
        assert_eq!(store.append_counting(stream, at..at + 500, now), 500, "{:?}", store.refusal());
        store.upkeep(now);
    }
}

/// The rows that are there: without a hole, each with its own number.
fn rows(store: &Store, stream: StreamId) -> Result<std::ops::Range<u64>, String> {
    let view = store.view();
    let mut found: Option<std::ops::Range<u64>> = None;
    for batch in view.scan(Scan::all(stream, vec![ChannelIndex(0)])) {
        let batch = batch.map_err(|e| e.to_string())?;
        for i in 0..batch.len() {
            let row = batch.rows[i];
            if batch.columns[0].cell(i) != Ok(Value::U64(row)) || found.as_ref().is_some_and(|f| f.end != row) {
                return Err(format!("stream {}: row {row} after {found:?}", stream.0));
            }
            found = Some(found.map_or(row, |f| f.start)..row + 1);
        }
    }
    let next = view.next_row(stream);
    match found {
        Some(found) if found.end == next => Ok(found),
        None => Ok(next..next),
        found => Err(format!("stream {}: {found:?} of {next} rows", stream.0)),
    }
}

/// Every file is known, there is at most one spare, and all together are within bounds.
fn check_files(disk: &FaultDisk, store: &Store, max_bytes: u64) -> Result<bool, String> {
    let known: BTreeSet<String> = store.segments().iter().map(|s| file_name(s.id)).collect();
    let files = disk.list().map_err(|e| e.to_string())?;
    let strange: Vec<&String> =
        files.iter().map(|f| &f.0).filter(|name| name.starts_with("segment-") && !known.contains(*name)).collect();
    let newest = known.iter().next_back().cloned().unwrap_or_default();
    if strange.len() > 1 || strange.iter().any(|name| **name < newest) {
        return Err(format!("{strange:?} beside {} segments up to {newest}", known.len()));
    }
    let bytes: u64 = files.iter().map(|f| f.1).sum();
    if bytes > max_bytes {
        return Err(format!("{bytes} bytes of at most {max_bytes}: {files:?}"));
    }
    Ok(!strange.is_empty())
}

/// Appends to a stream until the store has turned over several times.
fn flood(store: &Store, stream: StreamId, sent: &mut u64, now: &mut i64) {
    for _ in 0..400 {
        *now += S;
        *sent += store.append_counting(stream, *sent..*sent + 1000, *now);
        store.upkeep(*now);
    }
}

/// Lets all segments go for their age while the folder cannot be synced, and then once more when it can: with the next
/// checkpoint, or the next opening. The names of them that are there after a power cut.
fn names_that_come_back(seed: u64, is_killed: bool) -> Vec<String> {
    let disk = FaultDisk::new(seed);
    disk.set_names_apart(true);
    let options = StoreOptions { max_age: Some(Duration::from_secs(5)), ..options(Vec::new()) };
    let store = open(&disk, &options);
    let s = stream(&store, "t", None);
    send(&store, s, 0, 20_000, T0);
    let before: BTreeSet<String> = store.segments().iter().map(|segment| file_name(segment.id)).collect();
    disk.fail_call(Fault::Descriptors, 0, 1);
    store.maintain(T0 + 10 * S).expect("maintained");
    assert!(before.len() > 5 && store.segments().is_empty() && !disk.is_call_to_fail());
    if is_killed {
        drop(store);
        open(&disk, &options);
    } else {
        store.sealer.lock().write_checkpoint(&store.engine, None).expect("written");
    }
    let names = disk.after_cut().list().expect("a list");
    names.into_iter().map(|file| file.0).filter(|name| before.contains(name)).collect()
}

#[test]
fn what_went_is_removed_again_until_the_folder_is_synced() {
    let come_back = |is_killed| (0..10).map(|seed| names_that_come_back(seed, is_killed).len()).sum::<usize>();
    assert_eq!((come_back(false), come_back(true)), (0, 0));
    mutant::activate(Some(Mutant::ForgetRemoved));
    let forgotten = come_back(false);
    mutant::activate(None);
    assert!(forgotten > 0, "a power cut brings nothing back here");
}

#[test]
fn a_run_stays_until_it_is_released() {
    let disk = FaultDisk::new(20);
    let options = options(Vec::new());
    let store = open(&disk, &options);
    let (mut now, mut sent) = (T0, 0);
    assert_eq!(store.release_run("hot fire", now), Ok(None));
    store.protect_run("hot fire", now).expect("protected");
    let run = stream(&store, "engine", Some("hot fire"));
    let other = stream(&store, "engine", Some("another"));
    let chatty = stream(&store, "chatty", None);
    send(&store, run, 0, 10_000, now);
    send(&store, other, 0, 10_000, now);
    flood(&store, chatty, &mut sent, &mut now);
    assert!(rows(&store, chatty).expect("rows").start > 0);
    assert_eq!(rows(&store, run), Ok(0..10_000), "nobody evicts a protected run");
    assert!(rows(&store, other).expect("rows").start > 0, "the tag alone protects nothing");
    assert!(check_files(&disk, &store, 4 << 20).expect("files"), "no spare");
    let info = store.runs();
    assert_eq!((info[0].name.as_str(), info[0].protected, info[0].streams, info.len()), ("hot fire", true, 1, 1));
    assert!(info[0].segments > 1 && info[0].size_bytes > 80_000 && info[0].time == Some((T0, T0)), "{info:?}");
    assert!(store.segments().iter().any(|s| s.group == "run hot fire"));
    store.close(now).expect("closed");

    // Older than anything may get, but for the run.
    let store = open(&disk, &StoreOptions { max_age: Some(Duration::from_secs(1)), ..options.clone() });
    store.upkeep(now + 10 * S);
    assert_eq!((rows(&store, run), rows(&store, chatty)), (Ok(0..10_000), Ok(sent..sent)));
    // A release is nothing before it is durable.
    let commit = store.release_run("hot fire", now).expect("released").expect("a run");
    assert!(commit > store.committed());
    while store.maintain(now + 20 * S).expect("maintained") {}
    assert_eq!(rows(&store, run), Ok(0..10_000));
    store.upkeep(now + 30 * S);
    assert!(commit <= store.committed());
    assert!(!store.runs()[0].protected);
    assert_eq!(rows(&store, run), Ok(10_000..10_000), "a released run goes as others do");
    drop(store);
    let store = open(&disk, &options);
    assert!(!store.runs()[0].protected);
    store.protect_run("hot fire", now).expect("protected again");
    store.upkeep(now);
    drop(store);
    assert!(open(&disk, &options).runs()[0].protected);
}

#[test]
fn a_run_that_would_not_be_protected_is_refused() {
    let store = open(&FaultDisk::new(21), options(Vec::new()));
    stream(&store, "engine", Some("late"));
    let error = store.protect_run("late", T0).expect_err("it has streams").to_string();
    assert!(error.contains("late") && error.contains("choose another name"), "{error}");
    assert!(store.protect_run("", T0).is_err());
    assert_eq!(store.runs(), []);
}

#[test]
fn a_group_keeps_its_minimum_and_no_more() {
    let disk = FaultDisk::new(22);
    let retention = vec![group("slow", "plc.*", Keep::Bytes(400 << 10)), group("rest", "*.x", Keep::Share(0.01))];
    let options = options(retention);
    let store = open(&disk, &options);
    let (mut now, mut sent) = (T0, 0);
    let (slow, chatty) = (stream(&store, "plc.tank", None), stream(&store, "chatty", None));
    send(&store, slow, 0, 20_000, now);
    let of =
        |store: &Store| -> u64 { store.segments().iter().filter(|s| s.group == "slow").map(|s| s.size_bytes).sum() };
    flood(&store, chatty, &mut sent, &mut now);
    assert_eq!(rows(&store, slow), Ok(0..20_000), "{} bytes", of(&store));
    // Beyond its minimum it goes as others do, down to it.
    send(&store, slow, 20_000, 45_000, now);
    flood(&store, chatty, &mut sent, &mut now);
    assert!(rows(&store, slow).expect("rows").start > 0);
    assert!((400 << 10..440 << 10).contains(&of(&store)), "{} bytes", of(&store));
    let kept = rows(&store, slow).expect("rows");
    store.close(now).expect("closed");
    // Membership is decided when a stream is made: another configuration finds it where it is.
    let store = open(&disk, &StoreOptions { retention: vec![group("new", "*", Keep::Bytes(0))], ..options.clone() });
    assert_eq!(rows(&store, slow), Ok(kept.clone()));
    assert_eq!(store.append_counting(slow, kept.end..kept.end + 500, now), 500);
    store.upkeep(now);
    assert_eq!(rows(&store, slow), Ok(kept.start..kept.end + 500));
    assert!(store.segments().iter().all(|s| s.group != "new"));
    flood(&store, chatty, &mut sent, &mut now);
    assert!(of(&store) < 400 << 10, "a group that is configured no more keeps nothing");
}

#[test]
fn an_age_of_its_own() {
    let retention = vec![RetentionGroup {
        max_age: Some(Duration::from_secs(100)),
        ..group("short", "video.*", Keep::Bytes(1 << 20))
    }];
    let store = open(&FaultDisk::new(23), options(retention));
    let (short, other) = (stream(&store, "video.a", None), stream(&store, "b", None));
    for s in [short, other] {
        send(&store, s, 0, 5000, T0);
    }
    store.upkeep(T0 + 99 * S);
    assert_eq!(rows(&store, short), Ok(0..5000));
    // What was open is finished when its oldest row is too old, and goes.
    store.upkeep(T0 + 101 * S);
    store.upkeep(T0 + 103 * S);
    assert!(rows(&store, short).expect("rows").start >= 3000, "{:?}", rows(&store, short));
    assert_eq!(rows(&store, other), Ok(0..5000));
}

#[test]
fn groups_that_cannot_be_meant_are_refused() {
    let refused = |retention: Vec<RetentionGroup>| {
        let disk = FaultDisk::new(24);
        match disk.open_store(options(retention), T0) {
            Ok(_) => "taken".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    let half = |name: &str| group(name, "*", Keep::Share(0.5));
    assert!(refused(vec![half("a"), half("b")]).contains("keep 100 % of the space"));
    assert!(refused(vec![half("a"), half("a")]).contains("\"a\" is there twice"));
    assert!(refused(vec![half("ledger")]).contains("the store's own"));
    assert!(refused(vec![half("data")]).contains("leave its streams out"));
    assert!(refused(vec![half("a b")]).contains("a name is"));
    assert!(refused(vec![RetentionGroup { streams: None, ..half("a") }]).contains("says no streams"));
    let large = refused(vec![group("a", "*", Keep::Bytes(3 << 20))]);
    assert!(large.contains("at most 4194304 bytes is too small") && large.contains("3145728"), "{large}");
    assert_eq!(
        refused(vec![
            RetentionGroup { streams: None, ..group("data", "*", Keep::Share(0.2)) },
            group("a", "*", Keep::Share(0.1))
        ]),
        "taken"
    );
}

#[test]
fn a_full_file_system_finds_the_next_segment_present() {
    let disk = FaultDisk::new(25);
    let options = StoreOptions { max_bytes: Some(1 << 30), segment_bytes: 64 << 10, ..options(Vec::new()) };
    let store = open(&disk, &options);
    store.protect_run("all", T0).expect("protected");
    let s = stream(&store, "t", Some("all"));
    let mut sent = store.append_counting(s, 0..500, T0);
    store.upkeep(T0);
    assert!(check_files(&disk, &store, 1 << 30).expect("files"), "no spare");
    // Not a byte is left.
    let (total, free) = disk.space().expect("space");
    disk.faults.capacity_bytes.store(total - free, Ordering::Relaxed);
    let before = store.stats().segments;
    while store.refusal().is_none() {
        sent += store.append_counting(s, sent..sent + 500, T0);
        store.upkeep(T0);
        assert!(sent < 100_000);
    }
    assert_eq!(store.refusal(), Some(Refusal::DiskFull));
    assert_eq!(store.stats().segments, before + 1, "the spare is all there was");
    assert!(!check_files(&disk, &store, 1 << 30).expect("files"));
    assert_eq!(rows(&store, s), Ok(0..sent));
    // A release makes room although the disk is as full as before.
    store.release_run("all", T0).expect("released").expect("a run");
    store.upkeep(T0);
    assert_eq!(store.refusal(), None);
    assert_eq!(store.append_counting(s, sent..sent + 500, T0), 500);
    store.upkeep(T0);
    assert!(rows(&store, s).expect("rows").start > 0);
    disk.faults.capacity_bytes.store(u64::MAX, Ordering::Relaxed);
    store.upkeep(T0 + 2 * S);
    assert!(check_files(&disk, &store, 1 << 30).expect("files"), "a spare again");
    drop(store);
    // The next opening takes it as it is: a byte that nothing reads stays.
    let spare = disk.list().expect("files").into_iter().rfind(|f| f.0.starts_with("segment-")).expect("one").0;
    disk.rot(&spare, 60_000, 0x55);
    let store = open(&disk, &options);
    store.upkeep(T0 + 4 * S);
    assert!(check_files(&disk, &store, 1 << 30).expect("files"), "the spare of before");
    let mut byte = [0];
    let file = disk.open(&spare, crate::disk::Access::Buffered).expect("the spare");
    assert_eq!((file.read_at(&mut byte, 60_000).expect("read"), byte), (1, [0x55]));
}

/// What the model knows of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Run {
    Unknown,
    Protecting,
    Protected,
    Releasing,
    Released,
}

struct ModelStream {
    table: &'static str,
    run: Option<usize>,
    id: StreamId,
    sent: u64,
    acknowledged: u64,
}

struct Model {
    disk: FaultDisk,
    store: Store,
    streams: Vec<ModelStream>,
    runs: [Run; 2],
    random: Rng,
    now: i64,
    cuts: u32,
}

const RUNS: [&str; 2] = ["a", "b"];
const KEEP: u64 = 256 << 10;

fn ensure(fits: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if fits { Ok(()) } else { Err(what()) }
}

impl Model {
    fn options() -> StoreOptions {
        options(vec![group("slow", "slow", Keep::Bytes(KEEP))])
    }

    fn new(seed: u64) -> Model {
        let disk = FaultDisk::new(seed);
        let store = open(&disk, Model::options());
        let random = Rng::with_seed(seed ^ 0xbeef);
        Model { disk, store, streams: Vec::new(), runs: [Run::Unknown; 2], random, now: T0, cuts: 0 }
    }

    fn append(&mut self, table: &'static str, run: Option<usize>, rows: u64) {
        let known = self.streams.iter().position(|s| s.table == table && s.run == run);
        let at = match known {
            Some(at) => at,
            None => {
                let Ok((stream, _)) = self.store.resolve(&of_run(table, run.map(|n| RUNS[n])), self.now) else {
                    return;
                };
                self.streams.push(ModelStream { table, run, id: stream.id, sent: 0, acknowledged: 0 });
                self.streams.len() - 1
            }
        };
        let stream = &mut self.streams[at];
        stream.sent += self.store.append_counting(stream.id, stream.sent..stream.sent + rows, self.now);
    }

    fn commit(&mut self) -> Result<(), String> {
        if self.store.commit(self.now).is_err() {
            return self.recover();
        }
        for stream in &mut self.streams {
            stream.acknowledged = stream.sent;
        }
        for run in &mut self.runs {
            *run = match *run {
                Run::Protecting => Run::Protected,
                Run::Releasing => Run::Released,
                known => known,
            };
        }
        Ok(())
    }

    fn maintain(&mut self, slices: usize) -> Result<(), String> {
        for _ in 0..slices {
            match self.store.maintain(self.now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return self.recover(),
            }
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), String> {
        ensure(self.disk.is_cut(), || format!("poisoned without a cut: {:?}", self.store.refusal()))?;
        self.cuts += 1;
        loop {
            self.disk = self.disk.after_cut();
            if self.random.bool() {
                self.disk.faults.writes_left.store(self.random.u64(1..12), Ordering::Relaxed);
            }
            match self.disk.open_store(Model::options(), self.now) {
                Ok(store) => {
                    self.store = store;
                    break;
                }
                Err(_) if self.disk.is_cut() => {}
                Err(error) => return Err(format!("cannot open: {error}")),
            }
        }
        let found = self.store.runs();
        for (name, run) in RUNS.iter().zip(&mut self.runs) {
            let protected = found.iter().find(|info| info.name == *name).map(|info| info.protected);
            *run = match (*run, protected) {
                (Run::Unknown | Run::Protecting, None) => Run::Unknown,
                (Run::Protecting | Run::Protected | Run::Releasing, Some(true)) => Run::Protected,
                // Protected again, or released, in a commit that nobody was told of.
                (Run::Protecting | Run::Releasing | Run::Released, Some(false)) => Run::Released,
                (before, found) => return Err(format!("run {name}: {before:?} became protected: {found:?}")),
            };
        }
        let catalog = self.store.catalog();
        self.streams
            .retain(|s| s.acknowledged > 0 || catalog.stream(s.id).is_some_and(|have| have.key.table == s.table));
        for stream in &mut self.streams {
            let next = self.store.view().next_row(stream.id);
            ensure((stream.acknowledged..=stream.sent).contains(&next), || {
                format!("{}: {next} rows, {} acknowledged, {} sent", stream.table, stream.acknowledged, stream.sent)
            })?;
            (stream.sent, stream.acknowledged) = (next, next);
        }
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        for stream in &self.streams {
            let found = rows(&self.store, stream.id)?;
            let kept = stream.table == "slow" || stream.run.is_some_and(|n| self.runs[n] != Run::Released);
            ensure(!kept || found.start == 0, || {
                format!("{} {:?}: {found:?} of what is kept", stream.table, stream.run)
            })?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.random.i64(0..S);
        match self.random.u8(0..100) {
            0..30 => self.append("chatty", None, 1200),
            30..35 => self.append("slow", None, 100),
            35..45 => {
                let run = self.random.usize(..2);
                // As an import does: nothing comes before the run is protected for certain. Once released its
                // rows may be gone, and it is not protected again.
                if self.runs[run] == Run::Protected {
                    self.append("engine", Some(run), 150);
                }
            }
            45..65 => self.commit()?,
            65..85 => {
                let slices = self.random.usize(1..8);
                self.maintain(slices)?;
            }
            85..88 => {
                let run = self.random.usize(..2);
                if self.runs[run] == Run::Unknown && self.store.protect_run(RUNS[run], self.now).is_ok() {
                    self.runs[run] = Run::Protecting;
                } else if self.runs[run] == Run::Protected
                    && self.random.u8(0..3) == 0
                    && self.store.release_run(RUNS[run], self.now).is_ok_and(|run| run.is_some())
                {
                    self.runs[run] = Run::Releasing;
                }
            }
            88..91 => self.check()?,
            91..94 => {
                let (total, free) = self.disk.space().map_err(|e| e.to_string())?;
                let left = self.random.u64(0..100 << 10);
                let full = self.disk.faults.capacity_bytes.load(Ordering::Relaxed) == u64::MAX;
                let capacity = if full { total - free + left } else { u64::MAX };
                self.disk.faults.capacity_bytes.store(capacity, Ordering::Relaxed);
            }
            94..98 => {
                if self.disk.faults.writes_left.load(Ordering::Relaxed) == u64::MAX {
                    self.disk.faults.writes_left.store(self.random.u64(1..40), Ordering::Relaxed);
                }
            }
            _ => {
                self.commit()?;
                self.maintain(usize::MAX)?;
                self.now += 2 * S;
                self.maintain(usize::MAX)?;
                if !self.disk.is_cut() && self.store.refusal().is_none() {
                    check_files(&self.disk, &self.store, 4 << 20)?;
                    self.check()?;
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64) -> Result<(u32, bool), String> {
    let mut model = Model::new(seed);
    (0..300).try_for_each(|_| model.step())?;
    let evicted =
        model.streams.iter().any(|s| s.table == "chatty" && rows(&model.store, s.id).is_ok_and(|r| r.start > 0));
    Ok((model.cuts, evicted))
}

#[test]
fn nothing_that_is_kept_goes_whatever_is_cut() {
    if let Some(seed) = std::env::var("RETENTION_SEED").ok().and_then(|s| s.parse().ok()) {
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        return;
    }
    let seeds = std::env::var("RETENTION_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let done: Vec<(u32, bool)> =
        (0..seeds).map(|seed| run(seed).unwrap_or_else(|error| panic!("RETENTION_SEED={seed}: {error}"))).collect();
    let (cuts, evicted) = (done.iter().map(|d| d.0).sum::<u32>(), done.iter().filter(|d| d.1).count());
    println!("{cuts} cuts, {evicted} of {seeds} evicted");
    assert!(u64::from(cuts) > seeds && evicted as u64 > seeds / 4, "{cuts} cuts, {evicted} evicted");
}

/// A segment that was found missing, and went for its age before its gap was durable, is no more: no checkpoint lists
/// it again.
#[test]
fn a_lost_segment_that_went_before_it_was_told_is_not_listed_again() {
    let disk = FaultDisk::new(23);
    let kept = options(Vec::new());
    let store = open(&disk, &kept);
    let s = stream(&store, "t", None);
    send(&store, s, 0, 20_000, T0);
    store.close(T0).expect("closed");
    let lost = file_name(store.segments()[1].id);
    disk.remove(&lost).expect("removed");
    let aged = StoreOptions { max_age: Some(Duration::from_secs(5)), ..kept.clone() };
    let store = open(&disk, &aged);
    assert_eq!(store.recovery().damaged.iter().map(|d| d.file.clone()).collect::<Vec<_>>(), [lost]);
    store.maintain(T0 + 10 * S).expect("maintained");
    assert!(store.segments().is_empty());
    store.upkeep(T0 + 10 * S);
    store.upkeep(T0 + 11 * S);
    drop(store);
    let store = open(&disk, &kept);
    assert_eq!((store.recovery().damaged, store.segments().len()), (vec![], 0));
}

/// A group that is new where the log is full is written down once there is room, and over nothing.
#[test]
fn a_new_group_waits_for_room_in_a_full_log() {
    let disk = FaultDisk::new(26);
    let fixed = FixedOptions { log_bytes: Some(16 << 10), ..FixedOptions::new(2 << 20) };
    super::fixed::make_on(&disk, &fixed);
    let open_small = |options: &StoreOptions| super::fixed::open_on(&disk, options.clone(), T0).expect("opened");
    let small = options(Vec::new());
    let store = open_small(&small);
    let s = stream(&store, "t", None);
    let mut stored = 0;
    while store.append_counting(s, stored..stored + 1, T0) == 1 {
        stored += 1;
        store.commit(T0).expect("committed");
    }
    drop(store);
    let grouped = StoreOptions { retention: vec![group("new", "new.*", Keep::Bytes(1 << 20))], ..small };
    let store = open_small(&grouped);
    assert_eq!(store.commit(T0), Err(Refusal::LogFull));
    drop(store);
    let store = open_small(&grouped);
    assert_eq!(rows(&store, s), Ok(0..stored));
    while store.maintain(T0).expect("maintained") {}
    store.upkeep(T0);
    let of_group = stream(&store, "new.t", None);
    assert_eq!(store.append_counting(of_group, 0..40, T0), 40);
    store.upkeep(T0);
    drop(store);
    let store = open_small(&grouped);
    assert_eq!((rows(&store, s), rows(&store, of_group)), (Ok(0..stored), Ok(0..40)));
}

/// A run that the log had no room for takes none in the catalog.
#[test]
fn a_run_that_is_refused_takes_no_room() {
    let disk = FaultDisk::new(24);
    let store = open(&disk, options(Vec::new()));
    let room = || store.engine.writer.lock().catalog_room.bytes();
    let name = "n".repeat(900);
    for n in 0.. {
        let before = room();
        match store.protect_run(&format!("{name}{n}"), T0) {
            Ok(_) => assert!(room() > before),
            Err(error) => {
                assert_eq!(error, Reject::Refused(Refusal::LogFull), "after {n} runs");
                assert_eq!(room(), before);
                break;
            }
        }
        if n % 20 == 0 {
            store.commit(T0).expect("committed");
        }
    }
}
