//! `strongback run`: named runs of a store, and their release.
//!
//! A store that no server uses is opened; of one that is in use its server is asked.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use strongback_store::inspect::{self, Depth};
use strongback_store::{OpenError, RunInfo, Store};

use crate::cli::{RunArgs, RunCommand};
use crate::client;
use crate::clock::now_ns;
use crate::config::Config;
use crate::outcome::Outcome;

/// A run as REST shows it.
pub fn card(run: &RunInfo) -> Value {
    json!({
        "name": run.name,
        "protected": run.protected,
        "streams": run.streams,
        "segments": run.segments,
        "bytes": run.size_bytes.to_string(),
        "time": run.time.map(|(from, to)| [from.to_string(), to.to_string()]),
    })
}

/// Lists runs, or releases one.
///
/// # Errors
/// If there is no such run, or neither the folder nor its server can be had.
pub fn run(command: &RunCommand) -> anyhow::Result<Outcome> {
    let (args, release) = match command {
        RunCommand::List { args } => (args, None),
        RunCommand::Release { name, args } => (args, Some(name.as_str())),
    };
    let config = match &args.config {
        Some(file) => Config::read(file)?,
        None => Config::default(),
    };
    if let Some(server) = &args.server {
        return from_server(server, args, release);
    }
    let dir = args.data.as_ref().unwrap_or(&config.data_dir);
    if !dir.is_dir() {
        bail!("{}: no such folder", dir.display());
    }
    let store = match Store::open(dir, config.store_options(), now_ns()) {
        Ok(store) => store,
        Err(OpenError::InUse { path }) => {
            let server = config.http.listen.to_string();
            let asked = is_server_of(dir, &server, args).and_then(|()| from_server(&server, args, release));
            return asked.with_context(|| {
                format!("{path} is in use; say which server uses it with --server or its --config ({server} was asked)")
            });
        }
        Err(error) => return Err(error.into()),
    };
    let done = from_store(&store, release);
    store.close(now_ns()).context("the store did not close")?;
    done
}

fn from_store(store: &Store, release: Option<&str>) -> anyhow::Result<Outcome> {
    match release {
        None => print(&store.runs().iter().map(card).collect::<Vec<_>>()),
        Some(name) => {
            if store.release_run(name, now_ns())?.is_none() {
                bail!("there is no run {name:?}; `strongback run list` names those there are");
            }
            store.commit(now_ns()).context("the release is not written down")?;
            println!("{name}: released");
        }
    }
    Ok(Outcome::Done)
}

/// Whether it is the server of this folder that answers there.
fn is_server_of(dir: &Path, server: &str, args: &RunArgs) -> anyhow::Result<()> {
    let found = inspect::inspect(dir, Depth::Footers)?;
    let health = client::ask(server, "GET", "/api/health", args.auth_token_file.as_deref())?.json()?;
    let origin = found.identity.map(|identity| format!("{:032x}", identity.origin));
    if origin.as_deref() != health["origin"].as_str() {
        bail!("the server at {server} has another store, {}", health["store"]["path"]);
    }
    Ok(())
}

fn from_server(server: &str, args: &RunArgs, release: Option<&str>) -> anyhow::Result<Outcome> {
    let token = args.auth_token_file.as_deref();
    match release {
        None => {
            let answer = client::ask(server, "GET", "/api/runs", token)?.json()?;
            print(answer["runs"].as_array().map(Vec::as_slice).unwrap_or_default());
        }
        Some(name) => {
            let path = format!("/api/runs/{}/release", client::percent_encoded(name));
            client::ask(server, "POST", &path, token)?.json()?;
            println!("{name}: released");
        }
    }
    Ok(Outcome::Done)
}

fn print(runs: &[Value]) {
    println!("{:10} {:>8} {:>9} {:>14}  run", "state", "streams", "segments", "bytes");
    for run in runs {
        let state = if run["protected"] == true { "protected" } else { "released" };
        let text = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
        println!("{state:10} {:>8} {:>9} {:>14}  {}", run["streams"], run["segments"], text("bytes"), text("name"));
    }
}
