//! Settings of one session: `SET`, `SHOW`, `current_setting`. Other sessions are not affected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{QueryError, sqlstate};
use crate::sql::value::zone;

/// Value of `server_version`: a version for which clients know the protocol. `version()` also names the actual server.
pub(crate) const SERVER_VERSION: &str = "16.6";

/// Settings of a session, shared with its `current_setting` function.
pub(crate) type SharedSettings = Arc<Mutex<Settings>>;

/// Maximum custom settings of a session (`SET a.b = …`).
const CUSTOM_SETTINGS_MAX: usize = 256;

/// Maximum bytes of a setting's name, and of its value.
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 4 << 10;

/// How a reader treats values that are marked bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkUse {
    /// Leaves them out.
    #[default]
    Apply,
    /// Reads them like all others.
    Ignore,
}

impl MarkUse {
    /// Returns the use with a name, as settings and parameters have it: `apply` or `ignore`.
    pub fn from_name(name: &str) -> Option<MarkUse> {
        match name {
            "apply" => Some(MarkUse::Apply),
            "ignore" => Some(MarkUse::Ignore),
            _ => None,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            MarkUse::Apply => "apply",
            MarkUse::Ignore => "ignore",
        }
    }
}

/// Name of the setting that says whether values marked bad are left out.
const MARKS: &str = "strongback.marks";
/// Prefix of the names of settings of Strongback, which no custom setting has.
const OWN: &str = "strongback.";

/// Settings by lower-case name.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: BTreeMap<String, String>,
    /// Time limit of each statement.
    pub(crate) statement_timeout: Option<Duration>,
    default_timeout: Option<Duration>,
    default_marks: MarkUse,
}

/// Settings that describe this server. `SET` cannot change them.
const FIXED: [(&str, &str); 14] = [
    ("server_version", SERVER_VERSION),
    ("server_version_num", "160006"),
    ("server_encoding", "UTF8"),
    ("integer_datetimes", "on"),
    ("in_hot_standby", "off"),
    ("is_superuser", "off"),
    ("transaction_read_only", "on"),
    ("block_size", "8192"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("lc_collate", "C"),
    ("lc_ctype", "C.UTF-8"),
    ("wal_level", "replica"),
    ("scram_iterations", "4096"),
];

/// Settings that clients set for their sessions, without any further effect.
const DEFAULTS: [(&str, &str); 23] = [
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_read_only", "on"),
    ("extra_float_digits", "1"),
    ("idle_in_transaction_session_timeout", "0"),
    ("intervalstyle", "postgres"),
    ("jit", "off"),
    ("lock_timeout", "0"),
    ("row_security", "on"),
    ("search_path", "public"),
    ("session_authorization", ""),
    ("standard_conforming_strings", "on"),
    ("timezone", "UTC"),
    ("transaction_isolation", "repeatable read"),
    ("transaction_deferrable", "off"),
    ("xmloption", "content"),
    ("work_mem", "4MB"),
    ("escape_string_warning", "on"),
    (MARKS, "apply"),
];

/// Settings whose changes the protocol reports to the client, in the spelling of clients.
pub(crate) const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

impl Settings {
    /// Creates the settings of a new session.
    pub(crate) fn new(statement_timeout: Option<Duration>, marks: MarkUse) -> Self {
        let all = FIXED.iter().chain(&DEFAULTS);
        let mut values: BTreeMap<String, String> = all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        values.insert(MARKS.to_owned(), marks.name().to_owned());
        Settings { values, statement_timeout, default_timeout: statement_timeout, default_marks: marks }
    }

    /// Wraps the settings for the functions of one session.
    pub(crate) fn shared(self) -> SharedSettings {
        Arc::new(Mutex::new(self))
    }

    /// Returns the value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        if name == "statement_timeout" {
            return Some(self.statement_timeout.map_or("0".to_owned(), |t| format!("{}ms", t.as_millis())));
        }
        self.values.get(&name).cloned()
    }

    /// Returns all settings, for `SHOW ALL`.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = self.values.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.push(("statement_timeout".to_owned(), self.get("statement_timeout").unwrap_or_default()));
        all.sort();
        all
    }

    /// Reports whether a setting describes the server, so that it cannot be set.
    pub(crate) fn is_fixed(name: &str) -> bool {
        FIXED.iter().any(|(fixed, _)| *fixed == name)
    }

    /// Returns the value that a setting has in a new session.
    pub(crate) fn default(name: &str) -> Option<&'static str> {
        FIXED.iter().chain(&DEFAULTS).find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Sets a setting, or resets it to its default for `None`.
    ///
    /// # Errors
    /// If there is no such setting, or it cannot be set, or not to this value.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), QueryError> {
        if name.len() > NAME_BYTES_MAX {
            let text = format!("the name of a setting has at most {NAME_BYTES_MAX} bytes");
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            let text = format!("the value of setting \"{name}\" has at most {VALUE_BYTES_MAX} bytes");
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        let name = name.to_ascii_lowercase();
        let invalid = |value: &str| {
            QueryError::new(sqlstate::INVALID_PARAMETER, format!("invalid value for parameter \"{name}\": \"{value}\""))
        };
        if Settings::is_fixed(&name) {
            if name.starts_with("transaction_") {
                return match value {
                    Some("on" | "true" | "yes" | "1") | None => Ok(()),
                    _ => Err(QueryError::read_only("a transaction in read-write mode")),
                };
            }
            return Err(QueryError::new("55P02", format!("parameter \"{name}\" cannot be changed")));
        }
        let default = DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match (name.as_str(), value) {
            ("statement_timeout", None) => self.statement_timeout = self.default_timeout,
            ("statement_timeout", Some(text)) => {
                let timeout = timeout(text).ok_or_else(|| invalid(text))?;
                // At most the limit that the server sets for any statement.
                let wanted = (!timeout.is_zero()).then_some(timeout);
                self.statement_timeout = match (wanted, self.default_timeout) {
                    (Some(wanted), Some(most)) => Some(wanted.min(most)),
                    (wanted, most) => wanted.or(most),
                };
            }
            ("client_encoding", Some(text))
                if !matches!(
                    text.to_ascii_lowercase().replace(['-', '_', '\'', '"', ' '], "").as_str(),
                    "utf8" | "unicode"
                ) =>
            {
                return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "client_encoding can only be UTF8"));
            }
            ("client_encoding", _) => {}
            ("timezone", Some(text)) if !is_utc(text) => {
                let exists = zone(text).is_ok() || is_hours(text) || text.eq_ignore_ascii_case("local");
                if !exists && !text.to_ascii_lowercase().starts_with("interval ") {
                    return Err(QueryError::new(
                        sqlstate::INVALID_PARAMETER,
                        format!("invalid value for parameter \"TimeZone\": \"{text}\""),
                    ));
                }
                return Err(QueryError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    format!("times are shown in UTC; time zone \"{text}\" is not offered"),
                ));
            }
            ("timezone", _) => {}
            ("bytea_output", Some("hex")) | ("datestyle", Some(_)) | ("intervalstyle", Some("postgres")) => {}
            ("bytea_output" | "intervalstyle", Some(text)) => return Err(invalid(text)),
            ("search_path", Some(text)) if !is_default_path(text) => {
                let text = format!("search_path has only public and pg_catalog, and not {text}");
                return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
                    .with_hint("Name tables of other schemas with their schema, as in strongback.gaps."));
            }
            (MARKS, Some(text)) if MarkUse::from_name(text).is_none() => {
                return Err(invalid(text).with_hint("It is apply (values marked bad are left out) or ignore."));
            }
            ("default_transaction_read_only", Some("off" | "false" | "no" | "0")) => {
                return Err(QueryError::read_only("a transaction in read-write mode"));
            }
            (_, Some(text)) if default.is_some() => {
                self.values.insert(name, text.to_owned());
            }
            (MARKS, None) => {
                self.values.insert(name, self.default_marks.name().to_owned());
            }
            (_, None) if default.is_some() => {
                self.values.insert(name, default.unwrap_or_default().to_owned());
            }
            (_, Some(_)) if name.starts_with(OWN) => {
                let text = format!("unrecognized configuration parameter \"{name}\"");
                return Err(QueryError::new(sqlstate::UNDEFINED_OBJECT, text)
                    .with_hint(format!("The settings whose names begin with {OWN} are {MARKS}.")));
            }
            // As in PostgreSQL, names with a dot are custom settings.
            (_, Some(text)) if name.contains('.') => {
                if self.values.len() >= FIXED.len() + DEFAULTS.len() + CUSTOM_SETTINGS_MAX {
                    return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many settings of one session"));
                }
                self.values.insert(name, text.to_owned());
            }
            (_, None) if name.contains('.') => {
                self.values.remove(&name);
            }
            _ => {
                return Err(QueryError::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"{name}\""),
                ));
            }
        }
        Ok(())
    }

    /// Returns how values that are marked bad are treated.
    pub(crate) fn marks(&self) -> MarkUse {
        self.values.get(MARKS).and_then(|name| MarkUse::from_name(name)).unwrap_or_default()
    }

    /// Resets all settings to their defaults.
    pub(crate) fn reset(&mut self) {
        *self = Settings::new(self.default_timeout, self.default_marks);
    }
}

fn is_utc(text: &str) -> bool {
    let text = text.trim_matches('\'');
    ["utc", "etc/utc", "gmt", "z", "zulu", "+00", "+00:00", "0", "default", "uct", "universal"]
        .contains(&text.to_ascii_lowercase().as_str())
}

/// Reports whether a list of schemas has only those whose tables are found without a schema.
fn is_default_path(text: &str) -> bool {
    let schema = |part: &str| part.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    text.split(',').all(|part| {
        matches!(schema(part).as_str(), "" | "public" | "pg_catalog" | "information_schema" | "$user" | "default")
    })
}

/// Reports whether a text is a displacement in hours, such as `-7` or `5.5`.
fn is_hours(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(|hours| hours.abs() < 16.0)
}

/// Parses `5000` (milliseconds), `5s`, `2min`, `1h`, `1d`, `250ms` or `10us`.
fn timeout(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit_ms = match text[digits..].trim() {
        "" | "ms" => 1.0,
        "us" => 1e-3,
        "s" => 1e3,
        "min" => 60e3,
        "h" => 3_600e3,
        "d" => 86_400e3,
        _ => return None,
    };
    let ms = number * unit_ms;
    (ms <= i32::MAX as f64).then(|| Duration::from_micros((ms * 1e3) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_spelled_as_in_postgresql() {
        assert_eq!(timeout("5000"), Some(Duration::from_secs(5)));
        assert_eq!(timeout(" 2min"), Some(Duration::from_secs(120)));
        assert_eq!(timeout("250 ms"), Some(Duration::from_millis(250)));
        assert_eq!(timeout("-1"), None);
        assert_eq!(timeout("soon"), None);
    }

    #[test]
    fn no_client_lets_a_statement_run_longer_than_the_server() {
        let mut settings = Settings::new(Some(Duration::from_secs(60)), MarkUse::Apply);
        for (asked, shown) in [("0", "60000ms"), ("1h", "60000ms"), ("1s", "1000ms"), ("90000", "60000ms")] {
            settings.set("statement_timeout", Some(asked)).unwrap();
            assert_eq!(settings.get("statement_timeout").as_deref(), Some(shown), "{asked}");
        }
        settings.set("statement_timeout", None).unwrap();
        assert_eq!(settings.statement_timeout, Some(Duration::from_secs(60)));
        let mut settings = Settings::new(None, MarkUse::Apply);
        settings.set("statement_timeout", Some("0")).unwrap();
        assert_eq!(settings.statement_timeout, None);
    }

    #[test]
    fn what_cannot_hold_is_refused_and_the_rest_is_kept() {
        let mut settings = Settings::new(None, MarkUse::Apply);
        settings.set("Statement_Timeout", Some("1s")).unwrap();
        assert_eq!(settings.get("statement_timeout").as_deref(), Some("1000ms"));
        assert_eq!(settings.set("client_encoding", Some("LATIN1")).unwrap_err().sqlstate, "0A000");
        assert_eq!(settings.set("server_version", Some("9")).unwrap_err().sqlstate, "55P02");
        assert_eq!(settings.set("search_path", Some("strongback, public")).unwrap_err().sqlstate, "0A000");
        settings.set("search_path", Some("\"$user\", public")).unwrap();
        assert_eq!(settings.set("no_such", Some("1")).unwrap_err().sqlstate, "42704");
        for misspelt in ["strongback.mark", "Strongback.Marks2"] {
            assert_eq!(settings.set(misspelt, Some("ignore")).unwrap_err().sqlstate, "42704");
        }
        settings.set("my.own", Some("x")).unwrap();
        assert_eq!(settings.get("my.own").as_deref(), Some("x"));
        settings.reset();
        assert_eq!(settings.get("my.own"), None);
        assert_eq!(settings.statement_timeout, None);
    }

    #[test]
    fn names_and_values_of_settings_have_a_bound() {
        let mut settings = Settings::new(None, MarkUse::Apply);
        let (name, value) = (format!("my.{}", "x".repeat(253)), "y".repeat(4_096));
        settings.set(&name, Some(&value)).unwrap();
        settings.set("application_name", Some(&value)).unwrap();
        for (name, value) in [
            (format!("{name}x"), "y".to_owned()),
            ("my.own".into(), format!("{value}y")),
            ("application_name".into(), format!("{value}y")),
        ] {
            assert_eq!(settings.set(&name, Some(&value)).unwrap_err().sqlstate, "54000", "{name}");
        }
        assert_eq!(settings.get("application_name"), Some(value));
    }

    #[test]
    fn settings_are_not_copied_into_rows_without_a_bound() {
        use datafusion::logical_expr::ScalarUDF;
        use datafusion::prelude::SessionContext;
        let mut settings = Settings::new(None, MarkUse::Apply);
        settings.set("my.own", Some(&"y".repeat(4_096))).unwrap();
        let context = SessionContext::new();
        context.register_udf(ScalarUDF::from(crate::system::function::CurrentSetting::new(settings.shared())));
        let run = |sql: &str| {
            let run = async { context.sql(sql).await?.collect().await };
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run)
        };
        let error =
            run("select current_setting('my.' || 'own' || left(v::text, 0)) from generate_series(1, 8000) g(v)");
        assert!(error.unwrap_err().to_string().contains("take more than 1048576 bytes"));
        run("select sum(length(current_setting('my.own'))) from generate_series(1, 8000) g(v)").unwrap();
    }
}
