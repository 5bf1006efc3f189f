//! Memory is bounded, in bytes that the store has allocated: alone in its process, so that all of them are its own.

mod kit;

use std::alloc::System;
use std::sync::{Mutex, PoisonError};

use kit::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use strongback_store::*;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STREAMS: usize = 100_000;
/// The whole: open blocks, streams and channels.
const ALL_BYTES_MAX: usize = 160 << 20;
/// One test at a time: all that is allocated is its own.
static ALONE: Mutex<()> = Mutex::new(());
/// What a blob may hold in memory on its way in, or out: a chunk, and what moves it to another segment or to the disk.
const BLOB_BYTES_MAX: usize = 600 << 10;
/// Beside open blocks: what a stream and its channel may cost.
const STREAM_BYTES_MAX: usize = 600;
const CHANNEL_BYTES_MAX: usize = 150;

fn allocated_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Resident bytes of this process: what the allocator and the binary add.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).expect("a number of pages");
    pages * 4096
}

fn check(store: &Store, before: (usize, usize), what: &str) {
    let all = allocated_bytes() - before.0;
    let open = store.stats().open_bytes as usize;
    let each = (all - open) / STREAMS;
    let resident = resident_bytes().saturating_sub(before.1);
    println!(
        "{what}: {} MB, open blocks {} MB, {each} B a stream beside; {} MB resident",
        all >> 20,
        open >> 20,
        resident >> 20
    );
    assert!(all <= ALL_BYTES_MAX, "{what}: {} MB", all >> 20);
    assert!(each <= STREAM_BYTES_MAX + CHANNEL_BYTES_MAX, "{what}: {each} B for a stream with a channel");
}

#[test]
fn a_hundred_thousand_streams_fit_in_160_mb() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a folder");
    let options = StoreOptions { max_bytes: Some(1 << 40), ..StoreOptions::default() };
    let before = (allocated_bytes(), resident_bytes());
    let store = open(dir.path(), &options);
    let mut batch = FrameBatch::new();
    for n in 0..STREAMS {
        let spec = spec("quiet", [("value", ChannelType::F64)])
            .tag("n", n)
            .tag("host", format!("h{}", n % 100))
            .clock(Clock::Source);
        let (stream, indices) = store.resolve(&spec, T0).expect("resolved");
        batch.clear();
        for lap in 0..4 {
            batch.put_at(head(stream.id, T0).sampled(Some(T0 + lap)), [(indices[0], Value::F64(n as f64))]);
        }
        let appended = store.append(&batch, T0);
        assert!(appended.outcomes.iter().all(is_stored), "{:?}", appended.outcomes);
        // As often as a server does: what a commit needs is not a stream's.
        if n % 500 == 0 {
            store.upkeep(T0);
        }
    }
    drop(batch);
    store.upkeep(T0);
    check(&store, before, "as it grew");
    drop(store);
    // The same from the checkpoint and the log.
    let store = Store::open(dir.path(), options, T0).expect("the store again");
    store.upkeep(T0);
    check(&store, before, "opened again");
    assert_eq!(store.catalog().streams.len(), STREAMS);
}

#[test]
fn a_blob_of_any_size_is_a_chunk_in_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a folder");
    let options = StoreOptions { log_bytes: 1 << 20, max_bytes: Some(2 << 30), ..StoreOptions::default() };
    let store = open(dir.path(), options);
    let stream = store.stream(&spec("camera", [("image", ChannelType::Blob)]));
    let piece: Vec<u8> = (0..100_003u32).map(|n| (n % 251) as u8).collect();
    let before = allocated_bytes();
    let mut most = 0;
    let mut see = || most = most.max(allocated_bytes() - before);
    // The second has no room behind the first, and moves.
    let references = [40, 50].map(|mib: u64| {
        let (mut writer, mut left) = (store.blob(stream).expect("a writer"), mib << 20);
        while left > 0 {
            let len = left.min(piece.len() as u64);
            writer.write(&piece[..len as usize]).expect("written");
            left -= len;
            see();
        }
        writer.finish(T0).expect("finished")
    });
    assert_ne!(references[0].segment(), references[1].segment());
    for reference in &references {
        let mut reader = store.view().blob(stream, reference).expect("a blob");
        let mut length = 0;
        while let Some(chunk) = reader.next_chunk().expect("reads") {
            length += chunk.len() as u64;
            see();
        }
        assert_eq!(length, u64::from(reference.length_bytes()));
    }
    println!("at most {} KiB for blobs of 40 and 50 MiB", most >> 10);
    assert!(most <= BLOB_BYTES_MAX, "{most} bytes");
}
