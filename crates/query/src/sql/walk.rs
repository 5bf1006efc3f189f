//! One walk over a statement for all who look into it.
//!
//! sqlparser makes its walk, some five hundred functions, anew for each type that looks: with a type for each purpose this
//! crate took three times as long to compile.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Statement, TableFactor, VisitMut, VisitorMut};

use crate::error::QueryError;

/// Whether to go on.
pub(crate) type Step = ControlFlow<QueryError>;

/// What looks at the parts of a statement, each before what is in it, and may change them.
pub(crate) trait Visitor {
    /// A query, the whole one or one within.
    fn query(&mut self, _query: &mut Query) -> Step {
        ControlFlow::Continue(())
    }

    /// A query of which all parts were shown.
    fn after_query(&mut self, _query: &mut Query) -> Step {
        ControlFlow::Continue(())
    }

    /// What stands behind FROM or JOIN.
    fn table(&mut self, _table: &mut TableFactor) -> Step {
        ControlFlow::Continue(())
    }

    /// An expression.
    fn expr(&mut self, _expr: &mut Expr) -> Step {
        ControlFlow::Continue(())
    }
}

/// Shows a statement's parts, in their order.
///
/// # Errors
/// The error that ended it.
pub(crate) fn walk(statement: &mut Statement, look: &mut dyn Visitor) -> Result<(), QueryError> {
    match VisitMut::visit(statement, &mut Walk(look)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Shows a query's parts, itself first.
///
/// # Errors
/// The error that ended it.
pub(crate) fn walk_query(query: &mut Query, look: &mut dyn Visitor) -> Result<(), QueryError> {
    match VisitMut::visit(query, &mut Walk(look)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Walk<'a>(&'a mut dyn Visitor);

impl VisitorMut for Walk<'_> {
    type Break = QueryError;

    fn pre_visit_query(&mut self, query: &mut Query) -> Step {
        self.0.query(query)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Step {
        self.0.after_query(query)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Step {
        self.0.table(table)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Step {
        self.0.expr(expr)
    }
}
