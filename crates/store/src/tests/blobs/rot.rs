//! Bits that flip, and bytes that are forged.

use super::*;
use crate::blob::{CHUNK_HEADER_BYTES, ChunkHeader, Whole};
use crate::model::damage::Damage;

/// A closed store with two blobs, and their references.
fn two_blobs(disk: &FaultDisk) -> (StreamId, [BlobRef; 2]) {
    let store = open(disk, options());
    let s = stream(&store, "t");
    let references = [0, 1].map(|n| add(&store, s, n, &content(n, 300_000), T0));
    store.upkeep(T0);
    store.close(T0).expect("closed");
    (s, references)
}

#[test]
fn a_flipped_bit_is_told_wherever_it_is() {
    let disk = FaultDisk::new(7);
    let (s, [first, second]) = two_blobs(&disk);
    assert!(verified(&disk).is_sound());
    let file = file_name(first.segment());
    let mut places: Vec<usize> = vec![0, 5, 9, 30, 45, 60, 80, 4_000];
    let mut random = Rng::with_seed(7);
    for chunk in 0..3 {
        let at = first.offset() as usize + chunk * BLOB_CHUNK_BYTES;
        places.extend((0..CHUNK_HEADER_BYTES).map(|byte| at + byte));
        let len = if chunk == 2 { 300_000 - 2 * CHUNK_BODY_BYTES } else { CHUNK_BODY_BYTES };
        places.extend([0, len - 1, random.usize(..len)].map(|byte| at + CHUNK_HEADER_BYTES + byte));
    }
    for at in places {
        let bit = 1 << random.u8(0..8);
        disk.rot(&file, at, bit);
        let found = verified(&disk);
        let told = |damage: &Damage| {
            damage.file == file && damage.offset <= at as u64 && damage.offset + (BLOB_CHUNK_BYTES as u64) > at as u64
        };
        assert!(found.damage.iter().any(told), "offset {at}: {:?}", found.damage);
        if at >= PAGE_BYTES {
            let store = open(&disk, options());
            let error = read(&store, s, &first).expect_err("damaged");
            let ScanError::Damaged { file: of, offset, .. } = &error else { panic!("offset {at}: {error}") };
            assert!(of.ends_with(&file) && *offset <= at as u64 && at as u64 - *offset < BLOB_CHUNK_BYTES as u64);
            let mut reader = store.view().blob(s, &first).expect("it begins");
            let error = std::io::copy(&mut reader, &mut std::io::sink()).expect_err("damaged");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
            assert_eq!(read(&store, s, &second).expect("the other one"), content(1, 300_000), "offset {at}");
            store.close(T0).expect("closed");
        }
        disk.rot(&file, at, bit);
    }
    // The whole is checked too: one that takes chunks as they are gives other bytes.
    disk.rot(&file, first.offset() as usize + 5_000, 1);
    mutant::activate(Some(Mutant::NoBlobCheck));
    let store = open(&disk, options());
    let taken = read(&store, s, &first);
    mutant::activate(None);
    assert!(taken.is_ok_and(|bytes| bytes != content(0, 300_000)));
}

#[test]
fn a_damaged_segment_that_is_open_loses_no_other_blob() {
    let disk = FaultDisk::new(8);
    let store = open(&disk, options());
    let s = stream(&store, "t");
    let references = [0, 1, 2].map(|n| add(&store, s, n, &content(n, 200_000), T0));
    store.commit(T0).expect("committed");
    drop(store);
    // No checkpoint counts them: the header of the second one's first chunk would end the segment.
    disk.rot(&file_name(references[1].segment()), references[1].offset() as usize + 4, 1);
    let store = open(&disk, options());
    assert!(matches!(read(&store, s, &references[1]), Err(ScanError::Damaged { .. })));
    let next = add(&store, s, 3, &content(3, 200_000), T0);
    assert_ne!(next.segment(), references[0].segment(), "nothing is written behind what is damaged");
    for (n, reference) in [(0, references[0]), (2, references[2]), (3, next)] {
        assert_eq!(read(&store, s, &reference).expect("reads"), content(n, 200_000), "{n}");
    }
    store.upkeep(T0);
    store.close(T0).expect("closed");
    let damage = verified(&disk).damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(
        (damage[0].file.as_str(), damage[0].offset),
        (file_name(references[1].segment()).as_str(), references[1].offset())
    );
}

#[test]
fn forged_references_and_chunks_give_errors() {
    let disk = FaultDisk::new(9);
    let (s, [first, second]) = two_blobs(&disk);
    let store = open(&disk, options());
    let rows = store.segments().iter().find(|segment| !segment.blobs).expect("rows").id;
    let of =
        |segment: u64, page: u64, length: u32, crc: u32| BlobRef::new(segment, page * PAGE_BYTES as u64, length, crc);
    let (id, page) = (first.segment(), first.offset() / PAGE_BYTES as u64);
    let pages = second.offset() / PAGE_BYTES as u64;
    let forged = [
        of(id, page, u32::MAX, first.crc()),
        of(id, 65_535, u32::MAX, 0),
        of(id, 65_535, 0, 0),
        of(id, 0, 100, 0),
        of(id, page, 300_001, first.crc()),
        of(id, page, 299_999, first.crc()),
        of(id, page, 300_000, first.crc() ^ 1),
        of(id, page, 300_000, second.crc()),
        of(id, page + 32, 300_000, first.crc()),
        of(id, page + 1, 10, 0),
        of(id, pages, 300_000, first.crc()),
        of(id, page, 2 * CHUNK_BODY_BYTES as u32, first.crc()),
        of(id, page, 600_000, first.crc()),
    ];
    for reference in forged {
        assert!(matches!(read(&store, s, &reference), Err(ScanError::Damaged { .. })), "{reference:?}");
    }
    for gone in [of(rows, 1, 100, 0), of(1 << 47, 1, 100, 0), of(0, 0, 0, 0), BlobRef::default()] {
        let error = read(&store, s, &gone).expect_err("expired");
        assert!(matches!(error, ScanError::BlobExpired { .. }), "{error}");
        assert!(error.to_string().contains("expired"));
    }
    // Of another stream's group, or none.
    assert!(matches!(read(&store, StreamId(99), &first), Err(ScanError::BlobExpired { .. })));
    // A frame of an importer that made them up is stored, and read with an error.
    assert!(matches!(frame(&store, s, 9, Some(forged[0]), T0), Outcome::Stored { .. }));
    assert_eq!(frames(&store, s).last(), Some(&(9, Some(forged[0]))));
    store.close(T0).expect("closed");
    assert_eq!(verified(&disk).damage.len(), 1);
    // Headers whose checksums fit and that say anything else.
    let (file, content_before) = (file_name(id), disk.content(&file_name(id)).expect("a segment"));
    let at = first.offset() as usize;
    let header = ChunkHeader::read(&content_before[at..]).expect("a chunk");
    let whole = |length_bytes| Some(Whole { stored: T0, length_bytes, crc: first.crc() });
    let lies = [
        ChunkHeader { index: 1, ..header },
        ChunkHeader { start: header.start + 4096, ..header },
        ChunkHeader { start: u32::MAX - 4095, ..header },
        ChunkHeader { index: u32::MAX, ..header },
        ChunkHeader { segment: 99, ..header },
        ChunkHeader { generation: 99, ..header },
        ChunkHeader { length_bytes: 100, whole: whole(100), ..header },
        ChunkHeader { length_bytes: 0, ..header },
        ChunkHeader { length_bytes: u32::MAX, ..header },
        ChunkHeader { whole: whole(CHUNK_BODY_BYTES as u32), ..header },
        ChunkHeader { body_crc: 1, ..header },
    ];
    for lie in lies {
        let bytes = lie.bytes();
        for (n, byte) in bytes.iter().enumerate() {
            disk.rot(&file, at + n, content_before[at + n] ^ byte);
        }
        let store = open(&disk, options());
        assert!(matches!(read(&store, s, &first), Err(ScanError::Damaged { .. })), "{lie:?}");
        assert_eq!(read(&store, s, &second).expect("the other one"), content(1, 300_000));
        store.close(T0).expect("closed");
        assert!(verified(&disk).damage.len() > 1, "{lie:?}");
        for (n, byte) in bytes.iter().enumerate() {
            disk.rot(&file, at + n, content_before[at + n] ^ byte);
        }
    }
}
