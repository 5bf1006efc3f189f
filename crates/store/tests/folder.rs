//! Folders of real file systems.

mod kit;

use std::path::Path;

use kit::*;
use strongback_store::*;

fn try_open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() }, T0)
}

#[test]
fn a_lock_that_was_removed_admits_no_second_writer() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = try_open(dir.path()).expect("opened");
    std::fs::remove_file(dir.path().join("lock")).expect("removed");
    assert!(matches!(try_open(dir.path()), Err(OpenError::InUse { .. })));
    store.close(T0).expect("closed");
    // A clone lives on, and the folder is free.
    try_open(dir.path()).expect("opened").close(T0).expect("closed");
}

#[test]
fn a_folder_that_is_gone_is_told_and_nothing_is_made_in_its_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a/b/store");
    for moved in [false, true] {
        let store = try_open(&path).expect("made, with the folders above");
        if moved {
            std::fs::rename(&path, dir.path().join("elsewhere")).expect("moved");
        } else {
            std::fs::remove_dir_all(&path).expect("removed");
        }
        let refused = store.maintain(T0).expect_err("it is gone");
        assert!(matches!(&refused, Refusal::Poisoned(why) if why.contains("removed or replaced")), "{refused}");
        assert_eq!(store.refusal(), Some(refused));
        let options = StoreOptions::default();
        let reopened = Store::reopen(&path, store.origin(), options.clone(), T0).err().expect("it is gone");
        assert!(reopened.to_string().contains("no new store is created in its place"), "{reopened}");
        assert!(matches!(reopened, OpenError::Gone { .. }) && reopened.passes(), "{reopened}");
        assert!(!path.exists());
        std::fs::create_dir(&path).expect("an empty folder, as of a disk that is not mounted");
        assert!(Store::reopen(&path, store.origin(), options.clone(), T0).is_err());
        assert_eq!(std::fs::read_dir(&path).expect("a folder").count(), 0);
        let other = try_open(&path).expect("another store");
        let refused = Store::reopen(&path, store.origin(), options.clone(), T0).err().expect("it is another");
        assert!(matches!(refused, OpenError::Gone { .. }), "{refused}");
        let origin = other.origin();
        other.close(T0).expect("closed");
        drop(other);
        Store::reopen(&path, origin, options, T0).expect("that one").close(T0).expect("closed");
        std::fs::remove_dir_all(&path).expect("removed");
    }
}

#[test]
fn errors_of_opening_that_pass_are_told_from_those_that_stay() {
    let io = |number| OpenError::Io { path: "s".into(), source: std::io::Error::from_raw_os_error(number) };
    // Out of descriptors in the process and the system, no space, read only.
    for number in [24, 23, 28, 30] {
        assert!(io(number).passes(), "{number}");
    }
    // The disk failed, not permitted.
    for number in [5, 1] {
        assert!(!io(number).passes(), "{number}");
    }
    assert!(!OpenError::Damaged { path: "s".into(), reason: "torn".into() }.passes());
    assert!(!OpenError::InUse { path: "s".into() }.passes());
}
