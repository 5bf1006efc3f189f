//! Resolves names in a statement as people type them: tables and columns keep their exact names, and an unquoted name
//! also matches case-insensitively if that is unique.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::statement::folded;
use crate::sql::walk::{Step, Visitor, walk};
use crate::system::catalog::{DATABASE, PUBLIC, SYSTEM, Tables};

/// Rewrites the names of a statement to exact, quoted ones. Returns the number of columns of its widest table.
///
/// # Errors
/// If an unquoted name matches several tables or columns. The message lists them.
pub(crate) fn resolve(statement: &mut Statement, tables: &Tables) -> Result<usize, QueryError> {
    let mut defined = Defined::default();
    walk(statement, &mut defined)?;
    let mut relations = Relations { tables, defined: &defined, used: BTreeSet::new() };
    walk(statement, &mut relations)?;
    let mut columns: HashMap<String, BTreeSet<String>> = HashMap::new();
    let mut widest = 0;
    for name in &relations.used {
        if let Some(table) = tables.table(name) {
            widest = widest.max(table.columns.len());
            for column in table.columns.iter() {
                columns.entry(column.name.to_lowercase()).or_default().insert(column.name.clone());
            }
        }
    }
    walk(statement, &mut ScopeColumns { columns, defined: &defined })?;
    Ok(widest)
}

/// Names defined by the statement itself, which take precedence over tables and columns.
#[derive(Default)]
struct Defined {
    relations: HashSet<String>,
    columns: HashSet<String>,
}

impl Defined {
    fn select_items(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => {
                for item in &select.projection {
                    if let SelectItem::ExprWithAlias { alias, .. } = item {
                        self.columns.insert(folded(alias));
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.select_items(left);
                self.select_items(right);
            }
            _ => {}
        }
    }

    fn alias(&mut self, alias: &TableAlias) {
        self.columns.extend(alias.columns.iter().map(|c| folded(&c.name)));
    }
}

impl Visitor for Defined {
    fn query(&mut self, query: &mut Query) -> Step {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.relations.insert(folded(&cte.alias.name));
            self.alias(&cte.alias);
        }
        self.select_items(&query.body);
        ControlFlow::Continue(())
    }

    fn table(&mut self, factor: &mut TableFactor) -> Step {
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. } = factor
        {
            self.alias(alias);
        }
        ControlFlow::Continue(())
    }
}

struct Relations<'a> {
    tables: &'a Tables,
    defined: &'a Defined,
    used: BTreeSet<String>,
}

impl Visitor for Relations<'_> {
    fn table(&mut self, factor: &mut TableFactor) -> Step {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        match self.exact(name) {
            Err(error) => ControlFlow::Break(error),
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some((exact, native))) => {
                self.used.insert(exact.clone());
                if !native {
                    if alias.is_none()
                        && let Some(ObjectNamePart::Identifier(last)) = name.0.last()
                    {
                        let name = Ident::with_quote('"', folded(last));
                        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
                    }
                    *name = ObjectName::from(vec![Ident::with_quote('"', PUBLIC), Ident::with_quote('"', exact)]);
                }
                ControlFlow::Continue(())
            }
        }
    }
}

impl Relations<'_> {
    /// Returns the exact name of a table, and whether DataFusion finds it by the name as written.
    fn exact(&self, name: &ObjectName) -> Result<Option<(String, bool)>, QueryError> {
        let mut parts = Vec::new();
        for part in &name.0 {
            match part {
                ObjectNamePart::Identifier(ident) => parts.push(ident),
                ObjectNamePart::Function(_) => return Ok(None),
            }
        }
        if parts.len() == 1 && self.defined.relations.contains(&folded(parts[0])) {
            return Ok(None);
        }
        let first = folded(parts[0]);
        if parts.len() > 1 && (first == "pg_catalog" || first == "information_schema") {
            return Ok(None);
        }
        let written = parts.len();
        if parts.len() == 3 && first == DATABASE && [PUBLIC, SYSTEM].contains(&folded(parts[1]).as_str()) {
            parts.remove(0);
        }
        if parts.len() > 1 && folded(parts[0]) == PUBLIC {
            parts.remove(0);
        }
        let joined = parts.iter().map(|p| folded(p)).collect::<Vec<_>>().join(".");
        if self.tables.table(&joined).is_some() {
            return Ok(Some((joined, written <= 2)));
        }
        // A quoted part must match exactly; others match case-insensitively.
        let fits = |candidate: &&String| {
            let mut rest = candidate.as_str();
            parts.iter().enumerate().all(|(at, part)| {
                let dot = if at == 0 { "" } else { "." };
                let Some(after) = rest.strip_prefix(dot) else { return false };
                let Some(here) = after.get(..part.value.len().min(after.len())) else { return false };
                rest = &after[here.len()..];
                here == part.value || (part.quote_style.is_none() && here.to_lowercase() == folded(part))
            })
        };
        let candidates: Vec<&String> = self.tables.candidates(&joined).iter().filter(fits).collect();
        match candidates.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(((*only).clone(), false))),
            several => Err(ambiguous("relation", &joined, several.iter().map(|s| s.as_str()))),
        }
    }
}

struct ScopeColumns<'a> {
    columns: HashMap<String, BTreeSet<String>>,
    defined: &'a Defined,
}

impl ScopeColumns<'_> {
    fn exact(&self, ident: &mut Ident) -> Result<(), QueryError> {
        if ident.quote_style.is_some() {
            return Ok(());
        }
        let name = ident.value.to_lowercase();
        if self.defined.columns.contains(&name) {
            return Ok(());
        }
        let Some(candidates) = self.columns.get(&name) else { return Ok(()) };
        if candidates.len() > 1 {
            return Err(ambiguous("column", &name, candidates.iter().map(String::as_str)));
        }
        if let Some(exact) = candidates.first().filter(|exact| **exact != name) {
            *ident = Ident::with_quote('"', exact);
        }
        Ok(())
    }
}

impl Visitor for ScopeColumns<'_> {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        let resolved = match expr {
            Expr::Identifier(ident) => self.exact(ident),
            Expr::CompoundIdentifier(parts) => parts.last_mut().map_or(Ok(()), |last| self.exact(last)),
            _ => Ok(()),
        };
        match resolved {
            Err(error) => ControlFlow::Break(error),
            Ok(()) => ControlFlow::Continue(()),
        }
    }
}

fn ambiguous<'a>(what: &str, name: &str, candidates: impl Iterator<Item = &'a str>) -> QueryError {
    let list = candidates.map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(", ");
    let message = format!("{what} name {name} is ambiguous: it matches {list}");
    QueryError::new(sqlstate::AMBIGUOUS_NAME, message).with_hint("Write the exact name in double quotes.")
}
