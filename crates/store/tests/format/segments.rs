use std::sync::Arc;

use proptest::prelude::*;
use strongback_store::block;
use strongback_store::block::mixed::{self, MixedBlock, MixedPart};
use strongback_store::codec::Effort;
use strongback_store::model::limits::{GROUP_BYTES_MAX, PAGE_BYTES};
use strongback_store::segment::{self, Builder, GroupHeader, SegmentHeader};
use strongback_store::*;

use crate::blocks::{encode, meta};
use crate::series::{all, batches, said};

pub(crate) fn header() -> SegmentHeader {
    SegmentHeader {
        origin: 42,
        id: 7,
        generation: 3,
        size_bytes: 4 << 20,
        created: 1_700_000_000_000_000_000,
        group: "default".into(),
        blobs: false,
    }
}

pub(crate) fn stream(id: u32, layout: &Layout) -> Arc<Stream> {
    Arc::new(Stream {
        id: StreamId(id),
        key: StreamKey::new("avionics.größen", [("acu".into(), id.to_string()), ("bay".into(), "ü".into())]),
        source: "avionics".into(),
        clock: Clock::Source,
        expected_period_ns: (id != 1).then_some(i64::from(id) * 1_000_000),
        sequence_modulus: (id == 1).then_some(1 << 32),
        layout: Arc::new(layout.clone()),
    })
}

/// Writes groups, footer and trailer where they say they go.
pub(crate) fn write(builder: &mut Builder, image: &mut Vec<u8>, group: &mut usize) {
    while let Some(taken) = builder.take_group() {
        assert_eq!(taken.offset as usize, image.len());
        assert!(taken.bytes.len() <= GROUP_BYTES_MAX || taken.blocks == 1);
        image.extend_from_slice(&taken.bytes);
        *group += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn mixed_blocks_keep_every_row(given in proptest::collection::vec(batches(), 1..5)) {
        let parts: Vec<MixedPart<'_>> = given
            .iter()
            .map(|(layout, batch)| MixedPart { batch, layout_version: layout.version, overlaps_previous: true, gap_before: false })
            .collect();
        let mut out = Vec::new();
        let header = mixed::encode(&meta(Effort::Seal), &parts, &mut out).unwrap();
        prop_assert_eq!(&block::read_header(&out).unwrap(), &header);
        let mixed = MixedBlock::read(&out).unwrap();
        prop_assert_eq!(mixed.parts().len(), given.len());
        for (index, (layout, batch)) in given.iter().enumerate() {
            prop_assert_eq!(said(&mixed.decode(index, layout, &all(layout)).unwrap()), said(batch));
            let times = batch.times();
            let part = &mixed.parts()[index].header;
            prop_assert_eq!(part.time, (*times.iter().min().unwrap(), *times.iter().max().unwrap()));
            prop_assert_eq!((part.first_row, part.rows, part.overlaps_previous), (batch.rows[0], batch.len(), true));
        }
    }

    #[test]
    fn damaged_mixed_blocks_are_refused((layout, batch) in batches(), seed in any::<u64>()) {
        let part = MixedPart { batch: &batch, layout_version: 1, overlaps_previous: false, gap_before: true };
        let mut out = Vec::new();
        mixed::encode(&meta(Effort::Seal), &[part, part], &mut out).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..60 {
            let at = random.usize(..out.len());
            let mut bad = out.clone();
            bad[at] ^= 1 << random.u8(..8);
            prop_assert!(MixedBlock::read(&bad).is_err());
            prop_assert!(MixedBlock::read(&out[..at]).is_err());
            if at >= block::HEADER_BYTES {
                block::forge_checksums(&mut bad);
                if let Ok(mixed) = MixedBlock::read(&bad) {
                    let _ = mixed.decode(1, &layout, &all(&layout));
                }
            }
        }
    }

    #[test]
    fn segments_give_back_what_they_took(given in proptest::collection::vec(batches(), 1..12), mixed_at in 0usize..12) {
        let header = header();
        let mut builder = Builder::new(header.clone());
        let mut image = header.page().unwrap();
        let mut groups = 0;
        let mut resumable = Vec::new();
        for (index, (layout, batch)) in given.iter().enumerate() {
            let stream = stream(7, layout);
            let mut bytes = Vec::new();
            if index == mixed_at {
                let part = MixedPart { batch, layout_version: 1, overlaps_previous: false, gap_before: false };
                mixed::encode(&meta(Effort::Seal), &[part, part], &mut bytes).unwrap();
            } else {
                bytes = encode(layout, batch, Effort::Seal);
            }
            if !builder.fits_group(bytes.len()) {
                write(&mut builder, &mut image, &mut groups);
            }
            let offset = builder.push(&bytes, [&stream]).unwrap();
            resumable.push((offset as usize, bytes));
        }
        write(&mut builder, &mut image, &mut groups);
        for (offset, bytes) in &resumable {
            prop_assert_eq!(&image[*offset..*offset + bytes.len()], &bytes[..]);
        }

        // Recovery walks the same groups to the same entries, and what lies behind belongs to another generation.
        let mut again = Builder::new(SegmentHeader::read(&image).unwrap());
        let known = stream(7, &given[0].0);
        let (mut at, mut found) = (PAGE_BYTES, 0);
        let mut longer = image.clone();
        let stale = GroupHeader::read(&image[at..]).unwrap();
        longer.extend_from_slice(&image[at..at + stale.padded_bytes()]);
        while let Some(padded) = again.resume_group(&longer[at..], |_| Some(Arc::clone(&known))).unwrap() {
            at += padded;
            found += 1;
        }
        prop_assert_eq!((at, found), (image.len(), groups));
        prop_assert_eq!(again.entries(), builder.entries());

        let sealed = builder.seal().unwrap();
        prop_assert_eq!(sealed.footer_offset as usize, image.len());
        image.extend_from_slice(&sealed.footer);
        image.extend_from_slice(&sealed.trailer);
        let trailer = segment::read_trailer(&image[image.len() - PAGE_BYTES..]).unwrap();
        let footer = segment::read_footer(&image[trailer.footer_offset as usize..], &trailer).unwrap();
        prop_assert_eq!(&footer.entries[..], builder.entries());
        prop_assert_eq!(footer.entries.iter().filter(|e| e.part.is_none_or(|p| p == 0)).count(), given.len());
        let read = footer.stream(StreamId(7)).unwrap();
        prop_assert_eq!(&read.key, &known.key);
        prop_assert_eq!(read.expected_period_ns, Some(7_000_000));

        let mut random = fastrand::Rng::with_seed(image.len() as u64);
        let footer_bytes = &image[trailer.footer_offset as usize..][..trailer.footer_bytes];
        for _ in 0..100 {
            let at = random.usize(..footer_bytes.len());
            let mut bad = footer_bytes.to_vec();
            bad[at] ^= 1 << random.u8(..8);
            prop_assert!(segment::read_footer(&bad, &trailer).is_err());
            prop_assert!(segment::read_footer(&footer_bytes[..at], &trailer).is_err());
            segment::forge_footer_checksums(&mut bad);
            let _ = segment::read_footer(&bad, &trailer);
        }
    }
}

#[test]
fn pages_and_groups_refuse_damage_and_newer_versions() {
    let page = header().page().unwrap();
    assert_eq!(SegmentHeader::read(&page).unwrap(), header());
    assert_eq!(page.len(), PAGE_BYTES);
    for at in 0..page.len() {
        let mut bad = page.clone();
        bad[at] ^= 0x40;
        assert!(SegmentHeader::read(&bad).is_err(), "offset {at}");
    }
    let newer = |at: usize, value: u8| {
        let mut bytes = page.clone();
        bytes[at] = value;
        let crc = crc32c::crc32c(&bytes[..PAGE_BYTES - 4]);
        bytes[PAGE_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        SegmentHeader::read(&bytes)
    };
    assert!(matches!(newer(4, 2), Err(bytes::FormatError::Unsupported { what: "segment format version", .. })));
    assert!(matches!(newer(9, 1), Err(bytes::FormatError::Unsupported { what: "segment feature", .. })));
    assert_eq!(newer(17, 1).unwrap(), header(), "an unknown compatible feature is ignored");
    let draft = newer(7, 0x80).unwrap_err().to_string();
    assert!(draft.contains("draft of segment format version"), "{draft}");
    assert!(SegmentHeader { size_bytes: 5_000, ..header() }.page().is_err());
}

#[test]
fn a_segment_never_takes_more_than_leaves_room_for_its_footer() {
    let layout = crate::series::layout(&[ChannelType::U64]);
    let mut random = fastrand::Rng::with_seed(9);
    let header = SegmentHeader { size_bytes: 64 << 10, ..header() };
    let mut builder = Builder::new(header.clone());
    let mut image = header.page().unwrap();
    let mut groups = 0;
    for first in 0.. {
        let batch = Batch {
            stream: StreamId(first as u32 % 50),
            rows: (first * 10..first * 10 + 10).collect(),
            receive_time: (0..10).map(|_| random.i64(..)).collect(),
            source_time: None,
            sequence: None,
            session: None,
            source_clock: false,
            columns: vec![Column {
                values: ColumnValues::U64((0..10).map(|_| random.u64(..)).collect()),
                states: None,
            }],
        };
        let bytes = encode(&layout, &batch, Effort::Seal);
        let stream = stream(first as u32 % 50, &layout);
        if !builder.fits(bytes.len(), 1, [&*stream]) {
            assert!(builder.push(&bytes, [&stream]).is_err());
            break;
        }
        builder.push(&bytes, [&stream]).unwrap();
        if first % 7 == 0 {
            write(&mut builder, &mut image, &mut groups);
        }
    }
    assert_eq!(builder.seal().is_err(), builder.pending_bytes() > 0, "not with a group under way");
    write(&mut builder, &mut image, &mut groups);
    assert!(groups > 3);
    let sealed = builder.seal().unwrap();
    let end = sealed.footer_offset as usize + sealed.footer.len() + sealed.trailer.len();
    assert!(end <= 64 << 10, "{end}");
}

/// An opening goes on behind the last whole group of the one before. What that one wrote behind a group that was cut
/// short is whole and has the right number, and is not taken for the newer groups' successor.
#[test]
fn a_group_of_an_earlier_opening_does_not_follow_one_of_a_later() {
    let layout = Layout { version: 1, channels: Vec::new() };
    let definition = stream(5, &layout);
    let block_of = |epoch: u32, first_row: u64| {
        let batch = Batch {
            stream: StreamId(5),
            rows: (first_row..first_row + 10).collect(),
            receive_time: (0..10).collect(),
            source_time: None,
            sequence: None,
            session: None,
            source_clock: false,
            columns: Vec::new(),
        };
        let mut out = Vec::new();
        let meta = block::BlockMeta { epoch, ..meta(Effort::Seal) };
        let mut memory = strongback_store::codec::CodecMemory::default();
        block::Encoder::new().encode(&meta, &batch, &layout, &mut memory, &mut out).unwrap();
        out
    };
    let put = |builder: &mut Builder, epoch, first_row| {
        builder.push(&block_of(epoch, first_row), std::slice::from_ref(&definition)).unwrap();
        builder.take_group().unwrap()
    };
    let mut first = Builder::new(header());
    let old = [0, 10, 20].map(|row| put(&mut first, 1, row));
    let known = |_| Some(definition.clone());
    let mut second = Builder::new(header());
    assert_eq!(second.resume_group(&old[0].bytes, known).unwrap(), Some(old[0].bytes.len()));
    let new = put(&mut second, 2, 10);
    assert_eq!((new.offset, new.bytes.len()), (old[1].offset, old[1].bytes.len()), "in the place of the one cut short");
    let mut third = Builder::new(header());
    for group in [&old[0].bytes, &new.bytes] {
        assert_eq!(third.resume_group(group, known).unwrap(), Some(group.len()));
    }
    assert!(third.resume_group(&old[2].bytes, known).is_err());
    assert_eq!(third.entries().len(), 2);
    // Without the later one all three are there.
    let mut whole = Builder::new(header());
    assert!(old.iter().all(|group| whole.resume_group(&group.bytes, known).unwrap().is_some()));
}
