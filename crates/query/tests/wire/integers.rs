//! Integers at the ends of their types: exact, or an error that says so.

use std::time::Duration;

use strongback_query::{PgAuth, QueryOptions};
use strongback_store::{ChannelType, Value};
use tokio_postgres::types::Type;

use crate::{Fixture, MS, T0, cells, state_of, text, texts};

/// Table `q`: the ends of 64 bits in `i`, small numbers beside them.
async fn fixture() -> Fixture {
    let fixture = Fixture::with(QueryOptions { threads: 3, ..QueryOptions::default() }, PgAuth::Trust).await;
    let kinds = [("i", ChannelType::I64), ("u", ChannelType::U32), ("w", ChannelType::U64), ("s", ChannelType::I16)];
    let (stream, at) = fixture.stream("q", &[], &kinds);
    for (row, (i, w)) in [(i64::MAX, u64::MAX), (1, 0), (i64::MIN, 1)].into_iter().enumerate() {
        let row = row as u32;
        let cells = [
            (at[0], Value::I64(i)),
            (at[1], Value::U32(row)),
            (at[2], Value::U64(w)),
            (at[3], Value::I16(i16::MAX - row as i16)),
        ];
        fixture.append(&stream, T0 + i64::from(row) * MS, &cells);
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_wraps() {
    let fixture = fixture().await;
    let client = fixture.client().await;
    let (first, last) = (T0, T0 + 2 * MS);
    for sql in [
        "select 9223372036854775807 + 1".to_owned(),
        format!("select sum(i) from q where time_ns < {last}"),
        format!("select u % 1, sum(i) from q where time_ns < {last} group by 1"),
        format!("select sum(distinct i) from q where time_ns < {last}"),
        format!("select sum(i) over (order by time_ns) from q where time_ns < {last}"),
        "select sum(i) over (order by time rows between 1 preceding and current row) from q".to_owned(),
        format!("select i + 1 from q where time_ns = {first}"),
        format!("select i * 2 from q where time_ns = {first}"),
        format!("select i - 1 from q where time_ns = {last}"),
        format!("select -i from q where time_ns = {last}"),
        "select max(i) - min(i) from q".to_owned(),
        "select time_ns * 10 from q".to_owned(),
        "select s * s from q".to_owned(),
        "select count(*) from q where i + 1 > i".to_owned(),
        "select count(*) from q group by i * 2".to_owned(),
        "select i from q order by i + 1 desc".to_owned(),
        "select a.i from q a join q b on a.i + 1 = b.i".to_owned(),
        "select case when u = 0 then i + 1 end from q".to_owned(),
    ] {
        assert_eq!(state_of(&client, &sql).await, "22003", "{sql}");
    }
    let sql = format!("select sum(i) from q where time_ns < {last}");
    let error = fixture.query.sql_json(&sql, 10, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!((error.sqlstate, error.message.as_str()), ("22003", "bigint out of range"));
    let error = client.query("select i + 1 from q where time_ns = $1", &[&first]).await.unwrap_err();
    assert_eq!(error.as_db_error().map(|error| error.message()), Some("bigint out of range"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_place_is_exact() {
    let fixture = fixture().await;
    let client = fixture.client().await;
    for (sql, result) in [
        ("select sum(i) from q", "0"),
        ("select sum(distinct i) from q", "0"),
        ("select sum(s) from q", "98298"),
        ("select sum(s * 2) from q", "196596"),
        ("select sum(w) from q where w > 1", "18446744073709551615"),
        ("select sum(w) from q", "18446744073709551616"),
        ("select sum(i::numeric) > 9223372036854775807 from q where i > 0", "t"),
        ("select i - 1 from q where time_ns = 1795132800000000000", "9223372036854775806"),
        ("select max(u) - min(u) from q", "2"),
        ("select u - max(u) over () from q order by 1", "-2"),
        ("select count(*) from q where -s < 0", "3"),
        ("select count(*) from q where time_ns >= 1795132800000000000 + 1000 * 1000", "2"),
        ("select count(*) from q where i <> 9223372036854775807 and u * 2 < 4", "1"),
        (
            "select case when i < 9223372036854775807 then i + 1 else i end from q order by i desc",
            "9223372036854775807",
        ),
    ] {
        assert_eq!(text(&client, sql).await, result, "{sql}");
    }
    let sql = "select sum(i) over (order by time_ns desc) from q order by time_ns desc";
    let running = [i64::MIN.to_string(), (i64::MIN + 1).to_string(), "0".to_owned()];
    assert_eq!(texts(&client, sql).await, running.map(|sum| cells([&sum])));
}

#[tokio::test(flavor = "multi_thread")]
async fn means_are_those_of_the_exact_sum() {
    let fixture = fixture().await;
    let numbers = [("n", ChannelType::I64), ("g", ChannelType::I32)];
    let (stream, at) = fixture.stream("m", &[], &numbers);
    // As doubles, the first two cancel what is between them.
    let values = [i64::MAX, 1, 1, 1, i64::MIN, -(i64::MAX - 3), i64::MAX];
    for (row, n) in values.into_iter().enumerate() {
        let group = i32::from(row >= 5);
        fixture.append(&stream, T0 + row as i64 * MS, &[(at[0], Value::I64(n)), (at[1], Value::I32(group))]);
    }
    let client = fixture.client().await;
    for (sql, result) in [
        ("select avg(n) from m where g = 0", "0.4"),
        ("select avg(n) from m where g = 1", "1.5"),
        ("select mean(n) from m where g = 1", "1.5"),
        ("select avg(distinct n) from m where g = 0", "0"),
        ("select sum(n) = avg(n) * count(*) from m where g = 0", "t"),
        ("select avg(n) over () from m where g = 1 limit 1", "1.5"),
        ("select avg(distinct n) over () from m where g = 1 limit 1", "1.5"),
        ("select avg(s) from q", "32766"),
        ("select avg(u) from q", "1"),
        ("select avg(s * 2) from q", "65532"),
        ("select avg(n) filter (where n = 1) from m", "1"),
        ("select avg(n) is null from m where n = 7", "t"),
        ("select avg(null) is null", "t"),
        ("select avg(s::float8 / 2) from q", "16383"),
        ("select avg(w) from q where w < 2", "0.5"),
        ("select avg(time_ns) = min(time_ns) + 1000000 from q", "t"),
    ] {
        let found = text(&client, sql).await;
        assert!(found == result || found == format!("{result}000"), "{sql}: {found}");
    }
    let sql = "select avg(n), avg(distinct n) from m group by g order by g";
    assert_eq!(texts(&client, sql).await, [cells(["0.4", "0"]), cells(["1.5", "1.5"])]);
    let sql = "select avg(n) over (order by time_ns rows between 1 preceding and current row) from m where n = 1";
    assert_eq!(texts(&client, sql).await, ["1"; 3].map(|mean| cells([mean])));
    assert_eq!(state_of(&client, "select avg('text'::text)").await, "42883");
    let prepared = client.prepare("select avg(n), avg(s), avg(u) from m, q").await.unwrap();
    assert!(prepared.columns().iter().all(|column| *column.type_() == Type::FLOAT8));
}
