//! Tests that the fault disk behaves as real ones do.

use std::io::ErrorKind::StorageFull;

use super::*;
use crate::disk::{PAGE_BYTES, Pages};

const PAGE: u64 = PAGE_BYTES as u64;

fn disk(allocation: Allocation, pages: u64) -> FaultDisk {
    let disk = FaultDisk::new(1);
    disk.set_allocation(allocation);
    disk.set_capacity_bytes(pages * PAGE);
    disk
}

fn pages(count: u64, with: u8) -> Pages {
    Pages::of(&vec![with; (count * PAGE) as usize])
}

fn create(disk: &FaultDisk, name: &str, pages: u64) -> io::Result<Arc<dyn DiskFile>> {
    Disk::create(disk, name, pages * PAGE, Access::Buffered)
}

fn byte(file: &dyn DiskFile, page: u64) -> u8 {
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, page * PAGE).expect("read"), 1);
    byte[0]
}

#[test]
fn a_file_that_cannot_be_reserved_is_gone_with_what_it_held() {
    let disk = disk(Allocation::Reserve, 10);
    create(&disk, "a", 4).expect("made").write_at(&pages(4, 1), 0).expect("written");
    assert_eq!(disk.free_bytes(), 6 * PAGE);
    disk.take_space(4 * PAGE);
    let error = create(&disk, "a", 7).err().expect("no space");
    assert_eq!((error.kind(), disk.content("a"), disk.free_bytes()), (StorageFull, None, 6 * PAGE));
    disk.give_space(u64::MAX);
    let file = create(&disk, "a", 7).expect("made");
    assert_eq!((byte(&*file, 0), disk.free_bytes()), (0, 3 * PAGE));
    assert_eq!(file.truncate(11 * PAGE).expect_err("no space").kind(), StorageFull);
    assert_eq!(file.write_at(&pages(6, 2), 6 * PAGE).expect_err("no space").kind(), StorageFull);
    // As much of it arrived as there was space for.
    assert_eq!((file.size().expect("a size"), byte(&*file, 9)), (10 * PAGE, 2));
}

#[test]
fn without_a_reservation_space_is_taken_at_the_write_or_at_the_sync() {
    let of_write = disk(Allocation::Write, 3);
    let file = create(&of_write, "a", 8).expect("made");
    file.write_at(&pages(2, 1), PAGE).expect("written");
    assert_eq!(file.write_at(&pages(2, 2), 3 * PAGE).expect_err("space for one of them").kind(), StorageFull);
    assert_eq!((byte(&*file, 3), byte(&*file, 4), of_write.free_bytes()), (2, 0, 0));
    file.write_at(&pages(3, 4), PAGE).expect("written over");

    let of_sync = disk(Allocation::Sync, 3);
    let file = create(&of_sync, "a", 8).expect("made");
    file.write_at(&pages(4, 1), 0).expect("into the cache");
    assert_eq!(file.sync().expect_err("no space").kind(), StorageFull);
    // The pages count as clean, so a later sync does not cover them.
    file.sync().expect("nothing to write");
    Disk::forget_cached(&of_sync);
    assert_eq!(file.size().expect("a size"), 0);
}

#[test]
fn where_nothing_is_written_over_writing_again_takes_space_until_the_sync() {
    let disk = disk(Allocation::Reserve, 5);
    disk.set_copy_on_write(true);
    let file = create(&disk, "a", 4).expect("made");
    file.write_at(&pages(4, 1), 0).expect("into what was reserved");
    assert_eq!(file.write_at(&pages(2, 2), 0).expect_err("one page is free").kind(), StorageFull);
    file.sync().expect("synced");
    file.write_at(&pages(1, 3), 3 * PAGE).expect("one page is free again");
    assert_eq!((byte(&*file, 0), byte(&*file, 1), byte(&*file, 3)), (2, 1, 3));
}

#[test]
fn each_name_has_its_own_fate() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = FaultDisk::new(seed);
        disk.set_names_apart(true);
        create(&disk, "old", 1).expect("made");
        Disk::sync(&disk).expect("synced");
        create(&disk, "new", 1).expect("made");
        Disk::remove(&disk, "old").expect("removed");
        let left = disk.after_cut();
        seen.insert(Disk::list(&left).expect("listed").into_iter().map(|(name, _)| name).collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn calls_fail_by_their_number_as_they_can() {
    let disk = FaultDisk::new(1);
    disk.set_allocation(Allocation::Reserve);
    let kind = |error: io::Error| error.raw_os_error();
    disk.fail_call(Fault::NoSpace, 2, 1);
    let file = create(&disk, "a", 1).expect("the first");
    Disk::open(&disk, "a", Access::Buffered).expect("takes no space");
    file.write_at(&pages(1, 1), 0).expect("the second");
    assert_eq!(file.sync().map_err(kind), Err(Some(28)));
    assert!(!disk.is_call_to_fail());
    file.sync().expect("only the third");
    disk.set_out_of_descriptors(true);
    assert_eq!(Disk::open(&disk, "a", Access::Log).err().map(kind), Some(Some(24)));
    file.write_at(&pages(1, 1), 0).expect("it is open");
    disk.set_read_only(true);
    assert_eq!(file.write_at(&pages(1, 2), 0).map_err(kind), Err(Some(30)));
    disk.heal();
    disk.remove_folder();
    assert_eq!(Disk::sync(&disk).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
    assert_eq!(byte(&*file, 0), 1, "what is open can be read");
    disk.make_folder();
    assert!(Disk::list(&disk).expect("listed").is_empty());
}
