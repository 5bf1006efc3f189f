//! The reduction of a channel against a naive one over every value, and what it decodes.

mod kit;

use kit::*;
use strongback_store::*;

fn options() -> StoreOptions {
    sized(4 << 20, 256 << 10)
}

fn resolve(store: &Store, table: &str, clock: Clock, channels: &[(&str, ChannelType)]) -> StreamId {
    store.stream(&spec(table, channels).clock(clock))
}

/// What stands for the values of a bucket, from all of them.
fn bucket_of(time: i64, values: &[(i64, u64, OwnedValue)]) -> Bucket {
    let by_time = |a: &&(i64, u64, OwnedValue), b: &&(i64, u64, OwnedValue)| (a.0, a.1).cmp(&(b.0, b.1));
    let first = values.iter().min_by(by_time).expect("values");
    let last = values.iter().max_by(by_time).expect("values");
    let order = |value: &OwnedValue| match value.as_value() {
        Value::String(_) => None,
        Value::I64(v) => Some((v as f64, v as i128)),
        Value::U64(v) => Some((v as f64, v as i128)),
        other => other.as_f64().filter(|v| !v.is_nan()).map(|v| (v, 0)),
    };
    let (mut min, mut max) = (None::<&OwnedValue>, None::<&OwnedValue>);
    for (_, _, value) in values {
        let Some(number) = order(value) else { continue };
        // The first of equals: so that of two zeros the sign is defined.
        if min.is_none_or(|m| order(m).is_some_and(|m| number < m)) {
            min = Some(value);
        }
        if max.is_none_or(|m| order(m).is_some_and(|m| number > m)) {
            max = Some(value);
        }
    }
    let finite: Vec<f64> = values.iter().filter_map(|v| v.2.as_value().as_f64()).filter(|v| v.is_finite()).collect();
    let mean = (!finite.is_empty()).then(|| {
        // Of parts: sums of thousands of values stay exact enough for the tolerance below.
        finite.chunks(64).map(|part| part.iter().sum::<f64>()).sum::<f64>() / finite.len() as f64
    });
    let plain = |value: &OwnedValue| match value.as_value() {
        Value::String(_) => unreachable!("text has no order"),
        other => Value::from_bits(other.channel_type(), other.bits()),
    };
    Bucket {
        time,
        count: values.len() as u64,
        first: first.2.clone(),
        last: last.2.clone(),
        min: min.map(plain),
        max: max.map(plain),
        finite: finite.len() as u64,
        mean,
    }
}

/// The reduction as its documentation says, from every value of a scan.
fn naive(
    view: &View,
    stream: StreamId,
    column: ChannelIndex,
    time: std::ops::Range<i64>,
    buckets: usize,
) -> Vec<Bucket> {
    let (mut all, mut range) = (Vec::new(), (i64::MAX, i64::MIN));
    for batch in view.scan(Scan::all(stream, vec![column])) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            range = (range.0.min(batch.time(i)), range.1.max(batch.time(i)));
            if let Ok(value) = batch.columns[0].cell(i) {
                all.push((batch.time(i), batch.rows[i], OwnedValue::of(value)));
            }
        }
    }
    let time = time.start.max(range.0)..time.end.min(range.1 + 1);
    all.retain(|v| time.contains(&v.0));
    if all.len() <= buckets {
        all.sort_by_key(|v| (v.0, v.1));
        return all.iter().map(|v| bucket_of(v.0, std::slice::from_ref(v))).collect();
    }
    let width = (time.end - time.start).unsigned_abs().div_ceil(buckets as u64) as i64;
    let of = |n: i64| -> Vec<_> { all.iter().filter(|v| (v.0 - time.start) / width == n).cloned().collect() };
    let filled = (0..buckets as i64).map(|n| (time.start + n * width, of(n))).filter(|(_, v)| !v.is_empty());
    filled.map(|(start, values)| bucket_of(start, &values)).collect()
}

/// Equal to the bit but for the mean, which may differ by 1e-12 of the mean magnitude of the values: the order of
/// summation is another.
fn compare(found: &[Bucket], expected: &[Bucket], magnitude: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        // As text: NaN equals itself, and −0.0 is not 0.0.
        let exact = |b: &Bucket| format!("{:?}", Bucket { mean: None, ..b.clone() });
        assert_eq!(exact(found), exact(expected), "{what}");
        match (found.mean, expected.mean) {
            (Some(a), Some(b)) => assert!((a - b).abs() <= magnitude * 1e-12, "{what}: mean {a} for {b}"),
            (a, b) => assert_eq!(a, b, "{what}"),
        }
    }
}

/// A value of a type, special ones among them; numbers are at most about 1e6 but for the ends of integers.
fn value(random: &mut fastrand::Rng, kind: ChannelType, row: u64) -> Option<OwnedValue> {
    let special = random.u32(0..400);
    let number = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e6, -1e6].get(special as usize).copied();
    let number = number.unwrap_or_else(|| (row as f64 / 300.0).sin() * 100.0 + random.f64());
    // Whole stretches without a value, and some here and there.
    if row / 2_000 % 4 == 3 || random.u8(0..50) == 0 && row % 7_000 > 3_000 {
        return None;
    }
    Some(match kind {
        ChannelType::F64 => OwnedValue::Plain(Value::F64(number)),
        ChannelType::F32 => OwnedValue::Plain(Value::F32(number as f32)),
        ChannelType::I64 if special < 2 => OwnedValue::Plain(Value::I64([i64::MIN, i64::MAX][special as usize])),
        ChannelType::I64 => OwnedValue::Plain(Value::I64(number as i64)),
        ChannelType::U64 if special < 2 => OwnedValue::Plain(Value::U64(u64::MAX - u64::from(special))),
        ChannelType::U64 => OwnedValue::Plain(Value::U64(number.abs() as u64)),
        ChannelType::I16 => OwnedValue::Plain(Value::I16(number as i16)),
        ChannelType::Bool => OwnedValue::Plain(Value::Bool(number > 0.0)),
        _ => OwnedValue::String(format!("text {}", number as i64)),
    })
}

#[test]
fn a_reduction_is_that_of_every_value() {
    let kinds = [
        ("f64", ChannelType::F64),
        ("f32", ChannelType::F32),
        ("i64", ChannelType::I64),
        ("u64", ChannelType::U64),
        ("i16", ChannelType::I16),
        ("bool", ChannelType::Bool),
        ("text", ChannelType::String),
    ];
    let (mut decoded, mut blocks) = (0, 0);
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = open(dir.path(), options());
        // Times that ascend, and times of a source: late ones, now and then a whole stretch from long ago.
        let streams = [
            resolve(&store, "sorted", Clock::Receive, &kinds),
            resolve(&store, "late", Clock::Source, &kinds),
            resolve(&store, "again", Clock::Source, &kinds),
        ];
        let mut batch = FrameBatch::new();
        for row in 0..16_000u64 {
            let time = T0 + row as i64 * 1_000 / 3;
            for (n, &stream) in streams.iter().enumerate() {
                let source_time = match n {
                    0 => None,
                    1 => Some(time - random.i64(0..if row % 5_000 < 2_000 { 90_000 } else { 1 })),
                    _ => Some(T0 + (row as i64 % 6_000) * 1_000 + row as i64 / 6_000),
                };
                batch.begin(head(stream, time).sampled(source_time));
                for (channel, (_, kind)) in kinds.iter().enumerate() {
                    // A type that becomes wider: what was stored before is narrower.
                    let kind = if *kind == ChannelType::I16 && row > 9_000 { ChannelType::I64 } else { *kind };
                    match value(&mut random, kind, row) {
                        Some(value) => batch.push(ChannelIndex(channel as u16), value.as_value()),
                        None if random.bool() => batch.push_state(ChannelIndex(channel as u16), CellState::Unknown),
                        None => {}
                    }
                }
                batch.end();
            }
            if row == 9_000 {
                assert!(store.append(&batch, T0).outcomes.iter().all(is_stored));
                batch.clear();
                let mut wider = kinds;
                wider[4].1 = ChannelType::I64;
                for (table, clock) in [("sorted", Clock::Receive), ("late", Clock::Source), ("again", Clock::Source)] {
                    resolve(&store, table, clock, &wider);
                }
            }
            if row % 500 == 499 {
                assert!(store.append(&batch, T0).outcomes.iter().all(is_stored));
                batch.clear();
                store.upkeep(T0);
            }
        }
        if seed == 1 {
            store.close(T0).expect("closed");
            store = open(dir.path(), options());
        }
        blocks += store.segments().iter().map(|s| s.blocks).sum::<u64>() * kinds.len() as u64;
        let view = store.view();
        for (n, &stream) in streams.iter().enumerate() {
            for (channel, (name, _)) in kinds.iter().enumerate() {
                let column = ChannelIndex(channel as u16);
                for buckets in [1, 7, 40, 900] {
                    let from = T0 + random.i64(-1_000_000..5_000_000);
                    let some = from..from + random.i64(1..4_000_000);
                    for time in [i64::MIN..i64::MAX, some] {
                        let what = format!("seed {seed}, stream {n}, {name}, {buckets} buckets of {time:?}");
                        let before = store.stats().blocks_decoded;
                        let found = view.reduce(stream, column, time.clone(), buckets).expect("reduced");
                        if buckets == 1 && time.start == i64::MIN {
                            decoded += store.stats().blocks_decoded - before;
                        }
                        // The ends of 64-bit integers are among the values of those that become so wide.
                        let magnitude = if ["i64", "u64", "i16"].contains(name) { 1e17 } else { 1e4 };
                        compare(&found, &naive(&view, stream, column, time, buckets), magnitude, &what);
                    }
                }
            }
        }
    }
    assert!(decoded * 2 < blocks, "{decoded} of {blocks} blocks were decoded");
}

#[test]
fn only_the_blocks_at_the_edges_of_buckets_are_decoded_and_a_spike_is_never_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let stream = resolve(&store, "t", Clock::Receive, &[("x", ChannelType::F64)]);
    let (mut random, mut batch, rows) = (fastrand::Rng::with_seed(4), FrameBatch::new(), 300_000i64);
    // The first and last row, and some in the middle of a block, are spikes of one sample.
    let spikes: Vec<i64> = (0..20).map(|n| n * (rows - 1) / 19).collect();
    for n in 0..rows {
        batch.put(
            head(stream, T0 + n * 1_000),
            [Value::F64(if spikes.contains(&n) { 1e9 + n as f64 } else { random.f64() })],
        );
        if n % 5_000 == 4_999 {
            store.append(&batch, T0);
            batch.clear();
            store.upkeep(T0);
        }
    }
    let (view, blocks) = (store.view(), store.segments().iter().map(|s| s.blocks).sum::<u64>());
    assert!(blocks > 250, "{blocks} blocks");
    for buckets in [1, 10, 40] {
        let before = store.stats().blocks_decoded;
        let found = view.reduce(stream, ChannelIndex(0), i64::MIN..i64::MAX, buckets).expect("reduced");
        let decoded = store.stats().blocks_decoded - before;
        assert!(decoded <= buckets as u64, "{decoded} of {blocks} blocks for {buckets} buckets");
        assert_eq!(found.iter().map(|b| b.count).sum::<u64>(), rows as u64);
        for spike in &spikes {
            let at = T0 + spike * 1_000;
            let bucket = found.iter().rfind(|b| b.time <= at).expect("a bucket");
            let newest = spikes.iter().rfind(|s| found.iter().rfind(|b| b.time <= T0 + **s * 1_000) == Some(bucket));
            assert_eq!(bucket.max, newest.map(|s| Value::F64(1e9 + *s as f64)), "{buckets} buckets, row {spike}");
        }
    }
}

/// What one call brings has one stamp of reception: of equal times the higher row is the last one.
#[test]
fn values_of_one_instant_have_a_last_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), options());
    let stream = resolve(&store, "calls", Clock::Receive, &[("x", ChannelType::F64)]);
    let mut batch = FrameBatch::new();
    for call in 0..200i64 {
        batch.clear();
        for n in 0..100 {
            let receive_time = T0 + call / 20 * 1_000;
            batch.put(head(stream, receive_time), [Value::F64((call * 100 + n) as f64)]);
        }
        store.append(&batch, T0);
    }
    store.upkeep(T0);
    store.close(T0).expect("sealed");
    drop(store);
    let store = Store::open(dir.path(), options(), T0 + 1).expect("opened again");
    let view = store.view();
    for buckets in [1, 3, 10, 25] {
        let time = T0..T0 + 10_000;
        let expected = naive(&view, stream, ChannelIndex(0), time.clone(), buckets);
        let found = view.reduce(stream, ChannelIndex(0), time, buckets).expect("reduced");
        compare(&found, &expected, 20_000.0, &format!("{buckets} buckets"));
    }
}
