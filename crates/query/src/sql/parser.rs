//! Parses text into statements, within limits and with the rewrites that PostgreSQL clients need.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, Ident, LimitClause, ObjectName, Offset, OffsetRows, Query, SelectItem, SetExpr,
    Statement, TableAlias, TableAliasColumnDef, TableFactor, UnaryOperator, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser as SqlParser;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, TokenizerError};
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, FixVersionColumnName, PrependUnqualifiedPgTableName,
    RemoveSubqueryFromProjection, ResolveUnqualifiedIdentifier, RewriteArrayAnyAllOperation, RewritePgCatalogOperator,
    RewriteRegCastToSubquery, SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::array;
use crate::sql::catalogs;
use crate::sql::dialect::BoundedDialect;
use crate::sql::extent;
use crate::sql::footprint::Footprint;
use crate::sql::row;
use crate::sql::signs;
use crate::sql::walk::{Step, Visitor, walk};

/// The table function whose one column PostgreSQL names after its alias.
const SERIES: &str = "generate_series";

/// Maximum text accepted, in bytes.
pub(crate) const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Text split into tokens before their number is checked, in bytes.
const SPLIT_BYTES: usize = 256 << 10;

/// What asyncpg asks for the types of arrays, which it does by a recursive query over all kinds of types. Here there are
/// only plain types and arrays of them.
const TYPE_LOOKUP: &str = "\
    SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, NULL::oid AS basetype, \
        t.typelem AS elemtype, e.typdelim AS elemdelim, \
        NULL::oid AS range_subtype, NULL::text[] AS attrtypoids, NULL::text[] AS attrnames, 0 AS depth, \
        NULL::text AS basetype_name, e.typname AS elemtype_name, NULL::text AS range_subtype_name \
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem \
    WHERE t.oid = ANY($1::oid[])";

/// Parser of the statements that clients send.
pub(crate) struct Parser {
    /// Parser of client statements that are replaced as a whole.
    clients: PostgresCompatibilityParser,
    before_subqueries: Vec<Arc<dyn SqlStatementRewriteRule>>,
    /// Rule of the clients' parser for casts, in place of which [`catalogs::rewrite`] stands.
    casts: RewriteRegCastToSubquery,
    after_subqueries: FixVersionColumnName,
}

impl Parser {
    /// Creates a parser for all sessions.
    pub(crate) fn new() -> Parser {
        Parser {
            clients: PostgresCompatibilityParser::new(),
            before_subqueries: vec![
                Arc::new(ResolveUnqualifiedIdentifier),
                Arc::new(RewriteArrayAnyAllOperation),
                Arc::new(PrependUnqualifiedPgTableName),
                Arc::new(StripCallableQualifier),
                Arc::new(CurrentUserVariableToSessionUserFunctionCall),
                Arc::new(StripCollate),
                Arc::new(RewritePgCatalogOperator),
            ],
            casts: RewriteRegCastToSubquery::new(),
            after_subqueries: FixVersionColumnName,
        }
    }

    /// Parses the tokens of a text into statements; returns them with the memory of the largest. `columns_of` returns the
    /// number of a table's columns. Needs a large stack, like all code that handles statements.
    ///
    /// # Errors
    /// If the text is not SQL, or exceeds a limit.
    pub(crate) fn parse(
        &self,
        sql: &str,
        tokens: Tokens,
        columns_of: &dyn Fn(&ObjectName) -> usize,
        stopped: &Arc<AtomicBool>,
    ) -> Result<(Vec<Statement>, Footprint), QueryError> {
        let Tokens { mut tokens, footprint } = tokens;
        let is_lookup = tokens.iter().any(|token| matches!(token, Token::Word(word) if word.value == "typeinfo_tree"));
        let sql = if is_lookup { TYPE_LOOKUP } else { sql };
        if is_lookup {
            tokens = split(sql).0;
        }
        let names_catalog = tokens.iter().any(names_catalog);
        let dialect = BoundedDialect::new(tokens.len(), stopped.clone());
        let spanned = tokens.into_iter().map(|token| TokenWithSpan { token, span: Span::empty() }).collect();
        let parsed = SqlParser::new(&dialect).with_tokens_with_locations(spanned).parse_statements();
        if dialect.is_exhausted() {
            let text = "the statement can be read in too many ways; write it with fewer nested brackets";
            return Err(QueryError::new(sqlstate::TOO_COMPLEX, text));
        }
        let mut statements = parsed?;
        let mut largest = footprint;
        for statement in &mut statements {
            largest = largest.max(footprint.with(&extent::check_statement(statement, columns_of)?));
        }
        for statement in &mut statements {
            walk(statement, &mut Quoted)?;
        }
        let mut is_rewritten = false;
        if names_catalog {
            for statement in &mut statements {
                is_rewritten |= catalogs::before(statement)?;
            }
        }
        let mut statements: Vec<Statement> = statements.into_iter().map(|s| self.before_subqueries(s)).collect();
        if names_catalog && !is_rewritten && statements.iter().all(|statement| matches!(statement, Statement::Query(_)))
        {
            // Beyond its rules, the clients' parser only replaces whole queries.
            let by_rules: Vec<Statement> = statements
                .iter()
                .map(|s| self.casts.rewrite(s.clone()))
                .map(|s| self.after_subqueries.rewrite(RemoveSubqueryFromProjection.rewrite(s)))
                .collect();
            let mut replaced = self.clients.parse(sql)?;
            for statement in &mut replaced {
                walk(statement, &mut WithoutAliases)?;
            }
            if replaced != by_rules {
                return Ok((replaced, largest));
            }
        }
        for statement in &mut statements {
            catalogs::rewrite(statement, names_catalog)?;
        }
        Ok((statements.into_iter().map(|s| self.after_subqueries.rewrite(s)).collect(), largest))
    }

    fn before_subqueries(&self, statement: Statement) -> Statement {
        self.before_subqueries.iter().fold(statement, |statement, rule| rule.rewrite(statement))
    }
}

/// Tokens of a text, with the memory that parsing them takes.
pub(crate) struct Tokens {
    tokens: Vec<Token>,
    pub(crate) footprint: Footprint,
}

impl Tokens {
    /// Splits a text into its significant tokens. `ABORT` is replaced by its synonym `ROLLBACK`.
    ///
    /// # Errors
    /// If the text is not SQL, or exceeds a limit.
    pub(crate) fn of(sql: &str) -> Result<Tokens, QueryError> {
        if sql.len() > STATEMENT_BYTES_MAX {
            return Err(extent::beyond("bytes of a statement", sql.len(), STATEMENT_BYTES_MAX));
        }
        // A text with too many tokens is recognised by its beginning, before all of them take memory.
        for end in (SPLIT_BYTES..sql.len()).step_by(SPLIT_BYTES) {
            let (tokens, _) = split(&sql[..sql.floor_char_boundary(end)]);
            extent::check_number(tokens.len())?;
        }
        let (mut tokens, ended) = split(sql);
        ended.map_err(|error| QueryError::new(sqlstate::SYNTAX_ERROR, format!("syntax error: {error}")))?;
        if tokens.iter().any(|token| matches!(token, Token::CustomBinaryOperator(_))) {
            tokens = tokens.into_iter().flat_map(signs::apart).collect();
        }
        tokens = without_deferrable(tokens);
        for token in &mut tokens {
            if matches!(token, Token::Word(word) if word.keyword == Keyword::ABORT) {
                *token = Token::make_keyword("ROLLBACK");
            }
        }
        extent::check_tokens(&tokens)?;
        let footprint = Footprint::of_tokens(&tokens, sql.len());
        Ok(Tokens { tokens, footprint })
    }
}

/// Removes `[NOT] DEFERRABLE` from the modes of transactions, where it has no effect: the parser does not know it.
fn without_deferrable(tokens: Vec<Token>) -> Vec<Token> {
    let is = |token: &Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    if !tokens.iter().any(|token| is(token, Keyword::DEFERRABLE)) {
        return tokens;
    }
    let mut kept: Vec<Token> = Vec::with_capacity(tokens.len());
    let (mut starts, mut has_modes) = (true, false);
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if starts {
            has_modes = [Keyword::BEGIN, Keyword::START, Keyword::SET].iter().any(|keyword| is(&token, *keyword));
        }
        starts = matches!(token, Token::SemiColon);
        if !(has_modes && is(&token, Keyword::DEFERRABLE)) {
            kept.push(token);
            continue;
        }
        kept.pop_if(|last| is(last, Keyword::NOT));
        // Modes may be separated by commas.
        if kept.pop_if(|last| matches!(last, Token::Comma)).is_none() {
            tokens.next_if(|next| matches!(next, Token::Comma));
        }
    }
    kept
}

/// Returns the significant tokens up to the end or the first error.
fn split(sql: &str) -> (Vec<Token>, Result<(), TokenizerError>) {
    let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
    let mut tokens = Vec::new();
    let ended = Tokenizer::new(&dialect, sql).tokenize_with_location_into_buf(&mut tokens);
    let significant = tokens.into_iter().map(|token| token.token);
    (significant.filter(|token| !matches!(token, Token::Whitespace(_))).collect(), ended)
}

/// Reports whether a token names a PostgreSQL catalog, as in queries of clients.
fn names_catalog(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    let word = word.value.to_ascii_lowercase();
    word.starts_with("pg_") || word == "information_schema" || word == "current_setting"
}

/// Removes the aliases that the clients' parser gives to columns which a wildcard repeats.
struct WithoutAliases;

impl Visitor for WithoutAliases {
    fn query(&mut self, query: &mut Query) -> Step {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        for item in &mut select.projection {
            let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
            if alias.value.starts_with("__alias_") {
                *item = SelectItem::UnnamedExpr(expr.clone());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Takes texts for what PostgreSQL takes them: a number in quotes after LIMIT and OFFSET, and an array in brackets after
/// `any` and `all`. `FETCH FIRST` becomes LIMIT. The column of a series gets the name of the series.
struct Quoted;

impl Visitor for Quoted {
    fn query(&mut self, query: &mut Query) -> Step {
        let number = |expr: &mut Expr| {
            if let Expr::Value(value) = expr
                && let Value::SingleQuotedString(text) = &value.value
                && text.trim().parse::<i64>().is_ok()
            {
                value.value = Value::Number(text.trim().to_owned(), false);
            }
        };
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            keep_order(&mut table.query);
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(number);
            offset.iter_mut().for_each(|offset| number(&mut offset.value));
        }
        if let Some(fetch) = query.fetch.take_if(|fetch| !fetch.with_ties && !fetch.percent)
            && query.limit_clause.as_ref().is_none_or(|clause| {
                matches!(clause, LimitClause::LimitOffset { limit: None, limit_by, .. } if limit_by.is_empty())
            })
        {
            let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
            let rows = Some(fetch.quantity.unwrap_or_else(one));
            let offset = query.limit_clause.take().and_then(|clause| match clause {
                LimitClause::LimitOffset { offset, .. } => offset,
                LimitClause::OffsetCommaLimit { .. } => None,
            });
            query.limit_clause = Some(LimitClause::LimitOffset { limit: rows, offset, limit_by: Vec::new() });
        }
        ControlFlow::Continue(())
    }

    fn table(&mut self, table: &mut TableFactor) -> Step {
        if let TableFactor::Derived { subquery, lateral: false, .. } = table {
            keep_order(subquery);
        }
        if let TableFactor::Table { name, alias, args: Some(_), .. } = table
            && let [part] = name.0.as_slice()
            && part.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case(SERIES))
        {
            let of_function = || TableAlias { explicit: true, name: Ident::new(SERIES), columns: Vec::new(), at: None };
            let alias = alias.get_or_insert_with(of_function);
            if alias.columns.is_empty() {
                alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
            }
        }
        ControlFlow::Continue(())
    }

    fn expr(&mut self, expr: &mut Expr) -> Step {
        if let Some(compared) = compared_with_rows(expr) {
            *expr = compared;
            return ControlFlow::Continue(());
        }
        match row::written_out(expr) {
            Ok(None) => {}
            Ok(Some(written_out)) => *expr = written_out,
            Err(error) => return ControlFlow::Break(error),
        }
        // Otherwise the sign is taken into the text of the interval, for its first part alone.
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: negated } = expr
            && matches!(negated.as_ref(), Expr::Interval(_))
        {
            let interval = std::mem::replace(negated.as_mut(), Expr::Value(Value::Null.into()));
            **negated = Expr::Nested(Box::new(interval));
        }
        if let Some(compared) = compared_with_all(expr) {
            *expr = compared;
            return ControlFlow::Continue(());
        }
        let (Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }) = expr else { return ControlFlow::Continue(()) };
        while let Expr::Nested(inner) = right.as_mut()
            && matches!(inner.as_ref(), Expr::Nested(_) | Expr::Value(_))
        {
            **right = std::mem::replace(inner, Expr::Value(Value::Null.into()));
        }
        if let Expr::Value(value) = right.as_ref()
            && let Value::SingleQuotedString(text) = &value.value
            && text.trim_start().starts_with('{')
        {
            match array::elements(text) {
                Ok(elements) => {
                    let value = |element: Option<String>| element.map_or(Value::Null, Value::SingleQuotedString);
                    let elem = elements.into_iter().map(|element| Expr::Value(value(element).into())).collect();
                    **right = Expr::Array(Array { elem, named: true });
                }
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Gives a subquery that is ordered and has no limit `OFFSET 0`: the planner ignores an order without a limit, and in
/// PostgreSQL the rows come in order.
fn keep_order(subquery: &mut Query) {
    if subquery.order_by.is_some() && subquery.limit_clause.is_none() && subquery.fetch.is_none() {
        let value = Expr::Value(Value::Number("0".to_owned(), false).into());
        let offset = Some(Offset { value, rows: OffsetRows::None });
        subquery.limit_clause = Some(LimitClause::LimitOffset { limit: None, offset, limit_by: Vec::new() });
    }
}

/// Returns `x < any (array)` as `not (x >= all (array))`, as only that is NULL where a NULL in the array decides.
fn compared_with_all(expr: &mut Expr) -> Option<Expr> {
    let Expr::AnyOp { left, compare_op, right, .. } = expr else { return None };
    let opposite = match compare_op {
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    };
    if matches!(right.as_ref(), Expr::Subquery(_)) {
        return None;
    }
    let null = || Box::new(Expr::Value(Value::Null.into()));
    let (left, right) = (std::mem::replace(left, null()), std::mem::replace(right, null()));
    let all = Expr::AllOp { left, compare_op: opposite, right };
    Some(Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(all))) })))
}

/// Returns a comparison with any or all rows of a subquery as IN or NOT IN. Another one gets a subquery whose columns have a
/// table of their own: otherwise they are taken for columns of the tables around it.
fn compared_with_rows(expr: &mut Expr) -> Option<Expr> {
    let (left, compare_op, right, all) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, &*compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, &*compare_op, right, true),
        _ => return None,
    };
    let Expr::Subquery(rows) = right.as_mut() else { return None };
    if matches!((compare_op, all), (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true)) {
        let expr = Box::new(std::mem::replace(left.as_mut(), Expr::Value(Value::Null.into())));
        return Some(Expr::InSubquery { expr, subquery: rows.clone(), negated: all });
    }
    let around = SqlParser::new(&PostgreSqlDialect {}).try_with_sql("SELECT * FROM (SELECT 1) AS \"rows compared\"");
    let mut around = around.and_then(|mut parser| parser.parse_query()).ok()?;
    if let SetExpr::Select(select) = around.body.as_mut()
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(subquery, rows);
        *rows = around;
    }
    None
}
