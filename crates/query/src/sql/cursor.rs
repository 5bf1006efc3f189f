//! Cursors in SQL: `DECLARE`, `FETCH` and `MOVE`.
//!
//! The statements of sqlparser are used, of which its parser reads only some forms. `MOVE` is `FETCH` into no columns.

use datafusion::sql::sqlparser::ast::{
    Declare, DeclareType, FetchDirection, FetchPosition, Ident, ObjectName, Query, Statement, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{QueryError, sqlstate};
use crate::sql::copy::parse_word;
use crate::sql::statement::folded;

/// A cursor to declare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cursor {
    pub(crate) name: String,
    /// Whether its rows are sent in the binary form.
    pub(crate) binary: bool,
}

/// Rows of a cursor to fetch, or to pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fetch {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    /// Whether the rows are passed and not sent.
    pub(crate) moves: bool,
}

/// Position of the rows to fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    /// The next rows; `None` for all.
    Next(Option<i64>),
    /// The row with this number, counted from 1, or from the end if it is negative.
    At(i64),
    /// The row this number after the current one.
    Ahead(i64),
    /// Rows before the current one.
    Back,
}

/// Parses a DECLARE, FETCH or MOVE statement, or returns `None` for any other.
pub(crate) fn parse(parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
    if parser.parse_keyword(Keyword::DECLARE) {
        return Some(parse_declare(parser));
    }
    if parser.parse_keyword(Keyword::FETCH) {
        return Some(parse_fetch(parser, None));
    }
    parse_word(parser, "move").then(|| parse_fetch(parser, Some(ObjectName(Vec::new()))))
}

fn parse_declare(parser: &mut Parser) -> Result<Statement, ParserError> {
    let mut declare = Declare {
        names: vec![parser.parse_identifier()?],
        data_type: None,
        assignment: None,
        declare_type: Some(DeclareType::Cursor),
        binary: None,
        sensitive: None,
        scroll: None,
        hold: None,
        for_query: None,
    };
    loop {
        match parser.expect_one_of_keywords(&[
            Keyword::BINARY,
            Keyword::INSENSITIVE,
            Keyword::ASENSITIVE,
            Keyword::SCROLL,
            Keyword::NO,
            Keyword::CURSOR,
        ])? {
            Keyword::BINARY => declare.binary = Some(true),
            Keyword::INSENSITIVE => declare.sensitive = Some(true),
            Keyword::ASENSITIVE => declare.sensitive = Some(false),
            Keyword::SCROLL => declare.scroll = Some(true),
            Keyword::NO => {
                parser.expect_keyword(Keyword::SCROLL)?;
                declare.scroll.get_or_insert(false);
            }
            _ => break,
        }
    }
    declare.hold = parser.parse_one_of_keywords(&[Keyword::WITH, Keyword::WITHOUT]).map(|word| word == Keyword::WITH);
    if declare.hold.is_some() {
        parser.expect_keyword(Keyword::HOLD)?;
    }
    parser.expect_keyword(Keyword::FOR)?;
    declare.for_query = Some(parser.parse_query()?);
    Ok(Statement::Declare { stmts: vec![declare] })
}

fn parse_fetch(parser: &mut Parser, into: Option<ObjectName>) -> Result<Statement, ParserError> {
    let direction = parse_direction(parser)?;
    let position = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]) {
        Some(Keyword::IN) => FetchPosition::In,
        _ => FetchPosition::From,
    };
    Ok(Statement::Fetch { name: parser.parse_identifier()?, direction, position, into })
}

fn parse_direction(parser: &mut Parser) -> Result<FetchDirection, ParserError> {
    // At the end, such a word is the name of a cursor.
    let is_last = matches!(parser.peek_nth_token_ref(1).token, Token::EOF | Token::SemiColon);
    if is_last {
        return Ok(FetchDirection::Next);
    }
    let word = parser.parse_one_of_keywords(&[
        Keyword::NEXT,
        Keyword::PRIOR,
        Keyword::FIRST,
        Keyword::LAST,
        Keyword::ABSOLUTE,
        Keyword::RELATIVE,
        Keyword::FORWARD,
        Keyword::BACKWARD,
        Keyword::ALL,
    ]);
    Ok(match word {
        Some(Keyword::NEXT) => FetchDirection::Next,
        Some(Keyword::PRIOR) => FetchDirection::Prior,
        Some(Keyword::FIRST) => FetchDirection::First,
        Some(Keyword::LAST) => FetchDirection::Last,
        Some(Keyword::ALL) => FetchDirection::All,
        Some(Keyword::FORWARD) if parser.parse_keyword(Keyword::ALL) => FetchDirection::ForwardAll,
        Some(Keyword::BACKWARD) if parser.parse_keyword(Keyword::ALL) => FetchDirection::BackwardAll,
        Some(Keyword::FORWARD) => FetchDirection::Forward { limit: parse_number(parser)? },
        Some(Keyword::BACKWARD) => FetchDirection::Backward { limit: parse_number(parser)? },
        other => match (other, parse_number(parser)?) {
            (Some(Keyword::ABSOLUTE), Some(limit)) => FetchDirection::Absolute { limit },
            (Some(_), Some(limit)) => FetchDirection::Relative { limit },
            (None, Some(limit)) => FetchDirection::Count { limit },
            (Some(_), None) => return parser.expected_ref("a number", parser.peek_token_ref()),
            (None, None) => FetchDirection::Next,
        },
    })
}

/// Parses a number with a sign, if there is one.
fn parse_number(parser: &mut Parser) -> Result<Option<ValueWithSpan>, ParserError> {
    let is_negative = parser.consume_token(&Token::Minus);
    let is_signed = is_negative || parser.consume_token(&Token::Plus);
    if !is_signed && !matches!(parser.peek_token_ref().token, Token::Number(..)) {
        return Ok(None);
    }
    let text = parser.parse_number_value()?.value.to_string();
    // As in PostgreSQL, it has 32 bits.
    if text.parse::<i32>().is_err() {
        return Err(ParserError::ParserError(format!("at or near \"{text}\"")));
    }
    let sign = if is_negative { "-" } else { "" };
    Ok(Some(Value::Number(format!("{sign}{text}"), false).with_empty_span()))
}

/// Returns the cursor that a statement declares, and its query.
///
/// # Errors
/// If it has an option that is not supported.
pub(crate) fn declared(statement: &Declare) -> Result<(Cursor, Box<Query>), QueryError> {
    let unsupported = |what: &str, hint: &str| {
        Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("cursors {what} are not supported"))
            .with_hint(hint))
    };
    if statement.hold == Some(true) {
        return unsupported(
            "WITH HOLD",
            "A cursor reads while its transaction is open, and keeps no copy of the rows.",
        );
    }
    if statement.scroll == Some(true) {
        return unsupported("with SCROLL", "A cursor reads its rows once, in order. Declare it without SCROLL.");
    }
    match (statement.names.as_slice(), &statement.for_query) {
        ([name], Some(query)) => {
            let cursor = Cursor { name: folded(name), binary: statement.binary == Some(true) };
            Ok((cursor, query.clone()))
        }
        _ => Err(QueryError::new(sqlstate::SYNTAX_ERROR, "DECLARE of no cursor")),
    }
}

/// Returns what a FETCH or MOVE statement fetches.
pub(crate) fn fetched(name: &Ident, direction: &FetchDirection, into: Option<&ObjectName>) -> Fetch {
    let number = |limit: &ValueWithSpan| limit.value.to_string().parse::<i64>().unwrap_or(0);
    let forward = |count: i64| if count < 0 { Reach::Back } else { Reach::Next(Some(count)) };
    let reach = match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Reach::Next(Some(1)),
        FetchDirection::All | FetchDirection::ForwardAll => Reach::Next(None),
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => forward(number(limit)),
        FetchDirection::Backward { limit: Some(limit) } => forward(-number(limit)),
        FetchDirection::First => Reach::At(1),
        FetchDirection::Last => Reach::At(-1),
        FetchDirection::Absolute { limit } => Reach::At(number(limit)),
        FetchDirection::Relative { limit } => Reach::Ahead(number(limit)),
        FetchDirection::Prior | FetchDirection::BackwardAll | FetchDirection::Backward { limit: None } => Reach::Back,
    };
    Fetch { name: folded(name), reach, moves: into.is_some() }
}
