//! A disk that refuses, call by call: what was acknowledged stays, what may go goes only once that is durable, and the
//! store goes on alone when the disk does.

use std::collections::BTreeMap;

use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    StoreOptions {
        open_bytes: 128 << 10,
        settle_age: std::time::Duration::from_millis(200),
        ..sized(1 << 20, 64 << 10)
    }
}

/// Streams whose rows count up, and what of them was acknowledged.
struct Recorder {
    disk: FaultDisk,
    store: Store,
    now: i64,
    /// By name: its number, frames that were stored, and frames that were acknowledged.
    streams: BTreeMap<String, (StreamId, u64, u64)>,
    /// Openings after a failure.
    opened: u32,
}

impl Recorder {
    fn new(disk: FaultDisk) -> Recorder {
        let store = open(&disk, options());
        Recorder { disk, store, now: T0, streams: BTreeMap::new(), opened: 0 }
    }

    /// Appends rows to a stream, made if it is not there; those that the store takes.
    fn append(&mut self, name: &str, rows: u64) {
        let Ok((stream, _)) = self.store.resolve(&counting("t").tag("n", name), self.now) else { return };
        let (id, stored, _) = self.streams.entry(name.to_owned()).or_insert((stream.id, 0, 0));
        *id = stream.id;
        let mut batch = FrameBatch::new();
        for row in *stored..*stored + rows {
            self.now += MS;
            batch.put(head(stream.id, self.now), [Value::U64(row), Value::U64(fastrand::Rng::with_seed(row).u64(..))]);
        }
        let outcomes = self.store.append(&batch, self.now).outcomes;
        // What is refused is refused to the end.
        let taken = outcomes.iter().take_while(|outcome| matches!(outcome, Outcome::Stored { .. })).count() as u64;
        assert!(!outcomes[taken as usize..].iter().any(is_stored));
        *stored += taken;
    }

    fn commit(&mut self) {
        match self.store.commit(self.now) {
            Ok(_) => self.streams.values_mut().for_each(|(_, stored, acknowledged)| *acknowledged = *stored),
            Err(Refusal::DiskFull | Refusal::Unwritable(_)) => {
                for (id, _, acknowledged) in self.streams.values_mut() {
                    *acknowledged = (*acknowledged).max(self.store.committed_row(*id));
                }
            }
            Err(_) => self.reopen(),
        }
    }

    fn maintain(&mut self) {
        self.now += 20 * MS;
        for _ in 0..50 {
            match self.store.maintain(self.now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.reopen(),
            }
        }
    }

    /// Opens again after a failure, as often as it takes, and compares.
    fn reopen(&mut self) {
        for (id, _, acknowledged) in self.streams.values_mut() {
            *acknowledged = (*acknowledged).max(self.store.committed_row(*id));
        }
        let _ = self.store.close(self.now);
        self.opened += 1;
        for _ in 0..10 {
            if let Ok(store) = self.disk.open_store(options(), self.now) {
                self.store = store;
                self.check(true);
                return;
            }
        }
        panic!("it does not open: {:?}", self.disk.open_store(options(), self.now).err());
    }

    /// Kills the process, or cuts the power, and compares with what was acknowledged.
    fn kill(&mut self, cut: bool) {
        let disk = if cut { self.disk.after_cut() } else { self.disk.after_kill() };
        let store = disk.open_store(options(), self.now).expect("it opens");
        (self.disk, self.store) = (disk, store);
        self.check(true);
    }

    /// The rows that are there: of each stream all from some row on.
    fn check(&mut self, again: bool) -> u64 {
        let mut all = 0;
        for (name, (id, stored, acknowledged)) in &mut self.streams {
            let catalog = self.store.catalog();
            let key = counting("t").tag("n", name).key;
            let Some(found) = catalog.streams.iter().find(|stream| stream.key == key) else {
                assert_eq!(*acknowledged, 0, "{name} is gone");
                *stored = 0;
                continue;
            };
            *id = found.id;
            let view = self.store.view();
            let mut rows = Vec::new();
            for batch in view.scan(Scan::all(found.id, vec![ChannelIndex(0)])) {
                let batch = batch.unwrap_or_else(|error| panic!("{name}: {error}"));
                for at in 0..batch.len() {
                    assert_eq!(batch.columns[0].cell(at), Ok(Value::U64(batch.rows[at])), "{name}");
                    rows.push(batch.rows[at]);
                }
            }
            let next = view.next_row(found.id);
            assert!(next >= *acknowledged && next <= *stored, "{name}: {next} of {acknowledged} to {stored}");
            let first = next - rows.len() as u64;
            assert!(rows.iter().copied().eq(first..next), "{name}: rows are missing between");
            if again {
                (*stored, *acknowledged) = (next, next);
            }
            all += rows.len() as u64;
        }
        all
    }

    /// A life: busy and quiet streams, streams that come, seals, checkpoints, settle.
    fn live(&mut self, rounds: u64) {
        for round in 0..rounds {
            self.append("busy", 700);
            self.append("other", 300);
            self.append(&format!("new {round}"), 3);
            self.commit();
            self.maintain();
            if round % 8 == 7 {
                self.now += 300 * MS;
                let settled = self.store.settle(self.now);
                if settled.is_err() {
                    self.reopen();
                }
            }
        }
    }

    /// Goes on until nothing is refused any more.
    fn recover(&mut self) {
        self.disk.heal();
        for _ in 0..20 {
            self.commit();
            self.maintain();
        }
        assert_eq!(self.store.refusal(), None);
        assert_eq!(self.store.stats().held_up, None);
    }
}

#[test]
fn every_call_may_be_refused_once_and_nothing_is_lost() {
    for (fault, passes) in [
        (Fault::NoSpace, true),
        (Fault::Quota, true),
        (Fault::Descriptors, true),
        (Fault::ReadOnly, true),
        (Fault::Io, false),
    ] {
        for allocation in [Allocation::Reserve, Allocation::Write] {
            let mut before = fastrand::Rng::with_seed(fault as u64).u64(0..3);
            loop {
                let disk = FaultDisk::new(before);
                disk.set_allocation(allocation);
                disk.set_names_apart(true);
                let mut recorder = Recorder::new(disk.clone());
                recorder.live(2);
                let ones = if before.is_multiple_of(2) { 1 } else { 3 };
                disk.fail_call(fault, before, ones);
                recorder.live(20);
                let is_over = disk.is_call_to_fail();
                recorder.recover();
                assert!(!passes || recorder.opened == 0, "{fault:?} {before}: poisoned");
                let whole = 22 * 1000;
                let rows = recorder.check(false);
                recorder.kill(before.is_multiple_of(3));
                assert_eq!(recorder.check(false), rows, "{fault:?} {before}");
                if fault == Fault::Io || fault == Fault::ReadOnly || ones == 1 && fault != Fault::Quota {
                    let of_two: u64 = ["busy", "other"].iter().map(|name| recorder.streams[*name].1).sum();
                    assert!(rows >= of_two, "{fault:?} {before}: {rows} rows of {of_two} ({whole} at most)");
                }
                if is_over {
                    break;
                }
                before += 1 + before / 6;
            }
        }
    }
}

/// Others take the disk and give it back, in every way that a file system can be full; many streams come while it is.
#[test]
fn a_full_disk_costs_the_oldest_rows_and_nothing_else() {
    for (allocation, cow) in [
        (Allocation::Reserve, false),
        (Allocation::Write, false),
        (Allocation::Sync, false),
        (Allocation::Reserve, true),
        (Allocation::Write, true),
    ] {
        for seed in 0..2 {
            let what = format!("{allocation:?}, copy on write {cow}, seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let disk = FaultDisk::new(seed);
            disk.set_allocation(allocation);
            disk.set_copy_on_write(cow);
            disk.set_capacity_bytes(40 << 20);
            let mut recorder = Recorder::new(disk.clone());
            recorder.live(100);
            let before = recorder.check(false);
            for round in 0..4 {
                recorder.disk.leave_space(random.u64(0..600 << 10));
                for n in 0..30 {
                    for stream in 0..random.u64(0..10) {
                        recorder.append(&format!("{round} {n} {stream}"), 1);
                    }
                    recorder.append("busy", 300);
                    recorder.commit();
                    recorder.maintain();
                    recorder.disk.give_space(random.u64(0..40 << 10));
                }
                if random.bool() {
                    recorder.kill(random.bool());
                }
            }
            assert_eq!(recorder.opened, 0, "{what}: poisoned");
            let stored = recorder.streams["busy"].1;
            recorder.recover();
            let left = recorder.check(false);
            // It refuses only what it finds no place for, and takes again what comes: never is the whole history gone.
            assert!(left > before / 4, "{what}: {left} rows are left of {before}");
            recorder.live(10);
            assert!(recorder.streams["busy"].1 >= stored + 7000, "{what}: it takes nothing any more");
            let left = recorder.check(false);
            recorder.kill(seed % 2 == 0);
            assert_eq!(recorder.check(false), left, "{what}");
        }
    }
}

/// The oldest rows make room for the newest as long as there are any, although no new file can be made.
#[test]
fn streams_that_come_while_the_disk_is_full_find_room() {
    for allocation in [Allocation::Reserve, Allocation::Write] {
        let disk = FaultDisk::new(7);
        disk.set_allocation(allocation);
        disk.set_capacity_bytes(24 << 20);
        let mut recorder = Recorder::new(disk.clone());
        recorder.live(200);
        disk.leave_space(0);
        let (before, mut refused) = (recorder.streams["busy"].1, 0);
        let segments = recorder.store.segments().len();
        for n in 0..60 {
            for stream in 0..20 {
                recorder.append(&format!("{n} {stream}"), 1);
            }
            recorder.append("busy", 300);
            recorder.commit();
            recorder.maintain();
            refused += u32::from(recorder.store.refusal().is_some());
        }
        let rows = recorder.check(true);
        let busy = recorder.streams["busy"].1 - before;
        assert!(refused <= 6 && busy >= 54 * 300, "{allocation:?}: refused {refused} times, {busy} rows");
        let left = recorder.store.segments().len();
        assert!(left > segments / 2, "{allocation:?}: {left} of {segments} segments");
        recorder.kill(true);
        assert_eq!(recorder.check(false), rows);
    }
}

/// Rounds of a full disk in which nothing can be written at all drop nothing.
#[test]
fn a_disk_that_takes_no_checkpoint_drops_nothing() {
    let disk = FaultDisk::new(8);
    let mut recorder = Recorder::new(disk.clone());
    recorder.live(40);
    let rows = recorder.check(false);
    disk.fail_call(Fault::NoSpace, 0, u64::MAX);
    for n in 0..100 {
        recorder.append(&format!("{n}"), 1);
        recorder.append("busy", 300);
        recorder.commit();
        recorder.maintain();
        assert!(recorder.check(false) >= rows, "round {n}");
    }
    recorder.recover();
    assert!(recorder.check(true) >= rows);
    recorder.kill(true);
}

#[test]
fn a_log_that_finds_no_space_waits_and_loses_nothing() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        disk.set_allocation(Allocation::Reserve);
        disk.set_copy_on_write(true);
        let mut recorder = Recorder::new(disk.clone());
        recorder.live(3);
        recorder.append("busy", 100);
        disk.fail_call(Fault::NoSpace, 0, 2);
        assert_eq!(recorder.store.commit(recorder.now), Err(Refusal::DiskFull));
        assert_eq!(recorder.store.refusal(), Some(Refusal::DiskFull));
        let stored = recorder.streams["busy"].1;
        recorder.append("busy", 100);
        assert_eq!(recorder.streams["busy"].1, stored, "nothing is taken meanwhile");
        if seed % 4 == 0 {
            // What was written in part is no commit.
            disk.heal();
            recorder.kill(seed % 8 == 0);
            continue;
        }
        assert_eq!(recorder.store.commit(recorder.now), Err(Refusal::DiskFull));
        recorder.commit();
        assert_eq!((recorder.store.refusal(), recorder.streams["busy"].2), (None, stored));
        recorder.append("busy", 100);
        recorder.commit();
        assert_eq!(recorder.streams["busy"].2, stored + 100);
        recorder.kill(seed % 2 == 0);
    }
}

#[test]
fn a_disk_that_can_be_read_only_refuses_with_its_reason_and_goes_on_later() {
    let mut recorder = Recorder::new(FaultDisk::new(9));
    recorder.live(5);
    recorder.disk.set_read_only(true);
    recorder.append("busy", 100);
    let refused = recorder.store.commit(recorder.now);
    assert!(matches!(&refused, Err(Refusal::Unwritable(why)) if why.contains("Read-only")), "{refused:?}");
    assert_eq!(recorder.store.refusal(), refused.err());
    recorder.maintain();
    assert_eq!(recorder.check(false), recorder.streams.values().map(|stream| stream.1).sum::<u64>(), "it is read");
    recorder.disk.set_read_only(false);
    recorder.recover();
    recorder.live(3);
    recorder.kill(true);
}

#[test]
fn without_descriptors_commits_go_on_and_seals_wait() {
    let mut recorder = Recorder::new(FaultDisk::new(10));
    recorder.live(5);
    recorder.disk.set_out_of_descriptors(true);
    for _ in 0..20 {
        recorder.append("busy", 100);
        recorder.commit();
        recorder.maintain();
    }
    assert_eq!((recorder.opened, recorder.store.refusal()), (0, None));
    assert_eq!(recorder.streams["busy"].2, recorder.streams["busy"].1);
    recorder.disk.set_out_of_descriptors(false);
    recorder.recover();
    recorder.live(3);
    recorder.kill(true);
}

#[test]
fn a_folder_that_is_removed_takes_nothing_more() {
    for maintain in [false, true] {
        let mut recorder = Recorder::new(FaultDisk::new(11));
        recorder.live(3);
        recorder.disk.remove_folder();
        recorder.append("busy", 10);
        let (store, now) = (recorder.store.clone(), recorder.now);
        let refused = if maintain { store.maintain(now).map(drop) } else { store.commit(now).map(drop) };
        assert!(matches!(&refused, Err(Refusal::Poisoned(why)) if why.contains("removed or replaced")), "{refused:?}");
        assert!(recorder.disk.open_store(options(), now).is_err());
    }
}
