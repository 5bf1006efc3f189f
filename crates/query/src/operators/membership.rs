//! Refuses `IN (subquery)` where its result could be wrong, and bounds the time of those that are joins.
//!
//! DataFusion makes a semi or anti join of a membership that is a condition of its own. Elsewhere it makes a join with
//! a mark, which is true or false but never NULL, as it must be if the value or one of the subquery's is NULL. In a
//! disjunction, where NULL and false are alike, only a negated one is wrong.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use crate::error::{QueryError, sqlstate};

/// Rule that checks each membership before subqueries become joins.
#[derive(Debug)]
pub(crate) struct CheckMemberships;

/// Place of an expression in a condition.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// A condition of its own.
    Conjunct,
    /// One of several, where NULL counts as false.
    Disjunct,
    /// Anywhere else.
    Inner,
}

impl AnalyzerRule for CheckMemberships {
    fn name(&self) -> &str {
        "check_memberships"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            let place = if matches!(node, LogicalPlan::Filter(_)) { Place::Conjunct } else { Place::Inner };
            let schemas: Vec<_> = node.inputs().into_iter().map(LogicalPlan::schema).collect();
            let schema = schemas.first().map_or(node.schema(), |schema| schema);
            node.apply_expressions(|expr| check(expr, place, schema).map(|()| TreeNodeRecursion::Continue))
        })?;
        Ok(plan)
    }
}

fn check(expr: &Expr, place: Place, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            check(left, place, schema)?;
            check(right, place, schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) if place != Place::Inner => {
            check(left, Place::Disjunct, schema)?;
            check(right, Place::Disjunct, schema)
        }
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(membership) => check_one(membership, !membership.negated, place, schema),
            other => check(other, Place::Inner, schema),
        },
        Expr::InSubquery(membership) => check_one(membership, membership.negated, place, schema),
        other => {
            other.apply_children(|part| check(part, Place::Inner, schema).map(|()| TreeNodeRecursion::Continue))?;
            Ok(())
        }
    }
}

fn check_one(membership: &InSubquery, negated: bool, place: Place, schema: &DFSchema) -> Result<()> {
    check(&membership.expr, Place::Inner, schema)?;
    let is_right = match place {
        Place::Conjunct => true,
        Place::Disjunct => !negated,
        Place::Inner => false,
    };
    // Without NULL there is no difference.
    let listed = membership.subquery.subquery.schema();
    let has_null = membership.expr.nullable(schema).unwrap_or(true)
        || listed.fields().first().is_none_or(|field| field.is_nullable());
    if is_right || !has_null {
        return Ok(());
    }
    let text =
        "IN (subquery) is offered as a condition of its own, or without NOT between OR: NULLs would count as false";
    let error = QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text);
    Err(error.with_hint("Use EXISTS or NOT EXISTS (SELECT … WHERE …), or select IS NOT NULL values.").into_datafusion())
}

/// Rule that lets a semi or anti join compare with each key of its right side once. Otherwise a key that many rows have on
/// both sides costs time for each pair of them.
#[derive(Debug)]
pub(crate) struct DistinctMembers;

impl OptimizerRule for DistinctMembers {
    fn name(&self) -> &str {
        "distinct_members"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let is_membership = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
        let column = |(_, right): &(Expr, Expr)| matches!(right, Expr::Column(_)).then(|| right.clone());
        let keys: Option<Vec<Expr>> = join.on.iter().map(column).collect();
        let Some(keys) = keys.filter(|keys| is_membership && join.filter.is_none() && !keys.is_empty()) else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        if is_distinct(&join.right, keys.len()) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let right = LogicalPlanBuilder::from(join.right.clone()).aggregate(keys, Vec::<Expr>::new())?;
        join.right = Arc::new(right.build()?);
        Ok(Transformed::yes(LogicalPlan::Join(join)))
    }
}

/// Reports whether the rows of a plan are known to be distinct in this number of columns, which are all that it has.
fn is_distinct(plan: &LogicalPlan, columns: usize) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.is_empty() && aggregate.group_expr.len() == columns,
        LogicalPlan::SubqueryAlias(alias) => is_distinct(&alias.input, columns),
        LogicalPlan::Projection(projection) => {
            projection.expr.len() == columns
                && projection.expr.iter().all(is_column)
                && is_distinct(&projection.input, columns)
        }
        _ => false,
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}
