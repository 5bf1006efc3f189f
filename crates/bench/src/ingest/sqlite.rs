//! Durable ingest into SQLite: WAL, synchronous FULL, prepared statements, one wide row per frame, one transaction
//! per commit.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};
use strongback_store::{ChannelType, Value};

use super::{Course, EngineResult};
use crate::machine::thread_time;
use crate::recording::point_hash;

/// Writes the recording to a new database in `dir`.
pub(super) fn run(course: &Course<'_>, dir: &Path) -> anyhow::Result<EngineResult> {
    let recording = course.recording;
    let path = dir.join("pad.sqlite");
    let connection = Connection::open(&path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        bail!("SQLite stayed in journal mode {mode}");
    }
    connection.execute_batch("PRAGMA synchronous=FULL")?;
    let mut inserts: Vec<Statement<'_>> = Vec::new();
    for (index, stream) in recording.streams.iter().enumerate() {
        let columns: Vec<String> =
            stream.channels.iter().map(|c| format!("\"{}\" {}", c.name, affinity(c.channel_type))).collect();
        connection
            .execute_batch(&format!("CREATE TABLE s{index} (time INTEGER NOT NULL, {})", columns.join(", ")))
            .with_context(|| format!("table of {}", stream.key))?;
        let marks = vec!["?"; stream.channels.len() + 1].join(",");
        inserts.push(connection.prepare(&format!("INSERT INTO s{index} VALUES ({marks})"))?);
    }
    let mut commits_us = Vec::new();
    let (begin, begin_cpu) = (Instant::now(), thread_time());
    let mut committed = Instant::now();
    connection.execute_batch("BEGIN")?;
    for (lap, stretch) in course.stretches() {
        for frame in stretch {
            let insert = &mut inserts[frame.stream];
            insert.raw_bind_parameter(1, recording.in_lap(frame, lap).time_ns)?;
            for (index, value) in recording.cells(frame).iter().enumerate() {
                match *value {
                    Value::F32(v) => insert.raw_bind_parameter(index + 2, f64::from(v))?,
                    Value::F64(v) => insert.raw_bind_parameter(index + 2, v)?,
                    Value::I64(v) => insert.raw_bind_parameter(index + 2, v)?,
                    Value::Bool(v) => insert.raw_bind_parameter(index + 2, v)?,
                    Value::String(v) => insert.raw_bind_parameter(index + 2, v)?,
                    other => bail!("the pad sends no {other:?}"),
                }
            }
            insert.raw_execute()?;
        }
        if course.cadence.due(committed) {
            let at = Instant::now();
            connection.execute_batch("COMMIT")?;
            commits_us.push(at.elapsed().as_secs_f64() * 1e6);
            committed = Instant::now();
            connection.execute_batch("BEGIN")?;
        }
    }
    connection.execute_batch("COMMIT")?;
    let (elapsed, cpu) = (begin.elapsed(), thread_time() - begin_cpu);
    drop(inserts);
    connection.close().map_err(|(_, error)| error)?;
    let points = verify(course, &path)?;
    let bytes = std::fs::metadata(&path)?.len();
    Ok(EngineResult {
        engine: format!("SQLite {}", rusqlite::version()),
        cadence: course.cadence.name(),
        durability: "WAL, synchronous=FULL: every commit synced to disk".into(),
        points,
        seconds: elapsed.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        commits: commits_us.len() as u64 + 1,
        commit_us_p50: super::percentile(&mut commits_us, 0.5),
        commit_us_p99: super::percentile(&mut commits_us, 0.99),
        bytes_per_point: Some(bytes as f64 / points as f64),
    })
}

fn affinity(channel_type: ChannelType) -> &'static str {
    match channel_type {
        ChannelType::F32 | ChannelType::F64 => "REAL",
        ChannelType::String => "TEXT",
        _ => "INTEGER",
    }
}

fn verify(course: &Course<'_>, path: &Path) -> anyhow::Result<u64> {
    let connection = Connection::open(path)?;
    let (mut checksum, mut points) = (0u64, 0u64);
    for (index, stream) in course.recording.streams.iter().enumerate() {
        let mut select = connection.prepare(&format!("SELECT * FROM s{index} ORDER BY rowid"))?;
        let mut rows = select.query([])?;
        let mut ordinal = 0;
        while let Some(row) = rows.next()? {
            let time: i64 = row.get(0)?;
            for channel in 0..stream.channels.len() {
                let value = match row.get_ref(channel + 1)? {
                    ValueRef::Integer(v) => Value::I64(v),
                    ValueRef::Real(v) => Value::F64(v),
                    ValueRef::Text(v) => Value::String(std::str::from_utf8(v)?),
                    other => bail!("{}: {other:?}", stream.key),
                };
                checksum = checksum.wrapping_add(point_hash(index, ordinal, channel, time, value));
                points += 1;
            }
            ordinal += 1;
        }
    }
    course.check(points, checksum)?;
    Ok(points)
}
