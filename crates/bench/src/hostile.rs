//! `strongback bench hostile`: clients that try to end the server, to fill its memory or to keep others out, while
//! well-behaved ones must be answered all the time.
//!
//! ```text
//!  kinds of hostile clients, each strike made from its own seed ──┐
//!  well-behaved clients: /ping, SQL over HTTP, SQL over the wire ─┼─> server
//!  witness: writes, and watches for its updates ──────────────────┤
//!  pad at 18,500 points/s, and screens that are told of each frame ┤
//!  watch: resident memory, and whether the process is there ──────┘
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

/// Between two looks at the memory of the server.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time for one request of setting up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames that the table `m` has.
const FRAMES: usize = 20_000;

/// Options of `bench hostile`.
#[derive(Clone, Debug, clap::Args)]
pub struct HostileArguments {
    /// How long the clients strike, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub duration_s: u64,
    /// Fifteen seconds
    #[arg(long)]
    pub quick: bool,
    /// Seed of the first strike; each further one has the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Most strikes of each kind: 1 repeats the strike of a seed alone
    #[arg(long, value_name = "COUNT")]
    pub strikes: Option<u64>,
    /// Kinds of clients [default: all]
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<Kind>,
    /// Most resident memory of the server, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024.0)]
    pub rss_mib: f64,
    /// Most time that 99 of 100 answers to /ping may take, with a new connection each, in ms
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub ping_p99_ms: f64,
    /// Most time from the stamp of a frame of the pad to its update on a screen, of 99 of 100, in ms
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    pub live_p99_ms: f64,
    /// Most time from a write, with a new connection each and until it is durable, to its update, of 99 of 100, in ms
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    pub write_p99_ms: f64,
    /// Screens that are told of each frame of the pad
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub screens: usize,
    /// Folder to work in, kept afterwards; a temporary one if not given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

/// A kind of hostile client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Statements at and beyond the limits, over HTTP and over the wire, with cancels
    Sql,
    /// Requests that are nearly right, bodies that never end, answers that nobody reads
    Http,
    /// Frames that are nearly right, floods, long histories and playbacks that nobody reads
    Websocket,
    /// Messages of the PostgreSQL wire before and behind the login
    Postgres,
    /// Line protocol over TCP that never ends, is forged, or nearly right
    Lines,
    /// Connections, thousands of them, that begin and do not go on
    Connections,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Sql, Kind::Http, Kind::Websocket, Kind::Postgres, Kind::Lines, Kind::Connections];

    /// Clients that strike at a time.
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

/// What happened, and which strikes were under way.
#[derive(Clone, Debug, Serialize)]
pub struct HostileMoment {
    /// Seconds since the first strike.
    pub at_s: f64,
    /// What happened.
    pub what: String,
    /// Kind, seed and beginning of each strike that was under way.
    pub under_way: Vec<String>,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct HostileResult {
    machine: Machine,
    duration_s: f64,
    seed: u64,
    /// Strikes by kind.
    pub strikes: Vec<(Kind, u64)>,
    /// Requests of well-behaved clients, the wait for an answer that one of a hundred exceeds, and the longest, in ms, by
    /// the way they take.
    pub answered: Vec<(String, u64, f64, f64)>,
    /// What the server used.
    pub usage: Usage,
    /// When it held most memory.
    pub peak: HostileMoment,
    /// The live updates that took longest, and what was under way.
    pub slowest: Vec<HostileMoment>,
    /// None if all is well.
    pub failures: Vec<HostileMoment>,
}

/// Strikes at a server.
///
/// # Errors
/// If the server cannot be started, and if anything went wrong; the message names the seeds.
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
        // Nothing is sent: it ends when the screens are open, or cannot be opened.
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

/// Says what of the well-behaved clients' waits is too long, and whether rows that were acknowledged are gone.
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

/// Gives the server a table to ask for: `m`, with numbers, text, and two tags.
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

/// Looks at the server until the time is over. Returns what it used, and the moment when it held most memory.
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
