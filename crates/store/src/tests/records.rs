//! Cut and invalid records: their errors name the field and its offset.

use std::path::Path;

use crate::append::held::{Held, HeldHead};
use crate::append::sequence::SequenceTracker;
use crate::append::sequence::saved::SavedSequence;
use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError};
use crate::catalog::group::{Group, GroupRecord, Groups};
use crate::catalog::{self, ShapeHistory, definition};
use crate::disk::PAGE_BYTES;
use crate::inspect::{Depth, inspect};
use crate::log::checkpoint::{self, HEADER_BYTES, Position, SealedRows};
use crate::log::record::{Record, Records};
use crate::log::superblock::{Superblock, SuperblockState};
use crate::log::{UNIT_HEADER_BYTES, UnitHeader};
use crate::model::array::{ArrayType, ElementType};
use crate::model::row::Shapes;
use crate::repair::repair;
use crate::segment::directory::{BlockRef, Segment};
use crate::tests::kit::*;
use crate::*;

/// A stream with every field that a definition can have, and its history.
fn defined() -> (Stream, ShapeHistory) {
    let array = ChannelType::Array(ArrayType::fixed(ElementType::F32, 4).expect("a type"));
    let channels = [
        ChannelSpec { unit: "bar".into(), description: "a pressure".into(), ..ChannelSpec::new("p", ChannelType::F64) },
        ChannelSpec { reduction: Reduction::Deadband { bound: 0.5 }, ..ChannelSpec::new("t", ChannelType::F32) },
        ChannelSpec::new("a", array),
    ];
    let mut spec = spec("table", channels).tag("rig", "a").tag("side", "b").modulus(Some(1 << 16));
    spec.expected_period_ns = Some(1_000);
    let empty = Stream {
        id: StreamId(3),
        key: spec.key.clone(),
        source: spec.source.clone(),
        clock: spec.clock,
        expected_period_ns: spec.expected_period_ns,
        sequence_modulus: spec.sequence_modulus,
        layout: std::sync::Arc::new(Layout { version: 0, channels: Vec::new() }),
    };
    let growth = catalog::grow(&empty, &spec, 0).expect("grown");
    let mut history = ShapeHistory { sequenced_from: Some(0), ..ShapeHistory::default() };
    catalog::extend_history(&mut history, &growth.retyped, false);
    (growth.stream.expect("a stream"), history)
}

fn position() -> Position {
    let last = BlockRef { first_row: 5, rows: 6, offset: 7, len: 8, part: Some(9), time_sorted: true, time: (1, 2) };
    let sealed = SealedRows { newest_segment: 3, last: Some(last), valued_to: vec![11, 0], ..SealedRows::default() };
    Position { stream: 3, first_row: 11, sequence: Some((1, 2)), sealed }
}

/// The entry of a segment that compaction made, in a store of a fixed size.
fn segment() -> Vec<u8> {
    let mut p = Put::default();
    p.u64(9);
    p.u8(0);
    p.u8(1 | 4);
    (0..7).for_each(|n| p.u64(n));
    p.u8(0);
    p.u64(7);
    p.u64(9);
    p.u32(2);
    p.0
}

fn sequence() -> Vec<u8> {
    let mut tracker = SequenceTracker::new(1 << 16);
    for n in [0, 3, 9, 12] {
        let judged = tracker.judge(n, n as i64, Some(n as i64));
        tracker.take(&judged, (n as i64, Some(n as i64)), n);
    }
    SavedSequence::of(3, 4, &tracker, |_| false).encode()
}

fn group() -> Vec<u8> {
    let mut groups = Groups::default();
    let run = groups.add_run("burn 7").expect("a number");
    groups.encode(run)
}

/// A held frame with a text, without its head.
fn held(t: &mut Cursor<'_>) -> Result<(), FormatError> {
    let shape = Shapes::default().get(false, vec![ChannelType::F64, ChannelType::String]);
    Held::read(HeldHead::read(t)?, shape, false, t).map(drop)
}

fn held_bytes() -> Vec<u8> {
    let shape = Shapes::default().get(false, vec![ChannelType::F64, ChannelType::String]);
    let mut p = Put::default();
    p.u32(3);
    p.u32(1);
    p.u64(17);
    let mut words = vec![0u64; shape.words()];
    let text = shape.fields.iter().find(|field| !field.kind.is_scalar()).expect("a text");
    words[text.word as usize] |= 5 << text.shift;
    words.into_iter().for_each(|word| p.u64(word));
    p.0.extend_from_slice(b"hello");
    p.0
}

type Read = fn(&mut Cursor<'_>) -> Result<(), FormatError>;

/// Every kind of record: its name, its bytes, what reads it, and the bytes at its end that may be missing.
fn records() -> Vec<(&'static str, Vec<u8>, Read, usize)> {
    let (stream, history) = defined();
    let mut footer = Vec::new();
    definition::encode(&stream, &mut footer);
    let all: Vec<u16> = (0..stream.layout.channels.len() as u16).collect();
    vec![
        ("stream", catalog::encode_stream(&stream, &history, Group::DATA), |t| catalog::decode_stream(t).map(drop), 0),
        (
            "channels",
            catalog::encode_channels(&stream, &history, &all, 0),
            |t| catalog::decode_channels(t).map(drop),
            0,
        ),
        ("definition in a footer", footer, |t| definition::read(t).map(drop), 0),
        ("position", position().encode(), |t| Position::decode(t).map(drop), 0),
        ("segment", segment(), |t| Segment::decode(t).map(drop), 4),
        ("expired segment", 7u64.to_le_bytes().into(), |t| checkpoint::read_expired(t).map(drop), 0),
        ("group", group(), |t| GroupRecord::decode(t).map(drop), 0),
        ("sequence", sequence(), |t| SavedSequence::decode(t).map(drop), 0),
        ("held frame", held_bytes(), held, 0),
        (
            "superblock",
            Superblock::default().encode(),
            |t| match Superblock::decode(t.rest()) {
                SuperblockState::Damaged(error) => Err(error),
                _ => Ok(()),
            },
            0,
        ),
    ]
}

/// Returns the field that an error names, and its offset.
fn field_of(error: &FormatError) -> Option<(&'static str, u64)> {
    match *error {
        FormatError::Truncated { what, offset, .. }
        | FormatError::Unknown { what, offset, .. }
        | FormatError::Invalid { what, offset, .. }
        | FormatError::Limit { what, offset: Some(offset), .. } => Some((what, offset)),
        _ => None,
    }
}

#[test]
fn a_record_that_is_cut_names_the_field_and_its_offset() {
    for (name, bytes, read, may_miss) in records() {
        assert_eq!(read(&mut Cursor::new(&bytes)), Ok(()), "{name}");
        for cut in 0..bytes.len() {
            match read(&mut Cursor::new(&bytes[..cut])) {
                Ok(()) => assert!(cut + may_miss >= bytes.len(), "{name}, cut at {cut}"),
                Err(error) => {
                    let (field, offset) = field_of(&error).unwrap_or_else(|| panic!("{name}, cut at {cut}: {error}"));
                    assert!(!field.is_empty() && offset <= cut as u64, "{name}, cut at {cut}: {error}");
                    let text = error.to_string();
                    assert!(text.starts_with(&format!("{field} at offset {offset}: ")), "{name}: {text}");
                    // In a file, offsets count from its beginning.
                    let within = read(&mut Cursor::at(1 << 40, &bytes[..cut])).expect_err("cut");
                    let moved = field_of(&within).map(|(field, offset)| (field, offset & !(1 << 40)));
                    assert_eq!(moved, Some((field, offset)), "{name}, cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn a_code_that_is_not_known_names_its_field() {
    let mut named = std::collections::BTreeMap::<&str, std::collections::BTreeSet<&str>>::new();
    for (name, bytes, read, _) in records() {
        for at in 0..bytes.len() {
            for code in [0x7e_u8, 0xfe, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = code;
                let read = read(&mut Cursor::new(&bad));
                if let Err(FormatError::Unknown { what, offset, found }) = read
                    && offset == at as u64
                {
                    assert_eq!(found, u64::from(code), "{name}: {what}");
                    named.entry(name).or_default().insert(what);
                }
            }
        }
    }
    let of = |name: &str| named.get(name).into_iter().flatten().copied().collect::<Vec<_>>();
    let definition = ["channel type", "clock", "interpolation and reduction"];
    assert!(definition.iter().all(|field| of("definition in a footer").contains(field)), "{named:?}");
    let optional = ["expected period", "sequence modulus"];
    for name in ["stream", "channels"] {
        assert!(definition.iter().chain(&optional).all(|field| of(name).contains(field)), "{named:?}");
    }
    assert!(of("channels").contains(&"channel type of a change"), "{named:?}");
    assert_eq!(of("group"), ["kind of a group"]);
}

#[test]
fn a_value_that_cannot_be_names_its_field() {
    let invalid = |bytes: &[u8], read: Read| field_of(&read(&mut Cursor::new(bytes)).expect_err("invalid"));
    let mut bytes = position().encode();
    bytes[4..12].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(invalid(&bytes, |t| Position::decode(t).map(drop)), Some(("first row not in a segment", 4)));
    let mut bytes = sequence();
    bytes[12] = 3;
    assert_eq!(invalid(&bytes, |t| SavedSequence::decode(t).map(drop)), Some(("number of sessions", 12)));
    let mut bytes = segment();
    bytes[67] = 200;
    assert_eq!(invalid(&bytes, |t| Segment::decode(t).map(drop)), Some(("first number replaced", 67)));
    let mut bytes = group();
    let at = bytes.len() - 1;
    bytes[at] = 0xff;
    assert_eq!(invalid(&bytes, |t| GroupRecord::decode(t).map(drop)), Some(("name of a group", 6)));
    let (stream, history) = defined();
    let bytes = catalog::encode_stream(&stream, &history, Group::DATA);
    let bound = bytes.windows(8).position(|bytes| bytes == 0.5f64.to_le_bytes()).expect("a bound");
    let mut bytes = bytes.clone();
    bytes[bound..bound + 8].copy_from_slice(&f64::NAN.to_le_bytes());
    assert_eq!(invalid(&bytes, |t| catalog::decode_stream(t).map(drop)), Some(("bound", bound as u64)));
}

/// Returns the offset of the clock in the record of a stream.
fn clock_of(mut t: Cursor<'_>) -> Result<u64, FormatError> {
    t.u32("stream")?;
    t.short_text("table")?;
    for _ in 0..2 * t.u16("tags")? {
        t.short_text("tag")?;
    }
    t.u32("serial")?;
    t.short_text("source")?;
    Ok(t.offset())
}

/// A store of one stream, which its log defines, or with `closed` its checkpoint.
fn made(closed: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), sized(1 << 20, 1 << 20));
    store.stream(&counting("t"));
    store.commit(T0).expect("committed");
    if closed {
        store.close(T0).expect("closed");
    }
    folder
}

fn opening(folder: &Path) -> String {
    Store::open(folder, sized(1 << 20, 1 << 20), T0).err().expect("refused").to_string()
}

#[test]
fn a_log_with_an_invalid_record_says_which_field_is_wrong() {
    let folder = made(false);
    let path = folder.path().join("log");
    let mut log = std::fs::read(&path).expect("reads");
    let mut expected = None;
    for begin in (0..log.len()).step_by(PAGE_BYTES) {
        let Some(header) = UnitHeader::decode(&log[begin..]) else { continue };
        let end = begin + UNIT_HEADER_BYTES + header.len as usize;
        let mut records = Records::new(&log[begin + UNIT_HEADER_BYTES..end]);
        let record = records.offset();
        let Some(Record::Control { kind: 1, content }) = records.next_record() else { continue };
        let clock = clock_of(content).expect("a stream");
        log[begin + clock as usize] = 7;
        let crc = crc32c::crc32c(&log[begin + UNIT_HEADER_BYTES..end]);
        log[begin..begin + UNIT_HEADER_BYTES].copy_from_slice(&UnitHeader { crc, ..header }.encode());
        expected = Some(format!(
            "a record of the unit at offset {begin} does not fit what came before: within the unit, record at offset \
             {record}: clock at offset {clock}: 0x7 is not known to this program"
        ));
        break;
    }
    std::fs::write(&path, &log).expect("written");
    let (expected, refused) = (expected.expect("a record of a stream"), opening(folder.path()));
    assert!(refused.contains(&expected), "{refused}");
}

/// Changes the clock of the first stream in the checkpoint, with checksums and chains that fit. Returns the name of the
/// file, the offset of the entry, and that of the clock.
fn forge_checkpoint(folder: &Path) -> (&'static str, u64, u64) {
    let path = folder.join("superblock");
    let mut pages = std::fs::read(&path).expect("reads");
    let copies = pages.chunks(PAGE_BYTES).map(Superblock::decode).enumerate();
    let copies = copies.filter_map(|(copy, state)| match state {
        SuperblockState::Valid(superblock) => Some((superblock.generation, copy, superblock)),
        _ => None,
    });
    let (_, copy, mut superblock) = copies.max_by_key(|(generation, ..)| *generation).expect("a valid copy");
    let name = crate::disk::names::CHECKPOINTS[superblock.checkpoint_file as usize - 1];
    let mut file = std::fs::read(folder.join(name)).expect("reads");
    let (mut at, mut chain, mut found) = (0, 0u64, None);
    while (at as u64) < superblock.checkpoint_bytes {
        let len = u64::from_le_bytes(file[at + 8..at + 16].try_into().expect("8 bytes")) as usize;
        let body = at + HEADER_BYTES..at + HEADER_BYTES + len;
        let mut t = Cursor::at(body.start as u64, &file[body.clone()]);
        while t.remaining() > 0 && found.is_none() {
            let entry = t.offset();
            let (kind, bytes) = (t.u8("kind").expect("a kind"), t.u32("length").expect("a length"));
            let content = t.part(bytes as usize, "entry").expect("an entry");
            if kind == checkpoint::STREAM {
                found = Some((name, entry, clock_of(content).expect("a stream")));
            }
        }
        if let Some((_, _, clock)) = found {
            file[clock as usize] = 7;
        }
        file[at + 16..at + 24].copy_from_slice(&chain.to_le_bytes());
        let crc = crc32c::crc32c(&file[body.clone()]);
        file[at + 24..at + 28].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(&file[at..at + 28]);
        file[at + 28..at + 32].copy_from_slice(&crc.to_le_bytes());
        chain = checkpoint::fnv(&file[at..at + HEADER_BYTES]);
        at = body.end.next_multiple_of(PAGE_BYTES);
    }
    superblock.checkpoint_chain = chain;
    let page = superblock.encode();
    pages[copy * PAGE_BYTES..][..page.len()].copy_from_slice(&page);
    std::fs::write(&path, &pages).expect("written");
    std::fs::write(folder.join(name), &file).expect("written");
    found.expect("a stream")
}

#[test]
fn a_checkpoint_with_an_invalid_entry_says_which_field_is_wrong() {
    let folder = made(true);
    let (name, entry, clock) = forge_checkpoint(folder.path());
    let field = format!("clock at offset {clock}: 0x7 is not known to this program");
    let expected = format!("stream entry at offset {entry}: {field}");
    let refused = opening(folder.path());
    assert!(refused.contains(&format!("{name}: the part at offset ")) && refused.contains(&expected), "{refused}");
    let found = inspect(folder.path(), Depth::Everything).expect("inspected");
    let is_told = |damage: &&model::damage::Damage| damage.file == name && damage.reason.contains(&expected);
    assert_eq!(found.damage.iter().filter(is_told).count(), 1, "{:?}", found.damage);
    let into = tempfile::tempdir().expect("a folder");
    let report = repair(folder.path(), into.path(), T0).expect("repaired");
    let expected = format!("the stream entry is left out: {field}");
    let told: Vec<_> = report.damage.iter().filter(|damage| damage.reason == expected).collect();
    assert!(matches!(told[..], [damage] if damage.file == name && damage.offset == entry + 5), "{:?}", report.damage);
}

#[test]
fn a_damaged_checkpoint_says_why_each_part_is_refused() {
    let folder = made(true);
    let name = ["checkpoint.a", "checkpoint.b"].into_iter().find(|name| folder.path().join(name).exists());
    let path = folder.path().join(name.expect("a checkpoint"));
    let whole = std::fs::read(&path).expect("reads");
    for (at, why) in [
        (0, "part of a checkpoint: starts with 0x50434212, expected 0x50434253"),
        (8, "header of a part: checksum 0x"),
        (40, "entries: checksum 0x"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).expect("written");
        let refused = opening(folder.path());
        assert!(refused.contains(&format!("the part at offset 0 does not fit: {why}")), "{refused}");
        let found = inspect(folder.path(), Depth::Footers).expect("inspected");
        let reason = format!("this part is damaged or does not follow the one before: {why}");
        assert!(found.damage.iter().any(|damage| damage.reason.starts_with(&reason)), "{:?}", found.damage);
    }
}

#[test]
fn a_damaged_superblock_says_what_is_wrong_with_each_copy() {
    let folder = made(true);
    let path = folder.path().join("superblock");
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[3] ^= 1;
    bytes[PAGE_BYTES + 30] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let refused = opening(folder.path());
    let (magic, crc) = ("magic at offset 0: it is not that of a superblock", "superblock: checksum 0x");
    assert!(refused.contains(&format!("offset 0: {magic}; offset 4096: {crc}")), "{refused}");
    let found = inspect(folder.path(), Depth::Footers).expect("inspected");
    for reason in [magic, crc] {
        let reason = format!("neither valid nor empty: {reason}");
        assert!(found.damage.iter().any(|damage| damage.reason.starts_with(&reason)), "{:?}", found.damage);
    }
}
