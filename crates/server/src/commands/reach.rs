//! Location of stored data for a command: a folder that no server uses, or a running server.

use std::path::Path;

use anyhow::{Context, bail};
use strongback_store::inspect::{self, Depth};
use strongback_store::{OpenError, Store};

use crate::commands::client::Server;
use crate::commands::{client, settings};
use crate::config::Config;
use crate::process::clock::now_ns;

/// The flags of a command that say where its data is.
#[derive(Clone, Copy, Debug)]
pub struct Flags<'a> {
    /// Configuration file, for the folder and the address of its server.
    pub config: Option<&'a Path>,
    /// `--data`.
    pub data: Option<&'a Path>,
    /// `--server`.
    pub server: Option<&'a str>,
    /// `--auth-token-file`.
    pub token: Option<&'a Path>,
    /// Whether the command writes. Otherwise nothing in a folder is changed, so it may also be a copy, or on read-only
    /// media.
    pub writes: bool,
}

/// The place where data was found.
pub enum DataPlace {
    /// A store, now open.
    Folder(Box<(Store, Config)>),
    /// A running server.
    Server(Server),
}

/// Finds the data of a command: at the given server, else in the folder, or at its server if one uses it. If no folder
/// was given and the default one does not exist, the server at the default address is used.
///
/// # Errors
/// If there is neither a store nor a server, or the store cannot be opened.
pub fn find(flags: &Flags<'_>) -> anyhow::Result<DataPlace> {
    if let Some(server) = flags.server {
        return Ok(DataPlace::Server(settings::named(server, flags.token)));
    }
    let config = settings::read(flags.config)?;
    let dir = flags.data.unwrap_or(&config.data_dir);
    let server = settings::server_of(&config, flags.token);
    if !dir.exists() {
        if flags.data.is_some() {
            bail!("{}: no such folder", dir.display());
        }
        client::ask(&server, "GET", "/ping").with_context(|| {
            format!(
                "{}: no such folder; name the folder of the store with --data, or its server with --server",
                dir.display()
            )
        })?;
        return Ok(DataPlace::Server(server));
    }
    let options = config.store_options();
    let opened =
        if flags.writes { Store::open(dir, options, now_ns()) } else { Store::open_read_only(dir, options, now_ns()) };
    match opened {
        Ok(store) => Ok(DataPlace::Folder(Box::new((store, config)))),
        Err(OpenError::InUse { path }) => {
            check_server_of(dir, &server).with_context(|| {
                let asked = &server.address;
                format!("{path} is in use; say which server uses it with --server or its --config ({asked} was asked)")
            })?;
            Ok(DataPlace::Server(server))
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that the server at this address uses this folder.
fn check_server_of(dir: &Path, server: &Server) -> anyhow::Result<()> {
    let found = inspect::inspect(dir, Depth::Footers)?;
    let health = client::ask(server, "GET", "/api/health")?.json()?;
    let origin = found.identity.map(|identity| format!("{:032x}", identity.origin));
    if origin.as_deref() != health["origin"].as_str() {
        bail!("the server at {} has another store, {}", server.address, health["store"]["path"]);
    }
    Ok(())
}
