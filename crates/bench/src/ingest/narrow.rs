//! Narrow rows of line protocol into server processes: one value, two tags, a time, 1,000 streams.
//!
//! The lines are generated in advance. A run is over when every row can be queried; then each stream's count and sum
//! are compared with what was sent. Values are multiples of a quarter below 1,024, so sums are exact in any order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::http::HttpConnection;
use crate::peers::{Peer, PeerRecipes};
use crate::serving::{ServerProcess, ServerProgram};

const STREAMS: usize = 1_000;
/// Number of rows in one HTTP request, and in one write to a TCP connection.
const ROWS_PER_REQUEST: usize = 10_000;
/// Number of connections, each with its own share of the streams.
const CONNECTIONS: usize = 2;
/// Max time for an answer, and for the last row to appear.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two counts.
const LOOK: Duration = Duration::from_millis(20);

/// Result of one server and one protocol.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NarrowResult {
    /// Name of the server.
    pub engine: String,
    /// `http` or `tcp`.
    pub protocol: &'static str,
    /// Durability of an acknowledged row.
    pub durability: String,
    /// Number of rows sent, found and compared.
    pub rows: u64,
    /// Time to the last answer (HTTP) or the last byte written (TCP), in seconds.
    pub sent_s: f64,
    /// Time until the last row could be queried, in seconds.
    pub visible_s: f64,
}

impl NarrowResult {
    /// Returns the rows per second until they could be queried.
    pub(super) fn rows_per_s(&self) -> f64 {
        self.rows as f64 / self.visible_s
    }

    /// Returns the rows per second until they were acknowledged, or written if there is no acknowledgement.
    pub(super) fn sent_per_s(&self) -> f64 {
        self.rows as f64 / self.sent_s
    }
}

/// Lines generated in advance, and the expected result.
struct Lines {
    /// Requests of each connection.
    requests: Vec<Vec<Vec<u8>>>,
    /// Number and sum of each stream's rows.
    expected: Vec<(u64, f64)>,
    rows: u64,
}

impl Lines {
    fn new(measurement: &str, rows: usize, start_ns: i64) -> Lines {
        let mut random = fastrand::Rng::with_seed(9);
        let mut levels: Vec<i64> = (0..STREAMS).map(|_| random.i64(400..3_600)).collect();
        let mut expected = vec![(0, 0.0); STREAMS];
        let mut requests = vec![vec![Vec::new()]; CONNECTIONS];
        let mut in_request = [0usize; CONNECTIONS];
        for row in 0..rows / STREAMS * STREAMS {
            let stream = row % STREAMS;
            levels[stream] = (levels[stream] + random.i64(-3..=3)).clamp(0, 4_095);
            let value = levels[stream] as f64 * 0.25;
            let time_ns = start_ns + (row / STREAMS) as i64 * 1_000_000 + stream as i64;
            let connection = stream % CONNECTIONS;
            if in_request[connection] == ROWS_PER_REQUEST {
                requests[connection].push(Vec::new());
                in_request[connection] = 0;
            }
            in_request[connection] += 1;
            if let Some(request) = requests[connection].last_mut() {
                let (site, sensor) = (stream / 100, stream);
                // Writing to memory cannot fail.
                let _ = writeln!(request, "{measurement},site=s{site},sensor=n{sensor:03} value={value} {time_ns}");
            }
            expected[stream].0 += 1;
            expected[stream].1 += value;
        }
        let rows = expected.iter().map(|(n, _)| n).sum();
        Lines { requests, expected, rows }
    }
}

/// Destination of rows, and how they are counted.
#[derive(Clone, Debug)]
enum Target {
    Http(SocketAddr, &'static str),
    Tcp(SocketAddr),
}

/// Runs Strongback, then each available rival.
///
/// # Errors
/// Strongback failing; a rival that loses rows is an error too, since its figure would be meaningless.
pub(super) fn run(rows: usize, program: &ServerProgram, peers: &PeerRecipes) -> anyhow::Result<Vec<NarrowResult>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut results = Vec::new();
    for protocol in ["http", "tcp"] {
        let dir = tempfile::tempdir().context("temporary folder")?;
        let server = ServerProcess::start(program, dir.path())?;
        let (target, durability) = match protocol {
            "http" => (Target::Http(server.http, "/write"), "synced to disk before the answer"),
            _ => (Target::Tcp(server.ilp), "synced to disk within 50 ms"),
        };
        let rest = Place::Rest(server.http);
        results.push(course(&runtime, ("strongback", protocol, durability), rows, &target, &rest)?);
        server.stop()?;
    }
    if let Some(running) = peers.start(Peer::QuestDb) {
        let sql = Place::Sql(running.peer.postgres().into());
        for protocol in ["http", "tcp"] {
            let target = match protocol {
                "http" => Target::Http(running.peer.http(), "/write"),
                _ => Target::Tcp(running.peer.ilp()),
            };
            let engine = (running.peer.name(), protocol, running.peer.durability());
            results.push(course(&runtime, engine, rows, &target, &sql)?);
        }
    }
    if let Some(running) = peers.start(Peer::InfluxDb) {
        let mut http = HttpConnection::open(running.peer.http(), PATIENCE)?;
        let answer = http.post("/query?q=CREATE%20DATABASE%20bench", b"")?;
        if answer.status != 200 {
            bail!("InfluxDB made no database: {} {}", answer.status, answer.body);
        }
        let target = Target::Http(running.peer.http(), "/write?db=bench");
        let place = Place::Influx(running.peer.http());
        let engine = (running.peer.name(), "http", running.peer.durability());
        results.push(course(&runtime, engine, rows, &target, &place)?);
    }
    Ok(results)
}

/// Writes a fifth of the rows to a separate table first, so that no engine is measured cold; then the rows.
fn course(
    runtime: &tokio::runtime::Runtime,
    engine: (&str, &'static str, &str),
    rows: usize,
    target: &Target,
    place: &Place,
) -> anyhow::Result<NarrowResult> {
    let (_, protocol, _) = engine;
    let mut measured = None;
    for (table, rows) in [(format!("warm_{protocol}"), rows / 5), (format!("narrow_{protocol}"), rows)] {
        let lines = Lines::new(&table, rows, 1_763_653_267_000_000_000);
        measured = Some(measure(runtime, engine, &lines, target, &Counting { place, table })?);
    }
    measured.context("nothing was measured")
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    (engine, protocol, durability): (&str, &'static str, &str),
    lines: &Lines,
    target: &Target,
    counting: &Counting<'_>,
) -> anyhow::Result<NarrowResult> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let senders: Vec<_> = lines
            .requests
            .iter()
            .map(|requests| {
                scope.spawn(move || match target {
                    Target::Http(address, path) => send_http(*address, path, requests),
                    Target::Tcp(address) => send_tcp(*address, requests),
                })
            })
            .collect();
        senders.into_iter().try_for_each(|sender| match sender.join() {
            Ok(sent) => sent,
            Err(_) => bail!("a sender panicked"),
        })
    })
    .with_context(|| format!("{engine} over {protocol}"))?;
    let sent_s = begin.elapsed().as_secs_f64();
    let visible = loop {
        let rows = runtime.block_on(counting.rows()).unwrap_or(0);
        let at = begin.elapsed();
        if rows >= lines.rows {
            break at;
        }
        if at > PATIENCE + Duration::from_secs_f64(sent_s) {
            bail!("{engine} over {protocol}: {rows} of {} rows can be queried", lines.rows);
        }
        std::thread::park_timeout(LOOK);
    };
    let found = runtime.block_on(counting.sums()).with_context(|| format!("{engine}: read back"))?;
    if found != lines.expected {
        let wrong = found.iter().zip(&lines.expected).filter(|(a, b)| a != b).count();
        bail!("{engine} over {protocol}: {wrong} of {STREAMS} streams read back with another count or sum");
    }
    Ok(NarrowResult {
        engine: engine.into(),
        protocol,
        durability: durability.into(),
        rows: lines.rows,
        sent_s,
        visible_s: visible.as_secs_f64(),
    })
}

fn send_http(address: SocketAddr, path: &str, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(address, PATIENCE)?;
    for request in requests {
        let answer = http.post(path, request)?;
        if !(200..300).contains(&answer.status) {
            bail!("refused: {} {}", answer.status, answer.body);
        }
    }
    Ok(())
}

fn send_tcp(address: SocketAddr, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_nodelay(true)?;
    for request in requests {
        socket.write_all(request)?;
    }
    socket.shutdown(Shutdown::Write)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // The server closes the connection when it has read everything.
    let mut rest = [0u8; 64];
    while matches!(socket.read(&mut rest), Ok(n) if n > 0) {}
    Ok(())
}

/// Interface for queries.
enum Place {
    /// Strongback's SQL over HTTP.
    Rest(SocketAddr),
    /// A PostgreSQL wire, by its connection string.
    Sql(String),
    /// HTTP interface of InfluxDB.
    Influx(SocketAddr),
}

/// Query that counts and sums the rows of a table.
struct Counting<'a> {
    place: &'a Place,
    table: String,
}

impl Counting<'_> {
    async fn rows(&self) -> anyhow::Result<u64> {
        let table = &self.table;
        match self.place {
            Place::Rest(address) => {
                let rows = rest(*address, &format!("SELECT count(*) FROM {table}"))?;
                Ok(rows.first().and_then(|r| r.first()).context("no count")?.parse()?)
            }
            Place::Sql(config) => {
                let rows = query(config, &format!("SELECT count(*) FROM {table}")).await?;
                Ok(rows.first().and_then(|r| r.first()).context("no count")?.parse()?)
            }
            Place::Influx(address) => {
                let answer = influx(*address, &format!("SELECT count(value) FROM {table}"))?;
                answer["results"][0]["series"][0]["values"][0][1].as_u64().context("no count")
            }
        }
    }

    /// Returns count and sum of each stream, in their order.
    async fn sums(&self) -> anyhow::Result<Vec<(u64, f64)>> {
        let table = &self.table;
        let mut found = vec![(0, 0.0); STREAMS];
        match self.place {
            Place::Rest(_) | Place::Sql(_) => {
                let sql = format!("SELECT sensor, count(*), sum(value) FROM {table} GROUP BY sensor");
                let rows = match self.place {
                    Place::Sql(config) => query(config, &sql).await?,
                    Place::Rest(address) | Place::Influx(address) => rest(*address, &sql)?,
                };
                for row in rows {
                    let [sensor, count, sum] = row.as_slice() else { bail!("a row of {} columns", row.len()) };
                    *found.get_mut(sensor_number(sensor)?).context("unknown stream")? = (count.parse()?, sum.parse()?);
                }
            }
            Place::Influx(address) => {
                let answer =
                    influx(*address, &format!("SELECT count(value), sum(value) FROM {table} GROUP BY sensor"))?;
                for series in answer["results"][0]["series"].as_array().context("no series")? {
                    let sensor = sensor_number(series["tags"]["sensor"].as_str().unwrap_or_default())?;
                    let values = &series["values"][0];
                    let (count, sum) = (values[1].as_u64(), values[2].as_f64());
                    *found.get_mut(sensor).context("unknown stream")? =
                        (count.context("no count")?, sum.context("no sum")?);
                }
            }
        }
        Ok(found)
    }
}

fn sensor_number(name: &str) -> anyhow::Result<usize> {
    name.strip_prefix('n').and_then(|n| n.parse().ok()).with_context(|| format!("stream {name:?}"))
}

async fn query(config: &str, sql: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let (client, connection) = tokio_postgres::connect(config, NoTls).await?;
    let connection = tokio::spawn(connection);
    let messages = client.simple_query(sql).await;
    drop(client);
    connection.await??;
    Ok(messages?
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|c| row.get(c).unwrap_or_default().to_string()).collect())
            }
            _ => None,
        })
        .collect())
}

/// Runs a query with `POST /api/sql`. Returns each cell as text.
fn rest(address: SocketAddr, sql: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let body = serde_json::json!({ "sql": sql, "limit": 2 * STREAMS }).to_string();
    let answer = HttpConnection::open(address, PATIENCE)?.post("/api/sql", body.as_bytes())?;
    let parsed: serde_json::Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    let rows = parsed["rows"].as_array().with_context(|| answer.body.clone())?;
    let text = |cell: &serde_json::Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_string);
    Ok(rows
        .iter()
        .map(|row| row.as_array().map(|cells| cells.iter().map(text).collect()).unwrap_or_default())
        .collect())
}

/// Runs a query with HTTP/1.0, so that the answer is not chunked.
fn influx(address: SocketAddr, question: &str) -> anyhow::Result<serde_json::Value> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let question = question.replace(' ', "%20");
    write!(socket, "GET /query?db=bench&q={question} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("no body")?.1;
    serde_json::from_str(body).with_context(|| body.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_by_stream_and_counted() {
        let lines = Lines::new("m", 5_000, 1_000_000_000);
        assert_eq!(lines.rows, 5_000);
        assert!(lines.expected.iter().all(|(count, _)| *count == 5));
        let mut rows = 0;
        for (connection, requests) in lines.requests.iter().enumerate() {
            for line in requests.iter().flat_map(|r| std::str::from_utf8(r).unwrap().lines()) {
                let sensor = line.split("sensor=").nth(1).unwrap().split(' ').next().unwrap();
                assert_eq!(sensor_number(sensor).unwrap() % CONNECTIONS, connection);
                rows += 1;
            }
        }
        assert_eq!(rows, 5_000);
    }
}
