//! Classes of statements, by which their changes are found.

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::{DefaultTableSource, source_as_provider};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use strongback_store::StreamId;

use crate::error::{QueryError, sqlstate};
use crate::query::Plan;
use crate::subscription::window::{Windows, constant};
use crate::system::function::StateTable;
use crate::table::StoreTable;
use crate::table::filter::time_column;
use crate::telemetry::scan::CallTable;

/// Functions whose values change without new rows.
const CLOCKS: [&str; 4] = ["now", "current_date", "current_time", "random"];

/// Class of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Class {
    /// Rows of one table, filtered and projected. New rows of the table become new rows of the result.
    Rows,
    /// Aggregates by windows of time, sent when they close.
    Windows(Windows),
    /// Any other result, sent whole when it changes.
    Result {
        /// Whether the order of its rows is part of it.
        is_ordered: bool,
        /// Whether it changes with the time alone.
        follows_time: bool,
    },
}

impl Class {
    /// Returns its name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Class::Rows => "rows",
            Class::Windows(_) => "windows",
            Class::Result { .. } => "result",
        }
    }
}

/// A statement as a subscription follows it.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) class: Class,
    /// Streams of its tables; `None` if it may read any, as table functions do.
    pub(crate) streams: Option<Vec<StreamId>>,
}

impl Followed {
    /// Finds the class of a plan.
    ///
    /// # Errors
    /// If its result cannot be followed.
    pub(crate) fn of(plan: &Plan) -> Result<Followed, QueryError> {
        let (plan, has_times) = (&plan.logical, plan.follows_time);
        let sources = Sources::of(plan)?;
        let (class, of_one) = match (rows_of(plan), windows_of(plan)) {
            (Some(_), _) => (Class::Rows, true),
            (None, Some(windows)) => (Class::Windows(windows), true),
            _ => {
                let follows_time = sources.follows_time || has_times || has_clock(plan)?;
                (Class::Result { is_ordered: is_ordered(plan), follows_time }, false)
            }
        };
        debug_assert!(!of_one || sources.tables == 1 && !sources.has_functions);
        let mut streams = (!sources.has_functions).then_some(sources.streams);
        // A mark changes a result, and is recorded by an event after it counts.
        if let (Class::Result { .. }, Some(streams)) = (&class, &mut streams) {
            streams.extend(sources.marks);
        }
        Ok(Followed { class, streams })
    }
}

/// What a plan reads.
#[derive(Default)]
struct Sources {
    tables: usize,
    streams: Vec<StreamId>,
    /// Streams of marks and events.
    marks: Vec<StreamId>,
    /// Whether it calls functions that read the store.
    has_functions: bool,
    follows_time: bool,
}

impl Sources {
    fn of(plan: &LogicalPlan) -> Result<Sources, QueryError> {
        let (mut found, mut refused) = (Sources::default(), None);
        plan.apply_with_subqueries(|node| {
            let reason = match node {
                LogicalPlan::TableScan(scan) => {
                    found.add(source_as_provider(&scan.source)?.as_ref(), &scan.table_name.to_string()).err()
                }
                LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
                    Some(refusal("a plan has no changes to follow"))
                }
                _ => None,
            };
            refused = reason;
            Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        if found.tables == 0 && !found.has_functions {
            return Err(refusal("the statement reads no table of the store"));
        }
        found.streams.sort_unstable();
        found.streams.dedup();
        Ok(found)
    }

    fn add(&mut self, provider: &dyn TableProvider, name: &str) -> Result<(), QueryError> {
        if let Some(table) = provider.downcast_ref::<StoreTable>() {
            self.tables += 1;
            self.streams.extend(table.streams.iter().map(|stream| stream.id));
            if self.marks.is_empty() {
                let catalog = table.store.catalog();
                let is_own = |table: &str| table == "strongback.marks" || table == "strongback.events";
                self.marks = catalog.streams.iter().filter(|stream| is_own(&stream.key.table)).map(|s| s.id).collect();
            }
        } else if provider.downcast_ref::<CallTable>().is_some() {
            self.has_functions = true;
        } else if provider.downcast_ref::<StateTable>().is_some() {
            // Ages grow with the time.
            (self.has_functions, self.follows_time) = (true, true);
        } else {
            let text = format!("{name} has no rows in the store");
            return Err(refusal(&text).with_hint("Ask for it again, or follow a table of the store."));
        }
        Ok(())
    }
}

/// Returns the error for a statement whose result cannot be followed.
fn refusal(reason: &str) -> QueryError {
    QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("the statement cannot be subscribed to: {reason}"))
}

/// Reports whether an expression gives one value for a row, from that row alone.
fn is_of_row(expr: &Expr) -> bool {
    let reads_more = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::Unnest(_)
        )
    };
    !expr.exists(|expr| Ok(reads_more(expr))).unwrap_or(true)
}

/// Returns the scan of a plan that filters and projects the rows of one table of the store.
fn rows_of(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(is_of_row) => rows_of(&projection.input),
        // A filter by chance would let other rows pass when a client resumes.
        LogicalPlan::Filter(filter) if is_of_row(&filter.predicate) && !filter.predicate.is_volatile() => {
            rows_of(&filter.input)
        }
        LogicalPlan::SubqueryAlias(alias) => rows_of(&alias.input),
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() && store_table(plan).is_some() => Some(plan),
        _ => None,
    }
}

/// Returns the windows of a plan that aggregates rows of one table by windows of time.
fn windows_of(plan: &LogicalPlan) -> Option<Windows> {
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(is_of_row) => windows_of(&projection.input),
        LogicalPlan::Filter(filter) if is_of_row(&filter.predicate) => windows_of(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => windows_of(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() && sort.expr.iter().all(|key| is_of_row(&key.expr)) => {
            windows_of(&sort.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            rows_of(&aggregate.input)?;
            window_key(aggregate)
        }
        _ => None,
    }
}

/// Returns the windows of an aggregate, if exactly one of its groups is a window.
fn window_key(aggregate: &Aggregate) -> Option<Windows> {
    let is_plain = aggregate.group_expr.iter().all(is_of_row);
    let has_sets = aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
    if !is_plain || has_sets {
        return None;
    }
    let mut keys = aggregate.group_expr.iter().filter_map(|key| window(&resolved(key, &aggregate.input)?));
    keys.next().filter(|_| keys.next().is_none())
}

/// Returns the windows of a key of the columns of a table's scan.
fn window(key: &(Expr, &StoreTable)) -> Option<Windows> {
    let (Expr::ScalarFunction(call), table) = key else { return None };
    let is_time = |expr: &Expr| {
        let Expr::Column(column) = expr else { return false };
        let of_table = table.columns.iter().find(|of_table| of_table.name == column.name);
        of_table.and_then(time_column) == Some(true)
    };
    match (call.func.name(), call.args.as_slice()) {
        ("date_bin", [stride, time]) if is_time(time) => Windows::binned(&constant(stride)?, None),
        ("date_bin", [stride, time, origin]) if is_time(time) => {
            Windows::binned(&constant(stride)?, Some(&constant(origin)?))
        }
        ("date_trunc", [unit, time]) if is_time(time) => {
            let unit: ScalarValue = constant(unit)?;
            Windows::truncated(unit.try_as_str()??)
        }
        _ => None,
    }
}

/// Returns an expression over the output of a plan as one over the columns of its scan, with the table.
fn resolved<'p>(expr: &Expr, plan: &'p LogicalPlan) -> Option<(Expr, &'p StoreTable)> {
    let expr = unnamed(expr);
    match plan {
        LogicalPlan::TableScan(_) => Some((expr.clone(), store_table(plan)?)),
        LogicalPlan::Filter(filter) => resolved(expr, &filter.input),
        LogicalPlan::SubqueryAlias(alias) => {
            let below = |column: &Column| {
                let at = alias.schema.maybe_index_of_column(column)?;
                Some(Expr::Column(Column::from(alias.input.schema().qualified_field(at))))
            };
            resolved(&replaced(expr, &below)?, &alias.input)
        }
        LogicalPlan::Projection(projection) => {
            let below = |column: &Column| {
                let at = projection.schema.maybe_index_of_column(column)?;
                Some(unnamed(projection.expr.get(at)?).clone())
            };
            resolved(&replaced(expr, &below)?, &projection.input)
        }
        _ => None,
    }
}

/// Replaces the columns of an expression. Returns `None` if one has no replacement.
fn replaced(expr: &Expr, of: &impl Fn(&Column) -> Option<Expr>) -> Option<Expr> {
    let mut is_whole = true;
    let replaced = expr.clone().transform_down(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match of(column) {
            Some(other) => Ok(Transformed::new(other, true, TreeNodeRecursion::Jump)),
            None => {
                is_whole = false;
                Ok(Transformed::no(part))
            }
        }
    });
    replaced.ok().map(|replaced| replaced.data).filter(|_| is_whole)
}

/// Returns the table of the store that a scan reads.
fn store_table(scan: &LogicalPlan) -> Option<&StoreTable> {
    let LogicalPlan::TableScan(scan) = scan else { return None };
    scan.source.downcast_ref::<DefaultTableSource>()?.table_provider.downcast_ref::<StoreTable>()
}

/// Returns an expression without the names it was given.
pub(crate) fn unnamed(mut expr: &Expr) -> &Expr {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}

/// Reports whether the rows of a result are sorted.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::Limit(limit) => is_ordered(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        _ => false,
    }
}

/// Reports whether a plan has a value that changes with the time alone.
fn has_clock(plan: &LogicalPlan) -> Result<bool, QueryError> {
    let mut found = false;
    let is_clock = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if CLOCKS.contains(&call.func.name()));
    plan.apply_with_subqueries(|node| {
        for expr in node.expressions() {
            found |= expr.exists(|part| Ok(is_clock(part)))?;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
