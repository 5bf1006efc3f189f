//! Corrections to the PostgreSQL catalog of the store's tables, where the library's answer is too coarse.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, lit, when,
};
use datafusion::prelude::{Expr, col, ident};
use pgwire::api::Type;

use crate::system::catalog::{DATABASE, Database, PUBLIC, SYSTEM};
use crate::system::listed_functions;
use crate::system::session_tables::{SESSION_TABLES, SessionTable, SessionTableProvider};
use crate::wire::encode::wire_type;

/// Type modifier of `numeric(20,0)`, which holds every u64. No other column type is numeric.
const NUMERIC_20_MODIFIER: i32 = (20 << 16) + 4;

/// The schema `pg_catalog`.
#[derive(Debug)]
pub(crate) struct PgCatalog {
    /// The schema as the library has it.
    pub(crate) library: Arc<dyn SchemaProvider>,
    /// The database that has this schema.
    pub(crate) database: Weak<Database>,
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.library.table_names();
        let missing = SESSION_TABLES.iter().map(|table| table.name()).filter(|name| !self.library.table_exist(name));
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        names.extend(missing);
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let name = name.to_ascii_lowercase();
        if let Some(table) = SessionTable::named(&name) {
            return Ok(Some(Arc::new(SessionTableProvider::new(table))));
        }
        let Some(table) = self.library.table(&name).await? else { return Ok(None) };
        let table = if name == "pg_proc" { self.with_table_functions(table).await? } else { table };
        let arrays = if name == "pg_attribute" { self.arrays().await? } else { None };
        corrected(&name, table, arrays).map(Some)
    }

    fn table_exist(&self, name: &str) -> bool {
        SessionTable::named(name).is_some() || self.library.table_exist(name)
    }
}

impl PgCatalog {
    /// Returns `pg_proc` with the table functions, which are in the schema `public`.
    async fn with_table_functions(&self, functions: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
        let Some(namespaces) = self.library.table("pg_namespace").await? else { return Ok(functions) };
        let rows = listed_functions::rows(&functions.schema())?;
        let rows: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?);
        let scan =
            |name: &str, table: Arc<dyn TableProvider>| LogicalPlanBuilder::scan(name, provider_as_source(table), None);
        let column = |name: &String| match name.as_str() {
            "pronamespace" => col("n.oid").alias("pronamespace"),
            name => col(format!("f.{name}")).alias(name),
        };
        let schema = functions.schema();
        let columns: Vec<Expr> = schema.fields().iter().map(|field| column(field.name())).collect();
        let public = scan("n", namespaces)?.filter(col("n.nspname").eq(lit(PUBLIC)))?.build()?;
        let own = scan("f", rows)?.cross_join(public)?.project(columns)?.build()?;
        let all = scan("pg_proc", functions)?.union(own)?.build()?;
        Ok(Arc::new(ViewTable::new(all, None)))
    }

    /// Returns a plan of the columns that are arrays, which the library takes for texts: `x_relid`, `x_attname`, and the
    /// number of their type, `x_typid`. Returns `None` if there are none.
    async fn arrays(&self) -> Result<Option<LogicalPlanBuilder>> {
        let Some(database) = self.database.upgrade() else { return Ok(None) };
        let tables = database.tables();
        let mut columns: [Vec<String>; 3] = Default::default();
        let mut types = Vec::new();
        for full in tables.names() {
            let Some(table) = tables.table(full) else { continue };
            let system = full.strip_prefix(SYSTEM).and_then(|rest| rest.strip_prefix('.'));
            let (schema, name) = system.map_or((PUBLIC, full.as_str()), |name| (SYSTEM, name));
            for field in table.schema().fields().iter().filter(|field| field.data_type().is_nested()) {
                let Ok(kind) = wire_type(field) else { continue };
                for (column, value) in columns.iter_mut().zip([schema, name, field.name()]) {
                    column.push(value.to_owned());
                }
                types.push(kind.oid() as i32);
            }
        }
        let (Some(classes), Some(namespaces)) =
            (self.library.table("pg_class").await?, self.library.table("pg_namespace").await?)
        else {
            return Ok(None);
        };
        if types.is_empty() {
            return Ok(None);
        }
        let [schemas, names, attributes] = columns.map(|column| Arc::new(StringArray::from(column)) as ArrayRef);
        let found = RecordBatch::try_from_iter([
            ("x_schema", schemas),
            ("x_name", names),
            ("x_attname", attributes),
            ("x_typid", Arc::new(Int32Array::from(types)) as ArrayRef),
        ])?;
        let found = Arc::new(MemTable::try_new(found.schema(), vec![vec![found]])?);
        let scan =
            |name: &str, table: Arc<dyn TableProvider>| LogicalPlanBuilder::scan(name, provider_as_source(table), None);
        let joined = scan("x", found)?
            .join(scan("n", namespaces)?.build()?, JoinType::Inner, (vec!["x.x_schema"], vec!["n.nspname"]), None)?
            .join(
                scan("c", classes)?.build()?,
                JoinType::Inner,
                (vec!["x.x_name", "n.oid"], vec!["c.relname", "c.relnamespace"]),
                None,
            )?
            .project(vec![
                col("c.oid").alias("x_relid"),
                ident("x_attname").alias("x_attname"),
                ident("x_typid").alias("x_typid"),
            ])?;
        Ok(Some(joined))
    }
}

/// Columns of privileges and options, which are arrays of texts and not texts. They are all NULL.
const TEXT_ARRAYS: [&str; 9] =
    ["attacl", "attoptions", "datacl", "lanacl", "nspacl", "proacl", "reloptions", "setconfig", "typacl"];

/// Returns a table with the precision of numeric columns, and with columns that it lacks or has in another type.
fn corrected(
    name: &str,
    table: Arc<dyn TableProvider>,
    arrays: Option<LogicalPlanBuilder>,
) -> Result<Arc<dyn TableProvider>> {
    let no_list = |element: DataType| lit(ScalarValue::new_null_list(element, true, 1));
    let schema = table.schema();
    let is_array = || ident("x_typid").is_not_null();
    // There are no indexes, and one database.
    let condition = match name {
        "pg_index" => Some(lit(false)),
        "pg_database" => Some(ident("datname").eq(lit(DATABASE))),
        _ => None,
    };
    let mut is_same = condition.is_none();
    let mut columns: Vec<Expr> = Vec::with_capacity(schema.fields().len() + 1);
    for field in schema.fields() {
        let column = field.name().as_str();
        let is_list = matches!(field.data_type(), DataType::List(_));
        let correction = match (name, column) {
            ("pg_attribute", "atttypmod") => {
                let mut numeric = ident("atttypid").eq(lit(Type::NUMERIC.oid() as i32));
                if arrays.is_some() {
                    let array = ident("x_typid").eq(lit(Type::NUMERIC_ARRAY.oid() as i32));
                    numeric = numeric.or(array.is_true());
                }
                Some(when(numeric, lit(NUMERIC_20_MODIFIER)).otherwise(ident("atttypmod"))?)
            }
            ("pg_attribute", "atttypid") if arrays.is_some() => {
                Some(when(is_array(), ident("x_typid")).otherwise(ident("atttypid"))?)
            }
            ("pg_attribute", "attndims") if arrays.is_some() => {
                Some(when(is_array(), lit(1_i32)).otherwise(ident("attndims"))?)
            }
            (_, column) if TEXT_ARRAYS.contains(&column) && !is_list => Some(no_list(DataType::Utf8)),
            ("pg_constraint", "conkey" | "confkey") | ("pg_index", "indkey" | "indoption") if !is_list => {
                Some(no_list(DataType::Int16))
            }
            ("pg_index", "indclass" | "indcollation") if !is_list => Some(no_list(DataType::Int32)),
            _ => None,
        };
        is_same &= correction.is_none();
        let metadata = || (!field.metadata().is_empty()).then(|| FieldMetadata::from(field.metadata()));
        columns.push(correction.map_or_else(|| ident(column), |made| made.alias_with_metadata(column, metadata())));
    }
    for missing in ["relacl", "reloptions"] {
        if name == "pg_class" && schema.field_with_name(missing).is_err() {
            columns.push(no_list(DataType::Utf8).alias(missing));
            is_same = false;
        }
    }
    if is_same {
        return Ok(table);
    }
    let mut plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?;
    if let Some(arrays) = arrays {
        let keys = (vec!["attrelid", "attname"], vec!["x_relid", "x_attname"]);
        plan = plan.join(arrays.build()?, JoinType::Left, keys, None)?;
    }
    if let Some(condition) = condition {
        plan = plan.filter(condition)?;
    }
    Ok(Arc::new(ViewTable::new(plan.project(columns)?.build()?, None)))
}

/// The function `format_type`, changed to include the scale of a numeric even if it is 0, also in arrays.
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
        let kinds = args.args[0].to_array(rows)?;
        let is_array = |row: usize| {
            let kinds = kinds.as_primitive_opt::<Int32Type>();
            kinds.is_some_and(|kinds| kinds.is_valid(row) && kinds.value(row) == Type::NUMERIC_ARRAY.oid() as i32)
        };
        let arrays: Vec<bool> = (0..rows).map(is_array).collect();
        let mut args = args;
        if arrays.contains(&true) {
            let elements = kinds.as_primitive::<Int32Type>().unary::<_, Int32Type>(|oid| {
                if oid == Type::NUMERIC_ARRAY.oid() as i32 { Type::NUMERIC.oid() as i32 } else { oid }
            });
            args.args[0] = ColumnarValue::Array(Arc::new(elements));
        }
        let types = self.0.invoke_with_args(args)?.into_array(rows)?;
        let named = types.as_string::<i32>().iter().zip(arrays).map(|(name, is_array)| {
            let name = match name?.strip_prefix("numeric(").and_then(|rest| rest.strip_suffix(')')) {
                Some(digits) if !digits.contains(',') => format!("numeric({digits},0)"),
                _ => name?.to_owned(),
            };
            Some(if is_array { name + "[]" } else { name })
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
