//! One table of the archive.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt as _;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::column::{MariadbColumns, MariadbType, name_there};
use super::{Failure, load, quoted};
use crate::columns::{Change, Columns, Dialect as _, Field, Have, Place, plan_all};
use crate::delivery::StreamFrames;
use crate::target::Delivered;

/// Size of the pieces that are sent, in bytes; less than what any server takes in one packet.
const PIECE_BYTES: usize = 256 << 10;

/// A table as it is in the database.
#[derive(Clone, Debug)]
pub(super) struct Table {
    name: String,
    exists: bool,
    columns: Columns<MariadbColumns>,
}

/// Frames for a table that has all their columns.
pub(super) struct Load<'a> {
    table: String,
    parts: &'a [&'a StreamFrames],
    plans: Vec<Vec<Place<MariadbColumns>>>,
}

impl Table {
    /// Reads what the database has of a table.
    ///
    /// # Errors
    /// Returns the error of the database, or why frames cannot be in this table.
    pub(super) async fn read(conn: &mut Conn, table: &str) -> Result<Table, Failure> {
        let name = name_there(table);
        let sql = "select coalesce(e.transactions, '') from information_schema.tables t \
                   left join information_schema.engines e on e.engine = t.engine \
                   where t.table_schema = database() and t.table_name = ?";
        let transactions: Option<String> = conn.exec_first(sql, (&name,)).await?;
        let mut columns = BTreeMap::new();
        if let Some(transactions) = &transactions {
            if transactions != "YES" {
                let why = "its engine has no transactions, and frames could be there twice or not at all";
                return Err(Failure::Unfit(why.to_owned()));
            }
            // Name, type, and four others.
            let rows: Vec<mysql_async::Row> = conn.query(format!("show columns from {}", quoted(&name))).await?;
            for row in rows {
                let (name, type_name) = (text(&row, 0), text(&row, 1));
                let column_type = MariadbType::named(&type_name);
                let is_tag = column_type == Some(MariadbType::Tag);
                columns.insert(MariadbColumns::key(&name), Have { name, column_type, is_tag });
            }
        }
        Ok(Table { name, exists: transactions.is_some(), columns })
    }

    /// Makes the table and its columns as frames need them. The database commits each such change at once.
    ///
    /// # Errors
    /// Returns the error of the database, or which column cannot be had.
    pub(super) async fn fit<'a>(
        &mut self,
        conn: &mut Conn,
        parts: &'a [&'a StreamFrames],
    ) -> Result<Load<'a>, Failure> {
        let (plans, changes) = plan_all::<MariadbColumns>(parts, &mut self.columns).map_err(Failure::Unfit)?;
        let table = quoted(&self.name);
        let of_change = |change: &Change<MariadbType>| match (change, self.exists) {
            (Change::Add { name, column_type, .. }, false) => format!("{} {}", quoted(name), column_type.name()),
            (Change::Add { name, column_type, .. }, true) => {
                format!("add column {} {}", quoted(name), column_type.name())
            }
            (Change::Widen { name, column_type }, _) => {
                format!("modify column {} {}", quoted(name), column_type.name())
            }
        };
        match self.exists {
            false => {
                // A column that is widened before there is a table has its last type only.
                let columns = self.columns.values().filter_map(|column| {
                    Some(Change::Add { name: column.name.clone(), column_type: column.column_type?, is_tag: false })
                });
                let columns: Vec<String> = columns.map(|add| of_change(&add)).collect();
                let sql = format!(
                    "create table {table} ({}, index (time)) engine = InnoDB, character set utf8mb4, \
                     collate utf8mb4_bin",
                    columns.join(", ")
                );
                conn.query_drop(sql).await?;
                self.exists = true;
            }
            true if changes.is_empty() => {}
            true => {
                let changes: Vec<String> = changes.iter().map(of_change).collect();
                conn.query_drop(format!("alter table {table} {}", changes.join(", "))).await?;
            }
        }
        Ok(Load { table, parts, plans })
    }
}

impl Load<'_> {
    pub(super) fn parts(&self) -> &[&StreamFrames] {
        self.parts
    }

    /// Adds the frames.
    ///
    /// # Errors
    /// Returns the error of the database, or which values it would have altered.
    pub(super) async fn run(&self, conn: &mut Conn) -> Result<Delivered, Failure> {
        let mut columns: Vec<(&String, MariadbType)> =
            self.plans.iter().flatten().map(|(name, _, column_type)| (name, *column_type)).collect();
        columns.sort_unstable_by_key(|(name, _)| *name);
        columns.dedup_by_key(|(name, _)| *name);
        let (mut lines, mut altered_values, mut frames) = (Vec::new(), 0, 0);
        for (part, places) in self.parts.iter().zip(&self.plans) {
            let mut fields: Vec<(Field, MariadbType)> =
                columns.iter().map(|(_, column_type)| (Field::Nothing, *column_type)).collect();
            for (name, field, _) in places {
                if let Ok(at) = columns.binary_search_by_key(&name, |(name, _)| *name) {
                    fields[at].0 = field.clone();
                }
            }
            altered_values += load::lines(&mut lines, part, &fields);
            frames += part.batch.len() as u64;
        }
        let bytes = lines.len() as u64;
        let mut rest = Bytes::from(lines);
        let pieces =
            std::iter::from_fn(move || (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(PIECE_BYTES)))));
        conn.set_infile_handler(async move { Ok(futures::stream::iter(pieces).boxed()) });
        let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
        let sql = format!(
            "load data local infile 'frames' into table {} character set utf8mb4 ({})",
            self.table,
            names.join(", ")
        );
        conn.query_drop(sql).await?;
        // What is wrong with values is no error, but a warning.
        let (there, warnings) = (conn.affected_rows(), conn.get_warnings());
        if there == frames && warnings == 0 {
            return Ok(Delivered { bytes, altered_values });
        }
        let warning: Option<mysql_async::Row> = conn.query_first("show warnings limit 1").await?;
        Err(Failure::Rejected(match warning {
            Some(row) => text(&row, 2),
            None => format!("{there} of {frames} rows were taken, without a reason"),
        }))
    }
}

/// Returns a column of a row as text.
fn text(row: &mysql_async::Row, at: usize) -> String {
    row.get_opt::<String, _>(at).and_then(Result::ok).unwrap_or_default()
}
