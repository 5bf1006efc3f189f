//! `strongback store create`: creates a store with the streams of a definition.

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
use crate::text::plural::many;

/// Creates a store.
///
/// # Errors
/// If the definition or the size is invalid, or the place is not empty.
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
        println!("{path}: {what}; {} with {}", many(streams, "stream"), many(channels, "channel"));
    }
    Ok(Outcome::Done)
}

/// Returns whether the place is empty: nothing, an empty folder, or a device, which the store checks itself.
fn is_blank(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
        Ok(found) => !found.is_file(),
        Err(_) => true,
    }
}

/// Returns the options of a store of this size, with room for the streams and channels of the definition, for four
/// channels of each further stream it leaves room for, and at least for the default number of channels.
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
