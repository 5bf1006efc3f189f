//! Classifies a statement: one that returns rows, one that changes the session, or one that a read-only database
//! rejects.

use datafusion::sql::sqlparser::ast::{Expr, ObjectName, ObjectNamePart, Query as SqlQuery, Set, Statement, Value};

use crate::error::{QueryError, sqlstate};
use crate::sql::copy;
use crate::sql::copy::CopyForm;

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
    },
    /// A savepoint created, released or rolled back to inside a transaction. Nothing was written, so nothing is undone.
    Savepoint(&'static str),
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
        Statement::Commit { .. } => Request::End { commit: true },
        Statement::Rollback { savepoint: Some(_), .. } => Request::Savepoint("ROLLBACK"),
        Statement::Rollback { .. } => Request::End { commit: false },
        Statement::Savepoint { .. } => Request::Savepoint("SAVEPOINT"),
        Statement::ReleaseSavepoint { .. } => Request::Savepoint("RELEASE"),
        Statement::Deallocate { name, .. } => match name.value.to_lowercase().as_str() {
            "all" => Request::Deallocate(None),
            _ => Request::Deallocate(Some(name.value.clone())),
        },
        Statement::Discard { .. } => Request::Discard,
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
        "DECLARE" | "FETCH" | "CLOSE" | "MOVE" => {
            QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "server-side cursors in SQL are not offered")
                .with_hint("The extended protocol fetches a portal in parts.")
        }
        _ => QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not offered here")),
    }
}
