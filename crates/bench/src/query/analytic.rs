//! Questions over a long history: one channel at 1 kHz for hours, and many streams with a tag each.
//!
//! Every engine gets the same rows, and is asked once all are there; each question counts the best of its laps, from the
//! text to the last row as text. Numbers in the answers must agree.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::SinkExt;
use serde::Serialize;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Dialect, connect};
use crate::http::HttpConnection;
use crate::peers::{Peer, PeerRecipes};
use crate::serving::{ServerProcess, ServerProgram};
use crate::table::Table;

/// Rows of the long channel, and of all tagged streams together.
const ROWS: (u64, u64) = (28_700_000, 5_000_000);
const ROWS_QUICK: (u64, u64) = (2_000_000, 500_000);
/// Number of tagged streams.
const TAGS: u64 = 185;
/// Rows of a request.
const REQUEST_ROWS: u64 = 50_000;
const START_NS: u64 = 1_760_000_000_000_000_000;
const LAPS: usize = 3;
/// Max time for an answer, and for the last row to appear.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two counts.
const LOOK: Duration = Duration::from_millis(100);

/// Question over the history.
struct Question {
    name: &'static str,
    /// As Strongback and PostgreSQL are asked.
    sql: &'static str,
    /// As QuestDB is asked, if otherwise.
    quest: Option<&'static str>,
}

const QUESTIONS: [Question; 8] = [
    Question { name: "count(*)", sql: "SELECT count(*) FROM bench_long", quest: None },
    Question { name: "min, max, avg", sql: "SELECT min(x), max(x), avg(x) FROM bench_long", quest: None },
    Question {
        name: "avg, max by minute",
        sql: "SELECT date_trunc('minute', time) AS t, avg(x), max(x) FROM bench_long GROUP BY 1 ORDER BY 1",
        quest: Some("SELECT timestamp, avg(x), max(x) FROM bench_long SAMPLE BY 1m"),
    },
    Question {
        name: "avg, max by hour",
        sql: "SELECT date_trunc('hour', time) AS t, avg(x), max(x) FROM bench_long GROUP BY 1 ORDER BY 1",
        quest: Some("SELECT timestamp, avg(x), max(x) FROM bench_long SAMPLE BY 1h"),
    },
    Question { name: "count where x > 100", sql: "SELECT count(*) FROM bench_long WHERE x > 100", quest: None },
    Question {
        name: "newest row",
        sql: "SELECT time, x FROM bench_long ORDER BY time DESC LIMIT 1",
        quest: Some("SELECT timestamp, x FROM bench_long ORDER BY timestamp DESC LIMIT 1"),
    },
    Question {
        name: "last of each of 185 tags",
        sql: "SELECT DISTINCT ON (k) k, time, x FROM bench_tags ORDER BY k, time DESC",
        quest: Some("SELECT k, timestamp, x FROM bench_tags LATEST ON timestamp PARTITION BY k ORDER BY k"),
    },
    Question { name: "avg by tag", sql: "SELECT k, avg(x) FROM bench_tags GROUP BY k ORDER BY k", quest: None },
];

/// Time of a question in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AnalyticResult {
    /// Name of the engine.
    pub engine: &'static str,
    /// Name of the question.
    pub question: &'static str,
    /// Number of rows that it reads.
    pub rows: u64,
    /// Best of its laps, in milliseconds.
    pub best_ms: f64,
}

/// Value of a row: a slow wave with noise and, about once in a million rows, a spike above 100.
fn value(row: u64) -> f64 {
    let noise = (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24);
    let spike = if row % 1_000_003 == 7 { 80.0 } else { 0.0 };
    let wave = (row as f64 / 60_000.0).sin();
    ((50.0 + 40.0 * wave + noise + spike) * 1_000.0).round() / 1_000.0
}

/// Time and value of a row of the tagged streams, and its tag.
fn tagged(row: u64) -> (u64, u64, f64) {
    (START_NS + row / TAGS * 10_000_000 + row % TAGS * 1_000, row % TAGS, value(row))
}

/// Runs Strongback, then each available rival.
///
/// # Errors
/// Strongback failing, or an engine whose answers differ.
pub(super) async fn run(
    quick: bool,
    program: &ServerProgram,
    peers: &PeerRecipes,
    results: &mut Vec<AnalyticResult>,
) -> anyhow::Result<()> {
    let rows = if quick { ROWS_QUICK } else { ROWS };
    let expected = {
        let dir = tempfile::tempdir().context("temporary folder")?;
        let server = ServerProcess::start(program, dir.path())?;
        send(server.http, "/write", rows)?;
        let config = format!("host=127.0.0.1 port={} user=bench dbname=strongback", server.pg.port());
        let answers = ask_all(&config, ("strongback", Dialect::Strongback), rows, results).await?;
        server.stop()?;
        answers
    };
    for (peer, dialect) in [(Peer::QuestDb, Dialect::QuestDb), (Peer::Postgres, Dialect::Postgres)] {
        let Some(running) = peers.start(peer) else { continue };
        match dialect {
            Dialect::QuestDb => send(running.peer.http(), "/write", rows)?,
            _ => copy(running.peer.postgres(), rows).await?,
        }
        let answers = ask_all(running.peer.postgres(), (running.peer.name(), dialect), rows, results).await?;
        for ((question, expected), found) in QUESTIONS.iter().zip(&expected).zip(&answers) {
            compare(expected, found).with_context(|| format!("{}, {:?}", running.peer.name(), question.name))?;
        }
    }
    Ok(())
}

/// Prints the results, a question each row.
pub(super) fn print(results: &[AnalyticResult]) {
    let mut table = Table::new(["question, ms", "strongback", "QuestDB", "PostgreSQL", "QuestDB / strongback"]);
    for question in &QUESTIONS {
        let of = |engine: &str| {
            results.iter().find(|r| r.question == question.name && r.engine.starts_with(engine)).map(|r| r.best_ms)
        };
        let cell = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.1}"));
        let (own, quest) = (of("strongback"), of("QuestDB"));
        let ratio = own.zip(quest).map_or_else(String::new, |(own, quest)| format!("{:.2}", quest / own));
        table.row([question.name.into(), cell(own), cell(quest), cell(of("PostgreSQL")), ratio]);
    }
    table.print();
}

/// Sends all rows as line protocol over HTTP.
fn send(address: SocketAddr, path: &str, (long, tags): (u64, u64)) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(address, PATIENCE)?;
    let mut text = String::new();
    let mut put = |row: u64, rows: u64, line: &dyn Fn(&mut String, u64)| -> anyhow::Result<()> {
        line(&mut text, row);
        if (row + 1).is_multiple_of(REQUEST_ROWS) || row + 1 == rows {
            let answer = http.post(path, text.as_bytes())?;
            ensure!((200..300).contains(&answer.status), "refused: {} {}", answer.status, answer.body);
            text.clear();
        }
        Ok(())
    };
    // Writing to a String cannot fail.
    for row in 0..long {
        put(row, long, &|text, row| {
            let _ = writeln!(text, "bench_long,k=one x={} {}", value(row), START_NS + row * 1_000_000);
        })?;
    }
    for row in 0..tags {
        put(row, tags, &|text, row| {
            let (time_ns, tag, value) = tagged(row);
            let _ = writeln!(text, "bench_tags,k=n{tag:03} x={value} {time_ns}");
        })?;
    }
    Ok(())
}

/// Creates the tables in PostgreSQL and fills them by COPY.
async fn copy(config: &str, (long, tags): (u64, u64)) -> anyhow::Result<()> {
    let (client, connection) = connect(config).await?;
    let copying = async move {
        for table in ["bench_long", "bench_tags"] {
            let sql =
                format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (time timestamptz, k text, x float8)");
            client.batch_execute(&sql).await?;
        }
        for (table, rows) in [("bench_long", long), ("bench_tags", tags)] {
            let sink = client.copy_in(&format!("COPY {table} FROM STDIN")).await?;
            futures::pin_mut!(sink);
            let mut text = String::new();
            for row in 0..rows {
                let (time_ns, tag, value) = match table {
                    "bench_long" => (START_NS + row * 1_000_000, None, value(row)),
                    _ => {
                        let (time_ns, tag, value) = tagged(row);
                        (time_ns, Some(tag), value)
                    }
                };
                put_instant(&mut text, time_ns);
                let _ = match tag {
                    None => writeln!(text, "\tone\t{value}"),
                    Some(tag) => writeln!(text, "\tn{tag:03}\t{value}"),
                };
                if (row + 1).is_multiple_of(REQUEST_ROWS) || row + 1 == rows {
                    sink.send(std::io::Cursor::new(std::mem::take(&mut text).into_bytes())).await?;
                }
            }
            sink.close().await?;
            client.batch_execute(&format!("CREATE INDEX ON {table} (k, time); ANALYZE {table}")).await?;
        }
        anyhow::Ok(())
    };
    let (copied, connected) = tokio::join!(copying, connection);
    connected?;
    copied
}

/// Appends an instant as PostgreSQL reads it, in microseconds.
fn put_instant(out: &mut String, time_ns: u64) {
    let time = strongback_store::CivilTime::of(time_ns as i64);
    let _ = write!(out, "{time}.{:06}Z", time.nanosecond / 1_000);
}

/// Asks an engine every question once its rows are there. Returns the rows of the answers.
async fn ask_all(
    config: &str,
    (engine, dialect): (&'static str, Dialect),
    (long, tags): (u64, u64),
    results: &mut Vec<AnalyticResult>,
) -> anyhow::Result<Vec<Vec<Vec<String>>>> {
    let (client, connection) = connect(config).await?;
    let asking = async move {
        let begin = Instant::now();
        for (table, rows) in [("bench_long", long), ("bench_tags", tags)] {
            let sql = format!("SELECT count(*) FROM {table}");
            // The table may not exist yet.
            while !matches!(rows_of(&client, &sql).await, Ok(found) if found == [[rows.to_string()]]) {
                ensure!(begin.elapsed() < PATIENCE, "{engine}: not all {rows} rows of {table} within {PATIENCE:?}");
                tokio::time::sleep(LOOK).await;
            }
        }
        let (mut answers, mut found) = (Vec::new(), Vec::new());
        for question in &QUESTIONS {
            let sql = if dialect == Dialect::QuestDb { question.quest.unwrap_or(question.sql) } else { question.sql };
            let (mut best, mut answer) = (Duration::MAX, Vec::new());
            for _ in 0..LAPS {
                let begin = Instant::now();
                answer = rows_of(&client, sql).await.with_context(|| format!("{engine}: {sql}"))?;
                best = best.min(begin.elapsed());
            }
            let rows = if sql.contains("bench_long") { long } else { tags };
            let best_ms = best.as_secs_f64() * 1e3;
            found.push(AnalyticResult { engine, question: question.name, rows, best_ms });
            answers.push(answer);
        }
        anyhow::Ok((answers, found))
    };
    let (asked, connected) = tokio::join!(asking, connection);
    connected?;
    let (answers, found) = asked?;
    results.extend(found);
    Ok(answers)
}

async fn rows_of(client: &Client, sql: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let row = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    };
    Ok(client.simple_query(sql).await?.into_iter().filter_map(row).collect())
}

/// Compares the numbers and names in two answers; times differ in form.
fn compare(expected: &[Vec<String>], found: &[Vec<String>]) -> anyhow::Result<()> {
    ensure!(expected.len() == found.len(), "{} rows, not {}", found.len(), expected.len());
    for (expected, found) in expected.iter().flatten().zip(found.iter().flatten()) {
        match (expected.parse::<f64>(), found.parse::<f64>()) {
            (Ok(a), Ok(b)) if (a - b).abs() <= 1e-9 * a.abs().max(1.0) => {}
            (Ok(_), Ok(_)) => bail!("{found}, not {expected}"),
            _ => ensure!(expected == found || expected.contains(':'), "{found:?}, not {expected:?}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_are_found() {
        let rows = |cells: &[&str]| vec![cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<String>>()];
        let expected = rows(&["2025-10-09 08:53:20+00", "n001", "0.1"]);
        assert!(compare(&expected, &rows(&["2025-10-09T08:53:20Z", "n001", "0.10000000000001"])).is_ok());
        for wrong in [["2025-10-09T08:53:20Z", "n002", "0.1"], ["2025-10-09T08:53:20Z", "n001", "0.2"]] {
            assert!(compare(&expected, &rows(&wrong)).is_err(), "{wrong:?}");
        }
        assert!(compare(&expected, &[]).is_err());
    }
}
