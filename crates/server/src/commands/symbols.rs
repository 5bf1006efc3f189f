//! `strongback sources ads symbols`: lists the symbols of a PLC, for writing a group of them.

use std::io::Write;

use serde_json::json;
use strongback_sources::ads::browse::{Listing, browse};
use strongback_sources::ads::{Arrays, PlcAddress};

use crate::cli::SymbolsArgs;
use crate::commands::outcome::Outcome;
use crate::commands::output;
use crate::text::plural::many;

/// Lists the symbols of a PLC.
///
/// # Errors
/// If the PLC cannot be queried.
pub fn run(args: &SymbolsArgs) -> anyhow::Result<Outcome> {
    let target = PlcAddress {
        net_id: args.net_id,
        source_net_id: args.source_net_id,
        port: args.port,
        ..PlcAddress::of(&args.host).map_err(anyhow::Error::msg)?
    };
    let arrays = if args.whole_arrays { Arrays::Whole } else { Arrays::Elements };
    let listing = browse(&target, &args.filter, arrays)?;
    print(&listing, args.json, &mut output::standard())?;
    if let Some(damage) = &listing.damage {
        eprintln!("{}: {damage}; what comes after it is not listed", target.host);
        return Ok(Outcome::DataLost);
    }
    Ok(Outcome::Done)
}

fn print(listing: &Listing, as_json: bool, out: &mut impl Write) -> std::io::Result<()> {
    for leaf in &listing.leaves {
        let (name, place) = (&leaf.name, leaf.place);
        let kind = leaf.kind.channel_type().name();
        if as_json {
            let line = json!({
                "name": name, "type": leaf.type_name, "channel_type": kind, "unit": leaf.unit,
                "index_group": place.group, "index_offset": place.offset, "size": place.size,
                "description": leaf.description,
            });
            writeln!(out, "{line}")?;
        } else {
            let unit = if leaf.unit.is_empty() { String::new() } else { format!(" [{}]", leaf.unit) };
            writeln!(out, "{name:40} {:16} {kind}{unit}  {}", leaf.type_name, leaf.description)?;
        }
    }
    for part in &listing.skipped {
        match as_json {
            true => writeln!(out, "{}", json!({ "name": part.name, "skipped": part.why }))?,
            false => writeln!(out, "{:40} - {}", part.name, part.why)?,
        }
    }
    out.flush()?;
    if !as_json {
        let (major, minor, build) = listing.device.version;
        eprintln!(
            "{} {major}.{minor}.{build}: {}; {} listed, {} that cannot be read",
            listing.device.name,
            many(listing.symbols, "symbol"),
            many(listing.leaves.len(), "value"),
            many(listing.skipped.len(), "part")
        );
    }
    Ok(())
}
