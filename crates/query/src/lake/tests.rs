//! The lake compared with a model: the files of all commits have each frame exactly once, also if writes fail, or if two
//! writers work at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::arrow::util::display::array_value_to_string;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result as ObjectResult,
};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use strongback_store::{
    ArrayRef as StoreArray, ArrayType, Batch, ChannelSpec, ChannelType, Clock, ElementType, FrameBatch, FrameHead,
    Scan, Store, StoreOptions, StreamKey, StreamSpec, Value,
};

use super::*;

const NOW: i64 = 1_790_000_000_000_000_000;
const DAY: i64 = 86_400_000_000_000;

/// Storage in memory, one of whose writes and deletions fails.
#[derive(Debug)]
struct Faulty {
    objects: Arc<InMemory>,
    /// Number of calls before the one that fails; `u32::MAX` if none does.
    left: AtomicU32,
    /// Whether the call that fails does its work.
    after: bool,
}

impl Faulty {
    fn fails(&self) -> bool {
        let left = self.left.load(Relaxed);
        self.left.store(if left == u32::MAX { left } else { left.saturating_sub(1) }, Relaxed);
        left == 0
    }
}

fn failure<T>() -> ObjectResult<T> {
    Err(object_store::Error::Generic { store: "faulty", source: "cut".into() })
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> ObjectResult<PutResult> {
        match self.fails() {
            false => self.objects.put_opts(path, payload, options).await,
            true => {
                if self.after {
                    self.objects.put_opts(path, payload, options).await?;
                }
                failure()
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> ObjectResult<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> ObjectResult<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, ObjectResult<Path>>) -> BoxStream<'static, ObjectResult<Path>> {
        match self.fails() {
            true => Box::pin(futures::stream::iter([failure()])),
            false => self.objects.delete_stream(paths),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, ObjectResult<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> ObjectResult<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> ObjectResult<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// Returns a writer to objects in memory, whose call number `fails` fails.
fn writer(objects: &Arc<InMemory>, origin: u128, fails: Option<(u32, bool)>) -> LakeWriter {
    let (left, after) = fails.unwrap_or((u32::MAX, false));
    let objects = Arc::new(Faulty { objects: objects.clone(), left: AtomicU32::new(left), after });
    let connect = move || Ok(Folder::of(objects.clone()));
    LakeWriter::connecting(Box::new(connect), origin, Arc::default()).unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), StoreOptions::default(), NOW).unwrap();
    (folder, store)
}

/// Appends frames of several streams, whose times are on several days and not in order. Channels of one name have
/// several types.
fn fill(store: &Store, rng: &mut fastrand::Rng, frames: usize) {
    let array = ChannelType::Array(ArrayType::variable(ElementType::F32));
    let kinds = [ChannelType::I32, ChannelType::F64, ChannelType::U64, ChannelType::String, ChannelType::Bool, array];
    for n in 0..frames {
        let (table, tag) = (["t", "u v/\u{fc}"][rng.usize(..2)], rng.usize(..3));
        let channels: Vec<ChannelSpec> = ["p", "P", "a.b"]
            .iter()
            .enumerate()
            .map(|(at, name)| ChannelSpec::new(*name, kinds[(tag * 2 + at) % kinds.len()]))
            .collect();
        let spec = StreamSpec {
            clock: Clock::Source,
            ..StreamSpec::new(StreamKey::new(table, [("unit".to_owned(), tag.to_string())]), channels.clone())
        };
        let (stream, indices) = store.resolve(&spec, NOW).unwrap();
        let mut batch = FrameBatch::new();
        let time = NOW + n as i64 * 1_000_003 - rng.i64(0..3) * DAY;
        batch.begin(FrameHead {
            stream: stream.id,
            receive_time: NOW + n as i64,
            source_time: Some(time),
            sequence: rng.bool().then_some(n as u64),
        });
        let text = format!("text {n}");
        let elements: Vec<u8> = (0..n % 4).flat_map(|at| (at as f32 / 2.0).to_le_bytes()).collect();
        for (channel, index) in channels.iter().zip(&indices) {
            let value = match channel.channel_type {
                _ if rng.u8(..10) == 0 => continue,
                ChannelType::I32 => Value::I32(rng.i32(..)),
                ChannelType::F64 => Value::F64([0.1, -0.0, f64::INFINITY, n as f64][n % 4]),
                ChannelType::U64 => Value::U64(u64::MAX - n as u64),
                ChannelType::Bool => Value::Bool(n % 2 == 0),
                ChannelType::String => Value::String(&text),
                _ => Value::Array(StoreArray::new(ElementType::F32, &elements).unwrap()),
            };
            batch.push(*index, value);
        }
        batch.end();
        store.append(&batch, NOW);
    }
    store.commit(NOW).unwrap();
}

/// Frames of a stream, as a follower reads them.
type Read = (Arc<Stream>, Vec<strongback_store::ChannelIndex>, Batch);

/// Reads up to `most` rows of each stream from its position.
fn read(store: &Store, positions: &HashMap<StreamId, u64>, most: usize) -> Vec<Read> {
    let view = store.view();
    let mut all = Vec::new();
    for stream in view.catalog().streams.iter().filter(|stream| !stream.key.table.starts_with("strongback")) {
        let channels: Vec<_> =
            (0..stream.layout.channels.len()).map(|at| strongback_store::ChannelIndex(at as u16)).collect();
        let mut scan = Scan::all(stream.id, channels.clone());
        (scan.rows, scan.batch_rows) = (positions.get(&stream.id).copied().unwrap_or(0)..u64::MAX, most);
        if let Some(batch) = view.scan(scan).next() {
            all.push((stream.clone(), channels, batch.unwrap()));
        }
    }
    all
}

/// Writes what is not in the lake yet, in several commits, and reopens after each failure.
fn write_all(store: &Store, writer: &mut LakeWriter, most: usize) -> Result<(), LakeError> {
    let mut positions = writer.open(NOW)?;
    loop {
        let read = read(store, &positions, most);
        if read.is_empty() {
            return Ok(());
        }
        let frames: Vec<LakeFrames<'_>> =
            read.iter().map(|(stream, channels, batch)| LakeFrames { stream, channels, batch }).collect();
        writer.write(&store.catalog(), &frames, NOW)?;
        for (stream, _, batch) in &read {
            positions.insert(stream.id, batch.rows.last().unwrap() + 1);
        }
    }
}

/// A frame: its times, tags and values by the names of SQL.
type Frame = BTreeMap<String, String>;

/// Returns the frames in the store.
fn in_store(store: &Store) -> BTreeMap<(String, i64), Frame> {
    let mut frames = BTreeMap::new();
    let view = store.view();
    let streams = read(store, &HashMap::new(), 1).into_iter();
    let all = streams.flat_map(|(stream, channels, _)| {
        let scan = Scan::all(stream.id, channels.clone());
        let batches: Vec<Batch> = view.scan(scan).map(Result::unwrap).collect();
        batches.into_iter().map(move |batch| (stream.clone(), channels.clone(), batch))
    });
    for (stream, channels, batch) in all {
        for at in 0..batch.len() {
            let mut frame = Frame::new();
            frame.insert("time_ns".to_owned(), batch.time(at).to_string());
            frame.insert("receive_time_ns".to_owned(), batch.receive_time[at].to_string());
            frame.extend(stream.key.tags.iter().cloned());
            if let Some(sequence) = batch.sequence.as_ref().and_then(|sequence| sequence.get(at)) {
                frame.insert("sequence".to_owned(), sequence.to_string());
            }
            for (channel, column) in channels.iter().zip(&batch.columns) {
                if let Ok(value) = column.cell(at) {
                    let name = &stream.layout.channels[channel.0 as usize].name;
                    frame.insert(name.clone(), shown(value));
                }
            }
            frames.insert((frames::stream_name(store.origin(), &stream), batch.rows[at] as i64), frame);
        }
    }
    frames
}

fn shown(value: Value<'_>) -> String {
    match value {
        Value::I32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F64(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
        Value::String(value) => value.to_owned(),
        Value::Array(array) => {
            let elements: Vec<String> = array.iter().map(|element| format!("{element:?}")).collect();
            format!("{elements:?}").replace("F32(", "").replace([')', '"'], "")
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the frames in the files of all commits, and checks what readers rely on.
fn in_lake(objects: &Arc<InMemory>) -> BTreeMap<(String, i64), Frame> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = Folder::of(objects.clone());
    let mut log = Log::default();
    runtime.block_on(log.follow(&folder)).unwrap();
    let mut frames = BTreeMap::new();
    for (table, files) in &log.files {
        let book = &log.books[table];
        let of_sql: HashMap<&str, &str> =
            book.columns().iter().map(|column| (column.name.as_str(), column.column.as_str())).collect();
        for file in files {
            let path = Path::parse(&file.path).unwrap();
            let bytes = runtime.block_on(folder.get(&path)).unwrap().unwrap_or_else(|| panic!("{path} is missing"));
            assert_eq!(file.bytes, bytes.len() as u64);
            let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(file.sha256, digest);
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
            for field in reader.schema().fields() {
                let column = book.columns().iter().find(|column| column.name == *field.name()).unwrap();
                assert_eq!(field.metadata()[PARQUET_FIELD_ID_META_KEY], column.id.to_string());
                assert_eq!(*field.data_type(), column.data_type(), "{}", field.name());
            }
            let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
            let mut last = None;
            for batch in &batches {
                add(batch, file, &of_sql, &mut frames, &mut last);
            }
            assert_eq!(file.rows, batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
        }
    }
    frames
}

fn add(
    batch: &RecordBatch,
    file: &LakeFile,
    of_sql: &HashMap<&str, &str>,
    frames: &mut BTreeMap<(String, i64), Frame>,
    last: &mut Option<(String, i64, i64)>,
) {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    for at in 0..batch.num_rows() {
        let stream = column(frames::STREAM).as_string::<i32>().value(at).to_owned();
        let row = column(frames::ROW).as_primitive::<Int64Type>().value(at);
        let time_ns = column("time_ns").as_primitive::<Int64Type>().value(at);
        let micros = column("time").as_primitive::<TimestampMicrosecondType>().value(at);
        assert_eq!(micros, time_ns.div_euclid(1_000));
        let day = time_ns.div_euclid(DAY);
        let day = date32_to_datetime(day as i32).unwrap().format("%Y-%m-%d").to_string();
        assert_eq!(day, file.day);
        assert!(file.time_ns.0 <= time_ns && time_ns <= file.time_ns.1);
        let id: u32 = stream.split_once('-').unwrap().1.parse().unwrap();
        let of_stream = file.streams.iter().find(|(stream, ..)| *stream == id).unwrap();
        assert!((of_stream.1..=of_stream.2).contains(&(row as u64)));
        // In the order of streams, times and rows.
        let place = (stream.clone(), time_ns, row);
        assert!(last.as_ref().is_none_or(|last| *last < place), "{last:?} and then {place:?}");
        *last = Some(place);
        let mut frame = Frame::new();
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            let name = of_sql[field.name().as_str()];
            if array.is_null(at)
                || name.starts_with("strongback_")
                || ["time", "receive_time", "source_time", "source_time_ns"].contains(&name)
            {
                continue;
            }
            let text = array_value_to_string(array, at).unwrap();
            assert!(frame.insert(name.to_owned(), text).is_none(), "{name} has two values");
        }
        assert!(frames.insert((stream, row), frame).is_none(), "a row is there twice");
    }
}

fn compare(store: &Store, objects: &Arc<InMemory>) {
    let (here, there) = (in_store(store), in_lake(objects));
    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
    for (place, mut frame) in here {
        let there = &there[&place];
        // Names of SQL: a channel whose type does not fit the column of its name has another one.
        for (name, value) in std::mem::take(&mut frame) {
            let is_it = |(other, text): &(&String, &String)| {
                (**other == name || other.starts_with(&format!("{name}_"))) && **text == value
            };
            assert!(there.iter().any(|other| is_it(&other)), "{name} = {value} of {place:?} is not in {there:?}");
            frame.insert(name, value);
        }
        assert_eq!(there.len(), frame.len(), "{there:?} and {frame:?}");
    }
}

/// Returns the paths of all objects that no commit names.
fn unnamed(objects: &Arc<InMemory>) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = Folder::of(objects.clone());
    let mut log = Log::default();
    runtime.block_on(log.follow(&folder)).unwrap();
    let all = runtime.block_on(folder.list(&Path::default())).unwrap();
    let is_unnamed = |path: &String| !path.starts_with("_strongback/commits/") && !log.has(path);
    all.into_iter().map(|path| path.to_string()).filter(is_unnamed).collect()
}

#[test]
fn each_frame_is_there_once_with_its_values() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (_folder, store) = store();
    let objects = Arc::new(InMemory::new());
    let mut writer = writer(&objects, store.origin(), None);
    for _ in 0..3 {
        fill(&store, &mut rng, 200);
        write_all(&store, &mut writer, 40).unwrap();
    }
    compare(&store, &objects);
    assert_eq!(unnamed(&objects), BTreeSet::new());
}

#[test]
fn each_frame_is_there_once_whichever_write_fails() {
    for after in [false, true] {
        for fails in 0.. {
            let mut rng = fastrand::Rng::with_seed(u64::from(fails));
            let (_folder, store) = store();
            let objects = Arc::new(InMemory::new());
            fill(&store, &mut rng, 24);
            let mut cut = writer(&objects, store.origin(), Some((fails, after)));
            let has_failed = write_all(&store, &mut cut, 3).is_err();
            // Another one, after a restart, goes on.
            let mut next = writer(&objects, store.origin(), None);
            write_all(&store, &mut next, 2).unwrap();
            compare(&store, &objects);
            assert_eq!(unnamed(&objects), BTreeSet::new(), "write {fails}, {after}");
            if !has_failed {
                break;
            }
        }
    }
}

#[test]
fn of_two_writers_the_one_that_is_late_reads_again() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (_folder, store) = store();
    let objects = Arc::new(InMemory::new());
    let mut writers = [writer(&objects, store.origin(), None), writer(&objects, store.origin(), None)];
    let mut positions = [HashMap::new(), HashMap::new()];
    let mut moved = 0;
    for n in 0..2 {
        positions[n] = writers[n].open(NOW).unwrap();
    }
    for _ in 0..40 {
        fill(&store, &mut rng, 20);
        let n = rng.usize(..2);
        let read = read(&store, &positions[n], usize::MAX);
        let frames: Vec<LakeFrames<'_>> =
            read.iter().map(|(stream, channels, batch)| LakeFrames { stream, channels, batch }).collect();
        match writers[n].write(&store.catalog(), &frames, NOW) {
            Ok(_) => read.iter().for_each(|(stream, _, batch)| {
                positions[n].insert(stream.id, batch.rows.last().unwrap() + 1);
            }),
            Err(LakeError::Moved(_)) => {
                moved += 1;
                positions[n] = writers[n].open(NOW).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(moved > 5);
    write_all(&store, &mut writers[0], usize::MAX).unwrap();
    compare(&store, &objects);
    assert_eq!(unnamed(&objects), BTreeSet::new());
}

#[test]
fn a_lake_of_another_store_and_a_log_with_a_hole_are_refused() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (_folder, store) = store();
    let objects = Arc::new(InMemory::new());
    fill(&store, &mut rng, 30);
    let mut own = writer(&objects, store.origin(), None);
    write_all(&store, &mut own, 3).unwrap();
    let error = writer(&objects, store.origin() + 1, None).open(NOW).unwrap_err().to_string();
    assert!(error.contains("another store"), "{error}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let commit = Path::parse("_strongback/commits/00000001.json").unwrap();
    let folder = Folder::of(objects.clone());
    let bytes = runtime.block_on(folder.get(&commit)).unwrap().unwrap();
    runtime.block_on(folder.delete([commit.clone()])).unwrap();
    let error = own.open(NOW).unwrap_err().to_string();
    assert!(error.contains("00000001.json is missing"), "{error}");
    for wrong in [&bytes[..bytes.len() / 2], b"{}", b"null"] {
        runtime.block_on(folder.put(&commit, wrong.to_vec(), false)).unwrap();
        let error = own.open(NOW).unwrap_err().to_string();
        assert!(error.contains("00000001.json"), "{error}");
    }
    runtime.block_on(folder.put(&commit, bytes.to_vec(), false)).unwrap();
    own.open(NOW).unwrap();
    compare(&store, &objects);
}
