//! Names of columns and tables as clients see them.

use std::time::Duration;

use strongback_store::{ChannelType, Value};
use tokio_postgres::SimpleQueryMessage;

use crate::{Fixture, MS, T0, text, texts};

const PAD: &str = "time time_ns receive_time receive_time_ns source_time source_time_ns sequence x y";
const DUO: &str = "time time_ns receive_time receive_time_ns source_time source_time_ns sequence n x z";

/// Returns the names of a result's columns, separated by spaces, from both protocols of PostgreSQL and from HTTP.
async fn columns(fixture: &Fixture, client: &tokio_postgres::Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let simple = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::RowDescription(all) => Some(all.iter().map(|one| one.name().to_owned()).collect()),
        _ => None,
    });
    let simple: Vec<String> = simple.unwrap();
    let prepared = client.prepare(sql).await.unwrap();
    let prepared: Vec<String> = prepared.columns().iter().map(|one| one.name().to_owned()).collect();
    assert_eq!(simple, prepared, "{sql}");
    let answer = fixture.query.sql_json(sql, 1, Duration::from_secs(60)).await.unwrap();
    let json = answer.as_str().split(",\"rows\":").next().unwrap();
    let json: Vec<&str> = json.split("{\"name\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(json, prepared, "{sql}");
    prepared.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_columns_keep_their_names() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let kinds = [("x", ChannelType::I32), ("z", ChannelType::I32)];
    let (stream, at) = fixture.stream("duo", &[("n", "1")], &kinds);
    fixture.append(&stream, T0 + MS, &[(at[0], Value::I32(1)), (at[1], Value::I32(7))]);
    let client = fixture.client().await;
    let first = format!("time_ns {PAD}");
    let both = format!("{PAD} {DUO}");
    for (sql, wanted) in [
        ("select time_ns, * from pad", first.clone()),
        ("select pad.time_ns, * from pad", first.clone()),
        ("select time_ns, pad.* from pad", first.clone()),
        ("select pad.time_ns, pad.* from pad", first.clone()),
        ("select p.time_ns, p.* from pad p order by p.time_ns desc limit 2", first.clone()),
        ("select *, TIME_NS from pad order by time_ns", format!("{PAD} time_ns")),
        ("select \"time_ns\", * from public.pad where time_ns > 0", first.clone()),
        ("select distinct time_ns, * from pad order by time_ns", first.clone()),
        ("select time_ns, time_ns from pad", "time_ns time_ns".to_owned()),
        ("select x, pad.x, x from pad order by x", "x x x".to_owned()),
        ("select -x, -x from pad order by -x", "?column? ?column?".to_owned()),
        ("select x + 1, x, x + 1 from pad", "?column? x ?column?".to_owned()),
        ("select * from (select -x, -x from pad) q", "?column? ?column?".to_owned()),
        ("select x, x, count(*) as n from pad group by x order by x", "x x n".to_owned()),
        ("select * from (select time_ns, * from pad) q", first.clone()),
        ("select x, * from (select time_ns, * from pad) q", format!("x time_ns {PAD}")),
        ("select q.time_ns, q.x from (select time_ns, * from pad) q", "time_ns x".to_owned()),
        ("with c as (select x, x from pad) select * from c", "x x".to_owned()),
        ("with c as (select time_ns, * from pad) select c.x, c.* from c", format!("x time_ns {PAD}")),
        ("with c(a, b) as (select x, x from pad) select b, * from c", "b a b".to_owned()),
        ("select x, x from pad union all select x, x from pad", "x x".to_owned()),
        ("select (select count(*) from (select x, * from pad) q) as n, x, x from pad", "n x x".to_owned()),
        ("select a.x, b.x from pad a join duo b on a.x = b.x", "x x".to_owned()),
        ("select a.x, b.* from pad a join duo b on a.x = b.x", format!("x {DUO}")),
        ("select z, b.* from pad a join duo b on a.x = b.x", format!("z {DUO}")),
        ("select q.y from (select y, b.* from pad a join duo b on a.x = b.x) q", "y".to_owned()),
        ("select * from pad a join duo b on a.x = b.x", both.clone()),
        ("select * from (select a.*, b.* from pad a join duo b on a.x = b.x) q", both.clone()),
        ("with q as (select * from pad a join duo b on a.x = b.x) select * from q", both),
        ("select n.oid, n.* from pg_catalog.pg_namespace n", "oid oid nspname nspowner nspacl options".to_owned()),
        ("select oid, * from pg_namespace", "oid oid nspname nspowner nspacl options".to_owned()),
    ] {
        assert_eq!(columns(&fixture, &client, sql).await, wanted, "{sql}");
    }
    // A conversion beside what it converts, or sorted by it.
    for (sql, first) in [
        ("select x, x::text from pad order by x desc", vec!["2", "2"]),
        ("select x::text, x, x::float8, pad.x::text from pad order by pad.x desc", vec!["2", "2", "2", "2"]),
        ("select y::int from pad where x = 2 order by y", vec!["0"]),
        ("select time::date, x from pad order by time desc", vec!["2026-11-20", "2"]),
        ("select time at time zone 'Europe/Berlin' from pad order by time", vec!["2026-11-20 01:00:00"]),
        ("select x::text, count(*) from pad group by x::text order by x::text desc", vec!["2", "1"]),
        ("select * from (select x, x::text from pad order by x) q order by 1 desc", vec!["2", "2"]),
        ("select x::text, x from pad union all select x::text, x from pad order by 1 desc", vec!["2", "2"]),
    ] {
        let rows = texts(&client, sql).await;
        assert_eq!(rows[0].iter().flatten().map(String::as_str).collect::<Vec<_>>(), first, "{sql}");
    }
    let counted = client.prepare("select max(x), max(x), min(x) from pad").await.unwrap();
    assert!(counted.columns().iter().map(|column| column.name()).eq(["max", "max", "min"]));
    assert_eq!(texts(&client, "select max(x), max(x) from pad").await, [["2", "2"].map(|x| Some(x.to_owned()))]);
    let rows = texts(&client, "select x, y, pad.x, * from pad where x = 2").await;
    let cells: Vec<&str> = rows[0].iter().flatten().map(String::as_str).collect();
    assert_eq!((&cells[..4], &cells[9..]), (&["2", "0.25", "2", "2026-11-20 00:00:00.002+00"][..], &["2", "0.25"][..]));
    let copied = client.copy_out("copy (select x, x from pad) to stdout with (format csv, header)").await.unwrap();
    let copied: Vec<bytes::Bytes> = futures::TryStreamExt::try_collect(copied).await.unwrap();
    assert_eq!(copied.concat(), b"x,x\n0,0\n1,1\n2,2\n");
    let error = client.simple_query("select nothing from (select x, x from pad) q").await.unwrap_err();
    let message = error.as_db_error().unwrap().message().to_owned();
    assert!(message.starts_with("column \"nothing\" does not exist") && !message.contains("(column"), "{message}");
}

/// Expected names from PostgreSQL 15.
#[tokio::test(flavor = "multi_thread")]
async fn columns_without_a_name_are_named_as_in_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let unnamed = "?column? ?column?";
    for (sql, wanted) in [
        ("select 1, 'a'", unnamed),
        ("select 1, 1, 1.5, null", "?column? ?column? ?column? ?column?"),
        ("select x + 1, -x from pad", unnamed),
        ("select x + 1, (x + 1), pad.x + 1, X + 1 from pad", "?column? ?column? ?column? ?column?"),
        ("select distinct x + 1, x + 1 from pad order by 1", unnamed),
        (
            "select x is null, x in (1, 2), not (x = 1), x between 1 and 2, x < 3 from pad",
            "?column? ?column? ?column? ?column? ?column?",
        ),
        ("select x::text, 'x'::text, 1::int, (x + 1)::bigint, 1::float8::text from pad", "x text int4 int8 text"),
        ("select date '2026-01-01', timestamptz '2026-01-01', interval '1 day'", "date timestamptz interval"),
        ("select '{1}'::int[], 1::numeric(5, 2), true::bool, 'x'::varchar(5)", "int4 numeric bool varchar"),
        ("select count(*), count(*), count(1), max(x), pg_catalog.lower('A') from pad", "count count count max lower"),
        ("select count(*) over (), row_number() over (order by x) from pad", "count row_number"),
        ("select coalesce(x, 1), nullif(x, 1), greatest(x, 1) from pad", "coalesce nullif greatest"),
        ("select case when x = 1 then 2 end, case when x = 1 then 2 else y end from pad", "case y"),
        ("select (select max(x) from pad), (select 1), (select 1 as one)", "max ?column? one"),
        ("select array[1, 2], extract(year from time), time at time zone 'utc' from pad", "array extract timezone"),
        ("select substring('ab' from 1 for 1), position('a' in 'b'), trim('a')", "substring position btrim"),
        ("select now(), current_timestamp, current_date", "now current_timestamp current_date"),
        ("select 1 union all select 2", "?column?"),
        ("select x as \"max(p)\", y \"A b\" from pad", "max(p) A b"),
        ("select x, *, x + 1 from (select x, y from pad) q", "x x y ?column?"),
        ("select * from (select count(*), max(x), x + 1 from pad group by x) q", "count max ?column?"),
        ("select count, q.max from (select count(*), max(x) from pad) q", "count max"),
        ("with q as (select count(*), date_bin('1 s', time) from pad group by 2) select * from q", "count date_bin"),
    ] {
        assert_eq!(columns(&fixture, &client, sql).await, wanted, "{sql}");
    }
    assert_eq!(text(&client, "select count from (select count(*) from pad) q where count > 2").await, "3");
    // Names do not change what is sorted or grouped.
    for (sql, first) in [
        ("select max(x), x from pad group by x order by max(x) desc, x", vec!["2", "2"]),
        ("select -x, -x from pad order by -x", vec!["-2", "-2"]),
        ("select abs(x) from pad order by x desc", vec!["2"]),
    ] {
        let rows = texts(&client, sql).await;
        assert_eq!(rows[0].iter().flatten().map(String::as_str).collect::<Vec<_>>(), first, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_types_are_functions_too() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    for (sql, wanted) in [
        ("select pg_typeof(x) from pad limit 1", "integer"),
        ("select pg_typeof(time) from pad limit 1", "timestamp with time zone"),
        ("select pg_catalog.pg_typeof(array[1.5::float8])", "double precision[]"),
        ("select pg_typeof(null)", "unknown"),
        ("select current_setting('application_name')", ""),
        ("select pg_catalog.set_config('application_name', 'one', false)", "one"),
        ("select current_setting('application_name')", "one"),
        ("select set_config('my.' || 'own', 'x', true) || current_setting('my.none', true) is null", "t"),
        ("select current_setting('my.own')", "x"),
        ("show application_name", "one"),
    ] {
        assert_eq!(text(&client, sql).await, wanted, "{sql}");
    }
    for (sql, code) in [
        ("select set_config('nothing', 'x', false)", "42704"),
        ("select set_config('server_version', 'x', false)", "55P02"),
        ("select set_config(null, 'x', false)", "22004"),
    ] {
        assert_eq!(crate::state_of(&client, sql).await, code, "{sql}");
    }
    // Sessions do not share them, although they share plans.
    let other = fixture.client().await;
    assert_eq!(text(&other, "select current_setting('application_name')").await, "");
    assert_eq!(text(&other, "select set_config('application_name', 'one', false)").await, "one");
    assert_eq!(text(&client, "select set_config('application_name', 'two', false)").await, "two");
    assert_eq!(text(&other, "select current_setting('application_name')").await, "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_server_exist_before_their_first_row() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let times = "time time_ns receive_time receive_time_ns source_time source_time_ns sequence";
    for (sql, wanted) in [
        ("select * from strongback.alarms", format!("{times} step value")),
        ("select * from strongback.strongback.alarms order by time desc limit 5", format!("{times} step value")),
        ("select a.* from \"strongback.alarms\" a", format!("{times} step value")),
        ("select * from Strongback.Clocks where stream = 'x'", format!("{times} stream offset_ns")),
    ] {
        assert_eq!(columns(&fixture, &client, sql).await, wanted, "{sql}");
        assert_eq!(texts(&client, sql).await.len(), 0, "{sql}");
    }
    assert_eq!(text(&client, "select count(*) from strongback.alarms where value > 1").await, "0");
    let listed = "select count(*) from information_schema.columns \
        where table_schema = 'strongback' and table_name in ('alarms', 'clocks')";
    assert_eq!(text(&client, listed).await, "18");
    let listed = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
        where n.nspname = 'strongback' and c.relname in ('alarms', 'clocks')";
    assert_eq!(text(&client, listed).await, "2");
    assert_eq!(text(&client, "select count(*) from strongback.channels").await, "0");
    // The first row comes from a store that lacks a column and has another one.
    let spec = strongback_store::StreamSpec::new(
        strongback_store::StreamKey::new("strongback.alarms", []),
        ["step", "by"].map(|name| strongback_store::ChannelSpec::new(name, ChannelType::String)).to_vec(),
    );
    let (stream, at) = fixture.store.resolve_own(&spec, T0).unwrap();
    fixture.append(&stream, T0, &[(at[0], Value::String("level")), (at[1], Value::String("pad"))]);
    let rows = texts(&client, "select step, by, value from strongback.alarms").await;
    assert_eq!(rows, [[Some("level".to_owned()), Some("pad".to_owned()), None]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_table_is_named_as_written_with_the_nearest_name() {
    let fixture = Fixture::start().await;
    fixture.pad(1);
    fixture.stream("avionics.sensors", &[], &[("x", ChannelType::F64)]);
    let client = fixture.client().await;
    for (written, name, nearest) in [
        ("strongback.alarm", "strongback.alarm", Some("strongback.alarms")),
        ("strongback.gap", "strongback.gap", Some("strongback.gaps")),
        ("strongback.strongback.gap", "strongback.gap", Some("strongback.gaps")),
        ("pda", "pda", Some("pad")),
        ("public.Padd", "padd", Some("pad")),
        ("strongback.public.pda", "pda", Some("pad")),
        ("avionics.sensor", "avionics.sensor", Some("avionics.sensors")),
        ("\"avionics.sensor\"", "avionics.sensor", Some("avionics.sensors")),
        ("nowhere_at_all", "nowhere_at_all", None),
        ("strongback.nothing_like_it", "strongback.nothing_like_it", None),
    ] {
        let sql = format!("select * from {written}");
        let error = client.simple_query(&sql).await.expect_err(&sql);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "42P01", "{sql}");
        assert_eq!(error.message(), format!("relation \"{name}\" does not exist"));
        let hint = nearest.map(|nearest| format!("Did you mean {nearest}?"));
        assert_eq!(error.hint(), hint.as_deref(), "{sql}");
    }
}
