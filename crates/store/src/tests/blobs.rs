//! Blobs: written beside frames, read back, cut, damaged, forged, expired.

mod golden;
mod rot;

use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use super::faults;

use crate::blob::{CHUNK_BODY_BYTES, most_bytes, padded_bytes};
use crate::disk::Disk;
use crate::disk::fault::{Fault, FaultDisk};
use crate::inspect::{self, Depth, Inspection};
use crate::model::limits::{BLOB_CHUNK_BYTES, PAGE_BYTES};
use crate::model::mutant::{self, Mutant};
use crate::segment::directory::file_name;
use crate::tests::kit::*;
use crate::*;

const S: i64 = 1_000_000_000;

fn options() -> StoreOptions {
    sized(1 << 20, 1 << 20)
}

fn small() -> StoreOptions {
    StoreOptions { segment_bytes: 256 << 10, ..options() }
}

fn camera(table: &str) -> StreamSpec {
    spec(table, [("n", ChannelType::U64), ("image", ChannelType::Blob)])
}

fn stream(store: &Store, table: &str) -> StreamId {
    store.stream(&camera(table))
}

/// The bytes of the blob of a number: none are like those of another.
fn content(n: u64, len: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(n);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    bytes.iter_mut().skip(7).step_by(4096).for_each(|byte| *byte = n as u8);
    bytes
}

fn put(store: &Store, stream: StreamId, bytes: &[u8], now: i64) -> Result<BlobRef, BlobError> {
    let mut writer = store.blob(stream)?;
    let mut random = Rng::with_seed(bytes.len() as u64);
    let mut left = bytes;
    while !left.is_empty() {
        let (piece, rest) = left.split_at(random.usize(1..=left.len().min(300_000)));
        writer.write(piece)?;
        left = rest;
    }
    writer.finish(now)
}

fn frame(store: &Store, stream: StreamId, n: u64, blob: Option<BlobRef>, now: i64) -> Outcome {
    let mut batch = FrameBatch::new();
    batch.begin(head(stream, now));
    batch.push(ChannelIndex(0), Value::U64(n));
    if let Some(blob) = blob {
        batch.push(ChannelIndex(1), Value::Blob(blob));
    }
    batch.end();
    store.append(&batch, now).outcomes.remove(0)
}

/// Puts a blob and a frame that names it.
fn add(store: &Store, stream: StreamId, n: u64, bytes: &[u8], now: i64) -> BlobRef {
    let reference = put(store, stream, bytes, now).expect("a blob");
    assert!(matches!(frame(store, stream, n, Some(reference), now), Outcome::Stored { .. }));
    reference
}

fn read(store: &Store, stream: StreamId, reference: &BlobRef) -> Result<Vec<u8>, ScanError> {
    let mut reader = store.view().blob(stream, reference)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        bytes.extend_from_slice(chunk);
    }
    Ok(bytes)
}

/// The number and blob of each frame, in the order of rows.
fn frames(store: &Store, stream: StreamId) -> Vec<(u64, Option<BlobRef>)> {
    try_frames(store, stream).expect("reads")
}

fn try_frames(store: &Store, stream: StreamId) -> Result<Vec<(u64, Option<BlobRef>)>, ScanError> {
    let mut found = Vec::new();
    for batch in store.view().scan(Scan::all(stream, vec![ChannelIndex(0), ChannelIndex(1)])) {
        let batch = batch?;
        for row in 0..batch.len() {
            let Ok(Value::U64(n)) = batch.columns[0].cell(row) else { panic!("no number") };
            let blob = match batch.columns[1].cell(row) {
                Ok(Value::Blob(blob)) => Some(blob),
                Err(CellState::Absent) => None,
                other => panic!("{other:?}"),
            };
            found.push((n, blob));
        }
    }
    Ok(found)
}

/// What an inspection of the disk's files finds.
fn verified(disk: &FaultDisk) -> Inspection {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, _) in disk.list().expect("names") {
        std::fs::write(folder.path().join(&name), disk.content(&name).expect("a file")).expect("written");
    }
    inspect::inspect(folder.path(), Depth::Everything).expect("a store")
}

const SIZES: [usize; 8] =
    [0, 1, CHUNK_BODY_BYTES - 1, CHUNK_BODY_BYTES, CHUNK_BODY_BYTES + 1, 2 * CHUNK_BODY_BYTES, 300_000, 700_001];

#[test]
fn blobs_of_every_size_come_back_from_memory_blocks_and_disk() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, StoreOptions { segment_bytes: 8 << 20, ..options() });
    let (a, b) = (stream(&store, "a"), stream(&store, "b"));
    let mut all: Vec<(StreamId, u64, Vec<u8>, BlobRef)> = Vec::new();
    for (n, size) in SIZES.into_iter().chain([5 << 20]).enumerate() {
        for of in [a, b] {
            let number = n as u64 * 2 + u64::from(of.0);
            let bytes = content(number, size);
            let reference = add(&store, of, number, &bytes, T0 + n as i64);
            assert_eq!(u64::from(reference.length_bytes()), size as u64);
            assert_eq!(BlobRef::from_bytes(&reference.bytes()), Some(reference));
            all.push((of, number, bytes, reference));
        }
        frame(&store, a, 1_000 + n as u64, None, T0 + n as i64);
    }
    let check = |store: &Store, what: &str| {
        for of in [a, b] {
            let named: Vec<(u64, BlobRef)> =
                frames(store, of).into_iter().filter_map(|(n, blob)| Some((n, blob?))).collect();
            let want: Vec<(u64, BlobRef)> = all.iter().filter(|one| one.0 == of).map(|one| (one.1, one.3)).collect();
            assert_eq!(named, want, "{what}");
        }
        for (of, n, bytes, reference) in &all {
            assert!(read(store, *of, reference).expect("reads") == *bytes, "{what}: blob {n}");
            // In pieces of any size.
            let (mut reader, mut again, mut piece) =
                (store.view().blob(*of, reference).expect("a blob"), Vec::new(), [0; 1_003]);
            loop {
                match reader.read(&mut piece).expect("reads") {
                    0 => break,
                    len => again.extend_from_slice(&piece[..len]),
                }
            }
            assert!(again == *bytes, "{what}: blob {n} in pieces");
        }
        let newest = all.iter().rfind(|one| one.0 == a).expect("a blob").3;
        let state = store.view().state_at(a, i64::MAX - 1, &[ChannelIndex(1)]).expect("a state");
        let value = state[0].as_ref().and_then(|cell| cell.value.as_ref());
        assert_eq!(value.map(|value| value.as_value()), Some(Value::Blob(newest)), "{what}");
    };
    check(&store, "in memory");
    store.upkeep(T0 + S);
    store.close(T0 + S).expect("closed");
    // Few rows stand in a mixed block; then there is little memory, and blocks are small.
    let store = open(&disk, StoreOptions { open_bytes: 4 << 10, segment_bytes: 64 << 10, ..options() });
    check(&store, "sealed");
    for n in 0..2_000 {
        let blob = all[n as usize % all.len()].3;
        frame(&store, b, 5_000 + n, Some(blob), T0 + 2 * S + n as i64);
        if n % 10 == 9 {
            store.upkeep(T0 + 3 * S);
        }
    }
    assert_eq!(frames(&store, b).len(), 2_000 + SIZES.len() + 1);
    for (n, blob) in frames(&store, b).into_iter().rev().take(2_000) {
        assert_eq!(blob, Some(all[(n - 5_000) as usize % all.len()].3));
    }
    // Blocks are written anew, references stay as they are.
    assert!(store.settle(T0 + 4 * S).expect("settled") > 0);
    assert_eq!(store.stats().settle_failure, None);
    store.close(T0 + 4 * S).expect("closed");
    let found = verified(&disk);
    assert!(found.is_sound(), "{:?}", found.damage);
    assert_eq!(found.blobs(), (all.len() as u64, all.iter().map(|one| one.2.len() as u64).sum()));
    let store = open(&disk, options());
    for (of, n, bytes, reference) in &all {
        assert!(read(&store, *of, reference).expect("reads") == *bytes, "blob {n}");
    }
}

#[test]
fn two_writers_at_once_each_have_their_own() {
    let disk = FaultDisk::new(2);
    let store = open(&disk, StoreOptions { segment_bytes: 4 << 20, ..options() });
    let s = stream(&store, "t");
    let mut writers = [store.blob(s).expect("a writer"), store.blob(s).expect("another")];
    let contents = [content(1, 1_000_000), content(2, 900_000)];
    for at in (0..1_000_000).step_by(50_000) {
        for (writer, bytes) in writers.iter_mut().zip(&contents) {
            writer.write(bytes.get(at..bytes.len().min(at + 50_000)).unwrap_or_default()).expect("written");
        }
        // Frames go on, and nothing that is open is dropped.
        frame(&store, s, at as u64, None, T0);
        store.upkeep(T0);
    }
    let [first, second] = writers.map(|writer| writer.finish(T0).expect("finished"));
    assert_ne!(first.segment(), second.segment());
    assert_eq!(read(&store, s, &first).expect("reads"), contents[0]);
    assert_eq!(read(&store, s, &second).expect("reads"), contents[1]);
    // One of the two waits for the next blob; the other one has no more than it needs.
    let blobs: Vec<SegmentInfo> = store.segments().into_iter().filter(|segment| segment.blobs).collect();
    assert_eq!(blobs.iter().filter(|segment| segment.sealed).count(), 1, "{blobs:?}");
    // Threads.
    let done: Vec<(u64, BlobRef)> = std::thread::scope(|scope| {
        let write = |n: u64| {
            let store = store.clone();
            move || (n, add(&store, s, n, &content(n, 100_000 + n as usize * 7_001), T0))
        };
        let threads: Vec<_> = (10..22).map(|n| scope.spawn(write(n))).collect();
        for _ in 0..50 {
            store.upkeep(T0);
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (n, reference) in &done {
        assert_eq!(read(&store, s, reference).expect("reads"), content(*n, 100_000 + *n as usize * 7_001), "{n}");
    }
    store.upkeep(T0);
    store.close(T0).expect("closed");
    assert!(verified(&disk).is_sound());
}

#[test]
fn one_that_does_not_fit_begins_another_segment_and_one_beyond_a_segment_is_refused() {
    let disk = FaultDisk::new(3);
    let store = open(&disk, options());
    let s = stream(&store, "t");
    let max = store.blob_bytes_max();
    assert_eq!(max, most_bytes(1 << 20));
    assert_eq!(padded_bytes(max), (1 << 20) - PAGE_BYTES as u64);
    let first = add(&store, s, 0, &content(0, 400_000), T0);
    // It was begun in the rest of the first segment.
    let second = add(&store, s, 1, &content(1, 900_000), T0);
    assert_ne!(first.segment(), second.segment());
    // Announced, it is not; and one of the most bytes there may be has room.
    let mut writer = store.blob(s).expect("a writer");
    writer.expect(max).expect("it fits");
    writer.write(&content(2, max as usize)).expect("written");
    let third = writer.finish(T0).expect("finished");
    frame(&store, s, 2, Some(third), T0);
    let stored: u64 = store.segments().iter().filter(|segment| segment.blobs).map(|segment| segment.size_bytes).sum();
    let needed: u64 = [400_000, 900_000, max].into_iter().map(|len| padded_bytes(len) + PAGE_BYTES as u64).sum();
    assert_eq!(stored, needed, "{:?}", store.segments());
    for (n, (reference, len)) in [(first, 400_000), (second, 900_000), (third, max as usize)].iter().enumerate() {
        assert_eq!(read(&store, s, reference).expect("reads"), content(n as u64, *len));
    }
    let want = BlobError::TooLarge { stream: "t".into(), size_bytes: max + 1, max_bytes: max };
    let mut writer = store.blob(s).expect("a writer");
    assert_eq!(writer.expect(max + 1), Err(want.clone()));
    writer.write(&content(3, 500_000)).expect("written");
    assert_eq!(writer.write(&content(3, max as usize - 499_999)), Err(want.clone()));
    assert_eq!(writer.write(&[1]), Err(want.clone()), "it stays so");
    assert!(want.to_string().contains(&max.to_string()) && want.to_string().contains(&(max + 1).to_string()));
    assert_eq!(writer.finish(T0), Err(want));
    // What was begun is not read, and others go on.
    let fourth = add(&store, s, 3, &content(4, 10), T0);
    assert_eq!(read(&store, s, &fourth).expect("reads"), content(4, 10));
    drop(store.blob(s).expect("a writer"));
    assert!(matches!(store.blob(StreamId(77)), Err(BlobError::NoBlobs { .. })));
    store.report_gap(faults::kernel_gap(T0, 1));
    store.upkeep(T0);
    let gaps = store.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").expect("gaps").id;
    assert!(matches!(store.blob(gaps), Err(BlobError::NoBlobs { .. })));
    store.close(T0).expect("closed");
    assert!(matches!(store.blob(s), Err(BlobError::Refused(Refusal::Closed))));
    assert!(verified(&disk).is_sound());
}

#[test]
fn a_writer_holds_a_chunk_and_takes_part_of_the_segments_only() {
    let disk = FaultDisk::new(4);
    // 16 segments: two writers.
    let store = open(&disk, StoreOptions { max_bytes: Some(16 << 20), ..options() });
    let s = stream(&store, "t");
    let bytes = content(1, 200_000);
    let begin = || {
        let mut writer = store.blob(s).expect("a writer");
        writer.write(&bytes).map(|_| writer)
    };
    let (first, second) = (begin().expect("one"), begin().expect("two"));
    assert!(first.held_bytes() <= BLOB_CHUNK_BYTES + PAGE_BYTES, "{}", first.held_bytes());
    assert_eq!(begin().err(), Some(BlobError::Busy { stream: "t".into(), writers: 2 }));
    drop(second);
    let third = begin().expect("it is free again");
    for writer in [first, third] {
        let reference = writer.finish(T0).expect("finished");
        assert_eq!(read(&store, s, &reference).expect("reads"), bytes);
    }
}

/// What a workload that was cut had acknowledged: the numbers of frames.
type Acknowledged = Vec<u64>;

fn size_of_number(n: u64) -> usize {
    [0, 3_000, CHUNK_BODY_BYTES + 1, 70_000, 131_072, 1, 200_000][n as usize % 7]
}

/// Blobs, frames and writers that give up, until the power is cut; `from` is the number of the first.
fn mixed_load(store: &Store, s: StreamId, from: u64, count: u64) -> Acknowledged {
    let mut acknowledged = Vec::new();
    for n in from..from + count {
        let now = T0 + n as i64 * S;
        if n % 3 == 1 {
            let Ok(mut dropped) = store.blob(s) else { break };
            let _ = dropped.write(&content(n + 500, 150_000));
        }
        let Ok(reference) = put(store, s, &content(n, size_of_number(n)), now) else { break };
        frame(store, s, n, Some(reference), now);
        if store.commit(now).is_err() {
            break;
        }
        acknowledged.push(n);
        if n % 4 == 2 && (0..4).any(|_| store.maintain(now).is_err()) {
            break;
        }
    }
    acknowledged
}

/// Checks that every acknowledged frame is there, and every blob of those that are.
fn whole(store: &Store, s: StreamId, acknowledged: &[u64]) -> Result<(), String> {
    let found = try_frames(store, s).map_err(|error| error.to_string())?;
    for n in acknowledged {
        if !found.iter().any(|(other, _)| other == n) {
            return Err(format!("frame {n} is not there"));
        }
    }
    for (n, blob) in found {
        let reference = blob.ok_or(format!("frame {n} has no blob"))?;
        let bytes = read(store, s, &reference).map_err(|error| format!("blob {n}: {error}"))?;
        if bytes != content(n, size_of_number(n)) {
            return Err(format!("blob {n} is another"));
        }
    }
    Ok(())
}

/// A cut at write `cut`, another one at an opening or what follows it, and a last opening.
fn cut_at(cut: u64, seed: u64) -> Result<bool, String> {
    let disk = FaultDisk::new(seed * 1_000 + cut);
    let store = open(&disk, small());
    let s = stream(&store, "t");
    store.commit(T0).expect("committed");
    disk.faults.writes_left.store(cut, Ordering::Relaxed);
    let mut acknowledged = mixed_load(&store, s, 0, 12);
    let was_cut = disk.is_cut();
    drop(store);
    let mut disk = disk.after_cut();
    disk.faults.writes_left.store(1 + cut % 23, Ordering::Relaxed);
    if let Ok(store) = disk.open_store(small(), T0) {
        whole(&store, s, &acknowledged).or_else(|why| if disk.is_cut() { Ok(()) } else { Err(why) })?;
        acknowledged.extend(mixed_load(&store, s, 20, 3));
        drop(store);
    }
    disk = disk.after_cut();
    for opening in 0..2 {
        let store = disk.open_store(small(), T0).map_err(|error| error.to_string())?;
        if !store.recovery().damaged.is_empty() {
            return Err(format!("opening {opening}: {:?}", store.recovery().damaged));
        }
        whole(&store, s, &acknowledged).map_err(|why| format!("opening {opening}: {why}"))?;
        acknowledged.extend(mixed_load(&store, s, 30 + opening * 10, 4));
        whole(&store, s, &acknowledged).map_err(|why| format!("after opening {opening}: {why}"))?;
        if opening == 1 {
            store.close(T0 + 100 * S).map_err(|error| error.to_string())?;
        }
    }
    let damage = if cut.is_multiple_of(4) { verified(&disk).damage } else { Vec::new() };
    match damage.first() {
        Some(damage) => Err(format!("{damage:?}")),
        None => Ok(was_cut),
    }
}

/// Cuts at every write until the workload comes to its end.
fn cut_everywhere(seed: u64) -> Result<u64, String> {
    for cut in 1.. {
        if !cut_at(cut, seed).map_err(|why| format!("cut at write {cut}, seed {seed}: {why}"))? {
            return Ok(cut);
        }
    }
    Ok(0)
}

#[test]
fn a_cut_at_every_write_leaves_no_frame_without_its_blob() {
    for seed in 0..2 {
        let writes = cut_everywhere(seed).unwrap_or_else(|why| panic!("{why}"));
        assert!(writes > 60, "{writes} writes");
    }
}

#[test]
fn a_reference_before_its_sync_is_found() {
    mutant::activate(Some(Mutant::BlobBeforeSync));
    let found = (0..4).find_map(|seed| cut_everywhere(seed).err());
    mutant::activate(None);
    let why = found.expect("a cut shows it");
    assert!(why.contains("blob"), "{why}");
}

#[test]
fn a_failed_write_or_sync_gives_no_reference_and_the_next_opening_has_the_rest() {
    for fault in 0..3 {
        let disk = FaultDisk::new(50 + fault);
        let store = open(&disk, small());
        let s = stream(&store, "t");
        add(&store, s, 0, &content(0, size_of_number(0)), T0);
        let first = add(&store, s, 1, &content(1, size_of_number(1)), T0);
        store.commit(T0).expect("committed");
        let name = file_name(first.segment());
        match fault {
            0 => disk.fail_syncs(&name, 1),
            1 => disk.fail_writes(&name, 1),
            _ => disk.tear_writes(&name, 1),
        }
        let error = put(&store, s, &content(2, size_of_number(2)), T0).expect_err("the disk failed");
        assert!(matches!(error, BlobError::Refused(Refusal::Poisoned(_))), "{error}");
        assert!(matches!(store.commit(T0), Err(Refusal::Poisoned(_))));
        assert!(matches!(store.blob(s), Err(BlobError::Refused(Refusal::Poisoned(_)))));
        assert!(store.close(T0).is_err());
        let again = open(&disk, small());
        whole(&again, s, &[0, 1]).expect("what was acknowledged");
        assert!(mixed_load(&again, s, 2, 3).len() == 3);
        whole(&again, s, &[0, 1, 2, 3, 4]).expect("and what came then");
        drop(again);
        let disk = disk.after_cut();
        whole(&open(&disk, small()), s, &[0, 1, 2, 3, 4]).expect("after a cut");
    }
}

#[test]
fn a_full_disk_refuses_a_blob_and_takes_the_next() {
    let disk = FaultDisk::new(6);
    let store = open(&disk, small());
    // Nothing of it may go.
    store.protect_run("kept", T0).expect("protected");
    let s = store.stream(&camera("t").tag("run", "kept"));
    add(&store, s, 0, &content(0, size_of_number(0)), T0);
    store.upkeep(T0);
    let (total, free) = disk.space().expect("space");
    disk.set_capacity_bytes(total - free);
    let mut n = 1;
    let refused = loop {
        match put(&store, s, &content(n, 100_000), T0) {
            Ok(_) => n += 1,
            Err(error) => break error,
        }
        assert!(n < 50);
    };
    assert_eq!(refused, BlobError::Refused(Refusal::DiskFull));
    disk.set_capacity_bytes(u64::MAX);
    add(&store, s, 8, &content(8, size_of_number(8)), T0);
    store.upkeep(T0);
    whole(&store, s, &[0, 8]).expect("both");
}

#[test]
fn blobs_go_with_their_age_and_their_bytes_and_read_as_expired() {
    // By age.
    let disk = FaultDisk::new(10);
    let aging = StoreOptions { max_age: Some(Duration::from_secs(100)), clock_confirm: Duration::ZERO, ..small() };
    let store = open(&disk, aging);
    let s = stream(&store, "t");
    let references: Vec<BlobRef> =
        (0..6).map(|n| add(&store, s, n, &content(n, 100_000), T0 + n as i64 * 40 * S)).collect();
    let mut reader = store.view().blob(s, &references[0]).expect("it is there");
    store.upkeep(T0 + 235 * S);
    // Two in a segment, which goes when its newest is too old.
    for (n, reference) in references.iter().enumerate() {
        match read(&store, s, reference) {
            Ok(bytes) => assert!(n >= 4 && bytes == content(n as u64, 100_000), "{n}"),
            Err(ScanError::BlobExpired { segment }) => assert!(n < 4 && segment == reference.segment(), "{n}"),
            Err(error) => panic!("{error}"),
        }
    }
    let error = std::io::copy(&mut reader, &mut std::io::sink()).expect_err("its file is gone");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    // The one that is open goes too.
    store.upkeep(T0 + 301 * S);
    assert!(matches!(read(&store, s, &references[5]), Err(ScanError::BlobExpired { .. })));
    assert!(store.segments().iter().all(|segment| !segment.blobs));
    store.close(T0 + 301 * S).expect("closed");
    assert!(verified(&disk).is_sound());
    // By bytes: the oldest go, whatever they are, and a group keeps its minimum.
    let disk = FaultDisk::new(11);
    let kept = group("kept", "kept", Keep::Bytes(1 << 20));
    let options =
        StoreOptions { max_bytes: Some(8 << 20), retention: vec![kept], segment_bytes: 256 << 10, ..options() };
    let store = open(&disk, options.clone());
    let (k, s) = (stream(&store, "kept"), stream(&store, "t"));
    let first: Vec<BlobRef> = (0..5).map(|n| add(&store, k, n, &content(n, 100_000), T0)).collect();
    let mut references = Vec::new();
    for n in 0..120 {
        let now = T0 + n as i64 * S;
        references.push(add(&store, s, n, &content(n, 100_000), now));
        store.upkeep(now);
        assert!(store.stats().disk_bytes <= (8 << 20) + (128 << 10), "{:?}", store.stats());
    }
    let there: Vec<bool> = references.iter().map(|reference| read(&store, s, reference).is_ok()).collect();
    assert!(!there[0] && there[119] && there.windows(2).all(|pair| pair[0] <= pair[1]), "{there:?}");
    assert!(there.iter().filter(|there| **there).count() > 20, "{there:?}");
    assert_eq!(frames(&store, s).len(), 120, "frames are few and stay");
    for (n, reference) in first.iter().enumerate() {
        assert_eq!(read(&store, k, reference).expect("kept"), content(n as u64, 100_000));
    }
    store.close(T0 + 200 * S).expect("closed");
    assert!(verified(&disk).is_sound());
    let store = open(&disk, options);
    let again: Vec<bool> = references.iter().map(|reference| read(&store, s, reference).is_ok()).collect();
    assert_eq!(again, there);
}

#[test]
fn a_fixed_size_goes_round_with_blobs_in_it() {
    let fixed = FixedOptions { segment_bytes: Some(256 << 10), ..FixedOptions::new(6 << 20) };
    let region = MemoryRegion::new(6 << 20);
    let mut store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).expect("a store");
    let s = stream(&store, "t");
    let mut references: Vec<BlobRef> = Vec::new();
    let mut reader = None;
    for n in 0..200u64 {
        let now = T0 + n as i64 * S;
        references.push(add(&store, s, n, &content(n, 90_000), now));
        store.upkeep(now);
        if n == 165 {
            let mut oldest = references.iter().filter_map(|reference| store.view().blob(s, reference).ok());
            reader = oldest.next();
        }
        if n % 40 == 39 {
            // Cleanly or not: it goes on in the slot that is half full.
            if n % 80 == 39 {
                store.close(now).expect("closed");
            }
            drop(store);
            store = Store::in_memory(&region, &fixed, StoreOptions::default(), now).expect("opened");
            assert!(store.recovery().damaged.is_empty());
        }
    }
    let mut there = Vec::new();
    for (n, reference) in references.iter().enumerate() {
        match read(&store, s, reference) {
            Ok(bytes) => assert!(bytes == content(n as u64, 90_000), "blob {n} is another"),
            Err(ScanError::BlobExpired { .. }) => {
                there.push(false);
                continue;
            }
            Err(error) => panic!("blob {n}: {error}"),
        }
        there.push(true);
    }
    assert!(!there[0] && there[199] && there.windows(2).all(|pair| pair[0] <= pair[1]), "{there:?}");
    assert!(there.iter().filter(|there| **there).count() > 15, "{there:?}");
    // Its slot has others in it since: never bytes of another blob.
    let Some(mut reader) = reader else { panic!("a reader") };
    let error = std::io::copy(&mut reader, &mut std::io::sink()).expect_err("overwritten");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    // In the smallest store there is one writer at a time, and rows find their segments too.
    let fixed = FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(204_800) };
    let store = Store::in_memory(&MemoryRegion::new(204_800), &fixed, StoreOptions::default(), T0).expect("a store");
    let s = stream(&store, "t");
    for n in 0..300u64 {
        let now = T0 + n as i64 * S;
        let reference = add(&store, s, n, &content(n, 5_000), now);
        for more in 0..20 {
            assert!(matches!(frame(&store, s, n * 100 + more, None, now), Outcome::Stored { .. }), "{n}");
        }
        store.upkeep(now);
        assert_eq!(read(&store, s, &reference).expect("the newest"), content(n, 5_000));
    }
}

#[test]
fn a_store_in_a_folder_reads_them_after_it_was_closed_and_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = StoreOptions { max_bytes: Some(1 << 30), segment_bytes: 4 << 20, ..StoreOptions::default() };
    let store = Store::open(folder.path(), options.clone(), T0).expect("opened");
    let s = stream(&store, "t");
    let references: Vec<BlobRef> = (0..5).map(|n| add(&store, s, n, &content(n, 1_500_000), T0 + n as i64)).collect();
    store.upkeep(T0 + S);
    let stats = store.stats();
    assert!(stats.blob_bytes > 5 * 1_500_000 && stats.block_bytes < 1 << 20, "{stats:?}");
    assert!(stats.written_bytes > stats.blob_bytes);
    store.close(T0 + S).expect("closed");
    let found = inspect::inspect(folder.path() as &Path, Depth::Footers).expect("a store");
    assert_eq!((found.is_sound(), found.blobs()), (true, (5, 5 * 1_500_000)), "{:?}", found.damage);
    let said = found.to_string();
    assert!(said.contains("  blobs  ") && said.contains("blobs    5, 7.2 MiB"), "{said}");
    assert!(inspect::Picture::Plain.draw(&found).contains("B blobs "));
    let store = Store::open(folder.path(), options, T0 + 2 * S).expect("opened");
    for (n, reference) in references.iter().enumerate() {
        assert_eq!(read(&store, s, reference).expect("reads"), content(n as u64, 1_500_000));
    }
}

#[test]
fn a_segment_that_the_disk_refuses_to_seal_for_a_time_is_sealed_later() {
    let mut refused = 0;
    for before in 0..8 {
        let disk = FaultDisk::new(before);
        let store = open(&disk, small());
        let s = stream(&store, "camera");
        let mut writers: Vec<BlobWriter> = (0..3).map(|_| store.blob(s).expect("a writer")).collect();
        writers.iter_mut().for_each(|writer| writer.write(&[7; 140_000]).expect("written"));
        disk.fail_call(Fault::ReadOnly, before, 1);
        let done = writers.into_iter().map(|writer| writer.finish(T0)).filter(Result::is_ok).count();
        refused += u32::from(!disk.is_call_to_fail() && done == 3);
        disk.fail_call(Fault::ReadOnly, 0, 0);
        for second in 1..4 {
            let _ = store.commit(T0 + second * 2 * S);
            while store.maintain(T0 + second * 2 * S).expect("maintained") {}
        }
        let open = store.segments().iter().filter(|segment| segment.blobs && !segment.sealed).count();
        assert!(open <= 1, "{open} are open, {done} blobs are whole, the call after {before} failed");
    }
    assert!(refused > 0, "no seal was refused");
}

#[test]
fn a_blob_whose_sync_finds_no_space_is_the_last_of_its_segment() {
    let disk = FaultDisk::new(7);
    let store = open(&disk, small());
    let s = stream(&store, "t");
    let first = add(&store, s, 0, &content(0, 1_000), T0);
    // The write of its only chunk, and then the sync.
    disk.fail_call(Fault::NoSpace, 1, 1);
    let error = put(&store, s, &content(1, 1_000), T0).expect_err("there was no space");
    assert!(matches!(error, BlobError::Refused(Refusal::DiskFull)), "{error}");
    disk.heal();
    let next = add(&store, s, 1, &content(2, 1_000), T0);
    assert_ne!(next.segment(), first.segment());
    store.commit(T0).expect("committed");
}
