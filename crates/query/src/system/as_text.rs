//! Casts of times, floats, intervals and arrays to text, which write what PostgreSQL writes. Arrow has texts of its own,
//! such as `2025-10-09T08:53:20Z` and `inf`.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{ArrayRef, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::{QueryError, sqlstate};
use crate::functions::map_named;
use crate::wire::encode::{put_arrow, wire_type};

/// Maximum bytes of the texts of a batch of rows.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Rule that writes the casts as calls. It must run after types are coerced, which inserts casts.
#[derive(Debug)]
pub(crate) struct TextsOfValues;

impl AnalyzerRule for TextsOfValues {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let mut found = false;
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    found |= to_text(expr).is_some();
                    Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
                })
            })?;
            if !found {
                return Ok(Transformed::no(node));
            }
            let mut schema = merge_schema(&node.inputs());
            if let LogicalPlan::TableScan(scan) = &node {
                schema.merge(&scan.projected_schema);
            }
            map_named(node, |expr| expr.transform_up(|expr| Ok(as_text(expr, &schema))))
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "texts_of_values"
    }
}

/// Returns what an expression casts to text, if it does.
fn to_text(expr: &Expr) -> Option<&Expr> {
    let (inner, kind) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        _ => return None,
    };
    (*kind == DataType::Utf8).then_some(inner.as_ref())
}

fn as_text(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let kind = to_text(&expr).and_then(|inner| inner.get_type(schema).ok());
    if !kind.as_ref().is_some_and(differs) {
        return Transformed::no(expr);
    }
    let args = match expr {
        Expr::Cast(cast) => vec![*cast.expr],
        Expr::TryCast(cast) => vec![*cast.expr],
        other => return Transformed::no(other),
    };
    let func = Arc::new(ScalarUDF::from(AsText { signature: Signature::any(1, Volatility::Immutable) }));
    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// Reports whether Arrow writes values of a type in another way than PostgreSQL.
fn differs(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Timestamp(..)
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::Float32
            | DataType::Float64
            | DataType::List(_)
    )
}

/// The cast as a function, which no statement can call by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsText {
    signature: Signature,
}

impl ScalarUDFImpl for AsText {
    fn name(&self) -> &str {
        "as text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = args.arg_fields[0].clone();
        match &args.args[0] {
            ColumnarValue::Scalar(value) => {
                let texts = texts(&value.to_array()?, &field).map_err(QueryError::into_datafusion)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?))
            }
            ColumnarValue::Array(values) => {
                Ok(ColumnarValue::Array(texts(values, &field).map_err(QueryError::into_datafusion)?))
            }
        }
    }
}

fn texts(values: &ArrayRef, field: &Arc<Field>) -> Result<ArrayRef, QueryError> {
    let kind = wire_type(field)?;
    let (mut texts, mut cell) = (StringBuilder::new(), BytesMut::new());
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        cell.clear();
        put_arrow(&mut cell, values, row, field, &kind, false)?;
        texts.append_value(String::from_utf8_lossy(cell.get(4..).unwrap_or_default()));
        if texts.values_slice().len() > BATCH_BYTES_MAX {
            let text = format!("the texts of a batch of rows take more than {BATCH_BYTES_MAX} bytes");
            return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text));
        }
    }
    Ok(Arc::new(texts.finish()))
}
