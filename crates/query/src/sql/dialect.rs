//! PostgreSQL's dialect with a limit on the parser's work.
//!
//! The parser tries words and brackets in several ways, each of which may retry what is inside: a few dozen nested
//! brackets that do not close would take it years. Every try passes through the dialect, which counts them.

use std::any::TypeId;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::sql::sqlparser::ast::{Expr, Statement, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::{copy, cursor};

/// Number of tries allowed for a statement of any size.
const STEPS_MIN: u64 = 10_000;
/// Additional tries allowed for each token.
const STEPS_PER_TOKEN: u64 = 40;

/// Number of comparisons by `IS DISTINCT FROM` in a statement.
const COPIES_MAX: u32 = 500;

/// Dialect of one parser.
#[derive(Debug)]
pub(crate) struct BoundedDialect {
    postgres: PostgreSqlDialect,
    left: Cell<u64>,
    /// Number of comparisons by `IS DISTINCT FROM` that are left.
    copies: Cell<u32>,
    stopped: Arc<AtomicBool>,
}

impl BoundedDialect {
    /// Creates the dialect for a statement with this number of tokens. Raising the flag stops parsing, too.
    pub(crate) fn new(tokens: usize, stopped: Arc<AtomicBool>) -> BoundedDialect {
        let steps = STEPS_MIN + STEPS_PER_TOKEN * tokens as u64;
        BoundedDialect {
            postgres: PostgreSqlDialect {},
            left: Cell::new(steps),
            copies: Cell::new(COPIES_MAX),
            stopped,
        }
    }

    /// Reports whether the parser reached the limit or was stopped.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// Counts a try. Its error is the only one after which the parser does not try an alternative.
    fn step(&self) -> Result<(), ParserError> {
        if self.stopped.load(Ordering::Relaxed) {
            self.left.set(0);
        }
        match self.left.get() {
            0 => Err(ParserError::RecursionLimitExceeded),
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

/// Delegates methods to PostgreSQL's dialect.
macro_rules! as_postgres {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $arg: $kind)*) -> $result {
            self.postgres.$name($($arg),*)
        })*
    };
}

impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        self.postgres.dialect()
    }

    /// Parses statements of which the parser knows only a part.
    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        copy::parse(parser).or_else(|| cursor::parse(parser))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = self.step() {
            return Some(Err(error));
        }
        // A sign binds more tightly than `^`: -2 ^ 2 is 4.
        let op = match parser.peek_token_ref().token {
            Token::Minus => UnaryOperator::Minus,
            Token::Plus => UnaryOperator::Plus,
            _ => return None,
        };
        parser.advance_token();
        let signed = parser.parse_subexpr(self.prec_value(Precedence::Caret));
        Some(signed.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    /// Parses `IS [NOT] DISTINCT FROM`, whose right side ends before AND and OR.
    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        let negated = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            false
        } else if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            true
        } else {
            return None;
        };
        // Each copies its left side, which could be all that is before it.
        match self.copies.get() {
            0 => return Some(Err(ParserError::RecursionLimitExceeded)),
            copies => self.copies.set(copies - 1),
        }
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        let build = if negated { Expr::IsNotDistinctFrom } else { Expr::IsDistinctFrom };
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match self.step() {
            Ok(()) => self.postgres.get_next_precedence(parser),
            Err(error) => Some(Err(error)),
        }
    }

    as_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(keyword: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_named_fn_args_with_expr_name() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}
