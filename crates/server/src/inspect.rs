//! `strongback store inspect|verify|adopt`: what a store holds, read without opening it; and an identity for a copy.

use strongback_store::Store;
use strongback_store::inspect::{self, Depth};

use crate::cli::StoreCommand;
use crate::outcome::Outcome;

/// Looks at a store, in a folder or of a fixed size, and prints what is there. Damage that was found is lost data.
///
/// # Errors
/// If the store cannot be read, or not be adopted.
pub fn run(command: &StoreCommand) -> anyhow::Result<Outcome> {
    let (dir, depth) = match command {
        StoreCommand::Inspect { dir } => (dir, Depth::Footers),
        StoreCommand::Verify { dir } => (dir, Depth::Everything),
        StoreCommand::Adopt { dir } => {
            let origin = Store::adopt(dir)?;
            println!("{}: its origin is now {origin:032x}", dir.display());
            return Ok(Outcome::Done);
        }
    };
    let found = inspect::inspect(dir, depth).map_err(|error| anyhow::anyhow!("{}: {error}", dir.display()))?;
    print!("{found}");
    Ok(if found.is_sound() { Outcome::Done } else { Outcome::DataLost })
}
