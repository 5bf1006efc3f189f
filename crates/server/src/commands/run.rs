//! `strongback run`: named runs of a store, their clocks, and their release.
//!
//! Opens a store that no server uses; otherwise asks its server.

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use strongback_sources::instant;
use strongback_store::Store;

use crate::cli::RunCommand;
use crate::commands::client::{self, Server};
use crate::commands::outcome::Outcome;
use crate::commands::reach;
use crate::commands::reach::{DataPlace, Flags};
use crate::commands::settings;
use crate::process::clock::now_ns;
use crate::runs::cards::{cards, in_words, not_released, t_words};
use crate::runs::clock::RunStep;
use crate::runs::log;
use crate::runs::log::{RunError, RunLog, RunStepRow};

/// A request to a store or a server.
enum RunRequest<'a> {
    List,
    Release(&'a str),
    Step(&'a str, Stepped<'a>),
}

/// A step with its arguments.
enum Stepped<'a> {
    Start(&'a [String]),
    T0(&'a str),
    Plain(RunStep, &'static str),
}

/// Lists runs, releases one, or takes a step of one.
///
/// # Errors
/// If there is no such run, the step is not allowed, or neither the folder nor its server can be reached.
pub fn run(command: &RunCommand) -> anyhow::Result<Outcome> {
    let plain = |name, step, word| RunRequest::Step(name, Stepped::Plain(step, word));
    let (args, wish) = match command {
        RunCommand::List { args } => (args, RunRequest::List),
        RunCommand::Release { name, args } => (args, RunRequest::Release(name)),
        RunCommand::Start { name, channels, args } => (args, RunRequest::Step(name, Stepped::Start(channels))),
        RunCommand::T0 { name, at, args } => (args, RunRequest::Step(name, Stepped::T0(at))),
        RunCommand::Hold { name, args } => (args, plain(name, RunStep::Hold, "hold")),
        RunCommand::Resume { name, args } => (args, plain(name, RunStep::Resume, "resume")),
        RunCommand::Stop { name, args } => (args, plain(name, RunStep::Stop, "stop")),
    };
    let config = if args.server.is_some() { None } else { settings::file(args.config.as_deref()) };
    let flags = Flags {
        config: config.as_deref(),
        data: args.data.as_deref(),
        server: args.server.as_deref(),
        token: args.auth_token_file.as_deref(),
        writes: !matches!(wish, RunRequest::List),
    };
    match reach::find(&flags)? {
        DataPlace::Server(server) => from_server(&server, &wish),
        DataPlace::Folder(found) => {
            let store = &found.0;
            let done = from_store(store, &wish);
            store.close(now_ns()).context("the store did not close")?;
            done
        }
    }
}

fn from_store(store: &Store, wish: &RunRequest<'_>) -> anyhow::Result<Outcome> {
    let log = RunLog::default();
    log.load(store).context("what was done with runs cannot be read")?;
    let now = now_ns();
    match wish {
        RunRequest::List => print(&cards(&store.runs(), &log.runs(), now)),
        RunRequest::Release(name) => {
            if store.release_run(name, now_ns())?.is_none() {
                bail!("{}", not_released(name, log.runs().contains_key(*name)));
            }
            store.commit(now_ns()).context("the release is not written down")?;
            println!("{name}: released");
        }
        RunRequest::Step(name, stepped) => {
            let (step, channels) = match stepped {
                Stepped::Start(channels) => (RunStep::Start, *channels),
                Stepped::T0(at) => (RunStep::T0(instant::parse(at, now).map_err(|why| anyhow!(why))?), &[][..]),
                Stepped::Plain(step, _) => (*step, &[][..]),
            };
            let write = |row: &RunStepRow<'_>| {
                let (stream, indices) = store.resolve_own(&RunStepRow::spec(), now)?;
                log::stored(store.append(&row.batch(stream.id, &indices), now).outcomes)?;
                Ok(store.commit(now).map(drop))
            };
            let (run, durable) = log.step(name, step, channels, now, write)?;
            durable.map_err(RunError::NotDurable)?;
            println!("{}", in_words(name, step, &run.clock, now));
        }
    }
    Ok(Outcome::Done)
}

fn from_server(server: &Server, wish: &RunRequest<'_>) -> anyhow::Result<Outcome> {
    match wish {
        RunRequest::List => {
            let answer = client::ask(server, "GET", "/api/runs")?.json()?;
            print(answer["runs"].as_array().map(Vec::as_slice).unwrap_or_default());
        }
        RunRequest::Release(name) => {
            let path = format!("/api/runs/{}/release", client::percent_encoded(name));
            client::ask(server, "POST", &path)?.json()?;
            println!("{name}: released");
        }
        RunRequest::Step(name, stepped) => {
            let (word, query) = match stepped {
                Stepped::Start([]) => ("start", String::new()),
                Stepped::Start(channels) => {
                    ("start", format!("?channels={}", client::percent_encoded(&channels.join(","))))
                }
                Stepped::T0(at) => ("t0", format!("?at={}", client::percent_encoded(at))),
                Stepped::Plain(_, word) => (*word, String::new()),
            };
            let path = format!("/api/runs/{}/{word}{query}", client::percent_encoded(name));
            let answer = client::ask(server, "POST", &path)?.json()?;
            println!("{}", answer["words"].as_str().unwrap_or_default());
        }
    }
    Ok(Outcome::Done)
}

fn print(runs: &[Value]) {
    println!("{:10} {:9} {:>12} {:>8} {:>9} {:>14}  run", "protection", "clock", "T", "streams", "segments", "bytes");
    for run in runs {
        let data = match (run["protected"].as_bool(), run["streams"].as_u64()) {
            (Some(true), _) => "protected",
            (_, Some(0)) => "",
            _ => "released",
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let t = run["clock"]["t"].as_str().and_then(|t| t.parse().ok()).map(t_words).unwrap_or_default();
        let (clock, bytes, name) = (text(&run["clock"]["state"]), text(&run["bytes"]), text(&run["name"]));
        // A JSON value ignores a width.
        let (streams, segments) = (run["streams"].to_string(), run["segments"].to_string());
        println!("{data:10} {clock:9} {t:>12} {streams:>8} {segments:>9} {bytes:>14}  {name}");
    }
}
