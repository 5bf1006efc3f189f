//! Texts and constants that have no value: refused as in PostgreSQL.

use std::error::Error;
use std::time::Duration;

use bytes::BytesMut;
use strongback_store::{ChannelType, Value};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::{Fixture, T0, state_of, text, texts};

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_announced_with_the_types_of_their_values() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    for (sql, wanted) in [
        ("select case when x = 1 then 2 else y end from pad", Type::FLOAT8),
        ("select time at time zone 'Europe/Berlin' from pad", Type::TIMESTAMP),
        ("select date_trunc('day', time at time zone 'utc') from pad", Type::TIMESTAMP),
        ("select coalesce(y, x) from pad", Type::FLOAT8),
        ("select 1 union all select y from pad", Type::FLOAT8),
        ("select avg(x) from pad", Type::FLOAT8),
    ] {
        let statement = client.prepare(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        assert_eq!(statement.columns()[0].type_(), &wanted, "{sql}");
        client.query(&statement, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    // Never the bytes of another type, whatever the values of parameters make of a column.
    let statement = client.prepare_typed("select sum(x) + $1 from pad", &[Type::FLOAT8]).await.unwrap();
    assert_eq!(statement.columns()[0].type_(), &Type::FLOAT8);
    assert_eq!(client.query_one(&statement, &[&0.5_f64]).await.unwrap().get::<_, f64>(0), 3.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_beyond_their_type_are_refused() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    for sql in [
        "select 1e400",
        "select -1e400",
        "select 1_0e400",
        "select 1e-400",
        "select x from pad where y < 1e400",
        "select x from pad where y < '1e400'",
        "select x from pad where y between 0 and '-1e400'",
        "select '1e400'::float8",
        "select cast('-1e400' as double precision)",
        "select float8 '1e400'",
        "select '1e-400'::float8",
        "select '1e39'::float4",
        "select '1e39'::real",
        "select (x::text || 'e400')::float8 from pad",
        "select count(*) from pad where (x::text || 'e400')::float8 > 1",
        "select ('1' || 'e400')::float8",
        "select sum((x::text || 'e39')::float4) from pad",
        "select v::float8 from (values ('1'), ('1e400')) t(v)",
        "select x from pad order by (x::text || 'e400')::float8",
    ] {
        assert_eq!(state_of(&client, sql).await, "22003", "{sql}");
        let error = fixture.query.sql_json(sql, 10, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error.sqlstate, "22003", "{sql}");
    }
    let error = fixture.query.sql_json("select 1e400", 1, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.message, "\"1e400\" is out of range for type double precision");
    let error = fixture.query.sql_json("select '1e39'::float4", 1, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.message, "\"1e39\" is out of range for type real");
    let statement = client.prepare_typed("select $1::float8", &[Type::TEXT]).await.unwrap();
    let error = client.query(&statement, &[&"1e400"]).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22003");
    for text in ["1e400", "-1e400", "1e-400"] {
        let statement = client.prepare_typed("select x from pad where y < $1", &[Type::TEXT]).await.unwrap();
        let error = client.query(&statement, &[&text]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "22003", "{text}");
    }
    let statement = client.prepare_typed("select count(*) from pad where y < $1", &[Type::TEXT]).await.unwrap();
    for (text, count) in [("Infinity", 2_i64), ("0.2", 1), ("-inf", 0), ("NaN", 2)] {
        assert_eq!(client.query_one(&statement, &[&text]).await.unwrap().get::<_, i64>(0), count, "{text}");
    }
    for (sql, result) in [
        ("select 'Infinity'::float8", "Infinity"),
        ("select '-inf'::float8", "-Infinity"),
        ("select 'NaN'::float4", "NaN"),
        ("select '0e400'::float8", "0"),
        ("select 1e308", "1e+308"),
        ("select '1e-320'::float8", "1e-320"),
        // Arithmetic follows IEEE 754.
        ("select 1e308 * 10", "Infinity"),
        ("select count(*) from pad where y < 'Infinity'", "2"),
        ("select try_cast('1e400' as double) is null", "t"),
        ("select count(try_cast(x::text || 'e400' as double)) from pad", "1"),
        ("select max((x::text || 'e1')::float8) from pad", "20"),
        ("select count(*) from (select x::text::float8 as v from pad group by rollup (x::text::float8)) q", "4"),
        ("select v::float8 + 1 from (values ('1'), (null)) t(v) order by 1 limit 1", "2"),
    ] {
        assert_eq!(text(&client, sql).await, result, "{sql}");
    }
    // A checked cast leaves the name of its column as it was.
    let named = client.prepare("select y::text::float8, cast(x::text as float8) from pad").await.unwrap();
    assert_eq!(named.columns().iter().map(|column| column.name()).collect::<Vec<_>>(), ["y", "x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_time_zones_and_displacements_out_of_range_are_refused() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let mut wrong = Vec::new();
    for (sql, code) in [
        ("set time zone 'Nowhere/City'", "22023"),
        ("set timezone = 'Nope'", "22023"),
        ("set timezone to '25'", "22023"),
        ("set time zone 'Europe/Berlin'", "0A000"),
        ("set time zone -7", "0A000"),
        ("select time at time zone 'Nope' from pad", "22023"),
        ("select now() at time zone 'Nowhere/City' is null", "22023"),
        ("select count(*) from pad where time at time zone '+25:00' is null", "22023"),
        ("select timestamp '2026-01-01 00:00:00' at time zone 'Nope'", "22023"),
        ("select '2026-01-01 00:00:00' at time zone 'Nope'", "22023"),
        ("select timestamptz '2026-01-01 00:00:00 Nowhere/City'", "22023"),
        ("select '2026-01-01 00:00:00 Nope'::timestamptz", "22023"),
        ("select count(*) from pad where time > '2026-01-01 00:00:00 Nope'", "22023"),
        ("select to_timestamp('2026-01-01 00:00:00 Nope')", "22023"),
        ("select timestamptz '2026-01-01 00:00:00+25:00'", "22009"),
        ("select timestamptz '2026-01-01 00:00:00+16:00'", "22009"),
        ("select timestamp '2026-01-01 00:00:00-16'", "22009"),
        ("select '2026-01-01T00:00:00+00:60'::timestamptz", "22009"),
        ("select '2026-01-01T00:00:00+2359'::timestamptz", "22009"),
        ("select count(*) from pad where time > '2026-01-01 00:00:00+16:00'", "22009"),
        ("select x from pad where time > '2026-01-01 00:00:00+16:00' limit 1", "22009"),
        ("select x from pad where time between '2026-01-01' and timestamptz '2026-01-01 00:00:00+16:00'", "22009"),
        ("select ('2026-01-01 00:00:00+1' || (x + 6)::text || ':00')::timestamptz from pad", "22009"),
        ("select * from state_at('2026-01-01 00:00:00+16:00', 'pad.x')", "22009"),
        ("select * from state_at('2026-01-01 00:00:00 Nope', 'pad.x')", "22023"),
        ("select * from state_at(timestamptz '2026-01-01 00:00:00+16:00', 'pad.x')", "22009"),
        ("select * from state_at('2026-01-01 00:00:00+16:00'::timestamptz, 'pad.x')", "22009"),
    ] {
        let got = state_of(&client, sql).await;
        if got != code {
            wrong.push((sql, code, got));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let sql = "select timestamptz '2026-01-01 00:00:00+25:00'";
    let error = fixture.query.sql_json(sql, 1, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.message, "time zone displacement out of range: \"2026-01-01 00:00:00+25:00\"");
    let sql = "select time at time zone 'Nope' from pad";
    let error = fixture.query.sql_json(sql, 1, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.message, "time zone \"Nope\" not recognized");
    for (sql, result) in [
        ("select timestamptz '2026-01-01 00:00:00+15:59'", "2025-12-31 08:01:00+00"),
        ("select timestamptz '2026-01-01 00:00:00-15:59:59'", "2026-01-01 15:59:59+00"),
        ("select '2026-01-01 00:00:00.5+2'::timestamptz", "2025-12-31 22:00:00.5+00"),
        ("select '2026-07-01 00:00:00 europe/berlin'::timestamptz", "2026-06-30 22:00:00+00"),
        (
            "select ('2026-01-01 00:00:00+1' || x::text || ':00:30')::timestamptz from pad limit 1",
            "2025-12-31 13:59:30+00",
        ),
        ("select date_trunc('day', time at time zone 'america/new_york') from pad limit 1", "2026-11-19 00:00:00"),
        ("select '2026-07-01 12:00:00+00'::timestamptz at time zone 'Europe/Berlin'", "2026-07-01 14:00:00"),
        ("select timestamp '2026-07-01 14:00:00' at time zone 'Europe/Berlin'", "2026-07-01 12:00:00+00"),
        (
            "select timestamp '2026-07-01 14:00:00' at time zone 'Europe/Berlin' at time zone 'UTC'",
            "2026-07-01 12:00:00",
        ),
        ("select to_char('2026-07-01 12:34:56+00'::timestamptz, 'YYYY-MM-DD HH24:MI:SS')", "2026-07-01 12:34:56"),
        ("select to_char('2026-07-01 12:34:56+00'::timestamptz, '%H:%M')", "12:34"),
        ("select count(*) from pad where time >= '2026-11-20 02:00:00.001 Africa/Cairo'", "2"),
        ("select count(*) from pad where time >= '2026-11-20 15:59:59+15:59:59'", "3"),
        ("select try_cast('2026-01-01 00:00:00+16:00' as timestamp) is null", "t"),
    ] {
        assert_eq!(text(&client, sql).await, result, "{sql}");
    }
    assert_eq!(texts(&client, "select x from pad where time > '2026-11-20 02:00:00.001+2'").await.len(), 1);
}

/// A numeric as text, which a client may write with an exponent.
#[derive(Debug)]
struct Numeric(&'static str);

impl ToSql for Numeric {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[tokio::test(flavor = "multi_thread")]
async fn numerics_may_have_an_exponent() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let statement = client.prepare_typed("select count(*) from pad where y > $1", &[Type::NUMERIC]).await.unwrap();
    for (number, count) in [("1E-7", 2_i64), ("1.25e-1", 1), ("-1E+3", 2), ("2.5E1", 0), ("0E-7", 2), ("0.2", 1)] {
        assert_eq!(
            client.query_one(&statement, &[&Numeric(number)]).await.unwrap().get::<_, i64>(0),
            count,
            "{number}"
        );
    }
    let statement = client.prepare_typed("select x from pad where x = $1", &[Type::NUMERIC]).await.unwrap();
    assert_eq!(client.query_one(&statement, &[&Numeric("2E+0")]).await.unwrap().get::<_, i32>(0), 2);
    for (number, code) in [("1E-99", "22003"), ("1E99", "22003"), ("1E", "22P02"), ("E7", "22P02")] {
        let error = client.query(&statement, &[&Numeric(number)]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), code, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statements_of_the_page_about_sql_run() {
    let fixture = Fixture::start().await;
    let (stream, at) = fixture.stream("engine", &[("stand", "2")], &[("p", ChannelType::F64)]);
    fixture.append(&stream, T0, &[(at[0], Value::F64(2.5))]);
    let client = fixture.client().await;
    let page = include_str!("../../../../docs/sql.md");
    let mut statements = 0;
    for block in page.split("```sql\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for sql in block.split(';').filter(|sql| !sql.trim().is_empty()) {
            if let Err(error) = client.prepare(sql).await {
                panic!("{sql}: {error:?}");
            }
            if !sql.contains('$') {
                client.query(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            }
            statements += 1;
        }
    }
    assert!(statements > 8, "{statements}");
    for (text, micros) in [
        ("2026-11-20 00:00", "2026-11-20 00:00:00+00"),
        ("2026-11-20T06:30Z", "2026-11-20 06:30:00+00"),
        ("2026-11-20 06:30+02", "2026-11-20 04:30:00+00"),
        ("2026-11-20 06:30 Europe/Berlin", "2026-11-20 05:30:00+00"),
        ("2026-11-20 06:30:15.5", "2026-11-20 06:30:15.5+00"),
    ] {
        assert_eq!(self::text(&client, &format!("select '{text}'::timestamptz")).await, micros);
        let sql = format!("select count(*) from engine where time > timestamptz '{text}'");
        client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_bind_as_in_postgresql() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for (sql, result) in [
        ("select true is distinct from true or true", "t"),
        ("select true or false is distinct from true and false", "t"),
        ("select true and true is distinct from true or true", "t"),
        ("select not 1 is not distinct from 1 or true", "t"),
        ("select 1 is distinct from 1 + 1 and 2 > 1", "t"),
        ("select null is not distinct from null and false", "f"),
        (
            "select count(*) from (values (1, true), (2, false)) v(n, b) where b is not distinct from false and n > 5",
            "0",
        ),
        ("select count(*) from (values (1, true), (2, false)) v(n, b) where b is not distinct from true or n = 2", "2"),
        ("select count(*) from (values (1.5, 1), (2.5, 2)) v(f, k) where f is distinct from 1.5 and k > 1", "1"),
        ("select case when 1 is distinct from 2 then 'a' else 'b' end", "a"),
        ("select -2^2", "4"),
        ("select 2 - 2^2", "-2"),
        ("select -(2^2)", "-4"),
        ("select - - 3", "3"),
        ("select -7::int % 4", "-3"),
        ("select -3 * -2 + +1", "7"),
        ("select count(*) from (values (-2.0)) v(n) where -n^2 > 0", "1"),
        ("select -9223372036854775808", "-9223372036854775808"),
    ] {
        assert_eq!(text(&client, sql).await, result, "{sql}");
    }
    for sql in [
        "select * from (values (1), (1)) a(x) except all select * from (values (1)) b(x)",
        "select 1 where exists (select 1 union all select 2 intersect all select 1)",
        "select array_agg(distinct k order by k), array_agg(distinct k order by k desc) from (values (1), (3)) v(k)",
    ] {
        assert_eq!(state_of(&client, sql).await, "0A000", "{sql}");
    }
    let columns = "select array_agg(distinct a order by a), array_agg(distinct b order by b desc) from \
                   (values (1, 9), (3, 7)) v(a, b)";
    assert_eq!(texts(&client, columns).await, [crate::cells(["{1,3}", "{9,7}"])]);
    let long = format!("select 1{}", " is distinct from 2 is null".repeat(501));
    assert_eq!(state_of(&client, &long).await, "54001");
    let both = "select array_agg(distinct k order by k), string_agg(distinct k::text, ',') from (values (3), (1)) v(k)";
    assert_eq!(texts(&client, both).await.len(), 1);
    let rows =
        "select distinct on (b) b, n from (values (true, 1), (true, 3), (false, 2)) v(b, n) order by b, b, n desc";
    assert_eq!(texts(&client, rows).await, [["f", "2"], ["t", "3"]].map(crate::cells));
}

/// The expected values are those of PostgreSQL 15.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_times_and_rounded_floats_are_those_of_postgresql() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let instant = "timestamptz '2025-10-09 08:53:20.123456+00'";
    let long = "interval '1 year 14 months 3 days 04:05:06.789'";
    for (field, of, expected) in [
        ("second", instant, "20.123456"),
        ("milliseconds", instant, "20123.456"),
        ("microseconds", instant, "20123456"),
        ("epoch", instant, "1760000000.123456"),
        ("isodow", instant, "4"),
        ("dow", instant, "4"),
        ("doy", instant, "282"),
        ("week", instant, "41"),
        ("quarter", instant, "4"),
        ("decade", instant, "202"),
        ("century", instant, "21"),
        ("isoyear", "timestamp '2024-12-30 00:00:00'", "2025"),
        ("julian", "timestamp '2000-01-01 12:00:00'", "2451545.5"),
        ("epoch", "timestamptz '1969-07-20 20:17:40.5+00'", "-14182939.5"),
        ("day", "date '2023-03-05'", "5"),
        ("epoch", "timestamp '2025-01-02' - timestamp '2025-01-01 00:00:00.25'", "86399.75"),
        ("epoch", long, "68573106.789"),
        ("month", long, "2"),
        ("hour", long, "4"),
        ("second", long, "6.789"),
        ("epoch", "interval '-1 day -02:03:04.5'", "-93784.5"),
        ("minute", "'-1 day -02:03:04.5'::interval", "-3"),
    ] {
        let sql = format!("select extract({field} from {of}), date_part('{field}', {of})");
        let expected = Some(expected.to_owned());
        assert_eq!(texts(&client, &sql).await, [[expected.clone(), expected]], "{sql}");
    }
    for (number, expected) in [("0.5", "0"), ("1.5", "2"), ("2.5", "2"), ("-2.5", "-2"), ("2.4999", "2")] {
        let sql = format!("select round({number}::float8) as a, round({number}::real) as b");
        assert_eq!(texts(&client, &sql).await, [[Some(expected.to_owned()), Some(expected.to_owned())]], "{sql}");
    }
    for (sql, state) in [
        ("select date_part('foo', timestamp '2025-01-02')", "22023"),
        ("select date_part('hour', date '2025-01-02')", "0A000"),
        ("select extract(dow from interval '1 day')", "0A000"),
    ] {
        assert_eq!(state_of(&client, sql).await, state, "{sql}");
    }
    assert_eq!(texts(&client, "select date_part(null, timestamp '2025-01-02')").await, [[None::<String>]]);
}
