//! `strongback bench live`: the latency from the stamp inside the payload to decoded values at a subscriber.
//!
//! ```text
//!  pad or publisher ── sockets ──→ server ── WebSocket ──→ clients, in this process
//!  stamps its samples              a process of its own     read the same clock
//! ```
//!
//! Screens receive every frame; endpoints are those of a launch, 150 and then 1,024 of them at 5 Hz; topics are those
//! of a robot arm, at 60 Hz. A figure includes sender, socket, server, WebSocket and decoding.

pub(crate) mod client;
pub(crate) mod crowd;
mod endpoints;
mod screens;
mod topics;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use self::client::Form;
use self::crowd::CrowdResult;
use self::screens::ScreensResult;
use crate::machine::Machine;
use crate::serving::{Ports, ServerProcess, ServerProgram, wait_for_channels};
use crate::table::{Table, short};

/// Number of endpoints of a launch.
const ENDPOINTS: usize = 150;
/// Number of endpoints that the server is designed for.
const CROWD: usize = 1_024;
/// Limits that allow all of them from one address.
const ROOM: &str = "\n[live]\nmax_clients = 1200\nmax_clients_per_address = 1200\n";

/// Part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LivePart {
    /// 20 subscribers, every frame
    Screens,
    /// 150 endpoints at 5 Hz
    Endpoints,
    /// 1,024 endpoints at 5 Hz
    Crowd,
    /// 150 endpoints for an hour, minute by minute; only on request
    Soak,
    /// 1 to 1,024 consumers of 1 to 130 topics at 60 Hz
    Topics,
}

/// Options of `strongback bench live`.
#[derive(Clone, Debug, clap::Args)]
pub struct LiveArguments {
    /// Runs some seconds of each part
    #[arg(long)]
    pub quick: bool,
    /// Runs only this part [default: all]
    #[arg(long, value_name = "PART")]
    pub only: Option<LivePart>,
    /// Time for which the endpoints are measured in each form, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub endpoints_s: u64,
    /// Numbers of consumers of topics, instead of those of the table
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub consumers: Vec<usize>,
    /// Numbers of topics per consumer, instead of those of the table
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = topics::at_most_all)]
    pub topics: Vec<usize>,
    /// Length of a soak, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    pub soak_min: u64,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

#[derive(Serialize)]
struct LiveReport {
    machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    screens: Option<ScreensResult>,
    endpoints: Vec<CrowdResult>,
    soak: Vec<CrowdResult>,
    topics: Vec<CrowdResult>,
}

/// Runs the benchmark and prints its tables.
///
/// # Errors
/// A server that cannot be started, stops answering, or sends nothing.
pub fn run(arguments: &LiveArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let machine = Machine::look(dir.path())?;
    println!("{}\n", machine.line());
    let wants = |part: LivePart| arguments.only.map_or(part != LivePart::Soak, |only| only == part);
    let span = |full: u64| Duration::from_secs(if arguments.quick { full.min(5) } else { full });
    let mut report = LiveReport { machine, screens: None, endpoints: Vec::new(), soak: Vec::new(), topics: Vec::new() };
    if [LivePart::Screens, LivePart::Endpoints, LivePart::Crowd, LivePart::Soak].into_iter().any(wants) {
        let server = start(&arguments.program, &dir.path().join("pad"))?;
        let pad = server.start_pad(dir.path())?;
        wait_for_channels(server.http)?;
        if wants(LivePart::Screens) {
            report.screens = Some(screens::run(&server, span(60))?);
        }
        if wants(LivePart::Endpoints) {
            for form in [Form::Binary, Form::Json] {
                report.endpoints.push(endpoints::run(&server, ENDPOINTS, form, span(arguments.endpoints_s))?);
            }
        }
        if wants(LivePart::Crowd) {
            report.endpoints.push(endpoints::run(&server, CROWD, Form::Binary, span(60))?);
        }
        if wants(LivePart::Soak) {
            let minutes = if arguments.quick { 1 } else { arguments.soak_min };
            endpoints::soak(&server, ENDPOINTS, minutes, |minute| {
                println!(
                    "{}: {:.2} Hz, p50 {:.2} ms, p99 {:.2} ms, max {:.1} ms, {} conflated, {} dropped, {:.0} % of a core, {:.1} MiB",
                    minute.name,
                    minute.rate_hz,
                    minute.fresh_p50_ms,
                    minute.fresh_p99_ms,
                    minute.fresh_max_ms,
                    minute.conflated,
                    minute.dropped,
                    minute.server_core_percent,
                    minute.server_rss_mib
                );
                report.soak.push(minute);
            })?;
        }
        pad.stop()?;
        server.stop()?;
        if !report.endpoints.is_empty() {
            println!(
                "Endpoints of the pad's 68,500 points/s: how old the newest value is once decoded, and how evenly it comes\n"
            );
            print(&report.endpoints);
        }
    }
    if wants(LivePart::Topics) {
        let (consumers, topics): (&[usize], &[usize]) = if arguments.quick {
            (&[1, 16, 128], &[1, 130])
        } else {
            (&[1, 4, 16, 64, 256, 1_024], &[1, 10, 40, topics::TOPICS])
        };
        let server = start(&arguments.program, &dir.path().join("topics"))?;
        let publisher = topics::Publisher::start(server.ilp)?;
        wait_for_channels(server.http)?;
        let chosen = |given: &[usize], table: &[usize]| if given.is_empty() { table.to_vec() } else { given.to_vec() };
        let (consumers, topics) = (chosen(&arguments.consumers, consumers), chosen(&arguments.topics, topics));
        for &topics in &topics {
            for &consumers in &consumers {
                report.topics.push(topics::run(&server, consumers, topics, span(8))?);
            }
        }
        publisher.stop()?;
        server.stop()?;
        println!(
            "Consumers × topics: {} topics at 100 and 1,000 Hz, 24,700 messages/s, views at 60 Hz\n",
            topics::TOPICS
        );
        print(&report.topics);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

fn start(program: &ServerProgram, dir: &Path) -> anyhow::Result<ServerProcess> {
    std::fs::create_dir_all(dir)?;
    let [ports] = Ports::reserve()?;
    ServerProcess::start_at(program, dir, &ports, &(strongback_sim::pad_config_at(ports.fti) + ROOM))
}

fn print(results: &[CrowdResult]) {
    let mut table = Table::new([
        "clients",
        "Hz",
        "deviation",
        "p50 ms",
        "p99 ms",
        "max ms",
        "interval p99",
        "max",
        "late",
        "windows/s",
        "conflated",
        "dropped",
        "server",
        "clients' CPU",
    ]);
    for r in results {
        table.row([
            r.name.clone(),
            format!("{:.2}", r.rate_hz),
            format!("{:.2} %", r.rate_deviation_percent),
            format!("{:.2}", r.fresh_p50_ms),
            format!("{:.2}", r.fresh_p99_ms),
            format!("{:.1}", r.fresh_max_ms),
            format!("{:.1}", r.interval_p99_ms),
            format!("{:.1}", r.interval_max_ms),
            format!("{:.3} %", r.late_percent),
            short(r.windows as f64 / r.seconds),
            r.conflated.to_string(),
            r.dropped.to_string(),
            format!("{:.0} %, {:.0} MiB", r.server_core_percent, r.server_rss_mib_max),
            format!("{:.0} %", r.clients_core_percent),
        ]);
    }
    table.print();
    println!();
}
