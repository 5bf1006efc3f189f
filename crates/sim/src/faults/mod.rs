//! Faults between a sender and a receiver: a separate process that loses, duplicates, delays, reorders, garbles and
//! cuts what passes through it, and keeps counts independent of both.
//!
//! ```text
//!  sender → socket → form (delimits messages, finds their flow) → lane (applies the faults) → socket → receiver
//! ```
//!
//! Invariants:
//! - every message that is received is in exactly one count: delivered, lost, silenced, garbled or cut off;
//! - the same seed and the same messages at the same times lead to the same faults;
//! - at the end the newest message of every flow is sent, so that every loss before it shows.

mod connections;
mod form;
mod lane;
mod packets;
mod relay;
mod report;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use self::connections::RelayedConnections;
use self::form::{Ads, Inetx, Lines};
use self::lane::{Faults, Lane, Spell};
use self::packets::Packets;
use self::relay::{Clock, Ends, Kind, Relay};
use crate::noise::Random;
use crate::run::parse_time;

pub use report::{FaultsReport, RelayReport, Tally};

/// Interval at which a relay checks whether to stop.
const LOOK_NS: i64 = 20_000_000;

/// Options of `strongback simulate faults`.
///
/// Simulates a failing network between senders and receivers. Each relay listens at LISTEN and forwards to TO, with
/// the requested faults; several relays may run at once. Chances apply to each message: an iNET-X packet, a line, or
/// a packet of ADS notifications (ADS requests and replies are never lost, only delayed).
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct FaultsArgs {
    /// Relays iNET-X packets over UDP
    #[arg(long, value_name = "LISTEN=TO")]
    pub inetx: Vec<Way>,
    /// Relays line protocol over TCP, from clients that connect to LISTEN
    #[arg(long, value_name = "LISTEN=TO")]
    pub lines: Vec<Way>,
    /// Relays ADS over TCP: TO is the PLC, and faults apply to its notifications
    #[arg(long, value_name = "LISTEN=TO")]
    pub ads: Vec<Way>,
    /// Chance that a loss begins at a message
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0, value_parser = parse_chance)]
    pub loss: f64,
    /// Max number of messages in a loss; each has between one and this many
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,
    /// Chance that a message is duplicated (not ADS)
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0, value_parser = parse_chance)]
    pub duplicate: f64,
    /// Chance that a message is overtaken by up to eight later ones (not ADS)
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0, value_parser = parse_chance)]
    pub reorder: f64,
    /// Chance that a message is garbled: a truncated packet, a line without fields, a malformed notification
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0, value_parser = parse_chance)]
    pub garble: f64,
    /// Delays each message by up to this time, keeping the order
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub jitter: Option<Duration>,
    /// Lets nothing through for TIME at the end of each PERIOD, as in 2s/60s. UDP packets are lost, TCP data waits
    #[arg(long, value_name = "TIME/PERIOD")]
    pub silence: Option<Repeated>,
    /// Sets the source's clock ahead by TIME, and back, every PERIOD, as in 500ms/60s
    #[arg(long, value_name = "TIME/PERIOD")]
    pub clock_jump: Option<Repeated>,
    /// Cuts all connections at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub reconnect_every: Option<Duration>,
    /// Ends after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Seed of the random faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prints the listening addresses as a JSON object on the first line, and the report as one on the last
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  strongback simulate faults --inetx 127.0.0.1:4441=127.0.0.1:4440 --loss 0.001 --duplicate 0.001 --reorder 0.001
  strongback simulate pad --fti 127.0.0.1:4441
  strongback simulate faults --ads 127.0.0.1:48899=192.168.0.20:48898 --reconnect-every 60s --jitter 5ms

Of every message it counts one of: delivered, lost, silenced, garbled, cut off; copies and those passed by later ones
beside. When it ends, the newest message of every flow goes out, so that a receiver can see every loss before it.";

/// Addresses of a relay, `LISTEN=TO`. Port 0 of LISTEN takes a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    listen: SocketAddr,
    to: SocketAddr,
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        let (listen, to) = text.split_once('=').ok_or("LISTEN=TO is needed, as in 127.0.0.1:4441=127.0.0.1:4440")?;
        let address = |text: &str| text.parse().map_err(|_| format!("{text:?} is no address with a port"));
        Ok(Way { listen: address(listen)?, to: address(to)? })
    }
}

/// Periodic event, `TIME/PERIOD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    by: Duration,
    every: Duration,
}

impl FromStr for Repeated {
    type Err = String;

    fn from_str(text: &str) -> Result<Repeated, String> {
        let (by, every) = text.split_once('/').ok_or("TIME/PERIOD is needed, as in 2s/60s")?;
        let (by, every) = (parse_time(by)?, parse_time(every)?);
        if every.is_zero() {
            return Err("the period must be longer than nothing".to_owned());
        }
        Ok(Repeated { by, every })
    }
}

fn parse_chance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err(format!("{text:?} is not a chance from 0 to 1")),
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl FaultsArgs {
    fn faults(&self) -> anyhow::Result<Faults> {
        let spell = |of: Option<Repeated>| of.map(|of| Spell { every_ns: ns(of.every), by_ns: ns(of.by) });
        if let Some(silence) = self.silence {
            ensure!(silence.by < silence.every, "a silence of {:?} every {:?} never ends", silence.by, silence.every);
        }
        Ok(Faults {
            loss: self.loss,
            burst: self.burst,
            duplicate: self.duplicate,
            reorder: self.reorder,
            garble: self.garble,
            jitter_ns: self.jitter.map_or(0, ns),
            silence: spell(self.silence),
            clock_jump: spell(self.clock_jump),
        })
    }

    fn open(&self) -> anyhow::Result<Vec<Box<dyn Relay>>> {
        let faults = self.faults()?;
        let ways = [(Kind::Inetx, &self.inetx), (Kind::Lines, &self.lines), (Kind::Ads, &self.ads)];
        let ends = ways
            .iter()
            .flat_map(|(kind, ways)| ways.iter().map(|way| Ends { kind: *kind, listen: way.listen, to: way.to }));
        let cut_every_ns = self.reconnect_every.map(ns).filter(|every| *every > 0);
        let mut relays: Vec<Box<dyn Relay>> = Vec::new();
        for (n, ends) in ends.enumerate() {
            let random = Random::new(self.seed, 0xfa17 + n as u64);
            relays.push(match ends.kind {
                Kind::Inetx => Box::new(Packets::open(ends, Lane::new(Inetx, faults, random))?),
                Kind::Lines => {
                    Box::new(RelayedConnections::open(ends, Lines, Lane::new(Lines, faults, random), cut_every_ns)?)
                }
                Kind::Ads => {
                    Box::new(RelayedConnections::open(ends, Ads, Lane::new(Ads, faults, random), cut_every_ns)?)
                }
            });
        }
        if relays.is_empty() {
            bail!("nothing to relay: --inetx, --lines or --ads LISTEN=TO is needed");
        }
        Ok(relays)
    }
}

/// Runs the relays until their duration is over or SIGINT or SIGTERM arrives, and prints their report.
///
/// # Errors
/// An address cannot be bound.
pub fn run_faults(args: &FaultsArgs) -> anyhow::Result<FaultsReport> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot take signals")?;
    }
    let report = run_faults_until(args, &stop, |ends| {
        if args.json {
            println!("{}", serde_json::json!({ "listening": ends }));
        } else {
            for Listening { kind, listen, to } in ends {
                eprintln!("{kind}: {listen} → {to}");
            }
        }
    })?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(report)
}

/// Addresses of a running relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Listening {
    /// `inetx`, `lines`, `ads`.
    pub kind: &'static str,
    /// Address it listens on.
    pub listen: SocketAddr,
    /// Address it sends to.
    pub to: SocketAddr,
}

/// Runs the relays as [`run_faults`] does, without signals or printing, until `stop` becomes true or the duration is
/// over. Calls `listening` with their addresses once all listen.
///
/// # Errors
/// An address cannot be bound.
pub fn run_faults_until(
    args: &FaultsArgs,
    stop: &AtomicBool,
    listening: impl FnOnce(&[Listening]),
) -> anyhow::Result<FaultsReport> {
    let relays = args.open()?;
    let ends = relays.iter().map(|relay| relay.ends());
    let ends: Vec<Listening> = ends.map(|e| Listening { kind: e.kind.name(), listen: e.listen, to: e.to }).collect();
    listening(&ends);
    let clock = Clock::start();
    let until_ns = args.duration.map_or(i64::MAX, ns);
    let run = |mut relay: Box<dyn Relay>| {
        while !stop.load(Ordering::Relaxed) && clock.now_ns() < until_ns {
            relay.turn(&clock, (clock.now_ns() + LOOK_NS).min(until_ns));
        }
        relay.finish(&clock);
        relay.report()
    };
    let relays = std::thread::scope(|scope| {
        let threads: Vec<_> = relays.into_iter().map(|relay| scope.spawn(move || run(relay))).collect();
        let reports = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a relay panicked")));
        reports.collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(FaultsReport { seed: args.seed, duration_s: clock.now_ns() as f64 / 1e9, relays })
}
