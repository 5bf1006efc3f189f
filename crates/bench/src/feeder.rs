//! Feeds the pad's data live into PostgreSQL: one table per stream, COPY, a transaction every 50 ms.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use futures::SinkExt;
use strongback_sim::{Cell, CellType, Pad, PadOptions, PadStream, STEP_NS};
use strongback_store::CivilTime;
use tokio_postgres::{Client, NoTls};

/// Number of pad steps in one transaction.
const STEPS: u64 = 10;

/// Thread that feeds PostgreSQL until it is stopped.
pub(crate) struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Feeder {
    /// Recreates the tables and starts feeding.
    pub(crate) fn start(config: &str) -> anyhow::Result<Feeder> {
        let stop = Arc::new(AtomicBool::new(false));
        let (config, stopped) = (config.to_string(), stop.clone());
        let thread = std::thread::Builder::new().name("feeder".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(feed(&config, &stopped))
        })?;
        Ok(Feeder { stop, thread })
    }

    /// Stops feeding.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(fed) => fed.context("feeding PostgreSQL"),
            Err(_) => bail!("the feeder panicked"),
        }
    }
}

async fn feed(config: &str, stop: &AtomicBool) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(config, NoTls).await?;
    let connection = tokio::spawn(connection);
    let mut pad = Pad::new(PadOptions { t0_ms: 62_000, ..PadOptions::default() });
    create(&client, pad.streams()).await?;
    let start_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        done += STEPS;
        let due_ns = start_ns + done as i64 * STEP_NS;
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64;
        tokio::time::sleep(Duration::from_nanos((due_ns - now_ns).max(0) as u64)).await;
        let mut rows: BTreeMap<String, String> = BTreeMap::new();
        pad.frames((STEPS as i64 * STEP_NS) as f64 / 1e9, |frame, stream, cells| {
            line(stream, start_ns + frame.time_ns, cells, rows.entry(stream.table.clone()).or_default());
        });
        client.batch_execute("BEGIN").await?;
        for (table, text) in rows {
            let sink = client.copy_in(&format!("COPY \"{table}\" FROM STDIN")).await?;
            futures::pin_mut!(sink);
            sink.send(std::io::Cursor::new(text.into_bytes())).await?;
            sink.close().await?;
        }
        client.batch_execute("COMMIT").await?;
    }
    drop(client);
    connection.await??;
    Ok(())
}

async fn create(client: &Client, streams: &[PadStream]) -> anyhow::Result<()> {
    let mut made = Vec::new();
    for stream in streams {
        if made.contains(&&stream.table) {
            continue;
        }
        let mut columns = vec!["time timestamptz NOT NULL".to_string()];
        columns.extend(stream.tags.iter().map(|(key, _)| format!("\"{key}\" text")));
        columns.extend(stream.channels.iter().map(|c| {
            let kind = match c.cell_type {
                CellType::F32 | CellType::F64 => "float8",
                CellType::I64 => "int8",
                CellType::Bool => "bool",
                CellType::Text => "text",
            };
            format!("\"{}\" {kind}", c.name)
        }));
        let table = &stream.table;
        client
            .batch_execute(&format!(
                "DROP TABLE IF EXISTS \"{table}\"; CREATE TABLE \"{table}\" ({}); CREATE INDEX ON \"{table}\" (time)",
                columns.join(", ")
            ))
            .await
            .with_context(|| table.clone())?;
        made.push(table);
    }
    Ok(())
}

fn line(stream: &PadStream, time_ns: i64, cells: &[Cell], out: &mut String) {
    // A timestamptz holds microseconds. Writing to a String cannot fail.
    let micros = time_ns.div_euclid(1000);
    let CivilTime { date, hour, minute, second, .. } = CivilTime::of(time_ns);
    let _ = write!(out, "{date} {hour:02}:{minute:02}:{second:02}.{:06}+00", micros.rem_euclid(1_000_000));
    for (_, tag) in &stream.tags {
        let _ = write!(out, "\t{tag}");
    }
    for cell in cells {
        let _ = match cell {
            Cell::Quantised { value, .. } | Cell::F32(value) => write!(out, "\t{value}"),
            Cell::F64(value) => write!(out, "\t{value}"),
            Cell::I64(value) => write!(out, "\t{value}"),
            Cell::Bool(value) => write!(out, "\t{}", if *value { 't' } else { 'f' }),
            Cell::Text(value) => write!(out, "\t{value}"),
        };
    }
    out.push('\n');
}
