//! Statements of clients over the catalogs of PostgreSQL, with what the planner lacks written in another way.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName, ObjectNamePart, Query, SelectItem,
    SetExpr, Statement, TableFactor, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::QueryError;
use crate::sql::walk::{Step, Visitor, walk, walk_expr, walk_query};

/// Schemas whose tables can be named without them, as in the default of `search_path`.
const VISIBLE: &str = "('public', 'pg_catalog')";

/// Rewrites what the rules of the library would change for the worse. Returns whether there is any.
///
/// # Errors
/// Passes on errors of the traversal, and adds none.
pub(crate) fn before(statement: &mut Statement) -> Result<bool, QueryError> {
    let mut paths = SearchPaths { found: false };
    walk(statement, &mut paths)?;
    Ok(paths.found)
}

/// Rewrites a statement. `is_of_catalogs` says whether it names a catalog.
///
/// # Errors
/// If an expression cannot be written in another way.
pub(crate) fn rewrite(statement: &mut Statement, is_of_catalogs: bool) -> Result<(), QueryError> {
    walk(statement, &mut NumbersOfNames)?;
    if is_of_catalogs {
        walk(statement, &mut CatalogCalls)?;
    }
    walk(statement, &mut CatalogSubqueries)
}

/// Parses an expression from parts of a statement.
fn parsed(text: &str) -> Result<Expr, QueryError> {
    Ok(Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?.parse_expr()?)
}

/// `x IN (subquery over the names in search_path)`, as Grafana asks, with the names in place of the subquery.
struct SearchPaths {
    found: bool,
}

impl Visitor for SearchPaths {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        if let Expr::InSubquery { expr: looked_up, subquery, negated } = expr {
            let text = subquery.to_string().to_lowercase();
            if text.contains("string_to_array(current_setting('search_path')") {
                let list = vec![Expr::Value(Value::SingleQuotedString("public".to_owned()).into())];
                let looked_up = Box::new(std::mem::replace(looked_up.as_mut(), null()));
                *expr = Expr::InList { expr: looked_up, list, negated: *negated };
                self.found = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Casts of texts to the numbers of types, tables and schemas. To the planner these types are integers.
struct NumbersOfNames;

impl Visitor for NumbersOfNames {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        let Expr::Cast { expr: operand, data_type, .. } = expr else { return ControlFlow::Continue(()) };
        let kind = data_type.to_string().to_lowercase();
        let kind = kind.strip_prefix("pg_catalog.").unwrap_or(&kind);
        if !matches!(kind, "regclass" | "regnamespace" | "regtype" | "regproc") || !is_text(operand) {
            return ControlFlow::Continue(());
        }
        if let Expr::Value(value) = operand.as_ref()
            && let Value::SingleQuotedString(text) = &value.value
            && text.parse::<u32>().is_ok()
        {
            *expr = Expr::Value(Value::Number(text.clone(), false).into());
            return ControlFlow::Continue(());
        }
        let name = format!("({operand})::text");
        // The largest of one number, and NULL of none.
        let written = match kind {
            "regtype" => format!("oid(regtype({name}))"),
            "regclass" => format!(
                "oid((SELECT max(c.oid) FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid \
                 CROSS JOIN (SELECT parse_ident({name}) AS parts) AS p \
                 WHERE array_length(parts) = 1 AND n.nspname IN {VISIBLE} AND c.relname = parts[1] \
                 OR array_length(parts) = 2 AND n.nspname = parts[1] AND c.relname = parts[2]))"
            ),
            "regnamespace" => {
                format!("oid((SELECT max(n.oid) FROM pg_catalog.pg_namespace n WHERE n.nspname = {name}))")
            }
            // Columns of functions hold names.
            _ => format!("replace({name}, 'pg_catalog.', '')"),
        };
        match parsed(&written) {
            Ok(found) => *expr = found,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Reports whether an expression is certainly a text, or a parameter that may be one.
fn is_text(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)),
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Text | DataType::Varchar(_)),
        Expr::BinaryOp { op, .. } => *op == BinaryOperator::StringConcat,
        Expr::Nested(inner) => is_text(inner),
        _ => false,
    }
}

/// Calls of functions about arrays of keys, of which there are none, and fields of their results.
struct CatalogCalls;

impl Visitor for CatalogCalls {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        match expr {
            Expr::CompoundFieldAccess { root, access_chain }
                if matches!(root.as_ref(), Expr::Nested(_))
                    && access_chain.iter().all(|access| matches!(access, AccessExpr::Dot(_))) =>
            {
                *expr = null_of(DataType::Int(None));
            }
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(|ident| &ident.value);
                let name = name.map(|name| name.to_lowercase()).unwrap_or_default();
                if name == "generate_subscripts" {
                    let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
                    let [
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(array)),
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(dimension)),
                    ] = list.args.as_slice()
                    else {
                        return ControlFlow::Continue(());
                    };
                    // Arrays have one dimension. A parameter that states it stays one.
                    let length = format!("CAST(coalesce(array_length({array}), 0) AS BIGINT)");
                    match parsed(&format!("unnest(range(1, {length} + 1 + 0 * CAST({dimension} AS BIGINT)))")) {
                        Ok(subscripts) => *expr = subscripts,
                        Err(error) => return ControlFlow::Break(error),
                    }
                } else if name == "_pg_expandarray" {
                    *expr = null_of(DataType::Int(None));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Returns the condition that the schema of a table needs no mention, for a call `pg_table_is_visible(oid)`.
fn visible(expr: &Expr) -> Option<Result<Expr, QueryError>> {
    let Expr::Function(function) = expr else { return None };
    if !function.name.0.last()?.as_ident()?.value.eq_ignore_ascii_case("pg_table_is_visible") {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(table))] = list.args.as_slice() else { return None };
    let namespace = match table {
        Expr::Identifier(ident) if ident.value.eq_ignore_ascii_case("oid") => "relnamespace".to_owned(),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [rest @ .., last] if last.value.eq_ignore_ascii_case("oid") => {
                rest.iter().map(|part| format!("{part}.")).collect::<String>() + "relnamespace"
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(parsed(&format!("{namespace} IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname IN {VISIBLE})")))
}

/// Replaces calls of `pg_table_is_visible` among the conditions that all must hold.
fn only_visible(expr: &mut Expr) -> Result<(), QueryError> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            only_visible(left)?;
            only_visible(right)
        }
        Expr::Nested(inner) => only_visible(inner),
        other => {
            if let Some(condition) = visible(other) {
                *other = condition?;
            }
            Ok(())
        }
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

/// Rewrites subqueries in the select lists and conditions of clients over the catalogs: correlated ones, which would find no rows, become
/// NULL or an empty array, and uncorrelated ones are limited to one row, because any row will do. Subqueries over other
/// tables are left unchanged.
struct CatalogSubqueries;

impl Visitor for CatalogSubqueries {
    fn query(&mut self, query: &mut Query) -> Step {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        let tables = select.from.iter().flat_map(|from| {
            let joined = from.joins.iter().map(|join| &join.relation);
            std::iter::once(&from.relation).chain(joined)
        });
        let mut kinds =
            tables.map(|table| matches!(table, TableFactor::Table { name, args: None, .. } if is_catalog(name)));
        let in_catalogs = !select.from.is_empty() && kinds.all(|is_catalog| is_catalog);
        let items = select.projection.iter_mut().filter_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some((expr, false)),
            _ => None,
        });
        for (expr, in_condition) in items.chain(select.selection.iter_mut().map(|condition| (condition, true))) {
            if let Err(error) = walk_expr(expr, &mut CatalogValues { in_catalogs, in_condition }) {
                return ControlFlow::Break(error);
            }
        }
        let joined =
            select.from.iter_mut().flat_map(|from| &mut from.joins).filter_map(|join| match &mut join.join_operator {
                JoinOperator::Join(JoinConstraint::On(on))
                | JoinOperator::Inner(JoinConstraint::On(on))
                | JoinOperator::Left(JoinConstraint::On(on)) => Some(on),
                _ => None,
            });
        for condition in joined.chain(&mut select.selection) {
            if let Err(error) = only_visible(condition) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }

    /// Names the schema of a catalog that the rules of the library do not know.
    fn table(&mut self, table: &mut TableFactor) -> Step {
        if let TableFactor::Table { name, args: None, .. } = table
            && let [part] = name.0.as_slice()
            && part.as_ident().is_some_and(|ident| is_about_session(&ident.value))
        {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::new("pg_catalog")));
        }
        ControlFlow::Continue(())
    }
}

/// Reports whether a table is one that the rules of the library do not know.
fn is_about_session(name: &str) -> bool {
    ["pg_cursors", "pg_prepared_statements"].iter().any(|table| name.eq_ignore_ascii_case(table))
}

/// Visitor of the expressions in a select list or condition, which replaces subqueries over the catalogs.
struct CatalogValues {
    /// Whether the select list is that of a query over the catalogs.
    in_catalogs: bool,
    /// Whether the expressions are those of a condition. There, only correlated subqueries are replaced.
    in_condition: bool,
}

impl Visitor for CatalogValues {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        let is_array = matches!(expr, Expr::Function(_));
        let subquery = match expr {
            Expr::Subquery(subquery) => subquery,
            Expr::Function(Function { name, args: FunctionArguments::Subquery(subquery), .. })
                if name.to_string().eq_ignore_ascii_case("array") =>
            {
                subquery
            }
            _ => return ControlFlow::Continue(()),
        };
        let look = match Subquery::of(subquery) {
            Ok(look) => look,
            Err(error) => return ControlFlow::Break(error),
        };
        if !look.catalogs_only || look.calls && !self.in_catalogs {
            return ControlFlow::Continue(());
        }
        if self.in_condition {
            if look.correlated_by_name && !look.aggregates && !is_array {
                *expr = null();
            }
        } else if is_array {
            *expr = null_of(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)));
        } else if look.correlated && !look.aggregates {
            *expr = null();
        } else if !look.correlated && subquery.limit_clause.is_none() && subquery.fetch.is_none() {
            let one = Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
            subquery.limit_clause =
                Some(LimitClause::LimitOffset { limit: Some(one), offset: None, limit_by: Vec::new() });
        }
        ControlFlow::Continue(())
    }
}

/// Returns a NULL of a type.
fn null_of(data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(null()), data_type, array: false, format: None }
}

/// Properties of a subquery.
struct Subquery {
    catalogs_only: bool,
    /// Whether it calls functions in FROM.
    calls: bool,
    /// Whether it names a table outside of it, or has a parameter.
    correlated: bool,
    correlated_by_name: bool,
    aggregates: bool,
    names: Vec<String>,
    qualifiers: Vec<String>,
}

impl Subquery {
    fn of(query: &mut Query) -> Result<Subquery, QueryError> {
        let mut look = Subquery {
            catalogs_only: true,
            calls: false,
            correlated: false,
            correlated_by_name: false,
            aggregates: false,
            names: Vec::new(),
            qualifiers: Vec::new(),
        };
        walk_query(query, &mut look)?;
        look.catalogs_only &= !look.names.is_empty() || look.calls;
        let outside = |qualifier: &&String| !look.names.contains(qualifier);
        look.correlated = look.qualifiers.iter().any(|qualifier| outside(&qualifier));
        look.correlated_by_name = look.qualifiers.iter().filter(outside).any(|qualifier| !qualifier.is_empty());
        Ok(look)
    }
}

impl Visitor for Subquery {
    fn table(&mut self, table: &mut TableFactor) -> Step {
        if let TableFactor::Table { name, alias, args, .. } = table {
            self.calls |= args.is_some();
            self.catalogs_only &= args.is_some() || is_catalog(name);
            let own =
                alias.as_ref().map(|alias| &alias.name).or_else(|| name.0.last().and_then(|part| part.as_ident()));
            self.names.extend(own.map(|ident| ident.value.to_lowercase()));
        } else {
            self.catalogs_only = false;
        }
        ControlFlow::Continue(())
    }

    fn expr(&mut self, expr: &mut Expr) -> Step {
        match expr {
            Expr::CompoundIdentifier(parts) if parts.len() > 1 => {
                self.qualifiers.extend(parts.get(parts.len() - 2).map(|ident| ident.value.to_lowercase()));
            }
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => self.qualifiers.push(String::new()),
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let name = name.rsplit('.').next().unwrap_or_default();
                self.aggregates |=
                    ["count", "sum", "min", "max", "avg", "array_agg", "string_agg", "bool_and", "bool_or"]
                        .contains(&name);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_catalog(name: &ObjectName) -> bool {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase()).collect();
    match parts.as_slice() {
        [schema, _] => schema == "pg_catalog" || schema == "information_schema",
        [_, schema, _] => schema == "pg_catalog" || schema == "information_schema",
        _ => false,
    }
}
