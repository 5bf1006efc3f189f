//! `strongback bench hostile`: clients that try to crash the server, exhaust its memory or starve others, while
//! well-behaved ones must be answered at all times.
//!
//! ```text
//!  kinds of hostile clients, each strike made from its own seed ──┐
//!  well-behaved clients: /ping, SQL over HTTP, SQL over the wire ─┼─> server
//!  witness: writes, and watches for its updates ──────────────────┤
//!  pad at 18,500 points/s, and screens that receive each frame ────┤
//!  watch: resident memory, and whether the process is alive ──────┘
//! ```
//!
//! To add a kind: a variant of [`Kind`], and a function that makes one strike from a seed.

mod audience;
mod connections;
mod good;
mod grammar;
mod http;
mod lines;
mod postgres;
mod socket;
mod sql;
mod target;
mod websocket;
mod witness;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;

use self::target::Target;
use crate::http::HttpConnection;
use crate::ingest::percentile;
use crate::live::client::Seen;
use crate::machine::Machine;
use crate::serving::{Ports, ServerProcess, ServerProgram, Usage, wait_for_channels};
use crate::table::Table;
use crate::work_folder::WorkFolder;

/// Interval at which the server's memory is checked.
const LOOK: Duration = Duration::from_millis(10);
/// Max time for one request during setup.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of frames in the table `m`.
const FRAMES: usize = 20_000;

/// Options of `bench hostile`.
#[derive(Clone, Debug, clap::Args)]
pub struct HostileArguments {
    /// Duration of the attack, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub duration_s: u64,
    /// Runs for fifteen seconds
    #[arg(long)]
    pub quick: bool,
    /// Seed of the first strike, incremented for each further one
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Max number of strikes of each kind; 1 repeats the strike of a seed alone
    #[arg(long, value_name = "COUNT")]
    pub strikes: Option<u64>,
    /// Kinds of clients [default: all]
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<Kind>,
    /// Max resident memory of the server, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024.0)]
    pub rss_mib: f64,
    /// Max time of 99 of 100 answers to /ping, each over a new connection, in ms
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub ping_p99_ms: f64,
    /// Max time from the stamp of a pad frame to its update on a screen, for 99 of 100, in ms
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    pub live_p99_ms: f64,
    /// Max time from a write, over a new connection and until it is durable, to its update, for 99 of 100, in ms
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    pub write_p99_ms: f64,
    /// Number of screens that receive each frame of the pad
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub screens: usize,
    /// Folder to work in, kept afterwards [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

/// Kind of hostile client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Statements at and beyond the limits, over HTTP and over the wire, with cancels
    Sql,
    /// Almost valid requests, bodies that never end, unread answers
    Http,
    /// Almost valid frames, floods, long histories and playbacks that are not read
    Websocket,
    /// Messages of the PostgreSQL wire before and after the login
    Postgres,
    /// Line protocol over TCP that never ends, is forged, or is almost valid
    Lines,
    /// Thousands of connections that begin and then stall
    Connections,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Sql, Kind::Http, Kind::Websocket, Kind::Postgres, Kind::Lines, Kind::Connections];

    /// Returns the number of clients that strike at the same time.
    fn clients(self) -> u64 {
        match self {
            Kind::Sql => 6,
            Kind::Http | Kind::Websocket | Kind::Postgres => 3,
            Kind::Lines | Kind::Connections => 2,
        }
    }

    /// Makes one strike.
    fn strike(self, target: &Target, seed: u64) {
        match self {
            Kind::Sql => sql::strike(target, seed),
            Kind::Http => http::strike(target, seed),
            Kind::Websocket => websocket::strike(target, seed),
            Kind::Postgres => postgres::strike(target, seed),
            Kind::Lines => lines::strike(target, seed),
            Kind::Connections => connections::strike(target, seed),
        }
    }
}

/// Event, with the strikes running at that time.
#[derive(Clone, Debug, Serialize)]
pub struct HostileMoment {
    /// Seconds since the first strike.
    pub at_s: f64,
    /// Description of the event.
    pub what: String,
    /// Kind, seed and beginning of each running strike.
    pub under_way: Vec<String>,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct HostileResult {
    machine: Machine,
    duration_s: f64,
    seed: u64,
    /// Number of strikes by kind.
    pub strikes: Vec<(Kind, u64)>,
    /// For each kind of well-behaved client: number of requests, 99th percentile and max of the time to an answer, in
    /// ms.
    pub answered: Vec<(String, u64, f64, f64)>,
    /// Resources that the server used.
    pub usage: Usage,
    /// Moment of its highest memory use.
    pub peak: HostileMoment,
    /// Slowest live updates, with the strikes running at that time.
    pub slowest: Vec<HostileMoment>,
    /// Failures; empty if there are none.
    pub failures: Vec<HostileMoment>,
}

/// Attacks a server.
///
/// # Errors
/// If the server cannot be started, or anything failed; the message names the seeds.
pub fn run(arguments: &HostileArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let result = strike(arguments, dir)?;
    print(&result);
    if arguments.json {
        println!("{}", serde_json::to_string(&result)?);
    }
    if let Some(failure) = result.failures.first() {
        bail!(
            "{} failures, the first after {:.1} s: {}; under way were {}",
            result.failures.len(),
            failure.at_s,
            failure.what,
            failure.under_way.join("; ")
        );
    }
    Ok(())
}

fn strike(arguments: &HostileArguments, dir: &Path) -> anyhow::Result<HostileResult> {
    let duration = Duration::from_secs(if arguments.quick { 15 } else { arguments.duration_s });
    let kinds = if arguments.only.is_empty() { Kind::ALL.to_vec() } else { arguments.only.clone() };
    let [ports] = Ports::reserve()?;
    let server = ServerProcess::start_at(&arguments.program, dir, &ports, &strongback_sim::pad_config_at(ports.fti))?;
    fill(&server)?;
    let pad = server.start_pad_with(dir, "--no-fast")?;
    wait_for_channels(server.http)?;
    let target = Target::new(&server, Instant::now() + duration);
    let counts: Vec<AtomicU64> = kinds.iter().map(|_| AtomicU64::new(0)).collect();
    let most = arguments.strikes.unwrap_or(u64::MAX);
    println!("clients strike for {duration:?} from seed {}", arguments.seed);
    let (answered, witnessed, mut audience, (usage, peak)) = std::thread::scope(|scope| {
        let (target, server) = (&target, &server);
        let (opened, all_open) = std::sync::mpsc::channel();
        let audience = scope.spawn(move || audience::watch(server, target, arguments.screens, opened));
        // Nothing is sent: the channel closes when the screens are open, or failed to open.
        let _ = all_open.recv();
        for (kind, count) in kinds.iter().zip(&counts) {
            for _ in 0..kind.clients() {
                scope.spawn(move || {
                    while !target.is_over() {
                        let number = count.fetch_add(1, Ordering::Relaxed);
                        if number >= most {
                            count.fetch_sub(1, Ordering::Relaxed);
                            return;
                        }
                        kind.strike(target, arguments.seed.wrapping_add(number));
                    }
                });
            }
        }
        let good = good::Way::ALL.map(|way| scope.spawn(move || good::ask(target, way)));
        let witness = scope.spawn(move || witness::watch(target));
        let usage = watch(server, target, arguments.rss_mib);
        let answered = good.map(|client| client.join().unwrap_or_default());
        (answered, witness.join().unwrap_or_default(), audience.join().unwrap_or_default(), usage)
    });
    let age_ms = |share, seen: &mut Seen| if seen.windows > 0 { percentile(&mut seen.fresh_ms, share) } else { 0.0 };
    let (p99_ms, longest_ms) = (age_ms(0.99, &mut audience), age_ms(1.0, &mut audience));
    judge(arguments, &target, &answered, &witnessed, p99_ms);
    let sent = pad.stop().and_then(|report| audience::check(&server, &report));
    if let Err(error) = sent {
        target.fail(&format!("the pad: {error:#}"));
    }
    if let Err(error) = server.stop() {
        target.fail(&format!("SIGTERM: {error:#}"));
    }
    Ok(HostileResult {
        machine: Machine::look(dir)?,
        duration_s: target.elapsed().as_secs_f64(),
        seed: arguments.seed,
        strikes: kinds.into_iter().zip(counts.iter().map(|count| count.load(Ordering::Relaxed))).collect(),
        answered: good::Way::ALL
            .iter()
            .zip(&answered)
            .map(|(way, answers)| (way.name(), answers.waits.as_slice()))
            .chain([("write to live update", witnessed.waits.as_slice())])
            .map(|(name, waits)| {
                let longest = waits.iter().max().copied().unwrap_or_default();
                (name.to_owned(), waits.len() as u64, ms(witness::p99(waits)), ms(longest))
            })
            .chain([("frame to screen".to_owned(), audience.windows, p99_ms, longest_ms)])
            .collect(),
        usage,
        peak,
        slowest: target.slowest(),
        failures: target.into_failures(),
    })
}

/// Records a failure if a well-behaved client waited too long, or if acknowledged rows are missing.
fn judge(
    arguments: &HostileArguments,
    target: &Target,
    answered: &[good::Answers],
    witnessed: &witness::Witnessed,
    screen_p99_ms: f64,
) {
    if let Err(error) = witnessed.check(target) {
        target.fail(&format!("{error:#}"));
    }
    let ping = good::Way::ALL.iter().zip(answered).find(|(way, _)| matches!(way, good::Way::Ping));
    let ping = ping.map(|(_, answers)| witness::p99(&answers.waits)).unwrap_or_default();
    for (what, p99_ms, most_ms) in [
        ("/ping", ms(ping), arguments.ping_p99_ms),
        ("a live update of a write", ms(witnessed.p99()), arguments.write_p99_ms),
        ("a screen of the pad", screen_p99_ms, arguments.live_p99_ms),
    ] {
        if p99_ms > most_ms {
            target.fail(&format!("{what} took {p99_ms:.1} ms at p99"));
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creates a table for queries: `m`, with numbers, text, and two tags.
fn fill(server: &ServerProcess) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(server.http, PATIENCE)?;
    for part in 0..FRAMES / 1_000 {
        let lines: String = (part * 1_000..(part + 1) * 1_000)
            .map(|n| {
                let (rig, time_ns) = (["A", "B"][n % 2], 1_795_000_000_000_000_000 + n as u64 * 1_000_000);
                format!("m,rig={rig} x={n}i,y={}.5,s=\"text {}\" {time_ns}\n", n % 100, n % 1_000)
            })
            .collect();
        let answer = http.post("/write", lines.as_bytes())?;
        if answer.status != 204 {
            bail!("/write: {} {}", answer.status, answer.body);
        }
    }
    Ok(())
}

/// Monitors the server until the time is over. Returns its resource use, and the moment of its highest memory use.
fn watch(server: &ServerProcess, target: &Target, rss_mib: f64) -> (Usage, HostileMoment) {
    let mut usage = server.usage();
    let mut most = 0.0;
    let mut peak = target.moment("before the first strike");
    let mut read_bytes = 0;
    while !target.is_over() {
        for panic in server.panics(&mut read_bytes) {
            target.fail(&format!("the server panicked: {panic}"));
        }
        let now = server.usage();
        if now.rss_mib == 0.0 {
            target.end(&format!("the server has gone: {}", server.last_words()));
        } else {
            usage = now;
            if now.rss_mib > most {
                most = now.rss_mib;
                peak = target.moment(&format!("the server holds {most:.0} MiB"));
            }
            if now.rss_mib > rss_mib {
                target.end(&format!("the server holds {:.0} MiB", now.rss_mib));
            }
        }
        std::thread::park_timeout(LOOK);
    }
    (usage, peak)
}

fn print(result: &HostileResult) {
    println!("{}", result.machine.line());
    let mut table = Table::new(["clients", "requests", "p99", "longest wait"]);
    for (kind, strikes) in &result.strikes {
        table.row([format!("hostile: {kind:?}"), strikes.to_string(), String::new(), String::new()]);
    }
    for (way, count, p99_ms, longest_ms) in &result.answered {
        let (p99, longest) = (format!("{p99_ms:.1} ms"), format!("{longest_ms:.1} ms"));
        table.row([format!("well-behaved: {way}"), count.to_string(), p99, longest]);
    }
    table.print();
    for failure in &result.failures {
        println!("after {:.1} s: {}", failure.at_s, failure.what);
    }
    println!("the server held {:.0} MiB at most; {} failures", result.usage.rss_mib_max, result.failures.len());
}
