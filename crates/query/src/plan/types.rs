//! SQL type names with another meaning in PostgreSQL than in DataFusion.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;

use crate::table::column::timestamp_type;

/// Type planner with timestamps in microseconds, as in PostgreSQL and in the time columns, and with its `float`. The rest
/// is left to the catalog's own planner.
#[derive(Debug)]
pub(crate) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let planned = match sql_type {
            SqlType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => Some(timestamp_type()),
            SqlType::Timestamp(_, _) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
            // `float` is double precision; `float(n)` is the smaller type with n bits.
            SqlType::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => Some(DataType::Float32),
            SqlType::Float(ExactNumberInfo::None | ExactNumberInfo::Precision(_)) => Some(DataType::Float64),
            _ => None,
        };
        match planned {
            Some(kind) => Ok(Some(Arc::new(Field::new("", kind, true)))),
            None => PgOidTypePlanner.plan_type_field(sql_type),
        }
    }
}
