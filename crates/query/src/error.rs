//! Query errors: a message for people and an SQLSTATE for programs.

use std::collections::HashSet;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use strongback_store::{PatternError, ScanError, TooCostly};

/// SQLSTATE codes in use (PostgreSQL, appendix A).
pub mod sqlstate {
    /// Bytes on the wire that are not a valid message.
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    /// An unsupported feature.
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    /// A number out of its type's range.
    pub const NUMERIC_OUT_OF_RANGE: &str = "22003";
    /// An invalid time.
    pub const INVALID_DATETIME: &str = "22007";
    /// A time out of range.
    pub const DATETIME_OVERFLOW: &str = "22008";
    /// A time zone displacement out of range.
    pub const INVALID_DISPLACEMENT: &str = "22009";
    /// Division by zero.
    pub const DIVISION_BY_ZERO: &str = "22012";
    /// An invalid argument of a function.
    pub const INVALID_PARAMETER: &str = "22023";
    /// A malformed regular expression.
    pub const INVALID_REGULAR_EXPRESSION: &str = "2201B";
    /// More than one row where one is allowed.
    pub const CARDINALITY_VIOLATION: &str = "21000";
    /// A NULL where none is allowed.
    pub const NULL_NOT_ALLOWED: &str = "22004";
    /// Text that is not a value of its type.
    pub const INVALID_TEXT: &str = "22P02";
    /// Bytes that are not a value of their type.
    pub const INVALID_BINARY: &str = "22P03";
    /// Any other invalid value.
    pub const DATA_EXCEPTION: &str = "22000";
    /// A missing value where one is required.
    pub const NOT_NULL_VIOLATION: &str = "23502";
    /// A write in a database that is read-only by design.
    pub const READ_ONLY: &str = "25006";
    /// A statement that cannot run in a transaction.
    pub const ACTIVE_TRANSACTION: &str = "25001";
    /// A statement that can only run in a transaction.
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    /// A statement in a failed transaction.
    pub const IN_FAILED_TRANSACTION: &str = "25P02";
    /// An unknown statement name.
    pub const INVALID_STATEMENT_NAME: &str = "26000";
    /// An unknown portal name.
    pub const INVALID_CURSOR_NAME: &str = "34000";
    /// An unknown savepoint.
    pub const INVALID_SAVEPOINT: &str = "3B001";
    /// A name that is already in use for a prepared statement.
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    /// A name that is already in use for a cursor.
    pub const DUPLICATE_CURSOR: &str = "42P03";
    /// A portal in a state in which it cannot do this.
    pub const NOT_IN_STATE: &str = "55000";
    /// A wrong password.
    pub const INVALID_PASSWORD: &str = "28P01";
    /// An unknown database.
    pub const INVALID_CATALOG_NAME: &str = "3D000";
    /// Invalid SQL.
    pub const SYNTAX_ERROR: &str = "42601";
    /// A column name found in two tables.
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    /// An unknown column.
    pub const UNDEFINED_COLUMN: &str = "42703";
    /// Incompatible types.
    pub const DATATYPE_MISMATCH: &str = "42804";
    /// An unknown function, or one that does not accept these arguments.
    pub const UNDEFINED_FUNCTION: &str = "42883";
    /// A name that matches several tables or columns.
    pub const AMBIGUOUS_NAME: &str = "42P09";
    /// An unknown setting.
    pub const UNDEFINED_OBJECT: &str = "42704";
    /// An unknown table.
    pub const UNDEFINED_TABLE: &str = "42P01";
    /// A parameter where none is allowed.
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    /// A parameter without a type or value.
    pub const INDETERMINATE_DATATYPE: &str = "42P18";
    /// Exhausted query memory.
    pub const OUT_OF_MEMORY: &str = "53200";
    /// A connection while all slots are in use.
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    /// A result or statement over a limit of this program.
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    /// A statement over a complexity limit.
    pub const TOO_COMPLEX: &str = "54001";
    /// A cancelled statement, or one that timed out.
    pub const QUERY_CANCELED: &str = "57014";
    /// A server shutdown.
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    /// A store that cannot accept data until it is mended or reopened.
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    /// A failed read from disk.
    pub const IO_ERROR: &str = "58030";
    /// Data that expired during the query, or a view held too long.
    pub const SNAPSHOT_TOO_OLD: &str = "72000";
    /// A block with a wrong checksum.
    pub const DATA_CORRUPTED: &str = "XX001";
    /// A defect in this program.
    pub const INTERNAL_ERROR: &str = "XX000";
}

/// Error of a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// Five-character code from [`sqlstate`].
    pub sqlstate: &'static str,
    /// Description, in one sentence.
    pub message: String,
    /// Suggested remedy, if known.
    pub hint: Option<String>,
}

impl QueryError {
    /// Creates an error from a code and a message.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        QueryError { sqlstate, message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the error for a query cancelled by its client.
    pub fn cancelled() -> Self {
        QueryError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
    }

    /// Returns the error for a query that ran longer than `statement_timeout`.
    pub fn timed_out() -> Self {
        QueryError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
    }

    /// Returns the error for a subquery per row that cannot be rewritten as a join.
    fn not_decorrelated() -> Self {
        QueryError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "a subquery that depends on the row around it must compare equal columns, and give one value by an aggregate",
        )
        .with_hint("Join with the table grouped by those columns, or look back with a window function.")
    }

    /// Returns the error for a client that did not read its rows.
    pub(crate) fn unread() -> Self {
        QueryError::new(sqlstate::QUERY_CANCELED, "canceling statement: its rows were not read")
    }

    /// Returns the error for a write to a read-only database.
    pub fn read_only(what: &str) -> Self {
        QueryError::new(sqlstate::READ_ONLY, format!("cannot execute {what}: this database is read-only"))
            .with_hint("Frames come in through the sources; SQL only reads.")
    }

    pub(crate) fn into_datafusion(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

impl From<TooCostly> for QueryError {
    fn from(error: TooCostly) -> Self {
        QueryError::new(sqlstate::INVALID_PARAMETER, error.to_string())
    }
}

impl From<PatternError> for QueryError {
    fn from(error: PatternError) -> Self {
        QueryError::new(sqlstate::INVALID_PARAMETER, error.to_string())
    }
}

impl From<ScanError> for QueryError {
    fn from(error: ScanError) -> Self {
        QueryError::new(scan_sqlstate(&error), error.to_string())
    }
}

impl From<ParserError> for QueryError {
    fn from(error: ParserError) -> Self {
        let message = match error {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
            ParserError::RecursionLimitExceeded => {
                return QueryError::new(sqlstate::TOO_COMPLEX, "the statement is nested too deeply");
            }
        };
        QueryError::new(sqlstate::SYNTAX_ERROR, format!("syntax error: {message}"))
    }
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        let code = datafusion_sqlstate(&error);
        match find_own(&error) {
            Some(own) => own,
            None => {
                let text = readable(&error);
                let left_over = ["OuterReferenceColumn", "expression ScalarSubquery", "orrelated scalar subquery"];
                if left_over.iter().any(|word| text.contains(word)) {
                    return QueryError::not_decorrelated();
                }
                match meant_column(&error) {
                    Some(meant) => QueryError::new(code, text).with_hint(format!("Did you mean {meant}?")),
                    None => QueryError::new(code, text),
                }
            }
        }
    }
}

fn scan_sqlstate(error: &ScanError) -> &'static str {
    match error {
        ScanError::Expired | ScanError::BlobExpired { .. } | ScanError::ViewTooOld => sqlstate::SNAPSHOT_TOO_OLD,
        ScanError::Damaged { .. } => sqlstate::DATA_CORRUPTED,
        ScanError::Io { .. } => sqlstate::IO_ERROR,
        ScanError::Elements { .. } => sqlstate::FEATURE_NOT_SUPPORTED,
    }
}

/// Finds an error of ours that was passed through DataFusion.
fn find_own(error: &DataFusionError) -> Option<QueryError> {
    match error {
        DataFusionError::External(inner) => own_cause(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            datafusion::arrow::error::ArrowError::ExternalError(inner) => own_cause(inner.as_ref()),
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => find_own(inner),
        DataFusionError::Shared(inner) => find_own(inner),
        DataFusionError::Collection(all) => all.iter().find_map(find_own),
        _ => None,
    }
}

fn own_cause(error: &(dyn std::error::Error + 'static)) -> Option<QueryError> {
    if let Some(own) = error.downcast_ref::<QueryError>() {
        return Some(own.clone());
    }
    if let Some(scan) = error.downcast_ref::<ScanError>() {
        return Some(QueryError::new(scan_sqlstate(scan), scan.to_string()));
    }
    error.downcast_ref::<DataFusionError>().and_then(find_own)
}

fn datafusion_sqlstate(error: &DataFusionError) -> &'static str {
    match error {
        DataFusionError::SQL(..) => sqlstate::SYNTAX_ERROR,
        DataFusionError::NotImplemented(_) => sqlstate::FEATURE_NOT_SUPPORTED,
        DataFusionError::ResourcesExhausted(_) => sqlstate::OUT_OF_MEMORY,
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } if unread_table(field, valid_fields).is_some() => {
                sqlstate::UNDEFINED_TABLE
            }
            SchemaError::FieldNotFound { .. } => sqlstate::UNDEFINED_COLUMN,
            SchemaError::AmbiguousReference { .. } => sqlstate::AMBIGUOUS_COLUMN,
            _ => "42701",
        },
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::DivideByZero => sqlstate::DIVISION_BY_ZERO,
            ArrowError::ArithmeticOverflow(_) => sqlstate::NUMERIC_OUT_OF_RANGE,
            ArrowError::CastError(text) => cast_sqlstate(text),
            ArrowError::ParseError(text) if text.starts_with("Invalid timezone") => sqlstate::INVALID_PARAMETER,
            ArrowError::ParseError(text) => cast_sqlstate(text),
            ArrowError::ComputeError(text) if text.contains("verflow") => sqlstate::NUMERIC_OUT_OF_RANGE,
            _ => sqlstate::DATA_EXCEPTION,
        },
        DataFusionError::Plan(text) => plan_sqlstate(text),
        DataFusionError::Execution(text) => match text.as_str() {
            t if t.contains("ivide by zero") => sqlstate::DIVISION_BY_ZERO,
            t if t.contains("verflow") || t.contains("out of range") => sqlstate::NUMERIC_OUT_OF_RANGE,
            t if t.contains("parsing timestamp") || t.contains("Error parsing") => sqlstate::INVALID_DATETIME,
            t if t.contains("laceholder") => sqlstate::INDETERMINATE_DATATYPE,
            _ => sqlstate::DATA_EXCEPTION,
        },
        DataFusionError::Configuration(_) => sqlstate::INVALID_PARAMETER,
        DataFusionError::IoError(_) => sqlstate::IO_ERROR,
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => datafusion_sqlstate(inner),
        DataFusionError::Shared(inner) => datafusion_sqlstate(inner),
        DataFusionError::Collection(all) => all.first().map_or(sqlstate::INTERNAL_ERROR, datafusion_sqlstate),
        DataFusionError::External(inner) if inner.is::<regex::Error>() => sqlstate::INVALID_REGULAR_EXPRESSION,
        DataFusionError::External(inner) => {
            inner.downcast_ref::<DataFusionError>().map_or(sqlstate::INTERNAL_ERROR, datafusion_sqlstate)
        }
        _ => sqlstate::INTERNAL_ERROR,
    }
}

fn cast_sqlstate(text: &str) -> &'static str {
    if text.contains("imestamp") || text.contains("Date") || text.contains("date") || text.contains("nterval") {
        sqlstate::INVALID_DATETIME
    } else if text.contains("verflow") || text.contains("out of range") || text.contains("too large") {
        sqlstate::NUMERIC_OUT_OF_RANGE
    } else {
        sqlstate::INVALID_TEXT
    }
}

/// Derives a code from the text of a planning error, because DataFusion's planner reports most errors as free text.
fn plan_sqlstate(text: &str) -> &'static str {
    let lower = text.to_ascii_lowercase();
    if (lower.contains("table") || lower.contains("relation")) && lower.contains("not found") {
        sqlstate::UNDEFINED_TABLE
    } else if lower.contains("invalid function") || lower.contains("no function matches") || lower.contains("function")
    {
        sqlstate::UNDEFINED_FUNCTION
    } else if lower.contains("ddl not supported")
        || lower.contains("dml not supported")
        || lower.contains("copy to not")
        || lower.contains("statement not supported")
    {
        sqlstate::READ_ONLY
    } else if lower.contains("placeholder") {
        sqlstate::INDETERMINATE_DATATYPE
    } else if lower.contains("group by") {
        "42803"
    } else if lower.contains("coerc") || lower.contains("cast") || lower.contains("type") {
        sqlstate::DATATYPE_MISMATCH
    } else {
        sqlstate::SYNTAX_ERROR
    }
}

/// Returns the table of a column that does not exist, if none of the columns is one of that table.
fn unread_table<'a>(field: &'a Column, valid_fields: &[Column]) -> Option<&'a str> {
    let table = field.relation.as_ref()?.table();
    let is_read = |known: &Column| known.relation.as_ref().is_some_and(|of| of.table() == table);
    (!valid_fields.iter().any(is_read)).then_some(table)
}

/// Returns the column that is spelled most similarly to one that does not exist.
fn meant_column(error: &DataFusionError) -> Option<&str> {
    let (field, valid_fields) = match error {
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => (field, valid_fields),
            _ => return None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => return meant_column(inner),
        DataFusionError::Shared(inner) => return meant_column(inner),
        DataFusionError::Collection(all) => return all.first().and_then(meant_column),
        _ => return None,
    };
    let of_table = |known: &&Column| field.relation.is_none() || known.relation == field.relation;
    let known = valid_fields.iter().filter(of_table).take(NAMES_COMPARED_MAX).map(|known| known.name.as_str());
    nearest(&field.name, known)
}

/// Maximum names compared with a misspelt one.
pub(crate) const NAMES_COMPARED_MAX: usize = 10_000;

/// Maximum bytes of a misspelt name: a longer one is no typing error, and comparing it takes long.
const NAME_BYTES_MAX: usize = 128;

/// Returns the name most similar to a misspelt one, if any is.
pub(crate) fn nearest<'a>(asked: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (asked, length) = (asked.to_lowercase(), asked.chars().count());
    if asked.len() > NAME_BYTES_MAX {
        return None;
    }
    let most = 2.max(length / 3).min(length.saturating_sub(1));
    let near = known.filter(|known| known.chars().count().abs_diff(length) <= most);
    let near = near.map(|known| (strsim::damerau_levenshtein(&asked, &known.to_lowercase()), known));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| known)
}

/// Returns the innermost message, without DataFusion's prefixes and appended help.
fn readable(error: &DataFusionError) -> String {
    match error {
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => {
                if let Some(table) = unread_table(field, valid_fields) {
                    return format!("missing FROM-clause entry for table \"{table}\"");
                }
                let mut seen = HashSet::new();
                let mut names: Vec<&str> = valid_fields.iter().map(|f| f.name.as_str()).collect();
                names.retain(|name| seen.insert(*name));
                if names.is_empty() {
                    return format!("column \"{}\" does not exist", field.name);
                }
                let more = names.len().saturating_sub(20);
                names.truncate(20);
                let mut list = names.join(", ");
                if more > 0 {
                    list.push_str(&format!(" and {more} more"));
                }
                format!("column \"{}\" does not exist; there are {list}", field.name)
            }
            other => other.to_string(),
        },
        DataFusionError::Diagnostic(_, inner) => readable(inner),
        // The rule that found an error says nothing to its reader.
        DataFusionError::Context(text, inner) if is_rule(text) => readable(inner),
        DataFusionError::Context(text, inner) => format!("{text}: {}", readable(inner)),
        DataFusionError::Shared(inner) => readable(inner),
        DataFusionError::Collection(all) if !all.is_empty() => readable(&all[0]),
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::ResourcesExhausted(text)
        | DataFusionError::Configuration(text)
        | DataFusionError::Internal(text) => first_line(text),
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::ParseError(text)
            | ArrowError::CastError(text)
            | ArrowError::ComputeError(text)
            | ArrowError::InvalidArgumentError(text) => first_line(text),
            other => first_line(&other.to_string()),
        },
        DataFusionError::SQL(parser, _) => first_line(&parser.to_string()),
        DataFusionError::External(inner) => first_line(&inner.to_string()),
        other => first_line(&other.to_string()),
    }
}

/// Reports whether the context of an error names a rule of the planner.
fn is_rule(context: &str) -> bool {
    context.starts_with("Optimizer rule") || context == "type_coercion" || context.starts_with("Analyzer rule")
}

/// Cuts a message before the help that DataFusion appends for its own developers, and its prefixes of nested messages.
fn first_line(text: &str) -> String {
    let ends = ["\n\nbacktrace", "\nThis issue was likely caused by a bug", ". This issue was likely caused by a bug"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let mut text = text[..end].trim().to_owned();
    for prefix in ["Error during planning: ", "Execution error: ", "Internal error: "] {
        text = text.replace(prefix, "");
    }
    text
}
