//! Frames that the store has overwritten are answered from the lake: a small store with a lake beside a large one.

use std::collections::HashMap;
use std::path::Path;

use fastrand::Rng;
use strongback_query::{LakeFrames, LakeHistory, LakePlace, LakeWriter};
use strongback_store::{FixedOptions, MemoryRegion, Scan};

use super::*;

/// Frames of a round, and rounds: more than the small store holds.
const FRAMES: i64 = 2_000;
const ROUNDS: i64 = 48;
const REGION_BYTES: usize = 16 << 20;
const LOG_BYTES: u64 = 4 << 20;
/// Time between frames.
const STEP: i64 = 700 * MS;

/// A store with few frames and its lake, and one with all of them.
struct Pair {
    small: Store,
    large: Store,
    writer: LakeWriter,
    positions: HashMap<StreamId, u64>,
    rng: Rng,
    _region: MemoryRegion,
}

fn spec(unit: i64) -> StreamSpec {
    // Values of `v` are integers of one stream, and not of others.
    let v = [ChannelType::I32, ChannelType::F64, ChannelType::U64][unit as usize];
    let channels = [("n", ChannelType::I64), ("x", ChannelType::F64), ("v", v), ("s", ChannelType::String)];
    StreamSpec {
        clock: Clock::Source,
        ..StreamSpec::new(
            StreamKey::new("h", [("unit".to_owned(), unit.to_string())]),
            channels.map(|(name, kind)| ChannelSpec::new(name, kind)).to_vec(),
        )
    }
}

impl Pair {
    fn round(&mut self, round: i64) {
        for n in round * FRAMES..(round + 1) * FRAMES {
            let unit = self.rng.i64(0..3);
            let late = if self.rng.u8(..50) == 0 { self.rng.i64(0..3_600_000) * MS } else { 0 };
            let text: String = std::iter::repeat_with(|| self.rng.alphanumeric()).take(200).collect();
            let x = self.rng.i32(-9_999..9_999);
            for store in [&self.small, &self.large] {
                let (stream, at) = store.resolve(&spec(unit), T0).unwrap();
                let mut batch = FrameBatch::new();
                let time = T0 + n * STEP;
                batch.begin(FrameHead {
                    stream: stream.id,
                    receive_time: time,
                    source_time: Some(time - late),
                    sequence: None,
                });
                batch.push(at[0], Value::I64(n));
                if x % 7 != 0 {
                    batch.push(at[1], Value::F64(f64::from(x) / 4.0));
                }
                let v = [Value::I32(n as i32), Value::F64(n as f64 / 2.0), Value::U64(n as u64)][unit as usize];
                batch.push(at[2], v);
                batch.push(at[3], Value::String(&text));
                batch.end();
                let appended = store.append(&batch, time);
                assert!(matches!(appended.outcomes[0], Outcome::Stored { .. }), "{:?}", appended.outcomes);
            }
        }
        let now = T0 + (round + 1) * FRAMES * STEP;
        for store in [&self.small, &self.large] {
            store.commit(now).unwrap();
        }
        self.archive();
        for store in [&self.small, &self.large] {
            while store.maintain(now).unwrap() {}
        }
    }

    /// Writes what is new to the lake.
    fn archive(&mut self) {
        let view = self.small.view();
        let mut read = Vec::new();
        for stream in view.catalog().streams.iter().filter(|stream| stream.key.table == "h") {
            let channels: Vec<ChannelIndex> = (0..4).map(ChannelIndex).collect();
            let mut scan = Scan::all(stream.id, channels.clone());
            scan.rows = self.positions.get(&stream.id).copied().unwrap_or(0)..u64::MAX;
            for batch in view.scan(scan) {
                read.push((stream.clone(), channels.clone(), batch.unwrap()));
            }
        }
        let frames: Vec<LakeFrames<'_>> =
            read.iter().map(|(stream, channels, batch)| LakeFrames { stream, channels, batch }).collect();
        self.writer.write(view.catalog(), &frames, T0).unwrap();
        for (stream, _, batch) in &read {
            self.positions.insert(stream.id, batch.rows.last().unwrap() + 1);
        }
    }
}

fn pair(folder: &Path) -> (Pair, Arc<LakeHistory>) {
    let region = MemoryRegion::new(REGION_BYTES);
    let fixed = FixedOptions { log_bytes: Some(LOG_BYTES), ..FixedOptions::new(REGION_BYTES as u64) };
    let small = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).unwrap();
    let large = Store::open(&folder.join("large"), StoreOptions::default(), T0).unwrap();
    let place = LakePlace { url: format!("file://{}/lake", folder.display()), ..LakePlace::default() };
    let history = Arc::new(LakeHistory::new(place.clone(), small.origin()));
    let mut writer = LakeWriter::new(place, small.origin(), Some(&history)).unwrap();
    let positions = writer.open(T0).unwrap();
    let pair = Pair { small, large, writer, positions, rng: Rng::with_seed(1), _region: region };
    (pair, history)
}

/// Runs what blocks, and brings what it worked with back.
async fn apart<T: Send + 'static>(mut value: T, work: impl FnOnce(&mut T) + Send + 'static) -> T {
    let worked = tokio::task::spawn_blocking(move || {
        work(&mut value);
        value
    });
    worked.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_a_store_that_keeps_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (mut pair, history) = tokio::task::spawn_blocking(move || pair(&path)).await.unwrap();
    let with_history = QueryOptions { history: Some(history), ..QueryOptions::default() };
    let query = Query::new(pair.small.clone(), Arc::new(Rows), with_history).unwrap();
    let small = Fixture::serving(pair.small.clone(), query, PgAuth::Trust, tempfile::tempdir().unwrap()).await;
    let query = Query::new(pair.large.clone(), Arc::new(Rows), QueryOptions::default()).unwrap();
    let large = Fixture::serving(pair.large.clone(), query, PgAuth::Trust, folder).await;
    let (client, expected) = (small.client().await, large.client().await);
    let mut has_left = false;
    for part in 0..4 {
        pair = apart(pair, move |pair| (part * ROUNDS / 4..(part + 1) * ROUNDS / 4).for_each(|n| pair.round(n))).await;
        let mut random = Rng::with_seed(part as u64);
        let end = (part + 1) * ROUNDS / 4 * FRAMES;
        let mut span = |length: i64| {
            let from = T0 + random.i64(0..end) * STEP;
            format!("time_ns >= {from} and time_ns < {}", from + length * STEP)
        };
        let mut statements = vec![
            "select count(*), count(x), sum(n), min(time_ns), max(time_ns), count(distinct n), sum(v), max(s) from h"
                .to_owned(),
            "select unit, count(*), sum(x), min(v), max(v) from h group by unit order by unit".to_owned(),
            "select count(*) from h".to_owned(),
            "select time_ns, n, v, s from h order by time_ns desc, n limit 5".to_owned(),
            "select time, n from h order by time desc limit 7".to_owned(),
            "select time, n from h where unit = '1' order by time limit 7".to_owned(),
            "select time, n, unit from h where unit in ('0', '2') and n < 100 order by n".to_owned(),
            "select date_bin('1 hour', time) h, unit, count(*), avg(n) from h group by 1, 2 order by 1, 2".to_owned(),
            "select count(*) from h where n % 1000 = 7".to_owned(),
            "select a.n, b.x from h a join h b on a.n = b.n where a.n between 5 and 25 order by 1".to_owned(),
            "select n from h where n in (select max(n) - 40000 from h)".to_owned(),
            "select time, receive_time_ns, source_time_ns, sequence, n from h where n < 5 order by n".to_owned(),
        ];
        for length in [1, 10, 1_000, 30_000] {
            let (first, second) = (span(length), span(length));
            statements.push(format!("select time_ns, unit, n, x, v, s from h where {first} order by time_ns, n"));
            statements.push(format!("select time, n from h where unit = '2' and {second} order by n"));
            statements.push(format!("select unit, count(*), sum(n) from h where {second} group by unit order by unit"));
        }
        for statement in &statements {
            // A plan that is used again gives the same.
            for _ in 0..2 {
                let (found, expected) = (texts(&client, statement).await, texts(&expected, statement).await);
                assert_eq!(found, expected, "{statement}");
            }
        }
        let plan = format!("{:?}", texts(&client, "explain select sum(n) from h").await);
        has_left |= plan.contains("LakeScan");
    }
    assert!(has_left, "the small store has all frames");
    // The writer has threads of its own, which must not end here.
    tokio::task::spawn_blocking(|| drop(pair)).await.unwrap();
}
