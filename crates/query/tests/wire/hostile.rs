//! Statements that would end the process, fill its memory or take its threads for ever: each ends with an answer or
//! an error.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use strongback_query::{PgAuth, QueryOptions};
use tokio_postgres::error::SqlState;

use crate::Fixture;

/// Most memory of the process, in MiB: the queries have 176 of it.
const RSS_MIB_MAX: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

fn chain(first: &str, part: &str, count: usize) -> String {
    format!("{first}{}", part.repeat(count))
}

fn nest(open: &str, inside: &str, close: &str, count: usize) -> String {
    format!("select {}{inside}{}", open.repeat(count), close.repeat(count))
}

fn commons(body: &str, count: usize) -> String {
    let mut sql = String::from("with t0 as (select 1 x)");
    for n in 1..=count {
        sql.push_str(&format!(", t{n} as ({})", body.replace('@', &format!("t{}", n - 1))));
    }
    format!("{sql} select * from t{count}")
}

fn statements() -> Vec<String> {
    let mut all = Vec::new();
    for count in [300, 3_000] {
        for (first, part) in [
            ("select 1", "+1"),
            ("select x from pad where x=1", " and x=1"),
            ("select x from pad where x=1", " or x=1"),
            ("select x from pad where x=1", " or x=2 and y=3"),
            ("select 'a'", "||'a'"),
            ("select x::text", "||x"),
            ("select 1", "::int"),
            ("select null", " is null"),
            ("select 'a'", " like 'a'"),
            ("select now()", " at time zone 'UTC'"),
            ("select '{}'", "->'a'"),
            ("select array[1]", "[1]"),
            ("select x", " between 1 and 2"),
            ("select 1", " union all select 1"),
            ("select x from pad", " union select x from pad"),
            ("select 1 from pad a", " join pad using (x)"),
            ("select 1 from pad", ", pad"),
            ("select 1 from pad", " cross join pad"),
            ("select 1 as a", ", 1"),
            ("select coalesce(1", ", 1"),
        ] {
            all.push(chain(first, part, count));
        }
        all.push(commons("select x from @", count));
        all.push(commons("select x from @ where x > 0 group by x", count));
        all.push(commons("select a.x from @ a, @ b", count));
        all.push(commons("select x from @ union all select x from @", count));
        all.push(format!("select 1 from {}pad{}", "(".repeat(count), " join pad using (x))".repeat(count)));
        all.push("select 1;".repeat(count));
    }
    for count in [20, 48, 480] {
        for (open, inside, close) in [
            ("array[", "", ""),
            ("array[", "1", "]"),
            ("row(", "", ""),
            ("row(", "1", ")"),
            ("(", "1", ")"),
            ("(", "", ""),
            ("[", "", ""),
            ("case when ", "", ""),
            ("case when true then ", "1", " end"),
            ("cast(", "", ""),
            ("interval ", "", ""),
            ("extract(day from ", "", ""),
            ("exists (select ", "", ""),
            ("not ", "", ""),
            ("- ", "1", ""),
            ("(select ", "1", ")"),
            ("array(select ", "", ""),
            ("position('a' in ", "", ""),
            ("trim(both from ", "", ""),
            ("coalesce(", "", ""),
            ("x in (", "", ""),
            ("{", "", ""),
        ] {
            all.push(nest(open, inside, close, count));
        }
        all.push(format!("select 1 from {}", "(".repeat(count)));
        all.push(format!("select 1 from {}pad", "(select * from ".repeat(count)));
    }
    for size in ["100000000", "10000000000"] {
        for function in [
            "repeat('x', #)",
            "repeat(repeat('x', 100000), # / 1000)",
            "lpad(x::text, #, 'y')",
            "rpad('x', #)",
            "replace(repeat('x', 1000), 'x', repeat('y', # / 100))",
            "regexp_replace(repeat('x', 1000), 'x', repeat('y', # / 100), 'g')",
            "array_repeat(x, #)",
            "array_repeat(array_repeat(x, # / 1000), 1000)",
            "range(0, #)",
            "generate_series(1, #)",
            "array_resize(make_array(x), #, x)",
            "array_to_string(array_repeat(x, 1000), repeat(',', # / 1000))",
            "concat_ws(repeat(',', # / 100), x, x, x, x)",
            "repeat('x', # / 1000) || repeat(x::text, # / 1000)",
            "translate(repeat('x', # / 10), 'x', 'y')",
            "to_char(now(), repeat('%c', # / 10))",
            "levenshtein(repeat('x', # / 100), repeat('y', # / 100))",
            "upper(repeat('x', # / 10))",
            "string_to_array(repeat('x,', # / 10), ',')",
        ] {
            let call = function.replace('#', size);
            all.push(format!("select {call}").replace("x::text", "'1'").replace("(x,", "(1,").replace(", x", ", 1"));
            all.push(format!("select {call} from pad"));
        }
    }
    for source in ["pad", "pad a, (select 1 from pad) b", "generate_series(1, 5000000) pad(x)"] {
        for keeping in [
            "array_agg(x)",
            "array_agg(x) over ()",
            "array_agg(x) over (order by x)",
            "array_agg(x) over (order by x rows between 100000 preceding and current row)",
            "string_agg(x::text, ',') over (order by x)",
            "string_agg(x::text, repeat(',', 1000))",
            "sum(x) over ()",
            "count(distinct x) over (order by x)",
            "median(x) over (order by x)",
            "lag(x, 1000000000) over (order by x)",
            "sum(x) over (order by x rows between 1000000000 preceding and current row)",
            "max(range(0, 90000)) over ()",
            "count(range(0, 90000)) over (partition by x)",
            "first_value(range(0, 90000)) over (order by x)",
            "lag(x, 1) over (order by array_position(range(0, 90000), x::bigint))",
            "max(repeat('x', 60000)) over ()",
            "max(x::text || repeat('x', 60000)) over ()",
            "max(case when x = 1 then repeat('x', 1000000) else 'y' end) over ()",
            "last_value(case when x = 1 then range(0, 90000) end) over (order by x)",
            "array_agg(repeat('x', 2600)) over ()",
            "array_agg(x::text || repeat('x', 2600)) over ()",
            "array_agg(repeat('x', 2600)) over (order by x)",
            "string_agg(x::text || repeat('x', 2600), repeat('y', 2600)) over (order by x)",
            "count(distinct x::text || repeat('x', 60000)) over (order by x)",
            "array_agg(x order by array_position(range(0, 90000), x::bigint))",
        ] {
            all.push(format!("select {keeping} from {source}"));
        }
    }
    all.push("select x from pad order by array_position(range(0, 90000), x::bigint)".into());
    let keys = |count: usize| (1..=count).map(|n| format!("x + {n}")).collect::<Vec<_>>().join(", ");
    all.push(format!("select 1 from pad group by x, cube({})", keys(46)));
    all.push(format!("select 1 from pad group by cube({})", keys(28)));
    for sized in [
        "arrow_try_cast(arrow_cast(arrow_cast(x, 'Utf8'), 'Binary'), 'FixedSizeBinary(2000000000)')",
        "arrow_cast(null, 'FixedSizeList(100000000, Int64)')",
        "arrow_cast(null, 'List(FixedSizeBinary(2000000000))')",
        "approx_percentile_cont(0.5, 20000000000000) within group (order by x)",
        "approx_percentile_cont(0.5, 20000000 * 1000000) within group (order by x)",
    ] {
        all.push(format!("select {sized} from pad"));
    }
    let groups = "select x, max(y) m from pad group by x order by m desc nulls last limit";
    all.push(format!("{groups} 1000000000000"));
    all.push(format!("{groups} 50000000"));
    all.push("explain select max(repeat('x', 7000000)) over (order by x) from pad".into());
    all.push("explain verbose select max(range(0, 900000)), repeat('x', 7000000) from pad".into());
    all.push("explain analyze select max(repeat('x', 7000000)) from pad".into());
    all.push("with recursive t as (select 1 x union all select x + 1 from t) select count(*) from t".into());
    all.push("with recursive t as (select repeat('x', 1000) x union all select x || x from t) select x from t".into());
    all.push(format!("select '{}', x from pad", "x".repeat(1_000_000)));
    all.push(format!("select a.l, b.x from (select '{}' l) a cross join pad b", "x".repeat(900_000)));
    all.push("select a.l from (select repeat('x', 10000000) l) a cross join pad b".into());
    all.push("select unnest(range(0, 1000000)), repeat('x', 10000) from pad".into());
    all.push("select a.x from pad a, pad b, pad c, pad d order by 1".into());
    let wide = "(select repeat(x::text, 250000) || '1' a, repeat(x::text, 250000) || '2' b, x from pad limit 3) w";
    all.push(format!("select w.*, p.x from {wide} cross join pad p"));
    all.push(format!("select w.*, p.x from {wide} join pad p on w.x = p.x % 4"));
    all.push(format!("select w.*, p.x from {wide} join pad p on w.x < p.x and length(w.a) > p.x"));
    all.push("select p.x from (select range(0, x * 2000000) l from pad limit 3) w, pad p where l[p.x] > 5".into());
    all.push("select unnest(range(0, x * 3000000)), repeat(x::text, 500) || '' from pad limit 3".into());
    all.push("select unnest(l), t from (select range(0, x * 1000) l, repeat(x::text, 30000) t from pad) w".into());
    for pattern in ["'\\w{150}' || x::text", "'a{2}' || x::text"] {
        for matched in
            ["'a' ~ (#)", "'a' !~* (#)", "'a' similar to (#)", "regexp_like('a', #)", "regexp_count('a', #) > 0"]
        {
            all.push(format!("select count(*) from pad where {}", matched.replace('#', pattern)));
        }
    }
    for called in [
        "regexp_like('a', '\\w{20}', 'i' || repeat('m', x))",
        "regexp_match('a', 'a', 'i)\\w{99}' || x::text || '(?i') is null",
        "regexp_count('a', repeat('\\w', 28) || (x % 10)::text) > 0",
    ] {
        all.push(format!("select count(*) from pad where {called}"));
    }
    all.push("select count(*) from pad where x::text like repeat('_%', 12000) || x::text".into());
    all.push("select count(*) from pad where 'a' ilike repeat('x', 20000) || '_' || x::text".into());
    for matched in ["x::text ~ '\\w{#}a?'", "x::text ilike '%\\_b_##%'", "x::text similar to '\\w{20}#'"] {
        let matched = (100..400).map(|n| matched.replace('#', &n.to_string())).collect::<Vec<_>>().join(" or ");
        all.push(format!("select count(*) from pad where {matched}"));
    }
    for doubled in ["a + a", "concat(a, a)", "case when a = 1 then a else a end"] {
        for levels in [13, 24, 100] {
            let chain = (1..=levels).map(|n| format!(", t{n} as (select {doubled} a from t{})", n - 1));
            let chain: String = chain.collect();
            let end = format!("from t{levels}");
            all.push(format!("with t0 as (select x a from pad){chain} select count(*) {end} where a = '7'"));
            all.push(format!("with t0 as (select x a from pad){chain} select a {end} order by a limit 5"));
            all.push(format!("with t0 as (select x a from pad){chain} select max(a) {end}"));
            all.push(format!(
                "with t0 as (select x a from pad){chain} select count(*) {end} t join pad on t.a = pad.x"
            ));
        }
    }
    let list = (0..15_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    for parts in [60, 300] {
        let union = vec!["select x from pad"; parts].join(" union all ");
        all.push(format!("select count(*) from ({union}) u where x in ({list})"));
    }
    all.push("select strpos(repeat(x::text, 30000000), repeat(x::text, 15000000) || 'b') from pad".into());
    all.push("select array_has_any(range(0, x * 1000000), range(2000000, 3000000)) from pad".into());
    all.push(format!(
        "select count(*) from ({}) u",
        vec!["select v from generate_series(1, 3000000) g(v)"; 90].join(" union all ")
    ));
    all.extend(of_subqueries());
    all.extend(of_constants());
    all.extend(of_wide_rows());
    all.extend(of_many_results());
    all.push("\0".into());
    all.push("'".into());
    all.push("/*".repeat(100_000));
    all.push("$".repeat(100_000));
    all.push("a.".repeat(30_000));
    all
}

/// Values of subqueries stand in every row, and are held as long as the query runs.
fn of_subqueries() -> Vec<String> {
    let mut all = Vec::new();
    let one = "from generate_series(1, 1) g(v)";
    for put in [
        "select #, x from pad",
        "select coalesce(#, x::text) from pad",
        "select count(*) from pad where # || x::text = 'a'",
        "select max(#) over (order by x) from pad",
        "select max(x::text || #) over () from pad",
        "select x from pad order by # || x::text limit 5",
        "select a.x from pad a join pad b on a.x = b.x and coalesce(a.x::text, #) > b.x::text",
        "select sum(length(#)) from pad group by # || (x % 7)::text",
        "explain analyze select #",
        "explain analyze verbose select #, # || x::text from pad",
    ] {
        for times in [100, 1_000, 30_000] {
            all.push(put.replace('#', &format!("(select repeat(repeat(v::text, 1000), {times}) {one})")));
        }
    }
    all.push(format!("select (select range(0, v * 1000000) {one}) l, x from pad"));
    all.push(format!("select repeat((select v::text {one}), 1000000), x from pad"));
    all.push(format!("select (select v::text {one}) || repeat((select v::text {one}), 1000000), x from pad"));
    let lengths = (0..60).map(|n| format!("length((select repeat(repeat(v::text, 1000), {}) {one})) l{n}", 30_000 + n));
    all.push(format!("select {}", lengths.collect::<Vec<_>>().join(", ")));
    let lists = (0..200).map(|n| format!("array_length((select range(0, v * 1000000 + {n}) {one})) l{n}"));
    all.push(format!("select {}", lists.collect::<Vec<_>>().join(", ")));
    all
}

/// Constants that are long, or become long when they are worked out, and are used often.
fn of_constants() -> Vec<String> {
    let mut all = Vec::new();
    let text = "x".repeat(300_000);
    let uses =
        |count: usize, used: &str| (0..count).map(|n| used.replace('#', &n.to_string())).collect::<Vec<_>>().join(", ");
    for constant in [format!("'{text}'"), "repeat('x', 15000000)".into(), format!("upper('{text}')")] {
        all.push(format!("select {} from (select {constant} a from pad) t", uses(400, "a a#")));
        all.push(format!(
            "select {} from (select {constant} a, x from pad) t",
            uses(400, "length(a || (x + #)::text) a#")
        ));
        all.push(format!("select {} from (select {constant} a, x from pad) t", uses(400, "a || (x + #)::text a#")));
        all.push(format!("select max({constant}), x from pad group by x, {constant} || x::text"));
        all.push(format!("select count(*) from pad where x::text in ({}, {constant})", uses(100, "'#'")));
    }
    all.push(format!("select {}", uses(400, "length(repeat('x', 15000000 + #)) l#")));
    all.push(format!("select {}", uses(400, "repeat('x', 15000000 + #) l#")));
    all.push(format!("select {} from pad", uses(400, "repeat('x', 15000000 + #) l#")));
    all.push(format!("values {}", uses(400, "(repeat('x', 15000000 + #))")));
    all.push(format!("select {} from pad", uses(5_000, "length(repeat('x', 1000 + #)) l#")));
    all.push("select count(*) from pad where array_has(range(0, 1000000), x)".into());
    all.push("select count(*) from pad where x = any(range(0, 4000))".into());
    all
}

/// Rows that are wide, but not so wide that any of them is refused.
fn of_wide_rows() -> Vec<String> {
    let mut all = Vec::new();
    // Made a few at a time, as a join of texts hands them on.
    let made = "from generate_series(1000, 1040) g(v) cross join (select x, x::text s from pad) p";
    let wide = format!("(select v, x, repeat(v::text, 15000) || s t {made}) w");
    for read in [
        "select max(t) from # where length(t) > v",
        "select t from # where length(t) > v order by v desc limit 3",
        "select count(*) from (select t, count(*) from # group by t) c",
        "select count(*) from (select distinct t, v from # where v % 2 = 0) c",
        "select count(*) from # join pad on w.v = pad.x",
        "select max(length(t)) from (select t, row_number() over (partition by v order by t) r from #) c",
    ] {
        all.push(read.replace('#', &wide));
    }
    for kind in ["Utf8View", "BinaryView", "LargeUtf8"] {
        let text = format!("arrow_cast(repeat(v::text, 15000) || s, '{kind}')");
        all.push(format!("select cardinality(array_agg({text})) {made}"));
        all.push(format!("select cardinality(array_agg({text})) {made} group by v % 3"));
        all.push(format!("select count(distinct {text}) {made} group by v % 3"));
    }
    all.push("select array_length(array_distinct(range(0, v * 3900000))) from generate_series(1, 1) g(v)".into());
    all.push(
        "select array_length(array_union(range(0, v * 1900000), range(v, 1900000))) from generate_series(1, 1) g(v)"
            .into(),
    );
    let parts = vec!["select v, v::text || 'a' t from generate_series(1, 2000000) g(v)"; 90].join(" union all ");
    all.push(parts.clone());
    all.push(format!("{parts} order by v limit 3"));
    all.push(format!("select t, count(*) from ({parts}) u group by t"));
    all
}

/// Much for each row or each group that no value shows before it is made.
fn of_many_results() -> Vec<String> {
    let mut all = Vec::new();
    let list = |count: usize, part: &str| (1..=count).map(|n| part.replace('#', &n.to_string())).collect::<Vec<_>>();
    let lists = "FixedSizeList(65536, FixedSizeList(65536, FixedSizeList(65536, Int64)))";
    all.push(format!("select arrow_cast(null, '{lists}') is null"));
    all.push(
        "select arrow_try_cast(make_array(make_array(1)), 'FixedSizeList(2000, FixedSizeList(2000, Int64))')".into(),
    );
    for cast in [
        "arrow_try_cast(make_array(x), 'FixedSizeList(8000, Int64)')",
        "arrow_try_cast(arrow_cast(x::text, 'Binary'), 'FixedSizeBinary(65536)')",
    ] {
        all.push(format!("select count({cast}) from generate_series(1, 8192) g(x)"));
    }
    let numbers = "from generate_series(1, 60000) g(x)";
    all.push(format!("select x {numbers} order by {}", list(2_000, "x + #").join(", ")));
    all.push(format!("select {} {numbers}", list(1_600, "x + #").join(", ")));
    all.push(format!("select count(greatest({})) {numbers}", list(4_000, "x + #").join(", ")));
    all.push(format!("select {} {numbers} group by x % 7", list(4_000, "sum(x + #)").join(", ")));
    let distinct = list(16, "approx_distinct((x % 3000#)::smallint)").join(", ");
    all.push(format!("select {distinct} {numbers} group by x"));
    for parts in ["x", "x % 30000"] {
        let distinct = list(10, &format!("approx_distinct(x + #) over (partition by {parts} order by x)")).join(", ");
        all.push(format!("select {distinct} {numbers}"));
    }
    let groups = format!("{}(a*){}", "(".repeat(240), ")".repeat(240));
    for repeated in [690_000, 2_790_000] {
        let found = format!("select cardinality(regexp_match(repeat(s, {repeated}), '{groups}'))");
        all.push(format!("{found} from (values ('a')) v(s)"));
    }
    all.push(format!("select cardinality(regexp_match(repeat('a', 690000), '{groups}'))"));
    all.push("select cardinality(array_repeat(b, 67000000)) from (values (true)) v(b)".into());
    all.push("select array_repeat(b, 60000000) from (values (null::boolean)) v(b)".into());
    all.push("select cardinality(array_repeat(true, 16000000))".into());
    all.push("select repeat('ab', 8000000) ~ '[ab]{50000}[^ab]'".into());
    all.push("select length(btrim(repeat('a', 4000000), repeat('b', 4000000) || 'a'))".into());
    let pairs = "from generate_series(1, 400000) a(x), generate_series(1, 400000) b(y) where";
    all.push(format!("select count(*) {pairs} x + y < 0"));
    all.push(format!("select count(*) {pairs} x * 0 = y * 0 and x + y < 0"));
    let longest = (0..2_000).map(|n| format!("repeat('a', {})", 16_000_000 - n)).collect::<Vec<_>>().join(", ");
    all.push(format!("select {longest}"));
    all.push("select x from pad order by x offset 1000000000".into());
    all.push("select sum(find_in_set(x::text, repeat(',', 16000000))) from generate_series(1, 2) g(x)".into());
    all.push("select cardinality(map(range(0, n), range(0, n))) from (values (4190000)) v(n)".into());
    let matched = list(1_300, "s ~ '\\w{99}#'").join(" or ");
    all.push(format!("select count(*) from (select x::text s from pad) p where {matched}"));
    all.push(
        "select count(regexp_replace(repeat('ab', 20000) || x::text, '[ab]{700}[^ab]' || (x % 46)::text, '')) from pad"
            .into(),
    );
    all
}

fn rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// In a process of its own, as it measures that and might end it.
#[test]
fn no_statement_ends_the_process_or_fills_its_memory() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::every_statement_ends", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.chars().skip(text.chars().count().saturating_sub(3_000)).collect::<String>()
    };
    assert!(child.status.success(), "{}\n{}\n{}", child.status, said(&child.stdout), said(&child.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run in a process of its own"]
async fn every_statement_ends() {
    // A fifth of the statements run until then. `make test-all` lets them grow for longer.
    let limit = Duration::from_millis(if std::env::var_os("STRONGBACK_TEST_ALL").is_some() { 1_000 } else { 300 });
    let options = QueryOptions { statement_timeout: Some(limit), niceness: 0, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(2_000);
    let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watch = {
        let (over, most) = (over.clone(), most.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(rss_mib(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(2));
            }
        })
    };
    let wire = fixture.client().await;
    for (number, sql) in statements().into_iter().enumerate() {
        let shown: String = sql.chars().take(120).collect();
        // What was tried last is what a dead process leaves behind.
        let _ = writeln!(std::io::stdout(), "{number}: {} bytes: {shown}", sql.len());
        let before = most.load(Ordering::Relaxed);
        let answer = fixture.query.sql_json(&sql, 10, limit);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect(&shown);
        if let Err(error) = answer {
            let _ = writeln!(std::io::stdout(), "   {} {:.200}", error.sqlstate, error.message);
            assert_ne!(error.sqlstate, "XX000", "{shown}: {error}");
        }
        let now = most.load(Ordering::Relaxed);
        if now > before + 20 {
            let _ = writeln!(std::io::stdout(), "   now {now} MiB");
        }
        assert!(now < RSS_MIB_MAX, "{shown}: {now} MiB");
        if number % 7 == 0 {
            let _ = tokio::time::timeout(PATIENCE, wire.simple_query(&sql)).await.expect(&shown);
        }
    }
    // Others are served as before.
    assert_eq!(wire.query_one("select count(*) from pad", &[]).await.unwrap().get::<_, i64>(0), 2_000);
    over.store(true, Ordering::Relaxed);
    watch.join().unwrap();
}

#[tokio::test]
async fn long_statements_that_tools_write_are_answered() {
    let options = QueryOptions { niceness: 0, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(50);
    let client = fixture.client().await;
    let list: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let ors: Vec<String> = (0..1_000).map(|n| format!("x = {n}")).collect();
    let cases: String = (0..200).map(|n| format!(" when x = {n} then {n}")).collect();
    let joins: String = (0..40).map(|n| format!(" join pad t{n} on t{n}.x = pad.x")).collect();
    for (sql, expected) in [
        (chain("select 1", "+1", 399), 400),
        (format!("select count(*) from pad where x in ({})", list.join(", ")), 50),
        (format!("select count(*) from pad where {}", ors.join(" or ")), 50),
        (format!("select count(*) from ({}) u", vec!["select x from pad"; 100].join(" union all ")), 5_000),
        (format!("select sum(case{cases} else 0 end) from pad"), 1_225),
        (format!("select count(*) from pad{joins}"), 50),
        (format!("{} ", commons("select x + 1 as x from @", 60)), 61),
    ] {
        let rows = client.simple_query(&sql).await.unwrap_or_else(|error| panic!("{:.100}: {error:?}", sql));
        let value = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        assert_eq!(value, Some(expected.to_string()), "{:.100}", sql);
    }
}

#[tokio::test]
async fn what_is_beyond_a_limit_is_named() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for sql in [
        chain("select 1", "+1", 100_000),
        chain("select 1", " union all select 1", 5_000),
        commons("select a.x from @ a, @ b", 30),
        nest("array[", "", "", 48),
        "select 1;".repeat(100_000),
    ] {
        let error = client.simple_query(&sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code(), &SqlState::from_code("54001"), "{:.60}: {error}", sql);
    }
}

#[tokio::test]
async fn connections_that_only_start_keep_nobody_out() {
    let fixture = Fixture::with(QueryOptions::default(), PgAuth::password("secret").unwrap()).await;
    let address = fixture.address;
    let mut started = Vec::new();
    for _ in 0..300 {
        started.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    fixture.client_as("user=anyone password=secret").await.unwrap();
    drop(started);
}

#[tokio::test]
async fn prepared_statements_have_a_bound_of_memory() {
    let options = QueryOptions { memory_bytes: 16 << 20, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(1);
    let (greedy, other) = (fixture.client().await, fixture.client().await);
    let list = vec!["1"; 10_000].join(",");
    let mut kept = Vec::new();
    let error = loop {
        match greedy.prepare(&format!("select x from pad where x in ({list},{})", kept.len())).await {
            Ok(statement) => kept.push(statement),
            Err(error) => break error,
        }
        assert!(kept.len() < 1_000);
    };
    assert_eq!(error.code(), Some(&SqlState::OUT_OF_MEMORY));
    other.prepare("select x from pad").await.unwrap();
    drop(kept);
    greedy.simple_query("deallocate all").await.unwrap();
    greedy.prepare("select x from pad").await.unwrap();
}

#[tokio::test]
async fn endless_queries_keep_nobody_out() {
    let limit = Some(Duration::from_secs(600));
    let options = QueryOptions { statement_timeout: limit, niceness: 0, ..QueryOptions::default() };
    let fixture = Fixture::with(options, PgAuth::Trust).await;
    fixture.pad(2_000);
    let mut endless = Vec::new();
    for _ in 0..20 {
        let client = fixture.client().await;
        client.simple_query("set statement_timeout = 0").await.unwrap();
        let cancel = client.cancel_token();
        let query = tokio::spawn(async move {
            client.simple_query("select count(*) from generate_series(1, 1000000000000) t(v) where v < 0").await
        });
        endless.push((cancel, query));
    }
    let other = fixture.client().await;
    let row = tokio::time::timeout(PATIENCE, other.query_one("select sum(x) from pad", &[])).await.unwrap().unwrap();
    assert_eq!(row.get::<_, i64>(0), 1_999_000);
    for (cancel, _) in &endless {
        cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    }
    for (_, query) in endless {
        assert_eq!(query.await.unwrap().unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    }
}

#[tokio::test]
async fn long_constants_are_answered_as_short_ones() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let (text, other) = ("x".repeat(5_000), "y".repeat(5_000));
    let one = |sql: String| {
        let client = &client;
        async move {
            let rows = client.simple_query(&sql).await.unwrap_or_else(|error| panic!("{:.200}: {error:?}", sql));
            rows.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
        }
    };
    assert_eq!(one(format!("select '{text}'")).await, Some(text.clone()));
    assert_eq!(one(format!("select $${text}$$ || x::text from pad order by x")).await, Some(format!("{text}0")));
    assert_eq!(one(format!("select upper(E'{text}\\n')")).await, Some(format!("{}\n", text.to_uppercase())));
    assert_eq!(one(format!("select length('{text}') + length('{other}')")).await, Some("10000".into()));
    assert_eq!(one(format!("select max('{text}') || max('{other}') from pad")).await, Some(format!("{text}{other}")));
    assert_eq!(one(format!("select count(*) from pad where '{text}' = repeat('x', 5000)")).await, Some("3".into()));
    assert_eq!(one(format!("select count(*) from pad where x::text in ('1', '{text}')")).await, Some("1".into()));
    assert_eq!(one(format!("select count(*) from pad where x::text like '{text}%'")).await, Some("0".into()));
    assert_eq!(one(format!("select count(*) from latest('{}')", &text[..3_000])).await, Some("0".into()));
    assert_eq!(
        one(format!("select text '{text}' || a from (select '{other}' a) t")).await,
        Some(format!("{text}{other}"))
    );
    let prepared =
        client.prepare("select $1 || length($2::text)::text || x::text, $1 from pad order by x").await.unwrap();
    let rows = client.query(&prepared, &[&text, &other]).await.unwrap();
    assert_eq!((rows[2].get::<_, String>(0), rows[0].get::<_, String>(1)), (format!("{text}50002"), text.clone()));
    let mixed = format!("select length($1::text || '{other}')");
    let row = client.query_one(&mixed, &[&text]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 10_000);
}
