//! `strongback bench soak`: runs the whole server while its disk fills and empties, its clock leaps, packets are out
//! of order, streams are intermittent, and it is killed or stopped and restarted; then the counts are compared.
//!
//! A round: the server starts on the folder of the last one; its stored data is compared with what it acknowledged
//! ([`books`]); writers send lines over HTTP and record what is acknowledged, a sender sends numbered packets that
//! are lost, duplicated and reordered ([`senders`]); meanwhile the disk fills and empties ([`ballast`]) and the clock
//! leaps ([`leaps`]); at a random moment the server gets SIGKILL or SIGTERM. Nothing acknowledged may be missing
//! except the oldest rows of each writer, and only if the disk was full. With `--dir`, a run continues where the last
//! one in that folder ended, so that a long soak may be run in parts.

mod ballast;
mod books;
mod leaps;
mod senders;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

pub use self::ballast::FileSystem;

use self::ballast::Disk;
use self::leaps::Leaps;
use self::senders::{PacketSender, Visitors, Writer};
use crate::clock::now_ns;
use crate::serving::{Ports, ServerProcess, ServerProgram, last_lines};
use crate::work_folder::WorkFolder;

/// Max time for a server to start on a disk that is full.
const PATIENCE_ON_A_FULL_DISK: Duration = Duration::from_secs(3);

/// Options of `strongback bench soak`.
#[derive(Clone, Debug, clap::Args)]
pub struct SoakArguments {
    /// Number of rounds, each of which ends the server and starts it again.
    #[arg(long, default_value_t = 20)]
    pub rounds: u32,
    /// Max length of a round, in seconds; the min is a fifth of it.
    #[arg(long, default_value_t = 3.0)]
    pub round_s: f64,
    /// Ends every round with SIGKILL; otherwise half of them end with SIGTERM.
    #[arg(long)]
    pub kill: bool,
    /// Rows per second of each of the four writers.
    #[arg(long, default_value_t = 5_000)]
    pub rows_per_s: u64,
    /// Number of intermittent streams.
    #[arg(long, default_value_t = 5_000)]
    pub streams: u32,
    /// Size in MiB of the file system to fill, which is mounted in the folder and requires root; 0 mounts none and
    /// leaves the disk as it is.
    #[arg(long, default_value_t = 256)]
    pub disk_mib: u64,
    /// Type of that file system; its tools must be installed.
    #[arg(long, value_enum, default_value_t = FileSystem::Tmpfs)]
    pub file_system: FileSystem,
    /// Does not change the clock; otherwise the server's clock leaps, by libfaketime, which must be installed.
    #[arg(long)]
    pub no_leaps: bool,
    /// Runs five short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Seed of all random choices; a run prints the seed it used.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Folder to work in, kept afterwards; an earlier run in it is continued. A temporary one if not given.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Server to soak.
    #[command(flatten)]
    pub server: ServerProgram,
    /// Prints the results as one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
}

/// Record of what was sent, kept in the folder between runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Nanoseconds since 1970 UTC at which the first run began.
    base_ns: i64,
    /// Number of the next row that each writer sends; all lower ones were acknowledged.
    writers: Vec<u64>,
    /// Number of the next row of each intermittent stream.
    visitors: Vec<u64>,
    /// Intermittent streams whose last request got no answer.
    #[serde(default)]
    untold: std::ops::Range<usize>,
    /// Number of the next packet.
    next_packet: u64,
    /// Whether the disk has been full since the first run: only then may the oldest rows be missing.
    was_full: bool,
    /// First row that is still stored of each writer's stream.
    first_kept: Vec<u64>,
    /// Lowest sequence in a gap row of the packets.
    #[serde(default)]
    oldest_gap: Option<i64>,
    /// Whether gap rows of the packets have expired.
    #[serde(default)]
    gaps_gone: bool,
    report: SoakReport,
}

/// Result of a run, accumulated over the runs in one folder. Any disagreement ends the run with an error instead.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SoakReport {
    /// Number of rounds.
    pub rounds: u32,
    /// Number of rounds that ended with SIGKILL.
    pub kills: u32,
    /// Seconds under load.
    pub seconds: f64,
    /// Number of rows acknowledged.
    pub rows_acknowledged: u64,
    /// Number of requests that were temporarily refused.
    pub refusals: u64,
    /// Number of packets sent, including copies and late ones.
    pub packets_sent: u64,
    /// Number of times that the disk was full.
    pub disk_full: u64,
    /// Number of leaps of the clock.
    pub leaps: u64,
    /// Max memory of the server in the first round and in the last one, in MiB.
    pub rss_mib: (f64, f64),
    /// Number of rows of writers that expired, oldest first, while the disk was full.
    pub rows_expired: u64,
}

/// Runs the rounds and prints their results.
///
/// # Errors
/// An acknowledged row is missing, a count does not agree, or a server ends.
pub fn run(arguments: &SoakArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut soak = Soak::begin(arguments, dir, seed)?;
    let done = soak.run();
    done.with_context(|| format!("seed {seed}; the server's last words: {}", last_lines(&dir.join("server.log"), 20)))?;
    let report = &soak.journal.report;
    println!(
        "{} rounds, {} of them killed, {:.0} s: {} rows acknowledged, {} expired, none missing; {} packets, the books \
         add up; the disk was full {} times, the clock leapt {} times; memory {:.0} MiB, then {:.0}",
        report.rounds,
        report.kills,
        report.seconds,
        report.rows_acknowledged,
        report.rows_expired,
        report.packets_sent,
        report.disk_full,
        report.leaps,
        report.rss_mib.0,
        report.rss_mib.1
    );
    if arguments.json {
        println!("{}", serde_json::to_string(report)?);
    }
    Ok(())
}

struct Soak<'a> {
    arguments: &'a SoakArguments,
    dir: &'a Path,
    random: fastrand::Rng,
    disk: Disk,
    leaps: Option<Leaps>,
    ports: Ports,
    journal: Journal,
}

impl<'a> Soak<'a> {
    fn begin(arguments: &'a SoakArguments, dir: &'a Path, seed: u64) -> anyhow::Result<Soak<'a>> {
        let mut journal: Journal = match std::fs::read(dir.join("soak.json")) {
            Ok(text) => serde_json::from_slice(&text).context("soak.json")?,
            Err(_) => Journal { base_ns: now_ns(), ..Journal::default() },
        };
        journal.writers.resize(senders::WRITERS, 0);
        journal.first_kept.resize(senders::WRITERS, 0);
        journal.visitors.resize(arguments.streams as usize, 0);
        let disk = Disk::mount(&dir.join("disk"), arguments.file_system, arguments.disk_mib)?;
        let leaps = if arguments.no_leaps { None } else { Leaps::find(dir) };
        if leaps.is_none() && !arguments.no_leaps {
            println!("libfaketime is not installed: the clock does not leap");
        }
        let [ports] = Ports::reserve()?;
        println!("soak of {} rounds, seed {seed}", arguments.rounds);
        Ok(Soak { arguments, dir, random: fastrand::Rng::with_seed(seed), disk, leaps, ports, journal })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let rounds = if self.arguments.quick { 5 } else { self.arguments.rounds };
        for round in 0..rounds {
            self.round(round).with_context(|| format!("round {}", round + 1))?;
            std::fs::write(self.dir.join("soak.json"), serde_json::to_vec(&self.journal)?)?;
        }
        self.disk.empty()?;
        let server = self.start()?;
        self.compare(&server)?;
        server.stop()
    }

    /// Starts the server. If the disk is still full from the round before, the server may have to wait for space, and
    /// space is then freed.
    fn start(&self) -> anyhow::Result<ServerProcess> {
        let environment = self.leaps.as_ref().map(Leaps::environment).unwrap_or_default();
        let config = senders::config(self.ports.fti);
        let Soak { arguments, dir, disk, ports, .. } = self;
        let mut server = ServerProcess::spawn(&arguments.server, dir, &disk.data(), ports, &config, &environment)?;
        if disk.is_taken() && !server.becomes_healthy(PATIENCE_ON_A_FULL_DISK)? {
            disk.empty()?;
        }
        server.wait_until_healthy()?;
        Ok(server)
    }

    fn compare(&mut self, server: &ServerProcess) -> anyhow::Result<()> {
        books::compare(server.http, &mut self.journal)
    }

    fn round(&mut self, round: u32) -> anyhow::Result<()> {
        let full = self.random.bool();
        let leaping = self.random.bool();
        if !full {
            self.disk.empty()?;
        }
        if let Some(leaps) = &self.leaps {
            leaps.set(if leaping { leaps::random(&mut self.random) } else { 0 })?;
        }
        let mut server = self.start()?;
        self.compare(&server)?;
        let most_ms = if self.arguments.quick { 2_000 } else { (self.arguments.round_s * 1e3) as u64 };
        let work = Duration::from_millis(self.random.u64(most_ms / 5..=most_ms));
        let kill = self.arguments.kill || self.random.bool();
        let begin = Instant::now();
        let usage = self.work(&mut server, work, (full, leaping), kill)?;
        let took = begin.elapsed().as_secs_f64();
        if !kill {
            server.stop()?;
        }
        let report = &mut self.journal.report;
        report.rounds += 1;
        report.kills += u32::from(kill);
        report.seconds += took;
        report.rss_mib = (if report.rounds == 1 { usage } else { report.rss_mib.0 }, usage);
        println!(
            "round {:>4}: {:>9} rows acknowledged, {:>6} refusals so far, {usage:>4.0} MiB{}{}{}",
            round + 1,
            report.rows_acknowledged,
            report.refusals,
            if full { ", disk full" } else { "" },
            if leaping && self.leaps.is_some() { ", clock leaps" } else { "" },
            if kill { ", killed" } else { "" }
        );
        Ok(())
    }

    /// Runs everything for a while. Returns the max memory of the server, in MiB.
    fn work(
        &mut self,
        server: &mut ServerProcess,
        work: Duration,
        (full, leaping): (bool, bool),
        kill: bool,
    ) -> anyhow::Result<f64> {
        let (http, fti, disk) = (server.http, server.fti, &self.disk);
        let journal = &mut self.journal;
        let ended = &AtomicBool::new(false);
        let mut seed = || self.random.u64(..);
        let (mut disk_random, mut leap_random) = (fastrand::Rng::with_seed(seed()), fastrand::Rng::with_seed(seed()));
        let packets = PacketSender { fti, random: fastrand::Rng::with_seed(seed()), ended, base_ns: journal.base_ns };
        let visits = Visitors { http, random: fastrand::Rng::with_seed(seed()), ended, base_ns: journal.base_ns };
        let Journal { writers, visitors, untold, next_packet, base_ns, .. } = journal;
        let counts = std::thread::scope(|scope| -> anyhow::Result<_> {
            let writing: Vec<_> = writers
                .iter_mut()
                .enumerate()
                .map(|(number, next)| {
                    let writer =
                        Writer { number, http, base_ns: *base_ns, rows_per_s: self.arguments.rows_per_s, ended };
                    scope.spawn(move || writer.run(next))
                })
                .collect();
            let visiting = scope.spawn(move || visits.run(visitors, untold));
            let sending = scope.spawn(move || packets.run(next_packet));
            let filling = scope.spawn(move || if full { disk.press(&mut disk_random, ended) } else { Ok(0) });
            let leaps = self.leaps.as_ref().filter(|_| leaping);
            let leaping = scope.spawn(move || leaps.map_or(Ok(0), |leaps| leaps.leap(&mut leap_random, ended)));
            let begin = Instant::now();
            let mut alive = Ok(());
            while begin.elapsed() < work && alive.is_ok() {
                alive = server.check_alive();
                std::thread::park_timeout(Duration::from_millis(50));
            }
            let rss_mib = server.usage().rss_mib_max;
            ended.store(true, Ordering::SeqCst);
            // Kill it while requests are in flight, whose rows may be stored in part and are sent again in the next
            // round.
            if kill {
                server.kill()?;
            }
            // The packet sender ends first, so that its last packets are received and assessed before the server
            // ends.
            let sent = sending.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
            let mut acknowledged = 0;
            let mut refusals = 0;
            for thread in writing.into_iter().chain([visiting]) {
                let (rows, put_off) = thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
                (acknowledged, refusals) = (acknowledged + rows, refusals + put_off);
            }
            let fulls = filling.join().map_err(|_| anyhow::anyhow!("the filler panicked"))??;
            let leapt = leaping.join().map_err(|_| anyhow::anyhow!("the clock panicked"))??;
            alive?;
            Ok((acknowledged, refusals, sent, fulls, leapt, rss_mib))
        });
        let (acknowledged, refusals, sent, fulls, leapt, rss_mib) = counts?;
        if !kill {
            server.check_alive()?;
            books::compare_counts(http)?;
        }
        ensure!(acknowledged + refusals > 0, "nothing was acknowledged or refused");
        self.journal.was_full |= fulls > 0;
        let report = &mut self.journal.report;
        report.rows_acknowledged += acknowledged;
        report.refusals += refusals;
        report.packets_sent += sent;
        report.disk_full += fulls;
        report.leaps += leapt;
        Ok(rss_mib)
    }
}
