//! Corrections to the PostgreSQL catalog of the store's tables, where the library's answer is too coarse.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableType, lit, when,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{Expr, ident};
use futures::future::BoxFuture;
use pgwire::api::Type;

use crate::system::rows_read;
use crate::system::tables::text;
use crate::table::column::{UTC, timestamp_type};
use crate::table::planned;

/// Type modifier of `numeric(20,0)`, which holds every u64. No other column type is numeric.
const NUMERIC_20_MODIFIER: i32 = (20 << 16) + 4;

/// The schema `pg_catalog`.
#[derive(Debug)]
pub(crate) struct PgCatalog(pub(crate) Arc<dyn SchemaProvider>);

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.0.table_names();
        names.push(CURSORS.to_owned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let name = name.to_ascii_lowercase();
        if name == CURSORS {
            return Ok(Some(Arc::new(CursorTable::new())));
        }
        let Some(table) = self.0.table(&name).await? else { return Ok(None) };
        corrected(&name, table).map(Some)
    }

    fn table_exist(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(CURSORS) || self.0.table_exist(name)
    }
}

/// Columns of privileges and options, which are arrays of texts and not texts. They are all NULL.
const TEXT_ARRAYS: [&str; 8] =
    ["attacl", "attoptions", "datacl", "lanacl", "nspacl", "proacl", "reloptions", "setconfig"];

/// Returns a table with the precision of numeric columns, and with columns that it lacks or has in another type.
fn corrected(name: &str, table: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let no_texts = || lit(ScalarValue::new_null_list(DataType::Utf8, true, 1));
    let schema = table.schema();
    let mut is_same = true;
    let mut columns: Vec<Expr> = Vec::with_capacity(schema.fields().len() + 1);
    for field in schema.fields() {
        let column = field.name().as_str();
        let is_list = matches!(field.data_type(), DataType::List(_));
        let correction = match (name, column) {
            ("pg_attribute", "atttypmod") => {
                let numeric = ident("atttypid").eq(lit(Type::NUMERIC.oid() as i32));
                Some(when(numeric, lit(NUMERIC_20_MODIFIER)).otherwise(ident("atttypmod"))?)
            }
            (_, column) if TEXT_ARRAYS.contains(&column) && !is_list => Some(no_texts()),
            ("pg_constraint", "conkey" | "confkey") if !is_list => {
                Some(lit(ScalarValue::new_null_list(DataType::Int16, true, 1)))
            }
            _ => None,
        };
        is_same &= correction.is_none();
        columns.push(correction.map_or_else(|| ident(column), |corrected| corrected.alias(column)));
    }
    for missing in ["relacl", "reloptions"] {
        if name == "pg_class" && schema.field_with_name(missing).is_err() {
            columns.push(no_texts().alias(missing));
            is_same = false;
        }
    }
    if is_same {
        return Ok(table);
    }
    let plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.project(columns)?;
    Ok(Arc::new(ViewTable::new(plan.build()?, None)))
}

/// Name of the table of cursors.
const CURSORS: &str = "pg_cursors";

/// A cursor of a session, as its statements see it.
#[derive(Clone, Debug)]
pub(crate) struct CursorRow {
    pub(crate) name: String,
    pub(crate) statement: String,
    pub(crate) binary: bool,
    pub(crate) created_us: i64,
}

/// The cursors of a session. An extension of the session of an execution.
#[derive(Debug, Default)]
pub(crate) struct SessionCursors(pub(crate) Vec<CursorRow>);

/// The table `pg_cursors`, with the cursors of the session that reads it.
#[derive(Debug)]
struct CursorTable(SchemaRef);

impl CursorTable {
    fn new() -> CursorTable {
        let field = |name: &str, kind: DataType| Field::new(name, kind, true);
        CursorTable(Arc::new(Schema::new(vec![
            field("name", DataType::Utf8),
            field("statement", DataType::Utf8),
            field("is_holdable", DataType::Boolean),
            field("is_binary", DataType::Boolean),
            field("is_scrollable", DataType::Boolean),
            field("creation_time", timestamp_type()),
        ])))
    }

    fn plan_scan(&self, session: &dyn Session, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let cursors = session.config().get_extension::<SessionCursors>().unwrap_or_default();
        rows_read::scan(session, CURSORS.to_owned(), (&self.0, projection), || {
            let all = &cursors.0;
            let flags = |flag: fn(&CursorRow) -> bool| -> ArrayRef {
                Arc::new(BooleanArray::from_iter(all.iter().map(|cursor| Some(flag(cursor)))))
            };
            Ok(vec![
                text(all.iter().map(|cursor| cursor.name.as_str())),
                text(all.iter().map(|cursor| cursor.statement.as_str())),
                flags(|_| false),
                flags(|cursor| cursor.binary),
                flags(|_| false),
                Arc::new(
                    TimestampMicrosecondArray::from_iter_values(all.iter().map(|cursor| cursor.created_us))
                        .with_timezone(UTC),
                ),
            ])
        })
    }
}

impl TableProvider for CursorTable {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
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

/// The function `format_type`, changed to include the scale of a numeric even if it is 0.
#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct FormatType(pub(crate) Arc<ScalarUDF>);

impl ScalarUDFImpl for FormatType {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        self.0.return_type(kinds)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let types = self.0.invoke_with_args(args)?.into_array(rows)?;
        let named = types.as_string::<i32>().iter().map(|name| {
            name.map(|name| match name.strip_prefix("numeric(").and_then(|rest| rest.strip_suffix(')')) {
                Some(digits) if !digits.contains(',') => format!("numeric({digits},0)"),
                _ => name.to_owned(),
            })
        });
        Ok(ColumnarValue::Array(Arc::new(named.collect::<StringArray>())))
    }
}

/// Returns functions with the same result for everything in the catalog.
pub(crate) fn constants() -> Vec<(&'static str, ScalarValue)> {
    let visible = [
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_function_is_visible",
        "pg_opclass_is_visible",
        "pg_operator_is_visible",
        "pg_opfamily_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_type_is_visible",
    ];
    // The sizes of tables are not known: streams share segments.
    let sizes =
        ["pg_database_size", "pg_relation_size", "pg_table_size", "pg_tablespace_size", "pg_total_relation_size"];
    let texts = [
        "pg_describe_object",
        "pg_get_function_arguments",
        "pg_get_function_result",
        "pg_get_function_sqlbody",
        "pg_get_functiondef",
        "pg_get_indexdef",
        "pg_get_viewdef",
        "pg_advisory_unlock_all",
        "pg_tablespace_location",
    ];
    let visible = visible.map(|name| (name, ScalarValue::from(true)));
    let sizes = sizes.map(|name| (name, ScalarValue::Int64(None)));
    let texts = texts.map(|name| (name, ScalarValue::Utf8(None)));
    visible.into_iter().chain(sizes).chain(texts).collect()
}
