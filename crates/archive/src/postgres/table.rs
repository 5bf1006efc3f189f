//! One table of the archive.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::SinkExt as _;
use tokio_postgres::Transaction;

use super::column::{ColumnType, PgType, PostgresColumns, short_name};
use super::{copy, quoted};
use crate::columns::{Change, Columns, Field, Have, plan_all};
use crate::delivery::StreamFrames;

/// Size of the pieces that are sent, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Mark of a column that holds a tag, in its comment.
const TAG: &str = "strongback: tag";

/// A table as it is in the database.
#[derive(Clone, Debug)]
pub(super) struct Table {
    schema: String,
    name: String,
    exists: bool,
    columns: Columns<PostgresColumns>,
}

/// Reason why frames are not in the table.
pub(super) enum CopyError {
    /// A statement failed.
    Failed(tokio_postgres::Error),
    /// The columns do not fit, in words.
    Unfit(String),
}

impl From<tokio_postgres::Error> for CopyError {
    fn from(error: tokio_postgres::Error) -> CopyError {
        CopyError::Failed(error)
    }
}

impl Table {
    /// Reads what the database has of a table.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub(super) async fn read(
        transaction: &Transaction<'_>,
        schema: &str,
        table: &str,
    ) -> Result<Table, tokio_postgres::Error> {
        let name = short_name(table);
        let sql = "select a.attname::text, a.atttypid, \
                   coalesce(pg_catalog.col_description(c.oid, a.attnum), '') = $3 \
                   from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                   left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
                   where n.nspname = $1 and c.relname = $2";
        let rows = transaction.query(sql, &[&schema, &name, &TAG]).await?;
        let mut columns = BTreeMap::new();
        for row in &rows {
            if let (Some(column), Some(oid)) = (row.get::<_, Option<String>>(0), row.get::<_, Option<u32>>(1)) {
                let (name, column_type) = (column.clone(), ColumnType::of_oid(oid));
                columns.insert(column, Have { name, column_type, is_tag: row.get(2) });
            }
        }
        Ok(Table { schema: schema.to_owned(), name, exists: !rows.is_empty(), columns })
    }

    /// Makes the table and its columns as frames need them, and adds the frames. Returns the table as it is then, and
    /// the bytes sent.
    ///
    /// # Errors
    /// Returns an error if a statement fails, or a column cannot be had.
    pub(super) async fn copy(
        mut self,
        transaction: &Transaction<'_>,
        parts: &[&StreamFrames],
    ) -> Result<(Table, u64), CopyError> {
        let (plans, changes) = plan_all::<PostgresColumns>(parts, &mut self.columns).map_err(CopyError::Unfit)?;
        self.change(transaction, &changes).await?;
        let mut names: Vec<&String> = plans.iter().flatten().map(|(name, ..)| name).collect();
        names.sort_unstable();
        names.dedup();
        let types: Vec<PgType> = names
            .iter()
            .map(|name| self.columns.get(*name).and_then(|column| column.column_type).map_or(PgType::Text, |t| t.base))
            .collect();
        let list = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let sql = format!("copy {} ({list}) from stdin (format binary)", self.path());
        let sink = transaction.copy_in::<_, Bytes>(&sql).await?;
        futures::pin_mut!(sink);
        let mut out = copy::begin();
        let mut bytes = 0;
        for (part, places) in parts.iter().zip(&plans) {
            let mut columns: Vec<(Field, PgType)> = types.iter().map(|base| (Field::Nothing, *base)).collect();
            for (name, source, _) in places {
                if let Ok(at) = names.binary_search(&name) {
                    columns[at].0 = source.clone();
                }
            }
            copy::rows(&mut out, part, &columns);
            if out.len() >= PIECE_BYTES {
                bytes += out.len() as u64;
                sink.send(Bytes::from(std::mem::take(&mut out))).await?;
            }
        }
        copy::end(&mut out);
        bytes += out.len() as u64;
        sink.send(Bytes::from(out)).await?;
        sink.finish().await?;
        drop(names);
        Ok((self, bytes))
    }

    fn path(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    async fn change(
        &mut self,
        transaction: &Transaction<'_>,
        changes: &[Change<ColumnType>],
    ) -> Result<(), tokio_postgres::Error> {
        let path = self.path();
        let (mut sql, mut adds, mut after) = (String::new(), Vec::new(), String::new());
        if !self.exists {
            sql.push_str(&format!("create table {path} ();\n"));
        }
        for change in changes {
            match change {
                Change::Add { name, column_type, is_tag } => {
                    let column = quoted(name);
                    adds.push(format!("add column {column} {}", column_type.name()));
                    if *is_tag {
                        after.push_str(&format!("comment on column {path}.{column} is '{TAG}';\n"));
                    }
                }
                Change::Widen { name, column_type } => {
                    let (column, to) = (quoted(name), column_type.name());
                    after.push_str(&format!("alter table {path} alter column {column} type {to};\n"));
                }
            }
        }
        // One statement for all, because each one works through the whole table in the catalog.
        if !adds.is_empty() {
            sql.push_str(&format!("alter table {path} {};\n", adds.join(", ")));
        }
        sql.push_str(&after);
        if !std::mem::replace(&mut self.exists, true) {
            // Small, and enough for ranges of time: rows come roughly in its order.
            sql.push_str(&format!("create index on {path} using brin (time);\n"));
        }
        if sql.is_empty() { Ok(()) } else { transaction.batch_execute(&sql).await }
    }
}
