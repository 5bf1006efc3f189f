//! The schema `information_schema`: tables and columns with the names of types in PostgreSQL, and views of what does not
//! exist here (keys, constraints, triggers, …), which have no rows.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::Expr;
use futures::FutureExt;
use futures::future::BoxFuture;
use pgwire::api::Type;

use crate::system::catalog::{DATABASE, DatabaseRef};
use crate::system::rows_read;
use crate::system::session::type_text;
use crate::wire::encode::{elements_of_type, wire_type};

/// Name of the schema.
pub(crate) const INFORMATION: &str = "information_schema";

/// A view: its name, and its columns. Those that begin with `#` are integers, all others texts.
struct Definition {
    name: &'static str,
    columns: &'static [&'static str],
}

const TABLES: Definition = Definition {
    name: "tables",
    columns: &[
        "table_catalog",
        "table_schema",
        "table_name",
        "table_type",
        "self_referencing_column_name",
        "reference_generation",
        "user_defined_type_catalog",
        "user_defined_type_schema",
        "user_defined_type_name",
        "is_insertable_into",
        "is_typed",
        "commit_action",
    ],
};

const VIEWS: Definition = Definition {
    name: "views",
    columns: &[
        "table_catalog",
        "table_schema",
        "table_name",
        "view_definition",
        "check_option",
        "is_updatable",
        "is_insertable_into",
        "is_trigger_updatable",
        "is_trigger_deletable",
        "is_trigger_insertable_into",
    ],
};

const COLUMNS: Definition = Definition {
    name: "columns",
    columns: &[
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "#ordinal_position",
        "column_default",
        "is_nullable",
        "data_type",
        "#character_maximum_length",
        "#character_octet_length",
        "#numeric_precision",
        "#numeric_precision_radix",
        "#numeric_scale",
        "#datetime_precision",
        "interval_type",
        "#interval_precision",
        "character_set_catalog",
        "character_set_schema",
        "character_set_name",
        "collation_catalog",
        "collation_schema",
        "collation_name",
        "domain_catalog",
        "domain_schema",
        "domain_name",
        "udt_catalog",
        "udt_schema",
        "udt_name",
        "scope_catalog",
        "scope_schema",
        "scope_name",
        "#maximum_cardinality",
        "dtd_identifier",
        "is_self_referencing",
        "is_identity",
        "identity_generation",
        "identity_start",
        "identity_increment",
        "identity_maximum",
        "identity_minimum",
        "identity_cycle",
        "is_generated",
        "generation_expression",
        "is_updatable",
    ],
};

const SCHEMATA: Definition = Definition {
    name: "schemata",
    columns: &[
        "catalog_name",
        "schema_name",
        "schema_owner",
        "default_character_set_catalog",
        "default_character_set_schema",
        "default_character_set_name",
        "sql_path",
    ],
};

/// All views.
const DEFINITIONS: &[Definition] = &[
    TABLES,
    VIEWS,
    COLUMNS,
    SCHEMATA,
    Definition {
        name: "table_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_type",
            "is_deferrable",
            "initially_deferred",
            "enforced",
            "nulls_distinct",
        ],
    },
    Definition {
        name: "key_column_usage",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "#ordinal_position",
            "#position_in_unique_constraint",
        ],
    },
    Definition {
        name: "constraint_column_usage",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
    },
    Definition {
        name: "constraint_table_usage",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
    },
    Definition {
        name: "referential_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "unique_constraint_catalog",
            "unique_constraint_schema",
            "unique_constraint_name",
            "match_option",
            "update_rule",
            "delete_rule",
        ],
    },
    Definition {
        name: "check_constraints",
        columns: &["constraint_catalog", "constraint_schema", "constraint_name", "check_clause"],
    },
    Definition {
        name: "triggers",
        columns: &[
            "trigger_catalog",
            "trigger_schema",
            "trigger_name",
            "event_manipulation",
            "event_object_catalog",
            "event_object_schema",
            "event_object_table",
            "#action_order",
            "action_statement",
            "action_timing",
        ],
    },
    Definition {
        name: "sequences",
        columns: &[
            "sequence_catalog",
            "sequence_schema",
            "sequence_name",
            "data_type",
            "start_value",
            "minimum_value",
            "maximum_value",
            "increment",
            "cycle_option",
        ],
    },
    Definition {
        name: "routines",
        columns: &[
            "specific_catalog",
            "specific_schema",
            "specific_name",
            "routine_catalog",
            "routine_schema",
            "routine_name",
            "routine_type",
            "data_type",
            "type_udt_name",
            "routine_body",
            "routine_definition",
            "external_language",
        ],
    },
    Definition {
        name: "parameters",
        columns: &[
            "specific_catalog",
            "specific_schema",
            "specific_name",
            "#ordinal_position",
            "parameter_mode",
            "parameter_name",
            "data_type",
            "udt_name",
            "parameter_default",
        ],
    },
    Definition {
        name: "domains",
        columns: &["domain_catalog", "domain_schema", "domain_name", "data_type", "udt_name", "domain_default"],
    },
    Definition {
        name: "table_privileges",
        columns: &[
            "grantor",
            "grantee",
            "table_catalog",
            "table_schema",
            "table_name",
            "privilege_type",
            "is_grantable",
            "with_hierarchy",
        ],
    },
];

impl Definition {
    fn schema(&self) -> SchemaRef {
        let field = |column: &&str| match column.strip_prefix('#') {
            Some(name) => Field::new(name, DataType::Int32, true),
            None => Field::new(*column, DataType::Utf8, true),
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}

/// The schema of a database.
#[derive(Debug)]
pub(crate) struct InformationSchema(pub(crate) DatabaseRef);

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        DEFINITIONS.iter().map(|view| view.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let found = DEFINITIONS.iter().find(|view| view.name.eq_ignore_ascii_case(name));
        Ok(found.map(|view| {
            let provider = InformationView { name: view.name, schema: view.schema(), database: self.0.clone() };
            Arc::new(provider) as Arc<dyn TableProvider>
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        DEFINITIONS.iter().any(|view| view.name.eq_ignore_ascii_case(name))
    }
}

/// A value of a row: a text, an integer, or NULL.
enum Cell {
    Text(String),
    Int(i32),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

#[derive(Debug)]
struct InformationView {
    name: &'static str,
    schema: SchemaRef,
    database: DatabaseRef,
}

impl InformationView {
    async fn plan_scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: Vec<Vec<(&'static str, Cell)>> = match self.name {
            "schemata" => self.schemata(),
            "tables" => self.tables(false).await?,
            "views" => self.tables(true).await?,
            "columns" => self.columns().await?,
            _ => Vec::new(),
        };
        let name = format!("{INFORMATION}.{}", self.name);
        rows_read::scan(session, name, (&self.schema, projection), || {
            Ok(self.schema.fields().iter().map(|field| column(field, &rows)).collect())
        })
    }

    fn schemata(&self) -> Vec<Vec<(&'static str, Cell)>> {
        let mut names = self.database.schema_names();
        names.push(INFORMATION.to_owned());
        let row = |name: String| {
            vec![
                ("catalog_name", DATABASE.into()),
                ("schema_name", Cell::Text(name)),
                ("schema_owner", DATABASE.into()),
            ]
        };
        names.into_iter().map(row).collect()
    }

    /// Returns the tables with their schemas, in the order of both names.
    async fn all(&self) -> Result<Vec<(String, String, Arc<dyn TableProvider>)>> {
        let mut all = Vec::new();
        for schema in self.database.schema_names() {
            let Some(provider) = self.database.schema(&schema) else { continue };
            let mut names = provider.table_names();
            names.sort();
            for name in names {
                if let Some(table) = provider.table(&name).await? {
                    all.push((schema.clone(), name, table));
                }
            }
        }
        Ok(all)
    }

    async fn tables(&self, views_only: bool) -> Result<Vec<Vec<(&'static str, Cell)>>> {
        let mut rows = Vec::new();
        for (schema, name, table) in self.all().await? {
            let is_view = table.table_type() == TableType::View;
            if views_only && !is_view {
                continue;
            }
            rows.push(vec![
                ("table_catalog", DATABASE.into()),
                ("table_schema", Cell::Text(schema)),
                ("table_name", Cell::Text(name)),
                ("table_type", if is_view { "VIEW" } else { "BASE TABLE" }.into()),
                ("check_option", "NONE".into()),
                ("is_updatable", "NO".into()),
                ("is_insertable_into", "NO".into()),
                ("is_trigger_updatable", "NO".into()),
                ("is_trigger_deletable", "NO".into()),
                ("is_trigger_insertable_into", "NO".into()),
                ("is_typed", "NO".into()),
            ]);
        }
        Ok(rows)
    }

    async fn columns(&self) -> Result<Vec<Vec<(&'static str, Cell)>>> {
        let mut rows = Vec::new();
        for (schema, name, table) in self.all().await? {
            for (at, field) in table.schema().fields().iter().enumerate() {
                let kind = wire_type(field).unwrap_or(Type::TEXT);
                let position = i32::try_from(at + 1).unwrap_or(i32::MAX);
                let mut row = vec![
                    ("table_catalog", DATABASE.into()),
                    ("table_schema", schema.as_str().into()),
                    ("table_name", name.as_str().into()),
                    ("column_name", field.name().as_str().into()),
                    ("ordinal_position", Cell::Int(position)),
                    ("is_nullable", if field.is_nullable() { "YES" } else { "NO" }.into()),
                    ("udt_catalog", DATABASE.into()),
                    ("udt_schema", "pg_catalog".into()),
                    ("udt_name", kind.name().into()),
                    ("dtd_identifier", Cell::Text(position.to_string())),
                    ("is_self_referencing", "NO".into()),
                    ("is_identity", "NO".into()),
                    ("identity_cycle", "NO".into()),
                    ("is_generated", "NEVER".into()),
                    ("is_updatable", "NO".into()),
                ];
                let is_array = elements_of_type(&kind).is_some();
                row.push(("data_type", if is_array { "ARRAY".into() } else { Cell::Text(type_text(&kind)) }));
                row.extend(precision(&kind).into_iter().map(|(name, value)| (name, Cell::Int(value))));
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// Returns what describes the precision of a type.
fn precision(kind: &Type) -> Vec<(&'static str, i32)> {
    let number = |digits, radix| vec![("numeric_precision", digits), ("numeric_precision_radix", radix)];
    let whole = |digits, radix| [number(digits, radix), vec![("numeric_scale", 0)]].concat();
    match *kind {
        Type::INT2 => whole(16, 2),
        Type::INT4 => whole(32, 2),
        Type::INT8 => whole(64, 2),
        Type::FLOAT4 => number(24, 2),
        Type::FLOAT8 => number(53, 2),
        // The only such type is that of 64 bits without sign.
        Type::NUMERIC => whole(20, 10),
        Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME | Type::INTERVAL => vec![("datetime_precision", 6)],
        Type::DATE => vec![("datetime_precision", 0)],
        _ => Vec::new(),
    }
}

fn column(field: &Field, rows: &[Vec<(&'static str, Cell)>]) -> ArrayRef {
    let cells =
        rows.iter().map(|row| row.iter().find(|(name, _)| name == field.name()).map_or(&Cell::Null, |(_, cell)| cell));
    if *field.data_type() == DataType::Int32 {
        return Arc::new(Int32Array::from_iter(cells.map(|cell| match cell {
            Cell::Int(value) => Some(*value),
            Cell::Text(_) | Cell::Null => None,
        })));
    }
    Arc::new(StringArray::from_iter(cells.map(|cell| match cell {
        Cell::Text(text) => Some(text.as_str()),
        Cell::Int(_) | Cell::Null => None,
    })))
}

impl TableProvider for InformationView {
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
        self.plan_scan(session, projection).boxed()
    }
}
