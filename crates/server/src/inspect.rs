//! `strongback store inspect|verify`: what a folder holds, read without opening it.

use strongback_store::inspect::{self, Depth};

use crate::cli::StoreCommand;
use crate::outcome::Outcome;

/// Looks at a store's folder and prints what is there. Damage that was found is lost data.
///
/// # Errors
/// If the folder cannot be read.
pub fn run(command: &StoreCommand) -> anyhow::Result<Outcome> {
    let (dir, depth) = match command {
        StoreCommand::Inspect { dir } => (dir, Depth::Footers),
        StoreCommand::Verify { dir } => (dir, Depth::Everything),
    };
    let found = inspect::inspect(dir, depth).map_err(|error| anyhow::anyhow!("{}: {error}", dir.display()))?;
    print!("{found}");
    Ok(if found.is_sound() { Outcome::Done } else { Outcome::DataLost })
}
