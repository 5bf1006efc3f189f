//! The newest and the oldest rows of a table of many streams: found without reading the others.

use strongback_store::{ChannelType, Value};

use super::*;

const STREAMS: i64 = 1_000;
const ROWS: i64 = 120;

/// Table `many`: `STREAMS` streams of `ROWS` frames each; no two frames have the same time.
fn many(fixture: &Fixture) {
    let kinds = [("x", ChannelType::I64), ("y", ChannelType::F64)];
    let streams: Vec<_> = (0..STREAMS).map(|n| fixture.stream("many", &[("n", &format!("{n:04}"))], &kinds)).collect();
    for row in 0..ROWS {
        for (n, (stream, at)) in (0..).zip(&streams) {
            // Every tenth stream ends early, and its neighbour begins late.
            if n % 10 == 3 && row >= 80 || n % 10 == 4 && row < 40 {
                continue;
            }
            let time_ns = T0 + row * 1_000 * MS + (n * 7_919 % STREAMS) * MS;
            fixture.append(
                stream,
                time_ns,
                &[(at[0], Value::I64(row * STREAMS + n)), (at[1], Value::F64(n as f64 / 8.0))],
            );
        }
        if row % 30 == 0 {
            fixture.store.commit(now_ns()).unwrap();
        }
    }
}

/// Rows that the scans of a query took from the store.
async fn rows_read(client: &Client, sql: &str) -> u64 {
    let plan = texts(client, &format!("explain analyze {sql}")).await;
    let plan: String = plan.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n");
    let mut counts = plan.split("rows_read=").skip(1).peekable();
    assert!(counts.peek().is_some(), "{sql}: {plan}");
    let number = |text: &str| -> u64 {
        let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let unit = text[digits.len()..].trim_start().chars().next();
        let scale = if unit == Some('K') { 1_000.0 } else { 1.0 };
        (digits.parse::<f64>().unwrap() * scale) as u64
    };
    counts.map(number).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_in_the_order_of_time_reads_few_rows_of_many_streams() {
    let fixture = Fixture::start().await;
    many(&fixture);
    let client = fixture.client().await;
    let total: u64 = text(&client, "select count(*) from many").await.parse().unwrap();
    assert_eq!(total, 112_000);
    let columns = "time_ns, n, x, y";
    // (query, order, limit, most rows read)
    for (wheres, order, limit, most) in [
        ("", "time", "limit 10", 20_000),
        ("", "time desc", "limit 10", 20_000),
        ("", "time_ns desc", "limit 7 offset 5", 20_000),
        ("", "time", "limit 3000", 112_000),
        ("where n < '0500'", "time desc", "limit 20", 20_000),
        ("where time > '2026-11-20 00:01:00Z'", "time", "limit 20", 25_000),
        ("where time < '2026-11-20 00:01:00Z'", "time desc", "limit 20", 25_000),
        // What the scan does not filter itself.
        ("where x % 3 = 0", "time desc", "limit 10", 70_000),
        ("where y + x > 5", "time", "limit 10", 70_000),
    ] {
        let wanted = format!("select {columns} from many {wheres} order by {order} {limit}");
        let naive = order.replace("time_ns", "time").replace("time", "time_ns + 0");
        let naive = format!("select {columns} from many {wheres} order by {naive} {limit}");
        let got = texts(&client, &wanted).await;
        assert!(!got.is_empty());
        assert_eq!(got, texts(&client, &naive).await, "{wanted}");
        // Through DataFusion as well, which a short read does without.
        let long = format!("select {columns}, x + 1 as z from many {wheres} order by {order} {limit}");
        let mut cut = texts(&client, &long).await;
        cut.iter_mut().for_each(|row| row.truncate(4));
        assert_eq!(got, cut, "{long}");
        let read = rows_read(&client, &long).await;
        assert!(read <= most, "{long}: {read} rows read");
        assert!(rows_read(&client, &naive).await >= read);
    }
    // A limit that chose its rows before the sort keeps them.
    let inner = "select time_ns, x from (select * from many where n = '0007' order by x desc limit 5) q";
    let got = texts(&client, &format!("{inner} order by time limit 2")).await;
    assert_eq!(got, texts(&client, &format!("{inner} order by time_ns + 0 limit 2")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_out_of_order_are_sorted_all_the_same() {
    let fixture = Fixture::start().await;
    let streams: Vec<_> =
        (0..20).map(|n| fixture.stream("late", &[("n", &n.to_string())], &[("x", ChannelType::I64)])).collect();
    for row in 0..200i64 {
        for (n, (stream, at)) in (0..).zip(&streams) {
            // One stream sends each pair of frames the wrong way round.
            let row = if n == 13 { row ^ 1 } else { row };
            fixture.append(stream, T0 + row * 20 * MS + n * MS, &[(at[0], Value::I64(row * 20 + n))]);
        }
    }
    let client = fixture.client().await;
    for order in ["time", "time desc"] {
        let sorted = texts(&client, &format!("select x from late order by {order} limit 500")).await;
        let naive = format!("select x from late order by {} limit 500", order.replace("time", "time_ns + 0"));
        assert_eq!(sorted, texts(&client, &naive).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_times_are_in_the_order_of_streams_and_nanoseconds_count() {
    let fixture = Fixture::start().await;
    let streams: Vec<_> =
        (0..5).map(|n| fixture.stream("tied", &[("n", &n.to_string())], &[("x", ChannelType::I64)])).collect();
    // Three frames of a stream in each microsecond, at the nanoseconds 0, 1 and 2, which all streams have.
    for row in 0..300i64 {
        for (n, (stream, at)) in (0..).zip(&streams) {
            fixture.append(stream, T0 + row / 3 * 1_000 + row % 3, &[(at[0], Value::I64(row * 5 + n))]);
        }
    }
    let client = fixture.client().await;
    let wanted: Vec<String> = (0..1_500).map(|x: i64| x.to_string()).collect();
    let numbers = |rows: Vec<Vec<Option<String>>>| -> Vec<String> {
        rows.into_iter().map(|mut row| row.swap_remove(0).unwrap()).collect()
    };
    for (sql, most) in [
        ("select x from tied order by time", 1_500),
        ("select x + 0 as x from tied order by time", 1_500),
        ("select x + 0 as x from tied order by time limit 7", 7),
        ("select x + 0 as x from tied where x + 0 >= 0 order by time limit 700", 700),
        ("select x from (select x, row_number() over (order by time) as r from tied) q order by r", 1_500),
    ] {
        assert_eq!(numbers(texts(&client, sql).await), wanted[..most], "{sql}");
        let newest_first = sql.replace("by time", "by time desc");
        let wanted: Vec<String> = wanted.iter().rev().take(most).cloned().collect();
        assert_eq!(numbers(texts(&client, &newest_first).await), wanted, "{newest_first}");
    }
}
