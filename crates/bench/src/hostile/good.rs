//! Well-behaved clients: each sends a small request every 50 ms, and must be answered.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio_postgres::NoTls;

use super::target::Target;
use crate::http::HttpConnection;

/// Time between two requests.
const PERIOD: Duration = Duration::from_millis(50);
/// Max time for an answer; exceeding it is a failure.
const PATIENCE: Duration = Duration::from_secs(5);
/// Query of the SQL clients.
const QUESTION: &str = "select count(*) from m where x < 100";

/// Kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// `GET /ping`.
    Ping,
    /// `POST /api/sql`.
    Sql,
    /// The PostgreSQL wire, with a new connection each time.
    Wire,
}

/// Answers to a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// Time of each answer.
    pub(super) waits: Vec<Duration>,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Ping, Way::Sql, Way::Wire];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Ping => "/ping",
            Way::Sql => "/api/sql",
            Way::Wire => "PostgreSQL wire",
        }
    }

    fn ask(self, target: &Target) -> anyhow::Result<()> {
        match self {
            Way::Ping => {
                let answer = HttpConnection::open(target.http, PATIENCE)?.get("/ping")?;
                ensure!(answer.status < 300, "{} {}", answer.status, answer.body);
            }
            Way::Sql => {
                let row = HttpConnection::open(target.http, PATIENCE)?.sql_row(QUESTION)?;
                ensure!(row == [100], "{row:?} of 100 rows");
            }
            Way::Wire => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async { tokio::time::timeout(PATIENCE, wire(target)).await.context("no answer")? })?;
            }
        }
        Ok(())
    }
}

async fn wire(target: &Target) -> anyhow::Result<()> {
    let config = format!("host=127.0.0.1 port={} user=good dbname=strongback", target.pg.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    let connection = tokio::spawn(connection);
    let row = client.query_one(QUESTION, &[]).await?;
    ensure!(row.get::<_, i64>(0) == 100, "{} of 100 rows", row.get::<_, i64>(0));
    drop(client);
    Ok(connection.await??)
}

/// Sends requests until the time is over.
pub(super) fn ask(target: &Target, way: Way) -> Answers {
    let mut answers = Answers::default();
    while !target.is_over() {
        let begin = Instant::now();
        let answer = way.ask(target);
        let wait = begin.elapsed();
        answers.waits.push(wait);
        match answer {
            _ if target.is_over() => {}
            Err(error) => target.fail(&format!("{} after {wait:?}: {error:#}", way.name())),
            Ok(()) if wait > PATIENCE => target.fail(&format!("{} took {wait:?}", way.name())),
            Ok(()) => {}
        }
        std::thread::park_timeout(PERIOD.saturating_sub(begin.elapsed()));
    }
    answers
}
