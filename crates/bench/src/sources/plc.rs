//! A thousand symbols of a PLC at 1 kHz in addition to the rest of the pad, on real sockets: missing cycles, and the
//! length of the pauses between frames.

use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use crate::http::HttpConnection;
use crate::serving::{Ports, STRAIN, ServerProcess, ServerProgram, start_pad};
use crate::table::Table;

/// Limits of pauses in milliseconds, those for which a launch pad's thesis gives shares.
const LIMITS_MS: [u32; 5] = [2, 5, 25, 45, 110];
/// Streams whose pauses are reported, and their period.
const STREAMS: [(&str, &str); 5] = [
    ("plc.strain", "1 ms"),
    ("plc.fast", "1 ms"),
    ("fti.bay", "20 ms"),
    ("avionics.gnc", "40 ms"),
    ("plc.lox", "100 ms"),
];
/// Max time to wait for an answer: sorting ten minutes of 1 kHz is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pauses between the frames of one stream.
#[derive(Clone, Debug, Serialize)]
struct Pauses {
    stream: String,
    frames: u64,
    missing: u64,
    /// Shares of pauses over 2, 5, 25, 45 and 110 ms, by the source's stamps.
    by_source: [f64; LIMITS_MS.len()],
    /// Shares of the same pauses by the receiver's stamps.
    by_receiver: [f64; LIMITS_MS.len()],
}

/// Result of reading a PLC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PlcResult {
    seconds: u64,
    symbols_at_1_khz: u64,
    /// Number of cycles that the PLC counted between the first and the last frame, that are stored, and that are
    /// missing.
    cycles: u64,
    stored: u64,
    missing: u64,
    server_core_percent: f64,
    pauses: Vec<Pauses>,
}

fn pauses(http: &mut HttpConnection, stream: &str) -> anyhow::Result<Pauses> {
    let mut shares = |of: &str| -> anyhow::Result<(u64, [f64; LIMITS_MS.len()])> {
        let over: Vec<String> = LIMITS_MS
            .iter()
            .map(|ms| format!("coalesce(sum(case when pause > {ms} * 1000000 then 1 else 0 end), 0)"))
            .collect();
        let sql = format!(
            "select count(*), {} from (select {of} - lag({of}) over (order by {of}) as pause from \"{stream}\")",
            over.join(", ")
        );
        let counts = http.sql_row(&sql)?;
        let mut shares = [0.0; LIMITS_MS.len()];
        for (share, over) in shares.iter_mut().zip(&counts[1..]) {
            *share = *over as f64 / counts[0].saturating_sub(1).max(1) as f64;
        }
        Ok((counts[0], shares))
    };
    let (frames, by_source) = shares("time_ns")?;
    let (_, by_receiver) = shares("receive_time_ns")?;
    let missing = format!("select coalesce(sum(open), 0) from strongback.gaps where stream_name like '{stream}%'");
    let missing = http.sql_row(&missing)?[0];
    Ok(Pauses { stream: stream.to_owned(), frames, missing, by_source, by_receiver })
}

/// Reads the pad's PLC for the given time.
pub(super) fn run(program: &ServerProgram, span: Duration) -> anyhow::Result<PlcResult> {
    let dir = tempfile::tempdir().context("temporary folder")?;
    let [ports, others] = Ports::reserve()?;
    let plc = others.http;
    let mut config = strongback_sim::pad_config_at(ports.fti);
    config.push_str(&strongback_sim::plc_config(plc));
    config.push_str(STRAIN);
    // Use the PLC's own time, since its stamps are examined.
    let config = config.replacen("kind = \"ads\"", "kind = \"ads\"\nclock = \"source\"", 1);
    let more = format!("--loss 0 --plc {plc}");
    let pad = start_pad(&program.path()?, dir.path(), ports.fti, ports.ilp, &more)?;
    let server = ServerProcess::start_at(program, dir.path(), &ports, &config)?;
    let cpu = server.usage().cpu_s;
    std::thread::sleep(span);
    let server_core_percent = (server.usage().cpu_s - cpu) * 100.0 / span.as_secs_f64();
    pad.stop()?;
    // Not earlier: the server closes an idle connection.
    let mut http = HttpConnection::open(ports.http, PATIENCE)?;
    let counter = "select max(\"FAST.cycle\") - min(\"FAST.cycle\") + 1, count(distinct \"FAST.cycle\"), count(*) from \"plc.strain\"";
    let counted = http.sql_row(counter)?;
    if counted[1] != counted[2] {
        bail!("{} frames of {} cycles", counted[2], counted[1]);
    }
    let symbols = http.sql_row("select count(*) from information_schema.columns where table_name = 'plc.strain' and (column_name like 'FAST.strain%' or column_name like 'FAST.cycle%')")?[0];
    let mut table = Table::new([
        "pauses between frames",
        "period",
        "frames",
        "missing",
        "> 2 ms",
        "> 5 ms",
        "> 25 ms",
        "> 45 ms",
        "> 110 ms",
    ]);
    let mut all = Vec::new();
    for (stream, period) in STREAMS {
        let pauses = pauses(&mut http, stream)?;
        for (by, shares) in [("source", pauses.by_source), ("receiver", pauses.by_receiver)] {
            let [a, b, c, d, e] = shares.map(|share| format!("{:.3} %", share * 100.0));
            let name = format!("{stream}, by the {by}'s stamps");
            table.row([name, period.to_owned(), pauses.frames.to_string(), pauses.missing.to_string(), a, b, c, d, e]);
        }
        all.push(pauses);
    }
    table.print();
    let missing = counted[0] - counted[1];
    println!(
        "{symbols} symbols at 1 kHz for {} s: {} cycles, {missing} missing; the server took {server_core_percent:.0} % of a core\n",
        span.as_secs(),
        counted[0]
    );
    server.stop()?;
    Ok(PlcResult {
        seconds: span.as_secs(),
        symbols_at_1_khz: symbols,
        cycles: counted[0],
        stored: counted[1],
        missing,
        server_core_percent,
        pauses: all,
    })
}
