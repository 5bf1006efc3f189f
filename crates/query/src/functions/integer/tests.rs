use datafusion::logical_expr::{binary_expr, lit};
use datafusion::prelude::SessionContext;

use super::*;

/// Returns the first value of a statement, as text.
fn call(sql: &str) -> std::result::Result<String, QueryError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut state = SessionContext::new().state();
        check_integers(&mut state).unwrap();
        let context = SessionContext::new_with_state(state);
        let run = async {
            let frame = context.sql(sql).await?;
            let planned = frame.schema().field(0).clone();
            let batches = frame.collect().await?;
            let schema = batches[0].schema();
            assert_eq!((schema.field(0).name(), schema.field(0).data_type()), (planned.name(), planned.data_type()));
            Ok::<_, DataFusionError>(batches)
        };
        let batches = run.await?;
        let batch = batches.iter().find(|batch| batch.num_rows() > 0).expect(sql);
        Ok(datafusion::arrow::util::display::array_value_to_string(batch.column(0), 0).unwrap())
    })
}

fn check_results(all: &[(&str, &str)]) {
    for (sql, result) in all {
        assert_eq!(call(sql).as_deref(), Ok(*result), "{sql}");
    }
}

fn check_errors(all: &[(&str, &str)]) {
    for (sql, name) in all {
        let error = call(sql).expect_err(sql);
        assert_eq!((error.sqlstate, error.message), ("22003", format!("{name} out of range")), "{sql}");
        assert!(error.hint.is_some(), "{sql}");
    }
}

#[test]
fn what_has_no_place_in_its_type_is_an_error() {
    check_errors(&[
        ("select 9223372036854775807 + 1", "bigint"),
        ("select 9223372036854775806 + 1 + 1", "bigint"),
        ("select 1 + 9223372036854775807 - 1", "bigint"),
        ("select x + 1 from (values (9223372036854775807)) v(x)", "bigint"),
        ("select x - y from (values (9223372036854775807, -1)) v(x, y)", "bigint"),
        ("select x * 2 from (values (9223372036854775807)) v(x)", "bigint"),
        ("select -x from (values (-9223372036854775807 - 1)) v(x)", "bigint"),
        ("select 2147483647::int + 1::int", "integer"),
        ("select -x from (values ((-2147483648)::int)) v(x)", "integer"),
        ("select x * x from (values (32767::smallint)) v(x)", "smallint"),
        ("select x * x from (values (arrow_cast(16, 'Int8'))) v(x)", "8-bit integer"),
        (
            "select x - y from (values (arrow_cast(1, 'UInt32'), arrow_cast(2, 'UInt32'))) v(x, y)",
            "unsigned 32-bit integer",
        ),
        ("select x + x from (values (arrow_cast(9223372036854775808, 'UInt64'))) v(x)", "unsigned 64-bit integer"),
        ("select count(*) from (values (9223372036854775807)) v(x) where x + 1 > x", "bigint"),
        ("select x from (values (9223372036854775807), (1)) v(x) order by x * 2", "bigint"),
        ("select count(*) from (values (9223372036854775807), (1)) v(x) group by x + x", "bigint"),
        ("select max(x) - min(x) from (values (9223372036854775807), (-1)) v(x)", "bigint"),
        ("select max(x + 1) over () from (values (9223372036854775807), (-1)) v(x)", "bigint"),
        ("select x from (values (9223372036854775807)) a(x) join (values (1)) b(y) on x + 1 = y", "bigint"),
        ("select x from (values (9223372036854775807)) a(x) join (values (1)) b(y) on x + y > 0", "bigint"),
        ("select (select max(x) from (values (9223372036854775807)) v(x)) + 1", "bigint"),
    ]);
}

#[test]
fn arithmetic_is_otherwise_as_before() {
    check_results(&[
        ("select 1 + 2 * 3 - 4", "3"),
        ("select 2 * (3 + 4) - 5 - (1 - 2)", "10"),
        ("select -(-x) - -x * 3 from (values (5)) v(x)", "20"),
        ("select x * 2 + y - 1 from (values (5, 7::int)) v(x, y)", "16"),
        ("select x + y from (values (1, null), (2, 3)) v(x, y)", ""),
        ("select x + null from (values (1)) v(x)", ""),
        ("select x + 1.5 from (values (1)) v(x)", "2.5"),
        ("select 1.5 - x - x from (values (1)) v(x)", "-0.5"),
        ("select x / 2 + x % 2 from (values (7)) v(x)", "4"),
        ("select 2147483647::int + 1", "2147483648"),
        ("select arrow_cast(1, 'UInt32') - 2", "-1"),
        ("select date '2026-11-20' - date '2026-11-19' + 1", "2"),
        ("select x + 1 from (values (1), (1)) v(x) group by x + 1", "2"),
        ("select sum(x + 1) from (values (1), (2)) v(x)", "5"),
        ("select x from (values (1), (3), (2)) v(x) order by -x limit 1 + 1", "3"),
        ("select a.x from (values (1), (2)) a(x) join (values (3)) b(x) on a.x + 1 = b.x", "2"),
        ("select a.x from (values (1), (2)) a(x) left join (values (3)) b(x) on a.x = b.x - 1 where b.x + 1 > 0", "2"),
        (
            "select case when x < 9223372036854775807 then x + 1 else x end from (values (9223372036854775807)) v(x)",
            "9223372036854775807",
        ),
        ("with recursive t as (select 1 x union all select x + 1 from t where x < 9) select max(x) from t", "9"),
    ]);
}

#[test]
fn chains_are_one_call() {
    let mut sql = String::from("select x");
    (0..20).for_each(|_| sql.push_str(" + 1 - x * 2 + x"));
    sql.push_str(" from (values (1)) v(x)");
    check_results(&[(sql.as_str(), "1")]);
    let schema = DFSchema::empty();
    let rewrite = |expr| CheckIntegers.rewrite(expr, &schema, &ConfigOptions::default()).unwrap().data;
    let sum = |left, right| rewrite(binary_expr(left, Operator::Plus, right));
    let chain = sum(sum(lit(1_i64), lit(2_i64)), lit(3_i64));
    assert_eq!(chain.schema_name().to_string(), "Int64(1) + Int64(2) + Int64(3)");
    let Expr::ScalarFunction(call) = chain else { panic!("no call") };
    assert_eq!((call.args.len(), call.func.name()), (3, "+ +"));
    // Not merged if the left side has a smaller type, because that has its own range.
    let Expr::ScalarFunction(call) = sum(sum(lit(1_i32), lit(2_i32)), lit(3_i64)) else { panic!("no call") };
    assert_eq!(call.args.len(), 2);
}

#[test]
fn sums_of_integers_are_exact() {
    check_results(&[
        ("select sum(x) from (values (9223372036854775807), (1), (-1)) v(x)", "9223372036854775807"),
        ("select sum(x) from (values (9223372036854775807), (null)) v(x)", "9223372036854775807"),
        ("select sum(x) from (values (1), (null)) v(x) where x > 1", ""),
        ("select sum(x::int) from (values (2147483647), (1)) v(x)", "2147483648"),
        ("select sum(x) from (values (1.5), (2)) v(x)", "3.5"),
        ("select sum(x::numeric) > 9223372036854775807 from (values (9223372036854775807), (9)) v(x)", "true"),
        (
            "select sum(arrow_cast(x, 'UInt64')) from (values (9223372036854775807), (9223372036854775807), (1)) v(x)",
            "18446744073709551615",
        ),
        (
            "select sum(x) from (values (1, 9223372036854775807), (1, 5), (2, null), (1, -5)) v(g, x) \
             group by g order by g",
            "9223372036854775807",
        ),
        ("select sum(x) from (values (2, 1), (1, null)) v(g, x) group by g order by g", ""),
        (
            "select sum(x) filter (where x > 5) from (values (1, 9223372036854775807), (1, 5)) v(g, x) group by g",
            "9223372036854775807",
        ),
        (
            "select sum(distinct x) from (values (9223372036854775807), (9223372036854775807)) v(x)",
            "9223372036854775807",
        ),
        (
            "select sum(distinct x) - sum(distinct y) from (values (1, 2, 5), (1, 2, 6), (1, 3, 6)) v(g, x, y) group by g",
            "-6",
        ),
        (
            "select sum(s) from (select v % 7 g, sum(v) s from generate_series(1, 100000) t(v) group by v % 7)",
            "5000050000",
        ),
        ("select sum(s) from (select v g, sum(v) s from generate_series(1, 100000) t(v) group by v)", "5000050000"),
    ]);
    check_errors(&[
        ("select sum(x) from (values (9223372036854775807), (1)) v(x)", "bigint"),
        ("select sum(x) from (values (-9223372036854775807), (-2)) v(x)", "bigint"),
        ("select sum(x) from (values (1, 9223372036854775807), (1, 1)) v(g, x) group by g", "bigint"),
        ("select sum(distinct x) from (values (9223372036854775807), (1)) v(x)", "bigint"),
        ("select sum(distinct x), sum(distinct y) from (values (9223372036854775807, 1), (1, 1)) v(x, y)", "bigint"),
        (
            "select sum(arrow_cast(x, 'UInt64')) from (values (9223372036854775807), (9223372036854775807), (2)) v(x)",
            "unsigned 64-bit integer",
        ),
        ("select sum(1700000000000000000) from generate_series(1, 100000) t(v)", "bigint"),
    ]);
}

#[test]
fn sums_over_windows_are_exact() {
    let over = |function: &str, frame: &str, rows: &str| {
        format!("select max(s) from (select {function} over (order by n {frame}) s from (values {rows}) v(n, x)) w")
    };
    let (last_two, all) = ("rows between 1 preceding and current row", "");
    let (fits, leaves) = ("(1, 9223372036854775807), (2, -1), (3, 1), (4, 2)", "(1, 9223372036854775807), (2, 1)");
    let largest = "9223372036854775807";
    for frame in [last_two, all] {
        for function in ["sum(x)", "sum(distinct x)"] {
            if frame == last_two {
                check_results(&[(over(function, frame, fits).as_str(), largest)]);
            }
            check_errors(&[(over(function, frame, leaves).as_str(), "bigint")]);
        }
    }
    // Exceeds the range and returns to it between two frames.
    let rows = "(1, 9223372036854775807), (2, null), (3, 9223372036854775807)";
    check_results(&[(over("sum(x)", last_two, rows).as_str(), largest)]);
    let back = "(1, 9223372036854775807), (2, -9223372036854775807), (3, 9223372036854775807)";
    check_results(&[(over("sum(x)", all, back).as_str(), largest)]);
}
