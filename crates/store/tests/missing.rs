//! Segments that are gone, emptied, cut, swapped or too many: verify names each, opening notices without reading them,
//! tells the loss once, and what is left is read.

mod kit;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use kit::*;
use strongback_store::inspect::{Depth, inspect};
use strongback_store::*;

const SEGMENTS: usize = 5;

fn options() -> StoreOptions {
    StoreOptions { settle: false, ..sized(1 << 20, 64 << 10) }
}

fn stream(store: &Store, name: &str) -> StreamId {
    store.stream(&counting(name))
}

/// A store that ended cleanly with several sealed segments: of `a` in all, of `b` in the last alone.
fn filled(dir: &Path) -> u64 {
    let store = open(dir, options());
    let (a, b) = (stream(&store, "a"), stream(&store, "b"));
    let (mut rows, mut random) = (0, fastrand::Rng::with_seed(1));
    while store.segments().iter().filter(|s| s.sealed).count() < SEGMENTS {
        let mut batch = FrameBatch::new();
        for id in [Some(a), (rows == 40_000).then_some(b)].into_iter().flatten().cycle().take(1_000) {
            batch.put(head(id, T0 + rows as i64), [Value::U64(rows), Value::U64(random.u64(..))]);
            rows += u64::from(id == a);
        }
        store.append(&batch, T0);
        store.upkeep(T0);
    }
    store.close(T0).expect("closed");
    rows
}

/// Sealed segments, oldest first.
fn segment_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| {
        let bytes = std::fs::read(path).expect("reads");
        path.extension().is_some_and(|e| e == "sbs") && bytes.iter().take(4096).any(|byte| *byte != 0)
    });
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Rows of a stream, each with its value checked, however many blocks refuse.
fn rows(store: &Store, id: StreamId) -> (Vec<u64>, Vec<String>) {
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for batch in store.view().scan(Scan::all(id, vec![ChannelIndex(0)])) {
        match batch {
            Ok(batch) => {
                for row in 0..batch.len() {
                    rows.push(batch.rows[row]);
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (rows, errors)
}

fn damaged_gaps(store: &Store) -> Vec<String> {
    let view = store.view();
    let Some(table) = view.catalog().streams.iter().find(|s| s.key.table == "strongback.gaps").cloned() else {
        return Vec::new();
    };
    let column = |name: &str| table.layout.index(name).expect("a documented column");
    let mut names = Vec::new();
    for batch in view.scan(Scan::all(table.id, vec![column("cause"), column("name")])) {
        let batch = batch.expect("reads");
        for row in 0..batch.len() {
            if batch.columns[0].cell(row) == Ok(Value::String("damaged"))
                && let Ok(Value::String(name)) = batch.columns[1].cell(row)
            {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Harm {
    Deleted,
    Emptied,
    Cut,
    Longer,
}

fn harm(path: &Path, how: Harm) {
    let file = || OpenOptions::new().write(true).open(path).expect("opened");
    let size = std::fs::metadata(path).expect("a file").len();
    match how {
        Harm::Deleted => std::fs::remove_file(path).expect("removed"),
        Harm::Emptied => file().set_len(0).expect("emptied"),
        Harm::Cut => file().set_len(size - 4096).expect("cut"),
        Harm::Longer => file().set_len(size + 4096).expect("longer"),
    }
}

#[test]
fn a_segment_that_is_not_what_was_sealed_is_named_told_once_and_the_rest_is_read() {
    for how in [Harm::Deleted, Harm::Emptied, Harm::Cut, Harm::Longer] {
        for which in 0..SEGMENTS {
            let dir = tempfile::tempdir().expect("a folder");
            let total = filled(dir.path());
            let victim = segment_files(dir.path()).remove(which);
            let (victim_name, kept) = (name(&victim), std::fs::read(&victim).expect("reads"));
            let case = format!("{how:?} {victim_name}");
            assert!(inspect(dir.path(), Depth::Everything).expect("looked at").is_sound(), "{case}");
            harm(&victim, how);
            for depth in [Depth::Footers, Depth::Everything] {
                let found = inspect(dir.path(), depth).expect("looked at");
                assert!(found.damage.iter().any(|d| d.file == victim_name), "{case}: {:?}", found.damage);
            }
            let mut before = None;
            for opening in 0..3 {
                let store = open(dir.path(), options());
                let report = store.recovery();
                let named: Vec<&str> = report.damaged.iter().map(|d| d.file.as_str()).collect();
                assert_eq!(named, [victim_name.as_str()], "{case}, opening {opening}");
                let a = stream(&store, "a");
                let (left, errors) = rows(&store, a);
                assert!(errors.is_empty(), "{case}: {errors:?}");
                assert!(left.is_sorted() && !left.is_empty() && (left.len() as u64) < total, "{case}");
                assert_eq!(before.get_or_insert_with(|| left.clone()), &left, "{case}");
                assert!(store.view().state_at(a, i64::MAX, &[ChannelIndex(0)]).expect("a state")[0].is_some());
                store.view().reduce(a, ChannelIndex(0), i64::MIN..i64::MAX, 7).expect("reduced");
                store.commit(T0).expect("committed");
                let gaps = damaged_gaps(&store);
                assert_eq!(gaps.iter().filter(|gap| **gap == victim_name).count(), 1, "{case}: {gaps:?}");
                if opening == 1 {
                    while store.maintain(T0).expect("kept up") {}
                    store.settle(T0).expect("settled");
                }
                store.close(T0).expect("closed");
            }
            // The file is put back: all is there again.
            std::fs::write(&victim, kept).expect("written");
            let store = open(dir.path(), options());
            assert!(store.recovery().damaged.is_empty(), "{case}: {:?}", store.recovery().damaged);
            let (left, errors) = rows(&store, stream(&store, "a"));
            assert!(errors.is_empty() && left.iter().copied().eq(0..total), "{case}: {} of {total}", left.len());
            store.close(T0).expect("closed");
            let found = inspect(dir.path(), Depth::Everything).expect("looked at");
            assert!(found.is_sound(), "{case}: {:?}", found.damage);
        }
    }
}

#[test]
fn what_no_checkpoint_lists_and_what_changed_places_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    filled(dir.path());
    let files = segment_files(dir.path());
    std::fs::copy(&files[1], dir.path().join("segment-000000000777.sbs")).expect("copied");
    let found = inspect(dir.path(), Depth::Footers).expect("looked at");
    assert!(found.damage.iter().any(|d| d.file == "segment-000000000777.sbs"), "{:?}", found.damage);
    std::fs::remove_file(dir.path().join("segment-000000000777.sbs")).expect("removed");
    assert!(inspect(dir.path(), Depth::Everything).expect("looked at").is_sound());
    let bytes = [std::fs::read(&files[1]).expect("reads"), std::fs::read(&files[2]).expect("reads")];
    std::fs::write(&files[1], &bytes[1]).expect("written");
    std::fs::write(&files[2], &bytes[0]).expect("written");
    for depth in [Depth::Footers, Depth::Everything] {
        let found = inspect(dir.path(), depth).expect("looked at");
        for file in &files[1..3] {
            assert!(found.damage.iter().any(|d| d.file == name(file)), "{depth:?}: {:?}", found.damage);
        }
    }
    let store = open(dir.path(), options());
    let (left, errors) = rows(&store, stream(&store, "a"));
    assert!(left.is_sorted() && !left.is_empty());
    let named = |file: &PathBuf| {
        let noticed = store.recovery().damaged.iter().any(|damage| damage.file == name(file));
        noticed || errors.iter().any(|error| error.contains(&name(file)))
    };
    assert!(files[1..3].iter().all(named), "{errors:?}, {:?}", store.recovery().damaged);
}
