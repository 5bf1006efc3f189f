//! `strongback bench sources`: decoding alone, packets through the whole path up to the first loss, a PLC's thousand
//! symbols at 1 kHz, and the precision of the kernel's timestamps.

mod decode;
mod plc;
mod rising;
mod stamps;

use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::machine::Machine;
use crate::serving::ServerProgram;
use crate::table::{Table, short};

/// Options of `bench sources`.
#[derive(Clone, Debug, clap::Args)]
pub struct SourcesArguments {
    /// Runs a few seconds of each part
    #[arg(long)]
    pub quick: bool,
    /// Runs only this part
    #[arg(long, value_enum)]
    pub only: Option<Part>,
    /// Time for which the PLC is read, in seconds [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub plc_s: Option<u64>,
    /// Prints the results as one JSON object on the last line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    program: ServerProgram,
}

/// Part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Decoding alone
    Decode,
    /// Packets at rising rates
    Rising,
    /// A PLC at 1 kHz
    Plc,
    /// Timestamps of kernel and program
    Stamps,
}

/// Decoding rate of one core.
#[derive(Clone, Debug, Serialize)]
pub struct DecodeRate {
    /// Name of the case.
    pub what: String,
    /// Packets, lines or notifications per second of processor time.
    pub messages_per_s: f64,
    /// Values per second of processor time.
    pub points_per_s: f64,
}

/// All results.
#[derive(Debug, Serialize)]
struct Results {
    machine: Machine,
    decode: Vec<DecodeRate>,
    rising: Option<rising::Rising>,
    plc: Option<plc::PlcResult>,
    stamps: Option<stamps::Stamps>,
}

/// Runs the benchmark.
///
/// # Errors
/// Any failure of the benchmark. A loss is a result, not an error.
pub fn run(arguments: &SourcesArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let machine = Machine::look(dir.path())?;
    println!("{}\n", machine.line());
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let seconds = |quick, full| Duration::from_secs(if arguments.quick { quick } else { full });
    let mut results = Results { machine, decode: Vec::new(), rising: None, plc: None, stamps: None };
    if wanted(Part::Decode) {
        results.decode =
            decode::run(if arguments.quick { Duration::from_millis(200) } else { Duration::from_secs(1) })?;
        let mut table = Table::new(["decoding alone, one core", "messages/s", "points/s"]);
        for rate in &results.decode {
            table.row([rate.what.clone(), short(rate.messages_per_s), short(rate.points_per_s)]);
        }
        table.print();
        println!();
    }
    if wanted(Part::Rising) {
        results.rising = Some(rising::run(&arguments.program, seconds(2, 10))?);
    }
    if wanted(Part::Plc) {
        let span = arguments.plc_s.map_or_else(|| seconds(5, 60), Duration::from_secs);
        results.plc = Some(plc::run(&arguments.program, span)?);
    }
    if wanted(Part::Stamps) {
        results.stamps = Some(stamps::run(seconds(2, 10))?);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&results)?);
    }
    Ok(())
}

/// Linear conversion from the wire to f32.
const STRAIGHT: &str = "polynomial = [-200.0, 0.0076]\nstore = 'f32'";

/// Returns the text of an iNET-X `[[source]]` without its head: `streams` streams, each of `channels` 16-bit
/// channels.
fn packet_source(listen: &str, streams: usize, channels: usize, more: &str) -> String {
    let mut text = format!("name = 'packets'\nkind = 'inetx'\nlisten = '{listen}'\nptp_scale = 'utc'\n");
    for stream in 0..streams {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[[stream]]\nid = {stream}\ntable = 'packets.s{stream:02}'");
        for channel in 0..channels {
            let _ = writeln!(
                text,
                "[[stream.channel]]\nname = 'c{channel:02}'\noffset = {}\ntype = 'u16'\n{more}",
                channel * 2
            );
        }
    }
    text
}

/// Returns a packet of a stream.
fn packet(stream: u32, sequence: u32, channels: usize) -> Vec<u8> {
    let length = 28 + 2 * channels as u32;
    let words = [0x1100_0000, stream, sequence, length, 1_700_000_000, 0, 0];
    let mut packet: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    // A slow wave with some noise in its lowest bits, like that of sensors.
    let noise = |channel: u32| (sequence ^ channel).wrapping_mul(0x9e37_79b9) >> 30;
    let value = |channel: u32| (channel * 509).wrapping_add(sequence / 3).wrapping_add(noise(channel)) as u16;
    packet.extend((0..channels as u32).flat_map(|channel| value(channel).to_be_bytes()));
    packet
}
