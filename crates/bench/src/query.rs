//! `strongback bench query`: the last 500 ms of 8 channels through the PostgreSQL wire, repeatedly on four
//! connections, while the pad's data is being received; and questions over a long history.

mod analytic;
mod questions;
mod tables;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_postgres::config::Host;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls};

use self::analytic::AnalyticResult;
use crate::feeder::Feeder;
use crate::ingest::percentile;
use crate::machine::Machine;
use crate::peers::{Peer, PeerRecipes};
use crate::serving::{ServerProcess, ServerProgram, start_pad_at};
use crate::table::{Table, short};

const CONNECTIONS: usize = 4;
/// Max bytes that a client reads at a time: an answer of 500 rows has 58 kB.
const READ_BYTES: usize = 64 << 10;
/// Max time to wait for the pad's first data.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `strongback bench query`.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryArguments {
    /// Measures five seconds per question instead of twenty, and a history of 2 M rows instead of 28.7 M
    #[arg(long)]
    pub quick: bool,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
    #[command(flatten)]
    peers: PeerRecipes,
}

/// Question: 8 channels of one stream.
struct Question {
    name: &'static str,
    table: &'static str,
    filter: &'static str,
    channels: [&'static str; 8],
    /// Approximate number of rows in a complete answer.
    rows: usize,
}

const QUESTIONS: [Question; 2] = [
    Question {
        name: "25 Hz: 12 rows × 8",
        table: "avionics.sensor_values",
        filter: "acu = '1' AND ",
        channels: [
            "p_lox_tank",
            "p_fuel_tank",
            "p_lox_line",
            "p_fuel_line",
            "t_lox_line",
            "t_turbopump",
            "bus_28v",
            "l_lox",
        ],
        rows: 12,
    },
    Question {
        name: "1 kHz: 500 rows × 8",
        table: "plc.fast",
        filter: "",
        channels: [
            "p_lox_tank",
            "p_fuel_tank",
            "p_purge_01",
            "p_purge_02",
            "p_lox_line_01",
            "p_lox_line_02",
            "p_he_01",
            "acc_01",
        ],
        rows: 500,
    },
];

/// SQL dialect of an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Strongback,
    QuestDb,
    Postgres,
}

impl Question {
    fn sql(&self, dialect: Dialect) -> String {
        let channels = self.channels.join(", ");
        let (time, since) = match dialect {
            Dialect::Strongback => ("time", "now() - INTERVAL '500 milliseconds'"),
            Dialect::QuestDb => ("timestamp", "dateadd('u', -500000, now())"),
            Dialect::Postgres => ("time", "now() - INTERVAL '500 milliseconds'"),
        };
        format!("SELECT {time}, {channels} FROM \"{}\" WHERE {}{time} >= {since}", self.table, self.filter)
    }
}

/// Result of one engine and one question.
#[derive(Clone, Debug, Serialize)]
pub struct QueryResult {
    /// Name of the engine.
    pub engine: String,
    /// Name of the question.
    pub question: &'static str,
    /// Durability of a stored row at that time.
    pub durability: String,
    /// Number of queries answered.
    pub queries: u64,
    /// Number of answers without a row.
    pub empty: u64,
    /// Mean number of rows in an answer.
    pub rows: f64,
    /// Answers per second over all connections.
    pub queries_per_s: f64,
    /// Median time of an answer in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the time of an answer in milliseconds.
    pub p99_ms: f64,
}

#[derive(Serialize)]
struct QueryReport {
    machine: Machine,
    connections: usize,
    results: Vec<QueryResult>,
    /// Questions over a long history.
    analytic: Vec<AnalyticResult>,
}

/// Runs the benchmark and prints its table.
///
/// # Errors
/// Strongback failing, or an engine whose answers are empty.
pub fn run(arguments: &QueryArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let machine = Machine::look(dir.path())?;
    println!("{}\n", machine.line());
    let measured = Duration::from_secs(if arguments.quick { 5 } else { 20 });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut results = Vec::new();
    {
        let server = ServerProcess::start(&arguments.program, dir.path())?;
        let pad = server.start_pad(dir.path())?;
        let config = format!("host=127.0.0.1 port={} user=bench dbname=strongback", server.pg.port());
        let durability = "recording, commits synced each 50 ms";
        let engine = ("strongback", Dialect::Strongback, durability);
        runtime.block_on(ask_all(&config, engine, measured, &mut results))?;
        pad.stop()?;
        server.stop()?;
    }
    if let Some(running) = arguments.peers.start(Peer::QuestDb) {
        let ilp: SocketAddr = running.peer.ilp();
        let pad = start_pad_at(&arguments.program, dir.path(), ilp)?;
        let engine = (running.peer.name(), Dialect::QuestDb, running.peer.durability());
        let asked = runtime.block_on(ask_all(running.peer.postgres(), engine, measured, &mut results));
        leave_out(running.peer, asked);
        pad.stop()?;
    }
    if let Some(running) = arguments.peers.start(Peer::Postgres) {
        let feeder = Feeder::start(running.peer.postgres())?;
        let engine = (running.peer.name(), Dialect::Postgres, running.peer.durability());
        let asked = runtime.block_on(ask_all(running.peer.postgres(), engine, measured, &mut results));
        println!("{} was fed by COPY, a transaction each 50 ms", running.peer.name());
        feeder.stop()?;
        leave_out(running.peer, asked);
    }
    let mut analytic = Vec::new();
    runtime.block_on(analytic::run(arguments.quick, &arguments.program, &arguments.peers, &mut analytic))?;
    println!(
        "\nLast 500 ms of 8 channels, {CONNECTIONS} connections, prepared, while the pad's 68,500 points/s come in\n"
    );
    let mut table = Table::new(["engine", "question", "queries/s", "p50 ms", "p99 ms", "rows", "empty"]);
    for r in &results {
        table.row([
            r.engine.clone(),
            r.question.into(),
            short(r.queries_per_s),
            format!("{:.2}", r.p50_ms),
            format!("{:.2}", r.p99_ms),
            format!("{:.1}", r.rows),
            r.empty.to_string(),
        ]);
    }
    table.print();
    println!();
    for (i, r) in results.iter().enumerate() {
        if i == 0 || results[i - 1].engine != r.engine {
            println!("{}: {}", r.engine, r.durability);
        }
    }
    println!(
        "\nOver a history: {} rows of one channel, 185 tagged streams, 8 channels at 1 kHz, 100 hosts; best of three\n",
        analytic.first().map_or(0, |r| r.rows)
    );
    analytic::print(&analytic);
    println!();
    if let Some(r) = results.iter().find(|r| r.engine == "strongback" && r.empty > 0) {
        bail!("{} of {} answers to {:?} were empty", r.empty, r.queries, r.question);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&QueryReport { machine, connections: CONNECTIONS, results, analytic })?);
    }
    Ok(())
}

fn leave_out(peer: Peer, asked: anyhow::Result<()>) {
    if let Err(error) = asked {
        println!("{} left out: {error:#}", peer.name());
    }
}

async fn ask_all(
    config: &str,
    (engine, dialect, durability): (&str, Dialect, &str),
    measured: Duration,
    results: &mut Vec<QueryResult>,
) -> anyhow::Result<()> {
    for question in &QUESTIONS {
        let sql = question.sql(dialect);
        wait_for_data(config, &sql, question.rows).await.with_context(|| sql.clone())?;
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (config, sql) = (config.to_string(), sql.clone());
            tasks.spawn(async move { ask(&config, &sql, begin + measured).await });
        }
        let (mut times_ms, mut empty, mut rows) = (Vec::new(), 0, 0);
        while let Some(done) = tasks.join_next().await {
            let (times, none, found) = done??;
            times_ms.extend(times);
            empty += none;
            rows += found;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let queries = times_ms.len() as u64;
        results.push(QueryResult {
            engine: engine.into(),
            question: question.name,
            durability: durability.into(),
            queries,
            empty,
            rows: rows as f64 / queries.max(1) as f64,
            queries_per_s: queries as f64 / seconds,
            p50_ms: percentile(&mut times_ms, 0.5),
            p99_ms: percentile(&mut times_ms, 0.99),
        });
    }
    Ok(())
}

/// Waits until an answer has nine tenths of its rows: the pad has then been sending for half a second.
async fn wait_for_data(config: &str, sql: &str, rows: usize) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let (client, connection) = connect(config).await?;
        let asking = async move {
            // The table may not exist yet.
            client.query(sql, &[]).await
        };
        let (answer, connected) = tokio::join!(asking, connection);
        connected?;
        match answer {
            Ok(found) if found.len() * 10 >= rows * 9 => return Ok(()),
            Ok(found) if begin.elapsed() > PATIENCE => bail!("{} of {rows} rows within {PATIENCE:?}", found.len()),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Queries until the time is over. Returns the time of each answer in milliseconds, and the numbers of empty answers
/// and of rows. Every value is decoded, and none may be NULL.
async fn ask(config: &str, sql: &str, until: Instant) -> anyhow::Result<(Vec<f64>, u64, u64)> {
    let (client, connection) = connect(config).await?;
    let asking = async move {
        let statement = client.prepare(sql).await?;
        let (mut times_ms, mut empty, mut rows) = (Vec::new(), 0, 0);
        let (mut newest, mut sum) = (SystemTime::UNIX_EPOCH, 0.0);
        while Instant::now() < until {
            let begin = Instant::now();
            let answer = client.query(&statement, &[]).await?;
            for row in &answer {
                newest = newest.max(row.try_get(0)?);
                for column in 1..row.len() {
                    sum += row.try_get::<_, f64>(column)?;
                }
            }
            times_ms.push(begin.elapsed().as_secs_f64() * 1e3);
            empty += u64::from(answer.is_empty());
            rows += answer.len() as u64;
        }
        std::hint::black_box((newest, sum));
        anyhow::Ok((times_ms, empty, rows))
    };
    // Both in one task, so that an answer goes from the socket to its reader without switching threads.
    let (asked, connected) = tokio::join!(asking, connection);
    connected?;
    asked
}

/// Opens a connection with a read buffer large enough for an answer.
async fn connect(config: &str) -> anyhow::Result<(Client, Connection<BufReader<TcpStream>, NoTlsStream>)> {
    let config: Config = config.parse().context("address of the engine")?;
    let ([Host::Tcp(host)], [port]) = (config.get_hosts(), config.get_ports()) else {
        bail!("the engine's address has not one host and one port");
    };
    let socket = TcpStream::connect((host.as_str(), *port)).await.context("connect")?;
    socket.set_nodelay(true)?;
    config.connect_raw(BufReader::with_capacity(READ_BYTES, socket), NoTls).await.context("connect")
}
