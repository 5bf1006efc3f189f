//! Parses text into statements, within limits and with the rewrites that PostgreSQL clients need.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CastKind, DataType, Expr, Function, FunctionArguments, Ident, LimitClause, ObjectName,
    ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableFactor, Value,
};
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
use crate::sql::dialect::BoundedDialect;
use crate::sql::extent;
use crate::sql::footprint::Footprint;
use crate::sql::signs;
use crate::sql::walk::{Step, Visitor, walk, walk_expr, walk_query};

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
                Arc::new(RewriteRegCastToSubquery::new()),
            ],
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
        let mut statements: Vec<Statement> = statements.into_iter().map(|s| self.before_subqueries(s)).collect();
        if names_catalog && statements.iter().all(|statement| matches!(statement, Statement::Query(_))) {
            // Beyond its rules, the clients' parser only replaces whole queries.
            let by_rules: Vec<Statement> = statements
                .iter()
                .map(|s| self.after_subqueries.rewrite(RemoveSubqueryFromProjection.rewrite(s.clone())))
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
            walk(statement, &mut CatalogSubqueries)?;
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

/// Rewrites subqueries in the select lists of clients over the catalogs: correlated ones, which would find no rows, become
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
        let mut values = CatalogValues { in_catalogs: !select.from.is_empty() && kinds.all(|is_catalog| is_catalog) };
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
            if let Err(error) = walk_expr(expr, &mut values) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }

    /// Names the schema of a catalog that the rules of the library do not know.
    fn table(&mut self, table: &mut TableFactor) -> Step {
        if let TableFactor::Table { name, args: None, .. } = table
            && let [part] = name.0.as_slice()
            && part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case("pg_cursors"))
        {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::new("pg_catalog")));
        }
        ControlFlow::Continue(())
    }
}

/// Visitor of the expressions in a select list, which replaces subqueries over the catalogs.
struct CatalogValues {
    /// Whether the select list is that of a query over the catalogs.
    in_catalogs: bool,
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
        if is_array {
            *expr = null_texts();
        } else if look.correlated && !look.aggregates {
            *expr = Expr::Value(Value::Null.with_empty_span());
        } else if !look.correlated && subquery.limit_clause.is_none() && subquery.fetch.is_none() {
            let one = Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
            subquery.limit_clause =
                Some(LimitClause::LimitOffset { limit: Some(one), offset: None, limit_by: Vec::new() });
        }
        ControlFlow::Continue(())
    }
}

/// Returns a NULL of type `text[]`.
fn null_texts() -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Value(Value::Null.with_empty_span())),
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)),
        array: false,
        format: None,
    }
}

/// Properties of a subquery.
struct Subquery {
    catalogs_only: bool,
    /// Whether it calls functions in FROM.
    calls: bool,
    correlated: bool,
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
            aggregates: false,
            names: Vec::new(),
            qualifiers: Vec::new(),
        };
        walk_query(query, &mut look)?;
        look.catalogs_only &= !look.names.is_empty() || look.calls;
        look.correlated = look.qualifiers.iter().any(|qualifier| !look.names.contains(qualifier));
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
