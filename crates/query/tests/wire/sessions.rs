//! What a session keeps between statements: cursors, prepared statements and savepoints, as in PostgreSQL.

use std::process::Command;

use strongback_store::{ChannelType, Value};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use crate::{Fixture, MS, T0, bytes_of, cells, state_of, text, texts};

/// The command tag's number of a statement.
async fn count(client: &tokio_postgres::Client, sql: &str) -> u64 {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let complete = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::CommandComplete(count) => Some(count),
        _ => None,
    });
    complete.unwrap()
}

async fn numbers(client: &tokio_postgres::Client, sql: &str) -> Vec<i32> {
    texts(client, sql).await.iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect()
}

/// The cursor reads directly from the store, and by DataFusion.
const QUERIES: [&str; 2] = ["select x, y from pad order by time", "select x, y from pad where x < 5000 order by time"];

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_reads_its_rows_in_portions() {
    let fixture = Fixture::start().await;
    fixture.pad(3_000);
    let (stream, at) = fixture.stream("pad", &[], &[("x", ChannelType::I32), ("y", ChannelType::F64)]);
    let client = fixture.client().await;
    for (query, later) in QUERIES.into_iter().zip([4_000, 4_001]) {
        client.batch_execute(&format!("begin; declare C no scroll cursor without hold for {query}")).await.unwrap();
        // Later rows are not in it.
        fixture.append(&stream, T0 + later * MS, &[(at[0], Value::I32(5_000))]);
        assert_eq!(numbers(&client, "fetch c").await, [0]);
        assert_eq!(numbers(&client, "fetch next from c").await, [1]);
        assert_eq!(numbers(&client, "fetch 2 in \"c\"").await, [2, 3]);
        assert_eq!(numbers(&client, "fetch forward 2 from c").await, [4, 5]);
        assert_eq!(count(&client, "move 4 from c").await, 4);
        assert_eq!(count(&client, "move 0 in c").await, 1);
        assert_eq!(numbers(&client, "fetch relative 3 from c").await, [12]);
        assert_eq!(numbers(&client, "fetch absolute 21 from c").await, [20]);
        assert_eq!(count(&client, "move forward 1979 from c").await, 1_979);
        let rows = texts(&client, "fetch forward c").await;
        assert_eq!(rows, [cells(["2000", "250"])]);
        let rest = numbers(&client, "fetch all from c").await;
        assert_eq!(rest, (2_001..3_000).collect::<Vec<_>>());
        for sql in ["fetch 10 from c", "fetch all c", "fetch forward all from c", "fetch c", "fetch 0 c"] {
            assert_eq!(texts(&client, sql).await.len(), 0, "{sql}");
        }
        assert_eq!(count(&client, "move all in c").await, 0);
        client.batch_execute("close c").await.unwrap();
        assert_eq!(state_of(&client, "fetch c").await, "34000");
        client.batch_execute("rollback").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cursors_cannot_do_is_refused_with_the_codes_of_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(30);
    let client = fixture.client().await;
    for (sql, code) in [
        ("declare c cursor for select x from pad", "25P01"),
        ("begin; declare c cursor with hold for select x from pad", "0A000"),
        ("begin; declare c scroll cursor for select x from pad", "0A000"),
        ("begin; declare c cursor for select x from pad; declare c cursor for select 1", "42P03"),
        ("begin; declare c cursor for select nothing from pad", "42703"),
        ("begin; declare c cursor for delete from pad", "0A000"),
        ("begin; declare c cursor for select $1::int", "42P02"),
        ("begin; fetch 1 from nowhere", "34000"),
        ("begin; close nowhere", "34000"),
        ("begin; declare c cursor for select x from pad; fetch prior from c", "55000"),
        ("begin; declare c cursor for select x from pad; fetch last from c", "55000"),
        ("begin; declare c cursor for select x from pad; fetch -1 from c", "55000"),
        ("begin; declare c cursor for select x from pad; fetch c; fetch 0 from c", "55000"),
        ("begin; declare c cursor for select x from pad; fetch 5 c; fetch absolute 5 from c", "55000"),
        ("begin; declare c cursor for select x from pad; move backward all in c", "55000"),
        ("begin; declare c cursor for select 1 / (x - 5) from pad order by time; fetch all from c", "22012"),
        ("begin; fetch 99999999999 from c", "42601"),
        ("begin; fetch absolute from c", "42601"),
    ] {
        assert_eq!(state_of(&client, sql).await, code, "{sql}");
        client.batch_execute("rollback").await.unwrap();
    }
    // They end with their transaction.
    client.batch_execute("begin; declare c cursor for select x from pad; commit; begin").await.unwrap();
    assert_eq!(state_of(&client, "fetch c").await, "34000");
    client
        .batch_execute("rollback; begin; declare a cursor for select 1; declare b cursor for select 2")
        .await
        .unwrap();
    client.batch_execute("close all").await.unwrap();
    assert_eq!(state_of(&client, "fetch b").await, "34000");
}

/// As psycopg and postgres_fdw use them: declared with parameters, described as a portal, fetched by either protocol.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_in_the_extended_protocol() {
    let fixture = Fixture::start().await;
    fixture.pad(2_500);
    let client = fixture.client().await;
    for query in
        ["select x, y from pad where time >= $1 order by time", "select x, y from pad where x >= $1 order by x"]
    {
        client.batch_execute("begin").await.unwrap();
        let from = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos((T0) as u64);
        let declare = format!("declare \"Big one\" cursor for {query}");
        let declaration = client.prepare(&declare).await.unwrap();
        assert_eq!(declaration.columns().len(), 0);
        assert_eq!(declaration.params().len(), 1);
        match query.contains("time") {
            true => client.execute(&declaration, &[&from]).await.unwrap(),
            false => client.execute(&declaration, &[&0i32]).await.unwrap(),
        };
        let fetch = client.prepare("fetch forward 1000 from \"Big one\"").await.unwrap();
        let columns: Vec<(&str, &Type)> = fetch.columns().iter().map(|c| (c.name(), c.type_())).collect();
        assert_eq!(columns, [("x", &Type::INT4), ("y", &Type::FLOAT8)]);
        let mut seen = Vec::new();
        // In binary, then in text, then in binary.
        seen.extend(client.query(&fetch, &[]).await.unwrap().iter().map(|row| row.get::<_, i32>(0)));
        seen.extend(numbers(&client, "fetch 700 from \"Big one\"").await);
        loop {
            let rows = client.query(&fetch, &[]).await.unwrap();
            if rows.is_empty() {
                break;
            }
            seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        assert_eq!(seen, (0..2_500).collect::<Vec<_>>());
        client.batch_execute("commit").await.unwrap();
    }
    client.batch_execute("begin; declare b binary cursor for select 258 as n").await.unwrap();
    let rows = texts(&client, "fetch b").await;
    assert_eq!(rows[0][0].as_deref().map(str::as_bytes), Some(&[0, 0, 0, 0, 0, 0, 1, 2][..]));
    client.batch_execute("rollback").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_over_endless_rows_holds_few_of_them() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client
        .batch_execute(
            "begin; declare c cursor for select v, repeat('x', 1000) from generate_series(1, 1000000000000) g(v)",
        )
        .await
        .unwrap();
    for portion in 0..20 {
        let rows = texts(&client, "fetch 500 from c").await;
        assert_eq!(rows[0][0].as_deref(), Some((portion * 500 + 1).to_string().as_str()));
    }
    client.batch_execute("close c; commit").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_prepared_and_executed_in_sql() {
    let fixture = Fixture::start().await;
    fixture.pad(30);
    let client = fixture.client().await;
    client
        .batch_execute(
            "prepare Q as select x from pad where x < $1 order by x; \
             prepare typed (int, text, timestamptz, float8[]) as select $1 + 1, $2 || '!', $3, $4[2]; \
             prepare at_time as select x from pad where time = $1",
        )
        .await
        .unwrap();
    assert_eq!(numbers(&client, "execute q(3)").await, [0, 1, 2]);
    assert_eq!(numbers(&client, "execute \"q\" (1 + 1)").await, [0, 1]);
    assert_eq!(numbers(&client, "execute q('2')").await, [0, 1]);
    assert_eq!(numbers(&client, "execute q(null)").await.len(), 0);
    let row = texts(&client, "execute typed(-8, 'it''s', '2026-11-20 00:00', '{1,2.5}')").await;
    assert_eq!(row, [cells(["-7", "it's!", "2026-11-20 00:00:00+00", "2.5"])]);
    let row =
        texts(&client, "execute typed(1, upper('a'), timestamptz '2026-11-20' + interval '1 h', array[1, 2])").await;
    assert_eq!(row, [cells(["2", "A!", "2026-11-20 01:00:00+00", "2"])]);
    assert_eq!(numbers(&client, "execute at_time('2026-11-20 00:00:00.005')").await, [5]);
    for (sql, code) in [
        ("execute q", "42601"),
        ("execute q(1, 2)", "42601"),
        ("execute q('soon')", "22P02"),
        ("execute q(1 / 0)", "22012"),
        ("execute nowhere", "26000"),
        ("execute q($1)", "42P02"),
        ("deallocate nowhere", "26000"),
        ("prepare q as select 1", "42P05"),
        ("prepare w as delete from pad", "25006"),
        ("prepare w as set application_name = 'x'", "42601"),
        ("prepare w as select nothing from pad", "42703"),
    ] {
        assert_eq!(state_of(&client, sql).await, code, "{sql}");
    }
    // The names are those of the protocol.
    let rows = bytes_of(&client, "execute q(2)").await;
    assert_eq!(rows, [0i32, 1].map(|x| vec![Some(x.to_be_bytes().to_vec())]));
    client.batch_execute("deallocate prepare Q").await.unwrap();
    assert_eq!(state_of(&client, "execute q(3)").await, "26000");
    client.batch_execute("deallocate all").await.unwrap();
    assert_eq!(state_of(&client, "execute at_time(now())").await, "26000");
    client.batch_execute("prepare q as select 1; discard all; prepare q as select 2").await.unwrap();
    assert_eq!(text(&client, "execute q").await, "2");
    assert_eq!(state_of(&client, "begin; discard all").await, "25001");
    client.batch_execute("rollback; discard plans; discard temp; discard sequences").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_make_a_failed_transaction_usable_again() {
    let fixture = Fixture::start().await;
    fixture.pad(30);
    let client = fixture.client().await;
    client.batch_execute("begin; declare early cursor for select x from pad order by time; savepoint S").await.unwrap();
    client.batch_execute("declare late cursor for select x from pad order by time; savepoint s2").await.unwrap();
    assert_eq!(numbers(&client, "fetch early").await, [0]);
    assert_eq!(state_of(&client, "select nothing").await, "42703");
    for sql in ["select 1", "savepoint t", "release s", "fetch early", "close all"] {
        assert_eq!(state_of(&client, sql).await, "25P02", "{sql}");
    }
    assert_eq!(state_of(&client, "rollback to nowhere").await, "3B001");
    client.batch_execute("rollback to savepoint s").await.unwrap();
    assert_eq!(numbers(&client, "fetch early").await, [1]);
    assert_eq!(state_of(&client, "fetch late").await, "34000");
    client.batch_execute("rollback to s").await.unwrap();
    assert_eq!(state_of(&client, "release savepoint s2").await, "3B001");
    client.batch_execute("rollback to s; release s").await.unwrap();
    assert_eq!(state_of(&client, "rollback to s").await, "3B001");
    client.batch_execute("rollback").await.unwrap();
    for sql in ["savepoint s", "release s", "rollback to s", "commit and chain"] {
        assert_eq!(state_of(&client, sql).await, "25P01", "{sql}");
    }
    client.batch_execute("begin; commit and chain; savepoint s; rollback and chain; savepoint s; end").await.unwrap();
    assert_eq!(state_of(&client, "savepoint s").await, "25P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_reads_by_cursor() {
    let fixture = Fixture::start().await;
    fixture.pad(250);
    // It declares a cursor when it reads in portions.
    let output = Command::new("psql")
        .args(["-X", "-h", "127.0.0.1", "-p", &fixture.address.port().to_string(), "-U", "x", "-d", "strongback"])
        .args(["-v", "FETCH_COUNT=100", "-A", "-t", "-c", "select x from pad order by x"])
        .output();
    let Ok(output) = output else { return };
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.lines().eq((0..250).map(|x| x.to_string())), "{shown} {:?}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_listed_to_their_session() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let (client, other) = (fixture.client().await, fixture.client().await);
    client
        .batch_execute("begin; declare c binary cursor for select x from pad; declare d cursor for select 1")
        .await
        .unwrap();
    let listed = "select name, is_binary, is_holdable, statement from pg_catalog.pg_cursors order by name";
    let rows = texts(&client, listed).await;
    assert_eq!(rows, [cells(["c", "t", "f", "SELECT x FROM pad"]), cells(["d", "f", "f", "SELECT 1"])]);
    assert_eq!(texts(&other, listed).await.len(), 0);
    client.batch_execute("close c").await.unwrap();
    assert_eq!(texts(&client, "select 1 from pg_cursors where name = 'd'").await.len(), 1);
    client.batch_execute("commit").await.unwrap();
    assert_eq!(texts(&client, listed).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_drivers_ask() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for (sql, wanted) in [
        ("select quote_literal('it''s')", "'it''s'"),
        ("select quote_literal(e'a\\\\b')", "E'a\\\\b'"),
        ("select to_regtype('float8')", "701"),
        ("select pg_catalog.to_regtype('timestamp with time zone')", "1184"),
        ("select to_regtype('integer[]')", "1007"),
        ("select to_regtype('hstore') is null", "t"),
        ("select pg_size_pretty(10239)", "10239 bytes"),
        ("select pg_size_pretty(10240)", "10 kB"),
        ("select pg_size_pretty(123456789)", "118 MB"),
        ("select pg_size_pretty(-10240)", "-10 kB"),
        ("select pg_size_pretty(9223372036854775807)", "8192 PB"),
    ] {
        assert_eq!(text(&client, sql).await, wanted, "{sql}");
    }
    let numbers = client.prepare("select typname from pg_type where oid = any($1::oid[])").await.unwrap();
    assert_eq!(numbers.params(), [Type::OID_ARRAY]);
    let rows = client.query(&numbers, &[&vec![701u32, 25]]).await.unwrap();
    assert_eq!(rows.len(), 2);
}
