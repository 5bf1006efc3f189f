//! The command line: one line a benchmark.

use crate::{crash, embedded, faults, hostile, ingest, live, query, soak, sources};

/// Benchmarks. Each prints its tables, the machine, and what its figures were worth on disk.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Durable ingest: the embedded store beside SQLite, line protocol into servers
    Ingest(ingest::IngestArguments),
    /// The store as a recorder beside SQLite, H2, Derby, DuckDB, RocksDB and MariaDB: load, size, recovery, reads
    Embedded(embedded::EmbeddedArguments),
    /// One engine of `bench embedded`, in its own process
    #[command(hide = true)]
    EmbeddedEngine(embedded::EngineArguments),
    /// One store of `bench embedded --only scale`, in its own process
    #[command(hide = true)]
    EmbeddedScale(embedded::ScaleArguments),
    /// Latency from the stamp in the payload to after decoding at 20 subscribers
    Live(live::LiveArguments),
    /// The last 500 ms of 8 channels over the PostgreSQL wire
    Query(query::QueryArguments),
    /// Decoding alone, packets at rising rates, a PLC at 1 kHz, kernel stamps
    Sources(sources::SourcesArguments),
    /// Kills the server again and again while it writes, and compares every row
    Crash(crash::CrashArguments),
    /// The server while its disk fills and empties, its clock leaps and it is killed, and compares the books
    Soak(soak::SoakArguments),
    /// The whole simulated pad through processes that lose, double, delay and cut, and compares the books
    Faults(faults::FaultsArguments),
    /// Clients that try to end the server, to fill its memory or to keep others out, beside well-behaved ones
    Hostile(hostile::HostileArguments),
}

/// Runs a benchmark.
///
/// # Errors
/// Whatever stops it; a figure is printed only for what was read back.
pub fn run_bench(command: &BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Ingest(arguments) => ingest::run(arguments),
        BenchCommand::Embedded(arguments) => embedded::run(arguments),
        BenchCommand::EmbeddedEngine(arguments) => embedded::run_engine(arguments),
        BenchCommand::EmbeddedScale(arguments) => embedded::run_scale(arguments),
        BenchCommand::Live(arguments) => live::run(arguments),
        BenchCommand::Query(arguments) => query::run(arguments),
        BenchCommand::Sources(arguments) => sources::run(arguments),
        BenchCommand::Crash(arguments) => crash::run(arguments).map(drop),
        BenchCommand::Soak(arguments) => soak::run(arguments),
        BenchCommand::Faults(arguments) => faults::run(arguments),
        BenchCommand::Hostile(arguments) => hostile::run(arguments),
    }
}
