//! Names inside expressions of ORDER BY, as in `order by x + 1`: to PostgreSQL they are columns of the table, to the
//! planner columns of the result if there is one of that name. Only a name by itself means the result's.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor,
};

use crate::plan::repeated::store_table;
use crate::sql::statement::folded;
use crate::sql::walk::walk_own;
use crate::system::catalog::Tables;
use crate::table::StoreTable;

/// Gives the columns of a result other names in the plan if an expression of ORDER BY uses their name for a column of the
/// table. `named` is called with such a name and returns the other one. Names of tables are exact.
pub(crate) fn rename(query: &mut Query, tables: &Tables, named: &mut dyn FnMut(&str) -> String) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(order) = &mut query.order_by else { return };
    let OrderByKind::Expressions(keys) = &mut order.kind else { return };
    let keys: Vec<&mut Expr> = keys.iter_mut().map(|key| &mut key.expr).collect();
    let is_name = |key: &Expr| matches!(key, Expr::Identifier(_));
    let used = used_in(keys.iter().map(|key| &**key).filter(|key| !is_name(key)));
    let hidden: HashSet<String> = hidden_columns(select, tables).intersection(&used).cloned().collect();
    if hidden.is_empty() {
        return;
    }
    let mut renamed = Vec::new();
    for item in &mut select.projection {
        if let SelectItem::ExprWithAlias { alias, .. } = item
            && hidden.contains(&folded(alias))
        {
            let name = folded(alias);
            *alias = Ident::with_quote('"', named(&name));
            renamed.push((name, alias.clone()));
        }
    }
    for key in keys {
        if let Expr::Identifier(ident) = key
            && let Some((_, alias)) = renamed.iter().find(|(name, _)| *name == folded(ident))
        {
            *ident = alias.clone();
        }
    }
}

/// Returns the names of result columns that the only table has as well, unless rows are grouped.
fn hidden_columns(select: &Select, tables: &Tables) -> HashSet<String> {
    let aliases: Vec<(&Expr, String)> = select.projection.iter().filter_map(aliased).collect();
    let is_plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let columns = match select.from.as_slice() {
        [from] if is_plain && select.distinct.is_none() && from.joins.is_empty() && !aliases.is_empty() => {
            match &from.relation {
                TableFactor::Table { name, args: None, .. } => {
                    let names = |table: &StoreTable| table.columns.iter().map(|c| c.name.to_lowercase()).collect();
                    store_table(name, tables).map_or_else(HashSet::new, |table| names(&table))
                }
                // What an expression of the result uses without a table is a column.
                _ => used_in(aliases.iter().map(|(expr, _)| *expr)),
            }
        }
        _ => HashSet::new(),
    };
    aliases.into_iter().map(|(_, name)| name).filter(|name| columns.contains(name)).collect()
}

/// Returns the expression and the name of a result column that has another name than its expression.
fn aliased(item: &SelectItem) -> Option<(&Expr, String)> {
    let SelectItem::ExprWithAlias { expr, alias } = item else { return None };
    let name = folded(alias);
    let is_same = |ident: &Ident| folded(ident) == name;
    match expr {
        Expr::Identifier(ident) if is_same(ident) => None,
        Expr::CompoundIdentifier(parts) if parts.last().is_some_and(is_same) => None,
        _ => Some((expr, name)),
    }
}

/// Returns the names without a table in expressions, which are certainly columns.
fn used_in<'e>(exprs: impl Iterator<Item = &'e Expr>) -> HashSet<String> {
    let mut used = HashSet::new();
    for expr in exprs {
        walk_own(&mut expr.clone(), &mut |part| {
            if let Expr::Identifier(ident) = part {
                used.insert(folded(ident));
            }
        });
    }
    used
}
