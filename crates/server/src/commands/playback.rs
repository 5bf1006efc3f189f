//! `strongback playback`: starts, lists, controls and ends playbacks of a running server.

use serde_json::{Map, Value, json};
use strongback_sources::instant;

use crate::cli::{ControlWord, PlaybackArgs, PlaybackCommand};
use crate::commands::client;
use crate::commands::client::text;
use crate::commands::outcome::{Outcome, check_times};
use crate::commands::settings;
use crate::text::plural::many;

/// Sends a command to the server and prints the resulting state as a line.
///
/// # Errors
/// If the server refuses, or none answers.
pub fn run(command: &PlaybackCommand) -> anyhow::Result<Outcome> {
    match command {
        PlaybackCommand::Start { from, to, run, at, speed, looped, paused, name, args } => {
            check_times(&[("--from", from), ("--to", to), ("--at", at)])?;
            let asked = [("from", from), ("to", to), ("run", run), ("at", at), ("name", name)];
            let mut body = of_texts(&asked);
            body.extend(fields(json!({ "speed": speed, "loop": looped, "paused": paused })));
            let state = ask(args, "POST", "", Some(body))?;
            println!("{}", line(&state));
            println!("director {}", text(&state["director"]));
        }
        PlaybackCommand::List { args } => {
            let answer = ask(args, "GET", "", None)?;
            for state in answer["playbacks"].as_array().into_iter().flatten() {
                println!("{}", line(state));
            }
        }
        PlaybackCommand::Control { id, director, word, args } => {
            let mut body = spoken(word);
            body.extend(of_texts(&[("director", director)]));
            let state = ask(args, "POST", id, Some(body))?;
            println!("{}", line(&state));
            if let Some(director) = state["director"].as_str() {
                println!("director {director}");
            }
        }
        PlaybackCommand::End { id, director, args } => {
            ask(args, "DELETE", id, Some(fields(json!({ "director": director }))))?;
            println!("{id}: ended");
        }
    }
    Ok(Outcome::Done)
}

fn ask(args: &PlaybackArgs, method: &str, id: &str, body: Option<Map<String, Value>>) -> anyhow::Result<Value> {
    let path = match id {
        "" => "/api/playbacks".to_owned(),
        id => format!("/api/playbacks/{}", client::percent_encoded(id)),
    };
    let body = body.map_or_else(String::new, |body| Value::Object(body).to_string());
    let server = settings::server(args.server.as_deref(), args.auth_token_file.as_deref())?;
    client::ask_with(&server, method, &path, &body)?.json()
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn of_texts(texts: &[(&str, &Option<String>)]) -> Map<String, Value> {
    texts.iter().filter_map(|(key, text)| Some(((*key).to_owned(), text.as_ref()?.clone().into()))).collect()
}

/// Returns the director's command as the JSON of the REST interface.
fn spoken(word: &ControlWord) -> Map<String, Value> {
    let said = match word {
        ControlWord::Play => json!({ "do": "play" }),
        ControlWord::Pause => json!({ "do": "pause" }),
        ControlWord::Step { frames: Some(frames), .. } => json!({ "do": "step", "frames": frames }),
        ControlWord::Step { ms, .. } => json!({ "do": "step", "ms": ms }),
        ControlWord::Seek { at } => json!({ "do": "seek", "at": at }),
        ControlWord::Speed { speed } => json!({ "do": "speed", "speed": speed }),
        ControlWord::Loop { looped } => json!({ "do": "loop", "loop": looped }),
        ControlWord::Interval { from, to } => {
            let mut said = of_texts(&[("from", from), ("to", to)]);
            said.insert("do".to_owned(), "interval".into());
            Value::Object(said)
        }
        ControlWord::Take => json!({ "do": "take" }),
    };
    fields(said)
}

/// Formats a state as a line.
fn line(state: &Value) -> String {
    let time = |key: &str| text(&state[key]).parse().map_or_else(|_| "?".to_owned(), instant::format);
    let is = |key: &str| state[key].as_bool().unwrap_or_default();
    let doing = match (is("ended"), is("paused"), is("behind")) {
        (true, ..) => "ended",
        (_, true, _) => "paused",
        (.., true) => "behind",
        _ => "playing",
    };
    format!(
        "{}  {doing:7} {:>6}x  {}  of {} to {}{}  {}  {}",
        text(&state["id"]),
        state["speed"],
        time("at"),
        time("from"),
        time("to"),
        if is("loop") { ", again and again" } else { "" },
        many(state["viewers"].as_u64().unwrap_or_default(), "viewer"),
        text(&state["name"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_said_as_rest_has_them() {
        let said = |word: ControlWord| Value::Object(spoken(&word));
        assert_eq!(said(ControlWord::Step { frames: Some(3), ms: None }), json!({ "do": "step", "frames": 3 }));
        assert_eq!(said(ControlWord::Step { frames: None, ms: Some(2.5) }), json!({ "do": "step", "ms": 2.5 }));
        let interval = ControlWord::Interval { from: None, to: Some("now".to_owned()) };
        assert_eq!(said(interval), json!({ "do": "interval", "to": "now" }));
        assert_eq!(said(ControlWord::Loop { looped: true }), json!({ "do": "loop", "loop": true }));
    }

    #[test]
    fn a_state_is_a_line() {
        let state = json!({ "id": "ab", "name": "review", "from": "0", "to": "60000000000", "at": "1000000000",
            "speed": 2.5, "paused": false, "loop": true, "ended": false, "viewers": 3, "behind": true });
        let said = line(&state);
        for part in ["ab  behind", "2.5x", "00:00:01", "again", "3 viewers  review"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
