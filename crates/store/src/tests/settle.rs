//! Settle: what it makes of small blocks, beside readers and expiry, on a disk that fills up, rots, or is cut off at
//! any write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::disk::{Access, Disk, read_exact};
use crate::log::checkpoint::SealedRows;
use crate::segment::directory::file_name;
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000_000_000;

/// Small segments, and so little memory that most blocks are small and many are mixed.
fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(64 << 20),
        open_bytes: 48 << 10,
        ..StoreOptions::default()
    }
}

fn varied(n: usize, grown: bool) -> StreamSpec {
    let kinds = [ChannelType::F64, ChannelType::I16, ChannelType::Bool, ChannelType::String, ChannelType::F32];
    let mut channels: Vec<ChannelSpec> =
        (0..1 + n % 5).map(|c| ChannelSpec::new(format!("c{c}"), kinds[(n + c) % kinds.len()])).collect();
    if grown {
        channels.push(ChannelSpec::new("late", ChannelType::U32));
    }
    spec(format!("table{n}"), channels)
        .clock(if n % 3 == 2 { Clock::Source } else { Clock::Receive })
        .modulus((n % 2 == 1).then_some(1 << 16))
}

/// Streams of every kind, and what is known of them.
struct Feed {
    random: Rng,
    ids: Vec<StreamId>,
    sequences: Vec<u64>,
    now: i64,
    grown: bool,
}

impl Feed {
    fn new(store: &Store, streams: usize, seed: u64) -> Feed {
        let ids = (0..streams).map(|n| store.stream(&varied(n, false))).collect();
        let sequences = vec![0; streams];
        Feed { random: Rng::with_seed(seed), ids, sequences, now: T0, grown: false }
    }

    fn grow(&mut self, store: &Store) {
        for n in 0..self.ids.len() {
            store.resolve(&varied(n, true), self.now).expect("resolved");
        }
        self.grown = true;
    }

    /// Appends so many frames to each stream but some, and commits.
    fn send(&mut self, store: &Store, frames: usize) {
        let mut batch = FrameBatch::new();
        for _ in 0..frames {
            for n in 0..self.ids.len() {
                if n >= 3 && self.random.u8(0..4) > 0 {
                    continue;
                }
                self.now += self.random.i64(100_000..200_000);
                let spec = varied(n, self.grown);
                let source_time = (n % 3 > 0).then(|| self.now - self.random.i64(0..50) * 1_000_000);
                let sequence = spec.sequence_modulus.map(|modulus| {
                    // Now and then one is missing.
                    self.sequences[n] += 1 + u64::from(self.random.u8(0..50) == 0);
                    self.sequences[n] % modulus
                });
                batch.begin(head(self.ids[n], self.now).sampled(source_time).numbered(sequence));
                for (c, channel) in spec.channels.iter().enumerate() {
                    let index = ChannelIndex(c as u16);
                    match self.random.u8(0..40) {
                        0 => {}
                        1 => batch.push_state(index, CellState::Unknown),
                        _ => match channel.channel_type {
                            ChannelType::F64 => batch.push(index, Value::F64(self.random.i32(0..4096) as f64 * 0.1)),
                            ChannelType::F32 => batch.push(index, Value::F32(self.random.f32())),
                            ChannelType::I16 => batch.push(index, Value::I16(self.random.i16(..))),
                            ChannelType::U32 => batch.push(index, Value::U32(self.random.u32(0..9))),
                            ChannelType::Bool => batch.push(index, Value::Bool(self.random.u8(0..9) == 0)),
                            _ => batch.push(index, Value::String(&"abcdefghij"[..self.random.usize(0..9)])),
                        },
                    }
                }
                batch.end();
            }
        }
        store.append(&batch, self.now);
        store.upkeep(self.now);
    }
}

/// Everything that can be read of the streams: rows as text, states, weights.
fn content(store: &Store, ids: &[StreamId]) -> Vec<String> {
    let view = store.view();
    let catalog = store.catalog();
    let mut lines = Vec::new();
    for &id in ids {
        let channels = catalog.stream(id).expect("known").layout.channels.len() as u16;
        let columns: Vec<ChannelIndex> = (0..channels).map(ChannelIndex).collect();
        let (mut times, mut next) = (Vec::new(), None);
        for batch in view.scan(Scan::all(id, columns.clone())) {
            let batch = batch.expect("reads");
            for row in 0..batch.len() {
                assert!(next.is_none_or(|next| next == batch.rows[row]), "row {} follows {next:?}", batch.rows[row]);
                next = Some(batch.rows[row] + 1);
                let sequence = batch.sequence.as_ref().and_then(|s| s.get(row));
                let session = sequence.map(|_| batch.session.as_ref().map(|s| s[row]));
                let source = batch.source_time.as_ref().and_then(|t| t.get(row));
                let cells: Vec<_> = batch.columns.iter().map(|c| format!("{:?}", c.cell(row))).collect();
                times.push(batch.time(row));
                lines.push(format!(
                    "{}: {} {} {source:?} {session:?} {sequence:?} {cells:?}",
                    id.0, batch.rows[row], batch.receive_time[row]
                ));
            }
        }
        let Some((first, last)) = view.time_range(id) else { continue };
        for share in [0, 1, 13, 50, 99, 100] {
            let at = first + (last - first) / 100 * share;
            lines.push(format!("{}: state at {at} {:?}", id.0, view.state_at(id, at, &columns).expect("a state")));
        }
        lines.push(format!("{}: {:?} sorted {}", id.0, (first, last), view.time_sorted(id)));
        for &column in &columns {
            let weight = view.weigh(id, column, first + 5..last - 5).expect("weighed");
            lines.push(format!("{}: weight {} {:?} {:?}", id.0, weight.count, weight.min, weight.max));
        }
    }
    lines
}

fn assert_same(found: &[String], expected: &[String], when: &str) {
    let differs = found.iter().zip(expected).find(|(a, b)| a != b);
    assert!(differs.is_none(), "{when}: {} instead of {}", differs.expect("one").0, differs.expect("one").1);
    assert_eq!(found.len(), expected.len(), "{when}");
}

/// What `verify` says of the files as they are.
pub(super) fn verify(disk: &FaultDisk) -> inspect::Inspection {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, size) in disk.list().expect("files") {
        let file = Disk::open(disk, &name, Access::Buffered).expect("a file");
        std::fs::write(folder.path().join(&name), read_exact(&*file, 0, size as usize).expect("read"))
            .expect("written");
    }
    inspect::inspect(folder.path(), inspect::Depth::Everything).expect("inspected")
}

/// A store of small blocks: its disk and streams.
fn fed(disk: &FaultDisk, streams: usize, sends: usize) -> (Store, Feed) {
    let store = open_at(disk, options(), T0);
    let mut feed = Feed::new(&store, streams, 5);
    for n in 0..sends {
        if n == sends / 2 {
            feed.grow(&store);
        }
        feed.send(&store, 20);
    }
    (store, feed)
}

fn blocks(store: &Store) -> u64 {
    store.segments().iter().filter(|s| s.group == "data").map(|s| s.blocks).sum()
}

#[test]
fn small_blocks_become_large_ones_and_every_row_stays() {
    let disk = FaultDisk::new(1);
    let (store, feed) = fed(&disk, 30, 60);
    let before = content(&store, &feed.ids);
    let (blocks_before, segments) = (blocks(&store), store.segments());
    assert!(segments.len() > 6, "{}", segments.len());
    let sealed = |store: &Store| -> (u64, u64) {
        let segments = store.segments();
        let sealed = segments.iter().filter(|s| s.sealed);
        sealed.fold((0, 0), |(n, bytes), s| (n + 1, bytes + s.size_bytes))
    };
    let (many, bytes) = sealed(&store);
    // Nothing is cold yet.
    store.upkeep(feed.now);
    assert_eq!(store.stats().settled_segments, 0);
    let done = store.settle(feed.now).expect("settled");
    let stats = store.stats();
    assert_eq!((done, stats.settle_failed, stats.settle_failure.clone()), (stats.settled_segments, 0, None));
    let (few, fewer_bytes) = sealed(&store);
    assert!(done > many / 2 && few < many / 2 + 2, "{done} of {many} became {few}");
    assert!(fewer_bytes < bytes * 3 / 4, "{bytes} became {fewer_bytes}");
    assert_eq!(bytes - fewer_bytes, stats.settle_saved_bytes);
    println!("{many} segments, {blocks_before} blocks, {bytes} bytes; {few}, {}, {fewer_bytes}", blocks(&store));
    assert_same(&content(&store, &feed.ids), &before, "settled");
    // Where the newest block is not known, as after damage, its segment's number leads to the one that stands for it.
    for slot in store.engine.shared.slots.iter() {
        let sealed = (**slot.sealed.load()).clone();
        slot.sealed.store(Arc::new(SealedRows { last: None, ..sealed }));
    }
    assert_same(&content(&store, &feed.ids), &before, "without the newest block");
    // A second time there is nothing to do.
    assert_eq!(store.settle(feed.now), Ok(0));
    assert_eq!(store.stats().settle_written_bytes, stats.settle_written_bytes);
    let found = verify(&disk);
    assert!(found.is_sound(), "{found}");
    assert_eq!(found.streams.values().map(|s| s.missing_rows).sum::<u64>(), 0, "{found}");
    store.close(feed.now).expect("closed");
    let store = open_at(&disk, options(), feed.now);
    assert_same(&content(&store, &feed.ids), &before, "opened again");
    assert!(verify(&disk).is_sound());
}

#[test]
fn what_is_cold_is_settled_slice_by_slice() {
    let disk = FaultDisk::new(2);
    let (store, feed) = fed(&disk, 30, 60);
    let before = content(&store, &feed.ids);
    // A slice with each call that finds nothing else to do.
    let now = feed.now + 601 * S;
    for n in 0..20_000 {
        assert!(!store.maintain(now + n).expect("maintained"));
    }
    assert!(store.stats().settled_segments > 4, "{:?}", store.stats());
    assert_same(&content(&store, &feed.ids), &before, "settled");
    let off = FaultDisk::new(3);
    let store = open_at(&off, StoreOptions { settle: false, ..options() }, T0);
    let mut feed = Feed::new(&store, 30, 5);
    (0..30).for_each(|_| feed.send(&store, 20));
    assert!((0..2_000).all(|n| !store.maintain(feed.now + 601 * S + n).expect("maintained")));
    assert_eq!(store.stats().settle_written_bytes, 0);
}

/// A guess of six pieces is wrong where streams differ much: what does not fit is written again with fewer segments.
#[test]
fn a_run_that_does_not_fit_is_cut_shorter() {
    let mut again = 0;
    for seed in 0..12 {
        let disk = FaultDisk::new(seed);
        let store = open(&disk, options());
        let mut random = Rng::with_seed(seed);
        let spec =
            |n: usize| StreamSpec { channels: vec![ChannelSpec::new("x", ChannelType::F64)], ..varied(n, false) };
        let ids: Vec<StreamId> = (0..40).map(|n| store.stream(&spec(n))).collect();
        let noisy: Vec<bool> = ids.iter().map(|_| random.bool()).collect();
        let mut now = T0;
        for _ in 0..60 {
            let mut batch = FrameBatch::new();
            for n in 0..12 * ids.len() {
                now += 100_000;
                let sequence = spec(n % ids.len()).sequence_modulus.map(|_| (now - T0) as u64 % (1 << 16));
                batch.put(
                    head(ids[n % ids.len()], now).numbered(sequence),
                    [Value::F64(if noisy[n % ids.len()] { random.f64() } else { 1.0 })],
                );
            }
            store.append(&batch, now);
            store.upkeep(now);
        }
        let before = content(&store, &ids);
        let newest = store.segments().iter().map(|s| s.id).max().expect("one");
        store.settle(now).expect("settled");
        assert_same(&content(&store, &ids), &before, &format!("seed {seed}"));
        // Each try takes a number.
        let settled: Vec<u64> = store.segments().iter().filter(|s| s.settled).map(|s| s.id).collect();
        again += settled.iter().max().map_or(0, |last| last - newest) - settled.len() as u64;
        let found = verify(&disk);
        assert!(found.is_sound(), "seed {seed}: {found}");
    }
    println!("{again} written again");
    assert!(again > 0);
}

/// The power goes at each write of a settle in turn, and again in the opening after it.
#[test]
fn a_cut_at_any_write_leaves_the_old_or_the_new() {
    let mut cuts = 0;
    for cut in 1.. {
        let mut disk = FaultDisk::new(cut);
        let (store, feed) = fed(&disk, 24, 48);
        let before = content(&store, &feed.ids);
        disk.faults.writes_left.store(cut, Ordering::Relaxed);
        let done = store.settle(feed.now);
        if !disk.is_cut() {
            println!("{:?} segments settled after {cuts} cuts", done);
            assert!(done.expect("settled") > 1);
            break;
        }
        cuts += 1;
        drop(store);
        disk = disk.after_cut();
        let mut again = cut % 7;
        let store = loop {
            if again > 0 {
                disk.faults.writes_left.store(again, Ordering::Relaxed);
            }
            match disk.open_store(options(), feed.now) {
                Ok(store) => break store,
                Err(error) => assert!(disk.is_cut(), "{error}"),
            }
            again -= 1;
            disk = disk.after_cut();
        };
        disk.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        let when = format!("cut at write {cut}");
        assert_same(&content(&store, &feed.ids), &before, &when);
        assert_eq!(store.recovery().damaged, vec![], "{when}");
        check_files(&disk, &store, &when);
        store.settle(feed.now).expect("settled");
        assert_same(&content(&store, &feed.ids), &before, &when);
        store.close(feed.now).expect("closed");
        let found = verify(&disk);
        assert!(found.is_sound(), "{when}: {found}");
    }
    assert!(cuts > 20, "{cuts} writes");
}

/// There is a file for each segment, and none but the spare beside them.
fn check_files(disk: &FaultDisk, store: &Store, when: &str) {
    let known: Vec<String> = store.segments().iter().map(|s| file_name(s.id)).collect();
    let files = disk.list().expect("files");
    let strange: Vec<_> = files.iter().filter(|(n, _)| n.starts_with("segment-") && !known.contains(n)).collect();
    assert!(strange.len() <= 1, "{when}: {strange:?} beside {known:?}");
    assert!(known.iter().all(|name| files.iter().any(|(n, _)| n == name)), "{when}: {files:?} of {known:?}");
}

#[test]
fn a_view_goes_on_with_the_old_files() {
    let disk = FaultDisk::new(4);
    let (store, feed) = fed(&disk, 30, 60);
    let id = feed.ids[0];
    let all = |view: &View| view.scan(Scan::all(id, vec![ChannelIndex(0)])).map(|b| b.expect("reads").rows).collect();
    let expected: Vec<Vec<u64>> = all(&store.view());
    let view = store.view();
    let mut scan = view.scan(Scan::all(id, vec![ChannelIndex(0)]));
    let mut found: Vec<Vec<u64>> = vec![scan.next().expect("a block").expect("reads").rows];
    let done = store.settle(feed.now).expect("settled");
    assert!(done > 4);
    // The segments of before are there still, and no new view sees them.
    assert!(all(&store.view()).len() < expected.len() / 2);
    let used = store.stats().disk_bytes;
    found.extend(scan.by_ref().map(|batch| batch.expect("reads").rows));
    assert_eq!(found, expected);
    assert_eq!(all(&view), expected, "a second scan of the same view");
    drop((scan, view));
    store.upkeep(feed.now + 2 * S);
    assert!(store.stats().disk_bytes < used);
    check_files(&disk, &store, "nobody reads");
    // A view that is held for ever holds no file for ever.
    let mut feed = feed;
    (0..60).for_each(|_| feed.send(&store, 20));
    let view = store.view();
    let mut scan = view.scan(Scan::all(id, vec![ChannelIndex(0)]));
    scan.next().expect("a block").expect("reads");
    assert!(store.settle(feed.now).expect("settled") > 4);
    store.upkeep(feed.now + 62 * S);
    check_files(&disk, &store, "held too long");
    assert!(matches!(scan.next(), Some(Err(ScanError::ViewTooOld))));
}

#[test]
fn settled_segments_expire_by_when_their_rows_were_stored() {
    let disk = FaultDisk::new(6);
    let options =
        StoreOptions { max_age: Some(Duration::from_secs(8_000)), clock_confirm: Duration::ZERO, ..options() };
    let store = open(&disk, options);
    let mut feed = Feed::new(&store, 30, 5);
    (0..40).for_each(|_| feed.send(&store, 20));
    let early = feed.now;
    feed.now += 3_000 * S;
    (0..40).for_each(|_| feed.send(&store, 20));
    let all = content(&store, &feed.ids);
    assert!(store.settle(feed.now).expect("settled") > 4);
    assert_same(&content(&store, &feed.ids), &all, "settled");
    let rows = |store: &Store| {
        let columns = vec![ChannelIndex(0)];
        let batches = store.view().scan(Scan::all(feed.ids[0], columns));
        batches.map(|b| b.expect("reads").rows).collect::<Vec<_>>().concat()
    };
    let before = rows(&store);
    // The early ones go, as whole segments: none holds both.
    store.upkeep(early + 8_001 * S);
    store.upkeep(early + 8_003 * S);
    let kept = rows(&store);
    assert!(kept[0] > 400 && kept.len() > 500 && kept.last() == before.last(), "{:?}", kept.first());
    assert!(kept.windows(2).all(|w| w[1] == w[0] + 1));
    let view = store.view();
    let states = view.state_at(feed.ids[0], i64::MAX - 1, &[ChannelIndex(0)]).expect("a state");
    assert!(states[0].is_some());
}

#[test]
fn what_is_kept_for_a_group_stays() {
    let disk = FaultDisk::new(7);
    let group = group("slow", "table?", Keep::Bytes(1 << 20));
    let options = StoreOptions { max_bytes: Some(4 << 20), retention: vec![group], ..options() };
    let store = open(&disk, options);
    store.protect_run("kept", T0).expect("protected");
    let mut feed = Feed::new(&store, 12, 5);
    (0..60).for_each(|_| feed.send(&store, 20));
    let slow: Vec<StreamId> = feed.ids[..10].to_vec();
    let before = content(&store, &slow);
    let mut settled = 0;
    for _ in 0..12 {
        // The others flood the disk.
        for _ in 0..20 {
            let mut batch = FrameBatch::new();
            for _ in 0..3_000 {
                feed.now += 1_000_000;
                batch.begin(head(feed.ids[11], feed.now));
                for (c, channel) in varied(11, false).channels.iter().enumerate() {
                    match channel.channel_type {
                        ChannelType::I16 => batch.push(ChannelIndex(c as u16), Value::I16(feed.random.i16(..))),
                        ChannelType::F32 => batch.push(ChannelIndex(c as u16), Value::F32(feed.random.f32())),
                        _ => {}
                    }
                }
                batch.end();
            }
            store.append(&batch, feed.now);
            store.upkeep(feed.now);
        }
        settled += store.settle(feed.now).expect("settled");
        assert!(store.stats().disk_bytes <= (4 << 20) + (128 << 10), "{:?}", store.stats());
    }
    assert!(settled > 1, "{settled} settled");
    assert!(store.view().scan(Scan::all(feed.ids[11], vec![])).next().expect("rows").expect("reads").rows[0] > 0);
    assert_same(&content(&store, &slow), &before, "kept");
}

#[test]
fn a_full_disk_ends_a_settle_and_nothing_else() {
    for left in [0u64, 20 << 10, 70 << 10, 140 << 10] {
        let disk = FaultDisk::new(8);
        let (store, feed) = fed(&disk, 30, 60);
        let before = content(&store, &feed.ids);
        let (total, free) = disk.space().expect("space");
        disk.faults.capacity_bytes.store(total - free + left, Ordering::Relaxed);
        let done = store.settle(feed.now).expect("settled");
        assert_eq!(store.refusal(), None);
        assert!(left > 64 << 10 || done == 0, "{left} left: {done}");
        assert_same(&content(&store, &feed.ids), &before, "full");
        // Rows go on as they would without it: the spare is theirs.
        let mut feed = feed;
        feed.send(&store, 20);
        assert_eq!(store.refusal(), None);
        let before = content(&store, &feed.ids);
        disk.faults.capacity_bytes.store(u64::MAX, Ordering::Relaxed);
        store.upkeep(feed.now + 2 * S);
        store.settle(feed.now).expect("settled");
        assert!(store.stats().settled_segments > 4, "{:?}", store.stats());
        assert_same(&content(&store, &feed.ids), &before, "later");
        store.close(feed.now).expect("closed");
        assert!(verify(&disk).is_sound());
    }
}

#[test]
fn a_damaged_segment_is_left_where_it_is() {
    let disk = FaultDisk::new(9);
    let (store, feed) = fed(&disk, 30, 60);
    let damaged = store.segments().iter().filter(|s| s.sealed && s.group == "data").nth(2).expect("a segment").id;
    let read = |store: &Store| {
        let scan = |id: &StreamId| store.view().scan(Scan::all(*id, vec![ChannelIndex(0)])).collect::<Vec<_>>();
        let all: Vec<_> = feed.ids.iter().flat_map(scan).collect();
        let rows: usize = all.iter().flatten().map(|batch| batch.len()).sum();
        (rows, all.iter().filter(|batch| batch.is_err()).count())
    };
    // Not read before: what is kept of mixed blocks hides the damage.
    let whole = feed.ids.iter().map(|id| store.counts(*id).stored as usize).sum();
    disk.rot(&file_name(damaged), 9_000, 0x10);
    let (rows, errors) = read(&store);
    assert!(errors > 0 && rows < whole);
    let done = store.settle(feed.now).expect("settled");
    let stats = store.stats();
    assert!(done > 4 && stats.settle_failed > 0, "{stats:?}");
    assert!(stats.settle_failure.as_ref().is_some_and(|why| why.contains(&file_name(damaged))), "{stats:?}");
    assert!(store.segments().iter().any(|s| s.id == damaged), "it is there");
    assert_eq!(read(&store), (rows, errors), "no more and no less can be read");
    let found = verify(&disk);
    assert!(!found.is_sound() && found.damage.iter().all(|d| d.file == file_name(damaged)), "{found}");
}

/// Rows are written to the log, to a segment, and once more by settle, whatever is asked of it.
#[test]
fn bytes_written_stay_within_their_bound() {
    let run = |settle: bool| {
        let disk = FaultDisk::new(10);
        let store = open_at(&disk, StoreOptions { settle, ..options() }, T0);
        let mut feed = Feed::new(&store, 30, 5);
        for n in 0..120 {
            feed.send(&store, 20);
            if settle && n % 10 == 9 {
                store.settle(feed.now).expect("settled");
                store.settle(feed.now).expect("settled");
            }
        }
        let stats = store.stats();
        (stats.block_bytes, stats.settle_written_bytes, stats.settled_segments)
    };
    let ((plain, nothing, _), (size, written, settled)) = (run(false), run(true));
    println!("{plain} bytes without, {size} with settle, which wrote {written}, {settled} segments settled");
    assert_eq!(nothing, 0);
    assert!(settled > 12 && size < plain * 3 / 4);
    // Each row once at most: what is there now, and footers of what was replaced in between.
    assert!(written <= size, "{written} written, {size} there");
}

/// What a store of a fixed size with a slot to spare holds.
const FIXED_BYTES: u64 = 672 << 10;

fn open_fixed(disk: &FaultDisk, now: i64) -> Store {
    super::fixed::open_on(disk, StoreOptions { open_bytes: 32 << 10, ..StoreOptions::default() }, now).expect("opened")
}

fn make_fixed(disk: &FaultDisk) -> u64 {
    let fixed = FixedOptions { max_streams: 16, max_channels: 80, ..FixedOptions::new(FIXED_BYTES) };
    super::fixed::make_on(disk, &fixed);
    fixed.segments().expect("slots").0
}

#[test]
fn a_fixed_size_goes_round_with_a_slot_to_spare() {
    let mut disk = FaultDisk::new(11);
    let slots = make_fixed(&disk);
    assert!(slots >= 16, "{slots} slots");
    let mut store = open_fixed(&disk, T0);
    let mut feed = Feed::new(&store, 10, 5);
    let (mut settled, mut sent, mut oldest) = (0, 0u64, 0);
    let made = |store: &Store| store.segments().iter().map(|s| s.id).max().unwrap_or(0);
    while made(&store) < 20 * slots {
        (0..20).for_each(|_| feed.send(&store, 8));
        sent += 1;
        if sent % 8 == 0 {
            let before = content(&store, &feed.ids);
            settled += store.settle(feed.now).expect("settled");
            assert_same(&content(&store, &feed.ids), &before, "settled");
            assert!(store.stats().settle_failed == 0 && store.segments().len() as u64 <= slots);
        }
        if sent % 64 == 0 {
            // Off and on again.
            let before = content(&store, &feed.ids);
            drop(store);
            disk = disk.after_cut();
            store = open_fixed(&disk, feed.now);
            assert_same(&content(&store, &feed.ids), &before, "opened again");
        }
        let first = store.view().scan(Scan::all(feed.ids[0], vec![])).next().expect("rows").expect("reads").rows[0];
        assert!(first >= oldest);
        oldest = first;
        assert_eq!(disk.used_bytes(), FIXED_BYTES);
    }
    println!("{settled} settled, {sent} laps, oldest row {oldest}");
    assert!(settled > slots && oldest > 1_000, "{settled} settled, oldest row {oldest}");
}

/// A reader has the bytes of a slot until another segment gets it, and never those.
#[test]
fn a_reader_of_a_slot_that_was_given_away_is_told() {
    let disk = FaultDisk::new(12);
    make_fixed(&disk);
    let store = open_fixed(&disk, T0);
    let mut feed = Feed::new(&store, 10, 5);
    (0..400).for_each(|_| feed.send(&store, 8));
    let id = feed.ids[0];
    let expected: Vec<Vec<u64>> = store.view().scan(Scan::all(id, vec![])).map(|b| b.expect("reads").rows).collect();
    let view = store.view();
    let mut scan = view.scan(Scan::all(id, vec![]));
    assert_eq!(scan.next().expect("a block").expect("reads").rows, expected[0]);
    assert!(store.settle(feed.now).expect("settled") > 1);
    (0..400).for_each(|_| feed.send(&store, 8));
    let (mut read, mut expired) = (1, 0);
    for batch in scan {
        match batch {
            Ok(batch) => {
                read += 1;
                assert!(expected.contains(&batch.rows), "rows of another time");
            }
            Err(ScanError::Expired) => expired += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(expired > 0 && read <= expected.len(), "{read} read, {expired} expired");
}

/// Whatever call the disk refuses for a time, no file stays behind that nobody names.
#[test]
fn what_is_begun_is_removed_when_the_disk_refuses() {
    use crate::disk::fault::Fault;
    let mut refused = 0;
    for fault in [Fault::ReadOnly, Fault::Descriptors, Fault::NoSpace] {
        for before in 0..60 {
            let disk = FaultDisk::new(before);
            let (store, feed) = fed(&disk, 12, 40);
            disk.fail_call(fault, before, 1);
            let _ = store.settle(feed.now);
            refused += u64::from(!disk.is_call_to_fail());
            let _ = store.commit(feed.now).and_then(|_| store.maintain(feed.now));
            disk.heal();
            store.upkeep(feed.now);
            store.settle(feed.now).expect("settled");
            store.upkeep(feed.now);
            let files = disk.list().expect("files");
            let segments = files.iter().filter(|(name, _)| name.starts_with("segment-")).count();
            // One more is ready for what comes.
            let listed = store.segments().len();
            assert!(segments <= listed + 1, "{fault:?} after {before}: {listed} of {segments}");
        }
    }
    assert!(refused > 20, "{refused}");
}

/// What was written to a segment that the disk then refuses to finish is counted as any other, and each byte once.
#[test]
fn bytes_of_a_segment_that_is_not_finished_are_counted() {
    use crate::disk::fault::Fault;
    use crate::segment::GroupHeader;
    let (mut seen, mut uncounted) = (0, 0);
    for before in 0..40 {
        let disk = FaultDisk::new(1);
        let (store, feed) = fed(&disk, 12, 40);
        let written = store.stats().written_bytes;
        // The second call would remove the file.
        disk.fail_call(Fault::ReadOnly, before, 2);
        let _ = store.settle(feed.now);
        let listed: Vec<String> = store.segments().iter().map(|segment| file_name(segment.id)).collect();
        let files = disk.list().expect("files").into_iter().map(|(name, _)| name);
        let is_begun = |name: &String| {
            let bytes = disk.content(name).expect("a file");
            let group = bytes.get(4096..).unwrap_or_default();
            GroupHeader::read(group).is_ok_and(|header| header.body(group).is_ok())
        };
        let begun = files.filter(|name| name.starts_with("segment-") && !listed.contains(name)).any(|f| is_begun(&f));
        let stats = store.stats();
        assert!(stats.written_bytes - written >= stats.settle_written_bytes, "after {before}");
        seen += usize::from(begun);
        uncounted += usize::from(begun && stats.settle_written_bytes == 0);
    }
    // A group whose sync fails is written and not counted.
    assert!(seen > 4 && uncounted <= 1, "{uncounted} of {seen}");
}

/// Files of what was rewritten that the disk refuses to remove for a time cost no history, and go later.
#[test]
fn what_is_rewritten_and_cannot_be_removed_yet_costs_no_history() {
    use crate::disk::fault::Fault;
    use crate::upkeep::expiry::Asked;
    for asked in [false, true] {
        let disk = FaultDisk::new(21);
        let (store, feed) = fed(&disk, 12, 40);
        let before = content(&store, &feed.ids);
        // Somebody reads the old files.
        let view = store.view();
        let mut scan = view.scan(Scan::all(feed.ids[0], vec![ChannelIndex(0)]));
        scan.next().expect("a block").expect("reads");
        assert!(store.settle(feed.now).expect("settled") > 0);
        store.upkeep(feed.now);
        let segments: Vec<u64> = store.segments().iter().map(|s| s.id).collect();
        drop((scan, view));
        disk.leave_space(0);
        disk.fail_call(Fault::NoSpace, 0, if asked { 2 } else { 1 });
        if asked {
            let asked = Asked { missing: 1 << 20, whole: 1 << 20 };
            let freed = store.sealer.lock().make_room(&store.engine, feed.now, asked);
            assert!(!freed.expect("refused for a time"), "nothing is known to be free");
        } else {
            assert_eq!(store.maintain(feed.now), Ok(false));
        }
        assert_eq!(store.segments().iter().map(|s| s.id).collect::<Vec<_>>(), segments);
        assert!(!disk.is_call_to_fail() && store.sealer.lock().checkpoints.has_gone());
        disk.heal();
        disk.give_space(u64::MAX);
        store.upkeep(feed.now + S);
        assert!(!store.sealer.lock().checkpoints.has_gone());
        assert_same(&content(&store, &feed.ids), &before, "removed");
        let names = disk.after_cut().list().expect("files").into_iter().map(|file| file.0);
        let files = names.filter(|name| name.starts_with("segment-")).count();
        assert!(files <= segments.len() + 1, "{files} of {}", segments.len());
    }
}

/// A replacement or a drop whose superblock found no space is in force later; what was chosen to go before that is not
/// dropped twice, nor is what stands for it.
#[test]
fn what_goes_when_a_replacement_is_named_late_goes_once() {
    use crate::disk::fault::Fault;
    let mut unnamed = 0;
    for (before, times) in (0..40).flat_map(|before| [(before, 2), (before, 3), (before, 5)]) {
        let disk = FaultDisk::new(31);
        disk.set_copy_on_write(true);
        let (store, feed) = fed(&disk, 6, 30);
        disk.fail_call(Fault::NoSpace, before, times);
        let _ = store.settle(feed.now);
        disk.leave_space(16 << 10);
        for _ in 0..6 {
            let _ = store.maintain(feed.now);
        }
        unnamed += u64::from(!disk.is_call_to_fail());
        disk.heal();
        store.upkeep(feed.now);
        let (rows, listed) = (content(&store, &feed.ids), store.segments());
        let (stats, bytes) = (store.stats(), listed.iter().map(|segment| segment.size_bytes).sum());
        assert_eq!((stats.segments, stats.block_bytes), (listed.len() as u64, bytes), "{times} after {before}");
        store.close(feed.now).expect("closed");
        let store = open_at(&disk, options(), feed.now);
        assert_eq!(content(&store, &feed.ids), rows, "{times} after {before}");
    }
    assert!(unnamed > 20, "{unnamed}");
}
