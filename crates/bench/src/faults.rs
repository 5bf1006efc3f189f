//! `strongback bench faults`: runs the whole simulated pad through processes that lose, duplicate, delay, reorder,
//! garble and cut its data; then compares the counts of both sides, frame by frame.
//!
//! ```text
//!  pad ─┬─ iNET-X ─→ faults ─→ server      received, forwarded, left out: report of the faults
//!       ├─ lines ──→ faults ─→ server      received, stored, missing: counts of the server
//!       └─ PLC ←─── faults ←── server
//! ```
//!
//! Ends with an error at the first count that does not agree.

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

/// Max time for sent frames to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Query timeout: counting an hour of a thousand channels at 1 kHz row by row is slow.
const COUNTING: &str = "\n[query]\nstatement_timeout_s = 1800\n";
/// Time without new frames after which everything sent has arrived.
const QUIET: Duration = Duration::from_secs(2);

/// Faults of packets, of lines, and of the PLC's notifications. The PLC's clock is not changed, since it identifies
/// its cycles.
const PACKET_FAULTS: &str = "--loss 0.002 --burst 5 --duplicate 0.002 --reorder 0.002 --garble 0.0005 --jitter 3ms \
    --silence 2s/23s --clock-jump 1500ms/17s";
const LINE_FAULTS: &str = "--loss 0.0005 --duplicate 0.0005 --reorder 0.0005 --garble 0.0002 --jitter 3ms \
    --silence 1s/29s --reconnect-every 19s";
const PLC_FAULTS: &str = "--loss 0.0005 --jitter 2ms --silence 1s/31s --reconnect-every 13s";

/// Options of `bench faults`.
#[derive(Clone, Debug, clap::Args)]
pub struct FaultsArguments {
    /// Time for which the pad sends, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub duration_s: u64,
    /// Runs for fifteen seconds
    #[arg(long)]
    pub quick: bool,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder to work in, kept afterwards [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

/// Counts of one stream, in frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamBooks {
    /// Name of the stream.
    pub stream: String,
    /// Number of frames sent, as counted by sender and faults.
    pub sent: u64,
    /// Number of sent frames that were forwarded intact.
    pub delivered: u64,
    /// Number of frames received.
    pub received: u64,
    /// Number of frames stored.
    pub stored: u64,
    /// Number of stored frames with a further part of a cycle that already has a frame: a PLC that was asked for two
    /// parts of its memory in two of its cycles sends them in two frames from then on.
    pub parts: u64,
    /// Number of duplicate frames.
    pub duplicate: u64,
    /// Number of frames left out by a lossy channel.
    pub reduced: u64,
    /// Number of frames refused.
    pub rejected: u64,
    /// Number of frames missing according to the ledger.
    pub missing: u64,
}

/// Result of a run. A count that does not agree ends it with an error instead.
#[derive(Clone, Debug, Serialize)]
pub struct FaultsResult {
    machine: Machine,
    duration_s: u64,
    /// Counts of every stream whose frames are numbered, by a sequence or by cycles.
    pub numbered: Vec<StreamBooks>,
    /// Counts of streams of lines: missing lines cannot be known; forwarded ones are stored.
    pub lines: Vec<StreamBooks>,
    /// Reports of the pad and of each process of faults.
    pub reports: Vec<Value>,
}

/// Runs the pad through the faults and compares the counts.
///
/// # Errors
/// A process fails, or a count does not agree.
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
    // In the second set, fti, ilp and http are where the faults listen, and pg is the PLC.
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
    // A line that cannot be parsed is not counted under a particular source of lines.
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
