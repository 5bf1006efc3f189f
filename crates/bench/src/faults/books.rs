//! The server's counts, requested as clients request them, and compared.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::StreamBooks;
use crate::http::{HttpConnection, count};

/// Max time to wait for an answer: the rows of an hour are counted.
const ANSWER: Duration = Duration::from_secs(1_800);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(200);

/// Connection that requests the server's counts of its sources.
pub(super) struct Books {
    http: HttpConnection,
}

impl Books {
    pub(super) fn open(http: SocketAddr) -> anyhow::Result<Books> {
        Ok(Books { http: HttpConnection::open(http, ANSWER)? })
    }

    /// Returns a source in detail.
    fn source(&mut self, name: &str) -> anyhow::Result<Value> {
        self.http.json(&format!("/api/sources/{name}"))
    }

    /// Waits until no more frames arrive.
    pub(super) fn settle(&mut self, quiet: Duration, patience: Duration) -> anyhow::Result<()> {
        let begin = Instant::now();
        let (mut before, mut since) = (Value::Null, Instant::now());
        loop {
            let sources = self.http.json("/api/sources")?;
            let sources = sources["sources"].as_array().context("sources")?;
            // Ignore the server's own streams, which never stop.
            let received = sources.iter().filter(|s| s["kind"] != "internal").map(|s| s["received"].clone()).collect();
            if received != before {
                (before, since) = (received, Instant::now());
            } else if since.elapsed() >= quiet {
                return Ok(());
            }
            ensure!(begin.elapsed() < patience, "frames still come {patience:?} after the pad's end");
            std::thread::park_timeout(LOOK);
        }
    }

    /// Returns the names of a source's streams.
    pub(super) fn streams_of(&mut self, source: &str) -> anyhow::Result<Vec<String>> {
        let source = self.source(source)?;
        let streams = source["streams"].as_array().context("streams")?;
        Ok(streams.iter().filter_map(|s| s["name"].as_str()).map(str::to_owned).collect())
    }

    /// Returns the server's counts of a stream; the number of frames sent is left to the caller.
    fn stream(&mut self, source: &str, stream: &str) -> anyhow::Result<StreamBooks> {
        let source = self.source(source)?;
        let of = source["streams"].as_array().context("streams")?.iter().find(|s| s["name"] == stream);
        let of = of.with_context(|| format!("{stream} is not among the streams of {}", source["name"]))?;
        let books = StreamBooks {
            stream: stream.to_owned(),
            sent: 0,
            delivered: 0,
            received: count(&of["received"])?,
            stored: count(&of["stored"])?,
            parts: 0,
            duplicate: count(&of["duplicate"])?,
            reduced: count(&of["reduced"])?,
            rejected: count(&of["rejected"])?,
            missing: self.http.sql_row(&format!(
                "select coalesce(sum(open), 0) from strongback.gaps where stream_name = '{}'",
                stream.replace('\'', "''")
            ))?[0],
        };
        let StreamBooks { received, stored, duplicate, reduced, rejected, .. } = books;
        if received != stored + duplicate + reduced + rejected {
            bail!(
                "{stream}: received {received} ≠ {stored} stored + {duplicate} duplicate + {reduced} reduced + {rejected} rejected"
            );
        }
        let lost = count(&of["lost"])?.checked_sub(count(&of["filled"])?).context("more filled than lost")?;
        ensure!(lost == books.missing, "{stream}: {lost} lost and not filled, the gaps say {}", books.missing);
        let table = stream.split('{').next().unwrap_or(stream);
        let rows = self.http.sql_row(&format!("select count(*) from \"{table}\" where {}", conditions(stream)))?[0];
        ensure!(rows == stored, "{stream}: {stored} stored, SQL finds {rows}");
        Ok(books)
    }

    /// Checks a stream of packets with a sequence: packets not forwarded intact are missing, the others are stored.
    pub(super) fn packets(&mut self, stream: &str, tally: &Value, frames: u64) -> anyhow::Result<StreamBooks> {
        let of = |name: &str| Ok::<u64, anyhow::Error>(count(&tally[name])? * frames);
        let mut books = self.stream("fti", stream)?;
        (books.sent, books.delivered) = (of("taken")?, of("delivered")?);
        let StreamBooks { sent, delivered, stored, missing, rejected, duplicate, .. } = books;
        // Packets that a slow store refused are both rejected and missing.
        let taken = stored + rejected;
        ensure!(
            delivered == taken,
            "{stream}: {delivered} frames were handed on, {stored} are stored, {rejected} refused"
        );
        ensure!(sent == stored + missing, "{stream}: sent {sent} ≠ {stored} stored + {missing} missing");
        let copies = of("duplicates")?;
        ensure!(duplicate == copies, "{stream}: {copies} copies were made, {duplicate} found");
        Ok(books)
    }

    /// Checks a stream of cycles: each is stored once, under its number, or missing. `counter` are channels with the
    /// PLC's own count of cycles, at the beginning and the end of its memory.
    pub(super) fn cycles(&mut self, stream: &str, counter: Option<(&str, &str)>) -> anyhow::Result<StreamBooks> {
        let mut books = self.stream("plc", stream)?;
        let sql =
            format!("select min(sequence), max(sequence), count(sequence), count(distinct sequence) from \"{stream}\"");
        let numbers = self.http.sql_row(&sql)?;
        let [first, last, numbered, distinct] = numbers[..] else { bail!("{stream}: {numbers:?}") };
        ensure!(numbered == distinct, "{stream}: {numbered} frames have {distinct} numbers");
        books.sent = last - first + 1;
        books.delivered = numbered;
        let StreamBooks { sent, stored, missing, .. } = books;
        books.parts = stored.checked_sub(numbered).context("more numbers than frames")?;
        ensure!(sent == numbered + missing, "{stream}: {sent} cycles ≠ {numbered} stored + {missing} missing");
        if let Some((begin, end)) = counter {
            let sql = format!("select count(*) from \"{stream}\" where \"{begin}\" <> \"{end}\"");
            ensure!(self.http.sql_row(&sql)?[0] == 0, "{stream}: frames of two cycles");
            let sql = format!(
                "select max(\"{begin}\") - min(\"{begin}\") + 1, count(distinct \"{begin}\") from \"{stream}\""
            );
            let counted = self.http.sql_row(&sql)?;
            ensure!(counted[0] == sent, "{stream}: the PLC counted {} cycles, {sent} are numbered", counted[0]);
            ensure!(counted[1] == stored, "{stream}: {} cycles are stored as {stored} frames", counted[1]);
        }
        Ok(books)
    }

    /// Checks a stream of lines: forwarded lines are stored, and duplicates were recognised.
    pub(super) fn lines(&mut self, flow: &str, tally: &Value) -> anyhow::Result<StreamBooks> {
        let stream = match flow.split_once(',') {
            Some((table, tags)) => format!("{table}{{{tags}}}"),
            None => flow.to_owned(),
        };
        let of = |name: &str| count(&tally[name]);
        let mut books = self.stream("avionics", &stream)?;
        (books.sent, books.delivered) = (of("taken")?, of("delivered")?);
        let StreamBooks { delivered, stored, .. } = books;
        ensure!(delivered == stored, "{stream}: {delivered} lines were handed on, {stored} are stored");
        Ok(books)
    }

    /// Checks the number of messages that a source rejected before they became frames.
    pub(super) fn rejected(&mut self, source: &str, garbled: u64) -> anyhow::Result<()> {
        let of = self.http.source(source)?;
        let by = of["rejected_by"].as_object().context("rejected_by")?;
        let refused = by.values().map(count).sum::<anyhow::Result<u64>>()?;
        ensure!(refused == garbled, "{source}: {garbled} messages were spoilt, {refused} refused: {by:?}");
        let drops = count(&of["kernel_drops"])?;
        ensure!(drops == 0, "{source}: the kernel dropped {drops} datagrams: this machine is too busy");
        Ok(())
    }

    /// Checks the number of samples of notifications that a source received.
    pub(super) fn samples(&mut self, source: &str, delivered: u64) -> anyhow::Result<()> {
        let samples = count(&self.http.source(source)?["plc"]["samples"])?;
        ensure!(samples == delivered, "{source}: {delivered} samples were handed on, {samples} taken");
        Ok(())
    }
}

/// Converts the tags of a stream's name, `table{a=1}`, to conditions.
fn conditions(stream: &str) -> String {
    let tags = stream.split_once('{').map_or("", |(_, tags)| tags.trim_end_matches('}'));
    let tags = tags.split(',').filter_map(|tag| tag.split_once('='));
    let all: Vec<String> = tags.map(|(name, value)| format!("\"{name}\" = '{value}'")).collect();
    if all.is_empty() { "true".to_owned() } else { all.join(" and ") }
}
