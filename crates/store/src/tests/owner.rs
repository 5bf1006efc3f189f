//! Whose a table is, and whose the files are.

use std::os::unix::fs::PermissionsExt;

use crate::tests::kit::*;
use crate::*;

fn texts(table: &str, channels: &[&str]) -> StreamSpec {
    spec(table, channels.iter().map(|name| (*name, ChannelType::String)))
}

#[test]
fn no_source_resolves_a_table_of_the_stores_own_before_or_after_it_exists() {
    let folder = tempfile::tempdir().expect("folder");
    let store = Store::open(folder.path(), StoreOptions::default(), T0).expect("opened");
    let tables = ["strongback.events", "strongback.gaps", "strongback.clocks", "strongback.never", "strongback"];
    let refused = |store: &Store| {
        for table in tables.into_iter().chain(["Strongback.events", "STRONGBACK.runs"]) {
            for channels in [&["text"][..], &["text", "more"], &[]] {
                let answer = store.resolve(&texts(table, channels), T0);
                assert!(matches!(answer, Err(Reject::BadName { .. })), "{table}: {answer:?}");
            }
        }
    };
    refused(&store);
    for table in tables {
        store.resolve_own(&texts(table, &["text"]), T0).expect(table);
    }
    refused(&store);
    store.commit(T0).expect("committed");
    store.close(T0).expect("closed");
    let store = Store::open(folder.path(), StoreOptions::default(), T0).expect("opened again");
    refused(&store);
    for table in tables {
        assert_eq!(store.resolve_own(&texts(table, &["text"]), T0).expect(table).0.layout.channels.len(), 1, "{table}");
    }
    store.resolve(&texts("strongbacks.events", &["text"]), T0).expect("another table");
}

#[test]
fn files_and_folders_that_are_made_are_their_owners_alone() {
    let parent = tempfile::tempdir().expect("folder");
    let folder = parent.path().join("a/b");
    let store = Store::open(&folder, StoreOptions::default(), T0).expect("opened");
    store.close(T0).expect("closed");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let mut files = 0;
    for file in std::fs::read_dir(&folder).expect("listed") {
        let path = file.expect("a file").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        files += 1;
    }
    assert!(files > 2, "{files}");
    let fixed = parent.path().join("fixed.sb");
    Store::create_fixed(&fixed, &FixedOptions::new(4 << 20), StoreOptions::default(), T0).expect("made");
    assert_eq!(mode(&fixed), 0o600);
}
