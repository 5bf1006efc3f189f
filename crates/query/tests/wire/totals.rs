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
        let conditions = [
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
                    let condition = conditions[random.usize(..conditions.len())];
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
