//! SQLite: WAL, synchronous FULL, a table a stream with its time as the row's key, one transaction a commit.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use rusqlite::{Connection, Statement};

use super::course::{Course, CourseFrame, Kind};
use super::engine::{EngineArguments, Load, ReadBack, look_up, lookup_times, middle};

/// A database under load.
pub(super) struct Database<'c> {
    connection: &'c Connection,
    inserts: Vec<Statement<'c>>,
    deletes: Vec<Statement<'c>>,
}

/// Opens the database of a folder as it is used here.
pub(super) fn open(dir: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(dir.join("course.sqlite"))?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        bail!("SQLite stayed in journal mode {mode}");
    }
    connection.execute_batch("PRAGMA synchronous=FULL")?;
    Ok(connection)
}

/// Makes the tables.
pub(super) fn create<'c>(connection: &'c Connection, course: &Course) -> anyhow::Result<Database<'c>> {
    let (mut inserts, mut deletes) = (Vec::new(), Vec::new());
    for (index, stream) in course.streams.iter().enumerate() {
        let columns: Vec<String> =
            stream.kinds.iter().enumerate().map(|(c, k)| format!("c{c} {}", affinity(*k))).collect();
        connection
            .execute_batch(&format!("CREATE TABLE s{index} (time INTEGER PRIMARY KEY, {})", columns.join(", ")))?;
        let marks = vec!["?"; stream.kinds.len() + 1].join(",");
        inserts.push(connection.prepare(&format!("INSERT INTO s{index} VALUES ({marks})"))?);
        deletes.push(connection.prepare(&format!("DELETE FROM s{index} WHERE time < ?"))?);
    }
    connection.execute_batch("BEGIN")?;
    Ok(Database { connection, inserts, deletes })
}

fn affinity(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Bool | Kind::I64) { "INTEGER" } else { "REAL" }
}

impl Load for Database<'_> {
    fn append(&mut self, frame: &CourseFrame<'_>) -> anyhow::Result<()> {
        let insert = &mut self.inserts[frame.stream];
        insert.raw_bind_parameter(1, frame.time_ns)?;
        for (index, value) in frame.cells().enumerate() {
            insert.raw_bind_parameter(index + 2, value)?;
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

/// Opens and reads.
pub(super) fn read(course: &Course, arguments: &EngineArguments) -> anyhow::Result<ReadBack> {
    let mut back = ReadBack::default();
    let begin = Instant::now();
    let connection = open(&arguments.dir)?;
    let newest: i64 = connection.query_row("SELECT max(time) FROM s0", [], |row| row.get(0)).context("newest row")?;
    back.open_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for index in 0..course.streams.len() {
        let sql = format!("SELECT count(*), total(c0), min(c0), max(c0) FROM s{index}");
        let (rows, sum): (i64, f64) = connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        back.rows.push(rows as u64);
        back.sums.push(sum);
    }
    back.aggregate_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for (index, stream) in course.streams.iter().enumerate() {
        let mut select = connection.prepare(&format!("SELECT * FROM s{index} ORDER BY time"))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            for channel in 0..stream.kinds.len() {
                back.scanned_sum += row.get::<_, f64>(channel + 1)?;
            }
            back.scanned_points += stream.kinds.len() as u64;
        }
    }
    back.scan_s = begin.elapsed().as_secs_f64();
    let oldest: i64 = connection.query_row("SELECT min(time) FROM s0", [], |row| row.get(0))?;
    let range = middle(oldest, newest);
    let begin = Instant::now();
    let mut select = connection.prepare("SELECT * FROM s0 WHERE time >= ? AND time < ? ORDER BY time")?;
    let mut rows = select.query([range.start, range.end])?;
    while let Some(row) = rows.next()? {
        back.scanned_sum += 0.0 * row.get::<_, f64>(1)?;
        back.range_rows += 1;
    }
    back.range_s = begin.elapsed().as_secs_f64();
    let mut select = connection.prepare("SELECT c0 FROM s0 WHERE time = ?")?;
    let times: Vec<i64> =
        lookup_times(course, course.frames).into_iter().filter(|t| (oldest..=newest).contains(t)).collect();
    back.looked_up = times.len() as u64;
    (back.lookup_us, back.found) = look_up(&times, |time| Ok(select.exists([time])?))?;
    Ok(back)
}
