//! Golden stores: a folder and a file of a fixed size as a kill left them, with rows in the log, sealed, mixed and settled
//! blocks, pyramids, arrays, blobs, runs, groups and reductions. Whatever this crate becomes, it opens them and goes on.

use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use serde_json::{Value as Json, json};
use strongback_store::inspect::{Depth, Inspection, inspect};
use strongback_store::*;
use tempfile::TempDir;

use super::golden::{assert_same, golden, read_by_python, said};
use crate::kit::*;

const T0: i64 = 1_763_600_000_000_000_000;

fn folder_options() -> StoreOptions {
    StoreOptions {
        log_bytes: 256 << 10,
        segment_bytes: 64 << 10,
        max_bytes: Some(16 << 20),
        open_bytes: 16 << 10,
        retention: vec![group("precious", "valve*", Keep::Bytes(256 << 10))],
        ..StoreOptions::default()
    }
}

fn fixed_options() -> FixedOptions {
    FixedOptions { max_streams: 12, max_channels: 120, log_bytes: Some(64 << 10), ..FixedOptions::new(800 << 10) }
}

fn periodic(table: &str, tags: &[(&str, &str)], channels: Vec<ChannelSpec>) -> StreamSpec {
    let spec = spec(table, channels).source("golden");
    let spec = StreamSpec { expected_period_ns: Some(10 * MS), ..spec };
    tags.iter().fold(spec, |spec, (key, value)| spec.tag(key, value))
}

/// Every kind of channel there is.
fn every_kind() -> Vec<ChannelSpec> {
    let kinds = [
        ChannelType::F32,
        ChannelType::F64,
        ChannelType::Bool,
        ChannelType::I8,
        ChannelType::I16,
        ChannelType::I32,
        ChannelType::I64,
        ChannelType::U8,
        ChannelType::U16,
        ChannelType::U32,
        ChannelType::U64,
        ChannelType::String,
        ChannelType::Array(ArrayType::variable(ElementType::I32)),
        ChannelType::Blob,
    ];
    kinds.into_iter().map(|kind| ChannelSpec::new(kind.name(), kind)).collect()
}

/// Frames, as they are fed to either store.
struct Feed {
    random: Rng,
    now: i64,
    kinds: StreamId,
    counted: StreamId,
    valves: StreamId,
    run: StreamId,
    growing: StreamId,
    sequence: u64,
}

impl Feed {
    fn new(store: &Store) -> Feed {
        store.protect_run("test 7", T0).unwrap();
        let resolve = |spec: &StreamSpec| store.resolve(spec, T0).unwrap().0.id;
        let kinds = resolve(&periodic("kinds", &[("unit", "a"), ("axis", "x y")], every_kind()));
        let counts = vec![ChannelSpec::new("count", ChannelType::U32)];
        let counted = periodic("counted", &[], counts).clock(Clock::Source).modulus(Some(1 << 16));
        let mut door = ChannelSpec::new("door", ChannelType::F64);
        door.reduction = Reduction::SwingingDoor { bound: 0.5 };
        let mut band = ChannelSpec::new("band", ChannelType::F32);
        band.reduction = Reduction::Deadband { bound: 2.0 };
        let mut step = ChannelSpec::new("open", ChannelType::Bool);
        step.reduction = Reduction::Step;
        Feed {
            random: Rng::with_seed(77),
            now: T0,
            kinds,
            counted: resolve(&counted),
            valves: resolve(&periodic("valves", &[], vec![door, band, step])),
            run: resolve(&periodic("counted", &[("run", "test 7")], vec![ChannelSpec::new("x", ChannelType::I16)])),
            growing: resolve(&periodic("growing", &[], vec![ChannelSpec::new("c0", ChannelType::F64)])),
            sequence: 65_000,
        }
    }

    fn frames(&mut self, store: &Store, count: usize) {
        let mut batch = FrameBatch::new();
        for n in 0..count {
            self.now += 10 * MS + self.random.i64(0..MS);
            let (now, i, random) = (self.now, ChannelIndex, &mut self.random);
            let head = |stream| head(stream, now);
            batch.begin(head(self.kinds).sampled(random.bool().then_some(now - MS)));
            batch.push(i(0), Value::F32(random.f32()));
            batch.push(
                i(1),
                Value::F64(
                    [random.i32(-999..999) as f64 * 0.01, f64::NAN, -0.0]
                        [usize::from(random.u8(0..30) == 0) * random.usize(0..3)],
                ),
            );
            batch.push(i(2), Value::Bool(random.bool()));
            batch.push(i(3), Value::I8(random.i8(..)));
            batch.push(i(4), Value::I16(random.i16(-9..9)));
            batch.push(i(5), Value::I32(random.i32(..)));
            batch.push(i(6), Value::I64(if n == 0 { i64::MIN } else { n as i64 * 7 }));
            match random.u8(0..9) {
                0 => batch.push_state(i(7), CellState::Unknown),
                1 => {}
                v => batch.push(i(7), Value::U8(v)),
            }
            batch.push(i(8), Value::U16(random.u16(0..4)));
            batch.push(i(9), Value::U32(random.u32(..)));
            batch.push(i(10), Value::U64(u64::MAX - random.u64(0..100)));
            batch.push(i(11), Value::String(["", "ready", "Zünden"][random.usize(..3)]));
            if n % 8 == 0 {
                let wave: Vec<i32> = (0..random.i32(0..40)).map(|at| at * at).collect();
                batch.push_array(i(12), &wave);
            }
            batch.end();
            self.sequence += if random.u8(0..40) == 0 { 3 } else { 1 };
            batch.put(
                head(self.counted)
                    .sampled(Some(now - 5 * MS - random.i64(0..20 * MS)))
                    .numbered(Some(self.sequence % (1 << 16))),
                [Value::U32(n as u32 / 3)],
            );
            batch.begin(head(self.valves));
            batch.push(i(0), Value::F64((n as f64 / 9.0).sin() * 3.0));
            batch.push(i(1), Value::F32(random.f32() * 3.0));
            // The last one is a row: nothing is held.
            batch.push(i(2), Value::Bool(n % 50 < 9 || n + 1 == count));
            batch.end();
            batch.put(head(self.growing), [Value::F64(random.u16(0..4096) as f64 * 0.05)]);
            if n % 4 == 0 {
                batch.put(head(self.run), [Value::I16(random.i16(..))]);
            }
        }
        for outcome in store.append(&batch, self.now).outcomes {
            assert!(matches!(outcome, Outcome::Stored { .. } | Outcome::Reduced { .. }), "{outcome:?}");
        }
    }

    fn blob(&mut self, store: &Store, len: usize) {
        self.now += MS;
        let mut writer = store.blob(self.kinds).unwrap();
        writer.write(&(0..len).map(|at| (at * 31 / 7) as u8).collect::<Vec<u8>>()).unwrap();
        let reference = writer.finish(self.now).unwrap();
        let mut batch = FrameBatch::new();
        batch.put_at(head(self.kinds, self.now), [(ChannelIndex(13), Value::Blob(reference))]);
        store.append(&batch, self.now);
    }

    /// Another layout, and so a block of its own.
    fn grow(&mut self, store: &Store, step: usize) {
        let channels = (0..=step).map(|c| ChannelSpec::new(format!("c{c}"), ChannelType::F64)).collect();
        store.resolve(&periodic("growing", &[], channels), self.now).unwrap();
    }

    fn all(&mut self, store: &Store, blob_bytes: usize) {
        for step in 1..7 {
            (0..14).for_each(|_| {
                self.frames(store, 10);
                upkeep(store, self.now);
            });
            self.grow(store, step);
            upkeep(store, self.now);
        }
        self.blob(store, blob_bytes);
        upkeep(store, self.now);
        assert!(store.settle(self.now).unwrap() > 0);
        self.frames(store, 15);
        store.commit(self.now).unwrap();
        // Reduced frames alone: the newest is held in the log.
        let mut batch = FrameBatch::new();
        batch.put_at(head(self.valves, self.now), [(ChannelIndex(1), Value::F32(1.5))]);
        store.append(&batch, self.now);
        store.commit(self.now).unwrap();
    }
}

fn upkeep(store: &Store, now: i64) {
    store.commit(now).unwrap();
    while store.maintain(now).unwrap() {}
}

/// Everything that can be read.
fn content(store: &Store) -> Json {
    let view = store.view();
    let mut streams = Vec::new();
    for stream in &view.catalog().streams {
        let columns: Vec<ChannelIndex> = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
        let channels: Vec<Json> = stream
            .layout
            .channels
            .iter()
            .map(|c| json!([c.name, c.channel_type.name(), c.reduction.to_string()]))
            .collect();
        let mut rows = Vec::new();
        for batch in view.scan(Scan::all(stream.id, columns)) {
            let batch = batch.unwrap();
            for at in 0..batch.len() {
                let source = batch.source_time.as_ref().and_then(|times| times.get(at));
                let sequence = batch.sequence.as_ref().and_then(|sequences| sequences.get(at));
                let cell = |column: &Column| match column.cell(at) {
                    Ok(Value::Blob(blob)) => json!(blob_sum(&view, stream.id, &blob)),
                    Ok(value) => said(value),
                    Err(state) => json!(state as u8),
                };
                let cells: Vec<Json> = batch.columns.iter().map(cell).collect();
                rows.push(json!([
                    batch.rows[at],
                    batch.receive_time[at] - T0,
                    source.map(|t| t - T0),
                    sequence,
                    cells
                ]));
            }
        }
        // Gap rows are written when the ledger finds time for them.
        if !stream.key.table.starts_with("strongback.") {
            streams.push(json!({ "name": stream.key.to_string(), "channels": channels, "rows": rows }));
        }
    }
    let runs: Vec<Json> = store.runs().iter().map(|run| json!([run.name, run.protected])).collect();
    json!({ "streams": streams, "runs": runs })
}

fn blob_sum(view: &View, stream: StreamId, reference: &BlobRef) -> String {
    let (mut reader, mut sum, mut len) = (view.blob(stream, reference).unwrap(), 0u64, 0);
    while let Some(chunk) = reader.next_chunk().unwrap() {
        sum = chunk.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        len += chunk.len();
    }
    format!("{len} bytes, {sum:x}")
}

/// Run by hand, and never again for a version that is out: `cargo test -p strongback-store --test format -- --ignored golden_stores`.
#[test]
#[ignore = "writes the golden files"]
fn make_the_golden_stores() {
    let home = TempDir::new().unwrap();
    let folder = home.path().join("folder");
    let store = Store::open(&folder, folder_options(), T0).unwrap();
    Feed::new(&store).all(&store, 20_000);
    fs::write(golden("v1.folder.json"), serde_json::to_string(&content(&store)).unwrap()).unwrap();
    std::mem::forget(store);
    let _ = fs::remove_dir_all(golden("v1.folder"));
    fs::create_dir(golden("v1.folder")).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "lock" {
            fs::copy(entry.path(), golden("v1.folder").join(entry.file_name())).unwrap();
        }
    }
    let file = home.path().join("fixed");
    let options = StoreOptions { open_bytes: 8 << 10, ..StoreOptions::default() };
    let store = Store::create_fixed(&file, &fixed_options(), options, T0).unwrap();
    let mut feed = Feed::new(&store);
    feed.all(&store, 3_000);
    fs::write(golden("v1.fixed.json"), serde_json::to_string(&content(&store)).unwrap()).unwrap();
    std::mem::forget(store);
    fs::copy(&file, golden("v1.fixed")).unwrap();
}

/// A golden store where it may be written to.
fn copied(name: &str) -> (TempDir, PathBuf) {
    let home = TempDir::new().unwrap();
    let (from, to) = (golden(name), home.path().join(name));
    if from.is_dir() {
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    } else {
        fs::copy(from, &to).unwrap();
    }
    (home, to)
}

fn expected(name: &str) -> Json {
    serde_json::from_slice(&fs::read(golden(&format!("{name}.json"))).unwrap()).unwrap()
}

fn opens_and_goes_on(name: &str, path: &Path, options: &StoreOptions) -> Inspection {
    let found = inspect(path, Depth::Everything).unwrap();
    assert!(found.is_sound(), "{found}");
    assert!(matches!(Store::open(path, options.clone(), T0), Err(OpenError::Copied { .. })), "it is a copy");
    Store::adopt(path).unwrap();
    let now = T0 + 3_600_000 * MS;
    let store = Store::open(path, options.clone(), now).unwrap();
    assert!(store.recovery().frames > 0 && store.recovery().damaged.is_empty(), "{:?}", store.recovery());
    assert_same(&content(&store), &expected(name), name);
    let mut feed = Feed { now, ..Feed::new(&store) };
    for _ in 0..4 {
        feed.frames(&store, 10);
        upkeep(&store, feed.now);
    }
    let after = content(&store);
    store.close(feed.now).unwrap();
    let store = Store::open(path, options.clone(), feed.now).unwrap();
    // What a swinging door held at the end is a row now.
    let mut again = content(&store);
    for (stream, before) in
        again["streams"].as_array_mut().unwrap().iter_mut().zip(after["streams"].as_array().unwrap())
    {
        let was = before["rows"].as_array().unwrap().len();
        let more = stream["rows"].as_array().unwrap().len() - was;
        assert!(more <= usize::from(stream["name"] == "valves"), "{more} more rows of {}", stream["name"]);
        stream["rows"].as_array_mut().unwrap().truncate(was);
    }
    assert_same(&again, &after, "opened again");
    found
}

#[test]
fn the_golden_folder_opens_and_goes_on() {
    let (_home, path) = copied("v1.folder");
    let found = opens_and_goes_on("v1.folder", &path, &folder_options());
    let groups: Vec<&str> = found.segments.iter().map(|s| s.group.as_str()).collect();
    for group in ["data", "precious", "run test 7"] {
        assert!(groups.contains(&group), "{groups:?}");
    }
    assert!(found.segments.iter().any(|s| s.settled) && found.verified_pyramids > 0, "{found}");
    assert!(found.blobs().0 > 0 && found.log.commits > 0, "{found}");
    // The second implementation reads what settle writes too, and passes over its pyramids.
    for segment in found.segments.iter().filter(|s| s.sealed) {
        let read = read_by_python(&golden("v1.folder").join(&segment.file));
        let rows = |block: &Json| {
            let parts = block.get("parts").and_then(Json::as_array).cloned().unwrap_or_else(|| vec![block.clone()]);
            parts.iter().map(|part| part["rows"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(read["blocks"].as_array().unwrap().iter().map(rows).sum::<u64>(), segment.rows, "{}", segment.file);
    }
}

#[test]
fn the_golden_file_of_a_fixed_size_opens_and_goes_on() {
    let (_home, path) = copied("v1.fixed");
    let bytes = fs::metadata(&path).unwrap().len();
    let found = opens_and_goes_on("v1.fixed", &path, &StoreOptions::default());
    assert_eq!((bytes, fs::metadata(&path).unwrap().len()), (fixed_options().size_bytes, bytes));
    assert!(found.segments.iter().any(|s| s.settled) && found.blobs().0 > 0 && found.log.commits > 0, "{found}");
}
