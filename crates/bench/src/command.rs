//! The command line: one subcommand per benchmark.

use crate::{archives, crash, embedded, faults, hostile, ingest, live, query, soak, sources};

/// Benchmark to run. Each prints its tables, the machine it ran on, and the sizes on disk.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Measure durable ingest: the embedded store against SQLite, and line protocol into servers
    Ingest(ingest::IngestArguments),
    /// Measure the store as a recorder against SQLite, H2, Derby, DuckDB, RocksDB and MariaDB: load, size, recovery,
    /// reads
    Embedded(embedded::EmbeddedArguments),
    /// Run one engine of `bench embedded`, in its own process
    #[command(hide = true)]
    EmbeddedEngine(embedded::EngineArguments),
    /// Run one store of `bench embedded --only scale`, in its own process
    #[command(hide = true)]
    EmbeddedScale(embedded::ScaleArguments),
    /// Measure the latency from the timestamp in the payload to decoded values at 20 subscribers
    Live(live::LiveArguments),
    /// Measure queries for the last 500 ms of 8 channels over the PostgreSQL protocol
    Query(query::QueryArguments),
    /// Measure decoding, packets at rising rates, a PLC at 1 kHz, and kernel timestamps
    Sources(sources::SourcesArguments),
    /// Measure how fast followers fill PostgreSQL, MariaDB, QuestDB, Elasticsearch and Kafka, beside their own loaders
    Archives(archives::ArchivesArguments),
    /// Kill the server repeatedly while it writes, and compare every row
    Crash(crash::CrashArguments),
    /// Run the server while its disk fills and empties, its clock leaps and it is killed, and check that counts agree
    Soak(soak::SoakArguments),
    /// Run the simulated pad through a network that loses, duplicates, delays and cuts, and check that counts agree
    Faults(faults::FaultsArguments),
    /// Attack the server with clients that try to crash it, exhaust its memory or starve others
    Hostile(hostile::HostileArguments),
}

/// Runs a benchmark.
///
/// # Errors
/// Any failure of the benchmark; a figure is printed only for data that was read back.
pub fn run_bench(command: &BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Ingest(arguments) => ingest::run(arguments),
        BenchCommand::Embedded(arguments) => embedded::run(arguments),
        BenchCommand::EmbeddedEngine(arguments) => embedded::run_engine(arguments),
        BenchCommand::EmbeddedScale(arguments) => embedded::run_scale(arguments),
        BenchCommand::Live(arguments) => live::run(arguments),
        BenchCommand::Query(arguments) => query::run(arguments),
        BenchCommand::Sources(arguments) => sources::run(arguments),
        BenchCommand::Archives(arguments) => archives::run(arguments),
        BenchCommand::Crash(arguments) => crash::run(arguments).map(drop),
        BenchCommand::Soak(arguments) => soak::run(arguments),
        BenchCommand::Faults(arguments) => faults::run(arguments),
        BenchCommand::Hostile(arguments) => hostile::run(arguments),
    }
}
