//! `strongback bench faults`: the whole simulated pad through processes that lose, double, delay, reorder, spoil and
//! cut what it sends; then the books of both sides are compared, frame by frame counted.
//!
//! ```text
//!  pad ─┬─ iNET-X ─→ faults ─→ server      what the faults took, handed on, left out: their report
//!       ├─ lines ──→ faults ─→ server      what came, was stored, is missing: the server's books
//!       └─ PLC ←─── faults ←── server
//! ```
//!
//! It ends with an error at the first count that does not agree.

mod books;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

use self::books::Books;
use crate::http::count;
use crate::machine::Machine;
use crate::serving::{Helper, Ports, STRAIN, ServerProcess, ServerProgram, start_pad};
use crate::table::Table;
use crate::work_folder::WorkFolder;

/// How long what was sent may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// An hour of a thousand channels at 1 kHz takes its time to be counted row by row.
const COUNTING: &str = "\n[query]\nstatement_timeout_s = 1800\n";
/// What is sent is all there when nothing more comes for this long.
const QUIET: Duration = Duration::from_secs(2);

/// Faults of packets, of lines, and of the PLC's notifications. The PLC's clock is left alone: its cycles are told
/// apart by it.
const PACKET_FAULTS: &str = "--loss 0.002 --burst 5 --duplicate 0.002 --reorder 0.002 --garble 0.0005 --jitter 3ms \
    --silence 2s/23s --clock-jump 1500ms/17s";
const LINE_FAULTS: &str = "--loss 0.0005 --duplicate 0.0005 --reorder 0.0005 --garble 0.0002 --jitter 3ms \
    --silence 1s/29s --reconnect-every 19s";
const PLC_FAULTS: &str = "--loss 0.0005 --jitter 2ms --silence 1s/31s --reconnect-every 13s";

/// Options of `bench faults`.
#[derive(Clone, Debug, clap::Args)]
pub struct FaultsArguments {
    /// How long the pad sends, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub duration_s: u64,
    /// Fifteen seconds
    #[arg(long)]
    pub quick: bool,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder to work in, kept afterwards; a temporary one if not given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

/// The books of one stream, in frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamBooks {
    /// The stream.
    pub stream: String,
    /// Frames sent, by the count of sender and faults.
    pub sent: u64,
    /// Of them, those that went on whole.
    pub delivered: u64,
    /// Frames received.
    pub received: u64,
    /// Frames stored.
    pub stored: u64,
    /// Of them, those with a further part of a cycle that has a frame already: a PLC that was asked for two places of its
    /// memory in two of its cycles sends them in two from then on.
    pub parts: u64,
    /// Frames that came again.
    pub duplicate: u64,
    /// Frames left out within a bound.
    pub reduced: u64,
    /// Frames refused.
    pub rejected: u64,
    /// Frames that the ledger says are missing.
    pub missing: u64,
}

/// What a run found. A count that does not agree ends it with an error instead.
#[derive(Clone, Debug, Serialize)]
pub struct FaultsResult {
    machine: Machine,
    duration_s: u64,
    /// Every stream whose frames are numbered, by a sequence or by cycles.
    pub numbered: Vec<StreamBooks>,
    /// Streams of lines: what is missing cannot be known; what was handed on is stored.
    pub lines: Vec<StreamBooks>,
    /// What the pad, and each process of faults, reports.
    pub reports: Vec<Value>,
}

/// Runs the pad through the faults and compares the books.
///
/// # Errors
/// Processes that fail, and any count that does not agree.
pub fn run(arguments: &FaultsArguments) -> anyhow::Result<()> {
    let folder = WorkFolder::of(arguments.dir.as_deref())?;
    let dir = folder.path();
    let result = measure(arguments, dir).with_context(|| format!("seed {}", arguments.seed))?;
    print(&result);
    if arguments.json {
        println!("{}", serde_json::to_string(&result)?);
    }
    Ok(())
}

fn measure(arguments: &FaultsArguments, dir: &Path) -> anyhow::Result<FaultsResult> {
    let duration_s = if arguments.quick { 15 } else { arguments.duration_s };
    let [ports, relays] = Ports::reserve()?;
    // Of the second set: fti, ilp and http are where the faults listen, pg is the PLC.
    let (relay_fti, relay_ilp, relay_ads, plc) = (relays.fti, relays.ilp, relays.http, relays.pg);
    let mut config = strongback_sim::pad_config_at(ports.fti);
    config.push_str(&strongback_sim::plc_config(relay_ads));
    config.push_str(STRAIN);
    config.push_str("\n[[ilp.source]]\nprefix = \"avionics.\"\nname = \"avionics\"\n");
    config.push_str(COUNTING);
    let server = ServerProcess::start_at(&arguments.program, dir, &ports, &config)?;
    let program = arguments.program.path()?;
    let seed = arguments.seed.to_string();
    let faults = |name: &str, kind: &str, way: String, faults: &str| {
        let mut words = vec!["simulate", "faults", "--json", "--seed", &seed, kind, &way];
        words.extend(faults.split_whitespace());
        Helper::start(&program, dir, name, &words)
    };
    let mut between = vec![
        faults("faults-inetx", "--inetx", format!("{relay_fti}={}", ports.fti), PACKET_FAULTS)?,
        faults("faults-lines", "--lines", format!("{relay_ilp}={}", ports.ilp), LINE_FAULTS)?,
        faults("faults-ads", "--ads", format!("{relay_ads}={plc}"), PLC_FAULTS)?,
    ];
    for helper in &mut between {
        helper.wait_for_line()?;
    }
    println!("the pad sends for {duration_s} s through faults of seed {seed}");
    let more = format!("--loss 0 --duration {duration_s}s --plc {plc} --plc-program-change-after {}s", duration_s / 2);
    let mut pad = start_pad(&program, dir, relay_fti, relay_ilp, &more)?;
    pad.wait(Duration::from_secs(duration_s) + PATIENCE)?;
    let mut reports = vec![pad.report()?];
    for helper in between {
        reports.push(helper.stop()?);
    }
    let mut books = Books::open(ports.http)?;
    books.settle(QUIET, PATIENCE)?;
    let relays: Vec<&Value> = reports[1..].iter().map(|report| &report["relays"][0]).collect();
    let packets_sent = count(&reports[0]["packets_sent"])?;
    let taken = count(&relays[0]["all"]["taken"])?;
    if packets_sent != taken {
        bail!(
            "the pad sent {packets_sent} packets, the faults took {taken}: this machine is too busy for a comparison"
        );
    }
    let mut numbered = Vec::new();
    let pad = strongback_sim::Pad::new(strongback_sim::PadOptions::default());
    for stream in pad.streams() {
        let Some((id, frames)) = stream.packet() else { continue };
        let flow = &relays[0]["flows"][format!("{id:#010x}")];
        numbered.push(books.packets(&stream.table, flow, frames.into())?);
    }
    books.rejected("fti", count(&relays[0]["all"]["garbled"])?)?;
    numbered.push(books.cycles("plc.strain", Some(("FAST.cycle", "FAST.cycle_end")))?);
    for stream in books.streams_of("plc")? {
        if stream != "plc.strain" && stream != "plc.state" {
            numbered.push(books.cycles(&stream, None)?);
        }
    }
    books.samples("plc", count(&relays[2]["all"]["delivered"])?)?;
    let mut lines = Vec::new();
    for (flow, tally) in relays[1]["flows"].as_object().context("flows")? {
        lines.push(books.lines(flow, tally)?);
    }
    // A line that cannot be read belongs to no source of lines in particular.
    books.rejected("ilp", count(&relays[1]["all"]["garbled"])?)?;
    server.stop()?;
    Ok(FaultsResult { machine: Machine::look(dir)?, duration_s, numbered, lines, reports })
}

fn print(result: &FaultsResult) {
    println!("{}", result.machine.line());
    let mut table =
        Table::new(["stream", "sent", "handed on", "received", "stored", "parts", "duplicate", "rejected", "missing"]);
    for books in result.numbered.iter().chain(&result.lines) {
        table.row([
            books.stream.clone(),
            books.sent.to_string(),
            books.delivered.to_string(),
            books.received.to_string(),
            books.stored.to_string(),
            books.parts.to_string(),
            books.duplicate.to_string(),
            books.rejected.to_string(),
            books.missing.to_string(),
        ]);
    }
    table.print();
    println!(
        "{} numbered streams: sent = stored - parts + missing, to the frame; {} streams of lines: handed on = stored; received = \
         stored + duplicate + reduced + rejected in all",
        result.numbered.len(),
        result.lines.len()
    );
}
