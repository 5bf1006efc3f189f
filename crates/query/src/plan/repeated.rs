//! Results with several columns of one name, as in `select time, * from t` or `select x / 2, x / 2 from t`.
//!
//! PostgreSQL takes them, DataFusion does not. A repeated column therefore gets another name while a statement is
//! planned, and its own where the columns are shown. A name refers to the column that kept it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableFactor,
};

use crate::error::QueryError;
use crate::plan::labels::{label, name_tables};
use crate::plan::order;
use crate::sql::statement::folded;
use crate::sql::walk::{Step, Visitor, walk, walk_expr};
use crate::system::catalog::{PUBLIC, Tables};
use crate::table::StoreTable;

/// Names of repeated columns, by the names that they have in the plan.
#[derive(Debug, Default)]
pub(crate) struct Repeated(HashMap<String, String>);

impl Repeated {
    /// Renames the repeated columns of a statement whose names are exact.
    ///
    /// # Errors
    /// Passes on errors of the walk, and adds none.
    pub(crate) fn rename(statement: &mut Statement, tables: &Tables) -> Result<Repeated, QueryError> {
        let mut rename = Rename { tables, names: HashMap::new() };
        if let Statement::Query(query) = statement {
            order::rename(query, tables, &mut |name| rename.planned(name));
            name_tables(query, &mut rename.names);
        }
        walk(statement, &mut rename)?;
        Ok(Repeated(rename.names))
    }

    /// Returns the columns of a plan under the names that a client sees.
    ///
    /// # Errors
    /// Passes on errors of the traversal, and adds none.
    pub(crate) fn shown(mut self, plan: &LogicalPlan) -> Result<SchemaRef, QueryError> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Projection(projection) = node {
                for expr in &projection.expr {
                    if let Expr::Alias(alias) = expr
                        && let Some(name) = self.0.get_mut(&alias.name)
                    {
                        // With the case of its table.
                        if let Expr::Column(column) = alias.expr.as_ref() {
                            name.clone_from(&column.name);
                        }
                    }
                }
            }
            if let LogicalPlan::SubqueryAlias(subquery) = node
                && let LogicalPlan::Projection(projection) = subquery.input.as_ref()
            {
                self.0.extend(projection.expr.iter().filter_map(numbered));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let schema = plan.schema().as_arrow();
        if self.0.is_empty() {
            return Ok(Arc::new(schema.clone()));
        }
        let shown = |field: &Arc<Field>| match self.name(field.name()) {
            name if name == field.name() => field.clone(),
            name => Arc::new(field.as_ref().clone().with_name(name)),
        };
        let fields: Vec<Arc<Field>> = schema.fields().iter().map(shown).collect();
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }

    /// Returns an error under the names that a client knows.
    pub(crate) fn named(&self, mut error: QueryError) -> QueryError {
        for (planned, name) in &self.0 {
            error.message = error.message.replace(planned, name);
        }
        error
    }

    fn name<'a>(&'a self, planned: &'a str) -> &'a str {
        let mut name = planned;
        for _ in 0..self.0.len() {
            let Some(known) = self.0.get(name) else { break };
            name = known;
        }
        name
    }
}

/// Returns an expression without casts and queries, which are not part of its name to the planner.
fn without_casts(expr: &SqlExpr) -> SqlExpr {
    struct Strip;
    impl Visitor for Strip {
        fn expr(&mut self, expr: &mut SqlExpr) -> Step {
            while let SqlExpr::Cast { expr: inner, .. } = expr {
                *expr = inner.as_ref().clone();
            }
            if matches!(expr, SqlExpr::Exists { .. } | SqlExpr::Subquery(_)) {
                *expr = SqlExpr::Identifier(Ident::new("query"));
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    // Nothing stops this walk.
    let _ = walk_expr(&mut expr, &mut Strip);
    expr
}

/// Returns a text that is the same for all expressions to which the planner may give one name: without case, brackets
/// and the tables of columns, and with one name for each function of the current time.
fn planned_alike(expr: &str) -> String {
    let mut text = String::with_capacity(expr.len());
    let mut word = 0;
    for character in expr.chars() {
        match character {
            '(' | ')' | ' ' => word = text.len(),
            // `count(*)` is planned as `count(1)`.
            '*' => text.push('1'),
            '.' if text[word..].starts_with(|first: char| !first.is_ascii_digit()) => text.truncate(word),
            other => {
                text.extend(other.to_lowercase());
                if !(other.is_alphanumeric() || matches!(other, '_' | '"')) {
                    word = text.len();
                }
            }
        }
    }
    match text.as_str() {
        "current_timestamp" | "transaction_timestamp" | "statement_timestamp" | "localtimestamp" => "now".to_owned(),
        _ => text,
    }
}

/// Returns the new and the former name of a column that DataFusion numbered, as `x:1`, because a subquery has several
/// of its name.
fn numbered(expr: &Expr) -> Option<(String, String)> {
    let Expr::Alias(alias) = expr else { return None };
    let Expr::Column(column) = alias.expr.as_ref() else { return None };
    let number = alias.name.strip_prefix(&column.name)?.strip_prefix(':')?;
    let is_numbered = alias.relation.is_some() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_numbered.then(|| (alias.name.clone(), column.name.clone()))
}

/// Visitor that renames repeated columns.
struct Rename<'a> {
    tables: &'a Tables,
    names: HashMap<String, String>,
}

impl Visitor for Rename<'_> {
    fn query(&mut self, query: &mut Query) -> Step {
        self.set(&mut query.body, query.order_by.is_some());
        ControlFlow::Continue(())
    }
}

impl Rename<'_> {
    fn set(&mut self, body: &mut SetExpr, is_sorted: bool) {
        match body {
            SetExpr::Select(select) => self.select(select, is_sorted),
            SetExpr::SetOperation { left, right, .. } => {
                self.set(left, is_sorted);
                self.set(right, is_sorted);
            }
            // A query in brackets is visited by itself.
            _ => {}
        }
    }

    fn select(&mut self, select: &mut Select, is_sorted: bool) {
        if select.projection.len() < 2 && !is_sorted {
            return;
        }
        let all = Wildcards::of(select, self.tables);
        let mut columns: HashMap<String, Vec<Vec<String>>> = HashMap::new();
        let mut expressions: HashSet<String> = HashSet::new();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let path = match expr {
                SqlExpr::Identifier(ident) => vec![folded(ident)],
                SqlExpr::CompoundIdentifier(idents) => idents.iter().map(folded).collect(),
                // To DataFusion it has the name of what is converted, which may be selected or sorted by as well.
                SqlExpr::Cast { .. } | SqlExpr::AtTimeZone { .. } | SqlExpr::TypedString(_) => {
                    let name = label(expr);
                    self.rename(item, name);
                    continue;
                }
                expr => {
                    if !expressions.insert(planned_alike(&without_casts(expr).to_string())) {
                        let name = label(expr);
                        self.rename(item, name);
                    }
                    continue;
                }
            };
            let Some(name) = path.last().cloned() else { continue };
            let before = columns.entry(name.clone()).or_default();
            if all.have(&path) || before.iter().any(|other| is_same(other, &path)) {
                self.rename(item, name);
            } else {
                before.push(path);
            }
        }
    }

    fn rename(&mut self, item: &mut SelectItem, name: String) {
        let SelectItem::UnnamedExpr(expr) = item else { return };
        let alias = Ident::with_quote('"', self.planned(&name));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }

    /// Returns the name that a column of this name gets in the plan.
    fn planned(&mut self, name: &str) -> String {
        let planned = format!("{name} (column {})", self.names.len() + 1);
        self.names.insert(planned.clone(), name.to_owned());
        planned
    }
}

/// Reports whether two columns of one name are the same one, as far as they say where they come from.
fn is_same(one: &[String], other: &[String]) -> bool {
    one.len() == 1 || other.len() == 1 || one.ends_with(other) || other.ends_with(one)
}

fn last(name: &ObjectName) -> Option<String> {
    name.0.last()?.as_ident().map(folded)
}

/// Wildcards of a SELECT.
struct Wildcards {
    /// Whether there is a `*`.
    all: bool,
    /// Tables of `t.*`, each with the lower-case names of its columns, if these are known and must be looked at to tell
    /// whether a name without a table is one of them.
    tables: Vec<(String, Option<Vec<String>>)>,
}

impl Wildcards {
    fn of(select: &Select, tables: &Tables) -> Wildcards {
        let is_joined = select.from.len() != 1 || select.from.iter().any(|from| !from.joins.is_empty());
        let mut wildcards = Wildcards { all: false, tables: Vec::new() };
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => wildcards.all = true,
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let Some(name) = last(name) else { continue };
                    let columns = if is_joined { columns_of(&name, select, tables) } else { None };
                    wildcards.tables.push((name, columns));
                }
                _ => {}
            }
        }
        wildcards
    }

    /// Reports whether a column is also one of a wildcard.
    fn have(&self, path: &[String]) -> bool {
        self.all
            || self.tables.iter().any(|(table, columns)| match path {
                [name] => columns.as_ref().is_none_or(|columns| columns.contains(&name.to_lowercase())),
                [.., of, _] => of == table,
                [] => false,
            })
    }
}

/// Returns the columns of a table in FROM, if it is one of the store.
fn columns_of(name: &str, select: &Select, tables: &Tables) -> Option<Vec<String>> {
    let factors = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    let exact = factors.into_iter().find_map(|factor| {
        let TableFactor::Table { name: table, alias, args: None, .. } = factor else { return None };
        let shown = alias.as_ref().map_or_else(|| last(table), |alias| Some(folded(&alias.name)));
        (shown.as_deref() == Some(name)).then_some(table)
    })?;
    let table = store_table(exact, tables)?;
    Some(table.columns.iter().map(|column| column.name.to_lowercase()).collect())
}

/// Returns the table of the store that an exact name means, with or without its schema.
pub(super) fn store_table(name: &ObjectName, tables: &Tables) -> Option<Arc<StoreTable>> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    tables.table(&match parts.as_slice() {
        [schema, rest @ ..] if schema == PUBLIC && !rest.is_empty() => rest.join("."),
        parts => parts.join("."),
    })
}
