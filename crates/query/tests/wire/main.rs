//! The query engine over a real store, through the PostgreSQL wire (tokio-postgres and psql) and Flight SQL.

use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use strongback_query::{
    EventRow, ExportFormat, ExportMarks, ExportRequest, GapRow, PgAuth, Query, QueryOptions, SourceCounters, SourceRow,
    Status, SystemRows,
};
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Pattern, Store, StoreOptions,
    Stream, StreamId, StreamKey, StreamSpec, Value,
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, NoTls, Row, SimpleQueryMessage};

mod arrays;
mod catalogs;
mod copy;
mod correlated;
mod flight;
mod floats;
mod history;
mod hostile;
mod integers;
mod names;
mod order;
mod sessions;
mod totals;
mod values;

/// As in the program: memory is measured.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// 2026-11-20 00:00:00 UTC.
const T0: i64 = 1_795_132_800_000_000_000;
const MS: i64 = 1_000_000;

struct Rows;

impl SystemRows for Rows {
    fn sources(&self) -> Vec<SourceRow> {
        let counters = SourceCounters { received: 7, ..SourceCounters::default() };
        vec![SourceRow { name: "fti".into(), kind: "inetx".into(), counters, ..SourceRow::default() }]
    }
    fn gaps(&self, time: Range<i64>) -> Vec<GapRow> {
        let gap = GapRow {
            id: 1,
            stream: Some(StreamId(0)),
            stream_name: "pad".into(),
            from_time_ns: T0 + 5 * MS,
            to_time_ns: T0 + 9 * MS,
            count: 3,
            open: 3,
            cause: "sequence".into(),
            words: "3 packets, 4 ms".into(),
            ..GapRow::default()
        };
        if gap.from_time_ns < time.end && gap.to_time_ns >= time.start { vec![gap] } else { Vec::new() }
    }
    fn events(&self, _: Range<i64>) -> Vec<EventRow> {
        vec![EventRow {
            time_ns: T0,
            level: "info".into(),
            source: "pad".into(),
            text: "hold".into(),
            ..EventRow::default()
        }]
    }
    fn own_streams(&self) -> Vec<StreamSpec> {
        let steps = vec![ChannelSpec::new("step", ChannelType::String), ChannelSpec::new("value", ChannelType::F64)];
        let tags = [("stream".to_owned(), String::new())];
        let offset = vec![ChannelSpec::new("offset_ns", ChannelType::I64)];
        vec![
            StreamSpec::new(StreamKey::new("strongback.alarms", []), steps),
            StreamSpec::new(StreamKey::new("strongback.clocks", tags), offset),
        ]
    }
}

struct Fixture {
    store: Store,
    query: Query,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    _dir: TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

impl Fixture {
    async fn start() -> Fixture {
        Self::with(QueryOptions::default(), PgAuth::Trust).await
    }

    async fn with(options: QueryOptions, auth: PgAuth) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let store_options = StoreOptions { log_bytes: 8 << 20, ..StoreOptions::default() };
        let store = Store::open(dir.path(), store_options, now_ns()).unwrap();
        let query = Query::new(store.clone(), Arc::new(Rows), options).unwrap();
        Self::serving(store, query, auth, dir).await
    }

    /// Another engine over the same store.
    async fn beside(&self, query: Query, auth: PgAuth) -> Fixture {
        Self::serving(self.store.clone(), query, auth, tempfile::tempdir().unwrap()).await
    }

    async fn serving(store: Store, query: Query, auth: PgAuth, dir: TempDir) -> Fixture {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = query.clone();
        tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            serving.serve_pg(listener, auth, Box::pin(shutdown)).await.unwrap();
        });
        Fixture { store, query, address, stop: Some(stop), _dir: dir }
    }

    async fn client(&self) -> Client {
        self.client_as("user=anyone").await.unwrap()
    }

    async fn client_as(&self, more: &str) -> Result<Client, tokio_postgres::Error> {
        let config = format!("host=127.0.0.1 port={} dbname=strongback {more}", self.address.port());
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn stream(
        &self,
        table: &str,
        tags: &[(&str, &str)],
        channels: &[(&str, ChannelType)],
    ) -> (Arc<Stream>, Vec<ChannelIndex>) {
        let spec = StreamSpec {
            key: StreamKey::new(table, tags.iter().map(|(k, v)| (k.to_string(), v.to_string()))),
            source: "fti".into(),
            clock: Clock::Source,
            expected_period_ns: Some(10 * MS),
            sequence_modulus: None,
            channels: channels
                .iter()
                .map(|(name, kind)| ChannelSpec { unit: "bar".into(), ..ChannelSpec::new(*name, *kind) })
                .collect(),
        };
        self.store.resolve(&spec, now_ns()).unwrap()
    }

    fn append(&self, stream: &Stream, time_ns: i64, cells: &[(ChannelIndex, Value<'_>)]) {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stream.id, receive_time: time_ns, source_time: Some(time_ns), sequence: None });
        cells.iter().for_each(|(channel, value)| batch.push(*channel, *value));
        batch.end();
        let appended = self.store.append(&batch, now_ns());
        assert!(matches!(appended.outcomes[0], Outcome::Stored { .. }), "{:?}", appended.outcomes);
    }

    /// Table `pad`: `rows` frames 1 ms apart, channel `x` counting, `y` missing in every third.
    fn pad(&self, rows: i64) -> Arc<Stream> {
        let (stream, at) = self.stream("pad", &[], &[("x", ChannelType::I32), ("y", ChannelType::F64)]);
        for row in 0..rows {
            let mut cells = vec![(at[0], Value::I32(row as i32))];
            if row % 3 != 0 {
                cells.push((at[1], Value::F64(row as f64 / 8.0)));
            }
            self.append(&stream, T0 + row * MS, &cells);
        }
        stream
    }
}

async fn texts(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
            _ => None,
        })
        .collect()
}

/// The bytes of a value in the wire's binary form.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The rows of a query as bytes in the binary form.
async fn bytes_of(client: &Client, sql: &str) -> Vec<Vec<Option<Vec<u8>>>> {
    let rows = client.query(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let bytes = |row: &Row| (0..row.len()).map(|at| row.get::<_, Option<Raw>>(at).map(|raw| raw.0)).collect();
    rows.iter().map(bytes).collect()
}

async fn text(client: &Client, sql: &str) -> String {
    texts(client, sql).await[0][0].clone().unwrap()
}

async fn state_of(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{sql}: {error:?}")).code().to_owned()
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<Option<String>> {
    cells.map(|c| Some(c.to_owned())).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn extremes_read_back_the_same_as_text_and_binary() {
    use ChannelType::*;
    let fixture = Fixture::start().await;
    let kinds = [("b", Bool), ("s", I64), ("u", U64), ("f", F64), ("g", F32), ("t", String), ("c", U8)];
    let (stream, at) = fixture.stream("extremes", &[("rack", "A 1")], &kinds);
    let floats = [-0.0, 5e-324, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1];
    let integers = [i64::MIN, i64::MAX, (1 << 53) + 1, -1, 0, 1, 42];
    let unsigned = [u64::MAX, (1 << 53) + 1, 0, 10_000, 99_999_999, 1, u64::MAX - 1];
    for row in 0..7 {
        let cells = [
            (at[0], Value::Bool(row % 2 == 0)),
            (at[1], Value::I64(integers[row])),
            (at[2], Value::U64(unsigned[row])),
            (at[3], Value::F64(floats[row])),
            (at[4], Value::F32(floats[row] as f32)),
            (at[5], Value::String("größe\t\"x\"")),
            (at[6], Value::U8(255)),
        ];
        fixture.append(&stream, T0 + row as i64, &cells);
    }
    let client = fixture.client().await;
    for sql in [
        "select b, s, f, g, t, c, time_ns, rack from extremes order by time_ns",
        "select b, s, f, g, t, c, time_ns, rack from extremes where 1 = 1 order by time_ns",
    ] {
        let rows = client.query(sql, &[]).await.unwrap();
        assert_eq!(rows.len(), 7);
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(row.get::<_, bool>(0), at % 2 == 0);
            assert_eq!(row.get::<_, i64>(1), integers[at]);
            assert_eq!(row.get::<_, f64>(2).to_bits(), floats[at].to_bits());
            assert_eq!(row.get::<_, f32>(3).to_bits(), (floats[at] as f32).to_bits());
            assert_eq!(row.get::<_, &str>(4), "größe\t\"x\"");
            assert_eq!(row.get::<_, i16>(5), 255);
            assert_eq!(row.get::<_, i64>(6), T0 + at as i64);
            assert_eq!(row.get::<_, &str>(7), "A 1");
        }
        for (at, row) in texts(&client, sql).await.iter().enumerate() {
            assert_eq!(row[1].as_deref(), Some(integers[at].to_string().as_str()));
            let float: f64 = row[2].as_deref().unwrap().parse().unwrap();
            assert_eq!(float.to_bits(), floats[at].to_bits());
        }
    }
    for sql in ["select u from extremes order by time_ns", "select u from extremes where 1 = 1 order by time_ns"] {
        let shown: Vec<u64> =
            texts(&client, sql).await.iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect();
        assert_eq!(shown, unsigned);
    }
    let largest = texts(&client, "select time_ns from extremes where u = 18446744073709551615").await;
    assert_eq!(largest, [cells([&T0.to_string()])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_was_read_finds_its_row() {
    let fixture = Fixture::start().await;
    let (stream, at) = fixture.stream("t", &[], &[("x", ChannelType::I32)]);
    for (row, nanos) in [1, 999, 1_000, 1_001, 123_456_789].into_iter().enumerate() {
        fixture.append(&stream, T0 + nanos, &[(at[0], Value::I32(row as i32))]);
    }
    let client = fixture.client().await;
    for suffix in ["", " and 1 = 1"] {
        let times = client.query("select time, time_ns, x from t order by time_ns", &[]).await.unwrap();
        for row in &times {
            let (time, time_ns, x) = (row.get::<_, SystemTime>(0), row.get::<_, i64>(1), row.get::<_, i32>(2));
            let by_time = client.query(&format!("select x from t where time = $1{suffix}"), &[&time]).await.unwrap();
            assert!(by_time.iter().any(|found| found.get::<_, i32>(0) == x), "{time:?}");
            let sql = format!("select x from t where time_ns = $1{suffix}");
            let by_ns = client.query(&sql, &[&time_ns]).await.unwrap();
            assert_eq!(by_ns.len(), 1);
            assert_eq!(by_ns[0].get::<_, i32>(0), x);
        }
        // Both frames of microsecond 0, none of microsecond 1.
        let floored = texts(&client, &format!("select x from t where time <= '2026-11-20 00:00:00+00'{suffix}")).await;
        assert_eq!(floored.len(), 2);
        let beyond = texts(&client, &format!("select x from t where time > '2026-11-20T00:00:00Z'{suffix}")).await;
        assert_eq!(beyond.len(), 3);
    }
    assert_eq!(text(&client, "select time from t where x = 4").await, "2026-11-20 00:00:00.123456+00");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_exact_in_quotes_and_forgiving_without() {
    let fixture = Fixture::start().await;
    for (table, value) in [("avionics.Sensor_Values", 1.0), ("Twin", 2.0), ("TWIN", 3.0)] {
        let (stream, at) = fixture.stream(table, &[("acu", "1")], &[("P_Lox", ChannelType::F64)]);
        fixture.append(&stream, T0, &[(at[0], Value::F64(value))]);
    }
    let client = fixture.client().await;
    for sql in [
        "select \"P_Lox\" from \"avionics.Sensor_Values\"",
        "select p_lox from avionics.sensor_values",
        "select sensor_values.P_LOX from avionics.sensor_values",
        "select s.p_lox from strongback.public.\"avionics.Sensor_Values\" s where s.acu = '1'",
        "with q as (select P_LOX as v from Avionics.Sensor_Values) select v from q",
    ] {
        assert_eq!(text(&client, sql).await, "1", "{sql}");
    }
    assert_eq!(text(&client, "select p_lox from \"TWIN\"").await, "3");
    let error = client.simple_query("select p_lox from twin").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42P09");
    assert!(error.message().contains("\"TWIN\", \"Twin\""), "{}", error.message());
    assert_eq!(state_of(&client, "select p_lox from \"twin\"").await, "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_carry_the_right_codes_and_nothing_writes() {
    let fixture = Fixture::start().await;
    fixture.pad(10);
    let client = fixture.client().await;
    let mut wrong = Vec::new();
    for (sql, code) in [
        ("select nothing from pad", "42703"),
        ("select 1 from nowhere", "42P01"),
        ("selec 1", "42601"),
        ("select 1/0", "22012"),
        ("select 'x'::int", "22P02"),
        ("select no_such_function(1)", "42883"),
        ("insert into pad values (1)", "25006"),
        ("create table a (b int)", "25006"),
        ("drop table pad", "25006"),
        ("update pad set x = 1", "25006"),
        ("delete from pad", "25006"),
        ("copy pad to '/tmp/strongback-must-not-exist'", "25006"),
        ("copy (select 1) to '/tmp/strongback-must-not-exist'", "25006"),
        ("select x into other from pad", "25006"),
        ("declare c cursor for select 1", "25P01"),
        ("select current_setting('no.such')", "42704"),
        ("select * from latest('pad.*{x}')", "22023"),
    ] {
        let got = state_of(&client, sql).await;
        if got != code {
            wrong.push((sql, code, got));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!std::path::Path::new("/tmp/strongback-must-not-exist").exists());
    assert_eq!(text(&client, "select count(*) from pad").await, "10");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_keep_their_settings_and_transactions_to_themselves() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.client().await, fixture.client().await);
    one.batch_execute("set application_name = 'one'; set statement_timeout = '7s'").await.unwrap();
    assert_eq!(text(&one, "show application_name").await, "one");
    assert_eq!(text(&one, "select current_setting('statement_timeout')").await, "7000ms");
    assert_eq!(text(&two, "select current_setting('application_name')").await, "");
    assert_eq!(text(&two, "show statement_timeout").await, "0");
    assert!(text(&two, "select version()").await.starts_with("PostgreSQL 16"));
    one.batch_execute("begin; savepoint a; release savepoint a; commit").await.unwrap();
    one.batch_execute("begin").await.unwrap();
    assert_eq!(state_of(&one, "select broken").await, "42703");
    assert_eq!(state_of(&one, "select 1").await, "25P02");
    one.batch_execute("rollback").await.unwrap();
    assert_eq!(text(&one, "select 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_too_long_is_stopped_and_others_go_on() {
    // Pairs of rows, which the join holds, fit in the memory of the queries.
    let options = QueryOptions { memory_bytes: 512 << 20, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(2_000);
    let (client, other) = (fixture.client().await, fixture.client().await);
    let endless = "select count(*) from pad a, pad b, pad c where a.x + b.x + c.x = -1";
    client.batch_execute("set statement_timeout = 100").await.unwrap();
    assert_eq!(state_of(&client, endless).await, "57014");
    client.batch_execute("set statement_timeout = 0").await.unwrap();
    let cancel = client.cancel_token();
    let running = tokio::spawn(async move { (client.simple_query(endless).await.map(drop), client) });
    let short = format!("select x from pad where time_ns < {} order by time", T0 + 2 * MS);
    for _ in 0..20 {
        assert_eq!(texts(&other, &short).await.len(), 2);
        assert_eq!(text(&other, "select max(x) from pad").await, "1999");
    }
    assert!(!running.is_finished(), "it ended by itself: {:?}", running.await.unwrap().0);
    cancel.cancel_query(NoTls).await.unwrap();
    let (ended, client) = running.await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(text(&client, "select 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_beyond_its_memory_fails_alone() {
    let options = QueryOptions { memory_bytes: 1 << 20, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(3_000);
    let client = fixture.client().await;
    let sql = "select a.x, b.y from pad a, pad b order by a.y * b.y, b.x";
    assert_eq!(state_of(&client, sql).await, "53200");
    assert_eq!(text(&client, "select count(*) from pad").await, "3000");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_way_gives_the_rows_of_the_long_one() {
    use ChannelType::*;
    let fixture = Fixture::start().await;
    let full = [
        ("full_b", Bool),
        ("full_i8", I8),
        ("full_i16", I16),
        ("full_i32", I32),
        ("full_i64", I64),
        ("full_u8", U8),
        ("full_u16", U16),
        ("full_u32", U32),
        ("full_f32", F32),
        ("full_f64", F64),
    ];
    for (acu, kind) in [(1, F32), (2, F64), (3, I16)] {
        let channels: Vec<_> = [("v", kind), ("w", String)].into_iter().chain(full).collect();
        let (stream, at) = fixture.stream("mix", &[("acu", &acu.to_string())], &channels);
        for row in 0..400i64 {
            // Distinct times over all streams, so that their order is unique.
            let time_ns = T0 + row * 3 * MS + acu * MS + 7;
            let mut cells = Vec::new();
            if row % 5 != 0 {
                let value = match kind {
                    F32 => Value::F32(row as f32 / 3.0),
                    F64 => Value::F64(row as f64 / 3.0),
                    _ => Value::I16(row as i16),
                };
                cells.push((at[0], value));
            }
            if row % 7 != 0 {
                cells.push((at[1], Value::String(if row % 2 == 0 { "even" } else { "odd" })));
            }
            let signed = (row - 200) * acu;
            cells.extend([
                (at[2], Value::Bool(row % 3 == 0)),
                (at[3], Value::I8(signed as i8)),
                (at[4], Value::I16(signed as i16)),
                (at[5], Value::I32(signed as i32 * 1_000)),
                (at[6], Value::I64(signed << 40)),
                (at[7], Value::U8(row as u8)),
                (at[8], Value::U16(row as u16 * 150)),
                (at[9], Value::U32(row as u32 * 10_000_000)),
                (at[10], Value::F32(signed as f32 / 7.0)),
                (at[11], Value::F64(signed as f64 / 7.0)),
            ]);
            fixture.append(&stream, time_ns, &cells);
        }
        fixture.store.commit(now_ns()).unwrap();
    }
    let client = fixture.client().await;
    let mut seed = 12345u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let steady = ["time", "time_ns", "receive_time", "receive_time_ns", "sequence", "source_time", "acu"];
    let steady: Vec<&str> = steady.into_iter().chain(full.map(|(name, _)| name)).collect();
    let columns: Vec<&str> = steady.iter().copied().chain(["v", "w", "v", "w"]).collect();
    for round in 0..120 {
        // Every other query has only columns whose cells have fixed sizes.
        let columns = if round % 2 == 0 { &steady } else { &columns };
        let list: Vec<_> = (0..1 + random(6))
            .map(|at| format!("{} as c{at}", columns[random(columns.len() as u64) as usize]))
            .collect();
        let mut wheres = vec!["time_ns >= 0".to_owned()];
        let at_ns = T0 + random(1_300) as i64 * MS + random(3) as i64 * 7;
        match random(5) {
            0 => wheres.push(format!("time_ns > {at_ns}")),
            1 => wheres.push(format!("{at_ns} >= time_ns")),
            2 => wheres
                .push(format!("time between '2026-11-20 00:00:00.{:03}Z' and '2026-11-20 00:00:00.9Z'", random(900))),
            3 => wheres.push(format!("time >= '2026-11-20 00:00:00.{:06}+00'", random(1_000_000))),
            _ => {}
        }
        match random(4) {
            0 => wheres.push(format!("acu = '{}'", random(5))),
            1 => wheres.push("acu in ('1', '3')".to_owned()),
            _ => {}
        }
        let order = ["", " order by time", " order by time desc", " order by time_ns desc"][random(4) as usize];
        let limit = match (order, random(3)) {
            ("", _) | (_, 0) => "".to_owned(),
            (_, 1) => format!(" limit {}", random(50)),
            _ => format!(" limit {} offset {}", random(50), random(10)),
        };
        let (list, wheres) = (list.join(", "), wheres.join(" and "));
        let sql = |more: &str| format!("select {list} from mix where {wheres}{more}{order}{limit}");
        let (mut short, mut long) = (texts(&client, &sql("")).await, texts(&client, &sql(" and 1 = 1")).await);
        let (mut short_bytes, mut long_bytes) =
            (bytes_of(&client, &sql("")).await, bytes_of(&client, &sql(" and 1 = 1")).await);
        if order.is_empty() {
            short.sort();
            long.sort();
            short_bytes.sort();
            long_bytes.sort();
        }
        assert_eq!(short, long, "{}", sql(""));
        assert_eq!(short_bytes, long_bytes, "{}", sql(""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_seen_as_soon_as_they_are_appended() {
    let fixture = Fixture::start().await;
    let (stream, at) = fixture.stream("now", &[], &[("x", ChannelType::I32)]);
    let client = fixture.client().await;
    let sql = "select x from \"now\" where time > now() - interval '60 s' order by time";
    let statement = client.prepare(sql).await.unwrap();
    for row in 0..50 {
        fixture.append(&stream, now_ns(), &[(at[0], Value::I32(row))]);
        let rows = client.query(&statement, &[]).await.unwrap();
        assert_eq!(rows.last().map(|r| r.get::<_, i32>(0)), Some(row));
    }
    // The table grows while the statement stays prepared.
    fixture.stream("now", &[("acu", "2")], &[("x", ChannelType::I32)]);
    assert!(!client.query(&statement, &[]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_functions_tell_value_age_and_trust() {
    let fixture = Fixture::start().await;
    fixture.pad(5);
    let client = fixture.client().await;
    let at = "select channel, value, number, unit, age_ns, status from state_at('2026-11-20 00:00:00.004Z', 'pad.*')";
    assert_eq!(
        texts(&client, at).await,
        [cells(["pad.x", "4", "4", "bar", "999", "fresh"]), cells(["pad.y", "0.5", "0.5", "bar", "999", "fresh"])]
    );
    let time: SystemTime = SystemTime::UNIX_EPOCH + Duration::from_nanos((T0 + 2 * MS) as u64);
    let statement = client.prepare("select value from state_at($1, $2) where channel = 'pad.x'").await.unwrap();
    for _ in 0..2 {
        let rows = client.query(&statement, &[&time, &"pad.?"]).await.unwrap();
        assert_eq!(rows[0].get::<_, &str>(0), "2");
    }
    let latest = texts(&client, "select status, value from latest('*.x')").await;
    assert_eq!(latest.len(), 1);
    let x = [Pattern::parse("pad.x").unwrap()];
    let never = fixture.query.state(Some(T0 - 1), &x, || false).unwrap();
    assert_eq!((never[0].status, never[0].text()), (Status::Never, None));
    let gap = fixture.query.state(Some(T0 + 44 * MS), &x, || false).unwrap();
    assert_eq!(gap[0].status, Status::Gap);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_the_token() {
    let fixture = Fixture::with(QueryOptions::default(), PgAuth::password("open sesame").unwrap()).await;
    let client = fixture.client_as("user=a password='open sesame'").await.unwrap();
    assert_eq!(text(&client, "select 1").await, "1");
    let wrong = fixture.client_as("user=a password=guess").await.map(drop).unwrap_err();
    assert_eq!(wrong.code().unwrap().code(), "28P01");
    let other = format!("host=127.0.0.1 port={} dbname=other user=a password='open sesame'", fixture.address.port());
    let other = tokio_postgres::connect(&other, NoTls).await.map(drop).unwrap_err();
    assert_eq!(other.code().unwrap().code(), "3D000");
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_copies_and_system_tables() {
    use futures::StreamExt;
    let fixture = Fixture::start().await;
    fixture.pad(1_500);
    let mut client = fixture.client().await;
    let transaction = client.transaction().await.unwrap();
    for sql in ["select x from pad order by time", "select x from pad where 1 = 1 order by time"] {
        let portal = transaction.bind(sql, &[]).await.unwrap();
        let mut seen = Vec::new();
        loop {
            let rows = transaction.query_portal(&portal, 700).await.unwrap();
            if rows.is_empty() {
                break;
            }
            seen.extend(rows.iter().map(|r| r.get::<_, i32>(0)));
        }
        assert_eq!(seen, (0..1_500).collect::<Vec<_>>());
    }
    transaction.commit().await.unwrap();
    for (sql, want) in [
        ("copy (select x, y from pad where x < 2 order by x) to stdout", "0\t\\N\n1\t0.125\n"),
        ("copy (select 'a,b' as \"q\") to stdout with (format csv, header true)", "q\n\"a,b\"\n"),
        ("copy (select 'a,b' as \"q\") to stdout with csv header", "q\n\"a,b\"\n"),
        ("copy (select 1 as a, null as b) to stdout csv header delimiter ';' null '-'", "a;b\n1;-\n"),
    ] {
        let copy = client.copy_out(sql).await.unwrap();
        let lines: Vec<_> = copy.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap()).collect().await;
        assert_eq!(lines.concat(), want);
    }
    let channel = texts(&client, "select name, type, unit from strongback.channels where channel = 'y'").await;
    assert_eq!(channel, [cells(["pad.y", "f64", "bar"])]);
    assert_eq!(text(&client, "select received from strongback.sources").await, "7");
    assert_eq!(text(&client, "select words from strongback.gaps").await, "3 packets, 4 ms");
    assert_eq!(text(&client, "select text from strongback.events").await, "hold");
    client.simple_query("select * from strongback.segments").await.unwrap();
    let sql = "select date_bin(interval '1 second', time) as t, count(*), max(x) from pad group by 1 order by 1";
    assert_eq!(texts(&client, sql).await[1][1].as_deref(), Some("500"));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_exports() {
    let fixture = Fixture::start().await;
    fixture.pad(12);
    let patience = Duration::from_secs(60);
    let sql = "select time, time_ns, x, y, 'q\"' as t from pad order by time";
    let answer = fixture.query.sql_json(sql, 2, patience).await.unwrap();
    let json = answer.as_str();
    let start = "{\"columns\":[{\"name\":\"time\",\"type\":\"timestamptz\"},{\"name\":\"time_ns\",\"type\":\"int8\"},\
        {\"name\":\"x\",\"type\":\"int4\"},{\"name\":\"y\",\"type\":\"float8\"},{\"name\":\"t\",\"type\":\"text\"}],\
        \"rows\":[[\"2026-11-20T00:00:00Z\",\"1795132800000000000\",0,null,\"q\\\"\"],";
    assert!(json.starts_with(start), "{json}");
    assert!(json.contains("\"truncated\":true"), "{json}");
    assert_eq!(fixture.query.sql_json("delete from pad", 1, patience).await.unwrap_err().sqlstate, "25006");

    let export = async |format| {
        let patterns = vec![Pattern::parse("pad.*").unwrap()];
        let request = ExportRequest { time: T0 + MS..T0 + 8 * MS, patterns, format, marks: ExportMarks::Apply };
        let mut chunks = fixture.query.export(request).await.unwrap();
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await {
            all.extend_from_slice(&chunk.unwrap());
        }
        all
    };
    let csv = String::from_utf8(export(ExportFormat::Csv).await).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "time,time_ns,stream,gap,pad.x [bar],pad.y [bar]");
    assert_eq!(lines[1], "2026-11-20T00:00:00.001000000Z,1795132800001000000,pad,,1,0.125");
    assert_eq!(lines[3], "2026-11-20T00:00:00.003000000Z,1795132800003000000,pad,,3,");
    assert_eq!(lines[6], "2026-11-20T00:00:00.005000000Z,1795132800005000000,pad,\"3 packets, 4 ms\",,");
    assert_eq!(lines.len(), 9);
    let jsonl = String::from_utf8(export(ExportFormat::Jsonl).await).unwrap();
    let start = "{\"type\":\"channels\",\"channels\":[{\"name\":\"pad.x\",\"type\":\"i32\",\"unit\":\"bar\"";
    assert!(jsonl.starts_with(start), "{jsonl}");
    assert_eq!(jsonl.lines().filter(|l| l.starts_with("{\"type\":\"gap\"")).count(), 1);
    let parquet = bytes::Bytes::from(export(ExportFormat::Parquet).await);
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(parquet, 1024).unwrap();
    let batches: Vec<_> = reader.map(|b| b.unwrap()).collect();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 8);
    assert_eq!(batches[0].schema().field(3).metadata()["unit"], "bar");
}

/// Runs psql with a command; none where there is no psql.
fn psql(fixture: &Fixture, command: &str) -> Option<String> {
    let output = Command::new("psql")
        .args(["-X", "-h", "127.0.0.1", "-p", &fixture.address.port().to_string(), "-U", "x", "-d", "strongback"])
        .args(["-v", "ON_ERROR_STOP=1", "-c", command])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_describes_what_there_is() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let (stream, at) = fixture.stream("avionics.sensor_values", &[("acu", "1")], &[("p_lox", ChannelType::F32)]);
    fixture.append(&stream, T0, &[(at[0], Value::F32(0.1))]);
    fixture.stream("counts", &[], &[("u", ChannelType::U64)]);
    for (command, wants) in [
        ("\\dt", "avionics.sensor_values"),
        ("\\d pad", "timestamp with time zone"),
        ("\\l", "strongback"),
        ("\\dn", "public"),
        ("select p_lox from avionics.sensor_values", "0.1"),
        ("\\copy (select x from pad order by x) to stdout", "2"),
        ("explain select x from pad where time > now()", "plan"),
        ("show all", "server_version"),
        ("\\d counts", "numeric(20,0)"),
        ("\\df", "Argument data types"),
        ("\\dt *.*", "avionics.sensor_values"),
        ("\\conninfo", "strongback"),
        ("\\d+ pad", "timestamp with time zone"),
        ("\\dt+", "avionics.sensor_values"),
        ("\\du", "Role name"),
    ] {
        let Some(shown) = psql(&fixture, command) else { return };
        assert!(shown.contains(wants), "{command}: {shown}");
    }
}
