//! One traversal of a statement for all visitors.
//!
//! sqlparser compiles its traversal, some five hundred functions, for each type of visitor. With a type for each
//! purpose, this crate took three times as long to compile.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Statement, TableFactor, VisitMut, VisitorMut};

use crate::error::QueryError;

/// Result of a visit: whether to continue.
pub(crate) type Step = ControlFlow<QueryError>;

/// Visitor of a statement's parts, which may change them. Each part is visited before its own parts.
pub(crate) trait Visitor {
    /// Visits a query, the whole one or a nested one.
    fn query(&mut self, _query: &mut Query) -> Step {
        ControlFlow::Continue(())
    }

    /// Visits a query after all its parts.
    fn after_query(&mut self, _query: &mut Query) -> Step {
        ControlFlow::Continue(())
    }

    /// Visits an item of FROM or JOIN.
    fn table(&mut self, _table: &mut TableFactor) -> Step {
        ControlFlow::Continue(())
    }

    /// Visits an expression.
    fn expr(&mut self, _expr: &mut Expr) -> Step {
        ControlFlow::Continue(())
    }
}

/// Visits the parts of a statement in order.
///
/// # Errors
/// If the visitor stops the traversal, with its error.
pub(crate) fn walk(statement: &mut Statement, look: &mut dyn Visitor) -> Result<(), QueryError> {
    match VisitMut::visit(statement, &mut Walk(look)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Visits a query and its parts, starting with the query.
///
/// # Errors
/// If the visitor stops the traversal, with its error.
pub(crate) fn walk_query(query: &mut Query, look: &mut dyn Visitor) -> Result<(), QueryError> {
    match VisitMut::visit(query, &mut Walk(look)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Visits an expression and its parts, starting with the expression.
///
/// # Errors
/// If the visitor stops the traversal, with its error.
pub(crate) fn walk_expr(expr: &mut Expr, look: &mut dyn Visitor) -> Result<(), QueryError> {
    match VisitMut::visit(expr, &mut Walk(look)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Calls a function with an expression and its parts, starting with the expression, without those inside its queries.
pub(crate) fn walk_own(expr: &mut Expr, act: &mut dyn FnMut(&mut Expr)) {
    struct Own<'a> {
        act: &'a mut dyn FnMut(&mut Expr),
        /// Queries around the part.
        queries: usize,
    }
    impl Visitor for Own<'_> {
        fn query(&mut self, _: &mut Query) -> Step {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn after_query(&mut self, _: &mut Query) -> Step {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn expr(&mut self, expr: &mut Expr) -> Step {
            if self.queries == 0 {
                (self.act)(expr);
            }
            ControlFlow::Continue(())
        }
    }
    // Nothing stops this walk.
    let _ = walk_expr(expr, &mut Own { act, queries: 0 });
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
