//! Names of columns without a name, as PostgreSQL gives them: `count` for `count(*)`, `?column?` for `x + 1`.
//!
//! The columns of a result are renamed where they are shown, which cannot change what the statement means. Those of
//! queries in FROM get an alias, so that the queries around them can refer to the name.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, Expr, GroupByExpr, Ident, Query, SelectItem, SetExpr, Statement,
    TableFactor, TrimWhereField,
};

use crate::sql::statement::folded;

/// Name of an expression that suggests none.
const UNNAMED: &str = "?column?";

/// Names of the columns of a statement's result.
pub(crate) struct Labels {
    /// For each item of the select list: `None` for a wildcard, inside it the name if it is an expression without one.
    items: Vec<Option<Option<String>>>,
}

impl Labels {
    /// Finds the names of a statement's columns.
    pub(crate) fn of(statement: &Statement) -> Labels {
        let Statement::Query(query) = statement else { return Labels { items: Vec::new() } };
        let mut body = query.body.as_ref();
        let items = loop {
            match body {
                SetExpr::Select(select) => break select.projection.iter().map(item_label).collect(),
                SetExpr::Query(inner) => body = inner.body.as_ref(),
                SetExpr::SetOperation { left, .. } => body = left.as_ref(),
                _ => break Vec::new(),
            }
        };
        Labels { items }
    }

    /// Returns the columns of the result under their names.
    pub(crate) fn shown(&self, schema: SchemaRef) -> SchemaRef {
        let count = schema.fields().len();
        let first = self.items.iter().take_while(|item| item.is_some()).count();
        let last = self.items.iter().rev().take_while(|item| item.is_some()).count();
        let is_whole = first == self.items.len();
        if self.items.is_empty() || (is_whole && first != count) || (!is_whole && first + last > count) {
            return schema;
        }
        // The columns of a wildcard lie between those before and after it.
        let label = |at: usize| match at {
            at if at < first => self.items[at].clone().flatten(),
            at if at >= count - last => self.items[self.items.len() - (count - at)].clone().flatten(),
            _ => None,
        };
        let shown = |(at, field): (usize, &Arc<Field>)| match label(at) {
            Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
            None => field.clone(),
        };
        let fields: Vec<Arc<Field>> = schema.fields().iter().enumerate().map(shown).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

fn item_label(item: &SelectItem) -> Option<Option<String>> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(Some(label(expr))),
        SelectItem::ExprWithAlias { .. } => Some(None),
        _ => None,
    }
}

/// Returns the name of an expression without one.
pub(super) fn label(expr: &Expr) -> String {
    suggested(expr).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// Returns the name that an expression suggests, and whether it is better than that of a type to which it is cast
/// (PostgreSQL, `FigureColnameInternal`).
fn suggested(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match expr {
        Expr::Identifier(ident) => Some((folded(ident), true)),
        Expr::CompoundIdentifier(idents) => idents.last().map(|ident| (folded(ident), true)),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(ident)) => Some((folded(ident), true)),
                _ => None,
            });
            field.or_else(|| suggested(root))
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => suggested(inner),
        Expr::Cast { expr: inner, data_type, .. } => {
            suggested(inner).filter(|(_, is_strong)| *is_strong).or_else(|| Some((type_name(data_type), false)))
        }
        Expr::TypedString(text) => Some((type_name(&text.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_owned(), false)),
        // `x = any(array)` as the parser rewrites it.
        Expr::Function(function) if function.name.to_string() == "array_contains" => None,
        Expr::Function(function) => function.name.0.last()?.as_ident().map(|ident| (folded(ident), true)),
        Expr::Case { else_result, .. } => {
            let name = else_result.as_deref().and_then(suggested).filter(|(_, is_strong)| *is_strong);
            name.or_else(|| Some(("case".to_owned(), false)))
        }
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Exists { .. } => strong("exists"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first()? {
                SelectItem::ExprWithAlias { alias, .. } => Some((folded(alias), true)),
                SelectItem::UnnamedExpr(expr) => suggested(expr),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Returns the internal name of a type, which for an array is that of its elements.
fn type_name(kind: &DataType) -> String {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = kind {
        return type_name(element);
    }
    let text = kind.to_string().to_lowercase();
    // Without a length, which may stand before the rest of the name.
    let plain = match (text.find('('), text.find(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &text[..open], &text[close + 1..]),
        _ => text,
    };
    let name = plain.rsplit('.').next().unwrap_or_default().trim_matches('"');
    match name {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "float" | "double precision" | "double" => "float8",
        "real" => "float4",
        "boolean" => "bool",
        "char" | "character" => "bpchar",
        "character varying" | "char varying" => "varchar",
        "decimal" | "dec" => "numeric",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "time with time zone" => "timetz",
        "time without time zone" => "time",
        other => other,
    }
    .to_owned()
}

/// Gives aliases to the columns of common tables and of queries in FROM. A column whose name is taken gets another one,
/// which is added to `names` with the name to show.
pub(super) fn name_tables(query: &mut Query, names: &mut HashMap<String, String>) {
    if let Some(with) = &mut query.with {
        with.cte_tables.iter_mut().for_each(|table| name_columns(&mut table.query, names));
    }
    name_tables_of(&mut query.body, names);
}

fn name_tables_of(body: &mut SetExpr, names: &mut HashMap<String, String>) {
    match body {
        SetExpr::Query(query) => name_tables(query, names),
        SetExpr::SetOperation { left, right, .. } => {
            name_tables_of(left, names);
            name_tables_of(right, names);
        }
        SetExpr::Select(select) => {
            for from in &mut select.from {
                name_columns_in(&mut from.relation, names);
                from.joins.iter_mut().for_each(|join| name_columns_in(&mut join.relation, names));
            }
        }
        _ => {}
    }
}

fn name_columns_in(factor: &mut TableFactor, names: &mut HashMap<String, String>) {
    match factor {
        TableFactor::Derived { subquery, .. } => name_columns(subquery, names),
        TableFactor::NestedJoin { table_with_joins, .. } => {
            name_columns_in(&mut table_with_joins.relation, names);
            table_with_joins.joins.iter_mut().for_each(|join| name_columns_in(&mut join.relation, names));
        }
        _ => {}
    }
}

/// Gives aliases to the columns of a query, except where another part of the query could take them for something else.
fn name_columns(query: &mut Query, names: &mut HashMap<String, String>) {
    name_tables(query, names);
    let is_sorted = query.order_by.is_some();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return };
    let grouped: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let is_listed = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if is_sorted || select.distinct.is_some() || select.having.is_some() || !select.projection.iter().all(is_listed) {
        return;
    }
    let mut taken: HashMap<String, usize> = HashMap::new();
    for item in &select.projection {
        let is_own = match item {
            SelectItem::ExprWithAlias { .. } => true,
            SelectItem::UnnamedExpr(expr) => is_column(expr),
            _ => false,
        };
        if is_own {
            *taken.entry(item_name(item)).or_default() += 1;
        }
    }
    for item in &mut select.projection {
        let name = item_name(item);
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if is_column(expr) || grouped.contains(&name) {
            continue;
        }
        let uses = taken.entry(name.clone()).or_default();
        *uses += 1;
        let mut alias = name.clone();
        if *uses > 1 {
            alias = format!("{name} (column {})", names.len() + 1);
            names.insert(alias.clone(), name);
        }
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn item_name(item: &SelectItem) -> String {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => folded(alias),
        SelectItem::UnnamedExpr(expr) => label(expr),
        _ => String::new(),
    }
}
