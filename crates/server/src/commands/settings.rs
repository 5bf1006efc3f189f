//! The configuration file of a command: the one it was given, or else the one in the working directory.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::CONFIG_FILE;
use crate::commands::client::Server;
use crate::config::{Config, ConfigError};

/// Returns the configuration file of a command: the one given by `--config`, or else [`CONFIG_FILE`] in the working
/// directory if it exists, which is logged. Returns `None` if there is neither.
pub fn file(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(file) = given {
        return Some(file.to_owned());
    }
    let default = PathBuf::from(CONFIG_FILE);
    // A file that cannot be examined counts as one, so that reading it says why.
    let exists = default.try_exists().unwrap_or(true);
    if exists {
        tracing::info!("using the configuration ./{CONFIG_FILE}, as no --config is given");
    }
    exists.then_some(default)
}

/// Returns the server that a command asks: the one given by `--server`, or else that of [`CONFIG_FILE`] in the working
/// directory, or else the default one. Its token is in the file given by `--auth-token-file`, or else in that of the
/// configuration.
///
/// # Errors
/// If the file cannot be read, or has mistakes.
pub fn server(address: Option<&str>, token: Option<&Path>) -> anyhow::Result<Server> {
    match address {
        Some(address) => Ok(named(address, token)),
        None => {
            let config = read(file(None).as_deref());
            let config = config.context("name the server with --server, or correct the configuration")?;
            Ok(server_of(&config, token))
        }
    }
}

/// Returns the server at an address. It gets only a token that was given for it.
pub fn named(address: &str, token: Option<&Path>) -> Server {
    Server { address: address.to_owned(), token: token.map(Path::to_owned) }
}

/// Returns the server with a configuration, which also names its token if none is given.
pub fn server_of(config: &Config, token: Option<&Path>) -> Server {
    let token = token.or(config.auth_token_file.as_deref());
    Server { address: config.http.listen.to_string(), token: token.map(Path::to_owned) }
}

/// Reads the configuration from a file, or returns the default one if there is no file.
///
/// # Errors
/// If the file cannot be read, or has mistakes.
pub fn read(file: Option<&Path>) -> Result<Config, ConfigError> {
    file.map_or_else(|| Ok(Config::default()), Config::read)
}
