//! Corrections to the PostgreSQL catalog of the store's tables, where the library's answer is too coarse.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, lit, when,
};
use datafusion::prelude::{Expr, ident};
use pgwire::api::Type;

/// Type modifier of `numeric(20,0)`, which holds every u64. No other column type is numeric.
const NUMERIC_20_MODIFIER: i32 = (20 << 16) + 4;

/// The schema `pg_catalog`.
#[derive(Debug)]
pub(crate) struct PgCatalog(pub(crate) Arc<dyn SchemaProvider>);

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        self.0.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some(table) = self.0.table(name).await? else { return Ok(None) };
        if name.eq_ignore_ascii_case("pg_attribute") { with_modifiers(table).map(Some) } else { Ok(Some(table)) }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.table_exist(name)
    }
}

/// Returns `pg_attribute` with the precision of numeric columns.
fn with_modifiers(attributes: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let numeric = ident("atttypid").eq(lit(Type::NUMERIC.oid() as i32));
    let modifier = when(numeric, lit(NUMERIC_20_MODIFIER)).otherwise(ident("atttypmod"))?;
    let columns: Vec<Expr> = attributes
        .schema()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            "atttypmod" => modifier.clone().alias("atttypmod"),
            name => ident(name),
        })
        .collect();
    let plan = LogicalPlanBuilder::scan("pg_attribute", provider_as_source(attributes), None)?.project(columns)?;
    Ok(Arc::new(ViewTable::new(plan.build()?, None)))
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
pub(crate) fn constants() -> [(&'static str, ScalarValue); 3] {
    [
        ("pg_function_is_visible", ScalarValue::from(true)),
        ("pg_get_function_result", ScalarValue::Utf8(None)),
        ("pg_get_function_arguments", ScalarValue::Utf8(None)),
    ]
}
