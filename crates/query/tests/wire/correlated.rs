//! Subqueries that depend on the row around them: right, or refused, never something else.

use strongback_store::{ChannelType, Value};
use tokio_postgres::SimpleQueryMessage;

use crate::{Fixture, MS, T0};

async fn answer(client: &tokio_postgres::Client, sql: &str) -> Result<Vec<Vec<Option<String>>>, String> {
    let messages = client.simple_query(sql).await.map_err(|error| {
        let error = error.as_db_error().expect("an error of the server");
        format!("{} {}", error.code().code(), error.message())
    })?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
            _ => None,
        })
        .collect())
}

#[tokio::test]
async fn correlated_subqueries_are_right_or_refused() {
    let fixture = Fixture::start().await;
    for (rig, base) in [("A", 100.0), ("B", 200.0)] {
        let (stream, at) = fixture.stream("qa", &[("rig", rig)], &[("p", ChannelType::F64), ("n", ChannelType::I32)]);
        for row in 0..20 {
            let cells = [(at[0], Value::F64(base + row as f64)), (at[1], Value::I32(row))];
            fixture.append(&stream, T0 + i64::from(row) * MS, &cells);
        }
    }
    let (stream, at) = fixture.stream("qb", &[], &[("q", ChannelType::F64)]);
    for row in 0..10 {
        fixture.append(&stream, T0 + i64::from(row) * 2 * MS, &[(at[0], Value::F64(f64::from(row)))]);
    }
    let client = fixture.client().await;
    let row = |cells: &[&str]| cells.iter().map(|cell| Some((*cell).to_owned())).collect::<Vec<_>>();
    // Those that must be right.
    for (sql, expected) in [
        ("select rig, (select max(q) from qb) m from qa order by time, rig limit 1", vec![row(&["A", "9"])]),
        (
            "select x.rig, (select max(p) from qa where qa.rig = x.rig) from (select distinct rig from qa) x order by 1",
            vec![row(&["A", "119"]), row(&["B", "219"])],
        ),
        (
            "select x.rig, (select max(p) from qa where qa.rig = x.rig and n < 10) from (values ('A'), ('B')) x(rig) \
             order by 1",
            vec![row(&["A", "109"]), row(&["B", "209"])],
        ),
        (
            "select a.n, (select max(b.p) from qa b where b.time_ns = a.time_ns) as m from qa a where rig = 'A' \
             order by a.time_ns limit 2",
            vec![row(&["0", "200"]), row(&["1", "201"])],
        ),
        (
            "select x.rig, (select count(*) from qa where qa.rig = x.rig) as c from (values ('A'), ('C')) x(rig) order by 1",
            vec![row(&["A", "20"]), row(&["C", "0"])],
        ),
    ] {
        assert_eq!(answer(&client, sql).await, Ok(expected), "{sql}");
    }
    // Those that are right or refused by name.
    let greatest = |until: i64| (until / 2).to_string();
    for (sql, expected) in [
        (
            "select v.t, (select max(q) from qb where qb.time_ns <= v.t) from (values (1795132800005000000)) v(t)",
            vec![row(&["1795132800005000000", &greatest(5)])],
        ),
        (
            "select a.n, (select max(q) from qb where qb.time <= a.time) from qa a where rig = 'A' order by a.time limit 3",
            vec![row(&["0", "0"]), row(&["1", "0"]), row(&["2", "1"])],
        ),
        (
            "select rig, (select count(*) from qb where qb.q * 20 < x.mp) m from (select rig, max(p) mp from qa group by 1) x \
             order by 1",
            vec![row(&["A", "6"]), row(&["B", "10"])],
        ),
        (
            "select x.rig, (select p from qa where qa.rig = x.rig order by time desc limit 1) from (values ('A'), ('B')) \
             x(rig) order by 1",
            vec![row(&["A", "119"]), row(&["B", "219"])],
        ),
        (
            "select x.rig from (values ('A'), ('B')) x(rig) where 150 < (select max(p) from qa where qa.rig = x.rig)",
            vec![row(&["B"])],
        ),
        (
            "select x.rig, 1 + (select sum(n) from qa where qa.rig = x.rig and p > 110) from (values ('A'), ('B')) x(rig) \
             order by 1",
            vec![row(&["A", "136"]), row(&["B", "191"])],
        ),
    ] {
        match answer(&client, sql).await {
            Ok(rows) => assert_eq!(rows, expected, "{sql}"),
            Err(error) => assert!(error.starts_with("0A000 a subquery that depends"), "{sql}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_subquery_of_several_rows_is_no_value() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let several = answer(&client, "select (select x from pad)").await;
    assert!(several.is_err(), "{several:?}");
}

#[tokio::test]
async fn memberships_with_nulls_are_right_or_refused() {
    let fixture = Fixture::start().await;
    let (stream, at) = fixture.stream("a", &[], &[("i", ChannelType::I64), ("f", ChannelType::I64)]);
    for (row, (i, f)) in [(Some(1), 1), (None, 2), (Some(5), 3)].into_iter().enumerate() {
        let mut cells = vec![(at[1], Value::I64(f))];
        cells.extend(i.map(|i| (at[0], Value::I64(i))));
        fixture.append(&stream, T0 + row as i64 * MS, &cells);
    }
    let (stream, at) = fixture.stream("c", &[], &[("k", ChannelType::I64)]);
    fixture.append(&stream, T0, &[(at[0], Value::I64(5))]);
    let client = fixture.client().await;
    let rows = |found: &[&str]| found.iter().map(|cell| vec![Some((*cell).to_owned())]).collect::<Vec<_>>();
    for (condition, expected) in [
        ("i not in (select k from c)", ["1"].as_slice()),
        ("not (i in (select k from c)) and f < 100", &["1"]),
        ("i not in (select null::bigint from c)", &[]),
        ("i in (select k from c) or f = 2", &["2", "3"]),
        ("f > 100 or (i in (select k from c) and f = 3)", &["3"]),
        ("i>-5 and i in (select k from c)", &["3"]),
        ("f in (select count(*) from c) or f > 100", &["1"]),
        ("f not in (5) or f > 100", &["1", "2", "3"]),
        ("not exists (select 1 from c where c.k = a.i) or f > 100", &["1", "2"]),
    ] {
        let sql = format!("select f from a where {condition} order by f");
        assert_eq!(answer(&client, &sql).await, Ok(rows(expected)), "{sql}");
    }
    for condition in [
        "i not in (select k from c) or f > 100",
        "not (i in (select k from c)) or f > 100",
        "not (i in (select k from c) or f > 100)",
        "(i not in (select k from c)) is null",
        "case when i not in (select k from c) then true else false end",
        "f > 100 or (f < 9 and i not in (select null::bigint from c))",
    ] {
        let refused = answer(&client, &format!("select f from a where {condition}")).await.unwrap_err();
        assert!(
            refused.starts_with("0A000 IN (subquery) is offered as a condition of its own"),
            "{condition}: {refused}"
        );
    }
}
