//! Calls about the catalog: databases, schemas, tables, types, and what the server supports.

use arrow_flight::sql::metadata::{
    GetDbSchemasBuilder, GetTablesBuilder, SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData,
    XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Command, CommandGetDbSchemas, CommandGetTables, Nullable, Searchable, SqlInfo, SqlNullOrdering,
    SqlSupportedCaseSensitivity, SqlSupportedTransaction, XdbcDataType, XdbcDatetimeSubcode,
};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::CatalogProvider;
use std::sync::Arc;

use super::result::Messages;
use super::statement::sent_schema;
use super::status::malformed;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::system::catalog::{DATABASE, DatabaseRef, PUBLIC, SYSTEM};

/// Type of the tables of the store, and of those of the server.
const TABLE: &str = "TABLE";
const SYSTEM_TABLE: &str = "SYSTEM TABLE";
/// Tables whose columns are sent in one message.
const TABLES_AT_A_TIME: usize = 16;
/// Maximum bytes of a pattern of names.
const PATTERN_BYTES_MAX: usize = 1 << 10;

/// A call about the catalog.
pub(super) struct CatalogCall(Command);

impl CatalogCall {
    /// Returns the call of a command, or the command if it is none.
    pub(super) fn of(command: Command) -> Result<CatalogCall, Box<Command>> {
        match command {
            Command::CommandGetCatalogs(_)
            | Command::CommandGetDbSchemas(_)
            | Command::CommandGetTables(_)
            | Command::CommandGetTableTypes(_)
            | Command::CommandGetSqlInfo(_)
            | Command::CommandGetXdbcTypeInfo(_)
            | Command::CommandGetPrimaryKeys(_)
            | Command::CommandGetExportedKeys(_)
            | Command::CommandGetImportedKeys(_)
            | Command::CommandGetCrossReference(_) => Ok(CatalogCall(command)),
            other => Err(Box::new(other)),
        }
    }

    /// Returns the columns of the answer.
    pub(super) fn schema(&self) -> SchemaRef {
        match &self.0 {
            Command::CommandGetCatalogs(call) => call.into_builder().schema(),
            Command::CommandGetDbSchemas(call) => call.clone().into_builder().schema(),
            Command::CommandGetTables(call) => call.clone().into_builder().schema(),
            Command::CommandGetTableTypes(call) => call.into_builder().schema(),
            Command::CommandGetSqlInfo(_) => Arc::new(SqlInfoDataBuilder::schema().clone()),
            Command::CommandGetXdbcTypeInfo(_) => XdbcTypeInfoDataBuilder::new().schema(),
            Command::CommandGetPrimaryKeys(_) => primary_keys(),
            _ => foreign_keys(),
        }
    }

    /// Sends the answer.
    ///
    /// # Errors
    /// If a pattern is invalid.
    pub(super) async fn put(self, query: &Query, writable: bool, out: &mut Messages) -> Result<(), QueryError> {
        let schema = self.schema();
        out.put_schema(&schema).await;
        let batch = match self.0 {
            Command::CommandGetCatalogs(call) => {
                let mut builder = call.into_builder();
                builder.append(DATABASE);
                builder.build()
            }
            Command::CommandGetDbSchemas(call) => db_schemas(query, call)?.build(),
            Command::CommandGetTables(call) => return tables(query, call, &schema, out).await,
            Command::CommandGetTableTypes(call) => {
                let mut builder = call.into_builder();
                [SYSTEM_TABLE, TABLE].into_iter().for_each(|kind| builder.append(kind));
                builder.build()
            }
            Command::CommandGetSqlInfo(call) => call.into_builder(&sql_info(writable)?).build(),
            Command::CommandGetXdbcTypeInfo(call) => xdbc_types()?.record_batch(call.data_type),
            _ => return Ok(()),
        };
        out.put(&batch.map_err(unmade)?, &schema).await
    }
}

fn unmade(error: arrow_flight::error::FlightError) -> QueryError {
    malformed(&error.to_string())
}

fn check_pattern(pattern: Option<&String>) -> Result<(), QueryError> {
    if pattern.is_none_or(|pattern| pattern.len() <= PATTERN_BYTES_MAX) {
        return Ok(());
    }
    let text = format!("a pattern of names is longer than {PATTERN_BYTES_MAX} bytes");
    Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text))
}

fn db_schemas(query: &Query, call: CommandGetDbSchemas) -> Result<GetDbSchemasBuilder, QueryError> {
    check_pattern(call.db_schema_filter_pattern.as_ref())?;
    let mut builder = call.into_builder();
    let database = DatabaseRef(query.inner.database.clone());
    let mut names = database.schema_names();
    names.push("information_schema".to_owned());
    names.sort();
    names.dedup();
    names.iter().for_each(|name| builder.append(DATABASE, name));
    Ok(builder)
}

/// Sends the tables that a call asks for, those of one message at a time.
async fn tables(
    query: &Query,
    call: CommandGetTables,
    schema: &SchemaRef,
    out: &mut Messages,
) -> Result<(), QueryError> {
    check_pattern(call.db_schema_filter_pattern.as_ref())?;
    check_pattern(call.table_name_filter_pattern.as_ref())?;
    let database = DatabaseRef(query.inner.database.clone());
    let schemas = call.include_schema;
    let mut names = CommandGetTables { include_schema: false, ..call }.into_builder();
    for (of, kind) in [(PUBLIC, TABLE), (SYSTEM, SYSTEM_TABLE)] {
        for name in database.schema(of).map(|schema| schema.table_names()).unwrap_or_default() {
            names.append(DATABASE, of, name, kind, &Schema::empty()).map_err(unmade)?;
        }
    }
    let names = names.build().map_err(unmade)?;
    if !schemas {
        return out.put(&names, schema).await;
    }
    let text = |column: usize, row: usize| names.column(column).as_string::<i32>().value(row);
    for from in (0..names.num_rows()).step_by(TABLES_AT_A_TIME) {
        let no_filter: Option<String> = None;
        let mut part =
            GetTablesBuilder::new(no_filter.clone(), no_filter.clone(), no_filter, Vec::<String>::new(), true);
        for row in from..names.num_rows().min(from + TABLES_AT_A_TIME) {
            let (of, name) = (text(1, row), text(2, row));
            let Some(of_schema) = database.schema(of) else { continue };
            if let Some(table) = of_schema.table(name).await? {
                let columns = sent_schema(&table.schema());
                part.append(DATABASE, of, name, text(3, row), &columns).map_err(unmade)?;
            }
        }
        let part = part.build().map_err(unmade)?;
        out.put(&part, schema).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns what the server supports. `writable` says whether it takes bulk writes.
fn sql_info(writable: bool) -> Result<SqlInfoData, QueryError> {
    let mut builder = SqlInfoDataBuilder::new();
    builder.append(SqlInfo::FlightSqlServerName, "Strongback");
    builder.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    builder.append(SqlInfo::FlightSqlServerArrowVersion, "1.5");
    builder.append(SqlInfo::FlightSqlServerReadOnly, true);
    builder.append(SqlInfo::FlightSqlServerSql, true);
    builder.append(SqlInfo::FlightSqlServerSubstrait, false);
    builder.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    builder.append(SqlInfo::FlightSqlServerCancel, true);
    builder.append(SqlInfo::FlightSqlServerBulkIngestion, writable);
    builder.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    builder.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    builder.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    builder.append(SqlInfo::SqlDdlCatalog, false);
    builder.append(SqlInfo::SqlDdlSchema, false);
    builder.append(SqlInfo::SqlDdlTable, false);
    builder.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32);
    builder.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    );
    builder.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    builder.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    builder.build().map_err(unmade)
}

/// Returns the types of columns.
fn xdbc_types() -> Result<XdbcTypeInfoData, QueryError> {
    let kind = |name: &str, data_type: XdbcDataType, size: i32| XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type,
        column_size: Some(size),
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        sql_data_type: data_type,
        ..XdbcTypeInfo::default()
    };
    let number = |name: &str, data_type: XdbcDataType, size: i32, radix: i32| XdbcTypeInfo {
        unsigned_attribute: Some(false),
        auto_increment: Some(false),
        num_prec_radix: Some(radix),
        ..kind(name, data_type, size)
    };
    let quoted = |info: XdbcTypeInfo| XdbcTypeInfo {
        literal_prefix: Some("'".to_owned()),
        literal_suffix: Some("'".to_owned()),
        ..info
    };
    let time = |name: &str| XdbcTypeInfo {
        datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
        sql_data_type: XdbcDataType::XdbcDatetime,
        ..quoted(kind(name, XdbcDataType::XdbcTimestamp, 32))
    };
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for info in [
        kind("boolean", XdbcDataType::XdbcBit, 1),
        number("smallint", XdbcDataType::XdbcSmallint, 16, 2),
        number("integer", XdbcDataType::XdbcInteger, 32, 2),
        number("bigint", XdbcDataType::XdbcBigint, 64, 2),
        number("real", XdbcDataType::XdbcReal, 24, 2),
        number("double precision", XdbcDataType::XdbcDouble, 53, 2),
        XdbcTypeInfo { maximum_scale: Some(38), ..number("numeric", XdbcDataType::XdbcNumeric, 38, 10) },
        XdbcTypeInfo { case_sensitive: true, ..quoted(kind("text", XdbcDataType::XdbcVarchar, i32::MAX)) },
        quoted(kind("date", XdbcDataType::XdbcDate, 13)),
        time("timestamp"),
        time("timestamptz"),
    ] {
        builder.append(info);
    }
    builder.build().map_err(unmade)
}

fn fields(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let field = |(name, kind, nullable): &(&str, DataType, bool)| Field::new(*name, kind.clone(), *nullable);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// Returns the columns of an answer about primary keys, which no table has.
fn primary_keys() -> SchemaRef {
    fields(&[
        ("catalog_name", DataType::Utf8, true),
        ("db_schema_name", DataType::Utf8, true),
        ("table_name", DataType::Utf8, false),
        ("column_name", DataType::Utf8, false),
        ("key_name", DataType::Utf8, true),
        ("key_sequence", DataType::Int32, false),
    ])
}

/// Returns the columns of an answer about foreign keys, which no table has.
fn foreign_keys() -> SchemaRef {
    fields(&[
        ("pk_catalog_name", DataType::Utf8, true),
        ("pk_db_schema_name", DataType::Utf8, true),
        ("pk_table_name", DataType::Utf8, false),
        ("pk_column_name", DataType::Utf8, false),
        ("fk_catalog_name", DataType::Utf8, true),
        ("fk_db_schema_name", DataType::Utf8, true),
        ("fk_table_name", DataType::Utf8, false),
        ("fk_column_name", DataType::Utf8, false),
        ("key_sequence", DataType::Int32, false),
        ("fk_key_name", DataType::Utf8, true),
        ("pk_key_name", DataType::Utf8, true),
        ("update_rule", DataType::UInt8, false),
        ("delete_rule", DataType::UInt8, false),
    ])
}
