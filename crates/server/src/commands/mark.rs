//! `strongback mark`: marks stored values as bad, uncertain or good, and lists marks.
//!
//! Opens a store that no server uses; otherwise asks its server.

use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use strongback_query::{MarkedSpan, Quality};
use strongback_sources::instant;
use strongback_store::Store;

use crate::cli::RunArgs;
use crate::cli::mark::{MarkArgs, MarkCommand, MarkListArgs};
use crate::commands::client::{self, Server};
use crate::commands::outcome::{Outcome, check_times};
use crate::commands::reach::{self, DataPlace, Flags};
use crate::commands::settings;
use crate::http::{range, split_patterns};
use crate::marks::cards::{MarkCard, in_words};
use crate::marks::log::{self, MarkLog, MarkRows, Marks, Statement};
use crate::process::clock::now_ns;

/// Marks values, or lists marks.
///
/// # Errors
/// If the channels or times are wrong, or neither the folder nor its server can be reached.
pub fn run(command: &MarkCommand) -> anyhow::Result<Outcome> {
    let (args, quality) = match command {
        MarkCommand::List(args) => return list(args),
        MarkCommand::Bad(args) => (args, Quality::Bad),
        MarkCommand::Uncertain(args) => (args, Quality::Uncertain),
        MarkCommand::Good(args) => (args, Quality::Good),
    };
    check_times(&[("--from", &args.from), ("--to", &args.to), ("--at", &args.at)])?;
    match find(&args.place, true)? {
        DataPlace::Server(server) => by_server(&server, args, quality)?,
        DataPlace::Folder(found) => {
            let store = &found.0;
            let done = in_store(store, args, quality);
            store.close(now_ns()).context("the store did not close")?;
            done?;
        }
    }
    Ok(Outcome::Done)
}

fn find(place: &RunArgs, writes: bool) -> anyhow::Result<DataPlace> {
    let config = if place.server.is_some() { None } else { settings::file(place.config.as_deref()) };
    reach::find(&Flags {
        config: config.as_deref(),
        data: place.data.as_deref(),
        server: place.server.as_deref(),
        token: place.auth_token_file.as_deref(),
        writes,
    })
}

/// Returns who marks.
fn who(args: &MarkArgs) -> anyhow::Result<String> {
    let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
    args.by.clone().or_else(user).context("say with --by who marks")
}

fn by_server(server: &Server, args: &MarkArgs, quality: Quality) -> anyhow::Result<()> {
    let by = who(args)?;
    let mut body = json!({ "channels": args.channels, "quality": quality.name(), "by": by, "reason": args.reason });
    for (key, time) in [("from", &args.from), ("to", &args.to), ("at", &args.at)] {
        if let Some(time) = time {
            body[key] = json!(time);
        }
    }
    let answer = client::ask_with(server, "POST", "/api/marks", &body.to_string())?.json()?;
    print(answer["marks"].as_array().map(Vec::as_slice).unwrap_or_default());
    Ok(())
}

fn in_store(store: &Store, args: &MarkArgs, quality: Quality) -> anyhow::Result<()> {
    let now = now_ns();
    let time = |text: &str| instant::parse(text, now).map_err(|why| anyhow!(why));
    let span = match (&args.from, &args.to, &args.at) {
        (Some(from), Some(to), _) => time(from)?..time(to)?,
        (_, _, Some(at)) => {
            let at = time(at)?;
            at..at.saturating_add(1)
        }
        _ => return Err(anyhow!("--from and --to are needed, or --at for one instant")),
    };
    let log = MarkLog::default();
    log.load(store).context("the marks cannot be read")?;
    let chosen = log::choose(&store.catalog(), &args.channels)?;
    let statement = Statement { time: span, quality, by: who(args)?, reason: args.reason.clone() };
    let write = |rows: &MarkRows| {
        let (stream, indices) = store.resolve_own(&MarkRows::spec(), now)?;
        let outcomes = store.append(&rows.batch(stream.id, &indices), now).outcomes;
        Ok((outcomes, store.commit(now).map(drop)))
    };
    let apply = |marks: &Marks| store.exclude(marks.excluded(&store.catalog()));
    let marked = log.mark(&chosen, &statement, now, write, apply)?;
    println!("{}", in_words(&marked));
    Ok(())
}

fn list(args: &MarkListArgs) -> anyhow::Result<Outcome> {
    check_times(&[("--from", &args.from), ("--to", &args.to)])?;
    match find(&args.place, false)? {
        DataPlace::Server(server) => {
            let mut path = format!("/api/marks?all={}&limit=100000", args.all);
            let channels = (!args.channels.is_empty()).then(|| args.channels.join(","));
            for (key, value) in [("channels", &channels), ("from", &args.from), ("to", &args.to)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{key}={}", client::percent_encoded(value)));
                }
            }
            let answer = client::ask(&server, "GET", &path)?.json()?;
            print(answer["marks"].as_array().map(Vec::as_slice).unwrap_or_default());
        }
        DataPlace::Folder(found) => {
            let store = &found.0;
            let done = of_store(store, args);
            store.close(now_ns()).context("the store did not close")?;
            print(&done?);
        }
    }
    Ok(Outcome::Done)
}

fn of_store(store: &Store, args: &MarkListArgs) -> anyhow::Result<Vec<Value>> {
    let failed = |failure: crate::http::answer::Failure| anyhow!(failure.message);
    let time = range(args.from.as_deref(), args.to.as_deref(), i64::MIN).map_err(failed)?;
    let log = MarkLog::default();
    log.load(store).context("the marks cannot be read")?;
    let chosen = match args.channels.is_empty() {
        true => None,
        false => Some(split_patterns(&args.channels.join(",")).map_err(failed)?),
    };
    let found: Vec<MarkedSpan> = log.now().list(&store.catalog(), chosen.as_deref(), &time, args.all)?;
    Ok(found.iter().map(|span| json!(MarkCard::from(span))).collect())
}

fn print(marks: &[Value]) {
    println!("{:>6} {:9} {:30} {:30} {:24} {:12}  reason", "id", "quality", "from", "to", "channel", "by");
    let time = |value: &Value| client::text(value).parse().map(instant::format).unwrap_or_default();
    for mark in marks {
        let text = |key: &str| client::text(&mark[key]).to_owned();
        let (id, quality, channel, by, reason) =
            (text("id"), text("quality"), text("channel"), text("by"), text("reason"));
        let (from, to) = (time(&mark["from"]), time(&mark["to"]));
        println!("{id:>6} {quality:9} {from:30} {to:30} {channel:24} {by:12}  {reason}");
    }
}
