//! A closed store is closed: whatever others are doing, nothing touches its disk once another may open it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(64 << 20),
        open_bytes: 0,
        ..StoreOptions::default()
    }
}

fn append(store: &Store, s: StreamId, x: ChannelIndex, rows: i64) {
    let mut batch = FrameBatch::new();
    for n in 0..rows {
        batch.put_at(head(s, T0 + n), [(x, Value::F64(n as f64))]);
    }
    store.append(&batch, T0);
}

#[test]
fn who_is_at_work_when_a_store_is_closed_is_done_before_it_is_free() {
    let disk = FaultDisk::new(1);
    let open = || open(&disk, options());
    for round in 0..60 {
        let store = open();
        let (stream, columns) = store.resolve(&spec("t", [("x", ChannelType::F64)]), T0).expect("resolved");
        let begin = Arc::new(Barrier::new(4));
        type Work = fn(&Store) -> Result<(), Refusal>;
        let work: [Work; 3] = [
            |store| store.maintain(T0).map(drop),
            |store| store.commit(T0).map(drop),
            |store| store.settle(T0).map(drop),
        ];
        let threads = work.map(|work| {
            let (store, begin) = (store.clone(), begin.clone());
            std::thread::spawn(move || {
                begin.wait();
                loop {
                    if let Err(refusal) = work(&store) {
                        break refusal;
                    }
                }
            })
        });
        begin.wait();
        for _ in 0..1 + round % 3 {
            append(&store, stream.id, columns[0], 300);
        }
        store.close(T0).expect("closed");
        let written = disk.faults.writes.load(Ordering::SeqCst);
        let next = store.view().next_row(stream.id);
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Refusal::Closed);
        }
        assert_eq!(store.commit(T0), Err(Refusal::Closed));
        assert_eq!(store.maintain(T0), Err(Refusal::Closed));
        assert_eq!(disk.faults.writes.load(Ordering::SeqCst), written, "round {round}");
        let other = open();
        assert_eq!(other.view().next_row(stream.id), next, "round {round}");
        assert!(other.recovery().clean, "round {round}");
        assert_eq!(store.close(T0), Ok(()));
        other.close(T0).expect("closed");
    }
}

/// Whoever reads a closed store whose files are gone since is told so: each reader, not the first alone.
#[test]
fn every_reader_of_a_closed_store_is_told_what_is_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || Store::open(dir.path(), options(), T0).expect("opened");
    let first = open();
    let (stream, columns) = first.resolve(&spec("t", [("x", ChannelType::F64)]), T0).expect("resolved");
    append(&first, stream.id, columns[0], 16);
    first.close(T0).expect("closed");
    let store = open();
    append(&store, stream.id, columns[0], 16);
    store.close(T0).expect("closed");
    // As the next one does with what expires and with what others stand for.
    let segments = || {
        let files = std::fs::read_dir(dir.path()).expect("listed").map(|file| file.expect("a file").path());
        let mut segments: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "sbs")).collect();
        segments.sort();
        segments
    };
    let names = segments();
    assert_eq!(names.len(), 2, "{names:?}");
    std::fs::remove_file(&names[0]).expect("removed");
    for _ in 0..3 {
        let read: Vec<_> = store.view().scan(Scan::all(stream.id, columns.clone())).collect();
        let rows: usize = read.iter().flatten().map(Batch::len).sum();
        assert!(rows == 16 && read.iter().any(Result::is_err), "{read:?}");
    }
}

/// A close finds the log full, and frees it only when it seals: what was refused is told then.
#[test]
fn what_a_full_log_refused_before_a_close_is_told() {
    let disk = FaultDisk::new(2);
    let store = open(&disk, options());
    let (stream, columns) = store.resolve(&spec("t", [("x", ChannelType::F64)]), T0).expect("resolved");
    while store.counts(stream.id).rejected < 10 {
        append(&store, stream.id, columns[0], 100);
        store.commit(T0).expect("committed");
    }
    let counts = store.counts(stream.id);
    assert_eq!(counts.lost, counts.rejected, "{counts:?}");
    store.close(T0).expect("closed");
    assert_eq!(store.append(&FrameBatch::new(), T0).outcomes, []);
    let again = open(&disk, options());
    assert!(again.recovery().clean);
    assert_eq!(again.view().next_row(stream.id), counts.stored);
    let catalog = again.catalog();
    let gaps = catalog.streams.iter().find(|s| s.key.table == "strongback.gaps").expect("rows of gaps");
    let columns = ["stream", "count"].map(|name| gaps.layout.index(name).expect("a documented column"));
    let mut told = 0;
    for batch in again.view().scan(Scan::all(gaps.id, columns.to_vec())) {
        let batch = batch.expect("reads");
        for row in 0..batch.len() {
            let number = |column: usize| batch.columns[column].cell(row).ok().and_then(|v| v.as_f64());
            assert_eq!(number(0), Some(f64::from(stream.id.0)));
            told += number(1).expect("a count") as u64;
        }
    }
    assert_eq!(told, counts.lost);
}
