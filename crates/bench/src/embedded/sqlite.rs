//! SQLite: WAL, synchronous FULL, one table per stream with its time as the row's key, one transaction per commit.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use rusqlite::{Connection, Statement};

use super::course::{Course, CourseFrame, Kind};
use super::engine::{EngineArguments, Load, ReadBack, look_up, lookup_times, middle};

/// Database under load.
pub(super) struct Database<'c> {
    connection: &'c Connection,
    /// Insert statement of each table.
    inserts: Vec<Statement<'c>>,
    deletes: Vec<Statement<'c>>,
    /// Table of each stream, and whether the table has other streams.
    places: Vec<(usize, bool)>,
}

/// Opens the database of a folder with the settings of this benchmark.
pub(super) fn open(dir: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(dir.join("course.sqlite"))?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        bail!("SQLite stayed in journal mode {mode}");
    }
    connection.execute_batch("PRAGMA synchronous=FULL")?;
    Ok(connection)
}

/// Creates the tables.
pub(super) fn create<'c>(connection: &'c Connection, course: &Course) -> anyhow::Result<Database<'c>> {
    let (mut inserts, mut deletes) = (Vec::new(), Vec::new());
    let mut places = vec![(0, false); course.streams.len()];
    for (table, streams) in course.tables().iter().enumerate() {
        let shared = streams.len() > 1;
        streams.iter().for_each(|stream| places[*stream] = (table, shared));
        let kinds = &course.streams[streams[0]].kinds;
        let columns: Vec<String> = kinds.iter().enumerate().map(|(c, k)| format!("c{c} {}", affinity(*k))).collect();
        let columns = columns.join(", ");
        connection.execute_batch(&if shared {
            format!("CREATE TABLE t{table} (s INTEGER, time INTEGER, {columns}, PRIMARY KEY (s, time)) WITHOUT ROWID")
        } else {
            format!("CREATE TABLE t{table} (time INTEGER PRIMARY KEY, {columns})")
        })?;
        let marks = vec!["?"; kinds.len() + 1 + usize::from(shared)].join(",");
        inserts.push(connection.prepare(&format!("INSERT INTO t{table} VALUES ({marks})"))?);
        deletes.push(connection.prepare(&format!("DELETE FROM t{table} WHERE time < ?"))?);
    }
    connection.execute_batch("BEGIN")?;
    Ok(Database { connection, inserts, deletes, places })
}

fn affinity(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Bool | Kind::I64) { "INTEGER" } else { "REAL" }
}

impl Load for Database<'_> {
    fn append(&mut self, frame: &CourseFrame<'_>) -> anyhow::Result<()> {
        let (table, shared) = self.places[frame.stream];
        let insert = &mut self.inserts[table];
        let mut at = 1;
        if shared {
            insert.raw_bind_parameter(at, frame.stream as i64)?;
            at += 1;
        }
        insert.raw_bind_parameter(at, frame.time_ns)?;
        for (index, value) in frame.cells().enumerate() {
            insert.raw_bind_parameter(at + 1 + index, value)?;
        }
        insert.raw_execute()?;
        Ok(())
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        Ok(self.connection.execute_batch("COMMIT; BEGIN")?)
    }

    fn prune(&mut self, before_ns: i64) -> anyhow::Result<()> {
        for delete in &mut self.deletes {
            delete.execute([before_ns])?;
        }
        Ok(())
    }
}

/// Opens the database and reads it.
pub(super) fn read(course: &Course, arguments: &EngineArguments) -> anyhow::Result<ReadBack> {
    let mut back = ReadBack::default();
    let begin = Instant::now();
    let connection = open(&arguments.dir)?;
    let newest: i64 = connection.query_row("SELECT max(time) FROM t0", [], |row| row.get(0)).context("newest row")?;
    back.open_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    (back.rows, back.sums) = (vec![0; course.streams.len()], vec![0.0; course.streams.len()]);
    let tables = course.tables();
    for (table, streams) in tables.iter().enumerate() {
        let (stream, group) = if streams.len() > 1 { ("s", " GROUP BY s") } else { ("-1", "") };
        let sql = format!("SELECT {stream}, count(*), total(c0), min(c0), max(c0) FROM t{table}{group}");
        let mut select = connection.prepare(&sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let stream = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(streams[0]);
            back.rows[stream] = row.get::<_, i64>(1)? as u64;
            back.sums[stream] = row.get(2)?;
        }
    }
    back.aggregate_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for (table, streams) in tables.iter().enumerate() {
        let shared = usize::from(streams.len() > 1);
        let order = if shared == 1 { "s, time" } else { "time" };
        let mut select = connection.prepare(&format!("SELECT * FROM t{table} ORDER BY {order}"))?;
        let channels = course.streams[streams[0]].kinds.len();
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            for channel in 0..channels {
                back.scanned_sum += row.get::<_, f64>(channel + 1 + shared)?;
            }
            back.scanned_points += channels as u64;
        }
    }
    back.scan_s = begin.elapsed().as_secs_f64();
    let oldest: i64 = connection.query_row("SELECT min(time) FROM t0", [], |row| row.get(0))?;
    let range = middle(oldest, newest);
    let begin = Instant::now();
    let mut select = connection.prepare("SELECT * FROM t0 WHERE time >= ? AND time < ? ORDER BY time")?;
    let mut rows = select.query([range.start, range.end])?;
    while let Some(row) = rows.next()? {
        back.scanned_sum += 0.0 * row.get::<_, f64>(1)?;
        back.range_rows += 1;
    }
    back.range_s = begin.elapsed().as_secs_f64();
    let mut select = connection.prepare("SELECT c0 FROM t0 WHERE time = ?")?;
    let times: Vec<i64> =
        lookup_times(course, course.frames).into_iter().filter(|t| (oldest..=newest).contains(t)).collect();
    back.looked_up = times.len() as u64;
    (back.lookup_us, back.found) = look_up(&times, |time| Ok(select.exists([time])?))?;
    Ok(back)
}
