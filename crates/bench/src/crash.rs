//! `strongback bench crash`: kills the server with SIGKILL while it writes, restarts it, and compares every row.
//!
//! A round: the server starts on the folder of the last crash; its stored data is compared with the journal of what
//! it acknowledged ([`stored`]); a live subscriber connects and its snapshot must end at the stored row
//! ([`subscriber`]); four connections write line protocol over HTTP ([`writer`]); the server is killed a random few
//! milliseconds after an acknowledgement. The request in flight is then either sent again, as a client with retries
//! does, or given up; both must leave each row stored at most once, and each acknowledged row stored exactly once.

mod journal;
mod stored;
mod subscriber;
mod writer;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use self::journal::Journal;
use self::stored::Stored;
use self::subscriber::{Agreement, Sighting, Subscriber};
use self::writer::{Acknowledgements, Writer};
use crate::clock::now_ns;
use crate::http::HttpConnection;
use crate::serving::{ServerProgram, last_lines};
use crate::work_folder::WorkFolder;

/// Max time for a started server to answer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of rounds between two comparisons of every row from the first.
const FULL_COMPARISON_ROUNDS: u32 = 25;

/// Options of `strongback bench crash`.
#[derive(Clone, Debug, clap::Args)]
pub struct CrashArguments {
    /// Number of times the server is killed.
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Number of writing connections.
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Number of rows in one request.
    #[arg(long, default_value_t = 2_000)]
    pub rows_per_request: u64,
    /// Seed of the kill times; a run prints the seed it used.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Folder to work in, kept afterwards [default: a temporary one].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Server to kill.
    #[command(flatten)]
    pub server: ServerProgram,
    /// Prints the results as one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
}

/// Result of a run. Any disagreement ends the run with an error instead.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrashReport {
    /// Number of kills.
    pub rounds: u32,
    /// Seed of the kill times.
    pub seed: u64,
    /// Number of kills at most 20 ms after an acknowledgement.
    pub kills_within_20_ms: u32,
    /// Number of rows acknowledged.
    pub rows_acknowledged: u64,
    /// Number of rows stored at the end: those acknowledged, and parts of requests in flight.
    pub rows_stored: u64,
    /// Number of comparisons of a stored row with its expected values.
    pub rows_compared: u64,
    /// Acknowledged rows per second while writing.
    pub rows_per_s: f64,
    /// Number of requests sent again after a crash.
    pub requests_retried: u32,
    /// Median time from start to the first healthy answer, in milliseconds.
    pub restart_ms_p50: f64,
    /// Max of these times.
    pub restart_ms_max: f64,
    /// Number of live windows below the committed position, each equal to the store.
    pub final_windows: u64,
    /// Number of live windows above it that the store kept, each equal to the store.
    pub kept_windows: u64,
    /// Number of live windows above it that were lost with their epoch.
    pub void_windows: u64,
}

/// Runs the rounds and prints their results.
pub fn run(arguments: &CrashArguments) -> anyhow::Result<CrashReport> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("kill -9, {} rounds, seed {seed}", arguments.rounds);
    let mut rounds = Rounds {
        arguments,
        runtime: &runtime,
        random: fastrand::Rng::with_seed(seed),
        server: Server::of(arguments, dir)?,
        base_ns: now_ns(),
        journals: vec![Journal::default(); arguments.connections],
        compared_to: vec![0; arguments.connections],
        last_sighting: None,
        restarts_ms: Vec::new(),
        writing: Duration::ZERO,
        report: CrashReport { rounds: arguments.rounds, seed, ..CrashReport::default() },
    };
    rounds.run().with_context(|| format!("seed {seed}; the server's last words: {}", rounds.server.last_words()))?;
    let report = rounds.report;
    print_report(&report);
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(report)
}

fn print_report(report: &CrashReport) {
    println!(
        "{} rows acknowledged at {:.0} rows/s, {} stored, {} comparisons, none wrong",
        report.rows_acknowledged, report.rows_per_s, report.rows_stored, report.rows_compared
    );
    println!(
        "{} of {} kills within 20 ms of an acknowledgement; {} requests sent again; restart {:.0} ms median, {:.0} ms longest",
        report.kills_within_20_ms, report.rounds, report.requests_retried, report.restart_ms_p50, report.restart_ms_max
    );
    if report.kills_within_20_ms * 2 < report.rounds {
        println!("this machine is too busy to kill in time: a run that proves something has more kills close behind");
    }
    println!(
        "live windows: {} final and {} provisional ones equal the store, {} went with their epoch",
        report.final_windows, report.kept_windows, report.void_windows
    );
}

/// State across the rounds.
struct Rounds<'a> {
    arguments: &'a CrashArguments,
    runtime: &'a tokio::runtime::Runtime,
    random: fastrand::Rng,
    server: Server,
    base_ns: i64,
    journals: Vec<Journal>,
    /// For each connection, the number below which rows were already compared one by one.
    compared_to: Vec<u64>,
    last_sighting: Option<Sighting>,
    restarts_ms: Vec<f64>,
    writing: Duration,
    report: CrashReport,
}

impl Rounds<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        for round in 0..self.arguments.rounds {
            self.round(round).with_context(|| format!("round {}", round + 1))?;
        }
        let running = self.start()?;
        self.compare(true)?;
        drop(self.subscribe()?);
        running.stop()?;
        self.server.verify()?;
        self.restarts_ms.sort_by(f64::total_cmp);
        let report = &mut self.report;
        report.restart_ms_p50 = self.restarts_ms[self.restarts_ms.len() / 2];
        report.restart_ms_max = self.restarts_ms[self.restarts_ms.len() - 1];
        report.rows_acknowledged = self.journals.iter().map(|j| j.acknowledged).sum();
        report.rows_stored = self.journals.iter().map(|j| j.stored.len()).sum();
        report.rows_per_s = report.rows_acknowledged as f64 / self.writing.as_secs_f64();
        Ok(())
    }

    fn round(&mut self, round: u32) -> anyhow::Result<()> {
        let mut running = self.start()?;
        if round > 0 {
            self.compare(round.is_multiple_of(FULL_COMPARISON_ROUNDS))?;
        }
        let subscriber = self.subscribe()?;
        for journal in &mut self.journals {
            if journal.in_flight.is_some() {
                if self.random.bool() {
                    self.report.requests_retried += 1;
                } else {
                    journal.in_flight = None;
                }
            }
        }
        let before: u64 = self.journals.iter().map(|j| j.acknowledged).sum();
        let work = Duration::from_millis(self.random.u64(200..700));
        // four of five kills aim at the moment after an acknowledgement, the fifth at any moment
        let aimed = (self.random.u32(0..5) > 0).then(|| Duration::from_micros(self.random.u64(0..12_000)));
        let acknowledgements = Acknowledgements::default();
        let killed = AtomicBool::new(false);
        let address = self.server.http;
        let follower = self.runtime.spawn(subscriber.follow());
        let begin = Instant::now();
        let since_acknowledgement = std::thread::scope(|scope| -> anyhow::Result<Option<Duration>> {
            let writers: Vec<_> = self
                .journals
                .iter_mut()
                .enumerate()
                .map(|(connection, journal)| {
                    let writer = Writer {
                        connection,
                        address,
                        rows_per_request: self.arguments.rows_per_request,
                        base_ns: self.base_ns,
                        acknowledgements: &acknowledgements,
                        killed: &killed,
                    };
                    scope.spawn(move || writer.run(journal))
                })
                .collect();
            acknowledgements.wait_after(begin, START_TIMEOUT);
            let rest = work.saturating_sub(begin.elapsed());
            std::thread::park_timeout(rest);
            if let Some(delay) = aimed
                && let Some(at) = acknowledgements.wait_after(Instant::now(), START_TIMEOUT)
            {
                std::thread::park_timeout((at + delay).saturating_duration_since(Instant::now()));
            }
            killed.store(true, Ordering::SeqCst);
            let since = acknowledgements.last().map(|at| at.elapsed());
            running.kill()?;
            for writer in writers {
                writer.join().expect("a writer does not panic")?;
            }
            Ok(since)
        })?;
        let took = begin.elapsed();
        self.writing += took;
        let acknowledged = self.journals.iter().map(|j| j.acknowledged).sum::<u64>() - before;
        if acknowledged == 0 {
            bail!("nothing was acknowledged");
        }
        self.report.kills_within_20_ms +=
            u32::from(since_acknowledgement.is_some_and(|d| d <= Duration::from_millis(20)));
        self.last_sighting = Some(self.runtime.block_on(follower)?.context("live subscriber")?);
        println!(
            "round {:>3}: {acknowledged:>8} rows acknowledged in {:>4} ms, killed {} µs after the last acknowledgement",
            round + 1,
            took.as_millis(),
            since_acknowledgement.map_or(0, |d| d.as_micros())
        );
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<Running> {
        let begin = Instant::now();
        let running = self.server.start()?;
        self.restarts_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        Ok(running)
    }

    /// Compares the store with the journals, and then with what the last subscriber saw.
    fn compare(&mut self, all: bool) -> anyhow::Result<()> {
        let stored = self.runtime.block_on(Stored::connect(self.server.pg, self.base_ns))?;
        for (connection, journal) in self.journals.iter_mut().enumerate() {
            let from = if all { 0 } else { self.compared_to[connection] };
            let known = journal.stored.end();
            self.report.rows_compared += self.runtime.block_on(stored.compare(connection, journal, from))?;
            self.compared_to[connection] = known;
            let Some(seen) = self.last_sighting.as_ref().and_then(|s| s.streams.get(&connection)) else { continue };
            let Agreement { final_windows, kept_windows, void_windows } =
                subscriber::agree(connection, seen, &journal.stored)?;
            self.report.final_windows += final_windows;
            self.report.kept_windows += kept_windows;
            self.report.void_windows += void_windows;
        }
        Ok(())
    }

    /// Connects a subscriber to the recovered server and checks for a new epoch, the same origin, and a snapshot that
    /// ends where the store does.
    fn subscribe(&mut self) -> anyhow::Result<Subscriber> {
        let subscriber = self.runtime.block_on(Subscriber::connect(self.server.http)).context("live subscriber")?;
        let now = subscriber.snapshot();
        if let Some(last) = &self.last_sighting {
            if now.epoch <= last.epoch {
                bail!(
                    "epoch {} after epoch {}: a subscriber cannot tell that the server was killed",
                    now.epoch,
                    last.epoch
                );
            }
            if now.origin != last.origin {
                bail!("origin {} became {}", last.origin, now.origin);
            }
            for (connection, journal) in self.journals.iter().enumerate() {
                let row = now.streams.get(&connection).and_then(|seen| seen.snapshot_row);
                if row != Some(journal.stored.len()) {
                    bail!(
                        "connection {connection}: the snapshot ends at row {row:?}, {} are stored",
                        journal.stored.len()
                    );
                }
            }
        }
        Ok(subscriber)
    }
}

/// Server that is repeatedly started at the same addresses on the same folder.
struct Server {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    http: SocketAddr,
    ilp: SocketAddr,
    pg: SocketAddr,
}

impl Server {
    fn of(arguments: &CrashArguments, dir: &Path) -> anyhow::Result<Self> {
        let program = arguments.server.path()?;
        // hold all of them, so that they differ
        let ports = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let [http, ilp, pg] = ports.map(|port| port.and_then(|p| p.local_addr()));
        Ok(Server { program, data: dir.join("store"), log: dir.join("server.log"), http: http?, ilp: ilp?, pg: pg? })
    }

    /// Starts the server and waits until it is healthy.
    fn start(&self) -> anyhow::Result<Running> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(["serve", "--data"])
            .arg(&self.data)
            .args(["--http", &self.http.to_string(), "--ilp", &self.ilp.to_string(), "--pg", &self.pg.to_string()])
            .args(["--flight", "off"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        let mut running = Running { child };
        let begin = Instant::now();
        loop {
            let healthy = HttpConnection::open(self.http, START_TIMEOUT)
                .and_then(|mut http| http.get("/api/health"))
                .is_ok_and(|answer| answer.status == 200);
            if healthy {
                return Ok(running);
            }
            if let Some(status) = running.child.try_wait()? {
                bail!("the server ended at its start with {status}");
            }
            if begin.elapsed() > START_TIMEOUT {
                bail!("the server was not healthy within {START_TIMEOUT:?}");
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Runs `store verify` on the data that is left.
    fn verify(&self) -> anyhow::Result<()> {
        let out = Command::new(&self.program).args(["store", "verify"]).arg(&self.data).output()?;
        if !out.status.success() {
            bail!(
                "store verify: {}\n{}{}",
                out.status,
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr)
            );
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        last_lines(&self.log, 20)
    }
}

/// Running server; killed if dropped.
struct Running {
    child: Child,
}

impl Running {
    /// Kills the server with SIGKILL.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("SIGKILL")?;
        self.child.wait().context("the killed server")?;
        Ok(())
    }

    /// Stops the server with SIGTERM, which must end it with code 0.
    fn stop(mut self) -> anyhow::Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !status.success() {
            bail!("kill -TERM: {status}");
        }
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended with {status} after SIGTERM");
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // a process that cannot be killed has already ended
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
