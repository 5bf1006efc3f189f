//! The screens of a launch: many endpoints with eight channels each, updated every 200 ms, on the whole pad.

use std::time::Duration;

use anyhow::{Context, bail};

use super::client::{Client, Form};
use super::crowd::{self, CrowdResult};
use crate::http::HttpConnection;
use crate::serving::ServerProcess;

/// Updates per second.
const RATE_HZ: f64 = 5.0;
/// Number of channels of an endpoint.
const CHANNELS: usize = 8;
/// Streams of the endpoints, in turn: avionics at 25 Hz, packets at 50 Hz, a PLC at 1 kHz.
const TABLES: [&str; 4] = ["avionics.sensor_values", "fti.bay", "plc.fast", "avionics.imu"];

/// Returns eight channels of one stream for each of `count` endpoints.
fn screens(server: &ServerProcess, count: usize) -> anyhow::Result<Vec<Vec<String>>> {
    let mut http = HttpConnection::open(server.http, Duration::from_secs(30))?;
    let mut streams: Vec<Vec<String>> = Vec::new();
    for table in TABLES {
        let answer = http.json(&format!("/api/channels?pattern={table}.%2A&limit=1000"))?;
        let channels = answer["channels"].as_array().context("channels")?;
        let mut of: Vec<(u64, Vec<String>)> = Vec::new();
        for channel in channels {
            let (stream, name) =
                (channel["stream"].as_u64().context("stream")?, channel["name"].as_str().context("name")?);
            match of.iter_mut().find(|(id, _)| *id == stream) {
                Some((_, names)) => names.push(name.to_owned()),
                None => of.push((stream, vec![name.to_owned()])),
            }
        }
        streams.extend(of.into_iter().map(|(_, names)| names).filter(|names| names.len() >= CHANNELS));
    }
    if streams.is_empty() {
        bail!("no stream has {CHANNELS} channels");
    }
    Ok((0..count)
        .map(|i| {
            let names = &streams[i % streams.len()];
            let first = i / streams.len() * CHANNELS % (names.len() - CHANNELS + 1);
            names[first..first + CHANNELS].to_vec()
        })
        .collect())
}

/// Measures `count` endpoints for a time.
///
/// # Errors
/// A client is refused, or receives nothing.
pub(super) fn run(server: &ServerProcess, count: usize, form: Form, span: Duration) -> anyhow::Result<CrowdResult> {
    crowd::measure(server, clients(server, count, form)?, span)?.result(name(count, form), 1e3 / RATE_HZ)
}

/// Measures `count` endpoints for `minutes`, on the same connections; calls `each` with every minute.
///
/// # Errors
/// A client is refused, or receives nothing.
pub(super) fn soak(
    server: &ServerProcess,
    count: usize,
    minutes: u64,
    mut each: impl FnMut(CrowdResult),
) -> anyhow::Result<()> {
    let mut minute = 0;
    crowd::watch(
        server,
        clients(server, count, Form::Binary)?,
        (Duration::from_secs(60), minutes),
        || (),
        |crowd| {
            minute += 1;
            each(crowd.result(format!("minute {minute}"), 1e3 / RATE_HZ)?);
            Ok(())
        },
    )
}

fn clients(server: &ServerProcess, count: usize, form: Form) -> anyhow::Result<Vec<Client>> {
    let screens = screens(server, count)?;
    Ok(screens.into_iter().map(|channels| Client { channels, max_rate_hz: Some(RATE_HZ), form }).collect())
}

fn name(count: usize, form: Form) -> String {
    format!("{count} endpoints × {CHANNELS} channels, {RATE_HZ} Hz, {}", form.name())
}
