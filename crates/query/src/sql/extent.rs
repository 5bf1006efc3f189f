//! Limits the size of a statement: tokens, length of a chain, and tables and queries after its common tables are
//! inlined.
//!
//! A statement is a tree, and each step (planning, optimising, running, dropping) takes stack for each level and memory
//! for each node. The parser limits the nesting of brackets. Chains of operators nest to the left without brackets and
//! are limited here, like everything that grows in width.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{QueryError, sqlstate};
use crate::sql::footprint::is_query;
use crate::sql::walk::{Step, Visitor, walk};

/// Maximum tokens of the statements in one text.
const TOKENS_MAX: usize = 65_536;
/// Maximum statements in one text.
const STATEMENTS_MAX: usize = 1_000;
/// Maximum queries of the statements in one text.
const TEXT_QUERIES_MAX: usize = 2_000;
/// Maximum nested operators: in a chain, and in those around it.
const CHAIN_MAX: usize = 1_500;
/// Maximum queries of a statement: set operations and subqueries, as written, and with common tables counted once per
/// use.
const QUERIES_MAX: u64 = 600;
/// Maximum queries inside each other, with those in common tables.
const DEPTH_MAX: u64 = 100;
/// Maximum columns that a SELECT lists.
const COLUMNS_MAX: usize = 10_000;
/// Maximum tables of a statement, with those in common tables counted once per use.
const TABLES_MAX: u64 = 600;
/// Maximum tables of one FROM, because each join holds the columns of all tables before it.
const JOINS_MAX: usize = 120;
/// Maximum columns that all joins of a FROM hold together.
const JOINED_COLUMNS_MAX: usize = 300_000;
/// Maximum columns of tables selected as a whole, squared, at each level of queries: what a planner that looks columns
/// up one by one compares in some 20 s.
const WORK_MAX: u64 = 250_000_000;
/// Maximum expressions of a statement, with those in common tables counted once per use.
const EXPRESSIONS_MAX: u64 = 200_000;

/// Maximum grouping sets of a GROUP BY with CUBE, ROLLUP and GROUPING SETS.
const GROUPING_SETS_MAX: u64 = 1_000;

/// Approximate bytes of a plan's node, of one of its columns, and of an expression.
const NODE_BYTES: usize = 1_024;
const COLUMN_BYTES: usize = 100;
const EXPRESSION_BYTES: usize = 320;

/// Returns the error for exceeding a limit.
pub(crate) fn beyond(what: &str, count: impl std::fmt::Display, most: impl std::fmt::Display) -> QueryError {
    QueryError::new(sqlstate::TOO_COMPLEX, format!("{count} {what}, at most {most}"))
}

/// Checks the number of tokens, all or those of a text's beginning.
///
/// # Errors
/// If there are too many.
pub(crate) fn check_number(tokens: usize) -> Result<(), QueryError> {
    if tokens > TOKENS_MAX {
        return Err(beyond("words and signs in a statement", tokens, TOKENS_MAX));
    }
    Ok(())
}

/// Checks tokens before they are parsed.
///
/// # Errors
/// If there are too many tokens or statements, or operators nest too deeply.
pub(crate) fn check_tokens(tokens: &[Token]) -> Result<(), QueryError> {
    check_number(tokens.len())?;
    let statements = tokens.iter().filter(|token| matches!(token, Token::SemiColon)).count();
    if statements > STATEMENTS_MAX {
        return Err(beyond("statements in one message", statements, STATEMENTS_MAX));
    }
    let queries = tokens.iter().filter(|token| is_query(token)).count();
    if queries > TEXT_QUERIES_MAX {
        return Err(beyond("queries in one message", queries, TEXT_QUERIES_MAX));
    }
    let chain = longest_chain(tokens);
    if chain > CHAIN_MAX {
        return Err(beyond("operators in one chain", chain, CHAIN_MAX)
            .with_hint("A long chain of OR over one column can be written as IN (…)."));
    }
    Ok(())
}

/// Operators of a chain, by precedence. Those that bind less are further out, so each kind is counted from 0 again
/// after one that binds less.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    sets: usize,
    ors: usize,
    ands: usize,
    others: usize,
}

impl Chain {
    fn depth(self) -> usize {
        self.sets + self.ors + self.ands + self.others
    }

    fn take(&mut self, token: &Token) {
        *self = match token {
            Token::Word(word) => match word.keyword {
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => {
                    Chain { sets: self.sets + 1, ..Chain::default() }
                }
                Keyword::OR => Chain { ors: self.ors + 1, ands: 0, others: 0, ..*self },
                Keyword::AND => Chain { ands: self.ands + 1, others: 0, ..*self },
                keyword if is_operator_word(keyword) => Chain { others: self.others + 1, ..*self },
                _ => *self,
            },
            Token::Comma => Chain { sets: self.sets, ..Chain::default() },
            Token::Number(..) | Token::Period | Token::Placeholder(_) | Token::SingleQuotedString(_) | Token::EOF => {
                *self
            }
            // Other strings are rare; other tokens are operators. A subscript is one of its own chain.
            _ => Chain { others: self.others + 1, ..*self },
        };
    }
}

/// Returns the maximum number of nested operators: those of a token's chain, and of the chains around its brackets. At
/// least a third of the depth of the tree.
pub(crate) fn longest_chain(tokens: &[Token]) -> usize {
    let (mut outer, mut around, mut longest, mut chain) = (Vec::new(), 0, 0_usize, Chain::default());
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                chain.take(token);
                around += chain.depth();
                outer.push(std::mem::take(&mut chain));
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if let Some(before) = outer.pop() {
                    chain = before;
                    around -= before.depth();
                }
            }
            Token::SemiColon => {
                outer.clear();
                (around, chain) = (0, Chain::default());
            }
            token => chain.take(token),
        }
        longest = longest.max(around + chain.depth());
    }
    longest
}

fn is_operator_word(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::XOR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::NOTNULL
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::SIMILAR
            | Keyword::RLIKE
            | Keyword::REGEXP
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::AT
            | Keyword::COLLATE
            | Keyword::OVERLAPS
            | Keyword::OPERATOR
            | Keyword::MEMBER
            | Keyword::ARRAY
            | Keyword::INTERVAL
            | Keyword::JOIN
            | Keyword::APPLY
            | Keyword::PIVOT
            | Keyword::UNPIVOT
    )
}

/// Checks a parsed statement, and returns its extent.
///
/// # Errors
/// If it has too many tables, columns, queries or expressions after its common tables are inlined. `columns_of` returns
/// the number of a table's columns.
pub(crate) fn check_statement(
    statement: &mut Statement,
    columns_of: &dyn Fn(&ObjectName) -> usize,
) -> Result<Extent, QueryError> {
    let mut counting = Counting { open: vec![Open::default()], bodies: HashMap::new(), written: 0, columns_of };
    walk(statement, &mut counting)?;
    let mut extent = counting.open.pop().map(|open| open.extent).unwrap_or_default();
    extent.written = counting.written;
    if extent.tables > 1 && extent.work() > WORK_MAX {
        let (columns, depth) = (extent.columns, extent.depth);
        let text = format!(
            "{columns} columns of all tables that are selected as a whole, at {depth} levels of queries, are too many"
        );
        return Err(QueryError::new(sqlstate::TOO_COMPLEX, text)
            .with_hint("Select only the columns that are needed, instead of *, from each table."));
    }
    Ok(extent)
}

/// Checks the joins of a statement against the columns of its widest table: each join holds those of all tables before
/// it.
///
/// # Errors
/// If they hold too many columns.
pub(crate) fn check_joins(statement: &mut Statement, columns: usize) -> Result<(), QueryError> {
    struct Joins(usize);
    impl Visitor for Joins {
        fn query(&mut self, query: &mut Query) -> Step {
            self.0 = self.0.max(parts_of(&query.body).1);
            ControlFlow::Continue(())
        }
    }
    let mut joins = Joins(0);
    walk(statement, &mut joins)?;
    let held = (joins.0 * joins.0 / 2).saturating_mul(columns);
    if joins.0 > 2 && held > JOINED_COLUMNS_MAX {
        return Err(beyond("columns in all joins of a query", held, JOINED_COLUMNS_MAX)
            .with_hint("Join subqueries that select only the columns that are needed."));
    }
    Ok(())
}

/// Estimates the memory of a plan with its statement of `tree_bytes`, in bytes.
pub(crate) fn weight(plan: &LogicalPlan, tree_bytes: usize) -> Result<usize, QueryError> {
    let mut weight = tree_bytes;
    plan.apply_with_subqueries(|node| {
        weight += NODE_BYTES + node.schema().fields().len() * COLUMN_BYTES;
        node.apply_expressions(|expr| {
            expr.apply(|_| {
                weight += EXPRESSION_BYTES;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(weight)
}

/// Extent of a query with everything that it uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) queries: u64,
    pub(crate) tables: u64,
    /// Columns of those of which all are selected.
    pub(crate) columns: u64,
    expressions: u64,
    /// Queries inside each other.
    pub(crate) depth: u64,
    /// Queries as written, used or not.
    pub(crate) written: u64,
}

impl Extent {
    /// Returns how many columns are compared with each other.
    fn work(&self) -> u64 {
        self.columns.saturating_mul(self.columns).saturating_mul(self.depth.max(1))
    }

    fn add(&mut self, more: Extent) -> Result<(), QueryError> {
        self.queries = self.queries.saturating_add(more.queries);
        self.tables = self.tables.saturating_add(more.tables);
        self.columns = self.columns.saturating_add(more.columns);
        self.expressions = self.expressions.saturating_add(more.expressions);
        self.depth = self.depth.max(more.depth);
        let hint = "A common table counts once for each use.";
        for (what, count, most) in [
            ("queries in one statement", self.queries, QUERIES_MAX),
            ("tables in one statement", self.tables, TABLES_MAX),
            ("expressions in one statement", self.expressions, EXPRESSIONS_MAX),
            ("queries inside each other", self.depth, DEPTH_MAX),
        ] {
            if count > most {
                return Err(beyond(what, count, most).with_hint(hint));
            }
        }
        Ok(())
    }
}

/// A query being counted, with the common tables visible to queries inside it.
#[derive(Default)]
struct Open {
    extent: Extent,
    /// Whether it selects all columns of a table.
    selects_all: bool,
    commons: HashMap<String, Extent>,
}

struct Counting<'a> {
    open: Vec<Open>,
    /// Names of common tables, by the address of their queries.
    bodies: HashMap<usize, String>,
    /// Queries as written.
    written: u64,
    columns_of: &'a dyn Fn(&ObjectName) -> usize,
}

impl Counting<'_> {
    fn add(&mut self, more: Extent) -> Step {
        match self.open.last_mut().map_or(Ok(()), |open| open.extent.add(more)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn common(&self, name: &ObjectName) -> Option<Extent> {
        let [part] = name.0.as_slice() else { return None };
        let name = part.as_ident()?.value.to_lowercase();
        self.open.iter().rev().find_map(|open| open.commons.get(&name)).copied()
    }
}

/// Returns the SELECTs combined by set operations in a body. A query in brackets is visited separately.
fn selects(body: &SetExpr) -> Vec<&Select> {
    let (mut found, mut rest) = (Vec::new(), vec![body]);
    while let Some(body) = rest.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_ref(), right.as_ref()]),
            SetExpr::Select(select) => found.push(select.as_ref()),
            _ => {}
        }
    }
    found
}

/// Reports whether a SELECT of a body lists all columns of a table.
fn selects_all(body: &SetExpr) -> bool {
    let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    selects(body).iter().any(|select| select.projection.iter().any(is_wildcard))
}

/// Returns the maximum number of columns that a SELECT of a body lists.
fn listed_columns(body: &SetExpr) -> usize {
    selects(body).iter().map(|select| select.projection.len()).max().unwrap_or(0)
}

fn place_of(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

/// Returns the number of queries combined by set operations in a body, and the maximum number of tables that one of
/// them joins.
fn parts_of(body: &SetExpr) -> (u64, usize) {
    let selects = selects(body);
    let joined = |select: &&Select| select.from.iter().map(|from| 1 + from.joins.len()).sum();
    (selects.len() as u64, selects.iter().map(joined).max().unwrap_or(0))
}

/// Returns the maximum number of grouping sets of a body's GROUP BY. They are all expanded before they are counted.
fn grouping_sets(body: &SetExpr) -> u64 {
    let sets = |select: &&Select| {
        let GroupByExpr::Expressions(keys, _) = &select.group_by else { return 0 };
        keys.iter().fold(1_u64, |all, key| {
            all.saturating_mul(match key {
                Expr::Cube(keys) => 2_u64.saturating_pow(u32::try_from(keys.len()).unwrap_or(u32::MAX)),
                Expr::Rollup(keys) => keys.len() as u64 + 1,
                // Each of them is combined with all other keys.
                Expr::GroupingSets(sets) => sets.len() as u64,
                _ => 1,
            })
        })
    };
    selects(body).iter().map(sets).max().unwrap_or(0)
}

impl Visitor for Counting<'_> {
    fn query(&mut self, query: &mut Query) -> Step {
        for common in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.bodies.insert(place_of(&common.query), common.alias.name.value.to_lowercase());
        }
        self.open.push(Open { selects_all: selects_all(&query.body), ..Open::default() });
        let (queries, joined) = parts_of(&query.body);
        let sets = grouping_sets(&query.body);
        if sets > GROUPING_SETS_MAX {
            return ControlFlow::Break(beyond("grouping sets in one query", sets, GROUPING_SETS_MAX));
        }
        if joined > JOINS_MAX {
            return ControlFlow::Break(beyond("tables joined in one query", joined, JOINS_MAX));
        }
        let columns = listed_columns(&query.body);
        if columns > COLUMNS_MAX {
            return ControlFlow::Break(beyond("columns in one SELECT", columns, COLUMNS_MAX));
        }
        self.written += queries.max(1);
        if self.written > QUERIES_MAX {
            return ControlFlow::Break(beyond("queries in one statement", self.written, QUERIES_MAX));
        }
        self.add(Extent { queries: queries.max(1), ..Extent::default() })
    }

    fn after_query(&mut self, query: &mut Query) -> Step {
        let Some(mut done) = self.open.pop() else { return ControlFlow::Continue(()) };
        done.extent.depth += 1;
        match self.bodies.remove(&place_of(query)) {
            // Counted where it is used.
            Some(name) => {
                if let Some(open) = self.open.last_mut() {
                    open.extent.depth = open.extent.depth.max(done.extent.depth);
                    open.commons.insert(name, done.extent);
                }
                ControlFlow::Continue(())
            }
            None => self.add(done.extent),
        }
    }

    fn table(&mut self, table: &mut TableFactor) -> Step {
        let used = match table {
            TableFactor::Table { name, .. } => self.common(name).unwrap_or_else(|| {
                let selects_all = self.open.last().is_some_and(|open| open.selects_all);
                let columns = if selects_all { (self.columns_of)(name) as u64 } else { 1 };
                Extent { columns, ..Extent::default() }
            }),
            _ => Extent::default(),
        };
        self.add(used)?;
        self.add(Extent { tables: 1, ..Extent::default() })
    }

    fn expr(&mut self, _: &mut Expr) -> Step {
        self.add(Extent { expressions: 1, ..Extent::default() })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn chain(sql: &str) -> usize {
        let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
        tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
        longest_chain(&tokens)
    }

    fn check(sql: &str) -> Result<(), QueryError> {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        // One wide table.
        let columns_of = |name: &ObjectName| if name.to_string() == "w" { 1_000 } else { 10 };
        statements.iter_mut().try_for_each(|statement| check_statement(statement, &columns_of).map(drop))
    }

    #[test]
    fn operators_count_in_their_chain_and_in_those_around_it() {
        assert_eq!(chain("select 1+1+1"), 2);
        assert_eq!(chain("select 1, 2, 3 from t"), 0);
        assert_eq!(chain("select 1+1, 1+1+1"), 2);
        assert_eq!(chain("select 1::int::int"), 2);
        assert_eq!(chain("select 1 union all select 2 union all select 3"), 2);
        assert_eq!(chain("select 1+(2+(3+4))"), 5);
        assert_eq!(chain("select a[1][2][3]"), 3);
        assert_eq!(chain("select 1+1+1; select 1"), 2);
        assert!(chain(&format!("select x from t where x in ({})", vec!["1"; 10_000].join(","))) < 4);
        assert_eq!(chain(&format!("select 1{}", " is null".repeat(5_000))), 5_000);
    }

    #[test]
    fn a_common_table_counts_once_for_each_use() {
        let doubling = |count: usize| {
            let mut sql = String::from("with t0 as (select 1 x)");
            (1..=count).for_each(|n| sql += &format!(", t{n} as (select a.x from t{0} a, t{0} b)", n - 1));
            format!("{sql} select * from t{count}")
        };
        check(&doubling(5)).unwrap();
        for count in [12, 30, 100] {
            assert_eq!(check(&doubling(count)).unwrap_err().sqlstate, "54001");
        }
        check("with a as (select 1 x) select * from a, a b, a c").unwrap();
    }

    #[test]
    fn common_tables_count_if_nothing_uses_them_and_nest() {
        let common = |count: usize, body: fn(usize) -> String, last: &str| {
            let mut sql = String::from("with t0 as (select 1 x)");
            (1..=count).for_each(|n| sql += &format!(", t{n} as ({})", body(n - 1)));
            format!("{sql} {last}")
        };
        check(&common(500, |_| "select 1 x".to_owned(), "select 1")).unwrap();
        assert_eq!(check(&common(600, |_| "select 1 x".to_owned(), "select 1")).unwrap_err().sqlstate, "54001");
        for last in ["select 1", "select * from t90"] {
            check(&common(90, |n| format!("select x from t{n}"), last)).unwrap();
        }
        for last in ["select 1", "select * from t110"] {
            let error = check(&common(110, |n| format!("select x from t{n}"), last)).unwrap_err();
            assert!(error.message.contains("queries inside each other"), "{}", error.message);
        }
        assert_eq!(check(&format!("select 1{}", ", 1".repeat(10_000))).unwrap_err().sqlstate, "54001");
    }

    #[test]
    fn columns_of_all_tables_count_at_each_level() {
        let crossed = |times: usize| {
            let mut sql = String::from("with t0 as (select * from w)");
            (1..=times).for_each(|n| sql += &format!(", t{n} as (select * from t{0} x cross join t{0} y)", n - 1));
            format!("{sql} select 1 from t{times}")
        };
        check("select * from w").unwrap();
        check(&["select * from w"; 10].join(" union all ")).unwrap();
        check(&crossed(2)).unwrap();
        check(&["select x from w"; 100].join(" union all ")).unwrap();
        check("select a.x, b.x from w a join w b on a.x = b.x").unwrap();
        assert!(check(&crossed(3)).unwrap_err().message.contains("8000 columns of all tables"));
    }

    #[test]
    fn what_tools_write_is_within_the_limits() {
        let unions = vec!["select x from t"; 100].join(" union all ");
        let joins: String = (0..100).map(|n| format!(" join t t{n} on t.x = t{n}.x")).collect();
        let ors = vec!["x = 1"; 1_000].join(" or ");
        let list = vec!["1"; 10_000].join(", ");
        for sql in [
            unions,
            format!("select 1 from t{joins}"),
            format!("select 1 from t where {ors}"),
            format!("select 1 from t where x in ({list})"),
        ] {
            let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, &sql).tokenize().unwrap();
            tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
            check_tokens(&tokens).unwrap();
            check(&sql).unwrap();
        }
    }
}
