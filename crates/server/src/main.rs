//! The `strongback` binary: a table of contents.

use std::process::ExitCode;

use clap::Parser;
use strongback_server::cli::{AdsCommand, Cli, Command, SimulateCommand, SourcesCommand, arguments};
use strongback_server::commands::outcome::{Outcome, end_quietly_on_closed_output, exit_code};
use strongback_server::commands::{
    archive, bench, check, demo, derived, doctor, export, import, mark, playback, run, serve, store, symbols,
};
use strongback_server::logging;

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    end_quietly_on_closed_output();
    let cli = Cli::parse_from(arguments(std::env::args_os()));
    let _log = logging::start();
    exit_code(&match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Archive(command) => archive::run(&command),
        Command::Check(args) => check::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Run(command) => run::run(&command),
        Command::Mark(command) => mark::run(&command),
        Command::Playback(command) => playback::run(&command),
        Command::Derived(command) => derived::run(&command),
        Command::Store(command) => store::run(&command),
        Command::Sources(SourcesCommand::Ads(AdsCommand::Symbols(args))) => symbols::run(&args),
        Command::Simulate(SimulateCommand::Pad(args)) => strongback_sim::run_pad(args).map(|_| Outcome::Done),
        Command::Simulate(SimulateCommand::Faults(args)) => strongback_sim::run_faults(&args).map(|_| Outcome::Done),
        Command::Bench(command) => bench::run(&command),
    })
}
