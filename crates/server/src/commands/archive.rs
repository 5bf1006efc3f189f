//! `strongback archive`: lists, adds, removes, pauses, resumes and backfills the followers of a running server.

use anyhow::Context as _;
use serde_json::{Map, Value};
use strongback_archive::http;
use strongback_sources::instant;

use crate::cli::{AddArgs, ArchiveCommand, PlaybackArgs};
use crate::commands::client::{self, text};
use crate::commands::outcome::Outcome;
use crate::commands::settings;

/// Sends a command to the server and prints the resulting state.
///
/// # Errors
/// If the server refuses, or none answers.
pub fn run(command: &ArchiveCommand) -> anyhow::Result<Outcome> {
    match command {
        ArchiveCommand::List { args } => {
            let answer = ask(args, "GET", "/api/followers")?;
            let followers = answer["followers"].as_array().map(Vec::as_slice).unwrap_or_default();
            if followers.is_empty() {
                println!(
                    "there are no archives; `strongback archive add` or [[archive]] in the configuration makes one"
                );
            }
            followers.iter().for_each(|follower| println!("{}", lines(follower)));
        }
        ArchiveCommand::Add(new) => add(new)?,
        ArchiveCommand::Remove { name, args } => {
            ask(args, "DELETE", &path(name))?;
            println!("{name}  removed");
        }
        ArchiveCommand::Backfill { name, from, args } => {
            set(args, name, &format!("backfill?from={}", client::percent_encoded(from)))?;
        }
        ArchiveCommand::Pause { name, args } => set(args, name, "pause")?,
        ArchiveCommand::Resume { name, args } => set(args, name, "resume")?,
    }
    Ok(Outcome::Done)
}

fn add(new: &AddArgs) -> anyhow::Result<()> {
    let mut keys = Map::new();
    keys.insert("target".to_owned(), Value::String(new.target.clone()));
    keys.insert("url".to_owned(), Value::String(new.url.clone()));
    if !new.channels.is_empty() {
        keys.insert("channels".to_owned(), new.channels.clone().into());
    }
    for (key, file) in [("password", &new.password_file), ("token", &new.token_file)] {
        if let Some(file) = file {
            keys.insert(key.to_owned(), Value::String(http::secret(file).map_err(anyhow::Error::msg)?));
        }
    }
    if let Some(file) = &new.ca_file {
        let pem = http::read(file).map_err(anyhow::Error::msg)?;
        keys.insert("ca".to_owned(), Value::String(String::from_utf8(pem).context("ca_file")?));
    }
    for setting in &new.settings {
        let (key, value) = setting.split_once('=').with_context(|| format!("--set {setting}: it has no '='"))?;
        // `from=now` is a text, `interval_ms=1000` a number.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        keys.insert(key.trim().to_owned(), value);
    }
    let server = settings::server(new.args.server.as_deref(), new.args.auth_token_file.as_deref())?;
    let body = Value::Object(keys).to_string();
    let answer = client::ask_with(&server, "PUT", &path(&new.name), &body)?.json()?;
    println!("{}", lines(&answer["follower"]));
    Ok(())
}

fn path(name: &str) -> String {
    format!("/api/followers/{}", client::percent_encoded(name))
}

fn set(args: &PlaybackArgs, name: &str, word: &str) -> anyhow::Result<()> {
    let answer = ask(args, "POST", &format!("{}/{word}", path(name)))?;
    println!("{}", lines(&answer["follower"]));
    Ok(())
}

fn ask(args: &PlaybackArgs, method: &str, path: &str) -> anyhow::Result<Value> {
    let server = settings::server(args.server.as_deref(), args.auth_token_file.as_deref())?;
    client::ask(&server, method, path)?.json()
}

/// Formats a follower as a line, with a second one for its newest error.
fn lines(follower: &Value) -> String {
    let number = |key: &str| follower[key].as_u64().unwrap_or_default();
    let mut line = format!(
        "{}  {}  {}  {} delivered, {} behind ({:.1} s), {:.0} frames/s",
        text(&follower["name"]),
        text(&follower["state"]),
        text(&follower["address"]),
        number("delivered_frames"),
        number("behind_frames"),
        follower["lag_s"].as_f64().unwrap_or_default(),
        follower["frames_per_s"].as_f64().unwrap_or_default(),
    );
    for (key, what) in
        [("rejected_frames", "rejected"), ("skipped_frames", "skipped"), ("altered_values", "values NULL")]
    {
        if number(key) > 0 {
            line.push_str(&format!(", {} {what}", number(key)));
        }
    }
    if let (Some(error), Some(at)) = (follower["last_error"][0].as_str(), follower["last_error"][1].as_i64()) {
        line.push_str(&format!("\n  {}  {error}", instant::format(at)));
    }
    line
}
