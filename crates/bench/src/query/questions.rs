//! Questions over a history: aggregates of a long channel, channels on a grid of times, and the DevOps queries of the Time
//! Series Benchmark Suite (<https://github.com/timescale/tsbs>).

use super::tables::{START_NS, put_instant};

/// Hours that the DevOps queries ask for, from the second hour on.
const ASKED_H: u64 = 8;

/// Question over a table.
pub(super) struct Question {
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    /// As Strongback is asked. `{from}` and `{to}` are the instants of the question's span, in quotes.
    pub(super) own: &'static str,
    /// As QuestDB is asked.
    pub(super) quest: Option<&'static str>,
    /// As PostgreSQL is asked.
    pub(super) postgres: Option<&'static str>,
    /// Seconds from the first row to `{from}` and to `{to}`.
    span_s: (u64, u64),
}

impl Question {
    /// Writes the instants into a statement of the question. With `quick` the hour of eight channels is six minutes long.
    pub(super) fn with_span(&self, sql: &str, quick: bool) -> String {
        let share = if quick && self.table == "bench_hour" { 10 } else { 1 };
        let instant = |after_s: u64| {
            let mut text = "'".to_owned();
            put_instant(&mut text, START_NS + after_s * 1_000_000_000);
            text + "'"
        };
        sql.replace("{from}", &instant(self.span_s.0 / share)).replace("{to}", &instant(self.span_s.1 / share))
    }
}

/// Question that all engines are asked with the same text.
const fn same(name: &'static str, table: &'static str, sql: &'static str) -> Question {
    Question { name, table, own: sql, quest: Some(sql), postgres: Some(sql), span_s: (0, 0) }
}

/// Question that QuestDB is asked with a text of its own.
const fn quest(name: &'static str, table: &'static str, sql: &'static str, quest: &'static str) -> Question {
    Question { name, table, own: sql, quest: Some(quest), postgres: Some(sql), span_s: (0, 0) }
}

/// The same over a span of the DevOps queries.
const fn devops(name: &'static str, hours: u64, sql: &'static str, quest: &'static str) -> Question {
    let span_s = (3_600, (1 + hours) * 3_600);
    Question { name, table: "bench_cpu", own: sql, quest: Some(quest), postgres: Some(sql), span_s }
}

/// All questions.
pub(super) const QUESTIONS: [Question; 22] = [
    same("count(*)", "bench_long", "SELECT count(*) FROM bench_long"),
    same("min, max, avg", "bench_long", "SELECT min(x), max(x), avg(x) FROM bench_long"),
    quest(
        "avg, max by minute",
        "bench_long",
        "SELECT date_trunc('minute', time) AS t, avg(x), max(x) FROM bench_long GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, avg(x), max(x) FROM bench_long SAMPLE BY 1m",
    ),
    quest(
        "avg, max by hour",
        "bench_long",
        "SELECT date_trunc('hour', time) AS t, avg(x), max(x) FROM bench_long GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, avg(x), max(x) FROM bench_long SAMPLE BY 1h",
    ),
    same("count where x > 100", "bench_long", "SELECT count(*) FROM bench_long WHERE x > 100"),
    quest(
        "newest row",
        "bench_long",
        "SELECT time, x FROM bench_long ORDER BY time DESC LIMIT 1",
        "SELECT timestamp, x FROM bench_long ORDER BY timestamp DESC LIMIT 1",
    ),
    quest(
        "last of each of 185 tags",
        "bench_tags",
        "SELECT DISTINCT ON (k) k, time, x FROM bench_tags ORDER BY k, time DESC",
        "SELECT k, timestamp, x FROM bench_tags LATEST ON timestamp PARTITION BY k ORDER BY k",
    ),
    same("avg by tag", "bench_tags", "SELECT k, avg(x) FROM bench_tags GROUP BY k ORDER BY k"),
    grid(
        "8 channels, mean of each second",
        "SELECT time, \"bench_hour.c0{k=one}\", \"bench_hour.c1{k=one}\", \"bench_hour.c2{k=one}\", \
         \"bench_hour.c3{k=one}\", \"bench_hour.c4{k=one}\", \"bench_hour.c5{k=one}\", \"bench_hour.c6{k=one}\", \
         \"bench_hour.c7{k=one}\" FROM resample('bench_hour.*', {from}, {to}, '1 s', 'mean')",
        Some(
            "SELECT timestamp, avg(c0), avg(c1), avg(c2), avg(c3), avg(c4), avg(c5), avg(c6), avg(c7) \
             FROM bench_hour WHERE timestamp >= {from} AND timestamp < {to} SAMPLE BY 1s",
        ),
        Some(
            "SELECT date_trunc('second', time) AS t, avg(c0), avg(c1), avg(c2), avg(c3), avg(c4), avg(c5), avg(c6), \
             avg(c7) FROM bench_hour WHERE time >= {from} AND time < {to} GROUP BY 1 ORDER BY 1",
        ),
    ),
    grid(
        "8 channels, last of each second",
        "SELECT time, \"bench_hour.c0{k=one}\", \"bench_hour.c1{k=one}\", \"bench_hour.c2{k=one}\", \
         \"bench_hour.c3{k=one}\", \"bench_hour.c4{k=one}\", \"bench_hour.c5{k=one}\", \"bench_hour.c6{k=one}\", \
         \"bench_hour.c7{k=one}\" FROM resample('bench_hour.*', {from}, {to}, '1 s', 'last')",
        Some(
            "SELECT timestamp, last(c0), last(c1), last(c2), last(c3), last(c4), last(c5), last(c6), last(c7) \
             FROM bench_hour WHERE timestamp >= {from} AND timestamp < {to} SAMPLE BY 1s",
        ),
        None,
    ),
    grid(
        "8 channels, value at each second",
        "SELECT * FROM resample('bench_hour.*', {from}, {to}, '1 s', 'previous')",
        None,
        None,
    ),
    grid(
        "8 channels, on lines each second",
        "SELECT * FROM resample('bench_hour.*', {from}, {to}, '1 s', 'linear')",
        None,
        None,
    ),
    grid(
        "8 channels, mean over time of each second",
        "SELECT * FROM resample('bench_hour.*', {from}, {to}, '1 s', 'time_mean')",
        None,
        None,
    ),
    devops(
        "single-groupby-1-1-1",
        1,
        "SELECT date_trunc('minute', time) AS t, max(usage_user) FROM bench_cpu \
         WHERE k = 'host_042' AND time >= {from} AND time < {to} GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, max(usage_user) FROM bench_cpu \
         WHERE k = 'host_042' AND timestamp >= {from} AND timestamp < {to} SAMPLE BY 1m",
    ),
    devops(
        "single-groupby-5-8-1",
        1,
        "SELECT date_trunc('minute', time) AS t, max(usage_user), max(usage_system), max(usage_idle), max(usage_nice), \
         max(usage_iowait) FROM bench_cpu WHERE k IN ('host_001', 'host_013', 'host_021', 'host_034', 'host_055', \
         'host_067', 'host_078', 'host_089') AND time >= {from} AND time < {to} GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, max(usage_user), max(usage_system), max(usage_idle), max(usage_nice), max(usage_iowait) \
         FROM bench_cpu WHERE k IN ('host_001', 'host_013', 'host_021', 'host_034', 'host_055', 'host_067', \
         'host_078', 'host_089') AND timestamp >= {from} AND timestamp < {to} SAMPLE BY 1m",
    ),
    devops(
        "cpu-max-all-1",
        ASKED_H,
        "SELECT date_trunc('hour', time) AS t, max(usage_user), max(usage_system), max(usage_idle), max(usage_nice), \
         max(usage_iowait), max(usage_irq), max(usage_softirq), max(usage_steal), max(usage_guest), \
         max(usage_guest_nice) FROM bench_cpu WHERE k = 'host_042' AND time >= {from} AND time < {to} \
         GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, max(usage_user), max(usage_system), max(usage_idle), max(usage_nice), max(usage_iowait), \
         max(usage_irq), max(usage_softirq), max(usage_steal), max(usage_guest), max(usage_guest_nice) FROM bench_cpu \
         WHERE k = 'host_042' AND timestamp >= {from} AND timestamp < {to} SAMPLE BY 1h",
    ),
    devops(
        "double-groupby-1",
        ASKED_H,
        "SELECT date_trunc('hour', time) AS t, k, avg(usage_user) FROM bench_cpu \
         WHERE time >= {from} AND time < {to} GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT timestamp, k, avg(usage_user) FROM bench_cpu \
         WHERE timestamp >= {from} AND timestamp < {to} SAMPLE BY 1h ORDER BY timestamp, k",
    ),
    devops(
        "double-groupby-all",
        ASKED_H,
        "SELECT date_trunc('hour', time) AS t, k, avg(usage_user), avg(usage_system), avg(usage_idle), avg(usage_nice), \
         avg(usage_iowait), avg(usage_irq), avg(usage_softirq), avg(usage_steal), avg(usage_guest), \
         avg(usage_guest_nice) FROM bench_cpu WHERE time >= {from} AND time < {to} GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT timestamp, k, avg(usage_user), avg(usage_system), avg(usage_idle), avg(usage_nice), avg(usage_iowait), \
         avg(usage_irq), avg(usage_softirq), avg(usage_steal), avg(usage_guest), avg(usage_guest_nice) FROM bench_cpu \
         WHERE timestamp >= {from} AND timestamp < {to} SAMPLE BY 1h ORDER BY timestamp, k",
    ),
    devops(
        "lastpoint",
        ASKED_H,
        "SELECT DISTINCT ON (k) k, time, usage_user, usage_system, usage_idle FROM bench_cpu ORDER BY k, time DESC",
        "SELECT k, timestamp, usage_user, usage_system, usage_idle FROM bench_cpu \
         LATEST ON timestamp PARTITION BY k ORDER BY k",
    ),
    devops(
        "high-cpu-1",
        ASKED_H,
        "SELECT time, k, usage_user, usage_system, usage_idle FROM bench_cpu \
         WHERE usage_user > 90.0 AND k = 'host_042' AND time >= {from} AND time < {to} ORDER BY time",
        "SELECT timestamp, k, usage_user, usage_system, usage_idle FROM bench_cpu \
         WHERE usage_user > 90.0 AND k = 'host_042' AND timestamp >= {from} AND timestamp < {to} ORDER BY timestamp",
    ),
    devops(
        "high-cpu-all",
        ASKED_H,
        "SELECT time, k, usage_user, usage_system, usage_idle FROM bench_cpu \
         WHERE usage_user > 90.0 AND time >= {from} AND time < {to} ORDER BY time, k",
        "SELECT timestamp, k, usage_user, usage_system, usage_idle FROM bench_cpu \
         WHERE usage_user > 90.0 AND timestamp >= {from} AND timestamp < {to} ORDER BY timestamp, k",
    ),
    devops(
        "groupby-orderby-limit",
        ASKED_H,
        "SELECT date_trunc('minute', time) AS t, max(usage_user) FROM bench_cpu WHERE time < {to} \
         GROUP BY 1 ORDER BY 1 DESC LIMIT 5",
        "SELECT timestamp, max(usage_user) AS most FROM bench_cpu WHERE timestamp < {to} \
         SAMPLE BY 1m ORDER BY timestamp DESC LIMIT 5",
    ),
];

/// Question for channels on a grid of times, over all rows of `--quick`.
const fn grid(
    name: &'static str,
    own: &'static str,
    quest: Option<&'static str>,
    postgres: Option<&'static str>,
) -> Question {
    Question { name, table: "bench_hour", own, quest, postgres, span_s: (0, 3_600) }
}
