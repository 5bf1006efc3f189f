//! Estimates the size of filters after they are pushed down, before that is done.
//!
//! The planner pushes a filter below the queries that it reads, replaces its columns by their expressions, and copies
//! it for each part of a union. With twenty nested queries that each select `a + a` from the one before, the filter
//! doubles twenty times.

use std::collections::HashMap;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::QueryError;
use crate::sql::extent::beyond;

/// Maximum expressions that filters gain by push-down.
const INLINED_MAX: u64 = 20_000;
/// Maximum expressions in all copies of filters.
const COPIED_MAX: u64 = 500_000;
/// Maximum list values in all copies of filters.
const LISTED_MAX: u64 = 1_000_000;

/// Rejects a plan whose filters would become too large.
///
/// # Errors
/// If a filter would become too large.
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), QueryError> {
    let mut inlined = Inlined::default();
    inlined.visit(plan, &HashMap::new())?;
    for (what, count, most) in [
        ("expressions in filters that are pushed down", inlined.expressions, INLINED_MAX),
        ("expressions in copies of filters that are pushed down", inlined.copied, COPIED_MAX),
        ("values of lists in filters that are pushed down", inlined.listed, LISTED_MAX),
    ] {
        if count > most {
            return Err(beyond(what, count, most).with_hint(
                "A filter is pushed down through the queries that it reads, and copied for each part of a union.",
            ));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Inlined {
    expressions: u64,
    copied: u64,
    listed: u64,
}

/// Number of expressions that each column of a node stands for (`None` for one each), and the number of copies of a
/// filter above it.
struct Below {
    weights: Option<Vec<u64>>,
    parts: u64,
}

impl Below {
    /// Records the weights by column name, with the max for columns of the same name.
    fn note(&self, node: &LogicalPlan, names: &mut HashMap<String, u64>) {
        for (field, weight) in node.schema().fields().iter().zip(self.weights.iter().flatten()) {
            let known = names.entry(field.name().clone()).or_default();
            *known = (*known).max(*weight);
        }
    }

    fn greatest(&self) -> u64 {
        self.weights.iter().flatten().copied().max().unwrap_or(1)
    }
}

/// Counts the expressions that an expression expands to, and the list values in it.
fn weigh(expr: &Expr, columns: &HashMap<String, u64>) -> Result<(u64, u64)> {
    let (mut expressions, mut listed) = (0_u64, 0_u64);
    expr.apply(|part| {
        let weight = match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => {
                columns.get(column.name.as_str()).copied().unwrap_or(1)
            }
            Expr::Alias(_) => 0,
            Expr::InList(list) if !list.list.iter().any(Expr::any_column_refs) => {
                listed = listed.saturating_add(list.list.len() as u64);
                let (of_expr, of_list) = weigh(&list.expr, columns)?;
                listed = listed.saturating_add(of_list);
                expressions = expressions.saturating_add(of_expr).saturating_add(1);
                return Ok(TreeNodeRecursion::Jump);
            }
            _ => 1,
        };
        expressions = expressions.saturating_add(weight);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((expressions, listed))
}

impl Inlined {
    /// Counts a filter above `parts` parts.
    fn filter(&mut self, predicate: &Expr, columns: &HashMap<String, u64>, parts: u64) -> Result<()> {
        let (expressions, listed) = weigh(predicate, columns)?;
        let (own, _) = weigh(predicate, &HashMap::new())?;
        self.expressions = self.expressions.saturating_add(expressions.saturating_sub(own));
        self.copied = self.copied.saturating_add(expressions.saturating_mul(parts));
        self.listed = self.listed.saturating_add(listed.saturating_mul(parts));
        Ok(())
    }

    /// Visits a node and those below it. `outer` contains the weights of columns of the surrounding queries.
    fn visit(&mut self, node: &LogicalPlan, outer: &HashMap<String, u64>) -> Result<Below> {
        let inputs = node.inputs();
        let below = inputs.iter().map(|input| self.visit(input, outer)).collect::<Result<Vec<Below>>>()?;
        let columns = node.schema().fields().len();
        let each = below.iter().map(|below| below.parts);
        let parts = match node {
            LogicalPlan::Union(_) => each.fold(0, u64::saturating_add),
            _ => each.max().unwrap_or(1),
        };
        let greatest = below.iter().map(Below::greatest).max().unwrap_or(1);
        let mut names = outer.clone();
        inputs.iter().zip(&below).for_each(|(input, below)| below.note(input, &mut names));
        node.apply_subqueries(|subquery| {
            self.visit(subquery, &names)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let weights = match node {
            LogicalPlan::Projection(projection) => {
                let weights =
                    projection.expr.iter().map(|expr| Ok(weigh(expr, &names)?.0)).collect::<Result<Vec<_>>>()?;
                weights.iter().any(|weight| *weight > 1).then_some(weights)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let keys =
                    aggregate.group_expr.iter().map(|expr| Ok(weigh(expr, &names)?.0)).collect::<Result<Vec<_>>>()?;
                let greatest = keys.iter().copied().max().unwrap_or(1);
                (greatest > 1).then(|| vec![greatest; columns])
            }
            _ => {
                match node {
                    LogicalPlan::Filter(filter) => self.filter(&filter.predicate, &names, parts)?,
                    LogicalPlan::Join(join) => {
                        if let Some(filter) = &join.filter {
                            self.filter(filter, &names, parts)?;
                        }
                    }
                    _ => {}
                }
                let passed = below.iter().flat_map(|below| below.weights.iter().flatten()).copied();
                match (greatest, below.as_slice()) {
                    (0 | 1, _) => None,
                    (_, [one]) if one.weights.as_ref().is_some_and(|weights| weights.len() == columns) => {
                        Some(passed.collect())
                    }
                    _ => Some(vec![greatest; columns]),
                }
            }
        };
        Ok(Below { weights, parts })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn checked(sql: &str) -> Result<(), String> {
        let context = SessionContext::new();
        let values = "create view m as select column1 a, column2 b from (values (1, 2), (3, 4)) v";
        context.sql(values).await.unwrap();
        let plan = context.state().create_logical_plan(sql).await.unwrap();
        check(&plan).map_err(|error| error.to_string())
    }

    fn chain(levels: usize, body: &str, end: &str) -> String {
        let each = (1..=levels).map(|n| format!(", t{n} as ({})", body.replace('@', &format!("t{}", n - 1))));
        format!(
            "with t0 as (select a, b from m){} {}",
            each.collect::<String>(),
            end.replace('@', &format!("t{levels}"))
        )
    }

    #[tokio::test]
    async fn filters_that_double_are_refused() {
        let doubled = "select a + a a, b from @";
        for end in ["select a from @ where a = 7", "select count(*) from (select distinct a from @) d where a > 3"] {
            checked(&chain(10, doubled, end)).await.unwrap();
            for levels in [16, 40, 100] {
                let error = checked(&chain(levels, doubled, end)).await.unwrap_err();
                assert!(error.contains("expressions in filters that are pushed down"), "{error}");
            }
        }
        let joined = "select l.a from @ l join m on l.a < m.b where l.a + m.a > 3";
        checked(&chain(40, doubled, joined)).await.unwrap_err();
        let union = "select a from (select a from @ union all select b from @) u where a > 1";
        checked(&chain(16, doubled, union)).await.unwrap_err();
        checked(&chain(40, doubled, "select a from m where a in (select a from @ where a = 1)")).await.unwrap_err();
        let correlated = "select a from @ t where exists (select 1 from m where m.b = t.b and t.a = 7)";
        checked(&chain(40, doubled, correlated)).await.unwrap_err();
        // Without a filter, or with one on another column.
        checked(&chain(100, doubled, "select a from @")).await.unwrap();
        checked(&chain(100, doubled, "select a from @ where b = 7")).await.unwrap();
    }

    #[tokio::test]
    async fn lists_count_for_each_part_of_a_union() {
        let list = (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let filtered = |parts: usize| {
            let union = vec!["select a from m"; parts].join(" union all ");
            format!("select count(*) from ({union}) u where a in ({list})")
        };
        checked(&filtered(50)).await.unwrap();
        let ors = (0..100).map(|n| format!("a = {n}")).collect::<Vec<_>>().join(" or ");
        let union = vec!["select a from m"; 60].join(" union all ");
        checked(&format!("select count(*) from ({union}) u where {ors}")).await.unwrap();
        let error = checked(&filtered(200)).await.unwrap_err();
        assert!(error.contains("values of lists"), "{error}");
    }
}
