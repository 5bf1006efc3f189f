//! The pad on real sockets: the generator, paced by the clock, over UDP and TCP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};

use crate::ads::{CycleUnit, PlcOptions, PlcServer};
use crate::channel::PadSource;
use crate::events::send_events;
use crate::inetx::Packer;
use crate::line::LineWriter;
use crate::pad::{Pad, PadOptions, PadStep, STEP_NS};
use crate::report::{GapMade, LISTED, PadReport};
use crate::uplink::Uplink;

/// Number of last steps, in which every iNET-X stream sends once without loss, so that a loss before them shows.
const LAST_STEPS: u64 = 4;
/// Min wait or lag that means that the machine's clock jumped, or that the machine slept.
const JUMP_NS: i64 = 1_000_000_000;
/// Default address for line protocol.
const ILP_ADDRESS: &str = "127.0.0.1:9009";
/// Max number of countdown events waiting for the page server; more are counted as failed.
const EVENTS_QUEUED: usize = 64;

/// Options of `strongback simulate pad`.
///
/// Simulates a launch pad in countdown, on real sockets at the rates of a real one: flight test instrumentation as
/// iNET-X over UDP, avionics and PLC groups as line protocol over TCP, 68,500 points/s in all. With --plc the PLC is
/// an ADS device that clients read, like Beckhoff's.
#[derive(Clone, Debug, clap::Args)]
pub struct PadArgs {
    /// Address for iNET-X packets [default: 127.0.0.1:4440; with --plc none are sent unless this is given]
    #[arg(long, value_name = "ADDR")]
    pub fti: Option<SocketAddr>,
    /// Line-protocol server for avionics and PLC [default: 127.0.0.1:9009; with --plc none unless this is given, and
    /// then for avionics only]
    #[arg(long, value_name = "ADDR")]
    pub ilp: Option<SocketAddr>,
    /// Options of its PLC.
    #[command(flatten)]
    pub plc: PlcArgs,
    /// Page server for countdown events (POST /api/events)
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Ends after this time, for instance 30s or 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Seed of the values; the same seed gives the same values
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Chance that a loss of one to five packets begins at an iNET-X packet, 0 to 0.01
    #[arg(long, value_name = "CHANCE", default_value_t = 5e-4, value_parser = parse_loss)]
    pub loss: f64,
    /// Time to lift-off at the start, not counting holds, at most 10m
    #[arg(long, value_name = "TIME", default_value = "130s", value_parser = parse_time)]
    pub t0: Duration,
    /// Time after which a missing line-protocol server is given up, at the start or later
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub give_up: Duration,
    /// Omits the fast PLC channels: 18,500 points/s, as before lift-off
    #[arg(long, conflicts_with = "plc")]
    pub no_fast: bool,
    /// Prints the report as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
}

impl PadArgs {
    /// Returns the addresses for packets and lines.
    fn receivers(&self) -> anyhow::Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        if self.plc.plc.is_some() {
            return Ok((self.fti, self.ilp));
        }
        let or = |given: Option<SocketAddr>, default: &str| given.map_or_else(|| default.parse(), Ok);
        Ok((Some(or(self.fti, crate::settings::FTI_ADDRESS)?), Some(or(self.ilp, ILP_ADDRESS)?)))
    }
}

/// Options of the pad's PLC as an ADS device.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PlcArgs {
    /// Serves the PLC over ADS at this address instead of sending its channels; TwinCAT's port is 48898
    #[arg(long, value_name = "ADDR")]
    pub plc: Option<SocketAddr>,
    /// Loads another version of the PLC's program after this time: symbols move, one is removed, one is added
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "plc")]
    pub plc_program_change_after: Option<Duration>,
    /// Max number of notifications of each ADS client [default: 550]
    #[arg(long, value_name = "COUNT", requires = "plc")]
    pub plc_notifications: Option<usize>,
    /// Unit of the times in requests for ADS notifications
    #[arg(long, value_name = "UNIT", default_value = "100ns", requires = "plc")]
    pub ads_cycle_unit: CycleUnit,
    /// Prints the PLC's report so far at this interval, as one JSON object per line
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "plc")]
    pub plc_report_every: Option<Duration>,
}

impl PlcArgs {
    fn start(&self, pad: PadOptions) -> anyhow::Result<Option<PlcServer>> {
        let Some(address) = self.plc else { return Ok(None) };
        let defaults = PlcOptions::default();
        let server = PlcServer::start(
            address,
            PlcOptions {
                pad,
                cycle_unit: self.ads_cycle_unit,
                notifications_max: self.plc_notifications.unwrap_or(defaults.notifications_max),
                change_after: self.plc_program_change_after,
            },
        )?;
        eprintln!("PLC: ADS on {}", server.address());
        Ok(Some(server))
    }
}

/// Parses a time with its unit.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| format!("{text:?} is not a time such as 30s, 5m or 2h"))?;
    let seconds = match &text[digits..] {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        unit => return Err(format!("unit {unit:?} is none of ms, s, m, h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

fn parse_loss(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(loss) if (0.0..=0.01).contains(&loss) => Ok(loss),
        _ => Err(format!("{text:?} is not a chance from 0 to 0.01")),
    }
}

/// Runs the pad until its duration is over or SIGINT or SIGTERM arrives, and prints its report.
///
/// # Errors
/// A socket cannot be bound, or a line-protocol server is missing for `give_up`.
pub fn run_pad(args: PadArgs) -> anyhow::Result<PadReport> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot take signals")?;
    }
    let json = args.json;
    let report = run_pad_until(args, &stop)?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(report)
}

/// Runs the pad as [`run_pad`] does, without signals or printing, until `stop` becomes true or the duration is over.
///
/// # Errors
/// As for [`run_pad`].
pub fn run_pad_until(args: PadArgs, stop: &AtomicBool) -> anyhow::Result<PadReport> {
    let (fti, ilp) = args.receivers()?;
    let pad_options = PadOptions { seed: args.seed, loss: args.loss, t0_ms: args.t0.as_millis() as i64 };
    // Start it first, so that a port in use ends the run before anything is sent.
    let plc_server = args.plc.start(pad_options)?;
    // Not connected: a missing receiver must not cause errors in later sends.
    let udp = match fti {
        Some(SocketAddr::V4(_)) => Some(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))),
        Some(SocketAddr::V6(_)) => Some(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))),
        None => None,
    };
    let udp = udp.transpose().context("no UDP socket")?;
    let uplink = |name, of: Option<SocketAddr>| of.map(|to| Uplink::start(name, to, args.give_up)).transpose();
    let avionics = uplink("avionics", ilp).context("no thread for avionics")?;
    let plc = uplink("plc", ilp.filter(|_| plc_server.is_none())).context("no thread for the PLCs")?;
    let mut sources = Vec::new();
    sources.extend(udp.as_ref().map(|_| PadSource::Fti));
    sources.extend(avionics.as_ref().map(|_| PadSource::Avionics));
    sources.extend(plc.iter().map(|_| PadSource::Plc));
    sources.extend(plc.iter().filter(|_| !args.no_fast).map(|_| PadSource::PlcFast));
    let pad = Pad::of(pad_options, &sources);
    let steps = args.duration.map(|d| (d.as_nanos() as u64).div_ceil(STEP_NS as u64).max(LAST_STEPS));
    let start_ns = (wall_ns() / 1_000_000 + 1) * 1_000_000;
    let (events, event_queue) = sync_channel(EVENTS_QUEUED);
    let http = args.http;
    let poster = std::thread::Builder::new().name("events".into()).spawn(move || match http {
        Some(http) => send_events(http, start_ns, &event_queue),
        None => (0, 0),
    })?;
    let mut sender = Sender {
        packers: pad.streams().iter().map(Packer::new).collect(),
        writers: pad.streams().iter().map(LineWriter::new).collect(),
        in_gap: vec![None; pad.streams().len()],
        pad,
        fti: udp.zip(fti),
        avionics,
        plc,
        packet: Vec::new(),
        start_ns,
        report: PadReport { seed: args.seed, ..PadReport::default() },
    };
    let report_steps = args.plc.plc_report_every.map(|every| (every.as_nanos() as u64 / STEP_NS as u64).max(1));
    let mut out = PadStep::default();
    let mut done = 0u64;
    let mut left = steps;
    while left != Some(0) {
        let last = left.is_some_and(|left| left <= LAST_STEPS);
        if !last && (stop.load(Ordering::Relaxed) || sender.failed()) {
            left = Some(LAST_STEPS);
            continue;
        }
        sender.wait_for(done + 1);
        sender.pad.step(&mut out);
        sender.send(&out, last);
        for event in out.events.drain(..) {
            eprintln!("T{:+.0} s: {}", sender.pad.clock_s(), event.text);
            if http.is_some() && events.try_send(event).is_err() {
                sender.report.events_failed += 1;
            }
        }
        done += 1;
        left = left.map(|left| left - 1);
        if let (Some(plc), Some(every)) = (&plc_server, report_steps)
            && done.is_multiple_of(every)
        {
            println!("{}", serde_json::json!({ "plc": plc.report() }));
        }
    }
    drop(events);
    let plc_report = plc_server.map(PlcServer::stop);
    let mut report = sender.finish(done)?;
    report.plc = plc_report;
    let (sent, failed) = poster.join().unwrap_or_default();
    report.events_sent = sent;
    report.events_failed += failed;
    Ok(report)
}

/// Sockets and counts of a run.
struct Sender {
    pad: Pad,
    packers: Vec<Option<Packer>>,
    writers: Vec<LineWriter>,
    /// Index in the report of the current gap of each iNET-X stream, if it is listed there.
    in_gap: Vec<Option<usize>>,
    fti: Option<(UdpSocket, SocketAddr)>,
    avionics: Option<Uplink>,
    plc: Option<Uplink>,
    packet: Vec<u8>,
    start_ns: i64,
    report: PadReport,
}

impl Sender {
    /// Sleeps until a step is due. Deadlines are absolute, from the start, so that errors do not accumulate.
    fn wait_for(&mut self, step: u64) {
        loop {
            let due_ns = self.start_ns + step as i64 * STEP_NS;
            let left_ns = due_ns - wall_ns();
            if left_ns.abs() > JUMP_NS + STEP_NS {
                self.report.clock_jumps += 1;
                self.start_ns -= left_ns;
                return;
            }
            if left_ns <= 0 {
                self.report.late_steps += u64::from(left_ns < -STEP_NS);
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns as u64));
        }
    }

    /// Returns whether a line-protocol server was given up.
    fn failed(&self) -> bool {
        [&self.avionics, &self.plc].into_iter().flatten().any(Uplink::failed)
    }

    fn send(&mut self, step: &PadStep, keep_all: bool) {
        let parcel = |uplink: &Option<Uplink>| uplink.as_ref().map(Uplink::parcel).unwrap_or_default();
        let (mut avionics, mut plc) = (parcel(&self.avionics), parcel(&self.plc));
        let mut rest = step.frames.as_slice();
        while let [frame, ..] = rest {
            let stream = &self.pad.streams()[frame.stream];
            let Some(packer) = &self.packers[frame.stream] else {
                let parcel = if stream.source == PadSource::Avionics { &mut avionics } else { &mut plc };
                let cells = step.cells(frame);
                self.writers[frame.stream].push(self.start_ns + frame.time_ns, cells, &mut parcel.lines);
                parcel.count(stream.source, cells.len());
                rest = &rest[1..];
                continue;
            };
            let frames = stream.burst as usize;
            let (packet, after) = rest.split_at(frames.min(rest.len()));
            rest = after;
            let sequence = (frame.sequence / frames as u64) as u32;
            if frame.lost && !keep_all {
                self.report.packets_lost += 1;
                self.report.frames_lost += frames as u64;
                if self.in_gap[frame.stream].is_none() {
                    self.report.gaps_made += 1;
                    self.in_gap[frame.stream] = Some(self.report.gaps.len());
                    if self.report.gaps.len() < LISTED {
                        let table = stream.table.clone();
                        let stream_id = stream.inetx_id.unwrap_or(0);
                        self.report.gaps.push(GapMade {
                            table,
                            stream_id,
                            first_sequence: sequence,
                            packets: 0,
                            frames: 0,
                        });
                    }
                }
                if let Some(gap) = self.in_gap[frame.stream].and_then(|at| self.report.gaps.get_mut(at)) {
                    gap.packets += 1;
                    gap.frames += frames as u64;
                }
                continue;
            }
            self.in_gap[frame.stream] = None;
            packer.begin(sequence, self.start_ns + frame.time_ns, &mut self.packet);
            let mut points = 0;
            for frame in packet {
                let cells = step.cells(frame);
                packer.push(cells, &mut self.packet);
                points += cells.len() as u64;
            }
            let Some((udp, to)) = &self.fti else { continue };
            match udp.send_to(&self.packet, to) {
                Ok(_) => {
                    self.report.packets_sent += 1;
                    let source = self.report.sources.entry(PadSource::Fti.name()).or_default();
                    source.frames_sent += frames as u64;
                    source.points_sent += points;
                }
                Err(error) => {
                    if self.report.send_errors == 0 {
                        eprintln!("packet to {to} not sent: {error}");
                    }
                    self.report.send_errors += 1;
                }
            }
        }
        for (uplink, parcel) in [(&mut self.avionics, avionics), (&mut self.plc, plc)] {
            if let Some(uplink) = uplink {
                uplink.send(parcel);
            }
        }
        let room = LISTED - self.report.spikes.len();
        self.report.spikes.extend(step.spikes.iter().take(room).map(|spike| {
            let time_ns = self.start_ns + spike.time_ns;
            crate::pad::Spike { time_ns, ..spike.clone() }
        }));
    }

    fn finish(self, steps: u64) -> anyhow::Result<PadReport> {
        let mut report = self.report;
        for uplink in [self.avionics, self.plc].into_iter().flatten().map(Uplink::finish) {
            if let Some(failure) = uplink.failure {
                bail!(failure);
            }
            report.reconnects += uplink.reconnects;
            for (source, sent) in uplink.sources {
                let all = report.sources.entry(source.name()).or_default();
                all.frames_sent += sent.frames_sent;
                all.points_sent += sent.points_sent;
                all.frames_dropped += sent.frames_dropped;
            }
        }
        report.frames_sent = report.sources.values().map(|s| s.frames_sent).sum();
        report.points_sent = report.sources.values().map(|s| s.points_sent).sum();
        report.duration_s = steps as f64 * STEP_NS as f64 / 1e9;
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("no CPU times")?;
        let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        report.cpu_s = seconds(usage.user_time()) + seconds(usage.system_time());
        Ok(report)
    }
}

/// Returns the current time, nanoseconds since 1970 UTC.
fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        assert!(parse_time("soon").is_err() && parse_time("3 days").is_err() && parse_time("").is_err());
    }

    #[test]
    fn a_plc_of_its_own_turns_the_other_receivers_off() {
        use clap::{Args, FromArgMatches};
        let parse = |line: &str| {
            let command = PadArgs::augment_args(clap::Command::new("pad"));
            command.clone().debug_assert();
            let matches = command.try_get_matches_from(line.split(' ')).map_err(|e| e.kind())?;
            Ok::<_, clap::error::ErrorKind>(PadArgs::from_arg_matches(&matches).unwrap())
        };
        let address = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let receivers = |line: &str| parse(line).unwrap().receivers().unwrap();
        assert_eq!(receivers("pad"), (address("127.0.0.1:4440"), address("127.0.0.1:9009")));
        assert_eq!(receivers("pad --ilp 127.0.0.1:9"), (address("127.0.0.1:4440"), address("127.0.0.1:9")));
        assert_eq!(receivers("pad --plc 127.0.0.1:48898"), (None, None));
        assert_eq!(receivers("pad --plc 127.0.0.1:48898 --ilp 127.0.0.1:9"), (None, address("127.0.0.1:9")));
        let plc = parse("pad --plc 127.0.0.1:48898 --ads-cycle-unit ms --plc-notifications 3").unwrap().plc;
        assert_eq!((plc.ads_cycle_unit, plc.plc_notifications), (CycleUnit::Milliseconds, Some(3)));
        assert_eq!(parse("pad").unwrap().plc.ads_cycle_unit, CycleUnit::HundredNanoseconds);
        for lonely in ["--plc-report-every 1s", "--plc-program-change-after 1s", "--ads-cycle-unit ms"] {
            assert_eq!(parse(&format!("pad {lonely}")).err(), Some(clap::error::ErrorKind::MissingRequiredArgument));
        }
    }
}
