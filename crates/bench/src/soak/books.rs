//! Compares the stored data with what was acknowledged, and the ledger of the packets with the stored packets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::Journal;
use super::senders::{PACKET_PERIOD_NS, ROW_PERIOD_NS};
use crate::http::{HttpConnection, count};

/// Max time to wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Min number of gap rows that fit their share of the disk: fewer never expire.
const GAP_ROWS_KEPT: i64 = 10_000;

/// Number of rows that one query compares.
const WINDOW: u64 = 100_000;

/// Statistics of a stream of numbered rows.
#[derive(Debug)]
struct Numbers {
    rows: u64,
    first: u64,
    last: u64,
    distinct: u64,
}

impl Numbers {
    /// Merges the statistics of another run of numbers.
    fn join(&mut self, other: &Numbers) {
        self.rows += other.rows;
        self.distinct += other.distinct;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// Fails unless each number from the first stored one to the last acknowledged one is stored exactly once.
    fn check(&self, what: &str, acknowledged: u64, was_full: bool) -> anyhow::Result<()> {
        let span = self.last - self.first + 1;
        ensure!(self.rows == self.distinct, "{what}: {} rows are stored twice: {self:?}", self.rows - self.distinct);
        ensure!(self.rows == span, "{what}: {} rows are missing between others: {self:?}", span - self.rows);
        ensure!(
            self.last + 1 >= acknowledged,
            "{what}: {acknowledged} rows are acknowledged, and the last are gone: {self:?}"
        );
        ensure!(self.first == 0 || was_full, "{what}: the oldest rows are gone, and the disk was never full: {self:?}");
        Ok(())
    }
}

/// Compares all stored data.
pub(super) fn compare(http: SocketAddr, journal: &mut Journal) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(http, ANSWER_TIMEOUT)?;
    if journal.writers.iter().any(|next| *next > 0) {
        rows(&mut http, journal)?;
        visitors(&mut http, journal)?;
    }
    if journal.next_packet > 0 {
        packets(&mut http, journal)?;
    }
    Ok(())
}

fn rows(http: &mut HttpConnection, journal: &mut Journal) -> anyhow::Result<()> {
    let mut found: BTreeMap<u64, Numbers> = BTreeMap::new();
    let wrong =
        format!("x <> n / 8.0 or s <> cast(n as varchar) or time_ns <> {} + n * {ROW_PERIOD_NS}", journal.base_ns);
    let first = journal.first_kept.iter().min().copied().unwrap_or_default();
    let last = journal.writers.iter().max().copied().unwrap_or_default();
    for within in windows(journal.base_ns, ROW_PERIOD_NS, first..last) {
        let part = numbers(
            http,
            &format!(
                "select writer, count(*), min(n), max(n), count(distinct n), sum(case when {wrong} then 1 else 0 end) \
                 from \"soak.rows\" where {within} group by writer"
            ),
        )?;
        for (writer, part) in part {
            found.entry(writer).and_modify(|all| all.join(&part)).or_insert(part);
        }
    }
    for (writer, &acknowledged) in journal.writers.iter().enumerate().filter(|(_, next)| **next > 0) {
        let what = format!("writer {writer}");
        let of = found.get(&(writer as u64));
        let now = of.with_context(|| format!("{what}: all of its {acknowledged} rows are gone"))?;
        now.check(&what, acknowledged, journal.was_full)?;
        let before = &mut journal.first_kept[writer];
        ensure!(now.first >= *before, "{what}: rows below {before} had gone and are back: {now:?}");
        // The ballast takes no space from stored data: only new data expires the oldest.
        let (kept_before, gone) = (acknowledged.saturating_sub(*before), now.first - *before);
        ensure!(
            gone * 4 <= kept_before * 3 || kept_before < 100_000,
            "{what}: {gone} of {kept_before} rows went at once: {now:?}"
        );
        journal.report.rows_expired += gone;
        *before = now.first;
    }
    Ok(())
}

/// Returns conditions that split all rows into runs of numbers by their `time`, each small enough for one query, so
/// that memory does not grow with the run.
fn windows(base_ns: i64, period_ns: i64, numbers: Range<u64>) -> Vec<String> {
    let edge = |number: u64| base_ns + number as i64 * period_ns;
    let edges: Vec<i64> = numbers.step_by(WINDOW as usize).skip(1).map(edge).collect();
    let mut windows = Vec::new();
    for at in 0..=edges.len() {
        let from = if at > 0 { format!("time_ns >= {}", edges[at - 1]) } else { "true".to_owned() };
        let to = edges.get(at).map_or("true".to_owned(), |to| format!("time_ns < {to}"));
        windows.push(format!("{from} and {to}"));
    }
    windows
}

fn visitors(http: &mut HttpConnection, journal: &Journal) -> anyhow::Result<()> {
    let mut found = vec![None; journal.visitors.len()];
    // In parts, since the size of an answer is limited.
    for from in (0..journal.visitors.len()).step_by(1_000) {
        let part = numbers(
            http,
            &format!(
                "select id, count(*), min(n), max(n), count(distinct n), 0 from \"soak.visitors\" where cast(id as int) >= \
                 {from} and cast(id as int) < {} group by id",
                from + 1_000
            ),
        );
        for (id, numbers) in part? {
            found[id as usize] = Some((numbers.rows, numbers.first, numbers.last, numbers.distinct));
        }
    }
    for (id, (&acknowledged, found)) in journal.visitors.iter().zip(found).enumerate().filter(|(_, (n, _))| **n > 0) {
        let what = format!("visitor {id}");
        match found {
            Some((rows, first, last, distinct)) => {
                Numbers { rows, first, last, distinct }.check(&what, acknowledged, journal.was_full)?;
            }
            None => ensure!(journal.was_full, "{what}: all of its {acknowledged} rows are gone"),
        }
    }
    Ok(())
}

/// Checks the ledger of the packets. The sequences missing between the first and the last one that rows or gaps name
/// must equal those that gap rows report lost, less those reported as recovered; and since the sender never
/// restarted, no restart may be recorded. The last packets before a kill may be known by their gap alone: they were
/// refused. Gap rows have a share of the disk: once the oldest have expired, the check begins at the oldest one left.
fn packets(http: &mut HttpConnection, journal: &mut Journal) -> anyhow::Result<()> {
    let lost = "stream_name like 'soak.packets%' and cause in ('sequence', 'not recorded')";
    let gaps = table(
        http,
        &format!(
            "select coalesce(sum(case when {lost} then cast(open as bigint) else 0 end), 0), \
             coalesce(sum(case when stream_name like 'soak.packets%' and cause = 'restart' then 1 else 0 end), 0), \
             coalesce(max(case when {lost} then cast(to_sequence as bigint) end), -1), \
             coalesce(min(case when {lost} then cast(from_sequence as bigint) end), -1), count(*) from strongback.gaps"
        ),
    )?;
    let Some(&[open, restarts, told, oldest, gap_rows]) = gaps.first().map(|row| &row[..]) else { bail!("{gaps:?}") };
    ensure!(restarts == 0, "packets: {restarts} restarts were seen of a sender that never began again");
    let before = journal.oldest_gap.filter(|before| *before != oldest);
    if let Some(before) = before {
        ensure!(oldest > before, "packets: the gap rows from {before} on had gone and are back from {oldest} on");
        ensure!(gap_rows > GAP_ROWS_KEPT, "packets: of {gap_rows} gap rows those from {before} to {oldest} have gone");
        journal.gaps_gone = true;
    }
    journal.oldest_gap = Some(oldest).filter(|oldest| *oldest >= 0);
    let from = if journal.gaps_gone { oldest } else { 0 };

    let (mut stored, mut first, mut last) = (0, i64::MAX, i64::MIN);
    for within in windows(journal.base_ns, PACKET_PERIOD_NS, 0..journal.next_packet) {
        let found = table(
            http,
            &format!(
                "select count(*), count(distinct sequence), \
                 coalesce(sum(case when sequence >= {from} then 1 else 0 end), 0), \
                 coalesce(min(case when sequence >= {from} then sequence end), {}), coalesce(max(sequence), {}), \
                 coalesce(sum(case when n <> sequence then 1 else 0 end), 0) from \"soak.packets\" where {within}",
                i64::MAX,
                i64::MIN
            ),
        )?;
        let Some(&[rows, distinct, of_books, least, most, wrong]) = found.first().map(|row| &row[..]) else {
            bail!("{found:?}")
        };
        ensure!(rows == distinct, "packets: {} are stored twice", rows - distinct);
        ensure!(wrong == 0, "packets: {wrong} have another number than their sequence");
        (stored, first, last) = (stored + of_books, first.min(least), last.max(most));
    }
    if stored == 0 {
        return Ok(());
    }
    let first = if journal.gaps_gone { from } else { first };
    let missing = last.max(told) - first + 1 - stored;
    ensure!(missing == open, "packets: of {first} to {last} {missing} are missing, and the gaps say {open}, to {told}");
    Ok(())
}

/// Checks that each frame of the packets' source was counted exactly once.
pub(super) fn compare_counts(http: SocketAddr) -> anyhow::Result<()> {
    let source = HttpConnection::open(http, ANSWER_TIMEOUT)?.source("packets")?;
    let of = |name: &str| count(&source[name]).with_context(|| format!("{name} of {source}"));
    let (received, stored, duplicate, rejected) = (of("received")?, of("stored")?, of("duplicate")?, of("rejected")?);
    ensure!(
        received == stored + duplicate + rejected,
        "packets: {received} received, {stored} stored, {duplicate} duplicate, {rejected} rejected"
    );
    Ok(())
}

fn numbers(http: &mut HttpConnection, sql: &str) -> anyhow::Result<Vec<(u64, Numbers)>> {
    let mut all = Vec::new();
    for row in table(http, sql)? {
        let [name, rows, first, last, distinct, wrong] = row[..] else { bail!("a row of {row:?}") };
        ensure!(wrong == 0, "{name}: {wrong} rows have other values than were sent");
        let [name, rows, first, last, distinct] = [name, rows, first, last, distinct].map(|cell| cell as u64);
        all.push((name, Numbers { rows, first, last, distinct }));
    }
    Ok(all)
}

/// Returns the rows of a query, as integers.
fn table(http: &mut HttpConnection, sql: &str) -> anyhow::Result<Vec<Vec<i64>>> {
    let answer = http.post("/api/sql", json!({ "sql": sql }).to_string().as_bytes())?;
    ensure!(answer.status == 200, "{sql}: {} {}", answer.status, answer.body);
    let answer: Value = serde_json::from_str(&answer.body)?;
    let integer = |cell: &Value| -> anyhow::Result<i64> {
        let found = cell.as_i64().or_else(|| cell.as_str().and_then(|text| text.parse().ok()));
        found.with_context(|| format!("{sql}: {cell} is no integer"))
    };
    let rows = answer["rows"].as_array().with_context(|| format!("{sql}: no rows"))?;
    rows.iter().map(|row| row.as_array().into_iter().flatten().map(integer).collect()).collect()
}
