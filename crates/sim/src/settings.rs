//! The server's configuration for the pad: packet layouts, units of line-protocol channels, the launch view.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use serde_json::json;

use crate::channel::{PadSource, PadStream};
use crate::inetx::places;
use crate::pad::{Pad, PadOptions};

/// Default address for iNET-X packets.
pub const FTI_ADDRESS: &str = "127.0.0.1:4440";

/// Returns the part of `strongback.toml` that describes the pad, listening on [`FTI_ADDRESS`].
pub fn pad_config() -> String {
    config(FTI_ADDRESS)
}

/// Returns the same part with another address for the iNET-X packets.
pub fn pad_config_at(fti: SocketAddr) -> String {
    config(&fti.to_string())
}

/// Returns the part of `strongback.toml` that reads the pad's PLC over ADS: for each stream that the pad would
/// otherwise send as lines, a group of the same name.
pub fn plc_config(plc: SocketAddr) -> String {
    let mut out = format!("\n[[source]]\nname = \"plc\"\nkind = \"ads\"\nhost = \"{plc}\"\n");
    for stream in Pad::new(PadOptions::default()).streams() {
        let (symbols, exclude) = match stream.source {
            PadSource::PlcFast => ("FAST.".to_owned(), "\"FAST.cycle*\", \"FAST.strain_????\""),
            // Structures and arrays of the same values.
            PadSource::Plc => {
                (stream.table.replacen("plc.", "MAIN.", 1) + ".", "\"*.tank.*\", \"*.raw[*\", \"*.load[*\"")
            }
            _ => continue,
        };
        let _ = write!(
            out,
            "\n[[source.group]]\ntable = \"{}\"\nsymbols = [\"{symbols}*\"]\nexclude = [{exclude}]\nstrip = \"{symbols}\"\n\
             mode = \"cyclic-notification\"\ncycle_ms = {:.1}\n",
            stream.table,
            stream.period_ns as f64 / 1e6
        );
    }
    out
}

fn config(fti: &str) -> String {
    let pad = Pad::new(PadOptions::default());
    let mut out = String::from("# The simulated launch pad.\n\n");
    let _ = write!(
        out,
        "[[source]]\nname = \"fti\"\nkind = \"inetx\"\nlisten = \"{fti}\"\nptp_scale = \"utc\"\nclock = \"source\"\n"
    );
    for stream in pad.streams() {
        layout(stream, &mut out);
    }
    let mut said = BTreeSet::new();
    for stream in pad.streams().iter().filter(|s| s.source != PadSource::Fti) {
        for channel in &stream.channels {
            let pattern = format!("{}.{}", stream.table, channel.group);
            if !said.insert(pattern.clone()) {
                continue;
            }
            let _ = writeln!(out, "\n[[channel]]\npattern = \"{pattern}\"");
            if !channel.unit.is_empty() {
                let _ = writeln!(out, "unit = \"{}\"", channel.unit);
            }
            let _ = writeln!(out, "description = \"{}\"", channel.description);
            let _ = writeln!(out, "expected_period_ms = {}", stream.period_ns / 1_000_000);
        }
    }
    out
}

fn layout(stream: &PadStream, out: &mut String) {
    let Some(id) = stream.inetx_id else { return };
    let samples = stream.burst;
    let packet_ms = stream.period_ns * i64::from(samples) / 1_000_000;
    // A sub-frame stream's table is the layout's, with `.x<n>` added by the decoder.
    let table = stream.table.strip_suffix(&format!(".x{samples}")).unwrap_or(&stream.table);
    let _ = writeln!(out, "\n[[source.stream]]\nid = 0x{id:03X}\ntable = \"{table}\"\nperiod_ms = {packet_ms}");
    for (channel, place) in stream.channels.iter().zip(places(stream)) {
        let _ = writeln!(out, "\n[[source.stream.channel]]\nname = \"{}\"", channel.name);
        let _ = writeln!(out, "offset = {}\ntype = \"{}\"", place.offset, place.wire);
        if let Some((bit, bits)) = place.bits {
            let _ = writeln!(out, "bit = {bit}\nbits = {bits}");
        }
        if place.little {
            out.push_str("endian = \"little\"\n");
        }
        if let Some((_, [offset, lsb])) = channel.converter() {
            let _ = writeln!(out, "polynomial = [{offset:?}, {lsb:?}]\nstore = \"f32\"");
        }
        if samples > 1 {
            let _ = writeln!(out, "samples = {samples}\nperiod_us = {}", stream.period_ns / 1000);
        }
        if !channel.unit.is_empty() {
            let _ = writeln!(out, "unit = \"{}\"", channel.unit);
        }
        let _ = writeln!(out, "description = \"{}\"", channel.description);
    }
}

/// Returns the prepared page layout of `GET /api/view`.
///
/// `run.t0` is null, as holds move it; `run.clock` names the countdown clock, in seconds.
pub fn launch_view() -> serde_json::Value {
    json!({
        "title": "Launch view",
        "run": { "name": "Simulated pad", "t0": null, "clock": "plc.gse.t_clock" },
        "panels": [
            {
                "kind": "plot", "title": "LOX tank", "span_s": 60,
                "channels": [
                    "avionics.sensor_values.p_lox_tank{acu=1}",
                    "plc.fast.p_lox_tank",
                    "avionics.sensor_values.p_lox_ullage_sp{acu=1}"
                ]
            },
            {
                "kind": "plot", "title": "Engine bay temperatures", "span_s": 60,
                "channels": ["fti.bay.t_turbopump", "fti.bay.t_gg_wall", "fti.bay.t_bay_01", "fti.bay.t_bay_04"]
            },
            {
                "kind": "states", "title": "Valves and states", "span_s": 60,
                "channels": [
                    "plc.lox.fill_valve", "plc.lox.vent_valve", "plc.lox.press_valve", "plc.gse.umbilical",
                    "avionics.gnc.mode", "plc.power.source", "plc.gse.fts"
                ]
            },
            {
                "kind": "now", "title": "Now", "span_s": 60,
                "channels": [
                    "plc.gse.t_clock", "plc.gse.phase",
                    "avionics.sensor_values.p_lox_tank{acu=1}", "avionics.sensor_values.p_fuel_tank{acu=1}",
                    "avionics.gnc.thrust_cmd", "avionics.sensor_values.bus_28v{acu=1}",
                    "avionics.imu.acc_x{unit=a}", "plc.gse.wind_gust"
                ]
            }
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_toml_with_every_channel_once() {
        let parsed: toml::Table = pad_config().parse().unwrap();
        let streams = parsed["source"][0]["stream"].as_array().unwrap();
        assert_eq!(streams.len(), 3);
        let points: i64 = streams
            .iter()
            .flat_map(|s| s["channel"].as_array().unwrap())
            .map(|c| c.get("samples").and_then(|v| v.as_integer()).unwrap_or(1))
            .sum();
        assert_eq!(points * 50, 2_500);
        let patterns: Vec<&str> =
            parsed["channel"].as_array().unwrap().iter().map(|c| c["pattern"].as_str().unwrap()).collect();
        let matches = |pattern: &str, name: &str| {
            pattern.len() == name.len() && pattern.bytes().zip(name.bytes()).all(|(p, n)| p == b'?' || p == n)
        };
        for stream in Pad::new(PadOptions::default()).streams().iter().filter(|s| s.source != PadSource::Fti) {
            for channel in &stream.channels {
                let name = format!("{}.{}", stream.table, channel.name);
                let found = patterns.iter().filter(|p| matches(p, &name)).count();
                assert_eq!(found, 1, "{name}");
            }
        }
    }

    #[test]
    fn layouts_hold_for_every_seed() {
        let converters = |seed| {
            let pad = Pad::new(PadOptions { seed, ..PadOptions::default() });
            let fti = pad.streams().iter().filter(|s| s.source == PadSource::Fti);
            fti.flat_map(|s| s.channels.iter().map(|c| c.converter())).collect::<Vec<_>>()
        };
        assert_eq!(converters(1), converters(2));
    }

    #[test]
    fn the_launch_view_names_channels_that_exist() {
        let pad = Pad::new(PadOptions::default());
        let mut names = BTreeSet::new();
        for stream in pad.streams() {
            let tags: Vec<String> = stream.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
            names.extend(stream.channels.iter().map(|c| format!("{}.{}{tags}", stream.table, c.name)));
        }
        let view = launch_view();
        let mut channels = Vec::new();
        for panel in view["panels"].as_array().unwrap() {
            channels.extend(panel["channels"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()));
        }
        for channel in channels {
            assert!(names.contains(channel), "{channel}");
        }
    }
}
