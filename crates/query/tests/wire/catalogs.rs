//! What clients and tools ask the catalogs of PostgreSQL, and operators that they use.

use strongback_store::{ArrayType, ChannelType, ElementType, Value};

use crate::{Fixture, T0, cells, state_of, text, texts};

#[tokio::test(flavor = "multi_thread")]
async fn columns_have_the_types_of_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(1);
    let kinds = [
        ("flag", ChannelType::Bool),
        ("small", ChannelType::I8),
        ("large", ChannelType::U64),
        ("single", ChannelType::F32),
        ("note", ChannelType::String),
    ];
    fixture.stream("lab", &[("stand", "1")], &kinds);
    let wave = ChannelType::Array(ArrayType::variable(ElementType::F32));
    fixture.stream("waves", &[], &[("wave", wave)]);
    let client = fixture.client().await;
    let sql = "select column_name, data_type, udt_name, numeric_precision, is_nullable \
        from information_schema.columns where table_schema = 'public' and table_name = 'lab' \
        and column_name in ('flag', 'small', 'large', 'single', 'note', 'stand', 'time') order by column_name";
    let rows: Vec<String> = texts(&client, sql).await.iter().map(|row| joined(row)).collect();
    assert_eq!(
        rows,
        [
            "flag|boolean|bool|NULL|YES",
            "large|numeric|numeric|20|YES",
            "note|text|text|NULL|YES",
            "single|real|float4|24|YES",
            "small|smallint|int2|16|YES",
            "stand|text|text|NULL|YES",
            "time|timestamp with time zone|timestamptz|NULL|NO",
        ]
    );
    let sql = "select data_type, udt_name from information_schema.columns where column_name = 'wave'";
    assert_eq!(texts(&client, sql).await, [cells(["ARRAY", "_float4"])]);
    let sql = "select format_type(atttypid, atttypmod), attndims from pg_attribute \
        where attrelid = 'waves'::regclass and attname = 'wave'";
    assert_eq!(texts(&client, sql).await, [cells(["real[]", "1"])]);
    let sql = "select format_type(atttypid, atttypmod) from pg_attribute \
        where attrelid = 'lab'::regclass and attname = 'large'";
    assert_eq!(text(&client, sql).await, "numeric(20,0)");
    for none in ["key_column_usage", "table_constraints", "referential_constraints", "constraint_column_usage"] {
        assert_eq!(text(&client, &format!("select count(*) from information_schema.{none}")).await, "0", "{none}");
    }
    let schemas = "select string_agg(schema_name, ' ' order by schema_name) from information_schema.schemata";
    assert_eq!(text(&client, schemas).await, "information_schema pg_catalog public strongback");
    assert_eq!(text(&client, "select count(*) from information_schema.views where table_schema = 'public'").await, "0");
}

fn joined(row: &[Option<String>]) -> String {
    row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join("|")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lists_its_settings_and_prepared_statements() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let (client, other) = (fixture.client().await, fixture.client().await);
    client.simple_query("set application_name = 'pad'").await.unwrap();
    let sql = "select setting, source, context from pg_settings where name = 'application_name'";
    assert_eq!(texts(&client, sql).await, [cells(["pad", "session", "user"])]);
    assert_eq!(texts(&other, sql).await, [cells(["", "default", "user"])]);
    let sql = "select setting, boot_val from pg_catalog.pg_settings where name = 'max_index_keys'";
    assert_eq!(texts(&client, sql).await, [cells(["32", "32"])]);
    client.simple_query("prepare twice (float8) as select x * $1 from pad").await.unwrap();
    let kept = client.prepare("select count(*) from pad where x > $1").await.unwrap();
    let sql = "select name, parameter_types::text, from_sql from pg_prepared_statements order by from_sql";
    let rows = texts(&client, sql).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[1], cells(["twice", "{\"double precision\"}", "t"]));
    let sql =
        "select statement, prepare_time > now() - interval '1 hour' from pg_prepared_statements where not from_sql";
    assert_eq!(texts(&client, sql).await, [cells(["select count(*) from pad where x > $1", "t"])]);
    assert_eq!(text(&other, "select count(*) from pg_prepared_statements").await, "0");
    client.simple_query("deallocate twice").await.unwrap();
    assert_eq!(text(&client, "select count(*) from pg_prepared_statements where from_sql").await, "0");
    client.query(&kept, &[&0_i32]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_types_and_tables_become_their_numbers() {
    let fixture = Fixture::start().await;
    fixture.pad(1);
    let client = fixture.client().await;
    for (sql, wanted) in [
        ("select 'float8'::regtype::oid", "701"),
        ("select 'float8'::text::regtype::oid", "701"),
        ("select '_float8'::regtype::oid", "1022"),
        ("select 'double precision[]'::regtype::oid", "1022"),
        ("select ('flo' || 'at8')::regtype::oid", "701"),
        ("select '20'::regtype::oid", "20"),
        ("select count(*) from pg_class where oid = 'pad'::regclass", "1"),
        ("select count(*) from pg_class where oid = 'public.pad'::text::regclass", "1"),
        ("select count(*) from pg_class where oid = 'strongback.gaps'::regclass and relname = 'gaps'", "1"),
        ("select count(*) from pg_class where oid = 'pg_class'::regclass and relname = 'pg_class'", "1"),
        ("select 'nothing'::regclass::oid is null", "t"),
        ("select nspname from pg_namespace where oid = 'public'::regnamespace", "public"),
        // As `search_path` has it.
        ("select count(*) from pg_class where relname = 'gaps'", "1"),
        ("select count(*) from pg_class c where relname = 'gaps' and pg_table_is_visible(c.oid)", "0"),
        ("select count(*) from pg_class where relname = 'pad' and (pg_catalog.pg_table_is_visible(oid))", "1"),
        ("select count(*) from pg_index", "0"),
        ("select count(*) from pg_database", "1"),
    ] {
        assert_eq!(text(&client, sql).await, wanted, "{sql}");
    }
    assert_eq!(state_of(&client, "select 'nothing'::regtype").await, "42704");
    let statement = client.prepare("select $1::text::regtype::oid").await.unwrap();
    assert_eq!(client.query_one(&statement, &[&"_float8"]).await.unwrap().get::<_, u32>(0), 1022);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_find_tables_columns_and_no_keys() {
    let fixture = Fixture::start().await;
    fixture.pad(1);
    let client = fixture.client().await;
    // Grafana's query for the columns of a table.
    let sql = r#"SELECT quote_ident(column_name) AS "column", data_type AS "type"
        FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('pad'), 1) = 2
          THEN quote_ident(table_schema) = (parse_ident('pad'))[1] AND quote_ident(table_name) = (parse_ident('pad'))[2]
          ELSE quote_ident(table_name) = 'pad' AND quote_ident(table_schema) IN (
            SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
            FROM generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
            string_to_array(current_setting('search_path'),',') s) END"#;
    let rows = texts(&client, sql).await;
    assert!(rows.contains(&cells(["y", "double precision"])), "{rows:?}");
    // SQLAlchemy's for primary keys and indexes, in short.
    for sql in [
        "select pg_constraint.conrelid, unnest(pg_catalog.pg_index.indkey) as attnum, \
         generate_subscripts(pg_catalog.pg_index.indkey, 1) as ord \
         from pg_catalog.pg_constraint join pg_catalog.pg_index on pg_constraint.conindid = pg_index.indexrelid \
         where contype = any (array['p'])",
        "select unnest(i.indclass), unnest(i.indoption) from pg_index i where not indisprimary",
        // pgjdbc's for keys.
        "select (i.keys).n, (information_schema._pg_expandarray(i.indkey)).x from (select indkey, \
         information_schema._pg_expandarray(i.indkey) as keys from pg_catalog.pg_index i) i",
    ] {
        assert_eq!(texts(&client, sql).await.len(), 0, "{sql}");
    }
    // pgjdbc's for types.
    let sql = "select count(*) > 10 from pg_type t join pg_namespace n on t.typnamespace = n.oid \
        where n.nspname != 'pg_toast' and (t.typrelid = 0 or \
        (select c.relkind = 'c' from pg_catalog.pg_class c where c.oid = t.typrelid))";
    assert_eq!(text(&client, sql).await, "t");
    // A subquery with a parameter is not a correlated one.
    let sql = "select count(*) from pg_attribute where attrelid = (select oid from pg_class where relname = $1)";
    let count: i64 = client.query_one(sql, &[&"pad"]).await.unwrap().get(0);
    assert!(count > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_those_of_postgresql() {
    let fixture = Fixture::start().await;
    let channels = [("n", ChannelType::I64), ("zone", ChannelType::String)];
    let (stream, at) = fixture.stream("t", &[("stand", "a_b")], &channels);
    fixture.append(&stream, T0, &[(at[0], Value::I64(2)), (at[1], Value::String("Europe/Berlin"))]);
    let client = fixture.client().await;
    for (sql, wanted) in [
        ("select 'a/b' like 'a//b' escape '/'", "t"),
        ("select 'axb' like 'a/_b' escape '/'", "f"),
        ("select 'a_b' like 'a/_b' escape '/'", "t"),
        ("select stand not like 'a$_%' escape '$' from t", "f"),
        ("select 'A%' ilike 'a!%' escape '!'", "t"),
        (r"select 'a\b' like 'a\b' escape ''", "t"),
        ("select interval '1 day' * 2.5", "2 days 12:00:00"),
        ("select 3 * interval '1 s'", "00:00:03"),
        ("select interval '1 hour' / 2", "00:30:00"),
        ("select n * interval '1 minute' from t", "00:02:00"),
        ("select timestamp '2026-01-01' + 2 * interval '1 day'", "2026-01-03 00:00:00"),
        ("select timestamptz '2026-07-01 12:00:00+00' at time zone 'Europe/Berlin'", "2026-07-01 14:00:00"),
        ("select timestamptz '2026-07-01 12:00:00+00' at time zone zone from t", "2026-07-01 14:00:00"),
        ("select timezone('europe/berlin', timestamp '2026-07-01 14:00:00')", "2026-07-01 12:00:00+00"),
        // Twice, and skipped.
        ("select timestamp '2026-10-25 02:30:00' at time zone 'Europe/Berlin'", "2026-10-25 01:30:00+00"),
        ("select timestamp '2026-03-29 02:30:00' at time zone 'Europe/Berlin'", "2026-03-29 01:30:00+00"),
        ("select timestamptz '2026-07-01 12:00:00+00' at time zone '+02'", "2026-07-01 10:00:00"),
        ("select date '2026-01-01' + interval '9 hours'", "2026-01-01 09:00:00"),
        ("select date '2026-03-01' - interval '1 hour'", "2026-02-28 23:00:00"),
        ("select now() = now() and now() = current_timestamp and statement_timestamp() = now()", "t"),
        ("select interval '25 hours' > interval '1 day' and interval '1 day' = interval '24 hours'", "t"),
        ("select interval '1 month' = interval '30 days' and interval '1 day' < interval '1441 minutes'", "t"),
        ("select count(*) from t where timestamptz '2099-01-01' - time > interval '30 days'", "1"),
        (
            "select count(*) from t where timestamptz '2099-01-01' - time between interval '0' and interval '1 year'",
            "0",
        ),
        ("select max(case when n > 5 then n else '100' end) from t", "100"),
        ("select pg_typeof(time at time zone 'UTC') from t", "timestamp without time zone"),
        ("select count(*) from t where time at time zone 'UTC' > timestamp '2020-01-01'", "1"),
        ("select count(*) from t where (n > 1) = 't'", "1"),
        ("select count(*) from t where 'off' <> (n > 1)", "1"),
        ("select count(*) from t where (n > 1) in ('no', 'yes')", "1"),
        ("select count(*) from t where n = any('{1,2}') and time = any('{\"2026-11-20 00:00:00+00\"}')", "1"),
        ("select count(*) from t where stand = any(('{\"a_b\",\"c\"}'))", "1"),
        ("select n from t limit '1' offset '0'", "2"),
        ("select n from t offset 0 fetch first 1 rows only", "2"),
        ("select count(*) from (select 1 from generate_series(1, 9) g fetch next row only)", "1"),
        ("select 'a' similar to 'a%'", "t"),
        ("select 'ab' similar to 'a'", "f"),
        ("select 'a.b' similar to 'a.b' and not 'axb' similar to 'a.b'", "t"),
        ("select 'abab' similar to '(ab)+'", "t"),
        ("select 'a%' similar to 'a#%' escape '#' and 'ab' not similar to 'a#%' escape '#'", "t"),
        ("select 'x' || chr(10) || 'y' similar to 'x_y|z'", "t"),
        ("select mod(-7, 3), 1", "-1"),
        ("select sign(-2.5)::int", "-1"),
        ("select @ -5", "5"),
        ("select |/ 16.0", "4"),
        ("select pg_typeof(row_number() over ()) from t", "bigint"),
        ("select pg_typeof(array_length(array[1, 2], 1))", "integer"),
        ("select time_bucket('1 week', timestamptz '2026-01-07 12:00:00+00')", "2026-01-05 00:00:00+00"),
        ("select time_bucket('1 month', timestamptz '2026-01-07 12:00:00+00')", "2026-01-01 00:00:00+00"),
        ("select time_bucket('5 minutes', timestamptz '2026-01-07 12:07:00+00')", "2026-01-07 12:05:00+00"),
    ] {
        assert_eq!(text(&client, sql).await, wanted, "{sql}");
    }
    for (sql, state) in [
        ("select 'a' like 'a' escape '//'", "22025"),
        ("select interval '1 day' * 'NaN'::float8", "22008"),
        ("select time at time zone 'Nowhere' from t", "22023"),
        ("select 'a' similar to stand from t", "0A000"),
        ("select count(*) from t where (n > 1) = 'maybe'", "22P02"),
        ("select * from t a full join t b using (n)", "0A000"),
        ("select * from t a natural right join t b", "0A000"),
        ("select * from t tablesample system (10)", "0A000"),
        ("select time at time zone stand from t", "22023"),
    ] {
        assert_eq!(state_of(&client, sql).await, state, "{sql}");
    }
    let statement = client.prepare("select count(*) from t where time > now() - $1 * interval '1 day'").await.unwrap();
    assert_eq!(statement.params()[0].name(), "float8");
    assert_eq!(client.query_one(&statement, &[&1e5_f64]).await.unwrap().get::<_, i64>(0), 1);
    // A text in the place of a number is read as one.
    let statement = client.prepare("select case when n > 5 then n else $1 end from t").await.unwrap();
    assert_eq!(client.query_one(&statement, &[&"5"]).await.unwrap().get::<_, i64>(0), 5);
    let sql = "select count(*) from t where stand like $1::varchar || '%' escape '/'";
    assert_eq!(client.query_one(sql, &[&"a/_"]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(client.query_one(sql, &[&"a/"]).await.unwrap().get::<_, i64>(0), 0);
}
