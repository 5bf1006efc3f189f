//! Aggregates from the store's statistics are those of the rows.

use std::sync::Arc;

use fastrand::Rng;
use strongback_query::{PgAuth, Query, QueryOptions};
use strongback_store::{ChannelIndex, ChannelType, FrameBatch, FrameHead, Outcome, Stream, Value};
use tokio_postgres::Client;

use crate::{Fixture, MS, Rows, T0, texts};

const CHANNELS: [(&str, ChannelType); 8] = [
    ("x", ChannelType::F64),
    ("odd", ChannelType::F64),
    ("r", ChannelType::F32),
    ("i", ChannelType::I32),
    ("big", ChannelType::I64),
    ("u", ChannelType::U64),
    ("b", ChannelType::Bool),
    ("s", ChannelType::String),
];

/// Conditions, some of which the store decides by its statistics.
const CONDITIONS: [&str; 21] = [
    "x > 100",
    "x >= 124.875",
    "x < -120 and x is not null",
    "odd >= 7",
    "odd < 1",
    "odd = 0",
    "odd > 'Infinity'",
    "r > 24.5",
    "r between -1 and 1",
    "i > 2100000000 and x > 0",
    "i < 0",
    "big = 5",
    "u is not null",
    "u <= 60000000000 and big > 3000",
    "1000 < i",
    "x > 1000",
    "x > -1000",
    "not (x > 100)",
    "x > 100 or i < 0",
    "b",
    "s = 'text'",
];

/// A fixture with table `t` of three streams, whose rows are in segments but for the last ones; and a second engine over
/// its store that reads every row.
async fn fixture(seed: u64) -> (Fixture, Fixture) {
    let fixture = Fixture::start().await;
    let mut random = Rng::with_seed(seed);
    let streams: Vec<Arc<Stream>> = ["a", "b", "c"]
        .into_iter()
        .enumerate()
        .map(|(n, tag)| fixture.stream("t", &[("k", tag)], &CHANNELS[..CHANNELS.len() - n]).0)
        .collect();
    let mut time = T0;
    for chunk in 0..40 {
        let mut batch = FrameBatch::new();
        for _ in 0..700 {
            let stream = &streams[random.usize(..3)];
            time += random.i64(0..40) * MS / 10;
            // Late and equal times among them.
            let at = if random.u8(0..50) == 0 { time - random.i64(0..900) * MS } else { time };
            batch.begin(FrameHead { stream: stream.id, receive_time: time, source_time: Some(at), sequence: None });
            for (n, channel) in stream.layout.channels.iter().enumerate() {
                if random.u8(0..10) == 0 {
                    continue;
                }
                let value = match channel.name.as_str() {
                    "x" => Value::F64(f64::from(random.i32(-1_000..1_000)) / 8.0),
                    "odd" => Value::F64(match random.u16(0..900) {
                        0 => f64::NAN,
                        1 => f64::INFINITY,
                        2 => f64::NEG_INFINITY,
                        3 => -0.0,
                        _ => f64::from(random.i32(0..9)),
                    }),
                    "r" => Value::F32(random.i32(-99..99) as f32 / 4.0),
                    "i" => Value::I32(random.i32(..)),
                    "big" => Value::I64(random.i64(-1 << 36..1 << 36)),
                    "u" => Value::U64(random.u64(..1 << 36)),
                    "b" => Value::Bool(random.bool()),
                    _ => Value::String("text"),
                };
                batch.push(ChannelIndex(n as u16), value);
            }
            batch.end();
        }
        let appended = fixture.store.append(&batch, time);
        assert!(appended.outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. })), "{:?}", appended.outcomes[0]);
        fixture.store.commit(time).unwrap();
        if chunk < 36 {
            while fixture.store.maintain(time).unwrap() {}
        }
    }
    let options = QueryOptions { by_statistics: false, ..QueryOptions::default() };
    let query = Query::new(fixture.store.clone(), Arc::new(Rows), options).unwrap();
    let by_rows = fixture.beside(query, PgAuth::Trust).await;
    (fixture, by_rows)
}

/// Answers of both engines to a query are the same. Of both zeros, `min` and `max` return either.
async fn compare((by_statistics, by_rows): (&Client, &Client), sql: &str) {
    let zero = |cell: Option<String>| cell.map(|text| if text == "-0" { "0".to_owned() } else { text });
    let rows = async |client: &Client| -> Vec<Vec<_>> {
        texts(client, sql).await.into_iter().map(|row| row.into_iter().map(zero).collect()).collect()
    };
    let (found, expected) = (rows(by_statistics).await, rows(by_rows).await);
    assert_eq!(found, expected, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_those_of_the_rows() {
    for seed in 0..2 {
        let (fixture, by_rows) = fixture(seed).await;
        let clients = (&fixture.client().await, &by_rows.client().await);
        let mut random = Rng::with_seed(seed);
        // Sums of these are exact in any order.
        let aggregates = [
            "count(*)",
            "count(x)",
            "count(odd)",
            "count(b)",
            "count(s)",
            "min(x)",
            "max(x)",
            "sum(x)",
            "avg(x)",
            "min(odd)",
            "max(odd)",
            "min(r)",
            "max(r)",
            "sum(r)",
            "avg(r)",
            "min(i)",
            "max(i)",
            "sum(i)",
            "avg(i)",
            "min(big)",
            "max(big)",
            "sum(big)",
            "avg(big)",
            "min(u)",
            "max(u)",
            "sum(u)",
            "avg(u)",
            "sum(x) / 2",
            "max(x) - min(x)",
            "count(distinct i)",
            "min(s)",
            "sum(odd)",
            "avg(odd)",
            "sum(i) filter (where i > 0)",
        ];
        let groups = [
            "",
            "k",
            "date_bin('1 second', time)",
            "date_trunc('minute', time)",
            "date_bin('700 milliseconds', time)",
            "k, date_bin('10 seconds', time)",
            "date_bin('3 seconds', time, '1999-01-01 00:00:00.25')",
            "i % 3",
            "date_trunc('day', time), k",
            "date_trunc('month', time)",
            "date_bin('1 microsecond', time)",
        ];
        for _ in 0..60 {
            let mut chosen: Vec<&str> = aggregates.to_vec();
            random.shuffle(&mut chosen);
            chosen.truncate(random.usize(1..5));
            let group = groups[random.usize(..groups.len())];
            let (a, b) = (T0 + random.i64(-9..60_000) * MS, T0 + random.i64(-9..60_000) * MS);
            let span = match random.u8(0..4) {
                0 => String::new(),
                1 => format!(" where time_ns >= {}", a.min(b)),
                2 => format!(" where time_ns between {} and {}", a.min(b), a.max(b)),
                _ => format!(" where time_ns < {} and k <> 'b'", a.max(b)),
            };
            let span = match random.bool() {
                true => span,
                false => {
                    let condition = CONDITIONS[random.usize(..CONDITIONS.len())];
                    format!("{span} {} {condition}", if span.is_empty() { "where" } else { "and" })
                }
            };
            let grouped = match group {
                "" => String::new(),
                group => {
                    chosen.insert(0, group);
                    format!(" group by {group} order by {group}")
                }
            };
            compare(clients, &format!("select {} from t{span}{grouped}", chosen.join(", "))).await;
        }
        for sql in [
            "select count(*) from t where time_ns < 0",
            "select sum(x), max(i) from t where time_ns < 0",
            "select k, sum(x) from t where time_ns < 0 group by k",
            "select max(m) from (select date_bin('1 second', time) as s, max(x) as m from t group by 1) q where m < 100",
            "select k, count(*) from t group by k having count(*) > 100 order by 1",
            "select date_bin('5 seconds', time), k, avg(x) from t group by 1, 2 order by 1 desc, 2 limit 3",
            "select sum(x::real), avg(i::float8), sum(r::float8) from t",
            "select count(*) from t a join t b using (time_ns) where a.k = 'a'",
            "select (select max(x) from t) - min(x) from t",
        ] {
            compare(clients, sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_under_conditions_are_those_of_a_scan_of_all() {
    let (fixture, by_rows) = fixture(4).await;
    let clients = (&fixture.client().await, &by_rows.client().await);
    let mut random = Rng::with_seed(4);
    for condition in CONDITIONS {
        let at = T0 + random.i64(-9..60_000) * MS;
        let spans = [String::new(), format!("and time_ns >= {at}"), format!("and k in ('a', 'c') and time_ns < {at}")];
        let span = &spans[random.usize(..spans.len())];
        let sql = format!("select time_ns, k, x, i from t where ({condition}) {span}");
        compare(clients, &format!("{sql} order by time_ns, k, x, i")).await;
        compare(clients, &format!("select count(*), count(distinct x + 1) from ({sql}) q")).await;
        compare(clients, &format!("select time_ns from t where ({condition}) {span} order by time_ns limit 7")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_and_last_rows_of_streams_are_those_of_a_scan_of_all() {
    let (fixture, by_rows) = fixture(5).await;
    let (client, by_rows) = (&fixture.client().await, &by_rows.client().await);
    let mut random = Rng::with_seed(5);
    for _ in 0..6 {
        let (a, b) = (T0 + random.i64(-9..60_000) * MS, T0 + random.i64(-9..60_000) * MS);
        let span = format!("time_ns between {} and {}", a.min(b), a.max(b));
        for (direction, edge) in [("desc", "max"), ("asc", "min")] {
            let sql =
                format!("select distinct on (k) k, time_ns, x, i from t where {span} order by k, time_ns {direction}");
            let found = texts(client, &sql).await;
            let times =
                texts(by_rows, &format!("select k, {edge}(time_ns) from t where {span} group by k order by k")).await;
            assert!(found.iter().map(|row| &row[..2]).eq(times.iter().map(|row| &row[..])), "{sql}");
            // Of several rows at one time any may be taken, but all cells of the same one.
            for row in &found {
                let text = |at: usize| row[at].clone().unwrap_or("null".to_owned());
                let is_it = format!(
                    "select count(*) > 0 from t where k = '{}' and time_ns = {} and x is not distinct from {}::float8 \
                     and i is not distinct from {}::int4",
                    text(0),
                    text(1),
                    text(2),
                    text(3)
                );
                assert_eq!(texts(by_rows, &is_it).await, [[Some("t".to_owned())]], "{sql}: {row:?}");
            }
        }
        for sql in [
            "select last_value(time_ns order by time), first_value(time_ns order by time desc) from t where",
            "select first_value(time_ns order by time_ns) from t where",
            "select k, last_value(time_ns order by time_ns) from t where k <> 'b' and",
        ] {
            let grouped = if sql.contains("select k") { "group by k order by k" } else { "" };
            compare((client, by_rows), &format!("{sql} {span} {grouped}")).await;
        }
    }
    for (sql, is_of_edges) in [
        ("select distinct on (k) k, x from t order by k, time desc", true),
        ("select last_value(x order by time) from t", true),
        ("select k, first_value(x order by k, time_ns) from t group by k", true),
        ("select last_value(x order by time), first_value(x order by time) from t", false),
        ("select last_value(x order by time) ignore nulls from t", false),
        ("select last_value(x order by i) from t", false),
        ("select last_value(x order by time), count(*) from t", false),
        ("select last_value(x order by time) filter (where i > 0) from t", false),
        ("select i, last_value(x order by time) from t group by i", false),
        ("select distinct on (k) k, x from t where x > 5 order by k, time desc", false),
    ] {
        let plan = texts(client, &format!("explain {sql}")).await;
        let plan = plan.into_iter().flatten().flatten().collect::<String>();
        assert_eq!(plan.contains("row of each stream"), is_of_edges, "{sql}: {plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_long_stream_are_divided_among_partitions() {
    let fixture = Fixture::start().await;
    let (stream, at) = fixture.stream("long", &[("k", "a")], &[("x", ChannelType::F64)]);
    let rows = 70_000i64;
    for start in (0..rows).step_by(10_000) {
        let mut batch = FrameBatch::new();
        for row in start..start + 10_000 {
            let time = T0 + row * MS;
            batch.begin(FrameHead { stream: stream.id, receive_time: time, source_time: None, sequence: None });
            batch.push(at[0], Value::F64(row as f64));
            batch.end();
        }
        fixture.store.append(&batch, T0 + rows * MS);
        fixture.store.commit(T0 + rows * MS).unwrap();
        if start < 40_000 {
            while fixture.store.maintain(T0 + rows * MS).unwrap() {}
        }
    }
    let client = fixture.client().await;
    let sql = "select count(*), sum(x + 1), count(distinct x), min(time_ns), max(time_ns) from long where x % 2 = 0";
    let plan = texts(&client, &format!("explain {sql}")).await.into_iter().flatten().flatten().collect::<String>();
    assert!(plan.contains("StoreScan: streams=1, partitions=2"), "{plan}");
    let even = rows / 2;
    let found = texts(&client, sql).await.remove(0).into_iter().flatten().collect::<Vec<_>>();
    let expected = [even, even * (even - 1) + even, even, T0, T0 + (rows - 2) * MS];
    assert_eq!(found, expected.map(|number| number.to_string()));
    let newest = texts(&client, "select x from long where x % 2 = 0 order by time desc limit 1").await;
    assert_eq!(newest, [[Some((rows - 2).to_string())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_say_what_became_of_blocks() {
    let (fixture, _by_rows) = fixture(6).await;
    let client = fixture.client().await;
    let counts = async |sql: &str| -> Vec<(String, u64)> {
        let lines = texts(&client, &format!("explain analyze {sql}")).await;
        let text = lines.into_iter().flatten().flatten().collect::<String>();
        let number = |name: &str| {
            let after = text.split(&format!("{name}=")).nth(1)?;
            after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        ["blocks_read", "blocks_by_statistics", "blocks_passed"]
            .map(|name| (name.to_owned(), number(name).unwrap_or(u64::MAX)))
            .to_vec()
    };
    let all = counts("select max(x) from t").await;
    assert!(all[0].1 == 0 && all[1].1 > 10, "{all:?}");
    let none = counts("select time, x from t where x > 1000").await;
    assert!(none[0].1 == 0 && none[2].1 > 10, "{none:?}");
    let some = counts("select time, x from t where x > -1000").await;
    assert!(some[0].1 > 10, "{some:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_say_that_statistics_are_used() {
    let (fixture, by_rows) = fixture(7).await;
    let client = fixture.client().await;
    let plan = async |client: &Client, sql: &str| -> String {
        let lines = texts(client, &format!("explain {sql}")).await;
        lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n")
    };
    for sql in [
        "select count(*) from t",
        "select min(x), max(x), avg(x), sum(x) from t where time_ns >= 5",
        "select k, avg(x) from t group by k",
        "select date_bin('1 minute', time), max(i), avg(u) from t group by 1 order by 1",
        "select date_trunc('hour', time), k, count(b) from t where k = 'a' group by 1, 2",
        "select count(*) from t where x > 100",
        "select k, max(i) from t where x > 100 and r < 2 and i is not null group by k",
    ] {
        let found = plan(&client, sql).await;
        assert!(found.contains("TotalsScan"), "{sql}:\n{found}");
        let found = plan(&by_rows.client().await, sql).await;
        assert!(!found.contains("TotalsScan"), "{sql}:\n{found}");
    }
    for sql in [
        "select count(*) from t where x > 1 or i < 0",
        "select count(*) from t where x > i",
        "select count(distinct x) from t",
        "select max(x + 1) from t",
        "select max(s) from t",
        "select sum(x) filter (where x > 0) from t",
        "select i, count(*) from t group by i",
        "select date_trunc('month', time), count(*) from t group by 1",
    ] {
        let found = plan(&client, sql).await;
        assert!(!found.contains("TotalsScan"), "{sql}:\n{found}");
    }
}
