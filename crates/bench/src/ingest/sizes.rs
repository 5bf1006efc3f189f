//! Bytes per point of real recordings, stored and read back: launch telemetry of a webcast, a vehicle's CAN bus,
//! iNET-X packets. The recordings are not part of the repository; if they are missing, the section says so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Serialize;
use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Scan, Store, StoreOptions, StreamKey, StreamSpec,
    Value,
};

/// A recording's size in the store.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SizeResult {
    /// Name of the recording.
    pub(super) name: String,
    /// Number of streams.
    pub(super) streams: usize,
    /// Number of frames.
    pub(super) frames: u64,
    /// Number of values, all read back equal.
    pub(super) points: u64,
    /// Bytes of encoded blocks, including times and headers.
    pub(super) block_bytes: u64,
    /// Bytes per value.
    pub(super) bytes_per_point: f64,
}

/// Stream in memory: a time and a value of each channel for each row.
struct Series {
    key: StreamKey,
    channels: Vec<String>,
    channel_type: ChannelType,
    rows: Vec<(i64, Vec<f64>)>,
}

/// Stores every recording found under `folder` in new stores under `dir`.
pub(super) fn run(folder: &Path, dir: &Path) -> anyhow::Result<Vec<SizeResult>> {
    let mut results = Vec::new();
    for (name, read) in [("launch", launch as fn(&Path) -> _), ("vehicle_j1939", vehicle), ("inetx", inetx)] {
        let path = folder.join(name);
        if !path.is_dir() {
            println!("{name} left out: no folder {}", path.display());
            continue;
        }
        let series: Vec<Series> = read(&path).with_context(|| path.display().to_string())?;
        let own = tempfile::tempdir_in(dir)?;
        results.push(store(name, &series, own.path()).with_context(|| name.to_string())?);
    }
    Ok(results)
}

fn value(channel_type: ChannelType, value: f64) -> Value<'static> {
    match channel_type {
        // Words of packets: integers below 65,536.
        ChannelType::U16 => Value::U16(value as u16),
        _ => Value::F64(value),
    }
}

fn store(name: &str, all: &[Series], dir: &Path) -> anyhow::Result<SizeResult> {
    let now = all.iter().flat_map(|s| s.rows.iter().map(|r| r.0)).max().unwrap_or(0);
    let store = Store::open(dir, StoreOptions { max_bytes: Some(4 << 30), ..StoreOptions::default() }, now)?;
    let mut targets = Vec::new();
    let (mut frames, mut points) = (0u64, 0u64);
    for series in all {
        let spec = StreamSpec {
            key: series.key.clone(),
            source: name.into(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: series.channels.iter().map(|c| ChannelSpec::new(c.as_str(), series.channel_type)).collect(),
        };
        let (stream, channels) = store.resolve(&spec, now)?;
        for rows in series.rows.chunks(1_000) {
            let mut batch = FrameBatch::new();
            for (time_ns, values) in rows {
                batch.begin(FrameHead {
                    stream: stream.id,
                    receive_time: *time_ns,
                    source_time: Some(*time_ns),
                    sequence: None,
                });
                for (channel, v) in channels.iter().zip(values) {
                    batch.push(*channel, value(series.channel_type, *v));
                }
                batch.end();
            }
            let appended = store.append(&batch, now);
            if let Some(outcome) = appended.outcomes.iter().find(|o| !matches!(o, Outcome::Stored { .. })) {
                bail!("{}: a frame was not stored: {outcome:?}", series.key);
            }
            store.commit(now)?;
            while store.maintain(now)? {}
        }
        frames += series.rows.len() as u64;
        points += series.rows.iter().map(|r| r.1.len() as u64).sum::<u64>();
        targets.push((stream.id, channels));
    }
    store.close(now)?;
    let stats = store.stats();
    drop(store);
    let store = Store::open(dir, StoreOptions::default(), now)?;
    let view = store.view();
    for (series, (stream, channels)) in all.iter().zip(&targets) {
        let mut rows = series.rows.iter();
        for batch in view.scan(Scan::all(*stream, channels.clone())) {
            let batch = batch?;
            for row in 0..batch.len() {
                let Some((time_ns, values)) = rows.next() else { bail!("{}: too many rows", series.key) };
                let same = batch.time(row) == *time_ns
                    && batch
                        .columns
                        .iter()
                        .zip(values)
                        .all(|(c, v)| c.cell(row).is_ok_and(|c| c.bits() == value(series.channel_type, *v).bits()));
                if !same {
                    bail!("{}: row {} reads back otherwise", series.key, batch.rows[row]);
                }
            }
        }
        if rows.next().is_some() {
            bail!("{}: rows are missing", series.key);
        }
    }
    if stats.block_points != points {
        bail!("{} of {points} points are in blocks after closing", stats.block_points);
    }
    Ok(SizeResult {
        name: name.into(),
        streams: all.len(),
        frames,
        points,
        block_bytes: stats.block_bytes,
        bytes_per_point: stats.block_bytes as f64 / points as f64,
    })
}

/// Reads webcast telemetry: objects of equally long arrays, one of them `time` in seconds.
fn launch(folder: &Path) -> anyhow::Result<Vec<Series>> {
    let mut all = Vec::new();
    for mission in sorted(folder)? {
        for file in sorted(&mission)? {
            let text = std::fs::read_to_string(&file)?;
            let Ok(object) = serde_json::from_str::<BTreeMap<String, Vec<f64>>>(&text) else { continue };
            let Some(times) = object.get("time") else { continue };
            let channels: Vec<&String> = object.keys().filter(|k| *k != "time").collect();
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().replace(' ', "_");
            let flight = mission.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let row = |i: usize, seconds: &f64| {
                let values = channels.iter().map(|c| object[*c].get(i).copied().unwrap_or(f64::NAN)).collect();
                ((seconds * 1e9).round() as i64, values)
            };
            let rows = times.iter().enumerate().map(|(i, seconds)| row(i, seconds)).collect();
            let key = StreamKey::new(format!("launch.{stem}"), [("flight".to_string(), flight)]);
            let channels = channels.iter().map(|c| c.to_string()).collect();
            all.push(Series { key, channels, channel_type: ChannelType::F64, rows });
        }
    }
    Ok(all)
}

/// Reads decoded CAN signals, one per line: `unix_time_s,channel,value`. Signals of one instant are one frame.
fn vehicle(folder: &Path) -> anyhow::Result<Vec<Series>> {
    let text = std::fs::read_to_string(folder.join("css_11111111_decoded_long.csv"))?;
    let mut frames: Vec<(i64, Vec<(&str, f64)>)> = Vec::new();
    for line in text.lines().skip(1) {
        let mut parts = line.split(',');
        let (Some(time), Some(channel), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("line {line:?}")
        };
        // Seconds with six decimals are whole microseconds, kept exactly.
        let (seconds, fraction) = time.split_once('.').context("a time without decimals")?;
        let time_ns = seconds.parse::<i64>()? * 1_000_000_000 + format!("{fraction:0<9}").parse::<i64>()?;
        let signal = (channel, value.parse()?);
        match frames.last_mut() {
            Some((last, signals)) if *last == time_ns && signals.iter().all(|(c, _)| *c != channel) => {
                signals.push(signal);
            }
            _ => frames.push((time_ns, vec![signal])),
        }
    }
    let mut by_channels: BTreeMap<Vec<&str>, Series> = BTreeMap::new();
    for (time_ns, mut signals) in frames {
        signals.sort_by_key(|(c, _)| *c);
        let channels: Vec<&str> = signals.iter().map(|(c, _)| *c).collect();
        let series = by_channels.entry(channels).or_insert_with_key(|channels| Series {
            key: StreamKey::new(format!("vehicle.{}", channels.join("_").replace('.', "_")), []),
            channels: channels.iter().map(|c| c.to_string()).collect(),
            channel_type: ChannelType::F64,
            rows: Vec::new(),
        });
        series.rows.push((time_ns, signals.into_iter().map(|(_, v)| v).collect()));
    }
    Ok(by_channels.into_values().collect())
}

/// Reads iNET-X packets of a capture with their payload as 16-bit words, without duplicates.
fn inetx(folder: &Path) -> anyhow::Result<Vec<Series>> {
    let bytes = std::fs::read(folder.join("acranet_sample.pcap"))?;
    let magic = bytes.get(..4).context("no capture")?;
    let nanoseconds = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => 1_000,
        [0x4d, 0x3c, 0xb2, 0xa1] => 1,
        _ => bail!("not a little-endian pcap file"),
    };
    let little = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let mut at = 24;
    let mut series: BTreeMap<u32, (Series, Vec<u32>)> = BTreeMap::new();
    while let (Some(seconds), Some(fraction), Some(length)) = (little(at), little(at + 4), little(at + 8)) {
        let packet = bytes.get(at + 16..at + 16 + length as usize).context("truncated capture")?;
        at += 16 + length as usize;
        let time_ns = i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * nanoseconds;
        // Ethernet, IPv4 without options, UDP, iNET-X with one option word.
        let Some(inetx) = packet.get(14 + 20 + 8..).filter(|p| p.len() >= 28) else { continue };
        let word = |at: usize| u32::from_be_bytes([inetx[at], inetx[at + 1], inetx[at + 2], inetx[at + 3]]);
        let end = (word(12) as usize).min(inetx.len());
        let values: Vec<f64> =
            inetx[28..end].chunks_exact(2).map(|w| f64::from(u16::from_be_bytes([w[0], w[1]]))).collect();
        let (series, sequences) = series.entry(word(4)).or_insert_with(|| {
            let key = StreamKey::new(format!("inetx.x{:08x}", word(4)), []);
            let channels = (0..values.len()).map(|i| format!("word_{i:02}")).collect();
            (Series { key, channels, channel_type: ChannelType::U16, rows: Vec::new() }, Vec::new())
        });
        if values.len() == series.channels.len() && !sequences.iter().rev().take(64).any(|s| *s == word(8)) {
            sequences.push(word(8));
            series.rows.push((time_ns, values));
        }
    }
    Ok(series.into_values().map(|(series, _)| series).collect())
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut all = std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    Ok(all)
}
