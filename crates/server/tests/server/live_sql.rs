//! Live SQL: what a subscription sends is what plain statements say in the end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use strongback_query::{
    LiveMessages, NoSystemRows, Query, QueryError, QueryOptions, SUBSCRIBE_LATENESS, SubscribeRequest,
};
use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Store, StoreOptions, StreamKey, StreamSpec,
};
use strongback_store::{Outcome, Value as Cell};

use crate::client::PATIENCE;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
/// 2026-11-20 00:00:00 UTC.
const T0: i64 = 1_795_132_800 * SECOND;

fn now_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// A store that seals often, with an engine.
struct Engine {
    store: Store,
    query: Query,
}

impl Engine {
    fn open(dir: &std::path::Path) -> Engine {
        Engine::with(dir, StoreOptions { log_bytes: 8 << 20, open_bytes: 96 << 10, ..options() })
    }

    fn with(dir: &std::path::Path, options: StoreOptions) -> Engine {
        let store = Store::open(dir, options, now_ns()).unwrap();
        let query = Query::new(store.clone(), Arc::new(NoSystemRows), QueryOptions::default()).unwrap();
        Engine { store, query }
    }

    async fn plain(&self, sql: &str) -> Vec<String> {
        let answer = self.query.sql_json(sql, 10_000_000, PATIENCE).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let answer: Value = serde_json::from_str(answer.as_str()).unwrap();
        assert_eq!(answer["truncated"], false);
        texts(&answer)
    }

    async fn subscribe(&self, sql: &str) -> Client {
        self.subscribe_with(request(sql)).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    async fn subscribe_with(&self, request: SubscribeRequest) -> Result<Client, QueryError> {
        let messages = self.query.subscribe(request, Some(7)).await?;
        Ok(Client { messages, until: tokio::time::Instant::now() + 3 * PATIENCE })
    }

    async fn refusal(&self, sql: &str) -> QueryError {
        self.query.subscribe(request(sql), None).await.expect_err(sql)
    }

    fn commit(&self) {
        self.store.commit(now_ns()).unwrap();
    }
}

fn options() -> StoreOptions {
    StoreOptions { segment_bytes: 256 << 10, settle_age: Duration::ZERO, ..StoreOptions::default() }
}

fn request(sql: &str) -> SubscribeRequest {
    SubscribeRequest {
        sql: sql.to_owned(),
        interval: Duration::from_millis(10),
        lateness: SUBSCRIBE_LATENESS,
        idle: None,
        resume: None,
        timeout: PATIENCE,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

fn texts(of: &Value) -> Vec<String> {
    of["rows"].as_array().unwrap_or_else(|| panic!("{of}")).iter().map(Value::to_string).collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

struct Client {
    messages: LiveMessages,
    /// No test waits longer for what it wants to see.
    until: tokio::time::Instant,
}

impl Client {
    /// The next message but for heartbeats, or `None` at the end.
    async fn message(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.messages.next()).await.expect("no message")?;
            assert!(tokio::time::Instant::now() < self.until, "what is awaited does not come");
            let body: Value = serde_json::from_str(message.body.as_str()).unwrap();
            assert_eq!((&body["type"], &body["id"]), (&message.kind.name().into(), &7.into()));
            assert_eq!(body["position"].as_str(), message.position.as_deref());
            if body["type"] != "heartbeat" {
                return Some(body);
            }
        }
    }

    async fn next(&mut self) -> Value {
        let message = self.message().await.expect("the end");
        assert_ne!(message["type"], "error", "{message}");
        message
    }

    /// The rows of the next step, which is of one kind.
    async fn step(&mut self, kind: &str) -> (Value, Vec<String>) {
        let mut rows = Vec::new();
        loop {
            let message = self.next().await;
            if message["type"] == "columns" {
                continue;
            }
            assert_eq!(message["type"], kind, "{message}");
            rows.extend(texts(&message));
            if message["last"] == true {
                return (message, rows);
            }
        }
    }

    async fn error(&mut self) -> Value {
        loop {
            let message = self.message().await.expect("the end");
            if message["type"] == "error" {
                assert!(self.message().await.is_none(), "it ends with the error");
                return message;
            }
        }
    }
}

/// Writes rows of table `t` in five streams, of which two come later, with late frames and equal times. Each row has its
/// own `n`.
struct Writer {
    store: Store,
    random: fastrand::Rng,
    n: i64,
    time: i64,
}

impl Writer {
    fn new(store: &Store, seed: u64) -> Writer {
        Writer { store: store.clone(), random: fastrand::Rng::with_seed(seed), n: 0, time: T0 }
    }

    fn append(&mut self, tag: usize, time: i64) {
        let spec = StreamSpec {
            key: StreamKey::new("t", [("k".to_owned(), format!("k{tag}"))]),
            source: "test".into(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("n", ChannelType::I64), ChannelSpec::new("x", ChannelType::F64)],
        };
        let (stream, at) = self.store.resolve(&spec, now_ns()).unwrap();
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stream.id, receive_time: now_ns(), source_time: Some(time), sequence: None });
        batch.push(at[0], Cell::I64(self.n));
        if self.random.u8(0..5) > 0 {
            batch.push(at[1], Cell::F64(f64::from(self.random.i32(-80..80)) / 8.0));
        }
        batch.end();
        let appended = self.store.append(&batch, now_ns());
        assert!(matches!(appended.outcomes[0], Outcome::Stored { .. }), "{:?}", appended.outcomes);
        self.n += 1;
    }

    /// Some rows, of which some are late.
    fn some(&mut self, rows: usize) {
        for _ in 0..rows {
            let known = if self.n < 2_000 { 3 } else { 5 };
            let tag = self.random.usize(..known);
            self.time += self.random.i64(0..3) * 4 * MS;
            let late = if self.random.u8(0..30) == 0 { self.random.i64(0..20_000) * MS } else { 0 };
            self.append(tag, self.time - late);
        }
    }

    fn tend(&self) {
        self.store.commit(now_ns()).unwrap();
        while self.store.maintain(now_ns()).unwrap() {}
    }

    /// Writes until told to stop, with pauses in which nothing is committed.
    fn run(mut self, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<Writer> {
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let rows = self.random.usize(1..60);
                self.some(rows);
                match self.random.u8(0..12) {
                    0 => self.tend(),
                    1..6 => _ = self.store.commit(now_ns()).unwrap(),
                    _ => {}
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            self.store.commit(now_ns()).unwrap();
            self
        })
    }
}

const ROWS: &str = "select n, k, time_ns, x * 2 as y from t where x > -3 or x is null";

/// A client that leaves and comes back, and remembers what it was sent.
#[derive(Default)]
struct Returning {
    client: Option<Client>,
    position: Option<String>,
    rows: Vec<String>,
    /// Times that it continued, and those within a step.
    resumed: usize,
    inside: usize,
}

impl Returning {
    /// Takes the next message, on another connection if there is none.
    async fn take(&mut self, engine: &Engine) {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let wanted = SubscribeRequest { resume: self.position.clone(), ..request(ROWS) };
                let mut client = engine.subscribe_with(wanted).await.unwrap();
                let columns = client.next().await;
                assert_eq!((&columns["type"], &columns["class"]), (&json!("columns"), &json!("rows")));
                match &self.position {
                    Some(position) => {
                        assert_eq!(columns["resumed"], true, "{position}");
                        self.resumed += 1;
                        self.inside += usize::from(!position.contains(";0;"));
                    }
                    None => self.rows.clear(),
                }
                none.insert(client)
            }
        };
        let message = client.next().await;
        assert_eq!(message["type"], "rows", "{message}");
        assert!(message["expired"].is_null(), "{message}");
        self.rows.extend(texts(&message));
        self.position = message["position"].as_str().map(str::to_owned);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sent_exactly_once_over_seals_restarts_and_lost_connections() {
    let (mut resumed, mut inside) = (0, 0);
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut reader, mut written) = (Returning::default(), (0, T0));
        for epoch in 0..3 {
            let engine = Engine::open(dir.path());
            let mut writer = Writer::new(&engine.store, seed * 10 + epoch);
            (writer.n, writer.time) = written;
            writer.some(3_000);
            writer.tend();
            let stop = Arc::new(AtomicBool::new(false));
            let writing = writer.run(stop.clone());
            for _ in 0..40 {
                reader.take(&engine).await;
                if random.u8(0..8) == 0 {
                    // Meanwhile it takes nothing, and the next step becomes long.
                    tokio::time::sleep(Duration::from_millis(random.u64(0..150))).await;
                }
                if random.u8(0..3) == 0 {
                    reader.client = None;
                }
            }
            stop.store(true, Ordering::SeqCst);
            let writer = writing.join().unwrap();
            written = (writer.n, writer.time);
            if epoch == 2 {
                let plain = engine.plain(ROWS).await.len();
                while reader.rows.len() < plain {
                    reader.take(&engine).await;
                }
                // What was sent too often would come before rows that are written now.
                let mut writer = Writer::new(&engine.store, 1);
                writer.n = written.0;
                (0..40).for_each(|_| writer.append(0, written.1));
                writer.tend();
                let all = engine.plain(ROWS).await;
                assert!(all.len() > plain);
                while reader.rows.len() < all.len() {
                    reader.take(&engine).await;
                }
                assert_eq!(sorted(std::mem::take(&mut reader.rows)), sorted(all));
            }
            reader.client = None;
            engine.store.close(now_ns()).unwrap();
        }
        (resumed, inside) = (resumed + reader.resumed, inside + reader.inside);
    }
    assert!(resumed > 20 && inside > 0, "{resumed} connections continued, {inside} within a step");
}

/// Windows as a client knows them: rows by the window that they belong to.
#[derive(Default)]
struct Windows {
    rows: BTreeMap<String, Vec<String>>,
    /// End of the windows that closed.
    closed: String,
    corrections: usize,
}

impl Windows {
    async fn take(&mut self, client: &mut Client) {
        let (message, rows) = client.step("window").await;
        let to = message["to"].as_str().unwrap().to_owned();
        let from = message["from"].as_str().unwrap_or_default().to_owned();
        assert!(message["late"].is_null(), "{message}");
        if message["correction"] == true {
            self.corrections += 1;
            assert!(to <= self.closed, "{message}");
        } else {
            assert_eq!(from, self.closed, "windows close one after another, each once");
            self.closed.clone_from(&to);
        }
        self.rows.retain(|window, _| *window < from || *window >= to);
        for row in rows {
            let window = serde_json::from_str::<Value>(&row).unwrap()[0].as_str().unwrap().to_owned();
            assert!(from <= window && window < to, "{row} in {message}");
            self.rows.entry(window).or_default().push(row);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_are_those_of_the_plain_statement_after_corrections() {
    let sql = "select date_bin(interval '1 second', time) as w, k, count(*) as c, sum(n) as s from t \
               where x is not null group by 1, k order by w, k";
    for seed in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path());
        let mut writer = Writer::new(&engine.store, seed);
        writer.some(2_000);
        writer.tend();
        let (mut client, mut windows) = (engine.subscribe(sql).await, Windows::default());
        let columns = client.next().await;
        assert_eq!((&columns["class"], &columns["window_us"]), (&json!("windows"), &json!("1000000")), "{columns}");
        let stop = Arc::new(AtomicBool::new(false));
        let writing = writer.run(stop.clone());
        while windows.corrections < 20 {
            windows.take(&mut client).await;
        }
        stop.store(true, Ordering::SeqCst);
        let mut writer = writing.join().unwrap();
        let time = writer.time;
        // Their windows close when the watermark has passed the ends, that of the last row does not.
        while engine.plain(sql).await.last().is_none_or(|row| !row.contains("T00:30:00")) {
            writer.append(0, time.max(T0 + 1_800 * SECOND));
            engine.commit();
        }
        let plain = engine.plain(sql).await;
        let wanted = &plain[..plain.len() - 1];
        while !windows.rows.values().flatten().eq(wanted) {
            windows.take(&mut client).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_waits_for_the_watermark_or_for_the_clock_if_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 1);
    writer.append(0, T0);
    engine.commit();
    let sql = "select date_trunc('minute', time) as w, count(*) as c from t group by w having count(*) > 0";
    let mut waits = engine.subscribe(sql).await;
    let idle = SubscribeRequest { idle: Some(Duration::from_millis(50)), ..request(sql) };
    let mut idle = engine.subscribe_with(idle).await.unwrap();
    let row = |minute: u8, count: u8| format!(r#"["2026-11-20T00:{minute:02}:00Z","{count}"]"#);
    // All windows before that of the row have closed, and are empty.
    let (first, rows) = waits.step("window").await;
    assert_eq!(
        (&first["from"], &first["to"], rows.len()),
        (&Value::Null, &json!("2026-11-19T23:59:00Z"), 0),
        "{first}"
    );
    while idle.step("window").await.1 != [row(0, 1)] {}
    // A frame that comes later corrects what the clock closed. One that is far ahead of all clocks does not count.
    writer.append(1, T0 + 30 * SECOND);
    writer.append(1, now_ns() + 400 * 86_400 * SECOND);
    engine.commit();
    let (corrected, rows) = idle.step("window").await;
    assert_eq!((&corrected["correction"], rows), (&json!(true), vec![row(0, 2)]));
    writer.append(0, T0 + 60 * SECOND + 999 * MS);
    engine.commit();
    writer.append(0, T0 + 61 * SECOND);
    engine.commit();
    let (closed, rows) = loop {
        let step = waits.step("window").await;
        if !step.1.is_empty() {
            break step;
        }
    };
    assert_eq!(rows, [row(0, 2)]);
    assert_eq!((&closed["to"], &closed["correction"]), (&json!("2026-11-20T00:01:00Z"), &json!(false)), "{closed}");
    // Of rows that come too late, the number is told.
    writer.append(0, T0 - 90 * 86_400 * SECOND);
    writer.append(0, T0 + 10 * 60 * SECOND);
    engine.commit();
    let (message, _) = waits.step("window").await;
    assert_eq!(message["late"], 1, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_sent_whole_when_they_differ() {
    let statements = [
        "select k, count(*) as c, max(n) as m, avg(x) as a from t group by k",
        "select n, x from t where x is not null order by n desc limit 9",
        "select distinct k from t",
        "select a.k, count(*) as c from t a join t b on a.n = b.n + 1 where a.n < 50 group by a.k",
        "select channel, count, last from summary('t.n*', '2026-11-20', '2026-11-21')",
    ];
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 3);
    writer.some(500);
    writer.tend();
    let mut clients = Vec::new();
    for sql in statements {
        let mut client = engine.subscribe(sql).await;
        assert_eq!(client.next().await["class"], "result", "{sql}");
        clients.push(client);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer.run(stop.clone());
    for client in &mut clients[..2] {
        let mut last = Vec::new();
        for _ in 0..20 {
            let (_, rows) = client.step("result").await;
            assert_ne!(sorted(rows.clone()), sorted(last));
            last = rows;
        }
    }
    stop.store(true, Ordering::SeqCst);
    writing.join().unwrap();
    for (sql, client) in statements.iter().zip(&mut clients) {
        let plain = engine.plain(sql).await;
        let is_ordered = sql.contains("order by");
        let same = |rows: &[String]| {
            if is_ordered { rows == plain } else { sorted(rows.to_vec()) == sorted(plain.clone()) }
        };
        let mut last = None;
        loop {
            let (_, rows) = client.step("result").await;
            assert_ne!(Some(sorted(rows.clone())), last, "{sql}");
            if same(&rows) {
                break;
            }
            last = Some(sorted(rows));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    Writer::new(&engine.store, 1).append(0, T0);
    engine.commit();
    for (sql, state, reason) in [
        ("select 1", "0A000", "reads no table of the store"),
        ("select * from strongback.sources", "0A000", "sources has no rows in the store"),
        ("select count(*) from t, strongback.gaps", "0A000", "gaps has no rows in the store"),
        ("select * from pg_catalog.pg_class", "0A000", "no rows in the store"),
        ("explain select * from t", "0A000", "a plan has no changes"),
        ("insert into t values (1)", "25006", "read-only"),
        ("subscribe select * from t", "0A000", "every result has an end"),
        ("select * from nothing", "42P01", "does not exist"),
        ("select n from t where n = $1", "42P18", "parameters have no values"),
        ("select n from t; select n from t", "42601", "one statement"),
        ("select n from", "42601", ""),
    ] {
        let error = engine.refusal(sql).await;
        assert_eq!(error.sqlstate, state, "{sql}: {error}");
        assert!(error.message.contains(reason), "{sql}: {error}");
    }
    for (wrong, reason) in [
        (SubscribeRequest { interval: Duration::from_millis(9), ..request("select n from t") }, "the interval is 9 ms"),
        (SubscribeRequest { lateness: Duration::MAX, ..request("select n from t") }, "the lateness"),
        (SubscribeRequest { idle: Some(Duration::ZERO), ..request("select n from t") }, "the idle time"),
        (SubscribeRequest { resume: Some("0;0;0".into()), ..request("select n from t") }, "not a position"),
        (SubscribeRequest { resume: Some("0".repeat(40_000)), ..request("select n from t") }, "the position has more"),
    ] {
        let Err(error) = engine.subscribe_with(wrong).await else { panic!("{reason}") };
        assert!(error.sqlstate == "22023" && error.message.contains(reason), "{error}");
    }
    // A position of another store, or beyond what is committed, is not continued.
    for position in ["0;0;0;0:0", &format!("{:032x};0;0;0:2", engine.store.origin())] {
        let wanted = SubscribeRequest { resume: Some(position.to_owned()), ..request("select n from t") };
        let mut client = engine.subscribe_with(wanted).await.unwrap();
        assert_eq!(client.next().await["resumed"], false, "{position}");
        let (message, rows) = client.step("rows").await;
        assert_eq!((&message["snapshot"], rows), (&json!(true), vec![r#"["0"]"#.to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_and_the_end_of_the_store_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 1);
    (0..3).for_each(|_| writer.append(0, T0));
    engine.commit();
    let mut divides = engine.subscribe("select 10 / (n - 4) as q from t").await;
    let mut large = engine.subscribe("select a.n from t a, t b, t c, t d, t e, t f, t g, t h, t i order by a.n").await;
    let mut stays = engine.subscribe("select n from t").await;
    assert_eq!(divides.step("rows").await.1.len(), 3);
    let error = large.error().await;
    assert_eq!(error["sqlstate"], "54000", "{error}");
    assert!(error["error"].as_str().unwrap().contains("more than 10000 rows"), "{error}");
    (0..2).for_each(|_| writer.append(0, T0));
    engine.commit();
    assert_eq!(divides.error().await["sqlstate"], "22012");
    let mut stayed = 0;
    while stayed < 5 {
        stayed += stays.step("rows").await.1.len();
    }
    assert_eq!(stayed, 5);
    let endless = "select count(*) as c from t a, t b, t c, t d, t e, t f, t g, t h, t i, t j, t k, t l";
    let hurried = SubscribeRequest { timeout: Duration::from_millis(300), ..request(endless) };
    let error = engine.subscribe_with(hurried).await.unwrap().error().await;
    assert_eq!(error["sqlstate"], "57014", "{error}");
    engine.store.close(now_ns()).unwrap();
    let error = stays.error().await;
    assert_eq!(error["sqlstate"], "57P03", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_not_sent_before_they_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 1);
    writer.append(0, T0);
    engine.commit();
    writer.append(0, T0);
    let mut client = engine.subscribe("select n from t").await;
    assert_eq!(client.step("rows").await.1, [r#"["0"]"#]);
    writer.append(1, T0);
    assert_eq!(engine.plain("select n from t").await.len(), 3, "visible to others");
    engine.commit();
    let mut rows = client.step("rows").await.1;
    if rows.len() < 2 {
        rows.extend(client.step("rows").await.1);
    }
    assert_eq!(sorted(rows), [r#"["1"]"#, r#"["2"]"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_of_an_interval_stays_and_new_columns_are_announced() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 1);
    let begin = now_ns();
    for age in [30, 20, 1] {
        writer.append(0, begin - age * 60 * SECOND);
    }
    engine.commit();
    let sql = "select * from t where time > now() - interval '10 minutes'";
    let mut client = engine.subscribe(sql).await;
    let columns = client.next().await["columns"].as_array().unwrap().len();
    assert_eq!(client.step("rows").await.1.len(), 1);
    // Later by its arrival, but not by its time.
    writer.append(1, begin - 15 * 60 * SECOND);
    writer.append(1, begin);
    engine.commit();
    assert_eq!(client.step("rows").await.1.len(), 1);
    let mut short = engine.subscribe("select n from t where time > now() - interval '200 ms'").await;
    let begun = now_ns();
    short.step("rows").await;
    while now_ns() < begun + 300 * MS {
        tokio::task::yield_now().await;
    }
    writer.append(1, begun);
    engine.commit();
    assert_eq!(short.step("rows").await.1, [format!(r#"["{}"]"#, writer.n - 1)], "now() is the start");
    client.step("rows").await;
    let spec = StreamSpec {
        clock: Clock::Source,
        ..StreamSpec::new(StreamKey::new("t", []), vec![ChannelSpec::new("new", ChannelType::I64)])
    };
    let (stream, at) = engine.store.resolve(&spec, now_ns()).unwrap();
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time: begin, source_time: Some(begin), sequence: None });
    batch.push(at[0], Cell::I64(5));
    batch.end();
    engine.store.append(&batch, now_ns());
    engine.commit();
    let message = client.next().await;
    assert_eq!(message["type"], "columns", "{message}");
    assert_eq!(message["columns"].as_array().unwrap().len(), columns + 1, "{message}");
    let (_, rows) = client.step("rows").await;
    assert_eq!(rows.len(), 1);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&rows[0]).unwrap().len(), columns + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_expired_unread_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let small = StoreOptions { max_bytes: Some(3 << 20), log_bytes: 1 << 20, open_bytes: 32 << 10, ..options() };
    let engine = Engine::with(dir.path(), StoreOptions { segment_bytes: 64 << 10, settle: false, ..small });
    let mut writer = Writer::new(&engine.store, 1);
    writer.append(0, T0);
    engine.commit();
    let sql = "select n from t where k = 'k0'";
    let mut client = engine.subscribe(sql).await;
    let (message, _) = client.step("rows").await;
    let position = message["position"].as_str().unwrap().to_owned();
    drop(client);
    let rows = |answer: Vec<String>| answer[0].trim_matches(['[', ']', '"']).parse::<i64>().unwrap();
    loop {
        for _ in 0..2_000 {
            writer.time += MS;
            writer.append(0, writer.time);
        }
        writer.tend();
        if rows(engine.plain("select count(*) from t").await) < writer.n - 5_000 {
            break;
        }
    }
    let stored = rows(engine.plain("select count(*) from t").await);
    let wanted = SubscribeRequest { resume: Some(position.clone()), ..request(sql) };
    let mut client = engine.subscribe_with(wanted).await.unwrap();
    assert_eq!(client.next().await["resumed"], true);
    let (message, rows) = client.step("rows").await;
    assert_eq!((rows.len() as i64, message["expired"].as_i64()), (stored, Some(writer.n - 1 - stored)), "{message}");
    // Within a step, it would not be known which of them the client has.
    let inside = position.replacen(";0;", ";5;", 1).replace(":1", &format!(":1:{}", writer.n));
    let wanted = SubscribeRequest { resume: Some(inside.clone()), ..request(sql) };
    let mut client = engine.subscribe_with(wanted).await.unwrap();
    assert_eq!(client.next().await["resumed"], false, "{inside}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_subscriptions_at_once_are_served_and_end_with_their_clients() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path());
    let mut writer = Writer::new(&engine.store, 1);
    writer.some(300);
    writer.tend();
    let mut clients = Vec::new();
    for at in 0..200 {
        let sql = match at % 3 {
            0 => format!("select n from t where n % 200 >= {at}"),
            1 => "select date_bin(interval '100 ms', time) as w, count(*) as c from t group by w".to_owned(),
            _ => format!("select count(*) as c, max(n) as m from t where n % 200 >= {at}"),
        };
        clients.push((engine.subscribe(&sql).await, sql));
    }
    // Clients that never read hold up nobody.
    let silent: Vec<Client> = futures::future::join_all((0..20).map(|_| engine.subscribe("select * from t"))).await;
    for round in 0..3 {
        writer.some(100);
        engine.commit();
        for (client, sql) in &mut clients {
            match sql.contains("select n") {
                true if round == 0 => _ = client.step("rows").await,
                false if round == 0 => _ = client.message().await,
                _ => {}
            }
        }
    }
    for (client, sql) in &mut clients {
        if sql.contains("max(n)") {
            let plain = engine.plain(sql).await;
            while client.step("result").await.1 != plain {}
        }
    }
    let most = |from: Ipv4Addr| {
        let wanted = SubscribeRequest { address: IpAddr::V4(from), ..request("select n from t") };
        let engine = &engine;
        async move { engine.subscribe_with(wanted).await }
    };
    let mut others = Vec::new();
    let error = loop {
        match most(Ipv4Addr::new(192, 0, 2, 1)).await {
            Ok(client) => others.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!((error.sqlstate, others.len()), ("53300", 256), "{error}");
    drop((clients, silent, others));
    // Their places are free once their work has ended.
    let until = tokio::time::Instant::now() + PATIENCE;
    while most(Ipv4Addr::new(192, 0, 2, 1)).await.is_err() {
        assert!(tokio::time::Instant::now() < until);
        tokio::task::yield_now().await;
    }
}
