//! Comparisons of rows, as in `(time, n) > ($1, $2)`, written out for each value.
//!
//! DataFusion compares rows as values of their own, in which NULL equals NULL. In PostgreSQL (documentation, section
//! 9.25.5) rows are compared value by value, and the result is NULL if a NULL decides on it.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use crate::error::{QueryError, sqlstate};

/// Returns a comparison of rows as one of their values, or `None` for any other expression.
///
/// # Errors
/// If the rows have different numbers of values.
pub(crate) fn written_out(expr: &Expr) -> Result<Option<Expr>, QueryError> {
    Ok(Some(match expr {
        Expr::BinaryOp { left, op, right } => {
            let (Some(left), Some(right)) = (values(left), values(right)) else { return Ok(None) };
            same_number(left, right)?;
            match op {
                BinaryOperator::Eq => equal(left, right),
                BinaryOperator::NotEq => negated(equal(left, right)),
                BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
                    ordered(left, op, right)
                }
                _ => return Ok(None),
            }
        }
        Expr::InList { expr, list, negated: is_negated } => {
            let Some(left) = values(expr) else { return Ok(None) };
            let mut found = Vec::with_capacity(list.len());
            for member in list {
                let Some(right) = values(member) else { return Ok(None) };
                same_number(left, right)?;
                found.push(equal(left, right));
            }
            let Some(any) = joined(found, BinaryOperator::Or) else { return Ok(None) };
            if *is_negated { negated(any) } else { any }
        }
        Expr::IsNull(row) => {
            let Some(row) = values(row) else { return Ok(None) };
            let all = joined(row.iter().map(|value| Expr::IsNull(boxed(value))).collect(), BinaryOperator::And);
            let Some(all) = all else { return Ok(None) };
            all
        }
        Expr::IsNotNull(row) => {
            let Some(row) = values(row) else { return Ok(None) };
            let all = joined(row.iter().map(|value| Expr::IsNotNull(boxed(value))).collect(), BinaryOperator::And);
            let Some(all) = all else { return Ok(None) };
            all
        }
        _ => return Ok(None),
    }))
}

/// Returns the values of a row of at least two.
fn values(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(values) if values.len() > 1 => Some(values),
        Expr::Nested(inner) => values(inner),
        _ => None,
    }
}

fn same_number(left: &[Expr], right: &[Expr]) -> Result<(), QueryError> {
    match left.len() == right.len() {
        true => Ok(()),
        false => Err(QueryError::new(sqlstate::SYNTAX_ERROR, "unequal number of entries in row expressions")),
    }
}

/// Returns `(…)` around an expression.
fn boxed(expr: &Expr) -> Box<Expr> {
    Box::new(Expr::Nested(Box::new(expr.clone())))
}

fn compared(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    Expr::BinaryOp { left: boxed(left), op, right: boxed(right) }
}

fn negated(expr: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }))
}

/// Joins conditions, in brackets. Returns `None` if there are none.
fn joined(conditions: Vec<Expr>, op: BinaryOperator) -> Option<Expr> {
    let join = |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    conditions.into_iter().reduce(join).map(|all| Expr::Nested(Box::new(all)))
}

fn equal(left: &[Expr], right: &[Expr]) -> Expr {
    let each = left.iter().zip(right).map(|(left, right)| compared(left, BinaryOperator::Eq, right)).collect();
    joined(each, BinaryOperator::And).unwrap_or_else(|| Expr::Nested(Box::new(Expr::Tuple(Vec::new()))))
}

/// Returns `(a, b) < (c, d)` as `a < c or a = c and b < d`; only the last values may be equal.
fn ordered(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Expr {
    let strict = match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        _ => BinaryOperator::Gt,
    };
    let mut pairs = left.iter().zip(right).rev();
    let Some((last_left, last_right)) = pairs.next() else { return equal(left, right) };
    pairs.fold(compared(last_left, op.clone(), last_right), |rest, (left, right)| {
        let (equal, rest) = (compared(left, BinaryOperator::Eq, right), Expr::Nested(Box::new(rest)));
        let later = Expr::BinaryOp { left: Box::new(equal), op: BinaryOperator::And, right: Box::new(rest) };
        let first = compared(left, strict.clone(), right);
        let later = Box::new(Expr::Nested(Box::new(later)));
        Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(first), op: BinaryOperator::Or, right: later }))
    })
}
