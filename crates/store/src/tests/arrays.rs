//! Arrays: what they take, what is read of them, and what damage costs.

use std::sync::atomic::Ordering;

use crate::disk::fault::FaultDisk;
use crate::model::array::put_elements;
use crate::tests::kit::*;
use crate::*;

fn fixed(element: ElementType, length: usize) -> ChannelType {
    ChannelType::Array(ArrayType::fixed(element, length).expect("a length"))
}

fn variable(element: ElementType) -> ChannelType {
    ChannelType::Array(ArrayType::variable(element))
}

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 8 << 20, max_bytes: Some(1 << 40), ..StoreOptions::default() }
}

/// Appends one frame; commits and tries again where the log is full.
fn append(store: &Store, head: FrameHead, fill: impl Fn(&mut FrameBatch)) {
    let mut batch = FrameBatch::new();
    batch.begin(head);
    fill(&mut batch);
    batch.end();
    loop {
        match &store.append(&batch, head.receive_time).outcomes[0] {
            Outcome::Stored { .. } => return,
            Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => {
                store.upkeep(head.receive_time);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A waveform of 12 bits with noise, as a digitiser gives it.
fn wave(random: &mut fastrand::Rng, frame: usize, length: usize) -> Vec<f32> {
    (0..length)
        .map(|k| {
            let angle = (k as f32 / 40.0 + frame as f32 / 7.0).sin() * 1_500.0;
            (angle as i32 + random.i32(-6..6)) as f32 * 0.25
        })
        .collect()
}

#[test]
fn the_history_of_one_element_reads_a_few_percent_of_the_arrays() {
    for length in [512, 4_096, 65_536] {
        let disk = FaultDisk::new(1);
        let store = open(&disk, options());
        let kinds = [("temperature", ChannelType::F64), ("wave", fixed(ElementType::F32, length))];
        let (stream, channels) = store.resolve(&spec("adc", kinds), T0).expect("resolved");
        let mut random = fastrand::Rng::with_seed(length as u64);
        let frames = (24 << 20) / (4 * length);
        let mut sent = Vec::new();
        for frame in 0..frames {
            let wave = wave(&mut random, frame, length);
            append(&store, head(stream.id, T0 + frame as i64 * 1_000_000), |batch| {
                batch.push(channels[0], Value::F64(frame as f64));
                batch.push_array(channels[1], &wave);
            });
            sent.push(wave);
        }
        store.close(T0 + 1).expect("closed");
        let store = open(&disk, options());
        let view = store.view();
        let counted = |scan: Scan| {
            // The footers first: they are the same for both.
            view.scan(Scan { columns: vec![channels[0]], elements: Vec::new(), ..scan.clone() }).for_each(drop);
            let before = (disk.faults.reads.load(Ordering::Relaxed), disk.faults.read_bytes.load(Ordering::Relaxed));
            let batches: Vec<Batch> = view.scan(scan).map(|batch| batch.expect("reads")).collect();
            let reads = disk.faults.reads.load(Ordering::Relaxed) - before.0;
            (batches, reads, disk.faults.read_bytes.load(Ordering::Relaxed) - before.1)
        };
        let (whole, whole_reads, whole_bytes) = counted(Scan::all(stream.id, vec![channels[1]]));
        for element in [0, length / 3, length - 1] {
            let elements = vec![ElementRange { channel: channels[1], elements: element as u32..element as u32 + 1 }];
            let (some, reads, bytes) = counted(Scan { elements, ..Scan::all(stream.id, vec![channels[0]]) });
            let found: Vec<f64> = some
                .iter()
                .flat_map(|b| (0..b.len()).map(|r| b.columns[1].cell(r).unwrap().as_f64().unwrap()))
                .collect();
            let want: Vec<f64> = sent.iter().map(|wave| f64::from(wave[element])).collect();
            assert_eq!(found, want);
            let temperatures = some.iter().flat_map(|b| (0..b.len()).map(|r| b.columns[0].cell(r).unwrap().as_f64()));
            assert!(temperatures.eq((0..frames).map(|n| Some(n as f64))));
            println!("{length} elements: {bytes} of {whole_bytes} bytes, {reads} of {whole_reads} reads");
            assert!(bytes * 25 <= whole_bytes, "{length} elements: {bytes} of {whole_bytes} bytes");
            assert!(reads <= whole_reads * 3, "{length} elements: {reads} reads, {whole_reads} of whole arrays");
        }
        // Whoever wants the number beside the arrays does not read them either.
        let (_, _, bytes) = counted(Scan::all(stream.id, vec![channels[0]]));
        assert!(bytes * 50 <= whole_bytes, "{length} elements: {bytes} of {whole_bytes} bytes for a number");
        assert_eq!(whole.iter().map(Batch::len).sum::<usize>(), frames);
        let arrays = whole.iter().flat_map(|b| (0..b.len()).map(|r| b.columns[0].cell(r).map(OwnedValue::of)));
        let element = ElementType::F32;
        let want = sent.iter().map(|wave| {
            let mut bytes = Vec::new();
            put_elements(wave, &mut bytes);
            Ok(OwnedValue::Array { element, bytes })
        });
        assert!(arrays.eq(want), "{length} elements");
    }
}

#[test]
fn a_damaged_tile_is_found_and_the_others_are_read() {
    let (disk, length) = (FaultDisk::new(1), 16_384);
    let store = open(&disk, options());
    let (stream, channels) = store.resolve(&spec("adc", [("wave", fixed(ElementType::U64, length))]), T0).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for frame in 0..8 {
        // Noise, so that a tile is as large as it can be and where its bytes are is known.
        let wave: Vec<u64> = (0..length).map(|_| random.u64(..)).collect();
        append(&store, head(stream.id, T0 + frame), |batch| batch.push_array(channels[0], &wave));
    }
    store.close(T0 + 9).expect("closed");
    let name = "segment-000000000001.sbs";
    // Somewhere in the middle of the only block.
    disk.rot(name, 500_000, 0x55);
    let store = open(&disk, options());
    let view = store.view();
    let of = |element: u32| {
        let elements = vec![ElementRange { channel: channels[0], elements: element..element + 1 }];
        view.scan(Scan { elements, ..Scan::all(stream.id, Vec::new()) }).collect::<Result<Vec<_>, _>>()
    };
    let damaged: Vec<u32> = (0..length as u32).step_by(64).filter(|element| of(*element).is_err()).collect();
    // One tile of 16 KiB among one MiB: 256 elements of 8 rows.
    assert_eq!(damaged.len(), 4, "{damaged:?}");
    let error = of(damaged[0]).expect_err("damaged").to_string();
    assert!(error.contains(name) && error.contains("tile of an array: checksum"), "{error}");
    let whole = view.scan(Scan::all(stream.id, channels.clone())).collect::<Result<Vec<_>, _>>();
    let error = whole.expect_err("damaged").to_string();
    assert!(error.contains("block body: checksum"), "{error}");
}

#[test]
fn arrays_of_another_length_or_type_are_rejected_with_their_reason() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let kinds = [("s", fixed(ElementType::F32, 4)), ("w", variable(ElementType::I16)), ("x", ChannelType::F64)];
    let (stream, channels) = store.resolve(&spec("t", kinds), T0).expect("resolved");
    let rejected = |fill: &dyn Fn(&mut FrameBatch)| {
        let mut batch = FrameBatch::new();
        batch.begin(head(stream.id, T0));
        fill(&mut batch);
        batch.end();
        match &store.append(&batch, T0).outcomes[0] {
            Outcome::Stored { .. } => "stored".to_owned(),
            Outcome::Rejected(reject) => format!("{}: {reject}", reject.reason()),
            other => format!("{other:?}"),
        }
    };
    let long = vec![0i16; ARRAY_LENGTH_MAX + 1];
    for (want, fill) in [
        ("stored", &(|b: &mut FrameBatch| b.push_array(channels[0], &[1.0f32; 4])) as &dyn Fn(&mut FrameBatch)),
        ("stored", &|b| b.push_array::<i16>(channels[1], &[])),
        ("stored", &|b| b.push_array(channels[1], &long[1..])),
        ("bad_length: stream t, channel s: an array of 3 elements does not fit f32[4]", &|b| {
            b.push_array(channels[0], &[1.0f32; 3])
        }),
        ("bad_length: stream t, channel w: an array of 65537 elements does not fit i16[] of at most 65536", &|b| {
            b.push_array(channels[1], &long)
        }),
        ("bad_type: stream t, channel s: f64[] does not fit f32[4]", &|b| b.push_array(channels[0], &[1.0f64; 4])),
        ("bad_type: stream t, channel w: i16 does not fit i16[]", &|b| b.push(channels[1], Value::I16(1))),
        ("bad_type: stream t, channel x: f64[] does not fit f64", &|b| b.push_array(channels[2], &[1.0f64])),
        // All channels of the frame given in order: the way of nearly all frames.
        ("bad_length: stream t, channel s: an array of 5 elements does not fit f32[4]", &|b| {
            b.push_array(channels[0], &[1.0f32; 5]);
            b.push_array(channels[1], &[7i16]);
            b.push(channels[2], Value::F64(1.0));
        }),
    ] {
        assert_eq!(rejected(fill), want);
    }
    let counts = store.counts(stream.id);
    assert_eq!((counts.stored, counts.rejected), (3, 6));
}

#[test]
fn arrays_that_can_never_fit_are_refused_at_their_definition() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let most = fixed(ElementType::F64, ARRAY_LENGTH_MAX);
    store.resolve(&spec("one", [("a", most)]), T0).expect("half a MiB");
    let refused = store.resolve(&spec("two", [("a", most), ("b", most)]), T0).expect_err("more than 1 MiB");
    assert!(matches!(refused, Reject::ArraysTooLarge { max_bytes: 1_048_576, .. }), "{refused}");
    let grown = store.resolve(&spec("one", [("a", most), ("b", most)]), T0);
    assert!(matches!(grown, Err(Reject::ArraysTooLarge { .. })), "{grown:?}");
    let small = FaultDisk::new(1);
    super::fixed::make_on(&small, &FixedOptions { max_streams: 8, max_channels: 110, ..FixedOptions::new(224 << 10) });
    let store = super::fixed::open_on(&small, StoreOptions::default(), T0).expect("opened");
    let spectrum = |length| spec("s", [("v", fixed(ElementType::F32, length))]);
    let refused = store.resolve(&spectrum(2_048), T0).expect_err("8 KiB of a segment of 32").to_string();
    assert!(refused.contains("this store takes 4032: at most 1 MiB, a quarter of the log"), "{refused}");
    let (stream, channels) = store.resolve(&spectrum(512), T0).expect("resolved");
    for frame in 0..500i64 {
        append(&store, head(stream.id, T0 + frame), |batch| batch.push_array(channels[0], &[frame as f32; 512]));
    }
    store.upkeep(T0 + 500);
    let rows: usize = store.view().scan(Scan::all(stream.id, channels)).map(|b| b.expect("reads").len()).sum();
    // Of the frames that go round at least the three newest segments are there.
    assert!(rows > 3 * 14, "{rows}");
}

#[test]
fn the_longest_arrays_come_back_bit_by_bit() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let kinds =
        [("f", variable(ElementType::F64)), ("u", variable(ElementType::U64)), ("b", variable(ElementType::Bool))];
    let specs: Vec<_> = kinds.iter().map(|kind| spec(kind.0, std::slice::from_ref(kind))).collect();
    let streams: Vec<_> = specs.iter().map(|spec| store.stream(spec)).collect();
    let mut random = fastrand::Rng::with_seed(5);
    let odd = [f64::NAN, f64::from_bits(0x7ff8_dead_beef_0001), -0.0, f64::INFINITY, f64::MIN_POSITIVE, 1e-310, 0.1];
    let mut sent = Vec::new();
    for (frame, length) in [0, 1, ARRAY_LENGTH_MAX, 3, 0, ARRAY_LENGTH_MAX - 1, 70].into_iter().enumerate() {
        let floats: Vec<f64> = (0..length).map(|k| if k % 3 == 0 { odd[k % 7] } else { random.f64() }).collect();
        let longs: Vec<u64> = (0..length).map(|k| if k % 5 == 0 { u64::MAX } else { random.u64(..) }).collect();
        let truths: Vec<bool> = (0..length).map(|_| random.bool()).collect();
        let mut bytes = [Vec::new(), Vec::new(), Vec::new()];
        put_elements(&floats, &mut bytes[0]);
        put_elements(&longs, &mut bytes[1]);
        put_elements(&truths, &mut bytes[2]);
        let time = T0 + frame as i64;
        append(&store, head(streams[0], time), |batch| batch.push_array(ChannelIndex(0), &floats));
        append(&store, head(streams[1], time), |batch| batch.push_array(ChannelIndex(0), &longs));
        append(&store, head(streams[2], time), |batch| batch.push_array(ChannelIndex(0), &truths));
        sent.push(bytes);
    }
    let check = |store: &Store| {
        for (n, stream) in streams.iter().enumerate() {
            let mut rows = Vec::new();
            for batch in store.view().scan(Scan::all(*stream, vec![ChannelIndex(0)])) {
                let batch = batch.expect("reads");
                for row in 0..batch.len() {
                    let Ok(Value::Array(array)) = batch.columns[0].cell(row) else { panic!("no array") };
                    rows.push(array.bytes().to_vec());
                }
            }
            assert!(rows.iter().eq(sent.iter().map(|bytes| &bytes[n])), "stream {n}");
            let state = store.view().state_at(*stream, i64::MAX, &[ChannelIndex(0)]).expect("a state");
            let Some(OwnedValue::Array { bytes, .. }) = state[0].as_ref().and_then(|cell| cell.value.clone()) else {
                panic!("no array")
            };
            assert_eq!(bytes, sent[6][n]);
        }
    };
    check(&store);
    store.commit(T0 + 10).expect("committed");
    drop(store);
    // From the log, and then from blocks.
    let store = open(&disk, options());
    check(&store);
    store.close(T0 + 11).expect("closed");
    check(&open(&disk, options()));
}

#[test]
fn a_stream_of_arrays_is_sealed_by_its_bytes() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let (stream, channels) = store.resolve(&spec("t", [("w", fixed(ElementType::F64, 8_192))]), T0).expect("resolved");
    let mut random = fastrand::Rng::with_seed(9);
    for frame in 0..200i64 {
        let noise: Vec<f64> = (0..8_192).map(|_| random.f64()).collect();
        append(&store, head(stream.id, T0 + frame), |batch| batch.push_array(channels[0], &noise));
        store.upkeep(T0 + frame);
        // 64 KiB each: a chunk is full at 512 KiB, three make a block due.
        assert!(store.stats().open_bytes < 4 << 20, "{} bytes open after {frame} frames", store.stats().open_bytes);
    }
}

#[test]
fn long_values_of_quiet_streams_never_make_a_mixed_block_too_large() {
    let disk = FaultDisk::new(1);
    // All of it fits the log, so that the clean end finds it at once.
    let options = StoreOptions { log_bytes: 64 << 20, max_bytes: Some(1 << 40), ..StoreOptions::default() };
    let store = open(&disk, &options);
    let noise = {
        let mut random = fastrand::Rng::with_seed(7);
        (0..60_000).map(|_| random.u8(b'a'..=b'z')).collect::<Vec<u8>>()
    };
    let text = String::from_utf8(noise.clone()).expect("letters");
    let mut streams = Vec::new();
    for n in 0..600 {
        let kind = if n % 2 == 0 { variable(ElementType::U8) } else { ChannelType::String };
        let stream = store.stream(&spec("t", [("w", kind)]).tag("n", n));
        append(&store, head(stream, T0 + n), |batch| match n % 2 {
            0 => batch.push_array(ChannelIndex(0), &noise),
            _ => batch.push(ChannelIndex(0), Value::String(&text)),
        });
        streams.push(stream);
    }
    assert!(store.stats().open_bytes > 32 << 20, "{} bytes", store.stats().open_bytes);
    // 18 MB of arrays and as much text, a row of each stream: more than a block may have.
    store.close(T0 + 1_000).expect("closed");
    let view = open(&disk, options).view();
    for stream in streams {
        let rows = view.scan(Scan::all(stream, vec![ChannelIndex(0)])).map(|batch| batch.expect("reads").len());
        assert_eq!(rows.sum::<usize>(), 1);
    }
}

#[test]
fn elements_are_the_same_in_memory_in_blocks_and_in_mixed_blocks() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, options());
    let kinds = [("v", variable(ElementType::I32)), ("x", ChannelType::Bool)];
    let (stream, channels) = store.resolve(&spec("t", kinds), T0).expect("resolved");
    let mut random = fastrand::Rng::with_seed(11);
    let mut sent: Vec<Result<Vec<i32>, CellState>> = Vec::new();
    let check = |store: &Store, sent: &[Result<Vec<i32>, CellState>], what: &str| {
        let scan = Scan {
            elements: vec![
                ElementRange { channel: channels[0], elements: 5..9 },
                ElementRange { channel: channels[0], elements: 0..1 },
            ],
            ..Scan::all(stream.id, vec![channels[1]])
        };
        let mut row = 0;
        for batch in store.view().scan(scan) {
            let batch = batch.expect("reads");
            assert_eq!(batch.columns.len(), 6);
            for at in 0..batch.len() {
                for (column, element) in [5, 6, 7, 8, 0].into_iter().enumerate() {
                    let want = match &sent[row] {
                        Ok(array) => array.get(element).copied().ok_or(CellState::Absent),
                        Err(state) => Err(*state),
                    };
                    let found = batch.columns[1 + column].cell(at);
                    assert_eq!(found, want.map(Value::I32), "{what}: row {row}, element {element}");
                }
                row += 1;
            }
        }
        assert_eq!(row, sent.len(), "{what}");
    };
    for frame in 0..3_000i64 {
        let array: Vec<i32> = (0..random.usize(0..24)).map(|_| random.i32(-1_000..1_000)).collect();
        let cell = match random.u8(0..10) {
            0 => Err(CellState::Unknown),
            1 => Err(CellState::Absent),
            _ => Ok(array),
        };
        append(&store, head(stream.id, T0 + frame), |batch| {
            batch.push(channels[1], Value::Bool(true));
            match &cell {
                Ok(array) => batch.push_array(channels[0], array),
                Err(state) => batch.push_state(channels[0], *state),
            }
        });
        sent.push(cell);
    }
    check(&store, &sent, "in memory");
    store.upkeep(T0 + 3_000);
    check(&store, &sent, "partly sealed");
    store.close(T0 + 3_001).expect("closed");
    let store = open(&disk, options());
    check(&store, &sent, "sealed");
    // Few rows at a clean end go to a mixed block.
    append(&store, head(stream.id, T0 + 4_000), |batch| batch.push_array(channels[0], &[1i32, 2, 3, 4, 5, 6]));
    sent.push(Ok(vec![1, 2, 3, 4, 5, 6]));
    store.close(T0 + 4_001).expect("closed");
    let store = open(&disk, options());
    check(&store, &sent, "with a mixed block");
    let refused = |range: ElementRange| {
        let scan = Scan { elements: vec![range], ..Scan::all(stream.id, Vec::new()) };
        store.view().scan(scan).next().expect("an answer").expect_err("refused").to_string()
    };
    let wide = ElementRange { channel: channels[0], elements: 0..u32::MAX };
    assert_eq!(refused(wide), "4294967295 elements at once; at most 4096");
    let single = ElementRange { channel: channels[1], elements: 0..1 };
    assert_eq!(refused(single), "elements of channel x, which is not an array");
}
