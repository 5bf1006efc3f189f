//! Reads back what the server stored, over the PostgreSQL wire, and compares every row.

use std::net::SocketAddr;
use std::ops::Range;

use anyhow::{Context, bail};
use futures::TryStreamExt;
use tokio_postgres::{Client, NoTls};

use super::journal::{Journal, Numbers, ROW_PERIOD_NS, RowValues};

/// Max number of rows read by one query, which limits what it sorts.
const SLICE: u64 = 1_000_000;

/// Session for reading.
pub(super) struct Stored {
    client: Client,
    base_ns: i64,
}

/// Sums over all stored rows of a connection.
#[derive(Debug, PartialEq)]
struct Sums {
    rows: i64,
    numbers: i128,
    checks: i128,
}

impl Stored {
    /// Opens a session.
    pub(super) async fn connect(address: SocketAddr, base_ns: i64) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::Config::new()
            .host(address.ip().to_string())
            .port(address.port())
            .user("crash")
            .dbname("strongback")
            .connect(NoTls)
            .await
            .context("PostgreSQL connection")?;
        tokio::spawn(async move {
            // ends with the server; the query that was running reports the error
            let _ = connection.await;
        });
        Ok(Stored { client, base_ns })
    }

    /// Compares the stored rows of a connection with its journal. Rows numbered `from` and above are read one by one;
    /// all are counted and summed. Every acknowledged row must be stored once with its values, the request in flight
    /// may be stored in part from its first row on, and nothing else may be stored. The stored part of that request
    /// is added to the journal. Returns how many rows were compared one by one.
    pub(super) async fn compare(&self, connection: usize, journal: &mut Journal, from: u64) -> anyhow::Result<u64> {
        let mut compared = 0;
        let mut in_flight_found = 0;
        let known_end = journal.stored.end();
        let end = journal.next;
        let mut at = from;
        while at < end {
            let slice = at..end.min(at + SLICE);
            let found = self.read(connection, slice.clone()).await?;
            compared += found.len() as u64;
            in_flight_found += compare_slice(connection, &found, journal, slice.clone())?;
            at = slice.end;
        }
        if let Some(in_flight) = &journal.in_flight {
            let start = in_flight.start.max(known_end);
            journal.stored.push(start..start + in_flight_found);
        }
        let sums = self.sums(connection).await?;
        let expected = expected_sums(connection, &journal.stored);
        if sums != expected {
            bail!("connection {connection}: stored {sums:?}, expected {expected:?}");
        }
        Ok(compared)
    }

    async fn read(&self, connection: usize, numbers: Range<u64>) -> anyhow::Result<Vec<(i64, i64, i64, f64)>> {
        let time = |n: u64| self.base_ns + n as i64 * ROW_PERIOD_NS;
        let query = format!(
            "select time_ns, n, \"check\", x from crash where conn = '{connection}' and time_ns >= {} and time_ns < {} order by time_ns",
            time(numbers.start),
            time(numbers.end)
        );
        let rows = self.client.query_raw(&query, std::iter::empty::<&str>()).await.with_context(|| query.clone())?;
        let mut rows = std::pin::pin!(rows);
        let mut found = Vec::new();
        while let Some(row) = rows.try_next().await.with_context(|| query.clone())? {
            let time: i64 = row.try_get(0)?;
            let n: i64 = row.try_get(1)?;
            found.push((time, n, row.try_get(2)?, row.try_get(3)?));
            if time != self.base_ns + n * ROW_PERIOD_NS {
                bail!("connection {connection}: row {n} has time {time}");
            }
        }
        Ok(found)
    }

    async fn sums(&self, connection: usize) -> anyhow::Result<Sums> {
        let query = format!("select count(*), sum(n), sum(\"check\") from crash where conn = '{connection}'");
        let row = self.client.query_one(&query, &[]).await.with_context(|| query.clone())?;
        let of =
            |index: usize| -> anyhow::Result<i128> { Ok(row.try_get::<_, Option<i64>>(index)?.unwrap_or(0).into()) };
        Ok(Sums { rows: row.try_get(0)?, numbers: of(1)?, checks: of(2)? })
    }
}

/// Compares one slice, in order. Returns how many rows of the request in flight are in it.
fn compare_slice(
    connection: usize,
    found: &[(i64, i64, i64, f64)],
    journal: &Journal,
    slice: Range<u64>,
) -> anyhow::Result<u64> {
    let in_flight = journal.in_flight.clone().unwrap_or(0..0);
    let in_flight = in_flight.start.max(journal.stored.end())..in_flight.end;
    let mut expected = journal.stored.within(slice.clone());
    let mut kept = 0;
    let mut next_in_flight = in_flight.start.max(slice.start);
    for &(_, n, check, x) in found {
        let number = u64::try_from(n).with_context(|| format!("connection {connection}: row {n}"))?;
        match expected.next() {
            Some(want) if want == number => {}
            Some(want) => bail!("connection {connection}: acknowledged row {want} is missing, the next is {number}"),
            None if in_flight.contains(&number) && number == next_in_flight => {
                next_in_flight += 1;
                kept += 1;
            }
            None => bail!(
                "connection {connection}: row {number} is stored, but was never sent, or twice, or not in order \
                 (in flight {in_flight:?}, {kept} of it found)"
            ),
        }
        let values = RowValues::of(connection, number);
        if values.check != check || values.x.to_bits() != x.to_bits() {
            bail!("connection {connection}: row {number} has {check} and {x}, expected {values:?}");
        }
    }
    if let Some(missing) = expected.next() {
        bail!("connection {connection}: acknowledged row {missing} is missing");
    }
    Ok(kept)
}

fn expected_sums(connection: usize, stored: &Numbers) -> Sums {
    let mut sums = Sums { rows: 0, numbers: 0, checks: 0 };
    for n in stored.within(0..u64::MAX) {
        sums.rows += 1;
        sums.numbers += i128::from(n);
        sums.checks += i128::from(RowValues::of(connection, n).check);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u64) -> (i64, i64, i64, f64) {
        let values = RowValues::of(1, n);
        (n as i64 * ROW_PERIOD_NS, n as i64, values.check, values.x)
    }

    fn journal() -> Journal {
        let mut journal = Journal { in_flight: Some(8..12), next: 12, ..Journal::default() };
        journal.stored.push(0..4);
        journal.stored.push(6..8);
        journal
    }

    fn compare(numbers: &[u64]) -> anyhow::Result<u64> {
        let rows: Vec<_> = numbers.iter().map(|n| row(*n)).collect();
        compare_slice(1, &rows, &journal(), 0..12)
    }

    #[test]
    fn a_first_part_in_flight_may_be_stored() {
        assert_eq!(compare(&[0, 1, 2, 3, 6, 7]).expect("all that was promised"), 0);
        assert_eq!(compare(&[0, 1, 2, 3, 6, 7, 8, 9]).expect("and a part in flight"), 2);
    }

    #[test]
    fn lost_doubled_invented_and_changed_rows_are_found() {
        assert!(compare(&[0, 1, 2, 3, 6]).is_err(), "lost at the end");
        assert!(compare(&[0, 2, 3, 6, 7]).is_err(), "lost inside");
        assert!(compare(&[0, 1, 1, 2, 3, 6, 7]).is_err(), "doubled");
        assert!(compare(&[0, 1, 2, 3, 5, 6, 7]).is_err(), "never sent");
        assert!(compare(&[0, 1, 2, 3, 6, 7, 9]).is_err(), "a hole in the request in flight");
        assert!(compare(&[0, 1, 2, 3, 6, 7, 8, 8]).is_err(), "in flight doubled");
        let mut rows: Vec<_> = [0, 1, 2, 3, 6, 7].map(row).to_vec();
        rows[2].3 += 1.0;
        assert!(compare_slice(1, &rows, &journal(), 0..12).is_err(), "changed");
    }

    #[test]
    fn a_slice_that_begins_within_the_request_in_flight() {
        let rows: Vec<_> = [10, 11].map(row).to_vec();
        assert_eq!(compare_slice(1, &rows, &journal(), 10..12).expect("its second half"), 2);
    }
}
