//! Statistics of many blocks together: they say what the blocks say, and are few bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;

use super::settle::verify;
use crate::disk::fault::FaultDisk;
use crate::disk::{Access, Disk, read_exact};
use crate::segment::directory::file_name;
use crate::tests::kit::*;
use crate::*;

/// Blocks of the stream: each has a layout of its own, so that settle joins none of them.
const STEPS: usize = 40;
const STEP_ROWS: usize = 300;

fn grown(step: usize) -> StreamSpec {
    let small = if step < STEPS / 2 { ChannelType::I16 } else { ChannelType::I64 };
    let mut channels = vec![
        ChannelSpec::new("steady", ChannelType::F64),
        ChannelSpec::new("broken", ChannelType::F64),
        ChannelSpec::new("small", small),
        ChannelSpec::new("sparse", ChannelType::U32),
        ChannelSpec::new("text", ChannelType::String),
    ];
    channels.extend((0..step).map(|n| ChannelSpec::new(format!("x{n}"), ChannelType::Bool)));
    spec("t", channels).modulus(Some(1 << 20))
}

/// A store with one segment of blocks that ascend in time; with `late`, of some that do not.
pub(super) fn fed(disk: &FaultDisk, seed: u64, late: bool) -> (Store, StreamId, i64) {
    let options = StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        max_bytes: Some(64 << 20),
        // Every row is sealed at once.
        open_bytes: 1,
        ..StoreOptions::default()
    };
    let store = open(disk, options);
    let (mut random, mut now, mut sequence) = (Rng::with_seed(seed), T0, 0);
    let mut id = StreamId(0);
    for step in 0..STEPS {
        id = store.resolve(&grown(step), now).expect("resolved").0.id;
        let mut batch = FrameBatch::new();
        for row in 0..STEP_ROWS {
            now += random.i64(1..2_000_000);
            sequence += 1 + u64::from(random.u16(0..400) == 0);
            let receive_time = if late && random.u16(0..300) == 0 { now - 900_000_000 } else { now };
            batch.begin(head(id, receive_time).numbered(Some(sequence)));
            batch.push(ChannelIndex(0), Value::F64((row as f64 / 40.0).sin() + random.f64()));
            match random.u16(0..500) {
                0 => batch.push_state(ChannelIndex(1), CellState::Unknown),
                1 => batch.push(ChannelIndex(1), Value::F64(f64::NAN)),
                2 => batch.push(ChannelIndex(1), Value::F64(f64::INFINITY)),
                _ => batch.push(ChannelIndex(1), Value::F64(random.i32(-5..5) as f64)),
            }
            match grown(step).channels[2].channel_type {
                ChannelType::I16 => batch.push(ChannelIndex(2), Value::I16(random.i16(-99..99))),
                _ => batch.push(ChannelIndex(2), Value::I64(random.i64(-99..99))),
            }
            if random.u8(0..5) == 0 {
                batch.push(ChannelIndex(3), Value::U32(random.u32(..)));
            }
            batch.push(ChannelIndex(4), Value::String("abc"));
            for x in 0..step {
                batch.push(ChannelIndex(5 + x as u16), Value::Bool(random.bool()));
            }
            batch.end();
        }
        assert!(store.append(&batch, now).outcomes.iter().all(is_stored));
        store.upkeep(now);
    }
    store.close(now).expect("closed");
    let store = Store::open_on(
        Arc::new(disk.clone()),
        StoreOptions { open_bytes: 1, max_bytes: Some(64 << 20), segment_bytes: 1 << 20, ..StoreOptions::default() },
        now,
    )
    .expect("opened");
    (store, id, now)
}

/// Buckets as text, but for the mean.
fn buckets(found: &[Bucket]) -> Vec<String> {
    found.iter().map(|bucket| format!("{:?}", Bucket { mean: None, ..bucket.clone() })).collect()
}

fn near(a: Option<f64>, b: Option<f64>, what: &str) {
    let fits = match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())),
        (a, b) => a.is_none() && b.is_none(),
    };
    assert!(fits, "{what}: {a:?} instead of {b:?}");
}

/// Spans, long ones among them, and how many buckets.
fn spans(seed: u64, time: (i64, i64)) -> Vec<(std::ops::Range<i64>, usize)> {
    let mut random = Rng::with_seed(seed);
    let mut spans: Vec<_> = [1, 3, 40, 1_000].map(|buckets| (i64::MIN..i64::MAX, buckets)).into();
    for _ in 0..20 {
        let from = random.i64(time.0 - 5..time.1);
        spans.push((from..random.i64(from..time.1 + 5), [1, 2, 7, 40, 300][random.usize(..5)]));
    }
    spans
}

#[test]
fn many_blocks_say_together_what_each_says() {
    for (seed, late) in [(1, false), (2, false), (3, true)] {
        let disk = FaultDisk::new(seed);
        let (store, id, now) = fed(&disk, seed, late);
        let time = store.view().time_range(id).expect("rows");
        let channels: Vec<ChannelIndex> = [0, 1, 2, 3, 4, 8, 30].map(ChannelIndex).into();
        let read = |view: &View| {
            let mut all = Vec::new();
            for (span, count) in spans(seed, time) {
                for &column in &channels {
                    let reduced = view.reduce(id, column, span.clone(), count).expect("reduced");
                    let span = span.start.max(time.0)..span.end.min(time.1);
                    let weight = view.weigh(id, column, span.clone()).expect("weighed");
                    all.push((column, span, reduced, weight));
                }
            }
            all
        };
        let before = read(&store.view());
        let decoded = store.stats().blocks_decoded;
        assert!(store.settle(now).expect("settled") >= 1, "seed {seed}: {:?}", store.stats());
        let data: Vec<SegmentInfo> = store.segments().into_iter().filter(|s| s.group == "data").collect();
        assert!(data.len() == 1 && data[0].settled && data[0].blocks == STEPS as u64, "seed {seed}: {data:?}");
        let after = read(&store.view());
        let decoded = (decoded, store.stats().blocks_decoded - decoded);
        for ((column, span, old, weighed), (_, _, new, weighs)) in before.iter().zip(&after) {
            let what = format!("seed {seed}, channel {}, {span:?}", column.0);
            assert_eq!(buckets(new), buckets(old), "{what}");
            new.iter().zip(old).for_each(|(a, b)| near(a.mean, b.mean, &what));
            let exact = |w: &Weight| format!("{} {:?} {:?} {}", w.count, w.min, w.max, w.integral.known_ns);
            assert_eq!(exact(weighs), exact(weighed), "{what}");
            near(weighs.time_mean(), weighed.time_mean(), &what);
        }
        println!("seed {seed}: {decoded:?} blocks decoded before and after");
    }
}

/// What is read, and the reads and bytes of the disk for it, index and files at hand.
pub(super) fn counted<T>(disk: &FaultDisk, read: impl Fn() -> T) -> (T, (u64, u64)) {
    let counters = || (disk.faults.reads.load(Ordering::Relaxed), disk.faults.read_bytes.load(Ordering::Relaxed));
    read();
    let before = counters();
    let found = read();
    let after = counters();
    (found, (after.0 - before.0, after.1 - before.1))
}

#[test]
fn a_long_span_reads_few_bytes() {
    // What is read of long indices again would be counted too.
    crate::segment::directory::WHOLE.set(true);
    let disk = FaultDisk::new(4);
    let (store, id, now) = fed(&disk, 4, false);
    let time = store.view().time_range(id).expect("rows");
    let reduce = || store.view().reduce(id, ChannelIndex(0), i64::MIN..i64::MAX, 1).expect("reduced");
    let weigh = || store.view().weigh(id, ChannelIndex(0), time.0..time.1 + 1).expect("weighed");
    let before = (counted(&disk, reduce).1, counted(&disk, weigh).1);
    assert!(store.settle(now).expect("settled") >= 1);
    let decoded = store.stats().blocks_decoded;
    let after = (counted(&disk, reduce).1, counted(&disk, weigh).1);
    println!("reduce {:?} became {:?}, weigh {:?} became {:?} (reads, bytes)", before.0, after.0, before.1, after.1);
    // All blocks before; now the table, and the groups of the topmost level and the one below it.
    assert!(before.0.0 >= STEPS as u64 && before.0.1 > 200_000);
    assert!(after.0.0 <= 2 && after.0.1 < 1_000, "{after:?}");
    // What the first value stands behind is looked for in a block.
    assert!(after.1.1 < before.1.1 / 8, "{after:?} instead of {before:?}");
    assert!(store.stats().blocks_decoded - decoded <= 4);
}

/// Damage behind the footer changes no answer, since the blocks say it then; `verify` lists it, with its place.
#[test]
fn a_damaged_pyramid_is_listed_and_passed_over() {
    let disk = FaultDisk::new(6);
    let (store, id, now) = fed(&disk, 6, false);
    assert!(store.settle(now).expect("settled") >= 1);
    let name = file_name(store.segments().iter().find(|s| s.settled).expect("one").id);
    drop(store);
    let found = verify(&disk);
    assert!(found.is_sound() && found.verified_pyramids == 1, "{found}");
    let file = Disk::open(&disk, &name, Access::Buffered).expect("a file");
    let bytes = read_exact(&*file, 0, file.size().expect("a size") as usize).expect("read");
    let trailer = segment::read_trailer(&bytes[bytes.len() - 4096..]).expect("a trailer");
    let footer = trailer.footer_offset as usize..trailer.footer_offset as usize + trailer.footer_bytes;
    let begin = footer.end.next_multiple_of(4096) as u64;
    let of_stream = &segment::read_footer(&bytes[footer], &trailer).expect("a footer").pyramids.streams[0];
    let bytes: u64 = of_stream.1.iter().map(|(_, all)| u64::from(*all)).sum();
    let options = || StoreOptions { max_bytes: Some(64 << 20), segment_bytes: 1 << 20, ..StoreOptions::default() };
    let answer = || {
        let store = open_at(&disk, options(), now);
        buckets(&store.view().reduce(id, ChannelIndex(0), i64::MIN..i64::MAX, 3).expect("reduced"))
    };
    let (expected, mut random) = (answer(), Rng::with_seed(6));
    for _ in 0..40 {
        let (at, bit) = (begin + random.u64(..bytes), 1 << random.u8(0..8));
        disk.rot(&name, at as usize, bit);
        let found = verify(&disk);
        let listed: Vec<(&str, u64)> = found.damage.iter().map(|d| (d.file.as_str(), d.offset)).collect();
        assert_eq!(listed, [(name.as_str(), at)], "{found}");
        assert!(found.damage[0].reason.contains("statistics pyramid of t is"), "{found}");
        assert_eq!(answer(), expected, "byte {}", at - begin);
        disk.rot(&name, at as usize, bit);
    }
}
