//! `COPY … TO STDOUT`: its syntax with its options, old and new, and the form of the copy data.
//!
//! The parser of sqlparser knows fewer options than PostgreSQL. Its statement is used with options in the new syntax
//! only, where a character that is not a single byte is [`NO_CHARACTER`], and all columns are `*`.

use std::mem::discriminant;

use datafusion::sql::sqlparser::ast::{CopyOption, CopySource, CopyTarget, Ident, Query, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{IsOptional, Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{QueryError, sqlstate};

/// Place of an option's character if the text given for it is not a single byte. No text has a NUL.
const NO_CHARACTER: char = '\0';
/// Name for all columns.
const ALL_COLUMNS: &str = "*";

/// Encoding of copy data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CopyFormat {
    /// Lines with backslashes before special characters.
    Text,
    /// Lines with quotes around special characters.
    Csv,
    /// Values as in the binary form of the protocol.
    Binary,
}

/// Columns that are quoted even if they need no quotes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForceQuote {
    All,
    Columns(Vec<Ident>),
}

/// Form of `COPY … TO STDOUT`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CopyForm {
    pub(crate) format: CopyFormat,
    /// Whether to start with a line of column names.
    pub(crate) header: bool,
    /// Delimiter between columns.
    pub(crate) delimiter: u8,
    /// Text for NULL.
    pub(crate) null: String,
    /// Quote around CSV values.
    pub(crate) quote: u8,
    /// Character before a quote inside a CSV value.
    pub(crate) escape: u8,
    pub(crate) force_quote: ForceQuote,
}

/// Parses a COPY statement, or returns `None` for any other.
pub(crate) fn parse(parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
    parser.parse_keyword(Keyword::COPY).then(|| parse_copy(parser))
}

fn parse_copy(parser: &mut Parser) -> Result<Statement, ParserError> {
    let mut options = Vec::new();
    if parser.parse_keyword(Keyword::BINARY) {
        options.push(CopyOption::Format(Ident::new("binary")));
    }
    let source = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        CopySource::Query(query)
    } else {
        let table_name = parser.parse_object_name(false)?;
        let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
        CopySource::Table { table_name, columns }
    };
    let to = matches!(parser.expect_one_of_keywords(&[Keyword::FROM, Keyword::TO])?, Keyword::TO);
    let target = match parser.parse_one_of_keywords(&[Keyword::STDIN, Keyword::STDOUT, Keyword::PROGRAM]) {
        Some(Keyword::STDIN) => CopyTarget::Stdin,
        Some(Keyword::STDOUT) => CopyTarget::Stdout,
        Some(_) => CopyTarget::Program { command: parser.parse_literal_string()? },
        None => CopyTarget::File { filename: parser.parse_literal_string()? },
    };
    let source = match source {
        CopySource::Table { table_name, columns } if to => {
            let columns = match columns.as_slice() {
                [] => ALL_COLUMNS.to_owned(),
                columns => columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            };
            let sql = format!("SELECT {columns} FROM {table_name}");
            CopySource::Query(Parser::new(&PostgreSqlDialect {}).try_with_sql(&sql)?.parse_query()?)
        }
        source => source,
    };
    parse_options(parser, &mut options)?;
    Ok(Statement::Copy { source, to, target, options, legacy_options: Vec::new(), values: Vec::new() })
}

fn parse_options(parser: &mut Parser, options: &mut Vec<CopyOption>) -> Result<(), ParserError> {
    let using = parser.parse_keyword(Keyword::USING);
    if parse_word(parser, "delimiters") {
        options.push(CopyOption::Delimiter(parse_character(parser)?));
    } else if using {
        return parser.expected_ref("DELIMITERS", parser.peek_token_ref());
    }
    let _ = parser.parse_keyword(Keyword::WITH);
    if parser.consume_token(&Token::LParen) {
        options.extend(parser.parse_comma_separated(parse_option)?);
        return parser.expect_token(&Token::RParen).map(drop);
    }
    while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        options.push(parse_older_option(parser)?);
    }
    Ok(())
}

/// Parses an option in brackets: its name, and its value if it has one.
fn parse_option(parser: &mut Parser) -> Result<CopyOption, ParserError> {
    let name = parser.parse_identifier()?.value.to_lowercase();
    Ok(match name.as_str() {
        "format" => CopyOption::Format(Ident::new(parse_text(parser)?)),
        "freeze" => CopyOption::Freeze(parse_flag(parser, &name)?),
        "delimiter" => CopyOption::Delimiter(parse_character(parser)?),
        "null" => CopyOption::Null(parse_text(parser)?),
        "header" => CopyOption::Header(parse_flag(parser, &name)?),
        "quote" => CopyOption::Quote(parse_character(parser)?),
        "escape" => CopyOption::Escape(parse_character(parser)?),
        "force_quote" => CopyOption::ForceQuote(parse_columns(parser)?),
        "force_not_null" => CopyOption::ForceNotNull(parse_columns(parser)?),
        "force_null" => CopyOption::ForceNull(parse_columns(parser)?),
        "encoding" => CopyOption::Encoding(parse_text(parser)?),
        other => return Err(ParserError::ParserError(format!("option \"{other}\" not recognized"))),
    })
}

/// Parses an option without brackets, as in `COPY t TO STDOUT WITH CSV HEADER`.
fn parse_older_option(parser: &mut Parser) -> Result<CopyOption, ParserError> {
    let option = parser.parse_one_of_keywords(&[
        Keyword::BINARY,
        Keyword::FREEZE,
        Keyword::DELIMITER,
        Keyword::NULL,
        Keyword::CSV,
        Keyword::HEADER,
        Keyword::QUOTE,
        Keyword::ESCAPE,
        Keyword::FORCE,
        Keyword::ENCODING,
    ]);
    let value = |parser: &mut Parser| {
        let _ = parser.parse_keyword(Keyword::AS);
    };
    Ok(match option {
        Some(Keyword::BINARY) => CopyOption::Format(Ident::new("binary")),
        Some(Keyword::CSV) => CopyOption::Format(Ident::new("csv")),
        Some(Keyword::FREEZE) => CopyOption::Freeze(true),
        Some(Keyword::HEADER) => CopyOption::Header(true),
        Some(Keyword::ENCODING) => CopyOption::Encoding(parse_text(parser)?),
        Some(Keyword::FORCE) if parser.parse_keyword(Keyword::QUOTE) => {
            if parser.consume_token(&Token::Mul) {
                CopyOption::ForceQuote(vec![Ident::new(ALL_COLUMNS)])
            } else {
                CopyOption::ForceQuote(parser.parse_comma_separated(|parser| parser.parse_identifier())?)
            }
        }
        Some(Keyword::FORCE) => {
            let not = parser.parse_keyword(Keyword::NOT);
            parser.expect_keyword(Keyword::NULL)?;
            let columns = parser.parse_comma_separated(|parser| parser.parse_identifier())?;
            if not { CopyOption::ForceNotNull(columns) } else { CopyOption::ForceNull(columns) }
        }
        Some(option) => {
            value(parser);
            match option {
                Keyword::NULL => CopyOption::Null(parse_text(parser)?),
                Keyword::DELIMITER => CopyOption::Delimiter(parse_character(parser)?),
                Keyword::QUOTE => CopyOption::Quote(parse_character(parser)?),
                _ => CopyOption::Escape(parse_character(parser)?),
            }
        }
        None => return parser.expected_ref("a COPY option", parser.peek_token_ref()),
    })
}

/// Takes a word that is not a keyword of the parser.
pub(crate) fn parse_word(parser: &mut Parser, word: &str) -> bool {
    let is_next = matches!(&parser.peek_token_ref().token, Token::Word(next)
        if next.quote_style.is_none() && next.value.eq_ignore_ascii_case(word));
    if is_next {
        parser.advance_token();
    }
    is_next
}

/// Parses a text, or a word in its place.
fn parse_text(parser: &mut Parser) -> Result<String, ParserError> {
    match &parser.peek_token_ref().token {
        Token::Word(word) => {
            let text = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
            parser.advance_token();
            Ok(text)
        }
        _ => parser.parse_literal_string(),
    }
}

fn parse_character(parser: &mut Parser) -> Result<char, ParserError> {
    let text = parse_text(parser)?;
    let mut characters = text.chars();
    Ok(match (characters.next(), characters.next()) {
        (Some(only), None) if only.is_ascii() => only,
        _ => NO_CHARACTER,
    })
}

/// Parses the value of a flag, which may be absent.
fn parse_flag(parser: &mut Parser, name: &str) -> Result<bool, ParserError> {
    let text = match &parser.peek_token_ref().token {
        Token::Comma | Token::RParen => return Ok(true),
        Token::Number(number, _) => {
            let number = number.clone();
            parser.advance_token();
            number
        }
        _ => parse_text(parser)?.to_lowercase(),
    };
    match text.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(ParserError::ParserError(format!("{name} requires a Boolean value"))),
    }
}

fn parse_columns(parser: &mut Parser) -> Result<Vec<Ident>, ParserError> {
    if parser.consume_token(&Token::Mul) {
        return Ok(vec![Ident::new(ALL_COLUMNS)]);
    }
    parser.parse_parenthesized_column_list(IsOptional::Mandatory, false)
}

/// Returns the query of a COPY statement, and the form of its data.
///
/// # Errors
/// If it writes, or its options contradict each other or are not supported.
pub(crate) fn query_of(statement: &Statement) -> Result<(Box<Query>, CopyForm), QueryError> {
    match statement {
        Statement::Copy { source: CopySource::Query(query), to: true, target: CopyTarget::Stdout, options, .. } => {
            Ok((query.clone(), CopyForm::of(options)?))
        }
        _ => Err(QueryError::read_only("COPY")),
    }
}

fn unsupported(text: impl Into<String>) -> QueryError {
    QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
}

fn invalid(text: impl Into<String>) -> QueryError {
    QueryError::new(sqlstate::INVALID_PARAMETER, text)
}

/// Returns the byte of an option's character.
fn byte(name: &str, character: char) -> Result<u8, QueryError> {
    match u8::try_from(character) {
        Ok(byte) if character != NO_CHARACTER => Ok(byte),
        _ => Err(unsupported(format!("COPY {name} must be a single one-byte character"))),
    }
}

impl CopyForm {
    /// Reads and checks options, as PostgreSQL does in `ProcessCopyOptions`.
    fn of(options: &[CopyOption]) -> Result<CopyForm, QueryError> {
        for (at, option) in options.iter().enumerate() {
            if options[..at].iter().any(|before| discriminant(before) == discriminant(option)) {
                return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options"));
            }
        }
        let named = options.iter().find_map(|option| match option {
            CopyOption::Format(format) => Some(format.value.as_str()),
            _ => None,
        });
        let format = match named {
            None | Some("text") => CopyFormat::Text,
            Some("csv") => CopyFormat::Csv,
            Some("binary") => CopyFormat::Binary,
            Some(other) => return Err(invalid(format!("COPY format \"{other}\" not recognized"))),
        };
        let is_csv = format == CopyFormat::Csv;
        let mut form = CopyForm {
            format,
            header: false,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv { String::new() } else { "\\N".to_owned() },
            quote: b'"',
            escape: b'"',
            force_quote: ForceQuote::Columns(Vec::new()),
        };
        let mut escape = None;
        for option in options {
            match option {
                CopyOption::Header(true) if format == CopyFormat::Binary => {
                    return Err(unsupported("cannot specify HEADER in BINARY mode"));
                }
                CopyOption::Delimiter(_) | CopyOption::Null(_) if format == CopyFormat::Binary => {
                    let name = if matches!(option, CopyOption::Null(_)) { "NULL" } else { "DELIMITER" };
                    let text = format!("cannot specify {name} in BINARY mode");
                    return Err(QueryError::new(sqlstate::SYNTAX_ERROR, text));
                }
                CopyOption::Quote(_) if !is_csv => return Err(unsupported("COPY quote available only in CSV mode")),
                CopyOption::Escape(_) if !is_csv => return Err(unsupported("COPY escape available only in CSV mode")),
                CopyOption::ForceQuote(_) if !is_csv => {
                    return Err(unsupported("COPY force quote available only in CSV mode"));
                }
                CopyOption::Header(header) => form.header = *header,
                CopyOption::Delimiter(delimiter) => form.delimiter = byte("delimiter", *delimiter)?,
                CopyOption::Null(null) => form.null.clone_from(null),
                CopyOption::Quote(quote) => form.quote = byte("quote", *quote)?,
                CopyOption::Escape(character) => escape = Some(byte("escape", *character)?),
                CopyOption::ForceQuote(columns) => {
                    form.force_quote = match columns.as_slice() {
                        [all] if all.value == ALL_COLUMNS && all.quote_style.is_none() => ForceQuote::All,
                        columns => ForceQuote::Columns(columns.to_vec()),
                    };
                }
                CopyOption::ForceNotNull(_) => {
                    return Err(unsupported("COPY force not null only available using COPY FROM"));
                }
                CopyOption::ForceNull(_) => return Err(unsupported("COPY force null only available using COPY FROM")),
                CopyOption::Encoding(name) if name.to_lowercase().replace(['-', '_'], "") != "utf8" => {
                    return Err(unsupported(format!("COPY encoding \"{name}\" is not offered, only UTF8")));
                }
                _ => {}
            }
        }
        form.escape = escape.unwrap_or(form.quote);
        form.check()?;
        Ok(form)
    }

    /// Checks that the special characters can be told apart.
    fn check(&self) -> Result<(), QueryError> {
        if matches!(self.delimiter, b'\n' | b'\r') {
            return Err(invalid("COPY delimiter cannot be newline or carriage return"));
        }
        if self.null.contains(['\n', '\r']) {
            return Err(invalid("COPY null representation cannot use newline or carriage return"));
        }
        let is_csv = self.format == CopyFormat::Csv;
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'\\' | b'.');
        if !is_csv && letters(self.delimiter) {
            return Err(invalid(format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter))));
        }
        if is_csv && self.delimiter == self.quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return Err(unsupported("COPY delimiter must not appear in the NULL specification"));
        }
        if is_csv && self.null.as_bytes().contains(&self.quote) {
            return Err(unsupported("CSV quote character must not appear in the NULL specification"));
        }
        Ok(())
    }

    /// Returns for each column of the result whether it is always quoted.
    ///
    /// # Errors
    /// If a column to quote is not in the result.
    pub(crate) fn quoted(&self, names: &[&str]) -> Result<Vec<bool>, QueryError> {
        let columns = match &self.force_quote {
            ForceQuote::All => return Ok(vec![true; names.len()]),
            ForceQuote::Columns(columns) => columns,
        };
        let mut quoted = vec![false; names.len()];
        for column in columns {
            let is_named = |name: &&str| match column.quote_style {
                Some(_) => **name == column.value,
                None => name.eq_ignore_ascii_case(&column.value),
            };
            let Some(at) = names.iter().position(is_named) else {
                let text = format!("column \"{}\" does not exist", column.value);
                return Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, text));
            };
            quoted[at] = true;
        }
        Ok(quoted)
    }
}
