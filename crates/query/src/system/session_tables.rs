//! Tables of `pg_catalog` about the session that reads them: its cursors, prepared statements and settings.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int32Array, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::array::{ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::Expr;
use futures::future::BoxFuture;

use crate::sql::setting::{Settings, SharedSettings};
use crate::system::rows_read;
use crate::system::tables::text;
use crate::table::column::{UTC, timestamp_type};
use crate::table::planned;

/// A cursor of a session, as its statements see it.
#[derive(Clone, Debug)]
pub(crate) struct CursorRow {
    pub(crate) name: String,
    pub(crate) statement: String,
    pub(crate) binary: bool,
    pub(crate) created_us: i64,
}

/// A prepared statement of a session, as its statements see it.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRow {
    pub(crate) name: String,
    pub(crate) statement: String,
    /// Names of the types of its parameters.
    pub(crate) parameters: Vec<String>,
    /// Names of the types of its columns; `None` if it returns no rows.
    pub(crate) columns: Option<Vec<String>>,
    /// Whether it was prepared by SQL, and not by the protocol.
    pub(crate) from_sql: bool,
    pub(crate) created_us: i64,
}

/// A session as its statements see it. An extension of the session of an execution.
#[derive(Debug)]
pub(crate) struct SessionRows {
    pub(crate) cursors: Vec<CursorRow>,
    pub(crate) prepared: Vec<PreparedRow>,
    pub(crate) settings: SharedSettings,
}

/// A table about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionTable {
    /// `pg_cursors`
    Cursors,
    /// `pg_prepared_statements`
    Prepared,
    /// `pg_settings`
    Settings,
}

/// All tables about the session.
pub(crate) const SESSION_TABLES: [SessionTable; 3] =
    [SessionTable::Cursors, SessionTable::Prepared, SessionTable::Settings];

impl SessionTable {
    /// Returns the table of a name.
    pub(crate) fn named(name: &str) -> Option<SessionTable> {
        SESSION_TABLES.into_iter().find(|table| table.name().eq_ignore_ascii_case(name))
    }

    /// Returns its name within `pg_catalog`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SessionTable::Cursors => "pg_cursors",
            SessionTable::Prepared => "pg_prepared_statements",
            SessionTable::Settings => "pg_settings",
        }
    }

    /// Returns its columns, which are those of PostgreSQL.
    fn columns(self) -> SchemaRef {
        let names = DataType::new_list(DataType::Utf8, true);
        let columns: Vec<(&str, DataType)> = match self {
            SessionTable::Cursors => vec![
                ("name", DataType::Utf8),
                ("statement", DataType::Utf8),
                ("is_holdable", DataType::Boolean),
                ("is_binary", DataType::Boolean),
                ("is_scrollable", DataType::Boolean),
                ("creation_time", timestamp_type()),
            ],
            SessionTable::Prepared => vec![
                ("name", DataType::Utf8),
                ("statement", DataType::Utf8),
                ("prepare_time", timestamp_type()),
                ("parameter_types", names.clone()),
                ("result_types", names),
                ("from_sql", DataType::Boolean),
            ],
            SessionTable::Settings => vec![
                ("name", DataType::Utf8),
                ("setting", DataType::Utf8),
                ("unit", DataType::Utf8),
                ("category", DataType::Utf8),
                ("short_desc", DataType::Utf8),
                ("extra_desc", DataType::Utf8),
                ("context", DataType::Utf8),
                ("vartype", DataType::Utf8),
                ("source", DataType::Utf8),
                ("min_val", DataType::Utf8),
                ("max_val", DataType::Utf8),
                ("enumvals", names),
                ("boot_val", DataType::Utf8),
                ("reset_val", DataType::Utf8),
                ("sourcefile", DataType::Utf8),
                ("sourceline", DataType::Int32),
                ("pending_restart", DataType::Boolean),
            ],
        };
        let columns = columns.into_iter().map(|(name, kind)| Field::new(name, kind, true));
        Arc::new(Schema::new(columns.collect::<Vec<_>>()))
    }

    fn rows(self, session: Option<&SessionRows>) -> Vec<ArrayRef> {
        match self {
            SessionTable::Cursors => cursors(session.map_or(&[], |session| &session.cursors)),
            SessionTable::Prepared => prepared(session.map_or(&[], |session| &session.prepared)),
            SessionTable::Settings => {
                let all = session.map(|session| session.settings.lock().all());
                settings(&all.unwrap_or_default())
            }
        }
    }
}

fn cursors(all: &[CursorRow]) -> Vec<ArrayRef> {
    vec![
        text(all.iter().map(|cursor| cursor.name.as_str())),
        text(all.iter().map(|cursor| cursor.statement.as_str())),
        flags(all.iter().map(|_| false)),
        flags(all.iter().map(|cursor| cursor.binary)),
        flags(all.iter().map(|_| false)),
        times(all.iter().map(|cursor| cursor.created_us)),
    ]
}

fn prepared(all: &[PreparedRow]) -> Vec<ArrayRef> {
    vec![
        text(all.iter().map(|prepared| prepared.name.as_str())),
        text(all.iter().map(|prepared| prepared.statement.as_str())),
        times(all.iter().map(|prepared| prepared.created_us)),
        lists(all.iter().map(|prepared| Some(prepared.parameters.as_slice()))),
        lists(all.iter().map(|prepared| prepared.columns.as_deref())),
        flags(all.iter().map(|prepared| prepared.from_sql)),
    ]
}

fn settings(all: &[(String, String)]) -> Vec<ArrayRef> {
    let none = || -> ArrayRef { Arc::new(StringArray::new_null(all.len())) };
    let kind = |(_, value): &(String, String)| match value.as_str() {
        "on" | "off" => "bool",
        value if value.parse::<i64>().is_ok() => "integer",
        _ => "string",
    };
    let context = |(name, _): &(String, String)| if Settings::is_fixed(name) { "internal" } else { "user" };
    let defaults =
        || -> ArrayRef { Arc::new(StringArray::from_iter(all.iter().map(|(name, _)| Settings::default(name)))) };
    let source = |(name, value): &(String, String)| match Settings::default(name) {
        Some(default) if default == value => "default",
        _ => "session",
    };
    vec![
        text(all.iter().map(|(name, _)| name.as_str())),
        text(all.iter().map(|(_, value)| value.as_str())),
        none(),
        none(),
        none(),
        none(),
        text(all.iter().map(context)),
        text(all.iter().map(kind)),
        text(all.iter().map(source)),
        none(),
        none(),
        lists(all.iter().map(|_| None)),
        defaults(),
        defaults(),
        none(),
        Arc::new(Int32Array::new_null(all.len())),
        flags(all.iter().map(|_| false)),
    ]
}

fn flags(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(BooleanArray::from_iter(values.map(Some)))
}

fn times(values_us: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(values_us).with_timezone(UTC))
}

fn lists<'a>(values: impl Iterator<Item = Option<&'a [String]>>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in values {
        match value {
            Some(texts) => lists.append_value(texts.iter().map(Some)),
            None => lists.append_null(),
        }
    }
    Arc::new(lists.finish())
}

/// Provider of a table about the session.
#[derive(Debug)]
pub(crate) struct SessionTableProvider {
    table: SessionTable,
    schema: SchemaRef,
}

impl SessionTableProvider {
    pub(crate) fn new(table: SessionTable) -> SessionTableProvider {
        SessionTableProvider { table, schema: table.columns() }
    }

    fn plan_scan(&self, session: &dyn Session, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = session.config().get_extension::<SessionRows>();
        rows_read::scan(session, self.table.name().to_owned(), (&self.schema, projection), || {
            Ok(self.table.rows(rows.as_deref()))
        })
    }
}

impl TableProvider for SessionTableProvider {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        session: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        _filters: &'c [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
    {
        planned(self.plan_scan(session, projection))
    }
}
