//! Definitions of streams at every limit and one above: what is taken is read again from the log, from a checkpoint and
//! from a segment alone; what is not is refused with a reason, and harms nothing.

use crate::bytes::Cursor;
use crate::catalog::definition;
use crate::disk::fault::FaultDisk;
use crate::log::superblock::CLOCKS_STATED;
use crate::tests::kit::*;
use crate::*;

fn options() -> StoreOptions {
    sized(8 << 20, 8 << 20)
}

fn rig() -> StreamSpec {
    spec("t", [("x", ChannelType::F64)]).tag("rig", "a")
}

/// Text of so many bytes, some characters of which take several.
fn text(bytes: usize) -> String {
    let mut text = "ü€".repeat(bytes / 5);
    while text.len() < bytes {
        text.push('x');
    }
    text
}

type Change = fn(&mut StreamSpec, usize);

/// What has a limit, its most bytes or items, and what is said beyond.
const LIMITS: [(&str, usize, Change, &str); 10] = [
    ("table", 1_024, |spec, n| spec.key.table = text(n), "longer than 1,024 bytes"),
    ("tag", 1_024, |spec, n| spec.key = StreamKey::new("t", [(text(n), "a".to_owned())]), "longer than 1,024 bytes"),
    ("tag value", 16_384, |spec, n| spec.key = StreamKey::new("t", [("rig".to_owned(), text(n))]), "over 16 KiB"),
    (
        "tags",
        256,
        |spec, n| spec.key = StreamKey::new("t", (0..n).map(|i| (format!("tag{i}"), String::new()))),
        "more than 256 tags",
    ),
    ("source", 65_535, |spec, n| spec.source = text(n), "a source over 65,535 bytes"),
    ("channel", 1_024, |spec, n| spec.channels[0].name = text(n), "longer than 1,024 bytes"),
    ("unit", 65_535, |spec, n| spec.channels[0].unit = text(n), "a unit over 65,535 bytes"),
    ("description", 65_535, |spec, n| spec.channels[0].description = text(n), "a description over 65,535 bytes"),
    (
        "channels",
        4_096,
        |spec, n| spec.channels = (0..n).map(|i| ChannelSpec::new(format!("c{i}"), ChannelType::U8)).collect(),
        "4096",
    ),
    (
        "channels with the longest texts, all in an eighth of a segment",
        7,
        |spec, n| {
            spec.channels = (0..n)
                .map(|i| ChannelSpec {
                    unit: text(65_535),
                    description: text(65_535),
                    ..ChannelSpec::new(format!("c{i}"), ChannelType::U8)
                })
                .collect();
        },
        "",
    ),
];

fn same(stream: &Stream, expected: &Stream, what: &str) {
    assert_eq!(format!("{stream:?}"), format!("{expected:?}"), "{what}");
}

/// Appends a frame with all channels, and seals it.
fn send(store: &Store, stream: &Stream, channels: &[ChannelIndex], seal: bool) {
    let mut batch = FrameBatch::new();
    batch.begin(head(stream.id, T0));
    for channel in channels {
        match stream.layout.channel(*channel).channel_type {
            ChannelType::U8 => batch.push(*channel, Value::U8(1)),
            _ => batch.push(*channel, Value::F64(1.0)),
        }
    }
    batch.end();
    assert!(matches!(store.append(&batch, T0).outcomes[0], Outcome::Stored { .. }));
    store.commit(T0).expect("committed");
    while seal && store.maintain(T0).expect("maintained") {}
}

#[test]
fn a_definition_at_each_limit_is_read_again_and_one_above_is_refused() {
    for (what, limit, change, why) in LIMITS {
        let disk = FaultDisk::new(1);
        let open = || open(&disk, options());
        let store = open();
        let mut at_limit = rig();
        change(&mut at_limit, limit);
        let (stream, channels) = store.resolve(&at_limit, T0).unwrap_or_else(|error| panic!("{what}: {error}"));
        send(&store, &stream, &channels, false);
        let mut above = rig();
        change(&mut above, limit + 1);
        let grown = store.resolve(&above, T0).map(|_| ());
        let refused = grown.expect_err(what);
        assert!(refused.to_string().contains(why) && refused.to_string().len() < 300, "{what}: {refused}");
        // From the log, from a checkpoint, and with segments.
        drop(store);
        let store = open();
        same(&store.catalog().streams[stream.id.0 as usize], &stream, what);
        send(&store, &stream, &channels, true);
        store.close(T0).expect("closed");
        drop(store);
        let store = open();
        assert_eq!(store.recovery().damaged, [], "{what}");
        same(&store.catalog().streams[stream.id.0 as usize], &stream, what);
        let view = store.view();
        let rows: usize = view.scan(Scan::all(stream.id, channels.clone())).map(|b| b.expect("reads").len()).sum();
        assert_eq!(rows, 2, "{what}");
        // As a segment carries it.
        let mut bytes = Vec::new();
        definition::encode(&stream, &mut bytes);
        same(&definition::read(&mut Cursor::new(&bytes)).expect("a definition"), &stream, what);
    }
}

#[test]
fn a_known_stream_refuses_longer_texts_and_stays_as_it_is() {
    let store = FaultDisk::new(2).open_store(options(), T0).expect("opened");
    let (before, _) = store.resolve(&rig(), T0).expect("resolved");
    let too_long: [fn(&mut StreamSpec); 3] = [
        |spec| spec.source = text(65_536),
        |spec| spec.channels[0].unit = text(65_536),
        |spec| spec.channels[0].description = text(1 << 20),
    ];
    for change in too_long {
        let mut changed = rig();
        change(&mut changed);
        let refused = store.resolve(&changed, T0).expect_err("too long");
        assert_eq!(refused.reason(), "bad_name");
    }
    same(&store.resolve(&rig(), T0).expect("resolved").0, &before, "as before");
    // Made by hand: no footer could be read with them.
    for tags in [["b", "a"], ["a", "a"]] {
        let tags = tags.map(|tag| (tag.to_owned(), String::new())).to_vec();
        let refused = store.resolve(&StreamSpec { key: StreamKey { table: "t".into(), tags }, ..rig() }, T0);
        assert!(refused.expect_err("tags").to_string().contains("out of order"));
    }
}

/// Times of a stream's rows: `time`, as its clock says.
fn times(store: &Store, stream: StreamId) -> Vec<i64> {
    let batches = store.view().scan(Scan::all(stream, Vec::new())).map(|batch| batch.expect("reads"));
    batches.flat_map(|batch| (0..batch.len()).map(|row| batch.time(row)).collect::<Vec<_>>()).collect()
}

#[test]
fn rows_keep_the_clock_of_their_stream_when_they_were_appended() {
    for reduced in [false, true] {
        let of_clock = |clock| {
            let reduction = if reduced { Reduction::Deadband { bound: 10.0 } } else { Reduction::None };
            spec("t", [ChannelSpec { reduction, ..ChannelSpec::new("x", ChannelType::F64) }]).clock(clock)
        };
        let disk = FaultDisk::new(11);
        let store = open(&disk, StoreOptions::default());
        let mut expected = Vec::new();
        let mut id = StreamId(0);
        for (n, clock) in [Clock::Source, Clock::Receive, Clock::Source, Clock::Receive].into_iter().enumerate() {
            id = store.stream(&of_clock(clock));
            let mut batch = FrameBatch::new();
            for frame in 0..3 {
                let at = T0 + (n * 10 + frame) as i64 * 1_000;
                // With reductions, the first of each is stored, and the last is held.
                batch.put(head(id, at).sampled(Some(at - 100)), [Value::F64((n * 100) as f64)]);
                if !reduced || frame != 1 {
                    expected.push(if clock == Clock::Source { at - 100 } else { at });
                }
            }
            store.append(&batch, T0);
            store.commit(T0).expect("committed");
        }
        // The definitions alone: the rows stay in the log.
        if reduced {
            store.upkeep(T0);
        }
        let newest = store.view().state_at(id, i64::MAX, &[ChannelIndex(0)]).expect("reads");
        let at_end = newest[0].as_ref().expect("a state").time;
        assert_eq!(at_end, *expected.last().expect("rows"), "reduced {reduced}");
        // The newest frame with a reduction has no row.
        expected.truncate(expected.len() - usize::from(reduced));
        assert_eq!(times(&store, id), expected, "reduced {reduced}");
        let store = open(&disk.after_cut(), StoreOptions::default());
        assert_eq!(times(&store, id), expected, "reduced {reduced}");
        let newest = store.view().state_at(id, i64::MAX, &[ChannelIndex(0)]).expect("reads");
        assert_eq!(newest[0].as_ref().expect("a state").time, at_end, "reduced {reduced}");
        // Older programs refuse such a store by name.
        let superblock = disk.content("superblock").expect("a superblock");
        let features = |page: &[u8]| u32::from_le_bytes(page[12..16].try_into().expect("four bytes"));
        let stated = superblock.chunks(4096).map(|page| features(page) & CLOCKS_STATED).max();
        assert_eq!(stated, Some(CLOCKS_STATED));
    }
}
