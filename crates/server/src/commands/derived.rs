//! `strongback derived`: manages the derived channels of a running server.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::cli::{DerivedArgs, DerivedCommand};
use crate::commands::client::{ask_with, percent_encoded, text};
use crate::commands::outcome::Outcome;
use crate::commands::settings;
use crate::text::plural::many;

/// Time between two polls of a backfill's progress.
const ASK_EACH: Duration = Duration::from_millis(200);

fn ask(args: &DerivedArgs, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let server = settings::server(args.server.as_deref(), args.auth_token_file.as_deref())?;
    ask_with(&server, method, path, &body)?.json()
}

fn path(name: &str) -> String {
    format!("/api/derived/{}", percent_encoded(name))
}

/// Lists, shows, sets, removes or backfills.
///
/// # Errors
/// If the server refuses, or none answers.
pub fn run(command: &DerivedCommand) -> anyhow::Result<Outcome> {
    match command {
        DerivedCommand::List { args } => {
            let answer = ask(args, "GET", "/api/derived", &Value::Null)?;
            println!("{:12} {:>7}  {:32} expression", "state", "version", "name");
            for of in answer["derived"].as_array().into_iter().flatten() {
                let (state, name, version) = (text(&of["state"]), text(&of["name"]), of["version"].to_string());
                println!("{state:12} {version:>7}  {name:32} {}", text(&of["expression"]));
                let waits = of["waits"].as_array().into_iter().flatten().map(text);
                waits.chain(of["trouble"].as_str()).for_each(|why| println!("{:23}{why}", ""));
            }
        }
        DerivedCommand::Show { name, args } => {
            println!("{:#}", ask(args, "GET", &path(name), &Value::Null)?);
        }
        DerivedCommand::Set { name, trigger, expression, unit, description, align_ms, wait, args } => {
            let body = json!({
                "trigger": trigger,
                "expression": expression,
                "unit": unit,
                "description": description,
                "align_ms": align_ms,
                "wait": wait,
            });
            let answer = ask(args, "PUT", &path(name), &body)?;
            println!("{name}: version {}", answer["version"]);
        }
        DerivedCommand::Remove { name, args } => {
            ask(args, "DELETE", &path(name), &Value::Null)?;
            println!("{name}: removed");
        }
        DerivedCommand::Backfill { name, from, to, without_late, wait, args } => {
            let body = json!({ "from": from, "to": to, "late": !without_late });
            let begun = ask(args, "POST", &format!("{}/backfill", path(name)), &body)?;
            let version = text(&begun["version"]);
            println!("{name}: version {version}");
            if !*wait {
                return Ok(Outcome::Done);
            }
            loop {
                let card = ask(args, "GET", &path(name), &Value::Null)?;
                let all = card["backfills"].as_array();
                let Some(of) = all.into_iter().flatten().find(|of| of["version"] == version) else {
                    bail!("the server no longer knows of backfill {version}");
                };
                match text(&of["state"]) {
                    "running" => std::thread::sleep(ASK_EACH),
                    "done" => {
                        let frames: u64 = text(&of["frames"]).parse().context("backfill: frames is not a number")?;
                        println!("{}", many(frames, "result"));
                        break;
                    }
                    why => bail!("backfill {version}: {why}"),
                }
            }
        }
    }
    Ok(Outcome::Done)
}
