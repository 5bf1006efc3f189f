//! Statements that DataFusion would answer wrongly. They are rejected instead.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    JoinConstraint, JoinOperator, Query, SetExpr, SetOperator, SetQuantifier, Statement, TableFactor,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::walk::{Step, Visitor, walk};

/// Checks a parsed statement.
///
/// # Errors
/// If it has `EXCEPT ALL` or `INTERSECT ALL`, of which the result would have each row only once or too often, or
/// `TABLESAMPLE`, which would return all rows, or an outer join whose merged column would be NULL.
pub(crate) fn check_statement(statement: &mut Statement) -> Result<(), QueryError> {
    struct Operations;
    impl Visitor for Operations {
        fn query(&mut self, query: &mut Query) -> Step {
            let mut bodies = vec![query.body.as_ref()];
            while let Some(body) = bodies.pop() {
                if let SetExpr::Select(select) = body
                    && select.from.iter().flat_map(|from| &from.joins).any(|join| merges(&join.join_operator))
                {
                    let text = "FULL and RIGHT JOIN with USING are not supported";
                    let error = QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
                        .with_hint("Write ON a.x = b.x, and coalesce(a.x, b.x) for the merged column.");
                    return ControlFlow::Break(error);
                }
                let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { continue };
                let counts = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
                if counts && matches!(op, SetOperator::Except | SetOperator::Minus | SetOperator::Intersect) {
                    let text = format!("{op} ALL is not supported");
                    let error = QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
                        .with_hint("Without ALL, or with count(*) and GROUP BY, the statement is supported.");
                    return ControlFlow::Break(error);
                }
                bodies.extend([left.as_ref(), right.as_ref()]);
            }
            ControlFlow::Continue(())
        }

        fn table(&mut self, table: &mut TableFactor) -> Step {
            if matches!(table, TableFactor::Table { sample: Some(_), .. }) {
                let error = QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "TABLESAMPLE is not supported")
                    .with_hint("resample() takes values on a grid of times.");
                return ControlFlow::Break(error);
            }
            ControlFlow::Continue(())
        }
    }
    read_explain_options(statement)?;
    walk(statement, &mut Operations)
}

/// Options of EXPLAIN that change nothing here.
const EXPLAIN_OPTIONS: [&str; 8] =
    ["costs", "settings", "generic_plan", "buffers", "wal", "timing", "summary", "memory"];

/// Reads the options in brackets behind EXPLAIN.
///
/// # Errors
/// If there is no such option, or it is not supported.
fn read_explain_options(statement: &mut Statement) -> Result<(), QueryError> {
    let Statement::Explain { analyze, verbose, options, .. } = statement else { return Ok(()) };
    for option in options.take().into_iter().flatten() {
        let name = option.name.value.to_lowercase();
        let value =
            option.arg.map_or_else(|| "true".to_owned(), |value| value.to_string().trim_matches('\'').to_lowercase());
        let is_on = match value.as_str() {
            "true" | "on" | "1" => true,
            "false" | "off" | "0" => false,
            "text" if name == "format" => continue,
            _ if name == "format" => {
                let text = format!("EXPLAIN with FORMAT {value} is not supported");
                return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
            }
            _ => {
                let text = format!("EXPLAIN option {name} is true or false, not {value}");
                return Err(QueryError::new(sqlstate::SYNTAX_ERROR, text));
            }
        };
        match name.as_str() {
            "analyze" => *analyze = is_on,
            "verbose" => *verbose = is_on,
            _ if EXPLAIN_OPTIONS.contains(&name.as_str()) => {}
            _ => {
                let text = format!("unrecognized EXPLAIN option \"{name}\"");
                return Err(QueryError::new(sqlstate::SYNTAX_ERROR, text));
            }
        }
    }
    Ok(())
}

/// Reports whether a join merges columns of which the left one may be missing.
fn merges(join: &JoinOperator) -> bool {
    let (JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) | JoinOperator::FullOuter(constraint)) =
        join
    else {
        return false;
    };
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
}

/// Checks a plan.
///
/// # Errors
/// If aggregates of distinct values order by one expression in both directions, of which only one would be used.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<(), QueryError> {
    let mut conflict = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let mut directions = HashMap::new();
            let sorts = aggregate.aggr_expr.iter().filter_map(distinct).flat_map(|call| &call.params.order_by);
            for sort in sorts {
                let direction = (sort.asc, sort.nulls_first);
                conflict |= *directions.entry(&sort.expr).or_insert(direction) != direction;
            }
        }
        Ok(if conflict { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if conflict {
        let text = "aggregates of distinct values in opposite orders are not supported in one query";
        return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
            .with_hint("Write each of them as a subquery of its own."));
    }
    Ok(())
}

/// Returns the aggregate of distinct values that an expression is, maybe under another name.
fn distinct(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::AggregateFunction(call) => Some(call).filter(|call| call.params.distinct),
        Expr::Alias(alias) => distinct(&alias.expr),
        _ => None,
    }
}
