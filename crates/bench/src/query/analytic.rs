//! Questions over a history, each beside QuestDB and PostgreSQL.
//!
//! Every engine gets the same rows, and is asked once all are there; each question counts the best of its laps, from the
//! text to the last row as text. Numbers in the answers must agree.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::questions::QUESTIONS;
use super::tables::{TABLES, copy, send};
use super::{Dialect, connect};
use crate::peers::{Peer, PeerRecipes};
use crate::serving::{ServerProcess, ServerProgram};
use crate::table::Table;

const LAPS: usize = 3;
/// Max time for an answer, and for the last row to appear.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two counts.
const LOOK: Duration = Duration::from_millis(100);

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
    let expected = {
        let dir = tempfile::tempdir().context("temporary folder")?;
        let server = ServerProcess::start(program, dir.path())?;
        send(server.http, "/write", quick, PATIENCE)?;
        let config = format!("host=127.0.0.1 port={} user=bench dbname=strongback", server.pg.port());
        let answers = ask_all(&config, ("strongback", Dialect::Strongback), quick, results).await?;
        server.stop()?;
        answers
    };
    for (peer, dialect) in [(Peer::QuestDb, Dialect::QuestDb), (Peer::Postgres, Dialect::Postgres)] {
        let Some(running) = peers.start(peer) else { continue };
        match dialect {
            Dialect::QuestDb => send(running.peer.http(), "/write", quick, PATIENCE)?,
            _ => copy(running.peer.postgres(), quick).await?,
        }
        let answers = ask_all(running.peer.postgres(), (running.peer.name(), dialect), quick, results).await?;
        for ((question, expected), found) in QUESTIONS.iter().zip(&expected).zip(&answers) {
            let (Some(expected), Some(found)) = (expected, found) else { continue };
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

/// Asks an engine every question once its rows are there. Returns the rows of the answers; `None` for a question that it
/// is not asked.
async fn ask_all(
    config: &str,
    (engine, dialect): (&'static str, Dialect),
    quick: bool,
    results: &mut Vec<AnalyticResult>,
) -> anyhow::Result<Vec<Option<Vec<Vec<String>>>>> {
    let (client, connection) = connect(config).await?;
    let asking = async move {
        let begin = Instant::now();
        for table in &TABLES {
            let (rows, table) = (table.rows(quick), table.name);
            let sql = format!("SELECT count(*) FROM {table}");
            // The table may not exist yet.
            while !matches!(rows_of(&client, &sql).await, Ok(found) if found == [[rows.to_string()]]) {
                ensure!(begin.elapsed() < PATIENCE, "{engine}: not all {rows} rows of {table} within {PATIENCE:?}");
                tokio::time::sleep(LOOK).await;
            }
        }
        let (mut answers, mut found) = (Vec::new(), Vec::new());
        for question in &QUESTIONS {
            let sql = match dialect {
                Dialect::Strongback => Some(question.own),
                Dialect::QuestDb => question.quest,
                Dialect::Postgres => question.postgres,
            };
            let Some(sql) = sql.map(|sql| question.with_span(sql, quick)) else {
                answers.push(None);
                continue;
            };
            let (mut best, mut answer) = (Duration::MAX, Vec::new());
            for _ in 0..LAPS {
                let begin = Instant::now();
                answer = rows_of(&client, &sql).await.with_context(|| format!("{engine}: {sql}"))?;
                best = best.min(begin.elapsed());
            }
            let rows = TABLES.iter().find(|table| table.name == question.table).map_or(0, |table| table.rows(quick));
            let best_ms = best.as_secs_f64() * 1e3;
            found.push(AnalyticResult { engine, question: question.name, rows, best_ms });
            answers.push(Some(answer));
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
