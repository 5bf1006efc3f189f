//! Durable ingest into the embedded store: append, commit and seal on one thread, then close, reopen and read back
//! every point.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use strongback_store::{ChannelIndex, FrameBatch, FrameHead, Outcome, Refusal, Scan, Store, StoreOptions, StreamId};

use super::{Course, EngineResult};
use crate::machine::thread_time;
use crate::recording::point_hash;

/// Durability of the figures.
const DURABILITY: &str = "every commit synced to disk";

/// Writes the recording to a new store in `dir`.
pub(super) fn run(course: &Course<'_>, dir: &Path) -> anyhow::Result<EngineResult> {
    let recording = course.recording;
    let first_ns = recording.frames.first().map_or(0, |f| f.time_ns);
    let options = StoreOptions { max_bytes: Some(8 << 30), ..StoreOptions::default() };
    let store = Store::open(dir, options.clone(), first_ns).context("open")?;
    let mut targets: Vec<(StreamId, Vec<ChannelIndex>)> = Vec::new();
    for spec in &recording.streams {
        let (stream, channels) = store.resolve(spec, first_ns)?;
        targets.push((stream.id, channels));
    }
    store.commit(first_ns)?;
    let mut batch = FrameBatch::new();
    let mut commits_us = Vec::new();
    let (begin, begin_cpu) = (Instant::now(), thread_time());
    let mut committed = Instant::now();
    let mut now = first_ns;
    for (lap, stretch) in course.stretches() {
        now = stretch.last().map_or(now, |f| recording.in_lap(f, lap).time_ns);
        batch.clear();
        for frame in stretch {
            let moved = recording.in_lap(frame, lap);
            let (stream, channels) = &targets[frame.stream];
            batch.begin(FrameHead {
                stream: *stream,
                receive_time: now,
                source_time: Some(moved.time_ns),
                sequence: None,
            });
            for (channel, value) in channels.iter().zip(recording.cells(frame)) {
                batch.push(*channel, *value);
            }
            batch.end();
        }
        append(&store, &batch, now)?;
        if course.cadence.due(committed) {
            let at = Instant::now();
            store.commit(now)?;
            commits_us.push(at.elapsed().as_secs_f64() * 1e6);
            committed = Instant::now();
        }
        // Seals pending data, a slice at a time, as the server's second thread does.
        while store.maintain(now)? {}
    }
    store.commit(now)?;
    let (elapsed, cpu) = (begin.elapsed(), thread_time() - begin_cpu);
    store.close(now).context("close")?;
    let stats = store.stats();
    let bytes_per_point = (stats.block_points > 0).then(|| stats.block_bytes as f64 / stats.block_points as f64);
    drop(store);
    let verified = verify(course, dir, options, now, &targets)?;
    Ok(EngineResult {
        engine: "strongback".into(),
        cadence: course.cadence.name(),
        durability: DURABILITY.into(),
        points: verified,
        seconds: elapsed.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        commits: commits_us.len() as u64 + 1,
        commit_us_p50: super::percentile(&mut commits_us, 0.5),
        commit_us_p99: super::percentile(&mut commits_us, 0.99),
        bytes_per_point,
    })
}

/// Appends a batch. If the log is full, commits it and retries the refused frames once.
pub(crate) fn append(store: &Store, batch: &FrameBatch, now: i64) -> anyhow::Result<()> {
    let appended = store.append(batch, now);
    let mut again = FrameBatch::new();
    for (frame, outcome) in batch.frames().zip(&appended.outcomes) {
        match outcome {
            Outcome::Stored { .. } => {}
            Outcome::Rejected(strongback_store::Reject::Refused(Refusal::LogFull)) => {
                again.begin(frame.head());
                for (channel, cell) in frame.cells() {
                    if let Ok(value) = cell {
                        again.push(channel, value);
                    }
                }
                again.end();
            }
            other => bail!("a frame was not stored: {other:?}"),
        }
    }
    if again.is_empty() {
        return Ok(());
    }
    store.commit(now)?;
    while store.maintain(now)? {}
    let appended = store.append(&again, now);
    match appended.outcomes.iter().find(|o| !matches!(o, Outcome::Stored { .. })) {
        None => Ok(()),
        Some(outcome) => bail!("a frame was not stored after a commit: {outcome:?}; {:?}", store.stats()),
    }
}

/// Reopens the store and reads every point. Returns how many there are, all equal.
fn verify(
    course: &Course<'_>,
    dir: &Path,
    options: StoreOptions,
    now: i64,
    targets: &[(StreamId, Vec<ChannelIndex>)],
) -> anyhow::Result<u64> {
    let store = Store::open(dir, options, now).context("open again")?;
    let view = store.view();
    let (mut checksum, mut points) = (0u64, 0u64);
    for (index, (stream, channels)) in targets.iter().enumerate() {
        for batch in view.scan(Scan::all(*stream, channels.clone())) {
            let batch = batch?;
            for row in 0..batch.len() {
                for (channel, column) in batch.columns.iter().enumerate() {
                    let Ok(value) = column.cell(row) else { bail!("{index}.{channel}: row {row} has no value") };
                    let hash = point_hash(index, batch.rows[row], channel, batch.time(row), value);
                    checksum = checksum.wrapping_add(hash);
                    points += 1;
                }
            }
        }
    }
    course.check(points, checksum)?;
    Ok(points)
}
