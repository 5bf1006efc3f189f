//! `strongback store`: works on a store without a server, as the owner of an embedded recorder does.

mod append;
mod blob;
mod create;
mod definitions;
mod look;
mod place;
mod read;
mod repair;
mod stats;

use strongback_store::Store;

use crate::cli::StoreCommand;
use crate::commands::export;
use crate::commands::outcome::Outcome;

/// Runs a command on a store.
///
/// # Errors
/// If the command fails.
pub fn run(command: &StoreCommand) -> anyhow::Result<Outcome> {
    match command {
        StoreCommand::Create(args) => create::run(args),
        StoreCommand::Append(args) => append::run(args),
        StoreCommand::Read(args) => read::run(args),
        StoreCommand::Export { .. } => match command.export_args() {
            // A store named by its path is not that of a server whose configuration is in the working directory.
            Some(args) => export::run_with(&args, None),
            None => Ok(Outcome::Done),
        },
        StoreCommand::Blob(args) => blob::run(args),
        StoreCommand::Stats(args) => stats::run(args),
        StoreCommand::Inspect(args) => look::inspect(args),
        StoreCommand::Verify(args) => look::verify(args),
        StoreCommand::Repair(args) => repair::run(args),
        StoreCommand::Bench(args) => crate::commands::bench::run_with(&["embedded"], args),
        StoreCommand::Adopt { path } => {
            let origin = Store::adopt(path)?;
            println!("{}: its origin is now {origin:032x}", path.display());
            Ok(Outcome::Done)
        }
    }
}
