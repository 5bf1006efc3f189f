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
        ("select -x, -x from pad order by -x", "(- pad.x) (- pad.x)".to_owned()),
        ("select x + 1, x, x + 1 from pad", "pad.x + Int64(1) x pad.x + Int64(1)".to_owned()),
        ("select * from (select -x, -x from pad) q", "(- pad.x) (- pad.x)".to_owned()),
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
