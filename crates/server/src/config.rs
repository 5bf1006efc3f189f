//! `strongback.toml`: read, checked, and compiled once into typed parts.
//!
//! ```text
//! text ─ mistakes ─> ConfigFile (file): as written, by serde ─ compile ─> Config: what the server uses
//! ```
//!
//! A pattern, rule, expression or layout of the file is parsed in `compile` and nowhere else. All mistakes are reported,
//! each with its line and key. Unknown keys are errors that name the nearest valid key. No file is needed.

mod compile;
mod file;
mod listen;
mod mistakes;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strongback_sources::layout::Layouts;
use strongback_sources::udp::overlap;
use strongback_store::StoreOptions;

use crate::alarms::limits::rule::Rule;
use crate::alarms::webhook::table::Receiver;
use crate::archives::table::Archive;
use crate::derived::definition::Definition;
use crate::ingest::ChannelNote;
use crate::ingest::retention::Retention;

pub use file::{Flight, Http, Ilp, LimitsTable, LiveTable, Pg, QueryTable, StoreTable, View};
pub use listen::{Listen, address};
pub use mistakes::Mistake;

/// A valid configuration. The keys of a file are documented at [`file::ConfigFile`]; a program that needs no file
/// changes the default.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the store.
    pub data_dir: PathBuf,
    /// Max time between commits in milliseconds.
    pub commit_interval_ms: u64,
    /// File with the token that clients must present.
    pub auth_token_file: Option<PathBuf>,
    /// Whether to listen beyond loopback without a token.
    pub insecure_listen: bool,
    /// HTTP.
    pub http: Http,
    /// Line protocol over TCP.
    pub ilp: Ilp,
    /// PostgreSQL wire.
    pub pg: Pg,
    /// Arrow Flight SQL.
    pub flight: Flight,
    /// The store.
    pub store: StoreTable,
    /// Retention groups.
    pub retention: Vec<Retention>,
    /// Live clients.
    pub live: LiveTable,
    /// SQL, history and export.
    pub query: QueryTable,
    /// Memory limits for clients.
    pub limits: LimitsTable,
    /// Packet receivers and PLCs.
    pub source: Layouts,
    /// Units and descriptions of channels that have none of their own.
    pub channel: Vec<ChannelNote>,
    /// Limits of channels.
    pub limit: Vec<Rule>,
    /// Receivers of alarms over HTTP.
    pub webhook: Vec<Receiver>,
    /// Copies of stored data in other databases.
    pub archive: Vec<Archive>,
    /// Derived channels, each after those it depends on.
    pub derived: Vec<Arc<Definition>>,
    /// Configured layout of the page.
    pub view: Option<View>,
}

/// Error of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An unreadable file.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
    /// An unreadable token.
    #[error("auth_token_file = {path:?}: cannot read the token: {source}")]
    Token {
        /// Path of the file.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
    /// Invalid TOML, unknown keys, or invalid values.
    #[error("{}", mistakes.iter().map(|m| format!("{path}:{m}")).collect::<Vec<_>>().join("\n"))]
    Wrong {
        /// Path of the file.
        path: String,
        /// All mistakes, by line.
        mistakes: Vec<Mistake>,
    },
    /// Settings that are impossible on this machine.
    #[error("{}", wrong.iter().map(|w| format!("{path}: {w}")).collect::<Vec<_>>().join("\n"))]
    Here {
        /// Path of the file.
        path: String,
        /// The settings, as sentences.
        wrong: Vec<String>,
    },
    /// A value that is invalid together with others, with a flag or with a file.
    #[error("{key}: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// Description of the mistake.
        message: String,
    },
    /// An unprotected listener beyond loopback.
    #[error(
        "{key} = {address} listens beyond this machine without a token: set auth_token_file, or pass \
         --insecure-listen if the network is trusted"
    )]
    Insecure {
        /// The key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Two listeners of which only one can be bound.
    #[error("{key} = {address} overlaps {other_key} = {other}: give it another port")]
    SharedPort {
        /// The key of the second listener.
        key: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The key of the first listener.
        other_key: &'static str,
        /// Its address.
        other: SocketAddr,
    },
    /// Line protocol over TCP beyond loopback, which cannot carry a token.
    #[error(
        "ilp.listen = {address} listens beyond this machine, and line protocol over TCP carries no token: use HTTP \
         (POST /write with the token), set ilp.token_required, or pass --insecure-listen if the network is trusted"
    )]
    InsecureIlp {
        /// The address.
        address: SocketAddr,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, or has mistakes; all of them are reported.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        Config::parse(&text, &name)
    }

    /// Parses the text of a configuration file. Checks everything but listeners, because the command line may change
    /// them; see [`Config::check_listens`].
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &str) -> Result<Config, ConfigError> {
        mistakes::read(text).map_err(|mistakes| ConfigError::Wrong { path: path.to_owned(), mistakes })
    }

    /// Reads a configuration file as [`Config::read`] does, and checks it as if no flag changed it.
    ///
    /// # Errors
    /// As [`Config::read`], including errors of listeners.
    pub fn read_alone(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        let config = Config::parse(&text, &name)?;
        let found = config.listen_errors().into_iter();
        let mistakes: Vec<Mistake> =
            found.map(|error| mistakes::locate(&text, &error.keys(), error.to_string())).collect();
        match mistakes.is_empty() {
            true => Ok(config),
            false => Err(ConfigError::Wrong { path: name, mistakes }),
        }
    }

    /// Refuses listeners that overlap, and unprotected ones beyond loopback. Packet sources are exempt from the latter:
    /// they answer nothing, and a multicast group is on the network by its nature.
    ///
    /// # Errors
    /// The first such listener.
    pub fn check_listens(&self) -> Result<(), ConfigError> {
        self.listen_errors().into_iter().next().map_or(Ok(()), Err)
    }

    /// Refuses a folder of the store that is empty text or a file.
    ///
    /// # Errors
    /// The reason.
    pub fn check_data_dir(&self) -> Result<(), ConfigError> {
        let dir = &self.data_dir;
        let message = if dir.as_os_str().is_empty() {
            "it is empty".to_owned()
        } else if dir.exists() && !dir.is_dir() {
            format!("{}: not a folder; a store in a single file can only be used by `strongback store`", dir.display())
        } else {
            return Ok(());
        };
        Err(ConfigError::Value { key: "data_dir", message })
    }

    fn listen_errors(&self) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let listens = [
            ("http.listen", Some(self.http.listen)),
            ("ilp.listen", self.ilp.listen.address()),
            ("pg.listen", self.pg.listen.address()),
            ("flight.listen", self.flight.listen.address()),
        ];
        let listens: Vec<(&'static str, SocketAddr)> =
            listens.into_iter().filter_map(|(key, address)| Some((key, address?))).collect();
        if self.ilp.token_required && self.auth_token_file.is_none() {
            let message = "there is no token: set auth_token_file".to_owned();
            errors.push(ConfigError::Value { key: "ilp.token_required", message });
        }
        let beyond = listens.iter().filter(|(_, address)| !address.ip().is_loopback() && !self.insecure_listen);
        for (key, address) in beyond.copied() {
            match key {
                "ilp.listen" if !self.ilp.token_required => errors.push(ConfigError::InsecureIlp { address }),
                "http.listen" | "pg.listen" | "flight.listen" if self.auth_token_file.is_none() => {
                    errors.push(ConfigError::Insecure { key, address });
                }
                _ => {}
            }
        }
        for (at, (key, address)) in listens.iter().copied().enumerate() {
            if let Some((other_key, other)) = listens[..at].iter().find(|(_, other)| overlap(*other, address)).copied()
            {
                errors.push(ConfigError::SharedPort { key, address, other_key, other });
            }
        }
        errors
    }

    /// Reads the token of `auth_token_file`, without surrounding white space.
    ///
    /// # Errors
    /// If the file cannot be read or holds no token of at least 16 characters.
    pub fn token(&self) -> Result<Option<String>, ConfigError> {
        let Some(file) = &self.auth_token_file else { return Ok(None) };
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Token { path: path.clone(), source })?;
        let token = text.trim();
        if token.len() < 16 || token.contains(char::is_whitespace) {
            let message = format!("{path}: the token must be one word of at least 16 characters");
            return Err(ConfigError::Value { key: "auth_token_file", message });
        }
        Ok(Some(token.to_owned()))
    }

    /// Returns the options the store is opened with.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            log_bytes: self.store.log_mib << 20,
            max_bytes: self.store.max_gib.map(|gib| (gib * (1u64 << 30) as f64) as u64),
            max_age: self.store.max_age_days.map(|days| Duration::from_secs_f64((days * 86_400.0).min(1e9))),
            clock_confirm: Duration::from_secs(self.store.clock_confirm_s),
            max_streams: self.store.max_streams,
            open_bytes: self.store.open_mib << 20,
            max_future: Duration::from_secs(self.store.max_future_s),
            retention: self.retention.iter().map(|retention| retention.group.clone()).collect(),
            ..StoreOptions::default()
        }
    }
}

impl ConfigError {
    /// Returns the keys of the file that the error is about, the one to be changed first.
    fn keys(&self) -> Vec<&'static str> {
        match self {
            ConfigError::Value { key, .. } => vec![key],
            ConfigError::Insecure { key, .. } => vec![key],
            ConfigError::InsecureIlp { .. } => vec!["ilp.listen"],
            ConfigError::SharedPort { key, other_key, .. } => vec![key, other_key],
            ConfigError::Token { .. } => vec!["auth_token_file"],
            ConfigError::Read { .. } | ConfigError::Wrong { .. } | ConfigError::Here { .. } => Vec::new(),
        }
    }
}
