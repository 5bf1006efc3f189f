//! Floats as in PostgreSQL: one NaN, which is larger than every number, and one zero.

use strongback_query::{PgAuth, QueryOptions};
use strongback_store::{ChannelType, Value};
use tokio_postgres::types::{ToSql, Type};

use crate::{Fixture, MS, T0, cells, state_of, text, texts};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Table `f`: floats in the groups `g`, as doubles `x` and singles `r`.
async fn fixture(groups: &[&[f64]]) -> Fixture {
    let fixture = Fixture::with(QueryOptions { threads: 3, ..QueryOptions::default() }, PgAuth::Trust).await;
    let kinds = [("g", ChannelType::I32), ("x", ChannelType::F64), ("r", ChannelType::F32)];
    let (stream, at) = fixture.stream("f", &[], &kinds);
    let mut time = T0;
    for (group, values) in groups.iter().enumerate() {
        for value in *values {
            let cells =
                [(at[0], Value::I32(group as i32)), (at[1], Value::F64(*value)), (at[2], Value::F32(*value as f32))];
            fixture.append(&stream, time, &cells);
            time += MS;
        }
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn max_and_min_of_groups_order_nan_and_infinities() {
    let groups: [&[f64]; 9] = [
        &[NAN, 1.0, 2.0],
        &[1.0, NAN, 2.0],
        &[2.0, 1.0, NAN],
        &[-INF, -5.0],
        &[3.0, INF],
        &[NAN, NAN],
        &[-NAN, 4.0, -NAN],
        &[INF],
        &[-INF],
    ];
    let extremes = [
        ["NaN", "1"],
        ["NaN", "1"],
        ["NaN", "1"],
        ["-5", "-Infinity"],
        ["Infinity", "3"],
        ["NaN", "NaN"],
        ["NaN", "4"],
        ["Infinity", "Infinity"],
        ["-Infinity", "-Infinity"],
    ];
    let fixture = fixture(&groups).await;
    let client = fixture.client().await;
    for column in ["x", "r"] {
        for sql in [
            format!("select max({column}), min({column}) from f group by g order by g"),
            format!("select max({column}) filter (where g < 99), min({column}) from f group by g, g + 1 order by g"),
            format!(
                "select distinct max({column}) over w, min({column}) over w, g from f window w as (partition by g) \
                 order by g"
            ),
        ] {
            let rows = texts(&client, &sql).await;
            let found: Vec<Vec<Option<String>>> = rows.iter().map(|row| row[..2].to_vec()).collect();
            assert_eq!(found, extremes.map(cells), "{sql}");
        }
        for (group, expected) in extremes.iter().enumerate() {
            let sql = format!("select max({column}), min({column}) from f where g = {group}");
            assert_eq!(texts(&client, &sql).await, [cells(*expected)], "{sql}");
        }
        let sql = format!("select max({column}), min({column}) from f where g > 99 group by g % 2");
        assert!(texts(&client, &sql).await.is_empty());
    }
    let sql = "select max(x) over (order by time_ns rows between 1 preceding and current row) from f where g < 2";
    let max = ["NaN", "NaN", "2", "2", "NaN", "NaN"];
    assert_eq!(texts(&client, sql).await, max.map(|value| cells([value])));
    assert_eq!(
        text(&client, "select percentile_cont(1) within group (order by x) from f where g = 4").await,
        "Infinity"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_nan_is_the_same_and_the_largest() {
    let fixture = fixture(&[&[NAN, -NAN, INF, 1.0, -INF, 0.0]]).await;
    let client = fixture.client().await;
    let mut wrong = Vec::new();
    for column in ["x", "r"] {
        for (sql, result) in [
            ("select count(*) from f where x > 'Infinity'", "2"),
            ("select count(*) from f where x = 'NaN'", "2"),
            ("select count(*) from f where x in ('NaN', 5, 6, 7, 8)", "2"),
            ("select count(*) from f where x < 0", "1"),
            ("select count(distinct x) from f", "5"),
            ("select count(*) from (select x from f group by x) q", "5"),
            ("select count(*) from f a join f b on a.x = b.x", "8"),
            ("select x from f order by x desc limit 1", "NaN"),
            ("select x from f order by x limit 1", "-Infinity"),
            // Computed: infinity minus itself, 0/0 and opposites.
            ("select count(*) from f where x - x > 1", "4"),
            ("select count(*) from f where x / x > 1e30", "5"),
            ("select count(*) from f where x * 0 > 1e30", "4"),
            ("select count(*) from f where -x > 1e30", "3"),
            ("select count(*) from f where (x - x) * 2 + 1 = 'NaN'", "4"),
            ("select count(*) from f where sin(x) > 1e30", "4"),
            ("select count(*) from f where abs(x / x) > 1e30", "5"),
            ("select count(distinct x / x) from f", "2"),
            ("select count(*) from (select distinct -x from f) q", "5"),
            ("select count(*) from (select x - x from f group by 1) q", "2"),
            ("select -x from f order by -x desc limit 1", "NaN"),
            ("select x from f order by x - x, x limit 1", "0"),
            ("select max(x / x) from f where x = 1 or x = 0", "NaN"),
            ("select min(-x) from f where x >= 1", "-Infinity"),
            ("select count(*) from f a join f b on -a.x = b.x / b.x", "10"),
            ("select case when x - x > 1 then 'nan' end from f where x = 'Infinity'", "nan"),
            ("select count(*) from f where array[x - x] = array['NaN'::float8]", "4"),
            // Aggregates.
            ("select sum(x) > 1 from f where x = 'Infinity' or x = '-Infinity'", "t"),
            ("select avg(x) > 1 from f where x = 'Infinity' or x = '-Infinity'", "t"),
            ("select g from f where x = 'Infinity' or x = '-Infinity' group by g having sum(x) > 1", "0"),
            ("select max(s) from (select sum(x) over () as s from f) q", "NaN"),
            ("select stddev(x) > 1 from f where x >= 'Infinity'", "t"),
            ("select corr(x, x) > 1 from f where x = 1 or x = 0 or x = 'Infinity'", "t"),
            // Constants.
            ("select 0.0 / 0.0 > 1", "t"),
            ("select -('NaN'::float8) > 1", "t"),
            // As in PostgreSQL, `float` is double precision.
            ("select 16777217::float", "16777217"),
            ("select cast(16777217 as float(53))", "16777217"),
            ("select 16777217::float(24)", "1.6777216e+07"),
            ("select '-NaN'::float8 = 'NaN'::float8", "t"),
            ("select greatest(0.0 / 0.0, 1)", "NaN"),
            ("select count(*) from f where ('-NaN' || '')::float8 > x", "4"),
            ("select max(v) from (values (0.0 / 0.0), (1.0)) t(v)", "NaN"),
        ] {
            let sql = sql.replace("x", column).replace("mar(", "max(");
            let found = text(&client, &sql).await;
            if found != result {
                wrong.push((sql, result, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let statement = client.prepare("select count(*) from f where x < $1").await.unwrap();
    let row = client.query_one(&statement, &[&-NAN]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 4);
    // Wrapped arithmetic leaves the names of columns as they were.
    let named = client.prepare("select x * 2, -x, sqrt(x), x + 1 as y, sum(x * 2) from f group by x").await.unwrap();
    let names: Vec<&str> = named.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["?column?", "?column?", "sqrt", "y", "sum"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_cases_find_both_zeros() {
    let fixture = fixture(&[&[-0.0, 0.0, 1.0]]).await;
    let client = fixture.client().await;
    let mut wrong = Vec::new();
    for column in ["x", "r"] {
        for (sql, result) in [
            ("select count(*) from f where x in (0)", "2"),
            ("select count(*) from f where x in (0, 2, 3)", "2"),
            ("select count(*) from f where x in (0, 2, 3, 4)", "2"),
            ("select count(*) from f where x in (2, 3, 4, 5, 6, -0.0)", "2"),
            ("select count(*) from f where x in (1 - 1, 2, 3, 4, 5)", "2"),
            ("select count(*) from f where x not in (0, 2, 3, 4)", "1"),
            ("select count(*) from f where x = 0 or x = 2 or x = 3 or x = 4 or x = 5", "2"),
            ("select count(*) from f where x = any(array[0, 2, 3, 4, 5])", "2"),
            ("select count(*) from f where case x when 0.0 then true when 2.0 then false else false end", "2"),
            ("select count(*) from f where case x when 2.0 then 'a' when 0.0 then 'b' else 'c' end = 'b'", "2"),
            ("select count(*) from f where case x when 2.0 then g when -0.0 then g + 1 else 0 end = 1", "2"),
            ("select count(*) from f where case x when x * 0 then g + 1 when 5 then g end = 1", "2"),
            ("select count(*) from f where case x * 1 when 0 then 'a' when 1 then 'b' end = 'a'", "2"),
            ("select count(*) from f where nullif(x, 0) is null", "2"),
            ("select count(*) from f where x is distinct from 0", "1"),
            ("select count(*) from f where x <> 0", "1"),
            ("select count(*) from f where array_has(array[2.0, 3.0, 4.0, 0.0, 5.0], x)", "2"),
            ("select count(*) from f where x = 0", "2"),
            ("select count(distinct x) from f", "2"),
            ("select count(*) from (select x from f group by x) q", "2"),
            ("select count(*) from (select x, g from f group by x, g) q", "2"),
            ("select count(*) from f a join f b on a.x = b.x", "5"),
            ("select count(*) from f where x in (select x from f where time_ns = 1795132800000000000)", "2"),
            ("select count(*) from f where x < 0", "0"),
            ("select count(*) from f where x between 0 and 0", "2"),
        ] {
            let sql = sql.replace("x", column).replace("mar(", "max(");
            let found = text(&client, &sql).await;
            if found != result {
                wrong.push((sql, result, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let sql = "select count(*) from f where x in ($1, $2, $3, $4)";
    let row = client.query_one(sql, &[&0.0, &2.0, &3.0, &4.0]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_zeros_are_one_key_of_orders_and_windows() {
    let fixture = fixture(&[&[0.0], &[-0.0], &[0.0], &[-0.0], &[1.0]]).await;
    let client = fixture.client().await;
    for column in ["x", "r"] {
        for (sql, expected) in [
            ("select g from f order by x, g", vec!["0", "1", "2", "3", "4"]),
            ("select g from f order by x desc, g desc", vec!["4", "3", "2", "1", "0"]),
            ("select g from f order by x, g limit 3", vec!["0", "1", "2"]),
            ("select g from f order by -x, g desc offset 1", vec!["3", "2", "1", "0"]),
            ("select rank() over (order by x) from f order by g", vec!["1", "1", "1", "1", "5"]),
            ("select dense_rank() over (order by x) from f order by g", vec!["1", "1", "1", "1", "2"]),
            ("select count(*) over (partition by x) from f order by g", vec!["4", "4", "4", "4", "1"]),
            ("select row_number() over (partition by x order by g) from f order by g", vec!["1", "2", "3", "4", "1"]),
            ("select sum(g) over (order by x) from f order by g", vec!["6", "6", "6", "6", "10"]),
            ("select count(*) over (order by x range 0.5 preceding) from f order by g", vec!["4", "4", "4", "4", "1"]),
            (
                "select lag(g, 1, 9) over (partition by x order by x, g) from f order by g",
                vec!["9", "0", "1", "2", "9"],
            ),
            ("select count(distinct x) || ' ' || sum(g) from f", vec!["2 10"]),
            ("select count(distinct x) || ' ' || count(distinct g) from f", vec!["2 5"]),
            ("select cardinality(array_agg(distinct x)) from f", vec!["2"]),
            ("select array_to_string(array_agg(g order by x, g), ' ') from f", vec!["0 1 2 3 4"]),
            ("select string_agg(concat(g), ' ' order by x, g) from f", vec!["0 1 2 3 4"]),
            ("select first_value(g order by x, g) from f", vec!["0"]),
            ("select count(*) from (select distinct x from f order by x) q", vec!["2"]),
        ] {
            let sql = sql.replace('x', column);
            let expected: Vec<_> = expected.into_iter().map(|value| cells([value])).collect();
            assert_eq!(texts(&client, &sql).await, expected, "{sql}");
        }
    }
    let first = "select distinct on (x) g from f order by x, g desc";
    assert_eq!(texts(&client, first).await, ["3", "4"].map(|value| cells([value])));
    // Values and names stay what they are.
    assert_eq!(texts(&client, "select x from f order by x, g limit 2").await, ["0", "-0"].map(|value| cells([value])));
    let named = client.prepare("select count(distinct x), rank() over (order by x) from f group by x").await.unwrap();
    let names: Vec<&str> = named.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["count", "rank"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn casts_to_integers_round() {
    let fixture = fixture(&[&[0.5, 1.5, 2.5, 2.7, -2.5, -2.7, 0.49]]).await;
    let client = fixture.client().await;
    let rounded = ["0", "2", "2", "3", "-2", "-3", "0"];
    for column in ["x", "r"] {
        for kind in ["int", "bigint", "smallint"] {
            let sql = format!("select {column}::{kind} from f order by time_ns");
            assert_eq!(texts(&client, &sql).await, rounded.map(|value| cells([value])), "{sql}");
        }
    }
    for (sql, result) in [
        ("select 2.7::int", "3"),
        ("select '2.5'::float8::int", "2"),
        ("select cast(3.5 as bigint)", "4"),
        ("select (-0.5)::int", "0"),
        ("select 2.5::numeric(10, 1)::int", "3"),
        ("select 3.5::numeric(10, 1)::int", "4"),
        ("select (-2.5)::numeric(10, 1)::int", "-3"),
        ("select 2.4999::numeric(10, 4)::bigint", "2"),
        ("select 99.9::numeric(3, 1)::int", "100"),
        ("select (x::numeric(10, 1))::int from f order by time_ns limit 1", "1"),
        ("select 2147483647.4::int", "2147483647"),
        ("select (-2147483648.5)::int", "-2147483648"),
        ("select try_cast(1e30 as int) is null", "t"),
        ("select try_cast('NaN'::float8 as int) is null", "t"),
        ("select count(*) from f where x::int = 2", "2"),
        ("select 3::bigint::int", "3"),
        ("select (-2147483648)::bigint::int", "-2147483648"),
        ("select try_cast(3000000000 as int) is null", "t"),
    ] {
        assert_eq!(text(&client, sql).await, result, "{sql}");
    }
    for sql in [
        "select 2147483647.5::int",
        "select 1e30::int",
        "select 9223372036854775807::float8::bigint",
        "select 'NaN'::float8::int",
        "select 'Infinity'::float8::bigint",
        "select 32767.5::float8::smallint",
        "select 3000000000::bigint::int",
        "select (g + 40000)::smallint from f",
        "select (x * 1e30)::int from f",
    ] {
        assert_eq!(state_of(&client, sql).await, "22003", "{sql}");
    }
    let named = client.prepare("select x::int from f").await.unwrap();
    assert_eq!(named.columns()[0].name(), "x");
    assert_eq!(named.columns()[0].type_(), &Type::INT4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_double_compares_with_a_single_as_doubles() {
    let fixture = fixture(&[&[0.1, 0.5, 16_777_216.0]]).await;
    let client = fixture.client().await;
    let count = async |sql: &str, kind: Type, value: &(dyn ToSql + Sync)| {
        let statement = client.prepare_typed(sql, &[kind]).await.unwrap();
        client.query_one(&statement, &[value]).await.unwrap().get::<_, i64>(0)
    };
    for (op, double, single) in [("=", 0, 1), ("<", 0, 0), (">", 3, 2), ("<>", 3, 2)] {
        let sql = format!("select count(*) from f where r {op} $1");
        assert_eq!(count(&sql, Type::FLOAT8, &0.1_f64).await, double, "{sql}");
        assert_eq!(count(&sql, Type::FLOAT4, &0.1_f32).await, single, "{sql}");
        let literal = format!("select count(*) from f where r {op} 0.1::float8");
        assert_eq!(text(&client, &literal).await, double.to_string(), "{literal}");
    }
    let sql = "select count(*) from f where r = $1";
    assert_eq!(count(sql, Type::FLOAT8, &0.5_f64).await, 1);
    assert_eq!(count(sql, Type::FLOAT8, &f64::from(0.1_f32)).await, 1);
    assert_eq!(count(sql, Type::INT4, &16_777_216_i32).await, 1);
    assert_eq!(count(sql, Type::INT4, &16_777_217_i32).await, 0);
    assert_eq!(count("select count(*) from f where r < $1", Type::FLOAT8, &1e300_f64).await, 3);
    // The type that a client gives for a parameter counts in results, as in PostgreSQL.
    let statement = client.prepare_typed("select r + $1 from f where r < 0.2", &[Type::FLOAT8]).await.unwrap();
    assert_eq!(statement.columns()[0].type_(), &Type::FLOAT8);
    let row = client.query_one(&statement, &[&0.1_f64]).await.unwrap();
    assert_eq!(row.get::<_, f64>(0), f64::from(0.1_f32) + 0.1);
    let statement = client.prepare_typed("select 1 + $1", &[Type::FLOAT8]).await.unwrap();
    let row = client.query_one(&statement, &[&1.5_f64]).await.unwrap();
    assert_eq!(row.get::<_, f64>(0), 2.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_move_are_computed_from_their_own_rows() {
    let values = [1e17, 1.0, 1.0, 2.0, NAN, 3.0, 4.0, INF, 5.0, 6.0, 7.0, 8.0];
    let fixture = fixture(&[&values]).await;
    let client = fixture.client().await;
    let number = |text: &Option<String>| text.as_deref().map(|text| text.parse::<f64>().unwrap());
    for width in [1, 2, 3, 40] {
        let frames = |at: usize| &values[at.saturating_sub(width)..=at];
        let sums: Vec<f64> = (0..values.len()).map(|at| frames(at).iter().sum()).collect();
        let sql = format!(
            "select sum(x) over w, avg(x) over w, var_pop(x) over w, corr(x, g) over w, sum(x) filter (where x > 1) over w
             from f window w as (order by time_ns rows between {width} preceding and current row) order by time_ns"
        );
        for (at, row) in texts(&client, &sql).await.iter().enumerate() {
            let (frame, sum) = (frames(at), sums[at]);
            let same = |found: Option<f64>, expected: f64| {
                let found = found.unwrap_or_else(|| panic!("{sql}, row {at}: {row:?}"));
                found == expected || found.is_nan() && expected.is_nan()
            };
            let mean = sum / frame.len() as f64;
            assert!(same(number(&row[0]), sum), "{sql}, row {at}: {row:?}, {sum}");
            assert!(same(number(&row[1]), mean), "{sql}, row {at}: {row:?}, {mean}");
            let variance = number(&row[2]).unwrap();
            let is_finite = frame.iter().all(|value| value.is_finite());
            assert!(if is_finite { variance >= 0.0 } else { variance.is_nan() }, "{sql}, row {at}: {row:?}");
        }
    }
    let sql = "select sum(x) over (order by time range between interval '1 millisecond' preceding and current row) \
               from f order by time_ns";
    let sums = ["1e+17", "1e+17", "2", "3", "NaN", "NaN", "7", "Infinity", "Infinity", "11", "13", "15"];
    assert_eq!(texts(&client, sql).await, sums.map(|sum| cells([sum])));
    // Long frames, whose pieces are joined; and integers, whose sums are exact anyway.
    let sql = "select sum(v) over w, avg(v) over w, avg(n) over w from (select n, n * 1e0 as v from generate_series(1, 5000) \
               t(n)) q window w as (order by n rows between 999 preceding and current row) order by n desc limit 1";
    assert_eq!(texts(&client, sql).await, [cells(["4500500", "4500.5", "4500.5"])]);
}
