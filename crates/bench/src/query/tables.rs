//! Tables of the questions over a history, and how each engine gets their rows.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use futures::SinkExt;

use super::connect;
use crate::http::HttpConnection;

/// Rows of a request.
const REQUEST_ROWS: u64 = 50_000;
/// `time` of the first row of every table.
pub(super) const START_NS: u64 = 1_760_000_000_000_000_000;
/// Number of tagged streams.
const TAGS: u64 = 185;
/// Number of hosts, and seconds between two of their rows, as in the DevOps queries of the Time Series Benchmark Suite.
const HOSTS: u64 = 100;
const HOST_PERIOD_S: u64 = 10;

/// A table, whose columns are a time, a tag `k`, and fields.
pub(super) struct BenchTable {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
    /// Number of rows, and with `--quick`.
    rows: (u64, u64),
    /// Returns the time and the tag of a row, and writes its fields.
    row: fn(u64, &mut [f64]) -> (u64, String),
}

/// All tables.
pub(super) const TABLES: [BenchTable; 4] = [
    // One channel at 1 kHz for eight hours.
    BenchTable { name: "bench_long", fields: &["x"], rows: (28_700_000, 2_000_000), row: long },
    // Many streams with a tag each.
    BenchTable { name: "bench_tags", fields: &["x"], rows: (5_000_000, 500_000), row: tagged },
    // Eight channels at 1 kHz for an hour; with `--quick` for six minutes.
    BenchTable {
        name: "bench_hour",
        fields: &["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"],
        rows: (3_600_000, 360_000),
        row: hour,
    },
    // Ten metrics of 100 hosts, every 10 s for three days; with `--quick` for half a day.
    BenchTable {
        name: "bench_cpu",
        fields: &[
            "usage_user",
            "usage_system",
            "usage_idle",
            "usage_nice",
            "usage_iowait",
            "usage_irq",
            "usage_softirq",
            "usage_steal",
            "usage_guest",
            "usage_guest_nice",
        ],
        rows: (3 * 8_640 * HOSTS, 4_320 * HOSTS),
        row: cpu,
    },
];

impl BenchTable {
    /// Returns the number of its rows.
    pub(super) fn rows(&self, quick: bool) -> u64 {
        if quick { self.rows.1 } else { self.rows.0 }
    }
}

/// Returns a number that looks random, from 0 to 1.
fn noise(of: u64) -> f64 {
    (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24)
}

/// Value of a row: a slow wave with noise and, about once in a million rows, a spike above 100.
fn value(row: u64) -> f64 {
    let spike = if row % 1_000_003 == 7 { 80.0 } else { 0.0 };
    let wave = (row as f64 / 60_000.0).sin();
    ((50.0 + 40.0 * wave + noise(row) + spike) * 1_000.0).round() / 1_000.0
}

fn long(row: u64, fields: &mut [f64]) -> (u64, String) {
    fields.fill(value(row));
    (START_NS + row * 1_000_000, "one".to_owned())
}

fn tagged(row: u64, fields: &mut [f64]) -> (u64, String) {
    fields.fill(value(row));
    (START_NS + row / TAGS * 10_000_000 + row % TAGS * 1_000, format!("n{:03}", row % TAGS))
}

fn hour(row: u64, fields: &mut [f64]) -> (u64, String) {
    for (at, field) in (0..).zip(fields) {
        *field = value(row * 8 + at);
    }
    (START_NS + row * 1_000_000, "one".to_owned())
}

/// Percentages that wander between 0 and 100, each in its own way.
fn cpu(row: u64, fields: &mut [f64]) -> (u64, String) {
    let (instant, host) = (row / HOSTS, row % HOSTS);
    for (at, field) in (0..).zip(fields) {
        let phase = (host * 10 + at) as f64;
        let wave = (instant as f64 / (40.0 + phase % 97.0) + phase).sin();
        *field = (50.0 + 42.0 * wave + 8.0 * noise(row * 10 + at)).round();
    }
    (START_NS + instant * HOST_PERIOD_S * 1_000_000_000, format!("host_{host:03}"))
}

/// Appends an instant as PostgreSQL and QuestDB read it, in microseconds.
pub(super) fn put_instant(out: &mut String, time_ns: u64) {
    let time = strongback_store::CivilTime::of(time_ns as i64);
    // Writing to a String cannot fail.
    let _ = write!(out, "{time}.{:06}Z", time.nanosecond / 1_000);
}

/// Sends the rows of all tables as line protocol over HTTP.
///
/// # Errors
/// If the engine refuses any.
pub(super) fn send(address: SocketAddr, path: &str, quick: bool, patience: Duration) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(address, patience)?;
    let mut text = String::new();
    for table in &TABLES {
        let (rows, mut fields) = (table.rows(quick), vec![0.0; table.fields.len()]);
        for row in 0..rows {
            let (time_ns, tag) = (table.row)(row, &mut fields);
            let _ = write!(text, "{},k={tag} ", table.name);
            for (at, (name, field)) in table.fields.iter().zip(&fields).enumerate() {
                let _ = write!(text, "{}{name}={field}", if at == 0 { "" } else { "," });
            }
            let _ = writeln!(text, " {time_ns}");
            if (row + 1).is_multiple_of(REQUEST_ROWS) || row + 1 == rows {
                let answer = http.post(path, text.as_bytes())?;
                ensure!((200..300).contains(&answer.status), "refused: {} {}", answer.status, answer.body);
                text.clear();
            }
        }
    }
    Ok(())
}

/// Creates the tables in PostgreSQL and fills them by COPY.
///
/// # Errors
/// If PostgreSQL refuses anything.
pub(super) async fn copy(config: &str, quick: bool) -> anyhow::Result<()> {
    let (client, connection) = connect(config).await?;
    let copying = async move {
        for table in &TABLES {
            let name = table.name;
            let columns: String = table.fields.iter().map(|field| format!(", {field} float8")).collect();
            let sql = format!("DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (time timestamptz, k text{columns})");
            client.batch_execute(&sql).await?;
            let sink = client.copy_in(&format!("COPY {name} FROM STDIN")).await?;
            futures::pin_mut!(sink);
            let mut text = String::new();
            let (rows, mut fields) = (table.rows(quick), vec![0.0; table.fields.len()]);
            for row in 0..rows {
                let (time_ns, tag) = (table.row)(row, &mut fields);
                put_instant(&mut text, time_ns);
                let _ = write!(text, "\t{tag}");
                for field in &fields {
                    let _ = write!(text, "\t{field}");
                }
                text.push('\n');
                if (row + 1).is_multiple_of(REQUEST_ROWS) || row + 1 == rows {
                    sink.send(std::io::Cursor::new(std::mem::take(&mut text).into_bytes())).await?;
                }
            }
            sink.close().await?;
            client.batch_execute(&format!("CREATE INDEX ON {name} (k, time); ANALYZE {name}")).await?;
        }
        anyhow::Ok(())
    };
    let (copied, connected) = tokio::join!(copying, connection);
    connected?;
    copied
}
