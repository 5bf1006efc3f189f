use std::os::unix::fs::FileExt;
use std::path::Path;

use strongback_store::inspect::{Damage, Depth, inspect};
use strongback_store::*;

use crate::kit::*;

const START: i64 = 1_763_600_000_000_000_000;

fn golden() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1.segment")).unwrap()
}

/// A store that was opened and closed, so that it has a superblock and a log.
fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Store::open(folder.path(), options, START).unwrap();
    store.commit(START).unwrap();
    store.close(START).unwrap();
    folder
}

fn is_unlisted(damage: &Damage) -> bool {
    damage.reason.starts_with("no checkpoint lists this segment")
}

#[test]
fn a_sound_store_is_said_to_be_sound_with_its_sizes() {
    let folder = store();
    std::fs::write(folder.path().join("segment-000000000007.sbs"), golden()).unwrap();
    for depth in [Depth::Footers, Depth::Everything] {
        let found = inspect(folder.path(), depth).unwrap();
        // A file that no checkpoint lists is read, and named.
        assert!(matches!(&found.damage[..], [only] if is_unlisted(only)), "{:?}", found.damage);
        assert!(found.log.commits > 0 && found.log.used_bytes > 0);
        let segment = found.segments.iter().find(|s| s.id == 7).unwrap();
        assert_eq!((segment.sealed, segment.blocks, segment.rows), (true, 6, 2_279));
        let wide = &found.streams[&StreamId(1)];
        assert_eq!((wide.name.as_str(), wide.channels, wide.rows), ("golden.wide{acu=1,ort=Süd}", 17, 1_100));
        assert_eq!(wide.points.is_some(), depth == Depth::Everything);
        assert_eq!(found.streams[&StreamId(2)].row_range, (77, 117));
        let bytes: u64 = found.streams.values().map(|s| s.block_bytes).sum();
        assert!(found.block_bytes().abs_diff(bytes) < 8, "every byte belongs to a stream");
        let text = found.to_string();
        for part in ["golden.small{acu=3,ort=Süd}", "format   1\n", "no checkpoint lists this segment", "sealed"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let found = inspect(folder.path(), Depth::Everything).unwrap();
    assert_eq!(found.verified_blocks, 6);
    // 17 channels of 1,100 rows less the cells without a value of one, and three times 20 rows of two to three.
    let lost = (0..1_100).filter(|i| i % 50 >= 40 && i % 4 != 0).count() as u64;
    assert_eq!(found.streams[&StreamId(1)].points, Some(17 * 1_100 - lost));
    assert_eq!(found.streams[&StreamId(3)].points, Some(20 + 14 + 20));
}

#[test]
fn the_spare_is_listed_and_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { log_bytes: 1 << 20, segment_bytes: 128 << 10, ..StoreOptions::default() };
    let store = Store::open(folder.path(), options, START).unwrap();
    assert_eq!(inspect(folder.path(), Depth::Footers).unwrap().spare, None);
    while store.maintain(START).unwrap() {}
    let disk_bytes = store.stats().disk_bytes;
    store.close(START).unwrap();
    let found = inspect(folder.path(), Depth::Everything).unwrap();
    let spare = found.spare.as_ref().unwrap();
    assert_eq!((spare.file.as_str(), spare.file_bytes), ("segment-000000000001.sbs", 128 << 10));
    assert_eq!((found.damage.len(), found.segments.len()), (0, 0));
    assert!(found.to_string().contains("spare    segment-000000000001.sbs, 128.0 KiB allocated for the next segment"));
    assert!(disk_bytes > (1 << 20) + (128 << 10), "it counts: {disk_bytes}");
    // One that something was written to is no spare, whatever its number.
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(&spare.file)).unwrap();
    file.write_all_at(b"x", 17).unwrap();
    let found = inspect(folder.path(), Depth::Footers).unwrap();
    assert!(found.spare.is_none() && !found.is_sound());
}

#[test]
fn every_damaged_page_is_named_by_file_and_offset() {
    let (folder, image) = (store(), golden());
    let path = folder.path().join("segment-000000000007.sbs");
    let used = |at: usize| {
        // Padding is under no checksum of a group, but of no consequence either.
        image[at..].iter().take(4_096).any(|byte| *byte != 0)
    };
    for at in (0..image.len()).step_by(1_021).filter(|at| used(*at)) {
        let mut bad = image.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let found = inspect(folder.path(), Depth::Everything).unwrap();
        if found.is_sound() {
            let same = inspect(folder.path(), Depth::Everything).unwrap();
            assert_eq!(same.streams[&StreamId(1)].rows, 1_100, "only padding may change unseen: offset {at}");
            assert_eq!(image[at], 0, "offset {at}");
            continue;
        }
        let damage = &found.damage[0];
        assert_eq!(damage.file, "segment-000000000007.sbs");
        assert!(damage.offset as usize <= at, "offset {at}: {damage:?}");
        assert!(found.to_string().contains("DAMAGE"), "offset {at}");
    }
    std::fs::write(&path, &image[..image.len() - 8_192]).unwrap();
    let found = inspect(folder.path(), Depth::Everything).unwrap();
    assert!(!found.segments.iter().any(|s| s.id == 7 && s.sealed), "cut before its footer it counts as open");
    assert_eq!(found.streams[&StreamId(1)].rows, 1_100);
}

#[test]
fn a_torn_tail_of_an_open_segment_is_no_damage_and_a_hole_is() {
    let (folder, image) = (store(), golden());
    let path = folder.path().join("segment-000000000007.sbs");
    let trailer = segment::read_trailer(&image[image.len() - 4_096..]).unwrap();
    let mut open = image[..trailer.footer_offset as usize].to_vec();
    let mut last = 4_096;
    for _ in 0..3 {
        last += segment::GroupHeader::read(&open[last..]).unwrap().padded_bytes();
    }
    open[last + 300] ^= 1;
    std::fs::write(&path, &open).unwrap();
    let found = inspect(folder.path(), Depth::Everything).unwrap();
    assert!(found.damage.iter().all(is_unlisted), "{:?}", found.damage);
    assert_eq!(found.streams[&StreamId(1)].rows, 1_100);
    assert!(found.streams.contains_key(&StreamId(2)) && !found.streams.contains_key(&StreamId(5)));

    let mut holed = image[..trailer.footer_offset as usize].to_vec();
    holed[4_096 + 8] ^= 1;
    std::fs::write(&path, &holed).unwrap();
    let found = inspect(folder.path(), Depth::Everything).unwrap();
    let holes: Vec<u64> =
        found.damage.iter().filter(|damage| !is_unlisted(damage)).map(|damage| damage.offset).collect();
    assert_eq!(holes, [4_096], "{:?}", found.damage);
    assert!(found.streams.contains_key(&StreamId(2)), "what lies behind the hole is found");
}

#[test]
fn what_the_engine_wrote_is_sound_to_the_last_value() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Store::open(folder.path(), options, START).unwrap();
    let channels = ["p", "t"].map(|name| ChannelSpec::new(name, ChannelType::F32));
    let spec = spec("bay", channels).tag("n", 1).modulus(Some(1 << 32));
    let (stream, indices) = store.resolve(&spec, START).unwrap();
    let mut batch = FrameBatch::new();
    for frame in 0..5_000i64 {
        let now = START + frame * 1_000_000;
        batch.clear();
        batch.begin(head(stream.id, now).sampled(Some(now - 500)).numbered(Some(frame as u64)));
        batch.push(indices[0], Value::F32((frame % 90) as f32 * 0.25));
        if frame % 3 == 0 {
            batch.push(indices[1], Value::F32(frame as f32));
        }
        batch.end();
        store.append(&batch, now);
        if frame % 100 == 99 {
            store.commit(now).unwrap();
            while store.maintain(now).unwrap() {}
        }
    }
    store.close(START + 5_000_000_000).unwrap();
    for depth in [Depth::Footers, Depth::Everything] {
        let found = inspect(folder.path(), depth).unwrap();
        assert_eq!(found.damage, []);
        let usage = &found.streams[&stream.id];
        assert_eq!((usage.name.as_str(), usage.rows, usage.row_range), ("bay{n=1}", 5_000, (0, 5_000)));
        if depth == Depth::Everything {
            assert_eq!(usage.points, Some(5_000 + 1_667));
        }
    }
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    // Which of the two counts is the engine's affair: damage both.
    let checkpoints: Vec<&str> =
        names.iter().filter_map(|n| n.to_str()).filter(|n| n.starts_with("checkpoint.")).collect();
    for name in &checkpoints {
        let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(name)).unwrap();
        file.write_all_at(&[0xff], 40).unwrap();
    }
    let found = inspect(folder.path(), Depth::Footers).unwrap();
    let named = |d: &strongback_store::inspect::Damage| checkpoints.contains(&d.file.as_str()) && d.offset == 0;
    assert!(found.damage.iter().any(named), "{:?}", found.damage);
}

#[test]
fn streams_of_an_open_segment_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Store::open(folder.path(), options, START).unwrap();
    let (stream, indices) =
        store.resolve(&spec("bay", [ChannelSpec::new("p", ChannelType::F32)]).tag("n", 1), START).unwrap();
    let mut batch = FrameBatch::new();
    // More than the log holds, so that some of it is in a segment.
    for frame in 0..40_000i64 {
        let now = START + frame * 1_000_000;
        batch.clear();
        batch.begin(head(stream.id, now));
        batch.push(indices[0], Value::F32(frame as f32));
        batch.end();
        store.append(&batch, now);
        if frame % 100 == 99 {
            store.commit(now).unwrap();
            while store.maintain(now).unwrap() {}
        }
    }
    for depth in [Depth::Footers, Depth::Everything] {
        let found = inspect(folder.path(), depth).unwrap();
        assert!(found.segments.iter().any(|segment| !segment.sealed && segment.rows > 0), "{found}");
        assert_eq!(found.streams[&stream.id].name, "bay{n=1}");
    }
    store.close(START + 40_000_000_000).unwrap();
}

#[test]
fn superblock_and_log_are_looked_at() {
    let folder = store();
    let file = |name: &str| std::fs::OpenOptions::new().read(true).write(true).open(folder.path().join(name)).unwrap();
    let flip = |name: &str, at: u64| {
        let mut byte = [0];
        file(name).read_exact_at(&mut byte, at).unwrap();
        file(name).write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    let sound = inspect(folder.path(), Depth::Footers).unwrap();
    assert!(sound.is_sound() && sound.log.clean, "{:?}", sound.damage);
    flip("superblock", 20);
    let found = inspect(folder.path(), Depth::Footers).unwrap();
    assert_eq!((found.damage[0].file.as_str(), found.damage[0].offset), ("superblock", 0));
    assert_eq!(found.identity.unwrap().valid_copies, 1);
    flip("superblock", 4_096 + 20);
    let found = inspect(folder.path(), Depth::Footers).unwrap();
    assert!(found.identity.is_none() && found.damage.len() == 3);
    let missing = inspect(&folder.path().join("nowhere"), Depth::Footers);
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let empty = tempfile::tempdir().unwrap();
    assert!(inspect(empty.path(), Depth::Footers).unwrap_err().to_string().contains("not a store"));
}
