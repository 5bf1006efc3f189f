//! The pad's data into PostgreSQL, as it comes: a table a stream, COPY, a transaction each 50 ms.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use futures::SinkExt;
use strongback_sim::{Cell, CellType, Pad, PadOptions, PadStream, STEP_NS};
use tokio_postgres::{Client, NoTls};

/// Steps of the pad in one transaction.
const STEPS: u64 = 10;

/// A thread that feeds PostgreSQL until it is stopped.
pub(crate) struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Feeder {
    /// Makes the tables anew and starts.
    pub(crate) fn start(config: &str) -> anyhow::Result<Feeder> {
        let stop = Arc::new(AtomicBool::new(false));
        let (config, stopped) = (config.to_string(), stop.clone());
        let thread = std::thread::Builder::new().name("feeder".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(feed(&config, &stopped))
        })?;
        Ok(Feeder { stop, thread })
    }

    /// Ends it.
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
    // Microseconds are what a timestamptz holds. Writing to a String cannot fail.
    let micros = time_ns.div_euclid(1000);
    let seconds = micros.div_euclid(1_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let _ = write!(
        out,
        "{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{:02}.{:06}+00",
        second % 60,
        micros.rem_euclid(1_000_000)
    );
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

/// Year, month and day of a day number since 1970, by the 400-year cycle of the Gregorian calendar.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468; // days since 0000-03-01
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_777), (2026, 11, 20));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
