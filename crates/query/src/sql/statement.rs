//! Classifies a statement: one that returns rows, one that changes the session, or one that a read-only database
//! rejects.

use datafusion::sql::sqlparser::ast::{
    CloseCursor, DataType as SqlType, DiscardObject, Expr, Ident, ObjectName, ObjectNamePart, Query as SqlQuery, Set,
    Statement, Value,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::copy;
use crate::sql::copy::CopyForm;
use crate::sql::cursor;
use crate::sql::cursor::{Cursor, Fetch};

/// Treatment of a statement by the session.
pub(crate) enum Request {
    /// A query to plan and run.
    Rows,
    /// A query whose rows are sent as copy data.
    CopyOut(Box<SqlQuery>, CopyForm),
    /// Changes of settings (`None` for the default), with the command tag.
    Set(Vec<(String, Option<String>)>, &'static str),
    /// Display of a setting, or of all for `None`.
    Show(Option<String>),
    /// Start of a transaction.
    Begin,
    /// End of a transaction. A failed one is rolled back either way.
    End {
        /// Whether it ends by `COMMIT`.
        commit: bool,
        /// Whether the next one begins at once.
        chain: bool,
    },
    /// A savepoint created inside a transaction.
    Savepoint(String),
    /// A savepoint released.
    Release(String),
    /// A return to a savepoint, from which the transaction continues. Nothing was written, so nothing is undone.
    RollbackTo(String),
    /// A cursor declared over a query.
    Declare(Cursor, Box<SqlQuery>),
    /// Rows of a cursor fetched or passed.
    Fetch(Fetch),
    /// A cursor closed, or all for `None`.
    Close(Option<String>),
    /// A statement prepared under a name, with the types of its parameters.
    Prepare { name: String, types: Vec<SqlType>, statement: Box<Statement> },
    /// A prepared statement run with arguments.
    Execute { name: String, arguments: Vec<Expr> },
    /// Removal of a prepared statement, or of all for `None`.
    Deallocate(Option<String>),
    /// Reset of the entire session.
    Discard,
    /// Reset of all settings to their defaults.
    ResetAll,
    /// A statement accepted without effect, with its command tag.
    Nothing(&'static str),
    /// A rejected statement.
    Refused(QueryError),
}

/// Classifies a statement.
pub(crate) fn request(statement: &Statement) -> Request {
    match statement {
        Statement::Query(_) | Statement::Explain { .. } => Request::Rows,
        Statement::Set(set) => set_request(set),
        Statement::Reset(reset) => match &reset.reset {
            datafusion::sql::sqlparser::ast::Reset::ALL => Request::ResetAll,
            datafusion::sql::sqlparser::ast::Reset::ConfigurationParameter(name) => {
                Request::Set(vec![(plain(name), None)], "RESET")
            }
        },
        Statement::ShowVariable { variable } => {
            let name = variable.iter().map(|i| i.value.as_str()).collect::<Vec<_>>().join(" ").to_lowercase();
            match name.as_str() {
                "all" => Request::Show(None),
                "transaction isolation level" => Request::Show(Some("transaction_isolation".to_owned())),
                "time zone" => Request::Show(Some("timezone".to_owned())),
                _ => Request::Show(Some(name.replace(' ', "."))),
            }
        }
        Statement::StartTransaction { .. } => Request::Begin,
        Statement::Commit { chain, .. } => Request::End { commit: true, chain: *chain },
        Statement::Rollback { savepoint: Some(name), .. } => Request::RollbackTo(folded(name)),
        Statement::Rollback { chain, .. } => Request::End { commit: false, chain: *chain },
        Statement::Savepoint { name } => Request::Savepoint(folded(name)),
        Statement::ReleaseSavepoint { name } => Request::Release(folded(name)),
        Statement::Declare { stmts } => match stmts.as_slice() {
            [declare] => match cursor::declared(declare) {
                Ok((cursor, query)) => Request::Declare(cursor, query),
                Err(refused) => Request::Refused(refused),
            },
            _ => Request::Refused(refusal(statement)),
        },
        Statement::Fetch { name, direction, into, .. } => {
            Request::Fetch(cursor::fetched(name, direction, into.as_ref()))
        }
        Statement::Close { cursor: CloseCursor::All } => Request::Close(None),
        Statement::Close { cursor: CloseCursor::Specific { name } } => Request::Close(Some(folded(name))),
        Statement::Prepare { name, data_types, statement } => {
            Request::Prepare { name: folded(name), types: data_types.clone(), statement: statement.clone() }
        }
        Statement::Execute { name: Some(name), parameters, immediate: false, .. } => {
            let name = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect::<Vec<_>>().join(".");
            Request::Execute { name, arguments: parameters.clone() }
        }
        Statement::Deallocate { name, .. } => match name.quote_style {
            None if name.value.eq_ignore_ascii_case("all") => Request::Deallocate(None),
            _ => Request::Deallocate(Some(folded(name))),
        },
        Statement::Discard { object_type: DiscardObject::ALL } => Request::Discard,
        Statement::Discard { object_type } => Request::Nothing(match object_type {
            DiscardObject::PLANS => "DISCARD PLANS",
            DiscardObject::SEQUENCES => "DISCARD SEQUENCES",
            _ => "DISCARD TEMP",
        }),
        Statement::LISTEN { .. } => Request::Nothing("LISTEN"),
        Statement::UNLISTEN { .. } => Request::Nothing("UNLISTEN"),
        Statement::Copy { .. } => match copy::query_of(statement) {
            Ok((query, form)) => Request::CopyOut(query, form),
            Err(refused) => Request::Refused(refused),
        },
        other => Request::Refused(refusal(other)),
    }
}

fn set_request(set: &Set) -> Request {
    match set {
        Set::SingleAssignment { variable, values, .. } => {
            Request::Set(vec![(plain(variable), setting_value(values))], "SET")
        }
        Set::SetTimeZone { value, .. } => {
            Request::Set(vec![("timezone".to_owned(), setting_value(std::slice::from_ref(value)))], "SET")
        }
        Set::SetNames { charset_name, .. } => {
            Request::Set(vec![("client_encoding".to_owned(), Some(charset_name.value.clone()))], "SET")
        }
        Set::SetNamesDefault {} => Request::Set(vec![("client_encoding".to_owned(), None)], "SET"),
        Set::SetTransaction { modes, .. } => {
            use datafusion::sql::sqlparser::ast::{TransactionAccessMode, TransactionMode};
            let writes =
                modes.iter().any(|m| matches!(m, TransactionMode::AccessMode(TransactionAccessMode::ReadWrite)));
            if writes {
                Request::Refused(QueryError::read_only("a transaction in read-write mode"))
            } else {
                Request::Nothing("SET")
            }
        }
        Set::SetSessionParam(_) | Set::SetSessionAuthorization(_) | Set::SetRole { .. } => Request::Nothing("SET"),
        other => {
            let message = format!("SET {other} is not offered");
            Request::Refused(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

/// Returns a name as PostgreSQL reads it: in lower case, unless it is in quotes.
pub(crate) fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn plain(name: &ObjectName) -> String {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    };
    name.0.iter().map(part).collect::<Vec<_>>().join(".")
}

/// Returns the text of a setting's value, or `None` for `DEFAULT`.
fn setting_value(values: &[Expr]) -> Option<String> {
    let texts: Vec<String> = values
        .iter()
        .map(|value| match value {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
                other => other.to_string(),
            },
            Expr::Identifier(ident) => ident.value.clone(),
            other => other.to_string(),
        })
        .collect();
    match texts.as_slice() {
        [only] if only.eq_ignore_ascii_case("default") => None,
        _ => Some(texts.join(", ")),
    }
}

/// Returns the error for a statement that is not run here: a write, or an unsupported one.
pub(crate) fn refusal(statement: &Statement) -> QueryError {
    let text = statement.to_string();
    let words: Vec<String> = text.split_whitespace().take(2).map(str::to_uppercase).collect();
    let first = words.first().map_or("", String::as_str);
    let what = match first {
        "CREATE" | "DROP" | "ALTER" => words.join(" "),
        _ => first.to_owned(),
    };
    match first {
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE" | "CREATE" | "DROP" | "ALTER" | "COPY" | "GRANT"
        | "REVOKE" | "COMMENT" | "VACUUM" | "REINDEX" | "LOCK" | "REPLACE" | "LOAD" | "CALL" | "UNLOAD" => {
            QueryError::read_only(&what)
        }
        _ => QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not offered here")),
    }
}
