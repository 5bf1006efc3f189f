//! One table of the archive.

use std::collections::HashMap;

use super::Questdb;
pub(super) use super::column::table_name;
use super::column::{QuestdbColumns, QuestdbType};
use crate::columns::{self, Change, Columns, Dialect, Have, plan_all};
use crate::delivery::StreamFrames;
use crate::target::TableError;

/// Max bytes of the columns of a statement, which is part of a URL; a request head has at most 64 KB.
const STATEMENT_MAX: usize = 24_000;
/// Keys by which frames that come again are recognised.
const KEYS: [&str; 3] = ["time", "strongback_stream", "strongback_row"];
/// Max tables that one question names.
const NAMED_MAX: usize = 100;

/// Column, content, and type of a place.
pub(super) type Place = columns::Place<QuestdbColumns>;

/// What the database says of a table in short.
pub(super) struct Seen {
    pub(super) name: String,
    /// Whether it takes frames and shows none.
    pub(super) is_suspended: bool,
    /// Number that it has until it is dropped.
    id: i64,
    /// Checksum of its columns and their types.
    columns: String,
}

/// Returns what the database says of those of some tables that it has, by their keys.
///
/// # Errors
/// Returns an error if the question has no answer.
pub(super) fn look(database: &Questdb, keys: &[&str]) -> Result<HashMap<String, Seen>, TableError> {
    let named = match keys.len() {
        0..=NAMED_MAX => {
            let keys: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
            format!(" where lower(table_name) in ({})", keys.join(", "))
        }
        _ => String::new(),
    };
    let columns = "md5(string_agg(column_name || ' ' || data_type, ','))";
    let sql = format!(
        "with t as (select table_name, id, table_suspended from tables(){named}), \
         c as (select table_name, {columns} columns from information_schema.columns(){named}) \
         select t.table_name, t.id, t.table_suspended, c.columns from t join c on t.table_name = c.table_name"
    );
    let mut seen = HashMap::new();
    for row in database.ask(&sql)? {
        let [name, id, suspended, columns] = row.as_slice() else { continue };
        let (Some(name), Some(id), Some(columns)) = (name.as_str(), id.as_i64(), columns.as_str()) else { continue };
        let is_suspended = suspended.as_bool() == Some(true);
        seen.insert(key(name), Seen { name: name.to_owned(), is_suspended, id, columns: columns.to_owned() });
    }
    Ok(seen)
}

/// A table as it is in the database.
pub(super) struct Table {
    name: String,
    /// What the database said when the columns were read, or `None` if the table was made or changed here since.
    seen: Option<Seen>,
    exists: bool,
    columns: Columns<QuestdbColumns>,
}

/// Returns the same for names that the database takes for one.
pub(super) fn key(name: &str) -> String {
    QuestdbColumns::key(name)
}

impl Table {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the table has not changed.
    pub(super) fn is_as(&self, seen: &Seen) -> bool {
        self.seen.as_ref().is_some_and(|known| (known.id, &known.columns) == (seen.id, &seen.columns))
    }

    /// Reads what the database has of a table.
    ///
    /// # Errors
    /// Returns an error if the question has no answer, or if frames that come again would not be recognised.
    pub(super) fn read(database: &Questdb, table: &str) -> Result<Table, TableError> {
        let wanted = table_name(table);
        let Some(seen) = look(database, &[&key(&wanted)])?.remove(&key(&wanted)) else {
            return Ok(Table { name: wanted, seen: None, exists: false, columns: Columns::<QuestdbColumns>::new() });
        };
        let name = &seen.name;
        let sql = format!("select \"column\", type, upsertKey, designated from table_columns('{name}')");
        let mut columns = Columns::<QuestdbColumns>::new();
        let mut keys = Vec::new();
        for row in database.ask(&sql)? {
            let [column, column_type, is_key, is_designated] = row.as_slice() else { continue };
            let (Some(column), Some(type_name)) = (column.as_str(), column_type.as_str()) else { continue };
            if is_key.as_bool() == Some(true) {
                keys.push((key(column), is_designated.as_bool() == Some(true)));
            }
            let column_type = QuestdbType::of_name(type_name);
            let is_of_all = QuestdbColumns::FIXED.iter().any(|(fixed, ..)| *fixed == key(column));
            let is_tag = column_type == Some(QuestdbType::Symbol) && !is_of_all;
            columns.insert(key(column), Have { name: column.to_owned(), column_type, is_tag });
        }
        let has = |wanted: &str| {
            keys.iter().any(|(key, is_designated)| key == wanted && *is_designated == (wanted == "time"))
        };
        if keys.len() != KEYS.len() || !KEYS.iter().all(|key| has(key)) {
            let reason = format!(
                "table {name:?} is not one that this archive made: frames that come again would be there twice without \
                 DEDUP UPSERT KEYS({}); rename it, or name another table here",
                KEYS.join(", ")
            );
            return Err(TableError::Unfit(reason));
        }
        Ok(Table { name: name.to_owned(), seen: Some(seen), exists: true, columns })
    }

    /// Makes the table and its columns as frames need them, and returns the column and content of each place.
    ///
    /// # Errors
    /// Returns an error if a statement fails, or a column cannot be had.
    pub(super) fn fit(&mut self, database: &Questdb, parts: &[&StreamFrames]) -> Result<Vec<Vec<Place>>, TableError> {
        let (plans, changes) = plan_all::<QuestdbColumns>(parts, &mut self.columns)
            .map_err(|reason| TableError::Unfit(format!("table {:?}: {reason}", self.name)))?;
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_some() {
            self.seen = None;
        }
        if !self.exists {
            let mut columns = String::new();
            while columns.len() < STATEMENT_MAX
                && let Some(Change::Add { name, column_type, .. }) =
                    changes.next_if(|change| matches!(change, Change::Add { .. }))
            {
                let comma = if columns.is_empty() { "" } else { ", " };
                columns.push_str(&format!("{comma}\"{name}\" {}", QuestdbColumns::type_name(column_type)));
            }
            let (name, keys) = (&self.name, KEYS.join(", "));
            let sql = format!(
                "create table if not exists \"{name}\" ({columns}) timestamp(time) partition by day wal \
                 dedup upsert keys({keys})"
            );
            database.ask(&sql)?;
            self.exists = true;
        }
        for change in changes {
            let table = &self.name;
            let sql = match change {
                Change::Add { name, column_type, .. } => {
                    let column_type = QuestdbColumns::type_name(column_type);
                    format!("alter table \"{table}\" add column if not exists \"{name}\" {column_type}")
                }
                Change::Widen { name, column_type } => {
                    let column_type = QuestdbColumns::type_name(column_type);
                    format!("alter table \"{table}\" alter column \"{name}\" type {column_type}")
                }
            };
            database.ask(&sql)?;
        }
        Ok(plans)
    }
}
