//! `strongback store create`: a store with the streams of a definition.

use std::path::Path;

use anyhow::{Context, bail};
use strongback_sources::definition;
use strongback_store::rdl::StoreDefinition;
use strongback_store::{FixedOptions, Store};

use super::{definitions, place};
use crate::cli::CreateArgs;
use crate::commands::outcome::Outcome;
use crate::config::Config;
use crate::process::clock::now_ns;

/// Makes a store.
///
/// # Errors
/// A definition that cannot be meant, a size that cannot be, or a place where something is already.
pub(super) fn run(args: &CreateArgs) -> anyhow::Result<Outcome> {
    let definition = match &args.definition {
        Some(file) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(|| name.clone())?;
            definition::parse(&text, &name)?
        }
        None => StoreDefinition::default(),
    };
    let path = args.path.display();
    if args.path.exists() && !is_blank(&args.path) {
        bail!("{path} already exists");
    }
    let size = if args.folder { None } else { args.size.or(definition.file_bytes) };
    let mut options = Config::default().store_options();
    if let Some(most) = definition.max_streams {
        options.max_streams = most;
    }
    let store = match size {
        Some(bytes) => Store::create_fixed(&args.path, &fixed(&definition, bytes), options, now_ns())?,
        None => Store::open(&args.path, options, now_ns())?,
    };
    place::close(&store, definitions::write(&store, &definition))?;
    let channels: usize = definition.streams.iter().map(|stream| stream.elements.len()).sum();
    let streams = definition.streams.len();
    if args.json {
        let bytes = size.map(|bytes| bytes.to_string());
        let card =
            serde_json::json!({ "path": args.path, "size_bytes": bytes, "streams": streams, "channels": channels });
        println!("{card}");
    } else {
        let what = size.map_or("a folder that grows".to_owned(), |bytes| format!("{bytes} bytes, never more"));
        println!("{path}: {what}; {streams} streams with {channels} channels");
    }
    Ok(Outcome::Done)
}

/// Whether nothing is there: an empty folder; or a device, of which the store itself asks.
fn is_blank(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
        Ok(found) => !found.is_file(),
        Err(_) => true,
    }
}

/// How a store of this size is laid out: room for the streams and channels that the definition says, for four channels
/// of each stream that it leaves room for, and for as many as a store of its size has otherwise.
fn fixed(definition: &StoreDefinition, size_bytes: u64) -> FixedOptions {
    let mut fixed = FixedOptions::new(size_bytes);
    if definition.streams.is_empty() && definition.max_streams.is_none() {
        return fixed;
    }
    let defined = definition.streams.len() as u32;
    let channels: usize = definition.streams.iter().map(|stream| stream.elements.len()).sum();
    fixed.max_streams = definition.max_streams.unwrap_or(defined);
    let more = fixed.max_streams.saturating_sub(defined);
    fixed.max_channels = fixed.max_channels.max((channels as u32).saturating_add(more.saturating_mul(4)));
    fixed
}
