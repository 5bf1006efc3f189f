//! Lists, cases and keys of floats for which both zeros are equal.
//!
//! `x IN (…)` looks x up in a table of bits, in which 0 and −0 differ, if all others are constants. Therefore the other
//! zero is added to each constant zero, once all constants are evaluated. `CASE x WHEN …` and `nullif` compare bits, too,
//! and get values with 0 for −0. So do the keys by which rows are ordered, windows are partitioned, and aggregates of
//! distinct values tell them apart.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, Sort};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Distinct, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use super::float::with_one_zero;
use super::map_named;

/// Rule that adds the other zero to lists. It must run after constants are evaluated.
#[derive(Debug)]
pub(crate) struct BothZeros;

impl OptimizerRule for BothZeros {
    fn name(&self) -> &str {
        "both_zeros"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        map_named(plan, with_both_zeros)
    }
}

/// Adds the other zero to lists in an expression.
pub(crate) fn with_both_zeros(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::InList(InList { expr, mut list, negated }) => {
                let missing: Vec<Expr> =
                    list.iter().filter_map(other_zero).filter(|zero| !list.contains(zero)).collect();
                let changes = !missing.is_empty();
                list.extend(missing);
                Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changes)
            }
            other => Transformed::no(other),
        })
    })
}

/// Returns the zero of the other sign, if the expression is a constant zero.
fn other_zero(expr: &Expr) -> Option<Expr> {
    let zero = match expr {
        Expr::Literal(ScalarValue::Float32(Some(zero)), _) if *zero == 0.0 => ScalarValue::Float32(Some(-zero)),
        Expr::Literal(ScalarValue::Float64(Some(zero)), _) if *zero == 0.0 => ScalarValue::Float64(Some(-zero)),
        _ => return None,
    };
    Some(Expr::Literal(zero, None))
}

/// Rule that makes both zeros one in the keys of orders and windows, and in the arguments of aggregates of distinct
/// values. It must run after types are coerced.
#[derive(Debug)]
pub(crate) struct OneZeroInKeys;

impl AnalyzerRule for OneZeroInKeys {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            if let LogicalPlan::Distinct(Distinct::On(mut on)) = node {
                let schema = on.input.schema().clone();
                on.sort_expr = on.sort_expr.map(|sorts| orders(each_once(sorts), &schema));
                return Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))));
            }
            let is_order = matches!(node, LogicalPlan::Sort(_));
            if !is_order && !matches!(node, LogicalPlan::Window(_) | LogicalPlan::Aggregate(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            if is_order {
                return node.map_expressions(|expr| Ok(key(expr, &schema)));
            }
            map_named(node, |expr| expr.transform_up(|expr| Ok(with_keys(expr, &schema))))
        })
        .data()
    }

    fn name(&self) -> &str {
        "one_zero_in_keys"
    }
}

/// Returns a key in which both zeros are one.
fn key(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr.get_type(schema) {
        Ok(DataType::Float32 | DataType::Float64) => Transformed::yes(with_one_zero(expr)),
        _ => Transformed::no(expr),
    }
}

/// Returns the keys without those that repeat an earlier one, which order nothing.
fn each_once(sorts: Vec<Sort>) -> Vec<Sort> {
    let mut seen = HashSet::new();
    sorts.into_iter().filter(|sort| seen.insert(sort.expr.clone())).collect()
}

/// Returns the keys of an order, in which both zeros are one.
fn orders(sorts: Vec<Sort>, schema: &DFSchema) -> Vec<Sort> {
    sorts.into_iter().map(|sort| Sort { expr: key(sort.expr, schema).data, ..sort }).collect()
}

/// Makes both zeros one in the keys of an aggregate or a window function.
fn with_keys(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let keys = |exprs: Vec<Expr>| exprs.into_iter().map(|expr| key(expr, schema).data).collect();
    match expr {
        Expr::AggregateFunction(mut call) if call.params.distinct || !call.params.order_by.is_empty() => {
            call.params.order_by = orders(call.params.order_by, schema);
            if call.params.distinct {
                call.params.args = keys(call.params.args);
            }
            Transformed::yes(Expr::AggregateFunction(call))
        }
        Expr::WindowFunction(mut call) => {
            call.params.partition_by = keys(call.params.partition_by);
            call.params.order_by = orders(call.params.order_by, schema);
            if call.params.distinct {
                call.params.args = keys(call.params.args);
            }
            Transformed::yes(Expr::WindowFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// Reports whether an expression is a case or function that compares values, maybe by their bits.
pub(super) fn compares(expr: &Expr) -> bool {
    match expr {
        Expr::Case(case) => case.expr.is_some(),
        Expr::ScalarFunction(call) => call.func.name() == "nullif",
        _ => false,
    }
}

/// Makes such an expression of floats compare them without the signs of zeros.
pub(super) fn with_one_zero_compared(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_float = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64));
    match expr {
        Expr::Case(Case { expr: Some(value), when_then_expr, else_expr }) if is_float(&value) => {
            let branch = |(when, then): (Box<Expr>, Box<Expr>)| (Box::new(with_one_zero(*when)), then);
            let when_then_expr = when_then_expr.into_iter().map(branch).collect();
            let expr = Some(Box::new(with_one_zero(*value)));
            Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
        }
        Expr::ScalarFunction(mut call) if call.args.iter().all(is_float) => {
            call.args = call.args.into_iter().map(with_one_zero).collect();
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}
